use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Service;
use portcullis_host::datapath::Mode;
use portcullis_kube_api::enforced::{ENFORCED, enforced};
use portcullis_kube_api::host::{ASSIGNED, LISTEN_ADDRESSES, NODE_PORTS};
use portcullis_testkit::parts::run;
use portcullis_testkit::talk::{Backend, ask};
use portcullis_testkit::{Failure, Host, Target, can_connect, connect, eventually, link};
use serde_json::{Value, json};

use crate::scene::{LAN, OTHERS, Scene, WAN};

const WEB: Target = Target::Tcp(80);

fn ranges(ranges: &[&str]) -> Value {
    json!({"loadBalancerSourceRanges": ranges})
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_is_served_at_the_node_s_addresses() {
    let scene = Scene::new("served", Mode::Nftables);
    let _serving = scene.backend.serve(8080);
    let mut running = scene.start().await;
    scene.apply("web", json!({}), json!({}));
    scene.wait_for_addresses("web", &[LAN, WAN]);
    assert_eq!(scene.service("web")["status"]["loadBalancer"]["ingress"][0]["ipMode"], "Proxy");
    // Nobody to serve yet: the client is told.
    eventually("it is refused", || connect(&scene.inside, LAN, WEB) == Err(Failure::Refused));
    scene.endpoint("web", json!({"ready": true}));
    eventually("it connects", || can_connect(&scene.inside, LAN, WEB));
    // With the policy Local the client's address stays.
    assert_eq!(connect(&scene.inside, LAN, WEB), Ok("192.0.2.10".to_owned()));
    assert_eq!(connect(&scene.outside, WAN, WEB), Ok("198.51.100.10".to_owned()));
    // Health checks are answered on every address.
    let health =
        u16::try_from(scene.service("web")["spec"]["healthCheckNodePort"].as_u64().unwrap()).unwrap();
    let url = format!("http://{LAN}:{health}/healthz");
    let ask = || run(&scene.inside, "curl", &["-s", "-m", "30", "-w", "%{http_code}", &url]);
    let answer = ask().unwrap();
    assert!(answer.contains(r#""localEndpoints":1"#) && answer.ends_with("200"), "{answer}");
    // Also by who finds all of it there when it starts, in whichever order it is told.
    for _ in 0..3 {
        drop(running);
        let refused = || connect(&scene.inside, LAN, Target::Tcp(health)) == Err(Failure::Refused);
        eventually("nobody answers", refused);
        running = scene.start().await;
        eventually("somebody answers again", || !refused());
        eventually("and knows of all", || ask().is_ok_and(|answer| answer.ends_with("200")));
    }

    // One that is leaving serves as a last resort; without any the client is told, and so is who checks.
    scene.endpoint("web", json!({"ready": false, "serving": true, "terminating": true}));
    eventually("the check fails", || ask().is_ok_and(|answer| answer.ends_with("503")));
    assert!(can_connect(&scene.inside, LAN, WEB));
    scene.endpoint("web", json!({"ready": false}));
    eventually("it is refused", || connect(&scene.inside, LAN, WEB) == Err(Failure::Refused));

    // Ranges count at once, and in both ways.
    scene.endpoint("web", json!({"ready": true}));
    scene.apply("web", json!({}), ranges(&["192.0.2.0/24"]));
    eventually("who is outside is kept out", || !can_connect(&scene.outside, WAN, WEB));
    eventually("who is inside connects", || can_connect(&scene.inside, LAN, WEB));
    scene.wait_for_condition(
        "web",
        ENFORCED,
        "True/Enforced: The packet filters of served-node let in 192.0.2.0/24, and nobody else.",
    );
    scene.apply("web", json!({}), ranges(&["198.51.100.0/24"]));
    eventually("who is outside connects", || can_connect(&scene.outside, WAN, WEB));
    assert!(!can_connect(&scene.inside, LAN, WEB));

    // With the policy Cluster the backend sees the node.
    scene.apply("web", json!({}), json!({"externalTrafficPolicy": "Cluster"}));
    eventually("it sees the node", || connect(&scene.inside, LAN, WEB) == Ok("10.244.0.1".to_owned()));
    // At one interface only, and then not at all.
    scene.apply("web", json!({LISTEN_ADDRESSES: "to-inside"}), json!({}));
    eventually("it is not at the other any more", || !can_connect(&scene.outside, WAN, WEB));
    assert!(can_connect(&scene.inside, LAN, WEB));
    scene.delete("web");
    eventually("it is gone", || !can_connect(&scene.inside, LAN, WEB));
    drop(running);
}

#[tokio::test(flavor = "multi_thread")]
async fn node_ports_keep_to_the_ranges_if_asked() {
    let scene = Scene::new("nodeports", Mode::Nftables);
    let _serving = scene.backend.serve(8080);
    let _running = scene.start().await;
    let mut spec = ranges(&["192.0.2.0/24"]);
    spec["allocateLoadBalancerNodePorts"] = json!(true);
    scene.apply("web", json!({}), spec.clone());
    scene.endpoint("web", json!({"ready": true}));
    scene.wait_for_condition("web", ENFORCED, "False/NotEnforced: Its node ports, 3");
    scene.apply("web", json!({NODE_PORTS: "true"}), spec);
    scene.wait_for_condition("web", ENFORCED, "True/Enforced");
    let port = u16::try_from(scene.service("web")["spec"]["ports"][0]["nodePort"].as_u64().unwrap()).unwrap();
    eventually("who is inside connects", || can_connect(&scene.inside, LAN, Target::Tcp(port)));
    assert!(!can_connect(&scene.outside, WAN, Target::Tcp(port)));
}

/// Somebody else forwards, and would let everybody in.
#[tokio::test(flavor = "multi_thread")]
async fn a_filter_comes_before_whoever_forwards() {
    let scene = Scene::new("filter", Mode::Filter);
    let _serving = scene.backend.serve(8080);
    scene.node.nft(OTHERS);
    assert!(can_connect(&scene.outside, WAN, WEB), "they let everybody in");
    let before = scene.node.run("nft list table ip others");
    let running = scene.start().await;
    scene.apply("web", json!({}), ranges(&["192.0.2.0/24"]));
    scene.wait_for_addresses("web", &[LAN, WAN]);
    // It was not told before it was so.
    assert!(!can_connect(&scene.outside, WAN, WEB));
    assert!(can_connect(&scene.inside, LAN, WEB));
    scene.wait_for_condition(
        "web",
        ENFORCED,
        "True/Enforced: The packet filters of filter-node (to-inside, to-outside) let in 192.0.2.0/24",
    );
    scene.wait_for_condition("web", ASSIGNED, "True/Assigned");
    assert_eq!(scene.service("web")["status"]["loadBalancer"]["ingress"][0]["ipMode"], "VIP");
    assert_eq!(scene.node.run("nft list table ip others"), before, "what is others' is others'");
    // Whoever looks after it is gone, and it goes on; what is wanted by then is so once somebody looks again.
    drop(running);
    assert!(!can_connect(&scene.outside, WAN, WEB));
    scene.apply("web", json!({}), ranges(&["198.51.100.0/24"]));
    let _running = scene.start().await;
    eventually("who is outside connects", || can_connect(&scene.outside, WAN, WEB));
    assert!(!can_connect(&scene.inside, LAN, WEB));
}

/// Nobody says that ranges are kept to before somebody does.
#[tokio::test(flavor = "multi_thread")]
async fn ranges_are_enforced_when_the_node_says_so() {
    let scene = Scene::new("unsaid", Mode::Nftables);
    let _controller = scene.start_controller().await;
    let agent = scene.start_agent().await;
    scene.apply("web", json!({}), ranges(&["192.0.2.0/24"]));
    scene.wait_for_condition("web", ENFORCED, "True/Enforced: ");
    drop(agent);
    scene.apply("web", json!({}), ranges(&["198.51.100.0/24"]));
    scene.apply(
        "late",
        json!({}),
        json!({"ports": [{"port": 81}], "loadBalancerSourceRanges": ["10.0.0.0/8"]}),
    );
    scene.wait_for_addresses("late", &[LAN, WAN]);
    let is_enforced = |name: &str| {
        let service: Service = serde_json::from_value(scene.service(name)).unwrap();
        enforced(&service).map(|(is, _)| is)
    };
    assert_eq!((is_enforced("web"), is_enforced("late")), (None, None), "nobody keeps to them");
    let _agent = scene.start_agent().await;
    eventually("the node says so", || (is_enforced("web"), is_enforced("late")) == (Some(true), Some(true)));
}

/// A conflict at one interface does not keep a Service from the other.
#[tokio::test(flavor = "multi_thread")]
async fn what_waits_for_a_filter_is_not_forgotten() {
    let scene = Scene::new("half", Mode::Filter);
    let _running = scene.start().await;
    scene.apply("first", json!({LISTEN_ADDRESSES: "to-outside"}), json!({}));
    scene.wait_for_addresses("first", &[WAN]);
    for round in 0..5 {
        let name = format!("second-{round}");
        scene.apply(&name, json!({}), ranges(&["192.0.2.0/24"]));
        scene.wait_for_addresses(&name, &[LAN]);
        scene.wait_for_condition(
            &name,
            ASSIGNED,
            "False/Conflict: Service half/first has port 80/tcp of 198.51.100.1",
        );
        scene.delete(&name);
    }
}

/// Who asks for it always has the same endpoint, and everybody else any.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_keeps_its_endpoint_if_asked() {
    let scene = Scene::new("affinity", Mode::Nftables);
    let another = Host::new("another");
    link(&another, &["10.244.1.2/24"], &scene.node, &["10.244.1.1/24"]);
    another.default_route("10.244.1.1");
    let _serving = [&scene.backend, &another].map(|host| Backend::start(host, 8080));
    let running = scene.start().await;
    let web = |affinity: Value| scene.apply("web", json!({}), affinity);
    web(json!({"sessionAffinity": "None"}));
    scene.endpoints("web", &["10.244.0.2", "10.244.1.2"]);
    // Who answers so many connections: that it is one of two for all of them by chance happens once in 2 to the power of 39
    // times. What goes wrong is seen, too: it might have gone to an endpoint that does not answer.
    let answer = |_| ask(&scene.inside, LAN, 80).unwrap_or_else(|error| error.kind().to_string());
    let seen = || -> BTreeSet<String> { (0..40).map(answer).collect() };
    let both = BTreeSet::from(["another".to_owned(), "backend".to_owned()]);
    eventually("without it both are seen", || seen() == both);

    web(
        json!({"sessionAffinity": "ClientIP", "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 600}}}),
    );
    eventually("with it one is seen", || seen().len() == 1);
    let kept = seen();
    assert!(kept.len() == 1 && kept.is_subset(&both), "{kept:?}");
    let has = |what: &str| scene.node.run("nft list table inet portcullis").contains(what);
    assert!(has("affinity4_600"), "as long as the Service says");
    // Who looks after it is gone and back, and there is one more, which does not answer: nothing changes for who keeps one.
    drop(running);
    scene.endpoints("web", &["10.244.0.2", "10.244.1.2", "10.244.1.99"]);
    let _running = scene.start().await;
    eventually("there is one more", || has("10.244.1.99"));
    assert_eq!(seen(), kept);
    // Its endpoint is gone: it gets another, and keeps that.
    let (left, gone, other) = if kept.contains("backend") {
        ("10.244.1.2", "10.244.0.2", "another")
    } else {
        ("10.244.0.2", "10.244.1.2", "backend")
    };
    scene.endpoints("web", &[left]);
    let other = BTreeSet::from([other.to_owned()]);
    eventually("it has the other", || seen() == other);
    eventually("nothing is left of what it had", || !has(gone));
    scene.endpoints("web", &["10.244.0.2", "10.244.1.2"]);
    eventually("both are there", || has(gone));
    assert_eq!(seen(), other);

    web(json!({"sessionAffinity": "None"}));
    eventually("without it both are seen again", || seen() == both);
}
