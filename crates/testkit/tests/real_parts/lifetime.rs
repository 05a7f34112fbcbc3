//! Nothing stays behind, however a test ends.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use portcullis_testkit::eventually;
use portcullis_testkit::parts::{Namespace, run};

/// Starts `src/bin/hold.rs`, which starts parts, and gives it with the directory of its parts.
fn hold(how: &str) -> (Child, PathBuf) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_hold"))
        .arg(how)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let file = Path::new(line.trim_end());
    (child, file.ancestors().nth(2).unwrap().to_owned())
}

/// The processes that have something of `directory` on their command line.
fn processes_of(directory: &Path) -> Vec<String> {
    let all = run(&Namespace::host(), "ps", &["-eo", "pid,args"]).unwrap();
    let of_ours = |line: &&str| line.contains(directory.to_str().unwrap()) && !line.contains("rm -rf");
    all.lines().filter(of_ours).map(str::to_owned).collect()
}

fn nothing_is_left(directory: &Path) {
    eventually("no process is left", || processes_of(directory).is_empty());
    eventually("no file is left", || !directory.exists());
}

fn started(how: &str) -> (Child, PathBuf) {
    let (child, directory) = hold(how);
    assert!(directory.exists(), "{}", directory.display());
    (child, directory)
}

#[test]
fn after_a_kill() {
    let (mut child, directory) = started("forever");
    assert!(
        processes_of(&directory).len() >= 5,
        "three members, a master, its worker: {:?}",
        processes_of(&directory)
    );
    child.kill().unwrap();
    child.wait().unwrap();
    nothing_is_left(&directory);
}

#[test]
fn after_ctrl_c() {
    let (mut child, directory) = started("forever");
    let pid = child.id().to_string();
    run(&Namespace::host(), "kill", &["-INT", &pid]).unwrap();
    child.wait().unwrap();
    nothing_is_left(&directory);
}

#[test]
fn after_a_panic() {
    let (mut child, directory) = hold("panic");
    assert!(!child.wait().unwrap().success());
    nothing_is_left(&directory);
}

#[test]
fn after_a_return() {
    let (mut child, directory) = hold("return");
    assert!(child.wait().unwrap().success());
    nothing_is_left(&directory);
}
