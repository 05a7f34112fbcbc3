//! What of the databases load balancers need to know.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};

use portcullis_core::Owner;
use portcullis_ovsdb::{Index, Row, TableSpec};

use super::acl;
use crate::tables::{
    ACL, ADDRESS_SET, DHCP_OPTIONS, NAT, PORT_GROUP, ROUTER, ROUTER_PORT, SWITCH, SWITCH_PORT,
};

/// The row that counts who has heard of what.
pub(super) const GLOBAL: &str = "NB_Global";
pub(super) const BALANCER: &str = "Load_Balancer";
pub(super) const CHECK: &str = "Load_Balancer_Health_Check";

/// The tables that have rows of ours.
pub(super) const OURS: [&str; 4] = [BALANCER, CHECK, ACL, ADDRESS_SET];

/// Of the southbound database: what became of checks.
pub(super) const MONITOR: &str = "Service_Monitor";

/// The name of the southbound database.
pub(super) const SOUTHBOUND: &str = "OVN_Southbound";

/// Whose a row is; nothing for what is not ours, or cannot be told.
pub(super) fn owner(row: &Row) -> Option<Owner> {
    let entries = row.get("external_ids").entries().iter();
    Owner::from_pairs(entries.filter_map(|(key, value)| Some((key.as_text()?, value.as_text()?)))).ok()?
}

/// Under which text an owner is looked up.
pub(super) fn key(owner: &Owner) -> String {
    [owner.cluster(), owner.kind(), owner.namespace().unwrap_or_default(), owner.name()].join("/")
}

const OWNER: Index = Index { name: "owner", keys: |row| owner(row).iter().map(key).collect() };
const NAME: Index = Index { name: "name", keys: |row| row.get("name").texts().map(str::to_owned).collect() };
const BALANCERS: Index = Index { name: "load_balancer", keys: |row| referred(row, "load_balancer") };
const ACLS: Index = Index { name: "acls", keys: |row| referred(row, "acls") };
const IDENTITY: Index = Index {
    name: "identity",
    keys: |row| {
        row.get("external_ids").value_of(Owner::IDENTITY_KEY).map(str::to_owned).into_iter().collect()
    },
};
/// What somebody else lets in before ours is asked.
const ABOVE: Index = Index {
    name: "above",
    keys: |row| {
        let action = row.get("action").text().unwrap_or_default();
        let is_above = owner(row).is_none()
            && row.get("direction").text() == Some("from-lport")
            && row.get("priority").integer() >= Some(acl::PRIORITY)
            && !matches!(action, "drop" | "reject");
        is_above.then(|| "yes".to_owned()).into_iter().collect()
    },
};
const VIPS: Index = Index {
    name: "address",
    keys: |row| {
        let vips = row.get("vips").entries().iter().filter_map(|(vip, _)| address_of(vip.as_text()?));
        let addresses: BTreeSet<IpAddr> = vips.collect();
        addresses.iter().map(ToString::to_string).collect()
    },
};
const TRANSLATED: Index = Index {
    name: "address",
    keys: |row| {
        let columns = ["external_ip", "logical_ip"].into_iter();
        let addresses = columns.filter_map(|column| row.get(column).text()?.parse::<IpAddr>().ok());
        let addresses: BTreeSet<IpAddr> = addresses.collect();
        addresses.iter().map(ToString::to_string).collect()
    },
};
const JOINED: Index =
    Index { name: "peer", keys: |row| row.get("peer").texts().map(str::to_owned).collect() };
const PORTS: Index = Index { name: "ports", keys: |row| referred(row, "ports") };
const PEER: Index = Index {
    name: "router-port",
    keys: |row| row.get("options").value_of("router-port").map(str::to_owned).into_iter().collect(),
};

/// The address of a key of a load balancer, with or without a port.
fn address_of(vip: &str) -> Option<IpAddr> {
    let with_port = vip.parse::<SocketAddr>().ok().map(|vip| vip.ip());
    with_port.or_else(|| vip.trim_matches(['[', ']']).parse().ok())
}

fn referred(row: &Row, column: &str) -> Vec<String> {
    row.get(column).uuids().map(|uuid| uuid.to_string()).collect()
}

/// The tables of the northbound database.
pub(super) fn northbound() -> Vec<TableSpec> {
    let spec = |name, columns, indexes| TableSpec { name, columns, indexes };
    vec![
        spec(
            BALANCER,
            &["name", "vips", "protocol", "health_check", "ip_port_mappings", "options", "external_ids"],
            &[OWNER, NAME, IDENTITY, VIPS],
        ),
        spec(CHECK, &["vip", "options", "external_ids"], &[OWNER, IDENTITY]),
        spec(ACL, &["priority", "direction", "match", "action", "external_ids"], &[OWNER, IDENTITY, ABOVE]),
        spec(ADDRESS_SET, &["name", "addresses", "external_ids"], &[OWNER, NAME, IDENTITY]),
        spec(PORT_GROUP, &["ports", "acls"], &[ACLS]),
        spec(
            SWITCH,
            &["name", "ports", "acls", "load_balancer", "other_config"],
            &[NAME, PORTS, BALANCERS, ACLS],
        ),
        spec(
            SWITCH_PORT,
            &[
                "name",
                "type",
                "options",
                "addresses",
                "dynamic_addresses",
                "dhcpv4_options",
                "dhcpv6_options",
            ],
            &[PEER],
        ),
        spec(ROUTER, &["name", "ports", "load_balancer"], &[NAME, PORTS, BALANCERS]),
        spec(ROUTER_PORT, &["name", "networks", "peer"], &[NAME, JOINED]),
        spec(DHCP_OPTIONS, &["cidr"], &[]),
        spec(NAT, &["external_ip", "logical_ip"], &[TRANSLATED]),
        spec(GLOBAL, &["nb_cfg", "hv_cfg"], &[]),
    ]
}

/// The tables of the southbound database.
pub(super) fn southbound() -> Vec<TableSpec> {
    const BY_ADDRESS: &[Index] =
        &[Index { name: "ip", keys: |row| row.get("ip").texts().map(str::to_owned).collect() }];
    vec![TableSpec {
        name: MONITOR,
        columns: &["ip", "port", "protocol", "logical_port", "status"],
        indexes: BY_ADDRESS,
    }]
}
