use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap};

use serde::Serialize;

use crate::{Direction, Family, Peer, Rule, Traffic};

/// The same access in fewer rules: sorted, without doubles, without rules that another one covers (see
/// [`Rule::covers`]). What only several others cover together stays.
///
/// Neighbours are not merged (two halves of a range stay two rules): an administrator should find again what
/// was asked for. Of equal rules the first one stays, with its description.
pub fn normalise(rules: impl IntoIterator<Item = Rule>) -> Vec<Rule> {
    let distinct = distinct(rules);
    // What each peer is allowed. A rule is then compared with those of the peers that cover its own, of which
    // there are as many as its prefix has bits, and with theirs by halving, instead of with all rules.
    let mut allowed: HashMap<(Direction, Family, Peer), Spans> = HashMap::new();
    for rule in &distinct {
        let of_peer = allowed.entry((rule.direction(), rule.family(), rule.peer().clone())).or_default();
        of_peer.0.push(Span::of(rule.traffic()));
    }
    allowed.values_mut().for_each(Spans::sort);
    let covered = |rule: &Rule| {
        let span = Span::of(rule.traffic());
        covering(rule.peer()).any(|peer| {
            let itself = peer == *rule.peer();
            let spans = allowed.get(&(rule.direction(), rule.family(), peer));
            spans.is_some_and(|spans| spans.cover(&span, itself))
        })
    };
    distinct.iter().filter(|rule| !covered(rule)).cloned().collect()
}

/// A traffic as numbers (see `Traffic::span`), and the furthest end among it and those sorted before it.
struct Span {
    first: u128,
    last: u128,
    furthest: u128,
}

impl Span {
    fn of(traffic: Traffic) -> Self {
        let (first, last) = traffic.span();
        Self { first, last, furthest: last }
    }

    /// By start, and from one start the longest first: what covers a span is sorted before it.
    fn order(&self) -> (u128, Reverse<u128>) {
        (self.first, Reverse(self.last))
    }
}

/// The traffic of one peer.
#[derive(Default)]
struct Spans(Vec<Span>);

impl Spans {
    fn sort(&mut self) {
        self.0.sort_unstable_by_key(Span::order);
        let mut furthest = 0;
        for span in &mut self.0 {
            furthest = span.last.max(furthest);
            span.furthest = furthest;
        }
    }

    /// Whether one of them covers all of `span`; apart from itself, where it is among them.
    fn cover(&self, span: &Span, itself: bool) -> bool {
        let candidates = self.0.partition_point(|other| {
            if itself { other.order() < span.order() } else { other.order() <= span.order() }
        });
        self.0[..candidates].last().is_some_and(|other| other.furthest >= span.last)
    }
}

/// The peer itself, and every other that covers it.
fn covering(peer: &Peer) -> impl Iterator<Item = Peer> {
    let (same, wider) = match peer {
        Peer::Everyone => (None, None),
        Peer::Group(_) => (Some(peer.clone()), None),
        Peer::Range(range) => (None, Some(range.and_wider().map(Peer::Range))),
    };
    std::iter::once(Peer::Everyone).chain(same).chain(wider.into_iter().flatten())
}

/// What makes one list of rules into another. Each list is sorted and has no doubles; of equal rules the first
/// counts.
///
/// Adding first and removing afterwards keeps, at every moment in between, all that both lists allow and
/// allows nothing that neither does: of a rule that stays only the description is ever touched.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RuleDiff {
    /// Wanted and not there.
    pub add: Vec<Rule>,
    /// There and not wanted.
    pub remove: Vec<Rule>,
    /// There and wanted, as it is there.
    pub keep: Vec<Rule>,
    /// Those of `keep` whose description is another one, as they are wanted.
    pub redescribe: Vec<Rule>,
}

impl RuleDiff {
    /// Whether nothing has to change.
    pub fn is_empty(&self) -> bool {
        self.add.is_empty() && self.remove.is_empty() && self.redescribe.is_empty()
    }
}

/// Compares two lists by their rules as [`Rule`] does, so that a rule is never removed and added again for the
/// way its range is written or for its words.
pub fn diff(current: &[Rule], wanted: &[Rule]) -> RuleDiff {
    let (current, wanted) = (distinct(current), distinct(wanted));
    let mut diff = RuleDiff::default();
    for rule in &current {
        let list = if wanted.contains(rule) { &mut diff.keep } else { &mut diff.remove };
        list.push((*rule).clone());
    }
    for rule in wanted {
        match current.get(rule) {
            None => diff.add.push(rule.clone()),
            Some(there) if there.description() != rule.description() => diff.redescribe.push(rule.clone()),
            Some(_) => {}
        }
    }
    diff
}

/// The first of each, one by one: collecting would keep the last.
fn distinct<T: Ord>(rules: impl IntoIterator<Item = T>) -> BTreeSet<T> {
    let mut distinct = BTreeSet::new();
    for rule in rules {
        distinct.insert(rule);
    }
    distinct
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{PortRange, Protocol};

    fn rule(ports: &str, range: &str) -> Rule {
        let traffic = Traffic::ports(Protocol::TCP, ports.parse::<PortRange>().unwrap()).unwrap();
        Rule::new(Direction::Ingress, Family::V4, traffic, Peer::Range(range.parse().unwrap())).unwrap()
    }

    fn texts(rules: &[Rule]) -> Vec<String> {
        rules.iter().map(Rule::to_string).collect()
    }

    #[test]
    fn normalise_drops_doubles_and_covered_rules_only() {
        let rules = [
            rule("443", "10.0.0.128/25"),
            rule("443", "10.0.0.0/25"),
            rule("443", "10.0.0.1/32"),
            rule("80", "192.0.2.7/24").with_description("first"),
            rule("80", "192.0.2.0/24").with_description("second"),
            rule("80-90", "198.51.100.0/24"),
            rule("85", "198.51.100.0/24"),
        ];
        let normal = normalise(rules);
        assert_eq!(
            texts(&normal),
            [
                "in tcp 80 from 192.0.2.7/24",
                "in tcp 80-90 from 198.51.100.0/24",
                "in tcp 443 from 10.0.0.0/25",
                "in tcp 443 from 10.0.0.128/25",
            ]
        );
        assert_eq!(normal[0].description(), Some("first"));
    }

    #[test]
    fn diff_touches_only_what_differs() {
        let current = [rule("80", "10.0.0.5/8").with_description("old words"), rule("22", "10.0.0.0/8")];
        let wanted = [rule("80", "10.0.0.0/8").with_description("new words"), rule("443", "10.0.0.0/8")];
        let diff = diff(&current, &wanted);
        assert_eq!(texts(&diff.add), ["in tcp 443 from 10.0.0.0/8"]);
        assert_eq!(texts(&diff.remove), ["in tcp 22 from 10.0.0.0/8"]);
        assert_eq!(texts(&diff.keep), ["in tcp 80 from 10.0.0.5/8"]);
        assert_eq!(texts(&diff.redescribe), ["in tcp 80 from 10.0.0.0/8"]);
        assert_eq!(diff.keep[0].description(), Some("old words"));
        assert_eq!(diff.redescribe[0].description(), Some("new words"));
        assert!(!diff.is_empty());
        assert!(super::diff(&current, &current).is_empty());
        assert!(!super::diff(&current[..1], &wanted[..1]).is_empty());
    }

    #[test]
    fn what_is_kept_is_as_it_is_there() {
        let many: Vec<Rule> = (1..100).map(|port| rule(&port.to_string(), "10.0.0.0/8")).collect();
        let few = [rule("80", "10.0.0.5/8").with_description("new words")];
        assert_eq!(texts(&diff(&many, &few).keep), ["in tcp 80 from 10.0.0.0/8"]);
        assert_eq!(texts(&diff(&few, &many).keep), ["in tcp 80 from 10.0.0.5/8"]);
        let doubled = [few[0].clone(), rule("80", "10.0.0.0/8").with_description("old words")];
        assert!(diff(&few, &doubled).is_empty());
    }
}
