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
            self.forget_news();
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

    /// What was told before a question is older than the answer. Where some of it was lost, the rest would be taken for true: an
    /// address came, and that it went is what was lost.
    fn forget_news(&self) {
        while !matches!(self.receive(MsgFlags::MSG_DONTWAIT), Err(error) if error != Errno::ENOBUFS) {}
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
    use std::collections::BTreeSet;
    use std::io::Write;
    use std::net::IpAddr;
    use std::process::{Command, Stdio};
    use std::sync::atomic::{AtomicBool, Ordering};

    use portcullis_testkit::parts::Namespace;
    use portcullis_testkit::{Host, eventually};

    use super::*;

    fn host() -> Host {
        let host = Host::new("node");
        host.run("ip link add br0 type bridge");
        host
    }

    fn addresses(known: &Interfaces) -> BTreeSet<IpAddr> {
        let found = known.find("br0").map(|found| found.addresses.iter().copied().collect::<BTreeSet<_>>());
        found.unwrap_or_default().into_iter().filter(IpAddr::is_ipv4).collect()
    }

    /// More news than there is room for: the kernel says that some are lost, and all is looked at again.
    #[test]
    fn news_that_are_lost_are_asked_for() {
        let host = host();
        Namespace::run(&host, || {
            let mut kernel = Kernel::new(LARGEST).unwrap();
            kernel.look().unwrap();
            let beside = Kernel::new(LARGEST).unwrap();
            come_and_go(1000, &AtomicBool::new(false));
            let lost = beside.receive(MsgFlags::empty());
            assert_eq!(lost, Err(Errno::ENOBUFS), "there was room for all of it");
            assert_eq!(addresses(&kernel.known).len(), 0);
            kernel.wait().unwrap();
            assert_eq!(addresses(&kernel.known).len(), THERE);
        });
    }

    /// Addresses come and go all the time while many begin to watch: whatever moment it was, all of them know in the end what
    /// there is. Each address comes once and goes once, so what one missed it never hears of.
    #[test]
    fn nothing_is_missed_when_it_begins() {
        let host = host();
        let is_over = AtomicBool::new(false);
        let watchers = thread::scope(|threads| {
            threads.spawn(|| Namespace::run(&host, || come_and_go(256 * 256, &is_over)));
            let watchers: Vec<_> = (0..200).map(|_| Namespace::run(&host, || watch().unwrap())).collect();
            is_over.store(true, Ordering::Relaxed);
            watchers
        });
        let truth = addresses(&Namespace::run(&host, || watch().unwrap()).borrow());
        assert_eq!(truth.len(), THERE);
        for watcher in watchers {
            eventually("it knows what there is", || addresses(&watcher.borrow()) == truth);
        }
    }

    /// So many addresses are there at the same time.
    const THERE: usize = 100;

    /// At most so many come, and go again.
    fn come_and_go(most: usize, is_over: &AtomicBool) {
        let mut ip = Command::new("ip").args(["-batch", "-"]).stdin(Stdio::piped()).spawn().unwrap();
        let mut told = ip.stdin.take().unwrap();
        let address = |number: usize| format!("10.{}.{}.1/32 dev br0", number / 256, number % 256);
        for number in 0..most {
            writeln!(told, "address add {}", address(number)).unwrap();
            if number >= THERE {
                writeln!(told, "address del {}", address(number - THERE)).unwrap();
                if is_over.load(Ordering::Relaxed) {
                    break;
                }
            }
        }
        drop(told);
        assert!(ip.wait().unwrap().success());
    }
}
