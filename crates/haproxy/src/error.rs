use std::io;
use std::path::PathBuf;
use std::time::Duration;

use portcullis_core::Problem;
use thiserror::Error;

/// Why HAProxy, or keepalived, is not as it should be.
#[derive(Debug, Error)]
pub enum Error {
    /// The program cannot be run.
    #[error("cannot run {}: install the package `{package}`, or say where the program is", program.display())]
    Program {
        /// Where it should be.
        program: PathBuf,
        /// What has it.
        package: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// It is too old.
    #[error("{} is HAProxy {version}, and 2.6 or newer is needed: install a newer one", program.display())]
    TooOld {
        /// The program.
        program: PathBuf,
        /// What it says.
        version: String,
    },
    /// The directory cannot be used.
    #[error(
        "{} cannot be the directory of HAProxy or keepalived: give an absolute path of at most 80 letters, digits, `/`, `-`, `_` and `.`",
        .0.display()
    )]
    Directory(PathBuf),
    /// A file cannot be read or written.
    #[error("cannot {what} {}", path.display())]
    File {
        /// What was to be done with it.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// HAProxy does not take the file.
    #[error(transparent)]
    Refused(Problem),
    /// It ended. The words are the same from one moment to the next: they are told where every change is news.
    #[error("{program} does not run, and is tried again at least twice a minute: {said}")]
    Ended {
        /// What.
        program: &'static str,
        /// How long it is waited.
        again: Duration,
        /// The end of its log.
        said: String,
    },
    /// A reload came to nothing.
    #[error("HAProxy did not take its new file and goes on with the old one; it is tried again: {said}")]
    Reload {
        /// The end of its log.
        said: String,
    },
    /// It does not answer.
    #[error(
        "HAProxy runs but does not answer at {}: if that lasts, end it, and it is started again",
        socket.display()
    )]
    Silent {
        /// Where it was asked.
        socket: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// It answered something else than expected.
    #[error("HAProxy answered `{command}` with: {answer}")]
    Answer {
        /// What it was told.
        command: String,
        /// What it said.
        answer: String,
    },
}

impl Error {
    /// What is wrong, with what the system said of it.
    pub fn in_full(&self) -> String {
        match std::error::Error::source(self) {
            Some(source) => format!("{self} ({source})"),
            None => self.to_string(),
        }
    }

    pub(crate) fn file(what: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::File { what, path: path.into(), source }
    }
}
