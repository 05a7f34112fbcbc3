//! What is done, one call each, and what is so when it was done.

use portcullis_core::{Direction, Owner};

use super::snapshot::{Balancer, Group, Holding, Pool, Snapshot};
use crate::client::{NewListener, NewLoadBalancer, NewTargetGroup};
use crate::model::{
    Attributes, HealthCheck, Listener, LoadBalancer, Permissions, SecurityGroup, Tags, Target, TargetGroup,
    TargetState,
};

/// A call that changes something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    CreateGroup { name: String, description: String, vpc: String, tags: Tags },
    Permit { group: String, direction: Direction, permissions: Permissions },
    Forbid { group: String, direction: Direction, permissions: Permissions },
    TagGroup { group: String, tags: Tags },
    UntagGroup { group: String, keys: Vec<String> },
    DeleteGroup { group: String },
    CreateBalancer(NewLoadBalancer),
    SetGroups { balancer: String, groups: Vec<String> },
    SetSubnets { balancer: String, subnets: Vec<String> },
    SetIpAddressType { balancer: String, kind: &'static str },
    SetAttributes { balancer: String, attributes: Attributes },
    DeleteBalancer { balancer: String },
    CreatePool(NewTargetGroup),
    Check { pool: String, check: HealthCheck },
    SetPoolAttributes { pool: String, attributes: Attributes },
    Register { pool: String, targets: Vec<Target> },
    Deregister { pool: String, targets: Vec<Target> },
    DeletePool { pool: String },
    CreateListener { balancer: String, listener: NewListener, tags: Tags },
    ModifyListener { arn: String, listener: NewListener },
    DeleteListener { arn: String, port: u16 },
    Tag { arns: Vec<String>, tags: Tags },
    Untag { arns: Vec<String>, keys: Vec<String> },
}

/// What AWS says about what it made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Made {
    Nothing,
    Group(String),
    Balancer(LoadBalancer),
    Pool(TargetGroup),
    Listener(Listener),
}

/// For what a step is done: an owner's own, or a group that is shared.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Place {
    Owner(Owner),
    Shared,
}

impl Step {
    /// Whether something goes that could not be given back.
    pub(super) fn is_destructive(&self) -> bool {
        matches!(
            self,
            Step::DeleteGroup { .. }
                | Step::DeleteBalancer { .. }
                | Step::DeletePool { .. }
                | Step::DeleteListener { .. }
        )
    }

    /// What it does, in a word.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Step::CreateGroup { .. } => "create security group",
            Step::Permit { .. } => "open",
            Step::Forbid { .. } => "close",
            Step::TagGroup { .. } | Step::Tag { .. } => "tag",
            Step::UntagGroup { .. } | Step::Untag { .. } => "untag",
            Step::DeleteGroup { .. } => "delete security group",
            Step::CreateBalancer(_) => "create load balancer",
            Step::SetGroups { .. } => "set security groups",
            Step::SetSubnets { .. } => "set subnets",
            Step::SetIpAddressType { .. } => "set address type",
            Step::SetAttributes { .. } | Step::SetPoolAttributes { .. } => "set attributes",
            Step::DeleteBalancer { .. } => "delete load balancer",
            Step::CreatePool(_) => "create target group",
            Step::Check { .. } => "set health check",
            Step::Register { .. } => "register targets",
            Step::Deregister { .. } => "deregister targets",
            Step::DeletePool { .. } => "delete target group",
            Step::CreateListener { .. } => "create listener",
            Step::ModifyListener { .. } => "change listener",
            Step::DeleteListener { .. } => "delete listener",
        }
    }

    /// On what it does it.
    pub(super) fn object(&self) -> &str {
        match self {
            Step::CreateGroup { name, .. } => name,
            Step::CreateBalancer(new) => &new.name,
            Step::CreatePool(new) => &new.name,
            Step::ModifyListener { arn, .. } | Step::DeleteListener { arn, .. } => arn,
            Step::Tag { arns, .. } | Step::Untag { arns, .. } => arns.first().map_or("", String::as_str),
            step => step.removes().or_else(|| step.changes()).unwrap_or_default(),
        }
    }

    /// What it takes away, by id.
    pub(super) fn removes(&self) -> Option<&str> {
        match self {
            Step::DeleteGroup { group } => Some(group),
            Step::DeleteBalancer { balancer } => Some(balancer),
            Step::DeletePool { pool } => Some(pool),
            _ => None,
        }
    }

    /// What it changes, by id.
    pub(super) fn changes(&self) -> Option<&str> {
        match self {
            Step::Permit { group, .. }
            | Step::Forbid { group, .. }
            | Step::TagGroup { group, .. }
            | Step::UntagGroup { group, .. } => Some(group),
            Step::SetGroups { balancer, .. }
            | Step::SetSubnets { balancer, .. }
            | Step::SetIpAddressType { balancer, .. }
            | Step::SetAttributes { balancer, .. }
            | Step::CreateListener { balancer, .. } => Some(balancer),
            Step::Check { pool, .. }
            | Step::SetPoolAttributes { pool, .. }
            | Step::Register { pool, .. }
            | Step::Deregister { pool, .. } => Some(pool),
            Step::ModifyListener { arn, .. } | Step::DeleteListener { arn, .. } => Some(arn),
            _ => None,
        }
    }

    /// What is written on what it makes.
    pub(super) fn tags(&self) -> Option<&Tags> {
        match self {
            Step::CreateBalancer(new) => Some(&new.tags),
            Step::CreatePool(new) => Some(&new.tags),
            _ => None,
        }
    }

    /// What AWS would make, as far as it can be said before.
    pub(super) fn assumed(&self) -> Made {
        match self {
            Step::CreateGroup { name, .. } => Made::Group(format!("‹{name}›")),
            Step::CreateBalancer(new) => Made::Balancer(LoadBalancer {
                arn: format!("‹{}›", new.name),
                name: new.name.clone(),
                dns_name: "‹address›".to_owned(),
                kind: "network".to_owned(),
                scheme: new.scheme.clone(),
                vpc: String::new(),
                state: "provisioning".to_owned(),
                ip_address_type: new.ip_address_type.clone(),
                subnets: new.subnets.iter().map(|subnet| subnet.id.clone()).collect(),
                addresses: chosen_addresses(new).collect(),
                groups: new.groups.iter().cloned().collect(),
            }),
            Step::CreatePool(new) => Made::Pool(TargetGroup {
                arn: format!("‹{}›", new.name),
                name: new.name.clone(),
                protocol: new.protocol.clone(),
                port: new.port,
                vpc: new.vpc.clone(),
                kind: new.kind.clone(),
                ip_address_type: new.ip_address_type.clone(),
                health_check: new.health_check.clone(),
                load_balancers: std::collections::BTreeSet::new(),
            }),
            Step::CreateListener { balancer, listener, .. } => {
                Made::Listener(made_listener(format!("{balancer}/{}", listener.port), listener))
            }
            _ => Made::Nothing,
        }
    }

    /// Takes in what is so now that the step was done.
    pub(super) fn take_in(&self, place: &Place, made: Made, snapshot: &mut Snapshot) {
        match place {
            Place::Owner(_) if self.is_shared(snapshot) => self.take_in_shared(snapshot),
            Place::Owner(owner) => self.take_in_own(made, snapshot.holding(owner)),
            Place::Shared => self.take_in_shared(snapshot),
        }
    }

    /// Whether it changes a group that is not ours.
    pub(super) fn is_shared(&self, snapshot: &Snapshot) -> bool {
        let (Step::Permit { group, .. } | Step::Forbid { group, .. }) = self else { return false };
        snapshot.shared.groups.contains_key(group)
    }

    fn take_in_shared(&self, snapshot: &mut Snapshot) {
        let (Step::Permit { group, direction, permissions } | Step::Forbid { group, direction, permissions }) =
            self
        else {
            return;
        };
        if let Some(group) = snapshot.shared.groups.get_mut(group) {
            change(group, *direction, permissions, matches!(self, Step::Permit { .. }));
        }
    }

    fn take_in_own(&self, made: Made, holding: &mut Holding) {
        match (self, made) {
            (Step::CreateGroup { name, description, vpc, tags }, Made::Group(id)) => {
                let group = SecurityGroup {
                    id: id.clone(),
                    name: name.clone(),
                    description: description.clone(),
                    vpc: vpc.clone(),
                    tags: tags.clone(),
                    ..SecurityGroup::default()
                };
                holding.groups.insert(id, Group { group, seen: false });
            }
            (Step::CreateBalancer(new), Made::Balancer(mut balancer)) => {
                // AWS may not tell of them before it is ready.
                balancer.addresses.extend(chosen_addresses(new));
                let new = Balancer {
                    tags: new.tags.clone(),
                    seen: false,
                    // As AWS sets them: nothing that has to be looked at.
                    attributes: Some(Attributes::new()),
                    listeners: Some(std::collections::BTreeMap::new()),
                    listener_tags: std::collections::BTreeMap::new(),
                    balancer,
                };
                holding.balancers.insert(new.balancer.arn.clone(), new);
            }
            (Step::CreatePool(new), Made::Pool(group)) => {
                let tags = new.tags.clone();
                let targets = Some(std::collections::BTreeMap::new());
                let attributes = Some(Attributes::new());
                let arn = group.arn.clone();
                let pool = Pool { group, tags, seen: false, attributes, targets, ..Pool::default() };
                holding.pools.insert(arn, pool);
            }
            (Step::CreateListener { balancer, tags, .. }, Made::Listener(listener)) => {
                attach(holding, balancer, listener.target_group.as_deref());
                if let Some(found) = holding.balancers.get_mut(balancer) {
                    found.listener_tags.insert(listener.arn.clone(), tags.clone());
                }
                if let Some(listeners) = listeners(holding, balancer) {
                    listeners.insert(listener.port, listener);
                }
            }
            (step, _) => step.take_in_change(holding),
        }
    }

    fn take_in_change(&self, holding: &mut Holding) {
        match self {
            Step::Permit { group, direction, permissions }
            | Step::Forbid { group, direction, permissions } => {
                if let Some(found) = holding.groups.get_mut(group) {
                    change(&mut found.group, *direction, permissions, matches!(self, Step::Permit { .. }));
                }
            }
            Step::TagGroup { group, tags } => {
                if let Some(found) = holding.groups.get_mut(group) {
                    found.group.tags.extend(tags.clone());
                }
            }
            Step::UntagGroup { group, keys } => {
                if let Some(found) = holding.groups.get_mut(group) {
                    found.group.tags.retain(|key, _| !keys.contains(key));
                }
            }
            Step::DeleteGroup { group } => drop(holding.groups.remove(group)),
            Step::DeleteBalancer { balancer } => {
                holding.balancers.remove(balancer);
                for pool in holding.pools.values_mut() {
                    pool.group.load_balancers.remove(balancer);
                }
            }
            Step::DeletePool { pool } => drop(holding.pools.remove(pool)),
            Step::SetGroups { balancer, groups } => {
                if let Some(found) = holding.balancers.get_mut(balancer) {
                    found.balancer.groups = groups.iter().cloned().collect();
                }
            }
            Step::SetSubnets { balancer, subnets } => {
                if let Some(found) = holding.balancers.get_mut(balancer) {
                    found.balancer.subnets = subnets.iter().cloned().collect();
                }
            }
            Step::SetIpAddressType { balancer, kind } => {
                if let Some(found) = holding.balancers.get_mut(balancer) {
                    (*kind).clone_into(&mut found.balancer.ip_address_type);
                }
            }
            Step::SetAttributes { balancer, attributes } => {
                if let Some(found) = holding.balancers.get_mut(balancer) {
                    found.attributes.get_or_insert_default().extend(attributes.clone());
                }
            }
            Step::Tag { arns, tags } => {
                for arn in arns {
                    if let Some(found) = tags_of(holding, arn) {
                        found.extend(tags.clone());
                    }
                }
            }
            Step::Untag { arns, keys } => {
                for arn in arns {
                    if let Some(found) = tags_of(holding, arn) {
                        found.retain(|key, _| !keys.contains(key));
                    }
                }
            }
            Step::ModifyListener { arn, listener } => modified(holding, arn, listener),
            Step::DeleteListener { arn, port } => deleted(holding, arn, *port),
            _ => self.take_in_pool(holding),
        }
    }

    fn take_in_pool(&self, holding: &mut Holding) {
        match self {
            Step::Check { pool, check } => {
                if let Some(found) = holding.pools.get_mut(pool) {
                    found.group.health_check = check.clone();
                }
            }
            Step::SetPoolAttributes { pool, attributes } => {
                if let Some(found) = holding.pools.get_mut(pool) {
                    found.attributes.get_or_insert_default().extend(attributes.clone());
                }
            }
            Step::Register { pool, targets } => {
                let Some(found) = holding.pools.get_mut(pool) else { return };
                if !found.group.load_balancers.is_empty() {
                    found.unproven.extend(targets.iter().cloned());
                }
                if let Some(known) = &mut found.targets {
                    known.extend(targets.iter().map(|target| (target.clone(), TargetState::Other)));
                }
            }
            Step::Deregister { pool, targets } => {
                let Some(found) = holding.pools.get_mut(pool) else { return };
                found.unproven.retain(|target| !targets.contains(target));
                if let Some(known) = &mut found.targets {
                    known.retain(|target, _| !targets.contains(target));
                }
            }
            _ => {}
        }
    }
}

/// The addresses that a load balancer to be made is to have.
fn chosen_addresses(new: &NewLoadBalancer) -> impl Iterator<Item = String> {
    let subnets = new.subnets.iter();
    subnets.flat_map(|subnet| subnet.allocation.iter().chain(&subnet.private_address)).cloned()
}

/// A listener as it will be.
pub(super) fn made_listener(arn: String, new: &NewListener) -> Listener {
    Listener {
        arn,
        port: new.port,
        protocol: new.protocol.clone(),
        target_group: Some(new.target_group.clone()),
        certificate: new.certificate.clone(),
        policy: new.policy.clone(),
        alpn: new.alpn.clone(),
    }
}

fn change(group: &mut SecurityGroup, direction: Direction, permissions: &Permissions, add: bool) {
    let rules = match direction {
        Direction::Ingress => &mut group.ingress,
        Direction::Egress => &mut group.egress,
    };
    for (permission, description) in permissions {
        if add {
            rules.insert(permission.clone(), description.clone());
        } else {
            rules.remove(permission);
        }
    }
}

fn listeners<'a>(
    holding: &'a mut Holding,
    balancer: &str,
) -> Option<&'a mut std::collections::BTreeMap<u16, Listener>> {
    holding.balancers.get_mut(balancer)?.listeners.as_mut()
}

fn tags_of<'a>(holding: &'a mut Holding, arn: &str) -> Option<&'a mut Tags> {
    if holding.pools.contains_key(arn) {
        return holding.pools.get_mut(arn).map(|found| &mut found.tags);
    }
    let mut balancers = holding.balancers.iter_mut();
    balancers.find_map(
        |(own, found)| {
            if own == arn { Some(&mut found.tags) } else { found.listener_tags.get_mut(arn) }
        },
    )
}

/// Which load balancer a listener belongs to.
fn balancer_of(holding: &Holding, arn: &str) -> Option<String> {
    let mut balancers = holding.balancers.iter();
    balancers.find(|(_, found)| found.listens_by(arn)).map(|(balancer, _)| balancer.clone())
}

fn modified(holding: &mut Holding, arn: &str, new: &NewListener) {
    let Some(balancer) = balancer_of(holding, arn) else { return };
    let before = listeners(holding, &balancer)
        .and_then(|known| known.insert(new.port, made_listener(arn.to_owned(), new)))
        .and_then(|listener| listener.target_group);
    detach(holding, &balancer, before.as_deref());
    attach(holding, &balancer, Some(&new.target_group));
}

fn deleted(holding: &mut Holding, arn: &str, port: u16) {
    let Some(balancer) = balancer_of(holding, arn) else { return };
    if let Some(found) = holding.balancers.get_mut(&balancer) {
        found.listener_tags.remove(arn);
    }
    let before = listeners(holding, &balancer)
        .and_then(|known| known.remove(&port))
        .and_then(|listener| listener.target_group);
    detach(holding, &balancer, before.as_deref());
}

fn attach(holding: &mut Holding, balancer: &str, pool: Option<&str>) {
    if let Some(pool) = pool.and_then(|pool| holding.pools.get_mut(pool)) {
        pool.group.load_balancers.insert(balancer.to_owned());
    }
}

/// A target group that no listener sends to any more belongs to no load balancer.
fn detach(holding: &mut Holding, balancer: &str, pool: Option<&str>) {
    let Some(pool) = pool else { return };
    let used = holding.balancers.get(balancer).and_then(|found| found.listeners.as_ref());
    let used = used
        .is_some_and(|known| known.values().any(|listener| listener.target_group.as_deref() == Some(pool)));
    if let Some(pool) = holding.pools.get_mut(pool).filter(|_| !used) {
        pool.group.load_balancers.remove(balancer);
    }
}
