//! How long is waited before something is tried again.

use std::time::Duration;

/// The pause after so many failures in a row: it doubles, from the first of these up to the last.
pub(crate) fn pause((first, most): (Duration, Duration), failures: u32) -> Duration {
    (first * 2_u32.saturating_pow(failures.saturating_sub(1)).min(1000)).min(most)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_longest() {
        let limits = (Duration::from_secs(5), Duration::from_secs(300));
        let pauses = [(1, 5), (2, 10), (3, 20), (6, 160), (7, 300), (8, 300), (u32::MAX, 300)];
        for (failures, seconds) in pauses {
            assert_eq!(pause(limits, failures), Duration::from_secs(seconds), "{failures}");
        }
    }
}
