//! What has to be looked at before more can be said.

use portcullis_core::Owner;

use super::snapshot::Shared;

/// A call, or some, that only look.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Look {
    /// The subnets of the VPC.
    Subnets,
    /// The route tables of the VPC.
    RouteTables,
    /// Machines.
    Instance(String),
    /// A group that is not ours, by its id.
    SharedGroup(String),
    /// A group that a Service names, by name or id.
    NamedGroup(String),
    /// All groups of an owner.
    Groups(Owner),
    /// Whose the load balancers and target groups are that an owner made, or was given by AWS.
    Whose(Owner),
    /// The ports of a load balancer.
    Listeners(String),
    /// The attributes of a load balancer.
    Attributes(String),
    /// The attributes of a target group.
    PoolAttributes(String),
    /// Who is in a target group.
    Targets(String),
    /// Whether really nothing is left of an owner.
    Leftovers(Owner),
}

impl Look {
    /// Whether it is of use to all owners.
    pub(super) fn is_shared(&self) -> bool {
        use Look::{Instance, NamedGroup, RouteTables, SharedGroup, Subnets};
        matches!(self, Subnets | RouteTables | Instance(_) | SharedGroup(_) | NamedGroup(_))
    }

    /// Whether what would be seen is known already, of what is shared.
    pub(super) fn is_answered(&self, shared: &Shared) -> bool {
        match self {
            Look::Subnets => shared.subnets.is_some(),
            Look::RouteTables => shared.route_tables.is_some(),
            Look::Instance(id) => shared.looked_for.contains(id),
            Look::SharedGroup(id) => shared.knows(id),
            Look::NamedGroup(name) => shared.named.contains(name),
            _ => false,
        }
    }
}
