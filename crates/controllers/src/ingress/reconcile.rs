//! Has everything as one `IngressController` wants it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, DeleteParams, Preconditions};
use kube::{Resource, ResourceExt};
use portcullis_kube_api::ingress::{AUTO_DELETE, EndpointPublishingStrategy, IngressController};
use tracing::warn;

use super::carry_out::{Done, Failure, Wanted, carry_out};
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
        let (deployment, service, other) = if refusals.is_empty() {
            Box::pin(self.carry_out(&controller)).await
        } else {
            let name = named("router", &controller);
            let deployment = found(self.deployments.get(&name), &controller);
            (deployment, found(self.services.get(&name), &controller), Vec::new())
        };
        let why = |failure: &Failure| failure.why.clone();
        let failures: Vec<String> = service.failure.iter().map(why).collect();
        let router_failures: Vec<String> = deployment.failure.iter().chain(&other).map(why).collect();
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
            router_failures: &router_failures,
            replacements: &replacements,
            sync_failure: sync_failure.as_deref(),
            enforcer: &self.settings.enforcer,
            now: Timestamp::now(),
        };
        let conditions = conditions(&look);
        self.tell_status(&look, &conditions).await?;
        let failed: Vec<&Failure> = deployment.failure.iter().chain(&service.failure).chain(&other).collect();
        for failure in &failed {
            warn!(controller = controller.name(), why = failure.why, "it is not as wanted");
            self.tell(&controller, Weight::Warning, "SyncFailed", &failure.why).await;
        }
        if failed.iter().any(|failure| failure.no_namespace) {
            shared::ensure(&self.client, router, self.settings.observe).await;
        }
        if !failed.is_empty() {
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

    /// Has its objects as wanted: the Deployment, the load balancer Service, and the other Services, of which only is said
    /// what went wrong.
    async fn carry_out(
        &self,
        controller: &IngressController,
    ) -> (Done<Deployment>, Done<Service>, Vec<Failure>) {
        let router = &self.settings.router;
        let is_ours = |metadata: &_| belongs_to(metadata, controller.name());
        let deployments: Api<Deployment> = Api::namespaced(self.client.clone(), &router.namespace);
        let services: Api<Service> = Api::namespaced(self.client.clone(), &router.namespace);
        let observe = self.settings.observe;
        let generation = controller.metadata.generation;
        let name = named("router", controller);
        let deployment = Wanted {
            name: &name,
            object: router::deployment(controller, router),
            is_ours: &is_ours,
            changed: router::changed_deployment,
            may_change: true,
            observe,
        };
        let balanced = Wanted {
            name: &name,
            object: router::load_balancer_service(controller, router),
            is_ours: &is_ours,
            changed: router::changed_load_balancer,
            may_change: self.pace.allows(&name, generation, Instant::now()),
            observe,
        };
        let (internal_name, port_name) =
            (named("router-internal", controller), named("router-nodeport", controller));
        let other = |name, object| Wanted {
            name,
            object,
            is_ours: &is_ours,
            changed: router::changed,
            may_change: true,
            observe,
        };
        let internal = other(&internal_name, router::internal_service(controller, router));
        let on_ports = other(&port_name, router::node_port_service(controller, router));
        let (deployment, balanced, internal, on_ports) = tokio::join!(
            carry_out(&deployments, &self.deployments, deployment),
            carry_out(&services, &self.services, balanced),
            carry_out(&services, &self.services, internal),
            carry_out(&services, &self.services, on_ports),
        );
        if balanced.corrected {
            self.pace.corrected(&name, generation, Instant::now());
        }
        let failures = internal.failure.into_iter().chain(on_ports.failure).collect();
        (deployment, balanced, failures)
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
    Done { object, failure: None, written: false, corrected: false }
}
