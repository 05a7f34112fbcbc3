//! What a load balancer asks of its provider, with nothing left open.

use portcullis_core::{Family, Scheme};
use portcullis_kube_api::cluster::{
    AssignedMember, Assignment, Endpoint, HealthCheckSpec, ListenerSpec, LoadBalancerSpec,
};

/// For how long connections of a member that leaves are waited for, if nothing is said.
const DRAIN: u32 = 150;

/// The port of API servers.
const API_SERVER: u16 = 6443;

/// For how long connections of a member that leaves are waited for.
pub(super) fn drain_seconds(spec: &LoadBalancerSpec) -> u32 {
    spec.drain_timeout_seconds.unwrap_or(DRAIN)
}

/// Its ports, with all that there is to say of them.
pub(super) fn listeners(
    spec: &LoadBalancerSpec,
    endpoint: Option<&Endpoint>,
    is_control_plane: bool,
) -> Vec<ListenerSpec> {
    let given = if spec.listeners.is_empty() {
        let port = endpoint.map_or(API_SERVER, |endpoint| endpoint.port);
        vec![ListenerSpec { port, target_port: Some(API_SERVER), ..ListenerSpec::default() }]
    } else {
        spec.listeners.clone()
    };
    // Who says nothing has API servers behind it.
    let is_default = spec.listeners.is_empty();
    let complete = |listener: ListenerSpec| {
        let target = listener.target_port.unwrap_or(listener.port);
        let asks_api_server = is_default || (is_control_plane && target == API_SERVER);
        let check = listener.health_check.unwrap_or_else(|| {
            let (protocol, path) =
                if asks_api_server { ("HTTPS", Some("/readyz".to_owned())) } else { ("TCP", None) };
            HealthCheckSpec { protocol: Some(protocol.to_owned()), path, ..HealthCheckSpec::default() }
        });
        let interval = check.interval_seconds.unwrap_or(5);
        ListenerSpec {
            target_port: Some(target),
            protocol: Some(listener.protocol.unwrap_or_else(|| "TCP".to_owned()).to_ascii_uppercase()),
            health_check: Some(HealthCheckSpec {
                protocol: Some(check.protocol.unwrap_or_else(|| "TCP".to_owned()).to_ascii_uppercase()),
                interval_seconds: Some(interval),
                timeout_seconds: Some(check.timeout_seconds.unwrap_or(4).min(interval)),
                healthy_threshold: Some(check.healthy_threshold.unwrap_or(2)),
                unhealthy_threshold: Some(check.unhealthy_threshold.unwrap_or(3)),
                ..check
            }),
            ..listener
        }
    };
    given.into_iter().map(complete).collect()
}

/// The port that clients of the control plane use: of several listeners the one that leads to API servers.
pub(super) fn endpoint_port(spec: &LoadBalancerSpec) -> u16 {
    let all = listeners(spec, spec.endpoint(), false);
    let found = all.iter().find(|listener| listener.target_port == Some(API_SERVER)).or(all.first());
    found.map_or(API_SERVER, |listener| listener.port)
}

/// What is wrong with a spec, all of it.
pub(super) fn refusals(spec: &LoadBalancerSpec) -> Vec<String> {
    let mut wrong = Vec::new();
    if spec.cluster_name.is_empty() {
        wrong.push("spec.clusterName is empty: name the Cluster that it is for".to_owned());
    }
    if let Some(endpoint) = spec.endpoint.as_ref().filter(|endpoint| endpoint.given().is_none())
        && (!endpoint.host.is_empty() || endpoint.port != 0)
    {
        wrong.push("spec.endpoint has a host or a port: give both, or neither".to_owned());
    }
    if spec
        .infrastructure_ref
        .as_ref()
        .is_some_and(|reference| reference.name.is_empty() || reference.kind.is_empty())
    {
        wrong.push("spec.infrastructureRef needs a kind and a name".to_owned());
    }
    let assignment = Assignment {
        load_balancer: "load-balancer".to_owned(),
        listeners: listeners(spec, spec.endpoint(), false),
        allowed_source_ranges: spec.allowed_source_ranges.clone(),
        ..Assignment::default()
    };
    if let Err(why) = assignment.load_balancer(Scheme::Internal, Family::ALL) {
        wrong.push(why.to_string().replace("load balancer load-balancer has", "spec.listeners has"));
    }
    wrong
}

/// What the provider is asked for.
pub(super) fn assignment(
    name: &str,
    generation: i64,
    spec: &LoadBalancerSpec,
    is_control_plane: bool,
    members: Vec<AssignedMember>,
) -> Assignment {
    let endpoint = spec.endpoint().cloned();
    Assignment {
        load_balancer: name.to_owned(),
        cluster_name: spec.cluster_name.clone(),
        generation,
        listeners: listeners(spec, endpoint.as_ref(), is_control_plane),
        endpoint,
        allowed_source_ranges: spec.allowed_source_ranges.clone(),
        drain_timeout_seconds: drain_seconds(spec),
        members,
        ..Assignment::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn spec(spec: Value) -> LoadBalancerSpec {
        serde_json::from_value(spec).unwrap()
    }

    fn shown(spec: &LoadBalancerSpec, is_control_plane: bool) -> Vec<String> {
        let all = listeners(spec, spec.endpoint(), is_control_plane).into_iter();
        all.map(|one| {
            let check = one.health_check.unwrap();
            let path = check.path.unwrap_or_default();
            format!(
                "{} {}→{} {}{path}",
                one.protocol.unwrap(),
                one.port,
                one.target_port.unwrap(),
                check.protocol.unwrap()
            )
        })
        .collect()
    }

    #[test]
    fn ports_have_defaults() {
        assert_eq!(shown(&spec(json!({})), false), ["TCP 6443→6443 HTTPS/readyz"]);
        let with_endpoint = spec(json!({"endpoint": {"host": "api.example.com", "port": 443}}));
        assert_eq!(shown(&with_endpoint, false), ["TCP 443→6443 HTTPS/readyz"]);
        let given = spec(json!({"listeners": [
            {"port": 443, "targetPort": 6443},
            {"port": 80},
            {"port": 8080, "protocol": "tcp", "healthCheck": {"protocol": "http", "path": "/ok"}},
        ]}));
        assert_eq!(shown(&given, false), ["TCP 443→6443 TCP", "TCP 80→80 TCP", "TCP 8080→8080 HTTP/ok"]);
        assert_eq!(shown(&given, true)[0], "TCP 443→6443 HTTPS/readyz");
    }

    #[test]
    fn all_that_is_wrong_is_said() {
        assert_eq!(refusals(&spec(json!({"clusterName": "c"}))), [""; 0]);
        let found = refusals(&spec(json!({
            "endpoint": {"host": "x"},
            "infrastructureRef": {"kind": "AWSNLB"},
            "listeners": [{"port": 80}, {"port": 80}],
        })));
        assert_eq!(
            found,
            [
                "spec.clusterName is empty: name the Cluster that it is for",
                "spec.endpoint has a host or a port: give both, or neither",
                "spec.infrastructureRef needs a kind and a name",
                "spec.listeners has two listeners on tcp 80: remove one",
            ]
        );
        let ranges =
            refusals(&spec(json!({"clusterName": "c", "allowedSourceRanges": ["x", "10.0.0.0/8", "y"]})));
        assert!(
            ranges[0].starts_with("spec.allowedSourceRanges[0]: ") && ranges[0].contains("; [2]: "),
            "{ranges:?}"
        );
    }
}
