use std::collections::BTreeSet;
use std::thread;
use std::time::{Duration, Instant};

use portcullis_controllers::host::AgentSettings;
use portcullis_host::datapath::Mode;
use portcullis_kube_api::enforced::ENFORCED;
use portcullis_kube_api::host::{ASSIGNED, LISTEN_ADDRESSES, NODE_PORTS};
use portcullis_testkit::{Failure, Host, Server, Target, connect, eventually, link};
use serde_json::{Value, json};

use crate::scene::{LAN, Scene, WAN};

#[tokio::test(flavor = "multi_thread")]
async fn one_port_of_one_address_is_one_service_s() {
    let scene = Scene::new("conflicts", Mode::None);
    let _running = scene.start().await;
    let dns = |protocol: &str| json!({"ports": [{"name": "dns", "port": 53, "protocol": protocol}]});
    scene.apply("dns-tcp", json!({LISTEN_ADDRESSES: "to-inside"}), dns("TCP"));
    scene.apply("dns-udp", json!({LISTEN_ADDRESSES: "to-inside"}), dns("UDP"));
    scene.wait_for_addresses("dns-tcp", &[LAN]);
    scene.wait_for_addresses("dns-udp", &[LAN]);

    scene.apply("first", json!({}), json!({}));
    scene.wait_for_addresses("first", &[LAN, WAN]);
    scene.apply(
        "second",
        json!({}),
        json!({"ports": [{"name": "a", "port": 80}, {"name": "b", "port": 443}]}),
    );
    scene.apply("third", json!({LISTEN_ADDRESSES: "to-outside"}), json!({"ports": [{"port": 443}]}));
    let loses = "False/Conflict: Service conflicts/first has port 80/tcp of 192.0.2.1, 198.51.100.1";
    scene.wait_for_condition("second", ASSIGNED, loses);
    eventually("an Event says so", || {
        scene
            .events("second")
            .iter()
            .any(|event| event.starts_with("Conflict: Service conflicts/first has port 80/tcp"))
    });
    assert_eq!(scene.addresses("second"), Vec::<String>::new());
    // What it cannot have it does not keep from others.
    scene.wait_for_addresses("third", &[WAN]);

    // Whoever had it is gone, and the next takes over, where it can.
    scene.delete("first");
    scene.wait_for_addresses("second", &[LAN]);
    scene.wait_for_condition(
        "second",
        ASSIGNED,
        "False/Conflict: Service conflicts/third has port 443/tcp of 198.51.100.1",
    );
    scene.delete("third");
    scene.wait_for_addresses("second", &[LAN, WAN]);
    scene.wait_for_condition("second", ASSIGNED, "True/Assigned");
    // An older one that comes to want the same does not take it away.
    scene.apply("dns-tcp", json!({LISTEN_ADDRESSES: "to-inside"}), json!({"ports": [{"port": 443}]}));
    scene.wait_for_condition(
        "dns-tcp",
        ASSIGNED,
        "False/Conflict: Service conflicts/second has port 443/tcp",
    );
    assert_eq!(scene.addresses("second"), [LAN, WAN]);
}

/// Who answers at a port: with the policy Cluster an endpoint sees the address of the node that is next to it.
const FIRST: &str = "10.244.0.1";
const SECOND: &str = "10.244.1.1";

/// Much longer than it takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

/// Where clients are.
const BOTH: &str = "to-inside,to-outside";

/// A scene with another backend, whose endpoints are at `10.244.1.2`.
fn with_two_backends(name: &'static str) -> (Scene, Host, [Server; 2]) {
    let scene = Scene::new(name, Mode::Nftables);
    let another = Host::new("another");
    link(&another, &["10.244.1.2/24"], &scene.node, &["10.244.1.1/24"]);
    another.default_route("10.244.1.1");
    let serving = [&scene.backend, &another].map(|host| host.serve(8080));
    (scene, another, serving)
}

/// One port for two protocols, of two Services at one address: each goes to its own endpoints.
#[tokio::test(flavor = "multi_thread")]
async fn protocols_of_one_port_go_their_own_ways() {
    let (scene, _another, _serving) = with_two_backends("both-ways");
    let _running = scene.start().await;
    let dns = |name: &str, protocol: &str| {
        json!({
            "externalTrafficPolicy": "Cluster",
            "ports": [{"name": name, "port": 53, "targetPort": 8080, "protocol": protocol}],
        })
    };
    scene.apply("dns-tcp", json!({LISTEN_ADDRESSES: BOTH}), dns("http", "TCP"));
    scene.apply("dns-udp", json!({LISTEN_ADDRESSES: BOTH}), dns("dns", "UDP"));
    scene.endpoints("dns-tcp", &["10.244.0.2"]);
    scene.endpoints("dns-udp", &["10.244.1.2"]);
    for name in ["dns-tcp", "dns-udp"] {
        scene.wait_for_addresses(name, &[LAN, WAN]);
    }
    let seen = |client: &Host, address: &str| {
        [Target::Tcp(53), Target::Udp(53)].map(|at| connect(client, address, at))
    };
    for (client, address) in [(&scene.inside, LAN), (&scene.outside, WAN)] {
        let both = [Ok(FIRST.to_owned()), Ok(SECOND.to_owned())];
        eventually("each has its own", || seen(client, address) == both);
    }
    // One goes, and the other stays.
    scene.delete("dns-tcp");
    let left = [Err(Failure::Refused), Ok(SECOND.to_owned())];
    eventually("one is left", || seen(&scene.inside, LAN) == left);
}

/// A port passes to who waited for it, in one step: nobody is refused in between, and nothing of it comes to the node itself.
#[tokio::test(flavor = "multi_thread")]
async fn a_port_passes_from_one_to_the_next() {
    let (scene, _another, _serving) = with_two_backends("passing");
    let _running = scene.start().await;
    let ask = |name: &str, endpoint: &str| {
        let ports = json!([
            {"name": "http", "port": 80, "targetPort": 8080},
            {"name": "dns", "port": 80, "targetPort": 8080, "protocol": "UDP"},
        ]);
        let spec = json!({"ports": ports, "externalTrafficPolicy": "Cluster"});
        scene.apply(name, json!({LISTEN_ADDRESSES: BOTH}), spec);
        scene.endpoints(name, &[endpoint]);
    };
    let waits_for = |name: &str, other: &str| {
        let told =
            format!("False/Conflict: Service passing/{other} has port 80/tcp of 192.0.2.1, 198.51.100.1");
        scene.wait_for_condition(name, ASSIGNED, &told);
    };
    ask("first", "10.244.0.2");
    scene.wait_for_addresses("first", &[LAN, WAN]);
    ask("second", "10.244.1.2");
    waits_for("second", "first");
    let by = |at: Target| connect(&scene.inside, LAN, at);
    let both = |who: &str| [Ok(who.to_owned()), Ok(who.to_owned())];
    let seen = || [by(Target::Tcp(80)), by(Target::Udp(80))];
    eventually("the first one has it", || seen() == both(FIRST));

    // What is said to who asks all the time, until the next one answers. The node itself would refuse.
    let passes = |who: &str, next: &str| -> BTreeSet<String> {
        thread::scope(|threads| {
            let asking = threads.spawn(|| {
                let mut answers = BTreeSet::new();
                let start = Instant::now();
                while answers.len() < 2 && start.elapsed() < PATIENCE {
                    answers.insert(format!("{:?}", by(Target::Tcp(80))));
                }
                answers
            });
            scene.delete(who);
            let answers = asking.join().unwrap();
            eventually("the next one has it", || seen() == both(next));
            answers
        })
    };
    let expected: BTreeSet<String> =
        [FIRST, SECOND].map(|who| format!("{:?}", Ok::<_, Failure>(who.to_owned()))).into();
    assert_eq!(passes("first", SECOND), expected, "somebody was told something else meanwhile");
    scene.wait_for_addresses("second", &[LAN, WAN]);
    scene.wait_for_condition("second", ASSIGNED, "True/Assigned");
    assert_eq!(connect(&scene.outside, WAN, Target::Tcp(80)), Ok(SECOND.to_owned()));
    // And back again, to one that comes later.
    ask("first", "10.244.0.2");
    waits_for("first", "second");
    assert_eq!(passes("second", FIRST), expected, "somebody was told something else meanwhile");
    scene.wait_for_addresses("first", &[LAN, WAN]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_node_needs_is_refused() {
    let scene = Scene::new("needed", Mode::None);
    scene.node.run("ip link add to-admin type veth peer name admin-peer");
    scene.node.run("ip address add 10.0.0.1/24 dev to-admin");
    let listening = scene.node.serve(9090);
    let _running = scene.start().await;
    scene.apply("ssh", json!({}), json!({"ports": [{"port": 22}]}));
    scene.apply("cockpit", json!({}), json!({"ports": [{"port": 9090}]}));
    scene.apply("admin", json!({LISTEN_ADDRESSES: "to-admin,10.0.0.1"}), json!({}));
    scene.wait_for_condition("ssh", ASSIGNED, "False/PortReserved: Port 22/tcp is kept for the node itself");
    scene.wait_for_condition(
        "cockpit",
        ASSIGNED,
        "False/PortOfNode: A program of the node itself listens on port 9090/tcp of 192.0.2.1, 198.51.100.1",
    );
    scene.wait_for_condition(
        "admin",
        ASSIGNED,
        "False/NoAddress: portcullis.dev/listen-addresses: 10.0.0.1 is kept for those who look after this host.",
    );
    for name in ["ssh", "cockpit", "admin"] {
        assert_eq!(scene.addresses(name), Vec::<String>::new(), "{name}");
        eventually("an Event says so", || !scene.events(name).is_empty());
    }
    // Once the program is gone, the port is free.
    drop(listening);
    scene.wait_for_addresses("cockpit", &[LAN, WAN]);
}

/// A program that is started anew has its port when it is back, also where all of ours was started meanwhile.
#[tokio::test(flavor = "multi_thread")]
async fn who_is_started_anew_has_its_port() {
    let scene = Scene::new("restarted", Mode::Nftables);
    let _backend = scene.backend.serve(8080);
    let program = scene.node.serve(9100);
    let _controller = scene.start_controller().await;
    let patient = AgentSettings { grace: Duration::from_secs(600), ..scene.agent_settings() };
    let agent = scene.start_agent_with(patient.clone()).await;
    let ask = |port: u16| {
        scene.apply(
            "greedy",
            json!({}),
            json!({"ports": [{"name": "http", "port": port, "targetPort": 8080}]}),
        );
        scene.endpoint("greedy", json!({"ready": true}));
    };
    ask(9100);
    let told = "False/PortOfNode: A program of the node itself listens on port 9100/tcp";
    scene.wait_for_condition("greedy", ASSIGNED, told);
    drop((program, agent));
    let _agent = scene.start_agent_with(patient).await;
    // Whoever asks and gets something is told of it by a look at the node after the program had gone.
    scene.apply("other", json!({}), json!({"ports": [{"port": 81}]}));
    scene.wait_for_addresses("other", &[LAN, WAN]);
    scene.wait_for_condition("greedy", ASSIGNED, told);
    assert_eq!(scene.addresses("greedy"), Vec::<String>::new());
    let _program = scene.node.serve(9100);
    assert_eq!(connect(&scene.inside, LAN, Target::Tcp(9100)), Ok("192.0.2.10".to_owned()));
    ask(9101);
    scene.wait_for_addresses("greedy", &[LAN, WAN]);
}

/// Somebody clears the status of who has a port, for which an older one waits: it is put back, and nobody else gets it.
#[tokio::test(flavor = "multi_thread")]
async fn a_cleared_status_gives_nothing_away() {
    let scene = Scene::new("cleared", Mode::Nftables);
    let _running = scene.start().await;
    let at = |port: u16| json!({"ports": [{"name": "http", "port": port}]});
    scene.apply("older", json!({}), at(81));
    scene.wait_for_addresses("older", &[LAN, WAN]);
    // Kubernetes counts in seconds.
    thread::sleep(Duration::from_millis(1100));
    scene.apply("owner", json!({}), at(80));
    scene.wait_for_addresses("owner", &[LAN, WAN]);
    scene.apply("older", json!({}), at(80));
    scene.wait_for_condition("older", ASSIGNED, "False/Conflict: Service cleared/owner has port 80/tcp");
    scene.wait_for_addresses("older", &[]);
    let clear = json!({"status": {"loadBalancer": {"ingress": null}}}).to_string();
    let patch = ["-n", scene.name, "patch", "service", "owner", "--subresource=status", "--type=merge", "-p"];
    for round in 0..3 {
        scene.kubernetes.kubectl(&[&patch[..], &[&clear]].concat()).unwrap();
        scene.wait_for_addresses("owner", &[LAN, WAN]);
        assert_eq!(scene.addresses("older"), Vec::<String>::new(), "round {round}");
        let table = scene.node.run("nft list set inet portcullis frontend4");
        assert!(table.contains("cleared/owner") && !table.contains("cleared/older"), "{table}");
    }
    // It does once the other is gone.
    scene.delete("owner");
    scene.wait_for_addresses("older", &[LAN, WAN]);
}

/// What the node needs goes on while Services ask for it: its programs answer, and nobody else does at its management address.
#[tokio::test(flavor = "multi_thread")]
async fn what_the_node_needs_goes_on() {
    let scene = Scene::new("needed-too", Mode::Nftables);
    let admin = Host::new("admin");
    link(&admin, &["172.16.0.10/24"], &scene.node, &["172.16.0.1/24"]);
    admin.default_route("172.16.0.1");
    let _backend = scene.backend.serve(8080);
    let program = scene.node.serve(9090);
    let _reserved = [22, 6443].map(|port| scene.node.serve(port));
    let _running = scene.start().await;
    // An endpoint would see the node as its client, and a program of the node sees who it is.
    let ask = |name: &str, annotations: Value, port: u16| {
        let ports = json!([
            {"name": "http", "port": port, "targetPort": 8080},
            {"name": "dns", "port": port, "targetPort": 8080, "protocol": "UDP"},
        ]);
        scene.apply(name, annotations, json!({"ports": ports, "externalTrafficPolicy": "Cluster"}));
        scene.endpoint(name, json!({"ready": true}));
    };
    ask("ssh", json!({}), 22);
    ask("api", json!({LISTEN_ADDRESSES: "192.0.2.1"}), 6443);
    ask("cockpit", json!({}), 9090);
    ask("named", json!({LISTEN_ADDRESSES: "to-admin"}), 8000);
    ask("numbered", json!({LISTEN_ADDRESSES: "172.16.0.1"}), 8001);
    ask("web", json!({}), 8002);
    scene.wait_for_condition("ssh", ASSIGNED, "False/PortReserved: ");
    scene.wait_for_condition("api", ASSIGNED, "False/PortReserved: ");
    scene.wait_for_condition("cockpit", ASSIGNED, "False/PortOfNode: ");
    scene.wait_for_condition("named", ASSIGNED, "False/NoAddress: ");
    scene.wait_for_condition("numbered", ASSIGNED, "False/NoAddress: ");
    scene.wait_for_addresses("web", &[LAN, WAN]);
    // By then all of them were looked at.
    let by_either = |client: &Host, address: &str, port| {
        [Target::Tcp(port), Target::Udp(port)].map(|at| connect(client, address, at))
    };
    let clients = [
        (&scene.inside, LAN, "192.0.2.10"),
        (&scene.outside, WAN, "198.51.100.10"),
        (&admin, "172.16.0.1", "172.16.0.10"),
    ];
    let seen = |by: &str| [Ok(by.to_owned()), Ok(by.to_owned())];
    for (client, address, own) in clients {
        for port in [22, 6443, 9090] {
            assert_eq!(by_either(client, address, port), seen(own), "port {port} of {address} is the node's");
        }
    }
    eventually("what is nobody's is served", || by_either(&scene.inside, LAN, 8002) == seen("10.244.0.1"));
    for port in [8000, 8001, 8002] {
        let refused = [Err(Failure::Refused), Err(Failure::Refused)];
        for client in [&admin, &scene.inside] {
            assert_eq!(by_either(client, "172.16.0.1", port), refused, "nobody serves {port} there");
        }
    }
    for name in ["ssh", "api", "cockpit", "named", "numbered"] {
        assert_eq!(scene.addresses(name), Vec::<String>::new(), "{name}");
    }

    // Without the program, the port is the Service's.
    drop(program);
    scene.wait_for_addresses("cockpit", &[LAN, WAN]);
    eventually("it is served", || by_either(&scene.inside, LAN, 9090) == seen("10.244.0.1"));
    // And the program's again where no Service may be.
    let _program = scene.node.serve(9090);
    assert_eq!(by_either(&admin, "172.16.0.1", 9090), seen("172.16.0.10"));
    assert_eq!(by_either(&scene.inside, LAN, 9090), seen("10.244.0.1"), "who has it keeps it");
}

/// A Service whose ranges count for its node port, which is this one.
fn ask_for_node_port(scene: &Scene, name: &str, port: u16, node_port: u16) {
    let spec = json!({
        "externalTrafficPolicy": "Cluster",
        "allocateLoadBalancerNodePorts": true,
        "loadBalancerSourceRanges": ["192.0.2.0/24"],
        "ports": [{"name": "http", "port": port, "targetPort": 8080, "nodePort": node_port}],
    });
    scene.apply(name, json!({NODE_PORTS: "true"}), spec);
    scene.endpoint(name, json!({"ready": true}));
}

/// So it does while Services have it as node ports: nobody is served there, and it is told.
#[tokio::test(flavor = "multi_thread")]
async fn what_the_node_needs_is_nobody_s_node_port() {
    let scene = Scene::new("needed-ports", Mode::Nftables);
    let admin = Host::new("admin");
    link(&admin, &["172.16.0.10/24"], &scene.node, &["172.16.0.1/24"]);
    admin.default_route("172.16.0.1");
    let _backend = scene.backend.serve(8080);
    let _reserved = scene.node.serve(30022);
    let _running = scene.start().await;
    ask_for_node_port(&scene, "ssh", 8000, 30022);
    ask_for_node_port(&scene, "web", 8002, 30080);
    let told = "PortOfNode: Node needed-ports-node needs 30022/tcp itself";
    scene.wait_for_condition("ssh", ASSIGNED, &format!("False/{told}"));
    eventually("an Event says so", || scene.events("ssh").iter().any(|event| event.starts_with(told)));
    let told = "False/NotEnforced: Node needed-ports-node needs its node ports 30022/tcp itself";
    scene.wait_for_condition("ssh", ENFORCED, told);
    assert_eq!(scene.addresses("ssh"), [LAN, WAN], "it has its other port");
    scene.wait_for_condition("web", ENFORCED, "True/Enforced");
    scene.wait_for_condition("web", ASSIGNED, "True/Assigned");
    let reach = |client: &Host, address: &str, port| connect(client, address, Target::Tcp(port));
    let (served, kept_out) = (Ok("10.244.0.1".to_owned()), Err(Failure::TimedOut));
    for (client, address, own) in [
        (&scene.inside, LAN, "192.0.2.10"),
        (&scene.outside, WAN, "198.51.100.10"),
        (&admin, "172.16.0.1", "172.16.0.10"),
    ] {
        assert_eq!(reach(client, address, 30022), Ok(own.to_owned()), "{address}");
    }
    eventually("what is nobody's is served", || reach(&scene.inside, LAN, 30080) == served);
    assert_eq!(reach(&scene.outside, WAN, 30080), kept_out);
    let at_management = reach(&scene.inside, "172.16.0.1", 30080);
    assert_eq!(at_management, Err(Failure::Refused), "nobody serves there");
    assert_eq!(reach(&admin, "172.16.0.1", 30080), kept_out, "ranges count there, too");
}

/// Where packets are only filtered somebody else forwards, whoever listens there: ranges count in any case.
#[tokio::test(flavor = "multi_thread")]
async fn node_ports_are_filtered_whoever_needs_them() {
    let scene = Scene::new("filtered-ports", Mode::Filter);
    let _programs = [30023, 30081].map(|port| scene.node.serve(port));
    let _running = scene.start().await;
    for (name, port, node_port) in [("ssh", 8000, 30023), ("cockpit", 8001, 30081)] {
        ask_for_node_port(&scene, name, port, node_port);
        scene.wait_for_condition(name, ASSIGNED, "True/Assigned");
        scene.wait_for_condition(name, ENFORCED, "True/Enforced");
        let reach = |client: &Host, address: &str| connect(client, address, Target::Tcp(node_port));
        assert_eq!(reach(&scene.outside, WAN), Err(Failure::TimedOut), "{name}");
        assert_eq!(reach(&scene.inside, LAN), Ok("192.0.2.10".to_owned()), "{name}");
    }
}

/// Services of other controllers have addresses, too: who has a port of one keeps it.
#[tokio::test(flavor = "multi_thread")]
async fn what_others_gave_is_theirs() {
    let scene = Scene::new("others", Mode::Nftables);
    scene.apply("theirs", json!({}), json!({"loadBalancerClass": "example.com/other"}));
    let status = json!({"status": {"loadBalancer": {"ingress": [{"ip": LAN}]}}}).to_string();
    let patch =
        ["-n", scene.name, "patch", "service", "theirs", "--subresource=status", "--type=merge", "-p"];
    scene.kubernetes.kubectl(&[&patch[..], &[&status]].concat()).unwrap();
    let _running = scene.start().await;
    scene.apply("ours", json!({}), json!({}));
    scene.wait_for_addresses("ours", &[WAN]);
    let told = "False/Conflict: Service others/theirs has port 80/tcp of 192.0.2.1";
    scene.wait_for_condition("ours", ASSIGNED, told);
    let table = scene.node.run("nft list table inet portcullis");
    assert!(!table.contains("192.0.2.1 "), "nothing of ours is there: {table}");
    scene.kubernetes.kubectl(&["-n", scene.name, "delete", "service", "theirs"]).unwrap();
    scene.wait_for_addresses("ours", &[LAN, WAN]);
    // Whoever comes later does not take it away.
    scene.apply("late", json!({}), json!({"loadBalancerClass": "example.com/other"}));
    let patch = ["-n", scene.name, "patch", "service", "late", "--subresource=status", "--type=merge", "-p"];
    scene.kubernetes.kubectl(&[&patch[..], &[&status]].concat()).unwrap();
    scene.apply("another", json!({}), json!({"ports": [{"port": 81}]}));
    scene.wait_for_addresses("another", &[LAN, WAN]);
    assert_eq!(scene.addresses("ours"), [LAN, WAN]);
}

/// So do Services at which somebody wrote the address of a node.
#[tokio::test(flavor = "multi_thread")]
async fn external_ips_are_theirs() {
    let scene = Scene::new("external", Mode::Nftables);
    let theirs = json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {"name": "theirs", "namespace": scene.name},
        "spec": {"ports": [{"port": 80}], "externalIPs": [LAN]},
    });
    scene.kubernetes.apply(&theirs.to_string()).unwrap();
    let _running = scene.start().await;
    scene.apply("ours", json!({}), json!({}));
    scene.wait_for_addresses("ours", &[WAN]);
    let told = "Conflict: Service external/theirs has port 80/tcp of 192.0.2.1";
    scene.wait_for_condition("ours", ASSIGNED, &format!("False/{told}"));
    eventually("an Event says so", || scene.events("ours").iter().any(|event| event.starts_with(told)));
    let table = scene.node.run("nft list table inet portcullis");
    assert!(!table.contains("192.0.2.1 "), "nothing of ours is there: {table}");
    scene.delete("theirs");
    scene.wait_for_addresses("ours", &[LAN, WAN]);
}
