//! The objects of a router, once Kubernetes has filled in what they leave open, are still what is wanted.

use std::collections::BTreeMap;
use std::fmt::Debug;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::{Metadata, Resource};
use portcullis_controllers::router::{self, Platform, Present, RouterSettings};
use portcullis_kube_api::ingress::{AwsLoadBalancerType, IngressController, refusals};
use portcullis_testkit::kubernetes;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

fn settings(namespace: &str) -> RouterSettings {
    RouterSettings {
        namespace: namespace.to_owned(),
        image: "registry.example.com/router:1".to_owned(),
        load_balancer_class: Some("example.com/none".to_owned()),
        platform: Platform::Aws,
        default_domain: Some("apps.example.com".to_owned()),
        default_aws_type: AwsLoadBalancerType::Network,
        aws_tags: BTreeMap::from([("team".to_owned(), "shop".to_owned())]),
        ..RouterSettings::default()
    }
}

/// What Kubernetes would make of an object.
fn made<T>(object: &T) -> T
where
    T: Resource + Metadata<Ty = ObjectMeta> + Serialize + DeserializeOwned,
{
    let kubernetes = kubernetes();
    let create = ["create", "--dry-run=server", "-o", "json", "-f", "-"];
    let written = serde_json::to_string(object).unwrap();
    let made = kubernetes.kubectl_as(kubernetes.kubeconfig(), &create, &written).unwrap();
    serde_json::from_str(&made).unwrap()
}

fn check<T>(desired: &T, changed: impl Fn(&T, &T) -> Option<T>)
where
    T: Resource + Metadata<Ty = ObjectMeta> + Serialize + DeserializeOwned + Debug + PartialEq,
{
    let made = made(desired);
    let found = changed(&made, desired);
    let patch = found.as_ref().map(|found| router::patch(&made, found));
    assert_eq!(patch, None::<Value>, "{}", T::KIND);
}

#[test]
fn what_kubernetes_fills_in_is_no_difference() {
    check(&router::namespace(&settings("routers")), router::changed);
    let settings = settings("default");
    check(&router::service_account(&settings), router::changed);
    // Others may have made these already, and they have one name.
    let mut role = router::cluster_role(&settings);
    role.metadata.name = Some("another".to_owned());
    check(&role, router::changed);
    let mut binding = router::cluster_role_binding(&settings);
    binding.metadata.name = Some("another".to_owned());
    check(&binding, router::changed);
    let openshift = RouterSettings { openshift: true, ..settings.clone() };
    for (type_, settings) in [
        ("LoadBalancerService", &settings),
        ("HostNetwork", &settings),
        ("NodePortService", &settings),
        ("Private", &settings),
        ("HostNetwork", &openshift),
        ("Private", &openshift),
    ] {
        let controller: IngressController = serde_json::from_value(json!({
            "metadata": {"name": type_.to_lowercase(), "namespace": "default"},
            "spec": {
                "endpointPublishingStrategy": {"type": type_},
                "nodePlacement": {
                    "tolerations": [{"key": "edge", "operator": "Exists"}],
                    "nodeSelector": {"matchExpressions": [{"key": "tier", "operator": "In", "values": ["edge"]}]},
                },
                "clientTLS": {"clientCertificatePolicy": "Required", "clientCA": {"name": "ca"}},
                "httpErrorCodePages": {"name": "pages"},
                "logging": {"access": {"destination": {"type": "Container"}}},
            },
        }))
        .unwrap();
        assert_eq!(refusals(&controller), [""; 0]);
        let present = Present { certificate: true, ..Present::default() };
        check(&router::deployment(&controller, settings, &present).unwrap(), router::changed_deployment);
        check(&router::disruption_budget(&controller, settings).unwrap(), router::changed);
        check(&router::log_config(&controller, settings).unwrap(), router::changed_config);
        if let Some(class) = router::ingress_class(&controller, settings) {
            check(&class, router::changed);
        }
        check(&router::internal_service(&controller, settings).unwrap(), router::changed);
        if let Some(service) = router::load_balancer_service(&controller, settings) {
            check(&service, router::changed_load_balancer);
        }
        if let Some(service) = router::node_port_service(&controller, settings, &Present::default()) {
            check(&service, router::changed);
        }
    }
}
