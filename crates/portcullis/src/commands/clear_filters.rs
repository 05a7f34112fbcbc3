//! `portcullis clear-filters`

use anyhow::Context;
use portcullis_host::Machine;
use portcullis_host::datapath::Mode;

use crate::exit::{Exit, Failure};
use crate::output;

/// Take what Portcullis put into the packet filters of this machine out of them
///
/// They stay when Portcullis stops, so that an update cuts nobody off. This is for a machine where it does not run any more, and
/// is not to: one that runs puts them back at once. What is others' is not touched.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {}

pub(crate) fn run(_: &Args) -> Result<(), Failure> {
    let lacking = |error: String| Failure::new(Exit::Lacking, error).state("Nothing was changed.");
    let machine = Machine::start().map_err(|error| lacking(error.to_string()))?;
    let runtime = tokio::runtime::Runtime::new().context("cannot start the runtime")?;
    let clearing = machine.datapath(|datapath| datapath.sync(Mode::None, &[], Vec::new()));
    let cleared = runtime.block_on(clearing).map_err(|error| lacking(error.to_string()))?;
    Ok(output::print(if cleared.rules || cleared.elements > 0 {
        "What Portcullis had in the packet filters of this machine is gone.\n"
    } else {
        "There is nothing of Portcullis in the packet filters of this machine.\n"
    })?)
}
