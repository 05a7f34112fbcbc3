//! A cluster of one node, and the router that it has.

use std::fmt;
use std::path::PathBuf;

use portcullis_kube_api::host::HOST_CLASS;
use serde::de::{Unexpected, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use super::Addresses;

/// Who looks after the router of a single node.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct SingleNode {
    /// Whether we do. Only then the section `ingress` counts.
    pub(crate) enabled: bool,
    /// `MicroShift`'s configuration, which holds where this one says nothing.
    pub(crate) microshift: Option<PathBuf>,
    /// The image of the router.
    pub(crate) image: Option<String>,
    /// The namespace that it runs in.
    pub(crate) namespace: String,
    /// Routes without a host get one below `apps.` and this.
    pub(crate) base_domain: Option<String>,
    /// The class of its load balancer Service; none, if it is empty.
    pub(crate) load_balancer_class: String,
    /// The addresses that pods and Services have.
    pub(crate) addresses: Option<Addresses>,
    /// Whether the cluster has what OpenShift has.
    pub(crate) openshift: Option<bool>,
    /// Whether the router that `MicroShift` made is replaced.
    pub(crate) take_over: bool,
}

impl Default for SingleNode {
    fn default() -> Self {
        SingleNode {
            enabled: false,
            microshift: None,
            image: None,
            namespace: "openshift-ingress".to_owned(),
            base_domain: None,
            load_balancer_class: HOST_CLASS.to_owned(),
            addresses: None,
            openshift: None,
            take_over: false,
        }
    }
}

/// The router of a single node. The keys are those of `MicroShift`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Ingress {
    pub(crate) status: IngressStatus,
    pub(crate) ports: Ports,
    /// Names of interfaces and addresses; those of the host, if there are none.
    pub(crate) listen_address: Vec<String>,
    pub(crate) route_admission_policy: RouteAdmissionPolicy,
    pub(crate) tuning_options: TuningOptions,
    #[serde(rename = "defaultHTTPVersion")]
    pub(crate) default_http_version: HttpVersion,
    pub(crate) forwarded_header_policy: ForwardedHeaderPolicy,
    pub(crate) http_compression: HttpCompression,
    pub(crate) http_empty_requests_policy: EmptyRequests,
    pub(crate) log_empty_requests: LogEmptyRequests,
    /// The Secret with the certificate for routes that bring none.
    pub(crate) certificate_secret: Option<String>,
    #[serde(rename = "clientTLS")]
    pub(crate) client_tls: ClientTls,
    pub(crate) tls_security_profile: TlsSecurityProfile,
    pub(crate) access_logging: AccessLogging,
    /// The `ConfigMap` with pages for errors.
    pub(crate) http_error_code_pages: Named,
}

/// Whether there is a router.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum IngressStatus {
    #[default]
    Managed,
    /// Nothing of it, and nothing else of the section counts.
    Removed,
}

/// Where clients find the router.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Ports {
    pub(crate) http: Port,
    pub(crate) https: Port,
}

impl Default for Ports {
    fn default() -> Self {
        Ports { http: Port(80), https: Port(443) }
    }
}

/// A port that somebody can connect to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub(crate) struct Port(pub(crate) u16);

impl<'de> Deserialize<'de> for Port {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        number(deserializer, "a port from 1 to 65535", |number| {
            u16::try_from(number).ok().filter(|port| *port != 0).map(Port)
        })
    }
}

/// The version of HTTP that clients are offered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub(crate) struct HttpVersion(pub(crate) u8);

impl Default for HttpVersion {
    fn default() -> Self {
        HttpVersion(1)
    }
}

impl<'de> Deserialize<'de> for HttpVersion {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        number(deserializer, "1 or 2", |number| match number {
            1 => Some(HttpVersion(1)),
            2 => Some(HttpVersion(2)),
            _ => None,
        })
    }
}

/// Decodes a whole number that has to be such; `expected` completes "expected …" in the error.
fn number<'de, D: Deserializer<'de>, T>(
    deserializer: D,
    expected: &'static str,
    read: fn(i64) -> Option<T>,
) -> Result<T, D::Error> {
    struct Number<T> {
        expected: &'static str,
        read: fn(i64) -> Option<T>,
    }

    impl<T> Visitor<'_> for Number<T> {
        type Value = T;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(self.expected)
        }

        fn visit_i64<E: serde::de::Error>(self, number: i64) -> Result<T, E> {
            (self.read)(number).ok_or_else(|| E::invalid_value(Unexpected::Signed(number), &self))
        }

        fn visit_u64<E: serde::de::Error>(self, number: u64) -> Result<T, E> {
            let found = i64::try_from(number).ok().and_then(self.read);
            found.ok_or_else(|| E::invalid_value(Unexpected::Unsigned(number), &self))
        }

        fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<T, E> {
            if text.parse::<i64>().is_err() {
                return Err(E::invalid_value(Unexpected::Str(text), &self));
            }
            Err(E::custom(format!("expected {}, found `{text}`. Remove the quotes", self.expected)))
        }
    }

    // Whatever else stands there is told as what it is.
    deserializer.deserialize_any(Number { expected, read })
}

/// Which routes are taken.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct RouteAdmissionPolicy {
    pub(crate) namespace_ownership: NamespaceOwnership,
    pub(crate) wildcard_policy: WildcardPolicy,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum NamespaceOwnership {
    Strict,
    /// Several namespaces may share a host name.
    #[default]
    InterNamespaceAllowed,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[allow(clippy::enum_variant_names, reason = "they are the words that people write")]
pub(crate) enum WildcardPolicy {
    WildcardsAllowed,
    #[default]
    WildcardsDisallowed,
}

/// How the router uses what it has. What is not given is as the router has it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct TuningOptions {
    pub(crate) header_buffer_bytes: Option<i64>,
    pub(crate) header_buffer_max_rewrite_bytes: Option<i64>,
    pub(crate) thread_count: Option<i64>,
    pub(crate) client_timeout: Option<String>,
    pub(crate) client_fin_timeout: Option<String>,
    pub(crate) server_timeout: Option<String>,
    pub(crate) server_fin_timeout: Option<String>,
    pub(crate) tunnel_timeout: Option<String>,
    pub(crate) tls_inspect_delay: Option<String>,
    pub(crate) health_check_interval: Option<String>,
    pub(crate) max_connections: Option<i64>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum ForwardedHeaderPolicy {
    #[default]
    Append,
    Replace,
    IfNone,
    Never,
}

/// The types of content that are compressed.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct HttpCompression {
    pub(crate) mime_types: Vec<String>,
}

/// What comes of a connection on which nothing was asked for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum EmptyRequests {
    #[default]
    Respond,
    Ignore,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum LogEmptyRequests {
    #[default]
    Log,
    Ignore,
}

/// Who has to show a certificate.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct ClientTls {
    pub(crate) client_certificate_policy: Option<CertificatePolicy>,
    /// The `ConfigMap` with the authorities that certificates have to come from.
    #[serde(rename = "clientCA")]
    pub(crate) client_ca: Named,
    pub(crate) allowed_subject_patterns: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum CertificatePolicy {
    Required,
    Optional,
}

/// Something by its name.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Named {
    pub(crate) name: Option<String>,
}

/// Which protocols and ciphers are spoken.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct TlsSecurityProfile {
    #[serde(rename = "type")]
    pub(crate) type_: TlsProfileType,
    /// These three say nothing, and people write them all the same.
    pub(crate) old: Nothing,
    pub(crate) intermediate: Nothing,
    pub(crate) modern: Nothing,
    pub(crate) custom: CustomTlsProfile,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum TlsProfileType {
    Old,
    #[default]
    Intermediate,
    Modern,
    Custom,
}

/// A map without keys.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Nothing {}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct CustomTlsProfile {
    pub(crate) ciphers: Vec<String>,
    #[serde(rename = "minTLSVersion")]
    pub(crate) min_tls_version: Option<String>,
}

/// What is written down about requests.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct AccessLogging {
    pub(crate) status: LoggingStatus,
    pub(crate) destination: LogDestination,
    pub(crate) http_log_format: Option<String>,
    pub(crate) http_capture_headers: CaptureHeaders,
    pub(crate) http_capture_cookies: Vec<CaptureCookie>,
}

impl AccessLogging {
    pub(crate) fn is_enabled(&self) -> bool {
        self.status == LoggingStatus::Enabled
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum LoggingStatus {
    Enabled,
    #[default]
    Disabled,
}

/// Where it goes.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct LogDestination {
    #[serde(rename = "type")]
    pub(crate) type_: LogDestinationType,
    pub(crate) container: ContainerLog,
    pub(crate) syslog: SyslogServer,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum LogDestinationType {
    #[default]
    Container,
    Syslog,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct ContainerLog {
    pub(crate) max_length: Option<i64>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct SyslogServer {
    pub(crate) address: Option<String>,
    pub(crate) port: Option<i64>,
    pub(crate) facility: Option<String>,
    pub(crate) max_length: Option<i64>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct CaptureHeaders {
    pub(crate) request: Vec<CaptureHeader>,
    pub(crate) response: Vec<CaptureHeader>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct CaptureHeader {
    pub(crate) name: Option<String>,
    pub(crate) max_length: Option<i64>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct CaptureCookie {
    pub(crate) match_type: Option<String>,
    pub(crate) name: Option<String>,
    pub(crate) name_prefix: Option<String>,
    pub(crate) max_length: Option<i64>,
}

impl Ingress {
    /// Every key that there is, with one entry in each list of maps.
    pub(super) fn keys() -> Value {
        let mut all = Ingress::default();
        let logging = &mut all.access_logging;
        logging.http_capture_headers.request.push(CaptureHeader::default());
        logging.http_capture_headers.response.push(CaptureHeader::default());
        logging.http_capture_cookies.push(CaptureCookie::default());
        // What consists of plain values is always written out.
        serde_json::to_value(all).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests;
