//! `portcullis completions`

use clap::CommandFactory;
use clap_complete::Shell;

use crate::cli::Cli;
use crate::exit::Failure;
use crate::output;

/// Print a completion script for a shell
///
/// For example, for bash: source <(portcullis completions bash)
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    shell: Shell,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    // Into memory first: clap_complete panics when the reader closes the pipe.
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "portcullis", &mut script);
    output::print(&String::from_utf8_lossy(&script))?;
    Ok(())
}
