//! What a load balancer is put among: switches and routers, who is on them, and what is taken.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use portcullis_core::{Cidr, Owner, Problem};
use portcullis_ovsdb::{Replica, Row};
use uuid::Uuid;

use super::names::names;
use super::rows::Rows;
use super::tables::{BALANCER, owner};
use crate::tables::{ACL, DHCP_OPTIONS, NAT, PORT_GROUP, ROUTER, ROUTER_PORT, SWITCH, SWITCH_PORT};

/// What matters for one load balancer.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Scene {
    /// Switches that are named, and those that packets to named routers come through.
    pub(crate) switches: Vec<Switch>,
    pub(crate) routers: Vec<Router>,
    /// Load balancers of others in the same places.
    pub(crate) others: Vec<Other>,
    /// Addresses of ours that others have a use for: routers, their NAT, other load balancers.
    pub(crate) used: BTreeSet<IpAddr>,
    /// Names that ours would have, and that others have.
    pub(crate) names: BTreeSet<String>,
    /// What others let in on these switches, before ours is asked.
    pub(crate) above: Vec<Above>,
}

/// An ACL of somebody else that comes before ours.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Above {
    pub(crate) switch: String,
    pub(crate) matches: String,
    pub(crate) priority: i64,
}

/// What is done while something is in the way.
pub(super) const STAYS: &str =
    "Who leaves is taken out, and what is not asked for any more is closed; nothing else changes.";

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Switch {
    pub(crate) uuid: Uuid,
    pub(crate) name: String,
    /// Whether the load balancer is on it, and not only behind it.
    pub(crate) named: bool,
    pub(crate) subnets: BTreeSet<Cidr>,
    /// Which logical port has an address.
    pub(crate) ports: BTreeMap<IpAddr, String>,
    /// Further addresses that somebody has.
    pub(crate) taken: BTreeSet<IpAddr>,
    /// Whether ports of other OVNs are on it, whose packets pass its ACLs there and not here.
    pub(crate) is_transit: bool,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Router {
    pub(crate) uuid: Uuid,
    pub(crate) name: String,
}

/// Somebody else's load balancer.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Other {
    pub(crate) name: String,
    pub(crate) protocol: String,
    pub(crate) vips: BTreeSet<String>,
}

/// Where an owner wants its load balancer, by names or numbers.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Places {
    pub(crate) switches: Vec<String>,
    pub(crate) routers: Vec<String>,
}

/// Switches and routers that a load balancer is on.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Found {
    pub(crate) switches: Vec<Uuid>,
    pub(crate) routers: Vec<Uuid>,
}

/// Finds what is named.
pub(crate) fn find(replica: &Replica, of: &Owner, places: &Places) -> Result<Found, Problem> {
    if places.switches.is_empty() && places.routers.is_empty() {
        return Err(Problem::new(
            format!("{of}: it is on no logical switch and on no logical router."),
            STAYS,
            "Name switches whose ports reach it, or routers that it is on.",
        ));
    }
    let all = |table, what, names: &[String]| -> Result<Vec<Uuid>, Problem> {
        names.iter().map(|name| one(replica, of, table, what, name).map(Row::uuid)).collect()
    };
    Ok(Found {
        switches: all(SWITCH, "switch", &places.switches)?,
        routers: all(ROUTER, "router", &places.routers)?,
    })
}

/// Where a load balancer is as it is.
pub(crate) fn found_by(there: &Rows) -> Found {
    let on = |table: &str| {
        let all = there.references.iter().filter(|reference| reference.column == "load_balancer");
        let rows: BTreeSet<Uuid> =
            all.filter(|reference| reference.table == table).map(|reference| reference.row).collect();
        rows.into_iter().collect()
    };
    Found { switches: on(SWITCH), routers: on(ROUTER) }
}

/// What is around places, for a load balancer with these addresses.
pub(crate) fn around(replica: &Replica, of: &Owner, found: &Found, vips: &[IpAddr]) -> Scene {
    let mut scene = Scene::default();
    let mut switches: BTreeMap<Uuid, bool> = found.switches.iter().map(|switch| (*switch, true)).collect();
    let named: BTreeSet<Uuid> = found.routers.iter().copied().collect();
    for router in named.iter().filter_map(|router| replica.row(ROUTER, *router)) {
        scene.routers.push(Router { uuid: router.uuid(), name: text(router, "name") });
    }
    for switch in in_front(replica, named) {
        switches.entry(switch).or_insert(false);
    }
    let rows = || switches.keys().filter_map(|switch| replica.row(SWITCH, *switch));
    let routers = || scene.routers.iter().filter_map(|router| replica.row(ROUTER, router.uuid));
    let referred: BTreeSet<Uuid> = rows()
        .chain(routers())
        .flat_map(|place| place.get("load_balancer").uuids().collect::<Vec<_>>())
        .collect();
    let others = referred.iter().filter_map(|uuid| replica.row(BALANCER, *uuid));
    scene.others = others.filter(|row| owner(row).as_ref() != Some(of)).map(|row| other(row)).collect();
    scene.above = above(replica, &switches);
    scene.switches = rows().map(|row| switch(replica, row, switches[&row.uuid()])).collect();
    for vip in vips {
        let address = vip.to_string();
        let is_theirs = |row: &&Arc<Row>| owner(row).as_ref() != Some(of);
        let is_used = replica.find(NAT, "address", &address).next().is_some()
            || replica.find(BALANCER, "address", &address).any(|row| is_theirs(&row))
            || scene
                .switches
                .iter()
                .any(|switch| switch.taken.contains(vip) || switch.ports.contains_key(vip));
        if is_used {
            scene.used.insert(*vip);
        }
    }
    for (table, name) in names(of) {
        let mut strange = replica.find(table, "name", &name).filter(|row| owner(row).as_ref() != Some(of));
        if strange.next().is_some() {
            scene.names.insert(name);
        }
    }
    scene
}

/// The switches that packets to routers come through. Routers may be joined without a switch: what comes from another
/// one then came through a switch of that one.
fn in_front(replica: &Replica, routers: BTreeSet<Uuid>) -> BTreeSet<Uuid> {
    let mut switches = BTreeSet::new();
    let (mut next, mut seen): (Vec<Uuid>, BTreeSet<Uuid>) = (routers.into_iter().collect(), BTreeSet::new());
    while let Some(router) = next.pop() {
        let Some(row) = replica.row(ROUTER, router).filter(|_| seen.insert(router)) else { continue };
        for port in row.get("ports").uuids().filter_map(|port| replica.row(ROUTER_PORT, port)) {
            let name = text(port, "name");
            for end in replica.find(SWITCH_PORT, "router-port", &name) {
                let found = replica.find(SWITCH, "ports", &end.uuid().to_string());
                switches.extend(found.map(|switch| switch.uuid()));
            }
            let there = port.get("peer").texts().flat_map(|peer| replica.find(ROUTER_PORT, "name", peer));
            for end in there.chain(replica.find(ROUTER_PORT, "peer", &name)) {
                let found = replica.find(ROUTER, "ports", &end.uuid().to_string());
                next.extend(found.map(|router| router.uuid()));
            }
        }
    }
    switches
}

/// What others let in on switches before ours is asked: by ACLs of the switch, or of groups of its ports.
fn above(replica: &Replica, switches: &BTreeMap<Uuid, bool>) -> Vec<Above> {
    let mut all = Vec::new();
    for acl in replica.find(ACL, "above", "yes") {
        let number = acl.uuid().to_string();
        let mut places: BTreeSet<Uuid> =
            replica.find(SWITCH, "acls", &number).map(|switch| switch.uuid()).collect();
        for group in replica.find(PORT_GROUP, "acls", &number) {
            for port in group.get("ports").uuids() {
                let found = replica.find(SWITCH, "ports", &port.to_string());
                places.extend(found.map(|switch| switch.uuid()));
            }
        }
        for place in places.iter().filter(|place| switches.contains_key(place)) {
            all.push(Above {
                switch: replica.row(SWITCH, *place).map(|row| text(row, "name")).unwrap_or_default(),
                matches: text(acl, "match"),
                priority: acl.get("priority").integer().unwrap_or_default(),
            });
        }
    }
    all.sort();
    all
}

/// The row of that number, or the only one of that name.
fn one<'a>(
    replica: &'a Replica,
    of: &Owner,
    table: &str,
    what: &str,
    name: &str,
) -> Result<&'a Row, Problem> {
    if let Some(row) = name.parse().ok().and_then(|uuid| replica.row(table, uuid)) {
        return Ok(row);
    }
    let mut found = replica.find(table, "name", name);
    match (found.next(), found.next()) {
        (Some(row), None) => Ok(row),
        (None, _) => Err(Problem::new(
            format!("{of}: there is no logical {what} `{name}`."),
            STAYS,
            format!("Name a {what} of the northbound database, or make it."),
        )),
        (Some(_), Some(_)) => Err(Problem::new(
            format!("{of}: there are several logical {what}es called `{name}`.")
                .replace("routeres", "routers"),
            STAYS,
            "Name it by its UUID.",
        )),
    }
}

fn text(row: &Row, column: &str) -> String {
    row.get(column).text().unwrap_or_default().to_owned()
}

fn other(row: &Row) -> Other {
    let vips = row.get("vips").entries().iter().filter_map(|(vip, _)| vip.as_text());
    let protocol = row.get("protocol").text().unwrap_or("tcp");
    Other { name: text(row, "name"), protocol: protocol.to_owned(), vips: vips.map(str::to_owned).collect() }
}

fn switch(replica: &Replica, row: &Row, named: bool) -> Switch {
    let mut switch = Switch { uuid: row.uuid(), name: text(row, "name"), named, ..Switch::default() };
    let config = row.get("other_config");
    switch.is_transit = config.value_of("interconn-ts").is_some();
    switch.subnets.extend(config.value_of("subnet").and_then(|subnet| subnet.parse().ok()).map(network));
    let prefix = config.value_of("ipv6_prefix").and_then(|prefix| prefix.parse().ok());
    switch.subnets.extend(prefix.and_then(|prefix| Cidr::new(prefix, 64).ok()));
    for part in config.value_of("exclude_ips").unwrap_or_default().split_whitespace() {
        // Of a range both ends: what is between is theirs as well, and rarely at the end of a subnet.
        switch.taken.extend(part.split("..").filter_map(|end| end.parse::<IpAddr>().ok()));
    }
    for port in row.get("ports").uuids().filter_map(|port| replica.row(SWITCH_PORT, port)) {
        let name = text(port, "name");
        for column in ["addresses", "dynamic_addresses"] {
            let words = port.get(column).texts().flat_map(str::split_whitespace);
            let addresses = words.filter_map(|word| word.parse::<IpAddr>().ok());
            switch.ports.extend(addresses.map(|address| (address, name.clone())));
        }
        for column in ["dhcpv4_options", "dhcpv6_options"] {
            let options = port.get(column).uuids().filter_map(|options| replica.row(DHCP_OPTIONS, options));
            let ranges = options.filter_map(|options| options.get("cidr").text()?.parse().ok());
            switch.subnets.extend(ranges.map(network));
        }
        if let Some(peer) = port.get("options").value_of("router-port") {
            for end in replica.find(ROUTER_PORT, "name", peer) {
                for range in end.get("networks").texts().filter_map(|range| range.parse::<Cidr>().ok()) {
                    switch.taken.insert(range.addr());
                    switch.subnets.insert(range.network());
                }
            }
        }
    }
    switch
}

fn network(range: Cidr) -> Cidr {
    range.network()
}

impl Switch {
    /// From where who has an address is asked whether it is well: the last address of its subnet that nobody has. OVN
    /// answers for it, so it must be no one's.
    pub(crate) fn asks_from(&self, of: IpAddr, vips: &[IpAddr]) -> Option<IpAddr> {
        let subnet = self.subnets.iter().find(|subnet| subnet.contains(of))?;
        let is_free = |address: &IpAddr| {
            *address != of
                && subnet.contains(*address)
                && *address != subnet.addr()
                && !self.ports.contains_key(address)
                && !self.taken.contains(address)
                && !vips.contains(address)
        };
        // Among as many as are taken, and a few more, one is free, unless the subnet is full.
        let tries = self.ports.len() + self.taken.len() + vips.len() + 4;
        from_the_end(subnet).take(tries).find(is_free)
    }
}

/// The addresses of a subnet from its last on; without the one that means everybody.
fn from_the_end(subnet: &Cidr) -> Box<dyn Iterator<Item = IpAddr>> {
    let host_bits = u32::from(subnet.family().bits() - subnet.prefix_len());
    match subnet.addr() {
        IpAddr::V4(first) => {
            let size = 1u64 << host_bits;
            let first = u64::from(u32::from(first));
            let last = first + size - 1;
            Box::new(
                (first..last)
                    .rev()
                    .filter_map(|number| u32::try_from(number).ok())
                    .map(|number| IpAddr::V4(number.into())),
            )
        }
        IpAddr::V6(first) => {
            let first = u128::from(first);
            let last = first | 1u128.checked_shl(host_bits).map_or(u128::MAX, |size| size - 1);
            Box::new((first..last).rev().map(|number| IpAddr::V6(number.into())))
        }
    }
}
