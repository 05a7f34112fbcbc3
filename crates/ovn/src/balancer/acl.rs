//! Who is dropped on the way to a load balancer.

use std::collections::BTreeSet;
use std::net::IpAddr;

use portcullis_core::Family;

/// Above all that the Networking API writes ([`crate::acl::ALLOW`] is 1002), and what Neutron does: what a security group
/// allows a port to send does not let it in here. In OVN the larger number wins.
pub(super) const PRIORITY: i64 = 1100;

/// Packets to these addresses and ports, from everybody but those of a set.
///
/// They are dropped where they come into a switch, before they are sent on to a member: from then on their destination is
/// another one. Of TCP it is only the first packet of a connection, so that who is in stays when ranges change.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Drops {
    pub(super) family: Family,
    pub(super) protocol: String,
    pub(super) vips: BTreeSet<IpAddr>,
    pub(super) ports: BTreeSet<u16>,
    /// Who is not dropped. A set without anybody is none at all: OVN takes it for no condition.
    pub(super) but: Option<String>,
}

/// A first packet of TCP: SYN, and no ACK.
const FIRST: &str = "tcp.flags == 0x2/0x12";

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
            parts.push(FIRST.to_owned());
        }
        parts.extend(self.but.iter().map(|set| format!("{ip}.src != ${set}")));
        parts.join(" && ")
    }

    /// Reads what was written; nothing for what somebody else wrote, which drops nobody as far as is known.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let mut drops = Drops {
            family: Family::V4,
            protocol: String::new(),
            vips: BTreeSet::new(),
            ports: BTreeSet::new(),
            but: None,
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
            } else if let Some((_, set)) = part.split_once(".src != $") {
                drops.but = Some(set.to_owned());
            }
        }
        (drops.text() == text).then_some(drops)
    }
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
        let drops = |family, protocol: &str, vips: &[&str], but: Option<&str>| Drops {
            family,
            protocol: protocol.to_owned(),
            vips: vips.iter().map(|vip| vip.parse().unwrap()).collect(),
            ports: [443, 80].into(),
            but: but.map(str::to_owned),
        };
        for (drops, text) in [
            (
                drops(Family::V4, "tcp", &["192.0.2.1"], Some("a")),
                "ip4.dst == 192.0.2.1 && tcp.dst == {80, 443} && tcp.flags == 0x2/0x12 && ip4.src != $a",
            ),
            (
                drops(Family::V6, "udp", &["2001:db8::2", "2001:db8::1"], None),
                "ip6.dst == {2001:db8::1, 2001:db8::2} && udp.dst == {80, 443}",
            ),
        ] {
            assert_eq!(drops.text(), text);
            assert_eq!(Drops::parse(text), Some(drops));
        }
        for other in ["", "ip4", "outport == @sg", "ip4.dst == 192.0.2.1 && tcp.dst == 80"] {
            assert_eq!(Drops::parse(other), None, "{other}");
        }
    }
}
