use std::fmt;

use serde::{Deserialize, Serialize};

/// Which way a connection is opened, seen from the endpoint that is protected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// Towards the protected endpoint.
    Ingress,
    /// From the protected endpoint.
    Egress,
}

impl fmt::Display for Direction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Ingress => "ingress",
            Self::Egress => "egress",
        })
    }
}
