//! The OpenStack Networking API v2.0 on OVN's northbound database.
//!
//! A request is decided on a draft of the objects ([`portcullis_ovn::Draft`]) and made in one transaction; reads come
//! from a replica. Each resource is one file of `resources`, with a table of its attributes that everything follows.

mod access;
mod addresses;
mod attributes;
mod availability;
mod caller;
mod dry_run;
mod error;
mod explain;
pub mod identity;
mod kinds;
pub mod listen;
mod openapi;
mod query;
mod quota;
mod request;
mod resources;
mod server;
mod tags;
mod time;
mod transfer;
mod versions;

use std::collections::BTreeMap;

pub use caller::Caller;
pub use error::Error;
pub use quota::DEFAULTS as QUOTAS;
pub use server::{Authenticate, Networking};

/// What the API does where a request does not say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Whether ports of a new network are filtered.
    pub port_security: bool,
    /// The largest packet that a network of OVN's own carries: what a physical one does, less what OVN wraps it in.
    pub mtu: u32,
    /// The largest packet of a network on a wire that was there before.
    pub physical_mtu: u32,
    /// How much a project may have, by resource; -1 is without limit.
    pub quotas: BTreeMap<String, i64>,
    /// What all hardware addresses begin with.
    pub mac_base: [u8; 3],
    /// The largest request that is read, in bytes.
    pub max_body: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            port_security: true,
            mtu: 1442,
            physical_mtu: 1500,
            quotas: BTreeMap::new(),
            mac_base: [0xfa, 0x16, 0x3e],
            max_body: 1 << 20,
        }
    }
}
