use std::sync::Arc;

use super::{Desired, Scene, Wanted, number};
use crate::objects::{FloatingIp, Port, Router};
use crate::tables::{NAT, NOTE, ROUTER};

pub(super) fn rows(desired: &mut Desired, scene: Scene<'_>, floating_ip: Option<&Arc<FloatingIp>>) {
    let Some(floating_ip) = floating_ip else { return };
    let id = floating_ip.meta.id;
    desired.row(NOTE, id, Wanted::of(&**floating_ip));
    let (Some(router), Some(inside)) = (floating_ip.router, floating_ip.fixed_address) else { return };
    let port = floating_ip.fixed_port.and_then(|port| scene.model.get::<Port>(port));
    // An address that the port does not have may be somebody else's by now.
    let is_its = port.is_some_and(|port| port.fixed_ips.iter().any(|fixed| fixed.address == inside));
    if !is_its || scene.model.get::<Router>(router).is_none() {
        return;
    }
    let uuid = number(id, "nat");
    let row = Wanted::derived()
        .with("type", "dnat_and_snat")
        .with("external_ip", floating_ip.address.to_string())
        .with("logical_ip", inside.to_string());
    desired.row(NAT, uuid, row);
    desired.refer(ROUTER, router, "nat", uuid);
}
