//! What was called, and what is to go wrong with it.

use std::collections::BTreeMap;
use std::time::Duration;

/// A call, before it is done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// Counts all calls from 1 on, in the order in which they came.
    pub number: u64,
    /// What was called.
    pub action: String,
    /// Whether it is to change something.
    pub mutating: bool,
    /// The key it claims to be signed with; empty where it is not signed.
    pub key: String,
    /// All parameters as they were sent, but for the action and the version.
    pub parameters: BTreeMap<String, String>,
}

impl Call {
    /// A parameter; empty where there is none.
    pub fn parameter(&self, name: &str) -> &str {
        self.parameters.get(name).map(String::as_str).unwrap_or_default()
    }
}

/// A call, and how it ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Logged {
    /// The call.
    pub call: Call,
    /// How it ended.
    pub end: End,
}

/// How a call ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// It was done, and its caller was told.
    Done,
    /// It was refused with this code.
    Refused(String),
    /// It was not done, and its caller was told nothing.
    Lost,
    /// It was done, and its caller was told nothing.
    DoneUnheard,
}

/// What goes wrong with a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Nothing.
    None,
    /// There were too many calls.
    Throttle,
    /// It is refused with this code and status.
    Error(String, u16),
    /// AWS broke.
    InternalError,
    /// The connection is closed, and nothing is done.
    DropBefore,
    /// It is done, and the connection is closed.
    DropAfter,
    /// It takes longer.
    Latency(Duration),
}
