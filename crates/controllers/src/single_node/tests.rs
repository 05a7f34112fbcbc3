use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ConfigMap;
use portcullis_kube_api::host::{HOST_CLASS, LISTEN_ADDRESSES};
use portcullis_kube_api::ingress::{OWNING_LABEL, SINGLE_NODE_LABEL};
use serde_json::{Value, json};

use super::SingleNodeSettings;
use super::object::{APPLIED, Object, Whose, whose};
use super::objects::{Seen, objects, possible};
use crate::router::{AddressMode, RouterSettings, belongs_to};

fn settings(spec: &Value) -> SingleNodeSettings {
    SingleNodeSettings {
        controller: serde_json::from_value(json!({"spec": spec})).unwrap(),
        router: RouterSettings {
            image: "example.com/router:1".to_owned(),
            load_balancer_class: Some(HOST_CLASS.to_owned()),
            config_namespace: "openshift-ingress".to_owned(),
            ..RouterSettings::default()
        },
        ports: [80, 443],
        listen: Vec::new(),
        at_node: true,
        is_wanted: true,
        openshift: None,
        take_over: false,
        observe: false,
    }
}

fn find<'a>(all: &'a [Object], place: &str) -> &'a Value {
    &all.iter().find(|object| object.place() == place).unwrap_or_else(|| panic!("{place}: {all:?}")).value
}

fn environment(all: &[Object]) -> BTreeMap<String, String> {
    let containers =
        &find(all, "Deployment openshift-ingress/router-default")["spec"]["template"]["spec"]["containers"];
    let each = containers[0]["env"].as_array().unwrap().iter();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    each.map(|variable| (text(&variable["name"]), text(&variable["value"]))).collect()
}

#[test]
fn everything_is_made_and_ours() {
    let plain = objects(&settings(&json!({})), &Seen::default()).unwrap();
    let places: Vec<String> = plain.iter().map(Object::place).collect();
    assert_eq!(
        places,
        [
            "Namespace openshift-ingress",
            "ServiceAccount openshift-ingress/portcullis-router",
            "ClusterRole portcullis-single-node-router",
            "ClusterRoleBinding portcullis-single-node-router",
            "Service openshift-ingress/router-internal-default",
            "Service openshift-ingress/router-default",
            "Deployment openshift-ingress/router-default",
        ]
    );
    let seen = Seen { openshift: true, ..Seen::default() };
    let all = objects(&settings(&json!({})), &seen).unwrap();
    let more: Vec<String> = all.iter().map(Object::place).filter(|place| !places.contains(place)).collect();
    assert_eq!(more, ["ConfigMap openshift-ingress/portcullis-service-ca", "IngressClass openshift-default"]);
    for object in &all {
        let metadata = &object.value["metadata"];
        assert_eq!(metadata["labels"][SINGLE_NODE_LABEL], "default", "{}", object.place());
        assert!(metadata["annotations"][APPLIED].is_string(), "{}", object.place());
    }
    assert_eq!(find(&all, "IngressClass openshift-default")["spec"]["parameters"], Value::Null);
    let pod = &find(&all, "Deployment openshift-ingress/router-default")["spec"]["template"]["spec"];
    assert_eq!(pod["serviceAccountName"], "portcullis-router");
    let volumes = pod["volumes"].as_array().unwrap();
    assert!(
        volumes.iter().any(|volume| volume["configMap"]["name"] == "portcullis-service-ca"),
        "{volumes:?}"
    );
}

#[test]
fn nothing_of_it_is_of_an_ingress_controller() {
    let all = objects(&settings(&json!({})), &Seen { openshift: true, ..Seen::default() }).unwrap();
    for object in all {
        let metadata = serde_json::from_value(object.value["metadata"].clone()).unwrap();
        assert!(!belongs_to(&metadata, "default"), "{}", object.place());
    }
    let theirs = serde_json::from_value(json!({"labels": {OWNING_LABEL: "default"}})).unwrap();
    assert!(belongs_to(&theirs, "default"));
}

#[test]
fn all_that_can_be_there_is_known_when_it_has_to_go() {
    let spec = json!({
        "logging": {"access": {"destination": {"type": "Container"}}},
        "clientTLS": {"clientCertificatePolicy": "Required", "clientCA": {"name": "clients"}},
        "httpErrorCodePages": {"name": "pages"},
    });
    let map = |keys: &[&str]| ConfigMap {
        data: Some(keys.iter().map(|key| ((*key).to_owned(), "text".to_owned())).collect()),
        ..ConfigMap::default()
    };
    let sources = BTreeMap::from([
        ("clients".to_owned(), map(&["ca-bundle.pem"])),
        ("pages".to_owned(), map(&["error-page-503.http", "error-page-404.http"])),
    ]);
    let seen = Seen { openshift: true, certificate: true, sources };
    let all = objects(&settings(&spec), &seen).unwrap();
    let made = all.iter().skip(1).map(|object| (object.resource.kind.clone(), object.name().to_owned()));
    // What is noted while a Service is made anew is none of what the configuration asks for.
    let made = made.chain([("ConfigMap".to_owned(), "router-default-limits".to_owned())]);
    let possible: Vec<_> = possible(&settings(&json!({})))
        .into_iter()
        .map(|(resource, _, name)| (resource.kind, name))
        .collect();
    assert_eq!(made.collect::<Vec<_>>(), possible);
}

#[test]
fn ports_and_addresses_change_the_load_balancer_alone() {
    let before = objects(&settings(&json!({})), &Seen::default()).unwrap();
    let mut changed = settings(&json!({}));
    changed.ports = [8080, 8443];
    changed.listen = vec!["enp3s0".to_owned(), "192.0.2.7".to_owned()];
    let after = objects(&changed, &Seen::default()).unwrap();
    let differing: Vec<_> = before.iter().zip(&after).filter(|(one, other)| one != other).collect();
    assert_eq!(differing.len(), 1);
    let service = &differing[0].1.value;
    assert_eq!(differing[0].1.place(), "Service openshift-ingress/router-default");
    assert_eq!(service["metadata"]["annotations"][LISTEN_ADDRESSES], "enp3s0,192.0.2.7");
    let ports: Vec<_> = service["spec"]["ports"]
        .as_array()
        .unwrap()
        .iter()
        .map(|port| (&port["port"], &port["targetPort"]))
        .collect();
    assert_eq!(ports, [(&json!(8080), &json!("http")), (&json!(8443), &json!("https"))]);
    assert_eq!(service["spec"]["externalTrafficPolicy"], "Local");
    assert_eq!(service["spec"]["loadBalancerClass"], HOST_CLASS);
    let annotations = service["metadata"]["annotations"].as_object().unwrap();
    assert_eq!(annotations.len(), 2, "nothing makes a node without a router send elsewhere: {annotations:?}");
}

#[test]
fn options_reach_the_deployment() {
    for (spec, name, value) in [
        (json!({"tuningOptions": {"threadCount": 2}}), "ROUTER_THREADS", "2"),
        (json!({"tuningOptions": {"clientTimeout": "10s"}}), "ROUTER_DEFAULT_CLIENT_TIMEOUT", "10s"),
        (
            json!({"routeAdmission": {"namespaceOwnership": "InterNamespaceAllowed"}}),
            "ROUTER_DISABLE_NAMESPACE_OWNERSHIP_CHECK",
            "true",
        ),
        (json!({"httpHeaders": {"forwardedHeaderPolicy": "Never"}}), "ROUTER_SET_FORWARDED_HEADERS", "never"),
        (json!({"defaultCertificate": {"name": "mine"}}), "DEFAULT_CERTIFICATE_DIR", "/etc/pki/tls/private"),
        (json!({"domain": "apps.example.com"}), "ROUTER_DOMAIN", "apps.example.com"),
    ] {
        let all = objects(&settings(&spec), &Seen::default()).unwrap();
        assert_eq!(environment(&all).get(name).map(String::as_str), Some(value), "{spec}");
    }
    let mut both = settings(&json!({}));
    both.router.http2 = true;
    for (addresses, policy) in [
        (AddressMode::V4, "SingleStack"),
        (AddressMode::V6, "SingleStack"),
        (AddressMode::Both, "PreferDualStack"),
    ] {
        both.router.addresses = addresses;
        let all = objects(&both, &Seen::default()).unwrap();
        for name in ["router-default", "router-internal-default"] {
            let service = find(&all, &format!("Service openshift-ingress/{name}"));
            assert_eq!(service["spec"]["ipFamilyPolicy"], policy, "{name} {addresses:?}");
        }
    }
    let all = objects(&both, &Seen::default()).unwrap();
    assert_eq!(environment(&all)["ROUTER_IP_V4_V6_MODE"], "v4v6");
    let deployment = find(&all, "Deployment openshift-ingress/router-default");
    assert_eq!(deployment["spec"]["replicas"], 1);
}

#[test]
fn what_is_named_and_not_there_is_told_in_words_of_the_configuration() {
    let spec = json!({"httpErrorCodePages": {"name": "pages"}});
    let problem = objects(&settings(&spec), &Seen::default()).unwrap_err();
    assert_eq!(
        problem.what,
        "ingress.httpErrorCodePages names ConfigMap openshift-ingress/pages, which is not there."
    );
    assert_eq!(problem.remedy, "Create it, or name another one.");
}

#[test]
fn what_cannot_change_is_found() {
    let mut settings = settings(&json!({}));
    let have =
        find(&objects(&settings, &Seen::default()).unwrap(), "Service openshift-ingress/router-default")
            .clone();
    settings.router.load_balancer_class = None;
    let all = objects(&settings, &Seen::default()).unwrap();
    let service =
        all.iter().find(|object| object.place() == "Service openshift-ingress/router-default").unwrap();
    assert_eq!(service.cannot_become(&have), Some("spec.loadBalancerClass"));
    let mut inside = have.clone();
    inside["spec"]["type"] = json!("ClusterIP");
    assert_eq!(service.cannot_become(&inside), None);
    assert!(!service.is_from_this(&have));
    assert!(service.is_from_this(&service.value));
}

#[test]
fn whose_an_object_is() {
    let managed =
        |manager: &str, subresource: &str| json!([{"manager": manager, "subresource": subresource}]);
    for (labels, fields, expected) in [
        (
            json!({SINGLE_NODE_LABEL: "default", OWNING_LABEL: "default"}),
            managed("portcullis", ""),
            Whose::Ours,
        ),
        (json!({OWNING_LABEL: "default"}), managed("microshift", ""), Whose::MicroShifts),
        (json!({OWNING_LABEL: "default"}), managed("ingress-operator", ""), Whose::Others),
        (json!({OWNING_LABEL: "default"}), managed("microshift", "status"), Whose::Others),
        (json!({}), json!([]), Whose::Others),
    ] {
        let object =
            json!({"metadata": {"name": "router-default", "labels": labels, "managedFields": fields}});
        assert_eq!(whose(&serde_json::from_value(object.clone()).unwrap()), expected, "{object}");
    }
}
