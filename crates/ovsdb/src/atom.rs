use std::cmp::Ordering;
use std::sync::Arc;

use serde::ser::{Serialize, SerializeTuple, Serializer};
use uuid::Uuid;

/// One value.
#[derive(Debug, Clone)]
pub enum Atom {
    Integer(i64),
    Real(f64),
    Boolean(bool),
    Text(Arc<str>),
    Uuid(Uuid),
}

impl Atom {
    /// Its text, if it is one.
    pub fn as_text(&self) -> Option<&str> {
        match self {
            Atom::Text(text) => Some(text),
            _ => None,
        }
    }

    /// How it stands to a text.
    pub(crate) fn cmp_text(&self, text: &str) -> Ordering {
        match self {
            Atom::Text(own) => (**own).cmp(text),
            Atom::Uuid(_) => Ordering::Greater,
            Atom::Integer(_) | Atom::Real(_) | Atom::Boolean(_) => Ordering::Less,
        }
    }

    /// The place of its kind among the kinds.
    fn rank(&self) -> u8 {
        match self {
            Atom::Integer(_) => 0,
            Atom::Real(_) => 1,
            Atom::Boolean(_) => 2,
            Atom::Text(_) => 3,
            Atom::Uuid(_) => 4,
        }
    }
}

/// A total order, in which sets are kept.
impl Ord for Atom {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Atom::Integer(one), Atom::Integer(other)) => one.cmp(other),
            (Atom::Real(one), Atom::Real(other)) => one.total_cmp(other),
            (Atom::Boolean(one), Atom::Boolean(other)) => one.cmp(other),
            (Atom::Text(one), Atom::Text(other)) if Arc::ptr_eq(one, other) => Ordering::Equal,
            (Atom::Text(one), Atom::Text(other)) => one.cmp(other),
            (Atom::Uuid(one), Atom::Uuid(other)) => one.cmp(other),
            _ => self.rank().cmp(&other.rank()),
        }
    }
}

impl PartialOrd for Atom {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Atom {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Atom {}

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

/// As the protocol writes what is no plain JSON: its name, then its value.
pub(crate) fn tagged<S: Serializer, T: Serialize + ?Sized>(
    serializer: S,
    tag: &str,
    value: &T,
) -> Result<S::Ok, S::Error> {
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
