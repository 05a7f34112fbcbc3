use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// For how long the same words are not said again.
const QUIET: Duration = Duration::from_secs(60);

/// What was said lately.
#[derive(Debug, Default)]
pub(super) struct Words(Mutex<HashMap<(String, String), (String, Instant)>>);

impl Words {
    /// Whether words are new, or were said long ago; they are said now, then.
    pub(super) fn are_new(&self, name: &str, reason: &str, message: &str) -> bool {
        self.are_new_at(name, reason, message, Instant::now())
    }

    fn are_new_at(&self, name: &str, reason: &str, message: &str, now: Instant) -> bool {
        let mut said = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        said.retain(|_, (_, at)| now.duration_since(*at) < QUIET);
        let key = (name.to_owned(), reason.to_owned());
        if said.get(&key).is_some_and(|(last, _)| last == message) {
            return false;
        }
        said.insert(key, (message.to_owned(), now));
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_words_are_said_now_and_then() {
        let (words, start) = (Words::default(), Instant::now());
        let at = |seconds: u64, name: &str, message: &str| {
            words.are_new_at(name, "SyncFailed", message, start + Duration::from_secs(seconds))
        };
        assert!(at(0, "shop", "a"));
        assert!(!at(59, "shop", "a"));
        assert!(at(59, "other", "a"));
        assert!(at(61, "shop", "a"), "a minute later");
        assert!(at(62, "shop", "b"), "something else");
    }
}
