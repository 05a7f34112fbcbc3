//! What the rules of groups let through, in the terms in which it is decided.

use std::net::IpAddr;

use portcullis_core::{Cidr, Direction, Family, GroupId, Peer, PortRange, Protocol, Reach, Traffic};
use portcullis_ovn::Model;
use portcullis_ovn::objects::{AddressGroup, Rule};
use uuid::Uuid;

use crate::attributes::View;
use crate::resources::Resource;
use crate::resources::address_group::AddressGroups;
use crate::resources::port::Ports;

/// The traffic that a rule is about; nothing where OVN matches nothing (see [`portcullis_ovn::acl`]).
pub(crate) fn traffic(rule: &Rule) -> Option<Traffic> {
    let Some(text) = &rule.protocol else { return Some(Traffic::ANY) };
    let protocol: Protocol = text.parse().ok()?;
    let byte = |value: u16| u8::try_from(value).ok();
    if protocol.icmp_family().is_some() {
        return match (rule.port_min, rule.port_max) {
            (None, _) => Some(Traffic::of(Protocol::icmp(rule.ethertype))),
            (Some(kind), None) => Some(Traffic::icmp(rule.ethertype, byte(kind)?, None)),
            (Some(kind), Some(code)) => Some(Traffic::icmp(rule.ethertype, byte(kind)?, Some(byte(code)?))),
        };
    }
    match (rule.port_min, rule.port_max) {
        (None, _) | (_, None) => Some(Traffic::of(protocol)),
        _ if ![Protocol::TCP, Protocol::UDP, Protocol::SCTP].contains(&protocol) => None,
        (Some(1), Some(u16::MAX)) => Some(Traffic::of(protocol)),
        (Some(min), Some(max)) => Traffic::ports(protocol, PortRange::new(min, max).ok()?).ok(),
    }
}

/// How a group of ports, or of addresses, is called where it is decided.
pub(crate) fn group_id(id: Uuid) -> Option<GroupId> {
    GroupId::new(id.to_string()).ok()
}

/// The addresses of a group's ports, which northd puts into an address set.
pub(crate) fn addresses_of_group(
    model: &Model,
    group: Uuid,
    family: Family,
) -> impl Iterator<Item = IpAddr> + '_ {
    let addresses = model.ports_of_group(group).flat_map(|port| port.fixed_ips.iter());
    addresses.map(|fixed| fixed.address).filter(move |address| Family::of(*address) == family)
}

/// The other end of a rule; nothing if it cannot be read.
pub(crate) fn peer(rule: &Rule) -> Option<Peer> {
    match (&rule.remote_prefix, rule.remote_group.or(rule.remote_address_group)) {
        (Some(prefix), _) => Some(Peer::Range(prefix.parse::<Cidr>().ok()?.network())),
        (None, Some(group)) => group_id(group).map(Peer::Group),
        (None, None) => Some(Peer::Everyone),
    }
}

/// A rule with one other end.
pub(crate) fn decided(rule: &Rule, peer: Peer) -> Option<portcullis_core::Rule> {
    portcullis_core::Rule::new(rule.direction, rule.ethertype, traffic(rule)?, peer).ok()
}

/// What a group lets through in a direction. A group at the other end is there both as itself, since it may get members,
/// and as the addresses that it has now, as far as who asks may know of them.
pub(crate) fn reach(view: &View<'_>, group: Uuid, direction: Direction) -> Reach {
    let model = view.model;
    let mut decisions = Vec::new();
    for rule in model.rules_of_group(group).filter(|rule| rule.direction == direction) {
        let Some(peer) = peer(rule) else { continue };
        let mut peers = vec![peer];
        if let Some(group) = rule.remote_group {
            let ports = model.ports_of_group(group).filter(|port| Ports::is_visible(port, view));
            let addresses = ports.flat_map(|port| &port.fixed_ips).map(|fixed| fixed.address);
            let addresses = addresses.filter(|address| Family::of(*address) == rule.ethertype);
            peers.extend(addresses.map(|address| Peer::Range(Cidr::host(address))));
        }
        let addresses = rule.remote_address_group.and_then(|id| model.get::<AddressGroup>(id));
        if let Some(group) = addresses.filter(|group| AddressGroups::is_visible(group, view)) {
            let ranges = group.addresses.iter().filter(|range| range.family() == rule.ethertype);
            peers.extend(ranges.map(|range| Peer::Range(range.network())));
        }
        decisions.extend(peers.into_iter().filter_map(|peer| decided(rule, peer)));
    }
    Reach::of(direction, &decisions)
}

/// Everything, in a direction: what a port lets through that is not filtered.
pub(crate) fn everything(direction: Direction) -> Reach {
    let rules = Family::ALL.map(|family| Rule { direction, ethertype: family, ..Rule::default() });
    let decisions: Vec<_> = rules.iter().filter_map(|rule| decided(rule, Peer::Everyone)).collect();
    Reach::of(direction, &decisions)
}
