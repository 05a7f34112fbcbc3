//! What is left to do while something is in the way of all else: listeners that are not asked for any more go, and who is not to get in
//! any more is kept out. Nothing is opened that was not open before. A listener stays while nothing that is asked for leads to the same
//! port of members, and all of them do while nothing is there in the place of what clients use: they are not left with none.

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
    /// The ports that are listened on although they are not asked for.
    kept: BTreeSet<u16>,
}

impl Next {
    /// What was done in spite of the problem.
    fn told(&self) -> String {
        let ports: Vec<String> = self.kept.iter().map(u16::to_string).collect();
        let closed = "Only what is not asked for any more is closed, as far as AWS lets us";
        match ports.as_slice() {
            [] => format!("{closed}."),
            [port] => format!("{closed}; port {port} stays until there is a listener in its place."),
            ports => {
                format!("{closed}; ports {} stay until there are listeners in their place.", ports.join(", "))
            }
        }
    }
}

impl Provider {
    /// Closes what is not asked for any more by an owner whose members somebody waits for, and has the problem tell of it. Who gets in
    /// after that, as far as it is known.
    pub(super) async fn retreat_from(&self, owner: &Owner, problem: &mut Problem) -> Option<AddressSet> {
        let (last, is_done) = self.retreat(owner).await?;
        // What else the problem says of the state is more exact.
        problem.state = format!("{} {}", problem.state, last.told());
        last.admitted.filter(|_| is_done)
    }

    /// The last that was to be done, and whether nothing is left of it. Nothing where there is nothing to close.
    async fn retreat(&self, owner: &Owner) -> Option<(Next, bool)> {
        let mut last = None;
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
                return Some((next, true));
            } else {
                self.perform(owner, &next.steps).await
            };
            last = Some((next, false));
            if let Err(error) = done {
                warn!(%owner, %error, "what is not asked for any more could not be closed");
                self.state().doubt(owner);
                break;
            }
        }
        last
    }
}

fn next(owner: &Owner, wanted: &LoadBalancer, holding: &Holding, room: usize) -> Next {
    let mut next = Next { looks: looks(owner, holding), ..Next::default() };
    if !next.looks.is_empty() {
        return next;
    }
    let mut asked = asked(wanted);
    let kept = kept(wanted, holding, &asked);
    next.kept = kept.iter().map(|(_, port)| *port).collect();
    asked.extend(kept);
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

/// The ports that are listened on, are not asked for, and stay, in the same terms: by some, clients may reach what nothing that is
/// asked for leads to yet.
fn kept(
    wanted: &LoadBalancer,
    holding: &Holding,
    asked: &BTreeSet<(&'static str, u16)>,
) -> BTreeSet<(&'static str, u16)> {
    let (mut there, mut surplus) = (BTreeSet::new(), BTreeSet::new());
    // The ports of members that something leads to.
    let (mut reached, mut left) = (BTreeSet::new(), BTreeSet::new());
    let listeners = holding.balancers.values().flat_map(|found| found.listeners.iter().flatten());
    for (port, known) in listeners {
        let pool = known.target_group.as_ref().and_then(|arn| holding.pools.get(arn));
        let target = pool.map(|pool| pool.group.port);
        for transport in transports(&known.protocol) {
            if asked.contains(&(*transport, *port)) {
                there.insert((*transport, *port));
                reached.insert((*transport, target));
            } else {
                surplus.insert((*transport, *port, target));
                left.insert((*transport, target));
            }
        }
    }
    let mut sought: BTreeSet<(&str, Option<u16>)> = BTreeSet::new();
    let mut first_is_lost = false;
    for (place, listener) in wanted.listeners().iter().enumerate() {
        for (transport, _) in asked.iter().filter(|(_, port)| *port == listener.port()) {
            let target = (*transport, Some(listener.target_port()));
            let is_led_to = reached.contains(&target) || left.contains(&target);
            // Most clients use the first. What it is to take the place of cannot be told where that leads elsewhere.
            first_is_lost |= place == 0 && !is_led_to && !there.contains(&(*transport, listener.port()));
            sought.insert(target);
        }
    }
    let all_stay = there.is_empty() || first_is_lost;
    let stays = |(transport, _, target): &(&'static str, u16, Option<u16>)| {
        let target = (*transport, *target);
        all_stay || (sought.contains(&target) && !reached.contains(&target))
    };
    surplus.into_iter().filter(stays).map(|(transport, port, _)| (transport, port)).collect()
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
