use std::collections::HashSet;
use std::sync::Arc;

/// Keeps one copy of each short text: most of what a replica holds is the same few keys and values in every row.
#[derive(Debug, Default)]
pub(crate) struct Interner {
    known: HashSet<Arc<str>>,
    /// How many there may be before those that nobody else has are dropped.
    limit: usize,
}

/// Longer texts, such as the match of a rule, are seldom the same.
const LONGEST: usize = 64;

const LEAST_LIMIT: usize = 1024;

impl Interner {
    /// The one copy of a text.
    pub(crate) fn share(&mut self, text: &str) -> Arc<str> {
        if text.len() > LONGEST {
            return text.into();
        }
        if let Some(known) = self.known.get(text) {
            return Arc::clone(known);
        }
        if self.known.len() >= self.limit {
            self.known.retain(|text| Arc::strong_count(text) > 1);
            // Twice what is in use, so that looking through all of them is paid for by as many new ones.
            self.limit = (2 * self.known.len()).max(LEAST_LIMIT);
            self.known.shrink_to(self.limit);
        }
        let new: Arc<str> = text.into();
        self.known.insert(Arc::clone(&new));
        new
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_texts_are_one() {
        let mut interner = Interner::default();
        assert!(Arc::ptr_eq(&interner.share("name"), &interner.share("name")));
        assert!(!Arc::ptr_eq(&interner.share("name"), &interner.share("other")));
    }

    #[test]
    fn what_nobody_has_is_forgotten() {
        let mut interner = Interner::default();
        let kept = interner.share("kept");
        for number in 0..100_000 {
            interner.share(&number.to_string());
        }
        assert!(interner.known.len() <= LEAST_LIMIT, "{}", interner.known.len());
        assert!(Arc::ptr_eq(&kept, &interner.share("kept")));
    }
}
