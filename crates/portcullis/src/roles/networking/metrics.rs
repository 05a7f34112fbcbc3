//! What the Networking API counts.

use std::fmt;
use std::time::Instant;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{Method, StatusCode};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::Response;
use portcullis_ovn::Store;
use portcullis_ovn::objects::Kind;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};
use tracing::debug;

type Label = (&'static str, &'static str);

/// The requests that were answered. Cloned, they are the same.
#[derive(Clone, Debug)]
pub(super) struct Requests {
    count: Family<[Label; 3], Counter>,
    seconds: Family<[Label; 2], Histogram, fn() -> Histogram>,
}

impl Requests {
    pub(super) fn new(registry: &mut Registry) -> Self {
        // From a read out of the replica to a change that waits for a slow disk: 0.25 ms to 8 s.
        let buckets = || Histogram::new(exponential_buckets(0.000_25, 2.0, 16));
        let requests = Requests { count: Family::default(), seconds: Family::new_with_constructor(buckets) };
        registry.register(
            "portcullis_api_requests",
            "Requests to the Networking and the Identity API that were answered",
            requests.count.clone(),
        );
        registry.register_with_unit(
            "portcullis_api_request_duration",
            "How long they took",
            Unit::Seconds,
            requests.seconds.clone(),
        );
        requests
    }

    /// Counts what a router answers.
    pub(super) fn of(self, router: Router) -> Router {
        router.layer(from_fn_with_state(self, count))
    }
}

async fn count(State(requests): State<Requests>, request: Request, next: Next) -> Response {
    let (method, resource) = (name(request.method()), resource(request.uri().path()));
    let started = Instant::now();
    let response = next.run(request).await;
    let (took, status) = (started.elapsed(), response.status());
    let labels = [("method", method), ("resource", resource)];
    requests.seconds.get_or_create(&labels).observe(took.as_secs_f64());
    let labels = [("method", method), ("resource", resource), ("status", class(status))];
    requests.count.get_or_create(&labels).inc();
    let id = response.headers().get("x-openstack-request-id").and_then(|id| id.to_str().ok());
    // Not the path: that of v2.0 has a token in it.
    debug!(method, resource, status = status.as_u16(), ms = took.as_secs_f64() * 1000.0, id, "answered");
    response
}

fn name(method: &Method) -> &'static str {
    match method.as_str() {
        "GET" => "GET",
        "HEAD" => "HEAD",
        "POST" => "POST",
        "PUT" => "PUT",
        "PATCH" => "PATCH",
        "DELETE" => "DELETE",
        _ => OTHER,
    }
}

fn class(status: StatusCode) -> &'static str {
    match status.as_u16() / 100 {
        2 => "2xx",
        3 => "3xx",
        4 => "4xx",
        5 => "5xx",
        _ => OTHER,
    }
}

const OTHER: &str = "other";

/// What has a line of its own. Everything else shares one: whoever makes paths up must not make metrics.
const RESOURCES: [&str; 25] = [
    "address-groups",
    "default-security-group-rules",
    "explain",
    "extensions",
    "floatingips",
    "network-ip-availabilities",
    "networks",
    "ports",
    "quotas",
    "rbac-policies",
    "routers",
    "security-group-rules",
    "security-groups",
    "subnets",
    // Of identity.
    "auth",
    "domains",
    "endpoints",
    "projects",
    "regions",
    "role_assignments",
    "roles",
    "services",
    "tenants",
    "tokens",
    "users",
];

fn resource(path: &str) -> &'static str {
    let mut parts = path.split('/').filter(|part| !part.is_empty()).skip_while(|part| *part == "identity");
    let asked = parts.nth(1).unwrap_or_default().trim_end_matches(".json");
    RESOURCES.into_iter().find(|known| *known == asked).unwrap_or(OTHER)
}

/// What is in the store, looked at when somebody asks.
#[derive(Debug)]
pub(super) struct Stored(pub(super) Store);

impl Collector for Stored {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let model = self.0.model();
        let help = "How many changes were made to the northbound database by Portcullis";
        let metric =
            encoder.encode_descriptor("portcullis_store_generation", help, None, MetricType::Gauge)?;
        ConstGauge::new(model.generation).encode(metric)?;
        let ids = model.ids();
        let mut family =
            encoder.encode_descriptor("portcullis_objects", "Objects by kind", None, MetricType::Gauge)?;
        for kind in Kind::ALL {
            let count = ids.iter().filter(|(of, _)| *of == kind).count();
            let gauge = ConstGauge::new(u64::try_from(count).unwrap_or(u64::MAX));
            gauge.encode(family.encode_family(&[("kind", kind.name())])?)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_that_are_made_up_share_a_line() {
        for (path, expected) in [
            ("/v2.0/networks", "networks"),
            ("/v2.0/networks/", "networks"),
            ("/v2.0/ports.json", "ports"),
            ("/v2.0/security-groups/5c1f/rules", "security-groups"),
            ("/v3/auth/tokens", "auth"),
            ("/identity/v3/auth/tokens", "auth"),
            ("/v2.0/tokens/secret", "tokens"),
            ("/v2.0/secret", "other"),
            ("/", "other"),
            ("", "other"),
        ] {
            assert_eq!(resource(path), expected, "{path}");
        }
        assert_eq!(name(&Method::from_bytes(b"BREW").unwrap()), "other");
    }
}
