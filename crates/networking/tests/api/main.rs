//! The API as its clients see it, on a real northbound database.

mod availability;
mod client;
mod default_rules;
mod quotas;
mod rbac_policies;
