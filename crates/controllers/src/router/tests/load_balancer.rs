use portcullis_kube_api::SOURCE_RANGES;

use super::*;

/// The annotations that are not the same for all platforms, without the common start of their names.
fn own_annotations(load_balancer: &Value, platform: Platform) -> Vec<String> {
    let made = service(load_balancer, platform);
    let found = made.metadata.annotations.unwrap();
    // On the platforms of IBM one node gets everything, and sends it on.
    let ibm = matches!(platform, Platform::Ibm | Platform::PowerVs);
    let fallback = found.get("traffic-policy.network.alpha.openshift.io/local-with-fallback");
    assert_eq!(fallback.map(String::as_str), (!ibm).then_some(""));
    let policy = made.spec.unwrap().external_traffic_policy.unwrap();
    assert_eq!(policy, if ibm { "Cluster" } else { "Local" });
    let own = found.iter().filter(|(key, _)| !key.contains("local-with-fallback"));
    own.map(|(key, value)| {
        let key = key.strip_prefix("service.beta.kubernetes.io/").unwrap_or(key);
        format!("{}={value}", key.strip_prefix("aws-load-balancer-").unwrap_or(key))
    })
    .collect()
}

#[test]
fn what_each_platform_is_told() {
    let external = json!({"scope": "External"});
    let internal = json!({"scope": "Internal"});
    let aws =
        |scope: &str, aws: Value| json!({"scope": scope, "providerParameters": {"type": "AWS", "aws": aws}});
    let gcp = |access: &str| {
        let parameters = json!({"type": "GCP", "gcp": {"clientAccess": access}});
        json!({"scope": "Internal", "providerParameters": parameters})
    };
    let proxy =
        json!({"scope": "External", "providerParameters": {"type": "IBM", "ibm": {"protocol": "PROXY"}}});
    let checks = [
        "healthcheck-healthy-threshold=2",
        "healthcheck-interval=5",
        "healthcheck-timeout=4",
        "healthcheck-unhealthy-threshold=2",
    ];
    let nlb_checks = checks.map(|check| check.replace("interval=5", "interval=10"));
    let joined = |before: &[&str], checks: &[String], after: &[&str]| -> Vec<String> {
        let before = before.iter().map(|text| (*text).to_owned());
        before.chain(checks.iter().cloned()).chain(after.iter().map(|text| (*text).to_owned())).collect()
    };
    let checks = checks.map(str::to_owned);
    let eip = "eipalloc-0123456789abcdef0";
    for (load_balancer, platform, expected) in [
        (external.clone(), Platform::Aws, joined(&[], &checks, &["proxy-protocol=*"])),
        (internal.clone(), Platform::Aws, joined(&[], &checks, &["internal=true", "proxy-protocol=*"])),
        (
            aws(
                "External",
                json!({"type": "Classic", "classicLoadBalancer": {"connectionIdleTimeout": "1m30s", "subnets": {"names": ["b"], "ids": ["subnet-1"]}}}),
            ),
            Platform::Aws,
            joined(&["connection-idle-timeout=90"], &checks, &["proxy-protocol=*", "subnets=subnet-1,b"]),
        ),
        (
            aws(
                "External",
                json!({"type": "NLB", "networkLoadBalancer": {"eipAllocations": [eip], "subnets": {"ids": ["subnet-1"]}}}),
            ),
            Platform::Aws,
            joined(&[&format!("eip-allocations={eip}")], &nlb_checks, &["subnets=subnet-1", "type=nlb"]),
        ),
        (external.clone(), Platform::Azure, vec![]),
        (internal.clone(), Platform::Azure, vec!["azure-load-balancer-internal=true".into()]),
        (external.clone(), Platform::Gcp, vec![]),
        (internal.clone(), Platform::Gcp, vec!["cloud.google.com/load-balancer-type=Internal".into()]),
        (
            gcp("Global"),
            Platform::Gcp,
            vec![
                "cloud.google.com/load-balancer-type=Internal".into(),
                "networking.gke.io/internal-load-balancer-allow-global-access=true".into(),
            ],
        ),
        (
            external.clone(),
            Platform::Ibm,
            vec!["service.kubernetes.io/ibm-load-balancer-cloud-provider-ip-type=public".into()],
        ),
        (
            internal.clone(),
            Platform::PowerVs,
            vec!["service.kubernetes.io/ibm-load-balancer-cloud-provider-ip-type=private".into()],
        ),
        (
            proxy.clone(),
            Platform::PowerVs,
            vec!["service.kubernetes.io/ibm-load-balancer-cloud-provider-ip-type=public".into()],
        ),
        (
            aws("External", json!({"type": "NLB", "networkLoadBalancer": {"protocol": "PROXY"}})),
            Platform::Aws,
            joined(
                &[],
                &nlb_checks,
                &[
                    "target-group-attributes=preserve_client_ip.enabled=false,proxy_protocol_v2.enabled=true",
                    "type=nlb",
                ],
            ),
        ),
        (
            proxy,
            Platform::Ibm,
            vec![
                "service.kubernetes.io/ibm-load-balancer-cloud-provider-enable-features=proxy-protocol"
                    .into(),
                "service.kubernetes.io/ibm-load-balancer-cloud-provider-ip-type=public".into(),
            ],
        ),
        (internal.clone(), Platform::OpenStack, vec!["openstack-internal-load-balancer=true".into()]),
        (internal, Platform::BareMetal, vec![]),
        (external, Platform::Other, vec![]),
    ] {
        assert_eq!(own_annotations(&load_balancer, platform), expected, "{platform:?} {load_balancer}");
    }
}

#[test]
fn what_a_load_balancer_service_is() {
    let ranges = json!({"scope": "External", "allowedSourceRanges": ["192.0.2.0/24"]});
    let class = Some("portcullis.dev/aws-nlb".to_owned());
    let settings = RouterSettings { load_balancer_class: class.clone(), ..settings(Platform::Other) };
    let spec = load_balancer_service(&balanced(&ranges), &settings).unwrap().spec.unwrap();
    assert_eq!(spec.type_.as_deref(), Some("LoadBalancer"));
    assert_eq!(spec.load_balancer_class, class);
    assert_eq!(spec.load_balancer_source_ranges, Some(vec!["192.0.2.0/24".to_owned()]));
    assert_eq!(spec.external_traffic_policy.as_deref(), Some("Local"));
    assert_eq!(spec.internal_traffic_policy.as_deref(), Some("Cluster"));
    let parameters = json!({"type": "OpenStack", "openstack": {"floatingIP": "192.0.2.9"}});
    let floating = json!({"scope": "External", "providerParameters": parameters});
    assert_eq!(
        service(&floating, Platform::OpenStack).spec.unwrap().load_balancer_ip.as_deref(),
        Some("192.0.2.9")
    );
    let parameters = json!({"type": "OpenStack", "openstack": {"floatingIP": "192.0.2.9"}});
    let inside = json!({"scope": "Internal", "providerParameters": parameters});
    assert_eq!(service(&inside, Platform::OpenStack).spec.unwrap().load_balancer_ip, None);
    let off = json!({"unsupportedConfigOverrides": {"localWithFallback": "false"}, "endpointPublishingStrategy": {"type": "LoadBalancerService"}});
    let annotations = load_balancer_service(&controller(&off), &settings).unwrap().metadata.annotations;
    assert!(annotations.unwrap().is_empty());
}

type Edit = fn(&mut Service);

/// Somebody edits what is there: what is put back, and what is left.
#[test]
fn what_is_put_back() {
    let ranges = json!({"scope": "External", "allowedSourceRanges": ["192.0.2.0/24"]});
    let desired = service(&ranges, Platform::Aws);
    assert_eq!(changed_load_balancer(&desired, &desired), None);
    let annotate = |service: &mut Service, key: &str, value: &str| {
        service.metadata.annotations.get_or_insert_default().insert(key.to_owned(), value.to_owned());
    };
    let left: [(&str, Edit); 8] = [
        ("ports", |service| service.spec.as_mut().unwrap().ports.as_mut().unwrap()[0].port = 8080),
        ("a node port", |service| {
            service.spec.as_mut().unwrap().ports.as_mut().unwrap()[0].node_port = Some(30080);
        }),
        ("type", |service| service.spec.as_mut().unwrap().type_ = Some("ClusterIP".into())),
        ("selector", |service| service.spec.as_mut().unwrap().selector = None),
        ("policy", |service| service.spec.as_mut().unwrap().external_traffic_policy = Some("Cluster".into())),
        ("address", |service| service.spec.as_mut().unwrap().load_balancer_ip = Some("192.0.2.1".into())),
        ("labels", |service| {
            service.metadata.labels.as_mut().unwrap().insert("team".into(), "shop".into());
        }),
        ("finalizers", |service| service.metadata.finalizers = Some(vec!["other".into()])),
    ];
    for (what, edit) in left {
        let mut current = desired.clone();
        edit(&mut current);
        assert_ne!(current, desired, "{what}");
        assert_eq!(changed_load_balancer(&current, &desired), None, "{what}");
    }
    for (key, kept) in [
        ("service.beta.kubernetes.io/aws-load-balancer-healthcheck-interval", false),
        ("service.beta.kubernetes.io/aws-load-balancer-connection-idle-timeout", false),
        ("service.beta.kubernetes.io/aws-load-balancer-proxy-protocol", false),
        ("service.beta.kubernetes.io/aws-load-balancer-additional-resource-tags", false),
        ("networking.gke.io/internal-load-balancer-allow-global-access", false),
        ("traffic-policy.network.alpha.openshift.io/local-with-fallback", false),
        ("service.kubernetes.io/ibm-load-balancer-cloud-provider-enable-features", false),
        ("service.beta.kubernetes.io/aws-load-balancer-target-group-attributes", true),
        (SOURCE_RANGES, false),
        ("service.beta.kubernetes.io/aws-load-balancer-type", true),
        ("service.beta.kubernetes.io/aws-load-balancer-subnets", true),
        ("service.beta.kubernetes.io/aws-load-balancer-eip-allocations", true),
        ("service.beta.kubernetes.io/aws-load-balancer-internal", true),
        ("example.com/own", true),
    ] {
        let mut current = desired.clone();
        annotate(&mut current, key, "edited");
        let changed = changed_load_balancer(&current, &desired);
        assert_eq!(changed, (!kept).then(|| desired.clone()), "{key}");
    }
    let mut current = desired.clone();
    current.spec.as_mut().unwrap().load_balancer_source_ranges = Some(vec!["0.0.0.0/0".into()]);
    annotate(&mut current, SOURCE_RANGES, "");
    current.metadata.resource_version = Some("7".into());
    let changed = changed_load_balancer(&current, &desired).unwrap();
    assert_eq!(
        patch(&current, &changed),
        json!({
            "metadata": {"resourceVersion": "7", "annotations": {SOURCE_RANGES: null}},
            "spec": {"loadBalancerSourceRanges": ["192.0.2.0/24"]},
        })
    );
    assert_eq!(changed_load_balancer(&changed, &desired), None);
}

#[test]
fn what_needs_another_load_balancer() {
    let external = json!({"scope": "External"});
    let internal = json!({"scope": "Internal"});
    let nlb = |network: Value| {
        let aws = json!({"type": "NLB", "networkLoadBalancer": network});
        json!({"scope": "External", "providerParameters": {"type": "AWS", "aws": aws}})
    };
    let subnets = |ids: &[&str]| nlb(json!({"subnets": {"ids": ids}}));
    let eips = nlb(json!({"eipAllocations": ["eipalloc-0123456789abcdef0"]}));
    let floating = |address: &str| json!({"scope": "External", "providerParameters": {"type": "OpenStack", "openstack": {"floatingIP": address}}});
    for (platform, from, to, what) in [
        (Platform::Aws, &external, &external, &[][..]),
        (Platform::Aws, &external, &internal, &["scope"]),
        (Platform::Ibm, &internal, &external, &["scope"]),
        (Platform::PowerVs, &internal, &external, &["scope"]),
        (Platform::OpenStack, &internal, &external, &["scope"]),
        // These change it in place.
        (Platform::Azure, &internal, &external, &[]),
        (Platform::Gcp, &external, &internal, &[]),
        // Nobody has a word for it here, so nothing would ever come of waiting.
        (Platform::BareMetal, &external, &internal, &[]),
        (Platform::Other, &external, &internal, &[]),
        (Platform::Aws, &external, &nlb(json!({})), &["type"]),
        (Platform::Aws, &nlb(json!({})), &internal, &["scope", "type"]),
        (Platform::Aws, &subnets(&["subnet-1", "subnet-2"]), &subnets(&["subnet-2", "subnet-1"]), &[]),
        (Platform::Aws, &subnets(&["subnet-1"]), &subnets(&["subnet-2"]), &["subnets"]),
        (Platform::Aws, &subnets(&["subnet-1"]), &nlb(json!({})), &["subnets"]),
        (Platform::Aws, &nlb(json!({})), &eips, &["Elastic IPs"]),
        (Platform::OpenStack, &floating("192.0.2.9"), &floating("192.0.2.10"), &["floating IP"]),
        (Platform::OpenStack, &external, &floating("192.0.2.10"), &["floating IP"]),
        (Platform::OpenStack, &floating("192.0.2.9"), &external, &[]),
    ] {
        let (controller, settings) = (balanced(to), settings(platform));
        let current = service(from, platform);
        let desired = service(to, platform);
        let found = replacement(&controller, &current, &desired, &settings);
        let found: Vec<&str> = found.iter().map(|one| one.what.as_str()).collect();
        assert_eq!(found, what, "{platform:?} {from} {to}");
        assert!(replacement(&controller, &desired, &desired, &settings).is_empty(), "once it was replaced");
    }
    let settings = settings(Platform::Aws);
    let found = replacement(
        &balanced(&internal),
        &service(&external, Platform::Aws),
        &service(&internal, Platform::Aws),
        &settings,
    );
    assert_eq!(
        found[0].message,
        "The scope of the load balancer of Service openshift-ingress/router-shop: it is External, and IngressController shop wants Internal. \
         To have another load balancer made, with another address: `kubectl -n openshift-ingress delete service router-shop`. \
         To leave it as it is: `kubectl -n openshift-ingress-operator patch ingresscontroller shop --type=merge -p \
         '{\"spec\":{\"endpointPublishingStrategy\":{\"loadBalancer\":{\"scope\":\"External\"},\"type\":\"LoadBalancerService\"}}}'`."
    );
    let found = replacement(
        &balanced(&nlb(json!({}))),
        &service(&subnets(&["subnet-1"]), Platform::Aws),
        &service(&nlb(json!({})), Platform::Aws),
        &settings,
    );
    assert!(
        found[0].message.contains("it is subnet-1, and IngressController shop wants chosen by AWS"),
        "{}",
        found[0].message
    );
    assert!(
        found[0].message.contains(r#""networkLoadBalancer":{"subnets":{"ids":["subnet-1"],"names":[]}}"#),
        "{}",
        found[0].message
    );
    let with_class =
        RouterSettings { load_balancer_class: Some("portcullis.dev/aws-nlb".into()), ..settings.clone() };
    let desired = load_balancer_service(&balanced(&external), &with_class).unwrap();
    let found = replacement(&balanced(&external), &service(&external, Platform::Aws), &desired, &with_class);
    assert_eq!(
        found[0].message,
        "Service openshift-ingress/router-shop is of no class, and class portcullis.dev/aws-nlb is configured. \
         To have another load balancer made, with another address: `kubectl -n openshift-ingress delete service router-shop`. \
         To leave it as it is, configure no class."
    );
}

/// Which changes by others cannot wait.
#[test]
fn who_lets_in_more() {
    let with = |ranges: &[&str], annotation: Option<&str>| -> Service {
        let annotations = annotation.map(|text| json!({SOURCE_RANGES: text}));
        object(
            json!({"metadata": {"annotations": annotations}, "spec": {"loadBalancerSourceRanges": ranges}}),
        )
    };
    let narrow = with(&["192.0.2.0/25"], None);
    for (current, expected) in [
        (with(&["192.0.2.0/25"], None), false),
        (with(&["192.0.2.1/32", "192.0.2.7/32"], None), false),
        (with(&["192.0.2.0/24"], None), true),
        (with(&["192.0.2.0/25", "::/0"], None), true),
        (with(&[], None), true),
        (with(&[], Some("192.0.2.1/32")), true),
    ] {
        assert_eq!(lets_in_more(&current, &narrow), expected, "{current:?}");
        assert!(!lets_in_more(&current, &with(&[], None)), "everybody may");
    }
    let internal = service(&json!({"scope": "Internal"}), Platform::Azure);
    let external = service(&json!({"scope": "External"}), Platform::Azure);
    assert!(lets_in_more(&external, &internal) && !lets_in_more(&internal, &external));
}
