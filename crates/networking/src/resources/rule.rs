use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, LazyLock};

use portcullis_core::{Cidr, Direction, Family, Protocol};
use portcullis_ovn::objects::{AddressGroup, Rule, SecurityGroup};
use portcullis_ovn::{Draft, Model};
use serde_json::{Value, json};
use uuid::Uuid;

use super::security_group::SecurityGroups;
use super::{Context, Few, Resource, common};
use crate::attributes::{Attribute, Input, View};
use crate::error::Error;
use crate::kinds::{COUNT, Kind, LIST, MOMENT, NAME, SAID, WORDS_OR_NULL, range, shown};
use crate::query::Query;
use crate::quota;
use crate::time::written;

pub(crate) struct Rules;

static ATTRIBUTES: LazyLock<Vec<Attribute<Rule>>> = LazyLock::new(|| {
    vec![
        Attribute::new("id", Kind::Id, |rule: &Rule, _| json!(rule.meta.id)),
        Attribute::new("project_id", Kind::Text(NAME), |rule: &Rule, _| json!(rule.meta.project)).post(),
        Attribute::new("tenant_id", Kind::Text(NAME), |rule: &Rule, _| json!(rule.meta.project)).post(),
        Attribute::new("security_group_id", Kind::Id, |rule: &Rule, _| json!(rule.group)).required(),
        Attribute::new("belongs_to_default_sg", SAID, |rule, view| {
            json!(view.model.get::<SecurityGroup>(rule.group).is_some_and(|group| group.is_default))
        }),
        Attribute::new("direction", DIRECTION, |rule: &Rule, _| json!(rule.direction)).required(),
        Attribute::new("ethertype", ETHERTYPE, |rule: &Rule, _| json!(rule.ethertype)).post().query(),
        Attribute::new("protocol", PROTOCOL, |rule: &Rule, _| json!(rule.protocol)).post().query(),
        Attribute::new("port_range_min", PORT, |rule: &Rule, _| json!(rule.port_min)).post(),
        Attribute::new("port_range_max", PORT, |rule: &Rule, _| json!(rule.port_max)).post(),
        Attribute::new("remote_ip_prefix", PREFIX, |rule: &Rule, _| json!(rule.remote_prefix)).post().query(),
        Attribute::new("normalized_cidr", WORDS_OR_NULL, |rule: &Rule, _| json!(normalized(rule))),
        Attribute::new("remote_group_id", Kind::TextOrNull(NAME), |rule: &Rule, _| json!(rule.remote_group))
            .post(),
        Attribute::new("remote_address_group_id", Kind::IdOrNull, |rule: &Rule, _| {
            json!(rule.remote_address_group)
        })
        .post(),
        Attribute::new("description", Kind::Text(NAME), |rule: &Rule, _| json!(rule.meta.description)).post(),
        Attribute::new("tags", LIST, |rule: &Rule, _| json!(rule.meta.tags)).no_query(),
        Attribute::new("created_at", MOMENT, |rule: &Rule, _| json!(written(rule.meta.created))),
        Attribute::new("updated_at", MOMENT, |rule: &Rule, _| json!(written(rule.meta.updated))),
        Attribute::new("revision_number", COUNT, |rule: &Rule, _| json!(rule.meta.revision)),
    ]
});

pub(crate) const DIRECTION: Kind = Kind::Word(&["ingress", "egress"]);

/// Any case; what it is not is told by its own error.
pub(crate) const ETHERTYPE: Kind =
    Kind::Custom(|value| Ok(json!(shown(value))), || json!({"type": "string", "enum": ["IPv4", "IPv6"]}));

/// A name, a number, or nothing; names in any case.
pub(crate) const PROTOCOL: Kind = Kind::Custom(
    |value| match value {
        Value::Null => Ok(Value::Null),
        Value::String(text) => Ok(json!(text.to_lowercase())),
        Value::Number(number) => Ok(json!(number.to_string())),
        other => Ok(json!(shown(other))),
    },
    || json!({"type": ["string", "integer", "null"]}),
);

/// A port, an ICMP type or code, or nothing. What is out of range is told by its own error.
pub(crate) const PORT: Kind = Kind::NumberOrNull(i64::MIN, i64::MAX);

/// A range, or nothing.
pub(crate) const PREFIX: Kind = Kind::Custom(
    |value| match value {
        Value::Null => Ok(Value::Null),
        Value::String(_) => Ok(value.clone()),
        other => Err(format!("'{}' is not a range", shown(other))),
    },
    || json!({"type": ["string", "null"]}),
);

/// The range without bits beyond its prefix.
pub(crate) fn normalized(rule: &Rule) -> Option<String> {
    let range: Cidr = rule.remote_prefix.as_ref()?.parse().ok()?;
    Some(range.network().to_string())
}

impl Resource for Rules {
    type Object = Rule;

    const NAME: &'static str = "security_group_rule";
    const PLURAL: &'static str = "security_group_rules";
    const COLLECTION: &'static str = "security-group-rules";

    fn attributes() -> &'static [Attribute<Rule>] {
        &ATTRIBUTES
    }

    fn not_found(id: &str) -> Error {
        Error::not_found("SecurityGroupRuleNotFound", format!("Security group rule {id} does not exist"))
    }

    fn is_visible(rule: &Rule, view: &View<'_>) -> bool {
        let group = view.model.get::<SecurityGroup>(rule.group);
        view.caller.owns(&rule.meta.project)
            || group.is_some_and(|group| SecurityGroups::is_visible(group, view))
    }

    fn may_change(rule: &Rule, view: &View<'_>) -> bool {
        let group = view.model.get::<SecurityGroup>(rule.group);
        view.caller.owns(&rule.meta.project)
            || group.is_some_and(|group| view.caller.owns(&group.meta.project))
    }

    fn near<'a>(model: &'a Model, project: &str) -> Vec<&'a Arc<Rule>> {
        let groups = super::own_and_given::<SecurityGroup>(model, project);
        let there = groups.into_iter().flat_map(|group| model.rules_of_group(group.meta.id));
        model.of_project(project, None).chain(there).collect()
    }

    fn few<'a>(query: &Query, model: &'a Model) -> Option<Few<'a, Rule>> {
        if let Some(id) = query.one("security_group_id") {
            let id = id.parse().ok()?;
            return Some(Box::new(model.rules_of_group(id)));
        }
        super::by_id_or_name(query, model)
    }

    fn create(draft: &mut Draft, context: &Context, input: &Input) -> Result<Uuid, Error> {
        let rule = wanted(draft, context, input)?;
        quota::check::<Rule>(draft, context, &rule.meta.project, 1)?;
        let wanted = key(&rule);
        if let Some(same) = draft.rules_like(&rule).find(|other| key(other) == wanted) {
            return Err(exists(same.meta.id));
        }
        let (id, group) = (rule.meta.id, rule.group);
        draft.put(rule);
        common::bump::<SecurityGroup>(draft, context, group);
        Ok(id)
    }

    fn create_all(draft: &mut Draft, context: &Context, inputs: &[Input]) -> Result<Vec<Uuid>, Error> {
        if let [only] = inputs {
            return Ok(vec![Self::create(draft, context, only)?]);
        }
        let rules: Vec<Rule> =
            inputs.iter().map(|input| wanted(draft, context, input)).collect::<Result<_, _>>()?;
        // Too many are refused before anybody compares them.
        let mut more: BTreeMap<&str, u64> = BTreeMap::new();
        for rule in &rules {
            *more.entry(&rule.meta.project).or_default() += 1;
        }
        for (project, more) in more {
            quota::check::<Rule>(draft, context, project, more)?;
        }
        check_together(&rules)?;
        let group = rules.first().map(|rule| rule.group).unwrap_or_default();
        let known: BTreeMap<Key, Uuid> =
            draft.rules_of_group(group).map(|rule| (key(rule), rule.meta.id)).collect();
        let mut ids = Vec::new();
        for rule in rules {
            if let Some(same) = known.get(&key(&rule)) {
                return Err(exists(*same));
            }
            ids.push(rule.meta.id);
            draft.put(rule);
            common::bump::<SecurityGroup>(draft, context, group);
        }
        Ok(ids)
    }

    fn same(draft: &Draft, context: &Context, input: &Input) -> Result<Option<Uuid>, Error> {
        let rule = wanted(draft, context, input)?;
        let wanted = key(&rule);
        Ok(draft.rules_like(&rule).find(|other| key(other) == wanted).map(|same| same.meta.id))
    }

    fn update(_draft: &mut Draft, _context: &Context, _old: &Arc<Rule>, _input: &Input) -> Result<(), Error> {
        // No attribute can be changed, so nothing is left to change.
        Ok(())
    }

    fn delete(draft: &mut Draft, context: &Context, old: &Arc<Rule>) -> Result<(), Error> {
        draft.remove::<Rule>(old.meta.id);
        common::bump::<SecurityGroup>(draft, context, old.group);
        Ok(())
    }
}

fn exists(id: Uuid) -> Error {
    let message = format!("Security group rule already exists. Rule id is {id}.");
    Error::conflict("SecurityGroupRuleExists", message)
}

/// What must hold between the rules of one request.
pub(crate) fn check_together(rules: &[Rule]) -> Result<(), Error> {
    if rules.windows(2).any(|pair| pair[0].group != pair[1].group) {
        return Err(several_groups());
    }
    let mut keys = BTreeSet::new();
    if !rules.iter().all(|rule| keys.insert(key(rule))) {
        return Err(Error::conflict(
            "DuplicateSecurityGroupRuleInPost",
            "Duplicate Security Group Rule in POST.",
        ));
    }
    Ok(())
}

/// That the rules of a request are not all of one group.
pub(crate) fn several_groups() -> Error {
    Error::invalid(
        "SecurityGroupNotSingleGroupRules",
        "Only allowed to update rules for one security profile at a time",
    )
}

/// The rule that a request asks for.
pub(crate) fn wanted(draft: &Draft, context: &Context, input: &Input) -> Result<Rule, Error> {
    let group: Uuid = input.some("security_group_id").unwrap_or_default();
    let view = context.view(draft);
    let owner = draft.get::<SecurityGroup>(group).filter(|group| SecurityGroups::is_visible(group, &view));
    let owner = owner.ok_or_else(|| Error::group_not_found(group))?;
    if !context.caller.owns(&owner.meta.project) {
        return Err(Error::forbidden("create_security_group_rule"));
    }
    let mut rule = traffic(input)?;
    rule.group = group;
    rule.meta = common::meta(context, input)?;
    // A rule that an administrator adds to a project's group counts for that project.
    if !input.has("project_id") && !input.has("tenant_id") {
        rule.meta.project.clone_from(&owner.meta.project);
    }
    if let Some(remote) = rule.remote_group {
        let found =
            draft.get::<SecurityGroup>(remote).filter(|group| SecurityGroups::is_visible(group, &view));
        found.ok_or_else(|| Error::group_not_found(remote))?;
    }
    if let Some(remote) = rule.remote_address_group {
        let found = draft.get::<AddressGroup>(remote);
        let found = found.filter(|group| super::address_group::AddressGroups::is_visible(group, &view));
        found.ok_or_else(|| super::address_group::AddressGroups::not_found(&remote.to_string()))?;
    }
    Ok(rule)
}

/// What a request wants to allow, without whose it is.
pub(crate) fn traffic(input: &Input) -> Result<Rule, Error> {
    let direction = match input.text("direction").as_deref() {
        Some("egress") => Direction::Egress,
        _ => Direction::Ingress,
    };
    let ethertype = match input.text("ethertype") {
        None => Family::V4,
        Some(text) if text.eq_ignore_ascii_case("IPv4") => Family::V4,
        Some(text) if text.eq_ignore_ascii_case("IPv6") => Family::V6,
        Some(text) => {
            return Err(Error::invalid(
                "SecurityGroupRuleInvalidEtherType",
                format!(
                    "Security group rule for ethertype '{text}' not supported. Allowed values are ['IPv4', 'IPv6']."
                ),
            ));
        }
    };
    let (text, protocol) = protocol(input.text("protocol"), ethertype)?;
    let mut rule = Rule {
        direction,
        ethertype,
        protocol: text,
        remote_group: remote_group(input)?,
        remote_address_group: input.some("remote_address_group_id"),
        ..Rule::default()
    };
    let (min, max) = (input.number("port_range_min").flatten(), input.number("port_range_max").flatten());
    (rule.port_min, rule.port_max) = ports(protocol, rule.protocol.as_deref(), min, max)?;
    rule.remote_prefix = prefix(input.text("remote_ip_prefix"), ethertype)?;
    let remotes =
        [rule.remote_prefix.is_some(), rule.remote_group.is_some(), rule.remote_address_group.is_some()];
    if remotes.into_iter().filter(|given| *given).count() > 1 {
        return Err(several_remotes());
    }
    Ok(rule)
}

/// The group at the other end. What is no id names no group.
fn remote_group(input: &Input) -> Result<Option<Uuid>, Error> {
    let Some(text) = input.text("remote_group_id") else { return Ok(None) };
    let missing =
        || Error::not_found("SecurityGroupNotFound", format!("Security group {text} does not exist"));
    Uuid::try_parse(&text).map(Some).map_err(|_| missing())
}

/// Protocols that are parts of IPv6 alone: its options, fragments, and it itself in another packet.
const OF_IPV6: [u8; 6] = [41, 43, 44, 58, 59, 60];

/// That a rule has more than one other end.
pub(crate) fn several_remotes() -> Error {
    Error::invalid(
        "SecurityGroupMultipleRemoteEntites",
        "Only one of remote_ip_prefix or remote_group_id or remote_address_group_id may be provided.",
    )
}

fn protocol(text: Option<String>, ethertype: Family) -> Result<(Option<String>, Option<Protocol>), Error> {
    let Some(text) = text.filter(|text| text != "any") else { return Ok((None, None)) };
    let Ok(protocol) = text.parse::<Protocol>() else {
        return Err(Error::invalid(
            "SecurityGroupRuleInvalidProtocol",
            format!(
                "Security group rule protocol {text} not supported. Only protocol values ['ah', 'dccp', 'egp', 'esp', 'gre', \
                 'icmp', 'icmpv6', 'igmp', 'ipip', 'ipv6-encap', 'ipv6-frag', 'ipv6-icmp', 'ipv6-nonxt', 'ipv6-opts', \
                 'ipv6-route', 'ospf', 'pgm', 'rsvp', 'sctp', 'tcp', 'udp', 'udplite', 'vrrp'] and integer representations \
                 [0 to 255] are supported."
            ),
        ));
    };
    match (protocol, ethertype) {
        // ICMP in a rule for IPv6 can only mean IPv6's.
        (Protocol::ICMP, Family::V6) => {
            let text = if text == "1" { "58" } else { "ipv6-icmp" };
            Ok((Some(text.to_owned()), Some(Protocol::ICMPV6)))
        }
        (protocol, Family::V4) if OF_IPV6.contains(&protocol.number()) => Err(Error::invalid(
            "SecurityGroupEthertypeConflictWithProtocol",
            format!("Invalid ethertype IPv4 for protocol {text}."),
        )),
        _ => Ok((Some(text), Some(protocol))),
    }
}

/// The first and the last port, or the type and the code of ICMP.
type Ports = (Option<u16>, Option<u16>);

fn ports(
    protocol: Option<Protocol>,
    text: Option<&str>,
    min: Option<i64>,
    max: Option<i64>,
) -> Result<Ports, Error> {
    if min.is_none() && max.is_none() {
        return Ok((None, None));
    }
    let no_port = |value: i64| {
        Error::invalid("SecurityGroupInvalidPortValue", format!("Invalid value for port {value}"))
    };
    // What is no number of a port anywhere is told before what it is for.
    let both = [min, max].into_iter().flatten();
    if let Some(value) = both.clone().find(|value| u16::try_from(*value).is_err()) {
        return Err(no_port(value));
    }
    let Some(protocol) = protocol else {
        return Err(Error::invalid(
            "SecurityGroupProtocolRequiredWithPorts",
            "Must also specify protocol if port range is given.",
        ));
    };
    if protocol.icmp_family().is_some() {
        return icmp(min, max);
    }
    if !protocol.has_ports() {
        return Err(Error::invalid(
            "SecurityGroupInvalidProtocolForPort",
            format!(
                "Ports cannot be specified for protocol {}. Ports are only supported for DCCP, SCTP, TCP, UDP, UDPLITE.",
                text.unwrap_or_default()
            ),
        ));
    }
    if ![Protocol::TCP, Protocol::UDP, Protocol::SCTP].contains(&protocol) {
        return Err(Error::invalid(
            "SecurityGroupInvalidProtocolForPort",
            format!(
                "OVN cannot see the ports of {}, so a rule for some of them would match either none or all. \
                 Leave the ports out to allow the whole protocol.",
                text.unwrap_or_default()
            ),
        ));
    }
    let port = |value: Option<i64>| match value {
        None => Err(Error::invalid(
            "SecurityGroupInvalidPortRange",
            "For TCP/UDP protocols, port_range_min must be <= port_range_max",
        )),
        Some(value) => u16::try_from(value).ok().filter(|port| *port > 0).ok_or_else(|| no_port(value)),
    };
    for value in both {
        port(Some(value))?;
    }
    let (min, max) = (port(min)?, port(max)?);
    if min > max {
        return Err(Error::invalid(
            "SecurityGroupInvalidPortRange",
            "For TCP/UDP protocols, port_range_min must be <= port_range_max",
        ));
    }
    Ok((Some(min), Some(max)))
}

/// The type and the code of ICMP stand in the place of ports.
fn icmp(kind: Option<i64>, code: Option<i64>) -> Result<Ports, Error> {
    let byte = |field: &str, attribute: &str, value: Option<i64>| match value {
        None => Ok(None),
        Some(value) => u8::try_from(value).map(|value| Some(u16::from(value))).map_err(|_| {
            Error::invalid(
                "SecurityGroupInvalidIcmpValue",
                format!("Invalid value for ICMP {field} ({attribute}) {value}. It must be 0 to 255."),
            )
        }),
    };
    let kind = byte("type", "port_range_min", kind)?;
    let code = byte("code", "port_range_max", code)?;
    match (kind, code) {
        (None, Some(code)) => Err(Error::invalid(
            "SecurityGroupMissingIcmpType",
            format!(
                "ICMP code (port-range-max) {code} is provided but ICMP type (port-range-min) is missing."
            ),
        )),
        both => Ok(both),
    }
}

fn prefix(text: Option<String>, ethertype: Family) -> Result<Option<String>, Error> {
    let Some(text) = text else { return Ok(None) };
    let range = range(&text)
        .ok_or_else(|| Error::invalid("InvalidCIDR", format!("Invalid CIDR {text} given as IP prefix.")))?;
    if range.family() != ethertype {
        return Err(Error::invalid(
            "SecurityGroupRuleParameterConflict",
            format!("Conflicting value ethertype {ethertype} for CIDR {text}"),
        ));
    }
    Ok(Some(if text.contains('/') { text } else { range.to_string() }))
}

/// What a rule of a group allows. Two that allow the same have one key, in whatever words.
pub(crate) type Key = (Direction, Family, Option<Protocol>, Ports, Option<Cidr>, Option<Uuid>, Option<Uuid>);

/// See [`Key`].
pub(crate) fn key(rule: &Rule) -> Key {
    let protocol = rule.protocol.as_deref().and_then(|text| text.parse::<Protocol>().ok());
    let range = rule.remote_prefix.as_deref().and_then(|text| text.parse::<Cidr>().ok());
    let range = range.filter(|range| !range.is_everything()).map(|range| range.network());
    // All ports are as good as none given.
    let ports = match (rule.port_min, rule.port_max) {
        (Some(1), Some(u16::MAX)) if protocol.is_some_and(Protocol::has_ports) => (None, None),
        ports => ports,
    };
    (rule.direction, rule.ethertype, protocol, ports, range, rule.remote_group, rule.remote_address_group)
}
