//! Load balancers of clusters, on the real Kubernetes API with the real Cluster API.

#![allow(clippy::unwrap_used, reason = "tests")]

mod endpoints;
mod machines;
mod members;
mod moves;
mod ovn;
mod scene;
mod templates;
mod trouble;
