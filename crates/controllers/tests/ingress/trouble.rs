//! What goes wrong is told, and nothing else stops because of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use k8s_openapi::api::core::v1::Service;
use kube::api::{Api, Patch, PatchParams};
use kube::runtime::watcher;
use portcullis_controllers::router::Platform;
use portcullis_kube_api::SOURCE_RANGES;
use portcullis_testkit::parts::Namespace;
use portcullis_testkit::{eventually, kubernetes_in};
use serde_json::{Value, json};

use crate::cluster::{Cluster, definition};

#[tokio::test(flavor = "multi_thread")]
async fn a_service_of_others_is_left_alone() {
    let cluster = Cluster::new("foreign");
    cluster.leave_service("shop", &["10.0.0.0/8"], json!({}), false);
    let version = cluster.service("shop")["metadata"]["resourceVersion"].clone();
    let running = cluster.start(Platform::BareMetal).await;
    cluster.apply("shop", json!({"scope": "External", "allowedSourceRanges": ["192.0.2.0/24"]}));
    cluster.wait_for("shop", "LoadBalancerProgressing", "True/NoService");
    let message = cluster.full_condition("shop", "LoadBalancerProgressing")["message"].to_string();
    assert!(message.contains("Service foreign-routers/router-shop is not ours"), "{message}");
    assert_eq!(cluster.service("shop")["metadata"]["resourceVersion"], version);
    cluster.kubectl(&["delete", "service", "router-shop", "-n", &cluster.routers()]);
    cluster.wait_for("shop", "LoadBalancerProgressing", "False/LoadBalancerNotProgressing");
    running.abort();
}

/// A Service that cannot take the ranges: it is said, and the ranges come once it can.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_service_refuses_is_told() {
    let cluster = Cluster::new("refuse");
    let running = cluster.start(Platform::BareMetal).await;
    cluster.apply("shop", json!({"scope": "External"}));
    cluster.wait_for("shop", "LoadBalancerProgressing", "False/LoadBalancerNotProgressing");
    let other_type = json!({"spec": {"type": "ClusterIP", "loadBalancerClass": null, "externalTrafficPolicy": null, "allocateLoadBalancerNodePorts": null, "healthCheckNodePort": null}});
    cluster.edit_service("shop", &other_type);
    cluster.apply("shop", json!({"scope": "External", "allowedSourceRanges": ["192.0.2.0/24"]}));
    eventually("the refusal is told", || {
        let found = cluster.full_condition("shop", "LoadBalancerProgressing");
        found["message"].as_str().unwrap_or_default().contains("Kubernetes refuses the change")
    });
    assert_eq!(cluster.condition("shop", "SourceRangesEnforced"), "False/NotApplied");
    assert_eq!(cluster.condition("shop", "Progressing"), "True/IngressControllerProgressing");
    let events = cluster.kubectl(&[
        "get",
        "events",
        "-n",
        &cluster.controllers(),
        "-o",
        "jsonpath={.items[*].reason}",
    ]);
    assert!(events.contains("SyncFailed"), "{events}");
    cluster.edit_service(
        "shop",
        &json!({"spec": {"type": "LoadBalancer", "loadBalancerClass": "example.com/none"}}),
    );
    cluster.wait_for("shop", "LoadBalancerProgressing", "False/LoadBalancerNotProgressing");
    assert_eq!(cluster.service("shop")["spec"]["loadBalancerSourceRanges"], json!(["192.0.2.0/24"]));
    running.abort();
}

/// What Kubernetes takes and others stumble over: the status goes on.
#[tokio::test(flavor = "multi_thread")]
async fn the_status_does_not_freeze() {
    // A type that takes ranges in a plain form only, also in the status, as OpenShift's does.
    let kubernetes = kubernetes_in(&Namespace::host());
    let strict = definition(&kubernetes, |definition| {
        let mut schema = json!({
            "type": "array",
            "items": {"type": "string", "pattern": r"^([0-9]{1,3}\.){3}[0-9]{1,3}/[0-9]{1,2}$|^[0-9a-fA-F:]+/[0-9]{1,3}$"},
        });
        for key in ["allowedSourceRanges", "loadBalancer", "endpointPublishingStrategy"] {
            schema = json!({
                "type": "object",
                "x-kubernetes-preserve-unknown-fields": true,
                "properties": {key: schema},
            });
        }
        definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"] = schema;
    });
    let cluster = Cluster::on(&kubernetes, &strict, "freeze");
    cluster.leave_service("spaces", &[], json!({SOURCE_RANGES: "10.0.0.0/8, 192.0.2.0/24 "}), true);
    cluster.leave_service("padded", &[" 10.0.0.0/8 ", "::ffff:192.0.2.0/120"], json!({}), true);
    let running = cluster.start(Platform::BareMetal).await;
    for name in ["spaces", "padded"] {
        cluster.apply(name, json!({"scope": "External"}));
        eventually(&format!("{name}: what counts is told"), || {
            cluster.effective(name) == json!(["10.0.0.0/8", "192.0.2.0/24"])
        });
        let before = cluster.controller(name)["status"]["observedGeneration"].clone();
        cluster.apply(name, json!({"scope": "External", "dnsManagementPolicy": "Unmanaged"}));
        eventually(&format!("{name}: the status moves"), || {
            cluster.controller(name)["status"]["observedGeneration"].as_i64() > before.as_i64()
        });
    }
    // The type really refuses what was read there.
    let refused = json!({"status": {"endpointPublishingStrategy": {"type": "LoadBalancerService", "loadBalancer": {"scope": "External", "allowedSourceRanges": [" 10.0.0.0/8"]}}}});
    let patch = ["patch", "ingresscontroller", "spaces", "--subresource=status", "--type=merge", "-p"];
    let namespace = cluster.controllers();
    let refused = refused.to_string();
    let refused = [&patch[..], &[&refused, "-n", &namespace]].concat();
    assert!(kubernetes.kubectl(&refused).unwrap_err().to_string().contains("should match"));

    // One that refuses the status whatever it is: ranges go on, and Events tell.
    let stubborn = definition(&kubernetes, |definition| {
        definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"] = json!({
            "type": "object",
            "x-kubernetes-preserve-unknown-fields": true,
            "properties": {"selector": {"type": "string", "pattern": "^never$"}},
        });
    });
    kubernetes.apply_types(&stubborn).unwrap();
    cluster.apply("new", json!({"scope": "External", "allowedSourceRanges": ["192.0.2.0/24"]}));
    let events = ["get", "events", "-n", &namespace, "-o", "jsonpath={.items[*].reason}"];
    eventually("it is told", || cluster.kubectl(&events).contains("StatusNotWritten"));
    assert_eq!(cluster.service("new")["spec"]["loadBalancerSourceRanges"], json!(["192.0.2.0/24"]));
    running.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_domain_has_one_owner() {
    let cluster = Cluster::new("domain");
    let running = cluster.start(Platform::BareMetal).await;
    let spec = json!({"domain": "shop.example.com", "endpointPublishingStrategy": {"type": "Private"}});
    cluster.apply_spec("first", spec.clone());
    cluster.wait_for("first", "Admitted", "True/Valid");
    cluster.apply_spec("second", spec);
    cluster.wait_for("second", "Admitted", "False/Invalid");
    let message = cluster.full_condition("second", "Admitted")["message"].to_string();
    assert!(message.contains("conflicts with: first"), "{message}");
    assert!(cluster.deployment("second").is_null());
    cluster.apply_spec("none", json!({"endpointPublishingStrategy": {"type": "Private"}}));
    cluster.wait_for("none", "Admitted", "False/Invalid");
    cluster.kubectl(&["delete", "ingresscontroller", "first", "-n", &cluster.controllers()]);
    cluster.wait_for("second", "Admitted", "True/Valid");
    running.abort();
}

/// Somebody else who has another opinion, and never gives in: it is told, and the API is not kept busy.
#[tokio::test(flavor = "multi_thread")]
async fn two_who_write_the_same_do_not_race() {
    let cluster = Cluster::new("fight");
    let running = cluster.start(Platform::BareMetal).await;
    let apply =
        |range: &str| cluster.apply("shop", json!({"scope": "External", "allowedSourceRanges": [range]}));
    apply("192.0.2.0/24");
    cluster.wait_for("shop", "LoadBalancerProgressing", "False/LoadBalancerNotProgressing");
    let services: Api<Service> = Api::namespaced(cluster.client().await, &cluster.routers());
    let theirs = json!({"spec": {"loadBalancerSourceRanges": ["0.0.0.0/0"]}});
    let corrections = Arc::new(AtomicUsize::new(0));
    let counting = tokio::spawn({
        let (services, corrections) = (services.clone(), Arc::clone(&corrections));
        async move {
            let ours = Some(vec!["192.0.2.0/24".to_owned()]);
            let mut seen = watcher(services, watcher::Config::default()).boxed();
            while let Some(event) = seen.next().await {
                if let Ok(watcher::Event::Apply(found)) = event
                    && found.spec.unwrap().load_balancer_source_ranges == ours
                {
                    corrections.fetch_add(1, Ordering::Relaxed);
                }
            }
        }
    });
    let writes = Arc::new(AtomicUsize::new(0));
    let start = Instant::now();
    let rival = tokio::spawn({
        let writes = Arc::clone(&writes);
        async move {
            loop {
                services.patch("router-shop", &PatchParams::default(), &Patch::Merge(&theirs)).await.unwrap();
                writes.fetch_add(1, Ordering::Relaxed);
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
    });
    eventually("it is told", || {
        let found = cluster.full_condition("shop", "LoadBalancerProgressing");
        found["message"].as_str().unwrap_or_default().contains("changed by somebody else again and again")
    });
    let seen = writes.load(Ordering::Relaxed);
    eventually("the other one goes on", || writes.load(Ordering::Relaxed) > seen + 100);
    rival.abort();
    counting.abort();
    // Some at once, and then after longer and longer pauses, of ten seconds at most.
    let corrections = corrections.load(Ordering::Relaxed) as u64;
    let most = 8 + start.elapsed().as_secs() / 10;
    assert!((1..=most).contains(&corrections), "{corrections} for {} writes", writes.load(Ordering::Relaxed));
    let namespace = cluster.controllers();
    let events = ["get", "events", "-n", &namespace, "-o", "jsonpath={.items[?(@.reason==\"SyncFailed\")]}"];
    let told = cluster.kubectl(&events);
    assert!(told.contains("changed by somebody else again and again"), "{told}");
    // However often the other one wrote, it was told of a few times.
    let count = told.split("\"count\":").nth(1).and_then(|rest| rest.split([',', '}']).next()).unwrap();
    assert!(count.trim().parse::<u32>().unwrap() < 5, "{told}");
    // Who gave up does not leave the door open.
    eventually("it is put right", || {
        cluster.service("shop")["spec"]["loadBalancerSourceRanges"] == json!(["192.0.2.0/24"])
    });
    apply("198.51.100.0/24");
    cluster.wait_for("shop", "LoadBalancerProgressing", "False/LoadBalancerNotProgressing");
    assert_eq!(cluster.service("shop")["spec"]["loadBalancerSourceRanges"], json!(["198.51.100.0/24"]));
    running.abort();
}

/// A definition of the type that checks nothing.
const LAX: &str = "
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: ingresscontrollers.operator.openshift.io}
spec:
  group: operator.openshift.io
  scope: Namespaced
  names: {kind: IngressController, plural: ingresscontrollers, singular: ingresscontroller}
  versions:
    - name: v1
      served: true
      storage: true
      subresources: {status: {}}
      schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
";

/// Where the type that is installed checks less than ours: what is wrong is told, and the last good Service stays.
#[tokio::test(flavor = "multi_thread")]
async fn what_only_we_refuse() {
    let kubernetes = kubernetes_in(&Namespace::host());
    let cluster = Cluster::on(&kubernetes, LAX, "lax");
    let running = cluster.start(Platform::BareMetal).await;
    let apply =
        |ranges: Value| cluster.apply("shop", json!({"scope": "External", "allowedSourceRanges": ranges}));
    apply(json!(["192.0.2.0/24"]));
    cluster.wait_for("shop", "LoadBalancerProgressing", "False/LoadBalancerNotProgressing");
    let version = cluster.service("shop")["metadata"]["resourceVersion"].clone();
    let stays = || {
        assert_eq!(cluster.service("shop")["metadata"]["resourceVersion"], version);
        assert_eq!(cluster.effective("shop"), json!(["192.0.2.0/24"]));
        assert_eq!(cluster.condition("shop", "Degraded"), "True/DegradedConditions");
    };
    for bad in ["fe80::1%eth0/64", "s::/0", "::ffff:d.d.d.d/96", "10.0.0.0/33"] {
        apply(json!(["198.51.100.0/24", bad]));
        eventually("it is told", || {
            let found = cluster.full_condition("shop", "Admitted");
            let message = found["message"].as_str().unwrap_or_default();
            found["status"] == "False" && message.contains(&format!("allowedSourceRanges[1]: `{bad}`"))
        });
        stays();
    }
    let many = (0..4097).map(|number| format!("10.0.{}.{}/32", number / 256, number % 256));
    apply(json!(many.collect::<Vec<_>>()));
    eventually("so many are too many", || {
        let message = cluster.full_condition("shop", "Admitted")["message"].clone();
        message.as_str().unwrap_or_default().contains("there are 4097, and at most 4096 are taken")
    });
    stays();
    apply(json!(["198.51.100.0/24"]));
    cluster.wait_for("shop", "Admitted", "True/Valid");
    eventually("it goes on", || cluster.effective("shop") == json!(["198.51.100.0/24"]));
    running.abort();
}

/// What cannot be changed is told, and everything else goes on.
#[tokio::test(flavor = "multi_thread")]
async fn what_was_admitted_goes_on() {
    let kubernetes = kubernetes_in(&Namespace::host());
    let cluster = Cluster::on(&kubernetes, LAX, "admitted");
    let running = cluster.start(Platform::BareMetal).await;
    cluster.apply("shop", json!({"scope": "External", "allowedSourceRanges": ["192.0.2.0/24"]}));
    cluster.wait_for("shop", "LoadBalancerProgressing", "False/LoadBalancerNotProgressing");
    let uid = cluster.service("shop")["metadata"]["uid"].clone();
    let load_balancer = json!({"scope": "External", "allowedSourceRanges": ["198.51.100.0/24"]});
    let spec = json!({"domain": "other.example.com", "endpointPublishingStrategy": {"type": "Private", "loadBalancer": load_balancer}});
    cluster.apply_spec("shop", spec);
    eventually("ranges go on", || cluster.effective("shop") == json!(["198.51.100.0/24"]));
    cluster.wait_for("shop", "LoadBalancerProgressing", "True/OperandsProgressing");
    let message = cluster.full_condition("shop", "LoadBalancerProgressing")["message"].to_string();
    assert!(message.contains("a domain cannot be changed"), "{message}");
    assert!(message.contains("the type cannot be changed"), "{message}");
    assert_eq!(cluster.condition("shop", "Admitted"), "True/Valid");
    assert_eq!(cluster.condition("shop", "LoadBalancerManaged"), "True/WantedByEndpointPublishingStrategy");
    assert_eq!(cluster.service("shop")["metadata"]["uid"], uid);
    assert_eq!(cluster.controller("shop")["status"]["domain"], "shop.example.com");
    let events = ["get", "events", "-n", &cluster.controllers(), "-o", "jsonpath={.items[*].reason}"];
    eventually("it is told", || cluster.kubectl(&events).contains("NotChangeable"));
    running.abort();
}
