//! Interfaces that go and come back under the same name, with the same addresses.

use std::sync::mpsc;

use portcullis_host::datapath::Mode;
use portcullis_kube_api::enforced::ENFORCED;
use portcullis_kube_api::host::{ASSIGNED, LISTEN_ADDRESSES};
use portcullis_testkit::{Host, Target, can_connect, eventually};
use serde_json::json;
use tokio::runtime::{Builder, Runtime};

use crate::scene::{LAN, OTHERS, Scene, WAN, plug};

const WEB: Target = Target::Tcp(80);

/// A Service for these only, and one at one interface.
fn serve_only(scene: &Scene, range: &str) {
    scene.apply("web", json!({}), json!({"loadBalancerSourceRanges": [range]}));
    scene.endpoint("web", json!({"ready": true}));
    scene.apply("lan", json!({LISTEN_ADDRESSES: "to-inside"}), json!({"ports": [{"port": 81}]}));
}

/// The clients behind an interface of the node, how it is reached by them, and their networks.
fn behind<'a>(scene: &'a Scene, interface: &str) -> (&'a Host, &'static str, [&'static str; 2]) {
    match interface {
        "to-inside" => (&scene.inside, LAN, ["192.0.2", "2001:db8:1"]),
        _ => (&scene.outside, WAN, ["198.51.100", "2001:db8:2"]),
    }
}

fn pull(scene: &Scene, interface: &str) {
    scene.node.run(&format!("ip link del {interface}"));
}

fn put_back(scene: &Scene, interface: &str) {
    let (clients, _, networks) = behind(scene, interface);
    plug(clients, &scene.node, networks);
}

/// Who is in the range connects, and nobody else does, by any address.
#[track_caller]
fn only_inside_connects(scene: &Scene) {
    eventually("who is in the range connects", || can_connect(&scene.inside, LAN, WEB));
    for address in [LAN, WAN] {
        assert!(can_connect(&scene.inside, address, WEB), "{address}");
        assert!(!can_connect(&scene.outside, address, WEB), "{address}");
    }
}

/// What is said of who keeps to the ranges. Where packets are filtered as they arrive, that names the interfaces.
fn enforced(scene: &Scene, interfaces: &str) -> String {
    let node = scene.node_name();
    match scene.mode {
        Mode::Filter => format!("True/Enforced: The packet filters of {node} ({interfaces}) let in "),
        _ => format!("True/Enforced: The packet filters of {node} let in "),
    }
}

async fn pulled_and_put_back(scene: Scene) {
    let _serving = scene.backend.serve(8080);
    if scene.mode == Mode::Filter {
        scene.node.nft(OTHERS);
        assert!(can_connect(&scene.outside, WAN, WEB), "they let everybody in");
    }
    let _running = scene.start().await;
    serve_only(&scene, "192.0.2.0/24");
    scene.wait_for_addresses("web", &[LAN, WAN]);
    scene.wait_for_addresses("lan", &[LAN]);
    only_inside_connects(&scene);
    for (interface, other, at_other) in [("to-inside", "to-outside", WAN), ("to-outside", "to-inside", LAN)] {
        pull(&scene, interface);
        scene.wait_for_addresses("web", &[at_other]);
        scene.wait_for_condition("web", ASSIGNED, &format!("True/Assigned: It is reached at {at_other}."));
        scene.wait_for_condition("web", ENFORCED, &enforced(&scene, other));
        if interface == "to-inside" {
            scene.wait_for_condition(
                "lan",
                ASSIGNED,
                "False/NoAddress: portcullis.dev/listen-addresses: no interface `to-inside`",
            );
        }
        put_back(&scene, interface);
        scene.wait_for_addresses("web", &[LAN, WAN]);
        scene.wait_for_addresses("lan", &[LAN]);
        scene.wait_for_condition("lan", ASSIGNED, "True/Assigned");
        scene.wait_for_condition("web", ENFORCED, &enforced(&scene, "to-inside, to-outside"));
        only_inside_connects(&scene);
    }
    // By either of them who is to be let in is.
    serve_only(&scene, "198.51.100.0/24");
    eventually("who is in the new range connects", || can_connect(&scene.outside, WAN, WEB));
    eventually("nobody else does", || !can_connect(&scene.inside, LAN, WEB));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_filter_is_on_an_interface_that_came_back() {
    pulled_and_put_back(Scene::new("pulled", Mode::Filter)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_is_served_at_an_interface_that_came_back() {
    pulled_and_put_back(Scene::new("pulled-too", Mode::Nftables)).await;
}

/// Interfaces that lead to pods, by names that say nothing, come and go: packets are filtered there, too, and nobody is told of it
/// each time.
#[tokio::test(flavor = "multi_thread")]
async fn pods_come_and_go_in_silence() {
    let scene = Scene::new("silence", Mode::Filter);
    let _serving = scene.backend.serve(8080);
    scene.node.nft(OTHERS);
    let _running = scene.start().await;
    serve_only(&scene, "192.0.2.0/24");
    scene.wait_for_addresses("web", &[LAN, WAN]);
    scene.wait_for_condition("web", ENFORCED, &enforced(&scene, "to-inside, to-outside"));
    scene.wait_for_condition("lan", ASSIGNED, "True/Assigned");
    let version = || scene.service("web")["metadata"]["resourceVersion"].clone();
    let before = version();
    let is_filtered =
        |name: &str| scene.node.run("nft list table inet portcullis").contains(&format!("ingress_{name}"));
    let pods: Vec<(Host, String)> = (0..10)
        .map(|number| {
            let (pod, name) = (Host::new("pod"), format!("8f3c0a1b2d4e5f{number}"));
            scene.node.run(&format!("ip link add {name} type veth peer name eth0 netns {}", pod.path()));
            pod.run("ip link set eth0 up");
            scene.node.run(&format!("ip link set {name} up"));
            (pod, name)
        })
        .collect();
    for (_, name) in &pods {
        eventually("packets are filtered there", || is_filtered(name));
    }
    only_inside_connects(&scene);
    for (_, name) in &pods {
        pull(&scene, name);
        eventually("nothing is left of it", || !is_filtered(name));
    }
    only_inside_connects(&scene);
    // What comes later was told of later.
    scene.apply("late", json!({}), json!({"ports": [{"port": 82}]}));
    scene.wait_for_addresses("late", &[LAN, WAN]);
    assert_eq!(version(), before, "nothing was written for it");
    let events = scene.events("web");
    assert!(!events.iter().any(|event| event.starts_with("NotFiltered")), "{events:?}");
    // One with an address is told of: somebody may come to it.
    let (pod, name) = &pods[0];
    scene.node.run(&format!("ip link add {name} type veth peer name eth0 netns {}", pod.path()));
    scene.node.run(&format!("ip address add 203.0.113.1/24 dev {name}"));
    scene.wait_for_condition("web", ENFORCED, &enforced(&scene, &format!("{name}, to-inside, to-outside")));
}

/// Whoever runs there does nothing until the other end is dropped. There is one thread for all.
fn hold(runtime: &Runtime) -> mpsc::Sender<()> {
    let (held, is_held) = mpsc::channel();
    let (sender, receiver) = mpsc::channel::<()>();
    runtime.spawn(async move {
        held.send(()).unwrap();
        let _ = receiver.recv();
    });
    is_held.recv().unwrap();
    sender
}

/// It was away so shortly that nobody saw it: it looks the same, and is another.
#[test]
fn interfaces_that_were_away_while_nobody_looked() {
    for (name, mode) in [("blink", Mode::Filter), ("blink-too", Mode::Nftables)] {
        let scene = Scene::new(name, mode);
        let _serving = scene.backend.serve(8080);
        if mode == Mode::Filter {
            scene.node.nft(OTHERS);
        }
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let _running = runtime.block_on(scene.start());
        serve_only(&scene, "192.0.2.0/24");
        scene.wait_for_addresses("web", &[LAN, WAN]);
        scene.wait_for_condition("web", ENFORCED, &enforced(&scene, "to-inside, to-outside"));
        only_inside_connects(&scene);
        let held = hold(&runtime);
        for interface in ["to-inside", "to-outside"] {
            pull(&scene, interface);
            put_back(&scene, interface);
        }
        drop(held);
        // What comes later is done later.
        scene.apply("late", json!({}), json!({"ports": [{"port": 82}]}));
        scene.wait_for_addresses("late", &[LAN, WAN]);
        scene.wait_for_condition("web", ENFORCED, &enforced(&scene, "to-inside, to-outside"));
        assert_eq!(scene.addresses("web"), [LAN, WAN]);
        only_inside_connects(&scene);
    }
}
