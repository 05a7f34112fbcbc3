//! From the first to the last day of an `IngressController`.

use portcullis_controllers::router::Platform;
use portcullis_kube_api::SOURCE_RANGES;
use portcullis_kube_api::ingress::AUTO_DELETE;
use portcullis_testkit::{Refusing, eventually, kubernetes};
use serde_json::{Value, json};

use crate::cluster::Cluster;

fn ranges(cluster: &Cluster<'_>, name: &str) -> Value {
    cluster.service(name)["spec"]["loadBalancerSourceRanges"].clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn ranges_come_change_and_go() {
    let cluster = Cluster::new("life");
    let running = cluster.start(Platform::BareMetal).await;
    let apply =
        |ranges: Value| cluster.apply("shop", json!({"scope": "External", "allowedSourceRanges": ranges}));
    apply(json!(["192.0.2.0/24"]));
    eventually("a Service", || ranges(&cluster, "shop") == json!(["192.0.2.0/24"]));
    eventually("a Deployment", || cluster.deployment("shop")["spec"]["replicas"] == 2);
    cluster.wait_for("shop", "LoadBalancerProgressing", "False/LoadBalancerNotProgressing");
    cluster.wait_for("shop", "LoadBalancerReady", "False/LoadBalancerPending");
    assert_eq!(cluster.condition("shop", "Admitted"), "True/Valid");
    assert_eq!(cluster.controller("shop")["status"]["domain"], "shop.example.com");

    apply(json!(["198.51.100.0/24", "2001:db8::/32"]));
    eventually("other ranges", || ranges(&cluster, "shop") == json!(["198.51.100.0/24", "2001:db8::/32"]));
    eventually("in the status, too", || {
        cluster.effective("shop") == json!(["198.51.100.0/24", "2001:db8::/32"])
    });

    // By hand: put back.
    cluster.edit_service("shop", &json!({"spec": {"loadBalancerSourceRanges": ["0.0.0.0/0"]}}));
    eventually("the field is put back", || {
        ranges(&cluster, "shop") == json!(["198.51.100.0/24", "2001:db8::/32"])
    });
    cluster.edit_service("shop", &json!({"metadata": {"annotations": {SOURCE_RANGES: ""}}}));
    eventually("the annotation goes", || {
        cluster.service("shop")["metadata"]["annotations"].get(SOURCE_RANGES).is_none()
    });

    // Gone from the spec: left alone, and told.
    apply(json!([]));
    cluster.wait_for("shop", "EvaluationConditionsDetected", "True/OperandsEvaluationConditionsDetected");
    assert_eq!(ranges(&cluster, "shop"), json!(["198.51.100.0/24", "2001:db8::/32"]));
    cluster.edit_service("shop", &json!({"spec": {"loadBalancerSourceRanges": null}}));
    cluster.wait_for("shop", "EvaluationConditionsDetected", "False/NoEvaluationCondition");
    eventually("nothing counts", || cluster.effective("shop").is_null());

    // The Service comes back.
    apply(json!(["192.0.2.0/24"]));
    eventually("the first ranges", || ranges(&cluster, "shop") == json!(["192.0.2.0/24"]));
    let uid = cluster.service("shop")["metadata"]["uid"].clone();
    cluster.kubectl(&["delete", "service", "router-shop", "-n", &cluster.routers()]);
    eventually("another Service", || {
        let service = cluster.service("shop");
        service["metadata"]["uid"].is_string() && service["metadata"]["uid"] != uid
    });
    assert_eq!(ranges(&cluster, "shop"), json!(["192.0.2.0/24"]));

    cluster.kubectl(&["delete", "ingresscontroller", "shop", "-n", &cluster.controllers()]);
    assert!(cluster.service("shop").is_null());
    assert!(cluster.controller("shop").is_null());
    eventually("the Deployment is gone", || cluster.deployment("shop").is_null());
    running.abort();
}

/// A load balancer is only replaced by who says so.
#[tokio::test(flavor = "multi_thread")]
async fn another_scope_waits() {
    let cluster = Cluster::new("scope");
    let running = cluster.start(Platform::Aws).await;
    cluster.apply("shop", json!({"scope": "External"}));
    cluster.wait_for("shop", "LoadBalancerProgressing", "False/LoadBalancerNotProgressing");
    let uid = || cluster.service("shop")["metadata"]["uid"].clone();
    let first = uid();
    cluster.apply("shop", json!({"scope": "Internal", "allowedSourceRanges": ["192.0.2.0/24"]}));
    cluster.wait_for("shop", "LoadBalancerProgressing", "True/OperandsProgressing");
    let message = cluster.full_condition("shop", "LoadBalancerProgressing")["message"].to_string();
    assert!(message.contains("kubectl -n scope-routers delete service router-shop"), "{message}");
    eventually("ranges do not wait for it", || ranges(&cluster, "shop") == json!(["192.0.2.0/24"]));
    assert_eq!(uid(), first);
    assert_eq!(cluster.condition("shop", "EvaluationConditionsDetected"), "False/NoEvaluationCondition");

    // As the message says.
    cluster.kubectl(&["-n", "scope-routers", "delete", "service", "router-shop"]);
    cluster.wait_for("shop", "LoadBalancerProgressing", "False/LoadBalancerNotProgressing");
    let annotations = cluster.service("shop")["metadata"]["annotations"].clone();
    assert_eq!(annotations["service.beta.kubernetes.io/aws-load-balancer-internal"], "true");

    // As the administrator said beforehand; but not while only the Service says who may connect.
    let second = uid();
    let annotate = format!("{AUTO_DELETE}=");
    cluster.kubectl(&["annotate", "ingresscontroller", "shop", "-n", &cluster.controllers(), &annotate]);
    cluster.apply("shop", json!({"scope": "External"}));
    eventually("it waits", || {
        let message = cluster.full_condition("shop", "LoadBalancerProgressing")["message"].to_string();
        message.contains("First give the ranges of Service scope-routers/router-shop")
    });
    assert_eq!((uid(), ranges(&cluster, "shop")), (second.clone(), json!(["192.0.2.0/24"])));
    cluster.apply("shop", json!({"scope": "External", "allowedSourceRanges": ["192.0.2.0/24"]}));
    eventually("another Service", || uid().is_string() && uid() != second);
    assert_eq!(ranges(&cluster, "shop"), json!(["192.0.2.0/24"]));
    cluster.wait_for("shop", "LoadBalancerProgressing", "False/LoadBalancerNotProgressing");
    running.abort();
}

/// Somebody does not let it be deleted: that is told, and tried again until somebody does.
#[tokio::test(flavor = "multi_thread")]
async fn a_replacement_that_is_refused_is_tried_again() {
    let cluster = Cluster::new("stuck");
    let running = cluster.start(Platform::Aws).await;
    cluster.apply("shop", json!({"scope": "External"}));
    cluster.wait_for("shop", "LoadBalancerProgressing", "False/LoadBalancerNotProgressing");
    let place = (&["DELETE"][..], "services");
    let is_it = "request.namespace == 'stuck-routers'";
    let refusing = Refusing::start(kubernetes(), "stuck", place, is_it, "Not this one.");
    let delete = ["-n", "stuck-routers", "delete", "service", "router-shop", "--dry-run=server"];
    eventually("it is refused", || kubernetes().kubectl(&delete).is_err());

    let uid = || cluster.service("shop")["metadata"]["uid"].clone();
    let first = uid();
    let annotate = format!("{AUTO_DELETE}=");
    cluster.kubectl(&["annotate", "ingresscontroller", "shop", "-n", &cluster.controllers(), &annotate]);
    cluster.apply("shop", json!({"scope": "Internal"}));
    let events = ["get", "events", "-n", &cluster.controllers(), "-o", "jsonpath={.items[*].message}"];
    eventually("it is told", || {
        cluster
            .kubectl(&events)
            .contains("Service stuck-routers/router-shop is to be replaced, and cannot be deleted")
    });
    assert_eq!(uid(), first);
    drop(refusing);
    eventually("another Service", || uid().is_string() && uid() != first);
    running.abort();
}
