//! What the API tells whoever watches: what is written, and when.

use std::collections::HashMap;
use std::fmt::Debug;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use futures_util::StreamExt;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::{NamespaceResourceScope, Resource};
use kube::ResourceExt;
use kube::api::{Api, WatchEvent, WatchParams};
use portcullis_kube_api::ingress::{ConditionStatus, IngressController};
use serde::de::DeserializeOwned;
use tokio::sync::Notify;

use crate::world::{CONTROLLERS, FLOOR, ROUTERS, World};

/// Who watches everything.
#[derive(Clone, Default)]
pub(crate) struct Seen(Arc<Inner>);

#[derive(Default)]
struct Inner {
    known: Mutex<Known>,
    changed: Notify,
}

#[derive(Default)]
struct Known {
    /// The ranges of Services, and since when.
    ranges: HashMap<String, (Vec<String>, Instant)>,
    settled: HashMap<String, bool>,
    /// Who has nothing left to wait for.
    well: HashMap<String, bool>,
    /// How often each object of ours was written.
    written: HashMap<(&'static str, String), usize>,
}

/// What was written.
pub(crate) struct Writes {
    pub(crate) ours: usize,
    pub(crate) most_of_one_service: usize,
    pub(crate) most_of_one_deployment: usize,
    pub(crate) most_of_one_budget: usize,
}

impl Writes {
    pub(crate) fn all(&self) -> usize {
        self.ours
    }
}

impl Seen {
    pub(crate) async fn watch(world: &World) -> Self {
        let seen = Seen::default();
        let client = &world.client;
        let controllers: Api<IngressController> = Api::namespaced(client.clone(), CONTROLLERS);
        seen.follow(controllers, true, |known, controller| {
            let is = |type_: &str, status: ConditionStatus| {
                let mut told = controller.status.conditions.iter();
                told.any(|condition| condition.type_ == type_ && condition.status == status)
            };
            let rests = is("LoadBalancerProgressing", ConditionStatus::False);
            let well = is("Available", ConditionStatus::True) && is("Degraded", ConditionStatus::False);
            known
                .well
                .insert(controller.name().to_owned(), well && is("Progressing", ConditionStatus::False));
            let current = controller.status.observed_generation == controller.metadata.generation;
            known.settled.insert(controller.name().to_owned(), rests && current);
        })
        .await;
        let keep = |known: &mut Known, service: &Service| {
            let ranges = service.spec.as_ref().and_then(|spec| spec.load_balancer_source_ranges.clone());
            known.ranges.insert(service.name_any(), (ranges.unwrap_or_default(), Instant::now()));
        };
        seen.follow(Api::<Service>::namespaced(client.clone(), ROUTERS), true, keep).await;
        seen.follow(Api::<Service>::namespaced(client.clone(), FLOOR), false, keep).await;
        seen.follow(Api::<Deployment>::namespaced(client.clone(), ROUTERS), true, |_, _| {}).await;
        seen.follow(Api::<PodDisruptionBudget>::namespaced(client.clone(), ROUTERS), true, |_, _| {}).await;
        seen
    }

    /// Follows all objects of a kind from now on, and counts how often each is written, if it is of ours.
    async fn follow<K>(&self, api: Api<K>, ours: bool, keep: impl Fn(&mut Known, &K) + Send + 'static)
    where
        K: Resource<Scope = NamespaceResourceScope>
            + kube::Resource<DynamicType = ()>
            + Clone
            + Debug
            + DeserializeOwned
            + Send
            + 'static,
    {
        let listed = api.list(&kube::api::ListParams::default()).await.unwrap();
        let mut version = listed.metadata.resource_version.unwrap();
        let seen = self.clone();
        tokio::spawn(async move {
            loop {
                // At the end of it all the API goes first.
                let Ok(events) = api.watch(&WatchParams::default(), &version).await else { return };
                let mut events = events.boxed();
                while let Some(Ok(event)) = events.next().await {
                    let (WatchEvent::Added(object) | WatchEvent::Modified(object)) = event else {
                        continue;
                    };
                    version = object.resource_version().unwrap();
                    let mut known = seen.0.known.lock().unwrap();
                    if ours {
                        *known.written.entry((K::KIND, object.name_any())).or_default() += 1;
                    }
                    keep(&mut known, &object);
                    drop(known);
                    seen.0.changed.notify_waiters();
                }
            }
        });
    }

    pub(crate) fn take_writes(&self) -> Writes {
        let written = std::mem::take(&mut self.0.known.lock().unwrap().written);
        let most = |kind: &str| {
            let counts = written.iter().filter(|((of, _), _)| *of == kind).map(|(_, count)| *count);
            counts.max().unwrap_or(0)
        };
        Writes {
            ours: written.values().sum(),
            most_of_one_service: most(Service::KIND),
            most_of_one_deployment: most(Deployment::KIND),
            most_of_one_budget: most(PodDisruptionBudget::KIND),
        }
    }

    pub(crate) async fn until_settled(&self, count: usize) {
        self.until(|known| {
            (known.settled.values().filter(|settled| **settled).count() >= count).then_some(())
        })
        .await;
    }

    pub(crate) async fn until_well(&self, count: usize) {
        self.until(|known| (known.well.values().filter(|well| **well).count() >= count).then_some(())).await;
    }

    /// When a Service had these ranges.
    pub(crate) async fn until_ranges(&self, service: &str, range: &str) -> Instant {
        self.until(|known| {
            known.ranges.get(service).filter(|(ranges, _)| ranges == &[range]).map(|(_, at)| *at)
        })
        .await
    }

    async fn until<T>(&self, mut found: impl FnMut(&Known) -> Option<T>) -> T {
        loop {
            let changed = self.0.changed.notified();
            if let Some(found) = found(&self.0.known.lock().unwrap()) {
                return found;
            }
            changed.await;
        }
    }
}
