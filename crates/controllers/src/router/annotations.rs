//! What the annotations of a load balancer Service say to each platform.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Service;
use portcullis_kube_api::ingress::{
    AwsLoadBalancerType, AwsParameters, IngressController, LoadBalancerStrategy, Options, Scope, presentable,
    seconds,
};

use super::{Platform, RouterSettings};

pub(super) const AWS_INTERNAL: &str = "service.beta.kubernetes.io/aws-load-balancer-internal";
pub(super) const AWS_TYPE: &str = portcullis_kube_api::TYPE;
pub(super) const AWS_SUBNETS: &str = "service.beta.kubernetes.io/aws-load-balancer-subnets";
pub(super) const AWS_EIPS: &str = "service.beta.kubernetes.io/aws-load-balancer-eip-allocations";
const AWS_PROXY: &str = "service.beta.kubernetes.io/aws-load-balancer-proxy-protocol";
const AWS_TAGS: &str = "service.beta.kubernetes.io/aws-load-balancer-additional-resource-tags";
const AWS_TARGETS: &str = "service.beta.kubernetes.io/aws-load-balancer-target-group-attributes";
const AWS_IDLE: &str = "service.beta.kubernetes.io/aws-load-balancer-connection-idle-timeout";
const AWS_INTERVAL: &str = "service.beta.kubernetes.io/aws-load-balancer-healthcheck-interval";
const AWS_TIMEOUT: &str = "service.beta.kubernetes.io/aws-load-balancer-healthcheck-timeout";
const AWS_HEALTHY: &str = "service.beta.kubernetes.io/aws-load-balancer-healthcheck-healthy-threshold";
const AWS_UNHEALTHY: &str = "service.beta.kubernetes.io/aws-load-balancer-healthcheck-unhealthy-threshold";
const AZURE_INTERNAL: &str = "service.beta.kubernetes.io/azure-load-balancer-internal";
const GCP_TYPE: &str = "cloud.google.com/load-balancer-type";
const GCP_GLOBAL: &str = "networking.gke.io/internal-load-balancer-allow-global-access";
pub(super) const IBM_IP_TYPE: &str = "service.kubernetes.io/ibm-load-balancer-cloud-provider-ip-type";
const IBM_FEATURES: &str = "service.kubernetes.io/ibm-load-balancer-cloud-provider-enable-features";
pub(super) const OPENSTACK_INTERNAL: &str = "service.beta.kubernetes.io/openstack-internal-load-balancer";

/// By which nodes without a router send to others, rather than to nobody, on OpenShift's network.
pub(super) const LOCAL_WITH_FALLBACK: &str = "traffic-policy.network.alpha.openshift.io/local-with-fallback";

/// What is kept as it should be all the time. The rest says how a load balancer is made, and is left alone afterwards.
const MANAGED: [&str; 9] = [
    AWS_INTERVAL,
    AWS_IDLE,
    AWS_PROXY,
    AWS_TAGS,
    AZURE_INTERNAL,
    GCP_TYPE,
    GCP_GLOBAL,
    IBM_FEATURES,
    LOCAL_WITH_FALLBACK,
];

/// Whether the load balancer of a Service is for inside, by whichever platform's word.
pub fn is_internal(service: &Service) -> bool {
    let annotations = service.metadata.annotations.clone().unwrap_or_default();
    [AWS_INTERNAL, AZURE_INTERNAL, GCP_TYPE, IBM_IP_TYPE, OPENSTACK_INTERNAL].iter().any(|key| {
        annotations
            .get(*key)
            .is_some_and(|value| !matches!(value.as_str(), "" | "false" | "public" | "External"))
    })
}

/// Whether nodes send to their own routers only, so that clients keep their addresses. IBM's load balancers send to one node.
pub(super) fn is_local(platform: Platform) -> bool {
    !matches!(platform, Platform::Ibm | Platform::PowerVs)
}

/// The annotations of a new load balancer Service.
pub(super) fn annotations(
    controller: &IngressController,
    load_balancer: &LoadBalancerStrategy,
    settings: &RouterSettings,
) -> BTreeMap<String, String> {
    let parameters = load_balancer.provider_parameters.clone().unwrap_or_default();
    let internal = load_balancer.scope == Scope::Internal;
    let mut all = BTreeMap::new();
    let mut set = |key: &str, value: &str| drop(all.insert(key.to_owned(), value.to_owned()));
    if is_local(settings.platform) && falls_back(controller) {
        set(LOCAL_WITH_FALLBACK, "");
    }
    match settings.platform {
        Platform::Aws => on_aws(&parameters.aws.unwrap_or_default(), internal, settings, &mut set),
        Platform::Azure if internal => set(AZURE_INTERNAL, "true"),
        Platform::Gcp if internal => {
            set(GCP_TYPE, "Internal");
            if let Some(gcp) = parameters.gcp {
                set(
                    GCP_GLOBAL,
                    if gcp.client_access.as_deref() == Some("Global") { "true" } else { "false" },
                );
            }
        }
        Platform::Ibm | Platform::PowerVs => {
            set(IBM_IP_TYPE, if internal { "private" } else { "public" });
            if speaks_proxy(load_balancer, None, settings.platform) {
                set(IBM_FEATURES, "proxy-protocol");
            }
        }
        Platform::OpenStack if internal => set(OPENSTACK_INTERNAL, "true"),
        Platform::Azure | Platform::Gcp | Platform::OpenStack | Platform::BareMetal | Platform::Other => {}
    }
    all
}

fn on_aws(aws: &AwsParameters, internal: bool, settings: &RouterSettings, set: &mut impl FnMut(&str, &str)) {
    if internal {
        set(AWS_INTERNAL, "true");
    }
    for (key, value) in by_type(&aws.type_) {
        if let Some(value) = value {
            set(key, value);
        }
    }
    let subnets = if aws.type_ == AwsLoadBalancerType::Network {
        set(AWS_TYPE, "nlb");
        let network = aws.network_load_balancer.clone().unwrap_or_default();
        if let Some(targets) = network.protocol.as_deref().and_then(targets) {
            set(AWS_TARGETS, targets);
        }
        let eips = network.eip_allocations.unwrap_or_default();
        if !eips.is_empty() {
            set(AWS_EIPS, &eips.join(","));
        }
        network.subnets
    } else {
        let classic = aws.classic_load_balancer.clone().unwrap_or_default();
        let idle = classic.connection_idle_timeout.as_deref().and_then(seconds).unwrap_or(0);
        if idle > 0 {
            set(AWS_IDLE, &idle.to_string());
        }
        classic.subnets
    };
    set(AWS_TIMEOUT, "4");
    set(AWS_HEALTHY, "2");
    set(AWS_UNHEALTHY, "2");
    let subnets: Vec<String> = subnets.iter().flat_map(|subnets| subnets.all().cloned()).collect();
    if !subnets.is_empty() {
        set(AWS_SUBNETS, &subnets.join(","));
    }
    let tags: Vec<String> = settings.aws_tags.iter().map(|(key, value)| format!("{key}={value}")).collect();
    if !tags.is_empty() {
        set(AWS_TAGS, &tags.join(","));
    }
}

/// What the targets of a network load balancer are told about who a client is.
const TARGETS_BY_PROXY: &str = "preserve_client_ip.enabled=false,proxy_protocol_v2.enabled=true";
const TARGETS_BY_ADDRESS: &str = "preserve_client_ip.enabled=true,proxy_protocol_v2.enabled=false";

fn targets(protocol: &str) -> Option<&'static str> {
    match protocol {
        "PROXY" => Some(TARGETS_BY_PROXY),
        "TCP" => Some(TARGETS_BY_ADDRESS),
        _ => None,
    }
}

/// What follows from the type of a load balancer on AWS alone.
fn by_type(type_: &AwsLoadBalancerType) -> [(&'static str, Option<&'static str>); 2] {
    match type_ {
        // Ten seconds are what a network load balancer allows at the least.
        AwsLoadBalancerType::Network => [(AWS_INTERVAL, Some("10")), (AWS_PROXY, None)],
        // A classic load balancer has addresses of its own, and would hide those of clients.
        _ => [(AWS_INTERVAL, Some("5")), (AWS_PROXY, Some("*"))],
    }
}

/// The type of the load balancer that a Service has on AWS; nothing, if others made it so that we do not know.
pub(super) fn aws_type(service: &Service) -> Option<AwsLoadBalancerType> {
    let annotations = service.metadata.annotations.as_ref();
    match annotations.and_then(|all| all.get(AWS_TYPE)).map(String::as_str) {
        None => Some(AwsLoadBalancerType::Classic),
        Some("nlb") => Some(AwsLoadBalancerType::Network),
        Some(_) => None,
    }
}

/// What the annotations that are kept should be on a Service that is there.
///
/// A load balancer on AWS keeps its type as long as it stands. What goes with the type follows the one that is there: it and
/// the routers would not understand each other otherwise.
pub(super) fn kept(current: &Service, desired: &Service) -> Vec<(&'static str, Option<String>)> {
    let wanted = desired.metadata.annotations.clone().unwrap_or_default();
    let mut all = MANAGED.map(|key| (key, wanted.get(key).cloned())).to_vec();
    let on_aws = wanted.contains_key(AWS_INTERVAL);
    if let Some(type_) = aws_type(current).filter(|type_| on_aws && aws_type(desired).as_ref() != Some(type_))
    {
        let by_type = by_type(&type_).map(|(key, value)| (key, value.map(str::to_owned)));
        all.retain(|(key, _)| ![AWS_INTERVAL, AWS_PROXY, AWS_IDLE].contains(key));
        all.extend(by_type);
    } else if let Some(targets) = wanted.get(AWS_TARGETS) {
        // Where nothing is said, somebody else may have.
        all.push((AWS_TARGETS, Some(targets.clone())));
    }
    all
}

/// A load balancer as its Service has it, where that is another than wanted until it is replaced; without what no
/// `IngressController` may have.
pub fn as_made(load_balancer: &mut LoadBalancerStrategy, service: &Service) {
    let annotations = service.metadata.annotations.clone().unwrap_or_default();
    let list = |key: &str| -> Vec<String> {
        let entries = annotations.get(key).map(String::as_str).unwrap_or_default().split(',').map(str::trim);
        entries.filter(|entry| !entry.is_empty()).map(str::to_owned).collect()
    };
    let Some(parameters) = &mut load_balancer.provider_parameters else { return };
    if let Some(openstack) = &mut parameters.openstack {
        openstack.floating_ip = service.spec.as_ref().and_then(|spec| spec.load_balancer_ip.clone());
    }
    let Some(aws) = &mut parameters.aws else { return };
    let (subnets, eip_allocations) = presentable(&list(AWS_SUBNETS), &list(AWS_EIPS), &load_balancer.scope);
    // What is there is of its own type, whatever is wanted.
    if aws_type(service).as_ref() != Some(&aws.type_) {
        return;
    }
    if aws.type_ == AwsLoadBalancerType::Network {
        if aws.network_load_balancer.is_some() || subnets.is_some() || eip_allocations.is_some() {
            let network = aws.network_load_balancer.get_or_insert_default();
            (network.subnets, network.eip_allocations) = (subnets, eip_allocations);
        }
    } else if aws.classic_load_balancer.is_some() || subnets.is_some() {
        aws.classic_load_balancer.get_or_insert_default().subnets = subnets;
    }
}

/// Whether nodes without a router send to others. It can be switched off where that is wanted for tests.
pub(super) fn falls_back(controller: &IngressController) -> bool {
    Options::of(controller).overrides.falls_back != Some(false)
}

/// Whether clients' addresses come by the PROXY protocol from what stands in front of the routers: from the load balancer that
/// is there, and from the one that is wanted if there is none.
pub(super) fn speaks_proxy(
    load_balancer: &LoadBalancerStrategy,
    current: Option<&Service>,
    platform: Platform,
) -> bool {
    let parameters = load_balancer.provider_parameters.clone().unwrap_or_default();
    match platform {
        Platform::Aws => {
            let aws = parameters.aws.unwrap_or_default();
            if current.and_then(aws_type).unwrap_or(aws.type_) != AwsLoadBalancerType::Network {
                return true;
            }
            let protocol = aws.network_load_balancer.and_then(|network| network.protocol);
            protocol.as_deref() == Some("PROXY")
        }
        Platform::Ibm => parameters.ibm.and_then(|ibm| ibm.protocol).as_deref() == Some("PROXY"),
        _ => false,
    }
}
