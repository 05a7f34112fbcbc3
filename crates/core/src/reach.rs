use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::ser::SerializeStruct;
use serde::{Serialize, Serializer};

use crate::intervals::Intervals;
use crate::text::told;
use crate::traffic::{Phrase, phrases};
use crate::{AddressSet, Cidr, Direction, Family, GroupId, Packet, Peer, Rule};

/// Who may reach something, and with what traffic: exactly, so that two reaches are equal when the same
/// connections get through, and the difference of two is what a change opens.
///
/// It is of one direction: of ingress, who may reach it, and of egress, whom it may reach. The words are those
/// of ingress, and which one is meant is for the holder to say.
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

    /// What the rules of a direction among these let through.
    pub fn of<'a>(direction: Direction, rules: impl IntoIterator<Item = &'a Rule>) -> Self {
        let mut ranges: BTreeMap<Cidr, Vec<(u128, u128)>> = BTreeMap::new();
        let mut groups: BTreeMap<(GroupId, Family), Vec<(u128, u128)>> = BTreeMap::new();
        for rule in rules.into_iter().filter(|rule| rule.direction() == direction) {
            let spans = match rule.peer() {
                Peer::Everyone => ranges.entry(Cidr::everything(rule.family())).or_default(),
                Peer::Range(range) => ranges.entry(*range).or_default(),
                Peer::Group(id) => groups.entry((id.clone(), rule.family())).or_default(),
            };
            spans.push(rule.traffic().span());
        }
        // The spans of one range do not overlap after this, however many rules it has.
        let mut ranges_of: BTreeMap<(u128, u128), Vec<Cidr>> = BTreeMap::new();
        for (range, spans) in ranges {
            for &span in Intervals::from_iter(spans).as_slice() {
                ranges_of.entry(span).or_default().push(range);
            }
        }
        // The numbers ascend: spans come in at their start and go out after their end.
        let mut ahead = ranges_of.iter().peekable();
        let mut here: Vec<(u128, &[Cidr])> = Vec::new();
        let layers = layers(ranges_of.keys().copied(), |number| {
            here.retain(|(last, _)| *last >= number);
            while let Some(((_, last), ranges)) = ahead.next_if(|((first, _), _)| *first <= number) {
                here.push((*last, ranges));
            }
            here.iter().flat_map(|(_, ranges)| ranges.iter().copied()).collect()
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
            match (after.addresses_at(number), before.addresses_at(number)) {
                (Some(after), Some(before)) => after.difference(before),
                (after, _) => after.cloned().unwrap_or_default(),
            }
        });
        let mut groups = after.groups.clone();
        let open = before.open_to_all();
        for (group, spans) in &mut groups {
            if let Some(already) = before.groups.get(group) {
                *spans = spans.difference(already);
            }
            *spans = spans.difference(&open[group.1 as usize]);
        }
        Self::canonical(layers, groups)
    }

    /// What one or the other lets in.
    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        let layers = layers(self.spans().chain(other.spans()), |number| {
            match (self.addresses_at(number), other.addresses_at(number)) {
                (Some(one), Some(other)) => one.union(other),
                (one, other) => one.or(other).cloned().unwrap_or_default(),
            }
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

    /// Whether this packet gets through, if it is of the direction that this reach is of.
    pub fn admits(&self, packet: &Packet) -> bool {
        let (number, _) = packet.traffic().span();
        let in_group = |id: &GroupId| {
            self.groups.get(&(id.clone(), packet.family())).is_some_and(|spans| spans.contains(number))
        };
        self.addresses_at(number).is_some_and(|addresses| addresses.contains(packet.remote()))
            || packet.remote_groups().iter().any(in_group)
    }

    fn canonical(layers: Vec<Layer>, groups: BTreeMap<(GroupId, Family), Intervals>) -> Self {
        let mut reach = Self { layers, groups };
        let open = reach.open_to_all();
        reach.groups.retain(|(_, family), spans| {
            *spans = spans.difference(&open[*family as usize]);
            !spans.is_empty()
        });
        reach
    }

    fn spans(&self) -> impl Iterator<Item = (u128, u128)> {
        self.layers.iter().map(|layer| (layer.first, layer.last))
    }

    fn addresses_at(&self, number: u128) -> Option<&AddressSet> {
        let next = self.layers.partition_point(|layer| layer.last < number);
        self.layers.get(next).filter(|layer| layer.first <= number).map(|layer| &layer.addresses)
    }

    /// The traffic that every address of a family may send, for each family in order.
    fn open_to_all(&self) -> [Intervals; 2] {
        Family::ALL.map(|family| {
            let all = AddressSet::everyone_of(family);
            let open = self.layers.iter().filter(|layer| all.is_subset(&layer.addresses));
            open.map(|layer| (layer.first, layer.last)).collect()
        })
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
        let mut entries: Vec<Entry> = Vec::new();
        let mut entry_of: BTreeMap<Intervals, usize> = BTreeMap::new();
        for (who, spans) in traffic_of {
            let spans = Intervals::from_iter(spans);
            let on = || spans.as_slice().iter().flat_map(|&(first, last)| phrases(first, last)).collect();
            let index = *entry_of.entry(spans.clone()).or_insert_with(|| {
                entries.push(Entry { who: Vec::new(), on: on() });
                entries.len() - 1
            });
            entries[index].who.push(who);
        }
        entries
    }
}

/// Puts layers together from the spans where something may change and what holds at a number. It asks for the
/// numbers in ascending order.
fn layers(spans: impl Iterator<Item = (u128, u128)>, mut at: impl FnMut(u128) -> AddressSet) -> Vec<Layer> {
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

impl Who {
    fn text(&self) -> String {
        match self {
            Self::Everyone(None) => "everyone".to_owned(),
            Self::Everyone(Some(family)) => format!("everyone over {family}"),
            Self::Range(range) => range.to_string(),
            Self::Group(id, None) => format!("group {id}"),
            Self::Group(id, Some(family)) => format!("group {id} over {family}"),
        }
    }
}

/// As `{"text": "everyone over IPv4", "peer": "everyone", "families": ["IPv4"]}`.
impl Serialize for Who {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let (peer, family) = match self {
            Self::Everyone(family) => (Peer::Everyone, *family),
            Self::Range(range) => (Peer::Range(*range), Some(range.family())),
            Self::Group(id, family) => (Peer::Group(id.clone()), *family),
        };
        let mut who = serializer.serialize_struct("Who", 3)?;
        who.serialize_field("text", &self.text())?;
        who.serialize_field("peer", &peer)?;
        who.serialize_field("families", &family.map_or(Family::ALL.to_vec(), |family| vec![family]))?;
        who.end()
    }
}

/// People with the same traffic.
#[derive(Serialize)]
struct Entry {
    who: Vec<Who>,
    on: Vec<Phrase>,
}

impl Entry {
    fn text(&self) -> String {
        let who: Vec<String> = self.who.iter().map(Who::text).collect();
        let on: Vec<String> = self.on.iter().map(|phrase| phrase.text.clone()).collect();
        format!("{} on {}", told(&who, ", "), told(&on, ", "))
    }
}

/// For people: of a long list only the start is told. JSON has it all.
impl fmt::Display for Reach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_nobody() {
            return f.pad("nobody");
        }
        f.pad(&told(&self.entries().iter().map(Entry::text).collect::<Vec<_>>(), "; "))
    }
}

/// A list of `{"who": […], "on": […]}`, each with its text and its parts; nobody is the empty list.
impl Serialize for Reach {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.entries())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Protocol, Traffic};
    use serde_json::json;

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
        Reach::of(Direction::Ingress, &rules.iter().map(|text| rule(text)).collect::<Vec<_>>())
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
    fn each_direction_is_a_reach_of_its_own() {
        let out = Rule::new(Direction::Egress, Family::V4, Traffic::ANY, Peer::Everyone).unwrap();
        let rules = [out, rule("tcp 443 from 10.0.0.0/8")];
        assert_eq!(Reach::of(Direction::Ingress, &rules).to_string(), "10.0.0.0/8 on tcp 443");
        assert_eq!(Reach::of(Direction::Egress, &rules).to_string(), "everyone over IPv4 on any traffic");
    }

    #[test]
    fn a_long_list_is_cut_in_text_only() {
        let rules: Vec<Rule> =
            (0..5000).map(|port| rule(&format!("tcp {} from 10.0.0.0/8", 2 * port))).collect();
        let reach = Reach::of(Direction::Ingress, &rules);
        let text = reach.to_string();
        assert!(text.starts_with("10.0.0.0/8 on tcp 0, tcp 2, "), "{text}");
        assert!(text.ends_with("tcp 38, … and 4,980 more"), "{text}");
        assert_eq!(serde_json::to_value(reach).unwrap()[0]["on"].as_array().unwrap().len(), 5000);
    }

    #[test]
    fn writes_json() {
        assert_eq!(
            serde_json::to_value(reach(&["tcp 80 from everyone4", "tcp 8000-8010 from everyone4"])).unwrap(),
            json!([{
                "who": [{"text": "everyone over IPv4", "peer": "everyone", "families": ["IPv4"]}],
                "on": [
                    {"text": "tcp 80", "protocol": "tcp", "ports": {"first": 80, "last": 80}},
                    {"text": "tcp 8000-8010", "protocol": "tcp", "ports": {"first": 8000, "last": 8010}},
                ],
            }])
        );
        let groups = reach(&["any from group4 dev", "any from group6 dev", "any from 2001:db8::/32"]);
        assert_eq!(
            serde_json::to_value(groups).unwrap(),
            json!([{
                "who": [
                    {"text": "2001:db8::/32", "peer": {"range": "2001:db8::/32"}, "families": ["IPv6"]},
                    {"text": "group dev", "peer": {"group": "dev"}, "families": ["IPv4", "IPv6"]},
                ],
                "on": [{"text": "any traffic", "protocols": {"first": 0, "last": 255}}],
            }])
        );
        assert_eq!(serde_json::to_value(Reach::nobody()).unwrap(), json!([]));
    }
}
