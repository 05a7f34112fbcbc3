//! What a node does by itself to be a load balancer: it knows no Kubernetes, only addresses, ports and ranges.

#![warn(missing_docs)]

pub mod claims;
pub mod datapath;
pub mod interfaces;
mod listening;
mod machine;

pub use machine::{Machine, MachineError};
