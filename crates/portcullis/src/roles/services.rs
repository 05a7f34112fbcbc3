//! Services of type `LoadBalancer`, with network load balancers on AWS.

use std::hash::{BuildHasher as _, RandomState};
use std::sync::OnceLock;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Namespace, Node};
use portcullis_aws::{
    Client, CloudConfig, NodeRules, Options, Provider, Record, SecurityGroupMode, Settings,
};
use portcullis_controllers::{Lease, ServiceController};
use portcullis_core::Owner;
use portcullis_kube_api::{LoadBalancerClass, TYPE};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tracing::{info, warn};

use super::lead;
use crate::config::{self, Loaded, Mode};
use crate::exit::{Exit, Failure};
use crate::telemetry::{Metrics, Readiness};

/// What is done again and again is not done more often.
pub(super) const LEAST: Duration = Duration::from_secs(30);

/// Starts it; it ends when `stop` says so, or with a failure.
pub(crate) async fn start(
    loaded: &Loaded,
    readiness: &Readiness,
    metrics: &mut Metrics,
    stop: &watch::Receiver<bool>,
    tasks: &mut JoinSet<Result<(), Failure>>,
) -> Result<(), Failure> {
    let check = readiness.register("services");
    let kubernetes = kubernetes(loaded).await?;
    let provider = provider(loaded, Nodes::Cluster(&kubernetes)).await?;
    if provider.settings().identity.is_none() {
        return Err(Failure::new(
            Exit::Lacking,
            "the namespace kube-system cannot be read, whose UID tells this cluster from others of its name",
        )
        .note("Allow `get` of the namespace kube-system, as the manifests do."));
    }
    metrics.aws_calls().add(provider.client());
    let settings = settings(loaded, provider.settings());
    let lease = &loaded.config.services.lease;
    let lease = Lease::new(kubernetes.clone(), &lease.namespace, &lease.name, &settings.host);
    let controller = ServiceController::new(kubernetes, provider, settings);
    let observe = loaded.config.mode == Mode::Observe;
    // One that waits for its turn is as ready as one can be.
    check.ready();
    let working = async move {
        controller.run().await;
        drop(check);
    };
    tasks.spawn(lead((!observe).then_some(lease), stop.clone(), working));
    Ok(())
}

/// The Kubernetes API.
pub(crate) async fn kubernetes(loaded: &Loaded) -> Result<kube::Client, Failure> {
    let config::Kubernetes { kubeconfig, context } = &loaded.config.kubernetes;
    let options = kube::config::KubeConfigOptions { context: context.clone(), ..Default::default() };
    let lacking = |error: &dyn std::error::Error| {
        Failure::new(Exit::Lacking, format!("the Kubernetes API is not to be found: {error}"))
            .note("Set kubernetes.kubeconfig, or KUBECONFIG, or run in a pod with a service account.")
    };
    let found = match kubeconfig {
        Some(file) => {
            let read = kube::config::Kubeconfig::read_from(file).map_err(|error| lacking(&error))?;
            kube::Config::from_custom_kubeconfig(read, &options).await.map_err(|error| lacking(&error))?
        }
        None if context.is_some() => {
            kube::Config::from_kubeconfig(&options).await.map_err(|error| lacking(&error))?
        }
        None => kube::Config::infer().await.map_err(|error| lacking(&error))?,
    };
    kube::Client::try_from(found).map_err(|error| lacking(&error))
}

/// The cloud-config, without what is wrong in it.
pub(crate) fn cloud_config(loaded: &Loaded) -> Result<CloudConfig, Failure> {
    let aws = &loaded.config.aws;
    let mut found = match &aws.cloud_config {
        None => CloudConfig::default(),
        Some(file) => {
            let wrong = |what: String| Failure::new(Exit::Usage, what).state("Nothing was started.");
            let text = std::fs::read_to_string(file).map_err(|error| {
                wrong(format!("cannot read the cloud-config {}: {error}", file.display()))
            })?;
            let (found, unknown) =
                CloudConfig::parse(&text).map_err(|error| wrong(format!("{}: {error}", file.display())))?;
            for finding in unknown {
                warn!(file = %file.display(), line = finding.line, "{}", finding.what);
            }
            found.check().map_err(|error| wrong(format!("{}: {error}", file.display())))?;
            found
        }
    };
    if let Some(region) = &aws.region {
        found.global.region.clone_from(region);
    }
    Ok(found)
}

/// Where nodes are found, if the VPC has to be found by them.
#[derive(Clone, Copy)]
pub(crate) enum Nodes<'a> {
    Cluster(&'a kube::Client),
    Given(&'a [Node]),
}

/// What tells the cluster from others of its name.
pub(super) async fn identity(nodes: Nodes<'_>) -> Option<String> {
    let Nodes::Cluster(client) = nodes else { return None };
    let namespaces: kube::Api<Namespace> = kube::Api::all(client.clone());
    match namespaces.get("kube-system").await {
        Ok(found) => found.metadata.uid,
        Err(error) => {
            warn!(%error, "the namespace kube-system cannot be read");
            None
        }
    }
}

/// The provider, with what the configuration and the cloud-config say.
pub(crate) async fn provider(loaded: &Loaded, nodes: Nodes<'_>) -> Result<Provider, Failure> {
    let config = cloud_config(loaded)?;
    let client = portcullis_aws::load(&config, Options::default())
        .await
        .map_err(|error| Failure::new(Exit::Lacking, error.to_string()))?;
    let cluster = configured_cluster(loaded, &config).ok_or_else(|| {
        Failure::new(
            Exit::Usage,
            "the cluster has no name, by which its load balancers are told from others'",
        )
        .note("Set aws.cluster, or KubernetesClusterID in the cloud-config.")
    })?;
    check_cluster(cluster)?;
    let vpc = match configured_vpc(loaded, &config) {
        Some(vpc) => vpc.to_owned(),
        None => vpc_of_nodes(&client, nodes).await?,
    };
    let settings = aws_settings(&loaded.config.aws, &config, cluster, &vpc, client.endpoints().region())?;
    let settings = Settings { identity: identity(nodes).await, ..settings };
    let mode = match settings.mode {
        SecurityGroupMode::Managed => "Managed",
        SecurityGroupMode::Unmanaged => "Unmanaged",
    };
    info!(cluster, vpc, region = settings.region, groups = mode, "network load balancers are made here");
    Ok(Provider::new(client, settings))
}

/// What the configuration and the cloud-config say, and the record where they say nothing.
pub(crate) fn settings_for(loaded: &Loaded, record: &Record) -> Result<Settings, Failure> {
    let config = cloud_config(loaded)?;
    let cluster = configured_cluster(loaded, &config).unwrap_or(record.cluster());
    check_cluster(cluster)?;
    let vpc = configured_vpc(loaded, &config).unwrap_or(record.vpc());
    let region = Some(config.global.region.as_str()).filter(|region| !region.is_empty());
    aws_settings(&loaded.config.aws, &config, cluster, vpc, region.unwrap_or(record.region()))
}

fn configured_cluster<'a>(loaded: &'a Loaded, config: &'a CloudConfig) -> Option<&'a str> {
    let global = &config.global;
    let given = [
        loaded.config.aws.cluster.as_deref(),
        Some(&global.kubernetes_cluster_id),
        Some(&global.kubernetes_cluster_tag),
    ];
    given.into_iter().flatten().find(|name| !name.is_empty())
}

pub(super) fn configured_vpc<'a>(loaded: &'a Loaded, config: &'a CloudConfig) -> Option<&'a str> {
    let given = [loaded.config.aws.vpc.as_deref(), Some(&config.global.vpc)];
    given.into_iter().flatten().find(|vpc| !vpc.is_empty())
}

/// It stands in tags, by which what is ours is found again.
pub(super) fn check_cluster(cluster: &str) -> Result<(), Failure> {
    let refused = |why: &str| {
        Failure::new(Exit::Usage, format!("`{cluster}` cannot be the name of the cluster: {why}"))
            .note("Set aws.cluster, or KubernetesClusterID in the cloud-config, to another one.")
    };
    // It stands in descriptions of rules, where AWS takes few signs, and between blanks.
    let fits = |sign: char| sign.is_ascii_alphanumeric() || "._-".contains(sign);
    if !cluster.chars().all(fits) {
        return Err(refused("it has other signs than letters, digits, dots, dashes and underscores"));
    }
    Owner::new(cluster, "Cluster", None, cluster).map(drop).map_err(|error| refused(&error.to_string()))
}

pub(super) fn aws_settings(
    aws: &config::Aws,
    config: &CloudConfig,
    cluster: &str,
    vpc: &str,
    region: &str,
) -> Result<Settings, Failure> {
    let global = &config.global;
    let settings = Settings::new(cluster, vpc, config);
    let settings = settings.map_err(|error| Failure::new(Exit::Lacking, error.to_string()))?;
    let subnets = match global.subnet_id.as_str() {
        "" => aws.subnets.clone(),
        subnet => vec![subnet.to_owned()],
    };
    Ok(Settings {
        region: region.to_owned(),
        node_rules: match aws.node_rules {
            _ if global.disable_security_group_ingress => NodeRules::Off,
            config::NodeRules::Shared => NodeRules::Shared,
            config::NodeRules::Exact => NodeRules::Exact,
            config::NodeRules::Off => NodeRules::Off,
        },
        node_groups: aws.node_groups.clone(),
        rules_per_group: usize::from(aws.rules_per_group.max(1)),
        groups_per_load_balancer: usize::from(aws.groups_per_load_balancer.max(2)),
        subnets,
        tags: aws.tags.clone(),
        ..settings
    })
}

/// The machines of nodes, by what Kubernetes knows them by.
pub(crate) fn machines(nodes: &[Node]) -> impl Iterator<Item = &str> {
    nodes.iter().filter_map(|node| node.spec.as_ref()?.provider_id.as_deref())
}

/// The VPC that the nodes are in.
async fn vpc_of_nodes(client: &Client, nodes: Nodes<'_>) -> Result<String, Failure> {
    let unknown = |why: String| {
        Failure::new(
            Exit::Lacking,
            format!("it is not known in which VPC the load balancers are to be: {why}"),
        )
        .note("Set aws.vpc, or VPC in the cloud-config.")
    };
    let nodes = match nodes {
        Nodes::Given(nodes) => nodes.to_vec(),
        Nodes::Cluster(kubernetes) => {
            let found = kube::Api::all(kubernetes.clone()).list(&kube::api::ListParams::default()).await;
            found.map_err(|error| unknown(error.to_string()))?.items
        }
    };
    let found = client.vpc_of(machines(&nodes)).await.map_err(|error| unknown(error.to_string()))?;
    found.ok_or_else(|| unknown("there is no node of AWS yet".to_owned()))
}

fn settings(loaded: &Loaded, aws: &Settings) -> portcullis_controllers::Settings {
    let services = &loaded.config.services;
    portcullis_controllers::Settings {
        cluster: aws.cluster.clone(),
        class: LoadBalancerClass {
            name: services.class.clone(),
            without_class: services.without_class.then(|| (TYPE.to_owned(), "nlb".to_owned())),
        },
        concurrency: services.concurrency,
        resync: services.resync.as_duration().max(LEAST),
        close_look: services.close_look.as_duration().max(LEAST),
        sweep_after: services.sweep_after.as_duration(),
        observe: loaded.config.mode == Mode::Observe,
        host: host(),
    }
}

/// Who this is, among several.
pub(super) fn host() -> String {
    static NAME: OnceLock<String> = OnceLock::new();
    NAME.get_or_init(|| name(std::env::var("POD_NAME").ok().filter(|pod| !pod.is_empty()))).clone()
}

/// A name that nobody else has who could hold the same Lease. There is one pod of a name, which goes on at once where it
/// was when its process is another; machines may have the same name, and processes of the same number.
fn name(pod: Option<String>) -> String {
    let process = std::process::id();
    if let Some(pod) = pod {
        return format!("{pod}-{process}");
    }
    let host = nix::unistd::gethostname().ok().and_then(|host| host.into_string().ok());
    let host = host.filter(|host| !host.is_empty()).unwrap_or_else(|| "portcullis".to_owned());
    // Made for hashes, and random enough for a name.
    let random = RandomState::new().hash_one(process);
    format!("{host}-{process}-{random:016x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_have_one_name() {
        let (one, other) = (name(None), name(None));
        assert_ne!(one, other, "not even with the same name of a machine, and the same number");
        let host = nix::unistd::gethostname().unwrap().into_string().unwrap();
        assert!(one.starts_with(&format!("{host}-{}-", std::process::id())), "{one}");
        assert_eq!(name(Some("pod-1".to_owned())), format!("pod-1-{}", std::process::id()));
        assert_eq!(super::host(), super::host(), "it stays the same");
    }
}
