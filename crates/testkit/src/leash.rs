use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// Ends programs that are made to outlive who starts them: when it is dropped, and also when the test is killed.
///
/// A small shell waits for the end of a pipe that only we hold open, as for a [`crate::parts::Scratch`], and then kills all that
/// works in a directory, which may just have been removed.
#[derive(Debug)]
pub struct Leash {
    shell: Child,
}

/// Until nobody is found, since a program that is being killed may just have started another.
const KILL: &str = r#"cat >/dev/null
for _ in 1 2 3 4 5 6 7 8 9 10; do
    found=
    for process in /proc/[0-9]*; do
        case "$(readlink "$process/cwd")" in
        "$1" | "$1 (deleted)") found=yes; kill -9 "${process#/proc/}" ;;
        esac
    done
    [ -n "$found" ] || exit 0
done"#;

impl Leash {
    /// For all processes that work in this directory.
    #[track_caller]
    pub fn new(directory: &Path) -> Self {
        let shell = Command::new("sh")
            .args(["-c", KILL, "sh"])
            .arg(directory)
            .current_dir("/")
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
