//! What an owner wants, in AWS's words: nothing is left open but what only AWS knows.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use portcullis_core::{
    Duty, Family, HealthPort, Listener, ListenerProtocol, LoadBalancer, Member, Owner, Peer as CorePeer,
    Probe, Problem, Scheme, Target, Want,
};
use smol_str::SmolStr;

use super::asked::{Asked, Health, PREFIX, TargetKind};
use super::members;
use super::names;
use super::settings::{MemberReports, NodeRules, Settings};
use super::words;
use crate::ProbeMode;
use crate::model::{Attributes, HealthCheck, Peer, Tags};

/// What an owner wants.
#[allow(clippy::struct_excessive_bools, reason = "each is about something else")]
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Spec {
    pub(super) owner: Owner,
    pub(super) uid: String,
    pub(super) name: String,
    pub(super) scheme: Scheme,
    pub(super) dual_stack: bool,
    pub(super) target_kind: TargetKind,
    /// The machines that packets go to: they are the targets, or the targets run on them. Those who have the same share
    /// them.
    pub(super) machines: Arc<Machines>,
    /// Those of them that are not to be sent to any more. What they have goes on, so that they are still let in.
    pub(super) aside: Machines,
    /// Whether anybody is to be sent to, be it somebody whom AWS can send to or not.
    pub(super) is_served: bool,
    /// By their ports.
    pub(super) listeners: BTreeMap<u16, Listening>,
    /// Who may connect.
    pub(super) clients: BTreeSet<Peer>,
    pub(super) path_mtu: bool,
    /// Groups to use instead of a managed one, by name or id.
    pub(super) groups: Option<Vec<String>>,
    pub(super) manage_backend: bool,
    pub(super) subnets: Vec<String>,
    pub(super) allocations: Vec<String>,
    pub(super) private_addresses: Vec<String>,
    pub(super) attributes: Attributes,
    pub(super) target_attributes: Attributes,
    pub(super) tags: Tags,
}

/// A port of a load balancer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Listening {
    /// `TCP`, `UDP`, `TCP_UDP` or `TLS`.
    pub(super) protocol: &'static str,
    pub(super) certificate: Option<String>,
    pub(super) policy: Option<String>,
    pub(super) alpn: Option<String>,
    pub(super) backend: Backend,
}

/// Where a listener sends to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Backend {
    pub(super) protocol: &'static str,
    pub(super) port: u16,
    pub(super) ip_address_type: &'static str,
    pub(super) health: HealthCheck,
    /// The addresses that are sent to, each with its port, where these are the targets.
    pub(super) addresses: BTreeSet<(IpAddr, u16)>,
    /// Those that are not sent to any more, and may have something still.
    pub(super) aside: BTreeSet<(IpAddr, u16)>,
}

/// Machines by their ids.
pub(super) type Machines = BTreeSet<SmolStr>;

impl Listening {
    /// What its packets are, in the words of rules: TLS is TCP on the wire.
    pub(super) fn transports(&self) -> &'static [&'static str] {
        transports(self.protocol)
    }
}

/// What packets of a protocol are, in the words of rules.
pub(super) fn transports(protocol: &str) -> &'static [&'static str] {
    match protocol {
        "UDP" => &["udp"],
        "TCP_UDP" => &["tcp", "udp"],
        _ => &["tcp"],
    }
}

impl Spec {
    /// What is wanted, and what is to be told about it.
    pub(super) fn new(
        want: &Want,
        wanted: &LoadBalancer,
        settings: &Settings,
    ) -> Result<(Self, Vec<String>), Problem> {
        let Want { owner, uid, parameters, nodes, .. } = want;
        if let Some(address) = wanted.addresses().first() {
            return Err(Problem::new(
                format!(
                    "{owner}: spec.loadBalancerIP is `{address}`, and AWS does not let anybody choose the address."
                ),
                "Nothing was changed.",
                "Remove it; fixed addresses are given by annotation.",
            ));
        }
        let (asked, mut told) = Asked::parse(owner, parameters)?;
        let dual_stack = asked.dual_stack.unwrap_or_else(|| wanted.families().contains(&Family::V6));
        let listeners = listeners(owner, wanted, &asked, settings, &mut told)?;
        if !dual_stack {
            check_families(owner, &listeners, asked.dual_stack)?;
        }
        let mut tags = settings.tags.clone();
        tags.extend(asked.tags);
        tags.insert(format!("kubernetes.io/cluster/{}", settings.cluster), "owned".to_owned());
        tags.extend(settings.identity.clone().map(|id| (Owner::IDENTITY_KEY.to_owned(), id)));
        tags.extend(owner.to_pairs().into_iter().map(|(key, value)| (key.to_owned(), value)));
        told.extend(without_effect(wanted, dual_stack));
        let subnets = if asked.subnets.is_empty() { settings.subnets.clone() } else { asked.subnets };
        let hosts = match asked.target_kind {
            TargetKind::Instance => wanted.members(),
            // Addresses may be of machines themselves.
            TargetKind::Ip if settings.members == MemberReports::Each => wanted.members(),
            TargetKind::Ip => nodes,
        };
        let ids = |hosts: &[&Member]| -> Machines {
            hosts.iter().filter_map(|member| instance_id(member.reference()?)).map(SmolStr::new).collect()
        };
        let machines = ids(&hosts.iter().collect::<Vec<_>>());
        let aside = hosts.iter().filter(|member| member.duty() != Duty::Serve).collect::<Vec<_>>();
        let spec = Spec {
            machines: Arc::new(machines),
            aside: ids(&aside),
            owner: owner.clone(),
            uid: uid.clone(),
            name: asked.name.unwrap_or_else(|| names::load_balancer(owner)),
            scheme: asked.scheme,
            dual_stack,
            target_kind: asked.target_kind,
            is_served: wanted.members().iter().any(|member| member.duty() == Duty::Serve),
            listeners,
            clients: clients(wanted, dual_stack, &asked.prefix_lists),
            path_mtu: asked.path_mtu,
            groups: asked.groups,
            manage_backend: asked.manage_backend,
            subnets,
            allocations: asked.allocations,
            private_addresses: asked.private_addresses,
            attributes: asked.attributes,
            target_attributes: asked.target_attributes,
            tags,
        };
        spec.check(settings)?;
        Ok((spec, told))
    }

    /// What is wanted, if anything is, without what is to be told about it.
    pub(super) fn of(want: &Want, settings: &Settings) -> Result<Option<Self>, Problem> {
        match &want.target {
            Target::Present(wanted) => {
                let made = Spec::new(want, wanted, settings);
                made.map(|(spec, _)| Some(spec))
            }
            Target::Gone => Ok(None),
        }
    }

    fn check(&self, settings: &Settings) -> Result<(), Problem> {
        let owner = &self.owner;
        let refused = |what: String, remedy: &str| {
            Problem::new(format!("{owner}: {what}."), "Nothing was changed.", remedy)
        };
        if self.scheme == Scheme::Internal && !self.allocations.is_empty() {
            let said = words::said(owner, "eip-allocations");
            let what = format!("{said} is for load balancers that face the internet");
            return Err(refused(what, "Remove it, or make the load balancer internet-facing."));
        }
        if self.scheme == Scheme::InternetFacing && !self.private_addresses.is_empty() {
            let what = format!("annotation {PREFIX}private-ipv4-addresses is for internal load balancers");
            return Err(refused(what, "Remove it, or make the load balancer internal."));
        }
        // One place is for the group that all load balancers have.
        let shared = settings.node_rules == NodeRules::Shared && self.manage_backend;
        let most = settings.groups_per_load_balancer - usize::from(shared);
        if let Some(groups) = self.groups.as_ref().filter(|groups| groups.len() > most) {
            let what = format!(
                "{} names {} groups, and there is room for {most}: {}",
                words::said(owner, "security-groups"),
                groups.len(),
                groups.join(", ")
            );
            return Err(refused(what, "Name fewer."));
        }
        for (port, listening) in &self.listeners {
            let health = &listening.backend.health;
            if health.timeout > health.interval {
                let what = format!(
                    "{} is `{}`: it is longer than the interval of {} s",
                    words::said(owner, "healthcheck-timeout"),
                    health.timeout,
                    health.interval
                );
                return Err(refused(what, "Correct it, or set the interval, too."));
            }
            // AWS takes it with prefixes for source NAT, which are not asked for here.
            if self.dual_stack && listening.transports().contains(&"udp") {
                let what = format!(
                    "port {port} is for UDP, which Portcullis does not do on a load balancer for both families"
                );
                return Err(refused(
                    what,
                    &format!("Remove the port, or set {} to `ipv4`.", words::key(owner, "ip-address-type")),
                ));
            }
        }
        Ok(())
    }
}

/// Whether a load balancer for IPv4 alone can send to all; `asked` is whether the annotation is why it is one.
fn check_families(
    owner: &Owner,
    listeners: &BTreeMap<u16, Listening>,
    asked: Option<bool>,
) -> Result<(), Problem> {
    let mut six = listeners.iter().filter(|(_, listening)| listening.backend.ip_address_type == "ipv6");
    let Some((port, _)) = six.next() else { return Ok(()) };
    let why = match asked {
        Some(_) => format!("{} is `ipv4`", words::said(owner, "ip-address-type")),
        None => "the load balancer is for IPv4 alone".to_owned(),
    };
    Err(Problem::new(
        format!("{owner}: {why}, and the targets of port {port} have addresses of IPv6 alone."),
        "Nothing was changed.",
        format!(
            "Set {} to `dualstack`, or give the targets addresses of IPv4.",
            words::key(owner, "ip-address-type")
        ),
    ))
}

/// Ranges of a family that the load balancer does not have.
fn without_effect(wanted: &LoadBalancer, dual_stack: bool) -> Vec<String> {
    let ranges = wanted.admission().ranges.ranges().iter();
    let idle = ranges.filter(|range| !dual_stack && range.family() == Family::V6);
    idle.map(|range| format!("the source range {range} has no effect: the load balancer has IPv4 only"))
        .collect()
}

/// Who may connect, as rules have it.
fn clients(wanted: &LoadBalancer, dual_stack: bool, prefix_lists: &[String]) -> BTreeSet<Peer> {
    let lists = prefix_lists.iter().cloned().map(Peer::PrefixList);
    let mut clients: BTreeSet<Peer> = lists.collect();
    let families: &[Family] = if dual_stack { &[Family::V4, Family::V6] } else { &[Family::V4] };
    for family in families {
        for peer in wanted.admission().peers(*family) {
            match peer {
                CorePeer::Range(range) => drop(clients.insert(Peer::Range(range.network()))),
                // Whoever names lists and no ranges means the lists alone.
                CorePeer::Everyone if !prefix_lists.is_empty() => {}
                CorePeer::Everyone => {
                    clients.insert(Peer::Range(portcullis_core::Cidr::everything(*family)));
                }
                CorePeer::Group(_) => {}
            }
        }
    }
    clients
}

fn listeners(
    owner: &Owner,
    wanted: &LoadBalancer,
    asked: &Asked,
    settings: &Settings,
    told: &mut Vec<String>,
) -> Result<BTreeMap<u16, Listening>, Problem> {
    let mut listeners: BTreeMap<u16, Listening> = BTreeMap::new();
    for listener in wanted.listeners() {
        let new = listening(wanted, listener, asked, settings, told);
        let Some(present) = listeners.get_mut(&listener.port()) else {
            listeners.insert(listener.port(), new);
            continue;
        };
        let port = listener.port();
        let refused = |what: String, remedy: &str| {
            Err(Problem::new(format!("{owner}: {what}."), "Nothing was changed.", remedy))
        };
        if !asked.join_tcp_udp {
            let what = format!(
                "port {port} is wanted for two protocols, and annotation {PREFIX}enable-tcp-udp-listener is `false`"
            );
            return refused(what, "Remove the annotation, or one of the ports.");
        }
        if present.protocol == "TLS" || new.protocol == "TLS" {
            return refused(
                format!("port {port} is wanted for TLS and UDP, and a network load balancer has one of them"),
                "Give them different ports.",
            );
        }
        if present.backend.port != new.backend.port {
            let what = format!(
                "port {port} is for TCP and UDP, which go to ports {} and {} of the targets, and a network load balancer has one for both",
                present.backend.port, new.backend.port
            );
            return refused(what, "Give both the same nodePort, which Kubernetes allows.");
        }
        // The check by TCP serves both.
        let tcp = if present.protocol == "TCP" { present.clone() } else { new };
        let backend = Backend { protocol: "TCP_UDP", ..tcp.backend };
        *present = Listening { protocol: "TCP_UDP", backend, ..tcp };
    }
    if let Some(tls) = &asked.tls
        && let Some(ports) = &tls.ports
    {
        let known: BTreeSet<String> = wanted
            .listeners()
            .iter()
            .flat_map(|listener| [Some(listener.port().to_string()), listener.name().map(str::to_owned)])
            .flatten()
            .collect();
        if let Some(unknown) = ports.iter().find(|port| !known.contains(*port)) {
            return Err(Problem::new(
                format!(
                    "{owner}: annotation {PREFIX}ssl-ports names `{unknown}`, and there is no such port."
                ),
                "Nothing was changed.",
                "Name ports of the Service, by number or name.",
            ));
        }
    }
    Ok(listeners)
}

fn listening(
    wanted: &LoadBalancer,
    listener: &Listener,
    asked: &Asked,
    settings: &Settings,
    told: &mut Vec<String>,
) -> Listening {
    let tls = asked.tls.as_ref().filter(|tls| {
        let named = |ports: &BTreeSet<String>| {
            ports.contains(&listener.port().to_string())
                || listener.name().is_some_and(|name| ports.contains(name))
        };
        matches!(listener.protocol(), ListenerProtocol::Tcp | ListenerProtocol::Tls)
            && tls.ports.as_ref().is_none_or(named)
    });
    let protocol = match (listener.protocol(), tls) {
        (ListenerProtocol::Udp, _) => "UDP",
        (ListenerProtocol::TcpUdp, _) => "TCP_UDP",
        (ListenerProtocol::Tls, _) | (ListenerProtocol::Tcp, Some(_)) => "TLS",
        (ListenerProtocol::Tcp, None) => "TCP",
    };
    let inner = match protocol {
        "TLS" if !asked.backend_tls => "TCP",
        other => other,
    };
    let ((addresses, aside), ip_address_type) = match asked.target_kind {
        TargetKind::Instance => (Sides::default(), "ipv4"),
        TargetKind::Ip => addresses(wanted, listener, settings),
    };
    Listening {
        protocol,
        certificate: tls.map(|tls| tls.certificate.clone()),
        policy: tls.and_then(|tls| tls.policy.clone()),
        alpn: tls.and_then(|tls| tls.alpn.clone()),
        backend: Backend {
            protocol: inner,
            port: listener.target_port(),
            ip_address_type,
            health: health(listener, asked, settings, told),
            addresses,
            aside,
        },
    }
}

/// Where the members of a listener are. They have one family or both; a target group has one. Where nobody is there, it is the
/// one that members will have, so that nothing changes with the last of them.
fn addresses(wanted: &LoadBalancer, listener: &Listener, settings: &Settings) -> (Sides, &'static str) {
    let has = |family| {
        let members = wanted.members();
        let mut there = members.iter().map(|member| member.address(family).is_some());
        if members.is_empty() { wanted.families().contains(&family) } else { there.any(|has| has) }
    };
    let family = if has(Family::V4) || !has(Family::V6) { Family::V4 } else { Family::V6 };
    let (mut served, mut aside) = Sides::default();
    for member in wanted.members() {
        let Some(address) = members::address(member, family, settings.members) else { continue };
        let side = if member.duty() == Duty::Serve { &mut served } else { &mut aside };
        side.insert((address, member.port(listener)));
    }
    ((served, aside), if family == Family::V4 { "ipv4" } else { "ipv6" })
}

/// Addresses with their ports: who is sent to, and who is not any more.
type Sides = (BTreeSet<(IpAddr, u16)>, BTreeSet<(IpAddr, u16)>);

/// The machine in a provider id: `aws:///eu-west-1a/i-0a1b`.
pub(crate) fn instance_id(reference: &str) -> Option<&str> {
    let id = reference.strip_prefix("aws://")?.rsplit('/').next()?;
    id.starts_with("i-").then_some(id)
}

/// How targets are checked: as asked for, else by what the Service says, else by what is usual.
fn health(listener: &Listener, asked: &Asked, settings: &Settings, told: &mut Vec<String>) -> HealthCheck {
    let tcp = HealthCheck {
        protocol: "TCP".to_owned(),
        port: "traffic-port".to_owned(),
        path: None,
        interval: 30,
        timeout: 10,
        healthy: 3,
        unhealthy: 3,
    };
    let shared = HealthCheck {
        protocol: "HTTP".to_owned(),
        port: settings.probe_port.to_string(),
        path: Some(settings.probe_path.clone()),
        timeout: 6,
        ..tcp.clone()
    };
    let nodes = asked.target_kind == TargetKind::Instance;
    let udp = listener.protocol() == ListenerProtocol::Udp;
    let usual = match listener.health_check() {
        Some(check) if nodes || settings.members == MemberReports::Each => {
            let (protocol, path) = match check.probe() {
                Probe::Tcp => ("TCP", None),
                Probe::Http { path } => ("HTTP", Some(path.clone())),
                Probe::Https { path } => ("HTTPS", Some(path.clone())),
            };
            let check = HealthCheck {
                protocol: protocol.to_owned(),
                port: match check.port() {
                    HealthPort::Traffic => "traffic-port".to_owned(),
                    HealthPort::Number(port) => port.to_string(),
                },
                path,
                interval: u32::try_from(check.interval().as_secs()).unwrap_or(10),
                timeout: u32::try_from(check.timeout().as_secs()).unwrap_or(6),
                healthy: check.healthy_threshold().into(),
                unhealthy: check.unhealthy_threshold().into(),
            };
            within_limits(&check, listener, told)
        }
        // A port for UDP does not answer a check; that of the node's proxy does.
        _ if nodes && (settings.probe == ProbeMode::Shared || udp) => shared,
        _ => tcp,
    };
    if udp && !nodes && asked.health == Health::default() {
        told.push(format!(
            "the targets of udp {} are checked by TCP on the same port: name another one with {PREFIX}healthcheck-port",
            listener.port()
        ));
    }
    changed(usual, &asked.health)
}

/// The same check as AWS does it: at its paces, and with its counts.
fn within_limits(check: &HealthCheck, listener: &Listener, told: &mut Vec<String>) -> HealthCheck {
    let interval = check.interval.clamp(5, 300);
    let within = HealthCheck {
        interval,
        timeout: check.timeout.clamp(2, 120).min(interval),
        healthy: check.healthy.clamp(2, 10),
        unhealthy: check.unhealthy.clamp(2, 10),
        ..check.clone()
    };
    let numbers = [
        ("interval", check.interval, within.interval),
        ("timeout", check.timeout, within.timeout),
        ("healthy threshold", check.healthy, within.healthy),
        ("unhealthy threshold", check.unhealthy, within.unhealthy),
    ];
    for (what, asked, is) in numbers.into_iter().filter(|(_, asked, is)| asked != is) {
        let port = listener.port();
        told.push(format!(
            "the health check of port {port} has the {what} {is} instead of {asked}: AWS has limits"
        ));
    }
    within
}

fn changed(usual: HealthCheck, asked: &Health) -> HealthCheck {
    let protocol = asked.protocol.clone().unwrap_or_else(|| usual.protocol.clone());
    let path = match protocol.as_str() {
        "TCP" => None,
        _ => asked.path.clone().or(usual.path).or_else(|| Some("/".to_owned())),
    };
    let interval = asked.interval.unwrap_or(usual.interval);
    HealthCheck {
        protocol,
        port: asked.port.clone().unwrap_or(usual.port),
        path,
        interval,
        timeout: asked.timeout.unwrap_or(usual.timeout.min(interval)),
        healthy: asked.healthy.unwrap_or(usual.healthy),
        unhealthy: asked.unhealthy.unwrap_or(usual.unhealthy),
    }
}
