//! The router of a single node, on a real Kubernetes API.

#![allow(clippy::unwrap_used, reason = "a test that fails says where")]
#![allow(clippy::needless_pass_by_value, reason = "samples are easier to read so")]

use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::{io, thread};

use kube::config::{KubeConfigOptions, Kubeconfig};
use portcullis_controllers::ingress::{Enforcer, IngressControllers, IngressSettings};
use portcullis_controllers::router::RouterSettings;
use portcullis_controllers::single_node::{Changed, Report, SingleNode, SingleNodeSettings, Step, Trouble};
use portcullis_kube_api::host::{HOST_CLASS, LISTEN_ADDRESSES};
use portcullis_kube_api::ingress::{CRD, OWNING_LABEL, SINGLE_NODE_LABEL};
use portcullis_testkit::parts::Namespace;
use portcullis_testkit::parts::kubernetes::Kubernetes;
use portcullis_testkit::{eventually, kubernetes_in};
use serde_json::{Value, json};

/// A cluster of its own: a router is one for all of it.
struct Node {
    kubernetes: Kubernetes,
    client: kube::Client,
    settings: SingleNodeSettings,
}

impl Node {
    async fn new() -> Self {
        let kubernetes = kubernetes_in(&Namespace::host());
        let config = config(&kubernetes).await;
        let settings = SingleNodeSettings {
            controller: serde_json::from_value(json!({"spec": {}})).unwrap(),
            router: RouterSettings {
                image: "registry.example.com/router:1".to_owned(),
                load_balancer_class: Some(HOST_CLASS.to_owned()),
                config_namespace: "openshift-ingress".to_owned(),
                ..RouterSettings::default()
            },
            ports: [80, 443],
            listen: Vec::new(),
            at_node: true,
            is_wanted: true,
            openshift: Some(true),
            take_over: false,
            observe: false,
        };
        Node { client: kube::Client::try_from(config).unwrap(), kubernetes, settings }
    }

    /// How its API is reached.
    async fn config(&self) -> kube::Config {
        config(&self.kubernetes).await
    }

    /// Starts again, with these options.
    async fn start(&self) -> Result<Report, Trouble> {
        SingleNode::new(self.client.clone(), self.settings.clone()).once().await
    }

    fn set_spec(&mut self, spec: Value) {
        self.settings.controller = serde_json::from_value(json!({"spec": spec})).unwrap();
    }

    fn kubectl(&self, args: &[&str]) -> String {
        self.kubernetes.kubectl(args).unwrap()
    }

    /// An object of the router's namespace, or of none; null, if there is none.
    fn get(&self, kind: &str, name: &str) -> Value {
        let found =
            self.kubectl(&["get", kind, name, "-n", "openshift-ingress", "--ignore-not-found", "-o", "json"]);
        if found.is_empty() { Value::Null } else { serde_json::from_str(&found).unwrap() }
    }

    /// Edits it as a person does.
    fn edit(&self, kind: &str, name: &str, type_: &str, patch: Value) {
        let (type_, patch) = (format!("--type={type_}"), patch.to_string());
        let by = "--field-manager=kubectl-edit";
        self.kubectl(&["patch", kind, name, "-n", "openshift-ingress", by, &type_, "-p", &patch]);
    }

    /// Makes an object as somebody else would.
    fn make(&self, object: Value, manager: &str) {
        let kubeconfig = self.kubernetes.kubeconfig();
        let manager = format!("--field-manager={manager}");
        self.kubernetes
            .kubectl_as(kubeconfig, &["create", &manager, "-f", "-"], &object.to_string())
            .unwrap();
    }

    /// All that is ours, by kind and name.
    fn ours(&self) -> Vec<String> {
        let kinds = "namespaces,serviceaccounts,clusterroles,clusterrolebindings,configmaps,services,deployments,ingressclasses";
        let found = self.kubectl(&["get", kinds, "-A", "-l", SINGLE_NODE_LABEL, "-o", "name"]);
        let mut found: Vec<String> = found
            .lines()
            .map(|line| {
                line.split('.').next().unwrap_or(line).to_owned()
                    + "/"
                    + line.rsplit('/').next().unwrap_or_default()
            })
            .collect();
        found.sort();
        found
    }
}

async fn config(kubernetes: &Kubernetes) -> kube::Config {
    let config = Kubeconfig::read_from(kubernetes.kubeconfig()).unwrap();
    kube::Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await.unwrap()
}

fn problem(result: Result<Report, Trouble>) -> String {
    match result {
        Err(Trouble::Problem(problem)) => problem.to_string(),
        other => panic!("{other:?}"),
    }
}

fn ports(service: &Value) -> Vec<i64> {
    service["spec"]["ports"].as_array().unwrap().iter().map(|port| port["port"].as_i64().unwrap()).collect()
}

fn variable(deployment: &Value, name: &str) -> Option<String> {
    let variables = deployment["spec"]["template"]["spec"]["containers"][0]["env"].as_array().unwrap();
    let found = variables.iter().find(|variable| variable["name"] == name)?;
    found["value"].as_str().map(str::to_owned)
}

/// Created as configured; changed by other options when we start again; hand edits told and put back; all gone with `Removed`.
#[tokio::test(flavor = "multi_thread")]
async fn the_router_is_as_the_configuration_says() {
    let mut node = Node::new().await;
    let made = node.start().await.unwrap();
    assert_eq!(made.made.len(), 9, "{made:?}");
    assert_eq!((made.changed.len(), made.deleted.len()), (0, 0), "{made:?}");
    let service = node.get("service", "router-default");
    assert_eq!(ports(&service), [80, 443]);
    assert_eq!(service["spec"]["loadBalancerClass"], HOST_CLASS);
    assert_eq!(service["spec"]["externalTrafficPolicy"], "Local");
    let inside = node.get("service", "router-internal-default");
    assert_eq!(ports(&inside), [80, 443, 1936]);
    assert_eq!(node.get("deployment", "router-default")["spec"]["replicas"], 1);
    assert_eq!(
        node.get("ingressclass", "openshift-default")["spec"]["controller"],
        "openshift.io/ingress-to-route"
    );

    // Nothing is written while nothing changes.
    let versions = || {
        let of = |kind: &str, path: &str| {
            node.kubectl(&[
                "get",
                kind,
                "-n",
                "openshift-ingress",
                "-o",
                &format!("jsonpath={{.items[*].metadata.{path}}}"),
            ])
        };
        // Of a Deployment Kubernetes itself writes the status.
        (of("services", "resourceVersion"), of("deployments", "generation"))
    };
    let before = versions();
    assert_eq!(node.start().await.unwrap(), Report::default());
    assert_eq!(versions(), before);

    // Other options.
    node.settings.ports = [8080, 8443];
    node.settings.listen = vec!["enp3s0".to_owned(), "192.0.2.7".to_owned()];
    node.set_spec(json!({
        "tuningOptions": {"threadCount": 2},
        "logging": {"access": {"destination": {"type": "Container"}}},
    }));
    let changed = node.start().await.unwrap();
    assert_eq!(changed.made, ["ConfigMap openshift-ingress/rsyslog-conf-default"]);
    assert!(changed.changed.iter().all(|changed| changed.by.is_none()), "{changed:?}");
    let service = node.get("service", "router-default");
    assert_eq!(ports(&service), [8080, 8443]);
    assert_eq!(service["metadata"]["annotations"][LISTEN_ADDRESSES], "enp3s0,192.0.2.7");
    let deployment = node.get("deployment", "router-default");
    assert_eq!(variable(&deployment, "ROUTER_THREADS").as_deref(), Some("2"));
    assert_eq!(deployment["spec"]["template"]["spec"]["containers"][1]["name"], "logs");
    assert_eq!(
        deployment["spec"]["template"]["spec"]["containers"][0]["ports"][0]["containerPort"], 80,
        "inside it stays as it was"
    );
    assert_eq!(node.get("service", "router-internal-default")["spec"], inside["spec"]);

    // And back.
    node.settings.ports = [80, 443];
    node.settings.listen = Vec::new();
    node.set_spec(json!({}));
    let back = node.start().await.unwrap();
    assert_eq!(back.deleted, ["ConfigMap openshift-ingress/rsyslog-conf-default"]);
    let service = node.get("service", "router-default");
    assert_eq!(ports(&service), [80, 443]);
    assert_eq!(service["metadata"]["annotations"][LISTEN_ADDRESSES], Value::Null);
    let deployment = node.get("deployment", "router-default");
    assert_eq!(deployment["spec"]["template"]["spec"]["containers"].as_array().unwrap().len(), 1);

    // Gone again, with what is ours and nothing else.
    node.kubectl(&["create", "configmap", "theirs", "-n", "openshift-ingress"]);
    node.settings.is_wanted = false;
    node.settings.observe = true;
    assert_eq!(node.start().await.unwrap().deleted.len(), 8, "only said");
    assert_eq!(node.ours().len(), 9);
    node.settings.observe = false;
    let removed = node.start().await.unwrap();
    assert_eq!(removed.deleted.len(), 8, "{removed:?}");
    assert_eq!(removed.left, ["Namespace openshift-ingress: ConfigMap theirs"]);
    assert!(node.get("configmap", "theirs").is_object());
    node.kubectl(&["delete", "configmap", "theirs", "-n", "openshift-ingress"]);
    let removed = node.start().await.unwrap();
    assert_eq!(removed.deleted, ["Namespace openshift-ingress"]);
    assert_eq!(node.get("namespace", "openshift-ingress"), Value::Null);
    assert_eq!(node.start().await.unwrap(), Report::default());
    assert_eq!(node.ours(), Vec::<String>::new());
}

/// Ways to the router past the addresses that are listened to are closed. Who is kept out stays out.
#[tokio::test(flavor = "multi_thread")]
async fn other_ways_to_the_router_are_closed() {
    let node = Node::new().await;
    node.start().await.unwrap();
    node.edit(
        "service",
        "router-default",
        "json",
        json!([
            {"op": "add", "path": "/spec/externalIPs", "value": ["192.0.2.99"]},
            {"op": "add", "path": "/spec/loadBalancerIP", "value": "192.0.2.98"},
            {"op": "add", "path": "/spec/ports/1/nodePort", "value": 30443},
            {"op": "add", "path": "/spec/loadBalancerSourceRanges", "value": ["192.0.2.0/24"]},
            {"op": "add", "path": "/metadata/annotations/portcullis.dev~1listen-addresses", "value": "enp4s0"},
        ]),
    );
    let report = node.start().await.unwrap();
    let fields = &report.changed[0].fields;
    let listen = format!("metadata.annotations[{LISTEN_ADDRESSES}]");
    for field in ["spec.externalIPs", "spec.loadBalancerIP", "spec.ports[https].nodePort", &listen] {
        assert!(fields.contains(&field.to_owned()), "{field}: {report:?}");
    }
    let service = &node.get("service", "router-default");
    assert!(service["metadata"]["annotations"].get(LISTEN_ADDRESSES).is_none(), "{service:#}");
    let spec = &service["spec"];
    assert!(spec.get("externalIPs").is_none() && spec.get("loadBalancerIP").is_none(), "{spec:#}");
    assert!(spec["ports"][1].get("nodePort").is_none(), "{spec:#}");
    assert_eq!(spec["loadBalancerSourceRanges"], json!(["192.0.2.0/24"]));
    assert_eq!(node.start().await.unwrap(), Report::default());
}

/// What people add to the router is taken away as well, also where nothing is said about it here.
#[tokio::test(flavor = "multi_thread")]
async fn what_was_added_by_hand_is_taken_away_and_told() {
    let node = Node::new().await;
    node.start().await.unwrap();
    let mut before = ["deployment", "service", "serviceaccount"].map(|kind| {
        let name = if kind == "serviceaccount" { "portcullis-router" } else { "router-default" };
        (kind, name, node.get(kind, name))
    });
    let (container, pod) = ("/spec/template/spec/containers/0", "/spec/template/spec");
    // That stays, as pods would be made anew without it.
    let (noted, time) = ("kubectl.kubernetes.io/restartedAt", "2026-01-01T00:00:00Z");
    before[0].2["spec"]["template"]["metadata"]["annotations"][noted] = json!(time);
    let noted = format!("/spec/template/metadata/annotations/{}", noted.replace('/', "~1"));
    node.edit(
        "deployment",
        "router-default",
        "json",
        json!([
            {"op": "add", "path": "/spec/paused", "value": true},
            {"op": "add", "path": noted, "value": time},
            {"op": "replace", "path": "/spec/revisionHistoryLimit", "value": 1},
            {"op": "add", "path": format!("{pod}/hostNetwork"), "value": true},
            {"op": "add", "path": format!("{pod}/securityContext"), "value": {"runAsUser": 7}},
            {"op": "add", "path": format!("{container}/envFrom"), "value": [{"configMapRef": {"name": "own"}}]},
            {"op": "add", "path": format!("{container}/ports/0/hostPort"), "value": 80},
            {"op": "add", "path": format!("{container}/ports/1/hostPort"), "value": 443},
            {"op": "add", "path": format!("{container}/ports/2/hostPort"), "value": 1936},
        ]),
    );
    let more = json!({"spec": {"sessionAffinity": "ClientIP", "publishNotReadyAddresses": true}});
    node.edit("service", "router-default", "merge", more);
    let blind = json!({"automountServiceAccountToken": false});
    node.edit("serviceaccount", "portcullis-router", "merge", blind);

    let report = node.start().await.unwrap();
    let told = |object: &str, field: &str| {
        let changed = report.changed.iter().find(|changed| changed.object.starts_with(object));
        let changed = changed.unwrap_or_else(|| panic!("{object}: {report:?}"));
        assert!(changed.fields.iter().any(|one| one.starts_with(field)), "{field}: {changed:?}");
        assert_eq!(changed.by.as_deref(), Some(&["kubectl-edit".to_owned()][..]), "{changed:?}");
    };
    for field in [
        "spec.paused",
        "spec.revisionHistoryLimit",
        "spec.template.spec.hostNetwork",
        "spec.template.spec.securityContext",
        "spec.template.spec.containers[router].envFrom",
        "spec.template.spec.containers[router].ports[http].hostPort",
    ] {
        told("Deployment", field);
    }
    told("Service openshift-ingress/router-default", "spec.sessionAffinity");
    told("Service openshift-ingress/router-default", "spec.publishNotReadyAddresses");
    told("ServiceAccount", "automountServiceAccountToken");
    for (kind, name, before) in &before {
        let after = node.get(kind, name);
        assert_eq!(after["spec"], before["spec"], "{kind}");
        assert!(after.get("automountServiceAccountToken").is_none(), "{after:#}");
    }
    assert_eq!(node.start().await.unwrap(), Report::default(), "once");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_edited_by_hand_is_put_back_and_told() {
    let mut node = Node::new().await;
    node.settings.listen = vec!["enp3s0".to_owned()];
    node.start().await.unwrap();
    let edit = |kind: &str, name: &str, type_: &str, patch: Value| node.edit(kind, name, type_, patch);
    // Changed, removed, added, and made unable to run.
    edit(
        "service",
        "router-default",
        "json",
        json!([
            {"op": "replace", "path": "/spec/ports/0/port", "value": 81},
            {"op": "remove", "path": "/metadata/annotations/portcullis.dev~1listen-addresses"},
        ]),
    );
    edit(
        "deployment",
        "router-default",
        "merge",
        json!({"spec": {
            "replicas": 0,
            "template": {"spec": {"nodeSelector": {"disk": "ssd"}}},
        }}),
    );
    edit(
        "deployment",
        "router-default",
        "json",
        json!([
            {"op": "remove", "path": "/spec/template/spec/containers/0/livenessProbe"},
        ]),
    );
    edit(
        "clusterrole",
        "portcullis-single-node-router",
        "json",
        json!([{"op": "remove", "path": "/rules/0"}]),
    );
    // That stays.
    edit("service", "router-internal-default", "merge", json!({"metadata": {"labels": {"team": "edge"}}}));

    node.settings.observe = true;
    let would = node.start().await.unwrap();
    assert_eq!(would.changed.len(), 3, "{would:?}");
    assert_eq!(ports(&node.get("service", "router-default")), [81, 443], "only said");
    node.settings.observe = false;
    let report = node.start().await.unwrap();
    let told = |object: &str| -> Changed {
        report
            .changed
            .iter()
            .find(|changed| changed.object == object)
            .cloned()
            .unwrap_or_else(|| panic!("{report:?}"))
    };
    let service = told("Service openshift-ingress/router-default");
    assert!(service.fields.contains(&"spec.ports[http].port".to_owned()), "{service:?}");
    assert!(service.fields.contains(&format!("metadata.annotations[{LISTEN_ADDRESSES}]")), "{service:?}");
    let deployment = told("Deployment openshift-ingress/router-default");
    for field in [
        "spec.replicas",
        "spec.template.spec.nodeSelector.disk",
        "spec.template.spec.containers[router].livenessProbe",
    ] {
        assert!(deployment.fields.contains(&field.to_owned()), "{field}: {deployment:?}");
    }
    let role = told("ClusterRole portcullis-single-node-router");
    for changed in [&service, &deployment, &role] {
        assert_eq!(changed.by.as_deref(), Some(&["kubectl-edit".to_owned()][..]), "{changed:?}");
    }
    assert_eq!(report.changed.len(), 3);
    let service = node.get("service", "router-default");
    assert_eq!(ports(&service), [80, 443]);
    assert_eq!(service["metadata"]["annotations"][LISTEN_ADDRESSES], "enp3s0");
    let deployment = node.get("deployment", "router-default");
    let pod = &deployment["spec"]["template"]["spec"];
    assert_eq!(deployment["spec"]["replicas"], 1);
    assert_eq!(pod["nodeSelector"], json!({"kubernetes.io/os": "linux"}));
    assert!(pod["containers"][0]["livenessProbe"].is_object());
    assert_eq!(node.get("service", "router-internal-default")["metadata"]["labels"]["team"], "edge");
    assert_eq!(node.start().await.unwrap(), Report::default(), "once");

    // Also if the configuration changed meanwhile.
    node.edit("deployment", "router-default", "merge", json!({"spec": {"replicas": 3}}));
    node.set_spec(json!({"tuningOptions": {"threadCount": 2}}));
    let report = node.start().await.unwrap();
    assert_eq!(report.changed.len(), 1, "{report:?}");
    assert_eq!(report.changed[0].by.as_deref(), Some(&["kubectl-edit".to_owned()][..]), "{report:?}");
    let deployment = node.get("deployment", "router-default");
    assert_eq!(deployment["spec"]["replicas"], 1);
    assert_eq!(variable(&deployment, "ROUTER_THREADS").as_deref(), Some("2"));

    // A class cannot be changed: the Service is made anew.
    node.settings.router.load_balancer_class = None;
    node.settings.at_node = false;
    let report = node.start().await.unwrap();
    assert_eq!(report.made_anew, ["Service openshift-ingress/router-default"]);
    assert_eq!(node.get("service", "router-default")["spec"]["loadBalancerClass"], Value::Null);
    assert_eq!(node.start().await.unwrap(), Report::default());
}

/// Who may not connect to a Service that is made anew may not connect to the new one, whenever it is that we are killed.
#[tokio::test(flavor = "multi_thread")]
async fn who_may_connect_outlives_a_service_that_is_made_anew() {
    let mut node = Node::new().await;
    node.start().await.unwrap();
    let limits = json!({
        "metadata": {
            "annotations": {"portcullis.dev/source-ranges-for-node-ports": "true"},
            "finalizers": ["example.com/wait"],
        },
        "spec": {"loadBalancerSourceRanges": ["192.0.2.0/24"]},
    });
    node.edit("service", "router-default", "merge", limits);
    let is_limited = |node: &Node| {
        let service = node.get("service", "router-default");
        service["spec"]["loadBalancerSourceRanges"] == json!(["192.0.2.0/24"])
            && service["metadata"]["annotations"]["portcullis.dev/source-ranges-for-node-ports"] == "true"
    };
    let uid = node.get("service", "router-default")["metadata"]["uid"].clone();
    node.settings.router.load_balancer_class = None;
    node.settings.at_node = false;
    // It has asked for its deletion, and ends before that is done.
    let is_going = async || {
        while node.get("service", "router-default")["metadata"]["deletionTimestamp"].is_null() {
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        }
    };
    tokio::select! {
        ended = node.start() => panic!("it does not wait: {ended:?}"),
        () = is_going() => {}
    }
    node.edit("service", "router-default", "merge", json!({"metadata": {"finalizers": null}}));
    assert_eq!(node.get("service", "router-default"), Value::Null);
    let report = node.start().await.unwrap();
    assert_eq!(report.made, ["Service openshift-ingress/router-default"]);
    assert!(is_limited(&node) && node.get("service", "router-default")["metadata"]["uid"] != uid);
    assert_eq!(report.deleted, ["ConfigMap openshift-ingress/router-default-limits"], "nothing is left");
    // The same without being killed; and nobody is said to have edited it.
    node.settings.router.load_balancer_class = Some(HOST_CLASS.to_owned());
    node.settings.at_node = true;
    assert_eq!(node.start().await.unwrap().made_anew, ["Service openshift-ingress/router-default"]);
    assert!(is_limited(&node));
    assert_eq!(node.start().await.unwrap(), Report::default());
    node.settings.ports = [8080, 443];
    let report = node.start().await.unwrap();
    assert!(report.changed.iter().all(|changed| changed.by.is_none()), "{report:?}");
    assert!(is_limited(&node) && ports(&node.get("service", "router-default")) == [8080, 443]);
    // People may take it back.
    let back = json!({"spec": {"loadBalancerSourceRanges": null}});
    node.edit("service", "router-default", "merge", back);
    assert_eq!(node.start().await.unwrap(), Report::default());
    assert_eq!(node.get("service", "router-default")["spec"]["loadBalancerSourceRanges"], Value::Null);
}

/// The same of all objects that are not the router itself, and of families.
#[tokio::test(flavor = "multi_thread")]
async fn what_was_edited_by_hand_around_it_is_put_back_and_told() {
    let mut node = Node::new().await;
    node.set_spec(json!({"logging": {"access": {"destination": {"type": "Container"}}}}));
    node.start().await.unwrap();
    let replace = |path: &str, value: Value| json!([{"op": "replace", "path": path, "value": value}]);
    let owner = format!("/metadata/labels/{}", OWNING_LABEL.replace('/', "~1"));
    let role = "portcullis-single-node-router";
    let edits = [
        (
            "Service",
            "router-default",
            "/spec/ipFamilyPolicy",
            json!("PreferDualStack"),
            "spec.ipFamilyPolicy",
        ),
        ("Service", "router-internal-default", "/spec/ports/0/port", json!(81), "spec.ports[http].port"),
        ("IngressClass", "openshift-default", owner.as_str(), json!("own"), "metadata.labels"),
        ("ConfigMap", "rsyslog-conf-default", "/data", json!({"own.conf": "own"}), "data"),
        ("ClusterRoleBinding", role, "/subjects/0/name", json!("own"), "subjects"),
    ];
    let before = edits.each_ref().map(|(kind, name, ..)| node.get(kind, name));
    for (kind, name, path, value, _) in &edits {
        node.edit(kind, name, "json", replace(path, value.clone()));
    }
    let families = || node.get("service", "router-default")["spec"]["ipFamilies"].clone();
    assert_eq!(families(), json!(["IPv4", "IPv6"]), "Kubernetes adds the other one");

    let report = node.start().await.unwrap();
    assert_eq!(report.changed.len(), edits.len(), "{report:?}");
    for ((kind, name, path, _, field), before) in edits.iter().zip(&before) {
        let is_it = |changed: &&Changed| changed.object.starts_with(kind) && changed.object.ends_with(name);
        let changed =
            report.changed.iter().find(is_it).unwrap_or_else(|| panic!("{kind} {name}: {report:?}"));
        assert!(changed.fields.iter().all(|one| one.starts_with(field)), "{field}: {changed:?}");
        assert_eq!(changed.by.as_deref(), Some(&["kubectl-edit".to_owned()][..]), "{changed:?}");
        assert_eq!(node.get(kind, name).pointer(path), before.pointer(path), "{kind} {name}");
    }
    assert_eq!(families(), json!(["IPv4"]));
    assert_eq!(node.start().await.unwrap(), Report::default(), "once");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_ours_is_refused_and_stays() {
    let mut node = Node::new().await;
    let labels = json!({"name": "openshift-ingress"});
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "openshift-ingress", "labels": labels}});
    node.make(namespace, "microshift");
    let service = |labels: Value| {
        json!({
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": "router-default", "namespace": "openshift-ingress", "labels": labels},
            "spec": {"type": "LoadBalancer", "loadBalancerClass": "example.com/none", "ports": [{"name": "http", "port": 80}]},
        })
    };
    for labels in [json!({}), json!({OWNING_LABEL: "default"})] {
        node.make(service(labels.clone()), "somebody");
        let before = node.get("service", "router-default");
        for take_over in [false, true] {
            node.settings.take_over = take_over;
            let refused = problem(node.start().await);
            assert!(
                refused.starts_with("Service openshift-ingress/router-default is not of the single-node"),
                "{refused}"
            );
            assert!(refused.contains("Nothing was changed."), "{refused}");
        }
        assert_eq!(node.ours(), Vec::<String>::new());
        assert_eq!(node.get("service", "router-default"), before);
        node.settings.is_wanted = false;
        assert_eq!(node.start().await.unwrap(), Report::default());
        assert_eq!(node.get("service", "router-default"), before);
        node.settings.is_wanted = true;
        node.kubectl(&["delete", "service", "router-default", "-n", "openshift-ingress"]);
    }

    // What MicroShift made is only taken over if somebody says so.
    node.settings.take_over = false;
    node.make(service(json!({OWNING_LABEL: "default", "app": "router"})), "microshift");
    let mut inside = service(json!({OWNING_LABEL: "default"}));
    inside["metadata"]["name"] = json!("router-internal-default");
    inside["spec"] = json!({"ports": [{"name": "http", "port": 80}]});
    node.make(inside, "microshift");
    let refused = problem(node.start().await);
    assert!(
        refused.contains(
            "Service openshift-ingress/router-internal-default, Service openshift-ingress/router-default are not"
        ),
        "{refused}"
    );
    assert!(refused.contains("singleNode.takeOver"), "{refused}");
    node.settings.take_over = true;
    let ranges = json!({"spec": {"loadBalancerSourceRanges": ["192.0.2.0/24"]}});
    node.edit("service", "router-default", "merge", ranges.clone());
    let report = node.start().await.unwrap();
    assert_eq!(report.deleted.len(), 3, "two Services, and what was noted meanwhile: {report:?}");
    let taken = node.get("service", "router-default");
    assert_eq!(taken["spec"]["loadBalancerClass"], HOST_CLASS);
    assert_eq!(taken["spec"]["loadBalancerSourceRanges"], ranges["spec"]["loadBalancerSourceRanges"]);
    // The namespace was there before. Of what somebody took our label off it is told that it stays.
    node.kubectl(&[
        "-n",
        "openshift-ingress",
        "label",
        "service",
        "router-default",
        "portcullis.dev/single-node-",
    ]);
    node.settings.is_wanted = false;
    let report = node.start().await.unwrap();
    assert_eq!(report.left, ["Service openshift-ingress/router-default"]);
    assert_eq!(node.ours(), Vec::<String>::new());
    assert!(node.get("service", "router-default").is_object());
    assert!(node.get("namespace", "openshift-ingress").is_object());
}

/// A router has one owner: whoever was first.
#[tokio::test(flavor = "multi_thread")]
async fn an_ingress_controller_and_the_configuration_refuse_each_other() {
    let mut node = Node::new().await;
    node.settings.openshift = Some(false);
    node.kubernetes.apply_types(CRD).unwrap();
    node.kubectl(&["create", "namespace", "controllers"]);
    let settings = IngressSettings {
        namespace: "controllers".to_owned(),
        router: RouterSettings { image: "example.com/other:1".to_owned(), ..RouterSettings::default() },
        enforcer: Enforcer::Unknown,
        concurrency: 4,
        observe: false,
        host: "test".to_owned(),
    };
    node.start().await.unwrap();
    let before = node.get("deployment", "router-default");
    let running = tokio::spawn(IngressControllers::new(node.client.clone(), settings).run());
    let controller = json!({
        "apiVersion": "operator.openshift.io/v1",
        "kind": "IngressController",
        "metadata": {"name": "default", "namespace": "controllers"},
        "spec": {"domain": "apps.example.com", "endpointPublishingStrategy": {"type": "LoadBalancerService", "loadBalancer": {"scope": "External"}}},
    });
    node.make(controller, "somebody");
    let conditions = || {
        node.kubectl(&[
            "get",
            "ingresscontroller",
            "default",
            "-n",
            "controllers",
            "-o",
            "jsonpath={.status.conditions[*].message}",
        ])
    };
    eventually("it is refused", || conditions().contains("openshift-ingress/router-default is not ours"));
    assert_eq!(node.get("deployment", "router-default")["spec"], before["spec"]);
    assert_eq!(node.get("deployment", "router-default")["metadata"]["labels"], before["metadata"]["labels"]);

    // The other way round.
    node.settings.is_wanted = false;
    node.start().await.unwrap();
    eventually("the IngressController has its own", || {
        let service = node.get("service", "router-default");
        service.is_object() && service["metadata"]["labels"][SINGLE_NODE_LABEL].is_null()
    });
    eventually("and its routers", || node.get("deployment", "router-default").is_object());
    node.settings.is_wanted = true;
    let refused = problem(node.start().await);
    assert!(refused.contains("Service openshift-ingress/router-default"), "{refused}");
    assert!(refused.contains("IngressController"), "{refused}");
    running.abort();
}

/// Options that name something else wait for it, and reach the Deployment.
#[tokio::test(flavor = "multi_thread")]
async fn it_waits_for_what_is_named() {
    let mut node = Node::new().await;
    node.kubectl(&["create", "namespace", "openshift-ingress"]);
    node.set_spec(json!({
        "clientTLS": {"clientCertificatePolicy": "Required", "clientCA": {"name": "clients"}},
        "defaultCertificate": {"name": "mine"},
    }));
    let last = Arc::new(Mutex::new(None));
    let told = Arc::clone(&last);
    let single_node = SingleNode::new(node.client.clone(), node.settings.clone());
    let running = tokio::spawn(single_node.run(move |step| *told.lock().unwrap() = Some(step)));
    eventually(
        "it is told",
        || matches!(&*last.lock().unwrap(), Some(Step::Waits(Trouble::Problem(problem))) if problem.what.contains("ingress.clientTLS.clientCA names ConfigMap openshift-ingress/clients")),
    );
    assert_eq!(node.ours(), Vec::<String>::new());
    node.kubectl(&[
        "create",
        "configmap",
        "clients",
        "-n",
        "openshift-ingress",
        "--from-literal=ca-bundle.pem=text",
    ]);
    eventually("it goes on", || matches!(&*last.lock().unwrap(), Some(Step::Done(_))));
    assert_eq!(node.get("configmap", "router-client-ca-default")["data"]["ca-bundle.pem"], "text");
    let deployment = node.get("deployment", "router-default");
    assert_eq!(variable(&deployment, "ROUTER_MUTUAL_TLS_AUTH").as_deref(), Some("required"));
    assert_eq!(variable(&deployment, "DEFAULT_CERTIFICATE_DIR").as_deref(), Some("/etc/pki/tls/private"));
    running.abort();
}

/// While the API server is away, it waits, and goes on when it is back.
#[tokio::test(flavor = "multi_thread")]
async fn an_api_that_is_away_is_waited_for() {
    let node = Node::new().await;
    // A port at which nobody answers at first.
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let mut config = node.config().await;
    let server = config.cluster_url.authority().unwrap().to_string();
    config.cluster_url = format!("https://{address}").parse().unwrap();
    let away = kube::Client::try_from(config).unwrap();
    let last = Arc::new(Mutex::new(None));
    let told = Arc::clone(&last);
    let single_node = SingleNode::new(away, node.settings.clone());
    let running = tokio::spawn(single_node.run(move |step| *told.lock().unwrap() = Some(step)));
    eventually("it waits", || matches!(&*last.lock().unwrap(), Some(Step::Waits(Trouble::Away(_)))));
    assert_eq!(node.ours(), Vec::<String>::new());
    let listener = TcpListener::bind(address).unwrap();
    thread::spawn(move || {
        for client in listener.incoming() {
            let (client, server) = (client.unwrap(), TcpStream::connect(&server).unwrap());
            for (mut from, mut to) in
                [(client.try_clone().unwrap(), server.try_clone().unwrap()), (server, client)]
            {
                thread::spawn(move || io::copy(&mut from, &mut to));
            }
        }
    });
    eventually("it is done", || matches!(&*last.lock().unwrap(), Some(Step::Done(_))));
    assert_eq!(node.ours().len(), 9);
    running.abort();
}
