//! A machine that carries load balancers by `HAProxy`.

use portcullis_controllers::cluster::{Carrier, Carrying, HaProxyAgent, HaProxyAgentSettings, Sharing};
use portcullis_core::MemberState;
use portcullis_haproxy::{BalancerSeen, MemberSeen, Seen, Settings, Tuning};
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
            old_workers: given.old_workers.into(),
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

/// Of a load balancer: what else tells a number apart, by its label, and the number.
type Numbers<'a> = Vec<((&'static str, &'a str), u64)>;

impl Collector for Connections {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> std::fmt::Result {
        let seen: Seen = self.0.seen().unwrap_or_default();
        let workers = encoder.encode_descriptor(
            "portcullis_haproxy_workers",
            "Workers of HAProxy on this machine: the one that takes connections, and those that a reload replaced and that still have some",
            None,
            MetricType::Gauge,
        )?;
        ConstGauge::new(i64::try_from(seen.workers).unwrap_or(i64::MAX)).encode(workers)?;
        let mut encode =
            |name: &str, help: &str, kind: MetricType, of: &dyn Fn(&BalancerSeen) -> Numbers<'_>| {
                let mut family = encoder.encode_descriptor(name, help, None, kind)?;
                for (id, balancer) in &seen.balancers {
                    let id = id.to_string();
                    for (label, number) in of(balancer) {
                        let labels = [("load_balancer", id.as_str()), label];
                        let family = family.encode_family(&labels)?;
                        match kind {
                            MetricType::Counter => ConstCounter::new(number).encode(family)?,
                            _ => ConstGauge::new(i64::try_from(number).unwrap_or(i64::MAX)).encode(family)?,
                        }
                    }
                }
                Ok(())
            };
        encode(
            "portcullis_haproxy_connections",
            "Connections of clients to load balancers on this machine, by whether source ranges let them in",
            MetricType::Counter,
            &|balancer| {
                let totals = &balancer.totals;
                vec![(("verdict", "accepted"), totals.connections), (("verdict", "denied"), totals.denied)]
            },
        )?;
        encode(
            "portcullis_haproxy_bytes",
            "Bytes between clients and load balancers on this machine",
            MetricType::Counter,
            &|balancer| {
                let totals = &balancer.totals;
                vec![
                    (("direction", "received"), totals.bytes_received),
                    (("direction", "sent"), totals.bytes_sent),
                ]
            },
        )?;
        encode(
            "portcullis_haproxy_member_sessions",
            "Connections that a member has now",
            MetricType::Gauge,
            &|balancer| {
                let members = balancer.members.iter();
                members.map(|(name, member)| (("member", name.as_str()), member.sessions)).collect()
            },
        )?;
        for (name, help, count) in [
            (
                "portcullis_haproxy_member_cut_connections",
                "Connections of a member that were ended because it left, or was disabled, and their time was over",
                (|member| member.cut) as fn(&MemberSeen) -> u64,
            ),
            (
                "portcullis_haproxy_member_crowded_out_connections",
                "Connections of a member that were ended because more workers were left of reloads than haproxy.oldWorkers",
                |member| member.crowded_out,
            ),
        ] {
            encode(name, help, MetricType::Counter, &|balancer| {
                let members = balancer.members.iter();
                members.map(|(name, member)| (("member", name.as_str()), count(member))).collect()
            })?;
        }
        encode(
            "portcullis_haproxy_member_up",
            "Whether a member gets connections",
            MetricType::Gauge,
            &|balancer| {
                let members = balancer.members.iter();
                let is_up = |member: &MemberSeen| u64::from(member.state == MemberState::Active);
                members.map(|(name, member)| (("member", name.as_str()), is_up(member))).collect()
            },
        )
    }
}
