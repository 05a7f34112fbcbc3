use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::jiff::Timestamp;
use portcullis_kube_api::ingress::ranges::{Effective, Said, effective};
use portcullis_kube_api::ingress::{EndpointPublishingStrategy, IngressController, PublishingType};

use super::Enforcer;
use crate::router::Replacement;

/// All that is known about an `IngressController` at one time.
#[derive(Clone, Copy, Debug)]
pub struct Look<'a> {
    /// The `IngressController`.
    pub controller: &'a IngressController,
    /// How it is reached, with what it leaves open filled in.
    pub strategy: &'a EndpointPublishingStrategy,
    /// The domain that it serves.
    pub domain: Option<&'a str>,
    /// Why it cannot be carried out, if it cannot.
    pub refusals: &'a [String],
    /// Its routers.
    pub deployment: Option<&'a Deployment>,
    /// Its load balancer Service, if that belongs to it.
    pub service: Option<&'a Service>,
    /// What is not carried out of it, while everything else is.
    pub told: &'a [String],
    /// What was tried with the load balancer Service and refused, or waits.
    pub failures: &'a [String],
    /// What was tried with the rest and refused.
    pub router_failures: &'a [String],
    /// What waits for a new load balancer.
    pub replacements: &'a [Replacement],
    /// Why its load balancer is not as wanted, as whoever makes it told last.
    pub sync_failure: Option<&'a str>,
    /// Who keeps out whom the ranges do not let in.
    pub enforcer: &'a Enforcer,
    /// The time.
    pub now: Timestamp,
}

impl Look<'_> {
    /// Whether it is reached by a load balancer of ours.
    pub(super) fn is_balanced(&self) -> bool {
        self.strategy.type_ == PublishingType::LoadBalancerService
    }

    /// What its Service says about ranges.
    pub(super) fn said(&self) -> Said<'_> {
        self.service.map(Said::by).unwrap_or_default()
    }

    /// The ranges that count.
    pub(super) fn effective(&self) -> Effective {
        effective(self.said())
    }

    /// Its Service, by namespace and name.
    pub(super) fn service_key(&self) -> String {
        let metadata = self.service.map(|service| &service.metadata);
        let text = |found: Option<&Option<String>>| found.cloned().flatten().unwrap_or_default();
        format!(
            "{}/{}",
            text(metadata.map(|found| &found.namespace)),
            text(metadata.map(|found| &found.name))
        )
    }
}
