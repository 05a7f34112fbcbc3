//! Objects of one kind, as a watch tells of them.

use std::collections::HashMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Service;
use kube::runtime::watcher::Event;
use kube::{Resource, ResourceExt};
use portcullis_host::claims::Name;

/// An object that a watch tells of, or what is kept of it; nothing, if it is of no interest.
#[derive(Debug)]
pub(super) struct Item<V> {
    pub(super) name: Name,
    pub(super) version: Option<u64>,
    pub(super) object: Option<Arc<V>>,
}

impl<V> Clone for Item<V> {
    fn clone(&self) -> Self {
        let Item { name, version, object } = self;
        Item { name: Arc::clone(name), version: *version, object: object.clone() }
    }
}

impl<K: Resource<DynamicType = ()>> Item<K> {
    /// All of an object, but for what nobody here wants to know: who wrote which field is half of it.
    pub(super) fn lean(mut object: K) -> Self {
        object.meta_mut().managed_fields = None;
        Item { name: key(&object), version: version(&object), object: Some(Arc::new(object)) }
    }
}

/// What a watch tells, with something else in it.
pub(super) fn map<K, V>(event: Event<K>, read: impl FnOnce(K) -> V) -> Event<V> {
    match event {
        Event::Init => Event::Init,
        Event::InitApply(object) => Event::InitApply(read(object)),
        Event::InitDone => Event::InitDone,
        Event::Apply(object) => Event::Apply(read(object)),
        Event::Delete(object) => Event::Delete(read(object)),
    }
}

/// The version by which something was told.
pub(super) fn event_version<V>(event: &Event<Item<V>>) -> Option<u64> {
    match event {
        Event::Apply(item) | Event::InitApply(item) | Event::Delete(item) => item.version,
        Event::Init | Event::InitDone => None,
    }
}

/// All objects that were told of. What is listed anew takes the place of what was known at once, when all is there: in between
/// nothing is taken for gone.
#[derive(Debug)]
pub(super) struct Told<V> {
    objects: HashMap<Name, Arc<V>>,
    coming: Option<Coming<V>>,
    complete: bool,
}

/// What is listed, with its versions, until all is there.
type Coming<V> = HashMap<Name, (Arc<V>, Option<u64>)>;

/// An object that changed, what it was before, and the version by which it did. What is gone from a list has none.
pub(super) struct News<V> {
    pub(super) name: Name,
    pub(super) before: Option<Arc<V>>,
    pub(super) version: Option<u64>,
}

impl<V> Default for Told<V> {
    fn default() -> Self {
        Told { objects: HashMap::new(), coming: None, complete: false }
    }
}

impl<V> Told<V> {
    /// Takes in what was told: which objects are others now. Only those count that `keep` says so of.
    pub(super) fn take(&mut self, event: Event<Item<V>>, keep: impl Fn(&V) -> bool) -> Vec<News<V>> {
        let kept = |object: Option<Arc<V>>| object.filter(|object| keep(object));
        match event {
            Event::Init => {
                self.coming = Some(HashMap::new());
                Vec::new()
            }
            Event::InitApply(Item { name, version, object }) => {
                if let Some(object) = kept(object) {
                    self.coming.get_or_insert_default().insert(name, (object, version));
                }
                Vec::new()
            }
            Event::InitDone => {
                self.complete = true;
                let mut before = std::mem::take(&mut self.objects);
                let coming = self.coming.take().unwrap_or_default();
                let mut news = Vec::with_capacity(coming.len());
                for (name, (object, version)) in coming {
                    let before = before.remove(&name);
                    self.objects.insert(Arc::clone(&name), object);
                    news.push(News { name, before, version });
                }
                let gone = before.into_iter();
                news.extend(gone.map(|(name, before)| News { name, before: Some(before), version: None }));
                news
            }
            Event::Apply(Item { name, version, object }) => {
                let before = match kept(object) {
                    Some(object) => self.objects.insert(Arc::clone(&name), object),
                    None => match self.objects.remove(&name) {
                        None => return Vec::new(),
                        before => before,
                    },
                };
                vec![News { name, before, version }]
            }
            Event::Delete(Item { name, version, .. }) => {
                let before = self.objects.remove(&name);
                if before.is_some() { vec![News { name, before, version }] } else { Vec::new() }
            }
        }
    }

    /// Whether all were told of.
    pub(super) fn is_complete(&self) -> bool {
        self.complete
    }

    /// Whether they are being told of anew.
    pub(super) fn is_listing(&self) -> bool {
        self.coming.is_some()
    }

    pub(super) fn get(&self, name: &str) -> Option<&Arc<V>> {
        self.objects.get(name)
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &Name> {
        self.objects.keys()
    }

    pub(super) fn values(&self) -> impl Iterator<Item = &Arc<V>> {
        self.objects.values()
    }
}

impl Told<Service> {
    /// Takes in what a write gave, if the watch did not tell of something newer yet.
    pub(super) fn wrote(&mut self, object: Service) {
        let Item { name, version: new, object } = Item::lean(object);
        if let (Some(kept), Some(object)) = (self.objects.get_mut(&name), object)
            && kept.uid() == object.uid()
            && new > version(&**kept)
        {
            *kept = object;
        }
    }
}

/// `NAMESPACE/NAME`, or the name alone where there are no namespaces.
fn key<K: Resource<DynamicType = ()>>(object: &K) -> Name {
    match object.namespace() {
        Some(namespace) => Name::from(format!("{namespace}/{}", object.name_any())),
        None => Name::from(object.name_any()),
    }
}

/// Versions are numbers that grow.
pub(super) fn version<K: Resource>(object: &K) -> Option<u64> {
    object.resource_version().and_then(|version| version.parse().ok())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(name: &str, version: u64) -> Service {
        let metadata =
            json!({"name": name, "namespace": "shop", "uid": "1", "resourceVersion": version.to_string()});
        serde_json::from_value(json!({"metadata": metadata})).unwrap()
    }

    fn service(name: &str, version: u64) -> Item<Service> {
        Item::lean(read(name, version))
    }

    #[test]
    fn what_is_listed_anew_replaces_what_was_known_at_once() {
        let mut told = Told::default();
        let names = |news: Vec<News<Service>>| {
            let mut names: Vec<String> = news.iter().map(|news| news.name.to_string()).collect();
            names.sort();
            names
        };
        for event in [Event::Init, Event::InitApply(service("a", 1)), Event::InitApply(service("b", 1))] {
            assert!(told.take(event, |_| true).is_empty());
        }
        assert!(!told.is_complete());
        assert_eq!(names(told.take(Event::InitDone, |_| true)), ["shop/a", "shop/b"]);
        told.take(Event::Init, |_| true);
        told.take(Event::InitApply(service("b", 1)), |_| true);
        assert!(told.get("shop/a").is_some(), "it may be told of yet");
        assert_eq!(names(told.take(Event::InitDone, |_| true)), ["shop/a", "shop/b"]);
        assert!(told.get("shop/a").is_none());
        // One that is of no interest any more is as good as gone.
        assert_eq!(names(told.take(Event::Apply(service("b", 2)), |_| false)), ["shop/b"]);
        assert!(told.take(Event::Delete(service("b", 2)), |_| true).is_empty());
    }

    #[test]
    fn what_was_written_counts_until_something_newer_is_told() {
        let mut told = Told::default();
        told.take(Event::Apply(service("a", 5)), |_| true);
        told.wrote(read("a", 7));
        assert_eq!(version(&**told.get("shop/a").unwrap()), Some(7));
        told.wrote(read("a", 6));
        assert_eq!(version(&**told.get("shop/a").unwrap()), Some(7));
        told.wrote(read("gone", 9));
        assert!(told.get("shop/gone").is_none());
    }
}
