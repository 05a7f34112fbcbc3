//! `portcullis plan`

mod given;
mod ingress;
mod planner;
mod shown;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context;
use k8s_openapi::api::core::v1::{Node, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{Api, ListParams};
use kube::{Client, ResourceExt};
use portcullis_controllers::ingress::Surroundings;
use portcullis_core::{Member, Members, Owner, PlanView, Problem, Target, Want};
use portcullis_kube_api::{
    LoadBalancerClass, TYPE, endpoint_members, foreign_finalizer, is_eligible, load_balancer, node_member,
    parameters, wants_load_balancer,
};

use self::given::Given;
use self::ingress::There;
use self::planner::Planner;
use self::shown::shown;
use crate::cli::ConfigArgs;
use crate::config::{self, Loaded};
use crate::exit::{Exit, Failure};
use crate::output::{self, Form};
use crate::roles::{self, services};

/// Show what would change for Services and ingress controllers, and who could reach them before and after
///
/// Nothing is changed. They come from manifests, or from the cluster; AWS is only looked at, or not even that with --from.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    config: ConfigArgs,
    #[command(flatten)]
    asked: Asked,
}

#[derive(Debug, clap::Args)]
struct Asked {
    /// Manifests with Services and ingress controllers; nodes and endpoint slices in them are used instead of the
    /// cluster's, other objects are left out
    #[arg(short, long = "file", value_name = "FILE")]
    files: Vec<PathBuf>,

    /// Services of the cluster, as NAMESPACE/NAME; all that are ours if neither they nor files are named
    #[arg(value_name = "SERVICE")]
    services: Vec<String>,

    /// Plan against what AWS had when this was written by --record, without calling AWS
    #[arg(long, value_name = "FILE", conflicts_with = "record")]
    from: Option<PathBuf>,

    /// Write what AWS has into a file for --from; the plans are made against it
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,

    /// In which form
    #[arg(short, long, value_enum, value_name = "FORM", default_value = "text")]
    output: Form,

    /// End with code 4 if anything becomes reachable that is not now
    #[arg(long)]
    fail_on_wider: bool,
}

/// Ports that are not known before a Service is made are counted down from here while its plan is made.
const UNKNOWN: u16 = 32_766;

pub(crate) fn run(args: Args) -> Result<(), Failure> {
    let Args { config, asked } = args;
    let loaded = config.sources().load()?;
    output::warnings(&loaded.warnings);
    let runtime = tokio::runtime::Runtime::new().context("cannot start the runtime")?;
    let plans = runtime.block_on(plans(&loaded, &asked))?;
    let failed = plans.iter().any(|(_, plan)| plan.is_err());
    output::print(&shown(&plans, asked.output)?)?;
    if failed {
        return Err(Failure::new(Exit::Failed, "not everything has a plan"));
    }
    let wider = plans.iter().any(|(_, plan)| plan.as_ref().is_ok_and(Planned::is_wider));
    if asked.fail_on_wider && wider {
        return Err(Failure::new(Exit::Wider, "something becomes reachable that is not now"));
    }
    Ok(())
}

/// A plan, and what in it stands for what is not known yet.
struct Planned {
    plan: PlanView,
    unknown: Vec<u16>,
    /// Whether ranges get wider of which it is not known who reads them.
    widens: bool,
}

impl Planned {
    fn is_wider(&self) -> bool {
        self.widens || !self.plan.wider().is_empty()
    }
}

type Plans = Vec<(String, Result<Planned, Problem>)>;

/// What the plans are about, and where it comes from.
struct Scene {
    class: LoadBalancerClass,
    given: Given,
    /// None if nothing is asked of the cluster.
    client: Option<Client>,
}

async fn plans(loaded: &Loaded, asked: &Asked) -> Result<Plans, Failure> {
    let given = Given::read(&asked.files)?;
    let recorded = asked.from.as_deref().map(|file| Planner::recorded(loaded, file)).transpose()?;
    let class = class(loaded);
    let all = asked.files.is_empty() && asked.services.is_empty();
    let client = if all || !asked.services.is_empty() || given.nodes.is_empty() {
        Some(services::kubernetes(loaded).await?)
    } else {
        None
    };
    let mut scene = Scene { class, given, client };
    if let Some(client) = scene.client.clone() {
        scene.ask(&client, &asked.services, all).await?;
    }
    let mut plans = Box::pin(scene.plan_controllers(loaded, all)).await?;
    // Who only has IngressControllers may have no AWS.
    let looked_at = recorded.is_some() || asked.record.is_some();
    if scene.given.services.is_empty() && !plans.is_empty() && !looked_at {
        return Ok(plans);
    }
    let nodes = &scene.given.nodes;
    let planner = match (recorded, &asked.record) {
        (Some(recorded), _) => recorded,
        (None, Some(file)) => Planner::recording(loaded, nodes, file).await?,
        (None, None) => Planner::live(loaded, nodes).await?,
    };
    for service in &scene.given.services {
        let name =
            format!("{}/{}", service.namespace().unwrap_or_else(|| "default".to_owned()), service.name_any());
        plans.push((name, scene.plan(&planner, service.clone()).await));
    }
    Ok(plans)
}

/// Which Services are ours.
pub(super) fn class(loaded: &Loaded) -> LoadBalancerClass {
    let config::Services { class, without_class, .. } = &loaded.config.services;
    LoadBalancerClass {
        name: class.clone(),
        without_class: without_class.then(|| (TYPE.to_owned(), "nlb".to_owned())),
    }
}

impl Scene {
    /// Asks the cluster for Services, all that are ours or those of these names, and for its nodes if none are given.
    async fn ask(&mut self, client: &Client, names: &[String], all: bool) -> Result<(), Failure> {
        for name in names {
            let Some((namespace, name)) = name.split_once('/') else {
                return Err(Failure::new(
                    Exit::Usage,
                    format!("`{name}` is not a Service: write NAMESPACE/NAME"),
                ));
            };
            let found = Api::<Service>::namespaced(client.clone(), namespace).get_opt(name).await;
            let missing = || Failure::new(Exit::Failed, format!("there is no Service {namespace}/{name}"));
            self.given.services.push(found.map_err(|error| lacking(&error))?.ok_or_else(missing)?);
        }
        if all {
            let found = Api::<Service>::all(client.clone()).list(&ListParams::default()).await;
            let found = found.map_err(|error| lacking(&error))?.items.into_iter();
            self.given.services.extend(found.filter(|service| wants_load_balancer(service, &self.class)));
        }
        if self.given.nodes.is_empty() {
            let found = Api::<Node>::all(client.clone()).list(&ListParams::default()).await;
            self.given.nodes = found.map_err(|error| lacking(&error))?.items;
        }
        Ok(())
    }

    /// Plans for `IngressControllers`. What becomes of their load balancer Services is planned as for others, then.
    async fn plan_controllers(&mut self, loaded: &Loaded, all: bool) -> Result<Plans, Failure> {
        let of_cluster = all && loaded.config.ingress_controllers.enabled;
        if self.given.controllers.is_empty() && !of_cluster {
            return Ok(Plans::new());
        }
        let surroundings = match &self.client {
            Some(client) => roles::ingress::surroundings(client).await?,
            None => Surroundings::default(),
        };
        let settings = roles::ingress::settings(loaded, surroundings)?;
        if let Some(client) = self.client.as_ref().filter(|_| of_cluster) {
            self.given.controllers = ingress::of_cluster(client, &settings).await?;
        }
        let cluster = loaded.config.aws.cluster.clone().filter(|name| !name.is_empty());
        let cluster = cluster.unwrap_or_else(|| "kubernetes".to_owned());
        let mut plans = Plans::new();
        for controller in std::mem::take(&mut self.given.controllers) {
            let there = match &self.client {
                Some(client) => Box::pin(There::ask(client, &settings, &controller)).await?,
                None => There::default(),
            };
            let name = format!("{}/{}", settings.namespace, controller.name());
            let planned = ingress::plan(&there.known(controller), &there, &settings, &cluster);
            let planned = planned.map(|then| {
                let ours = then.service.filter(|service| wants_load_balancer(service, &self.class));
                self.given.services.extend(ours);
                Planned { plan: then.plan, unknown: Vec::new(), widens: then.widens }
            });
            plans.push((name, planned));
        }
        // The last of a name is what would be then.
        let mut seen = BTreeSet::new();
        self.given.services.reverse();
        self.given.services.retain(|service| seen.insert((service.namespace(), service.name_any())));
        self.given.services.reverse();
        Ok(plans)
    }

    async fn plan(&self, planner: &Planner, mut service: Service) -> Result<Planned, Problem> {
        service.metadata.namespace.get_or_insert_with(|| "default".to_owned());
        let (namespace, name) = (service.namespace().unwrap_or_default(), service.name_any());
        let refused = |what: &str, remedy: &str| {
            Problem::new(
                format!("Service {namespace}/{name}: {what}."),
                "Nothing would be done for it.",
                remedy,
            )
        };
        if !wants_load_balancer(&service, &self.class) {
            let remedy =
                format!("Give it the type LoadBalancer and the loadBalancerClass {}.", self.class.name);
            return Err(refused("it is not ours", &remedy));
        }
        if let Some((finalizer, who)) = foreign_finalizer(&service) {
            let remedy = format!(
                "`portcullis adopt {namespace}/{name}` takes its load balancer over; or have the other one let go of the Service."
            );
            return Err(refused(&format!("{who} looks after it, by {finalizer}"), &remedy));
        }
        let unknown = invent_node_ports(&mut service);
        let parameters = parameters(&service);
        let (wanted, nodes) = match portcullis_aws::members(&parameters) {
            Members::Nodes(labels) => {
                (load_balancer(&service, members(&self.given.nodes, &labels), true)?, Arc::default())
            }
            Members::Endpoints => {
                let slices = self.slices(&namespace, &name).await?;
                let behind = endpoint_members(&service, &slices).into();
                (load_balancer(&service, behind, false)?, members(&self.given.nodes, &BTreeMap::new()))
            }
        };
        let owner = Owner::new(planner.cluster(), "Service", Some(namespace), name);
        let owner = owner
            .map_err(|error| Problem::new(error.to_string(), "Nothing was changed.", "Name it otherwise."))?;
        let uid = service.uid().unwrap_or_default();
        let want = Want { owner, uid, target: Target::Present(wanted), parameters, nodes };
        Ok(Planned { plan: planner.plan(&want).await?, unknown, widens: false })
    }

    /// The `EndpointSlices` of a Service: of those that are given, if some are, or else the cluster's.
    async fn slices(&self, namespace: &str, name: &str) -> Result<Vec<EndpointSlice>, Problem> {
        let unknown = |why: &str| {
            Problem::new(
                format!("Service {namespace}/{name}: it is not known which addresses are behind it: {why}."),
                "There is no plan for it.",
                "Give them by a file: `kubectl get endpointslices --all-namespaces -o yaml`.",
            )
        };
        if !self.given.slices.is_empty() {
            return Ok(self.given.slices_of(namespace, name));
        }
        let Some(client) = &self.client else { return Err(unknown("no file has EndpointSlices")) };
        let slices: Api<EndpointSlice> = Api::namespaced(client.clone(), namespace);
        let labelled = ListParams::default().labels(&format!("kubernetes.io/service-name={name}"));
        let found = slices.list(&labelled).await;
        found.map(|list| list.items).map_err(|error| unknown(&error.to_string()))
    }
}

fn lacking(error: &kube::Error) -> Failure {
    Failure::new(Exit::Lacking, format!("the Kubernetes API does not answer: {error}"))
}

fn members(nodes: &[Node], labels: &BTreeMap<String, String>) -> Arc<[Member]> {
    let has_all = |node: &&Node| labels.iter().all(|(key, value)| node.labels().get(key) == Some(value));
    nodes.iter().filter(|node| is_eligible(node)).filter(has_all).filter_map(node_member).collect()
}

/// Gives ports without a node port one that stands for it, and likewise the port at which nodes say whether they have a
/// member. No two are neighbours, or they would be shown as a range.
fn invent_node_ports(service: &mut Service) -> Vec<u16> {
    let mut unknown = Vec::new();
    let mut numbers = (0..=UNKNOWN).rev().step_by(2);
    let Some(spec) = service.spec.as_mut() else { return unknown };
    let asks_nodes = spec.type_.as_deref() == Some("LoadBalancer")
        && spec.external_traffic_policy.as_deref() == Some("Local");
    let ports = spec.ports.iter_mut().flatten().map(|port| &mut port.node_port);
    let health = asks_nodes.then_some(&mut spec.health_check_node_port);
    for (port, number) in ports.chain(health).zip(&mut numbers) {
        if port.is_none_or(|port| port == 0) {
            *port = Some(i32::from(number));
            unknown.push(number);
        }
    }
    unknown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_that_are_not_known_yet_stand_for_themselves() {
        let mut service: Service = serde_json::from_value(serde_json::json!({
            "spec": {"ports": [{"port": 80}, {"port": 443, "nodePort": 30443}, {"port": 53}]}
        }))
        .unwrap();
        assert_eq!(invent_node_ports(&mut service), [32766, 32762]);
        let spec = service.spec.as_mut().unwrap();
        spec.type_ = Some("LoadBalancer".to_owned());
        spec.external_traffic_policy = Some("Local".to_owned());
        assert_eq!(invent_node_ports(&mut service), [32760], "the others are given by now");
        assert_eq!(service.spec.unwrap().health_check_node_port, Some(32760));
    }
}
