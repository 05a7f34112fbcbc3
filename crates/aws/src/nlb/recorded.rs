//! Plans against what AWS had at one time.

use std::collections::BTreeSet;

use portcullis_core::{Owner, PlanView, Problem, Want};

use super::look::Look;
use super::record::{Record, RecordError};
use super::refresh::{KnownTags, Recent};
use super::round::{Progress, Wanted};
use super::settings::Settings;
use super::simulation::{NoPlan, Simulation};
use super::snapshot::Snapshot;
use super::spec::Spec;

/// More rounds of looking than any plan takes.
const ROUNDS: usize = 60;

/// AWS as it was when it was recorded, for plans. Nothing is called.
#[derive(Clone, Debug)]
pub struct Recorded {
    record: Record,
    settings: Settings,
    snapshot: Snapshot,
}

impl Recorded {
    /// What a record says, for a cluster that has these settings.
    pub fn new(record: Record, settings: Settings) -> Result<Self, RecordError> {
        for (what, recorded, configured) in [
            ("cluster", record.cluster(), &settings.cluster),
            ("VPC", record.vpc(), &settings.vpc),
            ("region", record.region(), &settings.region),
        ] {
            if recorded != configured {
                let (recorded, configured) = (recorded.to_owned(), configured.clone());
                return Err(RecordError::Elsewhere { what, recorded, configured });
            }
        }
        let mut snapshot = Snapshot::default();
        let nothing = Recent::default();
        record.everything().take_in(record.cluster(), &mut snapshot, &mut KnownTags::new(), &nothing);
        Ok(Recorded { record, settings, snapshot })
    }

    /// What is said for all load balancers.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// What would be done for a want, if AWS still were as it was.
    pub fn plan(&self, want: &Want) -> Result<PlanView, Problem> {
        let owner = &want.owner;
        let spec = Spec::of(want, &self.settings)?;
        let mut snapshot = self.snapshot.clone();
        for _ in 0..ROUNDS {
            match self.simulation(snapshot.clone()).plan(owner, spec.as_ref()) {
                Err(NoPlan::Look(looks)) => self.look(owner, &looks, &mut snapshot)?,
                other => return other.map_err(|error| error.problem(owner)),
            }
        }
        Err(NoPlan::NoEnd.problem(owner))
    }

    fn simulation(&self, snapshot: Snapshot) -> Simulation {
        Simulation {
            wanted: Wanted::default(),
            snapshot,
            progress: Progress::default(),
            settings: self.settings.clone(),
            steps: Vec::new(),
        }
    }

    fn look(&self, owner: &Owner, looks: &BTreeSet<Look>, snapshot: &mut Snapshot) -> Result<(), Problem> {
        let mut missing = Vec::new();
        for look in looks {
            match self.record.answer(look) {
                Ok(seen) => seen.take_in(snapshot),
                Err(what) => missing.push(what),
            }
        }
        let Some((first, others)) = missing.split_first() else { return Ok(()) };
        let others = if others.is_empty() { String::new() } else { format!(" and {} more", others.len()) };
        Err(Problem::new(
            format!("{owner}: the record of {} does not have {first}{others}.", self.record.taken()),
            "There is no plan for it.",
            "Take a new record with `portcullis plan --record`, or plan with the nodes of that time.",
        ))
    }
}
