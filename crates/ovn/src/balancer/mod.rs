//! Load balancers of OVN: what is wanted becomes rows of the northbound database, in one transaction.
//!
//! What rows an owner needs (`desired`) is a function of what it wants, of the switches and routers it names, and of what
//! it has; what has to be done is the difference. Every row says whose it is. References from switches and routers are
//! added and taken away one by one, since others have theirs in the same columns.

mod acl;
mod desired;
mod difference;
mod names;
mod provider;
mod report;
mod rows;
mod scene;
mod tables;
#[cfg(test)]
mod tests;
mod view;

pub use provider::{Provider, Settings, Sweep};

/// Whether a row is there for a load balancer of ours.
pub(crate) fn is_balancers(row: &portcullis_ovsdb::Row) -> bool {
    tables::owner(row).is_some()
}
