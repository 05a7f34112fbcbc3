//! The API as its clients see it, on a real northbound database.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

mod availability;
mod client;
mod default_rules;
mod dry_run;
mod idempotent;
mod packets;
mod quotas;
mod rbac_policies;
mod resources;
mod rule_sets;
mod server;
