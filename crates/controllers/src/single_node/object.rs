//! One object of the router.

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{ApiResource, DynamicObject};
use kube::{Resource, ResourceExt};
use portcullis_kube_api::ingress::SINGLE_NODE_LABEL;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::router::{changed, changed_config, changed_deployment};

/// As whom objects are applied.
pub const MANAGER: &str = "portcullis";

/// The annotation that says what was applied last, in short: who finds the object otherwise knows that somebody else changed it.
pub const APPLIED: &str = "portcullis.dev/applied";

/// As whom `MicroShift` writes its objects.
const MICROSHIFT: &str = "microshift";

/// What an object should be.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Object {
    pub(super) resource: ApiResource,
    pub(super) value: Value,
    /// Whether everything in it is ours, also what others add.
    is_whole: bool,
}

/// Whose an object is that is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Whose {
    /// Ours.
    Ours,
    /// `MicroShift` made it.
    MicroShifts,
    /// Somebody else's.
    Others,
}

impl Object {
    /// One that is ours. What others add to it stays.
    pub(super) fn new<K: Resource<DynamicType = ()> + Serialize>(object: &K, router: &str) -> Self {
        let mut value = serde_json::to_value(object).expect("an object of Kubernetes can be written");
        value["metadata"]["labels"][SINGLE_NODE_LABEL] = json!(router);
        let applied = format!("{:016x}", hash(&value.to_string()));
        value["metadata"]["annotations"][APPLIED] = json!(applied);
        Object { resource: ApiResource::erase::<K>(&()), value, is_whole: false }
    }

    /// The same, if nobody else has anything to say about it.
    pub(super) fn whole(self) -> Self {
        Object { is_whole: true, ..self }
    }

    pub(super) fn name(&self) -> &str {
        self.value["metadata"]["name"].as_str().unwrap_or_default()
    }

    pub(super) fn namespace(&self) -> Option<&str> {
        self.value["metadata"]["namespace"].as_str()
    }

    /// Its kind and name, for people.
    pub(super) fn place(&self) -> String {
        place(&self.resource, self.namespace(), self.name())
    }

    /// What one that is there is and has to become; nothing, if it is as it should be.
    pub(super) fn changed(&self, have: &Value) -> Option<(Value, Value)> {
        match self.resource.kind.as_str() {
            "Deployment" => as_type::<Deployment>(have, &self.value, changed_deployment),
            "ConfigMap" if self.is_whole => as_type::<ConfigMap>(have, &self.value, changed_config),
            "Service" => {
                let mut after = changed(have, &self.value).unwrap_or_else(|| have.clone());
                close_other_ways(&mut after, &self.value);
                (after != *have).then(|| (have.clone(), after))
            }
            _ => changed(have, &self.value).map(|after| (have.clone(), after)),
        }
    }

    /// Why one that is there cannot become it: Kubernetes does not let these change.
    pub(super) fn cannot_become(&self, have: &Value) -> Option<&'static str> {
        let field = match self.resource.kind.as_str() {
            // While it is of another type, its class can be set.
            "Service" if have["spec"]["type"] == "LoadBalancer" => "spec.loadBalancerClass",
            "ClusterRoleBinding" => "roleRef",
            "IngressClass" => "spec.controller",
            "Deployment" => "spec.selector",
            _ => return None,
        };
        let pointer = format!("/{}", field.replace('.', "/"));
        let [before, after] =
            [have, &self.value].map(|object| object.pointer(&pointer).unwrap_or(&Value::Null));
        (before != after).then_some(field)
    }

    /// Whether one that is there was applied from the same.
    pub(super) fn is_from_this(&self, have: &Value) -> bool {
        let [before, after] =
            [have, &self.value].map(|object| object["metadata"]["annotations"][APPLIED].as_str());
        before == after
    }
}

/// Takes from a Service what leads to it besides its own addresses and ports, unless that is wanted. Source ranges stay, which only
/// keep people out.
fn close_other_ways(after: &mut Value, want: &Value) {
    let Some(spec) = after["spec"].as_object_mut() else { return };
    for field in ["externalIPs", "loadBalancerIP"] {
        if want["spec"].get(field).is_none() {
            spec.remove(field);
        }
    }
    if want["spec"]["allocateLoadBalancerNodePorts"] == false {
        let ports = spec.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten();
        for port in ports.filter_map(Value::as_object_mut) {
            port.remove("nodePort");
        }
    }
}

/// Both as far as the type knows them: what is new to it is in neither.
fn as_type<T: Serialize + DeserializeOwned>(
    have: &Value,
    want: &Value,
    changed: fn(&T, &T) -> Option<T>,
) -> Option<(Value, Value)> {
    let [have, want] = [have, want].map(|object| serde_json::from_value::<T>(object.clone()).ok());
    let have = have?;
    let after = changed(&have, &want?)?;
    Some((serde_json::to_value(have).ok()?, serde_json::to_value(after).ok()?))
}

/// Kind and name, for people.
pub(super) fn place(resource: &ApiResource, namespace: Option<&str>, name: &str) -> String {
    match namespace {
        Some(namespace) => format!("{} {namespace}/{name}", resource.kind),
        None => format!("{} {name}", resource.kind),
    }
}

/// Whose an object is that is there.
pub(super) fn whose(have: &DynamicObject) -> Whose {
    if have.labels().contains_key(SINGLE_NODE_LABEL) {
        return Whose::Ours;
    }
    // Its controller for load balancers also writes the status of others' Services.
    let is_theirs = have.managed_fields().iter().any(|fields| {
        fields.manager.as_deref() == Some(MICROSHIFT)
            && fields.subresource.as_deref().unwrap_or_default().is_empty()
    });
    if is_theirs { Whose::MicroShifts } else { Whose::Others }
}

/// FNV-1a. It is the same in every version of the program.
fn hash(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}
