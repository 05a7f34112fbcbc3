//! Where clients find a load balancer.

use std::net::TcpListener;
use std::time::Duration;

use serde_json::json;

use crate::scene::{Scene, client};

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
    assert_eq!(scene.condition("lb", "EndpointReady").0, "False WaitingForEndpoint");
    scene.report("lb", "198.51.100.7", &[]);
    scene.until("the Cluster has it", || {
        scene.get("cluster", "c")["spec"]["controlPlaneEndpoint"] == endpoint("198.51.100.7", 6443)
    });
    assert_eq!(scene.get("loadbalancer", "lb")["spec"]["endpoint"], endpoint("198.51.100.7", 6443));
    assert_eq!(scene.get("loadbalancer", "lb")["status"]["address"], "198.51.100.7");
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
