//! The router of a single node.

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use portcullis_controllers::Lease;
use portcullis_controllers::router::{AddressMode, RouterSettings};
use portcullis_controllers::single_node::{SingleNode, SingleNodeSettings, Step, Trouble};
use portcullis_host::interfaces::{self, Entry, Interfaces, NotHere, Selection};
use portcullis_kube_api::ingress::{IngressController, ignored, refusals};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tracing::{info, warn};

use super::host::selection;
use super::lead_again;
use super::services::{host, kubernetes};
use crate::config::{Addresses, Finding, Ingress, IngressStatus, Loaded, Mode, Unusable, Why, did_you_mean};
use crate::exit::{Exit, Failure};
use crate::telemetry::Readiness;

/// What is to be done, with all that can be wrong with it found before anything starts.
pub(crate) fn prepare(loaded: &Loaded) -> Result<SingleNodeSettings, Failure> {
    let mut wrong = Vec::new();
    let settings = settings(loaded, &mut wrong);
    let ingress = &loaded.config.ingress;
    if settings.is_wanted {
        if !ingress.listen_address.is_empty() {
            let here = interfaces::watch().map_err(|error| {
                Failure::new(Exit::Lacking, error.to_string()).state("Nothing was started.")
            })?;
            wrong.extend(not_here(loaded, &here.borrow()));
        }
        if loaded.config.single_node.image.as_deref().unwrap_or_default().is_empty() {
            let what = "it is not known which image the router runs: name one";
            wrong.push(loaded.finding("singleNode.image", what));
        }
    }
    if !wrong.is_empty() {
        wrong.sort_by(|one, other| one.at.cmp(&other.at));
        let unusable = Unusable { errors: wrong, warnings: Vec::new(), why: Why::Wrong };
        return Err(Failure::from(unusable).state("Nothing was started."));
    }
    if settings.is_wanted {
        for sentence in ignored(&settings.controller) {
            let finding = finding(loaded, &sentence);
            warn!(at = %finding.at, key = finding.path, "{}", finding.text());
        }
        if settings.at_node && !loaded.config.host.enabled {
            warn!(
                class = loaded.config.host.class,
                "nobody gives the router its addresses unless another process does: set host.enabled to true"
            );
        }
        if !settings.listen.is_empty() && !settings.at_node {
            warn!(
                class = loaded.config.single_node.load_balancer_class,
                "ingress.listenAddress is only kept to by Portcullis itself: set singleNode.loadBalancerClass to {}",
                loaded.config.host.class
            );
        }
    }
    Ok(settings)
}

/// Starts it; it ends when `stop` says so, or with a failure.
pub(crate) async fn start(
    loaded: &Loaded,
    settings: SingleNodeSettings,
    readiness: &Readiness,
    stop: &watch::Receiver<bool>,
    tasks: &mut JoinSet<Result<(), Failure>>,
) -> Result<(), Failure> {
    let check = readiness.register("single-node");
    let client = kubernetes(loaded).await?;
    let observe = settings.observe;
    let namespace = &loaded.config.services.lease.namespace;
    let lease = Lease::new(client.clone(), namespace, "portcullis-single-node", &host());
    if !settings.is_wanted {
        let from = loaded.origin(&["ingress", "status"]).map(ToString::to_string).unwrap_or_default();
        info!(from, "ingress.status is Removed: this node has no router");
    }
    // One that waits for its turn is as ready as one can be.
    check.ready();
    let (check, is_done) = (Arc::new(check), Arc::new(AtomicBool::new(false)));
    let working = move || {
        let (check, is_done) = (Arc::clone(&check), Arc::clone(&is_done));
        let node = SingleNode::new(client.clone(), settings.clone());
        async move {
            // It is done once in the life of a process, however often its turn comes: what people changed since stays.
            if is_done.load(Ordering::Relaxed) {
                return pending().await;
            }
            node.run(move |step| match step {
                Step::Done(_) => {
                    is_done.store(true, Ordering::Relaxed);
                    check.ready();
                }
                Step::Waits(Trouble::Away(why)) => check.not_ready(why),
                Step::Waits(Trouble::Problem(problem)) => {
                    check.not_ready(format!("{} {} {}", problem.what, problem.state, problem.remedy));
                }
            })
            .await;
        }
    };
    tasks.spawn(lead_again((!observe).then_some(lease), stop.clone(), working));
    Ok(())
}

/// What the configuration says; what cannot be carried out is added to `wrong`.
fn settings(loaded: &Loaded, wrong: &mut Vec<Finding>) -> SingleNodeSettings {
    let (given, ingress) = (&loaded.config.single_node, &loaded.config.ingress);
    let is_wanted = ingress.status == IngressStatus::Managed;
    let class = Some(given.load_balancer_class.clone()).filter(|class| !class.is_empty());
    let host = &loaded.config.host;
    let at_node = class.as_ref().map_or(host.without_class, |class| *class == host.class);
    let controller = controller(ingress, given.base_domain.as_deref());
    if is_wanted {
        wrong.extend(refusals(&controller).iter().map(|sentence| finding(loaded, sentence)));
        let tls = &ingress.client_tls;
        if tls.client_certificate_policy.is_none()
            && (tls.client_ca.name.is_some() || !tls.allowed_subject_patterns.is_empty())
        {
            let what = "it is not said whether clients have to show a certificate, so none would: write `Required` or `Optional`";
            wrong.push(loaded.finding("ingress.clientTLS.clientCertificatePolicy", what));
        }
        if ingress.ports.http == ingress.ports.https {
            let what = format!(
                "{} is also the port for HTTP, and a port is for one of them: choose another one",
                ingress.ports.https.0
            );
            wrong.push(loaded.finding("ingress.ports.https", what));
        }
        for (key, port) in [("http", ingress.ports.http), ("https", ingress.ports.https)] {
            if host.enabled && host.reserved_ports.contains(&port.0) {
                let what = format!(
                    "{} is kept for the node itself by host.reservedPorts: choose another one",
                    port.0
                );
                wrong.push(loaded.finding(&format!("ingress.ports.{key}"), what));
            }
        }
    }
    SingleNodeSettings {
        controller,
        router: RouterSettings {
            namespace: given.namespace.clone(),
            image: given.image.clone().unwrap_or_default(),
            load_balancer_class: class,
            single_replica: true,
            // As MicroShift has it: what is named is beside the router.
            config_namespace: given.namespace.clone(),
            addresses: given.addresses.map(addresses).unwrap_or_default(),
            http2: ingress.default_http_version.0 == 2,
            ..RouterSettings::default()
        },
        ports: [ingress.ports.http.0, ingress.ports.https.0],
        listen: listen(&ingress.listen_address),
        at_node,
        is_wanted,
        openshift: given.openshift,
        take_over: given.take_over,
        observe: loaded.config.mode == Mode::Observe,
    }
}

fn addresses(given: Addresses) -> AddressMode {
    match given {
        Addresses::Ipv4 => AddressMode::V4,
        Addresses::Ipv6 => AddressMode::V6,
        Addresses::Both => AddressMode::Both,
    }
}

/// Entries, each once, however it is written.
fn listen(given: &[String]) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    for entry in given.iter().map(|text| Entry::from(text.as_str()).to_string()) {
        if !all.contains(&entry) {
            all.push(entry);
        }
    }
    all
}

/// What of `ingress.listenAddress` is not on this host.
fn not_here(loaded: &Loaded, here: &Interfaces) -> Vec<Finding> {
    let families = match loaded.config.single_node.addresses {
        Some(Addresses::Ipv4) | None => [portcullis_core::Family::V4].into(),
        Some(Addresses::Ipv6) => [portcullis_core::Family::V6].into(),
        Some(Addresses::Both) => Selection::usual().families,
    };
    let selection = Selection { families, ..selection(&loaded.config.host) };
    let names: Vec<&str> = here.iter().filter(|one| !one.is_loopback).map(|one| one.name.as_str()).collect();
    let given = loaded.config.ingress.listen_address.iter().enumerate();
    let wrong = given.filter_map(|(index, text)| {
        let (_, wrong) = selection.check(&[Entry::from(text.as_str())], here).into_iter().next()?;
        let place = format!("ingress.listenAddress[{index}]");
        let finding = loaded.finding(&place, wrong.to_string().trim_end_matches('.'));
        let hint = match (&wrong, text.split_once('/')) {
            (NotHere::Interface { .. }, Some((address, _)))
                if address.parse::<std::net::IpAddr>().is_ok() =>
            {
                Some(format!("Write the address alone: `{address}`"))
            }
            (NotHere::Interface { name, .. }, _) => did_you_mean(name, &names),
            _ => None,
        };
        Some(match hint {
            Some(hint) => finding.with_hint(hint),
            None => finding,
        })
    });
    wrong.collect()
}

/// The options, as an `IngressController` has them.
fn controller(ingress: &Ingress, base_domain: Option<&str>) -> IngressController {
    let name = |name: &Option<String>| name.as_ref().map(|name| json!({"name": name}));
    let domain = base_domain.filter(|domain| !domain.is_empty()).map(|domain| format!("apps.{domain}"));
    let spec = json!({
        "domain": domain,
        "replicas": 1,
        "defaultCertificate": name(&ingress.certificate_secret),
        "routeAdmission": ingress.route_admission_policy,
        "tuningOptions": ingress.tuning_options,
        "httpHeaders": {"forwardedHeaderPolicy": ingress.forwarded_header_policy},
        "httpCompression": ingress.http_compression,
        "httpEmptyRequestsPolicy": ingress.http_empty_requests_policy,
        "clientTLS": ingress.client_tls.client_certificate_policy.map(|_| json!(ingress.client_tls)),
        "tlsSecurityProfile": ingress.tls_security_profile,
        "httpErrorCodePages": name(&ingress.http_error_code_pages.name),
        "logging": logging(ingress),
    });
    serde_json::from_value(json!({"metadata": {"name": "default"}, "spec": spec})).unwrap_or_default()
}

fn logging(ingress: &Ingress) -> Option<Value> {
    let log = &ingress.access_logging;
    if !log.is_enabled() {
        return None;
    }
    // Entries that say nothing are none.
    let some = |entries: &Value| -> Vec<Value> {
        let says = |value: &Value| !value.is_null() && *value != json!(0);
        let entries = entries.as_array().into_iter().flatten();
        entries.filter(|entry| entry.as_object().is_some_and(|all| all.values().any(says))).cloned().collect()
    };
    let headers = &log.http_capture_headers;
    Some(json!({"access": {
        "destination": log.destination,
        "httpLogFormat": log.http_log_format,
        "httpCaptureHeaders": {
            "request": some(&json!(headers.request)),
            "response": some(&json!(headers.response)),
        },
        "httpCaptureCookies": some(&json!(log.http_capture_cookies)),
        "logEmptyRequests": ingress.log_empty_requests,
    }}))
}

/// A sentence about an `IngressController`, as one about the configuration.
fn finding(loaded: &Loaded, sentence: &str) -> Finding {
    let (place, what) = sentence.split_once(": ").unwrap_or(("spec", sentence));
    loaded.finding(&in_our_words(place), what)
}

/// Where the configuration has what an `IngressController` has there.
fn in_our_words(place: &str) -> String {
    let place = place.strip_prefix("spec.").unwrap_or(place);
    for (theirs, ours) in [
        ("logging.access.logEmptyRequests", "ingress.logEmptyRequests"),
        ("logging.access", "ingress.accessLogging"),
        ("httpHeaders.forwardedHeaderPolicy", "ingress.forwardedHeaderPolicy"),
        ("domain", "singleNode.baseDomain"),
    ] {
        if let Some(rest) = place.strip_prefix(theirs) {
            return format!("{ours}{rest}");
        }
    }
    format!("ingress.{place}")
}

#[cfg(test)]
mod tests;
