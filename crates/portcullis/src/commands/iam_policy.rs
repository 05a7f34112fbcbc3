//! `portcullis iam-policy`

use portcullis_aws::PolicyFor;
use portcullis_kube_api::cluster::Flavour;

use crate::exit::Failure;
use crate::output;

/// Print the least that a role on AWS has to be allowed
///
/// What changes something is limited to objects of the cluster where AWS can tell: those that carry its tags.
#[allow(clippy::struct_excessive_bools, reason = "each is an option of its own")]
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The cluster, as in `aws.cluster`; without it, objects of any cluster may be changed
    #[arg(long)]
    cluster: Option<String>,

    /// For load balancers of clusters that Cluster API makes (`clusterApi.aws`): of any cluster, and nothing of Services
    #[arg(long, conflicts_with = "cluster")]
    cluster_api: bool,

    /// The VPC of the cluster; without it, rules of groups in any VPC may be changed
    #[arg(long)]
    vpc: Option<String>,

    /// Only what watching needs (`mode: observe`)
    #[arg(long)]
    observe: bool,

    /// Also what `adopt` and `release` need
    #[arg(long, conflicts_with = "observe")]
    adopt: bool,

    /// Also what `check aws` needs to be certain about objects of the cluster
    #[arg(long)]
    check: bool,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let policy = portcullis_aws::policy(PolicyFor {
        cluster: args.cluster.as_deref(),
        kind: args.cluster_api.then_some(Flavour::Own.aws_nlb().kind),
        vpc: args.vpc.as_deref(),
        observe: args.observe,
        adopt: args.adopt,
        check: args.check,
    });
    Ok(output::print(&output::json(&policy)?)?)
}
