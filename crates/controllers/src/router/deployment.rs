//! The routers themselves.

use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::PodSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use portcullis_kube_api::ingress::{
    EndpointPublishingStrategy, HostNetworkStrategy, IngressController, NodePlacement, OWNING_LABEL,
    PublishingType,
};
use serde_json::{Value, json};

use super::access::ACCOUNT;
use super::annotations::speaks_proxy;
use super::{POD_LABEL, RouterSettings, changed, domain, object, replicas, strategy};

/// The ports of a router that has addresses of its own.
const PORTS: [i32; 3] = [80, 443, 1936];

/// As long as connections may take to end when a router goes.
const GRACE_SECONDS: u32 = 3600;

/// Which pods are the routers of an `IngressController`, as text.
pub fn selector(controller: &IngressController) -> String {
    format!("{POD_LABEL}={}", controller.name())
}

/// The Deployment of an `IngressController`.
pub fn deployment(controller: &IngressController, settings: &RouterSettings) -> Option<Deployment> {
    let name = controller.name();
    let strategy = strategy(controller, settings);
    let on_hosts = strategy.type_ == PublishingType::HostNetwork;
    // Two routers on the addresses of one node would want the same ports: an old one goes before a new one comes.
    let rolling = if on_hosts {
        json!({"maxSurge": 0, "maxUnavailable": 1})
    } else {
        json!({"maxSurge": "25%", "maxUnavailable": "25%"})
    };
    let placement = controller.spec.node_placement.clone().unwrap_or_default();
    Some(object(json!({
        "metadata": {
            "name": format!("router-{name}"),
            "namespace": settings.namespace,
            "labels": {OWNING_LABEL: name},
        },
        "spec": {
            "replicas": replicas(controller, settings),
            "selector": {"matchLabels": {POD_LABEL: name}},
            "strategy": {"type": "RollingUpdate", "rollingUpdate": rolling},
            "template": {
                "metadata": {"labels": {POD_LABEL: name}},
                "spec": {
                    "serviceAccountName": ACCOUNT,
                    "priorityClassName": "system-cluster-critical",
                    "terminationGracePeriodSeconds": GRACE_SECONDS,
                    "hostNetwork": on_hosts.then_some(true),
                    "dnsPolicy": if on_hosts { "ClusterFirstWithHostNet" } else { "ClusterFirst" },
                    "nodeSelector": node_selector(&placement),
                    "tolerations": placement.tolerations.unwrap_or_default(),
                    "topologySpreadConstraints": spread(name),
                    "containers": [container(controller, &strategy, settings)],
                    "volumes": [{"name": "default-certificate", "secret": {
                        "secretName": certificate(controller),
                        "optional": true,
                    }}],
                },
            },
        },
    })))
}

/// What of a Deployment that is there has to change.
pub fn changed_deployment(current: &Deployment, desired: &Deployment) -> Option<Deployment> {
    let mut wanted = changed(current, desired).unwrap_or_else(|| current.clone());
    // A label that is not wanted any more would keep routers away from all nodes.
    let nodes = template(desired).and_then(|pod| pod.node_selector.clone());
    if let Some(pod) = wanted.spec.as_mut().and_then(|spec| spec.template.spec.as_mut()) {
        pod.node_selector = nodes;
    }
    (wanted != *current).then_some(wanted)
}

fn template(deployment: &Deployment) -> Option<&PodSpec> {
    deployment.spec.as_ref()?.template.spec.as_ref()
}

fn container(
    controller: &IngressController,
    strategy: &EndpointPublishingStrategy,
    settings: &RouterSettings,
) -> Value {
    let host_ports = strategy.host_network.as_ref().map(HostNetworkStrategy::ports);
    let [http, https, stats] = host_ports.unwrap_or(PORTS);
    let port = |name: &str, number: i32| {
        let mut port = json!({"name": name, "containerPort": number, "protocol": "TCP"});
        if host_ports.is_some() {
            port["hostPort"] = json!(number);
        }
        port
    };
    let probe = |path: &str| json!({"httpGet": {"path": path, "port": stats}, "timeoutSeconds": 1});
    let mut start = probe("/healthz/ready");
    start["periodSeconds"] = json!(1);
    start["failureThreshold"] = json!(120);
    json!({
        "name": "router",
        "image": settings.image,
        "ports": [port("http", http), port("https", https), port("metrics", stats)],
        "env": environment(controller, strategy, settings),
        "startupProbe": start,
        "livenessProbe": probe("/healthz"),
        "readinessProbe": probe("/healthz/ready"),
        "resources": {"requests": {"cpu": "100m", "memory": "256Mi"}},
        "securityContext": {"capabilities": {"add": ["NET_BIND_SERVICE"]}},
        "volumeMounts": [{"name": "default-certificate", "mountPath": CERTIFICATE_PATH, "readOnly": true}],
    })
}

const CERTIFICATE_PATH: &str = "/etc/pki/tls/private";

/// What a router is told, in the words of OpenShift's.
fn environment(
    controller: &IngressController,
    strategy: &EndpointPublishingStrategy,
    settings: &RouterSettings,
) -> Vec<Value> {
    let name = controller.name();
    let [http, https, stats] = strategy.host_network.as_ref().map_or(PORTS, HostNetworkStrategy::ports);
    let admission = controller.spec.route_admission.clone().unwrap_or_default();
    let is = |given: Option<String>, word: &str| given.as_deref() == Some(word);
    let mut all = BTreeMap::from([
        ("DEFAULT_CERTIFICATE_DIR", CERTIFICATE_PATH.to_owned()),
        ("ROUTER_SERVICE_NAME", name.to_owned()),
        ("ROUTER_SERVICE_NAMESPACE", settings.namespace.clone()),
        ("ROUTER_SERVICE_HTTP_PORT", http.to_string()),
        ("ROUTER_SERVICE_HTTPS_PORT", https.to_string()),
        ("STATS_PORT", stats.to_string()),
        ("ROUTER_METRICS_TYPE", "haproxy".to_owned()),
        ("ROUTER_USE_PROXY_PROTOCOL", is_behind_proxy(strategy, settings).to_string()),
        (
            "ROUTER_DISABLE_NAMESPACE_OWNERSHIP_CHECK",
            is(admission.namespace_ownership, "InterNamespaceAllowed").to_string(),
        ),
        ("ROUTER_ALLOW_WILDCARD_ROUTES", is(admission.wildcard_policy, "WildcardsAllowed").to_string()),
    ]);
    if let Some(domain) = domain(controller, settings) {
        all.insert("ROUTER_DOMAIN", domain.to_owned());
        all.insert("ROUTER_CANONICAL_HOSTNAME", format!("router-{name}.{domain}"));
    }
    for (key, selector) in [
        ("NAMESPACE_LABELS", &controller.spec.namespace_selector),
        ("ROUTE_LABELS", &controller.spec.route_selector),
    ] {
        if let Some(selector) = selector {
            all.insert(key, in_words(selector));
        }
    }
    all.into_iter().map(|(name, value)| json!({"name": name, "value": value})).collect()
}

/// Whether what stands in front of the routers tells them by the PROXY protocol who a client is.
fn is_behind_proxy(strategy: &EndpointPublishingStrategy, settings: &RouterSettings) -> bool {
    if let Some(load_balancer) = &strategy.load_balancer {
        return speaks_proxy(load_balancer, settings.platform);
    }
    let host_network = strategy.host_network.as_ref().and_then(|found| found.protocol.as_deref());
    let others = [&strategy.node_port, &strategy.private].into_iter().flatten();
    let mut protocols = others.filter_map(|found| found.protocol.as_deref()).chain(host_network);
    protocols.any(|protocol| protocol == "PROXY")
}

/// The Secret with the certificate for routes that bring none.
fn certificate(controller: &IngressController) -> String {
    let given = controller.spec.default_certificate.as_ref().map(|found| found.name.clone());
    given.filter(|name| !name.is_empty()).unwrap_or_else(|| format!("router-certs-{}", controller.name()))
}

fn node_selector(placement: &NodePlacement) -> BTreeMap<String, String> {
    let given = placement.node_selector.as_ref().and_then(|selector| selector.match_labels.clone());
    let mut labels = given.unwrap_or_default();
    labels.entry("kubernetes.io/os".to_owned()).or_insert_with(|| "linux".to_owned());
    labels
}

/// Not all on one node, if it can be helped.
fn spread(name: &str) -> Value {
    let over = |key: &str| {
        json!({
            "maxSkew": 1,
            "topologyKey": key,
            "whenUnsatisfiable": "ScheduleAnyway",
            "labelSelector": {"matchLabels": {POD_LABEL: name}},
        })
    };
    json!([over("kubernetes.io/hostname"), over("topology.kubernetes.io/zone")])
}

/// A selector as text, as the API has it in queries.
fn in_words(selector: &LabelSelector) -> String {
    let equal = selector.match_labels.iter().flatten().map(|(key, value)| format!("{key}={value}"));
    let others = selector.match_expressions.iter().flatten().map(|wanted| {
        let (key, values) = (&wanted.key, wanted.values.clone().unwrap_or_default().join(","));
        match wanted.operator.as_str() {
            "In" => format!("{key} in ({values})"),
            "NotIn" => format!("{key} notin ({values})"),
            "DoesNotExist" => format!("!{key}"),
            _ => key.clone(),
        }
    });
    equal.chain(others).collect::<Vec<_>>().join(",")
}
