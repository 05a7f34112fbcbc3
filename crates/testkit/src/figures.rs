//! Figures of benches, and whether they keep to their limits.

mod process;

use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

pub use process::{OtherProcess, cpu, memory, most_memory};

/// How many limits were missed so far.
static MISSED: AtomicUsize = AtomicUsize::new(0);

/// A figure that has a limit: `=` where it is kept, `✗` where it is missed, which counts.
pub fn mark(kept: bool) -> &'static str {
    if kept {
        return "=";
    }
    MISSED.fetch_add(1, Ordering::Relaxed);
    "✗ MISSED"
}

/// How a bench ends: with a failure if a limit was missed.
#[allow(clippy::print_stdout, reason = "a bench talks")]
pub fn end() -> ExitCode {
    match MISSED.load(Ordering::Relaxed) {
        0 => ExitCode::SUCCESS,
        missed => {
            println!("{missed} limits are missed.");
            ExitCode::FAILURE
        }
    }
}

/// The one in the middle.
pub fn median<T: Ord + Copy>(figures: &mut [T]) -> T {
    figures.sort_unstable();
    figures[figures.len() / 2]
}

/// The one in the middle, and the one that 99 of 100 do not exceed.
pub fn spread<T: Ord + Copy>(figures: &mut [T]) -> (T, T) {
    let middle = median(figures);
    (middle, figures[figures.len() * 99 / 100])
}

/// A time in milliseconds.
pub fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}
