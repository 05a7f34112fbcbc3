//! The datapath of a node with many frontends: how long changes take, and what packets pay for it.
//!
//! Everything runs in network namespaces. Times are of this machine; what they have to do with each other is not.
//!
//! `FRONTENDS=1000` in the environment makes it a thousand; the limits are for ten thousand. `--only changes` leaves packets
//! out, `--only packets` the rest. A limit that is missed ends it with a failure.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a bench talks")]

mod changes;
mod packets;

use std::process::ExitCode;

use portcullis_testkit::figures;
use portcullis_testkit::parts::Namespace;

// What the program has.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let only =
        arguments.iter().skip_while(|argument| *argument != "--only").nth(1).cloned().unwrap_or_default();
    let count = std::env::var("FRONTENDS").map_or(10_000, |number| number.parse().unwrap());
    if only != "packets" {
        changes::measure(count);
    }
    if only != "changes" {
        packets::measure(count);
    }
    figures::end()
}

fn row(what: &str, figure: &str, mark: &str) {
    println!("{what:<52} {figure:<40} {mark}");
}

/// Does something in the network of a host.
fn on<T: Send>(host: &Namespace, work: impl FnOnce() -> T + Send) -> T {
    host.run(work)
}
