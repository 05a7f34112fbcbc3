use portcullis_host::datapath::Mode;
use portcullis_testkit::{Target, can_connect, eventually};
use serde_json::json;

use crate::scene::{LAN, Scene, WAN};

const WEB: Target = Target::Tcp(80);

/// Somebody flushes all packet filters of the node: what is ours comes back.
#[tokio::test(flavor = "multi_thread")]
async fn what_somebody_removes_comes_back() {
    let scene = Scene::new("flushed", Mode::Nftables);
    let _serving = scene.backend.serve(8080);
    let _running = scene.start().await;
    scene.apply("web", json!({}), json!({"loadBalancerSourceRanges": ["192.0.2.0/24"]}));
    scene.endpoint("web", json!({"ready": true}));
    eventually("it connects", || can_connect(&scene.inside, LAN, WEB));
    scene.node.run("nft flush ruleset");
    eventually("it connects again", || can_connect(&scene.inside, LAN, WEB));
    assert!(!can_connect(&scene.outside, WAN, WEB));
    // What a node told is told again, too.
    scene.kubernetes.kubectl(&["-n", "flushed", "delete", "configmap", "host-flushed-node"]).unwrap();
    assert_eq!(scene.addresses("web"), [LAN, WAN], "what is not known is no reason to take an address away");
}

/// The API is away: what is served goes on, addresses and endpoints change meanwhile, and nothing opens.
#[tokio::test(flavor = "multi_thread")]
async fn an_api_that_is_away() {
    let scene = Scene::new("gone", Mode::Nftables);
    let _serving = scene.backend.serve(8080);
    let (_running, passage) = scene.start_by_passage().await;
    scene.apply("web", json!({}), json!({"loadBalancerSourceRanges": ["192.0.2.0/24"]}));
    scene.endpoint("web", json!({"ready": true}));
    eventually("it connects", || can_connect(&scene.inside, LAN, WEB));
    passage.close();
    scene.node.run("ip address add 192.0.2.9/24 dev to-inside");
    eventually("it serves at an address that came", || can_connect(&scene.inside, "192.0.2.9", WEB));
    assert!(can_connect(&scene.inside, LAN, WEB));
    assert!(!can_connect(&scene.outside, WAN, WEB));
    scene.apply("other", json!({}), json!({"ports": [{"name": "http", "port": 81}]}));
    scene.endpoint("other", json!({"ready": true}));
    scene.apply("web", json!({}), json!({"loadBalancerSourceRanges": ["198.51.100.0/24"]}));
    passage.open();
    eventually("the new ranges count", || can_connect(&scene.outside, WAN, WEB));
    assert!(!can_connect(&scene.inside, LAN, WEB));
    eventually("the other one is served", || can_connect(&scene.inside, LAN, Target::Tcp(81)));
    scene.wait_for_addresses("web", &[LAN, "192.0.2.9", WAN]);
}

/// Connections to the API are cut all the time, while addresses and endpoints flap.
#[tokio::test(flavor = "multi_thread")]
async fn everything_flaps() {
    let scene = Scene::new("flaps", Mode::Nftables);
    let _serving = scene.backend.serve(8080);
    let (_running, passage) = scene.start_by_passage().await;
    scene.apply("web", json!({}), json!({"loadBalancerSourceRanges": ["192.0.2.0/24"]}));
    for round in 0..10 {
        scene.node.run("ip address add 192.0.2.9/24 dev to-inside");
        scene.endpoint("web", json!({"ready": round % 2 == 0}));
        passage.cut();
        scene.node.run("ip address del 192.0.2.9/24 dev to-inside");
        assert!(!can_connect(&scene.outside, WAN, WEB), "nothing opens");
    }
    scene.endpoint("web", json!({"ready": true}));
    eventually("it connects", || can_connect(&scene.inside, LAN, WEB));
    scene.wait_for_addresses("web", &[LAN, WAN]);
    assert!(!can_connect(&scene.outside, WAN, WEB));
}

/// Switched off, nothing of it is left.
#[tokio::test(flavor = "multi_thread")]
async fn switched_off_it_leaves_nothing() {
    let mut scene = Scene::new("off", Mode::Nftables);
    let running = scene.start().await;
    scene.apply("web", json!({}), json!({}));
    let has_table = |scene: &Scene| scene.node.run("nft list tables").contains("portcullis");
    eventually("there are packet filters", || has_table(&scene));
    drop(running);
    assert!(has_table(&scene), "a restart disturbs nobody");
    scene.mode = Mode::None;
    let _running = scene.start().await;
    eventually("there are none", || !has_table(&scene));
    // Others serve the address from now on.
    eventually("the status says so", || {
        scene.service("web")["status"]["loadBalancer"]["ingress"][0]["ipMode"] == "VIP"
    });
}
