use std::collections::HashMap;
use std::sync::{PoisonError, RwLock};
use std::time::Instant;

use aws_lc_rs::digest::{SHA256, digest};

/// What was found out about tokens, for a while. Tokens themselves are not kept, only their digests.
#[derive(Debug)]
pub(super) struct Cache<T> {
    entries: RwLock<HashMap<[u8; 32], (T, Instant)>>,
    /// How much of it there can be.
    most: usize,
}

impl<T: Clone> Cache<T> {
    pub(super) fn new(most: usize) -> Self {
        Cache { entries: RwLock::default(), most }
    }

    /// What is known of a token now.
    pub(super) fn get(&self, token: &str, now: Instant) -> Option<T> {
        let entries = self.entries.read().unwrap_or_else(PoisonError::into_inner);
        entries.get(&key(token)).filter(|(_, until)| now < *until).map(|(value, _)| value.clone())
    }

    /// Remembers something about a token until a moment.
    pub(super) fn put(&self, token: &str, value: T, until: Instant, now: Instant) {
        let mut entries = self.entries.write().unwrap_or_else(PoisonError::into_inner);
        if entries.len() >= self.most {
            entries.retain(|_, (_, until)| now < *until);
        }
        // So many tokens at once are rare: to ask for them again costs less than to keep them in order.
        if entries.len() >= self.most {
            entries.clear();
        }
        entries.insert(key(token), (value, until));
    }
}

fn key(token: &str) -> [u8; 32] {
    let mut key = [0; 32];
    key.copy_from_slice(digest(&SHA256, token.as_bytes()).as_ref());
    key
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn what_is_remembered_ends_and_is_never_too_much() {
        let cache = Cache::new(3);
        let start = Instant::now();
        let after = |seconds| start + Duration::from_secs(seconds);
        cache.put("a", 1, after(10), start);
        assert_eq!(
            (cache.get("a", after(9)), cache.get("a", after(10)), cache.get("b", start)),
            (Some(1), None, None)
        );
        cache.put("b", 2, after(20), start);
        cache.put("c", 3, after(20), start);
        cache.put("d", 4, after(20), after(15));
        assert_eq!((cache.get("b", after(15)), cache.get("d", after(15))), (Some(2), Some(4)));
        cache.put("e", 5, after(20), after(15));
        assert_eq!((cache.get("b", after(15)), cache.get("e", after(15))), (None, Some(5)));
        assert!(cache.entries.read().unwrap().len() <= 3);
    }
}
