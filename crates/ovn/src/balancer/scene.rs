//! What a load balancer is put among: switches and routers, who is on them, and what is taken.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

use portcullis_core::{Cidr, Owner, Problem};
use portcullis_ovsdb::{Replica, Row};
use uuid::Uuid;

use super::names::names;
use super::tables::{BALANCER, owner};
use crate::tables::{DHCP_OPTIONS, NAT, ROUTER, ROUTER_PORT, SWITCH, SWITCH_PORT};

/// What matters for one load balancer.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Scene {
    /// Switches that are named, and those that named routers are on.
    pub(crate) switches: Vec<Switch>,
    pub(crate) routers: Vec<Router>,
    /// Load balancers of others in the same places.
    pub(crate) others: Vec<Other>,
    /// Addresses that others have a use for: routers, their NAT, other load balancers.
    pub(crate) used: BTreeSet<IpAddr>,
    /// Names that ours would have, and that others have.
    pub(crate) names: BTreeSet<String>,
}

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

/// Finds what is named, and what is around it.
pub(crate) fn read(replica: &Replica, of: &Owner, places: &Places) -> Result<Scene, Problem> {
    let mut scene = Scene::default();
    if places.switches.is_empty() && places.routers.is_empty() {
        return Err(Problem::new(
            format!("{of}: it is on no logical switch and on no logical router."),
            "Nothing was changed.",
            "Name switches whose ports reach it, or routers that it is on.",
        ));
    }
    let mut switches: BTreeMap<Uuid, bool> = BTreeMap::new();
    for name in &places.switches {
        switches.insert(one(replica, of, SWITCH, "switch", name)?.uuid(), true);
    }
    for name in &places.routers {
        let router = one(replica, of, ROUTER, "router", name)?;
        scene.routers.push(Router { uuid: router.uuid(), name: text(router, "name") });
        let ports = router.get("ports").uuids().filter_map(|port| replica.row(ROUTER_PORT, port));
        for port in ports.filter_map(|port| port.get("name").text()) {
            for end in replica.find(SWITCH_PORT, "router-port", port) {
                for switch in replica.find(SWITCH, "ports", &end.uuid().to_string()) {
                    switches.entry(switch.uuid()).or_insert(false);
                }
            }
        }
    }
    scene.routers.dedup();
    let rows = || switches.keys().filter_map(|switch| replica.row(SWITCH, *switch));
    let routers = || scene.routers.iter().filter_map(|router| replica.row(ROUTER, router.uuid));
    let referred: BTreeSet<Uuid> = rows()
        .chain(routers())
        .flat_map(|place| place.get("load_balancer").uuids().collect::<Vec<_>>())
        .collect();
    let others = referred.iter().filter_map(|uuid| replica.row(BALANCER, *uuid));
    scene.others = others.filter(|row| owner(row).as_ref() != Some(of)).map(|row| other(row)).collect();
    scene.switches = rows().map(|row| switch(replica, row, switches[&row.uuid()])).collect();
    for row in replica.rows(NAT) {
        let columns = ["external_ip", "logical_ip"].into_iter();
        let addresses = columns.filter_map(|column| row.get(column).text()?.parse::<IpAddr>().ok());
        scene.used.extend(addresses);
    }
    for row in replica.rows(BALANCER).filter(|row| owner(row).as_ref() != Some(of)) {
        let vips = row.get("vips").entries().iter().filter_map(|(vip, _)| vip.as_text());
        scene.used.extend(vips.filter_map(address_of));
    }
    for switch in &scene.switches {
        scene.used.extend(switch.taken.iter().chain(switch.ports.keys()));
    }
    for (table, name) in names(of) {
        let mut strange = replica.find(table, "name", &name).filter(|row| owner(row).as_ref() != Some(of));
        if strange.next().is_some() {
            scene.names.insert(name);
        }
    }
    Ok(scene)
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
            "Nothing was changed.",
            format!("Name a {what} of the northbound database, or make it."),
        )),
        (Some(_), Some(_)) => Err(Problem::new(
            format!("{of}: there are several logical {what}es called `{name}`.")
                .replace("routeres", "routers"),
            "Nothing was changed.",
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

/// The address of a key of a load balancer, with or without a port.
fn address_of(vip: &str) -> Option<IpAddr> {
    let with_port = vip.parse::<SocketAddr>().ok().map(|vip| vip.ip());
    with_port.or_else(|| vip.trim_matches(['[', ']']).parse().ok())
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
