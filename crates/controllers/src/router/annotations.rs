//! What the annotations of a load balancer Service say to each platform.

use std::collections::BTreeMap;

use portcullis_kube_api::ingress::{
    AwsLoadBalancerType, AwsParameters, IngressController, LoadBalancerStrategy, Scope, seconds,
};

use super::{Platform, RouterSettings};

pub(super) const AWS_INTERNAL: &str = "service.beta.kubernetes.io/aws-load-balancer-internal";
pub(super) const AWS_TYPE: &str = portcullis_kube_api::TYPE;
pub(super) const AWS_SUBNETS: &str = "service.beta.kubernetes.io/aws-load-balancer-subnets";
pub(super) const AWS_EIPS: &str = "service.beta.kubernetes.io/aws-load-balancer-eip-allocations";
const AWS_PROXY: &str = "service.beta.kubernetes.io/aws-load-balancer-proxy-protocol";
const AWS_TAGS: &str = "service.beta.kubernetes.io/aws-load-balancer-additional-resource-tags";
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
const LOCAL_WITH_FALLBACK: &str = "traffic-policy.network.alpha.openshift.io/local-with-fallback";

/// What is kept as it should be all the time. The rest says how a load balancer is made, and is left alone afterwards.
pub(super) const MANAGED: [&str; 8] =
    [AWS_INTERVAL, AWS_IDLE, AWS_PROXY, AWS_TAGS, AZURE_INTERNAL, GCP_TYPE, GCP_GLOBAL, LOCAL_WITH_FALLBACK];

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
    if falls_back(controller) {
        set(LOCAL_WITH_FALLBACK, "");
    }
    match settings.platform {
        Platform::Aws => on_aws(&parameters.aws.unwrap_or_default(), internal, settings, &mut set),
        Platform::Azure if internal => set(AZURE_INTERNAL, "true"),
        Platform::Gcp if internal => {
            set(GCP_TYPE, "Internal");
            let access = parameters.gcp.and_then(|gcp| gcp.client_access);
            if let Some(access) = access {
                set(GCP_GLOBAL, if access == "Global" { "true" } else { "false" });
            }
        }
        Platform::Ibm | Platform::PowerVs => {
            set(IBM_IP_TYPE, if internal { "private" } else { "public" });
            if parameters.ibm.and_then(|ibm| ibm.protocol).as_deref() == Some("PROXY") {
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
    let network = aws.type_ == AwsLoadBalancerType::Network;
    let subnets = if network {
        set(AWS_TYPE, "nlb");
        // What a network load balancer allows at the least.
        set(AWS_INTERVAL, "10");
        let network = aws.network_load_balancer.clone().unwrap_or_default();
        let eips = network.eip_allocations.unwrap_or_default();
        if !eips.is_empty() {
            set(AWS_EIPS, &eips.join(","));
        }
        network.subnets
    } else {
        set(AWS_INTERVAL, "5");
        // A classic load balancer has addresses of its own, and would hide those of clients.
        set(AWS_PROXY, "*");
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

/// Whether nodes without a router send to others. It can be switched off where that is wanted for tests.
fn falls_back(controller: &IngressController) -> bool {
    let overrides = controller.spec.rest.get("unsupportedConfigOverrides");
    let word = overrides.and_then(|overrides| overrides.get("localWithFallback"));
    word.and_then(|word| word.as_str()) != Some("false")
}

/// Whether clients' addresses come by the PROXY protocol from what stands in front of the routers.
pub(super) fn speaks_proxy(load_balancer: &LoadBalancerStrategy, platform: Platform) -> bool {
    let parameters = load_balancer.provider_parameters.clone().unwrap_or_default();
    match platform {
        Platform::Aws => parameters.aws.unwrap_or_default().type_ != AwsLoadBalancerType::Network,
        Platform::Ibm | Platform::PowerVs => {
            parameters.ibm.and_then(|ibm| ibm.protocol).as_deref() == Some("PROXY")
        }
        _ => false,
    }
}
