//! What is answered of EC2.

mod describe;
mod groups;
mod page;
mod rules;
mod tags;

use crate::machine::Machine;
use crate::refusal::Refusal;
use crate::request::Request;
use crate::server::invalid_action;

pub(crate) fn act(machine: &mut Machine, action: &str, request: Request) -> Result<String, Refusal> {
    let config = machine.config.clone();
    match action {
        "DescribeInstances" => machine.seen(|world| describe::instances(world, &config, request)),
        "DescribeSubnets" => machine.seen(|world| describe::subnets(world, &config, request)),
        "DescribeRouteTables" => machine.seen(|world| describe::route_tables(world, &config, request)),
        "DescribeAvailabilityZones" => machine.seen(|world| describe::zones(world, &config, request)),
        "DescribeVpcs" => machine.seen(|world| describe::vpcs(world, &config, request)),
        "DescribeSecurityGroups" => machine.seen(|world| groups::describe(world, &config, request)),
        "DescribeSecurityGroupRules" => machine.seen(|world| rules::describe(world, &config, request)),
        "CreateSecurityGroup" => groups::create(machine, request),
        "DeleteSecurityGroup" => groups::delete(machine, request),
        "AuthorizeSecurityGroupIngress" => rules::authorize(machine, request, false),
        "AuthorizeSecurityGroupEgress" => rules::authorize(machine, request, true),
        "RevokeSecurityGroupIngress" => rules::revoke(machine, request, false),
        "RevokeSecurityGroupEgress" => rules::revoke(machine, request, true),
        "UpdateSecurityGroupRuleDescriptionsIngress" => rules::describe_anew(machine, request),
        "CreateTags" => tags::create(machine, request),
        "DeleteTags" => tags::delete(machine, request),
        _ => Err(invalid_action(action)),
    }
}

/// A value that makes no sense.
fn invalid(message: impl Into<String>) -> Refusal {
    Refusal::new("InvalidParameterValue", message)
}

/// Whether it is an id of that kind: 8 or 17 digits, or anything that a test calls so.
fn is_id(text: &str, kind: &str) -> bool {
    let tail = text.strip_prefix(kind).and_then(|rest| rest.strip_prefix('-'));
    tail.is_some_and(|tail| !tail.is_empty() && tail.bytes().all(|byte| byte.is_ascii_alphanumeric()))
}

/// Whether names and descriptions may have all characters of it.
fn is_plain(text: &str) -> bool {
    text.chars().count() <= 255
        && text.chars().all(|character| {
            character.is_ascii_alphanumeric() || " ._-:/()#,@[]+=&;{}!$*".contains(character)
        })
}
