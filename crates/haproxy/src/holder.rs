//! Who listens where HAProxy is to listen.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;

use socket2::{Domain, Protocol, SockAddr, Socket, Type};

/// The program that has a place, in words, unless it is free or one of `ours` has it.
///
/// It is tried: HAProxy itself would share a port with whoever allows that, in silence, and would fail as a whole where
/// somebody does not.
pub(crate) fn holder(place: SocketAddr, ours: &BTreeSet<u32>) -> Option<String> {
    let error = try_bind(place).err()?;
    match error.kind() {
        io::ErrorKind::AddrInUse => {}
        // HAProxy will say it better.
        _ => return None,
    }
    let sockets = listening_sockets(place);
    let holders = programs(&sockets);
    if holders.iter().any(|(pid, _)| ours.contains(pid)) {
        return None;
    }
    Some(match holders.first() {
        Some((pid, name)) => format!("the program {name} (process {pid})"),
        None => "another program".to_owned(),
    })
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

/// The numbers of sockets that listen at a place, in the network namespace of this thread.
fn listening_sockets(place: SocketAddr) -> BTreeSet<u64> {
    let mut all = BTreeSet::new();
    for file in ["tcp", "tcp6"] {
        let text = fs::read_to_string(format!("/proc/thread-self/net/{file}")).unwrap_or_default();
        all.extend(text.lines().skip(1).filter_map(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            let (address, port) = words.get(1)?.split_once(':')?;
            let at = address_of(address)?.to_canonical();
            let in_the_way = at == place.ip() || at.is_unspecified() || place.ip().is_unspecified();
            let listens = *words.get(3)? == "0A" && u16::from_str_radix(port, 16).ok()? == place.port();
            (listens && in_the_way).then(|| words.get(9)?.parse::<u64>().ok()).flatten()
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

/// The processes that have one of these sockets, and their names.
fn programs(sockets: &BTreeSet<u64>) -> Vec<(u32, String)> {
    let has = |process: &Path| {
        let open = fs::read_dir(process.join("fd")).into_iter().flatten().flatten();
        open.filter_map(|entry| fs::read_link(entry.path()).ok()).any(|link| {
            let text = link.to_string_lossy();
            let number = text.strip_prefix("socket:[").and_then(|rest| rest.strip_suffix(']')?.parse().ok());
            number.is_some_and(|number: u64| sockets.contains(&number))
        })
    };
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbered =
        processes.filter_map(|entry| Some((entry.file_name().to_str()?.parse().ok()?, entry.path())));
    numbered
        .filter(|(_, path)| has(path))
        .map(|(pid, path)| (pid, fs::read_to_string(path.join("comm")).unwrap_or_default().trim().to_owned()))
        .collect()
}
