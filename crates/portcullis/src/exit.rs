//! How the program ends: one code per kind of ending, and what is said about a failure.

use std::fmt::Write as _;
use std::process::{ExitCode, ExitStatus};

use crate::config::{Finding, Unusable, Why};

/// The exit codes. Scripts rely on them: a code never changes its meaning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    /// What was asked for is done.
    Done = 0,
    /// It was tried and failed.
    Failed = 1,
    /// The command line or the configuration is wrong; nothing was started. clap ends with this code too.
    Usage = 2,
    /// The machine lacks something: a program, a permission, a free port.
    Lacking = 3,
    /// A plan opens what was closed, and that was asked about.
    Wider = 4,
}

impl Exit {
    const ALL: [Self; 5] = [Self::Done, Self::Failed, Self::Usage, Self::Lacking, Self::Wider];

    const fn meaning(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Failed => "it failed",
            Self::Usage => "wrong usage or configuration; nothing was started",
            Self::Lacking => "this machine lacks something: a program, a permission, a free port",
            Self::Wider => "something would become reachable (plan --fail-on-wider)",
        }
    }

    /// For `--help`.
    pub(crate) fn list() -> String {
        let mut list = "Exit codes:".to_owned();
        for exit in Self::ALL {
            // Writing to a String cannot fail.
            let _ = write!(list, "\n  {}  {}", exit as u8, exit.meaning());
        }
        list
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

/// Why the program ends without having done what was asked.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) exit: Exit,
    pub(crate) warnings: Vec<Finding>,
    /// What is wrong, and with which object: a sentence each.
    pub(crate) errors: Vec<String>,
    /// The state things are in now, and what to do.
    pub(crate) notes: Vec<String>,
}

impl Failure {
    pub(crate) fn new(exit: Exit, error: impl Into<String>) -> Self {
        Self { exit, warnings: Vec::new(), errors: vec![error.into()], notes: Vec::new() }
    }

    /// Another process of ours, in the background, has ended like this. With a code of ours it has said why; with
    /// any other, or killed by a signal, it could not.
    pub(crate) fn said(status: ExitStatus) -> Self {
        let exit =
            Exit::ALL.into_iter().find(|exit| *exit != Exit::Done && Some(*exit as i32) == status.code());
        let errors = match exit {
            Some(_) => Vec::new(),
            None => vec![format!("the process in the background ended without saying why ({status})")],
        };
        Self { exit: exit.unwrap_or(Exit::Failed), warnings: Vec::new(), errors, notes: Vec::new() }
    }

    pub(crate) fn note(mut self, note: impl Into<String>) -> Self {
        self.notes.push(note.into());
        self
    }

    /// The state things are in, which is said before any advice.
    pub(crate) fn state(mut self, state: impl Into<String>) -> Self {
        self.notes.insert(0, state.into());
        self
    }
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        Self::new(Exit::Failed, chain(&error))
    }
}

impl From<Unusable> for Failure {
    fn from(unusable: Unusable) -> Self {
        let (exit, advice) = match unusable.why {
            Why::Wrong => {
                (Exit::Usage, "`portcullis show-config -m default` shows every key with its default.")
            }
            Why::Missing => {
                (Exit::Usage, "Look at --config and at PORTCULLIS_CONFIG; without both, defaults are used.")
            }
            Why::Denied => (Exit::Lacking, "Run as a user who may read it, or change its permissions."),
        };
        Self {
            exit,
            warnings: unusable.warnings,
            errors: unusable.errors.iter().map(ToString::to_string).collect(),
            notes: vec![advice.to_owned()],
        }
    }
}

/// The whole chain of causes in one sentence. Some errors already quote their cause; it is not said again.
fn chain(error: &anyhow::Error) -> String {
    let mut sentence = String::new();
    for cause in error.chain() {
        let text = cause.to_string();
        if sentence.is_empty() {
            sentence = text;
        } else if !sentence.ends_with(&text) {
            sentence = format!("{sentence}: {text}");
        }
    }
    sentence
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;

    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("reading failed: {0}")]
    struct Quoting(#[source] std::io::Error);

    #[test]
    fn what_may_not_be_read_is_lacking_and_the_rest_is_usage() {
        for (why, exit) in
            [(Why::Wrong, Exit::Usage), (Why::Missing, Exit::Usage), (Why::Denied, Exit::Lacking)]
        {
            let failure = Failure::from(Unusable { errors: Vec::new(), warnings: Vec::new(), why });
            assert_eq!(failure.exit, exit, "{why:?}");
        }
    }

    #[test]
    fn a_process_that_could_not_say_why_it_ended_is_spoken_for() {
        // As wait(2) has it: the code in the second byte, or the signal in the first.
        for (status, exit, error) in [
            (2 << 8, Exit::Usage, None),
            (3 << 8, Exit::Lacking, None),
            (101 << 8, Exit::Failed, Some("exit status: 101")),
            (0, Exit::Failed, Some("exit status: 0")),
            (9, Exit::Failed, Some("signal: 9 (SIGKILL)")),
        ] {
            let failure = Failure::said(ExitStatus::from_raw(status));
            assert_eq!(failure.exit, exit, "{status}");
            let sentence = |how| format!("the process in the background ended without saying why ({how})");
            assert_eq!(failure.errors, error.map(sentence).into_iter().collect::<Vec<_>>());
        }
    }

    #[test]
    fn a_chain_is_whole_and_says_nothing_twice() {
        let error = anyhow::Error::new(Quoting(std::io::Error::other("disk gone"))).context("cannot start");
        assert_eq!(chain(&error), "cannot start: reading failed: disk gone");
        let error = anyhow::anyhow!("disk gone").context("reading failed").context("cannot start");
        assert_eq!(chain(&error), "cannot start: reading failed: disk gone");
    }
}
