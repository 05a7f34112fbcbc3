use portcullis_testkit::{Target, can_connect, eventually, ovn, plug};

const A: (&str, &str, &str) = ("a", "02:00:00:00:00:0a", "10.0.0.10/24");
const B: (&str, &str, &str) = ("b", "02:00:00:00:00:0b", "10.0.0.11/24");

#[test]
fn an_acl_drops_and_another_allows() {
    let ovn = ovn();
    ovn.nbctl(&["ls-add", "net"]).unwrap();
    for (port, mac, address) in [A, B] {
        let addresses = format!("{mac} {}", address.trim_end_matches("/24"));
        ovn.nbctl(&["lsp-add", "net", port, "--", "lsp-set-addresses", port, &addresses]).unwrap();
    }
    let [a, b] = [A, B].map(|(port, mac, address)| plug(&ovn, port, mac, &[address]));
    let _serving = [b.serve(22), b.serve(23)];
    ovn.settle().unwrap();
    for target in [Target::Icmp, Target::Tcp(22), Target::Tcp(23), Target::Udp(23)] {
        eventually("without any rule everything passes", || can_connect(&a, "10.0.0.11", target));
    }

    ovn.nbctl(&["pg-add", "web", "b"]).unwrap();
    ovn.nbctl(&["acl-add", "web", "to-lport", "1000", "outport == @web && ip", "drop"]).unwrap();
    ovn.nbctl(&["acl-add", "web", "to-lport", "1002", "outport == @web && tcp.dst == 22", "allow-related"])
        .unwrap();
    ovn.settle().unwrap();
    eventually("tcp 22 is allowed", || can_connect(&a, "10.0.0.11", Target::Tcp(22)));
    for target in [Target::Icmp, Target::Tcp(23), Target::Udp(23)] {
        // For a moment the switch does as it did for packets of before.
        eventually(&format!("{target:?} is dropped"), || !can_connect(&a, "10.0.0.11", target));
    }
}

#[test]
fn two_of_them_know_nothing_of_each_other() {
    let [one, other] = [ovn(), ovn()];
    one.nbctl(&["ls-add", "net"]).unwrap();
    assert!(one.nbctl(&["ls-list"]).unwrap().contains("(net)"));
    assert_eq!(other.nbctl(&["ls-list"]).unwrap(), "");
}
