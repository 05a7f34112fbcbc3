//! The objects of a router: what they should be, and what has to change.
//!
//! Each object has a function that says what it should be, and one that says what of an object that is there has to change.
//! Nothing here reads or writes. What others set on our objects, and we have no opinion of, stays.

mod access;
mod annotations;
mod copies;
mod deployment;
mod environment;
mod load_balancer;
mod logging;
mod others;
mod overlay;
mod placement;
mod replacement;
mod services;
mod step;
mod tls;
mod volumes;

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Service;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use portcullis_kube_api::ingress::options::TlsProfile;
use portcullis_kube_api::ingress::{
    AwsLoadBalancerType, AwsParameters, EndpointPublishingStrategy, HostNetworkStrategy, IngressController,
    LoadBalancerStrategy, OWNING_LABEL, ProtocolStrategy, ProviderParameters, PublishingType,
    SINGLE_NODE_LABEL, Scope,
};
use serde::de::DeserializeOwned;
use serde_json::Value;

pub use access::{
    changed_namespace, cluster_role, cluster_role_binding, collector, namespace, service_account,
    service_authority,
};
pub use annotations::{as_made, is_internal};
pub use copies::{Copied, changed_config, copied, copies};
pub use deployment::{changed_deployment, deployment, selector};
pub use load_balancer::{changed_load_balancer, lets_in_more, load_balancer_service};
pub use logging::log_config;
pub use others::{ServiceMonitor, class_name, disruption_budget, ingress_class, is_of, service_monitor};
pub use overlay::{changed, patch};
pub use replacement::{Replacement, may_be_replaced, replacement};
pub use services::{internal_service, node_port_service};
pub use step::{Step, step};
pub use volumes::{certificate, named_certificate, usual_certificate};

/// The label by which objects that all routers share are ours.
const MANAGED_BY: (&str, &str) = ("app.kubernetes.io/managed-by", "portcullis");

/// The label of a router's pods; its value is the name of the `IngressController`.
const POD_LABEL: &str = "ingresscontroller.operator.openshift.io/deployment-ingresscontroller";

/// What all routers have in common.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
pub struct RouterSettings {
    /// The namespace that routers run in.
    pub namespace: String,
    /// The image of a router.
    pub image: String,
    /// The class of load balancer Services; none where the cluster's cloud provider makes load balancers.
    pub load_balancer_class: Option<String>,
    /// Whether whoever makes load balancers of that class makes only network load balancers.
    pub network_only: bool,
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
    /// Whether the cluster is OpenShift, which has an authority for Services, and its own rules for pods.
    pub openshift: bool,
    /// Whether somebody collects metrics by what the group monitoring.coreos.com says.
    pub monitoring: bool,
    /// The namespace with `ConfigMaps` that `IngressControllers` name.
    pub config_namespace: String,
    /// The labels of nodes that routers run on where an `IngressController` says nothing about it.
    pub node_labels: BTreeMap<String, String>,
    /// The addresses that pods have.
    pub addresses: AddressMode,
    /// Whether HTTP/2 is spoken where an `IngressController` says nothing about it.
    pub http2: bool,
    /// Which protocols and ciphers are spoken where an `IngressController` says nothing about it.
    pub tls_profile: TlsProfile,
}

impl Default for RouterSettings {
    fn default() -> Self {
        RouterSettings {
            namespace: "openshift-ingress".to_owned(),
            image: String::new(),
            load_balancer_class: None,
            network_only: false,
            platform: Platform::default(),
            single_replica: false,
            default_domain: None,
            default_aws_type: AwsLoadBalancerType::default(),
            aws_tags: BTreeMap::new(),
            openshift: false,
            monitoring: false,
            config_namespace: "openshift-config".to_owned(),
            node_labels: BTreeMap::new(),
            addresses: AddressMode::default(),
            http2: false,
            tls_profile: TlsProfile::default(),
        }
    }
}

/// The addresses that pods have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AddressMode {
    /// Those of IPv4.
    #[default]
    V4,
    /// Those of IPv6.
    V6,
    /// Both.
    Both,
}

/// What is there already, as far as it decides about the routers.
#[derive(Clone, Copy, Debug, Default)]
pub struct Present<'a> {
    /// The load balancer Service, if it belongs to the `IngressController`.
    pub service: Option<&'a Service>,
    /// The Service on ports of nodes, if it belongs to the `IngressController`.
    pub node_port: Option<&'a Service>,
    /// Whether there is a certificate under the usual name.
    pub certificate: bool,
}

/// What a cluster runs on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
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
    #[default]
    Other,
}

impl Platform {
    /// Whether routers are reached by a load balancer unless somebody says otherwise.
    pub fn has_load_balancers(self) -> bool {
        matches!(self, Platform::Aws | Platform::Azure | Platform::Gcp | Platform::Ibm | Platform::PowerVs)
    }
}

/// How an `IngressController` is reached, with what it leaves open filled in.
///
/// The type that was admitted stays. Where the spec says nothing about it, or wants another, what was admitted goes on.
pub fn strategy(controller: &IngressController, settings: &RouterSettings) -> EndpointPublishingStrategy {
    let given = controller.spec.endpoint_publishing_strategy.clone();
    let admitted = controller.status.endpoint_publishing_strategy.as_ref();
    let mut full = match (given, admitted) {
        (Some(given), Some(admitted)) if given.type_ != admitted.type_ => admitted.clone(),
        (Some(given), _) => given,
        (None, Some(admitted)) => without_parameters(admitted.clone()),
        (None, None) => {
            let type_ = usual_type(settings.platform);
            EndpointPublishingStrategy { type_, ..EndpointPublishingStrategy::default() }
        }
    };
    let is = |type_: &PublishingType| full.type_ == *type_;
    let (balanced, on_hosts) = (is(&PublishingType::LoadBalancerService), is(&PublishingType::HostNetwork));
    let (on_ports, private) = (is(&PublishingType::NodePortService), is(&PublishingType::Private));
    let before = admitted.and_then(|admitted| admitted.load_balancer.as_ref());
    full.load_balancer = balanced.then(|| full_load_balancer(full.load_balancer.take(), before, settings));
    full.host_network = on_hosts.then(|| full_host_network(full.host_network.take()));
    full.node_port = on_ports.then(|| full_protocol(full.node_port.take()));
    full.private = private.then(|| full_protocol(full.private.take()));
    full
}

/// What was admitted, without what only the spec can ask for: that goes when it goes from there.
fn without_parameters(mut admitted: EndpointPublishingStrategy) -> EndpointPublishingStrategy {
    let load_balancer = admitted.load_balancer.as_mut();
    if let Some(parameters) = load_balancer.and_then(|found| found.provider_parameters.as_mut()) {
        (parameters.aws, parameters.gcp, parameters.openstack) = (None, None, None);
    }
    admitted
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
    admitted: Option<&LoadBalancerStrategy>,
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
        // What the cluster wants by now is for those that come; this one has a load balancer.
        let admitted = admitted.and_then(|admitted| admitted.provider_parameters.as_ref()?.aws.clone());
        parameters.aws.get_or_insert_with(|| {
            let usual = || settings.default_aws_type.clone();
            // One that was made by somebody else waits to be replaced by one of this type.
            let type_ = if settings.network_only {
                AwsLoadBalancerType::Network
            } else {
                admitted.as_ref().map_or_else(usual, |admitted| admitted.type_.clone())
            };
            AwsParameters { type_, ..AwsParameters::default() }
        });
        fill_in_protocol(parameters, admitted);
    }
    full
}

/// How a network load balancer says who a client is stays as it was admitted, where the spec says nothing about it.
fn fill_in_protocol(parameters: &mut ProviderParameters, admitted: Option<AwsParameters>) {
    let Some(aws) = &mut parameters.aws else { return };
    let protocol = admitted.and_then(|admitted| admitted.network_load_balancer?.protocol);
    if aws.type_ == AwsLoadBalancerType::Network
        && let Some(protocol) = protocol.filter(|protocol| !protocol.is_empty())
    {
        aws.network_load_balancer.get_or_insert_default().protocol.get_or_insert(protocol);
    }
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

/// The domain that an `IngressController` serves: the one that was admitted, for as long as it lives.
pub fn domain<'a>(controller: &'a IngressController, settings: &'a RouterSettings) -> Option<&'a str> {
    let usual = settings.default_domain.as_deref().filter(|domain| !domain.is_empty());
    let admitted = Some(controller.status.domain.as_str()).filter(|domain| !domain.is_empty());
    admitted.or_else(|| controller.wanted_domain()).or(usual)
}

/// How many routers an `IngressController` wants.
pub fn replicas(controller: &IngressController, settings: &RouterSettings) -> i32 {
    controller.spec.replicas.unwrap_or(if settings.single_replica { 1 } else { 2 })
}

/// Whether an object belongs to an `IngressController`.
pub fn belongs_to(metadata: &ObjectMeta, controller: &str) -> bool {
    label(metadata, OWNING_LABEL) == Some(controller) && label(metadata, SINGLE_NODE_LABEL).is_none()
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
