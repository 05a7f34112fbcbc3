use std::io::Write;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use portcullis_core::Protocol;
use portcullis_host::datapath::{Datapath, Error, Interface, Mode, Synced};
use portcullis_testkit::Failure::TimedOut;
use portcullis_testkit::{Host, Target, can_connect, connect, link};

use crate::lab::{Lab, ROUTED, V4, V6, frontend, on, place, seen, web};
use crate::talk::{Connection, Packets, speak};

const TCP: Target = Target::Tcp(80);

/// What somebody else has for the same addresses: it forwards, and would let anybody in.
const FORWARDER: &str = "
table ip other {
    chain nat { type nat hook prerouting priority -100;
        ip daddr { 192.0.2.1, 203.0.113.100 } tcp dport 80 dnat to 10.244.0.2:8080
        tcp dport 30080 fib daddr type local dnat to 10.244.0.2:8080
    }
}
table ip6 other {
    chain nat { type nat hook prerouting priority -100;
        ip6 daddr 2001:db8:1::1 tcp dport 80 dnat to [fd00:1::2]:8080
    }
}";

#[test]
fn it_drops_what_ranges_exclude_and_forwards_nothing() {
    let lab = Lab::new();
    let _serving = lab.one.serve(8080);
    lab.node.nft(FORWARDER);
    let others = lab.ruleset();
    let mut datapath = lab.datapath();
    let ranges = ["192.0.2.0/24", "2001:db8:1::/64"];
    let node_port = place("0.0.0.0", Protocol::TCP, 30080);
    let frontends = [
        web(V4, &ranges, &["10.244.1.2:8080"]),
        web(V6, &ranges, &["[fd00:2::2]:8080"]),
        web(ROUTED, &[], &[]),
        frontend(node_port, &ranges, &[]),
    ];
    lab.sync(&mut datapath, Mode::Filter, &frontends);
    assert_eq!(datapath.in_force(), ["to-inside", "to-outside"]);
    assert_eq!(connect(&lab.inside, V4, TCP), Ok(seen("192.0.2.10")));
    assert_eq!(connect(&lab.inside, V6, TCP), Ok(seen("2001:db8:1::10")));
    assert_eq!(connect(&lab.inside, V4, Target::Tcp(30080)), Ok(seen("192.0.2.10")));
    assert_eq!(connect(&lab.outside, V4, TCP), Err(TimedOut));
    assert_eq!(connect(&lab.outside, V6, TCP), Err(TimedOut));
    assert_eq!(connect(&lab.outside, "198.51.100.1", Target::Tcp(30080)), Err(TimedOut));
    assert_eq!(connect(&lab.outside, ROUTED, TCP), Ok(seen("198.51.100.10")));
    // On interfaces that nobody named it holds as well.
    assert_eq!(connect(&lab.two, V4, TCP), Err(TimedOut));

    let mut counted = || on(&lab.node, || datapath.counters()).unwrap()[&frontends[0].place()];
    let before = counted();
    assert!(before.arrived.packets > before.dropped.packets && before.dropped.packets > 0, "{before:?}");
    // What is dropped before any table of the host sees it has arrived, too.
    assert_eq!(connect(&lab.outside, V4, TCP), Err(TimedOut));
    let after = counted();
    let dropped = after.dropped.packets - before.dropped.packets;
    assert!(dropped > 0 && after.arrived.packets - before.arrived.packets == dropped, "{before:?} {after:?}");

    lab.sync(&mut datapath, Mode::None, &frontends);
    assert_eq!(lab.ruleset(), others);
    assert!(can_connect(&lab.outside, V4, TCP));
}

#[test]
fn what_is_looked_at_twice_is_counted_once() {
    let lab = Lab::new();
    let _serving = lab.node.serve(53);
    let mut datapath = lab.datapath();
    let at = place(V4, Protocol::UDP, 53);
    lab.sync(&mut datapath, Mode::Filter, &[frontend(at, &["192.0.2.0/24"], &[])]);
    // One packet, which is never sent again.
    assert!(Packets::to(&lab.inside, V4, 53).ask().is_some());
    let counters = on(&lab.node, || datapath.counters()).unwrap();
    assert_eq!((counters[&at].arrived.packets, counters[&at].dropped.packets), (1, 0));
}

#[test]
fn who_is_excluded_loses_connections_that_others_forward() {
    let lab = Lab::new();
    speak(&lab.one, 8080);
    lab.node.nft(FORWARDER);
    let mut connection = Connection::open(&lab.outside, V4, 80);
    assert_eq!(connection.ask().as_deref(), Some("one"));
    let mut datapath = lab.datapath();
    lab.sync(&mut datapath, Mode::Filter, &[web(V4, &["192.0.2.0/24"], &[])]);
    assert!(connection.is_silent());
}

/// A bridge passes frames on where no table for packets sees them.
fn bridged() -> (Host, Host, Host) {
    let [node, client, server] = ["node", "client", "server"].map(Host::new);
    link(&client, &["198.18.0.10/24", "2001:db8:9::10/64"], &node, &[]);
    link(&server, &["198.18.0.2/24", "2001:db8:9::2/64"], &node, &[]);
    node.run("ip link add bridge type bridge");
    node.run("ip link set to-client master bridge");
    node.run("ip link set to-server master bridge");
    node.run("ip link set bridge up");
    // Where the kernel can show bridged packets to these tables all the same, it is not to.
    for variable in ["net/bridge/bridge-nf-call-iptables", "net/bridge/bridge-nf-call-ip6tables"] {
        if std::path::Path::new("/proc/sys").join(variable).exists() {
            node.set(variable, "0");
        }
    }
    (node, client, server)
}

fn interface(name: &str) -> Interface {
    Interface { name: name.into(), addresses: vec!["198.18.0.2".parse().unwrap()], is_kept: false }
}

#[test]
fn it_holds_where_no_table_for_packets_sees_them() {
    let (node, client, server) = bridged();
    let _serving = server.serve(80);
    let _also = server.serve(30080);
    let ranges = ["192.0.2.0/24"];
    let frontends = [
        web("198.18.0.2", &ranges, &[]),
        web("2001:db8:9::2", &ranges, &[]),
        frontend(place("0.0.0.0", Protocol::TCP, 30080), &ranges, &[]),
    ];
    let mut datapath = on(&node, Datapath::open).unwrap();
    let mut sync = |interfaces: &[Interface]| {
        on(&node, || datapath.sync(Mode::Filter, interfaces, frontends.clone())).unwrap();
        datapath.in_force().join(" ")
    };
    let reached = || {
        [("198.18.0.2", 80), ("2001:db8:9::2", 80), ("198.18.0.2", 30080)]
            .map(|(address, port)| can_connect(&client, address, Target::Tcp(port)))
    };
    assert_eq!(sync(&[]), "");
    assert_eq!(reached(), [true; 3]);
    assert_eq!(sync(&[interface("to-client")]), "to-client");
    assert_eq!(reached(), [false; 3]);
    assert_eq!(sync(&[interface("to-server")]), "to-server");
    assert_eq!(reached(), [true; 3]);
}

#[test]
fn interfaces_that_go_and_come_back_are_told() {
    let (node, client, server) = bridged();
    let _serving = server.serve(80);
    let frontends = [web("198.18.0.2", &["192.0.2.0/24"], &[])];
    let mut datapath = on(&node, Datapath::open).unwrap();
    let mut sync = || {
        let interfaces = ["to-client", "to-server", "to-nobody"].map(interface);
        on(&node, || datapath.sync(Mode::Filter, &interfaces, frontends.clone())).unwrap();
        datapath.in_force().join(" ")
    };
    assert_eq!(sync(), "to-client to-server");
    assert!(!can_connect(&client, "198.18.0.2", TCP));

    node.run("ip link delete to-client");
    assert_eq!(sync(), "to-server");
    link(&client, &["198.18.0.10/24", "2001:db8:9::10/64"], &node, &[]);
    node.run("ip link set to-client master bridge");
    assert_eq!(sync(), "to-client to-server");
    assert!(can_connect(&client, "198.18.0.2", Target::Icmp));
    assert!(!can_connect(&client, "198.18.0.2", TCP));
}

/// An interface was away, and nobody saw it: some kernels have nothing on the one that came in its place.
#[test]
fn an_interface_that_was_away_while_nobody_looked() {
    let (node, client, server) = bridged();
    let _serving = server.serve(80);
    let limited = |range: &str| web("198.18.0.2", &[range], &[]);
    let mut datapath = on(&node, Datapath::open).unwrap();
    let interfaces = ["to-client", "to-server"].map(interface);
    on(&node, || datapath.sync(Mode::Filter, &interfaces, [limited("192.0.2.0/24")])).unwrap();
    assert!(!can_connect(&client, "198.18.0.2", TCP));
    let away = || {
        node.run("ip link delete to-client");
        if node.run("nft list table inet portcullis").contains("ingress_to-client") {
            node.nft("delete chain inet portcullis ingress_to-client");
        }
        link(&client, &["198.18.0.10/24", "2001:db8:9::10/64"], &node, &[]);
        node.run("ip link set to-client master bridge");
        assert!(can_connect(&client, "198.18.0.2", TCP), "nothing filters there");
    };
    away();
    assert!(on(&node, || datapath.change([], [])).unwrap().rules);
    assert_eq!(datapath.in_force(), ["to-client", "to-server"]);
    assert!(can_connect(&client, "198.18.0.2", Target::Icmp));
    assert!(!can_connect(&client, "198.18.0.2", TCP));
    assert_eq!(on(&node, || datapath.change([], [])).unwrap(), Synced::default(), "once");
    // Together with what else is to be changed.
    away();
    on(&node, || datapath.change([limited("198.18.0.0/24")], [])).unwrap();
    assert!(can_connect(&client, "198.18.0.2", TCP));
    on(&node, || datapath.change([limited("192.0.2.0/24")], [])).unwrap();
    assert!(!can_connect(&client, "198.18.0.2", TCP));
    away();
    let at = limited("192.0.2.0/24").place();
    on(&node, || datapath.change([], [at])).unwrap();
    assert!(can_connect(&client, "198.18.0.2", TCP));
    assert_eq!(datapath.frontends().count(), 0);
}

/// Interfaces of pods come and go all the time: what is about others is not touched by it.
#[test]
fn an_interface_that_comes_or_goes_concerns_itself_alone() {
    let (node, client, server) = bridged();
    let _serving = server.serve(80);
    let mut datapath = on(&node, Datapath::open).unwrap();
    let limited = web("198.18.0.2", &["192.0.2.0/24"], &[]);
    on(&node, || datapath.sync(Mode::Filter, &[interface("to-server")], [limited])).unwrap();
    assert!(can_connect(&client, "198.18.0.2", TCP));
    // Rules have numbers, and those that are written again have others.
    let others = || node.run("nft -a list table inet portcullis").replace("# handle", "#");
    let of = |chain: &str| node.run(&format!("nft -a list chain inet portcullis {chain}"));
    let before = ["prerouting", "arriving", "admit_address4", "ingress_to-server"].map(of);
    let mut filter_on = |names: &[&str]| {
        let interfaces: Vec<Interface> = names.iter().map(|name| interface(name)).collect();
        let done = on(&node, || {
            datapath.filter_on(&interfaces);
            datapath.change([], [])
        });
        (done.unwrap(), datapath.in_force().join(" "))
    };
    let rules = Synced { rules: true, ..Synced::default() };
    assert_eq!(filter_on(&["to-client", "to-server"]), (rules.clone(), "to-client to-server".to_owned()));
    assert!(!can_connect(&client, "198.18.0.2", TCP));
    assert_eq!(["prerouting", "arriving", "admit_address4", "ingress_to-server"].map(of), before);
    assert_eq!(filter_on(&["to-client", "to-server"]).0, Synced::default(), "nothing new");
    // One that is not there yet, and one that is gone.
    let names = ["to-client", "to-server", "to-nobody"];
    assert_eq!(filter_on(&names), (Synced::default(), "to-client to-server".to_owned()));
    node.run("ip link delete to-client");
    assert_eq!(filter_on(&names), (rules.clone(), "to-server".to_owned()));
    assert!(!others().contains("to-client"), "{}", others());
    link(&client, &["198.18.0.10/24", "2001:db8:9::10/64"], &node, &[]);
    node.run("ip link set to-client master bridge");
    assert_eq!(filter_on(&names), (rules.clone(), "to-client to-server".to_owned()));
    assert!(!can_connect(&client, "198.18.0.2", TCP));
    assert_eq!(filter_on(&["to-server"]), (rules, "to-server".to_owned()));
    assert!(can_connect(&client, "198.18.0.2", TCP), "nothing filters there any more");
    assert_eq!(["prerouting", "arriving", "admit_address4", "ingress_to-server"].map(of), before);
}

/// One that goes between the look and the step does not keep the step from being done.
#[test]
fn interfaces_may_go_at_any_moment() {
    let (node, client, server) = bridged();
    let _serving = server.serve(80);
    let is_over = AtomicBool::new(false);
    thread::scope(|threads| {
        threads.spawn(|| {
            // One process for all: it is to be fast.
            let start = || Command::new("ip").args(["-batch", "-"]).stdin(Stdio::piped()).spawn();
            let mut ip = on(&node, start).unwrap();
            let mut told = ip.stdin.take().unwrap();
            for number in (0..8).cycle() {
                if is_over.load(Ordering::Relaxed) {
                    break;
                }
                writeln!(told, "link add pod{number} type veth peer name peer{number}").unwrap();
                writeln!(told, "link delete pod{number}").unwrap();
                told.flush().unwrap();
            }
            drop(told);
            assert!(ip.wait().unwrap().success());
        });
        let mut datapath = on(&node, Datapath::open).unwrap();
        let limited = web("198.18.0.2", &["192.0.2.0/24"], &[]);
        let pods: Vec<String> =
            (0..8).flat_map(|number| [format!("pod{number}"), format!("peer{number}")]).collect();
        let names = || ["to-client", "to-server"].into_iter().chain(pods.iter().map(String::as_str));
        let interfaces: Vec<Interface> = names().map(interface).collect();
        let mut tried = || -> Result<(), Error> {
            on(&node, || {
                datapath.sync(Mode::Filter, &interfaces, [limited.clone()])?;
                for _ in 0..300 {
                    datapath.change([], [])?;
                }
                for _ in 0..50 {
                    datapath.sync(Mode::Filter, &interfaces, [limited.clone()])?;
                }
                Ok(())
            })
        };
        let done = tried();
        is_over.store(true, Ordering::Relaxed);
        done.unwrap();
        assert!(!can_connect(&client, "198.18.0.2", TCP));
    });
}

#[test]
fn an_interface_may_have_any_name() {
    let (node, client, server) = bridged();
    let _serving = server.serve(80);
    node.run("ip link set to-client down");
    node.run("ip link set to-client name br-ex.10@{#$");
    node.run("ip link set br-ex.10@{#$ up");
    let mut datapath = on(&node, Datapath::open).unwrap();
    let frontends = [web("198.18.0.2", &["192.0.2.0/24"], &[])];
    let interfaces = ["br-ex.10@{#$", "\"; flush ruleset"].map(interface);
    on(&node, || datapath.sync(Mode::Filter, &interfaces, frontends)).unwrap();
    assert_eq!(datapath.in_force(), ["br-ex.10@{#$"]);
    assert!(!can_connect(&client, "198.18.0.2", TCP));
}

#[test]
fn modes_follow_each_other() {
    let lab = Lab::new();
    let _serving = lab.one.serve(8080);
    let before = lab.ruleset();
    let mut datapath = lab.datapath();
    let frontends = [web(V4, &["192.0.2.0/24"], &["10.244.0.2:8080"])];
    for mode in [Mode::Nftables, Mode::Filter, Mode::Nftables, Mode::None, Mode::Filter, Mode::None] {
        lab.sync(&mut datapath, mode, &frontends);
        assert_eq!(can_connect(&lab.inside, V4, TCP), mode == Mode::Nftables, "{mode:?}");
        assert!(!can_connect(&lab.outside, V4, TCP), "{mode:?}");
        let rules = lab.ruleset();
        assert_eq!(rules.contains("dnat"), mode == Mode::Nftables, "{mode:?}: {rules}");
        assert_eq!(rules.contains("hook ingress"), mode == Mode::Filter, "{mode:?}: {rules}");
        assert_eq!(rules == before, mode == Mode::None, "{mode:?}: {rules}");
    }
}

/// Where others forward, flows are theirs: a start of ours does not have them drawn anew.
#[test]
fn flows_of_others_stay_where_they_are() {
    let lab = Lab::new();
    speak(&lab.one, 8080);
    speak(&lab.two, 8080);
    lab.node.nft(
        "table ip other {
            chain nat { type nat hook prerouting priority -100;
                udp dport 53 dnat to numgen random mod 2 map { 0 : 10.244.0.2, 1 : 10.244.1.2 } : 8080
            }
        }",
    );
    let frontends = [frontend(place(V4, Protocol::UDP, 53), &["192.0.2.0/24"], &[])];
    let flows: Vec<(Packets, String)> = (0..8)
        .map(|_| Packets::to(&lab.inside, V4, 53))
        .map(|flow| {
            let who = flow.ask().unwrap();
            (flow, who)
        })
        .collect();
    for _ in 0..3 {
        lab.sync(&mut lab.datapath(), Mode::Filter, &frontends);
        // All eight drawn anew and the same: once in 256.
        for (flow, who) in &flows {
            assert_eq!(flow.ask().as_ref(), Some(who));
        }
    }
}
