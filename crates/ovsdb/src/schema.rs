use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use crate::{Atom, Datum};

/// What a database can hold.
#[derive(Debug, Clone, Deserialize)]
pub struct Schema {
    /// The name of the database.
    pub name: String,
    /// The version of the schema, such as `7.0.0`.
    #[serde(default)]
    pub version: String,
    /// Its tables.
    pub tables: BTreeMap<String, Table>,
}

/// What a table of the database can hold.
#[derive(Debug, Clone, Deserialize)]
pub struct Table {
    /// Its columns.
    pub columns: BTreeMap<String, Column>,
}

/// What a column can hold.
#[derive(Debug, Clone, Deserialize)]
pub struct Column {
    #[serde(rename = "type")]
    kind: Kind,
}

/// As the schema writes it: a bare name, or an object.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
enum Kind {
    Plain(Base),
    Full {
        key: Bounded,
        value: Option<Bounded>,
        #[serde(default = "one")]
        min: u64,
        #[serde(default = "one_value")]
        max: Value,
    },
}

fn one() -> u64 {
    1
}

fn one_value() -> Value {
    Value::from(1)
}

#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
enum Bounded {
    Plain(Base),
    Full {
        #[serde(rename = "type")]
        base: Base,
        #[serde(default, rename = "enum")]
        allowed: Option<Datum>,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Base {
    Integer,
    Real,
    Boolean,
    String,
    Uuid,
}

impl Bounded {
    fn base(&self) -> Base {
        match self {
            Bounded::Plain(base) | Bounded::Full { base, .. } => *base,
        }
    }
}

impl Column {
    /// What a row holds that does not mention the column.
    pub(crate) fn default_value(&self) -> Datum {
        match &self.kind {
            Kind::Full { value: Some(_), .. } => Datum::map(Vec::new()),
            Kind::Full { min: 0, .. } => Datum::EMPTY,
            Kind::Plain(base) => base.default_value().into(),
            Kind::Full { key, .. } => key.base().default_value().into(),
        }
    }

    /// Whether it holds several values: then a change of it is told as what is in one of old and new only.
    pub(crate) fn is_composite(&self) -> bool {
        match &self.kind {
            Kind::Plain(_) => false,
            // Of a map with one entry at most all is told, too.
            Kind::Full { max, .. } => max.as_u64() != Some(1),
        }
    }

    /// Whether it takes this text.
    pub fn allows(&self, text: &str) -> bool {
        match &self.kind {
            Kind::Full { key: Bounded::Full { allowed: Some(allowed), .. }, .. } => {
                allowed.texts().any(|t| t == text)
            }
            _ => true,
        }
    }
}

impl Base {
    fn default_value(self) -> Atom {
        match self {
            Base::Integer => Atom::Integer(0),
            Base::Real => Atom::Real(0.0),
            Base::Boolean => Atom::Boolean(false),
            Base::String => Atom::Text("".into()),
            Base::Uuid => Atom::Uuid(uuid::Uuid::nil()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn column(kind: &Value) -> Column {
        serde_json::from_value(json!({ "type": kind })).unwrap()
    }

    #[test]
    fn defaults_and_shapes() {
        let table = [
            (json!("string"), Datum::from(""), false),
            (json!({"key": "integer"}), Datum::from(0), false),
            (json!({"key": "integer", "min": 0, "max": 1}), Datum::EMPTY, false),
            (
                json!({"key": {"type": "uuid", "refTable": "ACL"}, "min": 0, "max": "unlimited"}),
                Datum::EMPTY,
                true,
            ),
            (
                json!({"key": "string", "value": "string", "min": 0, "max": "unlimited"}),
                Datum::map(vec![]),
                true,
            ),
            (json!({"key": "string", "value": "string", "min": 0, "max": 1}), Datum::map(vec![]), false),
        ];
        for (kind, default, composite) in table {
            let column = column(&kind);
            assert_eq!(column.default_value(), default, "{kind}");
            assert_eq!(column.is_composite(), composite, "{kind}");
        }
    }

    #[test]
    fn a_column_with_a_list_of_texts_takes_no_other() {
        let column = column(&json!({"key": {"type": "string", "enum": ["set", ["allow", "drop"]]}}));
        assert!(column.allows("drop") && !column.allows("pass"));
        assert!(super::tests::column(&json!("string")).allows("anything"));
    }
}
