use std::collections::BTreeSet;
use std::sync::LazyLock;

use portcullis_core::{Packet, Rule, Verdict, diff, explain, normalise, verdict};
use proptest::prelude::*;

use crate::world::{Plain, Probe, allowed, group, plain, plains, probes, rules, within};

/// The packets of [`probes`], which are made once as they are tried after every step.
static PACKETS: LazyLock<Vec<Packet>> = LazyLock::new(|| probes().iter().map(Probe::packet).collect());

/// Which packets of the world the rules let pass, by their verdicts.
fn verdicts(rules: &[Rule]) -> Vec<bool> {
    let groups = [group("g", rules.to_vec())];
    PACKETS.iter().map(|packet| verdict(packet, &groups).is_allow()).collect()
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
        // As text, since equal rules may have other words or be written in another way.
        prop_assert_eq!(format!("{:?}", normalise(normal.clone())), format!("{normal:?}"));
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
        // One by one, since of equal rules the first counts: collecting would keep the words of the last.
        let mut now = BTreeSet::new();
        for rule in &current {
            now.insert(rule.clone());
        }
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
        for rule in &change.redescribe {
            let before = now.replace(rule.clone());
            prop_assert!(before.is_some_and(|before| before.description() != rule.description()));
        }

        let now: Vec<Rule> = now.into_iter().collect();
        let nothing = diff(&now, &wanted);
        prop_assert!(nothing.is_empty());
        prop_assert_eq!(nothing.keep, now);
        prop_assert!(change.keep.iter().all(|rule| current.contains(rule) && wanted.contains(rule)));
    }

    #[test]
    fn an_interrupted_change_can_go_elsewhere(
        before in plains(),
        first in plains(),
        second in plains(),
        stop in any::<prop::sample::Index>(),
    ) {
        let probes = probes();
        let all: Vec<Plain> = before.iter().chain(&first).chain(&second).copied().collect();
        let limit = allowed(&all, &probes);
        let mut now: BTreeSet<Rule> = rules(&before).into_iter().collect();
        for (wanted, stop) in [(&first, Some(stop)), (&second, None)] {
            let start: Vec<Rule> = now.iter().cloned().collect();
            let stays: Vec<bool> =
                verdicts(&start).iter().zip(allowed(wanted, &probes)).map(|(a, b)| *a && b).collect();
            let change = diff(&start, &rules(wanted));
            let add = change.add.into_iter().map(|rule| (true, rule));
            let steps: Vec<_> = add.chain(change.remove.into_iter().map(|rule| (false, rule))).collect();
            let count = stop.map_or(steps.len(), |stop| stop.index(steps.len() + 1));
            for (add, rule) in steps.into_iter().take(count) {
                let changed = if add { now.insert(rule) } else { now.remove(&rule) };
                prop_assert!(changed);
                let open = verdicts(&now.iter().cloned().collect::<Vec<_>>());
                prop_assert!(within(&open, &limit) && within(&stays, &open));
            }
        }
        prop_assert_eq!(now, rules(&second).into_iter().collect::<BTreeSet<_>>());
    }
}
