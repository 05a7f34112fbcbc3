use std::fmt;
use std::net::IpAddr;

use serde::Serialize;

use crate::{AddressSet, MemberState, Outcome};

/// What a provider tells about a want.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// How far it got.
    pub outcome: Outcome,
    /// Where clients find it, as far as that is known.
    pub addresses: Vec<Address>,
    /// What the owner should know although it goes on: what cannot be changed, what has no effect.
    pub told: Vec<String>,
    /// Whether source ranges keep anybody out, as far as that is known.
    pub enforcement: Option<Enforcement>,
    /// Who gets in, where it got as far as to keep out who should not, and not as far as to let in who should.
    pub admitted: Option<AddressSet>,
    /// Where members are, as far as that is known. Who is not among them is not known to the load balancer.
    pub members: Vec<MemberReport>,
}

impl Report {
    /// Only how far it got.
    pub fn new(outcome: Outcome) -> Self {
        Self {
            outcome,
            addresses: Vec::new(),
            told: Vec::new(),
            enforcement: None,
            admitted: None,
            members: Vec::new(),
        }
    }
}

/// Where a member is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberReport {
    /// The member, by its name.
    pub name: String,
    /// Where it is.
    pub state: MemberState,
    /// How many connections it has, where that can be counted.
    pub connections: Option<u64>,
    /// What else there is to know: why it gets nothing, for how long it is waited for.
    pub told: Option<String>,
}

/// Whether source ranges keep anybody out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Enforcement {
    /// They do, by this: `Security groups`.
    By(String),
    /// They do not, for this reason: a sentence.
    Not(String),
}

/// Where clients find a load balancer.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Address {
    /// By a name.
    Hostname(String),
    /// By an address.
    Ip(IpAddr),
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Hostname(name) => f.pad(name),
            Self::Ip(address) => f.pad(&address.to_string()),
        }
    }
}
