//! One load balancer, from what is known of it to what has to be written.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::Resource;
use kube::api::{Api, DeleteParams, Patch, PatchParams};
use portcullis_kube_api::cluster::{
    Assignment, CLUSTER_FINALIZER, CLUSTER_LABEL, CONTROL_PLANE, CONTROL_PLANE_LABEL, ClusterSpec,
    ClusterStatus, ControlPlaneSpec, DISABLED, DutyWord, Endpoint, Flavour, InfrastructureSpec,
    InfrastructureStatus, LoadBalancerStatus, MEMBER, MEMBER_TOO, NAME_LABEL, Reference, STATUS, condition,
    hooks, is_moving_away, is_paused,
};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use tracing::info;

use super::asked;
use super::conditions::{self, EndpointLook, InfrastructureLook, Look};
use super::controller::Context;
use super::endpoints::{Flow, Place, flow};
use super::membership::{Candidate, Membership, Situation};
use super::shelf::{Key, Shelf};
use super::thing::{Cluster, Infrastructure, LoadBalancer, Machine, Thing};
use crate::events::Weight;

/// Why it did not come to its end. It is tried again.
pub(super) type Failed = String;

type Shelved<S, T> = (Arc<Shelf<S, T>>, Arc<Thing<S, T>>);
type Made = Shelved<InfrastructureSpec, InfrastructureStatus>;
type Plane = Shelved<ControlPlaneSpec, ClusterStatus>;

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
    pub(super) async fn reconcile(&self, key: &Key) -> Result<Option<Duration>, Failed> {
        let Some(balancer) = self.balancers.get(&key.0, &key.1) else {
            self.probes.forget(key);
            return Ok(None);
        };
        if is_moving_away(&balancer) {
            return Ok(None);
        }
        let clusters = self.clusters.shelf("cluster.x-k8s.io", "Cluster").await;
        let cluster = match &clusters {
            Ok(shelf) => shelf.get(&key.0, &balancer.spec.cluster_name),
            Err(_) => None,
        };
        if is_paused(&balancer, cluster.as_ref().map(|cluster| &cluster.0)) {
            self.tell_paused(&balancer).await?;
            return Ok(None);
        }
        if balancer.is_going() {
            return self.delete(&balancer, cluster.as_deref()).await;
        }
        let (Ok(clusters), Some(cluster)) = (clusters, cluster) else {
            let name = balancer.spec.cluster_name.clone();
            self.tell_missing(&balancer, InfrastructureLook::NoCluster(name)).await?;
            return Ok(Some(PATIENCE));
        };
        let balancer = self.hold(balancer, &cluster).await?;
        let refusals = asked::refusals(&balancer.spec);
        if !refusals.is_empty() {
            return self.refuse(&balancer, &refusals).await;
        }
        let around = self.surroundings(&balancer, (clusters, cluster)).await?;
        let (main, others, infrastructure) = self.infrastructures(&balancer).await;
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
        let target = balancer.spec.target_kind();
        let machines = self.machines.shelf(&target.api_group, &target.kind).await;
        let everything_goes = around.cluster.1.is_going();
        let mut again = Again::default();

        let found = match &machines {
            Ok(shelf) => shelf.of(balancer.namespace()),
            Err(why) => {
                self.tell_missing(balancer, InfrastructureLook::UnknownKind(why.clone())).await?;
                return Ok(Some(PATIENCE));
            }
        };
        let all: Vec<&Made> = main.iter().chain(&others).collect();
        let candidates = self.candidates(balancer, &found, &all);
        if everything_goes && candidates.iter().all(|candidate| !candidate.is_selected) {
            // What it is in goes with the cluster, which it must not be in the way of.
            info!(
                namespace = balancer.namespace(),
                name = balancer.name(),
                "the cluster goes, and so does its load balancer"
            );
            let api = self.api(&self.balancers.resource().clone(), balancer.namespace());
            gone_is_fine(Api::<LoadBalancer>::delete(&api, balancer.name(), &DeleteParams::default()).await)?;
        }
        let drain = Duration::from_secs(asked::drain_seconds(&balancer.spec).into());
        let situation = |made: Option<&Made>, drain: Duration| {
            let (members, told, current) = made.map_or((&[][..], &[][..], false), |(_, made)| {
                let members = made.spec.assignment.as_ref().map_or(&[][..], |assignment| &assignment.members);
                let current = made.status.observed_generation == made.metadata.generation;
                (members, made.status.members.as_slice(), current)
            });
            Situation {
                candidates: &candidates,
                before: members,
                told,
                is_told_of_this: current,
                drain,
                everything_goes,
                now,
            }
            .decide()
        };
        let membership = situation(main.as_ref(), drain);
        again.at(membership.again, now);

        // Who is held is held before the provider hears of it, and let go after all who had it have.
        let others_done =
            self.retire(balancer, &main, &others, &membership, situation, now, &mut again).await?;
        let released: BTreeSet<&String> = membership
            .released
            .iter()
            .filter(|name| others_done.as_ref().is_none_or(|done| done.contains(*name)))
            .collect();
        let hold = target.is_machine() && main.is_some() && !everything_goes;
        for machine in &found {
            let shelf = machines.as_ref().map_err(Clone::clone)?;
            self.mark(shelf, machine, balancer.name(), &membership, &released, hold).await?;
        }
        if let Some(plane) = &around.plane {
            self.mark_plane(plane, balancer, hold).await?;
        }
        let endpoint = self.spread_endpoint(balancer, around, main.as_ref()).await?;
        let Some(endpoint) = endpoint else {
            // The endpoint came from above just now: the provider hears of the load balancer that has it.
            return Ok(None);
        };
        let is_mismatch = matches!(endpoint, EndpointLook::Mismatch(_));
        if let Some(made) = main.as_ref().filter(|_| !is_mismatch) {
            let members = membership.members.clone();
            self.assign(balancer, made, around.is_control_plane, members, None).await?;
        }
        let endpoint = match (&endpoint, balancer.spec.endpoint()) {
            (EndpointLook::NotAsked, Some(given)) => {
                let key = (balancer.namespace().to_owned(), balancer.name().to_owned());
                let (answer, next) = self.probes.ask(&key, given);
                again.within(next);
                match answer {
                    None => EndpointLook::NotAsked,
                    Some(Ok(())) => EndpointLook::Answers,
                    Some(Err(why)) => EndpointLook::Silent(why),
                }
            }
            _ => endpoint,
        };
        if matches!(infrastructure, InfrastructureLook::Missing(_) | InfrastructureLook::UnknownKind(_)) {
            again.within(Some(PATIENCE));
        }
        let bound = others
            .iter()
            .find(|(_, old)| is_bound_to(balancer, old, main.as_ref()))
            .map(|(_, old)| old.name());
        let look = Look {
            generation: balancer.metadata.generation,
            refusals: &[],
            membership: &membership,
            endpoint: &endpoint,
            infrastructure: &infrastructure,
            bound_to: bound,
        };
        let mut status = balancer.status.clone();
        status.observed_generation = balancer.metadata.generation;
        status.target_kind = target.to_string();
        status.target_selector = balancer.spec.selection(balancer.name()).text();
        status.targets.clone_from(&membership.targets);
        status.active_targets = membership.active();
        if let Some((_, made)) = &main {
            // What is not known of it is no reason to take an address away, nor is one that nobody answers at yet.
            let is_checked = others.is_empty() || !status.active_targets.is_empty();
            if !made.status.address.is_empty() && is_checked {
                status.address.clone_from(&made.status.address);
            }
            status.allowed_source_ranges.clone_from(&made.status.allowed_source_ranges);
        }
        conditions::conditions(&mut status, &look, &Time(now));
        self.warn_of_names(balancer, around).await;
        self.write_status(balancer, status).await?;
        Ok(again.0)
    }

    /// Everything else that still makes this load balancer: it did so before its reference was changed. It goes on until the new
    /// one serves, and a while longer; then its members leave it. Gives who has left all of them.
    #[allow(clippy::too_many_arguments, reason = "what a move is about")]
    async fn retire(
        &self,
        balancer: &LoadBalancer,
        main: &Option<Made>,
        others: &[Made],
        membership: &Membership,
        situation: impl Fn(Option<&Made>, Duration) -> Membership,
        now: Timestamp,
        again: &mut Again,
    ) -> Result<Option<BTreeSet<String>>, Failed> {
        let mut done: Option<BTreeSet<String>> = None;
        let drain = Duration::from_secs(asked::drain_seconds(&balancer.spec).into());
        for old in others {
            let (shelf, made) = old;
            let Some(assignment) = made.spec.assignment.as_ref() else { continue };
            let serves = main.is_some()
                && !membership.active().is_empty()
                && !is_bound_to(balancer, made, main.as_ref());
            let since = assignment.replaced_since.clone().map(|since| since.0).or(serves.then_some(now));
            let mut decided = situation(Some(old), drain);
            let mut released = decided.released.clone();
            if let Some(since) = since {
                let until = since.checked_add(drain).unwrap_or(Timestamp::MAX);
                if now < until {
                    again.at(Some(until), now);
                } else {
                    let by = until.checked_add(drain).unwrap_or(Timestamp::MAX);
                    let is_current = made.status.observed_generation == made.metadata.generation;
                    let has_left = |name: &str| {
                        is_current
                            && made
                                .status
                                .members
                                .iter()
                                .any(|told| told.name == name && told.status == "removed")
                    };
                    for member in &mut decided.members {
                        (member.duty, member.by) = (DutyWord::Leave, Some(Time(by)));
                    }
                    let all_left = decided.members.iter().all(|member| has_left(&member.name));
                    if all_left || now >= by.checked_add(super::membership::GRACE).unwrap_or(Timestamp::MAX) {
                        info!(
                            namespace = balancer.namespace(),
                            name = balancer.name(),
                            old = made.name(),
                            "what made it before has no members any more, and is given up"
                        );
                        self.unassign(shelf, made).await?;
                        continue;
                    }
                    released.extend(
                        decided
                            .members
                            .iter()
                            .map(|member| member.name.clone())
                            .filter(|name| has_left(name)),
                    );
                    again.at(Some(by), now);
                }
            }
            again.at(decided.again, now);
            let known: BTreeSet<&String> = decided.members.iter().map(|member| &member.name).collect();
            // Who it never had has left it.
            let absent = membership.released.iter().filter(|name| !known.contains(name)).cloned();
            let left: BTreeSet<String> = released.iter().cloned().chain(absent).collect();
            done = Some(match done {
                Some(done) => done.intersection(&left).cloned().collect(),
                None => left,
            });
            let wanted = Assignment {
                members: decided.members,
                replaced_since: since.map(Time),
                ..assignment.clone()
            };
            if *assignment != wanted {
                self.write_assignment(shelf, made, &wanted).await?;
            }
        }
        Ok(done)
    }

    /// What may be a member: who the selector means, and who is one still.
    fn candidates(&self, balancer: &LoadBalancer, found: &[Arc<Machine>], made: &[&Made]) -> Vec<Candidate> {
        let selection = balancer.spec.selection(balancer.name());
        let hooks = hooks(balancer.name());
        let rivals: Vec<Arc<LoadBalancer>> = self
            .balancers
            .of(balancer.namespace())
            .into_iter()
            .filter(|other| {
                other.name() != balancer.name()
                    && !other.is_going()
                    && other.spec.target_kind() == balancer.spec.target_kind()
            })
            .collect();
        let is_assigned = |name: &str| {
            made.iter().any(|(_, made)| {
                let members = made.spec.assignment.iter().flat_map(|assignment| &assignment.members);
                members.into_iter().any(|member| member.name == name)
            })
        };
        let mut candidates = Vec::new();
        for machine in found {
            let labels = machine.metadata.labels.as_ref();
            let is_selected = selection.matches(labels);
            let is_held = hooks.is_on(machine.metadata.annotations.as_ref());
            let says = machine.annotation(MEMBER).or_else(|| machine.annotation(MEMBER_TOO));
            if !is_selected && !is_held && !is_assigned(machine.name()) && says != Some(balancer.name()) {
                continue;
            }
            let rival = |other: &&Arc<LoadBalancer>| other.spec.selection(other.name()).matches(labels);
            let holder = rivals.iter().filter(rival).find(|other| says == Some(other.name()));
            let age = |balancer: &LoadBalancer| {
                (balancer.metadata.creation_timestamp.clone().map(|time| time.0), balancer.name().to_owned())
            };
            let older = || {
                rivals
                    .iter()
                    .filter(rival)
                    .filter(|other| age(other) < age(balancer))
                    .min_by_key(|other| age(other))
            };
            let taken_by = match says {
                Some(name) if name == balancer.name() => None,
                _ => holder.or_else(older).map(|other| other.name().to_owned()),
            };
            let deletion = machine.status.deletion.clone().unwrap_or_default();
            let since = machine.metadata.deletion_timestamp.clone().map(|deleted| {
                let waits = deletion.wait_for_pre_drain_hook_start_time;
                waits.map_or(deleted.0, |waits| waits.0.max(deleted.0))
            });
            candidates.push(Candidate {
                name: machine.name().to_owned(),
                addresses: machine.status.reachable(),
                provider_id: machine.spec.provider_id.clone(),
                is_selected,
                is_disabled: machine.annotation(DISABLED).is_some(),
                going_since: since,
                is_held,
                is_control_plane: machine.label(CONTROL_PLANE_LABEL).is_some(),
                taken_by,
            });
        }
        candidates
    }

    /// Writes on a Machine what it should say of itself, and what holds it.
    async fn mark(
        &self,
        shelf: &Shelf<portcullis_kube_api::cluster::MachineSpec, portcullis_kube_api::cluster::MachineStatus>,
        machine: &Machine,
        balancer: &str,
        membership: &Membership,
        released: &BTreeSet<&String>,
        hold: bool,
    ) -> Result<(), Failed> {
        let name = machine.name().to_owned();
        let target = membership.targets.iter().find(|target| target.name == name);
        let is_former = membership.former.contains(&name);
        if target.is_none() && !is_former && !released.contains(&name) {
            return Ok(());
        }
        let mut wanted: BTreeMap<String, Option<String>> = BTreeMap::new();
        if let Some(target) = target {
            wanted.insert(MEMBER.to_owned(), Some(balancer.to_owned()));
            wanted.insert(STATUS.to_owned(), Some(target.status.clone()));
        } else if machine.annotation(MEMBER) == Some(balancer) {
            wanted.insert(MEMBER.to_owned(), None);
            wanted.insert(STATUS.to_owned(), None);
        }
        let is_member = membership.members.iter().any(|member| member.name == name);
        for (hook, holder) in hooks(balancer).annotations() {
            if released.contains(&name) {
                wanted.insert(hook, None);
            } else if hold && is_member && !machine.is_going() && machine.annotation(&hook).is_none() {
                // On one that goes already nothing can be hung any more.
                wanted.insert(hook, Some(holder));
            }
        }
        wanted.retain(|key, value| machine.annotation(key) != value.as_deref());
        if wanted.is_empty() {
            return Ok(());
        }
        let patch = json!({"metadata": {"annotations": wanted}});
        self.patch(shelf, machine.namespace(), &name, &Patch::Merge(patch)).await
    }

    /// What Machines of a control plane are made from holds them from their first moment.
    async fn mark_plane(
        &self,
        (shelf, plane): &Plane,
        balancer: &LoadBalancer,
        hold: bool,
    ) -> Result<(), Failed> {
        let is_kubeadm = shelf.resource().kind == "KubeadmControlPlane";
        if plane.is_going() || (plane.spec.machine_template.is_none() && !is_kubeadm) {
            return Ok(());
        }
        let template = plane.spec.machine_template.clone().unwrap_or_default().metadata;
        let mut annotations: BTreeMap<String, Option<String>> = BTreeMap::new();
        for (hook, holder) in hooks(balancer.name()).annotations() {
            annotations.insert(hook, hold.then_some(holder));
        }
        annotations.retain(|key, value| template.annotations.get(key) != value.as_ref());
        let mut labels = Map::new();
        let has_selector = balancer.spec.selector.is_some();
        if hold
            && !has_selector
            && template.labels.get(NAME_LABEL).map(String::as_str) != Some(balancer.name())
        {
            labels.insert(NAME_LABEL.to_owned(), json!(balancer.name()));
        }
        if annotations.is_empty() && labels.is_empty() {
            return Ok(());
        }
        let metadata = json!({"annotations": annotations, "labels": labels});
        let patch = json!({"spec": {"machineTemplate": {"metadata": metadata}}});
        self.patch(shelf, plane.namespace(), plane.name(), &Patch::Merge(patch)).await
    }

    /// The Cluster, and the control plane that it is for, if it is.
    async fn surroundings(
        &self,
        balancer: &LoadBalancer,
        cluster: Shelved<ClusterSpec, ClusterStatus>,
    ) -> Result<Surroundings, Failed> {
        let plane = match cluster.1.spec.control_plane() {
            Some(reference) => self.plane(balancer.namespace(), reference).await,
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
        Ok(Surroundings { cluster, plane: plane.filter(|_| is_control_plane), is_control_plane })
    }

    async fn plane(&self, namespace: &str, reference: &Reference) -> Option<Plane> {
        // The proposal's own example names the group of Clusters.
        for group in [reference.group(), "controlplane.cluster.x-k8s.io"] {
            if let Ok(shelf) = self.planes.shelf(group, &reference.kind).await
                && let Some(plane) = shelf.get(namespace, &reference.name)
            {
                return Some((shelf, plane));
            }
        }
        None
    }

    /// What makes it, what made it before, and what there is to say of that.
    async fn infrastructures(
        &self,
        balancer: &LoadBalancer,
    ) -> (Option<Made>, Vec<Made>, InfrastructureLook) {
        let reference = balancer.spec.infrastructure_ref.as_ref();
        let mut main = None;
        let look = match reference {
            None => InfrastructureLook::Others,
            Some(reference) => match self.infrastructures.shelf(reference.group(), &reference.kind).await {
                Err(why) => InfrastructureLook::UnknownKind(why),
                Ok(shelf) => match shelf.get(balancer.namespace(), &reference.name) {
                    None => InfrastructureLook::Missing(format!("{} {}", reference.kind, reference.name)),
                    Some(made) => {
                        let said = |type_| condition(&made.status.conditions, type_).cloned();
                        let look = InfrastructureLook::There {
                            ready: said("Ready"),
                            enforced: said("SourceRangesEnforced"),
                        };
                        main = Some((shelf, made));
                        look
                    }
                },
            },
        };
        // What nobody refers to any more is of a kind of ours, or of one that somebody refers to.
        let flavour = self.settings.flavour;
        for kind in [flavour.aws_nlb(), flavour.haproxy(), flavour.ovn()] {
            let _ = self.infrastructures.shelf(kind.group, kind.kind).await;
        }
        let mut others = Vec::new();
        for shelf in self.infrastructures.known().await {
            for made in shelf.of(balancer.namespace()) {
                let is_ours = made
                    .spec
                    .assignment
                    .as_ref()
                    .is_some_and(|assignment| assignment.load_balancer == balancer.name());
                let is_main = reference.is_some_and(|reference| {
                    reference.name == made.name()
                        && reference.kind == shelf.resource().kind
                        && reference.group() == shelf.resource().group
                });
                if is_ours && !is_main {
                    others.push((Arc::clone(&shelf), made));
                }
            }
        }
        (main, others, look)
    }

    /// Has the endpoint be where it should be; `None` when the load balancer itself got it, and has to be looked at anew.
    async fn spread_endpoint(
        &self,
        balancer: &LoadBalancer,
        around: &Surroundings,
        main: Option<&Made>,
    ) -> Result<Option<EndpointLook>, Failed> {
        let spec = &balancer.spec;
        let port = asked::listeners(spec, spec.endpoint(), false).first().map_or(0, |listener| listener.port);
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
            let patch = Patch::Merge(json!({"spec": {"endpoint": endpoint}}));
            self.patch(&self.balancers, balancer.namespace(), balancer.name(), &patch).await?;
            return Ok(None);
        }
        for place in missing {
            match (place, &around.plane) {
                (Place::Cluster, _) => {
                    let (shelf, cluster) = &around.cluster;
                    // Both at once: Cluster API erases one that is not complete.
                    let patch = Patch::Merge(json!({"spec": {"controlPlaneEndpoint": endpoint}}));
                    self.patch(shelf, cluster.namespace(), cluster.name(), &patch).await?;
                }
                (Place::ControlPlane, Some((shelf, plane))) => {
                    let patch = Patch::Merge(json!({"spec": {"endpoint": endpoint}}));
                    self.patch(shelf, plane.namespace(), plane.name(), &patch).await?;
                }
                _ => {}
            }
        }
        Ok(Some(EndpointLook::NotAsked))
    }

    /// Asks a provider for what is wanted.
    async fn assign(
        &self,
        balancer: &LoadBalancer,
        (shelf, made): &Made,
        is_control_plane: bool,
        members: Vec<portcullis_kube_api::cluster::AssignedMember>,
        replaced_since: Option<Time>,
    ) -> Result<(), Failed> {
        if made.is_going() {
            return Ok(());
        }
        let generation = balancer.metadata.generation.unwrap_or_default();
        let mut wanted =
            asked::assignment(balancer.name(), generation, &balancer.spec, is_control_plane, members);
        wanted.replaced_since = replaced_since;
        if made.spec.assignment.as_ref() == Some(&wanted) && owned_by(made, balancer) {
            return Ok(());
        }
        if let Some(other) =
            made.spec.assignment.as_ref().filter(|there| there.load_balancer != balancer.name())
        {
            let named = (made.namespace(), other.load_balancer.as_str());
            if self.balancers.get(named.0, named.1).is_some() {
                return Err(format!(
                    "{} makes {} already: a load balancer needs one of its own",
                    made.name(),
                    other.load_balancer
                ));
            }
        }
        self.own(balancer, shelf, made).await?;
        self.write_assignment(shelf, made, &wanted).await
    }

    /// What makes a load balancer goes with it, and is moved with it.
    async fn own(
        &self,
        balancer: &LoadBalancer,
        shelf: &Shelf<InfrastructureSpec, InfrastructureStatus>,
        made: &Infrastructure,
    ) -> Result<(), Failed> {
        if owned_by(made, balancer) {
            return Ok(());
        }
        let mut owners = made.metadata.owner_references.clone().unwrap_or_default();
        owners.retain(|owner| owner.kind != self.balancers.resource().kind || owner.name != balancer.name());
        owners.extend(owner(balancer, self.balancers.resource()));
        let patch = json!({
            "metadata": {
                "ownerReferences": owners,
                "labels": {CLUSTER_LABEL: balancer.spec.cluster_name},
                "resourceVersion": made.metadata.resource_version,
            },
        });
        self.patch(shelf, made.namespace(), made.name(), &Patch::Merge(patch)).await
    }

    async fn write_assignment(
        &self,
        shelf: &Shelf<InfrastructureSpec, InfrastructureStatus>,
        made: &Infrastructure,
        wanted: &Assignment,
    ) -> Result<(), Failed> {
        let mut value = serde_json::to_value(wanted).map_err(|error| error.to_string())?;
        // What is not in it any more must not stay: a range less would be a range that still counts.
        for absent in ["endpoint", "allowedSourceRanges", "replacedSince"] {
            value.as_object_mut().map(|fields| fields.entry(absent).or_insert(Value::Null));
        }
        let patch = Patch::Merge(json!({"spec": {"assignment": value}}));
        self.patch(shelf, made.namespace(), made.name(), &patch).await
    }

    async fn unassign(
        &self,
        shelf: &Shelf<InfrastructureSpec, InfrastructureStatus>,
        made: &Infrastructure,
    ) -> Result<(), Failed> {
        let patch = Patch::Merge(json!({"spec": {"assignment": null}}));
        self.patch(shelf, made.namespace(), made.name(), &patch).await
    }

    /// Holds a load balancer until all that was made for it is gone, and has it go and move with its Cluster.
    async fn hold(
        &self,
        balancer: Arc<LoadBalancer>,
        cluster: &Cluster,
    ) -> Result<Arc<LoadBalancer>, Failed> {
        let clusters = self.clusters.shelf("cluster.x-k8s.io", "Cluster").await?;
        let owners = balancer.metadata.owner_references.clone().unwrap_or_default();
        let is_owned = owners.iter().any(|owner| Some(&owner.uid) == cluster.metadata.uid.as_ref());
        if balancer.is_held_by(CLUSTER_FINALIZER) && is_owned {
            return Ok(balancer);
        }
        let mut finalizers = balancer.metadata.finalizers.clone().unwrap_or_default();
        if !balancer.is_held_by(CLUSTER_FINALIZER) {
            finalizers.push(CLUSTER_FINALIZER.to_owned());
        }
        let mut owners: Vec<_> = owners
            .into_iter()
            .filter(|owner| owner.kind != "Cluster" || owner.name != cluster.name())
            .collect();
        owners.extend(owner(cluster, clusters.resource()));
        let patch = Patch::Merge(json!({"metadata": {
            "finalizers": finalizers,
            "ownerReferences": owners,
            "labels": {CLUSTER_LABEL: balancer.spec.cluster_name},
            "resourceVersion": balancer.metadata.resource_version,
        }}));
        self.patch(&self.balancers, balancer.namespace(), balancer.name(), &patch).await?;
        Ok(self.balancers.get(balancer.namespace(), balancer.name()).unwrap_or(balancer))
    }

    /// Takes back everything, and lets it go when all of it is gone.
    async fn delete(
        &self,
        balancer: &LoadBalancer,
        cluster: Option<&Cluster>,
    ) -> Result<Option<Duration>, Failed> {
        if !balancer.is_held_by(CLUSTER_FINALIZER) {
            return Ok(None);
        }
        let (namespace, name) = (balancer.namespace(), balancer.name());
        if let Some(reference) = cluster.and_then(|cluster| cluster.spec.control_plane())
            && let Some(plane) = self.plane(namespace, reference).await
            && hooks(name)
                .is_on(plane.1.spec.machine_template.as_ref().map(|template| &template.metadata.annotations))
        {
            self.mark_plane(&plane, balancer, false).await?;
        }
        let target = balancer.spec.target_kind();
        if let Ok(shelf) = self.machines.shelf(&target.api_group, &target.kind).await {
            let hooks = hooks(name);
            for machine in shelf.of(namespace) {
                let says = machine.annotation(MEMBER) == Some(name);
                if !says && !hooks.is_on(machine.metadata.annotations.as_ref()) {
                    continue;
                }
                let mut annotations: BTreeMap<&str, Value> = BTreeMap::new();
                let ours = if says { &[MEMBER, STATUS][..] } else { &[] };
                for key in [hooks.pre_drain.as_str(), hooks.pre_terminate.as_str()].iter().chain(ours) {
                    annotations.insert(key, Value::Null);
                }
                let patch = Patch::Merge(json!({"metadata": {"annotations": annotations}}));
                self.patch(&shelf, namespace, machine.name(), &patch).await?;
            }
        }
        let (main, others, look) = self.infrastructures(balancer).await;
        for (shelf, made) in &others {
            self.unassign(shelf, made).await?;
        }
        if let Some((shelf, made)) = main.filter(|(_, made)| owned_by(made, balancer)) {
            if !made.is_going() {
                let api: Api<Infrastructure> = self.api(&shelf.resource().clone(), namespace);
                gone_is_fine(api.delete(made.name(), &DeleteParams::default()).await)?;
            }
            let mut status = balancer.status.clone();
            let message = format!("{} {} is being deleted.", shelf.resource().kind, made.name());
            conditions::deleting(
                &mut status.conditions,
                &message,
                balancer.metadata.generation,
                &Time(Timestamp::now()),
            );
            self.write_status(balancer, status).await?;
            return Ok(None);
        }
        if let InfrastructureLook::UnknownKind(why) = &look
            && !why.starts_with("there is no kind")
        {
            return Err(why.clone());
        }
        let finalizers: Vec<String> = balancer
            .metadata
            .finalizers
            .iter()
            .flatten()
            .filter(|one| *one != CLUSTER_FINALIZER)
            .cloned()
            .collect();
        let patch = Patch::Merge(json!({"metadata": {
            "finalizers": finalizers,
            "resourceVersion": balancer.metadata.resource_version,
        }}));
        self.patch(&self.balancers, namespace, name, &patch).await?;
        Ok(None)
    }

    async fn refuse(&self, balancer: &LoadBalancer, refusals: &[String]) -> Result<Option<Duration>, Failed> {
        let now = Time(Timestamp::now());
        let membership = Membership { targets: balancer.status.targets.clone(), ..Membership::default() };
        let mut status = balancer.status.clone();
        let message = format!("{}. What was there before is still there.", refusals.join("; "));
        let generation = balancer.metadata.generation;
        portcullis_kube_api::cluster::set_condition(
            &mut status.conditions,
            "Degraded",
            "True",
            "InvalidSpec",
            &message,
            generation,
            &now,
        );
        status.targets = membership.targets;
        if status != balancer.status {
            let object = balancer.object_ref(self.balancers.resource());
            self.events.tell_of(&object, Weight::Warning, "InvalidSpec", &message).await;
        }
        self.write_status(balancer, status).await?;
        Ok(None)
    }

    /// Something is not there that it cannot do without.
    async fn tell_missing(
        &self,
        balancer: &LoadBalancer,
        infrastructure: InfrastructureLook,
    ) -> Result<(), Failed> {
        let membership = Membership { targets: balancer.status.targets.clone(), ..Membership::default() };
        let look = Look {
            generation: balancer.metadata.generation,
            refusals: &asked::refusals(&balancer.spec),
            membership: &membership,
            endpoint: &EndpointLook::Unknown,
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

    async fn write_status(&self, balancer: &LoadBalancer, status: LoadBalancerStatus) -> Result<(), Failed> {
        if status == balancer.status {
            return Ok(());
        }
        let mut value = serde_json::to_value(&status).map_err(|error| error.to_string())?;
        for absent in ["address", "allowedSourceRanges", "observedGeneration"] {
            value.as_object_mut().map(|fields| fields.entry(absent).or_insert(Value::Null));
        }
        let api: Api<LoadBalancer> = self.api(self.balancers.resource(), balancer.namespace());
        let patch = Patch::Merge(json!({"status": value}));
        let written = api.patch_status(balancer.name(), &PatchParams::default(), &patch).await;
        match written {
            Ok(written) => {
                self.balancers.keep(written);
                Ok(())
            }
            Err(error) => gone_is_fine(Err::<(), _>(error)),
        }
    }

    /// Patches an object, and keeps what it became.
    async fn patch<S, T>(
        &self,
        shelf: &Shelf<S, T>,
        namespace: &str,
        name: &str,
        patch: &Patch<Value>,
    ) -> Result<(), Failed>
    where
        S: Default + DeserializeOwned + Clone + Debug + Send + Sync + 'static,
        T: Default + DeserializeOwned + Clone + Debug + Send + Sync + 'static,
    {
        let api: Api<Thing<S, T>> = self.api(shelf.resource(), namespace);
        match api.patch(name, &PatchParams::default(), patch).await {
            Ok(written) => {
                shelf.keep(written);
                Ok(())
            }
            Err(error) => gone_is_fine(Err::<(), _>(error)),
        }
    }

    fn api<S, T>(&self, resource: &kube::core::ApiResource, namespace: &str) -> Api<Thing<S, T>> {
        Api::namespaced_with(self.client.clone(), namespace, resource)
    }
}

/// What is gone need not be changed any more.
fn gone_is_fine<T>(result: Result<T, kube::Error>) -> Result<(), Failed> {
    match result {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        Err(error) => Err(error.to_string()),
    }
}

fn owner<S, T>(
    object: &Thing<S, T>,
    resource: &kube::core::ApiResource,
) -> Option<k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference> {
    Resource::owner_ref(object, resource)
}

fn owned_by(made: &Infrastructure, balancer: &LoadBalancer) -> bool {
    let owners = made.metadata.owner_references.iter().flatten();
    owners.into_iter().any(|owner| Some(&owner.uid) == balancer.metadata.uid.as_ref())
}

/// Whether clients look for a load balancer at the address of what made it before, which nothing else can have.
fn is_bound_to(balancer: &LoadBalancer, old: &Infrastructure, main: Option<&Made>) -> bool {
    let host = balancer.spec.endpoint().map(|endpoint| endpoint.host.as_str());
    let address = Some(old.status.address.as_str()).filter(|address| !address.is_empty());
    address.is_some()
        && host == address
        && main.is_none_or(|(_, main)| Some(main.status.address.as_str()) != host)
}

/// When it has to be looked at again.
#[derive(Debug, Default)]
struct Again(Option<Duration>);

impl Again {
    fn within(&mut self, time: Option<Duration>) {
        self.0 = match (self.0, time) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        };
    }

    fn at(&mut self, at: Option<Timestamp>, now: Timestamp) {
        let Some(at) = at else { return };
        let millis = at.as_millisecond().saturating_sub(now.as_millisecond());
        // A moment later, so that it is over by then.
        self.within(Some(Duration::from_millis(u64::try_from(millis).unwrap_or_default() + 50)));
    }
}
