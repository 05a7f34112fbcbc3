//! What a router has besides its Deployment and its Services.

use k8s_openapi::api::networking::v1::IngressClass;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::{Metadata, NamespaceResourceScope, Resource};
use portcullis_kube_api::ingress::{IngressController, OWNING_LABEL};
use serde::ser::SerializeStruct;
use serde::{Deserialize, Serialize, Serializer};
use serde_json::{Value, json};

use super::{POD_LABEL, RouterSettings, belongs_to, object, replicas};

/// How many routers may go at a time when nodes are emptied. Of one, that one has to.
pub fn disruption_budget(
    controller: &IngressController,
    settings: &RouterSettings,
) -> Option<PodDisruptionBudget> {
    let name = controller.name();
    let most = match replicas(controller, settings) {
        ..2 => return None,
        2 => json!(1),
        _ => json!("25%"),
    };
    Some(object(json!({
        "metadata": {
            "name": format!("router-{name}"),
            "namespace": settings.namespace,
            "labels": {OWNING_LABEL: name},
        },
        "spec": {
            "maxUnavailable": most,
            "selector": {"matchLabels": {POD_LABEL: name}},
            // One that does not serve is no loss, and would keep a node from being emptied.
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
        },
    })))
}

/// The class by which Ingresses get routes of this router, where somebody makes routes of Ingresses.
pub fn ingress_class(controller: &IngressController, settings: &RouterSettings) -> Option<IngressClass> {
    let name = controller.name();
    settings.openshift.then(|| {
        object(json!({
            "metadata": {"name": class_name(controller), "labels": {OWNING_LABEL: name}},
            "spec": {
                "controller": "openshift.io/ingress-to-route",
                "parameters": {
                    "apiGroup": "operator.openshift.io",
                    "kind": "IngressController",
                    "name": name,
                    "scope": "Cluster",
                },
            },
        }))
    })
}

/// The name of that class.
pub fn class_name(controller: &IngressController) -> String {
    format!("openshift-{}", controller.name())
}

/// Has metrics collected: `servicemonitors.monitoring.coreos.com/v1`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct ServiceMonitor {
    /// Its name, labels and so on.
    pub metadata: ObjectMeta,
    /// What is collected, and how.
    pub spec: Value,
}

/// With its kind, which the API wants to be told and does not always tell.
impl Serialize for ServiceMonitor {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut object = serializer.serialize_struct(Self::KIND, 4)?;
        object.serialize_field("apiVersion", Self::API_VERSION)?;
        object.serialize_field("kind", Self::KIND)?;
        object.serialize_field("metadata", &self.metadata)?;
        object.serialize_field("spec", &self.spec)?;
        object.end()
    }
}

impl Resource for ServiceMonitor {
    const API_VERSION: &'static str = "monitoring.coreos.com/v1";
    const GROUP: &'static str = "monitoring.coreos.com";
    const KIND: &'static str = "ServiceMonitor";
    const VERSION: &'static str = "v1";
    const URL_PATH_SEGMENT: &'static str = "servicemonitors";
    type Scope = NamespaceResourceScope;
}

impl Metadata for ServiceMonitor {
    type Ty = ObjectMeta;

    fn metadata(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn metadata_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

/// Has the metrics of a router collected, where somebody does that: with a certificate that can be checked, since whoever
/// collects shows who it is.
pub fn service_monitor(controller: &IngressController, settings: &RouterSettings) -> Option<ServiceMonitor> {
    let (name, namespace) = (controller.name(), &settings.namespace);
    (settings.monitoring && settings.openshift).then(|| {
        object(json!({
            "metadata": {
                "name": format!("router-{name}"),
                "namespace": namespace,
                "labels": {OWNING_LABEL: name},
            },
            "spec": {
                "namespaceSelector": {"matchNames": [namespace]},
                "selector": {"matchLabels": {OWNING_LABEL: name}},
                "endpoints": [{
                    "port": "metrics",
                    "path": "/metrics",
                    "scheme": "https",
                    "interval": "30s",
                    "bearerTokenFile": "/var/run/secrets/kubernetes.io/serviceaccount/token",
                    "tlsConfig": {
                        "caFile": "/etc/prometheus/configmaps/serving-certs-ca-bundle/service-ca.crt",
                        "serverName": format!("router-internal-{name}.{namespace}.svc"),
                    },
                }],
            },
        }))
    })
}

/// Whether an object other than a Service or the Deployment belongs to an `IngressController`. On OpenShift its names are those of
/// the operator that was there before, which put no labels on them.
pub fn is_of(metadata: &ObjectMeta, controller: &str, settings: &RouterSettings) -> bool {
    let labelled = metadata.labels.as_ref().is_some_and(|labels| labels.contains_key(OWNING_LABEL));
    belongs_to(metadata, controller) || (settings.openshift && !labelled)
}
