//! What others do to our table.

use std::io;
use std::thread;
use std::time::Duration;

use tokio::sync::mpsc;
use tracing::warn;

use super::wire::{Listener, News, news};

/// What is heard of others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Others {
    /// Somebody changed our table: a program of this name, if the kernel told.
    Changed(Option<String>),
    /// More was changed than could be told, by whomever and of whatever.
    Unknown,
}

/// How long is waited after a failure.
const PATIENCE: Duration = Duration::from_secs(1);

/// Tells of what others change in our table from now on, in the network namespace of this thread, until nobody listens any
/// more. What the socket with this number changes is our own.
pub(super) fn follow(own: u32) -> io::Result<mpsc::UnboundedReceiver<Others>> {
    let mut listener = Listener::open()?;
    let (sender, receiver) = mpsc::unbounded_channel();
    let work = move || {
        while !sender.is_closed() {
            match hear(&mut listener, own) {
                Ok(heard) => heard.into_iter().for_each(|others| drop(sender.send(others))),
                Err(problem) => {
                    warn!(%problem, "it cannot be heard what others change in packet filters; it is tried again");
                    // What came meanwhile was not heard.
                    drop(sender.send(Others::Unknown));
                    thread::sleep(PATIENCE);
                }
            }
        }
    };
    thread::Builder::new().name("others".to_owned()).spawn(work)?;
    Ok(receiver)
}

/// Waits for news, not for long, and takes all that there are: a batch has very many.
fn hear(listener: &mut Listener, own: u32) -> io::Result<Option<Others>> {
    let (mut changed, mut by) = (false, None);
    let lost = listener.hear(|message| {
        // Our own are very many, and not even read.
        if message.port == own {
            return;
        }
        match news(message) {
            Some(News::Ours) => changed = true,
            // Who ends a batch that has nothing of ours is of no interest.
            Some(News::End(who)) if changed && by.is_none() => by = who,
            Some(News::End(_)) | None => {}
        }
    })?;
    Ok(match (changed, lost) {
        (true, _) => Some(Others::Changed(by)),
        (false, true) => Some(Others::Unknown),
        (false, false) => None,
    })
}
