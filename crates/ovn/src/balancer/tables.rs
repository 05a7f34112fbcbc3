//! What of the databases load balancers need to know.

use portcullis_core::Owner;
use portcullis_ovsdb::{Index, Row, TableSpec};

use crate::tables::{ACL, ADDRESS_SET, DHCP_OPTIONS, NAT, ROUTER, ROUTER_PORT, SWITCH, SWITCH_PORT};

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
const PORTS: Index = Index { name: "ports", keys: |row| referred(row, "ports") };
const PEER: Index = Index {
    name: "router-port",
    keys: |row| row.get("options").value_of("router-port").map(str::to_owned).into_iter().collect(),
};

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
            &[OWNER, NAME],
        ),
        spec(CHECK, &["vip", "options", "external_ids"], &[OWNER]),
        spec(ACL, &["priority", "direction", "match", "action", "external_ids"], &[OWNER]),
        spec(ADDRESS_SET, &["name", "addresses", "external_ids"], &[OWNER, NAME]),
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
        spec(ROUTER, &["name", "ports", "load_balancer"], &[NAME, BALANCERS]),
        spec(ROUTER_PORT, &["name", "networks"], &[NAME]),
        spec(DHCP_OPTIONS, &["cidr"], &[]),
        spec(NAT, &["external_ip", "logical_ip"], &[]),
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
