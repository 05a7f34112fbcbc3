//! Network load balancers with the right security groups on AWS.

#![warn(missing_docs)]

mod cloud_config;

pub use cloud_config::{
    CloudConfig, CloudConfigError, Global, ProbeMode, SecurityGroupMode, ServiceOverride,
};
