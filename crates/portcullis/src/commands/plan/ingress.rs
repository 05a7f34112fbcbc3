//! Plans for `IngressControllers`: what would become of their objects, and who could reach them.

use std::fmt::Debug;

use k8s_openapi::Metadata;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Secret, Service};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Client;
use kube::api::{Api, ListParams};
use portcullis_controllers::ingress::{IngressSettings, admission};
use portcullis_controllers::router::{self, Present, Step, belongs_to, patch, replacement, step};
use portcullis_core::{
    Access, Calls, Change, Cidr, Detail, Direction, Family, Owner, Peer, PlanView, PortRange, Problem,
    Protocol, Reach, ReachChange, Rule, Sign, Traffic,
};
use portcullis_kube_api::ingress::ranges::{Said, effective};
use portcullis_kube_api::ingress::{HostNetworkStrategy, IngressController};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::lacking;
use crate::exit::Failure;

/// What there is of an `IngressController`, and all that could be in its way.
#[derive(Debug, Default)]
pub(super) struct There {
    deployment: Option<Deployment>,
    balanced: Option<Service>,
    internal: Option<Service>,
    on_ports: Option<Service>,
    budget: Option<PodDisruptionBudget>,
    /// Whether there is a certificate under the usual name.
    certificate: bool,
    /// All `IngressControllers`.
    all: Vec<IngressController>,
}

/// What would be: the plan, and the load balancer Service as it would be then.
pub(super) struct Then {
    pub(super) plan: PlanView,
    pub(super) service: Option<Service>,
}

/// All `IngressControllers` of the cluster.
pub(super) async fn of_cluster(
    client: &Client,
    settings: &IngressSettings,
) -> Result<Vec<IngressController>, Failure> {
    let api: Api<IngressController> = Api::namespaced(client.clone(), &settings.namespace);
    match api.list(&ListParams::default()).await {
        Ok(found) => Ok(found.items),
        // The type is not installed, so there are none.
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(Vec::new()),
        Err(error) => Err(lacking(&error)),
    }
}

impl There {
    /// Asks the cluster.
    pub(super) async fn ask(
        client: &Client,
        settings: &IngressSettings,
        name: &str,
    ) -> Result<Self, Failure> {
        let namespace = &settings.router.namespace;
        let services: Api<Service> = Api::namespaced(client.clone(), namespace);
        let deployments: Api<Deployment> = Api::namespaced(client.clone(), namespace);
        let budgets: Api<PodDisruptionBudget> = Api::namespaced(client.clone(), namespace);
        let secrets: Api<Secret> = Api::namespaced(client.clone(), namespace);
        let lacking = |error: kube::Error| lacking(&error);
        Ok(There {
            deployment: deployments.get_opt(&format!("router-{name}")).await.map_err(lacking)?,
            balanced: services.get_opt(&format!("router-{name}")).await.map_err(lacking)?,
            internal: services.get_opt(&format!("router-internal-{name}")).await.map_err(lacking)?,
            on_ports: services.get_opt(&format!("router-nodeport-{name}")).await.map_err(lacking)?,
            budget: budgets.get_opt(&format!("router-{name}")).await.map_err(lacking)?,
            certificate: secrets
                .get_metadata_opt(&format!("router-certs-{name}"))
                .await
                .map_err(lacking)?
                .is_some(),
            all: of_cluster(client, settings).await?,
        })
    }

    /// An `IngressController` of a file, with what the cluster knows of it.
    pub(super) fn known(&self, mut given: IngressController) -> IngressController {
        if let Some(found) = self.all.iter().find(|found| found.name() == given.name()) {
            given.status = found.status.clone();
            given.metadata.uid.clone_from(&found.metadata.uid);
            given.metadata.creation_timestamp.clone_from(&found.metadata.creation_timestamp);
        }
        given
    }
}

/// What would become of an `IngressController`.
pub(super) fn plan(
    controller: &IngressController,
    there: &There,
    settings: &IngressSettings,
    cluster: &str,
) -> Result<Then, Problem> {
    let name = controller.name();
    let whole = format!("IngressController {}/{name}", settings.namespace);
    let refusals = admission(controller, &there.all, &settings.router);
    if !refusals.is_empty() {
        return Err(Problem::new(
            format!("{whole}: {}.", refusals.join("; ")),
            "Nothing would be done for it.",
            "Correct it.",
        ));
    }
    let router = &settings.router;
    let is_ours = |metadata: &ObjectMeta| belongs_to(metadata, name);
    let wanted = router::load_balancer_service(controller, router);
    let mut changes = Vec::new();
    let ours = |service: &&Service| belongs_to(&service.metadata, name);
    let present = Present {
        service: there.balanced.as_ref().filter(ours),
        node_port: there.on_ports.as_ref().filter(ours),
        certificate: there.certificate,
    };
    let deployment = step(
        router::deployment(controller, router, &present),
        there.deployment.as_ref(),
        is_ours,
        router::changed_deployment,
    );
    let balanced = step(wanted.clone(), there.balanced.as_ref(), is_ours, router::changed_load_balancer);
    let internal =
        step(router::internal_service(controller, router), there.internal.as_ref(), is_ours, router::changed);
    let on_ports = step(
        router::node_port_service(controller, router, &present),
        there.on_ports.as_ref(),
        is_ours,
        router::changed,
    );
    changes.extend(change("Deployment", &deployment, there.deployment.as_ref())?);
    changes.extend(change("Service", &balanced, there.balanced.as_ref())?);
    changes.extend(change("Service", &internal, there.internal.as_ref())?);
    changes.extend(change("Service", &on_ports, there.on_ports.as_ref())?);
    let budget =
        step(router::disruption_budget(controller, router), there.budget.as_ref(), is_ours, router::changed);
    changes.extend(change("PodDisruptionBudget", &budget, there.budget.as_ref())?);
    let calls = Calls {
        all: changes.len(),
        destructive: changes.iter().filter(|change| change.sign == Sign::Delete).count(),
    };
    let mut calls = calls;
    let mut after = after(&balanced, there.balanced.as_ref());
    let waiting = match (there.balanced.as_ref().filter(ours), &wanted) {
        (Some(current), Some(wanted)) => replacement(controller, current, wanted, router),
        _ => Vec::new(),
    };
    if let (Some(current), Some(wanted), false) = (&there.balanced, &wanted, waiting.is_empty())
        && router::may_be_replaced(controller, current)
    {
        // As the annotation says, it is replaced at once.
        let what: Vec<&str> = waiting.iter().map(|waits| waits.what.as_str()).collect();
        let gone = Change::new(Sign::Delete, "Service", key(&current.metadata));
        changes.push(gone.with(Detail::new(Sign::Delete, [format!("another {}", what.join(", "))], "")));
        changes.extend(change("Service", &Step::Create(wanted.clone()), None)?);
        calls = Calls { all: calls.all + 2, destructive: calls.destructive + 1 };
        after = Some(wanted.clone());
    } else if let Some(current) = &there.balanced {
        changes.extend(waiting.into_iter().map(|waits| {
            let detail = Detail::new(Sign::Keep, [format!("its {}", waits.what)], waits.message);
            Change::new(Sign::Keep, "Service", key(&current.metadata)).with(detail)
        }));
    }
    let on_hosts = router::strategy(controller, router).host_network;
    let ingress = ReachChange {
        before: reach(there.balanced.as_ref(), there.on_ports.as_ref())
            .union(&on_nodes(on_hosts.as_ref().filter(|_| there.deployment.is_some()))),
        after: reach(after.as_ref(), self::after(&on_ports, there.on_ports.as_ref()).as_ref())
            .union(&on_nodes(on_hosts.as_ref())),
    };
    let unplanned = |why: String| Problem::new(format!("{whole}: {why}."), "There is no plan.", "Report it.");
    let owner = Owner::new(cluster, "IngressController", Some(settings.namespace.clone()), name)
        .map_err(|error| unplanned(error.to_string()))?;
    let access = Access { ingress, egress: ReachChange::default() };
    let place = format!("routers in namespace {}", router.namespace);
    let plan = PlanView::new(owner, place, changes, calls, access);
    Ok(Then { plan: plan.map_err(|error| unplanned(error.to_string()))?, service: after })
}

/// What an object is when a step was done.
fn after<T: Clone>(step: &Step<T>, current: Option<&T>) -> Option<T> {
    match step {
        Step::Create(object) | Step::Change(object) => Some(object.clone()),
        Step::Nothing => current.cloned(),
        Step::Delete | Step::Foreign(_) => None,
    }
}

fn change<T>(kind: &str, step: &Step<T>, current: Option<&T>) -> Result<Option<Change>, Problem>
where
    T: Metadata<Ty = ObjectMeta> + Serialize + DeserializeOwned + Debug,
{
    Ok(match (step, current) {
        (Step::Nothing, _) | (Step::Change(_) | Step::Delete, None) => None,
        (Step::Foreign(problem), _) => return Err(problem.clone()),
        (Step::Create(object), _) => {
            let mut made = Change::new(Sign::Create, kind, key(object.metadata()));
            let object = serde_json::to_value(object).unwrap_or_default();
            made.details.extend(parts(Sign::Create, &object["spec"], "", &CREATED));
            Some(made)
        }
        (Step::Change(object), Some(current)) => {
            let mut changed = Change::new(Sign::Update, kind, key(object.metadata()));
            let mut patch = patch(current, object);
            if let Some(metadata) = patch["metadata"].as_object_mut() {
                metadata.remove("resourceVersion");
            }
            changed.details.extend(leaves(&patch, String::new()));
            Some(changed)
        }
        (Step::Delete, Some(current)) => Some(Change::new(Sign::Delete, kind, key(current.metadata()))),
    })
}

/// What is worth telling of an object that is made.
const CREATED: [(&str, &str); 6] = [
    ("replicas", "replicas"),
    ("type", "type"),
    ("loadBalancerClass", "class"),
    ("externalTrafficPolicy", "traffic"),
    ("loadBalancerSourceRanges", "ranges"),
    ("maxUnavailable", "away at most"),
];

fn parts(sign: Sign, object: &Value, why: &str, keys: &[(&str, &str)]) -> Vec<Detail> {
    let found = keys.iter().filter(|(key, _)| !object[*key].is_null());
    found.map(|(key, word)| Detail::new(sign, [(*word).to_owned(), in_words(&object[*key])], why)).collect()
}

/// Every value that changes, by where it is.
fn leaves(patch: &Value, place: String) -> Vec<Detail> {
    match patch {
        Value::Object(entries) => entries
            .iter()
            .flat_map(|(key, value)| {
                let place = if place.is_empty() { key.clone() } else { format!("{place}.{key}") };
                leaves(value, place)
            })
            .collect(),
        Value::Null => vec![Detail::new(Sign::Delete, [place], "")],
        value => vec![Detail::new(Sign::Update, [place, in_words(value)], "")],
    }
}

/// A value in one line, which is not too long.
fn in_words(value: &Value) -> String {
    const LONG: usize = 120;
    let text = match value {
        Value::String(text) => text.clone(),
        Value::Array(entries) if entries.iter().all(Value::is_string) => {
            entries.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(", ")
        }
        other => other.to_string(),
    };
    match text.char_indices().nth(LONG) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

fn key(metadata: &ObjectMeta) -> String {
    let text = |part: &Option<String>| part.clone().unwrap_or_default();
    format!("{}/{}", text(&metadata.namespace), text(&metadata.name))
}

/// Who gets through by a load balancer Service, or by ports of the nodes.
fn reach(balanced: Option<&Service>, on_ports: Option<&Service>) -> Reach {
    let ports = |service: &Service, of: fn(&k8s_openapi::api::core::v1::ServicePort) -> Option<i32>| {
        let all = service.spec.iter().flat_map(|spec| spec.ports.iter().flatten());
        all.filter_map(of).filter_map(|port| u16::try_from(port).ok()).collect::<Vec<u16>>()
    };
    let mut rules = Vec::new();
    if let Some(service) = balanced {
        let ranges = effective(Said::by(service));
        let peers: Vec<Cidr> = match ranges.place {
            None => [Family::V4, Family::V6].map(Cidr::everything).to_vec(),
            Some(_) => ranges.ranges.iter().filter_map(|range| range.parse().ok()).collect(),
        };
        rules.extend(allowing(&peers, &ports(service, |port| Some(port.port))));
    }
    if let Some(service) = on_ports {
        let everyone = [Family::V4, Family::V6].map(Cidr::everything);
        rules.extend(allowing(&everyone, &ports(service, |port| port.node_port)));
    }
    Reach::of(Direction::Ingress, &rules)
}

/// Everyone, where routers have the ports of their nodes.
fn on_nodes(strategy: Option<&HostNetworkStrategy>) -> Reach {
    let [http, https, _] = strategy.map_or([0; 3], HostNetworkStrategy::ports);
    let ports = [http, https].into_iter().filter_map(|port| u16::try_from(port).ok());
    let ports: Vec<u16> = ports.filter(|port| *port != 0).collect();
    Reach::of(Direction::Ingress, &allowing(&[Family::V4, Family::V6].map(Cidr::everything), &ports))
}

fn allowing(peers: &[Cidr], ports: &[u16]) -> Vec<Rule> {
    let each = peers.iter().flat_map(|peer| ports.iter().map(move |port| (*peer, *port)));
    let rules = each.filter_map(|(peer, port)| {
        let traffic = Traffic::ports(Protocol::TCP, PortRange::single(port)).ok()?;
        Rule::new(Direction::Ingress, peer.family(), traffic, Peer::Range(peer)).ok()
    });
    rules.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use portcullis_controllers::ingress::Enforcer;
    use portcullis_controllers::router::{Platform, RouterSettings};
    use portcullis_kube_api::ingress::AUTO_DELETE;
    use serde_json::json;

    fn settings() -> IngressSettings {
        IngressSettings {
            namespace: "operator".to_owned(),
            router: RouterSettings { platform: Platform::Aws, ..RouterSettings::default() },
            enforcer: Enforcer::Unknown,
            concurrency: 1,
            observe: false,
            host: String::new(),
        }
    }

    fn controller(scope: &str, ranges: &[&str], annotations: &Value) -> IngressController {
        let balancer = json!({"scope": scope, "allowedSourceRanges": ranges});
        serde_json::from_value(json!({
            "metadata": {"name": "shop", "annotations": annotations},
            "spec": {
                "domain": "shop.example.com",
                "endpointPublishingStrategy": {"type": "LoadBalancerService", "loadBalancer": balancer},
            },
        }))
        .unwrap()
    }

    /// What is there of one that was carried out.
    fn there(controller: &IngressController) -> There {
        let router = &settings().router;
        There {
            deployment: router::deployment(controller, router, &Present::default()),
            balanced: router::load_balancer_service(controller, router),
            internal: router::internal_service(controller, router),
            budget: router::disruption_budget(controller, router),
            ..There::default()
        }
    }

    fn planned(wanted: &IngressController, there: &There) -> PlanView {
        plan(wanted, there, &settings(), "demo").unwrap_or_else(|problem| panic!("{problem}")).plan
    }

    #[test]
    fn what_is_as_wanted_takes_nothing() {
        let external = controller("External", &["192.0.2.0/24"], &json!({}));
        let found = planned(&external, &there(&external));
        assert!(found.is_empty(), "{found}");
    }

    #[test]
    fn a_narrower_range_is_one_call() {
        let (wide, narrow) = (
            controller("External", &["192.0.2.0/24"], &json!({})),
            controller("External", &["192.0.2.7/32"], &json!({})),
        );
        let found = planned(&narrow, &there(&wide));
        assert_eq!((found.calls().all, found.calls().destructive), (1, 0), "{found}");
        assert!(found.wider().is_empty());
        assert!(!planned(&wide, &there(&narrow)).wider().is_empty());
    }

    #[test]
    fn a_replacement_waits_or_is_destructive() {
        let external = controller("External", &["192.0.2.0/24"], &json!({}));
        let waits = planned(&controller("Internal", &["192.0.2.0/24"], &json!({})), &there(&external));
        assert_eq!(waits.calls().all, 0, "{waits}");
        assert!(waits.to_string().contains("= Service"), "{waits}");
        let at_once = json!({AUTO_DELETE: ""});
        let found = planned(&controller("Internal", &["192.0.2.0/24"], &at_once), &there(&external));
        assert_eq!((found.calls().all, found.calls().destructive), (2, 1), "{found}");
        assert!(found.wider().is_empty(), "{found}");
        // Ranges that only the Service has would be gone with it.
        let mut by_hand = there(&controller("External", &[], &json!({})));
        by_hand.balanced.as_mut().unwrap().spec.as_mut().unwrap().load_balancer_source_ranges =
            Some(vec!["192.0.2.0/24".to_owned()]);
        let found = planned(&controller("Internal", &[], &at_once), &by_hand);
        assert_eq!(found.calls().all, 0, "{found}");
        assert!(found.wider().is_empty(), "{found}");
    }
}
