//! Every real part, used for what it is there for. One program, so that tests share what they can.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

mod aws;
mod cluster_api;
mod haproxy;
mod kube_proxy;
mod kubernetes;
mod lab;
mod lifetime;
mod ovn;
mod raft;
