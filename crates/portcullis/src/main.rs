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

fn main() -> ExitCode {
    match cli::run() {
        Ok(()) => exit::Exit::Done.into(),
        Err(failure) => {
            output::failure(&failure);
            failure.exit.into()
        }
    }
}
