//! Services that are reached at the addresses of nodes.
//!
//! ```text
//!  node:  interfaces, listening programs ─▶ report ─┐          ┌─▶ packet filters of the node
//!                                                   ▼          │
//!                       Services ─▶ claims: who gets which address of which node
//!                                                   │
//!  once:                                            └─▶ verdict ─▶ status, Events
//! ```
//!
//! Which Service gets what is decided by the same functions on each node, for its own addresses, and once for all of them.
//! So packet filters follow what Services say without waiting for anybody, and the status only tells.

mod agent;
mod asked;
mod controller;
mod doubt;
mod endpoints;
mod health;
mod known;
mod lingering;
mod listeners;
mod others;
mod report;
mod told;
mod traffic;
mod verdict;

pub use agent::{AgentSettings, GRACE, NodeAgent};
pub use controller::{HostController, HostSettings};
pub use known::Known;
pub use traffic::Traffic;
