//! Services on a real Kubernetes API, with load balancers in an AWS that is as strict as AWS, and in moto.

#![allow(clippy::unwrap_used, reason = "a test that fails says where")]

mod enforced;
mod life;
mod moto;
mod nodes;
mod pods;
mod quiet;
mod refused;
mod replicas;
mod scene;
mod sweep;
