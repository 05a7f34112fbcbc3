//! What all load balancers of a cluster share: the group that all of them have, and what the nodes let in.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use portcullis_core::{Direction, Owner};
use smol_str::SmolStr;

use super::asked::TargetKind;
use super::decide::tags::{tag_group, wanted_tags};
use super::decide::{self, Groups};
use super::look::Look;
use super::rules::{self, OwnNodeRules};
use super::settings::{MemberReports, NodeRules, Settings};
use super::snapshot::{Balancer, Holding, PART_KEY, Pool, Snapshot};
use super::spec::Spec;
use super::step::{Place, Step};
use super::{names, subnets};
use crate::model::{Peer, Permission, Permissions, SecurityGroup, Tags};

/// What is so on the nodes' side, and what to do next there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct NodeSide {
    pub(super) looks: BTreeSet<Look>,
    pub(super) steps: Vec<(Place, Step)>,
    pub(super) told: Vec<String>,
    /// The nodes' groups.
    pub(super) groups: BTreeSet<String>,
    /// Whether load balancers are to have the group that all of them have.
    pub(super) needs_backend: bool,
    /// That group, once it can be used.
    pub(super) backend: Option<String>,
    /// What is to be opened for one owner only, where it is not yet. Each does that for itself: what cannot be opened for
    /// one keeps nobody else waiting.
    pub(super) own: BTreeMap<Owner, Vec<Step>>,
    /// Whether the rules for all are there.
    pub(super) open: bool,
    /// Groups that are let in by rules of ours.
    pub(super) let_in: BTreeSet<String>,
}

/// Whose the group is that all load balancers have.
pub(super) fn backend_owner(settings: &Settings) -> Owner {
    let cluster = settings.cluster.as_str();
    Owner::new(cluster, "Cluster", None, cluster).expect("a cluster has a name that can be written")
}

/// What is written on the group that all load balancers have.
fn backend_tags(settings: &Settings) -> Tags {
    let mut tags = settings.tags.clone();
    let own = backend_owner(settings).to_pairs();
    tags.extend(own.into_iter().map(|(key, value)| (key.to_owned(), value)));
    tags.extend(settings.identity.clone().map(|id| (Owner::IDENTITY_KEY.to_owned(), id)));
    // Not `owned`: cloud-provider-aws takes such a group away, with all rules that name it, from any load balancer that it
    // comes to look after.
    tags.insert(format!("kubernetes.io/cluster/{}", settings.cluster), "shared".to_owned());
    tags.insert(PART_KEY.to_owned(), "1".to_owned());
    wanted_tags(&tags)
}

/// Looks at the nodes' side. `opened` are the owners for which all is open that they want, so that what they wanted
/// before can be closed.
pub(super) fn look_at(
    specs: &BTreeMap<Owner, Spec>,
    snapshot: &Snapshot,
    settings: &Settings,
    opened: &BTreeSet<Owner>,
) -> NodeSide {
    let mut side = NodeSide { open: true, ..NodeSide::default() };
    if settings.node_rules == NodeRules::Off {
        // What was opened before is still ours to close.
        side.find_groups(specs, snapshot, settings);
        side.change(specs, snapshot, settings, opened, &BTreeMap::new());
        return side;
    }
    side.find_groups(specs, snapshot, settings);
    if !side.looks.is_empty() {
        side.open = false;
        return side;
    }
    // Who has no groups is let in by the addresses of its subnets: as long as these are not known, it is not known either
    // which rules nobody wants.
    if snapshot.shared.subnets.is_none() && specs.values().any(|spec| is_without_groups(spec, snapshot)) {
        side.looks.insert(Look::Subnets);
        side.open = false;
        return side;
    }
    side.prepare_backend(specs, snapshot, settings);
    let wanted = side.wanted(specs, snapshot, settings, opened);
    side.change(specs, snapshot, settings, opened, &wanted);
    side.tag_backend(snapshot, settings);
    side
}

/// Whether an owner has a load balancer, and that one no groups.
fn is_without_groups(spec: &Spec, snapshot: &Snapshot) -> bool {
    let found = snapshot.holdings.get(&spec.owner).and_then(|holding| decide::balancer(holding, &spec.name));
    found.is_some_and(|found| found.balancer.groups.is_empty())
}

/// Rules wanted in every group of the nodes, by whom.
type WantedRules = BTreeMap<Owner, Permissions>;

impl NodeSide {
    /// The nodes' groups: as configured, or of each node the one that is tagged, or the only one.
    fn find_groups(&mut self, specs: &BTreeMap<Owner, Spec>, snapshot: &Snapshot, settings: &Settings) {
        let shared = &snapshot.shared;
        // Most load balancers share one set of machines, which is gone through once.
        let sets: BTreeMap<_, _> =
            specs.values().map(|spec| (Arc::as_ptr(&spec.machines), &spec.machines)).collect();
        let nodes: BTreeSet<&str> = sets.values().flat_map(|set| set.iter()).map(SmolStr::as_str).collect();
        let unknown = nodes.iter().filter(|id| !shared.looked_for.contains(**id));
        self.looks.extend(unknown.map(|id| Look::Instance((*id).to_owned())));
        if !settings.node_groups.is_empty() {
            for id in &settings.node_groups {
                if shared.groups.contains_key(id) {
                    self.groups.insert(id.clone());
                } else if shared.named.contains(id) {
                    self.told.push(format!("the nodes' group {id}, which is configured, does not exist"));
                } else {
                    self.looks.insert(Look::SharedGroup(id.clone()));
                }
            }
            return;
        }
        let tag = format!("kubernetes.io/cluster/{}", settings.cluster);
        for id in nodes {
            let Some(instance) = shared.machine(id, settings) else { continue };
            let unknown = instance.groups.iter().filter(|group| !shared.knows(group));
            let unknown: BTreeSet<Look> = unknown.map(|group| Look::SharedGroup(group.clone())).collect();
            if !unknown.is_empty() {
                self.looks.extend(unknown);
                continue;
            }
            let tagged: Vec<&String> = instance
                .groups
                .iter()
                .filter(|group| shared.groups.get(*group).is_some_and(|group| group.tags.contains_key(&tag)))
                .collect();
            match (tagged.as_slice(), instance.groups.len()) {
                ([group], _) => drop(self.groups.insert((*group).clone())),
                ([], 1) => self.groups.extend(instance.groups.iter().cloned()),
                (tagged, _) => {
                    let which = if tagged.is_empty() { "none" } else { "several" };
                    self.told.push(format!(
                        "of the groups of node {id}, {which} is tagged {tag}: tag one, or name the nodes' groups in the configuration"
                    ));
                }
            }
        }
        // Machines that are not of the VPC have no groups there.
        let is_elsewhere = |spec: &Spec| {
            let mut addresses = spec.listeners.values().flat_map(|listening| &listening.backend.addresses);
            settings.members == MemberReports::Each
                && !addresses.any(|(address, _)| subnets::contain(shared, *address))
        };
        let hidden = |spec: &Spec| {
            spec.target_kind == TargetKind::Ip && spec.machines.is_empty() && !is_elsewhere(spec)
        };
        if settings.node_rules != NodeRules::Off && self.groups.is_empty() && specs.values().any(hidden) {
            let told = match settings.members {
                MemberReports::None => {
                    "it is not known on which machines the pods run, so that nothing is opened there: name the nodes' groups in the configuration"
                }
                MemberReports::Each => {
                    "it is not known which instances have its members' addresses, so that nothing is opened there: members need a providerID, or others see to it"
                }
            };
            self.told.push(told.to_owned());
        }
        self.told.sort_unstable();
        self.told.truncate(1);
    }

    /// Sees to the group that all load balancers have: without rules, since rules of all groups count together.
    fn prepare_backend(&mut self, specs: &BTreeMap<Owner, Spec>, snapshot: &Snapshot, settings: &Settings) {
        let owner = backend_owner(settings);
        let empty = Holding::default();
        let holding = |owner: &Owner| snapshot.holdings.get(owner).map_or(&empty, |holding| holding);
        let uses = |spec: &&Spec| match decide::groups(spec, holding(&spec.owner), settings, &snapshot.shared)
        {
            Ok(Groups::Managed) => true,
            Ok(Groups::Given(_)) => spec.manage_backend,
            Ok(Groups::Without) | Err(_) => false,
        };
        self.needs_backend =
            settings.node_rules == NodeRules::Shared && specs.values().any(|spec| uses(&spec));
        let own = holding(&owner).groups.values().next();
        let place = || Place::Owner(owner.clone());
        let Some(own) = own else {
            if self.needs_backend {
                self.open = false;
                self.steps.push((
                    place(),
                    Step::CreateGroup {
                        name: names::backend_group(&settings.cluster),
                        description: "Whoever has it is a load balancer of the cluster".to_owned(),
                        vpc: settings.vpc.clone(),
                        tags: backend_tags(settings),
                    },
                ));
            }
            return;
        };
        let id = own.group.id.clone();
        if !own.seen {
            self.looks.insert(Look::Groups(owner.clone()));
            self.open = false;
            return;
        }
        for (direction, permissions) in
            [(Direction::Ingress, &own.group.ingress), (Direction::Egress, &own.group.egress)]
        {
            if !permissions.is_empty() {
                let permissions = permissions.clone();
                self.steps.push((place(), Step::Forbid { group: id.clone(), direction, permissions }));
                self.open = false;
            }
        }
        if self.steps.is_empty() {
            self.backend = Some(id);
        }
    }

    /// Writes on the group that all load balancers have what is missing there; after all else, which does not wait for it.
    fn tag_backend(&mut self, snapshot: &Snapshot, settings: &Settings) {
        let owner = backend_owner(settings);
        let own = snapshot.holdings.get(&owner).and_then(|holding| holding.groups.values().next());
        let Some(own) = own.filter(|own| own.seen && self.needs_backend) else { return };
        let mut steps = Vec::new();
        tag_group(&mut steps, own, &backend_tags(settings));
        self.steps.extend(steps.into_iter().map(|step| (Place::Owner(owner.clone()), step)));
    }

    /// Ports that a load balancer goes to as it is, and that the nodes let in by rules of ours.
    fn passing(
        &self,
        holding: &Holding,
        found: &Balancer,
        snapshot: &Snapshot,
        settings: &Settings,
    ) -> BTreeSet<(&'static str, u16)> {
        let marks = rules::marks(&settings.cluster);
        let groups = self.groups.iter().filter_map(|id| snapshot.shared.groups.get(id));
        let ours = groups.flat_map(|group| &group.ingress).filter(|(_, mark)| mark.starts_with(&marks));
        let is_own = |peer: &Peer| matches!(peer, Peer::Group(id) if found.balancer.groups.contains(id));
        let rules: Vec<&Permission> = ours.map(|(rule, _)| rule).filter(|rule| is_own(&rule.peer)).collect();
        let mut ports = rules::ports_in_use(holding, found);
        ports.retain(|(transport, port)| {
            let port = Some(i32::from(*port));
            rules.iter().any(|rule| rule.protocol == *transport && rule.from <= port && port <= rule.to)
        });
        ports
    }

    /// The rules that are wanted, by whom.
    fn wanted(
        &self,
        specs: &BTreeMap<Owner, Spec>,
        snapshot: &Snapshot,
        settings: &Settings,
        opened: &BTreeSet<Owner>,
    ) -> WantedRules {
        let mut wanted = WantedRules::new();
        let backend = self.backend.as_deref().filter(|_| self.needs_backend);
        if let Some(backend) = backend {
            let owner = backend_owner(settings);
            let rules = rules::shared_node_rules(backend, &owner, settings);
            wanted.insert(owner, rules);
        }
        let empty = Holding::default();
        for spec in specs.values() {
            let holding = snapshot.holdings.get(&spec.owner).map_or(&empty, |holding| holding);
            let groups = decide::groups(spec, holding, settings, &snapshot.shared);
            let found = decide::balancer(holding, &spec.name);
            let group = |group, besides| {
                // One that gets another group sends to where it sent before, until its listeners are changed.
                let found = found.filter(|_| !opened.contains(&spec.owner));
                let also = found.map(|found| self.passing(holding, found, snapshot, settings));
                OwnNodeRules::Group { group, besides, also: also.unwrap_or_default() }
            };
            let from = match &groups {
                Ok(Groups::Managed) if rules::is_exact(settings) => {
                    holding.parts().get(&1).map(|own| group(&own.group.id, None))
                }
                Ok(Groups::Given(ids)) if rules::is_exact(settings) && spec.manage_backend => {
                    ids.first().map(|id| group(id, None))
                }
                Ok(Groups::Without) => found.and_then(|found| {
                    // Those that it is about to get are opened before it has them.
                    let given = subnets::given(spec, &snapshot.shared, settings).unwrap_or_default();
                    let all = found.balancer.subnets.iter().cloned().chain(given).collect();
                    let subnets = subnets::ranges(&snapshot.shared, &all)?;
                    Some(OwnNodeRules::Clients { subnets })
                }),
                Ok(groups) if *groups == Groups::Managed || spec.manage_backend => {
                    backend.map(|backend| group(backend, Some(settings)))
                }
                _ => None,
            };
            let rules = from.map(|from| rules::own_node_rules(spec, &from)).unwrap_or_default();
            if !rules.is_empty() {
                wanted.insert(spec.owner.clone(), rules);
            }
        }
        wanted
    }

    /// Opens what is missing, and closes what is marked as ours and not wanted any more.
    fn change(
        &mut self,
        specs: &BTreeMap<Owner, Spec>,
        snapshot: &Snapshot,
        settings: &Settings,
        opened: &BTreeSet<Owner>,
        wanted: &WantedRules,
    ) {
        let marks = rules::marks(&settings.cluster);
        let shared_owner = backend_owner(settings);
        let all: BTreeSet<&Permission> = wanted.values().flat_map(Permissions::keys).collect();
        let shared_mark = rules::mark(&shared_owner);
        let backend = snapshot.holdings.get(&shared_owner).and_then(|holding| holding.groups.keys().next());
        let backend_used = !self.needs_backend
            && snapshot
                .holdings
                .values()
                .flat_map(|holding| holding.balancers.values())
                .any(|found| backend.is_some_and(|backend| found.balancer.groups.contains(backend)));
        let mut closing = Vec::new();
        for group in snapshot.shared.groups.values() {
            let ours: Permissions =
                group.ingress.iter().filter(|(_, mark)| mark.starts_with(&marks)).map(owned).collect();
            for permission in ours.keys() {
                if let Peer::Group(id) = &permission.peer {
                    self.let_in.insert(id.clone());
                }
            }
            let is_nodes = self.groups.contains(&group.id);
            if is_nodes {
                self.open_in(group, wanted, &shared_owner);
            }
            let mut surplus: Permissions = ours
                .iter()
                .filter(|(permission, _)| !is_nodes || !all.contains(permission))
                .map(owned)
                .collect();
            if !surplus.is_empty() {
                let uncertain = uncertain(specs, snapshot, opened);
                let may_close = |permission: &Permission, mark: &str| {
                    let shared = mark == shared_mark;
                    let mut uncertain = uncertain.iter();
                    let needed = uncertain.any(|holding| needs(holding, permission, shared));
                    !needed && (!shared || self.open && !backend_used)
                };
                surplus.retain(|permission, mark| may_close(permission, mark));
            }
            if !surplus.is_empty() {
                let step = Step::Forbid {
                    group: group.id.clone(),
                    direction: Direction::Ingress,
                    permissions: surplus,
                };
                closing.push((Place::Shared, step));
            }
        }
        // What is for all is open before anything of it is closed.
        if self.open {
            self.steps.extend(closing);
        }
        // Once nobody has it, and nobody lets it in.
        if let Some(id) =
            backend.filter(|id| !self.needs_backend && !backend_used && !self.let_in.contains(*id))
        {
            self.steps.push((Place::Owner(shared_owner), Step::DeleteGroup { group: id.clone() }));
        }
    }

    /// Opens what is missing in a group of the nodes.
    fn open_in(&mut self, group: &SecurityGroup, wanted: &WantedRules, shared_owner: &Owner) {
        for (owner, permissions) in wanted {
            let missing: Permissions = permissions
                .iter()
                .filter(|(permission, _)| !group.ingress.contains_key(*permission))
                .map(owned)
                .collect();
            if missing.is_empty() {
                continue;
            }
            let step =
                Step::Permit { group: group.id.clone(), direction: Direction::Ingress, permissions: missing };
            if owner == shared_owner {
                self.open = false;
                self.steps.push((Place::Shared, step));
            } else {
                self.own.entry(owner.clone()).or_default().push(step);
            }
        }
    }
}

/// What owners have of whom it is not known what they need, or who do not have all yet that they want.
fn uncertain<'a>(
    specs: &BTreeMap<Owner, Spec>,
    snapshot: &'a Snapshot,
    opened: &BTreeSet<Owner>,
) -> Vec<&'a Holding> {
    let is_certain = |owner: &Owner| specs.contains_key(owner) && opened.contains(owner);
    let holdings = snapshot.holdings.iter().filter(|(owner, _)| !is_certain(owner));
    holdings.map(|(_, holding)| &**holding).filter(|holding| !holding.balancers.is_empty()).collect()
}

/// Whether packets of a load balancer as it is may come through by a rule of the nodes, whoever it was made for. What is
/// for all stays or goes together, whatever the ports.
fn needs(holding: &Holding, permission: &Permission, shared: bool) -> bool {
    let is_from = |found: &Balancer| match &permission.peer {
        Peer::Group(id) => found.balancer.groups.contains(id),
        // The nodes may see the addresses of clients, whatever groups it has.
        Peer::Range(_) | Peer::PrefixList(_) => true,
    };
    let covers = |port: u16| permission.from <= Some(port.into()) && Some(port.into()) <= permission.to;
    let is_to = |pool: &Pool| {
        let checked = pool.group.health_check.port.parse::<u16>().ok();
        // Who was not looked at may be on any port.
        let Some(targets) = &pool.targets else { return true };
        let targets = targets.keys().map(|target| target.port);
        targets.chain(checked).chain([pool.group.port]).any(covers)
    };
    holding.balancers.values().any(is_from)
        && (shared || permission.protocol.starts_with("icmp") || holding.pools.values().any(is_to))
}

fn owned((permission, mark): (&Permission, &String)) -> (Permission, String) {
    (permission.clone(), mark.clone())
}
