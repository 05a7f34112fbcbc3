//! Readiness: each role says for itself whether it can do its work, and if not, what is missing.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// All checks of the process. Clones share them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Readiness {
    checks: Arc<Mutex<BTreeMap<&'static str, State>>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum State {
    Ready,
    NotReady(String),
}

/// The handle by which one role reports. When it is dropped, the role has ended and the check is not ready: a
/// role that dies must not stay ready for ever.
#[derive(Debug)]
#[must_use = "a check is not ready any more once it is dropped"]
pub(crate) struct Check {
    name: &'static str,
    readiness: Readiness,
}

impl Readiness {
    /// A new check, not ready until it says so.
    pub(crate) fn register(&self, name: &'static str) -> Check {
        let check = Check { name, readiness: self.clone() };
        check.not_ready("starting");
        check
    }

    /// The checks by name, as they are now.
    pub(crate) fn states(&self) -> BTreeMap<&'static str, State> {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<&'static str, State>> {
        // Each write is a single insert, so a panic elsewhere cannot have left the map half changed.
        self.checks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Check {
    pub(crate) fn ready(&self) {
        self.set(State::Ready);
    }

    /// `reason` completes the line "name: not ready: …": say what is missing.
    pub(crate) fn not_ready(&self, reason: impl Into<String>) {
        self.set(State::NotReady(reason.into()));
    }

    fn set(&self, state: State) {
        self.readiness.lock().insert(self.name, state);
    }
}

impl Drop for Check {
    fn drop(&mut self) {
        self.not_ready("has ended");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_check_reports_until_it_is_dropped() {
        let readiness = Readiness::default();
        let state = |name| readiness.states().remove(name).unwrap();
        let check = readiness.register("ovn");
        assert_eq!(state("ovn"), State::NotReady("starting".to_owned()));
        check.ready();
        assert_eq!(state("ovn"), State::Ready);
        check.not_ready("no northbound database");
        assert_eq!(state("ovn"), State::NotReady("no northbound database".to_owned()));
        check.ready();
        drop(check);
        assert_eq!(state("ovn"), State::NotReady("has ended".to_owned()));
    }
}
