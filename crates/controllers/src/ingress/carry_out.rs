//! Has the API hold one object as it is wanted.

use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::Metadata;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use serde::Serialize;
use tracing::info;

use super::cache::{Cache, Kept};
use super::pace::{Paced, SOON};
use crate::router::{Step, patch, step};

/// How often somebody else may be quicker before it is left for later.
const TRIES: usize = 5;

/// What came of it.
pub(super) struct Done<K> {
    /// The object, if it is there and ours.
    pub(super) object: Option<Arc<K>>,
    /// What went wrong.
    pub(super) failure: Option<Failure>,
    /// What it waits for, though nothing is wrong.
    pub(super) waits: Option<String>,
    /// Whether anything was written.
    pub(super) written: bool,
}

impl<K> Default for Done<K> {
    fn default() -> Self {
        Done { object: None, failure: None, waits: None, written: false }
    }
}

/// Why an object is not as it should be.
pub(super) struct Failure {
    /// For the administrator.
    pub(super) why: String,
    /// Whether what it belongs in is missing.
    pub(super) no_namespace: bool,
    /// After which time it can be put right, if it has to wait for nothing else.
    pub(super) again: Option<Duration>,
}

impl Failure {
    pub(super) fn new(why: String) -> Self {
        Failure { why, no_namespace: false, again: None }
    }
}

/// What is wanted of one object.
pub(super) struct Wanted<'a, K> {
    /// Its name.
    pub(super) name: &'a str,
    /// What it should be, if it should be.
    pub(super) object: Option<K>,
    /// Whether one that is there is ours.
    pub(super) is_ours: &'a (dyn Fn(&ObjectMeta) -> bool + Sync),
    /// What has to change.
    pub(super) changed: fn(&K, &K) -> Option<K>,
    /// Whether one that is there lets in whom it should not; what it should be comes second.
    pub(super) is_open: fn(&K, &K) -> bool,
    /// How often it is put back.
    pub(super) paced: Option<Paced<'a>>,
    /// Only say what would be done.
    pub(super) observe: bool,
}

impl<'a, K> Wanted<'a, K> {
    /// That there is none.
    pub(super) fn gone(name: &'a str, is_ours: &'a (dyn Fn(&ObjectMeta) -> bool + Sync)) -> Self {
        Wanted {
            name,
            object: None,
            is_ours,
            changed: |_, _| None,
            is_open: |_, _| false,
            paced: None,
            observe: false,
        }
    }
}

/// Does what has to be done, by one write; if somebody else wrote in between, on what they wrote.
pub(super) async fn carry_out<K>(api: &Api<K>, cache: &Cache<K>, wanted: Wanted<'_, K>) -> Done<K>
where
    K: Kept + Serialize + k8s_openapi::Resource + Metadata<Ty = ObjectMeta> + PartialEq,
{
    let name = wanted.name;
    let mut have = cache.get(name);
    for _ in 0..TRIES {
        let there = |have: Option<Arc<K>>| have.filter(|have| (wanted.is_ours)(have.metadata()));
        let done = |object, written| Done { object, written, ..Done::default() };
        let next = step(wanted.object.clone(), have.as_deref(), wanted.is_ours, wanted.changed);
        let goes = have.as_ref().is_some_and(|have| have.metadata().deletion_timestamp.is_some());
        let whole = || place::<K>(cache.namespace(), name);
        // What goes is made again once it is gone.
        if goes && !matches!(next, Step::Foreign(_)) {
            let waits = format!("{} is being deleted, and is made again once it is gone.", whole());
            let waits = wanted.object.is_some().then_some(waits);
            return Done { waits, ..done(there(have), false) };
        }
        if wanted.observe && !matches!(next, Step::Nothing | Step::Foreign(_)) {
            info!(kind = K::KIND, name, ?next, "this would be done");
            let waits = Some(format!("{} would be changed, and is only looked at.", whole()));
            return Done { waits, ..done(there(have), false) };
        }
        if let (Step::Change(object), Some(have), Some(paced)) = (&next, &have, &wanted.paced) {
            let is_open = (wanted.is_open)(have, object);
            let wait = paced.wait(K::KIND, name, is_open, Instant::now());
            if !wait.is_zero() {
                return fought_over(&whole(), there(Some(Arc::clone(have))), wait);
            }
        }
        let tried = match (&next, &have) {
            (Step::Nothing, _) => return done(there(have), false),
            (Step::Foreign(problem), _) => {
                let why = format!("{} {} {}", problem.what, problem.state, problem.remedy);
                return failure(None, why, false);
            }
            (Step::Create(object), _) => api.create(&PostParams::default(), object).await.map(Some),
            (Step::Change(object), Some(have)) => {
                let patch = Patch::Merge(patch(&**have, object));
                api.patch(name, &PatchParams::default(), &patch).await.map(Some)
            }
            (Step::Delete, Some(have)) => {
                let uid = Preconditions { uid: have.uid(), ..Preconditions::default() };
                let delete = DeleteParams::background().preconditions(uid);
                api.delete(name, &delete).await.map(|_| None)
            }
            (Step::Change(_) | Step::Delete, None) => return done(None, false),
        };
        match tried {
            Ok(Some(object)) => {
                if let (Some(_), Some(paced)) = (&have, &wanted.paced) {
                    paced.corrected(K::KIND, name, Instant::now());
                }
                return done(Some(cache.wrote(object)), true);
            }
            Ok(None) => return done(None, true),
            // Somebody was quicker: what they did decides anew.
            Err(kube::Error::Api(status)) if status.code == 409 || (status.code == 404 && have.is_some()) => {
                match api.get_opt(name).await {
                    // It is not kept: of one that is not ours the watch tells nothing, not even when it goes.
                    Ok(found) => have = found.map(Arc::new),
                    Err(problem) => {
                        return failed(&place::<K>(cache.namespace(), name), there(have), &problem);
                    }
                }
            }
            Err(problem) => return failed(&place::<K>(cache.namespace(), name), there(have), &problem),
        }
    }
    // Who was quicker each time may give up now, and must not leave anything open for long.
    fought_over(&place::<K>(cache.namespace(), name), have, SOON)
}

fn fought_over<K>(place: &str, object: Option<Arc<K>>, again: Duration) -> Done<K> {
    let why = format!(
        "{place} is changed by somebody else again and again. It is put right now and then. Find out who else looks after it."
    );
    Done { object, failure: Some(Failure { again: Some(again), ..Failure::new(why) }), ..Done::default() }
}

fn failed<K: k8s_openapi::Resource>(place: &str, object: Option<Arc<K>>, problem: &kube::Error) -> Done<K> {
    match problem {
        kube::Error::Api(status) => {
            let no_namespace = status.code == 404 && object.is_none();
            let why = format!(
                "{place} stays as it is: Kubernetes refuses the change, and says: {}",
                status.message
            );
            failure(object, why, no_namespace)
        }
        other => failure(
            object,
            format!("{place} stays as it is: the Kubernetes API cannot be used: {other}"),
            false,
        ),
    }
}

fn failure<K>(object: Option<Arc<K>>, why: String, no_namespace: bool) -> Done<K> {
    Done { object, failure: Some(Failure { no_namespace, ..Failure::new(why) }), ..Done::default() }
}

fn place<K: k8s_openapi::Resource>(namespace: &str, name: &str) -> String {
    let place = format!("{namespace}/{name}");
    format!("{} {}", K::KIND, place.trim_start_matches('/'))
}
