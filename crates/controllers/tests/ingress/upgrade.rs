//! From a version that knew nothing of ranges to one that does, and back.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use k8s_openapi::api::core::v1::Service;
use kube::api::Api;
use portcullis_controllers::router::Platform;
use portcullis_kube_api::SOURCE_RANGES;
use portcullis_kube_api::ingress::CRD;
use portcullis_testkit::parts::Namespace;
use portcullis_testkit::parts::kubernetes::Kubernetes;
use portcullis_testkit::{eventually, kubernetes_in};
use serde_json::{Value, json};

use crate::cluster::{Cluster, definition};

/// The type as it was before there were ranges: whatever is given of them is dropped.
fn older_type(kubernetes: &Kubernetes) -> String {
    let older = definition(kubernetes, |definition| forget(definition, "allowedSourceRanges"));
    assert!(!older.contains("\"allowedSourceRanges\":"));
    older
}

fn forget(value: &mut Value, key: &str) {
    match value {
        Value::Object(entries) => {
            entries.remove(key);
            for value in entries.values_mut() {
                forget(value, key);
            }
        }
        Value::Array(entries) => {
            entries.retain(|entry| !entry["rule"].as_str().is_some_and(|rule| rule.contains(key)));
            for value in entries {
                forget(value, key);
            }
        }
        _ => {}
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_annotation_outlives_the_upgrade_and_is_moved_then() {
    let kubernetes = kubernetes_in(&Namespace::host());
    let cluster = Cluster::on(&kubernetes, &older_type(&kubernetes), "upgrade");
    // Set-up: an older version, and an administrator who limits clients by the annotation.
    let older = cluster.start(Platform::BareMetal).await;
    cluster.apply_alone("shop", json!({"scope": "External"}));
    eventually("a Service", || !cluster.service("shop").is_null());
    cluster.edit_service("shop", &json!({"metadata": {"annotations": {SOURCE_RANGES: "192.0.2.0/24"}}}));

    // During the upgrade nothing touches what limits clients.
    let services: Api<Service> = Api::namespaced(cluster.client().await, &cluster.routers());
    let upgrading = Arc::new(AtomicBool::new(true));
    let watching = tokio::spawn({
        let upgrading = Arc::clone(&upgrading);
        async move {
            let mut looks = 0;
            while upgrading.load(Ordering::Relaxed) {
                let found = services.get("router-shop").await.unwrap();
                let annotation = found.metadata.annotations.unwrap_or_default().get(SOURCE_RANGES).cloned();
                assert_eq!(annotation.as_deref(), Some("192.0.2.0/24"));
                assert_eq!(found.spec.unwrap().load_balancer_source_ranges, None);
                looks += 1;
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            looks
        }
    });
    kubernetes.apply_types(CRD).unwrap();
    older.abort();
    let newer = cluster.start(Platform::BareMetal).await;
    cluster.wait_for("shop", "Progressing", "True/IngressControllerProgressing");
    cluster.wait_for("shop", "EvaluationConditionsDetected", "True/OperandsEvaluationConditionsDetected");
    assert_eq!(cluster.effective("shop"), json!(["192.0.2.0/24"]));
    upgrading.store(false, Ordering::Relaxed);
    assert!(watching.await.unwrap() > 10, "it was looked at all the time");

    // The administrator moves the ranges; the annotation goes by itself.
    cluster.apply_alone("shop", json!({"scope": "External", "allowedSourceRanges": ["192.0.2.0/24"]}));
    cluster.wait_for("shop", "EvaluationConditionsDetected", "False/NoEvaluationCondition");
    cluster.wait_for("shop", "Progressing", "False/");
    let service = cluster.service("shop");
    assert_eq!(service["spec"]["loadBalancerSourceRanges"], json!(["192.0.2.0/24"]));
    assert!(service["metadata"]["annotations"].get(SOURCE_RANGES).is_none());

    // Back to a type without ranges: what limits clients stays, and is told.
    kubernetes.apply_types(&older_type(&kubernetes)).unwrap();
    let dropped = |object: Value| {
        object.pointer("/spec/endpointPublishingStrategy/loadBalancer/allowedSourceRanges").is_none()
    };
    eventually("the ranges are dropped", || {
        cluster.apply_alone("shop", json!({"scope": "External", "dnsManagementPolicy": "Unmanaged"}));
        dropped(cluster.controller("shop"))
    });
    cluster.wait_for("shop", "EvaluationConditionsDetected", "True/OperandsEvaluationConditionsDetected");
    assert_eq!(cluster.service("shop")["spec"]["loadBalancerSourceRanges"], json!(["192.0.2.0/24"]));
    newer.abort();
}
