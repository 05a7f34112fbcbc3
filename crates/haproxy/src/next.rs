//! What is to be done next, from what is wanted and what is there.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use portcullis_core::{AddressSet, Cidr, Duty, Family, LoadBalancer, Member, Problem};

use crate::answers::{Admin, Counts, Key, Server};
use crate::claims::{Claim, claims};
use crate::wanted::{BalancerId, Wanted};
use crate::{file, names};

/// What is there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Look {
    /// Where the files are.
    pub directory: PathBuf,
    /// The address families that the machine has.
    pub families: BTreeSet<Family>,
    /// The configuration file.
    pub file: Option<String>,
    /// The files of source ranges, by their name.
    pub ranges: BTreeMap<String, String>,
    /// HAProxy, where it runs.
    pub running: Option<Running>,
    /// Who was up when HAProxy was last seen: for one that starts again.
    pub was_up: BTreeSet<(String, String)>,
    /// Places that other programs have, and which; only those that were asked for ([`questions`]).
    pub taken: BTreeMap<SocketAddr, String>,
    /// Whether it is too early for another reload, since one has failed.
    pub holds_reload: bool,
}

/// An HAProxy that runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Running {
    /// Workers that were replaced and go on with the connections they have, the oldest first.
    pub old: Vec<u32>,
    /// The structure that the current worker has; `None` if it is none of ours.
    pub generation: Option<u64>,
    /// The proxies of the current worker.
    pub proxies: BTreeSet<String>,
    /// The servers of the current worker, by proxy and name.
    pub servers: BTreeMap<(String, String), Server>,
    /// The connections of a server in each worker that has some, the current and old ones.
    pub sessions: BTreeMap<(String, String), BTreeMap<u32, u64>>,
    /// The source ranges that the current worker has, by the name of their file.
    pub ranges: BTreeMap<String, BTreeSet<String>>,
}

impl Running {
    /// Takes in servers, as the current worker tells of them.
    pub(crate) fn take_servers(&mut self, states: BTreeMap<Key, (Admin, bool)>, counts: &Counts) {
        for (key, (admin, up)) in states {
            let check = counts.servers.get(&key).map(|server| server.check.clone());
            self.servers.insert(key, Server { admin, up, check: check.unwrap_or_default() });
        }
    }

    /// Takes in the connections that some servers have in a worker.
    pub(crate) fn take_sessions(&mut self, worker: u32, counts: &Counts, some: impl Fn(&Key) -> bool) {
        for (key, server) in counts.servers.iter().filter(|(key, server)| server.sessions > 0 && some(key)) {
            self.sessions.entry(key.clone()).or_default().insert(worker, server.sessions);
        }
    }

    fn sessions(&self, key: &Key) -> u64 {
        self.sessions.get(key).map(|workers| workers.values().sum()).unwrap_or_default()
    }
}

/// What has to be remembered from one decision to the next.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// Servers that nobody speaks of any more, and by when they are to be gone.
    pub unspoken: BTreeMap<(String, String), SystemTime>,
}

/// What is to be done, in this order; what fails ends it, but for what closes something ([`closing`]).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Decision {
    /// The steps.
    pub steps: Vec<Step>,
    /// To be given to the next decision.
    pub memory: Memory,
    /// What is in the way of load balancers.
    pub problems: BTreeMap<BalancerId, Problem>,
    /// When there is something to do although nothing changes: connections are to be ended.
    pub due: Option<SystemTime>,
}

/// Something to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Writes a file of source ranges.
    WriteRanges {
        /// Its name.
        file: String,
        /// What is in it.
        text: String,
    },
    /// Replaces the configuration file.
    WriteFile {
        /// What is in it.
        text: String,
        /// Whether HAProxy is asked first whether it would take it: it is more than members that changed.
        ask_first: bool,
    },
    /// Starts HAProxy.
    Start {
        /// Its memory of who is up.
        states: String,
    },
    /// Has HAProxy read its file.
    Reload {
        /// Its memory of who is up.
        states: String,
    },
    /// Gives the current worker the ranges that stand in a file, all at once.
    Admit {
        /// The name of the file.
        file: String,
        /// The ranges.
        ranges: BTreeSet<String>,
    },
    /// Something with a server.
    Server {
        /// Its proxy.
        backend: String,
        /// Its name.
        server: String,
        /// What.
        order: Order,
    },
    /// Removes a file of source ranges that nobody has any more.
    RemoveRanges {
        /// Its name.
        file: String,
    },
}

/// What is done with a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Order {
    /// Makes it known, kept aside.
    Add {
        /// Its address and all of its settings.
        line: String,
    },
    /// Gives it its share once it passes its check.
    Open,
    /// Gives it its share again; it was checked all the time.
    Resume,
    /// Gives it nothing new.
    Drain,
    /// Keeps it aside.
    Aside,
    /// Ends the connections that it has in a worker.
    Cut {
        /// The worker.
        worker: u32,
        /// How many there are.
        sessions: u64,
        /// What for.
        why: Why,
    },
    /// Takes it away.
    Delete,
}

/// Why connections are ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Why {
    /// They may go on no longer: who has them leaves, or rests.
    TimeIsOver,
    /// There are too many workers left of reloads, and this is the oldest.
    TooManyWorkers,
}

/// The places that other programs might have: those that HAProxy is to get and does not have.
pub fn questions(wanted: &Wanted, look: &Look) -> BTreeSet<SocketAddr> {
    let listening = listening(look);
    let held: BTreeSet<&SocketAddr> = listening.values().flatten().collect();
    let claims = claims(wanted, &look.families, &listening, &BTreeMap::new());
    let placed = claims.iter().flat_map(|claim| &claim.placed);
    placed.flat_map(|one| &one.sockets).filter(|socket| !held.contains(socket)).copied().collect()
}

/// What HAProxy listens on, if it is known: the file says it when the worker has read it.
fn listening(look: &Look) -> BTreeMap<String, BTreeSet<SocketAddr>> {
    match (&look.file, &look.running) {
        (Some(text), Some(running))
            if running.generation.is_some() && running.generation == file::generation(text) =>
        {
            file::listening(text)
        }
        _ => BTreeMap::new(),
    }
}

/// What each load balancer gets, as things are.
pub(crate) fn claimed<'a>(wanted: &'a Wanted, look: &Look) -> Vec<Claim<'a>> {
    claims(wanted, &look.families, &listening(look), &look.taken)
}

/// What is in the way of load balancers.
pub(crate) fn problems(claims: &[Claim<'_>]) -> BTreeMap<BalancerId, Problem> {
    // Of two with one name the first counts, also for what is in its way.
    let all = claims.iter().rev();
    all.filter_map(|claim| Some((claim.balancer.id.clone(), claim.problem.clone()?))).collect()
}

/// What is to be done. It is empty where all is as wanted, or has to be waited for.
pub fn next(wanted: &Wanted, look: &Look, memory: &Memory, now: SystemTime) -> Decision {
    let claims = claimed(wanted, look);
    let mut decision = Decision { problems: problems(&claims), ..Decision::default() };
    let steps = &mut decision.steps;

    let files = range_files(claims.iter().filter(|claim| !claim.placed.is_empty()));
    for (name, ranges) in &files {
        let text = file::ranges_text(ranges);
        if look.ranges.get(name) != Some(&text) {
            steps.push(Step::WriteRanges { file: name.clone(), text });
        }
    }

    let has = look.running.as_ref().and_then(|running| running.generation);
    let said = look.file.as_deref().and_then(file::generation);
    let of = |generation| file::render(&look.directory, generation, &wanted.tuning, &claims);
    let mut generation = said.unwrap_or_default();
    let mut text = of(generation);
    let is_new = !look.file.as_ref().is_some_and(|before| file::same_structure(before, &text));
    if is_new {
        // Not one that a worker has, or it would be taken for this one.
        generation = generation.max(has.unwrap_or_default()) + 1;
        text = of(generation);
    }
    if look.file.as_ref() != Some(&text) {
        steps.push(Step::WriteFile { text: text.clone(), ask_first: is_new });
    }

    let Some(running) = &look.running else {
        steps.push(Step::Start { states: file::states(&text, &look.was_up) });
        return decision;
    };
    if has != Some(generation) && !look.holds_reload {
        let up = running.servers.iter().filter(|(_, server)| server.up).map(|(key, _)| key.clone()).collect();
        steps.push(Step::Reload { states: file::states(&text, &up) });
        // Connections outlive it, and so does the time that they have.
        decision.memory.clone_from(memory);
        return decision;
    }
    for (file, ranges) in &files {
        // One that the worker does not have comes with a reload.
        if running.ranges.get(file).is_some_and(|has| has != ranges) {
            steps.push(Step::Admit { file: file.clone(), ranges: ranges.clone() });
        }
    }
    let mut servers = Servers { running, memory, now, cut: BTreeSet::new(), decision };
    for claim in &claims {
        servers.of(claim);
    }
    servers.of_nobody(&claims);
    servers.thin_out(wanted.tuning.old_workers);
    decision = servers.decision;
    if has == Some(generation) {
        let used: BTreeSet<&String> = files.iter().map(|(name, _)| name).collect();
        let unused = look.ranges.keys().filter(|name| !used.contains(name));
        decision.steps.extend(unused.map(|name| Step::RemoveRanges { file: name.clone() }));
    }
    decision
}

/// What can be done without any file, and opens nothing: for when files cannot be written, or are refused. Source ranges that the
/// worker has become narrower, and who is to leave or to rest gets nothing new and has no more time than it is given. So it is with all
/// of a load balancer that is gone. Who is to serve is left as it is, and so is who is not spoken of by a load balancer that is there:
/// what is to come in their place may need a file.
pub fn closing(wanted: &Wanted, look: &Look, memory: &Memory, now: SystemTime) -> Decision {
    let claims = claimed(wanted, look);
    let decision = Decision { memory: memory.clone(), problems: problems(&claims), ..Decision::default() };
    let Some(running) = &look.running else { return decision };
    let mut servers = Servers { running, memory, now, cut: BTreeSet::new(), decision };
    // Also of who gets nothing now: it listens where it did.
    for (file, ranges) in range_files(&claims) {
        let ranges = running.ranges.get(&file).and_then(|has| narrowed(has, &ranges));
        servers.decision.steps.extend(ranges.map(|ranges| Step::Admit { file, ranges }));
    }
    for claim in &claims {
        servers.close(claim);
    }
    servers.of_nobody(&claims);
    servers.decision
}

/// Whether [`closing`] keeps out all who are not to get in: the worker has ranges for all that it listens for and that is to be limited.
/// What is open to everyone is limited by another file alone.
pub fn keeps_out(wanted: &Wanted, look: &Look) -> bool {
    let Some(running) = &look.running else { return true };
    let listening = listening(look);
    claimed(wanted, look).iter().all(|claim| {
        let Some(name) = &claim.name else { return true };
        let (from, to) = names::proxies_between(name);
        if running.proxies.range(from.clone()..to.clone()).next().is_none() {
            return true;
        }
        let sockets = listening.range(from..to).flat_map(|(_, sockets)| sockets);
        let mut families: BTreeSet<Family> = sockets.map(|socket| Family::of(socket.ip())).collect();
        if families.is_empty() {
            // Where it listens is not known.
            families.extend(Family::ALL);
        }
        let admission = claim.balancer.load_balancer.admission();
        let mut limited = families.into_iter().filter(|family| file::limits(admission, *family));
        limited.all(|family| running.ranges.contains_key(&names::ranges(name, family)))
    })
}

/// The files of source ranges, and what is to be in them.
fn range_files<'a>(claims: impl IntoIterator<Item = &'a Claim<'a>>) -> Vec<(String, BTreeSet<String>)> {
    let claims = claims.into_iter();
    let files =
        claims.filter_map(|claim| Some(file::ranges(claim.name.as_ref()?, &claim.balancer.load_balancer)));
    files.flatten().collect()
}

/// What is left of ranges where only these may be, if that is less.
fn narrowed(has: &BTreeSet<String>, wanted: &BTreeSet<String>) -> Option<BTreeSet<String>> {
    let addresses = |ranges: &BTreeSet<String>| -> AddressSet {
        ranges.iter().filter_map(|range| range.parse::<Cidr>().ok()).collect()
    };
    let (had, may) = (addresses(has), addresses(wanted));
    let left = had.intersection(&may);
    if left == had {
        return None;
    }
    if left == may {
        return Some(wanted.clone());
    }
    Some(left.cidrs().iter().map(Cidr::to_string).collect())
}

/// Decides about servers, one proxy after the other.
struct Servers<'a> {
    running: &'a Running,
    memory: &'a Memory,
    now: SystemTime,
    /// Who loses connections, and in which worker.
    cut: BTreeSet<(Key, u32)>,
    decision: Decision,
}

impl Servers<'_> {
    fn of(&mut self, claim: &Claim<'_>) {
        let Some(name) = &claim.name else { return };
        let balancer = &claim.balancer.load_balancer;
        let mut spoken_of = BTreeSet::new();
        for placed in &claim.placed {
            for member in balancer.members() {
                let server = names::server(member, placed.listener);
                let line = || file::server_line(member, placed.listener, claim.balancer.options);
                let key = (placed.name.clone(), server);
                self.member(&key, member.duty(), line);
                spoken_of.insert(key);
            }
        }
        for key in self.of_balancer(name).difference(&spoken_of) {
            let is_there = claim.placed.iter().any(|placed| placed.name == key.0);
            let member = balancer.members().iter().find(|member| names::is_of(&key.1, member));
            match member.map(Member::duty).filter(|_| !is_there) {
                // It came by a listener that is gone, and goes on.
                Some(Duty::Serve) => {}
                Some(duty) => self.member(key, duty, String::new),
                None => self.unspoken(key, balancer.drain_deadline()),
            }
        }
    }

    /// Who is to leave or to rest does, wherever it is.
    fn close(&mut self, claim: &Claim<'_>) {
        let Some(name) = &claim.name else { return };
        let members = claim.balancer.load_balancer.members();
        for key in self.of_balancer(name) {
            let member = members.iter().find(|member| names::is_of(&key.1, member));
            if let Some(duty) = member.map(Member::duty).filter(|duty| *duty != Duty::Serve) {
                self.member(&key, duty, String::new);
            }
        }
    }

    /// What came by load balancers that are gone may go on for as long as they would have had to leave.
    fn of_nobody(&mut self, claims: &[Claim<'_>]) {
        let known: BTreeSet<&str> = claims.iter().filter_map(|claim| claim.name.as_deref()).collect();
        let is_of_nobody = |key: &&Key| !known.contains(names::balancer_of(&key.0));
        let all = self.running.sessions.keys().chain(self.running.servers.keys());
        let all: BTreeSet<&Key> = all.filter(is_of_nobody).collect();
        for key in all {
            self.unspoken(key, LoadBalancer::DRAIN_DEADLINE);
        }
    }

    /// Of too many old workers, the oldest lose their connections: each takes as much memory as a new one.
    fn thin_out(&mut self, most: usize) {
        let running = self.running;
        let excess = running.old.len().saturating_sub(most);
        let oldest: BTreeSet<u32> = running.old[..excess].iter().copied().collect();
        if oldest.is_empty() {
            return;
        }
        for (key, workers) in &running.sessions {
            for (&worker, &sessions) in workers.iter().filter(|(worker, _)| oldest.contains(worker)) {
                self.cut(key, worker, sessions, Why::TooManyWorkers);
            }
        }
    }

    /// Ends the connections that a server has in a worker, unless they are ended already.
    fn cut(&mut self, key: &Key, worker: u32, sessions: u64, why: Why) {
        if sessions > 0 && self.cut.insert((key.clone(), worker)) {
            self.order(key, Order::Cut { worker, sessions, why });
        }
    }

    /// Who was there and is no more leaves, within this time.
    fn unspoken(&mut self, key: &Key, within: Duration) {
        let since = self.memory.unspoken.get(key).copied();
        let by = since.unwrap_or(self.now + within);
        self.decision.memory.unspoken.insert(key.clone(), by);
        self.member(key, Duty::Leave { by }, String::new);
    }

    /// The servers of a load balancer that the current worker knows or that have connections.
    fn of_balancer(&self, name: &str) -> BTreeSet<Key> {
        let (from, to) = names::proxies_between(name);
        let (from, to) = ((from, String::new()), (to, String::new()));
        let known = self.running.servers.range(from.clone()..to.clone()).map(|(key, _)| key);
        let busy = self.running.sessions.range(from..to).map(|(key, _)| key);
        known.chain(busy).cloned().collect()
    }

    fn member(&mut self, key: &Key, duty: Duty, line: impl Fn() -> String) {
        let admin = self.running.servers.get(key).map(|server| server.admin);
        let sessions = self.running.sessions(key);
        let Some(by) = duty.by() else {
            match admin {
                None if self.knows(&key.0) => {
                    self.order(key, Order::Add { line: line() });
                    self.order(key, Order::Open);
                }
                Some(Admin::Maint) => self.order(key, Order::Open),
                Some(Admin::Drain) => self.order(key, Order::Resume),
                None | Some(Admin::Ready) => {}
            }
            return;
        };
        let in_time = by > self.now;
        // Also who has none: one may come before it is told.
        if admin == Some(Admin::Ready) && in_time {
            self.order(key, Order::Drain);
            return;
        }
        if sessions > 0 && in_time {
            self.decision.due = Some(self.decision.due.map_or(by, |due| due.min(by)));
            return;
        }
        if admin.is_some_and(|admin| admin != Admin::Maint) {
            self.order(key, Order::Aside);
        }
        for (&worker, &sessions) in self.running.sessions.get(key).into_iter().flatten() {
            self.cut(key, worker, sessions, Why::TimeIsOver);
        }
        if matches!(duty, Duty::Leave { .. }) && admin.is_some() && sessions == 0 {
            self.order(key, Order::Delete);
        }
    }

    /// Whether the current worker has a proxy. Where it has not, its members come with it, by a reload.
    fn knows(&self, proxy: &str) -> bool {
        self.running.proxies.contains(proxy)
    }

    fn order(&mut self, (backend, server): &Key, order: Order) {
        self.decision.steps.push(Step::Server { backend: backend.clone(), server: server.clone(), order });
    }
}
