use std::fmt;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

/// The two families of IP addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Family {
    /// 32-bit addresses.
    #[serde(rename = "IPv4")]
    V4,
    /// 128-bit addresses.
    #[serde(rename = "IPv6")]
    V6,
}

impl Family {
    /// Both families, in order.
    pub const ALL: [Self; 2] = [Self::V4, Self::V6];

    /// The family a packet of this address travels in: an IPv4-mapped IPv6 address (`::ffff:192.0.2.1`)
    /// is how a program writes an IPv4 peer, so it is IPv4.
    pub fn of(addr: IpAddr) -> Self {
        match addr.to_canonical() {
            IpAddr::V4(_) => Self::V4,
            IpAddr::V6(_) => Self::V6,
        }
    }

    /// The longest prefix a range of this family can have.
    pub fn bits(self) -> u8 {
        match self {
            Self::V4 => 32,
            Self::V6 => 128,
        }
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::V4 => "IPv4",
            Self::V6 => "IPv6",
        })
    }
}
