//! Endpoints of Services.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use kube::runtime::watcher::Event;
use portcullis_host::claims::Name;

use super::asked::Slice;
use super::told::{Item, Told};

/// Endpoints by Service and by slice, as a watch tells of them.
#[derive(Debug, Default)]
pub(super) struct Endpoints {
    slices: Told<Slice>,
    by_service: HashMap<Name, BTreeMap<Name, Arc<Slice>>>,
}

impl Endpoints {
    /// Takes in what was told: of which Services something is another now.
    pub(super) fn take(&mut self, event: Event<Item<Slice>>) -> BTreeSet<Name> {
        let mut changed = BTreeSet::new();
        for news in self.slices.take(event, |_| true) {
            let now = self.slices.get(&news.name);
            if news.before.as_ref() == now {
                continue;
            }
            if let Some(before) = &news.before {
                if let Some(slices) = self.by_service.get_mut(&before.service) {
                    slices.remove(&news.name);
                    if slices.is_empty() {
                        self.by_service.remove(&before.service);
                    }
                }
                changed.insert(Arc::clone(&before.service));
            }
            if let Some(slice) = now {
                let slices = self.by_service.entry(Arc::clone(&slice.service)).or_default();
                slices.insert(news.name, Arc::clone(slice));
                changed.insert(Arc::clone(&slice.service));
            }
        }
        changed
    }

    /// Whether all were told of.
    pub(super) fn is_complete(&self) -> bool {
        self.slices.is_complete()
    }

    /// The slices of a Service.
    pub(super) fn of(&self, service: &str) -> Option<&BTreeMap<Name, Arc<Slice>>> {
        self.by_service.get(service)
    }

    /// Whether a Service has an endpoint on a node that is ready.
    pub(super) fn are_on(&self, service: &str, node: &str) -> bool {
        self.of(service).into_iter().flatten().any(|(_, slice)| slice.ready_on(node).next().is_some())
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::discovery::v1::EndpointSlice;
    use serde_json::json;

    use super::*;

    fn slice(name: &str, service: &str, endpoints: &[(&str, bool)]) -> Item<Slice> {
        let endpoints = endpoints.iter().map(|(node, ready)| {
            json!({"addresses": ["10.0.0.1"], "nodeName": node, "conditions": {"ready": ready}})
        });
        let slice: EndpointSlice = serde_json::from_value(json!({
            "metadata": {"name": name, "namespace": "shop", "labels": {"kubernetes.io/service-name": service}},
            "addressType": "IPv4",
            "endpoints": endpoints.collect::<Vec<_>>(),
        }))
        .unwrap();
        Slice::item(slice)
    }

    #[test]
    fn where_endpoints_are() {
        let mut endpoints = Endpoints::default();
        let web = || BTreeSet::from([Name::from("shop/web")]);
        assert_eq!(endpoints.take(Event::Apply(slice("1", "web", &[("a", true), ("b", false)]))), web());
        assert_eq!(endpoints.take(Event::Apply(slice("2", "web", &[("c", true)]))), web());
        assert!(endpoints.are_on("shop/web", "a") && endpoints.are_on("shop/web", "c"));
        assert!(!endpoints.are_on("shop/web", "b") && !endpoints.are_on("shop/other", "a"));
        assert!(endpoints.take(Event::Apply(slice("2", "web", &[("c", true)]))).is_empty(), "as it was");
        // What is listed anew counts when all is there.
        endpoints.take(Event::Init);
        endpoints.take(Event::InitApply(slice("2", "web", &[("c", true)])));
        assert!(endpoints.are_on("shop/web", "a") && !endpoints.is_complete());
        assert_eq!(endpoints.take(Event::InitDone), web());
        assert!(!endpoints.are_on("shop/web", "a") && endpoints.are_on("shop/web", "c"));
        assert_eq!(endpoints.take(Event::Delete(slice("2", "web", &[]))), web());
        assert!(!endpoints.are_on("shop/web", "c"));
    }

    #[test]
    fn a_slice_can_become_another_services() {
        let mut endpoints = Endpoints::default();
        endpoints.take(Event::Apply(slice("1", "web", &[("a", true)])));
        let both = BTreeSet::from([Name::from("shop/mail"), Name::from("shop/web")]);
        assert_eq!(endpoints.take(Event::Apply(slice("1", "mail", &[("a", true)]))), both);
        assert!(endpoints.of("shop/web").is_none() && endpoints.are_on("shop/mail", "a"));
        // One that says of no Service that it is its own is nobody's.
        let nobody = Item { object: None, ..slice("1", "mail", &[]) };
        assert_eq!(endpoints.take(Event::Apply(nobody)), BTreeSet::from([Name::from("shop/mail")]));
        assert!(endpoints.of("shop/mail").is_none());
    }
}
