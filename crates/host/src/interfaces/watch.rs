//! Follows the kernel.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::thread;
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, bind, recv, sendto, setsockopt,
    socket, sockopt,
};
use nix::sys::time::{TimeVal, TimeValLike};
use thiserror::Error;
use tokio::sync::watch;
use tracing::{debug, info, warn};

use super::Interfaces;
use super::message::{GET_ADDRESS, GET_LINK, News, ask, read};

/// Links, and addresses of both families.
const GROUPS: u32 = 0x1 | 0x10 | 0x100;

/// Room for a burst of news, so that seldom any is lost.
const ROOM: usize = 4 << 20;

/// As large as an answer of the kernel may be.
const LARGEST: usize = 64 << 10;

/// How often is looked whether anybody still listens.
const PATIENCE: Duration = Duration::from_secs(1);

/// Why the kernel cannot be followed.
#[derive(Debug, Error)]
pub enum WatchError {
    /// It does not let us.
    #[error("the kernel does not tell of this machine's interfaces: {0}")]
    Socket(#[from] io::Error),
    /// It refuses to answer.
    #[error("the kernel does not tell which interfaces this machine has: {0}")]
    Refused(Errno),
}

impl From<Errno> for WatchError {
    fn from(error: Errno) -> Self {
        WatchError::Socket(error.into())
    }
}

/// The interfaces of this machine, from now on: all that are there when this returns, and every change after that. Where
/// news were lost, all is asked for again.
///
/// A thread follows until nobody listens any more. What is told is of the network namespace of the thread that calls this.
pub fn watch() -> Result<watch::Receiver<Interfaces>, WatchError> {
    let mut kernel = Kernel::new(ROOM)?;
    kernel.look()?;
    let (sender, receiver) = watch::channel(kernel.known.clone());
    let follow = move || {
        while !sender.is_closed() {
            match kernel.wait() {
                Ok(()) => {
                    let known = &kernel.known;
                    sender.send_if_modified(|told| {
                        let changed = told != known;
                        if changed {
                            told.clone_from(known);
                        }
                        changed
                    });
                }
                Err(problem) => {
                    warn!(%problem, "this machine's interfaces cannot be followed; it is tried again");
                    kernel.is_behind = true;
                    thread::sleep(PATIENCE);
                }
            }
        }
    };
    thread::Builder::new().name("interfaces".to_owned()).spawn(follow)?;
    Ok(receiver)
}

/// A socket to the kernel, and what it told.
struct Kernel {
    socket: OwnedFd,
    known: Interfaces,
    /// News were lost.
    is_behind: bool,
    /// The number of the last question.
    number: u32,
}

impl Kernel {
    fn new(room: usize) -> Result<Self, WatchError> {
        let socket = socket(
            AddressFamily::Netlink,
            SockType::Raw,
            SockFlag::SOCK_CLOEXEC,
            SockProtocol::NetlinkRoute,
        )?;
        // What is more than the system allows is cut to that.
        let _ = setsockopt(&socket, sockopt::RcvBuf, &room);
        let patience = i64::try_from(PATIENCE.as_secs()).unwrap_or(1);
        setsockopt(&socket, sockopt::ReceiveTimeout, &TimeVal::seconds(patience))?;
        // Before anything is asked: what changes while it is answered comes as news.
        bind(socket.as_raw_fd(), &NetlinkAddr::new(0, GROUPS))?;
        Ok(Kernel { socket, known: Interfaces::default(), is_behind: false, number: 0 })
    }

    /// Waits for news, not for long, and takes in all that there are.
    fn wait(&mut self) -> Result<(), WatchError> {
        let mut news = if self.is_behind { Err(Errno::ENOBUFS) } else { self.receive(MsgFlags::empty()) };
        loop {
            match news {
                Ok(told) => told.into_iter().for_each(|(_, news)| self.known.take(news)),
                Err(Errno::EAGAIN) => return Ok(()),
                Err(Errno::ENOBUFS) => {
                    info!("news of interfaces were lost, so all are looked at again");
                    self.look()?;
                }
                Err(error) => return Err(error.into()),
            }
            // One who is told of each by itself would be told of a burst for a long time.
            news = self.receive(MsgFlags::MSG_DONTWAIT);
        }
    }

    /// Asks for everything.
    fn look(&mut self) -> Result<(), WatchError> {
        self.is_behind = true;
        while self.is_behind {
            let mut found = Interfaces::default();
            if self.ask(GET_LINK, &mut found)? && self.ask(GET_ADDRESS, &mut found)? {
                self.known = found;
                self.is_behind = false;
            } else {
                debug!("interfaces changed while they were looked at, so they are again");
            }
        }
        Ok(())
    }

    /// Asks for all links, or addresses, and takes in what is told, news in between too. Whether it is whole.
    fn ask(&mut self, kind: u16, found: &mut Interfaces) -> Result<bool, WatchError> {
        self.number += 1;
        let question = ask(kind, self.number);
        sendto(self.socket.as_raw_fd(), &question, &NetlinkAddr::new(0, 0), MsgFlags::empty())?;
        let mut whole = true;
        loop {
            let news = match self.receive(MsgFlags::empty()) {
                Ok(news) => news,
                Err(Errno::ENOBUFS) => return Ok(false),
                Err(error) => return Err(error.into()),
            };
            for (number, news) in news {
                match news {
                    News::Interrupted => whole &= number != self.number,
                    News::Told if number == self.number => return Ok(whole),
                    News::Refused(code) if number == self.number => {
                        return Err(WatchError::Refused(Errno::from_raw(-code)));
                    }
                    news => found.take(news),
                }
            }
        }
    }

    fn receive(&self, flags: MsgFlags) -> Result<Vec<(u32, News)>, Errno> {
        let mut datagram = vec![0; LARGEST];
        loop {
            match recv(self.socket.as_raw_fd(), &mut datagram, flags) {
                Err(Errno::EINTR) => {}
                received => return received.map(|length| read(&datagram[..length])),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use portcullis_testkit::Host;
    use portcullis_testkit::parts::Namespace;

    use super::*;

    /// More news than there is room for: all is looked at again.
    #[test]
    fn news_that_are_lost_are_asked_for() {
        let host = Host::new("node");
        host.run("ip link add br0 type bridge");
        Namespace::run(&host, || {
            let mut kernel = Kernel::new(4096).unwrap();
            for number in 0..200 {
                host.run(&format!("ip address add 10.0.{number}.1/32 dev br0"));
            }
            let lost = kernel.receive(MsgFlags::empty());
            assert_eq!(lost, Err(Errno::ENOBUFS), "there was room for all of it");
            setsockopt(&kernel.socket, sockopt::RcvBuf, &ROOM).unwrap();
            kernel.is_behind = true;
            kernel.wait().unwrap();
            let found = kernel.known.find("br0").unwrap();
            assert_eq!(found.addresses.iter().filter(|address| address.is_ipv4()).count(), 200);
        });
    }
}
