//! What nodes get.

use std::fs::{self, File};
use std::process::{Command, Stdio};

use portcullis_controllers::router::{self, RouterSettings};
use portcullis_testkit::parts::Namespace;
use portcullis_testkit::parts::catalogue::find;
use portcullis_testkit::{eventually, kubernetes, kubernetes_in};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{Pod, account, deploy, helm, may, objects, output, portcullis, same};

/// What the program reads of these objects, whole, and the objects without it. Of a pod's configuration that is a file and one
/// over it.
fn configurations(mut objects: Vec<Value>) -> (Vec<Value>, Vec<Value>) {
    let mut read = Vec::new();
    for name in ["portcullis", "portcullis-host"] {
        let text = |object: &str, key: &str| {
            let found = objects
                .iter()
                .find(|found| found["kind"] == "ConfigMap" && found["metadata"]["name"] == object)?;
            found["data"][key].as_str().map(str::to_owned)
        };
        let Some(config) = text(name, "config.yaml") else { continue };
        let files = TempDir::new().unwrap();
        fs::write(files.path().join("config.yaml"), config).unwrap();
        if let Some(over) = text(&format!("{name}-overrides"), "overrides.yaml") {
            fs::create_dir(files.path().join("config.d")).unwrap();
            fs::write(files.path().join("config.d/overrides.yaml"), over).unwrap();
        }
        let file = files.path().join("config.yaml");
        let shown = portcullis(&["show-config", "-o", "json", "--config", file.to_str().unwrap()]);
        read.push(serde_json::from_str(&shown).unwrap());
    }
    objects.retain(|object| object["kind"] != "ConfigMap");
    (read, objects)
}

/// The chart has for nodes what the kustomizations have: the same objects, and the same configuration.
#[test]
fn the_chart_is_the_kustomization_of_nodes() {
    let common = "--set=services.enabled=false,image.repository=registry.example.com/portcullis";
    let router =
        "--set=singleNode.image=registry.example.com/openshift/router:4.20,singleNode.baseDomain=example.com";
    for (overlay, count, values) in [
        ("kustomize/host", 1, vec![common, "--set=host.enabled=true"]),
        ("kustomize/single-node", 0, vec![common, router, "--set=singleNode.enabled=true"]),
    ] {
        let built = output(find("kubectl").unwrap(), &["kustomize", &deploy(overlay)]).unwrap();
        let chart = helm(&values).unwrap();
        let [chart, built] = [chart, built].map(|text| {
            let mut objects = objects(&text);
            // The namespace of a release is its own affair.
            objects
                .retain(|object| object["kind"] != "Namespace" || object["metadata"]["name"] != "portcullis");
            for object in &mut objects {
                if let Some(pod) =
                    object.pointer_mut("/spec/template/metadata").and_then(Value::as_object_mut)
                {
                    pod.remove("annotations");
                }
            }
            configurations(objects)
        });
        assert_eq!(built.0.len(), 1 + count, "{overlay}");
        assert_eq!(chart.0, built.0, "{overlay}");
        assert!(built.1.len() > 20, "{overlay}");
        same(&chart.1, &built.1);
        // Who only watches has no right to write, and keeps nobody from anything.
        let observing = helm(&[&values[..], &["--set=mode=observe"]].concat()).unwrap();
        for object in objects(&observing) {
            assert!(!object["kind"].as_str().unwrap().starts_with("Validating"), "{object:#}");
            let rules = object["rules"].as_array().cloned().unwrap_or_default();
            let verbs = rules.iter().flat_map(|rule| rule["verbs"].as_array().unwrap());
            for verb in verbs {
                assert!(["get", "list", "watch"].contains(&verb.as_str().unwrap()), "{object:#}");
            }
        }
    }
    // Lists that are given once are in the configuration of both halves and in what is refused at admission.
    let lists = "--set=host.enabled=true,host.withoutClass=true,host.reservedPorts={22,9090,30022},host.managementInterfaces={ipmi0,mgmt*}";
    let chart = objects(&helm(&[common, lists]).unwrap());
    let policy =
        chart.iter().find(|object| object["metadata"]["name"] == "portcullis-host-services").unwrap();
    let expression = |name: &str| {
        let variables = policy["spec"]["variables"].as_array().unwrap();
        let found = variables.iter().find(|variable| variable["name"] == name).unwrap();
        found["expression"].as_str().unwrap().to_owned()
    };
    assert_eq!(
        (expression("reserved"), expression("management")),
        ("[22, 9090, 30022]".to_owned(), "['ipmi0', 'mgmt*']".to_owned())
    );
    let condition = policy["spec"]["matchConditions"][0]["expression"].as_str().unwrap();
    assert!(condition.contains("orValue('portcullis.dev/host') == 'portcullis.dev/host'"), "{condition}");
    let (configurations, _) = configurations(chart.clone());
    assert_eq!(configurations.len(), 2);
    for one in configurations {
        assert_eq!(one["host"]["reservedPorts"], json!([22, 9090, 30022]));
        assert_eq!(one["host"]["managementInterfaces"], json!(["ipmi0", "mgmt*"]));
        assert_eq!(one["host"]["withoutClass"], true);
    }
    refuses_what_nodes_need(&chart);

    for (wrong, says) in [
        ("--set=host.enabled=true,singleNode.enabled=true", "exclude each other"),
        ("--set=singleNode.enabled=true", "has to be given"),
        ("--set=host.enabled=true,host.datapath=iptables", "values don't meet the specifications"),
        ("--set=host.enabled=true,host.reservedPorts={70000}", "values don't meet the specifications"),
        ("--set=host.enabled=true,host.managementInterfaces={a'b}", "values don't meet the specifications"),
    ] {
        let said = helm(&[common, wrong]).unwrap_err();
        assert!(said.contains(says), "{wrong}: {said}");
    }
}

/// What the policy for Services says to those who ask for ports and interfaces of the nodes themselves, where `{22,9090,30022}` and
/// `{ipmi0,mgmt*}` are such.
fn refuses_what_nodes_need(chart: &[Value]) {
    let kubernetes = kubernetes();
    let is_policy = |object: &&Value| object["metadata"]["name"] == "portcullis-host-services";
    for object in chart.iter().filter(is_policy) {
        kubernetes.apply(&object.to_string()).unwrap();
    }
    let said_of = |class: Option<&str>, port: Value, entries: &str| -> Result<String, String> {
        let service = json!({
            "apiVersion": "v1", "kind": "Service",
            "metadata": {"name": "asks", "annotations": {"portcullis.dev/listen-addresses": entries}},
            "spec": {"type": "LoadBalancer", "loadBalancerClass": class, "ports": [port]},
        });
        let apply = ["apply", "--dry-run=server", "-f", "-"];
        let said = kubernetes.kubectl_as(kubernetes.kubeconfig(), &apply, &service.to_string());
        said.map_err(|error| error.to_string())
    };
    let said = |class: Option<&str>, port: u16, entries: &str| said_of(class, json!({"port": port}), entries);
    let ours = Some("portcullis.dev/host");
    eventually("it is in force", || said(ours, 22, "").is_err());
    let interfaces = "is kept for those who look after the nodes: name another one";
    for (class, port, entries, says) in [
        (ours, 22, "", "port 22 is kept for the nodes themselves"),
        (None, 9090, "", "port 9090 is kept for the nodes themselves"),
        (ours, 80, "ipmi0", interfaces),
        (None, 80, "eth0, mgmt3", interfaces),
        (ours, 80, "mgmt", interfaces),
    ] {
        let refused = said(class, port, entries).unwrap_err();
        assert!(refused.contains(says), "{port} {entries}: {refused}");
    }
    let node_port =
        |class: Option<&str>, port: u16| said_of(class, json!({"port": 80, "nodePort": port}), "");
    let refused = node_port(ours, 30022).unwrap_err();
    assert!(refused.contains("node port 30022 is kept for the nodes themselves"), "{refused}");
    for (class, port) in [(ours, 30023), (Some("other"), 30022)] {
        node_port(class, port).unwrap_or_else(|refused| panic!("node port {port}: {refused}"));
    }
    for (class, port, entries) in
        [(ours, 80, ""), (ours, 80, "ipmi1,eth0"), (ours, 80, "192.0.2.7"), (Some("other"), 22, "ipmi0")]
    {
        said(class, port, entries).unwrap_or_else(|refused| panic!("{port} {entries}: {refused}"));
    }
    // What it has already is nobody's wish, and in the way of no other.
    let had = |type_: &str, class: Option<&str>, note: &str| {
        let service = json!({
            "apiVersion": "v1", "kind": "Service",
            "metadata": {"name": "had", "annotations": {"note": note}},
            "spec": {"type": type_, "loadBalancerClass": class, "ports": [{"port": 80, "nodePort": 30022}]},
        });
        kubernetes.apply(&service.to_string()).unwrap();
    };
    had("NodePort", None, "its own");
    had("LoadBalancer", ours, "its own");
    had("LoadBalancer", ours, "another");
    kubernetes.kubectl(&["delete", "service", "had"]).unwrap();
}

/// The rights of the overlay suffice for the router of a single node, whatever it is told, and for no other objects.
#[test]
fn the_router_of_a_single_node_is_looked_after_with_the_rights_for_it() {
    let kubernetes = kubernetes_in(&Namespace::host());
    let built = output(find("kubectl").unwrap(), &["kustomize", &deploy("kustomize/single-node")]).unwrap();
    kubernetes.apply(&built).unwrap();
    let all = objects(&built);
    let named = |kind: &str, name: &str| {
        all.iter().find(|object| object["kind"] == kind && object["metadata"]["name"] == name).unwrap()
    };
    let settings = RouterSettings { openshift: true, ..RouterSettings::default() };
    assert_eq!(
        named("ClusterRole", "portcullis-single-node-grants")["rules"],
        serde_json::to_value(router::cluster_role(&settings)).unwrap()["rules"],
        "what the router gets"
    );
    let files = TempDir::new().unwrap();
    let (file, log) = (files.path().join("config.yaml"), files.path().join("log"));
    let overrides = named("ConfigMap", "portcullis-overrides")["data"]["overrides.yaml"].as_str().unwrap();
    fs::write(&file, overrides).unwrap();
    let start = |settings: &[&str]| {
        let account = format!("kubernetes.kubeconfig={}", account(&kubernetes).display());
        // The network of this machine is nobody's business: tests/host.rs has one of its own.
        let usual =
            ["telemetry.listen=127.0.0.1:0", "singleNode.openshift=true", "host.enabled=false", &account];
        let child = Command::new("setpriv")
            .args(["--pdeathsig", "KILL", "--", env!("CARGO_BIN_EXE_portcullis"), "serve", "--config"])
            .arg(&file)
            .args(usual.iter().chain(settings).flat_map(|setting| ["--set", *setting]))
            .stdin(Stdio::null())
            .stderr(File::create(&log).unwrap())
            .spawn()
            .unwrap();
        Pod { child, log: log.clone(), _files: TempDir::new().unwrap() }
    };
    let done = |pod: &Pod| {
        eventually("it is done", || {
            assert!(!pod.log().contains("ERROR"), "{}", pod.log());
            let done =
                ["is as the configuration says", "no router, as the configuration says", "was looked at"];
            done.iter().any(|done| pod.log().contains(done))
        });
    };
    let there = || {
        let kinds =
            "serviceaccounts,clusterroles,clusterrolebindings,configmaps,services,deployments,ingressclasses";
        let label = "portcullis.dev/single-node";
        kubernetes.kubectl(&["get", kinds, "-A", "-l", label, "-o", "name"]).unwrap().lines().count()
    };
    let mut pod = start(&["mode=observe"]);
    done(&pod);
    pod.stop();
    assert_eq!(there(), 0, "only said");
    let mut pod = start(&["ingress.accessLogging.status=Enabled"]);
    done(&pod);
    pod.stop();
    assert_eq!(there(), 9);
    let port = "ingress.ports.http=8080";
    let mut pod = start(&[port]);
    done(&pod);
    pod.stop();
    assert_eq!(there(), 8, "no more log");
    let service = ["get", "service", "router-default", "-n", "portcullis-ingress", "-o"];
    let ports = [&service[..], &["jsonpath={.spec.ports[*].port}"]].concat();
    assert_eq!(kubernetes.kubectl(&ports).unwrap(), "8080 443");
    // Somebody edits it.
    let edit = r#"[{"op": "replace", "path": "/spec/ports/0/port", "value": 81}]"#;
    let patch = ["patch", "service", "router-default", "-n", "portcullis-ingress", "--type=json", "-p", edit];
    kubernetes.kubectl(&[&patch[..], &["--field-manager=kubectl-edit"]].concat()).unwrap();
    let mut pod = start(&[port]);
    done(&pod);
    let told = r#"object="Service portcullis-ingress/router-default" fields="spec.ports[http].port" by="kubectl-edit""#;
    assert!(pod.log().contains(told), "{}", pod.log());
    pod.stop();
    assert_eq!(kubernetes.kubectl(&ports).unwrap(), "8080 443");
    // Another class, which makes the Service anew.
    let mut pod = start(&[port, "singleNode.loadBalancerClass=''"]);
    done(&pod);
    assert!(pod.log().contains("made anew"), "{}", pod.log());
    pod.stop();
    let mut pod = start(&["ingress.status=Removed", "ingress.ports.http=none"]);
    done(&pod);
    pod.stop();
    assert_eq!(there(), 0);
    for (verb, what, namespace) in [
        ("create", "clusterroles.rbac.authorization.k8s.io", "default"),
        ("patch", "clusterroles.rbac.authorization.k8s.io/cluster-admin", "default"),
        ("create", "deployments.apps", "portcullis-ingress"),
        ("patch", "deployments.apps/router-default", "default"),
        ("get", "secrets", "portcullis-ingress"),
        ("delete", "namespaces/portcullis-ingress", "default"),
    ] {
        assert!(!may(&kubernetes, verb, what, namespace), "{verb} {what} in {namespace}");
    }
}
