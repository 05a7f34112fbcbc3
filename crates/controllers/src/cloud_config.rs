//! Keeps a cloud-config in step with the one it is made from.

use std::time::Duration;

use futures_util::{StreamExt, pin_mut, stream};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Client;
use kube::api::{Api, Patch, PatchParams};
use kube::runtime::{WatchStreamExt, watcher};
use serde_json::json;
use tokio::time::{Instant, timeout_at};
use tracing::{error, info, warn};

/// A key of a `ConfigMap`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// The key in it.
    pub key: String,
}

/// Keeps what stands at one place in step with what stands at another.
#[allow(missing_debug_implementations, reason = "a client of Kubernetes has none")]
pub struct CloudConfigController {
    /// The Kubernetes API.
    pub client: Client,
    /// Where it comes from: the first of these that is there.
    pub sources: Vec<Place>,
    /// Where it goes to.
    pub target: Place,
    /// What is made of it; an error says what is wrong with it.
    pub transform: fn(&str) -> Result<String, String>,
    /// Only say what would be written.
    pub observe: bool,
    /// How long after the API could not be used it is tried again, if no event comes before.
    pub retry: Duration,
}

/// How it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// The target is as it should be.
    InStep,
    /// The source cannot be used: nothing is written until it is another.
    Wrong(String),
    /// The API could not be used; it is tried again after a while, or with the next event.
    Unavailable(String),
}

impl CloudConfigController {
    /// Does so until it is dropped, and tells how it stands after every event.
    pub async fn run(self, mut tell: impl FnMut(Step)) {
        let watched = self.sources.iter().chain([&self.target]).map(|place| {
            let api: Api<ConfigMap> = Api::namespaced(self.client.clone(), &place.namespace);
            let one = watcher::Config::default().fields(&format!("metadata.name={}", place.name));
            watcher(api, one).default_backoff().boxed()
        });
        let events = stream::select_all(watched.collect::<Vec<_>>());
        pin_mut!(events);
        let mut again = None;
        loop {
            let event = match again {
                Some(when) => timeout_at(when, events.next()).await,
                None => Ok(events.next().await),
            };
            match event {
                // It is time to try again.
                Err(_) => {}
                Ok(None) => return,
                Ok(Some(event)) => match event {
                    // Between these it is not known yet what is there.
                    Ok(watcher::Event::Init | watcher::Event::InitApply(_)) => continue,
                    Ok(_) => {}
                    Err(problem) => {
                        warn!(%problem, "a cloud-config cannot be watched");
                        continue;
                    }
                },
            }
            let step = self.step().await;
            again = matches!(step, Step::Unavailable(_)).then(|| Instant::now() + self.retry);
            tell(step);
        }
    }

    /// Looks at both, and writes what differs.
    async fn step(&self) -> Step {
        let source = match self.source().await {
            Ok(source) => source,
            Err(problem) => return Step::Unavailable(problem.to_string()),
        };
        let wanted = match (self.transform)(&source) {
            Ok(wanted) => wanted,
            Err(why) => {
                error!(why, "the cloud-config cannot be used; the one that is there stays");
                return Step::Wrong(why);
            }
        };
        match self.write(&wanted).await {
            Ok(()) => Step::InStep,
            Err(problem) => {
                warn!(%problem, "the cloud-config cannot be written");
                Step::Unavailable(problem.to_string())
            }
        }
    }

    /// What it is made from; nothing, if there is nothing.
    async fn source(&self) -> Result<String, kube::Error> {
        for place in &self.sources {
            if let Some(text) = self.read(place).await? {
                return Ok(text);
            }
        }
        Ok(String::new())
    }

    async fn read(&self, place: &Place) -> Result<Option<String>, kube::Error> {
        let api: Api<ConfigMap> = Api::namespaced(self.client.clone(), &place.namespace);
        let found = api.get_opt(&place.name).await?;
        Ok(found.and_then(|found| found.data?.remove(&place.key)))
    }

    async fn write(&self, wanted: &str) -> Result<(), kube::Error> {
        let Place { namespace, name, key } = &self.target;
        if self.read(&self.target).await?.as_deref() == Some(wanted) {
            return Ok(());
        }
        if self.observe {
            info!(namespace, name, key, wanted, "this would be written");
            return Ok(());
        }
        // Other keys of it are others'.
        let object = json!({
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": name, "namespace": namespace},
            "data": {key: wanted},
        });
        let api: Api<ConfigMap> = Api::namespaced(self.client.clone(), namespace);
        api.patch(name, &PatchParams::apply("portcullis").force(), &Patch::Apply(object)).await?;
        info!(namespace, name, key, "the cloud-config was written");
        Ok(())
    }
}
