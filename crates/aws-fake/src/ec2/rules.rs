//! Rules of security groups.

use std::collections::{BTreeMap, BTreeSet};

use crate::machine::Machine;
use crate::refusal::Refusal;
use crate::request::Request;
use crate::world::{Peer, Permission, Rule, SecurityGroup, World};
use crate::{Config, Range, Tags, xml};

use super::describe::tag_set;
use super::groups::{check_id, not_found};
use super::page::{Filters, Page};
use super::tags::specified;
use super::{invalid, is_id, is_plain};

fn rules(group: &SecurityGroup, egress: bool) -> &BTreeMap<Permission, Rule> {
    if egress { &group.egress } else { &group.ingress }
}

fn rules_mut(group: &mut SecurityGroup, egress: bool) -> &mut BTreeMap<Permission, Rule> {
    if egress { &mut group.egress } else { &mut group.ingress }
}

/// A rule as calls about rules tell it.
fn told(config: &Config, group: &str, egress: bool, permission: &Permission, rule: &Rule) -> String {
    let peer = match &permission.peer {
        Peer::Range(range) if range.is_v4() => xml::leaf("cidrIpv4", range),
        Peer::Range(range) => xml::leaf("cidrIpv6", range),
        Peer::PrefixList(id) => xml::leaf("prefixListId", id),
        Peer::Group(id) => {
            let info = xml::leaf("groupId", id) + &xml::leaf("userId", &config.account);
            xml::node("referencedGroupInfo", info)
        }
    };
    let (id, region, account) = (&rule.id, &config.region, &config.account);
    xml::leaf("securityGroupRuleId", id)
        + &xml::leaf("groupId", group)
        + &xml::leaf("groupOwnerId", account)
        + &xml::leaf("isEgress", egress)
        + &xml::leaf("ipProtocol", &permission.protocol)
        + &xml::leaf("fromPort", permission.from.unwrap_or(-1))
        + &xml::leaf("toPort", permission.to.unwrap_or(-1))
        + &peer
        + &xml::leaf_some("description", Some(&rule.description).filter(|text| !text.is_empty()))
        + &xml::leaf(
            "securityGroupRuleArn",
            format!("arn:aws:ec2:{region}:{account}:security-group-rule/{id}"),
        )
        + &tag_set(&rule.tags)
}

pub(super) fn describe(world: &World, config: &Config, mut request: Request) -> Result<String, Refusal> {
    let ids = request.list("SecurityGroupRuleId")?;
    let filters = Filters::take(&mut request, &["group-id", "security-group-rule-id"])?;
    let page = Page::take(&mut request, 5..=1000)?;
    request.end()?;
    let mut all = BTreeMap::new();
    for (id, group) in &world.groups {
        for egress in [false, true] {
            for (permission, rule) in rules(group, egress) {
                all.insert(rule.id.clone(), (id, egress, permission, rule));
            }
        }
    }
    if let Some(id) = ids.iter().find(|id| !all.contains_key(*id)) {
        return Err(rule_not_found(id));
    }
    let found = all.into_iter().filter(|(id, (group, _, _, rule))| {
        (ids.is_empty() || ids.contains(id))
            && filters.match_with(&rule.tags, |name| match name {
                "group-id" => vec![(*group).clone()],
                _ => vec![id.clone()],
            })
    });
    let (part, token) = page.cut(found, Some(1000));
    let entries = part
        .into_iter()
        .map(|(_, (group, egress, permission, rule))| told(config, group, egress, permission, rule));
    Ok(xml::items("securityGroupRuleSet", entries) + &token)
}

fn rule_not_found(id: &str) -> Refusal {
    let message = format!("The security group rule ID '{id}' does not exist");
    Refusal::new("InvalidSecurityGroupRuleId.NotFound", message)
}

/// A protocol, as AWS keeps it.
fn protocol(text: &str) -> Result<String, Refusal> {
    let lower = text.to_ascii_lowercase();
    let name = match lower.as_str() {
        "tcp" | "6" => "tcp",
        "udp" | "17" => "udp",
        "icmp" | "1" => "icmp",
        "icmpv6" | "58" => "icmpv6",
        "-1" | "all" => "-1",
        other => {
            let number = other.parse::<u8>().ok().filter(|_| !other.starts_with('+'));
            let unknown = || invalid(format!("Invalid value '{text}' for IP protocol. Unknown protocol."));
            return number.map(|number| number.to_string()).ok_or_else(unknown);
        }
    };
    Ok(name.to_owned())
}

/// Ports, or type and code, as AWS keeps them for a protocol.
fn ports(protocol: &str, from: Option<i32>, to: Option<i32>) -> Result<(Option<i32>, Option<i32>), Refusal> {
    match (protocol, from, to) {
        ("tcp" | "udp", Some(from), Some(to)) => {
            // Minus one is all of them.
            let (from, to) = if (from, to) == (-1, -1) { (0, 65535) } else { (from, to) };
            if !(0..=65535).contains(&from) || !(0..=65535).contains(&to) {
                return Err(invalid(format!("TCP/UDP port ({from}-{to}) out of range")));
            }
            if from > to {
                return Err(invalid(format!("Invalid TCP/UDP port range ({from}:{to})")));
            }
            Ok((Some(from), Some(to)))
        }
        ("tcp" | "udp", _, _) => {
            Err(invalid("Invalid value 'Must specify both from and to ports with TCP/UDP.' for portRange."))
        }
        ("icmp" | "icmpv6", Some(kind), Some(code)) => {
            if !(-1..=255).contains(&kind) || !(-1..=255).contains(&code) || kind == -1 && code != -1 {
                return Err(invalid(format!("ICMP type ({kind}) or code ({code}) out of range")));
            }
            Ok((Some(kind), Some(code)))
        }
        ("icmpv6", None, None) => Ok((Some(-1), Some(-1))),
        ("icmp" | "icmpv6", _, _) => {
            Err(invalid("Invalid value 'Must specify both type and code with ICMP.' for portRange."))
        }
        _ => Ok((None, None)),
    }
}

fn range(text: &str, v4: bool) -> Result<Peer, Refusal> {
    let range: Range = text.parse().map_err(|message: String| invalid(message))?;
    if range.is_v4() != v4 {
        return Err(invalid(format!("CIDR block {text} is malformed")));
    }
    Ok(Peer::Range(range))
}

type Wanted = Vec<(Permission, String)>;

/// Takes the rules of a request, each by itself.
fn take(request: &mut Request, account: &str) -> Result<Wanted, Refusal> {
    let mut wanted = Vec::new();
    for mut entry in request.structures("IpPermissions")? {
        let protocol = protocol(&entry.needed("IpProtocol")?)?;
        let (from, to) = (entry.number("FromPort", -1..=i32::MAX)?, entry.number("ToPort", -1..=i32::MAX)?);
        let (from, to) = ports(&protocol, from, to)?;
        let mut peers = Vec::new();
        for (list, key) in [
            ("IpRanges", "CidrIp"),
            ("Ipv6Ranges", "CidrIpv6"),
            ("Groups", "GroupId"),
            ("PrefixListIds", "PrefixListId"),
        ] {
            for mut entry in entry.structures(list)? {
                let value = entry.needed(key)?;
                let description = entry.text("Description")?.unwrap_or_default();
                if list == "Groups" && entry.text("UserId")?.is_some_and(|owner| owner != account) {
                    return Err(not_found(&value));
                }
                entry.end()?;
                if !is_plain(&description) {
                    return Err(invalid(
                        "Invalid rule description. Valid descriptions are strings less than 256 characters from the \
                         following set:  a-zA-Z0-9. _-:/()#,@[]+=&;{}!$*",
                    ));
                }
                let peer = match list {
                    "IpRanges" => range(&value, true)?,
                    "Ipv6Ranges" => range(&value, false)?,
                    "Groups" => {
                        check_id(&value)?;
                        Peer::Group(value)
                    }
                    _ if is_id(&value, "pl") => Peer::PrefixList(value),
                    _ => {
                        let message = format!("The prefix list ID '{value}' is malformed");
                        return Err(Refusal::new("InvalidPrefixListId.Malformed", message));
                    }
                };
                peers.push((peer, description));
            }
        }
        entry.end()?;
        if peers.is_empty() {
            let message = "Missing source specification: include source security group or CIDR information";
            return Err(Refusal::new("MissingParameter", message));
        }
        for (peer, description) in peers {
            wanted.push((Permission { protocol: protocol.clone(), from, to, peer }, description));
        }
    }
    // The old way to name a single rule.
    if let Some(text) = request.text("CidrIp")? {
        let protocol = protocol(&request.needed("IpProtocol")?)?;
        let (from, to) =
            (request.number("FromPort", -1..=i32::MAX)?, request.number("ToPort", -1..=i32::MAX)?);
        let (from, to) = ports(&protocol, from, to)?;
        let peer = range(&text, true)?;
        wanted.push((Permission { protocol, from, to, peer }, String::new()));
    }
    let unique: BTreeSet<&Permission> = wanted.iter().map(|(permission, _)| permission).collect();
    if unique.len() < wanted.len() {
        return Err(invalid("The same permission must not appear multiple times"));
    }
    Ok(wanted)
}

/// Takes the group that a call is about.
fn group_id(request: &mut Request) -> Result<String, Refusal> {
    let id = request.needed("GroupId")?;
    check_id(&id).map(|()| id)
}

/// For how many rules each rule counts: of IPv4, and of IPv6.
fn counted<'a>(world: &World, rules: impl Iterator<Item = &'a Permission>) -> [usize; 2] {
    rules.fold([0, 0], |[v4, v6], permission| match &permission.peer {
        Peer::Range(range) if range.is_v4() => [v4 + 1, v6],
        Peer::Range(_) => [v4, v6 + 1],
        Peer::Group(_) => [v4 + 1, v6 + 1],
        Peer::PrefixList(id) => {
            let entries = world.prefix_lists.get(id).map_or(1, |entries| *entries as usize);
            [v4 + entries, v6 + entries]
        }
    })
}

pub(super) fn authorize(
    machine: &mut Machine,
    mut request: Request,
    egress: bool,
) -> Result<String, Refusal> {
    let config = machine.config.clone();
    let id = group_id(&mut request)?;
    let wanted = take(&mut request, &config.account)?;
    let tags = specified(&mut request, "security-group-rule")?;
    if wanted.is_empty() {
        return Err(request.missing("IpPermissions"));
    }
    request.end()?;
    let world = &machine.moment.world;
    let group = world.groups.get(&id).ok_or_else(|| not_found(&id))?;
    for (permission, _) in &wanted {
        match &permission.peer {
            Peer::Group(other) => {
                let found = world.groups.get(other).ok_or_else(|| not_found(other))?;
                if found.vpc != group.vpc {
                    let message = "You have specified two resources that belong to different networks.";
                    return Err(Refusal::new("InvalidGroup.NotFound", message));
                }
            }
            Peer::PrefixList(list) if !world.prefix_lists.contains_key(list) => {
                let message = format!("The prefix list ID '{list}' does not exist");
                return Err(Refusal::new("InvalidPrefixListID.NotFound", message));
            }
            Peer::PrefixList(_) | Peer::Range(_) => {}
        }
    }
    let present = rules(group, egress);
    if let Some((found, _)) = wanted.iter().find(|(permission, _)| present.contains_key(permission)) {
        let message = format!("the specified rule \"peer: {}, {found}, ALLOW\" already exists", found.peer);
        return Err(Refusal::new("InvalidPermission.Duplicate", message));
    }
    let all = present.keys().chain(wanted.iter().map(|(permission, _)| permission));
    if counted(world, all).into_iter().any(|count| count > config.quotas.rules) {
        let message = "The maximum number of rules per security group has been reached.";
        return Err(Refusal::new("RulesPerSecurityGroupLimitExceeded", message));
    }
    let mut answer = Vec::new();
    for (permission, description) in wanted {
        let rule = Rule { id: machine.id("sgr"), description, tags: tags.clone() };
        answer.push(told(&config, &id, egress, &permission, &rule));
        if let Some(group) = machine.moment.world.groups.get_mut(&id) {
            rules_mut(group, egress).insert(permission, rule);
        }
    }
    Ok(xml::leaf("return", true) + &xml::items("securityGroupRuleSet", answer))
}

pub(super) fn revoke(machine: &mut Machine, mut request: Request, egress: bool) -> Result<String, Refusal> {
    let config = machine.config.clone();
    let id = group_id(&mut request)?;
    let named = request.list("SecurityGroupRuleId")?;
    let wanted = take(&mut request, &config.account)?;
    match (wanted.is_empty(), named.is_empty()) {
        (true, true) => return Err(request.missing("IpPermissions")),
        (false, false) => {
            let message =
                "The parameter ipPermissions cannot be used with the parameter securityGroupRuleIds";
            return Err(Refusal::new("InvalidParameterCombination", message));
        }
        _ => {}
    }
    request.end()?;
    let group = machine.moment.world.groups.get_mut(&id).ok_or_else(|| not_found(&id))?;
    let present = rules_mut(group, egress);
    let mut gone: Vec<Permission> = Vec::new();
    for rule_id in &named {
        let found = present.iter().find(|(_, rule)| rule.id == *rule_id);
        gone.push(found.map(|(permission, _)| permission.clone()).ok_or_else(|| rule_not_found(rule_id))?);
    }
    for (permission, _) in wanted {
        if !present.contains_key(&permission) {
            let message = "The specified rule does not exist in this security group.";
            return Err(Refusal::new("InvalidPermission.NotFound", message));
        }
        gone.push(permission);
    }
    let mut answer = Vec::new();
    for permission in gone {
        let Some(rule) = present.remove(&permission) else { continue };
        // A rule that is gone has no tags, and a group in it is told by its id alone.
        let rule = Rule { tags: Tags::new(), ..rule };
        let text = told(&config, &id, egress, &permission, &rule);
        answer.push(match &permission.peer {
            Peer::Group(other) => text + &xml::leaf("referencedGroupId", other),
            _ => text,
        });
    }
    Ok(xml::leaf("return", true) + &xml::items("revokedSecurityGroupRuleSet", answer))
}

/// Writes other descriptions on rules that let in.
pub(super) fn describe_anew(machine: &mut Machine, mut request: Request) -> Result<String, Refusal> {
    let config = machine.config.clone();
    let id = group_id(&mut request)?;
    let wanted = take(&mut request, &config.account)?;
    if wanted.is_empty() {
        return Err(request.missing("IpPermissions"));
    }
    request.end()?;
    let group = machine.moment.world.groups.get_mut(&id).ok_or_else(|| not_found(&id))?;
    if wanted.iter().any(|(permission, _)| !group.ingress.contains_key(permission)) {
        let message = "The specified rule does not exist in this security group.";
        return Err(Refusal::new("InvalidPermission.NotFound", message));
    }
    for (permission, description) in wanted {
        group.ingress.entry(permission).and_modify(|rule| rule.description = description);
    }
    Ok(xml::leaf("return", true))
}
