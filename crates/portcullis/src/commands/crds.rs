//! `portcullis crds`

use portcullis_kube_api::cluster::{Flavour, crds};
use portcullis_kube_api::ingress;

use crate::exit::Failure;
use crate::output;

/// Print the types for Kubernetes that it brings, for clusters that do not have them
///
/// For example: portcullis crds | kubectl apply --server-side -f -
///
/// On OpenShift those of `IngressControllers` are there already, and are used as they are.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Only these
    #[arg(long, value_enum)]
    only: Option<Only>,
}

/// Which types are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Only {
    /// `IngressControllers`
    Ingress,
    /// Load balancers of clusters, beside an installation of Cluster API
    ClusterApi,
    /// The same as the proposal for Cluster API has them, in its groups: not beside an installation of it
    Proposed,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let mut documents = Vec::new();
    if matches!(args.only, None | Some(Only::Ingress)) {
        documents.push(ingress::CRD.trim_end().to_owned());
    }
    let flavour = match args.only {
        None | Some(Only::ClusterApi) => Some(Flavour::Own),
        Some(Only::Proposed) => Some(Flavour::Proposed),
        Some(Only::Ingress) => None,
    };
    for definition in flavour.map(crds).unwrap_or_default() {
        documents.push(output::yaml(&definition)?.trim_end().to_owned());
    }
    Ok(output::print(&format!("{}\n", documents.join("\n---\n")))?)
}
