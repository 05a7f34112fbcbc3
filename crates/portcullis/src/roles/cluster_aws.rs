//! Network load balancers on AWS for clusters that Cluster API makes.

use std::collections::BTreeMap;
use std::sync::Arc;

use portcullis_aws::{
    Client, CloudConfig, Fleet, MemberReports, NodeRules, Options, Provider, SecurityGroupMode, Settings,
    Site, Usual,
};
use portcullis_controllers::cluster::{InfrastructureSettings, Infrastructures};
use portcullis_core::Problem;
use portcullis_kube_api::cluster::{AwsNlbSpec, Flavour};
use tokio::sync::Mutex;

use super::services::{
    LEAST, Nodes, aws_settings, check_cluster, cloud_config, configured_vpc, host, identity,
};
use crate::config::{self, Loaded};
use crate::exit::{Exit, Failure};
use crate::telemetry::AwsCalls;

/// How often members that are on their way are looked at: a call for each target group.
const LOOK: std::time::Duration = std::time::Duration::from_secs(5);

/// What makes them, once it is run.
pub(super) async fn infrastructures(
    loaded: &Loaded,
    kubernetes: kube::Client,
    flavour: Flavour,
    calls: AwsCalls,
) -> Result<Infrastructures<Fleet, AwsNlbSpec>, Failure> {
    let config = cloud_config(loaded)?;
    let lacking = |error: &dyn std::fmt::Display| Failure::new(Exit::Lacking, error.to_string());
    let client = portcullis_aws::load(&config, Options::default()).await.map_err(|error| lacking(&error))?;
    let Some(identity) = identity(Nodes::Cluster(&kubernetes)).await else {
        return Err(Failure::new(
            Exit::Lacking,
            "the namespace kube-system cannot be read, whose UID tells this cluster from others of its name",
        )
        .note("Allow `get` of the namespace kube-system, as the manifests do."));
    };
    calls.add(&client);
    let usual = Usual {
        vpc: configured_vpc(loaded, &config).map(str::to_owned),
        region: client.endpoints().region().to_owned(),
    };
    let makers = Makers {
        clients: Mutex::new(BTreeMap::from([(usual.region.clone(), client)])),
        aws: loaded.config.aws.clone(),
        usual: usual.clone(),
        config,
        identity,
        calls,
    };
    let makers = Arc::new(makers);
    let fleet = Fleet::new(usual, move |site| {
        let makers = Arc::clone(&makers);
        async move { makers.provider(&site).await }
    });
    let settings = InfrastructureSettings {
        kind: flavour.aws_nlb(),
        namespace: loaded.config.cluster_api.namespace.clone(),
        concurrency: loaded.config.cluster_api.concurrency.max(1),
        resync: loaded.config.services.resync.as_duration().max(LEAST),
        look: LOOK,
        host: host(),
    };
    Ok(Infrastructures::new(kubernetes, fleet, settings))
}

/// What providers are made from.
struct Makers {
    /// One for each region, since all calls to it count together.
    clients: Mutex<BTreeMap<String, Client>>,
    aws: config::Aws,
    usual: Usual,
    config: CloudConfig,
    identity: String,
    calls: AwsCalls,
}

impl Makers {
    async fn provider(&self, site: &Site) -> Result<Provider, Problem> {
        let refused = |what: String| {
            let what = format!("cluster {} in {} of {}: {what}.", site.cluster, site.vpc, site.region);
            Problem::new(what, "Nothing was changed.", "Correct it in the configuration or the AWSNLB.")
        };
        check_cluster(&site.cluster).map_err(|failure| refused(failure.errors.join("; ")))?;
        let settings = settings(&self.aws, &self.config, site, &self.usual)
            .map_err(|failure| refused(failure.errors.join("; ")))?;
        let settings = Settings { identity: Some(self.identity.clone()), ..settings };
        let client = self.client(&site.region).await.map_err(|error| refused(error.to_string()))?;
        Ok(Provider::new(client, settings))
    }

    async fn client(&self, region: &str) -> Result<Client, portcullis_aws::CredentialsError> {
        let mut clients = self.clients.lock().await;
        if let Some(known) = clients.get(region) {
            return Ok(known.clone());
        }
        let mut config = self.config.clone();
        region.clone_into(&mut config.global.region);
        let client = portcullis_aws::load(&config, Options::default()).await?;
        self.calls.add(&client);
        clients.insert(region.to_owned(), client.clone());
        Ok(client)
    }
}

/// What is said for all load balancers of a cluster. What the configuration says of nodes is about the cluster that this runs in,
/// and about no other.
fn settings(
    aws: &config::Aws,
    config: &CloudConfig,
    site: &Site,
    usual: &Usual,
) -> Result<Settings, Failure> {
    let settings = aws_settings(aws, config, &site.cluster, &site.vpc, &site.region)?;
    let is_usual = usual.vpc.as_ref() == Some(&site.vpc) && usual.region == site.region;
    Ok(Settings {
        // Who may connect is always said, and is to be kept to.
        mode: SecurityGroupMode::Managed,
        // Members take traffic on ports of their own choice, of which node ports say nothing.
        node_rules: match settings.node_rules {
            NodeRules::Off => NodeRules::Off,
            NodeRules::Shared | NodeRules::Exact => NodeRules::Exact,
        },
        node_groups: Vec::new(),
        subnets: if is_usual { settings.subnets } else { Vec::new() },
        members: MemberReports::Each,
        ..settings
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use portcullis_kube_api::cluster as kube_api;

    #[test]
    fn both_sides_mean_the_same_keys() {
        assert_eq!(
            [portcullis_aws::VPC, portcullis_aws::REGION, portcullis_aws::HOLD],
            [kube_api::AWS_VPC, kube_api::AWS_REGION, kube_api::AWS_HOLD]
        );
    }

    #[test]
    fn what_is_said_of_nodes_is_of_no_other_cluster() {
        let mut aws = config::Aws {
            node_groups: vec!["sg-1".to_owned()],
            subnets: vec!["subnet-1".to_owned()],
            tags: BTreeMap::from([("team".to_owned(), "a".to_owned())]),
            ..config::Aws::default()
        };
        let usual = Usual { vpc: Some("vpc-1".to_owned()), region: "eu-west-1".to_owned() };
        for (vpc, region, subnets) in
            [("vpc-1", "eu-west-1", 1), ("vpc-2", "eu-west-1", 0), ("vpc-1", "eu-west-2", 0)]
        {
            let site = Site { cluster: "demo".to_owned(), vpc: vpc.to_owned(), region: region.to_owned() };
            let found = settings(&aws, &CloudConfig::default(), &site, &usual).unwrap();
            assert_eq!(
                (found.cluster.as_str(), found.vpc.as_str(), found.region.as_str()),
                ("demo", vpc, region)
            );
            assert_eq!(found.subnets.len(), subnets, "{vpc} {region}");
            assert!(found.node_groups.is_empty());
            assert_eq!((found.mode, found.node_rules), (SecurityGroupMode::Managed, NodeRules::Exact));
            assert_eq!(found.members, MemberReports::Each);
            assert_eq!(found.tags["team"], "a");
        }
        aws.node_rules = config::NodeRules::Off;
        let site =
            Site { cluster: "demo".to_owned(), vpc: "vpc-1".to_owned(), region: "eu-west-1".to_owned() };
        let off = settings(&aws, &CloudConfig::default(), &site, &usual).unwrap();
        assert_eq!(off.node_rules, NodeRules::Off);
    }
}
