//! Services that others look after, as far as they have addresses: who has a port of one of these keeps it.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use k8s_openapi::api::core::v1::Service;
use kube::runtime::watcher::Event;
use portcullis_host::claims::{Claim, Name};
use portcullis_host::interfaces::Entry;

use super::asked::{addresses, claim};
use super::told::key;

/// What others' Services have, as claims.
#[derive(Debug, Default)]
pub(super) struct OthersServices {
    claims: HashMap<Name, Claim>,
    /// What was listed, until all is there.
    listed: Option<BTreeSet<Name>>,
}

impl OthersServices {
    /// Takes in what was told: whose claim is another now. What is ours has none here.
    pub(super) fn take(
        &mut self,
        event: &Event<Service>,
        is_ours: impl Fn(&Service) -> bool,
    ) -> Vec<(Name, Option<Claim>)> {
        match event {
            Event::Init => {
                self.listed = Some(BTreeSet::new());
                Vec::new()
            }
            Event::InitApply(service) | Event::Apply(service) => {
                let name = key(service);
                let claim = (!is_ours(service)).then(|| has(service)).flatten();
                if let (Some(listed), true) = (&mut self.listed, claim.is_some()) {
                    listed.insert(Arc::clone(&name));
                }
                self.set(name, claim).into_iter().collect()
            }
            Event::Delete(service) => self.set(key(service), None).into_iter().collect(),
            Event::InitDone => {
                let listed = self.listed.take().unwrap_or_default();
                let gone: Vec<Name> =
                    self.claims.keys().filter(|name| !listed.contains(*name)).cloned().collect();
                gone.into_iter().filter_map(|name| self.set(name, None)).collect()
            }
        }
    }

    /// What a Service of others has.
    pub(super) fn claim(&self, name: &str) -> Option<Claim> {
        self.claims.get(name).cloned()
    }

    /// What all of them have.
    pub(super) fn all(&self) -> impl Iterator<Item = (&Name, &Claim)> {
        self.claims.iter()
    }

    fn set(&mut self, name: Name, claim: Option<Claim>) -> Option<(Name, Option<Claim>)> {
        if self.claims.get(&name) == claim.as_ref() {
            return None;
        }
        match &claim {
            Some(claim) => self.claims.insert(Arc::clone(&name), claim.clone()),
            None => self.claims.remove(&name),
        };
        Some((name, claim))
    }
}

/// What a Service of others has: its ports at its addresses, whichever of them are a node's.
fn has(service: &Service) -> Option<Claim> {
    let is_balanced = service.spec.as_ref().is_some_and(|spec| spec.type_.as_deref() == Some("LoadBalancer"));
    let addresses = addresses(service);
    if !is_balanced || addresses.is_empty() {
        return None;
    }
    let at = addresses.into_iter().map(Entry::Address).collect();
    // Who has something keeps it: they before who only asks, and ours before them where both have it.
    Some(Claim { created: i64::MAX, at: Some(at), ..claim(service) })
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
        let mut others = OthersServices::default();
        let mut names = |event: Event<Service>| {
            let news = others.take(&event, is_ours);
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
}
