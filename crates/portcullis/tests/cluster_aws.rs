//! The program beside a real Cluster API, with the rights of its manifests and an AWS account: a control plane behind a network
//! load balancer.

#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "a test that fails says where, and why")]

mod program;

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use portcullis_aws_fake::{Config, Fake, World};
use portcullis_testkit::parts::kubernetes::Kubernetes;
use portcullis_testkit::{ClusterApi, eventually, kubernetes};
use serde_json::{Value, json};

use program::{built, controller_account, double, text};

/// An account with a VPC, and machines that Cluster API made there.
fn account() -> Fake {
    let mut world = World::default();
    world.add_vpc("vpc-1", "10.0.0.0/16", false);
    world.add_subnet("subnet-a", "vpc-1", "eu-central-1a", "10.0.1.0/24", false);
    world.add_security_group("sg-nodes", "nodes", "vpc-1");
    for machine in ["i-1", "i-2"] {
        world.add_instance(machine, "subnet-a", &["sg-nodes"]);
    }
    Fake::start(Config { world, draining: None, ..Config::default() }).unwrap()
}

struct Scene {
    kubernetes: &'static Kubernetes,
    fake: Fake,
    files: tempfile::TempDir,
    account: PathBuf,
}

impl Scene {
    /// A management cluster with all that an administrator installs.
    fn new() -> Self {
        let (kubernetes, fake) = (kubernetes(), account());
        let types = Command::new(env!("CARGO_BIN_EXE_portcullis"))
            .args(["crds", "--only", "cluster-api"])
            .output()
            .unwrap();
        kubernetes.apply_types(&String::from_utf8(types.stdout).unwrap()).unwrap();
        kubernetes.apply_types(&[double("LabCluster"), double("LabMachine")].join("\n---\n")).unwrap();
        eventually("the API takes the manifests", || kubernetes.apply(&built("cluster-api")).is_ok());
        let files = tempfile::tempdir().unwrap();
        let overrides = text(kubernetes, "portcullis", "portcullis-overrides", "overrides.yaml");
        fs::write(files.path().join("config.yaml"), overrides).unwrap();
        let cloud = "[Global]\nRegion = eu-central-1\n";
        fs::write(files.path().join("cloud.conf"), cloud).unwrap();
        let account = controller_account(kubernetes);
        Scene { kubernetes, fake, files, account }
    }

    fn serve(&self) -> Running {
        let log = self.files.path().join("log");
        let child = Command::new(env!("CARGO_BIN_EXE_portcullis"))
            .args(["serve", "--config"])
            .arg(self.files.path().join("config.yaml"))
            .args([
                "--set",
                "telemetry.listen=127.0.0.1:0",
                "--set",
                "clusterApi.aws=true",
                "--set",
                "services.resync=30s",
            ])
            .args(["--set", &format!("aws.cloudConfig={}", self.files.path().join("cloud.conf").display())])
            .args(["--set", &format!("kubernetes.kubeconfig={}", self.account.display())])
            .env("AWS_ENDPOINT_URL", self.fake.url())
            .env("AWS_ACCESS_KEY_ID", "AKIAFAKEFAKEFAKEFAKE")
            .env("AWS_SECRET_ACCESS_KEY", "a-secret-of-the-fake")
            .env("AWS_EC2_METADATA_DISABLED", "true")
            .stdin(Stdio::null())
            .stderr(File::create(&log).unwrap())
            .spawn()
            .unwrap();
        Running { child, log }
    }

    fn apply(&self, mut object: Value) {
        object["metadata"]["namespace"] = json!("default");
        eventually("the API takes it", || self.kubernetes.apply(&object.to_string()).is_ok());
    }

    fn get(&self, kind: &str, name: &str) -> Value {
        let found =
            self.kubernetes.kubectl(&["get", kind, name, "--ignore-not-found", "-o", "json"]).unwrap();
        serde_json::from_str(&found).unwrap_or_default()
    }

    /// What a condition of the AWSNLB says: `True UpToDate`, and why.
    fn ready(&self) -> (String, String) {
        let found = self.get("awsnlb", "demo");
        let conditions = found["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let ready = conditions.into_iter().find(|found| found["type"] == "Ready").unwrap_or_default();
        let word = |key: &str| ready[key].as_str().unwrap_or_default().to_owned();
        (format!("{} {}", word("status"), word("reason")), word("message"))
    }

    fn make_cluster(&self) {
        self.apply(json!({
            "apiVersion": "infrastructure.cluster.x-k8s.io/v1", "kind": "LabCluster", "metadata": {"name": "demo"},
            "spec": {}, "status": {"initialization": {"provisioned": true}},
        }));
        self.apply(json!({
            "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster",
            "metadata": {"name": "demo", "annotations": {"portcullis.dev/control-plane-load-balancer": "demo"}},
            "spec": {"infrastructureRef": {"apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "LabCluster", "name": "demo"}},
        }));
        for (name, instance, address) in [("one", "i-1", "10.0.1.11"), ("two", "i-2", "10.0.1.12")] {
            self.apply(json!({
                "apiVersion": "infrastructure.cluster.x-k8s.io/v1", "kind": "LabMachine", "metadata": {"name": name},
                "spec": {"providerID": format!("aws:///eu-central-1a/{instance}")},
                "status": {"initialization": {"provisioned": true}, "addresses": [{"type": "InternalIP", "address": address}]},
            }));
            self.apply(json!({
                "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Machine",
                "metadata": {"name": name, "labels": {
                    "cluster.x-k8s.io/cluster-name": "demo",
                    "cluster.x-k8s.io/control-plane": "",
                    "loadbalancer.cluster.x-k8s.io/name": "demo",
                }},
                "spec": {
                    "clusterName": "demo", "bootstrap": {"dataSecretName": "none"},
                    "infrastructureRef": {"apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "LabMachine", "name": name},
                },
            }));
        }
        self.apply(json!({
            "apiVersion": "loadbalancer.portcullis.dev/v1alpha1", "kind": "AWSNLB", "metadata": {"name": "demo"},
            "spec": {"vpc": "vpc-1", "subnets": ["subnet-a"], "holdSeconds": 1},
        }));
        self.apply(json!({
            "apiVersion": "loadbalancer.portcullis.dev/v1alpha1", "kind": "LoadBalancer", "metadata": {"name": "demo"},
            "spec": {
                "clusterName": "demo", "drainTimeoutSeconds": 600, "allowedSourceRanges": ["192.0.2.0/24"],
                "infrastructureRef": {"apiGroup": "loadbalancer.portcullis.dev", "kind": "AWSNLB", "name": "demo"},
            },
        }));
    }

    fn addresses(&self) -> Vec<String> {
        self.fake.state().load_balancers.values().map(|found| found.dns_name.clone()).collect()
    }

    fn targets(&self) -> Vec<String> {
        let world = self.fake.state();
        let targets = world.target_groups.values().flat_map(|group| &group.targets);
        let mut all: Vec<String> =
            targets.map(|(id, target)| format!("{}:{} {}", id.id, id.port, target.health)).collect();
        all.sort();
        all
    }
}

/// The program, until it is dropped.
struct Running {
    child: Child,
    log: PathBuf,
}

impl Running {
    /// What it counts.
    fn metrics(&self) -> String {
        let Some(port) = port(&self.log) else { return String::new() };
        let Ok(mut stream) = TcpStream::connect(("127.0.0.1", port)) else { return String::new() };
        let mut text = String::new();
        let _ = stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n");
        let _ = stream.read_to_string(&mut text);
        text
    }
}

/// Where it serves telemetry, by what it says when it does.
fn port(log: &Path) -> Option<u16> {
    let log = fs::read_to_string(log).ok()?;
    let serving = log.lines().find(|line| line.contains("serving"))?.split("127.0.0.1:").nth(1)?;
    serving.chars().take_while(char::is_ascii_digit).collect::<String>().parse().ok()
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("{}", fs::read_to_string(&self.log).unwrap_or_default());
        }
    }
}

#[test]
fn a_control_plane_behind_a_network_load_balancer() {
    let scene = Scene::new();
    let _cluster_api = ClusterApi::start(scene.kubernetes);
    let running = scene.serve();
    scene.make_cluster();
    eventually("both get connections", || {
        scene.get("loadbalancer", "demo")["status"]["activeTargets"] == json!(["one", "two"])
    });
    assert_eq!(scene.targets(), ["i-1:6443 healthy", "i-2:6443 healthy"]);
    let [address] = scene.addresses().try_into().unwrap();
    assert_eq!(scene.get("loadbalancer", "demo")["status"]["address"], json!(address));
    eventually("the Cluster has its endpoint", || {
        scene.get("cluster", "demo")["spec"]["controlPlaneEndpoint"] == json!({"host": address, "port": 6443})
    });
    assert_eq!(scene.ready().0, "True UpToDate");
    let metrics = running.metrics();
    for counted in [
        r#"portcullis_aws_calls_total{action="CreateLoadBalancer",end="ok"} 1"#,
        r#"portcullis_aws_calls_total{action="CreateListener",end="ok"} 1"#,
    ] {
        assert!(metrics.contains(counted), "{counted}: {metrics}");
    }

    // Somebody wants it elsewhere while nobody is there to see it: whoever comes next knows where it is.
    drop(running);
    let elsewhere = json!({"spec": {"region": "eu-west-1"}}).to_string();
    scene.kubernetes.kubectl(&["patch", "awsnlb", "demo", "--type=merge", "-p", &elsewhere]).unwrap();
    let _running = scene.serve();
    eventually("that is refused", || scene.ready().0 == "False Blocked");
    let (_, why) = scene.ready();
    assert!(why.contains("is in vpc-1 of eu-central-1, and cannot move to vpc-1 of eu-west-1"), "{why}");
    assert_eq!(scene.addresses(), [address.as_str()]);
    assert_eq!(scene.get("awsnlb", "demo")["status"]["address"], json!(address));

    // Machines come and go meanwhile.
    scene.kubernetes.kubectl(&["delete", "machine", "one", "--wait=false"]).unwrap();
    eventually("AWS drains it", || scene.targets() == ["i-1:6443 draining", "i-2:6443 healthy"]);
    assert_ne!(scene.get("machine", "one"), Value::Null);
    scene.fake.pass(Duration::from_secs(600));
    eventually("it is gone", || scene.get("machine", "one") == Value::Null);
    assert_eq!(scene.targets(), ["i-2:6443 healthy"]);

    // It goes from where it is, and nothing is left.
    let balancer = "loadbalancers.loadbalancer.portcullis.dev";
    scene.kubernetes.kubectl(&["delete", balancer, "demo", "--wait=false"]).unwrap();
    eventually("nothing is left", || {
        let world = scene.fake.state();
        world.load_balancers.is_empty() && world.target_groups.is_empty() && world.groups.len() == 2
    });
}
