//! What all routers share: their namespace, and what they may see.

use k8s_openapi::api::core::v1::{Namespace, ServiceAccount};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use serde_json::json;

use super::{MANAGED_BY, RouterSettings, object};

/// The role of routers, and its binding.
const ROLE: &str = "portcullis-router";

/// Who routers are.
pub(super) const ACCOUNT: &str = "router";

/// The namespace of routers. One that is there is used as it is.
pub fn namespace(settings: &RouterSettings) -> Namespace {
    object(json!({"metadata": {"name": settings.namespace, "labels": {MANAGED_BY.0: MANAGED_BY.1}}}))
}

/// Who routers are. One that is there is used as it is.
pub fn service_account(settings: &RouterSettings) -> ServiceAccount {
    object(json!({"metadata": {
        "name": ACCOUNT,
        "namespace": settings.namespace,
        "labels": {MANAGED_BY.0: MANAGED_BY.1},
    }}))
}

/// What routers may see.
pub fn cluster_role() -> ClusterRole {
    let watch = ["list", "watch"];
    object(json!({
        "metadata": {"name": ROLE, "labels": {MANAGED_BY.0: MANAGED_BY.1}},
        "rules": [
            {"apiGroups": [""], "resources": ["endpoints", "namespaces", "services"], "verbs": watch},
            {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": watch},
            {"apiGroups": ["route.openshift.io"], "resources": ["routes"], "verbs": watch},
            {"apiGroups": ["route.openshift.io"], "resources": ["routes/status"], "verbs": ["get", "patch", "update"]},
            // Who asks for metrics is checked.
            {"apiGroups": ["authentication.k8s.io"], "resources": ["tokenreviews"], "verbs": ["create"]},
            {"apiGroups": ["authorization.k8s.io"], "resources": ["subjectaccessreviews"], "verbs": ["create"]},
        ],
    }))
}

/// That routers have it.
pub fn cluster_role_binding(settings: &RouterSettings) -> ClusterRoleBinding {
    object(json!({
        "metadata": {"name": ROLE, "labels": {MANAGED_BY.0: MANAGED_BY.1}},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": ROLE},
        "subjects": [{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": settings.namespace}],
    }))
}
