//! Who leaves an address where packets are only filtered: others forward as long as they have not heard of it, and let everybody in.

use std::time::Duration;

use portcullis_controllers::host::AgentSettings;
use portcullis_host::datapath::Mode;
use portcullis_kube_api::enforced::ENFORCED;
use portcullis_kube_api::host::LISTEN_ADDRESSES;
use portcullis_testkit::{Target, can_connect, eventually};
use serde_json::{Value, json};

use crate::scene::{LAN, OTHERS, Scene, WAN};

const WEB: Target = Target::Tcp(80);
const LIMITED: &str = "192.0.2.0/24";

fn limited() -> Value {
    json!({"loadBalancerSourceRanges": [LIMITED]})
}

/// Whether the packet filters have port 80 of an address.
fn is_filtered(scene: &Scene, address: &str) -> bool {
    let tables = scene.node.run("nft list tables");
    tables.contains("portcullis")
        && scene.node.run("nft list set inet portcullis frontend4").contains(&format!("{address} . tcp . 80"))
}

/// Waits until the node's half has taken in what a Service asks for now.
fn wait_until_known(scene: &Scene, name: &str) {
    let version =
        scene.service(name)["metadata"]["resourceVersion"].as_str().unwrap().parse::<u64>().unwrap();
    eventually("the node knows it", || scene.report()["datapath"]["upTo"].as_u64() >= Some(version));
}

/// Nobody writes statuses: what they say is filtered for as long as they say so, and a while longer.
#[tokio::test(flavor = "multi_thread")]
async fn who_is_said_to_be_somewhere_is_filtered_there() {
    let scene = Scene::new("leaves", Mode::Filter);
    let _serving = scene.backend.serve(8080);
    let (controller, agent) = (scene.start_controller().await, scene.start_agent().await);
    let two = json!({"loadBalancerSourceRanges": [LIMITED], "ports": [{"name": "a", "port": 80}, {"name": "b", "port": 81}]});
    scene.apply("web", json!({}), two);
    scene.wait_for_addresses("web", &[LAN, WAN]);
    scene.serve_as_told("web");
    let opens = |what: &str| {
        for (address, port) in [(WAN, 80), (WAN, 81), (LAN, 81)] {
            assert!(!can_connect(&scene.outside, address, Target::Tcp(port)), "{what}: {address} {port}");
        }
        assert!(can_connect(&scene.inside, LAN, WEB), "{what}");
    };
    opens("as it is");
    drop(controller);
    scene.apply("web", json!({LISTEN_ADDRESSES: "to-inside"}), limited());
    wait_until_known(&scene, "web");
    opens("it is to be at one of them, with one of its ports");
    // So it is however long that takes, and also if the node's half is started anew meanwhile.
    std::thread::sleep(2 * scene.agent_settings().grace);
    opens("a while later");
    drop(agent);
    let _agent = scene.start_agent().await;
    let version = scene.service("web")["metadata"]["resourceVersion"].clone();
    // A list tells of nothing newer than what is in it: a change that changes nothing does.
    scene.apply("web", json!({LISTEN_ADDRESSES: "to-inside", "example.com/again": "1"}), limited());
    assert_ne!(scene.service("web")["metadata"]["resourceVersion"], version);
    wait_until_known(&scene, "web");
    opens("after a start");
    // The address goes from the interface, and whoever forwards does so for who still sends there.
    scene.node.run("ip address del 198.51.100.1/24 dev to-outside");
    scene.node.run("ip address add 198.51.100.2/24 dev to-outside");
    let addresses = || scene.report()["interfaces"]["to-outside"]["addresses"].to_string();
    eventually("the node has another one", || {
        addresses().contains("198.51.100.2") && !addresses().contains("198.51.100.1\"")
    });
    assert!(is_filtered(&scene, WAN), "it is said to be there");

    // It is told, and a while later whoever forwards has heard.
    let _controller = scene.start_controller().await;
    scene.wait_for_addresses("web", &[LAN]);
    eventually("the rest goes", || !is_filtered(&scene, WAN));
    assert!(is_filtered(&scene, LAN));
    scene.serve_as_told("web");
    assert!(can_connect(&scene.inside, LAN, WEB));
}

/// A Service that is deleted is forwarded until everybody has heard; what somebody else has meanwhile is not filtered for it.
#[tokio::test(flavor = "multi_thread")]
async fn who_is_deleted_is_filtered_for_a_while() {
    let scene = Scene::new("deleted", Mode::Filter);
    let _serving = scene.backend.serve(8080);
    let _controller = scene.start_controller().await;
    let patient = AgentSettings { grace: Duration::from_secs(600), ..scene.agent_settings() };
    let _agent = scene.start_agent_with(patient).await;
    scene.apply("stays", json!({}), json!({"ports": [{"port": 82}]}));
    scene.apply("web", json!({}), limited());
    scene.wait_for_addresses("web", &[LAN, WAN]);
    scene.serve_as_told("web");
    assert!(!can_connect(&scene.outside, WAN, WEB));
    scene.delete("web");
    scene.apply("stays", json!({}), json!({"ports": [{"port": 83}]}));
    wait_until_known(&scene, "stays");
    assert!(!can_connect(&scene.outside, WAN, WEB), "whoever forwards has not heard");
    assert!(can_connect(&scene.inside, LAN, WEB));
    // One that comes to have it lets in whom it lets in, at once.
    scene.apply("open", json!({LISTEN_ADDRESSES: "to-outside"}), json!({}));
    scene.wait_for_addresses("open", &[WAN]);
    scene.serve_as_told("open");
    eventually("everybody is let in", || can_connect(&scene.outside, WAN, WEB));
    assert!(is_filtered(&scene, LAN), "at the other one it is as it was");
    // So does one of somebody else.
    scene.apply("theirs", json!({}), json!({"loadBalancerClass": "example.com/other"}));
    let status = json!({"status": {"loadBalancer": {"ingress": [{"ip": LAN}]}}}).to_string();
    let patch =
        ["-n", scene.name, "patch", "service", "theirs", "--subresource=status", "--type=merge", "-p"];
    scene.kubernetes.kubectl(&[&patch[..], &[&status]].concat()).unwrap();
    eventually("it is not filtered", || !is_filtered(&scene, LAN));
}

/// So is a Service that is deleted while nobody looks after the node, and what somebody else has by then is that one's. In the end
/// nothing is left.
#[tokio::test(flavor = "multi_thread")]
async fn who_is_deleted_while_nobody_looks_is_filtered_for_a_while() {
    let scene = Scene::new("deleted-unseen", Mode::Filter);
    let _serving = scene.backend.serve(8080);
    let (controller, agent) = (scene.start_controller().await, scene.start_agent().await);
    scene.apply("web", json!({}), limited());
    scene.wait_for_addresses("web", &[LAN, WAN]);
    scene.serve_as_told("web");
    drop((controller, agent));
    scene.delete("web");
    let patient = || AgentSettings { grace: Duration::from_secs(600), ..scene.agent_settings() };
    // Nothing is new to it after the first list, so that it has done nothing else by the time that it tells of itself.
    let started = async |settings: AgentSettings| {
        let mut told = scene.report();
        told["boot"] = json!("before");
        scene.set_report(&told);
        let agent = scene.start_agent_with(settings).await;
        eventually("it is started", || scene.report()["boot"] != "before");
        agent
    };
    for time in ["the first", "the second"] {
        let _agent = started(patient()).await;
        assert!(is_filtered(&scene, LAN) && is_filtered(&scene, WAN), "{time} start");
        assert!(!can_connect(&scene.outside, WAN, WEB), "whoever forwards has not heard");
        assert!(can_connect(&scene.inside, LAN, WEB));
    }
    // Who has such a place by the next start lets in whom it lets in, at once.
    scene.apply("open", json!({LISTEN_ADDRESSES: "to-outside"}), json!({}));
    let agent = started(patient()).await;
    assert!(can_connect(&scene.outside, WAN, WEB), "everybody is let in");
    assert!(is_filtered(&scene, LAN), "at the other one it is as it was");
    drop(agent);
    scene.delete("open");
    let _agent = started(scene.agent_settings()).await;
    eventually("nothing is left", || !scene.node.run("nft list tables").contains("portcullis"));
}

/// Who gets a place is filtered there, also once the one before is not said to be there any more.
#[tokio::test(flavor = "multi_thread")]
async fn who_gets_what_another_left_is_filtered_there() {
    let scene = Scene::new("handed", Mode::Filter);
    let _serving = scene.backend.serve(8080);
    scene.node.nft(OTHERS);
    let (controller, _agent) = (scene.start_controller().await, scene.start_agent().await);
    scene.apply("web", json!({}), limited());
    scene.wait_for_addresses("web", &[LAN, WAN]);
    drop(controller);
    scene.apply("web", json!({LISTEN_ADDRESSES: "to-inside"}), limited());
    wait_until_known(&scene, "web");
    scene.apply("next", json!({LISTEN_ADDRESSES: "to-outside"}), limited());
    wait_until_known(&scene, "next");
    let has = |name: &str| scene.node.run("nft list set inet portcullis frontend4").contains(name);
    assert!(has("handed/next"));
    let status = json!({"status": {"loadBalancer": {"ingress": null}}}).to_string();
    let patch = ["-n", scene.name, "patch", "service", "web", "--subresource=status", "--type=merge", "-p"];
    scene.kubernetes.kubectl(&[&patch[..], &[&status]].concat()).unwrap();
    wait_until_known(&scene, "web");
    for what in ["once nothing names the first one there", "a while later"] {
        assert!(has("handed/next") && is_filtered(&scene, WAN), "{what}");
        assert!(!can_connect(&scene.outside, WAN, WEB), "{what}");
        std::thread::sleep(2 * scene.agent_settings().grace);
    }
    assert!(can_connect(&scene.inside, LAN, WEB));
}

/// What a node told that is gone for long, or is called otherwise by now, is in nobody's way.
#[tokio::test(flavor = "multi_thread")]
async fn what_no_node_tells_any_more_is_in_nobodys_way() {
    let scene = Scene::new("ghost", Mode::Filter);
    let _running = scene.start().await;
    scene.apply("web", json!({}), limited());
    scene.wait_for_addresses("web", &[LAN, WAN]);
    let mut told = scene.report();
    told["datapath"]["upTo"] = json!(1);
    let object = json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": "host-formerly",
            "namespace": scene.name,
            "labels": {"portcullis.dev/node": "formerly"},
        },
        "data": {"report": told.to_string()},
    });
    scene.kubernetes.apply(&object.to_string()).unwrap();
    scene.apply("new", json!({}), json!({"loadBalancerSourceRanges": [LIMITED], "ports": [{"port": 81}]}));
    scene.wait_for_addresses("new", &[LAN, WAN]);
    scene.wait_for_condition("new", ENFORCED, "True/Enforced: The packet filters of ghost-node");
    scene.wait_for_condition("web", ENFORCED, "True/Enforced: The packet filters of ghost-node");
    // Nor is the node that is there for what is told of it beside that.
    let conditions = json!({"status": {"conditions": [{"type": "Ready", "status": "False"}]}}).to_string();
    let node = scene.node_name();
    let patch = ["patch", "node", &node, "--subresource=status", "--type=merge", "-p", &conditions];
    scene.kubernetes.kubectl(&patch).unwrap();
    scene.apply("late", json!({}), json!({"ports": [{"port": 82}]}));
    scene.wait_for_addresses("late", &[LAN, WAN]);
    assert_eq!(scene.addresses("new"), [LAN, WAN]);
}
