//! What members have to pass.

use std::time::Duration;

use portcullis_core::{HealthCheck, HealthPort, Listener, ListenerProtocol, MemberState, Probe};
use portcullis_haproxy::Options;
use portcullis_testkit::eventually;

use crate::lab::{Lab, PORT, V4, V6, backend, balancer, member, member_of, open, quick, wanted, web};
use portcullis_testkit::talk::{Backend, ask};

/// TLS takes its time on a busy machine: who is slow a few times is not out.
fn readyz() -> Listener {
    let (probe, second) = (Probe::Https { path: "/readyz".into() }, Duration::from_secs(1));
    let check = HealthCheck::new(probe, HealthPort::Traffic).unwrap().with_timing(second, second).unwrap();
    let check = check.with_thresholds(1, 3).unwrap();
    Listener::new(443, ListenerProtocol::Tcp, PORT).unwrap().with_health_check(check)
}

#[test]
fn a_new_member_gets_nothing_before_it_passed() {
    let lab = Lab::new();
    let backends: Vec<Backend> = lab.members.iter().map(backend).collect();
    backends[1].set_status(500);
    backends[2].set_status(500);
    let mut proxy = lab.proxy();
    let of = |numbers: &[usize]| {
        let members = numbers.iter().map(|number| member(*number)).collect();
        wanted(vec![balancer("api", &[V4, V6], vec![readyz()], open(), members)])
    };
    // With HAProxy itself.
    let seen = proxy.apply(&of(&[1, 2]));
    assert_eq!(member_of(&seen, "member-2").state, MemberState::Adding);
    proxy.until(&of(&[1, 2]), "member-1", MemberState::Active);
    // By the runtime interface.
    proxy.apply(&of(&[1, 2, 3]));
    for _ in 0..50 {
        assert_eq!(ask(&lab.inside, V4, 443).unwrap(), "member-1");
    }
    // With a reload.
    let more = |numbers: &[usize]| {
        let members = || numbers.iter().map(|number| member(*number)).collect();
        let other = Listener::new(444, ListenerProtocol::Tcp, PORT).unwrap();
        let other = other.with_health_check(readyz().health_check().unwrap().clone());
        wanted(vec![balancer("api", &[V4, V6], vec![readyz(), other], open(), members())])
    };
    proxy.apply(&more(&[1, 2, 3]));
    proxy.until(&more(&[1, 2, 3]), "member-1", MemberState::Active);
    for port in [443, 444].repeat(25) {
        assert_eq!(ask(&lab.inside, V4, port).unwrap(), "member-1");
    }
    assert_eq!((backends[1].served(), backends[2].served()), (0, 0));
    let mut words = String::new();
    eventually("what is wrong is told", || {
        words = member_of(&proxy.apply(&more(&[1, 2, 3])), "member-3").check.clone();
        words.contains("Layer7 wrong status 500")
    });

    backends[2].set_status(200);
    proxy.until(&more(&[1, 2, 3]), "member-3", MemberState::Active);
    eventually("it gets its share", || {
        ask(&lab.inside, V4, 443).unwrap();
        backends[2].served() > 0
    });
    assert_eq!(backends[1].served(), 0);
}

#[test]
fn who_turns_unhealthy_gets_nothing_new() {
    let lab = Lab::new();
    let backends: Vec<Backend> = lab.members.iter().map(backend).collect();
    let mut proxy = lab.proxy();
    let wanted = wanted(vec![balancer("api", &[V4], vec![readyz()], open(), vec![member(1), member(2)])]);
    proxy.settle(&wanted);
    backends[0].set_status(500);
    proxy.until(&wanted, "member-1", MemberState::Adding);
    eventually("what is wrong is told", || {
        member_of(&proxy.apply(&wanted), "member-1").check.starts_with("Layer7 wrong status 500")
    });
    let before = backends[0].served();
    for _ in 0..50 {
        assert_eq!(ask(&lab.inside, V4, 443).unwrap(), "member-2");
    }
    assert_eq!(backends[0].served(), before);
    // Also in the eyes of a new worker.
    let mut more = wanted.clone();
    more.balancers.push(web(vec![member(3)]));
    proxy.apply(&more);
    for _ in 0..50 {
        assert_eq!(ask(&lab.inside, V4, 443).unwrap(), "member-2");
    }
    assert_eq!(backends[0].served(), before);
}

#[test]
fn members_hear_of_clients_by_the_proxy_protocol() {
    let lab = Lab::new();
    let backend = backend(&lab.members[0]);
    let mut proxy = lab.proxy();
    let mut web = web(vec![member(1)]);
    web.options = Options { send_proxy: true, ..Options::default() };
    let wanted = wanted(vec![web]);
    proxy.settle(&wanted);
    assert_eq!(ask(&lab.inside, V4, 80).unwrap(), "member-1");
    assert_eq!(ask(&lab.outside, V6, 80).unwrap(), "member-1");
    let told: Vec<String> = backend.told().iter().map(ToString::to_string).collect();
    assert_eq!(told, ["192.0.2.10", "2001:db8:2::10"]);
}

#[test]
fn a_check_may_go_elsewhere_and_over_plain_http() {
    let lab = Lab::new();
    let backend = backend(&lab.members[0]);
    // Traffic goes to a port where nobody looks at checks.
    let health = lab.members[0].serve(7000);
    let mut proxy = lab.proxy();
    let probe = Probe::Http { path: "/it's?a=\"b\"#\\".into() };
    let check = HealthCheck::new(probe, HealthPort::Number(PORT)).unwrap();
    let check = check.with_timing(quick(Probe::Tcp).interval(), quick(Probe::Tcp).timeout()).unwrap();
    let listener = Listener::new(80, ListenerProtocol::Tcp, 7000).unwrap().with_health_check(check);
    let wanted = wanted(vec![balancer("web", &[V4], vec![listener], open(), vec![member(1)])]);
    proxy.settle(&wanted);
    backend.set_status(503);
    proxy.until(&wanted, "member-1", MemberState::Adding);
    drop(health);
}
