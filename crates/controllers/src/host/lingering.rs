//! Filters that stay for a while after those whom they were for have gone: whoever forwards packets may not have heard of it yet,
//! and would let everybody in.

use std::collections::BTreeMap;
use std::time::Duration;

use portcullis_host::datapath::Place;
use tokio::time::Instant;

/// How often it is looked whose time is over: there may be as many as Services were deleted.
const LOOK: Duration = Duration::from_secs(1);

/// Places that nobody has any more, each until when it is filtered all the same.
#[derive(Debug)]
pub(super) struct Lingering {
    grace: Duration,
    until: BTreeMap<Place, Instant>,
    looked: Option<Instant>,
}

impl Lingering {
    pub(super) fn new(grace: Duration) -> Self {
        Lingering { grace, until: BTreeMap::new(), looked: None }
    }

    /// Nobody has a place any more.
    pub(super) fn enter(&mut self, place: Place, now: Instant) {
        self.until.insert(place, now + self.grace);
    }

    /// Somebody has it.
    pub(super) fn leave(&mut self, place: &Place) {
        self.until.remove(place);
    }

    /// Takes out those whose time is over, and those that somebody has by now; nothing, if it was looked a moment ago.
    pub(super) fn over(&mut self, now: Instant, is_had: impl Fn(&Place) -> bool) -> Vec<Place> {
        if self.looked.is_some_and(|looked| now < looked + LOOK) {
            return Vec::new();
        }
        self.looked = Some(now);
        let over = self.until.extract_if(.., |place, until| *until <= now || is_had(place));
        over.map(|(place, _)| place).collect()
    }

    pub(super) fn places(&self) -> impl Iterator<Item = &Place> {
        self.until.keys()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.until.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use portcullis_core::Protocol;

    use super::*;

    #[test]
    fn a_place_is_filtered_until_its_time_is_over_or_somebody_has_it() {
        let place = |port| Place::new("192.0.2.7".parse().unwrap(), Protocol::TCP, port).unwrap();
        let start = Instant::now();
        let after = |seconds| start + Duration::from_secs(seconds);
        let mut lingering = Lingering::new(Duration::from_secs(60));
        for port in [80, 81, 82] {
            lingering.enter(place(port), start);
        }
        assert_eq!(lingering.over(after(1), |had| had.port() == 81), [place(81)]);
        assert_eq!(lingering.over(after(1), |had| had.port() == 82), [], "it is not looked all the time");
        lingering.leave(&place(80));
        assert_eq!(lingering.over(after(59), |_| false), []);
        lingering.enter(place(80), after(59));
        assert_eq!(lingering.over(after(60), |_| false), [place(82)]);
        assert_eq!(lingering.places().collect::<Vec<_>>(), [&place(80)]);
        assert_eq!(lingering.over(after(119), |_| false), [place(80)]);
        assert!(lingering.is_empty());
    }
}
