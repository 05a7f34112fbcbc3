//! What is said of a Service, by what it asks for and what nodes give.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use k8s_openapi::api::core::v1::{LoadBalancerIngress, PortStatus, Service};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use portcullis_core::{Enforcement, Protocol};
use portcullis_host::claims::{Claim, Port, Refusal, Share};
use portcullis_host::datapath::Mode;
use portcullis_host::interfaces::{Entry, NotHere};
use portcullis_kube_api::enforced::{self, enforced_condition};
use portcullis_kube_api::host::{self, ASSIGNED, LISTEN_ADDRESSES, NODE_PORTS, NodeDatapath, NodeSettings};
use serde_json::{Value, json};

use super::asked::{
    admission, all_ports, claim, covers_node_ports, health_check, ingress, limits, node_ports,
};
use super::others::external_ips;
use super::report::word;

/// What one node gives a Service.
#[allow(clippy::struct_excessive_bools, reason = "each is known or not for itself")]
#[derive(Clone, Debug)]
pub(super) struct Given<'a> {
    /// The node.
    pub(super) node: &'a str,
    pub(super) share: &'a Share,
    /// By what it does not look after the Service, if it does not.
    pub(super) settings: Option<&'a NodeSettings>,
    /// What its packet filters do.
    pub(super) datapath: &'a NodeDatapath,
    /// Whether they know what it asks for, and that it gets these addresses.
    pub(super) knows: bool,
    /// What of its entries the node does not have.
    pub(super) missing: Vec<(Entry, NotHere)>,
    /// Whether it was started since it told of its packet filters, which are empty then.
    pub(super) started_anew: bool,
    /// Whether they should know by now, and do not.
    pub(super) is_late: bool,
    /// Whether it is not known by what version it came to get these addresses, and thus not whether they know.
    pub(super) is_unseen: bool,
    /// Whether its addresses do not count, since others' are better.
    pub(super) is_aside: bool,
}

/// What is to be said of a Service.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Verdict {
    /// Where it is reached.
    pub(super) addresses: BTreeSet<IpAddr>,
    /// Who serves these.
    servers: BTreeMap<IpAddr, Server>,
    /// Those of them where it is with the ports that it had, until packet filters know of the others.
    pub(super) settling: BTreeSet<IpAddr>,
    /// Whether it has all that it asks for; a reason and a sentence.
    pub(super) assigned: (bool, &'static str, String),
    /// Whether its ranges keep anybody out.
    pub(super) enforcement: Kept,
    /// Whether more is to be said once the packet filters of a node know of it.
    pub(super) waits: bool,
    /// Whether it is served as is said here only until they do, which is soon, mostly.
    pub(super) is_early: bool,
    /// Whether it waits for them to know of a version that has to come yet: what is said of it is said anew, which makes one.
    pub(super) is_unseen: bool,
}

/// Who serves an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Server {
    /// Whoever does so by the status.
    Others,
    /// Whoever did, and others if nobody is known to have.
    AsBefore,
    /// Whoever did, and nobody but its node if nobody is known to have: others would let everybody in.
    AsBeforeOrNode,
    /// The packet filters of its node.
    Node,
}

/// How it stands with the source ranges of a Service at an address of a node, if that is told now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    /// They are kept to by the node, or by nobody who comes to serve it now.
    Kept,
    /// What it has is kept to, and what is new of it will be in a moment.
    Settles,
    /// Nobody keeps to them.
    Open,
}

/// Whether ranges keep anybody out.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Kept {
    /// There is nothing to say.
    Nothing,
    /// That is not known yet. What was said before is about other ranges, in its words.
    NotYet,
    /// Whoever forwards packets has to.
    LeftToOthers,
    /// They do, or do not.
    Said(Enforcement),
}

/// What is to be said of a Service, by what all nodes give it.
pub(super) fn verdict(service: &Service, mode: Mode, all: &[Given<'_>]) -> Verdict {
    let given: Vec<Given<'_>> = all.iter().filter(|one| !one.is_aside).cloned().collect();
    let given = given.as_slice();
    // Whoever serves an address does so as soon as it is told. So what keeps others out comes first.
    let limited = limits(service).then(|| claim(service));
    let mut reached = BTreeSet::new();
    let mut servers = BTreeMap::new();
    let mut settling = BTreeSet::new();
    let mut waits = BTreeSet::new();
    // Several nodes may have an address, and no one can keep others out for another.
    let mut open = BTreeSet::new();
    for one in given {
        let server = one.server(mode, limited.is_some());
        for address in &one.share.addresses {
            let most = servers.entry(*address).or_insert(Server::Others);
            *most = server.max(*most);
            match limited.as_ref().map_or(Standing::Kept, |claim| one.standing(claim, *address, mode)) {
                Standing::Kept => {}
                Standing::Settles => drop(settling.insert(*address)),
                Standing::Open => {
                    open.insert(*address);
                    waits.insert(one.node);
                }
            }
            reached.insert(*address);
        }
    }
    reached.retain(|address| !open.contains(address));
    settling.retain(|address| !open.contains(address));
    let assigned = assigned(service, mode, given, &reached, &waits);
    let enforcement = enforcement(service, mode, given, &open_external_ips(service, mode, all));
    let is_unseen = mode == Mode::Filter && limited.is_some() && given.iter().any(|one| one.is_unseen);
    let is_early = mode == Mode::Nftables && given.iter().any(|one| one.is_behind(mode));
    let waits = !waits.is_empty() || !settling.is_empty() || enforcement == Kept::NotYet || is_early;
    Verdict { addresses: reached, servers, settling, assigned, enforcement, waits, is_early, is_unseen }
}

impl Given<'_> {
    /// Whether the packet filters do what they are to do.
    fn has(&self, mode: Mode) -> bool {
        self.datapath.mode == word(mode)
    }

    /// Whether they know of a Service, and do what they do.
    fn is_set(&self) -> bool {
        self.knows && self.datapath.problem.is_none() && !self.started_anew
    }

    /// How it stands with the ranges of a Service at one of its addresses.
    fn standing(&self, claim: &Claim, address: IpAddr, mode: Mode) -> Standing {
        match mode {
            Mode::None => Standing::Kept,
            Mode::Filter if self.filters() => Standing::Kept,
            Mode::Filter => {
                // What it has is kept to by what was set before, unless that is gone.
                let was_set = !self.started_anew && !self.datapath.unset.contains(&address);
                let stays = claim.ports.iter().all(|port| claim.holds(address, *port));
                // Ports that are new are served to everybody in the moment that it takes packet filters to know of them. Where it
                // takes longer, nobody is sent there.
                let settles = claim.holds_some(address) && self.datapath.problem.is_none() && !self.is_late;
                match (was_set, stays, settles) {
                    (true, true, _) => Standing::Kept,
                    (true, false, true) => Standing::Settles,
                    _ => Standing::Open,
                }
            }
            // Who serves what it has goes on, also while an installation is switched.
            Mode::Nftables if self.may_serve() || self.filters() || claim.holds_some(address) => {
                Standing::Kept
            }
            Mode::Nftables => Standing::Open,
        }
    }

    /// What keeps others out while packet filters cannot be changed.
    fn meanwhile(&self) -> String {
        let unset: BTreeSet<IpAddr> =
            self.share.addresses.intersection(&self.datapath.unset).copied().collect();
        if unset.is_empty() {
            return "Until they are, what was set there before counts.".to_owned();
        }
        format!("Nothing is set there for {}.", list(&unset))
    }

    /// Who serves a Service at the addresses of the node, where this is what packet filters are to do. A proxy that is told to leave
    /// an address alone does so at once, so somebody else has to be there.
    fn server(&self, mode: Mode, is_limited: bool) -> Server {
        match mode {
            Mode::Nftables if self.may_serve() && self.is_set() => Server::Node,
            Mode::Nftables if self.may_serve() && is_limited => Server::AsBeforeOrNode,
            Mode::Nftables => Server::AsBefore,
            Mode::None | Mode::Filter => Server::Others,
        }
    }

    /// Whether its packet filters serve what they know of.
    fn may_serve(&self) -> bool {
        self.has(Mode::Nftables) && self.datapath.problem.is_none()
    }

    /// Whether its packet filters are to do something for the Service that they do not know of yet. Where they are to serve, and
    /// cannot in any case, that is said at once.
    pub(super) fn is_behind(&self, mode: Mode) -> bool {
        let is_known = self.knows && !self.started_anew;
        let is_asked = !self.is_aside && !self.share.addresses.is_empty();
        is_asked && !is_known && (mode != Mode::Nftables || self.may_serve())
    }

    /// Whether they filter what the Service asks for now.
    fn filters(&self) -> bool {
        self.has(Mode::Filter) && self.is_set()
    }
}

fn assigned(
    service: &Service,
    mode: Mode,
    given: &[Given<'_>],
    reached: &BTreeSet<IpAddr>,
    waits: &BTreeSet<&str>,
) -> (bool, &'static str, String) {
    let mut refused: BTreeMap<&Refusal, BTreeSet<IpAddr>> = BTreeMap::new();
    for (address, refusal) in given.iter().flat_map(|one| &one.share.refused) {
        refused.entry(refusal).or_default().insert(*address);
    }
    let at = if reached.is_empty() {
        "It is reached nowhere.".to_owned()
    } else {
        format!("It is reached at {}.", list(reached))
    };
    if let Err(what) = admission(service) {
        return (false, "WrongSourceRanges", format!("{what}. Nobody gets in until that is corrected. {at}"));
    }
    if let Some((first, _)) = refused.first_key_value() {
        let reason = match first {
            Refusal::Reserved(_) => "PortReserved",
            Refusal::Listens(_) => "PortOfNode",
            Refusal::NodePort(..) | Refusal::External(..) | Refusal::Taken(..) => "Conflict",
        };
        let why: Vec<String> = refused.iter().map(|(refusal, at)| why(refusal, at)).collect();
        return (false, reason, format!("{} {at}", why.join(" ")));
    }
    if let Some((one, ports)) = left_out(service, given, true).next() {
        let message = format!(
            "Node {} needs {} itself (host.reservedPorts), which this Service has as node ports: they do not lead to it there. Use others.",
            one.node,
            ports.join(", ")
        );
        return (false, "PortOfNode", format!("{message} {at}"));
    }
    if let Some((other, settings)) = given.iter().find_map(|one| Some((one, one.settings?))) {
        let message = format!(
            "Node {} does not look after it: host.class is `{}` and host.withoutClass is {} there. Set the same on nodes as for whoever writes this.",
            other.node, settings.class, settings.without_class
        );
        return (false, "OtherClass", format!("{message} {at}"));
    }
    let serving = given.iter().filter(|one| !one.share.addresses.is_empty());
    if let Some(other) = serving.clone().find(|one| !one.has(mode)) {
        let message = format!(
            "Node {} has host.datapath `{}`, and whoever writes this has `{}`: set the same on both.",
            other.node,
            other.datapath.mode,
            word(mode)
        );
        return (false, "OtherDatapath", format!("{message} {at}"));
    }
    let mut broken = given.iter().filter(|one| mode == Mode::Filter && waits.contains(one.node));
    if let Some((one, problem)) = broken.find_map(|one| Some((one, one.datapath.problem.as_ref()?))) {
        let message = format!(
            "Its source ranges come first, and the packet filters of node {} are not as they should be: {problem}. {}",
            one.node,
            one.meanwhile()
        );
        return (false, "NotFiltered", format!("{message} {at}"));
    }
    if let Some(message) = not_served(mode, serving) {
        return (false, "NotServed", format!("{message} {at}"));
    }
    if !waits.is_empty() {
        let nodes: Vec<&str> = waits.iter().copied().collect();
        let message = format!(
            "It waits for the packet filters of {} to keep to its source ranges. {at}",
            nodes.join(", ")
        );
        return (false, "Waiting", message);
    }
    // What another node has is not missing.
    let nowhere =
        |entry: &Entry| given.iter().all(|one| one.missing.iter().any(|(missing, _)| missing == entry));
    let missing = given.iter().flat_map(|one| &one.missing).filter(|(entry, _)| nowhere(entry));
    let missing: BTreeSet<String> = missing.map(|(_, wrong)| wrong.to_string()).collect();
    if !missing.is_empty() {
        let missing: Vec<String> = missing.into_iter().collect();
        let asked_by = if names_addresses(service) { LISTEN_ADDRESSES } else { "spec.loadBalancerIP" };
        return (false, "NoAddress", format!("{asked_by}: {} {at}", missing.join(" ")));
    }
    if reached.is_empty() {
        let message = match (given.is_empty(), names_addresses(service)) {
            (true, _) => "No node has told of its addresses yet: see whether Portcullis runs on the nodes, with host.agent.".to_owned(),
            (_, true) => format!("{LISTEN_ADDRESSES} names no address of a node that Services of its families can have."),
            (_, false) => "No node has an address of its families that Services can have.".to_owned(),
        };
        return (false, "NoAddress", format!("{message} {at}"));
    }
    (true, "Assigned", at)
}

/// Why it is not served as it should be, by a node that is to.
fn not_served<'a>(mode: Mode, serving: impl Iterator<Item = &'a Given<'a>> + Clone) -> Option<String> {
    let mut serving = serving.filter(|_| mode == Mode::Nftables);
    let broken = serving.clone().find_map(|one| Some((one, one.datapath.problem.as_ref()?)));
    if let Some((one, problem)) = broken {
        return Some(format!(
            "The packet filters of node {}, which are to serve it, are not as they should be: {problem}. {}",
            one.node,
            one.meanwhile()
        ));
    }
    let late = serving.find(|one| one.is_late)?;
    Some(if late.started_anew {
        format!(
            "Node {} was started anew, and its packet filters, which are to serve it, are not set yet: see whether Portcullis runs there.",
            late.node
        )
    } else {
        format!(
            "The packet filters of node {}, which are to serve it, do not know what it asks for now: see whether Portcullis runs there. Until they do, what was set there before counts.",
            late.node
        )
    })
}

/// Whether its annotation says where it is to be reached.
fn names_addresses(service: &Service) -> bool {
    service.metadata.annotations.as_ref().is_some_and(|all| all.contains_key(LISTEN_ADDRESSES))
}

fn why(refusal: &Refusal, at: &BTreeSet<IpAddr>) -> String {
    let at = list(at);
    match refusal {
        Refusal::Reserved(port) => {
            format!("Port {port} is kept for the node itself (host.reservedPorts): use another one.")
        }
        Refusal::Listens(port) => {
            format!(
                "A program of the node itself listens on port {port} of {at}, or did a moment ago: use another port, or stop it and wait a few minutes."
            )
        }
        Refusal::NodePort(port, by) => {
            format!("Port {port} of every node leads to Service {by}, as a node port: use another one.")
        }
        Refusal::External(port, by) => {
            format!(
                "Service {by} has port {port} of {at} by spec.externalIPs: use another port or address, or wait until it is gone."
            )
        }
        Refusal::Taken(port, by) => {
            format!(
                "Service {by} has port {port} of {at}: use another port or address, or wait until it is gone."
            )
        }
    }
}

fn list(addresses: &BTreeSet<IpAddr>) -> String {
    addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// Whether the ranges of a Service keep anybody out, at all addresses where it is reached.
fn enforcement(service: &Service, mode: Mode, given: &[Given<'_>], open: &BTreeSet<IpAddr>) -> Kept {
    let serving: Vec<&Given<'_>> = given.iter().filter(|one| !one.share.addresses.is_empty()).collect();
    if !limits(service) {
        return Kept::Nothing;
    }
    let not = |why: String| Kept::Said(Enforcement::Not(why));
    if !open.is_empty() {
        return not(format!(
            "Its addresses in spec.externalIPs, {}, let everybody in: kube-proxy serves them without a look at source ranges. Remove them.",
            list(open)
        ));
    }
    if serving.is_empty() {
        return Kept::Nothing;
    }
    if mode == Mode::None {
        return Kept::LeftToOthers;
    }
    for one in &serving {
        if one.started_anew {
            return not(format!(
                "Node {} was started anew, and its packet filters are not set yet: see whether Portcullis runs there.",
                one.node
            ));
        }
        if let Some(problem) = &one.datapath.problem {
            return not(format!(
                "The packet filters of node {} are not as they should be: {problem}. {}",
                one.node,
                one.meanwhile()
            ));
        }
        if !one.has(mode) {
            return not(format!("Node {} has host.datapath `{}`.", one.node, one.datapath.mode));
        }
    }
    if let Some(late) = serving.iter().find(|one| !one.knows && one.is_late) {
        return not(format!(
            "The packet filters of node {} do not know what it asks for now: see whether Portcullis runs there. Until they do, what was set there before counts.",
            late.node
        ));
    }
    if serving.iter().any(|one| !one.knows) {
        return Kept::NotYet;
    }
    let open = open_node_ports(service);
    if !open.is_empty() {
        return not(format!(
            "Its node ports, {}, let everybody in who reaches a node. Annotate it with {NODE_PORTS}=true, or set spec.allocateLoadBalancerNodePorts to false and remove them.",
            open.join(", ")
        ));
    }
    if let Some((one, ports)) = left_out(service, given, false).next() {
        return not(format!(
            "Node {} needs its node ports {} itself: whoever else forwards them lets everybody in. Use others, or set spec.allocateLoadBalancerNodePorts to false and remove them.",
            one.node,
            ports.join(", ")
        ));
    }
    let nodes = serving.iter().map(|one| {
        let interfaces: Vec<&str> = one.datapath.interfaces.iter().map(String::as_str).collect();
        match (mode, interfaces.is_empty()) {
            (Mode::Filter, false) => format!("{} ({})", one.node, interfaces.join(", ")),
            _ => one.node.to_owned(),
        }
    });
    Kept::Said(Enforcement::By(format!("The packet filters of {}", nodes.collect::<Vec<_>>().join(", "))))
}

/// The addresses in `spec.externalIPs` that its ranges do not count for: those that it does not get, and all of them where nothing is
/// filtered.
fn open_external_ips(service: &Service, mode: Mode, given: &[Given<'_>]) -> BTreeSet<IpAddr> {
    let is_kept = |address: &IpAddr| {
        mode != Mode::None && given.iter().any(|one| one.share.addresses.contains(address))
    };
    external_ips(service).filter(|address| !is_kept(address)).collect()
}

/// Nodes that need node ports of a Service themselves, and which; with those of its health checks, or without.
fn left_out<'a>(
    service: &Service,
    given: &'a [Given<'a>],
    of_health_checks: bool,
) -> impl Iterator<Item = (&'a Given<'a>, Vec<String>)> {
    let spec = service.spec.as_ref();
    let mut ports = spec.map(node_ports).unwrap_or_default();
    let health = spec.and_then(health_check).filter(|_| of_health_checks);
    ports.extend(health.map(|number| Port { protocol: Protocol::TCP, number }));
    given.iter().filter_map(move |one| {
        let left_out =
            ports.iter().map(ToString::to_string).filter(|port| one.datapath.left_out.contains(port));
        let left_out: Vec<String> = left_out.collect();
        (!left_out.is_empty()).then_some((one, left_out))
    })
}

/// The node ports that its ranges do not count for.
fn open_node_ports(service: &Service) -> Vec<String> {
    if covers_node_ports(service) {
        return Vec::new();
    }
    let ports = service.spec.iter().flat_map(|spec| spec.ports.iter().flatten());
    ports.filter_map(|port| port.node_port.filter(|port| *port != 0)).map(|port| port.to_string()).collect()
}

/// What has to go from the status of a Service that is not reached at addresses of nodes any more, as a patch. What another one
/// says who holds it by now stays.
pub(super) fn taken_back(service: &Service) -> Option<Value> {
    host::assigned(service)?;
    let mut conditions = vec![json!({"type": ASSIGNED, "$patch": "delete"})];
    let mut status = json!({});
    // Nobody else says which ports there are at an address.
    if ingress(service).all(|one| one.ports.as_ref().is_some_and(|ports| !ports.is_empty())) {
        status["loadBalancer"] = json!({"ingress": null});
    }
    if enforced::there(service).is_some() && !host::is_held(service) {
        conditions.push(json!({"type": enforced::ENFORCED, "$patch": "delete"}));
    }
    status["conditions"] = Value::Array(conditions);
    Some(on_version(service, &status))
}

/// A patch of a status. It says on which version it was decided: what was changed since then is looked at first.
fn on_version(service: &Service, status: &Value) -> Value {
    json!({"metadata": {"resourceVersion": service.metadata.resource_version}, "status": status})
}

/// The version that a patch was decided on.
pub(super) fn decided_on(patch: &Value) -> Option<u64> {
    patch.pointer("/metadata/resourceVersion")?.as_str()?.parse().ok()
}

/// What a patch says, whenever it is said.
pub(super) fn untimed(patch: &Value) -> Value {
    let mut patch = patch.clone();
    let conditions = patch.pointer_mut("/status/conditions").and_then(Value::as_array_mut);
    for condition in conditions.into_iter().flatten().filter_map(Value::as_object_mut) {
        condition.remove("lastTransitionTime");
    }
    patch
}

impl Verdict {
    /// What of the status of a Service has to be another, as a patch; nothing if all is as it should be.
    pub(super) fn patch(&self, service: &Service, now: &Time) -> Option<Value> {
        let mut status = json!({});
        let ports = service.spec.as_ref().map(all_ports).unwrap_or_default();
        let ports = ports.iter().map(|port| PortStatus {
            port: i32::from(port.number),
            protocol: port.protocol.name().to_uppercase(),
            error: None,
        });
        let ports: Vec<PortStatus> = ports.collect();
        let wanted = self.addresses.iter().map(|address| {
            let ip = Some(address.to_string());
            let as_it_is = ingress(service).find(|one| one.ip == ip);
            as_it_is.filter(|_| self.settling.contains(address)).cloned().unwrap_or(LoadBalancerIngress {
                ip,
                ip_mode: self.ip_mode(*address, as_it_is),
                hostname: None,
                // Who has a port of an address keeps it, so it is said which.
                ports: Some(ports.clone()),
            })
        });
        let wanted: Vec<LoadBalancerIngress> = wanted.collect();
        let there = service.status.as_ref().and_then(|status| status.load_balancer.as_ref());
        if there.and_then(|there| there.ingress.as_deref()).unwrap_or_default() != wanted {
            let ingress = if wanted.is_empty() { Value::Null } else { json!(wanted) };
            status["loadBalancer"] = json!({"ingress": ingress});
        }
        let mut conditions = Vec::new();
        let (is, reason, message) = &self.assigned;
        let mut said = condition(service, *is, reason, message, now);
        if self.is_unseen {
            said.last_transition_time = now.clone();
        }
        if host::assigned(service) != Some(&said) {
            conditions.push(json!(said));
        }
        let is_there = enforced::there(service);
        let said = match &self.enforcement {
            Kept::Said(found) => enforced_condition(service, found, now.clone()),
            Kept::LeftToOthers => Some(left_to_others(service, now)),
            Kept::Nothing | Kept::NotYet => None,
        };
        match said {
            Some(said) if is_there != Some(&said) => conditions.push(json!(said)),
            None if is_there.is_some() && self.enforcement == Kept::Nothing => {
                conditions.push(json!({"type": enforced::ENFORCED, "$patch": "delete"}));
            }
            _ => {}
        }
        if !conditions.is_empty() {
            status["conditions"] = Value::Array(conditions);
        }
        (status != json!({})).then(|| on_version(service, &status))
    }

    /// What proxies are told of an address, of which this is said already. One that sees `Proxy` leaves it alone.
    fn ip_mode(&self, address: IpAddr, said: Option<&LoadBalancerIngress>) -> Option<String> {
        let server = self.servers.get(&address).copied().unwrap_or(Server::Others);
        match server {
            Server::Node => return Some("Proxy".to_owned()),
            Server::Others => return Some("VIP".to_owned()),
            Server::AsBefore | Server::AsBeforeOrNode => {}
        }
        let if_new = if server == Server::AsBefore { "VIP" } else { "Proxy" };
        said.map_or_else(|| Some(if_new.to_owned()), |said| said.ip_mode.clone())
    }
}

/// Whether its ranges keep anybody out is up to whoever forwards packets, and not known here.
fn left_to_others(service: &Service, now: &Time) -> Condition {
    let since = enforced::there(service).filter(|found| found.status == "Unknown");
    Condition {
        type_: enforced::ENFORCED.to_owned(),
        status: "Unknown".to_owned(),
        reason: "LeftToOthers".to_owned(),
        message: "With host.datapath `none` whoever forwards packets has to keep to its source ranges. kube-proxy does for families of which spec.loadBalancerSourceRanges has one, and lets everybody in otherwise, whatever annotations say; others may not at all. Set host.datapath to `filter` to have it done here.".to_owned(),
        last_transition_time: since.map_or_else(|| now.clone(), |found| found.last_transition_time.clone()),
        observed_generation: None,
    }
}

fn condition(service: &Service, is: bool, reason: &str, message: &str, now: &Time) -> Condition {
    let status = if is { "True" } else { "False" };
    let since = host::assigned(service).filter(|found| found.status == status);
    Condition {
        type_: ASSIGNED.to_owned(),
        status: status.to_owned(),
        reason: reason.to_owned(),
        message: message.to_owned(),
        last_transition_time: since.map_or_else(|| now.clone(), |found| found.last_transition_time.clone()),
        observed_generation: None,
    }
}

#[cfg(test)]
mod tests;
