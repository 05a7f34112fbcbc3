//! What AWS has, in AWS's words.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use portcullis_core::Cidr;
use serde::{Deserialize, Serialize};
use smol_str::SmolStr;

/// Keys and values that are written on an object.
pub type Tags = BTreeMap<String, String>;

/// Settings by name.
pub type Attributes = BTreeMap<String, String>;

/// A security group.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SecurityGroup {
    /// `sg-…`
    pub id: String,
    /// Its name, which no other group of the VPC has.
    pub name: String,
    /// What it is for.
    pub description: String,
    /// The VPC it is in.
    pub vpc: String,
    /// What is written on it.
    pub tags: Tags,
    /// What it lets in, each with its description.
    #[serde(with = "pairs")]
    pub ingress: Permissions,
    /// What it lets out.
    #[serde(with = "pairs")]
    pub egress: Permissions,
}

/// Rules, each with its description; the description makes no difference between two of them.
pub type Permissions = BTreeMap<Permission, String>;

/// Maps as lists of pairs, where only words can be keys.
pub(crate) mod pairs {
    use std::collections::BTreeMap;

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(crate) fn serialize<K: Serialize, V: Serialize, S: Serializer>(
        map: &BTreeMap<K, V>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        to.collect_seq(map)
    }

    pub(crate) fn deserialize<'a, K: Deserialize<'a> + Ord, V: Deserialize<'a>, D: Deserializer<'a>>(
        from: D,
    ) -> Result<BTreeMap<K, V>, D::Error> {
        Vec::deserialize(from).map(|pairs: Vec<(K, V)>| pairs.into_iter().collect())
    }
}

/// One rule of a group.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Permission {
    /// `tcp`, `udp`, `icmp`, `icmpv6`, `-1` for all, or a number.
    pub protocol: String,
    /// From which port, or which type of ICMP; none where there are no ports.
    pub from: Option<i32>,
    /// Up to which port, or which code of ICMP.
    pub to: Option<i32>,
    /// The other side.
    pub peer: Peer,
}

/// The other side of a rule.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Peer {
    /// These addresses.
    Range(Cidr),
    /// Whoever is in that group.
    Group(String),
    /// The addresses of that list.
    PrefixList(String),
}

impl Permission {
    /// All traffic from or to someone.
    pub fn all(peer: Peer) -> Self {
        Permission { protocol: "-1".to_owned(), from: None, to: None, peer }
    }

    /// Ports of a protocol.
    pub fn ports(protocol: &str, from: u16, to: u16, peer: Peer) -> Self {
        Permission { protocol: protocol.to_owned(), from: Some(from.into()), to: Some(to.into()), peer }
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Peer::Range(range) => write!(f, "{range}"),
            Peer::Group(id) | Peer::PrefixList(id) => f.write_str(id),
        }
    }
}

impl Permission {
    /// What it lets through, without the other side.
    pub fn traffic(&self) -> String {
        match (self.protocol.as_str(), self.from, self.to) {
            ("-1", _, _) => "all".to_owned(),
            (protocol @ ("icmp" | "icmpv6"), Some(kind), Some(code)) if kind >= 0 && code >= 0 => {
                format!("{protocol} {kind}/{code}")
            }
            (protocol @ ("icmp" | "icmpv6"), Some(kind), _) if kind >= 0 => format!("{protocol} {kind}"),
            (protocol, Some(from), Some(to)) if from != to => format!("{protocol} {from}-{to}"),
            (protocol, Some(from), _) => format!("{protocol} {from}"),
            (protocol, None, _) => protocol.to_owned(),
        }
    }
}

impl fmt::Display for Permission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.traffic(), self.peer)
    }
}

/// A load balancer of any type.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoadBalancer {
    /// What tells it apart for ever.
    pub arn: String,
    /// Its name, which no other load balancer of the account and region has at the same time.
    pub name: String,
    /// Where clients find it.
    pub dns_name: String,
    /// `network`, `application` or `gateway`.
    pub kind: String,
    /// `internet-facing` or `internal`.
    pub scheme: String,
    /// The VPC it is in.
    pub vpc: String,
    /// `provisioning`, `active`, `active_impaired` or `failed`.
    pub state: String,
    /// `ipv4` or `dualstack`.
    pub ip_address_type: String,
    /// Its subnets.
    pub subnets: BTreeSet<String>,
    /// The addresses that were chosen for it: private ones, and elastic ones by the ids of their allocations.
    pub addresses: BTreeSet<String>,
    /// Its groups. One that was made without any can never get one.
    pub groups: BTreeSet<String>,
}

/// A port of a load balancer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listener {
    /// What tells it apart.
    pub arn: String,
    /// Its port.
    pub port: u16,
    /// `TCP`, `UDP`, `TCP_UDP` or `TLS`.
    pub protocol: String,
    /// Where it sends to.
    pub target_group: Option<String>,
    /// The certificate that is shown first; only for TLS.
    pub certificate: Option<String>,
    /// The rules of TLS; only for TLS.
    pub policy: Option<String>,
    /// What is agreed on within TLS.
    pub alpn: Option<String>,
}

/// Where listeners send to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TargetGroup {
    /// What tells it apart for ever.
    pub arn: String,
    /// Its name.
    pub name: String,
    /// `TCP`, `UDP`, `TCP_UDP` or `TLS`.
    pub protocol: String,
    /// The port of targets that have none of their own.
    pub port: u16,
    /// The VPC it is in.
    pub vpc: String,
    /// `instance`, `ip` or `alb`.
    pub kind: String,
    /// `ipv4` or `ipv6`.
    pub ip_address_type: String,
    /// How targets are checked.
    pub health_check: HealthCheck,
    /// Which load balancers send to it.
    pub load_balancers: BTreeSet<String>,
}

/// How targets are checked.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct HealthCheck {
    /// `TCP`, `HTTP` or `HTTPS`.
    pub protocol: String,
    /// A port, or `traffic-port`.
    pub port: String,
    /// Only for HTTP.
    pub path: Option<String>,
    /// Seconds between two checks.
    pub interval: u32,
    /// Seconds to wait for an answer.
    pub timeout: u32,
    /// After so many good ones a target is healthy.
    pub healthy: u32,
    /// After so many bad ones it is not.
    pub unhealthy: u32,
}

/// Someone who is sent to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Target {
    /// `i-…`, or an address. There are very many of them, and most are short.
    pub id: SmolStr,
    /// Its port.
    pub port: u16,
    /// Whether it is an address outside of the VPC.
    pub outside: bool,
}

/// How somebody does who is sent to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TargetState {
    /// All is well.
    Healthy,
    /// It is on its way out.
    Draining,
    /// Anything else: not checked yet, not used, not well.
    Other,
}

/// How somebody does who is sent to, in AWS's own words, too.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetHealth {
    /// How it does.
    pub state: TargetState,
    /// `unhealthy: Target.FailedHealthChecks`
    pub why: String,
}

/// A subnet.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Subnet {
    /// `subnet-…`
    pub id: String,
    /// The VPC it is in.
    pub vpc: String,
    /// The zone it is in.
    pub zone: String,
    /// Its IPv4 addresses.
    pub range: Option<Cidr>,
    /// Its IPv6 addresses.
    pub ranges6: Vec<Cidr>,
    /// What is written on it.
    pub tags: Tags,
}

/// Where packets of subnets go.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RouteTable {
    /// `rtb-…`
    pub id: String,
    /// The VPC it is in.
    pub vpc: String,
    /// Whether it is for all subnets that have none of their own.
    pub main: bool,
    /// The subnets it is for.
    pub subnets: BTreeSet<String>,
    /// Whether packets for the rest of the world go to an internet gateway.
    pub public: bool,
}

/// A machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Instance {
    /// `i-…`
    pub id: String,
    /// The VPC it is in.
    pub vpc: String,
    /// `running` and so on.
    pub state: String,
    /// Its groups, those of its first interface.
    pub groups: BTreeSet<String>,
}
