//! Looking at all that is ours at once.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use portcullis_core::Owner;

use super::execute::{self, Seen, tag_filter};
use super::listing::{Listing, Ours, Reading};
use super::look::Look;
use super::rules;
use super::settings::Settings;
use super::snapshot::{Balancer, Group, Pool, Shared, Snapshot};
use crate::client::{CallError, Client};
use crate::model::{LoadBalancer, SecurityGroup, Tags, TargetGroup};

/// All that is ours, and what is written on it.
#[derive(Debug, Default)]
pub(super) struct Everything {
    pub(super) groups: Vec<SecurityGroup>,
    pub(super) balancers: Vec<LoadBalancer>,
    pub(super) pools: Vec<TargetGroup>,
    /// Groups of others that are known.
    pub(super) others: Vec<SecurityGroup>,
    /// What is written on load balancers and target groups.
    pub(super) tags: BTreeMap<String, Tags>,
    /// What was known before, as it is now.
    pub(super) again: Again,
}

/// What is known of what is not ours, by id, and is looked at again: others change it.
#[derive(Clone, Debug, Default)]
pub(super) struct Known {
    pub(super) groups: BTreeSet<String>,
    pub(super) machines: BTreeSet<String>,
    pub(super) subnets: bool,
    pub(super) route_tables: bool,
}

impl Known {
    pub(super) fn of(shared: &Shared) -> Self {
        Known {
            groups: shared.groups.keys().cloned().collect(),
            machines: shared.looked_for.clone(),
            subnets: shared.subnets.is_some(),
            route_tables: shared.route_tables.is_some(),
        }
    }
}

/// What of it was looked at again.
#[derive(Debug, Default)]
pub(super) struct Again {
    groups: BTreeSet<String>,
    seen: Vec<Seen>,
}

/// What was written on objects when they were last looked at; nobody else changes whose they are.
pub(super) type KnownTags = BTreeMap<String, Tags>;

/// Looks at everything: load balancers, target groups and groups, each by few calls. What is written on those that are
/// known is not looked at again. `others` is what is known of what is not ours; without it, all groups are looked at for
/// rules of ours.
pub(super) async fn look_at_everything(
    client: &Client,
    settings: &Settings,
    (listing, reading): (&Listing, &Reading),
    known: &KnownTags,
    others: Option<&Known>,
) -> Result<Everything, CallError> {
    let mut again = Again::default();
    let (groups, shared) = if let Some(others) = others {
        let cluster = vec![settings.cluster.clone()];
        let vpc = vec![settings.vpc.clone()];
        let filters: [(&str, &[String]); 2] = [(&tag_filter(Owner::CLUSTER_KEY), &cluster), ("vpc-id", &vpc)];
        let groups = client.security_groups(&filters).await?;
        let mut shared = Vec::new();
        for some in others.groups.iter().cloned().collect::<Vec<_>>().chunks(200) {
            shared.extend(client.security_groups(&[("group-id", some)]).await?);
        }
        let subnets = others.subnets.then_some(Look::Subnets);
        let tables = others.route_tables.then_some(Look::RouteTables);
        let machines = others.machines.iter().cloned().map(Look::Instance);
        let looks = machines.chain(subnets).chain(tables).collect();
        again = Again { groups: others.groups.clone(), seen: execute::look(client, settings, &looks).await? };
        (groups, shared)
    } else {
        let vpc = vec![settings.vpc.clone()];
        own_and_marked(client.security_groups(&[("vpc-id", &vpc)]).await?, &settings.cluster)
    };
    // Last, as others may have read it a while ago: what is changed from now on is newer.
    let Ours { balancers, pools, tags } = listing.ours(client, settings, known, reading).await?;
    Ok(Everything { groups, balancers, pools, others: shared, tags, again })
}

/// Of all groups of a VPC those that are ours, and those of others that have rules of ours.
pub(super) fn own_and_marked(
    all: Vec<SecurityGroup>,
    cluster: &str,
) -> (Vec<SecurityGroup>, Vec<SecurityGroup>) {
    let marks = rules::marks(cluster);
    let is_own = |group: &SecurityGroup| owner_of(&group.tags, cluster).is_some();
    let (own, others): (Vec<_>, Vec<_>) = all.into_iter().partition(is_own);
    let is_marked = |group: &SecurityGroup| group.ingress.values().any(|mark| mark.starts_with(&marks));
    (own, others.into_iter().filter(is_marked).collect())
}

impl Everything {
    /// Takes in what was seen. What was made or taken away since, or so shortly before that AWS may not know itself yet,
    /// stays as it is known.
    pub(super) fn take_in(
        self,
        cluster: &str,
        snapshot: &mut Snapshot,
        tags: &mut KnownTags,
        recent: &Recent,
    ) {
        tags.extend(self.tags);
        let arns =
            self.balancers.iter().map(|found| &found.arn).chain(self.pools.iter().map(|pool| &pool.arn));
        let arns: BTreeSet<&String> = arns.collect();
        tags.retain(|arn, _| arns.contains(arn) || recent.changed.contains(arn));
        let mut seen = BTreeSet::new();
        for group in self.groups {
            let Some(owner) = owner_of(&group.tags, cluster) else { continue };
            seen.insert(group.id.clone());
            if recent.is_gone(&group.id) {
                continue;
            }
            let holding = snapshot.holding(&owner);
            if !recent.is_fresh(&group.id) || !holding.groups.contains_key(&group.id) {
                holding.groups.insert(group.id.clone(), Group { group, seen: true });
            }
        }
        for balancer in self.balancers {
            let Some(written) = tags.get(&balancer.arn).cloned() else { continue };
            let Some(owner) = owner_of(&written, cluster) else { continue };
            seen.insert(balancer.arn.clone());
            if recent.is_gone(&balancer.arn) {
                continue;
            }
            let arn = balancer.arn.clone();
            match snapshot.holding(&owner).balancers.get_mut(&arn) {
                Some(_) if recent.is_fresh(&arn) => {}
                Some(known) => known.balancer = balancer,
                None => {
                    let found = Balancer { balancer, tags: written, seen: true, ..Balancer::default() };
                    snapshot.holding(&owner).balancers.insert(arn, found);
                }
            }
        }
        for group in self.pools {
            let Some(written) = tags.get(&group.arn).cloned() else { continue };
            let Some(owner) = owner_of(&written, cluster) else { continue };
            seen.insert(group.arn.clone());
            if recent.is_gone(&group.arn) {
                continue;
            }
            let arn = group.arn.clone();
            match snapshot.holding(&owner).pools.get_mut(&arn) {
                Some(_) if recent.is_fresh(&arn) => {}
                Some(known) => known.group = group,
                None => {
                    let found = Pool { group, tags: written, seen: true, ..Pool::default() };
                    snapshot.holding(&owner).pools.insert(arn, found);
                }
            }
        }
        let mut missing = self.again.groups;
        for group in self.others {
            missing.remove(&group.id);
            if !recent.is_fresh(&group.id) {
                snapshot.shared.groups.insert(group.id.clone(), group);
            }
        }
        let shared = &mut snapshot.shared;
        shared.groups.retain(|id, _| !missing.contains(id) || recent.changed.contains(id));
        // What was not there may be by now.
        let is_there =
            |name: &String| shared.groups.values().any(|group| group.id == *name || group.name == *name);
        shared.named.retain(is_there);
        for seen in self.again.seen {
            if let Seen::Instances(asked, _) = &seen {
                snapshot.shared.instances.retain(|id, _| !asked.contains(id));
            }
            seen.take_in(snapshot);
        }
        let stays = |id: &String| seen.contains(id) || recent.changed.contains(id);
        for holding in snapshot.holdings.values_mut().map(Arc::make_mut) {
            holding.groups.retain(|id, _| stays(id));
            holding.balancers.retain(|id, _| stays(id));
            holding.pools.retain(|id, _| stays(id));
        }
        snapshot.holdings.retain(|_, holding| !holding.is_empty());
    }
}

/// Whose an object is. Where nobody can say, it is nobody's of ours.
pub(super) fn owner_of(tags: &Tags, cluster: &str) -> Option<Owner> {
    let pairs = tags.iter().map(|(key, value)| (key.as_str(), value.as_str()));
    Owner::from_pairs(pairs).ok().flatten().filter(|owner| owner.cluster() == cluster)
}

/// What was changed or taken away shortly, by id. AWS may tell the old for a while.
#[derive(Clone, Debug, Default)]
pub(super) struct Recent {
    /// Made or changed: it is there, although it may not be seen yet.
    pub(super) changed: BTreeSet<String>,
    /// Of these it is known how they are, better than AWS may tell.
    pub(super) certain: BTreeSet<String>,
    /// Taken away: it is not there, although it may be seen still.
    pub(super) gone: BTreeSet<String>,
}

impl Recent {
    fn is_fresh(&self, id: &str) -> bool {
        self.certain.contains(id)
    }

    fn is_gone(&self, id: &str) -> bool {
        self.gone.contains(id)
    }
}
