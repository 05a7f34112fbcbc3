//! Which nodes load balancers send to.

use portcullis_testkit::eventually;
use serde_json::json;

use crate::scene::{PREFIX, Scene, set};

#[tokio::test(flavor = "multi_thread")]
async fn nodes_come_and_go() {
    let scene = Scene::new("hosts").await;
    let _running = scene.start();
    scene.apply("web", &json!({}));
    scene.wait_for_event("web", "EnsuredLoadBalancer");
    assert_eq!(scene.targets("web"), set(["i-1", "i-2"]));
    let wait_for = |what: &str, expected: &[&str]| {
        let expected = expected.iter().map(|&id| id.to_owned()).collect();
        eventually(&format!("{expected:?} are sent to: {what}"), || scene.targets("web") == expected);
    };
    let kubectl = |arguments: &[&str]| scene.kubernetes.kubectl(arguments).unwrap();
    let (second, third) = (scene.node(2), scene.node(3));

    scene.add_node(3, &json!({}));
    wait_for("one comes", &["i-1", "i-2", "i-3"]);
    scene.wait_for_event("web", "UpdatedLoadBalancer");
    let words = "Updated load balancer with new hosts".to_owned();
    assert_eq!(scene.told("web", "UpdatedLoadBalancer"), [("Normal".to_owned(), words)]);

    let label = "node.kubernetes.io/exclude-from-external-load-balancers";
    kubectl(&["label", "node", &second, &format!("{label}=")]);
    wait_for("one is excluded", &["i-1", "i-3"]);
    kubectl(&["label", "node", &second, &format!("{label}-")]);
    wait_for("it is not any more", &["i-1", "i-2", "i-3"]);

    let taint = "ToBeDeletedByClusterAutoscaler";
    kubectl(&["taint", "node", &second, &format!("{taint}=1:NoSchedule")]);
    wait_for("one is about to be taken away", &["i-1", "i-3"]);
    kubectl(&["taint", "node", &second, &format!("{taint}-")]);
    wait_for("it is not any more", &["i-1", "i-2", "i-3"]);

    // Other taints, and that no pod may come, say nothing about traffic.
    kubectl(&["cordon", &second]);
    kubectl(&["taint", "node", &second, "other=1:NoSchedule"]);
    // Nor does what a kubelet tells all the time.
    scene.fake.clear_calls();
    let heartbeat = json!({"status": {"conditions": [
        {"type": "Ready", "status": "True", "lastHeartbeatTime": "2026-01-01T00:00:00Z"}
    ]}});
    let patch = ["patch", "node", &second, "--subresource=status", "--type=merge", "-p"];
    kubectl(&[&patch[..], &[&heartbeat.to_string()]].concat());
    // By the time one that came later is done, all of it was seen.
    kubectl(&["label", "node", &third, "scene-"]);
    wait_for("one is of another kind", &["i-1", "i-2"]);
    assert_eq!(scene.fake.mutating_calls(), 1, "{:?}", scene.fake.counts());

    // One that is deleted and not gone yet.
    kubectl(&[
        "patch",
        "node",
        &second,
        "--type=merge",
        "-p",
        r#"{"metadata": {"finalizers": ["test/hold"]}}"#,
    ]);
    kubectl(&["delete", "node", &second, "--wait=false"]);
    wait_for("one goes", &["i-1"]);
    kubectl(&["patch", "node", &second, "--type=merge", "-p", r#"{"metadata": {"finalizers": null}}"#]);
    assert_eq!(
        scene.reasons("web"),
        set(["EnsuringLoadBalancer", "EnsuredLoadBalancer", "UpdatedLoadBalancer"]),
        "nothing was ensured anew"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn without_nodes_it_is_told_and_they_are_waited_for() {
    let scene = Scene::new("empty").await;
    for number in 1..=2 {
        scene.kubernetes.kubectl(&["delete", "node", &scene.node(number)]).unwrap();
    }
    let _running = scene.start();
    scene.apply("web", &json!({}));
    scene.wait_for_event("web", "EnsuredLoadBalancer");
    let words = "There are no available nodes for LoadBalancer".to_owned();
    assert_eq!(scene.told("web", "UnAvailableLoadBalancer"), [("Warning".to_owned(), words)]);
    assert!(scene.address("web").is_some());
    assert!(scene.targets("web").is_empty());
    scene.add_node(1, &json!({}));
    eventually("it is sent to", || scene.targets("web") == set(["i-1"]));
    // Now that it is known where they are, it may go there only, and they let it in.
    let port = scene.node_port("web", 80);
    let expected = [format!("tcp {port}-{port} sg-nodes")];
    eventually("it goes to the nodes only", || scene.group("web").unwrap().lets_out() == expected);
    eventually("they let it in", || scene.nodes_let_in().len() == 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_chooses_its_nodes_by_labels() {
    let scene = Scene::new("labels").await;
    scene.add_node(3, &json!({"metadata": {"labels": {"zone": "edge"}}}));
    let _running = scene.start();
    let labels =
        |labels: &str| json!({"metadata": {"annotations": {format!("{PREFIX}target-node-labels"): labels}}});
    scene.apply("all", &json!({}));
    scene.apply("edge", &labels("scene=labels,zone=edge"));
    scene.wait_for_address("all");
    scene.wait_for_address("edge");
    assert_eq!(scene.targets("all"), set(["i-1", "i-2", "i-3"]));
    assert_eq!(scene.targets("edge"), set(["i-3"]));
    scene.kubernetes.kubectl(&["label", "node", &scene.node(1), "zone=edge"]).unwrap();
    eventually("both are sent to", || scene.targets("edge") == set(["i-1", "i-3"]));
    scene.apply("edge", &labels("scene=labels,zone=core"));
    eventually("nobody is", || scene.targets("edge").is_empty());
    assert_eq!(scene.targets("all"), set(["i-1", "i-2", "i-3"]));
}

/// Of a machine that was replaced, the node may stay for a while, with the address that another one has now.
#[tokio::test(flavor = "multi_thread")]
async fn two_nodes_with_one_address_do_not_stop_everything() {
    let scene = Scene::new("twins").await;
    let same = json!({"status": {"addresses": [{"type": "InternalIP", "address": "10.0.1.1"}]}});
    scene.add_node(3, &same);
    let _running = scene.start();
    scene.apply("web", &json!({}));
    scene.wait_for_address("web");
    // Which of them it is depends on when they were made, which is told by the second.
    assert!(scene.targets("web") == set(["i-1", "i-2"]) || scene.targets("web") == set(["i-2", "i-3"]));
}
