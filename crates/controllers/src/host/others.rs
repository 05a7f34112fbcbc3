//! What is known of Services that others look after: who has an address or a node port keeps it.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use k8s_openapi::api::core::v1::Service;
use kube::runtime::watcher::Event;
use portcullis_host::claims::{Claim, Name};
use portcullis_host::interfaces::Entry;

use super::asked::{addresses, claim};
use super::told::key;

/// Something that some Services have, by their names.
#[derive(Debug)]
pub(super) struct Noted<T> {
    all: HashMap<Name, T>,
    /// What was listed, until all is there.
    listed: Option<BTreeSet<Name>>,
}

impl<T> Default for Noted<T> {
    fn default() -> Self {
        Noted { all: HashMap::new(), listed: None }
    }
}

impl<T: Clone + PartialEq> Noted<T> {
    /// Takes in what was told of Services: who has something else now.
    pub(super) fn take(
        &mut self,
        event: &Event<Service>,
        read: impl Fn(&Service) -> Option<T>,
    ) -> Vec<(Name, Option<T>)> {
        match event {
            Event::Init => {
                self.listed = Some(BTreeSet::new());
                Vec::new()
            }
            Event::InitApply(service) | Event::Apply(service) => {
                let (name, found) = (key(service), read(service));
                if let (Some(listed), true) = (&mut self.listed, found.is_some()) {
                    listed.insert(Arc::clone(&name));
                }
                self.set(name, found).into_iter().collect()
            }
            Event::Delete(service) => self.set(key(service), None).into_iter().collect(),
            Event::InitDone => {
                let listed = self.listed.take().unwrap_or_default();
                let gone: Vec<Name> =
                    self.all.keys().filter(|name| !listed.contains(*name)).cloned().collect();
                gone.into_iter().filter_map(|name| self.set(name, None)).collect()
            }
        }
    }

    /// What a Service has.
    pub(super) fn get(&self, name: &str) -> Option<&T> {
        self.all.get(name)
    }

    /// What all of them have.
    pub(super) fn all(&self) -> impl Iterator<Item = (&Name, &T)> {
        self.all.iter()
    }

    /// It has nothing any more.
    pub(super) fn remove(&mut self, name: &str) {
        self.all.remove(name);
    }

    fn set(&mut self, name: Name, found: Option<T>) -> Option<(Name, Option<T>)> {
        if self.all.get(&name) == found.as_ref() {
            return None;
        }
        match &found {
            Some(found) => self.all.insert(Arc::clone(&name), found.clone()),
            None => self.all.remove(&name),
        };
        Some((name, found))
    }
}

/// What a Service of others has: its ports at its addresses, whichever of them are a node's, and its node ports.
pub(super) fn claim_of_others(service: &Service) -> Option<Claim> {
    let is_balanced = service.spec.as_ref().is_some_and(|spec| spec.type_.as_deref() == Some("LoadBalancer"));
    let addresses = if is_balanced { addresses(service) } else { BTreeSet::new() };
    let claim = claim(service);
    if addresses.is_empty() && claim.node_ports.is_empty() {
        return None;
    }
    let ports = if addresses.is_empty() { BTreeSet::new() } else { claim.ports };
    let at = addresses.into_iter().map(Entry::Address).collect();
    // Who has something keeps it: they before who only asks, and ours before them where both have it.
    Some(Claim { created: i64::MAX, at: Some(at), ports, ..claim })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn service(name: &str, class: &str, ip: &str) -> Service {
        serde_json::from_value(json!({
            "metadata": {"name": name, "namespace": "shop"},
            "spec": {
                "type": "LoadBalancer", "loadBalancerClass": class, "ports": [{"port": 80}],
                "ipFamilies": ["IPv4"],
            },
            "status": {"loadBalancer": {"ingress": [{"ip": ip}]}},
        }))
        .unwrap()
    }

    #[test]
    fn what_others_have_is_known_until_it_is_gone() {
        let is_ours =
            |service: &Service| service.spec.as_ref().unwrap().load_balancer_class.as_deref() == Some("ours");
        let mut others = Noted::default();
        let mut names = |event: Event<Service>| {
            let read = |service: &Service| claim_of_others(service).filter(|_| !is_ours(service));
            let news = others.take(&event, read);
            news.into_iter().map(|(name, claim)| format!("{name} {}", claim.is_some())).collect::<Vec<_>>()
        };
        assert_eq!(names(Event::Apply(service("a", "theirs", "192.0.2.7"))), ["shop/a true"]);
        assert!(names(Event::Apply(service("a", "theirs", "192.0.2.7"))).is_empty(), "as it was");
        assert!(names(Event::Apply(service("b", "ours", "192.0.2.7"))).is_empty());
        assert_eq!(
            names(Event::Apply(service("a", "ours", "192.0.2.7"))),
            ["shop/a false"],
            "it is ours now"
        );
        names(Event::Apply(service("a", "theirs", "192.0.2.7")));
        names(Event::Apply(service("c", "theirs", "192.0.2.7")));
        names(Event::Init);
        names(Event::InitApply(service("c", "theirs", "192.0.2.7")));
        assert_eq!(names(Event::InitDone), ["shop/a false"]);
        assert_eq!(names(Event::Delete(service("c", "theirs", "192.0.2.7"))), ["shop/c false"]);
    }
    #[test]
    fn node_ports_are_had_without_any_address() {
        let read = |spec: serde_json::Value| {
            let service = json!({"metadata": {"name": "a", "namespace": "shop"}, "spec": spec});
            let claim = claim_of_others(&serde_json::from_value(service).unwrap())?;
            let numbers = |ports: &BTreeSet<portcullis_host::claims::Port>| -> Vec<u16> {
                ports.iter().map(|port| port.number).collect()
            };
            Some((numbers(&claim.ports), numbers(&claim.node_ports)))
        };
        assert_eq!(read(json!({"type": "ClusterIP", "ports": [{"port": 80}]})), None);
        let node_port = json!({"type": "NodePort", "ports": [{"port": 80, "nodePort": 30080}]});
        assert_eq!(read(node_port), Some((vec![], vec![30080])), "its other port is nobody's");
    }
}
