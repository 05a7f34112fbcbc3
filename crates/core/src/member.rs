use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::addresses::unicast;
use crate::text::{is_name, quoted};
use crate::{Family, Listener, NotUnicast};

/// Where a member is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MemberState {
    /// Being made known to the load balancer; nothing is sent to it yet.
    Adding,
    /// Takes its share.
    Active,
    /// Finishes the connections it has, on its way out or aside.
    Draining,
    /// Drained on the administrator's wish, and kept aside until that wish changes.
    Disabled,
    /// Gone from the load balancer.
    Removed,
}

impl MemberState {
    /// Every state.
    pub const ALL: [Self; 5] = [Self::Adding, Self::Active, Self::Draining, Self::Disabled, Self::Removed];

    /// Whether a member may go from this state to `next`. Staying is no change, and not in the table.
    ///
    /// One of these changes nobody may make by themselves: disabled to adding is for the administrator's wish
    /// alone. A member that looks healthy again, or a controller that starts again, is no reason.
    pub fn can_become(self, next: Self) -> bool {
        use MemberState::{Active, Adding, Disabled, Draining, Removed};
        match self {
            Adding => matches!(next, Active | Draining | Disabled | Removed),
            // Neither removed nor disabled at once: connections would be cut without anybody having decided
            // so. A drain with its deadline in the past is the decision.
            Active => next == Draining,
            // Wanted again, it starts over.
            Draining => matches!(next, Adding | Disabled | Removed),
            // Enabled again, it starts over. It has no connections left to drain.
            Disabled => matches!(next, Adding | Removed),
            Removed => false,
        }
    }

    /// Whether new connections go to a member in this state.
    pub fn takes_new_connections(self) -> bool {
        self == Self::Active
    }
}

impl fmt::Display for MemberState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Adding => "adding",
            Self::Active => "active",
            Self::Draining => "draining",
            Self::Disabled => "disabled",
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
    state: MemberState,
}

/// Why a member, or a change of one, cannot be.
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
    /// The change is not in the table of [`MemberState::can_become`].
    #[error("member {name} is {from} and cannot become {to}")]
    Transition {
        /// The member.
        name: String,
        /// The state it is in.
        from: MemberState,
        /// The state that was asked for.
        to: MemberState,
    },
}

impl Member {
    /// A member that is being added.
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
        Ok(Self { name, addresses, reference: None, ports: BTreeMap::new(), state: MemberState::Adding })
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

    /// The same member in another state, if it may go there from where it is.
    pub fn become_state(self, state: MemberState) -> Result<Self, MemberError> {
        if self.state.can_become(state) {
            Ok(Self { state, ..self })
        } else {
            Err(MemberError::Transition { name: self.name, from: self.state, to: state })
        }
    }

    /// The same member in the state it was found in. What was seen is not a change, so no table applies.
    #[must_use]
    pub fn seen_as(self, state: MemberState) -> Self {
        Self { state, ..self }
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

    /// Where it is in its life.
    pub fn state(&self) -> MemberState {
        self.state
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_of_changes() {
        let table = [
            //            adding active draining disabled removed
            ("adding", [false, true, true, true, true]),
            ("active", [false, false, true, false, false]),
            ("draining", [true, false, false, true, true]),
            ("disabled", [true, false, false, false, true]),
            ("removed", [false, false, false, false, false]),
        ];
        for (from, (name, row)) in MemberState::ALL.into_iter().zip(table) {
            assert_eq!(from.to_string(), name);
            assert_eq!(MemberState::ALL.map(|to| from.can_become(to)), row, "{name}");
        }
        let taking: Vec<_> = MemberState::ALL.into_iter().filter(|s| s.takes_new_connections()).collect();
        assert_eq!(taking, [MemberState::Active]);
    }

    /// The states that can be got to from a state, in any number of changes, without going through another.
    fn ahead(from: MemberState, without: MemberState) -> Vec<MemberState> {
        let mut ahead = vec![from];
        let mut done = 0;
        while done < ahead.len() {
            let here = ahead[done];
            let next = MemberState::ALL.into_iter().filter(|to| here.can_become(*to) && *to != without);
            let new: Vec<_> = next.filter(|to| !ahead.contains(to)).collect();
            ahead.extend(new);
            done += 1;
        }
        ahead
    }

    #[test]
    fn no_way_around_adding_and_draining() {
        use MemberState::{Active, Adding, Disabled, Draining, Removed};
        assert_eq!(ahead(Disabled, Adding), [Disabled, Removed]);
        assert_eq!(ahead(Active, Draining), [Active]);
        assert_eq!(ahead(Removed, Adding), [Removed]);
    }

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
    fn a_member_changes_by_the_table() {
        let member = Member::new("node-1", ["192.0.2.1".parse().unwrap()]).unwrap();
        assert_eq!(member.state(), MemberState::Adding);
        let disabled = member.become_state(MemberState::Disabled).unwrap();
        assert_eq!(
            disabled.clone().become_state(MemberState::Active).unwrap_err().to_string(),
            "member node-1 is disabled and cannot become active"
        );
        assert_eq!(disabled.seen_as(MemberState::Active).state(), MemberState::Active);
    }
}
