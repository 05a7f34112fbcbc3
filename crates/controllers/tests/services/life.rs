//! From the first to the last: what is made, changed and taken away, and what is told and written on the way.

use std::time::Duration;

use portcullis_kube_api::{FINALIZER, SOURCE_RANGES, TYPE};
use portcullis_testkit::eventually;
use serde_json::{Value, json};

use crate::scene::{PREFIX, Scene, set};

const RANGE: &str = "192.0.2.0/24";
const OTHER: &str = "198.51.100.0/24";

#[tokio::test(flavor = "multi_thread")]
async fn a_load_balancer_with_a_group_of_its_own_is_made_changed_and_taken_away() {
    let scene = Scene::new("life").await;
    let _running = scene.start();
    let spec =
        |ports: Value, ranges: &[&str]| json!({"spec": {"ports": ports, "loadBalancerSourceRanges": ranges}});
    let two = json!([{"name": "http", "port": 80}, {"name": "https", "port": 443}]);
    scene.apply("web", &spec(two, &[RANGE]));
    scene.wait_for_address("web");
    scene.wait_for_event("web", "EnsuredLoadBalancer");
    let balancer = scene.balancer("web").unwrap();
    assert_eq!(scene.address("web"), Some(balancer.dns_name.clone()));
    assert_eq!(scene.finalizers("web"), [FINALIZER]);
    assert_eq!(balancer.groups.len(), 2, "one of its own, and one that all have");
    let in_range = |ports: &[u16], range: &str| {
        let ports = ports.iter().map(|port| format!("tcp {port}-{port} {range}"));
        ports.chain([format!("icmp 3-4 {range}")]).collect::<std::collections::BTreeSet<_>>()
    };
    let lets_in = || scene.lets_in("web").into_iter().collect::<std::collections::BTreeSet<_>>();
    assert_eq!(lets_in(), in_range(&[80, 443], RANGE));
    assert_eq!(scene.nodes_let_in().len(), 3);
    let out = |port: i32| format!("tcp {0}-{0} sg-nodes", scene.node_port("web", port));
    let mut expected = vec![out(80), out(443)];
    expected.sort();
    assert_eq!(scene.group("web").unwrap().lets_out(), expected);
    assert_eq!(scene.targets("web"), set(["i-1", "i-2"]));

    // Ports and ranges are edited.
    let others = json!([{"name": "http", "port": 80}, {"name": "other", "port": 8443}]);
    scene.apply("web", &spec(others, &[OTHER]));
    eventually("the rules are those of the new ports and ranges", || {
        lets_in() == in_range(&[80, 8443], OTHER)
    });
    let ports = || {
        let listeners = scene.balancer("web").unwrap().listeners.into_values();
        listeners.map(|listener| listener.port).collect::<std::collections::BTreeSet<_>>()
    };
    eventually("it listens on the new ports", || ports() == [80, 8443].into());
    assert_eq!(scene.address("web"), Some(balancer.dns_name), "clients find it where it was");

    assert_eq!(scene.reasons("web"), set(["EnsuringLoadBalancer", "EnsuredLoadBalancer"]));
    for (reason, words) in
        [("EnsuringLoadBalancer", "Ensuring load balancer"), ("EnsuredLoadBalancer", "Ensured load balancer")]
    {
        eventually("the second time is counted", || {
            let events = scene.events("web");
            events.iter().any(|event| event.reason.as_deref() == Some(reason) && event.count >= Some(2))
        });
        assert_eq!(scene.told("web", reason), [("Normal".to_owned(), words.to_owned())]);
    }
    let component = |event: &k8s_openapi::api::core::v1::Event| event.source.clone().unwrap().component;
    assert!(
        scene.events("web").iter().all(|event| component(event).as_deref() == Some("service-controller"))
    );

    scene.delete("web");
    scene.wait_until_gone("web");
    assert!(scene.is_untouched(), "{:?}", scene.fake.state());
    let all = ["EnsuringLoadBalancer", "EnsuredLoadBalancer", "DeletingLoadBalancer", "DeletedLoadBalancer"];
    assert_eq!(scene.reasons("web"), set(all));
    assert_eq!(
        scene.told("web", "DeletedLoadBalancer"),
        [("Normal".to_owned(), "Deleted load balancer".to_owned())]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn ranges_are_those_of_the_field_or_else_of_the_annotation() {
    let scene = Scene::new("ranges").await;
    let _running = scene.start();
    let off = format!("{PREFIX}enable-icmp-for-path-mtu-discovery");
    let service = |field: Value, annotation: Value| {
        json!({
            "metadata": {"annotations": {SOURCE_RANGES: annotation, off.clone(): "off"}},
            "spec": {"loadBalancerSourceRanges": field},
        })
    };
    for (field, annotation, expected) in [
        (Value::Null, Value::Null, vec!["tcp 80-80 0.0.0.0/0"]),
        (json!([RANGE]), Value::Null, vec!["tcp 80-80 192.0.2.0/24"]),
        (
            Value::Null,
            json!("198.51.100.0/24, 203.0.113.0/24"),
            vec!["tcp 80-80 198.51.100.0/24", "tcp 80-80 203.0.113.0/24"],
        ),
        (json!([RANGE]), json!(OTHER), vec!["tcp 80-80 192.0.2.0/24"]),
        (json!([]), json!(OTHER), vec!["tcp 80-80 198.51.100.0/24"]),
        (Value::Null, Value::Null, vec!["tcp 80-80 0.0.0.0/0"]),
    ] {
        scene.apply("web", &service(field.clone(), annotation.clone()));
        eventually(&format!("{expected:?} by {field} and {annotation}"), || scene.lets_in("web") == expected);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_cloud_config_is_changed_and_switched_off() {
    let scene = Scene::new("modes").await;
    let ranges = |range: &str| json!({"spec": {"loadBalancerSourceRanges": [range]}});
    let groups = |name: &str| scene.balancer(name).unwrap().groups.len();

    // As before there was such a thing.
    let running = scene.start_with("", |_| ());
    scene.apply("first", &ranges(RANGE));
    scene.wait_for_event("first", "EnsuredLoadBalancer");
    assert_eq!(groups("first"), 0);
    assert!(scene.nodes_let_in().iter().any(|rule| rule.ends_with(RANGE)), "{:?}", scene.nodes_let_in());
    running.stop();

    // Switched on, it is for new ones; of those that are there it is said that they cannot have it.
    let running = scene.start_with("Managed", |_| ());
    scene.apply("second", &ranges(RANGE));
    scene.wait_for_event("second", "EnsuredLoadBalancer");
    assert_eq!(groups("second"), 2);
    scene.wait_for_event("first", "LoadBalancerNotAsAsked");
    let told = scene.told("first", "LoadBalancerNotAsAsked");
    assert!(
        matches!(told.as_slice(), [(kind, words)] if kind == "Warning" && words.starts_with("it has no security group: ")),
        "{told:?}"
    );
    assert_eq!(groups("first"), 0);
    assert!(scene.address("first").is_some(), "it goes on serving");
    scene.apply("first", &ranges(OTHER));
    eventually("its clients are limited on the nodes", || {
        let rules = scene.nodes_let_in();
        rules.iter().any(|rule| rule.ends_with(OTHER)) && !rules.iter().any(|rule| rule.ends_with(RANGE))
    });
    running.stop();

    // Switched off, those with groups keep them, and are looked after.
    let running = scene.start_with("Unmanaged", |_| ());
    scene.apply("second", &ranges(OTHER));
    eventually("the rules follow", || scene.lets_in("second").iter().all(|rule| rule.ends_with(OTHER)));
    scene.apply("third", &json!({}));
    scene.wait_for_event("third", "EnsuredLoadBalancer");
    assert_eq!((groups("second"), groups("third")), (2, 0));

    // Groups that a Service names: one that has some gets them, one that has none is told why not.
    let given = json!({"metadata": {"annotations": {format!("{PREFIX}security-groups"): "user"}}});
    scene.apply("second", &given);
    eventually("it has the group that it names", || {
        scene.balancer("second").unwrap().groups.contains("sg-user") && scene.group("second").is_none()
    });
    scene.apply("third", &given);
    scene.wait_for_event("third", "LoadBalancerNotAsAsked");
    let told = scene.told("third", "LoadBalancerNotAsAsked");
    assert!(
        told[0].1.contains("annotation service.beta.kubernetes.io/aws-load-balancer-security-groups"),
        "{told:?}"
    );
    assert_eq!(groups("third"), 0);

    for name in ["first", "second", "third"] {
        scene.delete(name);
    }
    for name in ["first", "second", "third"] {
        scene.wait_until_gone(name);
    }
    assert!(scene.is_untouched(), "{:?}", scene.fake.state().groups);
    running.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_that_is_of_another_type_gives_its_load_balancer_back() {
    let scene = Scene::alone("types").await;
    let _running = scene.start();
    scene.apply("web", &json!({}));
    scene.wait_for_address("web");
    let internal = json!({"spec": {"type": "ClusterIP", "loadBalancerClass": null}});
    scene.apply("web", &internal);
    eventually("nobody holds it", || scene.finalizers("web").is_empty());
    assert_eq!(scene.address("web"), None, "nobody finds what is gone");
    assert!(scene.is_untouched());
    assert!(scene.reasons("web").is_superset(&set(["DeletingLoadBalancer", "DeletedLoadBalancer"])));
    // And gets another one.
    scene.apply("web", &json!({}));
    scene.wait_for_address("web");
    assert_eq!(scene.finalizers("web"), [FINALIZER]);
    scene.delete("web");
    scene.wait_until_gone("web");
    assert!(scene.is_untouched());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_changes_nothing_writes_nothing() {
    let scene = Scene::alone("still").await;
    let running = scene.start_with("Managed", |settings| {
        settings.resync = Duration::from_millis(300);
        settings.close_look = Duration::from_millis(900);
    });
    scene.apply("web", &json!({}));
    scene.wait_for_event("web", "EnsuredLoadBalancer");
    let (version, events) = (scene.version("web"), scene.events("web"));
    let patches = scene.status_patches();
    assert_ne!(patches, 0, "they are counted");
    scene.fake.clear_calls();
    scene.wait_for_looks(3);
    // Somebody writes something that is nobody's business here.
    scene.patch("web", &json!({"metadata": {"labels": {"team": "a"}}}));
    let labelled = scene.version("web");
    assert_ne!(labelled, version);
    scene.wait_for_looks(3);
    assert_eq!(scene.version("web"), labelled, "nobody wrote anything");
    assert_eq!(scene.events("web"), events);
    assert_eq!(scene.fake.mutating_calls(), 0);
    // Another one that starts finds it as it is.
    running.stop();
    let _running = scene.start_with("Managed", |settings| settings.resync = Duration::from_millis(300));
    scene.wait_for_looks(3);
    assert_eq!(scene.version("web"), labelled);
    assert_eq!(scene.fake.mutating_calls(), 0);
    assert_eq!(scene.status_patches(), patches, "nobody even tried");

    // A status that somebody spoils is written again when the Service is next looked at.
    let spoilt = json!({"status": {"loadBalancer": {"ingress": [{"hostname": "elsewhere.example"}]}}});
    let patch = ["patch", "service", "web", "-n", "still", "--subresource=status", "--type=merge", "-p"];
    scene.kubernetes.kubectl(&[&patch[..], &[&spoilt.to_string()]].concat()).unwrap();
    let dns_name = scene.balancer("web").unwrap().dns_name;
    eventually("the status is right again", || scene.address("web").as_ref() == Some(&dns_name));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_address_stays_while_aws_cannot_be_asked() {
    let scene = Scene::new("deaf").await;
    let running = scene.start();
    for name in ["web", "odd"] {
        scene.apply(name, &json!({}));
        scene.wait_for_address(name);
    }
    running.stop();
    // One that starts knows nothing, and hears nothing; one Service cannot even be wanted so.
    scene.fake.deny("DescribeLoadBalancers");
    let wrong = "service.beta.kubernetes.io/aws-load-balancer-nlb-target-type";
    scene.patch("odd", &json!({"metadata": {"annotations": {wrong: "cloud"}}}));
    let _running = scene.start();
    for name in ["web", "odd"] {
        scene.wait_for_event(name, "SyncLoadBalancerFailed");
        assert!(scene.address(name).is_some(), "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn only_services_of_the_class_are_looked_after() {
    let scene = Scene::alone("classes").await;
    let running = scene.start();
    let annotated = |class: Value| json!({"metadata": {"annotations": {TYPE: "nlb"}}, "spec": {"loadBalancerClass": class}});
    scene.apply("other", &annotated(json!("example.com/other")));
    scene.apply("none", &annotated(Value::Null));
    scene.apply("inside", &json!({"spec": {"type": "ClusterIP", "loadBalancerClass": null}}));
    let untouched = |name: &str| scene.finalizers(name).is_empty() && scene.events(name).is_empty();
    // By the time one that came later is done, they were seen.
    scene.apply("ours", &json!({}));
    scene.wait_for_address("ours");
    for name in ["other", "none", "inside"] {
        assert!(untouched(name), "{name}");
    }
    assert_eq!(scene.fake.state().load_balancers.len(), 1);
    running.stop();

    // Where it is configured, those without a class are, too, if they ask for it.
    let running = scene.start_with("Managed", |settings| {
        settings.class.without_class = Some((TYPE.to_owned(), "nlb".to_owned()));
    });
    scene.wait_for_address("none");
    assert_eq!(scene.finalizers("none"), [FINALIZER]);
    let external =
        json!({"metadata": {"annotations": {TYPE: "external"}}, "spec": {"loadBalancerClass": null}});
    scene.apply("external", &external);
    scene.apply("last", &json!({}));
    scene.wait_for_address("last");
    for name in ["other", "inside", "external"] {
        assert!(untouched(name), "{name}");
    }
    // One that only does not say any more that it is ours keeps what it has, until its type is another.
    scene.apply("none", &external);
    scene.wait_for_event("none", "LoadBalancerNotOurs");
    assert_eq!(scene.finalizers("none"), [FINALIZER]);
    assert!(scene.balancer("none").is_some());
    scene.apply("none", &json!({"spec": {"type": "ClusterIP", "loadBalancerClass": null}}));
    eventually("it is let go", || scene.finalizers("none").is_empty());
    assert_eq!(scene.balancer("none"), None);
    assert_eq!(scene.address("none"), None);
    running.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_that_another_controller_holds_is_left_alone_and_told() {
    let scene = Scene::new("theirs").await;
    let _running = scene.start();
    for (name, finalizer, who) in [
        (
            "cloud",
            "service.kubernetes.io/load-balancer-cleanup",
            "the service controller of a cloud provider",
        ),
        ("albc", "service.k8s.aws/resources", "the AWS Load Balancer Controller"),
    ] {
        scene.apply(name, &json!({"metadata": {"finalizers": [finalizer]}}));
        scene.wait_for_event(name, "LoadBalancerNotOurs");
        let told = scene.told(name, "LoadBalancerNotOurs");
        let start =
            format!("{who} looks after this Service, by the finalizer {finalizer}: it is left alone.");
        assert!(
            matches!(told.as_slice(), [(kind, words)] if kind == "Warning" && words.starts_with(&start)),
            "{told:?}"
        );
        assert_eq!(scene.finalizers(name), [finalizer]);
        assert_eq!(scene.address(name), None);
        // Also when it is deleted: it is theirs to let go.
        scene.delete(name);
        eventually("it is about to go", || scene.get(name).unwrap().metadata.deletion_timestamp.is_some());
    }
    scene.apply("ours", &json!({}));
    scene.wait_for_address("ours");
    assert_eq!(scene.fake.state().load_balancers.len(), 1);
    for name in ["cloud", "albc"] {
        assert_eq!(scene.reasons(name), set(["LoadBalancerNotOurs"]));
        assert_eq!(scene.finalizers(name).len(), 1);
        scene.patch(name, &json!({"metadata": {"finalizers": null}}));
        scene.wait_until_gone(name);
    }

    // Once they let go, it is ours.
    let held = json!({"metadata": {"finalizers": ["service.k8s.aws/resources"]}});
    scene.apply("later", &held);
    scene.wait_for_event("later", "LoadBalancerNotOurs");
    scene.patch("later", &json!({"metadata": {"finalizers": null}}));
    scene.wait_for_address("later");
    assert_eq!(scene.finalizers("later"), [FINALIZER]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deletion_that_waits_holds_up_nobody() {
    let scene = Scene::with("waiting", |config| config.lingering = Duration::from_secs(3600)).await;
    // However few there are who could deal with others.
    let _running = scene.start_with("Managed", |settings| settings.concurrency = 1);
    for name in ["goes", "stays"] {
        scene.apply(name, &json!({}));
        scene.wait_for_event(name, "EnsuredLoadBalancer");
    }
    scene.delete("goes");
    eventually("its load balancer is gone", || scene.balancer("goes").is_none());
    scene.apply("new", &json!({}));
    scene.wait_for_address("new");
    scene.apply("stays", &json!({"spec": {"ports": [{"name": "https", "port": 443}]}}));
    eventually("the other is changed", || {
        scene.balancer("stays").unwrap().listeners.values().all(|listener| listener.port == 443)
    });
    assert_eq!(scene.finalizers("goes"), [FINALIZER], "it is held until all is gone");
    assert!(scene.group("goes").is_some());
    scene.fake.pass(Duration::from_secs(3601));
    scene.wait_until_gone("goes");
    assert_eq!(scene.group("goes"), None);
}

/// Two of us, each with a class of its own and an AWS of its own: neither takes what the other holds for its own.
#[tokio::test(flavor = "multi_thread")]
async fn those_with_different_classes_leave_each_other_alone() {
    let one = Scene::new("east").await;
    let other = one.neighbour("west").await;
    let _running = (one.start(), other.start());
    for scene in [&one, &other] {
        scene.apply("web", &json!({}));
        scene.wait_for_event("web", "EnsuredLoadBalancer");
    }
    // Also when it is about to go, and the one who holds it cannot let it go yet.
    one.fake.deny("DeleteLoadBalancer");
    one.delete("web");
    one.wait_for_event("web", "DeleteLoadBalancerFailed");
    other.apply("later", &json!({}));
    other.wait_for_event("later", "EnsuredLoadBalancer");
    assert_eq!(one.finalizers("web"), [FINALIZER]);
    assert_eq!(other.finalizers("web"), [FINALIZER]);
    assert!(other.address("web").is_some());
    one.fake.allow("DeleteLoadBalancer");
    one.wait_until_gone("web");
    assert!(one.is_untouched());
}

#[tokio::test(flavor = "multi_thread")]
async fn many_come_and_go_at_once() {
    let scene = Scene::new("crowd").await;
    let _running = scene.start();
    let names: Vec<String> = (0..12).map(|number| format!("web{number}")).collect();
    for name in &names {
        scene.apply(name, &json!({}));
    }
    for name in &names {
        scene.wait_for_event(name, "EnsuredLoadBalancer");
        assert_eq!(scene.targets(name), set(["i-1", "i-2"]));
    }
    let world = scene.fake.state();
    assert_eq!((world.load_balancers.len(), world.target_groups.len()), (12, 12));
    assert_eq!(scene.nodes_let_in().len(), 3);
    let made = world.groups.values().filter(|group| group.name.starts_with("k8s-")).count();
    assert_eq!(made, 13, "one for each, and one for all");
    for name in &names {
        scene.delete(name);
    }
    for name in &names {
        scene.wait_until_gone(name);
    }
    assert!(scene.is_untouched(), "{:?}", scene.fake.state().groups);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_traffic_policy_says_how_nodes_are_checked() {
    let scene = Scene::new("policy").await;
    let _running = scene.start();
    let policy = |policy: &str| json!({"spec": {"externalTrafficPolicy": policy}});
    let check = || {
        let pools = scene.fake.state().target_groups;
        let check = pools.into_values().next()?.health_check;
        Some((check.protocol, check.port, check.path, check.interval, check.healthy, check.unhealthy))
    };
    let by_connecting = Some(("TCP".to_owned(), "traffic-port".to_owned(), None, 30, 3, 3));
    scene.apply("web", &policy("Local"));
    scene.wait_for_address("web");
    let port = scene.get("web").unwrap().spec.unwrap().health_check_node_port.unwrap();
    let local = Some(("HTTP".to_owned(), port.to_string(), Some("/healthz".to_owned()), 10, 2, 2));
    assert_eq!(check(), local);
    let lets_out = scene.group("web").unwrap().lets_out();
    assert!(lets_out.contains(&format!("tcp {port}-{port} sg-nodes")), "{lets_out:?}");
    scene.apply("web", &policy("Cluster"));
    eventually("nodes are checked by connecting", || check() == by_connecting);
    let out = scene.node_port("web", 80);
    eventually("the check's port is closed", || {
        scene.group("web").unwrap().lets_out() == [format!("tcp {out}-{out} sg-nodes")]
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn one_port_for_two_protocols() {
    let scene = Scene::new("dns").await;
    let _running = scene.start();
    // Of the first ports nobody is given one who does not ask for it.
    let ports = |udp: u16| {
        let port = |protocol: &str, node_port: u16| json!({"name": protocol.to_lowercase(), "port": 53, "protocol": protocol, "nodePort": node_port});
        json!({"spec": {"ports": [port("TCP", 30053), port("UDP", udp)]}})
    };
    scene.apply("dns", &ports(30053));
    scene.wait_for_address("dns");
    let listeners = || {
        let listeners = scene.balancer("dns").unwrap().listeners.into_values();
        listeners.map(|listener| (listener.port, listener.protocol)).collect::<Vec<_>>()
    };
    eventually("both are joined", || listeners() == [(53, "TCP_UDP".to_owned())]);
    // What a network load balancer cannot do is told, and what it does stays.
    scene.apply("dns", &ports(30054));
    scene.wait_for_event("dns", "SyncLoadBalancerFailed");
    let told = scene.told("dns", "SyncLoadBalancerFailed");
    assert!(told[0].1.contains("port 53 is for TCP and UDP, which go to ports 30053 and 30054"), "{told:?}");
    assert_eq!(listeners(), [(53, "TCP_UDP".to_owned())]);
}
