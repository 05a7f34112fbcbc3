//! Objects as the API has them, with what we wrote ourselves and the watch has not told of yet.

use std::collections::HashMap;
use std::fmt::Debug;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::{StreamExt, pin_mut};
use k8s_openapi::NamespaceResourceScope;
use kube::api::Api;
use kube::runtime::reflector::{ObjectRef, Store};
use kube::runtime::{WatchStreamExt, reflector, watcher};
use kube::{Resource, ResourceExt};
use serde::de::DeserializeOwned;
use tracing::warn;

/// An object that can be kept.
pub(super) trait Kept:
    Resource<DynamicType = (), Scope = NamespaceResourceScope>
    + Clone
    + Debug
    + DeserializeOwned
    + Send
    + Sync
    + 'static
{
}

impl<K> Kept for K where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + Debug
        + DeserializeOwned
        + Send
        + Sync
        + 'static
{
}

/// What a watch tells.
pub(super) enum Told<'a, K> {
    /// Something about this object.
    Object(&'a K),
    /// Everything was listed: objects may be gone without a word.
    All,
}

/// The objects of one kind in one namespace.
pub(super) struct Cache<K: Kept> {
    store: Store<K>,
    own: Own<K>,
    namespace: String,
}

/// What we wrote, by name.
type Own<K> = Arc<Mutex<HashMap<String, Arc<K>>>>;

impl<K: Kept> Cache<K> {
    /// Keeps them as long as what is given beside it runs; `tell` hears of every change once it is kept.
    pub(super) fn watch(
        api: Api<K>,
        namespace: &str,
        config: watcher::Config,
        tell: impl Fn(Told<'_, K>),
    ) -> (Self, impl Future<Output = ()>) {
        let (store, writer) = reflector::store();
        let own = Own::default();
        let cache = Cache { store, own: Arc::clone(&own), namespace: namespace.to_owned() };
        let watching = async move {
            let events = watcher(api, config).default_backoff().modify(lean).reflect(writer);
            pin_mut!(events);
            while let Some(event) = events.next().await {
                match event {
                    Ok(watcher::Event::Apply(object)) => {
                        let mut own = lock(&own);
                        if own.get(&object.name_any()).is_some_and(|ours| !is_newer(&**ours, &object)) {
                            own.remove(&object.name_any());
                        }
                        drop(own);
                        tell(Told::Object(&object));
                    }
                    Ok(watcher::Event::Delete(object)) => {
                        lock(&own).remove(&object.name_any());
                        tell(Told::Object(&object));
                    }
                    Ok(watcher::Event::InitDone) => {
                        lock(&own).clear();
                        tell(Told::All);
                    }
                    Ok(watcher::Event::Init | watcher::Event::InitApply(_)) => {}
                    Err(problem) => warn!(kind = %K::kind(&()), %problem, "objects cannot be watched"),
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
        let told = self.store.get(&ObjectRef::new(name).within(&self.namespace));
        let ours = lock(&self.own).get(name).cloned();
        match (told, ours) {
            (Some(told), Some(ours)) => Some(if is_newer(&*ours, &*told) { ours } else { told }),
            (told, ours) => told.or(ours),
        }
    }

    /// Keeps what a write gave.
    pub(super) fn wrote(&self, mut object: K) -> Arc<K> {
        lean(&mut object);
        let object = Arc::new(object);
        lock(&self.own).insert(object.name_any(), Arc::clone(&object));
        object
    }

    /// All that are known.
    pub(super) fn all(&self) -> Vec<Arc<K>> {
        self.store.state()
    }
}

fn lock<K>(own: &Own<K>) -> MutexGuard<'_, HashMap<String, Arc<K>>> {
    own.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Who wrote which field is of no interest here, and half of an object.
pub(super) fn lean<K: Resource>(object: &mut K) {
    object.meta_mut().managed_fields = None;
}

/// Whether one version of an object is newer than another. Versions are numbers that grow.
pub(super) fn is_newer<K: Resource>(one: &K, other: &K) -> bool {
    let version = |object: &K| object.resource_version().and_then(|version| version.parse::<u64>().ok());
    version(one) > version(other)
}
