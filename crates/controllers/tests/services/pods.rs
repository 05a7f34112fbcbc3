//! Pods as targets, by the addresses that endpoints have.

use portcullis_testkit::eventually;
use serde_json::{Value, json};

use crate::scene::{PREFIX, Scene, set};

fn slice(scene: &Scene, name: &str, service: &str, port: u16, endpoints: &Value) {
    let slice = json!({
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "name": name,
            "namespace": scene.name,
            "labels": {
                "kubernetes.io/service-name": service,
                "endpointslice.kubernetes.io/managed-by": "test",
            },
        },
        "addressType": "IPv4",
        "ports": [{"name": "http", "port": port, "protocol": "TCP"}],
        "endpoints": endpoints,
    });
    scene.kubernetes.apply(&slice.to_string()).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_come_and_go_and_targets_follow() {
    let scene = Scene::new("pods").await;
    let _running = scene.start();
    let by_address = json!({"metadata": {"annotations": {format!("{PREFIX}nlb-target-type"): "ip"}}});
    slice(&scene, "one", "web", 8080, &json!([{"addresses": ["10.0.1.101"]}]));
    slice(&scene, "of-another", "other", 8080, &json!([{"addresses": ["10.0.1.199"]}]));
    scene.apply("web", &by_address);
    scene.wait_for_address("web");
    assert_eq!(scene.targets("web"), set(["10.0.1.101:8080"]));
    let wait_for = |what: &str, expected: &[&str]| {
        let expected = expected.iter().map(|&target| target.to_owned()).collect();
        eventually(&format!("{expected:?} are sent to: {what}"), || scene.targets("web") == expected);
    };
    let lets_out = || scene.group("web").unwrap().lets_out();
    assert_eq!(lets_out(), ["tcp 8080-8080 10.0.1.0/24"]);

    let two = json!([{"addresses": ["10.0.1.101"]}, {"addresses": ["10.0.2.102"]}]);
    slice(&scene, "one", "web", 8080, &two);
    wait_for("one comes", &["10.0.1.101:8080", "10.0.2.102:8080"]);
    eventually("it may go there", || {
        lets_out() == ["tcp 8080-8080 10.0.1.0/24", "tcp 8080-8080 10.0.2.0/24"]
    });
    scene.wait_for_event("web", "UpdatedLoadBalancer");
    // Another slice, of pods that have another number for the same port.
    slice(&scene, "two", "web", 9090, &json!([{"addresses": ["10.0.1.103"]}]));
    wait_for("of another slice", &["10.0.1.101:8080", "10.0.1.103:9090", "10.0.2.102:8080"]);
    let conditions = json!([
        {"addresses": ["10.0.1.101"], "conditions": {"ready": false, "serving": false}},
        {"addresses": ["10.0.2.102"], "conditions": {"ready": false, "serving": true, "terminating": true}},
    ]);
    slice(&scene, "one", "web", 8080, &conditions);
    wait_for("those that are ready", &["10.0.1.103:9090"]);
    scene.kubernetes.kubectl(&["delete", "endpointslice", "two", "-n", "pods"]).unwrap();
    wait_for("the last one that serves", &["10.0.2.102:8080"]);
    scene.kubernetes.kubectl(&["delete", "endpointslice", "one", "-n", "pods"]).unwrap();
    wait_for("nobody is left", &[]);
    assert!(scene.address("web").is_some());

    // Nodes are of no interest to it.
    scene.fake.clear_calls();
    scene.add_node(3, &json!({}));
    scene.apply("nodes", &json!({}));
    scene.wait_for_address("nodes");
    assert!(scene.targets("web").is_empty());

    // From pods to nodes and back.
    scene.apply("web", &json!({}));
    wait_for("the nodes", &["i-1", "i-2", "i-3"]);
    slice(&scene, "one", "web", 8080, &two);
    scene.apply("web", &by_address);
    wait_for("the pods again", &["10.0.1.101:8080", "10.0.2.102:8080"]);
    for name in ["web", "nodes"] {
        scene.delete(name);
        scene.wait_until_gone(name);
    }
    assert!(scene.is_untouched());
}
