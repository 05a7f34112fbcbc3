//! What all routers share: their namespace, and what they may see.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{ConfigMap, Namespace, ServiceAccount};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding};
use serde_json::{Value, json};

use super::volumes::SERVICE_CA_NAME;
use super::{MANAGED_BY, RouterSettings, object};

/// The role of routers, and its binding.
const ROLE: &str = "portcullis-router";

/// Who routers are.
pub(super) const ACCOUNT: &str = "router";

/// Who collects metrics on OpenShift.
const COLLECTOR: (&str, &str) = ("openshift-monitoring", "prometheus-k8s");

/// By which a namespace is for pods of every node, whatever is usual for others. Administrators may change it.
const NODES: &str = "openshift.io/node-selector";

/// The namespace of routers.
pub fn namespace(settings: &RouterSettings) -> Namespace {
    let mut labels = BTreeMap::from([
        MANAGED_BY,
        // By these, policies of others let routers in.
        ("network.openshift.io/policy-group", "ingress"),
        ("policy-group.network.openshift.io/ingress", ""),
        // Routers on the addresses of nodes, and on ports that are not for everybody.
        ("pod-security.kubernetes.io/enforce", "privileged"),
        ("pod-security.kubernetes.io/audit", "privileged"),
        ("pod-security.kubernetes.io/warn", "privileged"),
    ]);
    let mut annotations = BTreeMap::new();
    if settings.openshift {
        labels.extend([("openshift.io/cluster-monitoring", "true"), ("name", &settings.namespace)]);
        annotations.extend([(NODES, ""), ("workload.openshift.io/allowed", "management")]);
    }
    let metadata = json!({"name": settings.namespace, "labels": labels, "annotations": annotations});
    object(json!({"metadata": metadata}))
}

/// What of a namespace that is there has to change: its labels, whosever it is. It is not claimed by that.
pub fn changed_namespace(current: &Namespace, desired: &Namespace) -> Option<Namespace> {
    let mut wanted = current.clone();
    let labels = desired.metadata.labels.clone().unwrap_or_default().into_iter();
    wanted.metadata.labels.get_or_insert_default().extend(labels.filter(|(key, _)| key != MANAGED_BY.0));
    let annotations = desired.metadata.annotations.clone().unwrap_or_default().into_iter();
    let annotations: BTreeMap<_, _> = annotations.filter(|(key, _)| key != NODES).collect();
    if !annotations.is_empty() {
        wanted.metadata.annotations.get_or_insert_default().extend(annotations);
    }
    (wanted != *current).then_some(wanted)
}

/// Who routers are. One that is there is used as it is.
pub fn service_account(settings: &RouterSettings) -> ServiceAccount {
    object(json!({"metadata": shared(ACCOUNT, Some(settings))}))
}

/// What routers may see.
pub fn cluster_role(settings: &RouterSettings) -> ClusterRole {
    let watch = ["list", "watch"];
    let mut rules = vec![
        json!({"apiGroups": [""], "resources": ["endpoints", "namespaces", "services"], "verbs": watch}),
        json!({"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": watch}),
        json!({"apiGroups": ["route.openshift.io"], "resources": ["routes"], "verbs": watch}),
        json!({"apiGroups": ["route.openshift.io"], "resources": ["routes/status"], "verbs": ["get", "patch", "update"]}),
        // Who asks for metrics is checked.
        json!({"apiGroups": ["authentication.k8s.io"], "resources": ["tokenreviews"], "verbs": ["create"]}),
        json!({"apiGroups": ["authorization.k8s.io"], "resources": ["subjectaccessreviews"], "verbs": ["create"]}),
    ];
    if settings.openshift {
        rules.push(json!({
            "apiGroups": ["security.openshift.io"],
            "resources": ["securitycontextconstraints"],
            "resourceNames": ["hostnetwork", "restricted"],
            "verbs": ["use"],
        }));
    }
    object(json!({"metadata": shared(ROLE, None), "rules": rules}))
}

/// That routers have it.
pub fn cluster_role_binding(settings: &RouterSettings) -> ClusterRoleBinding {
    object(json!({
        "metadata": shared(ROLE, None),
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": ROLE},
        "subjects": [{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": settings.namespace}],
    }))
}

/// The `ConfigMap` into which OpenShift writes the authority of Services' own certificates. Routers check backends by it.
pub fn service_authority(settings: &RouterSettings) -> Option<ConfigMap> {
    let mut metadata = shared(SERVICE_CA_NAME, Some(settings));
    metadata["annotations"] = json!({"service.beta.openshift.io/inject-cabundle": "true"});
    settings.openshift.then(|| object(json!({"metadata": metadata})))
}

/// What whoever collects metrics may see, on OpenShift.
pub fn collector(settings: &RouterSettings) -> Option<(ClusterRole, ClusterRoleBinding, Role, RoleBinding)> {
    if !settings.openshift || !settings.monitoring {
        return None;
    }
    let (namespace, account) = COLLECTOR;
    let subjects = json!([{"kind": "ServiceAccount", "name": account, "namespace": namespace}]);
    let bound = |kind: &str, name: &str, metadata: Value| {
        let role = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name});
        json!({"metadata": metadata, "roleRef": role, "subjects": subjects})
    };
    let metrics = "router-monitoring";
    let rule =
        json!({"apiGroups": ["route.openshift.io"], "resources": ["routers/metrics"], "verbs": ["get"]});
    let found = json!({"apiGroups": [""], "resources": ["endpoints", "pods", "services"], "verbs": ["get", "list", "watch"]});
    Some((
        object(json!({"metadata": shared(metrics, None), "rules": [rule]})),
        object(bound("ClusterRole", metrics, shared(metrics, None))),
        object(json!({"metadata": shared(account, Some(settings)), "rules": [found]})),
        object(bound("Role", account, shared(account, Some(settings)))),
    ))
}

/// The name of what routers share, in their namespace if it is in one.
fn shared(name: &str, within: Option<&RouterSettings>) -> Value {
    let namespace = within.map(|settings| &settings.namespace);
    json!({"name": name, "namespace": namespace, "labels": {MANAGED_BY.0: MANAGED_BY.1}})
}
