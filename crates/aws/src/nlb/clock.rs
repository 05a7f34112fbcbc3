//! What time it is.

use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

/// What time it is, for whoever holds members back.
#[derive(Clone)]
pub struct Clock(Arc<dyn Fn() -> SystemTime + Send + Sync>);

impl Clock {
    /// One that says this, for tests: they have no minutes to wait.
    pub fn new(now: impl Fn() -> SystemTime + Send + Sync + 'static) -> Self {
        Clock(Arc::new(now))
    }

    pub(super) fn now(&self) -> SystemTime {
        (self.0)()
    }
}

impl Default for Clock {
    fn default() -> Self {
        Clock::new(SystemTime::now)
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Clock")
    }
}
