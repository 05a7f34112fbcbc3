//! Who may connect.

use portcullis_core::{Enforcement, ListenerProtocol, Provider as _};
use portcullis_testkit::talk::Held;
use portcullis_testkit::{Target, can_connect, eventually};

use crate::lab::{Lab, Machine, PORT, TARGET, VIP, VIP6, everyone, listener, member, now, want_on};

/// Which of both addresses a machine reaches.
fn reaches(machine: &Machine, target: Target) -> [bool; 2] {
    [VIP, VIP6].map(|vip| can_connect(&machine.host, vip, target))
}

#[tokio::test(flavor = "multi_thread")]
async fn only_ranges_get_in_and_who_is_in_stays() {
    let lab = Lab::new();
    let (one, two) = (lab.machine("one", 10), lab.machine("two", 11));
    let server = lab.machine("b1", 21);
    let _serving = server.host.serve(TARGET);
    let talking = lab.machine("b2", 22);
    let _talking = portcullis_testkit::talk::Backend::start(&talking.host, TARGET);
    let provider = lab.provider();
    let both = || listener(ListenerProtocol::TcpUdp);
    let wanted = |ranges| want_on("web", &[VIP, VIP6], both(), vec![member(&server)], ranges);
    let (tcp, udp) = (Target::Tcp(PORT), Target::Udp(PORT));

    for (ranges, of_one, of_two) in [
        (everyone(), [true, true], [true, true]),
        (Some(&["10.0.0.10/32"][..]), [true, false], [false, false]),
        (Some(&["10.0.0.11/32", "fd00::a/128"]), [false, true], [true, false]),
        (Some(&["10.0.0.0/28", "fd00::/124"]), [true, true], [true, true]),
        (Some(&[]), [false, false], [false, false]),
        (Some(&["0.0.0.0/0"]), [true, false], [true, false]),
        (everyone(), [true, true], [true, true]),
    ] {
        let report = lab.make(&provider, &wanted(ranges)).await;
        assert_eq!(report.enforcement, Some(Enforcement::By("OVN ACLs".to_owned())));
        for target in [tcp, udp] {
            // Packets of flows that the switch has just seen may pass for a moment after it was told otherwise.
            eventually(&format!("{ranges:?} are in force"), || {
                (reaches(&one, target), reaches(&two, target)) == (of_one, of_two)
            });
        }
        assert!(now(provider.look_at_all()).unwrap().is_empty(), "{ranges:?}");
    }

    // Those that are in stay when they would not be let in any more.
    let talks = |ranges| want_on("web", &[VIP, VIP6], both(), vec![member(&talking)], ranges);
    lab.make(&provider, &talks(everyone())).await;
    let mut held = [VIP, VIP6].map(|vip| Held::connect(&one.host, vip, PORT).unwrap());
    lab.make(&provider, &talks(Some(&[]))).await;
    for held in &mut held {
        assert_eq!(held.ask().unwrap(), "b2");
    }
    eventually("nobody gets in", || reaches(&one, tcp) == [false, false]);
}

#[tokio::test(flavor = "multi_thread")]
async fn many_ranges_are_no_burden() {
    let lab = Lab::new();
    let (one, two) = (lab.machine("one", 10), lab.machine("two", 11));
    let server = lab.machine("b1", 21);
    let _serving = server.host.serve(TARGET);
    let ranges: Vec<String> =
        (0..200).map(|number| format!("10.{}.{}.0/24", number / 10 + 1, number * 7 % 256)).collect();
    let ranges: Vec<&str> = ranges.iter().map(String::as_str).chain(["10.0.0.10/32"]).collect();
    let provider = lab.provider();
    let wanted =
        want_on("web", &[VIP, VIP6], listener(ListenerProtocol::Tcp), vec![member(&server)], Some(&ranges));
    lab.make(&provider, &wanted).await;
    let all = || (reaches(&one, Target::Tcp(PORT)), reaches(&two, Target::Tcp(PORT)));
    eventually("they are in force", || all() == ([true, false], [false, false]));
}
