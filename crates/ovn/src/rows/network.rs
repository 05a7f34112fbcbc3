use std::sync::Arc;

use portcullis_core::{Direction, Family};
use portcullis_ovsdb::Datum;
use uuid::Uuid;

use super::{Desired, Scene, Wanted, number};
use crate::acl::{ALLOW, DROP, deny_name, of_ports, pipeline};
use crate::objects::Network;
use crate::tables::{ACL, PORT_GROUP, SWITCH, SWITCH_PORT};

pub(super) fn rows(desired: &mut Desired, scene: Scene<'_>, network: Option<&Arc<Network>>) {
    let Some(network) = network else { return };
    let id = network.meta.id;
    desired.row(SWITCH, id, Wanted::of(&**network).with("name", network.meta.name.as_str()));
    if let Some(physical) = &network.physical {
        let port = number(id, "localnet");
        let row = Wanted::derived()
            .with("name", format!("physical-{id}"))
            .with("type", "localnet")
            .with_set("addresses", ["unknown"])
            .with("tag", network.vlan.map_or(Datum::EMPTY, |vlan| i64::from(vlan).into()))
            .entry("options", "network_name", physical);
        desired.row(SWITCH_PORT, port, row);
        desired.refer(SWITCH, id, "ports", port);
    }
    if scene.model.has_protected_port(id) {
        deny(desired, scene, id);
    }
}

/// The group of the filtered ports of a network.
pub(super) fn deny_group(network: Uuid) -> Uuid {
    number(network, "deny")
}

/// What no rule allows is dropped; only what a port needs to have an address at all passes by itself.
fn deny(desired: &mut Desired, scene: Scene<'_>, network: Uuid) {
    let group = deny_group(network);
    let name = deny_name(network);
    desired.row(PORT_GROUP, group, Wanted::derived().with("name", name.as_str()));
    let mut acl = |role: &str, direction: Direction, what: &str, priority: i64, action: &str| {
        let uuid = number(network, role);
        let row = Wanted::derived()
            .with("direction", pipeline(direction))
            .with("priority", priority)
            .with("match", format!("{} && {what}", of_ports(direction, &name)))
            .with("action", action);
        desired.row(ACL, uuid, row);
        desired.refer(PORT_GROUP, group, "acls", uuid);
    };
    acl("deny-ingress", Direction::Ingress, "ip", DROP, "drop");
    acl("deny-egress", Direction::Egress, "ip", DROP, "drop");
    let mut has = [false, false];
    for subnet in scene.model.subnets_of_network(network) {
        has[usize::from(subnet.family() == Family::V6)] |= subnet.dhcp;
    }
    // OVN itself answers these, after the ACLs were asked.
    if has[0] {
        let request = "ip4 && ip4.dst == 255.255.255.255 && udp && udp.src == 68 && udp.dst == 67";
        acl("dhcp4", Direction::Egress, request, ALLOW, "allow-stateless");
    }
    if has[1] {
        let request = "ip6 && ip6.dst == ff02::1:2 && udp && udp.src == 546 && udp.dst == 547";
        acl("dhcp6", Direction::Egress, request, ALLOW, "allow-stateless");
    }
    // Without these there is no IPv6 at all. OVN 23.03 lets them pass by itself, older versions only where a rule is stateful.
    acl("neighbours-out", Direction::Egress, "(nd || nd_rs)", ALLOW, "allow-stateless");
    acl("neighbours-in", Direction::Ingress, "(nd || nd_ra)", ALLOW, "allow-stateless");
}
