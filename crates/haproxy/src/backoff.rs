//! Patience with what fails again and again.

use std::time::{Duration, Instant};

/// When something that failed may be tried again: at once, and then after pauses that double, up to half a minute.
#[derive(Debug, Default)]
pub(crate) struct Backoff {
    failures: u32,
    not_before: Option<Instant>,
}

const FIRST: Duration = Duration::from_millis(250);
const LONGEST: Duration = Duration::from_secs(30);
/// What ran this long before it ended was well.
pub(crate) const WELL: Duration = Duration::from_secs(60);

impl Backoff {
    /// How long it has to be waited for.
    pub(crate) fn wait(&self) -> Option<Duration> {
        let left = self.not_before?.saturating_duration_since(Instant::now());
        (!left.is_zero()).then_some(left)
    }

    pub(crate) fn failed(&mut self) {
        let pause = FIRST.saturating_mul(1 << self.failures.min(10)).min(LONGEST);
        self.failures += 1;
        self.not_before = Some(Instant::now() + pause);
    }

    /// Whether it failed, and has not been well since.
    pub(crate) fn has_failed(&self) -> bool {
        self.failures > 0
    }

    pub(crate) fn succeeded(&mut self) {
        *self = Self::default();
    }
}
