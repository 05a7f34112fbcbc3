use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use portcullis_core::Problem;
use tokio::time::sleep;

use super::shared::{SharedAddress, render};
use crate::backoff::{Backoff, WELL};
use crate::error::Error;
use crate::supervised::{is_running, last_words, start, write};

/// A keepalived of this machine. It goes on when this is dropped; whoever starts on the same directory then has it.
#[derive(Debug)]
pub struct Keepalived {
    directory: PathBuf,
    program: PathBuf,
    /// The one that we started, to hear of its end.
    child: Option<(Child, Instant)>,
    starts: Backoff,
    /// Whether what runs has read the file, as far as we know.
    has_read: bool,
    /// How long its log was before it was started.
    log_before: u64,
}

/// Between two looks at something that is about to happen.
const PAUSE: Duration = Duration::from_millis(10);

/// How long it may take to start, and again to end, before it is killed and leaves its addresses.
const PATIENCE: Duration = Duration::from_secs(10);

impl Keepalived {
    /// Uses a directory of its own. A keepalived that runs there is taken over as it is.
    pub fn start(directory: impl Into<PathBuf>) -> Result<Self, Error> {
        let directory = directory.into();
        let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"/-_.".contains(byte);
        if !directory.is_absolute() || !directory.as_os_str().as_encoded_bytes().iter().all(plain) {
            return Err(Error::Directory(directory));
        }
        fs::create_dir_all(&directory).map_err(Error::file("make", &directory))?;
        Ok(Self {
            directory,
            program: "/usr/sbin/keepalived".into(),
            child: None,
            starts: Backoff::default(),
            has_read: false,
            log_before: 0,
        })
    }

    /// The same with a program that is elsewhere.
    #[must_use]
    pub fn with_program(self, program: impl Into<PathBuf>) -> Self {
        Self { program: program.into(), ..self }
    }

    /// Shares these addresses with other machines. While this one is not `fit`, since its HAProxy does not run, it has none of
    /// them. To be called when something changes, and every few seconds: a keepalived that has ended is started again.
    pub async fn apply(&mut self, shared: &[SharedAddress], fit: bool) -> Result<(), Error> {
        let unfit = self.path("unfit");
        let word = if fit && !shared.is_empty() { "0\n" } else { "1\n" };
        if fs::read_to_string(&unfit).ok().as_deref() != Some(word) {
            // In its place: keepalived looks at this file, and not at one of its name.
            fs::write(&unfit, word).map_err(Error::file("write", &unfit))?;
        }
        if shared.is_empty() {
            return self.end().await;
        }
        let text = render(shared, &unfit).map_err(|error| {
            Error::Refused(Problem::new(
                format!("Shared addresses: {error}."),
                "Those of before are still shared.",
                "Change what is named.",
            ))
        })?;
        let file = self.path("keepalived.conf");
        if fs::read_to_string(&file).ok().as_ref() != Some(&text) {
            self.check(&text)?;
            write(&file, &text).map_err(Error::file("write", &file))?;
            self.has_read = false;
        }
        match self.running() {
            None => self.start_keepalived().await,
            Some(pid) if !self.has_read => {
                self.has_read = true;
                kill(pid, Signal::SIGHUP).map_err(|error| self.cannot_run(error.into()))
            }
            Some(_) => Ok(()),
        }
    }

    /// The process, where it runs.
    pub fn process(&self) -> Option<u32> {
        self.running().map(|pid| pid.as_raw().cast_unsigned())
    }

    /// Gives up all addresses and ends keepalived.
    pub async fn stop(mut self) -> Result<(), Error> {
        self.end().await
    }

    async fn end(&mut self) -> Result<(), Error> {
        if self.running().is_none() {
            if !self.pid_file().exists() {
                // It ended in order, or never was.
                return Ok(());
            }
            // It was killed, and its addresses may still be there. It takes them away when it starts.
            self.launch()?;
        }
        let deadline = Instant::now() + PATIENCE;
        while !self.has_started() && self.running().is_some() && Instant::now() < deadline {
            sleep(PAUSE).await;
            self.reap();
        }
        if let Some(pid) = self.running() {
            // It takes its addresses away and tells the others. It may just have ended, which is what is wanted.
            let _ = kill(pid, Signal::SIGTERM);
        }
        let deadline = Instant::now() + PATIENCE;
        while let Some(pid) = self.running() {
            if Instant::now() > deadline {
                let _ = kill(pid, Signal::SIGKILL);
            }
            sleep(PAUSE).await;
            self.reap();
        }
        self.child = None;
        fs::remove_file(self.pid_file()).map_err(Error::file("remove", self.pid_file()))
    }

    /// Whether it has got as far as to have taken away what another one left.
    fn has_started(&self) -> bool {
        let log = fs::read(self.path("keepalived.log")).unwrap_or_default();
        let since = usize::try_from(self.log_before).unwrap_or_default();
        String::from_utf8_lossy(log.get(since..).unwrap_or(&log)).contains("Startup complete")
    }

    fn reap(&mut self) {
        if let Some((child, _)) = &mut self.child {
            let _ = child.try_wait();
        }
    }

    /// Asks keepalived whether it would take a file.
    fn check(&self, text: &str) -> Result<(), Error> {
        let draft = self.path("keepalived.conf.draft");
        fs::write(&draft, text).map_err(Error::file("write", &draft))?;
        let output = Command::new(&self.program).arg("--config-test").arg("-f").arg(&draft).output();
        let output = output.map_err(|source| self.cannot_run(source))?;
        if output.status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&output.stderr).replace(&*draft.to_string_lossy(), "the file");
        Err(Error::Refused(Problem::new(
            "keepalived does not take the addresses that are to be shared.",
            format!("Those of before are still shared. It says: {}", said.trim().replace('\n', "; ")),
            format!("Change what it names; the refused file is {}.", draft.display()),
        )))
    }

    async fn start_keepalived(&mut self) -> Result<(), Error> {
        if let Some((child, since)) = &mut self.child
            && let Ok(Some(_)) = child.try_wait()
        {
            if since.elapsed() > WELL {
                self.starts.succeeded();
            }
            self.starts.failed();
            self.child = None;
        }
        let log = self.path("keepalived.log");
        let ended = |again| Error::Ended { program: "keepalived", again, said: last_words(&log) };
        if let Some(again) = self.starts.wait() {
            return Err(ended(again));
        }
        self.launch()?;
        // One that ended before is not well because it was started.
        let deadline = Instant::now() + Duration::from_secs(2);
        while self.starts.has_failed() && !self.has_started() && Instant::now() < deadline {
            sleep(PAUSE).await;
            self.reap();
            if self.running().is_none() {
                self.child = None;
                self.starts.failed();
                return Err(ended(self.starts.wait().unwrap_or_default()));
            }
        }
        Ok(())
    }

    fn launch(&mut self) -> Result<(), Error> {
        let log = self.path("keepalived.log");
        self.log_before = fs::metadata(&log).map(|log| log.len()).unwrap_or_default();
        let mut command = Command::new(&self.program);
        command.args(["--dont-fork", "--log-console", "--log-detail", "--vrrp"]);
        for (option, name) in [("-p", "keepalived.pid"), ("-r", "vrrp.pid")] {
            // It would not start while one names a process, whatever that is by now.
            let _ = fs::remove_file(self.path(name));
            command.arg(option).arg(self.path(name));
        }
        command.arg("-f").arg(self.path("keepalived.conf")).current_dir(&self.directory);
        let child = start(&mut command, &log).map_err(|source| self.cannot_run(source))?;
        // It writes its number as well, but later: until then nobody else is to be started.
        let number = child.id().to_string();
        write(&self.pid_file(), &number).map_err(Error::file("write", self.pid_file()))?;
        self.child = Some((child, Instant::now()));
        self.has_read = true;
        Ok(())
    }

    fn running(&self) -> Option<Pid> {
        let text = fs::read_to_string(self.pid_file()).ok()?;
        let number: i32 = text.trim().parse().ok()?;
        is_running(text.trim(), &self.directory).then(|| Pid::from_raw(number))
    }

    fn pid_file(&self) -> PathBuf {
        self.path("process.pid")
    }

    fn path(&self, name: &str) -> PathBuf {
        Path::new(&self.directory).join(name)
    }

    fn cannot_run(&self, source: io::Error) -> Error {
        Error::Program { program: self.program.clone(), package: "keepalived", source }
    }
}
