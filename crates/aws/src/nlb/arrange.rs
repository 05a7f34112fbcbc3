//! Rules that do not fit into one group, in several: which go where, so that at no time one is missing that is wanted
//! before and after.

use std::collections::{BTreeMap, BTreeSet};

use crate::model::Permission;

/// Rules by the group they are in, from 1 on.
pub(super) type Parts = BTreeMap<usize, BTreeSet<Permission>>;

/// What to add to groups, and what to take away.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Moves {
    pub(super) add: Parts,
    pub(super) remove: Parts,
}

/// How full groups can be.
#[derive(Clone, Copy, Debug)]
pub(super) struct Room {
    pub(super) rules: usize,
    pub(super) groups: usize,
}

/// The next moves from what is there to what is wanted. What nobody wants any more goes when `close` is set, once
/// everything wanted is somewhere. Where it has to go before that, because there is no room, what is `used` goes last.
pub(super) fn arrange(
    wanted: &Parts,
    present: &Parts,
    room: Room,
    used: &BTreeSet<Permission>,
    close: bool,
) -> Moves {
    let mut moves = Moves::default();
    let all_wanted: BTreeSet<&Permission> = wanted.values().flatten().collect();
    let mut held: BTreeSet<&Permission> = present.values().flatten().collect();
    let free = |part: usize, moves: &Moves| {
        let there =
            present.get(&part).map_or(0, BTreeSet::len) + moves.add.get(&part).map_or(0, BTreeSet::len);
        room.rules.saturating_sub(there)
    };
    for (part, permissions) in wanted {
        let there = present.get(part);
        for permission in permissions.iter().filter(|one| there.is_none_or(|there| !there.contains(*one))) {
            if free(*part, &moves) > 0 {
                moves.add.entry(*part).or_default().insert(permission.clone());
                held.insert(permission);
            }
        }
    }
    let mut homeless: Vec<&Permission> =
        all_wanted.iter().copied().filter(|one| !held.contains(one)).collect();
    // Where there is room, until their own place has some.
    for part in 1..=room.groups {
        while free(part, &moves) > 0
            && let Some(permission) = homeless.pop()
        {
            moves.add.entry(part).or_default().insert(permission.clone());
        }
    }
    let complete = all_wanted.iter().all(|one| present.values().any(|there| there.contains(*one)));
    let mut unwanted = Vec::new();
    for (part, there) in present {
        for permission in there {
            let place = wanted.iter().find(|(_, permissions)| permissions.contains(permission));
            let go = match place {
                Some((own, _)) if own == part => false,
                Some((own, _)) => present.get(own).is_some_and(|there| there.contains(permission)),
                None => close && complete,
            };
            if go {
                moves.remove.entry(*part).or_default().insert(permission.clone());
            } else if place.is_none() {
                unwanted.push((used.contains(permission), *part, permission));
            }
        }
    }
    // Groups are full up to the last: some of the old must go before the new can come.
    let freed: usize = moves.remove.values().map(BTreeSet::len).sum();
    unwanted.sort_unstable();
    for (_, part, permission) in unwanted.into_iter().take(homeless.len().saturating_sub(freed)) {
        moves.remove.entry(part).or_default().insert(permission.clone());
    }
    moves
}

#[cfg(test)]
mod tests {
    use super::super::rules::spread;
    use super::*;
    use crate::model::Peer;
    use proptest::prelude::*;

    fn permission(number: u16) -> Permission {
        Permission::ports("tcp", number, number, Peer::Group("g".into()))
    }

    fn set(numbers: &BTreeSet<u16>) -> BTreeSet<Permission> {
        numbers.iter().map(|number| permission(*number)).collect()
    }

    proptest! {
        /// From anything to anything: it ends, in order, nothing that stays is ever missing, and no group is too full.
        #[test]
        fn gets_there_without_a_gap(
            before in prop::collection::btree_set(0_u16..60, 0..30),
            after in prop::collection::btree_set(0_u16..60, 0..30),
        ) {
            // Not always is there room for both.
            let room = Room { rules: 8, groups: 4 };
            let (before, after) = (set(&before), set(&after));
            let wanted = spread(&after, room.rules);
            let mut present = spread(&before, room.rules);
            for round in 0.. {
                prop_assert!(round < 40, "it does not end");
                let moves = arrange(&wanted, &present, room, &BTreeSet::new(), true);
                if moves == Moves::default() {
                    break;
                }
                for (part, added) in moves.add {
                    let there = present.entry(part).or_default();
                    there.extend(added);
                    prop_assert!(there.len() <= room.rules);
                }
                // Adding comes first, and both may be seen.
                for (part, removed) in moves.remove {
                    let there = present.entry(part).or_default();
                    there.retain(|one| !removed.contains(one));
                }
                present.retain(|_, there| !there.is_empty());
                let held: BTreeSet<&Permission> = present.values().flatten().collect();
                for one in before.intersection(&after) {
                    prop_assert!(held.contains(one), "{one} is missing");
                }
                for one in &held {
                    prop_assert!(before.contains(*one) || after.contains(*one));
                }
            }
            prop_assert_eq!(present, wanted);
        }
    }

    #[test]
    fn the_old_stays_until_the_new_is_there() {
        let room = Room { rules: 60, groups: 4 };
        let (old, new) = (set(&[1].into()), set(&[2].into()));
        let (wanted, present) = (spread(&new, 60), spread(&old, 60));
        let none = BTreeSet::new();
        let moves = arrange(&wanted, &present, room, &none, true);
        assert_eq!((moves.add, moves.remove), (spread(&new, 60), Parts::new()));
        let both = spread(&[permission(1), permission(2)].into(), 60);
        assert_eq!(arrange(&wanted, &both, room, &none, false), Moves::default());
        assert_eq!(arrange(&wanted, &both, room, &none, true).remove, spread(&old, 60));
    }
}
