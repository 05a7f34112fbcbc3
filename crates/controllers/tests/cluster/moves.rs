//! From one provider to another, behind an endpoint that stays.

use serde_json::{Value, json};

use crate::scene::{Running, Scene};

const BALANCERS: &str = "loadbalancers.loadbalancer.portcullis.dev";

/// Two members at an endpoint that is not the provider's, which drain for so many seconds.
async fn two(name: &'static str, drain: u32) -> (Scene, Running) {
    let scene = Scene::new(name);
    scene.cluster("c", json!({}), json!({}));
    scene.control_plane("c", "lb", "one", "10.0.0.1");
    scene.control_plane("c", "lb", "two", "10.0.0.2");
    let endpoint = json!({"host": "api.example.com", "port": 443});
    scene.balancer("c", "lb", json!({"endpoint": endpoint, "drainTimeoutSeconds": drain}));
    let running = scene.look_after().await;
    scene.until("both are members", || scene.assigned("lb").len() == 2);
    (scene, running)
}

/// Has another one make it.
fn swap(scene: &Scene) {
    scene.maker("other");
    let reference =
        json!({"apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "LabBalancer", "name": "other"});
    scene.patch(BALANCERS, "lb", &json!({"spec": {"infrastructureRef": reference}}));
}

#[tokio::test(flavor = "multi_thread")]
async fn both_serve_and_the_old_one_drains() {
    let (scene, _running) = two("moves", 3).await;
    scene.report("lb", "198.51.100.1", &[("one", "active"), ("two", "active")]);
    scene.until("the first one has it", || {
        scene.get("loadbalancer", "lb")["status"]["address"] == "198.51.100.1"
    });

    swap(&scene);
    scene.until("the new one is asked", || scene.assigned("other") == ["one Serve", "two Serve"]);
    assert_eq!(scene.assigned("lb"), ["one Serve", "two Serve"], "the old one goes on");
    assert_eq!(
        scene.get("loadbalancer", "lb")["status"]["address"],
        "198.51.100.1",
        "clients are not sent away yet"
    );
    scene.report("other", "198.51.100.2", &[("one", "adding"), ("two", "adding")]);
    scene.until("the new one is known", || scene.condition("lb", "InfrastructureReady").0 == "True Made");
    assert_eq!(
        scene.get("loadbalancer", "lb")["status"]["address"],
        "198.51.100.1",
        "nobody answers there yet"
    );
    assert!(scene.get("labbalancer", "lb")["spec"]["assignment"].get("replacedSince").is_none());
    scene.report("other", "198.51.100.2", &[("one", "active"), ("two", "active")]);
    scene.until("clients are sent to the new one", || {
        scene.get("loadbalancer", "lb")["status"]["address"] == "198.51.100.2"
    });
    scene.until("the old one knows", || {
        scene.get("labbalancer", "lb")["spec"]["assignment"].get("replacedSince").is_some()
    });
    assert_eq!(scene.assigned("lb"), ["one Serve", "two Serve"], "for clients that have not heard of it");
    scene.until("its members leave it", || scene.assigned("lb") == ["one Leave", "two Leave"]);
    assert_eq!(scene.status("lb", "one").as_deref(), Some("active"), "they stay members");
    assert!(scene.is_held("one", "lb"));
    scene.report("lb", "198.51.100.1", &[("one", "removed"), ("two", "removed")]);
    scene.until("it is given up", || scene.get("labbalancer", "lb")["spec"].get("assignment").is_none());
    assert_ne!(scene.get("labbalancer", "lb"), Value::Null, "it is its user's");
    assert_eq!(
        scene.get("loadbalancer", "lb")["spec"]["endpoint"],
        json!({"host": "api.example.com", "port": 443})
    );
    assert_eq!(scene.assigned("other"), ["one Serve", "two Serve"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_that_goes_meanwhile_leaves_both() {
    let (scene, _running) = two("moves-machine", 600).await;
    let active = [("one", "active"), ("two", "active")];
    scene.report("lb", "198.51.100.1", &active);
    swap(&scene);
    scene.until("the new one is asked", || scene.assigned("other").len() == 2);
    scene.report("other", "198.51.100.2", &active);
    scene.until("the old one knows", || {
        scene.get("labbalancer", "lb")["spec"]["assignment"].get("replacedSince").is_some()
    });
    scene.report("lb", "198.51.100.1", &active);
    scene.kubectl(&["delete", "machine", "one", "--wait=false"]);
    scene.until("it leaves both", || {
        scene.assigned("lb").first().is_some_and(|first| first == "one Leave")
            && scene.assigned("other")[0] == "one Leave"
    });
    scene.report("other", "198.51.100.2", &[("one", "removed"), ("two", "active")]);
    scene.until("the new one has let it go", || {
        scene.annotation("one", "loadbalancer.cluster.x-k8s.io/status").as_deref() == Some("removed")
    });
    assert!(scene.is_held("one", "lb"), "the old one still sends to it");
    scene.report("lb", "198.51.100.1", &[("one", "removed"), ("two", "active")]);
    scene.until("it may go", || scene.get("machine", "one") == Value::Null);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_address_that_clients_have_is_not_given_up() {
    let scene = Scene::new("moves-bound");
    scene.cluster("c", json!({}), json!({}));
    scene.control_plane("c", "lb", "one", "10.0.0.1");
    // The endpoint is the provider's own.
    scene.balancer("c", "lb", json!({"drainTimeoutSeconds": 0}));
    let _running = scene.look_after().await;
    scene.until("it is a member", || scene.assigned("lb").len() == 1);
    scene.report("lb", "198.51.100.1", &[("one", "active")]);
    scene.until("the endpoint is known", || {
        scene.get("loadbalancer", "lb")["spec"]["endpoint"]["host"] == "198.51.100.1"
    });
    swap(&scene);
    scene.until("the new one is asked", || scene.assigned("other").len() == 1);
    scene.report("other", "198.51.100.2", &[("one", "active")]);
    scene.until("that is told", || scene.condition("lb", "Degraded").0 == "True EndpointOfOldProvider");
    tokio::time::sleep(std::time::Duration::from_secs(2)).await;
    assert_eq!(scene.assigned("lb"), ["one Serve"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_one_that_dies_is_not_waited_for() {
    let (scene, _running) = two("moves-dies", 4).await;
    let active = [("one", "active"), ("two", "active")];
    scene.report("lb", "198.51.100.1", &active);
    swap(&scene);
    scene.until("the new one is asked", || scene.assigned("other").len() == 2);
    scene.report("other", "198.51.100.2", &active);
    let is_replaced = || scene.get("labbalancer", "lb")["spec"]["assignment"].get("replacedSince").is_some();
    scene.until("the old one knows", is_replaced);
    scene.report("other", "198.51.100.2", &[("one", "adding"), ("two", "adding")]);
    scene.until("the old one goes on", || !is_replaced());
    // Longer than it would have taken to leave it.
    tokio::time::sleep(std::time::Duration::from_secs(9)).await;
    assert_eq!(scene.assigned("lb"), ["one Serve", "two Serve"]);
    scene.report("other", "198.51.100.2", &active);
    scene.until("its members leave it", || scene.assigned("lb") == ["one Leave", "two Leave"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_serves_goes_on_while_a_wrong_one_is_named() {
    let (scene, _running) = two("moves-wrong", 600).await;
    scene.report("lb", "198.51.100.1", &[("one", "active"), ("two", "active")]);
    scene.until("it serves", || scene.status("lb", "two").as_deref() == Some("active"));
    let reference =
        json!({"apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "LabBalancer", "name": "nobody"});
    scene.patch(BALANCERS, "lb", &json!({"spec": {"infrastructureRef": reference}}));
    scene.until("that is told", || scene.condition("lb", "InfrastructureReady").1.contains("nobody"));
    scene.control_plane("c", "lb", "three", "10.0.0.3");
    scene.until("a new one is held", || scene.is_held("three", "lb"));
    assert_eq!(scene.status("lb", "one").as_deref(), Some("active"));
    scene.kubectl(&["delete", "machine", "one", "--wait=false"]);
    scene.until("who goes leaves", || scene.assigned("lb").contains(&"one Leave".to_owned()));
    scene.report("lb", "198.51.100.1", &[("one", "removed"), ("two", "active"), ("three", "active")]);
    scene.until("and may go", || scene.get("machine", "one") == Value::Null);
}
