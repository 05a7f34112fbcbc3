//! Where programs of a node listen. One that is started anew has its port when it is back, whoever asked for it meanwhile.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use portcullis_host::claims::Listening;
use tokio::time::Instant;

/// How much longer than usual it is waited for programs after a start of ours: the machine may have been started, too, and some of
/// its programs are pods.
const AFTER_A_START: u32 = 5;

/// Where programs listen, or did a moment ago.
#[derive(Debug)]
pub(super) struct Listeners {
    /// For so long a port stays the node's.
    grace: Duration,
    /// Each until when it counts, if nobody is seen there again.
    until: BTreeMap<Listening, Instant>,
}

impl Listeners {
    pub(super) fn new(grace: Duration) -> Self {
        Listeners { grace, until: BTreeMap::new() }
    }

    /// Somebody listened there before this was started.
    pub(super) fn recall(&mut self, before: impl IntoIterator<Item = Listening>, now: Instant) {
        let until = now + self.grace * AFTER_A_START;
        self.until.extend(before.into_iter().map(|one| (one, until)));
    }

    /// Where somebody counts as listening, by where somebody listens now.
    pub(super) fn look(&mut self, now_there: BTreeSet<Listening>, now: Instant) -> BTreeSet<Listening> {
        for one in now_there {
            let until = self.until.entry(one).or_insert(now);
            *until = (*until).max(now + self.grace);
        }
        self.until.retain(|_, until| *until > now);
        self.until.keys().copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use portcullis_core::Protocol;
    use portcullis_host::claims::Port;

    use super::*;

    #[test]
    fn a_program_that_is_started_anew_has_its_port() {
        let grace = Duration::from_secs(60);
        let at = |number| Listening { port: Port { protocol: Protocol::TCP, number }, address: None };
        let start = Instant::now();
        let mut listeners = Listeners::new(grace);
        listeners.recall([at(9100), at(9200)], start);
        let mut numbers = |there: &[u16], seconds: u64| -> Vec<u16> {
            let there = there.iter().copied().map(at).collect();
            let found = listeners.look(there, start + Duration::from_secs(seconds));
            found.iter().map(|one| one.port.number).collect()
        };
        assert_eq!(numbers(&[22], 0), [22, 9100, 9200], "what was there before counts");
        // One is back, and the other is not.
        assert_eq!(numbers(&[22, 9100], 299), [22, 9100, 9200]);
        assert_eq!(numbers(&[22, 9100], 300), [22, 9100]);
        assert_eq!(numbers(&[9100], 359), [22, 9100], "it may only be started anew");
        assert_eq!(numbers(&[9100], 360), [9100]);
        assert_eq!(numbers(&[], 419), [9100]);
        assert_eq!(numbers(&[], 420), [] as [u16; 0]);
    }
}
