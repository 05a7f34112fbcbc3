//! The loop around the decisions: look, decide, do, and again.

mod retreat;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use futures_util::future::join_all;
use portcullis_core::{
    Address, Duty, Enforcement, LoadBalancer, MemberReport, Members, Outcome, Owner, PlanView, Problem,
    Reach, Report, Target, Want,
};
use tokio::time::Instant;
use tracing::{info, warn};

use super::asked::{Asked, TargetKind};
use super::clock::Clock;
use super::decide::{self, Next};
use super::execute::{self, Seen};
use super::listing::{Listing, Reading};
use super::look::Look;
use super::members::{self, Followed};
use super::node_side::NodeSide;
use super::refresh::{self, Known, KnownTags, Recent, owner_of};
use super::round::{self, Progress, Wanted};
use super::settings::{MemberReports, Settings};
use super::simulation::{NoPlan, Simulation};
use super::snapshot::{Balancer, Group, Holding, Snapshot};
use super::spec::{Machines, Spec};
use super::step::{Made, Place, Step};
use super::{names, view};
use crate::client::{CallError, Cause, Client, TAGGED};
use crate::model::{LoadBalancer as LoadBalancerOfAws, SecurityGroup, TargetState};

/// AWS may tell the old for so long after a change.
const SETTLING: Duration = Duration::from_secs(60);

/// So often something unexpected is looked into before it is left for later.
const SURPRISES: usize = 4;

/// So many rounds lead to what is wanted, or something is wrong with the decisions.
const ROUNDS: usize = 60;

/// Network load balancers on AWS.
#[derive(Clone, Debug)]
pub struct Provider(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    client: Client,
    settings: Settings,
    clock: Clock,
    /// What is read once for all who look after load balancers in the same place.
    listing: OnceLock<Listing>,
    state: Mutex<State>,
    /// Who holds it does what is shared by all.
    shared: tokio::sync::Mutex<()>,
    /// Who holds it looks at everything.
    looking: tokio::sync::Mutex<()>,
}

#[derive(Debug, Default)]
struct State {
    wanted: Wanted,
    snapshot: Snapshot,
    progress: Progress,
    /// The sets of machines that load balancers send to: few, since most send to all nodes.
    machines: Vec<Arc<Machines>>,
    tags: KnownTags,
    /// Whether whose everything else is has to be read again.
    others_anew: bool,
    /// When objects were changed by us.
    changed: BTreeMap<String, Instant>,
    /// Those of them of which it is not known how they are.
    uncertain: BTreeSet<String>,
    removed: BTreeMap<String, Instant>,
    /// When everything was looked at, by the start of it.
    looked: Option<Instant>,
    /// Why what is shared could not be done, and when.
    trouble: Option<(Instant, CallError)>,
    /// How often in a row what is shared was not as it was known.
    surprises: usize,
    /// What was last said about whether source ranges keep anybody out: rules of others may change it.
    said: BTreeMap<Owner, Enforcement>,
    /// Owners whose members somebody waits for.
    followed: BTreeMap<Owner, Followed>,
    /// How far what is written on its objects was read, of owners with many.
    read: BTreeMap<Owner, usize>,
}

impl State {
    fn recent(&mut self) -> Recent {
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
    fn share_machines(&mut self, spec: &mut Spec) {
        self.machines.retain(|known| Arc::strong_count(known) > 1);
        match self.machines.iter().find(|known| **known == spec.machines) {
            Some(known) => spec.machines = Arc::clone(known),
            None => self.machines.push(Arc::clone(&spec.machines)),
        }
    }

    /// Takes in that a step was done.
    fn done(&mut self, place: &Place, step: &Step, made: Made) {
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
    fn note_draining(&mut self, step: &Step) {
        let Step::Deregister { pool, targets } = step else { return };
        if self.followed.is_empty() {
            return;
        }
        self.followed.values_mut().for_each(|followed| followed.deregistered(targets));
        let Some(found) = self.snapshot.pool(pool).and_then(|pool| pool.targets.as_mut()) else { return };
        found.extend(targets.iter().map(|target| (target.clone(), TargetState::Draining)));
    }

    /// What was not there, or not as needed, may be by the next time: whoever was told of it may have mended it.
    fn look_again_next_time(&mut self, owner: &Owner) {
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
    fn doubt(&mut self, owner: &Owner) {
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

impl Provider {
    /// A provider that calls by this client.
    pub fn new(client: Client, settings: Settings) -> Self {
        Self::with_clock(client, settings, Clock::default())
    }

    /// The same, by this clock.
    pub fn with_clock(client: Client, settings: Settings, clock: Clock) -> Self {
        Provider(Arc::new(Inner {
            client,
            settings,
            clock,
            listing: OnceLock::new(),
            state: Mutex::default(),
            shared: tokio::sync::Mutex::default(),
            looking: tokio::sync::Mutex::default(),
        }))
    }

    /// Reads what others read, too, by the same account and in the same region. It is too late for who looked already.
    pub(super) fn share(&self, listing: Listing) {
        let _ = self.0.listing.set(listing);
    }

    /// How it calls.
    pub fn client(&self) -> &Client {
        &self.0.client
    }

    /// What is said for all load balancers.
    pub fn settings(&self) -> &Settings {
        &self.0.settings
    }

    /// Whether nobody wants anything of it any more.
    pub(super) fn is_idle(&self) -> bool {
        let state = self.state();
        state.wanted.present.is_empty() && state.wanted.gone.is_empty()
    }

    /// The VPC of the load balancer that has an address, if there is one.
    pub(super) async fn vpc_at(&self, owner: &Owner, address: &str) -> Result<Option<String>, Outcome> {
        let found = self.listing().vpc_at(&self.0.client, address).await;
        found.map_err(|error| failed(owner, &error))
    }

    /// Whether anything is here of an owner, as far as is known.
    pub(super) fn holds(&self, owner: &Owner) -> bool {
        self.state().snapshot.holdings.contains_key(owner)
    }

    fn listing(&self) -> &Listing {
        self.0.listing.get_or_init(Listing::default)
    }

    /// What every owner has. With `members`, it is also looked at who is sent to, which takes a call for each target group.
    pub async fn holdings(&self, members: bool) -> Result<Vec<Held>, CallError> {
        self.look_at_everything(Instant::now()).await?;
        let (mut shared, mut pools) = (BTreeSet::new(), BTreeSet::new());
        {
            let state = self.state();
            for holding in state.snapshot.holdings.values() {
                let attached = holding.balancers.values().flat_map(|found| &found.balancer.groups);
                let others = attached.filter(|id| !holding.groups.contains_key(*id));
                shared.extend(others.map(|id| Look::SharedGroup(id.clone())));
                pools.extend(holding.pools.keys().map(|arn| Look::Targets(arn.clone())));
            }
        }
        self.look(&shared).await?;
        if members {
            self.look(&pools).await?;
        }
        let state = self.state();
        let owners = state.snapshot.holdings.iter().filter(|(owner, _)| owner.kind() != "Cluster");
        Ok(owners.map(|(owner, holding)| held(owner, holding, &state.snapshot)).collect())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Remembers what is wanted; what is to be told about it.
    fn take(&self, want: &Want) -> Result<Vec<String>, Problem> {
        let owner = &want.owner;
        let spec = match &want.target {
            Target::Present(wanted) => Some(self.spec(want, wanted)?),
            Target::Gone => None,
        };
        let mut state = self.state();
        if let Some((mut spec, told)) = spec {
            state.share_machines(&mut spec);
            state.wanted.gone.remove(owner);
            if state.wanted.present.get(owner) != Some(&spec) {
                state.progress.opened.remove(owner);
                state.wanted.present.insert(owner.clone(), spec);
            }
            return Ok(told);
        }
        state.wanted.present.remove(owner);
        if state.wanted.gone.insert(owner.clone()) {
            state.progress.verified.remove(owner);
        }
        Ok(Vec::new())
    }

    pub(super) fn spec(&self, want: &Want, wanted: &LoadBalancer) -> Result<(Spec, Vec<String>), Problem> {
        Spec::new(want, wanted, &self.0.settings)
    }

    /// Follows the members of a want, where somebody waits for them. What is to be told about it.
    fn follow(&self, want: &Want) -> Option<String> {
        let mut state = self.state();
        let before = state.followed.remove(&want.owner);
        let Target::Present(wanted) = &want.target else { return None };
        if self.0.settings.members == MemberReports::None {
            return None;
        }
        let (kind, _) = Asked::members(&want.parameters);
        let (hold, told) = members::hold(&want.parameters);
        let followed = Followed::new(before, wanted.clone(), kind, hold, self.0.clock.now());
        state.followed.insert(want.owner.clone(), followed);
        told
    }

    /// Looks at the members of an owner that somebody waits for, and takes out those of them that are not to serve any more:
    /// whatever stands in the way of everything else, they do not wait for that.
    async fn look_after_members(&self, owner: &Owner) -> Result<(), CallError> {
        let is_due = {
            let state = self.state();
            let Some(followed) = state.followed.get(owner) else { return Ok(()) };
            followed.is_due(self.0.clock.now())
        };
        if self.state().looked.is_none() {
            self.look_at_everything(Instant::now()).await?;
        }
        if is_due {
            self.look_for_machines(owner);
            self.look_at_members(owner).await?;
        }
        let steps = {
            let state = self.state();
            let holding = state.snapshot.holdings.get(owner);
            let followed = state.followed.get(owner);
            followed.zip(holding).map(|(followed, holding)| followed.let_go(holding)).unwrap_or_default()
        };
        // It is still to be done, and is told of where that is.
        if let Err(error) = self.perform(owner, &steps).await {
            warn!(%owner, %error, "who leaves could not be deregistered");
            self.state().doubt(owner);
        }
        Ok(())
    }

    /// One that did not run yet is looked at again: somebody waits for it.
    fn look_for_machines(&self, owner: &Owner) {
        let mut state = self.state();
        let State { followed, snapshot, .. } = &mut *state;
        let Some(followed) = followed.get(owner) else { return };
        let serving = followed.wanted.members().iter().filter(|member| member.duty() == Duty::Serve);
        let shared = &mut snapshot.shared;
        for id in serving.filter_map(|member| super::spec::instance_id(member.reference()?)) {
            if !shared.instances.contains_key(id) {
                shared.looked_for.remove(id);
            }
        }
    }

    /// Looks at how members do that somebody waits for: one call for each target group.
    async fn look_at_members(&self, owner: &Owner) -> Result<(), CallError> {
        let looks: BTreeSet<Look> = {
            let mut state = self.state();
            let State { followed, snapshot, .. } = &mut *state;
            let Some(followed) = followed.get_mut(owner) else { return Ok(()) };
            let Some(holding) = snapshot.holdings.get(owner) else { return Ok(()) };
            followed.asked(self.0.clock.now());
            holding.pools.keys().map(|arn| Look::Targets(arn.clone())).collect()
        };
        self.look(&looks).await
    }

    /// Looks at those of which it is not known any more how they do: where AWS refuses something, who leaves is waited for.
    async fn look_at_doubted_members(&self, owner: &Owner) {
        let looks: BTreeSet<Look> = {
            let state = self.state();
            let holding = state.snapshot.holdings.get(owner).filter(|_| state.followed.contains_key(owner));
            let pools = holding.iter().flat_map(|holding| &holding.pools);
            pools
                .filter(|(_, pool)| pool.targets.is_none())
                .map(|(arn, _)| Look::Targets(arn.clone()))
                .collect()
        };
        if let Err(error) = self.look(&looks).await {
            warn!(%owner, %error, "it is not known how its members do");
        }
    }

    /// Where the members of an owner are, as far as that is known, and as it was said last.
    fn members_of(&self, state: &mut State, owner: &Owner) -> (Vec<MemberReport>, Vec<MemberReport>) {
        // Before AWS was looked at, nothing is known: that there is nothing would be something.
        if state.looked.is_none() {
            return Default::default();
        }
        let Some(followed) = state.followed.get_mut(owner) else { return Default::default() };
        let empty = Holding::default();
        let holding = state.snapshot.holdings.get(owner).map_or(&empty, |holding| holding);
        let name = state.wanted.present.get(owner).map(|spec| spec.name.clone());
        let balancer = decide::balancer(holding, &name.unwrap_or_else(|| names::load_balancer(owner)));
        let now =
            followed.look(holding, balancer, (&state.snapshot.shared, &self.0.settings), self.0.clock.now());
        (now, followed.said().to_vec())
    }

    /// Says where members are.
    fn say_members(&self, owner: &Owner) -> Vec<MemberReport> {
        let mut state = self.state();
        let (now, _) = self.members_of(&mut state, owner);
        if let Some(followed) = state.followed.get_mut(owner) {
            followed.say(&now, self.0.clock.now());
        }
        now
    }

    fn addresses(&self, owner: &Owner) -> Vec<Address> {
        let state = self.state();
        let balancers = state.snapshot.holdings.get(owner).map(|holding| holding.balancers.values());
        let names = balancers.into_iter().flatten().map(|found| found.balancer.dns_name.clone());
        names.filter(|name| !name.is_empty()).map(Address::Hostname).collect()
    }

    /// Looks at all that an owner has; whether something is not as it should be.
    async fn look_at(&self, owner: &Owner) -> Result<bool, CallError> {
        let (mut looks, mut arns) = (BTreeSet::new(), Vec::new());
        if let Some(holding) = self.state().snapshot.holdings.get(owner) {
            for arn in holding.balancers.keys() {
                looks.insert(Look::Listeners(arn.clone()));
                looks.insert(Look::Attributes(arn.clone()));
                arns.push(arn.clone());
            }
            for arn in holding.pools.keys() {
                looks.insert(Look::Targets(arn.clone()));
                looks.insert(Look::PoolAttributes(arn.clone()));
                arns.push(arn.clone());
            }
        }
        let start = Instant::now();
        let seen = execute::look(&self.0.client, &self.0.settings, &looks).await?;
        // Of listeners, too. As many as one call takes: where there are more, those that come next are read the next time.
        arns.extend(seen.iter().flat_map(Seen::listeners).map(|listener| listener.arn.clone()));
        if arns.len() > TAGGED {
            let mut state = self.state();
            let next = state.read.entry(owner.clone()).or_default();
            let first = *next % arns.len();
            *next = first + TAGGED;
            arns.rotate_left(first);
            arns.truncate(TAGGED);
        }
        let tags = self.0.client.tags(&arns).await?;
        let state = &mut *self.state();
        for seen in seen {
            let changed = |id: &str| state.changed.get(id).is_some_and(|when| *when >= start);
            if let Some(seen) = seen.without(changed) {
                seen.take_in(&mut state.snapshot);
            }
        }
        if let Some(holding) = state.snapshot.known(owner) {
            for (arn, tags) in tags {
                if let Some(found) = holding.balancers.get_mut(&arn) {
                    found.tags = tags;
                } else if let Some(found) = holding.pools.get_mut(&arn) {
                    found.tags = tags;
                } else if let Some(found) =
                    holding.balancers.values_mut().find(|found| found.listens_by(&arn))
                {
                    found.listener_tags.insert(arn, tags);
                }
            }
        }
        let nodes = self.nodes(state);
        Ok(!self.next(state, owner, &nodes).is_done())
    }

    /// What would be done, without doing it: only what has to be known is looked at, and everything if nobody did since
    /// then.
    pub async fn plan(&self, want: &Want, since: Instant) -> Result<PlanView, Problem> {
        let unseen = |error: CallError| {
            let what = format!("{}: {error}.", want.owner);
            Problem::new(what, "Nothing was changed.", remedy_of_who_looks(&error))
        };
        let spec = Spec::of(want, &self.0.settings)?;
        self.look_at_everything(since).await.map_err(unseen)?;
        for _ in 0..ROUNDS {
            match self.simulation().plan(&want.owner, spec.as_ref()) {
                Err(NoPlan::Look(looks)) => self.look(&looks).await.map_err(unseen)?,
                other => return other.map_err(|error| error.problem(&want.owner)),
            }
        }
        Err(NoPlan::NoEnd.problem(&want.owner))
    }

    fn simulation(&self) -> Simulation {
        let state = self.state();
        Simulation {
            wanted: state.wanted.clone(),
            snapshot: state.snapshot.clone(),
            progress: state.progress.clone(),
            settings: self.0.settings.clone(),
            steps: Vec::new(),
        }
    }

    fn nodes(&self, state: &State) -> NodeSide {
        round::nodes(&state.wanted, &state.snapshot, &self.0.settings, &state.progress)
    }

    fn next(&self, state: &State, owner: &Owner, nodes: &NodeSide) -> Next {
        round::owner(owner, &state.wanted, &state.snapshot, &self.0.settings, nodes, &state.progress)
    }

    /// Does what is next until nothing is, or until others have to do something first.
    async fn work(&self, owner: &Owner) -> (Outcome, Next) {
        let mut meanwhile = BTreeSet::new();
        let (outcome, mut next) = self.work_and_note(owner, &mut meanwhile).await;
        next.told.extend(meanwhile);
        (outcome, next)
    }

    /// The same; what is to be told of the way there is noted.
    async fn work_and_note(&self, owner: &Owner, meanwhile: &mut BTreeSet<String>) -> (Outcome, Next) {
        let mut surprises = 0;
        if self.state().looked.is_none()
            && let Err(error) = self.look_at_everything(Instant::now()).await
        {
            return (failed(owner, &error), Next::default());
        }
        for _ in 0..ROUNDS {
            let (nodes, next, news, (shared, own)) = {
                let mut state = self.state();
                let nodes = self.nodes(&state);
                let next = self.next(&state, owner, &nodes);
                let news = next.opened && state.progress.opened.insert(owner.clone());
                let steps = next.steps.iter().cloned();
                let (shared, own): (Vec<Step>, Vec<Step>) =
                    steps.partition(|step| step.is_shared(&state.snapshot));
                (nodes, next, news, (shared, own))
            };
            meanwhile.extend(next.meanwhile.iter().cloned());
            let looks: BTreeSet<Look> = next.looks.union(&nodes.looks).cloned().collect();
            let outcome = if !looks.is_empty() {
                self.look(&looks).await
            } else if next.problem.is_none() && self.is_shared_work_due(&nodes) {
                self.do_shared().await;
                continue;
            } else if next.steps.is_empty() {
                // Once all is open that is wanted, the nodes may have something to close.
                if news {
                    continue;
                }
                return (self.outcome(owner, &next), next);
            } else {
                // What is its own waits for nothing that is shared, and is done also where that is refused.
                let done = self.perform(owner, &own).await;
                if shared.is_empty() { done } else { done.and(self.perform_shared(owner).await) }
            };
            let Err(error) = outcome else { continue };
            // It came otherwise than was known: what is there is looked at afresh, and decided anew.
            self.state().doubt(owner);
            surprises += 1;
            if !self.is_surprise(&error, surprises) || surprises > SURPRISES {
                return (failed(owner, &error), next);
            }
            info!(%owner, %error, "something is not as it was known, and is looked at again");
            if let Err(error) = self.look_at_everything(Instant::now()).await {
                return (failed(owner, &error), next);
            }
            self.note_taken(owner, &error);
        }
        warn!(%owner, "no end is in sight; it is left for later");
        (later("it changes all the time"), Next::default())
    }

    /// Whether a call may only have failed because something is not as it was known.
    fn is_surprise(&self, error: &CallError, times: usize) -> bool {
        // A machine that was running may have stopped since; AWS refuses the others with it.
        if error.action == "RegisterTargets" && error.cause == Cause::Invalid && times == 1 {
            let shared = &mut self.state().snapshot.shared;
            shared.instances.clear();
            shared.looked_for.clear();
            return true;
        }
        matches!(error.cause, Cause::NotFound | Cause::Exists)
    }

    /// Something of a name that we wanted to give is there, and was not found among what is ours.
    fn note_taken(&self, owner: &Owner, error: &CallError) {
        let mut state = self.state();
        let Some(spec) = state.wanted.present.get(owner).cloned() else { return };
        if error.cause != Cause::Exists {
            return;
        }
        let holding = state.snapshot.holding(owner);
        if error.action == "CreateLoadBalancer" && holding.balancers.is_empty() {
            holding.taken.insert(spec.name.clone());
        }
        if error.action == "CreateTargetGroup" {
            let names = spec.listeners.iter();
            let names = names.map(|(port, listening)| names::target_group(&spec, *port, &listening.backend));
            let is_there = |name: &String| holding.pools.values().any(|pool| pool.group.name == *name);
            let taken: Vec<String> = names.filter(|name| !is_there(name)).collect();
            holding.taken.extend(taken);
        }
    }

    fn outcome(&self, owner: &Owner, next: &Next) -> Outcome {
        if let Some(problem) = &next.problem {
            self.state().look_again_next_time(owner);
            return Outcome::Blocked(problem.clone());
        }
        if let Some(why) = &next.waits {
            let trouble = self.state().trouble.as_ref().map(|(_, trouble)| trouble.clone());
            return trouble.map_or_else(|| later(why), |trouble| failed(owner, &trouble));
        }
        let mut state = self.state();
        // The last one takes along what all shared.
        if state.wanted.gone.contains(owner)
            && state.wanted.present.is_empty()
            && let Some((_, trouble)) = &state.trouble
            && !self.nodes(&state).steps.is_empty()
        {
            return failed(owner, trouble);
        }
        if state.wanted.gone.remove(owner) {
            state.said.remove(owner);
            state.progress.opened.remove(owner);
            state.progress.verified.remove(owner);
        }
        Outcome::Done
    }

    fn is_shared_work_due(&self, nodes: &NodeSide) -> bool {
        let trouble = self.state().trouble.clone();
        !nodes.steps.is_empty() && trouble.is_none_or(|(when, _)| when.elapsed() > Duration::from_secs(5))
    }

    /// Does what is shared by all, one at a time.
    async fn do_shared(&self) {
        let _held = self.0.shared.lock().await;
        let steps = {
            let state = self.state();
            self.nodes(&state).steps
        };
        for (place, step) in steps {
            match execute::perform(&self.0.client, &step).await {
                Ok(made) => {
                    info!(step = step.name(), object = step.object(), "done for all load balancers");
                    let mut state = self.state();
                    state.done(&place, &step, made);
                    state.trouble = None;
                    state.surprises = 0;
                }
                Err(error) if is_gone_already(&step, &error) => {
                    self.state().done(&place, &step, Made::Nothing);
                }
                Err(error) => {
                    let error = error.about(step.object());
                    warn!(%error, "what all load balancers share could not be done");
                    self.doubt_shared(&error);
                    let _ = self.look_at_everything(Instant::now()).await;
                    return;
                }
            }
        }
    }

    /// Whatever it was, what is shared is looked at afresh.
    fn doubt_shared(&self, error: &CallError) {
        let mut state = self.state();
        state.surprises += 1;
        let surprise = matches!(error.cause, Cause::NotFound | Cause::Exists);
        if !surprise || state.surprises > SURPRISES {
            state.trouble = Some((Instant::now(), error.clone()));
        }
        let known: Vec<String> = state.snapshot.shared.groups.keys().cloned().collect();
        state.uncertain.extend(known);
        state.doubt(&super::node_side::backend_owner(&self.0.settings));
    }

    async fn look(&self, looks: &BTreeSet<Look>) -> Result<(), CallError> {
        for look in looks {
            match look {
                Look::Leftovers(owner) => self.look_for_leftovers(owner).await?,
                Look::Whose(owner) => self.look_whose(owner).await?,
                _ => {}
            }
        }
        let (shared, own): (BTreeSet<Look>, BTreeSet<Look>) =
            looks.iter().cloned().partition(Look::is_shared);
        if !shared.is_empty() {
            // Whoever waited here most likely finds that it was looked at meanwhile.
            let _held = self.0.looking.lock().await;
            let unknown = |look: &Look| !look.is_answered(&self.state().snapshot.shared);
            self.see(&shared.into_iter().filter(unknown).collect()).await?;
        }
        self.see(&own).await
    }

    async fn see(&self, looks: &BTreeSet<Look>) -> Result<(), CallError> {
        let start = Instant::now();
        let seen = execute::look(&self.0.client, &self.0.settings, looks).await?;
        let state = &mut *self.state();
        for seen in seen {
            let changed = |id: &str| state.changed.get(id).is_some_and(|when| *when >= start);
            if let Some(seen) = seen.without(changed) {
                seen.take_in(&mut state.snapshot);
            }
        }
        Ok(())
    }

    /// Whose the load balancers and target groups of an owner are, of which that is not sure.
    async fn look_whose(&self, owner: &Owner) -> Result<(), CallError> {
        let arns: Vec<String> = {
            let state = self.state();
            let Some(holding) = state.snapshot.holdings.get(owner) else { return Ok(()) };
            let balancers = holding.balancers.iter().filter(|(_, found)| !found.seen).map(|(arn, _)| arn);
            let pools = holding.pools.iter().filter(|(_, found)| !found.seen).map(|(arn, _)| arn);
            balancers.chain(pools).cloned().collect()
        };
        let tags = self.0.client.tags(&arns).await?;
        let mut state = self.state();
        for arn in &arns {
            // One that AWS does not tell of yet can only be new.
            let ours = tags
                .get(arn)
                .is_none_or(|tags| owner_of(tags, &self.0.settings.cluster).as_ref() == Some(owner));
            let holding = state.snapshot.holding(owner);
            if ours {
                holding.balancers.get_mut(arn).into_iter().for_each(|found| found.seen = true);
                holding.pools.get_mut(arn).into_iter().for_each(|found| found.seen = true);
                continue;
            }
            let balancer = holding.balancers.remove(arn).map(|found| found.balancer.name);
            let pool = holding.pools.remove(arn).map(|found| found.group.name);
            holding.taken.extend(balancer.into_iter().chain(pool));
            state.changed.remove(arn);
            state.tags.insert(arn.clone(), tags.get(arn).cloned().unwrap_or_default());
        }
        Ok(())
    }

    /// Whether something is left that was not known of: by the name it would have, and by what would be written on it.
    async fn look_for_leftovers(&self, owner: &Owner) -> Result<(), CallError> {
        let client = &self.0.client;
        let seen = execute::look(client, &self.0.settings, &[Look::Groups(owner.clone())].into()).await?;
        let balancer = client.load_balancer_by_name(&names::load_balancer(owner)).await?;
        let mut tags = match &balancer {
            Some(found) => client.tags(std::slice::from_ref(&found.arn)).await?,
            None => BTreeMap::new(),
        };
        let is_here = |vpc: &str| vpc.is_empty() || vpc == self.0.settings.vpc;
        let mut state = self.state();
        let recent = state.recent();
        for seen in seen {
            let Seen::Own(_, groups) = seen else { continue };
            // What is in other VPCs is for whoever looks after these, and knows who lets it in there.
            let is_left = |group: &SecurityGroup| is_here(&group.vpc) && !recent.gone.contains(&group.id);
            for group in groups.into_iter().filter(is_left) {
                let holding = state.snapshot.holding(owner);
                holding.groups.insert(group.id.clone(), Group { group, seen: true });
            }
        }
        let is_left = |found: &LoadBalancerOfAws| is_here(&found.vpc) && !recent.gone.contains(&found.arn);
        if let Some(balancer) = balancer.filter(is_left) {
            let tags = tags.remove(&balancer.arn).unwrap_or_default();
            if owner_of(&tags, &self.0.settings.cluster).as_ref() == Some(owner) {
                let arn = balancer.arn.clone();
                let found = Balancer { balancer, tags, seen: true, ..Balancer::default() };
                state.snapshot.holding(owner).balancers.insert(arn, found);
            }
        }
        if state.snapshot.holdings.get(owner).is_none_or(|holding| holding.is_empty()) {
            state.snapshot.holdings.remove(owner);
            state.progress.verified.insert(owner.clone());
        }
        Ok(())
    }

    /// Does what is next for an owner in groups that others change too, one owner at a time.
    async fn perform_shared(&self, owner: &Owner) -> Result<(), CallError> {
        let _held = self.0.shared.lock().await;
        let steps: Vec<Step> = {
            let state = self.state();
            let next = self.next(&state, owner, &self.nodes(&state));
            next.steps.into_iter().filter(|step| step.is_shared(&state.snapshot)).collect()
        };
        self.perform(owner, &steps).await
    }

    /// Does steps that do not need each other, together. The first error is given, once all have ended.
    async fn perform(&self, owner: &Owner, steps: &[Step]) -> Result<(), CallError> {
        let place = Place::Owner(owner.clone());
        let calls = steps.iter().map(|step| execute::perform(&self.0.client, step));
        let outcomes = join_all(calls).await;
        let mut first = Ok(());
        let mut state = self.state();
        for (step, outcome) in steps.iter().zip(outcomes) {
            match outcome {
                Ok(made) => {
                    info!(%owner, step = step.name(), object = step.object(), "done");
                    state.done(&place, step, made);
                }
                Err(error) if is_gone_already(step, &error) => state.done(&place, step, Made::Nothing),
                Err(error) => first = first.and(Err(error.about(step.object()))),
            }
        }
        first
    }

    /// Of what it is read again whose it is: of owners of whom nobody says anything. What they have may have been given away.
    fn doubted_tags(&self, state: &State) -> BTreeSet<String> {
        let holdings = self.unwanted(state).filter_map(|owner| state.snapshot.holdings.get(owner));
        holdings.flat_map(|holding| holding.balancers.keys().chain(holding.pools.keys())).cloned().collect()
    }

    /// Owners that have something, and of whom nobody said anything. What all share is wanted as long as anybody is there.
    fn unwanted<'a>(&self, state: &'a State) -> impl Iterator<Item = &'a Owner> {
        let shared = super::node_side::backend_owner(&self.0.settings);
        let is_alone = state.wanted.present.is_empty()
            && state.snapshot.holdings.values().all(|holding| holding.balancers.is_empty());
        state.snapshot.holdings.keys().filter(move |owner| {
            !state.wanted.present.contains_key(owner)
                && !state.wanted.gone.contains(*owner)
                && (**owner != shared || is_alone)
        })
    }

    /// Looks for the load balancer of an owner that was taken over: nobody here made it, so nobody here knows it.
    async fn look_for_adopted(&self, want: &Want) -> Result<(), CallError> {
        {
            let mut state = self.state();
            let holding = state.snapshot.holdings.get(&want.owner);
            // Who is on the way out was looked for already.
            if !want.parameters.contains_key(Owner::ADOPTED_KEY)
                || state.wanted.gone.contains(&want.owner)
                || holding.is_some_and(|holding| !holding.balancers.is_empty())
            {
                return Ok(());
            }
            state.others_anew = true;
        }
        self.look_at_everything(Instant::now()).await
    }

    /// Looks at everything, unless somebody did since then.
    async fn look_at_everything(&self, since: Instant) -> Result<(), CallError> {
        let _held = self.0.looking.lock().await;
        let (known, others, reading) = {
            let state = self.state();
            if state.looked.is_some_and(|looked| looked >= since) {
                return Ok(());
            }
            let reading = match state.looked {
                Some(_) => Reading::since(since),
                None => Reading::of_late(),
            };
            let doubted = self.doubted_tags(&state);
            let reading = Reading { doubted, others: state.others_anew, ..reading };
            (state.tags.clone(), state.looked.map(|_| Known::of(&state.snapshot.shared)), reading)
        };
        let start = Instant::now();
        let listing = (self.listing(), &reading);
        let found =
            refresh::look_at_everything(&self.0.client, &self.0.settings, listing, &known, others.as_ref());
        let found = found.await?;
        let mut state = self.state();
        state.others_anew &= !reading.others;
        let recent = state.recent();
        let state = &mut *state;
        found.take_in(&self.0.settings.cluster, &mut state.snapshot, &mut state.tags, &recent);
        state.looked = Some(start);
        Ok(())
    }
}

/// Who can be sent to, by what a Service asks for.
pub fn members(parameters: &BTreeMap<String, String>) -> Members {
    match Asked::members(parameters) {
        (TargetKind::Instance, labels) => Members::Nodes(labels),
        (TargetKind::Ip, _) => Members::Endpoints,
    }
}

/// What is said to this provider, as everybody else says it to theirs.
impl portcullis_core::Provider for Provider {
    fn members(&self, parameters: &BTreeMap<String, String>) -> Result<Members, Problem> {
        Ok(members(parameters))
    }

    fn is_settled(&self, want: &Want) -> bool {
        let spec = match &want.target {
            Target::Present(wanted) => match self.spec(want, wanted) {
                Ok((spec, _)) => Some(spec),
                Err(_) => return false,
            },
            Target::Gone => None,
        };
        let state = self.state();
        if state.looked.is_none() || state.wanted.present.get(&want.owner) != spec.as_ref() {
            return false;
        }
        let nodes = self.nodes(&state);
        spec.is_some() && nodes.steps.is_empty() && self.next(&state, &want.owner, &nodes).is_done()
    }

    async fn sync(&self, want: &Want) -> Report {
        let owner = &want.owner;
        let stopped = |outcome| Report {
            addresses: self.addresses(owner),
            members: self.say_members(owner),
            ..Report::new(outcome)
        };
        let followed = self.follow(want);
        if let Err(error) = self.look_for_adopted(want).await {
            return stopped(failed(&want.owner, &error));
        }
        if let Err(error) = self.look_after_members(owner).await {
            return stopped(failed(owner, &error));
        }
        let told = match self.take(want) {
            Ok(told) => told,
            Err(mut problem) => {
                let admitted = self.retreat_from(owner, &mut problem).await;
                return Report { admitted, ..stopped(Outcome::Blocked(problem)) };
            }
        };
        let (mut outcome, next) = self.work(owner).await;
        let admitted = match &mut outcome {
            Outcome::Blocked(problem) => self.retreat_from(owner, problem).await,
            Outcome::Done | Outcome::Pending { .. } => None,
        };
        self.look_at_doubted_members(owner).await;
        let addresses = self.addresses(owner);
        if let Some(said) = &next.enforcement {
            self.state().said.insert(want.owner.clone(), said.clone());
        }
        let mut report = Report {
            outcome,
            addresses,
            told,
            enforcement: next.enforcement,
            admitted,
            members: self.say_members(owner),
        };
        report.told.extend(followed);
        report.told.extend(next.told);
        report
    }

    async fn preview(&self, want: &Want) -> Result<PlanView, Problem> {
        // Whoever only asks is content with what was seen a moment ago: there may be many who ask.
        let now = Instant::now();
        self.plan(want, now.checked_sub(SETTLING).unwrap_or(now)).await
    }

    fn forget(&self, owner: &Owner) {
        let mut state = self.state();
        state.wanted.present.remove(owner);
        state.wanted.gone.remove(owner);
        state.progress.opened.remove(owner);
        state.progress.verified.remove(owner);
        state.read.remove(owner);
        state.said.remove(owner);
        state.followed.remove(owner);
        state.doubt(owner);
    }

    fn forgotten(&self) -> Vec<Owner> {
        let state = self.state();
        let identity = self.0.settings.identity.as_ref();
        let is_of_this_cluster = |owner: &&Owner| {
            let known = identity.is_none_or(|identity| state.snapshot.holdings[*owner].carries(identity));
            if !known {
                warn!(%owner, "it is not there, and what it has was made by another cluster of this name: it is left as it is");
            }
            known
        };
        self.unwanted(&state).filter(is_of_this_cluster).cloned().collect()
    }

    async fn look_at_all(&self) -> Result<Vec<Owner>, Problem> {
        self.look_at_all_since(Instant::now()).await
    }

    async fn look_closely(&self, owner: &Owner) -> Result<bool, Problem> {
        self.look_at(owner).await.map_err(|error| unseen(&error))
    }
}

impl Provider {
    /// Looks at everything by few calls. What was read since then is not read again.
    pub(super) async fn look_at_all_since(&self, since: Instant) -> Result<Vec<Owner>, Problem> {
        self.look_at_everything(since).await.map_err(|error| unseen(&error))?;
        // Without these nothing can be said of anybody. They are left to be looked at again when somebody was refused.
        let is_wanted = !self.state().wanted.present.is_empty();
        if is_wanted {
            self.look(&[Look::Subnets].into()).await.map_err(|error| unseen(&error))?;
        }
        let followed: Vec<Owner> = self.state().followed.keys().cloned().collect();
        for owner in &followed {
            // What could not be seen is still known as it was.
            if let Err(error) = self.look_at_members(owner).await {
                warn!(%owner, %error, "it is not known how its members do");
            }
        }
        let mut state = self.state();
        let changed = |owner: &&Owner| {
            let (now, said) = self.members_of(&mut state, owner);
            now != said
        };
        let changed: BTreeSet<Owner> = followed.iter().filter(changed).cloned().collect();
        let nodes = self.nodes(&state);
        let owners = state.wanted.present.keys();
        let is_wrong = |owner: &&Owner| {
            let next = self.next(&state, owner, &nodes);
            !next.is_done()
                || changed.contains(*owner)
                || state.said.get(*owner).is_some_and(|said| Some(said) != next.enforcement.as_ref())
        };
        let wrong: Vec<Owner> = owners.filter(is_wrong).cloned().collect();
        // What all share is put right by whoever comes first.
        if wrong.is_empty() && !nodes.steps.is_empty() {
            return Ok(state.wanted.present.keys().take(1).cloned().collect());
        }
        Ok(wrong)
    }
}

fn unseen(error: &CallError) -> Problem {
    Problem::new(format!("{error}."), "What was known is still known.", "It is tried again later.")
}

/// What an owner has, for people.
#[derive(Clone, Debug)]
pub struct Held {
    /// Whose it is.
    pub owner: Owner,
    /// The load balancer, by its name and address, if there is one.
    pub balancer: Option<(String, String)>,
    /// Whether it has groups, which it either always or never can have.
    pub has_groups: bool,
    /// Who may reach it, by its groups.
    pub open: Reach,
    /// How many of its targets are healthy, and how many there are, where that was looked at.
    pub members: Option<(usize, usize)>,
}

fn held(owner: &Owner, holding: &Holding, snapshot: &Snapshot) -> Held {
    let balancer = holding.balancers.values().next().map(|found| &found.balancer);
    let pools = || holding.pools.values().filter_map(|pool| pool.targets.as_ref());
    let states: Vec<&TargetState> = pools().flat_map(BTreeMap::values).collect();
    Held {
        owner: owner.clone(),
        balancer: balancer.map(|found| (found.name.clone(), found.dns_name.clone())),
        has_groups: balancer.is_some_and(|found| !found.groups.is_empty()),
        open: view::admitted(holding, snapshot),
        members: (pools().count() > 0)
            .then(|| (states.iter().filter(|state| ***state == TargetState::Healthy).count(), states.len())),
    }
}

/// Whether a step that takes something away found it gone.
fn is_gone_already(step: &Step, error: &CallError) -> bool {
    step.is_destructive() && error.cause == Cause::NotFound
}

fn later(why: &str) -> Outcome {
    Outcome::Pending { why: why.to_owned(), retry_after: None }
}

/// What to do about a call that did not succeed, where it takes somebody to do it.
fn remedy(error: &CallError) -> Option<String> {
    Some(match error.cause {
        Cause::Denied => format!(
            "Allow {} to the role that Portcullis runs with; `portcullis iam-policy` prints all that is needed.",
            error.action
        ),
        Cause::Credentials => error.remedy_for_credentials().to_owned(),
        Cause::Limit => "Have AWS raise the limit, or free something.".to_owned(),
        Cause::Invalid => "Correct what AWS complains about.".to_owned(),
        _ => return None,
    })
}

/// The same for who only looks, and may do it again.
pub(super) fn remedy_of_who_looks(error: &CallError) -> String {
    remedy(error).unwrap_or_else(|| "Try again when AWS answers.".to_owned())
}

/// What a call that did not succeed means for an owner.
fn failed(owner: &Owner, error: &CallError) -> Outcome {
    let Some(remedy) = remedy(error) else { return later(&error.to_string()) };
    let state = "What was there before is still there; it is tried again now and then.";
    Outcome::Blocked(Problem::new(format!("{owner}: AWS refused. {error}."), state, remedy))
}
