//! The next steps for one owner, by what it wants and what it has.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use portcullis_core::{Direction, Enforcement, Family, Owner, Problem, Scheme};

use smol_str::{SmolStr, ToSmolStr};

use super::arrange::{Parts, Room, arrange};
use super::asked::{PREFIX, TargetKind};
use super::look::Look;
use super::node_side::NodeSide;
use super::settings::{MemberReports, NodeRules, Settings};
use super::snapshot::{Balancer, Group, Holding, PART_KEY, Pool, Shared};
use super::spec::{Listening, Spec, transports};
use super::step::Step;
use super::subnets::{self, NoSubnets};
use super::{defaults, names, rules, words};
use crate::SecurityGroupMode;
use crate::client::{NewListener, NewLoadBalancer, NewSubnet, NewTargetGroup, TAGGED};
use crate::model::{Listener, Peer, Permission, Tags, Target};

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
    let mut next = decision.next;
    if next.is_done() && !next.opened {
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

struct Decision<'a> {
    spec: &'a Spec,
    holding: &'a Holding,
    scene: Scene<'a>,
    balancer: Option<&'a Balancer>,
    next: Next,
    /// What changes where packets come from or go to, and is done once these are let through.
    later: Vec<Step>,
}

impl<'a> Decision<'a> {
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

    /// Brings the target groups in order, and tells which one is for which port, as far as they are there.
    fn pools(&mut self) -> BTreeMap<u16, &'a Pool> {
        let mut pools: BTreeMap<u16, &Pool> = BTreeMap::new();
        let mut taken = BTreeSet::new();
        for (port, listening) in &self.spec.listeners {
            if let Some(pool) = self.pool(*port, listening, &taken) {
                taken.insert(pool.group.arn.as_str());
                pools.insert(*port, pool);
            }
        }
        for (port, listening) in &self.spec.listeners {
            match pools.get(port) {
                Some(pool) => self.keep_pool(pool, listening),
                None => self.create_pool(*port, listening),
            }
        }
        pools
    }

    /// The target group for a port: the one its listener sends to, or the one that is called so, or any that fits.
    fn pool(&self, port: u16, listening: &Listening, taken: &BTreeSet<&str>) -> Option<&'a Pool> {
        let backend = &listening.backend;
        let fits = |pool: &&'a Pool| {
            let group = &pool.group;
            group.protocol == backend.protocol
                && group.port == backend.port
                && group.kind == self.spec.target_kind.as_str()
                && group.ip_address_type == backend.ip_address_type
                && !taken.contains(group.arn.as_str())
        };
        let used = self
            .balancer
            .and_then(|found| found.listeners.as_ref()?.get(&port)?.target_group.as_ref())
            .and_then(|arn| self.holding.pools.get(arn))
            .filter(fits);
        let name = names::target_group(self.spec, port, backend);
        let unused = |pool: &&Pool| pool.group.load_balancers.is_empty();
        used.or_else(|| self.holding.pools.values().filter(fits).find(|pool| pool.group.name == name))
            .or_else(|| self.holding.pools.values().filter(fits).find(unused))
    }

    fn create_pool(&mut self, port: u16, listening: &Listening) {
        let backend = &listening.backend;
        self.next.steps.push(Step::CreatePool(NewTargetGroup {
            name: names::target_group(self.spec, port, backend),
            protocol: backend.protocol.to_owned(),
            port: backend.port,
            vpc: self.scene.settings.vpc.clone(),
            kind: self.spec.target_kind.as_str().to_owned(),
            ip_address_type: backend.ip_address_type.to_owned(),
            health_check: backend.health.clone(),
            tags: wanted_tags(&self.spec.tags),
        }));
    }

    /// Who can be sent to. A machine that does not run cannot, and AWS would refuse the others with it.
    fn targets(&self, listening: &Listening) -> BTreeSet<Target> {
        let shared = self.scene.shared;
        let settings = self.scene.settings;
        let runs = |id: &str| !shared.looked_for.contains(id) || shared.machine(id, settings).is_some();
        let is_target = self.spec.target_kind == TargetKind::Instance;
        let is_served = |id: &&SmolStr| is_target && runs(id) && !self.spec.aside.contains(*id);
        let machines = self.spec.machines.iter().filter(is_served).map(|id| Target {
            id: id.clone(),
            port: listening.backend.port,
            outside: false,
        });
        // One address that AWS refuses would keep out all others.
        let reports = settings.members == MemberReports::Each;
        let is_taken = |address: IpAddr| !reports || subnets::can_be_target(shared, address);
        let addresses = listening.backend.addresses.iter().filter(|(address, _)| is_taken(*address));
        let addresses = addresses.map(|(address, port)| Target {
            id: address.to_smolstr(),
            port: *port,
            outside: !subnets::contain(shared, *address),
        });
        machines.chain(addresses).collect()
    }

    fn keep_pool(&mut self, pool: &Pool, listening: &Listening) {
        let (arn, backend) = (&pool.group.arn, &listening.backend);
        let targets = self.targets(listening);
        let mut steps = Vec::new();
        if pool.group.health_check != backend.health {
            steps.push(Step::Check { pool: arn.clone(), check: backend.health.clone() });
        }
        if let Some(known) = &pool.attributes {
            let usual = defaults::of_pool(backend.protocol, self.spec.target_kind);
            let attributes = defaults::changed(known, &self.spec.target_attributes, &usual);
            if !attributes.is_empty() {
                steps.push(Step::SetPoolAttributes { pool: arn.clone(), attributes });
            }
        }
        let there = pool.members().unwrap_or_default();
        // Who stays serves as before, whatever waits: those who are gone do not have to, and their addresses may be given away.
        let is_served = targets.is_empty()
            || targets.iter().any(|one| there.contains(one) && !pool.unproven.contains(one));
        let missing: Vec<Target> = targets.iter().filter(|one| !there.contains(one)).cloned().collect();
        let surplus: Vec<Target> = there.into_iter().filter(|one| !targets.contains(one)).cloned().collect();
        // Those who come take over before those who go are gone.
        if !missing.is_empty() {
            self.next.steps.push(Step::Register { pool: arn.clone(), targets: missing });
        } else if !surplus.is_empty() {
            let steps = if is_served { &mut self.next.steps } else { &mut steps };
            steps.push(Step::Deregister { pool: arn.clone(), targets: surplus });
        }
        let used = !pool.group.load_balancers.is_empty();
        if used { &mut self.later } else { &mut self.next.steps }.append(&mut steps);
        tag(&mut self.next.steps, [(arn.as_str(), &pool.tags)], &self.spec.tags);
    }

    /// Brings the groups in order; the ids that the load balancer is to have, once they hold all that is wanted.
    fn groups(&mut self, groups: &Groups) -> Option<BTreeSet<String>> {
        let mut ids = match groups {
            Groups::Without => return Some(BTreeSet::new()),
            Groups::Given(ids) => ids.clone(),
            Groups::Managed => self.managed()?,
        };
        let backend = *groups == Groups::Managed || self.spec.manage_backend;
        if backend && self.scene.nodes.needs_backend {
            let Some(backend) = &self.scene.nodes.backend else {
                self.next.waits = Some("the group that all load balancers have is not there yet".to_owned());
                return None;
            };
            ids.insert(backend.clone());
        }
        Some(ids)
    }

    fn managed(&mut self) -> Option<BTreeSet<String>> {
        let (spec, settings) = (self.spec, self.scene.settings);
        let peers = rules::target_peers(spec, &self.scene.nodes.groups, self.scene.shared)?;
        let spread = |all: &BTreeSet<Permission>| rules::spread(all, settings.rules_per_group);
        let most = settings.groups_per_load_balancer - usize::from(self.scene.nodes.needs_backend);
        let sent = rules::egress(spec, &peers);
        let ingress = spread(&rules::clients(spec));
        let egress = Some(spread(&(&sent | &self.sent_meanwhile()))).filter(|all| all.len() <= most);
        let egress = egress.unwrap_or_else(|| {
            let alone = spread(&sent);
            if alone.len() <= most {
                self.next.meanwhile.push(
                    "the rules for where it sends to and for where it is to send to do not fit into its groups together: packets are lost until its listeners are changed"
                        .to_owned(),
                );
            }
            alone
        });
        let needed = ingress.len().max(egress.len()).max(1);
        if needed > most {
            let count = rules::clients(spec).len();
            self.next.problem = Some(Problem::new(
                format!(
                    "{}: its ports and source ranges make {count} rules, and {most} groups of {} rules hold {}.",
                    spec.owner,
                    settings.rules_per_group,
                    most * settings.rules_per_group
                ),
                "Nothing was changed.",
                "Give fewer ranges, or name a prefix list that has them, or have AWS raise the limit of rules per group and set it here.",
            ));
            return None;
        }
        let parts = self.holding.parts();
        let missing: Vec<usize> = (1..=needed).filter(|part| !parts.contains_key(part)).collect();
        if !missing.is_empty() {
            let steps = missing.into_iter().map(|part| self.create_group(part));
            let steps: Vec<Step> = steps.collect();
            self.next.steps.extend(steps);
            return None;
        }
        for group in parts.values() {
            let tags = part_tags(spec, &group.group.tags);
            tag_group(&mut self.next.steps, group, &tags);
        }
        let mut complete = true;
        for (direction, wanted) in [(Direction::Ingress, &ingress), (Direction::Egress, &egress)] {
            let present = held(&parts, direction);
            let room = Room { rules: settings.rules_per_group, groups: most };
            let moves = arrange(wanted, &present, room, &self.rules_in_use(direction, &parts), false);
            for (part, permissions) in &moves.add {
                if let Some(group) = parts.get(part) {
                    self.permit(group, direction, permissions);
                } else {
                    let step = self.create_group(*part);
                    self.next.steps.push(step);
                }
            }
            let all: BTreeSet<&Permission> = present.values().flatten().collect();
            let holds_all = wanted.values().flatten().all(|one| all.contains(one));
            complete &= holds_all;
            let mut is_full = !holds_all && moves.add.is_empty();
            // A new group lets everything out, and an old one may hold anything: not once it is used.
            for (part, group) in &parts {
                if self.is_attached(group) {
                    continue;
                }
                let unwanted = |one: &&Permission| !wanted.values().any(|wanted| wanted.contains(*one));
                let surplus: BTreeSet<Permission> = present[part].iter().filter(unwanted).cloned().collect();
                if !surplus.is_empty() {
                    (complete, is_full) = (false, false);
                    self.forbid(group, direction, &surplus);
                }
            }
            if is_full {
                self.make_room(&parts, direction, wanted, &moves.remove);
            }
        }
        // What it sends by until its listeners are changed.
        let used = self.egress_in_use();
        let is_used = |group: &Group| {
            self.is_attached(group) && group.group.egress.keys().any(|one| used.contains(one))
        };
        let useful = parts.iter().filter(|(part, group)| {
            **part <= needed || holds_wanted(group, &ingress, &egress) || is_used(group)
        });
        complete.then(|| useful.map(|(_, group)| group.group.id.clone()).collect())
    }

    /// Closes some of the old before the new is open, where groups have no room for both.
    fn make_room(
        &mut self,
        parts: &BTreeMap<usize, &Group>,
        direction: Direction,
        wanted: &Parts,
        rules: &Parts,
    ) {
        const TOLD: &str = "its security groups have no room for the old rules and the new ones together: some of the old are closed before the new are open, and packets may be lost until all is changed";
        for (part, permissions) in rules {
            if let Some(group) = parts.get(part) {
                self.forbid(group, direction, permissions);
            }
        }
        // What is in two groups goes from one of them without any harm.
        let is_wanted = |one: &Permission| wanted.values().any(|wanted| wanted.contains(one));
        let is_harmless = rules.values().flatten().all(is_wanted);
        if !is_harmless && !self.next.meanwhile.iter().any(|told| told == TOLD) {
            self.next.meanwhile.push(TOLD.to_owned());
        }
    }

    /// The rules by which packets come and go as it is.
    fn rules_in_use(&self, direction: Direction, parts: &BTreeMap<usize, &Group>) -> BTreeSet<Permission> {
        if direction == Direction::Egress {
            return self.egress_in_use();
        }
        let listeners = self.balancer.iter().flat_map(|found| found.listeners.iter().flatten());
        let ports: BTreeSet<(&str, u16)> = listeners
            .flat_map(|(port, known)| transports(&known.protocol).iter().map(|transport| (*transport, *port)))
            .collect();
        let is_used = |rule: &&Permission| {
            rules::is_path_mtu(rule)
                || ports.iter().any(|(transport, port)| rules::covers(rule, transport, *port))
        };
        let attached = parts.values().filter(|group| self.is_attached(group));
        attached.flat_map(|group| group.group.ingress.keys()).filter(is_used).cloned().collect()
    }

    /// What a load balancer sends that is about to get groups of ours, until its listeners are changed.
    fn sent_meanwhile(&self) -> BTreeSet<Permission> {
        let has_none =
            |found: &&Balancer| found.balancer.groups.iter().all(|id| !self.holding.groups.contains_key(id));
        self.balancer.filter(has_none).map(|_| self.egress_in_use()).unwrap_or_default()
    }

    /// What the load balancer has to be able to send as it is.
    fn egress_in_use(&self) -> BTreeSet<Permission> {
        let sent = self.balancer.and_then(|found| {
            rules::egress_in_use(self.holding, found, &self.scene.nodes.groups, self.scene.shared)
        });
        sent.unwrap_or_default()
    }

    fn is_attached(&self, group: &Group) -> bool {
        self.balancer.is_some_and(|found| found.balancer.groups.contains(&group.group.id))
    }

    fn create_group(&self, part: usize) -> Step {
        let first = names::security_group(&self.spec.owner, &self.spec.uid);
        let name = if part == 1 { first } else { names::further_security_group(&first, part) };
        let mut tags = wanted_tags(&self.spec.tags);
        tags.insert(PART_KEY.to_owned(), part.to_string());
        Step::CreateGroup {
            name,
            description: names::GROUP_DESCRIPTION.to_owned(),
            vpc: self.scene.settings.vpc.clone(),
            tags,
        }
    }

    fn permit(&mut self, group: &Group, direction: Direction, permissions: &BTreeSet<Permission>) {
        let permissions = permissions.iter().map(|one| (one.clone(), String::new())).collect();
        self.next.steps.push(Step::Permit { group: group.group.id.clone(), direction, permissions });
    }

    fn forbid(&mut self, group: &Group, direction: Direction, permissions: &BTreeSet<Permission>) {
        let permissions = permissions.iter().map(|one| (one.clone(), String::new())).collect();
        self.next.steps.push(Step::Forbid { group: group.group.id.clone(), direction, permissions });
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

    /// Has the load balancer take clients of IPv6, too: AWS wants all its subnets to have addresses for them, and no UDP.
    /// A port for UDP that is to send to targets of IPv6 has to go first.
    fn take_both_families(&mut self, found: &Balancer) {
        if self.later.iter().any(|step| matches!(step, Step::SetSubnets { .. })) {
            return;
        }
        let listeners = found.listeners.iter().flatten();
        let mut udp = listeners.filter(|(_, known)| transports(&known.protocol).contains(&"udp")).peekable();
        if udp.peek().is_some() {
            let steps = udp.filter_map(|(port, known)| match self.spec.listeners.get(port) {
                Some(listening) if is_accepted(found, listening) => None,
                Some(listening) => {
                    Some(narrowed(found, *port, listening).unwrap_or_else(|| deleted(*port, known)))
                }
                None => Some(deleted(*port, known)),
            });
            self.later.extend(steps);
            return;
        }
        let kind = ip_address_type(self.spec);
        self.later.push(Step::SetIpAddressType { balancer: found.balancer.arn.clone(), kind });
    }

    /// Has the load balancer take clients of IPv4 alone before it is time to, as AWS takes no UDP otherwise: once nothing sends
    /// to targets of IPv6.
    fn take_one_family(&mut self, found: &Balancer, pools: &BTreeMap<u16, &Pool>) {
        let is_six = |known: &Listener| {
            let pool = known.target_group.as_ref().and_then(|arn| self.holding.pools.get(arn));
            pool.is_some_and(|pool| pool.group.ip_address_type == "ipv6")
        };
        let mut six = found.listeners.iter().flatten().filter(|(_, known)| is_six(known)).peekable();
        let steps: Vec<Step> = if six.peek().is_none() {
            let kind = ip_address_type(self.spec);
            vec![Step::SetIpAddressType { balancer: found.balancer.arn.clone(), kind }]
        } else {
            let steps = six.filter_map(|(port, known)| match self.spec.listeners.get(port) {
                Some(listening) if is_accepted(found, listening) => None,
                // Not before there is somebody it can send to.
                Some(listening) => match self.listener(found, *port, listening, pools)? {
                    // TCP goes on while UDP waits.
                    Step::ModifyListener { arn, listener }
                        if known.protocol == "TCP" && listener.protocol == "TCP_UDP" =>
                    {
                        let listener = NewListener { protocol: known.protocol.clone(), ..listener };
                        Some(Step::ModifyListener { arn, listener })
                    }
                    _ => Some(deleted(*port, known)),
                },
                None => Some(deleted(*port, known)),
            });
            steps.collect()
        };
        for step in steps {
            if !self.next.steps.contains(&step) {
                self.next.steps.push(step);
            }
        }
    }

    /// Gives the load balancer its groups; whether it has them.
    fn attach(&mut self, found: &Balancer, ids: &BTreeSet<String>, pools: &BTreeMap<u16, &Pool>) -> bool {
        if found.balancer.groups == *ids || ids.is_empty() {
            return true;
        }
        // Nobody here knows what a group of others lets in: not to what is about to go.
        let foreign = |id: &String| {
            !self.holding.groups.contains_key(id) && Some(id) != self.scene.nodes.backend.as_ref()
        };
        if ids.difference(&found.balancer.groups).any(foreign) {
            let mut narrower = self.surplus_listeners(found);
            let listeners = self.spec.listeners.iter();
            for (port, listening) in listeners.filter(|(port, listening)| is_wider(found, **port, listening))
            {
                let known = found.listeners.as_ref().and_then(|there| there.get(port));
                let step = narrowed(found, *port, listening);
                let step = step.or_else(|| match known {
                    Some(known) if !is_accepted(found, listening) => Some(deleted(*port, known)),
                    _ => self.listener(found, *port, listening, pools),
                });
                let Some(step) = step else { return false };
                narrower.push(step);
            }
            if !narrower.is_empty() {
                self.next.steps.extend(narrower);
                return false;
            }
        }
        let groups = ids.iter().cloned().collect();
        self.next.steps.push(Step::SetGroups { balancer: found.balancer.arn.clone(), groups });
        false
    }

    /// Brings the ports in order; whether they are.
    fn listen(&mut self, found: &Balancer, pools: &BTreeMap<u16, &Pool>, ready: bool) -> bool {
        let mut all = true;
        for (port, listening) in &self.spec.listeners {
            let known = found.listeners.as_ref().and_then(|there| there.get(port));
            let pool = pools.get(port).map(|pool| pool.group.arn.as_str()).unwrap_or_default();
            if known.is_some_and(|known| is_as(known, &wanted_listener(*port, listening, pool))) {
                continue;
            }
            all = false;
            if ready && is_accepted(found, listening) {
                let step = self.listener(found, *port, listening, pools);
                self.next.steps.extend(step);
            } else if ready && is_dual(found) {
                self.take_one_family(found, pools);
            }
        }
        all
    }

    /// Makes a listener as wanted, once there is somebody it can send to.
    fn listener(
        &self,
        found: &Balancer,
        port: u16,
        listening: &Listening,
        pools: &BTreeMap<u16, &Pool>,
    ) -> Option<Step> {
        let pool = pools.get(&port)?;
        let members = pool.members().unwrap_or_default();
        if !self.targets(listening).iter().all(|target| members.contains(target)) {
            return None;
        }
        let wanted = wanted_listener(port, listening, &pool.group.arn);
        Some(match found.listeners.as_ref().and_then(|there| there.get(&port)) {
            Some(known) => Step::ModifyListener { arn: known.arn.clone(), listener: wanted },
            None => Step::CreateListener {
                balancer: found.balancer.arn.clone(),
                listener: wanted,
                tags: wanted_tags(&self.spec.tags),
            },
        })
    }

    fn surplus_listeners(&self, found: &Balancer) -> Vec<Step> {
        let listeners = found.listeners.iter().flatten();
        let surplus = listeners.filter(|(port, _)| !self.spec.listeners.contains_key(port));
        surplus.map(|(port, listener)| deleted(*port, listener)).collect()
    }

    /// Takes away what was needed before, from the outside in.
    fn close(&mut self, found: &Balancer, pools: &BTreeMap<u16, &Pool>, groups: &Groups, ready: bool) {
        let surplus = self.surplus_listeners(found);
        if !surplus.is_empty() {
            self.next.steps = surplus;
            return;
        }
        // Nothing sends to targets of IPv6 any more, which AWS would insist on.
        let kind = ip_address_type(self.spec);
        if found.balancer.ip_address_type != kind {
            self.next.steps.push(Step::SetIpAddressType { balancer: found.balancer.arn.clone(), kind });
        }
        let kept: BTreeSet<&str> = pools.values().map(|pool| pool.group.arn.as_str()).collect();
        for (arn, pool) in &self.holding.pools {
            if !kept.contains(arn.as_str()) && pool.group.load_balancers.is_empty() {
                self.next.steps.push(Step::DeletePool { pool: arn.clone() });
            }
        }
        if *groups == Groups::Managed {
            self.close_rules();
        }
        // What the load balancer does not have any more, nobody needs; but as long as the nodes let it in, it stays.
        if !ready {
            return;
        }
        let unused = self
            .holding
            .groups
            .keys()
            .filter(|id| !found.balancer.groups.contains(*id) && !self.scene.nodes.let_in.contains(*id));
        let unused: Vec<Step> = unused.map(|id| Step::DeleteGroup { group: id.clone() }).collect();
        self.next.steps.extend(unused);
    }

    fn close_rules(&mut self) {
        let (spec, settings) = (self.spec, self.scene.settings);
        let Some(peers) = rules::target_peers(spec, &self.scene.nodes.groups, self.scene.shared) else {
            return;
        };
        let parts = self.holding.parts();
        for (direction, all) in
            [(Direction::Ingress, rules::clients(spec)), (Direction::Egress, rules::egress(spec, &peers))]
        {
            let wanted = rules::spread(&all, settings.rules_per_group);
            let room = Room {
                rules: settings.rules_per_group,
                groups: settings.groups_per_load_balancer - usize::from(self.scene.nodes.needs_backend),
            };
            let moves = arrange(&wanted, &held(&parts, direction), room, &BTreeSet::new(), true);
            for (part, permissions) in &moves.remove {
                if let Some(group) = parts.get(part) {
                    self.forbid(group, direction, permissions);
                }
            }
        }
    }
}

/// What has to be said so that source ranges limit somebody without any group: targets never see clients of another family
/// than their own.
fn how_targets_see_clients(spec: &Spec) -> String {
    let are_hidden = |listening: &Listening| !rules::keeps_client_addresses(spec, &listening.backend);
    let hidden = spec
        .listeners
        .values()
        .any(are_hidden)
        .then(|| format!("have targets see clients with {}", words::seeing_clients(&spec.owner)));
    let families = spec.dual_stack.then(|| {
        format!(
            "serve one family with {}: ipv4 (where all ranges are of IPv4, a check on another port with {} will do)",
            words::key(&spec.owner, "ip-address-type"),
            words::key(&spec.owner, "healthcheck-port")
        )
    });
    hidden.into_iter().chain(families).collect::<Vec<_>>().join(" and ")
}

/// Whether source ranges keep anybody out, once all is as wanted. Where that is not sure, they do not.
fn enforcement(spec: &Spec, groups: &Groups, scene: Scene<'_>) -> Enforcement {
    let not = |why: &str| Enforcement::Not(why.to_owned());
    let lists = spec.clients.iter().any(|peer| matches!(peer, Peer::PrefixList(_)));
    match groups {
        Groups::Given(_) => Enforcement::Not(format!(
            "The security groups that {} names decide alone who may connect.",
            words::key(&spec.owner, "security-groups")
        )),
        _ if lists => Enforcement::Not(format!(
            "Annotation {PREFIX}security-group-prefix-lists lets in others besides its source ranges."
        )),
        Groups::Managed => Enforcement::By("The security groups of its load balancer on AWS".to_owned()),
        Groups::Without if scene.settings.node_rules == NodeRules::Off => not(
            "Its load balancer on AWS has no security group, and those of the nodes are not looked after.",
        ),
        Groups::Without if rules::limits_nobody(spec) => not(
            "Its load balancer on AWS has no security group, and its targets do not see the addresses of clients.",
        ),
        Groups::Without if spec.target_kind == TargetKind::Ip => not(
            "Its load balancer on AWS has no security group, and what those of the nodes let in for pods of others on the same port is let in for its own.",
        ),
        Groups::Without => by_nodes(spec, scene),
    }
}

/// The same, where only the groups of the nodes can keep anybody out: each rule in any of them counts, whosever it is.
fn by_nodes(spec: &Spec, scene: Scene<'_>) -> Enforcement {
    let (nodes, shared) = (scene.nodes, scene.shared);
    let machines = spec.machines.iter().filter_map(|id| shared.instances.get(id.as_str()));
    let mut ids: BTreeSet<&String> = machines.flat_map(|machine| &machine.groups).collect();
    ids.extend(&nodes.groups);
    let groups: Option<Vec<_>> = ids.into_iter().map(|id| shared.groups.get(id)).collect();
    let Some(groups) = groups.filter(|_| !nodes.groups.is_empty() && nodes.told.is_empty()) else {
        return Enforcement::Not(
            "Its load balancer on AWS has no security group, and not all those of the nodes are known."
                .to_owned(),
        );
    };
    let rules = groups.iter().flat_map(|group| group.ingress.iter().map(move |rule| (&group.id, rule)));
    let marks = rules::mark(&spec.owner);
    let mut others = rules.filter(|(_, (rule, mark))| **mark != marks && rules::may_enter_by(spec, rule));
    if let Some((group, (rule, _))) = others.next() {
        return Enforcement::Not(format!(
            "Its load balancer on AWS has no security group, and that of the nodes, {group}, lets in {} from {}.",
            rule.traffic(),
            rule.peer
        ));
    }
    let who = "The security groups of the nodes on AWS";
    Enforcement::By(if rules::is_checked_where_it_serves(spec) {
        format!("{who}, besides the load balancer's own subnets for its checks,")
    } else {
        who.to_owned()
    })
}

/// Whether a group has some of the rules that are wanted.
fn holds_wanted(group: &Group, ingress: &Parts, egress: &Parts) -> bool {
    let holds = |permissions: &crate::model::Permissions, wanted: &Parts| {
        wanted.values().flatten().any(|one| permissions.contains_key(one))
    };
    holds(&group.group.ingress, ingress) || holds(&group.group.egress, egress)
}

fn held(parts: &BTreeMap<usize, &Group>, direction: Direction) -> Parts {
    let rules = parts.iter().map(|(part, group)| {
        let permissions = match direction {
            Direction::Ingress => &group.group.ingress,
            Direction::Egress => &group.group.egress,
        };
        (*part, permissions.keys().cloned().collect())
    });
    rules.collect()
}

fn ip_address_type(spec: &Spec) -> &'static str {
    if spec.dual_stack { "dualstack" } else { "ipv4" }
}

fn wanted_listener(port: u16, listening: &Listening, pool: &str) -> NewListener {
    let tls = listening.protocol == "TLS";
    NewListener {
        port,
        protocol: listening.protocol.to_owned(),
        target_group: pool.to_owned(),
        certificate: listening.certificate.clone(),
        policy: tls.then(|| listening.policy.clone().unwrap_or_else(|| defaults::TLS_POLICY.to_owned())),
        alpn: tls.then(|| listening.alpn.clone().unwrap_or_else(|| "None".to_owned())),
    }
}

fn deleted(port: u16, known: &Listener) -> Step {
    Step::DeleteListener { arn: known.arn.clone(), port }
}

fn is_dual(found: &Balancer) -> bool {
    found.balancer.ip_address_type == "dualstack"
}

/// Whether a load balancer takes such a listener as it is: AWS lets it send to targets of IPv6 once it has both families,
/// and take UDP once it has one.
fn is_accepted(found: &Balancer, listening: &Listening) -> bool {
    if is_dual(found) {
        !listening.transports().contains(&"udp")
    } else {
        listening.backend.ip_address_type != "ipv6"
    }
}

/// Whether a listener takes packets that it is not to take any more.
fn is_wider(found: &Balancer, port: u16, listening: &Listening) -> bool {
    let known = found.listeners.as_ref().and_then(|there| there.get(&port));
    known.is_some_and(|known| {
        transports(&known.protocol).iter().any(|transport| !listening.transports().contains(transport))
    })
}

/// A listener for two protocols that is to have one of them, with its targets as they are: packets of that one go on as
/// before.
fn narrowed(found: &Balancer, port: u16, listening: &Listening) -> Option<Step> {
    let known = found.listeners.as_ref()?.get(&port)?;
    if known.protocol != "TCP_UDP" || !matches!(listening.protocol, "TCP" | "UDP") {
        return None;
    }
    let listener = wanted_listener(port, listening, known.target_group.as_ref()?);
    Some(Step::ModifyListener { arn: known.arn.clone(), listener })
}

fn is_as(known: &Listener, wanted: &NewListener) -> bool {
    let tls = wanted.protocol == "TLS";
    known.port == wanted.port
        && known.protocol == wanted.protocol
        && known.target_group.as_deref() == Some(&wanted.target_group)
        && (!tls
            || (known.certificate == wanted.certificate
                && known.policy == wanted.policy
                && known.alpn.as_deref().unwrap_or("None") == wanted.alpn.as_deref().unwrap_or("None")))
}

/// Which keys were written besides ours, so that they can be taken away again.
const TAGS_KEY: &str = "portcullis.dev/tags";

/// What stands between keys in a list of them.
const BETWEEN: &str = "=";

/// The tags with a list of those that are not ours by their key.
pub(super) fn wanted_tags(tags: &Tags) -> Tags {
    let others =
        tags.keys().filter(|key| !key.starts_with("portcullis.dev/") && !key.starts_with("kubernetes.io/"));
    // Keys may have blanks in them. Those with the sign between them stay when nobody wants them any more.
    let others = others.filter(|key| !key.contains(BETWEEN));
    let list = others.cloned().collect::<Vec<_>>().join(BETWEEN);
    let mut tags = tags.clone();
    // A longer one cannot be written; those tags stay when nobody wants them any more.
    if !list.is_empty() && list.chars().count() <= 256 {
        tags.insert(TAGS_KEY.to_owned(), list);
    }
    tags
}

/// What has to be written, and what to be taken away.
fn tag_changes(known: &Tags, wanted: &Tags) -> (Tags, Vec<String>) {
    let add = wanted.iter().filter(|(key, value)| known.get(*key) != Some(value));
    let add = add.map(|(key, value)| (key.clone(), value.clone())).collect();
    let written = known.get(TAGS_KEY).map(String::as_str).unwrap_or_default().split(BETWEEN);
    let mut remove: Vec<String> = written
        .chain([TAGS_KEY])
        .filter(|key| known.contains_key(*key) && !wanted.contains_key(*key))
        .map(str::to_owned)
        .collect();
    remove.sort_unstable();
    (add, remove)
}

/// Writes on objects, by what is written on each; those that lack the same by one call.
fn tag<'a>(steps: &mut Vec<Step>, known: impl IntoIterator<Item = (&'a str, &'a Tags)>, tags: &Tags) {
    let wanted = wanted_tags(tags);
    let (mut adding, mut removing) = (BTreeMap::<_, Vec<_>>::new(), BTreeMap::<_, Vec<_>>::new());
    for (arn, known) in known {
        let (add, remove) = tag_changes(known, &wanted);
        adding.entry(add).or_default().push(arn.to_owned());
        removing.entry(remove).or_default().push(arn.to_owned());
    }
    for (tags, arns) in adding.into_iter().filter(|(tags, _)| !tags.is_empty()) {
        steps.extend(arns.chunks(TAGGED).map(|arns| Step::Tag { arns: arns.to_vec(), tags: tags.clone() }));
    }
    for (keys, arns) in removing.into_iter().filter(|(keys, _)| !keys.is_empty()) {
        steps.extend(arns.chunks(TAGGED).map(|arns| Step::Untag { arns: arns.to_vec(), keys: keys.clone() }));
    }
}

fn part_tags(spec: &Spec, known: &Tags) -> Tags {
    let mut tags = wanted_tags(&spec.tags);
    tags.insert(PART_KEY.to_owned(), known.get(PART_KEY).cloned().unwrap_or_else(|| "1".to_owned()));
    tags
}

pub(super) fn tag_group(steps: &mut Vec<Step>, group: &Group, wanted: &Tags) {
    let (add, remove) = tag_changes(&group.group.tags, wanted);
    let id = || group.group.id.clone();
    if !add.is_empty() {
        steps.push(Step::TagGroup { group: id(), tags: add });
    }
    if !remove.is_empty() {
        steps.push(Step::UntagGroup { group: id(), keys: remove });
    }
}
