//! What rows objects become, column by column.

use std::net::IpAddr;

use portcullis_core::Family;
use serde_json::{Value, json};
use uuid::Uuid;

use super::{Desired, Scene, Wanted};
use crate::model::{Model, Stored};
use crate::objects::{
    AddressPair, DhcpOption, FixedIp, FloatingIp, Gateway, Ipv6Mode, Meta, Network, Port, Route, Router,
    Subnet,
};
use crate::tables::{ACL, DHCP_OPTIONS, GATEWAY_CHASSIS, NAT, ROUTER_PORT, STATIC_ROUTE, SWITCH_PORT};
use crate::{Mac, Options};

fn meta(number: u128) -> Meta {
    Meta { id: Uuid::from_u128(number), ..Meta::default() }
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn mac(last: u8) -> Mac {
    format!("02:00:00:00:00:{last:02x}").parse().unwrap()
}

const NETWORK: u128 = 1;
const SUBNET: u128 = 2;
const PORT: u128 = 3;
const ROUTER: u128 = 4;

fn network() -> Network {
    Network { meta: meta(NETWORK), mtu: 1400, ..Network::default() }
}

fn subnet() -> Subnet {
    Subnet {
        meta: meta(SUBNET),
        network: network().meta.id,
        cidr: "10.0.0.0/24".parse().unwrap(),
        gateway: Some(ip("10.0.0.1")),
        ..Subnet::default()
    }
}

fn port() -> Port {
    let fixed = FixedIp { subnet: subnet().meta.id, address: ip("10.0.0.5") };
    Port {
        meta: meta(PORT),
        network: network().meta.id,
        mac: mac(5),
        fixed_ips: vec![fixed],
        ..Port::default()
    }
}

/// What the database is to hold, of what some objects need.
struct Rows(Desired);

impl Rows {
    fn new(objects: impl FnOnce(&mut Model)) -> Self {
        let mut model = Model::default();
        objects(&mut model);
        let options = Options {
            gateway_chassis: vec!["first".into(), "second".into()],
            dhcp_lease: 3600,
            dns_domain: "example.org".into(),
        };
        Rows(Desired::all(Scene { model: &model, options: &options }))
    }

    fn all(&self, table: &str) -> Vec<(Uuid, &Wanted)> {
        let rows = self.0.rows.iter().filter(|((name, _), _)| *name == table);
        rows.map(|((_, uuid), row)| (*uuid, row)).collect()
    }

    /// A column of the only row of a table.
    #[track_caller]
    fn only(&self, table: &str, column: &str) -> Value {
        let [(_, row)] = self.all(table)[..] else { panic!("{table}: {:#?}", self.0.rows) };
        cell(row, column)
    }

    /// Columns of all rows of a table, in order.
    fn each(&self, table: &str, columns: &[&str]) -> Vec<Vec<Value>> {
        let mut rows: Vec<Vec<Value>> = self
            .all(table)
            .into_iter()
            .map(|(_, row)| columns.iter().map(|column| cell(row, column)).collect())
            .collect();
        rows.sort_by_key(|row| format!("{row:?}"));
        rows
    }

    fn refers(&self, table: &str, row: u128, column: &str) -> usize {
        let is_it = |reference: &&super::Reference| {
            reference.table == table && reference.row == Uuid::from_u128(row) && reference.column == column
        };
        self.0.references.iter().filter(is_it).count()
    }
}

fn cell(row: &Wanted, column: &str) -> Value {
    match (row.columns.get(column), row.maps.get(column)) {
        (Some(value), _) => json!(value),
        (_, Some(entries)) => json!(entries),
        _ => Value::Null,
    }
}

fn put<T: Stored>(model: &mut Model, object: T) {
    model.put(object);
}

#[test]
fn a_network_on_a_wire_has_a_port_to_it() {
    let rows = Rows::new(|model| {
        put(model, Network { physical: Some("wire".into()), vlan: Some(7), ..network() });
    });
    assert_eq!(rows.only(SWITCH_PORT, "type"), "localnet");
    assert_eq!(rows.only(SWITCH_PORT, "tag"), 7);
    assert_eq!(rows.only(SWITCH_PORT, "options"), json!({"network_name": "wire"}));
    assert_eq!(rows.only(SWITCH_PORT, "addresses"), "unknown");
    assert_eq!(rows.refers("Logical_Switch", NETWORK, "ports"), 1);

    let untagged = Rows::new(|model| put(model, Network { physical: Some("wire".into()), ..network() }));
    assert_eq!(untagged.only(SWITCH_PORT, "tag"), json!(["set", []]));
    assert!(Rows::new(|model| put(model, network())).all(SWITCH_PORT).is_empty());
}

#[test]
fn a_subnet_says_what_dhcp_tells() {
    let v4 = Subnet {
        dns_nameservers: vec!["192.0.2.53".into(), "2001:db8::53".into(), "192.0.2.54".into()],
        host_routes: vec![Route { destination: "198.51.100.0/24".parse().unwrap(), nexthop: ip("10.0.0.9") }],
        ..subnet()
    };
    let rows = Rows::new(|model| {
        put(model, network());
        put(model, v4.clone());
    });
    assert_eq!(rows.only(DHCP_OPTIONS, "cidr"), "10.0.0.0/24");
    let mut options = rows.only(DHCP_OPTIONS, "options");
    assert!(options["server_mac"].take().as_str().unwrap().starts_with("02:70:63:"));
    assert_eq!(
        options,
        json!({
            "server_id": "10.0.0.1", "server_mac": null, "lease_time": "3600", "mtu": "1400", "router": "10.0.0.1",
            "dns_server": "{192.0.2.53, 192.0.2.54}", "domain_name": "\"example.org\"",
            "classless_static_route": "{198.51.100.0/24,10.0.0.9, 0.0.0.0/0,10.0.0.1}",
        })
    );

    let alone = Subnet { gateway: None, host_routes: Vec::new(), ..v4.clone() };
    let rows = Rows::new(|model| {
        put(model, Network { dns_domain: "inside.".into(), ..network() });
        put(model, alone);
    });
    let options = rows.only(DHCP_OPTIONS, "options");
    assert_eq!(options["server_id"], "10.0.0.1", "somebody has to be the server");
    assert_eq!((&options["router"], &options["domain_name"]), (&Value::Null, &json!("\"inside\"")));

    let off = Rows::new(|model| {
        put(model, network());
        put(model, Subnet { dhcp: false, ..v4 });
    });
    assert_eq!(off.only(DHCP_OPTIONS, "options"), json!({}));
}

#[test]
fn a_subnet_of_ipv6_tells_addresses_only_if_it_is_to() {
    for (mode, stateless) in [
        (Some(Ipv6Mode::Dhcpv6Stateful), Value::Null),
        (Some(Ipv6Mode::Dhcpv6Stateless), json!("true")),
        (Some(Ipv6Mode::Slaac), json!("true")),
    ] {
        let rows = Rows::new(|model| {
            put(model, network());
            let cidr = "2001:db8::/64".parse().unwrap();
            let dns = vec!["2001:db8::53".to_owned()];
            put(
                model,
                Subnet { cidr, gateway: None, dns_nameservers: dns, ipv6_address_mode: mode, ..subnet() },
            );
        });
        let options = rows.only(DHCP_OPTIONS, "options");
        assert_eq!(options["dhcpv6_stateless"], stateless, "{mode:?}");
        assert_eq!(options["dns_server"], "{2001:db8::53}");
        assert_eq!(options["domain_search"], "\"example.org\"");
    }
}

#[test]
fn a_port_speaks_and_hears_as_it_may() {
    let pairs = vec![
        AddressPair { address: "10.0.0.100".into(), mac: None },
        AddressPair { address: "10.0.9.9/24".into(), mac: Some(mac(9)) },
    ];
    let with = |port: Port| {
        Rows::new(|model| {
            put(model, network());
            put(model, subnet());
            put(model, port);
        })
    };
    let rows = with(Port { address_pairs: pairs.clone(), host: "chassis".into(), ..port() });
    let (own, other) = ("02:00:00:00:00:05 10.0.0.5", "02:00:00:00:00:09");
    assert_eq!(rows.only(SWITCH_PORT, "addresses"), json!(["set", [own, other]]));
    assert_eq!(
        rows.only(SWITCH_PORT, "port_security"),
        json!(["set", [format!("{own} 10.0.0.100"), format!("{other} 10.0.9.0/24")]])
    );
    assert_eq!(rows.only(SWITCH_PORT, "dhcpv4_options"), json!(["uuid", subnet().meta.id]));
    assert_eq!(rows.only(SWITCH_PORT, "options"), json!({"requested-chassis": "chassis"}));
    assert_eq!(rows.only(SWITCH_PORT, "enabled"), true);
    let actions = rows.each(ACL, &["direction", "action", "priority"]);
    assert!(actions.contains(&vec![json!("to-lport"), json!("drop"), json!(1000)]), "{actions:?}");
    assert!(actions.contains(&vec![json!("from-lport"), json!("drop"), json!(1000)]), "{actions:?}");

    let open = with(Port { port_security: false, admin_state_up: false, ..port() });
    assert_eq!(open.only(SWITCH_PORT, "addresses"), json!(["set", [own, "unknown"]]));
    assert_eq!(open.only(SWITCH_PORT, "port_security"), json!(["set", []]));
    assert_eq!(open.only(SWITCH_PORT, "enabled"), false);
    assert!(open.all(ACL).is_empty(), "where nothing is filtered nothing is dropped");

    let mtu = DhcpOption { name: "mtu".into(), value: "1300".into(), version: Family::V4 };
    let own_options = with(Port { dhcp_options: vec![mtu], ..port() });
    let options = own_options.each(DHCP_OPTIONS, &["options"]);
    let mtus: Vec<&Value> = options.iter().map(|row| &row[0]["mtu"]).collect();
    assert!(mtus.contains(&&json!("1400")) && mtus.contains(&&json!("1300")), "{mtus:?}");
    assert_ne!(own_options.only(SWITCH_PORT, "dhcpv4_options"), json!(["uuid", subnet().meta.id]));
}

/// A router with a network, a way out, a route and a floating address.
fn routed(snat: bool) -> Rows {
    let door = |number, device_owner: &str, subnet: &Subnet, address, mac| Port {
        meta: meta(number),
        network: subnet.network,
        mac,
        device_id: Uuid::from_u128(ROUTER).to_string(),
        device_owner: device_owner.to_owned(),
        port_security: false,
        fixed_ips: vec![FixedIp { subnet: subnet.meta.id, address }],
        ..Port::default()
    };
    let world = Network { meta: meta(11), external: true, ..network() };
    let outside = Subnet {
        meta: meta(12),
        network: world.meta.id,
        cidr: "172.24.4.0/24".parse().unwrap(),
        gateway: Some(ip("172.24.4.1")),
        dhcp: false,
        ..subnet()
    };
    let way_out = door(13, Port::ROUTER_GATEWAY, &outside, ip("172.24.4.2"), mac(1));
    let inside = door(14, Port::ROUTER_INTERFACE, &subnet(), ip("10.0.0.1"), mac(2));
    let gateway = Gateway { network: world.meta.id, port: way_out.meta.id, snat };
    let route = Route { destination: "192.0.2.0/24".parse().unwrap(), nexthop: ip("10.0.0.9") };
    let floating = FloatingIp {
        meta: meta(15),
        network: world.meta.id,
        address: ip("172.24.4.9"),
        fixed_port: Some(port().meta.id),
        fixed_address: Some(ip("10.0.0.5")),
        router: Some(Uuid::from_u128(ROUTER)),
        ..FloatingIp::default()
    };
    Rows::new(|model| {
        for network in [network(), world] {
            put(model, network);
        }
        for subnet in [subnet(), outside] {
            put(model, subnet);
        }
        for port in [port(), way_out, inside] {
            put(model, port);
        }
        put(
            model,
            Router { meta: meta(ROUTER), admin_state_up: true, gateway: Some(gateway), routes: vec![route] },
        );
        put(model, floating);
    })
}

#[test]
fn a_router_has_doors_routes_and_names() {
    let rows = routed(true);
    assert_eq!(
        rows.each(ROUTER_PORT, &["networks", "mac"]),
        [
            [json!("10.0.0.1/24"), json!("02:00:00:00:00:02")],
            [json!("172.24.4.2/24"), json!("02:00:00:00:00:01")],
        ]
    );
    assert_eq!(
        rows.each(STATIC_ROUTE, &["ip_prefix", "nexthop", "output_port"]),
        [
            [json!("0.0.0.0/0"), json!("172.24.4.1"), json!(format!("lrp-{}", Uuid::from_u128(13)))],
            [json!("192.0.2.0/24"), json!("10.0.0.9"), Value::Null],
        ]
    );
    assert_eq!(
        rows.each(GATEWAY_CHASSIS, &["chassis_name", "priority"]),
        [[json!("first"), json!(2)], [json!("second"), json!(1)]]
    );
    let nat = ["type", "external_ip", "logical_ip"];
    let floating = [json!("dnat_and_snat"), json!("172.24.4.9"), json!("10.0.0.5")];
    assert_eq!(
        rows.each(NAT, &nat),
        [floating.clone(), [json!("snat"), json!("172.24.4.2"), json!("10.0.0.0/24")]]
    );
    assert_eq!(rows.refers("Logical_Router", ROUTER, "nat"), 2);
    assert_eq!(rows.refers("Logical_Router", ROUTER, "static_routes"), 2);
    assert_eq!(rows.refers("Logical_Router", ROUTER, "ports"), 2);
    assert_eq!(routed(false).each(NAT, &nat), [floating]);
}

#[test]
fn a_router_advertises_what_ipv6_hosts_are_to_do() {
    for (mode, told) in [
        (Some(Ipv6Mode::Slaac), "slaac"),
        (Some(Ipv6Mode::Dhcpv6Stateless), "dhcpv6_stateless"),
        (Some(Ipv6Mode::Dhcpv6Stateful), "dhcpv6_stateful"),
    ] {
        let rows = Rows::new(|model| {
            put(model, network());
            let cidr = "2001:db8::/64".parse().unwrap();
            put(model, Subnet { cidr, ipv6_ra_mode: mode, gateway: Some(ip("2001:db8::1")), ..subnet() });
            put(model, Router { meta: meta(ROUTER), ..Router::default() });
            put(
                model,
                Port {
                    device_id: Uuid::from_u128(ROUTER).to_string(),
                    device_owner: Port::ROUTER_INTERFACE.to_owned(),
                    fixed_ips: vec![FixedIp { subnet: subnet().meta.id, address: ip("2001:db8::1") }],
                    port_security: false,
                    ..port()
                },
            );
        });
        let told = json!({"address_mode": told, "send_periodic": "true", "mtu": "1400"});
        assert_eq!(rows.only(ROUTER_PORT, "ipv6_ra_configs"), told);
    }
}

#[test]
fn what_has_lost_its_subnet_is_no_door() {
    let rows = Rows::new(|model| {
        put(model, network());
        put(model, Router { meta: meta(ROUTER), ..Router::default() });
        let device_id = Uuid::from_u128(ROUTER).to_string();
        put(model, Port { device_id, device_owner: Port::ROUTER_INTERFACE.to_owned(), ..port() });
    });
    assert!(rows.all(ROUTER_PORT).is_empty());
}
