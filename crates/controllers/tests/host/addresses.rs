use portcullis_controllers::host::{AgentSettings, HostController, HostSettings, NodeAgent};
use portcullis_host::datapath::Mode;
use portcullis_kube_api::enforced::ENFORCED;
use portcullis_kube_api::host::{ASSIGNED, LISTEN_ADDRESSES};
use portcullis_testkit::{Refusing, Target, can_connect, connect, eventually};
use serde_json::{Value, json};

use crate::scene::{LAN, LAN6, Running, Scene, WAN, WAN6, machine};

#[tokio::test(flavor = "multi_thread")]
async fn services_get_the_addresses_that_they_ask_for() {
    let scene = Scene::new("asked", Mode::None);
    scene.apply("usual", json!({}), json!({}));
    scene.apply("nic", json!({LISTEN_ADDRESSES: "to-inside"}), json!({"ports": [{"port": 81}]}));
    scene.apply(
        "twice",
        json!({LISTEN_ADDRESSES: "to-outside, 198.51.100.1,to-outside"}),
        json!({"ports": [{"port": 82}]}),
    );
    scene.apply("field", json!({}), json!({"loadBalancerIP": WAN, "ports": [{"port": 83}]}));
    scene.apply("nothing", json!({LISTEN_ADDRESSES: ""}), json!({"ports": [{"port": 84}]}));
    scene.apply("elsewhere", json!({LISTEN_ADDRESSES: "dmz"}), json!({"ports": [{"port": 85}]}));
    scene.apply("other", json!({}), json!({"loadBalancerClass": "example.com/other"}));
    let _running = scene.start().await;
    scene.wait_for_addresses("usual", &[LAN, WAN]);
    scene.wait_for_addresses("nic", &[LAN]);
    scene.wait_for_addresses("twice", &[WAN]);
    scene.wait_for_addresses("field", &[WAN]);
    scene.wait_for_condition("usual", ASSIGNED, "True/Assigned: It is reached at 192.0.2.1, 198.51.100.1.");
    scene.wait_for_condition("nothing", ASSIGNED, "False/NoAddress: ");
    let missing = "False/NoAddress: portcullis.dev/listen-addresses: no interface `dmz` on this host. Interfaces here: to-inside (192.0.2.1, 2001:db8:1::1), to-outside";
    scene.wait_for_condition("elsewhere", ASSIGNED, missing);
    eventually("an Event says so", || scene.events("elsewhere").iter().any(|event| event.contains("`dmz`")));
    assert_eq!(scene.addresses("nothing"), Vec::<String>::new());
    assert_eq!(scene.addresses("other"), Vec::<String>::new());

    // What somebody clears is put back, and what is edited counts.
    let clear = r#"{"status":{"loadBalancer":{"ingress":null}}}"#;
    let patch = ["-n", "asked", "patch", "service", "usual", "--subresource=status", "--type=merge", "-p"];
    scene.kubernetes.kubectl(&[&patch[..], &[clear]].concat()).unwrap();
    scene.wait_for_addresses("usual", &[LAN, WAN]);
    scene.apply("nic", json!({LISTEN_ADDRESSES: "to-outside"}), json!({"ports": [{"port": 81}]}));
    scene.wait_for_addresses("nic", &[WAN]);
}

#[tokio::test(flavor = "multi_thread")]
async fn addresses_come_go_and_move() {
    let scene = Scene::new("live", Mode::None);
    scene.node.run("ip link add lan0 type veth peer name lan0-peer");
    scene.node.run("ip link set lan0 up");
    scene.node.run("ip address add 203.0.113.7/24 dev lan0");
    let _running = scene.start().await;
    scene.apply("web", json!({LISTEN_ADDRESSES: "lan0"}), json!({}));
    scene.wait_for_addresses("web", &["203.0.113.7"]);
    scene.node.run("ip address add 203.0.113.8/24 dev lan0");
    scene.wait_for_addresses("web", &["203.0.113.7", "203.0.113.8"]);
    scene.node.run("ip address del 203.0.113.7/24 dev lan0");
    // Another one may take its place as the first.
    eventually("the address is gone", || !scene.addresses("web").contains(&"203.0.113.7".to_owned()));
    // Link-local and loopback ones do not count.
    scene.node.run("ip address add 169.254.7.7/16 dev lan0");
    scene.node.run("ip address add 203.0.113.9/32 dev lan0");
    eventually("the next one is there", || scene.addresses("web").contains(&"203.0.113.9".to_owned()));
    assert!(!scene.addresses("web").iter().any(|address| address.starts_with("169.254.")));
    // The whole interface goes, and comes back with another address.
    scene.node.run("ip link del lan0");
    scene.wait_for_addresses("web", &[]);
    scene.wait_for_condition("web", ASSIGNED, "False/NoAddress: ");
    scene.node.run("ip link add lan0 type veth peer name lan0-peer");
    scene.node.run("ip address add 203.0.113.77/24 dev lan0");
    scene.wait_for_addresses("web", &["203.0.113.77"]);
    scene.wait_for_condition("web", ASSIGNED, "True/Assigned: ");
    // One that becomes a part of a bridge has no addresses of its own any more.
    scene.node.run("ip link add lan-bridge type bridge");
    scene.node.run("ip link set lan0 master lan-bridge");
    scene.wait_for_addresses("web", &[]);
}

/// Both halves may be anywhere, and any of them may be killed: what was missed is made good.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_missed_while_nobody_looks() {
    let scene = Scene::new("away", Mode::None);
    let agent = scene.start_agent().await;
    let controller = scene.start_controller().await;
    scene.apply("web", json!({}), json!({"ipFamilyPolicy": "SingleStack"}));
    scene.wait_for_addresses("web", &[LAN, WAN]);
    drop(agent);
    scene.node.run("ip address add 203.0.113.7/24 dev to-inside");
    scene.apply("late", json!({}), json!({"ports": [{"port": 81}]}));
    // What a node told before it went silent still counts.
    scene.wait_for_addresses("late", &[LAN, WAN]);
    drop(controller);
    let _agent = scene.start_agent().await;
    scene.apply("later", json!({}), json!({"ports": [{"port": 82}]}));
    let _controller = scene.start_controller().await;
    for name in ["web", "late", "later"] {
        scene.wait_for_addresses(name, &[LAN, WAN, "203.0.113.7"]);
    }
    // Nothing is written when nothing changes.
    let version = || scene.service("web")["metadata"]["resourceVersion"].clone();
    let before = version();
    scene.apply("last", json!({}), json!({"ports": [{"port": 83}]}));
    scene.wait_for_addresses("last", &[LAN, WAN, "203.0.113.7"]);
    assert_eq!(version(), before);
}

/// A small cluster: each node serves at its own addresses, and one that is down does not.
#[tokio::test(flavor = "multi_thread")]
async fn several_nodes_share_a_service() {
    let scene = Scene::new("several", Mode::None);
    let other = Scene::beside("several-too", Mode::None);
    other.node.run("ip address add 203.0.113.20/24 dev to-inside");
    other.node.run("ip address del 192.0.2.1/24 dev to-inside");
    other.node.run("ip address del 198.51.100.1/24 dev to-outside");
    let _one = scene.start().await;
    // The other node tells of itself in the same place.
    let settings = AgentSettings { node: other.node_name(), ..scene.agent_settings() };
    let agent = NodeAgent::new(machine(&other.node), settings, scene.known().await);
    let two = tokio::spawn(agent.run(|_| {}));
    scene.apply("web", json!({}), json!({}));
    scene.wait_for_addresses("web", &[LAN, WAN, "203.0.113.20"]);
    let ready = |status: &str| {
        let patch = json!({"status": {"conditions": [{"type": "Ready", "status": status}]}}).to_string();
        let node = other.node_name();
        scene
            .kubernetes
            .kubectl(&["patch", "node", &node, "--subresource=status", "--type=strategic", "-p", &patch])
            .unwrap();
    };
    scene.apply("there", json!({LISTEN_ADDRESSES: "203.0.113.20"}), json!({"ports": [{"port": 81}]}));
    scene.wait_for_addresses("there", &["203.0.113.20"]);
    ready("Unknown");
    scene.wait_for_addresses("web", &[LAN, WAN]);
    // One that no other node could serve stays where it is.
    scene.apply("there", json!({LISTEN_ADDRESSES: "203.0.113.20"}), json!({"ports": [{"port": 82}]}));
    eventually("it was looked at", || {
        scene.service("there")["status"]["loadBalancer"]["ingress"][0]["ports"][0]["port"] == 82
    });
    assert_eq!(scene.addresses("there"), ["203.0.113.20"]);
    ready("True");
    scene.wait_for_addresses("web", &[LAN, WAN, "203.0.113.20"]);
    // With the policy Local, a node without an endpoint would send nobody anywhere.
    scene.endpoint("web", json!({"ready": true}));
    scene.wait_for_addresses("web", &[LAN, WAN]);
    scene.endpoint("web", json!({"ready": false}));
    scene.wait_for_addresses("web", &[LAN, WAN, "203.0.113.20"]);
    // A node that is gone takes its addresses along.
    two.abort();
    scene.kubernetes.kubectl(&["delete", "node", &other.node_name()]).unwrap();
    scene.wait_for_addresses("web", &[LAN, WAN]);
}

/// Services of one family or both, and packets of both.
#[tokio::test(flavor = "multi_thread")]
async fn both_families() {
    let scene = Scene::new("families", Mode::Nftables);
    let _serving = scene.backend.serve(8080);
    let _running = scene.start().await;
    let at = |port: u16| json!([{"name": "http", "port": port, "targetPort": 8080}]);
    scene.apply("both", json!({}), json!({"ipFamilyPolicy": "RequireDualStack", "ports": at(80)}));
    scene.apply("six", json!({}), json!({"ipFamilies": ["IPv6"], "ports": at(81)}));
    scene.apply("four", json!({}), json!({"ipFamilies": ["IPv4"], "ports": at(82)}));
    scene.apply(
        "lan",
        json!({LISTEN_ADDRESSES: "to-inside"}),
        json!({"ipFamilyPolicy": "PreferDualStack", "ports": at(83)}),
    );
    for name in ["both", "six", "four", "lan"] {
        scene.endpoint(name, json!({"ready": true}));
        scene.endpoint_v6(name);
    }
    scene.wait_for_addresses("both", &[LAN, WAN, LAN6, WAN6]);
    scene.wait_for_addresses("six", &[LAN6, WAN6]);
    scene.wait_for_addresses("four", &[LAN, WAN]);
    scene.wait_for_addresses("lan", &[LAN, LAN6]);
    let reached = |port: u16| {
        let clients =
            [(&scene.inside, LAN), (&scene.outside, WAN), (&scene.inside, LAN6), (&scene.outside, WAN6)];
        clients.map(|(client, address)| can_connect(client, address, Target::Tcp(port)))
    };
    for (port, expected) in [
        (80, [true; 4]),
        (81, [false, false, true, true]),
        (82, [true, true, false, false]),
        (83, [true, false, true, false]),
    ] {
        eventually(&format!("{port} is reached as it should"), || reached(port) == expected);
    }
    // Clients keep their addresses, by either family.
    assert_eq!(connect(&scene.inside, LAN6, Target::Tcp(80)), Ok("2001:db8:1::10".to_owned()));
    // A family without a range is closed; one with a range is open to it.
    let ranges = |ranges: Value| json!({"ipFamilyPolicy": "RequireDualStack", "ports": at(80), "loadBalancerSourceRanges": ranges});
    scene.apply("both", json!({}), ranges(json!(["192.0.2.0/24"])));
    eventually("only who is in the range of IPv4", || reached(80) == [true, false, false, false]);
    scene.apply("both", json!({}), ranges(json!(["2001:db8:2::/64", "198.51.100.0/24"])));
    eventually("only who is in either range", || reached(80) == [false, true, false, true]);
    scene.wait_for_condition("both", ENFORCED, "True/Enforced: ");
    // An address of the other family that comes is no address for a Service of one.
    scene.node.run("ip address add 2001:db8:1::77/64 dev to-inside");
    scene.wait_for_addresses("both", &[LAN, WAN, LAN6, "2001:db8:1::77", WAN6]);
    scene.wait_for_addresses("six", &[LAN6, "2001:db8:1::77", WAN6]);
    assert_eq!(scene.addresses("four"), [LAN, WAN]);
}

/// The address of the Kubernetes API counts among the host's own, also where only loopback has it.
#[tokio::test(flavor = "multi_thread")]
async fn the_address_of_the_api_server_is_the_host_s() {
    const FIRST: &str = "10.44.0.0";
    const SECOND: &str = "10.44.0.1";
    let scene = Scene::new("apiserver", Mode::Nftables);
    let _serving = scene.backend.serve(8080);
    for address in [FIRST, SECOND] {
        scene.node.run(&format!("ip address add {address}/32 dev lo"));
    }
    let told = |addresses: &[&str]| {
        let slice = json!({
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {
                "name": "kubernetes",
                "namespace": "default",
                "labels": {"kubernetes.io/service-name": "kubernetes"},
            },
            "addressType": "IPv4",
            "endpoints": [{"addresses": addresses, "conditions": {"ready": true}}],
            "ports": [{"name": "https", "port": 6443, "protocol": "TCP"}],
        });
        scene.kubernetes.apply(&slice.to_string()).unwrap();
    };
    let web = Target::Tcp(80);
    let _running = scene.start().await;
    scene.apply("web", json!({}), json!({}));
    scene.endpoint("web", json!({"ready": true}));
    scene.wait_for_addresses("web", &[LAN, WAN]);
    eventually("it is served", || can_connect(&scene.inside, LAN, web));
    assert!(!can_connect(&scene.inside, FIRST, web), "nobody said whose address it is");

    told(&[FIRST]);
    scene.wait_for_addresses("web", &[FIRST, LAN, WAN]);
    eventually("it is served there", || connect(&scene.inside, FIRST, web) == Ok("192.0.2.10".to_owned()));
    assert_eq!(connect(&scene.outside, FIRST, web), Ok("198.51.100.10".to_owned()));
    assert!(!can_connect(&scene.inside, SECOND, web), "another one is not meant by it");
    // Who names where it wants to be is nowhere else, and who names this is there.
    let at = |port: u16| json!({"ports": [{"name": "http", "port": port, "targetPort": 8080}]});
    scene.apply("lan", json!({LISTEN_ADDRESSES: "to-inside"}), at(81));
    scene.apply("named", json!({LISTEN_ADDRESSES: FIRST}), at(82));
    for name in ["lan", "named"] {
        scene.endpoint(name, json!({"ready": true}));
    }
    scene.wait_for_addresses("lan", &[LAN]);
    scene.wait_for_addresses("named", &[FIRST]);
    eventually("it is served there", || can_connect(&scene.inside, FIRST, Target::Tcp(82)));
    assert!(!can_connect(&scene.inside, FIRST, Target::Tcp(81)));
    // Ranges count there as well.
    scene.apply("web", json!({}), json!({"loadBalancerSourceRanges": ["192.0.2.0/24"]}));
    eventually("who is outside is kept out", || !can_connect(&scene.outside, FIRST, web));
    assert!(can_connect(&scene.inside, FIRST, web));

    // One that stops takes its address out of there, and is back in a moment.
    scene.kubernetes.kubectl(&["-n", "default", "delete", "endpointslice", "kubernetes"]).unwrap();
    scene.apply("meanwhile", json!({}), at(83));
    scene.wait_for_addresses("meanwhile", &[FIRST, LAN, WAN]);
    assert_eq!(scene.addresses("web"), [FIRST, LAN, WAN]);
    // It moves, and one that is on another host is not this one's.
    told(&[SECOND]);
    scene.wait_for_addresses("web", &[SECOND, LAN, WAN]);
    eventually("it is served there", || can_connect(&scene.inside, SECOND, web));
    assert!(!can_connect(&scene.inside, FIRST, web));
    told(&["10.44.0.2"]);
    scene.wait_for_addresses("web", &[LAN, WAN]);
    scene.kubernetes.kubectl(&["-n", "default", "delete", "endpointslice", "kubernetes"]).unwrap();
}

/// Services without a class, where nobody else holds them.
#[tokio::test(flavor = "multi_thread")]
async fn services_without_a_class() {
    let scene = Scene::new("classless", Mode::None);
    let settings = AgentSettings { without_class: true, ..scene.agent_settings() };
    let known = scene.known().await;
    let agent = NodeAgent::new(machine(&scene.node), settings, known.clone());
    let controller = HostSettings { without_class: true, ..scene.settings() };
    let controller = HostController::new(controller, known);
    let running = [tokio::spawn(agent.run(|_| {})), tokio::spawn(controller.run())];
    scene.apply("held", json!({}), json!({"loadBalancerClass": null, "ports": [{"port": 80}]}));
    let finalizers = r#"{"metadata":{"finalizers":["service.kubernetes.io/load-balancer-cleanup"]}}"#;
    let patch = ["-n", "classless", "patch", "service", "held", "--type=merge", "-p"];
    scene.kubernetes.kubectl(&[&patch[..], &[finalizers]].concat()).unwrap();
    scene.apply("web", json!({}), json!({"loadBalancerClass": null, "ports": [{"port": 81}]}));
    scene.wait_for_addresses("web", &[LAN, WAN]);
    let free = r#"{"metadata":{"finalizers":null}}"#;
    scene.apply("other", json!({}), json!({"loadBalancerClass": null, "ports": [{"port": 80}]}));
    scene.wait_for_addresses("other", &[LAN, WAN]);
    scene.kubernetes.kubectl(&[&patch[..], &[free]].concat()).unwrap();
    // Another one takes it: what it says stays, and what we said goes.
    let held = ["-n", "classless", "patch", "service", "web", "--type=merge", "-p", finalizers];
    scene.kubernetes.kubectl(&held).unwrap();
    eventually("we say nothing of it", || scene.condition("web", ASSIGNED).is_empty());
    let let_go = ["-n", "classless", "patch", "service", "web", "--type=merge", "-p", free];
    scene.kubernetes.kubectl(&let_go).unwrap();
    scene.wait_for_condition("web", ASSIGNED, "True/Assigned");
    for task in running {
        task.abort();
    }
    // Without a class nobody is looked after here any more: no address is told that nobody keeps to, also where that cannot be
    // written at first.
    let refusing = refuse_statuses(&scene, "web");
    let _running = scene.start().await;
    scene.wait_for_addresses("other", &[]);
    assert_eq!(scene.addresses("web"), [LAN, WAN]);
    drop(refusing);
    for name in ["web", "other"] {
        scene.wait_for_addresses(name, &[]);
        eventually("we say nothing of it", || scene.condition(name, ASSIGNED).is_empty());
    }
}

/// What is said of a Service of another class is left to who looks after that.
#[tokio::test(flavor = "multi_thread")]
async fn services_of_another_class() {
    let scene = Scene::new("classes", Mode::None);
    let running = scene.start().await;
    scene.apply("web", json!({}), json!({}));
    scene.wait_for_condition("web", ASSIGNED, "True/Assigned");
    drop(running);
    let before = scene.service("web");
    let other = "example.com/another".to_owned();
    let settings = HostSettings { class: other.clone(), ..scene.settings() };
    let controller = HostController::new(settings, scene.known().await);
    let _running = Running::of(controller.run());
    let settings = AgentSettings { class: other.clone(), ..scene.agent_settings() };
    let _agent = scene.start_agent_with(settings).await;
    scene.apply("theirs", json!({}), json!({"loadBalancerClass": other, "ports": [{"port": 81}]}));
    scene.wait_for_condition("theirs", ASSIGNED, "True/Assigned");
    assert_eq!(scene.service("web"), before);
}

/// Has nobody write the status of a Service.
fn refuse_statuses<'a>(scene: &'a Scene, service: &str) -> Refusing<'a> {
    let place = (&["UPDATE"][..], "services/status");
    let is_it =
        format!("object.metadata.namespace == '{}' && object.metadata.name == '{service}'", scene.name);
    let refusing = Refusing::start(&scene.kubernetes, scene.name, place, &is_it, "Not this one.");
    let patch = r#"{"status":{"loadBalancer":{}}}"#;
    let probe = ["-n", scene.name, "patch", "service", service, "--subresource=status", "--dry-run=server"];
    let probe = [&probe[..], &["--type=merge", "-p", patch]].concat();
    eventually("it is refused", || scene.kubernetes.kubectl(&probe).is_err());
    refusing
}
