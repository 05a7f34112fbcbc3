use std::time::{Duration, Instant};

use portcullis_controllers::host::{AgentSettings, Known, NodeAgent};
use portcullis_host::Machine;
use portcullis_host::datapath::{Datapath, Mode};
use portcullis_kube_api::enforced::ENFORCED;
use portcullis_kube_api::host::ASSIGNED;
use portcullis_testkit::talk::{Backend, Held};
use portcullis_testkit::{Failure, Target, can_connect, connect, eventually, eventually_within};
use rustix::thread::{CapabilitySet, capabilities, set_capabilities};
use serde_json::{Value, json};

use crate::scene::{LAN, OTHERS, Running, Scene, WAN, machine};

const WEB: Target = Target::Tcp(80);

/// Who lost the API tries again after half a minute at most, and each kind of object is asked for on its own.
const ASKED_AGAIN: Duration = Duration::from_secs(180);

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
    let of_node = ["-n", "flushed", "get", "configmap", "host-flushed-node", "-o"];
    let told = |what: &str| scene.kubernetes.kubectl(&[&of_node[..], &[what]].concat());
    // Up to which Service it knows all moves on for a while.
    let report = || {
        let mut report = scene.report();
        report["datapath"]["upTo"].take();
        report
    };
    scene.wait_for_condition("web", ENFORCED, "True/Enforced: ");
    let (before, reported) = (told("jsonpath={.metadata.uid}").unwrap(), report());
    scene.kubernetes.kubectl(&["-n", "flushed", "delete", "configmap", "host-flushed-node"]).unwrap();
    eventually("it is told again", || told("jsonpath={.metadata.uid}").is_ok_and(|uid| uid != before));
    assert_eq!(report(), reported);
    let owner = told("jsonpath={.metadata.ownerReferences[0].name}").unwrap();
    assert_eq!(owner, "flushed-node", "it goes when the node does");
    assert_eq!(scene.addresses("web"), [LAN, WAN], "what is not known is no reason to take an address away");
}

/// Somebody removes a part of what is ours, or all of it, from packet filters that keep others out: it is put back, whoever
/// else changes tables of their own meanwhile.
#[tokio::test(flavor = "multi_thread")]
async fn a_part_that_somebody_removes_comes_back() {
    let scene = Scene::new("parts", Mode::Filter);
    let _serving = scene.backend.serve(8080);
    scene.node.nft(OTHERS);
    let _running = scene.start().await;
    scene.apply("web", json!({}), json!({"loadBalancerSourceRanges": ["192.0.2.0/24"]}));
    scene.wait_for_addresses("web", &[LAN, WAN]);
    let ruleset = || scene.node.run("nft -s list table inet portcullis");
    let before = ruleset();
    let others = scene.node.run("nft -s list table ip others");
    let chain = before.split_whitespace().skip_while(|word| *word != "chain").nth(1).unwrap();
    for remove in [
        "delete element inet portcullis admit4_24 { 192.0.2.0 . 192.0.2.1 . tcp . 80 }",
        "delete element inet portcullis frontend4 { 198.51.100.1 . tcp . 80 }",
        "delete element inet portcullis arrived4 { 198.51.100.1 . tcp . 80 }",
        "flush set inet portcullis arrived4",
        &format!("flush chain inet portcullis {chain}"),
        "delete table inet portcullis",
    ] {
        scene.node.nft(remove);
        // Sets and their elements may be told in another order.
        let sorted = |text: &str| {
            let mut words: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
            words.sort();
            words
        };
        eventually(&format!("it is as it was before `{remove}`"), || sorted(&ruleset()) == sorted(&before));
        assert!(can_connect(&scene.inside, LAN, WEB), "{remove}");
        assert!(!can_connect(&scene.outside, WAN, WEB), "{remove}");
        scene.node.nft("table ip another { chain one { counter; }; }");
    }
    assert_eq!(scene.node.run("nft -s list table ip others"), others, "what is others' is others'");
}

/// Has the thread that changes packet filters be allowed to, or not.
async fn allow(machine: &Machine, allowed: bool) {
    let set = move |_: &mut Datapath| {
        let mut sets = capabilities(None).unwrap();
        sets.effective.set(CapabilitySet::NET_ADMIN, allowed);
        set_capabilities(None, sets).unwrap();
        Ok(())
    };
    machine.datapath(set).await.unwrap();
}

/// Packet filters cannot be changed: nobody gets an address whose filter is missing, what was in force still is, and what is
/// said of it is true.
#[tokio::test(flavor = "multi_thread")]
async fn packet_filters_that_cannot_be_changed() {
    let scene = Scene::new("refused", Mode::Filter);
    let _serving = scene.backend.serve(8080);
    let machine = machine(&scene.node);
    allow(&machine, false).await;
    let agent = NodeAgent::new(machine.clone(), scene.agent_settings(), scene.known().await);
    let _agent = Running::of(agent.run(|_| {}));
    let _controller = scene.start_controller().await;
    let limited = |range: &str| json!({"loadBalancerSourceRanges": [range]});
    scene.apply("web", json!({}), limited("192.0.2.0/24"));
    scene.wait_for_condition(
        "web",
        ASSIGNED,
        "False/NotFiltered: Its source ranges come first, and the packet filters of node refused-node are not as they should be: this process may not change the packet filters of this machine",
    );
    scene.wait_for_condition(
        "web",
        ENFORCED,
        "False/NotEnforced: The packet filters of node refused-node are not as they should be: this process may not",
    );
    assert_eq!(scene.addresses("web"), Vec::<String>::new());
    scene.serve_as_told("web");
    assert!(!can_connect(&scene.outside, WAN, WEB) && !can_connect(&scene.inside, LAN, WEB));
    eventually("an Event says so", || {
        scene.events("web").iter().any(|event| event.starts_with("NotFiltered: "))
    });

    // From now on they can be, and it is tried again.
    allow(&machine, true).await;
    scene.wait_for_addresses("web", &[LAN, WAN]);
    scene.serve_as_told("web");
    assert!(can_connect(&scene.inside, LAN, WEB));
    assert!(!can_connect(&scene.outside, WAN, WEB));
    scene.wait_for_condition("web", ASSIGNED, "True/Assigned");
    scene.wait_for_condition("web", ENFORCED, "True/Enforced: ");

    // Others are to be let in, and they cannot be changed again: those count that did.
    allow(&machine, false).await;
    scene.apply("web", json!({}), limited("192.0.2.128/25"));
    scene.wait_for_condition("web", ENFORCED, "False/NotEnforced: The packet filters of node refused-node");
    assert!(scene.condition("web", ENFORCED).ends_with("Until they are, what was set there before counts."));
    assert_eq!(scene.addresses("web"), [LAN, WAN], "what it has it keeps");
    assert!(can_connect(&scene.inside, LAN, WEB), "it does not keep to the new ranges");
    assert!(!can_connect(&scene.outside, WAN, WEB));
    // A Service that comes now waits, and so does one for an address that comes.
    scene.apply(
        "late",
        json!({}),
        json!({"ports": [{"port": 81}], "loadBalancerSourceRanges": ["10.0.0.0/8"]}),
    );
    scene.wait_for_condition("late", ASSIGNED, "False/NotFiltered: ");
    assert_eq!(scene.addresses("late"), Vec::<String>::new());
    scene.node.run("ip address add 192.0.2.9/24 dev to-inside");
    scene.wait_for_condition("web", ASSIGNED, "False/NotFiltered: ");
    assert_eq!(scene.addresses("web"), [LAN, WAN]);
    scene.serve_as_told("web");
    assert!(!can_connect(&scene.outside, "192.0.2.9", WEB), "nothing opens");
    // Whoever needs no filter is told of addresses all the same, each time, and not only when it is tried again.
    scene.apply("open", json!({}), json!({"ports": [{"port": 82}]}));
    scene.wait_for_addresses("open", &[LAN, "192.0.2.9", WAN]);
    let start = Instant::now();
    for _ in 0..5 {
        scene.node.run("ip address del 192.0.2.9/24 dev to-inside");
        scene.wait_for_addresses("open", &[LAN, WAN]);
        scene.node.run("ip address add 192.0.2.9/24 dev to-inside");
        scene.wait_for_addresses("open", &[LAN, "192.0.2.9", WAN]);
    }
    // Every half minute makes more than four minutes of ten changes.
    assert!(start.elapsed() < Duration::from_secs(240), "it is tried again every half minute");

    allow(&machine, true).await;
    scene.wait_for_addresses("web", &[LAN, "192.0.2.9", WAN]);
    scene.wait_for_addresses("late", &[LAN, "192.0.2.9", WAN]);
    scene.wait_for_condition("web", ENFORCED, "True/Enforced: ");
    scene.serve_as_told("web");
    for (client, address) in [(&scene.inside, LAN), (&scene.inside, "192.0.2.9"), (&scene.outside, WAN)] {
        assert!(!can_connect(client, address, WEB), "now it keeps to the new ranges at {address}");
    }
}

/// Packet filters that are to serve cannot be changed: whoever else serves does so until they can, and it is told. What they served
/// they go on serving.
#[tokio::test(flavor = "multi_thread")]
async fn packet_filters_that_cannot_serve() {
    let scene = Scene::new("unserved", Mode::Nftables);
    let _serving = scene.backend.serve(8080);
    let machine = machine(&scene.node);
    allow(&machine, false).await;
    let agent = NodeAgent::new(machine.clone(), scene.agent_settings(), scene.known().await);
    let _agent = Running::of(agent.run(|_| {}));
    let _controller = scene.start_controller().await;
    let ip_mode =
        |name: &str| scene.service(name)["status"]["loadBalancer"]["ingress"][0]["ipMode"].to_string();
    let wait_for = |name: &str, expected: &str| {
        let expected = json!(expected).to_string();
        eventually(&format!("{name} is {expected}"), || ip_mode(name) == expected);
    };
    let at = |port: u16| json!({"ports": [{"name": "http", "port": port, "targetPort": 8080}]});
    scene.apply("web", json!({}), at(80));
    scene.endpoint("web", json!({"ready": true}));
    let mut limited = at(81);
    limited["loadBalancerSourceRanges"] = json!(["192.0.2.0/24"]);
    scene.apply("limited", json!({}), limited);
    scene.endpoint("limited", json!({"ready": true}));
    let told = "NotServed: The packet filters of node unserved-node, which are to serve it, are not as they should be: this process may not change the packet filters of this machine";
    for name in ["web", "limited"] {
        scene.wait_for_condition(name, ASSIGNED, &format!("False/{told}"));
    }
    eventually("an Event says so", || scene.events("web").iter().any(|event| event.starts_with(told)));
    // A proxy like any leaves those alone of which it is told so.
    assert_eq!(
        (scene.addresses("web"), ip_mode("web")),
        (vec![LAN.to_owned(), WAN.to_owned()], "\"VIP\"".to_owned())
    );
    assert_eq!(scene.addresses("limited"), Vec::<String>::new(), "nobody would keep to its ranges");
    scene.serve_as_told("web");
    assert!(can_connect(&scene.inside, LAN, WEB));

    // From now on they can be, and serve it.
    allow(&machine, true).await;
    for name in ["web", "limited"] {
        wait_for(name, "Proxy");
        scene.wait_for_condition(name, ASSIGNED, "True/Assigned");
    }
    scene.node.run("nft delete table ip proxy");
    assert!(can_connect(&scene.inside, LAN, WEB));
    assert!(can_connect(&scene.inside, LAN, Target::Tcp(81)));
    assert!(!can_connect(&scene.outside, WAN, Target::Tcp(81)));

    // And not any more: what they serve they serve, and nobody is told otherwise.
    allow(&machine, false).await;
    scene.endpoints("web", &["10.244.0.2", "10.244.0.3"]);
    for name in ["web", "limited"] {
        scene.wait_for_condition(name, ASSIGNED, "False/NotServed: ");
    }
    scene.apply("late", json!({}), at(82));
    scene.wait_for_condition("late", ASSIGNED, "False/NotServed: ");
    assert_eq!(["late", "web", "limited"].map(ip_mode), ["\"VIP\"", "\"Proxy\"", "\"Proxy\""]);
    assert!(can_connect(&scene.inside, LAN, WEB));
    assert!(!can_connect(&scene.outside, WAN, Target::Tcp(81)));
}

/// Nobody looks after packet filters that are to serve: what they do not know of is left to others, and told. What they served they go
/// on serving.
#[tokio::test(flavor = "multi_thread")]
async fn packet_filters_that_nobody_looks_after() {
    let scene = Scene::new("dead", Mode::Nftables);
    let _serving = scene.backend.serve(8080);
    let (controller, agent) = (scene.start_controller().await, scene.start_agent().await);
    let ports = |ports: &[u16]| {
        let port = |port: &u16| json!({"name": format!("p{port}"), "port": port});
        json!({"ports": ports.iter().map(port).collect::<Vec<_>>()})
    };
    let modes = |name: &str| -> Vec<String> {
        let ingress = scene.service(name)["status"]["loadBalancer"]["ingress"].take();
        let modes = ingress.as_array().into_iter().flatten().map(|one| one["ipMode"].as_str().unwrap());
        modes.map(str::to_owned).collect()
    };
    scene.apply("web", json!({}), ports(&[80]));
    scene.wait_for_condition("web", ASSIGNED, "True/Assigned");
    eventually("it is told once it is so", || modes("web") == ["Proxy", "Proxy"]);
    drop((controller, agent));
    // One that others serve, one that is new, and one that is to have more.
    scene.apply("theirs", json!({}), ports(&[81]));
    let held = json!([{"ip": LAN, "ipMode": "VIP"}, {"ip": WAN, "ipMode": "VIP"}]);
    let status = json!({"status": {"loadBalancer": {"ingress": held}}}).to_string();
    let patch =
        ["-n", scene.name, "patch", "service", "theirs", "--subresource=status", "--type=merge", "-p"];
    scene.kubernetes.kubectl(&[&patch[..], &[&status]].concat()).unwrap();
    let _controller = scene.start_controller().await;
    scene.apply("new", json!({}), ports(&[82]));
    scene.wait_for_addresses("new", &[LAN, WAN]);
    scene.apply("web", json!({}), ports(&[80, 83]));
    let told = "False/NotServed: The packet filters of node dead-node, which are to serve it, do not know what it asks for now";
    for name in ["theirs", "new", "web"] {
        scene.wait_for_condition(name, ASSIGNED, told);
    }
    let [theirs, new, web] = ["theirs", "new", "web"].map(modes);
    assert_eq!([theirs, new], [["VIP", "VIP"]; 2], "whoever else is there serves them");
    assert_eq!(web, ["Proxy", "Proxy"]);

    let _agent = scene.start_agent().await;
    for name in ["theirs", "new", "web"] {
        scene.wait_for_condition(name, ASSIGNED, "True/Assigned");
        assert_eq!(modes(name), ["Proxy", "Proxy"], "{name}");
    }
}

/// A port is new at addresses that a Service has, and whoever forwards serves it to everybody. Where no filter can be set for it,
/// nobody is sent to these addresses.
#[tokio::test(flavor = "multi_thread")]
async fn a_new_port_whose_filter_is_missing() {
    let scene = Scene::new("newport", Mode::Filter);
    let _serving = scene.backend.serve(8080);
    let client = scene.client().await;
    let start = || {
        let (machine, settings) = (machine(&scene.node), scene.agent_settings());
        Running::of(NodeAgent::new(machine, settings, Known::new(client.clone())).run(|_| {}))
    };
    let _controller = scene.start_controller().await;
    let agent = start();
    let with_ports = |ports: &[u16]| {
        let ports: Vec<_> =
            ports.iter().map(|port| json!({"name": format!("p{port}"), "port": port})).collect();
        let spec = json!({"ports": ports, "loadBalancerSourceRanges": ["192.0.2.0/24"]});
        scene.apply("web", json!({}), spec);
    };
    with_ports(&[80]);
    scene.wait_for_addresses("web", &[LAN, WAN]);
    scene.wait_for_condition("web", ENFORCED, "True/Enforced: ");

    // Nobody looks after the packet filters.
    drop(agent);
    let spec = json!({"ports": [{"port": 90}], "loadBalancerSourceRanges": ["192.0.2.0/24"]});
    scene.apply("new", json!({}), spec);
    scene.wait_for_condition("new", ASSIGNED, "False/Waiting: ");
    with_ports(&[80, 81]);
    scene.wait_for_addresses("web", &[]);
    let late = "The packet filters of node newport-node do not know what it asks for now";
    scene.wait_for_condition("web", ENFORCED, &format!("False/NotEnforced: {late}"));
    scene.serve_as_told("web");
    assert!(!can_connect(&scene.outside, WAN, Target::Tcp(81)));

    // Somebody does again: both ports are served, and filtered.
    let _agent = start();
    scene.wait_for_addresses("web", &[LAN, WAN]);
    scene.wait_for_condition("web", ENFORCED, "True/Enforced: ");
    scene.serve_as_told("web");
    for port in [80, 81] {
        assert!(can_connect(&scene.inside, LAN, Target::Tcp(port)), "{port}");
        assert!(!can_connect(&scene.outside, WAN, Target::Tcp(port)), "{port}");
    }
    // While all is well an address stays where it is when a port comes.
    with_ports(&[80, 81, 82]);
    eventually("the port is there", || {
        let ports = &scene.service("web")["status"]["loadBalancer"]["ingress"][0]["ports"];
        assert_eq!(scene.addresses("web"), [LAN, WAN], "it is reached all the time");
        ports.as_array().is_some_and(|ports| ports.len() == 3)
    });
}

/// Somebody else who forwards all that the API may ever tell of.
const FORWARDING: &str = "table ip forwarding {
    chain prerouting {
        type nat hook prerouting priority -100;
        ip daddr { 192.0.2.1, 192.0.2.9, 198.51.100.1 } tcp dport { 80, 81 } dnat to 10.244.0.2:8080;
        ip daddr { 192.0.2.1, 192.0.2.9, 198.51.100.1 } tcp dport 8000 dnat to 10.244.0.2:8081;
    }
}";

/// Has somebody else forward, where ours does not.
fn forward(scene: &Scene) {
    if scene.mode == Mode::Filter {
        scene.node.nft(FORWARDING);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_api_that_is_away() {
    api_is_away(Scene::new("gone", Mode::Nftables), Duration::from_secs(150)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_api_that_is_away_while_packets_are_filtered() {
    api_is_away(Scene::new("gone-too", Mode::Filter), Duration::from_secs(40)).await;
}

/// The API is away for a while: what is served goes on, on new connections and on one that was there, addresses come and go
/// meanwhile, and nothing opens, also if all of ours starts anew. When it is back, what it says counts.
async fn api_is_away(scene: Scene, away: Duration) {
    forward(&scene);
    let _serving = (scene.backend.serve(8080), Backend::start(&scene.backend, 8081));
    let (running, passage) = scene.start_by_passage().await;
    let limited = |range: &str| {
        let ports = [json!({"name": "http", "port": 80}), json!({"name": "talk", "port": 8000})];
        scene.apply("web", json!({}), json!({"ports": ports, "loadBalancerSourceRanges": [range]}));
    };
    limited("192.0.2.0/24");
    scene.endpoint("web", json!({"ready": true}));
    scene.wait_for_condition("web", ENFORCED, "True/Enforced: ");
    eventually("it connects", || can_connect(&scene.inside, LAN, WEB));
    let mut held = Held::connect(&scene.inside, LAN, 8000).unwrap();
    held.ask().unwrap();

    let start = Instant::now();
    passage.close();
    while start.elapsed() < away {
        scene.node.run("ip address add 192.0.2.9/24 dev to-inside");
        eventually("it serves at an address that came", || can_connect(&scene.inside, "192.0.2.9", WEB));
        eventually("to nobody else", || !can_connect(&scene.outside, "192.0.2.9", WEB));
        assert!(!can_connect(&scene.outside, WAN, WEB), "nothing opens");
        scene.node.run("ip address del 192.0.2.9/24 dev to-inside");
        assert!(can_connect(&scene.inside, LAN, WEB));
        held.ask().unwrap();
    }
    // Who knows nothing takes nothing away.
    drop(running);
    let _running = scene.start_through(&passage).await;
    for _ in 0..3 {
        assert!(can_connect(&scene.inside, LAN, WEB));
        assert!(!can_connect(&scene.outside, WAN, WEB), "nothing opens");
        held.ask().unwrap();
    }
    scene.node.run("ip address add 192.0.2.9/24 dev to-inside");
    scene.apply("other", json!({}), json!({"ports": [{"name": "http", "port": 81}]}));
    scene.endpoint("other", json!({"ready": true}));
    limited("198.51.100.0/24");
    passage.open();
    eventually_within(ASKED_AGAIN, "the new ranges count", || can_connect(&scene.outside, WAN, WEB));
    assert!(!can_connect(&scene.inside, LAN, WEB));
    let other = Target::Tcp(81);
    eventually_within(ASKED_AGAIN, "the other one is served", || can_connect(&scene.inside, LAN, other));
    let at = [LAN, "192.0.2.9", WAN];
    eventually_within(ASKED_AGAIN, "the status says where", || scene.addresses("web") == at);
}

#[tokio::test(flavor = "multi_thread")]
async fn everything_flaps() {
    all_flaps(Scene::new("flaps", Mode::Nftables)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn everything_flaps_while_packets_are_filtered() {
    all_flaps(Scene::new("flaps-too", Mode::Filter)).await;
}

/// Connections to the API are cut all the time, while addresses and endpoints flap: who may connect does so again and again, and
/// nobody else ever does.
async fn all_flaps(scene: Scene) {
    const ROUNDS: usize = 10;
    const MOST: usize = 60;
    // Who else forwards knows nothing of endpoints here.
    let refuses = scene.mode == Mode::Nftables;
    forward(&scene);
    let _serving = scene.backend.serve(8080);
    let (_running, passage) = scene.start_by_passage().await;
    scene.apply("web", json!({}), json!({"loadBalancerSourceRanges": ["192.0.2.0/24"]}));
    scene.endpoint("web", json!({"ready": true}));
    scene.wait_for_condition("web", ENFORCED, "True/Enforced: ");
    eventually("it connects", || can_connect(&scene.inside, LAN, WEB));
    let is_through = |round: usize| match connect(&scene.inside, LAN, WEB) {
        Ok(_) => true,
        // Nobody is there to serve, and who may connect is told.
        Err(failure) => {
            assert!(refuses && failure == Failure::Refused, "round {round}: {failure:?}");
            false
        }
    };
    let (mut round, mut through, mut refused) = (0, 0, 0);
    // Half of the rounds have an endpoint. Who is cut off again and again does not hear of each of them on a busy machine.
    while round < ROUNDS || (round < MOST && (through < ROUNDS / 2 || refuses && refused == 0)) {
        let mut ask = || if is_through(round) { through += 1 } else { refused += 1 };
        let is_ready = round % 2 == 0;
        scene.node.run("ip address add 192.0.2.9/24 dev to-inside");
        scene.endpoint("web", json!({"ready": is_ready}));
        passage.cut();
        scene.node.run("ip address del 192.0.2.9/24 dev to-inside");
        // Before and after somebody else tries, which takes a while: that nothing opens says little of what is closed to all.
        ask();
        assert!(!can_connect(&scene.outside, WAN, WEB), "nothing opens in round {round}");
        ask();
        round += 1;
    }
    assert!(through >= ROUNDS / 2, "it got through {through} times, and was refused {refused} times");
    assert_eq!(refused > 0, refuses, "endpoints did not flap: it got through {through} times");
    scene.endpoint("web", json!({"ready": true}));
    eventually_within(ASKED_AGAIN, "it connects", || can_connect(&scene.inside, LAN, WEB));
    eventually_within(ASKED_AGAIN, "the status says where", || scene.addresses("web") == [LAN, WAN]);
    assert!(!can_connect(&scene.outside, WAN, WEB));
}

fn has_table(scene: &Scene) -> bool {
    scene.node.run("nft list tables").contains("portcullis")
}

#[tokio::test(flavor = "multi_thread")]
async fn switched_off_it_leaves_nothing() {
    switched_off(Scene::new("off", Mode::Nftables)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn switched_off_it_filters_nothing() {
    switched_off(Scene::new("off-too", Mode::Filter)).await;
}

/// Without a Service, and switched off, nothing of it is left.
async fn switched_off(mut scene: Scene) {
    let running = scene.start().await;
    scene.apply("web", json!({}), json!({}));
    eventually("there are packet filters", || has_table(&scene));
    scene.delete("web");
    eventually("without a Service there are none", || !has_table(&scene));
    scene.apply("web", json!({}), json!({}));
    eventually("there are again", || has_table(&scene));
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

/// A node that was started anew has nothing in its packet filters, and others forward as soon as they are told of an address: it is
/// taken away until the filters are there again.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_was_started_anew() {
    let scene = Scene::new("anew", Mode::Filter);
    let _serving = scene.backend.serve(8080);
    let controller = scene.start_controller().await;
    let agent = scene.start_agent().await;
    scene.apply("web", json!({}), json!({"loadBalancerSourceRanges": ["192.0.2.0/24"]}));
    scene.wait_for_addresses("web", &[LAN, WAN]);
    scene.wait_for_condition("web", ENFORCED, "True/Enforced");
    scene.serve_as_told("web");
    assert!(!can_connect(&scene.outside, WAN, WEB));
    drop(agent);
    // As after a start of the machine, where Portcullis does not start.
    scene.node.run("nft delete table inet portcullis");
    assert!(can_connect(&scene.outside, WAN, WEB), "whoever forwards lets everybody in");
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    scene.booted("0b00b00b-0000-4000-8000-000000000000");
    scene.wait_for_addresses("web", &[]);
    scene.wait_for_condition("web", ENFORCED, "False/NotEnforced: Node anew-node was started anew");
    scene.serve_as_told("web");
    assert!(!can_connect(&scene.outside, WAN, WEB));
    // It starts, and nobody is told of an address before its filter is there. What the node told last is about another start than the
    // one that its kubelet tells of.
    let mut told = scene.report();
    told["boot"] = json!("0b00b00b-0000-4000-8000-000000000000");
    scene.set_report(&told);
    scene.booted(boot.trim());
    let _agent = scene.start_agent().await;
    scene.wait_for_addresses("web", &[LAN, WAN]);
    assert!(has_table(&scene), "the filter was there first");
    scene.wait_for_condition("web", ENFORCED, "True/Enforced");
    scene.serve_as_told("web");
    assert!(!can_connect(&scene.outside, WAN, WEB));
    assert!(can_connect(&scene.inside, LAN, WEB));
    drop(controller);
}

/// Who is served again after a start of the node is told so, also where all else that the node tells is as it was.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_was_started_anew_and_serves_again() {
    let scene = Scene::new("anew-served", Mode::Nftables);
    let _controller = scene.start_controller().await;
    let agent = scene.start_agent().await;
    scene.apply("web", json!({}), json!({"loadBalancerSourceRanges": ["192.0.2.0/24"]}));
    scene.wait_for_condition("web", ENFORCED, "True/Enforced");
    drop(agent);
    let boot = "0b00b00b-0000-4000-8000-000000000000";
    scene.booted(boot);
    scene.wait_for_condition("web", ENFORCED, "False/NotEnforced: Node anew-served-node was started anew");
    let mut told = scene.report();
    told["boot"] = json!(boot);
    scene.set_report(&told);
    scene.wait_for_condition("web", ENFORCED, "True/Enforced");
}

/// Nor does what was set outlive a start after which packet filters cannot be set at all.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_was_started_anew_and_cannot_filter() {
    let scene = Scene::new("anew-unset", Mode::Filter);
    let _serving = scene.backend.serve(8080);
    let (controller, agent) = (scene.start_controller().await, scene.start_agent().await);
    scene.apply("web", json!({}), json!({"loadBalancerSourceRanges": ["192.0.2.0/24"]}));
    scene.wait_for_addresses("web", &[LAN, WAN]);
    scene.wait_for_condition("web", ENFORCED, "True/Enforced");
    drop((controller, agent));
    // By the time that anybody looks, the node and its kubelet tell of the same start.
    scene.node.run("nft delete table inet portcullis");
    scene.serve_as_told("web");
    assert!(can_connect(&scene.outside, WAN, WEB), "whoever forwards lets everybody in");
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    scene.booted(boot.trim());
    let mut told = scene.report();
    told["boot"] = json!("0b00b00b-0000-4000-8000-000000000000");
    scene.set_report(&told);
    let machine = machine(&scene.node);
    allow(&machine, false).await;
    let agent = NodeAgent::new(machine.clone(), scene.agent_settings(), scene.known().await);
    let _agent = Running::of(agent.run(|_| {}));
    eventually("the node tells of this start", || scene.report()["boot"] == boot.trim());
    let _controller = scene.start_controller().await;
    scene.wait_for_addresses("web", &[]);
    scene.wait_for_condition("web", ASSIGNED, "False/NotFiltered: ");
    let told = "Nothing is set there for 192.0.2.1, 198.51.100.1.";
    eventually("it is told", || scene.condition("web", ENFORCED).ends_with(told));
    scene.serve_as_told("web");
    assert!(!can_connect(&scene.outside, WAN, WEB));
    allow(&machine, true).await;
    scene.wait_for_addresses("web", &[LAN, WAN]);
    scene.wait_for_condition("web", ENFORCED, "True/Enforced");
    scene.serve_as_told("web");
    assert!(can_connect(&scene.inside, LAN, WEB));
    assert!(!can_connect(&scene.outside, WAN, WEB));
}

/// Who had an address leaves while nobody looks: who waits for it gets it once the node's packet filters know of that, and not before.
#[tokio::test(flavor = "multi_thread")]
async fn who_leaves_unseen_leaves_nothing_open() {
    let scene = Scene::new("unseen", Mode::Filter);
    let _serving = scene.backend.serve(8080);
    let controller = scene.start_controller().await;
    let agent = scene.start_agent().await;
    scene.apply("open", json!({}), json!({}));
    scene.wait_for_addresses("open", &[LAN, WAN]);
    scene.apply("web", json!({}), json!({"loadBalancerSourceRanges": ["192.0.2.0/24"]}));
    scene.wait_for_condition("web", ASSIGNED, "False/Conflict");
    let version =
        |service: Value| -> u64 { service["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap() };
    let last = version(scene.service("web"));
    eventually("the node knows both", || scene.report()["datapath"]["upTo"].as_u64() >= Some(last));
    drop((controller, agent));
    scene.delete("open");

    let controller = scene.start_controller().await;
    scene.wait_for_condition(
        "web",
        ASSIGNED,
        "False/Waiting: It waits for the packet filters of unseen-node",
    );
    assert_eq!(scene.addresses("web"), Vec::<String>::new());
    let late = "False/NotEnforced: The packet filters of node unseen-node do not know what it asks for now";
    scene.wait_for_condition("web", ENFORCED, late);
    // Another controller has nothing else to say, and waits for no longer than the first.
    drop(controller);
    let _controller = scene.start_controller().await;
    let _agent = scene.start_agent().await;
    scene.wait_for_addresses("web", &[LAN, WAN]);
    scene.wait_for_condition("web", ENFORCED, "True/Enforced");
    scene.serve_as_told("web");
    assert!(!can_connect(&scene.outside, WAN, WEB));
    assert!(can_connect(&scene.inside, LAN, WEB));
}

/// A node that is configured otherwise than whoever writes statuses: what it keeps for itself is nobody's, and what it does not look
/// after is not at its addresses.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_node_is_configured_to_counts_there() {
    let scene = Scene::new("otherwise", Mode::Filter);
    let _controller = scene.start_controller().await;
    let usual = scene.agent_settings();
    let mut kept = usual.clone();
    kept.policy.selection.management.push("to-outside".to_owned());
    kept.policy.reserved.insert(8443);
    let agent = scene.start_agent_with(kept).await;
    let ranges = json!({"loadBalancerSourceRanges": ["192.0.2.0/24"]});
    scene.apply("web", json!({}), ranges.clone());
    scene.apply("open", json!({}), json!({"ports": [{"port": 81}]}));
    scene.apply("admin", json!({}), json!({"ports": [{"port": 8443}]}));
    scene.wait_for_addresses("web", &[LAN]);
    scene.wait_for_condition("web", ENFORCED, "True/Enforced");
    scene.wait_for_addresses("open", &[LAN]);
    scene.wait_for_condition("admin", ASSIGNED, "False/PortReserved");

    // It is told something else, and all of it counts anew.
    drop(agent);
    let agent = scene.start_agent_with(usual.clone()).await;
    for name in ["web", "open", "admin"] {
        scene.wait_for_addresses(name, &[LAN, WAN]);
    }
    drop(agent);
    let other = AgentSettings { class: "example.com/other".to_owned(), ..usual };
    let _agent = scene.start_agent_with(other).await;
    let why =
        "False/OtherClass: Node otherwise-node does not look after it: host.class is `example.com/other`";
    scene.wait_for_condition("web", ASSIGNED, why);
    scene.wait_for_addresses("web", &[]);
    scene.wait_for_addresses("open", &[]);
    scene.apply("late", json!({}), ranges);
    scene.wait_for_condition("late", ASSIGNED, why);
    assert_eq!(scene.addresses("late"), Vec::<String>::new());
}
