//! Packets, followed through the fake by its groups: from clients into load balancers, out of them, and into the nodes.

use std::collections::BTreeSet;
use std::net::IpAddr;

use portcullis_aws_fake::{
    Listener, LoadBalancer, Peer, Permission, SecurityGroup, TargetGroup, TargetId, World,
};

/// A client of each range that tests name, and one that is in none of them.
const CLIENTS: [&str; 3] = ["192.0.2.9", "198.51.100.9", "203.0.113.9"];

/// The groups whose rules are known. One of the users' lets everything through, for all that anybody knows, and so does
/// a load balancer without any.
fn groups<'a>(world: &'a World, balancer: &LoadBalancer) -> Option<Vec<&'a SecurityGroup>> {
    let all = balancer.groups.iter().map(|id| &world.groups[id]);
    let all: Vec<&SecurityGroup> = all.collect();
    (!all.is_empty() && all.iter().all(|group| group.name.starts_with("k8s-"))).then_some(all)
}

fn transports(protocol: &str) -> &'static [&'static str] {
    match protocol {
        "UDP" => &["udp"],
        "TCP_UDP" => &["tcp", "udp"],
        _ => &["tcp"],
    }
}

fn covers(rule: &Permission, transport: &str, port: u16) -> bool {
    let port = Some(i32::from(port));
    rule.protocol == "-1" || rule.protocol == transport && rule.from <= port && port <= rule.to
}

fn ports(rule: &Permission) -> String {
    format!("{} {:?}-{:?}", rule.protocol, rule.from, rule.to)
}

/// All that is open: who may come in on a port somebody listens on, where load balancers may send, and whom the nodes
/// let in. A rule for a group lets nobody in whose load balancer does not have it.
pub(crate) fn open(world: &World) -> BTreeSet<String> {
    let mut open = BTreeSet::new();
    for balancer in world.load_balancers.values() {
        let name = &balancer.name;
        let groups = groups(world, balancer);
        for listener in balancer.listeners.values() {
            for transport in transports(&listener.protocol) {
                let way = format!("{name} {transport} {}", listener.port);
                let Some(groups) = &groups else {
                    open.insert(format!("{way} from anyone"));
                    continue;
                };
                let rules = groups.iter().flat_map(|group| group.ingress.keys());
                let rules = rules.filter(|rule| covers(rule, transport, listener.port));
                open.extend(rules.map(|rule| format!("{way} from {}", rule.peer)));
            }
        }
        match groups {
            Some(groups) => {
                let rules = groups.iter().flat_map(|group| group.egress.keys());
                open.extend(rules.map(|rule| format!("{name} to {} {}", ports(rule), rule.peer)));
            }
            None => drop(open.insert(format!("{name} to anyone"))),
        }
    }
    for rule in world.groups["sg-nodes"].ingress.keys() {
        match &rule.peer {
            Peer::Group(id) => {
                let users = world.load_balancers.values().filter(|balancer| balancer.groups.contains(id));
                open.extend(users.map(|user| format!("nodes {} from {}", ports(rule), user.name)));
            }
            peer => drop(open.insert(format!("nodes {} from {peer}", ports(rule)))),
        }
    }
    open
}

/// Whether something that is open is among what may be, or a part of it.
pub(crate) fn is_within(one: &str, allowed: &BTreeSet<String>) -> bool {
    let anyone = [" from ", " to "].into_iter().find_map(|word| {
        let (start, _) = one.split_once(word)?;
        Some(format!("{start}{word}anyone"))
    });
    allowed.contains(one) || anyone.is_some_and(|anyone| allowed.contains(&anyone))
}

/// Who gets through: by which load balancer and port, how, from where.
pub(crate) type Through = BTreeSet<(String, u16, &'static str, IpAddr)>;

/// Whose packets arrive at all that they may be sent to, which are checked, too. Who was just added to a target group
/// that others are in has time until it is used.
pub(crate) fn through(world: &World, before: &World) -> Through {
    let mut through = Through::new();
    for balancer in world.load_balancers.values() {
        for listener in balancer.listeners.values() {
            let pool = &world.target_groups[&listener.target_group];
            let known = before.target_groups.get(&listener.target_group).map(members);
            let members = members(pool);
            let known = known.filter(|known| !known.is_disjoint(&members));
            let is_judged = |one: &&&TargetId| known.as_ref().is_none_or(|known| known.contains(**one));
            let judged: Vec<_> = members.iter().filter(is_judged).collect();
            for transport in transports(&listener.protocol) {
                for client in CLIENTS.map(|client| client.parse::<IpAddr>().unwrap()) {
                    if comes_in(world, balancer, listener, transport, client)
                        && !judged.is_empty()
                        && judged.iter().all(|one| arrives(world, balancer, pool, transport, one, client))
                    {
                        through.insert((balancer.name.clone(), listener.port, transport, client));
                    }
                }
            }
        }
    }
    through
}

fn members(pool: &TargetGroup) -> BTreeSet<&TargetId> {
    let members = pool.targets.iter().filter(|(_, target)| target.health != "draining");
    members.map(|(id, _)| id).collect()
}

fn comes_in(
    world: &World,
    balancer: &LoadBalancer,
    listener: &Listener,
    transport: &str,
    client: IpAddr,
) -> bool {
    let lets_in = |rule: &Permission| {
        covers(rule, transport, listener.port)
            && matches!(&rule.peer, Peer::Range(range) if range.contains(client))
    };
    let groups = groups(world, balancer);
    groups.is_none_or(|groups| groups.iter().any(|group| group.ingress.keys().any(lets_in)))
}

fn arrives(
    world: &World,
    balancer: &LoadBalancer,
    pool: &TargetGroup,
    transport: &str,
    target: &TargetId,
    client: IpAddr,
) -> bool {
    let machine = world.instances.get(&target.id);
    let is_to = |peer: &Peer| match (peer, machine) {
        (Peer::Group(id), Some(machine)) => machine.groups.contains(id),
        (Peer::Range(range), None) => range.contains(target.id.parse().unwrap()),
        _ => false,
    };
    let goes_out = |transport: &str, port: u16| {
        let lets_out = |rule: &Permission| covers(rule, transport, port) && is_to(&rule.peer);
        let groups = groups(world, balancer);
        groups.is_none_or(|groups| groups.iter().any(|group| group.egress.keys().any(lets_out)))
    };
    let own = balancer.subnets.keys().map(|id| {
        let range = world.subnets[id].range.to_string();
        range.split('/').next().unwrap().parse::<IpAddr>().unwrap()
    });
    let own: Vec<IpAddr> = own.collect();
    let is_let_in = |transport: &str, port: u16, sources: &[IpAddr]| {
        let is_from = |peer: &Peer, source: IpAddr| match peer {
            Peer::Group(id) => balancer.groups.contains(id),
            Peer::Range(range) => range.contains(source),
            Peer::PrefixList(_) => false,
        };
        let lets_in = |source: &IpAddr| {
            let mut rules = world.groups["sg-nodes"].ingress.keys();
            rules.any(|rule| covers(rule, transport, port) && is_from(&rule.peer, *source))
        };
        sources.iter().all(lets_in)
    };
    let preserved = pool.attributes["preserve_client_ip.enabled"] == "true";
    let seen = if preserved { vec![client] } else { own.clone() };
    let check = pool.health_check.port.parse().unwrap_or(target.port);
    goes_out(transport, target.port)
        && is_let_in(transport, target.port, &seen)
        && goes_out("tcp", check)
        && is_let_in("tcp", check, &own)
}
