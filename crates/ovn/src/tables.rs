//! What of the northbound database is replicated.

use std::collections::HashMap;
use std::sync::LazyLock;

use portcullis_ovsdb::TableSpec;

pub(crate) const SWITCH: &str = "Logical_Switch";
pub(crate) const SWITCH_PORT: &str = "Logical_Switch_Port";
pub(crate) const ROUTER: &str = "Logical_Router";
pub(crate) const ROUTER_PORT: &str = "Logical_Router_Port";
pub(crate) const STATIC_ROUTE: &str = "Logical_Router_Static_Route";
pub(crate) const NAT: &str = "NAT";
pub(crate) const GATEWAY_CHASSIS: &str = "Gateway_Chassis";
pub(crate) const DHCP_OPTIONS: &str = "DHCP_Options";
pub(crate) const PORT_GROUP: &str = "Port_Group";
pub(crate) const ACL: &str = "ACL";
pub(crate) const ADDRESS_SET: &str = "Address_Set";
/// Rows of others only, which may name groups.
pub(crate) const QOS: &str = "QoS";
pub(crate) const POLICY: &str = "Logical_Router_Policy";
/// Where objects are that OVN has no row for: it looks at a row of this table only if a switch refers to it.
pub(crate) const NOTE: &str = "DNS";

/// All of them.
pub(crate) fn specs() -> Vec<TableSpec> {
    let spec = |name, columns| TableSpec { name, columns, indexes: &[] };
    vec![
        spec(SWITCH, &["name", "ports", "other_config", "external_ids"]),
        spec(
            SWITCH_PORT,
            &[
                "name",
                "type",
                "options",
                "tag",
                "addresses",
                "dynamic_addresses",
                "port_security",
                "up",
                "enabled",
                "dhcpv4_options",
                "dhcpv6_options",
                "external_ids",
                // Only to see that they are not lost when a row of another system is replaced, as those below.
                "parent_name",
                "tag_request",
                "ha_chassis_group",
                "mirror_rules",
            ],
        ),
        spec(ROUTER, &["name", "ports", "static_routes", "nat", "enabled", "options", "external_ids"]),
        spec(
            ROUTER_PORT,
            &[
                "name",
                "mac",
                "networks",
                "gateway_chassis",
                "ipv6_ra_configs",
                "options",
                "external_ids",
                "enabled",
                "ha_chassis_group",
                "peer",
                "ipv6_prefix",
            ],
        ),
        spec(
            STATIC_ROUTE,
            &[
                "ip_prefix",
                "nexthop",
                "output_port",
                "policy",
                "route_table",
                "external_ids",
                "bfd",
                "options",
            ],
        ),
        spec(NAT, &["type", "external_ip", "logical_ip", "external_ids"]),
        spec(GATEWAY_CHASSIS, &["name", "chassis_name", "priority", "external_ids"]),
        spec(DHCP_OPTIONS, &["cidr", "options", "external_ids"]),
        spec(PORT_GROUP, &["name", "ports", "acls", "external_ids"]),
        spec(ACL, &["priority", "direction", "match", "action", "external_ids"]),
        spec(ADDRESS_SET, &["name", "addresses", "external_ids"]),
        spec(QOS, &["match", "external_ids"]),
        spec(POLICY, &["match", "external_ids"]),
        spec(NOTE, &["records", "external_ids"]),
    ]
}

/// The columns of one of them that are replicated.
pub(crate) fn columns(table: &str) -> &'static [&'static str] {
    static COLUMNS: LazyLock<HashMap<&str, &[&str]>> =
        LazyLock::new(|| specs().into_iter().map(|spec| (spec.name, spec.columns)).collect());
    COLUMNS.get(table).copied().unwrap_or_default()
}

/// Whether a row stays although nothing refers to it; the others go with the last reference.
pub(crate) fn is_root(table: &str) -> bool {
    matches!(table, SWITCH | ROUTER | DHCP_OPTIONS | PORT_GROUP | ADDRESS_SET | NOTE)
}

/// The columns of a table that keep rows of another.
pub(crate) fn references(table: &str) -> &'static [(&'static str, &'static str)] {
    match table {
        SWITCH => &[("ports", SWITCH_PORT)],
        ROUTER => &[("ports", ROUTER_PORT), ("static_routes", STATIC_ROUTE), ("nat", NAT)],
        PORT_GROUP => &[("ports", SWITCH_PORT), ("acls", ACL)],
        _ => &[],
    }
}
