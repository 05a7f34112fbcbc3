//! Members that finish what they have.

use std::time::{Duration, SystemTime};

use portcullis_core::MemberState;
use portcullis_haproxy::Wanted;
use portcullis_testkit::eventually;

use crate::lab::{
    Lab, V4, V6, backend, balancer, late, leaving, listener, member, member_of, open, past, resting, wanted,
    web,
};
use portcullis_testkit::talk::{Backend, Held, ask};

#[test]
fn held_connections_live_through_drain_and_reloads_and_are_cut_at_the_deadline() {
    let lab = Lab::new();
    let _backends: Vec<Backend> = lab.members.iter().map(backend).collect();
    let mut proxy = lab.proxy();
    proxy.settle(&wanted(vec![web(vec![member(1)])]));
    let mut first = Held::connect(&lab.inside, V4, 80).unwrap();
    assert_eq!(first.ask().unwrap(), "member-1");

    // A reload: the connection is with an old worker now.
    let more =
        |members| wanted(vec![balancer("web", &[V4, V6], vec![listener(80), listener(81)], open(), members)]);
    proxy.settle(&more(vec![member(1)]));
    assert_eq!(proxy.workers(), 2);
    let mut second = Held::connect(&lab.outside, V6, 81).unwrap();
    assert_eq!(second.ask().unwrap(), "member-1");

    let by = late();
    let draining = more(vec![leaving(1, by), member(2)]);
    let seen = proxy.settle(&draining);
    assert_eq!(member_of(&seen, "member-1").state, MemberState::Draining);
    assert_eq!(member_of(&seen, "member-1").sessions, 2);
    assert_eq!(seen.due, Some(by));
    assert_eq!((first.ask().unwrap(), second.ask().unwrap()), ("member-1".into(), "member-1".into()));
    for _ in 0..20 {
        assert_eq!(ask(&lab.inside, V4, 80).unwrap(), "member-2");
    }

    // And another reload while it drains.
    let again =
        |members| wanted(vec![balancer("web", &[V4, V6], vec![listener(80), listener(82)], open(), members)]);
    let seen = proxy.settle(&again(vec![leaving(1, by), member(2)]));
    assert_eq!(proxy.workers(), 3);
    assert_eq!(member_of(&seen, "member-1").state, MemberState::Draining);
    assert_eq!((first.ask().unwrap(), second.ask().unwrap()), ("member-1".into(), "member-1".into()));

    // The listener that one came by is gone, and it is counted all the same, until it ends by itself.
    assert_eq!(member_of(&seen, "member-1").sessions, 2);
    drop(second);
    eventually("it is not counted any more", || {
        let seen = proxy.apply(&again(vec![leaving(1, by), member(2)]));
        member_of(&seen, "member-1").sessions == 1
    });

    let cut = proxy.until(&again(vec![leaving(1, past()), member(2)]), "member-1", MemberState::Removed);
    assert_eq!((cut.sessions, cut.cut), (0, 1));
    assert!(first.has_ended());
    eventually("old workers end with their last connection", || proxy.workers() == 1);
    assert_eq!(ask(&lab.inside, V4, 80).unwrap(), "member-2");
}

/// Has HAProxy reload, by another port for the same members.
fn at(port: u16, members: Vec<portcullis_core::Member>) -> Wanted {
    wanted(vec![balancer("web", &[V4, V6], vec![listener(port)], open(), members)])
}

#[test]
fn what_came_by_a_listener_that_is_gone_is_waited_for_and_cut_at_the_deadline() {
    let lab = Lab::new();
    let _backends: Vec<Backend> = lab.members.iter().map(backend).collect();
    let mut proxy = lab.proxy();
    proxy.settle(&at(80, vec![member(1)]));
    let mut held = Held::connect(&lab.inside, V4, 80).unwrap();
    assert_eq!(held.ask().unwrap(), "member-1");
    proxy.settle(&at(81, vec![member(1), member(2)]));
    let by = late();
    let leaves = at(81, vec![leaving(1, by), member(2)]);
    for _ in 0..3 {
        let seen = proxy.apply(&leaves);
        let one = member_of(&seen, "member-1");
        assert_eq!((one.state, one.sessions, seen.due), (MemberState::Draining, 1, Some(by)));
        assert_eq!(held.ask().unwrap(), "member-1");
    }
    let cut = proxy.until(&at(81, vec![leaving(1, past()), member(2)]), "member-1", MemberState::Removed);
    assert_eq!((cut.sessions, cut.cut), (0, 1));
    assert!(held.has_ended());
}

#[test]
fn old_workers_go_on_until_there_are_too_many_and_what_is_ended_then_is_counted() {
    let lab = Lab::new();
    let _backends: Vec<Backend> = lab.members.iter().map(backend).collect();
    let mut proxy = lab.proxy();
    let with = |port, old_workers| {
        let mut all = at(port, vec![member(1)]);
        all.tuning.old_workers = old_workers;
        all
    };
    let mut held = Vec::new();
    for port in 80..84 {
        proxy.settle(&with(port, 3));
        held.push(Held::connect(&lab.inside, V4, port).unwrap());
        assert_eq!(held.last_mut().unwrap().ask().unwrap(), "member-1");
    }
    let text = std::fs::read_to_string(proxy.path("haproxy.cfg")).unwrap();
    assert!(!text.contains("hard-stop-after"), "HAProxy would end them by itself: {text}");
    assert_eq!(proxy.workers(), 4);
    assert!(held.iter_mut().all(|one| one.ask().unwrap() == "member-1"));
    let seen = proxy.apply(&with(83, 3));
    let one = member_of(&seen, "member-1");
    assert_eq!((one.sessions, one.crowded_out, one.state), (4, 0, MemberState::Active));

    // One reload more: who came first is ended, and nobody else.
    proxy.settle(&with(84, 3));
    eventually("the oldest worker ends", || proxy.workers() == 4);
    assert!(held.remove(0).has_ended());
    assert!(held.iter_mut().all(|one| one.ask().unwrap() == "member-1"));
    let seen = proxy.apply(&with(84, 3));
    let one = member_of(&seen, "member-1");
    assert_eq!((one.sessions, one.crowded_out, one.state), (3, 1, MemberState::Active));

    // Fewer are to be left.
    proxy.apply(&with(84, 1));
    eventually("the next ones end", || proxy.workers() == 2);
    assert_eq!(held.iter_mut().map(|one| one.ask().is_ok()).collect::<Vec<_>>(), [false, false, true]);
    let seen = proxy.apply(&with(84, 1));
    let one = member_of(&seen, "member-1");
    assert_eq!((one.sessions, one.crowded_out, one.cut), (1, 3, 0));
}

#[test]
fn what_came_by_a_load_balancer_that_is_gone_has_time_to_end() {
    let lab = Lab::new();
    let _backends: Vec<Backend> = lab.members.iter().map(backend).collect();
    let mut proxy = lab.proxy();
    proxy.settle(&wanted(vec![web(vec![member(1)])]));
    let mut held = Held::connect(&lab.inside, V4, 80).unwrap();
    assert_eq!(held.ask().unwrap(), "member-1");
    let nothing = wanted(vec![]);
    let seen = proxy.apply(&nothing);
    let due = seen.due.expect("it is to end at some time");
    assert!(due > SystemTime::now() + Duration::from_secs(60));
    assert!(ask(&lab.inside, V4, 80).is_err());
    assert_eq!(held.ask().unwrap(), "member-1");
    assert_eq!(proxy.apply(&nothing).due, Some(due), "the time stands");
    proxy.try_apply(&nothing, due).unwrap();
    assert!(held.has_ended());
    eventually("its worker ends", || proxy.workers() == 1);
}

#[test]
fn connections_of_the_current_worker_are_cut_as_well() {
    let lab = Lab::new();
    let _backends: Vec<Backend> = lab.members.iter().map(backend).collect();
    let mut proxy = lab.proxy();
    proxy.settle(&wanted(vec![web(vec![member(1)])]));
    let mut held: Vec<Held> = (0..5).map(|_| Held::connect(&lab.inside, V4, 80).unwrap()).collect();
    assert!(held.iter_mut().all(|one| one.ask().unwrap() == "member-1"));
    proxy.settle(&wanted(vec![web(vec![member(1), member(2)])]));
    // Now is what counts, not the clock of the machine.
    let by = SystemTime::now() + Duration::from_secs(600);
    let leaves = wanted(vec![web(vec![leaving(1, by), member(2)])]);
    let seen = proxy.apply(&leaves);
    assert_eq!(member_of(&seen, "member-1").sessions, 5);
    assert_eq!(member_of(&seen, "member-1").state, MemberState::Draining);
    let seen = proxy.try_apply(&leaves, by).unwrap();
    assert_eq!(member_of(&seen, "member-1").cut, 5);
    assert!(held.iter_mut().all(Held::has_ended));
    proxy.until(&wanted(vec![web(vec![leaving(1, past()), member(2)])]), "member-1", MemberState::Removed);
}

#[test]
fn who_rests_stays_so_and_comes_back_by_its_check() {
    let lab = Lab::new();
    let backends: Vec<Backend> = lab.members.iter().map(backend).collect();
    let mut proxy = lab.proxy();
    proxy.settle(&wanted(vec![web(vec![member(1), member(2)])]));
    let by = late();
    let resting_one = wanted(vec![web(vec![resting(1, by), member(2)])]);
    proxy.until(&resting_one, "member-1", MemberState::Disabled);

    let nothing_comes = |backend: &Backend| {
        let before = backend.served();
        for _ in 0..20 {
            assert_eq!(ask(&lab.inside, V4, 80).unwrap(), "member-2");
        }
        assert_eq!(backend.served(), before);
    };
    nothing_comes(&backends[0]);
    // Across a reload.
    let more = wanted(vec![balancer(
        "web",
        &[V4, V6],
        vec![listener(80), listener(81)],
        open(),
        vec![resting(1, by), member(2)],
    )]);
    let seen = proxy.settle(&more);
    assert_eq!(member_of(&seen, "member-1").state, MemberState::Disabled);
    nothing_comes(&backends[0]);
    // Across the end of HAProxy.
    kill(proxy.process());
    eventually("it is back", || proxy.try_apply(&more, SystemTime::now()).is_ok());
    let seen = proxy.settle(&more);
    assert_eq!(member_of(&seen, "member-1").state, MemberState::Disabled);
    nothing_comes(&backends[0]);
    // Across another process of ours.
    proxy.begin();
    let seen = proxy.settle(&more);
    assert_eq!(member_of(&seen, "member-1").state, MemberState::Disabled);
    nothing_comes(&backends[0]);

    // It is told to serve while it does not answer: nothing is sent to it.
    let mut backends = backends;
    drop(backends.remove(0));
    let serve = wanted(vec![web(vec![member(1), member(2)])]);
    let seen = proxy.apply(&serve);
    assert_eq!(member_of(&seen, "member-1").state, MemberState::Adding);
    for _ in 0..20 {
        assert_eq!(ask(&lab.inside, V4, 80).unwrap(), "member-2");
    }
    let back = backend(&lab.members[0]);
    proxy.until(&serve, "member-1", MemberState::Active);
    eventually("it gets its share", || {
        ask(&lab.inside, V4, 80).unwrap();
        back.served() > 0
    });
}

#[test]
fn who_leaves_may_be_asked_to_stay() {
    let lab = Lab::new();
    let _backends: Vec<Backend> = lab.members.iter().map(backend).collect();
    let mut proxy = lab.proxy();
    let both = wanted(vec![web(vec![member(1), member(2)])]);
    proxy.settle(&wanted(vec![web(vec![member(1)])]));
    let mut held = Held::connect(&lab.inside, V4, 80).unwrap();
    assert_eq!(held.ask().unwrap(), "member-1");
    proxy.settle(&both);
    let seen = proxy.apply(&wanted(vec![web(vec![leaving(1, late()), member(2)])]));
    assert_eq!(member_of(&seen, "member-1").state, MemberState::Draining);
    let seen = proxy.apply(&both);
    assert_eq!(member_of(&seen, "member-1").state, MemberState::Active);
    assert_eq!(held.ask().unwrap(), "member-1");
    // The last one that answers goes as well, if that is wanted.
    let none = wanted(vec![web(vec![leaving(1, past()), leaving(2, past())])]);
    proxy.until(&none, "member-1", MemberState::Removed);
    assert!(held.has_ended());
    assert!(ask(&lab.inside, V4, 80).is_err());
}

pub(crate) fn kill(process: u32) {
    signal(process, nix::sys::signal::Signal::SIGKILL);
}

pub(crate) fn signal(process: u32, signal: nix::sys::signal::Signal) {
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(process.cast_signed()), signal).unwrap();
}

/// With everything in its group.
pub(crate) fn kill_group(process: u32) {
    let process = nix::unistd::Pid::from_raw(process.cast_signed());
    nix::sys::signal::killpg(process, nix::sys::signal::Signal::SIGKILL).unwrap();
}
