use std::collections::{BTreeSet, HashMap};

use serde::Serialize;

use crate::{Direction, Family, Peer, Rule, Traffic};

/// The same access in fewer rules: sorted, without doubles, without rules that another one wholly covers.
///
/// Neighbours are not merged (two halves of a range stay two rules): an administrator should find again what
/// was asked for. Of equal rules the first one stays, with its description.
pub fn normalise(rules: impl IntoIterator<Item = Rule>) -> Vec<Rule> {
    let mut distinct = BTreeSet::new();
    for rule in rules {
        distinct.insert(rule);
    }
    // What each peer is allowed. A rule is then compared with those of the peers that cover its own, of which
    // there are few, instead of with all rules: the cost is in proportion to their number.
    let mut allowed: HashMap<(Direction, Family, Peer), Vec<Traffic>> = HashMap::new();
    for rule in &distinct {
        allowed
            .entry((rule.direction(), rule.family(), rule.peer().clone()))
            .or_default()
            .push(rule.traffic());
    }
    let covered = |rule: &Rule| {
        covering(rule.peer()).any(|peer| {
            let itself = peer == *rule.peer();
            let traffic = allowed.get(&(rule.direction(), rule.family(), peer));
            traffic
                .into_iter()
                .flatten()
                .any(|wider| wider.covers(&rule.traffic()) && !(itself && *wider == rule.traffic()))
        })
    };
    distinct.iter().filter(|rule| !covered(rule)).cloned().collect()
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

/// What makes one list of rules into another. Each list is sorted and has no doubles.
///
/// Adding first and removing afterwards keeps, at every moment in between, all that both lists allow and
/// allows nothing that neither does: a rule that stays is never touched.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RuleDiff {
    /// Wanted and not there.
    pub add: Vec<Rule>,
    /// There and not wanted.
    pub remove: Vec<Rule>,
    /// There and wanted, as it is there.
    pub keep: Vec<Rule>,
}

impl RuleDiff {
    /// Whether nothing has to change.
    pub fn is_empty(&self) -> bool {
        self.add.is_empty() && self.remove.is_empty()
    }
}

/// Compares two lists by what their rules allow, so that a rule is never removed and added again for the
/// way it is written.
pub fn diff(current: &[Rule], wanted: &[Rule]) -> RuleDiff {
    let current: BTreeSet<&Rule> = current.iter().collect();
    let wanted: BTreeSet<&Rule> = wanted.iter().collect();
    let owned = |rules: &mut dyn Iterator<Item = &&Rule>| rules.map(|rule| (*rule).clone()).collect();
    RuleDiff {
        add: owned(&mut wanted.difference(&current)),
        remove: owned(&mut current.difference(&wanted)),
        keep: owned(&mut current.intersection(&wanted)),
    }
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
        assert!(!diff.is_empty());
        assert!(super::diff(&current, &current).is_empty());
    }
}
