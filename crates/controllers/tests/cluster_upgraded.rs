//! Cluster API is upgraded while we run: the version that we found is not served any more.

#![allow(clippy::unwrap_used, reason = "a test that fails says where")]

use kube::config::{KubeConfigOptions, Kubeconfig};
use portcullis_controllers::cluster::{LoadBalancerSettings, LoadBalancers};
use portcullis_kube_api::cluster::{Flavour, crds};
use portcullis_testkit::parts::kubernetes::Kubernetes;
use portcullis_testkit::{ClusterApi, eventually, kubernetes};
use serde_json::{Value, json};

const MACHINE: &str = "machines.cluster.x-k8s.io";
const MAKER: &str = "haproxyloadbalancers.loadbalancer.portcullis.dev";

/// A Machine of a control plane, as a version has it.
fn machine(kubernetes: &Kubernetes, version: &str, name: &str, address: &str) {
    let made_by = match version {
        "v1beta1" => {
            json!({"apiVersion": "infrastructure.cluster.x-k8s.io/v1", "kind": "LabMachine", "name": name})
        }
        _ => json!({"apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "LabMachine", "name": name}),
    };
    let object = json!({
        "apiVersion": format!("cluster.x-k8s.io/{version}"), "kind": "Machine",
        "metadata": {
            "name": name,
            "namespace": "default",
            "labels": {
                "cluster.x-k8s.io/cluster-name": "c",
                "cluster.x-k8s.io/control-plane": "",
                "loadbalancer.cluster.x-k8s.io/name": "lb",
            },
        },
        "spec": {"clusterName": "c", "bootstrap": {"dataSecretName": "none"}, "infrastructureRef": made_by},
    });
    // What served the version before may still be asked for a moment.
    eventually("the API takes it", || kubernetes.apply(&object.to_string()).is_ok());
    let status = json!({"status": {"addresses": [{"type": "InternalIP", "address": address}]}}).to_string();
    kubernetes
        .kubectl(&["patch", MACHINE, name, "--subresource=status", "--type=merge", "-p", &status])
        .unwrap();
}

fn get(kubernetes: &Kubernetes, kind: &str, name: &str) -> Value {
    let found = kubernetes.kubectl(&["get", kind, name, "-o", "json"]);
    found.map_or(Value::Null, |text| serde_json::from_str(&text).unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn machines_join_after_their_version_was_dropped() {
    let kubernetes = kubernetes();
    ClusterApi::only_types(kubernetes, "v1beta1");
    let ours: Vec<String> = crds(Flavour::Own).iter().map(Value::to_string).collect();
    kubernetes.apply_types(&ours.join("\n---\n")).unwrap();
    for object in [
        json!({
            "apiVersion": "cluster.x-k8s.io/v1beta1", "kind": "Cluster",
            "metadata": {"name": "c", "namespace": "default"},
            "spec": {"clusterNetwork": {"apiServerPort": 6443}},
        }),
        json!({
            "apiVersion": "loadbalancer.portcullis.dev/v1alpha1", "kind": "HAProxyLoadBalancer",
            "metadata": {"name": "lb", "namespace": "default"}, "spec": {},
        }),
        json!({
            "apiVersion": "loadbalancer.portcullis.dev/v1alpha1", "kind": "LoadBalancer",
            "metadata": {"name": "lb", "namespace": "default"},
            "spec": {
                "clusterName": "c",
                "infrastructureRef": {
                    "apiGroup": "loadbalancer.portcullis.dev", "kind": "HAProxyLoadBalancer", "name": "lb",
                },
            },
        }),
    ] {
        kubernetes.apply(&object.to_string()).unwrap();
    }
    machine(kubernetes, "v1beta1", "one", "10.0.0.1");
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
    let members = || {
        let found = get(kubernetes, MAKER, "lb");
        let members = found["spec"]["assignment"]["members"].as_array().cloned().unwrap_or_default();
        members.iter().map(|member| member["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let hook = "pre-drain.delete.hook.machine.cluster.x-k8s.io/lb";
    let is_held = |name: &str| get(kubernetes, MACHINE, name)["metadata"]["annotations"][hook].is_string();
    eventually("it is a member", || members() == ["one"]);
    eventually("it is held", || is_held("one"));

    ClusterApi::only_types(kubernetes, "v1beta2");
    eventually("the old version is gone", || {
        kubernetes.kubectl(&["get", "--raw", "/apis/cluster.x-k8s.io/v1beta1/machines"]).is_err()
    });
    machine(kubernetes, "v1beta2", "two", "10.0.0.2");
    eventually("who comes after that is seen", || members() == ["one", "two"]);
    eventually("and held", || is_held("two"));
    // Who was there before is the same as it was, and leaves as others do.
    kubernetes.kubectl(&["delete", MACHINE, "one", "--wait=false"]).unwrap();
    eventually("who goes is not a member any more", || members() == ["two"]);
    running.abort();
}
