//! Turns nodes into the configuration's types: a serde deserializer that always knows the key path and the
//! line it stands on.
//!
//! Two kinds of serde attributes would defeat it, because serde then buffers values and forgets where they
//! came from: `flatten`, and enums that are `untagged` or internally tagged. Sections do without them.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fmt::{self, Display};

use serde::de::{
    self, DeserializeOwned, DeserializeSeed, Deserializer, EnumAccess, Expected, IntoDeserializer, MapAccess,
    SeqAccess, Unexpected, VariantAccess, Visitor,
};

use super::finding::{Finding, did_you_mean};
use super::node::{Entry, LONGEST, Location, Node, Value, quoted};
use super::path::Path;
use super::yaml;

/// What came out of a decode: a value only when there are no errors; unknown keys in any case.
#[derive(Debug)]
pub(crate) struct Decoded<T> {
    pub(crate) result: Result<T, Vec<Finding>>,
    pub(crate) unknown: Vec<Unknown>,
}

/// A key that nothing reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Unknown {
    pub(crate) finding: Finding,
    /// It is a known key, written wrongly: no version of this program will ever know it as it is.
    pub(crate) slip: bool,
}

/// More than anyone reads at once. Each error costs a pass over the document.
const MOST_ERRORS: usize = 50;

/// Decodes `node` and finds every error it can, not only the first.
///
/// serde stops at the first error. So each pass notes its error, and the next one leaves the value at fault
/// out, as if it had not been written, until nothing more is wrong.
pub(crate) fn decode<T: DeserializeOwned>(node: &Node) -> Decoded<T> {
    let mut pass = Pass { skip: BTreeSet::new(), unknown: RefCell::default() };
    let mut errors: Vec<Finding> = Vec::new();
    let value = loop {
        let error = match T::deserialize(Decoder { node, path: &Path::Top, pass: &pass }) {
            Ok(value) => break Some(value),
            Err(error) => error,
        };
        let finding = error.into_finding(node);
        let path = finding.path.clone();
        // Leaving a value out can make its surroundings incomplete; that is not the user's mistake.
        if !pass.skip.iter().any(|skipped| is_below(skipped, &path)) {
            errors.push(finding);
        }
        if path.is_empty() || !pass.skip.insert(path) || errors.len() == MOST_ERRORS {
            break None;
        }
    };
    // A reader mends one file from top to bottom.
    errors.sort_by(|a, b| a.at.cmp(&b.at));
    let mut unknown = pass.unknown.into_inner();
    unknown.sort_by(|a, b| a.finding.at.cmp(&b.finding.at));
    let result = match value {
        Some(value) if errors.is_empty() => Ok(value),
        _ => Err(errors),
    };
    Decoded { result, unknown }
}

/// Whether `path` is part of the value at `above`.
fn is_below(path: &str, above: &str) -> bool {
    above.is_empty() || path.strip_prefix(above).is_some_and(|rest| rest.starts_with(['.', '[']))
}

/// Decodes a value that is written as text and has a form of its own: an address, a duration, a CIDR.
///
/// `expected` completes "expected …" in the error. `parse` may say more about what it did not like.
pub(crate) fn from_text<'de, D: Deserializer<'de>, T>(
    deserializer: D,
    expected: &'static str,
    parse: fn(&str) -> Result<T, Option<String>>,
) -> Result<T, D::Error> {
    struct Text<T> {
        expected: &'static str,
        parse: fn(&str) -> Result<T, Option<String>>,
    }

    impl<T> Visitor<'_> for Text<T> {
        type Value = T;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(self.expected)
        }

        fn visit_str<E: de::Error>(self, text: &str) -> Result<T, E> {
            (self.parse)(text).map_err(|more| match more {
                Some(more) => {
                    E::custom(format!("expected {}, found {}. {more}", self.expected, quoted(text)))
                }
                None => E::invalid_value(Unexpected::Str(text), &self),
            })
        }
    }

    deserializer.deserialize_str(Text { expected, parse })
}

/// What all decoders of one pass share.
struct Pass {
    /// Paths to leave out, because an earlier pass failed on them.
    skip: BTreeSet<String>,
    unknown: RefCell<Vec<Unknown>>,
}

impl Pass {
    /// Each pass meets the same unknown keys again.
    fn note(&self, key: Unknown) {
        let mut unknown = self.unknown.borrow_mut();
        if !unknown.contains(&key) {
            unknown.push(key);
        }
    }
}

#[derive(Debug, thiserror::Error)]
#[error("{message}")]
struct Error {
    message: String,
    hint: Option<String>,
    place: Option<(Location, String)>,
}

impl Error {
    fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), hint: None, place: None }
    }

    fn expected(expected: impl Display, found: &Value) -> Self {
        Self::new(format!("expected {expected}, found {}", found.describe()))
    }

    fn hint(mut self, hint: Option<String>) -> Self {
        self.hint = hint;
        self
    }

    /// The innermost place wins: it is the closest to the mistake.
    fn at(mut self, at: &Location, path: &Path<'_>) -> Self {
        self.place.get_or_insert_with(|| (at.clone(), path.to_string()));
        self
    }

    fn into_finding(self, top: &Node) -> Finding {
        let (at, path) = self.place.unwrap_or_else(|| (top.at.clone(), String::new()));
        Finding { hint: self.hint, ..Finding::new(at, path, self.message) }
    }
}

impl de::Error for Error {
    fn custom<T: Display>(message: T) -> Self {
        Self::new(message.to_string())
    }

    fn invalid_type(found: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::new(format!("expected {expected}, found {}", describe(found)))
    }

    fn invalid_value(found: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::invalid_type(found, expected)
    }

    fn invalid_length(length: usize, expected: &dyn Expected) -> Self {
        Self::new(format!("expected {expected}, found {length} items"))
    }

    fn unknown_variant(variant: &str, known: &'static [&'static str]) -> Self {
        Self::new(format!("expected {}, found {}", one_of(known), quoted(variant)))
            .hint(did_you_mean(variant, known))
    }

    fn missing_field(field: &'static str) -> Self {
        Self::new(format!("the key `{field}` is missing"))
    }
}

fn describe(found: Unexpected<'_>) -> String {
    match found {
        Unexpected::Bool(b) => format!("`{b}`"),
        Unexpected::Unsigned(n) => format!("`{n}`"),
        Unexpected::Signed(n) => format!("`{n}`"),
        Unexpected::Float(x) => format!("`{x}`"),
        Unexpected::Str("") => "an empty text".to_owned(),
        Unexpected::Str(text) => quoted(text),
        Unexpected::Unit | Unexpected::Option => "nothing".to_owned(),
        Unexpected::Seq => "a list".to_owned(),
        Unexpected::Map => "a map".to_owned(),
        other => other.to_string(),
    }
}

fn one_of(names: &[&str]) -> String {
    listed(names, "or")
}

fn all_of(names: &[&str]) -> String {
    listed(names, "and")
}

/// "`a`, `b` or `c`", with another word for "or" if need be.
fn listed(names: &[&str], word: &str) -> String {
    let names: Vec<_> = names.iter().map(|n| format!("`{n}`")).collect();
    match names.split_last() {
        None => "nothing".to_owned(),
        Some((only, [])) => only.clone(),
        Some((last, others)) => format!("{} {word} {last}", others.join(", ")),
    }
}

/// The hint for `mode:observe`, which YAML does not take for a key and a value.
fn missing_space(text: &str, known: &[&str]) -> Option<String> {
    let (name, value) = text.split_once(':')?;
    known
        .contains(&name)
        .then(|| format!("A space is missing after the colon: write {}", quoted(&format!("{name}: {value}"))))
}

/// The hint for `Mode`, which is `mode` but for its case or for spaces around it.
fn other_case(text: &str, known: &[&str]) -> Option<String> {
    let folded = text.trim().to_lowercase();
    let meant = known.iter().find(|name| name.to_lowercase() == folded)?;
    Some(format!("Write `{meant}`"))
}

/// How `item` would be written as a list, if that is short enough for a hint.
fn list_of_one(item: &str) -> Option<String> {
    if item.chars().nth(LONGEST).is_some() {
        return None;
    }
    let plain = format!("[{item}]");
    // The text of a list is not always the text of its item: `[::1]:80`, `a, b` and `a: b` need quotes in it.
    let alone = yaml::parse("hint".as_ref(), &plain).is_ok_and(|node| match node.value {
        Value::List(items) => matches!(items.as_slice(), [only] if only.value == Value::from_plain(item)),
        _ => false,
    });
    // Quoted as in JSON, which is YAML too.
    let list = if alone { plain } else { format!("[{}]", serde_json::Value::from(item)) };
    Some(format!("A list of one is written {list}"))
}

/// A deserializer for one node.
#[derive(Clone, Copy)]
struct Decoder<'de, 'p> {
    node: &'de Node,
    path: &'p Path<'p>,
    pass: &'p Pass,
}

impl<'de> Decoder<'de, '_> {
    fn text(&self) -> Option<&'de str> {
        match &self.node.value {
            Value::Text(text) | Value::Bool(_, text) | Value::Int(_, text) | Value::Float(_, text) => {
                Some(text)
            }
            _ => None,
        }
    }

    fn expected(&self, expected: impl Display) -> Error {
        Error::expected(expected, &self.node.value).at(&self.node.at, self.path)
    }

    /// Gives an error that does not know its place yet the place of this node.
    fn placed<T>(&self, result: Result<T, Error>) -> Result<T, Error> {
        result.map_err(|e| e.at(&self.node.at, self.path))
    }

    fn integer<T: TryFrom<i128>>(&self, least: impl Display, most: impl Display) -> Result<T, Error> {
        let expected = || self.expected(format!("a whole number from {least} to {most}"));
        match &self.node.value {
            Value::Int(n, _) => T::try_from(*n).map_err(|_| expected()),
            Value::Text(text) if matches!(Value::from_plain(text), Value::Int(..)) => {
                Err(expected().hint(Some("Remove the quotes".to_owned())))
            }
            _ => Err(expected()),
        }
    }
}

macro_rules! integers {
    ($($method:ident $visit:ident $type:ident)*) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
            let n = self.integer::<$type>($type::MIN, $type::MAX)?;
            self.placed(visitor.$visit(n))
        }
    )*};
}

impl<'de> Deserializer<'de> for Decoder<'de, '_> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match &self.node.value {
            Value::Null => self.placed(visitor.visit_unit()),
            Value::Bool(b, _) => self.placed(visitor.visit_bool(*b)),
            Value::Int(n, _) => self.placed(if let Ok(n) = u64::try_from(*n) {
                visitor.visit_u64(n)
            } else if let Ok(n) = i64::try_from(*n) {
                visitor.visit_i64(n)
            } else {
                visitor.visit_i128(*n)
            }),
            Value::Float(x, _) => self.placed(visitor.visit_f64(*x)),
            Value::Text(text) => self.placed(visitor.visit_borrowed_str(text)),
            Value::List(items) => self.list(items, visitor),
            Value::Map(entries) => self.map(entries, visitor),
        }
    }

    integers! {
        deserialize_i8 visit_i8 i8
        deserialize_i16 visit_i16 i16
        deserialize_i32 visit_i32 i32
        deserialize_i64 visit_i64 i64
        deserialize_u8 visit_u8 u8
        deserialize_u16 visit_u16 u16
        deserialize_u32 visit_u32 u32
        deserialize_u64 visit_u64 u64
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match &self.node.value {
            Value::Bool(b, _) => self.placed(visitor.visit_bool(*b)),
            Value::Text(text) => {
                let meant = match text.to_lowercase().as_str() {
                    "yes" | "y" | "on" | "true" => Some("Write `true`, without quotes".to_owned()),
                    "no" | "n" | "off" | "false" => Some("Write `false`, without quotes".to_owned()),
                    _ => None,
                };
                Err(self.expected("`true` or `false`").hint(meant))
            }
            _ => Err(self.expected("`true` or `false`")),
        }
    }

    fn deserialize_f32<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_f64(visitor)
    }

    fn deserialize_f64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match &self.node.value {
            Value::Float(x, _) => self.placed(visitor.visit_f64(*x)),
            #[expect(clippy::cast_precision_loss, reason = "a float was asked for")]
            Value::Int(n, _) => self.placed(visitor.visit_f64(*n as f64)),
            _ => Err(self.expected("a number")),
        }
    }

    /// Numbers and booleans are taken as they are written: `1.10` and `0123` are fine where text is wanted.
    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.text() {
            Some(text) => self.placed(visitor.visit_borrowed_str(text)),
            None => Err(self.expected(&visitor as &dyn Expected)),
        }
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_str(visitor)
    }

    fn deserialize_char<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_str(visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.node.value {
            Value::Null => self.placed(visitor.visit_none()),
            _ => self.placed(visitor.visit_some(self)),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.placed(visitor.visit_newtype_struct(self))
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match &self.node.value {
            Value::List(items) => self.list(items, visitor),
            Value::Map(_) | Value::Null => Err(self.expected("a list")),
            _ => Err(self.expected("a list").hint(self.text().and_then(list_of_one))),
        }
    }

    fn deserialize_tuple<V: Visitor<'de>>(self, length: usize, visitor: V) -> Result<V::Value, Error> {
        match &self.node.value {
            Value::List(items) if items.len() != length => {
                let message = format!("expected a list of {length}, found one of {}", items.len());
                Err(Error::new(message).at(&self.node.at, self.path))
            }
            _ => self.deserialize_seq(visitor),
        }
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        length: usize,
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.deserialize_tuple(length, visitor)
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match &self.node.value {
            Value::Map(entries) => self.map(entries, visitor),
            _ => Err(self.expected("a map")),
        }
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        let Value::Map(entries) = &self.node.value else {
            let hint = self.text().and_then(|text| missing_space(text, fields));
            return Err(self.expected(format!("a map with the keys {}", all_of(fields))).hint(hint));
        };
        for entry in entries.iter().filter(|e| !fields.contains(&e.key.as_str())) {
            let path = Path::Key(self.path, &entry.key).to_string();
            let slip = missing_space(&entry.key, fields).or_else(|| other_case(&entry.key, fields));
            let hint = slip.clone().or_else(|| did_you_mean(&entry.key, fields));
            let hint = hint.unwrap_or_else(|| format!("Known here: {}", all_of(fields)));
            let finding = Finding::new(entry.key_at.clone(), path, "unknown key").with_hint(hint);
            self.pass.note(Unknown { finding, slip: slip.is_some() });
        }
        let known: Vec<_> = entries.iter().filter(|e| fields.contains(&e.key.as_str())).collect();
        self.placed(visitor.visit_map(Fields { entries: known.into_iter(), value: None, decoder: self }))
    }

    /// `variant`, or `variant: {…}` for one that carries values.
    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        let (name, content) = match &self.node.value {
            Value::Map(entries) => match entries.as_slice() {
                [entry] => (entry.key.as_str(), Some(entry)),
                // A key without a value, as in `{observe: }`, does not survive the merge.
                [] => {
                    let message = format!("expected {}, found a map without values", one_of(variants));
                    let hint = Some("Write the name alone, without braces and colon".to_owned());
                    return Err(Error::new(message).hint(hint).at(&self.node.at, self.path));
                }
                _ => return Err(self.expected(format!("one key, {}", one_of(variants)))),
            },
            _ => match self.text() {
                Some(text) => (text, None),
                None => return Err(self.expected(one_of(variants))),
            },
        };
        self.placed(visitor.visit_enum(Variant { name, content, decoder: self }))
    }

    fn deserialize_identifier<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_str(visitor)
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.placed(visitor.visit_unit())
    }

    serde::forward_to_deserialize_any! { bytes byte_buf unit unit_struct i128 u128 }
}

impl<'de> Decoder<'de, '_> {
    fn list<V: Visitor<'de>>(self, items: &'de [Node], visitor: V) -> Result<V::Value, Error> {
        self.placed(visitor.visit_seq(Items { items: items.iter().enumerate(), decoder: self }))
    }

    fn map<V: Visitor<'de>>(self, entries: &'de [Entry], visitor: V) -> Result<V::Value, Error> {
        let entries: Vec<_> = entries.iter().collect();
        self.placed(visitor.visit_map(Fields { entries: entries.into_iter(), value: None, decoder: self }))
    }
}

struct Items<'de, 'p> {
    items: std::iter::Enumerate<std::slice::Iter<'de, Node>>,
    decoder: Decoder<'de, 'p>,
}

impl<'de> SeqAccess<'de> for Items<'de, '_> {
    type Error = Error;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Error> {
        for (index, node) in self.items.by_ref() {
            let path = Path::Item(self.decoder.path, index);
            if self.decoder.pass.skip.contains(&path.to_string()) {
                continue;
            }
            return seed.deserialize(Decoder { node, path: &path, ..self.decoder }).map(Some);
        }
        Ok(None)
    }
}

struct Fields<'de, 'p> {
    entries: std::vec::IntoIter<&'de Entry>,
    value: Option<&'de Entry>,
    decoder: Decoder<'de, 'p>,
}

impl<'de> MapAccess<'de> for Fields<'de, '_> {
    type Error = Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Error> {
        for entry in self.entries.by_ref() {
            let path = Path::Key(self.decoder.path, &entry.key);
            if self.decoder.pass.skip.contains(&path.to_string()) {
                continue;
            }
            self.value = Some(entry);
            return seed.deserialize(Key { entry, path: &path, pass: self.decoder.pass }).map(Some);
        }
        Ok(None)
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, Error> {
        let entry = self.value.take().ok_or_else(|| Error::new("a value was asked for before its key"))?;
        let path = Path::Key(self.decoder.path, &entry.key);
        seed.deserialize(Decoder { node: &entry.node, path: &path, ..self.decoder })
    }
}

/// A deserializer for the key of a map: text, unless the type of the key asks for a number or a boolean.
struct Key<'de, 'p> {
    entry: &'de Entry,
    path: &'p Path<'p>,
    pass: &'p Pass,
}

impl<'de> Key<'de, '_> {
    fn text(&self) -> de::value::BorrowedStrDeserializer<'de, Error> {
        de::value::BorrowedStrDeserializer::new(&self.entry.key)
    }

    fn placed<T>(&self, result: Result<T, Error>) -> Result<T, Error> {
        result.map_err(|e| e.at(&self.entry.key_at, self.path))
    }

    fn integer<T: TryFrom<i128>>(&self, least: impl Display, most: impl Display) -> Result<T, Error> {
        let node = Node::new(Value::from_plain(&self.entry.key), self.entry.key_at.clone());
        Decoder { node: &node, path: self.path, pass: self.pass }.integer(least, most)
    }
}

impl<'de> Deserializer<'de> for Key<'de, '_> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.placed(self.text().deserialize_any(visitor))
    }

    integers! {
        deserialize_i8 visit_i8 i8
        deserialize_i16 visit_i16 i16
        deserialize_i32 visit_i32 i32
        deserialize_i64 visit_i64 i64
        deserialize_u8 visit_u8 u8
        deserialize_u16 visit_u16 u16
        deserialize_u32 visit_u32 u32
        deserialize_u64 visit_u64 u64
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match Value::from_plain(&self.entry.key) {
            Value::Bool(b, _) => self.placed(visitor.visit_bool(b)),
            other => self.placed(Err(Error::expected("`true` or `false`", &other))),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.placed(self.text().deserialize_enum(name, variants, visitor))
    }

    serde::forward_to_deserialize_any! {
        bytes byte_buf unit unit_struct i128 u128 f32 f64 char str string
        seq tuple tuple_struct map struct identifier ignored_any
    }
}

struct Variant<'de, 'p> {
    name: &'de str,
    content: Option<&'de Entry>,
    decoder: Decoder<'de, 'p>,
}

impl<'de> EnumAccess<'de> for Variant<'de, '_> {
    type Error = Error;
    type Variant = Self;

    fn variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<(S::Value, Self), Error> {
        let name: de::value::StrDeserializer<'_, Error> = self.name.into_deserializer();
        Ok((seed.deserialize(name)?, self))
    }
}

impl<'de> Variant<'de, '_> {
    /// Decodes what the variant carries, with the variant's name as a step of the path.
    fn content<T>(self, decode: impl FnOnce(Decoder<'de, '_>) -> Result<T, Error>) -> Result<T, Error> {
        let Some(entry) = self.content else {
            let message = format!("`{}` needs a value: write it as a key, `{}: …`", self.name, self.name);
            return Err(Error::new(message));
        };
        let path = Path::Key(self.decoder.path, &entry.key);
        if self.decoder.pass.skip.contains(&path.to_string()) {
            // Without it the variant cannot be made either: the next pass leaves out the whole choice.
            return Err(Error::new(format!("`{}` is left out", self.name)));
        }
        decode(Decoder { node: &entry.node, path: &path, ..self.decoder })
    }
}

impl<'de> VariantAccess<'de> for Variant<'de, '_> {
    type Error = Error;

    fn unit_variant(self) -> Result<(), Error> {
        match self.content {
            None => Ok(()),
            Some(entry) if entry.node.value == Value::Null => Ok(()),
            Some(_) => Err(Error::new(format!("`{}` takes no value: write only the name", self.name))),
        }
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value, Error> {
        self.content(|decoder| seed.deserialize(decoder))
    }

    fn tuple_variant<V: Visitor<'de>>(self, length: usize, visitor: V) -> Result<V::Value, Error> {
        self.content(|decoder| decoder.deserialize_tuple(length, visitor))
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.content(|decoder| decoder.deserialize_struct("", fields, visitor))
    }
}

#[cfg(test)]
mod tests;
