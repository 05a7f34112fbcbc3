//! Rows of one owner, as they are or as they should be.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use portcullis_core::{
    AddressSet, Cidr, Direction, Family, Owner, Peer, PortRange, Protocol, Reach, Rule, Traffic,
};
use portcullis_ovsdb::{Datum, Replica, Row};
use uuid::Uuid;

use super::acl::{Drops, Strays};
use super::tables::{BALANCER, OURS, key};
use crate::rows::Reference;
use crate::tables::{ACL, ADDRESS_SET, ROUTER, SWITCH};

/// The columns of a row that are ours: all that OVN looks at.
pub(crate) type Columns = BTreeMap<&'static str, Datum>;

/// All that an owner has.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Rows {
    pub(crate) rows: BTreeMap<(&'static str, Uuid), Columns>,
    pub(crate) references: BTreeSet<Reference>,
}

/// The key under which a load balancer remembers who served and finishes what it has: since when, in seconds.
pub(super) const LEFT: &str = "portcullis.dev/left/";

impl Rows {
    /// What an owner has in a database.
    pub(crate) fn of(owner: &Owner, replica: &Replica) -> Self {
        let mut all = Rows::default();
        for table in OURS {
            for row in replica.find(table, "owner", &key(owner)) {
                all.rows.insert((table, row.uuid()), columns(table, row));
                let number = row.uuid().to_string();
                let places: &[(&'static str, &'static str)] = match table {
                    BALANCER => &[(SWITCH, "load_balancer"), (ROUTER, "load_balancer")],
                    ACL => &[(SWITCH, "acls")],
                    _ => &[],
                };
                for (place, column) in places {
                    let found = replica.find(place, column, &number);
                    all.references.extend(found.map(|found| Reference {
                        table: place,
                        row: found.uuid(),
                        column,
                        member: row.uuid(),
                    }));
                }
            }
        }
        all
    }

    fn table(&self, table: &'static str) -> impl Iterator<Item = (Uuid, &Columns)> {
        self.rows.iter().filter(move |((of, _), _)| *of == table).map(|((_, uuid), row)| (*uuid, row))
    }

    fn get<'a>(row: &'a Columns, column: &str) -> &'a Datum {
        const EMPTY: &Datum = &Datum::EMPTY;
        row.get(column).unwrap_or(EMPTY)
    }

    fn is_somewhere(&self, balancer: Uuid) -> bool {
        self.references.iter().any(|reference| reference.member == balancer)
    }

    /// The addresses that get connections.
    pub(crate) fn backends(&self) -> BTreeSet<IpAddr> {
        let balancers = self.table(BALANCER).filter(|(uuid, _)| self.is_somewhere(*uuid));
        let values = balancers.flat_map(|(_, row)| Self::get(row, "vips").entries());
        let backends = values.filter_map(|(_, backends)| backends.as_text());
        // Who is there without a port says farewell.
        let backends = backends.flat_map(|backends| backends.split(','));
        backends
            .filter_map(|backend| backend.parse::<SocketAddr>().ok())
            .map(|backend| backend.ip())
            .collect()
    }

    /// The addresses of load balancers without a port.
    pub(crate) fn farewells(&self) -> BTreeSet<IpAddr> {
        let keys = self.table(BALANCER).flat_map(|(_, row)| Self::get(row, "vips").entries());
        keys.filter_map(|(vip, _)| vip.as_text()?.parse().ok()).collect()
    }

    /// Who served and finishes what it has, and since when.
    pub(crate) fn left(&self) -> BTreeMap<String, SystemTime> {
        let entries = self.table(BALANCER).flat_map(|(_, row)| Self::get(row, "external_ids").entries());
        let left = entries.filter_map(|(key, value)| {
            let second = value.as_text().and_then(|second| second.parse().ok()).unwrap_or_default();
            Some((key.as_text()?.strip_prefix(LEFT)?.to_owned(), UNIX_EPOCH + Duration::from_secs(second)))
        });
        left.collect()
    }

    /// Who may reach it: everybody where it is on, but for who is dropped on the way.
    pub(crate) fn reach(&self) -> Reach {
        let mut rules = Vec::new();
        for (uuid, row) in self.table(BALANCER) {
            if !self.is_somewhere(uuid) {
                continue;
            }
            let name = Self::get(row, "protocol").text().unwrap_or("tcp");
            let protocol = if name == "udp" { Protocol::UDP } else { Protocol::TCP };
            let vips = Self::get(row, "vips").entries().iter().filter_map(|(vip, _)| vip.as_text());
            for vip in vips.filter_map(|vip| vip.parse::<SocketAddr>().ok()) {
                let family = Family::of(vip.ip());
                let Ok(traffic) = Traffic::ports(protocol, PortRange::single(vip.port())) else { continue };
                for range in self.admitted(name, vip).cidrs() {
                    let peer = if range.is_everything() { Peer::Everyone } else { Peer::Range(range) };
                    rules.extend(Rule::new(Direction::Ingress, family, traffic, peer).ok());
                }
            }
        }
        for vip in self.farewells().into_iter().filter(|vip| !self.is_closed(*vip)) {
            rules.extend(Rule::new(Direction::Ingress, Family::of(vip), Traffic::ANY, Peer::Everyone).ok());
        }
        Reach::of(Direction::Ingress, &rules)
    }

    /// Where it is found.
    pub(crate) fn addresses(&self) -> Vec<IpAddr> {
        let keys = self.table(BALANCER).flat_map(|(_, row)| Self::get(row, "vips").entries());
        let vips = keys.filter_map(|(vip, _)| vip.as_text()?.parse::<SocketAddr>().ok());
        let addresses: BTreeSet<IpAddr> = vips.map(|vip| vip.ip()).collect();
        addresses.into_iter().collect()
    }

    /// And on which ports, by protocol.
    pub(crate) fn ports(&self) -> BTreeMap<&'static str, BTreeSet<u16>> {
        let mut ports: BTreeMap<&'static str, BTreeSet<u16>> = BTreeMap::new();
        for (_, row) in self.table(BALANCER) {
            let vips = Self::get(row, "vips").entries().iter().filter_map(|(vip, _)| vip.as_text());
            for listener in vips.filter_map(|vip| vip.parse::<SocketAddr>().ok()) {
                let is_udp = Self::get(row, "protocol").text() == Some("udp");
                let protocol = if is_udp { "udp" } else { "tcp" };
                ports.entry(protocol).or_default().insert(listener.port());
            }
        }
        ports
    }

    /// Whether what is for no port of an address gets nowhere.
    fn is_closed(&self, vip: IpAddr) -> bool {
        let ports = self.ports();
        let family = Family::of(vip);
        let vips = self.farewells().into_iter().filter(|one| Family::of(*one) == family).collect();
        let text = Strays { family, vips, ports }.text();
        let closes = |(uuid, row): (Uuid, &Columns)| {
            Self::get(row, "match").text() == Some(&text) && self.is_everywhere(uuid)
        };
        self.table(ACL).any(closes)
    }

    /// Who is not dropped on the way to an address and port.
    pub(crate) fn admitted(&self, protocol: &str, vip: SocketAddr) -> AddressSet {
        let family = Family::of(vip.ip());
        let everyone = AddressSet::everyone_of(family);
        let mut admitted = everyone.clone();
        for (uuid, row) in self.table(ACL) {
            let text = Self::get(row, "match").text().unwrap_or_default();
            let Some(drops) = Drops::parse(text).filter(|_| self.is_everywhere(uuid)) else { continue };
            if drops.protocol != protocol
                || !drops.vips.contains(&vip.ip())
                || !drops.ports.contains(&vip.port())
            {
                continue;
            }
            let dropped: AddressSet = match &drops.from {
                None => everyone.clone(),
                Some(set) => self.set(set).into_iter().collect(),
            };
            admitted = admitted.difference(&dropped);
        }
        admitted
    }

    /// Whether an ACL is on all switches that a load balancer is on, and on one at least.
    fn is_everywhere(&self, acl: Uuid) -> bool {
        let on = |column: &str, member: Option<Uuid>| -> BTreeSet<Uuid> {
            let all = self.references.iter().filter(|reference| {
                (reference.table, reference.column) == (SWITCH, column)
                    && member.is_none_or(|member| reference.member == member)
            });
            all.map(|reference| reference.row).collect()
        };
        let acls = on("acls", Some(acl));
        !acls.is_empty() && on("load_balancer", None).is_subset(&acls)
    }

    fn set(&self, name: &str) -> Vec<Cidr> {
        let mut sets = self.table(ADDRESS_SET).map(|(_, row)| row);
        let found = sets.find(|row| Self::get(row, "name").text() == Some(name));
        let addresses = found.map(|row| Self::get(row, "addresses").texts());
        addresses.into_iter().flatten().filter_map(|range| range.parse().ok()).collect()
    }
}

fn columns(table: &str, row: &Row) -> Columns {
    let spec = super::tables::northbound().into_iter().find(|spec| spec.name == table);
    let names = spec.map(|spec| spec.columns).unwrap_or_default();
    names.iter().map(|column| (*column, row.get(column).clone())).collect()
}
