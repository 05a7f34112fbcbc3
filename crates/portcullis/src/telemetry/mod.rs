//! What every running role tells about itself over HTTP: is it alive, is it ready, what does it count.

mod aws_calls;
mod metrics;
mod readiness;
mod server;

pub(crate) use aws_calls::AwsCalls;
pub(crate) use metrics::Metrics;
pub(crate) use readiness::{Check, Readiness};
pub(crate) use server::{router, serve};
