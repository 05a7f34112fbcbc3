//! Services that change hands: what is written on them when their load balancer is taken over, or given back.
//!
//! Every other controller acts on what it finds on a Service: its finalizer, its class, or annotations. So each step leaves
//! a Service that nobody else's controller would act on, and whoever stopped in between can go on.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Service;
use portcullis_core::Owner;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::service::{EXTERNAL, FINALIZER, FOREIGN_FINALIZERS, TYPE, annotation};

/// The annotation by which the AWS Load Balancer Controller takes a Service that is of no class.
const TARGET_TYPE: &str = "service.beta.kubernetes.io/aws-load-balancer-nlb-target-type";

/// What Kubernetes only keeps on Services of type `LoadBalancer`, and has to be given again with it.
const OF_THE_TYPE: [&str; 4] =
    ["loadBalancerSourceRanges", "allocateLoadBalancerNodePorts", "healthCheckNodePort", "type"];

/// What a Service was before its load balancer was taken over, as it is written on it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Adopted {
    /// From whom.
    pub from: String,
    /// By what it held the Service.
    pub finalizers: Vec<String>,
    /// The class that it had.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<String>,
    /// Annotations that the other controller acts on, as they were. They still count for the load balancer.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
    /// While the class changes: what has to be given again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    spec: Option<Value>,
}

impl Adopted {
    /// What is written on a Service, if it was taken over.
    pub fn of(service: &Service) -> Option<Self> {
        serde_json::from_str(annotation(service, Owner::ADOPTED_KEY)?).ok()
    }

    /// Where its load balancer is, while the status does not say so.
    pub fn address(&self) -> Option<String> {
        Some(self.spec.as_ref()?.pointer("/ingress/0/hostname")?.as_str()?.to_owned())
    }

    fn written(&self) -> String {
        serde_json::to_string(self).expect("plain values can be written")
    }
}

/// A change of a Service: a merge patch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Of the Service itself.
    Object(Value),
    /// Of its status.
    Status(Value),
}

/// The changes by which a Service becomes ours, one after the other. `class` is ours; `from` is whose it was.
pub fn take_over(service: &Service, class: &str, from: &str) -> Vec<Change> {
    let foreign: Vec<String> = finalizers(service)
        .filter(|found| FOREIGN_FINALIZERS.iter().any(|(name, _)| name == found))
        .map(str::to_owned)
        .collect();
    let known = Adopted::of(service);
    let was = class_of(service);
    if was.as_deref() == Some(class) {
        return Vec::new();
    }
    if was.is_some() || known.as_ref().is_some_and(|known| known.spec.is_some()) {
        let adopted = known.unwrap_or_else(|| Adopted {
            from: from.to_owned(),
            finalizers: foreign,
            class: was,
            ..Adopted::default()
        });
        return change_class(service, class, &adopted, &[FINALIZER.to_owned()], true);
    }
    if known.is_some() {
        return Vec::new();
    }
    // A class can never be given to a Service that has none. The type tells cloud providers to keep away, and without
    // the type of targets the AWS Load Balancer Controller does not take it.
    let adopted = Adopted {
        from: from.to_owned(),
        finalizers: foreign.clone(),
        annotations: acted_on(service),
        ..Adopted::default()
    };
    let held =
        finalizers(service).filter(|found| !foreign.iter().any(|name| name == found) && *found != FINALIZER);
    let held: Vec<&str> = held.chain([FINALIZER]).collect();
    vec![Change::Object(json!({"metadata": {
        "resourceVersion": service.metadata.resource_version,
        "finalizers": held,
        "annotations": {TYPE: EXTERNAL, TARGET_TYPE: null, Owner::ADOPTED_KEY: adopted.written()},
    }}))]
}

/// The changes by which a Service becomes that of whom it was taken over from again.
pub fn give_back(service: &Service) -> Vec<Change> {
    let Some(adopted) = Adopted::of(service) else { return Vec::new() };
    if let Some(class) = adopted.class.clone() {
        return change_class(service, &class, &adopted, &adopted.finalizers, false);
    }
    let kept = finalizers(service).filter(|found| *found != FINALIZER);
    let kept: Vec<&str> = kept.filter(|found| !adopted.finalizers.iter().any(|name| name == found)).collect();
    let held: Vec<&str> = kept.into_iter().chain(adopted.finalizers.iter().map(String::as_str)).collect();
    let mut annotations = json!({Owner::ADOPTED_KEY: null, TYPE: null});
    for (key, value) in &adopted.annotations {
        annotations[key] = json!(value);
    }
    vec![Change::Object(json!({"metadata": {
        "resourceVersion": service.metadata.resource_version,
        "finalizers": held,
        "annotations": annotations,
    }}))]
}

/// Gives a Service another class. Kubernetes only allows that by way of another type: while it has that, nobody holds it
/// and nobody wants it.
fn change_class(
    service: &Service,
    class: &str,
    adopted: &Adopted,
    holders: &[String],
    stays_adopted: bool,
) -> Vec<Change> {
    let mut changes = Vec::new();
    // Somebody may have stopped in between.
    let stopped = adopted.spec.as_ref();
    let spec = stopped.cloned().unwrap_or_else(|| of_the_type(service));
    let aside = if stopped.is_some() { adopted.annotations.clone() } else { acted_on(service) };
    let others = finalizers(service)
        .filter(|found| *found != FINALIZER && FOREIGN_FINALIZERS.iter().all(|(name, _)| name != found));
    let others: Vec<String> = others.map(str::to_owned).collect();
    if stopped.is_none() {
        let between = Adopted { annotations: aside.clone(), spec: Some(spec.clone()), ..adopted.clone() };
        let has_node_ports = service.spec.iter().flat_map(|spec| spec.ports.iter().flatten());
        let has_node_ports =
            has_node_ports.into_iter().any(|port| port.node_port.is_some_and(|port| port > 0));
        let mut annotations = json!({Owner::ADOPTED_KEY: between.written()});
        for key in aside.keys() {
            annotations[key] = Value::Null;
        }
        let mut other = json!({
            "type": if has_node_ports { "NodePort" } else { "ClusterIP" },
            "loadBalancerClass": null,
        });
        for key in OF_THE_TYPE.into_iter().filter(|key| *key != "type") {
            other[key] = Value::Null;
        }
        changes.push(Change::Object(json!({
            "metadata": {
                "resourceVersion": service.metadata.resource_version,
                "finalizers": others,
                "annotations": annotations,
            },
            "spec": other,
        })));
    }
    let after = Adopted { annotations: BTreeMap::new(), spec: None, ..adopted.clone() };
    let mut annotations = json!({Owner::ADOPTED_KEY: stays_adopted.then(|| after.written())});
    for (key, value) in &aside {
        annotations[key] = json!(value);
    }
    let mut wanted = spec.clone();
    let ingress = wanted.as_object_mut().and_then(|spec| spec.remove("ingress"));
    wanted["type"] = json!("LoadBalancer");
    wanted["loadBalancerClass"] = json!(class);
    let held: Vec<&String> = others.iter().chain(holders).collect();
    changes.push(Change::Object(
        json!({"metadata": {"finalizers": held, "annotations": annotations}, "spec": wanted}),
    ));
    if let Some(ingress) = ingress {
        changes.push(Change::Status(json!({"status": {"loadBalancer": {"ingress": ingress}}})));
    }
    changes
}

/// What goes with the type `LoadBalancer`, and the addresses, which go with it too.
fn of_the_type(service: &Service) -> Value {
    let spec = serde_json::to_value(&service.spec).unwrap_or_default();
    let kept = OF_THE_TYPE.into_iter().filter(|key| *key != "type");
    let mut kept: Map<String, Value> =
        kept.filter_map(|key| Some((key.to_owned(), spec.get(key)?.clone()))).collect();
    let status = serde_json::to_value(&service.status).unwrap_or_default();
    if let Some(ingress) = status.pointer("/loadBalancer/ingress") {
        kept.insert("ingress".to_owned(), ingress.clone());
    }
    Value::Object(kept)
}

/// The annotations that other controllers act on.
fn acted_on(service: &Service) -> BTreeMap<String, String> {
    let keys = [TYPE, TARGET_TYPE].into_iter();
    keys.filter_map(|key| Some((key.to_owned(), annotation(service, key)?.clone()))).collect()
}

fn class_of(service: &Service) -> Option<String> {
    service.spec.as_ref()?.load_balancer_class.clone()
}

fn finalizers(service: &Service) -> impl Iterator<Item = &str> {
    service.metadata.finalizers.iter().flatten().map(String::as_str)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{LoadBalancerClass, foreign_finalizer, parameters, wants_load_balancer};

    const CLASS: &str = "portcullis.dev/aws-nlb";

    fn service(value: Value) -> Service {
        serde_json::from_value(value).unwrap()
    }

    /// A Service after a change, as the API would have it.
    fn changed(service: &Service, change: &Change) -> Service {
        fn merge(into: &mut Value, patch: &Value) {
            let Value::Object(patch) = patch else { return into.clone_from(patch) };
            if !into.is_object() {
                *into = json!({});
            }
            let into = into.as_object_mut().unwrap();
            for (key, value) in patch {
                if value.is_null() {
                    into.remove(key);
                } else {
                    merge(into.entry(key.clone()).or_insert(Value::Null), value);
                }
            }
        }
        let mut value = serde_json::to_value(service).unwrap();
        let (Change::Object(patch) | Change::Status(patch)) = change;
        merge(&mut value, patch);
        if value["spec"]["type"] != "LoadBalancer" {
            value.as_object_mut().unwrap().remove("status");
        }
        serde_json::from_value(value).unwrap()
    }

    fn ours() -> LoadBalancerClass {
        LoadBalancerClass { name: CLASS.to_owned(), without_class: None }
    }

    fn of_cloud_provider() -> Service {
        service(json!({
            "metadata": {
                "name": "web", "namespace": "shop",
                "annotations": {TYPE: "nlb", "note": "kept"},
                "finalizers": ["somebody/else", "service.kubernetes.io/load-balancer-cleanup"],
            },
            "spec": {"type": "LoadBalancer", "ports": [{"port": 80, "nodePort": 30080}]},
            "status": {"loadBalancer": {"ingress": [{"hostname": "a.example"}]}},
        }))
    }

    fn of_controller() -> Service {
        service(json!({
            "metadata": {
                "name": "web", "namespace": "shop",
                "annotations": {TYPE: "external", TARGET_TYPE: "ip"},
                "finalizers": ["service.k8s.aws/resources"],
            },
            "spec": {
                "type": "LoadBalancer",
                "loadBalancerClass": "service.k8s.aws/nlb",
                "loadBalancerSourceRanges": ["192.0.2.0/24"],
                "externalTrafficPolicy": "Local",
                "healthCheckNodePort": 31000,
                "ports": [{"port": 80, "nodePort": 30080}],
            },
            "status": {"loadBalancer": {"ingress": [{"hostname": "k.example"}]}},
        }))
    }

    #[test]
    fn a_service_without_a_class_changes_hands_by_one_change_and_back_by_another() {
        let before = of_cloud_provider();
        let changes = take_over(&before, CLASS, "cloud-provider-aws");
        assert_eq!(changes.len(), 1, "nobody sees anything in between");
        let taken = changed(&before, &changes[0]);
        assert!(wants_load_balancer(&taken, &ours()));
        assert_eq!(taken.metadata.finalizers, Some(vec!["somebody/else".to_owned(), FINALIZER.to_owned()]));
        assert_eq!(annotation(&taken, TYPE).unwrap(), EXTERNAL);
        assert_eq!(Adopted::of(&taken).unwrap().from, "cloud-provider-aws");
        assert_eq!(take_over(&taken, CLASS, "cloud-provider-aws"), []);

        // Its controller holds it again, and does nothing else.
        let mut held = taken.clone();
        held.metadata
            .finalizers
            .as_mut()
            .unwrap()
            .push("service.kubernetes.io/load-balancer-cleanup".to_owned());
        assert_eq!(foreign_finalizer(&held), None);
        held.metadata.annotations.as_mut().unwrap().insert(TYPE.to_owned(), "nlb".to_owned());
        assert!(foreign_finalizer(&held).is_some(), "now it looks after it");

        let back = changed(&taken, &give_back(&taken)[0]);
        assert_eq!(back, before);
        assert!(!wants_load_balancer(&back, &ours()));
    }

    #[test]
    fn a_service_of_a_class_changes_hands_by_way_of_another_type() {
        let before = of_controller();
        let changes = take_over(&before, CLASS, "aws-load-balancer-controller");
        assert_eq!(changes.len(), 3);
        let between = changed(&before, &changes[0]);
        assert_eq!(between.metadata.finalizers, Some(Vec::new()), "nobody holds it");
        assert!(annotation(&between, TYPE).is_none() && annotation(&between, TARGET_TYPE).is_none());
        assert!(!wants_load_balancer(&between, &ours()));

        // Who stops here goes on with the same.
        assert_eq!(take_over(&between, CLASS, "aws-load-balancer-controller"), changes[1..]);

        let taken = changes[1..].iter().fold(between, |service, change| changed(&service, change));
        assert!(wants_load_balancer(&taken, &ours()));
        assert_eq!(taken.metadata.finalizers, Some(vec![FINALIZER.to_owned()]));
        let (was, is) = (before.spec.clone().unwrap(), taken.spec.clone().unwrap());
        assert_eq!(is.load_balancer_class.as_deref(), Some(CLASS));
        assert_eq!(is.load_balancer_source_ranges, was.load_balancer_source_ranges);
        assert_eq!(is.health_check_node_port, was.health_check_node_port);
        assert_eq!(taken.status, before.status, "its address stays");
        assert_eq!(parameters(&taken)[TARGET_TYPE], "ip");
        assert_eq!(take_over(&taken, CLASS, "aws-load-balancer-controller"), []);

        let back = give_back(&taken).iter().fold(taken, |service, change| changed(&service, change));
        assert_eq!(back, before);
    }

    #[test]
    fn annotations_that_were_set_aside_still_count() {
        let mut before = of_controller();
        before.spec.as_mut().unwrap().load_balancer_class = None;
        let changes = take_over(&before, CLASS, "aws-load-balancer-controller");
        let taken = changed(&before, &changes[0]);
        assert!(annotation(&taken, TARGET_TYPE).is_none());
        assert_eq!(parameters(&taken)[TARGET_TYPE], "ip");
        assert_eq!(changed(&taken, &give_back(&taken)[0]), before);
    }
}
