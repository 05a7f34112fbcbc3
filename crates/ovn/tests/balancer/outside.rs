//! A load balancer on a router, reached from a physical network and from switches behind the router.

use portcullis_core::{ListenerProtocol, MemberState, Provider as _};
use portcullis_testkit::parts::ovn::CHASSIS;
use portcullis_testkit::talk::{Backend, Held};
use portcullis_testkit::{Host, Target, can_connect, eventually, outside};

use crate::lab::{Lab, PORT, TARGET, everyone, gone, listener, member, state, want_on, with_leaving};

/// In the network outside.
const OUTER: [&str; 2] = ["172.24.4.50", "fd24::50"];

/// The router with a way out, and a machine there.
fn uplink(lab: &Lab) -> Host {
    let world = outside(&lab.ovn, "wire", &["172.24.4.1/24", "172.24.4.2/24", "fd24::1/64", "fd24::2/64"]);
    lab.nbctl("ls-add ext");
    lab.nbctl("lsp-add ext wire -- lsp-set-type wire localnet -- lsp-set-addresses wire unknown -- lsp-set-options wire network_name=wire");
    lab.nbctl("lrp-add r r-ext 02:00:00:00:00:02 172.24.4.10/24 fd24::10/64");
    lab.nbctl(&format!("lrp-set-gateway-chassis r-ext {CHASSIS}"));
    lab.nbctl("lsp-add ext ext-r -- lsp-set-type ext-r router -- lsp-set-addresses ext-r router -- lsp-set-options ext-r router-port=r-ext");
    lab.settle();
    world
}

fn on_router(members: Vec<portcullis_core::Member>, ranges: Option<&[&str]>) -> portcullis_core::Want {
    let mut want = want_on("edge", &OUTER, listener(ListenerProtocol::Tcp), members, ranges);
    // The router for who comes from outside; the switch for who is on it, whom members answer without the router.
    want.parameters.insert("portcullis.dev/ovn-routers".to_owned(), "r".to_owned());
    want
}

#[tokio::test(flavor = "multi_thread")]
async fn ranges_count_at_the_wire_and_behind_the_router() {
    let lab = Lab::new();
    let world = uplink(&lab);
    let inside = lab.machine("inside", 10);
    let server = lab.machine("b1", 21);
    let serving = server.host.serve(TARGET);
    let provider = lab.provider();
    lab.make(&provider, &on_router(vec![member(&server)], everyone())).await;
    let reaches = |host: &Host| OUTER.map(|vip| can_connect(host, vip, Target::Tcp(PORT)));
    eventually("the wire has learnt the way", || reaches(&world) == [true, true]);
    eventually("who is inside, too", || reaches(&inside.host) == [true, true]);
    for (ranges, outer, inner) in [
        (Some(&["172.24.4.1/32", "fd24::/64"][..]), [true, true], [false, false]),
        (Some(&["172.24.4.1/32"]), [true, false], [false, false]),
        (Some(&["10.0.0.0/24", "fd00::/64"]), [false, false], [true, true]),
        (Some(&[]), [false, false], [false, false]),
        (everyone(), [true, true], [true, true]),
    ] {
        lab.make(&provider, &on_router(vec![member(&server)], ranges)).await;
        // Packets of flows that the switch has just seen may pass for a moment after it was told otherwise.
        eventually(&format!("{ranges:?} are in force"), || {
            (reaches(&world), reaches(&inside.host)) == (outer, inner)
        });
    }
    drop(serving);

    // Who is in stays, and who leaves is cut off at its time.
    let _talking = Backend::start(&server.host, TARGET);
    let other = lab.machine("b2", 22);
    let _other = Backend::start(&other.host, TARGET);
    let mut held = OUTER.map(|vip| {
        let mut held = Held::connect(&world, vip, PORT).unwrap();
        held.ask().unwrap();
        held
    });
    let nobody: Option<&[&str]> = Some(&[]);
    lab.make(&provider, &on_router(vec![member(&server), member(&other)], nobody)).await;
    eventually("nobody gets in", || reaches(&world) == [false, false]);
    for held in &mut held {
        assert_eq!(held.ask().unwrap(), "b1");
    }
    let leaves = |seconds| {
        let by = std::time::SystemTime::now() + std::time::Duration::from_secs(seconds);
        on_router(with_leaving(vec![member(&server), member(&other)], "b1", by), nobody)
    };
    let report = lab.make(&provider, &leaves(600)).await;
    assert_eq!(state(&report, "b1"), MemberState::Draining);
    for held in &mut held {
        assert_eq!(held.ask().unwrap(), "b1");
    }
    let report = lab.make(&provider, &leaves(0)).await;
    assert_eq!(state(&report, "b1"), MemberState::Removed);
    for held in &mut held {
        eventually("it is ended", || held.has_ended());
    }
    provider.sync(&gone("edge")).await;
    assert_eq!(lab.rows().trim(), "");
}
