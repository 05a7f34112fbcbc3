//! Services at the addresses of nodes.

use std::collections::BTreeMap;
use std::sync::Arc;

use portcullis_controllers::Lease;
use portcullis_controllers::host::{
    AgentSettings, GRACE, HostController, HostSettings, Known, NodeAgent, Traffic,
};
use portcullis_host::Machine;
use portcullis_host::claims::Policy;
use portcullis_host::datapath::{Count, Counters, Mode as Filters};
use portcullis_host::interfaces::Selection;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::services::{host, kubernetes};
use super::{lead, lead_again};
use crate::config::{self, Loaded, Mode};
use crate::exit::{Exit, Failure};
use crate::telemetry::{Metrics, Readiness};

/// Stands for the cluster in the comments of packet filters: a node is of one cluster only.
const CLUSTER: &str = "kubernetes";

/// Starts both halves, or the one that the configuration has here; they end when `stop` says so, or with a failure.
pub(crate) async fn start(
    loaded: &Loaded,
    readiness: &Readiness,
    metrics: &mut Metrics,
    stop: &watch::Receiver<bool>,
    tasks: &mut JoinSet<Result<(), Failure>>,
) -> Result<(), Failure> {
    let given = &loaded.config.host;
    let client = kubernetes(loaded).await?;
    let observe = loaded.config.mode == Mode::Observe;
    let lease = &loaded.config.services.lease.namespace;
    if !given.controller && !given.agent {
        let what = "host.controller and host.agent are both false, so that nothing would look after Services at addresses of nodes";
        return Err(
            Failure::new(Exit::Usage, what).note("Set one of them to true, or host.enabled to false.")
        );
    }
    // Where both halves are one process, Services and endpoints are read once.
    let known = Known::new(client.clone());
    if given.agent {
        let check = readiness.register("host-agent");
        let machine = Machine::start().map_err(|error| Failure::new(Exit::Lacking, error.to_string()))?;
        let settings = AgentSettings {
            cluster: CLUSTER.to_owned(),
            class: given.class.clone(),
            without_class: given.without_class,
            node: node(loaded),
            namespace: given.namespace.clone(),
            policy: policy(given),
            mode: filters(given.datapath),
            grace: GRACE,
            observe,
        };
        let agent = NodeAgent::new(machine, settings, known.clone());
        metrics.registry().register_collector(Box::new(Packets(agent.traffic())));
        let working = agent.run(move |standing| match standing {
            Ok(()) => check.ready(),
            Err(why) => check.not_ready(why),
        });
        tasks.spawn(lead(None, stop.clone(), working));
    }
    if given.controller {
        let check = Arc::new(readiness.register("host-controller"));
        let settings = HostSettings {
            class: given.class.clone(),
            without_class: given.without_class,
            namespace: given.namespace.clone(),
            policy: policy(given),
            mode: filters(given.datapath),
            observe,
            host: host(),
        };
        let lease = Lease::new(client.clone(), lease, "portcullis-host", &settings.host);
        // One that waits for its turn is as ready as one can be.
        check.ready();
        let working = move || {
            let check = Arc::clone(&check);
            let controller = HostController::new(settings.clone(), known.clone());
            async move {
                controller.run().await;
                drop(check);
            }
        };
        tasks.spawn(lead_again((!observe).then_some(lease), stop.clone(), working));
    }
    Ok(())
}

/// The name of this node.
pub(crate) fn node(loaded: &Loaded) -> String {
    let given = loaded.config.host.node.clone().or_else(|| std::env::var("NODE_NAME").ok());
    given.filter(|name| !name.is_empty()).unwrap_or_else(|| {
        let host = nix::unistd::gethostname().ok().and_then(|host| host.into_string().ok());
        // As kubelets have it.
        host.unwrap_or_default().to_lowercase()
    })
}

/// What nobody gets.
fn policy(given: &config::Host) -> Policy {
    Policy { selection: selection(given), reserved: given.reserved_ports.iter().copied().collect() }
}

/// Which addresses are meant.
pub(super) fn selection(given: &config::Host) -> Selection {
    Selection {
        internal: given.internal_interfaces.clone(),
        management: given.management_interfaces.clone(),
        ..Selection::usual()
    }
}

fn filters(given: config::Datapath) -> Filters {
    match given {
        config::Datapath::None => Filters::None,
        config::Datapath::Filter => Filters::Filter,
        config::Datapath::Nftables => Filters::Nftables,
    }
}

/// What came to Services at the addresses of this node.
#[derive(Debug)]
struct Packets(Traffic);

impl Collector for Packets {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> std::fmt::Result {
        let all: Arc<BTreeMap<_, _>> = self.0.latest();
        let mut count = |name, help, count: fn(&Counters) -> Count| {
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
            for (service, counters) in &*all {
                let labels = [("service", &**service)];
                ConstCounter::new(count(counters).packets).encode(family.encode_family(&labels)?)?;
            }
            Ok(())
        };
        let arrived = "Packets that came for Services at addresses of this node";
        count("portcullis_host_packets", arrived, |counters| counters.arrived)?;
        let dropped = "Those of them that were dropped, since source ranges do not let them in";
        count("portcullis_host_dropped_packets", dropped, |counters| counters.dropped)
    }
}
