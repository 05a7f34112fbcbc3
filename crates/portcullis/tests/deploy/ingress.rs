//! Routers of `IngressControllers`, with the rights for them.

use portcullis_controllers::router::{self, RouterSettings};
use portcullis_kube_api::ingress::CRD;
use portcullis_testkit::parts::Namespace;
use portcullis_testkit::parts::catalogue::find;
use portcullis_testkit::parts::kubernetes::Kubernetes;
use portcullis_testkit::{eventually, kubernetes_in};
use serde_json::{Value, json};

use crate::{Pod, deploy, may, objects, output};

/// Who acts for `IngressControllers`.
fn holder(kubernetes: &Kubernetes) -> String {
    let lease =
        ["get", "lease", "portcullis-ingress-controllers", "--namespace=portcullis", "--ignore-not-found"];
    kubernetes.kubectl(&[&lease[..], &["-o", "jsonpath={.spec.holderIdentity}"]].concat()).unwrap()
}

/// What the manifests give routers is what the program would give them, so that it need not be able to.
#[test]
fn routers_have_the_rights_that_they_need() {
    let named = |overlay: &str, kind: &str, name: &str| -> Value {
        let built = output(find("kubectl").unwrap(), &["kustomize", &deploy(overlay)]).unwrap();
        let mut found = objects(&built)
            .into_iter()
            .filter(|object| object["kind"] == kind && object["metadata"]["name"] == name);
        found.next().unwrap()
    };
    for (overlay, openshift) in [("kustomize/ingress", false), ("kustomize/ingress-openshift", true)] {
        let settings = RouterSettings { openshift, monitoring: openshift, ..RouterSettings::default() };
        let role = named(overlay, "ClusterRole", "portcullis-router");
        assert_eq!(
            role["rules"],
            serde_json::to_value(router::cluster_role(&settings)).unwrap()["rules"],
            "{overlay}"
        );
        let binding = named(overlay, "ClusterRoleBinding", "portcullis-router");
        assert_eq!(
            binding["subjects"],
            serde_json::to_value(router::cluster_role_binding(&settings)).unwrap()["subjects"]
        );
        if let Some((metrics, _, found, _)) = router::collector(&settings) {
            let role = named(overlay, "ClusterRole", "router-monitoring");
            assert_eq!(role["rules"], serde_json::to_value(metrics).unwrap()["rules"]);
            assert_eq!(
                named(overlay, "Role", "prometheus-k8s")["rules"],
                serde_json::to_value(found).unwrap()["rules"]
            );
        }
    }
}

/// Who comes to an OpenShift cluster finds load balancers there, which are somebody else's.
#[test]
fn on_openshift_no_class_is_chosen_for_anybody() {
    let overlay = deploy("kustomize/ingress-openshift");
    let built = output(find("kubectl").unwrap(), &["kustomize", &overlay]).unwrap();
    let overrides = objects(&built)
        .into_iter()
        .find_map(|object| object["data"]["overrides.yaml"].as_str().map(str::to_owned))
        .unwrap();
    assert!(!overrides.lines().any(|line| line.trim_start().starts_with("loadBalancerClass")), "{overrides}");
}

/// The rights of the overlay suffice for all that an `IngressController` can ask for, and for nothing in other namespaces.
#[test]
fn ingress_controllers_are_looked_after_with_the_rights_for_it() {
    let kubernetes = kubernetes_in(&Namespace::host());
    kubernetes.apply_types(CRD).unwrap();
    let built = output(find("kubectl").unwrap(), &["kustomize", &deploy("kustomize/ingress")]).unwrap();
    kubernetes.apply(&built).unwrap();
    let start = |name: &str| {
        let platform = "ingressControllers.platform=bareMetal";
        Pod::for_ingress(
            &kubernetes,
            name,
            &[platform, "ingressControllers.configNamespace=openshift-ingress-operator"],
        )
    };
    // Of two, one acts.
    let mut first = start("portcullis-1");
    eventually("the first acts", || holder(&kubernetes).starts_with("portcullis-1-"));
    let mut second = start("portcullis-2");
    let bundle = json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "clients", "namespace": "openshift-ingress-operator"},
        "data": {"ca-bundle.pem": "a certificate"},
    });
    kubernetes.apply(&bundle.to_string()).unwrap();
    let controller = |strategy: Value| {
        let object = json!({
            "apiVersion": "operator.openshift.io/v1",
            "kind": "IngressController",
            "metadata": {"name": "default", "namespace": "openshift-ingress-operator"},
            "spec": {
                "domain": "apps.example.com",
                "endpointPublishingStrategy": strategy,
                "logging": {"access": {"destination": {"type": "Container"}}},
                "clientTLS": {"clientCertificatePolicy": "Required", "clientCA": {"name": "clients"}},
            },
        });
        kubernetes.apply(&object.to_string()).unwrap();
    };
    let condition = |type_: &str| {
        let path = format!("jsonpath={{.status.conditions[?(@.type==\"{type_}\")].reason}}");
        let get = ["get", "ingresscontroller", "default", "-n", "openshift-ingress-operator", "-o", &path];
        kubernetes.kubectl(&get).unwrap()
    };
    controller(
        json!({"type": "LoadBalancerService", "loadBalancer": {"scope": "External", "allowedSourceRanges": ["192.0.2.0/24"]}}),
    );
    eventually("it is carried out", || condition("LoadBalancerProgressing") == "LoadBalancerNotProgressing");
    let there = |what: &str| {
        kubernetes.kubectl(&["get", what, "-n", "openshift-ingress", "-o", "name"]).unwrap().lines().count()
    };
    eventually("routers", || there("deployments") == 1 && there("poddisruptionbudgets") == 1);
    assert!(there("configmaps") >= 3, "what they read, and the authority of the cluster");
    assert!(!second.log().contains("acting now"), "{}", second.log());
    first.stop();
    eventually("the second acts", || holder(&kubernetes).starts_with("portcullis-2-"));
    kubernetes
        .kubectl(&["delete", "ingresscontroller", "default", "-n", "openshift-ingress-operator"])
        .unwrap();
    eventually("nothing is left", || there("deployments") == 0 && there("services") == 0);
    second.stop();
    for (verb, what, namespace) in [
        ("create", "deployments.apps", "default"),
        ("get", "secrets", "openshift-ingress-operator"),
        ("list", "secrets", "openshift-ingress"),
        ("create", "secrets", "openshift-ingress"),
        ("create", "pods", "openshift-ingress"),
        ("create", "clusterroles.rbac.authorization.k8s.io", "default"),
        ("create", "rolebindings.rbac.authorization.k8s.io", "openshift-ingress"),
        ("delete", "ingresscontrollers.operator.openshift.io", "openshift-ingress-operator"),
        ("patch", "configmaps", "openshift-ingress-operator"),
    ] {
        assert!(!may(&kubernetes, verb, what, namespace), "{verb} {what} in {namespace}");
    }
}

/// A type that takes everything, for what OpenShift brings.
fn lax_type(group: &str, plural: &str, kind: &str, scope: &str) -> String {
    let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    let name = format!("{plural}.{group}");
    let version = json!({"name": "v1", "served": true, "storage": true, "subresources": {"status": {}}, "schema": schema});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": name},
        "spec": {
            "group": group,
            "scope": scope,
            "names": {"kind": kind, "plural": plural, "singular": kind.to_lowercase()},
            "versions": [version],
        },
    })
    .to_string()
}

/// The rights of the overlay for OpenShift suffice for what is done there.
#[test]
fn ingress_controllers_are_looked_after_on_openshift() {
    let kubernetes = kubernetes_in(&Namespace::host());
    kubernetes.apply_types(CRD).unwrap();
    let config = "config.openshift.io";
    for (plural, kind) in [
        ("infrastructures", "Infrastructure"),
        ("ingresses", "Ingress"),
        ("networks", "Network"),
        ("apiservers", "APIServer"),
        ("clusteroperators", "ClusterOperator"),
    ] {
        kubernetes.apply_types(&lax_type(config, plural, kind, "Cluster")).unwrap();
    }
    kubernetes
        .apply_types(&lax_type("monitoring.coreos.com", "servicemonitors", "ServiceMonitor", "Namespaced"))
        .unwrap();
    let infrastructure = json!({
        "apiVersion": "config.openshift.io/v1",
        "kind": "Infrastructure",
        "metadata": {"name": "cluster"},
        "spec": {},
    });
    kubernetes.apply(&infrastructure.to_string()).unwrap();
    let status =
        json!({"status": {"platformStatus": {"type": "None"}, "infrastructureTopology": "SingleReplica"}});
    let patch = ["patch", "infrastructure", "cluster", "--subresource=status", "--type=merge", "-p"];
    kubernetes.kubectl(&[&patch[..], &[&status.to_string()]].concat()).unwrap();
    for name in ["openshift-config", "openshift-monitoring"] {
        kubernetes.kubectl(&["create", "namespace", name]).unwrap();
    }
    let overlay = deploy("kustomize/ingress-openshift");
    kubernetes.apply(&output(find("kubectl").unwrap(), &["kustomize", &overlay]).unwrap()).unwrap();
    let mut pod =
        Pod::for_ingress(&kubernetes, "portcullis-1", &["ingressControllers.domain=apps.example.com"]);
    let controller = json!({
        "apiVersion": "operator.openshift.io/v1",
        "kind": "IngressController",
        "metadata": {"name": "default", "namespace": "openshift-ingress-operator"},
        "spec": {"endpointPublishingStrategy": {"type": "LoadBalancerService", "loadBalancer": {"scope": "External"}}},
    });
    kubernetes.apply(&controller.to_string()).unwrap();
    let there =
        |what: &str| kubernetes.kubectl(&["get", what, "--ignore-not-found", "-A", "-o", "name"]).unwrap();
    eventually("a class", || there("ingressclasses").contains("openshift-default"));
    eventually("who collects metrics is told", || there("servicemonitors").contains("router-default"));
    eventually("it is summed up", || {
        let path = r#"jsonpath={.status.conditions[?(@.type=="Available")].reason}"#;
        let get = ["get", "clusteroperator", "ingress", "--ignore-not-found", "-o", path];
        kubernetes.kubectl(&get).unwrap() == "IngressUnavailable"
    });
    let labels = ["get", "namespace", "openshift-ingress", "-o", "jsonpath={.metadata.labels}"];
    eventually("the namespace is as it should be", || {
        kubernetes.kubectl(&labels).unwrap().contains("openshift.io/cluster-monitoring")
    });
    kubernetes
        .kubectl(&["delete", "ingresscontroller", "default", "-n", "openshift-ingress-operator"])
        .unwrap();
    eventually("nothing is left", || {
        !there("ingressclasses").contains("openshift-default")
            && !there("servicemonitors").contains("router-default")
    });
    pod.stop();
}
