//! A world of a few hosts, ports and groups. What a rule allows in it is read off the rule's parts here,
//! without any of the code under test.

use std::net::IpAddr;

use portcullis_core::{
    Cidr, Direction, Family, GroupId, Packet, Peer, PortRange, Protocol, Rule, SecurityGroup, Traffic,
};
use proptest::prelude::*;

/// A host by its number in the network of the world; one more than the last is a host elsewhere.
const HOSTS: u8 = 4;
const ELSEWHERE: u8 = HOSTS;
const GROUPS: [&str; 2] = ["a", "b"];

/// What a rule or a packet is about, in plain numbers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum What {
    Any,
    Protocol(u8),
    Ports(u8, u16, u16),
    IcmpType(u8),
    IcmpCode(u8, u8),
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum With {
    Everyone,
    /// The hosts whose number starts with the bits of this one, of which there are so many (of two). Written
    /// as an IPv4-mapped range where the last part says so.
    Hosts(u8, u8, bool),
    Group(usize),
}

/// A rule in plain numbers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Plain {
    pub(crate) ingress: bool,
    pub(crate) v4: bool,
    pub(crate) what: What,
    pub(crate) with: With,
    /// Its description, of which there are a few; 0 for none.
    words: u8,
}

/// A packet in plain numbers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Probe {
    pub(crate) ingress: bool,
    pub(crate) v4: bool,
    pub(crate) what: What,
    host: u8,
    groups: [bool; 2],
}

impl Plain {
    pub(crate) fn lets(&self, probe: &Probe) -> bool {
        let what = match (self.what, probe.what) {
            (What::Any, _) | (What::Protocol(1 | 58), What::IcmpCode(..)) => true,
            (What::Protocol(rule), What::Protocol(number) | What::Ports(number, ..)) => rule == number,
            (What::Ports(rule, from, to), What::Ports(number, port, _)) => {
                rule == number && from <= port && port <= to
            }
            (What::IcmpType(rule), What::IcmpCode(icmp_type, _)) => rule == icmp_type,
            (What::IcmpCode(..), _) => self.what == probe.what,
            _ => false,
        };
        let with = match self.with {
            With::Everyone => true,
            With::Hosts(host, bits, _) => {
                probe.host != ELSEWHERE && (host & 3) >> (2 - bits) == (probe.host & 3) >> (2 - bits)
            }
            With::Group(group) => probe.groups[group],
        };
        self.ingress == probe.ingress && self.v4 == probe.v4 && what && with
    }

    pub(crate) fn rule(&self) -> Rule {
        let peer = match self.with {
            With::Everyone => Peer::Everyone,
            With::Hosts(host, bits, mapped) => {
                let text = match (self.v4, mapped) {
                    (true, false) => format!("10.0.0.{host}/{}", 30 + bits),
                    (true, true) => format!("::ffff:10.0.0.{host}/{}", 126 + bits),
                    (false, _) => format!("2001:db8::{host:x}/{}", 126 + bits),
                };
                Peer::Range(text.parse::<Cidr>().unwrap())
            }
            With::Group(group) => Peer::Group(group_id(group)),
        };
        let rule =
            Rule::new(direction(self.ingress), family(self.v4), traffic(self.what, self.v4), peer).unwrap();
        if self.words == 0 { rule } else { rule.with_description(format!("words {}", self.words)) }
    }
}

impl Probe {
    /// Whether it tells something about `Reach`, which does not know who is in a group: its other end is a host
    /// in no group, or a host elsewhere that is in one.
    pub(crate) fn tells_reach(&self) -> bool {
        let in_groups = self.groups.iter().filter(|inside| **inside).count();
        in_groups == 0 || in_groups == 1 && self.host == ELSEWHERE
    }

    /// The same packet from someone in no group.
    pub(crate) fn without_groups(&self) -> Self {
        Self { groups: [false; 2], ..*self }
    }

    pub(crate) fn packet(&self) -> Packet {
        let (local, remote) = match (self.v4, self.host) {
            (true, ELSEWHERE) => ("192.0.2.1", "198.51.100.1".to_owned()),
            (true, host) => ("192.0.2.1", format!("10.0.0.{host}")),
            (false, ELSEWHERE) => ("2001:db8:1::1", "2001:db8:2::1".to_owned()),
            (false, host) => ("2001:db8:1::1", format!("2001:db8::{host:x}")),
        };
        let address = |text: &str| text.parse::<IpAddr>().unwrap();
        let groups = (0..GROUPS.len()).filter(|group| self.groups[*group]).map(group_id);
        Packet::new(direction(self.ingress), address(local), address(&remote), traffic(self.what, self.v4))
            .unwrap()
            .with_remote_groups(groups)
    }
}

pub(crate) fn direction(ingress: bool) -> Direction {
    if ingress { Direction::Ingress } else { Direction::Egress }
}

pub(crate) fn family(v4: bool) -> Family {
    if v4 { Family::V4 } else { Family::V6 }
}

fn group_id(group: usize) -> GroupId {
    GroupId::new(GROUPS[group]).unwrap()
}

fn traffic(what: What, v4: bool) -> Traffic {
    match what {
        What::Any => Traffic::ANY,
        What::Protocol(number) => Traffic::of(Protocol::new(number)),
        What::Ports(number, from, to) => {
            Traffic::ports(Protocol::new(number), PortRange::new(from, to).unwrap()).unwrap()
        }
        What::IcmpType(icmp_type) => Traffic::icmp(family(v4), icmp_type, None),
        What::IcmpCode(icmp_type, code) => Traffic::icmp(family(v4), icmp_type, Some(code)),
    }
}

fn icmp(v4: bool) -> u8 {
    if v4 { 1 } else { 58 }
}

pub(crate) fn plain() -> impl Strategy<Value = Plain> {
    let ports = prop_oneof![
        4 => (0..4u16, 0..4u16).prop_map(|(one, other)| (one.min(other), one.max(other))),
        1 => (0..4u16).prop_map(|from| (from, u16::MAX)),
    ];
    let few = || prop_oneof![0..3u8, Just(255)];
    let what = prop_oneof![
        1 => Just(What::Any),
        1 => prop_oneof![Just(6u8), Just(17), Just(47), Just(0), Just(255)].prop_map(What::Protocol),
        4 => (prop_oneof![Just(6u8), Just(17)], ports)
            .prop_map(|(number, (from, to))| What::Ports(number, from, to)),
        // Stands for the ICMP of the rule's family.
        1 => Just(What::Protocol(1)),
        1 => few().prop_map(What::IcmpType),
        2 => (few(), few()).prop_map(|(icmp_type, code)| What::IcmpCode(icmp_type, code)),
    ];
    let with = prop_oneof![
        2 => Just(With::Everyone),
        4 => (0..HOSTS, 0..=2u8, any::<bool>()).prop_map(|(host, bits, mapped)| With::Hosts(host, bits, mapped)),
        2 => (0..GROUPS.len()).prop_map(With::Group),
    ];
    (prop::bool::weighted(0.8), any::<bool>(), what, with, 0..3u8).prop_map(
        |(ingress, v4, what, with, words)| {
            let what = if what == What::Protocol(1) { What::Protocol(icmp(v4)) } else { what };
            Plain { ingress, v4, what, with, words }
        },
    )
}

/// A rule that lets hosts in with any traffic.
pub(crate) fn hosts() -> impl Strategy<Value = Plain> {
    (any::<bool>(), 0..HOSTS, 0..=2u8, any::<bool>()).prop_map(|(v4, host, bits, mapped)| Plain {
        ingress: true,
        v4,
        what: What::Any,
        with: With::Hosts(host, bits, mapped),
        words: 0,
    })
}

pub(crate) fn plains() -> impl Strategy<Value = Vec<Plain>> {
    prop::collection::vec(plain(), 0..9)
}

pub(crate) fn rules(plains: &[Plain]) -> Vec<Rule> {
    plains.iter().map(Plain::rule).collect()
}

pub(crate) fn group(name: &str, rules: Vec<Rule>) -> SecurityGroup {
    SecurityGroup { id: GroupId::new(name).unwrap(), name: name.to_owned(), rules, stateful: true }
}

/// Every packet of the world.
pub(crate) fn probes() -> Vec<Probe> {
    let mut whats = vec![What::Protocol(0), What::Protocol(47), What::Protocol(99), What::Protocol(255)];
    for number in [6, 17] {
        whats.extend([0, 1, 2, 3, 4, u16::MAX].map(|port| What::Ports(number, port, port)));
    }
    for icmp_type in [0, 1, 2, 3, 255] {
        whats.extend([0, 1, 2, 3, 255].map(|code| What::IcmpCode(icmp_type, code)));
    }
    let mut probes = Vec::new();
    for (ingress, v4) in [(true, true), (true, false), (false, true), (false, false)] {
        for host in 0..=ELSEWHERE {
            for groups in [[false, false], [true, false], [false, true], [true, true]] {
                probes.extend(whats.iter().map(|&what| Probe { ingress, v4, what, host, groups }));
            }
        }
    }
    probes
}

/// Which packets of the world some rule lets pass.
pub(crate) fn allowed(plains: &[Plain], probes: &[Probe]) -> Vec<bool> {
    probes.iter().map(|probe| plains.iter().any(|plain| plain.lets(probe))).collect()
}

/// Whether all that one lets pass is let pass by the other.
pub(crate) fn within(one: &[bool], other: &[bool]) -> bool {
    one.iter().zip(other).all(|(one, other)| !one || *other)
}
