use std::io::{self, ErrorKind, Read};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

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

/// An answer takes microseconds in the lab; a machine under load has been seen to take most of a second.
const PATIENCE: Duration = Duration::from_secs(2);

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
    let mut stream = TcpStream::connect_timeout(&to, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    if answer.is_empty() { Err(ErrorKind::ConnectionRefused.into()) } else { Ok(answer) }
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
    socket2::SockRef::from(socket).set_read_timeout(Some(PATIENCE / 8))?;
    let deadline = Instant::now() + PATIENCE;
    loop {
        send()?;
        match receive() {
            Err(error) if error.kind() == ErrorKind::WouldBlock && Instant::now() < deadline => {}
            outcome => return outcome,
        }
    }
}

fn any_address(like: IpAddr) -> SocketAddr {
    match like {
        IpAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        IpAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    }
}
