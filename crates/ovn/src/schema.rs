use portcullis_ovsdb::Schema;

use crate::tables::specs;

/// The name of the northbound database.
pub(crate) const DATABASE: &str = "OVN_Northbound";

/// A text that is not the schema of a northbound database.
#[derive(Debug, thiserror::Error)]
pub enum Unreadable {
    /// Not a schema at all.
    #[error("it is not the schema of a database: {0}")]
    NotASchema(#[from] serde_json::Error),
    /// A schema, of something else.
    #[error("it describes the database `{0}`, not {DATABASE}")]
    AnotherDatabase(String),
}

/// The actions of an ACL that rules become: of a stateful group, and of one that is not.
const ACL_ACTIONS: [&str; 2] = ["allow-related", "allow-stateless"];

/// Reads a schema as OVN's packages ship it and as the server gives it.
pub fn parse(text: &str) -> Result<Schema, Unreadable> {
    let schema: Schema = serde_json::from_str(text)?;
    if schema.name == DATABASE { Ok(schema) } else { Err(Unreadable::AnotherDatabase(schema.name)) }
}

/// The tables, the columns as `table.column` and the actions as `ACL.action=action` that Portcullis needs and this
/// schema does not have.
pub fn missing(schema: &Schema) -> Vec<String> {
    let mut missing = Vec::new();
    for spec in specs() {
        match schema.tables.get(spec.name) {
            None => missing.push(spec.name.to_owned()),
            Some(present) => {
                let absent = spec.columns.iter().filter(|column| !present.columns.contains_key(**column));
                missing.extend(absent.map(|column| format!("{}.{column}", spec.name)));
            }
        }
    }
    if let Some(action) = schema.tables.get("ACL").and_then(|acl| acl.columns.get("action")) {
        let absent = ACL_ACTIONS.into_iter().filter(|text| !action.allows(text));
        missing.extend(absent.map(|text| format!("ACL.action={text}")));
    }
    missing.sort();
    missing
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::{Value, json};

    use super::*;

    /// A schema with everything that is needed.
    fn complete() -> Value {
        let table = |columns: &[&str]| json!({"columns": columns.iter().map(|c| (*c, json!({"type": "string"}))).collect::<BTreeMap<_, _>>()});
        let mut tables: BTreeMap<_, _> =
            specs().into_iter().map(|spec| (spec.name, table(spec.columns))).collect();
        tables.get_mut("ACL").unwrap()["columns"]["action"] = json!({"type": {"key": {"type": "string", "enum": ["set", ["allow", "allow-related", "allow-stateless"]]}}});
        json!({"name": "OVN_Northbound", "version": "7.0.0", "tables": tables})
    }

    fn missing(schema: &Value) -> Vec<String> {
        super::missing(&parse(&schema.to_string()).unwrap())
    }

    #[test]
    fn what_is_missing_is_named() {
        assert_eq!(missing(&complete()), [""; 0]);

        let mut without_table = complete();
        without_table["tables"].as_object_mut().unwrap().remove("Port_Group");
        assert_eq!(missing(&without_table), ["Port_Group"]);

        let mut without_column = complete();
        without_column["tables"]["NAT"]["columns"].as_object_mut().unwrap().remove("logical_ip");
        assert_eq!(missing(&without_column), ["NAT.logical_ip"]);

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
        assert_eq!(super::missing(&parse(&text).unwrap()), [""; 0]);
    }

    #[test]
    fn what_is_no_northbound_schema_is_refused() {
        for wrong in ["{", "{}", "[]", r#"{"name":"OVN_Northbound"}"#] {
            assert!(matches!(parse(wrong), Err(Unreadable::NotASchema(_))), "{wrong}");
        }
        let southbound = parse(r#"{"name":"OVN_Southbound","version":"1","tables":{}}"#).unwrap_err();
        assert_eq!(southbound.to_string(), "it describes the database `OVN_Southbound`, not OVN_Northbound");
    }
}
