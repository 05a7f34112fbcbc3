//! Looks after `IngressControllers`.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::{StreamExt, stream};
use k8s_openapi::Resource as _;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Event, Service};
use kube::api::Api;
use kube::runtime::controller::{self, Action, Config, Controller};
use kube::runtime::reflector::{ObjectRef, Store};
use kube::runtime::{WatchStreamExt, reflector, watcher};
use kube::{Client, Resource, ResourceExt};
use portcullis_kube_api::ingress::{IngressController, OWNING_LABEL};
use tokio::sync::mpsc;
use tokio::time::sleep;
use tracing::warn;

use super::cache::{Cache, PAGE, Told, is_newer, lean};
use super::others::Others;
use super::pace::Pace;
use super::watches::Watches;
use super::words::Words;
use super::{Enforcer, Standing, shared};
use crate::events::Events;
use crate::router::RouterSettings;

/// How `IngressControllers` are looked after.
#[derive(Clone, Debug)]
pub struct IngressSettings {
    /// The namespace that they are in.
    pub namespace: String,
    /// What their routers have in common.
    pub router: RouterSettings,
    /// Who keeps out whom ranges do not let in.
    pub enforcer: Enforcer,
    /// How many are dealt with at the same time.
    pub concurrency: u16,
    /// Only watch, and tell what would be done.
    pub observe: bool,
    /// Who this is, in Events.
    pub host: String,
}

/// How long is waited after a failure, at first and at most.
const BACKOFF: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

/// How often one that was refused is looked at: another one may have given its domain up.
pub(super) const LOOK_AGAIN: Duration = Duration::from_secs(15);

/// What is most likely missing.
const NOT_INSTALLED: &str =
    "If the type is not installed: portcullis crds | kubectl apply --server-side -f -";

/// How often what all routers share is looked at.
const LOOK_AT_SHARED: Duration = Duration::from_secs(300);

/// Looks after the `IngressControllers` of a cluster.
#[allow(missing_debug_implementations, reason = "a client of Kubernetes has none")]
pub struct IngressControllers {
    client: Client,
    settings: IngressSettings,
    standing: Standing,
    watches: Watches,
}

pub(super) struct Context {
    pub(super) client: Client,
    pub(super) settings: IngressSettings,
    pub(super) controllers: Store<IngressController>,
    pub(super) services: Cache<Service>,
    pub(super) deployments: Cache<Deployment>,
    pub(super) others: Others,
    pub(super) failures_of_providers: Cache<Event>,
    pub(super) events: Events,
    pub(super) standing: Standing,
    /// What was said by Events lately.
    pub(super) words: Words,
    /// How often somebody was corrected.
    pub(super) pace: Pace,
    /// How often in a row something failed.
    failures: Mutex<HashMap<String, u32>>,
    /// What we wrote, which the watch may not have told of yet.
    written: Mutex<HashMap<String, Arc<IngressController>>>,
}

/// Nothing goes wrong that is not dealt with where it does.
type Never = std::convert::Infallible;

/// It did not come to its end, and is tried again later; after this time at the latest.
pub(super) struct Again(pub(super) Option<Duration>);

impl IngressControllers {
    /// Looks after them so.
    pub fn new(client: Client, settings: IngressSettings) -> Self {
        let watches = Watches::default();
        watches.expect(IngressController::KIND);
        IngressControllers { client, settings, standing: Standing::default(), watches }
    }

    /// What is missing, while they are looked after.
    pub fn watches(&self) -> Watches {
        self.watches.clone()
    }

    /// How they stand, while they are looked after.
    pub fn standing(&self) -> Standing {
        self.standing.clone()
    }

    /// Does so until it is dropped.
    pub async fn run(self) {
        let IngressControllers { client, settings, standing, watches } = self;
        let (one, ones) = mpsc::unbounded_channel();
        let (all, alls) = mpsc::unbounded_channel();
        let namespace = settings.namespace.clone();
        let hear = move |name: Option<String>| match name {
            Some(name) => drop(one.send(ObjectRef::new(&name).within(&namespace))),
            None => drop(all.send(())),
        };
        let routers = settings.router.namespace.clone();
        let owned = watcher::Config::default().labels(OWNING_LABEL);
        let (services, watching_services) = Cache::watch(
            Api::namespaced(client.clone(), &routers),
            &routers,
            owned.clone(),
            &watches,
            owner_told(hear.clone()),
        );
        let (deployments, watching_deployments) = Cache::watch(
            Api::namespaced(client.clone(), &routers),
            &routers,
            owned,
            &watches,
            owner_told(hear.clone()),
        );
        let (others, watching_others) = Others::watch(&client, &settings.router, &watches, hear.clone());
        let failing =
            watcher::Config::default().fields("reason=SyncLoadBalancerFailed,involvedObject.kind=Service");
        let (failures, watching_failures) = Cache::watch(
            Api::namespaced(client.clone(), &routers),
            &routers,
            failing,
            &watches,
            move |told: Told<'_, Event>| {
                let Told::Object(event) = told else { return };
                let service = event.involved_object.name.as_deref().unwrap_or_default();
                if let Some(name) = service.strip_prefix("router-") {
                    hear(Some(name.to_owned()));
                }
            },
        );

        let (controllers, writer) = reflector::store();
        let api: Api<IngressController> = Api::namespaced(client.clone(), &settings.namespace);
        let events = watcher(api, watcher::Config::default().page_size(PAGE))
            .default_backoff()
            .modify(lean)
            .reflect(writer)
            .inspect(noting(standing.clone(), controllers.clone(), watches))
            .touched_objects();
        let controller = Controller::for_stream(events, controllers.clone())
            .with_config(Config::default().concurrency(settings.concurrency))
            .reconcile_on(stream::unfold(ones, |mut ones| async { ones.recv().await.map(|one| (one, ones)) }))
            .reconcile_all_on(stream::unfold(alls, |mut alls| async {
                alls.recv().await.map(|()| ((), alls))
            }));
        let context = Arc::new(Context {
            events: Events::new(client.clone(), "ingress-controller", &settings.host),
            client,
            settings,
            controllers,
            services,
            deployments,
            others,
            failures_of_providers: failures,
            standing,
            pace: Pace::default(),
            words: Words::default(),
            failures: Mutex::default(),
            written: Mutex::default(),
        });
        let reconciling = async {
            // Once for all: of several that wait for a store, only the last is woken.
            context.ready().await;
            let done = controller.run(reconcile, |_, error: &Never, _| match *error {}, Arc::clone(&context));
            done.for_each(|done| {
                if let Err(controller::Error::QueueError(problem)) = done {
                    warn!(%problem, remedy = NOT_INSTALLED, "IngressControllers cannot be watched");
                }
                std::future::ready(())
            })
            .await;
        };
        let sharing = async {
            loop {
                Box::pin(shared::ensure(&context.client, &context.settings.router, context.settings.observe))
                    .await;
                sleep(LOOK_AT_SHARED).await;
            }
        };
        let watching = Box::pin(async {
            tokio::join!(watching_services, watching_deployments, watching_failures, watching_others)
        });
        tokio::join!(reconciling, sharing, context.sum_up(), watching);
    }
}

/// Takes note of who is there: who is gone without a word is counted no more.
fn noting(
    standing: Standing,
    known: Store<IngressController>,
    watches: Watches,
) -> impl Fn(&Result<watcher::Event<IngressController>, watcher::Error>) {
    move |event| match event {
        Ok(watcher::Event::Delete(gone)) => standing.forget(gone.name()),
        Ok(watcher::Event::InitDone) => {
            let known = known.state();
            standing.keep(|name| known.iter().any(|one| one.name() == name));
            watches.have(IngressController::KIND);
        }
        Ok(_) => {}
        Err(problem) => watches.lack(IngressController::KIND, &format!("{problem}. {NOT_INSTALLED}")),
    }
}

/// Hears whose object changed.
pub(super) fn owner_told<K: Resource>(hear: impl Fn(Option<String>)) -> impl Fn(Told<'_, K>) {
    move |told| match told {
        Told::Object(object) => {
            if let Some(owner) = object.labels().get(OWNING_LABEL) {
                hear(Some(owner.clone()));
            }
        }
        Told::All => hear(None),
    }
}

async fn reconcile(controller: Arc<IngressController>, context: Arc<Context>) -> Result<Action, Never> {
    let name = controller.name().to_owned();
    let controller = context.newest(controller);
    let done = Box::pin(context.reconcile(&controller)).await;
    let mut failures = context.failures();
    let latest = match done {
        Ok(again) => {
            failures.remove(&name);
            return Ok(again.map_or_else(Action::await_change, Action::requeue));
        }
        Err(Again(latest)) => latest.unwrap_or(BACKOFF.1),
    };
    let count = failures.entry(name).or_default();
    *count += 1;
    let (first, most) = BACKOFF;
    Ok(Action::requeue((first * 2_u32.saturating_pow(*count - 1).min(1000)).min(most).min(latest)))
}

impl Context {
    fn failures(&self) -> MutexGuard<'_, HashMap<String, u32>> {
        self.failures.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn written(&self) -> MutexGuard<'_, HashMap<String, Arc<IngressController>>> {
        self.written.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn ready(&self) {
        self.services.ready().await;
        self.deployments.ready().await;
        self.others.ready().await;
        self.failures_of_providers.ready().await;
    }

    /// What we wrote, if that is newer than what was told.
    fn newest(&self, told: Arc<IngressController>) -> Arc<IngressController> {
        let mut written = self.written();
        match written.get(told.name()) {
            Some(ours) if is_newer(&**ours, &*told) && ours.metadata.uid == told.metadata.uid => {
                Arc::clone(ours)
            }
            Some(_) => {
                written.remove(told.name());
                told
            }
            None => told,
        }
    }

    pub(super) fn wrote(&self, mut controller: IngressController) -> Arc<IngressController> {
        lean(&mut controller);
        let controller = Arc::new(controller);
        self.written().insert(controller.name().to_owned(), Arc::clone(&controller));
        controller
    }

    pub(super) fn api(&self) -> Api<IngressController> {
        Api::namespaced(self.client.clone(), &self.settings.namespace)
    }
}
