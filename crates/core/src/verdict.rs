use std::fmt;
use std::net::IpAddr;

use crate::{Cidr, GroupId, Packet, Peer, Rule, SecurityGroup};

/// What happens to a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict<'a> {
    /// It passes, and this is the first rule that lets it.
    Allow {
        /// The group of the rule.
        group: &'a SecurityGroup,
        /// Where the rule stands among those of its group, from 0.
        index: usize,
        /// The rule.
        rule: &'a Rule,
    },
    /// No rule lets it pass.
    Drop,
}

impl Verdict<'_> {
    /// Whether the packet passes.
    pub fn is_allow(&self) -> bool {
        matches!(self, Self::Allow { .. })
    }
}

/// One rule's say on a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation<'a> {
    /// The group of the rule.
    pub group: &'a SecurityGroup,
    /// Where the rule stands among those of its group, from 0.
    pub index: usize,
    /// The rule.
    pub rule: &'a Rule,
    /// Why the rule does not let the packet pass; `None` when it does.
    pub mismatch: Option<Mismatch>,
}

/// The first thing about a packet that a rule does not speak of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mismatch {
    /// The rule is for the other direction.
    Direction,
    /// The rule is for the other family.
    Family,
    /// The rule is for another protocol.
    Protocol,
    /// The rule is for other ports.
    Port,
    /// The rule is for another ICMP type.
    IcmpType,
    /// The rule is for another code of this ICMP type.
    IcmpCode,
    /// The remote end is outside the rule's range.
    NotInRange(IpAddr, Cidr),
    /// The remote end is not in the rule's group.
    NotInGroup(IpAddr, GroupId),
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Direction => f.pad("another direction"),
            Self::Family => f.pad("another family"),
            Self::Protocol => f.pad("another protocol"),
            Self::Port => f.pad("another port"),
            Self::IcmpType => f.pad("another ICMP type"),
            Self::IcmpCode => f.pad("another ICMP code"),
            Self::NotInRange(addr, range) => f.pad(&format!("{addr} is not in {range}")),
            Self::NotInGroup(addr, group) => f.pad(&format!("{addr} is not in group {group}")),
        }
    }
}

/// Decides on a packet at an endpoint that is in `groups`. An endpoint in no group lets nothing pass.
pub fn verdict<'a>(packet: &Packet, groups: impl IntoIterator<Item = &'a SecurityGroup>) -> Verdict<'a> {
    rules(groups)
        .find(|(_, _, rule)| mismatch(rule, packet).is_none())
        .map_or(Verdict::Drop, |(group, index, rule)| Verdict::Allow { group, index, rule })
}

/// What each rule says on a packet, in order. The packet passes if any of them lets it.
pub fn explain<'a>(
    packet: &Packet,
    groups: impl IntoIterator<Item = &'a SecurityGroup>,
) -> Vec<Explanation<'a>> {
    rules(groups)
        .map(|(group, index, rule)| Explanation { group, index, rule, mismatch: mismatch(rule, packet) })
        .collect()
}

/// The rules of all groups in order, each with its group and its place in it.
fn rules<'a>(
    groups: impl IntoIterator<Item = &'a SecurityGroup>,
) -> impl Iterator<Item = (&'a SecurityGroup, usize, &'a Rule)> {
    groups
        .into_iter()
        .flat_map(|group| group.rules.iter().enumerate().map(move |(index, rule)| (group, index, rule)))
}

/// Why a rule does not let a packet pass; `None` when it does.
pub fn mismatch(rule: &Rule, packet: &Packet) -> Option<Mismatch> {
    if rule.direction() != packet.direction() {
        return Some(Mismatch::Direction);
    }
    if rule.family() != packet.family() {
        return Some(Mismatch::Family);
    }
    let (allowed, carried) = (rule.traffic(), packet.traffic());
    if !allowed.covers(&carried) {
        return Some(if allowed.protocol() != carried.protocol() {
            Mismatch::Protocol
        } else if allowed.port_range().is_some() {
            Mismatch::Port
        } else if allowed.icmp_type() != carried.icmp_type() {
            Mismatch::IcmpType
        } else {
            Mismatch::IcmpCode
        });
    }
    let remote = packet.remote();
    match rule.peer() {
        Peer::Range(range) if !range.contains(remote) => Some(Mismatch::NotInRange(remote, *range)),
        Peer::Group(id) if !packet.remote_groups().contains(id) => {
            Some(Mismatch::NotInGroup(remote, id.clone()))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Direction, Family, PortRange, Protocol, Traffic};

    fn tcp(port: u16) -> Traffic {
        Traffic::ports(Protocol::TCP, PortRange::single(port)).unwrap()
    }

    fn rule(direction: Direction, family: Family, traffic: Traffic, peer: Peer) -> Rule {
        Rule::new(direction, family, traffic, peer).unwrap()
    }

    fn group(id: &str, rules: Vec<Rule>) -> SecurityGroup {
        SecurityGroup { id: GroupId::new(id).unwrap(), name: id.to_owned(), rules, stateful: true }
    }

    fn dev() -> GroupId {
        GroupId::new("dev").unwrap()
    }

    fn packet(traffic: Traffic) -> Packet {
        Packet::new(Direction::Ingress, "10.0.7.20".parse().unwrap(), "10.0.7.9".parse().unwrap(), traffic)
            .unwrap()
    }

    #[test]
    fn says_why_each_rule_does_not_match() {
        use Direction::{Egress, Ingress};
        let everyone = || Peer::Everyone;
        let range = |text: &str| Peer::Range(text.parse().unwrap());
        let ping = Traffic::icmp(Family::V4, 8, Some(0));
        for (rule, traffic, phrase) in [
            (rule(Egress, Family::V4, tcp(443), everyone()), tcp(443), "another direction"),
            (rule(Ingress, Family::V6, tcp(443), everyone()), tcp(443), "another family"),
            (rule(Ingress, Family::V4, Traffic::of(Protocol::UDP), everyone()), tcp(443), "another protocol"),
            (rule(Ingress, Family::V4, tcp(22), everyone()), tcp(443), "another port"),
            (
                rule(Ingress, Family::V4, Traffic::icmp(Family::V4, 3, None), everyone()),
                ping,
                "another ICMP type",
            ),
            (
                rule(Ingress, Family::V4, Traffic::icmp(Family::V4, 8, Some(1)), everyone()),
                ping,
                "another ICMP code",
            ),
            (
                rule(Ingress, Family::V4, tcp(443), range("10.0.8.0/24")),
                tcp(443),
                "10.0.7.9 is not in 10.0.8.0/24",
            ),
            (
                rule(Ingress, Family::V4, tcp(443), Peer::Group(dev())),
                tcp(443),
                "10.0.7.9 is not in group dev",
            ),
        ] {
            let groups = [group("ops", vec![rule])];
            let packet = packet(traffic);
            let explained = explain(&packet, &groups);
            assert_eq!(explained.len(), 1);
            assert_eq!(explained[0].mismatch.as_ref().unwrap().to_string(), phrase);
            assert_eq!(verdict(&packet, &groups), Verdict::Drop);
        }
    }

    #[test]
    fn names_the_group_and_rule_that_allow() {
        let shell = rule(Direction::Ingress, Family::V4, tcp(22), Peer::Everyone);
        let web = rule(Direction::Ingress, Family::V4, tcp(443), Peer::Group(dev()));
        let groups = [group("ops", vec![shell.clone()]), group("web", vec![shell, web])];
        let packet = packet(tcp(443)).with_remote_groups([dev()]);
        let Verdict::Allow { group, index, rule } = verdict(&packet, &groups) else { panic!("dropped") };
        assert_eq!((group.name.as_str(), index, rule), ("web", 1, &groups[1].rules[1]));
        let explained: Vec<_> = explain(&packet, &groups)
            .into_iter()
            .map(|e| (e.group.name.as_str(), e.index, e.mismatch))
            .collect();
        let port = || Some(Mismatch::Port);
        assert_eq!(explained, [("ops", 0, port()), ("web", 0, port()), ("web", 1, None)]);
    }

    #[test]
    fn no_group_drops() {
        assert_eq!(verdict(&packet(tcp(443)), &[]), Verdict::Drop);
        assert_eq!(verdict(&packet(tcp(443)), &[group("empty", Vec::new())]), Verdict::Drop);
    }
}
