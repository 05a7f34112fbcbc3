use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::{Error, Result};

/// A directory that is gone when this is dropped, and also when the process is killed.
///
/// A small shell outside our process group waits for the end of a pipe that only we hold open. The kernel
/// closes it when we end, however that happens, and the shell removes the directory.
#[derive(Debug)]
pub struct Scratch {
    path: PathBuf,
    remover: Child,
}

impl Scratch {
    /// Makes a directory under the system's temporary one. The name is short: the path of a Unix socket has
    /// room for 107 bytes.
    pub fn new() -> Result<Self> {
        let path = tempfile::Builder::new()
            .prefix("pc-")
            .tempdir()
            .map_err(Error::io("cannot make a temporary directory"))?
            .keep();
        let remover = Command::new("sh")
            .args(["-c", REMOVE, "sh"])
            .arg(&path)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .map_err(Error::io("cannot start sh"))?;
        Ok(Scratch { path, remover })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Makes a directory inside it.
    pub fn directory(&self, name: &str) -> Result<PathBuf> {
        let path = self.path.join(name);
        std::fs::create_dir_all(&path).map_err(Error::io(format!("cannot make {}", path.display())))?;
        Ok(path)
    }
}

/// Programs that are being killed may still write for a moment, so one `rm` may not be enough.
const REMOVE: &str = r#"cat >/dev/null; for _ in 1 2 3 4 5 6 7 8 9 10; do rm -rf -- "$1" && [ ! -e "$1" ] && exit; sleep 0.2; done"#;

impl Drop for Scratch {
    fn drop(&mut self) {
        drop(self.remover.stdin.take());
        let _ = self.remover.wait();
    }
}
