use std::sync::Arc;

use portcullis_core::Family;

use super::{Desired, Scene, Wanted, number, port};
use crate::objects::{Port, Router, Subnet};
use crate::tables::{NAT, ROUTER, STATIC_ROUTE};

pub(super) fn rows(desired: &mut Desired, scene: Scene<'_>, router: Option<&Arc<Router>>) {
    let Some(router) = router else { return };
    let id = router.meta.id;
    let row =
        Wanted::of(&**router).with("name", router.meta.name.as_str()).with("enabled", router.admin_state_up);
    desired.row(ROUTER, id, row);
    for route in &router.routes {
        let uuid = number(id, &format!("route {} {}", route.destination.network(), route.nexthop));
        let row = Wanted::derived()
            .with("ip_prefix", route.destination.network().to_string())
            .with("nexthop", route.nexthop.to_string());
        desired.row(STATIC_ROUTE, uuid, row);
        desired.refer(ROUTER, id, "static_routes", uuid);
    }
    gateway(desired, scene, router);
}

/// The way out, and in whose name.
fn gateway(desired: &mut Desired, scene: Scene<'_>, router: &Router) {
    let Some(gateway) = &router.gateway else { return };
    let id = router.meta.id;
    let outside = scene.model.get::<Port>(gateway.port).filter(|port| port.router() == Some(id));
    let Some(outside) = outside else { return };
    for fixed in &outside.fixed_ips {
        let nexthop = scene.model.get::<Subnet>(fixed.subnet).and_then(|subnet| subnet.gateway);
        let Some(nexthop) = nexthop else { continue };
        let everything = match Family::of(nexthop) {
            Family::V4 => "0.0.0.0/0",
            Family::V6 => "::/0",
        };
        let uuid = number(id, &format!("default {nexthop}"));
        // Two subnets outside may have the same way on.
        if desired.rows.contains_key(&(STATIC_ROUTE, uuid)) {
            continue;
        }
        let row = Wanted::derived()
            .with("ip_prefix", everything)
            .with("nexthop", nexthop.to_string())
            .with("output_port", port::router_port_name(outside.meta.id));
        desired.row(STATIC_ROUTE, uuid, row);
        desired.refer(ROUTER, id, "static_routes", uuid);
    }
    let address = outside.fixed_ips.iter().map(|fixed| fixed.address).find(std::net::IpAddr::is_ipv4);
    let (true, Some(address)) = (gateway.snat, address) else { return };
    let inside = scene.model.ports_of_router(id).filter(|port| port.device_owner == Port::ROUTER_INTERFACE);
    for fixed in inside.flat_map(|port| &port.fixed_ips) {
        let Some(subnet) = scene.model.get::<Subnet>(fixed.subnet) else { continue };
        let uuid = number(id, &format!("snat {}", subnet.meta.id));
        // Two interfaces in one subnet speak in the same name.
        if subnet.family() == Family::V6 || desired.rows.contains_key(&(NAT, uuid)) {
            continue;
        }
        let row = Wanted::derived()
            .with("type", "snat")
            .with("external_ip", address.to_string())
            .with("logical_ip", subnet.cidr.network().to_string());
        desired.row(NAT, uuid, row);
        desired.refer(ROUTER, id, "nat", uuid);
    }
}
