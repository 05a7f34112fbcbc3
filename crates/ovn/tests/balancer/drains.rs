//! Members that leave while they are talked to.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

use nix::sys::signal::Signal;
use portcullis_core::{
    Duty, HealthCheck, HealthPort, Listener, ListenerProtocol, Member, MemberState, Outcome, Probe,
    Provider as _, Want,
};
use portcullis_testkit::parts::Namespace;
use portcullis_testkit::talk::{Backend, Held, Load, ask};
use portcullis_testkit::{Target, can_connect, eventually};

use crate::lab::{
    Lab, Machine, PORT, TARGET, VIP, VIP6, answer, everyone, listener, member, members, now, state, told,
    want, want_on, with_leaving,
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
    let until = told(&report, "b1");
    assert!(
        until.starts_with("until ") && until.ends_with("does not tell which connections are left"),
        "{until}"
    );
    // Those that were on their way when it left come first.
    eventually("no connections come to who left", || {
        let served = backends[0].1.served();
        load.more(300);
        backends[0].1.served() == served
    });
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
    let report = lab.until(&provider, &leaves(SystemTime::now()), "b1", MemberState::Removed);
    assert_eq!(told(&report, "b1"), "");
    for held in &mut leaving {
        assert!(held.has_ended(), "when it is told, it is so");
    }
    for held in &mut staying {
        assert_eq!(held.ask().unwrap(), "b2");
    }
    let (count, failures) = load.end();
    assert!(count >= 500 && failures.is_empty(), "{failures:?}");
}

/// As when another provider has taken its place.
#[tokio::test(flavor = "multi_thread")]
async fn all_who_leave_at_once_finish_what_they_have() {
    let lab = Lab::new();
    let client = lab.machine("client", 10);
    let backends = lab.backends(2);
    let provider = lab.provider();
    lab.make(&provider, &want(members(&backends), everyone())).await;
    let one_to_each = |vip| ["b1", "b2"].map(|name| (name, held_by(&client, vip, name)));
    let mut held: Vec<(&str, Held)> = [VIP, VIP6].into_iter().flat_map(one_to_each).collect();

    let leave = |by| {
        let members = with_leaving(members(&backends), "b1", by);
        want(with_leaving(members, "b2", by), everyone())
    };
    let report = lab.make(&provider, &leave(SystemTime::now() + Duration::from_secs(600))).await;
    for name in ["b1", "b2"] {
        assert_eq!(state(&report, name), MemberState::Draining);
    }
    for vip in [VIP, VIP6] {
        eventually("nobody new comes", || ask(&client.host, vip, PORT).is_err());
    }
    for (name, held) in &mut held {
        assert_eq!(held.ask().unwrap(), *name);
    }
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
    let mut held: Vec<Held> = (0..12).map(|_| held_by(&client, VIP, "b2")).collect();
    let report = lab.make(&provider, &roll(vec![all[0].clone(), resting(&all[1])])).await;
    assert_eq!(state(&report, "b2"), MemberState::Disabling);
    // OVN would send one that it has lost to the same one again as long as there are the same ones. So there is another one.
    let third = lab.machine("b3", 33);
    let _third = Backend::start(&third.host, TARGET);
    let mut all = all;
    all.push(member(&third));
    lab.until(&provider, &roll(all.clone()), "b2", MemberState::Active);
    lab.until(&provider, &roll(all.clone()), "b3", MemberState::Active);
    for held in &mut held {
        assert_eq!(held.ask().unwrap(), "b2", "what it has goes on");
    }
    assert!(!lab.nbctl("list Load_Balancer").contains("left"));

    // While it is back another one leaves, whose connections end, and its own do not.
    let mut other: Vec<Held> = (0..12).map(|_| held_by(&client, VIP, "b1")).collect();
    let leaves = |by| roll(with_leaving(all.clone(), "b1", by));
    lab.make(&provider, &leaves(by)).await;
    lab.until(&provider, &leaves(SystemTime::now()), "b1", MemberState::Removed);
    assert!(other.iter_mut().all(Held::has_ended), "those of who left are ended");
    for held in &mut held {
        assert_eq!(held.ask().unwrap(), "b2", "what it has goes on");
    }
    // And then it leaves for good, and the first one is there again.
    let last = roll(with_leaving(all.clone(), "b2", SystemTime::now()));
    lab.until(&provider, &last, "b2", MemberState::Removed);
    assert!(held.iter_mut().all(Held::has_ended), "and are ended now");
}

/// Answers each packet with its name, until it is dropped.
struct Echo(Arc<AtomicBool>);

impl Echo {
    fn start(machine: &Machine) -> Self {
        let any: SocketAddr = ([0u16; 8], TARGET).into();
        let socket = Namespace::run(&machine.host, || UdpSocket::bind(any).unwrap());
        socket.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
        let (stop, name) = (Arc::new(AtomicBool::new(false)), machine.name.clone());
        let stopped = Arc::clone(&stop);
        std::thread::spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                if let Ok((_, from)) = socket.recv_from(&mut [0; 64]) {
                    let _ = socket.send_to(name.as_bytes(), from);
                }
            }
        });
        Echo(stop)
    }
}

impl Drop for Echo {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// One farewell is for all protocols.
#[tokio::test(flavor = "multi_thread")]
async fn datagrams_go_to_another_one_when_the_time_is_over() {
    let lab = Lab::new();
    let client = lab.machine("client", 10);
    let machines = [lab.machine("b1", 21), lab.machine("b2", 22)];
    let _echoes: Vec<Echo> = machines.iter().map(Echo::start).collect();
    let provider = lab.provider();
    let all: Vec<Member> = machines.iter().map(member).collect();
    let wanted = |members| {
        let listener = Listener::new(PORT, ListenerProtocol::TcpUdp, TARGET).unwrap();
        want_on("dns", &[VIP, VIP6], listener, members, everyone())
    };
    lab.make(&provider, &wanted(all.clone())).await;
    let flow = |vip: &str| {
        let vip: IpAddr = vip.parse().unwrap();
        let any: IpAddr = if vip.is_ipv4() { [0; 4].into() } else { [0u16; 8].into() };
        let mut found = None;
        eventually("one of them is with it", || {
            let socket = Namespace::run(&client.host, || UdpSocket::bind((any, 0)).unwrap());
            socket.connect((vip, PORT)).unwrap();
            found = (answer(&socket).as_deref() == Some("b1")).then_some(socket);
            found.is_some()
        });
        found.unwrap()
    };
    let flows = [VIP, VIP6].map(flow);
    let leaves = |by| wanted(with_leaving(all.clone(), "b1", by));
    lab.make(&provider, &leaves(SystemTime::now() + Duration::from_secs(600))).await;
    for flow in &flows {
        assert_eq!(answer(flow).as_deref(), Some("b1"), "what it has goes on");
    }
    lab.until(&provider, &leaves(SystemTime::now()), "b1", MemberState::Removed);
    for flow in &flows {
        eventually("another one answers", || answer(flow).as_deref() == Some("b2"));
    }
}

/// Only when the switch does what was decided, somebody is said to be out.
#[tokio::test(flavor = "multi_thread")]
async fn nobody_is_said_to_be_out_before_the_switches_know() {
    let mut lab = Lab::new();
    let client = lab.machine("client", 10);
    let backends = lab.backends(3);
    let provider = lab.provider();
    let all = members(&backends);
    lab.make(&provider, &want(all.clone(), everyone())).await;
    let mut held = held_by(&client, VIP, "b1");
    let far = SystemTime::now() + Duration::from_secs(600);
    lab.make(&provider, &want(with_leaving(all.clone(), "b1", far), everyone())).await;

    lab.controller(Signal::SIGSTOP);
    let first = want(with_leaving(all.clone(), "b1", SystemTime::now()), everyone());
    eventually("its time is over", || {
        let report = now(provider.sync(&first));
        assert_eq!(state(&report, "b1"), MemberState::Draining);
        told(&report, "b1").ends_with("not every chassis has heard of it")
    });
    // Once more, and at once: a chassis that says nothing is waited for no longer than 10 s.
    assert_eq!(state(&provider.sync(&first).await, "b1"), MemberState::Draining);
    assert_eq!(held.ask().unwrap(), "b1", "it is not out");
    lab.controller(Signal::SIGCONT);
    lab.until(&provider, &first, "b1", MemberState::Removed);
    // Where the machine takes longer than that to go on, it is told that nobody knows, until it is known.
    eventually("the chassis has heard of it", || told(&now(provider.sync(&first)), "b1").is_empty());
    assert!(held.has_ended());

    // One that is gone for good is not waited for without end.
    lab.controller(Signal::SIGSTOP);
    let since = Instant::now();
    let both = with_leaving(with_leaving(all, "b1", SystemTime::now()), "b2", SystemTime::now());
    let second = want(both, everyone());
    let mut report = provider.sync(&second).await;
    assert_eq!((state(&report, "b1"), state(&report, "b2")), (MemberState::Removed, MemberState::Draining));
    while state(&report, "b2") != MemberState::Removed {
        assert!(since.elapsed() < Duration::from_secs(60));
        tokio::time::sleep(Duration::from_millis(200)).await;
        report = provider.sync(&second).await;
    }
    assert!(since.elapsed() >= Duration::from_secs(10));
    assert!(told(&report, "b2").starts_with("a chassis does not say"), "{report:?}");
    lab.controller(Signal::SIGCONT);
}

/// A process ends while somebody leaves, and another one goes on.
#[tokio::test(flavor = "multi_thread")]
async fn another_process_goes_on_with_who_leaves() {
    let lab = Lab::new();
    let client = lab.machine("client", 10);
    let backends = lab.backends(2);
    let all = members(&backends);
    let leaves = |by| want(with_leaving(all.clone(), "b1", by), everyone());
    let first = lab.provider();
    lab.make(&first, &want(all.clone(), everyone())).await;
    let mut held: Vec<Held> = [VIP, VIP6].map(|vip| held_by(&client, vip, "b1")).into();
    let by = SystemTime::now() + Duration::from_secs(600);
    lab.make(&first, &leaves(by)).await;
    let rows = lab.nbctl("list Load_Balancer");
    drop(first);

    let second = lab.provider();
    let report = lab.make(&second, &leaves(by)).await;
    assert_eq!(state(&report, "b1"), MemberState::Draining);
    assert_eq!(lab.nbctl("list Load_Balancer"), rows, "nothing is to be done");
    for held in &mut held {
        assert_eq!(held.ask().unwrap(), "b1", "what it has goes on");
    }
    // Its time is over, and the process that ended it does not live to say so.
    let over = leaves(SystemTime::now());
    eventually("it is ended", || {
        assert_eq!(now(second.sync(&over)).outcome, Outcome::Done);
        !lab.nbctl("list Load_Balancer").contains("farewell")
    });
    drop(second);
    let third = lab.provider();
    lab.until(&third, &over, "b1", MemberState::Removed);
    assert!(held.iter_mut().all(Held::has_ended));
}

/// OVN ends only what it has heard of.
#[tokio::test(flavor = "multi_thread")]
async fn who_has_no_time_to_leave_is_cut_off_all_the_same() {
    let lab = Lab::new();
    let client = lab.machine("client", 10);
    let backends = lab.backends(2);
    let provider = lab.provider();
    let all = members(&backends);
    lab.make(&provider, &want(all.clone(), everyone())).await;
    let mut held: Vec<Held> = [VIP, VIP6].map(|vip| held_by(&client, vip, "b1")).into();
    let leaves = want(with_leaving(all, "b1", SystemTime::now()), everyone());
    lab.until(&provider, &leaves, "b1", MemberState::Removed);
    assert!(held.iter_mut().all(Held::has_ended));
}

/// While something is in the way of a load balancer members leave it, and nobody comes.
#[tokio::test(flavor = "multi_thread")]
async fn members_leave_while_something_is_in_the_way() {
    let lab = Lab::new();
    let client = lab.machine("client", 10);
    let backends = lab.backends(3);
    let provider = lab.provider();
    let all = members(&backends);
    let wanted = want(all[..2].to_vec(), everyone());
    lab.make(&provider, &wanted).await;
    lab.until(&provider, &wanted, "b2", MemberState::Active);
    let mut held: Vec<Held> = [VIP, VIP6].map(|vip| held_by(&client, vip, "b1")).into();
    let blocked = |by| {
        let mut wanted = want(with_leaving(all.clone(), "b1", by), everyone());
        wanted.parameters.insert("portcullis.dev/ovn-switches".to_owned(), "sw,nowhere".to_owned());
        wanted
    };
    let far = SystemTime::now() + Duration::from_secs(600);
    let report = provider.sync(&blocked(far)).await;
    let Outcome::Blocked(problem) = &report.outcome else { panic!("{report:?}") };
    assert!(problem.what.ends_with("there is no logical switch `nowhere`."), "{problem}");
    assert_eq!(
        ["b1", "b2", "b3"].map(|name| state(&report, name)),
        [MemberState::Draining, MemberState::Active, MemberState::Adding]
    );
    lab.settle();
    // Packets like those that the switch has just seen may go where those went for a moment after it was told otherwise.
    eventually("nobody new comes to who leaves", || {
        (0..20).all(|_| ask(&client.host, VIP, PORT).unwrap() == "b2")
    });
    for _ in 0..50 {
        assert_eq!(ask(&client.host, VIP, PORT).unwrap(), "b2");
    }
    for held in &mut held {
        assert_eq!(held.ask().unwrap(), "b1", "what it has goes on");
    }
    let report = lab.until(&provider, &blocked(SystemTime::now()), "b1", MemberState::Removed);
    assert!(matches!(report.outcome, Outcome::Blocked(_)));
    assert!(held.iter_mut().all(Held::has_ended));
    assert_eq!(ask(&client.host, VIP6, PORT).unwrap(), "b2");
    // It is gone, and all goes on.
    lab.nbctl("ls-add nowhere");
    let free = blocked(SystemTime::now());
    eventually("it is known", || now(provider.look_at_all()).unwrap() == [free.owner.clone()]);
    assert_eq!(provider.sync(&free).await.outcome, Outcome::Done);
}

/// Without a sight of OVN nobody comes, and who serves goes on.
#[tokio::test(flavor = "multi_thread")]
async fn nobody_is_added_without_a_sight_of_ovn() {
    let lab = Lab::new();
    let client = lab.machine("client", 10);
    let mut backends = lab.backends(1);
    let first = lab.provider();
    lab.make(&first, &roll(members(&backends))).await;
    drop(first);
    // It never serves, and would be sent to if nobody asked.
    let dead = lab.machine("dead", 31);
    let new = lab.machine("b2", 32);
    let answering = Backend::start(&new.host, TARGET);
    backends.push((new, answering));
    let mut all = members(&backends);
    all.push(member(&dead));
    let real = lab.southbound();
    let path = real.with_file_name("away.sock");
    let provider = lab.provider_with(&format!("unix:{}", path.display()));
    let report = lab.make(&provider, &roll(all.clone())).await;
    assert_eq!(
        ["b1", "b2", "dead"].map(|name| state(&report, name)),
        [MemberState::Active, MemberState::Adding, MemberState::Adding]
    );
    assert!(told(&report, "dead").ends_with("the southbound database cannot be reached"), "{report:?}");
    for _ in 0..40 {
        assert_eq!(ask(&client.host, VIP, PORT).unwrap(), "b1");
    }
    // Members leave all the same.
    let by = SystemTime::now() + Duration::from_secs(600);
    let report = lab.make(&provider, &roll(with_leaving(all.clone(), "b1", by))).await;
    assert_eq!(state(&report, "b1"), MemberState::Draining);
    lab.make(&provider, &roll(all.clone())).await;
    // It is back.
    std::os::unix::fs::symlink(real, &path).unwrap();
    lab.until(&provider, &roll(all.clone()), "b2", MemberState::Active);
    let report = provider.sync(&roll(all)).await;
    assert_eq!(
        (state(&report, "dead"), told(&report, "dead")),
        (MemberState::Adding, "it has not answered its check yet")
    );
}

/// One that starts waits for both databases before it says anything.
#[tokio::test(flavor = "multi_thread")]
async fn both_databases_are_waited_for_at_the_start() {
    let lab = Lab::new();
    let backends = lab.backends(1);
    let first = lab.provider();
    lab.make(&first, &roll(members(&backends))).await;
    eventually("it is well", || lab.sbctl("list Service_Monitor").contains("online"));
    drop(first);
    let real = lab.southbound();
    let path = real.with_file_name("late.sock");
    let provider = lab.provider_with(&format!("unix:{}", path.display()));
    let opened = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(500));
        std::os::unix::fs::symlink(real, path).unwrap();
    });
    let report = provider.sync(&roll(members(&backends))).await;
    assert_eq!((state(&report, "b1"), told(&report, "b1")), (MemberState::Active, ""));
    opened.join().unwrap();
}

/// A load balancer that soon finds out who is well, and is slow to find out who is not: the machine may be busy.
fn roll(members: Vec<Member>) -> Want {
    let check = HealthCheck::new(Probe::Tcp, HealthPort::Traffic).unwrap();
    let check = check.with_timing(Duration::from_secs(1), Duration::from_secs(1)).unwrap();
    let check = check.with_thresholds(1, 60).unwrap();
    let listener = Listener::new(PORT, ListenerProtocol::Tcp, TARGET).unwrap().with_health_check(check);
    want_on("web", &[VIP, VIP6], listener, members, everyone())
}

/// A load balancer with the checks that everybody has who says nothing.
fn usual(members: Vec<Member>) -> Want {
    want_on("web", &[VIP, VIP6], listener(ListenerProtocol::Tcp), members, everyone())
}

/// Three members are replaced one by one, under load.
#[tokio::test(flavor = "multi_thread")]
async fn a_roll_refuses_nobody() {
    let lab = Lab::new();
    let client = lab.machine("client", 10);
    let mut backends = lab.backends(3);
    let provider = lab.provider();
    lab.make(&provider, &usual(members(&backends))).await;
    let load = Load::start(&client.host, VIP, PORT);
    load.more(500);
    for round in 0..3u8 {
        let new = lab.machine(&format!("n{round}"), 40 + round);
        // It is a member before it answers, as machines are that start.
        let with_new = || {
            let mut all = members(&backends);
            all.push(member(&new));
            usual(all)
        };
        let report = lab.make(&provider, &with_new()).await;
        assert_eq!(state(&report, &new.name), MemberState::Adding);
        load.more(100);
        let serving = Backend::start(&new.host, TARGET);
        lab.until(&provider, &with_new(), &new.name, MemberState::Active);
        eventually("it gets connections", || serving.served() > 0);
        backends.push((new, serving));
        let old = backends[0].0.name.clone();
        let mut held = held_by(&client, VIP, &old);
        let leaves = |seconds| {
            let by = SystemTime::now() + Duration::from_secs(seconds);
            usual(with_leaving(members(&backends), &old, by))
        };
        let report = lab.make(&provider, &leaves(600)).await;
        assert_eq!(state(&report, &old), MemberState::Draining);
        load.more(300);
        assert_eq!(held.ask().unwrap(), old, "what it has goes on");
        lab.until(&provider, &leaves(0), &old, MemberState::Removed);
        assert!(held.has_ended(), "its connection is ended");
        // It goes, with all that it had.
        drop(backends.remove(0));
        lab.make(&provider, &usual(members(&backends))).await;
        load.more(200);
    }
    assert_eq!(
        backends.iter().map(|(machine, _)| member(machine).name().to_owned()).collect::<Vec<_>>(),
        ["n0", "n1", "n2"]
    );
    let (count, failures) = load.end();
    assert!(count >= 2000 && failures.is_empty(), "{} of {count}: {failures:?}", failures.len());
}
