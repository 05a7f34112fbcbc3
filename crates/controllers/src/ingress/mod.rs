//! `IngressControllers`: what is said about each of them.

mod admission;
mod conditions;
mod deployment;
mod enforcement;
mod look;
mod status;

pub use admission::admission;
pub use conditions::{Conditions, conditions};
pub use enforcement::Enforcer;
pub use look::Look;
pub use status::status;

#[cfg(test)]
mod tests;
