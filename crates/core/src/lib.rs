//! What may reach what, through which load balancer: the model and the decisions about it.
//!
//! Everything here is pure: no I/O, no clock, no async, no wire format. A value that exists is valid:
//! constructors check, fields with an invariant are private.
//!
//! Three sets carry the decisions: [`AddressSet`] (who), [`Traffic`] (what) and [`Reach`] (who may reach
//! what). They are exact, so that "does this change widen access?" has a yes or no for an answer.

#![warn(missing_docs)]

mod address_set;
mod addresses;
mod cidr;
mod direction;
mod family;
mod group;
mod health_check;
mod intervals;
mod listener;
mod load_balancer;
mod member;
mod outcome;
mod owner;
mod packet;
mod plan;
mod port;
mod problem;
mod protocol;
mod provider;
mod reach;
mod report;
mod rule;
mod rule_set;
mod source_ranges;
mod text;
mod traffic;
mod verdict;
mod want;

pub use address_set::AddressSet;
pub use addresses::NotUnicast;
pub use cidr::{Cidr, CidrError};
pub use direction::Direction;
pub use family::Family;
pub use group::{GroupId, GroupIdError, SecurityGroup};
pub use health_check::{HealthCheck, HealthCheckError, HealthPort, Probe};
pub use listener::{Listener, ListenerError, ListenerProtocol};
pub use load_balancer::{LoadBalancer, LoadBalancerError, Scheme};
pub use member::{Duty, Member, MemberError, MemberState};
pub use outcome::Outcome;
pub use owner::{Owner, OwnerError};
pub use packet::{Packet, PacketError};
pub use plan::{Access, Calls, Change, Detail, PlanError, PlanView, ReachChange, Sign, placeholder};
pub use port::{PortError, PortRange};
pub use problem::Problem;
pub use protocol::{Protocol, ProtocolError};
pub use provider::{Members, Provider};
pub use reach::Reach;
pub use report::{Address, Enforcement, MemberReport, Report};
pub use rule::{Peer, Rule, RuleError};
pub use rule_set::{RuleDiff, diff, normalise};
pub use source_ranges::{Admission, EmptyMeans, SourceRanges, SourceRangesError};
pub use traffic::{IcmpOfOtherFamily, NoPorts, Traffic};
pub use verdict::{Explanation, Mismatch, Verdict, explain, mismatch, verdict};
pub use want::{Target, Want};
