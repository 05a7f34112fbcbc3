//! Holds an `IngressController` until its objects are gone.

use std::sync::Arc;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Service;
use kube::ResourceExt;
use kube::api::{Api, Patch, PatchParams};
use portcullis_kube_api::ingress::IngressController;
use serde_json::json;
use tracing::{info, warn};

use super::carry_out::{Wanted, carry_out};
use super::controller::{Again, Context};
use super::reconcile::named;
use crate::events::Weight;
use crate::router::belongs_to;

/// What holds an `IngressController` until its objects are gone. It is the one of OpenShift's operator: who takes over from the
/// other finds what it knows, and lets go of it.
const FINALIZER: &str = "ingresscontroller.operator.openshift.io/finalizer-ingresscontroller";

impl Context {
    /// Holds it, so that it cannot go before its objects have.
    pub(super) async fn hold(
        &self,
        controller: &Arc<IngressController>,
    ) -> Result<Arc<IngressController>, Again> {
        if self.settings.observe || is_held(controller) {
            return Ok(Arc::clone(controller));
        }
        let mut finalizers = controller.finalizers().to_vec();
        finalizers.push(FINALIZER.to_owned());
        self.set_finalizers(controller, &finalizers).await?.ok_or(Again(None))
    }

    async fn set_finalizers(
        &self,
        controller: &IngressController,
        finalizers: &[String],
    ) -> Result<Option<Arc<IngressController>>, Again> {
        // Refused if somebody changed it meanwhile; then it comes again.
        let patch =
            json!({"metadata": {"resourceVersion": controller.resource_version(), "finalizers": finalizers}});
        match self.api().patch(controller.name(), &PatchParams::default(), &Patch::Merge(patch)).await {
            Ok(now) => Ok(Some(self.wrote(now))),
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
            Err(problem) => {
                info!(controller = controller.name(), %problem, "its finalizers cannot be written");
                Err(Again(None))
            }
        }
    }

    /// Takes its objects away, and lets go of it when they are gone.
    pub(super) async fn take_away(&self, controller: &IngressController) -> Result<(), Again> {
        if !is_held(controller) || self.settings.observe {
            return Ok(());
        }
        let namespace = &self.settings.router.namespace;
        let services: Api<Service> = Api::namespaced(self.client.clone(), namespace);
        let deployments: Api<Deployment> = Api::namespaced(self.client.clone(), namespace);
        let is_ours = |metadata: &_| belongs_to(metadata, controller.name());
        let mut left = false;
        for prefix in ["router", "router-internal", "router-nodeport"] {
            let name = named(prefix, controller);
            let done = carry_out(&services, &self.services, Wanted::gone(&name, &is_ours)).await;
            left |= done.object.is_some() || done.failure.is_some() || done.written;
        }
        // Its routers serve until nothing sends to them any more.
        if left {
            return Err(Again(None));
        }
        let name = named("router", controller);
        let done = carry_out(&deployments, &self.deployments, Wanted::gone(&name, &is_ours)).await;
        if done.object.is_some() || done.failure.is_some() {
            return Err(Again(None));
        }
        let failures = self.take_others_away(controller).await;
        if let Some(failure) = failures.first() {
            warn!(controller = controller.name(), why = failure.why, "it cannot be let go of");
            self.tell(controller, Weight::Warning, "SyncFailed", &failure.why).await;
            return Err(Again(None));
        }
        let mut finalizers = controller.finalizers().to_vec();
        finalizers.retain(|finalizer| finalizer != FINALIZER);
        self.set_finalizers(controller, &finalizers).await?;
        self.written().remove(controller.name());
        self.standing.forget(controller.name());
        self.pace.forget(controller.name());
        Ok(())
    }
}

fn is_held(controller: &IngressController) -> bool {
    controller.finalizers().iter().any(|finalizer| finalizer == FINALIZER)
}
