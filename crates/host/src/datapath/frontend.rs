use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use portcullis_core::{Admission, Family, Owner, Protocol};
use thiserror::Error;

/// Where a frontend is reached: an address, a protocol and a port. No two frontends have the same.
///
/// The unspecified address (`0.0.0.0`, `::`) stands for every address of the node, as it does when a program listens:
/// that is a node port. A frontend at an address comes before one at all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    address: IpAddr,
    protocol: Protocol,
    port: u16,
}

/// What connects to a place, and where its connections go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frontend {
    place: Place,
    owner: Owner,
    admission: Admission,
    ready: Vec<SocketAddr>,
    terminating: Vec<SocketAddr>,
    client_address: ClientAddress,
    affinity: Option<u32>,
}

/// What an endpoint sees as the address of its client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientAddress {
    /// The client's own (`externalTrafficPolicy: Local`): answers have to come back through this node by themselves.
    Kept,
    /// One of this node (`externalTrafficPolicy: Cluster`): endpoints may be anywhere.
    Masqueraded,
}

/// Why a frontend cannot be.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum FrontendError {
    /// Only some protocols have ports, and not all of those can be translated.
    #[error("{0} cannot be forwarded: only tcp, udp and sctp can")]
    Protocol(Protocol),
    /// Zero is no port.
    #[error("port 0 names no port: give one from 1 to 65535")]
    Port,
    /// An address that no single machine has.
    #[error("{0} is not the address of one machine")]
    Address(IpAddr),
    /// Addresses are translated within a family.
    #[error("{place} cannot be forwarded to {endpoint}: both have to be IPv4, or both IPv6")]
    Family {
        /// The frontend.
        place: Place,
        /// The endpoint.
        endpoint: SocketAddr,
    },
    /// The kernel has seconds, and none is no time.
    #[error("session affinity lasts from one second to a day, not {}", seconds(*.0))]
    Affinity(Duration),
}

impl Place {
    /// A place at one address, or at every address of the node.
    pub fn new(address: IpAddr, protocol: Protocol, port: u16) -> Result<Self, FrontendError> {
        let address = address.to_canonical();
        if ![Protocol::TCP, Protocol::UDP, Protocol::SCTP].contains(&protocol) {
            return Err(FrontendError::Protocol(protocol));
        }
        if port == 0 {
            return Err(FrontendError::Port);
        }
        if !address.is_unspecified() {
            check_address(address)?;
        }
        Ok(Self { address, protocol, port })
    }

    /// The address; the unspecified one for every address of the node.
    pub fn address(&self) -> IpAddr {
        self.address
    }

    /// The protocol.
    pub fn protocol(&self) -> Protocol {
        self.protocol
    }

    /// The port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The family of the address.
    pub fn family(&self) -> Family {
        Family::of(self.address)
    }

    /// The same protocol and port at every address of the node.
    #[must_use]
    pub fn at_node(&self) -> Self {
        let address = match self.address {
            IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        Self { address, ..*self }
    }

    /// Whether it is at every address of the node.
    pub fn is_node_port(&self) -> bool {
        self.address.is_unspecified()
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{}/{}", SocketAddr::new(self.address, self.port), self.protocol.name()))
    }
}

impl Frontend {
    /// A frontend that sends what is admitted to these endpoints, with an address of this node as the client's. Without
    /// endpoints it refuses.
    pub fn new(
        place: Place,
        owner: Owner,
        admission: Admission,
        ready: impl IntoIterator<Item = SocketAddr>,
    ) -> Result<Self, FrontendError> {
        let ready = endpoints(place, ready)?;
        Ok(Self {
            place,
            owner,
            admission,
            ready,
            terminating: Vec::new(),
            client_address: ClientAddress::Masqueraded,
            affinity: None,
        })
    }

    /// With endpoints that are on their way out, which get new connections only while there is no other.
    pub fn with_terminating(
        self,
        terminating: impl IntoIterator<Item = SocketAddr>,
    ) -> Result<Self, FrontendError> {
        Ok(Self { terminating: endpoints(self.place, terminating)?, ..self })
    }

    /// With this address of the client for endpoints to see.
    #[must_use]
    pub fn with_client_address(self, client_address: ClientAddress) -> Self {
        Self { client_address, ..self }
    }

    /// A client that comes back within this time gets the endpoint it had.
    pub fn with_affinity(self, timeout: Duration) -> Result<Self, FrontendError> {
        let seconds = u32::try_from(timeout.as_secs()).unwrap_or(u32::MAX);
        if !(1..=86_400).contains(&seconds) {
            return Err(FrontendError::Affinity(timeout));
        }
        Ok(Self { affinity: Some(seconds), ..self })
    }

    /// Where it is reached.
    pub fn place(&self) -> Place {
        self.place
    }

    /// Whose it is.
    pub fn owner(&self) -> &Owner {
        &self.owner
    }

    /// Who may connect.
    pub fn admission(&self) -> &Admission {
        &self.admission
    }

    /// What endpoints see as the address of a client.
    pub fn client_address(&self) -> ClientAddress {
        self.client_address
    }

    /// For how many seconds a client keeps its endpoint.
    pub fn affinity(&self) -> Option<u32> {
        self.affinity
    }

    /// Where new connections go: to those that are ready, and to those that are on their way out while none is.
    pub fn chosen(&self) -> &[SocketAddr] {
        if self.ready.is_empty() { &self.terminating } else { &self.ready }
    }

    /// All of them: connections to these may go on.
    pub fn endpoints(&self) -> impl Iterator<Item = &SocketAddr> {
        self.ready.iter().chain(&self.terminating)
    }

    /// Whether connections to this endpoint may go on.
    pub fn has(&self, endpoint: SocketAddr) -> bool {
        self.endpoints().any(|one| *one == endpoint)
    }
}

/// In order and each once: the order in which somebody else lists them must not make a difference.
fn endpoints(
    place: Place,
    endpoints: impl IntoIterator<Item = SocketAddr>,
) -> Result<Vec<SocketAddr>, FrontendError> {
    let checked = endpoints.into_iter().map(|endpoint| {
        let endpoint = SocketAddr::new(endpoint.ip().to_canonical(), endpoint.port());
        check_address(endpoint.ip())?;
        if endpoint.port() == 0 {
            return Err(FrontendError::Port);
        }
        if Family::of(endpoint.ip()) != place.family() {
            return Err(FrontendError::Family { place, endpoint });
        }
        Ok(endpoint)
    });
    let mut endpoints = checked.collect::<Result<Vec<_>, _>>()?;
    endpoints.sort_unstable();
    endpoints.dedup();
    Ok(endpoints)
}

fn check_address(address: IpAddr) -> Result<(), FrontendError> {
    let broadcast = matches!(address, IpAddr::V4(address) if address.is_broadcast());
    if address.is_unspecified() || address.is_multicast() || broadcast {
        return Err(FrontendError::Address(address));
    }
    Ok(())
}

fn seconds(duration: Duration) -> String {
    format!("{} s", duration.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use portcullis_core::{EmptyMeans, SourceRanges};

    use super::*;

    fn place(address: &str) -> Place {
        Place::new(address.parse().unwrap(), Protocol::TCP, 80).unwrap()
    }

    fn frontend(place: Place, ready: &[&str]) -> Result<Frontend, FrontendError> {
        let owner = Owner::new("c", "Service", Some("shop".into()), "web").unwrap();
        let everyone = Admission { ranges: SourceRanges::absent(), empty_means: EmptyMeans::Everyone };
        Frontend::new(place, owner, everyone, ready.iter().map(|endpoint| endpoint.parse().unwrap()))
    }

    #[test]
    fn what_cannot_be_is_refused_with_a_reason() {
        let at = |address: &str, protocol, port| {
            Place::new(address.parse().unwrap(), protocol, port).unwrap_err().to_string()
        };
        assert_eq!(
            at("192.0.2.1", Protocol::ICMP, 80),
            "icmp cannot be forwarded: only tcp, udp and sctp can"
        );
        assert_eq!(at("192.0.2.1", Protocol::TCP, 0), "port 0 names no port: give one from 1 to 65535");
        assert_eq!(at("224.0.0.1", Protocol::TCP, 80), "224.0.0.1 is not the address of one machine");
        let refused = |ready: &str| frontend(place("192.0.2.1"), &[ready]).unwrap_err().to_string();
        assert_eq!(refused("0.0.0.0:80"), "0.0.0.0 is not the address of one machine");
        assert_eq!(
            refused("[2001:db8::1]:80"),
            "192.0.2.1:80/tcp cannot be forwarded to [2001:db8::1]:80: both have to be IPv4, or both IPv6"
        );
        let affinity =
            |seconds| frontend(place("192.0.2.1"), &[]).unwrap().with_affinity(Duration::from_secs(seconds));
        assert!(affinity(10_800).is_ok());
        assert_eq!(
            affinity(0).unwrap_err().to_string(),
            "session affinity lasts from one second to a day, not 0 s"
        );
    }

    #[test]
    fn the_order_and_the_spelling_of_endpoints_make_no_difference() {
        let one = frontend(place("192.0.2.1"), &["10.0.0.2:80", "10.0.0.1:80", "10.0.0.2:80"]).unwrap();
        let other = frontend(place("::ffff:192.0.2.1"), &["[::ffff:10.0.0.1]:80", "10.0.0.2:80"]).unwrap();
        assert_eq!(one, other);
    }

    #[test]
    fn those_on_their_way_out_are_the_last_resort() {
        let leaving = ["10.0.0.9:80".parse().unwrap()];
        let none_ready = frontend(place("192.0.2.1"), &[]).unwrap().with_terminating(leaving).unwrap();
        assert_eq!(none_ready.chosen(), leaving);
        let one_ready =
            frontend(place("192.0.2.1"), &["10.0.0.1:80"]).unwrap().with_terminating(leaving).unwrap();
        assert_eq!(one_ready.chosen(), ["10.0.0.1:80".parse().unwrap()]);
        assert!(one_ready.has(leaving[0]));
    }
}
