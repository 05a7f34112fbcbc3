//! What is known of AWS.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use portcullis_core::Owner;

use super::settings::{MemberReports, Settings};
use crate::model::{
    Attributes, Instance, Listener, LoadBalancer, RouteTable, SecurityGroup, Subnet, Tags, Target,
    TargetGroup, TargetState,
};

/// On which group of an owner the rules of which part are.
pub(super) const PART_KEY: &str = "portcullis.dev/part";

/// What is known of AWS: what is ours, by owner, and what is shared by all of it.
#[derive(Clone, Debug, Default)]
pub(super) struct Snapshot {
    /// Shared with copies of the snapshot until one of them changes: a plan is made on a copy, and changes few of them.
    pub(super) holdings: BTreeMap<Owner, Arc<Holding>>,
    pub(super) shared: Shared,
}

/// What an owner has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Holding {
    pub(super) groups: BTreeMap<String, Group>,
    pub(super) balancers: BTreeMap<String, Balancer>,
    pub(super) pools: BTreeMap<String, Pool>,
    /// Names that would be its own, and that others have.
    pub(super) taken: BTreeSet<String>,
}

/// A security group of ours.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Group {
    pub(super) group: SecurityGroup,
    /// Whether its rules were looked at since it was made: AWS puts some into a new one.
    pub(super) seen: bool,
}

/// A load balancer of ours. What was not looked at yet is left out.
#[allow(clippy::struct_field_names, reason = "it is what AWS tells of it")]
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Balancer {
    pub(super) balancer: LoadBalancer,
    pub(super) tags: Tags,
    /// Whether what is written on it was looked at: AWS gives one that is there already to whoever makes the same.
    pub(super) seen: bool,
    pub(super) attributes: Option<Attributes>,
    /// By their ports.
    pub(super) listeners: Option<BTreeMap<u16, Listener>>,
    /// What is written on its listeners, where that is known. Others carry what it carries itself: they are written on
    /// together.
    pub(super) listener_tags: BTreeMap<String, Tags>,
}

/// A target group of ours.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Pool {
    pub(super) group: TargetGroup,
    pub(super) tags: Tags,
    /// As above.
    pub(super) seen: bool,
    pub(super) attributes: Option<Attributes>,
    /// How each of them does.
    pub(super) targets: Option<BTreeMap<Target, TargetState>>,
    /// What AWS says of those who are not well, where somebody is told of them.
    pub(super) reasons: BTreeMap<Target, String>,
    /// Those who were added while it was in use, or were not well when it was looked at: it is not known whether packets
    /// get through to them.
    pub(super) unproven: BTreeSet<Target>,
}

/// What all load balancers have to do with.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Shared {
    pub(super) subnets: Option<Vec<Subnet>>,
    pub(super) route_tables: Option<Vec<RouteTable>>,
    /// Machines that were looked at and run.
    pub(super) instances: BTreeMap<String, Instance>,
    /// Machines that were looked for.
    pub(super) looked_for: BTreeSet<String>,
    /// Groups that are not ours: those of the nodes, and those that Services name.
    pub(super) groups: BTreeMap<String, SecurityGroup>,
    /// What Services name, and was looked for.
    pub(super) named: BTreeSet<String>,
}

impl Shared {
    /// A machine that can be sent to. Where members are told of, one that is elsewhere keeps nobody else out.
    pub(super) fn machine(&self, id: &str, settings: &Settings) -> Option<&Instance> {
        let is_here = |found: &&Instance| found.vpc.is_empty() || found.vpc == settings.vpc;
        self.instances.get(id).filter(|found| settings.members == MemberReports::None || is_here(found))
    }

    /// Whether a group was looked for, whether it is there or not.
    pub(super) fn knows(&self, group: &str) -> bool {
        self.groups.contains_key(group) || self.named.contains(group)
    }
}

impl Holding {
    /// Whether all of it was made by the cluster of that identity.
    pub(super) fn carries(&self, identity: &str) -> bool {
        let balancers = self.balancers.values().map(|found| &found.tags);
        let pools = self.pools.values().map(|found| &found.tags);
        let groups = self.groups.values().map(|found| &found.group.tags);
        let mut all = balancers.chain(pools).chain(groups);
        all.all(|tags| tags.get(Owner::IDENTITY_KEY).is_some_and(|found| found == identity))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.groups.is_empty() && self.balancers.is_empty() && self.pools.is_empty()
    }

    /// The groups of the owner by their part, from 1 on. Without a mark it is the first.
    pub(super) fn parts(&self) -> BTreeMap<usize, &Group> {
        let mut parts = BTreeMap::new();
        for group in self.groups.values() {
            let part = group.group.tags.get(PART_KEY).and_then(|part| part.parse().ok()).unwrap_or(1);
            parts.entry(part).or_insert(group);
        }
        parts
    }
}

impl Balancer {
    /// Whether a listener is one of its own.
    pub(super) fn listens_by(&self, arn: &str) -> bool {
        self.listeners.iter().flatten().any(|(_, listener)| listener.arn == arn)
    }
}

impl Pool {
    /// Who is in it, or on the way in; not those on the way out.
    pub(super) fn members(&self) -> Option<BTreeSet<&Target>> {
        let targets = self.targets.as_ref()?;
        Some(
            targets
                .iter()
                .filter(|(_, state)| **state != TargetState::Draining)
                .map(|(target, _)| target)
                .collect(),
        )
    }
}

impl Snapshot {
    /// What an owner has, to change it; nothing if nothing was known of it.
    pub(super) fn holding(&mut self, owner: &Owner) -> &mut Holding {
        Arc::make_mut(self.holdings.entry(owner.clone()).or_default())
    }

    /// The same, of an owner of whom something is known.
    pub(super) fn known(&mut self, owner: &Owner) -> Option<&mut Holding> {
        self.holdings.get_mut(owner).map(Arc::make_mut)
    }

    /// A load balancer of ours, to change it.
    pub(super) fn balancer(&mut self, arn: &str) -> Option<&mut Balancer> {
        let mut holdings = self.holdings.values_mut();
        let holding = holdings.find(|holding| holding.balancers.contains_key(arn))?;
        Arc::make_mut(holding).balancers.get_mut(arn)
    }

    /// A target group of ours, to change it.
    pub(super) fn pool(&mut self, arn: &str) -> Option<&mut Pool> {
        let mut holdings = self.holdings.values_mut();
        let holding = holdings.find(|holding| holding.pools.contains_key(arn))?;
        Arc::make_mut(holding).pools.get_mut(arn)
    }
}
