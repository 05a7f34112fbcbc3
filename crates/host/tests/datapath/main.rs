//! The datapath in a lab of network namespaces: packets decide.

#![allow(clippy::unwrap_used, reason = "a test that fails says where")]

mod lab;
mod talk;

mod adoption;
mod faults;
mod filter;
mod forwarding;
mod ranges;
