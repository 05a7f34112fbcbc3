use portcullis_core::{Direction, Reach, Rule, diff};
use proptest::prelude::*;

use crate::world::{Plain, Probe, allowed, direction, plains, probes, rules, within};

fn telling() -> Vec<Probe> {
    probes().into_iter().filter(|probe| probe.ingress && probe.tells_reach()).collect()
}

fn reach(plains: &[Plain]) -> Reach {
    let_in(&rules(plains))
}

fn let_in(rules: &[Rule]) -> Reach {
    Reach::of(Direction::Ingress, rules)
}

fn admitted(reach: &Reach, probes: &[Probe]) -> Vec<bool> {
    probes.iter().map(|probe| reach.admits(&probe.packet())).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(192))]

    #[test]
    fn admits_what_the_rules_of_its_direction_allow(plains in plains()) {
        let (rules, probes) = (rules(&plains), probes());
        let [ingress, egress] = [true, false].map(|ingress| Reach::of(direction(ingress), &rules));
        for (probe, allowed) in probes.iter().zip(allowed(&plains, &probes)) {
            let reach = if probe.ingress { &ingress } else { &egress };
            prop_assert_eq!(reach.admits(&probe.packet()), allowed, "{:?}", probe);
        }
    }

    #[test]
    fn widened_is_after_without_before(before in plains(), after in plains()) {
        let probes = telling();
        let (at_first, at_last) = (allowed(&before, &probes), allowed(&after, &probes));
        // An address that is let in for itself was not before if it was so for its group only: others may have it.
        let alone: Vec<Probe> = probes.iter().map(Probe::without_groups).collect();
        let opened = |probes: &[Probe]| {
            let (first, last) = (allowed(&before, probes), allowed(&after, probes));
            last.into_iter().zip(first).map(|(last, first)| last && !first).collect::<Vec<_>>()
        };
        let expected = opened(&probes).into_iter().zip(opened(&alone)).map(|(one, other)| one || other);
        let expected: Vec<bool> = expected.collect();
        let (before, after) = (reach(&before), reach(&after));
        let widened = Reach::widened(&before, &after);
        for ((probe, admitted), expected) in probes.iter().zip(admitted(&widened, &probes)).zip(expected) {
            prop_assert_eq!(admitted, expected, "{:?}", probe);
        }
        prop_assert_eq!(widened.is_nobody(), within(&at_last, &at_first));
        prop_assert_eq!(after.is_within(&before), within(&at_last, &at_first));
        prop_assert_eq!(after == before, at_last == at_first);
        prop_assert_eq!(before.union(&widened), before.union(&after));
    }

    #[test]
    fn union_is_what_either_admits(one in plains(), other in plains()) {
        let all: Vec<Plain> = one.iter().chain(&other).copied().collect();
        prop_assert_eq!(reach(&one).union(&reach(&other)), reach(&all));
    }

    #[test]
    fn a_change_of_rules_never_reaches_further_than_either_end(before in plains(), after in plains()) {
        let (current, wanted) = (rules(&before), rules(&after));
        let limit = let_in(&current).union(&let_in(&wanted));
        let change = diff(&current, &wanted);
        let mut now: Vec<Rule> = change.keep.iter().chain(&change.remove).cloned().collect();
        prop_assert_eq!(let_in(&now), let_in(&current));
        for rule in change.add {
            now.push(rule);
            prop_assert!(let_in(&now).is_within(&limit));
        }
        for rule in &change.remove {
            now.retain(|other| other != rule);
            prop_assert!(let_in(&now).is_within(&limit));
        }
        prop_assert_eq!(let_in(&now), let_in(&wanted));
    }

    #[test]
    fn equal_reaches_are_told_in_the_same_words(plains in plains()) {
        let mut reversed = plains.clone();
        reversed.reverse();
        let doubled: Vec<Plain> = plains.iter().chain(&reversed).copied().collect();
        prop_assert_eq!(reach(&plains).to_string(), reach(&doubled).to_string());
        prop_assert_eq!(reach(&plains).to_string() == "nobody", reach(&plains).is_nobody());
    }
}
