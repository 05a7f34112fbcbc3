//! How many calls of AWS Services take: ours beside cloud-provider-aws, and a thousand of ours.
//!
//! Both controllers run on one real Kubernetes API and go through the same phases at the same time. Each has a strict fake
//! of AWS to itself, with three nodes and two public subnets, in which every call takes 20 ms. A call counts when it is
//! sent, also if it is refused. What is counted is the same on every machine; only times are of this one.
//!
//! `cargo bench -p portcullis-controllers --bench services -- --only many` leaves the comparison out, `--only phases` the
//! thousand; `SERVICES=100` in the environment makes it a hundred. A limit that is missed ends it with a failure; the limits
//! are for a thousand, and with fewer what all share weighs more.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a bench talks")]

mod aws;
mod many;
mod phases;

use std::process::ExitCode;

use portcullis_testkit::figures;

// What the program has.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let value = |name: &str| {
        let place = arguments.iter().position(|argument| argument == name)?;
        arguments.get(place + 1).cloned()
    };
    if let Some(url) = value(many::CHILD) {
        many::child(&url);
        return ExitCode::SUCCESS;
    }
    let only = value("--only").unwrap_or_default();
    if only != "many" {
        phases::compare();
    }
    if only != "phases" {
        many::measure();
    }
    figures::end()
}
