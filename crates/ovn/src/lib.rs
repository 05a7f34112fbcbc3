//! OVN's northbound database: the objects of the Networking API in its rows, both ways.
//!
//! [`Store`] follows a database and holds its objects as a [`Model`]; a change is decided on a [`Draft`] and made by one
//! transaction. What rows an object becomes is in `rows`, and how its fields are written in `flat`.

pub mod acl;
pub mod balancer;
pub mod dhcp;
mod draft;
mod flat;
mod mac;
mod model;
pub mod objects;
mod ovirt;
mod rows;
pub mod schema;
mod store;
mod tables;

pub use draft::Draft;
pub use mac::{Mac, MacError};
pub use model::{Model, Stored};
pub use ovirt::{Adopted, Finding, Survey};
pub use store::{FORMAT, OpenError, Rejected, Store, StoreError, StoreSettings};

/// What rows depend on besides the objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// The chassis that may carry the gateways of routers, the preferred one first.
    pub gateway_chassis: Vec<String>,
    /// For how long DHCP gives an address, in seconds.
    pub dhcp_lease: u32,
    /// The domain of networks that have none of their own.
    pub dns_domain: String,
}

impl Default for Options {
    fn default() -> Self {
        Options { gateway_chassis: Vec::new(), dhcp_lease: 86_400, dns_domain: String::new() }
    }
}
