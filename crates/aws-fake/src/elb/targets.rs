//! Targets, and how they do.

use std::net::IpAddr;
use std::time::Duration;

use crate::machine::{Event, Machine};
use crate::refusal::Refusal;
use crate::request::Request;
use crate::world::{Target, TargetGroup, TargetId, World};
use crate::xml;

use super::{Kind, arn, invalid};

/// A target as a request names it.
struct Named {
    id: String,
    port: Option<u16>,
    zone: Option<String>,
}

fn take(request: &mut Request) -> Result<Vec<Named>, Refusal> {
    let mut targets = Vec::new();
    for mut target in request.structures("Targets")? {
        let id = target.needed("Id")?;
        let (port, zone) = (target.port("Port")?, target.text("AvailabilityZone")?);
        target.end()?;
        targets.push(Named { id, port, zone });
    }
    Ok(targets)
}

impl Named {
    fn id(&self, group: &TargetGroup) -> TargetId {
        TargetId { id: self.id.clone(), port: self.port.unwrap_or(group.port) }
    }
}

fn invalid_target(message: impl Into<String>) -> Refusal {
    Refusal::new("InvalidTarget", message)
}

/// Checks someone who is to be sent to.
fn check(world: &World, group: &TargetGroup, target: &Named) -> Result<(), Refusal> {
    let id = &target.id;
    match group.kind.as_str() {
        "instance" => {
            if target.zone.is_some() {
                return Err(invalid(
                    "You cannot specify an Availability Zone for targets that are instances",
                ));
            }
            let found = world.instances.get(id);
            let instance =
                found.ok_or_else(|| invalid_target(format!("The instance ID '{id}' is not valid")))?;
            if instance.state != "running" {
                return Err(invalid_target(format!(
                    "The following targets are not in a running state and cannot be registered: '{id}'"
                )));
            }
            if world.subnets.get(&instance.subnet).is_none_or(|subnet| subnet.vpc != group.vpc) {
                let message =
                    format!("The following targets are not in the target group VPC '{}': '{id}'", group.vpc);
                return Err(invalid_target(message));
            }
            Ok(())
        }
        "ip" => {
            let address: IpAddr =
                id.parse().map_err(|_| invalid_target(format!("The IP address '{id}' is not valid")))?;
            if address.is_ipv4() != (group.ip_address_type == "ipv4") {
                let message = format!("The IP address '{id}' is not of the type '{}'", group.ip_address_type);
                return Err(invalid_target(message));
            }
            let network = world.vpcs.get(&group.vpc);
            let inside = network.is_some_and(|vpc| {
                vpc.range.contains(address) || vpc.range6.is_some_and(|range| range.contains(address))
            });
            let private = ["10.0.0.0/8", "100.64.0.0/10", "172.16.0.0/12", "192.168.0.0/16"];
            let private = private
                .iter()
                .any(|range| range.parse::<crate::Range>().is_ok_and(|range| range.contains(address)));
            let known = |zone| zone == "all" || world.subnets.values().any(|subnet| subnet.zone == zone);
            match target.zone.as_deref() {
                zone if inside && zone.is_none_or(known) => Ok(()),
                Some("all") if private => Ok(()),
                _ if private && !inside => Err(invalid_target(format!(
                    "You must specify the Availability Zone 'all' for the IP address '{id}' outside of the VPC"
                ))),
                _ => Err(invalid_target(format!("The IP address '{id}' cannot be registered"))),
            }
        }
        _ => Err(invalid_target("Application load balancers are not faked")),
    }
}

pub(super) fn register(machine: &mut Machine, mut request: Request) -> Result<String, Refusal> {
    let most = machine.config.quotas.targets;
    let arn = arn(&mut request, "TargetGroupArn", Kind::TargetGroup)?;
    let targets = take(&mut request)?;
    if targets.is_empty() {
        return Err(request.missing("Targets"));
    }
    request.end()?;
    let world = &machine.moment.world;
    let group = world.target_groups.get(&arn).ok_or_else(|| Kind::TargetGroup.not_found(&arn))?;
    for target in &targets {
        check(world, group, target)?;
    }
    let new: Vec<(TargetId, Target)> = targets
        .into_iter()
        .map(|target| {
            let zone = target.zone.clone().or_else(|| zone_of_address(world, group, &target.id));
            (target.id(group), Target { zone, health: "unused".to_owned() })
        })
        .filter(|(id, _)| group.targets.get(id).is_none_or(|known| known.health == "draining"))
        .collect();
    let more = new.iter().filter(|(id, _)| !group.targets.contains_key(id)).count();
    if group.targets.len() + more > most {
        return Err(Refusal::new("TooManyTargets", "The maximum number of targets has been reached"));
    }
    for (id, target) in new {
        machine.moment.forget_target(&arn, &id);
        if let Some(group) = machine.moment.world.target_groups.get_mut(&arn) {
            group.targets.insert(id, target);
        }
    }
    machine.follow(Some(&[arn]));
    Ok(String::new())
}

/// The zone of an address of the VPC.
fn zone_of_address(world: &World, group: &TargetGroup, id: &str) -> Option<String> {
    let address: IpAddr = id.parse().ok().filter(|_| group.kind == "ip")?;
    let mut subnets = world.subnets.values().filter(|subnet| subnet.vpc == group.vpc);
    let holds = |subnet: &&crate::Subnet| {
        subnet.range.contains(address) || subnet.range6.is_some_and(|range| range.contains(address))
    };
    subnets.find(holds).map(|subnet| subnet.zone.clone())
}

pub(super) fn deregister(machine: &mut Machine, mut request: Request) -> Result<String, Refusal> {
    let draining = machine.config.draining;
    let arn = arn(&mut request, "TargetGroupArn", Kind::TargetGroup)?;
    let targets = take(&mut request)?;
    if targets.is_empty() {
        return Err(request.missing("Targets"));
    }
    request.end()?;
    let world = &mut machine.moment.world;
    let group = world.target_groups.get_mut(&arn).ok_or_else(|| Kind::TargetGroup.not_found(&arn))?;
    let draining = draining.unwrap_or_else(|| {
        let said = group.attributes.get("deregistration_delay.timeout_seconds");
        Duration::from_secs(said.and_then(|said| said.parse().ok()).unwrap_or(300))
    });
    // Who is not there is gone already.
    let gone: Vec<TargetId> = targets.iter().map(|target| target.id(group)).collect();
    let mut draining_now = Vec::new();
    for id in gone {
        match group.targets.get_mut(&id) {
            Some(target) if target.health == "draining" => {}
            Some(target) if target.health == "unused" => drop(group.targets.remove(&id)),
            Some(target) => {
                "draining".clone_into(&mut target.health);
                draining_now.push(id);
            }
            None => {}
        }
    }
    for id in draining_now {
        machine.moment.forget_target(&arn, &id);
        machine.later(draining, Event::Drained(arn.clone(), id));
    }
    Ok(String::new())
}

pub(super) fn describe(world: &World, mut request: Request) -> Result<String, Refusal> {
    let arn = arn(&mut request, "TargetGroupArn", Kind::TargetGroup)?;
    let named = take(&mut request)?;
    let _ = request.list("Include")?;
    request.end()?;
    let group = world.target_groups.get(&arn).ok_or_else(|| Kind::TargetGroup.not_found(&arn))?;
    let told = |id: &TargetId, zone: Option<&String>, state: &str, reason: Option<(&str, &str)>| {
        let target =
            xml::leaf("Id", &id.id) + &xml::leaf("Port", id.port) + &xml::leaf_some("AvailabilityZone", zone);
        let health = xml::leaf("State", state)
            + &xml::leaf_some("Reason", reason.map(|(reason, _)| reason))
            + &xml::leaf_some("Description", reason.map(|(_, description)| description));
        let check = &group.health_check.port;
        let port = if check == "traffic-port" { id.port.to_string() } else { check.clone() };
        xml::node("Target", target) + &xml::leaf("HealthCheckPort", port) + &xml::node("TargetHealth", health)
    };
    let known = |id: &TargetId, target: &Target| {
        let stopped = world.instances.get(&id.id).is_some_and(|instance| instance.state != "running");
        let reason = match target.health.as_str() {
            "initial" => Some(("Elb.RegistrationInProgress", "Target registration is in progress")),
            "unhealthy" => Some(("Target.FailedHealthChecks", "Health checks failed")),
            "draining" => Some(("Target.DeregistrationInProgress", "Target deregistration is in progress")),
            "unused" if stopped => Some(("Target.InvalidState", "Target is in the stopped state")),
            "unused" => Some((
                "Target.NotInUse",
                "Target group is not configured to receive traffic from the load balancer",
            )),
            _ => None,
        };
        told(id, target.zone.as_ref(), &target.health, reason)
    };
    let entries: Vec<String> = if named.is_empty() {
        group.targets.iter().map(|(id, target)| known(id, target)).collect()
    } else {
        let ids = named.iter().map(|target| target.id(group));
        ids.map(|id| match group.targets.get(&id) {
            Some(target) => known(&id, target),
            None => told(
                &id,
                None,
                "unused",
                Some(("Target.NotRegistered", "Target is not registered to the target group")),
            ),
        })
        .collect()
    };
    Ok(xml::members("TargetHealthDescriptions", entries))
}
