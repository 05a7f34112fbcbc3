//! Who gets which address of a node.

#![allow(clippy::unwrap_used, reason = "a test that fails says where")]

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use portcullis_core::{Family, Protocol};
use portcullis_host::claims::{Claim, Claims, Here, Listening, Name, Policy, Port, Refusal, Share};
use portcullis_host::interfaces::{Entry, Interface, Selection};
use proptest::prelude::*;

const LAN: &str = "192.0.2.7";
const WAN: &str = "198.51.100.7";
const LAN6: &str = "2001:db8::7";

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn tcp(number: u16) -> Port {
    Port { protocol: Protocol::TCP, number }
}

fn udp(number: u16) -> Port {
    Port { protocol: Protocol::UDP, number }
}

fn name(text: &str) -> Name {
    Name::from(text)
}

fn here(listening: &[Listening]) -> Here {
    let interface = |name: &str, addresses: &[&str]| Interface {
        name: name.to_owned(),
        master: None,
        is_loopback: name == "lo",
        is_veth: false,
        addresses: addresses.iter().map(|text| ip(text)).collect(),
    };
    let all = [
        interface("lo", &["127.0.0.1", "10.44.0.0"]),
        interface("lan", &[LAN, LAN6]),
        interface("wan", &[WAN]),
        interface("admin", &["10.0.0.7"]),
    ];
    Here {
        interfaces: (1..).zip(all).collect(),
        listening: listening.iter().copied().collect(),
        // An API server that answers here, and one that only this host reaches.
        also: BTreeSet::from([ip("10.44.0.0"), ip("127.0.0.1"), ip("203.0.113.1")]),
    }
}

fn policy() -> Policy {
    let selection = Selection { management: vec!["admin".to_owned()], ..Selection::usual() };
    Policy { selection, reserved: BTreeSet::from([22, 6443]) }
}

fn claim(created: i64, ports: &[Port], at: &[&str]) -> Claim {
    Claim {
        created,
        ports: ports.iter().copied().collect(),
        at: (!at.is_empty()).then(|| at.iter().map(|text| Entry::from(*text)).collect()),
        families: BTreeSet::from([Family::V4]),
        held: Vec::new(),
        node_ports: BTreeSet::new(),
        external: BTreeSet::new(),
    }
}

fn claims() -> Claims {
    Claims::new(policy(), here(&[]))
}

fn addresses(claims: &Claims, who: &str) -> Vec<String> {
    claims.share(who).unwrap().addresses.iter().map(ToString::to_string).collect()
}

#[test]
fn what_one_gets_alone() {
    for (at, families, expected) in [
        (&[][..], &[Family::V4][..], &["10.44.0.0", LAN, WAN][..]),
        (&[], &[Family::V4, Family::V6], &["10.44.0.0", LAN, WAN, LAN6]),
        (&["lan"], &[Family::V4, Family::V6], &[LAN, LAN6]),
        (&["lan", "192.0.2.7"], &[Family::V6], &[LAN6]),
        (&[WAN], &[Family::V4], &[WAN]),
        // Kept for management, or not there.
        (&["admin", "10.0.0.7", "dmz"], &[Family::V4], &[]),
    ] {
        let mut claims = claims();
        let asked = Claim { families: families.iter().copied().collect(), ..claim(1, &[tcp(80)], at) };
        claims.set(&name("a/a"), Some(asked));
        assert_eq!(addresses(&claims, "a/a"), expected, "{at:?}");
    }
    let mut claims = claims();
    claims.set(&name("a/a"), Some(Claim { at: Some(Vec::new()), ..claim(1, &[tcp(80)], &[]) }));
    assert_eq!(addresses(&claims, "a/a"), Vec::<String>::new(), "nothing named is nothing asked for");
}

#[test]
fn ports_are_shared_by_protocol_and_number() {
    let mut claims = claims();
    claims.set(&name("a/dns-tcp"), Some(claim(1, &[tcp(53)], &["lan"])));
    claims.set(&name("b/dns-udp"), Some(claim(2, &[udp(53)], &["lan"])));
    claims.set(&name("c/web"), Some(claim(3, &[tcp(80)], &["lan"])));
    for who in ["a/dns-tcp", "b/dns-udp", "c/web"] {
        assert_eq!(addresses(&claims, who), [LAN], "{who}");
    }
}

#[test]
fn a_node_port_is_nobody_elses() {
    let mut claims = claims();
    let node_port =
        |number| Claim { node_ports: BTreeSet::from([tcp(number)]), ..claim(1, &[], &["nowhere"]) };
    let web = || Some(claim(2, &[tcp(30080)], &["lan"]));
    claims.set(&name("b/other"), Some(node_port(30080)));
    assert_eq!(claims.set(&name("a/web"), web()), BTreeSet::from([name("a/web")]));
    let refused = Refusal::NodePort(tcp(30080), name("b/other"));
    assert_eq!(claims.share("a/web").unwrap().refused, BTreeMap::from([(ip(LAN), refused)]));
    // It gets another one, and the port is free.
    assert_eq!(claims.set(&name("b/other"), Some(node_port(30081))), BTreeSet::from([name("a/web")]));
    assert_eq!(addresses(&claims, "a/web"), [LAN]);
    // Who has it at an address keeps it there; who only asks for it does not.
    assert_eq!(claims.set(&name("b/other"), Some(node_port(30080))), BTreeSet::from([name("a/web")]));
    assert_eq!(addresses(&claims, "a/web"), Vec::<String>::new());
    claims.set(&name("a/web"), web().map(|claim| Claim { held: vec![(ip(LAN), None)], ..claim }));
    assert_eq!(addresses(&claims, "a/web"), [LAN]);
    // One's own is no reason.
    let own = Claim { node_ports: BTreeSet::from([tcp(30090)]), ..claim(2, &[tcp(30090)], &["lan"]) };
    claims.set(&name("c/own"), Some(own));
    assert_eq!(addresses(&claims, "c/own"), [LAN]);
}

#[test]
fn what_others_forward_to_one_is_nobody_elses() {
    let mut claims = claims();
    let external =
        |port| Claim { external: BTreeSet::from([(ip(LAN), tcp(port))]), ..claim(2, &[tcp(port)], &["wan"]) };
    claims.set(&name("b/other"), Some(external(80)));
    assert_eq!(addresses(&claims, "b/other"), [WAN]);
    // Also of one that is older.
    let web = || claim(1, &[tcp(80)], &["lan"]);
    claims.set(&name("a/web"), Some(web()));
    let refused = Refusal::External(tcp(80), name("b/other"));
    assert_eq!(claims.share("a/web").unwrap().refused, BTreeMap::from([(ip(LAN), refused)]));
    assert_eq!(claims.set(&name("b/other"), Some(external(81))), BTreeSet::from([name("a/web")]));
    assert_eq!(addresses(&claims, "a/web"), [LAN]);
    // Who has it keeps it.
    claims.set(&name("a/web"), Some(Claim { held: vec![(ip(LAN), None)], ..web() }));
    claims.set(&name("b/other"), Some(external(80)));
    assert_eq!(addresses(&claims, "a/web"), [LAN]);
    // One's own is no reason, and gives no right to what the node needs.
    let own = |port| Claim { at: None, ..external(port) };
    claims.set(&name("a/web"), None);
    claims.set(&name("b/other"), Some(own(80)));
    assert!(addresses(&claims, "b/other").contains(&LAN.to_owned()));
    claims.move_to(here(&[Listening { port: tcp(9090), address: None }]));
    claims.set(&name("b/other"), Some(own(9090)));
    assert_eq!(claims.share("b/other").unwrap().refused[&ip(LAN)], Refusal::Listens(tcp(9090)));
}

#[test]
fn the_oldest_wins_and_the_next_takes_over() {
    let mut claims = claims();
    let changed = claims.set(&name("b/young"), Some(claim(2, &[tcp(80), tcp(443)], &["lan", "wan"])));
    assert_eq!(changed, BTreeSet::from([name("b/young")]));
    let changed = claims.set(&name("c/old"), Some(claim(1, &[tcp(443)], &["lan"])));
    assert_eq!(changed, BTreeSet::from([name("b/young"), name("c/old")]));
    assert_eq!(addresses(&claims, "c/old"), [LAN]);
    assert_eq!(addresses(&claims, "b/young"), [WAN], "all of its ports, or none of them");
    assert_eq!(
        claims.share("b/young").unwrap().refused,
        BTreeMap::from([(ip(LAN), Refusal::Taken(tcp(443), name("c/old")))])
    );
    // What it cannot have it does not keep from others.
    claims.set(&name("d/last"), Some(claim(3, &[tcp(80)], &["lan"])));
    assert_eq!(addresses(&claims, "d/last"), [LAN]);
    // Of the same age, the name decides.
    claims.set(&name("a/twin"), Some(claim(1, &[tcp(443)], &["lan"])));
    assert_eq!(addresses(&claims, "a/twin"), [LAN]);
    let changed = claims.set(&name("a/twin"), None);
    // For the third, another one is in the way now.
    assert_eq!(changed, BTreeSet::from([name("a/twin"), name("b/young"), name("c/old")]));
    assert_eq!(addresses(&claims, "c/old"), [LAN]);
}

#[test]
fn who_has_an_address_keeps_it() {
    let mut claims = claims();
    let held = Claim { held: vec![(ip(LAN), None)], ..claim(2, &[tcp(80)], &[]) };
    claims.set(&name("b/young"), Some(held));
    claims.set(&name("a/old"), Some(claim(1, &[tcp(80)], &["lan", "wan"])));
    assert_eq!(addresses(&claims, "b/young"), ["10.44.0.0", LAN], "it has it by now");
    assert_eq!(addresses(&claims, "a/old"), [WAN], "and nobody has this");
    // It has this port there, and no other; and keeps it when it asks for more.
    let ports = |ports: &[Port]| vec![(ip(LAN), Some(ports.to_vec()))];
    claims.set(&name("c/web"), Some(Claim { held: ports(&[tcp(443)]), ..claim(2, &[tcp(443)], &["lan"]) }));
    claims.set(&name("a/dns"), Some(Claim { held: ports(&[tcp(53)]), ..claim(1, &[tcp(443)], &["lan"]) }));
    assert_eq!(addresses(&claims, "c/web"), [LAN]);
    claims.set(&name("a/dns"), Some(claim(1, &[tcp(443)], &["lan"])));
    claims.set(
        &name("c/web"),
        Some(Claim { held: ports(&[tcp(443)]), ..claim(2, &[tcp(443), tcp(8443)], &["lan"]) }),
    );
    assert_eq!(addresses(&claims, "c/web"), [LAN]);
}

#[test]
fn what_the_node_needs_nobody_gets() {
    let listens = |port, address: Option<&str>| Listening { port, address: address.map(ip) };
    let mut claims = Claims::new(
        policy(),
        here(&[listens(tcp(9090), None), listens(tcp(8080), Some(LAN)), listens(udp(53), None)]),
    );
    claims.set(&name("a/ssh"), Some(claim(1, &[tcp(80), tcp(22)], &["lan"])));
    claims.set(&name("a/ssh-udp"), Some(claim(1, &[udp(22)], &["lan"])));
    claims.set(&name("a/cockpit"), Some(claim(1, &[tcp(9090)], &["lan"])));
    claims.set(&name("a/proxy"), Some(claim(1, &[tcp(8080)], &["lan", "wan"])));
    claims.set(&name("a/dns"), Some(claim(1, &[tcp(53)], &["lan"])));
    let refused = |who: &str| claims.share(who).unwrap().refused.get(&ip(LAN)).cloned();
    assert_eq!(refused("a/ssh"), Some(Refusal::Reserved(tcp(22))));
    assert_eq!(refused("a/ssh-udp"), Some(Refusal::Reserved(udp(22))));
    assert_eq!(refused("a/cockpit"), Some(Refusal::Listens(tcp(9090))));
    assert_eq!(refused("a/proxy"), Some(Refusal::Listens(tcp(8080))));
    assert_eq!(addresses(&claims, "a/proxy"), [WAN], "it listens at the other address only");
    assert_eq!(addresses(&claims, "a/dns"), [LAN], "53/udp is another port");
    // It keeps from nobody what it does not get.
    claims.set(&name("b/web"), Some(claim(2, &[tcp(80)], &["lan"])));
    assert_eq!(addresses(&claims, "b/web"), [LAN]);
    // Who has a port keeps it when a program comes to listen; but never what is kept for the node.
    let held = Claim { held: vec![(ip(LAN), None)], ..claim(1, &[tcp(9090)], &["lan"]) };
    claims.set(&name("a/cockpit"), Some(held));
    assert_eq!(addresses(&claims, "a/cockpit"), [LAN]);
    let held = Claim { held: vec![(ip(LAN), None)], ..claim(1, &[tcp(22)], &["lan"]) };
    claims.set(&name("a/ssh"), Some(held));
    assert_eq!(addresses(&claims, "a/ssh"), Vec::<String>::new());
}

#[test]
fn addresses_come_and_go() {
    let mut claims = claims();
    claims.set(&name("a/a"), Some(claim(1, &[tcp(80)], &["lan"])));
    claims.set(&name("b/b"), Some(claim(2, &[tcp(80)], &["wan"])));
    let mut moved = here(&[]);
    moved.interfaces = moved
        .interfaces
        .iter()
        .cloned()
        .map(|mut one| {
            if one.name == "lan" {
                one.addresses = BTreeSet::from([ip("192.0.2.8")]);
            }
            one
        })
        .zip(1..)
        .map(|(one, index)| (index, one))
        .collect();
    assert_eq!(claims.move_to(moved.clone()), BTreeSet::from([name("a/a")]));
    assert_eq!(addresses(&claims, "a/a"), ["192.0.2.8"]);
    assert_eq!(claims.move_to(moved), BTreeSet::new());
    assert_eq!(claims.move_to(Here::default()), BTreeSet::from([name("a/a"), name("b/b")]));
    assert_eq!(addresses(&claims, "b/b"), Vec::<String>::new());
}

#[test]
fn what_is_not_there_is_told() {
    let mut claims = claims();
    claims.set(&name("a/a"), Some(claim(1, &[tcp(80)], &["dmz", "lan"])));
    let missing = claims.missing("a/a");
    assert_eq!(missing.len(), 1);
    assert!(missing[0].1.to_string().starts_with("no interface `dmz` on this host"), "{missing:?}");
}

/// What nobody says any more does not change who has a port.
#[test]
fn what_one_had_is_kept_while_it_gets_it() {
    let mut claims = claims();
    let young = |ports: &[Port], held: &[&str], at: &[&str]| Claim {
        held: held.iter().map(|text| (ip(text), None)).collect(),
        ..claim(2, ports, at)
    };
    let (has, nowhere) = (young(&[tcp(80)], &[LAN, WAN], &["lan"]), young(&[tcp(80)], &[LAN], &["dmz"]));
    claims.set(&name("b/young"), Some(has));
    claims.set(&name("a/old"), Some(claim(1, &[tcp(80)], &["lan"])));
    assert_eq!(addresses(&claims, "b/young"), [LAN]);
    let cleared =
        |claims: &Claims, ports: &[Port], at: &[&str]| claims.kept("b/young", young(ports, &[], at));
    // It has what it had and gets, and no port that is new.
    let now = cleared(&claims, &[tcp(80), tcp(81)], &["lan"]);
    assert_eq!(now.held, [(ip(LAN), Some(vec![tcp(80)]))]);
    let now = cleared(&claims, &[tcp(80)], &["lan"]);
    assert!(claims.set(&name("b/young"), Some(now)).iter().all(|who| &**who == "b/young"));
    assert_eq!(addresses(&claims, "b/young"), [LAN], "also if it is cleared again");
    let now = cleared(&claims, &[tcp(80)], &["lan"]);
    claims.set(&name("b/young"), Some(now));
    assert_eq!(addresses(&claims, "b/young"), [LAN]);
    // What it gave up is not its own any more.
    claims.set(&name("b/young"), Some(nowhere));
    let now = cleared(&claims, &[tcp(80)], &["lan"]);
    assert_eq!(now.held, []);
    claims.set(&name("b/young"), Some(now));
    assert_eq!(addresses(&claims, "a/old"), [LAN]);
    // What is said counts.
    let said = young(&[tcp(80)], &[WAN], &["lan"]);
    assert_eq!(claims.kept("b/young", said.clone()), said);
}

/// Who gets what, worked out from nothing: one after the other takes what it can.
fn afresh(all: &BTreeMap<Name, Claim>, here: &Here) -> BTreeMap<Name, Share> {
    let mut shares = BTreeMap::new();
    for (who, claim) in all {
        let mut alone = Claims::new(policy(), here.clone());
        // Node ports of others, and what others forward to them, lead there whatever else they get.
        for (other, claim) in all.iter().filter(|(other, _)| *other != who) {
            let nothing = Claim { ports: BTreeSet::new(), at: Some(Vec::new()), ..claim.clone() };
            alone.set(other, Some(nothing));
        }
        alone.set(who, Some(claim.clone()));
        shares.insert(who.clone(), alone.share(who).unwrap().clone());
    }
    let every: BTreeSet<IpAddr> = shares.values().flat_map(|share| share.addresses.clone()).collect();
    for address in every {
        let mut order: Vec<(&Name, &Claim)> = all.iter().collect();
        let has = |claim: &Claim, port: &Port| match claim.held.iter().find(|(held, _)| *held == address) {
            Some((_, Some(ports))) => ports.contains(port),
            held => held.is_some(),
        };
        order.sort_by_key(|(who, claim)| {
            let all = claim.ports.iter().all(|port| has(claim, port));
            let any = claim.ports.iter().any(|port| has(claim, port));
            (!all, !any, claim.created, (*who).clone())
        });
        let mut taken: BTreeMap<Port, Name> = BTreeMap::new();
        for (who, claim) in order {
            let share = shares.get_mut(who).unwrap();
            if !share.addresses.contains(&address) {
                continue;
            }
            match claim.ports.iter().find(|port| taken.contains_key(port)) {
                Some(port) => {
                    share.addresses.remove(&address);
                    share.refused.insert(address, Refusal::Taken(*port, taken[port].clone()));
                }
                None => taken.extend(claim.ports.iter().map(|port| (*port, who.clone()))),
            }
        }
    }
    shares
}

fn any_claim() -> impl Strategy<Value = Option<Claim>> {
    let port = || {
        prop_oneof![(78_u16..83).prop_map(tcp), (80_u16..82).prop_map(udp), Just(tcp(22)), Just(tcp(9090))]
    };
    let at = prop::option::of(prop::collection::vec(
        prop::sample::select(vec!["lan", "wan", LAN, WAN, LAN6, "admin", "dmz"]).prop_map(Entry::from),
        0..3,
    ));
    let families = prop::collection::btree_set(prop::sample::select(vec![Family::V4, Family::V6]), 1..3);
    let ports = prop::collection::btree_set(port(), 1..4);
    let some = prop::option::of(prop::collection::vec(port(), 0..3));
    let held =
        prop::collection::btree_map(prop::sample::select(vec![ip(LAN), ip(WAN), ip(LAN6)]), some, 0..2)
            .prop_map(|held| held.into_iter().collect());
    let node_ports = prop::collection::btree_set(port(), 0..2);
    let external = prop::collection::btree_set((prop::sample::select(vec![ip(LAN), ip(WAN)]), port()), 0..2);
    let claim = (0_i64..4, ports, at, families, held, node_ports, external);
    prop::option::weighted(
        0.8,
        claim.prop_map(|(created, ports, at, families, held, node_ports, external)| Claim {
            created,
            ports,
            at,
            families,
            held,
            node_ports,
            external,
        }),
    )
}

/// A node that differs from the usual one in anything that says who may be where.
fn any_here() -> impl Strategy<Value = Here> {
    let listens = prop::sample::subsequence(
        vec![(tcp(9090), None), (tcp(80), Some(LAN)), (tcp(81), Some(WAN)), (udp(80), None)],
        0..=4,
    );
    // An address may be on two interfaces, and then the first counts.
    let places = prop::sample::subsequence(
        vec![
            ("lo", LAN),
            ("lan", LAN),
            ("lan", LAN6),
            ("lan", "192.0.2.8"),
            ("wan", WAN),
            ("wan", LAN),
            ("admin", WAN),
        ],
        0..=7,
    );
    let also = prop::sample::subsequence(vec![ip("127.0.0.1"), ip(LAN), ip("203.0.113.1")], 0..=3);
    (listens, places, also, prop::sample::subsequence(vec!["lan", "wan"], 0..=2)).prop_map(
        |(listens, places, also, parts)| {
            let interface = |name: &str| Interface {
                name: name.to_owned(),
                master: parts.contains(&name).then_some(9),
                is_loopback: name == "lo",
                is_veth: false,
                addresses: places
                    .iter()
                    .filter(|(on, _)| *on == name)
                    .map(|(_, address)| ip(address))
                    .collect(),
            };
            let listening =
                listens.iter().map(|(port, address)| Listening { port: *port, address: address.map(ip) });
            Here {
                interfaces: (1..).zip(["admin", "lan", "lo", "wan"].map(interface)).collect(),
                listening: listening.collect(),
                also: also.into_iter().collect(),
            }
        },
    )
}

proptest! {
    /// However Services and addresses come and go, who gets what is as if all had been there from the start; whoever
    /// gets something else is told of; and nobody has a port that another has.
    #[test]
    fn the_way_there_makes_no_difference(
        steps in prop::collection::vec((0_usize..8, any_claim(), prop::option::weighted(0.3, any_here())), 1..40)
    ) {
        let (mut claims, mut all) = (claims(), BTreeMap::new());
        let mut now = here(&[]);
        for (who, claim, moves) in steps {
            let before: BTreeMap<Name, Option<Share>> =
                (0..8).map(|who| name(&format!("a/{who}"))).map(|who| (who.clone(), claims.share(&who).cloned())).collect();
            let mut changed = BTreeSet::new();
            if let Some(moves) = moves {
                now = moves;
                changed.extend(claims.move_to(now.clone()));
            }
            let who = name(&format!("a/{who}"));
            changed.extend(claims.set(&who, claim.clone()));
            match claim {
                Some(claim) => drop(all.insert(who, claim)),
                None => drop(all.remove(&who)),
            }
            let expected = afresh(&all, &now);
            let mut taken = BTreeSet::new();
            for (who, before) in before {
                let share = claims.share(&who);
                prop_assert_eq!(share, expected.get(&who), "{}", &who);
                prop_assert!(share == before.as_ref() || changed.contains(&who), "{} is not told of", &who);
                for address in share.iter().flat_map(|share| &share.addresses) {
                    for port in &all[&who].ports {
                        prop_assert!(taken.insert((*address, *port)), "{} {}", address, port);
                    }
                }
            }
        }
    }
}
