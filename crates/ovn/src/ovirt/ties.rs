//! Which rows hang together.

use std::collections::BTreeMap;

use uuid::Uuid;

/// Rows, and those that one of them stands for: rows that are tied, directly or through others, have the same one.
#[derive(Clone, Debug, Default)]
pub(super) struct Ties(BTreeMap<Uuid, Uuid>);

impl Ties {
    /// The row that stands for all that are tied to this one.
    pub(super) fn head(&self, row: Uuid) -> Uuid {
        let mut head = row;
        while let Some(next) = self.0.get(&head).filter(|next| **next != head) {
            head = *next;
        }
        head
    }

    /// Ties two rows, and with them all that are tied to either.
    pub(super) fn tie(&mut self, one: Uuid, other: Uuid) {
        let (one, other) = (self.head(one), self.head(other));
        // The larger points to the smaller, so there is no way round, and chains stay short enough for a database.
        self.0.insert(one.max(other), one.min(other));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ties_reach_through_others() {
        let row = Uuid::from_u128;
        let mut ties = Ties::default();
        ties.tie(row(5), row(3));
        ties.tie(row(1), row(4));
        assert_ne!(ties.head(row(5)), ties.head(row(1)));
        ties.tie(row(3), row(4));
        ties.tie(row(5), row(5));
        assert_eq!([1, 3, 4, 5].map(|number| ties.head(row(number))), [ties.head(row(5)); 4]);
        assert_eq!(ties.head(row(2)), row(2));
    }
}
