//! What makes load balancers by a provider of ours: an object with an assignment becomes a want, and what the provider reports
//! becomes its status.

use std::collections::HashMap;
use std::fmt::Debug;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::{Client, Resource};
use portcullis_core::{Enforcement, MemberReport, Outcome, Owner, Problem, Provider, Report, Target, Want};
use portcullis_kube_api::cluster::{
    Assignment, CLUSTER_FINALIZER, CLUSTER_LABEL, ClusterSpec, ClusterStatus, InfrastructureStatus, Kind,
    MemberStatus, ProviderSpec, Unusable, is_moving_away, is_paused, set_condition,
};
use serde_json::json;
use tokio::time::sleep;
use tracing::warn;

use super::admitted::{is_within, listed};
use super::conditions::{self, RANGES_BEFORE};
use super::kinds::Kinds;
use super::membership::is_active;
use super::queue::Queue;
use super::shelf::{Key, Shelf, key};
use super::thing::{Thing, resource};
use super::writing::whole;
use crate::events::{Events, Weight};

/// How a provider's objects are looked after.
#[derive(Clone, Debug)]
pub struct InfrastructureSettings {
    /// What these objects are.
    pub kind: Kind,
    /// Only those of this namespace, if one is given.
    pub namespace: Option<String>,
    /// How many are dealt with at the same time.
    pub concurrency: u16,
    /// How often everything is looked at by few calls.
    pub resync: Duration,
    /// How often members that are on their way are looked at.
    pub look: Duration,
    /// Who this is, in Events.
    pub host: String,
}

/// So many looks at everything by few calls come before one at all of each.
const CLOSE: u64 = 12;

/// How long is waited after a failure, at first and at most.
const BACKOFF: (Duration, Duration) = (Duration::from_secs(2), Duration::from_secs(300));

/// Has a provider make the load balancers of objects of its kind.
#[allow(missing_debug_implementations, reason = "a client of Kubernetes has none")]
pub struct Infrastructures<P, S> {
    client: Client,
    provider: P,
    settings: InfrastructureSettings,
    of: std::marker::PhantomData<S>,
}

struct Context<P, S> {
    client: Client,
    provider: P,
    settings: InfrastructureSettings,
    objects: Arc<Shelf<S, InfrastructureStatus>>,
    clusters: Kinds<ClusterSpec, ClusterStatus>,
    queue: Arc<Queue>,
    events: Events,
    /// What was told of each last: it is told once, however often it is looked at.
    told: Mutex<HashMap<Key, Vec<String>>>,
    /// Whose what is, so that news of an owner find their object.
    owners: Mutex<HashMap<Owner, Key>>,
}

impl<P, S> Infrastructures<P, S>
where
    P: Provider,
    S: ProviderSpec + Clone + Debug + Send + Sync + 'static,
{
    /// Looks after objects of that kind by this provider.
    pub fn new(client: Client, provider: P, settings: InfrastructureSettings) -> Self {
        Infrastructures { client, provider, settings, of: std::marker::PhantomData }
    }

    /// Does so until it is dropped.
    pub async fn run(self) {
        let Infrastructures { client, provider, settings, .. } = self;
        let queue: Arc<Queue> = Arc::new(Queue::new("a load balancer", BACKOFF));
        let objects: Arc<Shelf<S, InfrastructureStatus>> =
            Arc::new(Shelf::new(resource(settings.kind), settings.namespace.clone()));
        let told = {
            let (objects, queue) = (Arc::clone(&objects), Arc::clone(&queue));
            move |_: &str, _: &str, cluster: &Thing<ClusterSpec, ClusterStatus>| {
                let of_it = |object: &Arc<Thing<S, InfrastructureStatus>>| {
                    object
                        .spec
                        .assignment()
                        .is_some_and(|assignment| assignment.cluster_name == cluster.name())
                };
                objects
                    .of(cluster.namespace())
                    .iter()
                    .filter(|one| of_it(one))
                    .for_each(|one| queue.add(key(one)));
            }
        };
        let context = Context {
            clusters: Kinds::new(client.clone(), settings.namespace.as_deref(), told),
            events: Events::new(client.clone(), "load-balancer-provider", &settings.host),
            objects: Arc::clone(&objects),
            queue: Arc::clone(&queue),
            told: Mutex::default(),
            owners: Mutex::default(),
            client: client.clone(),
            provider,
            settings,
        };
        let watching = objects.watch(client, |object| queue.add(key(object)));
        let working = async {
            objects.ready().await;
            let concurrency = usize::from(context.settings.concurrency.max(1));
            queue.run(concurrency, |key| context.reconcile(key)).await;
        };
        tokio::join!(watching, working, context.look_at_all());
    }
}

impl<P, S> Context<P, S>
where
    P: Provider,
    S: ProviderSpec + Clone + Debug + Send + Sync + 'static,
{
    /// Finds what somebody else changed, now and then.
    async fn look_at_all(&self) {
        for round in 1_u64.. {
            sleep(self.settings.resync).await;
            match self.provider.look_at_all().await {
                Ok(wrong) => wrong.iter().for_each(|owner| self.tell(owner)),
                Err(problem) => {
                    warn!(kind = self.settings.kind.kind, %problem, "load balancers cannot be looked at");
                }
            }
            if round.is_multiple_of(CLOSE) {
                self.look_closely().await;
            }
        }
    }

    /// Looks at all of each, one after the other.
    async fn look_closely(&self) {
        let owners: Vec<Owner> =
            self.owners.lock().unwrap_or_else(PoisonError::into_inner).keys().cloned().collect();
        for owner in owners {
            match self.provider.look_closely(&owner).await {
                Ok(true) => self.tell(&owner),
                Ok(false) => {}
                Err(problem) => warn!(%owner, %problem, "a load balancer cannot be looked at"),
            }
        }
    }

    /// There is news of an owner.
    fn tell(&self, owner: &Owner) {
        let owners = self.owners.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(key) = owners.get(owner) {
            self.queue.add(key.clone());
        }
    }

    async fn reconcile(&self, key: Key) -> Result<Option<Duration>, String> {
        let Some(object) = self.objects.get(&key.0, &key.1) else {
            self.forget(&key);
            return Ok(None);
        };
        if is_moving_away(&object) {
            self.forget(&key);
            return Ok(None);
        }
        let cluster = match object.spec.assignment() {
            Some(assignment) => {
                let clusters = self.clusters.shelf("cluster.x-k8s.io", "Cluster").await?;
                clusters.get(&key.0, &assignment.cluster_name)
            }
            None => None,
        };
        if is_paused(&object, cluster.as_ref().map(|cluster| &cluster.0)) {
            let mut status = object.status.clone();
            conditions::paused(&mut status.conditions, object.metadata.generation, &Time(Timestamp::now()));
            self.write_status(&object, status).await?;
            return Ok(None);
        }
        let held = object.is_held_by(CLUSTER_FINALIZER);
        match object.spec.assignment() {
            Some(assignment) if !object.is_going() => {
                match owner(self.settings.kind, &object, &assignment.cluster_name) {
                    Ok(owner) => {
                        let object = if held { object.clone() } else { self.hold(&object, true).await? };
                        self.ensure(&object, assignment, owner).await
                    }
                    Err(problem) => {
                        // Whoever corrects it is heard of.
                        let report = Report::new(Outcome::Blocked(problem));
                        self.say(&object, assignment, &report).await?;
                        Ok(None)
                    }
                }
            }
            _ if held => self.take_away(&object).await,
            _ => Ok(None),
        }
    }

    async fn ensure(
        &self,
        object: &Thing<S, InfrastructureStatus>,
        assignment: &Assignment,
        owner: Owner,
    ) -> Result<Option<Duration>, String> {
        self.owners.lock().unwrap_or_else(PoisonError::into_inner).insert(owner.clone(), key(object));
        let uid = object.metadata.uid.clone().unwrap_or_default();
        let known = |mut want: Want| {
            want.parameters.extend(known_address(object));
            want
        };
        let report = match object.spec.want(owner.clone(), uid.clone()) {
            Ok(want) => self.provider.sync(&known(want)).await,
            Err(why) => {
                let blocked = |state| Outcome::Blocked(unusable(&owner, &why, state));
                match object.spec.retreat(owner.clone(), uid) {
                    Some(want) => {
                        let report = self.provider.sync(&known(want)).await;
                        let state = match &report.outcome {
                            Outcome::Pending { why, .. } => &*format!(
                                "What is not asked for any more is to be closed, and is not yet: {why}."
                            ),
                            Outcome::Done | Outcome::Blocked(_) => {
                                "What serves goes on, what is not asked for any more is closed, and nothing is opened."
                            }
                        };
                        Report { outcome: blocked(state), ..report }
                    }
                    None => Report::new(blocked("What was there before is still there.")),
                }
            }
        };
        let members = self.say(object, assignment, &report).await?;
        let is_moving =
            members.iter().any(|member| !matches!(member.status.as_str(), "active" | "disabled" | "removed"));
        let is_leaving =
            members.iter().any(|member| matches!(member.status.as_str(), "draining" | "disabling"));
        match report.outcome {
            Outcome::Done => Ok(is_moving.then_some(self.settings.look)),
            Outcome::Pending { retry_after: Some(time), .. } => Ok(Some(time)),
            // Who leaves does not wait for what is in the way of all else, which is told.
            _ if is_leaving => Ok(Some(self.settings.look)),
            Outcome::Pending { why, .. } => Err(why),
            Outcome::Blocked(problem) => Err(problem.what),
        }
    }

    /// Says in its status, and by Events, what was reported of an object. Gives where its members are.
    async fn say(
        &self,
        object: &Thing<S, InfrastructureStatus>,
        assignment: &Assignment,
        report: &Report,
    ) -> Result<Vec<MemberStatus>, String> {
        let before = &object.status;
        let status = status(object, assignment, report, &Time(Timestamp::now()));
        let said = |status: &InfrastructureStatus| {
            let ready = portcullis_kube_api::cluster::condition(&status.conditions, "Ready");
            ready.map(|ready| (ready.status.clone(), ready.reason.clone(), ready.message.clone()))
        };
        if let (Outcome::Blocked(problem), true) = (&report.outcome, said(before) != said(&status)) {
            let reference = object.object_ref(self.objects.resource());
            let words = problem.to_string();
            self.events.tell_of(&reference, Weight::Warning, "LoadBalancerBlocked", &words).await;
        }
        let before = {
            let mut known = self.told.lock().unwrap_or_else(PoisonError::into_inner);
            known.insert(key(object), report.told.clone()).unwrap_or_default()
        };
        for told in report.told.iter().filter(|told| !before.contains(told)) {
            let reference = object.object_ref(self.objects.resource());
            self.events.tell_of(&reference, Weight::Warning, "LoadBalancerNotAsAsked", told).await;
        }
        let members = status.members.clone();
        self.write_status(object, status).await?;
        Ok(members)
    }

    async fn take_away(&self, object: &Thing<S, InfrastructureStatus>) -> Result<Option<Duration>, String> {
        if let Some(owner) = made_for(self.settings.kind, object)? {
            let want = Want {
                owner,
                uid: object.metadata.uid.clone().unwrap_or_default(),
                target: Target::Gone,
                parameters: object.spec.place().into_iter().chain(known_address(object)).collect(),
                nodes: Arc::default(),
            };
            match self.provider.sync(&want).await.outcome {
                Outcome::Done => {}
                Outcome::Pending { retry_after: Some(time), .. } => return Ok(Some(time)),
                Outcome::Pending { why, .. } => return Err(why),
                Outcome::Blocked(problem) => {
                    let reference = object.object_ref(self.objects.resource());
                    let words = problem.to_string();
                    self.events.tell_of(&reference, Weight::Warning, "LoadBalancerBlocked", &words).await;
                    return Err(problem.what);
                }
            }
        }
        self.forget(&key(object));
        let object = self.hold(object, false).await?;
        if !object.is_going() {
            self.write_status(&object, InfrastructureStatus::default()).await?;
        }
        Ok(None)
    }

    /// Nobody says any more what is wanted; what is there stays.
    fn forget(&self, key: &Key) {
        self.told.lock().unwrap_or_else(PoisonError::into_inner).remove(key);
        let mut owners = self.owners.lock().unwrap_or_else(PoisonError::into_inner);
        let gone: Vec<Owner> =
            owners.iter().filter(|(_, of)| *of == key).map(|(owner, _)| owner.clone()).collect();
        for owner in gone {
            owners.remove(&owner);
            self.provider.forget(&owner);
        }
    }

    /// Holds it until all that was made is gone, or lets it go. The cluster is written on it: it is needed when nothing else says
    /// it any more.
    async fn hold(
        &self,
        object: &Thing<S, InfrastructureStatus>,
        hold: bool,
    ) -> Result<Arc<Thing<S, InfrastructureStatus>>, String> {
        let mut finalizers = object.metadata.finalizers.clone().unwrap_or_default();
        finalizers.retain(|finalizer| finalizer != CLUSTER_FINALIZER);
        let mut metadata = json!({"resourceVersion": object.metadata.resource_version});
        if hold {
            finalizers.push(CLUSTER_FINALIZER.to_owned());
            let cluster = object.spec.assignment().map(|assignment| assignment.cluster_name.as_str());
            metadata["labels"] = json!({CLUSTER_LABEL: cluster});
        }
        metadata["finalizers"] = json!(finalizers);
        let written = self.objects.patch(&self.client, object, json!({"metadata": metadata})).await?;
        Ok(written.unwrap_or_else(|| Arc::new(object.clone())))
    }

    async fn write_status(
        &self,
        object: &Thing<S, InfrastructureStatus>,
        status: InfrastructureStatus,
    ) -> Result<(), String> {
        write_status(&self.objects, &self.client, object, &status).await
    }
}

/// Under which name something is made for an object. What has none is refused: it would not be found again.
fn owner<S>(kind: Kind, object: &Thing<S, InfrastructureStatus>, cluster: &str) -> Result<Owner, Problem> {
    let (namespace, name) = (object.namespace(), object.name());
    Owner::new(cluster, kind.kind, Some(namespace.to_owned()), name).map_err(|_| {
        Problem::new(
            format!(
                "{} {namespace}/{name}: spec.assignment.clusterName is `{cluster}`, which is not the name of a Cluster.",
                kind.kind
            ),
            "Nothing is made, and what was there before is still there.",
            "Take spec.assignment out: it is written by the controller of the LoadBalancer that names this object in spec.infrastructureRef.",
        )
    })
}

/// Under which name something may have been made for an object. Under a name that is none nothing was.
fn made_for<S: ProviderSpec>(
    kind: Kind,
    object: &Thing<S, InfrastructureStatus>,
) -> Result<Option<Owner>, String> {
    let asked = object.spec.assignment().map(|assignment| assignment.cluster_name.as_str());
    // The label was written before anything was made: it counts where what is asked for is wrong by now.
    let named: Vec<&str> = [asked, object.label(CLUSTER_LABEL)].into_iter().flatten().collect();
    if named.is_empty() {
        return Err(format!("it is not known of which cluster it is: label it with {CLUSTER_LABEL}"));
    }
    Ok(named.into_iter().find_map(|cluster| owner(kind, object, cluster).ok()))
}

/// Nothing is made of what is asked for.
fn unusable(owner: &Owner, why: &Unusable, state: &str) -> Problem {
    Problem::new(format!("{owner}: {why}."), state, format!("Correct it in the {}.", owner.kind()))
}

/// Where it was last: what is asked for may have changed while nobody was there to see it.
fn known_address<S>(object: &Thing<S, InfrastructureStatus>) -> Option<(String, String)> {
    let address = Some(&object.status.address).filter(|address| !address.is_empty())?;
    Some((Owner::ADDRESS_KEY.to_owned(), address.clone()))
}

/// Writes all of a status that is ours to write.
pub(super) async fn write_status<S>(
    objects: &Shelf<S, InfrastructureStatus>,
    client: &Client,
    object: &Thing<S, InfrastructureStatus>,
    status: &InfrastructureStatus,
) -> Result<(), String>
where
    S: ProviderSpec + Clone + Debug + Send + Sync + 'static,
{
    if *status == object.status {
        return Ok(());
    }
    let mut value = whole(status)?;
    // Each machine writes its own entry of these.
    value.as_object_mut().map(|fields| fields.remove("instances"));
    objects.patch_status(client, object, json!({"status": value})).await?;
    Ok(())
}

fn member_status(member: &MemberReport) -> MemberStatus {
    MemberStatus {
        name: member.name.clone(),
        status: member.state.to_string(),
        connections: member.connections,
        message: member.told.clone(),
    }
}

/// What a provider's report means for its object.
fn status<S>(
    object: &Thing<S, InfrastructureStatus>,
    assignment: &Assignment,
    report: &Report,
    now: &Time,
) -> InfrastructureStatus {
    let generation = object.metadata.generation;
    let mut status = object.status.clone();
    // A provider that could not look says nothing of members, which is not the same as that there are none.
    let has_looked = !report.members.is_empty() || assignment.members.is_empty();
    if has_looked {
        status.observed_generation = generation;
    }
    // What is not known now is no reason to take an address away.
    if let Some(address) = report.addresses.first() {
        status.address = address.to_string();
    }
    let exists = !status.address.is_empty();
    status.initialization.provisioned |= exists && report.outcome == Outcome::Done;
    if report.outcome == Outcome::Done {
        status.allowed_source_ranges.clone_from(&assignment.allowed_source_ranges);
    } else if let Some(admitted) = &report.admitted {
        status.allowed_source_ranges = listed(admitted);
    }
    let has_ranges =
        is_within(status.allowed_source_ranges.as_deref(), assignment.allowed_source_ranges.as_deref());
    if has_looked {
        status.members = report.members.iter().map(member_status).collect();
    }
    let active = status.members.iter().filter(|member| is_active(member)).count();
    let mut say = |type_: &str, state: &str, reason: &str, message: &str| {
        set_condition(&mut status.conditions, type_, state, reason, message, generation, now);
    };
    let exists_word = if exists { ("True", "Made") } else { ("False", "NotMade") };
    say("Exists", exists_word.0, exists_word.1, "");
    let (state, reason, message) = match &report.outcome {
        Outcome::Done => ("True", "UpToDate", String::new()),
        Outcome::Pending { why, .. } => ("False", "Pending", why.clone()),
        Outcome::Blocked(problem) => ("False", "Blocked", problem.to_string()),
    };
    say("ConfigUpToDate", state, reason, &message);
    let is_ready = exists && report.outcome == Outcome::Done;
    say("Ready", if is_ready { "True" } else { "False" }, reason, &message);
    let (state, reason) =
        if exists && active > 0 { ("True", "MembersActive") } else { ("False", "NoActiveMember") };
    say("Reachable", state, reason, "");
    match &report.enforcement {
        Some(Enforcement::By(what)) if has_ranges => {
            say("SourceRangesEnforced", "True", "Enforced", &format!("By: {what}."));
        }
        Some(Enforcement::By(_)) => say("SourceRangesEnforced", "False", "Pending", RANGES_BEFORE),
        Some(Enforcement::Not(why)) => say("SourceRangesEnforced", "False", "NotEnforced", why),
        None => {}
    }
    say("Paused", "False", "NotPaused", "");
    status
}

#[cfg(test)]
mod tests {
    use super::*;
    use portcullis_core::MemberState;
    use portcullis_core::{Address, AddressSet};
    use portcullis_kube_api::cluster::{AssignedMember, OvnLoadBalancerSpec, condition};

    fn second(number: i64) -> Time {
        Time(Timestamp::from_second(number).unwrap())
    }

    fn problem() -> Problem {
        Problem::new("there is no switch", "It stays.", "Name another.")
    }

    /// A condition: its state and reason, its message, since when it has its state, and which spec it is about.
    fn said(status: &InfrastructureStatus, type_: &str) -> String {
        let Some(found) = condition(&status.conditions, type_) else { return String::new() };
        let since = found.last_transition_time.as_ref().unwrap().0.as_second();
        let words = format!("{} {} {}", found.status, found.reason, found.message);
        format!("{} since {since} about {}", words.trim_end(), found.observed_generation.unwrap_or_default())
    }

    /// One load balancer, from before it is made until it is as asked again. Each row is a second later than the one before.
    #[test]
    fn what_is_said_through_its_life() {
        let done = |address: &str| Report {
            addresses: vec![Address::Ip(address.parse().unwrap())],
            ..Report::new(Outcome::Done)
        };
        let pending = || Report::new(Outcome::Pending { why: "OVN is away".to_owned(), retry_after: None });
        let blocked = || Report::new(Outcome::Blocked(problem()));
        let wrong = format!("False Blocked {}", problem());
        let with = |state: MemberState, report: Report| {
            let member = MemberReport { name: "one".to_owned(), state, connections: None, told: None };
            Report { members: vec![member], ..report }
        };
        let walk: [(&str, i64, Report, &str, &str, &str); 9] = [
            (
                "nobody could look",
                1,
                pending(),
                "False NotMade since 0 about 1",
                "False Pending OVN is away since 0 about 1",
                "False NoActiveMember since 0 about 1",
            ),
            (
                "it cannot be made",
                1,
                blocked(),
                "False NotMade since 0 about 1",
                &format!("{wrong} since 0 about 1"),
                "False NoActiveMember since 0 about 1",
            ),
            (
                "it is made",
                2,
                with(MemberState::Adding, done("192.0.2.1")),
                "True Made since 2 about 2",
                "True UpToDate since 2 about 2",
                "False NoActiveMember since 0 about 2",
            ),
            (
                "its member passes its check",
                2,
                with(MemberState::Active, done("192.0.2.1")),
                "True Made since 2 about 2",
                "True UpToDate since 2 about 2",
                "True MembersActive since 3 about 2",
            ),
            (
                "it is changed, and that takes a while",
                3,
                pending(),
                "True Made since 2 about 3",
                "False Pending OVN is away since 4 about 3",
                "True MembersActive since 3 about 3",
            ),
            (
                "it was changed, and its member has to pass another check",
                3,
                with(MemberState::Adding, done("192.0.2.2")),
                "True Made since 2 about 3",
                "True UpToDate since 5 about 3",
                "False NoActiveMember since 5 about 3",
            ),
            (
                "it cannot be changed",
                4,
                blocked(),
                "True Made since 2 about 4",
                &format!("{wrong} since 6 about 4"),
                "False NoActiveMember since 5 about 4",
            ),
            (
                "nor could anybody look",
                4,
                pending(),
                "True Made since 2 about 4",
                "False Pending OVN is away since 6 about 4",
                "False NoActiveMember since 5 about 4",
            ),
            (
                "it is as asked",
                5,
                with(MemberState::Active, done("192.0.2.2")),
                "True Made since 2 about 5",
                "True UpToDate since 8 about 5",
                "True MembersActive since 8 about 5",
            ),
        ];
        let member = AssignedMember { name: "one".to_owned(), ..AssignedMember::default() };
        let assignment = Assignment { members: vec![member], ..Assignment::default() };
        let mut object: Thing<OvnLoadBalancerSpec, InfrastructureStatus> =
            serde_json::from_value(json!({"metadata": {"name": "lb", "namespace": "a"}})).unwrap();
        let mut is_provisioned = false;
        for (now, (what, generation, report, exists, done, reachable)) in (0..).zip(walk) {
            object.0.metadata.generation = Some(generation);
            object.0.status = status(&object, &assignment, &report, &second(now));
            let types = ["Exists", "ConfigUpToDate", "Ready", "Reachable"];
            let found = types.map(|type_| said(&object.status, type_));
            assert_eq!(found, [exists, done, done, reachable], "{what}");
            // Once it was made it is not said to be unmade, whatever comes.
            is_provisioned |= report.outcome == Outcome::Done;
            assert_eq!(object.status.initialization.provisioned, is_provisioned, "{what}");
        }
        assert_eq!(object.status.address, "192.0.2.2");
    }

    /// What was made under a name is found by it; a name that is none is told, and nothing was made under it.
    #[test]
    fn a_name_that_is_none_makes_nothing_and_keeps_nothing() {
        let kind = portcullis_kube_api::cluster::Flavour::Own.ovn();
        let nothing = json!(null);
        for (asked, label, refused, made) in [
            (json!({"clusterName": "c"}), json!("c"), false, Some(Some("c"))),
            (json!({"clusterName": "c"}), nothing.clone(), false, Some(Some("c"))),
            (nothing.clone(), json!("c"), false, Some(Some("c"))),
            (nothing.clone(), nothing.clone(), false, None),
            (json!({}), nothing.clone(), true, Some(None)),
            (json!({}), json!(""), true, Some(None)),
            (json!({"clusterName": "a/b"}), nothing.clone(), true, Some(None)),
            (json!({"clusterName": " c"}), nothing.clone(), true, Some(None)),
            (json!({"clusterName": "c\n"}), nothing.clone(), true, Some(None)),
            // It was right once.
            (json!({}), json!("c"), true, Some(Some("c"))),
            (json!({"clusterName": "a/b"}), json!("c"), true, Some(Some("c"))),
        ] {
            let mut metadata = json!({"name": "lb", "namespace": "a"});
            if !label.is_null() {
                metadata["labels"] = json!({CLUSTER_LABEL: label});
            }
            let object = json!({"metadata": metadata, "spec": {"assignment": asked}});
            let object: Thing<OvnLoadBalancerSpec, InfrastructureStatus> =
                serde_json::from_value(object).unwrap();
            let found = made_for(kind, &object).ok();
            let found = found.map(|found| found.map(|owner| owner.cluster().to_owned()));
            assert_eq!(found, made.map(|made| made.map(str::to_owned)), "{asked} {label}");
            let Some(asked) = object.spec.assignment() else { continue };
            let owner = owner(kind, &object, &asked.cluster_name);
            assert_eq!(owner.is_err(), refused, "{asked:?}");
            if let Err(problem) = owner {
                let words = problem.to_string();
                assert!(words.contains("OVNLoadBalancer a/lb: spec.assignment.clusterName"), "{words}");
            }
        }
    }

    /// What counts is not what was asked for last, but what the provider says of it.
    #[test]
    fn ranges_are_those_in_force() {
        let ranges = |all: &[&str]| Some(all.iter().map(|range| (*range).to_owned()).collect::<Vec<_>>());
        let set = |all: &[&str]| all.iter().map(|range| range.parse().unwrap()).collect::<AddressSet>();
        let report = |outcome, admitted| Report {
            admitted,
            enforcement: Some(Enforcement::By("what filters".to_owned())),
            ..Report::new(outcome)
        };
        let done = || report(Outcome::Done, None);
        let blocked = |admitted| report(Outcome::Blocked(problem()), admitted);
        let before = ranges(&["10.0.0.0/8"]);
        for (before, report, expected, enforced) in [
            (&before, done(), ranges(&["10.0.0.0/9", "192.0.2.0/24"]), true),
            (&before, blocked(Some(set(&["10.0.0.0/9"]))), ranges(&["10.0.0.0/9"]), true),
            (&before, blocked(Some(AddressSet::nobody())), ranges(&[]), true),
            (&before, blocked(Some(AddressSet::everyone())), None, false),
            (&before, blocked(None), before.clone(), false),
            // Everyone got in, and nothing could be done about it.
            (&None, blocked(None), None, false),
            // Whatever is in the way, it is not of the ranges.
            (&ranges(&["192.0.2.0/25"]), blocked(None), ranges(&["192.0.2.0/25"]), true),
        ] {
            let mut object: Thing<OvnLoadBalancerSpec, InfrastructureStatus> =
                serde_json::from_value(json!({"metadata": {"name": "lb", "namespace": "a"}})).unwrap();
            object.0.status.allowed_source_ranges.clone_from(before);
            let asked = ranges(&["10.0.0.0/9", "192.0.2.0/24"]);
            let assignment = Assignment { allowed_source_ranges: asked, ..Assignment::default() };
            let status = status(&object, &assignment, &report, &second(0));
            assert_eq!(status.allowed_source_ranges, expected, "{report:?}");
            let said = said(&status, "SourceRangesEnforced");
            assert_eq!(said.starts_with("True Enforced By: what filters."), enforced, "{report:?}: {said}");
            assert_eq!(said.starts_with("False Pending"), !enforced, "{report:?}: {said}");
        }
    }
}
