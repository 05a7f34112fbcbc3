//! What is there without having been made by calls.

use std::collections::BTreeSet;

use crate::refusal::Refusal;
use crate::request::Request;
use crate::world::World;
use crate::{Config, Tags, xml};

use super::page::{Filters, Page};
use super::{invalid, is_id};

/// Tags, as everything of EC2 has them.
pub(super) fn tag_set(tags: &Tags) -> String {
    xml::items("tagSet", tags.iter().map(|(key, value)| xml::leaf("key", key) + &xml::leaf("value", value)))
}

/// Ids that are asked for have to be there.
fn all_there<T>(
    ids: &[String],
    known: &std::collections::BTreeMap<String, T>,
    kind: &str,
    word: &str,
) -> Result<(), Refusal> {
    for id in ids {
        if !is_id(id, kind) {
            return Err(Refusal::new(&format!("{word}.Malformed"), format!("Invalid id: \"{id}\"")));
        }
        if !known.contains_key(id) {
            return Err(Refusal::new(&format!("{word}.NotFound"), format!("The ID '{id}' does not exist")));
        }
    }
    Ok(())
}

fn wanted(ids: &[String], id: &String) -> bool {
    ids.is_empty() || ids.contains(id)
}

fn one(value: &(impl ToString + ?Sized)) -> Vec<String> {
    vec![value.to_string()]
}

pub(super) fn instances(world: &World, config: &Config, mut request: Request) -> Result<String, Refusal> {
    let ids = request.list("InstanceId")?;
    let known = [
        "availability-zone",
        "instance-id",
        "instance-state-name",
        "instance.group-id",
        "network-interface.group-id",
        "private-dns-name",
        "private-ip-address",
        "subnet-id",
        "vpc-id",
    ];
    let filters = Filters::take(&mut request, &known)?;
    let page = Page::take(&mut request, 5..=1000)?;
    request.end()?;
    if page.has_size() && !ids.is_empty() {
        let message = "The parameter instancesSet cannot be used with the parameter maxResults";
        return Err(Refusal::new("InvalidParameterCombination", message));
    }
    all_there(&ids, &world.instances, "i", "InvalidInstanceID")?;
    let dns = |instance: &crate::Instance| {
        format!(
            "ip-{}.{}.compute.internal",
            instance.address.to_string().replace(['.', ':'], "-"),
            config.region
        )
    };
    let found = world.instances.iter().filter(|(id, instance)| {
        let subnet = world.subnets.get(&instance.subnet);
        wanted(&ids, id)
            && filters.match_with(&instance.tags, |name| match name {
                "instance-id" => one(id),
                "instance-state-name" => one(&instance.state),
                "subnet-id" => one(&instance.subnet),
                "private-ip-address" => one(&instance.address),
                "private-dns-name" => one(&dns(instance)),
                "instance.group-id" | "network-interface.group-id" => {
                    instance.groups.iter().cloned().collect()
                }
                "vpc-id" => subnet.map(|subnet| subnet.vpc.clone()).into_iter().collect(),
                _ => subnet.map(|subnet| subnet.zone.clone()).into_iter().collect(),
            })
    });
    let (part, token) = page.cut(found.map(|(id, instance)| (id.clone(), instance)), Some(1000));
    let reservations = part.into_iter().map(|(id, instance)| {
        let subnet = world.subnets.get(&instance.subnet);
        let groups = || {
            xml::items(
                "groupSet",
                instance.groups.iter().map(|group| {
                    let name = world.groups.get(group).map_or("", |group| group.name.as_str());
                    xml::leaf("groupId", group) + &xml::leaf("groupName", name)
                }),
            )
        };
        let code = match instance.state.as_str() {
            "pending" => 0,
            "running" => 16,
            "shutting-down" => 32,
            "terminated" => 48,
            "stopping" => 64,
            _ => 80,
        };
        let vpc = subnet.map_or("", |subnet| subnet.vpc.as_str());
        let interface = xml::leaf("networkInterfaceId", id.replacen("i-", "eni-", 1))
            + &xml::leaf("subnetId", &instance.subnet)
            + &xml::leaf("vpcId", vpc)
            + &xml::leaf("status", "in-use")
            + &xml::leaf("privateIpAddress", instance.address)
            + &groups()
            + &xml::node("attachment", xml::leaf("deviceIndex", 0) + &xml::leaf("status", "attached"));
        let inner = xml::leaf("instanceId", &id)
            + &xml::node("instanceState", xml::leaf("code", code) + &xml::leaf("name", &instance.state))
            + &xml::leaf("privateDnsName", dns(instance))
            + &xml::leaf("instanceType", "m5.large")
            + &xml::node(
                "placement",
                xml::leaf("availabilityZone", subnet.map_or("", |found| found.zone.as_str())),
            )
            + &xml::leaf("subnetId", &instance.subnet)
            + &xml::leaf("vpcId", vpc)
            + &xml::leaf("privateIpAddress", instance.address)
            + &groups()
            + &tag_set(&instance.tags)
            + &xml::items("networkInterfaceSet", [interface]);
        xml::leaf("reservationId", id.replacen("i-", "r-", 1))
            + &xml::leaf("ownerId", &config.account)
            + &xml::items("groupSet", [])
            + &xml::items("instancesSet", [inner])
    });
    Ok(xml::items("reservationSet", reservations) + &token)
}

pub(super) fn subnets(world: &World, config: &Config, mut request: Request) -> Result<String, Refusal> {
    let ids = request.list("SubnetId")?;
    let known = ["availability-zone", "availabilityZone", "cidr-block", "state", "subnet-id", "vpc-id"];
    let filters = Filters::take(&mut request, &known)?;
    let page = Page::take(&mut request, 5..=1000)?;
    request.end()?;
    all_there(&ids, &world.subnets, "subnet", "InvalidSubnetID")?;
    let found = world.subnets.iter().filter(|(id, subnet)| {
        wanted(&ids, id)
            && filters.match_with(&subnet.tags, |name| match name {
                "subnet-id" => one(id),
                "vpc-id" => one(&subnet.vpc),
                "cidr-block" => one(&subnet.range),
                "state" => one("available"),
                _ => one(&subnet.zone),
            })
    });
    let (part, token) = page.cut(found.map(|(id, subnet)| (id.clone(), subnet)), Some(1000));
    let entries = part.into_iter().map(|(id, subnet)| {
        let range6 = subnet.range6.iter().map(|range| association6(&id, range));
        xml::leaf("subnetId", &id)
            + &xml::leaf("subnetArn", format!("arn:aws:ec2:{}:{}:subnet/{id}", config.region, config.account))
            + &xml::leaf("state", "available")
            + &xml::leaf("ownerId", &config.account)
            + &xml::leaf("vpcId", &subnet.vpc)
            + &xml::leaf("cidrBlock", subnet.range)
            + &xml::items("ipv6CidrBlockAssociationSet", range6)
            + &xml::leaf("availableIpAddressCount", 200)
            + &xml::leaf("availabilityZone", &subnet.zone)
            + &xml::leaf("availabilityZoneId", zone_id(&subnet.zone))
            + &xml::leaf("defaultForAz", false)
            + &xml::leaf("mapPublicIpOnLaunch", false)
            + &tag_set(&subnet.tags)
    });
    Ok(xml::items("subnetSet", entries) + &token)
}

fn association6(id: &str, range: &crate::Range) -> String {
    xml::leaf("ipv6CidrBlock", range)
        + &xml::leaf("associationId", format!("cidr-assoc-{id}"))
        + &xml::node("ipv6CidrBlockState", xml::leaf("state", "associated"))
}

pub(super) fn route_tables(world: &World, config: &Config, mut request: Request) -> Result<String, Refusal> {
    let ids = request.list("RouteTableId")?;
    let known = ["association.main", "association.subnet-id", "route-table-id", "vpc-id"];
    let filters = Filters::take(&mut request, &known)?;
    let page = Page::take(&mut request, 5..=100)?;
    request.end()?;
    all_there(&ids, &world.route_tables, "rtb", "InvalidRouteTableID")?;
    let found = world.route_tables.iter().filter(|(id, table)| {
        wanted(&ids, id)
            && filters.match_with(&table.tags, |name| match name {
                "route-table-id" => one(id),
                "vpc-id" => one(&table.vpc),
                "association.main" => one(&table.main),
                _ => table.subnets.iter().cloned().collect(),
            })
    });
    let (part, token) = page.cut(found.map(|(id, table)| (id.clone(), table)), Some(100));
    let entries = part.into_iter().map(|(id, table)| {
        let association = |subnet: Option<&String>| {
            xml::leaf("routeTableAssociationId", format!("rtbassoc-{id}"))
                + &xml::leaf("routeTableId", &id)
                + &xml::leaf_some("subnetId", subnet)
                + &xml::leaf("main", subnet.is_none())
                + &xml::node("associationState", xml::leaf("state", "associated"))
        };
        let main = table.main.then(|| association(None));
        let associations =
            main.into_iter().chain(table.subnets.iter().map(|subnet| association(Some(subnet))));
        let route = |to: String, gateway: &str, origin: &str| {
            xml::leaf("destinationCidrBlock", to)
                + &xml::leaf("gatewayId", gateway)
                + &xml::leaf("state", "active")
                + &xml::leaf("origin", origin)
        };
        let network = world.vpcs.get(&table.vpc).map(|vpc| vpc.range.to_string()).unwrap_or_default();
        let local = route(network, "local", "CreateRouteTable");
        let gateway = id.replacen("rtb-", "igw-", 1);
        let out = table.public.then(|| route("0.0.0.0/0".to_owned(), &gateway, "CreateRoute"));
        xml::leaf("routeTableId", &id)
            + &xml::leaf("vpcId", &table.vpc)
            + &xml::leaf("ownerId", &config.account)
            + &xml::items("routeSet", [local].into_iter().chain(out))
            + &xml::items("associationSet", associations)
            + &xml::items("propagatingVgwSet", [])
            + &tag_set(&table.tags)
    });
    Ok(xml::items("routeTableSet", entries) + &token)
}

/// `eu-central-1a` is `az1`, more or less.
fn zone_id(zone: &str) -> String {
    let number = zone.bytes().last().map_or(1, |letter| letter.wrapping_sub(b'a').wrapping_add(1));
    format!("fake-az{number}")
}

pub(super) fn zones(world: &World, config: &Config, mut request: Request) -> Result<String, Refusal> {
    let names = request.list("ZoneName")?;
    let zone_ids = request.list("ZoneId")?;
    let _ = request.flag("AllAvailabilityZones")?;
    let filters =
        Filters::take(&mut request, &["region-name", "state", "zone-id", "zone-name", "zone-type"])?;
    request.end()?;
    let usual = ["a", "b", "c"].map(|letter| format!("{}{letter}", config.region));
    let zones: BTreeSet<String> =
        world.subnets.values().map(|subnet| subnet.zone.clone()).chain(usual).collect();
    if let Some(unknown) = names.iter().find(|name| !zones.contains(*name)) {
        return Err(invalid(format!("Invalid availability zone: [{unknown}]")));
    }
    let found = zones.iter().filter(|zone| {
        wanted(&names, zone)
            && wanted(&zone_ids, &zone_id(zone))
            && filters.match_with(&Tags::new(), |name| match name {
                "region-name" => one(&config.region),
                "state" => one("available"),
                "zone-id" => one(&zone_id(zone)),
                "zone-type" => one("availability-zone"),
                _ => one(zone),
            })
    });
    let entries = found.map(|zone| {
        xml::leaf("zoneName", zone)
            + &xml::leaf("zoneId", zone_id(zone))
            + &xml::leaf("zoneState", "available")
            + &xml::leaf("zoneType", "availability-zone")
            + &xml::leaf("optInStatus", "opt-in-not-required")
            + &xml::leaf("regionName", &config.region)
            + &xml::leaf("groupName", &config.region)
            + &xml::leaf("networkBorderGroup", &config.region)
            + &xml::items("messageSet", [])
    });
    Ok(xml::items("availabilityZoneInfo", entries))
}

pub(super) fn vpcs(world: &World, config: &Config, mut request: Request) -> Result<String, Refusal> {
    let ids = request.list("VpcId")?;
    let filters = Filters::take(&mut request, &["cidr", "state", "vpc-id"])?;
    let page = Page::take(&mut request, 5..=1000)?;
    request.end()?;
    all_there(&ids, &world.vpcs, "vpc", "InvalidVpcID")?;
    let found = world.vpcs.iter().filter(|(id, vpc)| {
        wanted(&ids, id)
            && filters.match_with(&vpc.tags, |name| match name {
                "vpc-id" => one(id),
                "state" => one("available"),
                _ => one(&vpc.range),
            })
    });
    let (part, token) = page.cut(found.map(|(id, vpc)| (id.clone(), vpc)), Some(1000));
    let entries = part.into_iter().map(|(id, vpc)| {
        let range = xml::leaf("cidrBlock", vpc.range)
            + &xml::leaf("associationId", format!("vpc-cidr-assoc-{id}"))
            + &xml::node("cidrBlockState", xml::leaf("state", "associated"));
        let range6 = vpc.range6.iter().map(|range| association6(&id, range));
        xml::leaf("vpcId", &id)
            + &xml::leaf("ownerId", &config.account)
            + &xml::leaf("state", "available")
            + &xml::leaf("cidrBlock", vpc.range)
            + &xml::items("cidrBlockAssociationSet", [range])
            + &xml::items("ipv6CidrBlockAssociationSet", range6)
            + &xml::leaf("dhcpOptionsId", "default")
            + &xml::leaf("instanceTenancy", "default")
            + &xml::leaf("isDefault", false)
            + &tag_set(&vpc.tags)
    });
    Ok(xml::items("vpcSet", entries) + &token)
}
