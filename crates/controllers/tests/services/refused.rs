//! What cannot be is told by an Event that says which field or annotation it is, and its value; others go on.

use portcullis_kube_api::FINALIZER;
use portcullis_testkit::eventually;
use serde_json::{Value, json};

use crate::scene::{PREFIX, Scene, set};

const FAILED: &str = "SyncLoadBalancerFailed";

#[tokio::test(flavor = "multi_thread")]
async fn a_service_that_cannot_be_is_told_why_and_others_go_on() {
    let scene = Scene::new("wrong").await;
    let _running = scene.start();
    let annotation =
        |key: &str, value: &str| json!({"metadata": {"annotations": {format!("{PREFIX}{key}"): value}}});
    let rows: Vec<(&str, Value, String)> = vec![
        (
            "affinity",
            json!({"spec": {"sessionAffinity": "ClientIP"}}),
            "spec.sessionAffinity is `ClientIP`, ".to_owned(),
        ),
        (
            "fixed",
            json!({"spec": {"loadBalancerIP": "192.0.2.1"}}),
            "spec.loadBalancerIP is `192.0.2.1`, ".to_owned(),
        ),
        (
            "sctp",
            json!({"spec": {"ports": [{"name": "a", "port": 80, "protocol": "SCTP"}]}}),
            "port 80 is for SCTP, ".to_owned(),
        ),
        (
            "no-node-port",
            json!({"spec": {"allocateLoadBalancerNodePorts": false}}),
            "port 80 has no node port, ".to_owned(),
        ),
        ("scheme", annotation("scheme", "public"), format!("annotation {PREFIX}scheme is `public`: ")),
        (
            "classic",
            annotation("connection-idle-timeout", "60"),
            format!("annotation {PREFIX}connection-idle-timeout is `60`: "),
        ),
        (
            "interval",
            annotation("healthcheck-interval", "often"),
            format!("annotation {PREFIX}healthcheck-interval is `often`: "),
        ),
        (
            "group",
            annotation("security-groups", "nobody"),
            format!("annotation {PREFIX}security-groups names nobody, which does not exist."),
        ),
        (
            "subnet",
            annotation("subnets", "subnet-none"),
            format!("annotation {PREFIX}subnets names `subnet-none`, which is not in vpc-1."),
        ),
        // What Kubernetes takes for a range, and nobody else.
        (
            "range",
            json!({"spec": {"loadBalancerSourceRanges": ["010.0.0.0/8"]}}),
            "spec.loadBalancerSourceRanges[0]: `010.0.0.0/8` ".to_owned(),
        ),
        ("name", annotation("name", "a_b"), format!("annotation {PREFIX}name is `a_b`: ")),
    ];
    for (name, more, _) in &rows {
        scene.apply(name, more);
    }
    scene.apply("right", &json!({}));
    scene.wait_for_address("right");
    for (name, _, what) in &rows {
        scene.wait_for_event(name, FAILED);
        let told = scene.told(name, FAILED);
        let start = format!("Error syncing load balancer: Service wrong/{name}: {what}");
        assert!(
            matches!(told.as_slice(), [(kind, words)] if kind == "Warning" && words.starts_with(&start)),
            "{start}, but: {told:?}"
        );
        assert_eq!(scene.address(name), None, "{name}");
        assert_eq!(scene.balancer(name), None, "{name}");
        assert_eq!(scene.group(name), None, "{name}");
    }
    assert_eq!(scene.fake.state().load_balancers.len(), 1);

    // Corrected, each is as any other, and one that is not can go.
    scene.apply("scheme", &annotation("scheme", "internal"));
    scene.wait_for_address("scheme");
    assert_eq!(scene.finalizers("scheme"), [FINALIZER]);
    for (name, ..) in &rows {
        scene.delete(name);
    }
    for (name, ..) in &rows {
        scene.wait_until_gone(name);
    }
    assert_eq!(scene.fake.state().load_balancers.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_right_stays_when_it_is_made_wrong() {
    let scene = Scene::new("spoilt").await;
    let _running = scene.start();
    scene.apply("web", &json!({}));
    scene.wait_for_event("web", "EnsuredLoadBalancer");
    let (world, address) = (scene.fake.state(), scene.address("web"));
    let wrong = json!({
        "metadata": {"annotations": {format!("{PREFIX}healthcheck-port"): "none"}},
        "spec": {"ports": [{"name": "a", "port": 81}]},
    });
    scene.apply("web", &wrong);
    scene.wait_for_event("web", FAILED);
    assert_eq!(scene.fake.state(), world, "nothing of it is done");
    assert_eq!(scene.address("web"), address);
    // It is deleted as any other is.
    scene.delete("web");
    scene.wait_until_gone("web");
    assert!(scene.is_untouched());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_aws_does_not_allow_is_told_with_what_to_do() {
    let scene = Scene::new("denied").await;
    let _running = scene.start();
    scene.fake.deny("CreateLoadBalancer");
    scene.apply("web", &json!({}));
    scene.wait_for_event("web", FAILED);
    let told = scene.told("web", FAILED);
    assert!(
        told[0].1.starts_with(
            "Error syncing load balancer: Service denied/web: AWS refused. CreateLoadBalancer: "
        ),
        "{told:?}"
    );
    assert!(told[0].1.contains("Allow CreateLoadBalancer to the role"), "{told:?}");
    // It is tried again, and others' deletion goes on.
    scene.fake.allow("CreateLoadBalancer");
    scene.wait_for_address("web");

    scene.fake.deny("DeleteLoadBalancer");
    scene.delete("web");
    scene.wait_for_event("web", "DeleteLoadBalancerFailed");
    let told = scene.told("web", "DeleteLoadBalancerFailed");
    assert!(
        matches!(told.as_slice(), [(kind, words)] if kind == "Warning" && words.starts_with("Error deleting load balancer: Service denied/web: AWS refused. DeleteLoadBalancer: ")),
        "{told:?}"
    );
    assert_eq!(scene.finalizers("web"), [FINALIZER], "it does not go before its load balancer");
    scene.fake.allow("DeleteLoadBalancer");
    scene.wait_until_gone("web");
    assert!(scene.is_untouched());
    assert!(scene.reasons("web").is_superset(&set(["DeletingLoadBalancer", "DeletedLoadBalancer"])));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_cannot_be_added_is_told_of_as_such() {
    let scene = Scene::new("hostfail").await;
    let _running = scene.start();
    scene.apply("web", &json!({}));
    scene.wait_for_event("web", "EnsuredLoadBalancer");
    scene.fake.deny("RegisterTargets");
    scene.add_node(3, &json!({}));
    scene.wait_for_event("web", "UpdateLoadBalancerFailed");
    let told = scene.told("web", "UpdateLoadBalancerFailed");
    assert!(
        matches!(told.as_slice(), [(kind, words)] if kind == "Warning" && words.starts_with("Error updating load balancer with new hosts: Service hostfail/web: ")),
        "{told:?}"
    );
    assert_eq!(scene.targets("web"), set(["i-1", "i-2"]));
    scene.fake.allow("RegisterTargets");
    eventually("it is tried again", || scene.targets("web") == set(["i-1", "i-2", "i-3"]));
}
