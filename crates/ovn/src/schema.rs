use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

/// What a northbound database can hold: its tables and their columns, and what an ACL can do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Schema {
    version: String,
    tables: BTreeMap<String, BTreeSet<String>>,
    acl_actions: BTreeSet<String>,
}

/// A text that is not the schema of a northbound database.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum Unreadable {
    #[error("it is not JSON: {0}")]
    NotJson(String),
    #[error("it describes the database `{0}`, not OVN_Northbound")]
    AnotherDatabase(String),
    #[error("it has no `{0}`, as the schema of every database has")]
    NotASchema(&'static str),
}

/// What Portcullis reads and writes.
const NEEDED: &[(&str, &[&str])] = &[
    ("ACL", &["action", "direction", "external_ids", "log", "match", "name", "priority", "severity"]),
    ("Address_Set", &["addresses", "external_ids", "name"]),
    ("DHCP_Options", &["cidr", "external_ids", "options"]),
    (
        "Load_Balancer",
        &[
            "external_ids",
            "health_check",
            "ip_port_mappings",
            "name",
            "options",
            "protocol",
            "selection_fields",
            "vips",
        ],
    ),
    ("Load_Balancer_Health_Check", &["external_ids", "options", "vip"]),
    ("Logical_Router", &["enabled", "external_ids", "nat", "name", "options", "ports", "static_routes"]),
    (
        "Logical_Router_Port",
        &["external_ids", "gateway_chassis", "ipv6_ra_configs", "mac", "name", "networks"],
    ),
    ("Logical_Router_Static_Route", &["external_ids", "ip_prefix", "nexthop", "output_port"]),
    ("Logical_Switch", &["external_ids", "load_balancer", "name", "other_config", "ports"]),
    (
        "Logical_Switch_Port",
        &[
            "addresses",
            "dhcpv4_options",
            "dhcpv6_options",
            "enabled",
            "external_ids",
            "name",
            "options",
            "port_security",
            "tag",
            "type",
            "up",
        ],
    ),
    (
        "NAT",
        &["external_ids", "external_ip", "external_mac", "logical_ip", "logical_port", "options", "type"],
    ),
    ("Port_Group", &["acls", "external_ids", "name", "ports"]),
];

/// The actions of an ACL that rules become: of a stateful group, and of one that is not.
const ACL_ACTIONS: [&str; 2] = ["allow-related", "allow-stateless"];

impl Schema {
    /// Reads a schema as OVN's packages ship it and as the server gives it.
    pub fn parse(text: &str) -> Result<Self, Unreadable> {
        let schema: Value =
            serde_json::from_str(text).map_err(|error| Unreadable::NotJson(error.to_string()))?;
        let text = |key: &'static str| schema[key].as_str().ok_or(Unreadable::NotASchema(key));
        if text("name")? != "OVN_Northbound" {
            return Err(Unreadable::AnotherDatabase(text("name")?.into()));
        }
        let keys =
            |value: &Value| value.as_object().into_iter().flat_map(|map| map.keys().cloned()).collect();
        let tables = schema["tables"].as_object().ok_or(Unreadable::NotASchema("tables"))?;
        // An enum of several is written `["set", […]]`.
        let actions = &schema["tables"]["ACL"]["columns"]["action"]["type"]["key"]["enum"][1];
        let actions = actions.as_array().into_iter().flatten().filter_map(Value::as_str);
        Ok(Schema {
            version: text("version")?.into(),
            tables: tables.iter().map(|(name, table)| (name.clone(), keys(&table["columns"]))).collect(),
            acl_actions: actions.map(str::to_owned).collect(),
        })
    }

    /// The version of the schema, such as 7.0.0 for OVN 23.03.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// The tables, the columns as `table.column` and the actions as `ACL.action=action` that Portcullis needs and
    /// this schema does not have.
    pub fn missing(&self) -> Vec<String> {
        let mut missing = Vec::new();
        for (table, columns) in NEEDED {
            match self.tables.get(*table) {
                None => missing.push((*table).to_owned()),
                Some(present) => {
                    let absent = columns.iter().filter(|column| !present.contains(**column));
                    missing.extend(absent.map(|column| format!("{table}.{column}")));
                }
            }
        }
        if self.tables.get("ACL").is_some_and(|columns| columns.contains("action")) {
            let absent = ACL_ACTIONS.into_iter().filter(|action| !self.acl_actions.contains(*action));
            missing.extend(absent.map(|action| format!("ACL.action={action}")));
        }
        missing
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// A schema with everything that is needed.
    fn complete() -> Value {
        let table = |columns: &[&str]| json!({"columns": columns.iter().map(|c| (*c, json!({}))).collect::<BTreeMap<_, _>>()});
        let mut tables: BTreeMap<_, _> =
            NEEDED.iter().map(|(name, columns)| (*name, table(columns))).collect();
        tables.get_mut("ACL").unwrap()["columns"]["action"] = json!({"type": {"key": {"type": "string", "enum": ["set", ["allow", "allow-related", "allow-stateless"]]}}});
        json!({"name": "OVN_Northbound", "version": "7.0.0", "tables": tables})
    }

    fn missing(schema: &Value) -> Vec<String> {
        Schema::parse(&schema.to_string()).unwrap().missing()
    }

    #[test]
    fn what_is_missing_is_named() {
        assert_eq!(missing(&complete()), [""; 0]);

        let mut without_table = complete();
        without_table["tables"].as_object_mut().unwrap().remove("Port_Group");
        assert_eq!(missing(&without_table), ["Port_Group"]);

        let mut without_column = complete();
        without_column["tables"]["NAT"]["columns"].as_object_mut().unwrap().remove("options");
        assert_eq!(missing(&without_column), ["NAT.options"]);

        let mut without_action = complete();
        without_action["tables"]["ACL"]["columns"]["action"]["type"]["key"]["enum"][1] =
            json!(["allow-related"]);
        assert_eq!(missing(&without_action), ["ACL.action=allow-stateless"]);

        let mut without_actions = complete();
        without_actions["tables"]["ACL"]["columns"].as_object_mut().unwrap().remove("action");
        assert_eq!(missing(&without_actions), ["ACL.action"]);
    }

    #[test]
    fn the_installed_schema_has_everything() {
        let path = "/usr/share/ovn/ovn-nb.ovsschema";
        let text = std::fs::read_to_string(path)
            .unwrap_or_else(|error| panic!("{path}: {error}: run `make parts`, which installs OVN"));
        assert_eq!(Schema::parse(&text).unwrap().missing(), [""; 0]);
    }

    #[test]
    fn what_is_no_northbound_schema_is_refused() {
        let parse = |text: &str| Schema::parse(text).unwrap_err();
        assert!(matches!(parse("{"), Unreadable::NotJson(_)));
        assert_eq!(parse("{}"), Unreadable::NotASchema("name"));
        assert_eq!(
            parse(r#"{"name":"OVN_Southbound"}"#),
            Unreadable::AnotherDatabase("OVN_Southbound".into())
        );
        assert_eq!(parse(r#"{"name":"OVN_Northbound","tables":{}}"#), Unreadable::NotASchema("version"));
        assert_eq!(parse(r#"{"name":"OVN_Northbound","version":"7"}"#), Unreadable::NotASchema("tables"));
    }
}
