use portcullis_core::Problem;
use thiserror::Error;

/// Why the router is not as it should be yet.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Trouble {
    /// The API cannot be used at the moment, or something goes first.
    #[error("{0}")]
    Away(String),
    /// Somebody has to do something about it.
    #[error("{0}")]
    Problem(Problem),
}

impl Trouble {
    /// What the API answered about an object.
    pub(super) fn of(place: &str, error: &kube::Error) -> Self {
        match error {
            kube::Error::Api(status) if status.code == 403 => Trouble::Problem(Problem::new(
                format!("{place} cannot be looked after: {}.", status.message.trim_end_matches('.')),
                "The router may be incomplete.",
                "Allow it, as deploy/kustomize/single-node does.",
            )),
            // Too many requests, a server that is starting or ending, or somebody who was quicker.
            kube::Error::Api(status) if [404, 409, 429].contains(&status.code) || status.code >= 500 => {
                Trouble::Away(format!("{place} has to wait: {}", status.message))
            }
            kube::Error::Api(status) => Trouble::Problem(Problem::new(
                format!("{place}: Kubernetes refuses it, and says: {}", status.message),
                "It stays as it is, and what comes after it was not done.",
                "Change what it complains about.",
            )),
            other => Trouble::Away(format!("the Kubernetes API cannot be used: {other}")),
        }
    }
}
