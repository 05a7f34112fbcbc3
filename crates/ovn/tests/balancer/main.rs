//! Load balancers in a real OVN, seen by packets.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

mod drains;
mod lab;
mod others;
mod outside;
mod ranges;
mod spread;
