//! What is an `IngressController` and what is not, by the schema on a real Kubernetes API and by our own checks.

#![allow(clippy::unwrap_used, reason = "a test that fails says where")]
#![allow(clippy::needless_pass_by_value, reason = "samples are easier to read so")]

use portcullis_kube_api::ingress::{CRD, IngressController, refusals};
use portcullis_testkit::kubernetes;
use portcullis_testkit::parts::kubernetes::Kubernetes;
use serde_json::{Value, json};

/// Who refuses it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum By {
    Nobody,
    /// The schema and our own checks.
    Both,
    /// The schema alone: to us it is the same as nothing.
    Schema,
}

fn strategy(strategy: Value) -> Value {
    json!({"endpointPublishingStrategy": strategy})
}

fn load_balancer(load_balancer: Value) -> Value {
    strategy(json!({"type": "LoadBalancerService", "loadBalancer": load_balancer}))
}

fn ranges(ranges: Value) -> Value {
    load_balancer(json!({"scope": "External", "allowedSourceRanges": ranges}))
}

fn aws(scope: &str, aws: Value) -> Value {
    load_balancer(json!({"scope": scope, "providerParameters": {"type": "AWS", "aws": aws}}))
}

fn eips(scope: &str, eips: Value) -> Value {
    aws(scope, json!({"type": "NLB", "networkLoadBalancer": {"eipAllocations": eips}}))
}

fn subnets(ids: Value, names: Value) -> Value {
    let subnets = json!({"ids": ids, "names": names});
    aws("External", json!({"type": "Classic", "classicLoadBalancer": {"subnets": subnets}}))
}

fn idle(timeout: &str) -> Value {
    aws("External", json!({"type": "Classic", "classicLoadBalancer": {"connectionIdleTimeout": timeout}}))
}

fn host_network(host_network: Value) -> Value {
    strategy(json!({"type": "HostNetwork", "hostNetwork": host_network}))
}

fn numbered(count: usize, text: impl Fn(usize) -> String) -> Value {
    json!((0..count).map(text).collect::<Vec<_>>())
}

fn samples() -> Vec<(Value, By)> {
    [ways_to_reach_it(), lists_of_ranges(), on_clouds(), about_routers(), about_logs_and_headers()].concat()
}

fn ways_to_reach_it() -> Vec<(Value, By)> {
    vec![
        (json!({}), By::Nobody),
        (json!({"domain": "apps.example.com", "replicas": 2}), By::Nobody),
        (json!({"replicas": -1}), By::Both),
        (json!({"domain": ""}), By::Nobody),
        (json!({"domain": "Apps.example.com"}), By::Both),
        (json!({"domain": "*.example.com"}), By::Both),
        (json!({"domain": format!("{}.example", "a".repeat(64))}), By::Both),
        (json!({"domain": format!("{}example", "a.".repeat(120))}), By::Both),
        (
            json!({"tuningOptions": {"threadCount": 4}, "logging": {"access": {"destination": {"type": "Container"}}}}),
            By::Nobody,
        ),
        (strategy(json!({"type": "LoadBalancerService"})), By::Nobody),
        (strategy(json!({"type": "Private", "private": {"protocol": "PROXY"}})), By::Nobody),
        (strategy(json!({"type": "NodePortService", "nodePort": {"protocol": "TCP"}})), By::Nobody),
        (strategy(json!({"type": "NodePortService", "nodePort": {"protocol": "UDP"}})), By::Both),
        (strategy(json!({"type": "Anycast"})), By::Both),
        (strategy(json!({})), By::Schema),
        (load_balancer(json!({"scope": "Regional"})), By::Both),
        (load_balancer(json!({"scope": "Internal", "dnsManagementPolicy": "Unmanaged"})), By::Nobody),
        (load_balancer(json!({"scope": "Internal", "dnsManagementPolicy": "Never"})), By::Both),
        (host_network(json!({})), By::Nobody),
        (host_network(json!({"httpPort": 8080, "httpsPort": 8443, "statsPort": 9000})), By::Nobody),
        (host_network(json!({"httpPort": 443})), By::Both),
        (host_network(json!({"httpPort": 0, "statsPort": 80})), By::Both),
        (host_network(json!({"httpPort": 65536})), By::Both),
        (host_network(json!({"httpsPort": -1})), By::Both),
        (host_network(json!({"protocol": "QUIC"})), By::Both),
    ]
}

fn lists_of_ranges() -> Vec<(Value, By)> {
    vec![
        (ranges(json!(null)), By::Nobody),
        (ranges(json!([])), By::Nobody),
        (ranges(json!(["10.0.0.0/8", "2001:db8::/32"])), By::Nobody),
        (ranges(json!(["10.0.0.1/8", "2001:db8::1/32"])), By::Nobody),
        (ranges(json!(["10.0.0.0/8", "10.0.0.0/8"])), By::Nobody),
        (ranges(json!(["0.0.0.0/0", "::/0", "192.0.2.1/32", "::1/128"])), By::Nobody),
        (ranges(json!(["2001:DB8::/32", "64:ff9b::192.0.2.1/128"])), By::Nobody),
        (ranges(json!([""])), By::Both),
        (ranges(json!(["10.0.0.0"])), By::Both),
        (ranges(json!(["10.0.0.0/33"])), By::Both),
        (ranges(json!(["::/129"])), By::Both),
        (ranges(json!(["10.0.0.0/08"])), By::Both),
        (ranges(json!(["10.0.0.0/-1"])), By::Both),
        (ranges(json!(["10.0.0.0/255.0.0.0"])), By::Both),
        (ranges(json!(["01.2.3.4/8"])), By::Both),
        (ranges(json!(["10.0.0.0/8 "])), By::Both),
        (ranges(json!(["10.0.0.0/8,192.0.2.0/24"])), By::Both),
        (ranges(json!(["fe80::1%eth0/64"])), By::Both),
        (ranges(json!(["s::/0"])), By::Both),
        (ranges(json!(["::ffff:d.d.d.d/96"])), By::Both),
        (ranges(json!(["::ffff:1.2.3.4/96"])), By::Both),
        (ranges(json!(["::ffff:1.2.3.4/0"])), By::Both),
        (ranges(json!(["10.0.0.0/8", "nonsense"])), By::Both),
        (ranges(numbered(4096, |number| format!("10.{}.{}.0/24", number / 256, number % 256))), By::Nobody),
        (ranges(numbered(4097, |number| format!("10.{}.{}.0/24", number / 256, number % 256))), By::Both),
    ]
}

fn on_clouds() -> Vec<(Value, By)> {
    let good_eip = "eipalloc-0123456789abcdef0";
    vec![
        (aws("External", json!({"type": "Classic"})), By::Nobody),
        (aws("External", json!({"type": "ALB"})), By::Both),
        (idle("1m30s"), By::Nobody),
        (idle("0"), By::Nobody),
        (idle("1.5h"), By::Nobody),
        (idle("5"), By::Both),
        (idle("-5m"), By::Both),
        (idle("3 days"), By::Both),
        (eips("External", json!([good_eip])), By::Nobody),
        (eips("External", json!([])), By::Nobody),
        (eips("Internal", json!([])), By::Nobody),
        (eips("Internal", json!([good_eip])), By::Both),
        (eips("External", json!([good_eip, good_eip])), By::Both),
        (eips("External", json!(["eipalloc-0123456789abcdef"])), By::Both),
        (eips("External", json!(["eipalloc-0123456789abcdefg"])), By::Both),
        (eips("External", json!(["0123456789abcdef0"])), By::Both),
        (eips("External", numbered(10, |number| format!("eipalloc-{number:017x}"))), By::Nobody),
        (eips("External", numbered(11, |number| format!("eipalloc-{number:017x}"))), By::Both),
        (
            aws(
                "External",
                json!({"type": "NLB", "networkLoadBalancer": {
            "subnets": {"ids": ["subnet-1"], "names": ["public-b"]}, "eipAllocations": [good_eip]}}),
            ),
            By::Both,
        ),
        (
            aws(
                "External",
                json!({"type": "NLB", "networkLoadBalancer": {
            "subnets": {"ids": ["subnet-1"]}, "eipAllocations": [good_eip]}}),
            ),
            By::Nobody,
        ),
        (subnets(json!(["subnet-1"]), json!(["public-b"])), By::Nobody),
        (subnets(json!(["subnet-1", "subnet-1"]), json!([])), By::Both),
        (subnets(json!(["vpc-1"]), json!([])), By::Both),
        (subnets(json!([]), json!(["a,b"])), By::Both),
        (subnets(json!([]), json!(["subnet-1"])), By::Both),
        (subnets(numbered(10, |number| format!("subnet-{number}")), json!([])), By::Nobody),
        (subnets(numbered(10, |number| format!("subnet-{number}")), json!(["b"])), By::Both),
        (
            load_balancer(
                json!({"scope": "Internal", "providerParameters": {"type": "GCP", "gcp": {"clientAccess": "Global"}}}),
            ),
            By::Nobody,
        ),
        (
            load_balancer(
                json!({"scope": "Internal", "providerParameters": {"type": "GCP", "gcp": {"clientAccess": "Mars"}}}),
            ),
            By::Both,
        ),
        (
            load_balancer(
                json!({"scope": "External", "providerParameters": {"type": "IBM", "ibm": {"protocol": "PROXY"}}}),
            ),
            By::Nobody,
        ),
        (
            load_balancer(
                json!({"scope": "External", "providerParameters": {"type": "IBM", "ibm": {"protocol": "SCTP"}}}),
            ),
            By::Both,
        ),
    ]
}

fn openstack(scope: &str, type_: &str, address: &str) -> Value {
    let parameters = json!({"type": type_, "openstack": {"floatingIP": address}});
    load_balancer(json!({"scope": scope, "providerParameters": parameters}))
}

fn profile(ciphers: Value, oldest: &str) -> Value {
    json!({"tlsSecurityProfile": {"type": "Custom", "custom": {"ciphers": ciphers, "minTLSVersion": oldest}}})
}

fn about_routers() -> Vec<(Value, By)> {
    let client = |policy: &str, authorities: Value, patterns: Value| json!({"clientTLS": {"clientCertificatePolicy": policy, "clientCA": authorities, "allowedSubjectPatterns": patterns}});
    let tuning = |key: &str, value: Value| json!({"tuningOptions": {key: value}});
    let named = json!({"name": "ca"});
    vec![
        (openstack("External", "OpenStack", "192.0.2.9"), By::Nobody),
        (openstack("External", "OpenStack", "192.0.2.256"), By::Both),
        (openstack("Internal", "OpenStack", "192.0.2.9"), By::Schema),
        (openstack("External", "AWS", "192.0.2.9"), By::Schema),
        (load_balancer(json!({"scope": "External", "providerParameters": {"type": "VSphere"}})), By::Nobody),
        (client("Required", named.clone(), json!(["^/CN=a$"])), By::Nobody),
        (client("", json!({}), json!([])), By::Nobody),
        (client("Requird", named.clone(), json!([])), By::Both),
        (client("Required", json!({}), json!([])), By::Both),
        (client("Required", json!({"name": ""}), json!([])), By::Both),
        (json!({"tlsSecurityProfile": {"type": "Old", "old": {}}}), By::Nobody),
        (json!({"tlsSecurityProfile": {"type": "New"}}), By::Both),
        (json!({"tlsSecurityProfile": {"type": "Custom"}}), By::Both),
        (profile(json!(["ECDHE-RSA-AES128-GCM-SHA256"]), "VersionTLS12"), By::Nobody),
        (profile(json!(["ECDHE-RSA-AES128-GCM-SHA256"]), "TLS12"), By::Both),
        (tuning("threadCount", json!(64)), By::Nobody),
        (tuning("threadCount", json!(65)), By::Both),
        (tuning("maxConnections", json!(-1)), By::Nobody),
        (tuning("maxConnections", json!(0)), By::Nobody),
        (tuning("maxConnections", json!(2000)), By::Nobody),
        (tuning("maxConnections", json!(1999)), By::Both),
        (tuning("maxConnections", json!(2_000_001)), By::Both),
        (tuning("clientTimeout", json!("1m30s")), By::Nobody),
        (tuning("clientTimeout", json!("1μs")), By::Nobody),
        (tuning("clientTimeout", json!("soon")), By::Both),
        (tuning("headerBufferBytes", json!(16384)), By::Nobody),
        (tuning("headerBufferMaxRewriteBytes", json!(32768)), By::Both),
        (json!({"httpEmptyRequestsPolicy": "Ignore", "closedClientConnectionPolicy": "Abort"}), By::Nobody),
        (json!({"idleConnectionTerminationPolicy": "Later"}), By::Both),
        (
            json!({"httpErrorCodePages": {"name": "pages"}, "httpCompression": {"mimeTypes": ["text/html"]}}),
            By::Nobody,
        ),
        (json!({"haproxyVersion": "3.2"}), By::Nobody),
    ]
}

fn about_logs_and_headers() -> Vec<(Value, By)> {
    let syslog =
        |syslog: Value| json!({"logging": {"access": {"destination": {"type": "Syslog", "syslog": syslog}}}});
    let captured = |key: &str, value: Value| json!({"logging": {"access": {"destination": {"type": "Container"}, key: value}}});
    let header = |name: &str, action: Value| json!({"httpHeaders": {"actions": {"response": [{"name": name, "action": action}]}}});
    let action = |name: String| json!({"name": name, "action": {"type": "Delete"}});
    let many = |count: usize| {
        let actions: Vec<Value> = (0..count).map(|number| action(format!("X-{number}"))).collect();
        json!({"httpHeaders": {"actions": {"request": actions}}})
    };
    vec![
        (
            syslog(json!({"address": "192.0.2.1", "port": 514, "facility": "local7", "maxLength": 4096})),
            By::Nobody,
        ),
        (syslog(json!({"address": "2001:db8::1", "port": 514})), By::Nobody),
        (syslog(json!({"address": "logs.example.com", "port": 514})), By::Both),
        (syslog(json!({"address": "192.0.2.1", "port": 0})), By::Both),
        (syslog(json!({"address": "192.0.2.1"})), By::Both),
        (syslog(json!({"address": "192.0.2.1", "port": 514, "facility": "local8"})), By::Both),
        (syslog(json!({"address": "192.0.2.1", "port": 514, "maxLength": 4097})), By::Both),
        (json!({"logging": {"access": null}}), By::Nobody),
        (json!({"logging": {"access": {}}}), By::Both),
        (json!({"logging": {"access": {"destination": {"type": "File"}}}}), By::Both),
        (
            captured(
                "httpCaptureCookies",
                json!([{"matchType": "Prefix", "namePrefix": "s", "maxLength": 8}]),
            ),
            By::Nobody,
        ),
        (
            captured("httpCaptureCookies", json!([{"matchType": "Exact", "name": "a b", "maxLength": 8}])),
            By::Both,
        ),
        (
            captured("httpCaptureCookies", json!([{"matchType": "Exact", "name": "a", "maxLength": 1025}])),
            By::Both,
        ),
        (captured("httpCaptureHeaders", json!({"request": [{"name": "Host", "maxLength": 15}]})), By::Nobody),
        (captured("httpCaptureHeaders", json!({"request": [{"name": "Host", "maxLength": 0}]})), By::Both),
        (captured("logEmptyRequests", json!("Sometimes")), By::Both),
        (header("X-A", json!({"type": "Set", "set": {"value": "%[req.hdr(host)]"}})), By::Nobody),
        (header("X-A", json!({"type": "Set"})), By::Both),
        (header("X-A", json!({"type": "Append"})), By::Both),
        (header("X A", json!({"type": "Delete"})), By::Both),
        (header("Set-Cookie", json!({"type": "Delete"})), By::Both),
        (many(20), By::Nobody),
        (many(21), By::Both),
        (
            json!({"httpHeaders": {"forwardedHeaderPolicy": "Never", "headerNameCaseAdjustments": ["Host"]}}),
            By::Nobody,
        ),
        (json!({"httpHeaders": {"forwardedHeaderPolicy": "never"}}), By::Both),
    ]
}

fn object(name: &str, spec: &Value) -> Value {
    json!({
        "apiVersion": "operator.openshift.io/v1",
        "kind": "IngressController",
        "metadata": {"name": name, "namespace": "default"},
        "spec": spec,
    })
}

fn install(kubernetes: &Kubernetes) {
    kubernetes.apply_types(CRD).unwrap();
}

#[test]
fn our_own_checks() {
    for (spec, by) in samples() {
        let controller: IngressController = serde_json::from_value(object("sample", &spec)).unwrap();
        let found = refusals(&controller);
        assert_eq!(!found.is_empty(), by == By::Both, "{spec}: {found:?}");
        assert!(found.iter().all(|sentence| sentence.starts_with("spec.")), "{found:?}");
    }
}

#[test]
fn the_schema() {
    let kubernetes = kubernetes();
    install(kubernetes);
    for (spec, by) in samples() {
        let create = ["create", "--dry-run=server", "-f", "-"];
        let done =
            kubernetes.kubectl_as(kubernetes.kubeconfig(), &create, &object("sample", &spec).to_string());
        assert_eq!(done.is_err(), by != By::Nobody, "{spec}: {done:?}");
    }
}

/// Changes that are refused, from a spec to another.
#[test]
fn what_stays() {
    let kubernetes = kubernetes();
    install(kubernetes);
    let external = load_balancer(json!({"scope": "External"}));
    let with_domain = |domain: &str| json!({"domain": domain});
    for (name, from, to, refused) in [
        ("domain", with_domain("a.example"), with_domain("b.example"), Some("a domain cannot be changed")),
        // The status holds what was admitted.
        ("no-domain", with_domain("a.example"), json!({}), None),
        ("late-domain", json!({}), with_domain("a.example"), None),
        ("type", external.clone(), strategy(json!({"type": "Private"})), Some("the type cannot be changed")),
        ("no-type", external.clone(), json!({}), None),
        ("scope", external.clone(), load_balancer(json!({"scope": "Internal"})), None),
        ("ranges", external, ranges(json!(["192.0.2.0/24"])), None),
    ] {
        let replace = |spec: &Value| {
            let verb = if *spec == from { "create" } else { "replace" };
            kubernetes.kubectl_as(
                kubernetes.kubeconfig(),
                &[verb, "-f", "-"],
                &object(name, spec).to_string(),
            )
        };
        replace(&from).unwrap();
        match (replace(&to), refused) {
            (Ok(_), None) => {}
            (Err(error), Some(words)) if error.to_string().contains(words) => {}
            (done, _) => panic!("{name}: {done:?}"),
        }
    }
}

/// What the schema does not know is kept where the router reads it, and refused elsewhere.
#[test]
fn what_passes_through() {
    let kubernetes = kubernetes();
    install(kubernetes);
    let spec = json!({
        "tuningOptions": {"somethingNew": {"deep": [1, 2]}},
        "httpHeaders": {"forwardedHeaderPolicy": "Append"},
    });
    kubernetes.apply(&object("kept", &spec).to_string()).unwrap();
    let found = kubernetes.kubectl(&["get", "ingresscontroller", "kept", "-o", "json"]).unwrap();
    let found: Value = serde_json::from_str(&found).unwrap();
    assert_eq!(found["spec"], spec);
    let read: IngressController = serde_json::from_value(found).unwrap();
    assert_eq!(serde_json::to_value(&read.spec).unwrap(), spec);

    // What another operator understands is not lost by ours.
    let network = json!({"protocol": "PROXY", "securityGroups": ["sg-0123456789abcdef0"]});
    let aws = aws("External", json!({"type": "NLB", "networkLoadBalancer": network}));
    kubernetes.apply(&object("groups", &aws).to_string()).unwrap();
    let found = kubernetes.kubectl(&["get", "ingresscontroller", "groups", "-o", "json"]).unwrap();
    let read: IngressController = serde_json::from_str(&found).unwrap();
    let written = serde_json::to_value(&read.spec).unwrap();
    let path = "/endpointPublishingStrategy/loadBalancer/providerParameters/aws/networkLoadBalancer";
    assert_eq!(written.pointer(path), Some(&network));

    let slip = load_balancer(json!({"scope": "External", "allowedSourceRange": ["192.0.2.0/24"]}));
    let done = kubernetes.apply(&object("slip", &slip).to_string());
    assert!(done.unwrap_err().to_string().contains("allowedSourceRange"), "a slip is told");
}
