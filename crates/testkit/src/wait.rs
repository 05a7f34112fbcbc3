use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Waits until `holds`, which it asks again and again, and fails the test after a minute: long enough for a busy
/// machine, so that only what never happens fails.
#[track_caller]
pub fn eventually(what: &str, holds: impl FnMut() -> bool) {
    eventually_within(Duration::from_secs(60), what, holds);
}

/// The same for what takes its time on an idle machine, too.
#[track_caller]
pub fn eventually_within(patience: Duration, what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + patience;
    while !holds() {
        assert!(Instant::now() < deadline, "after {} s it still is not so that {what}", patience.as_secs());
        sleep(Duration::from_millis(50));
    }
}

/// The processes that have `path` on their command line, or work in a directory of it: numbers and command lines.
pub fn processes_of(path: &Path) -> Vec<(u32, String)> {
    let processes = std::fs::read_dir("/proc").unwrap_or_else(|error| panic!("cannot read /proc: {error}"));
    processes
        .flatten()
        .filter_map(|entry| {
            let number = entry.file_name().to_str()?.parse().ok()?;
            let line = std::fs::read(entry.path().join("cmdline")).ok()?;
            let line = String::from_utf8_lossy(&line).replace('\0', " ");
            let works_in_it =
                std::fs::read_link(entry.path().join("cwd")).is_ok_and(|cwd| cwd.starts_with(path));
            // The shell that removes a directory after the last process ends is not one of them.
            let names_it = line.contains(&*path.to_string_lossy()) && !line.contains("rm -rf");
            (works_in_it || names_it).then_some((number, line))
        })
        .collect()
}
