//! Members that leave while they are talked to.

use std::time::{Duration, SystemTime};

use portcullis_core::{
    Duty, HealthCheck, HealthPort, Listener, ListenerProtocol, Member, MemberState, Probe, Provider as _,
    Want,
};
use portcullis_testkit::talk::{Backend, Held, Load, ask};
use portcullis_testkit::{Target, can_connect, eventually};

use crate::lab::{
    Lab, Machine, PORT, TARGET, VIP, VIP6, everyone, member, members, now, state, want, want_on, with_leaving,
};

/// A connection to who has that name.
fn held_by(client: &Machine, vip: &str, name: &str) -> Held {
    loop {
        let mut held = Held::connect(&client.host, vip, PORT).unwrap();
        if held.ask().unwrap() == name {
            return held;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn who_leaves_finishes_what_it_has_until_its_time_is_over() {
    let lab = Lab::new();
    let client = lab.machine("client", 10);
    let backends = lab.backends(2);
    let provider = lab.provider();
    lab.make(&provider, &want(members(&backends), everyone())).await;
    let mut leaving: Vec<Held> = [VIP, VIP6].map(|vip| held_by(&client, vip, "b1")).into();
    let mut staying: Vec<Held> = [VIP, VIP6].map(|vip| held_by(&client, vip, "b2")).into();
    let load = Load::start(&client.host, VIP, PORT);
    load.more(200);

    let by = SystemTime::now() + Duration::from_secs(600);
    let leaves = |by| want(with_leaving(members(&backends), "b1", by), everyone());
    let report = lab.make(&provider, &leaves(by)).await;
    assert_eq!(state(&report, "b1"), MemberState::Draining);
    let told = report.members[0].told.clone().unwrap();
    assert!(
        told.starts_with("until ") && told.ends_with("does not tell which connections are left"),
        "{told}"
    );
    let served = backends[0].1.served();
    load.more(300);
    // Those that were on their way when it left have come by now.
    let late = backends[0].1.served() - served;
    assert!(late <= 4, "{late} connections came to who left");
    for held in leaving.iter_mut().chain(&mut staying) {
        held.ask().unwrap();
    }
    // Who stays reaches itself.
    for vip in [VIP, VIP6] {
        assert_eq!(ask(&backends[1].0.host, vip, PORT).unwrap(), "b2");
    }
    // Nothing else of who left is reached by what waits for its end.
    let _other = backends[0].0.host.serve(22);
    for target in [Target::Tcp(22), Target::Udp(22), Target::Udp(PORT), Target::Icmp] {
        assert!(
            !can_connect(&client.host, VIP, target) && !can_connect(&client.host, VIP6, target),
            "{target:?}"
        );
    }

    // Its time is over.
    let report = lab.make(&provider, &leaves(SystemTime::now())).await;
    assert_eq!(state(&report, "b1"), MemberState::Removed);
    for held in &mut leaving {
        eventually("its connections are ended", || held.has_ended());
    }
    for held in &mut staying {
        assert_eq!(held.ask().unwrap(), "b2");
    }
    let (count, failures) = load.end();
    assert!(count >= 500 && failures.is_empty(), "{failures:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn who_rests_comes_back_and_who_never_served_goes_at_once() {
    let lab = Lab::new();
    let client = lab.machine("client", 10);
    let backends = lab.backends(2);
    let provider = lab.provider();
    let by = SystemTime::now() + Duration::from_secs(600);
    let all = members(&backends);
    let resting = |member: &Member| member.clone().with_duty(Duty::Rest { by });
    let report = lab.make(&provider, &roll(with_leaving(all.clone(), "b2", by))).await;
    assert_eq!(state(&report, "b2"), MemberState::Removed, "it never served");
    eventually("it serves", || state(&now(provider.sync(&roll(all.clone()))), "b2") == MemberState::Active);
    lab.settle();
    let mut held = held_by(&client, VIP, "b2");
    let report = lab.make(&provider, &roll(vec![all[0].clone(), resting(&all[1])])).await;
    assert_eq!(state(&report, "b2"), MemberState::Disabling);
    eventually("it is back", || state(&now(provider.sync(&roll(all.clone()))), "b2") == MemberState::Active);
    lab.settle();
    assert_eq!(held.ask().unwrap(), "b2", "what it has goes on");
    assert!(!lab.nbctl("list Load_Balancer").contains("left"));
}

/// A load balancer that soon finds out who is well, and is slow to find out who is not: the machine may be busy.
fn roll(members: Vec<Member>) -> Want {
    let check = HealthCheck::new(Probe::Tcp, HealthPort::Traffic).unwrap();
    let check = check.with_timing(Duration::from_secs(1), Duration::from_secs(1)).unwrap();
    let check = check.with_thresholds(1, 60).unwrap();
    let listener = Listener::new(PORT, ListenerProtocol::Tcp, TARGET).unwrap().with_health_check(check);
    want_on("web", &[VIP, VIP6], listener, members, everyone())
}

/// Three members are replaced one by one, under load.
#[tokio::test(flavor = "multi_thread")]
async fn a_roll_refuses_nobody() {
    let lab = Lab::new();
    let client = lab.machine("client", 10);
    let mut backends = lab.backends(3);
    let provider = lab.provider();
    lab.make(&provider, &roll(members(&backends))).await;
    let load = Load::start(&client.host, VIP, PORT);
    load.more(500);
    for round in 0..3u8 {
        let new = lab.machine(&format!("n{round}"), 40 + round);
        // It is a member before it answers, as machines are that start.
        let with_new = || {
            let mut all = members(&backends);
            all.push(member(&new));
            roll(all)
        };
        let report = lab.make(&provider, &with_new()).await;
        assert_eq!(state(&report, &new.name), MemberState::Adding);
        load.more(100);
        let serving = Backend::start(&new.host, TARGET);
        eventually("it is known to be well", || {
            state(&now(provider.sync(&with_new())), &new.name) == MemberState::Active
        });
        lab.settle();
        eventually("it gets connections", || serving.served() > 0);
        backends.push((new, serving));
        let old = backends[0].0.name.clone();
        let mut held = held_by(&client, VIP, &old);
        let by = SystemTime::now() + Duration::from_secs(3);
        let leaves = roll(with_leaving(members(&backends), &old, by));
        let report = lab.make(&provider, &leaves).await;
        assert_eq!(state(&report, &old), MemberState::Draining);
        load.more(300);
        if SystemTime::now() < by {
            held.ask().unwrap();
        }
        eventually("its time is over", || {
            let report = now(provider.sync(&leaves));
            state(&report, &old) == MemberState::Removed
        });
        lab.settle();
        eventually("its connection is ended", || held.has_ended());
        // It goes, with all that it had.
        drop(backends.remove(0));
        lab.make(&provider, &roll(members(&backends))).await;
        load.more(200);
    }
    assert_eq!(
        backends.iter().map(|(machine, _)| member(machine).name().to_owned()).collect::<Vec<_>>(),
        ["n0", "n1", "n2"]
    );
    let (count, failures) = load.end();
    assert!(count >= 2000 && failures.is_empty(), "{} of {count}: {failures:?}", failures.len());
}
