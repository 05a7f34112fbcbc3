use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};

use serde::Serialize;
use thiserror::Error;

use crate::{Cidr, Direction, Family, GroupId, IcmpOfOtherFamily, Traffic};

/// The other end of the traffic a rule allows.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Peer {
    /// Every address of the rule's family.
    Everyone,
    /// The addresses of a range.
    Range(Cidr),
    /// The endpoints of a group.
    Group(GroupId),
}

impl Peer {
    fn covers(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Everyone, _) => true,
            (Self::Range(range), Self::Range(other)) => range.covers(other),
            _ => self == other,
        }
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Everyone => f.pad("everyone"),
            Self::Range(range) => range.fmt(f),
            Self::Group(id) => f.pad(&format!("group {id}")),
        }
    }
}

/// Some traffic that is allowed. There is no rule that forbids: what no rule allows is dropped.
///
/// Two rules are equal when direction, family, traffic and peer are, whatever their descriptions and however a range or an
/// everything was written, so that a change of words never becomes a change of access. Equal rules allow the
/// same. The other way round there are exceptions: the edge that [`Cidr`] tells of, and groups whose endpoints
/// happen to be the same. What must be exact asks [`Reach`](crate::Reach).
#[derive(Clone, Debug, Serialize)]
pub struct Rule {
    direction: Direction,
    family: Family,
    traffic: Traffic,
    peer: Peer,
    #[serde(skip_serializing_if = "Option::is_none")]
    description: Option<String>,
}

/// Why the parts do not make a rule.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum RuleError {
    /// The range is of the other family.
    #[error("an {rule} rule cannot have the peer {range}, which is {}", range.family())]
    RangeOfOtherFamily {
        /// The family of the rule.
        rule: Family,
        /// The range given as its peer.
        range: Cidr,
    },
    /// The ICMP is of the other family.
    #[error(transparent)]
    Icmp(#[from] IcmpOfOtherFamily),
}

impl Rule {
    /// A rule that allows `traffic` of `family` with `peer`.
    pub fn new(
        direction: Direction,
        family: Family,
        traffic: Traffic,
        peer: Peer,
    ) -> Result<Self, RuleError> {
        traffic.check_family(family)?;
        let peer = match peer {
            Peer::Range(range) if range.family() != family => {
                return Err(RuleError::RangeOfOtherFamily { rule: family, range });
            }
            Peer::Range(range) if range.is_everything() => Peer::Everyone,
            peer => peer,
        };
        Ok(Self { direction, family, traffic, peer, description: None })
    }

    /// The same rule with a remark for people.
    #[must_use]
    pub fn with_description(self, description: impl Into<String>) -> Self {
        Self { description: Some(description.into()), ..self }
    }

    /// Which way the connections are opened.
    pub fn direction(&self) -> Direction {
        self.direction
    }

    /// The family of the packets.
    pub fn family(&self) -> Family {
        self.family
    }

    /// What is allowed.
    pub fn traffic(&self) -> Traffic {
        self.traffic
    }

    /// Who is at the other end.
    pub fn peer(&self) -> &Peer {
        &self.peer
    }

    /// A remark for people.
    pub fn description(&self) -> Option<&str> {
        self.description.as_deref()
    }

    /// Whether this rule allows all that `other` allows, part by part: `false` where it takes an exact look at
    /// the addresses to tell (see [`Cidr::covers`]).
    pub fn covers(&self, other: &Self) -> bool {
        self.direction == other.direction
            && self.family == other.family
            && self.traffic.covers(&other.traffic)
            && self.peer.covers(&other.peer)
    }

    /// The three columns of a table of rules, whose words make a phrase: way, traffic, peer.
    pub fn columns(&self) -> [String; 3] {
        let (way, preposition) = match self.direction {
            Direction::Ingress => ("in", "from"),
            Direction::Egress => ("out", "to"),
        };
        let peer = match self.peer {
            Peer::Range(range) => format!("{preposition} {range}"),
            // Only a range shows its family by itself.
            _ => format!("{preposition} {} over {}", self.peer, self.family),
        };
        [way.to_owned(), self.traffic.to_string(), peer]
    }

    fn identity(&self) -> (Direction, Family, Traffic, &Peer) {
        (self.direction, self.family, self.traffic, &self.peer)
    }
}

impl PartialEq for Rule {
    fn eq(&self, other: &Self) -> bool {
        self.identity() == other.identity()
    }
}

impl Eq for Rule {}

impl PartialOrd for Rule {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Rule {
    fn cmp(&self, other: &Self) -> Ordering {
        self.identity().cmp(&other.identity())
    }
}

impl Hash for Rule {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.identity().hash(state);
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.columns().join(" "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{PortRange, Protocol};

    fn tcp(port: u16) -> Traffic {
        Traffic::ports(Protocol::TCP, PortRange::single(port)).unwrap()
    }

    fn range(text: &str) -> Peer {
        Peer::Range(text.parse().unwrap())
    }

    fn group(id: &str) -> Peer {
        Peer::Group(GroupId::new(id).unwrap())
    }

    fn ingress(family: Family, traffic: Traffic, peer: Peer) -> Rule {
        Rule::new(Direction::Ingress, family, traffic, peer).unwrap()
    }

    #[test]
    fn refuses_mixed_families() {
        let mixed = |family, traffic, peer| {
            Rule::new(Direction::Ingress, family, traffic, peer).unwrap_err().to_string()
        };
        assert_eq!(
            mixed(Family::V6, tcp(22), range("10.0.0.0/8")),
            "an IPv6 rule cannot have the peer 10.0.0.0/8, which is IPv4"
        );
        assert_eq!(
            mixed(Family::V6, tcp(22), range("::ffff:10.0.0.0/104")),
            "an IPv6 rule cannot have the peer ::ffff:10.0.0.0/104, which is IPv4"
        );
        assert_eq!(
            mixed(Family::V6, Traffic::of(Protocol::ICMP), Peer::Everyone),
            "icmp does not exist in IPv6: use ipv6-icmp"
        );
        assert_eq!(
            mixed(Family::V4, Traffic::icmp(Family::V6, 2, None), Peer::Everyone),
            "ipv6-icmp does not exist in IPv4: use icmp"
        );
    }

    #[test]
    fn equal_when_it_allows_the_same() {
        let everyone = ingress(Family::V4, tcp(22), Peer::Everyone);
        assert_eq!(everyone, ingress(Family::V4, tcp(22), range("0.0.0.0/0")));
        assert_eq!(everyone, everyone.clone().with_description("open"));
        assert_eq!(
            ingress(Family::V4, tcp(22), range("10.0.0.5/8")),
            ingress(Family::V4, tcp(22), range("10.0.0.0/8"))
        );
        let all_ports = Traffic::ports(Protocol::TCP, PortRange::ALL).unwrap();
        assert_eq!(
            ingress(Family::V4, all_ports, Peer::Everyone),
            ingress(Family::V4, Traffic::of(Protocol::TCP), Peer::Everyone)
        );
        assert_ne!(everyone, ingress(Family::V6, tcp(22), Peer::Everyone));
        assert_ne!(everyone, ingress(Family::V4, tcp(23), Peer::Everyone));
        assert_ne!(everyone, Rule::new(Direction::Egress, Family::V4, tcp(22), Peer::Everyone).unwrap());
    }

    #[test]
    fn covers_in_every_part() {
        let wide = ingress(Family::V4, Traffic::of(Protocol::TCP), range("10.0.0.0/8"));
        for (narrow, covered) in [
            (ingress(Family::V4, tcp(22), range("10.1.0.0/16")), true),
            (wide.clone(), true),
            (ingress(Family::V4, tcp(22), range("11.0.0.0/16")), false),
            (ingress(Family::V4, tcp(22), Peer::Everyone), false),
            (ingress(Family::V4, tcp(22), group("dev")), false),
            (ingress(Family::V4, Traffic::ANY, range("10.1.0.0/16")), false),
            (Rule::new(Direction::Egress, Family::V4, tcp(22), range("10.1.0.0/16")).unwrap(), false),
        ] {
            assert_eq!(wide.covers(&narrow), covered, "{narrow}");
        }
        let everyone = ingress(Family::V4, tcp(22), Peer::Everyone);
        assert!(everyone.covers(&ingress(Family::V4, tcp(22), group("dev"))));
        assert!(!everyone.covers(&ingress(Family::V6, tcp(22), group("dev"))));
        let dev = ingress(Family::V4, Traffic::ANY, group("dev"));
        assert!(dev.covers(&ingress(Family::V4, tcp(22), group("dev"))));
        assert!(!dev.covers(&ingress(Family::V4, tcp(22), group("ops"))));
    }

    #[test]
    fn prints_as_a_phrase() {
        for (rule, text) in [
            (ingress(Family::V4, tcp(443), range("203.0.113.7/24")), "in tcp 443 from 203.0.113.7/24"),
            (ingress(Family::V6, Traffic::ANY, Peer::Everyone), "in any from everyone over IPv6"),
            (
                Rule::new(Direction::Egress, Family::V4, tcp(22), group("dev")).unwrap(),
                "out tcp 22 to group dev over IPv4",
            ),
        ] {
            assert_eq!(rule.to_string(), text);
        }
    }

    #[test]
    fn writes_json() {
        let rule = ingress(Family::V4, tcp(22), group("dev")).with_description("shell");
        assert_eq!(
            serde_json::to_value(rule).unwrap(),
            serde_json::json!({
                "direction": "ingress", "family": "IPv4",
                "traffic": {"text": "tcp 22", "protocol": "tcp", "ports": {"first": 22, "last": 22}},
                "peer": {"group": "dev"}, "description": "shell",
            })
        );
    }
}
