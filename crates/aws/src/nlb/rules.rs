//! Rules of groups: who may connect, where a load balancer may go, and whom the nodes let in.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use portcullis_core::{Cidr, Family, Owner};

use super::asked::TargetKind;
use super::settings::{NodeRules, Settings};
use super::snapshot::{Balancer, Holding, Pool, Shared};
use super::spec::{Backend, Listening, Spec, transports};
use crate::model::{HealthCheck, Peer, Permission, Permissions};

/// What clients may send: to each port, and what they need to find out how large packets may be.
pub(super) fn clients(spec: &Spec) -> BTreeSet<Permission> {
    let mut all = BTreeSet::new();
    for peer in &spec.clients {
        for (port, listening) in &spec.listeners {
            for transport in listening.transports() {
                all.insert(Permission::ports(transport, *port, *port, peer.clone()));
            }
        }
        if spec.path_mtu {
            all.extend(path_mtu(peer));
        }
    }
    all
}

/// The message that a packet was too large.
fn path_mtu(peer: &Peer) -> Option<Permission> {
    let (protocol, kind, code) = match peer {
        Peer::Range(range) if range.family() == Family::V6 => ("icmpv6", 2, 0),
        Peer::Range(_) | Peer::PrefixList(_) => ("icmp", 3, 4),
        Peer::Group(_) => return None,
    };
    Some(Permission { protocol: protocol.to_owned(), from: Some(kind), to: Some(code), peer: peer.clone() })
}

/// Whether a rule is for the message that a packet was too large.
pub(super) fn is_path_mtu(rule: &Permission) -> bool {
    rule.protocol.starts_with("icmp")
}

/// Where a load balancer has to go: to the ports of its targets, and to where they are checked.
pub(super) fn ports(spec: &Spec) -> BTreeSet<(&'static str, u16)> {
    let mut all = BTreeSet::new();
    for listening in spec.listeners.values() {
        let backend = &listening.backend;
        for transport in transports(backend.protocol) {
            all.extend(target_ports(backend).into_iter().map(|port| (*transport, port)));
        }
        all.extend(health_ports(backend).into_iter().map(|port| ("tcp", port)));
    }
    all
}

/// The ports of targets, each of which may have its own; where none is there yet, the one they will have.
fn target_ports(backend: &Backend) -> BTreeSet<u16> {
    if backend.addresses.is_empty() && backend.aside.is_empty() {
        return BTreeSet::from([backend.port]);
    }
    backend.addresses.iter().chain(&backend.aside).map(|(_, port)| *port).collect()
}

/// Where targets are checked.
fn health_ports(backend: &Backend) -> BTreeSet<u16> {
    health_port(&backend.health).map_or_else(|| target_ports(backend), |port| BTreeSet::from([port]))
}

fn health_port(check: &HealthCheck) -> Option<u16> {
    check.port.parse().ok()
}

/// What a load balancer may send, to these.
pub(super) fn egress(spec: &Spec, peers: &BTreeSet<Peer>) -> BTreeSet<Permission> {
    let ports = ports(spec);
    let each = peers.iter().flat_map(|peer| {
        ports.iter().map(|(transport, port)| Permission::ports(transport, *port, *port, peer.clone()))
    });
    each.collect()
}

/// Where the targets are: the nodes' groups, or for addresses the subnets they are in.
pub(super) fn target_peers(
    spec: &Spec,
    node_groups: &BTreeSet<String>,
    shared: &Shared,
) -> Option<BTreeSet<Peer>> {
    let backends = spec.listeners.values().map(|listening| &listening.backend);
    // Who is not sent to any more may have connections.
    let targets = backends.flat_map(|backend| backend.addresses.iter().chain(&backend.aside));
    peers(spec.target_kind, targets.map(|(address, _)| *address).collect(), node_groups, shared)
}

fn peers(
    kind: TargetKind,
    addresses: BTreeSet<IpAddr>,
    node_groups: &BTreeSet<String>,
    shared: &Shared,
) -> Option<BTreeSet<Peer>> {
    if kind == TargetKind::Instance && !node_groups.is_empty() {
        return Some(node_groups.iter().cloned().map(Peer::Group).collect());
    }
    let subnets = shared.subnets.as_ref()?;
    let ranges = || subnets.iter().flat_map(|subnet| subnet.range.iter().chain(&subnet.ranges6)).copied();
    if kind == TargetKind::Instance {
        return Some(ranges().map(Peer::Range).collect());
    }
    let around = |address: IpAddr| {
        ranges().find(|range| range.contains(address)).unwrap_or_else(|| Cidr::host(address))
    };
    Some(addresses.into_iter().map(|address| Peer::Range(around(address))).collect())
}

/// Target groups that a load balancer sends to as it is.
fn pools_in_use<'a>(holding: &'a Holding, found: &'a Balancer) -> impl Iterator<Item = &'a Pool> {
    let listeners = found.listeners.iter().flatten();
    listeners.filter_map(|(_, listener)| holding.pools.get(listener.target_group.as_ref()?))
}

/// Where a load balancer goes as it is.
pub(super) fn ports_in_use(holding: &Holding, found: &Balancer) -> BTreeSet<(&'static str, u16)> {
    pools_in_use(holding, found).flat_map(ports_of).collect()
}

fn ports_of(pool: &Pool) -> BTreeSet<(&'static str, u16)> {
    let targets: BTreeSet<u16> =
        pool.members().unwrap_or_default().into_iter().map(|target| target.port).collect();
    let checked =
        health_port(&pool.group.health_check).map_or_else(|| targets.clone(), |port| BTreeSet::from([port]));
    let sent = transports(&pool.group.protocol).iter();
    let sent = sent.flat_map(|transport| targets.iter().map(|port| (*transport, *port)));
    sent.chain(checked.into_iter().map(|port| ("tcp", port))).collect()
}

/// What a load balancer has to be able to send as it is.
pub(super) fn egress_in_use(
    holding: &Holding,
    found: &Balancer,
    node_groups: &BTreeSet<String>,
    shared: &Shared,
) -> Option<BTreeSet<Permission>> {
    let mut all = BTreeSet::new();
    for pool in pools_in_use(holding, found) {
        let kind =
            if pool.group.kind == TargetKind::Ip.as_str() { TargetKind::Ip } else { TargetKind::Instance };
        let members = pool.members().unwrap_or_default().into_iter();
        let addresses = members.filter_map(|target| target.id.parse().ok()).collect();
        let ports = ports_of(pool);
        for peer in peers(kind, addresses, node_groups, shared)? {
            let each = ports.iter();
            all.extend(
                each.map(|(transport, port)| Permission::ports(transport, *port, *port, peer.clone())),
            );
        }
    }
    Some(all)
}

/// A mark on a rule in a group that is not ours, so that it is known as ours.
pub(super) fn mark(owner: &Owner) -> String {
    let name = match owner.namespace() {
        Some(namespace) => format!("{namespace}/{}", owner.name()),
        None => owner.name().to_owned(),
    };
    // AWS takes up to 255 characters of few kinds.
    let text = format!("portcullis {} {} {name}", owner.cluster(), owner.kind());
    text.chars()
        .filter(|character| character.is_ascii_alphanumeric() || " ._-:/".contains(*character))
        .take(255)
        .collect()
}

/// What all marks of a cluster start with.
pub(super) fn marks(cluster: &str) -> String {
    let cluster: String = cluster
        .chars()
        .filter(|character| character.is_ascii_alphanumeric() || " ._-:/".contains(*character))
        .collect();
    format!("portcullis {cluster} ")
}

/// What the nodes' groups let in for all load balancers: node ports and the health port, from the group that all of
/// them have.
pub(super) fn shared_node_rules(backend: &str, owner: &Owner, settings: &Settings) -> Permissions {
    let peer = || Peer::Group(backend.to_owned());
    let (first, last) = settings.node_ports;
    let all = [
        Permission::ports("tcp", first, last, peer()),
        Permission::ports("udp", first, last, peer()),
        Permission::ports("tcp", settings.probe_port, settings.probe_port, peer()),
    ];
    all.into_iter().map(|permission| (permission, mark(owner))).collect()
}

/// What the nodes' groups let in for one load balancer only: from its own group, or, if it can have none, from its
/// clients, and from its own addresses for the checks and what does not show its clients' addresses.
pub(super) fn own_node_rules(spec: &Spec, from: &OwnNodeRules<'_>) -> Permissions {
    let mark = mark(&spec.owner);
    let all: BTreeSet<Permission> = match from {
        OwnNodeRules::Group { group, besides, also } => {
            let is_open = |port: u16| {
                besides.is_some_and(|settings| {
                    let (first, last) = settings.node_ports;
                    (first..=last).contains(&port) || port == settings.probe_port
                })
            };
            let peer = Peer::Group((*group).to_owned());
            let ports = ports(spec).into_iter().chain(also.iter().copied());
            let ports = ports.filter(|(_, port)| !is_open(*port));
            ports.map(|(transport, port)| Permission::ports(transport, port, port, peer.clone())).collect()
        }
        OwnNodeRules::Clients { subnets } => {
            let mut all = BTreeSet::new();
            let seeing: Vec<_> = spec
                .listeners
                .values()
                .filter(|listening| keeps_client_addresses(spec, &listening.backend))
                .collect();
            for peer in spec.clients.iter().filter(|_| !seeing.is_empty()) {
                for listening in &seeing {
                    let backend = &listening.backend;
                    for transport in transports(backend.protocol) {
                        for port in target_ports(backend) {
                            all.insert(Permission::ports(transport, port, port, peer.clone()));
                        }
                    }
                }
                all.extend(spec.path_mtu.then(|| path_mtu(peer)).flatten());
            }
            for listening in spec.listeners.values() {
                let backend = &listening.backend;
                let by_balancer =
                    hidden_clients(spec, backend).iter().any(|family| may_connect(spec, *family));
                let ports = health_ports(backend).into_iter();
                let ports: BTreeSet<u16> =
                    ports.chain(target_ports(backend).into_iter().filter(|_| by_balancer)).collect();
                for range in subnets.iter().filter(|range| range.family() == target_family(backend)) {
                    let peer = Peer::Range(*range);
                    all.extend(ports.iter().map(|port| Permission::ports("tcp", *port, *port, peer.clone())));
                }
            }
            all
        }
    };
    all.into_iter().map(|permission| (permission, mark.clone())).collect()
}

/// Whether targets see the addresses of clients, as AWS has it unless told otherwise: of UDP always, of TCP if they are
/// machines.
pub(super) fn keeps_client_addresses(spec: &Spec, backend: &Backend) -> bool {
    if transports(backend.protocol).contains(&"udp") {
        return true;
    }
    match spec.target_attributes.get("preserve_client_ip.enabled").map(String::as_str) {
        Some(set) => set == "true",
        None => spec.target_kind == TargetKind::Instance,
    }
}

/// The families of clients whose addresses targets do not see: the load balancer's own take their place. Of another family
/// than that of the targets they cannot be kept.
pub(super) fn hidden_clients(spec: &Spec, backend: &Backend) -> Vec<Family> {
    hidden(spec.dual_stack, keeps_client_addresses(spec, backend), target_family(backend))
}

fn hidden(dual_stack: bool, kept: bool, targets: Family) -> Vec<Family> {
    let served = if dual_stack { &[Family::V4, Family::V6][..] } else { &[Family::V4][..] };
    served.iter().copied().filter(|family| !kept || *family != targets).collect()
}

/// Whether source ranges are given that no group of nodes can keep to.
pub(super) fn limits_nobody(spec: &Spec) -> bool {
    spec.listeners.values().any(|listening| !unlimited(spec, &listening.backend).is_empty())
}

/// The families of clients that source ranges are given for and no group of nodes can keep to them: who is not to be let in
/// comes with the addresses of the load balancer, which are let in for others, or for its checks.
pub(super) fn unlimited(spec: &Spec, backend: &Backend) -> Vec<Family> {
    let is_everyone = |family: Family| spec.clients.contains(&Peer::Range(Cidr::everything(family)));
    let targets = target_ports(backend);
    let checked_there = health_ports(backend).iter().any(|port| targets.contains(port));
    let mut hidden = hidden_clients(spec, backend);
    let balancer_enters = checked_there
        || hidden.iter().any(|family| may_connect(spec, *family))
        || spec.clients.iter().any(|peer| may_be_balancer(peer, backend));
    hidden.retain(|family| balancer_enters && !is_everyone(*family));
    hidden
}

/// Whether a range of clients may have the load balancer's own addresses in it, which are of the VPC.
fn may_be_balancer(peer: &Peer, backend: &Backend) -> bool {
    const OF_VPCS: [&str; 5] = ["10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "2000::/3"];
    let Peer::Range(range) = peer else { return true };
    let overlaps = |text: &str| text.parse::<Cidr>().is_ok_and(|private| private.overlaps(range));
    range.family() == target_family(backend) && OF_VPCS.into_iter().any(overlaps)
}

/// The families of clients that come to a target group with the addresses of the load balancer, both as they are, and are
/// let in so: `open` are rules of the nodes. Not known as long as the attributes are not.
pub(super) fn entering<'a>(
    found: &Balancer,
    pool: &Pool,
    shared: &Shared,
    open: impl IntoIterator<Item = &'a Permission>,
) -> Option<Vec<Family>> {
    let group = &pool.group;
    let udp = transports(&group.protocol).contains(&"udp");
    let kept = match pool.attributes.as_ref()?.get("preserve_client_ip.enabled") {
        _ if udp => true,
        Some(set) => set == "true",
        None => group.kind != TargetKind::Ip.as_str(),
    };
    let targets = if group.ip_address_type == "ipv6" { Family::V6 } else { Family::V4 };
    let mut ports: BTreeSet<u16> =
        pool.members().unwrap_or_default().into_iter().map(|target| target.port).collect();
    if ports.is_empty() {
        ports.insert(group.port);
    }
    let checked_there = health_port(&group.health_check).is_none_or(|port| ports.contains(&port));
    let own = shared.subnets.iter().flatten().filter(|subnet| found.balancer.subnets.contains(&subnet.id));
    let own: Vec<Cidr> = own.flat_map(|subnet| subnet.range.iter().chain(&subnet.ranges6)).copied().collect();
    let is_open = |rule: &Permission| {
        let from_own =
            matches!(rule.peer, Peer::Range(range) if own.iter().any(|own| range.contains(own.addr())));
        from_own && ports.iter().any(|port| covers(rule, "tcp", *port))
    };
    let enters = checked_there || open.into_iter().any(is_open);
    Some(if enters {
        hidden(found.balancer.ip_address_type == "dualstack", kept, targets)
    } else {
        Vec::new()
    })
}

/// Whether targets are checked on a port on which they serve.
pub(super) fn is_checked_where_it_serves(spec: &Spec) -> bool {
    let ports = |one: fn(&Backend) -> BTreeSet<u16>| {
        spec.listeners.values().flat_map(move |listening| one(&listening.backend)).collect::<BTreeSet<u16>>()
    };
    !ports(target_ports).is_disjoint(&ports(health_ports))
}

/// Whether a rule of the nodes may let in clients that an owner does not name. Clients are never known by a group: they come
/// by the load balancer.
pub(super) fn may_enter_by(spec: &Spec, rule: &Permission) -> bool {
    let is_named = |range: &Cidr| {
        spec.clients.iter().any(|peer| {
            matches!(peer, Peer::Range(named)
                if named.contains(range.network().addr()) && named.prefix_len() <= range.prefix_len())
        })
    };
    let is_other = match &rule.peer {
        Peer::Range(range) => !is_named(range),
        Peer::PrefixList(_) => true,
        Peer::Group(_) => false,
    };
    let is_there = |listening: &Listening| {
        let backend = &listening.backend;
        let sent = transports(backend.protocol).iter();
        sent.flat_map(|transport| target_ports(backend).into_iter().map(|port| (*transport, port)))
            .any(|(transport, port)| covers(rule, transport, port))
    };
    is_other && spec.listeners.values().any(is_there)
}

/// Whether a rule is about a port.
pub(super) fn covers(rule: &Permission, transport: &str, port: u16) -> bool {
    let port = i32::from(port);
    rule.protocol == "-1"
        || rule.protocol == transport
            && rule.from.is_none_or(|from| from <= port)
            && rule.to.is_none_or(|to| port <= to)
}

/// Whether anybody of a family may connect.
fn may_connect(spec: &Spec, family: Family) -> bool {
    spec.clients.iter().any(|peer| match peer {
        Peer::Range(range) => range.family() == family,
        // A prefix list is of one family or the other, which is not known here.
        _ => true,
    })
}

/// The family of the addresses that a load balancer sends to, and of its own when it does.
fn target_family(backend: &Backend) -> Family {
    if backend.ip_address_type == "ipv6" { Family::V6 } else { Family::V4 }
}

/// For whom the nodes are opened.
pub(super) enum OwnNodeRules<'a> {
    /// Whoever has that group.
    Group {
        group: &'a str,
        /// Where it is the group that all load balancers have: on ports that are not open for all of them.
        besides: Option<&'a Settings>,
        /// Ports that it goes to still when it gets the group.
        also: BTreeSet<(&'static str, u16)>,
    },
    /// The clients themselves, whose addresses the nodes see.
    Clients { subnets: Vec<Cidr> },
}

/// Which rule is in which group: in order, so many in each.
pub(super) fn spread(all: &BTreeSet<Permission>, most: usize) -> BTreeMap<usize, BTreeSet<Permission>> {
    let mut parts: BTreeMap<usize, BTreeSet<Permission>> = BTreeMap::new();
    for (place, permission) in all.iter().enumerate() {
        parts.entry(place / most.max(1) + 1).or_default().insert(permission.clone());
    }
    parts
}

/// Whether exact rules are kept per load balancer.
pub(super) fn is_exact(settings: &Settings) -> bool {
    settings.node_rules == NodeRules::Exact
}
