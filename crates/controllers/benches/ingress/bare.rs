//! The floor: watches `IngressControllers`, and patches their Services with the ranges that it reads. Nothing else.

use futures_util::{StreamExt, pin_mut};
use k8s_openapi::api::core::v1::Service;
use kube::api::{Api, Patch, PatchParams};
use kube::runtime::{WatchStreamExt, watcher};
use portcullis_kube_api::ingress::IngressController;
use serde_json::json;

use crate::world::FLOOR;

pub(crate) async fn run(client: kube::Client) {
    let controllers: Api<IngressController> = Api::namespaced(client.clone(), FLOOR);
    let services: Api<Service> = Api::namespaced(client, FLOOR);
    let events = watcher(controllers, watcher::Config::default()).default_backoff().applied_objects();
    pin_mut!(events);
    while let Some(event) = events.next().await {
        let Ok(controller) = event else { continue };
        let patch = Patch::Merge(json!({"spec": {"loadBalancerSourceRanges": controller.wanted_ranges()}}));
        services.patch(controller.name(), &PatchParams::default(), &patch).await.unwrap();
    }
}
