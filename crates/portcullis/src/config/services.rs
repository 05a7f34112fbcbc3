//! Services of Kubernetes, and where their load balancers are.

use std::collections::BTreeMap;
use std::path::PathBuf;

use portcullis_networking::identity::Period;
use serde::{Deserialize, Serialize};

/// The Kubernetes API that is watched.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Kubernetes {
    /// How it is reached. Without it: as `KUBECONFIG` says, as a pod, or by ~/.kube/config.
    pub(crate) kubeconfig: Option<PathBuf>,
    /// The context of the kubeconfig, if not its current one.
    pub(crate) context: Option<String>,
}

/// Services of type `LoadBalancer`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
#[allow(clippy::struct_excessive_bools, reason = "each is a key that is on or off")]
pub(crate) struct Services {
    /// Whether they are looked after.
    pub(crate) enabled: bool,
    /// Those of this class are.
    pub(crate) class: String,
    /// Those without any class, too, if the annotation aws-load-balancer-type says `nlb`.
    pub(crate) without_class: bool,
    /// How many are dealt with at the same time.
    pub(crate) concurrency: u16,
    /// How often all load balancers are looked at, by few calls.
    pub(crate) resync: Period,
    /// Within which time each of them is looked at closely.
    pub(crate) close_look: Period,
    /// For how long a Service has to be gone before what is left of it is taken away.
    pub(crate) sweep_after: Period,
    /// Which of several replicas acts.
    pub(crate) lease: Lease,
    /// The cluster, by the name that is written on what is made for it, where not on AWS; else as `aws.cluster` says.
    pub(crate) cluster: Option<String>,
    /// Whether those of the class `portcullis.dev/haproxy` are looked after, too.
    pub(crate) haproxy: bool,
    /// Whether those of the class `portcullis.dev/ovn` are looked after, too.
    pub(crate) ovn: bool,
}

impl Default for Services {
    fn default() -> Self {
        Services {
            enabled: false,
            class: "portcullis.dev/aws-nlb".to_owned(),
            without_class: false,
            concurrency: 32,
            resync: Period::seconds(600),
            close_look: Period::seconds(6 * 3600),
            sweep_after: Period::seconds(600),
            lease: Lease::default(),
            cluster: None,
            haproxy: false,
            ovn: false,
        }
    }
}

/// The Lease that the replica holds that acts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Lease {
    pub(crate) namespace: String,
    pub(crate) name: String,
}

impl Default for Lease {
    fn default() -> Self {
        Lease { namespace: "portcullis".to_owned(), name: "portcullis-services".to_owned() }
    }
}

/// A cloud-config that is kept in step with the one it is made from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct CloudConfig {
    /// Whether it is.
    pub(crate) enabled: bool,
    /// Where it comes from: the first of these that is there, as NAMESPACE/NAME.
    pub(crate) sources: Vec<String>,
    /// Where it goes to.
    pub(crate) target: String,
    /// The key in all of them.
    pub(crate) key: String,
}

impl Default for CloudConfig {
    fn default() -> Self {
        CloudConfig {
            enabled: false,
            sources: vec![
                "openshift-config-managed/kube-cloud-config".to_owned(),
                "openshift-config/cloud-provider-config".to_owned(),
            ],
            target: "openshift-cloud-controller-manager/cloud-conf".to_owned(),
            key: "cloud.conf".to_owned(),
        }
    }
}

/// Network load balancers on AWS.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Aws {
    /// A cloud-config as AWS's own controllers read it.
    pub(crate) cloud_config: Option<PathBuf>,
    /// The cluster, by the name in the tags of what belongs to it; else as the cloud-config says.
    pub(crate) cluster: Option<String>,
    /// The VPC; else as the cloud-config says, or that of the nodes.
    pub(crate) vpc: Option<String>,
    pub(crate) region: Option<String>,
    /// How the nodes' groups are opened for load balancers.
    pub(crate) node_rules: NodeRules,
    /// The nodes' groups, if they are not to be found by their tags.
    pub(crate) node_groups: Vec<String>,
    /// How many rules a group can have in each direction.
    pub(crate) rules_per_group: u16,
    /// How many groups a load balancer can have.
    pub(crate) groups_per_load_balancer: u16,
    /// Subnets for load balancers that name none.
    pub(crate) subnets: Vec<String>,
    /// Tags for everything that is made.
    pub(crate) tags: BTreeMap<String, String>,
}

impl Default for Aws {
    fn default() -> Self {
        Aws {
            cloud_config: None,
            cluster: None,
            vpc: None,
            region: None,
            node_rules: NodeRules::Shared,
            node_groups: Vec::new(),
            rules_per_group: 60,
            groups_per_load_balancer: 5,
            subnets: Vec::new(),
            tags: BTreeMap::new(),
        }
    }
}

/// How the nodes' groups are opened for load balancers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum NodeRules {
    /// By three rules for all.
    #[default]
    Shared,
    /// By the ports of each.
    Exact,
    /// Not at all.
    Off,
}
