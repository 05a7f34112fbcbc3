//! What is said about the routers themselves, rather than about who reaches them.
//!
//! It is read when it is needed: an object with something in it that cannot be read is still an object.

mod http;
mod logging;
mod reader;
mod tls;
mod tuning;

#[cfg(test)]
mod tests;

use std::cell::RefCell;
use std::time::Duration;

use serde_json::Value;

use super::IngressController;
pub use http::{HeaderAction, Headers};
pub use logging::{AccessLog, Captured, CapturedCookie, LogDestination};
use reader::{Notes, Reader};
pub use tls::{ClientTls, TlsProfile, TlsVersion, is_tls13};
pub use tuning::Tuning;

/// The annotation by which HTTP/2 is spoken, or not.
const HTTP2: &str = "ingress.operator.openshift.io/default-enable-http2";

/// The annotation by which a router that goes cuts connections after a time.
const HARD_STOP: &str = "ingress.operator.openshift.io/hard-stop-after";

/// What is said about the routers themselves.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// How they use what they have.
    pub tuning: Tuning,
    /// What they write down about requests.
    pub access_log: Option<AccessLog>,
    /// Who has to show them a certificate.
    pub client_tls: Option<ClientTls>,
    /// Which protocols and ciphers they speak, if it is not what all do.
    pub tls_profile: Option<TlsProfile>,
    /// What they do with headers.
    pub headers: Headers,
    /// The types of content that they compress.
    pub compressed: Vec<String>,
    /// The `ConfigMap` with pages for errors.
    pub error_pages: Option<String>,
    /// Whether connections on which nothing was asked for are closed without a word.
    pub ignores_empty_requests: bool,
    /// Whether idle connections are answered once more when a router goes.
    pub answers_idle_connections: bool,
    /// Whether what nobody waits for any more is ended.
    pub aborts_for_closed_clients: bool,
    /// Whether HTTP/2 is spoken, if it is not what all do.
    pub http2: Option<bool>,
    /// After which time a router that goes cuts connections.
    pub hard_stop_after: Option<Duration>,
    /// What nobody should need.
    pub overrides: Overrides,
}

/// What is tried out, and supported by nobody.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Overrides {
    /// How a server is chosen.
    pub algorithm: Option<String>,
    /// Whether statistics are kept up to date all the time.
    pub continuous_statistics: bool,
    /// Whether changes are carried out without a new process.
    pub is_dynamic: bool,
    /// How many servers may come without one.
    pub dynamic_servers: Option<i64>,
    /// Whether headers by which a client could lie about its certificate go through.
    pub keeps_certificate_headers: bool,
    /// Whether nodes without a router send to others.
    pub falls_back: Option<bool>,
}

impl Options {
    /// What an `IngressController` says, as far as it can be read. What cannot is among its refusals.
    pub fn of(controller: &IngressController) -> Options {
        read(controller).0
    }
}

/// What cannot be carried out: a sentence for each place.
pub(super) fn wrong(controller: &IngressController) -> Vec<String> {
    read(controller).1.wrong
}

/// What is not carried out, while everything else is: a sentence for each place.
pub(super) fn ignored(controller: &IngressController) -> Vec<String> {
    read(controller).1.ignored
}

/// Every field of the spec that is read here.
const FIELDS: [&str; 11] = [
    "clientTLS",
    "closedClientConnectionPolicy",
    "httpCompression",
    "httpEmptyRequestsPolicy",
    "httpErrorCodePages",
    "httpHeaders",
    "idleConnectionTerminationPolicy",
    "logging",
    "tlsSecurityProfile",
    "tuningOptions",
    "unsupportedConfigOverrides",
];

fn read(controller: &IngressController) -> (Options, Notes) {
    let notes = RefCell::default();
    let rest = &controller.spec.rest;
    let at = |key: &str| Reader::new(&format!("spec.{key}"), rest.get(key), &notes);
    let unknown = rest.iter().filter(|(key, value)| !FIELDS.contains(&key.as_str()) && !value.is_null());
    for (key, _) in unknown {
        at(key).ignore("it is not known here, and nothing comes of it");
    }
    let annotation = |key: &str| -> Option<Value> {
        controller.metadata.annotations.as_ref()?.get(key).map(|text| Value::String(text.clone()))
    };
    let (http2, hard_stop) = (annotation(HTTP2), annotation(HARD_STOP));
    let pages = at("httpErrorCodePages");
    pages.has_keys(&["name"]);
    let is = |key: &str, words: [&str; 2]| at(key).word(&words) == Some(words[0]);
    let options = Options {
        tuning: tuning::read(&at("tuningOptions")),
        access_log: logging::read(&at("logging")),
        client_tls: tls::client(&at("clientTLS")),
        tls_profile: tls::profile(&at("tlsSecurityProfile")),
        headers: http::headers(&at("httpHeaders")),
        compressed: http::compressed(&at("httpCompression")),
        error_pages: pages.at("name").text().map(str::to_owned),
        ignores_empty_requests: is("httpEmptyRequestsPolicy", ["Ignore", "Respond"]),
        answers_idle_connections: is("idleConnectionTerminationPolicy", ["Deferred", "Immediate"]),
        aborts_for_closed_clients: is("closedClientConnectionPolicy", ["Abort", "Continue"]),
        http2: Reader::new(&format!("metadata.annotations[{HTTP2}]"), http2.as_ref(), &notes).flag(),
        hard_stop_after: Reader::new(
            &format!("metadata.annotations[{HARD_STOP}]"),
            hard_stop.as_ref(),
            &notes,
        )
        .duration(),
        overrides: overrides(&at("unsupportedConfigOverrides")),
    };
    (options, notes.into_inner())
}

fn overrides(place: &Reader<'_>) -> Overrides {
    let known = [
        "loadBalancingAlgorithm",
        "contStats",
        "dynamicConfigManager",
        "maxDynamicServers",
        "mutualTLSHeaderFilter",
        "localWithFallback",
    ];
    if !place.has_keys(&known) {
        return Overrides::default();
    }
    let servers = place.at("maxDynamicServers").text().map(|text| (text, text.parse()));
    if let Some((_, Err(_))) = servers {
        place.at("maxDynamicServers").refuse("is not a whole number");
    }
    Overrides {
        algorithm: place
            .at("loadBalancingAlgorithm")
            .word(&["random", "leastconn", "roundrobin", "source"])
            .map(str::to_owned),
        continuous_statistics: place.at("contStats").flag() == Some(true),
        is_dynamic: place.at("dynamicConfigManager").flag() == Some(true),
        dynamic_servers: servers.and_then(|(_, number)| number.ok()),
        keeps_certificate_headers: place.at("mutualTLSHeaderFilter").flag() == Some(false),
        falls_back: place.at("localWithFallback").flag(),
    }
}
