//! Attributes of load balancers and target groups.

use std::collections::BTreeMap;

use crate::machine::Machine;
use crate::refusal::Refusal;
use crate::request::Request;
use crate::world::{TargetGroup, World};
use crate::xml;

use super::{Kind, arn, impossible, invalid};

type Attributes = BTreeMap<String, String>;

fn owned(pairs: &[(&str, &str)]) -> Attributes {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

/// Those of a new network load balancer.
pub(super) fn usual_of_load_balancer(scheme: &str) -> Attributes {
    owned(&[
        ("access_logs.s3.bucket", ""),
        ("access_logs.s3.enabled", "false"),
        ("access_logs.s3.prefix", ""),
        ("deletion_protection.enabled", "false"),
        ("dns_record.client_routing_policy", "any_availability_zone"),
        ("ipv6.deny_all_igw_traffic", if scheme == "internal" { "true" } else { "false" }),
        ("load_balancing.cross_zone.enabled", "false"),
        ("secondary_ips.auto_assigned.per_subnet", "0"),
        ("zonal_shift.config.enabled", "false"),
    ])
}

/// Those of a new target group for network load balancers.
pub(super) fn usual_of_target_group(protocol: &str, kind: &str) -> Attributes {
    let datagrams = matches!(protocol, "UDP" | "TCP_UDP");
    let preserved = datagrams || kind != "ip";
    let word = |yes| if yes { "true" } else { "false" };
    owned(&[
        ("deregistration_delay.connection_termination.enabled", word(datagrams)),
        ("deregistration_delay.timeout_seconds", "300"),
        ("load_balancing.cross_zone.enabled", "use_load_balancer_configuration"),
        ("preserve_client_ip.enabled", word(preserved)),
        ("proxy_protocol_v2.enabled", "false"),
        ("stickiness.enabled", "false"),
        ("stickiness.type", "source_ip"),
        ("target_group_health.dns_failover.minimum_healthy_targets.count", "1"),
        ("target_group_health.dns_failover.minimum_healthy_targets.percentage", "off"),
        ("target_group_health.unhealthy_state_routing.minimum_healthy_targets.count", "1"),
        ("target_group_health.unhealthy_state_routing.minimum_healthy_targets.percentage", "off"),
        ("target_health_state.unhealthy.connection_termination.enabled", word(!datagrams)),
        ("target_health_state.unhealthy.draining_interval_seconds", "0"),
    ])
}

fn told(attributes: &Attributes) -> String {
    let pairs = attributes.iter().map(|(key, value)| xml::leaf("Key", key) + &xml::leaf("Value", value));
    xml::members("Attributes", pairs)
}

pub(super) fn of_load_balancer(world: &World, mut request: Request) -> Result<String, Refusal> {
    let arn = arn(&mut request, "LoadBalancerArn", Kind::LoadBalancer)?;
    request.end()?;
    let found = world.load_balancers.get(&arn).ok_or_else(|| Kind::LoadBalancer.not_found(&arn))?;
    Ok(told(&found.attributes))
}

pub(super) fn of_target_group(world: &World, mut request: Request) -> Result<String, Refusal> {
    let arn = arn(&mut request, "TargetGroupArn", Kind::TargetGroup)?;
    request.end()?;
    let found = world.target_groups.get(&arn).ok_or_else(|| Kind::TargetGroup.not_found(&arn))?;
    Ok(told(&found.attributes))
}

fn take(request: &mut Request) -> Result<Attributes, Refusal> {
    let mut attributes = Attributes::new();
    for mut attribute in request.structures("Attributes")? {
        let key = attribute.needed("Key")?;
        let value = attribute.text("Value")?.unwrap_or_default();
        attribute.end()?;
        if attributes.insert(key.clone(), value).is_some() {
            return Err(invalid(format!("The attribute key '{key}' is given twice")));
        }
    }
    if attributes.is_empty() { Err(request.missing("Attributes")) } else { Ok(attributes) }
}

/// Checks a value by what may be there.
fn check(key: &str, value: &str) -> Result<(), Refusal> {
    let number =
        |least: u32, most: u32| value.parse::<u32>().is_ok_and(|number| (least..=most).contains(&number));
    let good = match key {
        "access_logs.s3.bucket" | "access_logs.s3.prefix" => value.len() <= 1024,
        "dns_record.client_routing_policy" => matches!(
            value,
            "any_availability_zone" | "availability_zone_affinity" | "partial_availability_zone_affinity"
        ),
        "secondary_ips.auto_assigned.per_subnet" => number(0, 7),
        "deregistration_delay.timeout_seconds" => number(0, 3600),
        "target_health_state.unhealthy.draining_interval_seconds" => number(0, 360_000),
        "stickiness.type" => matches!(value, "source_ip" | "source_ip_dest_ip" | "source_ip_dest_ip_proto"),
        key if key.ends_with(".percentage") => value == "off" || number(1, 100),
        "target_group_health.dns_failover.minimum_healthy_targets.count" => value == "off" || number(1, 1000),
        "target_group_health.unhealthy_state_routing.minimum_healthy_targets.count" => number(1, 1000),
        _ => matches!(value, "true" | "false"),
    };
    if good {
        Ok(())
    } else {
        Err(invalid(format!("The value '{value}' of the attribute '{key}' is not valid")))
    }
}

pub(super) fn modify_load_balancer(machine: &mut Machine, mut request: Request) -> Result<String, Refusal> {
    let arn = arn(&mut request, "LoadBalancerArn", Kind::LoadBalancer)?;
    let wanted = take(&mut request)?;
    request.end()?;
    let world = &mut machine.moment.world;
    let found = world.load_balancers.get_mut(&arn).ok_or_else(|| Kind::LoadBalancer.not_found(&arn))?;
    for (key, value) in &wanted {
        if !found.attributes.contains_key(key) {
            return Err(invalid(format!("Load balancer attribute key '{key}' is not recognized")));
        }
        check(key, value)?;
        let number = |text: &String| text.parse::<u32>().ok();
        if key.starts_with("secondary_ips.") && number(value) < found.attributes.get(key).and_then(number) {
            return Err(impossible("The number of secondary addresses cannot be decreased"));
        }
    }
    let mut attributes = found.attributes.clone();
    attributes.extend(wanted);
    let of = |key: &str| attributes.get(key).map(String::as_str).unwrap_or_default();
    if of("access_logs.s3.enabled") == "true" && of("access_logs.s3.bucket").is_empty() {
        return Err(impossible("The value of 'access_logs.s3.bucket' cannot be empty"));
    }
    let answer = told(&attributes);
    found.attributes = attributes;
    let groups: Vec<String> = found.listeners.values().map(|found| found.target_group.clone()).collect();
    machine.follow(Some(&groups));
    Ok(answer)
}

pub(super) fn modify_target_group(machine: &mut Machine, mut request: Request) -> Result<String, Refusal> {
    let arn = arn(&mut request, "TargetGroupArn", Kind::TargetGroup)?;
    let wanted = take(&mut request)?;
    request.end()?;
    let world = &mut machine.moment.world;
    let found = world.target_groups.get_mut(&arn).ok_or_else(|| Kind::TargetGroup.not_found(&arn))?;
    for (key, value) in &wanted {
        check_for(found, key, value)?;
    }
    let mut attributes = found.attributes.clone();
    attributes.extend(wanted);
    let of = |key: &str| attributes.get(key).map(String::as_str).unwrap_or_default();
    if of("target_health_state.unhealthy.connection_termination.enabled") == "true"
        && of("target_health_state.unhealthy.draining_interval_seconds") != "0"
    {
        return Err(impossible(
            "An interval for draining unhealthy targets needs connections that are not terminated",
        ));
    }
    let answer = told(&attributes);
    found.attributes = attributes;
    machine.follow(Some(&[arn]));
    Ok(answer)
}

fn check_for(group: &TargetGroup, key: &str, value: &str) -> Result<(), Refusal> {
    if !group.attributes.contains_key(key) {
        return Err(invalid(format!("Target group attribute key '{key}' is not recognized")));
    }
    if key == "load_balancing.cross_zone.enabled" && value == "use_load_balancer_configuration" {
        return Ok(());
    }
    check(key, value)?;
    let datagrams = matches!(group.protocol.as_str(), "UDP" | "TCP_UDP");
    match (key, value) {
        ("preserve_client_ip.enabled", "false") if datagrams => {
            Err(impossible("Client IP preservation cannot be disabled for UDP and TCP_UDP target groups"))
        }
        ("target_health_state.unhealthy.connection_termination.enabled", "true") if datagrams => {
            Err(impossible(
                "Connections to unhealthy targets are not terminated for UDP and TCP_UDP target groups",
            ))
        }
        ("stickiness.type", other) if other != "source_ip" => {
            Err(impossible(format!("Stickiness type '{other}' is not supported for {}", group.protocol)))
        }
        ("stickiness.enabled", "true") if group.protocol == "TLS" => {
            Err(impossible("Stickiness is not supported for target groups with the TLS protocol"))
        }
        _ => Ok(()),
    }
}
