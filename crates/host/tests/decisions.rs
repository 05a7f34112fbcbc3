//! The decisions of the datapath against an independent reading of what is wanted, without a kernel.

#![allow(clippy::unwrap_used, reason = "a test that fails says where")]

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use portcullis_core::{Admission, Cidr, EmptyMeans, Owner, Protocol, SourceRanges};
use portcullis_host::datapath::{
    Change, ClientAddress, Element, Finish, Frontend, Interface, Mode, Place, Plan, Ruleset, Skeleton,
    Verdict, desired, difference,
};
use proptest::prelude::*;

/// What becomes of a new connection.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Fate {
    /// It is none of ours.
    Untouched,
    Dropped,
    Refused,
    Goes {
        to: BTreeSet<SocketAddr>,
        masqueraded: bool,
    },
}

/// As who wants it says.
fn wanted(frontends: &[Frontend], mode: Mode, from: IpAddr, to: Place) -> Fate {
    let Some(frontend) = frontends.iter().find(|frontend| frontend.place() == to) else {
        return Fate::Untouched;
    };
    if mode == Mode::None {
        return Fate::Untouched;
    }
    let ranges = &frontend.admission().ranges;
    if !ranges.is_absent() && !ranges.ranges().iter().any(|range| range.contains(from)) {
        return Fate::Dropped;
    }
    match (mode, frontend.chosen()) {
        (Mode::Nftables, []) => Fate::Refused,
        (Mode::Nftables, endpoints) => Fate::Goes {
            to: endpoints.iter().copied().collect(),
            masqueraded: frontend.client_address() == ClientAddress::Masqueraded,
        },
        _ => Fate::Untouched,
    }
}

/// As the kernel would do with these elements.
fn done(ruleset: &Ruleset, from: IpAddr, to: Place) -> Fate {
    let Some(elements) = ruleset.frontends.get(&to) else { return Fate::Untouched };
    let has = |wanted: &dyn Fn(&Element) -> bool| elements.iter().any(wanted);
    let is_there = has(&|element| matches!(element, Element::Frontend(_)));
    // The one is what a packet is looked at by where it arrives on an interface and where it is served, the other what it is looked
    // at by in between: one without the other would let everybody in at one place, or nobody.
    assert_eq!(is_there, has(&|element| *element == Element::Arrived));
    if !is_there {
        assert!(!has(&|element| matches!(element, Element::Serve(_))), "served without a look at who it is");
        return Fate::Untouched;
    }
    if !has(&|element| matches!(element, Element::Admit(range) if range.contains(from))) {
        return Fate::Dropped;
    }
    let verdicts: Vec<&Verdict> = elements
        .iter()
        .filter_map(|element| match element {
            Element::Serve(verdict) => Some(verdict),
            _ => None,
        })
        .collect();
    match verdicts[..] {
        [] => Fate::Untouched,
        [Verdict::Refuse] => Fate::Refused,
        [Verdict::Pick(count)] => {
            let slot = |number| {
                let mut slots = elements.iter().filter_map(|element| match element {
                    Element::Slot(slot, endpoint) if *slot == number => Some(*endpoint),
                    _ => None,
                });
                let endpoint = slots.next().expect("every number that may be drawn has an endpoint");
                assert_eq!(slots.next(), None, "a number has one endpoint");
                endpoint
            };
            Fate::Goes {
                to: (0..*count).map(slot).collect(),
                masqueraded: has(&|element| *element == Element::Masquerade),
            }
        }
        _ => panic!("two verdicts at {to}"),
    }
}

/// Whether rules have room for all elements.
fn holds(skeleton: &Skeleton, ruleset: &Ruleset) -> bool {
    ruleset.frontends.iter().all(|(place, elements)| {
        let family = place.family();
        elements.iter().all(|element| match element {
            Element::Admit(range) => skeleton.prefixes.contains(&(family, range.prefix_len())),
            Element::Serve(Verdict::Pick(count)) => {
                skeleton.forwards && skeleton.picks.contains(&(family, *count))
            }
            Element::Member(timeout, _) => {
                skeleton.forwards && skeleton.timeouts.contains(&(family, *timeout))
            }
            Element::Serve(_) | Element::Slot(..) | Element::Masquerade | Element::Hairpin(_) => {
                skeleton.forwards
            }
            _ => true,
        })
    })
}

/// As the kernel takes a change: what goes has to be there, what comes must not be.
fn apply(ruleset: &mut Ruleset, change: &Change) {
    let elements = ruleset.frontends.entry(change.place).or_default();
    for gone in &change.remove {
        let place = elements.iter().position(|element| element == gone).expect("it is there");
        elements.remove(place);
    }
    for come in &change.add {
        assert!(!elements.contains(come), "it is not there");
        elements.push(come.clone());
    }
    elements.sort();
    if elements.is_empty() {
        ruleset.frontends.remove(&change.place);
    }
}

/// Every state that the kernel is in on the way, from `before` to the end.
fn way(before: &Ruleset, after: &Ruleset) -> Vec<Ruleset> {
    let plan = difference(before, after);
    let mut states = vec![before.clone()];
    let mut now = before.clone();
    if let Some(skeleton) = &plan.grow {
        now.skeleton = Some(skeleton.clone());
        states.push(now.clone());
    }
    for change in &plan.changes {
        assert!(!change.is_empty());
        apply(&mut now, change);
        states.push(now.clone());
    }
    match plan.finish {
        Finish::Stay => {}
        Finish::Shrink(skeleton) => now.skeleton = Some(skeleton),
        Finish::Remove => now = Ruleset::default(),
    }
    states.push(now);
    states
}

fn address() -> impl Strategy<Value = IpAddr> {
    prop_oneof![
        (0..4u8).prop_map(|last| IpAddr::from([192, 0, 2, last + 1])),
        (0..4u16).prop_map(|last| IpAddr::from([0x2001, 0xdb8, 0, 0, 0, 0, 0, last + 1])),
    ]
}

fn range() -> impl Strategy<Value = Cidr> {
    (address(), prop_oneof![Just(0u8), Just(24), Just(30), Just(31), Just(32), Just(127), Just(128)])
        .prop_map(|(address, length)| {
            Cidr::new(address, length.min(if address.is_ipv4() { 32 } else { 128 })).unwrap()
        })
}

fn place() -> impl Strategy<Value = Place> {
    let any = prop_oneof![Just("0.0.0.0".parse().unwrap()), Just("::".parse().unwrap())];
    let protocol = prop_oneof![Just(Protocol::TCP), Just(Protocol::UDP)];
    (prop_oneof![4 => address(), 1 => any], protocol, 80..82u16)
        .prop_map(|(address, protocol, port)| Place::new(address, protocol, port).unwrap())
}

fn endpoints(place: Place) -> impl Strategy<Value = Vec<SocketAddr>> {
    let endpoint = (1..5u8, 8080..8082u16).prop_map(move |(last, port)| {
        let address = if place.address().is_ipv4() {
            IpAddr::from([10, 0, 0, last])
        } else {
            IpAddr::from([0xfd00, 0, 0, 0, 0, 0, 0, last.into()])
        };
        SocketAddr::new(address, port)
    });
    proptest::collection::vec(endpoint, 0..4)
}

prop_compose! {
    fn frontend()(place in place())(
        place in Just(place),
        ranges in proptest::option::of(proptest::collection::vec(range(), 0..4)),
        ready in endpoints(place),
        terminating in endpoints(place),
        kept in any::<bool>(),
        affinity in proptest::option::of(prop_oneof![Just(60), Just(10_800)]),
        name in "[a-z]{1,3}",
    ) -> Frontend {
        let ranges = ranges.map_or_else(SourceRanges::absent, SourceRanges::listed);
        let admission = Admission { ranges, empty_means: EmptyMeans::Nobody };
        let owner = Owner::new("c", "Service", Some("shop".into()), name).unwrap();
        let client = if kept { ClientAddress::Kept } else { ClientAddress::Masqueraded };
        let frontend = Frontend::new(place, owner, admission, ready).unwrap()
            .with_terminating(terminating).unwrap()
            .with_client_address(client);
        match affinity {
            Some(seconds) => frontend.with_affinity(Duration::from_secs(seconds)).unwrap(),
            None => frontend,
        }
    }
}

/// No two at one place.
fn frontends() -> impl Strategy<Value = Vec<Frontend>> {
    proptest::collection::vec(frontend(), 0..8).prop_map(|mut frontends| {
        frontends.sort_by_key(Frontend::place);
        frontends.dedup_by_key(|frontend| frontend.place());
        frontends
    })
}

fn mode() -> impl Strategy<Value = Mode> {
    prop_oneof![1 => Just(Mode::None), 2 => Just(Mode::Filter), 3 => Just(Mode::Nftables)]
}

fn interfaces() -> impl Strategy<Value = Vec<Interface>> {
    let all = [("eth0", "192.0.2.1", false), ("eth1", "192.0.2.2", true)].map(|(name, address, is_kept)| {
        Interface { name: name.into(), addresses: vec![address.parse().unwrap()], is_kept }
    });
    proptest::sample::subsequence(all.to_vec(), 0..=2)
}

proptest! {
    #[test]
    fn elements_do_what_frontends_want(
        frontends in frontends(),
        mode in mode(),
        clients in proptest::collection::vec(address(), 8),
    ) {
        let ruleset = desired(&frontends, mode, &[]);
        for frontend in &frontends {
            let to = frontend.place();
            for from in clients.iter().filter(|from| from.is_ipv4() == to.address().is_ipv4()) {
                prop_assert_eq!(done(&ruleset, *from, to), wanted(&frontends, mode, *from, to), "{} to {}", from, to);
            }
        }
    }

    #[test]
    fn a_difference_leads_to_what_is_desired_and_never_further(
        (before, after) in (frontends(), frontends()),
        (from_mode, to_mode) in (mode(), mode()),
        (from_interfaces, to_interfaces) in (interfaces(), interfaces()),
        clients in proptest::collection::vec(address(), 4),
    ) {
        let from_ruleset = desired(&before, from_mode, &from_interfaces);
        let to_ruleset = desired(&after, to_mode, &to_interfaces);
        let states = way(&from_ruleset, &to_ruleset);
        prop_assert_eq!(states.last().unwrap(), &to_ruleset);
        let places: BTreeSet<Place> = before.iter().chain(&after).map(Frontend::place).collect();
        for state in &states {
            match &state.skeleton {
                Some(skeleton) => prop_assert!(holds(skeleton, state)),
                None => prop_assert!(state.frontends.is_empty()),
            }
            for to in &places {
                for from in clients.iter().filter(|from| from.is_ipv4() == to.address().is_ipv4()) {
                    let fate = done(state, *from, *to);
                    let either = [done(&from_ruleset, *from, *to), done(&to_ruleset, *from, *to)];
                    prop_assert!(either.contains(&fate), "{} to {}: {:?} is not in {:?}", from, to, fate, either);
                }
            }
            // Whoever dies here finds the way from here.
            let rest = way(state, &to_ruleset);
            prop_assert_eq!(rest.last().unwrap(), &to_ruleset);
        }
    }

    #[test]
    fn nothing_is_done_about_what_is_as_desired(frontends in frontends(), mode in mode(), interfaces in interfaces()) {
        let ruleset = desired(&frontends, mode, &interfaces);
        prop_assert_eq!(difference(&ruleset, &ruleset), Plan::default());
    }

    #[test]
    fn one_frontend_changes_only_its_own(others in frontends(), one in frontend()) {
        let before: Vec<Frontend> = others.into_iter().filter(|other| other.place() != one.place()).collect();
        let mut after = before.clone();
        after.push(one.clone());
        let plan = difference(&desired(&before, Mode::Nftables, &[]), &desired(&after, Mode::Nftables, &[]));
        prop_assert_eq!(plan.changes.iter().map(|change| change.place).collect::<Vec<_>>(), [one.place()]);
    }
}

#[test]
fn an_interface_is_filtered_only_in_filter_mode() {
    let interfaces =
        [Interface { name: "eth0".into(), addresses: vec!["192.0.2.1".parse().unwrap()], is_kept: false }];
    let skeleton = |mode| desired(&[], mode, &interfaces).skeleton;
    assert_eq!(skeleton(Mode::None), None);
    assert_eq!(skeleton(Mode::Filter).unwrap().interfaces, BTreeSet::from(["eth0".to_owned()]));
    assert!(skeleton(Mode::Nftables).unwrap().interfaces.is_empty());
}

#[test]
fn the_elements_of_a_frontend() {
    let place = Place::new("192.0.2.1".parse().unwrap(), Protocol::TCP, 443).unwrap();
    let owner = Owner::new("c", "Service", Some("shop".into()), "web").unwrap();
    let ranges = ["10.1.0.0/16", "10.0.0.0/8", "2001:db8::/32", "10.0.0.1/8"];
    let ranges = SourceRanges::parse(Some(ranges)).unwrap();
    let admission = Admission { ranges, empty_means: EmptyMeans::Everyone };
    let endpoints =
        ["10.0.0.9:8443", "10.0.0.8:8443"].map(|endpoint| endpoint.parse::<SocketAddr>().unwrap());
    let frontend = Frontend::new(place, owner, admission, endpoints)
        .unwrap()
        .with_client_address(ClientAddress::Kept)
        .with_affinity(Duration::from_secs(60))
        .unwrap();
    let of = |mode| desired([&frontend], mode, &[]).frontends[&place].clone();
    let ten = Element::Admit("10.0.0.0/8".parse().unwrap());
    let filter = [Element::Frontend("Service shop/web".into()), Element::Arrived, Element::Dropped, ten];
    assert_eq!(of(Mode::Filter), filter);
    let [nine, eight] = endpoints;
    let forward = [
        Element::Serve(Verdict::Pick(2)),
        Element::Slot(0, eight),
        Element::Slot(1, nine),
        Element::Hairpin(eight.ip()),
        Element::Hairpin(nine.ip()),
        Element::Member(60, eight),
        Element::Member(60, nine),
    ];
    assert_eq!(of(Mode::Nftables), [&filter[..], &forward].concat());
}
