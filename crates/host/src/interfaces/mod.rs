//! The interfaces of this machine and their addresses, as the kernel tells of them, and which of them somebody means.

mod message;
mod select;
mod watch;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

pub use select::{Entry, NotHere, Selection};
pub use watch::{WatchError, watch};

/// The interfaces of a machine, by the numbers that the kernel gives them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Interfaces {
    links: BTreeMap<u32, Interface>,
    /// An address may be there more than once, each time in another network, as while its prefix is changed: it is there until the
    /// last of these goes.
    networks: BTreeMap<(u32, IpAddr), BTreeSet<Network>>,
}

/// What an address of an interface was added with: the length of its prefix, and an address in that network, which is that of the
/// other end where there are but two.
type Network = (u8, IpAddr);

/// One of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Interface {
    /// Its name, such as `enp3s0`.
    pub name: String,
    /// The bridge or bond that it is a part of: packets come to that one's addresses then.
    pub master: Option<u32>,
    /// Whether it only leads back to this machine.
    pub is_loopback: bool,
    /// Whether it is one end of a cable inside the machine, at whose other end there is a pod, mostly.
    pub is_veth: bool,
    /// Addresses that can be used: none that is still being tried out, or that another machine has.
    pub addresses: BTreeSet<IpAddr>,
}

impl Interface {
    /// Whether it seems to be the node's end of what leads to a pod: nobody comes to it by an address. Which pods there are changes
    /// all the time, and names of these interfaces tell people nothing.
    pub fn seems_to_lead_to_a_pod(&self) -> bool {
        self.is_veth && self.addresses.iter().all(is_of_link)
    }
}

/// Whether an address is only known on one link.
pub fn is_of_link(address: &IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    }
}

impl Interfaces {
    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &Interface> {
        self.links.values()
    }

    /// The one of a name.
    pub fn find(&self, name: &str) -> Option<&Interface> {
        self.iter().find(|interface| interface.name == name)
    }

    /// All of their addresses.
    pub fn addresses(&self) -> BTreeSet<IpAddr> {
        self.iter().flat_map(|interface| interface.addresses.iter().copied()).collect()
    }

    /// Whether any of them has an address.
    pub fn have(&self, address: IpAddr) -> bool {
        self.iter().any(|interface| interface.addresses.contains(&address))
    }
}

impl FromIterator<(u32, Interface)> for Interfaces {
    fn from_iter<T: IntoIterator<Item = (u32, Interface)>>(interfaces: T) -> Self {
        Interfaces { links: interfaces.into_iter().collect(), ..Interfaces::default() }
    }
}
