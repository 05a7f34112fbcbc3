//! A load balancer that goes: everything is taken back, and it goes when all of it is gone.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use portcullis_kube_api::cluster::{
    CLUSTER_FINALIZER, CONTROL_PLANE_LABEL, MEMBER, STATUS, TargetKind, hooks,
};
use serde_json::{Value, json};
use tracing::warn;

use super::asked;
use super::conditions;
use super::controller::Context;
use super::found::not_changed;
use super::kinds::Lack;
use super::membership::{GRACE, later};
use super::reconcile::{Failed, PATIENCE};
use super::shelf::key;
use super::thing::{Cluster, LoadBalancer, Machine};
use super::writing::is_own;

impl Context {
    /// Takes back everything, and lets it go when all of it is gone.
    pub(super) async fn delete(
        &self,
        balancer: &LoadBalancer,
        cluster: Option<&Cluster>,
    ) -> Result<Option<Duration>, Failed> {
        if !balancer.is_held_by(CLUSTER_FINALIZER) {
            return Ok(None);
        }
        // What is not to be changed stands in the way of nothing else: it keeps the finalizer, and nothing more.
        let mut refused = self.let_go(balancer, cluster).await;
        let (main, others, _) = self.infrastructures(balancer).await?;
        for old in &others {
            let given_up = self.unassign(&old.0, &old.1).await;
            refused.extend(given_up.err().map(|why| not_changed(old, &why)));
        }
        let mut waits = Vec::new();
        if let Some(own) = main.filter(|(_, made)| is_own(made, balancer)) {
            let (shelf, made) = &own;
            if !made.is_going()
                && let Err(why) = shelf.delete(&self.client, made).await
            {
                refused.push(not_changed(&own, &why));
            }
            waits.push(format!("{} {} is being deleted.", shelf.resource().kind, made.name()));
        }
        if !refused.is_empty() {
            waits.push(format!("{}. It is tried again.", refused.join("; ")));
        }
        if !waits.is_empty() {
            let mut status = balancer.status.clone();
            conditions::deleting(
                &mut status.conditions,
                &waits.join(" "),
                balancer.metadata.generation,
                &Time(Timestamp::now()),
            );
            self.write_status(balancer, status).await?;
            return Ok((!refused.is_empty()).then_some(PATIENCE));
        }
        let finalizers: Vec<String> = balancer
            .metadata
            .finalizers
            .iter()
            .flatten()
            .filter(|one| *one != CLUSTER_FINALIZER)
            .cloned()
            .collect();
        let patch = json!({"metadata": {
            "finalizers": finalizers,
            "resourceVersion": balancer.metadata.resource_version,
        }});
        self.balancers.patch(&self.client, balancer, patch).await?;
        Ok(None)
    }

    /// Holds nobody any more, and says of nobody that it is a member. Gives what could not be changed.
    pub(super) async fn let_go(&self, balancer: &LoadBalancer, cluster: Option<&Cluster>) -> Vec<String> {
        let mut refused = Vec::new();
        // Its kind is known by that, also after a start.
        let plane = match cluster.and_then(|cluster| cluster.spec.control_plane()) {
            Some(reference) => self.plane(balancer.namespace(), reference).await.err(),
            None => None,
        };
        // There may be hooks of ours on what cannot be seen.
        let mut puts_back = plane.is_some();
        refused.extend(plane);
        match self.planes_with_hooks(balancer).await {
            Ok(planes) => {
                for plane in &planes {
                    if let Err(why) = self.mark_plane(plane, balancer, false).await {
                        refused.push(not_changed(plane, &why));
                        puts_back = true;
                    }
                }
            }
            Err(why) => refused.push(why),
        }
        // Before its members were of another kind, they may have been Machines.
        for kind in BTreeSet::from([balancer.spec.target_kind(), TargetKind::default()]) {
            // What a control plane would put on again is taken off when the Machine goes.
            let may_go = |machine: &Machine| {
                !puts_back || machine.is_going() || machine.label(CONTROL_PLANE_LABEL).is_none()
            };
            refused.extend(self.unmark(balancer, &kind, may_go).await);
        }
        refused
    }

    /// What makes it does not hear of who is to leave: it cannot be read, or takes no wish. That is no reason to wait for ever: who is
    /// to go does so when the time of a member that leaves is over, both since its deletion and since nothing is heard.
    pub(super) async fn let_overdue_go(&self, balancer: &LoadBalancer) {
        let now = Timestamp::now();
        let since = self.unheard.since(key(balancer), now);
        let drain = Duration::from_secs(asked::drain_seconds(&balancer.spec).into());
        let is_over = |since: Timestamp| now >= later(later(since, drain), GRACE);
        if !is_over(since) {
            return;
        }
        let hooks = hooks(balancer.name());
        // Who is not held any more, and stays for somebody else, says on where it is: two that write it would never come to rest.
        let is_overdue = |machine: &Machine| {
            let deleted = machine.metadata.deletion_timestamp.as_ref();
            hooks.is_on(machine.metadata.annotations.as_ref())
                && deleted.is_some_and(|deleted| is_over(deleted.0))
        };
        for why in self.unmark(balancer, &balancer.spec.target_kind(), is_overdue).await {
            warn!(namespace = balancer.namespace(), name = balancer.name(), why, "a Machine is held still");
        }
    }

    /// Takes what is ours off all objects of a kind that have left. Gives those that could not be changed.
    pub(super) async fn unmark(
        &self,
        balancer: &LoadBalancer,
        kind: &TargetKind,
        has_left: impl Fn(&Machine) -> bool,
    ) -> Vec<String> {
        let (name, hooks) = (balancer.name(), hooks(balancer.name()));
        let mut refused = Vec::new();
        let shelf = match Lack::none(self.machines.shelf(&kind.api_group, &kind.kind).await) {
            Ok(Some(shelf)) => shelf,
            Ok(None) => return refused,
            Err(why) => return vec![why],
        };
        for machine in shelf.of(balancer.namespace()) {
            let says = machine.annotation(MEMBER) == Some(name);
            let is_marked = says || hooks.is_on(machine.metadata.annotations.as_ref());
            if !is_marked || !has_left(&machine) {
                continue;
            }
            let mut annotations: BTreeMap<&str, Value> = BTreeMap::new();
            let ours = if says { &[MEMBER, STATUS][..] } else { &[] };
            for key in [hooks.pre_drain.as_str(), hooks.pre_terminate.as_str()].iter().chain(ours) {
                annotations.insert(key, Value::Null);
            }
            let patch = json!({"metadata": {"annotations": annotations}});
            if let Err(why) = shelf.patch(&self.client, &machine, patch).await {
                refused.push(not_changed(&(Arc::clone(&shelf), machine), &why));
            }
        }
        refused
    }
}
