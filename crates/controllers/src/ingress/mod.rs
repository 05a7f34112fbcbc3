//! `IngressControllers`: each gets its routers and what makes them reachable, and is told how it stands.

mod admission;
mod cache;
mod carry_out;
mod conditions;
mod controller;
mod deployment;
mod enforcement;
mod look;
mod operator;
mod others;
mod pace;
mod reconcile;
mod shared;
mod standing;
mod status;
mod surroundings;
mod take_away;
mod tell;
mod watches;
mod words;

pub use admission::{admission, unsaid};
pub use conditions::{Conditions, conditions};
pub use controller::{IngressControllers, IngressSettings};
pub use enforcement::{Enforcer, by_enforcer};
pub use look::Look;
pub use operator::summary;
pub use standing::{Stand, Standing};
pub use status::status;
pub use surroundings::{ClusterConfig, Surroundings};
pub use watches::Watches;

#[cfg(test)]
mod tests;
