//! What is written down about requests.

use std::net::IpAddr;

use k8s_openapi::api::core::v1::ConfigMap;
use portcullis_kube_api::ingress::options::{AccessLog, Captured, LogDestination, Options};
use portcullis_kube_api::ingress::{IngressController, OWNING_LABEL};
use serde_json::{Value, json};

use super::environment::{Told, quoted};
use super::volumes::{LOG_CONFIG, LOG_SOCKET};
use super::{RouterSettings, object};

/// Where a router and the container beside it meet.
const SOCKET: &str = "/var/lib/rsyslog/rsyslog.sock";

/// What the container beside a router does: what comes by the socket goes to its own log.
const RSYSLOG: &str = "\
global(maxMessageSize=\"10k\")
module(load=\"imuxsock\" SysSock.Name=\"/var/lib/rsyslog/rsyslog.sock\")
module(load=\"omstdout\")
*.* :omstdout:
";

/// Whether a container beside the router writes its log.
pub(super) fn is_beside(options: &Options) -> bool {
    options.access_log.as_ref().is_some_and(|log| log.to == LogDestination::Container)
}

pub(super) fn environment(log: &AccessLog) -> Told {
    let mut told = Told::from([("ROUTER_LOG_LEVEL", "info".to_owned())]);
    match &log.to {
        LogDestination::Container => drop(told.insert("ROUTER_SYSLOG_ADDRESS", SOCKET.to_owned())),
        LogDestination::Syslog { address, port, facility } => {
            let to = match address {
                IpAddr::V4(address) => format!("{address}:{port}"),
                IpAddr::V6(address) => format!("[{address}]:{port}"),
            };
            told.insert("ROUTER_SYSLOG_ADDRESS", to);
            told.extend(facility.clone().map(|facility| ("ROUTER_LOG_FACILITY", facility)));
        }
    }
    told.extend(log.longest.map(|longest| ("ROUTER_LOG_MAX_LENGTH", longest.to_string())));
    told.extend(log.format.as_deref().map(|format| ("ROUTER_SYSLOG_FORMAT", quoted(format))));
    for (name, captured) in [
        ("ROUTER_CAPTURE_HTTP_REQUEST_HEADERS", &log.request_headers),
        ("ROUTER_CAPTURE_HTTP_RESPONSE_HEADERS", &log.response_headers),
    ] {
        let each = captured.iter().map(|Captured { name, longest }| format!("{name}:{longest}"));
        let each = each.collect::<Vec<_>>().join(",");
        told.extend((!each.is_empty()).then_some((name, each)));
    }
    told.extend(log.cookie.as_ref().map(|cookie| {
        // HAProxy takes what a name starts with, unless that ends with the sign behind a name.
        let end = if cookie.is_prefix { "" } else { "=" };
        ("ROUTER_CAPTURE_HTTP_COOKIE", format!("{}{end}:{}", cookie.name, cookie.longest))
    }));
    told.extend(log.leaves_out_empty.then(|| ("ROUTER_DONT_LOG_NULL", "true".to_owned())));
    told
}

/// The container beside a router that writes its log.
pub(super) fn container(settings: &RouterSettings) -> Value {
    json!({
        "name": "logs",
        "image": settings.image,
        "imagePullPolicy": "IfNotPresent",
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "command": ["/sbin/rsyslogd", "-n", "-i", "/tmp/rsyslog.pid", "-f", "/etc/rsyslog/rsyslog.conf"],
        "resources": {"requests": {"cpu": "100m", "memory": "256Mi"}},
        "volumeMounts": [
            {"name": LOG_CONFIG.0, "mountPath": LOG_CONFIG.1, "readOnly": true},
            {"name": LOG_SOCKET.0, "mountPath": LOG_SOCKET.1},
        ],
    })
}

/// The name of what that container is told.
pub(super) fn config_name(controller: &IngressController) -> String {
    format!("rsyslog-conf-{}", controller.name())
}

/// What the container beside a router is told, if there is one.
pub fn log_config(controller: &IngressController, settings: &RouterSettings) -> Option<ConfigMap> {
    is_beside(&Options::of(controller)).then(|| {
        object(json!({
            "metadata": {
                "name": config_name(controller),
                "namespace": settings.namespace,
                "labels": {OWNING_LABEL: controller.name()},
            },
            "data": {"rsyslog.conf": RSYSLOG},
        }))
    })
}
