//! A namespace for each test, with an AWS, nodes and a class of Services of its own: tests side by side do not see each
//! other.

use std::collections::BTreeSet;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use aws_credential_types::Credentials;
use aws_credential_types::provider::SharedCredentialsProvider;
use k8s_openapi::api::core::v1::{Event, Service};
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use portcullis_aws::{Client, CloudConfig, Endpoints, Limits, Options, Provider};
use portcullis_aws_fake::{Config, Fake, LoadBalancer, SecurityGroup, World};
use portcullis_controllers::{ServiceController, Settings};
use portcullis_kube_api::LoadBalancerClass;
use portcullis_testkit::parts::kubernetes::Kubernetes;
use portcullis_testkit::{eventually, kubernetes};
use serde_json::{Value, json};
use tokio::runtime::Handle;
use tokio::sync::{OwnedRwLockReadGuard, OwnedRwLockWriteGuard, RwLock};
use tokio::task::{JoinHandle, block_in_place};

/// What all annotations of AWS start with.
pub(crate) const PREFIX: &str = "service.beta.kubernetes.io/aws-load-balancer-";

/// A controller that looks at everything when it starts, and then only at what it hears of.
pub(crate) fn settings(scene: &str) -> Settings {
    Settings {
        cluster: "demo".to_owned(),
        class: LoadBalancerClass { name: format!("portcullis.dev/{scene}"), without_class: None },
        concurrency: 8,
        resync: Duration::from_secs(600),
        close_look: Duration::from_secs(3600),
        sweep_after: Duration::from_secs(600),
        observe: false,
        host: "test".to_owned(),
    }
}

pub(crate) async fn client(kubernetes: &Kubernetes) -> kube::Client {
    let config = Kubeconfig::read_from(kubernetes.kubeconfig()).unwrap();
    let config = kube::Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await.unwrap();
    kube::Client::try_from(config).unwrap()
}

/// Waits for an answer, where nothing else can be done meanwhile.
pub(crate) fn wait<T>(future: impl Future<Output = T>) -> T {
    block_in_place(|| Handle::current().block_on(future))
}

/// Whoever looks after Services takes one without a class that is held for its own: tests with such are alone.
static ROOM: LazyLock<Arc<RwLock<()>>> = LazyLock::new(Arc::default);

/// A place among others.
pub(crate) async fn room() -> OwnedRwLockReadGuard<()> {
    Arc::clone(&ROOM).read_owned().await
}

/// Where a test takes place.
pub(crate) struct Scene {
    _shared: Option<OwnedRwLockReadGuard<()>>,
    _alone: Option<OwnedRwLockWriteGuard<()>>,
    pub(crate) name: &'static str,
    pub(crate) fake: Fake,
    pub(crate) kubernetes: &'static Kubernetes,
    pub(crate) client: kube::Client,
}

/// A controller that ends when it is dropped, as one that is killed.
pub(crate) struct Running {
    task: JoinHandle<()>,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Running {
    /// Ends it, and waits until it did.
    pub(crate) fn stop(mut self) {
        self.task.abort();
        let _ = wait(&mut self.task);
    }
}

impl Scene {
    /// A scene with two nodes.
    pub(crate) async fn new(name: &'static str) -> Self {
        Self::with(name, |_| ()).await
    }

    /// The same, while no other one is there.
    pub(crate) async fn alone(name: &'static str) -> Self {
        let alone = Arc::clone(&ROOM).write_owned().await;
        Scene { _alone: Some(alone), ..Self::make(name, |_| ()).await }
    }

    pub(crate) async fn with(name: &'static str, change: impl FnOnce(&mut Config)) -> Self {
        Scene { _shared: Some(room().await), ..Self::make(name, change).await }
    }

    /// A further one of the same test.
    pub(crate) async fn neighbour(&self, name: &'static str) -> Self {
        Self::make(name, |_| ()).await
    }

    async fn make(name: &'static str, change: impl FnOnce(&mut Config)) -> Self {
        let mut world = World::default();
        world.add_vpc("vpc-1", "10.0.0.0/16", false);
        world.add_subnet("subnet-a", "vpc-1", "eu-central-1a", "10.0.1.0/24", false);
        world.add_subnet("subnet-b", "vpc-1", "eu-central-1b", "10.0.2.0/24", false);
        world.add_route_table("rtb-1", "vpc-1", &[], true);
        world.add_security_group("sg-nodes", "nodes", "vpc-1");
        world.add_security_group("sg-user", "user", "vpc-1");
        for node in 1..=4 {
            world.add_instance(&format!("i-{node}"), "subnet-a", &["sg-nodes"]);
        }
        let mut config = Config { world, ..Config::default() };
        change(&mut config);
        let kubernetes = kubernetes();
        let fake = Fake::start(config).unwrap();
        let client = client(kubernetes).await;
        let scene = Scene { _shared: None, _alone: None, name, fake, kubernetes, client };
        kubernetes.kubectl(&["create", "namespace", name]).unwrap();
        scene.add_node(1, &json!({}));
        scene.add_node(2, &json!({}));
        scene
    }

    /// Adds a node of that number, as a kubelet would, with something more in it.
    pub(crate) fn add_node(&self, number: u8, more: &Value) {
        let mut node = json!({
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": self.node(number), "labels": {"scene": self.name}},
            "spec": {"providerID": format!("aws:///eu-central-1a/i-{number}")},
            "status": {"addresses": [{"type": "InternalIP", "address": format!("10.0.1.{number}")}]},
        });
        merge(&mut node, more);
        self.kubernetes.apply(&node.to_string()).unwrap();
    }

    pub(crate) fn node(&self, number: u8) -> String {
        format!("{}-{number}", self.name)
    }

    /// Starts a controller that knows nothing yet.
    pub(crate) fn start(&self) -> Running {
        self.start_with("Managed", |_| ())
    }

    /// Starts one with that mode in its cloud-config.
    pub(crate) fn start_with(&self, mode: &str, change: impl FnOnce(&mut Settings)) -> Running {
        let mut settings = settings(self.name);
        change(&mut settings);
        let controller = ServiceController::new(self.client.clone(), self.provider(mode), settings);
        Running { task: tokio::spawn(controller.run()) }
    }

    pub(crate) fn provider(&self, mode: &str) -> Provider {
        let credentials =
            Credentials::new("AKIAFAKEFAKEFAKEFAKE", "a-secret-of-the-fake", None, None, "test");
        let (config, _) = CloudConfig::parse(&format!("[Global]\nNLBSecurityGroupMode = {mode}\n")).unwrap();
        let endpoint = |name: &str| (name == "AWS_ENDPOINT_URL").then(|| self.fake.url().to_owned());
        let endpoints = Endpoints::new("eu-central-1", &config, endpoint).unwrap();
        let options =
            Options { limits: Limits::none(), pause: Duration::from_millis(1), ..Options::default() };
        let client = Client::new(SharedCredentialsProvider::new(credentials), endpoints, options);
        Provider::new(client, portcullis_aws::Settings::new("demo", "vpc-1", &config).unwrap())
    }

    fn api(&self) -> Api<Service> {
        Api::namespaced(self.client.clone(), self.name)
    }

    /// Makes a Service of the scene's class with one port, and what is more or other in it, or changes it so.
    pub(crate) fn apply(&self, name: &str, more: &Value) {
        let mut service = json!({
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {
                "name": name,
                "namespace": self.name,
                "annotations": {format!("{PREFIX}target-node-labels"): format!("scene={}", self.name)},
            },
            "spec": {
                "type": "LoadBalancer",
                "loadBalancerClass": format!("portcullis.dev/{}", self.name),
                "ports": [{"name": "http", "port": 80}],
            },
        });
        merge(&mut service, more);
        let apply = PatchParams::apply("test").force();
        wait(self.api().patch(name, &apply, &Patch::Apply(service))).unwrap();
    }

    /// Changes a Service as somebody would by hand.
    pub(crate) fn patch(&self, name: &str, patch: &Value) {
        wait(self.api().patch(name, &PatchParams::default(), &Patch::Merge(patch))).unwrap();
    }

    /// Deletes a Service, without waiting for its end.
    pub(crate) fn delete(&self, name: &str) {
        wait(self.api().delete(name, &DeleteParams::default())).unwrap();
    }

    pub(crate) fn get(&self, name: &str) -> Option<Service> {
        wait(self.api().get_opt(name)).unwrap()
    }

    pub(crate) fn version(&self, name: &str) -> String {
        self.get(name).unwrap().metadata.resource_version.unwrap()
    }

    pub(crate) fn finalizers(&self, name: &str) -> Vec<String> {
        self.get(name).unwrap().metadata.finalizers.unwrap_or_default()
    }

    /// Where clients find a Service, by its status.
    pub(crate) fn address(&self, name: &str) -> Option<String> {
        let balancer = self.get(name)?.status?.load_balancer?;
        balancer.ingress?.into_iter().next()?.hostname
    }

    #[track_caller]
    pub(crate) fn wait_for_address(&self, name: &str) {
        eventually(&format!("{name} has an address"), || self.address(name).is_some());
    }

    #[track_caller]
    pub(crate) fn wait_until_gone(&self, name: &str) {
        eventually(&format!("{name} is gone"), || self.get(name).is_none());
    }

    /// How often the API was asked to change the status of a Service, by anybody. What changes nothing is not seen
    /// otherwise.
    pub(crate) fn status_patches(&self) -> u64 {
        let metrics = self.kubernetes.kubectl(&["get", "--raw", "/metrics"]).unwrap();
        let wanted = [r#"resource="services""#, r#"subresource="status""#, r#"verb="PATCH""#];
        let lines = metrics.lines().filter(|line| line.starts_with("apiserver_request_total{"));
        let lines = lines.filter(|line| wanted.iter().all(|part| line.contains(part)));
        lines.map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()).sum()
    }

    /// The node port of a Service's port.
    pub(crate) fn node_port(&self, name: &str, port: i32) -> i32 {
        let ports = self.get(name).unwrap().spec.unwrap().ports.unwrap();
        ports.iter().find(|found| found.port == port).unwrap().node_port.unwrap()
    }

    /// What we told about a Service; Kubernetes itself may have something to say of its address, too.
    pub(crate) fn events(&self, name: &str) -> Vec<Event> {
        let api: Api<Event> = Api::namespaced(self.client.clone(), self.name);
        let all = wait(api.list(&ListParams::default())).unwrap().items;
        let about = |event: &Event| {
            let component = event.source.as_ref().and_then(|source| source.component.as_deref());
            event.involved_object.name.as_deref() == Some(name) && component == Some("service-controller")
        };
        all.into_iter().filter(about).collect()
    }

    /// The reasons of what was told about a Service, each once.
    pub(crate) fn reasons(&self, name: &str) -> BTreeSet<String> {
        self.events(name).into_iter().filter_map(|event| event.reason).collect()
    }

    /// What was told about a Service for some reason: the type of the Event, and its words.
    pub(crate) fn told(&self, name: &str, reason: &str) -> Vec<(String, String)> {
        let events = self.events(name).into_iter().filter(|event| event.reason.as_deref() == Some(reason));
        events.map(|event| (event.type_.unwrap_or_default(), event.message.unwrap_or_default())).collect()
    }

    #[track_caller]
    pub(crate) fn wait_for_event(&self, name: &str, reason: &str) {
        eventually(&format!("{reason} is told of {name}"), || !self.told(name, reason).is_empty());
    }

    /// Waits until a controller has looked at everything, some times.
    #[track_caller]
    pub(crate) fn wait_for_looks(&self, times: usize) {
        let looks = || self.fake.counts().get("DescribeLoadBalancers").copied().unwrap_or_default();
        let before = looks();
        eventually("everything is looked at again", || looks() >= before + times);
    }

    /// The load balancer of a Service.
    pub(crate) fn balancer(&self, name: &str) -> Option<LoadBalancer> {
        let world = self.fake.state();
        let own = |found: &LoadBalancer| {
            found.tags.get("portcullis.dev/name").is_some_and(|tag| tag == name)
                && found.tags.get("portcullis.dev/cluster").is_some_and(|tag| tag == "demo")
        };
        world.load_balancers.into_values().find(own)
    }

    /// The group that was made for a Service.
    pub(crate) fn group(&self, name: &str) -> Option<SecurityGroup> {
        let start = format!("k8s-{:.8}-{name:.8}-", self.name.replace('-', ""));
        self.fake.state().groups.into_values().find(|group| group.name.starts_with(&start))
    }

    /// What that group lets in.
    pub(crate) fn lets_in(&self, name: &str) -> Vec<String> {
        self.group(name).map(|group| group.lets_in()).unwrap_or_default()
    }

    /// What the nodes let in.
    pub(crate) fn nodes_let_in(&self) -> Vec<String> {
        self.fake.state().groups["sg-nodes"].lets_in()
    }

    /// Who is behind a Service: `i-1`, or `10.0.1.7:8080` for pods.
    pub(crate) fn targets(&self, name: &str) -> BTreeSet<String> {
        let pools = self.fake.state().target_groups.into_values();
        let own = pools.filter(|pool| pool.tags.get("portcullis.dev/name").is_some_and(|tag| tag == name));
        let targets = own.flat_map(|pool| {
            let by_address = pool.kind == "ip";
            pool.targets.into_keys().map(move |target| {
                if by_address { format!("{}:{}", target.id, target.port) } else { target.id }
            })
        });
        targets.collect()
    }

    /// Whether nothing is left of anything that was made.
    pub(crate) fn is_untouched(&self) -> bool {
        let world = self.fake.state();
        world.load_balancers.is_empty()
            && world.target_groups.is_empty()
            && !world.groups.values().any(|group| group.name.starts_with("k8s-"))
            && world.groups["sg-nodes"].ingress.is_empty()
    }
}

/// Puts one value into another: objects member by member, others as a whole. What is null goes.
fn merge(into: &mut Value, more: &Value) {
    match (into, more) {
        (Value::Object(into), Value::Object(more)) => {
            for (key, value) in more {
                if value.is_null() {
                    into.remove(key);
                } else {
                    merge(into.entry(key.clone()).or_insert(Value::Null), value);
                }
            }
        }
        (into, more) => *into = more.clone(),
    }
}

/// A set of texts.
pub(crate) fn set<const N: usize>(texts: [&str; N]) -> BTreeSet<String> {
    texts.into_iter().map(str::to_owned).collect()
}
