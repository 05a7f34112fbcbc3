use std::collections::BTreeSet;

use portcullis_core::{Rule, Verdict, diff, explain, normalise, verdict};
use proptest::prelude::*;

use crate::world::{Plain, allowed, group, plain, plains, probes, rules, within};

/// Which packets of the world the rules let pass, by their verdicts.
fn verdicts(rules: &[Rule]) -> Vec<bool> {
    let groups = [group("g", rules.to_vec())];
    probes().iter().map(|probe| verdict(&probe.packet(), &groups).is_allow()).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn verdict_is_the_plain_reading(first in plains(), second in plains()) {
        let probes = probes();
        let all: Vec<Plain> = first.iter().chain(&second).copied().collect();
        let groups = [group("first", rules(&first)), group("second", rules(&second))];
        for (probe, allowed) in probes.iter().zip(allowed(&all, &probes)) {
            let packet = probe.packet();
            match verdict(&packet, &groups) {
                Verdict::Allow { group, index: place, rule } => {
                    prop_assert!(allowed, "{probe:?}");
                    // The first that lets it pass is the one that is named.
                    let index = all.iter().position(|plain| plain.lets(probe)).unwrap();
                    prop_assert_eq!(rule, &all[index].rule());
                    prop_assert_eq!(group, &groups[usize::from(index >= first.len())]);
                    prop_assert_eq!(place, index.checked_sub(first.len()).unwrap_or(index));
                }
                Verdict::Drop => prop_assert!(!allowed, "{:?}", probe),
            }
            let said: Vec<bool> = explain(&packet, &groups).iter().map(|e| e.mismatch.is_none()).collect();
            let read: Vec<bool> = all.iter().map(|plain| plain.lets(probe)).collect();
            prop_assert_eq!(said, read);
        }
    }

    #[test]
    fn covers_and_equals_are_about_what_passes(one in plain(), other in plain()) {
        let probes = probes();
        let (by_one, by_other) = (allowed(&[one], &probes), allowed(&[other], &probes));
        prop_assert_eq!(one.rule().covers(&other.rule()), within(&by_other, &by_one));
        prop_assert_eq!(one.rule() == other.rule(), by_one == by_other);
        prop_assert_eq!(one.rule().cmp(&other.rule()).is_eq(), by_one == by_other);
    }

    #[test]
    fn normalising_keeps_what_passes(plains in plains()) {
        let given = rules(&plains);
        let normal = normalise(given.clone());
        prop_assert!(verdicts(&normal) == allowed(&plains, &probes()));
        prop_assert_eq!(normalise(normal.clone()), normal.clone());
        prop_assert!(normal.is_sorted());
        for (index, rule) in normal.iter().enumerate() {
            prop_assert!(given.contains(rule));
            let others = normal.iter().enumerate().filter(|(other, _)| *other != index);
            prop_assert!(others.into_iter().all(|(_, other)| !other.covers(rule)));
        }
    }

    #[test]
    fn normalising_does_not_depend_on_the_order(plains in plains()) {
        let mut reversed = plains.clone();
        reversed.reverse();
        prop_assert_eq!(normalise(rules(&plains)), normalise(rules(&reversed)));
    }

    #[test]
    fn applying_a_difference_arrives_and_stays_between(before in plains(), after in plains()) {
        let probes = probes();
        let (current, wanted) = (rules(&before), rules(&after));
        let change = diff(&current, &wanted);

        let (at_first, at_last) = (allowed(&before, &probes), allowed(&after, &probes));
        let either: Vec<bool> = at_first.iter().zip(&at_last).map(|(a, b)| *a || *b).collect();
        let both: Vec<bool> = at_first.iter().zip(&at_last).map(|(a, b)| *a && *b).collect();
        let mut now: BTreeSet<Rule> = current.iter().cloned().collect();
        let in_between = |now: &BTreeSet<Rule>| {
            let open = verdicts(&now.iter().cloned().collect::<Vec<_>>());
            within(&open, &either) && within(&both, &open)
        };
        for rule in &change.add {
            prop_assert!(now.insert(rule.clone()), "{rule} was there already");
            prop_assert!(in_between(&now));
        }
        for rule in &change.remove {
            prop_assert!(now.remove(rule), "{rule} was not there");
            prop_assert!(in_between(&now));
        }
        prop_assert_eq!(&now, &wanted.iter().cloned().collect::<BTreeSet<_>>());

        let now: Vec<Rule> = now.into_iter().collect();
        let nothing = diff(&now, &wanted);
        prop_assert!(nothing.is_empty());
        prop_assert_eq!(nothing.keep, now);
        prop_assert!(change.keep.iter().all(|rule| current.contains(rule) && wanted.contains(rule)));
    }
}
