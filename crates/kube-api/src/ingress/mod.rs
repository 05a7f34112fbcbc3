//! `ingresscontrollers.operator.openshift.io/v1`: who wants a router, and how it is reached.
//!
//! The spec belongs to whoever writes it, and is only read here. Of the status only what is known here is written. A value
//! that is new to us is kept as it is: one object that cannot be read would keep all others from being seen.

mod condition;
mod duration;
pub mod options;
pub mod ranges;
mod strategy;
mod validate;

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{LocalObjectReference, Toleration};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use k8s_openapi::{Metadata, NamespaceResourceScope, Resource};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

pub use condition::{Condition, ConditionStatus};
pub use duration::seconds;
pub use options::Options;
pub use strategy::{
    AwsLoadBalancerType, AwsParameters, ClassicLoadBalancer, EndpointPublishingStrategy, GcpParameters,
    HostNetworkStrategy, IbmParameters, LoadBalancerStrategy, NetworkLoadBalancer, OpenStackParameters,
    ProtocolStrategy, ProviderParameters, PublishingType, Scope, Subnets,
};
pub use validate::{ignored, presentable, refusals, unchangeable};

/// The type as a `CustomResourceDefinition`, for clusters that have none. One that is installed is used as it is.
pub const CRD: &str = include_str!("../../../../deploy/crds/ingresscontrollers.yaml");

/// The label by which an object belongs to an `IngressController`; its value is the name.
pub const OWNING_LABEL: &str = "ingresscontroller.operator.openshift.io/owning-ingresscontroller";

/// The label by which an object belongs to the configuration of a single node; its value is the name of the router. No
/// `IngressController` has it then, whatever other labels say.
pub const SINGLE_NODE_LABEL: &str = "portcullis.dev/single-node";

/// The annotation on an `IngressController` by which a load balancer may be deleted when a change needs a new one.
pub const AUTO_DELETE: &str = "ingress.operator.openshift.io/auto-delete-load-balancer";

/// What wants a router.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct IngressController {
    /// Its name, labels and so on.
    pub metadata: ObjectMeta,
    /// What is wanted.
    #[serde(deserialize_with = "null_is_default")]
    pub spec: IngressControllerSpec,
    /// How it stands.
    #[serde(deserialize_with = "null_is_default")]
    pub status: IngressControllerStatus,
}

/// What an `IngressController` wants.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct IngressControllerSpec {
    /// The domain whose routes it serves.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub domain: Option<String>,
    /// How many routers run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i32>,
    /// How clients reach it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub endpoint_publishing_strategy: Option<EndpointPublishingStrategy>,
    /// The Secret with the certificate for routes that bring none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default_certificate: Option<LocalObjectReference>,
    /// On which nodes the routers run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_placement: Option<NodePlacement>,
    /// Which routes are taken.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub route_admission: Option<RouteAdmission>,
    /// Of which namespaces routes are served.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace_selector: Option<LabelSelector>,
    /// Which routes are served.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub route_selector: Option<LabelSelector>,
    /// Everything else, as it was given. [`Options`] reads it.
    #[serde(flatten)]
    pub rest: BTreeMap<String, Value>,
}

/// On which nodes routers run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodePlacement {
    /// Nodes with these labels.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_selector: Option<LabelSelector>,
    /// Taints that do not keep them away.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tolerations: Option<Vec<Toleration>>,
}

/// Which routes are taken.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RouteAdmission {
    /// `Strict`, or `InterNamespaceAllowed`: whether several namespaces may share a host name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace_ownership: Option<String>,
    /// `WildcardsAllowed` or `WildcardsDisallowed`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wildcard_policy: Option<String>,
}

/// How an `IngressController` stands.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct IngressControllerStatus {
    /// How many routers serve.
    #[serde(deserialize_with = "null_is_default")]
    pub available_replicas: i32,
    /// Which pods are its routers, as text.
    #[serde(deserialize_with = "null_is_default")]
    pub selector: String,
    /// The domain that it serves.
    #[serde(deserialize_with = "null_is_default")]
    pub domain: String,
    /// How clients reach it, and from which ranges they may.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub endpoint_publishing_strategy: Option<EndpointPublishingStrategy>,
    /// What is to be known about it.
    #[serde(deserialize_with = "null_is_default")]
    pub conditions: Vec<Condition>,
    /// Of which namespaces it serves routes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace_selector: Option<LabelSelector>,
    /// Which routes it serves.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub route_selector: Option<LabelSelector>,
    /// The spec that this is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
}

impl IngressController {
    /// Its name.
    pub fn name(&self) -> &str {
        self.metadata.name.as_deref().unwrap_or_default()
    }

    /// The domain that the spec asks for.
    pub fn wanted_domain(&self) -> Option<&str> {
        self.spec.domain.as_deref().filter(|domain| !domain.is_empty())
    }

    /// The load balancer that the spec asks for, if it says anything about one.
    pub fn wanted_load_balancer(&self) -> Option<&LoadBalancerStrategy> {
        self.spec.endpoint_publishing_strategy.as_ref()?.load_balancer.as_ref()
    }

    /// The ranges that the spec asks for. Absent, null and empty are the same here: they say nothing.
    pub fn wanted_ranges(&self) -> &[String] {
        self.wanted_load_balancer()
            .and_then(|load_balancer| load_balancer.allowed_source_ranges.as_deref())
            .unwrap_or_default()
    }

    /// Whether it carries an annotation, whatever its value is.
    pub fn has_annotation(&self, key: &str) -> bool {
        self.metadata.annotations.as_ref().is_some_and(|all| all.contains_key(key))
    }
}

// kube's own trait follows from these two, without a dependency on kube and without a macro.
impl Resource for IngressController {
    const API_VERSION: &'static str = "operator.openshift.io/v1";
    const GROUP: &'static str = "operator.openshift.io";
    const KIND: &'static str = "IngressController";
    const VERSION: &'static str = "v1";
    const URL_PATH_SEGMENT: &'static str = "ingresscontrollers";
    type Scope = NamespaceResourceScope;
}

impl Metadata for IngressController {
    type Ty = ObjectMeta;

    fn metadata(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn metadata_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

fn null_is_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(spec: &Value) -> IngressController {
        serde_json::from_value(json!({"metadata": {"name": "default"}, "spec": spec})).unwrap()
    }

    #[test]
    fn absent_null_and_empty_ranges_say_nothing() {
        for load_balancer in
            [json!({}), json!({"allowedSourceRanges": null}), json!({"allowedSourceRanges": []})]
        {
            let strategy = json!({"type": "LoadBalancerService", "loadBalancer": load_balancer});
            let found = read(&json!({"endpointPublishingStrategy": strategy}));
            assert!(found.wanted_ranges().is_empty(), "{strategy}");
        }
        let ranges = json!({"allowedSourceRanges": ["b", "a", "b"]});
        let strategy = json!({"type": "LoadBalancerService", "loadBalancer": ranges});
        assert_eq!(read(&json!({"endpointPublishingStrategy": strategy})).wanted_ranges(), ["b", "a", "b"]);
    }

    #[test]
    fn what_is_new_is_kept() {
        let spec = json!({
            "domain": "apps.example.com",
            "endpointPublishingStrategy": {
                "type": "Anycast",
                "anycast": {"groups": 3},
                "loadBalancer": {
                    "scope": "Regional",
                    "providerParameters": {"type": "Moon", "moon": {"side": "dark"}},
                },
            },
            "tuningOptions": {"threadCount": 4},
            "somethingNew": [1, 2],
        });
        assert_eq!(serde_json::to_value(read(&spec).spec).unwrap(), spec);
    }

    #[test]
    fn nulls_and_gaps_are_read() {
        for object in [
            json!({}),
            json!({"spec": null, "status": null}),
            json!({"spec": {"domain": null, "replicas": null, "endpointPublishingStrategy": null}}),
            json!({"status": {"conditions": null, "availableReplicas": null, "selector": null, "domain": null}}),
            json!({"spec": {"endpointPublishingStrategy": {"type": "Private", "private": null, "loadBalancer": null}}}),
        ] {
            assert!(serde_json::from_value::<IngressController>(object.clone()).is_ok(), "{object}");
        }
    }
}
