//! What is wanted, laid over what is there.
//!
//! Kubernetes fills in what an object leaves open, and people set what they need: both stay. A list is wanted whole; its
//! entries are found by name, so that what Kubernetes filled in stays there, too.

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

/// What an object has to become so that it is as wanted; nothing, if it is.
pub fn changed<T: Serialize + DeserializeOwned>(current: &T, desired: &T) -> Option<T> {
    let (before, wanted) = (json(current), json(desired));
    let mut after = before.clone();
    lay(&mut after, &wanted);
    if after == before { None } else { serde_json::from_value(after).ok() }
}

/// The merge patch (RFC 7396) that makes one object of another. It is refused if somebody writes in between.
pub fn patch<T: Serialize>(current: &T, changed: &T) -> Value {
    let (before, after) = (json(current), json(changed));
    let mut patch = difference(&before, &after);
    let version = before.pointer("/metadata/resourceVersion").cloned().unwrap_or_default();
    if !version.is_null() {
        patch["metadata"]["resourceVersion"] = version;
    }
    patch
}

fn json<T: Serialize>(object: &T) -> Value {
    serde_json::to_value(object).expect("an object of Kubernetes can be written")
}

fn lay(current: &mut Value, desired: &Value) {
    match desired {
        Value::Object(wanted) => {
            if !current.is_object() {
                *current = Value::Object(Map::new());
            }
            let Value::Object(found) = current else { return };
            for (key, value) in wanted {
                // Kubernetes drops what is empty.
                if is_empty(value) && found.get(key).is_none_or(is_empty) {
                    continue;
                }
                lay(found.entry(key).or_insert(Value::Null), value);
            }
        }
        Value::Array(wanted) => {
            let found = current.as_array().cloned().unwrap_or_default();
            let merged = wanted.iter().map(|entry| {
                let same =
                    entry.get("name").and_then(|name| found.iter().find(|one| one.get("name") == Some(name)));
                let mut merged = same.cloned().unwrap_or_default();
                lay(&mut merged, entry);
                merged
            });
            *current = Value::Array(merged.collect());
        }
        plain => current.clone_from(plain),
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(entries) => entries.is_empty(),
        Value::Object(entries) => entries.is_empty(),
        _ => false,
    }
}

fn difference(before: &Value, after: &Value) -> Value {
    let (Value::Object(before), Value::Object(after)) = (before, after) else { return after.clone() };
    let mut patch = Map::new();
    for key in before.keys().filter(|key| !after.contains_key(*key)) {
        patch.insert(key.clone(), Value::Null);
    }
    for (key, value) in after {
        match before.get(key) {
            Some(same) if same == value => {}
            Some(other) => drop(patch.insert(key.clone(), difference(other, value))),
            None => drop(patch.insert(key.clone(), value.clone())),
        }
    }
    Value::Object(patch)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_is_wanted_lies_over_what_is_there() {
        for (current, desired, expected) in [
            (json!({"a": 1, "b": 2}), json!({"a": 1}), None),
            (json!({"a": 1, "b": 2}), json!({"a": 3}), Some(json!({"a": 3, "b": 2}))),
            (json!({}), json!({"list": [], "map": {}}), None),
            (json!({"list": [1]}), json!({"list": []}), Some(json!({"list": []}))),
            (json!({"list": [1, 2]}), json!({"list": [2]}), Some(json!({"list": [2]}))),
            (
                json!({"ports": [{"name": "http", "port": 80, "nodePort": 30000}, {"name": "own", "port": 1}]}),
                json!({"ports": [{"name": "http", "port": 80}]}),
                Some(json!({"ports": [{"name": "http", "port": 80, "nodePort": 30000}]})),
            ),
            (
                json!({"env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}]}),
                json!({"env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}]}),
                None,
            ),
        ] {
            assert_eq!(changed(&current, &desired), expected, "{current} {desired}");
        }
    }

    #[test]
    fn a_patch_says_only_what_differs() {
        let before = json!({"metadata": {"resourceVersion": "7", "annotations": {"a": "1", "b": "2"}}, "spec": {"c": [1], "d": 4}});
        let after = json!({"metadata": {"resourceVersion": "7", "annotations": {"a": "1"}}, "spec": {"c": [2], "d": 4}});
        assert_eq!(
            patch(&before, &after),
            json!({"metadata": {"resourceVersion": "7", "annotations": {"b": null}}, "spec": {"c": [2]}})
        );
    }
}
