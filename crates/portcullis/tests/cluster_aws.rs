//! The program beside a real Cluster API, with the rights of its manifests and an AWS account: a control plane behind a network
//! load balancer, by the guide for Cluster API Provider AWS in docs/cluster-api.md, of which this has a double.

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
    world.add_vpc("vpc-0a1b", "10.0.0.0/16", false);
    world.add_route_table("rtb-1", "vpc-0a1b", &[], true);
    world.add_subnet("subnet-1", "vpc-0a1b", "eu-west-1a", "10.0.1.0/24", false);
    world.add_subnet("subnet-2", "vpc-0a1b", "eu-west-1b", "10.0.2.0/24", false);
    world.add_security_group("sg-nodes", "nodes", "vpc-0a1b");
    for machine in ["i-1", "i-2"] {
        world.add_instance(machine, "subnet-1", &["sg-nodes"]);
    }
    Fake::start(Config { region: "eu-west-1".to_owned(), world, draining: None, ..Config::default() })
        .unwrap()
}

/// The files of the guide, and what it asks of `kubectl`, in order.
fn guide() -> (Vec<String>, Vec<String>) {
    let document = include_str!("../../../docs/cluster-api.md");
    let guide = document.split("### With Cluster API Provider AWS").nth(1).unwrap();
    let guide = guide.split("- **Without a name of yours**").next().unwrap();
    let blocks: Vec<(&str, &str)> =
        guide.split("```").skip(1).step_by(2).map(|block| block.split_once('\n').unwrap()).collect();
    let of = |language: &str| -> Vec<String> {
        let found = blocks.iter().filter(|(kind, _)| *kind == language);
        found.map(|(_, body)| body.trim_end().trim_start_matches("$ kubectl ").to_owned()).collect()
    };
    (of("yaml"), of("console"))
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
        let theirs = double("AWSCluster").replace(r#""v1""#, r#""v1beta2""#);
        kubernetes.apply_types(&[theirs, double("LabMachine")].join("\n---\n")).unwrap();
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

    /// Asks for what the guide does.
    fn ask(&self, command: &str) -> String {
        let words: Vec<&str> = command.splitn(2, " -o ").collect();
        let mut all: Vec<&str> = words[0].split(' ').collect();
        all.extend(["-o", words[1]]);
        let words: Vec<String> = all.iter().map(|word| word.replace('\'', "")).collect();
        self.kubernetes.kubectl(&words.iter().map(String::as_str).collect::<Vec<_>>()).unwrap()
    }

    /// Follows the guide, and gives the address that it leads to.
    fn make_cluster(&self) -> String {
        let (files, commands) = guide();
        let ([cluster, balancer], [network, address]) = (&files[..], &commands[..]) else {
            panic!("{files:?} {commands:?}")
        };
        eventually("the API takes it", || self.kubernetes.apply(cluster).is_ok());
        // As Cluster API Provider AWS says what it made.
        let subnets = ["subnet-1", "subnet-2"].map(|id| json!({"resourceID": id, "isPublic": true}));
        let made = json!({
            "spec": {"network": {"vpc": {"id": "vpc-0a1b"}, "subnets": subnets}},
            "status": {"initialization": {"provisioned": true}},
        });
        self.kubernetes
            .kubectl(&["patch", "awscluster", "demo", "--type=merge", "-p", &made.to_string()])
            .unwrap();
        assert_eq!(self.ask(network).trim_end(), "vpc-0a1b\nsubnet-1 true\nsubnet-2 true");
        self.kubernetes.apply(balancer).unwrap();
        eventually("its address is known before there is a machine", || !self.ask(address).is_empty());
        // So that it takes less time here.
        for (kind, field, seconds) in [
            ("awsnlb", "holdSeconds", 1),
            ("loadbalancers.loadbalancer.portcullis.dev", "drainTimeoutSeconds", 600),
        ] {
            let patch = json!({"spec": {field: seconds}}).to_string();
            self.kubernetes.kubectl(&["patch", kind, "demo", "--type=merge", "-p", &patch]).unwrap();
        }
        self.ask(address)
    }

    fn make_machines(&self) {
        for (name, instance, address) in [("one", "i-1", "10.0.1.11"), ("two", "i-2", "10.0.1.12")] {
            self.apply(json!({
                "apiVersion": "infrastructure.cluster.x-k8s.io/v1", "kind": "LabMachine", "metadata": {"name": name},
                "spec": {"providerID": format!("aws:///eu-west-1a/{instance}")},
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
    let told = scene.make_cluster();
    scene.make_machines();
    eventually("both get connections", || {
        scene.get("loadbalancer", "demo")["status"]["activeTargets"] == json!(["one", "two"])
    });
    assert_eq!(scene.targets(), ["i-1:6443 healthy", "i-2:6443 healthy"]);
    let [address] = scene.addresses().try_into().unwrap();
    assert_eq!(told, address);
    eventually("the Cluster has its endpoint", || {
        scene.get("cluster", "demo")["spec"]["controlPlaneEndpoint"]
            == json!({"host": "demo.example.com", "port": 6443})
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
    let elsewhere = json!({"spec": {"region": "eu-central-1"}}).to_string();
    scene.kubernetes.kubectl(&["patch", "awsnlb", "demo", "--type=merge", "-p", &elsewhere]).unwrap();
    let _running = scene.serve();
    eventually("that is refused", || scene.ready().0 == "False Blocked");
    let (_, why) = scene.ready();
    assert!(
        why.contains("is in vpc-0a1b of eu-west-1, and cannot move to vpc-0a1b of eu-central-1"),
        "{why}"
    );
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
