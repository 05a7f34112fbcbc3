//! Where clients find a load balancer: one endpoint that several objects have a field for.

use portcullis_kube_api::cluster::Endpoint;

/// An object that has a field for the endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Place {
    Cluster,
    ControlPlane,
    LoadBalancer,
    /// What makes the cluster's network, where nothing else says where the endpoint is.
    InfrastructureCluster,
    /// What makes the load balancer: it only ever has an address of its own.
    Provider,
}

impl Place {
    fn word(self) -> &'static str {
        match self {
            Self::Cluster => "the Cluster",
            Self::ControlPlane => "the control plane",
            Self::LoadBalancer => "the LoadBalancer",
            Self::InfrastructureCluster => "the infrastructure cluster",
            Self::Provider => "the provider",
        }
    }
}

/// What is to be done about an endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Flow {
    /// Nobody has said yet where it is.
    Unknown,
    /// All who have a field for it have it, after these got it.
    Known { endpoint: Endpoint, missing: Vec<Place> },
    /// Two say different things. Nothing is changed: either may be what clients use.
    Mismatch(String),
}

/// What becomes of an endpoint that these objects have, or lack, from the most general one to the most special one. What is set is
/// never changed. One of `alternates` is as good as the endpoint itself.
pub(super) fn flow(chain: &[(Place, Option<Endpoint>)], alternates: &[Endpoint]) -> Flow {
    let given = || chain.iter().filter_map(|(place, endpoint)| Some((*place, endpoint.as_ref()?)));
    let is_alternate = |endpoint: &Endpoint| alternates.iter().any(|other| other.is_same(endpoint));
    // What a provider has is where the endpoint leads to, and need not be the endpoint.
    let mut said = given().filter(|(place, _)| *place != Place::Provider);
    let firm = said
        .clone()
        .find(|(_, endpoint)| !is_alternate(endpoint))
        .or_else(|| said.next())
        .or_else(|| given().next());
    let Some((first, endpoint)) = firm else { return Flow::Unknown };
    let mut others = given().filter(|(place, other)| {
        *place != Place::Provider && !other.is_same(endpoint) && !is_alternate(other)
    });
    if let Some((place, other)) = others.next() {
        return Flow::Mismatch(format!(
            "{} has the endpoint {endpoint}, and {} has {other}. Nothing was changed. Correct one of them, or name {other} in spec.alternateEndpoints of the LoadBalancer",
            first.word(),
            place.word()
        ));
    }
    let missing = chain.iter().filter(|(place, found)| *place != Place::Provider && found.is_none());
    Flow::Known { endpoint: endpoint.clone(), missing: missing.map(|(place, _)| *place).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoint(host: &str) -> Endpoint {
        Endpoint { host: host.to_owned(), port: 443 }
    }

    fn chain(
        cluster: &str,
        control_plane: &str,
        load_balancer: &str,
        provider: &str,
    ) -> [(Place, Option<Endpoint>); 4] {
        let given = |host: &str| (!host.is_empty()).then(|| endpoint(host));
        [
            (Place::Cluster, given(cluster)),
            (Place::ControlPlane, given(control_plane)),
            (Place::LoadBalancer, given(load_balancer)),
            (Place::Provider, given(provider)),
        ]
    }

    #[test]
    fn what_is_known_anywhere_reaches_everybody() {
        use Place::{Cluster, ControlPlane, LoadBalancer};
        for (cluster, control_plane, load_balancer, provider, known, missing) in [
            ("a", "", "", "", "a", vec![ControlPlane, LoadBalancer]),
            ("a", "", "", "x", "a", vec![ControlPlane, LoadBalancer]),
            ("", "a", "", "x", "a", vec![Cluster, LoadBalancer]),
            ("", "", "a", "x", "a", vec![Cluster, ControlPlane]),
            ("", "", "", "x", "x", vec![Cluster, ControlPlane, LoadBalancer]),
            ("a", "A", "a.", "x", "a", vec![]),
        ] {
            let expected = Flow::Known { endpoint: endpoint(known), missing };
            assert_eq!(flow(&chain(cluster, control_plane, load_balancer, provider), &[]), expected);
        }
        assert_eq!(flow(&chain("", "", "", ""), &[]), Flow::Unknown);
    }

    #[test]
    fn two_that_differ_change_nothing() {
        let Flow::Mismatch(words) = flow(&chain("a", "", "b", "x"), &[]) else { panic!() };
        assert!(
            words.starts_with("the Cluster has the endpoint a:443, and the LoadBalancer has b:443."),
            "{words}"
        );
        assert!(matches!(flow(&chain("", "b", "c", ""), &[]), Flow::Mismatch(_)));
    }

    #[test]
    fn an_alternate_is_as_good() {
        let alternates = [endpoint("alias")];
        let expected = Flow::Known { endpoint: endpoint("b"), missing: vec![Place::ControlPlane] };
        assert_eq!(flow(&chain("alias", "", "b", "x"), &alternates), expected);
        // Where nobody says anything else, it is the endpoint.
        let Flow::Known { endpoint, .. } = flow(&chain("alias", "", "", "x"), &alternates) else { panic!() };
        assert_eq!(endpoint.host, "alias");
        assert!(matches!(flow(&chain("c", "", "b", "x"), &alternates), Flow::Mismatch(_)));
    }
}
