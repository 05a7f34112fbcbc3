use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use portcullis_kube_api::ingress::Condition;
use portcullis_kube_api::ingress::ranges::Place;
use tokio::sync::Notify;

/// How every `IngressController` stands, for who counts them or sums them up.
#[derive(Clone, Debug, Default)]
pub struct Standing(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    all: Mutex<BTreeMap<String, Stand>>,
    changed: Notify,
}

/// How one stands.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stand {
    /// What is to be known about it.
    pub conditions: Vec<Condition>,
    /// Where ranges stand that have to be moved to its spec.
    pub to_be_moved: Vec<Place>,
}

impl Standing {
    /// All of them, by name.
    pub fn all(&self) -> BTreeMap<String, Stand> {
        self.lock().clone()
    }

    /// How one of them stands.
    pub(super) fn of(&self, name: &str) -> Option<Stand> {
        self.lock().get(name).cloned()
    }

    /// Waits until one of them stands otherwise than when this was last waited for.
    pub(super) async fn changed(&self) {
        self.0.changed.notified().await;
    }

    pub(super) fn set(&self, name: &str, stand: Stand) {
        let mut all = self.lock();
        if all.get(name) != Some(&stand) {
            all.insert(name.to_owned(), stand);
            self.0.changed.notify_one();
        }
    }

    pub(super) fn forget(&self, name: &str) {
        if self.lock().remove(name).is_some() {
            self.0.changed.notify_one();
        }
    }

    /// Forgets all that are not to be kept.
    pub(super) fn keep(&self, is_known: impl Fn(&str) -> bool) {
        let mut all = self.lock();
        let before = all.len();
        all.retain(|name, _| is_known(name));
        if all.len() < before {
            self.0.changed.notify_one();
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Stand>> {
        self.0.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_not_known_any_more_is_forgotten() {
        let standing = Standing::default();
        for name in ["shop", "gone"] {
            standing.set(name, Stand::default());
        }
        standing.keep(|name| name == "shop");
        assert_eq!(standing.all().into_keys().collect::<Vec<_>>(), ["shop"]);
    }
}
