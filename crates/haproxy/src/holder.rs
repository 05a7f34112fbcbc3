//! Who listens where HAProxy is to listen.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use socket2::{Domain, Protocol, SockAddr, Socket, Type};

/// The programs that have some of these places, in words, unless one of `ours` has them as well.
///
/// It is tried: HAProxy itself would share a port with whoever allows that, in silence, and would fail as a whole where
/// somebody does not.
pub(crate) fn holders(places: &BTreeSet<SocketAddr>, ours: &BTreeSet<u32>) -> BTreeMap<SocketAddr, String> {
    // Any other trouble HAProxy can tell better.
    let in_use =
        |place: &&SocketAddr| try_bind(**place).is_err_and(|error| error.kind() == ErrorKind::AddrInUse);
    let in_use: Vec<&SocketAddr> = places.iter().filter(in_use).collect();
    if in_use.is_empty() {
        return BTreeMap::new();
    }
    let (listening, programs) = (listening_sockets(), programs());
    let mut all = BTreeMap::new();
    for place in in_use {
        let at_odds = |held: &SocketAddr| {
            let everywhere = held.ip().is_unspecified() || place.ip().is_unspecified();
            held.port() == place.port() && (held.ip() == place.ip() || everywhere)
        };
        let sockets = listening.iter().filter(|(held, _)| at_odds(held));
        let holders: Vec<&(u32, String)> =
            sockets.filter_map(|(_, socket)| programs.get(socket)).flatten().collect();
        if holders.iter().any(|(pid, _)| ours.contains(pid)) {
            continue;
        }
        all.insert(
            *place,
            match holders.first() {
                Some((pid, name)) => format!("the program {name} (process {pid})"),
                None => "another program".to_owned(),
            },
        );
    }
    all
}

fn try_bind(place: SocketAddr) -> io::Result<()> {
    let domain = if place.is_ipv4() { Domain::IPV4 } else { Domain::IPV6 };
    let socket = Socket::new(domain, Type::STREAM, Some(Protocol::TCP))?;
    // Connections that ended a moment ago are in nobody's way.
    socket.set_reuse_address(true)?;
    if place.is_ipv4() {
        socket.set_freebind_v4(true)?;
    } else {
        socket.set_only_v6(true)?;
        socket.set_freebind_v6(true)?;
    }
    socket.bind(&SockAddr::from(place))
}

/// Whether the machine has an address family at all.
pub(crate) fn has_family(unspecified: IpAddr) -> bool {
    try_bind(SocketAddr::new(unspecified, 0)).is_ok()
}

/// Where sockets listen, and their numbers, in the network namespace of this thread.
fn listening_sockets() -> Vec<(SocketAddr, u64)> {
    let mut all = Vec::new();
    for file in ["tcp", "tcp6"] {
        let text = fs::read_to_string(format!("/proc/thread-self/net/{file}")).unwrap_or_default();
        all.extend(text.lines().skip(1).filter_map(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            let (address, port) = words.get(1)?.split_once(':')?;
            let address = address_of(address)?.to_canonical();
            let port = u16::from_str_radix(port, 16).ok()?;
            let number = words.get(9)?.parse().ok()?;
            (*words.get(3)? == "0A").then_some((SocketAddr::new(address, port), number))
        }));
    }
    all
}

/// An address as words of four bytes, each in the order of this machine.
fn address_of(hex: &str) -> Option<IpAddr> {
    let mut bytes = Vec::with_capacity(16);
    for start in (0..hex.len()).step_by(8) {
        bytes.extend(u32::from_str_radix(hex.get(start..start + 8)?, 16).ok()?.to_ne_bytes());
    }
    if let Ok(four) = <[u8; 4]>::try_from(bytes.as_slice()) {
        return Some(Ipv4Addr::from(four).into());
    }
    <[u8; 16]>::try_from(bytes.as_slice()).ok().map(|sixteen| Ipv6Addr::from(sixteen).into())
}

/// The processes that have a socket, by its number, and their names.
fn programs() -> BTreeMap<u64, Vec<(u32, String)>> {
    let mut all: BTreeMap<u64, Vec<(u32, String)>> = BTreeMap::new();
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbered =
        processes.filter_map(|entry| Some((entry.file_name().to_str()?.parse::<u32>().ok()?, entry.path())));
    for (pid, path) in numbered {
        let name = fs::read_to_string(path.join("comm")).unwrap_or_default().trim().to_owned();
        let open = fs::read_dir(path.join("fd")).into_iter().flatten().flatten();
        for link in open.filter_map(|entry| fs::read_link(entry.path()).ok()) {
            let text = link.to_string_lossy();
            let number = text.strip_prefix("socket:[").and_then(|rest| rest.strip_suffix(']')?.parse().ok());
            if let Some(number) = number {
                all.entry(number).or_default().push((pid, name.clone()));
            }
        }
    }
    all
}
