//! What the objects of the router should be.

use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Service, ServiceAccount};
use k8s_openapi::api::networking::v1::IngressClass;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use kube::api::ApiResource;
use portcullis_core::Problem;
use portcullis_kube_api::host::LISTEN_ADDRESSES;
use portcullis_kube_api::ingress::{EndpointPublishingStrategy, IngressController, PublishingType};
use serde_json::json;

use super::SingleNodeSettings;
use super::object::Object;
use crate::router::{self, AddressMode, Present, RouterSettings};

/// The name of the router, as if there were an `IngressController` of that name.
pub(super) const NAME: &str = "default";

/// The role of the router, and its binding. `IngressControllers` have another one, which need not be the same.
const ROLE: &str = "portcullis-single-node-router";

/// Who the router is, and the `ConfigMap` with the authority of Services. Those of `IngressControllers` in the same namespace are
/// others: they stay when this router goes.
const ACCOUNT: &str = "portcullis-router";
const AUTHORITY: &str = "portcullis-service-ca";

/// What the cluster says, as far as it decides about the router.
#[derive(Clone, Debug, Default)]
pub(super) struct Seen {
    /// Whether it has what OpenShift has.
    pub(super) openshift: bool,
    /// Whether there is a certificate under the usual name.
    pub(super) certificate: bool,
    /// The `ConfigMaps` that the configuration names.
    pub(super) sources: BTreeMap<String, ConfigMap>,
}

/// What the configuration says, as an `IngressController` and what it is made of.
pub(super) fn wanted(settings: &SingleNodeSettings, openshift: bool) -> (IngressController, RouterSettings) {
    let mut controller = settings.controller.clone();
    controller.metadata.name = Some(NAME.to_owned());
    controller.spec.endpoint_publishing_strategy = Some(EndpointPublishingStrategy {
        type_: PublishingType::LoadBalancerService,
        ..EndpointPublishingStrategy::default()
    });
    // There is no other node to fall back to, and who falls back does not tell the router who a client is.
    let overrides = controller.spec.rest.entry("unsupportedConfigOverrides".to_owned()).or_default();
    overrides["localWithFallback"] = json!("false");
    let router = RouterSettings { openshift, single_replica: true, ..settings.router.clone() };
    (controller, router)
}

/// Everything that the router consists of, in the order in which it is made.
pub(super) fn objects(settings: &SingleNodeSettings, seen: &Seen) -> Result<Vec<Object>, Problem> {
    let (controller, router) = wanted(settings, seen.openshift);
    let mut all = vec![
        Object::new(&router::namespace(&router), NAME),
        Object::new(&service_account(&router), NAME),
        Object::new(&cluster_role(&router), NAME),
        Object::new(&cluster_role_binding(&router), NAME),
    ];
    // Its content is OpenShift's.
    all.extend(service_authority(&router).map(|authority| Object::new(&authority, NAME)));
    all.extend(router::log_config(&controller, &router).map(|config| Object::new(&config, NAME).whole()));
    for copied in router::copies(&controller) {
        let source = copied.source.as_ref().and_then(|name| seen.sources.get(name));
        let copy = router::copied(&copied, source, &controller, &router).map_err(|what| not_there(&what))?;
        all.extend(copy.map(|copy| Object::new(&copy, NAME).whole()));
    }
    let internal = router::internal_service(&controller, &router).map(|service| reachable(service, &router));
    all.extend(internal.map(|service| Object::new(&service, NAME)));
    let outside = router::load_balancer_service(&controller, &router);
    let outside = outside.map(|service| published(reachable(service, &router), settings));
    all.extend(outside.map(|service| Object::new(&service, NAME)));
    let present = Present { certificate: seen.certificate, ..Present::default() };
    let deployment = router::deployment(&controller, &router, &present).map(with_its_own);
    all.extend(deployment.map(|deployment| Object::new(&deployment, NAME)));
    all.extend(ingress_class(&controller, &router).map(|class| Object::new(&class, NAME)));
    Ok(all)
}

fn service_account(router: &RouterSettings) -> ServiceAccount {
    let mut account = router::service_account(router);
    account.metadata.name = Some(ACCOUNT.to_owned());
    account
}

fn service_authority(router: &RouterSettings) -> Option<ConfigMap> {
    let mut authority = router::service_authority(router)?;
    authority.metadata.name = Some(AUTHORITY.to_owned());
    Some(authority)
}

/// The Deployment with these two.
fn with_its_own(mut deployment: Deployment) -> Deployment {
    let pod = deployment.spec.get_or_insert_default().template.spec.get_or_insert_default();
    pod.service_account_name = Some(ACCOUNT.to_owned());
    let maps = pod.volumes.iter_mut().flatten().filter_map(|volume| volume.config_map.as_mut());
    for map in maps.filter(|map| map.name == "service-ca-bundle") {
        AUTHORITY.clone_into(&mut map.name);
    }
    deployment
}

/// What the router may see.
fn cluster_role(router: &RouterSettings) -> ClusterRole {
    let mut role = router::cluster_role(router);
    role.metadata.name = Some(ROLE.to_owned());
    role
}

fn cluster_role_binding(router: &RouterSettings) -> ClusterRoleBinding {
    let mut binding = router::cluster_role_binding(router);
    binding.metadata.name = Some(ROLE.to_owned());
    ROLE.clone_into(&mut binding.role_ref.name);
    for subject in binding.subjects.iter_mut().flatten() {
        ACCOUNT.clone_into(&mut subject.name);
    }
    binding
}

/// By both families, if pods have both, and else by one: it is said in either case, so that what somebody else says is put back. The
/// ports inside are always the same.
fn reachable(mut service: Service, router: &RouterSettings) -> Service {
    let policy = match router.addresses {
        AddressMode::Both => "PreferDualStack",
        AddressMode::V4 | AddressMode::V6 => "SingleStack",
    };
    service.spec.get_or_insert_default().ip_family_policy = Some(policy.to_owned());
    service
}

/// On the ports and at the addresses that the configuration says.
fn published(mut service: Service, settings: &SingleNodeSettings) -> Service {
    let [http, https] = settings.ports;
    for port in service.spec.get_or_insert_default().ports.iter_mut().flatten() {
        port.port = i32::from(if port.name.as_deref() == Some("https") { https } else { http });
    }
    // Node ports would let in by every address of the node, whatever is listened to and whoever is kept out. Others may need them.
    if settings.at_node {
        service.spec.get_or_insert_default().allocate_load_balancer_node_ports = Some(false);
    }
    if !settings.listen.is_empty() {
        let annotations = service.metadata.annotations.get_or_insert_default();
        annotations.insert(LISTEN_ADDRESSES.to_owned(), settings.listen.join(","));
    }
    service
}

/// The class of Ingresses for the router. There is no `IngressController` that it could name.
fn ingress_class(controller: &IngressController, router: &RouterSettings) -> Option<IngressClass> {
    let mut class = router::ingress_class(controller, router)?;
    class.spec.get_or_insert_default().parameters = None;
    Some(class)
}

/// A `ConfigMap` that the configuration names is not there, or lacks something.
fn not_there(what: &str) -> Problem {
    let what = what.replace("spec.", "ingress.");
    let (what, remedy) = what.split_once("; routers stay as they are. ").unwrap_or((&what, ""));
    Problem::new(format!("{what}."), "The router stays as it is.", remedy)
}

/// Everything that there can be of it, in the order in which it is made: what it is, and its name. The namespace is not in it.
pub(super) fn possible(settings: &SingleNodeSettings) -> Vec<(ApiResource, Option<String>, String)> {
    let (controller, router) = wanted(settings, true);
    let within =
        |resource: ApiResource, name: &str| (resource, Some(router.namespace.clone()), name.to_owned());
    let cluster = |resource: ApiResource, name: &str| (resource, None, name.to_owned());
    let maps = || ApiResource::erase::<ConfigMap>(&());
    let services = || ApiResource::erase::<Service>(&());
    let mut all = vec![
        within(ApiResource::erase::<ServiceAccount>(&()), ACCOUNT),
        cluster(ApiResource::erase::<ClusterRole>(&()), ROLE),
        cluster(ApiResource::erase::<ClusterRoleBinding>(&()), ROLE),
        within(maps(), AUTHORITY),
        within(maps(), &format!("rsyslog-conf-{NAME}")),
    ];
    all.extend(router::copies(&controller).iter().map(|copied| within(maps(), &copied.name)));
    all.extend([
        within(services(), &format!("router-internal-{NAME}")),
        within(services(), &format!("router-{NAME}")),
        within(ApiResource::erase::<Deployment>(&()), &format!("router-{NAME}")),
        cluster(ApiResource::erase::<IngressClass>(&()), &router::class_name(&controller)),
        within(maps(), &limits_of(&format!("router-{NAME}"))),
    ]);
    all
}

/// Where it is noted who may connect to a Service, while it is made anew.
pub(super) fn limits_of(service: &str) -> String {
    format!("{service}-limits")
}

/// The namespace of the router, as a kind of object.
pub(super) fn namespaces() -> ApiResource {
    ApiResource::erase::<Namespace>(&())
}
