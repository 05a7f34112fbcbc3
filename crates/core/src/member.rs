use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::time::SystemTime;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::addresses::unicast;
use crate::text::{is_name, quoted};
use crate::{Family, Listener, NotUnicast};

/// What a load balancer should do with a member.
///
/// Who is not to serve any more gets no new connection at once. Those it has may go on until they end, or until the time
/// that is given; then they are ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Duty {
    /// It gets its share, once it passes its check.
    Serve,
    /// It is kept aside, on the administrator's wish, until that wish changes.
    Rest {
        /// The time at which connections that are left are ended.
        by: SystemTime,
    },
    /// It goes.
    Leave {
        /// The time at which connections that are left are ended.
        by: SystemTime,
    },
}

impl Duty {
    /// When the connections it has are ended; `None` for who serves.
    pub fn by(self) -> Option<SystemTime> {
        match self {
            Self::Serve => None,
            Self::Rest { by } | Self::Leave { by } => Some(by),
        }
    }
}

/// Where a member is in its life, as a provider tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MemberState {
    /// Being made known to the load balancer, or not passing its check: nothing is sent to it.
    Adding,
    /// Takes its share.
    Active,
    /// Finishes the connections it has, to be kept aside.
    Disabling,
    /// Kept aside, without connections, until the administrator wishes otherwise.
    Disabled,
    /// Finishes the connections it has, on its way out.
    Draining,
    /// Gone from the load balancer, and safe to delete.
    Removed,
}

impl MemberState {
    /// Every state.
    pub const ALL: [Self; 6] =
        [Self::Adding, Self::Active, Self::Disabling, Self::Disabled, Self::Draining, Self::Removed];
}

impl fmt::Display for MemberState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Adding => "adding",
            Self::Active => "active",
            Self::Disabling => "disabling",
            Self::Disabled => "disabled",
            Self::Draining => "draining",
            Self::Removed => "removed",
        })
    }
}

/// Someone a load balancer sends traffic to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Member {
    name: String,
    addresses: Vec<IpAddr>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reference: Option<String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    ports: BTreeMap<u16, u16>,
    #[serde(skip)]
    duty: Duty,
}

/// Why a member cannot be.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum MemberError {
    /// The name cannot stand for a member.
    #[error(
        "{} is not the name of a member: it is empty, has spaces around it or control or invisible characters in it",
        quoted(.0)
    )]
    Name(String),
    /// There is nowhere to send traffic to.
    #[error("member {0} has no address: it can be added once it has one")]
    NoAddress(String),
    /// Traffic cannot be sent to one of its addresses.
    #[error("member {name} has an address that is none to send traffic to")]
    Address {
        /// The member.
        name: String,
        /// The address, and why.
        source: NotUnicast,
    },
}

impl Member {
    /// A member that is to serve.
    pub fn new(
        name: impl Into<String>,
        addresses: impl IntoIterator<Item = IpAddr>,
    ) -> Result<Self, MemberError> {
        let name = name.into();
        if !is_name(&name) {
            return Err(MemberError::Name(name));
        }
        let addresses = match unicast(addresses) {
            Ok(addresses) => addresses,
            Err(source) => return Err(MemberError::Address { name, source }),
        };
        if addresses.is_empty() {
            return Err(MemberError::NoAddress(name));
        }
        Ok(Self { name, addresses, reference: None, ports: BTreeMap::new(), duty: Duty::Serve })
    }

    /// The same member, which the place where it runs knows by this: `aws:///eu-west-1a/i-0a1b`.
    #[must_use]
    pub fn with_reference(self, reference: impl Into<String>) -> Self {
        Self { reference: Some(reference.into()), ..self }
    }

    /// The same member, which takes the traffic of some listeners, told by their ports, on ports of its own.
    #[must_use]
    pub fn with_ports(self, ports: impl IntoIterator<Item = (u16, u16)>) -> Self {
        Self { ports: ports.into_iter().collect(), ..self }
    }

    /// The same member with another duty than to serve.
    #[must_use]
    pub fn with_duty(self, duty: Duty) -> Self {
        Self { duty, ..self }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its addresses, in the order given; at least one, each of one machine, none twice.
    pub fn addresses(&self) -> &[IpAddr] {
        &self.addresses
    }

    /// Its first address of a family.
    pub fn address(&self, family: Family) -> Option<IpAddr> {
        self.addresses.iter().copied().find(|addr| Family::of(*addr) == family)
    }

    /// What the place where it runs knows it by.
    pub fn reference(&self) -> Option<&str> {
        self.reference.as_deref()
    }

    /// The port on which it takes the traffic of a listener.
    pub fn port(&self, listener: &Listener) -> u16 {
        self.ports.get(&listener.port()).copied().unwrap_or(listener.target_port())
    }

    /// What the load balancer should do with it.
    pub fn duty(&self) -> Duty {
        self.duty
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_has_a_name_and_an_address() {
        let v4: IpAddr = "192.0.2.1".parse().unwrap();
        assert_eq!(Member::new("a\nb", [v4]).unwrap_err(), MemberError::Name("a\nb".to_owned()));
        assert_eq!(
            Member::new("node-1", []).unwrap_err().to_string(),
            "member node-1 has no address: it can be added once it has one"
        );
        let member = Member::new("node-1", [v4, "::ffff:192.0.2.1".parse().unwrap()]).unwrap();
        assert_eq!(member.addresses(), [v4]);
        assert_eq!((member.address(Family::V4), member.address(Family::V6)), (Some(v4), None));
        let nowhere = Member::new("node-1", [v4, "::".parse().unwrap()]).unwrap_err();
        assert_eq!(nowhere.to_string(), "member node-1 has an address that is none to send traffic to");
    }

    #[test]
    fn who_does_not_serve_has_until_then() {
        let member = Member::new("node-1", ["192.0.2.1".parse().unwrap()]).unwrap();
        assert_eq!((member.duty(), member.duty().by()), (Duty::Serve, None));
        let by = SystemTime::UNIX_EPOCH;
        for duty in [Duty::Rest { by }, Duty::Leave { by }] {
            assert_eq!(member.clone().with_duty(duty).duty().by(), Some(by));
        }
    }

    #[test]
    fn states_are_told_in_the_words_of_annotations() {
        let words = ["adding", "active", "disabling", "disabled", "draining", "removed"];
        assert_eq!(MemberState::ALL.map(|state| state.to_string()), words);
    }
}
