//! `portcullis get`

use std::collections::BTreeMap;

use anyhow::Context;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use kube::api::{Api, ListParams};
use portcullis_aws::Held;
use portcullis_kube_api::{foreign_finalizer, wants_load_balancer};
use serde_json::{Value, json};

use super::plan::class;
use crate::cli::ConfigArgs;
use crate::config::Loaded;
use crate::exit::{Exit, Failure};
use crate::output::{self, Format};
use crate::roles::services::{self, Nodes};

/// Show the load balancers of Services: where they are, who may reach them, and what is wrong with them
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    config: ConfigArgs,

    /// Also look at who is sent to, which takes a call for each port of each Service
    #[arg(long)]
    members: bool,

    /// In which form
    #[arg(short, long, value_enum, value_name = "FORM", default_value = "table")]
    output: Format,
}

/// A Service and its load balancer, as far as there are both.
struct Row {
    name: String,
    address: Option<String>,
    open: String,
    enforced: &'static str,
    members: Option<(usize, usize)>,
    age: Option<String>,
    note: String,
}

pub(crate) fn run(args: Args) -> Result<(), Failure> {
    let loaded = args.config.sources().load()?;
    output::warnings(&loaded.warnings);
    let runtime = tokio::runtime::Runtime::new().context("cannot start the runtime")?;
    let rows = runtime.block_on(rows(&loaded, args.members))?;
    let text = match args.output {
        Format::Table if rows.is_empty() => "There are no Services of ours.\n".to_owned(),
        Format::Table => table(&rows),
        Format::Json => output::json(&rows.iter().map(value).collect::<Vec<_>>())?,
        Format::Yaml => output::yaml(&rows.iter().map(value).collect::<Vec<_>>())?,
    };
    Ok(output::print(&text)?)
}

async fn rows(loaded: &Loaded, members: bool) -> Result<Vec<Row>, Failure> {
    let client = services::kubernetes(loaded).await?;
    let provider = services::provider(loaded, Nodes::Cluster(&client)).await?;
    let found = Api::<Service>::all(client).list(&ListParams::default()).await;
    let found = found.map_err(|error| {
        Failure::new(Exit::Lacking, format!("the Kubernetes API does not answer: {error}"))
    })?;
    let class = class(loaded);
    let ours = found.items.into_iter().filter(|service| wants_load_balancer(service, &class));
    let mut services: BTreeMap<String, Service> = ours.map(|service| (key(&service), service)).collect();
    let held = provider.holdings(members).await;
    let held = held.map_err(|error| Failure::new(Exit::Failed, format!("AWS cannot be asked. {error}")))?;
    let mut rows = Vec::new();
    for held in held {
        let name = format!("{}/{}", held.owner.namespace().unwrap_or_default(), held.owner.name());
        let service = services.remove(&name);
        rows.push(row(name, service.as_ref(), Some(&held)));
    }
    rows.extend(services.into_iter().map(|(name, service)| row(name, Some(&service), None)));
    rows.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(rows)
}

fn key(service: &Service) -> String {
    format!("{}/{}", service.namespace().unwrap_or_default(), service.name_any())
}

fn row(name: String, service: Option<&Service>, held: Option<&Held>) -> Row {
    let balancer = held.and_then(|held| held.balancer.as_ref());
    let grouped = held.is_some_and(|held| held.has_groups);
    let note = match (service, balancer) {
        (None, _) => "there is no such Service: it is taken away once that is sure".to_owned(),
        (Some(service), _) if foreign_finalizer(service).is_some() => {
            let (_, who) = foreign_finalizer(service).unwrap_or_default();
            format!("{who} looks after it")
        }
        (Some(_), None) => "no load balancer yet: `kubectl describe` says why".to_owned(),
        (Some(_), Some(_)) if !grouped => "without a security group; the nodes limit its clients".to_owned(),
        (Some(_), Some(_)) => String::new(),
    };
    Row {
        name,
        address: balancer.map(|(_, address)| address.clone()),
        open: match held {
            Some(held) if grouped && held.open.is_nobody() => "nobody".to_owned(),
            Some(held) if grouped => held.open.to_string(),
            _ => "–".to_owned(),
        },
        enforced: match (balancer, grouped) {
            (None, _) => "–",
            (Some(_), true) => "yes",
            (Some(_), false) => "on the nodes",
        },
        members: held.and_then(|held| held.members),
        age: service.and_then(age),
        note,
    }
}

/// How old something is, in one unit.
fn age(service: &Service) -> Option<String> {
    let seconds = Timestamp::now().as_second() - service.creation_timestamp()?.0.as_second();
    Some(match seconds {
        ..60 => format!("{}s", seconds.max(0)),
        60..3600 => format!("{}m", seconds / 60),
        3600..86_400 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86_400),
    })
}

fn table(rows: &[Row]) -> String {
    let cells: Vec<Vec<String>> = rows
        .iter()
        .map(|row| {
            let none = || "–".to_owned();
            vec![
                "Service".to_owned(),
                row.name.clone(),
                "aws-nlb".to_owned(),
                row.address.clone().unwrap_or_else(none),
                row.open.clone(),
                row.enforced.to_owned(),
                row.members.map_or_else(none, |(healthy, all)| format!("{healthy}/{all}")),
                row.age.clone().unwrap_or_else(none),
                row.note.clone(),
            ]
        })
        .collect();
    output::table(
        &["KIND", "NAME", "PROVIDER", "ADDRESS", "OPEN TO", "ENFORCED", "MEMBERS", "AGE", ""],
        &cells,
    )
}

fn value(row: &Row) -> Value {
    json!({
        "kind": "Service",
        "name": row.name,
        "provider": "aws-nlb",
        "address": row.address,
        "openTo": row.open,
        "enforced": row.enforced,
        "members": row.members.map(|(healthy, all)| json!({"healthy": healthy, "all": all})),
        "note": row.note,
    })
}
