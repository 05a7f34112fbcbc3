use std::collections::BTreeMap;

use portcullis_parts::{Namespace, ovn, run};
use serde_json::{Map, Value, json};

/// Rows by table and number, with all of their columns, as the protocol writes them.
pub type Rows = BTreeMap<(String, String), Map<String, Value>>;

/// All that a northbound database holds, at one moment. The column `_version` tells whether anybody wrote a row.
#[track_caller]
pub fn rows(remote: &str) -> Rows {
    let schema = std::fs::read_to_string(ovn::schema_file("ovn-nb")).expect("OVN is installed");
    let schema: Value = serde_json::from_str(&schema).expect("OVN's schema is JSON");
    let tables: Vec<&String> = schema["tables"].as_object().expect("it has tables").keys().collect();
    let mut query = vec![json!("OVN_Northbound")];
    query.extend(tables.iter().map(|table| json!({"op": "select", "table": table, "where": []})));
    let answer = run(&Namespace::host(), "ovsdb-client", &["query", remote, &Value::from(query).to_string()]);
    let answer = answer.unwrap_or_else(|error| panic!("{error}"));
    let answer: Vec<Value> = serde_json::from_str(&answer).expect("ovsdb-client writes JSON");
    let mut all = Rows::new();
    for (table, result) in tables.into_iter().zip(answer) {
        for row in result["rows"].as_array().into_iter().flatten().filter_map(Value::as_object) {
            let number = row["_uuid"][1].as_str().unwrap_or_default();
            all.insert((table.clone(), number.to_owned()), row.clone());
        }
    }
    all
}

/// The values in a set column, which is written as its only value where it has one.
pub fn set(column: &Value) -> Vec<&Value> {
    match column.as_array().map(Vec::as_slice) {
        Some([kind, Value::Array(values)]) if kind == "set" => values.iter().collect(),
        _ => vec![column],
    }
}

/// The rows that a column refers to.
pub fn references(column: &Value) -> Vec<&str> {
    set(column).into_iter().filter_map(|value| value[1].as_str()).collect()
}

/// The text under a key of a map column.
pub fn entry<'a>(column: &'a Value, key: &str) -> Option<&'a str> {
    let entries = column[1].as_array()?;
    entries.iter().find(|entry| entry[0] == key).and_then(|entry| entry[1].as_str())
}
