use std::time::Duration;

use portcullis_core::Protocol;
use portcullis_host::datapath::{ClientAddress, Frontend, Mode, Synced};
use portcullis_testkit::{Target, can_connect};

use crate::lab::{Lab, V4, V6, frontend, on, place, sorted, web};
use crate::talk::{Connection, speak};

const TCP: Target = Target::Tcp(80);

/// Something of every kind.
fn variety() -> Vec<Frontend> {
    let sticky = frontend(place(V4, Protocol::TCP, 81), &["10.0.0.0/8", "192.0.2.7/32"], &["10.244.0.2:1"]);
    let sticky_v6 =
        frontend(place(V6, Protocol::SCTP, 81), &["2001:db8::/33"], &["[fd00:1::2]:1", "[fd00:2::2]:2"]);
    let hour = Duration::from_secs(3600);
    vec![
        web(V4, &["192.0.2.0/24"], &["10.244.0.2:8080", "10.244.1.2:8080"]),
        web(V6, &[], &["[fd00:1::2]:8080"]).with_client_address(ClientAddress::Kept),
        sticky.with_affinity(hour).unwrap(),
        sticky_v6.with_affinity(hour).unwrap().with_client_address(ClientAddress::Kept),
        frontend(place("0.0.0.0", Protocol::UDP, 30053), &[], &["10.244.0.2:53"]),
        frontend(place("::", Protocol::UDP, 30053), &["10.0.0.0/8"], &[]),
    ]
}

#[test]
fn a_restart_changes_nothing_and_disturbs_nobody() {
    for mode in [Mode::Nftables, Mode::Filter] {
        let lab = Lab::new();
        let mut datapath = lab.datapath();
        lab.sync(&mut datapath, mode, &variety());
        let rules = lab.ruleset();
        // People see what it does.
        assert!(!rules.contains("invalid") && !rules.contains("unknown"), "{rules}");
        drop(datapath);
        let mut datapath = lab.datapath();
        let synced = lab.sync(&mut datapath, mode, &variety());
        assert_eq!(synced, Synced { frontends: 0, elements: 0, rules: true });
        assert_eq!(lab.ruleset(), rules);
        // Now it knows, and does not even load rules.
        assert_eq!(lab.sync(&mut datapath, mode, &variety()), Synced::default());
    }
}

/// Who left while nobody looked is kept out for as long as is wanted.
#[test]
fn what_is_there_may_stay_as_a_filter() {
    for before in [Mode::Filter, Mode::Nftables] {
        let lab = Lab::new();
        lab.sync(&mut lab.datapath(), before, &variety());
        let expected = {
            let lab = Lab::new();
            lab.sync(&mut lab.datapath(), Mode::Filter, &variety());
            lab.ruleset()
        };
        let mut datapath = lab.datapath();
        on(&lab.node, || datapath.recall("lab")).unwrap();
        let found: Vec<Frontend> = datapath.frontends().cloned().collect();
        assert_eq!(found.len(), variety().len());
        let synced = lab.sync(&mut datapath, Mode::Filter, &found);
        if before == Mode::Filter {
            assert_eq!(synced, Synced { frontends: 0, elements: 0, rules: true });
        }
        assert_eq!(sorted(&lab.ruleset()), sorted(&expected), "{before:?}");
        // What is wanted is known from then on.
        lab.sync(&mut datapath, Mode::Filter, &found[..1]);
        on(&lab.node, || datapath.recall("lab")).unwrap();
        assert_eq!(datapath.frontends().count(), 1);
    }
    let lab = Lab::new();
    lab.node.nft("table inet portcullis { set frontend4 { type ipv4_addr; elements = { 192.0.2.1 }; }; }");
    let mut datapath = lab.datapath();
    on(&lab.node, || datapath.recall("lab")).unwrap();
    assert_eq!(datapath.frontends().count(), 0, "what another version left is replaced");
}

#[test]
fn established_connections_survive_restarts_and_changes_of_others() {
    let lab = Lab::new();
    speak(&lab.one, 8080);
    let mut datapath = lab.datapath();
    let this = web(V4, &["192.0.2.0/24"], &["10.244.0.2:8080"]);
    lab.sync(&mut datapath, Mode::Nftables, std::slice::from_ref(&this));
    let mut connection = Connection::open(&lab.inside, V4, 80);
    assert_eq!(connection.ask().as_deref(), Some("one"));

    lab.change(&mut datapath, &variety()[1..], &[]);
    assert_eq!(connection.ask().as_deref(), Some("one"));
    drop(datapath);
    assert_eq!(connection.ask().as_deref(), Some("one"));
    assert!(can_connect(&lab.outside, V4, Target::Icmp));
    assert!(!can_connect(&lab.outside, V4, TCP));
    let mut datapath = lab.datapath();
    lab.sync(&mut datapath, Mode::Nftables, &[this]);
    assert_eq!(connection.ask().as_deref(), Some("one"));
}

#[test]
fn what_changed_while_nobody_looked_is_made_good() {
    let lab = Lab::new();
    let _serving = lab.one.serve(8080);
    let mut datapath = lab.datapath();
    lab.sync(&mut datapath, Mode::Nftables, &variety());
    drop(datapath);
    let mut datapath = lab.datapath();
    let other = [web(V4, &["198.51.100.0/25"], &["10.244.0.2:8080"])];
    lab.sync(&mut datapath, Mode::Nftables, &other);
    assert!(can_connect(&lab.outside, V4, TCP));
    assert!(!can_connect(&lab.inside, V4, TCP));
    // It is as if there had never been anything else.
    let fresh = Lab::new();
    let mut of_fresh = fresh.datapath();
    fresh.sync(&mut of_fresh, Mode::Nftables, &other);
    assert_eq!(sorted(&lab.ruleset()), sorted(&fresh.ruleset()));
}

#[test]
fn what_another_version_left_is_replaced_in_one_step() {
    let expected = {
        let lab = Lab::new();
        lab.sync(&mut lab.datapath(), Mode::Nftables, &variety());
        lab.ruleset()
    };
    for left in [
        // A set of ours with another key.
        "table inet portcullis { set frontend4 { type ipv4_addr; elements = { 192.0.2.1 }; }; }",
        // Elements that cannot be read.
        "table inet portcullis { set frontend4 { type ipv4_addr . inet_proto . inet_service; \
         elements = { 192.0.2.1 . icmp . 80 }; }; }",
        // Chains in the way.
        "table inet portcullis { chain prerouting { type filter hook input priority 0; drop; }; }",
    ] {
        let lab = Lab::new();
        lab.node.nft(left);
        lab.sync(&mut lab.datapath(), Mode::Nftables, &variety());
        // Written by nft from text here and by netlink there: both are the same.
        assert_eq!(sorted(&lab.ruleset()), sorted(&expected), "{left}");
    }
    let lab = Lab::new();
    lab.node.nft("table inet portcullis { set of_yore { type ipv4_addr; }; chain of_yore { ip saddr @of_yore drop; }; }");
    lab.sync(&mut lab.datapath(), Mode::Nftables, &variety());
    assert_eq!(sorted(&lab.ruleset()), sorted(&expected));
}

/// What packets are looked at by is missing: were it made good after the rules, everybody would get in between the two.
#[test]
fn a_table_that_looks_at_nobody_is_replaced_in_one_step() {
    let lab = Lab::new();
    let made = lab.sync(&mut lab.datapath(), Mode::Nftables, &variety());
    let expected = lab.ruleset();
    lab.node.nft("flush set inet portcullis arrived4");
    let mut datapath = lab.datapath();
    assert_eq!(lab.sync(&mut datapath, Mode::Nftables, &variety()), made, "all of it is made anew");
    assert_eq!(sorted(&lab.ruleset()), sorted(&expected));
    assert!(!can_connect(&lab.outside, V4, TCP));
}

#[test]
fn others_rules_stay_as_they_are() {
    let lab = Lab::new();
    lab.node.nft(
        "table inet kube-proxy { set portcullis { type ipv4_addr; elements = { 192.0.2.9 }; }
             chain input { type filter hook input priority 0; ip saddr @portcullis counter drop; }; }
         table netdev portcullis { chain frontends { tcp dport 80 accept; }; }
         table ip portcullis { chain prerouting { type nat hook prerouting priority -100; }; }",
    );
    let others = |lab: &Lab| {
        let rules = lab.ruleset();
        let blocks = rules.split_inclusive("\n}\n").filter(|table| !table.contains("table inet portcullis"));
        blocks.collect::<String>()
    };
    let before = others(&lab);
    assert!(before.contains("kube-proxy") && before.contains("netdev portcullis"));
    let mut datapath = lab.datapath();
    for mode in [Mode::Nftables, Mode::Filter, Mode::Nftables] {
        lab.sync(&mut datapath, mode, &variety());
        lab.change(&mut datapath, &[web(V4, &[], &[])], &[variety()[1].place()]);
        assert_eq!(others(&lab), before);
    }
    lab.sync(&mut datapath, Mode::None, &[]);
    assert_eq!(lab.ruleset(), before);
}
