//! What is written, and what is kept of it.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::Resource;
use kube::core::ApiResource;
use portcullis_kube_api::cluster::{CLUSTER_FINALIZER, CLUSTER_LABEL, LoadBalancerStatus};
use serde::Serialize;
use serde_json::{Value, json};

use super::controller::Context;
use super::reconcile::Failed;
use super::thing::{Cluster, Infrastructure, LoadBalancer, Thing};

impl Context {
    /// Holds a load balancer until all that was made for it is gone, and has it go and move with its Cluster.
    pub(super) async fn hold(
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
        let patch = json!({"metadata": {
            "finalizers": finalizers,
            "ownerReferences": owners,
            "labels": {CLUSTER_LABEL: balancer.spec.cluster_name},
            "resourceVersion": balancer.metadata.resource_version,
        }});
        Ok(self.balancers.patch(&self.client, &balancer, patch).await?.unwrap_or(balancer))
    }

    pub(super) async fn write_status(
        &self,
        balancer: &LoadBalancer,
        status: LoadBalancerStatus,
    ) -> Result<(), Failed> {
        if status == balancer.status {
            return Ok(());
        }
        let patch = json!({"status": whole(&status)?});
        self.balancers.patch_status(&self.client, balancer, patch).await?;
        Ok(())
    }
}

/// All of a status for a merge patch: what is not known any more must not stay.
pub(super) fn whole(status: &impl Serialize) -> Result<Value, Failed> {
    let mut value = serde_json::to_value(status).map_err(|error| error.to_string())?;
    for absent in ["address", "allowedSourceRanges", "observedGeneration"] {
        value.as_object_mut().map(|fields| fields.entry(absent).or_insert(Value::Null));
    }
    Ok(value)
}

pub(super) fn owner<S, T>(object: &Thing<S, T>, resource: &ApiResource) -> Option<OwnerReference> {
    Resource::owner_ref(object, resource)
}

pub(super) fn owned_by(made: &Infrastructure, balancer: &LoadBalancer) -> bool {
    let owners = made.metadata.owner_references.iter().flatten();
    owners.into_iter().any(|owner| Some(&owner.uid) == balancer.metadata.uid.as_ref())
}

/// Whether a provider's object is a load balancer's own. After a restored backup it may say so by a UID that nobody has any more: what
/// it was asked for is by names, and so is this.
pub(super) fn is_own(made: &Infrastructure, balancer: &LoadBalancer) -> bool {
    let asked = made.spec.assignment.as_ref().filter(|asked| asked.service.is_empty());
    owned_by(made, balancer)
        || asked.is_some_and(|asked| {
            asked.load_balancer == balancer.name() && asked.cluster_name == balancer.spec.cluster_name
        })
}
