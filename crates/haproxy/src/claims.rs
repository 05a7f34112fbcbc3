//! Which load balancers, and which of their listeners, this machine's HAProxy gets.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use portcullis_core::{Family, Listener, ListenerProtocol, Problem};

use crate::names;
use crate::wanted::{Balancer, BalancerId, Wanted};

/// What a load balancer gets.
#[derive(Debug)]
pub(crate) struct Claim<'a> {
    pub(crate) balancer: &'a Balancer,
    /// Its name in the file; `None` where it has none.
    pub(crate) name: Option<String>,
    /// The listeners that are to be there.
    pub(crate) placed: Vec<Placed<'a>>,
    /// What is in the way of the others.
    pub(crate) problem: Option<Problem>,
}

/// A listener and where it listens.
#[derive(Debug)]
pub(crate) struct Placed<'a> {
    pub(crate) name: String,
    pub(crate) listener: &'a Listener,
    pub(crate) sockets: Vec<SocketAddr>,
}

/// Who gets what. `listening` is what HAProxy has now, by the name of the proxy; `taken` is what other programs have.
///
/// A load balancer of which a listener cannot be is not there at all, unless others of its listeners are already: those
/// that use them are not disturbed by one that was added in vain.
pub(crate) fn claims<'a>(
    wanted: &'a Wanted,
    machine: &BTreeSet<Family>,
    listening: &BTreeMap<String, BTreeSet<SocketAddr>>,
    taken: &BTreeMap<SocketAddr, String>,
) -> Vec<Claim<'a>> {
    let mut places = Places::default();
    let mut known = BTreeSet::new();
    let mut all = Vec::with_capacity(wanted.balancers.len());
    for balancer in &wanted.balancers {
        let id = &balancer.id;
        let refused = |problem| Claim { balancer, name: None, placed: Vec::new(), problem: Some(problem) };
        let Some(name) = names::balancer(id) else {
            all.push(refused(unnamed(id)));
            continue;
        };
        if !known.insert(id) {
            all.push(refused(doubled(id)));
            continue;
        }
        let (mut placed, mut problem) = (Vec::new(), None);
        for listener in balancer.load_balancer.listeners() {
            let sockets = sockets(balancer, listener, machine);
            match obstacle(id, listener, &sockets, &places, taken) {
                Some(found) => problem = problem.or(Some(found)),
                None => placed.push(Placed { name: names::proxy(&name, listener), listener, sockets }),
            }
        }
        if problem.is_some() {
            // Those that are there may stay.
            let is_there = placed.iter().any(|one| listening.contains_key(&one.name));
            placed.retain(|_| is_there);
        }
        for one in &placed {
            places.take(id, &one.sockets);
        }
        all.push(Claim { balancer, name: Some(name), placed, problem });
    }
    all
}

/// Where a listener listens.
fn sockets(balancer: &Balancer, listener: &Listener, machine: &BTreeSet<Family>) -> Vec<SocketAddr> {
    let of = &balancer.load_balancer;
    let everywhere = |family: &Family| match family {
        Family::V4 => IpAddr::from(Ipv4Addr::UNSPECIFIED),
        Family::V6 => Ipv6Addr::UNSPECIFIED.into(),
    };
    let addresses: Vec<IpAddr> = match of.addresses() {
        [] => of.families().intersection(machine).map(everywhere).collect(),
        given => given.iter().copied().filter(|address| machine.contains(&Family::of(*address))).collect(),
    };
    addresses.into_iter().map(|address| SocketAddr::new(address, listener.port())).collect()
}

/// Who was here before.
#[derive(Default)]
struct Places<'a> {
    by_port: BTreeMap<u16, Vec<(IpAddr, &'a BalancerId)>>,
}

impl<'a> Places<'a> {
    fn take(&mut self, id: &'a BalancerId, sockets: &[SocketAddr]) {
        for socket in sockets {
            self.by_port.entry(socket.port()).or_default().push((socket.ip(), id));
        }
    }

    /// Who has a place. HAProxy would share it with them in silence, and the kernel would draw who gets a connection.
    fn holder(&self, socket: &SocketAddr) -> Option<&'a BalancerId> {
        let holders = self.by_port.get(&socket.port())?;
        let at_odds = |held: IpAddr| {
            Family::of(held) == Family::of(socket.ip())
                && (held == socket.ip() || held.is_unspecified() || socket.ip().is_unspecified())
        };
        holders.iter().find(|(held, _)| at_odds(*held)).map(|(_, id)| *id)
    }
}

/// What is in a listener's way.
fn obstacle(
    id: &BalancerId,
    listener: &Listener,
    sockets: &[SocketAddr],
    places: &Places<'_>,
    taken: &BTreeMap<SocketAddr, String>,
) -> Option<Problem> {
    let state = "It does not listen there; other load balancers are not affected.";
    if listener.protocol() != ListenerProtocol::Tcp {
        return Some(Problem::new(
            format!("Load balancer {id}: HAProxy does not carry the listener {listener}."),
            "It carries TCP here, and passes TLS on as it is. The listener is left out.",
            "Make it a tcp listener, or use a provider that carries it.",
        ));
    }
    if sockets.is_empty() {
        return Some(Problem::new(
            format!("Load balancer {id}: this machine has no address family that it asks for."),
            state,
            "Give it a family or an address that the machine has.",
        ));
    }
    for socket in sockets {
        if let Some(other) = places.holder(socket) {
            return Some(Problem::new(
                format!("Load balancer {id}: {socket} belongs to load balancer {other}, which comes first."),
                state,
                "Use another port or address for one of them.",
            ));
        }
        if let Some(holder) = taken.get(socket) {
            return Some(Problem::new(
                format!("Load balancer {id}: {holder} listens on {socket}."),
                format!("{state} It is tried again."),
                "Stop that program or have it listen elsewhere, or use another port or address.",
            ));
        }
    }
    None
}

fn unnamed(id: &BalancerId) -> Problem {
    Problem::new(
        format!("Load balancer {id}: its name is empty or too long for HAProxy."),
        "It is left out.",
        "Namespace and name have to have fewer than 240 characters, where one that is not a letter, a digit, `-` or `.` counts as three.",
    )
}

fn doubled(id: &BalancerId) -> Problem {
    Problem::new(
        format!("Load balancer {id}: there are two of this name."),
        "The first counts.",
        "Remove or rename one.",
    )
}
