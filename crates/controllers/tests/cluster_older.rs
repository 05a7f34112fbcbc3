//! Beside an installation of Cluster API that knows nothing newer than v1beta1.

#![allow(clippy::unwrap_used, reason = "a test that fails says where")]

use kube::config::{KubeConfigOptions, Kubeconfig};
use portcullis_controllers::cluster::{LoadBalancerSettings, LoadBalancers};
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

#[tokio::test(flavor = "multi_thread")]
async fn machines_join_and_leave_and_clients_find_the_cluster() {
    let kubernetes = kubernetes();
    ClusterApi::only_types(kubernetes, "v1beta1");
    let ours: Vec<String> = crds(Flavour::Own).iter().map(Value::to_string).collect();
    kubernetes.apply_types(&ours.join("\n---\n")).unwrap();
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
    let file = Kubeconfig::read_from(kubernetes.kubeconfig()).unwrap();
    let config = kube::Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await.unwrap();
    let settings = LoadBalancerSettings {
        flavour: Flavour::Own,
        namespace: None,
        concurrency: 4,
        probe: None,
        host: "test".to_owned(),
    };
    let balancers = LoadBalancers::new(kube::Client::try_from(config).unwrap(), settings);
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
