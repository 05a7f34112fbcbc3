//! Security groups that are made for an owner.

use std::collections::{BTreeMap, BTreeSet};

use portcullis_core::{Direction, Problem};

use super::tags::{tag_group, wanted_tags};
use super::{Decision, Groups};
use crate::model::{Permission, Tags};
use crate::nlb::arrange::{Parts, Room, arrange};
use crate::nlb::snapshot::{Balancer, Group, PART_KEY};
use crate::nlb::spec::{Spec, transports};
use crate::nlb::step::Step;
use crate::nlb::{names, rules};

impl Decision<'_> {
    /// Brings the groups in order; the ids that the load balancer is to have, once they hold all that is wanted.
    pub(super) fn groups(&mut self, groups: &Groups) -> Option<BTreeSet<String>> {
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

    pub(super) fn managed(&mut self) -> Option<BTreeSet<String>> {
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
    pub(super) fn make_room(
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
    pub(super) fn rules_in_use(
        &self,
        direction: Direction,
        parts: &BTreeMap<usize, &Group>,
    ) -> BTreeSet<Permission> {
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
    pub(super) fn sent_meanwhile(&self) -> BTreeSet<Permission> {
        let has_none =
            |found: &&Balancer| found.balancer.groups.iter().all(|id| !self.holding.groups.contains_key(id));
        self.balancer.filter(has_none).map(|_| self.egress_in_use()).unwrap_or_default()
    }

    /// What the load balancer has to be able to send as it is.
    pub(super) fn egress_in_use(&self) -> BTreeSet<Permission> {
        let sent = self.balancer.and_then(|found| {
            rules::egress_in_use(self.holding, found, &self.scene.nodes.groups, self.scene.shared)
        });
        sent.unwrap_or_default()
    }

    pub(super) fn is_attached(&self, group: &Group) -> bool {
        self.balancer.is_some_and(|found| found.balancer.groups.contains(&group.group.id))
    }

    pub(super) fn create_group(&self, part: usize) -> Step {
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

    pub(super) fn permit(&mut self, group: &Group, direction: Direction, permissions: &BTreeSet<Permission>) {
        let permissions = permissions.iter().map(|one| (one.clone(), String::new())).collect();
        self.next.steps.push(Step::Permit { group: group.group.id.clone(), direction, permissions });
    }

    pub(super) fn forbid(&mut self, group: &Group, direction: Direction, permissions: &BTreeSet<Permission>) {
        let permissions = permissions.iter().map(|one| (one.clone(), String::new())).collect();
        self.next.steps.push(Step::Forbid { group: group.group.id.clone(), direction, permissions });
    }

    pub(super) fn close_rules(&mut self) {
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

/// Whether a group has some of the rules that are wanted.
pub(super) fn holds_wanted(group: &Group, ingress: &Parts, egress: &Parts) -> bool {
    let holds = |permissions: &crate::model::Permissions, wanted: &Parts| {
        wanted.values().flatten().any(|one| permissions.contains_key(one))
    };
    holds(&group.group.ingress, ingress) || holds(&group.group.egress, egress)
}

pub(super) fn held(parts: &BTreeMap<usize, &Group>, direction: Direction) -> Parts {
    let rules = parts.iter().map(|(part, group)| {
        let permissions = match direction {
            Direction::Ingress => &group.group.ingress,
            Direction::Egress => &group.group.egress,
        };
        (*part, permissions.keys().cloned().collect())
    });
    rules.collect()
}

pub(super) fn part_tags(spec: &Spec, known: &Tags) -> Tags {
    let mut tags = wanted_tags(&spec.tags);
    tags.insert(PART_KEY.to_owned(), known.get(PART_KEY).cloned().unwrap_or_else(|| "1".to_owned()));
    tags
}
