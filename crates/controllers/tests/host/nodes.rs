//! A small cluster: packets that come to one node, for endpoints on any.

use portcullis_controllers::host::{AgentSettings, NodeAgent};
use portcullis_host::datapath::Mode;
use portcullis_testkit::talk::{Backend, ask};
use portcullis_testkit::{Failure, Target, can_connect, connect, eventually, link};
use serde_json::{Value, json};

use crate::scene::{LAN, Running, Scene, WAN, machine, plug};

const WEB: Target = Target::Tcp(80);
/// The port of who says who they are.
const TALK: u16 = 8000;

/// The other node, to clients.
const OTHER: &str = "203.0.113.1";
/// Both nodes, to each other.
const BETWEEN: [&str; 2] = ["172.16.0.1", "172.16.0.2"];

/// Another node for the same cluster, with networks of its own: `10.244.1.2` is a pod there, and clients are `203.0.113.10`.
fn another_node(of: &Scene, name: &'static str) -> Scene {
    let other = Scene::beside(name, of.mode);
    for cable in ["to-inside", "to-outside", "to-backend"] {
        other.node.run(&format!("ip link del {cable}"));
    }
    plug(&other.inside, &other.node, ["203.0.113", "2001:db8:3"]);
    link(&other.backend, &["10.244.1.2/24"], &other.node, &["10.244.1.1/24"]);
    other.backend.default_route("10.244.1.1");
    // What nodes of a cluster have: a way to the pods of each other.
    let [one, two] = BETWEEN;
    link(&of.node, &[&format!("{one}/24")], &other.node, &[&format!("{two}/24")]);
    of.node.run(&format!("ip route add 10.244.1.0/24 via {two}"));
    other.node.run(&format!("ip route add 10.244.0.0/24 via {one}"));
    other
}

/// Each node serves at its own addresses: with the policy Cluster by endpoints on either, with Local by its own.
#[tokio::test(flavor = "multi_thread")]
async fn two_nodes_serve_one_service() {
    let scene = Scene::new("cluster", Mode::Nftables);
    let other = another_node(&scene, "cluster-too");
    let _seeing = [&scene, &other].map(|node| node.backend.serve(8080));
    let [here, there] = [&scene, &other].map(|node| Backend::start(&node.backend, 8081));
    let _running = scene.start().await;
    let settings = AgentSettings { node: other.node_name(), ..scene.agent_settings() };
    let agent = NodeAgent::new(machine(&other.node), settings, scene.known().await);
    let _other = Running::of(agent.run(|_| {}));

    let web = |policy: &str| {
        let ports = [json!({"name": "http", "port": 80}), json!({"name": "talk", "port": TALK})];
        scene.apply("web", json!({}), json!({"ports": ports, "externalTrafficPolicy": policy}));
    };
    let of = |node: &Scene, address: &str| json!({"addresses": [address], "nodeName": node.node_name()});
    let (near, far) = (of(&scene, "10.244.0.2"), of(&other, "10.244.1.2"));
    let endpoints = |all: &[&Value]| scene.slice("web", "IPv4", json!(all));
    // Which of both were asked, by clients of one node and of the other.
    let asked = || {
        [(&scene.inside, LAN), (&other.inside, OTHER)].map(|(client, address)| {
            let before = [here.served(), there.served()];
            for _ in 0..40 {
                assert_eq!(ask(client, address, TALK).unwrap(), "backend");
            }
            [here.served() > before[0], there.served() > before[1]]
        })
    };
    let seen = || [connect(&scene.inside, LAN, WEB), connect(&other.inside, OTHER, WEB)];
    let all = &[BETWEEN[0], BETWEEN[1], LAN, WAN, OTHER];

    // The endpoint is on the other node: both nodes send there, with themselves as the client.
    web("Cluster");
    endpoints(&[&far]);
    scene.wait_for_addresses("web", all);
    let by_nodes = [Ok(BETWEEN[0].to_owned()), Ok("10.244.1.1".to_owned())];
    eventually("both nodes reach it", || seen() == by_nodes);
    assert_eq!(asked(), [[false, true], [false, true]]);
    // Nobody serves at addresses of another node.
    assert!(!can_connect(&scene.inside, OTHER, WEB));
    // With one on each node, both get some, by either.
    endpoints(&[&near, &far]);
    eventually("both are asked, by both", || asked() == [[true, true], [true, true]]);

    // Each sends to its own only, and clients keep their addresses.
    web("Local");
    let own = [Ok("192.0.2.10".to_owned()), Ok("203.0.113.10".to_owned())];
    eventually("clients keep their addresses", || seen() == own);
    assert_eq!(asked(), [[true, false], [false, true]]);
    scene.wait_for_addresses("web", all);
    // A node without one is not told of, and who comes there nevertheless is told.
    endpoints(&[&far]);
    scene.wait_for_addresses("web", &[BETWEEN[1], OTHER]);
    eventually("only one node serves", || seen() == [Err(Failure::Refused), own[1].clone()]);
    // It moves.
    endpoints(&[&near]);
    scene.wait_for_addresses("web", &[BETWEEN[0], LAN, WAN]);
    eventually("the other node serves", || seen() == [own[0].clone(), Err(Failure::Refused)]);

    // Ranges count at each node, wherever the endpoint is.
    let limited = json!({"externalTrafficPolicy": "Cluster", "loadBalancerSourceRanges": ["203.0.113.0/24"]});
    scene.apply("web", json!({}), limited);
    scene.wait_for_addresses("web", all);
    eventually("only who is in the range connects", || {
        seen() == [Err(Failure::TimedOut), Ok(BETWEEN[1].to_owned())]
    });
}
