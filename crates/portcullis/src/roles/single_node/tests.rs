use std::fs;

use portcullis_host::interfaces::Interface;
use portcullis_kube_api::host::HOST_CLASS;
use tempfile::TempDir;

use super::*;
use crate::config::Sources;

fn loaded(text: &str) -> Loaded {
    let directory = TempDir::new().unwrap();
    let file = directory.path().join("config.yaml");
    fs::write(&file, text).unwrap();
    Sources::new(Some(file), Vec::new()).load().unwrap()
}

fn here() -> Interfaces {
    let interface = |name: &str, addresses: &[&str]| Interface {
        name: name.to_owned(),
        master: None,
        is_loopback: name == "lo",
        is_veth: false,
        addresses: addresses.iter().map(|address| address.parse().unwrap()).collect(),
    };
    let all = [
        (1, interface("lo", &["127.0.0.1"])),
        (2, interface("enp3s0", &["192.0.2.7", "2001:db8::7"])),
        (3, interface("enp4s0", &["10.0.7.4"])),
    ];
    all.into_iter().collect()
}

/// Findings, as line, key and text.
fn shown(findings: &[Finding]) -> Vec<String> {
    findings.iter().map(|found| found.to_string().split_once("config.yaml").unwrap().1.to_owned()).collect()
}

#[test]
fn what_is_not_on_this_host_is_named() {
    let rest = "Interfaces here: enp3s0 (192.0.2.7, 2001:db8::7), enp4s0 (10.0.7.4)";
    let four = "Interfaces here: enp3s0 (192.0.2.7), enp4s0 (10.0.7.4)";
    for (written, addresses, expected) in [
        ("enp3s0", "both", None),
        ("192.0.2.7", "ipv4", None),
        ("2001:0DB8::7", "both", None),
        (
            "enp3s1",
            "both",
            Some(format!("no interface `enp3s1` on this host. {rest}. Did you mean `enp3s0`?")),
        ),
        ("wlan0", "both", Some(format!("no interface `wlan0` on this host. {rest}"))),
        ("192.0.2.8", "ipv4", Some(format!("no interface of this host has the address 192.0.2.8. {four}"))),
        (
            "192.0.2.7/24",
            "both",
            Some(format!(
                "no interface `192.0.2.7/24` on this host. {rest}. Write the address alone: `192.0.2.7`"
            )),
        ),
        (
            "2001:db8::7",
            "ipv4",
            Some("2001:db8::7 is of IPv6, and the cluster's Services are not".to_owned()),
        ),
        // Without a word IPv4 is meant.
        (
            "2001:db8::7",
            "null",
            Some("2001:db8::7 is of IPv6, and the cluster's Services are not".to_owned()),
        ),
        (
            "127.0.0.1",
            "both",
            Some(
                "127.0.0.1 is an address that clients do not come to: it only leads back to this host"
                    .to_owned(),
            ),
        ),
    ] {
        let text = format!(
            "singleNode: {{enabled: true, addresses: {addresses}}}\ningress:\n  listenAddress:\n  - enp4s0\n  - \"{written}\"\n"
        );
        let found = shown(&not_here(&loaded(&text), &here()));
        let expected: Vec<String> =
            expected.map(|what| format!(":5: ingress.listenAddress[1]: {what}")).into_iter().collect();
        assert_eq!(found, expected, "{written}");
    }
}

#[test]
fn entries_count_once() {
    let given = ["enp3s0", "192.0.2.7", "enp3s0", "::ffff:192.0.2.7", "2001:DB8::7", "2001:db8:0::7"];
    assert_eq!(listen(&given.map(str::to_owned)), ["enp3s0", "192.0.2.7", "2001:db8::7"]);
}

#[test]
fn what_cannot_be_carried_out_is_named_by_its_line() {
    for (text, expected) in [
        (
            "tuningOptions:\n    clientTimeout: soon\n",
            ":4: ingress.tuningOptions.clientTimeout: `soon` is not a duration",
        ),
        (
            "accessLogging:\n    status: Enabled\n    destination: {type: Syslog}\n",
            ":5: ingress.accessLogging.destination.syslog.address: it is missing",
        ),
        (
            "clientTLS:\n    clientCertificatePolicy: Required\n",
            ":3: ingress.clientTLS.clientCA.name: it is missing",
        ),
        (
            "clientTLS:\n    clientCA: {name: clients}\n",
            ":3: ingress.clientTLS.clientCertificatePolicy: it is not said whether clients have to show a certificate",
        ),
        (
            "tlsSecurityProfile:\n    type: Custom\n",
            ":3: ingress.tlsSecurityProfile.custom.ciphers: there are none",
        ),
        (
            "httpCompression: {mimeTypes: [text]}\n",
            ":3: ingress.httpCompression.mimeTypes[0]: `text` is not a type",
        ),
        ("ports: {http: 80, https: 80}\n", ":3: ingress.ports.https: 80 is also the port for HTTP"),
    ] {
        let loaded = loaded(&format!("singleNode: {{enabled: true}}\ningress:\n  {text}"));
        let mut wrong = Vec::new();
        settings(&loaded, &mut wrong);
        let found = shown(&wrong);
        assert!(found.iter().any(|found| found.starts_with(expected)), "{expected}: {found:?}");
    }
}

/// The configuration of the guide can be used as it stands, and its lines are where the guide says.
#[test]
fn the_guide_has_a_configuration_that_works() {
    let guide = include_str!("../../../../../docs/single-node.md");
    let text = guide.split("```yaml\n").nth(1).unwrap().split("```").next().unwrap();
    let loaded = loaded(text);
    assert!(loaded.warnings.is_empty(), "{:?}", loaded.warnings);
    let mut wrong = Vec::new();
    let found = settings(&loaded, &mut wrong);
    assert!(wrong.is_empty() && found.is_wanted && found.at_node, "{wrong:?}");
    assert!(loaded.config.kubernetes.kubeconfig.is_some());
    for (key, port) in [("http", 80), ("https", 443)] {
        let at = loaded.origin(&["ingress", "ports", key]).unwrap().to_string();
        let line = at.rsplit(':').next().unwrap();
        let row = guide.lines().find(|row| row.starts_with(&format!("ingress.ports.{key} "))).unwrap();
        let words: Vec<&str> = row.split_whitespace().collect();
        assert_eq!(words[1..], [port.to_string(), format!("/etc/portcullis/config.yaml:{line}")], "{at}");
    }
}

/// By the class of the Service, or without one, as the role has it that gives addresses.
#[test]
fn who_gives_the_router_its_addresses() {
    for (classes, expected) in [
        ("singleNode: {image: r}", true),
        ("singleNode: {image: r, loadBalancerClass: other}", false),
        ("singleNode: {image: r, loadBalancerClass: mine}\nhost: {class: mine}", true),
        ("singleNode: {image: r}\nhost: {class: mine}", false),
        ("singleNode: {image: r, loadBalancerClass: ''}", false),
        ("singleNode: {image: r, loadBalancerClass: ''}\nhost: {withoutClass: true}", true),
    ] {
        assert_eq!(settings(&loaded(classes), &mut Vec::new()).at_node, expected, "{classes}");
    }
}

#[test]
fn options_are_those_of_an_ingress_controller() {
    let text = "
singleNode: {enabled: true, image: 'router:1', baseDomain: edge.example.com, addresses: both, loadBalancerClass: ''}
ingress:
  ports: {http: 8080}
  routeAdmissionPolicy: {namespaceOwnership: Strict, wildcardPolicy: WildcardsAllowed}
  tuningOptions: {threadCount: 8, tunnelTimeout: 2h}
  defaultHTTPVersion: 2
  forwardedHeaderPolicy: IfNone
  httpCompression: {mimeTypes: [text/html]}
  httpEmptyRequestsPolicy: Ignore
  logEmptyRequests: Ignore
  certificateSecret: mine
  clientTLS: {clientCertificatePolicy: Optional, clientCA: {name: clients}, allowedSubjectPatterns: ['^/CN=a$']}
  tlsSecurityProfile: {type: Modern}
  httpErrorCodePages: {name: pages}
  accessLogging:
    status: Enabled
    httpCaptureHeaders: {request: [{name: Host, maxLength: 20}, {name: null, maxLength: 0}]}
    httpCaptureCookies: [{}]
";
    let mut wrong = Vec::new();
    let found = settings(&loaded(text), &mut wrong);
    assert_eq!(wrong, []);
    assert_eq!(found.ports, [8080, 443]);
    assert_eq!(found.router.load_balancer_class, None);
    assert_eq!((found.router.http2, found.router.addresses), (true, AddressMode::Both));
    let spec = serde_json::to_value(&found.controller.spec).unwrap();
    for (pointer, value) in [
        ("/domain", json!("apps.edge.example.com")),
        ("/replicas", json!(1)),
        ("/routeAdmission/namespaceOwnership", json!("Strict")),
        ("/routeAdmission/wildcardPolicy", json!("WildcardsAllowed")),
        ("/tuningOptions/threadCount", json!(8)),
        ("/tuningOptions/tunnelTimeout", json!("2h")),
        ("/httpHeaders/forwardedHeaderPolicy", json!("IfNone")),
        ("/httpCompression/mimeTypes", json!(["text/html"])),
        ("/httpEmptyRequestsPolicy", json!("Ignore")),
        ("/logging/access/logEmptyRequests", json!("Ignore")),
        ("/logging/access/destination/type", json!("Container")),
        ("/logging/access/httpCaptureHeaders/request", json!([{"name": "Host", "maxLength": 20}])),
        ("/logging/access/httpCaptureCookies", json!([])),
        ("/defaultCertificate/name", json!("mine")),
        ("/clientTLS/clientCertificatePolicy", json!("Optional")),
        ("/clientTLS/clientCA/name", json!("clients")),
        ("/tlsSecurityProfile/type", json!("Modern")),
        ("/httpErrorCodePages/name", json!("pages")),
    ] {
        assert_eq!(spec.pointer(pointer), Some(&value), "{pointer}");
    }
    assert_eq!(ignored(&found.controller), Vec::<String>::new());
}

#[test]
fn without_options_nothing_is_special() {
    let mut wrong = Vec::new();
    let found = settings(&loaded("singleNode: {enabled: true, image: 'router:1'}\n"), &mut wrong);
    assert_eq!(wrong, []);
    assert_eq!((found.ports, found.listen.len(), found.is_wanted), ([80, 443], 0, true));
    assert_eq!(found.router.load_balancer_class.as_deref(), Some(HOST_CLASS));
    let admission = found.controller.spec.route_admission.unwrap();
    assert_eq!(admission.namespace_ownership.as_deref(), Some("InterNamespaceAllowed"));
    assert!(found.controller.spec.rest["logging"].is_null());
}

#[test]
fn there_is_no_start_without_an_image_unless_nothing_is_wanted() {
    let failure = prepare(&loaded("singleNode:\n  enabled: true\n")).unwrap_err();
    assert!(failure.errors[0].contains(":1: singleNode.image: it is not known"), "{failure:?}");
    let removed = "singleNode: {enabled: true}\ningress: {status: Removed, ports: {http: none}, listenAddress: [nowhere]}\n";
    assert!(!prepare(&loaded(removed)).unwrap().is_wanted);
}
