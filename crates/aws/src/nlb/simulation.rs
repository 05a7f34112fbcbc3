//! What would happen: decisions against an AWS that does all it is told at once.

use std::collections::{BTreeMap, BTreeSet};

use portcullis_core::{Cidr, Family, Owner, PlanError, PlanView, Problem};

use super::decide::Next;
use super::look::Look;
use super::round::{self, Progress, Wanted};
use super::settings::Settings;
use super::snapshot::Snapshot;
use super::spec::Spec;
use super::step::{Place, Step};
use super::view;
use crate::model::{Peer, Permission};

/// More rounds than any change takes.
const ROUNDS: usize = 60;

/// A world in which decisions are tried.
#[derive(Clone, Debug)]
pub(super) struct Simulation {
    pub(super) wanted: Wanted,
    pub(super) snapshot: Snapshot,
    pub(super) progress: Progress,
    pub(super) settings: Settings,
    /// What was done, in its order.
    pub(super) steps: Vec<(Place, Step)>,
}

/// Why it came to no end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum NoEnd {
    /// This has to be looked at, in the real world.
    Look(BTreeSet<Look>),
    /// It changes for ever.
    Never,
}

/// Why there is no plan.
#[derive(Clone, Debug, thiserror::Error)]
pub(super) enum NoPlan {
    /// This has to be looked at first.
    #[error("not all is known that has to be")]
    Look(BTreeSet<Look>),
    /// What is wanted cannot be.
    #[error("{0}")]
    Problem(Problem),
    /// It makes no sense, which is a fault of the program.
    #[error("the plan contradicts itself, which is a fault of the program: {0}")]
    Plan(PlanError),
    /// It comes to no end, which is a fault of the program.
    #[error("the plan comes to no end, which is a fault of the program")]
    NoEnd,
}

impl NoPlan {
    /// The same for whoever wants it.
    pub(super) fn problem(self, owner: &Owner) -> Problem {
        match self {
            NoPlan::Problem(problem) => problem,
            other => Problem::new(
                format!("{owner}: {other}."),
                "Nothing was changed.",
                "Report it, with the Service and a record of AWS.",
            ),
        }
    }
}

impl Simulation {
    /// What would be done from here on for an owner that wants this, or nothing any more.
    pub(super) fn plan(mut self, owner: &Owner, spec: Option<&Spec>) -> Result<PlanView, NoPlan> {
        let before = self.snapshot.clone();
        self.progress.opened.remove(owner);
        self.wanted.present.remove(owner);
        match spec {
            Some(spec) => drop(self.wanted.present.insert(owner.clone(), spec.clone())),
            None => drop(self.wanted.gone.insert(owner.clone())),
        }
        let nexts = self.run(&[owner.clone()].into(), |_| ()).map_err(|why| match why {
            NoEnd::Look(looks) => NoPlan::Look(looks),
            NoEnd::Never => NoPlan::NoEnd,
        })?;
        if let Some(problem) = nexts.into_values().find_map(|next| next.problem) {
            return Err(NoPlan::Problem(problem));
        }
        view::plan(owner, spec, &self.settings, &before, &self.snapshot, &self.steps).map_err(NoPlan::Plan)
    }

    /// Does what is next for these owners, and for what all share, until nothing is; `each` sees every single step done.
    pub(super) fn run(
        &mut self,
        owners: &BTreeSet<Owner>,
        each: impl FnMut(&Snapshot),
    ) -> Result<BTreeMap<Owner, Next>, NoEnd> {
        self.run_ordered(owners, |_| (), each)
    }

    /// The same, with steps that can be done at the same time in an order of its own.
    pub(super) fn run_ordered(
        &mut self,
        owners: &BTreeSet<Owner>,
        mut order: impl FnMut(&mut Vec<(Place, Step)>),
        mut each: impl FnMut(&Snapshot),
    ) -> Result<BTreeMap<Owner, Next>, NoEnd> {
        let mut meanwhile: BTreeMap<Owner, BTreeSet<String>> = BTreeMap::new();
        for _ in 0..ROUNDS {
            let nodes = round::nodes(&self.wanted, &self.snapshot, &self.settings, &self.progress);
            let (mut looks, mut steps) = (nodes.looks.clone(), nodes.steps.clone());
            let mut nexts = BTreeMap::new();
            let mut news = false;
            for owner in owners {
                let next =
                    round::owner(owner, &self.wanted, &self.snapshot, &self.settings, &nodes, &self.progress);
                looks.extend(next.looks.clone());
                steps.extend(next.steps.iter().map(|step| (Place::Owner(owner.clone()), step.clone())));
                news |= next.opened && self.progress.opened.insert(owner.clone());
                meanwhile.entry(owner.clone()).or_default().extend(next.meanwhile.iter().cloned());
                nexts.insert(owner.clone(), next);
            }
            let unknown: BTreeSet<Look> = looks.into_iter().filter(|look| !self.answer(look)).collect();
            if !unknown.is_empty() {
                return Err(NoEnd::Look(unknown));
            }
            if steps.is_empty()
                && !news
                && nexts.values().all(|next| next.looks.is_empty())
                && nodes.looks.is_empty()
            {
                self.snapshot.holdings.retain(|_, holding| !holding.is_empty());
                for (owner, next) in &mut nexts {
                    next.told.extend(meanwhile.remove(owner).unwrap_or_default());
                }
                return Ok(nexts);
            }
            order(&mut steps);
            for (place, step) in steps {
                step.take_in(&place, step.assumed(), &mut self.snapshot);
                self.steps.push((place, step));
                each(&self.snapshot);
            }
        }
        Err(NoEnd::Never)
    }

    /// Answers what would be seen after what was done here; false for what only the real world can tell.
    fn answer(&mut self, look: &Look) -> bool {
        match look {
            Look::Groups(owner) => {
                let known = self.snapshot.shared.subnets.iter().flatten();
                let dual = known.into_iter().any(|subnet| !subnet.ranges6.is_empty());
                let holding = self.snapshot.holding(owner);
                for group in holding.groups.values_mut().filter(|group| !group.seen) {
                    // What AWS puts into a new one.
                    let families = [Some(Family::V4), dual.then_some(Family::V6)];
                    for family in families.into_iter().flatten() {
                        let all = Permission::all(Peer::Range(Cidr::everything(family)));
                        group.group.egress.insert(all, String::new());
                    }
                    group.seen = true;
                }
                true
            }
            Look::Whose(owner) => {
                let holding = self.snapshot.holding(owner);
                holding.balancers.values_mut().for_each(|found| found.seen = true);
                holding.pools.values_mut().for_each(|found| found.seen = true);
                true
            }
            Look::Leftovers(owner) => {
                self.progress.verified.insert(owner.clone());
                true
            }
            _ => false,
        }
    }
}
