//! What is written, and what is kept of it.

use std::fmt::Debug;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::Resource;
use kube::api::{Api, Patch, PatchParams};
use kube::core::ApiResource;
use portcullis_kube_api::cluster::{CLUSTER_FINALIZER, CLUSTER_LABEL, LoadBalancerStatus};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::controller::Context;
use super::reconcile::Failed;
use super::shelf::Shelf;
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
        let patch = Patch::Merge(json!({"metadata": {
            "finalizers": finalizers,
            "ownerReferences": owners,
            "labels": {CLUSTER_LABEL: balancer.spec.cluster_name},
            "resourceVersion": balancer.metadata.resource_version,
        }}));
        self.patch(&self.balancers, balancer.namespace(), balancer.name(), &patch).await?;
        Ok(self.balancers.get(balancer.namespace(), balancer.name()).unwrap_or(balancer))
    }

    pub(super) async fn write_status(
        &self,
        balancer: &LoadBalancer,
        status: LoadBalancerStatus,
    ) -> Result<(), Failed> {
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
    pub(super) async fn patch<S, T>(
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

    pub(super) fn api<S, T>(&self, resource: &ApiResource, namespace: &str) -> Api<Thing<S, T>> {
        Api::namespaced_with(self.client.clone(), namespace, resource)
    }
}

/// What is gone need not be changed any more.
pub(super) fn gone_is_fine<T>(result: Result<T, kube::Error>) -> Result<(), Failed> {
    match result {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        Err(error) => Err(error.to_string()),
    }
}

pub(super) fn owner<S, T>(object: &Thing<S, T>, resource: &ApiResource) -> Option<OwnerReference> {
    Resource::owner_ref(object, resource)
}

pub(super) fn owned_by(made: &Infrastructure, balancer: &LoadBalancer) -> bool {
    let owners = made.metadata.owner_references.iter().flatten();
    owners.into_iter().any(|owner| Some(&owner.uid) == balancer.metadata.uid.as_ref())
}
