//! Network load balancers with the right security groups on AWS.

#![warn(missing_docs)]

mod client;
mod cloud_config;
pub mod model;
mod nlb;
mod permissions;
mod policy;

pub use client::{
    CallError, Cause, Client, CredentialsError, Endpoint, Endpoints, Limit, Limits, Options, load,
};
pub use cloud_config::{
    CloudConfig, CloudConfigError, Global, ProbeMode, SecurityGroupMode, ServiceOverride,
};
pub use nlb::{
    Clock, Estate, Fleet, GivenRules, HOLD, Held, Maker, MemberReports, NodeRules, PREFIX, Provider, REGION,
    Record, RecordError, Recorded, Settings, Site, TargetKind, Usual, VPC, members,
};
pub use permissions::{Permission, Verdict};
pub use policy::{PolicyFor, policy};
