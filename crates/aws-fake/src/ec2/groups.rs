//! Security groups.

use std::collections::BTreeMap;

use crate::machine::Machine;
use crate::refusal::Refusal;
use crate::request::Request;
use crate::world::{Peer, Permission, Rule, SecurityGroup, World};
use crate::{Config, xml};

use super::describe::tag_set;
use super::page::{Filters, Page};
use super::tags::specified;
use super::{invalid, is_id, is_plain};

/// What nobody knows as a group.
pub(super) fn not_found(id: &str) -> Refusal {
    Refusal::new("InvalidGroup.NotFound", format!("The security group '{id}' does not exist"))
}

/// What cannot be the id of a group.
pub(super) fn check_id(id: &str) -> Result<(), Refusal> {
    if is_id(id, "sg") {
        return Ok(());
    }
    Err(Refusal::new("InvalidGroupId.Malformed", format!("Invalid id: \"{id}\" (expecting \"sg-...\")")))
}

pub(super) fn arn(config: &Config, id: &str) -> String {
    format!("arn:aws:ec2:{}:{}:security-group/{id}", config.region, config.account)
}

const FILTERS: &[&str] = &[
    "description",
    "egress.ip-permission.cidr",
    "egress.ip-permission.from-port",
    "egress.ip-permission.group-id",
    "egress.ip-permission.ipv6-cidr",
    "egress.ip-permission.prefix-list-id",
    "egress.ip-permission.protocol",
    "egress.ip-permission.to-port",
    "group-id",
    "group-name",
    "ip-permission.cidr",
    "ip-permission.from-port",
    "ip-permission.group-id",
    "ip-permission.ipv6-cidr",
    "ip-permission.prefix-list-id",
    "ip-permission.protocol",
    "ip-permission.to-port",
    "owner-id",
    "vpc-id",
];

pub(super) fn describe(world: &World, config: &Config, mut request: Request) -> Result<String, Refusal> {
    let ids = request.list("GroupId")?;
    let names = request.list("GroupName")?;
    let filters = Filters::take(&mut request, FILTERS)?;
    let page = Page::take(&mut request, 5..=1000)?;
    request.end()?;
    if !names.is_empty() {
        let message =
            "Groups of a VPC that is not the default one are not found by GroupName: filter by group-name";
        return Err(Refusal::new("InvalidParameterCombination", message));
    }
    for id in &ids {
        check_id(id)?;
        world.groups.get(id).ok_or_else(|| not_found(id))?;
    }
    let found = world.groups.iter().filter(|(id, group)| {
        (ids.is_empty() || ids.contains(id))
            && filters.match_with(&group.tags, |name| match name {
                "group-id" => vec![(*id).clone()],
                "group-name" => vec![group.name.clone()],
                "description" => vec![group.description.clone()],
                "vpc-id" => vec![group.vpc.clone()],
                "owner-id" => vec![config.account.clone()],
                other => match other.strip_prefix("egress.") {
                    Some(rest) => of_rules(&group.egress, rest),
                    None => of_rules(&group.ingress, other),
                },
            })
    });
    let (part, token) = page.cut(found.map(|(id, group)| (id.clone(), group)), None);
    let entries = part.into_iter().map(|(id, group)| {
        xml::leaf("groupId", &id)
            + &xml::leaf("groupName", &group.name)
            + &xml::leaf("groupDescription", &group.description)
            + &xml::leaf("vpcId", &group.vpc)
            + &xml::leaf("ownerId", &config.account)
            + &xml::leaf("securityGroupArn", arn(config, &id))
            + &xml::items("ipPermissions", permissions(&group.ingress, config))
            + &xml::items("ipPermissionsEgress", permissions(&group.egress, config))
            + &tag_set(&group.tags)
    });
    Ok(xml::items("securityGroupInfo", entries) + &token)
}

/// What rules have that a filter is about.
fn of_rules(rules: &BTreeMap<Permission, Rule>, name: &str) -> Vec<String> {
    let values = rules.keys().filter_map(|rule| match (name, &rule.peer) {
        ("ip-permission.cidr", Peer::Range(range)) => range.is_v4().then(|| range.to_string()),
        ("ip-permission.ipv6-cidr", Peer::Range(range)) => (!range.is_v4()).then(|| range.to_string()),
        ("ip-permission.group-id", Peer::Group(id))
        | ("ip-permission.prefix-list-id", Peer::PrefixList(id)) => Some(id.clone()),
        ("ip-permission.protocol", _) => Some(rule.protocol.clone()),
        ("ip-permission.from-port", _) => rule.from.map(|port| port.to_string()),
        ("ip-permission.to-port", _) => rule.to.map(|port| port.to_string()),
        _ => None,
    });
    values.collect()
}

/// Rules of the same protocol and ports are one entry.
fn permissions(rules: &BTreeMap<Permission, Rule>, config: &Config) -> Vec<String> {
    let mut joined: BTreeMap<_, [Vec<String>; 4]> = BTreeMap::new();
    for (permission, rule) in rules {
        let lists = joined.entry((&permission.protocol, permission.from, permission.to)).or_default();
        let (list, key, value) = match &permission.peer {
            Peer::Range(range) if range.is_v4() => (0, "cidrIp", range.to_string()),
            Peer::Range(range) => (1, "cidrIpv6", range.to_string()),
            Peer::Group(id) => (2, "groupId", id.clone()),
            Peer::PrefixList(id) => (3, "prefixListId", id.clone()),
        };
        let description = Some(&rule.description).filter(|text| !text.is_empty());
        let owner = (list == 2).then_some(&config.account);
        lists[list].push(
            xml::leaf(key, &value)
                + &xml::leaf_some("userId", owner)
                + &xml::leaf_some("description", description),
        );
    }
    let entries = joined.into_iter().map(|((protocol, from, to), [ranges, ranges6, groups, lists])| {
        xml::leaf("ipProtocol", protocol)
            + &xml::leaf_some("fromPort", from)
            + &xml::leaf_some("toPort", to)
            + &xml::items("groups", groups)
            + &xml::items("ipRanges", ranges)
            + &xml::items("ipv6Ranges", ranges6)
            + &xml::items("prefixListIds", lists)
    });
    entries.collect()
}

pub(super) fn create(machine: &mut Machine, mut request: Request) -> Result<String, Refusal> {
    let name = request.needed("GroupName")?;
    let description = request.needed("GroupDescription")?;
    let vpc = request.text("VpcId")?;
    let tags = specified(&mut request, "security-group")?;
    for (what, text) in [("GroupName", &name), ("GroupDescription", &description)] {
        if !is_plain(text) {
            return Err(invalid(format!(
                "Value ({text}) for parameter {what} is invalid. Character sets beyond ASCII are not supported."
            )));
        }
    }
    if name.starts_with("sg-") {
        return Err(invalid(format!(
            "Value ({name}) for parameter groupName is invalid. Group names may not be in the format sg-*."
        )));
    }
    if name.eq_ignore_ascii_case("default") {
        return Err(invalid("Cannot use reserved security group name: default"));
    }
    request.end()?;
    let vpc = vpc.ok_or_else(|| Refusal::new("VPCIdNotSpecified", "No default VPC for this user"))?;
    let world = &machine.moment.world;
    let Some(network) = world.vpcs.get(&vpc).cloned() else {
        return Err(Refusal::new("InvalidVpcID.NotFound", format!("The vpc ID '{vpc}' does not exist")));
    };
    let of_vpc = || world.groups.values().filter(|group| group.vpc == vpc);
    if of_vpc().any(|group| group.name == name) {
        let message = format!("The security group '{name}' already exists for VPC '{vpc}'");
        return Err(Refusal::new("InvalidGroup.Duplicate", message));
    }
    if of_vpc().count() >= machine.config.quotas.groups {
        let message = "The maximum number of security groups has been reached.";
        return Err(Refusal::new("SecurityGroupLimitExceeded", message));
    }
    let id = machine.id("sg");
    let mut group = SecurityGroup::new(&name, &description, &vpc, &network, || machine.id("sgr"));
    group.tags = tags;
    let answer = xml::leaf("return", true)
        + &xml::leaf("groupId", &id)
        + &tag_set(&group.tags)
        + &xml::leaf("securityGroupArn", arn(&machine.config, &id));
    machine.moment.world.groups.insert(id, group);
    Ok(answer)
}

pub(super) fn delete(machine: &mut Machine, mut request: Request) -> Result<String, Refusal> {
    let id = request.text("GroupId")?;
    let name = request.text("GroupName")?;
    if name.is_some() {
        return Err(invalid("A group of a VPC that is not the default one is deleted by GroupId"));
    }
    let id = id.ok_or_else(|| request.missing("GroupId"))?;
    check_id(&id)?;
    request.end()?;
    let world = &mut machine.moment.world;
    let group = world.groups.get(&id).ok_or_else(|| not_found(&id))?;
    if group.name == "default" {
        let message = format!("the specified group: \"{id}\" name: \"default\" cannot be deleted by a user");
        return Err(Refusal::new("CannotDelete", message));
    }
    if world.is_group_needed(&id) {
        return Err(Refusal::new("DependencyViolation", format!("resource {id} has a dependent object")));
    }
    world.groups.remove(&id);
    Ok(xml::leaf("return", true) + &xml::leaf("groupId", &id))
}
