//! Who gets connections.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use portcullis_core::{ListenerProtocol, MemberState, Outcome, Provider as _};
use portcullis_testkit::talk::{Backend, Load, ask};
use portcullis_testkit::{Target, connect, eventually};

use crate::lab::{
    Lab, PORT, TARGET, VIP, VIP6, everyone, gone, listener, member, members, now, quick_listener, state,
    want_on,
};

#[tokio::test(flavor = "multi_thread")]
async fn clients_are_spread_over_those_that_answer() {
    let lab = Lab::new();
    let client = lab.machine("client", 10);
    let mut backends = lab.backends(3);
    let provider = lab.provider();
    let wanted = want_on("web", &[VIP, VIP6], quick_listener(), members(&backends), everyone());
    assert!(!provider.is_settled(&wanted));
    let report = lab.make(&provider, &wanted).await;
    assert_eq!(report.addresses[0].to_string(), VIP);
    let all: BTreeSet<String> = ["b1", "b2", "b3"].map(str::to_owned).into();
    for vip in [VIP, VIP6] {
        let mut seen = BTreeSet::new();
        eventually("all get connections", || {
            seen.insert(ask(&client.host, vip, PORT).unwrap());
            seen == all
        });
    }
    // One of them reaches itself, too.
    let mut seen = BTreeSet::new();
    eventually("a member reaches all", || {
        seen.insert(ask(&backends[0].0.host, VIP, PORT).unwrap());
        seen == all
    });

    // Who answered its check is told as that.
    for name in &all {
        lab.until(&provider, &wanted, name, MemberState::Active);
    }
    // A check may be late, and is news then.
    eventually("nothing is left to do", || {
        now(provider.sync(&wanted));
        provider.is_settled(&wanted)
    });

    // The one that stops answering gets nothing new, and it is said.
    drop(backends.remove(1).1);
    eventually("it is known", || {
        let looked = now(provider.look_at_all()).unwrap();
        !looked.is_empty()
    });
    let report = lab.until(&provider, &wanted, "b2", MemberState::Adding);
    assert_eq!(state(&report, "b1"), MemberState::Active);
    eventually("it gets nothing", || (0..40).all(|_| ask(&client.host, VIP, PORT).is_ok()));
    for _ in 0..100 {
        assert_ne!(ask(&client.host, VIP, PORT).unwrap(), "b2");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn udp_is_carried_and_who_has_no_member_hears_so() {
    let lab = Lab::new();
    let client = lab.machine("client", 10);
    let server = lab.machine("b1", 21);
    let _serving = server.host.serve(TARGET);
    let provider = lab.provider();
    let both = || listener(ListenerProtocol::TcpUdp);
    lab.make(&provider, &want_on("dns", &[VIP, VIP6], both(), vec![member(&server)], everyone())).await;
    for target in [Target::Tcp(PORT), Target::Udp(PORT)] {
        eventually("it answers", || connect(&client.host, VIP, target).as_deref() == Ok("10.0.0.10"));
        eventually("by IPv6, too", || connect(&client.host, VIP6, target).as_deref() == Ok("fd00::a"));
    }
    lab.make(&provider, &want_on("dns", &[VIP], both(), Vec::new(), everyone())).await;
    let refused = Err(portcullis_testkit::Failure::Refused);
    eventually("it is refused", || connect(&client.host, VIP, Target::Tcp(PORT)) == refused);
    assert_eq!(provider.sync(&gone("dns")).await.outcome, Outcome::Done);
    assert_eq!(lab.rows().trim(), "");
}

/// Checks may fail of all at once, for a reason that clients do not have.
#[tokio::test(flavor = "multi_thread")]
async fn if_nobody_answers_its_check_clients_are_not_turned_away() {
    let lab = Lab::new();
    let client = lab.machine("client", 10);
    let backends = lab.backends(2);
    let provider = lab.provider();
    let wanted = |members| want_on("web", &[VIP, VIP6], quick_listener(), members, everyone());
    let both = wanted(members(&backends));
    lab.make(&provider, &both).await;
    eventually("they are well", || lab.sbctl("list Service_Monitor").matches("online").count() == 4);
    let deaf = |machine: &crate::lab::Machine| {
        let rules = ["ip saddr != 10.0.0.10", "ip6 saddr != { fd00::a, fe80::/10 }"]
            .map(|others| format!("{others} tcp dport {TARGET} drop;"));
        machine.host.nft(&format!(
            "table inet deaf {{ chain in {{ type filter hook input priority 0; {} }}; }}",
            rules.concat()
        ));
    };
    for (machine, _) in &backends {
        deaf(machine);
    }
    // One that never answered is not let in by that.
    let new = lab.machine("b3", 23);
    deaf(&new);
    let serving = Backend::start(&new.host, TARGET);
    let mut three = members(&backends);
    three.push(member(&new));
    let three = wanted(three);
    let open = "No member of listener 443 answers its check: those that serve get connections nevertheless.";
    let mut told = Vec::new();
    eventually("it is said", || {
        let report = now(provider.sync(&three));
        told.extend(report.told);
        told.iter().any(|told| told == open)
    });
    lab.settle();
    let report = provider.sync(&three).await;
    let message = "it does not answer on tcp 6443; it gets connections, since nobody does";
    assert_eq!((state(&report, "b1"), crate::lab::told(&report, "b1")), (MemberState::Adding, message));
    assert_eq!(state(&report, "b3"), MemberState::Adding);
    eventually("both families get through", || {
        now(provider.sync(&three));
        [VIP, VIP6].iter().all(|vip| ask(&client.host, vip, PORT).is_ok())
    });
    let load = Load::start(&client.host, VIP, PORT);
    // For longer than it takes OVN to ask again.
    let until = Instant::now() + Duration::from_secs(5);
    while Instant::now() < until {
        assert_eq!(provider.sync(&three).await.outcome, Outcome::Done);
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    load.until(100);
    let (count, failures) = load.end();
    assert!(failures.is_empty(), "{} of {count}: {failures:?}", failures.len());
    assert_eq!(serving.served(), 0, "it never answered");

    // One answers again, and it alone gets connections.
    backends[0].0.host.run("nft delete table inet deaf");
    lab.until(&provider, &three, "b1", MemberState::Active);
    lab.settle();
    eventually("it alone gets them", || {
        now(provider.sync(&three));
        (0..20).all(|_| ask(&client.host, VIP, PORT).is_ok_and(|name| name == "b1"))
    });
}
