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
    let machine = on_bridge(ovn, "br-int", port, addresses, Some(&format!("external_ids:iface-id={port}")));
    machine.run(&format!("ip link set eth0 address {mac}"));
    ovn.nbctl(&["wait-until", "Logical_Switch_Port", port, "up=true"])
        .unwrap_or_else(|error| panic!("{error}"));
    machine
}

/// Puts a machine with these addresses on the physical network `network`, which OVN's switches with that name are on.
#[track_caller]
pub fn outside(ovn: &Ovn, network: &str, addresses: &[&str]) -> Host {
    let chassis = ovn.chassis().expect("an OVN with a chassis");
    let bridge = format!("br-{network}");
    let mapping = format!("external_ids:ovn-bridge-mappings={network}:{bridge}");
    chassis
        .vsctl(&["--may-exist", "add-br", &bridge, "--", "set", "Bridge", &bridge, "datapath_type=netdev"])
        .and_then(|_| chassis.vsctl(&["set", "Open_vSwitch", ".", &mapping]))
        .unwrap_or_else(|error| panic!("{error}"));
    on_bridge(ovn, &bridge, network, addresses, None)
}

/// A machine with a link, `eth0`, to a bridge of the chassis.
#[track_caller]
fn on_bridge(ovn: &Ovn, bridge: &str, name: &str, addresses: &[&str], set: Option<&str>) -> Host {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let chassis = ovn.chassis().expect("an OVN with a chassis");
    let machine = Host::new(name);
    let tap = format!("tap{}", NEXT.fetch_add(1, Ordering::Relaxed));
    cable(&machine, "eth0", chassis.namespace(), &tap);
    add_addresses(&machine, "eth0", addresses);
    // The userspace datapath takes packets as they are: checksums that a network card would fill in must be
    // there already, or TCP dies while ping works.
    machine.run("ethtool -K eth0 tx off");
    let mut arguments = vec!["add-port", bridge, &tap];
    arguments.extend(set.into_iter().flat_map(|set| ["--", "set", "Interface", &tap, set]));
    chassis.vsctl(&arguments).unwrap_or_else(|error| panic!("{error}"));
    machine
}
