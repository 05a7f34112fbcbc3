//! Which load balancers, and which of their listeners, this machine's HAProxy gets.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use portcullis_core::{Family, Listener, ListenerProtocol, Problem};

use crate::names;
use crate::wanted::{Balancer, BalancerId, Wanted};

/// A line of HAProxy's file has room for 2048 bytes; a quote takes four.
const LONGEST_PATH: usize = 480;

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
    let path = listener.health_check().and_then(|check| check.probe().path());
    if path.is_some_and(|path| path.len() > LONGEST_PATH) {
        return Some(Problem::new(
            format!("Load balancer {id}: the path of the check of {listener} is too long for HAProxy."),
            "The listener is left out.",
            format!("Give a path of at most {LONGEST_PATH} bytes."),
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

#[cfg(test)]
mod tests {
    use portcullis_core::{Admission, EmptyMeans, LoadBalancer, Scheme, SourceRanges};

    use super::*;
    use crate::wanted::Options;

    fn balancer(name: &str, addresses: &[&str], ports: &[u16]) -> Balancer {
        let listener = |port: &u16| Listener::new(*port, ListenerProtocol::Tcp, 80).unwrap();
        let admission = Admission { ranges: SourceRanges::absent(), empty_means: EmptyMeans::Nobody };
        let listeners = ports.iter().map(listener).collect();
        let addresses = addresses.iter().map(|address| address.parse().unwrap()).collect();
        let load_balancer = LoadBalancer::new(name, Scheme::Internal, Family::ALL, listeners, admission)
            .and_then(|balancer| balancer.with_addresses(addresses))
            .unwrap();
        Balancer { id: BalancerId::new("shop", name), load_balancer, options: Options::default() }
    }

    /// The ports that each gets, and what is in the way.
    fn outcome(
        balancers: Vec<Balancer>,
        families: &[Family],
        listening: &[&str],
        taken: &[&str],
    ) -> Vec<(Vec<u16>, Option<String>)> {
        let wanted = Wanted { balancers, ..Wanted::default() };
        let listening = listening.iter().map(|name| ((*name).to_owned(), BTreeSet::new())).collect();
        let taken = taken.iter().map(|place| (place.parse().unwrap(), "nginx".to_owned())).collect();
        claims(&wanted, &families.iter().copied().collect(), &listening, &taken)
            .into_iter()
            .map(|claim| {
                let ports = claim.placed.iter().map(|placed| placed.listener.port()).collect();
                (ports, claim.problem.map(|problem| problem.what))
            })
            .collect()
    }

    #[test]
    fn who_comes_first_has_a_place() {
        const ALL: &[&str] = &[];
        for (first, second, odds) in [
            (&["192.0.2.1"][..], &["192.0.2.2"][..], None),
            (&["192.0.2.1"], &["192.0.2.1"], Some("192.0.2.1:80")),
            (&["192.0.2.1", "2001:db8::1"], &["192.0.2.2", "2001:db8::1"], Some("[2001:db8::1]:80")),
            (ALL, &["192.0.2.1"], Some("192.0.2.1:80")),
            (&["2001:db8::1"], ALL, Some("[::]:80")),
            (&["192.0.2.1"], &["2001:db8::1"], None),
        ] {
            let found = outcome(
                vec![balancer("first", first, &[80]), balancer("second", second, &[80])],
                &Family::ALL,
                &[],
                &[],
            );
            let problem = odds.map(|place| {
                format!("Load balancer shop/second: {place} belongs to load balancer shop/first, which comes first.")
            });
            let ports = if odds.is_some() { vec![] } else { vec![80] };
            assert_eq!(found, [(vec![80], None), (ports, problem)], "{first:?} {second:?}");
        }
    }

    #[test]
    fn one_listener_in_vain_takes_all_others_along_unless_they_are_there() {
        let problem = Some("Load balancer shop/web: nginx listens on 0.0.0.0:81.".to_owned());
        let web = || vec![balancer("web", &[], &[80, 81, 82])];
        let taken = ["0.0.0.0:81"];
        assert_eq!(outcome(web(), &Family::ALL, &[], &taken), [(vec![], problem.clone())]);
        assert_eq!(outcome(web(), &Family::ALL, &["shop:web:80"], &taken), [(vec![80, 82], problem)]);
        // What is not there is in nobody's way.
        let both = vec![balancer("web", &[], &[80, 81]), balancer("other", &[], &[80])];
        assert_eq!(outcome(both, &Family::ALL, &[], &taken)[1], (vec![80], None));
    }

    #[test]
    fn a_machine_without_a_family_does_without() {
        let found =
            |addresses: &[&str]| outcome(vec![balancer("web", addresses, &[80])], &[Family::V4], &[], &[]);
        assert_eq!(found(&[]), [(vec![80], None)]);
        assert_eq!(found(&["192.0.2.1", "2001:db8::1"]), [(vec![80], None)]);
        let problem =
            "Load balancer shop/web: this machine has no address family that it asks for.".to_owned();
        assert_eq!(found(&["2001:db8::1"]), [(vec![], Some(problem))]);
    }

    #[test]
    fn of_two_with_one_name_the_first_counts() {
        let found =
            outcome(vec![balancer("web", &[], &[80]), balancer("web", &[], &[81])], &Family::ALL, &[], &[]);
        assert_eq!(found[0], (vec![80], None));
        assert_eq!(
            found[1],
            (vec![], Some("Load balancer shop/web: there are two of this name.".to_owned()))
        );
    }
}
