//! `IngressControllers` on a real Kubernetes API.

#![allow(clippy::unwrap_used, reason = "a test that fails says where")]
#![allow(clippy::needless_pass_by_value, reason = "samples are easier to read so")]

mod cluster;
mod life;
mod router;
mod table;
mod trouble;
