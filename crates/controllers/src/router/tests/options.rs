//! Everything that a spec says about routers reaches them.

use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use proptest::prelude::*;

use super::*;
use crate::router::environment::time;

/// What a router is told because of a spec, and would not be told without it; what it is not told any more has no value.
fn told_by(spec: &Value, settings: &RouterSettings) -> Vec<String> {
    let told = |spec: &Value| {
        let found = deployment(&controller(spec), settings, &Present::default()).unwrap();
        let pod = found.spec.unwrap().template.spec.unwrap();
        let env = pod.containers[0].env.clone().unwrap();
        env.into_iter().map(|entry| (entry.name, entry.value.unwrap())).collect::<BTreeMap<_, _>>()
    };
    let (usual, mut found) = (told(&json!({})), told(spec));
    for name in usual.keys() {
        found.entry(name.clone()).or_default();
    }
    found.retain(|name, value| usual.get(name) != Some(value));
    found.into_iter().map(|(name, value)| format!("{name}={value}")).collect()
}

/// A spec, and what routers are told because of it.
fn check(cases: &[(Value, &[&str])]) {
    for (spec, expected) in cases {
        assert_eq!(told_by(spec, &settings(Platform::BareMetal)), *expected, "{spec}");
    }
}

#[test]
fn what_is_told_about_tuning() {
    check(&[
        (
            json!({"tuningOptions": {
                "headerBufferBytes": 65536, "headerBufferMaxRewriteBytes": 16384, "threadCount": 8,
                "clientTimeout": "90s", "clientFinTimeout": "1500ms", "serverTimeout": "2h", "serverFinTimeout": "1s",
                "tunnelTimeout": "0s", "connectTimeout": "1m", "tlsInspectDelay": "5s", "httpKeepAliveTimeout": "10m",
                "healthCheckInterval": "7s", "maxConnections": -1, "reloadInterval": "10m",
            }}),
            &[
                "RELOAD_INTERVAL=2m",
                "ROUTER_BACKEND_CHECK_INTERVAL=7s",
                "ROUTER_BUF_SIZE=65536",
                "ROUTER_CLIENT_FIN_TIMEOUT=1500ms",
                "ROUTER_DEFAULT_CLIENT_TIMEOUT=90s",
                "ROUTER_DEFAULT_CONNECT_TIMEOUT=1m",
                "ROUTER_DEFAULT_SERVER_FIN_TIMEOUT=1s",
                "ROUTER_DEFAULT_SERVER_TIMEOUT=2h",
                "ROUTER_INSPECT_DELAY=5s",
                "ROUTER_MAX_CONNECTIONS=auto",
                "ROUTER_MAX_REWRITE_SIZE=16384",
                "ROUTER_SLOWLORIS_HTTP_KEEPALIVE=10m",
                "ROUTER_THREADS=8",
            ],
        ),
        (json!({"tuningOptions": {"tunnelTimeout": "2h"}}), &["ROUTER_DEFAULT_TUNNEL_TIMEOUT=2h"]),
        (
            json!({"tuningOptions": {"maxConnections": 2000, "configurationManagement": "Dynamic"}}),
            &[
                "ROUTER_BLUEPRINT_ROUTE_POOL_SIZE=0",
                "ROUTER_HAPROXY_CONFIG_MANAGER=true",
                "ROUTER_MAX_CONNECTIONS=2000",
                "ROUTER_MAX_DYNAMIC_SERVERS=1",
            ],
        ),
    ]);
}

#[test]
fn what_is_told_about_logs() {
    let log = |access: Value| json!({"logging": {"access": access}});
    let syslog = |address: &str| json!({"type": "Syslog", "syslog": {"address": address, "port": 514, "facility": "local1", "maxLength": 2048}});
    check(&[
        (
            log(json!({
                "destination": {"type": "Container", "container": {"maxLength": 4096}},
                "httpLogFormat": "%ci \"%r\"",
                "httpCaptureHeaders": {"request": [{"name": "Host", "maxLength": 15}, {"name": "X-A", "maxLength": 1}], "response": [{"name": "X-B", "maxLength": 2}]},
                "httpCaptureCookies": [{"matchType": "Exact", "name": "session", "maxLength": 0}],
                "logEmptyRequests": "Ignore",
            })),
            &[
                "ROUTER_CAPTURE_HTTP_COOKIE=session=:256",
                "ROUTER_CAPTURE_HTTP_REQUEST_HEADERS=Host:15,X-A:1",
                "ROUTER_CAPTURE_HTTP_RESPONSE_HEADERS=X-B:2",
                "ROUTER_DONT_LOG_NULL=true",
                "ROUTER_LOG_LEVEL=info",
                "ROUTER_LOG_MAX_LENGTH=4096",
                "ROUTER_SYSLOG_ADDRESS=/var/lib/rsyslog/rsyslog.sock",
                "ROUTER_SYSLOG_FORMAT=\"%ci \\\"%r\\\"\"",
            ],
        ),
        (
            log(json!({"destination": syslog("192.0.2.1")})),
            &[
                "ROUTER_LOG_FACILITY=local1",
                "ROUTER_LOG_LEVEL=info",
                "ROUTER_LOG_MAX_LENGTH=2048",
                "ROUTER_SYSLOG_ADDRESS=192.0.2.1:514",
            ],
        ),
        (
            log(
                json!({"destination": syslog("2001:db8::1"), "httpCaptureCookies": [{"matchType": "Prefix", "namePrefix": "s", "maxLength": 8}]}),
            ),
            &[
                "ROUTER_CAPTURE_HTTP_COOKIE=s:8",
                "ROUTER_LOG_FACILITY=local1",
                "ROUTER_LOG_LEVEL=info",
                "ROUTER_LOG_MAX_LENGTH=2048",
                "ROUTER_SYSLOG_ADDRESS=[2001:db8::1]:514",
            ],
        ),
    ]);
}

#[test]
fn what_is_told_about_tls() {
    check(&[
        (
            json!({"clientTLS": {"clientCertificatePolicy": "Required", "clientCA": {"name": "ca"}, "allowedSubjectPatterns": ["^/CN=a", "b$"]}}),
            &[
                "ROUTER_MUTUAL_TLS_AUTH=required",
                "ROUTER_MUTUAL_TLS_AUTH_CA=/etc/pki/tls/client-ca/ca-bundle.pem",
                "ROUTER_MUTUAL_TLS_AUTH_FILTER=(?:^/CN=a|b$)",
            ],
        ),
        (
            json!({"clientTLS": {"clientCertificatePolicy": "Optional", "clientCA": {"name": "ca"}}}),
            &[
                "ROUTER_MUTUAL_TLS_AUTH=optional",
                "ROUTER_MUTUAL_TLS_AUTH_CA=/etc/pki/tls/client-ca/ca-bundle.pem",
            ],
        ),
        (json!({"clientTLS": {"clientCertificatePolicy": "", "clientCA": {"name": "ca"}}}), &[]),
        (json!({"tlsSecurityProfile": {"type": "Intermediate", "intermediate": {}}}), &[]),
        (json!({"tlsSecurityProfile": {"type": "Modern"}}), &["ROUTER_CIPHERS=", "SSL_MIN_VERSION=TLSv1.3"]),
        (
            json!({"tlsSecurityProfile": {"type": "Custom", "custom": {"ciphers": ["ECDHE-RSA-AES128-GCM-SHA256", "TLS_AES_128_CCM_SHA256"], "minTLSVersion": "VersionTLS10", "groups": ["X25519", "secp256r1"]}}}),
            &[
                "ROUTER_CIPHERS=ECDHE-RSA-AES128-GCM-SHA256",
                "ROUTER_CIPHERSUITES=TLS_AES_128_CCM_SHA256",
                "ROUTER_CURVES=X25519:secp256r1",
                "SSL_MIN_VERSION=TLSv1.1",
            ],
        ),
    ]);
}

#[test]
fn what_is_told_about_headers() {
    let headers = |actions: Value| json!({"httpHeaders": {"actions": actions}});
    check(&[
        (
            json!({"httpHeaders": {"forwardedHeaderPolicy": "IfNone", "uniqueId": {"name": "X-Id"}, "headerNameCaseAdjustments": ["Host", "X-A"]}}),
            &[
                "ROUTER_H1_CASE_ADJUST=Host,X-A",
                "ROUTER_SET_FORWARDED_HEADERS=if-none",
                "ROUTER_UNIQUE_ID_FORMAT=\"%{+X}o %ci:%cp_%fi:%fp_%Ts_%rt:%pid\"",
                "ROUTER_UNIQUE_ID_HEADER_NAME=X-Id",
            ],
        ),
        (json!({"httpHeaders": {"forwardedHeaderPolicy": "Append"}}), &[]),
        (json!({"httpHeaders": {"forwardedHeaderPolicy": "Never"}}), &["ROUTER_SET_FORWARDED_HEADERS=never"]),
        (
            json!({"httpHeaders": {"forwardedHeaderPolicy": "Replace"}}),
            &["ROUTER_SET_FORWARDED_HEADERS=replace"],
        ),
        (
            headers(
                json!({"request": [{"name": "X-A", "action": {"type": "Set", "set": {"value": "a b,c:%d"}}}, {"name": "X-B", "action": {"type": "Delete"}}]}),
            ),
            &["ROUTER_HTTP_REQUEST_HEADERS=X-A:a+b%2Cc%3A%25d:Set,X-B:Delete"],
        ),
        (
            headers(json!({"response": [{"name": "Server", "action": {"type": "Delete"}}]})),
            &["ROUTER_HTTP_RESPONSE_HEADERS=Server:Delete"],
        ),
    ]);
}

#[test]
fn what_is_told_about_the_rest() {
    check(&[
        (
            json!({"httpCompression": {"mimeTypes": ["text/html", "text/css; charset=\"utf-8\""]}}),
            &[
                "ROUTER_COMPRESSION_MIME=text/html \"text/css; charset=\\\"utf-8\\\"\"",
                "ROUTER_ENABLE_COMPRESSION=true",
            ],
        ),
        (
            json!({"httpEmptyRequestsPolicy": "Ignore", "idleConnectionTerminationPolicy": "Deferred", "closedClientConnectionPolicy": "Abort"}),
            &[
                "ROUTER_ABORT_ON_CLOSE=true",
                "ROUTER_HTTP_IGNORE_PROBES=true",
                "ROUTER_IDLE_CLOSE_ON_RESPONSE=true",
            ],
        ),
        (
            json!({"httpEmptyRequestsPolicy": "Respond", "idleConnectionTerminationPolicy": "Immediate", "closedClientConnectionPolicy": "Continue"}),
            &[],
        ),
        (
            json!({"httpErrorCodePages": {"name": "pages"}}),
            &[
                "ROUTER_ERRORFILE_404=/var/lib/haproxy/conf/error_code_pages/error-page-404.http",
                "ROUTER_ERRORFILE_503=/var/lib/haproxy/conf/error_code_pages/error-page-503.http",
            ],
        ),
        (
            json!({"unsupportedConfigOverrides": {"loadBalancingAlgorithm": "leastconn", "contStats": "true", "dynamicConfigManager": true, "maxDynamicServers": "7", "mutualTLSHeaderFilter": "false"}}),
            &[
                "ROUTER_HAPROXY_CONFIG_MANAGER=true",
                "ROUTER_HAPROXY_CONTSTATS=true",
                "ROUTER_LOAD_BALANCE_ALGORITHM=leastconn",
                "ROUTER_MAX_DYNAMIC_SERVERS=7",
                "ROUTER_MUTUAL_TLS_HEADER_FILTER=false",
            ],
        ),
        (
            json!({"routeSelector": {"matchLabels": {"b": "1"}, "matchExpressions": [{"key": "c", "operator": "In", "values": ["y", "x"]}, {"key": "a", "operator": "DoesNotExist"}]}}),
            &["ROUTE_LABELS=!a,b=1,c in (x,y)"],
        ),
    ]);
}

#[test]
fn what_the_cluster_says() {
    let told = |settings: &RouterSettings, name: &str| {
        let found = deployment(&controller(&json!({})), settings, &Present::default()).unwrap();
        let env = found.spec.unwrap().template.spec.unwrap().containers[0].env.clone().unwrap();
        env.into_iter().find(|entry| entry.name == name).and_then(|entry| entry.value)
    };
    let usual = settings(Platform::BareMetal);
    assert_eq!(told(&usual, "ROUTER_IP_V4_V6_MODE"), None);
    assert_eq!(told(&usual, "ROUTER_DISABLE_HTTP2").as_deref(), Some("true"));
    assert_eq!(told(&usual, "DEFAULT_DESTINATION_CA_PATH"), None);
    assert_eq!(told(&usual, "DEFAULT_CERTIFICATE_DIR"), None, "there is none");
    assert_eq!(told(&usual, "SSL_MIN_VERSION").as_deref(), Some("TLSv1.2"));
    let other = RouterSettings {
        addresses: AddressMode::Both,
        http2: true,
        openshift: true,
        tls_profile: TlsProfile::Old,
        ..usual
    };
    assert_eq!(told(&other, "ROUTER_IP_V4_V6_MODE").as_deref(), Some("v4v6"));
    assert_eq!(told(&other, "ROUTER_DISABLE_HTTP2"), None);
    assert_eq!(
        told(&other, "DEFAULT_DESTINATION_CA_PATH").as_deref(),
        Some("/var/run/configmaps/service-ca/service-ca.crt")
    );
    assert_eq!(
        told(&other, "ROUTER_METRICS_TLS_CERT_FILE").as_deref(),
        Some("/etc/pki/tls/metrics-certs/tls.crt")
    );
    assert_eq!(told(&other, "SSL_MIN_VERSION").as_deref(), Some("TLSv1.1"));
    assert!(told(&other, "ROUTER_CIPHERS").unwrap().ends_with(":DES-CBC3-SHA"));
    let v6 = RouterSettings { addresses: AddressMode::V6, ..other };
    assert_eq!(told(&v6, "ROUTER_IP_V4_V6_MODE").as_deref(), Some("v6"));
}

/// What is on the object itself comes before what the cluster says.
#[test]
fn annotations_of_the_controller() {
    let mut wanted = controller(&json!({}));
    let key = |word: &str| format!("ingress.operator.openshift.io/{word}");
    wanted.metadata.annotations = Some(BTreeMap::from([
        (key("default-enable-http2"), "true".to_owned()),
        (key("hard-stop-after"), "1h30m".to_owned()),
    ]));
    let found = deployment(&wanted, &settings(Platform::BareMetal), &Present::default()).unwrap();
    let env = found.spec.unwrap().template.spec.unwrap().containers[0].env.clone().unwrap();
    assert!(env.iter().all(|entry| entry.name != "ROUTER_DISABLE_HTTP2"));
    let stop = env.iter().find(|entry| entry.name == "ROUTER_HARD_STOP_AFTER").unwrap();
    assert_eq!(stop.value.as_deref(), Some("90m"));
}

/// Every file that a container is told to read is there, and every volume is used.
#[test]
fn files_are_where_they_are_read() {
    let spec = json!({
        "defaultCertificate": {"name": "own"},
        "clientTLS": {"clientCertificatePolicy": "Required", "clientCA": {"name": "ca"}},
        "httpErrorCodePages": {"name": "pages"},
        "logging": {"access": {"destination": {"type": "Container"}}},
    });
    let settings = RouterSettings { openshift: true, ..settings(Platform::BareMetal) };
    let found = deployment(&controller(&spec), &settings, &Present::default()).unwrap();
    let pod = found.spec.unwrap().template.spec.unwrap();
    let volumes: Vec<String> = pod.volumes.unwrap().into_iter().map(|volume| volume.name).collect();
    assert_eq!(pod.containers.len(), 2);
    let mut mounted = Vec::new();
    for container in &pod.containers {
        mounted.extend(container.volume_mounts.iter().flatten().cloned());
    }
    for volume in &volumes {
        assert!(mounted.iter().any(|mount| mount.name == *volume), "{volume}");
    }
    assert!(mounted.iter().all(|mount| volumes.contains(&mount.name)));
    let router = &pod.containers[0];
    for entry in router.env.iter().flatten() {
        let Some(file) = entry.value.as_deref().filter(|value| value.starts_with('/')) else { continue };
        let mounts = router.volume_mounts.as_ref().unwrap();
        assert!(mounts.iter().any(|mount| file.starts_with(&mount.mount_path)), "{}={file}", entry.name);
    }
    let logs = log_config(&controller(&spec), &settings).unwrap();
    assert!(logs.data.unwrap()["rsyslog.conf"].contains("/var/lib/rsyslog/rsyslog.sock"));
    assert_eq!(log_config(&controller(&json!({})), &settings), None);
}

/// A certificate that is named is waited for; the usual one is read once it is there.
#[test]
fn the_certificate() {
    let named = json!({"defaultCertificate": {"name": "own"}});
    for (spec, is_there, expected) in [
        (json!({}), false, None),
        (json!({}), true, Some("router-certs-shop")),
        (named.clone(), false, Some("own")),
        (named, true, Some("own")),
    ] {
        let present = Present { certificate: is_there, ..Present::default() };
        let found = deployment(&controller(&spec), &settings(Platform::BareMetal), &present).unwrap();
        let pod = found.spec.unwrap().template.spec.unwrap();
        let secret = pod.volumes.iter().flatten().find_map(|volume| volume.secret.clone());
        let name = secret.as_ref().and_then(|secret| secret.secret_name.as_deref());
        assert_eq!(name, expected, "{spec} {is_there}");
        assert!(secret.is_none_or(|secret| secret.optional != Some(true)), "{spec} {is_there}");
        let env = pod.containers[0].env.as_ref().unwrap();
        let told = env.iter().any(|entry| entry.name == "DEFAULT_CERTIFICATE_DIR");
        assert_eq!(told, expected.is_some(), "{spec} {is_there}");
    }
}

#[test]
fn what_is_copied() {
    let settings = settings(Platform::BareMetal);
    let wanted = controller(&json!({
        "clientTLS": {"clientCertificatePolicy": "Required", "clientCA": {"name": "ca"}},
        "httpErrorCodePages": {"name": "pages"},
    }));
    let source = |data: Value| -> ConfigMap { object(json!({"metadata": {"name": "any"}, "data": data})) };
    let [authorities, pages] = copies(&wanted);
    let copy = |which: &Copied, source: Option<&ConfigMap>| copied(which, source, &wanted, &settings);
    assert_eq!(
        copy(&authorities, None).unwrap_err(),
        "spec.clientTLS.clientCA names ConfigMap openshift-config/ca, which is not there; routers stay as they are. Create it, or name another one."
    );
    assert_eq!(
        copy(&pages, Some(&source(json!({"error-page-503.http": "no"})))).unwrap_err(),
        "spec.httpErrorCodePages names ConfigMap openshift-config/pages, which has no key error-page-404.http; routers stay as they are. Add it, or name another ConfigMap."
    );
    let found =
        copy(&authorities, Some(&source(json!({"ca-bundle.pem": "A", "other": "B"})))).unwrap().unwrap();
    assert_eq!(found.metadata.name.as_deref(), Some("router-client-ca-shop"));
    assert!(belongs_to(&found.metadata, "shop"));
    assert_eq!(found.data, Some(BTreeMap::from([("ca-bundle.pem".to_owned(), "A".to_owned())])));
    assert_eq!(changed_config(&found, &found), None);
    let mut edited = found.clone();
    edited.data.as_mut().unwrap().insert("own".to_owned(), "C".to_owned());
    assert_eq!(changed_config(&edited, &found).as_ref(), Some(&found));
    for none in copies(&controller(&json!({}))) {
        assert_eq!(copied(&none, None, &wanted, &settings), Ok(None));
    }
}

#[test]
fn times_in_haproxys_words() {
    for (millis, expected) in [
        (0, "0s"),
        (1, "1ms"),
        (1500, "1500ms"),
        (90_000, "90s"),
        (300_000, "5m"),
        (7_200_000, "2h"),
        (u64::MAX, "2147483647ms"),
    ] {
        assert_eq!(time(Duration::from_millis(millis)), expected);
    }
    assert_eq!(time(Duration::from_micros(7)), "7us");
    assert_eq!(time(Duration::from_nanos(1)), "1us");
}

/// A spec of anything: some of it can be read, most of it not.
fn anything() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i32>().prop_map(Value::from),
        "[ -~\\PC]{0,12}".prop_map(Value::from),
        prop::sample::select(vec![
            "Required",
            "Container",
            "Syslog",
            "Custom",
            "Set",
            "1s",
            "a",
            "192.0.2.1"
        ])
        .prop_map(Value::from),
    ];
    let keys = prop::sample::select(vec![
        "access",
        "destination",
        "type",
        "container",
        "syslog",
        "address",
        "port",
        "maxLength",
        "custom",
        "ciphers",
        "minTLSVersion",
        "actions",
        "request",
        "name",
        "action",
        "set",
        "value",
        "mimeTypes",
        "clientTimeout",
        "threadCount",
        "clientCertificatePolicy",
        "clientCA",
        "allowedSubjectPatterns",
        "uniqueId",
        "format",
    ]);
    leaf.prop_recursive(6, 40, 5, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            prop::collection::btree_map(keys.clone(), inner, 0..5)
                .prop_map(|map| map.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()),
        ]
    })
}

proptest! {
    /// Whatever is written, it is refused or a router is told something that its file can hold; and the same each time.
    #[test]
    fn whatever_is_written(value in anything(), field in prop::sample::select(vec![
        "clientTLS", "httpCompression", "httpErrorCodePages", "httpHeaders", "logging", "tlsSecurityProfile",
        "tuningOptions", "unsupportedConfigOverrides", "httpEmptyRequestsPolicy",
    ])) {
        let wanted: IngressController =
            object(json!({"metadata": {"name": "shop"}, "spec": {field: value}}));
        let settings = settings(Platform::BareMetal);
        for sentence in refusals(&wanted) {
            prop_assert!(sentence.starts_with(&format!("spec.{field}")), "{}", sentence);
        }
        let found = deployment(&wanted, &settings, &Present::default()).unwrap();
        prop_assert_eq!(changed_deployment(&found, &found), None);
        let pod = found.spec.unwrap().template.spec.unwrap();
        for entry in pod.containers[0].env.iter().flatten() {
            prop_assert!(!entry.value.as_ref().unwrap().chars().any(char::is_control), "{:?}", entry);
        }
    }
}
