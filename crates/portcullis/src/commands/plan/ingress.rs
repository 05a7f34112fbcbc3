//! Plans for `IngressControllers`: what would become of their objects, and who could reach them.

use std::collections::BTreeMap;
use std::fmt::Debug;

use k8s_openapi::Metadata;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Secret, Service, ServicePort};
use k8s_openapi::api::networking::v1::IngressClass;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Client;
use kube::api::{Api, ListParams};
use portcullis_controllers::ingress::{IngressSettings, admission, by_enforcer};
use portcullis_controllers::router::{
    self, Present, RouterSettings, ServiceMonitor, Step, belongs_to, is_of, patch, replacement, step,
};
use portcullis_core::{
    Access, Calls, Change, Cidr, Detail, Direction, Family, Owner, Peer, PlanView, PortRange, Problem,
    Protocol, Reach, ReachChange, Rule, Sign, Traffic,
};
use portcullis_kube_api::enforced;
use portcullis_kube_api::ingress::ranges::{Said, effective};
use portcullis_kube_api::ingress::{ConditionStatus, HostNetworkStrategy, IngressController};
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
    class: Option<IngressClass>,
    monitor: Option<ServiceMonitor>,
    /// What its routers read, by name.
    configs: BTreeMap<String, ConfigMap>,
    /// What that is copied from, by name; nothing, if nobody was asked.
    sources: Option<BTreeMap<String, ConfigMap>>,
    /// Whether there is a certificate under the usual name.
    certificate: bool,
    /// All `IngressControllers`.
    all: Vec<IngressController>,
}

/// What would be: the plan, and the load balancer Service as it would be then.
pub(super) struct Then {
    pub(super) plan: PlanView,
    pub(super) service: Option<Service>,
    /// Whether its ranges let in more than before. It is not always known whether anybody reads them.
    pub(super) widens: bool,
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
        controller: &IngressController,
    ) -> Result<Self, Failure> {
        let (name, router) = (controller.name(), &settings.router);
        let namespace = &router.namespace;
        let services: Api<Service> = Api::namespaced(client.clone(), namespace);
        let deployments: Api<Deployment> = Api::namespaced(client.clone(), namespace);
        let budgets: Api<PodDisruptionBudget> = Api::namespaced(client.clone(), namespace);
        let secrets: Api<Secret> = Api::namespaced(client.clone(), namespace);
        let lacking = |error: kube::Error| lacking(&error);
        let copies = router::copies(controller);
        let configs = copies.iter().map(|copied| copied.name.clone()).chain([log_config_name(controller)]);
        let sources = copies.iter().filter_map(|copied| copied.source.clone());
        let class = if router.openshift {
            let classes: Api<IngressClass> = Api::all(client.clone());
            classes.get_opt(&router::class_name(controller)).await.map_err(lacking)?
        } else {
            None
        };
        let monitor = if router.openshift && router.monitoring {
            let monitors: Api<ServiceMonitor> = Api::namespaced(client.clone(), namespace);
            monitors.get_opt(&format!("router-{name}")).await.map_err(lacking)?
        } else {
            None
        };
        Ok(There {
            class,
            monitor,
            configs: config_maps(client, namespace, configs).await?,
            sources: Some(config_maps(client, &router.config_namespace, sources).await?),
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

/// Those of these names that there are.
async fn config_maps(
    client: &Client,
    namespace: &str,
    names: impl IntoIterator<Item = String>,
) -> Result<BTreeMap<String, ConfigMap>, Failure> {
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
    let mut found = BTreeMap::new();
    for name in names {
        let there = api.get_opt(&name).await.map_err(|error| lacking(&error))?;
        found.extend(there.map(|there| (name, there)));
    }
    Ok(found)
}

fn log_config_name(controller: &IngressController) -> String {
    format!("rsyslog-conf-{}", controller.name())
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
    let balanced = step(wanted.clone(), there.balanced.as_ref(), is_ours, router::changed_load_balancer);
    let internal =
        step(router::internal_service(controller, router), there.internal.as_ref(), is_ours, router::changed);
    let on_ports = step(
        router::node_port_service(controller, router, &present),
        there.on_ports.as_ref(),
        is_ours,
        router::changed,
    );
    changes.extend(routers(controller, there, router, &present)?);
    changes.extend(change("Service", &balanced, there.balanced.as_ref())?);
    changes.extend(change("Service", &internal, there.internal.as_ref())?);
    changes.extend(change("Service", &on_ports, there.on_ports.as_ref())?);
    changes.extend(others(controller, there, router)?);
    let mut calls = Calls {
        all: changes.iter().filter(|change| change.sign != Sign::Keep).count(),
        destructive: changes.iter().filter(|change| change.sign == Sign::Delete).count(),
    };
    let mut after = after(&balanced, there.balanced.as_ref());
    let waiting = match (there.balanced.as_ref().filter(ours), &wanted) {
        (Some(current), Some(wanted)) => replacement(controller, current, wanted, router),
        _ => Vec::new(),
    };
    if let (Some(current), Some(wanted), false) = (&there.balanced, &wanted, waiting.is_empty())
        && router::may_be_replaced(controller, current, wanted)
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
    let then = after.as_ref().map(filled_in);
    let (before, later) = (there.balanced.as_ref(), then.as_ref());
    let read = later.and_then(|service| not_kept_out(service, settings));
    let widens =
        read.as_ref().is_none_or(|not| not.may_be_read) && !by_ranges(later).is_within(&by_ranges(before));
    if let (Some(service), Some(not)) = (later, read) {
        let wider = if widens { " Its ranges get wider: whoever reads them lets in more." } else { "" };
        let detail = Detail::new(Sign::Keep, ["who may connect"], format!("{}{wider}", not.why));
        changes.push(Change::new(Sign::Keep, "Service", key(&service.metadata)).with(detail));
    }
    let ingress = ReachChange {
        before: reach(before, settings)
            .union(&by_ports(there.on_ports.as_ref()))
            .union(&on_nodes(on_hosts.as_ref().filter(|_| there.deployment.is_some()))),
        after: reach(later, settings)
            .union(&by_ports(self::after(&on_ports, there.on_ports.as_ref()).as_ref()))
            .union(&on_nodes(on_hosts.as_ref())),
    };
    let unplanned = |why: String| Problem::new(format!("{whole}: {why}."), "There is no plan.", "Report it.");
    let owner = Owner::new(cluster, "IngressController", Some(settings.namespace.clone()), name)
        .map_err(|error| unplanned(error.to_string()))?;
    let access = Access { ingress, egress: ReachChange::default() };
    let place = format!("routers in namespace {}", router.namespace);
    let plan = PlanView::new(owner, place, changes, calls, access);
    Ok(Then { plan: plan.map_err(|error| unplanned(error.to_string()))?, service: after, widens })
}

/// What would become of the routers, and of what they read.
fn routers(
    controller: &IngressController,
    there: &There,
    settings: &RouterSettings,
    present: &Present<'_>,
) -> Result<Vec<Change>, Problem> {
    let config = |name: &str, wanted: Option<ConfigMap>| {
        let (have, ours) =
            (there.configs.get(name), |metadata: &ObjectMeta| is_of(metadata, controller.name(), settings));
        change("ConfigMap", &step(wanted, have, ours, router::changed_config), have)
    };
    let mut changes = Vec::new();
    let mut lacks = None;
    for copied in router::copies(controller) {
        let Some(sources) = &there.sources else { break };
        let source = copied.source.as_ref().and_then(|name| sources.get(name));
        match router::copied(&copied, source, controller, settings) {
            Ok(wanted) => changes.extend(config(&copied.name, wanted)?),
            Err(why) => lacks = Some(why),
        }
    }
    changes.extend(config(&log_config_name(controller), router::log_config(controller, settings))?);
    if let Some(why) = lacks {
        let name = format!("{}/router-{}", settings.namespace, controller.name());
        let detail = Detail::new(Sign::Keep, ["its routers"], why);
        changes.push(Change::new(Sign::Keep, "Deployment", name).with(detail));
        return Ok(changes);
    }
    let deployment = step(
        router::deployment(controller, settings, present),
        there.deployment.as_ref(),
        |metadata: &ObjectMeta| belongs_to(metadata, controller.name()),
        router::changed_deployment,
    );
    changes.extend(change("Deployment", &deployment, there.deployment.as_ref())?);
    Ok(changes)
}

/// What would become of what routers have besides.
fn others(
    controller: &IngressController,
    there: &There,
    settings: &RouterSettings,
) -> Result<Vec<Change>, Problem> {
    let ours = |metadata: &ObjectMeta| is_of(metadata, controller.name(), settings);
    let budget = there.budget.as_ref();
    let budgets = step(router::disruption_budget(controller, settings), budget, ours, router::changed);
    let class = there.class.as_ref();
    let classes = step(router::ingress_class(controller, settings), class, ours, router::changed);
    let monitor = there.monitor.as_ref();
    let monitors = step(router::service_monitor(controller, settings), monitor, ours, router::changed);
    let changes = [
        change("PodDisruptionBudget", &budgets, budget)?,
        change("IngressClass", &classes, class)?,
        change("ServiceMonitor", &monitors, monitor)?,
    ];
    Ok(changes.into_iter().flatten().collect())
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
            if let Some(metadata) = patch.get_mut("metadata").and_then(Value::as_object_mut) {
                metadata.remove("resourceVersion");
            }
            changed.details.extend(leaves(&patch, String::new()));
            Some(changed)
        }
        (Step::Delete, Some(current)) => Some(Change::new(Sign::Delete, kind, key(current.metadata()))),
    })
}

const EVERYONE: [Family; 2] = [Family::V4, Family::V6];

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
    let name = metadata.name.as_deref().unwrap_or_default();
    metadata.namespace.as_ref().map_or_else(|| name.to_owned(), |namespace| format!("{namespace}/{name}"))
}

/// Why ranges keep nobody out, as far as that is known.
struct NotKeptOut {
    why: String,
    /// Whether somebody may read them all the same.
    may_be_read: bool,
}

/// Why everyone may get in by a load balancer Service that has ranges; nothing, if they are kept to.
fn not_kept_out(service: &Service, settings: &IngressSettings) -> Option<NotKeptOut> {
    let not = |why: String, may_be_read| Some(NotKeptOut { why, may_be_read });
    let found = effective(Said::by(service));
    found.place?;
    if !found.unreadable.is_empty() {
        return not("Some of its ranges cannot be read.".to_owned(), true);
    }
    match (enforced::enforced(service), enforced::there(service)) {
        (Some((false, why)), _) => return not(why.to_owned(), true),
        // Whoever said so keeps to other ranges, too.
        (_, Some(_)) => return None,
        // Its own plan says who gets in.
        _ if settings.router.network_only => return None,
        _ => {}
    }
    match by_enforcer(service, &settings.enforcer) {
        (ConditionStatus::True, ..) => None,
        (_, reason, why) => not(why, reason != "Ignored"),
    }
}

/// A Service as Kubernetes makes it: with ports on the nodes.
fn filled_in(service: &Service) -> Service {
    let mut service = service.clone();
    let spec = service.spec.get_or_insert_default();
    if spec.allocate_load_balancer_node_ports != Some(false) {
        for port in spec.ports.iter_mut().flatten() {
            port.node_port.get_or_insert(i32::from(super::UNKNOWN));
        }
    }
    service
}

fn ports(service: &Service, of: fn(&ServicePort) -> Option<i32>) -> Vec<u16> {
    let all = service.spec.iter().flat_map(|spec| spec.ports.iter().flatten());
    all.filter_map(of).filter_map(|port| u16::try_from(port).ok()).collect()
}

/// Who gets through by a load balancer Service: everyone, where ranges are not known to keep anybody out.
fn reach(balanced: Option<&Service>, settings: &IngressSettings) -> Reach {
    match balanced {
        Some(service) if not_kept_out(service, settings).is_some() => Reach::of(
            Direction::Ingress,
            &allowing(&EVERYONE.map(Cidr::everything), &ports(service, |port| Some(port.port))),
        ),
        _ => by_ranges(balanced),
    }
}

/// Who its ranges let in.
fn by_ranges(balanced: Option<&Service>) -> Reach {
    let Some(service) = balanced else { return Reach::nobody() };
    let ranges = effective(Said::by(service));
    let peers: Vec<Cidr> = match ranges.place {
        None => EVERYONE.map(Cidr::everything).to_vec(),
        Some(_) => ranges.ranges.iter().filter_map(|range| range.parse().ok()).collect(),
    };
    Reach::of(Direction::Ingress, &allowing(&peers, &ports(service, |port| Some(port.port))))
}

/// Everyone, by the ports that a Service has on the nodes.
fn by_ports(on_ports: Option<&Service>) -> Reach {
    let ports = on_ports.map(|service| ports(service, |port| port.node_port)).unwrap_or_default();
    Reach::of(Direction::Ingress, &allowing(&EVERYONE.map(Cidr::everything), &ports))
}

/// Everyone, where routers have the ports of their nodes.
fn on_nodes(strategy: Option<&HostNetworkStrategy>) -> Reach {
    let [http, https, _] = strategy.map_or([0; 3], HostNetworkStrategy::ports);
    let ports = [http, https].into_iter().filter_map(|port| u16::try_from(port).ok());
    let ports: Vec<u16> = ports.filter(|port| *port != 0).collect();
    Reach::of(Direction::Ingress, &allowing(&EVERYONE.map(Cidr::everything), &ports))
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
        then(wanted, there, &tested()).plan
    }

    fn then(wanted: &IngressController, there: &There, settings: &IngressSettings) -> Then {
        plan(wanted, there, settings, "demo").unwrap_or_else(|problem| panic!("{problem}"))
    }

    /// Where ranges are known to keep others out.
    fn tested() -> IngressSettings {
        IngressSettings { enforcer: Enforcer::Everywhere("The platform".to_owned()), ..settings() }
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

    /// Who gets in follows from who reads the ranges.
    #[test]
    fn ranges_that_nobody_may_read() {
        let (wide, narrow) = (
            controller("External", &["192.0.2.0/24"], &json!({})),
            controller("External", &["192.0.2.7/32"], &json!({})),
        );
        let ignored = || Enforcer::Ignored("This network".to_owned());
        for (enforcer, limited, widens, why) in [
            (Enforcer::Everywhere("The platform".to_owned()), true, true, None),
            (Enforcer::Unknown, false, true, Some("It is not known")),
            (ignored(), false, false, Some("This network does not read")),
            (Enforcer::KubeProxy, false, true, Some("has node ports")),
        ] {
            let settings = IngressSettings { enforcer, ..settings() };
            let found = then(&wide, &there(&narrow), &settings);
            let text = found.plan.to_string();
            assert_eq!(!text.contains("everyone"), limited, "{text}");
            assert_eq!(found.widens, widens, "{text}");
            assert_eq!(found.plan.wider().is_empty(), !limited, "{text}");
            if let Some(why) = why {
                assert!(text.contains(why), "{text}");
                assert_eq!(text.contains("Its ranges get wider"), widens, "{text}");
            }
            assert!(!then(&narrow, &there(&wide), &settings).widens);
        }
        // One that is made new lets everyone in, where nobody keeps to its ranges.
        let new = then(&wide, &There::default(), &IngressSettings { enforcer: ignored(), ..settings() });
        assert!(!new.plan.wider().is_empty() && new.plan.to_string().contains("does not read"));
    }

    /// What a provider said on the Service comes first.
    #[test]
    fn a_provider_knows() {
        let (wide, narrow) = (
            controller("External", &["192.0.2.0/24"], &json!({})),
            controller("External", &["192.0.2.7/32"], &json!({})),
        );
        for (status, limited) in [("True", true), ("False", false)] {
            let mut there = there(&wide);
            let condition = json!({
                "type": enforced::ENFORCED, "status": status, "reason": "Said",
                "message": "Groups let in 192.0.2.0/24, and nobody else.", "lastTransitionTime": "2026-01-01T00:00:00Z",
            });
            there.balanced.as_mut().unwrap().status =
                serde_json::from_value(json!({"conditions": [condition]})).unwrap();
            let found = then(&narrow, &there, &settings());
            let everyone =
                Reach::of(Direction::Ingress, &allowing(&EVERYONE.map(Cidr::everything), &[80, 443]));
            assert_eq!(found.plan.access().ingress.after != everyone, limited, "{}", found.plan);
        }
    }

    /// All that is made for a router is in its plan.
    #[test]
    fn what_routers_have_besides() {
        let mut settings = tested();
        (settings.router.openshift, settings.router.monitoring) = (true, true);
        let mut wanted = controller("External", &[], &json!({}));
        let rest = json!({
            "httpErrorCodePages": {"name": "pages"},
            "logging": {"access": {"destination": {"type": "Container"}}},
        });
        wanted.spec.rest = serde_json::from_value(rest).unwrap();
        let pages: ConfigMap =
            serde_json::from_value(json!({"data": {"error-page-503.http": "a", "error-page-404.http": "b"}}))
                .unwrap();
        let with = |sources: BTreeMap<String, ConfigMap>| {
            let there = There { sources: Some(sources), ..There::default() };
            then(&wanted, &there, &settings).plan.to_string()
        };
        let text = with([("pages".to_owned(), pages)].into());
        for made in [
            "+ ConfigMap            openshift-ingress/shop-errorpages",
            "+ ConfigMap            openshift-ingress/rsyslog-conf-shop",
            "+ Deployment ",
            "+ IngressClass         openshift-shop",
            "+ ServiceMonitor       openshift-ingress/router-shop",
        ] {
            assert!(text.contains(made), "{made}: {text}");
        }
        let text = with(BTreeMap::new());
        assert!(text.contains("= Deployment") && text.contains("which is not there"), "{text}");
    }
}
