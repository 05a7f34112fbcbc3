//! Watches Kubernetes objects, and has providers make load balancers of them.

#![warn(missing_docs)]

mod cloud_config;
pub mod cluster;
mod events;
pub mod host;
pub mod ingress;
mod lease;
mod nodes;
mod pause;
pub mod router;
mod service;
pub mod single_node;

pub use cloud_config::{CloudConfigController, Place, Step as CloudConfigStep};
pub use lease::{Leadership, Lease, LeaseError};
pub use service::{ServiceController, Settings};
