//! Addresses that several machines share: one of them has each, and another takes it over when that one cannot serve. By
//! keepalived, with version 3 of VRRP.
//!
//! HAProxy listens on these addresses on every machine, also where they are not, so that nothing has to start when one comes.
//! Which machine has an address now is seen from its interfaces.

mod keepalived;
mod shared;

pub use keepalived::Keepalived;
pub use shared::{SharedAddress, SharedAddressError};
