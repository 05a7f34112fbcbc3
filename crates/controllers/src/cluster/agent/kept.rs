//! What this machine carried last, written down: what is refused or paused goes on so after another start, and so does what was
//! moved to another management cluster, until this machine finds it there. All of it is carried while the API does not answer.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use portcullis_kube_api::cluster::{DutyWord, HaProxyLoadBalancerSpec, Instance, is_moving_away};
use serde::{Deserialize, Serialize};
use tracing::{info, warn};

use super::{HaProxyAgentSettings, ObjectKey};
use crate::cluster::admitted::narrowed;
use crate::cluster::haproxy::HaProxyLoadBalancer;
use crate::cluster::shelf::key;
use crate::cluster::thing::Thing;

/// What is kept, and the file that it is in.
#[derive(Debug, Default)]
pub(super) struct Kept {
    file: PathBuf,
    forms: BTreeMap<ObjectKey, Form>,
    /// Whether the file has something else.
    is_new: bool,
}

/// A load balancer as it was carried.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
struct Form {
    namespace: String,
    name: String,
    generation: Option<i64>,
    created: Option<Time>,
    address: String,
    spec: HaProxyLoadBalancerSpec,
    /// Whether it lives on elsewhere: that it is not here any more is no reason to end it.
    moved: bool,
}

impl Kept {
    pub(super) fn read(directory: &Path) -> Self {
        let file = directory.join("carried.json");
        let read: Vec<Form> = match std::fs::read(&file) {
            Ok(text) => serde_json::from_slice(&text).unwrap_or_else(|problem| {
                warn!(file = %file.display(), %problem, "what was carried last cannot be read");
                Vec::new()
            }),
            Err(problem) if problem.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(problem) => {
                warn!(file = %file.display(), %problem, "what was carried last cannot be read");
                Vec::new()
            }
        };
        let forms = read.into_iter().map(|form| ((form.namespace.clone(), form.name.clone()), form));
        Kept { file, forms: forms.collect(), is_new: false }
    }

    /// It is carried like this.
    pub(super) fn accept(&mut self, object: &HaProxyLoadBalancer) {
        let form = self.forms.entry(key(object)).or_default();
        let now = Form { moved: form.moved, ..Form::of(object) };
        if *form != now {
            *form = now;
            self.is_new = true;
        }
    }

    /// It lets in nobody who is not meant by this form, whatever else of it cannot be carried.
    pub(super) fn narrow(&mut self, object: &HaProxyLoadBalancer) {
        let Some(form) = self.forms.get_mut(&key(object)) else { return };
        let (Some(kept), Some(now)) = (&mut form.spec.assignment, &object.spec.assignment) else { return };
        let left = narrowed(kept.allowed_source_ranges.as_deref(), now.allowed_source_ranges.as_deref());
        if kept.allowed_source_ranges != left {
            kept.allowed_source_ranges = left;
            self.is_new = true;
        }
    }

    /// It was moved away. That is written down at once: it is gone in the next moment.
    pub(super) fn keep(&mut self, object: &HaProxyLoadBalancer) {
        let form = self.forms.entry(key(object)).or_insert_with(|| Form::of(object));
        if form.moved {
            return;
        }
        info!(
            namespace = object.namespace(),
            name = object.name(),
            "a load balancer was moved to another management cluster, and is carried on"
        );
        form.moved = true;
        self.is_new = true;
        self.save();
    }

    pub(super) fn has(&self, object: &HaProxyLoadBalancer) -> bool {
        self.forms.contains_key(&key(object))
    }

    /// Whether a machine goes on with what it carried although that is for another pool by now: until one of that pool has what was
    /// asked for since, and sends to members, if there are any. A name that is mistyped takes nothing from anybody.
    pub(super) fn goes_on(&self, object: &HaProxyLoadBalancer, settings: &HaProxyAgentSettings) -> bool {
        let Some(form) = self.forms.get(&key(object)) else { return false };
        let is_another = form.created != object.metadata.creation_timestamp;
        if is_another || form.spec.pool() != settings.pool {
            return false;
        }
        let members = object.spec.assignment.iter().flat_map(|assignment| &assignment.members);
        let nobody_serves = !members.into_iter().any(|member| member.duty == DutyWord::Serve);
        let sends = |instance: &Instance| instance.members.iter().any(|member| member.status == "active");
        let mut others =
            object.status.instances.iter().filter(|instance| instance.pool == object.spec.pool());
        !others.any(|other| {
            other.observed_generation > form.generation
                && other.problem.is_none()
                && (nobody_serves || sends(other))
        })
    }

    /// An object as it was carried last.
    pub(super) fn form(&self, object: &HaProxyLoadBalancer) -> Option<HaProxyLoadBalancer> {
        Some(self.forms.get(&key(object))?.put_on(object.clone()))
    }

    /// Forgets who is gone. Gives those that were moved away, and are not found again among those who are there; and those that are
    /// there and cannot be read.
    pub(super) fn still(
        &mut self,
        found: &[Arc<HaProxyLoadBalancer>],
        pool: &str,
        is_unknown: impl Fn(&ObjectKey) -> bool,
    ) -> Vec<Arc<HaProxyLoadBalancer>> {
        let found: BTreeMap<ObjectKey, bool> =
            found.iter().map(|object| (key(object), is_moving_away(object))).collect();
        let before = self.forms.len();
        self.forms.retain(|place, form| form.moved || found.contains_key(place) || is_unknown(place));
        self.is_new |= self.forms.len() != before;
        for (_, form) in self.forms.iter_mut().filter(|(place, _)| found.get(*place) == Some(&false)) {
            self.is_new |= std::mem::take(&mut form.moved);
        }
        let missing = self.forms.iter().filter(|(place, _)| !found.contains_key(*place));
        let missing = missing.filter(|(_, form)| form.spec.pool() == pool);
        missing.map(|(_, form)| Arc::new(form.object())).collect()
    }

    /// All that this machine carried, for as long as nothing else is known.
    pub(super) fn all(&self, pool: &str) -> Vec<Arc<HaProxyLoadBalancer>> {
        let ours = self.forms.values().filter(|form| form.spec.pool() == pool);
        ours.map(|form| Arc::new(form.object())).collect()
    }

    /// Writes it down, if it is not yet.
    pub(super) fn save(&mut self) {
        if !self.is_new {
            return;
        }
        let all: Vec<&Form> = self.forms.values().collect();
        let draft = self.file.with_extension("new");
        let written = serde_json::to_vec(&all)
            .map_err(io::Error::from)
            .and_then(|text| std::fs::write(&draft, text))
            .and_then(|()| std::fs::rename(&draft, &self.file));
        if let Err(problem) = written {
            warn!(file = %self.file.display(), %problem, "what is carried could not be written down: until that is tried again with success, it is lost with this process");
            return;
        }
        self.is_new = false;
    }
}

impl Form {
    fn of(object: &HaProxyLoadBalancer) -> Self {
        Form {
            namespace: object.namespace().to_owned(),
            name: object.name().to_owned(),
            generation: object.metadata.generation,
            created: object.metadata.creation_timestamp.clone(),
            address: object.status.address.clone(),
            spec: object.spec.clone(),
            moved: false,
        }
    }

    fn put_on(&self, mut object: HaProxyLoadBalancer) -> HaProxyLoadBalancer {
        object.0.metadata.generation = self.generation;
        object.0.spec = self.spec.clone();
        object.0.status.address.clone_from(&self.address);
        object
    }

    /// What is not to be seen, as if it were here.
    fn object(&self) -> HaProxyLoadBalancer {
        let mut object: HaProxyLoadBalancer = Thing::default();
        object.0.metadata.namespace = Some(self.namespace.clone());
        object.0.metadata.name = Some(self.name.clone());
        object.0.metadata.creation_timestamp.clone_from(&self.created);
        // By this it is known for what it is.
        let mark = ("clusterctl.cluster.x-k8s.io/delete-for-move".to_owned(), String::new());
        object.0.metadata.annotations = Some([mark].into_iter().collect());
        self.put_on(object)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    /// A directory of its own, that ends with the test.
    struct Place(PathBuf);

    impl Place {
        fn new(name: &str) -> Self {
            let place =
                std::env::temp_dir().join(format!("portcullis-carried-{name}-{}", std::process::id()));
            std::fs::create_dir_all(&place).unwrap();
            Place(place)
        }
    }

    impl Drop for Place {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    #[allow(clippy::needless_pass_by_value, reason = "samples are easier to read so")]
    fn object(marks: Value, balance: &str) -> Arc<HaProxyLoadBalancer> {
        let object = json!({
            "metadata": {"namespace": "a", "name": "lb", "generation": 7, "annotations": marks,
                "creationTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {"balance": balance, "assignment": {"loadBalancer": "lb"}},
            "status": {"address": "192.0.2.1"},
        });
        Arc::new(serde_json::from_value(object).unwrap())
    }

    #[test]
    fn what_moved_away_is_kept_until_it_is_found() {
        let place = Place::new("moved");
        let moving = object(json!({"clusterctl.cluster.x-k8s.io/delete-for-move": ""}), "random");
        let mut kept = Kept::read(&place.0);
        kept.keep(&moving);
        assert_eq!(kept.still(&[moving], "default", |_| false).len(), 0, "it is there still");
        let mut again = Kept::read(&place.0);
        assert_eq!(again.still(&[], "default", |_| false).len(), 1, "also after another start");
        assert_eq!(again.still(&[], "other", |_| false).len(), 0);
        let there = object(json!({}), "random");
        assert_eq!(again.still(&[there], "default", |_| false).len(), 0, "it is found on the other side");
        again.save();
        assert_eq!(Kept::read(&place.0).still(&[], "default", |_| false).len(), 0);
    }

    #[test]
    fn who_was_shut_out_is_not_let_in_by_another_start() {
        let place = Place::new("narrow");
        let open_to = |ranges: Value| {
            let mut object = HaProxyLoadBalancer::clone(&object(json!({}), "random"));
            let ranges = serde_json::from_value(ranges).unwrap();
            object.0.spec.assignment.as_mut().unwrap().allowed_source_ranges = ranges;
            object
        };
        let mut kept = Kept::read(&place.0);
        kept.accept(&open_to(json!(["10.0.0.0/8"])));
        kept.narrow(&open_to(json!(["10.1.0.0/16", "192.0.2.0/24"])));
        kept.save();
        let again = Kept::read(&place.0);
        let form = again.form(&open_to(json!(null))).unwrap();
        let ranges = &form.spec.assignment.as_ref().unwrap().allowed_source_ranges;
        assert_eq!(json!(ranges), json!(["10.1.0.0/16"]), "and nobody more, before it can be carried");
    }

    #[test]
    fn what_is_carried_is_known_after_another_start_until_it_goes() {
        let place = Place::new("start");
        let (before, now) = (object(json!({}), "random"), object(json!({}), "fastest"));
        let mut kept = Kept::read(&place.0);
        kept.accept(&before);
        kept.save();
        let mut again = Kept::read(&place.0);
        again.still(&[Arc::clone(&now)], "default", |_| false);
        let form = again.form(&now).unwrap();
        assert_eq!((&form.spec, form.metadata.generation), (&before.spec, Some(7)));
        assert_eq!(form.status.address, "192.0.2.1");
        // What is moved away is what was carried, and not what was refused.
        again.keep(&now);
        assert_eq!(Kept::read(&place.0).still(&[], "default", |_| false)[0].spec, before.spec);
        again.still(&[now], "default", |_| false);
        assert_eq!(again.still(&[], "default", |_| true).len(), 1, "it is there, and cannot be read");
        assert_eq!(again.still(&[], "default", |_| false).len(), 0, "it is gone");
        again.save();
        assert!(!Kept::read(&place.0).has(&before));
    }

    #[test]
    fn it_is_written_when_it_changed_and_not_otherwise() {
        let place = Place::new("written");
        let one = object(json!({}), "random");
        let mut kept = Kept::read(&place.0);
        kept.accept(&one);
        kept.save();
        std::fs::remove_file(&kept.file).unwrap();
        kept.accept(&one);
        kept.still(&[one], "default", |_| false);
        kept.save();
        assert!(!kept.file.exists());
        kept.accept(&object(json!({}), "leastconn"));
        kept.save();
        assert!(kept.file.exists());
    }

    #[test]
    fn what_could_not_be_written_is_written_later() {
        let place = Place::new("later");
        let one = object(json!({}), "random");
        let mut kept = Kept::read(&place.0);
        kept.accept(&one);
        std::fs::create_dir(place.0.join("carried.new")).unwrap();
        kept.save();
        assert!(!kept.file.exists(), "there is no way to");
        std::fs::remove_dir(place.0.join("carried.new")).unwrap();
        kept.accept(&one);
        kept.save();
        assert!(Kept::read(&place.0).has(&one));
    }

    #[test]
    fn all_of_a_pool_is_known_without_the_api() {
        let place = Place::new("all");
        let one = object(json!({}), "random");
        let mut kept = Kept::read(&place.0);
        assert_eq!(kept.all("default").len(), 0);
        kept.accept(&one);
        kept.save();
        let all = Kept::read(&place.0).all("default");
        assert_eq!((all.len(), &all[0].spec, all[0].status.address.as_str()), (1, &one.spec, "192.0.2.1"));
        assert_eq!(all[0].metadata.creation_timestamp, one.metadata.creation_timestamp);
        assert!(all[0].metadata.creation_timestamp.is_some(), "who was there first is known");
        assert_eq!(kept.all("other").len(), 0);
    }

    #[test]
    fn a_file_that_cannot_be_read_is_as_none() {
        let place = Place::new("broken");
        let one = object(json!({}), "random");
        for text in ["", "[{", "{}", r#"[{"name": 1}]"#, r#"[{"namespace": "b", "old": true}]"#] {
            std::fs::write(place.0.join("carried.json"), text).unwrap();
            let mut kept = Kept::read(&place.0);
            assert!(!kept.has(&one), "{text}");
            kept.accept(&one);
            kept.save();
            assert!(Kept::read(&place.0).has(&one), "{text}");
        }
    }
}
