use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::Family;
use crate::text::{plain_number, quoted};

/// An IP protocol, by its number. Two names of one protocol are one protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Protocol(u8);

/// The text names no protocol.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{} is not a protocol: give a name such as tcp, udp or icmp, or a number from 0 to 255", quoted(.0))]
pub struct ProtocolError(String);

/// Names and numbers. Where a number has two names the first one is printed.
const NAMES: [(&str, u8); 23] = [
    ("icmp", 1),
    ("igmp", 2),
    ("ipip", 4),
    ("tcp", 6),
    ("egp", 8),
    ("udp", 17),
    ("dccp", 33),
    ("ipv6-encap", 41),
    ("ipv6-route", 43),
    ("ipv6-frag", 44),
    ("rsvp", 46),
    ("gre", 47),
    ("esp", 50),
    ("ah", 51),
    ("ipv6-icmp", 58),
    ("icmpv6", 58),
    ("ipv6-nonxt", 59),
    ("ipv6-opts", 60),
    ("ospf", 89),
    ("vrrp", 112),
    ("pgm", 113),
    ("sctp", 132),
    ("udplite", 136),
];

impl Protocol {
    /// ICMP for IPv4.
    pub const ICMP: Self = Self(1);
    /// TCP.
    pub const TCP: Self = Self(6);
    /// UDP.
    pub const UDP: Self = Self(17);
    /// DCCP.
    pub const DCCP: Self = Self(33);
    /// ICMP for IPv6.
    pub const ICMPV6: Self = Self(58);
    /// SCTP.
    pub const SCTP: Self = Self(132);
    /// UDP-Lite.
    pub const UDPLITE: Self = Self(136);

    /// The protocol of a number.
    pub fn new(number: u8) -> Self {
        Self(number)
    }

    /// The ICMP of a family.
    pub fn icmp(family: Family) -> Self {
        match family {
            Family::V4 => Self::ICMP,
            Family::V6 => Self::ICMPV6,
        }
    }

    /// Its number.
    pub fn number(self) -> u8 {
        self.0
    }

    /// Its name; the number where it has none here.
    pub fn name(self) -> String {
        self.known_name().map_or_else(|| self.0.to_string(), str::to_owned)
    }

    /// What it is called in a phrase, where a number alone could be anything: `tcp`, `protocol 7`.
    pub(crate) fn phrase(self) -> String {
        self.known_name().map_or_else(|| format!("protocol {}", self.0), str::to_owned)
    }

    fn known_name(self) -> Option<&'static str> {
        NAMES.iter().find(|(_, number)| *number == self.0).map(|(name, _)| *name)
    }

    /// Whether its packets carry ports.
    pub fn has_ports(self) -> bool {
        [Self::TCP, Self::UDP, Self::SCTP, Self::DCCP, Self::UDPLITE].contains(&self)
    }

    /// The family whose ICMP this is; `None` for any other protocol.
    pub fn icmp_family(self) -> Option<Family> {
        Family::ALL.into_iter().find(|family| Self::icmp(*family) == self)
    }
}

impl FromStr for Protocol {
    type Err = ProtocolError;

    fn from_str(text: &str) -> Result<Self, ProtocolError> {
        let named = NAMES.iter().find(|(name, _)| name.eq_ignore_ascii_case(text)).map(|(_, number)| *number);
        named
            .or_else(|| plain_number(text).and_then(|number| u8::try_from(number).ok()))
            .map(Self)
            .ok_or_else(|| ProtocolError(text.to_owned()))
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.name())
    }
}

impl TryFrom<String> for Protocol {
    type Error = ProtocolError;

    fn try_from(text: String) -> Result<Self, ProtocolError> {
        text.parse()
    }
}

impl From<Protocol> for String {
    fn from(protocol: Protocol) -> Self {
        protocol.name()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_names_in_any_case_and_numbers() {
        for (text, number, name) in [
            ("tcp", 6, "tcp"),
            ("TCP", 6, "tcp"),
            ("6", 6, "tcp"),
            ("icmpv6", 58, "ipv6-icmp"),
            ("IPv6-ICMP", 58, "ipv6-icmp"),
            ("58", 58, "ipv6-icmp"),
            ("vrrp", 112, "vrrp"),
            ("0", 0, "0"),
            ("255", 255, "255"),
        ] {
            let protocol: Protocol = text.parse().unwrap();
            assert_eq!((protocol.number(), protocol.to_string().as_str()), (number, name), "{text}");
        }
    }

    #[test]
    fn every_printed_name_reads_back() {
        for number in 0..=255 {
            let protocol = Protocol::new(number);
            assert_eq!(protocol.name().parse(), Ok(protocol));
        }
        for (name, number) in NAMES {
            assert_eq!(name.parse(), Ok(Protocol::new(number)));
        }
    }

    #[test]
    fn refuses_what_it_does_not_know() {
        for text in ["", "256", "-1", "+6", "06", "tcp ", "any", "http"] {
            assert_eq!(text.parse::<Protocol>(), Err(ProtocolError(text.to_owned())));
        }
    }

    #[test]
    fn knows_who_has_ports() {
        let with_ports: Vec<u8> = (0..=255).filter(|number| Protocol::new(*number).has_ports()).collect();
        assert_eq!(with_ports, [6, 17, 33, 132, 136]);
    }
}
