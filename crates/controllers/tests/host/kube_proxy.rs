//! Beside a real kube-proxy, on the same node: who serves an address is settled, and packets decide whether it is so.

use portcullis_core::Protocol;
use portcullis_host::datapath::{Counters, Datapath, Mode, Place};
use portcullis_kube_api::SOURCE_RANGES;
use portcullis_kube_api::enforced::ENFORCED;
use portcullis_testkit::parts::Namespace;
use portcullis_testkit::talk::{Backend, Held, ask};
use portcullis_testkit::{Target, can_connect, connect, eventually};
use serde_json::{Value, json};

use crate::scene::{LAN, Scene, WAN};

const WEB: Target = Target::Tcp(80);

/// What kube-proxy has of Services, without what it has of the node itself.
fn of_kube_proxy(scene: &Scene) -> String {
    scene.node.run("nft list map ip kube-proxy service-ips")
}

/// How kube-proxy names a port of an address there.
fn at(address: &str, port: u16) -> String {
    format!("{address} . tcp . {port} ")
}

/// Who is to serve each of its addresses.
fn modes(scene: &Scene, name: &str) -> Vec<String> {
    let service = scene.service(name);
    let ingress = service["status"]["loadBalancer"]["ingress"].as_array().unwrap();
    ingress.iter().map(|one| one["ipMode"].as_str().unwrap_or_default().to_owned()).collect()
}

/// What our packet filters counted at an address.
fn counted(scene: &Scene, address: &str) -> Counters {
    let place = Place::new(address.parse().unwrap(), Protocol::TCP, 80).unwrap();
    let all = Namespace::run(&scene.node, || Datapath::open().unwrap().counters().unwrap());
    all.get(&place).copied().unwrap_or_default()
}

/// Takes our packet filters away, once nobody looks after them.
fn without_ours(scene: &Scene) {
    scene.node.run("nft delete table inet portcullis");
}

/// What we serve kube-proxy leaves alone.
#[test]
fn what_is_served_here_kube_proxy_leaves_alone() {
    let (scene, _proxy) = Scene::with_kube_proxy("alone", Mode::Nftables);
    let _serving = scene.backend.serve(8080);
    let (running, runtime) = scene.start_on_node();
    scene.apply("web", json!({}), json!({"loadBalancerSourceRanges": ["192.0.2.0/24"]}));
    scene.endpoint("web", json!({"ready": true}));
    scene.wait_for_addresses("web", &[LAN, WAN]);
    assert_eq!(modes(&scene, "web"), ["Proxy", "Proxy"]);
    // One of somebody else, at the same address and known later, is kube-proxy's.
    scene.apply(
        "theirs",
        json!({}),
        json!({"loadBalancerClass": "example.com/other", "ports": [{"name": "http", "port": 81, "targetPort": 8080}]}),
    );
    scene.endpoint("theirs", json!({"ready": true}));
    let status = json!({"status": {"loadBalancer": {"ingress": [{"ip": LAN}]}}}).to_string();
    let patch = [
        "-n",
        scene.name,
        "patch",
        "service",
        "theirs",
        "--subresource=status",
        "--type=merge",
        "-p",
        &status,
    ];
    scene.kubernetes.kubectl(&patch).unwrap();
    let inside_the_cluster =
        |name: &str| scene.service(name)["spec"]["clusterIP"].as_str().unwrap().to_owned();
    let (web, theirs) = (inside_the_cluster("web"), inside_the_cluster("theirs"));
    eventually("kube-proxy serves what is its own", || {
        let found = of_kube_proxy(&scene);
        [at(&web, 80), at(&theirs, 81), at(LAN, 81)].iter().all(|place| found.contains(place))
    });
    let found = scene.node.run("nft list table ip kube-proxy");
    for address in [LAN, WAN] {
        assert!(!found.contains(&at(address, 80)), "nothing of {address} is kube-proxy's: {found}");
    }

    eventually("who is in the range connects", || can_connect(&scene.inside, LAN, WEB));
    assert_eq!(connect(&scene.inside, LAN, WEB), Ok("192.0.2.10".to_owned()), "with its own address");
    assert!(!can_connect(&scene.outside, WAN, WEB));
    let (lan, wan) = (counted(&scene, LAN), counted(&scene, WAN));
    assert!(lan.arrived.packets > lan.dropped.packets && wan.dropped.packets > 0);
    assert!(can_connect(&scene.inside, LAN, Target::Tcp(81)), "what is kube-proxy's goes on");
    // Whichever of both has the port answers health checks.
    let health = scene.service("web")["spec"]["healthCheckNodePort"].as_u64().unwrap();
    let url = format!("http://{LAN}:{health}/healthz");
    // kube-proxy comes to them after its rules.
    eventually("health checks are answered", || {
        let curl = ["-s", "-m", "30", "-w", "%{http_code}", &url];
        let answer = portcullis_testkit::parts::run(&scene.inside, "curl", &curl);
        let answer = answer.unwrap_or_default().replace(' ', "");
        answer.contains(r#""localEndpoints":1"#) && answer.ends_with("200")
    });

    // It was ours that let them through: nobody else does.
    drop((running, runtime));
    without_ours(&scene);
    assert!(!can_connect(&scene.inside, LAN, WEB));
    assert!(can_connect(&scene.inside, LAN, Target::Tcp(81)));
}

/// kube-proxy forwards, and ranges that it knows nothing of are kept to before it sees a packet.
#[test]
fn ranges_are_kept_to_ahead_of_kube_proxy() {
    let (scene, _proxy) = Scene::with_kube_proxy("ahead", Mode::Filter);
    let _serving = (scene.backend.serve(8080), Backend::start(&scene.backend, 8081));
    let (running, runtime) = scene.start_on_node();
    // kube-proxy reads only the field of the spec.
    let ports = json!([
        {"name": "http", "port": 80, "targetPort": 8080},
        {"name": "talk", "port": 8000, "targetPort": 8081},
    ]);
    let limited = |range: &str| scene.apply("web", json!({SOURCE_RANGES: range}), json!({"ports": ports}));
    limited("192.0.2.0/24");
    scene.endpoint("web", json!({"ready": true}));
    scene.wait_for_addresses("web", &[LAN, WAN]);
    assert_eq!(modes(&scene, "web"), ["VIP", "VIP"]);
    scene.wait_for_condition(
        "web",
        ENFORCED,
        "True/Enforced: The packet filters of ahead-node (to-inside, to-outside)",
    );
    eventually("kube-proxy serves both", || {
        let found = of_kube_proxy(&scene);
        [LAN, WAN].iter().all(|address| found.contains(&at(address, 80)))
    });
    let forwarded = of_kube_proxy(&scene);
    eventually("who is in the range connects", || can_connect(&scene.inside, LAN, WEB));
    assert_eq!(connect(&scene.inside, LAN, WEB), Ok("192.0.2.10".to_owned()), "kube-proxy keeps its address");
    let before = counted(&scene, WAN).dropped.packets;
    assert!(!can_connect(&scene.outside, WAN, WEB));
    assert!(counted(&scene, WAN).dropped.packets > before, "it was our filter that dropped it");

    // Ranges change, and what kube-proxy does need not.
    limited("198.51.100.0/24");
    eventually("who is in the new range connects", || can_connect(&scene.outside, WAN, WEB));
    assert!(!can_connect(&scene.inside, LAN, WEB));
    assert_eq!(of_kube_proxy(&scene), forwarded);
    // In the field both count: who is in it connects, by either.
    let field = |ranges: Value| {
        scene.apply("web", json!({}), json!({"loadBalancerSourceRanges": ranges, "ports": ports}));
    };
    field(json!(["192.0.2.0/24"]));
    eventually("who is in the range of both connects", || can_connect(&scene.inside, LAN, WEB));
    let before = counted(&scene, WAN).dropped.packets;
    assert!(!can_connect(&scene.outside, WAN, WEB));
    assert!(counted(&scene, WAN).dropped.packets > before, "ours comes first");

    // kube-proxy alone lets everybody in where only the annotation names ranges.
    limited("192.0.2.0/24");
    scene.wait_for_condition("web", ENFORCED, "True/Enforced: ");
    // A restart of ours is noticed by nobody.
    eventually("kube-proxy serves the other port", || ask(&scene.inside, LAN, 8000).is_ok());
    let mut held = Held::connect(&scene.inside, LAN, 8000).unwrap();
    held.ask().unwrap();
    drop((running, runtime));
    assert!(!can_connect(&scene.outside, WAN, WEB), "it is kept to while nobody looks after it");
    held.ask().unwrap();
    let before = counted(&scene, WAN).dropped.packets;
    let again = scene.start_on_node();
    limited("192.0.2.0/25");
    eventually("it is looked after", || {
        scene.node.run("nft list sets table inet portcullis").contains("admit4_25")
    });
    held.ask().unwrap();
    assert!(!can_connect(&scene.outside, WAN, WEB));
    assert!(counted(&scene, WAN).dropped.packets > before, "what was counted is not forgotten");
    drop(again);
    held.ask().unwrap();
    without_ours(&scene);
    eventually("kube-proxy lets everybody in", || can_connect(&scene.outside, WAN, WEB));
}
