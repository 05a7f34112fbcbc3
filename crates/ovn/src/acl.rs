//! Rules as OVN's ACLs.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use portcullis_core::{Cidr, Direction, Family, PortRange, Protocol, Traffic};
use uuid::Uuid;

use crate::objects::Rule;

/// Of what a rule allows.
pub const ALLOW: i64 = 1002;
/// Of what nothing allows. In OVN the larger number wins.
pub const DROP: i64 = 1000;

/// As whom a filtered port may speak that has no address where there are some to be had: these never leave a machine.
pub const NOBODY: [IpAddr; 2] = [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)];

/// The name of a group's `Port_Group`. A dash would be taken for a minus by ovn-controller.
pub fn group_name(id: Uuid) -> String {
    format!("sg_{}", underscored(id))
}

/// The name of the `Port_Group` of a network's filtered ports.
pub fn deny_name(network: Uuid) -> String {
    format!("deny_{}", underscored(network))
}

/// The name of an address group's `Address_Set` for a family. It ends as those that northd makes of port groups.
pub fn address_group_name(id: Uuid, family: Family) -> String {
    format!("ag_{}{}", underscored(id), suffix(family))
}

fn underscored(id: Uuid) -> String {
    id.hyphenated().to_string().replace('-', "_")
}

fn suffix(family: Family) -> &'static str {
    match family {
        Family::V4 => "_ip4",
        Family::V6 => "_ip6",
    }
}

/// In which pipeline an ACL for a direction is. What goes to a port is seen on the way out of the switch.
pub fn pipeline(direction: Direction) -> &'static str {
    match direction {
        Direction::Ingress => "to-lport",
        Direction::Egress => "from-lport",
    }
}

/// What is about the ports of a group, in a direction.
pub fn of_ports(direction: Direction, group: &str) -> String {
    match direction {
        Direction::Ingress => format!("outport == @{group}"),
        Direction::Egress => format!("inport == @{group}"),
    }
}

/// The packets that a rule is about.
pub fn matches(rule: &Rule) -> String {
    let ip = match rule.ethertype {
        Family::V4 => "ip4",
        Family::V6 => "ip6",
    };
    let end = match rule.direction {
        Direction::Ingress => "src",
        Direction::Egress => "dst",
    };
    let mut parts = vec![of_ports(rule.direction, &group_name(rule.group)), ip.to_owned()];
    // Never more than asked: what cannot be read matches nothing.
    let nothing = || vec!["0".to_owned()];
    parts.extend(remote(rule).map_or_else(nothing, |remote| {
        let set = match remote {
            Remote::Everyone => return Vec::new(),
            // OVN refuses bits beyond the prefix.
            Remote::Range(range) => range.network().to_string(),
            Remote::Group(group) => format!("${}{}", group_name(group), suffix(rule.ethertype)),
            Remote::AddressGroup(group) => format!("${}", address_group_name(group, rule.ethertype)),
        };
        vec![format!("{ip}.{end} == {set}")]
    }));
    parts.extend(traffic(rule).map_or_else(nothing, |traffic| of_traffic(rule.ethertype, traffic)));
    parts.join(" && ")
}

/// Who is at the other end of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remote {
    /// Anybody.
    Everyone,
    /// Some addresses, of the rule's family.
    Range(Cidr),
    /// The ports of a security group.
    Group(Uuid),
    /// The addresses of an address group.
    AddressGroup(Uuid),
}

/// The other end of a rule; nothing if it cannot be read, or is said in two ways. Whoever asks what a rule lets through
/// asks here, and in [`traffic`], as the ACL does.
pub fn remote(rule: &Rule) -> Option<Remote> {
    match (&rule.remote_prefix, rule.remote_group, rule.remote_address_group) {
        (None, None, None) => Some(Remote::Everyone),
        (Some(prefix), None, None) => {
            let range: Cidr = prefix.parse().ok()?;
            let remote = if range.is_everything() { Remote::Everyone } else { Remote::Range(range) };
            (range.family() == rule.ethertype).then_some(remote)
        }
        (None, Some(group), None) => Some(Remote::Group(group)),
        (None, None, Some(group)) => Some(Remote::AddressGroup(group)),
        _ => None,
    }
}

/// The traffic that a rule is about; nothing if it cannot be read, or if OVN cannot see it. Half of a range is nothing,
/// and so are ports of no protocol and a code of no type.
pub fn traffic(rule: &Rule) -> Option<Traffic> {
    let Some(text) = &rule.protocol else {
        let has_ports = rule.port_min.is_some() || rule.port_max.is_some();
        return (!has_ports).then_some(Traffic::ANY);
    };
    let protocol: Protocol = text.parse().ok()?;
    let byte = |value: u16| u8::try_from(value).ok();
    if protocol.icmp_family().is_some() {
        // The number of the other family's ICMP means the family's own.
        return match (rule.port_min, rule.port_max) {
            (None, None) => Some(Traffic::of(Protocol::icmp(rule.ethertype))),
            (None, Some(_)) => None,
            (Some(kind), None) => Some(Traffic::icmp(rule.ethertype, byte(kind)?, None)),
            (Some(kind), Some(code)) => Some(Traffic::icmp(rule.ethertype, byte(kind)?, Some(byte(code)?))),
        };
    }
    match (rule.port_min, rule.port_max) {
        (None, None) => Some(Traffic::of(protocol)),
        // OVN sees no ports in other protocols.
        (Some(min), Some(max)) if name_of(protocol).is_some() => {
            let is_all = (min, max) == (1, u16::MAX);
            let ports = PortRange::new(min, max).ok()?;
            if is_all { Some(Traffic::of(protocol)) } else { Traffic::ports(protocol, ports).ok() }
        }
        _ => None,
    }
}

/// What OVN calls a protocol in which it sees ports.
fn name_of(protocol: Protocol) -> Option<&'static str> {
    match protocol {
        Protocol::TCP => Some("tcp"),
        Protocol::UDP => Some("udp"),
        Protocol::SCTP => Some("sctp"),
        _ => None,
    }
}

fn of_traffic(family: Family, traffic: Traffic) -> Vec<String> {
    let Some(protocol) = traffic.protocol() else { return Vec::new() };
    if protocol.icmp_family().is_some() {
        let name = if family == Family::V4 { "icmp4" } else { "icmp6" };
        let part = |field, value: Option<u8>| value.map(|value| format!("{name}.{field} == {value}"));
        let (kind, code) = (part("type", traffic.icmp_type()), part("code", traffic.icmp_code()));
        return [Some(name.to_owned()), kind, code].into_iter().flatten().collect();
    }
    let Some(name) = name_of(protocol) else { return vec![format!("ip.proto == {}", protocol.number())] };
    let ports = traffic.port_range().map(|ports| match (ports.first(), ports.last()) {
        (first, last) if first == last => format!("{name}.dst == {first}"),
        (first, last) => format!("{name}.dst >= {first} && {name}.dst <= {last}"),
    });
    std::iter::once(name.to_owned()).chain(ports).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule() -> Rule {
        Rule { group: Uuid::from_u128(1), ..Rule::default() }
    }

    #[test]
    fn rules_become_matches() {
        let group = "@sg_00000000_0000_0000_0000_000000000001";
        let other = Some(Uuid::from_u128(2));
        for (rule, expected) in [
            (rule(), "outport == G && ip4"),
            (Rule { direction: Direction::Egress, ethertype: Family::V6, ..rule() }, "inport == G && ip6"),
            (
                Rule { protocol: Some("tcp".into()), port_min: Some(22), port_max: Some(22), ..rule() },
                "outport == G && ip4 && tcp && tcp.dst == 22",
            ),
            (
                Rule { protocol: Some("17".into()), port_min: Some(1), port_max: Some(9), ..rule() },
                "outport == G && ip4 && udp && udp.dst >= 1 && udp.dst <= 9",
            ),
            (
                Rule { protocol: Some("icmp".into()), port_min: Some(0), port_max: Some(0), ..rule() },
                "outport == G && ip4 && icmp4 && icmp4.type == 0 && icmp4.code == 0",
            ),
            (
                Rule {
                    protocol: Some("ipv6-icmp".into()),
                    ethertype: Family::V6,
                    port_min: Some(128),
                    ..rule()
                },
                "outport == G && ip6 && icmp6 && icmp6.type == 128",
            ),
            (Rule { protocol: Some("vrrp".into()), ..rule() }, "outport == G && ip4 && ip.proto == 112"),
            (
                Rule { remote_prefix: Some("10.0.0.5/8".into()), ..rule() },
                "outport == G && ip4 && ip4.src == 10.0.0.0/8",
            ),
            (Rule { remote_prefix: Some("0.0.0.0/0".into()), ..rule() }, "outport == G && ip4"),
            (
                Rule { direction: Direction::Egress, remote_group: other, ..rule() },
                "inport == G && ip4 && ip4.dst == $sg_00000000_0000_0000_0000_000000000002_ip4",
            ),
            (
                Rule { ethertype: Family::V6, remote_address_group: other, ..rule() },
                "outport == G && ip6 && ip6.src == $ag_00000000_0000_0000_0000_000000000002_ip6",
            ),
        ] {
            assert_eq!(matches(&rule), expected.replace('G', group), "{rule:?}");
        }
    }

    #[test]
    fn what_ovn_cannot_match_matches_nothing() {
        for rule in [
            Rule { protocol: Some("nonsense".into()), ..rule() },
            Rule { protocol: Some("udplite".into()), port_min: Some(1), port_max: Some(2), ..rule() },
            Rule { protocol: Some("udplite".into()), port_max: Some(2), ..rule() },
            Rule { protocol: Some("tcp".into()), port_min: Some(22), ..rule() },
            Rule { protocol: Some("tcp".into()), port_max: Some(22), ..rule() },
            Rule { protocol: Some("tcp".into()), port_min: Some(90), port_max: Some(80), ..rule() },
            Rule { port_min: Some(22), port_max: Some(22), ..rule() },
            Rule { port_min: Some(22), ..rule() },
            Rule { port_max: Some(22), ..rule() },
            Rule { protocol: Some("icmp".into()), port_max: Some(0), ..rule() },
            Rule { protocol: Some("icmp".into()), port_min: Some(256), ..rule() },
            Rule { protocol: Some("icmp".into()), port_min: Some(3), port_max: Some(256), ..rule() },
        ] {
            assert_eq!(traffic(&rule), None, "{rule:?}");
            assert!(matches(&rule).ends_with("&& 0"), "{rule:?}");
        }
        let group = Some(Uuid::from_u128(2));
        for rule in [
            Rule { remote_prefix: Some("nonsense".into()), ..rule() },
            Rule { remote_prefix: Some("fd00::/8".into()), ..rule() },
            Rule { remote_prefix: Some("::/0".into()), ..rule() },
            Rule { remote_prefix: Some("10.0.0.0/8".into()), remote_group: group, ..rule() },
            Rule { remote_group: group, remote_address_group: group, ..rule() },
        ] {
            assert_eq!(remote(&rule), None, "{rule:?}");
            assert!(matches(&rule).ends_with("&& 0"), "{rule:?}");
        }
    }
}
