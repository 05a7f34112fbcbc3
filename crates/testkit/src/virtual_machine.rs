use std::sync::atomic::{AtomicU32, Ordering};

use portcullis_parts::Namespace;
use portcullis_parts::ovn::Ovn;

use crate::Host;
use crate::lab::{add_addresses, cable};

/// Starts an OVN of its own, with a switch that carries packets.
#[track_caller]
pub fn ovn() -> Ovn {
    let directory = crate::directory("ovn");
    Namespace::new("ovn")
        .and_then(|namespace| Ovn::start(&directory, &directory, Some(namespace)))
        .unwrap_or_else(|error| panic!("{error}"))
}

/// Plugs a machine into OVN as the logical port `port`, which must exist, with this hardware address and these
/// addresses.
#[track_caller]
pub fn plug(ovn: &Ovn, port: &str, mac: &str, addresses: &[&str]) -> Host {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let chassis = ovn.chassis().expect("an OVN with a chassis");
    let machine = Host::new(port);
    let tap = format!("tap{}", NEXT.fetch_add(1, Ordering::Relaxed));
    cable(&machine, "eth0", chassis.namespace(), &tap);
    machine.run(&format!("ip link set eth0 address {mac}"));
    add_addresses(&machine, "eth0", addresses);
    // The userspace datapath takes packets as they are: checksums that a network card would fill in must be
    // there already, or TCP dies while ping works.
    machine.run("ethtool -K eth0 tx off");
    let iface = format!("external_ids:iface-id={port}");
    chassis
        .vsctl(&["add-port", "br-int", &tap, "--", "set", "Interface", &tap, &iface])
        .and_then(|_| ovn.nbctl(&["wait-until", "Logical_Switch_Port", port, "up=true"]))
        .unwrap_or_else(|error| panic!("{error}"));
    machine
}
