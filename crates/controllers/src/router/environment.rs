//! What a router is told, in the words of OpenShift's.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use portcullis_kube_api::ingress::options::{HeaderAction, Headers, Options, Overrides, Tuning};
use portcullis_kube_api::ingress::{EndpointPublishingStrategy, IngressController};
use serde_json::{Value, json};

use super::annotations::speaks_proxy;
use super::deployment::ports;
use super::{AddressMode, Present, RouterSettings, domain, logging, tls, volumes};

/// Names and values.
pub(super) type Told = BTreeMap<&'static str, String>;

/// Everything that a router is told.
pub(super) fn environment(
    controller: &IngressController,
    strategy: &EndpointPublishingStrategy,
    settings: &RouterSettings,
    present: &Present<'_>,
) -> Vec<Value> {
    let options = Options::of(controller);
    let mut told = who_it_is(controller, strategy, settings);
    told.extend(which_routes(controller));
    told.extend(who_reaches_it(strategy, settings, present));
    told.extend(tuning(&options.tuning));
    told.extend(headers(&options.headers));
    told.extend(http(&options, settings));
    told.extend(overrides(&options.overrides));
    told.extend(tls::environment(&options, settings));
    told.extend(options.access_log.iter().flat_map(logging::environment));
    told.extend(volumes::environment(controller, &options, settings, present));
    told.into_iter().map(|(name, value)| json!({"name": name, "value": value})).collect()
}

fn who_it_is(
    controller: &IngressController,
    strategy: &EndpointPublishingStrategy,
    settings: &RouterSettings,
) -> Told {
    let name = controller.name();
    let [http, https, stats] = ports(strategy);
    let mut told = Told::from([
        ("ROUTER_SERVICE_NAME", name.to_owned()),
        ("ROUTER_SERVICE_NAMESPACE", settings.namespace.clone()),
        ("ROUTER_SERVICE_HTTP_PORT", http.to_string()),
        ("ROUTER_SERVICE_HTTPS_PORT", https.to_string()),
        ("STATS_PORT", stats.to_string()),
        ("ROUTER_METRICS_TYPE", "haproxy".to_owned()),
    ]);
    if let Some(domain) = domain(controller, settings) {
        told.insert("ROUTER_DOMAIN", domain.to_owned());
        told.insert("ROUTER_CANONICAL_HOSTNAME", format!("router-{name}.{domain}"));
    }
    if settings.openshift {
        told.insert("ROUTER_ENABLE_EXTERNAL_CERTIFICATE", "true".to_owned());
    }
    told
}

fn which_routes(controller: &IngressController) -> Told {
    let admission = controller.spec.route_admission.clone().unwrap_or_default();
    let is = |given: Option<String>, word: &str| (given.as_deref() == Some(word)).to_string();
    let mut told = Told::from([
        (
            "ROUTER_DISABLE_NAMESPACE_OWNERSHIP_CHECK",
            is(admission.namespace_ownership, "InterNamespaceAllowed"),
        ),
        ("ROUTER_ALLOW_WILDCARD_ROUTES", is(admission.wildcard_policy, "WildcardsAllowed")),
    ]);
    for (key, selector) in [
        ("NAMESPACE_LABELS", &controller.spec.namespace_selector),
        ("ROUTE_LABELS", &controller.spec.route_selector),
    ] {
        if let Some(selector) = selector {
            told.insert(key, in_words(selector));
        }
    }
    told
}

fn who_reaches_it(
    strategy: &EndpointPublishingStrategy,
    settings: &RouterSettings,
    present: &Present<'_>,
) -> Told {
    let mut told =
        Told::from([("ROUTER_USE_PROXY_PROTOCOL", is_behind_proxy(strategy, settings, present).to_string())]);
    let mode = match settings.addresses {
        AddressMode::V4 => None,
        AddressMode::V6 => Some("v6"),
        AddressMode::Both => Some("v4v6"),
    };
    told.extend(mode.map(|mode| ("ROUTER_IP_V4_V6_MODE", mode.to_owned())));
    told
}

/// Whether what stands in front of the routers tells them by the PROXY protocol who a client is.
fn is_behind_proxy(
    strategy: &EndpointPublishingStrategy,
    settings: &RouterSettings,
    present: &Present<'_>,
) -> bool {
    if let Some(load_balancer) = &strategy.load_balancer {
        return speaks_proxy(load_balancer, present.service, settings.platform);
    }
    let host_network = strategy.host_network.as_ref().and_then(|found| found.protocol.as_deref());
    let others = [&strategy.node_port, &strategy.private].into_iter().flatten();
    let mut protocols = others.filter_map(|found| found.protocol.as_deref()).chain(host_network);
    protocols.any(|protocol| protocol == "PROXY")
}

/// How many threads a router has, unless somebody says otherwise.
const THREADS: i64 = 4;

/// How long changes are collected: usually, at the least and at the most.
const RELOAD: (Duration, Duration, Duration) =
    (Duration::from_secs(5), Duration::from_secs(1), Duration::from_secs(120));

/// Times, by the field of the spec.
const TIMES: [(&str, &str); 9] = [
    ("clientTimeout", "ROUTER_DEFAULT_CLIENT_TIMEOUT"),
    ("clientFinTimeout", "ROUTER_CLIENT_FIN_TIMEOUT"),
    ("serverTimeout", "ROUTER_DEFAULT_SERVER_TIMEOUT"),
    ("serverFinTimeout", "ROUTER_DEFAULT_SERVER_FIN_TIMEOUT"),
    ("tunnelTimeout", "ROUTER_DEFAULT_TUNNEL_TIMEOUT"),
    ("connectTimeout", "ROUTER_DEFAULT_CONNECT_TIMEOUT"),
    ("tlsInspectDelay", "ROUTER_INSPECT_DELAY"),
    ("httpKeepAliveTimeout", "ROUTER_SLOWLORIS_HTTP_KEEPALIVE"),
    ("healthCheckInterval", "ROUTER_BACKEND_CHECK_INTERVAL"),
];

fn tuning(tuning: &Tuning) -> Told {
    let (usual, least, most) = RELOAD;
    let reload = tuning.reload_interval.unwrap_or(usual).clamp(least, most);
    let mut told = Told::from([
        ("ROUTER_THREADS", tuning.thread_count.unwrap_or(THREADS).to_string()),
        ("RELOAD_INTERVAL", time(reload)),
    ]);
    for (field, name) in TIMES {
        told.extend(tuning.times.get(field).map(|found| (name, time(*found))));
    }
    let numbers = [
        ("ROUTER_BUF_SIZE", tuning.header_buffer_bytes),
        ("ROUTER_MAX_REWRITE_SIZE", tuning.header_buffer_max_rewrite_bytes),
    ];
    told.extend(numbers.into_iter().filter_map(|(name, number)| Some((name, number?.to_string()))));
    let connections =
        tuning.max_connections.map(|most| if most < 0 { "auto".into() } else { most.to_string() });
    told.extend(connections.map(|most| ("ROUTER_MAX_CONNECTIONS", most)));
    if tuning.is_dynamic {
        told.insert("ROUTER_HAPROXY_CONFIG_MANAGER", "true".to_owned());
        told.insert("ROUTER_BLUEPRINT_ROUTE_POOL_SIZE", "0".to_owned());
        told.insert("ROUTER_MAX_DYNAMIC_SERVERS", "1".to_owned());
    }
    told
}

/// What a request is found again by, unless somebody says otherwise: who asked whom, when, and which process answered.
const UNIQUE_ID: &str = "%{+X}o %ci:%cp_%fi:%fp_%Ts_%rt:%pid";

fn headers(headers: &Headers) -> Told {
    let forwarded = match headers.forwarded.as_deref() {
        Some("Replace") => "replace",
        Some("IfNone") => "if-none",
        Some("Never") => "never",
        _ => "append",
    };
    let mut told = Told::from([("ROUTER_SET_FORWARDED_HEADERS", forwarded.to_owned())]);
    if let Some((name, format)) = &headers.unique_id {
        told.insert("ROUTER_UNIQUE_ID_HEADER_NAME", name.clone());
        told.insert("ROUTER_UNIQUE_ID_FORMAT", quoted(format.as_deref().unwrap_or(UNIQUE_ID)));
    }
    if !headers.case_adjustments.is_empty() {
        told.insert("ROUTER_H1_CASE_ADJUST", headers.case_adjustments.join(","));
    }
    for (name, actions) in [
        ("ROUTER_HTTP_REQUEST_HEADERS", &headers.request),
        ("ROUTER_HTTP_RESPONSE_HEADERS", &headers.response),
    ] {
        if !actions.is_empty() {
            told.insert(name, actions.iter().map(action).collect::<Vec<_>>().join(","));
        }
    }
    told
}

fn action(action: &HeaderAction) -> String {
    let name = escaped(&action.name);
    match &action.value {
        Some(value) => format!("{name}:{}:Set", escaped(value)),
        None => format!("{name}:Delete"),
    }
}

fn http(options: &Options, settings: &RouterSettings) -> Told {
    let mut told = Told::new();
    // HTTP/2 lets connections be shared between hosts of one certificate, so that it is only spoken where that is wanted.
    if !options.http2.unwrap_or(settings.http2) {
        told.insert("ROUTER_DISABLE_HTTP2", "true".to_owned());
    }
    if !options.compressed.is_empty() {
        told.insert("ROUTER_ENABLE_COMPRESSION", "true".to_owned());
        let types: Vec<String> = options.compressed.iter().map(|type_| as_word(type_)).collect();
        told.insert("ROUTER_COMPRESSION_MIME", types.join(" "));
    }
    for (name, is) in [
        ("ROUTER_HTTP_IGNORE_PROBES", options.ignores_empty_requests),
        ("ROUTER_IDLE_CLOSE_ON_RESPONSE", options.answers_idle_connections),
        ("ROUTER_ABORT_ON_CLOSE", options.aborts_for_closed_clients),
    ] {
        told.extend(is.then(|| (name, "true".to_owned())));
    }
    told.extend(options.hard_stop_after.map(|after| ("ROUTER_HARD_STOP_AFTER", time(after))));
    told
}

fn overrides(overrides: &Overrides) -> Told {
    let algorithm = overrides.algorithm.clone().unwrap_or_else(|| "random".to_owned());
    let mut told = Told::from([
        ("ROUTER_LOAD_BALANCE_ALGORITHM", algorithm),
        ("ROUTER_TCP_BALANCE_SCHEME", "source".to_owned()),
    ]);
    for (name, is, word) in [
        ("ROUTER_HAPROXY_CONTSTATS", overrides.continuous_statistics, "true"),
        ("ROUTER_HAPROXY_CONFIG_MANAGER", overrides.is_dynamic, "true"),
        ("ROUTER_MUTUAL_TLS_HEADER_FILTER", overrides.keeps_certificate_headers, "false"),
    ] {
        told.extend(is.then(|| (name, word.to_owned())));
    }
    told.extend(overrides.dynamic_servers.map(|most| ("ROUTER_MAX_DYNAMIC_SERVERS", most.to_string())));
    told
}

/// A duration in HAProxy's words: of the largest unit that needs no fraction, and not longer than HAProxy takes.
pub(super) fn time(time: Duration) -> String {
    const MOST: Duration = Duration::from_millis(2_147_483_647);
    let time = time.min(MOST);
    let micros = time.as_micros();
    for (unit, name) in [(3_600_000_000, "h"), (60_000_000, "m"), (1_000_000, "s"), (1000, "ms"), (1, "us")] {
        if micros > 0 && micros.is_multiple_of(unit) {
            return format!("{}{name}", micros / unit);
        }
    }
    // Less than what HAProxy counts is still not nothing.
    if time.is_zero() { "0s".to_owned() } else { "1us".to_owned() }
}

/// Text in double quotes, as HAProxy's file has it.
pub(super) fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

/// Text that stands for itself in a list of HAProxy's file.
fn as_word(text: &str) -> String {
    let text = text.replace('\'', "\\'");
    if text.contains([' ', '\\', '"']) { quoted(&text) } else { text }
}

/// Text as in the query of a URL.
fn escaped(text: &str) -> String {
    let mut escaped = String::new();
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => escaped.push(byte.into()),
            b' ' => escaped.push('+'),
            other => escaped.extend(format!("%{other:02X}").chars()),
        }
    }
    escaped
}

/// A selector as text, as the API has it in queries: in the order of keys, so that the same is always written the same.
fn in_words(selector: &LabelSelector) -> String {
    let equal = selector.match_labels.iter().flatten().map(|(key, value)| (key, format!("{key}={value}")));
    let others = selector.match_expressions.iter().flatten().map(|wanted| {
        let mut values = wanted.values.clone().unwrap_or_default();
        values.sort();
        let (key, values) = (&wanted.key, values.join(","));
        let word = match wanted.operator.as_str() {
            "In" => format!("{key} in ({values})"),
            "NotIn" => format!("{key} notin ({values})"),
            "DoesNotExist" => format!("!{key}"),
            _ => key.clone(),
        };
        (key, word)
    });
    let mut all: Vec<_> = equal.chain(others).collect();
    all.sort();
    all.into_iter().map(|(_, word)| word).collect::<Vec<_>>().join(",")
}
