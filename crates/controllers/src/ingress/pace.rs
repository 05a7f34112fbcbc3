//! Two who put back what the other changes would do so for ever: one of them has to be slow.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// As often as somebody is corrected within the time.
const OFTEN: usize = 10;
const WITHIN: Duration = Duration::from_secs(60);

/// How often what nobody asked for anew was put back.
#[derive(Debug, Default)]
pub(super) struct Pace(Mutex<HashMap<String, Corrections>>);

#[derive(Debug, Default)]
struct Corrections {
    /// What was asked for.
    generation: Option<i64>,
    times: VecDeque<Instant>,
}

impl Pace {
    /// Whether something may be put back now. What is asked for anew always may.
    pub(super) fn allows(&self, name: &str, generation: Option<i64>, now: Instant) -> bool {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(one) = all.get_mut(name) else { return true };
        if one.generation != generation {
            all.remove(name);
            return true;
        }
        while one.times.front().is_some_and(|time| now.duration_since(*time) >= WITHIN) {
            one.times.pop_front();
        }
        one.times.len() < OFTEN
    }

    /// Notes that it was.
    pub(super) fn corrected(&self, name: &str, generation: Option<i64>, now: Instant) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let one = all.entry(name.to_owned()).or_default();
        one.generation = generation;
        one.times.push_back(now);
    }

    /// Forgets what is gone.
    pub(super) fn forget(&self, name: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_corrected_too_often_waits() {
        let (pace, start) = (Pace::default(), Instant::now());
        let at = |seconds: u64| start + Duration::from_secs(seconds);
        for second in 0..10 {
            assert!(pace.allows("shop", Some(1), at(second)));
            pace.corrected("shop", Some(1), at(second));
        }
        assert!(!pace.allows("shop", Some(1), at(10)));
        assert!(pace.allows("other", Some(1), at(10)));
        assert!(pace.allows("shop", Some(1), at(60)), "the first is a minute ago");
        assert!(pace.allows("shop", Some(2), at(10)), "something else is asked for");
    }
}
