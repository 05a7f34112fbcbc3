//! Services that are not on AWS, by the program itself with the rights of its manifests: on a machine with HAProxy, and in OVN.

#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "a test that fails says where, and why")]

mod program;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use portcullis_testkit::parts::kubernetes::Kubernetes;
use portcullis_testkit::parts::ovn::Ovn;
use portcullis_testkit::talk::{Backend, ask};
use portcullis_testkit::{Host, Leash, eventually, kubernetes_in, link, ovn, plug};
use serde_json::{Value, json};
use tempfile::TempDir;

use program::{Program, built, controller_account, text};

/// Where nodes take packets for the Service.
const NODE_PORT: u16 = 30080;

/// A cluster with all that an administrator installs, and the configuration of the manifests.
struct Scene {
    kubernetes: Kubernetes,
    files: TempDir,
    account: PathBuf,
    machine: Host,
}

impl Scene {
    fn new(machine: &Host) -> Self {
        let kubernetes = kubernetes_in(machine);
        let types = Command::new(env!("CARGO_BIN_EXE_portcullis"))
            .args(["crds", "--only", "cluster-api"])
            .output()
            .unwrap();
        kubernetes.apply_types(&String::from_utf8(types.stdout).unwrap()).unwrap();
        eventually("the API takes the manifests", || kubernetes.apply(&built("cluster-api")).is_ok());
        let files = TempDir::new().unwrap();
        let overrides = text(&kubernetes, "portcullis", "portcullis-overrides", "overrides.yaml");
        fs::write(files.path().join("config.yaml"), overrides).unwrap();
        let account = controller_account(&kubernetes);
        Scene { kubernetes, files, account, machine: machine.clone() }
    }

    fn serve(&self, settings: &[String]) -> Program {
        self.start("controller", &self.files.path().join("config.yaml"), &self.account, settings)
    }

    fn start(&self, log: &str, config: &Path, account: &Path, settings: &[String]) -> Program {
        let mut all = vec![
            format!("kubernetes.kubeconfig={}", account.display()),
            "telemetry.listen=127.0.0.1:0".to_owned(),
        ];
        all.extend(settings.iter().cloned());
        Program::start(&self.machine, &self.files.path().join(format!("{log}.log")), config, &all)
    }

    fn node(&self, name: &str, address: &str) {
        let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}});
        self.kubernetes.apply(&node.to_string()).unwrap();
        let status = json!({"status": {
            "addresses": [{"type": "InternalIP", "address": address}],
            "conditions": [{"type": "Ready", "status": "True"}],
        }});
        let patch = ["patch", "node", name, "--type=merge"];
        let with = |more: &[&str]| self.kubernetes.kubectl(&[&patch[..], more].concat()).unwrap();
        with(&["--subresource=status", "-p", &status.to_string()]);
        with(&["-p", &json!({"spec": {"taints": null}}).to_string()]);
    }

    fn service(&self, class: &str, annotations: &Value, ranges: &[&str], more: &Value) {
        let mut service = json!({
            "apiVersion": "v1", "kind": "Service",
            "metadata": {"name": "web", "namespace": "default", "annotations": annotations},
            "spec": {
                "type": "LoadBalancer", "loadBalancerClass": class, "loadBalancerSourceRanges": ranges,
                "ports": [{"port": 80, "nodePort": NODE_PORT}],
            },
        });
        for (key, value) in more.as_object().cloned().unwrap_or_default() {
            service["spec"][key] = value;
        }
        self.kubernetes.apply(&service.to_string()).unwrap();
    }

    /// Where the Service says that it is found.
    fn address(&self) -> String {
        let path = "jsonpath={.status.loadBalancer.ingress[0].ip}";
        self.kubernetes.kubectl(&["get", "service", "web", "-o", path]).unwrap_or_default()
    }

    fn condition(&self, type_: &str) -> String {
        let path = format!("jsonpath={{.status.conditions[?(@.type=='{type_}')].status}}");
        self.kubernetes.kubectl(&["get", "service", "web", "-o", &path]).unwrap_or_default()
    }

    fn delete(&self) {
        self.kubernetes.kubectl(&["delete", "service", "web", "--wait=false"]).unwrap();
        let get = ["get", "service", "web", "--ignore-not-found", "-o", "name"];
        eventually("the Service is gone", || self.kubernetes.kubectl(&get).unwrap().is_empty());
    }
}

fn nothing_was_forbidden(program: &Program) {
    let log = program.log();
    assert!(!log.to_lowercase().contains("forbidden"), "{log}");
}

/// Whether load balancers of clusters are looked after beside it or not.
#[test]
fn services_on_machines_of_ours() {
    let [carrier, client, one, two] = ["carrier", "client", "one", "two"].map(Host::new);
    link(&client, &["192.0.2.10/24"], &carrier, &["192.0.2.1/24"]);
    link(&one, &["10.9.1.2/24"], &carrier, &["10.9.1.1/24"]);
    link(&two, &["10.9.2.2/24"], &carrier, &["10.9.2.1/24"]);
    let _backends = [Backend::start(&one, NODE_PORT), Backend::start(&two, NODE_PORT)];
    let scene = Scene::new(&carrier);
    scene.node("one", "10.9.1.2");
    scene.node("two", "10.9.2.2");

    let directory = scene.files.path().join("haproxy");
    fs::create_dir(&directory).unwrap();
    let _leash = Leash::new(&directory);
    let config = scene.files.path().join("agent.yaml");
    let text = format!("haproxy: {{enabled: true, name: edge1, directory: {}}}\n", directory.display());
    fs::write(&config, text).unwrap();
    let account = "system:serviceaccount:portcullis:haproxy-edge1";
    let account = scene.kubernetes.user(account, Some("system:serviceaccounts:portcullis")).unwrap();
    let internal = ["host.internalInterfaces=[to-one, to-two]".to_owned()];
    let agent = scene.start("agent", &config, &account, &internal);

    let (class, none) = ("portcullis.dev/haproxy", json!({}));
    for clusters in ["false", "true"] {
        let settings = [format!("clusterApi.enabled={clusters}"), "services.haproxy=true".to_owned()];
        let controller = scene.serve(&settings);
        scene.service(class, &none, &["192.0.2.0/24"], &none);
        eventually("the Service has its address", || scene.address() == "192.0.2.1");
        eventually("both nodes are reached", || {
            let answers: Vec<String> = (0..8).filter_map(|_| ask(&client, "192.0.2.1", 80).ok()).collect();
            ["one", "two"].iter().all(|name| answers.iter().any(|answer| answer == name))
        });
        eventually("ranges are in force", || {
            scene.condition("portcullis.dev/SourceRangesEnforced") == "True"
        });
        scene.service(class, &none, &["198.51.100.0/24"], &none);
        eventually("nobody gets in", || ask(&client, "192.0.2.1", 80).is_err());
        scene.service(class, &none, &["192.0.2.0/24"], &none);
        eventually("who may gets in", || ask(&client, "192.0.2.1", 80).is_ok());
        scene.delete();
        eventually("nothing listens any more", || ask(&client, "192.0.2.1", 80).is_err());
        let left = ["get", "haproxyloadbalancers", "-A", "-o", "name"];
        eventually("nothing is left", || scene.kubernetes.kubectl(&left).unwrap().is_empty());
        nothing_was_forbidden(&controller);
    }
    nothing_was_forbidden(&agent);
}

/// A machine on a logical switch.
fn machine(ovn: &Ovn, name: &str, number: u8) -> Host {
    let (mac, address) = (format!("02:00:00:00:01:{number:02x}"), format!("10.0.0.{number}"));
    ovn.nbctl(&["lsp-add", "sw", name]).unwrap();
    ovn.nbctl(&["lsp-set-addresses", name, &format!("{mac} {address}")]).unwrap();
    let host = plug(ovn, name, &mac, &[&format!("{address}/24")]);
    host.default_route("10.0.0.1");
    host
}

#[test]
fn services_in_ovn() {
    let ovn = ovn();
    for command in [
        "ls-add sw",
        "lr-add r",
        "lrp-add r r-sw 02:00:00:00:00:01 10.0.0.1/24",
        "lsp-add sw sw-r -- lsp-set-type sw-r router -- lsp-set-addresses sw-r router -- lsp-set-options sw-r router-port=r-sw",
    ] {
        ovn.nbctl(&command.split_whitespace().collect::<Vec<_>>()).unwrap();
    }
    let [client, one, two] =
        [("client", 2), ("one", 11), ("two", 12)].map(|(name, at)| machine(&ovn, name, at));
    let _backends = [Backend::start(&one, NODE_PORT), Backend::start(&two, NODE_PORT)];
    let rows = || {
        let tables = ["Load_Balancer", "Load_Balancer_Health_Check", "ACL", "Address_Set"];
        tables.map(|table| ovn.nbctl(&["list", table]).unwrap()).concat()
    };
    let scene = Scene::new(&Host::new("management"));
    scene.node("one", "10.0.0.11");
    scene.node("two", "10.0.0.12");
    let controller = scene.serve(&[
        "services.ovn=true".to_owned(),
        "services.cluster=demo".to_owned(),
        format!("networking.northbound.remotes=[{}]", ovn.northbound()),
        format!("networking.northbound.southbound=[{}]", ovn.southbound()),
    ]);
    let (class, vip) = ("portcullis.dev/ovn", "192.0.2.10");
    let (on, at) = (json!({"portcullis.dev/ovn-switches": "sw"}), json!({"loadBalancerIP": vip}));
    scene.service(class, &on, &["10.0.0.0/24"], &at);
    eventually("the Service has its address", || scene.address() == vip);
    eventually("both nodes are reached", || {
        let answers: Vec<String> = (0..8).filter_map(|_| ask(&client, vip, 80).ok()).collect();
        ["one", "two"].iter().all(|name| answers.iter().any(|answer| answer == name))
    });
    let found = rows();
    for row in [
        "192.0.2.10:80",
        "portcullis/demo/Service/default/web/tcp",
        r#""portcullis.dev/ranges"="10.0.0.0/24""#,
    ] {
        assert!(found.contains(row), "no {row} in {found}");
    }
    scene.service(class, &on, &["198.51.100.0/24"], &at);
    eventually("nobody gets in", || ask(&client, vip, 80).is_err());
    scene.service(class, &on, &["10.0.0.0/24"], &at);
    eventually("who may gets in", || ask(&client, vip, 80).is_ok());
    scene.delete();
    eventually("nothing is left", || rows().is_empty());
    assert!(ask(&client, vip, 80).is_err());
    nothing_was_forbidden(&controller);
}
