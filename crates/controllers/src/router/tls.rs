//! Which protocols and ciphers routers speak, and who has to show them a certificate.

use portcullis_kube_api::ingress::options::{Options, TlsProfile, TlsVersion, is_tls13};

use super::RouterSettings;
use super::environment::Told;

/// Ciphers that are fine, in the order in which they are preferred.
const NEW: [&str; 3] = ["TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"];

/// What clients need that do not speak TLS 1.3.
const USUAL: [&str; 6] = [
    "ECDHE-ECDSA-AES128-GCM-SHA256",
    "ECDHE-RSA-AES128-GCM-SHA256",
    "ECDHE-ECDSA-AES256-GCM-SHA384",
    "ECDHE-RSA-AES256-GCM-SHA384",
    "ECDHE-ECDSA-CHACHA20-POLY1305",
    "ECDHE-RSA-CHACHA20-POLY1305",
];

/// What very old clients need.
const OLD: [&str; 15] = [
    "ECDHE-ECDSA-AES128-SHA256",
    "ECDHE-RSA-AES128-SHA256",
    "ECDHE-ECDSA-AES128-SHA",
    "ECDHE-RSA-AES128-SHA",
    "ECDHE-ECDSA-AES256-SHA384",
    "ECDHE-RSA-AES256-SHA384",
    "ECDHE-ECDSA-AES256-SHA",
    "ECDHE-RSA-AES256-SHA",
    "AES128-GCM-SHA256",
    "AES256-GCM-SHA384",
    "AES128-SHA256",
    "AES256-SHA256",
    "AES128-SHA",
    "AES256-SHA",
    "DES-CBC3-SHA",
];

pub(super) fn environment(options: &Options, settings: &RouterSettings) -> Told {
    let profile = options.tls_profile.as_ref().unwrap_or(&settings.tls_profile);
    let (ciphers, oldest, groups) = in_full(profile);
    let (new, before): (Vec<_>, Vec<_>) = ciphers.into_iter().partition(|cipher| is_tls13(cipher));
    let mut told = Told::from([
        ("ROUTER_CIPHERS", before.join(":")),
        (
            "SSL_MIN_VERSION",
            match oldest {
                // HAProxy has no older one any more.
                TlsVersion::V10 | TlsVersion::V11 => "TLSv1.1",
                TlsVersion::V12 => "TLSv1.2",
                TlsVersion::V13 => "TLSv1.3",
            }
            .to_owned(),
        ),
    ]);
    // What is said empty is none, and what is not said the router's own.
    told.retain(|_, value| !value.is_empty());
    told.extend((!new.is_empty()).then(|| ("ROUTER_CIPHERSUITES", new.join(":"))));
    told.extend((!groups.is_empty()).then(|| ("ROUTER_CURVES", groups.join(":"))));
    if let Some(client) = &options.client_tls {
        let word = if client.is_required { "required" } else { "optional" };
        told.insert("ROUTER_MUTUAL_TLS_AUTH", word.to_owned());
        if !client.subject_patterns.is_empty() {
            told.insert(
                "ROUTER_MUTUAL_TLS_AUTH_FILTER",
                format!("(?:{})", client.subject_patterns.join("|")),
            );
        }
    }
    told
}

fn in_full(profile: &TlsProfile) -> (Vec<String>, TlsVersion, Vec<String>) {
    let all = |lists: &[&[&str]]| lists.concat().into_iter().map(str::to_owned).collect();
    match profile {
        TlsProfile::Modern => (all(&[&NEW]), TlsVersion::V13, Vec::new()),
        TlsProfile::Intermediate => (all(&[&NEW, &USUAL]), TlsVersion::V12, Vec::new()),
        TlsProfile::Old => (all(&[&NEW, &USUAL, &OLD]), TlsVersion::V10, Vec::new()),
        TlsProfile::Custom { ciphers, oldest, groups } => (ciphers.clone(), *oldest, groups.clone()),
    }
}
