//! Services whose load balancer is the node itself, and what nodes tell of themselves for that.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use k8s_openapi::api::core::v1::{ConfigMap, Service};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::{FINALIZER, foreign_finalizer};

/// The class of Services that get addresses of nodes.
pub const HOST_CLASS: &str = "portcullis.dev/host";

/// The annotation that says at which addresses of nodes a Service is reached: names of interfaces and addresses, with commas
/// between them.
pub const LISTEN_ADDRESSES: &str = "portcullis.dev/listen-addresses";

/// The annotation by which, if it is `true`, the source ranges of a Service count for its node ports as well.
pub const NODE_PORTS: &str = "portcullis.dev/source-ranges-for-node-ports";

/// The condition of a Service that says whether it has the addresses that it asks for.
pub const ASSIGNED: &str = "portcullis.dev/AddressesAssigned";

/// The label of what nodes tell of themselves; its value is the name of the node.
pub const NODE_LABEL: &str = "portcullis.dev/node";

/// The key that it is under.
const REPORT: &str = "report";

/// What a node tells of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct NodeReport {
    /// Its interfaces with addresses that others could use.
    pub interfaces: BTreeMap<String, NodeInterface>,
    /// Where its own programs listen: `22/tcp` for all addresses, or `192.0.2.7:6443/tcp`.
    pub listening: BTreeSet<String>,
    /// Addresses of the Kubernetes API: one that the node has counts among its own, wherever it is.
    pub api_server: BTreeSet<IpAddr>,
    /// Which start of its kernel this is about, as the kernel and kubelets call it: nothing in packet filters outlives one.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub boot: String,
    /// What it goes by, as it is configured there. Versions before this one did not say.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub settings: Option<NodeSettings>,
    /// What its packet filters do.
    pub datapath: NodeDatapath,
}

/// What of its configuration decides which Services a node serves, and where.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct NodeSettings {
    /// It looks after Services of this class.
    pub class: String,
    /// And after those without any.
    pub without_class: bool,
    /// Ports that no Service gets.
    pub reserved: BTreeSet<u16>,
    /// Interfaces that are kept for those who look after the machine.
    pub management: Vec<String>,
    /// Interfaces that belong to the network between pods.
    pub internal: Vec<String>,
}

/// An interface of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct NodeInterface {
    /// Its addresses.
    pub addresses: BTreeSet<IpAddr>,
    /// Whether it is a part of a bridge or a bond, to whose addresses packets come.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_part: bool,
    /// Whether it only leads back to the node.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_loopback: bool,
}

/// What the packet filters of a node do.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct NodeDatapath {
    /// `none`, `filter` or `nftables`.
    pub mode: String,
    /// The interfaces where packets are filtered as they arrive, before anything else sees them.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub interfaces: BTreeSet<String>,
    /// Services up to this version are in force.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub up_to: Option<u64>,
    /// Node ports of Services that are not served, since the node needs them itself: `30022/tcp`.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub left_out: BTreeSet<String>,
    /// Why they do not do what they should.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// Addresses for which nothing is set meanwhile: they came since, or what was set is gone.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub unset: BTreeSet<IpAddr>,
}

impl NodeReport {
    /// The name of the object that a node tells of itself by.
    pub fn name(node: &str) -> String {
        format!("host-{node}")
    }

    /// What of that object has to be: a patch that makes it so. It goes when the node does, if its UID is known.
    pub fn patch(&self, node: &str, uid: Option<&str>) -> Value {
        let mut metadata = json!({"name": Self::name(node), "labels": {NODE_LABEL: node}});
        if let Some(uid) = uid {
            metadata["ownerReferences"] =
                json!([{"apiVersion": "v1", "kind": "Node", "name": node, "uid": uid}]);
        }
        let report = serde_json::to_string(self).unwrap_or_default();
        json!({
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": metadata,
            "data": {REPORT: report},
        })
    }

    /// All of its addresses that others could use.
    pub fn addresses(&self) -> BTreeSet<IpAddr> {
        self.interfaces.values().flat_map(|one| one.addresses.iter().copied()).collect()
    }

    /// Which node tells something, and what, or why that cannot be read.
    pub fn read(object: &ConfigMap) -> Option<(&str, Result<Self, serde_json::Error>)> {
        let node = object.metadata.labels.as_ref()?.get(NODE_LABEL)?;
        let text = object.data.as_ref()?.get(REPORT)?;
        Some((node, serde_json::from_str(text)))
    }
}

/// Whether a Service is to be reached at addresses of nodes: by its class, or without any if those are looked after too and
/// nobody else holds it.
pub fn wants_host(service: &Service, class: &str, without_class: bool) -> bool {
    let spec = service.spec.as_ref().filter(|spec| spec.type_.as_deref() == Some("LoadBalancer"));
    spec.is_some_and(|spec| match &spec.load_balancer_class {
        Some(found) => found == class,
        None => without_class && !is_held(service),
    })
}

/// Of a Service that would be reached at addresses of nodes if nobody else held it: by what it is held, and who that is.
pub fn held_by_another(service: &Service, without_class: bool) -> Option<(&'static str, &'static str)> {
    let spec = service.spec.as_ref().filter(|spec| spec.type_.as_deref() == Some("LoadBalancer"));
    let is_without = spec.is_some_and(|spec| spec.load_balancer_class.is_none());
    foreign_finalizer(service).filter(|_| without_class && is_without)
}

/// Whether somebody holds a Service until the load balancer is gone that they made for it.
pub fn is_held(service: &Service) -> bool {
    let ours = service.metadata.finalizers.iter().flatten().any(|finalizer| finalizer == FINALIZER);
    ours || foreign_finalizer(service).is_some()
}

/// What is said of whether a Service has the addresses of nodes that it asks for.
pub fn assigned(service: &Service) -> Option<&Condition> {
    let conditions = service.status.as_ref()?.conditions.as_ref()?;
    conditions.iter().find(|condition| condition.type_ == ASSIGNED)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_node_tells_is_read_again() {
        let report = NodeReport {
            interfaces: BTreeMap::from([(
                "enp3s0".to_owned(),
                NodeInterface {
                    addresses: BTreeSet::from(["192.0.2.7".parse().unwrap(), "2001:db8::7".parse().unwrap()]),
                    ..NodeInterface::default()
                },
            )]),
            listening: BTreeSet::from(["22/tcp".to_owned()]),
            api_server: BTreeSet::from(["10.44.0.0".parse().unwrap()]),
            boot: "1".to_owned(),
            settings: Some(NodeSettings {
                class: HOST_CLASS.to_owned(),
                reserved: BTreeSet::from([22]),
                ..NodeSettings::default()
            }),
            datapath: NodeDatapath { mode: "filter".to_owned(), up_to: Some(7), ..NodeDatapath::default() },
        };
        let object: ConfigMap = serde_json::from_value(report.patch("a", Some("1-2"))).unwrap();
        assert_eq!(object.metadata.owner_references.as_ref().unwrap()[0].uid, "1-2");
        let (node, read) = NodeReport::read(&object).unwrap();
        assert_eq!((node, read.unwrap()), ("a", report));
    }

    #[test]
    fn whose_it_is() {
        let service = |spec: Value| -> Service { serde_json::from_value(json!({"spec": spec})).unwrap() };
        for (spec, without_class, expected) in [
            (json!({"type": "LoadBalancer", "loadBalancerClass": HOST_CLASS}), false, true),
            (json!({"type": "LoadBalancer", "loadBalancerClass": "other"}), true, false),
            (json!({"type": "LoadBalancer"}), false, false),
            (json!({"type": "LoadBalancer"}), true, true),
            (json!({"type": "ClusterIP"}), true, false),
        ] {
            assert_eq!(wants_host(&service(spec.clone()), HOST_CLASS, without_class), expected, "{spec}");
        }
        let mut held = service(json!({"type": "LoadBalancer"}));
        held.metadata.finalizers = Some(vec!["service.kubernetes.io/load-balancer-cleanup".to_owned()]);
        assert!(!wants_host(&held, HOST_CLASS, true), "a cloud provider has it");
    }
}
