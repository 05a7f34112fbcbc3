//! Nothing stays behind, however a test ends.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use portcullis_testkit::{eventually, processes_of};

/// Starts `src/bin/hold.rs`, which starts parts, and gives it with the directory of its parts.
fn hold(how: &str) -> (Child, PathBuf) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_hold")).arg(how).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert!(!line.is_empty(), "it did not get as far as to hold anything: what it said is above");
    let file = Path::new(line.trim_end());
    (child, file.ancestors().nth(2).unwrap().to_owned())
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

/// What `hold` starts, at least.
const NAMES: [&str; 8] = [
    "etcd",
    "haproxy",
    "kube-apiserver",
    "kube-controller-manager",
    "moto_server",
    "ovn-northd",
    "ovs-vswitchd",
    "ovsdb-server",
];

#[test]
fn after_a_kill() {
    let (mut child, directory) = started("forever");
    let running = processes_of(&directory);
    for name in NAMES {
        assert!(running.iter().any(|(_, line)| line.contains(name)), "no {name} in {running:?}");
    }
    child.kill().unwrap();
    child.wait().unwrap();
    nothing_is_left(&directory);
}

#[test]
fn after_ctrl_c() {
    let (mut child, directory) = started("forever");
    kill(Pid::from_raw(child.id().cast_signed()), Signal::SIGINT).unwrap();
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
