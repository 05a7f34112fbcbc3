//! The guide for two machines in docs/cluster-api.md: its commands and files, as they stand there, lead to where it says.

#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "a test that fails says where, and why")]

mod program;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use portcullis_testkit::parts::Namespace;
use portcullis_testkit::parts::catalogue::find;
use portcullis_testkit::parts::kubernetes::Kubernetes;
use portcullis_testkit::{ClusterApi, Host, Leash, eventually, kubernetes_in, link};
use serde_json::{Value, json};
use tempfile::TempDir;

use program::{Program, controller_account, double, text};

/// The management cluster, which is its own first control plane.
const MANAGEMENT: &str = "192.0.2.20";

/// A step of the guide.
struct Step {
    /// Commands for the management cluster, and what they say.
    commands: Vec<(String, String)>,
    /// Files, by their name.
    files: Vec<(String, String)>,
}

/// The steps, as they stand in the document.
fn steps() -> Vec<Step> {
    let document =
        fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/cluster-api.md")).unwrap();
    let guide =
        document.split("### From two machines to `kubectl`").nth(1).unwrap().split("\n### ").next().unwrap();
    let read = |step: &str| {
        let mut found = Step { commands: Vec::new(), files: Vec::new() };
        for block in step.split("```").skip(1).step_by(2) {
            let (language, body) = block.split_once('\n').unwrap();
            if language == "yaml" {
                let name = body.lines().next().unwrap().trim_start_matches("# ");
                found.files.push((name.to_owned(), body.to_owned()));
            } else if body.starts_with('$') {
                for one in body.split("$ ").skip(1) {
                    let one = one.replace("\\\n", "");
                    let (command, said) = one.split_once('\n').unwrap();
                    found.commands.push((command.to_owned(), said.to_owned()));
                }
            }
        }
        found
    };
    // Steps begin with their number: `**1. The management cluster**`.
    (1..=6)
        .map(|number| {
            let begin = guide.find(&format!("\n**{number}. ")).unwrap();
            let rest = &guide[begin..];
            let end = rest.find(&format!("\n**{}. ", number + 1)).unwrap_or(rest.len());
            read(&rest[..end])
        })
        .collect()
}

/// Somebody who follows the guide.
struct Reader {
    kubernetes: Kubernetes,
    host: Host,
    directory: TempDir,
}

impl Reader {
    /// Types a command, and gives what it says.
    fn type_in(&self, command: &str) -> Result<String, String> {
        let kubectl = find("kubectl").unwrap();
        let program = Path::new(env!("CARGO_BIN_EXE_portcullis"));
        let path = [kubectl.parent(), program.parent(), Some(Path::new("/usr/bin:/bin"))];
        let path: Vec<String> = path.iter().flatten().map(|one| one.display().to_string()).collect();
        let mut shell = Command::new("sh");
        shell.args(["-e", "-c", command]).current_dir(self.directory.path());
        shell.env("PATH", path.join(":")).env("KUBECONFIG", self.kubernetes.kubeconfig());
        let output = Namespace::run(&self.host, || shell.output().unwrap());
        let said = String::from_utf8(output.stdout).unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        if output.status.success() { Ok(said) } else { Err(format!("{command}: {said}{error}")) }
    }

    #[track_caller]
    fn follow(&self, command: &str) -> String {
        let mut said = Err(String::new());
        eventually(command, || {
            said = self.type_in(command);
            said.is_ok()
        });
        said.unwrap()
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.directory.path().join(name), text).unwrap();
    }

    fn apply(&self, mut object: Value) {
        object["metadata"]["namespace"] = json!("default");
        eventually("the API takes it", || self.kubernetes.apply(&object.to_string()).is_ok());
    }

    /// Steps 2 and 3 for a machine.
    fn machine(&self, name: &str, host: &Host, steps: &[Step]) -> (Program, Leash, Leash) {
        let files = self.directory.path().join(name);
        fs::create_dir_all(files.join("haproxy/shared")).unwrap();
        for (command, _) in &steps[1].commands {
            self.follow(&command.replace("edge1", name));
        }
        for file in ["token", "ca.crt"] {
            fs::rename(self.directory.path().join(file), files.join(file)).unwrap();
        }
        for (file, text) in steps[1].files.iter().chain(&steps[2].files) {
            let text = text.replace("/etc/portcullis", &files.display().to_string());
            let text = text.replace("enp3s0", "to-switch");
            // The certificate of this management cluster has other names.
            let text =
                text.replace("certificate-authority:", "tls-server-name: localhost, certificate-authority:");
            let text = if name == "edge2" { text.replace("priority: 100", "priority: 90") } else { text };
            fs::write(files.join(file), text).unwrap();
        }
        let directory = files.join("haproxy");
        let settings = [format!("haproxy.name={name}"), format!("haproxy.directory={}", directory.display())];
        let leashes = (Leash::new(&directory), Leash::new(&directory.join("shared")));
        let program = Program::start(host, &files.join("agent.log"), &files.join("config.yaml"), &settings);
        (program, leashes.0, leashes.1)
    }

    /// The Cluster, its first control plane, which is there already, and what its provider makes.
    fn cluster(&self) {
        let reference =
            |kind: &str| json!({"apiGroup": "infrastructure.cluster.x-k8s.io", "kind": kind, "name": "demo"});
        let provided = json!({"initialization": {"provisioned": true}, "addresses": [{"type": "InternalIP", "address": MANAGEMENT}]});
        for kind in ["LabCluster", "LabMachine"] {
            self.apply(json!({
                "apiVersion": "infrastructure.cluster.x-k8s.io/v1", "kind": kind, "metadata": {"name": "demo"},
                "spec": {"providerID": "lab://demo"}, "status": provided,
            }));
        }
        self.apply(json!({
            "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster",
            "metadata": {"name": "demo", "annotations": {"portcullis.dev/control-plane-load-balancer": "demo"}},
            "spec": {"infrastructureRef": reference("LabCluster")},
        }));
        self.apply(json!({
            "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Machine",
            "metadata": {"name": "demo", "labels": {
                "cluster.x-k8s.io/cluster-name": "demo",
                "cluster.x-k8s.io/control-plane": "",
                "loadbalancer.cluster.x-k8s.io/name": "demo",
            }},
            "spec": {
                "clusterName": "demo", "bootstrap": {"dataSecretName": "none"},
                "infrastructureRef": reference("LabMachine"),
            },
        }));
    }

    /// A kubeconfig that leads to the endpoint of the Cluster, in the Secret where control planes have it.
    fn admin(&self, endpoint: &str) {
        self.follow("kubectl config view --raw --minify --flatten > admin");
        let name = self.follow("kubectl config view --minify -o jsonpath='{.clusters[0].name}'");
        let server = format!("--server=https://{endpoint} --tls-server-name=localhost");
        self.follow(&format!("kubectl --kubeconfig admin config set-cluster {name} {server}"));
        self.follow("kubectl create secret generic demo-kubeconfig --from-file=value=admin");
    }
}

#[test]
fn the_guide_leads_from_two_machines_to_kubectl() {
    let steps = steps();
    let [switch, host, edge1, edge2] = ["switch", "management", "edge1", "edge2"].map(Host::new);
    switch.run("ip link add street type bridge");
    switch.run("ip link set street up");
    let all =
        [("management", &host, MANAGEMENT), ("edge1", &edge1, "192.0.2.1"), ("edge2", &edge2, "192.0.2.2")];
    for (name, one, address) in all {
        link(one, &[&format!("{address}/24")], &switch, &[]);
        switch.run(&format!("ip link set to-{name} master street"));
    }
    let kubernetes = kubernetes_in(&host);
    // The API of a test listens on loopback only.
    let port = kubernetes.url().rsplit(':').next().unwrap().to_owned();
    host.set("net/ipv4/conf/all/route_localnet", "1");
    host.run("nft add table ip guide");
    host.run("nft add chain ip guide in { type nat hook prerouting priority -100 ; }");
    host.run(&format!(
        "nft add rule ip guide in ip daddr {MANAGEMENT} tcp dport 6443 dnat to 127.0.0.1:{port}"
    ));
    let _cluster_api = ClusterApi::start(&kubernetes);
    kubernetes.apply_types(&[double("LabCluster"), double("LabMachine")].join("\n---\n")).unwrap();
    let reader = Reader { kubernetes, host: host.clone(), directory: TempDir::new().unwrap() };
    let deploy = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy");
    std::os::unix::fs::symlink(deploy, reader.directory.path().join("deploy")).unwrap();

    for (command, _) in &steps[0].commands {
        reader.follow(command);
    }
    // What the Deployment runs.
    reader.write(
        "controller.yaml",
        &text(&reader.kubernetes, "portcullis", "portcullis-overrides", "overrides.yaml"),
    );
    let in_directory = |name: &str| reader.directory.path().join(name);
    let settings = [
        format!("kubernetes.kubeconfig={}", controller_account(&reader.kubernetes).display()),
        "telemetry.listen=127.0.0.1:0".to_owned(),
    ];
    let _controller =
        Program::start(&host, &in_directory("controller.log"), &in_directory("controller.yaml"), &settings);

    let says = |(command, expected): &(String, String)| {
        let mut said = String::new();
        eventually(&format!("{command}: {expected}"), || {
            let before = std::mem::replace(&mut said, reader.type_in(command).unwrap_or_else(|error| error));
            if said != before {
                eprintln!("{command}: {said}");
            }
            same_words(&said, expected)
        });
    };
    let first = reader.machine("edge1", &edge1, &steps);
    eventually("the machine is ready", || {
        let said = Namespace::run(&edge1, || {
            Command::new("curl").args(["-s", "http://127.0.0.1:9695/readyz"]).output().unwrap()
        });
        let said = String::from_utf8(said.stdout).unwrap();
        !said.is_empty() && guide_has(&said)
    });
    steps[2].commands.iter().for_each(says);

    for (name, text) in &steps[3].files {
        reader.write(name, text);
    }
    let (apply, shown) = steps[3].commands.split_first().unwrap();
    reader.follow(&apply.0);
    reader.cluster();
    shown.iter().for_each(says);

    let _second = reader.machine("edge2", &edge2, &steps);
    steps[4].commands.iter().for_each(says);
    // Nothing listens for orders: there are the load balancer, and what the configuration has for `/readyz` and `/metrics`.
    for machine in [&edge1, &edge2] {
        eventually("both carry it", || listens(machine).contains("tcp 192.0.2.100:6443"));
        let all = ["tcp 127.0.0.1:9695", "tcp 192.0.2.100:6443"].map(str::to_owned);
        assert_eq!(listens(machine), BTreeSet::from(all), "{machine:?}");
    }

    reader.admin("192.0.2.100:6443");
    steps[5].commands.iter().for_each(says);
    // And the plug is pulled.
    edge1.run("ip link set to-switch down");
    drop(first);
    says(steps[5].commands.last().unwrap());
}

/// Where anything takes connections, or datagrams.
fn listens(machine: &Host) -> BTreeSet<String> {
    let all = machine.run("ss -H -l -t -u -n");
    let words = all.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    words.map(|words| format!("{} {}", words[0], words[4])).collect()
}

/// Whether the guide shows this.
fn guide_has(said: &str) -> bool {
    let document =
        fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/cluster-api.md")).unwrap();
    document.contains(&format!("/readyz\n{said}```"))
}

/// Whether two texts have the same words, but for ages.
fn same_words(one: &str, other: &str) -> bool {
    let is_age = |word: &&str| {
        word.len() < 6 && word.ends_with(['s', 'm']) && word.starts_with(|c: char| c.is_ascii_digit())
    };
    one.split_whitespace()
        .filter(|word| !is_age(word))
        .eq(other.split_whitespace().filter(|word| !is_age(word)))
}
