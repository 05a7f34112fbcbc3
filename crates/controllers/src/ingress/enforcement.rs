//! Whether the ranges keep anybody out.
//!
//! A Service with ranges looks the same whether somebody acts on them or nobody does. So it is said, and only called true
//! by who knows.

use k8s_openapi::api::core::v1::{LoadBalancerIngress, Service};
use portcullis_core::{Cidr, Family};
use portcullis_kube_api::enforced;
use portcullis_kube_api::ingress::ConditionStatus;
use portcullis_kube_api::ingress::ranges::{Effective, Place, Said, effective};

use super::Look;

/// Who keeps out whom the ranges do not let in, where no provider says so on the Service.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Enforcer {
    /// The platform, which was tested: whatever a client tries, it is kept out.
    Everywhere(String),
    /// kube-proxy: on the addresses of the load balancer, for the families that have a range, and not on node ports.
    KubeProxy,
    /// Nobody: this network stores ranges and does not read them.
    Ignored(String),
    /// That is not known.
    #[default]
    Unknown,
}

/// Whether they do: status, reason and message.
pub(super) fn enforced(look: &Look<'_>) -> (ConditionStatus, &'static str, String) {
    let no = |reason, message| (ConditionStatus::False, reason, message);
    let unknown = |reason, message| (ConditionStatus::Unknown, reason, message);
    let wanted = look.controller.wanted_ranges();
    if !look.is_balanced() {
        return no(
            "NotApplied",
            format!(
                "The strategy {} has no load balancer that would read the ranges of IngressController {}: whoever reaches its routers may connect. Limit clients elsewhere.",
                look.strategy.type_.as_str(),
                look.controller.name()
            ),
        );
    }
    let Some(service) = look.service else {
        return unknown("NoService", "There is no load balancer Service yet.".to_owned());
    };
    let (key, found) = (look.service_key(), look.effective());
    if !wanted.is_empty() && look.said().field != wanted {
        return no(
            "NotApplied",
            format!(
                "Service {key} does not have the ranges of IngressController {} yet. See Admitted and LoadBalancerProgressing.",
                look.controller.name()
            ),
        );
    }
    if found.place.is_none() {
        return unknown("NoSourceRanges", format!("Service {key} has no ranges: everybody may connect."));
    }
    if !found.unreadable.is_empty() {
        return no(
            "Unreadable",
            format!("Some of the ranges of Service {key} cannot be read. See EvaluationConditionsDetected."),
        );
    }
    match enforced::enforced(service) {
        Some((true, why)) => return (ConditionStatus::True, "Enforced", format!("Service {key}: {why}")),
        Some((false, why)) => return no("NotEnforced", format!("Service {key}: {why}")),
        None if enforced::there(service).is_some() => {
            let told = look.sync_failure.map(|why| format!(" Whoever makes it told last: {why}"));
            let told = told.unwrap_or_default();
            return unknown(
                "NotAppliedYet",
                format!("The load balancer of Service {key} does not have these ranges yet.{told}"),
            );
        }
        None => {}
    }
    by_enforcer(service, look.enforcer)
}

/// Whether the ranges of a Service do, where no provider says so on it: status, reason and message.
pub fn by_enforcer(service: &Service, enforcer: &Enforcer) -> (ConditionStatus, &'static str, String) {
    let no = |reason, message| (ConditionStatus::False, reason, message);
    let (key, found) = (key(service), effective(Said::by(service)));
    match enforcer {
        Enforcer::Everywhere(who) => (
            ConditionStatus::True,
            "Enforced",
            format!("{who} keeps out whom the ranges of Service {key} do not let in."),
        ),
        Enforcer::KubeProxy => by_kube_proxy(service, &key, &found),
        Enforcer::Ignored(who) => no(
            "Ignored",
            format!(
                "{who} does not read the ranges of Service {key}: everybody may connect. Limit clients elsewhere, or have the load balancer made by a provider that limits them."
            ),
        ),
        Enforcer::Unknown => (
            ConditionStatus::Unknown,
            "NotKnown",
            format!(
                "It is not known whether anything in this cluster reads the ranges of Service {key}. Try to connect from outside them."
            ),
        ),
    }
}

fn by_kube_proxy(service: &Service, key: &str, found: &Effective) -> (ConditionStatus, &'static str, String) {
    let no = |reason, message| (ConditionStatus::False, reason, message);
    if found.place == Some(Place::Annotation) {
        return no(
            "Ignored",
            format!(
                "kube-proxy does not read the annotation of Service {key}: everybody may connect. Move its ranges to spec.endpointPublishingStrategy.loadBalancer.allowedSourceRanges of the IngressController."
            ),
        );
    }
    let spec = service.spec.clone().unwrap_or_default();
    let listed: Vec<Family> = found
        .ranges
        .iter()
        .filter_map(|range| range.parse::<Cidr>().ok())
        .map(|range| range.family())
        .collect();
    for (word, family) in [("IPv4", Family::V4), ("IPv6", Family::V6)] {
        let served = spec.ip_families.iter().flatten().any(|family| family == word);
        if served && !listed.contains(&family) {
            return no(
                "FamilyOpen",
                format!(
                    "Service {key} serves {word}, none of its ranges is of {word}, and kube-proxy lets everybody in by {word} then. Add a range of {word}."
                ),
            );
        }
    }
    if spec.ports.iter().flatten().any(|port| port.node_port.is_some_and(|port| port != 0)) {
        return no(
            "NodePortsOpen",
            format!(
                "Service {key} has node ports, and kube-proxy lets everybody in there who reaches a node. Keep clients from the nodes' addresses, or set spec.allocateLoadBalancerNodePorts to false and remove the node ports."
            ),
        );
    }
    if spec.external_ips.iter().flatten().next().is_some() {
        return no(
            "ExternalAddressesOpen",
            format!(
                "Service {key} has addresses in spec.externalIPs, and kube-proxy lets everybody in there. Remove them."
            ),
        );
    }
    let addresses = service.status.as_ref().and_then(|status| status.load_balancer.as_ref());
    let addresses = addresses.and_then(|found| found.ingress.clone()).unwrap_or_default();
    // One of which others say that they pass traffic on is nothing to kube-proxy, and neither is a name.
    let is_seen = |address: &&LoadBalancerIngress| {
        address.ip.is_some() && address.ip_mode.as_deref().is_none_or(|mode| mode == "VIP")
    };
    if !addresses.iter().any(|address| is_seen(&address)) {
        return (
            ConditionStatus::Unknown,
            "NoAddress",
            format!("Service {key} has no address that kube-proxy would see traffic for."),
        );
    }
    if let Some(other) = addresses.iter().find(|address| !is_seen(address)) {
        let other = other.ip.as_ref().or(other.hostname.as_ref());
        return (
            ConditionStatus::Unknown,
            "NotKnown",
            format!(
                "Service {key} is also reached by {}, where others pass traffic on and kube-proxy does not see clients. Try to connect there from outside its ranges.",
                other.map_or("another address", String::as_str)
            ),
        );
    }
    (
        ConditionStatus::True,
        "Enforced",
        format!("kube-proxy keeps out whom the ranges of Service {key} do not let in."),
    )
}

/// A Service, by namespace and name.
fn key(service: &Service) -> String {
    let metadata = &service.metadata;
    let text = |part: &Option<String>| part.clone().unwrap_or_default();
    format!("{}/{}", text(&metadata.namespace), text(&metadata.name))
}
