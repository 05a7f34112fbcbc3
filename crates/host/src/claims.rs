//! Which Service is reached at which address of a node.
//!
//! A Service asks for addresses, and for the same ports at each of them. At one address no two have the same port: who has
//! it keeps it, and of those who have not, the oldest gets it. Who lacks one of its ports at an address is not at that address
//! at all, since whoever serves addresses serves all ports of a Service there.
//!
//! Nothing here reads or writes: what a node has, and what Services ask for, goes in.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use portcullis_core::{Family, Protocol};

use crate::interfaces::{Entry, Interfaces, NotHere, Selection};

/// Who asks: `NAMESPACE/NAME`.
pub type Name = Arc<str>;

/// A protocol and a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Port {
    /// The protocol.
    pub protocol: Protocol,
    /// The number.
    pub number: u16,
}

impl fmt::Display for Port {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{}/{}", self.number, self.protocol.name()))
    }
}

/// What a Service asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// When it was made, in seconds: the older comes first.
    pub created: i64,
    /// The ports that it has, at each address.
    pub ports: BTreeSet<Port>,
    /// Where it wants to be reached; at the host's own addresses, if it says nothing.
    pub at: Option<Vec<Entry>>,
    /// The families that it is of.
    pub families: BTreeSet<Family>,
    /// The addresses that it has, each with the ports that it has there; with none said, it has them all.
    pub held: Vec<(IpAddr, Option<Vec<Port>>)>,
    /// Ports that lead to it at every address of every node.
    pub node_ports: BTreeSet<Port>,
    /// Ports of addresses at which others forward to it, whatever it gets.
    pub external: BTreeSet<(IpAddr, Port)>,
}

impl Claim {
    /// Whether it has anything at an address.
    pub fn holds_some(&self, address: IpAddr) -> bool {
        self.held.iter().any(|(held, _)| *held == address)
    }

    /// Whether it has a port at an address.
    pub fn holds(&self, address: IpAddr, port: Port) -> bool {
        self.held
            .iter()
            .any(|(held, ports)| *held == address && ports.as_ref().is_none_or(|ports| ports.contains(&port)))
    }

    /// The ports that lead to it whatever it gets: at an address, or at all of them.
    fn leads(&self) -> BTreeSet<Lead> {
        let node_ports = self.node_ports.iter().map(|port| (None, *port));
        node_ports.chain(self.external.iter().map(|(address, port)| (Some(*address), *port))).collect()
    }

    /// How it stands at an address: who has all of its ports comes before who has some, and who has none comes last.
    fn rank(&self, address: IpAddr) -> u8 {
        let held = self.ports.iter().filter(|port| self.holds(address, **port)).count();
        match held {
            0 => 2,
            some if some < self.ports.len() => 1,
            _ => 0,
        }
    }
}

/// A port that leads to somebody at an address, or at all of them.
type Lead = (Option<IpAddr>, Port);

/// What a node has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Here {
    /// Its interfaces.
    pub interfaces: Interfaces,
    /// Where its own programs listen.
    pub listening: BTreeSet<Listening>,
    /// Addresses that count among the host's own, wherever they are: an API server's.
    pub also: BTreeSet<IpAddr>,
}

impl Here {
    /// The addresses of either that are not the same in both: on other interfaces, or with other programs that listen there.
    fn differing(&self, before: &Here) -> BTreeSet<IpAddr> {
        let (now, then) = (self.addresses(), before.addresses());
        let everywhere = |here: &Here| -> BTreeSet<Port> {
            here.listening.iter().filter(|one| one.address.is_none()).map(|one| one.port).collect()
        };
        let all = now.keys().chain(then.keys()).copied();
        if everywhere(self) != everywhere(before) {
            return all.collect();
        }
        all.filter(|address| now.get(address) != then.get(address)).collect()
    }

    /// Its addresses, each with all that says who may be there.
    fn addresses(&self) -> BTreeMap<IpAddr, Standing<'_>> {
        let mut all: BTreeMap<IpAddr, Standing<'_>> = BTreeMap::new();
        for interface in self.interfaces.iter() {
            for address in &interface.addresses {
                let on = (interface.name.as_str(), interface.master.is_some(), interface.is_loopback);
                all.entry(*address).or_default().on.push(on);
            }
        }
        for address in &self.also {
            all.entry(*address).or_default().also = true;
        }
        for Listening { port, address } in &self.listening {
            if let Some(address) = address {
                all.entry(*address).or_default().listening.push(*port);
            }
        }
        all
    }
}

/// What says who may be at an address.
#[derive(Debug, Default, PartialEq)]
struct Standing<'a> {
    /// The interfaces that have it, in their order: whether they are a part of another, and whether they only lead back here.
    on: Vec<(&'a str, bool, bool)>,
    /// Whether it counts among the host's own in any case.
    also: bool,
    listening: Vec<Port>,
}

/// Where a program of the node listens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Listening {
    /// The port.
    pub port: Port,
    /// The address; none for all of them.
    pub address: Option<IpAddr>,
}

/// What nobody gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Which addresses are meant, and which are not for Services.
    pub selection: Selection,
    /// Ports of any protocol that the node needs for itself.
    pub reserved: BTreeSet<u16>,
}

/// What a Service gets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Share {
    /// The addresses where it is reached.
    pub addresses: BTreeSet<IpAddr>,
    /// The addresses that it asked for and did not get, and why.
    pub refused: BTreeMap<IpAddr, Refusal>,
}

impl Share {
    /// Whether this is all that it has at some addresses.
    fn has_at(&self, some: &BTreeSet<IpAddr>, all: &Share) -> bool {
        let addresses = self.addresses.iter().filter(|address| some.contains(address));
        let refused = self.refused.iter().filter(|(address, _)| some.contains(address));
        addresses.eq(&all.addresses) && refused.eq(&all.refused)
    }

    /// Takes out what is at some addresses.
    fn split_off(&mut self, some: &BTreeSet<IpAddr>) -> Share {
        Share {
            addresses: self.addresses.extract_if(.., |address| some.contains(address)).collect(),
            refused: self.refused.extract_if(.., |address, _| some.contains(address)).collect(),
        }
    }
}

/// Why a Service is not at an address.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Refusal {
    /// The port is kept for the node.
    Reserved(Port),
    /// A program of the node listens there.
    Listens(Port),
    /// The port leads to another Service, at all addresses.
    NodePort(Port, Name),
    /// Others forward the port to another Service.
    External(Port, Name),
    /// Another Service has the port.
    Taken(Port, Name),
}

/// Who asks for what at one node, and who gets it.
#[derive(Debug)]
pub struct Claims {
    policy: Policy,
    here: Here,
    /// What one gets who does not say where it wants to be reached.
    usual: BTreeSet<IpAddr>,
    asked: BTreeMap<Name, Claim>,
    /// Who asks for a port of an address: mostly one.
    askers: HashMap<(IpAddr, Port), Vec<Name>>,
    /// Whom a port leads to whatever else is: mostly one.
    leads: HashMap<Lead, BTreeSet<Name>>,
    /// Who is refused since a port leads to another, by each port that it wants.
    shut_out: HashMap<Port, BTreeSet<Name>>,
    shares: HashMap<Name, Share>,
}

impl Claims {
    /// Nobody asks for anything.
    pub fn new(policy: Policy, here: Here) -> Self {
        let usual = usual(&policy.selection, &here);
        Claims {
            policy,
            here,
            usual,
            asked: BTreeMap::new(),
            askers: HashMap::new(),
            leads: HashMap::new(),
            shut_out: HashMap::new(),
            shares: HashMap::new(),
        }
    }

    /// What the node has.
    pub fn here(&self) -> &Here {
        &self.here
    }

    /// What somebody gets.
    pub fn share(&self, name: &str) -> Option<&Share> {
        self.shares.get(name)
    }

    /// Whom a port of an address leads to, or of all addresses: who gets it here, or to whom others forward it.
    pub fn owner(&self, at: Option<IpAddr>, port: Port) -> Option<&Name> {
        let has = |address: IpAddr| {
            let gets = |asker: &&Name| {
                self.shares.get(*asker).is_some_and(|share| share.addresses.contains(&address))
            };
            self.askers.get(&(address, port))?.iter().find(gets)
        };
        let leads = |at: Option<IpAddr>| self.leads.get(&(at, port))?.first();
        at.and_then(has).or_else(|| leads(at)).or_else(|| leads(None))
    }

    /// Who asks for anything.
    pub fn names(&self) -> impl Iterator<Item = &Name> {
        self.asked.keys()
    }

    /// Somebody asks for something else, or for nothing any more: whose share is another now. How long it takes does not
    /// depend on how many others there are, only on how many are at odds with it.
    pub fn set(&mut self, name: &Name, claim: Option<Claim>) -> BTreeSet<Name> {
        if self.asked.get(name) == claim.as_ref() {
            return BTreeSet::new();
        }
        let concerned = self.set_leads(name, claim.as_ref());
        let before: BTreeMap<Name, Option<Share>> =
            concerned.iter().map(|other| (Arc::clone(other), self.shares.get(other).cloned())).collect();
        let mut changed = self.enter_anew(name, claim);
        for other in concerned {
            let claim = self.asked.get(&other).cloned();
            changed.extend(self.enter_anew(&other, claim));
        }
        // What came back to what it was is as it was.
        changed
            .retain(|other| before.get(other).is_none_or(|before| before.as_ref() != self.shares.get(other)));
        changed
    }

    /// What somebody asks for who asked before, and of whom nobody says any more what it has: what it had and still gets is its own
    /// all the same.
    #[must_use]
    pub fn kept(&self, name: &str, claim: Claim) -> Claim {
        let (Some(before), Some(share)) = (self.asked.get(name), self.shares.get(name)) else { return claim };
        if !claim.held.is_empty() {
            return claim;
        }
        let held = before.held.iter().filter(|(address, _)| share.addresses.contains(address));
        // All that it had, and not what it asks for from now on.
        let with_ports = |(address, ports): &(IpAddr, Option<Vec<Port>>)| {
            let all = || before.ports.iter().copied().collect();
            (*address, Some(ports.clone().unwrap_or_else(all)))
        };
        Claim { held: held.map(with_ports).collect(), ..claim }
    }

    /// Other ports lead to somebody: who else is concerned, as one who wants such a port.
    fn set_leads(&mut self, name: &Name, claim: Option<&Claim>) -> BTreeSet<Name> {
        let old = self.asked.get(name).map(Claim::leads).unwrap_or_default();
        let new = claim.map(Claim::leads).unwrap_or_default();
        let mut concerned = BTreeSet::new();
        for lead in old.difference(&new) {
            if let Some(owners) = self.leads.get_mut(lead) {
                owners.remove(name);
                if owners.is_empty() {
                    self.leads.remove(lead);
                }
            }
            concerned.extend(self.shut_out.get(&lead.1).into_iter().flatten().cloned());
        }
        for lead in new.difference(&old) {
            self.leads.entry(*lead).or_default().insert(Arc::clone(name));
            let (at, port) = *lead;
            let all = self.here.interfaces.iter().flat_map(|interface| interface.addresses.iter().copied());
            let all = all.filter(|address| at.is_none_or(|at| at == *address));
            let askers = all.filter_map(|address| self.askers.get(&(address, port)));
            concerned.extend(askers.flatten().cloned());
            concerned.extend(self.shut_out.get(&port).into_iter().flatten().cloned());
        }
        concerned.remove(name);
        concerned
    }

    /// Takes out what somebody asked for, and enters what it asks for now.
    fn enter_anew(&mut self, name: &Name, claim: Option<Claim>) -> BTreeSet<Name> {
        for port in self.asked.get(name).into_iter().flat_map(|claim| &claim.ports) {
            if let Some(all) = self.shut_out.get_mut(port) {
                all.remove(name);
                if all.is_empty() {
                    self.shut_out.remove(port);
                }
            }
        }
        let mut addresses = BTreeMap::new();
        for place in self.places(name) {
            if let Some(askers) = self.askers.get_mut(&place) {
                askers.retain(|asker| asker != name);
                addresses.entry(place.0).or_insert_with(BTreeSet::new).extend(askers.iter().cloned());
                if askers.is_empty() {
                    self.askers.remove(&place);
                }
            }
        }
        let before = self.shares.remove(name);
        match claim {
            Some(claim) => {
                self.asked.insert(Arc::clone(name), claim);
                for address in self.enter(name, None) {
                    addresses.entry(address).or_default().insert(Arc::clone(name));
                }
            }
            None => drop(self.asked.remove(name)),
        }
        let mut changed = BTreeSet::new();
        for (address, seeds) in addresses {
            self.settle(address, seeds, &mut changed);
        }
        changed.remove(name);
        if self.shares.get(name) != before.as_ref() {
            changed.insert(Arc::clone(name));
        }
        changed
    }

    /// The node has something else: whose share is another now. Only who is at an address that differs is decided anew, and only
    /// there.
    pub fn move_to(&mut self, here: Here) -> BTreeSet<Name> {
        if self.here == here {
            return BTreeSet::new();
        }
        let differing = here.differing(&self.here);
        self.usual = usual(&self.policy.selection, &here);
        self.here = here;
        if differing.is_empty() {
            return BTreeSet::new();
        }
        self.askers.retain(|(address, _), _| !differing.contains(address));
        let names: Vec<Name> = self.asked.keys().cloned().collect();
        let mut before = Vec::with_capacity(names.len());
        let mut addresses: BTreeMap<IpAddr, BTreeSet<Name>> = BTreeMap::new();
        for name in &names {
            before.push(self.shares.entry(Arc::clone(name)).or_default().split_off(&differing));
            for address in self.enter(name, Some(&differing)) {
                addresses.entry(address).or_default().insert(Arc::clone(name));
            }
        }
        for (address, all) in addresses {
            self.settle(address, all, &mut BTreeSet::new());
        }
        let is_another = |(name, before): &(Name, Share)| {
            self.shares.get(name).is_none_or(|now| !now.has_at(&differing, before))
        };
        names.into_iter().zip(before).filter(is_another).map(|(name, _)| name).collect()
    }

    /// What somebody asks for by a name or an address that this node does not have.
    pub fn missing(&self, name: &str) -> Vec<(Entry, NotHere)> {
        let entries = self.asked.get(name).and_then(|claim| claim.at.as_deref()).unwrap_or_default();
        self.policy.selection.check(entries, &self.here.interfaces)
    }

    /// The addresses that somebody asks for and that this node has.
    fn candidates(&self, claim: &Claim) -> BTreeSet<IpAddr> {
        let is_of_family = |address: &IpAddr| claim.families.contains(&Family::of(*address));
        match &claim.at {
            Some(entries) => {
                let mut all = self.policy.selection.chosen(entries, &self.here.interfaces);
                all.retain(is_of_family);
                all
            }
            None => self.usual.iter().copied().filter(is_of_family).collect(),
        }
    }

    /// Enters somebody's claim, at some addresses or at all: what the node needs itself is refused at once, the rest is asked for.
    /// Where it is asked for.
    fn enter(&mut self, name: &Name, only: Option<&BTreeSet<IpAddr>>) -> Vec<IpAddr> {
        let Some(claim) = self.asked.get(name) else { return Vec::new() };
        let mut share = self.shares.remove(name).unwrap_or_default();
        let mut entered = Vec::new();
        let mut candidates = self.candidates(claim);
        candidates.retain(|address| only.is_none_or(|only| only.contains(address)));
        for address in candidates {
            if let Some(refusal) = self.needed_here(name, claim, address) {
                if matches!(refusal, Refusal::NodePort(..) | Refusal::External(..)) {
                    // Another of its ports may lead elsewhere, too, and is named then.
                    for port in &claim.ports {
                        self.shut_out.entry(*port).or_default().insert(Arc::clone(name));
                    }
                }
                share.refused.insert(address, refusal);
                continue;
            }
            for port in &claim.ports {
                self.askers
                    .entry((address, *port))
                    .or_insert_with(|| Vec::with_capacity(1))
                    .push(Arc::clone(name));
            }
            share.addresses.insert(address);
            entered.push(address);
        }
        self.shares.insert(Arc::clone(name), share);
        entered
    }

    /// Whether the node itself needs a port at an address, or it leads elsewhere whatever is done. Who has one keeps it when a
    /// program comes to listen there, or somebody gets it as a node port: they would not hear anything.
    fn needed_here(&self, name: &Name, claim: &Claim, address: IpAddr) -> Option<Refusal> {
        let reserved = claim.ports.iter().find(|port| self.policy.reserved.contains(&port.number));
        if let Some(port) = reserved {
            return Some(Refusal::Reserved(*port));
        }
        let listens = |port: &&Port| {
            let mut at = [None, Some(address)].into_iter();
            !claim.holds(address, **port)
                && at.any(|at| self.here.listening.contains(&Listening { port: **port, address: at }))
        };
        if let Some(port) = claim.ports.iter().find(listens) {
            return Some(Refusal::Listens(*port));
        }
        claim.ports.iter().filter(|port| !claim.holds(address, **port)).find_map(|port| {
            let other = |at: Option<IpAddr>| {
                self.leads.get(&(at, *port))?.iter().find(|owner| *owner != name).cloned()
            };
            let node_port = other(None).map(|owner| Refusal::NodePort(*port, owner));
            node_port.or_else(|| Some(Refusal::External(*port, other(Some(address))?)))
        })
    }

    /// Where somebody's claim is entered.
    fn places(&self, name: &Name) -> Vec<(IpAddr, Port)> {
        let (Some(claim), Some(share)) = (self.asked.get(name), self.shares.get(name)) else {
            return Vec::new();
        };
        let entered = |address: &IpAddr| {
            !matches!(
                share.refused.get(address),
                Some(
                    Refusal::Reserved(_)
                        | Refusal::Listens(_)
                        | Refusal::NodePort(..)
                        | Refusal::External(..)
                )
            )
        };
        let addresses = share.addresses.iter().chain(share.refused.keys());
        let addresses = addresses.copied().filter(entered);
        addresses.flat_map(|address| claim.ports.iter().map(move |port| (address, *port))).collect()
    }

    /// Decides anew who is at an address, among these and all who are at odds with them, directly or through others.
    fn settle(&mut self, address: IpAddr, seeds: BTreeSet<Name>, changed: &mut BTreeSet<Name>) {
        let mut all = seeds.clone();
        let mut unseen: Vec<Name> = seeds.into_iter().collect();
        while let Some(name) = unseen.pop() {
            let Some(claim) = self.asked.get(&name) else { continue };
            for port in &claim.ports {
                for other in self.askers.get(&(address, *port)).into_iter().flatten() {
                    if all.insert(Arc::clone(other)) {
                        unseen.push(Arc::clone(other));
                    }
                }
            }
        }
        let mut order: Vec<(u8, i64, Name)> = Vec::with_capacity(all.len());
        for name in all {
            if let Some(claim) = self.asked.get(&name) {
                order.push((claim.rank(address), claim.created, name));
            }
        }
        order.sort_unstable();
        let mut taken: HashMap<Port, Name> = HashMap::new();
        for (_, _, name) in order {
            let Some(claim) = self.asked.get(&name) else { continue };
            let in_the_way = claim.ports.iter().find_map(|port| Some((*port, taken.get(port)?.clone())));
            let refusal = in_the_way.map(|(port, by)| Refusal::Taken(port, by));
            if refusal.is_none() {
                taken.extend(claim.ports.iter().map(|port| (*port, Arc::clone(&name))));
            }
            let share = self.shares.entry(Arc::clone(&name)).or_default();
            let differs = match refusal {
                Some(refusal) => {
                    let had = share.addresses.remove(&address);
                    share.refused.insert(address, refusal.clone()) != Some(refusal) || had
                }
                None => share.refused.remove(&address).is_some() | share.addresses.insert(address),
            };
            if differs {
                changed.insert(name);
            }
        }
    }
}

/// The host's own addresses, which are those of its interfaces and of the API server, wherever that is here.
fn usual(selection: &Selection, here: &Here) -> BTreeSet<IpAddr> {
    let also: Vec<Entry> = here.also.iter().copied().map(Entry::Address).collect();
    &selection.external(&here.interfaces) | &selection.chosen(&also, &here.interfaces)
}
