//! `IngressControllers` in namespaces of a test's own, and who looks after them.

use kube::config::{KubeConfigOptions, Kubeconfig};
use portcullis_controllers::ingress::{Enforcer, IngressControllers, IngressSettings};
use portcullis_controllers::router::{Platform, RouterSettings};
use portcullis_kube_api::ingress::{AwsLoadBalancerType, CRD, OWNING_LABEL};
use portcullis_testkit::parts::kubernetes::Kubernetes;
use portcullis_testkit::{eventually, kubernetes};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

/// The definition of the type, with changes.
pub(crate) fn definition(kubernetes: &Kubernetes, change: impl FnOnce(&mut Value)) -> String {
    let read = ["create", "--dry-run=client", "-o", "json", "-f", "-"];
    let text = kubernetes.kubectl_as(kubernetes.kubeconfig(), &read, CRD).unwrap();
    let mut definition: Value = serde_json::from_str(&text).unwrap();
    change(&mut definition);
    definition.to_string()
}

/// A test's own part of a cluster.
pub(crate) struct Cluster<'a> {
    kubernetes: &'a Kubernetes,
    name: &'static str,
}

impl Cluster<'static> {
    /// With nothing in it, and nobody who looks after it.
    pub(crate) fn new(name: &'static str) -> Self {
        Self::on(kubernetes(), CRD, name)
    }
}

impl<'a> Cluster<'a> {
    /// The same on another Kubernetes, with another definition of the type.
    pub(crate) fn on(kubernetes: &'a Kubernetes, definition: &str, name: &'static str) -> Self {
        kubernetes.apply_types(definition).unwrap();
        Self::without_type(kubernetes, name)
    }

    /// The same with no definition of the type at all.
    pub(crate) fn without_type(kubernetes: &'a Kubernetes, name: &'static str) -> Self {
        let cluster = Self::of(kubernetes, name);
        for namespace in [cluster.controllers(), cluster.routers()] {
            kubernetes.kubectl(&["create", "namespace", &namespace]).unwrap();
        }
        cluster
    }

    /// One that is there already.
    pub(crate) fn of(kubernetes: &'a Kubernetes, name: &'static str) -> Self {
        Cluster { kubernetes, name }
    }

    pub(crate) fn controllers(&self) -> String {
        format!("{}-controllers", self.name)
    }

    pub(crate) fn routers(&self) -> String {
        format!("{}-routers", self.name)
    }

    /// How its API is reached.
    pub(crate) async fn config(&self) -> kube::Config {
        let config = Kubeconfig::read_from(self.kubernetes.kubeconfig()).unwrap();
        kube::Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await.unwrap()
    }

    pub(crate) async fn client(&self) -> kube::Client {
        kube::Client::try_from(self.config().await).unwrap()
    }

    /// How it is looked after.
    pub(crate) fn settings(&self, platform: Platform) -> IngressSettings {
        IngressSettings {
            namespace: self.controllers(),
            router: RouterSettings {
                namespace: self.routers(),
                image: "registry.example.com/router:1".to_owned(),
                load_balancer_class: Some("example.com/none".to_owned()),
                platform,
                default_aws_type: AwsLoadBalancerType::Network,
                config_namespace: self.controllers(),
                ..RouterSettings::default()
            },
            enforcer: Enforcer::Unknown,
            concurrency: 16,
            observe: false,
            host: "test".to_owned(),
        }
    }

    /// Starts to look after it.
    pub(crate) async fn start(&self, platform: Platform) -> JoinHandle<()> {
        self.start_with(self.settings(platform)).await
    }

    /// The same, in another way.
    pub(crate) async fn start_with(&self, settings: IngressSettings) -> JoinHandle<()> {
        tokio::spawn(IngressControllers::new(self.client().await, settings).run())
    }

    /// Creates or changes an `IngressController` with a load balancer. Its domain is its own.
    pub(crate) fn apply(&self, name: &str, load_balancer: Value) {
        self.apply_spec(
            name,
            json!({
                "domain": format!("{name}.example.com"),
                "endpointPublishingStrategy": {"type": "LoadBalancerService", "loadBalancer": load_balancer},
            }),
        );
    }

    /// The same without routers, of which there is nothing to wait for: all that moves is its load balancer Service.
    pub(crate) fn apply_alone(&self, name: &str, load_balancer: Value) {
        self.apply_spec(
            name,
            json!({
                "domain": format!("{name}.example.com"),
                "replicas": 0,
                "endpointPublishingStrategy": {"type": "LoadBalancerService", "loadBalancer": load_balancer},
            }),
        );
    }

    pub(crate) fn apply_spec(&self, name: &str, spec: Value) {
        let object = json!({
            "apiVersion": "operator.openshift.io/v1",
            "kind": "IngressController",
            "metadata": {"name": name, "namespace": self.controllers()},
            "spec": spec,
        });
        self.kubernetes.apply(&object.to_string()).unwrap();
    }

    /// Creates the load balancer Service of an `IngressController` as somebody else left it.
    pub(crate) fn leave_service(&self, name: &str, ranges: &[&str], annotations: Value, ours: bool) {
        let labels = if ours { json!({OWNING_LABEL: name}) } else { json!({}) };
        let service = json!({
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {
                "name": format!("router-{name}"),
                "namespace": self.routers(),
                "labels": labels,
                "annotations": annotations,
            },
            "spec": {
                "type": "LoadBalancer",
                "loadBalancerClass": "example.com/none",
                "loadBalancerSourceRanges": ranges,
                "ports": [{"name": "http", "port": 80}],
            },
        });
        self.kubernetes.apply(&service.to_string()).unwrap();
    }

    pub(crate) fn kubectl(&self, args: &[&str]) -> String {
        self.kubernetes.kubectl(args).unwrap()
    }

    fn get(&self, namespace: &str, kind: &str, name: &str) -> Value {
        let args = ["get", "-n", namespace, kind, name, "--ignore-not-found", "-o", "json"];
        let found = self.kubectl(&args);
        if found.is_empty() { Value::Null } else { serde_json::from_str(&found).unwrap() }
    }

    /// An `IngressController`; null, if there is none.
    pub(crate) fn controller(&self, name: &str) -> Value {
        self.get(&self.controllers(), "ingresscontroller", name)
    }

    /// Its load balancer Service; null, if there is none.
    pub(crate) fn service(&self, name: &str) -> Value {
        self.get(&self.routers(), "service", &format!("router-{name}"))
    }

    /// A `ConfigMap` beside routers; null, if there is none.
    pub(crate) fn config_map(&self, name: &str) -> Value {
        self.get(&self.routers(), "configmap", name)
    }

    /// Its budget; null, if there is none.
    pub(crate) fn budget(&self, name: &str) -> Value {
        self.get(&self.routers(), "poddisruptionbudget", &format!("router-{name}"))
    }

    pub(crate) fn apply_types(&self, definition: &str) {
        self.kubernetes.apply_types(definition).unwrap();
    }

    pub(crate) fn apply_object(&self, object: &Value) {
        self.kubernetes.apply(&object.to_string()).unwrap();
    }

    /// Its Deployment; null, if there is none.
    pub(crate) fn deployment(&self, name: &str) -> Value {
        self.get(&self.routers(), "deployment", &format!("router-{name}"))
    }

    /// Changes the load balancer Service by hand.
    pub(crate) fn edit_service(&self, name: &str, patch: &Value) {
        let (service, patch) = (format!("router-{name}"), patch.to_string());
        self.kubectl(&["patch", "service", &service, "-n", &self.routers(), "--type=merge", "-p", &patch]);
    }

    /// The same for its status.
    pub(crate) fn edit_service_status(&self, name: &str, patch: &Value) {
        let (service, namespace, patch) = (format!("router-{name}"), self.routers(), patch.to_string());
        let patch = ["--subresource=status", "--type=merge", "-p", &patch];
        self.kubectl(&[&["patch", "service", &service, "-n", &namespace][..], &patch].concat());
    }

    /// One condition, as `Status/Reason`.
    pub(crate) fn condition(&self, name: &str, type_: &str) -> String {
        let found = self.full_condition(name, type_);
        let text = |key: &str| found[key].as_str().unwrap_or_default().to_owned();
        format!("{}/{}", text("status"), text("reason"))
    }

    pub(crate) fn full_condition(&self, name: &str, type_: &str) -> Value {
        let controller = self.controller(name);
        let all = controller["status"]["conditions"].as_array().cloned().unwrap_or_default();
        all.into_iter().find(|found| found["type"] == type_).unwrap_or_default()
    }

    /// The ranges that the status says count.
    pub(crate) fn effective(&self, name: &str) -> Value {
        let path = "/status/endpointPublishingStrategy/loadBalancer/allowedSourceRanges";
        self.controller(name).pointer(path).cloned().unwrap_or_default()
    }

    pub(crate) fn wait_for(&self, name: &str, type_: &str, expected: &str) {
        eventually(&format!("{name}: {type_} is {expected}"), || self.condition(name, type_) == expected);
    }
}
