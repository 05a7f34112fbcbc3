//! How the values of attributes are checked, and what they become.

use std::collections::BTreeSet;
use std::net::IpAddr;

use portcullis_core::Cidr;
use portcullis_ovn::Mac;
use serde_json::{Map, Value, json};
use uuid::Uuid;

/// What an attribute may be.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    /// A text of at most so many characters.
    Text(usize),
    /// The same, or nothing.
    TextOrNull(usize),
    Truth,
    Id,
    IdOrNull,
    Ids,
    /// A whole number within these limits.
    Number(i64, i64),
    NumberOrNull(i64, i64),
    Mac,
    Address,
    AddressOrNull,
    Range,
    /// One of these words.
    Word(&'static [&'static str]),
    WordOrNull(&'static [&'static str]),
    Texts(usize),
    Object,
    /// Several objects, or texts; what they mean is checked where they are used.
    List(fn(&Value) -> Result<Value, String>),
    /// Whatever its own function takes.
    Custom(fn(&Value) -> Result<Value, String>, fn() -> Value),
    /// Only ever read.
    ReadOnly(fn() -> Value),
}

/// A moment.
pub(crate) const MOMENT: Kind = Kind::ReadOnly(|| json!({"type": "string", "format": "date-time"}));
/// Any whole number that is only read.
pub(crate) const COUNT: Kind = Kind::ReadOnly(|| json!({"type": "integer"}));
/// A text that is only read.
pub(crate) const WORDS: Kind = Kind::ReadOnly(|| json!({"type": "string"}));
/// The same, or nothing.
pub(crate) const WORDS_OR_NULL: Kind = Kind::ReadOnly(|| json!({"type": ["string", "null"]}));
/// Yes or no that is only read.
pub(crate) const SAID: Kind = Kind::ReadOnly(|| json!({"type": "boolean"}));
/// A list that is only read.
pub(crate) const LIST: Kind = Kind::ReadOnly(|| json!({"type": "array", "items": {}}));

/// A version of IP.
pub(crate) const VERSION: Kind = Kind::Custom(
    |value| {
        let number = number(value, i64::MIN, i64::MAX)?;
        if number == 4 || number == 6 { Ok(number) } else { Err(format!("'{number}' is not in [4, 6]")) }
    },
    || json!({"type": "integer", "enum": [4, 6]}),
);

/// The longest name.
pub(crate) const NAME: usize = 255;

impl Kind {
    /// Whether it is one value, which can be compared.
    pub(crate) fn is_plain(self) -> bool {
        !matches!(self, Kind::Ids | Kind::Texts(_) | Kind::Object | Kind::List(_) | Kind::Custom(..))
    }

    /// The value in its canonical form, or why it cannot be.
    pub(crate) fn check(self, value: &Value) -> Result<Value, String> {
        match self {
            Kind::TextOrNull(_)
            | Kind::IdOrNull
            | Kind::NumberOrNull(..)
            | Kind::AddressOrNull
            | Kind::WordOrNull(_)
                if value.is_null() =>
            {
                Ok(Value::Null)
            }
            Kind::Text(longest) | Kind::TextOrNull(longest) => text(value, longest),
            Kind::Truth => truth(value),
            Kind::Id | Kind::IdOrNull => parse(value, "is not a valid UUID", |text| {
                Uuid::try_parse(text).ok().map(|id| id.to_string())
            }),
            Kind::Ids => ids(value),
            Kind::Number(least, most) | Kind::NumberOrNull(least, most) => number(value, least, most),
            Kind::Mac => parse(value, "is not a valid MAC address", |text| {
                text.parse::<Mac>().ok().filter(|mac| mac.is_unicast()).map(|mac| mac.to_string())
            }),
            Kind::Address | Kind::AddressOrNull => parse(value, "is not a valid IP address", |text| {
                // IPv4 that is written as IPv6 is still IPv4.
                text.parse::<IpAddr>().ok().map(|address| address.to_canonical().to_string())
            }),
            Kind::Range => {
                parse(value, "is not a valid IP subnet", |text| range(text).map(|range| range.to_string()))
            }
            Kind::Word(words) | Kind::WordOrNull(words) => {
                let text = value.as_str().map(str::to_lowercase);
                let word = text.and_then(|text| words.iter().find(|word| **word == text));
                word.map(|word| json!(word)).ok_or_else(|| format!("{} is not in valid_values", shown(value)))
            }
            Kind::Texts(longest) => list(value)?.iter().map(|item| text(item, longest)).collect(),
            Kind::Object => match value {
                Value::Object(_) => Ok(value.clone()),
                Value::Null => Ok(json!({})),
                other => Err(format!("'{}' is not a dictionary", shown(other))),
            },
            Kind::List(check) => match value {
                Value::Null => Ok(json!([])),
                other => list(other)?.iter().map(check).collect(),
            },
            Kind::Custom(check, _) => check(value),
            Kind::ReadOnly(_) => Err("it cannot be set".to_owned()),
        }
    }

    /// The JSON schema of its values.
    pub(crate) fn schema(self) -> Value {
        let or_null = |mut schema: Value| {
            if let Some(kind) = schema.get("type").cloned() {
                schema["type"] = json!([kind, "null"]);
            }
            schema
        };
        match self {
            Kind::Text(longest) => json!({"type": "string", "maxLength": longest}),
            Kind::TextOrNull(longest) => or_null(Kind::Text(longest).schema()),
            Kind::Truth => json!({"type": "boolean"}),
            Kind::Id => json!({"type": "string", "format": "uuid"}),
            Kind::IdOrNull => or_null(Kind::Id.schema()),
            Kind::Ids => json!({"type": "array", "items": Kind::Id.schema()}),
            Kind::Number(least, most) => json!({"type": "integer", "minimum": least, "maximum": most}),
            Kind::NumberOrNull(least, most) => or_null(Kind::Number(least, most).schema()),
            Kind::Mac => json!({"type": "string", "pattern": "^([0-9a-fA-F]{2}:){5}[0-9a-fA-F]{2}$"}),
            Kind::Address => json!({"type": "string", "description": "an IPv4 or IPv6 address"}),
            Kind::AddressOrNull => or_null(Kind::Address.schema()),
            Kind::Range => {
                json!({"type": "string", "description": "an IPv4 or IPv6 range, such as 192.0.2.0/24"})
            }
            Kind::Word(words) => json!({"type": "string", "enum": words}),
            Kind::WordOrNull(words) => {
                let mut values: Vec<Value> = words.iter().map(|word| json!(word)).collect();
                values.push(Value::Null);
                json!({"enum": values})
            }
            Kind::Texts(longest) => json!({"type": "array", "items": Kind::Text(longest).schema()}),
            Kind::Object => json!({"type": "object"}),
            Kind::List(_) => json!({"type": "array", "items": {}}),
            Kind::Custom(_, schema) | Kind::ReadOnly(schema) => schema(),
        }
    }
}

/// A range, or an address as the range of itself.
pub(crate) fn range(text: &str) -> Option<Cidr> {
    text.parse().ok().or_else(|| text.parse().ok().map(Cidr::host))
}

/// A value in the words of an error.
pub(crate) fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => "None".to_owned(),
        other => other.to_string(),
    }
}

fn text(value: &Value, longest: usize) -> Result<Value, String> {
    let Value::String(text) = value else { return Err(format!("'{}' is not a valid string", shown(value))) };
    let length = text.chars().count();
    if length > longest {
        return Err(format!("'{text}' exceeds maximum length of {longest}"));
    }
    // Not even OVN's database can hold it.
    if text.contains('\0') {
        return Err("it has a null character in it".to_owned());
    }
    Ok(value.clone())
}

fn truth(value: &Value) -> Result<Value, String> {
    let truth = match value {
        Value::Bool(truth) => Some(*truth),
        Value::Number(number) => match number.as_i64() {
            Some(0) => Some(false),
            Some(1) => Some(true),
            _ => None,
        },
        Value::String(text) => match text.to_lowercase().as_str() {
            "true" | "1" => Some(true),
            "false" | "0" => Some(false),
            _ => None,
        },
        _ => None,
    };
    truth.map(Value::Bool).ok_or_else(|| format!("'{}' cannot be converted to boolean", shown(value)))
}

fn number(value: &Value, least: i64, most: i64) -> Result<Value, String> {
    let number = match value {
        Value::Number(number) => number.as_i64(),
        Value::String(text) => text.parse().ok(),
        _ => None,
    };
    let number = number.ok_or_else(|| format!("'{}' is not an integer", shown(value)))?;
    if number < least {
        return Err(format!("'{number}' is too small - must be at least '{least}'"));
    }
    if number > most {
        return Err(format!("'{number}' is too large - must be no larger than '{most}'"));
    }
    Ok(number.into())
}

fn parse(value: &Value, wrong: &str, canonical: impl Fn(&str) -> Option<String>) -> Result<Value, String> {
    value.as_str().and_then(canonical).map(Value::String).ok_or_else(|| format!("'{}' {wrong}", shown(value)))
}

/// The members of a list.
pub(crate) fn list(value: &Value) -> Result<&[Value], String> {
    value.as_array().map(Vec::as_slice).ok_or_else(|| format!("'{}' is not a list", shown(value)))
}

/// The entries of an object.
pub(crate) fn object(value: &Value) -> Result<&Map<String, Value>, String> {
    value.as_object().ok_or_else(|| format!("'{}' is not a dictionary", shown(value)))
}

fn ids(value: &Value) -> Result<Value, String> {
    if value.is_null() {
        return Ok(json!([]));
    }
    let (mut ids, mut known) = (Vec::new(), BTreeSet::new());
    for item in list(value)? {
        let id = Kind::Id.check(item)?;
        if !known.insert(shown(&id)) {
            return Err(format!("Duplicate items in the list: '{}'", shown(&id)));
        }
        ids.push(id);
    }
    Ok(Value::Array(ids))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_checked_and_made_canonical() {
        let id = "550e8400-e29b-41d4-a716-446655440000";
        let upper = id.to_uppercase();
        for (kind, value, expected) in [
            (Kind::Text(3), json!("abc"), Ok(json!("abc"))),
            (Kind::Text(3), json!("abcd"), Err("'abcd' exceeds maximum length of 3")),
            (Kind::Text(3), json!(7), Err("'7' is not a valid string")),
            (Kind::Text(3), json!(null), Err("'None' is not a valid string")),
            (Kind::TextOrNull(3), json!(null), Ok(json!(null))),
            (Kind::Truth, json!("True"), Ok(json!(true))),
            (Kind::Truth, json!("maybe"), Err("'maybe' cannot be converted to boolean")),
            (Kind::Id, json!(upper), Ok(json!(id))),
            (Kind::Id, json!("x"), Err("'x' is not a valid UUID")),
            (
                Kind::Ids,
                json!([id, upper]),
                Err("Duplicate items in the list: '550e8400-e29b-41d4-a716-446655440000'"),
            ),
            (Kind::Number(1, 9), json!("4"), Ok(json!(4))),
            (Kind::Number(1, 9), json!(10), Err("'10' is too large - must be no larger than '9'")),
            (Kind::Number(1, 9), json!(1.5), Err("'1.5' is not an integer")),
            (Kind::Mac, json!("FA:16:3E:00:00:01"), Ok(json!("fa:16:3e:00:00:01"))),
            (Kind::Mac, json!("00:00:00:00:00:00"), Err("'00:00:00:00:00:00' is not a valid MAC address")),
            (Kind::Word(&["ingress"]), json!("Ingress"), Ok(json!("ingress"))),
            (Kind::Word(&["ingress"]), json!("foo"), Err("foo is not in valid_values")),
        ] {
            assert_eq!(kind.check(&value), expected.map_err(str::to_owned), "{kind:?} {value}");
        }
    }
}
