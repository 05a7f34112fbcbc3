//! The objects of a router: what they should be, and what has to change.
//!
//! Each object has a function that says what it should be, and one that says what of an object that is there has to change.
//! Nothing here reads or writes. What others set on our objects, and we have no opinion of, stays.

mod access;
mod annotations;
mod deployment;
mod load_balancer;
mod overlay;
mod replacement;
mod services;
mod step;

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use portcullis_kube_api::ingress::{
    AwsLoadBalancerType, AwsParameters, EndpointPublishingStrategy, HostNetworkStrategy, IngressController,
    LoadBalancerStrategy, OWNING_LABEL, ProtocolStrategy, ProviderParameters, PublishingType, Scope,
};
use serde::de::DeserializeOwned;
use serde_json::Value;

pub use access::{cluster_role, cluster_role_binding, namespace, service_account};
pub use deployment::{changed_deployment, deployment, selector};
pub use load_balancer::{changed_load_balancer, load_balancer_service};
pub use overlay::{changed, patch};
pub use replacement::{Replacement, replacement};
pub use services::{internal_service, node_port_service};
pub use step::{Step, step};

/// The label by which objects that all routers share are ours.
const MANAGED_BY: (&str, &str) = ("app.kubernetes.io/managed-by", "portcullis");

/// The label of a router's pods; its value is the name of the `IngressController`.
const POD_LABEL: &str = "ingresscontroller.operator.openshift.io/deployment-ingresscontroller";

/// What all routers have in common.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouterSettings {
    /// The namespace that routers run in.
    pub namespace: String,
    /// The image of a router.
    pub image: String,
    /// The class of load balancer Services; none where the cluster's cloud provider makes load balancers.
    pub load_balancer_class: Option<String>,
    /// What the cluster runs on.
    pub platform: Platform,
    /// Whether there is one node for everything.
    pub single_replica: bool,
    /// The domain of an `IngressController` that names none.
    pub default_domain: Option<String>,
    /// The load balancer on AWS of an `IngressController` that names none.
    pub default_aws_type: AwsLoadBalancerType,
    /// Tags for what is made on AWS.
    pub aws_tags: BTreeMap<String, String>,
}

/// What a cluster runs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Platform {
    /// Amazon Web Services.
    Aws,
    /// Microsoft Azure.
    Azure,
    /// Google Cloud.
    Gcp,
    /// IBM Cloud.
    Ibm,
    /// IBM Power Virtual Server.
    PowerVs,
    /// OpenStack.
    OpenStack,
    /// Machines without a cloud.
    BareMetal,
    /// Something else.
    Other,
}

impl Platform {
    /// Whether routers are reached by a load balancer unless somebody says otherwise.
    fn has_load_balancers(self) -> bool {
        matches!(self, Platform::Aws | Platform::Azure | Platform::Gcp | Platform::Ibm | Platform::PowerVs)
    }
}

/// How an `IngressController` is reached, with what it leaves open filled in.
pub fn strategy(controller: &IngressController, settings: &RouterSettings) -> EndpointPublishingStrategy {
    let given = controller.spec.endpoint_publishing_strategy.clone();
    let admitted = controller.status.endpoint_publishing_strategy.as_ref().map(|found| found.type_.clone());
    let mut full = given.unwrap_or_else(|| EndpointPublishingStrategy {
        type_: admitted.unwrap_or_else(|| usual_type(settings.platform)),
        ..EndpointPublishingStrategy::default()
    });
    let is = |type_: &PublishingType| full.type_ == *type_;
    let (balanced, on_hosts) = (is(&PublishingType::LoadBalancerService), is(&PublishingType::HostNetwork));
    let (on_ports, private) = (is(&PublishingType::NodePortService), is(&PublishingType::Private));
    full.load_balancer = balanced.then(|| full_load_balancer(full.load_balancer.take(), settings));
    full.host_network = on_hosts.then(|| full_host_network(full.host_network.take()));
    full.node_port = on_ports.then(|| full_protocol(full.node_port.take()));
    full.private = private.then(|| full_protocol(full.private.take()));
    full
}

fn usual_type(platform: Platform) -> PublishingType {
    if platform.has_load_balancers() {
        PublishingType::LoadBalancerService
    } else {
        PublishingType::HostNetwork
    }
}

fn full_load_balancer(
    given: Option<LoadBalancerStrategy>,
    settings: &RouterSettings,
) -> LoadBalancerStrategy {
    let mut full = given.unwrap_or_default();
    if full.scope == Scope::Other(String::new()) {
        full.scope = Scope::External;
    }
    full.dns_management_policy.get_or_insert_with(|| "Managed".to_owned());
    if settings.platform == Platform::Aws {
        let parameters = full.provider_parameters.get_or_insert_with(|| ProviderParameters {
            type_: "AWS".to_owned(),
            ..ProviderParameters::default()
        });
        parameters.aws.get_or_insert_with(|| AwsParameters {
            type_: settings.default_aws_type.clone(),
            ..AwsParameters::default()
        });
    }
    full
}

fn full_host_network(given: Option<HostNetworkStrategy>) -> HostNetworkStrategy {
    let given = given.unwrap_or_default();
    let [http, https, stats] = given.ports();
    HostNetworkStrategy {
        protocol: full_protocol(Some(ProtocolStrategy { protocol: given.protocol })).protocol,
        http_port: Some(http),
        https_port: Some(https),
        stats_port: Some(stats),
    }
}

fn full_protocol(given: Option<ProtocolStrategy>) -> ProtocolStrategy {
    let given = given.and_then(|given| given.protocol).filter(|protocol| !protocol.is_empty());
    ProtocolStrategy { protocol: Some(given.unwrap_or_else(|| "TCP".to_owned())) }
}

/// The domain that an `IngressController` serves.
pub fn domain<'a>(controller: &'a IngressController, settings: &'a RouterSettings) -> Option<&'a str> {
    let usual = settings.default_domain.as_deref().filter(|domain| !domain.is_empty());
    controller.wanted_domain().or(usual)
}

/// How many routers an `IngressController` wants.
pub fn replicas(controller: &IngressController, settings: &RouterSettings) -> i32 {
    controller.spec.replicas.unwrap_or(if settings.single_replica { 1 } else { 2 })
}

/// Whether an object belongs to an `IngressController`.
pub fn belongs_to(metadata: &ObjectMeta, controller: &str) -> bool {
    label(metadata, OWNING_LABEL) == Some(controller)
}

/// Whether an object that routers share is ours.
pub fn is_shared(metadata: &ObjectMeta) -> bool {
    label(metadata, MANAGED_BY.0) == Some(MANAGED_BY.1)
}

fn label<'a>(metadata: &'a ObjectMeta, key: &str) -> Option<&'a str> {
    metadata.labels.as_ref()?.get(key).map(String::as_str)
}

/// An object, written as people write it.
fn object<T: DeserializeOwned>(written: Value) -> T {
    serde_json::from_value(written).expect("it is written as Kubernetes has it")
}

#[cfg(test)]
mod tests;
