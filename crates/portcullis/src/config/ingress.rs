use serde::{Deserialize, Serialize};

/// `IngressControllers`, and the routers that they ask for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct IngressControllers {
    /// Whether they are looked after.
    pub(crate) enabled: bool,
    /// The namespace that they are in.
    pub(crate) namespace: String,
    /// The domain of one that names none.
    pub(crate) domain: Option<String>,
    /// What the cluster runs on.
    pub(crate) platform: Option<Platform>,
    /// Whether there is one node for everything, so that one router is enough.
    pub(crate) single_replica: Option<bool>,
    /// The load balancer on AWS of one that names none.
    pub(crate) aws_type: Option<AwsType>,
    /// The class of load balancer Services.
    pub(crate) load_balancer_class: Option<String>,
    /// Who keeps out whom source ranges do not let in, where no provider of ours says so.
    pub(crate) source_ranges: SourceRanges,
    /// The namespace with `ConfigMaps` that they name.
    pub(crate) config_namespace: String,
    /// How many are dealt with at the same time.
    pub(crate) concurrency: u16,
    pub(crate) router: Router,
}

impl Default for IngressControllers {
    fn default() -> Self {
        IngressControllers {
            enabled: false,
            namespace: "openshift-ingress-operator".to_owned(),
            domain: None,
            platform: None,
            single_replica: None,
            aws_type: None,
            load_balancer_class: None,
            source_ranges: SourceRanges::Unknown,
            config_namespace: "openshift-config".to_owned(),
            concurrency: 16,
            router: Router::default(),
        }
    }
}

/// The routers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Router {
    /// The namespace that they run in.
    pub(crate) namespace: String,
    pub(crate) image: Option<String>,
    /// The addresses that they have.
    pub(crate) addresses: Option<Addresses>,
}

impl Default for Router {
    fn default() -> Self {
        Router { namespace: "openshift-ingress".to_owned(), image: None, addresses: None }
    }
}

/// What a cluster runs on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Platform {
    Aws,
    Azure,
    Gcp,
    Ibm,
    PowerVs,
    OpenStack,
    BareMetal,
    Other,
}

/// The addresses that pods have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Addresses {
    Ipv4,
    Ipv6,
    Both,
}

/// A load balancer on AWS.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum AwsType {
    Classic,
    Nlb,
}

/// Who keeps out whom source ranges do not let in.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum SourceRanges {
    /// That is not known.
    #[default]
    Unknown,
    /// kube-proxy.
    KubeProxy,
    /// The platform: somebody tried it.
    Tested,
    /// Nobody.
    Ignored,
}
