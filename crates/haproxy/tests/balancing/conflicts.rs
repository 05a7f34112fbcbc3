//! Places that are taken, and what is refused.

use std::net::{SocketAddr, TcpListener};
use std::time::SystemTime;

use portcullis_core::{Listener, ListenerProtocol, MemberState};
use portcullis_haproxy::Error;
use portcullis_testkit::eventually;

use crate::lab::{Lab, PORT, V4, V6, backend, balancer, id, listener, member, of, on, open, wanted, web};
use portcullis_testkit::talk::{Backend, Held, ask};

#[test]
fn a_port_of_another_program_keeps_only_its_own_load_balancer_out() {
    let lab = Lab::new();
    let _backend = backend(&lab.members[0]);
    let mut proxy = lab.proxy();
    let bind = |place: &str| {
        let place: SocketAddr = place.parse().unwrap();
        on(&lab.machine, || TcpListener::bind(place)).unwrap()
    };
    let other = bind("192.0.2.1:80");
    let everywhere = balancer("everywhere", &[], vec![listener(90)], open(), vec![member(1)]);
    let wanted_now = wanted(vec![web(vec![member(1)]), everywhere.clone()]);
    let seen = proxy.apply(&wanted_now);
    let problem = of(&seen, &id("web")).problem.clone().unwrap();
    let pid = std::process::id();
    assert!(problem.what.starts_with("Load balancer shop/web: the program "), "{problem}");
    assert!(problem.what.ends_with(&format!("(process {pid}) listens on 192.0.2.1:80.")), "{problem}");
    assert_eq!(of(&seen, &id("web")).listening, [0_u16; 0]);
    assert_eq!(of(&seen, &id("everywhere")).problem, None);
    eventually("the other one serves", || {
        let seen = proxy.apply(&wanted_now);
        of(&seen, &id("everywhere")).members["member-1"].state == MemberState::Active
    });
    let mut held = Held::connect(&lab.inside, V6, 90).unwrap();
    assert_eq!(held.ask().unwrap(), "member-1");

    drop(other);
    let seen = proxy.settle(&wanted_now);
    assert_eq!(of(&seen, &id("web")).problem, None);
    assert_eq!(of(&seen, &id("web")).listening, [80]);
    assert_eq!(ask(&lab.inside, V4, 80).unwrap(), "member-1");
    assert_eq!(held.ask().unwrap(), "member-1");

    // A listener that is added in vain does not take the others of its load balancer away.
    let _other = bind("[::]:81");
    let two = balancer("web", &[V4, V6], vec![listener(80), listener(81)], open(), vec![member(1)]);
    let seen = proxy.settle(&wanted(vec![two, everywhere]));
    assert!(of(&seen, &id("web")).problem.is_some());
    assert_eq!(of(&seen, &id("web")).listening, [80]);
    assert_eq!(ask(&lab.inside, V4, 80).unwrap(), "member-1");
    assert_eq!(held.ask().unwrap(), "member-1");
}

#[test]
fn what_is_in_the_way_is_told_before_anything_is_changed() {
    let lab = Lab::new();
    let _backend = backend(&lab.members[0]);
    let mut proxy = lab.proxy();
    let at = |name: &str, port| balancer(name, &[V4, V6], vec![listener(port)], open(), vec![member(1)]);
    let now = wanted(vec![at("web", 80), at("other", 90)]);
    assert!(proxy.obstacles(&now).is_empty(), "it does not even run");
    proxy.settle(&now);
    let before = std::fs::read_to_string(proxy.path("haproxy.cfg")).unwrap();
    let place: SocketAddr = "192.0.2.1:81".parse().unwrap();
    let nginx = on(&lab.machine, || TcpListener::bind(place)).unwrap();
    for (balancers, expected) in [
        (vec![at("web", 80), at("other", 90)], None),
        (vec![at("web", 82), at("other", 90)], None),
        // They change places.
        (vec![at("web", 90), at("other", 80)], None),
        (vec![at("web", 81), at("other", 90)], Some(("web", "listens on 192.0.2.1:81."))),
        (
            vec![at("other", 90), at("web", 90)],
            Some(("web", "192.0.2.1:90 belongs to load balancer shop/other")),
        ),
    ] {
        let found = proxy.obstacles(&wanted(balancers.clone()));
        match expected {
            None => assert!(found.is_empty(), "{found:?} {balancers:?}"),
            Some((name, words)) => {
                assert_eq!(found.keys().collect::<Vec<_>>(), [&id(name)]);
                assert!(found[&id(name)].what.contains(words), "{found:?}");
            }
        }
    }
    assert_eq!(std::fs::read_to_string(proxy.path("haproxy.cfg")).unwrap(), before);
    assert_eq!(ask(&lab.inside, V4, 80).unwrap(), "member-1");
    drop(nginx);
    assert!(proxy.obstacles(&wanted(vec![at("web", 81), at("other", 90)])).is_empty());
}

#[test]
fn a_port_that_was_taken_while_haproxy_was_away_keeps_only_its_own_load_balancer_out() {
    let lab = Lab::new();
    let _backend = backend(&lab.members[0]);
    let mut proxy = lab.proxy();
    let other = balancer("other", &[V4], vec![listener(90)], open(), vec![member(1)]);
    let both = wanted(vec![web(vec![member(1)]), other]);
    proxy.settle(&both);
    crate::drain::kill(proxy.process());
    let place: SocketAddr = "192.0.2.1:80".parse().unwrap();
    let mut taken = None;
    eventually("the port is free", || {
        taken = on(&lab.machine, || TcpListener::bind(place)).ok();
        taken.is_some()
    });
    let mut seen = None;
    eventually("it is back", || {
        seen = proxy.try_apply(&both, SystemTime::now()).ok();
        seen.is_some()
    });
    let seen = seen.unwrap();
    assert!(of(&seen, &id("web")).problem.is_some());
    assert_eq!(of(&seen, &id("other")).listening, [90]);
    assert_eq!(ask(&lab.inside, V4, 90).unwrap(), "member-1");
    drop(taken);
    proxy.settle(&both);
    assert_eq!(ask(&lab.inside, V4, 80).unwrap(), "member-1");
}

#[test]
fn a_reload_that_fails_is_told_and_keeps_nobody_from_changing_members() {
    let lab = Lab::new();
    let _backends: Vec<Backend> = lab.members.iter().map(backend).collect();
    let mut proxy = lab.proxy();
    proxy.settle(&wanted(vec![web(vec![member(1)])]));
    let mut held = Held::connect(&lab.inside, V4, 80).unwrap();
    assert_eq!(held.ask().unwrap(), "member-1");
    // A file that is fine, and cannot be used: HAProxy finds out when it is asked to.
    let more = |members: Vec<portcullis_core::Member>, limit| {
        let mut more = wanted(vec![web(members)]);
        more.tuning.max_connections = limit;
        more
    };
    let limit = Some(1_000_000_000);
    let error = proxy.try_apply(&more(vec![member(1)], limit), SystemTime::now()).unwrap_err();
    assert!(matches!(error, Error::Reload { .. } | Error::Refused(_)), "{error}");
    assert_eq!(held.ask().unwrap(), "member-1");
    assert_eq!(ask(&lab.inside, V4, 80).unwrap(), "member-1");
    eventually("members change", || {
        let _ = proxy.try_apply(&more(vec![member(1), member(2)], limit), SystemTime::now());
        (0..10).any(|_| ask(&lab.inside, V4, 80).unwrap() == "member-2")
    });
    eventually("it is well again", || {
        proxy.try_apply(&more(vec![member(1), member(2)], None), SystemTime::now()).is_ok()
    });
    proxy.settle(&more(vec![member(2)], None));
    assert_eq!(ask(&lab.inside, V4, 80).unwrap(), "member-2");
    assert_eq!(held.ask().unwrap(), "member-1");
}

#[test]
fn of_two_on_one_port_the_first_has_it() {
    let lab = Lab::new();
    let _backends: Vec<Backend> = lab.members.iter().map(backend).collect();
    let mut proxy = lab.proxy();
    let first = || web(vec![member(1)]);
    let second = |port| balancer("second", &[], vec![listener(port)], open(), vec![member(2)]);
    let seen = proxy.settle(&wanted(vec![first(), second(81)]));
    assert!(seen.balancers.values().all(|one| one.problem.is_none()));
    let seen = proxy.apply(&wanted(vec![first(), second(80)]));
    let problem = of(&seen, &id("second")).problem.clone().unwrap();
    assert_eq!(
        problem.what,
        "Load balancer shop/second: 192.0.2.1:80 belongs to load balancer shop/web, which comes first."
            .replace("192.0.2.1", "0.0.0.0")
    );
    for _ in 0..20 {
        assert_eq!(ask(&lab.inside, V4, 80).unwrap(), "member-1");
    }
    assert!(ask(&lab.inside, V4, 81).is_err());
    // And when the first goes, the second has it.
    proxy.settle(&wanted(vec![second(80)]));
    assert_eq!(ask(&lab.inside, V4, 80).unwrap(), "member-2");
}

#[test]
fn what_haproxy_cannot_carry_is_refused_alone() {
    let lab = Lab::new();
    let _backend = backend(&lab.members[0]);
    let mut proxy = lab.proxy();
    let of_protocol = |name: &str, port, protocol| {
        let listener = Listener::new(port, protocol, PORT).unwrap();
        balancer(name, &[V4], vec![listener], open(), vec![member(1)])
    };
    let all = wanted(vec![
        of_protocol("udp", 53, ListenerProtocol::Udp),
        of_protocol("tls", 443, ListenerProtocol::Tls),
        web(vec![member(1)]),
    ]);
    let seen = proxy.apply(&all);
    for name in ["udp", "tls"] {
        let problem = of(&seen, &id(name)).problem.clone().unwrap();
        assert!(problem.what.contains("HAProxy does not carry the listener"), "{problem}");
    }
    assert_eq!(of(&seen, &id("web")).problem, None);
    proxy.until(&wanted(vec![web(vec![member(1)])]), "member-1", MemberState::Active);
}

#[test]
fn a_file_that_haproxy_does_not_take_leaves_everything_as_it_is() {
    let lab = Lab::new();
    let _backends: Vec<Backend> = lab.members.iter().map(backend).collect();
    let mut proxy = lab.proxy();
    proxy.settle(&wanted(vec![web(vec![member(1)])]));
    let before = std::fs::read_to_string(proxy.path("haproxy.cfg")).unwrap();
    let mut broken = wanted(vec![web(vec![member(1)])]);
    broken.tuning.user = Some("nobody-of-this-name".to_owned());
    let refused = proxy.try_apply(&broken, SystemTime::now());
    let Err(Error::Refused(problem)) = refused else { panic!("{refused:?}") };
    assert!(problem.state.contains("nobody-of-this-name"), "{problem}");
    assert_eq!(std::fs::read_to_string(proxy.path("haproxy.cfg")).unwrap(), before);
    assert_eq!(ask(&lab.inside, V4, 80).unwrap(), "member-1");
    proxy.settle(&wanted(vec![web(vec![member(2)])]));
    assert_eq!(ask(&lab.inside, V4, 80).unwrap(), "member-2");
}

#[test]
fn odd_and_long_names_work() {
    let lab = Lab::new();
    let _backend = backend(&lab.members[0]);
    let mut proxy = lab.proxy();
    let odd = portcullis_core::Member::new("a \"b\" #c'\\d é", member(1).addresses().to_vec()).unwrap();
    let mut one = balancer("web", &[V4], vec![listener(80)], admission_odd(), vec![odd]);
    one.id.name = "x y\"'#\\\u{e9}%$".to_owned();
    let mut two = balancer("web", &[V4], vec![listener(81)], admission_odd(), vec![member(1)]);
    two.id.name = "w".repeat(235);
    let seen = proxy.settle(&wanted(vec![one, two]));
    assert!(seen.balancers.values().all(|one| one.problem.is_none()));
    for port in [80, 81] {
        assert_eq!(ask(&lab.inside, V4, port).unwrap(), "member-1");
        assert!(ask(&lab.outside, V4, port).is_err());
    }
}

fn admission_odd() -> portcullis_core::Admission {
    crate::lab::admission(Some(&["192.0.2.0/24"]))
}
