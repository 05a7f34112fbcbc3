//! The Services of a router that are no load balancers.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Service;
use portcullis_kube_api::ingress::{IngressController, OWNING_LABEL, PublishingType};
use serde_json::{Value, json};

use super::annotations::{LOCAL_WITH_FALLBACK, falls_back};
use super::volumes::metrics_certificate;
use super::{POD_LABEL, Present, RouterSettings, object, strategy};

/// The annotation by which OpenShift makes a certificate for a Service.
const SERVING_CERTIFICATE: &str = "service.alpha.openshift.io/serving-cert-secret-name";

/// The labels of a router's Services. By the first two people and programs have always found them.
pub(super) fn labels(controller: &IngressController) -> Value {
    let name = controller.name();
    json!({"app": "router", "router": format!("router-{name}"), OWNING_LABEL: name})
}

/// The Service by which the cluster reaches a router and its metrics.
pub fn internal_service(controller: &IngressController, settings: &RouterSettings) -> Option<Service> {
    let name = controller.name();
    let mut annotations = BTreeMap::new();
    if settings.openshift {
        annotations.insert(SERVING_CERTIFICATE, metrics_certificate(controller));
    }
    Some(object(json!({
        "metadata": {
            "name": format!("router-internal-{name}"),
            "namespace": settings.namespace,
            "labels": labels(controller),
            "annotations": annotations,
        },
        "spec": {
            "type": "ClusterIP",
            "selector": {POD_LABEL: name},
            "ports": ports(true),
        },
    })))
}

/// The Service that publishes a router on a port of every node, if it is reached so. Kubernetes or people choose the
/// ports, and people may take that for metrics away.
pub fn node_port_service(
    controller: &IngressController,
    settings: &RouterSettings,
    present: &Present<'_>,
) -> Option<Service> {
    if strategy(controller, settings).type_ != PublishingType::NodePortService {
        return None;
    }
    let name = controller.name();
    let has_metrics = |current: &Service| {
        let mut ports = current.spec.iter().flat_map(|spec| spec.ports.iter().flatten());
        ports.any(|port| port.name.as_deref() == Some("metrics"))
    };
    let mut annotations = BTreeMap::new();
    if falls_back(controller) {
        annotations.insert(LOCAL_WITH_FALLBACK, "");
    }
    Some(object(json!({
        "metadata": {
            "name": format!("router-nodeport-{name}"),
            "namespace": settings.namespace,
            "labels": labels(controller),
            "annotations": annotations,
        },
        "spec": {
            "type": "NodePort",
            "externalTrafficPolicy": "Local",
            "internalTrafficPolicy": "Cluster",
            "selector": {POD_LABEL: name},
            "ports": ports(present.node_port.is_none_or(has_metrics)),
        },
    })))
}

/// Where a router listens, by the names of its ports.
fn ports(with_metrics: bool) -> Value {
    let port =
        |name: &str, port: u16| json!({"name": name, "protocol": "TCP", "port": port, "targetPort": name});
    let mut ports = vec![port("http", 80), port("https", 443)];
    ports.extend(with_metrics.then(|| port("metrics", 1936)));
    Value::Array(ports)
}
