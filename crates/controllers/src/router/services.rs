//! The Services of a router that are no load balancers.

use k8s_openapi::api::core::v1::Service;
use portcullis_kube_api::ingress::{IngressController, OWNING_LABEL, PublishingType};
use serde_json::{Value, json};

use super::{POD_LABEL, RouterSettings, object, strategy};

/// The Service by which the cluster reaches a router and its metrics.
pub fn internal_service(controller: &IngressController, settings: &RouterSettings) -> Option<Service> {
    let name = controller.name();
    Some(object(json!({
        "metadata": {
            "name": format!("router-internal-{name}"),
            "namespace": settings.namespace,
            "labels": {OWNING_LABEL: name},
        },
        "spec": {
            "type": "ClusterIP",
            "selector": {POD_LABEL: name},
            "ports": ports(),
        },
    })))
}

/// The Service that publishes a router on a port of every node, if it is reached so. Kubernetes or people choose the
/// ports.
pub fn node_port_service(controller: &IngressController, settings: &RouterSettings) -> Option<Service> {
    if strategy(controller, settings).type_ != PublishingType::NodePortService {
        return None;
    }
    let name = controller.name();
    Some(object(json!({
        "metadata": {
            "name": format!("router-nodeport-{name}"),
            "namespace": settings.namespace,
            "labels": {OWNING_LABEL: name},
        },
        "spec": {
            "type": "NodePort",
            "externalTrafficPolicy": "Local",
            "selector": {POD_LABEL: name},
            "ports": ports(),
        },
    })))
}

/// Where a router listens, by the names of its ports.
fn ports() -> Value {
    json!([
        {"name": "http", "protocol": "TCP", "port": 80, "targetPort": "http"},
        {"name": "https", "protocol": "TCP", "port": 443, "targetPort": "https"},
        {"name": "metrics", "protocol": "TCP", "port": 1936, "targetPort": "metrics"},
    ])
}
