mod admitted;
mod load_balancer;
mod options;
mod others;
mod shape;
mod waiting;

use super::*;
use portcullis_kube_api::ingress::refusals;
use serde_json::json;

fn controller(spec: &Value) -> IngressController {
    let metadata = json!({"name": "shop", "namespace": "openshift-ingress-operator"});
    let controller = object(json!({"metadata": metadata, "spec": spec}));
    assert_eq!(refusals(&controller), [""; 0], "{spec}");
    controller
}

fn balanced(load_balancer: &Value) -> IngressController {
    let strategy = json!({"type": "LoadBalancerService", "loadBalancer": load_balancer});
    controller(&json!({"domain": "shop.example.com", "endpointPublishingStrategy": strategy}))
}

fn settings(platform: Platform) -> RouterSettings {
    RouterSettings {
        image: "registry.example.com/router:1".to_owned(),
        platform,
        default_domain: Some("apps.example.com".to_owned()),
        ..RouterSettings::default()
    }
}

fn service(load_balancer: &Value, platform: Platform) -> Service {
    load_balancer_service(&balanced(load_balancer), &settings(platform)).unwrap()
}

#[test]
fn what_is_left_open_is_filled_in() {
    for (platform, type_) in [
        (Platform::Aws, "LoadBalancerService"),
        (Platform::Azure, "LoadBalancerService"),
        (Platform::Gcp, "LoadBalancerService"),
        (Platform::Ibm, "LoadBalancerService"),
        (Platform::PowerVs, "LoadBalancerService"),
        (Platform::OpenStack, "HostNetwork"),
        (Platform::BareMetal, "HostNetwork"),
        (Platform::Other, "HostNetwork"),
    ] {
        let found = strategy(&controller(&json!({})), &settings(platform));
        assert_eq!(found.type_.as_str(), type_, "{platform:?}");
        assert_eq!(found.load_balancer.is_some(), type_ == "LoadBalancerService");
    }
    let found = strategy(&controller(&json!({})), &settings(Platform::Aws));
    assert_eq!(
        serde_json::to_value(&found).unwrap(),
        json!({"type": "LoadBalancerService", "loadBalancer": {
            "scope": "External",
            "dnsManagementPolicy": "Managed",
            "providerParameters": {"type": "AWS", "aws": {"type": "Classic"}},
        }})
    );
    let found = strategy(&controller(&json!({})), &settings(Platform::BareMetal));
    assert_eq!(
        serde_json::to_value(&found).unwrap(),
        json!({"type": "HostNetwork", "hostNetwork": {
            "protocol": "TCP", "httpPort": 80, "httpsPort": 443, "statsPort": 1936,
        }})
    );
    let mut admitted = controller(&json!({}));
    admitted.status.endpoint_publishing_strategy = Some(EndpointPublishingStrategy {
        type_: PublishingType::Private,
        ..EndpointPublishingStrategy::default()
    });
    assert_eq!(strategy(&admitted, &settings(Platform::Aws)).type_, PublishingType::Private);
    let settings = |single_replica| RouterSettings { single_replica, ..settings(Platform::Other) };
    assert_eq!(replicas(&controller(&json!({})), &settings(true)), 1);
    assert_eq!(replicas(&controller(&json!({})), &settings(false)), 2);
    assert_eq!(replicas(&controller(&json!({"replicas": 0})), &settings(false)), 0);
    assert_eq!(domain(&controller(&json!({})), &settings(true)), Some("apps.example.com"));
    assert_eq!(domain(&controller(&json!({"domain": "a.example"})), &settings(true)), Some("a.example"));
}

#[test]
fn which_services_there_are() {
    let names = |type_: &str| {
        let wanted = controller(&json!({"endpointPublishingStrategy": {"type": type_}}));
        let settings = settings(Platform::Aws);
        let services = [
            internal_service(&wanted, &settings),
            load_balancer_service(&wanted, &settings),
            node_port_service(&wanted, &settings, &Present::default()),
        ];
        let services = services.into_iter().flatten();
        services
            .map(|service| {
                assert!(belongs_to(&service.metadata, "shop"));
                assert!(!belongs_to(&service.metadata, "other"));
                assert_eq!(service.metadata.namespace.as_deref(), Some("openshift-ingress"));
                service.metadata.name.unwrap()
            })
            .collect::<Vec<_>>()
    };
    assert_eq!(names("LoadBalancerService"), ["router-internal-shop", "router-shop"]);
    assert_eq!(names("NodePortService"), ["router-internal-shop", "router-nodeport-shop"]);
    assert_eq!(names("HostNetwork"), ["router-internal-shop"]);
    assert_eq!(names("Private"), ["router-internal-shop"]);
}

#[test]
fn what_a_deployment_is() {
    let spec = json!({
        "domain": "shop.example.com",
        "replicas": 3,
        "routeAdmission": {"namespaceOwnership": "InterNamespaceAllowed"},
        "routeSelector": {"matchLabels": {"team": "shop"}, "matchExpressions": [{"key": "tier", "operator": "In", "values": ["a", "b"]}]},
        "nodePlacement": {"nodeSelector": {"matchLabels": {"role": "edge"}}, "tolerations": [{"key": "edge", "operator": "Exists"}]},
        "defaultCertificate": {"name": "own"},
        "endpointPublishingStrategy": {"type": "HostNetwork", "hostNetwork": {"httpPort": 8080, "protocol": "PROXY"}},
    });
    let found = deployment(&controller(&spec), &settings(Platform::BareMetal), &Present::default()).unwrap();
    let written = serde_json::to_value(&found).unwrap();
    let at = |path: &str| written.pointer(path).cloned().unwrap_or_default();
    let pod = "/spec/template/spec";
    assert_eq!(at("/spec/replicas"), 3);
    assert_eq!(at(&format!("{pod}/hostNetwork")), true);
    assert_eq!(at(&format!("{pod}/nodeSelector")), json!({"kubernetes.io/os": "linux", "role": "edge"}));
    assert_eq!(at(&format!("{pod}/volumes/0/secret/secretName")), "own");
    let container = format!("{pod}/containers/0");
    assert_eq!(
        at(&format!("{container}/ports/0")),
        json!({"name": "http", "containerPort": 8080, "hostPort": 8080, "protocol": "TCP"})
    );
    assert_eq!(
        at(&format!("{container}/livenessProbe/httpGet")),
        json!({"path": "/healthz", "port": 1936, "host": "localhost"})
    );
    let environment = at(&format!("{container}/env"));
    let told = |name: &str| {
        let found = environment.as_array().unwrap().iter().find(|entry| entry["name"] == name);
        found.map(|entry| entry["value"].as_str().unwrap().to_owned())
    };
    for (name, value) in [
        ("ROUTER_CANONICAL_HOSTNAME", Some("router-shop.shop.example.com")),
        ("ROUTER_USE_PROXY_PROTOCOL", Some("true")),
        ("ROUTER_SERVICE_HTTP_PORT", Some("8080")),
        ("ROUTER_DISABLE_NAMESPACE_OWNERSHIP_CHECK", Some("true")),
        ("ROUTER_ALLOW_WILDCARD_ROUTES", Some("false")),
        ("ROUTE_LABELS", Some("team=shop,tier in (a,b)")),
        ("NAMESPACE_LABELS", None),
    ] {
        assert_eq!(told(name).as_deref(), value, "{name}");
    }
    assert_eq!(
        selector(&controller(&json!({}))),
        "ingresscontroller.operator.openshift.io/deployment-ingresscontroller=shop"
    );
}

/// What Kubernetes fills in, and what others set, is no difference; what we want is put back.
#[test]
fn a_deployment_is_kept_as_it_should_be() {
    let wanted = controller(&json!({"domain": "shop.example.com"}));
    let desired = deployment(&wanted, &settings(Platform::BareMetal), &Present::default()).unwrap();
    let mut written = serde_json::to_value(&desired).unwrap();
    written["spec"]["template"]["spec"]["containers"][0]["terminationMessagePath"] =
        json!("/dev/termination-log");
    written["spec"]["template"]["metadata"]["annotations"] =
        json!({"kubectl.kubernetes.io/restartedAt": "now"});
    written["spec"]["progressDeadlineSeconds"] = json!(600);
    let current = object(written.clone());
    assert_eq!(changed_deployment(&current, &desired), None);
    for (path, edited) in [
        ("/spec/replicas", json!(7)),
        ("/spec/template/spec/containers/0/image", json!("other")),
        ("/spec/template/spec/containers/0/env", json!([{"name": "STATS_PORT", "value": "1"}])),
        ("/spec/template/spec/nodeSelector", json!({"kubernetes.io/os": "linux", "role": "old"})),
    ] {
        let mut edit = written.clone();
        *edit.pointer_mut(path).unwrap() = edited;
        assert_eq!(changed_deployment(&object(edit), &desired), Some(current.clone()), "{path}");
    }
}

#[test]
fn what_is_done_with_an_object() {
    let wanted = controller(&json!({}));
    let settings = settings(Platform::Other);
    let service = internal_service(&wanted, &settings).unwrap();
    let ours = |metadata: &ObjectMeta| belongs_to(metadata, "shop");
    let mut edited = service.clone();
    edited.spec.as_mut().unwrap().ports.as_mut().unwrap()[0].port = 81;
    let mut foreign = service.clone();
    foreign.metadata.labels = None;
    let step = |want: Option<&Service>, have: Option<&Service>| step(want.cloned(), have, ours, changed);
    assert_eq!(step(None, None), Step::Nothing);
    assert_eq!(step(Some(&service), None), Step::Create(service.clone()));
    assert_eq!(step(Some(&service), Some(&service)), Step::Nothing);
    assert_eq!(step(Some(&service), Some(&edited)), Step::Change(service.clone()));
    assert_eq!(step(None, Some(&service)), Step::Delete);
    assert_eq!(step(None, Some(&foreign)), Step::Nothing);
    let Step::Foreign(problem) = step(Some(&service), Some(&foreign)) else { panic!("it is not ours") };
    assert_eq!(
        problem.what,
        "Service openshift-ingress/router-internal-shop is not ours, and one of that name is needed."
    );
}

#[test]
fn what_routers_share() {
    let settings = settings(Platform::Other);
    assert!(is_shared(&namespace(&settings).metadata));
    assert!(is_shared(&service_account(&settings).metadata));
    assert!(is_shared(&cluster_role(&settings).metadata));
    let binding = cluster_role_binding(&settings);
    assert!(is_shared(&binding.metadata));
    assert_eq!(Some(binding.role_ref.name), cluster_role(&settings).metadata.name);
    assert_eq!(binding.subjects.unwrap()[0].namespace.as_deref(), Some("openshift-ingress"));
}
