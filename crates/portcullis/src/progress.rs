//! Progress of steps that take a while: a line for each that is done, and on a terminal one for those under way.

use std::fmt::Write as _;
use std::io::{self, IsTerminal, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anstyle::{AnsiColor, Style};

const DONE: Style = AnsiColor::Green.on_default();
const FAINT: Style = Style::new().dimmed();
const WHEEL: [&str; 10] = ["⠋", "⠙", "⠹", "⠸", "⠼", "⠴", "⠦", "⠧", "⠇", "⠏"];
const TURN: Duration = Duration::from_millis(100);

/// Where there is no terminal to draw on, a step under way is mentioned this often.
const MENTION: Duration = Duration::from_secs(30);

/// Draws the steps that are under way until it is dropped.
#[derive(Debug)]
pub(crate) struct Progress {
    shared: Arc<Mutex<Shared>>,
    drawer: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    steps: Vec<(String, Instant, String)>,
    ended: bool,
}

/// A step under way. It ends with [`Step::done`], or without a word when dropped.
#[derive(Debug)]
pub(crate) struct Step {
    title: String,
    started: Instant,
    shared: Arc<Mutex<Shared>>,
}

impl Progress {
    pub(crate) fn new() -> Self {
        let shared = Arc::new(Mutex::new(Shared::default()));
        let draw = Arc::clone(&shared);
        let drawer = thread::spawn(move || if can_redraw() { draw_wheel(&draw) } else { mention(&draw) });
        Progress { shared, drawer: Some(drawer) }
    }

    pub(crate) fn step(&self, title: &str) -> Step {
        let started = Instant::now();
        lock(&self.shared).steps.push((title.to_owned(), started, String::new()));
        Step { title: title.to_owned(), started, shared: Arc::clone(&self.shared) }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        lock(&self.shared).ended = true;
        if let Some(drawer) = self.drawer.take() {
            drawer.thread().unpark();
            let _ = drawer.join();
        }
    }
}

impl Step {
    /// Says what is happening in it just now.
    pub(crate) fn note(&self, words: &str) {
        for (title, _, note) in &mut lock(&self.shared).steps {
            if *title == self.title {
                words.clone_into(note);
            }
        }
    }

    /// Ends it: a line says what came of it, and how long it took.
    pub(crate) fn done(self, result: &str) {
        let took = seconds(self.started.elapsed());
        let shared = lock(&self.shared);
        write(&format!("  {DONE}✓{DONE:#} {:<18} {result:<56} {FAINT}{took:>6}{FAINT:#}\n", self.title));
        drop(shared);
    }
}

impl Drop for Step {
    fn drop(&mut self) {
        lock(&self.shared).steps.retain(|(title, ..)| *title != self.title);
    }
}

/// Back to the start of the line, and nothing on it.
const CLEAR: &str = "\r\x1b[K";

fn draw_wheel(shared: &Mutex<Shared>) {
    for wheel in WHEEL.iter().cycle() {
        let state = lock(shared);
        if state.ended {
            raw(CLEAR);
            return;
        }
        if !state.steps.is_empty() {
            let width =
                terminal_size::terminal_size_of(io::stderr()).map_or(80, |(width, _)| usize::from(width.0));
            let line: String = under_way(&state).chars().take(width.saturating_sub(5)).collect();
            raw(&format!("{CLEAR}  {wheel} {line}"));
        }
        drop(state);
        thread::park_timeout(TURN);
    }
}

fn mention(shared: &Mutex<Shared>) {
    let mut next = Instant::now() + MENTION;
    loop {
        let state = lock(shared);
        if state.ended {
            return;
        }
        if Instant::now() >= next && !state.steps.is_empty() {
            write(&format!("  … {}\n", under_way(&state)));
            next = Instant::now() + MENTION;
        }
        drop(state);
        thread::park_timeout(TURN);
    }
}

fn under_way(state: &Shared) -> String {
    let mut line = String::new();
    for (title, started, note) in &state.steps {
        let separator = if line.is_empty() { "" } else { " · " };
        let colon = if note.is_empty() { "" } else { ": " };
        // Writing to a String cannot fail.
        let _ = write!(line, "{separator}{title} {}{colon}{note}", seconds(started.elapsed()));
    }
    line
}

fn seconds(time: Duration) -> String {
    match time.as_secs() {
        0..60 => format!("{:.1}s", time.as_secs_f32()),
        whole => format!("{}m{:02}s", whole / 60, whole % 60),
    }
}

fn lock(shared: &Mutex<Shared>) -> MutexGuard<'_, Shared> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether a line can be drawn over.
fn can_redraw() -> bool {
    io::stderr().is_terminal() && std::env::var_os("TERM").is_some_and(|term| term != "dumb")
}

/// A whole line, in colour where colours are wanted.
fn write(line: &str) {
    if can_redraw() {
        raw(CLEAR);
    }
    // Nobody is left to hear about a closed standard error.
    let _ = anstream::stderr().lock().write_all(line.as_bytes());
}

/// Past the filter for colours, which would also take out what moves the cursor.
fn raw(text: &str) {
    let _ = io::stderr().lock().write_all(text.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_read_well() {
        let table = [(0, "0.0s"), (940, "0.9s"), (59_900, "59.9s"), (60_000, "1m00s"), (252_000, "4m12s")];
        for (millis, text) in table {
            assert_eq!(seconds(Duration::from_millis(millis)), text);
        }
    }

    #[test]
    fn steps_under_way_share_a_line_until_they_are_done() {
        let progress = Progress::new();
        let (first, second) = (progress.step("first"), progress.step("second"));
        second.note("half done");
        let line = under_way(&lock(&progress.shared));
        assert!(line.starts_with("first 0.0s · second 0.0s: half done"), "{line}");
        first.done("well");
        assert!(!under_way(&lock(&progress.shared)).contains("first"));
    }
}
