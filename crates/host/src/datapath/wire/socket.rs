use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, bind, getsockname, getsockopt,
    recv, sendto, setsockopt, socket, sockopt,
};
use nix::sys::time::{TimeVal, TimeValLike};

use super::message::{INTERRUPTED, Messages, Received, messages};

/// A connection to the kernel's packet filters, in the network namespace of the thread that opened it.
#[derive(Debug)]
pub(crate) struct Socket {
    file: OwnedFd,
    buffer: Vec<u8>,
    room: usize,
}

/// The kernel tells more than a page at a time if there is room.
const BUFFER: usize = 1 << 18;
/// Room for all there may be, which has to be sent as a whole when the table is made anew.
const ROOM: usize = 64 << 20;
/// Others wait while the kernel works on a batch.
const BATCH: usize = 4 << 20;

const ERROR: u16 = 2;
const DONE: u16 = 3;

/// A socket to what filters packets.
fn raw() -> nix::Result<OwnedFd> {
    let (family, kind) = (AddressFamily::Netlink, SockType::Raw);
    socket(family, kind, SockFlag::SOCK_CLOEXEC, SockProtocol::NetlinkNetFilter)
}

impl Socket {
    pub(crate) fn open() -> io::Result<Self> {
        let socket = raw()?;
        bind(socket.as_raw_fd(), &NetlinkAddr::new(0, 0))?;
        // Only root of the machine itself may have more than the machine's limit: others have smaller batches.
        let _ = setsockopt(&socket, sockopt::SndBufForce, &ROOM);
        let _ = setsockopt(&socket, sockopt::RcvBufForce, &ROOM);
        let room = getsockopt(&socket, sockopt::SndBuf)?;
        Ok(Self { file: socket, buffer: vec![0; BUFFER], room })
    }

    /// The number by which the kernel tells whose request something is about.
    pub(crate) fn port(&self) -> io::Result<u32> {
        Ok(getsockname::<NetlinkAddr>(self.file.as_raw_fd())?.pid())
    }

    /// How many bytes to send at once. The kernel counts what it needs itself, too.
    pub(crate) fn largest(&self) -> usize {
        BATCH.min(self.room / 2)
    }

    /// Does what the messages ask for. All answers are there when sending returns: the kernel works meanwhile.
    pub(crate) fn perform(&mut self, request: &Messages) -> io::Result<()> {
        self.send(request)?;
        let mut outcomes = Vec::new();
        self.drain(|message| outcomes.extend(outcome(message)))?;
        if outcomes.is_empty() {
            return Err(io::Error::other("the kernel did not answer"));
        }
        outcomes.into_iter().collect()
    }

    /// Asks for everything of a kind, and hands each message to `take`. `false` says that somebody changed something
    /// meanwhile, and that what was told may be of two moments.
    pub(crate) fn dump(
        &mut self,
        request: &Messages,
        mut take: impl FnMut(Received<'_>),
    ) -> io::Result<bool> {
        self.send(request)?;
        let mut whole = true;
        loop {
            for message in self.receive()? {
                whole &= message.flags & INTERRUPTED == 0;
                match message.kind {
                    DONE => return Ok(whole),
                    ERROR => {
                        if let Some(Err(error)) = outcome(message) {
                            return Err(error);
                        }
                        return Ok(whole);
                    }
                    _ => take(message),
                }
            }
        }
    }

    fn send(&mut self, request: &Messages) -> io::Result<()> {
        // What is left of a request that failed in the middle is not an answer to this one.
        let _ = self.drain(|_| ());
        let to = NetlinkAddr::new(0, 0);
        let sent = sendto(self.file.as_raw_fd(), request.bytes(), &to, MsgFlags::empty())?;
        if sent == request.bytes().len() { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
    }

    /// Takes everything that is there, and waits for nothing.
    fn drain(&mut self, mut take: impl FnMut(Received<'_>)) -> io::Result<()> {
        loop {
            match recv(self.file.as_raw_fd(), &mut self.buffer, MsgFlags::MSG_DONTWAIT) {
                Ok(length) => messages(&self.buffer[..length]).for_each(&mut take),
                Err(Errno::EAGAIN) => return Ok(()),
                Err(Errno::EINTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn receive(&mut self) -> io::Result<impl Iterator<Item = Received<'_>>> {
        let length = loop {
            match recv(self.file.as_raw_fd(), &mut self.buffer, MsgFlags::empty()) {
                Err(Errno::EINTR) => {}
                outcome => break outcome?,
            }
        };
        Ok(messages(&self.buffer[..length]))
    }
}

/// What the kernel says about a request; `None` when the message is not about that.
fn outcome(message: Received<'_>) -> Option<io::Result<()>> {
    if message.kind != ERROR {
        return None;
    }
    let code = i32::from_ne_bytes(*message.rest.first_chunk()?);
    Some(if code == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(-code)) })
}

/// Hears what the kernel tells all who listen: every change of nftables, in the network namespace of the thread that opened it.
#[derive(Debug)]
pub(crate) struct Listener {
    file: OwnedFd,
    buffer: Vec<u8>,
}

/// The group of those who hear of changes of nftables, as a bit.
const CHANGES: u32 = 1 << 6;
/// How long is waited for news.
const PATIENCE: i64 = 1;
/// So much is heard at once at most: somebody may never stop.
const AT_ONCE: usize = 4096;

impl Listener {
    /// Listens, with so much room for what was not heard yet.
    pub(crate) fn open(room: usize) -> io::Result<Self> {
        let socket = raw()?;
        if setsockopt(&socket, sockopt::RcvBufForce, &room).is_err() {
            // What is more than the system allows is cut to that.
            let _ = setsockopt(&socket, sockopt::RcvBuf, &room);
        }
        setsockopt(&socket, sockopt::ReceiveTimeout, &TimeVal::seconds(PATIENCE))?;
        bind(socket.as_raw_fd(), &NetlinkAddr::new(0, CHANGES))?;
        Ok(Self { file: socket, buffer: vec![0; BUFFER] })
    }

    /// Waits for news, not for long, and hands all that there are to `take`. Whether some were lost.
    pub(crate) fn hear(&mut self, mut take: impl FnMut(Received<'_>)) -> io::Result<bool> {
        let (mut flags, mut lost) = (MsgFlags::empty(), false);
        for _ in 0..AT_ONCE {
            match recv(self.file.as_raw_fd(), &mut self.buffer, flags) {
                Ok(length) => messages(&self.buffer[..length]).for_each(&mut take),
                Err(Errno::EAGAIN) => return Ok(lost),
                Err(Errno::ENOBUFS) => lost = true,
                Err(Errno::EINTR) => {}
                Err(error) => return Err(error.into()),
            }
            flags = MsgFlags::MSG_DONTWAIT;
        }
        Ok(lost)
    }
}
