//! Has everything as one `IngressController` wants it.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, DeleteParams, Preconditions};
use kube::{Resource, ResourceExt};
use portcullis_kube_api::ingress::{EndpointPublishingStrategy, IngressController, ignored, unchangeable};
use tracing::warn;

use super::carry_out::{Done, Failure, Wanted, carry_out};
use super::controller::{Again, Context, LOOK_AGAIN};
use super::pace::Paced;
use super::{Look, Stand, admission, conditions, others, shared, unsaid};
use crate::events::Weight;
use crate::router::{self, Present, Replacement, belongs_to, replacement, strategy};

impl Context {
    /// Has everything as one `IngressController` wants it, and says how it stands; and when it has to be looked at again.
    pub(super) async fn reconcile(
        &self,
        controller: &Arc<IngressController>,
    ) -> Result<Option<Duration>, Again> {
        if controller.metadata.deletion_timestamp.is_some() {
            return self.take_away(controller).await.map(|()| None);
        }
        let controller = self.with_known_times(self.hold(controller).await?);
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
        let router_failures = deployment.failure.iter().chain(&other).map(why);
        let router_failures: Vec<String> = router_failures.chain(deployment.waits.clone()).collect();
        let (mut replacements, not_replaced) = if refusals.is_empty() {
            self.replace(&controller, service.object.as_deref()).await
        } else {
            (Vec::new(), None)
        };
        let failures = service.failure.iter().chain(&not_replaced).map(why);
        let failures: Vec<String> = failures.chain(service.waits.clone()).collect();
        let told = self.tell_not_carried_out(&controller).await;
        let unchangeable = unchangeable(&controller).into_iter();
        replacements.extend(
            unchangeable.map(|message| Replacement { what: "IngressController".to_owned(), message }),
        );
        let sync_failure = service.object.as_deref().and_then(|service| self.sync_failure(service));
        let look = Look {
            controller: &controller,
            strategy: &strategy,
            domain: router::domain(&controller, router),
            refusals: &refusals,
            told: &told,
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
        let stand = Stand { conditions: conditions.all.clone(), to_be_moved: conditions.to_be_moved.clone() };
        self.standing.set(controller.name(), stand);
        let failed = deployment.failure.iter().chain(&service.failure).chain(&other).chain(&not_replaced);
        let failed: Vec<&Failure> = failed.collect();
        // Before the status is written: that may be refused, too.
        for failure in &failed {
            warn!(controller = controller.name(), why = failure.why, "it is not as wanted");
            self.tell(&controller, Weight::Warning, "SyncFailed", &failure.why).await;
        }
        self.tell_status(&look, &conditions).await?;
        if failed.iter().any(|failure| failure.no_namespace) {
            shared::ensure(&self.client, router, self.settings.observe).await;
        }
        if !failed.is_empty() {
            return Err(Again(failed.iter().filter_map(|failure| failure.again).min()));
        }
        // Another one may give its domain up.
        let refused = (!refusals.is_empty()).then_some(LOOK_AGAIN);
        let again = others::look_again(&controller, deployment.object.as_deref());
        Ok([conditions.again, refused, again].into_iter().flatten().min())
    }

    /// One that is only looked at does not have in its status since when something is so.
    fn with_known_times(&self, controller: Arc<IngressController>) -> Arc<IngressController> {
        if !self.settings.observe {
            return controller;
        }
        let Some(known) = self.standing.of(controller.name()) else { return controller };
        let mut controller = IngressController::clone(&controller);
        controller.status.conditions = known.conditions;
        Arc::new(controller)
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
        let services: Api<Service> = Api::namespaced(self.client.clone(), &router.namespace);
        let observe = self.settings.observe;
        let paced = Some(self.paced(controller));
        let name = named("router", controller);
        let balanced = Wanted {
            name: &name,
            object: router::load_balancer_service(controller, router),
            is_ours: &is_ours,
            changed: router::changed_load_balancer,
            is_open: router::lets_in_more,
            paced,
            observe,
        };
        let (internal_name, port_name) =
            (named("router-internal", controller), named("router-nodeport", controller));
        let other = |name, object| Wanted {
            name,
            object,
            is_ours: &is_ours,
            changed: router::changed,
            is_open: |_, _| false,
            paced,
            observe,
        };
        let internal = other(&internal_name, router::internal_service(controller, router));
        let on_ports = found(self.services.get(&port_name), controller).object;
        let present = Present { node_port: on_ports.as_deref(), ..Present::default() };
        let on_ports = other(&port_name, router::node_port_service(controller, router, &present));
        let ((deployment, mut failures), balanced, internal, on_ports, others) = tokio::join!(
            self.carry_out_routers(controller),
            carry_out(&services, &self.services, balanced),
            carry_out(&services, &self.services, internal),
            carry_out(&services, &self.services, on_ports),
            self.carry_out_others(controller, true),
        );
        failures.extend(internal.failure.into_iter().chain(on_ports.failure).chain(others));
        (deployment, balanced, failures)
    }

    /// How often its objects are put back.
    pub(super) fn paced<'a>(&'a self, controller: &'a IngressController) -> Paced<'a> {
        let (pace, generation) = (&self.pace, controller.metadata.generation);
        Paced { pace, controller: controller.name(), generation }
    }

    /// Has its routers as wanted, and what they read.
    async fn carry_out_routers(&self, controller: &IngressController) -> (Done<Deployment>, Vec<Failure>) {
        let router = &self.settings.router;
        let name = named("router", controller);
        let certificate = match self.prepare(controller).await {
            Ok(certificate) => certificate,
            Err(failure) => {
                let found = found(self.deployments.get(&name), controller);
                return (Done { failure: Some(failure), ..found }, Vec::new());
            }
        };
        let service = found(self.services.get(&name), controller).object;
        let present = Present { service: service.as_deref(), certificate, ..Present::default() };
        let wanted = Wanted {
            name: &name,
            object: router::deployment(controller, router, &present),
            is_ours: &|metadata: &_| belongs_to(metadata, controller.name()),
            changed: router::changed_deployment,
            is_open: |_, _| false,
            paced: Some(self.paced(controller)),
            observe: self.settings.observe,
        };
        let deployments: Api<Deployment> = Api::namespaced(self.client.clone(), &router.namespace);
        let done = carry_out(&deployments, &self.deployments, wanted).await;
        let failures = if done.failure.is_none() { self.tidy(controller).await } else { Vec::new() };
        (done, failures)
    }

    /// What needs another load balancer; if the administrator said so beforehand, it gets one. And why it does not, if that is
    /// refused.
    async fn replace(
        &self,
        controller: &IngressController,
        current: Option<&Service>,
    ) -> (Vec<Replacement>, Option<Failure>) {
        let router = &self.settings.router;
        let (Some(current), Some(desired)) = (current, router::load_balancer_service(controller, router))
        else {
            return (Vec::new(), None);
        };
        let found = replacement(controller, current, &desired, router);
        let goes = current.metadata.deletion_timestamp.is_some();
        let may_go = router::may_be_replaced(controller, current, &desired);
        if found.is_empty() || goes || self.settings.observe || !may_go {
            return (found, None);
        }
        let what: Vec<&str> = found.iter().map(|one| one.what.as_str()).collect();
        let message = format!("Its load balancer is replaced by one with another {}.", what.join(" and "));
        self.tell(controller, Weight::Normal, "ReplacingLoadBalancer", &message).await;
        let api: Api<Service> = Api::namespaced(self.client.clone(), &router.namespace);
        let uid = Preconditions { uid: current.uid(), ..Preconditions::default() };
        let deleted = api.delete(&current.name_any(), &DeleteParams::default().preconditions(uid)).await;
        let failure = match deleted {
            Ok(_) => None,
            // Somebody else did; what is there now is decided on anew.
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => None,
            Err(problem) => Some(Failure::new(format!(
                "Service {}/{} is to be replaced, and cannot be deleted: {problem}",
                router.namespace,
                current.name_any()
            ))),
        };
        (found, failure)
    }

    /// What of it is not carried out. It is told by Events once, when it is new.
    async fn tell_not_carried_out(&self, controller: &IngressController) -> Vec<String> {
        let fixed = unchangeable(controller);
        let mut left_out = ignored(controller);
        left_out.extend(unsaid(controller, &self.settings.router));
        if controller.status.observed_generation != controller.metadata.generation {
            for (reason, messages) in [("NotChangeable", &fixed), ("Ignored", &left_out)] {
                for message in messages {
                    self.tell(controller, Weight::Warning, reason, message).await;
                }
            }
        }
        fixed.into_iter().chain(left_out).collect()
    }

    /// Why a load balancer is not as wanted, as whoever makes it told last.
    fn sync_failure(&self, service: &Service) -> Option<String> {
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
    Done { object, ..Done::default() }
}
