use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tokio::io::{AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadHalf};
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use crate::frames::{Broken, Frames, LONGEST};
use crate::remote::Stream;
use crate::replica::Inconsistent;

/// One connection to a server, shared by everyone who has a request. Requests are sent as they come, without waiting
/// for earlier answers.
#[derive(Debug, Clone)]
pub(crate) struct Connection {
    outgoing: mpsc::UnboundedSender<String>,
    waiting: Arc<Mutex<Waiting>>,
}

#[derive(Debug, Default)]
struct Waiting {
    next: u64,
    answers: HashMap<u64, oneshot::Sender<Answer>>,
    closed: bool,
}

/// What a server answered: a result, or the error in its own words.
pub(crate) type Answer = Result<Box<RawValue>, String>;

/// Why a connection ended.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Ended {
    #[error("the server closed the connection")]
    Closed,
    #[error("the server has been silent for {} s", 2 * SILENCE.as_secs())]
    Silent,
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error(transparent)]
    Broken(#[from] Broken),
    #[error("the server sent what is not JSON-RPC: {0}")]
    NotJsonRpc(#[from] serde_json::Error),
    #[error(transparent)]
    Inconsistent(#[from] Inconsistent),
    #[error("{0}")]
    Unwanted(String),
}

/// A request could not be sent, or its answer will never come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lost {
    /// It was not sent.
    Unsent,
    /// It may have been done.
    InDoubt,
}

/// After this long without a word the server is asked for one, and after as long again it is given up.
const SILENCE: Duration = Duration::from_secs(5);

/// Hears what the server says without having been asked.
pub(crate) trait Listener: Send {
    /// Called in the order in which the server sends, before any later answer is handed out: who has an answer has
    /// seen every change that came before it.
    fn notified(&mut self, method: &str, params: &str) -> Result<(), Ended>;
}

/// Closes a connection with the work of it, also when that ends in a panic.
struct Closing(Connection);

impl Drop for Closing {
    fn drop(&mut self) {
        self.0.close();
    }
}

#[derive(Deserialize)]
struct Incoming<'a> {
    #[serde(borrow, default)]
    id: Option<&'a RawValue>,
    #[serde(borrow, default)]
    method: Option<std::borrow::Cow<'a, str>>,
    #[serde(borrow, default)]
    params: Option<&'a RawValue>,
    #[serde(borrow, default)]
    result: Option<&'a RawValue>,
    #[serde(borrow, default)]
    error: Option<&'a RawValue>,
}

#[derive(Serialize)]
struct Request<'a, P> {
    method: &'a str,
    params: P,
    id: u64,
}

impl Connection {
    /// A connection over `stream`, and the work of it, which ends with the connection.
    pub(crate) fn new(stream: Stream, listener: impl Listener) -> (Self, impl Future<Output = Ended>) {
        let (outgoing, queue) = mpsc::unbounded_channel();
        let waiting = Arc::new(Mutex::new(Waiting::default()));
        let connection = Connection { outgoing, waiting };
        let (reader, writer) = tokio::io::split(stream);
        let work = {
            let closing = Closing(connection.clone());
            async move {
                tokio::select! {
                    ended = read(reader, &closing.0, listener) => ended,
                    ended = write(writer, queue) => ended,
                }
            }
        };
        (connection, work)
    }

    /// Sends a request and waits for its answer.
    pub(crate) async fn request(&self, method: &str, params: impl Serialize) -> Result<Answer, Lost> {
        let (answer, answered) = oneshot::channel();
        let id = {
            let mut waiting = self.lock();
            if waiting.closed {
                return Err(Lost::Unsent);
            }
            waiting.next += 1;
            let id = waiting.next;
            waiting.answers.insert(id, answer);
            id
        };
        let Ok(message) = serde_json::to_string(&Request { method, params, id }) else {
            return Err(Lost::Unsent);
        };
        if has_nul(&message) {
            self.lock().answers.remove(&id);
            return Ok(Err(
                "a text with a NUL in it, which the server would end the connection for".to_owned()
            ));
        }
        if self.outgoing.send(message).is_err() {
            return Err(Lost::Unsent);
        }
        answered.await.map_err(|_| Lost::InDoubt)
    }

    /// Whoever waits for an answer learns that none will come.
    fn close(&self) {
        let mut waiting = self.lock();
        waiting.closed = true;
        waiting.answers.clear();
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn received(&self, frame: &[u8], listener: &mut impl Listener) -> Result<(), Ended> {
        let message: Incoming<'_> = serde_json::from_slice(frame)?;
        let nothing = |value: &RawValue| value.get() == "null";
        let id = message.id.filter(|id| !nothing(id));
        match (message.method.as_deref(), id) {
            (Some("echo"), Some(id)) => {
                let params = message.params.map_or("[]", RawValue::get);
                let answer = format!(r#"{{"id":{},"result":{params},"error":null}}"#, id.get());
                let _ = self.outgoing.send(answer);
            }
            (Some(method), None) => listener.notified(method, message.params.map_or("[]", RawValue::get))?,
            (Some(method), Some(_)) => {
                return Err(Ended::Unwanted(format!("the server asked for `{method}`")));
            }
            (None, Some(id)) => {
                // Answers to the questions below have other ids.
                let asked = id.get().parse().ok().and_then(|id| self.lock().answers.remove(&id));
                if let Some(asked) = asked {
                    let answer = match message.error.filter(|error| !nothing(error)) {
                        Some(error) => Err(error.get().to_owned()),
                        None => {
                            Ok(message.result.map_or_else(|| RawValue::NULL.to_owned(), ToOwned::to_owned))
                        }
                    };
                    // Who asked may have gone away.
                    let _ = asked.send(answer);
                }
            }
            (None, None) => return Err(Ended::Unwanted("the server sent an answer to nothing".into())),
        }
        Ok(())
    }
}

async fn read(mut reader: ReadHalf<Stream>, connection: &Connection, mut listener: impl Listener) -> Ended {
    let mut frames = Frames::new(LONGEST);
    let mut asked = false;
    loop {
        let buffer = frames.buffer();
        buffer.reserve(1 << 16);
        match timeout(SILENCE, reader.read_buf(buffer)).await {
            Ok(Ok(0)) => return Ended::Closed,
            Ok(Ok(_)) => asked = false,
            Ok(Err(error)) => return error.into(),
            Err(_) if asked => return Ended::Silent,
            Err(_) => {
                asked = true;
                let _ = connection.outgoing.send(r#"{"method":"echo","params":[],"id":"echo"}"#.to_owned());
            }
        }
        loop {
            match frames.next() {
                Ok(None) => break,
                Ok(Some(frame)) => {
                    if let Err(ended) = connection.received(frame, &mut listener) {
                        return ended;
                    }
                }
                Err(broken) => return broken.into(),
            }
        }
    }
}

/// Whether some text in a message has a NUL, which JSON writes as an escape that is not itself escaped.
fn has_nul(message: &str) -> bool {
    message.match_indices("\\u0000").any(|(place, _)| {
        let before = message[..place].bytes().rev().take_while(|byte| *byte == b'\\').count();
        before % 2 == 0
    })
}

/// Writes what is queued, as much at once as there is.
async fn write(mut writer: impl AsyncWrite + Unpin, mut queue: mpsc::UnboundedReceiver<String>) -> Ended {
    let mut buffer = String::new();
    while let Some(first) = queue.recv().await {
        buffer.clear();
        buffer.push_str(&first);
        while buffer.len() < 1 << 18
            && let Ok(next) = queue.try_recv()
        {
            buffer.push_str(&next);
        }
        let written = async {
            writer.write_all(buffer.as_bytes()).await?;
            // With TLS, what the socket did not take yet would wait for the next message.
            writer.flush().await
        };
        if let Err(error) = written.await {
            return error.into();
        }
    }
    Ended::Closed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_message_is_sent_to_its_end() {
        let (near, mut far) = tokio::io::duplex(64);
        // Keeps what it is given, as TLS does with what the socket does not take.
        let writer = tokio::io::BufWriter::new(near);
        let (outgoing, queue) = mpsc::unbounded_channel();
        outgoing.send("{}".to_owned()).unwrap();
        let mut received = [0; 2];
        tokio::select! {
            _ = write(writer, queue) => panic!("nobody ended it"),
            read = timeout(SILENCE, far.read_exact(&mut received)) => assert_eq!(read.unwrap().unwrap(), 2),
        }
        assert_eq!(&received, b"{}");
    }

    #[test]
    fn a_nul_is_told_from_the_words_for_it() {
        for (text, expected) in
            [("a\0b", true), ("\0", true), ("a\\u0000b", false), ("\\\0", true), ("plain", false)]
        {
            assert_eq!(has_nul(&serde_json::to_string(text).unwrap()), expected, "{text:?}");
        }
    }
}
