use k8s_openapi::jiff::Timestamp;
use portcullis_core::Protocol;
use portcullis_host::claims::Port;

use super::*;

fn service(ranges: &[&str], held: &[&str]) -> Service {
    let ingress: Vec<Value> = held.iter().map(|ip| json!({"ip": ip})).collect();
    serde_json::from_value(json!({
        "metadata": {"name": "web", "namespace": "shop"},
        "spec": {"type": "LoadBalancer", "ports": [{"port": 80}], "loadBalancerSourceRanges": ranges},
        "status": {"loadBalancer": {"ingress": ingress}},
    }))
    .unwrap()
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn share(addresses: &[&str], refused: &[(&str, Refusal)]) -> Share {
    Share {
        addresses: addresses.iter().map(|text| ip(text)).collect(),
        refused: refused.iter().map(|(text, refusal)| (ip(text), refusal.clone())).collect(),
    }
}

fn given<'a>(share: &'a Share, datapath: &'a NodeDatapath, knows: bool) -> Given<'a> {
    let missing = Vec::new();
    Given {
        node: "a",
        share,
        settings: None,
        datapath,
        knows,
        missing,
        started_anew: false,
        is_late: false,
        is_unseen: false,
        is_aside: false,
    }
}

fn datapath(mode: &str) -> NodeDatapath {
    NodeDatapath { mode: mode.to_owned(), ..NodeDatapath::default() }
}

const TCP: Port = Port { protocol: Protocol::TCP, number: 80 };

#[test]
fn what_is_said_of_addresses() {
    let (fine, one, none) = (datapath("none"), share(&["192.0.2.7"], &[]), share(&[], &[]));
    let taken = share(
        &["192.0.2.7"],
        &[("198.51.100.7", Refusal::Taken(TCP, "shop/old".into())), ("10.0.0.7", Refusal::Listens(TCP))],
    );
    let reserved = share(&[], &[("192.0.2.7", Refusal::Reserved(TCP))]);
    for (share, expected) in [
        (Some(&one), (true, "Assigned", "It is reached at 192.0.2.7.")),
        (
            Some(&none),
            (
                false,
                "NoAddress",
                "No node has an address of its families that Services can have. It is reached nowhere.",
            ),
        ),
        (
            None,
            (
                false,
                "NoAddress",
                "No node has told of its addresses yet: see whether Portcullis runs on the nodes, with host.agent. It is reached nowhere.",
            ),
        ),
        (
            Some(&reserved),
            (
                false,
                "PortReserved",
                "Port 80/tcp is kept for the node itself (host.reservedPorts): use another one. It is reached nowhere.",
            ),
        ),
        (
            Some(&taken),
            (
                false,
                "PortOfNode",
                "A program of the node itself listens on port 80/tcp of 10.0.0.7, or did a moment ago: use another port, or stop it and wait a few minutes. Service shop/old has port 80/tcp of 198.51.100.7: use another port or address, or wait until it is gone. It is reached at 192.0.2.7.",
            ),
        ),
    ] {
        let all: Vec<Given<'_>> = share.map(|share| given(share, &fine, true)).into_iter().collect();
        let found = verdict(&service(&[], &[]), Mode::None, &all).assigned;
        assert_eq!((found.0, found.1, found.2.as_str()), expected);
    }
}

#[test]
fn an_address_waits_for_its_filter() {
    let fine = NodeDatapath { interfaces: BTreeSet::from(["enp3s0".to_owned()]), ..datapath("filter") };
    let broken = NodeDatapath { problem: Some("no nf_tables".to_owned()), ..datapath("filter") };
    let both = share(&["192.0.2.7", "192.0.2.8"], &[]);
    let reached = |service: &Service, mode: Mode, datapath: &NodeDatapath, up_to_date: bool| {
        let found = verdict(service, mode, &[given(&both, datapath, up_to_date)]);
        let addresses: Vec<String> = found.addresses.iter().map(ToString::to_string).collect();
        (addresses.join(" "), found.assigned.1, found.enforcement)
    };
    let limited = service(&["10.0.0.0/8"], &["192.0.2.7"]);
    let (addresses, reason, _) = reached(&limited, Mode::Filter, &fine, false);
    assert_eq!((addresses.as_str(), reason), ("192.0.2.7", "Waiting"), "what it has it keeps");
    let (addresses, reason, enforcement) = reached(&limited, Mode::Filter, &fine, true);
    assert_eq!((addresses.as_str(), reason), ("192.0.2.7 192.0.2.8", "Assigned"));
    assert_eq!(enforcement, Kept::Said(Enforcement::By("The packet filters of a (enp3s0)".to_owned())));
    let (addresses, reason, enforcement) = reached(&limited, Mode::Filter, &broken, true);
    assert_eq!((addresses.as_str(), reason), ("192.0.2.7", "NotFiltered"));
    assert!(matches!(enforcement, Kept::Said(Enforcement::Not(why)) if why.contains("no nf_tables")));
    // Packet filters that do something else keep nobody out.
    let (addresses, reason, enforcement) = reached(&limited, Mode::Filter, &datapath("none"), true);
    assert_eq!((addresses.as_str(), reason), ("192.0.2.7", "OtherDatapath"));
    assert_eq!(enforcement, Kept::Said(Enforcement::Not("Node a has host.datapath `none`.".to_owned())));
    // Where nobody is limited there is nothing to wait for, nor where nobody else serves the address.
    assert_eq!(reached(&service(&[], &[]), Mode::Filter, &fine, false).0, "192.0.2.7 192.0.2.8");
    let (addresses, _, enforcement) = reached(&limited, Mode::Nftables, &datapath("nftables"), false);
    assert_eq!((addresses.as_str(), enforcement), ("192.0.2.7 192.0.2.8", Kept::NotYet));
    assert_eq!(reached(&limited, Mode::None, &datapath("none"), true).2, Kept::LeftToOthers);
}

/// Proxies leave an address alone once its node serves it, and not before.
#[test]
fn who_serves_an_address_is_told_once_it_does() {
    let now = Time(Timestamp::from_second(1).unwrap());
    let one = share(&["192.0.2.7"], &[]);
    let broken = |mode: &str| NodeDatapath { problem: Some("no nf_tables".to_owned()), ..datapath(mode) };
    let ip_mode = |ranges: &[&str], mode: Mode, node: &NodeDatapath, before: Option<&str>| {
        let mut service = service(ranges, &[]);
        let ingress = before.map(|before| json!({"ip": "192.0.2.7", "ipMode": before}));
        service.status =
            serde_json::from_value(json!({"loadBalancer": {"ingress": ingress.as_slice()}})).unwrap();
        let found = verdict(&service, mode, &[given(&one, node, true)]);
        let patch = found.patch(&service, &now).unwrap();
        let ingress = &patch["status"]["loadBalancer"]["ingress"];
        let nobody = found.addresses.is_empty();
        if nobody { "-".to_owned() } else { ingress[0]["ipMode"].as_str().unwrap().to_owned() }
    };
    let (nftables, filter, none) = (datapath("nftables"), datapath("filter"), datapath("none"));
    let open: &[&str] = &[];
    let limited = &["10.0.0.0/8"][..];
    for (ranges, mode, node, before, expected) in [
        (open, Mode::Nftables, &nftables, None, "Proxy"),
        (open, Mode::Nftables, &nftables, Some("VIP"), "Proxy"),
        // While an installation is switched, nodes follow one by one.
        (open, Mode::Nftables, &filter, Some("VIP"), "VIP"),
        (open, Mode::Nftables, &filter, None, "VIP"),
        (limited, Mode::Nftables, &filter, Some("VIP"), "VIP"),
        (limited, Mode::Nftables, &filter, None, "VIP"),
        (open, Mode::Filter, &nftables, Some("Proxy"), "VIP"),
        // Packet filters that cannot be changed do what they did.
        (open, Mode::Nftables, &broken("nftables"), Some("Proxy"), "Proxy"),
        (open, Mode::Nftables, &broken("nftables"), Some("VIP"), "VIP"),
        (limited, Mode::Nftables, &broken("nftables"), Some("VIP"), "VIP"),
        (open, Mode::Nftables, &broken("nftables"), None, "VIP"),
        // Where nobody keeps to ranges, nobody is sent, whether proxies know what `Proxy` means or not.
        (limited, Mode::Nftables, &broken("nftables"), None, "-"),
        (limited, Mode::Nftables, &broken("filter"), None, "-"),
        (limited, Mode::Nftables, &none, None, "-"),
    ] {
        let found = ip_mode(ranges, mode, node, before);
        assert_eq!(found, expected, "{ranges:?} {mode:?} {node:?} {before:?}");
    }
    let (node, open) = (broken("nftables"), service(&[], &[]));
    let found = verdict(&open, Mode::Nftables, &[given(&one, &node, true)]);
    assert_eq!((found.addresses.len(), found.assigned.0, found.assigned.1), (1, false, "NotServed"));
    assert!(found.assigned.2.contains("no nf_tables"), "{found:?}");
    assert!(verdict(&open, Mode::Filter, &[given(&one, &broken("filter"), true)]).assigned.0);
}

/// What others serve they go on serving until the node does; what is new is theirs meanwhile, but for who lets only some in.
#[test]
fn who_serves_while_packet_filters_do_not_know_of_it() {
    let now = Time(Timestamp::from_second(1).unwrap());
    let (one, fine) = (share(&["192.0.2.7"], &[]), datapath("nftables"));
    let unknown = given(&one, &fine, false);
    let started_anew = Given { started_anew: true, ..given(&one, &fine, true) };
    let (open, limited) = (&[][..], &["10.0.0.0/8"][..]);
    for (ranges, before, expected) in [
        (open, None, "VIP"),
        (open, Some("VIP"), "VIP"),
        (open, Some("Proxy"), "Proxy"),
        (limited, None, "Proxy"),
        (limited, Some("VIP"), "VIP"),
        (limited, Some("Proxy"), "Proxy"),
    ] {
        let mut service = service(ranges, &[]);
        let ingress = before.map(|before| json!({"ip": "192.0.2.7", "ipMode": before}));
        service.status =
            serde_json::from_value(json!({"loadBalancer": {"ingress": ingress.as_slice()}})).unwrap();
        for behind in [&unknown, &started_anew] {
            let found = verdict(&service, Mode::Nftables, std::slice::from_ref(behind));
            let patch = found.patch(&service, &now).unwrap();
            let ingress = &patch["status"]["loadBalancer"]["ingress"];
            assert_eq!(ingress[0]["ipMode"], expected, "{ranges:?} {before:?} {behind:?}");
            assert!(found.is_early && found.waits && found.assigned.0, "{found:?}");
            // It is not said to be served for ever.
            let late = Given { is_late: true, ..behind.clone() };
            let found = verdict(&service, Mode::Nftables, &[late]);
            assert_eq!((found.addresses.len(), found.assigned.0, found.assigned.1), (1, false, "NotServed"));
            assert!(found.assigned.2.to_lowercase().contains("node a"), "{found:?}");
        }
        let found = verdict(&service, Mode::Nftables, &[given(&one, &fine, true)]);
        assert!(!found.is_early && found.assigned.1 == "Assigned", "{found:?}");
        let patch = found.patch(&service, &now).unwrap();
        assert_eq!(patch["status"]["loadBalancer"]["ingress"][0]["ipMode"], "Proxy");
    }
    // Nothing is waited for where it would not help.
    let broken = NodeDatapath { problem: Some("no nf_tables".to_owned()), ..datapath("nftables") };
    let filter = datapath("filter");
    let aside = Given { is_aside: true, ..unknown.clone() };
    for one in [aside, given(&one, &broken, false), given(&one, &filter, false)] {
        let is_early = verdict(&service(open, &[]), Mode::Nftables, std::slice::from_ref(&one)).is_early;
        assert!(!is_early, "{one:?}");
    }
    assert!(!verdict(&service(open, &[]), Mode::Filter, &[unknown]).is_early);
}

/// What keeps others out goes with it, whatever is told of the addresses.
#[test]
fn what_is_known_to_be_gone_keeps_nobody_out() {
    let both = share(&["192.0.2.7", "192.0.2.8"], &[]);
    let limited = service(&["10.0.0.0/8"], &["192.0.2.7", "192.0.2.8"]);
    let broken = |unset: &[&str]| NodeDatapath {
        problem: Some("no nf_tables".to_owned()),
        unset: unset.iter().map(|text| ip(text)).collect(),
        ..datapath("filter")
    };
    let counts = "Until they are, what was set there before counts.";
    for (unset, expected, said) in [
        (&[][..], &["192.0.2.7", "192.0.2.8"][..], counts),
        (&["198.51.100.7"], &["192.0.2.7", "192.0.2.8"], counts),
        (&["192.0.2.8"], &["192.0.2.7"], "Nothing is set there for 192.0.2.8."),
        (&["192.0.2.7", "192.0.2.8"], &[], "Nothing is set there for 192.0.2.7, 192.0.2.8."),
    ] {
        let node = broken(unset);
        let found = verdict(&limited, Mode::Filter, &[given(&both, &node, false)]);
        assert_eq!(found.addresses, expected.iter().map(|text| ip(text)).collect(), "{unset:?}");
        assert!(
            matches!(&found.enforcement, Kept::Said(Enforcement::Not(why)) if why.ends_with(said)),
            "{found:?}"
        );
        let open = verdict(&service(&[], &[]), Mode::Filter, &[given(&both, &node, false)]);
        assert_eq!(open.addresses.len(), 2, "who lets everybody in has both");
    }
}

/// What comes to an address may come to any node that has it.
#[test]
fn no_node_keeps_others_out_for_another() {
    let (fine, one) = (datapath("filter"), share(&["192.0.2.7"], &[]));
    let broken = NodeDatapath { problem: Some("no nf_tables".to_owned()), ..datapath("filter") };
    let limited = service(&["10.0.0.0/8"], &[]);
    for (other, knows, reached) in [(&fine, true, true), (&fine, false, false), (&broken, true, false)] {
        let other = Given { node: "b", ..given(&one, other, knows) };
        for all in [[given(&one, &fine, true), other.clone()], [other.clone(), given(&one, &fine, true)]] {
            let found = verdict(&limited, Mode::Filter, &all);
            assert_eq!(!found.addresses.is_empty(), reached, "{found:?}");
            assert_eq!(found.waits, !reached);
            assert!(!found.assigned.2.contains("192.0.2.7") || reached, "{found:?}");
        }
        let aside = Given { is_aside: true, ..other };
        let found = verdict(&limited, Mode::Filter, &[given(&one, &fine, true), aside]);
        assert_eq!(found.addresses.len(), 1, "nobody is sent to one that is not ready");
    }
}

/// A port that is new is not served to everybody for longer than it takes to filter it.
#[test]
fn a_new_port_waits_for_its_filter() {
    let (fine, one) = (datapath("filter"), share(&["192.0.2.7"], &[]));
    let broken = NodeDatapath { problem: Some("no nf_tables".to_owned()), ..datapath("filter") };
    let mut limited = service(&["10.0.0.0/8"], &[]);
    let now = Time(Timestamp::from_second(1).unwrap());
    let found = verdict(&limited, Mode::Filter, &[given(&one, &fine, true)]);
    let patch = found.patch(&limited, &now).unwrap();
    limited.status = serde_json::from_value(patch["status"].clone()).unwrap();
    let mut more = limited.clone();
    let mut new = more.spec.as_ref().unwrap().ports.as_ref().unwrap()[0].clone();
    new.port = 81;
    more.spec.as_mut().unwrap().ports.as_mut().unwrap().push(new);
    let behind = |datapath, is_late| Given { is_late, ..given(&one, datapath, false) };

    let found = verdict(&more, Mode::Filter, &[behind(&fine, false)]);
    assert_eq!((found.addresses.len(), found.settling.len(), found.waits), (1, 1, true));
    assert_eq!(found.patch(&more, &now), None, "it is said once it is so");
    for late in [behind(&fine, true), behind(&broken, false)] {
        let found = verdict(&more, Mode::Filter, &[late]);
        assert_eq!((found.addresses.len(), found.waits, found.assigned.0), (0, true, false));
        assert!(matches!(found.enforcement, Kept::Said(Enforcement::Not(_))), "{found:?}");
    }
    let found = verdict(&more, Mode::Filter, &[given(&one, &fine, true)]);
    let patch = found.patch(&more, &now).unwrap();
    assert_eq!(patch["status"]["loadBalancer"]["ingress"][0]["ports"].as_array().unwrap().len(), 2);
    // What changed otherwise leaves it where it is, and it is told that nobody knows of it.
    let found = verdict(&limited, Mode::Filter, &[behind(&fine, true)]);
    assert_eq!((found.addresses.len(), found.settling.len()), (1, 0));
    assert!(
        matches!(found.enforcement, Kept::Said(Enforcement::Not(why)) if why.contains("do not know what it asks for"))
    );
    assert_eq!(verdict(&limited, Mode::Filter, &[behind(&fine, false)]).enforcement, Kept::NotYet);
}

#[test]
fn nothing_that_was_set_outlives_a_start_of_the_node() {
    let (fine, one) = (datapath("filter"), share(&["192.0.2.7"], &[]));
    let limited = service(&["10.0.0.0/8"], &["192.0.2.7"]);
    let anew = Given { started_anew: true, ..given(&one, &fine, true) };
    let found = verdict(&limited, Mode::Filter, std::slice::from_ref(&anew));
    assert_eq!(
        (found.addresses.len(), found.assigned.1),
        (0, "Waiting"),
        "it is taken away until it is filtered"
    );
    assert!(matches!(found.enforcement, Kept::Said(Enforcement::Not(why)) if why.contains("started anew")));
    let open = verdict(&service(&[], &["192.0.2.7"]), Mode::Filter, &[anew]);
    assert_eq!(
        (open.addresses.len(), open.enforcement),
        (1, Kept::Nothing),
        "who lets everybody in keeps it"
    );
}

#[test]
fn node_ports_are_told_where_ranges_do_not_count() {
    let (fine, one) = (datapath("nftables"), share(&["192.0.2.7"], &[]));
    let mut limited = service(&["10.0.0.0/8"], &[]);
    limited.spec.as_mut().unwrap().ports.as_mut().unwrap()[0].node_port = Some(30080);
    let found = verdict(&limited, Mode::Nftables, &[given(&one, &fine, true)]).enforcement;
    assert!(matches!(found, Kept::Said(Enforcement::Not(why)) if why.contains("30080")));
    limited.metadata.annotations = Some([(NODE_PORTS.to_owned(), "true".to_owned())].into());
    let found = verdict(&limited, Mode::Nftables, &[given(&one, &fine, true)]).enforcement;
    assert!(matches!(found, Kept::Said(Enforcement::By(_))));
    // Where the node needs it itself, it is told.
    let of = |port: &str| NodeDatapath { left_out: [port.to_owned()].into(), ..datapath("nftables") };
    let needed = of("30080/tcp");
    let found = verdict(&limited, Mode::Nftables, &[given(&one, &needed, true)]);
    assert_eq!((found.addresses.len(), found.assigned.1), (1, "PortOfNode"));
    assert!(found.assigned.2.starts_with("Node a needs 30080/tcp itself"), "{found:?}");
    assert!(matches!(found.enforcement, Kept::Said(Enforcement::Not(why)) if why.contains("30080/tcp")));
    let of_another = of("30080/udp");
    let found = verdict(&limited, Mode::Nftables, &[given(&one, &of_another, true)]);
    assert_eq!(found.assigned.1, "Assigned");
    // Health checks are not about ranges.
    let spec = limited.spec.as_mut().unwrap();
    spec.external_traffic_policy = Some("Local".to_owned());
    spec.health_check_node_port = Some(30081);
    let needed = of("30081/tcp");
    let found = verdict(&limited, Mode::Nftables, &[given(&one, &needed, true)]);
    assert_eq!(found.assigned.1, "PortOfNode");
    assert!(matches!(found.enforcement, Kept::Said(Enforcement::By(_))));
}

#[test]
fn external_ips_are_told_where_ranges_do_not_count() {
    let (one, none) = (share(&["192.0.2.7"], &[]), share(&[], &[]));
    let said = |ranges: &[&str], external: &[&str], mode: Mode, share: &Share| {
        let mut limited = service(ranges, &[]);
        let external = external.iter().map(|&text| text.to_owned()).collect();
        limited.spec.as_mut().unwrap().external_ips = Some(external);
        match verdict(&limited, mode, &[given(share, &datapath(word(mode)), true)]).enforcement {
            Kept::Said(Enforcement::Not(why)) => why,
            other => format!("{other:?}"),
        }
    };
    let ranges = &["10.0.0.0/8"][..];
    let both = &["192.0.2.7", "203.0.113.9"][..];
    for mode in [Mode::Filter, Mode::Nftables] {
        assert!(said(ranges, &["192.0.2.7"], mode, &one).starts_with("Said(By("), "it is filtered there");
        assert_eq!(
            said(ranges, both, mode, &one),
            "Its addresses in spec.externalIPs, 203.0.113.9, let everybody in: kube-proxy serves them without a look at source ranges. Remove them."
        );
        assert!(said(ranges, both, mode, &none).contains("192.0.2.7, 203.0.113.9"), "it is not there");
        assert_eq!(said(&[], both, mode, &one), "Nothing", "it lets everybody in");
    }
    assert!(said(ranges, both, Mode::None, &one).contains("192.0.2.7, 203.0.113.9"));
    // A node whose addresses are not in the status filters there all the same.
    let mut limited = service(ranges, &[]);
    limited.spec.as_mut().unwrap().external_ips = Some(vec!["203.0.113.9".to_owned()]);
    let (fine, other) = (datapath("filter"), share(&["203.0.113.9"], &[]));
    let aside = Given { is_aside: true, ..given(&other, &fine, true) };
    let found = verdict(&limited, Mode::Filter, &[given(&one, &fine, true), aside]);
    assert_eq!(found.addresses, BTreeSet::from([ip("192.0.2.7")]));
    assert!(matches!(found.enforcement, Kept::Said(Enforcement::By(_))), "{found:?}");
}

/// Who waits for a version that has to come yet brings it about, once a second at most.
#[test]
fn what_waits_for_a_version_makes_one() {
    let (fine, one) = (datapath("filter"), share(&["192.0.2.7"], &[]));
    let mut limited = service(&["10.0.0.0/8"], &[]);
    let at = |second| Time(Timestamp::from_second(second).unwrap());
    let unseen = Given { is_unseen: true, ..given(&one, &fine, false) };
    let found = verdict(&limited, Mode::Filter, &[unseen]);
    let patch = found.patch(&limited, &at(1)).unwrap();
    limited.status = serde_json::from_value(patch["status"].clone()).unwrap();
    assert_eq!(found.patch(&limited, &at(1)), None);
    assert!(found.patch(&limited, &at(2)).is_some());
    let seen = verdict(&limited, Mode::Filter, &[given(&one, &fine, false)]);
    assert_eq!(seen.patch(&limited, &at(2)), None, "it is waited for");
}

#[test]
fn what_was_said_is_taken_back() {
    let now = Time(Timestamp::from_second(1).unwrap());
    let (fine, one) = (datapath("nftables"), share(&["192.0.2.7"], &[]));
    let mut service = service(&["10.0.0.0/8"], &[]);
    assert_eq!(taken_back(&service), None, "it never was");
    let found = verdict(&service, Mode::Nftables, &[given(&one, &fine, true)]);
    let patch = found.patch(&service, &now).unwrap();
    service.status = serde_json::from_value(patch["status"].clone()).unwrap();
    let patch = taken_back(&service).unwrap();
    assert!(patch["status"]["loadBalancer"]["ingress"].is_null());
    assert_eq!(patch["status"]["conditions"].as_array().unwrap().len(), 2);
    // Somebody else has it, and says where it is reached.
    service.status.as_mut().unwrap().load_balancer.as_mut().unwrap().ingress.as_mut().unwrap()[0].ports =
        None;
    service.metadata.finalizers = Some(vec!["service.kubernetes.io/load-balancer-cleanup".to_owned()]);
    let patch = taken_back(&service).unwrap();
    assert!(patch["status"].get("loadBalancer").is_none());
    assert_eq!(patch["status"]["conditions"].as_array().unwrap().len(), 1);
}

#[test]
fn what_cannot_be_read_lets_nobody_in() {
    let mut wrong = service(&[], &[]);
    let annotation =
        ("service.beta.kubernetes.io/load-balancer-source-ranges".to_owned(), "10.0.0.0/33".to_owned());
    wrong.metadata.annotations = Some([annotation].into());
    let (fine, one) = (datapath("nftables"), share(&["192.0.2.7"], &[]));
    let found = verdict(&wrong, Mode::Nftables, &[given(&one, &fine, true)]);
    assert_eq!(found.assigned.1, "WrongSourceRanges");
    assert!(found.assigned.2.contains("Nobody gets in until that is corrected"), "{found:?}");
    assert!(limits(&wrong));
}

#[test]
fn nothing_is_written_twice() {
    let now = Time(Timestamp::from_second(1).unwrap());
    let (fine, one) = (datapath("nftables"), share(&["192.0.2.7"], &[]));
    let mut service = service(&["10.0.0.0/8"], &[]);
    let found = verdict(&service, Mode::Nftables, &[given(&one, &fine, true)]);
    let patch = found.patch(&service, &now).unwrap();
    assert_eq!(patch["status"]["loadBalancer"]["ingress"][0]["ipMode"], "Proxy");
    assert_eq!(
        patch["status"]["loadBalancer"]["ingress"][0]["ports"],
        json!([{"port": 80, "protocol": "TCP"}])
    );
    service.status = serde_json::from_value(patch["status"].clone()).unwrap();
    let later = Time(Timestamp::from_second(9).unwrap());
    assert_eq!(found.patch(&service, &later), None);
    // Others serve it from now on, and whether they keep to its ranges is not known.
    let fine = datapath("none");
    let found = verdict(&service, Mode::None, &[given(&one, &fine, true)]);
    let patch = found.patch(&service, &later).unwrap();
    assert_eq!(patch["status"]["loadBalancer"]["ingress"][0]["ipMode"], "VIP");
    let said = &patch["status"]["conditions"][0];
    assert_eq!((&said["status"], &said["reason"]), (&json!("Unknown"), &json!("LeftToOthers")));
}

/// What is written again on the same version is the same, whenever that is; on another it is another.
#[test]
fn what_is_written_says_on_which_version() {
    let (fine, one) = (datapath("nftables"), share(&["192.0.2.7"], &[]));
    let of = |version: &str, seconds: i64| {
        let mut service = service(&["10.0.0.0/8"], &[]);
        service.metadata.resource_version = Some(version.to_owned());
        let found = verdict(&service, Mode::Nftables, &[given(&one, &fine, true)]);
        found.patch(&service, &Time(Timestamp::from_second(seconds).unwrap())).unwrap()
    };
    for (before, now, same) in
        [(of("7", 1), of("7", 1), true), (of("7", 1), of("7", 9), true), (of("7", 1), of("8", 1), false)]
    {
        assert_eq!(untimed(&before) == untimed(&now), same, "{now}");
    }
    assert_eq!(decided_on(&of("7", 1)), Some(7));
}
