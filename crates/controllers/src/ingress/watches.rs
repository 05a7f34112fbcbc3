use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::sync::watch;

/// Which watches have not told of everything yet. Nothing is done before all have: what is not seen would be made again.
#[derive(Clone, Debug)]
pub struct Watches(Arc<watch::Sender<BTreeMap<String, String>>>);

impl Default for Watches {
    fn default() -> Self {
        Watches(Arc::new(watch::Sender::new(BTreeMap::new())))
    }
}

impl Watches {
    /// Tells what is missing now and whenever that changes; nothing, once all of it is there.
    pub async fn follow(&self, mut tell: impl FnMut(Option<String>)) {
        let mut missing = self.0.subscribe();
        loop {
            tell(in_words(&missing.borrow_and_update()));
            if missing.changed().await.is_err() {
                return;
            }
        }
    }

    /// Objects of this kind are waited for.
    pub(super) fn expect(&self, kind: &str) {
        self.0.send_modify(|missing| drop(missing.insert(kind.to_owned(), String::new())));
    }

    /// All objects of this kind are known.
    pub(super) fn have(&self, kind: &str) {
        self.0.send_if_modified(|missing| missing.remove(kind).is_some());
    }

    /// Why they are not. One that was there is taken up again by itself, and nobody says when.
    pub(super) fn lack(&self, kind: &str, problem: &str) {
        self.0.send_if_modified(|missing| {
            let Some(why) = missing.get_mut(kind).filter(|why| *why != problem) else { return false };
            problem.clone_into(why);
            true
        });
    }
}

fn in_words(missing: &BTreeMap<String, String>) -> Option<String> {
    let each = missing.iter().map(|(kind, why)| match why.as_str() {
        "" => kind.clone(),
        why => format!("{kind} ({why})"),
    });
    let each: Vec<String> = each.collect();
    (!each.is_empty())
        .then(|| format!("nothing is done before all these can be watched: {}", each.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    fn told(watches: &Watches) -> Option<String> {
        let mut told = None;
        assert!(watches.follow(|now| told = now).now_or_never().is_none());
        told
    }

    #[test]
    fn what_is_missing_is_told() {
        let watches = Watches::default();
        watches.expect("Service");
        watches.expect("Deployment");
        watches.lack("Service", "it is forbidden");
        watches.have("Deployment");
        let found = told(&watches).unwrap();
        assert_eq!(found, "nothing is done before all these can be watched: Service (it is forbidden)");
        watches.have("Service");
        watches.lack("Service", "the API is away for a moment");
        assert_eq!(told(&watches), None);
    }
}
