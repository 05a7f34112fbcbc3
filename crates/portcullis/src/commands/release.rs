//! `portcullis release`

use std::time::{Duration, Instant};

use anyhow::Context;
use portcullis_kube_api::give_back;

use super::adopt::{Hands, Held, each, failure, may_change, unchanged};
use crate::cli::ConfigArgs;
use crate::exit::{Exit, Failure};
use crate::output;

/// So long the other controller is waited for.
const PATIENCE: Duration = Duration::from_secs(300);

/// Give a load balancer back to the controller that it was taken over from
///
/// The load balancer stays, with its name and its addresses. What says that it is ours is taken off once the other
/// controller looks after it. Without --yes nothing is changed, and it is printed what would be.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    config: ConfigArgs,

    /// Services of the cluster, as NAMESPACE/NAME
    #[arg(value_name = "SERVICE", required = true)]
    services: Vec<String>,

    /// Do it
    #[arg(long)]
    yes: bool,
}

pub(crate) fn run(args: Args) -> Result<(), Failure> {
    let Args { config, services, yes } = args;
    let loaded = config.sources().load()?;
    output::warnings(&loaded.warnings);
    may_change(&loaded, yes)?;
    let runtime = tokio::runtime::Runtime::new().context("cannot start the runtime")?;
    runtime.block_on(async {
        let hands = Hands::new(&loaded).await?;
        each(&services, async |name| {
            let held = hands.find(name).await?;
            let Held { owner, estate, .. } = &held;
            if !estate.is_ours {
                let what = format!("{owner}: load balancer {} is not ours", estate.balancer.name);
                return Err(Failure::new(Exit::Failed, what).state("Nothing was changed."));
            }
            output::print(&format!(
                "{owner} is given back to {}: load balancer {} at {} stays as it is\n",
                estate.maker, estate.balancer.name, estate.balancer.dns_name
            ))?;
            if yes {
                release(&hands, &held).await?;
                output::print("  Done.\n")?;
            }
            Ok(())
        })
        .await?;
        unchanged(yes)
    })
}

async fn release(hands: &Hands, held: &Held) -> Result<(), Failure> {
    let Held { service, owner, estate } = held;
    let failed = |error| {
        Failure::new(Exit::Failed, format!("{owner}: {error}"))
            .state("The load balancer serves as before. Run the command again.")
    };
    let want = hands.want(held).map_err(|problem| failure(&problem))?;
    hands.provider.give_back_rules(&want, estate).await.map_err(|problem| failure(&problem))?;
    hands.change(service, give_back(service)).await?;
    let start = Instant::now();
    while !hands.provider.is_taken_back(owner, estate).await.map_err(failed)? {
        if start.elapsed() > PATIENCE {
            return Err(Failure::new(
                Exit::Failed,
                format!(
                    "{owner}: {} did not take it back within {} minutes",
                    estate.maker,
                    PATIENCE.as_secs() / 60
                ),
            )
            .state(
                "The Service is its again, and the load balancer serves as before, still by a group of ours.",
            )
            .note("Start that controller, and run the command again."));
        }
        tokio::time::sleep(Duration::from_secs(2)).await;
    }
    hands.provider.let_go(estate).await.map_err(failed)
}
