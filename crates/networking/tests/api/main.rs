//! The API on a real northbound database.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

mod packets;
mod resources;
mod server;
