//! The rows of ovirt-provider-ovn, and the objects that they become.
//!
//! Ids stay: those of networks, subnets, routers, groups and rules are the numbers of their rows, those of ports are the
//! names of theirs, which machines are plugged in by. A row whose number is not its object's id is replaced by one of
//! the same name, in the same transaction, so that OVN sees no port go. Who may reach whom is read from what OVN goes
//! by, not from what the provider remembers.
//!
//! What hangs together is adopted together or not at all: a network with its ports, their groups, the groups that those
//! name, and the routers between them.

mod group;
mod network;
mod pools;
mod port;
mod router;
mod rule;
mod ties;

use std::collections::{BTreeMap, BTreeSet};

use portcullis_ovsdb::{Replica, Row};
use uuid::Uuid;

use crate::draft::Draft;
use crate::model::{Model, Stored};
use crate::objects::{Kind, Meta, Network, Port, Router, Rule, SecurityGroup, Subnet};
use crate::rows::{Meaning, meaning};
use crate::tables::{ACL, ADDRESS_SET, POLICY, PORT_GROUP, QOS};
use ties::Ties;

/// A row that no object can be made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    pub table: &'static str,
    pub row: Uuid,
    pub name: String,
    /// A clause without a full stop.
    pub why: String,
}

/// An object that would be adopted, in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Adopted {
    pub kind: Kind,
    pub id: Uuid,
    pub name: String,
    /// What an administrator would want to know of it.
    pub what: String,
}

/// What a database of ovirt-provider-ovn becomes.
#[derive(Clone, Debug, Default)]
pub struct Survey {
    /// What no object can be made of.
    pub findings: Vec<Finding>,
    /// What hangs together with it, and so stays as it is too.
    pub left: Vec<Adopted>,
    networks: Vec<Network>,
    subnets: Vec<Subnet>,
    ports: Vec<Port>,
    routers: Vec<Router>,
    groups: Vec<SecurityGroup>,
    rules: Vec<Rule>,
    /// References to rows that ours replace: of an object, from a row's column, to a row.
    replaced: Vec<(Uuid, &'static str, Uuid, &'static str, Uuid)>,
    /// Rows that are not needed any more.
    superfluous: Vec<(&'static str, Uuid)>,
}

/// Looks at what the provider has in a database, for a project to have it.
pub(crate) fn survey(replica: &Replica, model: &Model, project: &str, now: i64) -> Survey {
    let mut reader = Reader::new(replica, model, project, now);
    reader.groups();
    reader.networks();
    reader.routers();
    reader.ports();
    reader.gateways();
    reader.others();
    reader.finish()
}

impl Survey {
    /// What would be adopted, by kind.
    pub fn adopted(&self) -> Vec<Adopted> {
        let on = |on: bool| if on { "on" } else { "off" };
        let mut adopted = Vec::new();
        for network in &self.networks {
            let mut what = format!("MTU {}, port security {}", network.mtu, on(network.port_security));
            if let Some(physical) = &network.physical {
                let vlan = network.vlan.map(|vlan| format!(", VLAN {vlan}")).unwrap_or_default();
                what = format!("{what}, on {physical}{vlan}");
            }
            adopted.push(in_words(network, what));
        }
        for subnet in &self.subnets {
            let gateway = subnet.gateway.map(|gateway| format!(", gateway {gateway}")).unwrap_or_default();
            adopted.push(in_words(subnet, format!("{}{gateway}", subnet.cidr)));
        }
        for router in &self.routers {
            adopted.push(in_words(router, format!("routes: {}", router.routes.len())));
        }
        for group in &self.groups {
            let rules = self.rules.iter().filter(|rule| rule.group == group.meta.id).count();
            adopted.push(in_words(group, format!("rules: {rules}")));
        }
        for port in &self.ports {
            let mut words = vec![port.mac.to_string()];
            words.extend(port.fixed_ips.iter().map(|fixed| fixed.address.to_string()));
            let groups = port.security_groups.len();
            let security = on(port.port_security);
            adopted.push(in_words(
                port,
                format!("{}, port security {security}, groups: {groups}", words.join(" ")),
            ));
        }
        adopted
    }

    /// Puts what is adopted into a draft, and what it replaces out of the database.
    pub(crate) fn apply(&self, draft: &mut Draft) {
        self.networks.iter().for_each(|network| draft.put(network.clone()));
        self.subnets.iter().for_each(|subnet| draft.put(subnet.clone()));
        self.routers.iter().for_each(|router| draft.put(router.clone()));
        self.groups.iter().for_each(|group| draft.put(group.clone()));
        self.rules.iter().for_each(|rule| draft.put(rule.clone()));
        self.ports.iter().for_each(|port| draft.put(port.clone()));
        for (_, table, row, column, member) in &self.replaced {
            draft.retire_reference(table, *row, column, *member);
        }
        for (table, row) in &self.superfluous {
            draft.retire_row(table, *row);
        }
    }

    /// Takes out what hangs together with a finding.
    fn keep(&mut self, stays: impl Fn(Uuid) -> bool) {
        let all = self.adopted();
        self.left = all.into_iter().filter(|adopted| stays(adopted.id)).collect();
        self.networks.retain(|network| !stays(network.meta.id));
        self.subnets.retain(|subnet| !stays(subnet.meta.id));
        self.ports.retain(|port| !stays(port.meta.id));
        self.routers.retain(|router| !stays(router.meta.id));
        self.groups.retain(|group| !stays(group.meta.id));
        self.rules.retain(|rule| !stays(rule.group));
        self.replaced.retain(|(object, ..)| !stays(*object));
    }
}

fn in_words<T: Stored>(object: &T, what: String) -> Adopted {
    let Meta { id, name, .. } = object.meta();
    Adopted { kind: T::KIND, id: *id, name: name.clone(), what }
}

/// What is known while the rows are read.
struct Reader<'a> {
    replica: &'a Replica,
    model: &'a Model,
    project: &'a str,
    now: i64,
    survey: Survey,
    ties: Ties,
    /// The provider's group of all filtered ports.
    drop_all: Option<&'a Row>,
    /// By the number of a port's row.
    groups_of_port: BTreeMap<Uuid, Vec<Uuid>>,
    /// Names of `Port_Group` rows that get another.
    renamed: BTreeMap<&'a str, Uuid>,
    /// Routers' ends, by name, with their routers.
    router_ports: BTreeMap<&'a str, (Uuid, &'a Row)>,
}

impl<'a> Reader<'a> {
    fn new(replica: &'a Replica, model: &'a Model, project: &'a str, now: i64) -> Self {
        Reader {
            replica,
            model,
            project,
            now,
            survey: Survey::default(),
            ties: Ties::default(),
            drop_all: None,
            groups_of_port: BTreeMap::new(),
            renamed: BTreeMap::new(),
            router_ports: BTreeMap::new(),
        }
    }

    /// The rows of a table that are not ours.
    fn foreign(&self, table: &'static str) -> impl Iterator<Item = &'a Row> + use<'a> {
        self.replica.rows(table).map(|row| &**row).filter(|row| meaning(row) == Meaning::Foreign)
    }

    fn members(&self, row: &Row, column: &str, table: &str) -> Vec<&'a Row> {
        row.get(column).uuids().filter_map(|uuid| self.replica.row(table, uuid)).map(|row| &**row).collect()
    }

    fn find(&mut self, table: &'static str, row: &Row, why: impl Into<String>) {
        let name = row.get("name").text().or(row.get("cidr").text()).unwrap_or_default().to_owned();
        self.survey.findings.push(Finding { table, row: row.uuid(), name, why: why.into() });
    }

    fn meta(&self, id: Uuid, name: &str) -> Meta {
        let (name, project) = (name.to_owned(), self.project.to_owned());
        Meta { id, project, name, created: self.now, updated: self.now, ..Meta::default() }
    }

    fn subnets_of(&self, network: Uuid) -> impl Iterator<Item = &Subnet> {
        self.survey.subnets.iter().filter(move |subnet| subnet.network == network)
    }

    /// What is there besides.
    fn others(&mut self) {
        for row in self.foreign(ADDRESS_SET) {
            self.find(
                ADDRESS_SET,
                row,
                "the provider makes no address sets of its own, so it is somebody else's",
            );
        }
        let read: BTreeSet<Uuid> = self.survey.rules.iter().map(|rule| rule.meta.id).collect();
        let drop_all = self.drop_all.map(|row| row.get("acls").uuids().collect::<BTreeSet<_>>());
        let found: BTreeSet<Uuid> = self.survey.findings.iter().map(|finding| finding.row).collect();
        let rows = [ACL, QOS, POLICY].map(|table| self.foreign(table).map(move |row| (table, row)));
        for (table, row) in rows.into_iter().flatten() {
            let known = |rows: &BTreeSet<Uuid>| rows.contains(&row.uuid());
            if known(&read) || known(&found) || drop_all.as_ref().is_some_and(known) {
                continue;
            }
            let text = row.get("match").text().unwrap_or_default();
            let words = text.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
            let named: Vec<Uuid> = words
                .map(|word| word.strip_suffix("_ip4").or(word.strip_suffix("_ip6")).unwrap_or(word))
                .filter_map(|word| self.renamed.get(word).copied())
                .collect();
            if !named.is_empty() {
                for group in named {
                    self.ties.tie(group, row.uuid());
                }
                self.find(
                    table,
                    row,
                    "it is no rule of a group, and names a group that would get another name",
                );
            }
        }
    }

    fn finish(mut self) -> Survey {
        let found = self.survey.findings.iter().map(|finding| self.ties.head(finding.row));
        let bad: BTreeSet<Uuid> = found.collect();
        let stays = |row| bad.contains(&self.ties.head(row));
        self.survey.keep(stays);
        if let Some(row) = self.drop_all {
            let ports = self.survey.ports.iter().map(|port| port.meta.id);
            let replaced = self.survey.replaced.iter().map(|(.., member)| *member);
            let adopted: BTreeSet<Uuid> = replaced.chain(ports).collect();
            if row.get("ports").uuids().all(|port| adopted.contains(&port)) {
                self.survey.superfluous.push((PORT_GROUP, row.uuid()));
            }
        }
        self.survey
    }
}

/// Keys of `external_ids` that neither the provider nor we write: the row is used by somebody else too.
fn strange_key<'a>(row: &'a Row, known: &[&str]) -> Option<&'a str> {
    let keys = row.get("external_ids").entries().iter().filter_map(|(key, _)| key.as_text());
    keys.into_iter().find(|key| !key.starts_with("ovirt_") && !known.contains(key))
}

/// The first of these columns that has a value. It would be lost where a row is replaced by one of ours.
fn filled<'a>(row: &Row, columns: &[&'a str]) -> Option<&'a str> {
    columns.iter().copied().find(|column| {
        let value = row.get(column);
        !value.members().is_empty() || !value.entries().is_empty()
    })
}

/// A value of `external_ids`.
fn id_of<'a>(row: &'a Row, key: &str) -> Option<&'a str> {
    row.get("external_ids").value_of(key)
}

/// Whether a row that can be switched off is on.
fn enabled(row: &Row) -> bool {
    row.get("enabled").boolean() != Some(false)
}
