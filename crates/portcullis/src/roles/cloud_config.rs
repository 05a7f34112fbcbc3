//! A cloud-config that is kept in step with the one it is made from.

use std::time::Duration;

use portcullis_aws::CloudConfig;
use portcullis_controllers::{CloudConfigController, CloudConfigStep, Lease, Place};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::lead;
use super::services::{host, kubernetes};
use crate::config::{Loaded, Mode};
use crate::exit::{Exit, Failure};
use crate::telemetry::Readiness;

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
    check.ready();
    let working = controller.run(move |step| match step {
        CloudConfigStep::InStep => check.ready(),
        CloudConfigStep::Wrong(why) | CloudConfigStep::Unavailable(why) => check.not_ready(why),
    });
    tasks.spawn(lead((!observe).then_some(lease), stop.clone(), working));
    Ok(())
}

fn transform(text: &str) -> Result<String, String> {
    let (config, _) = CloudConfig::parse(text).map_err(|error| error.to_string())?;
    Ok(config.with_openshift_defaults().to_string())
}
