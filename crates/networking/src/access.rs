//! What the rules of groups let through, in the terms in which it is decided.

use std::net::IpAddr;

use portcullis_core::{Cidr, Direction, Family, GroupId, Peer, Reach};
use portcullis_ovn::Model;
use portcullis_ovn::acl::{self, Remote};
use portcullis_ovn::objects::{AddressGroup, Rule};
use uuid::Uuid;

use crate::attributes::View;
use crate::resources::Resource;
use crate::resources::address_group::AddressGroups;
use crate::resources::port::Ports;

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

/// The other end of a rule; nothing if OVN matches nobody there.
pub(crate) fn peer(rule: &Rule) -> Option<Peer> {
    match acl::remote(rule)? {
        Remote::Everyone => Some(Peer::Everyone),
        Remote::Range(range) => Some(Peer::Range(range.network())),
        Remote::Group(group) | Remote::AddressGroup(group) => group_id(group).map(Peer::Group),
    }
}

/// A rule with one other end; nothing where OVN matches nothing.
pub(crate) fn decided(rule: &Rule, peer: Peer) -> Option<portcullis_core::Rule> {
    portcullis_core::Rule::new(rule.direction, rule.ethertype, acl::traffic(rule)?, peer).ok()
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Whatever is in the database, by whoever wrote it: a rule that OVN matches nothing by lets nothing through here.
    #[test]
    fn what_ovn_cannot_match_is_not_let_through() {
        let numbers = [None, Some(0), Some(1), Some(22), Some(256), Some(u16::MAX)];
        let protocols =
            [None, Some("tcp"), Some("17"), Some("icmp"), Some("ipv6-icmp"), Some("udplite"), Some("x")];
        let prefixes = [None, Some("10.0.0.0/8"), Some("::/0"), Some("nonsense")];
        let group = Uuid::from_u128(1);
        for ethertype in Family::ALL {
            for (port_min, port_max) in numbers.into_iter().flat_map(|min| numbers.map(|max| (min, max))) {
                for protocol in protocols.map(|protocol| protocol.map(str::to_owned)) {
                    for remote_prefix in prefixes.map(|prefix| prefix.map(str::to_owned)) {
                        for remote_group in [None, Some(group)] {
                            let rule = Rule {
                                ethertype,
                                port_min,
                                port_max,
                                protocol: protocol.clone(),
                                remote_prefix: remote_prefix.clone(),
                                remote_group,
                                ..Rule::default()
                            };
                            let matches_nothing = acl::matches(&rule).split(" && ").any(|part| part == "0");
                            let decided = peer(&rule).and_then(|peer| decided(&rule, peer));
                            assert_eq!(decided.is_none(), matches_nothing, "{rule:?}: {decided:?}");
                        }
                    }
                }
            }
        }
        let half = Rule { protocol: Some("tcp".into()), port_min: Some(22), ..Rule::default() };
        assert_eq!(decided(&half, Peer::Everyone), None);
        let ports = Rule { port_min: Some(22), port_max: Some(22), ..Rule::default() };
        assert_eq!(decided(&ports, Peer::Everyone), None);
    }
}
