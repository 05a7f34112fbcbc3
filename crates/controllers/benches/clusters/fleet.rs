//! Many clusters, the machine that carries their load balancers, and what is seen of them.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::Path;
use std::time::Duration;

use futures_util::TryStreamExt;
use kube::api::{Api, DynamicObject, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::ApiResource;
use kube::runtime::watcher;
use kube::{Client, ResourceExt};
use portcullis_controllers::cluster::{
    Carrier, HaProxyAgent, HaProxyAgentSettings, HaProxyController, HaProxySettings, LoadBalancerSettings,
    LoadBalancers,
};
use portcullis_haproxy::{Settings, Tuning};
use portcullis_host::interfaces::Selection;
use portcullis_kube_api::cluster::{Flavour, Kind, crds};
use portcullis_testkit::parts::kubernetes::Kubernetes;
use portcullis_testkit::parts::{Namespace, Scratch};
use portcullis_testkit::talk::Backend;
use portcullis_testkit::{Host, Leash, link, roomy_kubernetes_in};
use serde_json::{Value, json};
use tokio::sync::watch;

pub(crate) const OURS: &str = "--ours";
/// Where clients connect.
pub(crate) const FRONT: &str = "192.0.2.1";
const NAMESPACE: &str = "fleet";
/// How often endpoints are asked whether they answer: more often than usual, so that each is within any time that is measured.
const PROBE: Duration = Duration::from_secs(1);
/// What the API server calls requests that change something.
const WRITES: [&str; 6] = ["POST", "PUT", "PATCH", "APPLY", "DELETE", "DELETECOLLECTION"];

pub(crate) fn run_ours(kubeconfig: &str) {
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        let client = client(Path::new(kubeconfig)).await;
        let balancers = LoadBalancers::new(
            client.clone(),
            LoadBalancerSettings {
                flavour: Flavour::Proposed,
                namespace: None,
                concurrency: 16,
                probe: Some(PROBE),
                host: "bench".to_owned(),
            },
        );
        let settings = HaProxySettings {
            flavour: Flavour::Proposed,
            namespace: None,
            but: None,
            agents: NAMESPACE.to_owned(),
            concurrency: 16,
        };
        let working = async { tokio::join!(balancers.run(), HaProxyController::new(client, settings).run()) };
        let ended =
            tokio::task::spawn_blocking(|| std::io::copy(&mut std::io::stdin(), &mut std::io::sink()));
        tokio::select! {
            _ = working => {}
            _ = ended => {}
        }
    });
}

async fn client(kubeconfig: &Path) -> Client {
    let file = Kubeconfig::read_from(kubeconfig).unwrap();
    let config = kube::Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await.unwrap();
    Client::try_from(config).unwrap()
}

/// What is known of load balancers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seen {
    pub(crate) active: HashMap<String, usize>,
    pub(crate) endpoints: HashSet<String>,
    /// Those whose endpoint is known to answer.
    pub(crate) answering: HashSet<String>,
}

pub(crate) struct Fleet {
    kubernetes: Kubernetes,
    client: Client,
    seen: watch::Receiver<Seen>,
    carrier: Host,
    pub(crate) client_host: Host,
    _backends: Vec<(Host, Backend)>,
    _leash: Leash,
    scratch: Scratch,
}

pub(crate) fn name(number: usize) -> String {
    format!("c{number}")
}

pub(crate) fn port(number: usize) -> u16 {
    10_000 + u16::try_from(number).unwrap()
}

fn resource(kind: Kind) -> ApiResource {
    ApiResource {
        group: kind.group.to_owned(),
        version: kind.version.to_owned(),
        api_version: format!("{}/{}", kind.group, kind.version),
        kind: kind.kind.to_owned(),
        plural: kind.plural.to_owned(),
    }
}

fn of_clusters(kind: &'static str, plural: &'static str) -> ApiResource {
    resource(Kind { group: "cluster.x-k8s.io", version: "v1alpha4", kind, plural })
}

impl Fleet {
    pub(crate) fn kubeconfig(&self) -> &Path {
        self.kubernetes.kubeconfig()
    }

    /// One in which all but the machine that carries, and who is behind it, is on this host, also who calls this: from there
    /// endpoints are asked whether they answer.
    pub(crate) async fn new(client_host: Host) -> Self {
        let kubernetes = roomy_kubernetes_in(&client_host);
        let types: Vec<String> = crds(Flavour::Proposed).iter().map(Value::to_string).collect();
        kubernetes.apply_types(&types.join("\n---\n")).unwrap();
        kubernetes.kubectl(&["create", "namespace", NAMESPACE]).unwrap();
        let client = client(kubernetes.kubeconfig()).await;
        let carrier = Host::new("carrier");
        link(&client_host, &["192.0.2.10/24"], &carrier, &["192.0.2.1/24"]);
        let backends = (0..3).map(|number| {
            let host = Host::new(&format!("backend{number}"));
            link(&host, &[&format!("10.9.{number}.2/24")], &carrier, &[&format!("10.9.{number}.1/24")]);
            let backend = Backend::start(&host, 6443);
            (host, backend)
        });
        let backends = backends.collect();
        let scratch = Scratch::new().unwrap();
        let (sender, seen) = watch::channel(Seen::default());
        tokio::spawn(follow(client.clone(), sender));
        Fleet {
            kubernetes,
            client,
            seen,
            carrier,
            client_host,
            _backends: backends,
            _leash: Leash::new(scratch.path()),
            scratch,
        }
    }

    /// Has the machine carry everything, until this is dropped.
    pub(crate) async fn carry(&self) -> Carrying {
        let settings = Settings::new(self.scratch.path());
        let carrier = Namespace::run(&self.carrier, || Carrier::start(settings)).unwrap();
        let mut selection = Selection::usual();
        selection.internal.push("to-backend*".to_owned());
        let settings = HaProxyAgentSettings {
            flavour: Flavour::Proposed,
            namespace: None,
            agents: NAMESPACE.to_owned(),
            pool: "default".to_owned(),
            name: "carrier".to_owned(),
            sharing: None,
            selection,
            tuning: Tuning::default(),
        };
        let agent = HaProxyAgent::new(client(self.kubernetes.kubeconfig()).await, carrier, settings);
        Carrying(tokio::spawn(agent.run(|_| {})))
    }

    async fn create(&self, resource: ApiResource, name: &str, labels: Value, spec: Value) {
        let object = json!({
            "apiVersion": resource.api_version, "kind": resource.kind,
            "metadata": {"name": name, "namespace": NAMESPACE, "labels": labels}, "spec": spec,
        });
        let api: Api<DynamicObject> = Api::namespaced_with(self.client.clone(), NAMESPACE, &resource);
        api.create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await.unwrap();
    }

    /// A cluster with so many Machines, and a load balancer in front of them.
    pub(crate) async fn cluster(&self, number: usize, machines: usize) {
        let name = name(number);
        self.create(of_clusters("Cluster", "clusters"), &name, json!({}), json!({})).await;
        for machine in 0..machines {
            self.machine(number, machine).await;
        }
        let flavour = Flavour::Proposed;
        self.create(resource(flavour.haproxy()), &name, json!({}), json!({})).await;
        let spec = json!({
            "clusterName": name,
            "listeners": [{"port": port(number), "targetPort": 6443}],
            "infrastructureRef": {"apiGroup": flavour.haproxy().group, "kind": "HAProxyLoadBalancer", "name": name},
        });
        self.create(resource(flavour.load_balancer()), &name, json!({}), spec).await;
    }

    /// A Machine with an address.
    pub(crate) async fn machine(&self, cluster: usize, number: usize) {
        let (cluster, machine) = (name(cluster), format!("{}-{number}", name(cluster)));
        let labels = json!({
            "cluster.x-k8s.io/cluster-name": cluster,
            "cluster.x-k8s.io/control-plane": "",
            "loadbalancer.cluster.x-k8s.io/name": cluster,
        });
        let kind = of_clusters("Machine", "machines");
        self.create(kind.clone(), &machine, labels, json!({"clusterName": cluster})).await;
        let api: Api<DynamicObject> = Api::namespaced_with(self.client.clone(), NAMESPACE, &kind);
        let addresses = json!([{"type": "InternalIP", "address": format!("10.9.{number}.2")}]);
        let patch = Patch::Merge(json!({"status": {"addresses": addresses}}));
        api.patch_status(&machine, &PatchParams::default(), &patch).await.unwrap();
    }

    pub(crate) async fn until(&self, is: impl Fn(&Seen) -> bool) {
        self.seen.clone().wait_for(|seen| is(seen)).await.unwrap();
    }

    /// How often the API server was asked to change something, by anybody, as it counts itself: also what changes nothing, and
    /// what is refused. By resource. Leases are left out, which every machine renews for as long as it is there, and the API server
    /// renews its own.
    pub(crate) fn writes(&self) -> BTreeMap<String, u64> {
        let metrics = self.kubernetes.kubectl(&["get", "--raw", "/metrics"]).unwrap();
        let mut writes = BTreeMap::new();
        for line in metrics.lines().filter(|line| line.starts_with("apiserver_request_total{")) {
            let label = |name: &str| {
                let (_, rest) = line.split_once(&format!("{name}=\"")).unwrap_or_default();
                rest.split('"').next().unwrap_or_default().to_owned()
            };
            let resource = label(",resource");
            if WRITES.contains(&label("verb").as_str()) && resource != "leases" {
                let count: u64 = line.rsplit(' ').next().unwrap().parse().unwrap();
                *writes.entry(resource).or_default() += count;
            }
        }
        writes
    }
}

/// What the machine carries, until this is dropped.
pub(crate) struct Carrying(tokio::task::JoinHandle<()>);

impl Drop for Carrying {
    fn drop(&mut self) {
        self.0.abort();
    }
}

async fn follow(client: Client, seen: watch::Sender<Seen>) {
    let kind = resource(Flavour::Proposed.load_balancer());
    let api: Api<DynamicObject> = Api::namespaced_with(client, NAMESPACE, &kind);
    let events = watcher(api, watcher::Config::default());
    futures_util::pin_mut!(events);
    while let Ok(Some(event)) = events.try_next().await {
        let (watcher::Event::Apply(object) | watcher::Event::InitApply(object)) = event else { continue };
        let active = object.data["status"]["activeTargets"].as_array().map_or(0, Vec::len);
        let has_endpoint = object.data["spec"]["endpoint"]["host"].is_string();
        let conditions = object.data["status"]["conditions"].as_array();
        let answers = conditions.into_iter().flatten().any(|found| found["reason"] == "Answering");
        seen.send_modify(|seen| {
            seen.active.insert(object.name_any(), active);
            if has_endpoint {
                seen.endpoints.insert(object.name_any());
            }
            if answers {
                seen.answering.insert(object.name_any());
            }
        });
    }
}
