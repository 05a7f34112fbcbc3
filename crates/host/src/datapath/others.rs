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

/// Room for what a large batch of anybody changes.
const ROOM: usize = 16 << 20;

/// How long is waited after a failure.
const PATIENCE: Duration = Duration::from_secs(1);

/// Tells of what others change in our table from now on, in the network namespace of this thread, until nobody listens any
/// more. What the socket with this number changes is our own.
pub(super) fn follow(own: u32) -> io::Result<mpsc::UnboundedReceiver<Others>> {
    tell(Listener::open(ROOM)?, own)
}

fn tell(mut listener: Listener, own: u32) -> io::Result<mpsc::UnboundedReceiver<Others>> {
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

#[cfg(test)]
mod tests {
    use portcullis_testkit::parts::Namespace;
    use portcullis_testkit::{Host, eventually};

    use super::*;

    /// So many elements are more news than fit in here.
    const TOO_MANY: usize = 20_000;
    const LITTLE: usize = 64 << 10;

    /// Somebody changes very much, in a table of their own.
    fn change_much(host: &Host) {
        let elements: Vec<String> = (0..TOO_MANY).map(|number| number.to_string()).collect();
        host.nft(&format!(
            "table ip theirs {{}}\ndelete table ip theirs\n\
             table ip theirs {{ set many {{ type mark; elements = {{ {} }}; }}; }}",
            elements.join(", ")
        ));
    }

    fn heard(listener: &mut Listener) -> Option<Others> {
        hear(listener, 0).unwrap()
    }

    /// More is changed than there is room for: that is told, and what comes later is heard again.
    #[test]
    fn news_that_are_lost_are_told() {
        let host = Host::new("node");
        let [mut little, mut enough] =
            [LITTLE, ROOM].map(|room| Namespace::run(&host, || Listener::open(room).unwrap()));
        change_much(&host);
        assert_eq!(heard(&mut little), Some(Others::Unknown));
        assert_eq!(heard(&mut enough), None, "who has room for all knows that nothing of it was ours");
        assert_eq!(heard(&mut little), None, "once");
        host.nft("table inet portcullis {}");
        for listener in [&mut little, &mut enough] {
            assert_eq!(heard(listener), Some(Others::Changed(Some("nft".to_owned()))));
        }
        // What was ours may be among what was lost.
        change_much(&host);
        host.nft("delete table inet portcullis");
        assert_eq!(heard(&mut little), Some(Others::Unknown));
        assert_eq!(heard(&mut enough), Some(Others::Changed(Some("nft".to_owned()))));
    }

    /// Who follows is told.
    #[test]
    fn who_follows_is_told_of_news_that_are_lost() {
        let host = Host::new("node");
        let listener = Namespace::run(&host, || Listener::open(LITTLE).unwrap());
        // They come before anybody hears any.
        change_much(&host);
        let mut others = tell(listener, 0).unwrap();
        let mut first = None;
        eventually("it is told", || {
            first = others.try_recv().ok();
            first.is_some()
        });
        assert_eq!(first, Some(Others::Unknown));
        host.nft("table inet portcullis {}");
        // Who is quick hears that something was changed before it is told by whom.
        eventually("what comes later is told", || matches!(others.try_recv(), Ok(Others::Changed(_))));
    }
}
