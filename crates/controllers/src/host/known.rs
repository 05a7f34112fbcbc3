//! Services that both halves know, where they are one process: there is one of each, and not one in each half.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use k8s_openapi::api::core::v1::Service;
use kube::ResourceExt;
use portcullis_host::claims::Name;

use super::told::version;

/// The newest of each Service that anybody keeps.
#[derive(Clone, Debug, Default)]
pub struct Known(Arc<Mutex<HashMap<Name, Arc<Service>>>>);

impl Known {
    /// A Service, for somebody to keep: the one that the other half has, if it is the same.
    pub(super) fn keep(&self, name: &Name, service: Service) -> Arc<Service> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = known.get(name)
            && found.uid() == service.uid()
        {
            let (theirs, ours) = (version(&**found), version(&service));
            if theirs == ours && ours.is_some() {
                return Arc::clone(found);
            }
            // Whoever is behind catches up.
            if theirs > ours {
                return Arc::new(service);
            }
        }
        let service = Arc::new(service);
        known.insert(Arc::clone(name), Arc::clone(&service));
        service
    }

    /// Somebody, who has one left in hand, does not keep it any more: it goes when nobody does.
    pub(super) fn forget(&self, name: &Name) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.get(name).is_some_and(|found| Arc::strong_count(found) <= 2) {
            known.remove(name);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn service(uid: &str, version: u64) -> Service {
        let metadata = json!({"name": "a", "uid": uid, "resourceVersion": version.to_string()});
        serde_json::from_value(json!({"metadata": metadata})).unwrap()
    }

    #[test]
    fn there_is_one_of_each() {
        let (known, name) = (Known::default(), Name::from("shop/a"));
        let one = known.keep(&name, service("1", 5));
        let other = known.keep(&name, service("1", 5));
        assert!(Arc::ptr_eq(&one, &other));
        // One half hears of a change before the other does.
        let newer = known.keep(&name, service("1", 7));
        let behind = known.keep(&name, service("1", 6));
        assert_eq!(version(&*behind), Some(6));
        assert!(Arc::ptr_eq(&newer, &known.keep(&name, service("1", 7))));
        // Another one of its name.
        assert_eq!(known.keep(&name, service("2", 9)).uid().as_deref(), Some("2"));
    }

    #[test]
    fn it_goes_when_nobody_keeps_it() {
        let (known, name) = (Known::default(), Name::from("shop/a"));
        let one = known.keep(&name, service("1", 5));
        let other = known.keep(&name, service("1", 5));
        known.forget(&name);
        drop(one);
        assert!(!known.0.lock().unwrap().is_empty(), "the other half has it");
        known.forget(&name);
        drop(other);
        assert!(known.0.lock().unwrap().is_empty());
    }
}
