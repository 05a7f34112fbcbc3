//! What was moved to another management cluster. It is carried on until this machine finds it there.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use portcullis_kube_api::cluster::HaProxyLoadBalancerSpec;
use serde::{Deserialize, Serialize};
use tracing::{info, warn};

use crate::cluster::haproxy::HaProxyLoadBalancer;
use crate::cluster::shelf::key;
use crate::cluster::thing::Thing;

/// What is kept, and the file that it is in.
#[derive(Debug, Default)]
pub(super) struct Kept {
    file: PathBuf,
    objects: BTreeMap<(String, String), Moved>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Moved {
    namespace: String,
    name: String,
    address: String,
    spec: HaProxyLoadBalancerSpec,
}

impl Kept {
    pub(super) fn read(directory: &Path) -> Self {
        let file = directory.join("moved.json");
        let read: Vec<Moved> = match std::fs::read(&file) {
            Ok(text) => serde_json::from_slice(&text).unwrap_or_else(|problem| {
                warn!(file = %file.display(), %problem, "what was moved away cannot be read");
                Vec::new()
            }),
            Err(_) => Vec::new(),
        };
        let objects =
            read.into_iter().map(|moved| ((moved.namespace.clone(), moved.name.clone()), moved)).collect();
        Kept { file, objects }
    }

    /// It was moved away.
    pub(super) fn keep(&mut self, object: &HaProxyLoadBalancer) {
        let moved = Moved {
            namespace: object.namespace().to_owned(),
            name: object.name().to_owned(),
            address: object.status.address.clone(),
            spec: object.spec.clone(),
        };
        if self.objects.get(&key(object)) == Some(&moved) {
            return;
        }
        info!(
            namespace = object.namespace(),
            name = object.name(),
            "a load balancer was moved to another management cluster, and is carried on"
        );
        self.objects.insert(key(object), moved);
        self.write();
    }

    /// What is not found again, among those who are there.
    pub(super) fn still(
        &mut self,
        found: &[Arc<HaProxyLoadBalancer>],
        pool: &str,
    ) -> Vec<Arc<HaProxyLoadBalancer>> {
        let before = self.objects.len();
        let is_here = |place: &(String, String)| {
            found
                .iter()
                .any(|object| key(object) == *place && !portcullis_kube_api::cluster::is_moving_away(object))
        };
        self.objects.retain(|place, _| !is_here(place));
        if self.objects.len() != before {
            self.write();
        }
        let missing =
            self.objects.iter().filter(|(place, _)| !found.iter().any(|object| key(object) == **place));
        let missing = missing.filter(|(_, moved)| moved.spec.pool() == pool);
        missing.map(|(_, moved)| Arc::new(moved.object())).collect()
    }

    fn write(&self) {
        let all: Vec<&Moved> = self.objects.values().collect();
        let text = serde_json::to_vec(&all).unwrap_or_default();
        let draft = self.file.with_extension("new");
        let written = std::fs::write(&draft, text).and_then(|()| std::fs::rename(&draft, &self.file));
        if let Err(problem) = written {
            warn!(file = %self.file.display(), %problem, "what was moved away could not be written down: it is lost with this process");
        }
    }
}

impl Moved {
    fn object(&self) -> HaProxyLoadBalancer {
        let mut object: HaProxyLoadBalancer = Thing::default();
        object.0.metadata.namespace = Some(self.namespace.clone());
        object.0.metadata.name = Some(self.name.clone());
        // By this it is known for what it is.
        let mark = ("clusterctl.cluster.x-k8s.io/delete-for-move".to_owned(), String::new());
        object.0.metadata.annotations = Some([mark].into_iter().collect());
        object.0.spec = self.spec.clone();
        object.0.status.address.clone_from(&self.address);
        object
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_moved_away_is_kept_until_it_is_found() {
        let directory = std::env::temp_dir().join(format!("portcullis-kept-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let object = |marks: serde_json::Value| -> HaProxyLoadBalancer {
            serde_json::from_value(json!({
                "metadata": {"namespace": "a", "name": "lb", "annotations": marks},
                "spec": {"assignment": {"loadBalancer": "lb"}},
            }))
            .unwrap()
        };
        let moving = object(json!({"clusterctl.cluster.x-k8s.io/delete-for-move": ""}));
        let mut kept = Kept::read(&directory);
        kept.keep(&moving);
        assert_eq!(kept.still(&[Arc::new(moving)], "default").len(), 0, "it is there still");
        let mut again = Kept::read(&directory);
        assert_eq!(again.still(&[], "default").len(), 1, "also after another start");
        assert_eq!(again.still(&[], "other").len(), 0);
        assert_eq!(
            again.still(&[Arc::new(object(json!({})))], "default").len(),
            0,
            "it is found on the other side"
        );
        assert_eq!(Kept::read(&directory).still(&[], "default").len(), 0);
        std::fs::remove_dir_all(&directory).unwrap();
    }
}
