//! `portcullis plan`

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context;
use k8s_openapi::api::core::v1::{Node, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{Api, ListParams};
use kube::{Client, ResourceExt};
use portcullis_aws::Provider;
use portcullis_core::{Member, Members, Owner, PlanView, Problem, Provider as _, Target, Want, placeholder};
use portcullis_kube_api::{
    LoadBalancerClass, TYPE, endpoint_members, foreign_finalizer, is_eligible, load_balancer, node_member,
    parameters, wants_load_balancer,
};

use serde_json::Value;

use crate::cli::ConfigArgs;
use crate::config::{self, Loaded};
use crate::exit::{Exit, Failure};
use crate::output::{self, Form};
use crate::roles::services;

/// Show what would change for Services, and who could reach them before and after
///
/// Nothing is changed. Services come from manifests, or from the cluster; AWS is only looked at.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    config: ConfigArgs,

    /// Manifests with Services; other objects in them are left out
    #[arg(short, long = "file", value_name = "FILE")]
    files: Vec<PathBuf>,

    /// Services of the cluster, as NAMESPACE/NAME; all that are ours if neither they nor files are named
    #[arg(value_name = "SERVICE")]
    services: Vec<String>,

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
    let Args { config, files, services, output: form, fail_on_wider } = args;
    let loaded = config.sources().load()?;
    output::warnings(&loaded.warnings);
    let mut wanted = Vec::new();
    for file in &files {
        wanted.extend(read(file)?);
    }
    let runtime = tokio::runtime::Runtime::new().context("cannot start the runtime")?;
    let plans = runtime.block_on(plans(&loaded, wanted, &services, files.is_empty()))?;
    let failed = plans.iter().any(|(_, plan)| plan.is_err());
    output::print(&shown(&plans, form)?)?;
    if failed {
        return Err(Failure::new(Exit::Failed, "not every Service has a plan"));
    }
    let wider = plans.iter().any(|(_, plan)| plan.as_ref().is_ok_and(|plan| !plan.plan.wider().is_empty()));
    if fail_on_wider && wider {
        return Err(Failure::new(Exit::Wider, "something becomes reachable that is not now"));
    }
    Ok(())
}

/// A plan, and what in it stands for what is not known yet.
struct Planned {
    plan: PlanView,
    unknown: Vec<u16>,
}

type Plans = Vec<(String, Result<Planned, Problem>)>;

async fn plans(
    loaded: &Loaded,
    mut wanted: Vec<Service>,
    names: &[String],
    all: bool,
) -> Result<Plans, Failure> {
    let client = services::kubernetes(loaded).await?;
    let provider = services::provider(loaded, &client).await?;
    let lacking = |error: kube::Error| {
        Failure::new(Exit::Lacking, format!("the Kubernetes API does not answer: {error}"))
    };
    for name in names {
        let Some((namespace, name)) = name.split_once('/') else {
            return Err(Failure::new(
                Exit::Usage,
                format!("`{name}` is not a Service: write NAMESPACE/NAME"),
            ));
        };
        let found =
            Api::<Service>::namespaced(client.clone(), namespace).get_opt(name).await.map_err(lacking)?;
        let missing = || Failure::new(Exit::Failed, format!("there is no Service {namespace}/{name}"));
        wanted.push(found.ok_or_else(missing)?);
    }
    let class = class(loaded);
    if all && names.is_empty() {
        let found =
            Api::<Service>::all(client.clone()).list(&ListParams::default()).await.map_err(lacking)?;
        wanted.extend(found.items.into_iter().filter(|service| wants_load_balancer(service, &class)));
    }
    let nodes = Api::<Node>::all(client.clone()).list(&ListParams::default()).await.map_err(lacking)?;
    let mut plans = Vec::new();
    for service in wanted {
        let name =
            format!("{}/{}", service.namespace().unwrap_or_else(|| "default".to_owned()), service.name_any());
        let plan = plan(&provider, &client, &class, &nodes.items, service).await;
        plans.push((name, plan));
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

async fn plan(
    provider: &Provider,
    client: &Client,
    class: &LoadBalancerClass,
    nodes: &[Node],
    mut service: Service,
) -> Result<Planned, Problem> {
    service.metadata.namespace.get_or_insert_with(|| "default".to_owned());
    let (namespace, name) = (service.namespace().unwrap_or_default(), service.name_any());
    let refused = |what: &str, remedy: &str| {
        Problem::new(format!("Service {namespace}/{name}: {what}."), "Nothing would be done for it.", remedy)
    };
    if !wants_load_balancer(&service, class) {
        let remedy = format!("Give it the type LoadBalancer and the loadBalancerClass {}.", class.name);
        return Err(refused("it is not ours", &remedy));
    }
    if let Some((finalizer, who)) = foreign_finalizer(&service) {
        return Err(refused(&format!("{who} looks after it, by {finalizer}"), "Have it let go first."));
    }
    let unknown = invent_node_ports(&mut service);
    let parameters = parameters(&service);
    let wanted = match provider.members(&parameters)? {
        Members::Nodes(labels) => load_balancer(&service, members(nodes, &labels), true)?,
        Members::Endpoints => {
            let slices: Api<EndpointSlice> = Api::namespaced(client.clone(), &namespace);
            let labelled = ListParams::default().labels(&format!("kubernetes.io/service-name={name}"));
            let slices = slices.list(&labelled).await.map(|list| list.items).unwrap_or_default();
            load_balancer(&service, endpoint_members(&service, &slices).into(), false)?
        }
    };
    let owner = Owner::new(provider.settings().cluster.as_str(), "Service", Some(namespace), name);
    let owner = owner
        .map_err(|error| Problem::new(error.to_string(), "Nothing was changed.", "Name it otherwise."))?;
    let uid = service.uid().unwrap_or_default();
    let want = Want { owner, uid, target: Target::Present(wanted), parameters };
    Ok(Planned { plan: provider.preview(&want).await?, unknown })
}

fn members(nodes: &[Node], labels: &BTreeMap<String, String>) -> Arc<[Member]> {
    let has_all = |node: &&Node| labels.iter().all(|(key, value)| node.labels().get(key) == Some(value));
    nodes.iter().filter(|node| is_eligible(node)).filter(has_all).filter_map(node_member).collect()
}

/// Gives ports without a node port one that stands for it.
fn invent_node_ports(service: &mut Service) -> Vec<u16> {
    let mut unknown = Vec::new();
    let ports = service.spec.as_mut().and_then(|spec| spec.ports.as_mut());
    for (port, number) in ports.into_iter().flatten().zip((0..=UNKNOWN).rev()) {
        if port.node_port.is_none_or(|port| port == 0) {
            port.node_port = Some(i32::from(number));
            unknown.push(number);
        }
    }
    unknown
}

/// The Services of a manifest.
fn read(file: &Path) -> Result<Vec<Service>, Failure> {
    let text = std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    let mut services = Vec::new();
    for document in documents(&text) {
        let value = config::read_manifest(file, &document)?;
        let objects = match value["kind"].as_str() {
            Some("List") => value["items"].as_array().cloned().unwrap_or_default(),
            _ => vec![value],
        };
        for object in objects.into_iter().filter(|object| object["kind"] == "Service") {
            let service = serde_json::from_value(object);
            let wrong = |error| {
                Failure::new(Exit::Usage, format!("{}: a Service cannot be read: {error}", file.display()))
            };
            services.push(service.map_err(wrong)?);
        }
    }
    Ok(services)
}

/// The documents of a file, each on the lines that it has there.
fn documents(text: &str) -> Vec<String> {
    let mut documents = vec![String::new()];
    for (number, line) in text.lines().enumerate() {
        if line == "---" || line.starts_with("--- ") {
            documents.push("\n".repeat(number + 1));
        } else if let Some(document) = documents.last_mut() {
            document.push_str(line);
            document.push('\n');
        }
    }
    documents.retain(|document| !document.trim().is_empty());
    documents
}

fn shown(plans: &Plans, form: Form) -> Result<String, Failure> {
    match form {
        Form::Text => {
            let mut text = String::new();
            for (_, plan) in plans {
                match plan {
                    Ok(planned) => text.push_str(&known(&planned.plan.to_string(), &planned.unknown)),
                    Err(problem) => text.extend([problem.to_string().as_str(), "\n"]),
                }
                text.push('\n');
            }
            if plans.is_empty() {
                text.push_str("There are no Services of ours.\n");
            }
            Ok(text.trim_end().to_owned() + "\n")
        }
        Form::Json => {
            let mut all = Vec::new();
            for (service, plan) in plans {
                all.push(match plan {
                    Ok(planned) => {
                        let mut plan =
                            serde_json::to_value(&planned.plan).context("cannot print the plan")?;
                        leave_open(&mut plan, &planned.unknown);
                        plan
                    }
                    Err(problem) => serde_json::json!({"service": service, "problem": problem}),
                });
            }
            Ok(output::json(&all)?)
        }
    }
}

/// A text in which ports that are not known stand for themselves.
fn known(text: &str, unknown: &[u16]) -> String {
    unknown
        .iter()
        .fold(text.to_owned(), |text, port| text.replace(&port.to_string(), &placeholder("node port")))
}

/// The same within a value.
fn leave_open(value: &mut Value, unknown: &[u16]) {
    match value {
        Value::String(text) => *text = known(text, unknown),
        Value::Number(number) if unknown.iter().any(|port| number.as_u64() == Some((*port).into())) => {
            *value = Value::String(placeholder("node port"));
        }
        Value::Array(values) => values.iter_mut().for_each(|value| leave_open(value, unknown)),
        Value::Object(values) => values.values_mut().for_each(|value| leave_open(value, unknown)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_keep_their_lines() {
        let found = documents("---\na: 1\n---\n# nothing\n---\nb: 2\n");
        assert_eq!(found, ["\na: 1\n", "\n\n\n# nothing\n", "\n\n\n\n\nb: 2\n"].map(str::to_owned));
    }

    #[test]
    fn ports_that_are_not_known_yet_stand_for_themselves() {
        let mut service: Service = serde_json::from_value(serde_json::json!({
            "spec": {"ports": [{"port": 80}, {"port": 443, "nodePort": 30443}, {"port": 53}]}
        }))
        .unwrap();
        assert_eq!(invent_node_ports(&mut service), [32766, 32764]);
    }
}
