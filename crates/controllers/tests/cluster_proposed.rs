//! The proposal's own shapes of Cluster and control plane, on a Kubernetes API without Cluster API: each of its scenarios.

#![allow(
    clippy::unwrap_used,
    clippy::needless_pass_by_value,
    clippy::unused_self,
    reason = "a test that fails says where"
)]

use std::sync::LazyLock;
use std::time::Duration;

use kube::config::{KubeConfigOptions, Kubeconfig};
use portcullis_controllers::cluster::{
    Carrier, HaProxyAgent, HaProxyAgentSettings, HaProxyController, HaProxySettings, LoadBalancerSettings,
    LoadBalancers, ProposedClusters,
};
use portcullis_haproxy::{Settings, Tuning};
use portcullis_host::interfaces::Selection;
use portcullis_kube_api::cluster::{Flavour, crds};
use portcullis_testkit::parts::kubernetes::Kubernetes;
use portcullis_testkit::parts::{Namespace, Scratch};
use portcullis_testkit::talk::{Backend, ask};
use portcullis_testkit::{Host, Leash, eventually, eventually_within, kubernetes, link};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

static TYPES: LazyLock<&'static Kubernetes> = LazyLock::new(|| {
    let kubernetes = kubernetes();
    let network = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "labclusters.infrastructure.cluster.x-k8s.io"},
        "spec": {
            "group": "infrastructure.cluster.x-k8s.io", "scope": "Namespaced",
            "names": {"kind": "LabCluster", "plural": "labclusters"},
            "versions": [{"name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}],
        },
    });
    let mut types = crds(Flavour::Proposed);
    // Of classes the proposal knows nothing, and so they are whatever somebody writes.
    let clusters = types.iter_mut().find(|found| found["spec"]["names"]["kind"] == "Cluster").unwrap();
    for version in clusters["spec"]["versions"].as_array_mut().unwrap() {
        version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["topology"] =
            json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    }
    let all: Vec<String> = types.iter().chain([&network]).map(Value::to_string).collect();
    kubernetes.apply_types(&all.join("\n---\n")).unwrap();
    kubernetes
});

struct Scene {
    name: &'static str,
    tasks: Vec<JoinHandle<()>>,
}

impl Drop for Scene {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

async fn client() -> kube::Client {
    let file = Kubeconfig::read_from(TYPES.kubeconfig()).unwrap();
    let config = kube::Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await.unwrap();
    kube::Client::try_from(config).unwrap()
}

impl Scene {
    async fn new(name: &'static str) -> Self {
        Self::asking(name, None).await
    }

    /// One in which endpoints are asked so often whether they answer.
    async fn asking(name: &'static str, probe: Option<Duration>) -> Self {
        TYPES.kubectl(&["create", "namespace", name]).unwrap();
        let client = client().await;
        let settings = LoadBalancerSettings {
            flavour: Flavour::Proposed,
            namespace: Some(name.to_owned()),
            concurrency: 4,
            probe,
            host: "test".to_owned(),
        };
        let clusters = ProposedClusters::new(client.clone(), Some(name.to_owned()));
        let balancers = LoadBalancers::new(client, settings);
        Scene { name, tasks: vec![tokio::spawn(clusters.run()), tokio::spawn(balancers.run())] }
    }

    fn apply(&self, api: &str, kind: &str, name: &str, spec: Value) {
        let object = json!({
            "apiVersion": api, "kind": kind, "metadata": {"name": name, "namespace": self.name}, "spec": spec,
        });
        TYPES.apply(&object.to_string()).unwrap();
    }

    fn cluster(&self, control_plane: Value) {
        let network =
            json!({"apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "LabCluster", "name": "c"});
        let spec = json!({"controlPlane": control_plane, "infrastructureRef": network});
        self.apply("cluster.x-k8s.io/v1alpha4", "Cluster", "c", spec);
    }

    fn plane(&self, spec: Value) {
        self.apply("controlplane.cluster.x-k8s.io/v1alpha4", "KubeadmControlPlane", "k", spec);
    }

    fn balancer(&self, spec: Value) {
        let reference =
            json!({"apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "AWSNLB", "name": "nlb"});
        let mut all = json!({"clusterName": "c", "infrastructureRef": reference});
        all.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
        self.apply("infrastructure.cluster.x-k8s.io/v1alpha4", "AWSNLB", "nlb", json!({}));
        self.apply("cluster.x-k8s.io/v1alpha4", "LoadBalancer", "lb", all);
    }

    fn get(&self, kind: &str, name: &str) -> Value {
        let found = TYPES.kubectl(&["--namespace", self.name, "get", kind, name, "-o", "json"]);
        found.map_or(Value::Null, |text| serde_json::from_str(&text).unwrap())
    }

    fn status(&self, kind: &str, name: &str, status: &Value) {
        let patch = json!({"status": status}).to_string();
        let arguments = [
            "--namespace",
            self.name,
            "patch",
            kind,
            name,
            "--subresource=status",
            "--type=merge",
            "-p",
            &patch,
        ];
        TYPES.kubectl(&arguments).unwrap();
    }

    fn condition(&self, kind: &str, name: &str, type_: &str) -> String {
        let found = self.get(kind, name);
        let conditions = found["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let found = conditions.iter().find(|condition| condition["type"] == type_);
        found.map_or_else(String::new, |condition| {
            format!("{} {}", condition["status"].as_str().unwrap(), condition["reason"].as_str().unwrap())
        })
    }
}

const CLUSTERS: &str = "clusters.cluster.x-k8s.io";
const PLANES: &str = "kubeadmcontrolplanes.controlplane.cluster.x-k8s.io";
const BALANCERS: &str = "loadbalancers.cluster.x-k8s.io";

fn endpoint(host: &str) -> Value {
    json!({"host": host, "port": 443})
}

/// Where the API of these tests is, which answers as the one of any cluster does.
fn answering() -> Value {
    let url = TYPES.url();
    let (host, port) = url.trim_start_matches("https://").rsplit_once(':').unwrap();
    json!({"host": host, "port": port.parse::<u16>().unwrap()})
}

/// As the proposal's example has it, in the group of Clusters.
fn provider() -> Value {
    json!({"apiGroup": "cluster.x-k8s.io", "kind": "KubeadmControlPlane", "name": "k"})
}

fn load_balancer() -> Value {
    json!({"apiGroup": "cluster.x-k8s.io", "kind": "LoadBalancer", "name": "lb"})
}

#[tokio::test(flavor = "multi_thread")]
async fn endpoint_and_control_plane_of_others() {
    let scene = Scene::new("proposed-others").await;
    scene.cluster(json!({"endpoint": answering()}));
    eventually("it is not ready without a kubeconfig", || {
        scene.condition(CLUSTERS, "c", "ControlPlaneReady") == "False NotAnswering"
    });
    assert_eq!(scene.condition(CLUSTERS, "c", "ControlPlaneInitialized"), "True ManagedByOthers");
    // The control plane that is there: this one.
    let file = format!("--from-file=value={}", TYPES.kubeconfig().display());
    TYPES
        .kubectl(&["--namespace", scene.name, "create", "secret", "generic", "c-kubeconfig", &file])
        .unwrap();
    eventually("it answers", || scene.condition(CLUSTERS, "c", "ControlPlaneReady") == "True Answering");
    assert_eq!(scene.get(CLUSTERS, "c")["status"]["controlPlaneReady"], true);
    // It is the endpoint that has to answer, wherever the kubeconfig leads.
    scene.cluster(json!({"endpoint": {"host": "127.0.0.1", "port": 1}}));
    eventually("nobody answers there", || {
        scene.condition(CLUSTERS, "c", "ControlPlaneReady") == "False NotAnswering"
    });
    assert_eq!(scene.get(CLUSTERS, "c")["status"]["controlPlaneReady"], false);
}

#[tokio::test(flavor = "multi_thread")]
async fn endpoint_of_others() {
    let scene = Scene::new("proposed-endpoint").await;
    scene.plane(json!({"loadBalancerRef": load_balancer()}));
    scene.balancer(json!({}));
    scene.cluster(json!({"endpoint": endpoint("api.example.com"), "providerRef": provider()}));
    eventually("the control plane has it", || {
        scene.get(PLANES, "k")["spec"]["endpoint"] == endpoint("api.example.com")
    });
    eventually("the load balancer has it", || {
        scene.get(BALANCERS, "lb")["spec"]["endpoint"] == endpoint("api.example.com")
    });
    eventually("its provider has it", || {
        scene.get("awsnlb", "nlb")["spec"]["assignment"]["endpoint"] == endpoint("api.example.com")
    });
    // What it was asked for first is all it was asked for: it never heard of it without the endpoint.
    assert_eq!(scene.get("awsnlb", "nlb")["metadata"]["generation"], 2);
    eventually("its control plane is waited for", || {
        scene.condition(CLUSTERS, "c", "ControlPlaneReady") == "False WaitingForControlPlane"
    });
    scene.status(PLANES, "k", &json!({"ready": true, "initialized": true}));
    eventually("it is as ready as its control plane", || {
        scene.condition(CLUSTERS, "c", "ControlPlaneReady") == "True Ready"
            && scene.condition(CLUSTERS, "c", "ControlPlaneInitialized") == "True Initialized"
    });
}

/// Its control plane alone says whether a load balancer is in front of it. Before that is there nobody knows where it is to be found, and
/// a moment without it changes nothing.
#[tokio::test(flavor = "multi_thread")]
async fn a_control_plane_that_comes_last_has_the_endpoint_of_its_cluster() {
    let scene = Scene::new("proposed-last").await;
    scene.cluster(json!({"endpoint": endpoint("api.example.com"), "providerRef": provider()}));
    scene.balancer(json!({}));
    // As one that has an address of its own before it is asked for anything.
    let status = json!({"address": "nlb.example.com", "members": [], "conditions": []});
    scene.status("awsnlb", "nlb", &status);
    let infrastructure = || scene.condition(BALANCERS, "lb", "InfrastructureReady");
    eventually("that is told", || infrastructure() == "False ControlPlaneNotFound");
    let asked = || scene.get("awsnlb", "nlb")["spec"]["assignment"].clone();
    assert!(asked().is_null() && scene.get(BALANCERS, "lb")["spec"].get("endpoint").is_none());
    scene.plane(json!({"loadBalancerRef": load_balancer()}));
    eventually("its provider has it", || asked()["endpoint"] == endpoint("api.example.com"));
    assert_eq!(scene.get(BALANCERS, "lb")["spec"]["endpoint"], endpoint("api.example.com"));
    assert_eq!(scene.get("awsnlb", "nlb")["metadata"]["generation"], 2, "it never heard of it without");
    eventually("all is well", || infrastructure() != "False ControlPlaneNotFound");

    TYPES.kubectl(&["--namespace", scene.name, "delete", PLANES, "k"]).unwrap();
    eventually("that is told", || infrastructure() == "False ControlPlaneNotFound");
    let labels = json!({"cluster.x-k8s.io/cluster-name": "c", "loadbalancer.cluster.x-k8s.io/name": "lb"});
    let machine = json!({
        "apiVersion": "cluster.x-k8s.io/v1alpha4", "kind": "Machine",
        "metadata": {"name": "one", "namespace": scene.name, "labels": labels}, "spec": {"clusterName": "c"},
    });
    TYPES.apply(&machine.to_string()).unwrap();
    let addresses = json!([{"type": "InternalIP", "address": "10.0.0.1"}]);
    scene.status("machines.cluster.x-k8s.io", "one", &json!({"addresses": addresses}));
    eventually("members come all the same", || asked()["members"][0]["name"] == "one");
    assert_eq!(asked()["endpoint"], endpoint("api.example.com"));
    scene.plane(json!({"loadBalancerRef": load_balancer()}));
    eventually("all is well", || infrastructure() != "False ControlPlaneNotFound");
}

#[tokio::test(flavor = "multi_thread")]
async fn endpoint_of_the_provider() {
    let scene = Scene::new("proposed-provider").await;
    scene.cluster(json!({"providerRef": provider()}));
    scene.plane(json!({"loadBalancerRef": load_balancer()}));
    scene.balancer(json!({}));
    eventually("it is waited for", || {
        scene.condition(PLANES, "k", "EndpointReady") == "False WaitingForEndpoint"
    });
    eventually("the Cluster waits for it, too", || {
        scene.condition(CLUSTERS, "c", "ControlPlaneReady") == "False WaitingForEndpoint"
    });
    eventually("the provider is asked", || scene.get("awsnlb", "nlb")["spec"].get("assignment").is_some());
    scene.status("awsnlb", "nlb", &json!({"address": "nlb.example.com", "members": [], "conditions": []}));
    let known = json!({"host": "nlb.example.com", "port": 6443});
    eventually("the load balancer has it", || scene.get(BALANCERS, "lb")["spec"]["endpoint"] == known);
    eventually("the control plane has it", || scene.get(PLANES, "k")["spec"]["endpoint"] == known);
    eventually("the Cluster has it", || {
        scene.get(CLUSTERS, "c")["spec"]["controlPlane"]["endpoint"] == known
    });
    eventually("the load balancer's word counts", || {
        scene.condition(PLANES, "k", "EndpointReady") == "Unknown NotAsked"
    });
}

/// Whether it answers is known to its load balancer, and told by the control plane.
#[tokio::test(flavor = "multi_thread")]
async fn a_control_plane_says_what_its_load_balancer_says() {
    let scene = Scene::asking("proposed-state", Some(Duration::from_secs(1))).await;
    scene.cluster(json!({"endpoint": answering(), "providerRef": provider()}));
    scene.plane(json!({"loadBalancerRef": load_balancer()}));
    eventually("it is told what is missing", || {
        scene.condition(PLANES, "k", "EndpointReady") == "False NotFound"
    });
    scene.balancer(json!({}));
    eventually("it answers", || scene.condition(PLANES, "k", "EndpointReady") == "True Answering");
    let nobody = json!({"host": "127.0.0.1", "port": 1});
    for (kind, name, field) in [
        (CLUSTERS, "c", json!({"controlPlane": {"endpoint": nobody}})),
        (PLANES, "k", json!({"endpoint": nobody})),
        (BALANCERS, "lb", json!({"endpoint": nobody})),
    ] {
        let patch = json!({"spec": field}).to_string();
        TYPES
            .kubectl(&["--namespace", scene.name, "patch", kind, name, "--type=merge", "-p", &patch])
            .unwrap();
    }
    eventually("it does not any more", || {
        scene.condition(PLANES, "k", "EndpointReady") == "False NotAnswering"
    });
}

/// The Cluster and its control plane agree, and their load balancer does not.
#[tokio::test(flavor = "multi_thread")]
async fn a_load_balancer_elsewhere_is_told() {
    let scene = Scene::new("proposed-elsewhere").await;
    scene.cluster(json!({"endpoint": endpoint("one.example.com"), "providerRef": provider()}));
    scene.plane(json!({"endpoint": endpoint("one.example.com"), "loadBalancerRef": load_balancer()}));
    scene.balancer(json!({"endpoint": endpoint("two.example.com")}));
    for (kind, name, type_) in [
        (CLUSTERS, "c", "ControlPlaneReady"),
        (PLANES, "k", "EndpointReady"),
        (BALANCERS, "lb", "EndpointReady"),
    ] {
        eventually("all say so", || scene.condition(kind, name, type_) == "False EndpointMismatch");
    }
    assert!(scene.get("awsnlb", "nlb")["spec"].get("assignment").is_none(), "nothing is made");
    // Another name for the same is none.
    scene.balancer(json!({
        "endpoint": endpoint("two.example.com"), "alternateEndpoints": [endpoint("one.example.com")],
    }));
    eventually("it is well", || scene.condition(PLANES, "k", "EndpointReady") == "Unknown NotAsked");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_reference_it_is_the_networks() {
    let scene = Scene::new("proposed-fallback").await;
    scene.apply(
        "infrastructure.cluster.x-k8s.io/v1",
        "LabCluster",
        "c",
        json!({"controlPlaneEndpoint": endpoint("net.example.com")}),
    );
    scene.cluster(json!({"providerRef": provider()}));
    scene.plane(json!({}));
    eventually("the control plane has it", || {
        scene.get(PLANES, "k")["spec"]["endpoint"] == endpoint("net.example.com")
    });
    eventually("the Cluster has it", || {
        scene.get(CLUSTERS, "c")["spec"]["controlPlane"]["endpoint"] == endpoint("net.example.com")
    });
}

/// What the Cluster says goes down to the network, and what the network says otherwise changes nothing.
#[tokio::test(flavor = "multi_thread")]
async fn without_a_reference_the_network_gets_it() {
    let scene = Scene::new("proposed-fallback-down").await;
    let network = |spec| scene.apply("infrastructure.cluster.x-k8s.io/v1", "LabCluster", "c", spec);
    network(json!({}));
    scene.cluster(json!({"endpoint": endpoint("api.example.com"), "providerRef": provider()}));
    scene.plane(json!({}));
    eventually("the network has it", || {
        scene.get("labcluster", "c")["spec"]["controlPlaneEndpoint"] == endpoint("api.example.com")
    });
    eventually("all agree", || scene.condition(PLANES, "k", "EndpointReady") == "True Known");
    network(json!({"controlPlaneEndpoint": endpoint("net.example.com")}));
    eventually("it is told", || {
        scene.condition(PLANES, "k", "EndpointReady") == "False EndpointMismatch"
            && scene.condition(CLUSTERS, "c", "ControlPlaneReady") == "False EndpointMismatch"
    });
    assert_eq!(scene.get(PLANES, "k")["spec"]["endpoint"], endpoint("api.example.com"));
    let found = scene.get("labcluster", "c");
    assert_eq!(found["spec"]["controlPlaneEndpoint"], endpoint("net.example.com"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mismatch_changes_nothing() {
    let scene = Scene::new("proposed-mismatch").await;
    scene.cluster(json!({"endpoint": endpoint("one.example.com"), "providerRef": provider()}));
    scene.plane(json!({"endpoint": endpoint("two.example.com"), "loadBalancerRef": load_balancer()}));
    scene.balancer(json!({"endpoint": endpoint("three.example.com")}));
    eventually("the Cluster says so", || {
        scene.condition(CLUSTERS, "c", "ControlPlaneReady") == "False EndpointMismatch"
    });
    eventually("the load balancer says so", || {
        scene.condition(BALANCERS, "lb", "EndpointReady") == "False EndpointMismatch"
    });
    eventually("the control plane says so", || {
        scene.condition(PLANES, "k", "EndpointReady") == "False EndpointMismatch"
    });
    assert_eq!(scene.get(CLUSTERS, "c")["spec"]["controlPlane"]["endpoint"], endpoint("one.example.com"));
    assert_eq!(scene.get(PLANES, "k")["spec"]["endpoint"], endpoint("two.example.com"));
    assert!(scene.get("awsnlb", "nlb")["spec"].get("assignment").is_none(), "nothing is made");
}

/// It is there, and nobody says of it that it is not.
#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_that_cannot_be_read_is_told() {
    let scene = Scene::new("proposed-unread").await;
    let cluster = |class: Value| {
        let spec = json!({"topology": {"class": class}});
        scene.apply("cluster.x-k8s.io/v1alpha4", "Cluster", "c", spec);
    };
    cluster(json!(5));
    // One that goes, as it was held when the Cluster could be read.
    let hook = "pre-drain.delete.hook.machine.cluster.x-k8s.io/lb";
    let machine = json!({
        "apiVersion": "cluster.x-k8s.io/v1alpha4", "kind": "Machine", "spec": {"clusterName": "c"},
        "metadata": {
            "name": "one", "namespace": scene.name, "finalizers": ["lab/machine"],
            "annotations": {hook: "portcullis", "loadbalancer.cluster.x-k8s.io/member": "lb"},
        },
    });
    TYPES.apply(&machine.to_string()).unwrap();
    let machines = "machines.cluster.x-k8s.io";
    TYPES.kubectl(&["--namespace", scene.name, "delete", machines, "one", "--wait=false"]).unwrap();
    scene.balancer(json!({"endpoint": endpoint("api.example.com"), "drainTimeoutSeconds": 0}));
    let ready = || {
        let balancer = scene.get(BALANCERS, "lb");
        let conditions = balancer["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let ready = conditions.iter().find(|found| found["type"] == "InfrastructureReady").cloned();
        ready.map_or(String::new(), |ready| format!("{} {}", ready["reason"], ready["message"]))
    };
    eventually("that is told", || ready().contains("Cluster c: its spec cannot be read"));
    // Half a minute more than it is given, the pause before it is looked at again, and the time of a busy machine.
    eventually_within(Duration::from_secs(240), "nobody waits for that for ever", || {
        scene.get(machines, "one")["metadata"]["annotations"].get(hook).is_none()
    });
    assert!(ready().contains("Cluster c: its spec cannot be read"));
    cluster(json!("small"));
    eventually("it is looked after then", || !ready().contains("Cluster c"));
    let freed = json!({"metadata": {"finalizers": null}}).to_string();
    TYPES
        .kubectl(&["--namespace", scene.name, "patch", machines, "one", "--type=merge", "-p", &freed])
        .unwrap();
}

/// All that belongs to a Cluster that is paused says so, and what is changed meanwhile counts after that.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_done_for_a_paused_cluster() {
    let scene = Scene::new("proposed-paused").await;
    scene.cluster(json!({"providerRef": provider()}));
    scene.plane(json!({"loadBalancerRef": load_balancer()}));
    scene.balancer(json!({}));
    let all = [(CLUSTERS, "c"), (PLANES, "k"), (BALANCERS, "lb")];
    let say = |what: &str| all.iter().all(|(kind, name)| scene.condition(kind, name, "Paused") == what);
    eventually("nothing is paused", || say("False NotPaused"));
    eventually("the provider is asked", || scene.get("awsnlb", "nlb")["spec"].get("assignment").is_some());
    let patch = |kind: &str, name: &str, spec: Value| {
        let patch = json!({"spec": spec}).to_string();
        let arguments = ["--namespace", scene.name, "patch", kind, name, "--type=merge", "-p", &patch];
        TYPES.kubectl(&arguments).unwrap();
    };
    patch(CLUSTERS, "c", json!({"paused": true}));
    eventually("all say so", || say("True Paused"));
    let asked = scene.get("awsnlb", "nlb")["spec"].clone();
    scene.status("awsnlb", "nlb", &json!({"address": "nlb.example.com", "members": [], "conditions": []}));
    patch(CLUSTERS, "c", json!({"controlPlane": {"endpoint": endpoint("api.example.com")}}));
    patch(BALANCERS, "lb", json!({"allowedSourceRanges": ["192.0.2.0/24"]}));
    eventually("that was seen", || {
        [(CLUSTERS, "c"), (BALANCERS, "lb")].iter().all(|(kind, name)| {
            let found = scene.get(kind, name);
            let conditions = found["status"]["conditions"].as_array().cloned().unwrap_or_default();
            let paused = conditions.into_iter().find(|found| found["type"] == "Paused").unwrap_or_default();
            paused["observedGeneration"] == found["metadata"]["generation"]
        })
    });
    assert!(say("True Paused"));
    assert_eq!(scene.get("awsnlb", "nlb")["spec"], asked);
    for (kind, name) in [(PLANES, "k"), (BALANCERS, "lb")] {
        assert!(scene.get(kind, name)["spec"].get("endpoint").is_none());
    }
    patch(CLUSTERS, "c", json!({"paused": false}));
    eventually("all of it is done then", || {
        let asked = scene.get("awsnlb", "nlb")["spec"]["assignment"].clone();
        asked["endpoint"] == endpoint("api.example.com")
            && asked["allowedSourceRanges"] == json!(["192.0.2.0/24"])
            && scene.get(PLANES, "k")["spec"]["endpoint"] == endpoint("api.example.com")
    });
    eventually("nothing is paused", || say("False NotPaused"));
}

/// The same agents and the same `HAProxy`, under the proposal's names.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn machines_with_haproxy_carry_it() {
    let [carrier, visitor, member] = ["carrier", "client", "member"].map(Host::new);
    link(&visitor, &["192.0.2.10/24"], &carrier, &["192.0.2.1/24"]);
    link(&member, &["10.9.0.2/24"], &carrier, &["10.9.0.1/24"]);
    let _backend = Backend::start(&member, 6443);
    let scratch = Scratch::new().unwrap();
    let _leash = Leash::new(scratch.path());
    // It ends before that: an agent that is still there would start HAProxy again.
    let mut scene = Scene::new("proposed-haproxy").await;
    let settings = Settings::new(scratch.path());
    let machine = Namespace::run(&carrier, || Carrier::start(settings)).unwrap();
    let mut selection = Selection::usual();
    selection.internal.push("to-member".to_owned());
    let settings = HaProxyAgentSettings {
        flavour: Flavour::Proposed,
        namespace: Some(scene.name.to_owned()),
        agents: scene.name.to_owned(),
        pool: scene.name.to_owned(),
        name: "carrier".to_owned(),
        sharing: None,
        selection,
        tuning: Tuning::default(),
    };
    let agent = HaProxyAgent::new(client().await, machine, settings);
    let settings = HaProxySettings {
        flavour: Flavour::Proposed,
        namespace: Some(scene.name.to_owned()),
        but: None,
        agents: scene.name.to_owned(),
        concurrency: 1,
    };
    let controller = HaProxyController::new(client().await, settings);
    scene.tasks.extend([tokio::spawn(agent.run(|_| {})), tokio::spawn(controller.run())]);

    scene.cluster(json!({"providerRef": provider()}));
    scene.plane(json!({"loadBalancerRef": load_balancer()}));
    let kind = "HAProxyLoadBalancer";
    scene.apply("infrastructure.cluster.x-k8s.io/v1alpha4", kind, "lb", json!({"pool": scene.name}));
    let made = json!({"apiGroup": "infrastructure.cluster.x-k8s.io", "kind": kind, "name": "lb"});
    // Nobody fails who is slow for a while.
    let check = json!({
        "protocol": "HTTPS", "path": "/readyz",
        "intervalSeconds": 1, "timeoutSeconds": 1, "healthyThreshold": 1, "unhealthyThreshold": 10,
    });
    let listeners = json!([{"port": 443, "targetPort": 6443, "healthCheck": check}]);
    let spec = json!({"clusterName": "c", "infrastructureRef": made, "listeners": listeners});
    scene.apply("cluster.x-k8s.io/v1alpha4", "LoadBalancer", "lb", spec);
    let labels = json!({"cluster.x-k8s.io/cluster-name": "c", "loadbalancer.cluster.x-k8s.io/name": "lb"});
    let machine = json!({
        "apiVersion": "cluster.x-k8s.io/v1alpha4", "kind": "Machine",
        "metadata": {"name": "member", "namespace": scene.name, "labels": labels}, "spec": {"clusterName": "c"},
    });
    TYPES.apply(&machine.to_string()).unwrap();
    let addresses = json!([{"type": "InternalIP", "address": "10.9.0.2"}]);
    scene.status("machines.cluster.x-k8s.io", "member", &json!({"addresses": addresses}));
    eventually("it serves", || scene.get(BALANCERS, "lb")["status"]["activeTargets"] == json!(["member"]));
    assert_eq!(ask(&visitor, "192.0.2.1", 443).unwrap(), "member");
    let known = json!({"host": "192.0.2.1", "port": 443});
    eventually("the Cluster has it", || {
        scene.get(CLUSTERS, "c")["spec"]["controlPlane"]["endpoint"] == known
    });
}
