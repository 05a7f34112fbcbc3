//! What is left to do while something is in the way of all else: listeners that are not asked for any more go, and who is not to get in
//! any more is kept out. Nothing is opened that was not open before. Where no listener is there that is asked for, those that are stay:
//! clients are not left with none.

use std::collections::BTreeSet;

use portcullis_core::{AddressSet, Direction, Family, LoadBalancer, Owner, Problem, Protocol};
use tracing::warn;

use super::Provider;
use crate::model::{Peer, Permission, SecurityGroup};
use crate::nlb::look::Look;
use crate::nlb::rules;
use crate::nlb::snapshot::{Balancer, Holding};
use crate::nlb::spec::transports;
use crate::nlb::step::Step;

/// So many rounds of looks and steps lead there.
const ROUNDS: usize = 8;

/// What to do next. If there is something to look at, nothing else is said yet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Next {
    looks: BTreeSet<Look>,
    steps: Vec<Step>,
    /// Who gets in as it is, where that is known.
    admitted: Option<AddressSet>,
}

/// What state things are in after that.
const RETREATED: &str = "What serves goes on, what is not asked for any more is closed as far as AWS lets us, and nothing is opened.";

impl Provider {
    /// Closes what is not asked for any more by an owner whose members somebody waits for, and has the problem tell of it. Who gets in
    /// after that, as far as it is known.
    pub(super) async fn retreat_from(&self, owner: &Owner, problem: &mut Problem) -> Option<AddressSet> {
        if self.state().followed.contains_key(owner) {
            RETREATED.clone_into(&mut problem.state);
        }
        self.retreat(owner).await
    }

    async fn retreat(&self, owner: &Owner) -> Option<AddressSet> {
        for _ in 0..ROUNDS {
            let next = {
                let state = self.state();
                let wanted = &state.followed.get(owner)?.wanted;
                let holding = state.snapshot.holdings.get(owner)?;
                next(owner, wanted, holding, self.0.settings.rules_per_group)
            };
            let done = if !next.looks.is_empty() {
                self.look(&next.looks).await
            } else if next.steps.is_empty() {
                return next.admitted;
            } else {
                self.perform(owner, &next.steps).await
            };
            if let Err(error) = done {
                warn!(%owner, %error, "what is not asked for any more could not be closed");
                self.state().doubt(owner);
                return None;
            }
        }
        None
    }
}

fn next(owner: &Owner, wanted: &LoadBalancer, holding: &Holding, room: usize) -> Next {
    let mut next = Next { looks: looks(owner, holding), ..Next::default() };
    if !next.looks.is_empty() {
        return next;
    }
    let mut asked = asked(wanted);
    let there = listened_on(holding);
    if asked.is_disjoint(&there) {
        asked.extend(there);
    }
    for found in holding.balancers.values() {
        let listeners = found.listeners.iter().flatten();
        let surplus = listeners.filter(|(port, known)| {
            !transports(&known.protocol).iter().any(|transport| asked.contains(&(*transport, **port)))
        });
        let surplus =
            surplus.map(|(port, known)| Step::DeleteListener { arn: known.arn.clone(), port: *port });
        next.steps.extend(surplus);
    }
    for group in holding.groups.values() {
        next.steps.extend(narrowed(&group.group, &asked, wanted, room));
    }
    next.admitted = admitted(holding, &asked);
    next
}

/// What has to be known first.
fn looks(owner: &Owner, holding: &Holding) -> BTreeSet<Look> {
    let mut looks = BTreeSet::new();
    if holding.balancers.values().any(|found| !found.seen) {
        looks.insert(Look::Whose(owner.clone()));
    }
    if holding.groups.values().any(|group| !group.seen) {
        looks.insert(Look::Groups(owner.clone()));
    }
    let unknown = holding.balancers.iter().filter(|(_, found)| found.listeners.is_none());
    looks.extend(unknown.map(|(arn, _)| Look::Listeners(arn.clone())));
    looks
}

/// The ports that are asked for, with what packets to them are.
fn asked(wanted: &LoadBalancer) -> BTreeSet<(&'static str, u16)> {
    let mut asked = BTreeSet::new();
    for listener in wanted.listeners() {
        for (protocol, word) in [(Protocol::TCP, "tcp"), (Protocol::UDP, "udp")] {
            if listener.protocol().transports().contains(&protocol) {
                asked.insert((word, listener.port()));
            }
        }
    }
    asked
}

/// The ports that are listened on, in the same terms.
fn listened_on(holding: &Holding) -> BTreeSet<(&'static str, u16)> {
    let listeners = holding.balancers.values().flat_map(|found| found.listeners.iter().flatten());
    listeners
        .flat_map(|(port, known)| transports(&known.protocol).iter().map(|transport| (*transport, *port)))
        .collect()
}

/// Has a group let in nobody who should not get in. The narrower rule comes first: who may get in is never kept out by that, so where
/// a group has no room for both, the wider one stays.
fn narrowed(
    group: &SecurityGroup,
    asked: &BTreeSet<(&'static str, u16)>,
    wanted: &LoadBalancer,
    room: usize,
) -> Vec<Step> {
    let (mut missing, mut surplus) = (BTreeSet::new(), BTreeSet::new());
    for rule in group.ingress.keys() {
        let left = left_of(rule, asked, wanted);
        if left.contains(rule) {
            continue;
        }
        let new: BTreeSet<Permission> =
            left.into_iter().filter(|one| !group.ingress.contains_key(one)).collect();
        if new.is_empty() {
            surplus.insert(rule.clone());
        } else if group.ingress.len() + missing.union(&new).count() <= room {
            missing.extend(new);
        }
    }
    let rules = |all: BTreeSet<Permission>| all.into_iter().map(|one| (one, String::new())).collect();
    let (group, direction) = (group.id.clone(), Direction::Ingress);
    let mut steps = Vec::new();
    if !missing.is_empty() {
        steps.push(Step::Permit { group: group.clone(), direction, permissions: rules(missing) });
    }
    if !surplus.is_empty() {
        steps.push(Step::Forbid { group, direction, permissions: rules(surplus) });
    }
    steps
}

/// What of a rule is asked for.
fn left_of(
    rule: &Permission,
    asked: &BTreeSet<(&'static str, u16)>,
    wanted: &LoadBalancer,
) -> BTreeSet<Permission> {
    // Ranges are all that anybody asks for here.
    let Peer::Range(range) = &rule.peer else { return BTreeSet::from([rule.clone()]) };
    let allowed = AddressSet::from(*range).intersection(&wanted.admission().addresses(range.family()));
    let peers = allowed.cidrs().into_iter().map(|one| Peer::Range(one.network()));
    if rules::is_path_mtu(rule) {
        return peers.map(|peer| Permission { peer, ..rule.clone() }).collect();
    }
    let ports = || asked.iter().filter(|(transport, port)| rules::covers(rule, transport, *port));
    peers
        .flat_map(|peer| {
            ports().map(move |(transport, port)| Permission::ports(transport, *port, *port, peer.clone()))
        })
        .collect()
}

/// Who gets in to any port that is asked for. Nobody here knows what groups of others let in.
fn admitted(holding: &Holding, asked: &BTreeSet<(&'static str, u16)>) -> Option<AddressSet> {
    let mut admitted = AddressSet::nobody();
    for found in holding.balancers.values() {
        for id in &found.balancer.groups {
            for rule in holding.groups.get(id)?.group.ingress.keys() {
                match &rule.peer {
                    _ if !asked.iter().any(|(transport, port)| rules::covers(rule, transport, *port)) => {}
                    Peer::Range(range) => admitted = admitted.union(&AddressSet::from(*range)),
                    Peer::Group(_) | Peer::PrefixList(_) => return None,
                }
            }
        }
    }
    let has_groups = |found: &Balancer| !found.balancer.groups.is_empty();
    if holding.balancers.is_empty() || !holding.balancers.values().all(has_groups) {
        return None;
    }
    // Of one that has no addresses of IPv6 nothing is said for these.
    let is_dual = holding.balancers.values().any(|found| found.balancer.ip_address_type == "dualstack");
    let is_everyone = !is_dual && AddressSet::everyone_of(Family::V4).is_subset(&admitted);
    Some(if is_everyone { AddressSet::everyone() } else { admitted })
}
