use portcullis_testkit::{Failure, Host, Target, can_connect, connect, eventually, link};

/// Two clients in different networks, joined to a server by a router.
struct Lab {
    router: Host,
    near: Host,
    far: Host,
    server: Host,
}

fn lab() -> Lab {
    let [router, near, far, server] = ["router", "near", "far", "server"].map(Host::new);
    link(&near, &["192.0.2.10/24", "2001:db8:1::10/64"], &router, &["192.0.2.1/24", "2001:db8:1::1/64"]);
    link(&far, &["198.51.100.10/24"], &router, &["198.51.100.1/24"]);
    link(
        &server,
        &["203.0.113.10/24", "2001:db8:3::10/64"],
        &router,
        &["203.0.113.1/24", "2001:db8:3::1/64"],
    );
    router.forward();
    near.default_route("192.0.2.1");
    near.default_route("2001:db8:1::1");
    far.default_route("198.51.100.1");
    server.default_route("203.0.113.1");
    server.default_route("2001:db8:3::1");
    Lab { router, near, far, server }
}

#[test]
fn packets_cross_a_router_and_keep_their_source() {
    let lab = lab();
    let _serving = lab.server.serve(8080);
    assert_eq!(connect(&lab.near, "203.0.113.10", Target::Tcp(8080)).as_deref(), Ok("192.0.2.10"));
    assert_eq!(connect(&lab.near, "203.0.113.10", Target::Udp(8080)).as_deref(), Ok("192.0.2.10"));
    assert_eq!(connect(&lab.near, "2001:db8:3::10", Target::Tcp(8080)).as_deref(), Ok("2001:db8:1::10"));
    assert_eq!(connect(&lab.near, "2001:db8:3::10", Target::Udp(8080)).as_deref(), Ok("2001:db8:1::10"));
    assert!(can_connect(&lab.near, "203.0.113.10", Target::Icmp));
    assert!(can_connect(&lab.near, "2001:db8:3::10", Target::Icmp));
}

const FILTER: &str = "
table inet lab {
    chain forward {
        type filter hook forward priority 0
        ip saddr 198.51.100.0/24 drop
    }
}
";

#[test]
fn one_may_connect_and_the_other_may_not() {
    let lab = lab();
    let _serving = lab.server.serve(8080);
    eventually("before there is a filter far connects", || {
        can_connect(&lab.far, "203.0.113.10", Target::Tcp(8080))
    });
    lab.router.nft(FILTER);
    for target in [Target::Tcp(8080), Target::Udp(8080), Target::Icmp] {
        eventually("near connects", || can_connect(&lab.near, "203.0.113.10", target));
        assert_eq!(connect(&lab.far, "203.0.113.10", target), Err(Failure::TimedOut), "{target:?} from far");
    }
}

#[test]
fn a_probe_tells_dropped_from_refused_from_lost() {
    let lab = lab();
    assert_eq!(connect(&lab.near, "203.0.113.10", Target::Tcp(9)), Err(Failure::Refused));
    assert_eq!(connect(&lab.near, "203.0.113.10", Target::Udp(9)), Err(Failure::Refused));
    assert_eq!(connect(&Host::new("alone"), "203.0.113.10", Target::Tcp(9)), Err(Failure::Unreachable));
}
