//! What is read of Cluster API's own objects, in each version that it has them in.

use std::net::IpAddr;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::{Deserialize, Serialize};

use super::object::{Object, null_is_default};
use super::spec::Endpoint;
use super::status::Condition;

/// What points at another object of the same namespace. Some versions have a group, others a group with a version.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Reference {
    /// The group.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api_group: Option<String>,
    /// The group and the version.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api_version: Option<String>,
    /// The kind.
    #[serde(deserialize_with = "null_is_default")]
    pub kind: String,
    /// The name.
    #[serde(deserialize_with = "null_is_default")]
    pub name: String,
}

impl Reference {
    /// The group that it points into.
    pub fn group(&self) -> &str {
        let version = self.api_version.as_deref().unwrap_or_default();
        let of_version = version.split_once('/').map_or("", |(group, _)| group);
        self.api_group.as_deref().unwrap_or(of_version)
    }

    /// Whether both point at the same object, however they name its group.
    pub fn is_same(&self, other: &Self) -> bool {
        (self.group(), &self.kind, &self.name) == (other.group(), &other.kind, &other.name)
    }
}

/// What a Cluster wants.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClusterSpec {
    /// Nothing is to be done about it for now.
    #[serde(deserialize_with = "null_is_default")]
    pub paused: bool,
    /// Where its control plane is found.
    #[serde(deserialize_with = "null_is_default")]
    pub control_plane_endpoint: Endpoint,
    /// What makes its control plane.
    pub control_plane_ref: Option<Reference>,
    /// What makes its network.
    pub infrastructure_ref: Option<Reference>,
    /// Endpoint and maker of the control plane, in the shape of the proposal.
    pub control_plane: Option<ProposedControlPlane>,
    /// The class that it is made from.
    pub topology: Option<Topology>,
}

/// The class that a Cluster is made from, in each version that Cluster API has it in.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Topology {
    /// Its name.
    pub class: Option<String>,
    /// The namespace that it is in.
    pub class_namespace: Option<String>,
    /// Both of them.
    pub class_ref: Option<ClassRef>,
}

/// The class that a Cluster is made from.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct ClassRef {
    /// Its name.
    pub name: String,
    /// The namespace that it is in; the Cluster's, if nothing is said.
    pub namespace: Option<String>,
}

/// A Cluster's control plane, in the shape of the proposal.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ProposedControlPlane {
    /// Where it is found.
    #[serde(deserialize_with = "null_is_default")]
    pub endpoint: Endpoint,
    /// What makes it.
    pub provider_ref: Option<Reference>,
}

impl ClusterSpec {
    /// Where the control plane is found, if somebody said so.
    pub fn endpoint(&self) -> Option<&Endpoint> {
        let proposed = self.control_plane.as_ref().and_then(|plane| plane.endpoint.given());
        proposed.or_else(|| self.control_plane_endpoint.given())
    }

    /// The namespace and the name of the class that it is made from.
    pub fn class(&self, own: &str) -> Option<(String, String)> {
        let topology = self.topology.as_ref()?;
        let (name, namespace) = match &topology.class_ref {
            Some(class) => (class.name.clone(), class.namespace.clone()),
            None => (topology.class.clone()?, topology.class_namespace.clone()),
        };
        Some((namespace.filter(|given| !given.is_empty()).unwrap_or_else(|| own.to_owned()), name))
    }

    /// What makes the control plane, if Cluster API has it made.
    pub fn control_plane(&self) -> Option<&Reference> {
        let proposed = self.control_plane.as_ref().and_then(|plane| plane.provider_ref.as_ref());
        proposed.or(self.control_plane_ref.as_ref()).filter(|reference| !reference.name.is_empty())
    }
}

/// How a Cluster stands: nothing of that is read.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct ClusterStatus {}

/// How a Cluster or a control plane stands, in the shape of the proposal.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ProposedStatus {
    /// Whether the control plane of a Cluster can be used.
    pub control_plane_ready: Option<bool>,
    /// Whether a control plane can be used.
    pub ready: Option<bool>,
    /// Whether it could be used once.
    pub initialized: Option<bool>,
    /// What is to be known about it.
    #[serde(deserialize_with = "null_is_default")]
    pub conditions: Vec<Condition>,
}

/// What a control plane wants, of which there are many kinds.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ControlPlaneSpec {
    /// Where it is found, in the shape of the proposal.
    #[serde(deserialize_with = "null_is_default")]
    pub endpoint: Endpoint,
    /// The load balancer in front of it, in the shape of the proposal.
    pub load_balancer_ref: Option<Reference>,
    /// What its Machines are made from, where it has Machines.
    pub machine_template: Option<MachineTemplate>,
    /// How kubeadm is told to set it up, where it is.
    pub kubeadm_config_spec: Option<KubeadmConfigSpec>,
}

/// What Machines of a control plane are made from.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct MachineTemplate {
    /// What Machines get.
    #[serde(deserialize_with = "null_is_default")]
    pub metadata: TemplateMetadata,
}

/// What Machines of a control plane get.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TemplateMetadata {
    /// Labels.
    #[serde(deserialize_with = "null_is_default")]
    pub labels: std::collections::BTreeMap<String, String>,
    /// Annotations.
    #[serde(deserialize_with = "null_is_default")]
    pub annotations: std::collections::BTreeMap<String, String>,
}

/// What of kubeadm's configuration matters here.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct KubeadmConfigSpec {
    /// That of the cluster.
    #[serde(deserialize_with = "null_is_default")]
    pub cluster_configuration: ClusterConfiguration,
}

/// What of kubeadm's configuration of a cluster matters here.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClusterConfiguration {
    /// That of its API servers.
    #[serde(deserialize_with = "null_is_default")]
    pub api_server: ApiServerConfiguration,
}

/// What of kubeadm's configuration of API servers matters here.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ApiServerConfiguration {
    /// Names that are in the certificate beside the endpoint's.
    #[serde(rename = "certSANs", deserialize_with = "null_is_default")]
    pub cert_sans: Vec<String>,
}

/// What a Machine wants.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct MachineSpec {
    /// What its provider calls it, such as `aws:///eu-west-1a/i-0123`.
    #[serde(rename = "providerID")]
    pub provider_id: Option<String>,
}

/// How a Machine stands. Nodes and Pods are read as one as well.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct MachineStatus {
    /// Where it is found.
    #[serde(deserialize_with = "null_is_default")]
    pub addresses: Vec<MachineAddress>,
    /// Where a Pod is found.
    #[serde(rename = "podIPs", deserialize_with = "null_is_default")]
    pub pod_ips: Vec<PodIp>,
    /// How far its deletion is.
    pub deletion: Option<Deletion>,
}

/// Where a Machine is found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct MachineAddress {
    /// `InternalIP`, `ExternalIP`, `Hostname`, …
    #[serde(rename = "type")]
    pub type_: String,
    /// The address.
    pub address: String,
}

/// Where a Pod is found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct PodIp {
    /// The address.
    pub ip: String,
}

/// How far the deletion of a Machine is.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Deletion {
    /// Since when it waits for those who want it to before its node is drained.
    pub wait_for_pre_drain_hook_start_time: Option<Time>,
    /// Since when it waits for those who want it to before its machine ends.
    pub wait_for_pre_terminate_hook_start_time: Option<Time>,
}

impl MachineStatus {
    /// The addresses to send to: internal ones, or external ones where there are no others.
    pub fn reachable(&self) -> Vec<IpAddr> {
        let of = |type_: &str| -> Vec<IpAddr> {
            let matching = self.addresses.iter().filter(|address| address.type_ == type_);
            matching.filter_map(|address| usable(&address.address)).collect()
        };
        let pods = || self.pod_ips.iter().filter_map(|pod| usable(&pod.ip)).collect();
        [of("InternalIP"), of("ExternalIP"), pods()]
            .into_iter()
            .find(|all| !all.is_empty())
            .unwrap_or_default()
    }
}

/// The address of another machine, in its plain form. What cannot be that would stand in the way of all members, or lead a load
/// balancer to itself.
fn usable(text: &str) -> Option<IpAddr> {
    let address = text.parse::<IpAddr>().ok()?.to_canonical();
    let is_other = address.is_unspecified() || address.is_multicast() || address.is_loopback();
    let is_broadcast = matches!(address, IpAddr::V4(address) if address.is_broadcast());
    (!is_other && !is_broadcast).then_some(address)
}

/// Whether nothing is to be done about an object for now, or about anything of the cluster.
pub fn is_paused<S, T, C>(object: &Object<S, T>, cluster: Option<&Object<ClusterSpec, C>>) -> bool {
    is_paused_itself(object) || cluster.is_some_and(|cluster| cluster.spec.paused)
}

/// Whether nothing is to be done about an object for now, whatever its cluster says.
pub fn is_paused_itself<S, T>(object: &Object<S, T>) -> bool {
    object.annotation("cluster.x-k8s.io/paused").is_some()
}

/// Whether an object goes because it was moved to another management cluster, where it lives on: nothing that was made for it may
/// go along.
pub fn is_moving_away<S, T>(object: &Object<S, T>) -> bool {
    object.annotation("clusterctl.cluster.x-k8s.io/delete-for-move").is_some()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[allow(clippy::needless_pass_by_value, reason = "samples are easier to read so")]
    fn cluster(spec: Value) -> Object<ClusterSpec, ClusterStatus> {
        serde_json::from_value(json!({"metadata": {"name": "c"}, "spec": spec})).unwrap()
    }

    #[test]
    fn every_version_of_a_cluster_is_read() {
        let endpoint = json!({"host": "api.example.com", "port": 443});
        for (spec, group) in [
            (
                json!({"controlPlaneEndpoint": endpoint, "controlPlaneRef": {"apiGroup": "controlplane.cluster.x-k8s.io", "kind": "K", "name": "k"}}),
                "controlplane.cluster.x-k8s.io",
            ),
            (
                json!({"controlPlaneEndpoint": endpoint, "controlPlaneRef": {"apiVersion": "controlplane.cluster.x-k8s.io/v1beta1", "kind": "K", "name": "k"}}),
                "controlplane.cluster.x-k8s.io",
            ),
            (
                json!({"controlPlane": {"endpoint": endpoint, "providerRef": {"apiGroup": "cluster.x-k8s.io", "kind": "K", "name": "k"}}}),
                "cluster.x-k8s.io",
            ),
        ] {
            let cluster = cluster(spec);
            assert_eq!(cluster.spec.endpoint().unwrap().to_string(), "api.example.com:443");
            assert_eq!(cluster.spec.control_plane().unwrap().group(), group);
        }
        for nothing in [
            json!(null),
            json!({}),
            json!({"controlPlane": null, "controlPlaneEndpoint": null, "paused": null}),
        ] {
            let cluster = cluster(nothing);
            assert_eq!((cluster.spec.endpoint(), cluster.spec.control_plane()), (None, None));
        }
    }

    #[test]
    fn internal_addresses_come_first() {
        let status = |addresses: Value| -> MachineStatus { serde_json::from_value(addresses).unwrap() };
        let both = status(json!({"addresses": [
            {"type": "Hostname", "address": "m"}, {"type": "ExternalIP", "address": "203.0.113.1"},
            {"type": "InternalIP", "address": "10.0.0.1"}, {"type": "InternalIP", "address": "2001:db8::1"},
            {"type": "InternalIP", "address": "none"},
        ]}));
        let expected: Vec<IpAddr> = vec!["10.0.0.1".parse().unwrap(), "2001:db8::1".parse().unwrap()];
        assert_eq!(both.reachable(), expected);
        let external = status(json!({"addresses": [{"type": "ExternalIP", "address": "203.0.113.1"}]}));
        assert_eq!(external.reachable().len(), 1);
        assert_eq!(status(json!({"podIPs": [{"ip": "10.1.0.1"}]})).reachable().len(), 1);
        assert!(status(json!({"addresses": null})).reachable().is_empty());
        // What is no machine's does not stand in the way of what is.
        let all =
            ["0.0.0.0", "224.0.0.1", "127.0.0.1", "::", "255.255.255.255", "::ffff:10.0.0.7", "10.0.0.8"];
        let all: Vec<_> =
            all.iter().map(|address| json!({"type": "InternalIP", "address": address})).collect();
        let found: Vec<String> =
            status(json!({"addresses": all})).reachable().iter().map(ToString::to_string).collect();
        assert_eq!(found, ["10.0.0.7", "10.0.0.8"]);
    }

    #[test]
    fn pauses_are_the_clusters_or_an_objects_own() {
        let running = cluster(json!({}));
        let paused = cluster(json!({"paused": true}));
        assert!(!is_paused(&running, Some(&running)));
        assert!(is_paused(&running, Some(&paused)));
        let mut alone = running.clone();
        alone.metadata.annotations =
            Some([("cluster.x-k8s.io/paused".to_owned(), String::new())].into_iter().collect());
        assert!(is_paused(&alone, Some(&running)));
    }
}
