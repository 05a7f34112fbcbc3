use std::path::Path;
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

/// The processes that have `path` on their command line: their numbers and command lines.
pub fn processes_of(path: &Path) -> Vec<(u32, String)> {
    let path = path.to_string_lossy();
    let processes = std::fs::read_dir("/proc").unwrap_or_else(|error| panic!("cannot read /proc: {error}"));
    processes
        .flatten()
        .filter_map(|entry| {
            let number = entry.file_name().to_str()?.parse().ok()?;
            let line = std::fs::read(entry.path().join("cmdline")).ok()?;
            let line = String::from_utf8_lossy(&line).replace('\0', " ");
            // The shell that removes a directory after the last process ends is not one of them.
            (line.contains(&*path) && !line.contains("rm -rf")).then_some((number, line))
        })
        .collect()
}
