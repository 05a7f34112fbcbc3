//! What `portcullis serve` runs: one file per role.

pub(crate) mod cloud_config;
pub(crate) mod networking;
pub(crate) mod services;
