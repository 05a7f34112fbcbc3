//! When packet filters are read anew: somebody may have changed them.

use std::time::Duration;

use portcullis_host::datapath::Others;
use tokio::time::Instant;
use tracing::warn;

use crate::pause::pause;

/// After so long in any case.
const ALWAYS: Duration = Duration::from_secs(300);

/// At most so often, where more was changed than could be told: mostly by others, in tables of their own.
const UNKNOWN: Duration = Duration::from_secs(30);

/// How long is waited before it is read once more, where our own table is changed again and again: at first and at most.
const AGAIN: (Duration, Duration) = (Duration::from_secs(2), Duration::from_secs(60));

/// Who changed nothing for so long does not do so again and again.
const CALM: Duration = Duration::from_secs(120);

/// What is heard of others, and when it was looked for the last time.
#[derive(Debug)]
pub(super) struct Doubt {
    last: Instant,
    changed: bool,
    unknown: bool,
    /// How often in a row our table was changed shortly after it was read.
    in_a_row: u32,
}

impl Doubt {
    pub(super) fn new(now: Instant) -> Self {
        Doubt { last: now, changed: false, unknown: false, in_a_row: 0 }
    }

    /// Takes in what was heard.
    pub(super) fn hear(&mut self, others: Others) {
        match others {
            Others::Changed(by) => {
                let by = by.as_deref().unwrap_or("somebody");
                if !self.changed {
                    warn!(
                        by,
                        "the packet filters of this node were changed by another program: they are put back"
                    );
                }
                self.changed = true;
            }
            Others::Unknown => self.unknown = true,
        }
    }

    /// Whether it is time to read them. Who asks does so.
    pub(super) fn is_due(&mut self, now: Instant) -> bool {
        let since = now.duration_since(self.last);
        let patience = if self.in_a_row == 0 { Duration::ZERO } else { pause(AGAIN, self.in_a_row) };
        let due = since >= ALWAYS || self.unknown && since >= UNKNOWN || self.changed && since >= patience;
        if due {
            let often = self.changed && since < CALM;
            self.in_a_row = if often { self.in_a_row.saturating_add(1) } else { 0 };
            (self.last, self.changed, self.unknown) = (now, false, false);
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_changed_is_read_at_once_and_less_often_by_and_by() {
        let start = Instant::now();
        let at = |seconds: u64| start + Duration::from_secs(seconds);
        let mut doubt = Doubt::new(start);
        assert!(!doubt.is_due(at(299)) && doubt.is_due(at(300)), "in any case after a while");
        doubt.hear(Others::Changed(Some("nft".to_owned())));
        assert!(doubt.is_due(at(301)), "at once");
        assert!(!doubt.is_due(at(302)), "nothing new");
        let mut due = Vec::new();
        for second in 302..490 {
            doubt.hear(Others::Changed(None));
            if doubt.is_due(at(second)) {
                due.push(second);
            }
        }
        assert_eq!(due, [303, 307, 315, 331, 363, 423, 483]);
        doubt.hear(Others::Changed(None));
        assert!(doubt.is_due(at(700)) && !doubt.is_due(at(701)), "it is forgotten");
        doubt.hear(Others::Changed(None));
        assert!(doubt.is_due(at(702)));
    }

    #[test]
    fn a_busy_neighbour_does_not_have_everything_read_over_and_over() {
        let start = Instant::now();
        let at = |seconds: u64| start + Duration::from_secs(seconds);
        let mut doubt = Doubt::new(start);
        let due = (1..100).filter(|second| {
            doubt.hear(Others::Unknown);
            doubt.is_due(at(*second))
        });
        assert_eq!(due.collect::<Vec<_>>(), [30, 60, 90]);
        // What is known to be ours does not wait for that.
        doubt.hear(Others::Changed(None));
        assert!(doubt.is_due(at(101)));
    }
}
