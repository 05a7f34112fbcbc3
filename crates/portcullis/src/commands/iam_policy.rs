//! `portcullis iam-policy`

use crate::exit::Failure;
use crate::output;

/// Print the least that a role on AWS has to be allowed
///
/// What changes something is limited to objects of the cluster where AWS can tell: those that carry its tags.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The cluster, as in `aws.cluster`; without it, objects of any cluster may be changed
    #[arg(long)]
    cluster: Option<String>,

    /// Only what watching needs (`mode: observe`)
    #[arg(long)]
    observe: bool,

    /// Also what `adopt` and `release` need
    #[arg(long, conflicts_with = "observe")]
    adopt: bool,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let policy = portcullis_aws::policy(args.cluster.as_deref(), args.observe, args.adopt);
    Ok(output::print(&output::json(&policy)?)?)
}
