//! The guide to a control plane behind OVN is followed: its manifests, its configuration and its objects, with a real Cluster API, a
//! real OVN and packets.

#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "a test that fails says where, and why")]

mod program;

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use portcullis_testkit::parts::Namespace;
use portcullis_testkit::parts::catalogue::find;
use portcullis_testkit::parts::kubernetes::Kubernetes;
use portcullis_testkit::parts::ovn::Ovn;
use portcullis_testkit::talk::{Backend, ask};
use portcullis_testkit::{ClusterApi, Host, eventually, kubernetes_in, ovn, plug};
use serde_json::{Value, json};
use tempfile::TempDir;

use program::{Program, controller_account, double, text};

const VIP: &str = "192.0.2.10";

/// The part of the documentation that is followed.
fn guide() -> &'static str {
    let all = include_str!("../../../docs/cluster-api.md");
    let from = all.split("\n### ").find(|part| part.starts_with("From a logical network to an endpoint"));
    from.unwrap().split("\n## ").next().unwrap()
}

/// What it shows to be written, as a file of this name.
fn file(name: &str) -> &'static str {
    let mut blocks = guide().split("```yaml\n").skip(1).map(|rest| rest.split("```").next().unwrap());
    blocks.find(|block| block.starts_with(&format!("# {name}\n"))).unwrap()
}

/// What it shows as the answer to a command, wherever it is typed.
fn answers(command: &str) -> Vec<&'static str> {
    let typed = guide().split("\n$ ").skip(1).filter_map(|rest| rest.split_once('\n'));
    let typed = typed.filter(|(line, _)| *line == command);
    typed.map(|(_, rest)| rest.split("\n# ").next().unwrap().split("\n$ ").next().unwrap()).collect()
}

/// Words of the lines of a table, but for ages.
fn words(table: &str) -> Vec<Vec<String>> {
    let is_age =
        |word: &str| word.strip_suffix(['s', 'm']).is_some_and(|number| number.parse::<u64>().is_ok());
    let table = table.split("```").next().unwrap();
    let lines = table.lines().filter(|line| !line.trim().is_empty());
    lines
        .map(|line| line.split_whitespace().filter(|word| !is_age(word)).map(str::to_owned).collect())
        .collect()
}

fn said(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn ours(arguments: &[&str], kubernetes: &Kubernetes, host: &Host) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_portcullis"));
    command.args(arguments).env("KUBECONFIG", kubernetes.kubeconfig());
    said(&Namespace::run(host, || command.output().unwrap()))
}

/// The manifests, by the kustomization of the guide, beside a checkout.
fn manifests(directory: &Path) -> String {
    let checkout = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap();
    std::os::unix::fs::symlink(checkout, directory.join("portcullis")).unwrap();
    fs::write(directory.join("kustomization.yaml"), file("kustomization.yaml")).unwrap();
    said(&Command::new(find("kubectl").unwrap()).arg("kustomize").arg(directory).output().unwrap())
}

fn apply(kubernetes: &Kubernetes, mut object: Value) {
    object["metadata"]["namespace"] = json!("default");
    eventually("the API takes it", || kubernetes.apply(&object.to_string()).is_ok());
}

fn make_cluster(kubernetes: &Kubernetes) {
    let infrastructure = "infrastructure.cluster.x-k8s.io";
    apply(
        kubernetes,
        json!({
            "apiVersion": format!("{infrastructure}/v1"), "kind": "LabCluster", "metadata": {"name": "demo"},
            "spec": {}, "status": {"initialization": {"provisioned": true}},
        }),
    );
    apply(
        kubernetes,
        json!({
            "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster", "metadata": {"name": "demo"},
            "spec": {"infrastructureRef": {"apiGroup": infrastructure, "kind": "LabCluster", "name": "demo"}},
        }),
    );
}

fn make_machine(kubernetes: &Kubernetes, name: &str, address: &str) {
    let infrastructure = "infrastructure.cluster.x-k8s.io";
    apply(
        kubernetes,
        json!({
            "apiVersion": format!("{infrastructure}/v1"), "kind": "LabMachine", "metadata": {"name": name},
            "spec": {"providerID": format!("lab://{name}")},
            "status": {"initialization": {"provisioned": true}, "addresses": [{"type": "InternalIP", "address": address}]},
        }),
    );
    let labels = json!({"cluster.x-k8s.io/cluster-name": "demo", "cluster.x-k8s.io/control-plane": ""});
    apply(
        kubernetes,
        json!({
            "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Machine",
            "metadata": {"name": name, "labels": labels},
            "spec": {
                "clusterName": "demo", "bootstrap": {"dataSecretName": "none"},
                "infrastructureRef": {"apiGroup": infrastructure, "kind": "LabMachine", "name": name},
            },
        }),
    );
}

/// What the guide begins with: a switch, a router, and machines; the management cluster has a way there.
fn network() -> (Ovn, [Host; 2]) {
    let ovn = ovn();
    for command in [
        "ls-add demo-net",
        "lr-add demo-edge",
        "lrp-add demo-edge edge-net 02:00:00:00:00:01 10.0.0.1/24",
        "lsp-add demo-net net-edge -- lsp-set-type net-edge router -- lsp-set-addresses net-edge router -- lsp-set-options net-edge router-port=edge-net",
    ] {
        ovn.nbctl(&command.split_whitespace().collect::<Vec<_>>()).unwrap();
    }
    let machines = [("management", 2), ("demo-1", 11)].map(|(name, number): (&str, u8)| {
        let (mac, address) = (format!("02:00:00:00:01:{number:02x}"), format!("10.0.0.{number}"));
        ovn.nbctl(&["lsp-add", "demo-net", name]).unwrap();
        ovn.nbctl(&["lsp-set-addresses", name, &format!("{mac} {address}")]).unwrap();
        let host = plug(&ovn, name, &mac, &[&format!("{address}/24")]);
        host.default_route("10.0.0.1");
        host
    });
    (ovn, machines)
}

#[test]
fn the_guide_can_be_followed() {
    let (ovn, [management, member]) = network();
    let _serving = Backend::start(&member, 6443);
    let kubernetes = kubernetes_in(&management);
    let _cluster_api = ClusterApi::start(&kubernetes);
    kubernetes.apply_types(&[double("LabCluster"), double("LabMachine")].join("\n---\n")).unwrap();
    make_cluster(&kubernetes);

    // The kustomization, with the rights and the configuration that it makes.
    let files = TempDir::new().unwrap();
    kubernetes.apply_types(&ours(&["crds", "--only", "cluster-api"], &kubernetes, &management)).unwrap();
    let manifests = manifests(files.path());
    eventually("the API takes the manifests", || kubernetes.apply(&manifests).is_ok());
    // Where OVN is reached, and how, is another thing here.
    let config = text(&kubernetes, "portcullis", "portcullis-overrides", "overrides.yaml");
    let config = config.lines().filter(|line| !line.contains("/etc/portcullis-ovn/")).collect::<Vec<_>>();
    let config = config
        .join("\n")
        .replace("ssl:192.0.2.1:6641", &ovn.northbound())
        .replace("ssl:192.0.2.1:6642", &ovn.southbound());
    assert!(config.contains(&ovn.northbound()) && config.contains(&ovn.southbound()), "{config}");
    fs::write(files.path().join("config.yaml"), config).unwrap();
    let running = Program::start(
        &management,
        &files.path().join("log"),
        &files.path().join("config.yaml"),
        &[
            format!("kubernetes.kubeconfig={}", controller_account(&kubernetes).display()),
            "telemetry.listen=127.0.0.1:0".to_owned(),
        ],
    );

    // The load balancer is there before any machine is.
    kubernetes
        .kubectl(&["annotate", "cluster", "demo", "portcullis.dev/control-plane-load-balancer=demo"])
        .unwrap();
    eventually("the API takes it", || kubernetes.apply(file("demo.yaml")).is_ok());
    let get = ["get", "cluster", "demo", "-o", "jsonpath={.spec.controlPlaneEndpoint}"];
    let shown = answers("kubectl get cluster demo -o jsonpath='{.spec.controlPlaneEndpoint}'");
    eventually("the Cluster has its endpoint", || {
        kubernetes.kubectl(&get).unwrap() == words(shown[0])[0].concat()
    });
    let balancers = || ours(&["get", "load-balancers"], &kubernetes, &management);
    let tables = answers("portcullis get load-balancers");
    assert_eq!(tables.len(), 2);
    eventually_as(&balancers, tables[0]);

    // A machine comes, and answers.
    make_machine(&kubernetes, "demo-1", "10.0.0.11");
    kubernetes.kubectl(&["label", "machine", "demo-1", "loadbalancer.cluster.x-k8s.io/name=demo"]).unwrap();
    eventually_as(&balancers, tables[1]);
    let curl = || {
        let mut curl = Command::new("curl");
        curl.args(["-sk", "--max-time", "5", "-o", "/dev/null", "-w", "%{http_code}"]);
        curl.arg(format!("https://{VIP}:6443/readyz"));
        let output = Namespace::run(&management, || curl.output().unwrap());
        String::from_utf8(output.stdout).unwrap()
    };
    eventually("it answers", || curl() == "200");
    assert_eq!(ask(&management, VIP, 6443).unwrap(), "demo-1");
    let log = running.log();
    assert!(!log.to_lowercase().contains("forbidden"), "{log}");
}

/// Waits for a table as the guide has it.
#[track_caller]
fn eventually_as(shown: &impl Fn() -> String, expected: &str) {
    let expected = words(expected);
    let mut last = String::new();
    let mut is_so = || {
        last = shown();
        words(&last) == expected
    };
    for _ in 0..600 {
        if is_so() {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    panic!("it is not as the guide has it, {expected:?}, but\n{last}");
}
