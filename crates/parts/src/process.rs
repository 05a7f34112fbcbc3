use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

use crate::interrupt::interrupted;
use crate::{Error, Namespace, Result, catalogue};

/// A program about to be started.
#[derive(Debug)]
pub struct Launch {
    name: String,
    program: PathBuf,
    args: Vec<OsString>,
    env: Vec<(OsString, OsString)>,
}

impl Launch {
    /// Looks the program up; the error of a missing one says how to install it.
    pub fn new(program: &str) -> Result<Self> {
        Ok(Self::path(program, catalogue::find(program)?))
    }

    /// A program at a known place. `name` is what messages and the log file call it.
    pub fn path(name: &str, program: impl Into<PathBuf>) -> Self {
        Launch { name: name.into(), program: program.into(), args: Vec::new(), env: Vec::new() }
    }

    /// What messages and the log file call it, where several of one program run in one directory.
    #[must_use]
    pub fn named(mut self, name: &str) -> Self {
        self.name = name.into();
        self
    }

    #[must_use]
    pub fn arg(mut self, arg: impl Into<OsString>) -> Self {
        self.args.push(arg.into());
        self
    }

    #[must_use]
    pub fn args<A: Into<OsString>>(mut self, args: impl IntoIterator<Item = A>) -> Self {
        self.args.extend(args.into_iter().map(Into::into));
        self
    }

    #[must_use]
    pub fn env(mut self, key: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.env.push((key.into(), value.into()));
        self
    }

    /// Starts it inside `namespace`, with its output appended to `<logs>/<name>.log`.
    ///
    /// It runs in a process group of its own, so that Ctrl-C at the terminal reaches only its owner, which
    /// then ends it in order; and the kernel kills it when its owner dies without a chance to do so.
    pub fn start(self, namespace: &Namespace, logs: &Path) -> Result<Process> {
        let log = logs.join(format!("{}.log", self.name));
        let cannot_log = || format!("cannot write {}", log.display());
        let output =
            OpenOptions::new().create(true).append(true).open(&log).map_err(Error::io(cannot_log()))?;
        let errors = output.try_clone().map_err(Error::io(cannot_log()))?;
        let mut command = Command::new("setpriv");
        command
            .args(["--pdeathsig", "KILL", "--"])
            .arg(&self.program)
            .args(&self.args)
            .env("PATH", catalogue::search_path())
            .envs(self.env)
            // Also what has no path on its command line can be told by it.
            .current_dir(logs)
            .stdin(Stdio::null())
            .stdout(output)
            .stderr(errors)
            .process_group(0);
        let child = namespace.spawn(command).map_err(Error::io(format!(
            "cannot start {} ({})",
            self.name,
            self.program.display()
        )))?;
        Ok(Process { name: self.name, log, child, _namespace: namespace.clone() })
    }
}

/// A running program. It and everything in its process group is killed when this is dropped.
#[derive(Debug)]
pub struct Process {
    name: String,
    log: PathBuf,
    child: Child,
    /// The thread that started it must live as long as it does.
    _namespace: Namespace,
}

impl Process {
    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn log(&self) -> &Path {
        &self.log
    }

    /// Its number.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// How it ended, if it did.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// Fails, with the end of its log, when it has ended.
    pub fn check(&mut self) -> Result<()> {
        match self.ended() {
            Some(status) => Err(Error::process(&self.name, format!("ended ({status})"), &self.log)),
            None => Ok(()),
        }
    }

    /// Waits until `ready` says so. Fails early when the program ends.
    pub fn wait_until(&mut self, within: Duration, mut ready: impl FnMut() -> bool) -> Result<()> {
        let deadline = Instant::now() + within;
        loop {
            self.check()?;
            if ready() {
                return Ok(());
            }
            self.still_waiting(deadline, within)?;
        }
    }

    /// A pause between two looks; fails when there has been enough of them.
    pub(crate) fn still_waiting(&self, deadline: Instant, within: Duration) -> Result<()> {
        if interrupted() {
            return Err(Error::Interrupted);
        }
        if Instant::now() > deadline {
            let what = format!("was not ready after {} s", within.as_secs());
            return Err(Error::process(&self.name, what, &self.log));
        }
        sleep(POLL);
        Ok(())
    }

    /// Sends a signal to it and everything in its process group.
    pub fn signal(&self, signal: Signal) {
        // It may just have ended, which is what most signals are for.
        let _ = killpg(self.group(), signal);
    }

    /// Asks it to end; what has not ended after `within` is killed when this is dropped.
    pub fn stop(&mut self, within: Duration) {
        self.signal(Signal::SIGTERM);
        let deadline = Instant::now() + within;
        while self.ended().is_none() && Instant::now() < deadline {
            sleep(POLL);
        }
    }

    fn group(&self) -> Pid {
        Pid::from_raw(self.child.id().cast_signed())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Once it has ended, its number could belong to somebody else.
        if self.ended().is_none() {
            self.signal(Signal::SIGKILL);
            let _ = self.child.wait();
        }
    }
}

/// Often enough that nobody waits for it, seldom enough to leave the machine to the program that starts.
const POLL: Duration = Duration::from_millis(20);

/// Runs a short command to its end inside `namespace` and gives its standard output.
pub fn run(namespace: &Namespace, program: &str, args: &[&str]) -> Result<String> {
    let path = catalogue::find(program)?;
    let output = namespace
        .run(|| {
            Command::new(path).args(args).env("PATH", catalogue::search_path()).stdin(Stdio::null()).output()
        })
        .map_err(Error::io(format!("cannot run {program}")))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = if output.stderr.is_empty() { &output.stdout } else { &output.stderr };
    Err(Error::Command {
        command: std::iter::once(program).chain(args.iter().copied()).collect::<Vec<_>>().join(" "),
        output: String::from_utf8_lossy(said).trim().to_owned(),
    })
}

/// Whether a server says by HTTP that it is well: it answers a GET of `path` with 200.
pub fn answers(address: SocketAddr, path: &str) -> bool {
    let ask = || -> io::Result<String> {
        let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(1))?;
        stream.set_read_timeout(Some(Duration::from_secs(5)))?;
        write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    };
    ask().is_ok_and(|answer| answer.starts_with("HTTP/1.1 200 "))
}
