use std::collections::BTreeSet;

use super::{Element, Place, Ruleset, Skeleton};

/// How to get from one ruleset to another. Rules come first that have room for both; then every frontend changes, each
/// in one step; then rules go that nothing needs any more.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// The rules to have before anything else; none when those that are there will do.
    pub grow: Option<Skeleton>,
    /// What changes of each frontend. One of them is never split between two batches.
    pub changes: Vec<Change>,
    /// What to do with the rules at last.
    pub finish: Finish,
}

/// What happens to the rules once every frontend has changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Finish {
    /// They stay.
    #[default]
    Stay,
    /// These are enough.
    Shrink(Skeleton),
    /// The table goes.
    Remove,
}

/// What changes of one frontend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// Where the frontend is.
    pub place: Place,
    /// The elements that go.
    pub remove: Vec<Element>,
    /// The elements that come.
    pub add: Vec<Element>,
}

impl Change {
    /// How many elements come or go.
    pub fn len(&self) -> usize {
        self.add.len() + self.remove.len()
    }

    /// Whether nothing changes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// What to do about `before` to have `after`.
pub fn difference(before: &Ruleset, after: &Ruleset) -> Plan {
    let Some(wanted) = &after.skeleton else {
        // The table takes its elements along.
        let finish = if before.skeleton.is_some() { Finish::Remove } else { Finish::Stay };
        return Plan { finish, ..Plan::default() };
    };
    let both = before.skeleton.as_ref().map_or_else(|| wanted.clone(), |there| there.union(wanted));
    let finish = if both == *wanted { Finish::Stay } else { Finish::Shrink(wanted.clone()) };
    let grow = (before.skeleton.as_ref() != Some(&both)).then_some(both);
    let places: BTreeSet<&Place> = before.frontends.keys().chain(after.frontends.keys()).collect();
    let changes = places.into_iter().filter_map(|place| change(*place, before, after)).collect();
    Plan { grow, changes, finish }
}

fn change(place: Place, before: &Ruleset, after: &Ruleset) -> Option<Change> {
    let [before, after] =
        [before, after].map(|ruleset| ruleset.frontends.get(&place).map(Vec::as_slice).unwrap_or_default());
    if before == after {
        return None;
    }
    // What came to one owner is not what came to the next.
    let owner = |elements: &[Element]| {
        elements.iter().find(|element| matches!(element, Element::Frontend(_))).cloned()
    };
    let passes = owner(before) != owner(after);
    let counts = |element: &Element| matches!(element, Element::Arrived | Element::Dropped);
    let without = |these: &[Element], those: &[Element]| {
        let goes = |element: &&Element| passes && counts(element) || those.binary_search(element).is_err();
        these.iter().filter(goes).cloned().collect()
    };
    Some(Change { place, remove: without(before, after), add: without(after, before) })
}
