//! What is told of it all.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Add, AddAssign};
use std::time::SystemTime;

use portcullis_core::{Duty, ListenerProtocol, Member, MemberState, Problem};

use crate::answers::{Admin, Key};
use crate::names;
use crate::next::{Decision, Look, Running, Why, claimed};
use crate::tally::{Tally, of_member};
use crate::wanted::{Balancer, BalancerId, Wanted};

/// How everything is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// HAProxy's version.
    pub version: String,
    /// Its workers: the current one, and old ones that still have connections.
    pub workers: usize,
    /// Each load balancer that is wanted.
    pub balancers: BTreeMap<BalancerId, BalancerSeen>,
    /// When connections are to be ended: the time to come again at the latest.
    pub due: Option<SystemTime>,
    /// Whether there is something left to do that is not only waited for.
    pub unfinished: bool,
}

/// How a load balancer is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BalancerSeen {
    /// What keeps it, or one of its listeners, from being there.
    pub problem: Option<Problem>,
    /// The ports on which it listens.
    pub listening: Vec<u16>,
    /// Its members, by name.
    pub members: BTreeMap<String, MemberSeen>,
    /// What its clients did, since we look.
    pub totals: Totals,
}

/// How a member is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberSeen {
    /// Where it is in its life.
    pub state: MemberState,
    /// The connections it has now, in all workers.
    pub sessions: u64,
    /// The connections that were ended because their time was over.
    pub cut: u64,
    /// The connections that were ended because too many workers were left of reloads.
    pub crowded_out: u64,
    /// What its checks found, in words, with the port where there are several listeners.
    pub check: String,
    /// What it did, since we look.
    pub totals: Totals,
}

/// What was counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Connections.
    pub connections: u64,
    /// Bytes from clients.
    pub bytes_received: u64,
    /// Bytes to clients.
    pub bytes_sent: u64,
    /// Connections that source ranges kept out.
    pub denied: u64,
}

impl Add for Totals {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            connections: self.connections + other.connections,
            bytes_received: self.bytes_received + other.bytes_received,
            bytes_sent: self.bytes_sent + other.bytes_sent,
            denied: self.denied + other.denied,
        }
    }
}

impl AddAssign for Totals {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

/// Puts together what is told.
pub(crate) fn seen(wanted: &Wanted, look: &Look, decision: &Decision, tally: &Tally) -> Seen {
    let nothing = Running::default();
    let running = look.running.as_ref().unwrap_or(&nothing);
    let mut seen = Seen { due: decision.due, unfinished: !decision.steps.is_empty(), ..Seen::default() };
    for claim in claimed(wanted, look) {
        let balancer = claim.balancer;
        if let Some(first) = seen.balancers.get_mut(&balancer.id) {
            first.problem = first.problem.take().or(claim.problem);
            continue;
        }
        let placed: BTreeSet<&String> = claim.placed.iter().map(|placed| &placed.name).collect();
        let there = claim.placed.iter().filter(|placed| running.proxies.contains(&placed.name));
        let mut of_it = BalancerSeen {
            problem: claim.problem,
            listening: there.map(|placed| placed.listener.port()).collect(),
            ..BalancerSeen::default()
        };
        if let Some(name) = &claim.name {
            of_it.totals = tally.clients(name);
        }
        for member in balancer.load_balancer.members() {
            let member_seen = member_seen(balancer, member, &placed, running, tally);
            of_it.members.insert(member.name().to_owned(), member_seen);
        }
        seen.balancers.insert(balancer.id.clone(), of_it);
    }
    seen
}

fn member_seen(
    balancer: &Balancer,
    member: &Member,
    placed: &BTreeSet<&String>,
    running: &Running,
    tally: &Tally,
) -> MemberSeen {
    let proxies = names::proxies(balancer);
    let carried: Vec<(Key, u16)> = proxies
        .into_iter()
        .filter(|(_, listener)| listener.protocol() == ListenerProtocol::Tcp)
        .map(|(proxy, listener)| ((proxy, names::server(member, listener)), listener.port()))
        .collect();
    let name = names::balancer(&balancer.id).unwrap_or_default();
    // Also by listeners that are gone: what came by them goes on.
    let sessions: u64 =
        of_member(&running.sessions, &name, member).flat_map(|(_, workers)| workers.values()).sum();
    let ended = |why| tally.cut(why, &name, member);
    let (cut, crowded_out) = (ended(Why::TimeIsOver), ended(Why::TooManyWorkers));
    let totals = tally.member(&name, member);
    let (mut serves, mut known, mut aside) = (!placed.is_empty(), false, true);
    let mut words = Vec::new();
    for (key, port) in &carried {
        let server = running.servers.get(key);
        // A listener that is not there keeps nobody from serving by the others.
        let gets = server.is_some_and(|server| server.up && server.admin == Admin::Ready);
        serves &= gets || !placed.contains(&key.0);
        if let Some(server) = server {
            words.push(match carried.len() {
                1 => server.check.clone(),
                _ => format!("{port}: {}", server.check),
            });
        }
    }
    for (_, server) in of_member(&running.servers, &name, member) {
        known = true;
        aside &= server.admin == Admin::Maint;
    }
    let state = match member.duty() {
        Duty::Serve if serves => MemberState::Active,
        Duty::Serve => MemberState::Adding,
        Duty::Rest { .. } if aside && sessions == 0 => MemberState::Disabled,
        Duty::Rest { .. } => MemberState::Disabling,
        Duty::Leave { .. } if !known && sessions == 0 => MemberState::Removed,
        Duty::Leave { .. } => MemberState::Draining,
    };
    MemberSeen { state, sessions, cut, crowded_out, check: words.join(", "), totals }
}
