use portcullis_core::{Owner, Protocol};
use portcullis_host::datapath::{ClientAddress, Count, Counters, Datapath, Frontend, Mode};
use portcullis_testkit::Failure::{Refused, TimedOut};
use portcullis_testkit::{Target, can_connect, connect};

use crate::lab::{Lab, V4, V6, admission, frontend, on, place, seen, sorted, web};
use crate::talk::{Connection, Packets, speak};

const TCP: Target = Target::Tcp(80);
const UDP: Target = Target::Udp(80);

#[test]
fn only_who_is_in_range_connects() {
    let lab = Lab::new();
    let _serving = lab.one.serve(8080);
    let mut datapath = lab.datapath();
    let ranges = ["192.0.2.0/24", "2001:db8:1::/64"];
    let udp = |address| place(address, Protocol::UDP, 80);
    let frontends = [
        web(V4, &ranges, &["10.244.0.2:8080"]),
        web(V6, &ranges, &["[fd00:1::2]:8080"]),
        frontend(udp(V4), &ranges, &["10.244.0.2:8080"]),
        frontend(udp(V6), &ranges, &["[fd00:1::2]:8080"]),
    ]
    .map(|frontend| frontend.with_client_address(ClientAddress::Kept));
    lab.sync(&mut datapath, Mode::Nftables, &frontends);
    for target in [TCP, UDP] {
        assert_eq!(connect(&lab.inside, V4, target), Ok(seen("192.0.2.10")));
        assert_eq!(connect(&lab.inside, V6, target), Ok(seen("2001:db8:1::10")));
        assert_eq!(connect(&lab.outside, V4, target), Err(TimedOut));
        assert_eq!(connect(&lab.outside, V6, target), Err(TimedOut));
    }

    let moved = [
        web(V4, &["198.51.100.0/24"], &["10.244.0.2:8080"]),
        web(V6, &["2001:db8:2::10/128"], &["[fd00:1::2]:8080"]),
    ];
    lab.change(&mut datapath, &moved, &[]);
    assert!(can_connect(&lab.outside, V4, TCP));
    assert!(can_connect(&lab.outside, V6, TCP));
    assert_eq!(connect(&lab.inside, V4, TCP), Err(TimedOut));
    assert_eq!(connect(&lab.inside, V6, TCP), Err(TimedOut));
}

#[test]
fn a_family_without_a_range_is_closed_and_no_list_is_open() {
    let lab = Lab::new();
    let _serving = lab.one.serve(8080);
    let mut datapath = lab.datapath();
    let v4_only = ["0.0.0.0/0"];
    let frontends = [web(V4, &v4_only, &["10.244.0.2:8080"]), web(V6, &v4_only, &["[fd00:1::2]:8080"])];
    lab.sync(&mut datapath, Mode::Nftables, &frontends);
    for client in [&lab.inside, &lab.outside] {
        assert!(can_connect(client, V4, TCP));
        assert_eq!(connect(client, V6, TCP), Err(TimedOut));
    }
    lab.change(&mut datapath, &[web(V6, &[], &["[fd00:1::2]:8080"])], &[]);
    assert!(can_connect(&lab.outside, V6, TCP));
}

#[test]
fn who_is_excluded_loses_established_connections_too() {
    let lab = Lab::new();
    speak(&lab.one, 8080);
    let mut datapath = lab.datapath();
    let open = web(V4, &[], &["10.244.0.2:8080"]);
    lab.sync(&mut datapath, Mode::Nftables, std::slice::from_ref(&open));
    let mut inside = Connection::open(&lab.inside, V4, 80);
    let mut outside = Connection::open(&lab.outside, V4, 80);
    assert_eq!((inside.ask().as_deref(), outside.ask().as_deref()), (Some("one"), Some("one")));

    lab.change(&mut datapath, &[web(V4, &["192.0.2.0/24"], &["10.244.0.2:8080"])], &[]);
    assert_eq!((inside.ask().as_deref(), outside.is_silent()), (Some("one"), true));
    lab.change(&mut datapath, &[open], &[]);
    assert_eq!(inside.ask().as_deref(), Some("one"));
}

#[test]
fn ranges_hold_for_node_ports() {
    let lab = Lab::new();
    let _serving = lab.one.serve(8080);
    let mut datapath = lab.datapath();
    let node_port = |address, ranges: &[&str], endpoint| {
        frontend(place(address, Protocol::TCP, 30080), ranges, &[endpoint])
    };
    let frontends = [
        node_port("0.0.0.0", &["192.0.2.0/24"], "10.244.0.2:8080"),
        node_port("::", &["2001:db8:1::/48"], "[fd00:1::2]:8080"),
    ];
    lab.sync(&mut datapath, Mode::Nftables, &frontends);
    let port = Target::Tcp(30080);
    for address in [V4, "198.51.100.1", V6, "2001:db8:2::1"] {
        assert!(can_connect(&lab.inside, address, port), "{address}");
        assert_eq!(connect(&lab.outside, address, port), Err(TimedOut), "{address}");
    }
    // The same port of another machine is not the node's.
    let _other = lab.one.serve(30080);
    let before = on(&lab.node, || datapath.counters()).unwrap();
    assert!(can_connect(&lab.outside, "10.244.0.2", port));
    assert_eq!(on(&lab.node, || datapath.counters()).unwrap(), before);
}

/// Where a machine is looked after, nobody is served, and who is kept out elsewhere is kept out.
#[test]
fn node_ports_are_not_served_where_the_node_is_looked_after() {
    let lab = Lab::new();
    let _serving = lab.one.serve(8080);
    let mut datapath = lab.datapath();
    let node_port = |address, ranges: &[&str], endpoint| {
        frontend(place(address, Protocol::TCP, 30080), ranges, &[endpoint])
    };
    let frontends = [
        node_port("0.0.0.0", &["192.0.2.0/24"], "10.244.0.2:8080"),
        node_port("::", &["2001:db8:1::/48"], "[fd00:1::2]:8080"),
    ];
    let mut interfaces = Lab::interfaces();
    interfaces[1].is_kept = true;
    on(&lab.node, || datapath.sync(Mode::Nftables, &interfaces, frontends.clone())).unwrap();
    let port = Target::Tcp(30080);
    for (address, kept) in [(V4, "198.51.100.1"), (V6, "2001:db8:2::1")] {
        assert!(can_connect(&lab.inside, address, port), "{address}");
        assert_eq!(connect(&lab.inside, kept, port), Err(Refused), "{kept}: nobody listens");
        assert_eq!(connect(&lab.outside, kept, port), Err(TimedOut), "{kept}");
    }
    // Its addresses change, and then it is like others.
    interfaces[1].addresses.pop();
    on(&lab.node, || datapath.filter_on(&interfaces));
    lab.change(&mut datapath, &[], &[]);
    assert!(can_connect(&lab.inside, "2001:db8:2::1", port));
    assert_eq!(connect(&lab.inside, "198.51.100.1", port), Err(Refused));
    lab.sync(&mut datapath, Mode::Nftables, &frontends);
    assert!(can_connect(&lab.inside, "198.51.100.1", port));
    // Whoever reads what is there finds the same.
    let before = lab.ruleset();
    let mut again = lab.datapath();
    lab.sync(&mut again, Mode::Nftables, &frontends);
    assert_eq!(sorted(&lab.ruleset()), sorted(&before));
}

#[test]
fn ranges_hold_for_the_node_itself() {
    let lab = Lab::new();
    let _serving = lab.one.serve(8080);
    let mut datapath = lab.datapath();
    lab.sync(&mut datapath, Mode::Nftables, &[web(V4, &["192.0.2.0/24"], &["10.244.0.2:8080"])]);
    // A connection to an address of the node itself is from that address.
    assert!(can_connect(&lab.node, V4, TCP));
    lab.change(&mut datapath, &[web(V4, &["198.51.100.0/24"], &["10.244.0.2:8080"])], &[]);
    assert_eq!(connect(&lab.node, V4, TCP), Err(TimedOut));
}

#[test]
fn an_answer_that_arrives_at_the_port_of_a_frontend_is_not_the_frontends() {
    let lab = Lab::new();
    let _serving = lab.outside.serve(7000);
    let mut datapath = lab.datapath();
    let at_ephemeral_port =
        frontend(place("198.51.100.1", Protocol::UDP, 40000), &["192.0.2.0/24"], &["10.244.0.2:8080"]);
    lab.sync(&mut datapath, Mode::Nftables, &[at_ephemeral_port]);
    let answer = on(&lab.node, || {
        let socket = std::net::UdpSocket::bind("198.51.100.1:40000").unwrap();
        socket.connect("198.51.100.10:7000").unwrap();
        socket.set_read_timeout(Some(std::time::Duration::from_secs(30))).unwrap();
        socket.send(b"?").unwrap();
        socket.recv(&mut [0; 64])
    });
    assert!(answer.is_ok());
}

#[test]
fn what_arrives_and_what_is_dropped_is_counted() {
    let lab = Lab::new();
    let _serving = lab.one.serve(8080);
    let mut datapath = lab.datapath();
    let udp = place(V4, Protocol::UDP, 53);
    let frontends = [web(V6, &[], &[]), frontend(udp, &["192.0.2.0/24"], &["10.244.0.2:8080"])];
    lab.sync(&mut datapath, Mode::Nftables, &frontends);
    // One packet, which is never sent again.
    assert!(Packets::to(&lab.inside, V4, 53).ask().is_some());
    let counters = on(&lab.node, || datapath.counters()).unwrap();
    assert_eq!(counters[&udp].arrived, Count { packets: 1, bytes: 29 });
    assert_eq!(counters[&udp].dropped, Count::default());
    assert_eq!(counters[&frontends[0].place()], Counters::default());

    assert!(!can_connect(&lab.outside, V4, Target::Udp(53)));
    // Counting goes on through changes, and through a restart.
    lab.change(&mut datapath, &[frontend(udp, &["192.0.2.0/25"], &["10.244.0.2:8080"])], &[]);
    drop(datapath);
    let mut datapath = lab.datapath();
    lab.sync(&mut datapath, Mode::Nftables, &[frontend(udp, &["192.0.2.0/24"], &["10.244.0.2:8080"])]);
    let counters = on(&lab.node, || datapath.counters()).unwrap();
    assert_eq!(counters.len(), 1);
    let Counters { arrived, dropped } = counters[&udp];
    assert!(dropped.packets >= 1 && dropped.bytes == 29 * dropped.packets, "{dropped:?}");
    assert_eq!(arrived, Count { packets: 1 + dropped.packets, bytes: 29 + dropped.bytes });
}

/// What came to one is not what came to the next one at the same place.
#[test]
fn what_is_counted_is_the_owner_s() {
    let lab = Lab::new();
    let _serving = lab.one.serve(8080);
    let udp = place(V4, Protocol::UDP, 53);
    let of = |name: &str| {
        let owner = Owner::new("lab", "Service", Some("shop".into()), name).unwrap();
        let endpoints = ["10.244.0.2:8080".parse().unwrap()];
        Frontend::new(udp, owner, admission(&["192.0.2.0/24"]), endpoints).unwrap()
    };
    let mut datapath = lab.datapath();
    lab.sync(&mut datapath, Mode::Nftables, &[of("first")]);
    let counted = |datapath: &mut Datapath| on(&lab.node, || datapath.counters()).unwrap()[&udp];
    // One packet, which is never sent again.
    let gets_in = || Packets::to(&lab.inside, V4, 53).ask().is_some();
    assert!(gets_in() && !can_connect(&lab.outside, V4, Target::Udp(53)));
    let Counters { arrived, dropped } = counted(&mut datapath);
    assert!(dropped.packets > 0 && arrived.packets == dropped.packets + 1);
    lab.change(&mut datapath, &[of("second")], &[]);
    assert_eq!(counted(&mut datapath), Counters::default());
    assert!(gets_in());
    assert_eq!(counted(&mut datapath).arrived.packets, 1);
    // Also where it passed while nobody looked.
    let mut datapath = lab.datapath();
    lab.sync(&mut datapath, Mode::Nftables, &[of("third")]);
    assert_eq!(counted(&mut datapath), Counters::default());
}
