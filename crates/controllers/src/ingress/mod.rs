//! `IngressControllers`: each gets its routers and what makes them reachable, and is told how it stands.

mod admission;
mod cache;
mod carry_out;
mod conditions;
mod controller;
mod deployment;
mod enforcement;
mod look;
mod pace;
mod reconcile;
mod shared;
mod status;
mod take_away;
mod tell;

pub use admission::admission;
pub use conditions::{Conditions, conditions};
pub use controller::{IngressControllers, IngressSettings};
pub use enforcement::Enforcer;
pub use look::Look;
pub use status::status;

#[cfg(test)]
mod tests;
