//! Portcullis decides who may reach what, through which load balancer.

mod cli;
mod commands;
mod config;
mod exit;
mod files;
mod listen;
mod logging;
mod output;
mod progress;
mod roles;
mod sandbox;
mod signals;
mod telemetry;

use std::process::ExitCode;

/// Requests are many small things that come and go on several threads, for which this one takes the least time.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    match cli::run() {
        Ok(()) => exit::Exit::Done.into(),
        Err(failure) => {
            output::failure(&failure);
            failure.exit.into()
        }
    }
}
