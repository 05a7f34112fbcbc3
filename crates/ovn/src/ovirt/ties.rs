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
        let [a, b, c, d, e] = [5, 3, 1, 4, 2].map(Uuid::from_u128);
        let mut ties = Ties::default();
        ties.tie(a, b);
        ties.tie(c, d);
        assert_ne!(ties.head(a), ties.head(c));
        ties.tie(b, d);
        ties.tie(a, a);
        assert_eq!([a, b, c, d].map(|row| ties.head(row)), [ties.head(a); 4]);
        assert_eq!(ties.head(e), e);
    }
}
