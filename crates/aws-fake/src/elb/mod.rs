//! What is answered of Elastic Load Balancing, version 2: network load balancers only.

mod attributes;
mod listeners;
mod load_balancers;
mod page;
mod tags;
mod target_groups;
mod targets;

use crate::machine::Machine;
use crate::refusal::Refusal;
use crate::request::Request;
use crate::server::invalid_action;

pub(crate) fn act(machine: &mut Machine, action: &str, request: Request) -> Result<String, Refusal> {
    let config = machine.config.clone();
    match action {
        "DescribeLoadBalancers" => machine.seen(|world| load_balancers::describe(world, &config, request)),
        "DescribeLoadBalancerAttributes" => {
            machine.seen(|world| attributes::of_load_balancer(world, request))
        }
        "DescribeTargetGroups" => machine.seen(|world| target_groups::describe(world, request)),
        "DescribeTargetGroupAttributes" => machine.seen(|world| attributes::of_target_group(world, request)),
        "DescribeTargetHealth" => machine.seen(|world| targets::describe(world, request)),
        "DescribeListeners" => machine.seen(|world| listeners::describe(world, request)),
        "DescribeTags" => machine.seen(|world| tags::describe(world, request)),
        "CreateLoadBalancer" => load_balancers::create(machine, request),
        "DeleteLoadBalancer" => load_balancers::delete(machine, request),
        "SetSecurityGroups" => load_balancers::set_security_groups(machine, request),
        "SetSubnets" => load_balancers::set_subnets(machine, request),
        "SetIpAddressType" => load_balancers::set_ip_address_type(machine, request),
        "ModifyLoadBalancerAttributes" => attributes::modify_load_balancer(machine, request),
        "CreateTargetGroup" => target_groups::create(machine, request),
        "ModifyTargetGroup" => target_groups::modify(machine, request),
        "DeleteTargetGroup" => target_groups::delete(machine, request),
        "ModifyTargetGroupAttributes" => attributes::modify_target_group(machine, request),
        "RegisterTargets" => targets::register(machine, request),
        "DeregisterTargets" => targets::deregister(machine, request),
        "CreateListener" => listeners::create(machine, request),
        "ModifyListener" => listeners::modify(machine, request),
        "DeleteListener" => listeners::delete(machine, request),
        "AddTags" => tags::add(machine, request),
        "RemoveTags" => tags::remove(machine, request),
        _ => Err(invalid_action(action)),
    }
}

/// What makes no sense.
fn invalid(message: impl Into<String>) -> Refusal {
    Refusal::new("ValidationError", message)
}

/// What makes sense, but cannot be.
fn impossible(message: impl Into<String>) -> Refusal {
    Refusal::new("InvalidConfigurationRequest", message)
}

/// What an ARN of ours is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    LoadBalancer,
    TargetGroup,
    Listener,
}

impl Kind {
    fn of(arn: &str) -> Option<Self> {
        let parts: Vec<&str> = arn.splitn(6, ':').collect();
        let ["arn", "aws", "elasticloadbalancing", _, _, resource] = parts[..] else { return None };
        let parts: Vec<&str> = resource.split('/').collect();
        match parts[..] {
            ["loadbalancer", "net" | "app" | "gwy", name, id] if !name.is_empty() && !id.is_empty() => {
                Some(Kind::LoadBalancer)
            }
            ["targetgroup", name, id] if !name.is_empty() && !id.is_empty() => Some(Kind::TargetGroup),
            ["listener", "net" | "app" | "gwy", _, _, id] if !id.is_empty() => Some(Kind::Listener),
            _ => None,
        }
    }

    fn word(self) -> &'static str {
        match self {
            Kind::LoadBalancer => "load balancer",
            Kind::TargetGroup => "target group",
            Kind::Listener => "listener",
        }
    }

    fn not_found(self, arn: &str) -> Refusal {
        let (code, message) = match self {
            Kind::LoadBalancer => ("LoadBalancerNotFound", format!("Load balancer '{arn}' not found")),
            Kind::TargetGroup => ("TargetGroupNotFound", format!("Target group '{arn}' not found")),
            Kind::Listener => ("ListenerNotFound", format!("Listener '{arn}' not found")),
        };
        Refusal::new(code, message)
    }

    /// Checks that it is an ARN of that kind.
    fn check(self, arn: &str) -> Result<(), Refusal> {
        if Kind::of(arn) == Some(self) {
            return Ok(());
        }
        Err(invalid(format!("'{arn}' is not a valid {} ARN", self.word())))
    }
}

/// Takes an ARN that has to be given.
fn arn(request: &mut Request, name: &str, kind: Kind) -> Result<String, Refusal> {
    let arn = request.needed(name)?;
    kind.check(&arn).map(|()| arn)
}

/// Takes ARNs.
fn arns(request: &mut Request, name: &str, kind: Kind) -> Result<Vec<String>, Refusal> {
    let arns = request.list(name)?;
    arns.iter().try_for_each(|arn| kind.check(arn)).map(|()| arns)
}

/// Checks the name of a load balancer or target group.
fn check_name(name: &str, word: &str) -> Result<(), Refusal> {
    if name.len() > 32 {
        return Err(invalid(format!("{word} name '{name}' cannot be longer than '32' characters")));
    }
    if !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-') {
        let message = "can only contain characters that are alphanumeric characters and hyphens(-)";
        return Err(invalid(format!("{word} name '{name}' {message}")));
    }
    if name.starts_with('-') || name.ends_with('-') {
        return Err(invalid(format!("{word} name '{name}' cannot begin or end with a hyphen(-)")));
    }
    if word == "Load balancer" && name.starts_with("internal-") {
        return Err(invalid(format!("{word} name '{name}' cannot begin with 'internal-'")));
    }
    Ok(())
}
