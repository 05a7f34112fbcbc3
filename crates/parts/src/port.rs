use std::fs::{self, File};
use std::net::TcpListener;

use nix::fcntl::{Flock, FlockArg};

use crate::{Error, Result};

/// A TCP port on loopback that no other part of ours takes while this is held, here or in another process.
///
/// The programs we start cannot be handed a bound socket, and many cannot say which port they chose. So a
/// port is picked below the range that the kernel gives out by itself, and a lock keeps it from being picked twice.
#[derive(Debug)]
pub struct Port {
    number: u16,
    _lock: Flock<File>,
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
        let directory = std::env::temp_dir().join(format!("portcullis-ports-{}", nix::unistd::getuid()));
        fs::create_dir_all(&directory).map_err(Error::io(format!("cannot make {}", directory.display())))?;
        let path = directory.join(number.to_string());
        let file = File::create(&path).map_err(Error::io(format!("cannot write {}", path.display())))?;
        let Ok(lock) = Flock::lock(file, FlockArg::LockExclusiveNonblock) else { return Ok(None) };
        let free = TcpListener::bind(("127.0.0.1", number)).is_ok();
        Ok(free.then_some(Port { number, _lock: lock }))
    }
}
