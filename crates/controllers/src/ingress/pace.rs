//! Two who put back what the other changes would do so for ever: one of them has to be slow.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// So often something is put back at once. After that every pause is twice as long as the one before.
const AT_ONCE: u32 = 3;
const FIRST: Duration = Duration::from_secs(1);

/// The longest that anything is left that lets in whom it should not.
pub(super) const SOON: Duration = Duration::from_secs(10);

/// How something that somebody else changes is dealt with.
struct Manner {
    /// The longest pause.
    longest: Duration,
    /// What stays as it was put back for so long is at peace.
    held: Duration,
}

/// What lets in whom it should not is never left for long. Whoever writes it again at once has it so anyway; but who gives up, or
/// only comes now and then, must not have it stand because of a pause.
const OPEN: Manner = Manner { longest: SOON, held: Duration::from_secs(60) };

/// Everything else can wait, and costs a rollout each time.
const OTHER: Manner = Manner { longest: Duration::from_secs(600), held: Duration::from_secs(1200) };

/// How often what nobody asked for anew was put back.
#[derive(Debug, Default)]
pub(super) struct Pace(Mutex<HashMap<Key, Corrections>>);

/// An object, by the name of its `IngressController`, its kind and its own name.
type Key = (String, &'static str, String);

#[derive(Debug)]
struct Corrections {
    /// What was asked for.
    generation: Option<i64>,
    count: u32,
    last: Instant,
}

/// The pace of one `IngressController`, as somebody asked for it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Paced<'a> {
    pub(super) pace: &'a Pace,
    pub(super) controller: &'a str,
    pub(super) generation: Option<i64>,
}

impl Paced<'_> {
    /// How long an object must be left before it is put back. What is asked for anew never has to.
    pub(super) fn wait(&self, kind: &'static str, name: &str, is_open: bool, now: Instant) -> Duration {
        let mut all = self.pace.lock();
        let key = (self.controller.to_owned(), kind, name.to_owned());
        let Some(one) = all.get(&key) else { return Duration::ZERO };
        let manner = if is_open { OPEN } else { OTHER };
        let since = now.duration_since(one.last);
        if one.generation != self.generation || since >= manner.held {
            all.remove(&key);
            return Duration::ZERO;
        }
        let pause = match one.count.checked_sub(AT_ONCE) {
            None => Duration::ZERO,
            Some(more) => FIRST.saturating_mul(2_u32.saturating_pow(more)).min(manner.longest),
        };
        pause.saturating_sub(since)
    }

    /// Notes that it was put back.
    pub(super) fn corrected(&self, kind: &'static str, name: &str, now: Instant) {
        let mut all = self.pace.lock();
        let key = (self.controller.to_owned(), kind, name.to_owned());
        let before = all.get(&key).filter(|one| one.generation == self.generation).map_or(0, |one| one.count);
        let count = before.saturating_add(1);
        all.insert(key, Corrections { generation: self.generation, count, last: now });
    }
}

impl Pace {
    /// Forgets an `IngressController` that is gone.
    pub(super) fn forget(&self, controller: &str) {
        self.lock().retain(|(owner, ..), _| owner != controller);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Key, Corrections>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How often somebody who writes every tenth of a second is corrected within a time.
    fn corrections(is_open: bool, seconds: u64) -> usize {
        let (pace, start) = (Pace::default(), Instant::now());
        let paced = Paced { pace: &pace, controller: "shop", generation: Some(1) };
        let due = |tenth: &u64| {
            let now = start + Duration::from_millis(tenth * 100);
            let due = paced.wait("Service", "router-shop", is_open, now).is_zero();
            if due {
                paced.corrected("Service", "router-shop", now);
            }
            due
        };
        (0..seconds * 10).filter(due).count()
    }

    #[test]
    fn who_is_corrected_again_and_again_waits_longer_and_longer() {
        // Three at once, and after 1, 2, 4 … 512 seconds.
        assert_eq!(corrections(false, 60), 3 + 5);
        assert_eq!(corrections(false, 1200), 3 + 10);
        assert!(corrections(false, 24 * 3600) < 3 + 10 + 24 * 6 + 2);
    }

    #[test]
    fn what_lets_others_in_is_not_left_for_long() {
        assert_eq!(corrections(true, 60), 3 + 4 + 4, "1, 2, 4, 8 and every 10 seconds");
        let (pace, start) = (Pace::default(), Instant::now());
        let paced = Paced { pace: &pace, controller: "shop", generation: Some(1) };
        for _ in 0..100 {
            paced.corrected("Service", "router-shop", start);
        }
        let wait = |is_open, seconds| {
            paced.wait("Service", "router-shop", is_open, start + Duration::from_secs(seconds)).as_secs()
        };
        assert_eq!((wait(false, 1), wait(true, 1), wait(true, 10)), (599, 9, 0));
        assert_eq!(wait(true, 60), 0, "it was at peace");
    }

    #[test]
    fn each_has_its_own_pace() {
        let (pace, now) = (Pace::default(), Instant::now());
        let paced = |controller, generation| Paced { pace: &pace, controller, generation };
        let shop = paced("shop", Some(1));
        for _ in 0..9 {
            shop.corrected("Service", "router-shop", now);
        }
        let is_free = |paced: Paced<'_>, kind| paced.wait(kind, "router-shop", false, now).is_zero();
        assert!(!is_free(shop, "Service"));
        assert!(is_free(shop, "Deployment"));
        assert!(is_free(paced("other", Some(1)), "Service"));
        pace.forget("other");
        assert!(!is_free(shop, "Service"));
        assert!(is_free(paced("shop", Some(2)), "Service"), "something else is asked for");
        assert!(is_free(shop, "Service"), "and counts anew");
    }
}
