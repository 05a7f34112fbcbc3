//! Where clients find a load balancer.

use std::net::TcpListener;
use std::time::Duration;

use serde_json::{Value, json};

use crate::lab::controller;
use crate::scene::{Scene, client};
use crate::templates::make;

/// Who writes, as `managedFields` have it.
const OURS: &str = "portcullis";

fn with(name: &'static str, cluster: serde_json::Value, balancer: serde_json::Value) -> Scene {
    let scene = Scene::new(name);
    let metadata = json!({"annotations": {"portcullis.dev/control-plane-load-balancer": "lb"}});
    scene.cluster("c", metadata, cluster);
    scene.control_plane("c", "lb", "one", "10.0.0.1");
    scene.until("the Machine has its address", || {
        scene.get("machine", "one")["status"]["addresses"][0]["address"] == "10.0.0.1"
    });
    scene.balancer("c", "lb", balancer);
    scene
}

fn endpoint(host: &str, port: u16) -> serde_json::Value {
    json!({"host": host, "port": port})
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_provider_has_goes_up() {
    let scene = with("endpoint-provided", json!({}), json!({}));
    let _running = scene.look_after().await;
    scene.until("it is asked for", || scene.assigned("lb") == ["one Serve"]);
    assert!(scene.get("labbalancer", "lb")["spec"]["assignment"].get("endpoint").is_none());
    scene.until("that it waits is told", || {
        scene.condition("lb", "EndpointReady").0 == "False WaitingForEndpoint"
    });
    scene.report("lb", "198.51.100.7", &[]);
    scene.until("the Cluster has it", || {
        scene.get("cluster", "c")["spec"]["controlPlaneEndpoint"] == endpoint("198.51.100.7", 6443)
    });
    assert_eq!(scene.get("loadbalancer", "lb")["spec"]["endpoint"], endpoint("198.51.100.7", 6443));
    scene.until("the address is told", || {
        scene.get("loadbalancer", "lb")["status"]["address"] == "198.51.100.7"
    });
    // Another address does not change where clients look.
    scene.report("lb", "198.51.100.8", &[]);
    scene.until("the address is told", || {
        scene.get("loadbalancer", "lb")["status"]["address"] == "198.51.100.8"
    });
    assert_eq!(scene.get("cluster", "c")["spec"]["controlPlaneEndpoint"], endpoint("198.51.100.7", 6443));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_cluster_says_goes_down_before_anything_is_made() {
    let cluster = json!({"controlPlaneEndpoint": endpoint("api.example.com", 443)});
    let scene = with("endpoint-cluster", cluster, json!({}));
    let _running = scene.look_after().await;
    scene.until("it is asked for", || scene.assigned("lb") == ["one Serve"]);
    let assignment = scene.get("labbalancer", "lb")["spec"]["assignment"].clone();
    assert_eq!(assignment["endpoint"], endpoint("api.example.com", 443));
    assert_eq!(assignment["listeners"][0]["port"], 443);
    // The provider never heard of it without the endpoint: what it was asked for first is all it was asked for.
    assert_eq!(scene.get("labbalancer", "lb")["metadata"]["generation"], 2);
    scene.report("lb", "198.51.100.7", &[]);
    scene.until("the address is told apart", || {
        scene.get("loadbalancer", "lb")["status"]["address"] == "198.51.100.7"
    });
    assert_eq!(scene.get("loadbalancer", "lb")["spec"]["endpoint"], endpoint("api.example.com", 443));
}

#[tokio::test(flavor = "multi_thread")]
async fn two_that_differ_change_nothing() {
    let cluster = json!({"controlPlaneEndpoint": endpoint("api.example.com", 443)});
    let scene = with("endpoint-mismatch", cluster, json!({"endpoint": endpoint("other.example.com", 443)}));
    let _running = scene.look_after().await;
    scene.until("that is told", || scene.condition("lb", "EndpointReady").0 == "False EndpointMismatch");
    let (_, message) = scene.condition("lb", "EndpointReady");
    assert!(
        message.contains("api.example.com:443") && message.contains("other.example.com:443"),
        "{message}"
    );
    assert!(scene.get("labbalancer", "lb")["spec"].get("assignment").is_none(), "nothing is made");
    assert_eq!(scene.get("cluster", "c")["spec"]["controlPlaneEndpoint"], endpoint("api.example.com", 443));
    let patch = json!({"spec": {"alternateEndpoints": [endpoint("api.example.com", 443)]}});
    scene.patch("loadbalancers.loadbalancer.portcullis.dev", "lb", &patch);
    scene.until("an alternate endpoint is none", || scene.assigned("lb") == ["one Serve"]);
}

/// Somebody changes one of the two while it serves: both are named, clients find it where it was, and Machines come and go.
#[tokio::test(flavor = "multi_thread")]
async fn two_that_come_to_differ_while_it_serves_change_nothing() {
    let cluster = json!({"controlPlaneEndpoint": endpoint("api.example.com", 443)});
    let scene = with("endpoint-conflict", cluster, json!({"drainTimeoutSeconds": 600}));
    for (name, address) in [("two", "10.0.0.2"), ("three", "10.0.0.3")] {
        scene.control_plane("c", "lb", name, address);
    }
    let mut running = scene.look_after().await;
    scene.until("all are members", || scene.assigned("lb").len() == 3);
    scene.report("lb", "198.51.100.7", &[("one", "active"), ("two", "active"), ("three", "active")]);
    scene.until("it serves", || scene.condition("lb", "Available").1 == "3 of 3 members get connections.");
    // All but the members.
    let asked = || {
        let mut asked = scene.get("labbalancer", "lb")["spec"]["assignment"].clone();
        asked["members"].take();
        asked
    };
    let before = asked();
    assert_eq!(before["listeners"][0]["port"], 443);
    let balancers = "loadbalancers.loadbalancer.portcullis.dev";
    let of_balancer =
        |host: &str, port| scene.patch(balancers, "lb", &json!({"spec": {"endpoint": endpoint(host, port)}}));
    let of_cluster = |host: &str, port| {
        scene.patch("cluster", "c", &json!({"spec": {"controlPlaneEndpoint": endpoint(host, port)}}));
    };
    let is_told = |both: [&str; 2]| {
        ["EndpointReady", "Degraded"].iter().zip(["False", "True"]).all(|(type_, state)| {
            let (found, message) = scene.condition("lb", type_);
            found == format!("{state} EndpointMismatch") && both.iter().all(|one| message.contains(one))
        })
    };

    of_balancer("new.example.com", 8443);
    scene.until("both are named", || is_told(["api.example.com:443", "new.example.com:8443"]));
    assert_eq!(asked(), before);
    scene.kubectl(&["delete", "machine", "one", "--wait=false"]);
    scene.until("who goes is to leave", || scene.assigned("lb")[0] == "one Leave");
    // Also if who looks after it starts anew.
    drop(running);
    running = scene.look_after().await;
    assert!(scene.is_held("one", "lb"));
    scene.report("lb", "198.51.100.7", &[("one", "removed"), ("two", "active"), ("three", "active")]);
    scene.until("and may go", || scene.get("machine", "one").is_null());
    scene.control_plane("c", "lb", "four", "10.0.0.4");
    scene.until("who comes is to serve", || {
        scene.assigned("lb") == ["four Serve", "three Serve", "two Serve"]
    });
    assert_eq!(asked(), before);
    assert_eq!(scene.get("cluster", "c")["spec"]["controlPlaneEndpoint"], endpoint("api.example.com", 443));
    assert_eq!(scene.get("loadbalancer", "lb")["spec"]["endpoint"], endpoint("new.example.com", 8443));
    assert_eq!(scene.get("loadbalancer", "lb")["status"]["address"], "198.51.100.7");
    of_balancer("api.example.com", 443);
    scene.until("all is well", || scene.condition("lb", "Degraded").0 == "False AsExpected");

    // The same with the Cluster's.
    let before = asked();
    of_cluster("moved.example.com", 443);
    scene.until("both are named", || is_told(["api.example.com:443", "moved.example.com:443"]));
    scene.report("lb", "198.51.100.7", &[("two", "active"), ("three", "active"), ("four", "active")]);
    scene.kubectl(&["delete", "machine", "two", "--wait=false"]);
    scene.until("who goes is to leave", || scene.assigned("lb")[2] == "two Leave");
    scene.report("lb", "198.51.100.7", &[("two", "removed"), ("three", "active"), ("four", "active")]);
    scene.until("and may go", || scene.get("machine", "two").is_null());
    assert_eq!(asked(), before);
    assert_eq!(scene.get("cluster", "c")["spec"]["controlPlaneEndpoint"], endpoint("moved.example.com", 443));
    // Somebody decides which of them it is.
    of_balancer("moved.example.com", 443);
    scene.until("all have that", || asked()["endpoint"] == endpoint("moved.example.com", 443));
    scene.until("all is well", || scene.condition("lb", "Degraded").0 == "False AsExpected");
    drop(running);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_without_one_is_left_alone() {
    let scene = Scene::new("endpoint-without");
    scene.cluster("c", json!({}), json!({}));
    scene.control_plane("c", "lb", "one", "10.0.0.1");
    // One for something else, which is not the control plane's.
    scene.balancer("c", "lb", json!({"endpoint": endpoint("web.example.com", 443)}));
    let _running = scene.look_after().await;
    scene.until("it is asked for", || scene.assigned("lb") == ["one Serve"]);
    scene.report("lb", "198.51.100.7", &[]);
    scene.until("the address is told", || {
        scene.get("loadbalancer", "lb")["status"]["address"] == "198.51.100.7"
    });
    assert!(scene.get("cluster", "c")["spec"].get("controlPlaneEndpoint").is_none());
}

/// Beside one that has a load balancer, and is looked after, nothing of one that has none is written, nor of its Machines.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_written_of_a_cluster_without_any() {
    let scene = Scene::new("endpoint-none");
    let plane = |name: &str| {
        scene.apply(json!({
            "apiVersion": "controlplane.cluster.x-k8s.io/v1", "kind": "LabControlPlane", "metadata": {"name": name},
            "spec": {"machineTemplate": {"metadata": {}}},
        }));
        json!({"controlPlaneRef": {"apiGroup": "controlplane.cluster.x-k8s.io", "kind": "LabControlPlane", "name": name}})
    };
    scene.cluster("alone", json!({}), plane("alone"));
    scene.machine("alone", "alone", "10.0.0.1", json!({"cluster.x-k8s.io/control-plane": ""}));
    let all = [
        ("cluster", "alone"),
        ("machine", "alone"),
        ("labmachine", "alone"),
        ("labcluster", "alone"),
        ("labcontrolplane", "alone"),
    ];
    scene.until("the Machine has its address", || {
        scene.get("machine", "alone")["status"]["addresses"][0]["address"] == "10.0.0.1"
    });
    let asking = scene.look_after_asking(client(scene.kubernetes).await, Some(Duration::from_secs(1)));
    let _all = (asking, make(&scene).await, controller(&scene).await);
    let metadata = json!({"annotations": {"portcullis.dev/control-plane-load-balancer": "lb"}});
    scene.cluster("c", metadata, plane("plane"));
    scene.control_plane("c", "lb", "one", "10.0.0.2");
    scene.balancer("c", "lb", json!({}));
    scene.until("the other one is looked after", || scene.assigned("lb") == ["one Serve"]);
    scene.report("lb", "198.51.100.7", &[("one", "active")]);
    scene.until("all of it is done", || {
        scene.condition("lb", "Available").0 == "True MembersActive"
            && scene.get("cluster", "c")["spec"]["controlPlaneEndpoint"] == endpoint("198.51.100.7", 6443)
    });
    scene.kubectl(&["delete", "loadbalancers.loadbalancer.portcullis.dev", "lb"]);
    for (kind, name) in all {
        let text = scene.kubectl(&["get", kind, name, "-o", "json", "--show-managed-fields"]);
        let found: Value = serde_json::from_str(&text).unwrap();
        let writers = found["metadata"]["managedFields"].as_array().unwrap();
        assert!(!writers.is_empty());
        assert!(writers.iter().all(|one| one["manager"] != OURS), "{kind}: {writers:?}");
    }
    // Who writes is known by that name: the other Cluster has it.
    let text = scene.kubectl(&["get", "cluster", "c", "-o", "json", "--show-managed-fields"]);
    assert!(text.contains(&format!("\"manager\": \"{OURS}\"")), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_provider_it_is_only_looked_at() {
    let scene = Scene::new("endpoint-others");
    let metadata = json!({"annotations": {"portcullis.dev/control-plane-load-balancer": "lb"}});
    scene.cluster("c", metadata, json!({}));
    scene.control_plane("c", "lb", "one", "10.0.0.1");
    scene.apply(json!({
        "apiVersion": "loadbalancer.portcullis.dev/v1alpha1", "kind": "LoadBalancer",
        "metadata": {"name": "lb"},
        "spec": {"clusterName": "c", "endpoint": endpoint("api.example.com", 443)},
    }));
    let _running = scene.look_after().await;
    scene.until("the Cluster has its endpoint", || {
        scene.get("cluster", "c")["spec"]["controlPlaneEndpoint"] == endpoint("api.example.com", 443)
    });
    scene.until("that others make it is told", || {
        scene.condition("lb", "InfrastructureReady").0 == "True MadeByOthers"
    });
    assert_eq!(scene.status("lb", "one").as_deref(), Some("adding"));
    assert!(!scene.is_held("one", "lb"), "nobody here could say when it has left");
}

#[tokio::test(flavor = "multi_thread")]
async fn whether_it_answers_is_told() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let scene = with("endpoint-asked", json!({}), json!({"endpoint": endpoint("127.0.0.1", port)}));
    let _running = scene.look_after_asking(client(scene.kubernetes).await, Some(Duration::from_secs(1)));
    let ready = || scene.condition("lb", "EndpointReady");
    scene.until("it answers", || ready().0 == "True Answering");
    drop(listener);
    scene.until("nobody is there any more", || ready().0 == "False NotAnswering");
    assert!(ready().1.contains("It does not answer from here: "), "{}", ready().1);
    let _listener = TcpListener::bind(("127.0.0.1", port)).unwrap();
    scene.until("it answers again", || ready().0 == "True Answering");
}

#[tokio::test(flavor = "multi_thread")]
async fn it_is_known_also_while_the_cluster_is_not() {
    let scene = Scene::new("endpoint-alone");
    scene.balancer("none", "lb", json!({"endpoint": endpoint("api.example.com", 443)}));
    scene.balancer("none", "nowhere", json!({}));
    let _running = scene.look_after().await;
    for (name, ready) in [("lb", "Unknown NotAsked"), ("nowhere", "False WaitingForEndpoint")] {
        scene.until("that there is no Cluster is told", || {
            scene.condition(name, "InfrastructureReady").0 == "False ClusterNotFound"
        });
        assert_eq!(scene.condition(name, "EndpointReady").0, ready);
    }
}
