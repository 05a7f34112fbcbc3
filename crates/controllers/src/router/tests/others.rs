//! What a router has besides its Deployment and its load balancer, and what all routers share.

use super::*;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

fn openshift() -> RouterSettings {
    RouterSettings { openshift: true, monitoring: true, ..settings(Platform::BareMetal) }
}

#[test]
fn how_many_may_go() {
    for (replicas, expected) in [
        (0, None),
        (1, None),
        (2, Some(IntOrString::Int(1))),
        (3, Some(IntOrString::String("25%".to_owned()))),
        (40, Some(IntOrString::String("25%".to_owned()))),
    ] {
        let found = disruption_budget(&controller(&json!({"replicas": replicas})), &openshift());
        assert_eq!(found.and_then(|found| found.spec.unwrap().max_unavailable), expected, "{replicas}");
    }
    let single = RouterSettings { single_replica: true, ..openshift() };
    assert_eq!(disruption_budget(&controller(&json!({})), &single), None);
}

#[test]
fn only_on_openshift() {
    let (wanted, other) = (controller(&json!({})), settings(Platform::BareMetal));
    let class = ingress_class(&wanted, &openshift()).unwrap();
    assert_eq!(class.metadata.name.as_deref(), Some("openshift-shop"));
    assert_eq!(class.spec.unwrap().controller.as_deref(), Some("openshift.io/ingress-to-route"));
    assert_eq!(ingress_class(&wanted, &other), None);
    let monitor = service_monitor(&wanted, &openshift()).unwrap();
    let server = "/endpoints/0/tlsConfig/serverName";
    assert_eq!(monitor.spec.pointer(server), Some(&json!("router-internal-shop.openshift-ingress.svc")));
    let plain = RouterSettings { openshift: false, ..openshift() };
    assert_eq!(
        service_monitor(&wanted, &plain),
        None,
        "a token would go over the wire for everybody to read"
    );
    let quiet = RouterSettings { monitoring: false, ..openshift() };
    assert_eq!(service_monitor(&wanted, &quiet), None);
    assert!(collector(&openshift()).is_some() && collector(&quiet).is_none() && collector(&plain).is_none());
    assert!(service_authority(&openshift()).is_some() && service_authority(&other).is_none());
    let may_use = |settings: &RouterSettings| {
        let rules = cluster_role(settings).rules.unwrap();
        rules.iter().any(|rule| rule.verbs.contains(&"use".to_owned()))
    };
    assert!(may_use(&openshift()) && !may_use(&other));
    let annotations = internal_service(&wanted, &openshift()).unwrap().metadata.annotations.unwrap();
    assert_eq!(
        annotations["service.alpha.openshift.io/serving-cert-secret-name"],
        "router-metrics-certs-shop"
    );
}

/// The labels of a namespace are put back, and it stays whose it is.
#[test]
fn the_namespace() {
    let settings = openshift();
    let desired = namespace(&settings);
    let current = object(json!({"metadata": {
        "name": "openshift-ingress",
        "labels": {"policy-group.network.openshift.io/ingress": "no", "team": "edge"},
        "annotations": {"openshift.io/node-selector": "role=infra"},
    }}));
    let found = changed_namespace(&current, &desired).unwrap();
    let labels = found.metadata.labels.clone().unwrap();
    assert_eq!(labels["policy-group.network.openshift.io/ingress"], "");
    assert_eq!(labels["pod-security.kubernetes.io/enforce"], "privileged");
    assert_eq!(labels["openshift.io/cluster-monitoring"], "true");
    assert_eq!(labels["team"], "edge");
    assert!(!is_shared(&found.metadata));
    let annotations = found.metadata.annotations.clone().unwrap();
    assert_eq!(annotations["openshift.io/node-selector"], "role=infra", "somebody chose that");
    assert_eq!(annotations["workload.openshift.io/allowed"], "management");
    assert_eq!(changed_namespace(&found, &desired), None);
    assert_eq!(changed_namespace(&desired, &desired), None);
}

#[test]
fn ports_of_nodes() {
    let wanted = controller(&json!({"endpointPublishingStrategy": {"type": "NodePortService"}}));
    let settings = settings(Platform::BareMetal);
    let made = |present: &Present<'_>| node_port_service(&wanted, &settings, present).unwrap();
    let first = made(&Present::default());
    let labels = first.metadata.labels.clone().unwrap();
    assert_eq!((labels["app"].as_str(), labels["router"].as_str()), ("router", "router-shop"));
    let names = |service: &Service| -> Vec<String> {
        let ports = service.spec.as_ref().unwrap().ports.clone().unwrap();
        ports.into_iter().filter_map(|port| port.name).collect()
    };
    assert_eq!(names(&first), ["http", "https", "metrics"]);
    let present = Present { node_port: Some(&first), ..Present::default() };
    assert_eq!(made(&present), first);
    let mut fewer = first.clone();
    fewer.spec.as_mut().unwrap().ports.as_mut().unwrap().pop();
    let present = Present { node_port: Some(&fewer), ..Present::default() };
    assert_eq!(names(&made(&present)), ["http", "https"], "metrics are not for everybody");
    assert_eq!(changed(&fewer, &made(&present)), None);
}

/// What is ours by name alone, and where.
#[test]
fn whose_they_are() {
    let named = |labels: Value| -> ObjectMeta { object(json!({"name": "router-shop", "labels": labels})) };
    let ours = named(json!({OWNING_LABEL: "shop"}));
    let (bare, theirs) = (named(json!({})), named(json!({OWNING_LABEL: "other"})));
    for (metadata, anywhere, on_openshift) in
        [(&ours, true, true), (&bare, false, true), (&theirs, false, false)]
    {
        assert_eq!(is_of(metadata, "shop", &settings(Platform::Aws)), anywhere, "{metadata:?}");
        assert_eq!(is_of(metadata, "shop", &openshift()), on_openshift, "{metadata:?}");
    }
}
