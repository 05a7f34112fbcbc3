//! The files that a router reads.

use portcullis_kube_api::ingress::IngressController;
use portcullis_kube_api::ingress::options::Options;
use serde_json::{Value, json};

use super::copies::{AUTHORITIES, ERROR_PAGES, client_authorities_name, error_pages_name};
use super::environment::Told;
use super::logging::{config_name, is_beside};
use super::{Present, RouterSettings};

/// The names and places of what a router shares with the container that writes its log.
pub(super) const LOG_CONFIG: (&str, &str) = ("rsyslog-config", "/etc/rsyslog");
pub(super) const LOG_SOCKET: (&str, &str) = ("rsyslog-socket", "/var/lib/rsyslog");

const CERTIFICATE: (&str, &str) = ("default-certificate", "/etc/pki/tls/private");
const CLIENT_CA: (&str, &str) = ("client-ca", "/etc/pki/tls/client-ca");
const PAGES: (&str, &str) = ("error-pages", "/var/lib/haproxy/conf/error_code_pages");
const SERVICE_CA: (&str, &str) = ("service-ca-bundle", "/var/run/configmaps/service-ca");
const METRICS: (&str, &str) = ("metrics-certs", "/etc/pki/tls/metrics-certs");

/// The `ConfigMap` in which OpenShift has the authority of Services' own certificates, and its key.
pub(super) const SERVICE_CA_NAME: &str = "service-ca-bundle";
const SERVICE_CA_KEY: &str = "service-ca.crt";

/// A volume, and what a router is told of it.
struct Volume {
    at: (&'static str, &'static str),
    source: Value,
    is_written: bool,
    told: Vec<(&'static str, String)>,
}

impl Volume {
    fn new(at: (&'static str, &'static str), source: Value, told: &[(&'static str, &str)]) -> Self {
        let file = |file: &str| if file.is_empty() { at.1.to_owned() } else { format!("{}/{file}", at.1) };
        let told = told.iter().map(|(name, of)| (*name, file(of))).collect();
        Volume { at, source, is_written: false, told }
    }
}

/// The Secret with the metrics' own certificate, which OpenShift makes.
pub(super) fn metrics_certificate(controller: &IngressController) -> String {
    format!("router-metrics-certs-{}", controller.name())
}

/// The Secret with the certificate for routes that bring none: the one that is named, and otherwise the usual one if it is
/// there. A router that is told of one and finds none does not start, and without a word makes one itself.
pub fn certificate(controller: &IngressController, present: &Present<'_>) -> Option<String> {
    let named = named_certificate(controller);
    named.map(str::to_owned).or_else(|| present.certificate.then(|| usual_certificate(controller)))
}

/// The Secret with the certificate that an `IngressController` names.
pub fn named_certificate(controller: &IngressController) -> Option<&str> {
    let given = controller.spec.default_certificate.as_ref().map(|found| found.name.as_str());
    given.filter(|name| !name.is_empty())
}

/// The Secret whose certificate is used where none is named.
pub fn usual_certificate(controller: &IngressController) -> String {
    format!("router-certs-{}", controller.name())
}

fn all(
    controller: &IngressController,
    options: &Options,
    settings: &RouterSettings,
    present: &Present<'_>,
) -> Vec<Volume> {
    let mut all = Vec::new();
    let mut add = |at, source, told: &[(&'static str, &str)]| all.push(Volume::new(at, source, told));
    if let Some(name) = certificate(controller, present) {
        add(CERTIFICATE, json!({"secret": {"secretName": name}}), &[("DEFAULT_CERTIFICATE_DIR", "")]);
    }
    if options.client_tls.is_some() {
        let items = json!([{"key": AUTHORITIES, "path": AUTHORITIES}]);
        let source = json!({"configMap": {"name": client_authorities_name(controller), "items": items}});
        add(CLIENT_CA, source, &[("ROUTER_MUTUAL_TLS_AUTH_CA", AUTHORITIES)]);
    }
    if options.error_pages.is_some() {
        let items: Vec<Value> = ERROR_PAGES.iter().map(|page| json!({"key": page, "path": page})).collect();
        let source = json!({"configMap": {"name": error_pages_name(controller), "items": items}});
        let [unavailable, not_found] = ERROR_PAGES;
        add(PAGES, source, &[("ROUTER_ERRORFILE_503", unavailable), ("ROUTER_ERRORFILE_404", not_found)]);
    }
    if settings.openshift {
        let items = json!([{"key": SERVICE_CA_KEY, "path": SERVICE_CA_KEY}]);
        let source = json!({"configMap": {"name": SERVICE_CA_NAME, "items": items}});
        add(SERVICE_CA, source, &[("DEFAULT_DESTINATION_CA_PATH", SERVICE_CA_KEY)]);
        let told = [("ROUTER_METRICS_TLS_CERT_FILE", "tls.crt"), ("ROUTER_METRICS_TLS_KEY_FILE", "tls.key")];
        add(METRICS, json!({"secret": {"secretName": metrics_certificate(controller)}}), &told);
    }
    if is_beside(options) {
        let socket = Volume::new(LOG_SOCKET, json!({"emptyDir": {}}), &[]);
        all.push(Volume { is_written: true, ..socket });
    }
    all
}

/// What a router is told of its files.
pub(super) fn environment(
    controller: &IngressController,
    options: &Options,
    settings: &RouterSettings,
    present: &Present<'_>,
) -> Told {
    all(controller, options, settings, present).into_iter().flat_map(|volume| volume.told).collect()
}

/// Where they are in the router's container.
pub(super) fn mounts(
    controller: &IngressController,
    options: &Options,
    settings: &RouterSettings,
    present: &Present<'_>,
) -> Vec<Value> {
    let mount = |volume: Volume| {
        let mut mount = json!({"name": volume.at.0, "mountPath": volume.at.1});
        if !volume.is_written {
            mount["readOnly"] = json!(true);
        }
        mount
    };
    all(controller, options, settings, present).into_iter().map(mount).collect()
}

/// Where they come from.
pub(super) fn volumes(
    controller: &IngressController,
    options: &Options,
    settings: &RouterSettings,
    present: &Present<'_>,
) -> Vec<Value> {
    let named = |name: &str, mut source: Value| {
        source["name"] = json!(name);
        source
    };
    let all = all(controller, options, settings, present).into_iter();
    let mut volumes: Vec<Value> = all.map(|volume| named(volume.at.0, volume.source)).collect();
    if is_beside(options) {
        volumes.push(named(LOG_CONFIG.0, json!({"configMap": {"name": config_name(controller)}})));
    }
    volumes
}
