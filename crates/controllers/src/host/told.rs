//! Objects of one kind, as a watch tells of them.

use std::collections::HashMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Service;
use kube::runtime::watcher::Event;
use kube::{Resource, ResourceExt};
use portcullis_host::claims::Name;

use super::known::Known;

/// All objects that were told of, or what is kept of them. What is listed anew takes the place of what was known at once, when
/// all is there: in between nothing is taken for gone.
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
    /// Takes in what was told: which objects are others now. Of each that is kept what `read` gives.
    pub(super) fn read<K: Resource<DynamicType = ()>>(
        &mut self,
        event: Event<K>,
        read: impl Fn(&Name, K) -> Option<Arc<V>>,
    ) -> Vec<News<V>> {
        match event {
            Event::Init => {
                self.coming = Some(HashMap::new());
                Vec::new()
            }
            Event::InitApply(object) => {
                let (name, version) = (key(&object), version(&object));
                if let Some(kept) = read(&name, object) {
                    self.coming.get_or_insert_default().insert(name, (kept, version));
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
            Event::Apply(object) => {
                let (name, version) = (key(&object), version(&object));
                let before = match read(&name, object) {
                    Some(kept) => self.objects.insert(Arc::clone(&name), kept),
                    None => match self.objects.remove(&name) {
                        None => return Vec::new(),
                        before => before,
                    },
                };
                vec![News { name, before, version }]
            }
            Event::Delete(object) => {
                let (name, version) = (key(&object), version(&object));
                let before = self.objects.remove(&name);
                if before.is_some() { vec![News { name, before, version }] } else { Vec::new() }
            }
        }
    }

    /// Whether all were told of.
    pub(super) fn is_complete(&self) -> bool {
        self.complete
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

impl<K: Resource<DynamicType = ()>> Told<K> {
    /// Takes in what was told: which objects are others now. Only those count that `keep` says so of.
    pub(super) fn take(&mut self, event: Event<K>, keep: impl Fn(&K) -> bool) -> Vec<News<K>> {
        self.read(event, |_, object| keep(&object).then(|| Arc::new(lean(object))))
    }
}

impl Told<Service> {
    /// The same for Services, which another half of this process may know as well.
    pub(super) fn take_known(
        &mut self,
        event: Event<Service>,
        known: &Known,
        keep: impl Fn(&Service) -> bool,
    ) -> Vec<News<Service>> {
        let news = self.read(event, |name, object| keep(&object).then(|| known.keep(name, lean(object))));
        for gone in news.iter().filter(|news| !self.objects.contains_key(&news.name)) {
            known.forget(&gone.name);
        }
        news
    }

    /// Takes in what a write gave, if the watch did not tell of something newer yet.
    pub(super) fn wrote(&mut self, object: Service, known: &Known) {
        let name = key(&object);
        if let Some(kept) = self.objects.get_mut(&name)
            && kept.uid() == object.uid()
            && version(&object) > version(&**kept)
        {
            *kept = known.keep(&name, lean(object));
        }
    }
}

/// `NAMESPACE/NAME`, or the name alone where there are no namespaces.
pub(super) fn key<K: Resource<DynamicType = ()>>(object: &K) -> Name {
    match object.namespace() {
        Some(namespace) => Name::from(format!("{namespace}/{}", object.name_any())),
        None => Name::from(object.name_any()),
    }
}

/// Versions are numbers that grow.
pub(super) fn version<K: Resource>(object: &K) -> Option<u64> {
    object.resource_version().and_then(|version| version.parse().ok())
}

/// Who wrote which field is of no interest here, and half of an object.
fn lean<K: Resource>(mut object: K) -> K {
    object.meta_mut().managed_fields = None;
    object
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn service(name: &str, version: u64) -> Service {
        let metadata =
            json!({"name": name, "namespace": "shop", "uid": "1", "resourceVersion": version.to_string()});
        serde_json::from_value(json!({"metadata": metadata})).unwrap()
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
        // One that is not to be kept any more is as good as gone.
        assert_eq!(names(told.take(Event::Apply(service("b", 2)), |_| false)), ["shop/b"]);
        assert!(told.take(Event::Delete(service("b", 2)), |_| true).is_empty());
    }

    #[test]
    fn what_was_written_counts_until_something_newer_is_told() {
        let mut told = Told::default();
        told.take(Event::Apply(service("a", 5)), |_| true);
        let known = Known::default();
        told.wrote(service("a", 7), &known);
        assert_eq!(version(&**told.get("shop/a").unwrap()), Some(7));
        told.wrote(service("a", 6), &known);
        assert_eq!(version(&**told.get("shop/a").unwrap()), Some(7));
        told.wrote(service("gone", 9), &known);
        assert!(told.get("shop/gone").is_none());
    }
}
