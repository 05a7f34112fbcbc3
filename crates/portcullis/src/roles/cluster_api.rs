//! Load balancers of clusters that Cluster API makes.

use std::time::Duration;

use portcullis_controllers::Lease;
use portcullis_controllers::cluster::{
    HaProxyController, HaProxySettings, InfrastructureSettings, Infrastructures, LoadBalancerSettings,
    LoadBalancers, ProposedClusters, Templates,
};
use portcullis_kube_api::cluster::{Flavour, OvnLoadBalancerSpec};
use portcullis_ovn::balancer::Provider as Ovn;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tracing::info;

use super::networking::balancer_settings;
use super::services::{host, kubernetes};
use super::{cluster_aws, lead};
use crate::config::{self, Loaded, Mode};
use crate::exit::Failure;
use crate::telemetry::{Metrics, Readiness};

/// How often load balancers of OVN are looked at: all that is needed for it is in memory, and nothing is done while nothing
/// changes there.
const LOOK_AT_ALL: Duration = Duration::from_secs(1);

/// How often members that are on their way are.
const LOOK: Duration = Duration::from_secs(1);

/// Starts all that the configuration has here; it ends when `stop` says so, or with a failure.
pub(crate) async fn start(
    loaded: &Loaded,
    readiness: &Readiness,
    metrics: &mut Metrics,
    stop: &watch::Receiver<bool>,
    tasks: &mut JoinSet<Result<(), Failure>>,
) -> Result<(), Failure> {
    let given = &loaded.config.cluster_api;
    let check = readiness.register("cluster-api");
    check.ready();
    if loaded.config.mode == Mode::Observe {
        info!("load balancers of clusters are not touched: `portcullis get load-balancers` shows them");
        let mut stop = stop.clone();
        tasks.spawn(async move {
            let _ = stop.wait_for(|stop| *stop).await;
            drop(check);
            Ok(())
        });
        return Ok(());
    }
    let client = kubernetes(loaded).await?;
    let flavour = flavour(given.types);
    let balancers = LoadBalancers::new(
        client.clone(),
        LoadBalancerSettings {
            flavour,
            namespace: given.namespace.clone(),
            concurrency: given.concurrency.max(1),
            probe: Some(given.probe.as_duration()).filter(|every| !every.is_zero()),
            host: host(),
        },
    );
    let haproxy = given.haproxy.then(|| {
        let settings = HaProxySettings {
            flavour,
            namespace: given.namespace.clone(),
            but: None,
            agents: loaded.config.haproxy.namespace.clone(),
            concurrency: given.concurrency.max(1),
        };
        HaProxyController::new(client.clone(), settings)
    });
    let on_aws = if given.aws {
        Some(cluster_aws::infrastructures(loaded, client.clone(), flavour, metrics.aws_calls()).await?)
    } else {
        None
    };
    let ovn = given.ovn.then(|| balancer_settings(loaded, None)).transpose()?;
    let ovn: Option<Infrastructures<Ovn, OvnLoadBalancerSpec>> = ovn.map(|settings| {
        let looking = InfrastructureSettings {
            kind: flavour.ovn(),
            namespace: given.namespace.clone(),
            concurrency: given.concurrency.max(1),
            resync: LOOK_AT_ALL,
            look: LOOK,
            host: host(),
        };
        Infrastructures::new(client.clone(), Ovn::start(settings), looking)
    });
    let proposed = (flavour == Flavour::Proposed)
        .then(|| ProposedClusters::new(client.clone(), given.namespace.clone()));
    let templates = Templates::new(client.clone(), flavour, given.namespace.clone(), host());
    let lease =
        Lease::new(client, &loaded.config.services.lease.namespace, "portcullis-cluster-api", &host());
    let working = async move {
        let on_machines = async {
            match haproxy {
                Some(controller) => controller.run().await,
                None => std::future::pending().await,
            }
        };
        let on_aws = async {
            match on_aws {
                Some(infrastructures) => infrastructures.run().await,
                None => std::future::pending().await,
            }
        };
        let proposed = async {
            match proposed {
                Some(clusters) => clusters.run().await,
                None => std::future::pending().await,
            }
        };
        let on_ovn = async {
            match ovn {
                Some(infrastructures) => infrastructures.run().await,
                None => std::future::pending().await,
            }
        };
        tokio::join!(balancers.run(), templates.run(), on_machines, on_aws, on_ovn, proposed);
        drop(check);
    };
    tasks.spawn(lead(Some(lease), stop.clone(), working));
    Ok(())
}

/// Under which names the types are installed.
pub(crate) fn flavour(types: config::Types) -> Flavour {
    match types {
        config::Types::Own => Flavour::Own,
        config::Types::Proposed => Flavour::Proposed,
    }
}
