//! `LoadBalancers` of clusters that Cluster API makes.
//!
//! ```text
//!  LoadBalancer, Cluster, Machines ─▶ membership, endpoint ─▶ assignment of the provider's object ─▶ provider
//!       ▲                                                                                              │
//!       └── conditions, targets; annotations that hold Machines ◀── status of the provider's object ◀──┘
//! ```

mod admitted;
mod agent;
mod asked;
mod assigning;
mod carried;
mod conditions;
mod controller;
mod endpoints;
mod found;
mod haproxy;
mod infrastructure;
mod kinds;
mod marks;
mod membership;
mod moving;
mod on_machines;
mod probe;
mod proposed;
pub(crate) mod queue;
mod reconcile;
mod removal;
pub(crate) mod shelf;
mod telling;
mod templates;
pub(crate) mod thing;
mod writing;

pub use agent::{Carrier, CarrierError, Carrying, HaProxyAgent, HaProxyAgentSettings, Sharing};
pub use controller::{LoadBalancerSettings, LoadBalancers};
pub use haproxy::{HaProxyController, HaProxySettings};
pub use infrastructure::{InfrastructureSettings, Infrastructures};
pub use on_machines::{HAPROXY_CLASS, OnMachines};
pub use proposed::ProposedClusters;
pub use templates::Templates;
