//! A change that waits for another load balancer leaves what goes with the one that is there.

use portcullis_kube_api::ingress::{AUTO_DELETE, AwsLoadBalancerType};

use super::*;
use crate::ingress::{admission, unsaid};
use crate::router::{may_be_replaced, replacement, strategy};

fn aws(type_: &str) -> Value {
    json!({"scope": "External", "providerParameters": {"type": "AWS", "aws": {"type": type_}}})
}

fn told(found: &k8s_openapi::api::apps::v1::Deployment, name: &str) -> Option<String> {
    let pod = found.spec.as_ref().unwrap().template.spec.as_ref().unwrap();
    let env = pod.containers[0].env.as_ref().unwrap();
    env.iter().find(|entry| entry.name == name).and_then(|entry| entry.value.clone())
}

#[test]
fn another_type_on_aws_waits() {
    let settings = settings(Platform::Aws);
    for (is, wanted) in [("Classic", "NLB"), ("NLB", "Classic")] {
        let current = service(&aws(is), Platform::Aws);
        let (before, after) = (balanced(&aws(is)), balanced(&aws(wanted)));
        let desired = load_balancer_service(&after, &settings).unwrap();
        assert_eq!(replacement(&after, &current, &desired, &settings).len(), 1, "{is} to {wanted}");
        assert_eq!(changed_load_balancer(&current, &desired), None, "{is} to {wanted}");
        let present = Present { service: Some(&current), ..Present::default() };
        assert_eq!(
            deployment(&after, &settings, &present),
            deployment(&before, &settings, &present),
            "{is} to {wanted}: routers are not replaced before their load balancer is"
        );
        // What goes with the old type is still put back.
        let mut edited = current.clone();
        let proxy = "service.beta.kubernetes.io/aws-load-balancer-proxy-protocol".to_owned();
        let annotations = edited.metadata.annotations.as_mut().unwrap();
        if is == "NLB" {
            annotations.insert(proxy, "*".to_owned());
        } else {
            annotations.remove(&proxy);
        }
        assert_eq!(changed_load_balancer(&edited, &desired).as_ref(), Some(&current), "{is} to {wanted}");
        // Once it was replaced.
        let found = deployment(&after, &settings, &Present { service: Some(&desired), ..Present::default() })
            .unwrap();
        let expected = (wanted == "Classic").to_string();
        assert_eq!(told(&found, "ROUTER_USE_PROXY_PROTOCOL"), Some(expected), "{is} to {wanted}");
        let without = deployment(&after, &settings, &Present::default()).unwrap();
        assert_eq!(found, without, "as if there never was another");
    }
}

/// Routers and a network load balancer speak the same, whatever the cluster wants by now.
#[test]
fn a_network_load_balancer_may_speak_it_too() {
    let settings = settings(Platform::Aws);
    let network = |network: Value| {
        let aws = json!({"type": "NLB", "networkLoadBalancer": network});
        json!({"scope": "External", "providerParameters": {"type": "AWS", "aws": aws}})
    };
    let admitted = |spec: &Value, status: &Value| {
        let mut wanted = balanced(spec);
        let strategy = json!({"type": "LoadBalancerService", "loadBalancer": status});
        wanted.status.endpoint_publishing_strategy = Some(object(strategy));
        wanted
    };
    let (proxy, tcp, none) =
        (network(json!({"protocol": "PROXY"})), network(json!({"protocol": "TCP"})), network(json!({})));
    for (spec, status, expected) in
        [(&proxy, &none, "true"), (&tcp, &proxy, "false"), (&none, &proxy, "true"), (&none, &none, "false")]
    {
        let wanted = admitted(spec, status);
        let found = deployment(&wanted, &settings, &Present::default()).unwrap();
        assert_eq!(told(&found, "ROUTER_USE_PROXY_PROTOCOL").as_deref(), Some(expected), "{spec} {status}");
    }
}

/// What others made is none of the two.
#[test]
fn a_type_of_others_says_nothing() {
    let settings = settings(Platform::Aws);
    let mut current = service(&aws("NLB"), Platform::Aws);
    let key = "service.beta.kubernetes.io/aws-load-balancer-type".to_owned();
    current.metadata.annotations.as_mut().unwrap().insert(key, "external".to_owned());
    for (type_, expected) in [("NLB", "false"), ("Classic", "true")] {
        let found = deployment(
            &balanced(&aws(type_)),
            &settings,
            &Present { service: Some(&current), ..Present::default() },
        );
        assert_eq!(told(&found.unwrap(), "ROUTER_USE_PROXY_PROTOCOL").as_deref(), Some(expected));
    }
}

/// What only the Service says about clients would be gone with it.
#[test]
fn nobody_is_let_in_by_a_replacement() {
    let settings = settings(Platform::Aws);
    let mut wanted = balanced(&json!({"scope": "Internal"}));
    let mut current = service(&json!({"scope": "External"}), Platform::Aws);
    wanted.metadata.annotations.get_or_insert_default().insert(AUTO_DELETE.to_owned(), String::new());
    let message = |wanted: &IngressController, current: &Service| {
        let desired = load_balancer_service(wanted, &settings).unwrap();
        let [one] = <[_; 1]>::try_from(replacement(wanted, current, &desired, &settings)).unwrap();
        one.message
    };
    let may = |wanted: &IngressController, current: &Service| {
        may_be_replaced(wanted, current, &load_balancer_service(wanted, &settings).unwrap())
    };
    assert!(may(&wanted, &current));
    assert!(!message(&wanted, &current).contains("everybody let in"));
    current.spec.as_mut().unwrap().load_balancer_source_ranges = Some(vec!["192.0.2.0/24".to_owned()]);
    assert!(!may(&wanted, &current));
    assert!(message(&wanted, &current).contains("First give the ranges of Service"));
    let ranges = json!({"scope": "Internal", "allowedSourceRanges": ["192.0.2.0/24"]});
    let moved = IngressController { spec: balanced(&ranges).spec, ..wanted };
    assert!(may(&moved, &current), "the spec has them by now");
}

/// Whoever makes only network load balancers is asked for nothing else.
#[test]
fn a_class_that_has_one_type() {
    let ours = RouterSettings {
        network_only: true,
        load_balancer_class: Some("portcullis.dev/aws-nlb".to_owned()),
        default_aws_type: AwsLoadBalancerType::Network,
        ..settings(Platform::Aws)
    };
    let new = balanced(&json!({"scope": "External"}));
    let found = load_balancer_service(&new, &ours).unwrap();
    let annotations = found.metadata.annotations.unwrap();
    assert_eq!(
        annotations.get("service.beta.kubernetes.io/aws-load-balancer-type").map(String::as_str),
        Some("nlb")
    );
    assert!(!annotations.contains_key("service.beta.kubernetes.io/aws-load-balancer-proxy-protocol"));
    let routers = deployment(&new, &ours, &Present::default()).unwrap();
    assert_ne!(told(&routers, "ROUTER_USE_PROXY_PROTOCOL").as_deref(), Some("true"));
    // One that was admitted with another type by somebody else.
    let mut before = new.clone();
    before.status.endpoint_publishing_strategy = balanced(&aws("Classic")).spec.endpoint_publishing_strategy;
    let aws_type =
        strategy(&before, &ours).load_balancer.unwrap().provider_parameters.unwrap().aws.unwrap().type_;
    assert_eq!(aws_type, AwsLoadBalancerType::Network);
    // Who asks for another one is told that there is none.
    let all: [IngressController; 0] = [];
    let refused = admission(&balanced(&aws("Classic")), &all, &ours);
    assert!(
        refused.iter().any(|told| told.contains("`Classic` is not made by the class portcullis.dev/aws-nlb")),
        "{refused:?}"
    );
    assert!(!admission(&balanced(&aws("NLB")), &all, &ours).iter().any(|told| told.contains("not made")));
}

/// Whoever comes to a cluster with another class does not take its load balancer away.
#[test]
fn another_class_waits_for_somebody_to_say_so() {
    let theirs = settings(Platform::Aws);
    let ours = RouterSettings {
        network_only: true,
        load_balancer_class: Some("portcullis.dev/aws-nlb".to_owned()),
        default_aws_type: AwsLoadBalancerType::Network,
        ..theirs.clone()
    };
    let current = service(&aws("Classic"), Platform::Aws);
    let mut wanted = balanced(&json!({"scope": "External"}));
    wanted.metadata.annotations.get_or_insert_default().insert(AUTO_DELETE.to_owned(), String::new());
    wanted.status.endpoint_publishing_strategy = balanced(&aws("Classic")).spec.endpoint_publishing_strategy;
    let desired = load_balancer_service(&wanted, &ours).unwrap();
    let [one] = <[_; 1]>::try_from(replacement(&wanted, &current, &desired, &ours)).unwrap();
    assert_eq!(one.what, "class", "no word of a type that nobody can go back to");
    assert!(
        one.message.contains("kubectl -n openshift-ingress delete service router-shop"),
        "{}",
        one.message
    );
    assert!(!may_be_replaced(&wanted, &current, &desired));
    // Nor together with something else.
    let internal = IngressController { spec: balanced(&json!({"scope": "Internal"})).spec, ..wanted.clone() };
    let desired = load_balancer_service(&internal, &ours).unwrap();
    assert!(!may_be_replaced(&internal, &current, &desired));
    let desired = load_balancer_service(&internal, &theirs).unwrap();
    assert!(may_be_replaced(&internal, &current, &desired), "the class is the same");
    // What leads back is what is made here.
    let mut placed = service(&aws("Classic"), Platform::Aws);
    placed.spec.as_mut().unwrap().load_balancer_class.clone_from(&ours.load_balancer_class);
    let key = "service.beta.kubernetes.io/aws-load-balancer-subnets".to_owned();
    placed.metadata.annotations.as_mut().unwrap().insert(key, "subnet-1".to_owned());
    let desired = load_balancer_service(&wanted, &ours).unwrap();
    let [one] = <[_; 1]>::try_from(replacement(&wanted, &placed, &desired, &ours)).unwrap();
    assert!(one.message.contains(r#""type":"NLB""#) && !one.message.contains("Classic"), "{}", one.message);
}

#[test]
fn what_a_platform_has_no_word_for_is_told() {
    let internal = balanced(&json!({"scope": "Internal"}));
    for (platform, told) in
        [(Platform::Aws, 0), (Platform::Azure, 0), (Platform::BareMetal, 1), (Platform::Other, 1)]
    {
        assert_eq!(unsaid(&internal, &settings(platform)).len(), told, "{platform:?}");
    }
    assert_eq!(
        unsaid(&balanced(&json!({"scope": "External"})), &settings(Platform::Other)),
        Vec::<String>::new()
    );
    assert_eq!(unsaid(&balanced(&aws("NLB")), &settings(Platform::Other)).len(), 1);
    assert_eq!(unsaid(&balanced(&aws("NLB")), &settings(Platform::Aws)).len(), 0);
}
