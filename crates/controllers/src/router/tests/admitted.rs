//! What was admitted goes on, whatever the spec and the configuration say later.

use super::*;
use portcullis_kube_api::ingress::unchangeable;

fn admitted(spec: &Value, status: &Value) -> IngressController {
    let metadata = json!({"name": "shop", "namespace": "openshift-ingress-operator"});
    let controller = object(json!({"metadata": metadata, "spec": spec, "status": status}));
    assert_eq!(refusals(&controller), [""; 0], "{spec}");
    controller
}

#[test]
fn the_domain_and_the_type_stay() {
    let nlb = json!({"scope": "Internal", "providerParameters": {"type": "AWS", "aws": {"type": "NLB"}}});
    let status = json!({
        "domain": "shop.example.com",
        "endpointPublishingStrategy": {"type": "LoadBalancerService", "loadBalancer": nlb},
    });
    let settings = settings(Platform::Aws);
    let ranges = json!({"scope": "Internal", "allowedSourceRanges": ["192.0.2.0/24"]});
    for (spec, told) in [
        (json!({}), 0),
        (json!({"domain": "shop.example.com"}), 0),
        (
            json!({"domain": "other.example.com", "endpointPublishingStrategy": {"type": "LoadBalancerService", "loadBalancer": ranges}}),
            1,
        ),
        (
            json!({"domain": "other.example.com", "endpointPublishingStrategy": {"type": "Private", "loadBalancer": ranges}}),
            2,
        ),
        (json!({"endpointPublishingStrategy": {"type": "LoadBalancerService", "loadBalancer": ranges}}), 0),
    ] {
        let controller = admitted(&spec, &status);
        assert_eq!(domain(&controller, &settings), Some("shop.example.com"), "{spec}");
        let found = strategy(&controller, &settings);
        assert_eq!(found.type_, PublishingType::LoadBalancerService, "{spec}");
        let load_balancer = found.load_balancer.unwrap();
        assert_eq!(load_balancer.scope, Scope::Internal, "{spec}");
        let aws = load_balancer.provider_parameters.unwrap().aws.unwrap();
        assert_eq!(aws.type_, AwsLoadBalancerType::Network, "{spec}: not what is usual by now");
        assert_eq!(unchangeable(&controller).len(), told, "{spec}");
        let wanted = load_balancer_service(&controller, &settings).unwrap().spec.unwrap();
        let ranges = wanted.load_balancer_source_ranges.unwrap_or_default();
        assert_eq!(ranges.is_empty(), controller.wanted_ranges().is_empty(), "{spec}: ranges go on");
    }
}

/// A load balancer keeps what it was made with: it is shown so.
#[test]
fn what_a_service_has() {
    let eip = "eipalloc-0123456789abcdef0";
    let network = |network: Value| {
        let aws = json!({"type": "NLB", "networkLoadBalancer": network});
        json!({"scope": "External", "providerParameters": {"type": "AWS", "aws": aws}})
    };
    let made = network(json!({"subnets": {"ids": ["subnet-1"]}, "eipAllocations": [eip]}));
    let service = service(&made, Platform::Aws);
    for wanted in [
        network(json!({"subnets": {"ids": ["subnet-2"], "names": ["b"]}})),
        network(json!({})),
        json!({"scope": "External", "providerParameters": {"type": "AWS", "aws": {"type": "NLB"}}}),
    ] {
        let mut shown: LoadBalancerStrategy = object(wanted.clone());
        as_made(&mut shown, &service);
        assert_eq!(shown, object(made.clone()), "{wanted}");
    }
    let classic =
        json!({"scope": "External", "providerParameters": {"type": "AWS", "aws": {"type": "Classic"}}});
    let mut shown: LoadBalancerStrategy = object(classic.clone());
    as_made(&mut shown, &service);
    assert_eq!(shown, object(classic), "what is there has another type");
    let floating = |address: Value| json!({"scope": "External", "providerParameters": {"type": "OpenStack", "openstack": address}});
    let made = super::service(&floating(json!({"floatingIP": "192.0.2.9"})), Platform::OpenStack);
    let mut shown: LoadBalancerStrategy = object(floating(json!({"floatingIP": "192.0.2.10"})));
    as_made(&mut shown, &made);
    assert_eq!(shown, object(floating(json!({"floatingIP": "192.0.2.9"}))));
}

/// What goes from the spec goes: only the type and how clients are told of stay as they were admitted.
#[test]
fn parameters_leave_with_the_spec() {
    let eip = "eipalloc-0123456789abcdef0";
    let network = json!({"protocol": "PROXY", "eipAllocations": [eip], "subnets": {"ids": ["subnet-1"]}});
    let classic = json!({"connectionIdleTimeout": "1m", "subnets": {"names": ["a"]}});
    let settings = settings(Platform::Aws);
    for (aws, left) in [
        (
            json!({"type": "NLB", "networkLoadBalancer": network}),
            json!({"type": "NLB", "networkLoadBalancer": {"protocol": "PROXY"}}),
        ),
        (json!({"type": "Classic", "classicLoadBalancer": classic}), json!({"type": "Classic"})),
    ] {
        let parameters = json!({"type": "AWS", "aws": aws});
        let was = json!({"type": "LoadBalancerService", "loadBalancer": {"scope": "External", "providerParameters": parameters}});
        let status = json!({"domain": "shop.example.com", "endpointPublishingStrategy": was});
        let balanced = |load_balancer: Value| json!({"endpointPublishingStrategy": {"type": "LoadBalancerService", "loadBalancer": load_balancer}});
        for (spec, scope) in [
            (json!({}), Scope::External),
            (balanced(json!({"scope": "External"})), Scope::External),
            (balanced(json!({"scope": "Internal"})), Scope::Internal),
            (balanced(json!({"scope": "Internal", "providerParameters": {"type": "AWS"}})), Scope::Internal),
        ] {
            let found = strategy(&admitted(&spec, &status), &settings).load_balancer.unwrap();
            assert_eq!(found.scope, scope, "{spec}");
            assert_eq!(found.provider_parameters.unwrap().aws, Some(object(left.clone())), "{spec}");
        }
    }
}

/// A status with what no `IngressController` may have would be refused, whoever wrote it on the Service.
#[test]
fn what_a_status_may_say() {
    let eip = |digit: &str| format!("eipalloc-{}", digit.repeat(17));
    let made = |subnets: &str, eips: &str, scope: &str| {
        let aws = json!({"type": "NLB"});
        let strategy = json!({"scope": scope, "providerParameters": {"type": "AWS", "aws": aws}});
        let mut service = service(&strategy, Platform::Aws);
        let annotations = service.metadata.annotations.as_mut().unwrap();
        annotations
            .insert("service.beta.kubernetes.io/aws-load-balancer-subnets".to_owned(), subnets.to_owned());
        annotations.insert(
            "service.beta.kubernetes.io/aws-load-balancer-eip-allocations".to_owned(),
            eips.to_owned(),
        );
        let mut shown: LoadBalancerStrategy = object(strategy);
        as_made(&mut shown, &service);
        let shown = json!(shown.clone());
        let strategy = json!({"type": "LoadBalancerService", "loadBalancer": shown});
        admitted(&json!({"endpointPublishingStrategy": strategy}), &json!({}));
        shown["providerParameters"]["aws"]["networkLoadBalancer"].clone()
    };
    let (one, two) = (eip("1"), eip("2"));
    assert_eq!(made("", &one, "External"), json!({"eipAllocations": [one]}));
    assert_eq!(made("", &one, "Internal"), Value::Null);
    assert_eq!(
        made("subnet-1, subnet-1,subnet-!,b", &format!("x,{one},{one}, {two}"), "External"),
        json!({"subnets": {"ids": ["subnet-1"], "names": ["b"]}, "eipAllocations": [one, two]})
    );
    assert_eq!(
        made("subnet-1", &format!("{one},{two}"), "External"),
        json!({"subnets": {"ids": ["subnet-1"]}})
    );
    let many: Vec<String> = (0..12).map(|number| format!("subnet-{number}")).collect();
    assert_eq!(made(&many.join(","), "", "External")["subnets"]["ids"].as_array().map(Vec::len), Some(10));
}
