//! `portcullis crds`

use portcullis_kube_api::ingress;

use crate::exit::Failure;
use crate::output;

/// Print the types for Kubernetes that it brings, for clusters that do not have them
///
/// For example: portcullis crds | kubectl apply --server-side -f -
///
/// On OpenShift they are there already, and are used as they are.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {}

pub(crate) fn run(_: &Args) -> Result<(), Failure> {
    Ok(output::print(ingress::CRD)?)
}
