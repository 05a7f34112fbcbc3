//! What is there, as plain values: to be filled before a test, looked at after it, and changed behind its back.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;

use crate::Range;

/// Keys and values that are written on something.
pub type Tags = BTreeMap<String, String>;

/// All that is there, by id or ARN.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct World {
    /// Networks.
    pub vpcs: BTreeMap<String, Vpc>,
    /// Their subnets.
    pub subnets: BTreeMap<String, Subnet>,
    /// Where packets of subnets go.
    pub route_tables: BTreeMap<String, RouteTable>,
    /// Machines.
    pub instances: BTreeMap<String, Instance>,
    /// Security groups.
    pub groups: BTreeMap<String, SecurityGroup>,
    /// Prefix lists, and for how many rules each counts.
    pub prefix_lists: BTreeMap<String, u32>,
    /// Certificates, by ARN.
    pub certificates: BTreeSet<String>,
    /// Elastic addresses, by the id of their allocation.
    pub elastic_addresses: BTreeMap<String, IpAddr>,
    /// Load balancers, by ARN.
    pub load_balancers: BTreeMap<String, LoadBalancer>,
    /// Target groups, by ARN.
    pub target_groups: BTreeMap<String, TargetGroup>,
    /// Groups of interfaces that are still there although their load balancer is gone, by its ARN.
    pub lingering: BTreeMap<String, BTreeSet<String>>,
}

/// A network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Vpc {
    /// Its addresses.
    pub range: Range,
    /// Its addresses of IPv6.
    pub range6: Option<Range>,
    /// What is written on it.
    pub tags: Tags,
}

/// A subnet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subnet {
    /// The VPC it is in.
    pub vpc: String,
    /// The zone it is in.
    pub zone: String,
    /// Its addresses.
    pub range: Range,
    /// Its addresses of IPv6.
    pub range6: Option<Range>,
    /// What is written on it.
    pub tags: Tags,
}

/// Where packets of subnets go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouteTable {
    /// The VPC it is for.
    pub vpc: String,
    /// Whether it is for all subnets that have none of their own.
    pub main: bool,
    /// The subnets it is for.
    pub subnets: BTreeSet<String>,
    /// Whether packets for the rest of the world go to an internet gateway.
    pub public: bool,
    /// What is written on it.
    pub tags: Tags,
}

/// A machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Instance {
    /// The subnet of its interface.
    pub subnet: String,
    /// Its address.
    pub address: IpAddr,
    /// `running` and so on.
    pub state: String,
    /// The groups of its interface.
    pub groups: BTreeSet<String>,
    /// What is written on it.
    pub tags: Tags,
}

/// A security group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SecurityGroup {
    /// Its name, which no other group of the VPC has.
    pub name: String,
    /// What it is for.
    pub description: String,
    /// The VPC it is in.
    pub vpc: String,
    /// What is written on it.
    pub tags: Tags,
    /// What it lets in.
    pub ingress: BTreeMap<Permission, Rule>,
    /// What it lets out.
    pub egress: BTreeMap<Permission, Rule>,
}

/// What a rule lets through; no two rules of a group and direction let through the same.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
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
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Peer {
    /// These addresses.
    Range(Range),
    /// Whoever is in that group.
    Group(String),
    /// The addresses of that list.
    PrefixList(String),
}

/// What is known of a rule besides what it lets through.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rule {
    /// `sgr-…`
    pub id: String,
    /// What it is for.
    pub description: String,
    /// What is written on it.
    pub tags: Tags,
}

/// A network load balancer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadBalancer {
    /// Its name.
    pub name: String,
    /// Where clients find it.
    pub dns_name: String,
    /// `internet-facing` or `internal`.
    pub scheme: String,
    /// The VPC it is in.
    pub vpc: String,
    /// `provisioning`, `active` and so on.
    pub state: String,
    /// `ipv4` or `dualstack`.
    pub ip_address_type: String,
    /// Whether UDP goes with IPv6, by addresses of its own.
    pub source_nat_prefixes: bool,
    /// Its subnets, and where it is in each.
    pub subnets: BTreeMap<String, Placement>,
    /// Its groups.
    pub groups: BTreeSet<String>,
    /// Whether it was made with groups. If not, it never gets any.
    pub made_with_groups: bool,
    /// Whether groups count for what comes by private links.
    pub enforces_private_links: bool,
    /// Its attributes.
    pub attributes: BTreeMap<String, String>,
    /// What is written on it.
    pub tags: Tags,
    /// Its listeners, by ARN.
    pub listeners: BTreeMap<String, Listener>,
    /// When it was made, in seconds since 1970.
    pub created: u64,
}

/// Where a load balancer is in a subnet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Placement {
    /// By an elastic address.
    pub allocation: Option<String>,
    /// By an address of the subnet.
    pub private_address: Option<IpAddr>,
}

/// A port of a load balancer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listener {
    /// Its port.
    pub port: u16,
    /// `TCP`, `UDP`, `TCP_UDP` or `TLS`.
    pub protocol: String,
    /// Where it sends to, by ARN.
    pub target_group: String,
    /// Its certificate; only for TLS.
    pub certificate: Option<String>,
    /// The rules of TLS; only for TLS.
    pub policy: Option<String>,
    /// What is agreed on within TLS.
    pub alpn: Option<String>,
    /// What is written on it.
    pub tags: Tags,
}

/// Where listeners send to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetGroup {
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
    /// Its attributes.
    pub attributes: BTreeMap<String, String>,
    /// What is written on it.
    pub tags: Tags,
    /// Who is sent to.
    pub targets: BTreeMap<TargetId, Target>,
}

/// How targets are checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HealthCheck {
    /// `TCP`, `HTTP` or `HTTPS`.
    pub protocol: String,
    /// A port, or `traffic-port`.
    pub port: String,
    /// Only for HTTP and HTTPS.
    pub path: Option<String>,
    /// Which codes are good; only for HTTP and HTTPS.
    pub matcher: Option<String>,
    /// Seconds between two checks.
    pub interval: i32,
    /// Seconds to wait for an answer.
    pub timeout: i32,
    /// After so many good ones a target is healthy.
    pub healthy: i32,
    /// After so many bad ones it is not.
    pub unhealthy: i32,
}

/// What tells a target apart.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TargetId {
    /// `i-…`, or an address.
    pub id: String,
    /// Its port.
    pub port: u16,
}

/// Someone who is sent to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// The zone, for an address.
    pub zone: Option<String>,
    /// `unused`, `initial`, `healthy`, `unhealthy` or `draining`.
    pub health: String,
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Peer::Range(range) => write!(f, "{range}"),
            Peer::Group(id) | Peer::PrefixList(id) => f.write_str(id),
        }
    }
}

/// `tcp 80-443 10.0.0.0/8`
impl fmt::Display for Permission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.protocol)?;
        if let (Some(from), Some(to)) = (self.from, self.to) {
            write!(f, " {from}-{to}")?;
        }
        write!(f, " {}", self.peer)
    }
}

impl Permission {
    /// All traffic from or to someone.
    pub fn all(peer: Peer) -> Self {
        Permission { protocol: "-1".to_owned(), from: None, to: None, peer }
    }
}

impl SecurityGroup {
    /// A new group: it lets nothing in and everything out.
    pub(crate) fn new(
        name: &str,
        description: &str,
        vpc: &str,
        network: &Vpc,
        mut id: impl FnMut() -> String,
    ) -> Self {
        let everywhere = ["0.0.0.0/0", "::/0"].into_iter().take(if network.range6.is_some() { 2 } else { 1 });
        let egress = everywhere
            .filter_map(|range| range.parse().ok())
            .map(|range| (Permission::all(Peer::Range(range)), Rule { id: id(), ..Rule::default() }));
        SecurityGroup {
            name: name.to_owned(),
            description: description.to_owned(),
            vpc: vpc.to_owned(),
            tags: Tags::new(),
            ingress: BTreeMap::new(),
            egress: egress.collect(),
        }
    }

    /// What it lets in, as text.
    pub fn lets_in(&self) -> Vec<String> {
        self.ingress.keys().map(ToString::to_string).collect()
    }

    /// What it lets out, as text.
    pub fn lets_out(&self) -> Vec<String> {
        self.egress.keys().map(ToString::to_string).collect()
    }
}

/// The part of an id that makes it one of its own.
fn tail(id: &str) -> &str {
    id.split_once('-').map_or(id, |(_, tail)| tail)
}

/// What is wrong with a world that is to be filled is wrong with the test: these panic.
impl World {
    /// Adds a network, with the group that every network has. Its group's id ends as its own.
    pub fn add_vpc(&mut self, id: &str, range: &str, ipv6: bool) -> &mut Vpc {
        let number = u32::try_from(self.vpcs.len()).unwrap_or(u32::MAX);
        let range6 = ipv6.then(|| parsed(&format!("2001:db8:{number:x}::/56")));
        let vpc = Vpc { range: parsed(range), range6, tags: Tags::new() };
        let group = format!("sg-{}", tail(id));
        let mut number = 0;
        let mut rules = || {
            number += 1;
            format!("sgr-{}{number}", tail(id))
        };
        let own = Rule { id: rules(), ..Rule::default() };
        let mut default = SecurityGroup::new("default", "default VPC security group", id, &vpc, rules);
        default.ingress.insert(Permission::all(Peer::Group(group.clone())), own);
        self.groups.insert(group, default);
        self.vpcs.entry(id.to_owned()).insert_entry(vpc).into_mut()
    }

    /// Adds a subnet to a network.
    pub fn add_subnet(&mut self, id: &str, vpc: &str, zone: &str, range: &str, ipv6: bool) -> &mut Subnet {
        let network = self.vpcs.get(vpc).unwrap_or_else(|| panic!("there is no {vpc}"));
        let number = u8::try_from(self.subnets.len()).unwrap_or(u8::MAX);
        let whole = network.range6.filter(|_| ipv6);
        assert!(whole.is_some() == ipv6, "{vpc} has no IPv6");
        let range6 = whole.map(|whole| whole.part6(number));
        let (vpc, zone) = (vpc.to_owned(), zone.to_owned());
        let subnet = Subnet { vpc, zone, range: parsed(range), range6, tags: Tags::new() };
        self.subnets.entry(id.to_owned()).insert_entry(subnet).into_mut()
    }

    /// Adds a route table for some subnets, or for all that have none of their own where none is named.
    pub fn add_route_table(
        &mut self,
        id: &str,
        vpc: &str,
        subnets: &[&str],
        public: bool,
    ) -> &mut RouteTable {
        let main = subnets.is_empty();
        let subnets = subnets.iter().map(|&subnet| subnet.to_owned()).collect();
        let table = RouteTable { vpc: vpc.to_owned(), main, subnets, public, tags: Tags::new() };
        self.route_tables.entry(id.to_owned()).insert_entry(table).into_mut()
    }

    /// Adds a machine that runs, in some groups.
    pub fn add_instance(&mut self, id: &str, subnet: &str, groups: &[&str]) -> &mut Instance {
        let place = u32::try_from(self.instances.len() + 10).unwrap_or(u32::MAX);
        let found = self.subnets.get(subnet).unwrap_or_else(|| panic!("there is no {subnet}"));
        let address = found.range.nth(place);
        for group in groups {
            assert!(self.groups.contains_key(*group), "there is no {group}");
        }
        let groups = groups.iter().map(|&group| group.to_owned()).collect();
        let (subnet, state) = (subnet.to_owned(), "running".to_owned());
        let instance = Instance { subnet, address, state, groups, tags: Tags::new() };
        self.instances.entry(id.to_owned()).insert_entry(instance).into_mut()
    }

    /// Adds a group that lets nothing in and everything out.
    pub fn add_security_group(&mut self, id: &str, name: &str, vpc: &str) -> &mut SecurityGroup {
        let network = self.vpcs.get(vpc).unwrap_or_else(|| panic!("there is no {vpc}"));
        let mut number = 0;
        let rules = || {
            number += 1;
            format!("sgr-{}{number}", tail(id))
        };
        let group = SecurityGroup::new(name, name, vpc, network, rules);
        self.groups.entry(id.to_owned()).insert_entry(group).into_mut()
    }

    /// Adds a prefix list that counts for so many rules.
    pub fn add_prefix_list(&mut self, id: &str, entries: u32) {
        self.prefix_lists.insert(id.to_owned(), entries);
    }

    /// Adds a certificate.
    pub fn add_certificate(&mut self, arn: &str) {
        self.certificates.insert(arn.to_owned());
    }

    /// Adds an elastic address.
    pub fn add_elastic_address(&mut self, allocation: &str, address: IpAddr) {
        self.elastic_addresses.insert(allocation.to_owned(), address);
    }

    /// The load balancer of that name.
    pub fn load_balancer(&mut self, name: &str) -> Option<&mut LoadBalancer> {
        self.load_balancers.values_mut().find(|found| found.name == name)
    }

    /// The target group of that name.
    pub fn target_group(&mut self, name: &str) -> Option<&mut TargetGroup> {
        self.target_groups.values_mut().find(|found| found.name == name)
    }

    /// The security group of that name.
    pub fn group(&mut self, name: &str) -> Option<&mut SecurityGroup> {
        self.groups.values_mut().find(|found| found.name == name)
    }

    /// The load balancers that send to a target group.
    pub(crate) fn users(&self, target_group: &str) -> impl Iterator<Item = (&String, &LoadBalancer)> {
        self.load_balancers.iter().filter(move |(_, found)| {
            found.listeners.values().any(|listener| listener.target_group == target_group)
        })
    }

    /// The zone of a target, and whether it can be sent to at all.
    pub(crate) fn zone_of(&self, target: &TargetId) -> Option<&str> {
        let instance = self.instances.get(&target.id)?;
        self.subnets.get(&instance.subnet).map(|subnet| subnet.zone.as_str())
    }

    /// Whether anybody has a group, or names it.
    pub(crate) fn is_group_needed(&self, id: &str) -> bool {
        let named = |rules: &BTreeMap<Permission, Rule>| {
            rules.keys().any(|permission| permission.peer == Peer::Group(id.to_owned()))
        };
        self.instances.values().any(|instance| instance.groups.contains(id))
            || self.load_balancers.values().any(|found| found.groups.contains(id))
            || self.lingering.values().any(|groups| groups.contains(id))
            || self
                .groups
                .iter()
                .any(|(other, group)| other != id && (named(&group.ingress) || named(&group.egress)))
    }
}

fn parsed(range: &str) -> Range {
    range.parse().unwrap_or_else(|error| panic!("{error}"))
}
