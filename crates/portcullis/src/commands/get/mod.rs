//! `portcullis get`

mod host;
mod ingress;
mod load_balancers;
mod services;

use anyhow::Context;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

use crate::cli::ConfigArgs;
use crate::config::Loaded;
use crate::exit::{Exit, Failure};
use crate::output::{self, Format};
use crate::roles::services::kubernetes;

/// Show load balancers: where they are, who may reach them, and what is wrong with them
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Of what; of all that the configuration has looked after, if it is not said
    #[arg(value_enum)]
    kind: Option<Kind>,

    #[command(flatten)]
    config: ConfigArgs,

    /// Also look at whom Services send to, which takes a call for each port of each
    #[arg(long)]
    members: bool,

    /// In which form
    #[arg(short, long, value_enum, value_name = "FORM", default_value = "table")]
    output: Format,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Kind {
    /// Services of type `LoadBalancer`
    Services,
    /// `IngressControllers`, and where their ranges come from
    Ingress,
    /// Services at the addresses of nodes, and what came to those of this machine
    Host,
    /// `LoadBalancers` of clusters that Cluster API makes, and where their members are
    LoadBalancers,
}

/// Something with a load balancer, in the columns that all have.
struct Row {
    kind: &'static str,
    name: String,
    provider: Option<String>,
    address: Option<String>,
    open: String,
    enforced: String,
    members: Option<(usize, usize)>,
    age: Option<String>,
    note: String,
}

pub(crate) fn run(args: Args) -> Result<(), Failure> {
    let loaded = args.config.sources().load()?;
    output::warnings(&loaded.warnings);
    let runtime = tokio::runtime::Runtime::new().context("cannot start the runtime")?;
    let text = runtime.block_on(shown(&loaded, args.kind, args.members, args.output))?;
    Ok(output::print(&text)?)
}

async fn shown(
    loaded: &Loaded,
    kind: Option<Kind>,
    members: bool,
    format: Format,
) -> Result<String, Failure> {
    let client = kubernetes(loaded).await?;
    if kind == Some(Kind::Ingress) {
        return ingress::shown(&ingress::look(loaded, &client).await?, format);
    }
    if kind == Some(Kind::Host) {
        return host::shown(&host::look(loaded, &client).await?, format);
    }
    if kind == Some(Kind::LoadBalancers) {
        return load_balancers::shown(&load_balancers::look(loaded, &client).await?, format);
    }
    let with_ingress = kind.is_none() && loaded.config.ingress_controllers.enabled;
    let with_host = kind.is_none() && loaded.config.host.enabled;
    let with_balancers = kind.is_none() && loaded.config.cluster_api.enabled;
    let mut rows = Vec::new();
    if with_balancers {
        rows.extend(load_balancers::look(loaded, &client).await?.iter().map(load_balancers::row));
    }
    if with_host {
        rows.extend(host::look(loaded, &client).await?.iter().map(host::row));
    }
    if !with_ingress && !with_host && !with_balancers || loaded.config.services.enabled {
        rows.extend(services::rows(loaded, &client, members).await?);
    }
    if with_ingress {
        rows.extend(ingress::look(loaded, &client).await?.iter().map(ingress::row));
    }
    let values = || rows.iter().map(value).collect::<Vec<_>>();
    Ok(match format {
        Format::Table if rows.is_empty() => "There is nothing of ours.\n".to_owned(),
        Format::Table => table(&rows),
        Format::Json => output::json(&values())?,
        Format::Yaml => output::yaml(&values())?,
    })
}

fn table(rows: &[Row]) -> String {
    let cells: Vec<Vec<String>> = rows
        .iter()
        .map(|row| {
            vec![
                row.kind.to_owned(),
                row.name.clone(),
                or_none(row.provider.clone()),
                or_none(row.address.clone()),
                row.open.clone(),
                row.enforced.clone(),
                or_none(row.members.map(|(healthy, all)| format!("{healthy}/{all}"))),
                or_none(row.age.clone()),
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
        "kind": row.kind,
        "name": row.name,
        "provider": row.provider,
        "address": row.address,
        "openTo": row.open,
        "enforced": row.enforced,
        "members": row.members.map(|(healthy, all)| json!({"healthy": healthy, "all": all})),
        "note": row.note,
    })
}

/// Where clients find a Service.
fn address(service: &Service) -> Option<String> {
    let ingress = service.status.as_ref()?.load_balancer.as_ref()?.ingress.as_ref()?;
    let each = ingress.iter().filter_map(|ingress| ingress.hostname.clone().or_else(|| ingress.ip.clone()));
    let all: Vec<String> = each.collect();
    (!all.is_empty()).then(|| all.join(", "))
}

/// As many ranges as are shown in a table.
const FEW: usize = 3;

/// Who may connect, by these ranges.
fn in_few_words(ranges: &[String]) -> String {
    match ranges.len() {
        0 => "everyone".to_owned(),
        1..=FEW => ranges.join(", "),
        count => format!("{} and {} more", ranges[..FEW].join(", "), count - FEW),
    }
}

fn or_none(text: Option<String>) -> String {
    text.unwrap_or_else(|| "–".to_owned())
}

/// How old something is, in one unit.
fn age(metadata: &ObjectMeta) -> Option<String> {
    let seconds = Timestamp::now().as_second() - metadata.creation_timestamp.as_ref()?.0.as_second();
    Some(match seconds {
        ..60 => format!("{}s", seconds.max(0)),
        60..3600 => format!("{}m", seconds / 60),
        3600..86_400 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86_400),
    })
}

fn unanswered(error: &kube::Error) -> Failure {
    Failure::new(Exit::Lacking, format!("the Kubernetes API does not answer: {error}"))
}
