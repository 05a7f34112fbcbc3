//! Who may connect to a Service that is made anew: whatever people said about that counts from its first moment.

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, ApiResource, DynamicObject};
use portcullis_kube_api::SOURCE_RANGES;
use portcullis_kube_api::host::NODE_PORTS;
use portcullis_kube_api::ingress::SINGLE_NODE_LABEL;
use serde_json::{Value, json};
use tracing::info;

use super::apply::write_as;
use super::controller::SingleNode;
use super::object::{MANAGER, Object};
use super::objects::{NAME, limits_of};
use super::trouble::Trouble;

/// As whom limits are written: what is applied as [`MANAGER`], and is not in the next apply of that, would go.
pub(super) const KEEPER: &str = "portcullis-limits";

/// The key of a note of limits.
const NOTED: &str = "service";

impl SingleNode {
    /// Notes the limits of an object that goes, since we may be killed before it is there again. The note goes with all that the
    /// configuration does not ask for.
    pub(super) async fn note_limits(&self, object: &Object, have: &Value) -> Result<(), Trouble> {
        let limits = match limits(have) {
            Some(limits) => limits,
            // People took back what was noted before.
            None if self.noted_limits(object).await?.is_some() => json!({}),
            None => return Ok(()),
        };
        let name = limits_of(object.name());
        let note = json!({
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {
                "name": name,
                "namespace": object.namespace(),
                "labels": {SINGLE_NODE_LABEL: NAME},
            },
            "data": {NOTED: limits.to_string()},
        });
        let written = write_as(&self.notes(object), MANAGER, &note, true).await;
        written.map(drop).map_err(|error| Trouble::of(&format!("ConfigMap {name}"), &error))
    }

    /// Makes an object, with the limits that the one before it had.
    pub(super) async fn make(&self, api: &Api<DynamicObject>, object: &Object) -> Result<(), Trouble> {
        let trouble = |error: kube::Error| Trouble::of(&object.place(), &error);
        let noted = self.noted_limits(object).await?;
        let Some(limits) = noted.filter(|limits| *limits != json!({})) else {
            return write_as(api, MANAGER, &object.value, true).await.map(drop).map_err(trouble);
        };
        let mut whole = object.value.clone();
        merge(&mut whole, &limits);
        write_as(api, KEEPER, &whole, true).await.map_err(trouble)?;
        write_as(api, MANAGER, &object.value, true).await.map_err(trouble)?;
        self.keep(api, object, &limits).await?;
        info!(object = object.place(), %limits, "who may connect to it is as it was before");
        Ok(())
    }

    /// Ends what [`Self::make`] began, should we have been killed meanwhile. Whatever people said by now counts.
    pub(super) async fn settle_limits(
        &self,
        api: &Api<DynamicObject>,
        object: &Object,
        have: &Value,
    ) -> Result<(), Trouble> {
        if self.settings.observe || self.noted_limits(object).await?.is_none() {
            return Ok(());
        }
        // What nobody else has goes with the one who had it.
        let written = write_as(api, MANAGER, &object.value, true).await;
        written.map_err(|error| Trouble::of(&object.place(), &error))?;
        self.keep(api, object, &limits(have).unwrap_or_else(|| json!({}))).await
    }

    /// Has the limits be all that is in an object as [`KEEPER`]: all else is ours.
    async fn keep(&self, api: &Api<DynamicObject>, object: &Object, limits: &Value) -> Result<(), Trouble> {
        let mut kept = json!({
            "apiVersion": object.value["apiVersion"],
            "kind": object.value["kind"],
            "metadata": {"name": object.name(), "namespace": object.namespace()},
        });
        merge(&mut kept, limits);
        let written = write_as(api, KEEPER, &kept, true).await;
        written.map(drop).map_err(|error| Trouble::of(&object.place(), &error))
    }

    async fn noted_limits(&self, object: &Object) -> Result<Option<Value>, Trouble> {
        if object.value["spec"]["type"] != "LoadBalancer" {
            return Ok(None);
        }
        let name = limits_of(object.name());
        let found = self.notes(object).get_opt(&name).await;
        let found = found.map_err(|error| Trouble::of(&format!("ConfigMap {name}"), &error))?;
        let ours = found
            .filter(|note| note.metadata.labels.iter().flatten().any(|(key, _)| key == SINGLE_NODE_LABEL));
        let text = ours.as_ref().and_then(|note| note.data["data"][NOTED].as_str());
        Ok(text.and_then(|text| serde_json::from_str(text).ok()))
    }

    fn notes(&self, object: &Object) -> Api<DynamicObject> {
        self.api(&ApiResource::erase::<ConfigMap>(&()), object.namespace())
    }
}

/// What people said of who may connect.
fn limits(have: &Value) -> Option<Value> {
    let mut limits = json!({});
    let ranges = &have["spec"]["loadBalancerSourceRanges"];
    if !ranges.is_null() {
        limits["spec"]["loadBalancerSourceRanges"] = ranges.clone();
    }
    for key in [SOURCE_RANGES, NODE_PORTS] {
        let said = &have["metadata"]["annotations"][key];
        if !said.is_null() {
            limits["metadata"]["annotations"][key] = said.clone();
        }
    }
    (have["spec"]["type"] == "LoadBalancer" && limits != json!({})).then_some(limits)
}

/// Lays one value over another.
fn merge(value: &mut Value, over: &Value) {
    match (value, over) {
        (Value::Object(value), Value::Object(over)) => {
            for (key, over) in over {
                merge(value.entry(key.as_str()).or_insert(Value::Null), over);
            }
        }
        (value, over) => *value = over.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_what_people_said() {
        let service =
            |spec: Value, annotations: Value| json!({"spec": spec, "metadata": {"annotations": annotations}});
        let ranges = json!(["192.0.2.0/24"]);
        let noted = json!({"spec": {"loadBalancerSourceRanges": ranges}});
        let limited = json!({"type": "LoadBalancer", "loadBalancerSourceRanges": ranges});
        for (have, is) in [
            (service(limited.clone(), json!({"team": "edge"})), Some(noted)),
            (service(json!({"type": "LoadBalancer"}), json!({"team": "edge"})), None),
            (service(json!({"type": "ClusterIP"}), json!({NODE_PORTS: "true"})), None),
            (
                service(
                    json!({"type": "LoadBalancer"}),
                    json!({SOURCE_RANGES: "192.0.2.0/24", NODE_PORTS: "true"}),
                ),
                Some(
                    json!({"metadata": {"annotations": {SOURCE_RANGES: "192.0.2.0/24", NODE_PORTS: "true"}}}),
                ),
            ),
        ] {
            assert_eq!(limits(&have), is, "{have}");
        }
        let mut made = service(json!({"type": "LoadBalancer"}), json!({"portcullis.dev/applied": "1"}));
        merge(&mut made, &limits(&service(limited.clone(), json!({NODE_PORTS: "true"}))).unwrap());
        assert_eq!(made, service(limited, json!({"portcullis.dev/applied": "1", NODE_PORTS: "true"})));
    }
}
