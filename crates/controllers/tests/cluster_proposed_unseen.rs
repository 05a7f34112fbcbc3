//! The proposal's shapes, for somebody who may not see everything that is named in them.

#![allow(clippy::unwrap_used, reason = "a test that fails says where")]

use kube::config::{KubeConfigOptions, Kubeconfig};
use portcullis_controllers::cluster::ProposedClusters;
use portcullis_kube_api::cluster::{Flavour, crds};
use portcullis_testkit::{eventually, kubernetes};
use serde_json::{Value, json};

const CLUSTERS: &str = "clusters.cluster.x-k8s.io";

/// A network that nobody here may see is not taken for one that is not there: it is told, and the endpoint is not decided without it.
#[tokio::test(flavor = "multi_thread")]
async fn a_network_that_may_not_be_seen_is_told() {
    let kubernetes = kubernetes();
    let network = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "secretnetworks.hidden.example.com"},
        "spec": {
            "group": "hidden.example.com", "scope": "Namespaced",
            "names": {"kind": "SecretNetwork", "plural": "secretnetworks"},
            "versions": [{"name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}],
        },
    });
    let all: Vec<String> = crds(Flavour::Proposed).iter().chain([&network]).map(Value::to_string).collect();
    kubernetes.apply_types(&all.join("\n---\n")).unwrap();
    let role = |groups: &[&str]| {
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "half-blind"},
            "rules": [{"apiGroups": groups, "resources": ["*"], "verbs": ["*"]}],
        })
    };
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": {"name": "half-blind"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "half-blind"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "half-blind"}],
    });
    let endpoint = |host: &str| json!({"host": host, "port": 443});
    let object = |api: &str, kind: &str, name: &str, spec: Value| json!({"apiVersion": api, "kind": kind, "metadata": {"name": name, "namespace": "default"}, "spec": spec});
    let reference = json!({"apiGroup": "hidden.example.com", "kind": "SecretNetwork", "name": "net"});
    let plane =
        json!({"apiGroup": "controlplane.cluster.x-k8s.io", "kind": "KubeadmControlPlane", "name": "k"});
    let seen = ["cluster.x-k8s.io", "controlplane.cluster.x-k8s.io", ""];
    for object in [
        role(&seen),
        binding,
        object(
            "hidden.example.com/v1",
            "SecretNetwork",
            "net",
            json!({"controlPlaneEndpoint": endpoint("net.example.com")}),
        ),
        object("controlplane.cluster.x-k8s.io/v1alpha4", "KubeadmControlPlane", "k", json!({})),
        object(
            "cluster.x-k8s.io/v1alpha4",
            "Cluster",
            "c",
            json!({
                "controlPlane": {"endpoint": endpoint("other.example.com"), "providerRef": plane},
                "infrastructureRef": reference,
            }),
        ),
    ] {
        kubernetes.apply(&object.to_string()).unwrap();
    }
    let file = Kubeconfig::read_from(kubernetes.user("half-blind", None).unwrap()).unwrap();
    let config = kube::Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await.unwrap();
    let clusters = ProposedClusters::new(kube::Client::try_from(config).unwrap(), None);
    let running = tokio::spawn(clusters.run());
    let ready = || {
        let found: Value =
            serde_json::from_str(&kubernetes.kubectl(&["get", CLUSTERS, "c", "-o", "json"]).unwrap())
                .unwrap();
        let conditions = found["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let found = conditions.into_iter().find(|condition| condition["type"] == "ControlPlaneReady");
        found.unwrap_or_default()
    };
    eventually("that it cannot be seen is told", || {
        ready()["reason"] == "UnknownKind" && ready()["message"].as_str().unwrap().contains("SecretNetwork")
    });
    let plane =
        || kubernetes.kubectl(&["get", "kubeadmcontrolplane", "k", "-o", "jsonpath={.spec}"]).unwrap();
    assert!(!plane().contains("endpoint"), "nothing is decided without it: {}", plane());
    // Whoever may see it finds that the two differ.
    let all = [&seen[..], &["hidden.example.com"]].concat();
    kubernetes.apply(&role(&all).to_string()).unwrap();
    eventually("it is seen", || ready()["reason"] == "EndpointMismatch");
    running.abort();
}
