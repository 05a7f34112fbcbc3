//! What is known of Services that others look after: who has an address or a node port keeps it.

use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Service;
use kube::runtime::watcher::Event;
use portcullis_host::claims::{Claim, Name};
use portcullis_host::interfaces::Entry;

use super::asked::claim;
use super::told::Item;

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
        event: &Event<Item<Service>>,
        read: impl Fn(&Service) -> Option<T>,
    ) -> Vec<(Name, Option<T>)> {
        match event {
            Event::Init => {
                self.listed = Some(BTreeSet::new());
                Vec::new()
            }
            Event::InitApply(item) | Event::Apply(item) => {
                let (name, found) = (Arc::clone(&item.name), item.object.as_deref().and_then(&read));
                if let (Some(listed), true) = (&mut self.listed, found.is_some()) {
                    listed.insert(Arc::clone(&name));
                }
                self.set(name, found).into_iter().collect()
            }
            Event::Delete(item) => self.set(Arc::clone(&item.name), None).into_iter().collect(),
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
    let mut claim = claim(service);
    claim.held.retain(|_| is_balanced);
    // Whoever forwards packets does so there for any Service, whoever looks after it.
    claim.held.extend(external_ips(service).map(|address| (address, None)));
    if claim.held.is_empty() && claim.node_ports.is_empty() {
        return None;
    }
    let at: BTreeSet<IpAddr> = claim.held.iter().map(|(address, _)| *address).collect();
    let ports = if at.is_empty() { BTreeSet::new() } else { claim.ports };
    let at = at.into_iter().map(Entry::Address).collect();
    // Who has something keeps it: they before who only asks, and ours before them where both have it.
    Some(Claim { created: i64::MAX, at: Some(at), ports, external: BTreeSet::new(), ..claim })
}

/// The addresses at which somebody wants a Service to be reached without anybody giving it any.
pub(super) fn external_ips(service: &Service) -> impl Iterator<Item = IpAddr> {
    let spec = service.spec.iter().filter(|spec| spec.type_.as_deref() != Some("ExternalName"));
    let written = spec.flat_map(|spec| spec.external_ips.iter().flatten());
    written.filter_map(|text| text.parse().ok()).map(|address: IpAddr| address.to_canonical())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn service(name: &str, class: &str, ip: &str) -> Item<Service> {
        let service = json!({
            "metadata": {"name": name, "namespace": "shop"},
            "spec": {
                "type": "LoadBalancer", "loadBalancerClass": class, "ports": [{"port": 80}],
                "ipFamilies": ["IPv4"],
            },
            "status": {"loadBalancer": {"ingress": [{"ip": ip}]}},
        });
        Item::lean(serde_json::from_value(service).unwrap())
    }

    #[test]
    fn what_others_have_is_known_until_it_is_gone() {
        let is_ours =
            |service: &Service| service.spec.as_ref().unwrap().load_balancer_class.as_deref() == Some("ours");
        let mut others = Noted::default();
        let mut names = |event: Event<Item<Service>>| {
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

    /// Addresses that people wrote there are had by any Service, with all of its ports.
    #[test]
    fn external_ips_are_had_without_anybody_giving_them() {
        let read = |spec: serde_json::Value| {
            let status = json!({"loadBalancer": {"ingress": [{"ip": "192.0.2.9"}]}});
            let service =
                json!({"metadata": {"name": "a", "namespace": "b"}, "spec": spec, "status": status});
            let claim = claim_of_others(&serde_json::from_value(service).unwrap())?;
            assert_eq!(claim.at.iter().flatten().count(), claim.held.len());
            let held = claim.held.iter().map(|(address, ports)| (address.to_string(), ports.is_none()));
            Some((held.collect::<Vec<_>>(), claim.ports.len()))
        };
        let ports = json!([{"port": 80}, {"port": 443}]);
        let of = |kind: &str, external: &[&str]| {
            read(json!({"type": kind, "ports": ports, "externalIPs": external}))
        };
        let at = |all: &[&str]| all.iter().map(|text| ((*text).to_owned(), true)).collect::<Vec<_>>();
        for (kind, external, expected) in [
            ("ClusterIP", &[][..], None),
            ("ClusterIP", &["192.0.2.7"], Some((at(&["192.0.2.7"]), 2))),
            ("NodePort", &["192.0.2.7", "2001:DB8::7", "x"], Some((at(&["192.0.2.7", "2001:db8::7"]), 2))),
            ("LoadBalancer", &["192.0.2.7"], Some((at(&["192.0.2.9", "192.0.2.7"]), 2))),
            ("ExternalName", &["192.0.2.7"], None),
        ] {
            assert_eq!(of(kind, external), expected, "{kind} {external:?}");
        }
    }
}
