//! Objects as the `external_ids` of a row: one entry per field, under a prefix of ours.
//!
//! Texts, numbers and truths are written plainly, so that `ovn-nbctl` can find rows by them; everything else is JSON.
//! A field that has its default is not written, and an entry that is not known is not read.

use std::any::TypeId;
use std::collections::HashMap;
use std::sync::{Arc, LazyLock, PoisonError, RwLock};

use serde::de::value::{MapDeserializer, StringDeserializer};
use serde::de::{self, DeserializeOwned, Deserializer, IntoDeserializer, Visitor};
use serde::forward_to_deserialize_any;
use serde::ser::Serialize;
use serde_json::{Map, Value};

/// What all our keys begin with.
pub(crate) const PREFIX: &str = "portcullis:";

/// The key that tells what a row is.
pub(crate) const KIND: &str = "portcullis:kind";

/// An entry that cannot be read.
pub(crate) type Error = serde::de::value::Error;

/// The entries for an object, in order of their keys.
pub(crate) fn write<T: Serialize + Default + 'static>(object: &T) -> Vec<(String, String)> {
    let defaults = defaults::<T>();
    fields(object)
        .into_iter()
        .filter(|(name, value)| defaults.get(name) != Some(value))
        .map(|(name, value)| {
            let text = match value {
                Value::String(text) => text,
                other => other.to_string(),
            };
            (format!("{PREFIX}{}", name.replace('_', "-")), text)
        })
        .collect()
}

fn fields<T: Serialize>(object: &T) -> Map<String, Value> {
    match serde_json::to_value(object) {
        Ok(Value::Object(fields)) => fields,
        // Derived `Serialize` of structs whose maps have texts for keys gives nothing else.
        other => unreachable!("a struct is an object in JSON: {other:?}"),
    }
}

/// What an object has that says nothing of itself.
fn defaults<T: Serialize + Default + 'static>() -> Arc<Map<String, Value>> {
    type Known = RwLock<HashMap<TypeId, Arc<Map<String, Value>>>>;
    static KNOWN: LazyLock<Known> = LazyLock::new(Known::default);
    let kind = TypeId::of::<T>();
    if let Some(known) = KNOWN.read().unwrap_or_else(PoisonError::into_inner).get(&kind) {
        return Arc::clone(known);
    }
    let mut known = KNOWN.write().unwrap_or_else(PoisonError::into_inner);
    Arc::clone(known.entry(kind).or_insert_with(|| Arc::new(fields(&T::default()))))
}

/// The object of these entries, which may have others among them.
pub(crate) fn read<'a, T: DeserializeOwned>(
    entries: impl Iterator<Item = (&'a str, &'a str)> + 'a,
) -> Result<T, Error> {
    let fields =
        entries.filter_map(|(key, text)| Some((key.strip_prefix(PREFIX)?.replace('-', "_"), Text(text))));
    T::deserialize(MapDeserializer::new(fields.map(|(key, text)| (Key(key), text))))
}

struct Key(String);

impl IntoDeserializer<'_, Error> for Key {
    type Deserializer = StringDeserializer<Error>;

    fn into_deserializer(self) -> Self::Deserializer {
        self.0.into_deserializer()
    }
}

/// A text that is read as what the field wants.
#[derive(Clone, Copy)]
struct Text<'a>(&'a str);

impl IntoDeserializer<'_, Error> for Text<'_> {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

macro_rules! parsed {
    ($($method:ident $visit:ident $type:ty),*) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
            let value = self.0.parse::<$type>();
            visitor.$visit(value.map_err(|error| de::Error::custom(format!("`{}`: {error}", self.0)))?)
        }
    )*};
}

macro_rules! json {
    ($($method:ident($($name:ident: $type:ty),*)),*) => {$(
        fn $method<V: Visitor<'de>>(self, $($name: $type,)* visitor: V) -> Result<V::Value, Error> {
            let mut json = serde_json::Deserializer::from_reader(self.0.as_bytes());
            json.$method($($name,)* visitor).map_err(|error| de::Error::custom(format!("`{}`: {error}", self.0)))
        }
    )*};
}

impl<'de> Deserializer<'de> for Text<'_> {
    type Error = Error;

    parsed!(
        deserialize_bool visit_bool bool,
        deserialize_u8 visit_u8 u8,
        deserialize_u16 visit_u16 u16,
        deserialize_u32 visit_u32 u32,
        deserialize_u64 visit_u64 u64,
        deserialize_i64 visit_i64 i64
    );

    json!(
        deserialize_seq(),
        deserialize_map(),
        deserialize_struct(name: &'static str, fields: &'static [&'static str])
    );

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_str(self.0)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_enum(self.0.into_deserializer())
    }

    forward_to_deserialize_any! {
        i8 i16 i32 i128 u128 f32 f64 char str string bytes byte_buf unit unit_struct tuple tuple_struct identifier
        ignored_any
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::objects::{
        DhcpOption, FixedIp, Gateway, Grant, Ipv6Mode, Meta, Network, Pool, Port, Router, Subnet, User,
    };
    use portcullis_core::Family;
    use proptest::prelude::*;
    use uuid::Uuid;

    fn back<T: Serialize + Default + DeserializeOwned + 'static>(object: &T) -> T {
        let written = write(object);
        read(written.iter().map(|(key, value)| (key.as_str(), value.as_str()))).unwrap()
    }

    #[test]
    fn what_has_its_default_is_not_written() {
        assert_eq!(write(&Port::default()), []);
        let network = Network { mtu: 9000, vlan: Some(7), ..Network::default() };
        let written = write(&network);
        assert_eq!(
            written,
            [
                ("portcullis:mtu".to_owned(), "9000".to_owned()),
                ("portcullis:vlan".to_owned(), "7".to_owned())
            ]
        );
        assert_eq!(back(&network), network);
    }

    #[test]
    fn structures_come_back() {
        let port = Port {
            fixed_ips: vec![FixedIp { subnet: Uuid::from_u128(1), address: "10.0.0.1".parse().unwrap() }],
            dhcp_options: vec![DhcpOption { name: "a".into(), value: "b".into(), version: Family::V6 }],
            ..Port::default()
        };
        assert_eq!(back(&port), port);
        let subnet = Subnet {
            ipv6_ra_mode: Some(Ipv6Mode::Dhcpv6Stateless),
            cidr: "2001:db8::/64".parse().unwrap(),
            pools: vec![Pool { start: "2001:db8::2".parse().unwrap(), end: "2001:db8::f".parse().unwrap() }],
            dhcp: false,
            ..Subnet::default()
        };
        assert_eq!(back(&subnet), subnet);
        let gateway = Some(Gateway { network: Uuid::from_u128(1), port: Uuid::from_u128(2), snat: true });
        let router = Router { gateway, ..Router::default() };
        assert_eq!(back(&router), router);
        let user = User {
            enabled: true,
            password: "$argon2id$v=19$m=8,t=1,p=1$c29tZXNhbHQ$aGFzaA".into(),
            assignments: [Grant { project: "p".into(), role: "r".into() }].into(),
            options: [("ignore_password_expiry".to_owned(), true)].into(),
            ..User::default()
        };
        assert_eq!(back(&user), user);
        assert!(!format!("{user:?}").contains("argon2"), "the hash is not for logs");
    }

    #[test]
    fn what_is_not_known_is_left_alone_and_what_is_wrong_is_told() {
        let read_port = |key, value| read::<Port>([(key, value)].into_iter());
        assert_eq!(read_port("neutron:name", "x"), Ok(Port::default()));
        assert_eq!(read_port("portcullis:later", "x"), Ok(Port::default()));
        assert!(read_port("portcullis:port-security", "maybe").is_err());
        assert!(read_port("portcullis:fixed-ips", "[").is_err());
        assert!(read_port("portcullis:mac", "x").is_err());
    }

    proptest! {
        #[test]
        fn texts_come_back(name in "\\PC{0,12}", tags in prop::collection::btree_set("\\PC{0,5}", 0..4), revision: u64) {
            let meta = Meta { name, tags, revision, ..Meta::default() };
            prop_assert_eq!(back(&meta), meta);
        }
    }
}
