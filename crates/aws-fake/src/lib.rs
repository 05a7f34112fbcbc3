//! EC2 and Elastic Load Balancing as AWS documents them, for tests: strict where AWS is strict.
//!
//! A [`Fake`] answers AWS's Query protocol over HTTP on loopback, to whoever signs requests as AWS wants it. What is
//! there at the start stands in [`Config::world`]; what is there later is told by [`Fake::state`], what was called by
//! [`Fake::calls`]. [`Fake::faults`] breaks calls, [`Fake::freeze`] all of them, and [`Fake::pass`] lets time go by
//! that AWS would take to start, check or end something.
//!
//! Nothing of the client is used here, so what both agree on was said twice.

mod call;
mod clock;
mod config;
mod ec2;
mod elb;
mod fake;
mod form;
mod identity;
mod limits;
mod machine;
mod mark;
mod range;
mod refusal;
mod request;
mod server;
mod service;
mod signature;
#[cfg(test)]
mod tests;
mod world;
mod xml;

pub use call::{Call, End, Fault, Logged};
pub use config::{Config, Credentials, Quotas};
pub use fake::Fake;
pub use limits::{Limit, RateLimits};
pub use range::Range;
pub use world::{
    HealthCheck, Instance, Listener, LoadBalancer, Peer, Permission, Placement, RouteTable, Rule,
    SecurityGroup, Subnet, Tags, Target, TargetGroup, TargetId, Vpc, World,
};
