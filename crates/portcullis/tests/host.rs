//! The program on a node: its manifests, both halves of the role, packets, and what it shows.

#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "a test that fails says where, and why")]

mod program;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use portcullis_testkit::parts::Namespace;
use portcullis_testkit::parts::kubernetes::Kubernetes;
use portcullis_testkit::talk::{Backend, Held};
use portcullis_testkit::{
    Host, KubeProxy, Passage, Target, can_connect, eventually, eventually_within, kubernetes_in, link,
};
use serde_json::{Value, json};
use tempfile::TempDir;

use program::{Program, built, controller_account, metrics_of, text};

const NODE: &str = "192.0.2.1";
const WEB: Target = Target::Tcp(80);

/// A node with a client in range, one out of range, and a backend.
fn lab() -> [Host; 4] {
    let [node, inside, outside, backend] = ["node", "inside", "outside", "backend"].map(Host::new);
    link(&inside, &["192.0.2.10/24"], &node, &["192.0.2.1/24"]);
    link(&outside, &["198.51.100.10/24"], &node, &["198.51.100.1/24"]);
    link(&backend, &["10.244.0.2/24"], &node, &["10.244.0.1/24"]);
    node.forward();
    inside.default_route("192.0.2.1");
    outside.default_route("198.51.100.1");
    backend.default_route("10.244.0.1");
    [node, inside, outside, backend]
}

/// A kubeconfig of the agent's account, whose token says on which node its pod is.
fn agent(kubernetes: &Kubernetes, directory: &Path, node: &str) -> PathBuf {
    let pod = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": format!("agent-{node}"), "namespace": "portcullis-nodes"},
        "spec": {
            "serviceAccountName": "portcullis-host",
            "nodeName": node,
            "containers": [{"name": "portcullis", "image": "portcullis:0.1.0"}],
        },
    });
    kubernetes.apply(&pod.to_string()).unwrap();
    let token = ["create", "token", "portcullis-host", "-n", "portcullis-nodes", "--bound-object-kind=Pod"];
    let bound = format!("--bound-object-name=agent-{node}");
    let token = kubernetes.kubectl(&[&token[..], &[&bound]].concat()).unwrap();
    let raw = ["config", "view", "--raw", "-o", "json"];
    let mut config: Value =
        serde_json::from_str(&kubernetes.kubectl_as(kubernetes.kubeconfig(), &raw, "").unwrap()).unwrap();
    config["users"][0]["user"] = json!({"token": token.trim()});
    let file = directory.join(format!("agent-{node}.kubeconfig"));
    fs::write(&file, config.to_string()).unwrap();
    file
}

fn service(name: &str, port: u16, ranges: &[&str]) -> String {
    json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "type": "LoadBalancer",
            "loadBalancerClass": "portcullis.dev/host",
            "externalTrafficPolicy": "Local",
            // Ranges do not count there, and it would not be said that they are kept to.
            "allocateLoadBalancerNodePorts": false,
            "loadBalancerSourceRanges": ranges,
            "ports": [{"name": "http", "port": port, "targetPort": 8080}],
        },
    })
    .to_string()
}

/// The endpoint of the Service `web`, on a node.
fn slice(node: &str) -> Value {
    json!({
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {"name": "web-1", "namespace": "default", "labels": {"kubernetes.io/service-name": "web"}},
        "addressType": "IPv4",
        "endpoints": [{"addresses": ["10.244.0.2"], "nodeName": node, "conditions": {"ready": true}}],
        "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}],
    })
}

#[test]
fn services_are_served_on_a_node_with_the_rights_for_it() {
    let [node, inside, outside, backend] = lab();
    let _serving = backend.serve(8080);
    let kubernetes = kubernetes_in(&node);
    kubernetes.apply(&built("host")).unwrap();
    for name in ["node1", "node2"] {
        let object = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}});
        kubernetes.apply(&object.to_string()).unwrap();
    }
    let files = TempDir::new().unwrap();
    let write = |name: &str, text: &str| {
        let file = files.path().join(name);
        fs::write(&file, text).unwrap();
        file
    };
    let controller =
        write("controller.yaml", &text(&kubernetes, "portcullis", "portcullis-overrides", "overrides.yaml"));
    let agents =
        write("agent.yaml", &text(&kubernetes, "portcullis-nodes", "portcullis-host", "config.yaml"));
    let account = controller_account(&kubernetes);
    let setting = |key: &str, value: &str| format!("{key}={value}");
    let usual = |kubeconfig: &Path| {
        vec![
            setting("kubernetes.kubeconfig", &kubeconfig.display().to_string()),
            setting("telemetry.listen", "127.0.0.1:0"),
            setting("host.datapath", "nftables"),
            setting("host.internalInterfaces", "[to-backend]"),
        ]
    };
    let acting = Program::start(&node, &files.path().join("controller.log"), &controller, &usual(&account));
    let on_node = agent(&kubernetes, files.path(), "node1");
    let mut settings = usual(&on_node);
    settings.extend([setting("host.node", "node1"), setting("telemetry.listen", "127.0.0.1:9695")]);
    let running = Program::start(&node, &files.path().join("agent.log"), &agents, &settings);

    kubernetes.apply(&service("web", 80, &["192.0.2.0/24"])).unwrap();
    kubernetes.apply(&slice("node1").to_string()).unwrap();
    eventually("who is in the range connects", || can_connect(&inside, NODE, WEB));
    assert!(!can_connect(&outside, "198.51.100.1", WEB));
    let addresses = ["get", "service", "web", "-o", "jsonpath={.status.loadBalancer.ingress[*].ip}"];
    eventually("the status says where", || {
        kubernetes.kubectl(&addresses).unwrap() == "192.0.2.1 198.51.100.1"
    });

    // What a person sees on the node.
    let get = |args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_portcullis"));
        command.args(["get", "host"]).args(args).env("KUBECONFIG", kubernetes.kubeconfig());
        let output = Namespace::run(&node, || command.output().unwrap());
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    eventually("what came is shown", || {
        let shown: Value = serde_json::from_str(&get(&["-o", "json"])).unwrap();
        let one = &shown[0];
        one["enforced"] == true
            && one["packets"]["arrived"].as_u64() > one["packets"]["dropped"].as_u64()
            && one["packets"]["dropped"].as_u64() > Some(0)
            && one["packets"]["at"][0]["place"] == "192.0.2.1:80/tcp"
            && one["packets"]["at"][0]["arrived"].as_u64() > Some(0)
            && one["packets"]["at"][1]["arrived"] == one["packets"]["at"][1]["dropped"]
            && one["packets"]["at"][1]["dropped"].as_u64() > Some(0)
    });
    let counts = |name: &str| -> Option<u64> {
        let start = format!(r#"portcullis_host_{name}_total{{service="default/web"}} "#);
        metrics_of(&node).lines().find_map(|line| line.strip_prefix(&start)?.parse().ok())
    };
    eventually("it is there for Prometheus", || {
        counts("dropped_packets") > Some(0) && counts("packets") > counts("dropped_packets")
    });
    let shown = get(&[]);
    assert!(shown.contains("default/web  192.0.2.1, 198.51.100.1  80/tcp  192.0.2.0/24  yes"), "{shown}");

    shows_who_holds_a_service(&kubernetes, &get);

    // What a node needs nobody gets, and who asks is told at once; so is who reports for another node.
    let refused = kubernetes.apply(&service("ssh", 22, &[])).unwrap_err().to_string();
    assert!(refused.contains("port 22 is kept for the nodes themselves"), "{refused}");
    let report = |name: &str| {
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {
            "name": format!("host-{name}"), "namespace": "portcullis-nodes", "labels": {"portcullis.dev/node": name},
        }})
    };
    let as_agent = |object: Value| {
        let apply = ["apply", "--server-side", "--force-conflicts", "-f", "-"];
        kubernetes.kubectl_as(&on_node, &apply, &object.to_string())
    };
    let refused = as_agent(report("node2")).unwrap_err().to_string();
    assert!(refused.contains("an agent writes what its own node tells of itself"), "{refused}");
    as_agent(report("node1")).unwrap();

    // Of two that look after Services one acts; it is killed, and the other one does.
    let _other = Program::start(&node, &files.path().join("other.log"), &controller, &usual(&account));
    let held_by =
        ["-n", "portcullis", "get", "lease", "portcullis-host", "-o", "jsonpath={.spec.holderIdentity}"];
    let first = kubernetes.kubectl(&held_by).unwrap();
    drop(acting);
    kubernetes.apply(&service("more", 8000, &[])).unwrap();
    let addresses = ["get", "service", "more", "-o", "jsonpath={.status.loadBalancer.ingress[*].ip}"];
    eventually("another one acts", || kubernetes.kubectl(&addresses).unwrap() == "192.0.2.1 198.51.100.1");
    assert_ne!(kubernetes.kubectl(&held_by).unwrap(), first);

    // It is killed, and nobody notices.
    drop(running);
    assert!(can_connect(&inside, NODE, WEB));
    assert!(!can_connect(&outside, "198.51.100.1", WEB));
}

/// One without a class is looked after where that is configured, unless another controller holds it.
fn shows_who_holds_a_service(kubernetes: &Kubernetes, get: &dyn Fn(&[&str]) -> String) {
    let mut held: Value = serde_json::from_str(&service("held", 81, &["192.0.2.0/24"])).unwrap();
    held["spec"]["loadBalancerClass"] = Value::Null;
    held["metadata"]["finalizers"] = json!(["service.kubernetes.io/load-balancer-cleanup"]);
    kubernetes.apply(&held.to_string()).unwrap();
    assert!(!get(&[]).contains("default/held"), "it is nobody's business here");
    let shown = get(&["--set", "host.withoutClass=true"]);
    let line = shown.lines().find(|line| line.starts_with("default/held")).unwrap_or_default();
    assert!(line.contains("81/tcp") && line.ends_with("NotOurs"), "{shown}");
    let why = "default/held: It is held by the service controller of a cloud provider, by the finalizer service.kubernetes.io/load-balancer-cleanup: if that does not run any more, remove the finalizer.";
    assert!(shown.contains(why), "{shown}");
    kubernetes
        .kubectl(&["patch", "service", "held", "--type=merge", "-p", r#"{"metadata":{"finalizers":null}}"#])
        .unwrap();
    let shown = get(&["--set", "host.withoutClass=true"]);
    assert!(shown.contains("default/held: Nobody has looked at it yet"), "{shown}");
}

/// Where kube-proxy serves, ranges that it knows nothing of are kept to, and stay so when the program is gone.
#[test]
fn ranges_are_kept_to_where_kube_proxy_serves() {
    let [node, inside, outside, backend] = lab();
    let _serving = backend.serve(8080);
    let kubernetes = kubernetes_in(&node);
    kubernetes.apply(&built("host")).unwrap();
    let _proxy = KubeProxy::start(&kubernetes, "edge", NODE);
    let files = TempDir::new().unwrap();
    let config = files.path().join("config.yaml");
    let text = format!(
        "kubernetes: {{kubeconfig: {}}}\ntelemetry: {{listen: '127.0.0.1:0'}}\n\
         host: {{enabled: true, node: edge, datapath: filter, internalInterfaces: [to-backend]}}\n",
        kubernetes.kubeconfig().display()
    );
    fs::write(&config, text).unwrap();
    let running = Program::start(&node, &files.path().join("log"), &config, &[]);

    // In the annotation, which kube-proxy does not read.
    let mut web: Value = serde_json::from_str(&service("web", 80, &[])).unwrap();
    web["metadata"]["annotations"] =
        json!({"service.beta.kubernetes.io/load-balancer-source-ranges": "192.0.2.0/24"});
    kubernetes.apply(&web.to_string()).unwrap();
    kubernetes.apply(&slice("edge").to_string()).unwrap();
    eventually("who is in the range connects", || can_connect(&inside, NODE, WEB));
    assert!(!can_connect(&outside, "198.51.100.1", WEB));
    let conditions = ["get", "service", "web", "-o", "jsonpath={.status.conditions[*].message}"];
    eventually("it is said where they are kept to", || {
        kubernetes.kubectl(&conditions).unwrap().contains("edge (to-inside, to-outside)")
    });
    drop(running);
    assert!(!can_connect(&outside, "198.51.100.1", WEB));
    let mut command = Command::new(env!("CARGO_BIN_EXE_portcullis"));
    assert!(Namespace::run(&node, || command.arg("clear-filters").output().unwrap()).status.success());
    assert!(can_connect(&outside, "198.51.100.1", WEB), "it was ours that kept them out");
}

/// The API is away for longer than anybody keeps their turn: what this process does for its machine goes on, and so does what
/// others wait for, once the API is back. It is killed, and connections last.
#[test]
fn an_api_that_is_away_and_a_start_after_that() {
    let [node, inside, outside, backend] = lab();
    let _serving = (backend.serve(8080), Backend::start(&backend, 8081));
    let kubernetes = kubernetes_in(&node);
    kubernetes.apply(&built("host")).unwrap();
    kubernetes
        .apply(&json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "edge"}}).to_string())
        .unwrap();
    let files = TempDir::new().unwrap();
    let raw = ["config", "view", "--raw", "-o", "json"];
    let found = kubernetes.kubectl_as(kubernetes.kubeconfig(), &raw, "").unwrap();
    let mut access: Value = serde_json::from_str(&found).unwrap();
    let server = &mut access["clusters"][0]["cluster"]["server"];
    let address = server.as_str().unwrap().trim_start_matches("https://").parse().unwrap();
    let passage = Namespace::run(&node, || Passage::to(address));
    *server = json!(format!("https://{}", passage.address()));
    let (kubeconfig, config) = (files.path().join("kubeconfig"), files.path().join("config.yaml"));
    fs::write(&kubeconfig, access.to_string()).unwrap();
    let text = format!(
        "kubernetes: {{kubeconfig: {}}}\ntelemetry: {{listen: '127.0.0.1:0'}}\n\
         host: {{enabled: true, node: edge, datapath: nftables, internalInterfaces: [to-backend]}}\n",
        kubeconfig.display()
    );
    fs::write(&config, text).unwrap();
    let mut running = Program::start(&node, &files.path().join("log"), &config, &[]);

    let with_talk = |name: &str, port: u16, talk: u16| {
        let mut object: Value = serde_json::from_str(&service(name, port, &["192.0.2.0/24"])).unwrap();
        object["spec"]["ports"].as_array_mut().unwrap().push(json!({"name": "talk", "port": talk}));
        kubernetes.apply(&object.to_string()).unwrap();
    };
    with_talk("web", 80, 8000);
    let mut endpoints = slice("edge");
    endpoints["ports"].as_array_mut().unwrap().push(json!({"name": "talk", "port": 8081, "protocol": "TCP"}));
    kubernetes.apply(&endpoints.to_string()).unwrap();
    eventually("who is in the range connects", || can_connect(&inside, NODE, WEB));
    let mut held = Held::connect(&inside, NODE, 8000).unwrap();
    held.ask().unwrap();
    let at = |name: &str| {
        let path = "jsonpath={.status.loadBalancer.ingress[*].ip}";
        kubernetes.kubectl(&["get", "service", name, "-o", path]).unwrap()
    };
    eventually("the status says where", || at("web") == "192.0.2.1 198.51.100.1");

    passage.close();
    eventually("its turn is over", || running.log().contains("somebody else may act by now"));
    node.run("ip address add 192.0.2.9/24 dev to-inside");
    eventually("it serves at an address that came", || can_connect(&inside, "192.0.2.9", WEB));
    assert!(!can_connect(&outside, "198.51.100.1", WEB), "nothing opens");
    held.ask().unwrap();
    assert!(running.child.try_wait().unwrap().is_none(), "it goes on");
    passage.open();
    // Who lost the API tries again after half a minute at most.
    let asked_again = Duration::from_secs(180);
    eventually_within(asked_again, "the status says where", || {
        at("web") == "192.0.2.1 192.0.2.9 198.51.100.1"
    });
    held.ask().unwrap();

    drop(running);
    held.ask().unwrap();
    with_talk("other", 81, 8001);
    let _running = Program::start(&node, &files.path().join("log"), &config, &[]);
    eventually("what came meanwhile is looked after", || at("other") == "192.0.2.1 192.0.2.9 198.51.100.1");
    held.ask().unwrap();
    assert!(can_connect(&inside, NODE, WEB) && !can_connect(&outside, "198.51.100.1", WEB));
}

/// A configuration that names MicroShift's, with a file of its config.d, and says something itself.
fn as_microshift_has_it(files: &Path) -> String {
    let theirs = files.join("microshift");
    fs::create_dir_all(theirs.join("config.d")).unwrap();
    let base = "ingress: {status: Managed, ports: {http: 8001, https: 8444}, listenAddress: [to-outside]}\n";
    fs::write(theirs.join("config.yaml"), base).unwrap();
    fs::write(theirs.join("config.d/10-address.yaml"), "ingress: {listenAddress: [to-inside]}\n").unwrap();
    format!(
        "singleNode: {{microshift: {}, enabled: true, image: 'router:1', namespace: portcullis-ingress}}\n\
         ingress: {{ports: {{https: 8443}}}}\n",
        theirs.join("config.yaml").display()
    )
}

/// What is said to who has the packet filters of a node cleared.
fn clear_filters(node: &Host) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_portcullis"));
    let output = Namespace::run(node, || command.arg("clear-filters").output().unwrap());
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// An edge administrator: the router on or off, on which ports, at which interface, and who may connect.
#[test]
fn the_stories_of_a_single_node() {
    let [node, inside, outside, backend] = lab();
    let _serving = backend.serve(8080);
    let kubernetes = kubernetes_in(&node);
    kubernetes.apply(&built("single-node")).unwrap();
    let account = controller_account(&kubernetes);
    let object = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "edge"}});
    kubernetes.apply(&object.to_string()).unwrap();
    let files = TempDir::new().unwrap();
    let (config, log) = (files.path().join("config.yaml"), files.path().join("log"));
    let general = format!(
        "kubernetes: {{kubeconfig: {}}}\ntelemetry: {{listen: '127.0.0.1:0'}}\n\
         host: {{enabled: true, node: edge, datapath: nftables, internalInterfaces: [to-backend]}}\n",
        account.display()
    );
    let start = |ingress: &str| {
        let router = "singleNode: {enabled: true, image: 'router:1', namespace: portcullis-ingress}";
        let text = format!("{general}{router}\ningress: {ingress}\n");
        fs::write(&config, text).unwrap();
        Program::start(&node, &log, &config, &[])
    };
    let router = |path: &str| {
        let get = ["-n", "portcullis-ingress", "get", "service", "router-default", "-o"];
        kubernetes.kubectl(&[&get[..], &[&format!("jsonpath={path}")]].concat()).unwrap_or_default()
    };
    let at = || router("{.status.loadBalancer.ingress[*].ip}");

    // Enabled, as it is unless somebody says otherwise: at the addresses of the host.
    let running = start("{}");
    eventually("it is at the host's addresses", || at() == "192.0.2.1 198.51.100.1");
    eventually("the log says which ports", || {
        running.log().contains("Service portcullis-ingress/router-default using ports [80, 443]")
    });
    let slice = json!({
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "name": "router-1",
            "namespace": "portcullis-ingress",
            "labels": {"kubernetes.io/service-name": "router-default"},
        },
        "addressType": "IPv4",
        "endpoints": [{"addresses": ["10.244.0.2"], "nodeName": "edge", "conditions": {"ready": true}}],
        "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}],
    });
    kubernetes.apply(&slice.to_string()).unwrap();
    eventually("both reach it", || {
        can_connect(&inside, NODE, WEB) && can_connect(&outside, "198.51.100.1", WEB)
    });
    drop(running);

    // At one interface, and on another port.
    let running = start("{listenAddress: [to-inside, 192.0.2.1], ports: {http: 8000}}");
    eventually("it is at that interface", || at() == NODE);
    eventually("on the other port", || can_connect(&inside, NODE, Target::Tcp(8000)));
    assert!(!can_connect(&inside, NODE, WEB));
    assert!(!can_connect(&outside, "198.51.100.1", Target::Tcp(8000)));
    let inner = ["-n", "portcullis-ingress", "get", "service", "router-internal-default", "-o"];
    let inner = kubernetes.kubectl(&[&inner[..], &["jsonpath={.spec.ports[*].port}"]].concat()).unwrap();
    assert_eq!(inner, "80 443 1936", "inside the cluster all is as it was");
    // The interface gets another address, and loses it.
    node.run("ip address add 192.0.2.77/24 dev to-inside");
    eventually("it is there, too", || at() == "192.0.2.1 192.0.2.77");
    eventually("and serves", || can_connect(&inside, "192.0.2.77", Target::Tcp(8000)));
    node.run("ip address del 192.0.2.77/24 dev to-inside");
    eventually("it is gone from there", || at() == NODE);
    // Only some may connect.
    let ranges = |ranges: Value| {
        let patch = json!({"spec": {"loadBalancerSourceRanges": ranges}}).to_string();
        let args =
            ["-n", "portcullis-ingress", "patch", "service", "router-default", "--type=merge", "-p", &patch];
        kubernetes.kubectl(&args).unwrap();
    };
    ranges(json!(["203.0.113.0/24"]));
    eventually("nobody else", || !can_connect(&inside, NODE, Target::Tcp(8000)));
    ranges(json!(["192.0.2.0/24"]));
    eventually("who is in the range", || can_connect(&inside, NODE, Target::Tcp(8000)));
    drop(running);

    // An interface that is not there stops the start, and nothing else changes.
    let mut refused = start("{listenAddress: [to-insid]}");
    assert_eq!(refused.child.wait().unwrap().code(), Some(2));
    let said = refused.log();
    assert!(
        said.contains("config.yaml:5: ingress.listenAddress[0]: no interface `to-insid` on this host"),
        "{said}"
    );
    assert!(said.contains("Did you mean `to-inside`?"), "{said}");
    assert!(can_connect(&inside, NODE, Target::Tcp(8000)), "what was there goes on");

    // Off: no router, and no rule of it.
    let has_table = || node.run("nft list tables").contains("portcullis");
    assert!(has_table(), "there is something to take away");
    let running = start("{status: Removed, listenAddress: [nonsense]}");
    let gone = ["-n", "portcullis-ingress", "get", "service,deployment", "-o", "name"];
    eventually("there is no router", || kubernetes.kubectl(&gone).unwrap_or_default().trim().is_empty());
    eventually("nor a rule of it", || !has_table() && !can_connect(&inside, NODE, Target::Tcp(8000)));
    drop(running);

    // And on again, as an existing MicroShift has it, a file of its config.d included; what is said here wins.
    fs::write(&config, format!("{general}{}", as_microshift_has_it(files.path()))).unwrap();
    let running = Program::start(&node, &log, &config, &[]);
    eventually("it is at that interface", || at() == NODE);
    assert_eq!(router("{.spec.ports[*].port}"), "8001 8443");
    eventually("there are rules", has_table);
    eventually("it serves", || can_connect(&inside, NODE, Target::Tcp(8001)));
    drop(running);
    // Where it does not run any more, and is not to, what it left is taken away by hand.
    assert_eq!(clear_filters(&node), "What Portcullis had in the packet filters of this machine is gone.\n");
    assert!(!has_table());
    assert_eq!(
        clear_filters(&node),
        "There is nothing of Portcullis in the packet filters of this machine.\n"
    );
}

/// What is printed is taken by Kubernetes as it is, and is about the pods of the router, wherever that runs.
#[test]
fn a_network_policy_is_about_the_router() {
    let node = Host::new("node");
    let kubernetes = kubernetes_in(&node);
    // Where who looks after the router has its lease.
    kubernetes.kubectl(&["create", "namespace", "portcullis"]).unwrap();
    let files = TempDir::new().unwrap();
    let found = |args: &[&str]| -> Value {
        serde_json::from_str(&kubernetes.kubectl(&[args, &["-o", "json"]].concat()).unwrap()).unwrap()
    };
    // As it is unless somebody says otherwise, and as the manifests have it.
    for (namespace, said) in [("openshift-ingress", None), ("portcullis-ingress", Some("portcullis-ingress"))]
    {
        let config = files.path().join(format!("{namespace}.yaml"));
        let given = said.map(|name| format!(", namespace: {name}")).unwrap_or_default();
        let text = format!(
            "kubernetes: {{kubeconfig: {}}}\ntelemetry: {{listen: '127.0.0.1:0'}}\n\
             singleNode: {{enabled: true, image: 'router:1'{given}}}\n\
             ingress: {{ports: {{https: 8443}}}}\n",
            kubernetes.kubeconfig().display()
        );
        fs::write(&config, text).unwrap();
        let _running = Program::start(&node, &files.path().join("log"), &config, &[]);
        let pods = |selector: &str| {
            let args = ["-n", namespace, "get", "pods", "-l", selector, "-o", "name"];
            let found = kubernetes.kubectl(&args).unwrap_or_default();
            found.lines().map(str::to_owned).collect::<Vec<_>>()
        };
        let everything = "";
        eventually("the router has a pod", || !pods(everything).is_empty());

        let mut command = Command::new(env!("CARGO_BIN_EXE_portcullis"));
        command.args(["networkpolicy", "--pod-network", "10.42.0.0/16", "--pod-network", "fd01::/48"]);
        command.args(["--allow", "192.0.2.7/24", "--allow", "2001:db8::/32", "--port", "443"]);
        command.args(said.iter().flat_map(|name| ["--namespace", name]));
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let printed = String::from_utf8(output.stdout).unwrap();
        // A field that Kubernetes does not know is refused here, and so is a value that it does not take.
        kubernetes.apply(&printed).unwrap();
        let policies = found(&["get", "networkpolicies", "-n", namespace]);
        let [policy] = policies["items"].as_array().unwrap().as_slice() else { panic!("{policies}") };
        let block = |range: &str| json!({"ipBlock": {"cidr": range}});
        assert_eq!(
            policy["spec"]["ingress"],
            json!([
                {"from": [block("10.42.0.0/16"), block("fd01::/48")]},
                {"from": [block("192.0.2.0/24"), block("2001:db8::/32")], "ports": [{"port": 443, "protocol": "TCP"}]},
            ])
        );
        assert_eq!(policy["spec"]["policyTypes"], json!(["Ingress"]));

        // Whom it is about is what the Deployment makes, and no other pod beside it.
        let other = json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "other", "namespace": namespace, "labels": {"app": "other"}},
            "spec": {"containers": [{"name": "other", "image": "other:1"}]},
        });
        kubernetes.apply(&other.to_string()).unwrap();
        let selector = policy["spec"]["podSelector"].as_object().unwrap();
        assert_eq!(selector.keys().collect::<Vec<_>>(), ["matchLabels"]);
        let labels = selector["matchLabels"].as_object().unwrap();
        assert!(!labels.is_empty(), "it is about all pods of the namespace");
        let labels: Vec<String> =
            labels.iter().map(|(name, value)| format!("{name}={}", value.as_str().unwrap())).collect();
        let about = pods(&labels.join(","));
        assert_eq!(about.len(), 1, "{about:?}");
        assert!(about[0].starts_with("pod/router-default-"), "{about:?}");
        assert_eq!(pods(everything).len(), 2);

        // A policy is about ports of pods, whatever the Service has.
        let service = found(&["get", "service", "router-default", "-n", namespace]);
        let ports = service["spec"]["ports"].as_array().unwrap();
        let https = ports.iter().find(|port| port["name"] == "https").unwrap();
        assert_eq!(https["port"], 8443);
        let pod = found(&["get", &about[0], "-n", namespace]);
        assert_ne!(pod["spec"]["hostNetwork"], true, "policies are not about pods in the network of a node");
        let ports = pod["spec"]["containers"][0]["ports"].as_array().unwrap();
        let behind = ports.iter().find(|port| port["name"] == https["targetPort"]).unwrap();
        assert_eq!(behind["containerPort"], policy["spec"]["ingress"][1]["ports"][0]["port"]);
    }
}
