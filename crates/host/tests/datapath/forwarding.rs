use std::collections::BTreeSet;
use std::time::Duration;

use portcullis_core::Protocol;
use portcullis_host::datapath::{ClientAddress, Mode};
use portcullis_testkit::Failure::Refused;
use portcullis_testkit::{Target, can_connect, connect};

use crate::lab::{Lab, ROUTED, V4, V6, frontend, place, seen, web};
use crate::talk::{Connection, Packets, speak};

const TCP: Target = Target::Tcp(80);
const BOTH: [&str; 2] = ["10.244.0.2:8080", "10.244.1.2:8080"];

#[test]
fn endpoints_see_the_client_or_the_node() {
    let lab = Lab::new();
    let _serving = lab.one.serve(8080);
    let mut datapath = lab.datapath();
    let udp = |address| place(address, Protocol::UDP, 80);
    let frontends = [
        web(V4, &[], &["10.244.0.2:8080"]),
        web(V6, &[], &["[fd00:1::2]:8080"]),
        frontend(udp(V4), &[], &["10.244.0.2:8080"]),
        frontend(udp(V6), &[], &["[fd00:1::2]:8080"]),
        web(ROUTED, &[], &["10.244.0.2:8080"]),
        frontend(place("0.0.0.0", Protocol::TCP, 30080), &[], &["10.244.0.2:8080"]),
    ];
    lab.sync(&mut datapath, Mode::Nftables, &frontends);
    for target in [TCP, Target::Udp(80)] {
        assert_eq!(connect(&lab.inside, V4, target), Ok(seen("10.244.0.1")));
        assert_eq!(connect(&lab.inside, V6, target), Ok(seen("fd00:1::1")));
    }
    assert_eq!(connect(&lab.inside, ROUTED, TCP), Ok(seen("10.244.0.1")));
    assert_eq!(connect(&lab.inside, V4, Target::Tcp(30080)), Ok(seen("10.244.0.1")));

    let kept = frontends.map(|frontend| frontend.with_client_address(ClientAddress::Kept));
    lab.sync(&mut datapath, Mode::Nftables, &kept);
    for target in [TCP, Target::Udp(80)] {
        assert_eq!(connect(&lab.inside, V4, target), Ok(seen("192.0.2.10")));
        assert_eq!(connect(&lab.inside, V6, target), Ok(seen("2001:db8:1::10")));
    }
    assert_eq!(connect(&lab.inside, ROUTED, TCP), Ok(seen("192.0.2.10")));
    assert_eq!(connect(&lab.inside, V4, Target::Tcp(30080)), Ok(seen("192.0.2.10")));
}

#[test]
fn connections_are_spread_over_endpoints() {
    let lab = Lab::new();
    speak(&lab.one, 8080);
    speak(&lab.two, 8080);
    let mut datapath = lab.datapath();
    let v6 = ["[fd00:1::2]:8080", "[fd00:2::2]:8080"];
    lab.sync(&mut datapath, Mode::Nftables, &[web(V4, &[], &BOTH), web(V6, &[], &v6)]);
    for address in [V4, V6] {
        // All forty at one endpoint: once in 2^39.
        let seen: BTreeSet<Option<String>> =
            (0..40).map(|_| Connection::open(&lab.inside, address, 80).ask()).collect();
        assert_eq!(seen, BTreeSet::from([Some("one".into()), Some("two".into())]), "{address}");
    }
}

#[test]
fn without_an_endpoint_the_client_is_told() {
    let lab = Lab::new();
    let _of_the_node_itself = lab.node.serve(80);
    let _leaving = lab.two.serve(8080);
    let mut datapath = lab.datapath();
    let udp = place(V4, Protocol::UDP, 80);
    lab.sync(&mut datapath, Mode::Nftables, &[web(V4, &[], &[]), web(V6, &[], &[]), frontend(udp, &[], &[])]);
    for client in [&lab.inside, &lab.node] {
        assert_eq!(connect(client, V4, TCP), Err(Refused));
        assert_eq!(connect(client, V6, TCP), Err(Refused));
    }
    assert_eq!(connect(&lab.inside, V4, Target::Udp(80)), Err(Refused));
    // Who may not connect is not told.
    lab.change(&mut datapath, &[web(V4, &["198.51.100.0/24"], &[])], &[]);
    assert_eq!(connect(&lab.inside, V4, TCP), Err(portcullis_testkit::Failure::TimedOut));

    let leaving = web(V4, &[], &[]).with_terminating(["10.244.1.2:8080".parse().unwrap()]).unwrap();
    lab.change(&mut datapath, &[leaving], &[]);
    assert_eq!(connect(&lab.inside, V4, TCP), Ok(seen("10.244.1.1")));
}

#[test]
fn connections_outlive_their_endpoints_place_in_the_list() {
    let lab = Lab::new();
    speak(&lab.one, 8080);
    speak(&lab.two, 8080);
    let mut datapath = lab.datapath();
    lab.sync(&mut datapath, Mode::Nftables, &[web(V4, &[], &["10.244.0.2:8080"])]);
    let mut connection = Connection::open(&lab.inside, V4, 80);
    assert_eq!(connection.ask().as_deref(), Some("one"));
    // Another one comes, this one is on its way out, none is left, and the frontend goes.
    let leaving =
        web(V4, &[], &["10.244.1.2:8080"]).with_terminating(["10.244.0.2:8080".parse().unwrap()]).unwrap();
    for changed in [web(V4, &[], &BOTH), leaving, web(V4, &[], &[])] {
        lab.change(&mut datapath, &[changed], &[]);
        assert_eq!(connection.ask().as_deref(), Some("one"));
    }
}

#[test]
fn an_endpoint_reaches_its_own_frontend() {
    let lab = Lab::new();
    let _serving = lab.one.serve(8080);
    let mut datapath = lab.datapath();
    let kept = [web(V4, &[], &["10.244.0.2:8080"]), web(V6, &[], &["[fd00:1::2]:8080"])]
        .map(|frontend| frontend.with_client_address(ClientAddress::Kept));
    lab.sync(&mut datapath, Mode::Nftables, &kept);
    assert_eq!(connect(&lab.one, V4, TCP), Ok(seen("10.244.0.1")));
    assert_eq!(connect(&lab.one, V6, TCP), Ok(seen("fd00:1::1")));
    assert_eq!(connect(&lab.two, V4, TCP), Ok(seen("10.244.1.2")));
    lab.change(&mut datapath, &[web(V4, &[], &["10.244.0.2:8080"])], &[]);
    assert_eq!(connect(&lab.one, V4, TCP), Ok(seen("10.244.0.1")));
}

#[test]
fn the_node_itself_reaches_frontends() {
    let lab = Lab::new();
    let _serving = lab.one.serve(8080);
    let mut datapath = lab.datapath();
    let frontends = [
        web(V4, &[], &["10.244.0.2:8080"]),
        web(V6, &[], &["[fd00:1::2]:8080"]).with_client_address(ClientAddress::Kept),
        web(ROUTED, &[], &["10.244.0.2:8080"]),
        frontend(place("0.0.0.0", Protocol::TCP, 30080), &[], &["10.244.0.2:8080"]),
    ];
    lab.node.run("ip route add 203.0.113.0/24 dev to-inside");
    lab.sync(&mut datapath, Mode::Nftables, &frontends);
    assert_eq!(connect(&lab.node, V4, TCP), Ok(seen("10.244.0.1")));
    assert_eq!(connect(&lab.node, V6, TCP), Ok(seen(V6)));
    assert_eq!(connect(&lab.node, ROUTED, TCP), Ok(seen("10.244.0.1")));
    assert_eq!(connect(&lab.node, "198.51.100.1", Target::Tcp(30080)), Ok(seen("10.244.0.1")));
    // What listens on loopback alone stays the node's.
    assert_eq!(connect(&lab.node, "127.0.0.1", Target::Tcp(30080)), Err(Refused));
}

#[test]
fn a_client_keeps_its_endpoint() {
    let lab = Lab::new();
    speak(&lab.one, 8080);
    speak(&lab.two, 8080);
    let mut datapath = lab.datapath();
    let sticky = |address: &str, port, endpoints: &[&str]| {
        let frontend = frontend(place(address, Protocol::TCP, port), &[], endpoints);
        frontend.with_affinity(Duration::from_secs(10_800)).unwrap()
    };
    let v6 = ["[fd00:1::2]:8080", "[fd00:2::2]:8080"];
    let all = [sticky(V4, 80, &BOTH), sticky(V6, 80, &v6), sticky("0.0.0.0", 30080, &BOTH)];
    lab.sync(&mut datapath, Mode::Nftables, &all);
    let ask = |address: &str, port| Connection::open(&lab.inside, address, port).ask().unwrap();
    for (address, port) in [(V4, 80), (V6, 80), (V4, 30080)] {
        let seen: BTreeSet<String> = (0..20).map(|_| ask(address, port)).collect();
        assert_eq!(seen.len(), 1, "{address} {port}: {seen:?}");
    }
    // Another endpoint, or a restart of ours, changes nothing for those who have one.
    let had = ask(V4, 80);
    let more = ["10.244.0.2:8080", "10.244.1.2:8080", "10.244.0.99:8080", "10.244.1.99:8080"];
    lab.change(&mut datapath, &[sticky(V4, 80, &more)], &[]);
    assert!((0..20).all(|_| ask(V4, 80) == had));
    drop(datapath);
    let mut datapath = lab.datapath();
    lab.sync(&mut datapath, Mode::Nftables, &all);
    assert!((0..20).all(|_| ask(V4, 80) == had));
    // Without the endpoint it gets another, and keeps that when the old one is back.
    let (other, other_endpoint) =
        if had == "one" { ("two", "10.244.1.2:8080") } else { ("one", "10.244.0.2:8080") };
    lab.change(&mut datapath, &[sticky(V4, 80, &[other_endpoint])], &[]);
    assert_eq!(ask(V4, 80), other);
    lab.change(&mut datapath, &[sticky(V4, 80, &BOTH)], &[]);
    assert!((0..20).all(|_| ask(V4, 80) == other));
    // Without affinity it gets any, at once.
    lab.change(&mut datapath, &[web(V4, &[], &BOTH)], &[]);
    let seen: BTreeSet<String> = (0..40).map(|_| ask(V4, 80)).collect();
    assert_eq!(seen.len(), 2);
}

#[test]
fn affinity_ends_after_its_time() {
    let lab = Lab::new();
    speak(&lab.one, 8080);
    speak(&lab.two, 8080);
    let mut datapath = lab.datapath();
    let sticky = web(V4, &[], &BOTH).with_affinity(Duration::from_secs(1)).unwrap();
    lab.sync(&mut datapath, Mode::Nftables, &[sticky]);
    let mut seen = BTreeSet::new();
    portcullis_testkit::eventually("it had both", || {
        seen.insert(Connection::open(&lab.inside, V4, 80).ask());
        std::thread::sleep(Duration::from_millis(1100));
        seen.len() == 2
    });
}

#[test]
fn udp_flows_move_when_their_endpoint_is_gone() {
    let lab = Lab::new();
    speak(&lab.node, 5300);
    speak(&lab.one, 8080);
    speak(&lab.two, 8080);
    let mut datapath = lab.datapath();
    for (address, endpoints) in
        [(V4, BOTH), (V6, ["[fd00:1::2]:8080", "[fd00:2::2]:8080"]), ("0.0.0.0", BOTH)]
    {
        let at = place(address, Protocol::UDP, 5300);
        let asked = if address == "0.0.0.0" { V4 } else { address };
        let packets = Packets::to(&lab.inside, asked, 5300);
        // A flow from before there was a frontend.
        lab.sync(&mut datapath, Mode::Nftables, &[]);
        assert_eq!(packets.ask().as_deref(), Some("node"));
        lab.change(&mut datapath, &[frontend(at, &[], &endpoints[..1])], &[]);
        assert_eq!(packets.ask().as_deref(), Some("one"));
        // Another one comes, and its own is on its way out: this flow stays. Its endpoint goes: it moves.
        lab.change(&mut datapath, &[frontend(at, &[], &endpoints)], &[]);
        assert_eq!(packets.ask().as_deref(), Some("one"));
        let leaving = frontend(at, &[], &endpoints[1..]);
        let leaving = leaving.with_terminating([endpoints[0].parse().unwrap()]).unwrap();
        lab.change(&mut datapath, std::slice::from_ref(&leaving), &[]);
        assert_eq!(packets.ask().as_deref(), Some("one"));
        if address == V4 {
            lab.sync(&mut datapath, Mode::Nftables, &[frontend(at, &[], &endpoints[1..])]);
        } else {
            lab.change(&mut datapath, &[frontend(at, &[], &endpoints[1..])], &[]);
        }
        assert_eq!(packets.ask().as_deref(), Some("two"));
        // The endpoint changes while nobody looks.
        drop(datapath);
        datapath = lab.datapath();
        lab.sync(&mut datapath, Mode::Nftables, &[frontend(at, &[], &endpoints[..1])]);
        assert_eq!(packets.ask().as_deref(), Some("one"));
        lab.change(&mut datapath, &[], &[at]);
        assert_eq!(packets.ask().as_deref(), Some("node"));
    }
}

#[test]
fn a_frontend_at_an_address_comes_before_one_at_all_of_them() {
    let lab = Lab::new();
    speak(&lab.one, 8080);
    speak(&lab.two, 8080);
    let mut datapath = lab.datapath();
    let everywhere = frontend(place("0.0.0.0", Protocol::TCP, 80), &[], &["10.244.0.2:8080"]);
    let here = web(V4, &[], &["10.244.1.2:8080"]);
    lab.sync(&mut datapath, Mode::Nftables, &[everywhere, here.clone()]);
    let ask = |address| Connection::open(&lab.inside, address, 80).ask();
    assert_eq!(ask(V4).as_deref(), Some("two"));
    assert_eq!(ask("198.51.100.1").as_deref(), Some("one"));
    lab.change(&mut datapath, &[], &[here.place()]);
    assert_eq!(ask(V4).as_deref(), Some("one"));
    assert!(can_connect(&lab.inside, V4, Target::Icmp));
}
