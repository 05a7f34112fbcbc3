//! Who is dropped on the way to a load balancer.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use portcullis_core::{Cidr, Family};

/// Above all that the Networking API writes ([`crate::acl::ALLOW`] is 1002), and what Neutron does: what a security group
/// allows a port to send does not let it in here. In OVN the larger number wins.
pub(super) const PRIORITY: i64 = 1100;

/// Packets to these addresses and ports, from those of a set, or from everybody.
///
/// The set has who is kept out, not who may come in: of "not one of these" ovn-controller makes so many flows that a hundred
/// ranges stop it, of "one of these" a flow for each.
///
/// They are dropped where they come into a switch, before they are sent on to a member: from then on their destination is
/// another one. Who is in stays when ranges change, so of TCP it is not every packet:
///
/// - In front of a router every packet of a connection has the address that is asked here. The first is dropped: without it
///   there is no connection.
/// - On a switch that has the load balancer itself, packets of connections that it knows have the address of their member
///   when they come here. It would take any packet for the first of one, also one that says it is in the middle: the true
///   first packet after it would belong to a connection that is known. So all that is new to the switch is dropped. Not all
///   that has the address: of what comes from a router it keeps no connections.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Drops {
    pub(super) family: Family,
    pub(super) protocol: String,
    pub(super) vips: BTreeSet<IpAddr>,
    pub(super) ports: BTreeSet<u16>,
    /// Who is dropped, if not everybody.
    pub(super) from: Option<String>,
    /// Whether the switch knows connections to these addresses.
    pub(super) knows: bool,
}

/// A first packet of TCP: SYN, and no ACK.
const FIRST: &str = "tcp.flags == 0x2/0x12";

/// A packet of TCP that is not of a connection which the switch knows.
const UNKNOWN: &str = "(tcp.flags == 0x2/0x12 || ct.new)";

impl Drops {
    /// As OVN has it.
    pub(super) fn text(&self) -> String {
        let ip = match self.family {
            Family::V4 => "ip4",
            Family::V6 => "ip6",
        };
        let mut parts = vec![
            format!("{ip}.dst == {}", braced(&self.vips)),
            format!("{}.dst == {}", self.protocol, braced(&self.ports)),
        ];
        if self.protocol == "tcp" {
            parts.push(if self.knows { UNKNOWN } else { FIRST }.to_owned());
        }
        parts.extend(self.from.iter().map(|set| format!("{ip}.src == ${set}")));
        parts.join(" && ")
    }

    /// Reads what was written; nothing for what somebody else wrote, which drops nobody as far as is known.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let mut drops = Drops {
            family: Family::V4,
            protocol: String::new(),
            vips: BTreeSet::new(),
            ports: BTreeSet::new(),
            from: None,
            knows: text.contains(UNKNOWN),
        };
        for part in text.split(" && ") {
            if let Some((field, values)) = part.split_once(".dst == ") {
                let values = values.trim_matches(['{', '}']).split(", ");
                match field {
                    "ip4" | "ip6" => {
                        drops.family = if field == "ip4" { Family::V4 } else { Family::V6 };
                        drops.vips = values.map(|value| value.parse().ok()).collect::<Option<_>>()?;
                    }
                    protocol => {
                        protocol.clone_into(&mut drops.protocol);
                        drops.ports = values.map(|value| value.parse().ok()).collect::<Option<_>>()?;
                    }
                }
            } else if let Some((_, set)) = part.split_once(".src == $") {
                drops.from = Some(set.to_owned());
            }
        }
        (drops.text() == text).then_some(drops)
    }
}

/// Whether an ACL of somebody else may be about packets to these addresses and ports, by protocol. It is not, if one of its
/// parts says so that is understood; of what is not understood it may be.
pub(super) fn may_match(
    text: &str,
    vips: &BTreeSet<IpAddr>,
    ports: &BTreeMap<&'static str, BTreeSet<u16>>,
) -> bool {
    if text.contains("||") || text.contains('!') {
        return true;
    }
    let has = |family: Family| vips.iter().any(|vip| Family::of(*vip) == family);
    text.split("&&").map(|part| part.trim().trim_matches(['(', ')'])).all(|part| {
        let Some((field, values)) = part.split_once("==") else {
            return match part {
                "ip4" => has(Family::V4),
                "ip6" => has(Family::V6),
                "tcp" | "udp" => ports.contains_key(part),
                "0" | "arp" | "nd" | "nd_ns" | "nd_na" | "nd_rs" | "nd_ra" | "icmp" | "icmp4" | "icmp6"
                | "sctp" | "igmp" => false,
                _ => true,
            };
        };
        let values: Vec<&str> = values.trim().trim_matches(['{', '}']).split(',').map(str::trim).collect();
        let any =
            |wanted: &dyn Fn(&str) -> Option<bool>| values.iter().any(|value| wanted(value).unwrap_or(true));
        let is_port = |protocol: &str, value: &str| {
            let port: u16 = value.parse().ok()?;
            Some(ports.get(protocol).is_some_and(|ports| ports.contains(&port)))
        };
        match field.trim() {
            "ip4.dst" | "ip6.dst" => any(&|value| {
                let address = value.parse::<IpAddr>().ok().map(Cidr::host);
                let range = address.or_else(|| value.parse().ok())?;
                Some(vips.iter().any(|vip| range.contains(*vip)))
            }),
            "tcp.dst" => any(&|value| is_port("tcp", value)),
            "udp.dst" => any(&|value| is_port("udp", value)),
            _ => true,
        }
    })
}

/// Packets to these addresses that are for none of their ports.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Strays {
    pub(super) family: Family,
    pub(super) vips: BTreeSet<IpAddr>,
    /// The ports, by protocol.
    pub(super) ports: BTreeMap<&'static str, BTreeSet<u16>>,
}

impl Strays {
    /// As OVN has it.
    pub(super) fn text(&self) -> String {
        let ip = match self.family {
            Family::V4 => "ip4",
            Family::V6 => "ip6",
        };
        let open = |number: u8| match number {
            6 => self.ports.contains_key("tcp"),
            17 => self.ports.contains_key("udp"),
            _ => false,
        };
        // OVN can ask which protocol it is, and not which it is not.
        let others: BTreeSet<u8> = (0..=u8::MAX).filter(|number| !open(*number)).collect();
        let mut ways: Vec<String> = vec![format!("ip.proto == {}", braced(&others))];
        for (protocol, ports) in &self.ports {
            ways.extend(
                gaps(ports)
                    .into_iter()
                    .map(|(first, last)| format!("({protocol}.dst >= {first} && {protocol}.dst <= {last})")),
            );
        }
        format!("{ip}.dst == {} && ({})", braced(&self.vips), ways.join(" || "))
    }
}

/// The ports between ports. Not 0, which OVN takes for the port of all but the first part of a packet that came in parts.
fn gaps(ports: &BTreeSet<u16>) -> Vec<(u16, u16)> {
    let (mut gaps, mut next) = (Vec::new(), 1);
    for port in ports {
        if next < *port {
            gaps.push((next, *port - 1));
        }
        match port.checked_add(1) {
            Some(after) => next = after,
            None => return gaps,
        }
    }
    gaps.push((next, u16::MAX));
    gaps
}

fn braced<T: ToString>(values: &BTreeSet<T>) -> String {
    let values: Vec<String> = values.iter().map(ToString::to_string).collect();
    match values.as_slice() {
        [only] => only.clone(),
        _ => format!("{{{}}}", values.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_reads_back() {
        let drops = |family, protocol: &str, vips: &[&str], from: Option<&str>| Drops {
            knows: from == Some("b"),
            family,
            protocol: protocol.to_owned(),
            vips: vips.iter().map(|vip| vip.parse().unwrap()).collect(),
            ports: [443, 80].into(),
            from: from.map(str::to_owned),
        };
        for (drops, text) in [
            (
                drops(Family::V4, "tcp", &["192.0.2.1"], Some("a")),
                "ip4.dst == 192.0.2.1 && tcp.dst == {80, 443} && tcp.flags == 0x2/0x12 && ip4.src == $a",
            ),
            (
                drops(Family::V4, "tcp", &["192.0.2.1"], Some("b")),
                "ip4.dst == 192.0.2.1 && tcp.dst == {80, 443} && (tcp.flags == 0x2/0x12 || ct.new) && ip4.src == $b",
            ),
            (
                drops(Family::V6, "udp", &["2001:db8::2", "2001:db8::1"], None),
                "ip6.dst == {2001:db8::1, 2001:db8::2} && udp.dst == {80, 443}",
            ),
        ] {
            assert_eq!(drops.text(), text);
            assert_eq!(Drops::parse(text), Some(drops));
        }
        let strays = Strays {
            family: Family::V4,
            vips: ["192.0.2.1".parse().unwrap()].into(),
            ports: BTreeMap::from([("tcp", [1, 2, 443].into()), ("udp", [u16::MAX].into())]),
        };
        let text = strays.text();
        assert!(text.starts_with("ip4.dst == 192.0.2.1 && (ip.proto == {0, 1, 2, 3, 4, 5, 7, "), "{text}");
        assert!(text.contains(" 16, 18, ") && text.contains(" 255} || "), "{text}");
        assert!(
            text.ends_with(
                "|| (tcp.dst >= 3 && tcp.dst <= 442) || (tcp.dst >= 444 && tcp.dst <= 65535) \
                 || (udp.dst >= 1 && udp.dst <= 65534))"
            ),
            "{text}"
        );
        for other in ["", "ip4", "outport == @sg", "ip4.dst == 192.0.2.1 && tcp.dst == 80"] {
            assert_eq!(Drops::parse(other), None, "{other}");
        }
    }

    #[test]
    fn what_is_surely_about_something_else_is_known() {
        let vips: BTreeSet<IpAddr> = ["192.0.2.1".parse().unwrap()].into();
        let ports = BTreeMap::from([("tcp", [443].into())]);
        for (text, may) in [
            ("1", true),
            ("ip4", true),
            ("ip6", false),
            ("arp", false),
            ("inport == @group", true),
            ("inport == @group && ip4 && udp", false),
            ("inport == @group && tcp.dst == 443", true),
            ("inport == @group && tcp.dst == {80, 22}", false),
            ("inport == @group && tcp.dst == {80, 443}", true),
            ("udp.dst == 53", false),
            ("ip4.dst == 192.0.2.0/24", true),
            ("ip4.dst == 192.0.2.1 && ip4.src == 10.0.0.0/8", true),
            ("ip4.dst == 192.0.2.2", false),
            ("ip4.dst == {198.51.100.0/24, 203.0.113.1}", false),
            ("ip4.dst == $somewhere", true),
            ("(udp) || tcp", true),
            ("ip4.dst != 192.0.2.1", true),
            ("tcp.dst >= 1000 && tcp.dst <= 2000", true),
        ] {
            assert_eq!(may_match(text, &vips, &ports), may, "{text}");
        }
    }
}
