//! `portcullis check`

use anyhow::Context;
use portcullis_aws::{Permission, Verdict};

use crate::cli::ConfigArgs;
use crate::config::{Loaded, Mode};
use crate::exit::{Exit, Failure};
use crate::output;
use crate::roles::services::{self, Nodes};

/// Find out what is missing, without changing anything
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    /// Whether the role on AWS is allowed all that is needed
    Aws(Aws),
}

#[derive(Debug, clap::Args)]
struct Aws {
    #[command(flatten)]
    config: ConfigArgs,
}

pub(crate) fn run(args: Args) -> Result<(), Failure> {
    let What::Aws(Aws { config }) = args.what;
    let loaded = config.sources().load()?;
    output::warnings(&loaded.warnings);
    let runtime = tokio::runtime::Runtime::new().context("cannot start the runtime")?;
    let (caller, found) = runtime.block_on(look(&loaded))?;
    output::print(&format!("{caller}\n\n{}", table(&found)))?;
    let unknown = found.iter().filter(|found| matches!(found.verdict, Verdict::Unknown(_))).count();
    if unknown > 0 {
        output::print(&format!(
            "\n{unknown} could not be found out. What is allowed on tagged objects only is known with iam:SimulatePrincipalPolicy, which `portcullis iam-policy --check` adds.\n"
        ))?;
    }
    let denied = found.iter().filter(|found| matches!(found.verdict, Verdict::Denied(_)));
    let denied: Vec<&str> = denied.map(|found| found.action.as_str()).collect();
    if denied.is_empty() {
        return Ok(());
    }
    let failure = Failure::new(Exit::Lacking, format!("the role is not allowed {}", denied.join(", ")));
    Err(failure.note("`portcullis iam-policy` prints a policy that allows it."))
}

async fn look(loaded: &Loaded) -> Result<(String, Vec<Permission>), Failure> {
    let kubernetes = services::kubernetes(loaded).await?;
    let provider = services::provider(loaded, Nodes::Cluster(&kubernetes)).await?;
    let caller = provider.client().caller().await;
    let caller =
        caller.map_err(|error| Failure::new(Exit::Lacking, format!("AWS does not know us. {error}")))?;
    let observe = loaded.config.mode == Mode::Observe;
    let settings = provider.settings();
    let found = provider.client().permissions(&caller, &settings.cluster, &settings.vpc, observe).await;
    Ok((caller, found))
}

fn table(found: &[Permission]) -> String {
    let rows: Vec<Vec<String>> = found
        .iter()
        .map(|found| {
            let (verdict, why) = match &found.verdict {
                Verdict::Allowed => ("yes", ""),
                Verdict::Denied(why) => ("no", why.as_str()),
                Verdict::Unknown(why) => ("unknown", why.as_str()),
            };
            vec![found.action.clone(), verdict.to_owned(), why.to_owned()]
        })
        .collect();
    output::table(&["ACTION", "ALLOWED", ""], &rows)
}
