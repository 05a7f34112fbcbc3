//! One load balancer, from what is known of it to what has to be written.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::Resource;
use portcullis_kube_api::cluster::{
    AssignedMember, Assignment, CLUSTER_LABEL, CONTROL_PLANE, ClusterSpec, ClusterStatus, ControlPlaneSpec,
    DutyWord, Endpoint, Flavour, InfrastructureSpec, InfrastructureStatus, LoadBalancerStatus, MachineSpec,
    MachineStatus, MemberStatus, Reference, TargetKind, condition, hooks, is_moving_away, is_paused,
    is_paused_itself,
};
use serde::de::DeserializeOwned;
use serde_json::json;
use tracing::info;

use super::admitted::{is_within, narrowed};
use super::asked;
use super::conditions::{self, EndpointLook, InfrastructureLook, Look, Said};
use super::controller::Context;
use super::endpoints::{Flow, Place, flow};
use super::kinds::Lack;
use super::marks::Hold;
use super::membership::{Candidate, Membership, Situation, is_active};
use super::moving::{Swap, is_bound_to};
use super::shelf::{Key, Shelf};
use super::thing::{Infrastructure, LoadBalancer, Machine, Thing};
use crate::events::Weight;

/// Why it did not come to its end. It is tried again.
pub(super) type Failed = String;

pub(super) type Shelved<S, T> = (Arc<Shelf<S, T>>, Arc<Thing<S, T>>);
pub(super) type Made = Shelved<InfrastructureSpec, InfrastructureStatus>;
/// What makes a load balancer, what made it before, and what there is to say of that.
pub(super) type Makers = (Option<Made>, Vec<Made>, InfrastructureLook);
pub(super) type Plane = Shelved<ControlPlaneSpec, ClusterStatus>;

/// What belongs to a load balancer.
struct Surroundings {
    cluster: Shelved<ClusterSpec, ClusterStatus>,
    /// The control plane that it is for, if it is for one and that is an object.
    plane: Option<Plane>,
    is_control_plane: bool,
    /// Control planes of other Clusters, which it was for before.
    former: Vec<Plane>,
}

/// How a load balancer was found to stand.
#[derive(Clone, Copy)]
struct Standing<'a> {
    main: Option<&'a Made>,
    others: &'a [Made],
    /// Members, as clients find them.
    shown: &'a Membership,
    /// Whether clients may be sent to what is named.
    is_checked: bool,
    refusals: &'a [String],
    refused: &'a [String],
    unread: &'a [String],
    endpoint: &'a EndpointLook,
    infrastructure: &'a InfrastructureLook,
}

/// How often it is looked at again when nothing tells of a change: a kind that is not installed is not watched either.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);

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
            let mut refused = Vec::new();
            if let Some(going) = cluster
                .as_deref()
                .filter(|cluster| cluster.is_going() && !is_paused(cluster, Some(&cluster.0)))
            {
                refused = self.let_go(&balancer, Some(going)).await;
            }
            self.tell_paused(&balancer, &refused).await?;
            return Ok((!refused.is_empty()).then_some(PATIENCE));
        }
        let (Some(clusters), Some(cluster)) = (clusters.clone(), cluster) else {
            let name = &balancer.spec.cluster_name;
            let why = clusters.as_ref().and_then(|clusters| clusters.unread(&key.0, name));
            if let Some(why) = why.filter(|_| !balancer.is_going()) {
                let what = format!("Cluster {name}");
                self.tell_missing(&balancer, InfrastructureLook::Unread(what.clone(), why.clone())).await?;
                return Err(format!("{what}: {why}"));
            }
            return self.without_its_cluster(&balancer, clusters).await;
        };
        if balancer.is_going() {
            return self.delete(&balancer, Some(&cluster)).await;
        }
        let balancer = self.hold(balancer, &cluster).await?;
        let around = self.surroundings(&balancer, (clusters, cluster)).await?;
        let makers = match self.infrastructures(&balancer).await {
            // A Cluster that goes waits for nothing that cannot be read.
            Err(why) if around.cluster.1.is_going() => {
                self.let_go(&balancer, Some(&around.cluster.1)).await;
                return Err(why);
            }
            found => found?,
        };
        self.look_after(&balancer, &around, makers, None).await
    }

    /// The Cluster that it names is not there. If it serves already, for another one, Machines of that come and go; nothing else is
    /// changed for a name that is wrong.
    async fn without_its_cluster(
        &self,
        balancer: &Arc<LoadBalancer>,
        clusters: Option<Arc<Shelf<ClusterSpec, ClusterStatus>>>,
    ) -> Result<Option<Duration>, Failed> {
        let makers = self.infrastructures(balancer).await;
        let before = clusters.and_then(|clusters| {
            let (main, others, _) = makers.as_ref().ok()?;
            let asked = main.iter().chain(others).filter_map(|(_, made)| made.spec.assignment.as_ref());
            let mut of_it = asked.filter(|asked| asked.load_balancer == balancer.name());
            let cluster = of_it.find_map(|asked| clusters.get(balancer.namespace(), &asked.cluster_name))?;
            Some((clusters, cluster))
        });
        if balancer.is_going() {
            return self.delete(balancer, before.as_ref().map(|(_, cluster)| cluster.as_ref())).await;
        }
        // What is wrong there was told; two who tell would not come to rest.
        let makers = makers?;
        let name = balancer.spec.cluster_name.clone();
        let Some((clusters, cluster)) = before else {
            self.tell_missing(balancer, InfrastructureLook::NoCluster(name, None)).await?;
            return Ok(Some(PATIENCE));
        };
        if is_paused(balancer, Some(&cluster.0)) {
            self.tell_paused(balancer, &[]).await?;
            return Ok(Some(PATIENCE));
        }
        let mut as_before = LoadBalancer::clone(balancer);
        as_before.0.spec.cluster_name = cluster.name().to_owned();
        let wrong = InfrastructureLook::NoCluster(name, Some(cluster.name().to_owned()));
        let around = self.surroundings(&as_before, (clusters, cluster)).await?;
        self.look_after(&Arc::new(as_before), &around, makers, Some(wrong)).await
    }

    async fn look_after(
        &self,
        balancer: &Arc<LoadBalancer>,
        around: &Surroundings,
        (main, others, infrastructure): Makers,
        wrong: Option<InfrastructureLook>,
    ) -> Result<Option<Duration>, Failed> {
        let now = Timestamp::now();
        self.note(balancer, &references(main.as_ref(), &others)).await?;
        let (balancer, machines, lack) = match self.machines_of(balancer).await {
            Ok(found) => found,
            Err(lack) => return self.tell_lack(balancer, lack).await,
        };
        let balancer = &balancer;
        let target = balancer.spec.target_kind();
        // What is wrong about what it is for changes nothing but who is there.
        let wrong = wrong.or_else(|| Some(InfrastructureLook::UnknownKind(lack?.to_string())));
        let is_placed = wrong.is_none();
        let infrastructure = wrong.unwrap_or(infrastructure);
        let found = machines.of(balancer.namespace());
        let everything_goes = around.cluster.1.is_going();
        let refusals = asked::refusals(&balancer.spec);
        let mut again = Again::default();

        let all: Vec<&Made> = main.iter().chain(&others).collect();
        let mut candidates = self.candidates(balancer, &found, &all);
        let mut unread = unread(&all);
        for (name, why) in machines.unknown(balancer.namespace()) {
            if let Some(candidate) = as_assigned(&name, &all) {
                candidates.push(candidate);
                unread.push(format!("{} {name}: {why}", target.kind));
            }
        }
        if everything_goes && candidates.iter().all(|candidate| !candidate.is_selected) {
            self.go_with_the_cluster(balancer).await?;
        }
        let drain = Duration::from_secs(asked::drain_seconds(&balancer.spec).into());
        let situation = |made: Option<&Made>, drain: Duration| {
            decide(made, &elsewhere(&all, made), &candidates, drain, everything_goes, now)
        };
        // While what is named is not there, what served before does.
        let first = main.as_ref().or(others.first());
        let mut membership = situation(first, drain);
        again.at(membership.again, now);
        // Whether clients may be sent to what is named: it serves, or nothing else does.
        let serves =
            main.as_ref().is_some_and(|(_, made)| !made.is_going()) && !membership.active().is_empty();
        let is_checked = others.is_empty() || serves;
        // What is told is what clients find, by whichever of them.
        let shown = membership.with(&elsewhere(&all, first));

        // Who is held is held before a provider hears of it, and let go after all who had it have.
        let hold = target.is_machine() && !(main.is_none() && others.is_empty()) && !everything_goes;
        let is_made_so = hold && around.is_control_plane && around.plane.is_some();
        let template = is_made_so.then_some(balancer.spec.cluster_name.as_str());
        let hooks = Hold { members: hold, template };
        let (leaving, staying): (Vec<_>, Vec<_>) =
            found.iter().partition(|machine| membership.released.contains(machine.name()));
        // What is not ours, and is not to be changed, stands in the way of nothing else.
        let mut refused = Vec::new();
        let mark = async |machine: &Arc<Machine>, released: &BTreeSet<&String>, refused: &mut Vec<String>| {
            let marked = self.mark(&machines, machine, balancer.name(), &shown, released, hooks).await;
            let why = marked.err()?;
            refused.push(not_changed(&(Arc::clone(&machines), Arc::clone(machine)), &why));
            Some(machine.name().to_owned())
        };
        for machine in staying {
            let Some(name) = mark(machine, &BTreeSet::new(), &mut refused).await else { continue };
            // Who cannot be held could go at any moment: nobody is sent there who is not already.
            let is_held = candidates.iter().any(|one| one.name == name && one.is_held);
            if hold && !is_held && !all.iter().any(|made| is_assigned(made, &name)) {
                membership.members.retain(|member| member.name != name);
            }
        }
        let main = main.as_ref();
        let swap =
            Swap { balancer, main, others: &others, membership: &membership, serves, everything_goes, now };
        let others_done = self.retire(&swap, situation, &mut again, &mut refused).await;
        let mut released: BTreeSet<&String> = membership
            .released
            .iter()
            .filter(|name| others_done.as_ref().is_none_or(|done| done.contains(*name)))
            .collect();
        if let Some(plane) = &around.plane
            && let Err(why) = self.mark_plane(plane, balancer, hold && around.is_control_plane).await
        {
            refused.push(not_changed(plane, &why));
        }
        for plane in &around.former {
            let marked = self.mark_plane(plane, balancer, false).await;
            refused.extend(marked.err().map(|why| not_changed(plane, &why)));
        }
        let is_right = refusals.is_empty() && is_placed;
        let asked = self.ask(&swap, around, is_right, &mut released, &mut refused).await?;
        // The endpoint came from above just now: the provider hears of the load balancer that has it.
        let Some(endpoint) = asked else { return Ok(None) };
        for machine in leaving {
            mark(machine, &released, &mut refused).await;
        }
        if !refused.is_empty() {
            again.within(Some(PATIENCE));
        }
        let endpoint = self.asked(balancer, endpoint);
        if !is_placed
            || matches!(infrastructure, InfrastructureLook::Missing(_) | InfrastructureLook::UnknownKind(_))
        {
            again.within(Some(PATIENCE));
        }
        self.warn_of_names(balancer, around).await;
        let standing = Standing {
            main,
            others: &others,
            shown: &shown,
            is_checked,
            refusals: &refusals,
            refused: &refused,
            unread: &unread,
            endpoint: &endpoint,
            infrastructure: &infrastructure,
        };
        self.tell(balancer, &standing, now).await?;
        Ok(again.0)
    }

    /// Has the endpoint be where it should be, and asks what makes it; `None` when the load balancer itself got its endpoint, and has to
    /// be looked at anew. Who is to be let go, and is not heard of by what makes it, is not.
    async fn ask(
        &self,
        swap: &Swap<'_>,
        around: &Surroundings,
        is_right: bool,
        released: &mut BTreeSet<&String>,
        refused: &mut Vec<String>,
    ) -> Result<Option<EndpointLook>, Failed> {
        let Swap { balancer, main, others, membership, everything_goes, .. } = *swap;
        let mut endpoint = EndpointLook::NotAsked;
        if is_right {
            let spread = self.spread_endpoint(balancer, around, main, refused).await?;
            let Some(spread) = spread else { return Ok(None) };
            endpoint = spread;
        }
        // What is paused is not asked for anything: the time of who is to leave starts when it can.
        if let Some(made) = main.filter(|(_, made)| !is_paused_itself(made)) {
            let is_right = is_right && !matches!(endpoint, EndpointLook::Mismatch(_));
            let asking = self.ask_for(balancer, made, around.is_control_plane, membership, is_right).await;
            if let Err(why) = asking {
                refused.push(not_changed(made, &why));
                released.retain(|name| {
                    everything_goes || membership.overdue.contains(*name) || has_heard(made, membership, name)
                });
                return Ok(Some(endpoint));
            }
        }
        // Machines that were members while Machines were are none any more, and nobody else would take off what holds them. Who is
        // still sent to is held.
        if !balancer.spec.target_kind().is_machine() {
            let makers = || main.into_iter().chain(others);
            let is_paused = makers().any(|(_, made)| is_paused_itself(made));
            // One of the other kind may have its name.
            let is_another = |name: &str| membership.members.iter().any(|member| member.name == name);
            let is_left = |name: &str| {
                !makers().any(|made| is_assigned(made, name)) || (!is_paused && is_another(name))
            };
            refused.extend(self.unmark(balancer, &TargetKind::default(), is_left).await);
        }
        Ok(Some(endpoint))
    }

    /// Says in its status how it stands.
    async fn tell(
        &self,
        balancer: &LoadBalancer,
        standing: &Standing<'_>,
        now: Timestamp,
    ) -> Result<(), Failed> {
        let Standing { main, others, shown, is_checked, refusals, .. } = *standing;
        let all: Vec<&Made> = main.into_iter().chain(others).collect();
        let old = others.iter().find(|old| main.is_some() && !is_checked && is_serving(old));
        let served_by = old.map(words);
        let bound = others.iter().find(|(_, old)| is_bound_to(balancer, old, main));
        let look = Look {
            generation: balancer.metadata.generation,
            refusals,
            refused: standing.refused,
            paused: &named(&all, |(_, made)| is_paused_itself(made)),
            deleted: &named(&Vec::from_iter(main), |(_, made)| made.is_going()),
            unread: standing.unread,
            has_ranges: all
                .iter()
                .all(|(_, made)| has_ranges(made, balancer.spec.allowed_source_ranges.as_deref())),
            membership: shown,
            endpoint: standing.endpoint,
            infrastructure: standing.infrastructure,
            served_by: served_by.as_deref(),
            bound_to: bound.map(|(_, old)| old.name()),
        };
        let mut status = seen(balancer, shown, all.first().copied());
        status.address = place(&balancer.status.address, main, others, is_checked);
        status.infrastructure_refs = references(main, others);
        conditions::conditions(&mut status, &look, &Time(now));
        if !refusals.is_empty() && status != balancer.status {
            let object = balancer.object_ref(self.balancers.resource());
            let message = refusals.join("; ");
            self.events.tell_of(&object, Weight::Warning, "InvalidSpec", &message).await;
        }
        self.write_status(balancer, status).await
    }

    /// The objects that its members are of. While a wrong kind is named these are those of the kind that it was for, as which it is
    /// looked after: they come and go all the same.
    async fn machines_of(
        &self,
        balancer: &Arc<LoadBalancer>,
    ) -> Result<(Arc<LoadBalancer>, Arc<Shelf<MachineSpec, MachineStatus>>, Option<Lack>), Lack> {
        let target = balancer.spec.target_kind();
        let lack = match self.machines.shelf(&target.api_group, &target.kind).await {
            Ok(machines) => return Ok((Arc::clone(balancer), machines, None)),
            Err(lack) => lack,
        };
        let Some((kind, machines)) = self.kind_before(balancer).await else { return Err(lack) };
        let mut as_before = LoadBalancer::clone(balancer);
        as_before.0.spec.target_kind = Some(kind);
        Ok((Arc::new(as_before), machines, Some(lack)))
    }

    /// The kind that its members were of, if that was another one and is known.
    async fn kind_before(
        &self,
        balancer: &LoadBalancer,
    ) -> Option<(TargetKind, Arc<Shelf<MachineSpec, MachineStatus>>)> {
        let words = &balancer.status.target_kind;
        let (kind, group) = words.split_once('.').unwrap_or((words, ""));
        let kind = TargetKind { api_group: group.to_owned(), kind: kind.to_owned() };
        if kind.kind.is_empty() || kind == balancer.spec.target_kind() {
            return None;
        }
        let shelf = self.machines.shelf(&kind.api_group, &kind.kind).await.ok()?;
        Some((kind, shelf))
    }

    /// Notes what is asked to make it before that hears of it: once its reference is changed, nothing else tells what it was.
    async fn note(&self, balancer: &LoadBalancer, asked: &[Reference]) -> Result<(), Failed> {
        if asked.iter().any(|reference| !balancer.status.infrastructure_refs.contains(reference)) {
            let patch = json!({"status": {"infrastructureRefs": asked}});
            self.balancers.patch_status(&self.client, balancer, patch).await?;
        }
        Ok(())
    }

    /// Asks what makes it. What is wrong changes nothing but who is there, and who may connect no more: Machines come and go all
    /// the same.
    async fn ask_for(
        &self,
        balancer: &LoadBalancer,
        made: &Made,
        is_control_plane: bool,
        membership: &Membership,
        is_right: bool,
    ) -> Result<(), Failed> {
        let mut members = membership.members.clone();
        if is_right && !made.1.is_going() {
            return self.assign(balancer, made, is_control_plane, members, None).await;
        }
        let Some(before) = &made.1.spec.assignment else { return Ok(()) };
        // Who is to leave something that is being deleted leaves it as any other, as long as it is there. Nobody comes to it.
        members.retain(|member| !made.1.is_going() || is_assigned(made, &member.name));
        let asked = balancer.spec.allowed_source_ranges.as_deref();
        let allowed_source_ranges = narrowed(before.allowed_source_ranges.as_deref(), asked);
        let wanted = Assignment { members, allowed_source_ranges, ..before.clone() };
        if wanted == *before {
            return Ok(());
        }
        self.write_assignment(&made.0, &made.1, &wanted).await
    }

    /// What it is in goes with the cluster, which it must not be in the way of.
    async fn go_with_the_cluster(&self, balancer: &LoadBalancer) -> Result<(), Failed> {
        let (namespace, name) = (balancer.namespace(), balancer.name());
        info!(namespace, name, "the cluster goes, and so does its load balancer");
        self.balancers.delete(&self.client, balancer).await
    }

    /// Whether an endpoint that is known answers, as far as it was asked.
    fn asked(&self, balancer: &LoadBalancer, endpoint: EndpointLook) -> EndpointLook {
        let (EndpointLook::NotAsked, Some(given)) = (&endpoint, balancer.spec.endpoint()) else {
            return endpoint;
        };
        let key = (balancer.namespace().to_owned(), balancer.name().to_owned());
        match self.probes.answer(&key, given) {
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
        let plane = plane.filter(|plane| is_control_plane || has_hooks(plane, balancer));
        let mut former = self.planes_with_hooks(balancer).await?;
        former.retain(|(_, plane)| {
            let of = plane.label(CLUSTER_LABEL).filter(|of| **of != balancer.spec.cluster_name);
            let its_own = of.map(|of| cluster.0.get(balancer.namespace(), of));
            its_own.is_some_and(|its_own| !is_paused(plane, its_own.as_ref().map(|cluster| &cluster.0)))
        });
        Ok(Surroundings { cluster, plane, is_control_plane, former })
    }

    /// All control planes whose Machines would be held for a load balancer from their first moment.
    pub(super) async fn planes_with_hooks(&self, balancer: &LoadBalancer) -> Result<Vec<Plane>, Failed> {
        let shelves = self.planes.known().await?;
        let all = shelves.into_iter().flat_map(|shelf| {
            let found = shelf.of(balancer.namespace());
            found.into_iter().map(move |plane| (Arc::clone(&shelf), plane))
        });
        Ok(all.filter(|plane| has_hooks(plane, balancer)).collect())
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
    pub(super) async fn infrastructures(&self, balancer: &LoadBalancer) -> Result<Makers, Failed> {
        let reference = balancer.spec.infrastructure_ref.as_ref();
        let mut main = None;
        let mut look = match reference {
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
        for asked in reference.into_iter().chain(&balancer.status.infrastructure_refs) {
            match self.infrastructures.shelf(asked.group(), &asked.kind).await {
                // What is named, and never was asked for anything, is told as that.
                Err(Lack::Unseen(_)) if Some(asked) == reference && !is_noted(balancer, asked) => {}
                Err(lack @ Lack::Unseen(_)) => {
                    return Err(self.tell_lack(balancer, lack).await.err().unwrap_or_default());
                }
                Err(Lack::NoKind(_)) => {}
                // It may have members, and must not be taken for one that has none.
                Ok(shelf) => {
                    let unknown = shelf.unknown(balancer.namespace());
                    if let Some((_, why)) = unknown.into_iter().find(|(name, _)| *name == asked.name) {
                        let what = format!("{} {}", asked.kind, asked.name);
                        let look = InfrastructureLook::Unread(what.clone(), why.clone());
                        self.tell_missing(balancer, look).await?;
                        return Err(format!("{what}: {why}"));
                    }
                }
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
        if reference.is_none() && !others.is_empty() {
            let all: Vec<String> = others.iter().map(words).collect();
            look = InfrastructureLook::Kept(all.join(", "));
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
            // What the Cluster says counts before its control plane has heard of it.
            chain.push((Place::Cluster, around.cluster.1.spec.endpoint().cloned()));
            if let (Some((_, plane)), Flavour::Proposed) = (&around.plane, self.settings.flavour) {
                chain.push((Place::ControlPlane, plane.spec.endpoint.given().cloned()));
            }
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
                // In the shape of the proposal it has it from its control plane.
                (Place::Cluster, _) if self.settings.flavour == Flavour::Own => {
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
            deleted: &[],
            unread: &[],
            has_ranges: is_within(
                balancer.status.allowed_source_ranges.as_deref(),
                balancer.spec.allowed_source_ranges.as_deref(),
            ),
            membership: &membership,
            endpoint: &self.asked(balancer, endpoint),
            infrastructure: &infrastructure,
            served_by: None,
            bound_to: None,
        };
        let mut status = balancer.status.clone();
        conditions::conditions(&mut status, &look, &Time(Timestamp::now()));
        self.write_status(balancer, status).await
    }

    /// It is paused; these could not be let go although their Cluster goes.
    async fn tell_paused(&self, balancer: &LoadBalancer, refused: &[String]) -> Result<(), Failed> {
        let mut status = balancer.status.clone();
        conditions::paused(&mut status.conditions, balancer.metadata.generation, &Time(Timestamp::now()));
        let paused = status.conditions.iter_mut().find(|condition| condition.type_ == "Paused");
        if let Some(paused) = paused.filter(|_| !refused.is_empty()) {
            let words =
                format!(" Its Cluster goes, and does not wait: {}. It is tried again.", refused.join("; "));
            paused.message.push_str(&words);
        }
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

/// How a load balancer stands, without where it is found and what is to be known about it.
fn seen(balancer: &LoadBalancer, membership: &Membership, made: Option<&Made>) -> LoadBalancerStatus {
    let mut status = balancer.status.clone();
    status.observed_generation = balancer.metadata.generation;
    status.target_kind = balancer.spec.target_kind().to_string();
    status.target_selector = balancer.spec.selection(balancer.name()).text();
    status.targets.clone_from(&membership.targets);
    status.active_targets = membership.active();
    if let Some((_, made)) = made {
        status.allowed_source_ranges.clone_from(&made.status.allowed_source_ranges);
    }
    status
}

/// Where clients find a load balancer: at what is named, once that serves or nothing else is there; until then, and again if it serves
/// no more, at what does. What is not known of any is no reason to take an address away.
fn place(before: &str, main: Option<&Made>, others: &[Made], is_checked: bool) -> String {
    let address = |(_, made): &Made| Some(made.status.address.clone()).filter(|address| !address.is_empty());
    if let Some(main) = main.filter(|_| is_checked) {
        return address(main).unwrap_or_else(|| before.to_owned());
    }
    let serving: Vec<String> = others.iter().filter(|old| is_serving(old)).filter_map(address).collect();
    let stays = serving.is_empty() || serving.iter().any(|address| address == before);
    if stays { before.to_owned() } else { serving[0].clone() }
}

/// Who gets connections by what makes a load balancer.
fn active_in((_, made): &Made) -> impl Iterator<Item = &MemberStatus> {
    let members = made.spec.assignment.iter().flat_map(|assignment| &assignment.members);
    let serving: BTreeSet<&str> = members
        .filter(|member| member.duty == DutyWord::Serve && !made.is_going())
        .map(|member| member.name.as_str())
        .collect();
    let told = made.status.members.iter();
    told.filter(move |told| is_active(told) && serving.contains(told.name.as_str()))
}

fn is_serving(made: &Made) -> bool {
    active_in(made).next().is_some()
}

/// Who gets connections by what else makes a load balancer.
fn elsewhere(all: &[&Made], made: Option<&Made>) -> Vec<MemberStatus> {
    let others = all.iter().filter(|other| made.is_none_or(|made| !std::ptr::eq(**other, made)));
    others.flat_map(|other| active_in(other)).cloned().collect()
}

/// Who is a member of what makes a load balancer, and who may go as far as that is concerned.
fn decide(
    made: Option<&Made>,
    elsewhere: &[MemberStatus],
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
        elsewhere,
        deleted: made.and_then(|(_, made)| Some(made.metadata.deletion_timestamp.as_ref()?.0)),
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

/// Whether what Machines of a control plane are made from holds them for a load balancer.
fn has_hooks((_, plane): &Plane, balancer: &LoadBalancer) -> bool {
    let template = plane.spec.machine_template.as_ref();
    hooks(balancer.name()).is_on(template.map(|template| &template.metadata.annotations))
}

/// A member of which nothing is known but what its load balancer was asked for: it stays that.
fn as_assigned(name: &str, all: &[&Made]) -> Option<Candidate> {
    let asked = all.iter().filter_map(|(_, made)| made.spec.assignment.as_ref());
    let member = asked.flat_map(|asked| &asked.members).find(|member| member.name == name)?;
    Some(Candidate {
        name: name.to_owned(),
        addresses: member.addresses.clone(),
        provider_id: member.provider_id.clone(),
        is_selected: member.duty != DutyWord::Leave,
        is_disabled: member.duty == DutyWord::Rest,
        going_since: None,
        is_held: true,
        is_control_plane: false,
        taken_by: None,
    })
}

/// Whether a member is one for what makes a load balancer.
pub(super) fn is_assigned((_, made): &Made, name: &str) -> bool {
    let mut members = made.spec.assignment.iter().flat_map(|assignment| &assignment.members);
    members.any(|member| member.name == name)
}

/// Whether a provider speaks of these ranges, or of narrower ones: it was asked for them, and has no others.
fn has_ranges(made: &Infrastructure, asked: Option<&[String]>) -> bool {
    let wanted =
        made.spec.assignment.as_ref().and_then(|assignment| assignment.allowed_source_ranges.as_deref());
    let told = made.status.allowed_source_ranges.as_deref();
    // One of others may not tell what it has: then it has what it was asked for when it looked last.
    let is_current = made.status.observed_generation == made.metadata.generation;
    is_within(wanted, asked) && (is_within(told, asked) || (told.is_none() && is_current))
}

/// Whether there is nothing about a member that its provider has not been told.
pub(super) fn has_heard((_, made): &Made, membership: &Membership, name: &str) -> bool {
    let duty = |members: &[AssignedMember]| {
        members.iter().find(|member| member.name == *name).map(|member| member.duty)
    };
    match made.spec.assignment.as_ref().and_then(|before| duty(&before.members)) {
        None | Some(DutyWord::Leave) => true,
        before => before == duty(&membership.members),
    }
}

/// What is told of an object that could not be written.
pub(super) fn not_changed<S, T>((shelf, object): &Shelved<S, T>, why: &str) -> String
where
    S: Default + DeserializeOwned + Clone + std::fmt::Debug + Send + Sync + 'static,
    T: Default + DeserializeOwned + Clone + std::fmt::Debug + Send + Sync + 'static,
{
    format!("{} {} cannot be changed: {why}", shelf.resource().kind, object.name())
}

/// What makes a load balancer, in words.
fn words((shelf, made): &Made) -> String {
    format!("{} {}", shelf.resource().kind, made.name())
}

/// Those of what makes a load balancer that are so.
fn named(all: &[&Made], is: impl Fn(&Made) -> bool) -> Vec<String> {
    all.iter().filter(|made| is(made)).map(|made| words(made)).collect()
}

/// What cannot be read of what makes a load balancer.
fn unread(all: &[&Made]) -> Vec<String> {
    let why = |made: &&Made| {
        let why = made.0.unread(made.1.namespace(), made.1.name())?;
        Some(format!("{}: {why}", words(made)))
    };
    all.iter().filter_map(why).collect()
}

/// Whether something was asked to make a load balancer before.
fn is_noted(balancer: &LoadBalancer, reference: &Reference) -> bool {
    balancer.status.infrastructure_refs.iter().any(|noted| noted.is_same(reference))
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

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// Where clients are sent, with what is named and what made it before: each has an address, and says of one member where it is.
    #[test]
    fn clients_are_sent_to_who_serves() {
        let shelf = Arc::new(Shelf::new(crate::cluster::thing::resource(Flavour::Own.haproxy()), None));
        let made = |address: &str, status: &str, duty: &str, is_going: bool| -> Made {
            let mut metadata = json!({"name": address, "namespace": "a", "generation": 1});
            if is_going {
                metadata["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
            }
            let member = json!({"name": "m", "duty": duty});
            let made = json!({
                "metadata": metadata,
                "spec": {"assignment": {"loadBalancer": "lb", "members": [member]}},
                "status": {"address": address, "members": [{"name": "m", "status": status}]},
            });
            (Arc::clone(&shelf), Arc::new(serde_json::from_value(made).unwrap()))
        };
        let serves = |address| made(address, "active", "Serve", false);
        let waits = |address| made(address, "adding", "Serve", false);
        let leaves = |address| made(address, "active", "Leave", false);
        let goes = |address| made(address, "active", "Serve", true);
        for (what, main, others, is_checked, expected) in [
            ("it is alone, and known before anybody answers", Some(waits("new")), vec![], true, "new"),
            ("nothing is known of it", Some(waits("")), vec![], true, "before"),
            ("the old one serves", Some(waits("new")), vec![serves("old")], false, "old"),
            ("the new one serves", Some(serves("new")), vec![serves("old")], true, "new"),
            ("nobody does", Some(waits("new")), vec![waits("old")], false, "before"),
            ("the old one is left", Some(waits("new")), vec![leaves("old")], false, "before"),
            ("the old one goes", Some(waits("new")), vec![goes("old")], false, "before"),
            ("nothing is named", None, vec![waits("one"), serves("other")], false, "other"),
            ("who has clients keeps them", None, vec![serves("one"), serves("before")], false, "before"),
            ("there is nothing", None, vec![], true, "before"),
        ] {
            assert_eq!(place("before", main.as_ref(), &others, is_checked), expected, "{what}");
        }
    }

    #[test]
    fn a_provider_speaks_of_the_ranges_that_it_was_asked_for_and_has() {
        let (asked, narrower, wider) = (json!(["10.0.0.0/8"]), json!(["10.0.0.0/9"]), json!(["10.0.0.0/7"]));
        let nothing = json!(null);
        for (wanted, told, is_current, expected) in [
            (&asked, &asked, true, true),
            (&asked, &narrower, false, true),
            (&asked, &wider, true, false),
            // It was not asked yet, and has what it had.
            (&nothing, &nothing, true, false),
            (&wider, &wider, true, false),
            // It does not tell what it has, or everyone gets in: what it said before it looked is of something else.
            (&asked, &nothing, false, false),
            (&asked, &nothing, true, true),
        ] {
            let made: Infrastructure = serde_json::from_value(json!({
                "metadata": {"name": "lb", "namespace": "a", "generation": 2},
                "spec": {"assignment": {"allowedSourceRanges": wanted}},
                "status": {
                    "allowedSourceRanges": told,
                    "observedGeneration": if is_current { 2 } else { 1 },
                },
            }))
            .unwrap();
            let found = has_ranges(&made, Some(&["10.0.0.0/8".to_owned()]));
            assert_eq!(found, expected, "{wanted} {told} {is_current}");
        }
        // Whoever asks for nothing does not wait for anybody.
        let made: Infrastructure =
            serde_json::from_value(json!({"metadata": {"name": "lb", "generation": 2}})).unwrap();
        assert!(has_ranges(&made, None));
    }
}
