use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// Ends programs that are made to outlive who starts them: when it is dropped, and also when the test is killed.
///
/// A small shell waits for the end of a pipe that only we hold open, as for a [`crate::parts::Scratch`], and kills the process
/// group whose number then stands in a file.
#[derive(Debug)]
pub struct Leash {
    shell: Child,
}

const KILL: &str = r#"cat >/dev/null; [ -s "$1" ] && kill -KILL -- "-$(cat "$1")""#;

impl Leash {
    /// For the process whose number stands in this file, or will, and all of its group.
    #[track_caller]
    pub fn new(pid_file: &Path) -> Self {
        let shell = Command::new("sh")
            .args(["-c", KILL, "sh"])
            .arg(pid_file)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .unwrap_or_else(|error| panic!("cannot start sh: {error}"));
        Leash { shell }
    }
}

impl Drop for Leash {
    fn drop(&mut self) {
        drop(self.shell.stdin.take());
        let _ = self.shell.wait();
    }
}
