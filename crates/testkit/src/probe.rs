use std::io::{self, ErrorKind, Read};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::Duration;

use nix::errno::Errno;
use portcullis_parts::Namespace;
use socket2::{Domain, Protocol, SockAddr, Socket, Type};

/// What a probe tries to reach at an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    Tcp(u16),
    Udp(u16),
    /// An echo request ("ping").
    Icmp,
}

/// How a probe failed: the difference between a filter that drops and one that rejects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    /// No answer at all: dropped on the way there or back.
    TimedOut,
    /// Something said no.
    Refused,
    /// Nobody knows the way.
    Unreachable,
}

/// How long and how often a probe looks for an answer, which takes microseconds in the lab; a machine under load has
/// been seen to take most of a second. It counts looks and not time: who answers stands still when the machine does.
const LOOK: Duration = Duration::from_millis(50);
const LOOKS: u32 = 40;
/// A datagram is sent again after so many of them.
const LOOKS_PER_DATAGRAM: u32 = 5;

/// Whether a packet from `from` reaches `target` at `to` and an answer comes back.
pub fn can_connect(from: &Namespace, to: &str, target: Target) -> bool {
    connect(from, to, target).is_ok()
}

/// Like [`can_connect`], and says which address the server saw (for ICMP the one that answered), or how it failed.
///
/// What is probed by TCP or UDP is a [`crate::Server`], directly or through whatever is tested: one that says something
/// to who connects. A peer that accepts and closes without a word refuses.
#[track_caller]
pub fn connect(from: &Namespace, to: &str, target: Target) -> Result<String, Failure> {
    let to: IpAddr = to.parse().unwrap_or_else(|_| panic!("`{to}` is not an address"));
    let tried = from.run(|| match target {
        Target::Tcp(port) => tcp((to, port).into()),
        Target::Udp(port) => udp((to, port).into()),
        Target::Icmp => icmp(to),
    });
    tried.map_err(|error| match error.kind() {
        ErrorKind::TimedOut | ErrorKind::WouldBlock => Failure::TimedOut,
        ErrorKind::HostUnreachable | ErrorKind::NetworkUnreachable => Failure::Unreachable,
        ErrorKind::ConnectionRefused | ErrorKind::ConnectionReset | ErrorKind::PermissionDenied => {
            Failure::Refused
        }
        other => panic!("probing {target:?} at {to} from {}: unexpected {other:?}: {error}", from.name()),
    })
}

fn tcp(to: SocketAddr) -> io::Result<String> {
    let mut socket = Socket::new(Domain::for_address(to), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_read_timeout(Some(LOOK))?;
    // The kernel keeps to this one while it connects, and goes on with that when it is asked again.
    socket.set_write_timeout(Some(LOOK))?;
    let to = SockAddr::from(to);
    patiently(|| socket.connect(&to))?;
    let mut answer = Vec::new();
    let mut buffer = [0; 128];
    loop {
        match patiently(|| socket.read(&mut buffer))? {
            0 if answer.is_empty() => return Err(ErrorKind::ConnectionRefused.into()),
            0 => return Ok(String::from_utf8_lossy(&answer).into_owned()),
            length => answer.extend_from_slice(&buffer[..length]),
        }
    }
}

fn udp(to: SocketAddr) -> io::Result<String> {
    let socket = UdpSocket::bind(any_address(to.ip()))?;
    socket.connect(to)?;
    let mut buffer = [0; 128];
    let length = ask_again(&socket, || socket.send(b"?").map(drop), || socket.recv(&mut buffer))?;
    Ok(String::from_utf8_lossy(&buffer[..length]).into_owned())
}

fn icmp(to: IpAddr) -> io::Result<String> {
    let (domain, protocol, echo) = match to {
        IpAddr::V4(_) => (Domain::IPV4, Protocol::ICMPV4, 8),
        IpAddr::V6(_) => (Domain::IPV6, Protocol::ICMPV6, 128),
    };
    // Not the packet's fault: a namespace that was not made by `Host`.
    let socket = Socket::new(domain, Type::DGRAM, Some(protocol))
        .unwrap_or_else(|error| panic!("no socket for echo requests in this namespace: {error}"));
    socket.connect(&SockAddr::from(SocketAddr::new(to, 0)))?;
    // Type, code, checksum, identifier, sequence: the kernel fills in checksum and identifier.
    let request = [echo, 0, 0, 0, 0, 0, 0, 1];
    let mut buffer = [0; 128];
    let mut reader = &socket;
    ask_again(&socket, || socket.send(&request).map(drop), || reader.read(&mut buffer))?;
    Ok(to.to_string())
}

/// Sends and waits for an answer, a few times: a single datagram may be lost while neighbours are resolved.
fn ask_again(
    socket: &impl std::os::fd::AsFd,
    mut send: impl FnMut() -> io::Result<()>,
    mut receive: impl FnMut() -> io::Result<usize>,
) -> io::Result<usize> {
    socket2::SockRef::from(socket).set_read_timeout(Some(LOOK))?;
    let mut looks: u32 = 0;
    patiently(|| {
        if looks.is_multiple_of(LOOKS_PER_DATAGRAM) {
            send()?;
        }
        looks += 1;
        receive()
    })
}

/// Looks again and again, until there is something to see or patience is at its end.
fn patiently<T>(mut look: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    // The last two are said of a connection that is still being made: at first, and when it is asked again.
    let is_early = |error: &io::Error| {
        let number = error.raw_os_error().map(Errno::from_raw);
        matches!(number, Some(Errno::EAGAIN | Errno::EINTR | Errno::EINPROGRESS | Errno::EALREADY))
    };
    for _ in 0..LOOKS {
        match look() {
            Err(error) if is_early(&error) => {}
            outcome => return outcome,
        }
    }
    Err(ErrorKind::TimedOut.into())
}

fn any_address(like: IpAddr) -> SocketAddr {
    match like {
        IpAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        IpAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    }
}
