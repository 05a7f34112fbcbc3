//! What is different on a terminal: colours, and questions. `script` gives the program one.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::io::{Read, Write};
use std::process::{Command, Stdio};

const RED: &str = "\u{1b}[31m";

/// What `portcullis` prints on a terminal, for a mistake.
fn on_terminal(arguments: &str, environment: (&str, &str)) -> String {
    let line =
        format!("exec '{}' show-config --config /nowhere.yaml {arguments}", env!("CARGO_BIN_EXE_portcullis"));
    let output = Command::new("script")
        // It runs the line with it.
        .env("SHELL", "/bin/sh")
        .args(["--quiet", "--return", "--command", &line, "/dev/null"])
        // On a CI system colours are taken to be wanted, on a dumb terminal too.
        .env_remove("CI")
        .env_remove("NO_COLOR")
        .env_remove("CLICOLOR_FORCE")
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
    command
        .args(["show-config", "--config", "/nowhere.yaml"])
        .env("TERM", "xterm")
        .env_remove("CLICOLOR_FORCE");
    let output = command.output().unwrap();
    assert!(!String::from_utf8(output.stderr).unwrap().contains('\u{1b}'));
}

/// What `portcullis hash-password` prints to who answers its questions with these keys, and its exit code.
fn hash_password(answers: &[(&str, &str)]) -> (i32, String) {
    // The program takes the place of the shell, which would answer Ctrl-C with an exit code of its own.
    let line = format!("exec '{}' hash-password", env!("CARGO_BIN_EXE_portcullis"));
    let mut script = Command::new("script")
        .env("SHELL", "/bin/sh")
        .args(["--quiet", "--return", "--echo", "never", "--command", &line, "/dev/null"])
        .env("NO_COLOR", "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let (mut keyboard, mut screen) = (script.stdin.take().unwrap(), script.stdout.take().unwrap());
    let mut shown = Vec::new();
    for (question, keys) in answers {
        // What is typed before the question is thrown away.
        while !shown.ends_with(question.as_bytes()) {
            let mut next = [0];
            screen.read_exact(&mut next).unwrap();
            shown.extend(next);
        }
        keyboard.write_all(keys.as_bytes()).unwrap();
    }
    screen.read_to_end(&mut shown).unwrap();
    (script.wait().unwrap().code().unwrap(), String::from_utf8(shown).unwrap())
}

#[test]
fn a_password_is_typed_twice_and_never_shown() {
    let (code, text) = hash_password(&[("Password: ", "correct horse\n"), ("Again: ", "correct horse\n")]);
    assert_eq!(code, 0, "{text}");
    assert!(
        text.starts_with("Password: \r\nAgain: \r\n$argon2id$v=19$") && !text.contains("horse"),
        "{text:?}"
    );
    let (code, text) = hash_password(&[("Password: ", "correct horse\n"), ("Again: ", "correct house\n")]);
    assert_eq!(code, 2, "{text}");
    assert!(text.contains("the two passwords are not the same") && !text.contains("horse"), "{text:?}");
    let (code, text) = hash_password(&[("Password: ", "corr\u{3}")]);
    assert_eq!(code, 1, "{text}");
    assert!(text.contains("interrupted by SIGINT"), "{text:?}");
}
