//! Has everything as one `IngressController` wants it.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, DeleteParams, Preconditions};
use kube::{Resource, ResourceExt};
use portcullis_kube_api::ingress::{AUTO_DELETE, EndpointPublishingStrategy, IngressController};
use tracing::{info, warn};

use super::carry_out::{Done, Wanted, carry_out};
use super::controller::{Again, Context, LOOK_AGAIN};
use super::{Look, admission, conditions, shared};
use crate::events::Weight;
use crate::router::{self, Replacement, belongs_to, replacement, strategy};

impl Context {
    /// Has everything as one `IngressController` wants it, and says how it stands; and when it has to be looked at again.
    pub(super) async fn reconcile(
        &self,
        controller: &Arc<IngressController>,
    ) -> Result<Option<Duration>, Again> {
        if controller.metadata.deletion_timestamp.is_some() {
            return self.take_away(controller).await.map(|()| None);
        }
        let controller = self.hold(controller).await?;
        let router = &self.settings.router;
        let all = self.controllers.state();
        let refusals = admission(&controller, all.iter().map(AsRef::as_ref), router);
        let strategy = self.strategy(&controller, &refusals);
        let (deployment, service) = if refusals.is_empty() {
            Box::pin(self.carry_out(&controller)).await
        } else {
            let name = named("router", &controller);
            (found(self.deployments.get(&name), &controller), found(self.services.get(&name), &controller))
        };
        let failures: Vec<String> = service.failure.iter().map(|failure| failure.why.clone()).collect();
        let replacements = if refusals.is_empty() {
            self.replace(&controller, service.object.as_deref()).await
        } else {
            Vec::new()
        };
        let sync_failure = service.object.as_deref().and_then(|service| self.sync_failure(service));
        let look = Look {
            controller: &controller,
            strategy: &strategy,
            domain: router::domain(&controller, router),
            refusals: &refusals,
            deployment: deployment.object.as_deref(),
            service: service.object.as_deref(),
            failures: &failures,
            replacements: &replacements,
            sync_failure: sync_failure.as_deref(),
            enforcer: &self.settings.enforcer,
            now: Timestamp::now(),
        };
        let conditions = conditions(&look);
        self.tell_status(&look, &conditions).await?;
        for failure in deployment.failure.iter().chain(&service.failure) {
            warn!(controller = controller.name(), why = failure.why, "it is not as wanted");
            self.tell(&controller, Weight::Warning, "SyncFailed", &failure.why).await;
            if failure.no_namespace {
                shared::ensure(&self.client, router, self.settings.observe).await;
            }
        }
        if deployment.failure.is_some() || service.failure.is_some() {
            return Err(Again);
        }
        // Another one may give its domain up.
        let refused = (!refusals.is_empty()).then_some(LOOK_AGAIN);
        Ok([conditions.again, refused].into_iter().flatten().min())
    }

    /// How it is reached. What is refused does not count: what was admitted does.
    fn strategy(&self, controller: &IngressController, refusals: &[String]) -> EndpointPublishingStrategy {
        let admitted = controller.status.endpoint_publishing_strategy.clone();
        let wanted = || strategy(controller, &self.settings.router);
        if refusals.is_empty() { wanted() } else { admitted.unwrap_or_else(wanted) }
    }

    /// Has its objects as wanted: the Deployment, and the load balancer Service. What else is wrong is told with the latter.
    async fn carry_out(&self, controller: &IngressController) -> (Done<Deployment>, Done<Service>) {
        let router = &self.settings.router;
        let is_ours = |metadata: &_| belongs_to(metadata, controller.name());
        let (deployments, services): (Api<Deployment>, Api<Service>) = (
            Api::namespaced(self.client.clone(), &router.namespace),
            Api::namespaced(self.client.clone(), &router.namespace),
        );
        let observe = self.settings.observe;
        let wanted = |name: &'static str, object, changed| (named(name, controller), object, changed);
        let deployment_name = named("router", controller);
        let deployment = carry_out(
            &deployments,
            &self.deployments,
            Wanted {
                name: &deployment_name,
                object: router::deployment(controller, router),
                is_ours: &is_ours,
                changed: router::changed_deployment,
                observe,
            },
        );
        let each = [
            wanted(
                "router",
                router::load_balancer_service(controller, router),
                router::changed_load_balancer as fn(&Service, &Service) -> _,
            ),
            wanted("router-internal", router::internal_service(controller, router), router::changed),
            wanted("router-nodeport", router::node_port_service(controller, router), router::changed),
        ];
        let each = each.map(|(name, object, changed)| {
            let (services, cache, is_ours) = (&services, &self.services, &is_ours);
            async move {
                carry_out(services, cache, Wanted { name: &name, object, is_ours, changed, observe }).await
            }
        });
        let [balanced, internal, on_ports] = each;
        let (deployment, mut balanced, internal, on_ports) =
            tokio::join!(deployment, balanced, internal, on_ports);
        balanced.failure = balanced.failure.or(internal.failure).or(on_ports.failure);
        if balanced.written {
            info!(controller = controller.name(), "its load balancer Service was written");
        }
        (deployment, balanced)
    }

    /// What needs another load balancer; if the administrator said so beforehand, it gets one.
    async fn replace(&self, controller: &IngressController, current: Option<&Service>) -> Vec<Replacement> {
        let router = &self.settings.router;
        let (Some(current), Some(desired)) = (current, router::load_balancer_service(controller, router))
        else {
            return Vec::new();
        };
        let found = replacement(controller, current, &desired, router);
        let goes = current.metadata.deletion_timestamp.is_some();
        if found.is_empty() || goes || self.settings.observe || !controller.has_annotation(AUTO_DELETE) {
            return found;
        }
        let what: Vec<&str> = found.iter().map(|one| one.what.as_str()).collect();
        let message = format!("Its load balancer is replaced by one with another {}.", what.join(" and "));
        self.tell(controller, Weight::Normal, "ReplacingLoadBalancer", &message).await;
        let api: Api<Service> = Api::namespaced(self.client.clone(), &router.namespace);
        let uid = Preconditions { uid: current.uid(), ..Preconditions::default() };
        if let Err(problem) =
            api.delete(&current.name_any(), &DeleteParams::default().preconditions(uid)).await
        {
            warn!(controller = controller.name(), %problem, "its load balancer Service cannot be deleted");
        }
        found
    }

    /// Why a Service has no load balancer, as whoever makes it told last.
    fn sync_failure(&self, service: &Service) -> Option<String> {
        let status = service.status.as_ref().and_then(|status| status.load_balancer.as_ref());
        if status.and_then(|status| status.ingress.as_ref()).is_some_and(|ingress| !ingress.is_empty()) {
            return None;
        }
        let events = self.failures_of_providers.all().into_iter();
        let events = events.filter(|event| event.involved_object.uid == service.metadata.uid);
        let newest = events.max_by_key(|event| event.last_timestamp.as_ref().map(|time| time.0));
        newest.and_then(|event| event.message.clone())
    }
}

pub(super) fn named(prefix: &str, controller: &IngressController) -> String {
    format!("{prefix}-{}", controller.name())
}

/// An object as it is, if it belongs to the `IngressController`.
fn found<K: Resource>(object: Option<Arc<K>>, controller: &IngressController) -> Done<K> {
    let object = object.filter(|object| belongs_to(object.meta(), controller.name()));
    Done { object, failure: None, written: false }
}
