//! The next steps for one owner, by what it wants and what it has.

mod enforcement;
mod groups;
mod listeners;
mod pools;
pub(super) mod tags;

use std::collections::{BTreeMap, BTreeSet};

use portcullis_core::{Enforcement, Family, Owner, Problem, Scheme};

use self::enforcement::{enforcement, how_targets_see_clients};
use self::listeners::is_dual;
use self::tags::{tag, wanted_tags};
use super::asked::TargetKind;
use super::look::Look;
use super::node_side::NodeSide;
use super::settings::{NodeRules, Settings};
use super::snapshot::{Balancer, Holding, Shared};
use super::spec::Spec;
use super::step::Step;
use super::subnets::{self, NoSubnets};
use super::{defaults, names, rules, words};
use crate::SecurityGroupMode;
use crate::client::{NewLoadBalancer, NewSubnet};
use crate::model::Permission;

/// What is known besides what the owner has.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scene<'a> {
    pub(super) settings: &'a Settings,
    pub(super) shared: &'a Shared,
    pub(super) nodes: &'a NodeSide,
}

/// What to do next for an owner. If there is something to look at, nothing else is said yet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Next {
    pub(super) looks: BTreeSet<Look>,
    pub(super) steps: Vec<Step>,
    /// What the owner should know although it goes on.
    pub(super) told: Vec<String>,
    /// What it should know of the way there, also when that is behind it.
    pub(super) meanwhile: Vec<String>,
    /// Why it does not go on.
    pub(super) problem: Option<Problem>,
    /// What is waited for.
    pub(super) waits: Option<String>,
    /// Where clients find it.
    pub(super) address: Option<String>,
    /// Whether source ranges keep anybody out.
    pub(super) enforcement: Option<Enforcement>,
    /// Whether all that is wanted is open, and what is left is to close the old.
    pub(super) opened: bool,
}

impl Next {
    pub(super) fn is_done(&self) -> bool {
        self.looks.is_empty() && self.steps.is_empty() && self.problem.is_none() && self.waits.is_none()
    }
}

/// Which groups a load balancer is to have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Groups {
    /// None, as it was made without, or is to be.
    Without,
    /// Those that the owner names.
    Given(BTreeSet<String>),
    /// Some that are made for it.
    Managed,
}

/// The load balancer of an owner: the one of that name, if there are several.
pub(super) fn balancer<'a>(holding: &'a Holding, name: &str) -> Option<&'a Balancer> {
    let named = holding.balancers.values().find(|found| found.balancer.name == name);
    named.or_else(|| holding.balancers.values().next())
}

/// Which groups a load balancer is to have; an error where that cannot be said yet, or at all.
pub(super) fn groups(
    spec: &Spec,
    holding: &Holding,
    settings: &Settings,
    shared: &Shared,
) -> Result<Groups, Unknown> {
    let present = balancer(holding, &spec.name);
    if present.is_some_and(|found| found.balancer.groups.is_empty()) {
        return Ok(Groups::Without);
    }
    if let Some(names) = &spec.groups {
        let mut ids = BTreeSet::new();
        for name in names {
            ids.insert(given_group(spec, name, settings, shared)?);
        }
        return Ok(Groups::Given(ids));
    }
    // One that has groups keeps being looked after, whatever is said for new ones.
    if settings.mode == SecurityGroupMode::Managed || present.is_some() {
        return Ok(Groups::Managed);
    }
    Ok(Groups::Without)
}

/// Something to look at, or something wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Unknown {
    Look(Look),
    Wrong(Problem),
}

fn given_group(spec: &Spec, name: &str, settings: &Settings, shared: &Shared) -> Result<String, Unknown> {
    if !shared.named.contains(name) {
        return Err(Unknown::Look(Look::NamedGroup(name.to_owned())));
    }
    let refused = |what: String, remedy: String| {
        let said = words::said(&spec.owner, "security-groups");
        let what = format!("{}: {said} names {name}, {what}.", spec.owner);
        Err(Unknown::Wrong(Problem::new(
            what,
            "Nothing was changed: the load balancer keeps its groups.",
            remedy,
        )))
    };
    let by_id = shared.groups.get(name);
    let mut by_name = shared.groups.values().filter(|group| group.name == name && group.vpc == settings.vpc);
    match by_id.or_else(|| by_name.next()) {
        Some(group) if group.vpc == settings.vpc => Ok(group.id.clone()),
        Some(group) => refused(
            format!("which is in {}; the load balancer is in {}", group.vpc, settings.vpc),
            format!("Use a group of {}, or remove it to go back to a managed group.", settings.vpc),
        ),
        None => refused(
            "which does not exist".to_owned(),
            "Make it, name another one, or remove it from there to go back to a managed group.".to_owned(),
        ),
    }
}

/// What to do next for an owner that wants nothing any more.
pub(super) fn gone(owner: &Owner, holding: &Holding, nodes: &NodeSide, verified: bool) -> Next {
    let mut next = Next { opened: true, ..Next::default() };
    // Nothing goes of which it is not sure whose it is.
    if holding.balancers.values().any(|found| !found.seen) || holding.pools.values().any(|found| !found.seen)
    {
        next.looks.insert(Look::Whose(owner.clone()));
        return next;
    }
    if !holding.balancers.is_empty() {
        next.steps =
            holding.balancers.keys().map(|arn| Step::DeleteBalancer { balancer: arn.clone() }).collect();
        return next;
    }
    next.steps.extend(holding.pools.keys().map(|arn| Step::DeletePool { pool: arn.clone() }));
    // Rules of others that name a group keep it from being deleted.
    if holding.groups.keys().any(|id| nodes.let_in.contains(id)) {
        next.waits = Some("the nodes' groups let it in still".to_owned());
    } else {
        next.steps.extend(holding.groups.keys().map(|id| Step::DeleteGroup { group: id.clone() }));
    }
    if next.is_done() && !verified {
        next.looks.insert(Look::Leftovers(owner.clone()));
    }
    next
}

/// What to do next for an owner that wants a load balancer.
pub(super) fn present(spec: &Spec, holding: &Holding, scene: Scene<'_>) -> Next {
    let mut decision = Decision {
        spec,
        holding,
        scene,
        balancer: balancer(holding, &spec.name),
        next: Next::default(),
        later: Vec::new(),
        emptied: None,
    };
    decision.look();
    if !decision.next.looks.is_empty() {
        return decision.next;
    }
    match groups(spec, holding, scene.settings, scene.shared) {
        Ok(groups) => decision.decide(&groups),
        Err(Unknown::Look(look)) => drop(decision.next.looks.insert(look)),
        Err(Unknown::Wrong(problem)) => decision.next.problem = Some(problem),
    }
    let (mut next, emptied) = (decision.next, decision.emptied);
    if next.is_done()
        && !next.opened
        && let Some(port) = emptied
    {
        next.problem = Some(would_be_emptied(spec, port));
    } else if next.is_done() && !next.opened {
        next.problem = Some(Problem::new(
            format!(
                "{}: its load balancer is not as wanted, and nothing is left to do about it, which is a fault of the program.",
                spec.owner
            ),
            "What could be done was done, and nothing was closed that is wanted.",
            format!("Report it, with the {} and a record of AWS.", spec.owner.kind()),
        ));
    }
    if next.problem.is_some() {
        next.meanwhile.clear();
    }
    next
}

/// A listener would have nobody to send to.
fn would_be_emptied(spec: &Spec, port: u16) -> Problem {
    let (owner, kind) = (&spec.owner, spec.target_kind.as_str());
    let (what, needed) = match spec.target_kind {
        TargetKind::Instance => {
            ("none of its machines is an instance that runs there", "machines with the providerID of one")
        }
        TargetKind::Ip => {
            ("AWS sends to none of their addresses", "machines with addresses of the VPC or private ones")
        }
    };
    Problem::new(
        format!(
            "{owner}: port {port} would be left without targets, as they are to be of type `{kind}`, and {what}."
        ),
        "It sends to the targets that it has.",
        format!(
            "Have {needed}; or, if {} or a target port was changed, set it to what it was.",
            words::key(owner, "nlb-target-type")
        ),
    )
}

struct Decision<'a> {
    spec: &'a Spec,
    holding: &'a Holding,
    scene: Scene<'a>,
    balancer: Option<&'a Balancer>,
    next: Next,
    /// What changes where packets come from or go to, and is done once these are let through.
    later: Vec<Step>,
    /// A port that keeps its targets, as it would get none instead.
    emptied: Option<u16>,
}

impl Decision<'_> {
    /// What is not known yet, and has to be.
    fn look(&mut self) {
        let (spec, looks) = (self.spec, &mut self.next.looks);
        if let Some(found) = self.balancer {
            let arn = &found.balancer.arn;
            if found.listeners.is_none() {
                looks.insert(Look::Listeners(arn.clone()));
            }
            if found.attributes.is_none() && !spec.attributes.is_empty() {
                looks.insert(Look::Attributes(arn.clone()));
            }
        }
        for (arn, pool) in &self.holding.pools {
            if pool.targets.is_none() {
                looks.insert(Look::Targets(arn.clone()));
            }
            if pool.attributes.is_none() && !spec.target_attributes.is_empty() {
                looks.insert(Look::PoolAttributes(arn.clone()));
            }
        }
        let unseen = self.holding.balancers.values().any(|found| !found.seen)
            || self.holding.pools.values().any(|found| !found.seen);
        if unseen {
            looks.insert(Look::Whose(spec.owner.clone()));
        }
        if self.holding.groups.values().any(|group| !group.seen) {
            looks.insert(Look::Groups(spec.owner.clone()));
        }
        if self.scene.shared.subnets.is_none() {
            looks.insert(Look::Subnets);
        }
        looks.extend(self.scene.nodes.looks.iter().cloned());
    }

    fn decide(&mut self, groups: &Groups) {
        // Nothing is made for a load balancer that cannot be.
        let subnets = match self.balancer {
            Some(_) => Ok(Vec::new()),
            None => subnets::choose(self.spec, self.scene.shared, self.scene.settings),
        };
        let subnets = match subnets {
            Ok(subnets) => subnets,
            Err(NoSubnets::Look(look)) => {
                self.next.looks.insert(look);
                return;
            }
            Err(NoSubnets::Problem(problem)) => {
                self.next.problem = Some(problem);
                return;
            }
        };
        if *groups == Groups::Without && self.balancer.is_none() && rules::limits_nobody(self.spec) {
            self.next.problem = Some(Problem::new(
                format!(
                    "{}: its source ranges would limit nobody, as it gets no security group and its targets do not see the addresses of clients.",
                    self.spec.owner
                ),
                "Nothing was made.",
                format!(
                    "Name groups with {}, set NLBSecurityGroupMode to Managed, or {}.",
                    words::key(&self.spec.owner, "security-groups"),
                    how_targets_see_clients(self.spec)
                ),
            ));
            return;
        }
        if *groups == Groups::Without
            && let Some(found) = self.balancer
            && self.would_open_to_everybody(found)
        {
            return;
        }
        self.next.told.extend(self.scene.nodes.told.iter().cloned());
        self.next.address = self.balancer.map(|found| found.balancer.dns_name.clone());
        self.next.enforcement = Some(enforcement(self.spec, groups, self.scene));
        self.tell_what_cannot_change(groups);
        let pools = self.pools();
        let filtered = self.groups(groups);
        if self.next.problem.is_some() {
            // What is right keeps being right; nothing of it goes on.
            self.next.steps.clear();
            return;
        }
        let wanted = self.spec.listeners.iter().filter(|(port, _)| !pools.contains_key(*port));
        let mut wanted =
            wanted.map(|(port, listening)| names::target_group(self.spec, *port, &listening.backend));
        let name = Some(self.spec.name.clone()).filter(|_| self.balancer.is_none());
        if let Some(name) = name.into_iter().chain(&mut wanted).find(|name| self.holding.taken.contains(name))
        {
            self.next.problem = Some(Problem::new(
                format!(
                    "{}: something of the name {name} is there already, and it is not ours.",
                    self.spec.owner
                ),
                "Nothing of it was touched.",
                format!(
                    "Remove it, or name the load balancer otherwise with {}.",
                    words::key(&self.spec.owner, "name")
                ),
            ));
            self.next.steps.clear();
            return;
        }
        drop(wanted);
        let Some(found) = self.balancer else {
            if let Some(ids) = filtered
                && self.is_open_on_nodes()
            {
                self.create(subnets, ids);
            }
            return;
        };
        self.settle(found);
        // Packets come by other groups from then on: the nodes have to let these in.
        let ready = match &filtered {
            Some(ids) => self.is_open_on_nodes() && self.attach(found, ids, &pools),
            None => false,
        };
        let listening = self.listen(found, &pools, ready);
        let settled = self.later.is_empty();
        if ready {
            self.next.steps.append(&mut self.later);
        }
        let opened =
            listening && settled && self.next.steps.is_empty() && pools.len() == self.spec.listeners.len();
        if opened {
            self.close(found, &pools, groups, ready);
        }
        // As long as it does not have its groups, it needs what lets in those that it has.
        let has_groups = filtered.is_some_and(|ids| ids.is_empty() || found.balancer.groups == ids);
        self.next.opened = opened && has_groups;
    }

    /// Whether an edit would let in clients whom source ranges keep out as it is, or whether that cannot be said yet.
    fn would_open_to_everybody(&mut self, found: &Balancer) -> bool {
        let (spec, shared) = (self.spec, self.scene.shared);
        let listeners = spec.listeners.iter();
        let unlimited =
            listeners.map(|(port, listening)| (*port, rules::unlimited(spec, &listening.backend)));
        let unlimited: Vec<(u16, Vec<Family>)> =
            unlimited.filter(|(_, families)| !families.is_empty()).collect();
        // Where nobody looks after the nodes, nobody was ever kept out by them.
        if unlimited.is_empty() || self.scene.settings.node_rules == NodeRules::Off {
            return false;
        }
        let groups = self.scene.nodes.groups.iter().filter_map(|id| shared.groups.get(id));
        let open: Vec<&Permission> = groups.flat_map(|group| group.ingress.keys()).collect();
        let mut entering: BTreeMap<u16, Vec<Family>> = BTreeMap::new();
        for (port, listener) in found.listeners.iter().flatten() {
            let Some(pool) = listener.target_group.as_ref().and_then(|arn| self.holding.pools.get(arn))
            else {
                continue;
            };
            match rules::entering(found, pool, shared, open.iter().copied()) {
                Some(families) => drop(entering.insert(*port, families)),
                None => drop(self.next.looks.insert(Look::PoolAttributes(pool.group.arn.clone()))),
            }
        }
        if !self.next.looks.is_empty() {
            return true;
        }
        let is_so_already = |port: &u16, family: &Family| match entering.get(port) {
            Some(families) => families.contains(family),
            None => entering.values().flatten().any(|one| one == family),
        };
        if unlimited.iter().all(|(port, families)| families.iter().all(|one| is_so_already(port, one))) {
            return false;
        }
        self.next.problem = Some(Problem::new(
            format!(
                "{}: by this change its source ranges would limit nobody, as load balancer {} has no security group and its targets would not see the addresses of clients.",
                spec.owner, found.balancer.name
            ),
            "Nothing was changed: who may connect is as before.",
            format!(
                "Take the change back ({}, the families or the ranges), remove the ranges if everybody may connect, or {} with security groups.",
                ["target-group-attributes", "nlb-target-type", "ip-address-type", "healthcheck-port"]
                    .map(|key| words::key(&spec.owner, key))
                    .join(", "),
                words::another(&spec.owner)
            ),
        ));
        true
    }

    fn is_open_on_nodes(&mut self) -> bool {
        if let Some(steps) = self.scene.nodes.own.get(&self.spec.owner) {
            self.next.steps.extend(steps.iter().cloned());
            return false;
        }
        if !self.scene.nodes.open {
            self.next.waits = Some("the nodes' groups do not let it in yet".to_owned());
        }
        self.scene.nodes.open
    }

    fn tell_what_cannot_change(&mut self, groups: &Groups) {
        let Some(found) = self.balancer.map(|found| &found.balancer) else { return };
        let spec = self.spec;
        let mut tell = |what: String| self.next.told.push(what);
        let again = format!("{} to change that", words::another(&spec.owner));
        if *groups == Groups::Without
            && (spec.groups.is_some() || self.scene.settings.mode == SecurityGroupMode::Managed)
        {
            let what = if spec.groups.is_some() {
                format!("the groups of {} cannot be used", words::said(&spec.owner, "security-groups"))
            } else {
                "it has no security group".to_owned()
            };
            tell(format!(
                "{what}: load balancer {} was made without support for groups, which AWS never adds. Its clients are limited on the nodes' groups, as before; {again}",
                found.name
            ));
        }
        if *groups == Groups::Without && rules::limits_nobody(spec) {
            tell(format!(
                "its source ranges limit nobody: load balancer {} has no security group, and its targets do not see the addresses of clients",
                found.name
            ));
        }
        let scheme = match spec.scheme {
            Scheme::Internal => "internal",
            Scheme::InternetFacing => "internet-facing",
        };
        if found.scheme != scheme {
            tell(format!(
                "load balancer {} is {} and cannot become {scheme}; {again}",
                found.name, found.scheme
            ));
        }
        if spec.name != found.name && spec.name != names::load_balancer(&spec.owner) {
            tell(format!("load balancer {} cannot be renamed to {}; {again}", found.name, spec.name));
        }
        for (key, wanted) in
            [("eip-allocations", &spec.allocations), ("private-ipv4-addresses", &spec.private_addresses)]
        {
            if wanted.iter().any(|address| !found.addresses.contains(address)) {
                tell(format!(
                    "load balancer {} keeps its addresses, whatever {} says; {again}",
                    found.name,
                    words::said(&spec.owner, key)
                ));
            }
        }
    }

    fn create(&mut self, subnets: Vec<NewSubnet>, groups: BTreeSet<String>) {
        let spec = self.spec;
        self.next.steps.push(Step::CreateBalancer(NewLoadBalancer {
            name: spec.name.clone(),
            scheme: spec.scheme.to_string(),
            ip_address_type: ip_address_type(spec).to_owned(),
            subnets,
            groups: groups.into_iter().collect(),
            tags: wanted_tags(&spec.tags),
        }));
    }

    /// What of a load balancer can be changed, and is not as wanted.
    fn settle(&mut self, found: &Balancer) {
        let (spec, arn) = (self.spec, &found.balancer.arn);
        // Other subnets may have no addresses of IPv6: as long as it has both families, AWS would refuse them.
        let is_narrowed = !spec.dual_stack && is_dual(found);
        if !spec.subnets.is_empty() && !is_narrowed {
            match subnets::given(spec, self.scene.shared, self.scene.settings) {
                Ok(subnets) if subnets.iter().cloned().collect::<BTreeSet<_>>() != found.balancer.subnets => {
                    self.later.push(Step::SetSubnets { balancer: arn.clone(), subnets });
                }
                Ok(_) | Err(NoSubnets::Look(_)) => {}
                Err(NoSubnets::Problem(problem)) => self.next.told.push(problem.what),
            }
        }
        if spec.dual_stack && found.balancer.ip_address_type != ip_address_type(spec) {
            self.take_both_families(found);
        }
        if let Some(known) = &found.attributes {
            let attributes = defaults::changed(known, &spec.attributes, &defaults::of_balancer());
            if !attributes.is_empty() {
                self.next.steps.push(Step::SetAttributes { balancer: arn.clone(), attributes });
            }
        }
        let listeners = found.listeners.iter().flatten().map(|(_, listener)| {
            (listener.arn.as_str(), found.listener_tags.get(&listener.arn).unwrap_or(&found.tags))
        });
        let all = std::iter::once((arn.as_str(), &found.tags)).chain(listeners);
        tag(&mut self.next.steps, all, &spec.tags);
    }
}

fn ip_address_type(spec: &Spec) -> &'static str {
    if spec.dual_stack { "dualstack" } else { "ipv4" }
}
