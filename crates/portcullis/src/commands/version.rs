//! `portcullis version`

use std::env::consts::{ARCH, OS};

use serde::Serialize;

use crate::exit::Failure;
use crate::output::{self, Format};

pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Print the version
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// More than the version, in this form
    #[arg(short, long, value_enum, value_name = "FORM")]
    output: Option<Format>,
}

#[derive(Debug, Serialize)]
struct About {
    name: &'static str,
    version: &'static str,
    os: &'static str,
    arch: &'static str,
    build: &'static str,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let about = About {
        name: env!("CARGO_PKG_NAME"),
        version: VERSION,
        os: OS,
        arch: ARCH,
        build: if cfg!(debug_assertions) { "debug" } else { "release" },
    };
    let text = match args.output {
        None => format!("{} {}\n", about.name, about.version),
        Some(Format::Json) => output::json(&about)?,
        Some(Format::Yaml) => output::yaml(&about)?,
        Some(Format::Table) => {
            let row = [about.name, about.version, about.os, about.arch, about.build].map(str::to_owned);
            output::table(&["NAME", "VERSION", "OS", "ARCH", "BUILD"], &[row.to_vec()])
        }
    };
    output::print(&text)?;
    Ok(())
}
