//! `IngressControllers` on a real Kubernetes API.

#![allow(clippy::unwrap_used, reason = "a test that fails says where")]

mod router;
