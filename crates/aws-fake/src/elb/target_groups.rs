//! Target groups.

use std::collections::BTreeMap;

use crate::machine::Machine;
use crate::refusal::Refusal;
use crate::request::Request;
use crate::world::{HealthCheck, TargetGroup, World};
use crate::xml;

use super::page::Page;
use super::{Kind, arn, arns, attributes, check_name, impossible, invalid, tags};

const PROTOCOLS: &[&str] = &["HTTP", "HTTPS", "TCP", "TLS", "UDP", "TCP_UDP", "GENEVE"];

pub(super) fn describe(world: &World, mut request: Request) -> Result<String, Refusal> {
    let balancer = request.text("LoadBalancerArn")?;
    let arns = arns(&mut request, "TargetGroupArns", Kind::TargetGroup)?;
    let names = request.list("Names")?;
    let page = Page::take(&mut request)?;
    request.end()?;
    if usize::from(balancer.is_some()) + usize::from(!arns.is_empty()) + usize::from(!names.is_empty()) > 1 {
        return Err(invalid("Specify only one of a load balancer ARN, target group ARNs and names"));
    }
    if arns.iter().any(|arn| !world.target_groups.contains_key(arn))
        || names.iter().any(|name| !world.target_groups.values().any(|found| found.name == *name))
    {
        return Err(Refusal::new("TargetGroupNotFound", "One or more target groups not found"));
    }
    let used = match &balancer {
        None => None,
        Some(arn) => {
            Kind::LoadBalancer.check(arn)?;
            let found = world.load_balancers.get(arn).ok_or_else(|| Kind::LoadBalancer.not_found(arn))?;
            Some(found)
        }
    };
    let found = world.target_groups.iter().filter(|(arn, found)| {
        (arns.is_empty() || arns.contains(arn))
            && (names.is_empty() || names.contains(&found.name))
            && used.is_none_or(|used| used.listeners.values().any(|listener| listener.target_group == **arn))
    });
    let (part, next) = page.cut(found);
    // Who sends to whom, looked up once for the whole page.
    let mut users: BTreeMap<&str, Vec<&String>> = BTreeMap::new();
    for (arn, found) in &world.load_balancers {
        for listener in found.listeners.values() {
            let users = users.entry(&listener.target_group).or_default();
            if users.last() != Some(&arn) {
                users.push(arn);
            }
        }
    }
    let entries = part
        .into_iter()
        .map(|(arn, found)| told(arn, found, users.get(arn.as_str()).map(Vec::as_slice).unwrap_or_default()));
    Ok(xml::members("TargetGroups", entries) + &next)
}

fn told(arn: &str, found: &TargetGroup, users: &[&String]) -> String {
    let check = &found.health_check;
    let matcher = check.matcher.as_ref().map(|codes| xml::node("Matcher", xml::leaf("HttpCode", codes)));
    xml::leaf("TargetGroupArn", arn)
        + &xml::leaf("TargetGroupName", &found.name)
        + &xml::leaf("Protocol", &found.protocol)
        + &xml::leaf("Port", found.port)
        + &xml::leaf("VpcId", &found.vpc)
        + &xml::leaf("HealthCheckProtocol", &check.protocol)
        + &xml::leaf("HealthCheckPort", &check.port)
        + &xml::leaf("HealthCheckEnabled", true)
        + &xml::leaf("HealthCheckIntervalSeconds", check.interval)
        + &xml::leaf("HealthCheckTimeoutSeconds", check.timeout)
        + &xml::leaf("HealthyThresholdCount", check.healthy)
        + &xml::leaf("UnhealthyThresholdCount", check.unhealthy)
        + &xml::leaf_some("HealthCheckPath", check.path.as_ref())
        + &matcher.unwrap_or_default()
        + &xml::members("LoadBalancerArns", users.iter().map(|arn| xml::escaped(arn)))
        + &xml::leaf("TargetType", &found.kind)
        + &xml::leaf("IpAddressType", &found.ip_address_type)
}

/// How targets are to be checked, as far as it is said.
struct Asked {
    protocol: Option<String>,
    port: Option<String>,
    path: Option<String>,
    matcher: Option<String>,
    interval: Option<i32>,
    timeout: Option<i32>,
    healthy: Option<i32>,
    unhealthy: Option<i32>,
}

impl Asked {
    fn take(request: &mut Request) -> Result<Self, Refusal> {
        if request.flag("HealthCheckEnabled")? == Some(false) {
            return Err(impossible("Health checks must be enabled for targets of this type"));
        }
        let protocol = request.choice("HealthCheckProtocol", PROTOCOLS)?;
        let port = request.text("HealthCheckPort")?;
        let is_port =
            |port: &String| port == "traffic-port" || port.parse::<u16>().is_ok_and(|port| port > 0);
        if let Some(port) = port.as_ref().filter(|port| !is_port(port)) {
            return Err(invalid(format!(
                "Health check port '{port}' must be in the range of 1-65535 or 'traffic-port'"
            )));
        }
        let path = request.text("HealthCheckPath")?;
        let is_path = |path: &String| {
            path.starts_with('/') && path.len() <= 1024 && !path.contains(char::is_whitespace)
        };
        if let Some(path) = path.as_ref().filter(|path| !is_path(path)) {
            return Err(invalid(format!("Health check path '{path}' must begin with a '/' character")));
        }
        let matcher = match request.structure("Matcher")? {
            None => None,
            Some(mut matcher) => {
                let codes = matcher.needed("HttpCode")?;
                matcher.end()?;
                check_codes(&codes)?;
                Some(codes)
            }
        };
        Ok(Asked {
            protocol,
            port,
            path,
            matcher,
            interval: request.number("HealthCheckIntervalSeconds", 5..=300)?,
            timeout: request.number("HealthCheckTimeoutSeconds", 2..=120)?,
            healthy: request.number("HealthyThresholdCount", 2..=10)?,
            unhealthy: request.number("UnhealthyThresholdCount", 2..=10)?,
        })
    }

    /// What was there before stays where nothing is said.
    fn apply(self, before: Option<&HealthCheck>) -> Result<HealthCheck, Refusal> {
        let protocol = self.protocol.or_else(|| before.map(|before| before.protocol.clone()));
        let protocol = protocol.unwrap_or_else(|| "TCP".to_owned());
        if !["TCP", "HTTP", "HTTPS"].contains(&protocol.as_str()) {
            return Err(invalid(format!(
                "Health check protocol '{protocol}' must be one of 'HTTP, HTTPS, TCP'"
            )));
        }
        let web = protocol != "TCP";
        if !web && (self.path.is_some() || self.matcher.is_some()) {
            return Err(impossible("A path and codes are for health checks with HTTP and HTTPS only"));
        }
        let before = before.filter(|before| before.protocol == protocol || !web);
        let text = |said: Option<String>, known: Option<&String>, usual: &str| {
            said.or_else(|| known.cloned()).unwrap_or_else(|| usual.to_owned())
        };
        let known = |get: fn(&HealthCheck) -> i32| before.map(get);
        let usual_timeout = if protocol == "HTTP" { 6 } else { 10 };
        let check = HealthCheck {
            port: text(self.port, before.map(|before| &before.port), "traffic-port"),
            path: web.then(|| text(self.path, before.and_then(|before| before.path.as_ref()), "/")),
            matcher: web
                .then(|| text(self.matcher, before.and_then(|before| before.matcher.as_ref()), "200-399")),
            interval: self.interval.or(known(|before| before.interval)).unwrap_or(30),
            timeout: self.timeout.or(known(|before| before.timeout)).unwrap_or(usual_timeout),
            healthy: self.healthy.or(known(|before| before.healthy)).unwrap_or(5),
            unhealthy: self.unhealthy.or(known(|before| before.unhealthy)).unwrap_or(2),
            protocol,
        };
        if check.timeout > check.interval {
            return Err(invalid(format!(
                "Health check timeout '{}' must be smaller than or equal to the interval '{}'",
                check.timeout, check.interval
            )));
        }
        Ok(check)
    }
}

/// `200`, `200,202` or `200-299`.
fn check_codes(codes: &str) -> Result<(), Refusal> {
    let code = |text: &str| text.parse::<u16>().ok().filter(|code| (200..=599).contains(code));
    let good = codes.split(',').all(|part| match part.split_once('-') {
        Some((from, to)) => code(from).zip(code(to)).is_some_and(|(from, to)| from <= to),
        None => code(part).is_some(),
    });
    if good { Ok(()) } else { Err(invalid(format!("Health check matcher HTTP code '{codes}' is not valid"))) }
}

pub(super) fn create(machine: &mut Machine, mut request: Request) -> Result<String, Refusal> {
    let config = machine.config.clone();
    let name = request.needed("Name")?;
    check_name(&name, "Target group")?;
    let protocol = request.choice("Protocol", PROTOCOLS)?.ok_or_else(|| request.missing("Protocol"))?;
    let port = request.port("Port")?.ok_or_else(|| request.missing("Port"))?;
    let vpc = request.needed("VpcId")?;
    let kind = request.choice("TargetType", &["instance", "ip", "lambda", "alb"])?;
    let kind = kind.unwrap_or_else(|| "instance".to_owned());
    let ip_address_type =
        request.choice("IpAddressType", &["ipv4", "ipv6"])?.unwrap_or_else(|| "ipv4".to_owned());
    let asked = Asked::take(&mut request)?;
    let tags = tags::take(&mut request)?;
    request.end()?;
    if !["TCP", "TLS", "UDP", "TCP_UDP"].contains(&protocol.as_str()) || kind == "lambda" {
        return Err(impossible("Only target groups of network load balancers are faked"));
    }
    if kind == "alb" && protocol != "TCP" {
        return Err(impossible("A target group for an application load balancer must have the protocol TCP"));
    }
    let world = &machine.moment.world;
    if !world.vpcs.contains_key(&vpc) {
        return Err(invalid(format!("The VPC ID '{vpc}' is not found")));
    }
    let found = TargetGroup {
        attributes: attributes::usual_of_target_group(&protocol, &kind),
        health_check: asked.apply(None)?,
        name,
        protocol,
        port,
        vpc,
        kind,
        ip_address_type,
        tags,
        targets: BTreeMap::new(),
    };
    if let Some((arn, known)) = world.target_groups.iter().find(|(_, known)| known.name == found.name) {
        let same = known.protocol == found.protocol
            && known.port == found.port
            && known.vpc == found.vpc
            && known.kind == found.kind
            && known.ip_address_type == found.ip_address_type
            && known.health_check == found.health_check;
        if same {
            let users: Vec<&String> = world.users(arn).map(|(arn, _)| arn).collect();
            return Ok(xml::members("TargetGroups", [told(arn, known, &users)]));
        }
        let message =
            format!("A target group with the same name '{}' exists, but with different settings", found.name);
        return Err(Refusal::new("DuplicateTargetGroupName", message));
    }
    if world.target_groups.len() >= config.quotas.target_groups {
        return Err(Refusal::new(
            "TooManyTargetGroups",
            "The maximum number of target groups has been reached",
        ));
    }
    let id = machine.number();
    let (region, account) = (&config.region, &config.account);
    let arn = format!("arn:aws:elasticloadbalancing:{region}:{account}:targetgroup/{}/{id:016x}", found.name);
    let answer = told(&arn, &found, &[]);
    machine.moment.world.target_groups.insert(arn, found);
    Ok(xml::members("TargetGroups", [answer]))
}

pub(super) fn modify(machine: &mut Machine, mut request: Request) -> Result<String, Refusal> {
    let arn = arn(&mut request, "TargetGroupArn", Kind::TargetGroup)?;
    let asked = Asked::take(&mut request)?;
    request.end()?;
    let world = &mut machine.moment.world;
    let found = world.target_groups.get_mut(&arn).ok_or_else(|| Kind::TargetGroup.not_found(&arn))?;
    found.health_check = asked.apply(Some(&found.health_check))?;
    let found = found.clone();
    let users: Vec<&String> = world.users(&arn).map(|(arn, _)| arn).collect();
    Ok(xml::members("TargetGroups", [told(&arn, &found, &users)]))
}

pub(super) fn delete(machine: &mut Machine, mut request: Request) -> Result<String, Refusal> {
    let arn = arn(&mut request, "TargetGroupArn", Kind::TargetGroup)?;
    request.end()?;
    let world = &mut machine.moment.world;
    if world.users(&arn).next().is_some() {
        let message = format!("Target group '{arn}' is currently in use by a listener or a rule");
        return Err(Refusal::new("ResourceInUse", message));
    }
    // One that is not there is deleted already: no other error is documented.
    world.target_groups.remove(&arn);
    Ok(String::new())
}
