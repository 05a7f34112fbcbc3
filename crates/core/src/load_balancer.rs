use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::addresses::unicast;
use crate::text::{is_name, quoted};
use crate::{
    Admission, Direction, Family, Listener, Member, NotUnicast, PortRange, Protocol, Reach, Rule, Traffic,
    normalise,
};

/// From where a load balancer can be reached at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scheme {
    /// From the internet.
    InternetFacing,
    /// From the networks it is connected to.
    Internal,
}

impl fmt::Display for Scheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::InternetFacing => "internet-facing",
            Self::Internal => "internal",
        })
    }
}

/// A load balancer as it should be: where it listens, who may connect, who gets the traffic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadBalancer {
    name: String,
    scheme: Scheme,
    families: BTreeSet<Family>,
    addresses: Vec<IpAddr>,
    listeners: Vec<Listener>,
    members: Arc<[Member]>,
    admission: Admission,
    drain_deadline: Duration,
}

/// Why a load balancer cannot be.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum LoadBalancerError {
    /// The name cannot stand for a load balancer.
    #[error(
        "{} is not the name of a load balancer: it is empty, has spaces around it or control or invisible characters in it",
        quoted(.0)
    )]
    Name(String),
    /// It has no family.
    #[error("load balancer {0} has no address family: give IPv4, IPv6 or both")]
    NoFamily(String),
    /// It cannot be reached at one of its addresses.
    #[error("load balancer {name} has an address that nobody can connect to")]
    Address {
        /// The load balancer.
        name: String,
        /// The address, and why.
        source: NotUnicast,
    },
    /// One of its addresses is of a family it does not have.
    #[error("load balancer {name} cannot have the address {address}: it has no {}", Family::of(*address))]
    AddressOfOtherFamily {
        /// The load balancer.
        name: String,
        /// The address.
        address: IpAddr,
    },
    /// It listens nowhere.
    #[error("load balancer {0} has no listener: give it at least one port")]
    NoListener(String),
    /// Two listeners want the same packets.
    #[error("load balancer {name} has two listeners on {protocol} {port}: remove one")]
    SamePort {
        /// The load balancer.
        name: String,
        /// What both take.
        protocol: Protocol,
        /// Where both listen.
        port: u16,
    },
    /// Two members have one name.
    #[error("load balancer {name} has two members called {member}: names tell members apart")]
    SameMember {
        /// The load balancer.
        name: String,
        /// The name of both.
        member: String,
    },
    /// Two members have one address.
    #[error("load balancer {name} has two members at {address}, {members}: each needs an address of its own", members = .members.join(" and "))]
    SameAddress {
        /// The load balancer.
        name: String,
        /// The address of both.
        address: IpAddr,
        /// Their names.
        members: [String; 2],
    },
}

impl LoadBalancer {
    /// How long connections of a leaving member are waited for unless told otherwise: as long as a network
    /// load balancer may go on sending new connections to a target that was taken out, and a little more.
    pub const DRAIN_DEADLINE: Duration = Duration::from_secs(150);

    /// A load balancer without members. Who may connect has no default: leaving it out would leave it open
    /// by accident.
    pub fn new(
        name: impl Into<String>,
        scheme: Scheme,
        families: impl IntoIterator<Item = Family>,
        listeners: Vec<Listener>,
        admission: Admission,
    ) -> Result<Self, LoadBalancerError> {
        let name = name.into();
        let families: BTreeSet<Family> = families.into_iter().collect();
        if !is_name(&name) {
            return Err(LoadBalancerError::Name(name));
        }
        if families.is_empty() {
            return Err(LoadBalancerError::NoFamily(name));
        }
        if listeners.is_empty() {
            return Err(LoadBalancerError::NoListener(name));
        }
        let mut taken = BTreeSet::new();
        for listener in &listeners {
            for &protocol in listener.protocol().transports() {
                if !taken.insert((protocol, listener.port())) {
                    return Err(LoadBalancerError::SamePort { name, protocol, port: listener.port() });
                }
            }
        }
        Ok(Self {
            name,
            scheme,
            families,
            addresses: Vec::new(),
            listeners,
            members: Arc::default(),
            admission,
            drain_deadline: Self::DRAIN_DEADLINE,
        })
    }

    /// The same load balancer on these addresses. Without any, the provider finds some.
    pub fn with_addresses(self, addresses: Vec<IpAddr>) -> Result<Self, LoadBalancerError> {
        let addresses = match unicast(addresses) {
            Ok(addresses) => addresses,
            Err(source) => return Err(LoadBalancerError::Address { name: self.name, source }),
        };
        if let Some(&address) = addresses.iter().find(|addr| !self.families.contains(&Family::of(**addr))) {
            return Err(LoadBalancerError::AddressOfOtherFamily { name: self.name, address });
        }
        Ok(Self { addresses, ..self })
    }

    /// The same load balancer with these members.
    pub fn with_members(self, members: impl Into<Arc<[Member]>>) -> Result<Self, LoadBalancerError> {
        let members = members.into();
        let mut names = BTreeSet::new();
        if let Some(double) = members.iter().find(|member| !names.insert(member.name())) {
            let member = double.name().to_owned();
            return Err(LoadBalancerError::SameMember { name: self.name, member });
        }
        let mut holders: BTreeMap<IpAddr, &str> = BTreeMap::new();
        for member in members.iter() {
            for &address in member.addresses() {
                if let Some(holder) = holders.insert(address, member.name()) {
                    let members = [holder, member.name()].map(str::to_owned);
                    return Err(LoadBalancerError::SameAddress { name: self.name, address, members });
                }
            }
        }
        Ok(Self { members, ..self })
    }

    /// The same load balancer with another time to wait for the connections of a leaving member.
    #[must_use]
    pub fn with_drain_deadline(self, drain_deadline: Duration) -> Self {
        Self { drain_deadline, ..self }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// From where it can be reached at all.
    pub fn scheme(&self) -> Scheme {
        self.scheme
    }

    /// The families it has addresses of; at least one.
    pub fn families(&self) -> &BTreeSet<Family> {
        &self.families
    }

    /// The addresses it should have, all of its families, none twice; empty where the provider finds some.
    pub fn addresses(&self) -> &[IpAddr] {
        &self.addresses
    }

    /// Where it listens; at least one, no two for the same packets.
    pub fn listeners(&self) -> &[Listener] {
        &self.listeners
    }

    /// Who gets the traffic; no two of one name or at one address.
    pub fn members(&self) -> &[Member] {
        &self.members
    }

    /// Who may connect.
    pub fn admission(&self) -> &Admission {
        &self.admission
    }

    /// How long the connections of a leaving member are waited for.
    pub fn drain_deadline(&self) -> Duration {
        self.drain_deadline
    }

    /// What has to be let in: each listener's port from each range that may connect. Normalised, so that a
    /// range given twice, or within another, makes no rule of its own.
    pub fn ingress_rules(&self) -> Vec<Rule> {
        let mut rules = Vec::new();
        for listener in &self.listeners {
            for &protocol in listener.protocol().transports() {
                let traffic = Traffic::ports(protocol, PortRange::single(listener.port()))
                    .expect("listeners are on protocols with ports");
                for &family in &self.families {
                    for peer in self.admission.peers(family) {
                        let rule = Rule::new(Direction::Ingress, family, traffic, peer);
                        rules.push(rule.expect("the peers of a family are of that family"));
                    }
                }
            }
        }
        normalise(rules)
    }

    /// Who may reach it.
    pub fn reach(&self) -> Reach {
        Reach::of(Direction::Ingress, &self.ingress_rules())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{EmptyMeans, ListenerProtocol, SourceRanges};

    fn listener(port: u16, protocol: ListenerProtocol) -> Listener {
        Listener::new(port, protocol, 30000 + port).unwrap()
    }

    fn web(listeners: Vec<Listener>, ranges: SourceRanges) -> Result<LoadBalancer, LoadBalancerError> {
        LoadBalancer::new("web", Scheme::Internal, Family::ALL, listeners, strict(ranges))
    }

    fn strict(ranges: SourceRanges) -> Admission {
        Admission { ranges, empty_means: EmptyMeans::Nobody }
    }

    fn ranges(list: &[&str]) -> SourceRanges {
        SourceRanges::listed(list.iter().map(|range| range.parse().unwrap()))
    }

    #[test]
    fn no_two_listeners_take_the_same_packets() {
        use ListenerProtocol::{Tcp, TcpUdp, Tls, Udp};
        for (one, other, clash) in [
            (Tcp, Udp, None),
            (Tls, Udp, None),
            (Tcp, Tcp, Some(Protocol::TCP)),
            (Tcp, Tls, Some(Protocol::TCP)),
            (TcpUdp, Tcp, Some(Protocol::TCP)),
            (TcpUdp, Udp, Some(Protocol::UDP)),
        ] {
            let result = web(vec![listener(53, one), listener(53, other)], SourceRanges::absent());
            let expected = clash.map(|protocol| LoadBalancerError::SamePort {
                name: "web".to_owned(),
                protocol,
                port: 53,
            });
            assert_eq!(result.err(), expected, "{one} {other}");
            assert!(web(vec![listener(53, one), listener(54, other)], SourceRanges::absent()).is_ok());
        }
    }

    #[test]
    fn refuses_what_could_not_be_reached() {
        let http = || vec![listener(80, ListenerProtocol::Tcp)];
        let new = |name: &str, families: &[Family], listeners| {
            let families = families.iter().copied();
            LoadBalancer::new(name, Scheme::Internal, families, listeners, strict(SourceRanges::absent()))
                .unwrap_err()
        };
        assert_eq!(new("", &Family::ALL, http()), LoadBalancerError::Name(String::new()));
        assert_eq!(new("web", &[], http()), LoadBalancerError::NoFamily("web".to_owned()));
        assert_eq!(new("web", &Family::ALL, vec![]), LoadBalancerError::NoListener("web".to_owned()));
    }

    #[test]
    fn members_have_names_and_addresses_of_their_own() {
        let at = |name: &str, address: &str| Member::new(name, [address.parse().unwrap()]).unwrap();
        let member = |name: &str| at(name, if name == "a" { "192.0.2.1" } else { "192.0.2.2" });
        let web = || web(vec![listener(80, ListenerProtocol::Tcp)], SourceRanges::absent()).unwrap();
        assert_eq!(web().with_members(vec![member("a"), member("b")]).unwrap().members().len(), 2);
        assert_eq!(
            web().with_members(vec![member("a"), member("b"), member("a")]).unwrap_err().to_string(),
            "load balancer web has two members called a: names tell members apart"
        );
        assert_eq!(
            web().with_members(vec![member("a"), at("c", "::ffff:192.0.2.1")]).unwrap_err().to_string(),
            "load balancer web has two members at 192.0.2.1, a and c: each needs an address of its own"
        );
    }

    #[test]
    fn rules_are_listeners_times_ranges() {
        let listeners = vec![listener(53, ListenerProtocol::TcpUdp), listener(443, ListenerProtocol::Tls)];
        let texts = |ranges| -> Vec<String> {
            let web = web(listeners.clone(), ranges).unwrap();
            web.ingress_rules().iter().map(Rule::to_string).collect()
        };
        assert_eq!(
            texts(ranges(&["10.0.0.5/8", "2001:db8::/32"])),
            [
                "in tcp 53 from 10.0.0.5/8",
                "in tcp 443 from 10.0.0.5/8",
                "in udp 53 from 10.0.0.5/8",
                "in tcp 53 from 2001:db8::/32",
                "in tcp 443 from 2001:db8::/32",
                "in udp 53 from 2001:db8::/32",
            ]
        );
        assert_eq!(
            texts(ranges(&["10.0.0.0/8", "10.0.0.1/8", "10.1.0.0/16"])),
            ["in tcp 53 from 10.0.0.0/8", "in tcp 443 from 10.0.0.0/8", "in udp 53 from 10.0.0.0/8"]
        );
        assert_eq!(texts(ranges(&[])), [""; 0]);
    }

    #[test]
    fn a_family_it_does_not_have_stays_closed() {
        let web = LoadBalancer::new(
            "web",
            Scheme::InternetFacing,
            [Family::V4],
            vec![listener(443, ListenerProtocol::Tcp)],
            strict(SourceRanges::absent()),
        );
        let web = web.unwrap();
        assert_eq!(web.reach().to_string(), "everyone over IPv4 on tcp 443");
        let on = |address: &str| web.clone().with_addresses(vec![address.parse().unwrap()]);
        assert_eq!(on("::ffff:192.0.2.10").unwrap().addresses(), on("192.0.2.10").unwrap().addresses());
        assert_eq!(
            on("0.0.0.0").unwrap_err().to_string(),
            "load balancer web has an address that nobody can connect to"
        );
        assert_eq!(
            on("2001:db8::10").unwrap_err().to_string(),
            "load balancer web cannot have the address 2001:db8::10: it has no IPv6"
        );
    }
}
