//! Load balancers.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use crate::machine::{Event, Machine};
use crate::refusal::Refusal;
use crate::request::Request;
use crate::world::{LoadBalancer, Placement, World};
use crate::{Config, clock, xml};

use super::page::Page;
use super::{Kind, arn, arns, attributes, check_name, impossible, invalid, tags};

/// When the first object was made, in seconds since 1970; each further one a second later.
const EPOCH: u64 = 1_767_225_600;

/// So many groups has an interface at most.
const GROUPS: usize = 5;

pub(super) fn describe(world: &World, config: &Config, mut request: Request) -> Result<String, Refusal> {
    let arns = arns(&mut request, "LoadBalancerArns", Kind::LoadBalancer)?;
    let names = request.list("Names")?;
    let page = Page::take(&mut request)?;
    request.end()?;
    if !arns.is_empty() && !names.is_empty() {
        return Err(invalid("Load balancer names and ARNs cannot be specified at the same time"));
    }
    if arns.len() > 20 || names.len() > 20 {
        return Err(invalid("Up to '20' load balancers can be specified"));
    }
    for arn in &arns {
        world.load_balancers.get(arn).ok_or_else(|| Kind::LoadBalancer.not_found(arn))?;
    }
    for name in &names {
        if !world.load_balancers.values().any(|found| found.name == *name) {
            return Err(Refusal::new("LoadBalancerNotFound", "One or more load balancers not found"));
        }
    }
    let found = world.load_balancers.iter().filter(|(arn, found)| {
        (arns.is_empty() || arns.contains(arn)) && (names.is_empty() || names.contains(&found.name))
    });
    let (part, next) = page.cut(found);
    let entries = part.into_iter().map(|(arn, found)| told(world, config, arn, found));
    Ok(xml::members("LoadBalancers", entries) + &next)
}

fn zones(world: &World, found: &LoadBalancer) -> String {
    let zones = found.subnets.iter().map(|(id, placement)| {
        let zone = world.subnets.get(id).map_or("", |subnet| subnet.zone.as_str());
        let elastic = placement.allocation.as_ref().map(|allocation| {
            let address = world.elastic_addresses.get(allocation);
            xml::leaf_some("IpAddress", address) + &xml::leaf("AllocationId", allocation)
        });
        let private = placement.private_address.map(|address| xml::leaf("PrivateIPv4Address", address));
        xml::leaf("ZoneName", zone)
            + &xml::leaf("SubnetId", id)
            + &xml::members("LoadBalancerAddresses", elastic.into_iter().chain(private))
    });
    xml::members("AvailabilityZones", zones)
}

fn told(world: &World, config: &Config, arn: &str, found: &LoadBalancer) -> String {
    let private_links =
        found.made_with_groups.then_some(if found.enforces_private_links { "on" } else { "off" });
    let groups = if found.groups.is_empty() {
        String::new()
    } else {
        xml::members("SecurityGroups", found.groups.iter().map(|group| xml::escaped(group)))
    };
    xml::leaf("LoadBalancerArn", arn)
        + &xml::leaf("LoadBalancerName", &found.name)
        + &xml::leaf("DNSName", &found.dns_name)
        + &xml::leaf(
            "CanonicalHostedZoneId",
            format!("Z{}FAKE", config.region.to_uppercase().replace('-', "")),
        )
        + &xml::leaf("CreatedTime", clock::extended(found.created))
        + &xml::leaf("Scheme", &found.scheme)
        + &xml::leaf("VpcId", &found.vpc)
        + &xml::node("State", xml::leaf("Code", &found.state))
        + &xml::leaf("Type", "network")
        + &zones(world, found)
        + &groups
        + &xml::leaf("IpAddressType", &found.ip_address_type)
        + &xml::leaf_some("EnforceSecurityGroupInboundRulesOnPrivateLinkTraffic", private_links)
        + &xml::leaf("EnablePrefixForIpv6SourceNat", if found.source_nat_prefixes { "on" } else { "off" })
}

/// Takes the subnets of a request: plain, or each with an address.
fn take_subnets(request: &mut Request) -> Result<Vec<(String, Placement)>, Refusal> {
    let plain = request.list("Subnets")?;
    let mut subnets = Vec::new();
    for mut mapping in request.structures("SubnetMappings")? {
        let id = mapping.needed("SubnetId")?;
        let allocation = mapping.text("AllocationId")?;
        let address = mapping.text("PrivateIPv4Address")?;
        mapping.end()?;
        let parsed = |text: String| match text.parse::<IpAddr>() {
            Ok(address) if address.is_ipv4() => Ok(address),
            _ => Err(invalid(format!("'{text}' is not a valid IPv4 address"))),
        };
        let private_address = address.map(parsed).transpose()?;
        subnets.push((id, Placement { allocation, private_address }));
    }
    if !plain.is_empty() && !subnets.is_empty() {
        return Err(invalid("Subnets and subnet mappings cannot be specified at the same time"));
    }
    subnets.extend(plain.into_iter().map(|id| (id, Placement::default())));
    if subnets.is_empty() {
        return Err(invalid("At least one subnet must be specified"));
    }
    Ok(subnets)
}

/// Checks the subnets of a load balancer, which may be there already; the VPC they are in.
fn check_subnets(
    world: &World,
    subnets: &[(String, Placement)],
    scheme: &str,
    ip_address_type: &str,
    known: Option<(&str, &LoadBalancer)>,
) -> Result<String, Refusal> {
    let (mut zones, mut vpcs) = (BTreeSet::new(), BTreeSet::new());
    for (id, placement) in subnets {
        let subnet = world
            .subnets
            .get(id)
            .ok_or_else(|| Refusal::new("SubnetNotFound", format!("The subnet ID '{id}' does not exist")))?;
        vpcs.insert(subnet.vpc.clone());
        if !zones.insert(&subnet.zone) {
            let message =
                "A load balancer cannot be attached to multiple subnets in the same Availability Zone";
            return Err(impossible(message));
        }
        if ip_address_type == "dualstack" && subnet.range6.is_none() {
            let message =
                format!("You must specify subnets with an associated IPv6 CIDR block: '{id}' has none");
            return Err(impossible(message));
        }
        check_placement(world, placement, subnet.range, scheme, known)?;
    }
    let elastic = subnets.iter().filter(|(_, placement)| placement.allocation.is_some()).count();
    let private = subnets.iter().filter(|(_, placement)| placement.private_address.is_some()).count();
    if ![0, subnets.len()].contains(&elastic) || ![0, subnets.len()].contains(&private) {
        return Err(impossible("Either all subnets have an address, or none has"));
    }
    let unique: BTreeSet<_> =
        subnets.iter().filter_map(|(_, placement)| placement.allocation.as_ref()).collect();
    if unique.len() < elastic {
        return Err(Refusal::new("ResourceInUse", "An allocation ID is given twice"));
    }
    let vpc = vpcs.pop_first().unwrap_or_default();
    if !vpcs.is_empty() || known.is_some_and(|(_, known)| known.vpc != vpc) {
        return Err(impossible("All subnets must belong to the same VPC"));
    }
    let gateway = world.route_tables.values().any(|table| table.vpc == vpc && table.public);
    if scheme == "internet-facing" && !gateway {
        return Err(Refusal::new("InvalidSubnet", format!("VPC {vpc} has no internet gateway")));
    }
    Ok(vpc)
}

fn check_placement(
    world: &World,
    placement: &Placement,
    range: crate::Range,
    scheme: &str,
    known: Option<(&str, &LoadBalancer)>,
) -> Result<(), Refusal> {
    let others = || {
        let all = world.load_balancers.iter().filter(|(arn, _)| known.is_none_or(|(known, _)| known != *arn));
        all.flat_map(|(_, found)| found.subnets.values())
    };
    if let Some(allocation) = &placement.allocation {
        if scheme != "internet-facing" {
            return Err(impossible("An internal load balancer cannot have an Elastic IP address"));
        }
        if !world.elastic_addresses.contains_key(allocation) {
            let message = format!("The allocation ID '{allocation}' does not exist");
            return Err(Refusal::new("AllocationIdNotFound", message));
        }
        if others().any(|other| other.allocation.as_ref() == Some(allocation)) {
            return Err(Refusal::new("ResourceInUse", format!("The allocation ID '{allocation}' is in use")));
        }
    }
    if let Some(address) = placement.private_address {
        if scheme != "internal" {
            return Err(impossible("A private address can be specified for internal load balancers only"));
        }
        if !range.contains(address) || range.is_reserved(address) {
            return Err(impossible(format!("The address {address} cannot be had in the subnet {range}")));
        }
        let machines = world.instances.values().any(|instance| instance.address == address);
        if machines || others().any(|other| other.private_address == Some(address)) {
            return Err(Refusal::new("ResourceInUse", format!("The address {address} is in use")));
        }
    }
    Ok(())
}

/// Checks the groups of a load balancer.
fn check_groups(world: &World, groups: &BTreeSet<String>, vpc: &str) -> Result<(), Refusal> {
    if groups.len() > GROUPS {
        return Err(impossible("The maximum number of security groups per load balancer has been reached."));
    }
    for id in groups {
        let Some(group) = world.groups.get(id) else {
            let message = format!("The security group '{id}' does not exist");
            return Err(Refusal::new("InvalidSecurityGroup", message));
        };
        if group.vpc != vpc {
            return Err(impossible("One or more security groups are invalid"));
        }
    }
    Ok(())
}

pub(super) fn create(machine: &mut Machine, mut request: Request) -> Result<String, Refusal> {
    let config = machine.config.clone();
    let name = request.needed("Name")?;
    check_name(&name, "Load balancer")?;
    let kind = request.choice("Type", &["application", "network", "gateway"])?;
    let scheme = request.choice("Scheme", &["internet-facing", "internal"])?;
    let scheme = scheme.unwrap_or_else(|| "internet-facing".to_owned());
    let types = ["ipv4", "dualstack", "dualstack-without-public-ipv4"];
    let ip_address_type = request.choice("IpAddressType", &types)?.unwrap_or_else(|| "ipv4".to_owned());
    let source_nat_prefixes = request.choice("EnablePrefixForIpv6SourceNat", &["on", "off"])?;
    let source_nat_prefixes = source_nat_prefixes.as_deref() == Some("on");
    let subnets = take_subnets(&mut request)?;
    let groups: BTreeSet<String> = request.list("SecurityGroups")?.into_iter().collect();
    let tags = tags::take(&mut request)?;
    request.end()?;
    if kind.as_deref() != Some("network") {
        return Err(impossible("Only load balancers of type 'network' are faked"));
    }
    if ip_address_type == types[2] {
        return Err(invalid(format!(
            "The IP address type '{ip_address_type}' is for application load balancers"
        )));
    }
    if source_nat_prefixes && ip_address_type != "dualstack" {
        return Err(impossible("Prefixes for source NAT need the IP address type 'dualstack'"));
    }
    let world = &machine.moment.world;
    let known = world.load_balancers.iter().find(|(_, found)| found.name == name);
    let known_arn = known.map(|(arn, found)| (arn.as_str(), found));
    let vpc = check_subnets(world, &subnets, &scheme, &ip_address_type, known_arn)?;
    check_groups(world, &groups, &vpc)?;
    let subnets: BTreeMap<String, Placement> = subnets.into_iter().collect();
    if let Some((arn, found)) = known {
        // What is written on it is no setting: who made it cannot be told from the answer.
        let same = found.scheme == scheme
            && found.ip_address_type == ip_address_type
            && found.source_nat_prefixes == source_nat_prefixes
            && found.subnets == subnets
            && found.groups == groups;
        if same {
            return Ok(xml::members("LoadBalancers", [told(world, &config, arn, found)]));
        }
        let message =
            format!("A load balancer with the same name '{name}' exists, but with different settings");
        return Err(Refusal::new("DuplicateLoadBalancerName", message));
    }
    if world.load_balancers.len() >= config.quotas.load_balancers {
        return Err(Refusal::new(
            "TooManyLoadBalancers",
            "The maximum number of load balancers has been reached",
        ));
    }
    let id = machine.number();
    let found = LoadBalancer {
        dns_name: format!("{name}-{id:016x}.elb.{}.amazonaws.com", config.region),
        attributes: attributes::usual_of_load_balancer(&scheme),
        scheme,
        vpc,
        state: "provisioning".to_owned(),
        ip_address_type,
        source_nat_prefixes,
        subnets,
        made_with_groups: !groups.is_empty(),
        enforces_private_links: true,
        groups,
        tags,
        listeners: BTreeMap::new(),
        created: EPOCH + machine.count(),
        name,
    };
    let arn = format!(
        "arn:aws:elasticloadbalancing:{}:{}:loadbalancer/net/{}/{id:016x}",
        config.region, config.account, found.name
    );
    let answer = told(&machine.moment.world, &config, &arn, &found);
    machine.moment.world.load_balancers.insert(arn.clone(), found);
    machine.later(config.provisioning, Event::Active(arn));
    Ok(xml::members("LoadBalancers", [answer]))
}

pub(super) fn delete(machine: &mut Machine, mut request: Request) -> Result<String, Refusal> {
    let arn = arn(&mut request, "LoadBalancerArn", Kind::LoadBalancer)?;
    request.end()?;
    let lingering = machine.config.lingering;
    let world = &mut machine.moment.world;
    // One that is not there is deleted already.
    let Some(found) = world.load_balancers.get(&arn) else { return Ok(String::new()) };
    if found.attributes.get("deletion_protection.enabled").is_some_and(|value| value == "true") {
        let message =
            format!("Load balancer '{arn}' cannot be deleted because deletion protection is enabled");
        return Err(Refusal::new("OperationNotPermitted", message));
    }
    let Some(found) = world.load_balancers.remove(&arn) else { return Ok(String::new()) };
    world.lingering.insert(arn.clone(), found.groups);
    machine.later(lingering, Event::Released(arn));
    let groups: Vec<String> = found.listeners.into_values().map(|listener| listener.target_group).collect();
    machine.follow(Some(&groups));
    Ok(String::new())
}

pub(super) fn set_security_groups(machine: &mut Machine, mut request: Request) -> Result<String, Refusal> {
    let arn = arn(&mut request, "LoadBalancerArn", Kind::LoadBalancer)?;
    let groups: BTreeSet<String> = request.list("SecurityGroups")?.into_iter().collect();
    let enforce = request.choice("EnforceSecurityGroupInboundRulesOnPrivateLinkTraffic", &["on", "off"])?;
    request.end()?;
    let world = &mut machine.moment.world;
    let found = world.load_balancers.get(&arn).ok_or_else(|| Kind::LoadBalancer.not_found(&arn))?;
    if !found.made_with_groups {
        let message = format!(
            "You cannot perform this operation on a Network Load Balancer that was created without security groups: '{arn}'"
        );
        return Err(impossible(message));
    }
    if groups.is_empty() {
        return Err(invalid("At least one security group must be specified"));
    }
    check_groups(world, &groups, &found.vpc)?;
    let Some(found) = world.load_balancers.get_mut(&arn) else { return Ok(String::new()) };
    found.groups = groups;
    if let Some(enforce) = enforce {
        found.enforces_private_links = enforce == "on";
    }
    let word = if found.enforces_private_links { "on" } else { "off" };
    Ok(xml::members("SecurityGroupIds", found.groups.iter().map(|group| xml::escaped(group)))
        + &xml::leaf("EnforceSecurityGroupInboundRulesOnPrivateLinkTraffic", word))
}

pub(super) fn set_subnets(machine: &mut Machine, mut request: Request) -> Result<String, Refusal> {
    let arn = arn(&mut request, "LoadBalancerArn", Kind::LoadBalancer)?;
    let mut subnets = take_subnets(&mut request)?;
    let ip_address_type = request.choice("IpAddressType", &["ipv4", "dualstack"])?;
    let prefixes = request.choice("EnablePrefixForIpv6SourceNat", &["on", "off"])?;
    request.end()?;
    let world = &mut machine.moment.world;
    let found = world.load_balancers.get(&arn).ok_or_else(|| Kind::LoadBalancer.not_found(&arn))?;
    for (id, placement) in &mut subnets {
        // A subnet that stays keeps its address.
        if let Some(known) = found.subnets.get(id).filter(|_| *placement == Placement::default()) {
            *placement = known.clone();
        }
    }
    let kind = ip_address_type.unwrap_or_else(|| found.ip_address_type.clone());
    let prefixes = prefixes.map_or(found.source_nat_prefixes, |prefixes| prefixes == "on");
    check_subnets(world, &subnets, &found.scheme, &kind, Some((&arn, found)))?;
    check_datagrams(found, &kind, prefixes)?;
    let Some(found) = world.load_balancers.get_mut(&arn) else { return Ok(String::new()) };
    found.subnets = subnets.into_iter().collect();
    found.ip_address_type = kind;
    found.source_nat_prefixes = prefixes;
    let groups: Vec<String> =
        found.listeners.values().map(|listener| listener.target_group.clone()).collect();
    machine.follow(Some(&groups));
    let world = &machine.moment.world;
    let told = world
        .load_balancers
        .get(&arn)
        .map(|found| zones(world, found) + &xml::leaf("IpAddressType", &found.ip_address_type));
    Ok(told.unwrap_or_default())
}

/// UDP goes with IPv6 only where there are prefixes for it.
fn check_datagrams(found: &LoadBalancer, kind: &str, prefixes: bool) -> Result<(), Refusal> {
    let datagrams = found.listeners.values().any(|listener| listener.protocol.contains("UDP"));
    if datagrams && kind == "dualstack" && !prefixes {
        return Err(impossible("Listeners for UDP and TCP_UDP need the IP address type 'ipv4'"));
    }
    Ok(())
}

pub(super) fn set_ip_address_type(machine: &mut Machine, mut request: Request) -> Result<String, Refusal> {
    let arn = arn(&mut request, "LoadBalancerArn", Kind::LoadBalancer)?;
    let kind = request.choice("IpAddressType", &["ipv4", "dualstack"])?;
    let kind = kind.ok_or_else(|| request.missing("IpAddressType"))?;
    request.end()?;
    let world = &mut machine.moment.world;
    let found = world.load_balancers.get(&arn).ok_or_else(|| Kind::LoadBalancer.not_found(&arn))?;
    let subnets: Vec<_> = found.subnets.clone().into_iter().collect();
    check_subnets(world, &subnets, &found.scheme, &kind, Some((&arn, found)))?;
    check_datagrams(found, &kind, found.source_nat_prefixes)?;
    let six = found.listeners.values().filter_map(|listener| world.target_groups.get(&listener.target_group));
    if kind == "ipv4" && six.into_iter().any(|group| group.ip_address_type == "ipv6") {
        return Err(impossible("Target groups with the IP address type 'ipv6' need the type 'dualstack'"));
    }
    if let Some(found) = world.load_balancers.get_mut(&arn) {
        found.ip_address_type.clone_from(&kind);
    }
    Ok(xml::leaf("IpAddressType", kind))
}
