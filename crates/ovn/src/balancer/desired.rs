//! What rows a load balancer needs.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use portcullis_core::{
    AddressSet, Cidr, Duty, Family, HealthCheck, HealthPort, Listener, ListenerProtocol, LoadBalancer,
    Member, Owner, Peer, Probe, Problem, Protocol,
};
use portcullis_ovsdb::Datum;
use uuid::Uuid;

use super::acl::{Drops, PRIORITY, Strays};
use super::names::{self, number};
use super::report::Health;
use super::rows::{Columns, LEFT, Rows};
use super::scene::Scene;
use super::tables::{BALANCER, CHECK};
use crate::rows::Reference;
use crate::tables::{ACL, ADDRESS_SET, ROUTER, SWITCH};

/// The key under which the set of who is kept out says who is not.
const RANGES: &str = "portcullis.dev/ranges";

/// The key that says since when, in seconds, nobody is to be cut off by a farewell.
const CALLED_OFF: &str = "portcullis.dev/called-off";

/// Within how many seconds every part of OVN has heard of a change.
const HEARD: u64 = 60;

/// What was decided.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Desired {
    pub(crate) rows: Rows,
    /// What is not quite as asked.
    pub(crate) told: Vec<String>,
    /// Where OVN asks members whether they are well.
    pub(crate) asked: BTreeMap<String, Vec<Asked>>,
    /// Who gets connections only once it is known to be well.
    pub(crate) trial: BTreeSet<String>,
    /// Addresses at which connections that are left cannot be ended.
    pub(crate) endless: BTreeSet<IpAddr>,
}

/// Where a member is asked whether it is well.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Asked {
    pub(crate) address: IpAddr,
    pub(crate) port: u16,
    pub(crate) protocol: &'static str,
    pub(crate) logical_port: String,
}

/// What rows an owner needs at some time, given what is around and what it has.
pub(crate) fn desired(
    owner: &Owner,
    identity: Option<&str>,
    wanted: &LoadBalancer,
    scene: &Scene,
    there: &Rows,
    health: &dyn Fn(&Asked) -> Health,
    now: SystemTime,
) -> Result<Desired, Problem> {
    check(owner, wanted, scene)?;
    let mut decided = Desired::default();
    let mut marks: BTreeMap<String, String> =
        owner.to_pairs().into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
    marks.extend(identity.map(|identity| (Owner::IDENTITY_KEY.to_owned(), identity.to_owned())));
    let mut draft = Draft { owner, wanted, scene, marks, there, serving: Vec::new(), trial: Vec::new() };
    let mappings = draft.mappings();
    draft.choose(&mappings, health);
    decided.trial = draft.trial.iter().map(|member| member.name().to_owned()).collect();
    let left = draft.left();
    let vips = wanted.addresses().iter().copied();
    decided.endless = vips.filter(|vip| scene.used.contains(vip)).collect();
    let mut seen = BTreeSet::new();
    for protocol in names::PROTOCOLS {
        let listeners: Vec<&Listener> =
            wanted.listeners().iter().filter(|listener| speaks(listener, protocol)).collect();
        if listeners.is_empty() {
            continue;
        }
        draft.balancer(&mut decided, protocol, &listeners, &mappings, &left);
        draft.trial(&mut decided, protocol, &listeners, &mappings);
        for member in wanted.members() {
            draft.farewell(&mut decided, protocol, member, &left, now);
        }
        for family in wanted.families() {
            draft.guard(&mut decided.rows, *family, protocol, &listeners);
        }
        for listener in listeners {
            let told = listener.health_check().and_then(|check| not_asked(listener, check));
            decided.told.extend(told.filter(|told| seen.insert(told.clone())));
        }
    }
    for family in wanted.families() {
        draft.close(&mut decided.rows, *family);
    }
    Ok(decided)
}

struct Draft<'a> {
    owner: &'a Owner,
    wanted: &'a LoadBalancer,
    scene: &'a Scene,
    marks: BTreeMap<String, String>,
    there: &'a Rows,
    /// Who gets connections.
    serving: Vec<&'a Member>,
    /// Who will, once it is known to be well.
    trial: Vec<&'a Member>,
}

/// Who has the address of a member, and from where it is asked.
type Mappings = BTreeMap<IpAddr, (String, IpAddr)>;

/// What a load balancer has for some members.
#[derive(Default)]
struct Part {
    vips: BTreeMap<String, String>,
    checks: Vec<Uuid>,
    mappings: BTreeMap<String, String>,
}

impl<'a> Draft<'a> {
    /// Says who serves. OVN sends to who was not asked yet: who is new is asked beforehand, unless nobody else is there.
    fn choose(&mut self, mappings: &Mappings, health: &dyn Fn(&Asked) -> Health) {
        let backends = self.there.backends();
        let all = self.wanted.members().iter().filter(|member| member.duty() == Duty::Serve);
        let (tried, new): (Vec<&'a Member>, Vec<&'a Member>) = all.partition(|member| {
            let serves = member.addresses().iter().any(|address| backends.contains(address));
            let asked = self.asked(member, mappings);
            let states: Vec<Health> = asked.iter().map(health).collect();
            serves || states.contains(&Health::Unknown) || states.iter().all(|state| *state == Health::Well)
        });
        (self.serving, self.trial) = if tried.is_empty() { (new, tried) } else { (tried, new) };
    }

    /// Where a member is asked whether it is well.
    fn asked(&self, member: &Member, mappings: &Mappings) -> Vec<Asked> {
        let mut all = Vec::new();
        for protocol in names::PROTOCOLS {
            let checked = self.wanted.listeners().iter().filter(|listener| listener.health_check().is_some());
            for listener in checked.filter(|listener| speaks(listener, protocol)) {
                let families = self.wanted.families().iter();
                for address in families.filter_map(|family| member.address(*family)) {
                    all.extend(mappings.get(&address).map(|(logical_port, _)| Asked {
                        address,
                        port: member.port(listener),
                        protocol,
                        logical_port: logical_port.clone(),
                    }));
                }
            }
        }
        all
    }

    fn external_ids(&self) -> Datum {
        datum(&self.marks)
    }

    fn mappings(&self) -> Mappings {
        let serving = self.wanted.members().iter().filter(|member| member.duty() == Duty::Serve);
        let addresses = serving.flat_map(Member::addresses);
        let known = addresses.filter_map(|address| {
            self.scene.switches.iter().find_map(|switch| {
                let port = switch.ports.get(address)?;
                let from = switch.asks_from(*address, self.wanted.addresses())?;
                Some((*address, (port.clone(), from)))
            })
        });
        known.collect()
    }

    /// What some members need to get connections, and to be asked whether they are well.
    fn part(
        &self,
        decided: &mut Desired,
        (role, protocol): (&str, &'static str),
        listeners: &[&Listener],
        members: &[&Member],
        mappings: &Mappings,
    ) -> Part {
        let mut part = Part::default();
        for listener in listeners {
            for address in self.wanted.addresses() {
                let vip = SocketAddr::new(*address, listener.port()).to_string();
                let backends = members.iter().filter_map(|member| {
                    let address = member.address(Family::of(*address))?;
                    Some(SocketAddr::new(address, member.port(listener)))
                });
                let backends: Vec<SocketAddr> = backends.collect();
                let texts: Vec<String> = backends.iter().map(SocketAddr::to_string).collect();
                part.vips.insert(vip.clone(), texts.join(","));
                let Some(check) = listener.health_check() else { continue };
                let uuid = number(self.owner, &format!("{role} {protocol} {vip}"));
                let row = Columns::from([
                    ("vip", vip.as_str().into()),
                    ("options", datum(&options(check))),
                    ("external_ids", self.external_ids()),
                ]);
                decided.rows.rows.insert((CHECK, uuid), row);
                part.checks.push(uuid);
                for backend in backends {
                    let Some((logical_port, from)) = mappings.get(&backend.ip()) else { continue };
                    let asked = format!("{logical_port}:{}", bracketed(*from));
                    part.mappings.insert(bracketed(backend.ip()), asked);
                }
            }
        }
        for member in members {
            let asked = self.asked(member, mappings);
            if !asked.is_empty() {
                decided.asked.insert(member.name().to_owned(), asked);
            }
        }
        part
    }

    fn balancer(
        &self,
        decided: &mut Desired,
        protocol: &'static str,
        listeners: &[&Listener],
        mappings: &Mappings,
        left: &[&Member],
    ) {
        let part = self.part(decided, ("check", protocol), listeners, &self.serving, mappings);
        let mut marks = self.marks.clone();
        marks.extend(left.iter().map(|member| (format!("{LEFT}{}", member.name()), "yes".to_owned())));
        let options = BTreeMap::from([
            // Who comes while there is no member hears so at once.
            ("reject".to_owned(), "true".to_owned()),
            // Who is taken out finishes the connections it has.
            ("ct_flush".to_owned(), "false".to_owned()),
        ]);
        let uuid = number(self.owner, protocol);
        let name = names::balancer(self.owner, protocol);
        decided.rows.rows.insert((BALANCER, uuid), row(name, protocol, part, &options, &marks));
        self.refer(&mut decided.rows, uuid);
    }

    /// A load balancer that is nowhere: nobody reaches it, and OVN asks its members whether they are well.
    fn trial(
        &self,
        decided: &mut Desired,
        protocol: &'static str,
        listeners: &[&Listener],
        mappings: &Mappings,
    ) {
        if self.trial.is_empty() {
            return;
        }
        let part = self.part(decided, ("trial", protocol), listeners, &self.trial, mappings);
        let uuid = number(self.owner, &format!("trial {protocol}"));
        let name = names::trial(self.owner, protocol);
        let row = row(name, protocol, part, &BTreeMap::new(), &self.marks);
        decided.rows.rows.insert((BALANCER, uuid), row);
    }

    /// Puts a load balancer into its places.
    fn refer(&self, rows: &mut Rows, member: Uuid) {
        let named = self.scene.switches.iter().filter(|switch| switch.named);
        let places = named.map(|switch| (SWITCH, switch.uuid));
        let places = places.chain(self.scene.routers.iter().map(|router| (ROUTER, router.uuid)));
        let column = "load_balancer";
        rows.references.extend(places.map(|(table, row)| Reference { table, row, column, member }));
    }

    /// Who served, and does not any more.
    fn left(&self) -> Vec<&'a Member> {
        let (backends, left) = (self.there.backends(), self.there.left());
        let members = self.wanted.members().iter().filter(|member| member.duty() != Duty::Serve);
        let served = |member: &&Member| {
            left.contains(member.name())
                || member.addresses().iter().any(|address| backends.contains(address))
        };
        members.filter(served).collect()
    }

    /// What ends the connections of who left, when its time is over.
    ///
    /// OVN ends connections when it takes a member out of a load balancer with `ct_flush`, and only then: at the very moment
    /// at which they may still go on. So who left is the member of a second load balancer until its time is over. That has
    /// the same addresses, and no port: it counts for what is for no port of the first one, and [`Self::close`] lets nothing
    /// of that through; but connections to all ports are ended with it. An address that others have a use for is left alone.
    fn farewell(
        &self,
        decided: &mut Desired,
        protocol: &'static str,
        member: &Member,
        left: &[&Member],
        now: SystemTime,
    ) {
        let uuid = number(self.owner, &format!("farewell {protocol} {}", member.name()));
        let place = (BALANCER, uuid);
        let farewell = match (member.duty().by(), self.there.rows.get(&place)) {
            (Some(by), _) if by > now && left.iter().any(|one| one.name() == member.name()) => {
                let vips = self.wanted.addresses().iter().filter(|vip| !decided.endless.contains(vip));
                let vips = vips
                    .filter_map(|vip| Some((vip.to_string(), member.address(Family::of(*vip))?.to_string())));
                let part = Part { vips: vips.collect(), ..Part::default() };
                let options = BTreeMap::from([("ct_flush".to_owned(), "true".to_owned())]);
                let name = names::farewell(self.owner, protocol, member.name());
                (!part.vips.is_empty()).then(|| row(name, protocol, part, &options, &self.marks))
            }
            // It is back, and what it has shall not end: OVN has to hear of that before this goes.
            (None, Some(there)) => self.called_off(there, &decided.endless, now),
            _ => None,
        };
        if let Some(row) = farewell {
            decided.rows.rows.insert(place, row);
            self.refer(&mut decided.rows, uuid);
        }
    }

    /// What would have ended connections and is not to: as it is, but without effect, for a while.
    fn called_off(&self, there: &Columns, endless: &BTreeSet<IpAddr>, now: SystemTime) -> Option<Columns> {
        let is_ours = |vip: &str| {
            vip.parse().is_ok_and(|vip| self.wanted.addresses().contains(&vip) && !endless.contains(&vip))
        };
        let vips = there.get("vips").map(Datum::entries).unwrap_or_default().iter();
        let vips = vips.filter_map(|(vip, to)| Some((vip.as_text()?.to_owned(), to.as_text()?.to_owned())));
        let vips: BTreeMap<String, String> = vips.filter(|(vip, _)| is_ours(vip)).collect();
        let second = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let since = there.get("external_ids").and_then(|ids| ids.value_of(CALLED_OFF)?.parse::<u64>().ok());
        let since = since.unwrap_or(second);
        let mut marks = self.marks.clone();
        marks.insert(CALLED_OFF.to_owned(), since.to_string());
        let mut row = there.clone();
        row.insert("options", datum(&BTreeMap::from([("ct_flush".to_owned(), "false".to_owned())])));
        row.insert("external_ids", datum(&marks));
        row.insert("vips", datum(&vips));
        (second < since + HEARD && !vips.is_empty()).then_some(row)
    }

    /// Lets nothing through to an address but what is for its ports, while there is something that would take it.
    fn close(&self, rows: &mut Rows, family: Family) {
        let vips: BTreeSet<IpAddr> =
            rows.farewells().into_iter().filter(|vip| Family::of(*vip) == family).collect();
        if vips.is_empty() {
            return;
        }
        let mut ports: BTreeMap<&'static str, BTreeSet<u16>> = BTreeMap::new();
        for protocol in names::PROTOCOLS {
            for listener in self.wanted.listeners().iter().filter(|listener| speaks(listener, protocol)) {
                ports.entry(protocol).or_default().insert(listener.port());
            }
        }
        self.drop(rows, &format!("close {family}"), Strays { family, vips, ports }.text());
    }

    /// Keeps out who is not of the ranges. Routers have no ACLs: packets to them are dropped on the switches they come through.
    fn guard(&self, rows: &mut Rows, family: Family, protocol: &'static str, listeners: &[&Listener]) {
        let vips: BTreeSet<IpAddr> = self
            .wanted
            .addresses()
            .iter()
            .copied()
            .filter(|address| Family::of(*address) == family)
            .collect();
        let peers = self.wanted.admission().peers(family);
        let ranges = peers.iter().filter_map(|peer| match peer {
            Peer::Range(range) => Some(*range),
            Peer::Everyone | Peer::Group(_) => None,
        });
        let ranges: AddressSet = ranges.collect();
        if vips.is_empty()
            || peers.contains(&Peer::Everyone)
            || ranges.cidrs().iter().any(Cidr::is_everything)
        {
            return;
        }
        let set = names::set(self.owner, family);
        if !ranges.is_nobody() {
            let outside = AddressSet::everyone_of(family).difference(&ranges);
            let text = |range: &Cidr| range.network().to_string();
            // For people, who look for what they wrote.
            let mut marks = self.marks.clone();
            let inside: Vec<String> = ranges.cidrs().iter().map(text).collect();
            marks.insert(RANGES.to_owned(), inside.join(" "));
            let row = Columns::from([
                ("name", set.as_str().into()),
                ("addresses", outside.cidrs().iter().map(text).collect()),
                ("external_ids", datum(&marks)),
            ]);
            rows.rows.insert((ADDRESS_SET, number(self.owner, &format!("set {family}"))), row);
        }
        let drops = Drops {
            family,
            protocol: protocol.to_owned(),
            vips,
            ports: listeners.iter().map(|listener| listener.port()).collect(),
            from: (!ranges.is_nobody()).then_some(set),
        };
        self.drop(rows, &format!("drop {family} {protocol}"), drops.text());
    }

    /// Drops packets wherever they come in.
    fn drop(&self, rows: &mut Rows, role: &str, matches: String) {
        let uuid = number(self.owner, role);
        let row = Columns::from([
            ("priority", PRIORITY.into()),
            ("direction", "from-lport".into()),
            ("match", matches.into()),
            ("action", "drop".into()),
            ("external_ids", self.external_ids()),
        ]);
        rows.rows.insert((ACL, uuid), row);
        let places = self.scene.switches.iter().map(|switch| switch.uuid);
        let (table, column) = (SWITCH, "acls");
        rows.references.extend(places.map(|row| Reference { table, row, column, member: uuid }));
    }
}

fn row(
    name: String,
    protocol: &'static str,
    part: Part,
    options: &BTreeMap<String, String>,
    marks: &BTreeMap<String, String>,
) -> Columns {
    Columns::from([
        ("name", name.into()),
        ("vips", datum(&part.vips)),
        ("protocol", protocol.into()),
        ("health_check", part.checks.into_iter().collect()),
        ("ip_port_mappings", datum(&part.mappings)),
        ("options", datum(options)),
        ("external_ids", datum(marks)),
    ])
}

fn datum(map: &BTreeMap<String, String>) -> Datum {
    map.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect()
}

/// As keys and values have addresses, in which a colon means something.
fn bracketed(address: IpAddr) -> String {
    match address {
        IpAddr::V4(address) => address.to_string(),
        IpAddr::V6(address) => format!("[{address}]"),
    }
}

fn speaks(listener: &Listener, protocol: &str) -> bool {
    let wanted = if protocol == "udp" { Protocol::UDP } else { Protocol::TCP };
    listener.protocol().transports().contains(&wanted)
}

/// OVN counts in whole seconds.
fn options(check: &HealthCheck) -> BTreeMap<String, String> {
    let seconds = |time: Duration| time.as_secs_f64().ceil().max(1.0).to_string();
    let options = [
        ("interval", seconds(check.interval())),
        ("timeout", seconds(check.timeout())),
        ("success_count", check.healthy_threshold().to_string()),
        ("failure_count", check.unhealthy_threshold().to_string()),
    ];
    options.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
}

/// What OVN cannot ask of members.
fn not_asked(listener: &Listener, check: &HealthCheck) -> Option<String> {
    let port = listener.port();
    match (check.probe(), check.port()) {
        (Probe::Http { path } | Probe::Https { path }, _) => Some(format!(
            "The members of listener {port} are asked for connections, not for {path}: OVN has no checks over HTTP."
        )),
        (Probe::Tcp, HealthPort::Number(number)) => Some(format!(
            "The members of listener {port} are asked where they get traffic, not on port {number}: OVN has no checks elsewhere."
        )),
        (Probe::Tcp, HealthPort::Traffic) => None,
    }
}

fn check(owner: &Owner, wanted: &LoadBalancer, scene: &Scene) -> Result<(), Problem> {
    let refuse = |what: String, remedy: &str| {
        Err(Problem::new(format!("{owner}: {what}"), "Nothing was changed.", remedy))
    };
    if wanted.addresses().is_empty() {
        return refuse("it has no address, and OVN has none to give.".to_owned(), "Give it an address.");
    }
    if wanted.listeners().iter().any(|listener| listener.protocol() == ListenerProtocol::Tls) {
        return refuse("OVN does not speak TLS.".to_owned(), "Let members end TLS, with a listener for TCP.");
    }
    for switch in scene.switches.iter().filter(|switch| switch.named) {
        let within = |address: &&IpAddr| switch.subnets.iter().any(|subnet| subnet.contains(**address));
        if let Some(address) = wanted.addresses().iter().find(within) {
            return refuse(
                format!(
                    "its address {address} is in a subnet of the logical switch `{}`: machines there would look for it among themselves.",
                    switch.name
                ),
                "Give it an address outside of the subnets of its switches.",
            );
        }
    }
    if let Some(name) = scene.names.iter().next() {
        return refuse(
            format!("`{name}` is in the northbound database already, and is not ours."),
            "Remove it, or find out whose it is: what is not ours is never touched.",
        );
    }
    for listener in wanted.listeners() {
        for address in wanted.addresses() {
            let vip = SocketAddr::new(*address, listener.port()).to_string();
            let clashes = scene
                .others
                .iter()
                .find(|other| other.vips.contains(&vip) && speaks(listener, &other.protocol));
            if let Some(other) = clashes {
                return refuse(
                    format!(
                        "{vip} is an address of the load balancer `{}` already, in the same place.",
                        other.name
                    ),
                    "Give it another address or port.",
                );
            }
        }
    }
    Ok(())
}
