use std::fmt;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::{HealthCheck, Protocol};

/// What a listener speaks with its clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum ListenerProtocol {
    /// TCP, passed on as it is.
    #[serde(rename = "tcp")]
    Tcp,
    /// UDP.
    #[serde(rename = "udp")]
    Udp,
    /// TCP and UDP on the same port, as for DNS.
    #[serde(rename = "tcp+udp")]
    TcpUdp,
    /// TLS, ended by the load balancer.
    #[serde(rename = "tls")]
    Tls,
}

impl ListenerProtocol {
    /// What packets of it are, for rules and for the question who holds a port: TLS is TCP on the wire.
    pub fn transports(self) -> &'static [Protocol] {
        match self {
            Self::Tcp | Self::Tls => &[Protocol::TCP],
            Self::Udp => &[Protocol::UDP],
            Self::TcpUdp => &[Protocol::TCP, Protocol::UDP],
        }
    }
}

impl fmt::Display for ListenerProtocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
            Self::TcpUdp => "tcp+udp",
            Self::Tls => "tls",
        })
    }
}

/// A port of a load balancer and where its traffic goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listener {
    name: Option<String>,
    port: u16,
    protocol: ListenerProtocol,
    target_port: u16,
    health_check: Option<HealthCheck>,
}

/// Why a listener cannot be.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ListenerError {
    /// Listens on port 0.
    #[error("a listener cannot be on port 0: give a port from 1 to 65535")]
    PortZero,
    /// Sends to port 0.
    #[error("the listener on {protocol} {port} cannot send to port 0: give a target port from 1 to 65535")]
    TargetPortZero {
        /// Its port.
        port: u16,
        /// Its protocol.
        protocol: ListenerProtocol,
    },
}

impl Listener {
    /// A listener on `port` that sends to `target_port` of the members.
    pub fn new(port: u16, protocol: ListenerProtocol, target_port: u16) -> Result<Self, ListenerError> {
        if port == 0 {
            return Err(ListenerError::PortZero);
        }
        if target_port == 0 {
            return Err(ListenerError::TargetPortZero { port, protocol });
        }
        Ok(Self { name: None, port, protocol, target_port, health_check: None })
    }

    /// The same listener, under a name by which its owner speaks of it.
    #[must_use]
    pub fn with_name(self, name: impl Into<String>) -> Self {
        Self { name: Some(name.into()), ..self }
    }

    /// The same listener, with a health check for its members.
    #[must_use]
    pub fn with_health_check(self, health_check: HealthCheck) -> Self {
        Self { health_check: Some(health_check), ..self }
    }

    /// What its owner calls it.
    pub fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// The port that clients connect to.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// What it speaks with its clients.
    pub fn protocol(&self) -> ListenerProtocol {
        self.protocol
    }

    /// The port of the members.
    pub fn target_port(&self) -> u16 {
        self.target_port
    }

    /// How the members are checked; `None` leaves it to the provider.
    pub fn health_check(&self) -> Option<&HealthCheck> {
        self.health_check.as_ref()
    }
}

impl fmt::Display for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{} {}", self.protocol, self.port))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_start_at_one() {
        assert_eq!(Listener::new(0, ListenerProtocol::Tcp, 80).unwrap_err(), ListenerError::PortZero);
        assert_eq!(
            Listener::new(80, ListenerProtocol::Tls, 0).unwrap_err().to_string(),
            "the listener on tls 80 cannot send to port 0: give a target port from 1 to 65535"
        );
        assert_eq!(Listener::new(53, ListenerProtocol::TcpUdp, 53).unwrap().to_string(), "tcp+udp 53");
    }
}
