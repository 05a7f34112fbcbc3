//! What an OpenShift cluster says about itself, and an `IngressController` therefore need not.

use std::collections::BTreeMap;

use kube::Client;
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind};
use portcullis_kube_api::ingress::options::TlsProfile;
use portcullis_kube_api::ingress::{AwsLoadBalancerType, Options};
use serde_json::{Value, json};

use super::Enforcer;
use crate::router::{AddressMode, Platform};

/// What a cluster says about itself. Nothing, where it is not OpenShift's.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Surroundings {
    /// Whether it is OpenShift's.
    pub openshift: bool,
    /// Whether somebody collects metrics by what the group monitoring.coreos.com says.
    pub monitoring: bool,
    /// What it runs on.
    pub platform: Option<Platform>,
    /// Whether there is one node for everything.
    pub single_replica: Option<bool>,
    /// The domain of its applications.
    pub domain: Option<String>,
    /// The load balancer that it wants on AWS.
    pub aws_type: Option<AwsLoadBalancerType>,
    /// Tags for what is made on AWS.
    pub aws_tags: BTreeMap<String, String>,
    /// The network between its pods.
    pub network: Option<String>,
    /// The addresses that pods have.
    pub addresses: Option<AddressMode>,
    /// The labels of nodes that routers run on.
    pub node_labels: BTreeMap<String, String>,
    /// Whether HTTP/2 is spoken.
    pub http2: Option<bool>,
    /// Which protocols and ciphers are spoken.
    pub tls_profile: Option<TlsProfile>,
}

/// What objects of the group config.openshift.io say; null, where there is none.
#[derive(Clone, Debug, Default)]
pub struct ClusterConfig {
    /// The `Infrastructure`.
    pub infrastructure: Value,
    /// The `Ingress`.
    pub ingress: Value,
    /// The `Network`.
    pub network: Value,
    /// The `APIServer`.
    pub api_server: Value,
}

impl Surroundings {
    /// Asks the cluster.
    pub async fn read(client: &Client) -> Result<Self, kube::Error> {
        let groups = client.list_api_groups().await?.groups;
        let has = |name: &str| groups.iter().any(|group| group.name == name);
        if !has("config.openshift.io") {
            return Ok(Self::default());
        }
        let said = ClusterConfig {
            infrastructure: read(client, "Infrastructure", "infrastructures").await?,
            ingress: read(client, "Ingress", "ingresses").await?,
            network: read(client, "Network", "networks").await?,
            api_server: read(client, "APIServer", "apiservers").await?,
        };
        Ok(Surroundings { monitoring: has("monitoring.coreos.com"), ..Self::of(&said) })
    }

    /// What it says.
    pub fn of(said: &ClusterConfig) -> Self {
        let text = |value: &Value| value.as_str().filter(|text| !text.is_empty()).map(str::to_owned);
        let status = &said.infrastructure["status"];
        let tags = status["platformStatus"]["aws"]["resourceTags"].as_array().into_iter().flatten();
        let spec = &said.ingress["spec"];
        // Where routers run is what decides how many of them can.
        let on_control_plane = said.ingress["status"]["defaultPlacement"] == "ControlPlane";
        let (topology, role) = if on_control_plane {
            ("controlPlaneTopology", "node-role.kubernetes.io/master")
        } else {
            ("infrastructureTopology", "node-role.kubernetes.io/worker")
        };
        let options = options(said);
        let openshift = !said.infrastructure.is_null();
        Surroundings {
            openshift,
            monitoring: false,
            platform: status["platformStatus"]["type"].as_str().map(platform),
            single_replica: status[topology].as_str().map(|word| word == "SingleReplica"),
            // The other one, appsDomain, is for the names of routes alone.
            domain: text(&spec["domain"]),
            aws_type: match spec["loadBalancer"]["platform"]["aws"]["type"].as_str() {
                Some("NLB") => Some(AwsLoadBalancerType::Network),
                Some("Classic") => Some(AwsLoadBalancerType::Classic),
                _ => None,
            },
            aws_tags: tags
                .filter_map(|tag| Some((text(&tag["key"])?, tag["value"].as_str()?.to_owned())))
                .collect(),
            network: text(&said.network["status"]["networkType"]),
            addresses: addresses(&said.network["status"]["clusterNetwork"]),
            node_labels: openshift.then(|| (role.to_owned(), String::new())).into_iter().collect(),
            http2: options.http2,
            tls_profile: options.tls_profile,
        }
    }

    /// Who keeps out whom source ranges do not let in, as far as the network between pods decides it.
    pub fn enforcer(&self) -> Enforcer {
        let clouded = self.platform.is_some_and(|platform| {
            // Octavia limits clients by itself.
            platform.has_load_balancers() || platform == Platform::OpenStack
        });
        match self.network.as_deref() {
            Some("OVNKubernetes") if !clouded => Enforcer::Ignored("OVN-Kubernetes".to_owned()),
            _ => Enforcer::Unknown,
        }
    }
}

/// What is said for all routers is read as if one of them said it.
fn options(said: &ClusterConfig) -> Options {
    let one = json!({
        "metadata": {"annotations": said.ingress["metadata"]["annotations"]},
        "spec": {"tlsSecurityProfile": said.api_server["spec"]["tlsSecurityProfile"]},
    });
    serde_json::from_value(one).map(|one| Options::of(&one)).unwrap_or_default()
}

/// The families of the ranges that pods have addresses of.
fn addresses(ranges: &Value) -> Option<AddressMode> {
    let ranges = ranges.as_array().into_iter().flatten().filter_map(|range| range["cidr"].as_str());
    let (six, four): (Vec<&str>, Vec<&str>) = ranges.partition(|range| range.contains(':'));
    match (four.is_empty(), six.is_empty()) {
        (true, true) => None,
        (false, true) => Some(AddressMode::V4),
        (true, false) => Some(AddressMode::V6),
        (false, false) => Some(AddressMode::Both),
    }
}

fn platform(word: &str) -> Platform {
    match word {
        "AWS" => Platform::Aws,
        "Azure" => Platform::Azure,
        "GCP" => Platform::Gcp,
        "IBMCloud" => Platform::Ibm,
        "PowerVS" => Platform::PowerVs,
        "OpenStack" => Platform::OpenStack,
        "BareMetal" => Platform::BareMetal,
        _ => Platform::Other,
    }
}

/// The one object of a kind in the group config.openshift.io; null, if there is none, nor such a kind.
async fn read(client: &Client, kind: &str, plural: &str) -> Result<Value, kube::Error> {
    let kind = GroupVersionKind::gvk("config.openshift.io", "v1", kind);
    let resource = ApiResource::from_gvk_with_plural(&kind, plural);
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
    match api.get("cluster").await {
        Ok(found) => {
            let mut all = found.data;
            all["metadata"] = json!({"annotations": found.metadata.annotations});
            Ok(all)
        }
        // Not only where the object is missing: where the type is, the answer is another 404.
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(Value::Null),
        Err(problem) => Err(problem),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said() -> ClusterConfig {
        ClusterConfig {
            infrastructure: json!({"status": {
                "infrastructureTopology": "SingleReplica",
                "controlPlaneTopology": "HighlyAvailable",
                "platformStatus": {"type": "AWS", "aws": {"resourceTags": [{"key": "team", "value": "edge"}]}},
            }}),
            ingress: json!({
                "metadata": {"annotations": {"ingress.operator.openshift.io/default-enable-http2": "true"}},
                "spec": {
                    "domain": "apps.example.com",
                    "appsDomain": "other.example.com",
                    "loadBalancer": {"platform": {"type": "AWS", "aws": {"type": "NLB"}}},
                },
            }),
            network: json!({"status": {
                "networkType": "OVNKubernetes",
                "clusterNetwork": [{"cidr": "10.128.0.0/14"}, {"cidr": "fd01::/48"}],
            }}),
            api_server: json!({"spec": {"tlsSecurityProfile": {"type": "Modern"}}}),
        }
    }

    #[test]
    fn a_cluster_says_what_it_runs_on() {
        let found = Surroundings::of(&said());
        let expected = Surroundings {
            openshift: true,
            monitoring: false,
            platform: Some(Platform::Aws),
            single_replica: Some(true),
            domain: Some("apps.example.com".to_owned()),
            aws_type: Some(AwsLoadBalancerType::Network),
            aws_tags: [("team".to_owned(), "edge".to_owned())].into(),
            network: Some("OVNKubernetes".to_owned()),
            addresses: Some(AddressMode::Both),
            node_labels: [("node-role.kubernetes.io/worker".to_owned(), String::new())].into(),
            http2: Some(true),
            tls_profile: Some(TlsProfile::Modern),
        };
        assert_eq!(found, expected);
        assert_eq!(found.enforcer(), Enforcer::Unknown, "AWS may keep them out");
        let mut bare = said();
        bare.infrastructure = json!({"status": {"platformStatus": {"type": "None"}}});
        assert_eq!(Surroundings::of(&bare).enforcer(), Enforcer::Ignored("OVN-Kubernetes".to_owned()));
    }

    #[test]
    fn where_routers_run_decides() {
        let mut said = said();
        said.ingress["status"] = json!({"defaultPlacement": "ControlPlane"});
        let found = Surroundings::of(&said);
        assert_eq!(found.single_replica, Some(false));
        assert_eq!(found.node_labels.keys().collect::<Vec<_>>(), ["node-role.kubernetes.io/master"]);
    }

    #[test]
    fn one_that_says_nothing_says_nothing() {
        let found = Surroundings::of(&ClusterConfig::default());
        assert_eq!(found, Surroundings::default());
        assert_eq!(found.enforcer(), Enforcer::Unknown);
    }
}
