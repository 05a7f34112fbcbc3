//! How clients reach a router.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// How clients reach a router.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct EndpointPublishingStrategy {
    /// In which of the four ways.
    #[serde(rename = "type")]
    pub type_: PublishingType,
    /// By a load balancer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub load_balancer: Option<LoadBalancerStrategy>,
    /// On the addresses of the nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host_network: Option<HostNetworkStrategy>,
    /// On a port of every node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_port: Option<ProtocolStrategy>,
    /// Not at all: whoever needs it publishes it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub private: Option<ProtocolStrategy>,
    /// What is new to us.
    #[serde(flatten)]
    pub rest: BTreeMap<String, Value>,
}

/// The ways to reach a router.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum PublishingType {
    /// By a Service of type `LoadBalancer`.
    LoadBalancerService,
    /// On the addresses of the nodes that routers run on.
    HostNetwork,
    /// Not at all.
    #[default]
    Private,
    /// By a Service of type `NodePort`.
    NodePortService,
    /// A word that is new to us.
    #[serde(untagged)]
    Other(String),
}

impl PublishingType {
    /// The word for it.
    pub fn as_str(&self) -> &str {
        match self {
            PublishingType::LoadBalancerService => "LoadBalancerService",
            PublishingType::HostNetwork => "HostNetwork",
            PublishingType::Private => "Private",
            PublishingType::NodePortService => "NodePortService",
            PublishingType::Other(other) => other,
        }
    }
}

/// A load balancer in front of routers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LoadBalancerStrategy {
    /// Who can reach its address.
    pub scope: Scope,
    /// The ranges from which clients may connect.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allowed_source_ranges: Option<Vec<String>>,
    /// What only some platforms have.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provider_parameters: Option<ProviderParameters>,
    /// `Managed` or `Unmanaged`: who looks after the DNS record.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dns_management_policy: Option<String>,
    /// What is new to us.
    #[serde(flatten)]
    pub rest: BTreeMap<String, Value>,
}

/// Who can reach the address of a load balancer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Scope {
    /// The network of the cluster.
    Internal,
    /// Everybody.
    #[default]
    External,
    /// A word that is new to us.
    #[serde(untagged)]
    Other(String),
}

impl Scope {
    /// The word for it.
    pub fn as_str(&self) -> &str {
        match self {
            Scope::Internal => "Internal",
            Scope::External => "External",
            Scope::Other(other) => other,
        }
    }
}

/// What only some platforms have.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ProviderParameters {
    /// The platform: `AWS`, `GCP`, `IBM` or `OpenStack`.
    #[serde(rename = "type")]
    pub type_: String,
    /// For AWS.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub aws: Option<AwsParameters>,
    /// For Google Cloud.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gcp: Option<GcpParameters>,
    /// For IBM Cloud.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ibm: Option<IbmParameters>,
    /// For OpenStack.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub openstack: Option<OpenStackParameters>,
    /// What is new to us.
    #[serde(flatten)]
    pub rest: BTreeMap<String, Value>,
}

/// What AWS has.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AwsParameters {
    /// Which kind of load balancer.
    #[serde(rename = "type")]
    pub type_: AwsLoadBalancerType,
    /// For a classic one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub classic_load_balancer: Option<ClassicLoadBalancer>,
    /// For a network load balancer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network_load_balancer: Option<NetworkLoadBalancer>,
    /// What is new to us.
    #[serde(flatten)]
    pub rest: BTreeMap<String, Value>,
}

/// The kinds of load balancers that AWS has for this.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum AwsLoadBalancerType {
    /// A classic load balancer.
    #[default]
    Classic,
    /// A network load balancer.
    #[serde(rename = "NLB")]
    Network,
    /// A word that is new to us.
    #[serde(untagged)]
    Other(String),
}

/// What a classic load balancer has.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClassicLoadBalancer {
    /// After how long an idle connection is cut, such as `1m30s`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connection_idle_timeout: Option<String>,
    /// Where it stands.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subnets: Option<Subnets>,
    /// What is new to us.
    #[serde(flatten)]
    pub rest: BTreeMap<String, Value>,
}

/// What a network load balancer has.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NetworkLoadBalancer {
    /// Where it stands.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subnets: Option<Subnets>,
    /// Its fixed addresses.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub eip_allocations: Option<Vec<String>>,
    /// `TCP`, or `PROXY`: how it says who a client is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub protocol: Option<String>,
    /// What is new to us.
    #[serde(flatten)]
    pub rest: BTreeMap<String, Value>,
}

/// Subnets, by id or by name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Subnets {
    /// By id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ids: Option<Vec<String>>,
    /// By name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub names: Option<Vec<String>>,
}

impl Subnets {
    /// All of them: ids first.
    pub fn all(&self) -> impl Iterator<Item = &String> {
        self.ids.iter().flatten().chain(self.names.iter().flatten())
    }
}

/// What Google Cloud has.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GcpParameters {
    /// `Global` or `Local`: from which regions an internal load balancer is reached.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_access: Option<String>,
}

/// What IBM Cloud has.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct IbmParameters {
    /// `TCP` or `PROXY`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub protocol: Option<String>,
}

/// What OpenStack has.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct OpenStackParameters {
    /// The floating IP that the load balancer gets.
    #[serde(rename = "floatingIP", skip_serializing_if = "Option::is_none")]
    pub floating_ip: Option<String>,
}

/// Routers on the addresses of their nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HostNetworkStrategy {
    /// `TCP` or `PROXY`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub protocol: Option<String>,
    /// The port for HTTP.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub http_port: Option<i32>,
    /// The port for HTTPS.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub https_port: Option<i32>,
    /// The port for health and metrics.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stats_port: Option<i32>,
}

impl HostNetworkStrategy {
    /// The ports for HTTP, HTTPS and statistics, with the usual ones where none are given.
    pub fn ports(&self) -> [i32; 3] {
        [(self.http_port, 80), (self.https_port, 443), (self.stats_port, 1936)]
            .map(|(given, usual)| given.filter(|port| *port != 0).unwrap_or(usual))
    }
}

/// A strategy of which only the protocol can be chosen.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ProtocolStrategy {
    /// `TCP` or `PROXY`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub protocol: Option<String>,
}
