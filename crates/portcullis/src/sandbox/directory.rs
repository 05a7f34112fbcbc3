use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::exit::{Exit, Failure};

/// The directory that holds everything a sandbox makes. It is this process' as long as the mark is locked.
#[derive(Debug)]
pub(crate) struct Directory {
    path: PathBuf,
    mark: Mark,
    _lock: Flock<File>,
}

/// The file that marks a directory as a sandbox's. The process that runs the sandbox holds its lock.
const MARK: &str = ".portcullis-sandbox";
/// Everything else that a sandbox makes; nothing else is ever removed.
const CONTENT: &[&str] = &["clouds.yaml", "cloud.conf", "config.yaml", "env", "kubeconfig", "run"];
/// Kept when a start fails: they say why.
const LOGS: &str = "logs";

/// How long a sandbox may take to stop before it is killed, and then to be gone.
const PATIENCE: Duration = Duration::from_secs(30);
const KILLED: Duration = Duration::from_secs(10);

/// What is written in the mark.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Mark {
    /// The process that runs the sandbox, or did.
    process: i32,
    /// Whether the directory was made for the sandbox, and goes with it.
    made: bool,
}

impl Mark {
    fn text(self) -> String {
        let directory = if self.made { "made" } else { "given" };
        format!("portcullis sandbox\nprocess {}\ndirectory {directory}\n", self.process)
    }

    /// A file of another origin is no mark, and then the directory is not ours.
    fn parse(text: &str) -> Option<Self> {
        let mut lines = text.lines();
        (lines.next()? == "portcullis sandbox").then_some(())?;
        let process = lines.next()?.strip_prefix("process ")?.parse().ok().filter(|process| *process > 1)?;
        let made = lines.next()?.strip_prefix("directory ")? == "made";
        Some(Mark { process, made })
    }

    fn read(path: &Path) -> Option<Self> {
        Self::parse(&fs::read_to_string(path.join(MARK)).ok()?)
    }
}

impl Directory {
    /// `DIR`, or `portcullis` in the user's state directory.
    pub(crate) fn choose(given: Option<PathBuf>) -> PathBuf {
        let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        given.unwrap_or_else(|| Self::default_place(variable("XDG_STATE_HOME"), variable("HOME")))
    }

    fn default_place(state: Option<PathBuf>, home: Option<PathBuf>) -> PathBuf {
        let state = state.or_else(|| home.map(|home| home.join(".local/state")));
        state.unwrap_or_else(|| "/var/lib".into()).join("portcullis")
    }

    /// Takes the directory for this process, and removes what a killed sandbox left in it.
    pub(crate) fn claim(path: &Path) -> Result<Self, Failure> {
        let cannot = |error: std::io::Error| {
            Failure::new(Exit::Lacking, format!("cannot write in {}: {error}", path.display()))
                .note("Nothing was started.")
                .note("Give a directory that you may write in with --dir.")
        };
        let made = match fs::read_dir(path) {
            Ok(mut entries) => match Mark::read(path) {
                Some(mark) => mark.made,
                None if entries.next().is_none() => false,
                None => return Err(foreign(path)),
            },
            Err(error) if error.kind() == ErrorKind::NotFound => {
                fs::create_dir_all(path).map_err(cannot)?;
                true
            }
            Err(error) => return Err(cannot(error)),
        };
        // Absolute: the programs started from here have another working directory.
        let path = path.canonicalize().map_err(cannot)?;
        let mut lock = loop {
            let file =
                OpenOptions::new().create(true).read(true).write(true).truncate(false).open(path.join(MARK));
            match lock(&path, file.map_err(cannot)?) {
                Locked::Ours(lock) => break lock,
                Locked::Gone => {}
                Locked::Others => return Err(taken(&path)),
            }
        };
        let mark = Mark { process: std::process::id().cast_signed(), made };
        lock.set_len(0).and_then(|()| lock.write_all(mark.text().as_bytes())).map_err(cannot)?;
        let directory = Directory { path, mark, _lock: lock };
        directory.remove_content();
        remove(&directory.logs());
        for part in [directory.logs(), directory.path.join("run")] {
            fs::create_dir(part).map_err(cannot)?;
        }
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
        fs::create_dir_all(&path).map_err(|error| cannot_write(&path, &error))?;
        Ok(path)
    }

    /// Writes one of its files, for its owner's eyes only, all at once.
    pub(crate) fn write(&self, name: &str, text: &str) -> Result<PathBuf, Failure> {
        let (path, draft) = (self.path.join(name), self.path.join("run").join(name));
        OpenOptions::new()
            .create(true)
            .write(true)
            .truncate(true)
            .mode(0o600)
            .open(&draft)
            .and_then(|mut file| file.write_all(text.as_bytes()))
            .and_then(|()| fs::rename(&draft, &path))
            .map_err(|error| cannot_write(&path, &error))?;
        Ok(path)
    }

    /// Removes everything a sandbox made, and the directory itself if it was made for it and nothing else is in it.
    pub(crate) fn remove(self) {
        self.remove_content();
        remove(&self.logs());
        remove(&self.path.join(MARK));
        if self.mark.made {
            let _ = fs::remove_dir(&self.path);
        }
    }

    /// Removes everything but what says why it failed, which `failure` is added to.
    pub(crate) fn keep_logs(self, failure: &Failure) {
        self.remove_content();
        // If it cannot be written it is still printed.
        let _ = fs::write(
            self.logs().join("up.log"),
            [&failure.errors[..], &failure.notes].concat().join("\n") + "\n",
        );
    }

    fn remove_content(&self) {
        for name in CONTENT {
            remove(&self.path.join(name));
        }
    }
}

/// Whether everything runs in the sandbox of that process.
pub(crate) fn is_up(path: &Path, process: u32) -> bool {
    path.join("env").exists() && Mark::read(path).is_some_and(|mark| mark.process == process.cast_signed())
}

/// Ends the sandbox that runs in `path`, if one does, and removes what it made. Says whether one ran.
pub(crate) fn stop(path: &Path) -> Result<bool, Failure> {
    let cannot = |why: String| {
        Failure::new(Exit::Failed, format!("cannot stop the sandbox in {}: {why}", path.display()))
            .note("Nothing was changed.")
            .note("Stop it as the user who started it.")
    };
    let started = Instant::now();
    let mut signalled = None;
    // The mark is the last file that a sandbox removes.
    while let Some(mark) = Mark::read(path) {
        let file = match File::open(path.join(MARK)) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => break,
            Err(error) => return Err(cannot(error.to_string())),
        };
        if let Locked::Ours(lock) = lock(path, file) {
            // What is left was left by a sandbox that was killed, or failed.
            Directory { path: path.into(), mark, _lock: lock }.remove();
            break;
        }
        let wanted = if started.elapsed() < PATIENCE { Signal::SIGTERM } else { Signal::SIGKILL };
        if signalled != Some(wanted) {
            signalled = Some(wanted);
            match kill(Pid::from_raw(mark.process), wanted) {
                // It has just ended by itself.
                Ok(()) | Err(Errno::ESRCH) => {}
                Err(errno) => return Err(cannot(format!("process {}: {errno}", mark.process))),
            }
        }
        if started.elapsed() > PATIENCE + KILLED {
            return Err(cannot(format!("process {} does not end", mark.process)));
        }
        sleep(Duration::from_millis(50));
    }
    Ok(signalled.is_some())
}

/// What came of an attempt to take the lock.
enum Locked {
    Ours(Flock<File>),
    /// A running sandbox has it.
    Others,
    /// Somebody removed the file between our look and our lock.
    Gone,
}

fn lock(path: &Path, file: File) -> Locked {
    let Ok(lock) = Flock::lock(file, FlockArg::LockExclusiveNonblock) else { return Locked::Others };
    let identity = |metadata: fs::Metadata| (metadata.dev(), metadata.ino());
    match (lock.metadata().map(identity), fs::metadata(path.join(MARK)).map(identity)) {
        (Ok(locked), Ok(there)) if locked == there => Locked::Ours(lock),
        _ => Locked::Gone,
    }
}

fn foreign(path: &Path) -> Failure {
    Failure::new(Exit::Usage, format!("{} holds files that are not a sandbox's", path.display()))
        .note("Nothing was started.")
        .note("Give an empty or new directory with --dir.")
}

fn taken(path: &Path) -> Failure {
    let process = Mark::read(path).map_or_else(String::new, |mark| format!(", as process {}", mark.process));
    let shown = super::quoted(path);
    Failure::new(Exit::Failed, format!("a sandbox runs in {} already{process}", path.display()))
        .note(format!("Use it: source {shown}/env. Stop it: portcullis down --dir {shown}"))
        .note("For another one beside it, give another directory with --dir.")
}

fn cannot_write(path: &Path, error: &std::io::Error) -> Failure {
    Failure::new(Exit::Failed, format!("cannot write {}: {error}", path.display()))
}

fn remove(path: &Path) {
    let _ = if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) };
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place() -> (tempfile::TempDir, PathBuf) {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("sandbox");
        (parent, path)
    }

    #[test]
    fn it_is_in_the_state_directory_unless_said_otherwise() {
        let some = |path: &str| Some(PathBuf::from(path));
        let table = [
            (some("/state"), some("/home/me"), "/state/portcullis"),
            (None, some("/home/me"), "/home/me/.local/state/portcullis"),
            (None, None, "/var/lib/portcullis"),
        ];
        for (state, home, expected) in table {
            assert_eq!(Directory::default_place(state, home), Path::new(expected));
        }
        assert_eq!(Directory::choose(some("here")), Path::new("here"));
    }

    #[test]
    fn one_at_a_time() {
        let (_parent, path) = place();
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
        let (parent, path) = place();
        let names = ["thesis.txt", "env", "config.yaml", MARK];
        for name in names {
            fs::write(parent.path().join(name), "years").unwrap();
        }
        assert_eq!(Directory::claim(parent.path()).unwrap_err().exit, Exit::Usage);
        assert!(!stop(parent.path()).unwrap());
        for name in names {
            assert_eq!(fs::read_to_string(parent.path().join(name)).unwrap(), "years", "{name}");
        }

        let held = Directory::claim(&path).unwrap();
        fs::write(path.join("mine"), "").unwrap();
        held.remove();
        assert!(path.join("mine").exists());
    }

    #[test]
    fn a_directory_that_was_given_stays() {
        let (_parent, path) = place();
        fs::create_dir(&path).unwrap();
        let killed = Directory::claim(&path).unwrap();
        drop(killed);
        assert!(!stop(&path).unwrap(), "nothing runs in it");
        assert_eq!(fs::read_dir(&path).unwrap().count(), 0);
    }

    #[test]
    fn what_a_killed_sandbox_left_is_removed() {
        let (_parent, path) = place();
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
    fn logs_of_a_failure_are_kept_with_what_it_was() {
        let (_parent, path) = place();
        let failed = Directory::claim(&path).unwrap();
        fs::write(failed.logs().join("etcd.log"), "why").unwrap();
        failed.keep_logs(&Failure::new(Exit::Failed, "etcd has ended"));
        assert!(path.join("logs/etcd.log").exists() && !path.join("run").exists());
        assert_eq!(fs::read_to_string(path.join("logs/up.log")).unwrap(), "etcd has ended\n");
    }

    #[test]
    fn only_a_mark_is_a_mark() {
        let mark = Mark { process: 4711, made: true };
        assert_eq!(Mark::parse(&mark.text()), Some(mark));
        for text in ["", "4711", "portcullis sandbox\n", "portcullis sandbox\nprocess -1\ndirectory made\n"] {
            assert_eq!(Mark::parse(text), None, "{text:?}");
        }
    }
}
