//! Who may connect.

use portcullis_core::{Admission, MemberState};
use portcullis_haproxy::Wanted;
use portcullis_testkit::eventually;

use crate::lab::{
    Lab, Proxy, V4, V6, admission, backend, balancer, late, leaving, listener, member, member_of, open,
    wanted,
};
use portcullis_testkit::talk::{Backend, Held, ask};
use std::time::SystemTime;

fn with(admission: Admission) -> Wanted {
    wanted(vec![balancer("web", &[V4, V6], vec![listener(80), listener(81)], admission, vec![member(1)])])
}

#[test]
fn ranges_are_kept_to_by_family() {
    let lab = Lab::new();
    let _backend = backend(&lab.members[0]);
    // An address of 6to4 has one of IPv4 in it, and an IPv4 client is in ::/0 as HAProxy reads it.
    lab.outside.run("ip address add 2002:c000:020a::1/48 dev to-machine");
    lab.machine.run("ip route add 2002:c000:020a::/48 dev to-outside");
    let mut proxy = lab.proxy();
    let (inside, outside) = (&lab.inside, &lab.outside);
    for (ranges, may) in [
        (None, [true, true, true, true]),
        (Some(&["192.0.2.0/24"][..]), [true, false, false, false]),
        (Some(&["192.0.2.0/24", "2001:db8:2::/64"]), [true, false, false, true]),
        (Some(&["::/0"]), [false, false, true, true]),
        (Some(&["0.0.0.0/0"]), [true, true, false, false]),
        (Some(&[]), [false, false, false, false]),
        (Some(&["192.0.2.10/32", "198.51.100.10/32", "2001:db8:1::10/128"]), [true, true, true, false]),
        (None, [true, true, true, true]),
    ] {
        proxy.settle(&with(admission(ranges)));
        let tried = [(inside, V4), (outside, V4), (inside, V6), (outside, V6)];
        for port in [80, 81] {
            assert_eq!(tried.map(|(from, to)| ask(from, to, port).is_ok()), may, "{ranges:?}");
        }
    }
    proxy.settle(&with(admission(Some(&["192.0.2.0/24"]))));
    lab.outside.run("ip route replace 2001:db8:1::1/128 via 2001:db8:2::1 src 2002:c000:020a::1");
    assert!(ask(outside, V6, 80).is_err());
    proxy.settle(&with(admission(Some(&["2002::/16"]))));
    assert!(ask(outside, V6, 80).is_ok());
}

#[test]
fn ranges_change_at_once_and_held_connections_stay() {
    let lab = Lab::new();
    let _backend = backend(&lab.members[0]);
    let mut proxy = lab.proxy();
    proxy.settle(&with(admission(Some(&["192.0.2.0/24", "198.51.100.0/24"]))));
    let (process, workers) = (proxy.process(), proxy.workers());
    let mut held = Held::connect(&lab.outside, V4, 80).unwrap();
    assert_eq!(held.ask().unwrap(), "member-1");

    let many: Vec<String> = (0..200).map(|number| format!("10.9.{number}.0/24")).collect();
    let mut list: Vec<&str> = many.iter().map(String::as_str).collect();
    list.push("192.0.2.0/24");
    let seen = proxy.settle(&with(admission(Some(&list))));
    let before = seen.balancers.values().next().unwrap().totals.denied;
    assert!(ask(&lab.outside, V4, 80).is_err());
    assert_eq!(ask(&lab.inside, V4, 80).unwrap(), "member-1");
    assert_eq!(held.ask().unwrap(), "member-1");
    assert_eq!((proxy.process(), proxy.workers()), (process, workers), "there was a reload");
    let seen = proxy.look();
    assert_eq!(seen.balancers.values().next().unwrap().totals.denied, before + 1);

    // The file has them, too: a reload, and another process of ours, change nothing.
    let mut more = with(admission(Some(&list)));
    more.balancers.push(balancer("other", &[V4], vec![listener(90)], open(), vec![member(1)]));
    proxy.settle(&more);
    assert!(ask(&lab.outside, V4, 80).is_err());
    proxy.begin();
    let workers = proxy.workers();
    proxy.settle(&more);
    assert_eq!(proxy.workers(), workers);
    assert!(ask(&lab.outside, V4, 80).is_err());

    // What a process of ours wrote into the file before it ended is made so by the next.
    std::fs::write(proxy.path("ranges/shop:web.v4"), "198.51.100.0/24\n").unwrap();
    proxy.begin();
    let turned = |more: &Wanted| {
        let mut turned = more.clone();
        turned.balancers[0] = with(admission(Some(&["198.51.100.0/24"]))).balancers.remove(0);
        turned
    };
    proxy.settle(&turned(&more));
    assert!(ask(&lab.inside, V4, 80).is_err());
    assert_eq!(ask(&lab.outside, V4, 80).unwrap(), "member-1");
    // Files of what is gone are gone.
    proxy.settle(&wanted(vec![]));
    assert_eq!(std::fs::read_dir(proxy.path("ranges")).unwrap().count(), 0);
}

/// A user that is not there, or a full disk, is no reason to let in whom nobody lets in any more, nor to send to who leaves.
#[test]
fn ranges_become_narrower_and_members_leave_whatever_is_wrong_with_the_file() {
    type Wrong = fn(&Proxy, &mut Wanted);
    let wrongs: [(&str, Wrong); 4] = [
        ("HAProxy refuses it", |_, wanted| wanted.tuning.user = Some("nobody-of-this-name".to_owned())),
        ("it cannot be written", |proxy, _| {
            std::fs::create_dir(proxy.path("haproxy.cfg.new")).unwrap();
        }),
        ("a new one cannot be written", |proxy, wanted| {
            std::fs::create_dir(proxy.path("haproxy.cfg.draft")).unwrap();
            wanted.balancers.push(balancer("web-2", &[V4], vec![listener(90)], open(), vec![member(1)]));
        }),
        ("ranges cannot be written", |proxy, _| {
            std::fs::create_dir(proxy.path("ranges/shop:web.v4.new")).unwrap();
        }),
    ];
    let lab = Lab::new();
    let _backends: Vec<Backend> = lab.members.iter().map(backend).collect();
    for (what, wrong) in wrongs {
        let web = |ranges: &[&str], members| {
            wanted(vec![balancer("web", &[V4], vec![listener(80)], admission(Some(ranges)), members)])
        };
        let mut proxy = lab.proxy();
        proxy.settle(&web(&["192.0.2.0/24", "198.51.100.0/24"], vec![member(1), member(2)]));
        assert!(ask(&lab.outside, V4, 80).is_ok());
        let mut changed = web(&["192.0.2.0/24", "203.0.113.0/24"], vec![leaving(1, late()), member(2)]);
        wrong(&proxy, &mut changed);
        let refused = |proxy: &mut Proxy| {
            assert!(proxy.try_apply(&changed, SystemTime::now()).is_err(), "{what}");
        };
        refused(&mut proxy);
        assert!(ask(&lab.outside, V4, 80).is_err(), "{what}");
        for _ in 0..4 {
            assert_eq!(ask(&lab.inside, V4, 80).unwrap(), "member-2", "{what}");
        }
        eventually("it is gone", || {
            refused(&mut proxy);
            member_of(&proxy.look(), "member-1").state == MemberState::Removed
        });
        assert_eq!(ask(&lab.inside, V4, 80).unwrap(), "member-2", "{what}");
        proxy.stop();
    }
}
