//! What Kubernetes objects say about load balancers, as wants of the core. Pure: objects in, values out.

#![warn(missing_docs)]

mod adoption;
pub mod cluster;
pub mod enforced;
pub mod host;
pub mod ingress;
mod members;
mod node;
mod service;

pub use adoption::{Adopted, Change, TakenOver, give_back, is_held_by, take_over};
pub use members::endpoint_members;
pub use node::{is_eligible, node_member};
pub use service::{
    DRY_RUN, FINALIZER, LoadBalancerClass, SOURCE_RANGES, TYPE, foreign_finalizer, is_of_another_class,
    load_balancer, parameters, source_ranges, wants_load_balancer,
};
