//! What routers need besides: files, budgets, classes; and who lets go of it all.

use portcullis_controllers::router::Platform;
use portcullis_testkit::eventually;
use serde_json::{Value, json};

use crate::cluster::Cluster;

fn told(deployment: &Value, name: &str) -> Option<String> {
    let env = deployment["spec"]["template"]["spec"]["containers"][0]["env"].as_array().cloned();
    let found = env.unwrap_or_default().into_iter().find(|entry| entry["name"] == name)?;
    found["value"].as_str().map(str::to_owned)
}

/// Nobody is let in without a certificate because the authorities are not there yet.
#[tokio::test(flavor = "multi_thread")]
async fn what_routers_read() {
    let cluster = Cluster::new("read");
    let running = cluster.start(Platform::BareMetal).await;
    let spec = |policy: &str| {
        json!({
            "domain": "shop.example.com",
            "endpointPublishingStrategy": {"type": "Private"},
            "clientTLS": {"clientCertificatePolicy": policy, "clientCA": {"name": "authorities"}},
            "logging": {"access": {"destination": {"type": "Container"}}},
        })
    };
    cluster.apply_spec("shop", spec("Required"));
    eventually("it is told", || {
        let message = cluster.full_condition("shop", "DeploymentRollingOut")["message"].clone();
        let message = message.as_str().unwrap_or_default().to_owned();
        message.contains("names ConfigMap read-controllers/authorities, which is not there")
    });
    assert!(cluster.deployment("shop").is_null());
    assert_eq!(cluster.condition("shop", "Admitted"), "True/Valid");
    let create = ["create", "configmap", "authorities", "-n", &cluster.controllers()];
    cluster.kubectl(&[&create[..], &["--from-literal=ca-bundle.pem=A"]].concat());
    eventually("routers", || {
        told(&cluster.deployment("shop"), "ROUTER_MUTUAL_TLS_AUTH").as_deref() == Some("required")
    });
    assert_eq!(cluster.config_map("router-client-ca-shop")["data"], json!({"ca-bundle.pem": "A"}));
    assert!(cluster.config_map("rsyslog-conf-shop")["data"]["rsyslog.conf"].is_string());
    let containers = cluster.deployment("shop")["spec"]["template"]["spec"]["containers"].clone();
    assert_eq!(containers[1]["name"], "logs");

    // By hand: put back.
    cluster.kubectl(&["delete", "configmap", "router-client-ca-shop", "-n", &cluster.routers()]);
    eventually("the copy is back", || {
        cluster.config_map("router-client-ca-shop")["data"]["ca-bundle.pem"] == "A"
    });

    cluster.apply_spec(
        "shop",
        json!({"domain": "shop.example.com", "endpointPublishingStrategy": {"type": "Private"}}),
    );
    eventually("nothing is left", || {
        told(&cluster.deployment("shop"), "ROUTER_MUTUAL_TLS_AUTH").is_none()
            && cluster.config_map("router-client-ca-shop").is_null()
            && cluster.config_map("rsyslog-conf-shop").is_null()
    });
    running.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_certificate_that_is_there() {
    let cluster = Cluster::new("certificate");
    let secret = ["create", "secret", "generic", "router-certs-with", "-n", &cluster.routers()];
    cluster.kubectl(&[&secret[..], &["--from-literal=tls.crt=A"]].concat());
    let running = cluster.start(Platform::BareMetal).await;
    for (name, expected) in [("with", Some("/etc/pki/tls/private")), ("without", None)] {
        let domain = format!("{name}.example.com");
        cluster
            .apply_spec(name, json!({"domain": domain, "endpointPublishingStrategy": {"type": "Private"}}));
        eventually("routers", || !cluster.deployment(name).is_null());
        assert_eq!(told(&cluster.deployment(name), "DEFAULT_CERTIFICATE_DIR").as_deref(), expected, "{name}");
    }
    running.abort();
}

/// What another operator held can be deleted by us, and what we hold by the other one.
#[tokio::test(flavor = "multi_thread")]
async fn who_lets_go() {
    let cluster = Cluster::new("finalizer");
    let theirs = "ingresscontroller.operator.openshift.io/finalizer-ingresscontroller";
    let spec = json!({"domain": "shop.example.com", "endpointPublishingStrategy": {"type": "Private"}});
    cluster.apply_spec("shop", spec);
    let hold = json!({"metadata": {"finalizers": [theirs]}}).to_string();
    let patch =
        ["patch", "ingresscontroller", "shop", "-n", &cluster.controllers(), "--type=merge", "-p", &hold];
    cluster.kubectl(&patch);
    let running = cluster.start(Platform::BareMetal).await;
    cluster.wait_for("shop", "Admitted", "True/Valid");
    assert_eq!(
        cluster.controller("shop")["metadata"]["finalizers"],
        json!([theirs]),
        "nobody else's is needed"
    );
    eventually("a budget", || !cluster.budget("shop").is_null());
    cluster.kubectl(&["delete", "ingresscontroller", "shop", "-n", &cluster.controllers(), "--timeout=60s"]);
    assert!(cluster.controller("shop").is_null());
    assert!(cluster.deployment("shop").is_null());
    assert!(cluster.budget("shop").is_null());
    running.abort();
}

const MONITORS: &str = "
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: servicemonitors.monitoring.coreos.com}
spec:
  group: monitoring.coreos.com
  scope: Namespaced
  names: {kind: ServiceMonitor, plural: servicemonitors, singular: servicemonitor}
  versions:
    - name: v1
      served: true
      storage: true
      schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
";

/// What the operator of OpenShift made, which has no labels of ours, is taken over.
#[tokio::test(flavor = "multi_thread")]
async fn on_openshift() {
    let cluster = Cluster::new("openshift");
    let class = json!({
        "apiVersion": "networking.k8s.io/v1",
        "kind": "IngressClass",
        "metadata": {"name": "openshift-takeover"},
        "spec": {"controller": "openshift.io/ingress-to-route"},
    });
    cluster.apply_object(&class);
    cluster.apply_types(MONITORS);
    let mut settings = cluster.settings(Platform::BareMetal);
    settings.router.openshift = true;
    settings.router.monitoring = true;
    let running = cluster.start_with(settings).await;
    let spec = json!({"domain": "shop.example.com", "endpointPublishingStrategy": {"type": "Private"}});
    cluster.apply_spec("takeover", spec);
    let class = || -> Value {
        serde_json::from_str(&cluster.kubectl(&["get", "ingressclass", "openshift-takeover", "-o", "json"]))
            .unwrap()
    };
    eventually("a class", || class()["spec"]["parameters"]["name"] == "takeover");
    eventually("labels", || {
        let found =
            cluster.kubectl(&["get", "namespace", &cluster.routers(), "-o", "jsonpath={.metadata.labels}"]);
        found.contains("policy-group.network.openshift.io/ingress")
    });
    eventually("the authority of Services", || !cluster.config_map("service-ca-bundle").is_null());
    eventually("routers", || told(&cluster.deployment("takeover"), "DEFAULT_DESTINATION_CA_PATH").is_some());
    let monitor =
        ["get", "servicemonitor", "router-takeover", "-n", &cluster.routers(), "--ignore-not-found"];
    let generation = [&monitor[..], &["-o", "jsonpath={.metadata.generation}"]].concat();
    eventually("metrics are collected", || cluster.kubectl(&generation) == "1");
    // Something else changes: nothing is written twice.
    let version = |kind: &str, name: &str| {
        let version = "jsonpath={.metadata.resourceVersion}";
        cluster.kubectl(&["get", kind, name, "-n", &cluster.routers(), "-o", version])
    };
    let versions = || {
        [
            version("ingressclass", "openshift-takeover"),
            version("servicemonitor", "router-takeover"),
            version("service", "router-internal-takeover"),
        ]
    };
    let before = versions();
    let spec = json!({"domain": "shop.example.com", "replicas": 3, "endpointPublishingStrategy": {"type": "Private"}});
    cluster.apply_spec("takeover", spec);
    eventually("another router", || cluster.deployment("takeover")["spec"]["replicas"] == 3);
    eventually("it is told of", || {
        let found = cluster.controller("takeover");
        found["status"]["observedGeneration"] == found["metadata"]["generation"]
    });
    assert_eq!(versions(), before, "nothing is written twice");
    assert_eq!(cluster.kubectl(&generation), "1", "nothing is written twice");
    cluster.kubectl(&[
        "delete",
        "ingresscontroller",
        "takeover",
        "-n",
        &cluster.controllers(),
        "--timeout=60s",
    ]);
    let left = cluster.kubectl(&["get", "ingressclass", "openshift-takeover", "--ignore-not-found"]);
    assert!(left.is_empty(), "{left}");
    running.abort();
}
