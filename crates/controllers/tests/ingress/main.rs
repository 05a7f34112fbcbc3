//! `IngressControllers` on a real Kubernetes API.

#![allow(clippy::unwrap_used, reason = "a test that fails says where")]
#![allow(clippy::needless_pass_by_value, reason = "samples are easier to read so")]

mod cluster;
mod cuts;
mod killed;
mod kills;
mod life;
mod operator;
mod others;
mod packets;
mod router;
mod table;
mod trouble;
mod upgrade;
