//! How much a project may have.

use portcullis_ovn::objects::{
    FloatingIp, Network, Port, Quota, RbacPolicy, Router, Rule, SecurityGroup, Subnet,
};
use portcullis_ovn::{Draft, Model, Stored};
use uuid::Uuid;

use crate::error::Error;
use crate::resources::Context;

/// What can be limited, and how far it is unless somebody says otherwise. -1 is without limit.
pub const DEFAULTS: [(&str, i64); 9] = [
    ("network", 100),
    ("subnet", 100),
    ("port", 500),
    ("router", 10),
    ("floatingip", 50),
    ("security_group", 10),
    ("security_group_rule", 100),
    ("rbac_policy", 10),
    ("subnetpool", -1),
];

/// The number of the row with a project's limits: one per project.
pub(crate) fn row_of(project: &str) -> Uuid {
    Uuid::new_v5(&Uuid::NAMESPACE_URL, format!("portcullis quota of {project}").as_bytes())
}

/// How much of a resource a project may have.
pub(crate) fn limit(model: &Model, context: &Context, project: &str, resource: &str) -> i64 {
    let own = model.get::<Quota>(row_of(project)).and_then(|quota| quota.limits.get(resource).copied());
    own.unwrap_or_else(|| default_limit(context, resource))
}

/// How much of a resource projects may have that have no limit of their own.
pub(crate) fn default_limit(context: &Context, resource: &str) -> i64 {
    let set = context.settings.quotas.get(resource).copied();
    set.or_else(|| DEFAULTS.iter().find(|(name, _)| *name == resource).map(|(_, limit)| *limit)).unwrap_or(-1)
}

/// How much of a resource a project has.
pub(crate) fn used(model: &Model, project: &str, resource: &str) -> u64 {
    match resource {
        "network" => model.count::<Network>(project),
        "subnet" => model.count::<Subnet>(project),
        "port" => model.count::<Port>(project),
        "router" => model.count::<Router>(project),
        "floatingip" => model.count::<FloatingIp>(project),
        "security_group" => model.count::<SecurityGroup>(project),
        "security_group_rule" => model.count::<Rule>(project),
        "rbac_policy" => model.count::<RbacPolicy>(project),
        _ => 0,
    }
}

/// Whether a project may have so many more of a kind.
pub(crate) fn check<T: Stored>(
    draft: &Draft,
    context: &Context,
    project: &str,
    more: u64,
) -> Result<(), Error> {
    let resource = match T::KIND {
        portcullis_ovn::objects::Kind::Network => "network",
        portcullis_ovn::objects::Kind::Subnet => "subnet",
        portcullis_ovn::objects::Kind::Port => "port",
        portcullis_ovn::objects::Kind::Router => "router",
        portcullis_ovn::objects::Kind::FloatingIp => "floatingip",
        portcullis_ovn::objects::Kind::SecurityGroup => "security_group",
        portcullis_ovn::objects::Kind::Rule => "security_group_rule",
        portcullis_ovn::objects::Kind::RbacPolicy => "rbac_policy",
        _ => return Ok(()),
    };
    let Ok(limit) = u64::try_from(limit(draft, context, project, resource)) else { return Ok(()) };
    if used(draft, project, resource) + more > limit { Err(Error::over_quota(&[resource])) } else { Ok(()) }
}
