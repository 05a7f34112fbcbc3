use std::io::ErrorKind;
use std::net::TcpListener;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};

use crate::{Error, Result};

/// A TCP port on loopback that no other part of ours takes while this is held, here or in another process.
///
/// The programs we start cannot be handed a bound socket, and many cannot say which port they chose. So a port is
/// picked below the range that the kernel gives out by itself, and a claim keeps it from being picked twice: a
/// socket in the abstract namespace, which is no file, holds for all users and is gone with the process.
#[derive(Debug)]
pub struct Port {
    number: u16,
    _claim: UnixListener,
}

/// Below the kernel's own range (32768 and up) and below Kubernetes' node ports (30000 and up).
const FIRST: u16 = 20_000;
const LAST: u16 = 29_999;

impl Port {
    /// Any free port.
    pub fn any() -> Result<Self> {
        // Processes that start at the same moment begin at different places.
        let count = u32::from(LAST - FIRST) + 1;
        let start = std::process::id().wrapping_mul(97) % count;
        (0..count)
            .filter_map(|step| u16::try_from((start + step) % count).ok())
            .find_map(|offset| Self::take(FIRST + offset).transpose())
            .unwrap_or_else(|| Err(Error::Unsuitable(format!("no free port between {FIRST} and {LAST}"))))
    }

    /// This one if it is free, otherwise any.
    pub fn preferably(number: u16) -> Result<Self> {
        Self::take(number)?.map_or_else(Self::any, Ok)
    }

    pub fn number(&self) -> u16 {
        self.number
    }

    fn take(number: u16) -> Result<Option<Self>> {
        let claim = SocketAddr::from_abstract_name(format!("portcullis-port-{number}"))
            .and_then(|name| UnixListener::bind_addr(&name));
        match claim {
            Ok(claim) => {
                let free = TcpListener::bind(("127.0.0.1", number)).is_ok();
                Ok(free.then_some(Port { number, _claim: claim }))
            }
            Err(error) if error.kind() == ErrorKind::AddrInUse => Ok(None),
            Err(error) => Err(Error::io("cannot claim a port")(error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // One test: two at the same time would take the ports that the other one gives back.
    #[test]
    fn a_port_is_taken_once_until_it_is_dropped_and_not_where_somebody_listens() {
        let first = Port::any().unwrap();
        let second = Port::preferably(first.number()).unwrap();
        assert_ne!(first.number(), second.number());
        let number = first.number();
        drop(first);
        assert_eq!(Port::preferably(number).unwrap().number(), number);

        let _listener = TcpListener::bind(("127.0.0.1", number)).unwrap();
        assert_ne!(Port::preferably(number).unwrap().number(), number);
    }
}
