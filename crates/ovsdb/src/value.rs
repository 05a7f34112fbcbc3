use std::fmt;

use serde::de::{self, Deserialize, Deserializer, SeqAccess, Visitor};
use serde::ser::{Serialize, SerializeTuple, Serializer};
use uuid::Uuid;

/// One value.
#[derive(Debug, Clone, PartialEq, PartialOrd)]
pub enum Atom {
    Integer(i64),
    Real(f64),
    Boolean(bool),
    Text(Box<str>),
    Uuid(Uuid),
}

/// What a column holds: a set, of which a single value is the one with one member, or a map.
///
/// The members of a set and the keys of a map are distinct; their order means nothing, and is kept as it came.
#[derive(Debug, Clone)]
pub enum Datum {
    Set(Vec<Atom>),
    Map(Vec<(Atom, Atom)>),
}

impl Datum {
    /// No value.
    pub const EMPTY: Datum = Datum::Set(Vec::new());

    /// The members of a set; none for a map.
    pub fn members(&self) -> &[Atom] {
        match self {
            Datum::Set(members) => members,
            Datum::Map(_) => &[],
        }
    }

    /// The entries of a map; none for a set.
    pub fn entries(&self) -> &[(Atom, Atom)] {
        match self {
            Datum::Map(entries) => entries,
            Datum::Set(_) => &[],
        }
    }

    /// The text of a column with one text.
    pub fn text(&self) -> Option<&str> {
        match self.members() {
            [Atom::Text(text)] => Some(text),
            _ => None,
        }
    }

    /// The number of a column with one integer.
    pub fn integer(&self) -> Option<i64> {
        match self.members() {
            [Atom::Integer(number)] => Some(*number),
            _ => None,
        }
    }

    /// Yes or no, of a column with one of them.
    pub fn boolean(&self) -> Option<bool> {
        match self.members() {
            [Atom::Boolean(value)] => Some(*value),
            _ => None,
        }
    }

    /// All texts of a set.
    pub fn texts(&self) -> impl Iterator<Item = &str> {
        self.members().iter().filter_map(Atom::as_text)
    }

    /// All rows that a set refers to.
    pub fn uuids(&self) -> impl Iterator<Item = Uuid> {
        self.members().iter().filter_map(|atom| match atom {
            Atom::Uuid(uuid) => Some(*uuid),
            _ => None,
        })
    }

    /// The text under a key of a map.
    pub fn value_of(&self, key: &str) -> Option<&str> {
        self.entries().iter().find(|(k, _)| k.as_text() == Some(key)).and_then(|(_, value)| value.as_text())
    }
}

/// Equal sets have the same members, whatever their order.
impl PartialEq for Datum {
    fn eq(&self, other: &Self) -> bool {
        fn same<T: PartialEq>(one: &[T], other: &[T]) -> bool {
            one.len() == other.len() && (one == other || one.iter().all(|item| other.contains(item)))
        }
        match (self, other) {
            (Datum::Set(one), Datum::Set(other)) => same(one, other),
            (Datum::Map(one), Datum::Map(other)) => same(one, other),
            // An empty map is written as one, but a column that is absent has no type.
            (Datum::Set(set), Datum::Map(map)) | (Datum::Map(map), Datum::Set(set)) => {
                set.is_empty() && map.is_empty()
            }
        }
    }
}

impl Atom {
    /// Its text, if it is one.
    pub fn as_text(&self) -> Option<&str> {
        match self {
            Atom::Text(text) => Some(text),
            _ => None,
        }
    }
}

impl From<&str> for Atom {
    fn from(text: &str) -> Self {
        Atom::Text(text.into())
    }
}

impl From<String> for Atom {
    fn from(text: String) -> Self {
        Atom::Text(text.into())
    }
}

impl From<i64> for Atom {
    fn from(number: i64) -> Self {
        Atom::Integer(number)
    }
}

impl From<bool> for Atom {
    fn from(value: bool) -> Self {
        Atom::Boolean(value)
    }
}

impl From<Uuid> for Atom {
    fn from(uuid: Uuid) -> Self {
        Atom::Uuid(uuid)
    }
}

impl<A: Into<Atom>> From<A> for Datum {
    fn from(atom: A) -> Self {
        Datum::Set(vec![atom.into()])
    }
}

impl<A: Into<Atom>> FromIterator<A> for Datum {
    fn from_iter<I: IntoIterator<Item = A>>(members: I) -> Self {
        Datum::Set(members.into_iter().map(Into::into).collect())
    }
}

impl<K: Into<Atom>, V: Into<Atom>> FromIterator<(K, V)> for Datum {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(entries: I) -> Self {
        Datum::Map(entries.into_iter().map(|(key, value)| (key.into(), value.into())).collect())
    }
}

fn tagged<S: Serializer, T: Serialize>(serializer: S, tag: &str, value: &T) -> Result<S::Ok, S::Error> {
    let mut pair = serializer.serialize_tuple(2)?;
    pair.serialize_element(tag)?;
    pair.serialize_element(value)?;
    pair.end()
}

impl Serialize for Atom {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Atom::Integer(number) => serializer.serialize_i64(*number),
            Atom::Real(number) => serializer.serialize_f64(*number),
            Atom::Boolean(value) => serializer.serialize_bool(*value),
            Atom::Text(text) => serializer.serialize_str(text),
            Atom::Uuid(uuid) => tagged(serializer, "uuid", uuid),
        }
    }
}

impl Serialize for Datum {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Datum::Set(members) => match members.as_slice() {
                [only] => only.serialize(serializer),
                members => tagged(serializer, "set", &members),
            },
            Datum::Map(entries) => tagged(serializer, "map", entries),
        }
    }
}

impl<'de> Deserialize<'de> for Atom {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match Datum::deserialize(deserializer)? {
            Datum::Set(mut members) if members.len() == 1 => Ok(members.remove(0)),
            _ => Err(de::Error::custom("expected one value, found a set or a map")),
        }
    }
}

impl<'de> Deserialize<'de> for Datum {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Value;

        impl<'de> Visitor<'de> for Value {
            type Value = Datum;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a value of OVSDB")
            }

            fn visit_bool<E>(self, value: bool) -> Result<Datum, E> {
                Ok(value.into())
            }

            fn visit_i64<E>(self, number: i64) -> Result<Datum, E> {
                Ok(number.into())
            }

            fn visit_u64<E: de::Error>(self, number: u64) -> Result<Datum, E> {
                i64::try_from(number).map(Datum::from).map_err(|_| E::custom("an integer beyond 64 bits"))
            }

            fn visit_f64<E>(self, number: f64) -> Result<Datum, E> {
                Ok(Datum::Set(vec![Atom::Real(number)]))
            }

            fn visit_str<E>(self, text: &str) -> Result<Datum, E> {
                Ok(text.into())
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Datum, A::Error> {
                let short = || de::Error::custom("expected a pair of a tag and a value");
                let tag: std::borrow::Cow<'de, str> = seq.next_element()?.ok_or_else(short)?;
                match &*tag {
                    "uuid" => Ok(seq.next_element::<Uuid>()?.ok_or_else(short)?.into()),
                    "set" => Ok(Datum::Set(seq.next_element()?.ok_or_else(short)?)),
                    "map" => Ok(Datum::Map(seq.next_element()?.ok_or_else(short)?)),
                    other => Err(de::Error::unknown_variant(other, &["uuid", "set", "map"])),
                }
            }
        }

        deserializer.deserialize_any(Value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    const ID: &str = "550e8400-e29b-41d4-a716-446655440000";

    #[test]
    fn values_are_written_as_the_protocol_has_them() {
        let id: Uuid = ID.parse().unwrap();
        let table = [
            (Datum::from("x"), json!("x")),
            (Datum::from(7), json!(7)),
            (Datum::from(true), json!(true)),
            (Datum::from(id), json!(["uuid", ID])),
            (Datum::EMPTY, json!(["set", []])),
            ([1, 2].into_iter().collect(), json!(["set", [1, 2]])),
            ([("k", "v")].into_iter().collect(), json!(["map", [["k", "v"]]])),
        ];
        for (datum, expected) in table {
            assert_eq!(serde_json::to_value(&datum).unwrap(), expected);
            assert_eq!(serde_json::from_value::<Datum>(expected).unwrap(), datum);
        }
    }

    #[test]
    fn what_is_no_value_is_refused() {
        for wrong in [
            json!(null),
            json!({}),
            json!([]),
            json!(["set"]),
            json!(["uuid", "x"]),
            json!(["other", 1]),
            json!(["set", [["set", []]]]),
        ] {
            assert!(serde_json::from_value::<Datum>(wrong.clone()).is_err(), "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn maps_come_back(entries in prop::collection::btree_map("\\PC{0,6}", "\\PC{0,6}", 0..5)) {
            let datum: Datum = entries.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
            let text = serde_json::to_string(&datum).unwrap();
            let back: Datum = serde_json::from_str(&text).unwrap();
            prop_assert_eq!(&back, &datum);
            for (key, value) in &entries {
                prop_assert_eq!(back.value_of(key), Some(value.as_str()));
            }
        }
    }
}
