//! Objects of one kind as the API has them: what a watch tells, and what we wrote and it has not told of yet.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use futures_util::{StreamExt, pin_mut};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Client;
use kube::api::{Api, DeleteParams, Patch, PatchParams};
use kube::core::{ApiResource, Status};
use kube::runtime::{WatchStreamExt, watcher};
use portcullis_kube_api::cluster::Object;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::sync::watch;
use tracing::warn;

use super::thing::{Thing, Told};

/// A namespace and a name.
pub(crate) type Key = (String, String);

/// The objects of one kind.
pub(crate) struct Shelf<S, T> {
    kept: Arc<Mutex<Kept<S, T>>>,
    known: watch::Sender<Option<Result<(), String>>>,
    resource: ApiResource,
    /// Only those of this namespace, if one is given.
    namespace: Option<String>,
}

struct Kept<S, T> {
    objects: BTreeMap<Key, Arc<Thing<S, T>>>,
    /// What went a short time ago, with its last version: an answer to a write may come after the news that it is gone.
    gone: HashMap<Key, (u64, Instant)>,
    /// What cannot be read of an object, by now.
    unread: BTreeMap<Key, String>,
}

/// For how long an answer to a write may be on its way.
const ON_THE_WAY: Duration = Duration::from_secs(120);

/// So many objects come at a time when all are listed.
const PAGE: u32 = 100;

impl<S, T> Shelf<S, T>
where
    S: Default + DeserializeOwned + Clone + std::fmt::Debug + Send + Sync + 'static,
    T: Default + DeserializeOwned + Clone + std::fmt::Debug + Send + Sync + 'static,
{
    pub(crate) fn new(resource: ApiResource, namespace: Option<String>) -> Self {
        Shelf {
            kept: Arc::new(Mutex::new(Kept {
                objects: BTreeMap::new(),
                gone: HashMap::new(),
                unread: BTreeMap::new(),
            })),
            known: watch::Sender::new(None),
            resource,
            namespace,
        }
    }

    /// The same objects, as another version of the API has them.
    pub(crate) fn under(&self, resource: ApiResource) -> Self {
        let (kept, known) = (Arc::clone(&self.kept), self.known.clone());
        Shelf { kept, known, resource, namespace: self.namespace.clone() }
    }

    /// Keeps it up to date until it is dropped; `tell` hears of every change once it is kept.
    pub(crate) async fn watch(&self, client: Client, tell: impl Fn(&Thing<S, T>)) {
        self.follow(client, tell, false).await;
    }

    /// The same, for as long as the API has this version of it.
    pub(crate) async fn watch_while_served(&self, client: Client, tell: impl Fn(&Thing<S, T>)) {
        self.follow(client, tell, true).await;
    }

    async fn follow(&self, client: Client, tell: impl Fn(&Thing<S, T>), while_served: bool) {
        let api: Api<Told<S, T>> = match &self.namespace {
            Some(namespace) => Api::namespaced_with(client, namespace, &self.resource),
            None => Api::all_with(client, &self.resource),
        };
        let events = watcher(api, watcher::Config::default().page_size(PAGE)).default_backoff();
        pin_mut!(events);
        let mut listed: HashSet<Key> = HashSet::new();
        while let Some(event) = events.next().await {
            match event {
                Ok(watcher::Event::Init) => listed.clear(),
                Ok(watcher::Event::InitApply(object)) => {
                    listed.insert(key_of(&object.metadata));
                    self.hear(object, &tell);
                }
                Ok(watcher::Event::InitDone) => {
                    let lost: Vec<Arc<Thing<S, T>>> = {
                        let mut kept = self.kept();
                        let lost = kept.objects.iter().filter(|(key, _)| !listed.contains(*key));
                        let lost: Vec<_> = lost.map(|(_, object)| Arc::clone(object)).collect();
                        for object in &lost {
                            kept.objects.remove(&key(object));
                        }
                        kept.unread.retain(|key, _| listed.contains(key));
                        lost
                    };
                    for object in &lost {
                        tell(object);
                    }
                    self.known.send_replace(Some(Ok(())));
                }
                Ok(watcher::Event::Apply(object)) => self.hear(object, &tell),
                Ok(watcher::Event::Delete(object)) => {
                    let key = key_of(&object.metadata);
                    let last = {
                        let (mut kept, now) = (self.kept(), Instant::now());
                        kept.gone.retain(|_, (_, since)| now.duration_since(*since) < ON_THE_WAY);
                        kept.gone.insert(key.clone(), (version_of(&object.metadata), now));
                        kept.unread.remove(&key);
                        kept.objects.remove(&key)
                    };
                    let (object, _) = read(object, last.as_deref());
                    if let Some(object) = object.or_else(|| last.map(Arc::unwrap_or_clone)) {
                        tell(&object);
                    }
                }
                Err(problem) => {
                    warn!(kind = self.resource.kind, %problem, "objects cannot be watched");
                    self.known.send_if_modified(|known| {
                        let is_new = !matches!(known, Some(Ok(())));
                        if is_new {
                            *known = Some(Err(problem.to_string()));
                        }
                        is_new
                    });
                    if while_served && is_unserved(&problem) {
                        return;
                    }
                }
            }
        }
    }

    /// A watch told of an object.
    fn hear(&self, object: Told<S, T>, tell: &impl Fn(&Thing<S, T>)) {
        if let Some(object) = self.keep_told(object) {
            tell(&object);
        }
    }

    /// Waits until all are known, or until it is known why they are not.
    pub(crate) async fn first_look(&self) -> Result<(), String> {
        let mut known = self.known.subscribe();
        let result = match known.wait_for(Option::is_some).await {
            Ok(found) => found.clone(),
            Err(_) => None,
        };
        result.unwrap_or(Ok(()))
    }

    /// Waits until all are known.
    pub(crate) async fn ready(&self) {
        let _ = self.known.subscribe().wait_for(|known| matches!(known, Some(Ok(())))).await;
    }

    /// Whether all are known.
    pub(crate) fn is_known(&self) -> bool {
        matches!(&*self.known.borrow(), Some(Ok(())))
    }

    /// Whether it is known that they cannot be seen, and never could: nothing was ever asked of any of them by us.
    pub(crate) fn is_unseen(&self) -> bool {
        matches!(&*self.known.borrow(), Some(Err(_)))
    }

    pub(crate) fn resource(&self) -> &ApiResource {
        &self.resource
    }

    pub(crate) fn get(&self, namespace: &str, name: &str) -> Option<Arc<Thing<S, T>>> {
        self.kept().objects.get(&(namespace.to_owned(), name.to_owned())).cloned()
    }

    /// All of a namespace.
    pub(crate) fn of(&self, namespace: &str) -> Vec<Arc<Thing<S, T>>> {
        let from = (namespace.to_owned(), String::new());
        let kept = self.kept();
        let found = kept.objects.range(from..).take_while(|((found, _), _)| found == namespace);
        found.map(|(_, object)| Arc::clone(object)).collect()
    }

    pub(crate) fn all(&self) -> Vec<Arc<Thing<S, T>>> {
        self.kept().objects.values().cloned().collect()
    }

    /// Why something of an object cannot be read: what was known of it before counts, if anything was.
    pub(crate) fn unread(&self, namespace: &str, name: &str) -> Option<String> {
        self.kept().unread.get(&(namespace.to_owned(), name.to_owned())).cloned()
    }

    /// All of a namespace of which something cannot be read, and nothing was known before: they are there, and among no others.
    pub(crate) fn unknown(&self, namespace: &str) -> Vec<(String, String)> {
        let kept = self.kept();
        let unknown = kept.unread.iter().filter(|(key, _)| !kept.objects.contains_key(*key));
        let of_it = unknown.filter(|((found, _), _)| found == namespace);
        of_it.map(|((_, name), why)| (name.clone(), why.clone())).collect()
    }

    /// Whether an object is there of which nothing is known, as it cannot be read.
    pub(crate) fn is_unknown(&self, key: &Key) -> bool {
        let kept = self.kept();
        kept.unread.contains_key(key) && !kept.objects.contains_key(key)
    }

    /// Keeps what a write gave, or a watch told, if it is news.
    pub(crate) fn keep(&self, object: Thing<S, T>) -> Option<Arc<Thing<S, T>>> {
        self.keep_told(object.into())
    }

    /// The same of what may not be read as a whole.
    fn keep_told(&self, mut object: Told<S, T>) -> Option<Arc<Thing<S, T>>> {
        // Who wrote which field is of no interest here, and half of an object.
        object.metadata.managed_fields = None;
        let (mut kept, key) = (self.kept(), key_of(&object.metadata));
        let is_old = |other: u64| version_of(&object.metadata) < other;
        if kept.gone.get(&key).is_some_and(|(gone, _)| is_old(*gone))
            || kept.objects.get(&key).is_some_and(|found| is_old(version(found)))
        {
            return None;
        }
        kept.gone.remove(&key);
        let (object, why) = read(object, kept.objects.get(&key).map(AsRef::as_ref));
        let before = match &why {
            Some(why) => kept.unread.insert(key.clone(), why.clone()),
            None => kept.unread.remove(&key),
        };
        if let Some(why) = why.filter(|why| before.as_ref() != Some(why)) {
            let (namespace, name) = &key;
            warn!(kind = self.resource.kind, namespace, name, %why, "an object cannot be read: what was known of it before counts");
        }
        let object = Arc::new(object?);
        kept.objects.insert(key, Arc::clone(&object));
        Some(object)
    }

    /// Changes an object by a merge patch, and keeps what it became. One that is gone need not be changed any more.
    pub(crate) async fn patch(
        &self,
        client: &Client,
        object: &Thing<S, T>,
        patch: Value,
    ) -> Result<Option<Arc<Thing<S, T>>>, String> {
        let api = self.told(client, object.namespace());
        self.written(api.patch(object.name(), &by_us(), &Patch::Merge(patch)).await)
    }

    /// The same for its status.
    pub(crate) async fn patch_status(
        &self,
        client: &Client,
        object: &Thing<S, T>,
        patch: Value,
    ) -> Result<Option<Arc<Thing<S, T>>>, String> {
        let api = self.told(client, object.namespace());
        self.written(api.patch_status(object.name(), &by_us(), &Patch::Merge(patch)).await)
    }

    /// Deletes an object, unless it is gone.
    pub(crate) async fn delete(&self, client: &Client, object: &Thing<S, T>) -> Result<(), String> {
        match self.told(client, object.namespace()).delete(object.name(), &DeleteParams::default()).await {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) if is_of_object(&status) => Ok(()),
            Err(error) => Err(error.to_string()),
        }
    }

    fn written(&self, written: Result<Told<S, T>, kube::Error>) -> Result<Option<Arc<Thing<S, T>>>, String> {
        match written {
            Ok(written) => Ok(self.keep_told(written)),
            Err(kube::Error::Api(status)) if is_of_object(&status) => Ok(None),
            Err(error) => Err(error.to_string()),
        }
    }

    pub(crate) fn api(&self, client: &Client, namespace: &str) -> Api<Thing<S, T>> {
        Api::namespaced_with(client.clone(), namespace, &self.resource)
    }

    fn told(&self, client: &Client, namespace: &str) -> Api<Told<S, T>> {
        Api::namespaced_with(client.clone(), namespace, &self.resource)
    }

    fn kept(&self) -> MutexGuard<'_, Kept<S, T>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Who wrote a field is told by `managedFields`: objects of others have fields of ours.
pub(super) fn by_us() -> PatchParams {
    PatchParams { field_manager: Some("portcullis".to_owned()), ..PatchParams::default() }
}

pub(crate) fn key<S, T>(object: &Thing<S, T>) -> Key {
    key_of(&object.metadata)
}

fn key_of(metadata: &ObjectMeta) -> Key {
    (metadata.namespace.clone().unwrap_or_default(), metadata.name.clone().unwrap_or_default())
}

/// What is made of an object, and what cannot be read of it. That is as it was before. What was wanted of one that was never read is
/// not known, so it is none; how it stands can be found out.
fn read<S, T>(told: Told<S, T>, before: Option<&Thing<S, T>>) -> (Option<Thing<S, T>>, Option<String>)
where
    S: Clone,
    T: Clone + Default,
{
    let Told { mut metadata, spec, status } = told;
    let why: Vec<&str> =
        [spec.as_ref().err(), status.as_ref().err()].into_iter().flatten().map(String::as_str).collect();
    let why = (!why.is_empty()).then(|| why.join("; "));
    let spec = match (spec, before) {
        (Ok(spec), _) => spec,
        (Err(_), Some(before)) => {
            // Whoever does what is wanted does what was wanted then.
            metadata.generation = before.metadata.generation;
            before.spec.clone()
        }
        (Err(_), None) => return (None, why),
    };
    let status = status.unwrap_or_else(|_| before.map(|before| before.status.clone()).unwrap_or_default());
    (Some(Thing(Object { metadata, spec, status })), why)
}

/// Whether it is an object that the API does not know, by its name. If it does not know the kind, or not by this version any more, the
/// object may well be there.
pub(crate) fn is_of_object(status: &Status) -> bool {
    status.code == 404 && status.details.as_ref().is_some_and(|details| !details.name.is_empty())
}

/// Whether it is the kind itself, by this version, that the API does not know.
fn is_unserved(problem: &watcher::Error) -> bool {
    use watcher::Error::{InitialListFailed, WatchFailed, WatchStartFailed};
    match problem {
        InitialListFailed(error) | WatchStartFailed(error) | WatchFailed(error) => {
            matches!(error, kube::Error::Api(status) if status.code == 404 && !is_of_object(status))
        }
        _ => false,
    }
}

/// Versions are numbers that grow.
fn version<S, T>(object: &Thing<S, T>) -> u64 {
    version_of(&object.metadata)
}

fn version_of(metadata: &ObjectMeta) -> u64 {
    metadata.resource_version.as_ref().and_then(|version| version.parse().ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::thing::Machine;
    use portcullis_kube_api::cluster::{
        InfrastructureSpec, InfrastructureStatus, MachineSpec, MachineStatus,
    };
    use serde_json::json;

    fn machine(name: &str, version: u64) -> Machine {
        let metadata = json!({"namespace": "a", "name": name, "resourceVersion": version.to_string()});
        serde_json::from_value(json!({"metadata": metadata})).unwrap()
    }

    #[test]
    fn the_newest_counts_whoever_tells_of_it() {
        let shelf: Shelf<MachineSpec, MachineStatus> =
            Shelf::new(ApiResource::erase::<k8s_openapi::api::core::v1::Node>(&()), None);
        assert!(shelf.keep(machine("m", 5)).is_some());
        assert!(shelf.keep(machine("m", 4)).is_none(), "a watch that is behind");
        assert_eq!(version(&shelf.get("a", "m").unwrap()), 5);
        shelf.kept().gone.insert(("a".to_owned(), "n".to_owned()), (7, Instant::now()));
        assert!(shelf.keep(machine("n", 6)).is_none(), "an answer that comes late");
        assert!(shelf.keep(machine("n", 8)).is_some());
        assert_eq!((shelf.of("a").len(), shelf.of("b").len(), shelf.all().len()), (2, 0, 2));
        let newer = ApiResource { version: "v2".to_owned(), ..shelf.resource().clone() };
        assert_eq!(shelf.under(newer).all().len(), 2, "another version has the same objects");
    }

    /// A list in which one cannot be read has all the others, and of that one what was known before.
    #[test]
    fn one_that_cannot_be_read_keeps_nobody_from_being_seen() {
        type Made = Shelf<InfrastructureSpec, InfrastructureStatus>;
        let shelf: Made = Shelf::new(ApiResource::erase::<k8s_openapi::api::core::v1::Node>(&()), None);
        let hear = |name: &str, version: u64, spec: Value, status: Value| {
            let metadata = json!({
                "namespace": "a", "name": name, "resourceVersion": version.to_string(), "generation": version,
            });
            let list = json!([{"metadata": metadata, "spec": spec, "status": status}]);
            let list: Vec<Told<InfrastructureSpec, InfrastructureStatus>> =
                serde_json::from_value(list).unwrap();
            for object in list {
                shelf.hear(object, &|_| {});
            }
        };
        let spec = |of: &str| json!({"assignment": {"loadBalancer": of}});
        let at = |address: &str| json!({"address": address});
        let seen = |name: &str| {
            let found = shelf.get("a", name)?;
            let of = found.spec.assignment.as_ref().map(|asked| asked.load_balancer.clone());
            Some(format!(
                "{} at {} of {}",
                of.unwrap_or_default(),
                found.status.address,
                found.metadata.generation.unwrap()
            ))
        };
        let wrong = || json!({"assignment": {"members": "nobody"}});
        hear("well", 1, spec("lb"), at("x"));
        hear("never", 2, wrong(), at("x"));
        hear("then", 3, spec("lb"), at("x"));
        assert_eq!(seen("well").as_deref(), Some("lb at x of 1"));
        assert_eq!(seen("never"), None, "nobody knows what is wanted");
        assert!(shelf.unread("a", "never").unwrap().starts_with("its spec cannot be read: "));
        assert_eq!(shelf.unknown("a").len(), 1);
        assert_eq!(shelf.unknown("b").len(), 0);
        hear("then", 4, wrong(), at("y"));
        assert_eq!(seen("then").as_deref(), Some("lb at y of 3"), "what was wanted counts");
        hear("then", 5, spec("other"), json!({"address": 5}));
        assert_eq!(seen("then").as_deref(), Some("other at y of 5"));
        assert!(shelf.unread("a", "then").unwrap().starts_with("its status cannot be read: "));
        hear("then", 6, json!(null), json!(null));
        assert_eq!((seen("then").as_deref(), shelf.unread("a", "then")), (Some(" at  of 6"), None));
        hear("fresh", 7, spec("lb"), json!({"address": 5}));
        assert_eq!(seen("fresh").as_deref(), Some("lb at  of 7"), "how it stands can be found out");
        hear("never", 8, spec("lb"), at("x"));
        assert_eq!((seen("never").as_deref(), shelf.unread("a", "never")), (Some("lb at x of 8"), None));
    }

    #[test]
    fn what_the_api_does_not_know_is_told_apart() {
        let gone: Status = serde_json::from_value(json!({
            "status": "Failure", "code": 404, "reason": "NotFound", "message": "machines \"m\" not found",
            "details": {"name": "m", "group": "cluster.x-k8s.io", "kind": "machines"},
        }))
        .unwrap();
        let unserved = Status::failure("404 page not found", "Failed to parse error data").with_code(404);
        let forbidden = Status::failure("no", "Forbidden").with_code(403);
        for (status, of_object, of_kind) in
            [(gone, true, false), (unserved, false, true), (forbidden, false, false)]
        {
            assert_eq!(is_of_object(&status), of_object, "{status:?}");
            let problem = watcher::Error::WatchStartFailed(kube::Error::Api(status.boxed()));
            assert_eq!(is_unserved(&problem), of_kind, "{problem:?}");
        }
    }
}
