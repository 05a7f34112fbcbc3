//! On which nodes routers run.

use std::collections::BTreeMap;

use portcullis_kube_api::ingress::NodePlacement;
use serde_json::{Value, json};

use super::{POD_LABEL, RouterSettings};

const HOST: &str = "kubernetes.io/hostname";
const ZONE: &str = "topology.kubernetes.io/zone";

/// The label of nodes that are far away from the rest of an OpenShift cluster.
const REMOTE: &str = "node.openshift.io/remote-worker";

/// The label by which Kubernetes tells the pods of one version of a Deployment from those of another.
const VERSION: &str = "pod-template-hash";

/// Labels that nodes have to have.
pub(super) fn node_selector(
    placement: &NodePlacement,
    settings: &RouterSettings,
) -> BTreeMap<String, String> {
    let mut labels = match &placement.node_selector {
        Some(given) => given.match_labels.clone().unwrap_or_default(),
        None => settings.node_labels.clone(),
    };
    labels.entry("kubernetes.io/os".to_owned()).or_insert_with(|| "linux".to_owned());
    labels
}

/// Which nodes routers are drawn to, and which they keep away from.
pub(super) fn affinity(name: &str, placement: &NodePlacement, settings: &RouterSettings) -> Value {
    let mut affinity = json!({});
    let expressions = match &placement.node_selector {
        Some(given) => json!(given.match_expressions.clone().unwrap_or_default()),
        None if settings.openshift => json!([{"key": REMOTE, "operator": "DoesNotExist"}]),
        None => json!([]),
    };
    if expressions.as_array().is_some_and(|expressions| !expressions.is_empty()) {
        affinity["nodeAffinity"] = json!({"requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{"matchExpressions": expressions}],
        }});
    }
    // Where there is one node for everything, they share it.
    if !settings.single_replica {
        let routers = json!({"matchLabels": {POD_LABEL: name}});
        // Two on one node would go together with it.
        affinity["podAntiAffinity"] = json!({"requiredDuringSchedulingIgnoredDuringExecution": [
            {"topologyKey": HOST, "labelSelector": routers, "matchLabelKeys": [VERSION]},
        ]});
        // A new one where an old one is keeps nodes in use to which a load balancer sends already.
        affinity["podAffinity"] = json!({"preferredDuringSchedulingIgnoredDuringExecution": [{
            "weight": 100,
            "podAffinityTerm": {"topologyKey": HOST, "labelSelector": routers, "mismatchLabelKeys": [VERSION]},
        }]});
    }
    affinity
}

/// Not all in one zone, if it can be helped.
pub(super) fn spread(name: &str) -> Value {
    json!([{
        "maxSkew": 1,
        "topologyKey": ZONE,
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": {POD_LABEL: name}},
        "matchLabelKeys": [VERSION],
    }])
}
