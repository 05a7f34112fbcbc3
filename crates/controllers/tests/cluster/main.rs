//! Load balancers of clusters, on the real Kubernetes API with the real Cluster API.

#![allow(
    clippy::unwrap_used,
    clippy::needless_pass_by_value,
    clippy::unused_self,
    reason = "a test that fails says where"
)]

mod elsewhere;
mod endpoints;
mod faults;
mod kills;
mod lab;
mod machines;
mod members;
mod moves;
mod nlb;
mod ovn;
mod places;
mod scene;
mod stories;
mod templates;
mod trouble;
mod wrong;
