//! A cloud-config that is kept in step with the one it is made from.

use std::time::Duration;

use portcullis_aws::CloudConfig;
use portcullis_controllers::{CloudConfigController, CloudConfigStep, Lease, Place};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::services::{host, kubernetes};
use crate::config::{Loaded, Mode};
use crate::exit::{Exit, Failure};
use crate::telemetry::{Check, Readiness};

/// Starts it; it ends when `stop` says so, or with a failure.
pub(crate) async fn start(
    loaded: &Loaded,
    readiness: &Readiness,
    stop: &watch::Receiver<bool>,
    tasks: &mut JoinSet<Result<(), Failure>>,
) -> Result<(), Failure> {
    let check = readiness.register("cloud-config");
    let config = &loaded.config.cloud_config;
    let place = |text: &String| {
        let (namespace, name) = text.split_once('/').ok_or_else(|| {
            let what = format!("`{text}` is not a ConfigMap: write NAMESPACE/NAME");
            Failure::new(Exit::Usage, what).state("Nothing was started.")
        })?;
        Ok::<_, Failure>(Place {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            key: config.key.clone(),
        })
    };
    let sources = config.sources.iter().map(place).collect::<Result<Vec<_>, _>>()?;
    let target = place(&config.target)?;
    let client = kubernetes(loaded).await?;
    let observe = loaded.config.mode == Mode::Observe;
    let lease = Lease::new(
        client.clone(),
        &loaded.config.services.lease.namespace,
        "portcullis-cloud-config",
        &host(),
    );
    let retry = Duration::from_secs(30);
    let controller = CloudConfigController { client, sources, target, transform, observe, retry };
    tasks.spawn(run(controller, lease, check, stop.clone()));
    Ok(())
}

fn transform(text: &str) -> Result<String, String> {
    let (config, _) = CloudConfig::parse(text).map_err(|error| error.to_string())?;
    Ok(config.with_openshift_defaults().to_string())
}

async fn run(
    controller: CloudConfigController,
    lease: Lease,
    check: Check,
    mut stop: watch::Receiver<bool>,
) -> Result<(), Failure> {
    check.ready();
    let observe = controller.observe;
    let running = controller.run(|step| match step {
        CloudConfigStep::InStep => check.ready(),
        CloudConfigStep::Wrong(why) | CloudConfigStep::Unavailable(why) => check.not_ready(why),
    });
    if observe {
        tokio::select! {
            () = running => {}
            _ = stop.wait_for(|stop| *stop) => {}
        }
        return Ok(());
    }
    let mut leadership = tokio::select! {
        leadership = lease.clone().hold() => leadership,
        _ = stop.wait_for(|stop| *stop) => return Ok(()),
    };
    tokio::select! {
        () = running => {}
        why = leadership.lost() => return Err(Failure::new(Exit::Failed, format!("{why}"))),
        _ = stop.wait_for(|stop| *stop) => {}
    }
    drop(leadership);
    lease.release().await;
    Ok(())
}
