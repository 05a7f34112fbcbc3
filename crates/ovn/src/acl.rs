//! Rules as OVN's ACLs.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use portcullis_core::{Direction, Family, Protocol};
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
    if let Some(prefix) = &rule.remote_prefix {
        // OVN refuses bits beyond the prefix, and everything needs no match.
        let range = prefix.parse::<portcullis_core::Cidr>();
        match range {
            Ok(range) if range.is_everything() => {}
            Ok(range) => parts.push(format!("{ip}.{end} == {}", range.network())),
            // Never more than asked: what cannot be read matches nothing.
            Err(_) => parts.push("0".to_owned()),
        }
    }
    if let Some(group) = rule.remote_group {
        parts.push(format!("{ip}.{end} == ${}{}", group_name(group), suffix(rule.ethertype)));
    }
    if let Some(group) = rule.remote_address_group {
        parts.push(format!("{ip}.{end} == ${}", address_group_name(group, rule.ethertype)));
    }
    let has_ports = rule.port_min.is_some() || rule.port_max.is_some();
    match rule.protocol.as_deref().map(str::parse::<Protocol>) {
        Some(Ok(protocol)) => parts.extend(of_protocol(rule, protocol)),
        None if !has_ports => {}
        None | Some(Err(_)) => parts.push("0".to_owned()),
    }
    parts.join(" && ")
}

fn of_protocol(rule: &Rule, protocol: Protocol) -> Vec<String> {
    let name = match protocol {
        Protocol::TCP => "tcp",
        Protocol::UDP => "udp",
        Protocol::SCTP => "sctp",
        Protocol::ICMP | Protocol::ICMPV6 => {
            // The number of the other family's ICMP means the family's own.
            let name = if rule.ethertype == Family::V4 { "icmp4" } else { "icmp6" };
            let part = |field, value: Option<u16>| value.map(|value| format!("{name}.{field} == {value}"));
            let parts = [Some(name.to_owned()), part("type", rule.port_min), part("code", rule.port_max)];
            return parts.into_iter().flatten().collect();
        }
        // OVN sees no ports in other protocols: a rule with ports there matches nothing rather than too much.
        other if rule.port_min.is_some() || rule.port_max.is_some() => {
            return vec![format!("ip.proto == {}", other.number()), "0".to_owned()];
        }
        other => return vec![format!("ip.proto == {}", other.number())],
    };
    let mut parts = vec![name.to_owned()];
    match (rule.port_min, rule.port_max) {
        (Some(min), Some(max)) if min == max => parts.push(format!("{name}.dst == {min}")),
        (Some(1), Some(u16::MAX)) => {}
        (Some(min), Some(max)) => parts.push(format!("{name}.dst >= {min} && {name}.dst <= {max}")),
        (None, None) => {}
        // Half a range.
        _ => parts.push("0".to_owned()),
    }
    parts
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
            Rule { remote_prefix: Some("nonsense".into()), ..rule() },
            Rule { protocol: Some("nonsense".into()), ..rule() },
            Rule { protocol: Some("udplite".into()), port_min: Some(1), port_max: Some(2), ..rule() },
            Rule { protocol: Some("udplite".into()), port_max: Some(2), ..rule() },
            Rule { protocol: Some("tcp".into()), port_min: Some(22), ..rule() },
            Rule { protocol: Some("tcp".into()), port_max: Some(22), ..rule() },
            Rule { port_min: Some(22), port_max: Some(22), ..rule() },
        ] {
            assert!(matches(&rule).ends_with("&& 0"), "{rule:?}");
        }
    }
}
