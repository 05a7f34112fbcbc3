//! One load balancer, from what is known of it to what has to be written.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::Resource;
use portcullis_kube_api::cluster::{
    AssignedMember, Assignment, CONTROL_PLANE, ClusterSpec, ClusterStatus, ControlPlaneSpec, DutyWord,
    Endpoint, Flavour, InfrastructureSpec, InfrastructureStatus, LoadBalancerStatus, Reference, condition,
    hooks, is_moving_away, is_paused, is_paused_itself,
};
use serde::de::DeserializeOwned;
use serde_json::json;
use tracing::info;

use super::asked;
use super::conditions::{self, EndpointLook, InfrastructureLook, Look, Said};
use super::controller::Context;
use super::endpoints::{Flow, Place, flow};
use super::kinds::Lack;
use super::marks::Hold;
use super::membership::{Candidate, Membership, Situation};
use super::moving::is_bound_to;
use super::shelf::{Key, Shelf};
use super::thing::{Infrastructure, LoadBalancer, Thing};
use crate::events::Weight;

/// Why it did not come to its end. It is tried again.
pub(super) type Failed = String;

pub(super) type Shelved<S, T> = (Arc<Shelf<S, T>>, Arc<Thing<S, T>>);
pub(super) type Made = Shelved<InfrastructureSpec, InfrastructureStatus>;
pub(super) type Plane = Shelved<ControlPlaneSpec, ClusterStatus>;

/// What belongs to a load balancer.
struct Surroundings {
    cluster: Shelved<ClusterSpec, ClusterStatus>,
    /// The control plane that it is for, if it is for one and that is an object.
    plane: Option<Plane>,
    is_control_plane: bool,
}

/// How often it is looked at again when nothing tells of a change: a kind that is not installed is not watched either.
const PATIENCE: Duration = Duration::from_secs(5);

impl Context {
    pub(super) async fn reconcile(&self, key: Key) -> Result<Option<Duration>, Failed> {
        let Some(balancer) = self.balancers.get(&key.0, &key.1) else {
            self.probes.forget(&key);
            return Ok(None);
        };
        if is_moving_away(&balancer) {
            return Ok(None);
        }
        let clusters = Lack::none(self.clusters.shelf("cluster.x-k8s.io", "Cluster").await)?;
        let cluster = clusters.as_ref().and_then(|shelf| shelf.get(&key.0, &balancer.spec.cluster_name));
        if is_paused(&balancer, cluster.as_ref().map(|cluster| &cluster.0)) {
            // One that is paused alone must not be in the way of a Cluster that goes.
            if let Some(going) = cluster
                .as_deref()
                .filter(|cluster| cluster.is_going() && !is_paused(cluster, Some(&cluster.0)))
            {
                self.let_go(&balancer, Some(going)).await?;
            }
            self.tell_paused(&balancer).await?;
            return Ok(None);
        }
        if balancer.is_going() {
            return self.delete(&balancer, cluster.as_deref()).await;
        }
        let (Some(clusters), Some(cluster)) = (clusters, cluster) else {
            let name = balancer.spec.cluster_name.clone();
            self.tell_missing(&balancer, InfrastructureLook::NoCluster(name)).await?;
            return Ok(Some(PATIENCE));
        };
        let balancer = self.hold(balancer, &cluster).await?;
        let around = self.surroundings(&balancer, (clusters, cluster)).await?;
        let (main, others, infrastructure) = self.infrastructures(&balancer).await?;
        self.look_after(&balancer, &around, main, others, infrastructure).await
    }

    async fn look_after(
        &self,
        balancer: &Arc<LoadBalancer>,
        around: &Surroundings,
        main: Option<Made>,
        others: Vec<Made>,
        infrastructure: InfrastructureLook,
    ) -> Result<Option<Duration>, Failed> {
        let now = Timestamp::now();
        let asked = references(main.as_ref(), &others);
        let balancer = &self.note(balancer, &asked).await?;
        let target = balancer.spec.target_kind();
        let machines = match self.machines.shelf(&target.api_group, &target.kind).await {
            Ok(machines) => machines,
            Err(lack) => return self.tell_lack(balancer, lack).await,
        };
        let found = machines.of(balancer.namespace());
        let everything_goes = around.cluster.1.is_going();
        let refusals = asked::refusals(&balancer.spec);
        let mut again = Again::default();

        let all: Vec<&Made> = main.iter().chain(&others).collect();
        let candidates = self.candidates(balancer, &found, &all);
        if everything_goes && candidates.iter().all(|candidate| !candidate.is_selected) {
            self.go_with_the_cluster(balancer).await?;
        }
        let drain = Duration::from_secs(asked::drain_seconds(&balancer.spec).into());
        let situation =
            |made: Option<&Made>, drain: Duration| decide(made, &candidates, drain, everything_goes, now);
        // While what is named is not there, what served before does.
        let membership = situation(main.as_ref().or(others.first()), drain);
        again.at(membership.again, now);

        // Who is held is held before a provider hears of it, and let go after all who had it have.
        let hold = target.is_machine() && !(main.is_none() && others.is_empty()) && !everything_goes;
        let template = hold && around.is_control_plane && around.plane.is_some();
        let hooks = Hold { members: hold, template };
        let (leaving, staying): (Vec<_>, Vec<_>) =
            found.iter().partition(|machine| membership.released.contains(machine.name()));
        for machine in staying {
            self.mark(&machines, machine, balancer.name(), &membership, &BTreeSet::new(), hooks).await?;
        }
        let others_done =
            self.retire(balancer, main.as_ref(), &others, &membership, situation, now, &mut again).await?;
        let mut released: BTreeSet<&String> = membership
            .released
            .iter()
            .filter(|name| others_done.as_ref().is_none_or(|done| done.contains(*name)))
            .collect();
        // What is not ours, and is not to be changed, stands in the way of nothing else.
        let mut refused = Vec::new();
        if let Some(plane) = &around.plane
            && let Err(why) = self.mark_plane(plane, balancer, hold && around.is_control_plane).await
        {
            refused.push(not_changed(plane, &why));
        }
        let endpoint = if refusals.is_empty() {
            let endpoint = self.spread_endpoint(balancer, around, main.as_ref(), &mut refused).await?;
            // The endpoint came from above just now: the provider hears of the load balancer that has it.
            let Some(endpoint) = endpoint else { return Ok(None) };
            endpoint
        } else {
            EndpointLook::NotAsked
        };
        // What is paused is not asked for anything: the time of who is to leave starts when it can.
        if let Some(made) = main.as_ref().filter(|(_, made)| !is_paused_itself(made)) {
            let is_right = refusals.is_empty() && !matches!(endpoint, EndpointLook::Mismatch(_));
            let asking = self.ask_for(balancer, made, around.is_control_plane, &membership, is_right).await;
            if let Err(why) = asking {
                refused.push(not_changed(made, &why));
                released.retain(|name| everything_goes || has_heard(made, &membership, name));
            }
        }
        for machine in leaving {
            self.mark(&machines, machine, balancer.name(), &membership, &released, hooks).await?;
        }
        if !refused.is_empty() {
            again.within(Some(PATIENCE));
        }
        let endpoint = self.asked(balancer, endpoint, &mut again);
        if matches!(infrastructure, InfrastructureLook::Missing(_) | InfrastructureLook::UnknownKind(_)) {
            again.within(Some(PATIENCE));
        }
        let bound = others
            .iter()
            .find(|(_, old)| is_bound_to(balancer, old, main.as_ref()))
            .map(|(_, old)| old.name());
        let look = Look {
            generation: balancer.metadata.generation,
            refusals: &refusals,
            refused: &refused,
            paused: &paused(&all),
            membership: &membership,
            endpoint: &endpoint,
            infrastructure: &infrastructure,
            bound_to: bound,
        };
        let is_checked = others.is_empty() || !membership.active().is_empty();
        let mut status = seen(balancer, &membership, main.as_ref(), is_checked);
        status.infrastructure_refs = asked;
        conditions::conditions(&mut status, &look, &Time(now));
        if !refusals.is_empty() && status != balancer.status {
            let object = balancer.object_ref(self.balancers.resource());
            let message = refusals.join("; ");
            self.events.tell_of(&object, Weight::Warning, "InvalidSpec", &message).await;
        }
        self.warn_of_names(balancer, around).await;
        self.write_status(balancer, status).await?;
        Ok(again.0)
    }

    /// Notes what is asked to make it before that hears of it: once its reference is changed, nothing else tells what it was.
    async fn note(
        &self,
        balancer: &Arc<LoadBalancer>,
        asked: &[Reference],
    ) -> Result<Arc<LoadBalancer>, Failed> {
        if asked.iter().all(|reference| balancer.status.infrastructure_refs.contains(reference)) {
            return Ok(Arc::clone(balancer));
        }
        let patch = json!({"status": {"infrastructureRefs": asked}});
        let noted = self.balancers.patch_status(&self.client, balancer, patch).await?;
        Ok(noted.unwrap_or_else(|| Arc::clone(balancer)))
    }

    /// Asks what makes it. What is wrong changes nothing but who is there: Machines come and go all the same.
    async fn ask_for(
        &self,
        balancer: &LoadBalancer,
        made: &Made,
        is_control_plane: bool,
        membership: &Membership,
        is_right: bool,
    ) -> Result<(), Failed> {
        let members = membership.members.clone();
        if is_right {
            return self.assign(balancer, made, is_control_plane, members, None).await;
        }
        match made.1.spec.assignment.as_ref().filter(|before| before.members != members) {
            Some(before) => {
                let wanted = Assignment { members, ..before.clone() };
                self.write_assignment(&made.0, &made.1, &wanted).await
            }
            None => Ok(()),
        }
    }

    /// What it is in goes with the cluster, which it must not be in the way of.
    async fn go_with_the_cluster(&self, balancer: &LoadBalancer) -> Result<(), Failed> {
        let (namespace, name) = (balancer.namespace(), balancer.name());
        info!(namespace, name, "the cluster goes, and so does its load balancer");
        self.balancers.delete(&self.client, balancer).await
    }

    /// Whether an endpoint that is known answers, as far as it was asked.
    fn asked(&self, balancer: &LoadBalancer, endpoint: EndpointLook, again: &mut Again) -> EndpointLook {
        let (EndpointLook::NotAsked, Some(given)) = (&endpoint, balancer.spec.endpoint()) else {
            return endpoint;
        };
        let key = (balancer.namespace().to_owned(), balancer.name().to_owned());
        let (answer, next) = self.probes.ask(&key, given);
        again.within(next);
        match answer {
            None => EndpointLook::NotAsked,
            Some(Ok(())) => EndpointLook::Answers,
            Some(Err(why)) => EndpointLook::Silent(why),
        }
    }

    /// The Cluster, and the control plane that it is for, if it is.
    async fn surroundings(
        &self,
        balancer: &LoadBalancer,
        cluster: Shelved<ClusterSpec, ClusterStatus>,
    ) -> Result<Surroundings, Failed> {
        let plane = match cluster.1.spec.control_plane() {
            Some(reference) => self.plane(balancer.namespace(), reference).await?,
            None => None,
        };
        let is_control_plane = match self.settings.flavour {
            Flavour::Own => cluster.1.annotation(CONTROL_PLANE) == Some(balancer.name()),
            Flavour::Proposed => plane.as_ref().is_some_and(|(_, plane)| {
                plane
                    .spec
                    .load_balancer_ref
                    .as_ref()
                    .is_some_and(|reference| reference.name == balancer.name())
            }),
        };
        // One that was for it, and is not any more, has hooks of ours still.
        let has_hooks = |plane: &Plane| {
            let template = plane.1.spec.machine_template.as_ref();
            hooks(balancer.name()).is_on(template.map(|template| &template.metadata.annotations))
        };
        let plane = plane.filter(|plane| is_control_plane || has_hooks(plane));
        Ok(Surroundings { cluster, plane, is_control_plane })
    }

    pub(super) async fn plane(
        &self,
        namespace: &str,
        reference: &Reference,
    ) -> Result<Option<Plane>, Failed> {
        // The proposal's own example names the group of Clusters.
        for group in [reference.group(), "controlplane.cluster.x-k8s.io"] {
            let shelf = Lack::none(self.planes.shelf(group, &reference.kind).await)?;
            let found = shelf.and_then(|shelf| Some((shelf.get(namespace, &reference.name)?, shelf)));
            if let Some((plane, shelf)) = found {
                return Ok(Some((shelf, plane)));
            }
        }
        Ok(None)
    }

    /// What makes it, what made it before, and what there is to say of that.
    pub(super) async fn infrastructures(
        &self,
        balancer: &LoadBalancer,
    ) -> Result<(Option<Made>, Vec<Made>, InfrastructureLook), Failed> {
        let reference = balancer.spec.infrastructure_ref.as_ref();
        let mut main = None;
        let look = match reference {
            None => InfrastructureLook::Others,
            // What cannot be seen, and never was asked for anything, is as good as not there.
            Some(reference) => match self.infrastructures.shelf(reference.group(), &reference.kind).await {
                Err(lack) => InfrastructureLook::UnknownKind(lack.to_string()),
                Ok(shelf) => match shelf.get(balancer.namespace(), &reference.name) {
                    None => InfrastructureLook::Missing(format!("{} {}", reference.kind, reference.name)),
                    Some(made) if self.is_of_another(&made, balancer) => {
                        let other =
                            made.spec.assignment.as_ref().map(|assignment| assignment.load_balancer.clone());
                        let what = format!("{} {}", reference.kind, reference.name);
                        InfrastructureLook::InUse(what, other.unwrap_or_default())
                    }
                    Some(made) => {
                        let said = |type_| condition(&made.status.conditions, type_).cloned();
                        let about = Said { ready: said("Ready"), enforced: said("SourceRangesEnforced") };
                        let look = InfrastructureLook::There(Box::new(about));
                        main = Some((shelf, made));
                        look
                    }
                },
            },
        };
        // What nobody refers to any more is of a kind of ours, of one that somebody refers to, or was noted.
        for asked in &balancer.status.infrastructure_refs {
            let shelf = self.infrastructures.shelf(asked.group(), &asked.kind).await;
            if let Err(lack @ Lack::Unseen(_)) = shelf {
                return Err(self.tell_lack(balancer, lack).await.err().unwrap_or_default());
            }
        }
        let flavour = self.settings.flavour;
        for kind in [flavour.aws_nlb(), flavour.haproxy(), flavour.ovn()] {
            Lack::none(self.infrastructures.shelf(kind.group, kind.kind).await)?;
        }
        let mut others = Vec::new();
        for shelf in self.infrastructures.known().await? {
            for made in shelf.of(balancer.namespace()) {
                let is_ours = made
                    .spec
                    .assignment
                    .as_ref()
                    .is_some_and(|assignment| assignment.load_balancer == balancer.name());
                let found = (Arc::clone(&shelf), made);
                let is_main = reference.is_some_and(|reference| reference.is_same(&reference_to(&found)));
                if is_ours && !is_main {
                    others.push(found);
                }
            }
        }
        Ok((main, others, look))
    }

    /// Whether an object makes the load balancer of somebody else, who is there.
    fn is_of_another(&self, made: &Infrastructure, balancer: &LoadBalancer) -> bool {
        made.spec.assignment.as_ref().is_some_and(|assignment| {
            let other = &assignment.load_balancer;
            let is_there = || self.balancers.get(made.namespace(), other).is_some();
            !assignment.service.is_empty() || (other != balancer.name() && is_there())
        })
    }

    /// Has the endpoint be where it should be; `None` when the load balancer itself got it, and has to be looked at anew.
    async fn spread_endpoint(
        &self,
        balancer: &LoadBalancer,
        around: &Surroundings,
        main: Option<&Made>,
        refused: &mut Vec<String>,
    ) -> Result<Option<EndpointLook>, Failed> {
        let spec = &balancer.spec;
        let port = asked::endpoint_port(spec);
        let provided = main.and_then(|(_, made)| {
            let host = Some(made.status.address.clone()).filter(|address| !address.is_empty())?;
            Some(Endpoint { host, port })
        });
        let mut chain = Vec::new();
        if around.is_control_plane {
            chain.push(match (&around.plane, self.settings.flavour) {
                (Some((_, plane)), Flavour::Proposed) => {
                    (Place::ControlPlane, plane.spec.endpoint.given().cloned())
                }
                _ => (Place::Cluster, around.cluster.1.spec.endpoint().cloned()),
            });
        }
        chain.push((Place::LoadBalancer, spec.endpoint().cloned()));
        chain.push((Place::Provider, provided));
        let (endpoint, missing) = match flow(&chain, &spec.alternate_endpoints) {
            Flow::Unknown => return Ok(Some(EndpointLook::Unknown)),
            Flow::Mismatch(why) => return Ok(Some(EndpointLook::Mismatch(why))),
            Flow::Known { endpoint, missing } => (endpoint, missing),
        };
        // From above first: a provider never makes what clients would not find.
        if missing.contains(&Place::LoadBalancer) {
            info!(namespace = balancer.namespace(), name = balancer.name(), %endpoint, "the endpoint is known");
            let patch = json!({"spec": {"endpoint": endpoint}});
            self.balancers.patch(&self.client, balancer, patch).await?;
            return Ok(None);
        }
        for place in missing {
            match (place, &around.plane) {
                (Place::Cluster, _) => {
                    let (shelf, cluster) = &around.cluster;
                    // Both at once: Cluster API erases one that is not complete.
                    let patch = json!({"spec": {"controlPlaneEndpoint": endpoint}});
                    if let Err(why) = shelf.patch(&self.client, cluster, patch).await {
                        refused.push(not_changed(&around.cluster, &why));
                    }
                }
                (Place::ControlPlane, Some(plane)) => {
                    let patch = json!({"spec": {"endpoint": endpoint}});
                    if let Err(why) = plane.0.patch(&self.client, &plane.1, patch).await {
                        refused.push(not_changed(plane, &why));
                    }
                }
                _ => {}
            }
        }
        Ok(Some(EndpointLook::NotAsked))
    }

    /// Objects of a kind are not known. If they cannot be seen, it must not be done as if there were none.
    async fn tell_lack(&self, balancer: &LoadBalancer, lack: Lack) -> Result<Option<Duration>, Failed> {
        let why = lack.to_string();
        self.tell_missing(balancer, InfrastructureLook::UnknownKind(why.clone())).await?;
        match lack {
            Lack::NoKind(_) => Ok(Some(PATIENCE)),
            Lack::Unseen(_) => Err(why),
        }
    }

    /// Something is not there that it cannot do without.
    async fn tell_missing(
        &self,
        balancer: &LoadBalancer,
        infrastructure: InfrastructureLook,
    ) -> Result<(), Failed> {
        let membership = Membership { targets: balancer.status.targets.clone(), ..Membership::default() };
        let is_given = balancer.spec.endpoint().is_some();
        let endpoint = if is_given { EndpointLook::NotAsked } else { EndpointLook::Unknown };
        let look = Look {
            generation: balancer.metadata.generation,
            refusals: &asked::refusals(&balancer.spec),
            refused: &[],
            paused: &[],
            membership: &membership,
            endpoint: &self.asked(balancer, endpoint, &mut Again::default()),
            infrastructure: &infrastructure,
            bound_to: None,
        };
        let mut status = balancer.status.clone();
        conditions::conditions(&mut status, &look, &Time(Timestamp::now()));
        self.write_status(balancer, status).await
    }

    async fn tell_paused(&self, balancer: &LoadBalancer) -> Result<(), Failed> {
        let mut status = balancer.status.clone();
        conditions::paused(&mut status.conditions, balancer.metadata.generation, &Time(Timestamp::now()));
        self.write_status(balancer, status).await
    }

    /// Clients that use another name need it in the certificate of the API servers.
    async fn warn_of_names(&self, balancer: &LoadBalancer, around: &Surroundings) {
        let Some((_, plane)) = around.plane.as_ref() else { return };
        let Some(kubeadm) = &plane.spec.kubeadm_config_spec else { return };
        let names = &kubeadm.cluster_configuration.api_server.cert_sans;
        for alternate in &balancer.spec.alternate_endpoints {
            if names.contains(&alternate.host)
                || balancer.status.observed_generation == balancer.metadata.generation
            {
                continue;
            }
            let message = format!(
                "{} is an alternate endpoint, and not among the certSANs of {}: clients that use it will not trust its certificate",
                alternate.host,
                plane.name()
            );
            let object = balancer.object_ref(self.balancers.resource());
            self.events.tell_of(&object, Weight::Warning, "NameNotInCertificate", &message).await;
        }
    }
}

/// How a load balancer stands, without what is to be known about it. `is_checked` says whether clients may be sent to what makes it.
fn seen(
    balancer: &LoadBalancer,
    membership: &Membership,
    main: Option<&Made>,
    is_checked: bool,
) -> LoadBalancerStatus {
    let mut status = balancer.status.clone();
    status.observed_generation = balancer.metadata.generation;
    status.target_kind = balancer.spec.target_kind().to_string();
    status.target_selector = balancer.spec.selection(balancer.name()).text();
    status.targets.clone_from(&membership.targets);
    status.active_targets = membership.active();
    if let Some((_, made)) = main {
        // What is not known of it is no reason to take an address away, nor is one that nobody answers at yet.
        if !made.status.address.is_empty() && is_checked {
            status.address.clone_from(&made.status.address);
        }
        status.allowed_source_ranges.clone_from(&made.status.allowed_source_ranges);
    }
    status
}

/// Who is a member of what makes a load balancer, and who may go as far as that is concerned.
fn decide(
    made: Option<&Made>,
    candidates: &[Candidate],
    drain: Duration,
    everything_goes: bool,
    now: Timestamp,
) -> Membership {
    let (members, told, current) = made.map_or((&[][..], &[][..], false), |(_, made)| {
        let members = made.spec.assignment.as_ref().map_or(&[][..], |assignment| &assignment.members);
        let current = made.status.observed_generation == made.metadata.generation;
        (members, made.status.members.as_slice(), current)
    });
    Situation {
        candidates,
        before: members,
        told,
        is_told_of_this: current,
        is_paused: made.is_some_and(|(_, made)| is_paused_itself(made)),
        drain,
        everything_goes,
        now,
    }
    .decide()
}

/// What is asked to make a load balancer, in an order that does not change by itself.
fn references(main: Option<&Made>, others: &[Made]) -> Vec<Reference> {
    let mut all: Vec<Reference> = main.into_iter().chain(others).map(reference_to).collect();
    all.sort_by(|one, other| {
        (one.group(), &one.kind, &one.name).cmp(&(other.group(), &other.kind, &other.name))
    });
    all
}

fn reference_to((shelf, made): &Made) -> Reference {
    let resource = shelf.resource();
    Reference {
        api_group: Some(resource.group.clone()),
        api_version: None,
        kind: resource.kind.clone(),
        name: made.name().to_owned(),
    }
}

/// Whether there is nothing about a member that its provider has not been told.
fn has_heard((_, made): &Made, membership: &Membership, name: &str) -> bool {
    let duty = |members: &[AssignedMember]| {
        members.iter().find(|member| member.name == *name).map(|member| member.duty)
    };
    match made.spec.assignment.as_ref().and_then(|before| duty(&before.members)) {
        None | Some(DutyWord::Leave) => true,
        before => before == duty(&membership.members),
    }
}

/// What is told of an object that could not be written.
fn not_changed<S, T>((shelf, object): &Shelved<S, T>, why: &str) -> String
where
    S: Default + DeserializeOwned + Clone + std::fmt::Debug + Send + Sync + 'static,
    T: Default + DeserializeOwned + Clone + std::fmt::Debug + Send + Sync + 'static,
{
    format!("{} {} cannot be changed: {why}", shelf.resource().kind, object.name())
}

/// What is paused of what makes a load balancer.
fn paused(all: &[&Made]) -> Vec<String> {
    let paused = all.iter().filter(|(_, made)| is_paused_itself(made));
    paused.map(|(shelf, made)| format!("{} {}", shelf.resource().kind, made.name())).collect()
}

/// When it has to be looked at again.
#[derive(Debug, Default)]
pub(super) struct Again(Option<Duration>);

impl Again {
    pub(super) fn within(&mut self, time: Option<Duration>) {
        self.0 = match (self.0, time) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        };
    }

    pub(super) fn at(&mut self, at: Option<Timestamp>, now: Timestamp) {
        let Some(at) = at else { return };
        let millis = at.as_millisecond().saturating_sub(now.as_millisecond());
        // A moment later, so that it is over by then.
        self.within(Some(Duration::from_millis(u64::try_from(millis).unwrap_or_default() + 50)));
    }
}
