//! What is different on a terminal: colours, and nothing else. `script` gives the program one.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::process::{Command, Stdio};

const RED: &str = "\u{1b}[31m";

/// What `portcullis` prints on a terminal, for a mistake.
fn on_terminal(arguments: &str, environment: (&str, &str)) -> String {
    let line = format!("{} show-config --config /nowhere.yaml {arguments}", env!("CARGO_BIN_EXE_portcullis"));
    let output = Command::new("script")
        .args(["--quiet", "--return", "--command", &line, "/dev/null"])
        // On a CI system colours are taken to be wanted, on a dumb terminal too.
        .env_remove("CI")
        .env_remove("NO_COLOR")
        .env("TERM", "xterm")
        .env(environment.0, environment.1)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn colours_are_for_terminals_that_want_them() {
    let plain = ("UNUSED", "");
    assert!(on_terminal("", plain).contains(RED));
    for (arguments, environment) in
        [("--color never", plain), ("", ("NO_COLOR", "1")), ("", ("TERM", "dumb"))]
    {
        let text = on_terminal(arguments, environment);
        assert!(text.starts_with("error: /nowhere.yaml"), "{arguments} {environment:?}: {text:?}");
    }
}

#[test]
fn there_are_none_in_a_pipe() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_portcullis"));
    let output =
        command.args(["show-config", "--config", "/nowhere.yaml"]).env("TERM", "xterm").output().unwrap();
    assert!(!String::from_utf8(output.stderr).unwrap().contains('\u{1b}'));
}
