//! Objects ⇄ rows of the northbound database.
//!
//! Every object has one row that is its own, under its id, whose `external_ids` hold all of it ([`flat`]).
//! Everything else that OVN needs for it is a function of the objects: rows under numbers made from the id, and
//! references between rows. So what the database should hold can be said at any time, and a change of objects is a
//! difference of what should be there.

mod address_group;
mod floating_ip;
mod network;
mod port;
mod router;
mod security_group;
mod subnet;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use portcullis_ovsdb::{Atom, Datum, Row};
use serde::Serialize;
use serde::de::DeserializeOwned;
use uuid::Uuid;

use crate::model::{Model, Stored};
use crate::objects::{
    AddressGroup, FloatingIp, Kind, Meta, Network, Port, Project, Quota, RbacPolicy, RevokedToken, Router,
    Rule, RuleTemplate, SecurityGroup, SigningKey, Subnet, User,
};
use crate::tables::{ACL, DHCP_OPTIONS, NOTE, PORT_GROUP, ROUTER, SWITCH, SWITCH_PORT};
use crate::{Options, flat};

/// A row that should be there.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Wanted {
    /// Columns that are ours alone.
    pub(crate) columns: BTreeMap<&'static str, Datum>,
    /// Maps in which others may have entries: of the keys that are ours, these.
    pub(crate) maps: BTreeMap<&'static str, BTreeMap<String, String>>,
}

impl Wanted {
    fn new(kind: &str) -> Self {
        Wanted::default().entry("external_ids", flat::KIND, kind)
    }

    /// A row that follows from an object, and holds nothing of its own.
    fn derived() -> Self {
        Self::new(DERIVED)
    }

    /// The row of an object.
    fn of<T: Stored + Serialize + Default>(object: &T) -> Self {
        let mut row = Self::new(T::KIND.name());
        let ids = row.maps.entry("external_ids").or_default();
        ids.extend(flat::write(object.meta()));
        ids.extend(flat::write(object));
        row
    }

    fn with(mut self, column: &'static str, value: impl Into<Datum>) -> Self {
        self.columns.insert(column, value.into());
        self
    }

    fn with_set<A: Into<Atom>>(mut self, column: &'static str, members: impl IntoIterator<Item = A>) -> Self {
        self.columns.insert(column, members.into_iter().collect());
        self
    }

    fn entry(mut self, map: &'static str, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.maps.entry(map).or_default().insert(key.into(), value.into());
        self
    }

    fn map(mut self, map: &'static str, entries: BTreeMap<String, String>) -> Self {
        self.maps.insert(map, entries);
        self
    }
}

/// What marks a row that follows from an object.
const DERIVED: &str = "derived";

/// Whether a key of a map column is ours to set and to remove.
pub(crate) fn owns_key(table: &str, column: &str, key: &str) -> bool {
    match (table, column) {
        (_, "external_ids") => key.starts_with(flat::PREFIX),
        (SWITCH_PORT, "options") => {
            matches!(key, "router-port" | "network_name" | "nat-addresses" | "requested-chassis")
        }
        (ROUTER, "options") => false,
        _ => true,
    }
}

/// A reference that should be there: a row that is a member of a set column of another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Reference {
    pub(crate) table: &'static str,
    pub(crate) row: Uuid,
    pub(crate) column: &'static str,
    pub(crate) member: Uuid,
}

/// What should be in the database for some objects.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Desired {
    pub(crate) rows: BTreeMap<(&'static str, Uuid), Wanted>,
    pub(crate) references: BTreeSet<Reference>,
}

impl Desired {
    fn row(&mut self, table: &'static str, uuid: Uuid, row: Wanted) {
        let old = self.rows.insert((table, uuid), row);
        debug_assert!(old.is_none(), "two objects want the row {uuid} of {table}");
    }

    fn refer(&mut self, table: &'static str, row: Uuid, column: &'static str, member: Uuid) {
        self.references.insert(Reference { table, row, column, member });
    }
}

/// What a row may depend on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scene<'a> {
    pub(crate) model: &'a Model,
    pub(crate) options: &'a Options,
}

/// The number of a row that follows from an object.
fn number(object: Uuid, role: &str) -> Uuid {
    Uuid::new_v5(&object, role.as_bytes())
}

impl Desired {
    /// Adds what should be there for an object, if it is in the model.
    pub(crate) fn add(&mut self, scene: Scene<'_>, kind: Kind, id: Uuid) {
        let model = scene.model;
        match kind {
            Kind::Network => network::rows(self, scene, model.get(id)),
            Kind::Subnet => subnet::rows(self, scene, model.get(id)),
            Kind::Port => port::rows(self, scene, model.get(id)),
            Kind::Router => router::rows(self, scene, model.get(id)),
            Kind::FloatingIp => floating_ip::rows(self, scene, model.get(id)),
            Kind::SecurityGroup => security_group::rows(self, model.get(id)),
            Kind::Rule => security_group::rule_rows(self, scene, model.get(id)),
            Kind::AddressGroup => address_group::rows(self, model.get(id)),
            Kind::RuleTemplate => self.note::<RuleTemplate>(model, id),
            Kind::RbacPolicy => self.note::<RbacPolicy>(model, id),
            Kind::Quota => self.note::<Quota>(model, id),
            Kind::Project => self.note::<Project>(model, id),
            Kind::User => self.note::<User>(model, id),
            Kind::RevokedToken => self.note::<RevokedToken>(model, id),
            Kind::SigningKey => self.note::<SigningKey>(model, id),
        }
    }

    fn note<T: Stored + Serialize + Default>(&mut self, model: &Model, id: Uuid) {
        if let Some(object) = model.get::<T>(id) {
            self.row(NOTE, id, Wanted::of(&**object));
        }
    }

    /// Everything that should be there.
    pub(crate) fn all(scene: Scene<'_>) -> Self {
        let mut desired = Desired::default();
        for (kind, id) in scene.model.ids() {
            desired.add(scene, kind, id);
        }
        desired
    }
}

/// What a row is to us.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Meaning {
    /// An object of its own.
    Object(Kind),
    /// It follows from an object.
    Derived,
    /// It is somebody else's.
    Foreign,
}

/// What a row of a table is to us.
pub(crate) fn meaning(row: &Row) -> Meaning {
    match row.get("external_ids").value_of(flat::KIND) {
        Some(DERIVED) => Meaning::Derived,
        Some(name) => Kind::named(name).map_or(Meaning::Foreign, Meaning::Object),
        None => Meaning::Foreign,
    }
}

/// Whether rows of a kind may be in a table; a copied key elsewhere makes no object.
fn belongs(kind: Kind, table: &str) -> bool {
    match kind {
        Kind::Network => table == SWITCH,
        Kind::Subnet => table == DHCP_OPTIONS,
        Kind::Port => table == SWITCH_PORT || table == NOTE,
        Kind::Router => table == ROUTER,
        Kind::SecurityGroup => table == PORT_GROUP,
        Kind::Rule => table == ACL,
        _ => table == NOTE,
    }
}

/// Puts the object of a row into the model.
pub(crate) fn read(model: &mut Model, table: &str, kind: Kind, row: &Row) -> Result<(), flat::Error> {
    if !belongs(kind, table) {
        return Ok(());
    }
    match kind {
        Kind::Network => put::<Network>(model, row, |_| {}),
        Kind::Subnet => put::<Subnet>(model, row, |_| {}),
        Kind::Port => put::<Port>(model, row, |port| port.up = row.get("up").boolean() == Some(true)),
        Kind::Router => put::<Router>(model, row, |_| {}),
        Kind::FloatingIp => put::<FloatingIp>(model, row, |_| {}),
        Kind::SecurityGroup => put::<SecurityGroup>(model, row, |_| {}),
        Kind::Rule => put::<Rule>(model, row, |_| {}),
        Kind::AddressGroup => put::<AddressGroup>(model, row, |_| {}),
        Kind::RuleTemplate => put::<RuleTemplate>(model, row, |_| {}),
        Kind::RbacPolicy => put::<RbacPolicy>(model, row, |_| {}),
        Kind::Quota => put::<Quota>(model, row, |_| {}),
        Kind::Project => put::<Project>(model, row, |_| {}),
        Kind::User => put::<User>(model, row, |_| {}),
        Kind::RevokedToken => put::<RevokedToken>(model, row, |_| {}),
        Kind::SigningKey => put::<SigningKey>(model, row, |_| {}),
    }
}

fn put<T: Stored + DeserializeOwned>(
    model: &mut Model,
    row: &Row,
    finish: impl FnOnce(&mut T),
) -> Result<(), flat::Error> {
    let ids = row.get("external_ids");
    let entries = || ids.entries().iter().filter_map(|(key, value)| Some((key.as_text()?, value.as_text()?)));
    let mut object: T = flat::read(entries())?;
    *object.meta_mut() = Meta { id: row.uuid(), ..flat::read(entries())? };
    finish(&mut object);
    model.put(object);
    Ok(())
}

/// Takes the object of a row out of the model.
pub(crate) fn forget(model: &mut Model, table: &str, kind: Kind, id: Uuid) {
    if belongs(kind, table) {
        model.remove_kind(kind, id);
    }
}
