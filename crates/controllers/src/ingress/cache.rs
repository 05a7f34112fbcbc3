//! Objects as the API has them, with what we wrote ourselves and the watch has not told of yet.

use std::collections::HashMap;
use std::fmt::Debug;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use futures_util::{StreamExt, pin_mut};
use kube::api::Api;
use kube::runtime::reflector::{ObjectRef, Store};
use kube::runtime::{WatchStreamExt, reflector, watcher};
use kube::{Resource, ResourceExt};
use serde::de::DeserializeOwned;
use tracing::warn;

use super::watches::Watches;

/// An object that can be kept.
pub(super) trait Kept:
    Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync + 'static
{
}

impl<K> Kept for K where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync + 'static
{
}

/// What a watch tells.
pub(super) enum Told<'a, K> {
    /// Something about this object.
    Object(&'a K),
    /// Everything was listed: objects may be gone without a word.
    All,
}

/// The objects of one kind in one namespace; in none, if they have none.
pub(super) struct Cache<K: Kept> {
    store: Store<K>,
    own: Own<K>,
    namespace: String,
}

/// What we wrote, by name.
type Own<K> = Arc<Mutex<Written<K>>>;

/// So many objects come at a time when all are listed.
pub(super) const PAGE: u32 = 50;

/// For how long an answer to a write may be on its way.
const ON_THE_WAY: Duration = Duration::from_secs(120);

struct Written<K> {
    objects: HashMap<String, Arc<K>>,
    /// What is gone since a short time. An answer to a write may come after the news that what it made is gone.
    gone: HashMap<String, (Option<u64>, Instant)>,
}

impl<K> Default for Written<K> {
    fn default() -> Self {
        Written { objects: HashMap::new(), gone: HashMap::new() }
    }
}

impl<K: Kept> Cache<K> {
    /// Keeps them as long as what is given beside it runs; `tell` hears of every change once it is kept.
    pub(super) fn watch<F: Fn(Told<'_, K>)>(
        api: Api<K>,
        namespace: &str,
        config: watcher::Config,
        watches: &Watches,
        tell: F,
    ) -> (Self, impl Future<Output = ()> + use<K, F>) {
        let (store, writer) = reflector::store();
        let own = Own::default();
        let cache = Cache { store, own: Arc::clone(&own), namespace: namespace.to_owned() };
        let (watches, kind) = (watches.clone(), K::kind(&()));
        watches.expect(&kind);
        let watching = async move {
            // Lists come whole pages at a time, with all that is dropped then: small ones take less memory.
            let events = watcher(api, config.page_size(PAGE)).default_backoff().modify(lean).reflect(writer);
            pin_mut!(events);
            while let Some(event) = events.next().await {
                match event {
                    Ok(watcher::Event::Apply(object)) => {
                        let (mut own, name) = (lock(&own), object.name_any());
                        own.gone.remove(&name);
                        if own.objects.get(&name).is_some_and(|ours| !is_newer(&**ours, &object)) {
                            own.objects.remove(&name);
                        }
                        drop(own);
                        tell(Told::Object(&object));
                    }
                    Ok(watcher::Event::Delete(object)) => {
                        let mut own = lock(&own);
                        own.objects.remove(&object.name_any());
                        let now = Instant::now();
                        own.gone.retain(|_, (_, since)| now.duration_since(*since) < ON_THE_WAY);
                        own.gone.insert(object.name_any(), (version(&object), now));
                        drop(own);
                        tell(Told::Object(&object));
                    }
                    Ok(watcher::Event::InitDone) => {
                        *lock(&own) = Written::default();
                        watches.have(&kind);
                        tell(Told::All);
                    }
                    Ok(watcher::Event::Init | watcher::Event::InitApply(_)) => {}
                    Err(problem) => {
                        warn!(%kind, %problem, "objects cannot be watched");
                        watches.lack(&kind, &problem.to_string());
                    }
                }
            }
        };
        (cache, watching)
    }

    /// Waits until all are known.
    pub(super) async fn ready(&self) {
        let _ = self.store.wait_until_ready().await;
    }

    /// The namespace that they are in.
    pub(super) fn namespace(&self) -> &str {
        &self.namespace
    }

    /// The newest of that name that is known.
    pub(super) fn get(&self, name: &str) -> Option<Arc<K>> {
        let key = ObjectRef::new(name);
        let key = if self.namespace.is_empty() { key } else { key.within(&self.namespace) };
        let told = self.store.get(&key);
        let ours = lock(&self.own).objects.get(name).cloned();
        match (told, ours) {
            (Some(told), Some(ours)) => Some(if is_newer(&*ours, &*told) { ours } else { told }),
            (told, ours) => told.or(ours),
        }
    }

    /// Keeps what a write gave.
    pub(super) fn wrote(&self, mut object: K) -> Arc<K> {
        lean(&mut object);
        let object = Arc::new(object);
        let (mut own, name) = (lock(&self.own), object.name_any());
        if own.gone.get(&name).is_none_or(|(gone, _)| version(&*object) > *gone) {
            own.gone.remove(&name);
            own.objects.insert(name, Arc::clone(&object));
        }
        drop(own);
        object
    }

    /// All that are known.
    pub(super) fn all(&self) -> Vec<Arc<K>> {
        self.store.state()
    }
}

fn lock<K>(own: &Own<K>) -> MutexGuard<'_, Written<K>> {
    own.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Who wrote which field is of no interest here, and half of an object.
pub(super) fn lean<K: Resource>(object: &mut K) {
    object.meta_mut().managed_fields = None;
}

/// Whether one version of an object is newer than another. Versions are numbers that grow.
pub(super) fn is_newer<K: Resource>(one: &K, other: &K) -> bool {
    version(one) > version(other)
}

fn version<K: Resource>(object: &K) -> Option<u64> {
    object.resource_version().and_then(|version| version.parse().ok())
}
