//! What a provider is asked for, in its own object.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use portcullis_kube_api::cluster::{
    AssignedMember, Assignment, CLUSTER_LABEL, InfrastructureSpec, InfrastructureStatus,
};
use serde_json::{Value, json};

use super::asked;
use super::controller::Context;
use super::found::Made;
use super::reconcile::Failed;
use super::shelf::Shelf;
use super::thing::{Infrastructure, LoadBalancer};
use super::writing::{owned_by, owner};

impl Context {
    /// Asks a provider for what is wanted.
    pub(super) async fn assign(
        &self,
        balancer: &LoadBalancer,
        (shelf, made): &Made,
        is_control_plane: bool,
        members: Vec<AssignedMember>,
        replaced_since: Option<Time>,
    ) -> Result<(), Failed> {
        let generation = balancer.metadata.generation.unwrap_or_default();
        let mut wanted =
            asked::assignment(balancer.name(), generation, &balancer.spec, is_control_plane, members);
        wanted.replaced_since = replaced_since;
        if made.spec.assignment.as_ref() == Some(&wanted) && owned_by(made, balancer) {
            return Ok(());
        }
        self.own(balancer, shelf, made).await?;
        self.write_assignment(shelf, made, &wanted).await
    }

    /// What makes a load balancer goes with it, and is moved with it.
    pub(super) async fn own(
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
        shelf.patch(&self.client, made, patch).await?;
        Ok(())
    }

    pub(super) async fn write_assignment(
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
        shelf.patch(&self.client, made, json!({"spec": {"assignment": value}})).await?;
        Ok(())
    }

    pub(super) async fn unassign(
        &self,
        shelf: &Shelf<InfrastructureSpec, InfrastructureStatus>,
        made: &Infrastructure,
    ) -> Result<(), Failed> {
        shelf.patch(&self.client, made, json!({"spec": {"assignment": null}})).await?;
        Ok(())
    }
}
