use crate::{LoadBalancer, Owner};

/// What someone wants to be so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Want {
    /// Who wants it.
    pub owner: Owner,
    /// What should be there.
    pub target: Target,
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
