//! Watches Kubernetes objects, and has providers make load balancers of them.

#![warn(missing_docs)]

mod events;
mod lease;
mod nodes;
mod service;

pub use lease::{Leadership, Lease, LeaseError};
pub use service::{ServiceController, Settings};
