//! What is wanted, what is known of AWS, and what was done.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use portcullis_core::{Enforcement, Owner};
use tokio::time::Instant;

use super::SETTLING;
use crate::client::CallError;
use crate::model::TargetState;
use crate::nlb::members::Followed;
use crate::nlb::refresh::{KnownTags, Recent};
use crate::nlb::round::{Progress, Wanted};
use crate::nlb::snapshot::Snapshot;
use crate::nlb::spec::{Machines, Spec};
use crate::nlb::step::{Made, Place, Step};

#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) wanted: Wanted,
    pub(super) snapshot: Snapshot,
    pub(super) progress: Progress,
    /// The sets of machines that load balancers send to: few, since most send to all nodes.
    pub(super) machines: Vec<Arc<Machines>>,
    pub(super) tags: KnownTags,
    /// Whether whose everything else is has to be read again.
    pub(super) others_anew: bool,
    /// When objects were changed by us.
    pub(super) changed: BTreeMap<String, Instant>,
    /// Those of them of which it is not known how they are.
    pub(super) uncertain: BTreeSet<String>,
    pub(super) removed: BTreeMap<String, Instant>,
    /// When everything was looked at, by the start of it.
    pub(super) looked: Option<Instant>,
    /// Why what is shared could not be done, and when.
    pub(super) trouble: Option<(Instant, CallError)>,
    /// How often in a row what is shared was not as it was known.
    pub(super) surprises: usize,
    /// What was last said about whether source ranges keep anybody out: rules of others may change it.
    pub(super) said: BTreeMap<Owner, Enforcement>,
    /// Owners whose members somebody waits for.
    pub(super) followed: BTreeMap<Owner, Followed>,
    /// How far what is written on its objects was read, of owners with many.
    pub(super) read: BTreeMap<Owner, usize>,
}

impl State {
    pub(super) fn recent(&mut self) -> Recent {
        let now = Instant::now();
        self.changed.retain(|_, when| now - *when < SETTLING);
        self.removed.retain(|_, when| now - *when < SETTLING);
        self.uncertain.retain(|id| self.changed.contains_key(id));
        let changed: BTreeSet<String> = self.changed.keys().cloned().collect();
        Recent {
            certain: changed.difference(&self.uncertain).cloned().collect(),
            changed,
            gone: self.removed.keys().cloned().collect(),
        }
    }

    /// Lets those who send to the same machines share them.
    pub(super) fn share_machines(&mut self, spec: &mut Spec) {
        self.machines.retain(|known| Arc::strong_count(known) > 1);
        match self.machines.iter().find(|known| **known == spec.machines) {
            Some(known) => spec.machines = Arc::clone(known),
            None => self.machines.push(Arc::clone(&spec.machines)),
        }
    }

    /// Takes in that a step was done.
    pub(super) fn done(&mut self, place: &Place, step: &Step, made: Made) {
        let now = Instant::now();
        if let Some(id) = step.removes() {
            self.changed.remove(id);
            self.removed.insert(id.to_owned(), now);
        }
        let new = match &made {
            Made::Group(id) => Some(id.clone()),
            Made::Balancer(found) => Some(found.arn.clone()),
            Made::Pool(found) => Some(found.arn.clone()),
            Made::Listener(_) | Made::Nothing => None,
        };
        for id in new.iter().map(String::as_str).chain(step.changes()) {
            self.changed.insert(id.to_owned(), now);
            self.removed.remove(id);
            self.uncertain.remove(id);
        }
        if let (Some(id), Some(tags)) = (new, step.tags()) {
            self.tags.insert(id, tags.clone());
        }
        step.take_in(place, made, &mut self.snapshot);
        self.note_draining(step);
    }

    /// Who was taken out has what it had, until AWS says otherwise: where somebody waits for that, it is no guess to say so.
    pub(super) fn note_draining(&mut self, step: &Step) {
        let Step::Deregister { pool, targets } = step else { return };
        if self.followed.is_empty() {
            return;
        }
        self.followed.values_mut().for_each(|followed| followed.deregistered(targets));
        let Some(found) = self.snapshot.pool(pool).and_then(|pool| pool.targets.as_mut()) else { return };
        found.extend(targets.iter().map(|target| (target.clone(), TargetState::Draining)));
    }

    /// What was not there, or not as needed, may be by the next time: whoever was told of it may have mended it.
    pub(super) fn look_again_next_time(&mut self, owner: &Owner) {
        if let Some(holding) = self.snapshot.known(owner) {
            holding.taken.clear();
        }
        let shared = &mut self.snapshot.shared;
        let is_there =
            |name: &String| shared.groups.values().any(|group| group.id == *name || group.name == *name);
        shared.named.retain(is_there);
        shared.subnets = None;
        shared.route_tables = None;
    }

    /// What an owner has is not known any more: something came otherwise than expected.
    pub(super) fn doubt(&mut self, owner: &Owner) {
        let Some(holding) = self.snapshot.known(owner) else { return };
        for (arn, balancer) in &mut holding.balancers {
            balancer.listeners = None;
            balancer.attributes = None;
            self.uncertain.insert(arn.clone());
        }
        for (arn, pool) in &mut holding.pools {
            pool.targets = None;
            pool.attributes = None;
            self.uncertain.insert(arn.clone());
        }
        self.uncertain.extend(holding.groups.keys().cloned());
        holding.taken.clear();
        self.uncertain.extend(self.snapshot.shared.groups.keys().cloned());
        self.progress.verified.remove(owner);
    }
}
