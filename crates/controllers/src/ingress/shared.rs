//! What all routers share.

use k8s_openapi::Metadata;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{Api, Patch, PatchParams, PostParams};
use kube::{Client, Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt::Debug;
use tracing::{info, warn};

use crate::router::{self, RouterSettings, Step, is_shared, patch, step};

/// Makes what is missing, and puts right what is ours.
pub(super) async fn ensure(client: &Client, settings: &RouterSettings, observe: bool) {
    let cluster = client.clone();
    let within = &settings.namespace;
    let namespaces = Api::all(cluster.clone());
    if settings.openshift {
        keep(&namespaces, router::namespace(settings), |_| true, router::changed_namespace, observe).await;
    } else {
        // What is allowed in a namespace of others is theirs to say.
        make(&namespaces, &router::namespace(settings), observe).await;
    }
    make(&Api::namespaced(cluster.clone(), within), &router::service_account(settings), observe).await;
    let role = router::cluster_role(settings);
    keep(&Api::all(cluster.clone()), role, is_shared, router::changed, observe).await;
    let binding = router::cluster_role_binding(settings);
    keep(&Api::all(cluster.clone()), binding, is_shared, router::changed, observe).await;
    if let Some(authority) = router::service_authority(settings) {
        make(&Api::namespaced(cluster.clone(), within), &authority, observe).await;
    }
    if let Some((metrics, metrics_bound, found, found_bound)) = router::collector(settings) {
        make(&Api::all(cluster.clone()), &metrics, observe).await;
        make(&Api::all(cluster.clone()), &metrics_bound, observe).await;
        make(&Api::namespaced(cluster.clone(), within), &found, observe).await;
        make(&Api::namespaced(cluster, within), &found_bound, observe).await;
    }
}

/// Makes it, if it is not there. One that is there is used as it is, whosever it is.
async fn make<K>(api: &Api<K>, object: &K, observe: bool)
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Serialize,
{
    let name = object.name_any();
    match api.get_opt(&name).await {
        Ok(Some(_)) => {}
        Ok(None) if observe => info!(kind = %K::kind(&()), name, "this would be made"),
        Ok(None) => tell(&name, api.create(&PostParams::default(), object).await),
        Err(problem) => tell(&name, Err::<K, _>(problem)),
    }
}

/// Has it as it should be.
async fn keep<K>(
    api: &Api<K>,
    object: K,
    is_ours: fn(&ObjectMeta) -> bool,
    changed: fn(&K, &K) -> Option<K>,
    observe: bool,
) where
    K: k8s_openapi::Resource + Metadata<Ty = ObjectMeta> + Clone + Debug + DeserializeOwned + Serialize,
{
    let name = object.metadata().name.clone().unwrap_or_default();
    let have = match api.get_opt(&name).await {
        Ok(have) => have,
        Err(problem) => return tell(&name, Err::<K, _>(problem)),
    };
    match step(Some(object), have.as_ref(), is_ours, changed) {
        Step::Nothing | Step::Delete => {}
        Step::Foreign(problem) => warn!(%problem, "routers may lack rights"),
        _ if observe => info!(kind = K::KIND, name, "this would be written"),
        Step::Create(object) => tell(&name, api.create(&PostParams::default(), &object).await),
        Step::Change(object) => {
            let patch = have.map(|have| patch(&have, &object)).unwrap_or_default();
            tell(&name, api.patch(&name, &PatchParams::default(), &Patch::Merge(patch)).await);
        }
    }
}

fn tell<K>(name: &str, done: Result<K, kube::Error>) {
    match done {
        Ok(_) => info!(name, "what all routers share was written"),
        // Another replica was quicker.
        Err(kube::Error::Api(status)) if status.code == 409 => {}
        Err(problem) => warn!(name, %problem, "what all routers share cannot be written"),
    }
}
