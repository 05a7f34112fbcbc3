use serde_json::json;

use crate::parts::kubernetes::Kubernetes;

/// A policy by which a Kubernetes API refuses something. Both end together.
#[allow(missing_debug_implementations, reason = "a Kubernetes API has none")]
pub struct Refusing<'a> {
    kubernetes: &'a Kubernetes,
    name: String,
}

impl<'a> Refusing<'a> {
    /// Has an operation on a resource of the core group refused, with these words, where an expression in CEL is true. The API
    /// takes a moment to do so: try something that is refused.
    #[track_caller]
    pub fn start(
        kubernetes: &'a Kubernetes,
        name: &str,
        (operations, resource): (&[&str], &str),
        when: &str,
        words: &str,
    ) -> Self {
        Self::of_group(kubernetes, name, (operations, "", resource), when, words)
    }

    /// The same of a resource of another group.
    #[track_caller]
    pub fn of_group(
        kubernetes: &'a Kubernetes,
        name: &str,
        (operations, group, resource): (&[&str], &str, &str),
        when: &str,
        words: &str,
    ) -> Self {
        let rule = json!({"apiGroups": [group], "apiVersions": ["*"], "operations": operations, "resources": [resource]});
        let policy = json!({
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "ValidatingAdmissionPolicy",
            "metadata": {"name": name},
            "spec": {
                "failurePolicy": "Fail",
                "matchConstraints": {"resourceRules": [rule]},
                "validations": [{"expression": format!("!({when})"), "message": words}],
            },
        });
        let binding = json!({
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "ValidatingAdmissionPolicyBinding",
            "metadata": {"name": name},
            "spec": {"policyName": name, "validationActions": ["Deny"]},
        });
        for object in [policy, binding] {
            kubernetes.apply(&object.to_string()).unwrap_or_else(|error| panic!("{error}"));
        }
        Refusing { kubernetes, name: name.to_owned() }
    }
}

impl Drop for Refusing<'_> {
    fn drop(&mut self) {
        for kind in ["validatingadmissionpolicybinding", "validatingadmissionpolicy"] {
            // The API may have ended before.
            let _ = self.kubernetes.kubectl(&["delete", kind, &self.name]);
        }
    }
}
