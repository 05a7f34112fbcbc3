//! What a node does by itself to be a load balancer: it knows no Kubernetes, only addresses, ports and ranges.

#![warn(missing_docs)]

pub mod datapath;
pub mod interfaces;
