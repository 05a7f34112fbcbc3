//! Beside an installation of Cluster API that knows nothing newer than v1beta1.

#![allow(clippy::unwrap_used, reason = "a test that fails says where")]

use std::sync::LazyLock;

use kube::config::{KubeConfigOptions, Kubeconfig};
use portcullis_controllers::cluster::{LoadBalancerSettings, LoadBalancers, Templates};
use portcullis_kube_api::cluster::{Flavour, crds};
use portcullis_testkit::parts::kubernetes::Kubernetes;
use portcullis_testkit::{ClusterApi, eventually, kubernetes};
use serde_json::{Value, json};

const CLUSTER: &str = "clusters.cluster.x-k8s.io";
const MACHINE: &str = "machines.cluster.x-k8s.io";
const BALANCER: &str = "loadbalancers.loadbalancer.portcullis.dev";
const MAKER: &str = "haproxyloadbalancers.loadbalancer.portcullis.dev";
const FINALIZER: &str = "machine.cluster.x-k8s.io";

fn apply(kubernetes: &Kubernetes, object: &Value) {
    kubernetes.apply(&object.to_string()).unwrap();
}

fn get(kubernetes: &Kubernetes, kind: &str, name: &str) -> Value {
    let found = kubernetes.kubectl(&["get", kind, name, "-o", "json"]);
    found.map_or(Value::Null, |text| serde_json::from_str(&text).unwrap())
}

fn patch(kubernetes: &Kubernetes, kind: &str, name: &str, patch: &Value) {
    kubernetes.kubectl(&["patch", kind, name, "--type=merge", "-p", &patch.to_string()]).unwrap();
}

fn patch_status(kubernetes: &Kubernetes, kind: &str, name: &str, status: &Value) {
    let patch = json!({"status": status}).to_string();
    kubernetes.kubectl(&["patch", kind, name, "--subresource=status", "--type=merge", "-p", &patch]).unwrap();
}

/// A Machine as its controllers would have it; nobody looks after it here.
fn machine(kubernetes: &Kubernetes, name: &str, address: &str) {
    apply(
        kubernetes,
        &json!({
            "apiVersion": "cluster.x-k8s.io/v1beta1", "kind": "Machine",
            "metadata": {
                "name": name,
                "namespace": "default",
                "finalizers": [FINALIZER],
                "labels": {
                    "cluster.x-k8s.io/cluster-name": "c",
                    "cluster.x-k8s.io/control-plane": "",
                    "loadbalancer.cluster.x-k8s.io/name": "lb",
                },
            },
            "spec": {
                "clusterName": "c",
                "bootstrap": {"dataSecretName": "none"},
                "infrastructureRef": {
                    "apiVersion": "infrastructure.cluster.x-k8s.io/v1beta1", "kind": "LabMachine",
                    "name": name, "namespace": "default",
                },
            },
        }),
    );
    let addresses = json!({"addresses": [{"type": "InternalIP", "address": address}]});
    patch_status(kubernetes, MACHINE, name, &addresses);
}

/// What makes load balancers says that members are where it was asked to have them, or where the test wants them.
fn report(kubernetes: &Kubernetes, members: &[(&str, &str)]) {
    let generation = get(kubernetes, MAKER, "lb")["metadata"]["generation"].clone();
    let members: Vec<Value> =
        members.iter().map(|(name, status)| json!({"name": name, "status": status})).collect();
    let status = json!({
        "observedGeneration": generation,
        "initialization": {"provisioned": true},
        "address": "198.51.100.1",
        "members": members,
        "conditions": [{
            "type": "Ready", "status": "True", "reason": "Made", "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }],
    });
    patch_status(kubernetes, MAKER, "lb", &status);
}

static TYPES: LazyLock<&'static Kubernetes> = LazyLock::new(|| {
    let kubernetes = kubernetes();
    ClusterApi::only_types(kubernetes, "v1beta1");
    let ours: Vec<String> = crds(Flavour::Own).iter().map(Value::to_string).collect();
    kubernetes.apply_types(&ours.join("\n---\n")).unwrap();
    kubernetes
});

async fn client(kubernetes: &Kubernetes) -> kube::Client {
    let file = Kubeconfig::read_from(kubernetes.kubeconfig()).unwrap();
    let config = kube::Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await.unwrap();
    kube::Client::try_from(config).unwrap()
}

/// A class that names a template later is heard of by the Clusters that it has already. Nobody else changes these here.
#[tokio::test(flavor = "multi_thread")]
async fn a_class_may_name_a_template_later() {
    let (kubernetes, place) = (*TYPES, "later");
    kubernetes.kubectl(&["create", "namespace", place]).unwrap();
    apply(
        kubernetes,
        &json!({
            "apiVersion": "loadbalancer.portcullis.dev/v1alpha1", "kind": "LoadBalancerTemplate",
            "metadata": {"name": "standard", "namespace": place},
            "spec": {"template": {"spec": {"drainTimeoutSeconds": 30}}},
        }),
    );
    let class = json!({
        "apiVersion": "cluster.x-k8s.io/v1beta1", "kind": "ClusterClass",
        "metadata": {"name": "class", "namespace": place},
        "spec": {},
    });
    apply(kubernetes, &class);
    let cluster = |name: &str, annotations: Value, spec: Value| {
        let metadata = json!({"name": name, "namespace": place, "annotations": annotations});
        let object = json!({
            "apiVersion": "cluster.x-k8s.io/v1beta1", "kind": "Cluster", "metadata": metadata, "spec": spec,
        });
        apply(kubernetes, &object);
    };
    let named = "portcullis.dev/load-balancer-template";
    let templates =
        Templates::new(client(kubernetes).await, Flavour::Own, Some(place.to_owned()), "test".to_owned());
    let running = tokio::spawn(templates.run());
    cluster("of-class", json!({}), json!({"topology": {"class": "class", "version": "v1.34.0"}}));
    // One that is made after it, and has its own, shows that it was looked at.
    cluster("other", json!({named: "standard"}), json!({"clusterNetwork": {"apiServerPort": 6443}}));
    let has_one = |name: &str| kubernetes.kubectl(&["--namespace", place, "get", BALANCER, name]).is_ok();
    eventually("another one has its own", || has_one("other"));
    assert!(!has_one("of-class"));
    let annotation = format!("{named}=standard");
    kubernetes.kubectl(&["--namespace", place, "annotate", "clusterclass", "class", &annotation]).unwrap();
    eventually("it has one, too", || has_one("of-class"));
    running.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn machines_join_and_leave_and_clients_find_the_cluster() {
    let kubernetes = *TYPES;
    apply(
        kubernetes,
        &json!({
            "apiVersion": "cluster.x-k8s.io/v1beta1", "kind": "Cluster",
            "metadata": {
                "name": "c", "namespace": "default",
                "annotations": {"portcullis.dev/control-plane-load-balancer": "lb"},
            },
            "spec": {"clusterNetwork": {"apiServerPort": 6443}},
        }),
    );
    machine(kubernetes, "one", "10.0.0.1");
    machine(kubernetes, "two", "10.0.0.2");
    apply(
        kubernetes,
        &json!({
            "apiVersion": "loadbalancer.portcullis.dev/v1alpha1", "kind": "HAProxyLoadBalancer",
            "metadata": {"name": "lb", "namespace": "default"}, "spec": {},
        }),
    );
    apply(
        kubernetes,
        &json!({
            "apiVersion": "loadbalancer.portcullis.dev/v1alpha1", "kind": "LoadBalancer",
            "metadata": {"name": "lb", "namespace": "default"},
            "spec": {
                "clusterName": "c", "drainTimeoutSeconds": 600,
                "infrastructureRef": {
                    "apiGroup": "loadbalancer.portcullis.dev", "kind": "HAProxyLoadBalancer", "name": "lb",
                },
            },
        }),
    );
    let settings = LoadBalancerSettings {
        flavour: Flavour::Own,
        namespace: Some("default".to_owned()),
        concurrency: 4,
        probe: None,
        host: "test".to_owned(),
    };
    let balancers = LoadBalancers::new(client(kubernetes).await, settings);
    let running = tokio::spawn(balancers.run());

    let duty =
        |place: usize| get(kubernetes, MAKER, "lb")["spec"]["assignment"]["members"][place]["duty"].clone();
    eventually("both are members", || duty(0) == "Serve" && duty(1) == "Serve");
    report(kubernetes, &[("one", "active"), ("two", "active")]);
    eventually("clients find the cluster", || {
        get(kubernetes, CLUSTER, "c")["spec"]["controlPlaneEndpoint"]
            == json!({"host": "198.51.100.1", "port": 6443})
    });
    let annotation =
        |name: &str, key: &str| get(kubernetes, MACHINE, name)["metadata"]["annotations"][key].clone();
    let hooks =
        ["pre-drain", "pre-terminate"].map(|when| format!("{when}.delete.hook.machine.cluster.x-k8s.io/lb"));
    let is_held = |name: &str| hooks.iter().all(|hook| annotation(name, hook) == "portcullis");
    eventually("both are held", || is_held("one") && is_held("two"));

    kubernetes.kubectl(&["delete", MACHINE, "one", "--wait=false"]).unwrap();
    eventually("it is asked to leave", || duty(0) == "Leave");
    report(kubernetes, &[("one", "draining"), ("two", "active")]);
    let status = "loadbalancer.cluster.x-k8s.io/status";
    eventually("that is told", || annotation("one", status) == "draining");
    assert!(is_held("one"));
    report(kubernetes, &[("one", "removed"), ("two", "active")]);
    eventually("it is let go", || !is_held("one"));
    assert_eq!(annotation("one", status), "removed");
    patch(kubernetes, MACHINE, "one", &json!({"metadata": {"finalizers": null}}));
    eventually("it is forgotten", || duty(0) == "Serve" && duty(1) == Value::Null);

    // A pause is heeded there as well.
    patch(kubernetes, CLUSTER, "c", &json!({"spec": {"paused": true}}));
    let paused = || {
        let found = get(kubernetes, BALANCER, "lb");
        let conditions = found["status"]["conditions"].as_array().cloned().unwrap_or_default();
        conditions.iter().any(|found| found["type"] == "Paused" && found["status"] == "True")
    };
    eventually("it is paused", paused);
    running.abort();
}
