use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use nix::fcntl::{Flock, FlockArg};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::exit::{Exit, Failure};

/// The directory that holds everything a sandbox makes. It is ours as long as `lock` is.
#[derive(Debug)]
pub(crate) struct Directory {
    path: PathBuf,
    _lock: Flock<File>,
}

/// Marks the directory as a sandbox's. Its lock is held by the process that runs it, whose number is in it.
const LOCK: &str = "lock";
/// Everything else that a sandbox makes; nothing else is ever removed.
const CONTENT: &[&str] = &["clouds.yaml", "config.yaml", "env", "kubeconfig", "run"];
/// Kept when a start fails: they say why.
const LOGS: &str = "logs";

/// What a sandbox in the background prints. It is opened by who starts the sandbox, before it starts.
pub(crate) const UP_LOG: &str = "up.log";

/// How long a sandbox may take to stop before it is killed.
const PATIENCE: Duration = Duration::from_secs(30);

impl Directory {
    /// `DIR`, or `portcullis` in the user's state directory.
    pub(crate) fn choose(given: Option<PathBuf>) -> PathBuf {
        let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let state =
            || variable("XDG_STATE_HOME").or_else(|| variable("HOME").map(|home| home.join(".local/state")));
        given.unwrap_or_else(|| state().unwrap_or_else(|| "/var/lib".into()).join("portcullis"))
    }

    /// Takes the directory for this process, and removes what a killed sandbox left in it.
    pub(crate) fn claim(path: &Path) -> Result<Self, Failure> {
        let shown = path.display();
        let foreign = fs::read_dir(path).is_ok_and(|mut entries| entries.next().is_some())
            && !path.join(LOCK).is_file();
        if foreign {
            return Err(Failure::new(Exit::Usage, format!("{shown} holds files that are not a sandbox's"))
                .note("Nothing was changed.")
                .note("Give an empty or new directory with --dir."));
        }
        fs::create_dir_all(path.join(LOGS)).map_err(|error| cannot(path, &error))?;
        // It has to be absolute: the programs started from here do not share our working directory.
        let path = path.canonicalize().map_err(|error| cannot(path, &error))?;
        let file =
            OpenOptions::new().create(true).read(true).write(true).truncate(false).open(path.join(LOCK));
        let Some(mut lock) = lock(file.map_err(|error| cannot(&path, &error))?) else {
            let process = owner(&path).map_or_else(String::new, |pid| format!(", as process {pid}"));
            return Err(Failure::new(Exit::Failed, format!("a sandbox runs in {shown} already{process}"))
                .note(format!("Use it: source {shown}/env. Stop it: portcullis down --dir {shown}"))
                .note("For another one beside it, give another directory with --dir."));
        };
        let write = lock.set_len(0).and_then(|()| lock.write_all(std::process::id().to_string().as_bytes()));
        write.map_err(|error| cannot(&path, &error))?;
        let directory = Directory { path, _lock: lock };
        for name in CONTENT {
            remove(&directory.path.join(name));
        }
        for log in fs::read_dir(directory.logs()).into_iter().flatten().flatten() {
            if log.file_name() != UP_LOG {
                remove(&log.path());
            }
        }
        fs::create_dir_all(directory.path.join("run")).map_err(|error| cannot(&directory.path, &error))?;
        Ok(directory)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn logs(&self) -> PathBuf {
        self.path.join(LOGS)
    }

    /// Makes a directory for the files that are of no interest to the user.
    pub(crate) fn run(&self, name: &str) -> Result<PathBuf, Failure> {
        let path = self.path.join("run").join(name);
        fs::create_dir_all(&path).map_err(|error| cannot(&path, &error))?;
        Ok(path)
    }

    /// Writes one of its files, for its owner's eyes only, all at once.
    pub(crate) fn write(&self, name: &str, text: &str) -> Result<PathBuf, Failure> {
        use std::os::unix::fs::OpenOptionsExt;
        let (path, draft) = (self.path.join(name), self.path.join("run").join(name));
        OpenOptions::new()
            .create(true)
            .write(true)
            .truncate(true)
            .mode(0o600)
            .open(&draft)
            .and_then(|mut file| file.write_all(text.as_bytes()))
            .and_then(|()| fs::rename(&draft, &path))
            .map_err(|error| cannot(&path, &error))?;
        Ok(path)
    }

    /// Removes everything a sandbox made, and the directory itself if nothing else is in it.
    pub(crate) fn remove(self) {
        for name in CONTENT.iter().chain([&LOGS, &LOCK]) {
            remove(&self.path.join(name));
        }
        let _ = fs::remove_dir(&self.path);
    }

    /// Removes everything but what says why a start failed.
    pub(crate) fn keep_logs(self) {
        for name in CONTENT {
            remove(&self.path.join(name));
        }
    }
}

/// Ends the sandbox that runs in `path`, if one does, and removes what it made. Says whether one ran.
pub(crate) fn stop(path: &Path) -> Result<bool, Failure> {
    let deadline = Instant::now() + PATIENCE;
    let mut ran = false;
    // The last file that a sandbox removes.
    while let Some(file) = open_existing(path)? {
        if let Some(lock) = lock(file) {
            // What is left was left by a sandbox that was killed.
            Directory { path: path.into(), _lock: lock }.remove();
            return Ok(ran);
        }
        let patient = Instant::now() < deadline;
        if let Some(process) = owner(path).filter(|_| !ran || !patient) {
            let signal = if patient { Signal::SIGTERM } else { Signal::SIGKILL };
            ran = true;
            kill(process, signal).map_err(|errno| {
                Failure::new(
                    Exit::Failed,
                    format!("cannot stop the sandbox in {}, process {process}: {errno}", path.display()),
                )
                .note("It runs on. Stop it as the user who started it.")
            })?;
        }
        sleep(Duration::from_millis(50));
    }
    Ok(ran)
}

/// The file whose lock a running sandbox holds, if there is one.
fn open_existing(path: &Path) -> Result<Option<File>, Failure> {
    match OpenOptions::new().read(true).write(true).open(path.join(LOCK)) {
        Ok(file) => Ok(Some(file)),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(None),
        Err(error) => Err(cannot(path, &error)),
    }
}

/// The lock, unless a running sandbox holds it.
fn lock(file: File) -> Option<Flock<File>> {
    Flock::lock(file, FlockArg::LockExclusiveNonblock).ok()
}

/// Who holds the lock. It may be gone already, or not have said its number yet.
fn owner(path: &Path) -> Option<Pid> {
    fs::read_to_string(path.join(LOCK)).ok()?.trim().parse().ok().map(Pid::from_raw)
}

fn remove(path: &Path) {
    let _ = if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) };
}

fn cannot(path: &Path, error: &std::io::Error) -> Failure {
    Failure::new(Exit::Lacking, format!("cannot write in {}: {error}", path.display()))
        .note("Nothing was started.")
        .note("Give a directory that you may write in with --dir.")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn temporary() -> tempfile::TempDir {
        tempfile::tempdir().unwrap()
    }

    #[test]
    fn one_at_a_time() {
        let parent = temporary();
        let path = parent.path().join("sandbox");
        let held = Directory::claim(&path).unwrap();
        let refused = Directory::claim(&path).unwrap_err();
        assert!(
            refused.errors[0].contains(&format!("already, as process {}", std::process::id())),
            "{refused:?}"
        );
        held.remove();
        assert!(!path.exists());
        Directory::claim(&path).unwrap();
    }

    #[test]
    fn files_of_others_are_neither_used_nor_removed() {
        let parent = temporary();
        fs::write(parent.path().join("thesis.txt"), "years").unwrap();
        assert_eq!(Directory::claim(parent.path()).unwrap_err().exit, Exit::Usage);

        let path = parent.path().join("sandbox");
        let held = Directory::claim(&path).unwrap();
        fs::write(path.join("mine"), "").unwrap();
        held.remove();
        assert!(path.join("mine").exists());
    }

    #[test]
    fn what_a_killed_sandbox_left_is_removed() {
        let parent = temporary();
        let path = parent.path().join("sandbox");
        let killed = Directory::claim(&path).unwrap();
        killed.run("ovn").unwrap();
        killed.write("env", "old").unwrap();
        drop(killed);
        let next = Directory::claim(&path).unwrap();
        assert!(!path.join("env").exists() && !path.join("run/ovn").exists());
        drop(next);
        assert!(!stop(&path).unwrap(), "nothing runs in it");
        assert!(!path.exists());
    }

    #[test]
    fn logs_of_a_failed_start_are_kept() {
        let parent = temporary();
        let path = parent.path().join("sandbox");
        let failed = Directory::claim(&path).unwrap();
        fs::write(failed.logs().join("etcd.log"), "why").unwrap();
        failed.run("ovn").unwrap();
        failed.keep_logs();
        assert!(path.join("logs/etcd.log").exists() && !path.join("run").exists());
    }
}
