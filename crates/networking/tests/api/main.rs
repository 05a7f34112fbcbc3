//! The API as its clients see it, on a real northbound database.

mod availability;
mod client;
mod default_rules;
mod dry_run;
mod explain;
mod idempotent;
mod openapi;
mod quotas;
mod rbac_policies;
mod rule_sets;
mod transfer;
