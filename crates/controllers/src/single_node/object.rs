//! One object of the router.

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{ApiResource, DynamicObject};
use kube::{Resource, ResourceExt};
use portcullis_kube_api::host::LISTEN_ADDRESSES;
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
        let mut value = json(object);
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

    /// Whether what people add to it changes what the router does, or how it is reached.
    pub(super) fn is_ours_alone(&self) -> bool {
        ["Deployment", "Service"].contains(&self.resource.kind.as_str())
    }

    /// What one that is there is and has to become; nothing, if it is as it should be. `made` is what Kubernetes would make of it if
    /// it were not there, if that is known: what is not in it was added by somebody.
    pub(super) fn changed(&self, have: &Value, made: Option<&Value>) -> Option<(Value, Value)> {
        let (have, mut after, made) = match self.resource.kind.as_str() {
            "Deployment" => {
                let [have, want, made] =
                    [Some(have), Some(&self.value), made].map(|object| as_type::<Deployment>(object?));
                let have = have?;
                let after = changed_deployment(&have, &want?).unwrap_or_else(|| have.clone());
                (json(&have), json(&after), made.as_ref().map(json))
            }
            "ConfigMap" if self.is_whole => {
                let (have, want) = (as_type::<ConfigMap>(have)?, as_type(&self.value)?);
                let after = changed_config(&have, &want)?;
                (json(&have), json(&after), None)
            }
            _ => {
                let after = changed(have, &self.value).unwrap_or_else(|| have.clone());
                (have.clone(), after, made.cloned())
            }
        };
        match self.resource.kind.as_str() {
            "Service" => close_other_ways(&mut after, &self.value),
            "ServiceAccount" => {
                // Without its token a router sees nothing.
                after.as_object_mut().map(|account| account.remove("automountServiceAccountToken"));
            }
            _ => {}
        }
        if let Some(made) = made {
            take_out_additions(&mut after["spec"], &made["spec"]);
        }
        (after != have).then_some((have, after))
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

/// Takes from a Service what leads to it besides its own addresses and ports, or says which those are, unless that is wanted. Source
/// ranges stay, which only keep people out.
fn close_other_ways(after: &mut Value, want: &Value) {
    if want["metadata"]["annotations"].get(LISTEN_ADDRESSES).is_none()
        && let Some(annotations) = after["metadata"]["annotations"].as_object_mut()
    {
        annotations.remove(LISTEN_ADDRESSES);
    }
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

/// What Kubernetes gives to each, source ranges, and what people note on pods: these stay as they are. Without the note of
/// `kubectl rollout restart` pods would be made anew.
const OWN: [&str; 8] = [
    "clusterIP",
    "clusterIPs",
    "healthCheckNodePort",
    "ipFamilies",
    "ipFamilyPolicy",
    "loadBalancerSourceRanges",
    "metadata",
    "nodePort",
];

/// Has it as it would be made.
fn take_out_additions(after: &mut Value, made: &Value) {
    match (after, made) {
        (Value::Object(after), Value::Object(made)) => {
            after.retain(|key, _| made.contains_key(key) || OWN.contains(&key.as_str()));
            for (key, value) in made.iter().filter(|(key, _)| !OWN.contains(&key.as_str())) {
                take_out_additions(after.entry(key).or_insert(Value::Null), value);
            }
        }
        (Value::Array(after), Value::Array(made)) if after.len() == made.len() => {
            for (after, made) in after.iter_mut().zip(made) {
                take_out_additions(after, made);
            }
        }
        (after, made) => after.clone_from(made),
    }
}

/// As far as the type knows it: what is new to it is left out.
fn as_type<T: DeserializeOwned>(object: &Value) -> Option<T> {
    serde_json::from_value(object.clone()).ok()
}

fn json<T: Serialize>(object: &T) -> Value {
    serde_json::to_value(object).expect("an object of Kubernetes can be written")
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
