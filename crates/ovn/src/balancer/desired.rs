//! What rows a load balancer needs.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use portcullis_core::{
    AddressSet, Cidr, Duty, Family, HealthCheck, HealthPort, Listener, ListenerProtocol, LoadBalancer,
    Member, Owner, Probe, Problem, Protocol,
};
use portcullis_ovsdb::Datum;
use uuid::Uuid;

use super::acl::{Drops, PRIORITY, Strays, may_match};
use super::names::{self, number};
use super::report::{Health, end};
use super::rows::{Columns, LEFT, Rows};
use super::scene::{STAYS, Scene, Switch};
use super::tables::{BALANCER, CHECK};
use crate::rows::Reference;
use crate::tables::{ACL, ADDRESS_SET, ROUTER, SWITCH};

/// The key under which the set of who is kept out says who is not.
const RANGES: &str = "portcullis.dev/ranges";

/// What was decided.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Desired {
    pub(crate) rows: Rows,
    /// What is not quite as asked.
    pub(crate) told: Vec<String>,
    /// Where OVN asks members whether they are well.
    pub(crate) asked: BTreeMap<String, Vec<Asked>>,
    /// Who is to get connections and gets none yet, and why.
    pub(crate) trial: BTreeMap<String, &'static str>,
    /// Who gets connections although it does not answer, since nobody does.
    pub(crate) open: BTreeSet<Asked>,
    /// Why source ranges may not keep out whom they should.
    pub(crate) leaks: Vec<String>,
    /// Addresses at which connections that are left cannot be ended.
    pub(crate) endless: BTreeSet<IpAddr>,
    /// Who gets in, if that is not who should.
    pub(crate) admitted: Option<AddressSet>,
}

/// Where a member is asked whether it is well.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Asked {
    pub(crate) address: IpAddr,
    pub(crate) port: u16,
    pub(crate) protocol: &'static str,
    pub(crate) logical_port: String,
}

/// How things are when it is decided.
pub(crate) struct Moment<'a> {
    pub(crate) now: SystemTime,
    pub(crate) health: &'a dyn Fn(&Asked) -> Health,
    /// Whether who is new gets connections before it answered.
    pub(crate) at_once: bool,
}

const UNTRIED: &str = "it has not answered its check yet";
const UNSEEN: &str = "whether it answers is not known: the southbound database cannot be reached";
const IN_THE_WAY: &str = "it waits until what is in the way is gone";

/// What rows an owner needs, given what is around and what it has.
pub(crate) fn desired(
    owner: &Owner,
    identity: Option<&str>,
    wanted: &LoadBalancer,
    scene: &Scene,
    there: &Rows,
    moment: &Moment<'_>,
) -> Result<Desired, Problem> {
    check(owner, wanted, scene)?;
    let mut decided = Desired::default();
    let mut draft = Draft::new(owner, identity, wanted, scene, there, moment);
    draft.vips = wanted.addresses().to_vec();
    for protocol in names::PROTOCOLS {
        for listener in wanted.listeners().iter().filter(|listener| speaks(listener, protocol)) {
            draft.ports.entry(protocol).or_default().insert(listener.port());
        }
    }
    let mappings = draft.mappings();
    let why = draft.choose(&mappings);
    decided.trial = draft.trial.iter().map(|member| (member.name().to_owned(), why)).collect();
    let left = draft.left();
    decided.endless = draft.endless();
    let mut seen = BTreeSet::new();
    for protocol in names::PROTOCOLS {
        let listeners: Vec<&Listener> =
            wanted.listeners().iter().filter(|listener| speaks(listener, protocol)).collect();
        if listeners.is_empty() {
            continue;
        }
        let open = draft.open(&mut decided, protocol, &listeners, &mappings);
        draft.balancer(&mut decided, protocol, &listeners, &mappings, &open, &left);
        draft.trial(&mut decided, protocol, &listeners, &mappings, !open.is_empty());
        for family in wanted.families() {
            draft.guard(&mut decided, *family, protocol, &wanted.admission().addresses(*family));
        }
        for listener in listeners {
            let told = listener.health_check().and_then(|check| not_asked(listener, check));
            decided.told.extend(told.filter(|told| seen.insert(told.clone())));
        }
    }
    draft.farewell(&mut decided, &left);
    Ok(decided)
}

/// What is left to do while something is in the way of all else: who leaves goes, and nobody comes; listeners and ranges that are not
/// asked for any more are closed, and nothing is opened. Without `narrow` they stay as they are.
pub(crate) fn retreat(
    owner: &Owner,
    identity: Option<&str>,
    wanted: &LoadBalancer,
    scene: &Scene,
    there: &Rows,
    moment: &Moment<'_>,
    narrow: bool,
) -> Desired {
    let mut decided = Desired { rows: there.clone(), ..Desired::default() };
    let mut draft = Draft::new(owner, identity, wanted, scene, there, moment);
    let vips: BTreeSet<IpAddr> = there.addresses().into_iter().chain(there.farewells()).collect();
    (draft.vips, draft.ports) = (vips.into_iter().collect(), there.ports());
    decided.endless = draft.endless();
    if narrow {
        draft.narrow(&mut decided);
    }
    let (mappings, backends, left) = (draft.mappings(), decided.rows.backends(), draft.left());
    let mut stays: BTreeSet<IpAddr> = BTreeSet::new();
    for member in wanted.members().iter().filter(|member| member.duty() == Duty::Serve) {
        stays.extend(member.addresses());
        if member.addresses().iter().any(|address| backends.contains(address)) {
            decided.asked.insert(member.name().to_owned(), draft.asked(member, &mappings));
        } else {
            decided.trial.insert(member.name().to_owned(), IN_THE_WAY);
        }
    }
    let is_one = |backend: &&str| backend.parse::<SocketAddr>().is_ok_and(|one| stays.contains(&one.ip()));
    for protocol in names::PROTOCOLS {
        let Some(row) = decided.rows.rows.get_mut(&(BALANCER, number(owner, protocol))) else { continue };
        let mut vips = map(row.get("vips"));
        for backends in vips.values_mut() {
            let rest: Vec<&str> = backends.split(',').filter(is_one).collect();
            *backends = rest.join(",");
        }
        let mut marks = map(row.get("external_ids"));
        marks.retain(|key, _| !key.starts_with(LEFT));
        marks.extend(marks_of(&left));
        row.insert("vips", datum(&vips));
        row.insert("external_ids", datum(&marks));
    }
    let gone: Vec<Uuid> = Family::ALL.map(close).iter().map(|role| number(owner, role)).collect();
    let gone: BTreeSet<Uuid> = gone.into_iter().chain([number(owner, FAREWELL)]).collect();
    decided.rows.rows.retain(|(_, uuid), _| !gone.contains(uuid));
    decided.rows.references.retain(|reference| !gone.contains(&reference.member));
    draft.farewell(&mut decided, &left);
    decided
}

/// The role of the row that ends the connections of who left.
const FAREWELL: &str = "farewell";

/// The role of the row that lets nothing through but what is for a port.
fn close(family: Family) -> String {
    format!("close {family}")
}

struct Draft<'a> {
    owner: &'a Owner,
    wanted: &'a LoadBalancer,
    scene: &'a Scene,
    marks: BTreeMap<String, String>,
    there: &'a Rows,
    moment: &'a Moment<'a>,
    /// Where it is found.
    vips: Vec<IpAddr>,
    /// And on which ports, by protocol.
    ports: BTreeMap<&'static str, BTreeSet<u16>>,
    /// Who gets connections.
    serving: Vec<&'a Member>,
    /// Who will, once it is known to be well.
    trial: Vec<&'a Member>,
}

/// One who served, and since when it does not.
struct Left<'a> {
    member: &'a Member,
    since: SystemTime,
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
    fn new(
        owner: &'a Owner,
        identity: Option<&str>,
        wanted: &'a LoadBalancer,
        scene: &'a Scene,
        there: &'a Rows,
        moment: &'a Moment<'a>,
    ) -> Self {
        let mut marks: BTreeMap<String, String> =
            owner.to_pairs().into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
        marks.extend(identity.map(|identity| (Owner::IDENTITY_KEY.to_owned(), identity.to_owned())));
        let (vips, ports, serving, trial) = (Vec::new(), BTreeMap::new(), Vec::new(), Vec::new());
        Draft { owner, wanted, scene, marks, there, moment, vips, ports, serving, trial }
    }

    /// Addresses at which connections that are left cannot be ended.
    fn endless(&self) -> BTreeSet<IpAddr> {
        self.vips.iter().copied().filter(|vip| self.scene.used.contains(vip)).collect()
    }

    /// Says who serves, and why the others do not. OVN sends to who was not asked yet: who is new is asked beforehand, unless
    /// nobody else is there. While it cannot be seen who answers, who serves goes on, and nobody is added.
    fn choose(&mut self, mappings: &Mappings) -> &'static str {
        let backends = self.there.backends();
        let all = self.wanted.members().iter().filter(|member| member.duty() == Duty::Serve);
        let mut is_unseen = false;
        let (tried, new): (Vec<&'a Member>, Vec<&'a Member>) = all.partition(|member| {
            let serves = member.addresses().iter().any(|address| backends.contains(address));
            let states: Vec<Health> =
                self.asked(member, mappings).iter().map(|asked| (self.moment.health)(asked)).collect();
            is_unseen |= states.contains(&Health::Unseen);
            serves
                || self.moment.at_once
                || states.contains(&Health::Unknown)
                || states.iter().all(|state| *state == Health::Well)
        });
        (self.serving, self.trial) = if tried.is_empty() && !is_unseen { (new, tried) } else { (tried, new) };
        if is_unseen { UNSEEN } else { UNTRIED }
    }

    /// The addresses and ports at which nobody answers. OVN would turn away everybody there: all who serve get connections
    /// instead, as if nobody asked them. While it cannot be seen who answers it stays as it is.
    fn open(
        &self,
        decided: &mut Desired,
        protocol: &'static str,
        listeners: &[&Listener],
        mappings: &Mappings,
    ) -> BTreeSet<SocketAddr> {
        let mut open = BTreeSet::new();
        for listener in listeners.iter().filter(|listener| listener.health_check().is_some()) {
            for vip in &self.vips {
                let members = self.serving.iter().filter_map(|member| {
                    let address = member.address(Family::of(*vip))?;
                    Some((member, mappings.contains_key(&address).then_some(address)))
                });
                // OVN sends to who is not asked, whatever becomes of the others.
                let asked: Option<Vec<Asked>> = members
                    .map(|(member, address)| {
                        let address = address?;
                        let logical_port = mappings.get(&address)?.0.clone();
                        Some(Asked { address, port: member.port(listener), protocol, logical_port })
                    })
                    .collect();
                let Some(asked) = asked.filter(|asked| !asked.is_empty()) else { continue };
                let states: Vec<Health> = asked.iter().map(|asked| (self.moment.health)(asked)).collect();
                let vip = SocketAddr::new(*vip, listener.port());
                let is_open = if states.contains(&Health::Unseen) {
                    self.is_open(protocol, vip)
                } else {
                    states.iter().all(|state| *state == Health::Ill)
                };
                if is_open {
                    open.insert(vip);
                    decided.open.extend(asked);
                    let told = format!(
                        "No member of listener {} answers its check: those that serve get connections nevertheless.",
                        listener.port()
                    );
                    if !decided.told.contains(&told) {
                        decided.told.push(told);
                    }
                }
            }
        }
        open
    }

    /// Whether all get connections at an address and port as it is.
    fn is_open(&self, protocol: &str, vip: SocketAddr) -> bool {
        let row = self.there.rows.get(&(BALANCER, number(self.owner, protocol)));
        row.is_some_and(|row| map(row.get("vips")).contains_key(&vip.to_string()))
            && !self
                .there
                .rows
                .contains_key(&(CHECK, number(self.owner, &check_role("check", protocol, vip))))
    }

    /// Where a member is asked whether it is well.
    fn asked(&self, member: &Member, mappings: &Mappings) -> Vec<Asked> {
        let mut all = Vec::new();
        let families: BTreeSet<Family> = self.vips.iter().copied().map(Family::of).collect();
        for protocol in names::PROTOCOLS {
            let checked = self.wanted.listeners().iter().filter(|listener| listener.health_check().is_some());
            for listener in checked.filter(|listener| speaks(listener, protocol)) {
                for address in families.iter().filter_map(|family| member.address(*family)) {
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
                let from = switch.asks_from(*address, &self.vips)?;
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
        unasked: &BTreeSet<SocketAddr>,
    ) -> Part {
        let mut part = Part::default();
        for listener in listeners {
            for address in self.wanted.addresses() {
                let at = SocketAddr::new(*address, listener.port());
                let vip = at.to_string();
                let backends = members.iter().filter_map(|member| {
                    let address = member.address(Family::of(*address))?;
                    Some(SocketAddr::new(address, member.port(listener)))
                });
                let backends: Vec<SocketAddr> = backends.collect();
                let texts: Vec<String> = backends.iter().map(SocketAddr::to_string).collect();
                part.vips.insert(vip.clone(), texts.join(","));
                let Some(check) = listener.health_check().filter(|_| !unasked.contains(&at)) else {
                    continue;
                };
                let uuid = number(self.owner, &check_role(role, protocol, at));
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
        open: &BTreeSet<SocketAddr>,
        left: &[Left<'_>],
    ) {
        let part = self.part(decided, ("check", protocol), listeners, &self.serving, mappings, open);
        let mut marks = self.marks.clone();
        marks.extend(marks_of(left));
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

    /// A load balancer that is nowhere: nobody reaches it, and OVN asks its members whether they are well. Those that serve are
    /// asked here where they would be turned away for what they answer.
    fn trial(
        &self,
        decided: &mut Desired,
        protocol: &'static str,
        listeners: &[&Listener],
        mappings: &Mappings,
        also_serving: bool,
    ) {
        let mut members = self.trial.clone();
        members.extend(self.serving.iter().filter(|_| also_serving));
        if members.is_empty() {
            return;
        }
        let part = self.part(decided, ("trial", protocol), listeners, &members, mappings, &BTreeSet::new());
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

    /// Who served, and does not any more; and since when.
    fn left(&self) -> Vec<Left<'a>> {
        let (backends, left) = (self.there.backends(), self.there.left());
        let members = self.wanted.members().iter().filter(|member| member.duty() != Duty::Serve);
        let served = members.filter_map(|member| {
            let serves = || member.addresses().iter().any(|address| backends.contains(address));
            let since = left.get(member.name()).copied();
            Some(Left { member, since: since.or_else(|| serves().then_some(self.moment.now))? })
        });
        served.collect()
    }

    /// What ends the connections of who left, when its time is over.
    ///
    /// OVN ends connections when it takes a member out of a load balancer with `ct_flush`, and only then: at the very moment
    /// at which they may still go on. So who left is a member of a second load balancer until its time is over. That has
    /// the same addresses, and no port: it counts for what is for no port of the first one, and [`Self::close`] lets nothing
    /// of that through; but connections to all ports, of all protocols, are ended with it. It is one for all who leave: two
    /// with the same addresses would be in each other's way. An address that others have a use for is left alone.
    ///
    /// Who comes back stays in it until it leaves for good. There is no way out that would not end its connections: also to
    /// turn `ct_flush` off ends those of all who are in it.
    fn farewell(&self, decided: &mut Desired, left: &[Left<'_>]) {
        let place = (BALANCER, number(self.owner, FAREWELL));
        let before: BTreeSet<IpAddr> = self
            .there
            .rows
            .get(&place)
            .map(|row| map(row.get("vips")))
            .unwrap_or_default()
            .values()
            .flat_map(|backends| backends.split(','))
            .filter_map(|backend| backend.parse().ok())
            .collect();
        let is_in = |member: &Member, address: IpAddr| match member.duty().by() {
            Some(by) => {
                let mut found = left.iter().filter(|one| one.member.name() == member.name());
                found.any(|one| end(by, one.since) > self.moment.now)
            }
            None => before.contains(&address),
        };
        let mut vips = BTreeMap::new();
        for vip in self.vips.iter().filter(|vip| !decided.endless.contains(vip)) {
            let backends = self.wanted.members().iter().filter_map(|member| {
                let address = member.address(Family::of(*vip))?;
                is_in(member, address).then(|| address.to_string())
            });
            let backends: Vec<String> = backends.collect();
            if !backends.is_empty() {
                vips.insert(vip.to_string(), backends.join(","));
            }
        }
        if vips.is_empty() {
            return;
        }
        let part = Part { vips, ..Part::default() };
        let options = BTreeMap::from([("ct_flush".to_owned(), "true".to_owned())]);
        // Without a port the protocol means nothing.
        let row = row(names::farewell(self.owner), "tcp", part, &options, &self.marks);
        decided.rows.rows.insert(place, row);
        self.refer(&mut decided.rows, place.1);
        for family in Family::ALL {
            self.close(&mut decided.rows, family);
        }
    }

    /// Lets nothing through to an address but what is for its ports, while there is something that would take it.
    fn close(&self, rows: &mut Rows, family: Family) {
        let vips: BTreeSet<IpAddr> =
            rows.farewells().into_iter().filter(|vip| Family::of(*vip) == family).collect();
        if vips.is_empty() {
            return;
        }
        let strays = Strays { family, vips, ports: self.ports.clone() };
        self.drop(rows, &close(family), strays.text(), |_| true);
    }

    /// Takes away listeners that are not wanted any more, and keeps out who is not let in any more: whatever is in the way of
    /// the rest, nobody gets in who should not. Who is to be let in, and was not, waits.
    fn narrow(&mut self, decided: &mut Desired) {
        if self.there.addresses().is_empty() {
            return;
        }
        for (protocol, ports) in &mut self.ports {
            let listeners = self.wanted.listeners().iter().filter(|listener| speaks(listener, protocol));
            let wanted: BTreeSet<u16> = listeners.map(Listener::port).collect();
            ports.retain(|port| wanted.contains(port));
        }
        self.ports.retain(|_, ports| !ports.is_empty());
        for protocol in names::PROTOCOLS {
            let stays = |vip: &str| {
                let ports = self.ports.get(protocol);
                let port = vip.parse::<SocketAddr>().map(|vip| vip.port());
                port.is_ok_and(|port| ports.is_some_and(|ports| ports.contains(&port)))
            };
            // The row stays, if without any: it knows who left.
            for (role, check) in [(protocol.to_owned(), "check"), (format!("trial {protocol}"), "trial")] {
                let place = (BALANCER, number(self.owner, &role));
                let Some(row) = decided.rows.rows.get_mut(&place) else { continue };
                let mut vips = map(row.get("vips"));
                let gone: Vec<String> = vips.keys().filter(|vip| !stays(vip)).cloned().collect();
                vips.retain(|vip, _| !gone.contains(vip));
                let gone = gone.iter().filter_map(|vip| vip.parse().ok());
                let gone: BTreeSet<Uuid> =
                    gone.map(|vip| number(self.owner, &check_role(check, protocol, vip))).collect();
                let checks = row.get("health_check").map(|checks| checks.uuids().collect::<Vec<_>>());
                let checks = checks.unwrap_or_default().into_iter().filter(|check| !gone.contains(check));
                let checks = checks.collect();
                row.insert("vips", datum(&vips));
                row.insert("health_check", checks);
                decided.rows.rows.retain(|(table, uuid), _| *table != CHECK || !gone.contains(uuid));
            }
        }
        let (mut admitted, mut is_everyone) = (AddressSet::nobody(), true);
        for family in Family::ALL {
            let before = self.admitted(family);
            let gone: BTreeSet<Uuid> = guards(family).iter().map(|role| number(self.owner, role)).collect();
            decided.rows.rows.retain(|(_, uuid), _| !gone.contains(uuid));
            decided.rows.references.retain(|reference| !gone.contains(&reference.member));
            let allowed = before.intersection(&self.wanted.admission().addresses(family));
            let protocols: Vec<&'static str> = self.ports.keys().copied().collect();
            for protocol in protocols {
                self.guard(decided, family, protocol, &allowed);
            }
            // Nothing is said of a family that it has no address of.
            if self.vips.iter().any(|vip| Family::of(*vip) == family) {
                is_everyone &= allowed == AddressSet::everyone_of(family);
                admitted = admitted.union(&allowed);
            }
        }
        decided.admitted = Some(if is_everyone { AddressSet::everyone() } else { admitted });
    }

    /// Who of a family gets in as it is.
    fn admitted(&self, family: Family) -> AddressSet {
        let mut admitted = AddressSet::everyone_of(family);
        for vip in self.there.addresses().into_iter().filter(|vip| Family::of(*vip) == family) {
            for (protocol, ports) in &self.ports {
                for port in ports {
                    let through = self.there.admitted(protocol, SocketAddr::new(vip, *port));
                    admitted = admitted.intersection(&through);
                }
            }
        }
        admitted
    }

    /// Keeps out who is not of the ranges. Routers have no ACLs: packets to them are dropped on the switches they come through.
    fn guard(&self, decided: &mut Desired, family: Family, protocol: &'static str, ranges: &AddressSet) {
        let vips: BTreeSet<IpAddr> =
            self.vips.iter().copied().filter(|address| Family::of(*address) == family).collect();
        let ports = self.ports.get(protocol).cloned().unwrap_or_default();
        if vips.is_empty() || ports.is_empty() || ranges.cidrs().iter().any(Cidr::is_everything) {
            return;
        }
        let set = names::set(self.owner, family);
        if !ranges.is_nobody() {
            let outside = AddressSet::everyone_of(family).difference(ranges);
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
            decided.rows.rows.insert((ADDRESS_SET, number(self.owner, &set_role(family))), row);
        }
        let mut drops = Drops {
            family,
            protocol: protocol.to_owned(),
            vips,
            ports,
            from: (!ranges.is_nobody()).then_some(set),
            knows: false,
        };
        let role = drop_role(family, protocol);
        if protocol == "tcp" {
            self.drop(&mut decided.rows, &in_front(&role), drops.text(), |switch| !switch.named);
            drops.knows = true;
            self.drop(&mut decided.rows, &role, drops.text(), |switch| switch.named);
        } else {
            self.drop(&mut decided.rows, &role, drops.text(), |_| true);
        }
        self.leaks(decided, &drops.vips, &BTreeMap::from([(protocol, drops.ports.clone())]));
    }

    /// Says where somebody gets past what keeps them out.
    fn leaks(
        &self,
        decided: &mut Desired,
        vips: &BTreeSet<IpAddr>,
        ports: &BTreeMap<&'static str, BTreeSet<u16>>,
    ) {
        let above = self.scene.above.iter().filter(|above| may_match(&above.matches, vips, ports));
        let above = above.map(|above| {
            format!(
                "On the logical switch `{}` the ACL `{}` has a priority of {}, which is not below those for source ranges ({PRIORITY}): it may let in who they keep out.",
                above.switch, above.matches, above.priority
            )
        });
        let transit = self.scene.switches.iter().filter(|switch| switch.is_transit);
        let transit = transit.map(|switch| {
            format!(
                "The logical switch `{}` is one of several OVNs: what comes from the others does not pass the ACLs of this one.",
                switch.name
            )
        });
        for leak in above.chain(transit) {
            if !decided.leaks.contains(&leak) {
                decided.leaks.push(leak);
            }
        }
    }

    /// Drops packets where they come in.
    fn drop(&self, rows: &mut Rows, role: &str, matches: String, place: impl Fn(&Switch) -> bool) {
        let uuid = number(self.owner, role);
        let places: Vec<Uuid> =
            self.scene.switches.iter().filter(|switch| place(switch)).map(|switch| switch.uuid).collect();
        // A row that nothing refers to would be gone at once.
        if places.is_empty() {
            return;
        }
        let row = Columns::from([
            ("priority", PRIORITY.into()),
            ("direction", "from-lport".into()),
            ("match", matches.into()),
            ("action", "drop".into()),
            ("external_ids", self.external_ids()),
        ]);
        rows.rows.insert((ACL, uuid), row);
        let (table, column) = (SWITCH, "acls");
        let references = places.into_iter().map(|row| Reference { table, row, column, member: uuid });
        rows.references.extend(references);
    }
}

/// The role of the set of who is kept out.
fn set_role(family: Family) -> String {
    format!("set {family}")
}

/// The role of the row that keeps them out.
fn drop_role(family: Family, protocol: &str) -> String {
    format!("drop {family} {protocol}")
}

/// The same for switches that a load balancer is behind.
fn in_front(role: &str) -> String {
    format!("{role} in front")
}

/// The roles of all rows that keep somebody of a family out.
fn guards(family: Family) -> Vec<String> {
    let drops = names::PROTOCOLS.map(|protocol| drop_role(family, protocol));
    let fronts = drops.each_ref().map(|role| in_front(role));
    drops.into_iter().chain(fronts).chain([set_role(family)]).collect()
}

/// The role of a check.
fn check_role(role: &str, protocol: &str, vip: SocketAddr) -> String {
    format!("{role} {protocol} {vip}")
}

/// What says who left, and when.
fn marks_of(left: &[Left<'_>]) -> BTreeMap<String, String> {
    let second = |time: SystemTime| time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    left.iter().map(|one| (format!("{LEFT}{}", one.member.name()), second(one.since).to_string())).collect()
}

fn map(datum: Option<&Datum>) -> BTreeMap<String, String> {
    let entries = datum.map(Datum::entries).unwrap_or_default().iter();
    entries
        .filter_map(|(key, value)| Some((key.as_text()?.to_owned(), value.as_text()?.to_owned())))
        .collect()
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
    let refuse = |what: String, remedy: &str| Err(Problem::new(format!("{owner}: {what}"), STAYS, remedy));
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
