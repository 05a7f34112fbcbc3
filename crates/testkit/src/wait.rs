use std::thread::sleep;
use std::time::{Duration, Instant};

/// Waits until `holds`, which it asks again and again, and fails the test after half a minute: long enough
/// for a busy machine, so that only what never happens fails.
#[track_caller]
pub fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !holds() {
        assert!(Instant::now() < deadline, "after 30 s it still is not so that {what}");
        sleep(Duration::from_millis(50));
    }
}
