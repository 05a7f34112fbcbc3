//! What a rule of the provider lets through, read from the match that OVN goes by.
//!
//! The provider keeps what was asked for beside the match, but loses a part of it: a type or a code of 0, for one.
//! Packets go by the match, so the match counts.

use std::net::IpAddr;

use portcullis_core::{Cidr, Direction, Family, Protocol};
use uuid::Uuid;

use crate::objects::Rule;

/// The rule that a match stands for, in a group whose `Port_Group` has that name. `group_of_set` knows the group whose
/// members' addresses are in an address set.
pub(super) fn read(
    text: &str,
    pipeline: &str,
    group: &str,
    group_of_set: impl Fn(&str) -> Option<Uuid>,
) -> Result<Rule, String> {
    let unknown = |part: &str| format!("its match has `{part}`, which no rule of the API can say");
    let mut parts = text.split(" && ").map(str::trim);
    let mut rule = Rule::default();
    let (direction, ports) = match pipeline {
        "to-lport" => (Direction::Ingress, "outport"),
        _ => (Direction::Egress, "inport"),
    };
    rule.direction = direction;
    let whose = parts.next().unwrap_or_default();
    if whose != format!("{ports} == @{group}") {
        return Err(format!("its match begins with `{whose}`, so it is not about the ports of its group"));
    }
    let (ip, icmp) = match parts.next() {
        Some("ip4") => {
            rule.ethertype = Family::V4;
            ("ip4", "icmp4")
        }
        Some("ip6") => {
            rule.ethertype = Family::V6;
            ("ip6", "icmp6")
        }
        other => return Err(unknown(other.unwrap_or("neither ip4 nor ip6"))),
    };
    let end = if direction == Direction::Ingress { "src" } else { "dst" };
    let remote = format!("{ip}.{end}");
    for part in parts {
        let words: Vec<&str> = part.split(' ').collect();
        match words.as_slice() {
            ["tcp" | "udp" | "sctp"] if rule.protocol.is_none() => rule.protocol = Some(part.to_owned()),
            [name] if *name == icmp && rule.protocol.is_none() => {
                rule.protocol = Some(Protocol::icmp(rule.ethertype).name());
            }
            ["ip.proto", "==", number] if rule.protocol.is_none() => {
                let number: u8 = number.parse().map_err(|_| unknown(part))?;
                rule.protocol = Some(Protocol::new(number).name());
            }
            [field, "==", to] if *field == remote && !has_remote(&rule) => match to.strip_prefix('$') {
                Some(set) => rule.remote_group = Some(group_of_set(set).ok_or_else(|| unknown(part))?),
                None => rule.remote_prefix = Some(prefix(to)?),
            },
            [field, compare, number] => {
                let number: u16 = number.parse().map_err(|_| unknown(part))?;
                let (of, what) = field.split_once('.').unwrap_or_default();
                let same = rule.protocol.as_deref() == Some(of);
                // Of two conditions OVN wants both. A rule would have the last only, and let more through.
                let (min, max) = (rule.port_min.is_none(), rule.port_max.is_none());
                match (what, *compare) {
                    ("dst", "==") if same && min && max => {
                        (rule.port_min, rule.port_max) = (Some(number), Some(number));
                    }
                    ("dst", ">=") if same && min => rule.port_min = Some(number),
                    ("dst", "<=") if same && max => rule.port_max = Some(number),
                    ("type", "==") if of == icmp && min => rule.port_min = Some(number),
                    ("code", "==") if of == icmp && max => rule.port_max = Some(number),
                    _ => return Err(unknown(part)),
                }
            }
            _ => return Err(unknown(part)),
        }
    }
    complete(&mut rule)?;
    Ok(rule)
}

fn has_remote(rule: &Rule) -> bool {
    rule.remote_prefix.is_some() || rule.remote_group.is_some()
}

/// A range that OVN takes. One with bits beyond its prefix is refused by OVN, so that nothing is let through now.
fn prefix(text: &str) -> Result<String, String> {
    let range = text.parse::<IpAddr>().map(Cidr::host).or_else(|_| text.parse::<Cidr>());
    match range {
        Ok(range) if range.addr() == range.network().addr() => Ok(range.to_string()),
        _ => Err(format!("OVN does not understand the range {text}, so that it allows nothing now")),
    }
}

/// The provider takes half a range of ports, and one that ends before it begins.
fn complete(rule: &mut Rule) -> Result<(), String> {
    let has_ports = matches!(rule.protocol.as_deref(), Some("tcp" | "udp" | "sctp"));
    match (rule.port_min, rule.port_max) {
        (Some(min), None) if has_ports => (rule.port_min, rule.port_max) = (Some(min), Some(u16::MAX)),
        // Nobody listens on port 0, and the API has no such port.
        (None, Some(max)) if has_ports => (rule.port_min, rule.port_max) = (Some(1), Some(max)),
        (Some(min), Some(max)) if has_ports && min > max => {
            return Err(format!(
                "its ports end at {max}, before they begin at {min}, so that it allows nothing"
            ));
        }
        (None, Some(_)) => return Err("it names a code of ICMP without a type".to_owned()),
        _ => {}
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule() -> Rule {
        Rule::default()
    }

    fn tcp(min: u16, max: u16) -> Rule {
        Rule { protocol: Some("tcp".into()), port_min: Some(min), port_max: Some(max), ..rule() }
    }

    fn of(pipeline: &str, text: &str) -> Result<Rule, String> {
        let other = |set: &str| (set == "ovirt_b_ip4").then_some(Uuid::from_u128(7));
        read(text, pipeline, "ovirt_a", other)
    }

    #[test]
    fn matches_become_rules() {
        let icmp = |min, max| Rule { protocol: Some("icmp".into()), port_min: min, port_max: max, ..rule() };
        for (text, expected) in [
            ("ip4", rule()),
            ("ip6", Rule { ethertype: Family::V6, ..rule() }),
            ("ip4 && tcp && tcp.dst == 22", tcp(22, 22)),
            ("ip4 && tcp && tcp.dst >= 80 && tcp.dst <= 90", tcp(80, 90)),
            ("ip4 && tcp && tcp.dst >= 80", tcp(80, 65535)),
            ("ip4 && tcp && tcp.dst <= 90", tcp(1, 90)),
            ("ip4 && ip4.src == 10.0.0.0/8", Rule { remote_prefix: Some("10.0.0.0/8".into()), ..rule() }),
            ("ip4 && ip4.src == $ovirt_b_ip4", Rule { remote_group: Some(Uuid::from_u128(7)), ..rule() }),
            ("ip4 && icmp4", icmp(None, None)),
            ("ip4 && icmp4 && icmp4.type == 0 && icmp4.code == 0", icmp(Some(0), Some(0))),
            (
                "ip6 && icmp6 && icmp6.type == 128",
                Rule { ethertype: Family::V6, protocol: Some("ipv6-icmp".into()), ..icmp(Some(128), None) },
            ),
            ("ip4 && ip.proto == 112", Rule { protocol: Some("vrrp".into()), ..rule() }),
        ] {
            assert_eq!(of("to-lport", &format!("outport == @ovirt_a && {text}")), Ok(expected), "{text}");
        }
        let out = of("from-lport", "inport == @ovirt_a && ip4 && ip4.dst == 1.2.3.4").unwrap();
        assert_eq!((out.direction, out.remote_prefix.as_deref()), (Direction::Egress, Some("1.2.3.4/32")));
    }

    #[test]
    fn what_no_rule_can_say_is_refused() {
        for text in [
            "",
            "ip4",
            "outport == @ovirt_b && ip4",
            "inport == @ovirt_a && ip4",
            "outport == @ovirt_a && ip",
            "outport == @ovirt_a && ip4 && (tcp || udp)",
            "outport == @ovirt_a && ip4 && ip4.dst == 10.0.0.0/8",
            "outport == @ovirt_a && ip4 && ip4.src == 10.0.0.5/8",
            "outport == @ovirt_a && ip4 && ip4.src == $nobody",
            "outport == @ovirt_a && ip4 && tcp && udp.dst == 22",
            "outport == @ovirt_a && ip4 && tcp && tcp.src == 22",
            "outport == @ovirt_a && ip4 && tcp && tcp.dst >= 90 && tcp.dst <= 80",
            "outport == @ovirt_a && ip4 && icmp6",
            "outport == @ovirt_a && ip4 && icmp4 && icmp4.code == 1",
            "outport == @ovirt_a && ip4 && ip4.src == 10.1.0.0/16 && ip4.src == 10.0.0.0/8",
            "outport == @ovirt_a && ip4 && ip4.src == 10.0.0.0/8 && ip4.src == $ovirt_b_ip4",
            "outport == @ovirt_a && ip4 && ip4.src == $ovirt_b_ip4 && ip4.src == 10.0.0.0/8",
            "outport == @ovirt_a && ip4 && tcp && tcp.dst == 22 && tcp.dst == 80",
            "outport == @ovirt_a && ip4 && tcp && tcp.dst == 22 && tcp.dst >= 1",
            "outport == @ovirt_a && ip4 && tcp && tcp.dst <= 22 && tcp.dst <= 80",
            "outport == @ovirt_a && ip4 && icmp4 && icmp4.type == 8 && icmp4.type == 0",
            "outport == @ovirt_a && ip4 && icmp4 && icmp4.type == 8 && icmp4.code == 0 && icmp4.code == 1",
        ] {
            assert!(of("to-lport", text).is_err(), "{text}");
        }
    }
}
