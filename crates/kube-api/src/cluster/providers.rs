//! What makes load balancers, and how. Each has what is asked of it in `assignment`, which only the controller of load balancers
//! writes; everything else is its user's.

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use super::assignment::Assignment;
use super::capi::Reference;
use super::object::null_is_default;

/// What every provider has, whatever else it has.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct InfrastructureSpec {
    /// What is asked of it.
    pub assignment: Option<Assignment>,
}

/// A network load balancer of AWS.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AwsNlbSpec {
    /// What is asked of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub assignment: Option<Assignment>,
    /// Its name; one is made up where nothing is said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// `internet-facing` or `internal`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scheme: Option<String>,
    /// `ipv4` or `dualstack`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ip_address_type: Option<String>,
    /// Its subnets, by id or name.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub subnets: Vec<String>,
    /// Elastic addresses, one for each subnet.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub elastic_addresses: Vec<String>,
    /// Groups to use instead of a managed one, by id or name.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub security_groups: Vec<String>,
    /// Whether members in other zones get traffic as well.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cross_zone: Option<bool>,
    /// Whether members see the addresses of clients.
    #[serde(rename = "preserveClientIP", skip_serializing_if = "Option::is_none")]
    pub preserve_client_ip: Option<bool>,
    /// Whether members are told of clients by the PROXY protocol.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub proxy_protocol: Option<bool>,
    /// How members are named: by their instances, or by addresses, which need not be of instances.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_type: Option<TargetType>,
    /// For how long a member is held after AWS took it out, since connections may still be sent to it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hold_seconds: Option<u32>,
    /// Tags on everything that is made.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "BTreeMap::is_empty")]
    pub tags: BTreeMap<String, String>,
    /// Further attributes of the load balancer, in AWS's words.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "BTreeMap::is_empty")]
    pub attributes: BTreeMap<String, String>,
}

/// How members are named to AWS.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TargetType {
    /// By their instances.
    #[default]
    Instance,
    /// By addresses.
    Ip,
}

/// `HAProxy` on machines that carry traffic.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HaProxyLoadBalancerSpec {
    /// What is asked of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub assignment: Option<Assignment>,
    /// The machines that carry it: those whose agents are of this pool.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    /// Where it listens. Without any it has the addresses of its machines.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<IpAddr>,
    /// Where an address comes from, where none is given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address_from: Option<AddressPool>,
    /// Under which number machines agree who has the address; one is made from it where nothing is said.
    #[serde(rename = "virtualRouterID", skip_serializing_if = "Option::is_none")]
    pub virtual_router_id: Option<u8>,
    /// Whether members are told of clients by the PROXY protocol.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub proxy_protocol: Option<bool>,
    /// `leastconn`, `roundrobin` or `source`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub balance: Option<String>,
}

impl HaProxyLoadBalancerSpec {
    /// The machines that carry it.
    pub fn pool(&self) -> &str {
        self.pool.as_deref().filter(|pool| !pool.is_empty()).unwrap_or("default")
    }
}

/// Where an address comes from.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AddressPool {
    /// A pool of addresses, which an `IPAddressClaim` is made for.
    pub pool_ref: Reference,
}

/// A load balancer of OVN.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct OvnLoadBalancerSpec {
    /// What is asked of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub assignment: Option<Assignment>,
    /// Where it listens.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<IpAddr>,
    /// Logical switches whose ports reach it directly.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub switches: Vec<String>,
    /// Logical routers that it is on.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub routers: Vec<String>,
}
