//! The load balancer Service of a router.

use k8s_openapi::api::core::v1::Service;
use portcullis_core::{AddressSet, Cidr};
use portcullis_kube_api::SOURCE_RANGES;
use portcullis_kube_api::ingress::ranges::{Said, effective, write};
use portcullis_kube_api::ingress::{IngressController, PublishingType, Scope};
use serde_json::json;

use super::annotations::{annotations, is_internal, is_local, kept};
use super::services::labels;
use super::{POD_LABEL, Platform, RouterSettings, object, strategy};

/// The Service that has a load balancer made for a router, if it is reached by one.
pub fn load_balancer_service(controller: &IngressController, settings: &RouterSettings) -> Option<Service> {
    let strategy = strategy(controller, settings);
    if strategy.type_ != PublishingType::LoadBalancerService {
        return None;
    }
    let name = controller.name();
    let load_balancer = strategy.load_balancer.unwrap_or_default();
    let mut service: Service = object(json!({
        "metadata": {
            "name": format!("router-{name}"),
            "namespace": settings.namespace,
            "labels": labels(controller),
            "annotations": annotations(controller, &load_balancer, settings),
        },
        "spec": {
            "type": "LoadBalancer",
            // Clients keep their addresses, and a node without a router gets nothing.
            "externalTrafficPolicy": if is_local(settings.platform) { "Local" } else { "Cluster" },
            "internalTrafficPolicy": "Cluster",
            "selector": {POD_LABEL: name},
            "ports": [
                {"name": "http", "protocol": "TCP", "port": 80, "targetPort": "http"},
                {"name": "https", "protocol": "TCP", "port": 443, "targetPort": "https"},
            ],
        },
    }));
    let spec = service.spec.get_or_insert_default();
    spec.load_balancer_class.clone_from(&settings.load_balancer_class);
    let ranges = controller.wanted_ranges();
    spec.load_balancer_source_ranges = (!ranges.is_empty()).then(|| ranges.to_vec());
    let parameters = load_balancer.provider_parameters.unwrap_or_default();
    if settings.platform == Platform::OpenStack && load_balancer.scope != Scope::Internal {
        spec.load_balancer_ip = parameters.openstack.and_then(|openstack| openstack.floating_ip);
    }
    Some(service)
}

/// What of a Service that is there has to change: its ranges, and the annotations that can change while there is a load
/// balancer. Ports, type, selector, policies, node ports and the address are left to whoever edits them.
pub fn changed_load_balancer(current: &Service, desired: &Service) -> Option<Service> {
    let mut changed = current.clone();
    let annotations = changed.metadata.annotations.get_or_insert_default();
    for (key, value) in kept(current, desired) {
        match value {
            Some(value) => drop(annotations.insert(key.to_owned(), value)),
            None => drop(annotations.remove(key)),
        }
    }
    let ranges = Said::by(desired).field;
    if let Some(write) = write(ranges, Said::by(current)) {
        if write.clear_annotation {
            annotations.remove(SOURCE_RANGES);
        }
        if let Some(field) = write.field {
            changed.spec.get_or_insert_default().load_balancer_source_ranges = Some(field);
        }
    }
    if annotations.is_empty() && current.metadata.annotations.is_none() {
        changed.metadata.annotations = None;
    }
    (changed != *current).then_some(changed)
}

/// Whether a Service that is there lets in anybody whom another one would keep out.
pub fn lets_in_more(current: &Service, wanted: &Service) -> bool {
    let inside = is_internal(wanted) && !is_internal(current);
    inside || !let_in(current).is_subset(&let_in(wanted))
}

/// Whom the field lets in. What stands in the annotation alone is not read by everybody.
fn let_in(service: &Service) -> AddressSet {
    let field = Said { annotation: None, ..Said::by(service) };
    let found = effective(field);
    if found.place.is_none() || !found.unreadable.is_empty() {
        return AddressSet::everyone();
    }
    found.ranges.iter().filter_map(|range| range.parse::<Cidr>().ok()).collect()
}
