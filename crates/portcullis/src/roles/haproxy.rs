//! A machine that carries load balancers by `HAProxy`.

use portcullis_controllers::cluster::{Carrier, Carrying, HaProxyAgent, HaProxyAgentSettings, Sharing};
use portcullis_haproxy::{Seen, Settings, Tuning};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tracing::info;

use super::cluster_api::flavour;
use super::host::{node, selection};
use super::lead;
use super::services::kubernetes;
use crate::config::{Loaded, Mode};
use crate::exit::{Exit, Failure};
use crate::telemetry::{Metrics, Readiness};

/// Starts it; it ends when `stop` says so, or with a failure. What is carried goes on being carried.
pub(crate) async fn start(
    loaded: &Loaded,
    readiness: &Readiness,
    metrics: &mut Metrics,
    stop: &watch::Receiver<bool>,
    tasks: &mut JoinSet<Result<(), Failure>>,
) -> Result<(), Failure> {
    let given = &loaded.config.haproxy;
    let check = readiness.register("haproxy");
    if loaded.config.mode == Mode::Observe {
        info!("this machine carries nothing: it only watches");
        check.ready();
        let mut stop = stop.clone();
        tasks.spawn(async move {
            let _ = stop.wait_for(|stop| *stop).await;
            drop(check);
            Ok(())
        });
        return Ok(());
    }
    let client = kubernetes(loaded).await?;
    let settings = Settings { program: given.program.clone(), ..Settings::new(&given.directory) };
    let carrier = Carrier::start(settings).map_err(|error| {
        Failure::new(Exit::Lacking, error.to_string())
            .note("Install haproxy and keepalived, and run as root; haproxy.directory says where files are.")
    })?;
    let sharing = given.interface.clone().map(|interface| Sharing {
        interface,
        priority: given.priority,
        peers: given.peers.clone(),
        interval: given.advertise.as_duration(),
    });
    let settings = HaProxyAgentSettings {
        flavour: flavour(loaded.config.cluster_api.types),
        namespace: loaded.config.cluster_api.namespace.clone(),
        agents: given.namespace.clone(),
        pool: given.pool.clone(),
        name: given.name.clone().filter(|name| !name.is_empty()).unwrap_or_else(|| node(loaded)),
        sharing,
        selection: selection(&loaded.config.host),
        tuning: Tuning {
            user: Some(given.user.clone()).filter(|user| !user.is_empty()),
            ..Tuning::default()
        },
    };
    let agent = HaProxyAgent::new(client, carrier, settings);
    metrics.registry().register_collector(Box::new(Connections(agent.standing())));
    let working = agent.run(move |problem| match problem {
        None => check.ready(),
        Some(why) => check.not_ready(why),
    });
    tasks.spawn(lead(None, stop.clone(), working));
    Ok(())
}

/// What came to load balancers on this machine.
#[derive(Debug)]
struct Connections(Carrying);

impl Collector for Connections {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> std::fmt::Result {
        let seen: Seen = self.0.seen().unwrap_or_default();
        let mut encode =
            |name: &str, help: &str, kind: MetricType, of: &dyn Fn(&mut Family<'_>) -> std::fmt::Result| {
                let mut family = encoder.encode_descriptor(name, help, None, kind)?;
                of(&mut family)
            };
        encode(
            "portcullis_haproxy_connections",
            "Connections of clients to load balancers on this machine, by whether source ranges let them in",
            MetricType::Counter,
            &|family| {
                for (id, balancer) in &seen.balancers {
                    let name = id.to_string();
                    for (verdict, count) in
                        [("accepted", balancer.totals.connections), ("denied", balancer.totals.denied)]
                    {
                        let labels = [("load_balancer", name.as_str()), ("verdict", verdict)];
                        ConstCounter::new(count).encode(family.encode_family(&labels)?)?;
                    }
                }
                Ok(())
            },
        )?;
        encode(
            "portcullis_haproxy_bytes",
            "Bytes between clients and load balancers on this machine",
            MetricType::Counter,
            &|family| {
                for (id, balancer) in &seen.balancers {
                    let name = id.to_string();
                    let totals = &balancer.totals;
                    for (direction, count) in
                        [("received", totals.bytes_received), ("sent", totals.bytes_sent)]
                    {
                        let labels = [("load_balancer", name.as_str()), ("direction", direction)];
                        ConstCounter::new(count).encode(family.encode_family(&labels)?)?;
                    }
                }
                Ok(())
            },
        )?;
        encode(
            "portcullis_haproxy_member_sessions",
            "Connections that a member has now",
            MetricType::Gauge,
            &|family| {
                for (id, balancer) in &seen.balancers {
                    let name = id.to_string();
                    for (member, of_it) in &balancer.members {
                        let labels = [("load_balancer", name.as_str()), ("member", member.as_str())];
                        let sessions = i64::try_from(of_it.sessions).unwrap_or(i64::MAX);
                        ConstGauge::new(sessions).encode(family.encode_family(&labels)?)?;
                    }
                }
                Ok(())
            },
        )?;
        encode(
            "portcullis_haproxy_member_up",
            "Whether a member gets connections",
            MetricType::Gauge,
            &|family| {
                for (id, balancer) in &seen.balancers {
                    let name = id.to_string();
                    for (member, of_it) in &balancer.members {
                        let labels = [("load_balancer", name.as_str()), ("member", member.as_str())];
                        let is_up = of_it.state == portcullis_core::MemberState::Active;
                        ConstGauge::new(i64::from(is_up)).encode(family.encode_family(&labels)?)?;
                    }
                }
                Ok(())
            },
        )
    }
}

type Family<'a> = prometheus_client::encoding::MetricEncoder<'a>;
