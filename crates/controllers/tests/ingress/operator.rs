//! The `ClusterOperator` `ingress`, where OpenShift's configuration is installed.

use std::time::Duration;

use portcullis_controllers::ingress::IngressControllers;
use portcullis_controllers::router::Platform;
use portcullis_kube_api::SOURCE_RANGES;
use portcullis_kube_api::ingress::CRD;
use portcullis_testkit::parts::Namespace;
use portcullis_testkit::{eventually, kubernetes_in};
use serde_json::{Value, json};

use crate::cluster::Cluster;

/// As much of the type as matters here.
const TYPE: &str = "
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: clusteroperators.config.openshift.io, annotations: {api-approved.kubernetes.io: https://github.com/openshift/api/pull/497}}
spec:
  group: config.openshift.io
  scope: Cluster
  names: {kind: ClusterOperator, plural: clusteroperators, singular: clusteroperator}
  versions:
    - name: v1
      served: true
      storage: true
      subresources: {status: {}}
      schema: {openAPIV3Schema: {type: object, required: [spec], x-kubernetes-preserve-unknown-fields: true}}
";

#[tokio::test(flavor = "multi_thread")]
async fn all_are_summed_up() {
    let kubernetes = kubernetes_in(&Namespace::host());
    kubernetes.apply_types(TYPE).unwrap();
    let cluster = Cluster::on(&kubernetes, CRD, "sum");
    let running = cluster.start(Platform::BareMetal).await;
    let conditions = || -> Vec<Value> {
        let found =
            kubernetes.kubectl(&["get", "clusteroperator", "ingress", "--ignore-not-found", "-o", "json"]);
        let found: Value = serde_json::from_str(&found.unwrap()).unwrap_or_default();
        found["status"]["conditions"].as_array().cloned().unwrap_or_default()
    };
    let condition = |type_: &str| -> String {
        let found = conditions().into_iter().find(|found| found["type"] == type_).unwrap_or_default();
        let text = |key: &str| found[key].as_str().unwrap_or_default().to_owned();
        format!("{}/{}", text("status"), text("reason"))
    };
    cluster.apply_alone("shop", json!({"scope": "External"}));
    eventually("the main one is missed", || condition("Available") == "False/IngressDoesNotExist");
    assert_eq!(condition("Degraded"), "True/IngressDoesNotExist");

    cluster.apply_alone("default", json!({"scope": "External"}));
    eventually("the main one is not available", || condition("Available") == "False/IngressUnavailable");
    for name in ["default", "shop"] {
        cluster.edit_service_status(
            name,
            &json!({"status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}}}),
        );
    }
    eventually("both are available", || condition("Available") == "True/IngressAvailable");
    eventually("nothing moves", || condition("Progressing") == "False/AsExpected");
    assert_eq!(condition("Degraded"), "False/IngressNotDegraded");
    assert_eq!(condition("EvaluationConditionsDetected"), "False/AsExpected");
    assert_eq!(condition("Upgradeable"), "True/IngressControllersUpgradeable");

    // Whichever of them it is, and in whichever place.
    let annotation = json!({"metadata": {"annotations": {SOURCE_RANGES: "192.0.2.0/24"}}});
    let field = json!({"metadata": {"annotations": {SOURCE_RANGES: null}}, "spec": {"loadBalancerSourceRanges": ["192.0.2.0/24"]}});
    for (edit, place) in [(annotation, SOURCE_RANGES), (field, "spec.loadBalancerSourceRanges")] {
        cluster.edit_service("shop", &edit);
        eventually(&format!("{place} is told"), || {
            let told = conditions().into_iter().find(|found| found["type"] == "EvaluationConditionsDetected");
            let message = told.unwrap_or_default()["message"].as_str().unwrap_or_default().to_owned();
            message.starts_with("IngressController shop: ") && message.contains(place)
        });
        let detected = condition("EvaluationConditionsDetected");
        assert_eq!(detected, "True/IngressControllersHaveEvaluationConditions");
        eventually("it moves", || condition("Progressing") == "True/Reconciling");
    }

    // One that waits for somebody else before it goes stops nothing.
    let finalizers = json!({"metadata": {"finalizers": ["example.com/mine"]}}).to_string();
    cluster.apply_alone("going", json!({"scope": "External"}));
    cluster.wait_for("going", "Admitted", "True/Valid");
    let namespace = cluster.controllers();
    cluster.kubectl(&[
        "patch",
        "ingresscontroller",
        "going",
        "-n",
        &namespace,
        "--type=merge",
        "-p",
        &finalizers,
    ]);
    cluster.kubectl(&["delete", "ingresscontroller", "going", "-n", &namespace, "--wait=false"]);

    // What others say there stays.
    let theirs = json!({"type": "Painted", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"});
    let all: Vec<Value> = conditions().into_iter().chain([theirs]).collect();
    let patch = json!({"status": {"conditions": all}}).to_string();
    kubernetes
        .kubectl(&[
            "patch",
            "clusteroperator",
            "ingress",
            "--subresource=status",
            "--type=merge",
            "-p",
            &patch,
        ])
        .unwrap();
    cluster.apply_alone("shop", json!({"scope": "External", "allowedSourceRanges": ["192.0.2.0/24"]}));
    eventually("it is moved", || condition("EvaluationConditionsDetected") == "False/AsExpected");
    eventually("nothing moves", || condition("Progressing") == "False/AsExpected");
    assert_eq!(condition("Painted"), "True/");
    running.abort();

    // Nothing is written by who finds nothing else to say.
    let version = || {
        let path = "jsonpath={.metadata.resourceVersion}";
        kubernetes.kubectl(&["get", "clusteroperator", "ingress", "-o", path]).unwrap()
    };
    let before = version();
    let again = IngressControllers::new(cluster.client().await, cluster.settings(Platform::BareMetal));
    let standing = again.standing();
    let running = tokio::spawn(again.run());
    eventually("all are looked at", || {
        ["default", "shop"].iter().all(|name| standing.all().contains_key(*name))
    });
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(version(), before);
    running.abort();
}
