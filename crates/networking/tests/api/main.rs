//! The API as its clients see it, on a real northbound database.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]
#![allow(clippy::needless_pass_by_value, reason = "`json!({…})` reads better without a borrow")]

mod availability;
mod away;
mod client;
mod default_rules;
mod drift;
mod dry_run;
mod explain;
mod hostile;
mod idempotent;
mod openapi;
mod packets;
mod pages;
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
