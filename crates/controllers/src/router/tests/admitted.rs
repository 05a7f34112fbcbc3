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
