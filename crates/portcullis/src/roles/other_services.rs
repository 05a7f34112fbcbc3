//! Services of type `LoadBalancer` that are not on AWS: on machines with `HAProxy`, and in OVN, each by its class.

use std::time::Duration;

use portcullis_controllers::cluster::{HAPROXY_CLASS, HaProxyController, HaProxySettings, OnMachines};
use portcullis_controllers::{Lease, ServiceController, Settings};
use portcullis_core::{Owner, Provider};
use portcullis_kube_api::LoadBalancerClass;
use portcullis_ovn::balancer;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::cluster_api::flavour;
use super::lead;
use super::networking::balancer_settings;
use super::services::{LEAST, Nodes, host, identity, kubernetes};
use crate::config::{Loaded, Mode};
use crate::exit::{Exit, Failure};
use crate::telemetry::Readiness;

/// The class of Services whose load balancers are in OVN.
const OVN_CLASS: &str = "portcullis.dev/ovn";

/// How often load balancers are looked at. All that is needed for it is in memory, and nothing is done while nothing changes there;
/// who adds a way to one in OVN has it open until then.
const LOOK: Duration = Duration::from_secs(1);

/// Starts those that the configuration has; they end when `stop` says so, or with a failure.
pub(crate) async fn start(
    loaded: &Loaded,
    readiness: &Readiness,
    stop: &watch::Receiver<bool>,
    tasks: &mut JoinSet<Result<(), Failure>>,
) -> Result<(), Failure> {
    let services = &loaded.config.services;
    let client = kubernetes(loaded).await?;
    let cluster = services.cluster.as_deref().or(loaded.config.aws.cluster.as_deref());
    let cluster = cluster.filter(|cluster| !cluster.is_empty());
    if services.haproxy {
        let provider = OnMachines::start(client.clone(), flavour(loaded.config.cluster_api.types));
        // What is made is in the cluster itself.
        let cluster = cluster.unwrap_or("kubernetes");
        let kind = Kind { check: "services-haproxy", class: HAPROXY_CLASS, cluster };
        let clusters = &loaded.config.cluster_api;
        let settings = HaProxySettings {
            flavour: flavour(clusters.types),
            namespace: None,
            // Two would write the same status.
            but: clusters.namespace.clone().filter(|_| clusters.enabled && clusters.haproxy),
            agents: loaded.config.haproxy.namespace.clone(),
            concurrency: services.concurrency,
        };
        // Services are everywhere.
        let is_done = clusters.enabled && clusters.haproxy && clusters.namespace.is_none()
            || loaded.config.mode == Mode::Observe;
        let beside = together(client.clone(), (!is_done).then_some(settings));
        run(loaded, kind, client.clone(), (provider, beside), readiness, stop, tasks)?;
    }
    if services.ovn {
        let cluster = cluster.ok_or_else(|| {
            Failure::new(
                Exit::Usage,
                "the cluster has no name, by which its load balancers in OVN are told from others'",
            )
            .note("Set services.cluster.")
        })?;
        let identity = identity(Nodes::Cluster(&client)).await.ok_or_else(|| {
            Failure::new(
                Exit::Lacking,
                "the namespace kube-system cannot be read, whose UID tells this cluster from others of its name",
            )
            .note("Allow `get` of the namespace kube-system, as the manifests do.")
        })?;
        let sweep = balancer::Sweep { cluster: cluster.to_owned(), kind: "Service".to_owned(), identity };
        let provider = balancer::Provider::start(balancer_settings(loaded, Some(sweep))?);
        let kind = Kind { check: "services-ovn", class: OVN_CLASS, cluster };
        run(loaded, kind, client, (provider, std::future::pending()), readiness, stop, tasks)?;
    }
    Ok(())
}

/// Puts together what machines say of what they carry, where nobody else does: it is part of looking after load balancers of clusters.
async fn together(client: kube::Client, settings: Option<HaProxySettings>) {
    match settings {
        Some(settings) => HaProxyController::new(client, settings).run().await,
        None => std::future::pending().await,
    }
}

/// Services of one kind.
#[derive(Clone, Copy)]
struct Kind<'a> {
    /// For readiness, and for its Lease.
    check: &'static str,
    class: &'a str,
    cluster: &'a str,
}

fn run(
    loaded: &Loaded,
    kind: Kind<'_>,
    client: kube::Client,
    (provider, beside): (impl Provider, impl Future<Output = ()> + Send + 'static),
    readiness: &Readiness,
    stop: &watch::Receiver<bool>,
    tasks: &mut JoinSet<Result<(), Failure>>,
) -> Result<(), Failure> {
    let services = &loaded.config.services;
    let Kind { check: name, class, cluster } = kind;
    Owner::new(cluster, "Cluster", None, cluster).map_err(|error| {
        Failure::new(Exit::Usage, format!("`{cluster}` cannot be the name of the cluster: {error}"))
            .note("Set services.cluster to another one.")
    })?;
    let check = readiness.register(name);
    let observe = loaded.config.mode == Mode::Observe;
    let settings = Settings {
        cluster: cluster.to_owned(),
        class: LoadBalancerClass { name: class.to_owned(), without_class: None },
        concurrency: services.concurrency,
        resync: LOOK,
        close_look: services.close_look.as_duration().max(LEAST),
        sweep_after: services.sweep_after.as_duration(),
        observe,
        host: host(),
    };
    let lease = format!("portcullis-{name}");
    let lease = Lease::new(client.clone(), &services.lease.namespace, &lease, &settings.host);
    let controller = ServiceController::new(client, provider, settings);
    // One that waits for its turn is as ready as one can be.
    check.ready();
    let working = async move {
        tokio::select! {
            () = controller.run() => {}
            () = beside => {}
        }
        drop(check);
    };
    tasks.spawn(lead((!observe).then_some(lease), stop.clone(), working));
    Ok(())
}
