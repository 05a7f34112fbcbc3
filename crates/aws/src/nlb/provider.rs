//! The loop around the decisions: look, decide, do, and again.

mod following;
mod looking;
mod retreat;
mod state;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use futures_util::future::join_all;
use portcullis_core::{
    Address, LoadBalancer, Members, Outcome, Owner, PlanView, Problem, Reach, Report, Target, Want,
};
use tokio::time::Instant;
use tracing::{info, warn};

use self::state::State;
use super::asked::{Asked, TargetKind};
use super::clock::Clock;
use super::decide::Next;
use super::execute;
use super::listing::Listing;
use super::look::Look;
use super::members::{self, Followed};
use super::node_side::NodeSide;
use super::round;
use super::settings::{MemberReports, Settings};
use super::simulation::{NoPlan, Simulation};
use super::snapshot::{Holding, Snapshot};
use super::spec::Spec;
use super::step::{Made, Place, Step};
use super::{names, view};
use crate::client::{CallError, Cause, Client};
use crate::model::TargetState;

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

    fn addresses(&self, owner: &Owner) -> Vec<Address> {
        let state = self.state();
        let balancers = state.snapshot.holdings.get(owner).map(|holding| holding.balancers.values());
        let names = balancers.into_iter().flatten().map(|found| found.balancer.dns_name.clone());
        names.filter(|name| !name.is_empty()).map(Address::Hostname).collect()
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
