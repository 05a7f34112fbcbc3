//! The provider of network load balancers, against two that take AWS's place.

#![allow(clippy::unwrap_used, reason = "a test that fails says where")]

mod faults;
mod moto;
mod record;
mod scene;
mod strict;
