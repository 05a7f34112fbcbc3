use std::path::{Path, PathBuf};

/// Why a part did not start or answer.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The program is not on this machine.
    #[error("{program} is not installed here; install it with: {install}")]
    Missing { program: String, install: String },

    /// This machine does not allow what the part needs.
    #[error("{what}. {remedy}")]
    NotPermitted { what: String, remedy: String },

    /// The program ended, or did not become ready in time. The end of its log says why.
    #[error("{name} {what}\n  Its log is {log}{tail}", log = log.display())]
    Process { name: String, what: String, log: PathBuf, tail: String },

    /// A command that was to do one thing did not.
    #[error("`{command}` failed: {output}")]
    Command { command: String, output: String },

    /// A file, a socket or the kernel refused.
    #[error("{what}")]
    Io { what: String, source: std::io::Error },

    /// Somebody asked to stop.
    #[error("interrupted before everything ran")]
    Interrupted,

    /// What was found is not what is needed.
    #[error("{0}")]
    Unsuitable(String),
}

impl Error {
    pub(crate) fn io(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> Self {
        let what = what.into();
        move |source| Error::Io { what, source }
    }

    /// A failure of a process, with the end of its log.
    pub(crate) fn process(name: &str, what: impl Into<String>, log: &Path) -> Self {
        let text =
            std::fs::read(log).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default();
        let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
        let last = lines.len().saturating_sub(LOG_LINES);
        let tail = lines[last..].iter().flat_map(|line| ["\n  | ", line]).collect();
        Error::Process { name: name.into(), what: what.into(), log: log.into(), tail }
    }
}

/// Enough to see an error and what led to it, few enough to read in a terminal.
const LOG_LINES: usize = 8;
