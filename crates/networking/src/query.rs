//! What a list is asked for: which objects, which of their attributes, in which order, which page of them.

use std::cmp::Ordering;
use std::fmt::Write as _;

use serde_json::Value;

use crate::attributes::{Attribute, View};
use crate::error::Error;
use crate::kinds::Kind;

/// The parsed query of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Query {
    pub filters: Vec<(String, Vec<String>)>,
    pub fields: Vec<String>,
    pub sort: Vec<(String, bool)>,
    pub limit: Option<usize>,
    pub marker: Option<String>,
    pub reverse: bool,
}

/// The pairs of a query string.
pub(crate) fn pairs(text: &str) -> Vec<(String, String)> {
    text.split('&')
        .filter(|pair| !pair.is_empty())
        .map(|pair| {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            (decoded(key), decoded(value))
        })
        .collect()
}

/// Whether a query says yes to something. What is neither yes nor no is refused: who misspells that nothing shall be
/// changed does not want the change.
pub(crate) fn flag(text: &str, name: &str) -> Result<bool, Error> {
    let said = pairs(text).into_iter().filter(|(key, _)| key == name);
    let said: Vec<bool> = said.map(|(_, value)| truth(name, value)).collect::<Result<_, _>>()?;
    Ok(said.contains(&true))
}

fn truth(name: &str, text: String) -> Result<bool, Error> {
    let checked = Kind::Truth.check(&Value::String(text));
    let value = checked.map_err(|reason| Error::invalid_attribute(name, reason))?;
    Ok(value == true)
}

/// Undoes the escapes of a query, where a plus is a space.
pub(crate) fn decoded(text: &str) -> String {
    unescaped(&text.replace('+', " "))
}

/// Undoes the escapes of an address.
pub(crate) fn unescaped(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut place = 0;
    while place < bytes.len() {
        let escaped = bytes.get(place + 1..place + 3).and_then(|pair| std::str::from_utf8(pair).ok());
        match (bytes[place], escaped) {
            (b'%', Some(pair)) if pair.bytes().all(|digit| digit.is_ascii_hexdigit()) => {
                out.push(u8::from_str_radix(pair, 16).unwrap_or_default());
                place += 3;
                continue;
            }
            (byte, _) => out.push(byte),
        }
        place += 1;
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// Writes a text so that it can stand in an address.
pub(crate) fn encoded(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            // Writing to a String cannot fail.
            let _ = write!(out, "%{byte:02X}");
        }
    }
    out
}

/// Filters that every resource with tags has, besides its attributes.
const TAG_FILTERS: [&str; 4] = ["tags", "tags-any", "not-tags", "not-tags-any"];

impl Query {
    /// Reads a query for objects with these attributes.
    pub(crate) fn read<T>(text: &str, attributes: &[Attribute<T>], further: &[&str]) -> Result<Self, Error> {
        let mut query = Query::default();
        let (mut keys, mut directions) = (Vec::new(), Vec::new());
        let mut unknown = Vec::new();
        for (key, value) in pairs(text) {
            match key.as_str() {
                "fields" => query.fields.push(value),
                "sort_key" => keys.push(value),
                "sort_dir" => directions.push(value),
                "limit" => query.limit = limit(&value)?,
                "marker" => query.marker = Some(value),
                "page_reverse" => query.reverse = truth(&key, value)?,
                name => {
                    let attribute =
                        attributes.iter().find(|attribute| attribute.name == name && attribute.filter);
                    if let Some(Kind::Truth) = attribute.map(|attribute| attribute.kind) {
                        Kind::Truth.check(&Value::String(value.clone())).map_err(Error::invalid_input)?;
                    }
                    let known = attribute.is_some() || TAG_FILTERS.contains(&name) || further.contains(&name);
                    if !known {
                        unknown.push(format!("'{name}'"));
                    }
                    match query.filters.iter_mut().find(|(known, _)| known == name) {
                        Some((_, values)) => values.push(value),
                        None => query.filters.push((name.to_owned(), vec![value])),
                    }
                }
            }
        }
        if !unknown.is_empty() {
            return Err(Error::bad_request(format!(
                "[{}] is invalid attribute for filtering",
                unknown.join(", ")
            )));
        }
        query.sort = sorting(attributes, keys, &directions)?;
        Ok(query)
    }

    /// The only value of a filter that has one.
    pub(crate) fn one(&self, name: &str) -> Option<&str> {
        match self.filters.iter().find(|(known, _)| known == name)?.1.as_slice() {
            [only] => Some(only),
            _ => None,
        }
    }

    /// Whether an object is one of those asked for.
    pub(crate) fn wants<T>(&self, attributes: &[Attribute<T>], object: &T, view: &View<'_>) -> bool {
        self.filters.iter().all(|(name, values)| {
            let attribute = |name: &str| attributes.iter().find(|attribute| attribute.name == name);
            if TAG_FILTERS.contains(&name.as_str()) {
                let tags = attribute("tags").map_or(Value::Null, |tags| (tags.get)(object, view));
                return wants_tags(name, values, &tags);
            }
            // What only administrators see tells nobody else anything.
            let seen = |attribute: &&Attribute<T>| {
                attribute.filter && (!attribute.admin_sees || view.caller.is_admin())
            };
            match attribute(name).filter(seen) {
                Some(attribute) => {
                    let value = (attribute.get)(object, view);
                    values.iter().any(|wanted| is_wanted(&value, wanted))
                }
                None => true,
            }
        })
    }

    /// What an object is sorted by.
    pub(crate) fn keys<T>(&self, attributes: &[Attribute<T>], object: &T, view: &View<'_>) -> Vec<Value> {
        let key = |name: &str| {
            let attribute = attributes.iter().find(|attribute| attribute.name == name);
            // The order would tell what only administrators see.
            let attribute = attribute.filter(|attribute| !attribute.admin_sees || view.caller.is_admin());
            attribute.map_or(Value::Null, |attribute| (attribute.get)(object, view))
        };
        self.sort.iter().map(|(name, _)| key(name)).collect()
    }

    /// Which of two objects with these keys comes first.
    pub(crate) fn order(&self, one: &[Value], other: &[Value]) -> Ordering {
        let mut orders = self.sort.iter().zip(one.iter().zip(other)).map(|((_, ascending), (one, other))| {
            let order = compare(one, other);
            if *ascending { order } else { order.reverse() }
        });
        orders.find(|order| *order != Ordering::Equal).unwrap_or(Ordering::Equal)
    }
}

fn limit(text: &str) -> Result<Option<usize>, Error> {
    match text.parse::<i64>() {
        Ok(0) => Ok(None),
        Ok(number) if number > 0 => Ok(usize::try_from(number).ok()),
        _ => Err(Error::invalid(
            "BadRequest",
            format!("Bad limit request: Limit must be an integer 0 or greater and not '{text}'."),
        )),
    }
}

fn sorting<T>(
    attributes: &[Attribute<T>],
    keys: Vec<String>,
    directions: &[String],
) -> Result<Vec<(String, bool)>, Error> {
    if keys.len() != directions.len() {
        return Err(Error::bad_request("The number of sort_keys and sort_dirs must be same"));
    }
    let mut sort = Vec::new();
    for (place, key) in keys.into_iter().enumerate() {
        if !attributes.iter().any(|attribute| attribute.name == key && attribute.sort) {
            return Err(Error::bad_request(format!("['{key}'] is invalid attribute for sort_keys")));
        }
        let ascending = match directions.get(place).map(String::as_str) {
            None | Some("asc") => true,
            Some("desc") => false,
            Some(other) => {
                return Err(Error::bad_request(format!(
                    "['{other}'] is invalid value for sort_dirs, valid value is 'asc' and 'desc'"
                )));
            }
        };
        sort.push((key, ascending));
    }
    Ok(sort)
}

fn is_wanted(value: &Value, wanted: &str) -> bool {
    match value {
        Value::String(text) => text == wanted,
        Value::Bool(truth) => match wanted.to_lowercase().as_str() {
            "true" | "1" => *truth,
            "false" | "0" => !*truth,
            _ => false,
        },
        Value::Number(number) => wanted == number.to_string(),
        Value::Null => wanted.is_empty() || wanted == "None" || wanted == "null",
        Value::Array(items) => items.iter().any(|item| is_wanted(item, wanted)),
        Value::Object(_) => false,
    }
}

/// `tags` and `not-tags` are about all of the tags given, the others about any of them.
fn wants_tags(filter: &str, values: &[String], tags: &Value) -> bool {
    let has = |tag: &str| tags.as_array().is_some_and(|tags| tags.iter().any(|known| known == tag));
    let mut given = values.iter().flat_map(|value| value.split(',')).filter(|tag| !tag.is_empty());
    match filter {
        "tags" => given.all(has),
        "tags-any" => given.any(has),
        "not-tags" => !given.all(has),
        _ => !given.any(has),
    }
}

fn compare(one: &Value, other: &Value) -> Ordering {
    match (one, other) {
        (Value::String(one), Value::String(other)) => one.cmp(other),
        (Value::Number(one), Value::Number(other)) => one.as_i64().cmp(&other.as_i64()),
        (Value::Bool(one), Value::Bool(other)) => one.cmp(other),
        (Value::Null, Value::Null) => Ordering::Equal,
        (Value::Null, _) => Ordering::Less,
        (_, Value::Null) => Ordering::Greater,
        (one, other) => one.to_string().cmp(&other.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn escapes_are_undone() {
        for (text, plain) in
            [("a%20b", "a b"), ("a+b", "a b"), ("100%", "100%"), ("%zz", "%zz"), ("%e4%b8", "\u{fffd}")]
        {
            assert_eq!(decoded(text), plain);
        }
        assert_eq!(unescaped("a+b%2B"), "a+b+");
        assert_eq!(decoded(&encoded("ä b&c=d")), "ä b&c=d");
    }

    #[test]
    fn tags_are_filtered_in_four_ways() {
        let tags = json!(["a", "b"]);
        for (filter, value, expected) in [
            ("tags", "a,b", true),
            ("tags", "a,c", false),
            ("tags-any", "c,b", true),
            ("tags-any", "c", false),
            ("not-tags", "a,c", true),
            ("not-tags", "a,b", false),
            ("not-tags-any", "c", true),
            ("not-tags-any", "a,c", false),
        ] {
            assert_eq!(wants_tags(filter, &[value.to_owned()], &tags), expected, "{filter}={value}");
        }
    }
}
