//! On which nodes Services have endpoints that are ready. Nothing else of them is kept.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::runtime::watcher::Event;
use portcullis_host::claims::Name;

use super::asked::service_of;
use super::told::key;

/// Nodes by Service and by slice, as a watch tells of them.
#[derive(Debug, Default)]
pub(super) struct Endpoints {
    slices: HashMap<Name, Slice>,
    /// What is listed anew, until all is there.
    coming: Option<HashMap<Name, Slice>>,
    by_service: HashMap<Name, Vec<Name>>,
    /// Names of nodes: there are few, and many endpoints on each.
    nodes: BTreeSet<Name>,
    complete: bool,
}

#[derive(Debug, PartialEq)]
struct Slice {
    service: Name,
    /// In order.
    nodes: Box<[Name]>,
}

impl Endpoints {
    /// Takes in what was told: of which Services something is another now.
    pub(super) fn take(&mut self, event: Event<EndpointSlice>) -> BTreeSet<Name> {
        let mut changed = BTreeSet::new();
        match event {
            Event::Init => self.coming = Some(HashMap::new()),
            Event::InitApply(slice) => {
                let read = self.read(&slice);
                self.coming.get_or_insert_default().extend(read.map(|read| (key(&slice), read)));
            }
            Event::InitDone => {
                self.complete = true;
                let coming = self.coming.take().unwrap_or_default();
                let gone: Vec<Name> =
                    self.slices.keys().filter(|name| !coming.contains_key(*name)).cloned().collect();
                for name in gone {
                    changed.extend(self.set(&name, None));
                }
                for (name, slice) in coming {
                    changed.extend(self.set(&name, Some(slice)));
                }
            }
            Event::Apply(slice) => {
                let read = self.read(&slice);
                changed.extend(self.set(&key(&slice), read));
            }
            Event::Delete(slice) => changed.extend(self.set(&key(&slice), None)),
        }
        changed
    }

    fn set(&mut self, name: &Name, slice: Option<Slice>) -> BTreeSet<Name> {
        if self.slices.get(name) == slice.as_ref() {
            return BTreeSet::new();
        }
        let mut changed = BTreeSet::new();
        if let Some(before) = self.slices.remove(name) {
            if let Some(slices) = self.by_service.get_mut(&before.service) {
                slices.retain(|found| found != name);
                if slices.is_empty() {
                    self.by_service.remove(&before.service);
                }
            }
            changed.insert(before.service);
        }
        if let Some(slice) = slice {
            self.by_service.entry(Arc::clone(&slice.service)).or_default().push(Arc::clone(name));
            changed.insert(Arc::clone(&slice.service));
            self.slices.insert(Arc::clone(name), slice);
        }
        changed
    }

    /// Whether all were told of.
    pub(super) fn is_complete(&self) -> bool {
        self.complete
    }

    /// Whether a Service has an endpoint on a node that is ready.
    pub(super) fn are_on(&self, service: &str, node: &str) -> bool {
        let slices = self.by_service.get(service).into_iter().flatten();
        slices
            .filter_map(|name| self.slices.get(name))
            .any(|slice| slice.nodes.iter().any(|found| **found == *node))
    }

    fn read(&mut self, slice: &EndpointSlice) -> Option<Slice> {
        let ready = slice.endpoints.iter().filter(|endpoint| {
            // What is not said is so.
            endpoint.conditions.as_ref().and_then(|conditions| conditions.ready).unwrap_or(true)
        });
        let names: BTreeSet<&str> = ready.filter_map(|endpoint| endpoint.node_name.as_deref()).collect();
        let nodes = names.into_iter().map(|name| self.node(name)).collect();
        Some(Slice { service: service_of(slice)?, nodes })
    }

    /// The name of a node, which is there once.
    fn node(&mut self, name: &str) -> Name {
        if let Some(known) = self.nodes.get(name) {
            return Arc::clone(known);
        }
        let name = Name::from(name);
        self.nodes.insert(Arc::clone(&name));
        name
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn slice(name: &str, service: &str, endpoints: &[(&str, bool)]) -> EndpointSlice {
        let endpoints = endpoints.iter().map(|(node, ready)| {
            json!({"addresses": ["10.0.0.1"], "nodeName": node, "conditions": {"ready": ready}})
        });
        serde_json::from_value(json!({
            "metadata": {"name": name, "namespace": "shop", "labels": {"kubernetes.io/service-name": service}},
            "addressType": "IPv4",
            "endpoints": endpoints.collect::<Vec<_>>(),
        }))
        .unwrap()
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
}
