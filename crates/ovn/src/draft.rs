//! A change of objects, and the transaction that makes it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use portcullis_ovsdb::{Atom, Columns, Datum, Mutator, Replica, Row, Rows, Transaction};
use uuid::Uuid;

use crate::Options;
use crate::model::{Model, Stored};
use crate::objects::{FloatingIp, Kind, Network, Port, Router, SecurityGroup, Subnet};
use crate::rows::{Desired, Meaning, Reference, Scene, Wanted, meaning, owns_key};
use crate::tables::{is_root, references, specs};

/// How to turn what the database holds into something else.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    pub(crate) transaction: Transaction,
    /// The rows that go because nothing refers to them any more.
    pub(crate) gone: Vec<(&'static str, Uuid)>,
}

/// Objects as they would be after some changes.
#[derive(Clone, Debug)]
pub struct Draft {
    base: Arc<Model>,
    model: Model,
    touched: BTreeSet<(Kind, Uuid)>,
    edits: usize,
    /// What somebody else had there, which goes with the changes.
    retired: Desired,
}

impl std::ops::Deref for Draft {
    type Target = Model;

    fn deref(&self) -> &Model {
        &self.model
    }
}

impl Draft {
    /// Without any change yet.
    pub fn new(base: Arc<Model>) -> Self {
        let model = Model::clone(&base);
        Draft { base, model, touched: BTreeSet::new(), edits: 0, retired: Desired::default() }
    }

    /// The objects before the changes.
    pub fn base(&self) -> &Arc<Model> {
        &self.base
    }

    /// The objects after the changes.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// What was changed.
    pub fn touched(&self) -> impl Iterator<Item = (Kind, Uuid)> + '_ {
        self.touched.iter().copied()
    }

    /// Whether nothing was changed.
    pub fn is_empty(&self) -> bool {
        self.touched.is_empty()
    }

    /// How often something was changed.
    pub(crate) fn edits(&self) -> usize {
        self.edits
    }

    /// Adds an object, or changes the one that has its id.
    pub fn put<T: Stored>(&mut self, mut object: T) {
        if let Some(old) = self.model.get::<T>(object.id()) {
            object.keep_observed(old);
        }
        self.edits += 1;
        self.touched.insert((T::KIND, object.id()));
        self.model.put(object);
    }

    /// Changes an object that is there.
    pub fn edit<T: Stored>(&mut self, id: Uuid, edit: impl FnOnce(&mut T)) {
        if let Some(object) = self.model.get::<T>(id) {
            let mut object = T::clone(object);
            edit(&mut object);
            self.put(object);
        }
    }

    /// Removes an object.
    pub fn remove<T: Stored>(&mut self, id: Uuid) {
        self.edits += 1;
        self.touched.insert((T::KIND, id));
        self.model.remove::<T>(id);
    }

    /// Has a row of somebody else's go with the changes.
    pub(crate) fn retire_row(&mut self, table: &'static str, row: Uuid) {
        self.edits += 1;
        self.retired.rows.insert((table, row), Wanted::default());
    }

    /// Has a reference of somebody else's go with the changes, and with the last one the row it is to.
    pub(crate) fn retire_reference(
        &mut self,
        table: &'static str,
        row: Uuid,
        column: &'static str,
        member: Uuid,
    ) {
        self.edits += 1;
        self.retired.references.insert(Reference { table, row, column, member });
    }

    /// The changes that turn what the database holds into what it should hold after this.
    pub(crate) fn plan(&self, options: &Options, replica: &Replica) -> Plan {
        let touched = self.reached();
        let desired = |model: &Model| {
            let mut desired = Desired::default();
            for (kind, id) in &touched {
                desired.add(Scene { model, options }, *kind, *id);
            }
            desired
        };
        let mut before = desired(&self.base);
        before.rows.extend(self.retired.rows.clone());
        before.references.extend(self.retired.references.iter().copied());
        Plan::new(&before, &desired(&self.model), replica)
    }

    /// What was changed, and all whose rows depend on it.
    fn reached(&self) -> BTreeSet<(Kind, Uuid)> {
        let mut reached = self.touched.clone();
        for (kind, id) in &self.touched {
            for model in [&*self.base, &self.model] {
                match kind {
                    Kind::Network
                        if self
                            .differ(*id, |network: &Network| (network.mtu, network.dns_domain.clone())) =>
                    {
                        for subnet in model.subnets_of_network(*id) {
                            reached.insert((Kind::Subnet, subnet.meta.id));
                            let ports = model.ports_of_subnet(subnet.meta.id);
                            let dependent = ports.filter(|port| !port.dhcp_options.is_empty());
                            reached.extend(dependent.map(|port| (Kind::Port, port.meta.id)));
                        }
                        let doors = model.ports_of_network(*id).filter(|port| port.is_router());
                        reached.extend(doors.map(|port| (Kind::Port, port.meta.id)));
                    }
                    Kind::Subnet => self.of_subnet(model, *id, &mut reached),
                    Kind::Port => self.of_port(model, *id, &mut reached),
                    Kind::Router if self.differ(*id, |_: &Router| ()) => {
                        reached.extend(model.ports_of_router(*id).map(|port| (Kind::Port, port.meta.id)));
                        let floating = model.floating_ips_of_router(*id);
                        reached.extend(
                            floating.map(|floating: &Arc<FloatingIp>| (Kind::FloatingIp, floating.meta.id)),
                        );
                    }
                    Kind::SecurityGroup if self.differ(*id, |group: &SecurityGroup| group.stateful) => {
                        reached.extend(model.rules_of_group(*id).map(|rule| (Kind::Rule, rule.meta.id)));
                    }
                    _ => {}
                }
            }
        }
        reached
    }

    /// Whether something about an object is different after the changes, or it came or went.
    fn differ<T: Stored, V: PartialEq>(&self, id: Uuid, what: impl Fn(&T) -> V) -> bool {
        self.base.get::<T>(id).map(|object| what(object))
            != self.model.get::<T>(id).map(|object| what(object))
    }

    fn of_subnet(&self, model: &Model, id: Uuid, reached: &mut BTreeSet<(Kind, Uuid)>) {
        let Some(subnet) = model.get::<Subnet>(id) else { return };
        reached.insert((Kind::Network, subnet.network));
        if self.differ(id, |subnet: &Subnet| subnet.network) {
            // As whom ports without an address may speak depends on whether there are addresses to be had.
            let ports = model.ports_of_network(subnet.network).filter(|port| port.fixed_ips.is_empty());
            reached.extend(ports.map(|port| (Kind::Port, port.meta.id)));
        }
        let all = self.differ(id, |subnet: &Subnet| {
            (subnet.dhcp, subnet.gateway, subnet.ipv6_ra_mode, subnet.ipv6_address_mode)
        });
        for port in model.ports_of_subnet(id) {
            // A port with options of its own has a copy of the subnet's.
            if all || !port.dhcp_options.is_empty() {
                reached.insert((Kind::Port, port.meta.id));
            }
            if let Some(router) = port.router() {
                reached.insert((Kind::Router, router));
            }
        }
    }

    fn of_port(&self, model: &Model, id: Uuid, reached: &mut BTreeSet<(Kind, Uuid)>) {
        let Some(port) = model.get::<Port>(id) else { return };
        // With the first filtered port comes what drops the rest, and with the last one it goes.
        let network = port.network;
        if self.base.has_protected_port(network) != self.model.has_protected_port(network) {
            reached.insert((Kind::Network, network));
        }
        if let Some(router) = port.router() {
            reached.insert((Kind::Router, router));
        }
        if self.differ(id, |port: &Port| port.fixed_ips.clone()) {
            let floating = model.floating_ips_of_port(id);
            reached.extend(floating.map(|floating| (Kind::FloatingIp, floating.meta.id)));
        }
    }
}

/// The changes that turn what the database holds into what these objects need, whoever changed it.
pub(crate) fn mend(model: &Model, options: &Options, replica: &Replica) -> Plan {
    // Mostly nothing is wrong, and then not all that is needed has to be held at once.
    if is_right(model, options, replica) {
        return Plan::default();
    }
    Plan::new(&ours(replica), &Desired::all(Scene { model, options }), replica)
}

/// Whether the database holds what these objects need, and nothing of ours besides.
fn is_right(model: &Model, options: &Options, replica: &Replica) -> bool {
    let (mut rows, mut references) = (0, 0);
    for (kind, id) in model.ids() {
        let mut desired = Desired::default();
        desired.add(Scene { model, options }, kind, id);
        let mut plan = Plan::default();
        plan.add(&desired, replica);
        if !plan.transaction.is_empty() {
            return false;
        }
        rows += desired.rows.len();
        references += desired.references.len();
    }
    let ours = ours(replica);
    (ours.rows.len(), ours.references.len()) == (rows, references)
}

/// The same row by row, with what it is about, those first to which others belong; and last what no object needs.
pub(crate) fn mend_each(
    model: &Model,
    options: &Options,
    replica: &Replica,
) -> Vec<(Option<(&'static str, Uuid)>, Plan)> {
    let desired = Desired::all(Scene { model, options });
    let mut references: BTreeMap<Uuid, BTreeSet<Reference>> = BTreeMap::new();
    for reference in &desired.references {
        references.entry(reference.member).or_default().insert(*reference);
    }
    let mut plans: Vec<_> = desired
        .rows
        .iter()
        .map(|(key, wanted)| {
            let rows = [(*key, wanted.clone())].into();
            let one = Desired { rows, references: references.remove(&key.1).unwrap_or_default() };
            (Some(*key), Plan::new(&Desired::default(), &one, replica))
        })
        .collect();
    plans.sort_by_key(|(key, _)| key.is_some_and(|(table, _)| !is_root(table)));
    let (ours, mut surplus) = (ours(replica), Plan::default());
    surplus.delete(&ours, &desired, replica);
    surplus.detach(&ours, &desired, replica);
    plans.push((None, surplus));
    plans.retain(|(_, plan)| !plan.transaction.is_empty());
    plans
}

/// All rows that are ours, with what refers to them.
fn ours(replica: &Replica) -> Desired {
    let mut ours = Desired::default();
    for spec in specs() {
        for row in replica.rows(spec.name) {
            if meaning(row) == Meaning::Foreign {
                continue;
            }
            ours.rows.insert((spec.name, row.uuid()), Wanted::default());
            for &(column, of) in references(spec.name) {
                for member in row.get(column).uuids() {
                    // What others put into our rows is theirs.
                    if replica.row(of, member).is_some_and(|row| meaning(row) != Meaning::Foreign) {
                        let (table, row) = (spec.name, row.uuid());
                        ours.references.insert(Reference { table, row, column, member });
                    }
                }
            }
        }
    }
    ours
}

impl Plan {
    /// So that rows and references that should be there are, and those that should not be any more are not.
    fn new(before: &Desired, after: &Desired, replica: &Replica) -> Self {
        let mut plan = Plan::default();
        // A name that one row gives up may be taken by another.
        plan.delete(before, after, replica);
        plan.add(after, replica);
        plan.detach(before, after, replica);
        plan
    }

    /// Removes rows, or expects them to go with what refers to them.
    fn delete(&mut self, before: &Desired, after: &Desired, replica: &Replica) {
        for (table, uuid) in before.rows.keys() {
            if after.rows.contains_key(&(*table, *uuid)) || replica.row(table, *uuid).is_none() {
                continue;
            }
            if is_root(table) {
                self.transaction.delete(*table, Rows::Row(*uuid));
            } else {
                self.gone.push((table, *uuid));
            }
        }
    }

    fn add(&mut self, after: &Desired, replica: &Replica) {
        let transaction = &mut self.transaction;
        let mut added: BTreeMap<(&str, Uuid), BTreeMap<&'static str, Vec<Uuid>>> = BTreeMap::new();
        for reference in &after.references {
            let present = replica.row(reference.table, reference.row);
            if !present.is_some_and(|row| row.get(reference.column).contains(&Atom::Uuid(reference.member))) {
                let columns = added.entry((reference.table, reference.row)).or_default();
                columns.entry(reference.column).or_default().push(reference.member);
            }
        }
        for ((table, uuid), wanted) in &after.rows {
            if let Some(row) = replica.row(table, *uuid) {
                update(transaction, table, row, wanted);
            } else {
                // What refers to others from the start needs no further operation.
                let references = added.remove(&(*table, *uuid)).unwrap_or_default();
                transaction.insert(*table, *uuid, columns(wanted, references));
            }
        }
        for ((table, row), columns) in added {
            for (column, members) in columns {
                let members = members.into_iter().collect();
                transaction.mutate(table.to_owned(), Rows::Row(row), column, Mutator::Insert, members);
            }
        }
    }

    fn detach(&mut self, before: &Desired, after: &Desired, replica: &Replica) {
        let mut removed: BTreeMap<(&'static str, Uuid, &'static str), Vec<Uuid>> = BTreeMap::new();
        for reference in before.references.difference(&after.references) {
            let gone = before.rows.contains_key(&(reference.table, reference.row))
                && !after.rows.contains_key(&(reference.table, reference.row));
            let present = replica.row(reference.table, reference.row);
            let present =
                present.is_some_and(|row| row.get(reference.column).contains(&Atom::Uuid(reference.member)));
            if present && !gone {
                let key = (reference.table, reference.row, reference.column);
                removed.entry(key).or_default().push(reference.member);
            }
        }
        for ((table, row, column), members) in removed {
            let members = members.into_iter().collect();
            self.transaction.mutate(table, Rows::Row(row), column, Mutator::Delete, members);
        }
    }
}

fn columns(wanted: &Wanted, references: BTreeMap<&'static str, Vec<Uuid>>) -> Columns {
    let mut columns = Columns::new();
    for (column, value) in &wanted.columns {
        columns = columns.with(*column, value.clone());
    }
    for (column, entries) in &wanted.maps {
        let entries = entries.iter().map(|(key, value)| (key.as_str(), value.as_str()));
        columns = columns.with(*column, entries.collect::<Datum>());
    }
    for (column, members) in references {
        columns = columns.with(column, members.into_iter().collect::<Datum>());
    }
    columns
}

fn update(transaction: &mut Transaction, table: &'static str, row: &Row, wanted: &Wanted) {
    let mut columns = Columns::new();
    for (column, value) in &wanted.columns {
        if row.get(column) != value {
            columns = columns.with(*column, value.clone());
        }
    }
    if !columns.is_empty() {
        transaction.update(table, Rows::Row(row.uuid()), columns);
    }
    for (column, entries) in &wanted.maps {
        let present = row.get(column);
        let stale: Vec<&str> = present
            .entries()
            .iter()
            .filter_map(|(key, value)| Some((key.as_text()?, value.as_text()?)))
            .filter(|(key, value)| {
                owns_key(table, column, key) && entries.get(*key).map(String::as_str) != Some(*value)
            })
            .map(|(key, _)| key)
            .collect();
        if !stale.is_empty() {
            let keys = stale.into_iter().collect();
            transaction.mutate(table, Rows::Row(row.uuid()), *column, Mutator::Delete, keys);
        }
        let missing: Vec<(&str, &str)> = entries
            .iter()
            .filter(|(key, value)| present.value_of(key) != Some(value.as_str()))
            .map(|(key, value)| (key.as_str(), value.as_str()))
            .collect();
        if !missing.is_empty() {
            let entries = missing.into_iter().collect();
            transaction.mutate(table, Rows::Row(row.uuid()), *column, Mutator::Insert, entries);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::objects::{DhcpOption, FixedIp, Gateway, Ipv6Mode, Meta, Route, Rule};
    use portcullis_core::Family;
    use proptest::prelude::*;

    /// Objects of each kind have numbers of their own.
    fn id(kind: u128, number: u8) -> Uuid {
        Uuid::from_u128(kind * 0x100 + u128::from(number))
    }

    const NETWORK: u128 = 1;
    const SUBNET: u128 = 2;
    const PORT: u128 = 3;
    const ROUTER: u128 = 4;
    const GROUP: u128 = 5;
    const RULE: u128 = 6;

    /// One change of one of a few objects, which refer to each other as it comes.
    type Step = (u128, u8, u8, u8, [bool; 4]);

    fn step() -> impl Strategy<Value = Step> {
        (1_u128..8, 0_u8..3, 0_u8..3, 0_u8..3, any::<[bool; 4]>())
    }

    fn take(draft: &mut Draft, (kind, number, other, third, [first, second, third_flag, gone]): Step) {
        let meta = Meta { id: id(kind, number), ..Meta::default() };
        let address = std::net::IpAddr::from([10, 0, third, 1 + number]);
        match kind {
            NETWORK if gone => draft.remove::<Network>(meta.id),
            NETWORK => draft.put(Network {
                mtu: 1400 + u32::from(other),
                physical: first.then(|| "wire".to_owned()),
                meta,
                ..Network::default()
            }),
            SUBNET if gone => draft.remove::<Subnet>(meta.id),
            SUBNET => draft.put(Subnet {
                network: id(NETWORK, other),
                cidr: if third_flag { "2001:db8::/64" } else { "10.0.0.0/16" }.parse().unwrap(),
                gateway: second.then_some(address),
                dhcp: first,
                ipv6_ra_mode: third_flag.then_some(Ipv6Mode::Slaac),
                meta,
                ..Subnet::default()
            }),
            PORT if gone => draft.remove::<Port>(meta.id),
            PORT => draft.put(Port {
                network: id(NETWORK, other),
                fixed_ips: first
                    .then(|| FixedIp { subnet: id(SUBNET, third), address })
                    .into_iter()
                    .collect(),
                device_id: id(ROUTER, third).to_string(),
                device_owner: match (second, third_flag) {
                    (true, true) => Port::ROUTER_GATEWAY.to_owned(),
                    (true, false) => Port::ROUTER_INTERFACE.to_owned(),
                    _ => String::new(),
                },
                dhcp_options: (!second && other == 1)
                    .then(|| DhcpOption { name: "mtu".into(), value: "1300".into(), version: Family::V4 })
                    .into_iter()
                    .collect(),
                port_security: third_flag,
                security_groups: third_flag.then(|| id(GROUP, third)).into_iter().collect(),
                meta,
                ..Port::default()
            }),
            ROUTER if gone => draft.remove::<Router>(meta.id),
            ROUTER => draft.put(Router {
                admin_state_up: second,
                gateway: first.then(|| Gateway {
                    network: id(NETWORK, other),
                    port: id(PORT, third),
                    snat: third_flag,
                }),
                routes: second
                    .then(|| Route { destination: "192.0.2.0/24".parse().unwrap(), nexthop: address })
                    .into_iter()
                    .collect(),
                meta,
            }),
            GROUP if gone => draft.remove::<SecurityGroup>(meta.id),
            GROUP => draft.put(SecurityGroup { stateful: first, is_default: false, meta }),
            RULE if gone => draft.remove::<Rule>(meta.id),
            RULE => draft.put(Rule {
                group: id(GROUP, other),
                remote_group: first.then(|| id(GROUP, third)),
                meta,
                ..Rule::default()
            }),
            _ if gone => draft.remove::<FloatingIp>(meta.id),
            _ => draft.put(FloatingIp {
                network: id(NETWORK, other),
                fixed_port: first.then(|| id(PORT, third)),
                fixed_address: first.then(|| std::net::IpAddr::from([10, 0, other, 1 + third])),
                router: second.then(|| id(ROUTER, other)),
                meta,
                ..FloatingIp::default()
            }),
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        /// Rows and references that are others afterwards are those of what was reached.
        #[test]
        fn all_whose_rows_change_is_reached(
            before in prop::collection::vec(step(), 0..40),
            changes in prop::collection::vec(step(), 1..4),
        ) {
            let options = Options { gateway_chassis: vec!["chassis".into()], ..Options::default() };
            let mut draft = Draft::new(Arc::default());
            for step in before {
                take(&mut draft, step);
            }
            let mut draft = Draft::new(Arc::new(draft.model().clone()));
            for step in changes {
                take(&mut draft, step);
            }

            let reached = draft.reached();
            let [base, model] = [&**draft.base(), draft.model()].map(|model| {
                let scene = Scene { model, options: &options };
                let mut part = Desired::default();
                for (kind, id) in &reached {
                    part.add(scene, *kind, *id);
                }
                (Desired::all(scene), part)
            });
            for ((all, part), (others, _)) in [(&base, &model), (&model, &base)] {
                for (key, row) in &all.rows {
                    prop_assert!(others.rows.get(key) == Some(row) || part.rows.contains_key(key), "{key:?}");
                }
                for reference in all.references.difference(&others.references) {
                    prop_assert!(part.references.contains(reference), "{reference:?}");
                }
            }
            // What one of them no longer needs is needed by nobody else.
            for key in base.1.rows.keys().filter(|key| !model.1.rows.contains_key(*key)) {
                prop_assert!(!model.0.rows.contains_key(key), "{key:?}");
            }
            for reference in base.1.references.difference(&model.1.references) {
                prop_assert!(!model.0.references.contains(reference), "{reference:?}");
            }
        }
    }
}
