//! `portcullis release`

use std::time::{Duration, Instant};

use anyhow::Context;
use k8s_openapi::api::core::v1::Service;
use portcullis_aws::{GivenRules, Maker};
use portcullis_kube_api::{Adopted, give_back, is_held_by};

use super::adopt::{Hands, Held, each, failure, may_change, unanswered, unchanged};
use crate::cli::ConfigArgs;
use crate::exit::{Exit, Failure};
use crate::output;

/// So long the other controller is waited for.
const PATIENCE: Duration = Duration::from_secs(300);

/// So long it is tried to take away what is not needed any more: AWS holds on to it for a while.
const PATIENCE_WITH_OWN: Duration = Duration::from_secs(60);

const PAUSE: Duration = Duration::from_secs(2);

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
                for left in release(&hands, &held).await? {
                    output::print(&format!(
                        "  left: {left}. It goes with the Service, or delete it when it is not used.\n"
                    ))?;
                }
                output::print("  Done.\n")?;
            }
            Ok(())
        })
        .await?;
        unchanged(yes)
    })
}

/// Gives one back; what is left of ours, which could not be taken away.
async fn release(hands: &Hands, held: &Held) -> Result<Vec<String>, Failure> {
    let Held { owner, estate, .. } = held;
    let failed = |error| {
        Failure::new(Exit::Failed, format!("{owner}: {error}"))
            .state("The load balancer serves as before. Run the command again.")
    };
    let want = hands.want(held).map_err(|problem| failure(&problem))?;
    let given = hands.provider.give_back_rules(&want, estate).await.map_err(|problem| failure(&problem))?;
    give_back_service(hands, held, &given).await?;
    wait_for_the_other(hands, held, &given).await?;
    let start = Instant::now();
    let left = loop {
        let left = hands.provider.take_away_own(owner, estate).await.map_err(failed)?;
        if left.is_empty() || start.elapsed() > PATIENCE_WITH_OWN {
            break left;
        }
        tokio::time::sleep(PAUSE).await;
    };
    hands.provider.let_go(owner, estate).await.map_err(failed)?;
    Ok(left)
}

/// Makes the Service that of the other controller. If it cannot be changed, the nodes are not left open for it.
async fn give_back_service(hands: &Hands, held: &Held, given: &GivenRules) -> Result<(), Failure> {
    let Held { service, owner, .. } = held;
    let Err(failed) = hands.change(service, give_back(service)).await else { return Ok(()) };
    match hands.read(owner).await {
        // It was done, and only the answer was lost.
        Ok(Some(found)) if Adopted::of(&found).is_none() => Ok(()),
        Ok(_) => Err(match hands.provider.take_back_rules(given).await {
            Ok(()) => failed.state("It is still ours."),
            Err(problem) => failed.note(format!("{} {} {}", problem.what, problem.state, problem.remedy)),
        }),
        Err(_) => Err(failed.note(
            "Whether the Service is still ours cannot be seen, so that the nodes stay open for the other controller.",
        )),
    }
}

/// Waits until the other controller looks after the load balancer.
async fn wait_for_the_other(hands: &Hands, held: &Held, given: &GivenRules) -> Result<(), Failure> {
    let Held { owner, estate, .. } = held;
    let start = Instant::now();
    loop {
        let Some(service) = hands.read(owner).await.map_err(|error| unanswered(&error))? else {
            let failed = Failure::new(Exit::Failed, format!("{owner}: it was deleted meanwhile"))
                .state("Portcullis takes its load balancer away.");
            return Err(match hands.provider.take_back_rules(given).await {
                Ok(()) => failed,
                Err(problem) => failed.note(format!("{} {}", problem.what, problem.state)),
            });
        };
        if is_taken_back(hands, held, &service).await? {
            return Ok(());
        }
        if start.elapsed() > PATIENCE {
            let minutes = PATIENCE.as_secs() / 60;
            let what = format!("{owner}: {} did not take it back within {minutes} minutes", estate.maker);
            return Err(Failure::new(Exit::Failed, what)
                .state("The Service is its again, and the load balancer serves as before, still known as ours.")
                .note("Start that controller, and run the command again. If the Service is deleted before that, Portcullis takes the load balancer away."));
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Whether the other controller looks after the load balancer: it holds the Service, and the load balancer does without
/// the group that all of ours have. The AWS Load Balancer Controller makes its bindings of targets last, when all else is
/// as it wants it.
async fn is_taken_back(hands: &Hands, held: &Held, service: &Service) -> Result<bool, Failure> {
    let Held { owner, estate, .. } = held;
    if !is_held_by(service, estate.maker.name()) {
        return Ok(false);
    }
    let without_ours = hands.provider.is_without_ours(owner, estate).await.map_err(|error| {
        Failure::new(Exit::Failed, format!("{owner}: {error}"))
            .state("The Service is the other controller's again. Run the command again.")
    })?;
    if !without_ours || estate.maker == Maker::CloudProvider {
        return Ok(without_ours);
    }
    let bindings = hands.bindings(owner.namespace().unwrap_or_default(), owner.name()).await?;
    Ok(!bindings.is_empty())
}
