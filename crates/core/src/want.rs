use std::collections::BTreeMap;
use std::sync::Arc;

use crate::{LoadBalancer, Member, Owner};

/// What someone wants to be so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Want {
    /// Who wants it.
    pub owner: Owner,
    /// What tells this owner from one that had the same name before. It only goes into names that have to be new;
    /// what is there is found by the owner.
    pub uid: String,
    /// What should be there.
    pub target: Target,
    /// What is said to one provider only, by its own keys: for a Service, its annotations.
    pub parameters: BTreeMap<String, String>,
    /// The nodes that members run on, where members are not nodes themselves.
    pub nodes: Arc<[Member]>,
}

/// What should be there for an owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// This load balancer.
    Present(LoadBalancer),
    /// Nothing: whatever is the owner's goes. An owner without any want is a different thing, as nobody has
    /// said that its objects may go.
    Gone,
}
