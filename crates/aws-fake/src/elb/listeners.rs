//! Listeners.

use crate::machine::Machine;
use crate::refusal::Refusal;
use crate::request::Request;
use crate::world::{Listener, LoadBalancer, World};
use crate::xml;

use super::page::Page;
use super::{Kind, arn, arns, impossible, invalid, tags};

/// What AWS takes where none is named by a call.
const USUAL_POLICY: &str = "ELBSecurityPolicy-2016-08";

const POLICIES: &[&str] = &[
    USUAL_POLICY,
    "ELBSecurityPolicy-FS-1-1-2019-08",
    "ELBSecurityPolicy-FS-1-2-2019-08",
    "ELBSecurityPolicy-FS-1-2-Res-2019-08",
    "ELBSecurityPolicy-FS-1-2-Res-2020-10",
    "ELBSecurityPolicy-FS-2018-06",
    "ELBSecurityPolicy-TLS-1-0-2015-04",
    "ELBSecurityPolicy-TLS-1-1-2017-01",
    "ELBSecurityPolicy-TLS-1-2-2017-01",
    "ELBSecurityPolicy-TLS-1-2-Ext-2018-06",
    "ELBSecurityPolicy-TLS13-1-0-2021-06",
    "ELBSecurityPolicy-TLS13-1-1-2021-06",
    "ELBSecurityPolicy-TLS13-1-2-2021-06",
    "ELBSecurityPolicy-TLS13-1-2-Ext1-2021-06",
    "ELBSecurityPolicy-TLS13-1-2-Ext2-2021-06",
    "ELBSecurityPolicy-TLS13-1-2-Res-2021-06",
    "ELBSecurityPolicy-TLS13-1-2-Res-PQ-2025-09",
    "ELBSecurityPolicy-TLS13-1-3-2021-06",
];

const ALPN: &[&str] = &["HTTP1Only", "HTTP2Only", "HTTP2Optional", "HTTP2Preferred", "None"];

pub(super) fn describe(world: &World, mut request: Request) -> Result<String, Refusal> {
    let balancer = request.text("LoadBalancerArn")?;
    let arns = arns(&mut request, "ListenerArns", Kind::Listener)?;
    let page = Page::take(&mut request)?;
    request.end()?;
    if balancer.is_some() != arns.is_empty() {
        return Err(invalid("Specify either a load balancer ARN or listener ARNs"));
    }
    let all = |found: &LoadBalancer, arn: &str| found.listeners.contains_key(arn);
    if let Some(arn) = arns.iter().find(|arn| !world.load_balancers.values().any(|found| all(found, arn))) {
        return Err(Kind::Listener.not_found(arn));
    }
    if let Some(arn) = &balancer {
        Kind::LoadBalancer.check(arn)?;
        world.load_balancers.get(arn).ok_or_else(|| Kind::LoadBalancer.not_found(arn))?;
    }
    let balancers = world.load_balancers.iter();
    let balancers = balancers.filter(|(arn, _)| balancer.as_ref().is_none_or(|wanted| wanted == *arn));
    let mut found: Vec<_> = balancers
        .flat_map(|(parent, found)| {
            found.listeners.iter().map(move |(arn, listener)| (arn, (parent, listener)))
        })
        .filter(|(arn, _)| arns.is_empty() || arns.contains(arn))
        .collect();
    found.sort_by_key(|(arn, _)| *arn);
    let (part, next) = page.cut(found);
    let entries = part.into_iter().map(|(arn, (parent, listener))| told(arn, parent, listener));
    Ok(xml::members("Listeners", entries) + &next)
}

fn told(arn: &str, parent: &str, found: &Listener) -> String {
    let group = xml::leaf("TargetGroupArn", &found.target_group);
    let forward = xml::node("ForwardConfig", xml::members("TargetGroups", [group.clone()]));
    let action = xml::leaf("Type", "forward") + &group + &xml::leaf("Order", 1) + &forward;
    let certificates = found.certificate.as_ref().map(|arn| xml::leaf("CertificateArn", arn));
    let certificates = certificates.map(|certificate| xml::members("Certificates", [certificate]));
    let alpn = found.alpn.as_ref().map(|policy| xml::members("AlpnPolicy", [xml::escaped(policy)]));
    xml::leaf("ListenerArn", arn)
        + &xml::leaf("LoadBalancerArn", parent)
        + &xml::leaf("Port", found.port)
        + &xml::leaf("Protocol", &found.protocol)
        + &certificates.unwrap_or_default()
        + &xml::leaf_some("SslPolicy", found.policy.as_ref())
        + &xml::members("DefaultActions", [action])
        + &alpn.unwrap_or_default()
}

/// What is asked of a listener.
struct Asked {
    port: Option<u16>,
    protocol: Option<String>,
    target_group: Option<String>,
    certificates: Vec<String>,
    policy: Option<String>,
    alpn: Vec<String>,
}

impl Asked {
    fn take(request: &mut Request) -> Result<Self, Refusal> {
        let protocols = ["HTTP", "HTTPS", "TCP", "TLS", "UDP", "TCP_UDP", "GENEVE"];
        let (port, protocol) = (request.port("Port")?, request.choice("Protocol", &protocols)?);
        let mut certificates = Vec::new();
        for mut certificate in request.structures("Certificates")? {
            certificates.push(certificate.needed("CertificateArn")?);
            if certificate.flag("IsDefault")?.is_some() {
                return Err(invalid("You cannot specify the IsDefault parameter for certificates"));
            }
            certificate.end()?;
        }
        let target_group = take_action(request)?;
        let (policy, alpn) = (request.text("SslPolicy")?, request.list("AlpnPolicy")?);
        Ok(Asked { port, protocol, target_group, certificates, policy, alpn })
    }

    /// What was there before stays where nothing is said.
    fn apply(self, world: &World, before: Option<&Listener>) -> Result<Listener, Refusal> {
        let missing = |name| Refusal::missing(crate::service::Service::Elb, name);
        let port = self.port.or(before.map(|before| before.port)).ok_or_else(|| missing("Port"))?;
        let protocol = self.protocol.or_else(|| before.map(|before| before.protocol.clone()));
        let protocol = protocol.ok_or_else(|| missing("Protocol"))?;
        if !["TCP", "TLS", "UDP", "TCP_UDP"].contains(&protocol.as_str()) {
            let message = format!("Listener protocol '{protocol}' must be one of 'TCP, UDP, TCP_UDP, TLS'");
            return Err(Refusal::new("UnsupportedProtocol", message));
        }
        let target_group = self.target_group.or_else(|| before.map(|before| before.target_group.clone()));
        let target_group = target_group.ok_or_else(|| missing("DefaultActions"))?;
        if protocol != "TLS" {
            if !self.certificates.is_empty() || self.policy.is_some() || !self.alpn.is_empty() {
                let message =
                    format!("Certificates and policies cannot be specified for {protocol} listeners");
                return Err(invalid(message));
            }
            let (certificate, policy, alpn) = (None, None, None);
            let tags = before.map(|before| before.tags.clone()).unwrap_or_default();
            return Ok(Listener { port, protocol, target_group, certificate, policy, alpn, tags });
        }
        if self.certificates.len() > 1 {
            return Err(invalid(format!(
                "Up to '1' certificate ARNs can be specified, but '{}' were specified",
                self.certificates.len()
            )));
        }
        let certificate = self.certificates.into_iter().next();
        let certificate = certificate.or_else(|| before.and_then(|before| before.certificate.clone()));
        let certificate =
            certificate.ok_or_else(|| invalid("A certificate must be specified for TLS listeners"))?;
        if !world.certificates.contains(&certificate) {
            let message = format!("Certificate '{certificate}' not found");
            return Err(Refusal::new("CertificateNotFound", message));
        }
        let policy = self.policy.or_else(|| before.and_then(|before| before.policy.clone()));
        let policy = policy.unwrap_or_else(|| USUAL_POLICY.to_owned());
        if !POLICIES.contains(&policy.as_str()) {
            return Err(Refusal::new("SSLPolicyNotFound", format!("SSL policy '{policy}' not found")));
        }
        if self.alpn.len() > 1 {
            return Err(invalid("Only one ALPN policy can be specified"));
        }
        let alpn = self.alpn.into_iter().next().or_else(|| before.and_then(|before| before.alpn.clone()));
        if let Some(alpn) = alpn.as_ref().filter(|alpn| !ALPN.contains(&alpn.as_str())) {
            return Err(Refusal::new("ALPNPolicyNotFound", format!("ALPN policy '{alpn}' not found")));
        }
        let tags = before.map(|before| before.tags.clone()).unwrap_or_default();
        let (certificate, policy) = (Some(certificate), Some(policy));
        Ok(Listener { port, protocol, target_group, certificate, policy, alpn, tags })
    }
}

/// Takes what a listener is to do: a network load balancer sends to one target group.
fn take_action(request: &mut Request) -> Result<Option<String>, Refusal> {
    let mut group = None;
    let actions = request.structures("DefaultActions")?;
    if actions.len() > 1 {
        return Err(Refusal::new("TooManyActions", "A listener has one default action"));
    }
    for mut action in actions {
        if action.needed("Type")? != "forward" {
            let message = "A network load balancer has actions of type 'forward' only";
            return Err(Refusal::new("InvalidLoadBalancerAction", message));
        }
        let _ = action.number("Order", 1..=50_000)?;
        let mut named: Vec<String> = action.text("TargetGroupArn")?.into_iter().collect();
        if let Some(mut forward) = action.structure("ForwardConfig")? {
            for mut entry in forward.structures("TargetGroups")? {
                named.push(entry.needed("TargetGroupArn")?);
                let _ = entry.number("Weight", 0..=999)?;
                entry.end()?;
            }
            forward.end()?;
        }
        action.end()?;
        named.dedup();
        if named.len() > 1 {
            let message = "A network load balancer sends to one target group";
            return Err(Refusal::new("InvalidLoadBalancerAction", message));
        }
        let found = named.pop().ok_or_else(|| invalid("A target group ARN must be specified"))?;
        Kind::TargetGroup.check(&found)?;
        group = Some(found);
    }
    Ok(group)
}

/// Checks a listener of a load balancer against all that is there.
fn check(world: &World, parent: &str, own: Option<&str>, listener: &Listener) -> Result<(), Refusal> {
    let arn = &listener.target_group;
    let found = world.load_balancers.get(parent).ok_or_else(|| Kind::LoadBalancer.not_found(parent))?;
    let group = world.target_groups.get(arn).ok_or_else(|| Kind::TargetGroup.not_found(arn))?;
    let taken =
        |(other, known): (&String, &Listener)| known.port == listener.port && Some(other.as_str()) != own;
    if found.listeners.iter().any(taken) {
        let message =
            format!("A listener already exists on port {} for this load balancer '{parent}'", listener.port);
        return Err(Refusal::new("DuplicateListener", message));
    }
    let fitting: &[&str] = match listener.protocol.as_str() {
        "TCP" => &["TCP", "TCP_UDP"],
        "TLS" => &["TCP", "TLS"],
        "UDP" => &["UDP", "TCP_UDP"],
        _ => &["TCP_UDP"],
    };
    if !fitting.contains(&group.protocol.as_str()) {
        let message = format!(
            "The listener protocol '{}' and the target group protocol '{}' do not go together",
            listener.protocol, group.protocol
        );
        return Err(Refusal::new("IncompatibleProtocols", message));
    }
    if group.vpc != found.vpc {
        return Err(impossible(format!("Target group '{arn}' is not in the VPC of the load balancer")));
    }
    if group.ip_address_type == "ipv6" && found.ip_address_type != "dualstack" {
        return Err(impossible(format!("Target group '{arn}' needs a load balancer of type 'dualstack'")));
    }
    if listener.protocol.contains("UDP") && found.ip_address_type == "dualstack" && !found.source_nat_prefixes
    {
        return Err(impossible("Listeners for UDP and TCP_UDP need the IP address type 'ipv4'"));
    }
    if world.users(arn).any(|(other, _)| other != parent) {
        let message = format!(
            "The following target groups cannot be associated with more than one load balancer: {arn}"
        );
        return Err(Refusal::new("TargetGroupAssociationLimit", message));
    }
    Ok(())
}

pub(super) fn create(machine: &mut Machine, mut request: Request) -> Result<String, Refusal> {
    let most = machine.config.quotas.listeners;
    let parent = arn(&mut request, "LoadBalancerArn", Kind::LoadBalancer)?;
    let asked = Asked::take(&mut request)?;
    let tags = tags::take(&mut request)?;
    request.end()?;
    let world = &machine.moment.world;
    let found = world.load_balancers.get(&parent).ok_or_else(|| Kind::LoadBalancer.not_found(&parent))?;
    let listener = Listener { tags, ..asked.apply(world, None)? };
    // The same again is no other one.
    let same = |known: &Listener| Listener { tags: listener.tags.clone(), ..known.clone() } == listener;
    if let Some((arn, known)) = found.listeners.iter().find(|(_, known)| same(known)) {
        return Ok(xml::members("Listeners", [told(arn, &parent, known)]));
    }
    check(world, &parent, None, &listener)?;
    if found.listeners.len() >= most {
        return Err(Refusal::new("TooManyListeners", "The maximum number of listeners has been reached"));
    }
    let id = machine.number();
    let arn = format!("{}/{id:016x}", parent.replacen(":loadbalancer/", ":listener/", 1));
    let answer = xml::members("Listeners", [told(&arn, &parent, &listener)]);
    let group = listener.target_group.clone();
    if let Some(found) = machine.moment.world.load_balancers.get_mut(&parent) {
        found.listeners.insert(arn, listener);
    }
    machine.follow(Some(&[group]));
    Ok(answer)
}

/// The load balancer of a listener.
fn parent_of(world: &World, arn: &str) -> Result<(String, Listener), Refusal> {
    let mut all = world.load_balancers.iter();
    let found =
        all.find_map(|(parent, found)| found.listeners.get(arn).map(|known| (parent.clone(), known.clone())));
    found.ok_or_else(|| Kind::Listener.not_found(arn))
}

pub(super) fn modify(machine: &mut Machine, mut request: Request) -> Result<String, Refusal> {
    let arn = arn(&mut request, "ListenerArn", Kind::Listener)?;
    let asked = Asked::take(&mut request)?;
    request.end()?;
    let world = &machine.moment.world;
    let (parent, before) = parent_of(world, &arn)?;
    let listener = asked.apply(world, Some(&before))?;
    check(world, &parent, Some(&arn), &listener)?;
    let answer = xml::members("Listeners", [told(&arn, &parent, &listener)]);
    let groups = [before.target_group, listener.target_group.clone()];
    if let Some(found) = machine.moment.world.load_balancers.get_mut(&parent) {
        found.listeners.insert(arn, listener);
    }
    machine.follow(Some(&groups));
    Ok(answer)
}

pub(super) fn delete(machine: &mut Machine, mut request: Request) -> Result<String, Refusal> {
    let arn = arn(&mut request, "ListenerArn", Kind::Listener)?;
    request.end()?;
    let (parent, known) = parent_of(&machine.moment.world, &arn)?;
    if let Some(found) = machine.moment.world.load_balancers.get_mut(&parent) {
        found.listeners.remove(&arn);
    }
    machine.follow(Some(&[known.target_group]));
    Ok(String::new())
}
