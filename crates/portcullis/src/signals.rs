use anyhow::Context;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// The signals that ask a program to end.
#[derive(Debug)]
pub(crate) struct Signals {
    term: Signal,
    int: Signal,
    hang_up: Signal,
}

impl Signals {
    pub(crate) fn new() -> anyhow::Result<Self> {
        let listen = |kind| signal(kind).context("cannot listen for signals");
        Ok(Self {
            term: listen(SignalKind::terminate())?,
            int: listen(SignalKind::interrupt())?,
            hang_up: listen(SignalKind::hangup())?,
        })
    }

    pub(crate) async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.term.recv() => "SIGTERM",
            _ = self.int.recv() => "SIGINT",
            // The terminal is gone.
            _ = self.hang_up.recv() => "SIGHUP",
        }
    }
}
