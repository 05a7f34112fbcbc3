//! A namespace of a management cluster, with the real Cluster API beside ours. What makes Machines and load balancers are doubles:
//! objects that say what the test wants them to.

use std::path::Path;
use std::sync::LazyLock;
use std::thread::sleep;
use std::time::{Duration, Instant};

use kube::config::{KubeConfigOptions, Kubeconfig};
use portcullis_controllers::cluster::{LoadBalancerSettings, LoadBalancers};
use portcullis_kube_api::cluster::{Flavour, crds};
use portcullis_testkit::parts::Namespace;
use portcullis_testkit::parts::kubernetes::Kubernetes;
use portcullis_testkit::{ClusterApi, eventually, eventually_within, kubernetes, kubernetes_in};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

/// What makes clusters, machines and load balancers, and does nothing by itself: only what the contracts ask for.
fn doubles() -> String {
    let kind = |group: &str, kind: &str, subresources: Value| {
        let plural = format!("{}s", kind.to_ascii_lowercase());
        json!({
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {
                "name": format!("{plural}.{group}"),
                "labels": {
                    "cluster.x-k8s.io/v1beta2": "v1", "cluster.x-k8s.io/v1beta1": "v1",
                    "clusterctl.cluster.x-k8s.io": "",
                },
            },
            "spec": {
                "group": group,
                "names": {"kind": kind, "plural": plural},
                "scope": "Namespaced",
                "versions": [{
                    "name": "v1", "served": true, "storage": true, "subresources": subresources,
                    "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
                }],
            },
        })
        .to_string()
    };
    let infrastructure = "infrastructure.cluster.x-k8s.io";
    let all = [
        kind(infrastructure, "LabCluster", json!({})),
        kind(infrastructure, "LabMachine", json!({})),
        kind(infrastructure, "LabBalancer", json!({"status": {}})),
        kind(infrastructure, "LabClusterTemplate", json!({})),
        kind("controlplane.cluster.x-k8s.io", "LabControlPlane", json!({"status": {}})),
        kind("controlplane.cluster.x-k8s.io", "LabControlPlaneTemplate", json!({})),
    ];
    all.join("\n---\n")
}

/// The management cluster that tests of this process share.
static MANAGEMENT: LazyLock<Management> = LazyLock::new(|| Management::new(kubernetes()));

/// Another one, for what moves.
static ANOTHER: LazyLock<Management> = LazyLock::new(|| {
    static KUBERNETES: LazyLock<Kubernetes> = LazyLock::new(|| kubernetes_in(&Namespace::host()));
    Management::new(&KUBERNETES)
});

/// A Kubernetes API with Cluster API and our types in it.
struct Management {
    kubernetes: &'static Kubernetes,
    _cluster_api: ClusterApi,
}

impl Management {
    fn new(kubernetes: &'static Kubernetes) -> Self {
        let cluster_api = ClusterApi::start(kubernetes);
        let ours: Vec<String> = crds(Flavour::Own).iter().map(Value::to_string).collect();
        kubernetes.apply_types(&ours.join("\n---\n")).unwrap();
        kubernetes.apply_types(&doubles()).unwrap();
        Management { kubernetes, _cluster_api: cluster_api }
    }
}

/// Some of it takes half a minute on an idle machine: the time that a member has, and what is granted after that.
const PATIENCE: Duration = Duration::from_secs(180);

pub(crate) struct Scene {
    pub(crate) kubernetes: &'static Kubernetes,
    pub(crate) name: &'static str,
}

/// Who looks after it, until it is dropped.
pub(crate) struct Running(pub(crate) JoinHandle<()>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.abort();
    }
}

pub(crate) async fn client(kubernetes: &Kubernetes) -> kube::Client {
    client_of(kubernetes.kubeconfig()).await
}

pub(crate) async fn client_of(kubeconfig: &Path) -> kube::Client {
    let file = Kubeconfig::read_from(kubeconfig).unwrap();
    let config = kube::Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await.unwrap();
    kube::Client::try_from(config).unwrap()
}

impl Scene {
    pub(crate) fn new(name: &'static str) -> Self {
        let kubernetes = MANAGEMENT.kubernetes;
        kubernetes.kubectl(&["create", "namespace", name]).unwrap();
        Scene { kubernetes, name }
    }

    /// The same namespace in another management cluster, where there is nothing yet.
    pub(crate) fn elsewhere(&self) -> Self {
        Scene { kubernetes: ANOTHER.kubernetes, name: self.name }
    }

    /// Looks after the load balancers of the namespace.
    pub(crate) async fn look_after(&self) -> Running {
        self.look_after_as(client(self.kubernetes).await)
    }

    /// The same, with the rights of somebody.
    pub(crate) fn look_after_as(&self, client: kube::Client) -> Running {
        self.look_after_asking(client, None)
    }

    /// The same, and endpoints are asked so often whether they answer.
    pub(crate) fn look_after_asking(&self, client: kube::Client, probe: Option<Duration>) -> Running {
        let settings = LoadBalancerSettings {
            flavour: Flavour::Own,
            namespace: Some(self.name.to_owned()),
            concurrency: 4,
            probe,
            host: "test".to_owned(),
        };
        let balancers = LoadBalancers::new(client, settings);
        Running(tokio::spawn(balancers.run()))
    }

    pub(crate) fn apply(&self, object: Value) {
        let mut object = object;
        object["metadata"]["namespace"] = json!(self.name);
        // The manager's webhooks may take a moment to answer at first.
        eventually("the API takes it", || self.kubernetes.apply(&object.to_string()).is_ok());
    }

    /// A Cluster whose infrastructure is there. What is given goes into its spec.
    pub(crate) fn cluster(&self, name: &str, metadata: Value, spec: Value) {
        self.apply(json!({
            "apiVersion": "infrastructure.cluster.x-k8s.io/v1",
            "kind": "LabCluster",
            "metadata": {"name": name},
            "spec": {},
            "status": {"initialization": {"provisioned": true}},
        }));
        let mut cluster = json!({
            "apiVersion": "cluster.x-k8s.io/v1beta2",
            "kind": "Cluster",
            "metadata": {"name": name},
            "spec": {"infrastructureRef": {"apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "LabCluster", "name": name}},
        });
        merge(&mut cluster["metadata"], metadata);
        merge(&mut cluster["spec"], spec);
        self.apply(cluster);
    }

    /// A Machine of a cluster with these labels, whose infrastructure has this address.
    pub(crate) fn machine(&self, cluster: &str, name: &str, address: &str, labels: Value) {
        self.machine_known_as(&format!("lab://{}/{name}", self.name), cluster, name, address, labels);
    }

    /// The same, which the place where it runs knows by this.
    pub(crate) fn machine_known_as(
        &self,
        provider_id: &str,
        cluster: &str,
        name: &str,
        address: &str,
        labels: Value,
    ) {
        self.apply(json!({
            "apiVersion": "infrastructure.cluster.x-k8s.io/v1",
            "kind": "LabMachine",
            "metadata": {"name": name},
            "spec": {"providerID": provider_id},
            "status": {
                "initialization": {"provisioned": true},
                "addresses": [{"type": "InternalIP", "address": address}],
            },
        }));
        let mut all = json!({"cluster.x-k8s.io/cluster-name": cluster});
        merge(&mut all, labels);
        self.apply(json!({
            "apiVersion": "cluster.x-k8s.io/v1beta2",
            "kind": "Machine",
            "metadata": {"name": name, "labels": all},
            "spec": {
                "clusterName": cluster,
                "bootstrap": {"dataSecretName": "none"},
                "infrastructureRef": {"apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "LabMachine", "name": name},
            },
        }));
    }

    /// A Machine of a control plane behind a load balancer.
    pub(crate) fn control_plane(&self, cluster: &str, balancer: &str, name: &str, address: &str) {
        let labels =
            json!({"cluster.x-k8s.io/control-plane": "", "loadbalancer.cluster.x-k8s.io/name": balancer});
        self.machine(cluster, name, address, labels);
    }

    /// A load balancer, and what makes it.
    pub(crate) fn balancer(&self, cluster: &str, name: &str, spec: Value) {
        self.maker(name);
        let mut all = json!({
            "clusterName": cluster,
            "infrastructureRef": {"apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "LabBalancer", "name": name},
        });
        merge(&mut all, spec);
        self.apply(json!({
            "apiVersion": "loadbalancer.portcullis.dev/v1alpha1",
            "kind": "LoadBalancer",
            "metadata": {"name": name},
            "spec": all,
        }));
    }

    /// What makes a load balancer.
    pub(crate) fn maker(&self, name: &str) {
        self.apply(json!({
            "apiVersion": "infrastructure.cluster.x-k8s.io/v1",
            "kind": "LabBalancer",
            "metadata": {"name": name},
            "spec": {},
        }));
    }

    pub(crate) fn kubectl(&self, arguments: &[&str]) -> String {
        let mut all = vec!["--namespace", self.name];
        all.extend(arguments);
        let deadline = Instant::now() + PATIENCE;
        loop {
            match self.kubernetes.kubectl(&all) {
                Ok(text) => return text,
                Err(error) => {
                    let said = error.to_string();
                    // A webhook of the manager does not always answer in time on a busy machine.
                    let may_pass =
                        ["failed calling webhook", "conversion webhook", "context deadline exceeded"];
                    let is_final = !may_pass.iter().any(|why| said.contains(why));
                    assert!(!is_final && Instant::now() < deadline, "{said}");
                }
            }
            sleep(Duration::from_millis(500));
        }
    }

    /// An object; null, if there is none.
    pub(crate) fn get(&self, kind: &str, name: &str) -> Value {
        let kind = match kind {
            "loadbalancer" => "loadbalancers.loadbalancer.portcullis.dev",
            other => other,
        };
        let found = self.kubectl(&["get", kind, name, "--ignore-not-found", "-o", "json"]);
        if found.is_empty() { Value::Null } else { serde_json::from_str(&found).unwrap() }
    }

    pub(crate) fn patch(&self, kind: &str, name: &str, patch: &Value) {
        self.kubectl(&["patch", kind, name, "--type=merge", "-p", &patch.to_string()]);
    }

    /// What makes a load balancer says that it did what it was asked for last, and where it is found.
    pub(crate) fn report(&self, name: &str, address: &str, members: &[(&str, &str)]) {
        self.report_of("labbalancer", name, address, members);
    }

    /// The same for one of another kind.
    pub(crate) fn report_of(&self, kind: &str, name: &str, address: &str, members: &[(&str, &str)]) {
        let generation = self.get(kind, name)["metadata"]["generation"].clone();
        let members: Vec<Value> =
            members.iter().map(|(name, status)| json!({"name": name, "status": status})).collect();
        let status = json!({"status": {
            "observedGeneration": generation,
            "initialization": {"provisioned": true},
            "address": address,
            "members": members,
            "conditions": [{"type": "Ready", "status": "True", "reason": "Made", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}],
        }});
        self.kubectl(&[
            "patch",
            kind,
            name,
            "--subresource=status",
            "--type=merge",
            "-p",
            &status.to_string(),
        ]);
    }

    /// As `clusterctl` does it when it has made the same elsewhere: a load balancer of this name and what makes it get the mark.
    pub(crate) fn move_away(&self, kind: &str, name: &str) {
        for kind in ["loadbalancers.loadbalancer.portcullis.dev", kind] {
            self.kubectl(&["annotate", kind, name, "clusterctl.cluster.x-k8s.io/delete-for-move="]);
        }
    }

    /// What a provider is asked of members: `one Serve`, `two Leave`.
    pub(crate) fn assigned(&self, name: &str) -> Vec<String> {
        let made = self.get("labbalancer", name);
        let members = made["spec"]["assignment"]["members"].as_array().cloned().unwrap_or_default();
        members
            .iter()
            .map(|member| {
                format!("{} {}", member["name"].as_str().unwrap(), member["duty"].as_str().unwrap())
            })
            .collect()
    }

    /// What Events say of an object: `Reason: message`.
    pub(crate) fn events(&self, name: &str) -> Vec<String> {
        let found: Value = serde_json::from_str(&self.kubectl(&["get", "events", "-o", "json"])).unwrap();
        let events = found["items"].as_array().cloned().unwrap_or_default();
        let of = events.iter().filter(|event| event["involvedObject"]["name"] == name);
        of.map(|event| {
            format!(
                "{}: {}",
                event["reason"].as_str().unwrap_or_default(),
                event["message"].as_str().unwrap_or_default()
            )
        })
        .collect()
    }

    /// An annotation of a Machine.
    pub(crate) fn annotation(&self, machine: &str, key: &str) -> Option<String> {
        let found = self.get("machine", machine);
        found["metadata"]["annotations"][key].as_str().map(str::to_owned)
    }

    /// Whether a Machine's deletion is held for a load balancer, by both hooks.
    pub(crate) fn is_held(&self, machine: &str, balancer: &str) -> bool {
        ["pre-drain", "pre-terminate"].iter().all(|when| {
            let key = format!("{when}.delete.hook.machine.cluster.x-k8s.io/{balancer}");
            self.annotation(machine, &key).is_some()
        })
    }

    /// Where a load balancer says that a member is.
    pub(crate) fn status(&self, balancer: &str, member: &str) -> Option<String> {
        let found = self.get("loadbalancer", balancer);
        let targets = found["status"]["targets"].as_array()?.clone();
        let target = targets.into_iter().find(|target| target["name"] == member)?;
        target["status"].as_str().map(str::to_owned)
    }

    /// A condition of a load balancer, as status and reason, and its message.
    pub(crate) fn condition(&self, balancer: &str, type_: &str) -> (String, String) {
        let found = self.get("loadbalancer", balancer);
        let conditions = found["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let found = conditions.iter().find(|condition| condition["type"] == type_);
        found.map_or_else(Default::default, |condition| {
            let state = format!("{} {}", text(&condition["status"]), text(&condition["reason"]));
            (state, text(&condition["message"]))
        })
    }

    /// Whether an object says that it is paused, after all that was changed in it so far.
    pub(crate) fn says_paused(&self, kind: &str, name: &str) -> bool {
        let found = self.get(kind, name);
        let conditions = found["status"]["conditions"].as_array().cloned().unwrap_or_default();
        conditions.iter().any(|condition| {
            condition["type"] == "Paused"
                && condition["status"] == "True"
                && condition["observedGeneration"] == found["metadata"]["generation"]
        })
    }

    #[track_caller]
    pub(crate) fn until(&self, what: &str, is: impl FnMut() -> bool) {
        eventually_within(PATIENCE, what, is);
    }
}

fn merge(into: &mut Value, from: Value) {
    let Value::Object(fields) = from else { return };
    for (key, value) in fields {
        into[key] = value;
    }
}
