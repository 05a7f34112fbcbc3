//! Steps and looks as calls.

use std::collections::{BTreeMap, BTreeSet};

use portcullis_core::Owner;

use super::look::Look;
use super::settings::{MemberReports, Settings};
use super::snapshot::{Group, Snapshot};
use super::step::{Made, Step};
use crate::client::{CallError, Client};
use crate::model::RouteTable;
use crate::model::{Attributes, Instance, Listener, SecurityGroup, Subnet, Target, TargetState};

/// Does a step.
pub(super) async fn perform(client: &Client, step: &Step) -> Result<Made, CallError> {
    let nothing = match step {
        Step::CreateGroup { name, description, vpc, tags } => {
            return client.create_security_group(name, description, vpc, tags).await.map(Made::Group);
        }
        Step::CreateBalancer(new) => return client.create_load_balancer(new).await.map(Made::Balancer),
        Step::CreatePool(new) => return client.create_target_group(new).await.map(Made::Pool),
        Step::CreateListener { balancer, listener, tags } => {
            return client.create_listener(balancer, listener, tags).await.map(Made::Listener);
        }
        Step::Permit { group, direction, permissions } => {
            client.change_permissions(group, *direction, true, permissions).await
        }
        Step::Forbid { group, direction, permissions } => {
            client.change_permissions(group, *direction, false, permissions).await
        }
        Step::TagGroup { group, tags } => client.create_tags(std::slice::from_ref(group), tags).await,
        Step::UntagGroup { group, keys } => client.delete_tags(group, keys).await,
        Step::DeleteGroup { group } => client.delete_security_group(group).await,
        Step::SetGroups { balancer, groups } => client.set_security_groups(balancer, groups).await,
        Step::SetSubnets { balancer, subnets } => client.set_subnets(balancer, subnets).await,
        Step::SetIpAddressType { balancer, kind } => client.set_ip_address_type(balancer, kind).await,
        Step::SetAttributes { balancer, attributes } => {
            client.modify_load_balancer_attributes(balancer, attributes).await
        }
        Step::DeleteBalancer { balancer } => client.delete_load_balancer(balancer).await,
        Step::Check { pool, check } => client.modify_target_group(pool, check).await,
        Step::SetPoolAttributes { pool, attributes } => {
            client.modify_target_group_attributes(pool, attributes).await
        }
        Step::Register { pool, targets } => client.change_targets(pool, true, targets).await,
        Step::Deregister { pool, targets } => client.change_targets(pool, false, targets).await,
        Step::DeletePool { pool } => client.delete_target_group(pool).await,
        Step::ModifyListener { arn, listener } => client.modify_listener(arn, listener).await,
        Step::DeleteListener { arn, .. } => client.delete_listener(arn).await,
        Step::Tag { arns, tags } => client.add_tags(arns, tags).await,
        Step::Untag { arns, keys } => client.remove_tags(arns, keys).await,
    };
    nothing.map(|()| Made::Nothing)
}

/// What was seen.
#[derive(Debug)]
pub(super) enum Seen {
    Subnets(Vec<Subnet>),
    RouteTables(Vec<RouteTable>),
    Instances(BTreeSet<String>, Vec<Instance>),
    /// Groups of others, with what was asked for.
    Groups(BTreeSet<String>, Vec<SecurityGroup>),
    Own(Owner, Vec<SecurityGroup>),
    Listeners(String, Vec<Listener>),
    Attributes(String, Attributes),
    PoolAttributes(String, Attributes),
    /// Who is in a target group, and what AWS says of those who are not well.
    Targets(String, BTreeMap<Target, TargetState>, BTreeMap<Target, String>),
}

impl Seen {
    /// The listeners among it.
    pub(super) fn listeners(&self) -> &[Listener] {
        match self {
            Seen::Listeners(_, listeners) => listeners,
            _ => &[],
        }
    }
}

/// The filter for what is written on an object.
pub(super) fn tag_filter(key: &str) -> String {
    format!("tag:{key}")
}

/// Looks at some things, many of a kind by one call.
pub(super) async fn look(
    client: &Client,
    settings: &Settings,
    looks: &BTreeSet<Look>,
) -> Result<Vec<Seen>, CallError> {
    let mut seen = Vec::new();
    let (mut instances, mut ids, mut names) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    for look in looks {
        match look {
            Look::Subnets => {
                let vpc = [settings.vpc.clone()];
                seen.push(Seen::Subnets(client.subnets(&[("vpc-id", &vpc)]).await?));
            }
            Look::RouteTables => seen.push(Seen::RouteTables(client.route_tables(&settings.vpc).await?)),
            Look::Instance(id) => drop(instances.insert(id.clone())),
            Look::SharedGroup(id) => drop(ids.insert(id.clone())),
            Look::NamedGroup(name) if name.starts_with("sg-") => drop(ids.insert(name.clone())),
            Look::NamedGroup(name) => drop(names.insert(name.clone())),
            Look::Groups(owner) => {
                seen.push(Seen::Own(owner.clone(), own_groups(client, owner, &settings.vpc).await?));
            }
            Look::Listeners(arn) => seen.push(Seen::Listeners(arn.clone(), client.listeners(arn).await?)),
            Look::Attributes(arn) => {
                seen.push(Seen::Attributes(arn.clone(), client.load_balancer_attributes(arn).await?));
            }
            Look::PoolAttributes(arn) => {
                seen.push(Seen::PoolAttributes(arn.clone(), client.target_group_attributes(arn).await?));
            }
            Look::Targets(arn) => {
                let found = client.targets(arn).await?;
                // There may be very many, of whom nobody is told.
                let unwell = found.iter().filter(|(_, health)| {
                    settings.members == MemberReports::Each && health.state != TargetState::Healthy
                });
                let reasons = unwell.map(|(target, health)| (target.clone(), health.why.clone())).collect();
                let states = found.into_iter().map(|(target, health)| (target, health.state)).collect();
                seen.push(Seen::Targets(arn.clone(), states, reasons));
            }
            // Who knows what is there looks for these.
            Look::Leftovers(_) | Look::Whose(_) => {}
        }
    }
    // A filter takes up to 200 values.
    let chunks = |all: BTreeSet<String>| {
        let all: Vec<String> = all.into_iter().collect();
        all.chunks(200).map(<[String]>::to_vec).collect::<Vec<_>>()
    };
    for some in chunks(instances) {
        let found = client.instances(&[("instance-id", &some)]).await?;
        seen.push(Seen::Instances(some.into_iter().collect(), found));
    }
    for some in chunks(ids) {
        let found = client.security_groups(&[("group-id", &some)]).await?;
        seen.push(Seen::Groups(some.into_iter().collect(), found));
    }
    for some in chunks(names) {
        let vpc = [settings.vpc.clone()];
        let found = client.security_groups(&[("vpc-id", &vpc), ("group-name", &some)]).await?;
        seen.push(Seen::Groups(some.into_iter().collect(), found));
    }
    Ok(seen)
}

/// The groups of an owner in a VPC: what is in others is of no use here.
async fn own_groups(client: &Client, owner: &Owner, vpc: &str) -> Result<Vec<SecurityGroup>, CallError> {
    let pairs = owner.to_pairs().into_iter().map(|(key, value)| (tag_filter(key), vec![value]));
    let pairs: Vec<(String, Vec<String>)> =
        pairs.chain([("vpc-id".to_owned(), vec![vpc.to_owned()])]).collect();
    let filters: Vec<(&str, &[String])> =
        pairs.iter().map(|(key, values)| (key.as_str(), values.as_slice())).collect();
    client.security_groups(&filters).await
}

impl Seen {
    /// The same without what was changed since it was looked at, if anything is left.
    pub(super) fn without(self, changed: impl Fn(&str) -> bool) -> Option<Self> {
        let others = |found: Vec<SecurityGroup>| {
            found.into_iter().filter(|group| !changed(&group.id)).collect::<Vec<_>>()
        };
        Some(match self {
            Seen::Groups(asked, found) => Seen::Groups(asked, others(found)),
            Seen::Own(owner, found) => Seen::Own(owner, others(found)),
            Seen::Listeners(arn, found)
                if changed(&arn) || found.iter().any(|listener| changed(&listener.arn)) =>
            {
                return None;
            }
            Seen::Attributes(arn, _) | Seen::PoolAttributes(arn, _) | Seen::Targets(arn, ..)
                if changed(&arn) =>
            {
                return None;
            }
            seen => seen,
        })
    }

    /// Takes in what was seen.
    pub(super) fn take_in(self, snapshot: &mut Snapshot) {
        match self {
            Seen::Subnets(found) => snapshot.shared.subnets = Some(found),
            Seen::RouteTables(found) => snapshot.shared.route_tables = Some(found),
            Seen::Instances(asked, found) => {
                // AWS sends to no other.
                let known = found.into_iter().filter(|found| found.state == "running");
                snapshot.shared.instances.extend(known.map(|found| (found.id.clone(), found)));
                snapshot.shared.looked_for.extend(asked);
            }
            Seen::Groups(asked, found) => {
                snapshot.shared.groups.extend(found.into_iter().map(|found| (found.id.clone(), found)));
                snapshot.shared.named.extend(asked);
            }
            Seen::Own(owner, found) => {
                let holding = snapshot.holding(&owner);
                for group in found {
                    holding.groups.insert(group.id.clone(), Group { group, seen: true });
                }
            }
            Seen::Listeners(arn, found) => {
                if let Some(balancer) = snapshot.balancer(&arn) {
                    balancer.listener_tags.retain(|arn, _| found.iter().any(|found| found.arn == *arn));
                    balancer.listeners = Some(found.into_iter().map(|found| (found.port, found)).collect());
                }
            }
            Seen::Attributes(arn, found) => {
                if let Some(balancer) = snapshot.balancer(&arn) {
                    balancer.attributes = Some(found);
                }
            }
            Seen::PoolAttributes(arn, found) => {
                if let Some(pool) = snapshot.pool(&arn) {
                    pool.attributes = Some(found);
                }
            }
            Seen::Targets(arn, found, reasons) => {
                if let Some(pool) = snapshot.pool(&arn) {
                    let others = found.iter().filter(|(_, state)| **state == TargetState::Other);
                    pool.unproven = others.map(|(target, _)| target.clone()).collect();
                    pool.targets = Some(found);
                    pool.reasons = reasons;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_changed_meanwhile_is_not_seen() {
        let listener = |arn: &str| Listener { arn: arn.to_owned(), ..Listener::default() };
        let listeners = || Seen::Listeners("balancer".to_owned(), vec![listener("one"), listener("two")]);
        let targets = || Seen::Targets("pool".to_owned(), BTreeMap::new(), BTreeMap::new());
        let attributes = || Seen::PoolAttributes("pool".to_owned(), Attributes::new());
        for (changed, left) in [
            ("balancer", [false, true, true]),
            ("two", [false, true, true]),
            ("pool", [true, false, false]),
            ("other", [true, true, true]),
        ] {
            let seen = [listeners(), targets(), attributes()].map(|seen| seen.without(|id| id == changed));
            assert_eq!(seen.map(|seen| seen.is_some()), left, "{changed}");
        }
    }
}
