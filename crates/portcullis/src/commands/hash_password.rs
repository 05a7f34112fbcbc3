//! `portcullis hash-password`

use std::io::{self, BufRead, IsTerminal, Read};

use anyhow::Context;
use nix::sys::termios::{LocalFlags, SetArg, Termios, tcgetattr, tcsetattr};
use portcullis_networking::identity::{PasswordHash, Secret};
use tokio::task::spawn_blocking;

use crate::exit::{Exit, Failure};
use crate::output;
use crate::signals::Signals;

/// Print the hash of a password, for `identity.local.users[].password`
///
/// The password is asked for twice on a terminal, and not shown; elsewhere it is the one line of standard input. It is
/// never an argument: those can be seen by every user of this machine. The hash is argon2id's, in PHC form, with a
/// salt of its own: twice the same password gives two hashes.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {}

/// More bytes than any password has.
const LONGEST: u64 = 4096;

pub(crate) fn run(_: &Args) -> Result<(), Failure> {
    let password = if io::stdin().is_terminal() { ask()? } else { only_line(io::stdin())? };
    if password.reveal().is_empty() {
        return Err(Failure::new(Exit::Usage, "the password is empty").note("Nothing was printed."));
    }
    output::print(&format!("{}\n", PasswordHash::of(password.reveal()).reveal()))?;
    Ok(())
}

/// The whole input, which may end with a line break.
fn only_line(input: impl Read) -> Result<Secret, Failure> {
    let mut text = String::new();
    // A file given by mistake need not be read to its end.
    input
        .take(LONGEST + 1)
        .read_to_string(&mut text)
        .context("cannot read the password from standard input")?;
    if text.len() > usize::try_from(LONGEST).unwrap_or(usize::MAX) {
        let error = format!("standard input has more than {LONGEST} bytes: no password is so long");
        return Err(Failure::new(Exit::Usage, error).note("Nothing was printed."));
    }
    let line = text.strip_suffix('\n').unwrap_or(&text);
    let line = line.strip_suffix('\r').unwrap_or(line);
    if line.contains(['\n', '\r']) {
        let error = "standard input has more than one line: a password is one";
        return Err(Failure::new(Exit::Usage, error).note("Nothing was printed."));
    }
    Ok(Secret::new(line))
}

/// Asks on the terminal, twice.
fn ask() -> Result<Secret, Failure> {
    let runtime = tokio::runtime::Runtime::new().context("cannot start the runtime")?;
    let answer = runtime.block_on(async {
        let mut signals = Signals::new()?;
        // Dropped however this ends, Ctrl-C too: a terminal must not be left silent.
        let _silence = Silence::new()?;
        tokio::select! {
            asked = spawn_blocking(ask_twice) => asked.context("the question broke down")?,
            signal = signals.next() => {
                output::stderr("\n");
                Err(Failure::new(Exit::Failed, format!("interrupted by {signal}")).note("Nothing was printed."))
            }
        }
    });
    // After a signal a thread still waits for a line.
    runtime.shutdown_background();
    answer
}

fn ask_twice() -> Result<Secret, Failure> {
    let [first, second] = ["Password: ", "Again: "].map(|question| {
        output::stderr(question);
        let mut line = String::new();
        let read = io::stdin().lock().read_line(&mut line);
        // The one that was typed was not shown.
        output::stderr("\n");
        read.map(|_| Secret::new(line.trim_end_matches(['\n', '\r'])))
    });
    let cannot = "cannot read the password from the terminal";
    let (first, second) = (first.context(cannot)?, second.context(cannot)?);
    if first != second {
        return Err(
            Failure::new(Exit::Usage, "the two passwords are not the same").note("Nothing was printed.")
        );
    }
    Ok(first)
}

/// A terminal that does not show what is typed, until it is dropped.
struct Silence(Termios);

impl Silence {
    fn new() -> anyhow::Result<Self> {
        let before = tcgetattr(io::stdin()).context("cannot ask the terminal for its settings")?;
        let mut silent = before.clone();
        silent.local_flags.remove(LocalFlags::ECHO);
        tcsetattr(io::stdin(), SetArg::TCSAFLUSH, &silent).context("cannot silence the terminal")?;
        Ok(Silence(before))
    }
}

impl Drop for Silence {
    fn drop(&mut self) {
        // The terminal may be gone.
        let _ = tcsetattr(io::stdin(), SetArg::TCSANOW, &self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_one_line() {
        for (input, expected) in [
            ("secret", Some("secret")),
            ("secret\n", Some("secret")),
            ("secret\r\n", Some("secret")),
            (" two words \n", Some(" two words ")),
            ("", Some("")),
            (&"x".repeat(4096), Some(&"x".repeat(4096))),
            (&"x".repeat(4097), None),
            ("one\ntwo\n", None),
            ("one\n\n", None),
        ] {
            let read = only_line(input.as_bytes());
            assert_eq!(read.ok().as_ref().map(Secret::reveal), expected, "{input:?}");
        }
    }
}
