//! The routers themselves.

use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Container, PodSpec};
use portcullis_kube_api::ingress::options::Options;
use portcullis_kube_api::ingress::{
    EndpointPublishingStrategy, HostNetworkStrategy, IngressController, OWNING_LABEL, PublishingType,
};
use serde_json::{Value, json};

use super::access::ACCOUNT;
use super::environment::environment;
use super::placement::{affinity, node_selector, spread};
use super::{
    POD_LABEL, Present, RouterSettings, changed, logging, object, replicas, strategy, volumes,
    volumes::mounts,
};

/// The ports of a router that has addresses of its own.
const PORTS: [i32; 3] = [80, 443, 1936];

/// As long as connections may take to end when a router goes.
const GRACE_SECONDS: u32 = 3600;

/// As long as a router may take to go that does not answer any more.
const HUNG_GRACE_SECONDS: u32 = 10;

/// As long as a router has to serve before it counts: load balancers need some time to find it.
const READY_SECONDS: u32 = 30;

/// The ports for HTTP, HTTPS and statistics.
pub(super) fn ports(strategy: &EndpointPublishingStrategy) -> [i32; 3] {
    strategy.host_network.as_ref().map_or(PORTS, HostNetworkStrategy::ports)
}

/// Which pods are the routers of an `IngressController`, as text.
pub fn selector(controller: &IngressController) -> String {
    format!("{POD_LABEL}={}", controller.name())
}

/// The Deployment of an `IngressController`.
pub fn deployment(
    controller: &IngressController,
    settings: &RouterSettings,
    present: &Present<'_>,
) -> Option<Deployment> {
    let name = controller.name();
    let strategy = strategy(controller, settings);
    let on_hosts = strategy.type_ == PublishingType::HostNetwork;
    let options = Options::of(controller);
    let mut containers = vec![container(controller, &strategy, settings, present)];
    if logging::is_beside(&options) {
        containers.push(logging::container(settings));
    }
    let placement = controller.spec.node_placement.clone().unwrap_or_default();
    let nodes = node_selector(&placement, settings);
    let affinity = affinity(name, &placement, settings);
    Some(object(json!({
        "metadata": {
            "name": format!("router-{name}"),
            "namespace": settings.namespace,
            "labels": {OWNING_LABEL: name},
        },
        "spec": {
            "replicas": replicas(controller, settings),
            "minReadySeconds": READY_SECONDS,
            "selector": {"matchLabels": {POD_LABEL: name}},
            "strategy": {"type": "RollingUpdate", "rollingUpdate": rolling(controller, on_hosts, settings)},
            "template": {
                "metadata": {"labels": {POD_LABEL: name}, "annotations": pod_annotations(on_hosts, settings)},
                "spec": {
                    "serviceAccountName": ACCOUNT,
                    "priorityClassName": "system-cluster-critical",
                    "terminationGracePeriodSeconds": GRACE_SECONDS,
                    "hostNetwork": on_hosts.then_some(true),
                    "dnsPolicy": if on_hosts { "ClusterFirstWithHostNet" } else { "ClusterFirst" },
                    "nodeSelector": nodes,
                    "affinity": affinity,
                    "tolerations": placement.tolerations.unwrap_or_default(),
                    "topologySpreadConstraints": spread(name),
                    "containers": containers,
                    "volumes": volumes::volumes(controller, &options, settings, present),
                },
            },
        },
    })))
}

/// How old routers make room for new ones.
fn rolling(controller: &IngressController, on_hosts: bool, settings: &RouterSettings) -> Value {
    if on_hosts {
        // Two routers on the addresses of one node would want the same ports: an old one goes before a new one comes.
        return json!({"maxSurge": 0, "maxUnavailable": 1});
    }
    // Of few routers a quarter is none: there may be no node for one more.
    let few = !settings.single_replica && replicas(controller, settings) < 4;
    json!({"maxSurge": "25%", "maxUnavailable": if few { "50%" } else { "25%" }})
}

/// What OpenShift is told about pods.
fn pod_annotations(on_hosts: bool, settings: &RouterSettings) -> BTreeMap<&'static str, &'static str> {
    if !settings.openshift {
        return BTreeMap::new();
    }
    BTreeMap::from([
        // Others that it would choose by itself keep a router from the ports that it needs.
        ("openshift.io/required-scc", if on_hosts { "hostnetwork" } else { "restricted" }),
        ("target.workload.openshift.io/management", r#"{"effect": "PreferredDuringScheduling"}"#),
    ])
}

/// What of a Deployment that is there has to change.
pub fn changed_deployment(current: &Deployment, desired: &Deployment) -> Option<Deployment> {
    let mut wanted = changed(current, desired).unwrap_or_else(|| current.clone());
    if let (Some(pod), Some(desired)) = (template(&mut wanted), template(&mut desired.clone())) {
        // What another operator left, or is not wanted any more, would keep routers from nodes, from their rights, or from
        // being made at all.
        pod.node_selector = desired.node_selector.take();
        pod.affinity = desired.affinity.take();
        pod.init_containers = None;
        pod.automount_service_account_token = None;
        pod.share_process_namespace = None;
        for container in &mut pod.containers {
            let same = desired.containers.iter().find(|other| other.name == container.name);
            if let Some(desired) = same {
                take_over(container, desired);
            }
        }
    }
    (wanted != *current).then_some(wanted)
}

/// What of a container is ours alone.
fn take_over(container: &mut Container, desired: &Container) {
    container.env.clone_from(&desired.env);
    container.command.clone_from(&desired.command);
    container.args.clone_from(&desired.args);
    container.lifecycle.clone_from(&desired.lifecycle);
    container.security_context.clone_from(&desired.security_context);
}

fn template(deployment: &mut Deployment) -> Option<&mut PodSpec> {
    deployment.spec.as_mut()?.template.spec.as_mut()
}

fn container(
    controller: &IngressController,
    strategy: &EndpointPublishingStrategy,
    settings: &RouterSettings,
    present: &Present<'_>,
) -> Value {
    let on_hosts = strategy.host_network.is_some();
    let [http, https, stats] = ports(strategy);
    let port = |name: &str, number: i32| {
        let mut port = json!({"name": name, "containerPort": number, "protocol": "TCP"});
        if on_hosts {
            port["hostPort"] = json!(number);
        }
        port
    };
    let probe = |path: &str| {
        let mut get = json!({"path": path, "port": stats});
        if on_hosts {
            // A node may let nobody ask its own addresses.
            get["host"] = json!("localhost");
        }
        json!({"httpGet": get, "timeoutSeconds": 1})
    };
    let (mut start, mut live) = (probe("/healthz/ready"), probe("/healthz"));
    start["periodSeconds"] = json!(1);
    start["failureThreshold"] = json!(120);
    live["terminationGracePeriodSeconds"] = json!(HUNG_GRACE_SECONDS);
    let security = if settings.openshift {
        // HAProxy has what it needs from its file, if it may; OpenShift lets nobody ask for it.
        json!({"allowPrivilegeEscalation": true})
    } else {
        json!({"capabilities": {"add": ["NET_BIND_SERVICE"]}})
    };
    json!({
        "name": "router",
        "image": settings.image,
        "imagePullPolicy": "IfNotPresent",
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "ports": [port("http", http), port("https", https), port("metrics", stats)],
        "env": environment(controller, strategy, settings, present),
        "startupProbe": start,
        "livenessProbe": live,
        "readinessProbe": probe("/healthz/ready"),
        "resources": {"requests": {"cpu": "100m", "memory": "256Mi"}},
        "securityContext": security,
        "volumeMounts": mounts(controller, &Options::of(controller), settings, present),
    })
}
