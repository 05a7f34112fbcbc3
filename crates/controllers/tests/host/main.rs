//! Services at the addresses of nodes, on a real Kubernetes API, with machines whose interfaces and packets are real.

#![allow(clippy::unwrap_used, reason = "a test that fails says where")]
#![allow(clippy::needless_pass_by_value, reason = "samples are easier to read so")]

mod addresses;
mod clouds;
mod conflicts;
mod faults;
mod interfaces;
mod kills;
mod kube_proxy;
mod leaving;
mod nodes;
mod packets;
mod router;
mod scene;
mod writes;
