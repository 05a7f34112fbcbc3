//! Services that change hands: what is written on them when their load balancer is taken over, or given back.
//!
//! Every other controller acts on what it finds on a Service: its finalizer, its class, or annotations. So each step leaves
//! a Service that nobody else's controller would act on, and whoever stopped in between can go on.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Service, ServicePort};
use portcullis_core::Owner;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::service::{EXTERNAL, FINALIZER, FOREIGN_FINALIZERS, TYPE, annotation, foreign_finalizer};

/// The annotation by which the AWS Load Balancer Controller takes a Service that is of no class.
const TARGET_TYPE: &str = "service.beta.kubernetes.io/aws-load-balancer-nlb-target-type";

/// The annotations that say who can reach a load balancer: those of the VPC, or the whole internet.
const SCHEME: &str = "service.beta.kubernetes.io/aws-load-balancer-scheme";
const INTERNAL: &str = "service.beta.kubernetes.io/aws-load-balancer-internal";

/// From whom load balancers are taken over, in the order of what they hold Services by.
const MAKERS: [&str; 2] = ["cloud-provider-aws", "aws-load-balancer-controller"];

/// What Kubernetes takes away from a Service that is not of type `LoadBalancer` any more, and has to be given again.
const OF_THE_TYPE: [&str; 4] = [
    "loadBalancerSourceRanges",
    "allocateLoadBalancerNodePorts",
    "healthCheckNodePort",
    "externalTrafficPolicy",
];

/// What is kept besides: the ports, where Kubernetes would change them, and the addresses.
const PORTS: &str = "ports";
const INGRESS: &str = "ingress";

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
    /// Annotations that were added, since the other controller takes something else for granted than we do.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    added: BTreeMap<String, String>,
    /// While the class changes: what has to be given again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    spec: Option<Map<String, Value>>,
}

impl Adopted {
    /// What is written on a Service, if it was taken over. Whoever may write annotations can write anything there: what
    /// we would not have written is nothing.
    pub fn of(service: &Service) -> Option<Self> {
        let found: Self = serde_json::from_str(annotation(service, Owner::ADOPTED_KEY)?).ok()?;
        found.is_sound().then_some(found)
    }

    fn is_sound(&self) -> bool {
        let kept = |key: &String| OF_THE_TYPE.contains(&key.as_str()) || key == PORTS || key == INGRESS;
        MAKERS.contains(&self.from.as_str())
            && self.class.as_ref().is_none_or(|class| !class.is_empty())
            && self.finalizers.iter().all(|name| is_foreign(name))
            && self.annotations.keys().all(|key| key == TYPE || key == TARGET_TYPE)
            && self.added.keys().all(|key| key == SCHEME)
            && self.spec.iter().flat_map(Map::keys).all(kept)
    }

    /// Where its load balancer is, while the status does not say so.
    pub fn address(&self) -> Option<String> {
        Some(self.spec.as_ref()?.get(INGRESS)?.pointer("/0/hostname")?.as_str()?.to_owned())
    }

    fn written(&self) -> String {
        serde_json::to_string(self).expect("plain values can be written")
    }
}

/// A load balancer that is taken over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TakenOver<'a> {
    /// From whom.
    pub from: &'a str,
    /// `internal` or `internet-facing`.
    pub scheme: &'a str,
}

/// A change of a Service: a merge patch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Of the Service itself.
    Object(Value),
    /// Of its status.
    Status(Value),
}

impl Change {
    /// The change once more, made for the Service as it is found now: if it says what it said when the change was thought
    /// of. Only its conditions, and who wrote what, may have changed since.
    pub fn again(&self, was: &Service, found: &Service) -> Option<Self> {
        if says(was) != says(found) {
            return None;
        }
        let mut again = self.clone();
        let (Self::Object(patch) | Self::Status(patch)) = &mut again;
        *patch.pointer_mut("/metadata/resourceVersion")? = json!(found.metadata.resource_version);
        Some(again)
    }
}

/// A Service without what changes while it says the same.
fn says(service: &Service) -> Service {
    let mut says = service.clone();
    says.metadata.resource_version = None;
    says.metadata.managed_fields = None;
    if let Some(status) = &mut says.status {
        status.conditions = None;
    }
    says
}

/// The changes by which a Service becomes ours, one after the other; none if it is. `class` is ours.
pub fn take_over(service: &Service, class: &str, taken: TakenOver<'_>) -> Vec<Change> {
    let known = Adopted::of(service);
    let was = class_of(service);
    if was.as_deref() == Some(class) {
        return Vec::new();
    }
    let mut adopted = known.clone().unwrap_or_else(|| Adopted {
        from: taken.from.to_owned(),
        finalizers: foreign_finalizers(service),
        class: was.clone(),
        ..Adopted::default()
    });
    if lacks_scheme(service) {
        adopted.added.insert(SCHEME.to_owned(), taken.scheme.to_owned());
    }
    if was.is_some() || adopted.spec.is_some() {
        return change_class(service, class, &adopted, Some(FINALIZER));
    }
    if known.is_some() && is_settled(service) {
        return Vec::new();
    }
    // Who writes manifests may have set them back meanwhile, and mean something else by it.
    let says_external = |(key, value): &(String, String)| key == TYPE && value == EXTERNAL && known.is_some();
    adopted.annotations.extend(acted_on(service).into_iter().filter(|found| !says_external(found)));
    // A class can never be given to a Service that has none. The type tells cloud providers to keep away, and without
    // the type of targets the AWS Load Balancer Controller does not take it.
    let mut annotations = json!({TYPE: EXTERNAL, TARGET_TYPE: null, Owner::ADOPTED_KEY: adopted.written()});
    if lacks_scheme(service) {
        annotations[SCHEME] = json!(taken.scheme);
    }
    let held: Vec<&str> = held_by_others(service).chain([FINALIZER]).collect();
    vec![Change::Object(json!({"metadata": {
        "resourceVersion": service.metadata.resource_version,
        "finalizers": held,
        "annotations": annotations,
    }}))]
}

/// Whether a Service without a class, which was taken over, is still as it was left: nobody else looks after it.
fn is_settled(service: &Service) -> bool {
    annotation(service, TYPE).is_some_and(|value| value == EXTERNAL)
        && annotation(service, TARGET_TYPE).is_none()
        && finalizers(service).any(|found| found == FINALIZER)
        && foreign_finalizer(service).is_none()
        && !lacks_scheme(service)
}

/// The changes by which a Service becomes that of whom it was taken over from again. Nobody holds it then: as soon as the
/// other controller looks after it, it puts its finalizer on it, and is known by that.
pub fn give_back(service: &Service) -> Vec<Change> {
    let Some(adopted) = Adopted::of(service) else { return Vec::new() };
    if let Some(class) = adopted.class.clone() {
        return change_class(service, &class, &adopted, None);
    }
    let held: Vec<&str> = held_by_others(service).collect();
    let mut annotations = json!({Owner::ADOPTED_KEY: null, TYPE: null});
    for (key, value) in &adopted.annotations {
        annotations[key] = json!(value);
    }
    for key in added_and_left(service, &adopted) {
        annotations[key] = Value::Null;
    }
    vec![Change::Object(json!({"metadata": {
        "resourceVersion": service.metadata.resource_version,
        "finalizers": held,
        "annotations": annotations,
    }}))]
}

/// Whether the controller that something was taken over from looks after a Service, by what it holds it with.
pub fn is_held_by(service: &Service, maker: &str) -> bool {
    let place = MAKERS.iter().position(|known| *known == maker);
    let finalizer = place.and_then(|place| FOREIGN_FINALIZERS.get(place)).map(|(name, _)| *name);
    finalizer.is_some_and(|finalizer| finalizers(service).any(|found| found == finalizer))
}

/// Gives a Service another class: ours, if it is held by us then. Kubernetes only allows that by way of another type: while
/// it has that, nobody holds it and nobody wants it.
fn change_class(service: &Service, class: &str, adopted: &Adopted, holder: Option<&str>) -> Vec<Change> {
    let mut changes = Vec::new();
    // Somebody may have stopped in between.
    let stopped = adopted.spec.as_ref();
    let spec = stopped.cloned().unwrap_or_else(|| of_the_type(service));
    let aside = if stopped.is_some() { adopted.annotations.clone() } else { acted_on(service) };
    let others: Vec<&str> = held_by_others(service).collect();
    if stopped.is_none() {
        let between = Adopted { annotations: aside.clone(), spec: Some(spec.clone()), ..adopted.clone() };
        let mut annotations = json!({Owner::ADOPTED_KEY: between.written()});
        for key in aside.keys() {
            annotations[key] = Value::Null;
        }
        changes.push(Change::Object(json!({
            "metadata": {
                "resourceVersion": service.metadata.resource_version,
                "finalizers": others,
                "annotations": annotations,
            },
            "spec": of_another_type(service),
        })));
    }
    let after = Adopted { annotations: BTreeMap::new(), spec: None, ..adopted.clone() };
    let mut annotations = json!({Owner::ADOPTED_KEY: holder.map(|_| after.written())});
    for (key, value) in &aside {
        annotations[key] = json!(value);
    }
    if holder.is_some() {
        for (key, value) in &adopted.added {
            annotations[key] = json!(value);
        }
    } else {
        for key in added_and_left(service, adopted) {
            annotations[key] = Value::Null;
        }
    }
    let mut wanted = spec;
    let ingress = wanted.remove(INGRESS);
    wanted.insert("type".to_owned(), json!("LoadBalancer"));
    wanted.insert("loadBalancerClass".to_owned(), json!(class));
    let held: Vec<&str> = others.into_iter().chain(holder).collect();
    changes.push(Change::Object(
        json!({"metadata": {"finalizers": held, "annotations": annotations}, "spec": wanted}),
    ));
    if let Some(ingress) = ingress {
        changes.push(Change::Status(json!({"status": {"loadBalancer": {"ingress": ingress}}})));
    }
    changes
}

/// A Service of another type, in between: with node ports, so that these stay open, if it has any.
fn of_another_type(service: &Service) -> Value {
    let has_node_ports = ports(service).any(has_node_port);
    let mut other = json!({
        "type": if has_node_ports { "NodePort" } else { "ClusterIP" },
        "loadBalancerClass": null,
    });
    // Only Services that are reached from outside have a policy for it.
    let goes = |key: &&str| !(has_node_ports && *key == "externalTrafficPolicy");
    for key in OF_THE_TYPE.into_iter().filter(goes) {
        other[key] = Value::Null;
    }
    other
}

/// What goes with the type `LoadBalancer`, and the addresses, which go with it too.
fn of_the_type(service: &Service) -> Map<String, Value> {
    let spec = serde_json::to_value(&service.spec).unwrap_or_default();
    let kept = OF_THE_TYPE.into_iter();
    let mut kept: Map<String, Value> =
        kept.filter_map(|key| Some((key.to_owned(), spec.get(key)?.clone()))).collect();
    // Where some ports have node ports and others have none, these would be given some.
    if ports(service).any(has_node_port) && !ports(service).all(has_node_port) {
        kept.insert(PORTS.to_owned(), spec.get(PORTS).cloned().unwrap_or_default());
    }
    let status = serde_json::to_value(&service.status).unwrap_or_default();
    if let Some(ingress) = status.pointer("/loadBalancer/ingress") {
        kept.insert(INGRESS.to_owned(), ingress.clone());
    }
    kept
}

fn ports(service: &Service) -> impl Iterator<Item = &ServicePort> {
    service.spec.iter().flat_map(|spec| spec.ports.iter().flatten())
}

fn has_node_port(port: &ServicePort) -> bool {
    port.node_port.is_some_and(|port| port > 0)
}

/// The annotations that other controllers act on.
fn acted_on(service: &Service) -> BTreeMap<String, String> {
    let keys = [TYPE, TARGET_TYPE].into_iter();
    keys.filter_map(|key| Some((key.to_owned(), annotation(service, key)?.clone()))).collect()
}

/// Whether a Service leaves open who can reach it: one controller takes it for the internet then, the other for the VPC.
fn lacks_scheme(service: &Service) -> bool {
    [SCHEME, INTERNAL].into_iter().all(|key| annotation(service, key).is_none())
}

/// What was added, and is as it was added.
fn added_and_left<'a>(service: &Service, adopted: &'a Adopted) -> impl Iterator<Item = &'a String> {
    let added = adopted.added.iter();
    added.filter(|(key, value)| annotation(service, key) == Some(*value)).map(|(key, _)| key)
}

fn class_of(service: &Service) -> Option<String> {
    service.spec.as_ref()?.load_balancer_class.clone()
}

fn finalizers(service: &Service) -> impl Iterator<Item = &str> {
    service.metadata.finalizers.iter().flatten().map(String::as_str)
}

fn is_foreign(finalizer: &str) -> bool {
    FOREIGN_FINALIZERS.iter().any(|(name, _)| *name == finalizer)
}

/// By what other controllers of load balancers hold a Service.
fn foreign_finalizers(service: &Service) -> Vec<String> {
    finalizers(service).filter(|found| is_foreign(found)).map(str::to_owned).collect()
}

/// By what a Service is held for reasons that are not load balancers.
fn held_by_others(service: &Service) -> impl Iterator<Item = &str> {
    finalizers(service).filter(|found| *found != FINALIZER && !is_foreign(found))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{LoadBalancerClass, foreign_finalizer, parameters, wants_load_balancer};

    const CLASS: &str = "portcullis.dev/aws-nlb";

    const OF_CLOUD_PROVIDER: TakenOver<'_> = TakenOver { from: MAKERS[0], scheme: "internet-facing" };
    const OF_CONTROLLER: TakenOver<'_> = TakenOver { from: MAKERS[1], scheme: "internal" };

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

    /// A Service that no controller of load balancers holds.
    fn unheld(service: &Service) -> Service {
        let mut service = service.clone();
        service.metadata.finalizers.as_mut().unwrap().retain(|found| !is_foreign(found));
        service
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
    fn a_change_is_made_again_only_if_the_service_says_the_same() {
        let mut was = of_cloud_provider();
        was.metadata.resource_version = Some("1".to_owned());
        let change = take_over(&was, CLASS, OF_CLOUD_PROVIDER).remove(0);
        let found = |change: fn(&mut Service)| {
            let mut found = was.clone();
            found.metadata.resource_version = Some("2".to_owned());
            change(&mut found);
            found
        };
        let told = found(|service| service.status.as_mut().unwrap().conditions = Some(Vec::new()));
        let again = change.again(&was, &told).unwrap();
        assert_eq!(vec![again], take_over(&told, CLASS, OF_CLOUD_PROVIDER));
        let edits: [fn(&mut Service); 4] = [
            |service| service.metadata.annotations = None,
            |service| service.metadata.finalizers = None,
            |service| service.spec.as_mut().unwrap().ports = None,
            |service| service.status.as_mut().unwrap().load_balancer = None,
        ];
        for edit in edits {
            assert_eq!(change.again(&was, &found(edit)), None);
        }
    }

    #[test]
    fn a_service_without_a_class_changes_hands_by_one_change_and_back_by_another() {
        let before = of_cloud_provider();
        let changes = take_over(&before, CLASS, OF_CLOUD_PROVIDER);
        assert_eq!(changes.len(), 1, "nobody sees anything in between");
        let taken = changed(&before, &changes[0]);
        assert!(wants_load_balancer(&taken, &ours()));
        assert_eq!(taken.metadata.finalizers, Some(vec!["somebody/else".to_owned(), FINALIZER.to_owned()]));
        assert_eq!(annotation(&taken, TYPE).unwrap(), EXTERNAL);
        assert_eq!(Adopted::of(&taken).unwrap().from, "cloud-provider-aws");
        assert_eq!(take_over(&taken, CLASS, OF_CLOUD_PROVIDER), []);

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
        assert_eq!(back, unheld(&before));
        assert!(!wants_load_balancer(&back, &ours()));
        assert!(!is_held_by(&back, MAKERS[0]) && is_held_by(&before, MAKERS[0]), "it comes by itself");
        assert!(!is_held_by(&before, MAKERS[1]) && is_held_by(&of_controller(), MAKERS[1]));
        assert_eq!(changed(&held, &give_back(&held)[0]).metadata.finalizers, back.metadata.finalizers);
    }

    #[test]
    fn a_service_of_a_class_changes_hands_by_way_of_another_type() {
        let before = of_controller();
        let changes = take_over(&before, CLASS, OF_CONTROLLER);
        assert_eq!(changes.len(), 3);
        let between = changed(&before, &changes[0]);
        assert_eq!(between.metadata.finalizers, Some(Vec::new()), "nobody holds it");
        assert!(annotation(&between, TYPE).is_none() && annotation(&between, TARGET_TYPE).is_none());
        assert!(!wants_load_balancer(&between, &ours()));

        // Who stops here goes on with the same.
        assert_eq!(take_over(&between, CLASS, OF_CONTROLLER), changes[1..]);

        let taken = changes[1..].iter().fold(between, |service, change| changed(&service, change));
        assert!(wants_load_balancer(&taken, &ours()));
        assert_eq!(taken.metadata.finalizers, Some(vec![FINALIZER.to_owned()]));
        let (was, is) = (before.spec.clone().unwrap(), taken.spec.clone().unwrap());
        assert_eq!(is.load_balancer_class.as_deref(), Some(CLASS));
        assert_eq!(is.load_balancer_source_ranges, was.load_balancer_source_ranges);
        assert_eq!(is.health_check_node_port, was.health_check_node_port);
        assert_eq!(taken.status, before.status, "its address stays");
        assert_eq!(parameters(&taken)[TARGET_TYPE], "ip");
        assert_eq!(take_over(&taken, CLASS, OF_CONTROLLER), []);

        let back = give_back(&taken).iter().fold(taken, |service, change| changed(&service, change));
        assert_eq!(back, unheld(&before));
    }

    #[test]
    fn annotations_that_were_set_aside_still_count() {
        let mut before = of_controller();
        before.spec.as_mut().unwrap().load_balancer_class = None;
        let changes = take_over(&before, CLASS, OF_CONTROLLER);
        let taken = changed(&before, &changes[0]);
        assert!(annotation(&taken, TARGET_TYPE).is_none());
        assert_eq!(parameters(&taken)[TARGET_TYPE], "ip");
        assert_eq!(changed(&taken, &give_back(&taken)[0]), unheld(&before));
    }

    #[test]
    fn who_can_reach_it_is_written_where_nothing_says_so() {
        let taken = |service: &Service, taken| {
            let changes = take_over(service, CLASS, taken);
            changes.iter().fold(service.clone(), |service, change| changed(&service, change))
        };
        let scheme = |service: &Service| annotation(service, SCHEME).cloned();
        for (before, by, expected) in [
            (of_cloud_provider(), OF_CLOUD_PROVIDER, "internet-facing"),
            (of_controller(), OF_CONTROLLER, "internal"),
        ] {
            let after = taken(&before, by);
            assert_eq!(scheme(&after).as_deref(), Some(expected));
            let back =
                give_back(&after).iter().fold(after.clone(), |service, change| changed(&service, change));
            assert_eq!(scheme(&back), None, "it is taken off again");
            // What somebody wrote since is theirs.
            let mut edited = after;
            edited.metadata.annotations.as_mut().unwrap().insert(SCHEME.to_owned(), "other".to_owned());
            let back = give_back(&edited).iter().fold(edited, |service, change| changed(&service, change));
            assert_eq!(scheme(&back).as_deref(), Some("other"));
            for key in [SCHEME, INTERNAL] {
                let mut says = before.clone();
                says.metadata.annotations.as_mut().unwrap().insert(key.to_owned(), "true".to_owned());
                let after = taken(&says, by);
                assert_eq!(scheme(&after), annotation(&says, SCHEME).cloned(), "what is said stays");
                let back = give_back(&after).iter().fold(after, |service, change| changed(&service, change));
                assert_eq!(back, unheld(&says));
            }
        }
    }

    #[test]
    fn a_service_that_was_set_back_is_taken_over_again() {
        let before = of_cloud_provider();
        let taken = changed(&before, &take_over(&before, CLASS, OF_CLOUD_PROVIDER)[0]);
        let record = Adopted::of(&taken).unwrap();
        let annotate = |key: &str, value: &str| {
            let mut service = taken.clone();
            service.metadata.annotations.as_mut().unwrap().insert(key.to_owned(), value.to_owned());
            service
        };
        let without = |key: &str| {
            let mut service = taken.clone();
            service.metadata.annotations.as_mut().unwrap().remove(key);
            service
        };
        let held_by = |name: &str| {
            let mut service = taken.clone();
            service.metadata.finalizers = Some(vec!["somebody/else".to_owned(), name.to_owned()]);
            service
        };
        for set_back in [
            annotate(TYPE, "nlb"),
            annotate(TARGET_TYPE, "ip"),
            without(TYPE),
            without(SCHEME),
            held_by("service.kubernetes.io/load-balancer-cleanup"),
            held_by("service.k8s.aws/resources"),
        ] {
            let changes = take_over(&set_back, CLASS, OF_CLOUD_PROVIDER);
            assert_eq!(changes.len(), 1, "{set_back:?}");
            let again = changed(&set_back, &changes[0]);
            let known = Adopted::of(&again).unwrap();
            assert_eq!((&known.finalizers, &known.from), (&record.finalizers, &record.from));
            assert_eq!(known.annotations[TYPE], "nlb", "what it was before is not forgotten");
            assert_eq!(again.metadata.finalizers, taken.metadata.finalizers);
            assert_eq!(annotation(&again, TYPE), annotation(&taken, TYPE));
            assert_eq!(take_over(&again, CLASS, OF_CLOUD_PROVIDER), []);
        }
    }

    #[test]
    fn what_we_would_not_have_written_is_nothing() {
        let mut found = of_cloud_provider();
        for junk in [
            "",
            "yes",
            "{}",
            r#"{"from": "somebody", "finalizers": []}"#,
            r#"{"from": "cloud-provider-aws", "finalizers": ["kubernetes"]}"#,
            r#"{"from": "cloud-provider-aws", "finalizers": [], "class": ""}"#,
            r#"{"from": "cloud-provider-aws", "finalizers": [], "class": "c", "spec": "x"}"#,
            r#"{"from": "cloud-provider-aws", "finalizers": [], "class": "c", "spec": {"selector": {}}}"#,
            r#"{"from": "cloud-provider-aws", "finalizers": [], "annotations": {"note": "x"}}"#,
            r#"{"from": "cloud-provider-aws", "finalizers": [], "added": {"note": "x"}}"#,
        ] {
            found
                .metadata
                .annotations
                .as_mut()
                .unwrap()
                .insert(Owner::ADOPTED_KEY.to_owned(), junk.to_owned());
            assert_eq!(Adopted::of(&found), None, "{junk}");
            assert_eq!(give_back(&found), [], "{junk}");
            assert!(!wants_load_balancer(&found, &ours()), "{junk}");
            assert_eq!(take_over(&found, CLASS, OF_CLOUD_PROVIDER).len(), 1, "{junk}");
        }
    }

    #[test]
    fn the_policy_for_packets_from_outside_goes_and_comes_with_the_type() {
        let mut before = of_controller();
        let spec = before.spec.as_mut().unwrap();
        spec.allocate_load_balancer_node_ports = Some(false);
        spec.ports.as_mut().unwrap()[0].node_port = None;
        let changes = take_over(&before, CLASS, OF_CONTROLLER);
        let (Change::Object(first), Change::Object(second)) = (&changes[0], &changes[1]) else { panic!() };
        assert_eq!(first["spec"]["type"], "ClusterIP");
        assert_eq!(first["spec"]["externalTrafficPolicy"], Value::Null);
        assert_eq!(second["spec"]["externalTrafficPolicy"], "Local");
        assert_eq!(second["spec"]["allocateLoadBalancerNodePorts"], false);
    }
}
