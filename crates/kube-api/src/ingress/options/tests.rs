use super::*;
use crate::ingress::refusals;
use serde_json::json;

fn controller(spec: &Value) -> IngressController {
    serde_json::from_value(json!({"metadata": {"name": "shop"}, "spec": spec})).unwrap()
}

/// A field, what is there, and what is said of it.
fn check(cases: &[(&str, Value, &str)]) {
    for (key, value, expected) in cases {
        let found = refusals(&controller(&json!({*key: value})));
        assert!(found.iter().any(|sentence| sentence == expected), "{value}\n{found:#?}");
    }
}

#[test]
fn what_is_refused_about_tls() {
    let profile = |ciphers: Value, version: &str| json!({"type": "Custom", "custom": {"ciphers": ciphers, "minTLSVersion": version}});
    check(&[
        (
            "clientTLS",
            json!({"clientCertificatePolicy": "Requird"}),
            "spec.clientTLS.clientCertificatePolicy: `Requird` is not known; it is Required or Optional",
        ),
        (
            "clientTLS",
            json!({"clientCertificatePolicy": "Required"}),
            "spec.clientTLS.clientCA.name: it is missing; name one",
        ),
        (
            "clientTLS",
            json!({"clientCertificatePolicy": "Required", "clientCA": {"name": "ca"}, "allowedSubjectPatterns": ["a)|(b"]}),
            "spec.clientTLS.allowedSubjectPatterns[0]: `a)|(b` is not a regular expression",
        ),
        ("clientTLS", json!("Required"), "spec.clientTLS: `Required` is no object with fields"),
        (
            "tlsSecurityProfile",
            json!({"type": "Strict"}),
            "spec.tlsSecurityProfile.type: `Strict` is not known; it is Old or Intermediate or Modern or Custom",
        ),
        (
            "tlsSecurityProfile",
            json!({"type": "Custom"}),
            "spec.tlsSecurityProfile.custom.ciphers: there are none; name some, or choose another type of profile",
        ),
        (
            "tlsSecurityProfile",
            profile(json!(["A B"]), "VersionTLS12"),
            "spec.tlsSecurityProfile.custom.ciphers[0]: `A B` is not the name of a cipher",
        ),
        (
            "tlsSecurityProfile",
            profile(json!(["ECDHE-RSA-AES128-GCM-SHA256"]), "TLS12"),
            "spec.tlsSecurityProfile.custom.minTLSVersion: `TLS12` is not known; it is VersionTLS10 or VersionTLS11 or VersionTLS12 or VersionTLS13",
        ),
        (
            "tlsSecurityProfile",
            profile(json!(["TLS_AES_128_GCM_SHA256"]), "VersionTLS12"),
            "spec.tlsSecurityProfile.custom.ciphers: all are of TLS 1.3, and minTLSVersion allows older versions; add some of these, or set VersionTLS13",
        ),
        (
            "tlsSecurityProfile",
            profile(json!(["ECDHE-RSA-AES128-GCM-SHA256"]), "VersionTLS13"),
            "spec.tlsSecurityProfile.custom.ciphers: none is of TLS 1.3, and minTLSVersion allows no other; add some, or set VersionTLS12",
        ),
    ]);
}

#[test]
fn what_is_refused_about_tuning() {
    check(&[
        (
            "tuningOptions",
            json!({"threadCount": 65}),
            "spec.tuningOptions.threadCount: `65` is not a whole number from 0 to 64",
        ),
        (
            "tuningOptions",
            json!({"threadCount": "4"}),
            "spec.tuningOptions.threadCount: `4` is not a whole number from 0 to 64",
        ),
        (
            "tuningOptions",
            json!({"clientTimeout": "3 days"}),
            "spec.tuningOptions.clientTimeout: `3 days` is not a duration such as `1m30s`",
        ),
        ("tuningOptions", json!({"clientTimeout": 30}), "spec.tuningOptions.clientTimeout: `30` is no text"),
        (
            "tuningOptions",
            json!({"maxConnections": 100}),
            "spec.tuningOptions.maxConnections: `100` is too small; it is 2000 to 2000000, or -1 for as many as can be",
        ),
        (
            "tuningOptions",
            json!({"headerBufferBytes": 100}),
            "spec.tuningOptions.headerBufferBytes: `100` is too small; it is 16384 at the least",
        ),
        (
            "tuningOptions",
            json!({"headerBufferBytes": 16384, "headerBufferMaxRewriteBytes": 16384}),
            "spec.tuningOptions: headerBufferBytes is 16384, and headerBufferMaxRewriteBytes 16384; the first has to be larger",
        ),
        (
            "tuningOptions",
            json!({"httpKeepAliveTimeout": "16m"}),
            "spec.tuningOptions.httpKeepAliveTimeout: `16m` is too long; it is 15m at the most",
        ),
        (
            "tuningOptions",
            json!({"configurationManagement": "Sometimes"}),
            "spec.tuningOptions.configurationManagement: `Sometimes` is not known; it is Dynamic or ForkAndReload",
        ),
    ]);
}

#[test]
fn what_is_refused_about_logs() {
    let cookie = |cookie: Value| json!({"access": {"destination": {"type": "Container"}, "httpCaptureCookies": [cookie]}});
    check(&[
        (
            "logging",
            json!({"access": {}}),
            "spec.logging.access.destination.type: it is missing; it is Container or Syslog",
        ),
        (
            "logging",
            json!({"access": {"destination": {"type": "Syslog", "syslog": {"address": "logs.example.com", "port": 514}}}}),
            "spec.logging.access.destination.syslog.address: `logs.example.com` is no IP address",
        ),
        (
            "logging",
            json!({"access": {"destination": {"type": "Syslog", "syslog": {"address": "192.0.2.1"}}}}),
            "spec.logging.access.destination.syslog.port: it is missing; it is a number from 1 to 65535",
        ),
        (
            "logging",
            json!({"access": {"destination": {"type": "Container", "container": {"maxLength": 100}}}}),
            "spec.logging.access.destination.container.maxLength: `100` is too small; it is 480 at the least",
        ),
        (
            "logging",
            json!({"access": {"destination": {"type": "Container"}, "httpLogFormat": "a\nb"}}),
            "spec.logging.access.httpLogFormat: `a\\nb` has a letter that cannot be printed; remove it",
        ),
        (
            "logging",
            cookie(json!({"matchType": "Exact", "namePrefix": "a", "maxLength": 1})),
            "spec.logging.access.httpCaptureCookies[0].name: it is missing; name one",
        ),
    ]);
}

#[test]
fn what_is_refused_about_the_rest() {
    let action =
        |name: &str, action: Value| json!({"actions": {"request": [{"name": name, "action": action}]}});
    check(&[
        (
            "httpHeaders",
            json!({"forwardedHeaderPolicy": "Sometimes"}),
            "spec.httpHeaders.forwardedHeaderPolicy: `Sometimes` is not known; it is Append or Replace or IfNone or Never",
        ),
        (
            "httpHeaders",
            json!({"headerNameCaseAdjustments": ["A B"]}),
            "spec.httpHeaders.headerNameCaseAdjustments[0]: `A B` is not the name of a header",
        ),
        (
            "httpHeaders",
            action("Host", json!({"type": "Delete"})),
            "spec.httpHeaders.actions.request[0].name: `Host` cannot be set or deleted so; routes have fields of their own for some of these",
        ),
        (
            "httpHeaders",
            action("X-A", json!({"type": "Set"})),
            "spec.httpHeaders.actions.request[0].action.set.value: it is missing; name one",
        ),
        (
            "httpHeaders",
            json!({"actions": {"request": vec![0; 21]}}),
            "spec.httpHeaders.actions.request: there are 21, and at most 20 are taken",
        ),
        (
            "httpCompression",
            json!({"mimeTypes": ["html"]}),
            "spec.httpCompression.mimeTypes[0]: `html` is not a type such as `text/html`",
        ),
        (
            "httpEmptyRequestsPolicy",
            json!("ignore"),
            "spec.httpEmptyRequestsPolicy: `ignore` is not known; it is Ignore or Respond",
        ),
        (
            "unsupportedConfigOverrides",
            json!({"contStats": "yes"}),
            "spec.unsupportedConfigOverrides.contStats: `yes` is neither true nor false",
        ),
    ]);
}

#[test]
fn what_is_refused_about_annotations() {
    let annotated: IngressController = serde_json::from_value(
        json!({"metadata": {"name": "shop", "annotations": {HTTP2: "on", HARD_STOP: "never"}}}),
    )
    .unwrap();
    assert_eq!(
        refusals(&annotated),
        [
            "metadata.annotations[ingress.operator.openshift.io/default-enable-http2]: `on` is neither true nor false",
            "metadata.annotations[ingress.operator.openshift.io/hard-stop-after]: `never` is not a duration such as `1m30s`",
        ]
    );
}

#[test]
fn what_is_empty_is_fine() {
    for key in FIELDS {
        for value in [json!(null), json!({}), json!("")] {
            if value == json!({}) && key.ends_with("Policy") || value == json!("") && !key.ends_with("Policy")
            {
                continue;
            }
            let controller = controller(&json!({key: value}));
            assert_eq!(refusals(&controller), [""; 0], "{key} {value}");
            assert_eq!(Options::of(&controller), Options::default(), "{key} {value}");
        }
    }
}

#[test]
fn what_is_not_known_is_told() {
    let spec = json!({
        "haproxyVersion": "3.2",
        "nothing": null,
        "clientTLS": {"clientCertificatPolicy": "Required"},
        "tuningOptions": {"healthCheckInterval": "10ms"},
    });
    let controller = controller(&spec);
    assert_eq!(refusals(&controller), [""; 0]);
    assert_eq!(
        ignored(&controller),
        [
            "spec.haproxyVersion: it is not known here, and nothing comes of it",
            "spec.tuningOptions.healthCheckInterval: it is less than `1s`, and health is asked for as often as usual",
            "spec.clientTLS.clientCertificatPolicy: it is not known here, and nothing comes of it",
        ]
    );
}
