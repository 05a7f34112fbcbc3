//! What the Networking API is about, as it is stored. Every field is what was asked for, in the words it was asked in;
//! what OVN makes of it is in `rows`.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use portcullis_core::{Cidr, Direction, Family};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::Mac;

/// What every object has.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Meta {
    /// The number of its row, which is never stored a second time.
    #[serde(skip)]
    pub id: Uuid,
    /// Whose it is.
    pub project: String,
    pub name: String,
    pub description: String,
    pub tags: BTreeSet<String>,
    /// In seconds since 1970.
    pub created: i64,
    pub updated: i64,
    /// How often it was changed.
    pub revision: u64,
}

/// The kinds of objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    Network,
    Subnet,
    Port,
    Router,
    FloatingIp,
    SecurityGroup,
    Rule,
    AddressGroup,
    RuleTemplate,
    RbacPolicy,
    Quota,
    Project,
    User,
    RevokedToken,
    SigningKey,
}

impl Kind {
    /// All of them.
    pub const ALL: [Kind; 15] = [
        Kind::Network,
        Kind::Subnet,
        Kind::Port,
        Kind::Router,
        Kind::FloatingIp,
        Kind::SecurityGroup,
        Kind::Rule,
        Kind::AddressGroup,
        Kind::RuleTemplate,
        Kind::RbacPolicy,
        Kind::Quota,
        Kind::Project,
        Kind::User,
        Kind::RevokedToken,
        Kind::SigningKey,
    ];

    /// What it is called in the database.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Network => "network",
            Kind::Subnet => "subnet",
            Kind::Port => "port",
            Kind::Router => "router",
            Kind::FloatingIp => "floating-ip",
            Kind::SecurityGroup => "security-group",
            Kind::Rule => "rule",
            Kind::AddressGroup => "address-group",
            Kind::RuleTemplate => "rule-template",
            Kind::RbacPolicy => "rbac-policy",
            Kind::Quota => "quota",
            Kind::Project => "project",
            Kind::User => "user",
            Kind::RevokedToken => "revoked-token",
            Kind::SigningKey => "signing-key",
        }
    }

    /// The kind of that name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

/// A virtual layer 2 network.
#[expect(clippy::struct_excessive_bools, reason = "the API has them")]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Network {
    #[serde(skip)]
    pub meta: Meta,
    pub admin_state_up: bool,
    pub mtu: u32,
    /// What ports that do not say get.
    pub port_security: bool,
    /// Whether routers may have their gateway here.
    pub external: bool,
    /// Whether it is the external network for who does not name one.
    pub is_default: bool,
    pub dns_domain: String,
    /// The wire it is on, if it is on one that was there before.
    pub physical: Option<String>,
    /// Its VLAN there.
    pub vlan: Option<u16>,
}

impl Default for Network {
    fn default() -> Self {
        Network {
            meta: Meta::default(),
            admin_state_up: true,
            mtu: 1442,
            port_security: true,
            external: false,
            is_default: false,
            dns_domain: String::new(),
            physical: None,
            vlan: None,
        }
    }
}

/// How hosts get their IPv6 addresses, or learn of their router.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ipv6Mode {
    Slaac,
    Dhcpv6Stateful,
    Dhcpv6Stateless,
}

impl Ipv6Mode {
    /// As the API writes it.
    pub fn as_str(self) -> &'static str {
        match self {
            Ipv6Mode::Slaac => "slaac",
            Ipv6Mode::Dhcpv6Stateful => "dhcpv6-stateful",
            Ipv6Mode::Dhcpv6Stateless => "dhcpv6-stateless",
        }
    }

    /// Whether hosts make their addresses from their hardware addresses.
    pub fn is_auto(self) -> bool {
        self != Ipv6Mode::Dhcpv6Stateful
    }
}

/// Where to send what is for some addresses.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Route {
    pub destination: Cidr,
    pub nexthop: IpAddr,
}

/// Addresses from the first to the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Pool {
    pub start: IpAddr,
    pub end: IpAddr,
}

impl Pool {
    /// Whether the address is one of them.
    pub fn contains(&self, address: IpAddr) -> bool {
        Family::of(address) == Family::of(self.start) && self.start <= address && address <= self.end
    }
}

/// Addresses of a network.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Subnet {
    #[serde(skip)]
    pub meta: Meta,
    pub network: Uuid,
    pub cidr: Cidr,
    pub gateway: Option<IpAddr>,
    pub pools: Vec<Pool>,
    pub dns_nameservers: Vec<String>,
    pub host_routes: Vec<Route>,
    pub dhcp: bool,
    pub ipv6_ra_mode: Option<Ipv6Mode>,
    pub ipv6_address_mode: Option<Ipv6Mode>,
    pub service_types: Vec<String>,
}

impl Default for Subnet {
    fn default() -> Self {
        Subnet {
            meta: Meta::default(),
            network: Uuid::nil(),
            cidr: Cidr::everything(Family::V4),
            gateway: None,
            pools: Vec::new(),
            dns_nameservers: Vec::new(),
            host_routes: Vec::new(),
            dhcp: true,
            ipv6_ra_mode: None,
            ipv6_address_mode: None,
            service_types: Vec::new(),
        }
    }
}

impl Subnet {
    /// IPv4 or IPv6.
    pub fn family(&self) -> Family {
        self.cidr.family()
    }

    /// Whether hosts make their addresses here from their hardware addresses.
    pub fn is_auto(&self) -> bool {
        self.ipv6_address_mode.is_some_and(Ipv6Mode::is_auto)
    }
}

/// An address of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct FixedIp {
    pub subnet: Uuid,
    pub address: IpAddr,
}

/// An address that a port may use besides its own.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct AddressPair {
    /// As it was written: an address or a range.
    pub address: String,
    pub mac: Option<Mac>,
}

/// An option that a port's machine gets by DHCP.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct DhcpOption {
    pub name: String,
    pub value: String,
    pub version: Family,
}

/// Where a machine is plugged into a network.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Port {
    #[serde(skip)]
    pub meta: Meta,
    pub network: Uuid,
    pub admin_state_up: bool,
    pub mac: Mac,
    pub fixed_ips: Vec<FixedIp>,
    pub device_id: String,
    pub device_owner: String,
    pub security_groups: Vec<Uuid>,
    pub port_security: bool,
    pub address_pairs: Vec<AddressPair>,
    pub dhcp_options: Vec<DhcpOption>,
    pub host: String,
    pub vnic_type: String,
    /// What the one who plugs it in wants to remember, as JSON.
    pub profile: String,
    /// Whether a machine is plugged in: what OVN says, not what was asked.
    #[serde(skip)]
    pub up: bool,
}

impl Default for Port {
    fn default() -> Self {
        Port {
            meta: Meta::default(),
            network: Uuid::nil(),
            admin_state_up: true,
            mac: Mac::new([0; 6]),
            fixed_ips: Vec::new(),
            device_id: String::new(),
            device_owner: String::new(),
            security_groups: Vec::new(),
            port_security: true,
            address_pairs: Vec::new(),
            dhcp_options: Vec::new(),
            host: String::new(),
            vnic_type: "normal".to_owned(),
            profile: String::new(),
            up: false,
        }
    }
}

impl Port {
    /// The owner of a router's interface.
    pub const ROUTER_INTERFACE: &'static str = "network:router_interface";
    /// The owner of a router's way out.
    pub const ROUTER_GATEWAY: &'static str = "network:router_gateway";
    /// The owner of a floating address.
    pub const FLOATING_IP: &'static str = "network:floatingip";

    /// Whether a router is plugged in.
    pub fn is_router(&self) -> bool {
        self.device_owner == Self::ROUTER_INTERFACE || self.device_owner == Self::ROUTER_GATEWAY
    }

    /// Whether it only keeps a floating address from being given to another.
    pub fn is_floating_ip(&self) -> bool {
        self.device_owner == Self::FLOATING_IP
    }

    /// The router that is plugged in.
    pub fn router(&self) -> Option<Uuid> {
        if self.is_router() { self.device_id.parse().ok() } else { None }
    }
}

/// A router's way to the world.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gateway {
    pub network: Uuid,
    /// The port there, which has the addresses.
    pub port: Uuid,
    /// Whether what goes out goes in the router's name.
    pub snat: bool,
}

/// What joins networks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Router {
    #[serde(skip)]
    pub meta: Meta,
    pub admin_state_up: bool,
    pub gateway: Option<Gateway>,
    pub routes: Vec<Route>,
}

impl Default for Router {
    fn default() -> Self {
        Router { meta: Meta::default(), admin_state_up: true, gateway: None, routes: Vec::new() }
    }
}

/// An outside address that can be given to a port.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct FloatingIp {
    #[serde(skip)]
    pub meta: Meta,
    pub network: Uuid,
    pub address: IpAddr,
    /// The port in the outside network that keeps the address.
    pub port: Uuid,
    /// Whom it is given to.
    pub fixed_port: Option<Uuid>,
    pub fixed_address: Option<IpAddr>,
    pub router: Option<Uuid>,
}

impl Default for FloatingIp {
    fn default() -> Self {
        FloatingIp {
            meta: Meta::default(),
            network: Uuid::nil(),
            address: IpAddr::from([0; 4]),
            port: Uuid::nil(),
            fixed_port: None,
            fixed_address: None,
            router: None,
        }
    }
}

/// Ports that share rules.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SecurityGroup {
    #[serde(skip)]
    pub meta: Meta,
    pub stateful: bool,
    /// Whether ports that name no group get this one.
    pub is_default: bool,
}

impl Default for SecurityGroup {
    fn default() -> Self {
        SecurityGroup { meta: Meta::default(), stateful: true, is_default: false }
    }
}

/// What a rule allows, as it was asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Rule {
    #[serde(skip)]
    pub meta: Meta,
    pub group: Uuid,
    pub direction: Direction,
    pub ethertype: Family,
    pub protocol: Option<String>,
    pub port_min: Option<u16>,
    pub port_max: Option<u16>,
    pub remote_prefix: Option<String>,
    pub remote_group: Option<Uuid>,
    pub remote_address_group: Option<Uuid>,
}

impl Default for Rule {
    fn default() -> Self {
        Rule {
            meta: Meta::default(),
            group: Uuid::nil(),
            direction: Direction::Ingress,
            ethertype: Family::V4,
            protocol: None,
            port_min: None,
            port_max: None,
            remote_prefix: None,
            remote_group: None,
            remote_address_group: None,
        }
    }
}

impl Rule {
    /// The first port that it allows, if it does not allow all.
    pub(crate) fn first_port(&self) -> Option<u16> {
        match (self.port_min, self.port_max) {
            (Some(1), Some(u16::MAX)) => None,
            (first, _) => first,
        }
    }
}

/// Addresses that rules can name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct AddressGroup {
    #[serde(skip)]
    pub meta: Meta,
    pub addresses: BTreeSet<Cidr>,
}

/// A rule that new groups get.
#[allow(clippy::struct_excessive_bools, reason = "each is a question of its own")]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RuleTemplate {
    #[serde(skip)]
    pub meta: Meta,
    /// What is copied; its group is nobody's.
    pub rule: Rule,
    /// Whether the other end is the new group itself.
    pub remote_is_parent: bool,
    pub in_default: bool,
    pub in_others: bool,
    /// Whether it says that one of the usual rules, which are not stored, is not in force any more.
    pub removed: bool,
}

/// Something of one project that another may use.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RbacPolicy {
    #[serde(skip)]
    pub meta: Meta,
    pub object_type: String,
    pub object: Uuid,
    pub action: String,
    /// A project, or `*`.
    pub target: String,
}

/// How much a project may have.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Quota {
    #[serde(skip)]
    pub meta: Meta,
    /// By resource; -1 is without limit.
    pub limits: BTreeMap<String, i64>,
}

/// Who has objects.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Project {
    #[serde(skip)]
    pub meta: Meta,
    pub domain: String,
    pub enabled: bool,
}

/// A role that a user has in a project, by their ids.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Grant {
    pub project: String,
    pub role: String,
}

/// Who logs in.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct User {
    #[serde(skip)]
    pub meta: Meta,
    pub domain: String,
    pub enabled: bool,
    /// What its password is recognised by, an argon2 hash in PHC form; empty, if it has none.
    pub password: String,
    /// How often its tokens were ended with its password unchanged.
    pub epoch: u64,
    pub assignments: BTreeSet<Grant>,
    /// The project that it gets tokens for if it names none; empty, if there is none.
    pub default_project: String,
    pub email: String,
    pub options: BTreeMap<String, bool>,
}

impl std::fmt::Debug for User {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("User")
            .field("id", &self.meta.id)
            .field("name", &self.meta.name)
            .finish_non_exhaustive()
    }
}

/// A token that is not valid any more, until it would have expired anyway.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RevokedToken {
    #[serde(skip)]
    pub meta: Meta,
    pub expires: i64,
}

/// What tokens are signed with.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SigningKey {
    #[serde(skip)]
    pub meta: Meta,
    pub secret: String,
}

impl std::fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SigningKey").field("id", &self.meta.id).finish_non_exhaustive()
    }
}
