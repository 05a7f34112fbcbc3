use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use portcullis_core::{Cidr, Family};
use portcullis_ovsdb::Datum;
use uuid::Uuid;

use super::{Desired, Scene, Wanted, network, number, subnet};
use crate::Mac;
use crate::acl::NOBODY;
use crate::objects::{Ipv6Mode, Network, Port, Router, Subnet};
use crate::tables::{
    DHCP_OPTIONS, GATEWAY_CHASSIS, NOTE, PORT_GROUP, ROUTER, ROUTER_PORT, SWITCH, SWITCH_PORT,
};

pub(super) fn rows(desired: &mut Desired, scene: Scene<'_>, port: Option<&Arc<Port>>) {
    let Some(port) = port else { return };
    let id = port.meta.id;
    if port.is_floating_ip() {
        // It keeps an address from being given to another, and nothing is ever plugged in.
        return desired.row(NOTE, id, Wanted::of(&**port));
    }
    let mut row = Wanted::of(&**port)
        .with("name", id.to_string())
        .with("enabled", port.admin_state_up)
        .with_set("port_security", guard(scene, port));
    if let Some(router) = port.router() {
        row =
            row.with("type", "router").with_set("addresses", ["router"]).map("options", router_options(port));
        router_port(desired, scene, port, router);
    } else {
        row = row.with("type", "").with_set("addresses", addresses(port)).map("options", options(port));
    }
    for (column, family) in [("dhcpv4_options", Family::V4), ("dhcpv6_options", Family::V6)] {
        let dhcp = dhcp(desired, scene, port, family);
        row = row.with(column, dhcp.map_or(Datum::EMPTY, Datum::from));
    }
    desired.row(SWITCH_PORT, id, row);
    desired.refer(SWITCH, port.network, "ports", id);
    if port.port_security {
        desired.refer(PORT_GROUP, network::deny_group(port.network), "ports", id);
    }
    for group in &port.security_groups {
        desired.refer(PORT_GROUP, *group, "ports", id);
    }
}

fn with_addresses(mac: Mac, addresses: impl Iterator<Item = String>) -> String {
    std::iter::once(mac.to_string()).chain(addresses).collect::<Vec<_>>().join(" ")
}

fn own(port: &Port) -> impl Iterator<Item = String> + '_ {
    port.fixed_ips.iter().map(|fixed| fixed.address.to_string())
}

/// Where the switch sends what is for the port.
fn addresses(port: &Port) -> Vec<String> {
    let mut addresses = vec![with_addresses(port.mac, own(port))];
    // Whose address is taken over by another machine of a cluster may have a hardware address of its own.
    let others: BTreeSet<Mac> = port.address_pairs.iter().filter_map(|pair| pair.mac).collect();
    addresses.extend(others.into_iter().filter(|mac| *mac != port.mac).map(|mac| mac.to_string()));
    if !port.port_security {
        // It may speak for others, so it also gets what nobody is known for.
        addresses.push("unknown".to_owned());
    }
    addresses
}

/// In whose name the port may speak.
fn guard(scene: Scene<'_>, port: &Port) -> Vec<String> {
    if !port.port_security || port.router().is_some() {
        return Vec::new();
    }
    let mut names: BTreeMap<Mac, Vec<String>> = BTreeMap::from([(port.mac, own(port).collect())]);
    for pair in &port.address_pairs {
        // OVN takes no bits beyond the prefix.
        let address = match pair.address.parse::<Cidr>() {
            Ok(range) if range.prefix_len() < range.family().bits() => range.network().to_string(),
            _ => pair.address.clone(),
        };
        names.entry(pair.mac.unwrap_or(port.mac)).or_default().push(address);
    }
    // To OVN a hardware address alone has all addresses. Where there are some to be had, who has none speaks as nobody.
    if scene.model.subnets_of_network(port.network).next().is_some() {
        for addresses in names.values_mut().filter(|addresses| addresses.is_empty()) {
            addresses.extend(NOBODY.map(|address| address.to_string()));
        }
    }
    names.into_iter().map(|(mac, addresses)| with_addresses(mac, addresses.into_iter())).collect()
}

fn options(port: &Port) -> BTreeMap<String, String> {
    let host = (!port.host.is_empty()).then(|| ("requested-chassis".to_owned(), port.host.clone()));
    host.into_iter().collect()
}

fn router_options(port: &Port) -> BTreeMap<String, String> {
    let mut options = BTreeMap::from([("router-port".to_owned(), router_port_name(port.meta.id))]);
    if port.device_owner == Port::ROUTER_GATEWAY {
        // It answers for the floating addresses as well.
        options.insert("nat-addresses".to_owned(), "router".to_owned());
    }
    options
}

/// The name of the router's end of a port.
pub(super) fn router_port_name(port: Uuid) -> String {
    format!("lrp-{port}")
}

/// The row with what the port's machine learns by DHCP.
fn dhcp(desired: &mut Desired, scene: Scene<'_>, port: &Port, family: Family) -> Option<Uuid> {
    if port.device_owner.starts_with("network:") {
        return None;
    }
    let subnets = port.fixed_ips.iter().filter_map(|fixed| scene.model.get::<Subnet>(fixed.subnet));
    let subnet = subnets.filter(|subnet| subnet.family() == family).find(|subnet| subnet.dhcp)?;
    let own: Vec<_> = port.dhcp_options.iter().filter(|option| option.version == family).collect();
    if own.is_empty() {
        return Some(subnet.meta.id);
    }
    let mut options = subnet::dhcp_options(scene, subnet)?;
    for option in own {
        if let Some((name, value)) = crate::dhcp::option(family, &option.name, &option.value) {
            options.insert(name, value);
        }
    }
    let uuid = number(port.meta.id, &format!("dhcp {family}"));
    let row = Wanted::derived().with("cidr", subnet.cidr.to_string()).map("options", options);
    desired.row(DHCP_OPTIONS, uuid, row);
    Some(uuid)
}

/// The router's end.
fn router_port(desired: &mut Desired, scene: Scene<'_>, port: &Port, router: Uuid) {
    let model = scene.model;
    let networks = port.fixed_ips.iter().filter_map(|fixed| {
        let subnet = model.get::<Subnet>(fixed.subnet)?;
        Some(format!("{}/{}", fixed.address, subnet.cidr.prefix_len()))
    });
    let networks: Vec<String> = networks.collect();
    // Without an address there is nothing for a router to be in the network.
    if model.get::<Router>(router).is_none() || networks.is_empty() {
        return;
    }
    let uuid = number(port.meta.id, "router");
    let mut row = Wanted::derived()
        .with("name", router_port_name(port.meta.id))
        .with("mac", port.mac.to_string())
        .with_set("networks", networks)
        .map("ipv6_ra_configs", advertisements(scene, port));
    if port.device_owner == Port::ROUTER_GATEWAY {
        let mut chosen = Vec::new();
        for (place, chassis) in scene.options.gateway_chassis.iter().enumerate() {
            let number = number(uuid, chassis);
            let priority = scene.options.gateway_chassis.len() - place;
            let gateway = Wanted::derived()
                .with("name", format!("{}_{chassis}", router_port_name(port.meta.id)))
                .with("chassis_name", chassis.as_str())
                .with("priority", i64::try_from(priority).unwrap_or(1));
            desired.row(GATEWAY_CHASSIS, number, gateway);
            chosen.push(number);
        }
        row = row.with_set("gateway_chassis", chosen);
    }
    desired.row(ROUTER_PORT, uuid, row);
    desired.refer(ROUTER, router, "ports", uuid);
}

/// How the router tells IPv6 hosts of itself, if it is to.
fn advertisements(scene: Scene<'_>, port: &Port) -> BTreeMap<String, String> {
    let model = scene.model;
    let subnets = port.fixed_ips.iter().filter_map(|fixed| model.get::<Subnet>(fixed.subnet));
    let Some(subnet) = subnets.into_iter().find(|subnet| subnet.ipv6_ra_mode.is_some()) else {
        return BTreeMap::new();
    };
    let mode = match subnet.ipv6_ra_mode {
        Some(Ipv6Mode::Dhcpv6Stateful) => "dhcpv6_stateful",
        Some(Ipv6Mode::Dhcpv6Stateless) => "dhcpv6_stateless",
        _ => "slaac",
    };
    let mtu = model.get::<Network>(port.network).map_or(1442, |network| network.mtu);
    [("address_mode", mode.to_owned()), ("send_periodic", "true".to_owned()), ("mtu", mtu.to_string())]
        .into_iter()
        .map(|(key, value)| (key.to_owned(), value))
        .collect()
}
