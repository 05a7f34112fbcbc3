use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::{Serialize, Serializer};

use crate::intervals::Intervals;
use crate::traffic::phrases;
use crate::{AddressSet, Cidr, Direction, Family, GroupId, Packet, Peer, Rule};

/// Who may reach something, and with what traffic: exactly, so that two reaches are equal when the same
/// connections get through, and the difference of two is what a change opens.
///
/// Who is in a group is not known here. A group adds nothing where everyone of its family is let in anyway;
/// apart from that it is a peer of its own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reach {
    /// Ascending, disjoint, none without addresses, and different from the next one where they touch.
    layers: Vec<Layer>,
    /// None empty, and none where everyone of the family is let in.
    groups: BTreeMap<(GroupId, Family), Intervals>,
}

/// An interval of traffic (see `Traffic::span`) and the addresses that may send it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Layer {
    first: u128,
    last: u128,
    addresses: AddressSet,
}

impl Reach {
    /// Out of reach for everyone.
    pub fn nobody() -> Self {
        Self::default()
    }

    /// What the ingress rules among these let in.
    pub fn of<'a>(rules: impl IntoIterator<Item = &'a Rule>) -> Self {
        let mut ranges: BTreeMap<(u128, u128), Vec<Cidr>> = BTreeMap::new();
        let mut groups: BTreeMap<(GroupId, Family), Vec<(u128, u128)>> = BTreeMap::new();
        for rule in rules.into_iter().filter(|rule| rule.direction() == Direction::Ingress) {
            let span = rule.traffic().span();
            let range = match rule.peer() {
                Peer::Everyone => Cidr::everything(rule.family()),
                Peer::Range(range) => *range,
                Peer::Group(id) => {
                    groups.entry((id.clone(), rule.family())).or_default().push(span);
                    continue;
                }
            };
            ranges.entry(span).or_default().push(range);
        }
        let layers = layers(ranges.keys().copied(), |number| {
            let here = ranges.iter().filter(|((first, last), _)| (*first..=*last).contains(&number));
            here.flat_map(|(_, ranges)| ranges.iter().copied()).collect()
        });
        let groups = groups.into_iter().map(|(group, spans)| (group, spans.into_iter().collect())).collect();
        Self::canonical(layers, groups)
    }

    /// What `after` lets in and `before` does not: what a change from one to the other opens.
    ///
    /// Everyone is wider than a group, for the group's own endpoints too: their addresses are let in for
    /// themselves then, whoever has them next.
    #[must_use]
    pub fn widened(before: &Self, after: &Self) -> Self {
        let layers = layers(before.spans().chain(after.spans()), |number| {
            after.addresses_at(number).difference(&before.addresses_at(number))
        });
        let mut groups = after.groups.clone();
        for ((id, family), spans) in &mut groups {
            if let Some(already) = before.groups.get(&(id.clone(), *family)) {
                *spans = spans.difference(already);
            }
            *spans = spans.difference(&before.open_to_all(*family));
        }
        Self::canonical(layers, groups)
    }

    /// What one or the other lets in.
    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        let layers = layers(self.spans().chain(other.spans()), |number| {
            self.addresses_at(number).union(&other.addresses_at(number))
        });
        let mut groups = self.groups.clone();
        for (group, spans) in &other.groups {
            let all = groups.entry(group.clone()).or_default();
            *all = all.union(spans);
        }
        Self::canonical(layers, groups)
    }

    /// Whether `other` lets in all that this does.
    pub fn is_within(&self, other: &Self) -> bool {
        Self::widened(other, self).is_nobody()
    }

    /// Whether nobody gets through.
    pub fn is_nobody(&self) -> bool {
        self.layers.is_empty() && self.groups.is_empty()
    }

    /// Whether this packet gets through. It is about ingress: what goes out is never let in.
    pub fn admits(&self, packet: &Packet) -> bool {
        let (number, _) = packet.traffic().span();
        let in_group = |id: &GroupId| {
            self.groups.get(&(id.clone(), packet.family())).is_some_and(|spans| spans.contains(number))
        };
        packet.direction() == Direction::Ingress
            && (self.addresses_at(number).contains(packet.remote())
                || packet.remote_groups().iter().any(in_group))
    }

    fn canonical(layers: Vec<Layer>, groups: BTreeMap<(GroupId, Family), Intervals>) -> Self {
        let mut reach = Self { layers, groups: BTreeMap::new() };
        for ((id, family), spans) in groups {
            let spans = spans.difference(&reach.open_to_all(family));
            if !spans.is_empty() {
                reach.groups.insert((id, family), spans);
            }
        }
        reach
    }

    fn spans(&self) -> impl Iterator<Item = (u128, u128)> {
        self.layers.iter().map(|layer| (layer.first, layer.last))
    }

    fn addresses_at(&self, number: u128) -> AddressSet {
        let next = self.layers.partition_point(|layer| layer.last < number);
        match self.layers.get(next) {
            Some(layer) if layer.first <= number => layer.addresses.clone(),
            _ => AddressSet::nobody(),
        }
    }

    /// The traffic that every address of a family may send.
    fn open_to_all(&self, family: Family) -> Intervals {
        let all = AddressSet::everyone_of(family);
        let open = self.layers.iter().filter(|layer| all.is_subset(&layer.addresses));
        open.map(|layer| (layer.first, layer.last)).collect()
    }

    /// The reach as people say it: those with the same traffic together.
    fn entries(&self) -> Vec<Entry> {
        let mut traffic_of: BTreeMap<Who, Vec<(u128, u128)>> = BTreeMap::new();
        for layer in &self.layers {
            for who in people(&layer.addresses) {
                traffic_of.entry(who).or_default().push((layer.first, layer.last));
            }
        }
        let ids: BTreeSet<&GroupId> = self.groups.keys().map(|(id, _)| id).collect();
        for id in ids {
            let [v4, v6] =
                Family::ALL.map(|family| self.groups.get(&(id.clone(), family)).cloned().unwrap_or_default());
            for (family, spans) in [
                (None, v4.intersection(&v6)),
                (Some(Family::V4), v4.difference(&v6)),
                (Some(Family::V6), v6.difference(&v4)),
            ] {
                if !spans.is_empty() {
                    traffic_of.insert(Who::Group(id.clone(), family), spans.as_slice().to_vec());
                }
            }
        }
        let mut entries: Vec<(Intervals, Vec<Who>)> = Vec::new();
        for (who, spans) in traffic_of {
            let spans = Intervals::from_iter(spans);
            match entries.iter_mut().find(|(other, _)| *other == spans) {
                Some((_, people)) => people.push(who),
                None => entries.push((spans, vec![who])),
            }
        }
        entries
            .into_iter()
            .map(|(spans, people)| Entry {
                who: people.iter().map(Who::to_string).collect(),
                on: spans.as_slice().iter().flat_map(|&(first, last)| phrases(first, last)).collect(),
            })
            .collect()
    }
}

/// Puts layers together from the spans where something may change and what holds at a number.
fn layers(spans: impl Iterator<Item = (u128, u128)>, at: impl Fn(u128) -> AddressSet) -> Vec<Layer> {
    let edges: BTreeSet<u128> = spans.flat_map(|(first, last)| [first, last + 1]).collect();
    let mut layers: Vec<Layer> = Vec::new();
    for (&first, &next) in edges.iter().zip(edges.iter().skip(1)) {
        let (last, addresses) = (next - 1, at(first));
        match layers.last_mut() {
            _ if addresses.is_nobody() => {}
            Some(layer) if layer.last + 1 == first && layer.addresses == addresses => layer.last = last,
            _ => layers.push(Layer { first, last, addresses }),
        }
    }
    layers
}

/// Someone, in the order in which they are told.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Who {
    /// Of a family, or of both.
    Everyone(Option<Family>),
    Range(Cidr),
    Group(GroupId, Option<Family>),
}

fn people(addresses: &AddressSet) -> Vec<Who> {
    let open: Vec<Family> = Family::ALL
        .into_iter()
        .filter(|family| AddressSet::everyone_of(*family).is_subset(addresses))
        .collect();
    let mut people = match open[..] {
        [] => Vec::new(),
        [family] => vec![Who::Everyone(Some(family))],
        _ => vec![Who::Everyone(None)],
    };
    people.extend(addresses.cidrs().into_iter().filter(|cidr| !cidr.is_everything()).map(Who::Range));
    people
}

impl fmt::Display for Who {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Everyone(None) => f.write_str("everyone"),
            Self::Everyone(Some(family)) => write!(f, "everyone over {family}"),
            Self::Range(range) => range.fmt(f),
            Self::Group(id, None) => write!(f, "group {id}"),
            Self::Group(id, Some(family)) => write!(f, "group {id} over {family}"),
        }
    }
}

/// People with the same traffic.
#[derive(Serialize)]
struct Entry {
    who: Vec<String>,
    on: Vec<String>,
}

impl fmt::Display for Reach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_nobody() {
            return f.pad("nobody");
        }
        let entry = |entry: &Entry| format!("{} on {}", entry.who.join(", "), entry.on.join(", "));
        f.pad(&self.entries().iter().map(entry).collect::<Vec<_>>().join("; "))
    }
}

/// A list of `{"who": […], "on": […]}`; nobody is the empty list.
impl Serialize for Reach {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.entries())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Protocol, Traffic};

    /// Reads `tcp 443 from 10.0.0.0/8`, `any from everyone4`, `tcp from group6 dev`.
    fn rule(text: &str) -> Rule {
        let (traffic, peer) = text.split_once(" from ").unwrap();
        let (family, peer) = match peer.split_once(' ') {
            _ if peer == "everyone4" => (Family::V4, Peer::Everyone),
            _ if peer == "everyone6" => (Family::V6, Peer::Everyone),
            Some(("group4", id)) => (Family::V4, Peer::Group(GroupId::new(id).unwrap())),
            Some(("group6", id)) => (Family::V6, Peer::Group(GroupId::new(id).unwrap())),
            _ => {
                let range: Cidr = peer.parse().unwrap();
                (range.family(), Peer::Range(range))
            }
        };
        let traffic = match traffic.split_once(' ') {
            Some((protocol, ports)) => {
                Traffic::ports(protocol.parse().unwrap(), ports.parse().unwrap()).unwrap()
            }
            None if traffic == "any" => Traffic::ANY,
            None => Traffic::of(traffic.parse::<Protocol>().unwrap()),
        };
        Rule::new(Direction::Ingress, family, traffic, peer).unwrap()
    }

    fn reach(rules: &[&str]) -> Reach {
        Reach::of(&rules.iter().map(|text| rule(text)).collect::<Vec<_>>())
    }

    #[test]
    fn says_who_on_what() {
        for (rules, text) in [
            (&[][..], "nobody"),
            (&["tcp 443 from 203.0.113.0/24"], "203.0.113.0/24 on tcp 443"),
            (
                &[
                    "tcp 80 from everyone4",
                    "tcp 443 from everyone4",
                    "tcp 80 from everyone6",
                    "tcp 443 from everyone6",
                ],
                "everyone on tcp 80, tcp 443",
            ),
            (&["tcp 80 from everyone4"], "everyone over IPv4 on tcp 80"),
            (&["any from everyone6"], "everyone over IPv6 on any traffic"),
            (
                &["tcp 80 from everyone4", "tcp 443 from 2001:db8::/32"],
                "everyone over IPv4 on tcp 80; 2001:db8::/32 on tcp 443",
            ),
            (
                &["tcp 443 from 2001:db8::/32", "tcp 443 from 10.0.0.0/8"],
                "10.0.0.0/8, 2001:db8::/32 on tcp 443",
            ),
            (&["tcp 22 from group4 dev", "tcp 22 from group6 dev"], "group dev on tcp 22"),
            (&["tcp 22 from group4 dev"], "group dev over IPv4 on tcp 22"),
            (&["tcp 80-89 from 10.0.0.0/8", "tcp 90 from 10.0.0.0/8"], "10.0.0.0/8 on tcp 80-90"),
            (&["tcp from 10.0.0.0/8", "udp 53 from 10.0.0.0/8"], "10.0.0.0/8 on tcp, udp 53"),
        ] {
            assert_eq!(reach(rules).to_string(), text);
        }
    }

    #[test]
    fn equal_when_the_same_gets_through() {
        for (one, other) in [
            (
                &["tcp 443 from 10.0.0.0/25", "tcp 443 from 10.0.0.128/25"][..],
                &["tcp 443 from 10.0.0.0/24"][..],
            ),
            (&["tcp 1-5 from 10.0.0.0/8", "tcp 6-9 from 10.0.0.0/8"], &["tcp 1-9 from 10.0.0.0/8"]),
            (&["tcp 0-99 from 10.0.0.0/8", "tcp 50-65535 from 10.0.0.0/8"], &["tcp from 10.0.0.0/8"]),
            (&["any from everyone4", "tcp 22 from group4 dev"], &["any from everyone4"]),
        ] {
            assert_eq!(reach(one), reach(other));
            assert!(reach(one).is_within(&reach(other)) && reach(other).is_within(&reach(one)));
        }
        assert_ne!(reach(&["any from everyone4", "tcp 22 from group6 dev"]), reach(&["any from everyone4"]));
    }

    #[test]
    fn widened_is_exactly_what_opens() {
        for (before, after, text) in [
            (&[][..], &["tcp 443 from 10.0.0.0/8"][..], "10.0.0.0/8 on tcp 443"),
            (&["tcp 443 from 10.0.0.0/8"], &[], "nobody"),
            (&["tcp 443 from 10.0.0.0/8"], &["tcp 443 from 10.1.0.0/16"], "nobody"),
            (
                &["tcp 443 from 10.0.0.0/24"],
                &["tcp 443 from 10.0.0.0/25", "tcp 443 from 10.0.0.128/25"],
                "nobody",
            ),
            (&["tcp 443 from 10.0.0.0/25"], &["tcp 443 from 10.0.0.0/24"], "10.0.0.128/25 on tcp 443"),
            (&["tcp 80 from 10.0.0.0/8"], &["tcp 79-81 from 10.0.0.0/8"], "10.0.0.0/8 on tcp 79, tcp 81"),
            (&["tcp 443 from everyone4"], &["tcp 443 from group4 dev"], "nobody"),
            (&["tcp 443 from everyone4"], &["tcp 443 from group6 dev"], "group dev over IPv6 on tcp 443"),
            (&["tcp 443 from group4 dev"], &["tcp 443 from everyone4"], "everyone over IPv4 on tcp 443"),
            (&["tcp 22 from group4 dev"], &["tcp 20-22 from group4 dev"], "group dev over IPv4 on tcp 20-21"),
            (&["tcp 22 from group4 dev"], &["tcp 22 from group4 ops"], "group ops over IPv4 on tcp 22"),
            (
                &["tcp 443 from everyone4", "tcp 443 from everyone6"],
                &["tcp from everyone4", "tcp 443 from everyone6"],
                "everyone over IPv4 on tcp 0-442, tcp 444-65535",
            ),
        ] {
            assert_eq!(
                Reach::widened(&reach(before), &reach(after)).to_string(),
                text,
                "{before:?} {after:?}"
            );
        }
    }

    #[test]
    fn union_lets_in_what_either_does() {
        let one = reach(&["tcp 80 from 10.0.0.0/9", "tcp 22 from group4 dev"]);
        let other = reach(&["tcp 80 from 10.128.0.0/9", "tcp 21 from group4 dev", "udp from everyone4"]);
        let both = one.union(&other);
        assert_eq!(
            both,
            reach(&["tcp 80 from 10.0.0.0/8", "tcp 21-22 from group4 dev", "udp from everyone4"])
        );
        assert!(one.is_within(&both) && other.is_within(&both) && !both.is_within(&one));
    }

    #[test]
    fn egress_is_no_reach() {
        let out = Rule::new(Direction::Egress, Family::V4, Traffic::ANY, Peer::Everyone).unwrap();
        assert!(Reach::of(&[out]).is_nobody());
    }

    #[test]
    fn writes_json() {
        assert_eq!(
            serde_json::to_value(reach(&["tcp 80 from everyone4", "tcp 443 from everyone4"])).unwrap(),
            serde_json::json!([{"who": ["everyone over IPv4"], "on": ["tcp 80", "tcp 443"]}])
        );
        assert_eq!(serde_json::to_value(Reach::nobody()).unwrap(), serde_json::json!([]));
    }
}
