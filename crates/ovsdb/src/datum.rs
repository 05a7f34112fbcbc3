use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

use serde::de::{self, Deserialize, DeserializeSeed, Deserializer, SeqAccess, Visitor};
use serde::ser::{Serialize, Serializer};
use uuid::Uuid;

use crate::atom::{Atom, tagged};
use crate::transaction::Mutator;

/// What a column holds: a set, of which a single value is the one with one member, or a map.
///
/// The members of a set and the keys of a map are distinct, and kept in order, so that ten thousand of them are
/// compared, searched and changed without looking at each for each. Cloned, it is the same memory.
#[derive(Debug, Clone)]
pub struct Datum(Shape);

/// Most columns of most rows have one value, or none: those need no memory of their own.
#[derive(Debug, Clone)]
enum Shape {
    Empty,
    One(Atom),
    Set(Arc<[Atom]>),
    Map(Arc<[(Atom, Atom)]>),
}

impl Datum {
    /// No value.
    pub const EMPTY: Datum = Datum(Shape::Empty);

    fn set(mut members: Vec<Atom>) -> Self {
        // A server tells them in order.
        if !members.is_sorted_by(|one, next| one < next) {
            members.sort_unstable();
            members.dedup();
        }
        match members.len() {
            0 => Datum::EMPTY,
            1 => members.remove(0).into(),
            _ => Datum(Shape::Set(members.into())),
        }
    }

    pub(crate) fn map(mut entries: Vec<(Atom, Atom)>) -> Self {
        if !entries.is_sorted_by(|(one, _), (next, _)| one < next) {
            entries.sort_by(|(one, _), (other, _)| one.cmp(other));
            // Of equal keys the last counts.
            entries.dedup_by(|later, earlier| {
                let same = later.0 == earlier.0;
                if same {
                    std::mem::swap(later, earlier);
                }
                same
            });
        }
        Datum(Shape::Map(entries.into()))
    }

    /// The members of a set, in order; none for a map.
    pub fn members(&self) -> &[Atom] {
        match &self.0 {
            Shape::Empty | Shape::Map(_) => &[],
            Shape::One(only) => std::slice::from_ref(only),
            Shape::Set(members) => members,
        }
    }

    /// The entries of a map, in the order of their keys; none for a set.
    pub fn entries(&self) -> &[(Atom, Atom)] {
        match &self.0 {
            Shape::Map(entries) => entries,
            Shape::Empty | Shape::One(_) | Shape::Set(_) => &[],
        }
    }

    /// Whether a set has this member.
    pub fn contains(&self, member: &Atom) -> bool {
        self.members().binary_search(member).is_ok()
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
        let entries = self.entries();
        let place = entries.binary_search_by(|(known, _)| known.cmp_text(key)).ok()?;
        entries[place].1.as_text()
    }

    /// It after members or entries were added, or taken away.
    pub(crate) fn mutated(&self, mutator: Mutator, value: &Datum) -> Datum {
        match (mutator, &self.0, &value.0) {
            // What has the key already stays.
            (Mutator::Insert, _, Shape::Map(new)) => {
                let order = |one: &(Atom, Atom), other: &(Atom, Atom)| one.0.cmp(&other.0);
                let entries = merged(self.entries(), new, order, |old, _| Some(old.clone()));
                Datum(Shape::Map(entries.into()))
            }
            (Mutator::Insert, _, _) => {
                Datum::set(merged(self.members(), value.members(), Atom::cmp, |old, _| Some(old.clone())))
            }
            (Mutator::Delete, Shape::Map(entries), Shape::Map(gone)) => {
                Datum(Shape::Map(entries.iter().filter(|entry| !gone.contains(entry)).cloned().collect()))
            }
            (Mutator::Delete, Shape::Map(entries), _) => {
                let kept = entries.iter().filter(|(key, _)| !value.contains(key));
                Datum(Shape::Map(kept.cloned().collect()))
            }
            (Mutator::Delete, _, _) => {
                let kept = self.members().iter().filter(|member| !value.contains(member));
                Datum::set(kept.cloned().collect())
            }
        }
    }

    /// It after a change that is told as what only one of old and new has, with new values of kept keys.
    pub(crate) fn changed(&self, difference: &Datum) -> Datum {
        match &difference.0 {
            Shape::Map(difference) => {
                // The same key and value again: it is gone. Another value: it is the new one.
                let both = |old: &(Atom, Atom), new: &(Atom, Atom)| (old != new).then(|| new.clone());
                let entries = merged(self.entries(), difference, |one, other| one.0.cmp(&other.0), both);
                Datum(Shape::Map(entries.into()))
            }
            _ => Datum::set(merged(self.members(), difference.members(), Atom::cmp, |_, _| None)),
        }
    }
}

/// Two lists in order made one; `both` says what becomes of what stands in both.
fn merged<T: Clone>(
    one: &[T],
    other: &[T],
    order: impl Fn(&T, &T) -> Ordering,
    both: impl Fn(&T, &T) -> Option<T>,
) -> Vec<T> {
    let mut all = Vec::with_capacity(one.len() + other.len());
    let mut rest = one;
    for item in other {
        let before = rest.partition_point(|kept| order(kept, item) == Ordering::Less);
        all.extend_from_slice(&rest[..before]);
        rest = &rest[before..];
        match rest.split_first() {
            Some((same, after)) if order(same, item) == Ordering::Equal => {
                all.extend(both(same, item));
                rest = after;
            }
            _ => all.push(item.clone()),
        }
    }
    all.extend_from_slice(rest);
    all
}

impl PartialEq for Datum {
    fn eq(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (Shape::Set(one), Shape::Set(other)) => Arc::ptr_eq(one, other) || one == other,
            (Shape::Map(one), Shape::Map(other)) => Arc::ptr_eq(one, other) || one == other,
            // An empty map is written as one, but a column that is absent has no type.
            _ => self.members() == other.members() && self.entries() == other.entries(),
        }
    }
}

impl Eq for Datum {}

impl<A: Into<Atom>> From<A> for Datum {
    fn from(atom: A) -> Self {
        Datum(Shape::One(atom.into()))
    }
}

impl<A: Into<Atom>> FromIterator<A> for Datum {
    fn from_iter<I: IntoIterator<Item = A>>(members: I) -> Self {
        Datum::set(members.into_iter().map(Into::into).collect())
    }
}

impl<K: Into<Atom>, V: Into<Atom>> FromIterator<(K, V)> for Datum {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(entries: I) -> Self {
        Datum::map(entries.into_iter().map(|(key, value)| (key.into(), value.into())).collect())
    }
}

impl Serialize for Datum {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match &self.0 {
            Shape::One(only) => only.serialize(serializer),
            Shape::Empty | Shape::Set(_) => tagged(serializer, "set", self.members()),
            Shape::Map(entries) => tagged(serializer, "map", &entries[..]),
        }
    }
}

impl<'de> Deserialize<'de> for Datum {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Reading::new(&mut |text: &str| text.into()).deserialize(deserializer)
    }
}

/// Reads a value, whose texts are made by the given function.
pub(crate) struct Reading<'a, F> {
    texts: &'a mut F,
    /// Whether it stands in a set or a map, in which no other can be.
    inside: bool,
}

impl<'a, F: FnMut(&str) -> Arc<str>> Reading<'a, F> {
    pub(crate) fn new(texts: &'a mut F) -> Self {
        Reading { texts, inside: false }
    }
}

#[derive(serde::Deserialize)]
#[serde(rename_all = "lowercase")]
enum Tag {
    Uuid,
    Set,
    Map,
}

fn incomplete<E: de::Error>() -> E {
    E::custom("expected a pair")
}

impl<'de, F: FnMut(&str) -> Arc<str>> DeserializeSeed<'de> for Reading<'_, F> {
    type Value = Datum;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Datum, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de, F: FnMut(&str) -> Arc<str>> Visitor<'de> for Reading<'_, F> {
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
        Ok(Atom::Real(number).into())
    }

    fn visit_str<E>(self, text: &str) -> Result<Datum, E> {
        Ok(Atom::Text((self.texts)(text)).into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Datum, A::Error> {
        match seq.next_element()?.ok_or_else(incomplete)? {
            Tag::Uuid => Ok(seq.next_element::<Uuid>()?.ok_or_else(incomplete)?.into()),
            Tag::Set | Tag::Map if self.inside => Err(de::Error::custom("expected one value, found several")),
            Tag::Set => seq.next_element_seed(Members(self.texts))?.map(Datum::set).ok_or_else(incomplete),
            Tag::Map => seq.next_element_seed(Entries(self.texts))?.map(Datum::map).ok_or_else(incomplete),
        }
    }
}

/// Reads one value of several.
fn next_atom<'de, A: SeqAccess<'de>>(
    seq: &mut A,
    texts: &mut impl FnMut(&str) -> Arc<str>,
) -> Result<Option<Atom>, A::Error> {
    match seq.next_element_seed(Reading { texts, inside: true })? {
        Some(Datum(Shape::One(atom))) => Ok(Some(atom)),
        Some(_) => Err(de::Error::custom("expected one value")),
        None => Ok(None),
    }
}

struct Members<'a, F>(&'a mut F);

impl<'de, F: FnMut(&str) -> Arc<str>> DeserializeSeed<'de> for Members<'_, F> {
    type Value = Vec<Atom>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Vec<Atom>, D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de, F: FnMut(&str) -> Arc<str>> Visitor<'de> for Members<'_, F> {
    type Value = Vec<Atom>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the members of a set")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Vec<Atom>, A::Error> {
        std::iter::from_fn(|| next_atom(&mut seq, self.0).transpose()).collect()
    }
}

struct Entries<'a, F>(&'a mut F);

impl<'de, F: FnMut(&str) -> Arc<str>> DeserializeSeed<'de> for Entries<'_, F> {
    type Value = Vec<(Atom, Atom)>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de, F: FnMut(&str) -> Arc<str>> Visitor<'de> for Entries<'_, F> {
    type Value = Vec<(Atom, Atom)>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the entries of a map")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
        std::iter::from_fn(|| seq.next_element_seed(Entry(self.0)).transpose()).collect()
    }
}

struct Entry<'a, F>(&'a mut F);

impl<'de, F: FnMut(&str) -> Arc<str>> DeserializeSeed<'de> for Entry<'_, F> {
    type Value = (Atom, Atom);

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de, F: FnMut(&str) -> Arc<str>> Visitor<'de> for Entry<'_, F> {
    type Value = (Atom, Atom);

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key and its value")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
        let mut next = || next_atom(&mut seq, self.0)?.ok_or_else(incomplete);
        Ok((next()?, next()?))
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
            json!(["set", [["set", ["x"]]]]),
            json!(["map", [["k"]]]),
            json!(["map", [["k", "v", "w"]]]),
            json!(["uuid", ID, 1]),
        ] {
            assert!(serde_json::from_value::<Datum>(wrong.clone()).is_err(), "{wrong}");
        }
    }

    #[test]
    fn sets_are_in_order_and_without_repetition() {
        let set: Datum = [3, 1, 2, 3].into_iter().collect();
        assert_eq!(set.members(), [1, 2, 3].map(Atom::from));
        assert!(set.contains(&2.into()) && !set.contains(&4.into()) && !set.contains(&"2".into()));
        let map: Datum = [("b", "1"), ("a", "2"), ("b", "3")].into_iter().collect();
        assert_eq!(map.value_of("b"), Some("3"), "the last one counts");
        assert_eq!((map.entries().len(), map.value_of("c")), (2, None));
    }

    #[test]
    fn no_value_and_one_value_need_no_memory() {
        assert_eq!(size_of::<Datum>(), size_of::<Atom>());
        assert_eq!(size_of::<Atom>(), 24);
    }

    fn atom() -> impl Strategy<Value = Atom> {
        prop_oneof![
            (-5i64..5).prop_map(Atom::from),
            prop::num::f64::ANY.prop_map(Atom::Real),
            any::<bool>().prop_map(Atom::from),
            "[a-c]{0,2}".prop_map(Atom::from),
            (0u128..5).prop_map(|number| Uuid::from_u128(number).into()),
        ]
    }

    /// As a server tells it: what only one of them has.
    fn difference(old: &Datum, new: &Datum) -> Datum {
        if old.entries().is_empty() && new.entries().is_empty() {
            let alone = |one: &Datum, other: &Datum| {
                one.members().iter().filter(|member| !other.contains(member)).cloned().collect::<Vec<_>>()
            };
            return alone(old, new).into_iter().chain(alone(new, old)).collect();
        }
        let has = |datum: &Datum, key: &Atom| datum.entries().iter().any(|(known, _)| known == key);
        let gone = old.entries().iter().filter(|(key, _)| !has(new, key));
        let told = new.entries().iter().filter(|entry| !old.entries().contains(entry));
        gone.chain(told).cloned().collect()
    }

    proptest! {
        #[test]
        fn a_set_and_what_changed_give_the_new_set(
            old in prop::collection::vec(atom(), 0..12),
            new in prop::collection::vec(atom(), 0..12),
        ) {
            let [old, new] = [old, new].map(|members| members.into_iter().collect::<Datum>());
            prop_assert_eq!(old.changed(&difference(&old, &new)), new);
        }

        #[test]
        fn a_map_and_what_changed_give_the_new_map(
            old in prop::collection::vec((atom(), atom()), 0..12),
            new in prop::collection::vec((atom(), atom()), 0..12),
        ) {
            let [old, new] = [old, new].map(|entries| entries.into_iter().collect::<Datum>());
            prop_assert_eq!(old.changed(&difference(&old, &new)), new);
        }

        #[test]
        fn order_makes_no_difference(members in prop::collection::vec(atom(), 0..12)) {
            let set: Datum = members.iter().cloned().collect();
            prop_assert_eq!(&members.iter().rev().cloned().collect::<Datum>(), &set);
            prop_assert!(set.members().is_sorted_by(|one, next| one < next));
            prop_assert!(members.iter().all(|member| set.contains(member)));
        }

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
