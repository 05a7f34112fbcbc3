//! The proposal's own shapes of Cluster and control plane, on a Kubernetes API without Cluster API: each of its scenarios.

#![allow(
    clippy::unwrap_used,
    clippy::needless_pass_by_value,
    clippy::unused_self,
    reason = "a test that fails says where"
)]

use std::sync::LazyLock;

use kube::config::{KubeConfigOptions, Kubeconfig};
use portcullis_controllers::cluster::{LoadBalancerSettings, LoadBalancers, ProposedClusters};
use portcullis_kube_api::cluster::{Flavour, crds};
use portcullis_testkit::parts::kubernetes::Kubernetes;
use portcullis_testkit::{eventually, kubernetes};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

static TYPES: LazyLock<&'static Kubernetes> = LazyLock::new(|| {
    let kubernetes = kubernetes();
    let network = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "labclusters.infrastructure.cluster.x-k8s.io"},
        "spec": {
            "group": "infrastructure.cluster.x-k8s.io", "scope": "Namespaced",
            "names": {"kind": "LabCluster", "plural": "labclusters"},
            "versions": [{"name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}],
        },
    });
    let all: Vec<String> = crds(Flavour::Proposed).iter().chain([&network]).map(Value::to_string).collect();
    kubernetes.apply_types(&all.join("\n---\n")).unwrap();
    kubernetes
});

struct Scene {
    name: &'static str,
    tasks: Vec<JoinHandle<()>>,
}

impl Drop for Scene {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

impl Scene {
    async fn new(name: &'static str) -> Self {
        let kubernetes = *TYPES;
        kubernetes.kubectl(&["create", "namespace", name]).unwrap();
        let file = Kubeconfig::read_from(kubernetes.kubeconfig()).unwrap();
        let config = kube::Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await.unwrap();
        let client = kube::Client::try_from(config).unwrap();
        let settings = LoadBalancerSettings {
            flavour: Flavour::Proposed,
            namespace: Some(name.to_owned()),
            concurrency: 4,
            probe: None,
            host: "test".to_owned(),
        };
        let clusters = ProposedClusters::new(client.clone(), Some(name.to_owned()));
        let balancers = LoadBalancers::new(client, settings);
        Scene { name, tasks: vec![tokio::spawn(clusters.run()), tokio::spawn(balancers.run())] }
    }

    fn apply(&self, api: &str, kind: &str, name: &str, spec: Value) {
        let object = json!({
            "apiVersion": api, "kind": kind, "metadata": {"name": name, "namespace": self.name}, "spec": spec,
        });
        TYPES.apply(&object.to_string()).unwrap();
    }

    fn cluster(&self, control_plane: Value) {
        let network =
            json!({"apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "LabCluster", "name": "c"});
        let spec = json!({"controlPlane": control_plane, "infrastructureRef": network});
        self.apply("cluster.x-k8s.io/v1alpha4", "Cluster", "c", spec);
    }

    fn plane(&self, spec: Value) {
        self.apply("controlplane.cluster.x-k8s.io/v1alpha4", "KubeadmControlPlane", "k", spec);
    }

    fn balancer(&self, spec: Value) {
        let reference =
            json!({"apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "AWSNLB", "name": "nlb"});
        let mut all = json!({"clusterName": "c", "infrastructureRef": reference});
        all.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
        self.apply("infrastructure.cluster.x-k8s.io/v1alpha4", "AWSNLB", "nlb", json!({}));
        self.apply("cluster.x-k8s.io/v1alpha4", "LoadBalancer", "lb", all);
    }

    fn get(&self, kind: &str, name: &str) -> Value {
        let found = TYPES.kubectl(&["--namespace", self.name, "get", kind, name, "-o", "json"]);
        found.map_or(Value::Null, |text| serde_json::from_str(&text).unwrap())
    }

    fn status(&self, kind: &str, name: &str, status: &Value) {
        let patch = json!({"status": status}).to_string();
        let arguments = [
            "--namespace",
            self.name,
            "patch",
            kind,
            name,
            "--subresource=status",
            "--type=merge",
            "-p",
            &patch,
        ];
        TYPES.kubectl(&arguments).unwrap();
    }

    fn condition(&self, kind: &str, name: &str, type_: &str) -> String {
        let found = self.get(kind, name);
        let conditions = found["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let found = conditions.iter().find(|condition| condition["type"] == type_);
        found.map_or_else(String::new, |condition| {
            format!("{} {}", condition["status"].as_str().unwrap(), condition["reason"].as_str().unwrap())
        })
    }
}

const CLUSTERS: &str = "clusters.cluster.x-k8s.io";
const PLANES: &str = "kubeadmcontrolplanes.controlplane.cluster.x-k8s.io";
const BALANCERS: &str = "loadbalancers.cluster.x-k8s.io";

fn endpoint(host: &str) -> Value {
    json!({"host": host, "port": 443})
}

/// As the proposal's example has it, in the group of Clusters.
fn provider() -> Value {
    json!({"apiGroup": "cluster.x-k8s.io", "kind": "KubeadmControlPlane", "name": "k"})
}

fn load_balancer() -> Value {
    json!({"apiGroup": "cluster.x-k8s.io", "kind": "LoadBalancer", "name": "lb"})
}

#[tokio::test(flavor = "multi_thread")]
async fn endpoint_and_control_plane_of_others() {
    let scene = Scene::new("proposed-others").await;
    scene.cluster(json!({"endpoint": endpoint("api.example.com")}));
    eventually("it is not ready without a kubeconfig", || {
        scene.condition(CLUSTERS, "c", "ControlPlaneReady") == "False NotAnswering"
    });
    assert_eq!(scene.condition(CLUSTERS, "c", "ControlPlaneInitialized"), "True ManagedByOthers");
    // The control plane that is there: this one.
    let file = format!("--from-file=value={}", TYPES.kubeconfig().display());
    TYPES
        .kubectl(&["--namespace", scene.name, "create", "secret", "generic", "c-kubeconfig", &file])
        .unwrap();
    eventually("it answers", || scene.condition(CLUSTERS, "c", "ControlPlaneReady") == "True Answering");
    assert_eq!(scene.get(CLUSTERS, "c")["status"]["controlPlaneReady"], true);
}

#[tokio::test(flavor = "multi_thread")]
async fn endpoint_of_others() {
    let scene = Scene::new("proposed-endpoint").await;
    scene.plane(json!({"loadBalancerRef": load_balancer()}));
    scene.balancer(json!({}));
    scene.cluster(json!({"endpoint": endpoint("api.example.com"), "providerRef": provider()}));
    eventually("the control plane has it", || {
        scene.get(PLANES, "k")["spec"]["endpoint"] == endpoint("api.example.com")
    });
    eventually("the load balancer has it", || {
        scene.get(BALANCERS, "lb")["spec"]["endpoint"] == endpoint("api.example.com")
    });
    eventually("its provider has it", || {
        scene.get("awsnlb", "nlb")["spec"]["assignment"]["endpoint"] == endpoint("api.example.com")
    });
    assert_eq!(scene.condition(CLUSTERS, "c", "ControlPlaneReady"), "False WaitingForControlPlane");
    scene.status(PLANES, "k", &json!({"ready": true, "initialized": true}));
    eventually("it is as ready as its control plane", || {
        scene.condition(CLUSTERS, "c", "ControlPlaneReady") == "True Ready"
            && scene.condition(CLUSTERS, "c", "ControlPlaneInitialized") == "True Initialized"
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn endpoint_of_the_provider() {
    let scene = Scene::new("proposed-provider").await;
    scene.cluster(json!({"providerRef": provider()}));
    scene.plane(json!({"loadBalancerRef": load_balancer()}));
    scene.balancer(json!({}));
    eventually("it is waited for", || {
        scene.condition(PLANES, "k", "EndpointReady") == "False WaitingForEndpoint"
    });
    eventually("the provider is asked", || scene.get("awsnlb", "nlb")["spec"].get("assignment").is_some());
    scene.status("awsnlb", "nlb", &json!({"address": "nlb.example.com", "members": [], "conditions": []}));
    let known = json!({"host": "nlb.example.com", "port": 6443});
    eventually("the load balancer has it", || scene.get(BALANCERS, "lb")["spec"]["endpoint"] == known);
    eventually("the control plane has it", || scene.get(PLANES, "k")["spec"]["endpoint"] == known);
    eventually("the Cluster has it", || {
        scene.get(CLUSTERS, "c")["spec"]["controlPlane"]["endpoint"] == known
    });
    eventually("that is told", || scene.condition(PLANES, "k", "EndpointReady") == "True Known");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_reference_it_is_the_networks() {
    let scene = Scene::new("proposed-fallback").await;
    scene.apply(
        "infrastructure.cluster.x-k8s.io/v1",
        "LabCluster",
        "c",
        json!({"controlPlaneEndpoint": endpoint("net.example.com")}),
    );
    scene.cluster(json!({"providerRef": provider()}));
    scene.plane(json!({}));
    eventually("the control plane has it", || {
        scene.get(PLANES, "k")["spec"]["endpoint"] == endpoint("net.example.com")
    });
    eventually("the Cluster has it", || {
        scene.get(CLUSTERS, "c")["spec"]["controlPlane"]["endpoint"] == endpoint("net.example.com")
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mismatch_changes_nothing() {
    let scene = Scene::new("proposed-mismatch").await;
    scene.cluster(json!({"endpoint": endpoint("one.example.com"), "providerRef": provider()}));
    scene.plane(json!({"endpoint": endpoint("two.example.com"), "loadBalancerRef": load_balancer()}));
    scene.balancer(json!({"endpoint": endpoint("three.example.com")}));
    eventually("the Cluster says so", || {
        scene.condition(CLUSTERS, "c", "ControlPlaneReady") == "False EndpointMismatch"
    });
    eventually("the load balancer says so", || {
        scene.condition(BALANCERS, "lb", "EndpointReady") == "False EndpointMismatch"
    });
    assert_eq!(scene.get(CLUSTERS, "c")["spec"]["controlPlane"]["endpoint"], endpoint("one.example.com"));
    assert_eq!(scene.get(PLANES, "k")["spec"]["endpoint"], endpoint("two.example.com"));
    assert!(scene.get("awsnlb", "nlb")["spec"].get("assignment").is_none(), "nothing is made");
}
