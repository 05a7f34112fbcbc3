//! Which fields of two objects differ.

use serde_json::Value;

use super::object::APPLIED;

/// The fields that differ, as people write them.
pub(super) fn differing(before: &Value, after: &Value) -> Vec<String> {
    let mut found = Vec::new();
    compare(before, after, "", &mut found);
    found.retain(|field| !field.ends_with(APPLIED) && !field.contains(&format!("[{APPLIED}]")));
    found
}

fn compare(before: &Value, after: &Value, path: &str, found: &mut Vec<String>) {
    if before == after {
        return;
    }
    match (before, after) {
        (Value::Object(old), Value::Object(new)) => {
            let gone = old.keys().filter(|key| !new.contains_key(*key));
            for key in new.keys().chain(gone) {
                let none = &Value::Null;
                let (old, new) = (old.get(key).unwrap_or(none), new.get(key).unwrap_or(none));
                compare(old, new, &below(path, key), found);
            }
        }
        // What is not there at all is told as a whole, but for maps that consist of single wishes.
        (Value::Null, Value::Object(new)) if ["labels", "annotations"].contains(&last(path)) => {
            found.extend(new.keys().map(|key| below(path, key)));
        }
        (Value::Array(old), Value::Array(new)) if old.iter().chain(new).all(has_name) => {
            let gone = old.iter().filter(|one| !new.iter().any(|other| other["name"] == one["name"]));
            for entry in new.iter().chain(gone) {
                let name = &entry["name"];
                let place = format!("{path}[{}]", name.as_str().unwrap_or_default());
                let of = |list: &[Value]| {
                    list.iter().find(|one| one["name"] == *name).cloned().unwrap_or_default()
                };
                compare(&of(old), &of(new), &place, found);
            }
            // The same entries in another order.
            if found.is_empty() {
                found.push(path.to_owned());
            }
        }
        _ => found.push(path.to_owned()),
    }
}

fn has_name(entry: &Value) -> bool {
    entry["name"].is_string()
}

fn last(path: &str) -> &str {
    path.rsplit('.').next().unwrap_or_default()
}

fn below(path: &str, key: &str) -> String {
    if key.contains(['.', '/']) {
        return format!("{path}[{key}]");
    }
    if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn fields_are_named_as_people_write_them() {
        for (before, after, expected) in [
            (json!({"a": 1}), json!({"a": 1}), vec![]),
            (json!({"spec": {"replicas": 3}}), json!({"spec": {"replicas": 1}}), vec!["spec.replicas"]),
            (json!({"spec": {}}), json!({"spec": {"replicas": 1}}), vec!["spec.replicas"]),
            (json!({"spec": {"own": 1}}), json!({"spec": {}}), vec!["spec.own"]),
            (
                json!({"ports": [{"name": "http", "port": 81}, {"name": "own", "port": 1}]}),
                json!({"ports": [{"name": "http", "port": 80}, {"name": "https", "port": 443}]}),
                vec!["ports[http].port", "ports[https]", "ports[own]"],
            ),
            (json!({"subjects": [1]}), json!({"subjects": [2]}), vec!["subjects"]),
            (
                json!({"metadata": {}}),
                json!({"metadata": {"annotations": {"portcullis.dev/listen-addresses": "a", APPLIED: "0"}}}),
                vec!["metadata.annotations[portcullis.dev/listen-addresses]"],
            ),
        ] {
            assert_eq!(differing(&before, &after), expected, "{before} {after}");
        }
    }
}
