//! The log: one event per line on standard error, for people or for machines.

use std::io;

use anyhow::Context;
use tracing_subscriber::Layer;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use crate::config::{Log, LogFormat};
use crate::output;

/// Call once, before the first event.
pub(crate) fn start(log: &Log) -> anyhow::Result<()> {
    let layer = tracing_subscriber::fmt::layer().with_writer(io::stderr);
    let layer = match log.format {
        LogFormat::Text => layer.with_ansi(output::stderr_is_coloured()).boxed(),
        // Fields beside `message` rather than in an object of their own, where log stores look for them.
        LogFormat::Json => layer.json().flatten_event(true).boxed(),
    };
    tracing_subscriber::registry()
        .with(layer.with_filter(log.level.filter()))
        .try_init()
        .context("cannot start the log")
}
