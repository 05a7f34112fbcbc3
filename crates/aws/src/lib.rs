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
    Estate, GivenRules, Held, Maker, NodeRules, PREFIX, Provider, Record, RecordError, Recorded, Settings,
    TargetKind, members,
};
pub use permissions::{Permission, Verdict};
pub use policy::{PolicyFor, policy};
