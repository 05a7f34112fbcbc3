//! The API as its clients see it, on a real northbound database.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]
#![allow(clippy::needless_pass_by_value, reason = "`json!({…})` reads better without a borrow")]

mod availability;
mod away;
mod binding;
mod client;
mod default_rules;
mod drift;
mod dry_run;
mod errors;
mod explain;
mod hostile;
mod idempotent;
mod members;
mod openapi;
mod packets;
mod pages;
mod port_security;
mod ports;
mod quotas;
mod rbac_policies;
mod requests;
mod resources;
mod rule_sets;
mod rules;
mod tenancy;
mod transfer;
mod uplink;
