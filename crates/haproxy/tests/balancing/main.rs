//! A real HAProxy in a lab of network namespaces: connections decide.

#![allow(clippy::unwrap_used, reason = "a test that fails says where")]

mod lab;

mod checks;
mod conflicts;
mod drain;
mod load;
mod ranges;
mod supervision;
mod vrrp;
