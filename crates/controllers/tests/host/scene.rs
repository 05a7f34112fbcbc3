//! A node between clients and backends, with a class of Services of its own: tests side by side do not see each other.

use std::collections::BTreeSet;
use std::ops::Deref;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use kube::config::{KubeConfigOptions, Kubeconfig};
use portcullis_controllers::host::{AgentSettings, HostController, HostSettings, Known, NodeAgent};
use portcullis_host::Machine;
use portcullis_host::claims::Policy;
use portcullis_host::datapath::Mode;
use portcullis_host::interfaces::Selection;
use portcullis_testkit::parts::Namespace;
use portcullis_testkit::parts::kubernetes::Kubernetes;
use portcullis_testkit::{Host, KubeProxy, Passage, eventually, kubernetes, kubernetes_in, link};
use serde_json::{Value, json};
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;

/// Programs of a node that go are not waited for any longer here.
const GRACE: Duration = Duration::from_secs(3);

pub(crate) const LAN: &str = "192.0.2.1";
pub(crate) const LAN6: &str = "2001:db8:1::1";
pub(crate) const WAN: &str = "198.51.100.1";
pub(crate) const WAN6: &str = "2001:db8:2::1";

/// Somebody else who forwards, and would let everybody in.
pub(crate) const OTHERS: &str = "table ip others {
    chain prerouting {
        type nat hook prerouting priority -100;
        ip daddr { 192.0.2.1, 198.51.100.1 } tcp dport 80 dnat to 10.244.0.2:8080
    }
}";

/// The Kubernetes API of a scene.
pub(crate) enum Api {
    /// All scenes have it.
    Shared(&'static Kubernetes),
    /// It is on the node itself, and nobody else has it.
    OfNode(Box<Kubernetes>),
}

impl Deref for Api {
    type Target = Kubernetes;

    fn deref(&self) -> &Kubernetes {
        match self {
            Api::Shared(kubernetes) => kubernetes,
            Api::OfNode(kubernetes) => kubernetes,
        }
    }
}

pub(crate) struct Scene {
    pub(crate) kubernetes: Api,
    pub(crate) name: &'static str,
    pub(crate) mode: Mode,
    /// `to-inside` and `to-outside` lead to clients, `to-backend` to the network between pods.
    pub(crate) node: Host,
    /// `192.0.2.10`, `2001:db8:1::10`.
    pub(crate) inside: Host,
    /// `198.51.100.10`, `2001:db8:2::10`.
    pub(crate) outside: Host,
    /// `10.244.0.2`, `fd00:1::2`.
    pub(crate) backend: Host,
    /// All scenes have the same addresses, and their Services would be at odds.
    #[allow(dead_code, reason = "it is held, and not looked at")]
    alone: Option<MutexGuard<'static, ()>>,
}

static ALONE: Mutex<()> = Mutex::new(());

impl Drop for Scene {
    fn drop(&mut self) {
        let delete = ["--namespace", self.name, "delete", "services", "--all", "--wait=false"];
        let _ = self.kubernetes.kubectl(&delete);
    }
}

/// Who looks after it, until it is dropped.
pub(crate) struct Running(Vec<JoinHandle<()>>);

impl Running {
    pub(crate) fn of(work: impl Future<Output = ()> + Send + 'static) -> Self {
        Running(vec![tokio::spawn(work)])
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        for task in &self.0 {
            task.abort();
        }
    }
}

/// A machine of the lab, for whoever is anywhere.
pub(crate) fn machine(host: &Host) -> Machine {
    Namespace::run(host, || Machine::start().unwrap())
}

/// Joins clients to a node, by networks of both families: it is `1` there, and they are `10`.
pub(crate) fn plug(clients: &Host, node: &Host, [v4, v6]: [&str; 2]) {
    let [theirs, its] = [10, 1].map(|number| [format!("{v4}.{number}/24"), format!("{v6}::{number}/64")]);
    link(clients, &theirs.each_ref().map(String::as_str), node, &its.each_ref().map(String::as_str));
    clients.default_route(&format!("{v4}.1"));
    clients.default_route(&format!("{v6}::1"));
}

impl Scene {
    pub(crate) fn new(name: &'static str, mode: Mode) -> Self {
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let mut scene = Self::beside(name, mode);
        scene.alone = Some(alone);
        scene
    }

    /// Another one for the same test.
    pub(crate) fn beside(name: &'static str, mode: Mode) -> Self {
        Self::with(name, mode, |_| Api::Shared(kubernetes()))
    }

    /// One with a kube-proxy on its node, which follows the API from there. Nobody else has that API, so that nobody has to wait.
    pub(crate) fn with_kube_proxy(name: &'static str, mode: Mode) -> (Self, KubeProxy) {
        let scene = Self::with(name, mode, |node| Api::OfNode(Box::new(kubernetes_in(node))));
        let proxy = KubeProxy::start(&scene.kubernetes, &scene.node_name(), LAN);
        (scene, proxy)
    }

    fn with(name: &'static str, mode: Mode, api: impl FnOnce(&Host) -> Api) -> Self {
        let [node, inside, outside, backend] = ["node", "inside", "outside", "backend"].map(Host::new);
        plug(&inside, &node, ["192.0.2", "2001:db8:1"]);
        plug(&outside, &node, ["198.51.100", "2001:db8:2"]);
        link(&backend, &["10.244.0.2/24", "fd00:1::2/64"], &node, &["10.244.0.1/24", "fd00:1::1/64"]);
        node.forward();
        backend.default_route("10.244.0.1");
        backend.default_route("fd00:1::1");
        let kubernetes = api(&node);
        kubernetes.kubectl(&["create", "namespace", name]).unwrap();
        let scene = Scene { kubernetes, name, mode, node, inside, outside, backend, alone: None };
        scene.make_node(&scene.node_name());
        scene
    }

    pub(crate) fn make_node(&self, name: &str) {
        let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}});
        self.kubernetes.apply(&node.to_string()).unwrap();
    }

    /// What the kubelet of the node says of which start of the machine this is.
    pub(crate) fn booted(&self, boot: &str) {
        let mut info = json!({"bootID": boot});
        for key in [
            "machineID",
            "systemUUID",
            "kernelVersion",
            "osImage",
            "containerRuntimeVersion",
            "kubeletVersion",
            "kubeProxyVersion",
            "operatingSystem",
            "architecture",
        ] {
            info[key] = json!("");
        }
        let patch = json!({"status": {"nodeInfo": info}}).to_string();
        let name = self.node_name();
        let arguments = ["patch", "node", &name, "--subresource=status", "--type=merge", "-p", &patch];
        self.kubernetes.kubectl(&arguments).unwrap();
    }

    /// What the node tells of itself.
    pub(crate) fn report(&self) -> Value {
        let name = format!("host-{}", self.node_name());
        let arguments = ["-n", self.name, "get", "configmap", &name, "-o", "jsonpath={.data.report}"];
        serde_json::from_str(&self.kubernetes.kubectl(&arguments).unwrap()).unwrap()
    }

    /// Has it tell something else.
    pub(crate) fn set_report(&self, report: &Value) {
        let name = format!("host-{}", self.node_name());
        let patch = json!({"data": {"report": report.to_string()}}).to_string();
        let arguments = ["-n", self.name, "patch", "configmap", &name, "--type=merge", "-p", &patch];
        self.kubernetes.kubectl(&arguments).unwrap();
    }

    pub(crate) fn node_name(&self) -> String {
        format!("{}-node", self.name)
    }

    pub(crate) fn class(&self) -> String {
        format!("portcullis.dev/{}", self.name)
    }

    fn policy() -> Policy {
        let mut selection = Selection::usual();
        selection.internal.push("to-backend".to_owned());
        selection.management.push("to-admin".to_owned());
        Policy { selection, reserved: BTreeSet::from([22, 6443, 30022, 30023]) }
    }

    pub(crate) async fn config(&self) -> kube::Config {
        let config = Kubeconfig::read_from(self.kubernetes.kubeconfig()).unwrap();
        kube::Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await.unwrap()
    }

    pub(crate) async fn client(&self) -> kube::Client {
        kube::Client::try_from(self.config().await).unwrap()
    }

    /// What one process is told by the API.
    pub(crate) async fn known(&self) -> Known {
        Known::new(self.client().await)
    }

    /// Both halves, with a way to the API that can be cut.
    pub(crate) async fn start_by_passage(&self) -> (Running, Passage) {
        let url = self.config().await.cluster_url;
        let passage = Passage::to(format!("127.0.0.1:{}", url.port_u16().unwrap()).parse().unwrap());
        (self.start_through(&passage).await, passage)
    }

    /// The same, by a way that is there already, and may be cut.
    pub(crate) async fn start_through(&self, passage: &Passage) -> Running {
        let mut config = self.config().await;
        config.cluster_url = format!("https://{}", passage.address()).parse().unwrap();
        self.start_with(&Known::new(kube::Client::try_from(config).unwrap()))
    }

    pub(crate) fn settings(&self) -> HostSettings {
        HostSettings {
            class: self.class(),
            without_class: false,
            namespace: self.name.to_owned(),
            policy: Self::policy(),
            mode: self.mode,
            observe: false,
            host: "test".to_owned(),
        }
    }

    pub(crate) fn agent_settings(&self) -> AgentSettings {
        AgentSettings {
            cluster: "demo".to_owned(),
            class: self.class(),
            without_class: false,
            node: self.node_name(),
            namespace: self.name.to_owned(),
            policy: Self::policy(),
            mode: self.mode,
            grace: GRACE,
            observe: false,
        }
    }

    pub(crate) async fn start_controller(&self) -> Running {
        Running::of(HostController::new(self.settings(), self.known().await).run())
    }

    pub(crate) async fn start_agent(&self) -> Running {
        self.start_agent_with(self.agent_settings()).await
    }

    /// The node's half, as it is configured there.
    pub(crate) async fn start_agent_with(&self, settings: AgentSettings) -> Running {
        let agent = NodeAgent::new(machine(&self.node), settings, self.known().await);
        Running::of(agent.run(|_| {}))
    }

    /// Both halves.
    pub(crate) async fn start(&self) -> Running {
        self.start_with(&self.known().await)
    }

    pub(crate) fn start_with(&self, known: &Known) -> Running {
        let agent = NodeAgent::new(machine(&self.node), self.agent_settings(), known.clone());
        let controller = HostController::new(self.settings(), known.clone());
        Running(vec![tokio::spawn(controller.run()), tokio::spawn(agent.run(|_| {}))])
    }

    /// Both halves, where only the node reaches the API: all of what they do happens there, as long as the runtime is kept.
    pub(crate) fn start_on_node(&self) -> (Running, Runtime) {
        Namespace::run(&self.node, || {
            let runtime = Runtime::new().unwrap();
            let running = runtime.block_on(self.start());
            (running, runtime)
        })
    }

    /// Creates or changes a Service, of its own class unless it says something else.
    pub(crate) fn apply(&self, name: &str, annotations: Value, spec: Value) {
        let mut full = json!({
            "type": "LoadBalancer",
            "loadBalancerClass": self.class(),
            "externalTrafficPolicy": "Local",
            "allocateLoadBalancerNodePorts": false,
            "ports": [{"name": "http", "port": 80, "targetPort": 8080}],
        });
        for (key, value) in spec.as_object().unwrap() {
            full[key] = value.clone();
        }
        let service = json!({
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": name, "namespace": self.name, "annotations": annotations},
            "spec": full,
        });
        self.kubernetes.apply(&service.to_string()).unwrap();
    }

    /// The endpoint of a Service: the backend, on port 8080 of TCP and UDP, and for who has more to say on 8081.
    pub(crate) fn endpoint(&self, service: &str, conditions: Value) {
        self.endpoint_at(service, "IPv4", "10.244.0.2", conditions);
    }

    /// The same endpoint, by IPv6.
    pub(crate) fn endpoint_v6(&self, service: &str) {
        self.endpoint_at(service, "IPv6", "fd00:1::2", json!({"ready": true}));
    }

    /// Endpoints of a Service that are all ready, at these addresses.
    pub(crate) fn endpoints(&self, service: &str, addresses: &[&str]) {
        let endpoint = |address: &&str| self.endpoint_of(address, &json!({"ready": true}));
        self.slice(service, "IPv4", addresses.iter().map(endpoint).collect());
    }

    fn endpoint_at(&self, service: &str, family: &str, address: &str, conditions: Value) {
        self.slice(service, family, json!([self.endpoint_of(address, &conditions)]));
    }

    fn endpoint_of(&self, address: &str, conditions: &Value) -> Value {
        json!({"addresses": [address], "nodeName": self.node_name(), "conditions": conditions})
    }

    pub(crate) fn slice(&self, service: &str, family: &str, endpoints: Value) {
        let slice = json!({
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {
                "name": format!("{service}-{}", family.to_lowercase()),
                "namespace": self.name,
                "labels": {"kubernetes.io/service-name": service},
            },
            "addressType": family,
            "endpoints": endpoints,
            "ports": [
                {"name": "http", "port": 8080, "protocol": "TCP"},
                {"name": "dns", "port": 8080, "protocol": "UDP"},
                {"name": "talk", "port": 8081, "protocol": "TCP"},
            ],
        });
        self.kubernetes.apply(&slice.to_string()).unwrap();
    }

    pub(crate) fn service(&self, name: &str) -> Value {
        let found =
            self.kubernetes.kubectl(&["-n", self.name, "get", "service", name, "-o", "json"]).unwrap();
        serde_json::from_str(&found).unwrap()
    }

    pub(crate) fn addresses(&self, name: &str) -> Vec<String> {
        let service = self.service(name);
        let ingress = service.pointer("/status/loadBalancer/ingress").and_then(Value::as_array).cloned();
        let ip = |one: &Value| one["ip"].as_str().unwrap_or_default().to_owned();
        ingress.unwrap_or_default().iter().map(ip).collect()
    }

    #[track_caller]
    pub(crate) fn wait_for_addresses(&self, name: &str, expected: &[&str]) {
        eventually(&format!("{name} is at {expected:?}"), || self.addresses(name) == expected);
    }

    /// A condition, as `STATUS/REASON: MESSAGE`.
    pub(crate) fn condition(&self, name: &str, type_: &str) -> String {
        let service = self.service(name);
        let conditions =
            service.pointer("/status/conditions").and_then(Value::as_array).cloned().unwrap_or_default();
        let found = conditions.iter().find(|condition| condition["type"] == type_);
        let text = |found: &Value, key: &str| found[key].as_str().unwrap_or_default().to_owned();
        found
            .map(|found| {
                format!("{}/{}: {}", text(found, "status"), text(found, "reason"), text(found, "message"))
            })
            .unwrap_or_default()
    }

    #[track_caller]
    pub(crate) fn wait_for_condition(&self, name: &str, type_: &str, start: &str) {
        eventually(&format!("{name} has {type_} {start}"), || self.condition(name, type_).starts_with(start));
    }

    /// What Events say of a Service.
    pub(crate) fn events(&self, name: &str) -> Vec<String> {
        let found = self.kubernetes.kubectl(&["-n", self.name, "get", "events", "-o", "json"]).unwrap();
        let found: Value = serde_json::from_str(&found).unwrap();
        let events = found["items"].as_array().cloned().unwrap_or_default();
        let of = events.iter().filter(|event| event["involvedObject"]["name"] == name);
        of.map(|event| {
            format!("{}: {}", event["reason"].as_str().unwrap(), event["message"].as_str().unwrap())
        })
        .collect()
    }

    /// A proxy like any: it serves all ports of a Service at the addresses in its status, and lets everybody in.
    pub(crate) fn serve_as_told(&self, name: &str) {
        let (service, addresses) = (self.service(name), self.addresses(name));
        let ports = service["spec"]["ports"].as_array().unwrap().iter().map(|port| &port["port"]);
        let serve = |port| {
            let to = "10.244.0.2:8080";
            addresses.iter().map(move |address| format!("ip daddr {address} tcp dport {port} dnat to {to}"))
        };
        let rules: Vec<String> = ports.flat_map(serve).collect();
        self.node.nft(&format!(
            "table ip proxy {{}}\ndelete table ip proxy\ntable ip proxy {{ chain prerouting {{
                type nat hook prerouting priority -100;\n{}\n}}; }}",
            rules.join("\n")
        ));
    }

    pub(crate) fn delete(&self, name: &str) {
        self.kubernetes.kubectl(&["-n", self.name, "delete", "service", name]).unwrap();
    }
}
