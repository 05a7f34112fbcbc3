//! Changes that a load balancer cannot make while it stands: it has to be replaced, and somebody has to say when.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Service;
use portcullis_kube_api::ingress::ranges::{Said, effective};
use portcullis_kube_api::ingress::{AUTO_DELETE, AwsLoadBalancerType, IngressController};
use serde_json::{Value, json};

use super::annotations::{
    self, AWS_EIPS, AWS_INTERNAL, AWS_SUBNETS, AWS_TYPE, IBM_IP_TYPE, OPENSTACK_INTERNAL,
};
use super::{Platform, RouterSettings};

/// What is wanted and needs another load balancer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replacement {
    /// What would change.
    pub what: String,
    /// What is wanted, what to do to have it, and what to do to leave things as they are.
    pub message: String,
}

/// A thing that stays as it was made.
struct Fixed {
    what: &'static str,
    is: String,
    wanted: String,
    /// What the spec of the `IngressController` has to say about the load balancer so that nothing has to change.
    back: Value,
}

/// Whether a load balancer may be replaced without a word: if the administrator said so beforehand, and nobody is let in by
/// it. Ranges that stand on its Service alone would be gone with it.
///
/// One of another class is somebody else's, who may have it for long and does not expect to lose it by a change of our
/// configuration. It only goes when somebody says so by hand.
pub fn may_be_replaced(controller: &IngressController, current: &Service, desired: &Service) -> bool {
    controller.has_annotation(AUTO_DELETE)
        && !is_limited_by_hand(controller, current)
        && class_of(current) == class_of(desired)
}

fn class_of(service: &Service) -> Option<&str> {
    service.spec.as_ref()?.load_balancer_class.as_deref()
}

/// Whether only the Service says who may connect.
fn is_limited_by_hand(controller: &IngressController, current: &Service) -> bool {
    controller.wanted_ranges().is_empty() && effective(Said::by(current)).place.is_some()
}

/// What of a load balancer that is there can only be had by another one.
///
/// Only what the Service itself says counts: where a platform has no word for something, nothing is waited for.
pub fn replacement(
    controller: &IngressController,
    current: &Service,
    desired: &Service,
    settings: &RouterSettings,
) -> Vec<Replacement> {
    let mut fixed = vec![scope(current, desired, settings.platform)];
    if settings.platform == Platform::Aws {
        // Where only one type is made, nobody can ask for another: the class says it all.
        fixed.push(aws_type(current, desired).filter(|_| !settings.network_only));
        let network = settings.network_only || annotation(current, AWS_TYPE) == Some("nlb");
        fixed.push(Some(aws_list("subnets", AWS_SUBNETS, current, desired, network)));
        fixed.push(Some(aws_list("Elastic IPs", AWS_EIPS, current, desired, network)));
    }
    if settings.platform == Platform::OpenStack {
        fixed.push(floating_address(current, desired));
    }
    let fixed = fixed.into_iter().flatten().filter(|fixed| fixed.is != fixed.wanted);
    let mut all: Vec<Replacement> = fixed
        .map(|fixed| Replacement {
            message: message(&fixed, controller, current),
            what: fixed.what.to_owned(),
        })
        .collect();
    all.extend(class(current, desired));
    if is_limited_by_hand(controller, current) {
        let first = format!(
            " First give the ranges of Service {} to spec.endpointPublishingStrategy.loadBalancer.allowedSourceRanges: they would be gone with it, and everybody let in.",
            key(current)
        );
        for waits in &mut all {
            waits.message.push_str(&first);
        }
    }
    all
}

/// Where a scope is only read when a load balancer is made.
fn scope(current: &Service, desired: &Service, platform: Platform) -> Option<Fixed> {
    let key = match platform {
        Platform::Aws => AWS_INTERNAL,
        Platform::Ibm | Platform::PowerVs => IBM_IP_TYPE,
        Platform::OpenStack => OPENSTACK_INTERNAL,
        Platform::Azure | Platform::Gcp | Platform::BareMetal | Platform::Other => return None,
    };
    let word = |service| match annotation(service, key) {
        None | Some("" | "false" | "public") => "External",
        // AWS once had `0.0.0.0/0` for it.
        Some(_) => "Internal",
    };
    let is = word(current);
    Some(Fixed {
        what: "scope",
        is: is.to_owned(),
        wanted: word(desired).to_owned(),
        back: json!({"scope": is}),
    })
}

fn aws_type(current: &Service, desired: &Service) -> Option<Fixed> {
    let word = |service| match annotations::aws_type(service)? {
        AwsLoadBalancerType::Network => Some("NLB"),
        _ => Some("Classic"),
    };
    // Whatever others made stays so: `external`, for one.
    let (is, wanted) = (word(current)?, word(desired)?);
    Some(Fixed {
        what: "type",
        is: is.to_owned(),
        wanted: wanted.to_owned(),
        back: json!({"providerParameters": {"type": "AWS", "aws": {"type": is}}}),
    })
}

/// A floating IP that another one is wanted for. One that somebody else chose, while none is wanted, stays.
fn floating_address(current: &Service, desired: &Service) -> Option<Fixed> {
    let address = |service: &Service| service.spec.as_ref().and_then(|spec| spec.load_balancer_ip.clone());
    let wanted = address(desired).filter(|address| !address.is_empty())?;
    let is = address(current).unwrap_or_default();
    let back = json!({"floatingIP": is});
    Some(Fixed {
        what: "floating IP",
        is: if is.is_empty() { "chosen by OpenStack".to_owned() } else { is },
        wanted,
        back: json!({"providerParameters": {"type": "OpenStack", "openstack": back}}),
    })
}

fn aws_list(what: &'static str, key: &str, current: &Service, desired: &Service, network: bool) -> Fixed {
    let entries = |service| -> BTreeSet<String> {
        let text = annotation(service, key).unwrap_or_default().split(',').map(str::trim);
        text.filter(|entry| !entry.is_empty()).map(str::to_owned).collect()
    };
    let shown = |entries: &BTreeSet<String>| match entries.len() {
        0 => "chosen by AWS".to_owned(),
        _ => entries.iter().cloned().collect::<Vec<_>>().join(","),
    };
    let (is, wanted) = (entries(current), entries(desired));
    let (type_, place) =
        if network { ("NLB", "networkLoadBalancer") } else { ("Classic", "classicLoadBalancer") };
    let back = match (key, is.is_empty()) {
        (AWS_SUBNETS, true) => json!({"subnets": null}),
        (AWS_SUBNETS, false) => {
            let (ids, names): (Vec<_>, Vec<_>) = is.iter().partition(|entry| entry.starts_with("subnet-"));
            json!({"subnets": {"ids": ids, "names": names}})
        }
        _ => json!({"eipAllocations": is}),
    };
    Fixed {
        what,
        is: shown(&is),
        wanted: shown(&wanted),
        back: json!({"providerParameters": {"type": "AWS", "aws": {"type": type_, place: back}}}),
    }
}

/// A class that the configuration changed: Kubernetes never lets a Service have another.
fn class(current: &Service, desired: &Service) -> Option<Replacement> {
    let word = |service: &Service| {
        class_of(service).map_or_else(|| "no class".to_owned(), |class| format!("class {class}"))
    };
    let (is, wanted) = (word(current), word(desired));
    (is != wanted).then(|| Replacement {
        what: "class".to_owned(),
        message: format!(
            "Service {} is of {is}, and {wanted} is configured. To have another load balancer made, with another address: `{}`. To leave it as it is, configure {is}.",
            key(current),
            delete(current)
        ),
    })
}

fn message(fixed: &Fixed, controller: &IngressController, current: &Service) -> String {
    let Fixed { what, is, wanted, back } = fixed;
    let name = controller.name();
    let namespace = controller.metadata.namespace.as_deref().unwrap_or_default();
    let back = json!({"spec": {"endpointPublishingStrategy": {"type": "LoadBalancerService", "loadBalancer": back}}});
    format!(
        "The {what} of the load balancer of Service {}: it is {is}, and IngressController {name} wants {wanted}. \
         To have another load balancer made, with another address: `{}`. \
         To leave it as it is: `kubectl -n {namespace} patch ingresscontroller {name} --type=merge -p '{back}'`.",
        key(current),
        delete(current)
    )
}

fn delete(service: &Service) -> String {
    let metadata = &service.metadata;
    let (namespace, name) = (metadata.namespace.as_deref(), metadata.name.as_deref());
    format!("kubectl -n {} delete service {}", namespace.unwrap_or_default(), name.unwrap_or_default())
}

fn key(service: &Service) -> String {
    let metadata = &service.metadata;
    format!(
        "{}/{}",
        metadata.namespace.as_deref().unwrap_or_default(),
        metadata.name.as_deref().unwrap_or_default()
    )
}

fn annotation<'a>(service: &'a Service, key: &str) -> Option<&'a str> {
    service.metadata.annotations.as_ref()?.get(key).map(String::as_str)
}
