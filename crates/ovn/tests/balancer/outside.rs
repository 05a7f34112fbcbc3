//! A load balancer on a router, reached from a physical network and from switches behind the router.

use std::net::UdpSocket;
use std::time::Duration;

use portcullis_core::{Enforcement, ListenerProtocol, MemberState, Provider as _};
use portcullis_testkit::parts::Namespace;
use portcullis_testkit::parts::ovn::CHASSIS;
use portcullis_testkit::talk::{Backend, Held, ask};
use portcullis_testkit::{Failure, Host, Target, can_connect, connect, eventually, outside, plug};

use crate::lab::{
    Lab, PORT, TARGET, VIP, everyone, gone, listener, member, now, state, want_on, with_leaving,
};

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
    lab.until(&provider, &leaves(0), "b1", MemberState::Removed);
    for held in &mut held {
        assert!(held.has_ended(), "it is ended");
    }
    provider.sync(&gone("edge")).await;
    assert_eq!(lab.rows().trim(), "");
}

/// A machine on a switch of its own, behind a router.
fn behind(lab: &Lab, router: &str, name: &str, number: u8) -> Host {
    let (mac, gateway) = (format!("02:00:00:00:09:{number:02x}"), format!("02:00:00:00:08:{number:02x}"));
    lab.nbctl(&format!("ls-add {name}"));
    lab.nbctl(&format!("lrp-add {router} {router}-{name} {gateway} 10.{number}.0.1/24"));
    lab.nbctl(&format!(
        "lsp-add {name} {name}-r -- lsp-set-type {name}-r router -- lsp-set-addresses {name}-r router -- lsp-set-options {name}-r router-port={router}-{name}"
    ));
    let port = format!("{name}-1");
    lab.nbctl(&format!("lsp-add {name} {port}"));
    lab.ovn.nbctl(&["lsp-set-addresses", &port, &format!("{mac} 10.{number}.0.2")]).unwrap();
    let host = plug(&lab.ovn, &port, &mac, &[&format!("10.{number}.0.2/24")]);
    host.default_route(&format!("10.{number}.0.1"));
    host
}

/// Switches count that are not on the router itself, and that come later.
#[tokio::test(flavor = "multi_thread")]
async fn ranges_count_on_every_way_to_a_router() {
    let lab = Lab::new();
    // All that comes to such a router is balanced, whatever it comes by.
    lab.nbctl(&format!("set Logical_Router r options:chassis={CHASSIS}"));
    let server = lab.machine("b1", 21);
    let _serving = server.host.serve(TARGET);
    lab.nbctl("lr-add far");
    lab.nbctl(&format!("set Logical_Router far options:chassis={CHASSIS}"));
    let afar = behind(&lab, "far", "away", 7);
    lab.nbctl("lrp-add r r-far 02:00:00:00:07:01 172.30.0.1/30 peer=far-r");
    lab.nbctl("lrp-add far far-r 02:00:00:00:07:02 172.30.0.2/30 peer=r-far");
    lab.nbctl("lr-route-add far 0.0.0.0/0 172.30.0.1");
    lab.nbctl("lr-route-add r 10.7.0.0/24 172.30.0.2");
    lab.settle();
    let provider = lab.provider();
    let wanted = |ranges| {
        let both = listener(ListenerProtocol::TcpUdp);
        let mut wanted = want_on("edge", &[OUTER[0]], both, vec![member(&server)], ranges);
        wanted.parameters.insert("portcullis.dev/ovn-switches".to_owned(), String::new());
        wanted.parameters.insert("portcullis.dev/ovn-routers".to_owned(), "r".to_owned());
        wanted
    };
    let reaches = |host: &Host| can_connect(host, OUTER[0], Target::Tcp(PORT));
    lab.make(&provider, &wanted(everyone())).await;
    eventually("all get there", || reaches(&afar));
    let flow = Namespace::run(&afar, || UdpSocket::bind("0.0.0.0:0").unwrap());
    flow.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
    flow.connect((OUTER[0], PORT)).unwrap();
    let answers = || {
        flow.send(b"?").unwrap();
        flow.recv(&mut [0; 64]).is_ok()
    };
    eventually("datagrams, too", answers);
    let closed = wanted(Some(&["192.0.2.0/24"]));
    let report = lab.make(&provider, &closed).await;
    assert_eq!(report.enforcement, Some(Enforcement::By("OVN ACLs".to_owned())));
    eventually("who is behind a router that is joined directly does not", || !reaches(&afar));
    eventually("datagrams are cut", || !answers());

    // A switch that comes later is closed with the next look.
    let late = behind(&lab, "r", "late", 8);
    eventually("it is open, and seen", || now(provider.look_at_all()).unwrap() == [closed.owner.clone()]);
    lab.make(&provider, &closed).await;
    eventually("it is closed", || !reaches(&late));
    lab.make(&provider, &wanted(Some(&["10.8.0.0/24"]))).await;
    eventually("who may gets there", || reaches(&late) && !reaches(&afar));
}

/// A switch that has the load balancer keeps no connections of what comes from a router: of these every packet has the address
/// that ranges are asked for.
#[tokio::test(flavor = "multi_thread")]
async fn who_came_by_a_router_on_a_switch_that_has_it_stays() {
    let lab = Lab::new();
    lab.nbctl(&format!("set Logical_Router r options:chassis={CHASSIS}"));
    lab.nbctl("lr-add far");
    let afar = behind(&lab, "far", "away", 7);
    lab.nbctl("ls-add join");
    for (router, number) in [("r", 1), ("far", 2)] {
        lab.nbctl(&format!("lrp-add {router} {router}-join 02:00:00:00:07:0{number} 172.30.0.{number}/24"));
        lab.nbctl(&format!(
            "lsp-add join join-{router} -- lsp-set-type join-{router} router -- lsp-set-addresses join-{router} router -- lsp-set-options join-{router} router-port={router}-join"
        ));
    }
    lab.nbctl("lr-route-add far 0.0.0.0/0 172.30.0.1");
    lab.nbctl("lr-route-add r 10.7.0.0/24 172.30.0.2");
    let server = lab.machine("b1", 21);
    let _talking = Backend::start(&server.host, TARGET);
    let provider = lab.provider();
    let wanted = |ranges| {
        let mut wanted =
            want_on("edge", &[VIP], listener(ListenerProtocol::Tcp), vec![member(&server)], ranges);
        wanted.parameters.insert("portcullis.dev/ovn-switches".to_owned(), "join".to_owned());
        wanted.parameters.insert("portcullis.dev/ovn-routers".to_owned(), "r".to_owned());
        wanted
    };
    lab.make(&provider, &wanted(everyone())).await;
    eventually("it gets there", || ask(&afar, VIP, PORT).is_ok());
    let mut held = Held::connect(&afar, VIP, PORT).unwrap();
    held.ask().unwrap();
    lab.make(&provider, &wanted(Some(&[]))).await;
    eventually("nobody gets in", || connect(&afar, VIP, Target::Tcp(PORT)) == Err(Failure::TimedOut));
    assert_eq!(held.ask().unwrap(), "b1", "who is in stays");
}
