use std::fmt;

use serde::{Serialize, Serializer};
use thiserror::Error;

use crate::{Family, PortRange, Protocol};

/// The part of the traffic a rule speaks of: everything, one protocol, some ports of a protocol that has
/// ports, or one ICMP type with any or one code.
///
/// Equal values are equal traffic: all ports of tcp are the same as tcp.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Traffic {
    protocol: Option<Protocol>,
    part: Part,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Part {
    Whole,
    Ports(PortRange),
    IcmpType(u8),
    IcmpCode(u8, u8),
}

/// Ports were given for a protocol that has none.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{} has no ports: only tcp, udp, sctp, dccp and udplite have", .0.phrase())]
pub struct NoPorts(Protocol);

/// The ICMP of one family was given for the other.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{protocol} does not exist in {family}: use {}", Protocol::icmp(*family))]
pub struct IcmpOfOtherFamily {
    protocol: Protocol,
    family: Family,
}

impl Traffic {
    /// All traffic.
    pub const ANY: Self = Self { protocol: None, part: Part::Whole };

    /// All traffic of a protocol.
    pub fn of(protocol: Protocol) -> Self {
        Self { protocol: Some(protocol), part: Part::Whole }
    }

    /// Traffic to some ports of a protocol that has ports.
    pub fn ports(protocol: Protocol, ports: PortRange) -> Result<Self, NoPorts> {
        if !protocol.has_ports() {
            return Err(NoPorts(protocol));
        }
        if ports == PortRange::ALL {
            return Ok(Self::of(protocol));
        }
        Ok(Self { protocol: Some(protocol), part: Part::Ports(ports) })
    }

    /// ICMP messages of one type, of any code or of one. The family decides which ICMP.
    pub fn icmp(family: Family, icmp_type: u8, code: Option<u8>) -> Self {
        let part = match code {
            None => Part::IcmpType(icmp_type),
            Some(code) => Part::IcmpCode(icmp_type, code),
        };
        Self { protocol: Some(Protocol::icmp(family)), part }
    }

    /// The protocol; `None` for all traffic.
    pub fn protocol(&self) -> Option<Protocol> {
        self.protocol
    }

    /// The ports, where it is limited to some.
    pub fn port_range(&self) -> Option<PortRange> {
        match self.part {
            Part::Ports(ports) => Some(ports),
            _ => None,
        }
    }

    /// The ICMP type, where it is limited to one.
    pub fn icmp_type(&self) -> Option<u8> {
        match self.part {
            Part::IcmpType(icmp_type) | Part::IcmpCode(icmp_type, _) => Some(icmp_type),
            _ => None,
        }
    }

    /// The ICMP code, where it is limited to one.
    pub fn icmp_code(&self) -> Option<u8> {
        match self.part {
            Part::IcmpCode(_, code) => Some(code),
            _ => None,
        }
    }

    /// Whether all of `other` is part of this traffic.
    pub fn covers(&self, other: &Self) -> bool {
        let ((first, last), (other_first, other_last)) = (self.span(), other.span());
        first <= other_first && other_last <= last
    }

    /// Whether some traffic is part of both.
    pub fn overlaps(&self, other: &Self) -> bool {
        let ((first, last), (other_first, other_last)) = (self.span(), other.span());
        first <= other_last && other_first <= last
    }

    /// Whether it cannot be split further, as the traffic of one packet: one port, one ICMP type and code, or
    /// a protocol with neither.
    pub fn is_single(&self) -> bool {
        match (self.protocol, self.part) {
            (None, _) | (_, Part::IcmpType(_)) => false,
            (Some(protocol), Part::Whole) => !protocol.has_ports() && protocol.icmp_family().is_none(),
            (_, Part::Ports(ports)) => ports.is_single(),
            (_, Part::IcmpCode(..)) => true,
        }
    }

    /// Refuses the ICMP of one family in packets of the other.
    pub(crate) fn check_family(self, family: Family) -> Result<(), IcmpOfOtherFamily> {
        match self.protocol {
            Some(protocol) if protocol.icmp_family().is_some_and(|icmp| icmp != family) => {
                Err(IcmpOfOtherFamily { protocol, family })
            }
            _ => Ok(()),
        }
    }

    /// The traffic as an interval of numbers. A number is the protocol followed by sixteen bits that select
    /// within it (the port, or the ICMP type and code), so every traffic is one unbroken interval.
    pub(crate) fn span(self) -> (u128, u128) {
        let Some(protocol) = self.protocol else {
            return (0, LAST);
        };
        let (first, last) = match self.part {
            Part::Whole => (0, SELECTORS),
            Part::Ports(ports) => (ports.first().into(), ports.last().into()),
            Part::IcmpType(icmp_type) => (u128::from(icmp_type) << 8, u128::from(icmp_type) << 8 | 0xff),
            Part::IcmpCode(icmp_type, code) => {
                let selector = u128::from(icmp_type) << 8 | u128::from(code);
                (selector, selector)
            }
        };
        let base = u128::from(protocol.number()) << 16;
        (base | first, base | last)
    }
}

/// The largest selector within a protocol.
const SELECTORS: u128 = 0xffff;

/// The last number of a span.
const LAST: u128 = 0xff_ffff;

/// What people call some traffic, and the same in numbers. What is absent is not limited.
#[derive(Debug, Serialize)]
pub(crate) struct Phrase {
    pub(crate) text: String,
    #[serde(flatten)]
    protocols: Protocols,
    #[serde(skip_serializing_if = "Option::is_none")]
    ports: Option<Ends>,
    #[serde(skip_serializing_if = "Option::is_none")]
    icmp_types: Option<Ends>,
    #[serde(skip_serializing_if = "Option::is_none")]
    icmp_codes: Option<Ends>,
}

/// One protocol by its name, or several by their numbers.
#[derive(Debug, Serialize)]
#[serde(rename_all = "lowercase")]
enum Protocols {
    Protocol(Protocol),
    Protocols(Ends),
}

/// Both ends of a range, which belong to it.
#[derive(Clone, Copy, Debug, Serialize)]
struct Ends {
    first: u128,
    last: u128,
}

/// What people call the traffic of an interval of numbers (see [`Traffic::span`]). What is left of a traffic
/// after a part was taken away may take several phrases: `protocols 0-5`, `tcp 0-442`.
pub(crate) fn phrases(first: u128, last: u128) -> Vec<Phrase> {
    let whole = |text, protocols| Phrase { text, protocols, ports: None, icmp_types: None, icmp_codes: None };
    split(first, last, 16)
        .into_iter()
        .flat_map(|piece| match piece {
            Piece::Wholes(ends) if (first, last) == (0, LAST) => {
                vec![whole("any traffic".to_owned(), Protocols::Protocols(ends))]
            }
            Piece::Wholes(ends) if ends.first == ends.last => {
                let protocol = protocol_of(ends.first);
                vec![whole(protocol.phrase(), Protocols::Protocol(protocol))]
            }
            Piece::Wholes(ends) => vec![whole(format!("protocols {ends}"), Protocols::Protocols(ends))],
            Piece::Within(number, ends) => {
                let protocol = protocol_of(number);
                let part = |text| whole(format!("{protocol} {text}"), Protocols::Protocol(protocol));
                if protocol.icmp_family().is_none() {
                    return vec![Phrase { ports: Some(ends), ..part(ends.to_string()) }];
                }
                let icmp = |piece| match piece {
                    Piece::Wholes(types) => Phrase { icmp_types: Some(types), ..part(types.to_string()) },
                    Piece::Within(icmp_type, codes) => Phrase {
                        icmp_types: Some(Ends { first: icmp_type, last: icmp_type }),
                        icmp_codes: Some(codes),
                        ..part(format!("{icmp_type}/{codes}"))
                    },
                };
                split(ends.first, ends.last, 8).into_iter().map(icmp).collect()
            }
        })
        .collect()
}

/// An interval cut where its upper part changes: runs of whole upper values, and what lies within one.
enum Piece {
    Wholes(Ends),
    Within(u128, Ends),
}

fn split(first: u128, last: u128, low_bits: u8) -> Vec<Piece> {
    let low = (1 << low_bits) - 1;
    let mut pieces = Vec::new();
    let mut next = first;
    while next <= last {
        let high = next >> low_bits;
        // One more than the last upper value that is wholly inside.
        let wholes_end = (last + 1) >> low_bits;
        if next & low == 0 && wholes_end > high {
            pieces.push(Piece::Wholes(Ends { first: high, last: wholes_end - 1 }));
            next = wholes_end << low_bits;
        } else {
            let end = last.min(next | low);
            pieces.push(Piece::Within(high, Ends { first: next & low, last: end & low }));
            next = end + 1;
        }
    }
    pieces
}

fn protocol_of(number: u128) -> Protocol {
    Protocol::new(u8::try_from(number).expect("a span's upper part is a protocol number"))
}

impl fmt::Display for Ends {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { first, last } = self;
        if first == last { write!(f, "{first}") } else { write!(f, "{first}-{last}") }
    }
}

impl fmt::Display for Traffic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(protocol) = self.protocol else {
            return f.pad("any");
        };
        f.pad(&match self.part {
            Part::Whole => protocol.phrase(),
            Part::Ports(ports) => format!("{protocol} {ports}"),
            Part::IcmpType(icmp_type) => format!("{protocol} {icmp_type}"),
            Part::IcmpCode(icmp_type, code) => format!("{protocol} {icmp_type}/{code}"),
        })
    }
}

/// Its text, and the same in parts: `{"text": "tcp 443", "protocol": "tcp", "ports": {"first": 443, "last": 443}}`.
impl Serialize for Traffic {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let (first, last) = self.span();
        let phrase = phrases(first, last).pop().expect("a traffic is one phrase");
        Phrase { text: self.to_string(), ..phrase }.serialize(serializer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn tcp(ports: &str) -> Traffic {
        Traffic::ports(Protocol::TCP, ports.parse().unwrap()).unwrap()
    }

    fn icmp(icmp_type: u8, code: Option<u8>) -> Traffic {
        Traffic::icmp(Family::V4, icmp_type, code)
    }

    #[test]
    fn prints_what_it_is() {
        for (traffic, text) in [
            (Traffic::ANY, "any"),
            (Traffic::of(Protocol::TCP), "tcp"),
            (tcp("443"), "tcp 443"),
            (tcp("8000-8010"), "tcp 8000-8010"),
            (tcp("0-65535"), "tcp"),
            (icmp(3, Some(4)), "icmp 3/4"),
            (icmp(8, None), "icmp 8"),
            (Traffic::icmp(Family::V6, 2, Some(0)), "ipv6-icmp 2/0"),
            (Traffic::of(Protocol::new(99)), "protocol 99"),
        ] {
            assert_eq!(traffic.to_string(), text);
            assert_eq!(serde_json::to_value(traffic).unwrap()["text"], text);
        }
    }

    #[test]
    fn writes_its_parts_as_json() {
        let ends = |first: u16, last: u16| json!({"first": first, "last": last});
        for (traffic, parts) in [
            (Traffic::ANY, json!({"text": "any", "protocols": ends(0, 255)})),
            (Traffic::of(Protocol::TCP), json!({"text": "tcp", "protocol": "tcp"})),
            (tcp("80-90"), json!({"text": "tcp 80-90", "protocol": "tcp", "ports": ends(80, 90)})),
            (icmp(8, None), json!({"text": "icmp 8", "protocol": "icmp", "icmp_types": ends(8, 8)})),
            (
                icmp(3, Some(4)),
                json!({
                    "text": "icmp 3/4", "protocol": "icmp",
                    "icmp_types": ends(3, 3), "icmp_codes": ends(4, 4),
                }),
            ),
            (Traffic::of(Protocol::new(7)), json!({"text": "protocol 7", "protocol": "7"})),
        ] {
            assert_eq!(serde_json::to_value(traffic).unwrap(), parts);
            assert_eq!(phrases(traffic.span().0, traffic.span().1).len(), 1, "{traffic}");
        }
    }

    #[test]
    fn ports_belong_to_protocols_that_have_them() {
        for (number, name) in [(112, "vrrp"), (7, "protocol 7")] {
            let error = Traffic::ports(Protocol::new(number), PortRange::ALL).unwrap_err();
            assert_eq!(
                error.to_string(),
                format!("{name} has no ports: only tcp, udp, sctp, dccp and udplite have")
            );
        }
    }

    #[test]
    fn covers_and_overlaps() {
        let udp = Traffic::of(Protocol::UDP);
        for (one, other, covers, overlaps) in [
            (Traffic::ANY, tcp("443"), true, true),
            (Traffic::ANY, Traffic::ANY, true, true),
            (Traffic::of(Protocol::TCP), tcp("0-65535"), true, true),
            (tcp("1-65535"), Traffic::of(Protocol::TCP), false, true),
            (tcp("80-90"), tcp("85"), true, true),
            (tcp("80-90"), tcp("85-95"), false, true),
            (tcp("80-90"), tcp("91"), false, false),
            (tcp("53"), Traffic::ports(Protocol::UDP, PortRange::single(53)).unwrap(), false, false),
            (Traffic::of(Protocol::TCP), udp, false, false),
            (icmp(3, None), icmp(3, Some(4)), true, true),
            (icmp(3, Some(0)), icmp(3, None), false, true),
            (icmp(3, None), icmp(4, Some(0)), false, false),
            (Traffic::of(Protocol::ICMP), icmp(255, Some(255)), true, true),
            (Traffic::of(Protocol::ICMPV6), icmp(3, None), false, false),
        ] {
            assert_eq!(one.covers(&other), covers, "{one} covers {other}");
            assert_eq!(one.overlaps(&other), overlaps, "{one} overlaps {other}");
            assert_eq!(other.overlaps(&one), overlaps, "{other} overlaps {one}");
        }
    }

    #[test]
    fn single_is_what_one_packet_carries() {
        for (traffic, single) in [
            (Traffic::ANY, false),
            (Traffic::of(Protocol::TCP), false),
            (tcp("80-81"), false),
            (tcp("80"), true),
            (icmp(3, None), false),
            (icmp(3, Some(4)), true),
            (Traffic::of(Protocol::ICMP), false),
            (Traffic::of(Protocol::new(47)), true),
        ] {
            assert_eq!(traffic.is_single(), single, "{traffic}");
        }
    }

    #[test]
    fn names_what_is_left_of_a_traffic() {
        let after = |traffic: Traffic| traffic.span().1 + 1;
        for (first, last, expected) in [
            (0, LAST, &["any traffic"][..]),
            (0, tcp("443").span().0 - 1, &["protocols 0-5", "tcp 0-442"]),
            (after(tcp("443")), LAST, &["tcp 444-65535", "protocols 7-255"]),
            (after(icmp(3, Some(4))), Traffic::of(Protocol::ICMP).span().1, &["icmp 3/5-255", "icmp 4-255"]),
            (icmp(3, None).span().0, icmp(4, Some(0)).span().0, &["icmp 3", "icmp 4/0"]),
            (tcp("80").span().0, tcp("80").span().1, &["tcp 80"]),
            (7 << 16, (9 << 16) - 1, &["protocols 7-8"]),
            (7 << 16, (8 << 16) - 1, &["protocol 7"]),
            (Traffic::of(Protocol::TCP).span().0, Traffic::of(Protocol::TCP).span().1, &["tcp"]),
        ] {
            let texts: Vec<String> = phrases(first, last).into_iter().map(|phrase| phrase.text).collect();
            assert_eq!(texts, expected);
        }
    }
}
