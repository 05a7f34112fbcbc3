use std::fs::File;
use std::os::fd::AsRawFd;
use std::process::{Child, Command};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, LazyLock};
use std::{fmt, io, thread};

use nix::sched::{CloneFlags, setns, unshare};

use crate::{Error, Result};

/// A network namespace: the one this process lives in, or a fresh one with nothing but loopback.
///
/// A fresh one has no name in the file system. It lives as long as this value (or a clone of it) does and
/// is gone with the process, even a killed one: nothing is ever left to clean up.
#[derive(Clone)]
pub struct Namespace {
    inner: Arc<Inner>,
}

struct Inner {
    name: String,
    /// Keeps the namespace alive; `None` is the namespace of this process itself.
    handle: Option<File>,
    spawner: Sender<Spawn>,
}

/// A request to start a program, and where to send the outcome.
type Spawn = (Command, Sender<io::Result<Child>>);

impl Namespace {
    /// The namespace that this process lives in.
    pub fn host() -> Self {
        static HOST: LazyLock<Namespace> = LazyLock::new(|| {
            let (spawner, requests) = channel();
            thread::spawn(move || start_all(&requests));
            Namespace { inner: Arc::new(Inner { name: "host".into(), handle: None, spawner }) }
        });
        HOST.clone()
    }

    /// A fresh namespace. `name` is for messages only.
    pub fn new(name: &str) -> Result<Self> {
        let (spawner, requests) = channel::<Spawn>();
        let (report, outcome) = channel();
        thread::Builder::new()
            .name(format!("ns {name}"))
            .spawn(move || {
                let opened = unshare(CloneFlags::CLONE_NEWNET)
                    .map_err(io::Error::from)
                    .and_then(|()| File::open("/proc/thread-self/ns/net"));
                let made = opened.is_ok();
                // The receiver waits for exactly this message.
                let _ = report.send(opened);
                if made {
                    start_all(&requests);
                }
            })
            .map_err(Error::io("cannot start a thread"))?;
        let handle = outcome.recv().unwrap_or_else(|_| Err(io::Error::other("its thread ended"))).map_err(
            |error| {
                if error.kind() == io::ErrorKind::PermissionDenied {
                    Error::NotPermitted {
                        what: format!("network namespace {name} cannot be made by this user"),
                        remedy: "That takes root, in a container also its privileges.".into(),
                    }
                } else {
                    Error::io(format!("cannot make network namespace {name}"))(error)
                }
            },
        )?;
        let namespace =
            Namespace { inner: Arc::new(Inner { name: name.into(), handle: Some(handle), spawner }) };
        crate::run(&namespace, "ip", &["link", "set", "lo", "up"])?;
        Ok(namespace)
    }

    /// Whether it is the namespace that this process lives in.
    pub fn is_host(&self) -> bool {
        self.inner.handle.is_none()
    }

    /// What messages call it.
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    /// A path that names it to `ip link set … netns PATH`, valid for the programs this process starts.
    pub fn path(&self) -> String {
        match &self.inner.handle {
            Some(handle) => format!("/proc/{}/fd/{}", std::process::id(), handle.as_raw_fd()),
            None => format!("/proc/{}/ns/net", std::process::id()),
        }
    }

    /// Runs `work` with every socket it opens, and every program it starts, inside this namespace.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        let Some(handle) = &self.inner.handle else { return work() };
        thread::scope(|scope| {
            let worker = scope.spawn(|| {
                setns(handle, CloneFlags::CLONE_NEWNET).unwrap_or_else(|error| {
                    panic!("cannot enter network namespace {}: {error}", self.inner.name)
                });
                work()
            });
            worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    /// Starts a long-lived program inside this namespace.
    pub(crate) fn spawn(&self, command: Command) -> io::Result<Child> {
        let (report, outcome) = channel();
        let gone = || io::Error::other(format!("network namespace {} is gone", self.inner.name));
        self.inner.spawner.send((command, report)).map_err(|_| gone())?;
        outcome.recv().map_err(|_| gone())?
    }
}

/// Starts what it is asked to, until the namespace is dropped.
///
/// All programs of a namespace are children of this one thread: the kernel's signal to the children of a
/// dead parent (see `Launch`) is sent when the *thread* that started them ends, so a thread of shorter life
/// would take them along.
fn start_all(requests: &std::sync::mpsc::Receiver<Spawn>) {
    for (mut command, report) in requests {
        if let Err(unwanted) = report.send(command.spawn())
            && let Ok(mut child) = unwanted.0
        {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl fmt::Debug for Namespace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Namespace({})", self.inner.name)
    }
}
