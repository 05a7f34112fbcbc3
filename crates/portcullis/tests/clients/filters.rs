//! Whether what is in a northbound database keeps its ports closed, read from its rows alone.

use std::collections::BTreeMap;

use portcullis_testkit::rows::{Rows, entry, references, set};
use serde_json::{Map, Value};

pub(crate) fn id_of(object: &Value) -> String {
    object["id"].as_str().unwrap_or_else(|| panic!("{object}")).to_owned()
}

type Row = Map<String, Value>;

fn of<'a>(rows: &'a Rows, table: &str) -> BTreeMap<&'a str, &'a Row> {
    let rows = rows.iter().filter(|((name, _), _)| name == table);
    rows.map(|((_, number), row)| (number.as_str(), row)).collect()
}

fn note<'a>(row: &'a Row, key: &str) -> Option<&'a str> {
    entry(&row["external_ids"], &format!("portcullis:{key}"))
}

/// Every port that is to be filtered is on a switch, and is a member of a group that drops what nobody allows, both
/// ways, and of its own groups; every rule is one of its group's. How many such ports there are.
#[track_caller]
pub(crate) fn assert_whole(rows: &Rows) -> usize {
    let (groups, rules) = (of(rows, "Port_Group"), of(rows, "ACL"));
    let switches = of(rows, "Logical_Switch");
    let ports = of(rows, "Logical_Switch_Port");
    let has = |row: &Row, column: &str, number: &str| references(&row[column]).contains(&number);
    let mut filtered = 0;
    for (id, port) in ports.iter().filter(|(_, port)| note(port, "kind") == Some("port")) {
        if note(port, "port-security") == Some("false") {
            continue;
        }
        filtered += 1;
        let on = switches.values().filter(|switch| has(switch, "ports", id)).count();
        assert_eq!(on, 1, "{port:?}");
        assert!(!set(&port["port_security"]).is_empty(), "it may speak as anybody: {port:?}");
        let drops = groups.values().filter(|group| has(group, "ports", id)).flat_map(|group| {
            let rules = references(&group["acls"]).into_iter().map(|rule| rules[rule]);
            rules.filter(|rule| rule["action"] == "drop").map(|rule| rule["direction"].as_str().unwrap())
        });
        let mut drops: Vec<&str> = drops.collect();
        drops.sort_unstable();
        assert_eq!(drops, ["from-lport", "to-lport"], "{port:?}");
        let wanted: Vec<String> =
            note(port, "security-groups").map_or_else(Vec::new, |text| serde_json::from_str(text).unwrap());
        for group in wanted {
            assert!(has(groups[group.as_str()], "ports", id), "{port:?}");
        }
    }
    for (id, rule) in rules.iter().filter(|(_, rule)| note(rule, "kind") == Some("rule")) {
        assert!(has(groups[note(rule, "group").unwrap()], "acls", id), "{rule:?}");
    }
    filtered
}
