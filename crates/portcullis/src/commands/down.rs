//! `portcullis down`

use std::path::PathBuf;

use crate::exit::Failure;
use crate::output;
use crate::sandbox::{self, Directory};

/// Stop what `portcullis up` started, and remove what it made
///
/// Where nothing runs there is nothing to do, and that is no error.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The directory that was given to `up` [default: portcullis in the user's state directory]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

pub(crate) fn run(args: Args) -> Result<(), Failure> {
    let path = Directory::choose(args.dir);
    let ran = sandbox::stop(&path)?;
    let what = if ran { "Stopped the sandbox in" } else { "Nothing runs in" };
    output::print(&format!("{what} {}.\n", path.display()))?;
    Ok(())
}
