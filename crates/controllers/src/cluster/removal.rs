//! A load balancer that goes: everything is taken back, and it goes when all of it is gone.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use portcullis_kube_api::cluster::{CLUSTER_FINALIZER, MEMBER, STATUS, hooks};
use serde_json::{Value, json};

use super::conditions;
use super::controller::Context;
use super::kinds::Lack;
use super::reconcile::Failed;
use super::thing::{Cluster, LoadBalancer};
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
        self.let_go(balancer, cluster).await?;
        let (main, others, _) = self.infrastructures(balancer).await?;
        for (shelf, made) in &others {
            self.unassign(shelf, made).await?;
        }
        if let Some((shelf, made)) = main.filter(|(_, made)| is_own(made, balancer)) {
            if !made.is_going() {
                shelf.delete(&self.client, &made).await?;
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

    /// Holds nobody any more, and says of nobody that it is a member.
    pub(super) async fn let_go(
        &self,
        balancer: &LoadBalancer,
        cluster: Option<&Cluster>,
    ) -> Result<(), Failed> {
        let (namespace, name) = (balancer.namespace(), balancer.name());
        if let Some(reference) = cluster.and_then(|cluster| cluster.spec.control_plane())
            && let Some(plane) = self.plane(namespace, reference).await?
            && hooks(name)
                .is_on(plane.1.spec.machine_template.as_ref().map(|template| &template.metadata.annotations))
        {
            self.mark_plane(&plane, balancer, false).await?;
        }
        let target = balancer.spec.target_kind();
        if let Some(shelf) = Lack::none(self.machines.shelf(&target.api_group, &target.kind).await)? {
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
                let patch = json!({"metadata": {"annotations": annotations}});
                shelf.patch(&self.client, &machine, patch).await?;
            }
        }
        Ok(())
    }
}
