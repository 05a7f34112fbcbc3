//! Rules of groups: who may connect, where a load balancer may go, and whom the nodes let in.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use portcullis_core::{Cidr, Family, Owner};

use super::asked::TargetKind;
use super::settings::{NodeRules, Settings};
use super::snapshot::Shared;
use super::spec::{Backend, Spec, transports};
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
    if backend.addresses.is_empty() {
        return BTreeSet::from([backend.port]);
    }
    backend.addresses.iter().map(|(_, port)| *port).collect()
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
    if spec.target_kind == TargetKind::Instance && !node_groups.is_empty() {
        return Some(node_groups.iter().cloned().map(Peer::Group).collect());
    }
    let subnets = shared.subnets.as_ref()?;
    let ranges = || subnets.iter().flat_map(|subnet| subnet.range.iter().chain(&subnet.ranges6)).copied();
    if spec.target_kind == TargetKind::Instance {
        return Some(ranges().map(Peer::Range).collect());
    }
    let targets = spec.listeners.values().flat_map(|listening| &listening.backend.addresses);
    let addresses: BTreeSet<IpAddr> = targets.map(|(address, _)| *address).collect();
    let around = |address: IpAddr| {
        ranges().find(|range| range.contains(address)).unwrap_or_else(|| Cidr::host(address))
    };
    Some(addresses.into_iter().map(|address| Peer::Range(around(address))).collect())
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
        OwnNodeRules::Group(group) => egress(spec, &BTreeSet::from([Peer::Group((*group).to_owned())])),
        OwnNodeRules::Besides { backend, settings } => {
            let (first, last) = settings.node_ports;
            let besides = |port: &u16| !(first..=last).contains(port) && *port != settings.probe_port;
            let peer = Peer::Group((*backend).to_owned());
            let ports = ports(spec).into_iter().filter(|(_, port)| besides(port));
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
            for range in subnets.iter().filter(|range| range.family() == Family::V4) {
                for listening in spec.listeners.values() {
                    for port in health_ports(&listening.backend) {
                        all.insert(Permission::ports("tcp", port, port, Peer::Range(*range)));
                    }
                    if !keeps_client_addresses(spec, &listening.backend) {
                        for port in target_ports(&listening.backend) {
                            all.insert(Permission::ports("tcp", port, port, Peer::Range(*range)));
                        }
                    }
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

/// For whom the nodes are opened.
pub(super) enum OwnNodeRules<'a> {
    /// Whoever has that group.
    Group(&'a str),
    /// Whoever has the group that all load balancers have, on ports that are not open for all of them.
    Besides { backend: &'a str, settings: &'a Settings },
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
