//! Talking to HAProxy.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::time::timeout;

use crate::error::Error;

/// An answer takes milliseconds. While HAProxy reads a big file, its master says nothing.
const PATIENCE: Duration = Duration::from_secs(20);

/// A socket that takes commands.
#[derive(Clone, Debug)]
pub(crate) struct Socket(pub(crate) PathBuf);

impl Socket {
    /// Whether nobody is there at all.
    pub(crate) fn nobody(error: &io::Error) -> bool {
        matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused)
    }

    /// Sends a line and gives the answer.
    pub(crate) async fn try_ask(&self, line: &str) -> io::Result<String> {
        let talk = async {
            let mut stream = UnixStream::connect(&self.0).await?;
            stream.write_all(line.as_bytes()).await?;
            stream.write_all(b"\n").await?;
            // It answers and then closes only when it knows that no other command follows.
            stream.shutdown().await?;
            let mut answer = Vec::new();
            stream.read_to_end(&mut answer).await?;
            Ok(String::from_utf8_lossy(&answer).into_owned())
        };
        timeout(PATIENCE, talk).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
    }

    pub(crate) async fn ask(&self, line: &str) -> Result<String, Error> {
        let silent = |source| Error::Silent { socket: self.0.clone(), source };
        self.try_ask(line).await.map_err(silent)
    }

    /// Sends commands, all of which are to be answered by nothing, or by one of these.
    pub(crate) async fn tell(&self, line: &str, fine: &[&str]) -> Result<(), Error> {
        let answer = self.ask(line).await?;
        let wrong = |said: &&str| !said.is_empty() && !fine.contains(said);
        match answer.lines().map(str::trim).find(wrong) {
            Some(said) => Err(Error::Answer { command: line.to_owned(), answer: said.to_owned() }),
            None => Ok(()),
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}
