//! Whether an object that a request asks for is there already.

use std::sync::Arc;

use portcullis_ovn::{Draft, Stored};
use serde_json::Value;
use uuid::Uuid;

use super::{Context, Resource, common};
use crate::attributes::Input;
use crate::error::Error;

/// An object of the same project and name whose attributes are what the request gives.
pub(super) fn by_attributes<R: Resource>(
    draft: &Draft,
    context: &Context,
    input: &Input,
) -> Result<Option<Uuid>, Error> {
    let project = common::project(context, input)?;
    let name = input.text("name").unwrap_or_default();
    let view = context.view(draft);
    let is_same = |object: &&Arc<R::Object>| {
        let meta = object.meta();
        meta.project == project
            && meta.name == name
            && R::is_meant(object, input)
            && input.0.iter().all(|(name, given)| {
                if given.is_null() && R::CHOSEN.contains(&name.as_str()) {
                    return true;
                }
                let attribute = R::attributes().iter().find(|attribute| attribute.name == name);
                attribute.is_some_and(|attribute| is_met(given, &(attribute.get)(object, &view)))
            })
    };
    let found = if name.is_empty() {
        draft.of_project::<R::Object>(&project, None).find(is_same)
    } else {
        draft.named::<R::Object>(&name).find(is_same)
    };
    Ok(found.map(|object| object.id()))
}

/// Whether a value is what was asked for. What was not asked for in an object may be anything, and the order of a list
/// does not count.
fn is_met(given: &Value, has: &Value) -> bool {
    let is_nothing = |value: &Value| match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(entries) => entries.is_empty(),
        _ => false,
    };
    match (given, has) {
        (Value::Object(given), Value::Object(has)) => given
            .iter()
            .all(|(key, given)| has.get(key).map_or_else(|| is_nothing(given), |has| is_met(given, has))),
        (Value::Array(given), Value::Array(has)) => {
            let mut left: Vec<&Value> = has.iter().collect();
            given.len() == has.len()
                && given.iter().all(|given| {
                    let place = left.iter().position(|has| is_met(given, has));
                    place.map(|place| left.swap_remove(place)).is_some()
                })
        }
        (given, has) => given == has || is_nothing(given) && is_nothing(has),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_was_asked_for_is_met_by_more() {
        for (given, has, expected) in [
            (json!("a"), json!("a"), true),
            (json!("a"), json!("b"), false),
            (json!(null), json!(""), true),
            (json!(null), json!("a"), false),
            (json!([{"subnet_id": "s"}]), json!([{"subnet_id": "s", "ip_address": "10.0.0.3"}]), true),
            (json!([{"subnet_id": "t"}]), json!([{"subnet_id": "s", "ip_address": "10.0.0.3"}]), false),
            (json!(["a", "b"]), json!(["b", "a"]), true),
            (json!(["a", "a"]), json!(["b", "a"]), false),
            (json!(["a"]), json!(["b", "a"]), false),
            (json!({"a": null}), json!({}), true),
        ] {
            assert_eq!(is_met(&given, &has), expected, "{given} {has}");
        }
    }
}
