//! `portcullis serve`

use std::time::Duration;

use anyhow::Context;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tracing::{info, warn};

use super::version::VERSION;
use crate::cli::ConfigArgs;
use crate::config::Loaded;
use crate::exit::{Exit, Failure};
use crate::files;
use crate::listen::bind;
use crate::logging;
use crate::roles;
use crate::signals::Signals;
use crate::telemetry::{self, Metrics, Readiness};

/// How long requests in flight may take to finish after a signal. Well below the 30 seconds that Kubernetes
/// waits, and the 90 of systemd, before they kill.
const GRACE: Duration = Duration::from_secs(5);

/// Run the roles that the configuration enables, until a signal ends them
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    config: ConfigArgs,
}

pub(crate) fn run(args: Args) -> Result<(), Failure> {
    let loaded = args.config.sources().load();
    let loaded = loaded.map_err(|unusable| Failure::from(unusable).state("Nothing was started."))?;
    logging::start(&loaded.config.log)?;
    // In the log rather than on the terminal: whoever reads JSON from standard error gets nothing else.
    for warning in &loaded.warnings {
        warn!(at = %warning.at, key = warning.path, "{}", warning.text());
    }
    files::raise_limit();
    let runtime = tokio::runtime::Runtime::new().context("cannot start the runtime")?;
    runtime.block_on(serve(&loaded))
}

async fn serve(loaded: &Loaded) -> Result<(), Failure> {
    let mut signals = Signals::new()?;
    let single_node = loaded.config.single_node.enabled.then(|| roles::single_node::prepare(loaded));
    let single_node = single_node.transpose()?;
    let listener = bind(loaded, &["telemetry", "listen"], loaded.config.telemetry.listen).await?;
    let listen = listener.local_addr().context("cannot read back the address listened on")?;

    let readiness = Readiness::default();
    let check = readiness.register("serve");
    let mut metrics = Metrics::new(VERSION, readiness.clone());
    // Sent or dropped, it means stop.
    let (stop, stopped) = watch::channel(false);
    let mut tasks: JoinSet<Result<(), Failure>> = JoinSet::new();
    let config = &loaded.config;
    if config.networking.enabled {
        roles::networking::start(loaded, &readiness, &mut metrics, &stopped, &mut tasks).await?;
    }
    if config.services.enabled {
        roles::services::start(loaded, &readiness, &mut metrics, &stopped, &mut tasks).await?;
    }
    if config.services.haproxy || config.services.ovn {
        roles::other_services::start(loaded, &readiness, &stopped, &mut tasks).await?;
    }
    if config.ingress_controllers.enabled {
        roles::ingress::start(loaded, &readiness, &mut metrics, &stopped, &mut tasks).await?;
    }
    if let Some(settings) = single_node {
        roles::single_node::start(loaded, settings, &readiness, &stopped, &mut tasks).await?;
    }
    if config.host.enabled {
        roles::host::start(loaded, &readiness, &mut metrics, &stopped, &mut tasks).await?;
    }
    if config.cluster_api.enabled {
        roles::cluster_api::start(loaded, &readiness, &mut metrics, &stopped, &mut tasks).await?;
    }
    if config.haproxy.enabled {
        roles::haproxy::start(loaded, &readiness, &mut metrics, &stopped, &mut tasks).await?;
    }
    if config.cloud_config.enabled {
        roles::cloud_config::start(loaded, &readiness, &stopped, &mut tasks).await?;
    }
    if tasks.is_empty() {
        warn!(
            "no role is enabled, so that only telemetry is served: set networking.enabled, services.enabled, services.haproxy, services.ovn, ingressControllers.enabled, singleNode.enabled, host.enabled, clusterApi.enabled or haproxy.enabled"
        );
    }
    // After the roles, which add what they count.
    let router = telemetry::router(readiness, metrics);
    let mut telemetry_stopped = stopped;
    tasks.spawn(async move {
        let stopped = async move { drop(telemetry_stopped.wait_for(|stop| *stop).await) };
        let served = telemetry::serve(listener, router, stopped).await;
        Ok(served.context("the telemetry server failed")?)
    });
    check.ready();
    info!(version = VERSION, mode = %loaded.config.mode, config = files(loaded), listen = %listen, "serving");

    let signal = tokio::select! {
        signal = signals.next() => signal,
        ended = tasks.join_next() => {
            ended.context("nothing runs")?.context("a role broke down")??;
            return Err(Failure::new(Exit::Failed, "a role ended by itself"));
        }
    };
    check.not_ready("shutting down");
    info!(signal, "stopping; a second signal ends at once");
    stop.send_replace(true);
    let finish = async {
        while let Some(ended) = tasks.join_next().await {
            ended.context("a role broke down")??;
        }
        Ok::<_, Failure>(())
    };
    tokio::select! {
        ended = finish => ended?,
        () = tokio::time::sleep(GRACE) => {
            warn!(seconds = GRACE.as_secs(), "requests were still open and have been cut off");
        }
        signal = signals.next() => {
            let error = format!("ended by a second signal, {signal}, with requests still open");
            return Err(Failure::new(Exit::Failed, error));
        }
    }
    info!("stopped");
    Ok(())
}

fn files(loaded: &Loaded) -> String {
    if loaded.files.is_empty() {
        return "none".to_owned();
    }
    let names: Vec<_> = loaded.files.iter().map(|f| f.display().to_string()).collect();
    names.join(", ")
}
