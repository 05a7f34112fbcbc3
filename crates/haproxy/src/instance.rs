//! A running HAProxy, and what makes it do what is wanted.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant, SystemTime};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use portcullis_core::{Family, Problem};
use tokio::time::{sleep, timeout};
use tracing::{info, warn};

use crate::answers::{self, Counts, Key, Processes};
use crate::backoff::{Backoff, WELL};
use crate::error::Error;
use crate::holder::{has_family, holders};
use crate::names;
use crate::next::{
    Decision, Look, Memory, Order, Running, Step, Why, claimed, closing, keeps_out, next, problems, questions,
};
use crate::seen::{Seen, seen};
use crate::socket::Socket;
use crate::supervised::{is_running, last_words, start, write};
use crate::tally::Tally;
use crate::wanted::{BalancerId, Wanted};

/// Where an HAProxy lives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// A directory of its own, for its files and sockets. Who starts on the same one later takes over what runs.
    pub directory: PathBuf,
    /// The program.
    pub program: PathBuf,
}

impl Settings {
    /// The program of the system's package, in this directory.
    pub fn new(directory: impl Into<PathBuf>) -> Self {
        Self { directory: directory.into(), program: "/usr/sbin/haproxy".into() }
    }
}

/// The path of a Unix socket has room for 107 bytes, and HAProxy adds some while it makes one.
const LONGEST_DIRECTORY: usize = 80;
/// What HAProxy may take to start or to reload with a file of many thousand lines.
const START: Duration = Duration::from_secs(60);
/// Between two looks at something that is about to happen.
const PAUSE: Duration = Duration::from_millis(5);
/// So many looks without an answer, and it is taken to serve nobody. A process that runs may miss one.
const ENOUGH: u8 = 2;
/// An answer takes milliseconds, and on a busy machine one of them may take long. A worker that gives none for so long, however often it
/// is asked, serves nobody either.
const SILENCE: Duration = Duration::from_secs(10);
/// After so long it is asked anew.
const QUESTION: Duration = Duration::from_secs(2);
/// What is wanted is reached in three rounds, or has to be waited for.
const ROUNDS: usize = 8;

/// An HAProxy of this machine. It goes on when this is dropped; whoever starts on the same directory then has it.
#[derive(Debug)]
pub struct Instance {
    settings: Settings,
    version: String,
    families: BTreeSet<Family>,
    master: Socket,
    worker: Socket,
    /// The one that we started, to hear of its end.
    child: Option<(Child, Instant)>,
    starts: Backoff,
    reloads: Backoff,
    processes: Option<Processes>,
    /// How often in a row nobody was found to answer.
    misses: u8,
    /// Whether the worker that takes connections has answered: one that is new first reads its file, and says nothing meanwhile.
    has_answered: bool,
    /// The files of ranges, and what the worker of this number has of them.
    ranges: BTreeMap<String, String>,
    has: Option<(u32, BTreeMap<String, BTreeSet<String>>)>,
    was_up: BTreeSet<(String, String)>,
    memory: Memory,
    tally: Tally,
    wanted: Wanted,
    has_closed: bool,
}

impl Instance {
    /// Looks at the program and the directory. An HAProxy that runs there is taken over as it is; otherwise the first
    /// [`Instance::apply`] starts one, in the network namespace of the thread that calls it.
    pub async fn start(settings: Settings) -> Result<Self, Error> {
        let directory = settings.directory.clone();
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/-_.".contains(&byte);
        let path = directory.as_os_str().as_encoded_bytes();
        if !directory.is_absolute() || path.len() > LONGEST_DIRECTORY || !path.iter().copied().all(plain) {
            return Err(Error::Directory(directory));
        }
        let version = version(&settings.program).await?;
        fs::create_dir_all(directory.join("ranges")).map_err(Error::file("make", &directory))?;
        fs::set_permissions(&directory, fs::Permissions::from_mode(0o700))
            .map_err(Error::file("keep others out of", &directory))?;
        let ranges = read_all(&directory.join("ranges"))?;
        let everywhere =
            [(Family::V4, Ipv4Addr::UNSPECIFIED.into()), (Family::V6, Ipv6Addr::UNSPECIFIED.into())];
        let families = everywhere.into_iter().filter(|(_, all)| has_family(*all)).map(|(family, _)| family);
        Ok(Self {
            version,
            families: families.collect(),
            master: Socket(directory.join("master.sock")),
            worker: Socket(directory.join("worker.sock")),
            settings,
            child: None,
            starts: Backoff::default(),
            reloads: Backoff::default(),
            processes: None,
            misses: ENOUGH,
            has_answered: false,
            ranges,
            has: None,
            was_up: BTreeSet::new(),
            memory: Memory::default(),
            tally: Tally::default(),
            wanted: Wanted::default(),
            has_closed: false,
        })
    }

    /// The version of the program.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// The process that has HAProxy's workers, as it was last seen.
    pub fn process(&self) -> Option<u32> {
        self.processes.as_ref().map(|processes| processes.master)
    }

    /// Whether it can be counted on to serve: it answered when it was looked at last, or runs and missed that one look.
    pub fn is_there(&self) -> bool {
        self.misses < ENOUGH
    }

    /// Whether nobody gets in who is not wanted to, and who is to leave or to rest gets nothing new, although what was wanted last could
    /// not be done.
    pub fn has_closed(&self) -> bool {
        self.has_closed
    }

    /// Makes HAProxy do what is wanted, as far as that goes without waiting: for checks to pass, for connections to end.
    /// One that has ended is started again. To be called when something changes, at [`Seen::due`], and every few seconds.
    pub async fn apply(&mut self, wanted: &Wanted, now: SystemTime) -> Result<Seen, Error> {
        self.wanted.clone_from(wanted);
        self.has_closed = false;
        let names = wanted.balancers.iter().filter_map(|balancer| names::balancer(&balancer.id)).collect();
        self.tally.keep(&names);
        let mut before = Vec::new();
        let mut look = self.look_at_all().await?;
        for _ in 0..ROUNDS {
            let decision = next(wanted, &look, &self.memory, now);
            self.memory.clone_from(&decision.memory);
            if decision.steps.is_empty() {
                return Ok(self.tell(&look, &decision));
            }
            if decision.steps == before {
                // What was told takes a moment to be so.
                sleep(PAUSE).await;
            }
            self.count_cuts(&decision.steps);
            if let Err(problem) = self.execute_all(&decision.steps).await {
                // One that does not answer would be waited for once more.
                if !matches!(problem, Error::Silent { .. } | Error::Ended { .. }) {
                    self.has_closed = self.close(wanted, now).await;
                }
                return Err(problem);
            }
            look = match touched(&decision.steps) {
                Some(backends) => self.look_at_some(look, &backends).await?,
                None => self.look_at_all().await?,
            };
            before = decision.steps;
        }
        let decision = next(wanted, &look, &self.memory, now);
        Ok(self.tell(&look, &decision))
    }

    async fn execute_all(&mut self, steps: &[Step]) -> Result<(), Error> {
        for step in steps {
            tracing::debug!(?step, "haproxy");
            self.execute(step).await?;
        }
        self.cut_in_old_workers(steps).await
    }

    async fn cut_in_old_workers(&self, steps: &[Step]) -> Result<(), Error> {
        let current = self.processes.as_ref().and_then(|processes| processes.current);
        for (worker, servers) in cuts_in_old_workers(steps, current) {
            cut_in_old_worker(&self.master, worker, &servers).await?;
        }
        Ok(())
    }

    /// Does what closes something, where not all can be done: nobody stays let in, or sent to, for what is in the way of others.
    /// Says whether all of that could be done.
    async fn close(&mut self, wanted: &Wanted, now: SystemTime) -> bool {
        self.try_close(wanted, now).await.unwrap_or_else(|problem| {
            warn!(
                problem = problem.in_full(),
                "who is not to get in, or to be sent to, could not be kept from it"
            );
            false
        })
    }

    async fn try_close(&mut self, wanted: &Wanted, now: SystemTime) -> Result<bool, Error> {
        let look = self.look_at_all().await?;
        let decision = closing(wanted, &look, &self.memory, now);
        self.memory.clone_from(&decision.memory);
        self.count_cuts(&decision.steps);
        let mut first = Ok(());
        for step in &decision.steps {
            match self.execute(step).await {
                // Nothing else would be answered either, and each would be waited for.
                Err(problem @ Error::Silent { .. }) => return Err(problem),
                // One that is refused keeps no other from being done.
                done => first = first.and(done),
            }
        }
        first.and(self.cut_in_old_workers(&decision.steps).await)?;
        Ok(keeps_out(wanted, &look))
    }

    /// How everything is, by what was last wanted. Nothing is changed.
    pub async fn look(&mut self) -> Result<Seen, Error> {
        let look = self.look_at_all().await?;
        let decision = next(&self.wanted, &look, &self.memory, SystemTime::now());
        Ok(self.tell(&look, &decision))
    }

    /// What would be in the way of load balancers, if this was wanted. Nothing is changed.
    pub async fn obstacles(&self, wanted: &Wanted) -> Result<BTreeMap<BalancerId, Problem>, Error> {
        self.wait_for_a_sign().await?;
        let processes = self.ask_processes().await?;
        let running = match processes.as_ref().and_then(|processes| processes.current) {
            Some(worker) => {
                let generation = answers::generation(&self.info_of(worker).await?);
                Some(Running { generation, ..Running::default() })
            }
            None => None,
        };
        let mut look = Look {
            directory: self.settings.directory.clone(),
            families: self.families.clone(),
            file: self.read_file()?,
            running,
            ..Look::default()
        };
        look.taken = holders(&questions(wanted, &look), &self.ours(processes.as_ref()));
        Ok(problems(&claimed(wanted, &look)))
    }

    /// Ends HAProxy and all of its connections, for good.
    pub async fn stop(mut self) -> Result<(), Error> {
        let Some(processes) = self.ask_processes().await? else { return Ok(()) };
        let master = Pid::from_raw(processes.master.cast_signed());
        let deadline = Instant::now() + Duration::from_secs(5);
        // It may just have ended, which is what is wanted.
        let _ = kill(master, Signal::SIGTERM);
        while self.ask_processes().await?.is_some() {
            if Instant::now() > deadline {
                let _ = kill(master, Signal::SIGKILL);
            }
            sleep(PAUSE).await;
        }
        if let Some((child, _)) = &mut self.child {
            let _ = child.wait();
        }
        Ok(())
    }

    fn tell(&self, look: &Look, decision: &Decision) -> Seen {
        let mut seen = seen(&self.wanted, look, decision, &self.tally);
        if let Some(processes) = self.processes.as_ref().filter(|_| look.running.is_some()) {
            seen.version.clone_from(&processes.version);
            seen.workers = processes.old.len() + usize::from(processes.current.is_some());
        }
        seen
    }

    fn path(&self, name: &str) -> PathBuf {
        self.settings.directory.join(name)
    }

    fn ranges_path(&self, name: &str) -> PathBuf {
        self.settings.directory.join("ranges").join(name)
    }

    fn log(&self) -> PathBuf {
        self.path("haproxy.log")
    }

    /// The processes, if it runs.
    async fn ask_processes(&self) -> Result<Option<Processes>, Error> {
        let deadline = Instant::now() + START;
        loop {
            let source = match self.master.try_ask("show proc").await {
                Ok(answer) => match answers::processes(&answer) {
                    Some(processes) => return Ok(Some(processes)),
                    None => io::Error::other(format!("it says {answer:?}")),
                },
                // A master that reloads drops who talks to it, and is not there for a moment.
                Err(error) if Socket::nobody(&error) && !self.has_master() => return Ok(None),
                Err(error) => error,
            };
            if Instant::now() > deadline {
                return Err(Error::Silent { socket: self.master.path().to_owned(), source });
            }
            sleep(PAUSE).await;
        }
    }

    /// Whether the process that was started last still is. Its file is empty for a moment while it reloads.
    fn has_master(&self) -> bool {
        let written = fs::read_to_string(self.path("haproxy.pid")).unwrap_or_default();
        let known = self.processes.as_ref().map(|processes| processes.master.to_string());
        let mut all = [written.trim().to_owned()].into_iter().chain(known);
        all.any(|pid| is_running(&pid, &self.settings.directory))
    }

    fn read_file(&self) -> Result<Option<String>, Error> {
        let path = self.path("haproxy.cfg");
        match fs::read_to_string(&path) {
            Ok(text) => Ok(Some(text)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(Error::file("read", path)(error)),
        }
    }

    /// Waits until the worker says anything at all, if it ever did. Who takes its connections and says nothing would have them for as
    /// long as it is counted on, also where another machine could serve them.
    async fn wait_for_a_sign(&self) -> Result<(), Error> {
        if !self.has_answered {
            return Ok(());
        }
        let deadline = Instant::now() + SILENCE;
        loop {
            let asked = timeout(QUESTION, self.worker.try_ask("show info")).await;
            let source = match asked.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())) {
                Ok(_) => return Ok(()),
                // That it has ended is found out, and told, by its master.
                Err(error) if Socket::nobody(&error) => return Ok(()),
                Err(error) => error,
            };
            if Instant::now() > deadline {
                return Err(Error::Silent { socket: self.worker.path().to_owned(), source });
            }
            // One that takes nothing any more refuses at once.
            sleep(PAUSE).await;
        }
    }

    async fn look_at_all(&mut self) -> Result<Look, Error> {
        let text = self.read_file()?;
        if let Err(problem) = self.wait_for_a_sign().await {
            self.misses = ENOUGH;
            return Err(problem);
        }
        let processes = match self.ask_processes().await {
            Ok(processes) => processes.filter(|processes| processes.current.is_some()),
            Err(problem) => {
                self.misses = self.misses.saturating_add(1);
                return Err(problem);
            }
        };
        let ours = self.ours(processes.as_ref());
        let running = match &processes {
            Some(processes) => match self.look_at_workers(processes).await {
                Ok(running) => Some(running),
                Err(problem) => {
                    // Who answers something odd is there all the same.
                    let is_silent = matches!(problem, Error::Silent { .. });
                    self.misses = if is_silent { self.misses.saturating_add(1) } else { 0 };
                    return Err(problem);
                }
            },
            None => None,
        };
        // What does not run needs no second look.
        self.misses = if processes.is_some() { 0 } else { ENOUGH };
        self.has_answered = processes.is_some();
        if processes.is_some() {
            self.processes = processes;
        }
        let mut look = Look {
            directory: self.settings.directory.clone(),
            families: self.families.clone(),
            file: text,
            ranges: self.ranges.clone(),
            running,
            was_up: self.was_up.clone(),
            taken: BTreeMap::new(),
            holds_reload: self.reloads.wait().is_some(),
        };
        look.taken = holders(&questions(&self.wanted, &look), &ours);
        Ok(look)
    }

    /// The workers that there are, and those that were there when it was looked last: a worker outlives its master by a moment,
    /// and so does its hold on its ports.
    fn ours(&self, now: Option<&Processes>) -> BTreeSet<u32> {
        let known = now.into_iter().chain(&self.processes);
        known.flat_map(|known| known.current.iter().chain(&known.old)).copied().collect()
    }

    async fn look_at_workers(&mut self, processes: &Processes) -> Result<Running, Error> {
        let current = processes.current.unwrap_or_default();
        let info = self.info_of(current).await?;
        let states = answers::servers(&self.worker.ask("show servers state").await?);
        let mut counts: BTreeMap<u32, Counts> = BTreeMap::new();
        let command = "show stat -1 5 -1";
        let answer = self.worker.ask(command).await?;
        let of_current = answers::counts(&answer)
            .ok_or_else(|| Error::Answer { command: command.to_owned(), answer: first_line(&answer) })?;
        for &pid in &processes.old {
            counts.extend(self.counts_of_old(pid).await?.map(|counts| (pid, counts)));
        }
        let mut running = Running {
            old: processes.old.clone(),
            generation: answers::generation(&info),
            proxies: of_current.frontends.keys().cloned().collect(),
            ..Running::default()
        };
        running.take_servers(states, &of_current);
        counts.insert(current, of_current);
        for (&pid, counts) in &counts {
            running.take_sessions(pid, counts, |_| true);
        }
        self.tally.take(&counts);
        let up = running.servers.iter().filter(|(_, server)| server.up);
        self.was_up = up.map(|(key, _)| key.clone()).collect();
        running.ranges = self.ranges_of_worker(current).await?;
        Ok(running)
    }

    /// What the current worker says of itself. Shortly after a reload another one could still answer, or nobody.
    async fn info_of(&self, worker: u32) -> Result<String, Error> {
        let deadline = Instant::now() + START;
        loop {
            let source = match self.worker.try_ask("show info").await {
                Ok(info) if answers::pid(&info) == Some(worker) => return Ok(info),
                Ok(_) => io::Error::other(format!("it is not worker {worker}")),
                Err(error) => error,
            };
            if Instant::now() > deadline || !self.has_master() {
                return Err(Error::Silent { socket: self.worker.path().to_owned(), source });
            }
            sleep(PAUSE).await;
        }
    }

    /// What an old worker has counted, unless it has ended. One that only does not answer may have connections, and nobody is
    /// gone for that; while one ends, it says nothing for a moment.
    async fn counts_of_old(&self, worker: u32) -> Result<Option<Counts>, Error> {
        let command = format!("@!{worker} show stat -1 5 -1");
        let deadline = Instant::now() + START;
        loop {
            let answer = self.master.ask(&command).await?;
            if let Some(counts) = answers::counts(&answer) {
                return Ok(Some(counts));
            }
            match self.ask_processes().await? {
                Some(processes) if processes.old.contains(&worker) => {}
                _ => return Ok(None),
            }
            if Instant::now() > deadline {
                return Err(Error::Answer { command, answer: first_line(&answer) });
            }
            sleep(PAUSE).await;
        }
    }

    /// Looks again at what was just changed: these proxies, and all files. With many load balancers, telling everything takes
    /// HAProxy many times as long as changing something.
    async fn look_at_some(&mut self, mut look: Look, backends: &BTreeSet<String>) -> Result<Look, Error> {
        look.file = self.read_file()?;
        look.ranges.clone_from(&self.ranges);
        let (Some(running), Some(processes)) = (&mut look.running, &self.processes) else { return Ok(look) };
        if let Some((_, ranges)) = &self.has {
            running.ranges.clone_from(ranges);
        }
        let current = processes.current.unwrap_or_default();
        let of_them = |key: &(String, String)| backends.contains(&key.0);
        let workers: BTreeSet<u32> = running
            .sessions
            .iter()
            .filter(|(key, _)| of_them(key))
            .flat_map(|(_, workers)| workers.keys().copied())
            .filter(|pid| *pid != current)
            .collect();
        running.servers.retain(|key, _| !of_them(key));
        running.sessions.retain(|key, _| !of_them(key));
        let mut all: Vec<(u32, Counts)> = Vec::new();
        for backend in backends {
            let answer = self.worker.ask(&format!("show servers state {backend}")).await?;
            let Some(number) = answers::proxy_number(&answer) else { continue };
            let counts = self.worker.ask(&format!("show stat {number} 4 -1")).await?;
            let counts = answers::counts(&counts).unwrap_or_default();
            running.take_servers(answers::servers(&answer), &counts);
            all.push((current, counts));
        }
        for pid in workers {
            all.extend(self.counts_of_old(pid).await?.map(|counts| (pid, counts)));
        }
        for (pid, counts) in &all {
            running.take_sessions(*pid, counts, of_them);
            self.tally.take_some(*pid, counts);
        }
        Ok(look)
    }

    /// The ranges that a worker has. One that we did not start is asked once.
    async fn ranges_of_worker(&mut self, worker: u32) -> Result<BTreeMap<String, BTreeSet<String>>, Error> {
        if let Some((pid, ranges)) = &self.has
            && *pid == worker
        {
            return Ok(ranges.clone());
        }
        let mut ranges = BTreeMap::new();
        let known = self.worker.ask("show acl").await?;
        for name in self.ranges.keys() {
            let path = self.ranges_path(name).display().to_string();
            if known.contains(&format!("({path})")) {
                let answer = self.worker.ask(&format!("show acl {path}")).await?;
                ranges.insert(name.clone(), answers::ranges(&answer));
            }
        }
        self.has = Some((worker, ranges.clone()));
        Ok(ranges)
    }

    /// What a worker has that has just read all files.
    fn knows_all(&mut self, worker: u32) {
        let lines = |text: &String| text.lines().map(str::to_owned).collect();
        let text = fs::read_to_string(self.path("haproxy.cfg")).unwrap_or_default();
        let used = |name: &str| text.contains(&format!("-f {} ", self.ranges_path(name).display()));
        let read = self.ranges.iter().filter(|(name, _)| used(name));
        let ranges = read.map(|(name, text)| (name.clone(), lines(text))).collect();
        self.has = Some((worker, ranges));
    }

    fn count_cuts(&mut self, steps: &[Step]) {
        // Before a reload nothing is decided about connections: those that are being ended still are.
        if steps.iter().any(|step| matches!(step, Step::Reload { .. })) {
            return;
        }
        let mut cuts = BTreeMap::new();
        for step in steps {
            if let Step::Server { backend, server, order: Order::Cut { worker, sessions, why } } = step {
                cuts.insert(((backend.clone(), server.clone()), *worker), (*sessions, *why));
            }
        }
        for place in self.tally.cutting(&cuts) {
            let ((listener, member), worker) = &place;
            match cuts.get(&place) {
                Some((connections, Why::TooManyWorkers)) => {
                    warn!(
                        listener,
                        member,
                        worker,
                        connections,
                        "connections are ended, since there are too many workers left of reloads and theirs is the oldest"
                    );
                }
                Some((connections, Why::TimeIsOver)) => {
                    info!(
                        listener,
                        member, worker, connections, "connections are ended, since their time is over"
                    );
                }
                None => {}
            }
        }
    }

    async fn execute(&mut self, step: &Step) -> Result<(), Error> {
        self.has_answered &= !matches!(step, Step::Start { .. } | Step::Reload { .. });
        match step {
            Step::WriteRanges { file, text } => {
                let path = self.ranges_path(file);
                write(&path, text).map_err(Error::file("write", path))?;
                self.ranges.insert(file.clone(), text.clone());
                Ok(())
            }
            Step::WriteFile { text, ask_first } => self.write_file(text, *ask_first).await,
            Step::Start { states } => {
                self.write_states(states)?;
                self.start_haproxy().await
            }
            Step::Reload { states } => {
                self.write_states(states)?;
                self.reload().await
            }
            Step::Admit { file, ranges } => self.admit(file, ranges).await,
            Step::Server { backend, server, order } => {
                self.order(&format!("{backend}/{server}"), order).await
            }
            Step::RemoveRanges { file } => {
                let path = self.ranges_path(file);
                fs::remove_file(&path).map_err(Error::file("remove", path))?;
                self.ranges.remove(file);
                Ok(())
            }
        }
    }

    fn write_states(&self, states: &str) -> Result<(), Error> {
        let path = self.path("states");
        write(&path, states).map_err(Error::file("write", path))
    }

    async fn write_file(&self, text: &str, ask_first: bool) -> Result<(), Error> {
        let path = self.path("haproxy.cfg");
        if !ask_first {
            return write(&path, text).map_err(Error::file("write", path));
        }
        let draft = self.path("haproxy.cfg.draft");
        fs::write(&draft, text).map_err(Error::file("write", &draft))?;
        let mut command = Command::new(&self.settings.program);
        command.args(["-c", "-f"]).arg(&draft);
        let output = run(command, &self.settings.program).await?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr).replace(&*draft.to_string_lossy(), "the file");
            let alerts = said.lines().filter(|line| line.contains("[ALERT]")).map(str::trim).take(5);
            return Err(Error::Refused(Problem::new(
                "HAProxy does not take the configuration that follows from what is wanted.",
                format!(
                    "The one before stays in force. HAProxy says: {}",
                    alerts.collect::<Vec<_>>().join("; ")
                ),
                format!("Change what it names; the refused file is {}.", draft.display()),
            )));
        }
        fs::rename(&draft, &path).map_err(Error::file("write", path))
    }

    async fn start_haproxy(&mut self) -> Result<(), Error> {
        if let Some((child, since)) = &mut self.child
            && let Ok(Some(_)) = child.try_wait()
        {
            // One that was well is back at once: a shared address need not go for that.
            if since.elapsed() > WELL {
                self.starts.succeeded();
            } else {
                self.starts.failed();
            }
            self.child = None;
        }
        let ended = |again| Error::Ended { program: "HAProxy", again, said: last_words(&self.log()) };
        if let Some(again) = self.starts.wait() {
            return Err(ended(again));
        }
        let mut command = Command::new(&self.settings.program);
        command.arg("-W").arg("-S").arg(format!("{},mode,600", self.master.path().display()));
        command.arg("-p").arg(self.path("haproxy.pid")).arg("-f").arg(self.path("haproxy.cfg"));
        let child = start(command.current_dir(&self.settings.directory), &self.log())
            .map_err(|source| self.cannot_run(source))?;
        let (child, _) = self.child.insert((child, Instant::now()));
        let deadline = Instant::now() + START;
        loop {
            if let Ok(Some(_)) = child.try_wait() {
                self.child = None;
                self.starts.failed();
                let again = self.starts.wait().unwrap_or_default();
                return Err(Error::Ended { program: "HAProxy", again, said: last_words(&self.log()) });
            }
            let answer = self.master.try_ask("show proc").await;
            let worker = answer.ok().and_then(|answer| answers::processes(&answer)?.current);
            if let Some(worker) = worker
                && self.worker.try_ask("show info").await.is_ok()
            {
                self.knows_all(worker);
                return Ok(());
            }
            if Instant::now() > deadline {
                let source = io::ErrorKind::TimedOut.into();
                return Err(Error::Silent { socket: self.master.path().to_owned(), source });
            }
            sleep(PAUSE).await;
        }
    }

    fn cannot_run(&self, source: io::Error) -> Error {
        Error::Program { program: self.settings.program.clone(), package: "haproxy", source }
    }

    async fn reload(&mut self) -> Result<(), Error> {
        let silent = |source: io::Error| Error::Silent { socket: self.master.path().to_owned(), source };
        let before = self.ask_processes().await?.ok_or_else(|| silent(io::ErrorKind::NotConnected.into()))?;
        // It drops the connection with or without an answer.
        let _ = self.master.try_ask("reload").await;
        let deadline = Instant::now() + START;
        loop {
            let now =
                self.ask_processes().await?.ok_or_else(|| silent(io::ErrorKind::NotConnected.into()))?;
            match now.current {
                Some(worker) if now.reloads > before.reloads && now.current != before.current => {
                    self.reloads.succeeded();
                    self.knows_all(worker);
                    return Ok(());
                }
                _ if now.reloads > before.reloads && now.failed > before.failed => {
                    self.reloads.failed();
                    return Err(Error::Reload { said: last_words(&self.log()) });
                }
                _ if Instant::now() > deadline => return Err(silent(io::ErrorKind::TimedOut.into())),
                _ => sleep(PAUSE).await,
            }
        }
    }

    async fn admit(&mut self, file: &str, ranges: &BTreeSet<String>) -> Result<(), Error> {
        /// HAProxy's buffer has room for 16 KiB.
        const AT_ONCE: usize = 50;
        let path = self.ranges_path(file).display().to_string();
        let command = format!("prepare acl {path}");
        let answer = self.worker.ask(&command).await?;
        let version =
            answer.trim().strip_prefix("New version created: ").and_then(|text| text.parse::<u64>().ok());
        let version = version.ok_or_else(|| Error::Answer { command, answer: first_line(&answer) })?;
        let all: Vec<&String> = ranges.iter().collect();
        for some in all.chunks(AT_ONCE) {
            let add: Vec<String> =
                some.iter().map(|range| format!("add acl @{version} {path} {range}")).collect();
            self.worker.tell(&add.join("; "), &[]).await?;
        }
        self.worker.tell(&format!("commit acl @{version} {path}"), &[]).await?;
        if let Some((_, has)) = &mut self.has {
            has.insert(file.to_owned(), ranges.clone());
        }
        Ok(())
    }

    async fn order(&self, server: &str, order: &Order) -> Result<(), Error> {
        let set = |what: &str| format!("set server {server} {what}");
        match order {
            Order::Add { line } => {
                self.worker.tell(&format!("add server {server} {line}"), &["New server registered."]).await
            }
            // Straight from being kept aside it would be up before it is checked.
            Order::Open => {
                let commands = [
                    format!("enable health {server}"),
                    set("state drain"),
                    set("health down"),
                    set("state ready"),
                ];
                self.worker.tell(&commands.join("; "), &[]).await
            }
            Order::Resume => self.worker.tell(&set("state ready"), &[]).await,
            Order::Drain => self.worker.tell(&set("state drain"), &[]).await,
            Order::Aside => self.worker.tell(&set("state maint"), &[]).await,
            Order::Cut { worker, .. } => {
                let current = self.processes.as_ref().and_then(|processes| processes.current);
                if current == Some(*worker) {
                    self.worker.tell(&format!("shutdown sessions server {server}"), &[]).await?;
                }
                // Those of old workers are ended together.
                Ok(())
            }
            Order::Delete => {
                // What is ending may not have ended yet, and then the next round tries again.
                let later = "Server still has connections attached to it, cannot remove it.";
                self.worker.tell(&format!("del server {server}"), &["Server deleted.", later]).await
            }
        }
    }
}

/// The servers that lose connections in workers that were replaced.
fn cuts_in_old_workers(steps: &[Step], current: Option<u32>) -> BTreeMap<u32, BTreeSet<Key>> {
    let mut cuts: BTreeMap<u32, BTreeSet<Key>> = BTreeMap::new();
    for step in steps {
        if let Step::Server { backend, server, order: Order::Cut { worker, .. } } = step
            && current != Some(*worker)
        {
            cuts.entry(*worker).or_default().insert((backend.clone(), server.clone()));
        }
    }
    cuts
}

/// An old worker refuses to end all connections of a server, since its proxies are stopped: they are ended one by one. It gets no new
/// ones, so that an identifier stays with its connection. It tells of all that it has at once, and is asked once for all servers.
async fn cut_in_old_worker(master: &Socket, worker: u32, servers: &BTreeSet<Key>) -> Result<(), Error> {
    // One that has ended meanwhile has none left.
    let answer = master.ask(&format!("@!{worker} show sess")).await?;
    for session in answers::sessions(&answer, servers) {
        master.ask(&format!("@!{worker} shutdown session {session}")).await?;
    }
    Ok(())
}

/// The proxies that steps have to do with, if it is not all of them.
fn touched(steps: &[Step]) -> Option<BTreeSet<String>> {
    let mut backends = BTreeSet::new();
    for step in steps {
        match step {
            Step::Start { .. } | Step::Reload { .. } => return None,
            Step::Server { backend, .. } => drop(backends.insert(backend.clone())),
            Step::WriteRanges { .. }
            | Step::WriteFile { .. }
            | Step::Admit { .. }
            | Step::RemoveRanges { .. } => {}
        }
    }
    Some(backends)
}

/// The version that the program tells, which has to be one that can add servers with checks.
async fn version(program: &Path) -> Result<String, Error> {
    let mut command = Command::new(program);
    command.arg("-v");
    let output = run(command, program).await?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let version = said.split_whitespace().skip_while(|word| *word != "version").nth(1).unwrap_or("unknown");
    match answers::version(&said) {
        Some(numbers) if numbers >= (2, 6) => Ok(version.to_owned()),
        _ => Err(Error::TooOld { program: program.to_owned(), version: version.to_owned() }),
    }
}

/// Runs a short command without keeping other tasks from going on.
async fn run(mut command: Command, program: &Path) -> Result<std::process::Output, Error> {
    let done = tokio::task::spawn_blocking(move || command.output()).await;
    let output = done.unwrap_or_else(|_| Err(io::Error::other("it was not waited for")));
    output.map_err(|source| Error::Program { program: program.to_owned(), package: "haproxy", source })
}

fn read_all(directory: &Path) -> Result<BTreeMap<String, String>, Error> {
    let mut all = BTreeMap::new();
    for entry in fs::read_dir(directory).map_err(Error::file("read", directory))?.flatten() {
        let text = fs::read_to_string(entry.path()).map_err(Error::file("read", entry.path()))?;
        all.extend(entry.file_name().into_string().ok().map(|name| (name, text)));
    }
    Ok(all)
}

fn first_line(answer: &str) -> String {
    answer.lines().find(|line| !line.is_empty()).unwrap_or("nothing").to_owned()
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use portcullis_testkit::parts::Scratch;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::UnixListener;

    use super::*;

    #[test]
    fn it_may_be_used_by_any_task() {
        fn is_send<T: Send>(_: impl FnOnce(&'static mut Instance, &'static Wanted) -> T) {}
        is_send(|instance, wanted| instance.apply(wanted, SystemTime::UNIX_EPOCH));
        is_send(|instance, _| instance.look());
    }

    #[tokio::test]
    async fn an_old_worker_is_asked_once_for_all_servers() {
        let directory = Scratch::new().unwrap();
        let master = Socket(directory.path().join("master.sock"));
        let listener = UnixListener::bind(master.path()).unwrap();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let heard = Arc::clone(&asked);
        tokio::spawn(async move {
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut command = String::new();
                stream.read_to_string(&mut command).await.unwrap();
                if command.ends_with("show sess\n") {
                    let session =
                        |number: u8| format!("0x{number}: proto=tcpv4 fe=a be=a srv=m{number} ts=00\n");
                    let all: String = (0..5).map(session).collect();
                    stream.write_all(all.as_bytes()).await.unwrap();
                }
                heard.lock().unwrap().push(command.trim().to_owned());
            }
        });
        let servers = (1..4).map(|number| ("a".to_owned(), format!("m{number}"))).collect();
        cut_in_old_worker(&master, 7, &servers).await.unwrap();
        let cut = ["0x1", "0x2", "0x3"].map(|session| format!("@!7 shutdown session {session}"));
        let expected: Vec<String> = ["@!7 show sess".to_owned()].into_iter().chain(cut).collect();
        assert_eq!(*asked.lock().unwrap(), expected);
    }

    #[test]
    fn cuts_are_put_together_by_worker() {
        let cut = |server: &str, worker| Step::Server {
            backend: "a".to_owned(),
            server: server.to_owned(),
            order: Order::Cut { worker, sessions: 1, why: Why::TimeIsOver },
        };
        let steps = [cut("m", 7), cut("n", 7), cut("m", 8), cut("m", 9)];
        let of = |servers: &[&str]| -> BTreeSet<Key> {
            servers.iter().map(|server| ("a".to_owned(), (*server).to_owned())).collect()
        };
        assert_eq!(cuts_in_old_workers(&steps, Some(9)), [(7, of(&["m", "n"])), (8, of(&["m"]))].into());
    }
}
