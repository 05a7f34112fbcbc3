//! The provider of network load balancers, against two that take AWS's place.

#![allow(clippy::unwrap_used, reason = "a test that fails says where")]

mod adopt;
mod annotations;
mod blocked;
mod budgets;
mod changes;
mod faults;
mod fleet;
mod groups;
mod held;
mod listeners;
mod members;
mod moto;
mod nodes;
mod packets;
mod ranges;
mod record;
mod refused;
mod scene;
mod strict;
mod subnets;
mod together;
