//! One load balancer, from what is known of it to what has to be written.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use portcullis_kube_api::cluster::{
    AssignedMember, Assignment, CLUSTER_FINALIZER, CLUSTER_LABEL, ClusterSpec, ClusterStatus, DutyWord,
    Endpoint, Flavour, MachineSpec, MachineStatus, Reference, TargetKind, is_moving_away, is_paused,
    is_paused_itself,
};
use serde_json::json;
use tracing::info;

use super::admitted::narrowed;
use super::asked;
use super::conditions::{EndpointLook, InfrastructureLook};
use super::controller::Context;
use super::endpoints::{Flow, Place, flow};
use super::found::{
    Made, Makers, Shelved, Surroundings, is_assigned, kind_not_changed, made_for, not_changed, references,
};
use super::kinds::Lack;
use super::marks::Hold;
use super::membership::{Candidate, Elsewhere, Membership, Situation};
use super::moving::Swap;
use super::shelf::{Key, Shelf, key};
use super::telling::{Standing, elsewhere, unread};
use super::thing::{LoadBalancer, Machine};

/// Why it did not come to its end. It is tried again.
pub(super) type Failed = String;

/// How often it is looked at again when nothing tells of a change: a kind that is not installed is not watched either.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);

impl Context {
    pub(super) async fn reconcile(&self, key: Key) -> Result<Option<Duration>, Failed> {
        let Some(balancer) = self.balancers.get(&key.0, &key.1) else {
            self.probes.forget(&key);
            self.unheard.forget(&key);
            return Ok(None);
        };
        if is_moving_away(&balancer) {
            self.unheard.forget(&key);
            return Ok(None);
        }
        let clusters = match Lack::none(self.clusters.shelf("cluster.x-k8s.io", "Cluster").await) {
            Ok(clusters) => clusters,
            Err(why) => return self.stopped(&balancer, why).await,
        };
        let cluster = |name: &str| clusters.as_ref().and_then(|shelf| shelf.get(&key.0, name));
        let named = cluster(&balancer.spec.cluster_name);
        if is_paused(&balancer, named.as_ref().map(|cluster| &cluster.0)) {
            self.unheard.forget(&key);
            // One that is paused alone must not be in the way of a Cluster that goes.
            let mut refused = Vec::new();
            if let Some(going) =
                named.as_deref().filter(|cluster| cluster.is_going() && !is_paused(cluster, Some(&cluster.0)))
            {
                refused = self.let_go(&balancer, Some(going)).await;
            }
            self.tell_paused(&balancer, &refused).await?;
            return Ok((!refused.is_empty()).then_some(PATIENCE));
        }
        let unread =
            clusters.as_ref().and_then(|clusters| clusters.unread(&key.0, &balancer.spec.cluster_name));
        if let Some(why) = unread.filter(|_| named.is_none() && !balancer.is_going()) {
            let what = format!("Cluster {}", balancer.spec.cluster_name);
            let unread = InfrastructureLook::Unread(what.clone(), why.clone());
            let told = self.tell_missing(&balancer, unread).await;
            return self.stopped(&balancer, told.err().unwrap_or_else(|| format!("{what}: {why}"))).await;
        }
        let makers = self.infrastructures(&balancer).await;
        // All that was made has the name of its Cluster on it, and would not be found by another. Machines of that come and go;
        // nothing else is changed.
        let before = match &makers {
            Ok(makers) => made_for(&balancer, makers),
            // The Cluster by which it was held at first.
            Err(_) => balancer.label(CLUSTER_LABEL).map(str::to_owned),
        };
        let before = before.filter(|before| *before != balancer.spec.cluster_name);
        let counts = before.as_deref().map_or(named.clone(), cluster);
        let wrong = before.clone().map(|before| InfrastructureLook::OtherCluster {
            named: balancer.spec.cluster_name.clone(),
            is_there: named.is_some(),
            before,
        });
        let mut balancer = match before {
            Some(before) => Arc::new(as_of(&balancer, before)),
            None => balancer,
        };
        let Some(found) = clusters.clone().zip(counts) else {
            return self.without_a_cluster(&balancer, makers, wrong).await;
        };
        if balancer.is_going() {
            return self.delete(&balancer, Some(&found.1)).await;
        }
        let mut refused = Vec::new();
        if wrong.is_none() {
            match self.hold(Arc::clone(&balancer), &found.1).await {
                Ok(held) => balancer = held,
                Err(why) => refused.push(self.itself_not_changed(&balancer, &why)),
            }
        } else if is_paused(&balancer, Some(&found.1.0)) {
            self.unheard.forget(&key);
            self.tell_paused(&balancer, &[]).await?;
            return Ok(Some(PATIENCE));
        }
        self.look_around(&balancer, found, makers, wrong, refused).await
    }

    /// The Cluster is not there: nothing is made.
    async fn without_a_cluster(
        &self,
        balancer: &LoadBalancer,
        makers: Result<Makers, Failed>,
        wrong: Option<InfrastructureLook>,
    ) -> Result<Option<Duration>, Failed> {
        if balancer.is_going() {
            return self.delete(balancer, None).await;
        }
        // What is wrong there was told; two who tell would not come to rest.
        if let Err(why) = makers {
            return self.stopped(balancer, why).await;
        }
        self.let_overdue_go(balancer).await;
        let mut name = balancer.spec.cluster_name.clone();
        if let Some(InfrastructureLook::OtherCluster { named, .. }) = wrong {
            name = format!("{name}, for which it was made ({named} needs a LoadBalancer of its own)");
        }
        self.tell_missing(balancer, InfrastructureLook::NoCluster(name)).await?;
        Ok(Some(PATIENCE))
    }

    /// It cannot be looked after for now, and nobody waits for that for ever.
    async fn stopped(&self, balancer: &LoadBalancer, why: Failed) -> Result<Option<Duration>, Failed> {
        // One that is paused is not asked for anything, and who cannot leave it is not let go.
        if !is_paused_itself(balancer) {
            self.let_overdue_go(balancer).await;
        }
        Err(why)
    }

    /// Looks at what belongs to it, and looks after it.
    async fn look_around(
        &self,
        balancer: &Arc<LoadBalancer>,
        cluster: Shelved<ClusterSpec, ClusterStatus>,
        makers: Result<Makers, Failed>,
        wrong: Option<InfrastructureLook>,
        refused: Vec<String>,
    ) -> Result<Option<Duration>, Failed> {
        // What is wrong with what makes it was told; two who tell would not come to rest.
        let found = match makers {
            Ok(makers) => self.surroundings(balancer, cluster.clone()).await.map(|around| (makers, around)),
            Err(why) => Err(why),
        };
        match found {
            Ok((makers, around)) => self.look_after(balancer, &around, makers, wrong, refused).await,
            Err(why) => {
                // A Cluster that goes waits for nothing that cannot be read, and nobody waits for it for ever.
                if cluster.1.is_going() {
                    self.let_go(balancer, Some(&cluster.1)).await;
                } else {
                    self.let_overdue_go(balancer).await;
                }
                Err(why)
            }
        }
    }

    async fn look_after(
        &self,
        balancer: &Arc<LoadBalancer>,
        around: &Surroundings,
        (main, others, infrastructure): Makers,
        wrong: Option<InfrastructureLook>,
        mut refused: Vec<String>,
    ) -> Result<Option<Duration>, Failed> {
        let now = Timestamp::now();
        let noted = self.note(balancer, &references(main.as_ref(), &others)).await;
        // What is not held until all of it is gone, or would not be found again, is not made.
        let is_kept = noted.is_ok() && balancer.is_held_by(CLUSTER_FINALIZER);
        refused.extend(noted.err().map(|why| self.itself_not_changed(balancer, &why)));
        let (balancer, machines, lack) = match self.machines_of(balancer).await {
            Ok(found) => found,
            Err(lack) => return self.tell_lack(balancer, lack).await,
        };
        let balancer = &balancer;
        // What is wrong about what it is for, or is not known of that, changes nothing but who is there.
        let undecided = || around.undecided.clone().map(InfrastructureLook::NoControlPlane);
        let wrong =
            wrong.or_else(|| Some(InfrastructureLook::UnknownKind(lack?.to_string()))).or_else(undecided);
        let is_placed = wrong.is_none();
        let infrastructure = wrong.unwrap_or(infrastructure);
        let found = machines.of(balancer.namespace());
        let everything_goes = around.cluster.1.is_going();
        let refusals = asked::refusals(&balancer.spec);
        let mut again = Again::default();

        let all: Vec<&Made> = main.iter().chain(&others).collect();
        let mut candidates = self.candidates(balancer, &found, &all);
        let mut unread = unread(&all);
        for (candidate, why) in unread_members(&machines, balancer.namespace(), &all) {
            candidates.push(candidate);
            unread.push(why);
        }
        // Machines go with their Cluster, and it serves those who take them down. Nobody tells whether others ever go.
        let waits = balancer.spec.target_kind().is_machine();
        if everything_goes && candidates.iter().all(|candidate| !waits || !candidate.is_selected) {
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
        let hold = holding(balancer, around, !all.is_empty());
        let (leaving, staying): (Vec<_>, Vec<_>) =
            found.iter().partition(|machine| membership.released.contains(machine.name()));
        // What is not to be seen or changed stands in the way of nothing else.
        refused.extend(around.unseen.clone());
        let mark = async |machine: &Arc<Machine>, released: &BTreeSet<&String>, refused: &mut Vec<String>| {
            let marked = self.mark(&machines, machine, balancer.name(), &shown, released, hold).await;
            let why = marked.err()?;
            refused.push(not_changed(&(Arc::clone(&machines), Arc::clone(machine)), &why));
            Some(machine.name().to_owned())
        };
        for machine in staying {
            let Some(name) = mark(machine, &BTreeSet::new(), &mut refused).await else { continue };
            // Who cannot be held could go at any moment: nobody is sent there who is not already.
            let is_held = candidates.iter().any(|one| one.name == name && one.is_held);
            if hold.members && !is_held && !all.iter().any(|made| is_assigned(made, &name)) {
                membership.members.retain(|member| member.name != name);
            }
        }
        let main = main.as_ref();
        let swap =
            Swap { balancer, main, others: &others, membership: &membership, serves, everything_goes, now };
        let before = refused.len();
        let others_done = self.retire(&swap, situation, &mut again, &mut refused).await;
        let others_hear = refused.len() == before;
        let mut released: BTreeSet<&String> = membership
            .released
            .iter()
            .filter(|name| others_done.as_ref().is_none_or(|done| done.contains(*name)))
            .collect();
        if let Some(plane) = &around.plane
            && let Err(why) = self.mark_plane(plane, balancer, hold.members && around.is_control_plane).await
        {
            refused.push(not_changed(plane, &why));
        }
        let is_right = refusals.is_empty() && is_placed && is_kept;
        let asked = self.ask(&swap, around, is_right, others_hear, &mut released, &mut refused).await;
        // The endpoint came from above just now: the provider hears of the load balancer that has it.
        let Some(endpoint) = asked else { return Ok(None) };
        for machine in leaving {
            mark(machine, &released, &mut refused).await;
        }
        // Nobody tells of the end of what cannot be read.
        if !refused.is_empty() || !unread.is_empty() || !is_placed || infrastructure.is_lacking() {
            again.within(Some(PATIENCE));
        }
        let endpoint = self.asked(balancer, endpoint);
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
        mut is_right: bool,
        others_hear: bool,
        released: &mut BTreeSet<&String>,
        refused: &mut Vec<String>,
    ) -> Option<EndpointLook> {
        let Swap { balancer, main, others, membership, everything_goes, .. } = *swap;
        let mut endpoint = EndpointLook::NotAsked;
        if is_right {
            match self.spread_endpoint(balancer, around, main, refused).await {
                Ok(spread) => endpoint = spread?,
                // It has none, and what makes it would make what clients would not find.
                Err(why) => {
                    refused.push(self.itself_not_changed(balancer, &why));
                    (endpoint, is_right) = (EndpointLook::Unknown, false);
                }
            }
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
                self.let_overdue_go(balancer).await;
                return Some(endpoint);
            }
        }
        if others_hear {
            self.unheard.forget(&key(balancer));
        } else {
            // What made it before takes no wish, and nobody waits for that for ever.
            self.let_overdue_go(balancer).await;
        }
        // Machines that were members while Machines were are none any more, and nobody else would take off what holds them. Who is
        // still sent to is held.
        if !balancer.spec.target_kind().is_machine() {
            let makers = || main.into_iter().chain(others);
            let is_paused = makers().any(|(_, made)| is_paused_itself(made));
            // One of the other kind may have its name.
            let is_another = |name: &str| membership.members.iter().any(|member| member.name == name);
            let is_left = |machine: &Machine| {
                let name = machine.name();
                !makers().any(|made| is_assigned(made, name)) || (!is_paused && is_another(name))
            };
            refused.extend(self.unmark(balancer, &TargetKind::default(), is_left).await);
        }
        Some(endpoint)
    }

    /// What is told when the load balancer itself could not be written.
    fn itself_not_changed(&self, balancer: &LoadBalancer, why: &str) -> String {
        kind_not_changed(&self.balancers.resource().kind, balancer.name(), why)
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
}

/// How Machines are held, if something makes the load balancer: a Cluster that goes waits for nobody.
fn holding<'a>(balancer: &'a LoadBalancer, around: &Surroundings, is_made: bool) -> Hold<'a> {
    let members = is_made && balancer.spec.target_kind().is_machine() && !around.cluster.1.is_going();
    let is_there = around.plane.is_some() || around.unseen.is_some();
    let is_made_so = members && around.is_control_plane && is_there;
    Hold { members, template: is_made_so.then_some(balancer.spec.cluster_name.as_str()) }
}

/// A load balancer as one of another Cluster.
fn as_of(balancer: &LoadBalancer, cluster: String) -> LoadBalancer {
    let mut balancer = balancer.clone();
    balancer.0.spec.cluster_name = cluster;
    balancer
}

/// Who is a member of what makes a load balancer, and who may go as far as that is concerned.
fn decide(
    made: Option<&Made>,
    elsewhere: &Elsewhere,
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

/// Members that cannot be read, and why: each stays what it was asked to be.
fn unread_members(
    machines: &Shelf<MachineSpec, MachineStatus>,
    namespace: &str,
    all: &[&Made],
) -> Vec<(Candidate, String)> {
    let unknown = machines.unknown(namespace).into_iter();
    let kind = &machines.resource().kind;
    unknown
        .filter_map(|(name, why)| Some((as_assigned(&name, all)?, format!("{kind} {name}: {why}"))))
        .collect()
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
