//! Nodes as members of load balancers.

use std::net::IpAddr;

use k8s_openapi::api::core::v1::Node;
use portcullis_core::Member;

/// A node with it gets no traffic from outside.
const EXCLUDED: &str = "node.kubernetes.io/exclude-from-external-load-balancers";

/// A node with it is about to be taken away.
const TO_BE_DELETED: &str = "ToBeDeletedByClusterAutoscaler";

/// Whether load balancers send to a node: as Kubernetes' own service controller has it.
pub fn is_eligible(node: &Node) -> bool {
    let labels = node.metadata.labels.as_ref();
    let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_ref());
    node.metadata.deletion_timestamp.is_none()
        && labels.is_none_or(|labels| !labels.contains_key(EXCLUDED))
        && taints.is_none_or(|taints| taints.iter().all(|taint| taint.key != TO_BE_DELETED))
}

/// A node as a member: by its own addresses, and by what its cloud knows it by. One without either is none yet.
pub fn node_member(node: &Node) -> Option<Member> {
    let name = node.metadata.name.clone()?;
    let addresses = node.status.as_ref().and_then(|status| status.addresses.as_ref());
    let internal = addresses.into_iter().flatten().filter(|address| address.type_ == "InternalIP");
    let internal: Vec<IpAddr> = internal.filter_map(|address| address.address.parse().ok()).collect();
    let member = Member::new(name, internal).ok()?;
    Some(match node.spec.as_ref().and_then(|spec| spec.provider_id.clone()).filter(|id| !id.is_empty()) {
        Some(id) => member.with_reference(id),
        None => member,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn node(extra: &serde_json::Value) -> Node {
        let mut node = json!({
            "metadata": {"name": "n1"},
            "spec": {"providerID": "aws:///eu-west-1a/i-1"},
            "status": {"addresses": [
                {"type": "Hostname", "address": "n1"},
                {"type": "InternalIP", "address": "10.0.0.1"},
                {"type": "InternalIP", "address": "fd00::1"},
                {"type": "ExternalIP", "address": "192.0.2.1"},
            ]},
        });
        for (key, value) in extra.as_object().unwrap() {
            for (inner, value) in value.as_object().unwrap() {
                node[key][inner] = value.clone();
            }
        }
        serde_json::from_value(node).unwrap()
    }

    #[test]
    fn who_is_sent_to() {
        for (extra, expected) in [
            (json!({}), true),
            (json!({"metadata": {"labels": {"a": "b"}}}), true),
            (
                json!({"metadata": {"labels": {"node.kubernetes.io/exclude-from-external-load-balancers": ""}}}),
                false,
            ),
            (json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}), false),
            (
                json!({"spec": {"taints": [{"key": "ToBeDeletedByClusterAutoscaler", "effect": "NoSchedule"}]}}),
                false,
            ),
            (json!({"spec": {"taints": [{"key": "other", "effect": "NoSchedule"}]}}), true),
            (json!({"spec": {"unschedulable": true}}), true),
        ] {
            assert_eq!(is_eligible(&node(&extra)), expected, "{extra}");
        }
    }

    #[test]
    fn a_node_is_a_member() {
        let member = node_member(&node(&json!({}))).unwrap();
        assert_eq!(member.name(), "n1");
        assert_eq!(member.reference(), Some("aws:///eu-west-1a/i-1"));
        assert_eq!(member.addresses().len(), 2);
        assert_eq!(node_member(&node(&json!({"status": {"addresses": []}}))), None);
        let bare = node_member(&node(&json!({"spec": {"providerID": ""}}))).unwrap();
        assert_eq!(bare.reference(), None);
    }
}
