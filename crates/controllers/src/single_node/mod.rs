//! The router of a single node, as the configuration of the node says.
//!
//! Nobody writes an `IngressController` for it: the configuration is one, and its objects are made from it when we start. What
//! people change on them stays until we start again, and is told then.

mod apply;
mod controller;
mod fields;
mod limits;
mod object;
mod objects;
mod remove;
mod trouble;

#[cfg(test)]
mod tests;

use portcullis_kube_api::ingress::IngressController;

use crate::router::RouterSettings;

pub use controller::{SingleNode, Step};
pub use object::{APPLIED, MANAGER};
pub use trouble::Trouble;

/// What the configuration says.
#[derive(Clone, Debug, PartialEq)]
#[allow(clippy::struct_excessive_bools, reason = "each is something that the configuration says")]
pub struct SingleNodeSettings {
    /// What is wanted of the router, as an `IngressController` would say it.
    pub controller: IngressController,
    /// What routers are made of.
    pub router: RouterSettings,
    /// Where clients find it: the ports for HTTP and HTTPS.
    pub ports: [u16; 2],
    /// At which addresses and interfaces; at those that are usual, if there are none.
    pub listen: Vec<String>,
    /// Whether it gets addresses of the node from us.
    pub at_node: bool,
    /// Whether there is a router at all.
    pub is_wanted: bool,
    /// Whether the cluster has what OpenShift has; it is asked, if nobody says.
    pub openshift: Option<bool>,
    /// Whether a router that `MicroShift` made is replaced.
    pub take_over: bool,
    /// Only say what would be done.
    pub observe: bool,
}

/// What was done, or would be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Objects that were made.
    pub made: Vec<String>,
    /// Objects that were changed.
    pub changed: Vec<Changed>,
    /// Objects that were deleted and made anew.
    pub made_anew: Vec<String>,
    /// Objects that were deleted.
    pub deleted: Vec<String>,
    /// What was left alone although it was in question, and why.
    pub left: Vec<String>,
}

/// An object that was not as it should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Changed {
    /// Which.
    pub object: String,
    /// Where.
    pub fields: Vec<String>,
    /// Who had changed it, if it was not the configuration that changed.
    pub by: Option<Vec<String>>,
}
