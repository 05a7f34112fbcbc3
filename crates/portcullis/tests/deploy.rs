//! What installs it in a cluster: the manifests, the kustomization and the chart, on a real Kubernetes API; and the
//! program, with the configuration that they hold and no other rights than they give.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use portcullis_controllers::router::{self, RouterSettings};
use portcullis_kube_api::ingress::CRD;
use portcullis_testkit::parts::Namespace;
use portcullis_testkit::parts::catalogue::find;
use portcullis_testkit::parts::kubernetes::Kubernetes;
use portcullis_testkit::{AwsSite, eventually, kubernetes, kubernetes_in};
use serde_json::{Value, json};
use tempfile::TempDir;

/// A file or directory of `deploy`.
fn deploy(path: &str) -> String {
    format!("{}/../../deploy/{path}", env!("CARGO_MANIFEST_DIR"))
}

/// What a program prints.
fn output(program: impl AsRef<Path>, args: &[&str]) -> Result<String, String> {
    let output = Command::new(program.as_ref()).args(args).env_remove("PORTCULLIS_CONFIG").output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
}

fn portcullis(args: &[&str]) -> String {
    output(env!("CARGO_BIN_EXE_portcullis"), args).unwrap()
}

fn helm(args: &[&str]) -> Result<String, String> {
    let chart = deploy("chart");
    output(
        find("helm").unwrap(),
        &[&["template", "portcullis", &chart, "--namespace=portcullis"], args].concat(),
    )
}

/// The objects of a manifest, as kubectl reads them, by kind, name and namespace.
fn objects(manifest: &str) -> Vec<Value> {
    let kubernetes = kubernetes();
    let read = ["create", "--dry-run=client", "--validate=false", "-o", "json", "-f", "-"];
    let text = kubernetes.kubectl_as(kubernetes.kubeconfig(), &read, manifest).unwrap();
    let mut objects: Vec<Value> =
        serde_json::Deserializer::from_str(&text).into_iter().collect::<Result<_, _>>().unwrap();
    let key = |object: &Value| {
        let metadata = &object["metadata"];
        format!("{} {} {}", object["kind"], metadata["name"], metadata["namespace"])
    };
    objects.sort_by_key(key);
    assert!(objects.len() > 5, "{text}");
    objects
}

fn same(these: &[Value], those: &[Value]) {
    let names = |objects: &[Value]| -> Vec<String> {
        objects.iter().map(|object| format!("{} {}", object["kind"], object["metadata"]["name"])).collect()
    };
    assert_eq!(names(these), names(those));
    for (this, that) in these.iter().zip(those) {
        assert_eq!(this, that, "\n{this:#}\n{that:#}");
    }
}

/// What the chart has instead of the manifests: no namespace, and a mark that replaces pods.
fn without_what_charts_differ_in(mut objects: Vec<Value>) -> Vec<Value> {
    objects.retain(|object| object["kind"] != "Namespace");
    for object in &mut objects {
        if let Some(pod) = object.pointer_mut("/spec/template/metadata").and_then(Value::as_object_mut) {
            pod.remove("annotations");
        }
    }
    objects
}

/// As the guide has it: what `clusterctl init` would install.
#[test]
fn clusterctl_takes_it_for_a_provider() {
    let files = tempfile::tempdir().unwrap();
    let version = files.path().join(format!("infrastructure-portcullis/v{}", env!("CARGO_PKG_VERSION")));
    fs::create_dir_all(&version).unwrap();
    fs::copy(deploy("clusterctl/metadata.yaml"), version.join("metadata.yaml")).unwrap();
    let types = portcullis(&["crds", "--only", "cluster-api"]);
    let rest = output(find("kubectl").unwrap(), &["kustomize", &deploy("kustomize/cluster-api")]).unwrap();
    let components = version.join("infrastructure-components.yaml");
    fs::write(&components, format!("{types}---\n{rest}")).unwrap();
    let config = files.path().join("clusterctl.yaml");
    let provider = format!("name: portcullis, type: InfrastructureProvider, url: '{}'", components.display());
    fs::write(&config, format!("providers: [{{{provider}}}]\n")).unwrap();
    let made = Command::new(find("clusterctl").unwrap())
        .args(["generate", "provider", "--infrastructure"])
        .arg(concat!("portcullis:v", env!("CARGO_PKG_VERSION")))
        .arg("--config")
        .arg(&config)
        .env("CLUSTERCTL_DISABLE_VERSIONCHECK", "true")
        .env("HOME", files.path())
        .env("XDG_CONFIG_HOME", files.path())
        .output()
        .unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let made = objects(&String::from_utf8(made.stdout).unwrap());
    let of_kind = |kind: &str| made.iter().filter(|object| object["kind"] == kind).collect::<Vec<_>>();
    assert_eq!(of_kind("CustomResourceDefinition").len(), 8, "four kinds, and a template of each");
    assert_eq!(
        of_kind("Deployment")[0]["metadata"]["labels"]["cluster.x-k8s.io/provider"],
        "infrastructure-portcullis"
    );
    assert!(made.iter().all(|object| object["metadata"]["labels"]["clusterctl.cluster.x-k8s.io"] == ""));
}

#[test]
fn the_kustomization_is_what_the_program_prints() {
    let built = |name| output(find("kubectl").unwrap(), &["kustomize", &deploy(name)]).unwrap();
    let printed = portcullis(&["manifests", "--cluster", "demo"]);
    let base = built("kustomize/base").replace("cluster: \"\"", "cluster: \"demo\"");
    same(&objects(&printed), &objects(&base));

    let eks = objects(&built("kustomize/eks"));
    let named = |kind: &str, name: &str| {
        eks.iter().find(|object| object["kind"] == kind && object["metadata"]["name"] == name).unwrap()
    };
    let account = named("ServiceAccount", "portcullis");
    assert!(account["metadata"]["annotations"]["eks.amazonaws.com/role-arn"].is_string(), "{account}");
    assert!(named("ConfigMap", "portcullis-overrides")["data"]["overrides.yaml"].is_string());
    let image = &named("Deployment", "portcullis")["spec"]["template"]["spec"]["containers"][0]["image"];
    assert!(image.as_str().unwrap().contains(".ecr."), "{image}");
}

#[test]
fn the_chart_is_what_the_program_prints() {
    let both = [
        (helm(&["--set=cluster=demo"]), portcullis(&["manifests", "--cluster=demo"])),
        (
            helm(&["--set=cluster=demo,mode=observe,replicas=1,image.repository=example.com/p,image.tag=v1"]),
            portcullis(&["manifests", "--cluster=demo", "--observe", "--image=example.com/p:v1"]),
        ),
        (
            helm(&["--namespace=edge", "--set=cluster=demo"]),
            portcullis(&["manifests", "--cluster=demo", "--namespace=edge"]),
        ),
    ];
    for (chart, printed) in both {
        let [chart, printed] =
            [chart.unwrap(), printed].map(|text| without_what_charts_differ_in(objects(&text)));
        same(&chart, &printed);
    }
}

#[test]
fn the_values_of_the_chart_reach_the_program() {
    let values = [
        "--set=cluster=demo,region=eu-central-1,vpc=vpc-1,nodeRules=off,resources.limits.memory=1Gi",
        "--set=config.services.withoutClass=true,config.log.format=json",
        "--set=serviceAccount.annotations.role=portcullis",
    ];
    let chart = helm(&values).unwrap();
    let files = TempDir::new().unwrap();
    fs::create_dir(files.path().join("config.d")).unwrap();
    for object in objects(&chart) {
        match object["kind"].as_str().unwrap() {
            "ConfigMap" if object["metadata"]["name"] == "portcullis-overrides" => {
                let text = object["data"]["overrides.yaml"].as_str().unwrap();
                fs::write(files.path().join("config.d/overrides.yaml"), text).unwrap();
            }
            "ConfigMap" => {
                let text = object["data"]["config.yaml"].as_str().unwrap();
                fs::write(files.path().join("config.yaml"), text).unwrap();
            }
            "ServiceAccount" => assert_eq!(object["metadata"]["annotations"]["role"], "portcullis"),
            "Deployment" => {
                let resources = &object["spec"]["template"]["spec"]["containers"][0]["resources"];
                assert_eq!(resources["limits"]["memory"], "1Gi");
            }
            _ => {}
        }
    }
    let file = files.path().join("config.yaml");
    let config = portcullis(&["show-config", "-o", "json", "--config", file.to_str().unwrap()]);
    let config: Value = serde_json::from_str(&config).unwrap();
    for (pointer, value) in [
        ("/aws/cluster", json!("demo")),
        ("/aws/region", json!("eu-central-1")),
        ("/aws/vpc", json!("vpc-1")),
        ("/aws/nodeRules", json!("off")),
        ("/services/withoutClass", json!(true)),
        ("/log/format", json!("json")),
    ] {
        assert_eq!(config.pointer(pointer), Some(&value), "{pointer}");
    }
    // Kubernetes takes it all; the namespace of another test may not be there yet.
    let chart = helm(&[&values[..], &["--namespace=default"]].concat()).unwrap();
    let kubernetes = kubernetes();
    let apply = ["apply", "--dry-run=server", "-f", "-"];
    kubernetes.kubectl_as(kubernetes.kubeconfig(), &apply, &chart).unwrap();

    for (wrong, value) in [
        ("a cluster without a name", "--set=mode=manage"),
        ("`off`, as YAML reads it without quotes", "--set=cluster=demo,nodeRules=false"),
        ("a mode that there is not", "--set=cluster=demo,mode=watch"),
        ("a value that there is not", "--set=cluster=demo,nodeRule=exact"),
    ] {
        assert!(helm(&[value]).unwrap_err().contains("values don't meet the specifications"), "{wrong}");
    }
}

/// `portcullis serve` as in a pod: with the configuration of the cluster, as its service account.
struct Pod {
    child: Child,
    log: PathBuf,
    _files: TempDir,
}

impl Pod {
    fn start(kubernetes: &Kubernetes, aws: &str) -> Self {
        let read = ["get", "configmap", "portcullis", "--namespace=portcullis", "-o", "jsonpath={.data}"];
        let data: Value = serde_json::from_str(&kubernetes.kubectl(&read).unwrap()).unwrap();
        let files = TempDir::new().unwrap();
        for (name, text) in data.as_object().unwrap() {
            fs::write(files.path().join(name), text.as_str().unwrap()).unwrap();
        }
        let file = |name: &str| files.path().join(name).display().to_string();
        let log = files.path().join("log");
        let child = Command::new("setpriv")
            .args(["--pdeathsig", "KILL", "--", env!("CARGO_BIN_EXE_portcullis"), "serve"])
            .args(["--config", &file("config.yaml")])
            .args(["--set", &format!("aws.cloudConfig={}", file("cloud.conf"))])
            .args(["--set", &format!("kubernetes.kubeconfig={}", account(kubernetes).display())])
            .args(["--set", "telemetry.listen=127.0.0.1:0"])
            .envs([("AWS_ENDPOINT_URL", aws), ("AWS_REGION", "us-east-1"), ("POD_NAME", "portcullis-1")])
            .envs([("AWS_ACCESS_KEY_ID", "test"), ("AWS_SECRET_ACCESS_KEY", "test")])
            .stdin(Stdio::null())
            .stderr(File::create(&log).unwrap())
            .spawn()
            .unwrap();
        Pod { child, log, _files: files }
    }

    /// One that looks after `IngressControllers` alone.
    fn for_ingress(kubernetes: &Kubernetes, name: &str, settings: &[&str]) -> Self {
        let files = TempDir::new().unwrap();
        let log = files.path().join("log");
        let account = format!("kubernetes.kubeconfig={}", account(kubernetes).display());
        let usual = [
            "ingressControllers.enabled=true",
            "ingressControllers.router.image=example.com/router:1",
            "telemetry.listen=127.0.0.1:0",
            &account,
        ];
        let settings = usual.iter().chain(settings).flat_map(|setting| ["--set", *setting]);
        let child = Command::new("setpriv")
            .args(["--pdeathsig", "KILL", "--", env!("CARGO_BIN_EXE_portcullis"), "serve"])
            .args(settings)
            .env("POD_NAME", name)
            .stdin(Stdio::null())
            .stderr(File::create(&log).unwrap())
            .spawn()
            .unwrap();
        Pod { child, log, _files: files }
    }

    fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap()
    }

    /// Ends it; nothing was refused meanwhile.
    fn stop(&mut self) {
        kill(Pid::from_raw(self.child.id().cast_signed()), Signal::SIGTERM).unwrap();
        assert!(self.child.wait().unwrap().success(), "{}", self.log());
        assert!(!self.log().contains("forbidden"), "{}", self.log());
    }
}

impl Drop for Pod {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Who acts for `IngressControllers`.
fn holder(kubernetes: &Kubernetes) -> String {
    let lease =
        ["get", "lease", "portcullis-ingress-controllers", "--namespace=portcullis", "--ignore-not-found"];
    kubernetes.kubectl(&[&lease[..], &["-o", "jsonpath={.spec.holderIdentity}"]].concat()).unwrap()
}

/// A kubeconfig of the service account.
fn account(kubernetes: &Kubernetes) -> PathBuf {
    account_in(kubernetes, "portcullis")
}

fn account_in(kubernetes: &Kubernetes, namespace: &str) -> PathBuf {
    let user = format!("system:serviceaccount:{namespace}:portcullis");
    kubernetes.user(&user, Some("system:serviceaccounts")).unwrap()
}

fn may(kubernetes: &Kubernetes, verb: &str, what: &str, namespace: &str) -> bool {
    let ask = ["auth", "can-i", verb, what, "--namespace", namespace];
    kubernetes.kubectl_as(&account(kubernetes), &ask, "").is_ok_and(|answer| answer.trim() == "yes")
}

/// The rights of the overlay for OpenShift suffice for the cloud-config that is kept in step there.
#[test]
fn a_cloud_config_is_kept_in_step_with_the_rights_for_it() {
    let kubernetes = kubernetes();
    // Another test looks at what may be done in the namespace of the manifests.
    let namespaces =
        ["edge", "openshift-config-managed", "openshift-config", "openshift-cloud-controller-manager"];
    for name in namespaces {
        let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        kubernetes.apply(&object.to_string()).unwrap();
    }
    let built = output(find("kubectl").unwrap(), &["kustomize", &deploy("kustomize/openshift")]).unwrap();
    let is_access = |object: &&Value| {
        ["Role", "RoleBinding"].contains(&object["kind"].as_str().unwrap())
            || object["kind"] == "ServiceAccount"
    };
    let built = built.replace("namespace: portcullis\n", "namespace: edge\n");
    for object in objects(&built).iter().filter(is_access) {
        kubernetes.apply(&object.to_string()).unwrap();
    }
    let source = json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "cloud-provider-config", "namespace": "openshift-config"},
        "data": {"cloud.conf": "[Global]\nZone = eu-central-1a\n"},
    });
    kubernetes.apply(&source.to_string()).unwrap();
    let account = account_in(kubernetes, "edge");
    let files = TempDir::new().unwrap();
    let log = files.path().join("log");
    let child = Command::new("setpriv")
        .args(["--pdeathsig", "KILL", "--", env!("CARGO_BIN_EXE_portcullis"), "serve"])
        .args(["--set", "cloudConfig.enabled=true", "--set", "services.lease.namespace=edge"])
        .args(["--set", &format!("kubernetes.kubeconfig={}", account.display())])
        .args(["--set", "telemetry.listen=127.0.0.1:0"])
        .stdin(Stdio::null())
        .stderr(File::create(&log).unwrap())
        .spawn()
        .unwrap();
    let mut pod = Pod { child, log, _files: files };
    let read = ["get", "configmap", "cloud-conf", "--namespace=openshift-cloud-controller-manager"];
    let read = [&read[..], &["--ignore-not-found", "-o", r"jsonpath={.data.cloud\.conf}"]].concat();
    eventually("it is in step", || {
        let text = kubernetes.kubectl(&read).unwrap();
        text.contains("eu-central-1a") && text.contains("Managed")
    });
    pod.stop();
    for (verb, what) in [("get", "configmaps/other"), ("patch", "configmaps/cloud-provider-config")] {
        let ask = ["auth", "can-i", verb, what, "--namespace=openshift-config"];
        assert!(kubernetes.kubectl_as(&account, &ask, "").is_err(), "{verb} {what}");
    }
}

/// Access as the chart and the kustomization give it for `IngressControllers`.
#[test]
fn the_chart_gives_the_rights_of_the_kustomization() {
    let built = output(find("kubectl").unwrap(), &["kustomize", &deploy("kustomize/ingress")]).unwrap();
    let values =
        "--set=cluster=NAME,ingressControllers.enabled=true,ingressControllers.image=example.com/router:1";
    let chart = helm(&[values]).unwrap();
    let about = |text: &str| -> Vec<Value> {
        let is_about = |object: &Value| {
            let name = object["metadata"]["name"].as_str().unwrap();
            name.contains("ingress") || name.contains("router")
        };
        objects(text).into_iter().filter(is_about).collect()
    };
    assert!(about(&built).len() > 12);
    same(&about(&chart), &about(&built));
    let observing = helm(&[values, "--set=mode=observe"]).unwrap();
    assert!(!observing.contains("portcullis-ingress-write"));
    assert!(
        helm(&["--set=cluster=NAME,ingressControllers.enabled=true"])
            .unwrap_err()
            .contains("has to be given")
    );
}

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
    let lists = "--set=host.enabled=true,host.withoutClass=true,host.reservedPorts={22,9090},host.managementInterfaces={ipmi0,mgmt*}";
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
        ("[22, 9090]".to_owned(), "['ipmi0', 'mgmt*']".to_owned())
    );
    let condition = policy["spec"]["matchConditions"][0]["expression"].as_str().unwrap();
    assert!(condition.contains("orValue('portcullis.dev/host') == 'portcullis.dev/host'"), "{condition}");
    let (configurations, _) = configurations(chart.clone());
    assert_eq!(configurations.len(), 2);
    for one in configurations {
        assert_eq!(one["host"]["reservedPorts"], json!([22, 9090]));
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

/// What the policy for Services says to those who ask for ports and interfaces of the nodes themselves, where `{22,9090}` and
/// `{ipmi0,mgmt*}` are such.
fn refuses_what_nodes_need(chart: &[Value]) {
    let kubernetes = kubernetes();
    let is_policy = |object: &&Value| object["metadata"]["name"] == "portcullis-host-services";
    for object in chart.iter().filter(is_policy) {
        kubernetes.apply(&object.to_string()).unwrap();
    }
    let said = |class: Option<&str>, port: u16, entries: &str| -> Result<String, String> {
        let service = json!({
            "apiVersion": "v1", "kind": "Service",
            "metadata": {"name": "asks", "annotations": {"portcullis.dev/listen-addresses": entries}},
            "spec": {"type": "LoadBalancer", "loadBalancerClass": class, "ports": [{"port": port}]},
        });
        let apply = ["apply", "--dry-run=server", "-f", "-"];
        let said = kubernetes.kubectl_as(kubernetes.kubeconfig(), &apply, &service.to_string());
        said.map_err(|error| error.to_string())
    };
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
    for (class, port, entries) in
        [(ours, 80, ""), (ours, 80, "ipmi1,eth0"), (ours, 80, "192.0.2.7"), (Some("other"), 22, "ipmi0")]
    {
        said(class, port, entries).unwrap_or_else(|refused| panic!("{port} {entries}: {refused}"));
    }
}

/// What the manifests give routers is what the program would give them, so that it need not be able to.
#[test]
fn routers_have_the_rights_that_they_need() {
    let named = |overlay: &str, kind: &str, name: &str| -> Value {
        let built = output(find("kubectl").unwrap(), &["kustomize", &deploy(overlay)]).unwrap();
        let mut found = objects(&built)
            .into_iter()
            .filter(|object| object["kind"] == kind && object["metadata"]["name"] == name);
        found.next().unwrap()
    };
    for (overlay, openshift) in [("kustomize/ingress", false), ("kustomize/ingress-openshift", true)] {
        let settings = RouterSettings { openshift, monitoring: openshift, ..RouterSettings::default() };
        let role = named(overlay, "ClusterRole", "portcullis-router");
        assert_eq!(
            role["rules"],
            serde_json::to_value(router::cluster_role(&settings)).unwrap()["rules"],
            "{overlay}"
        );
        let binding = named(overlay, "ClusterRoleBinding", "portcullis-router");
        assert_eq!(
            binding["subjects"],
            serde_json::to_value(router::cluster_role_binding(&settings)).unwrap()["subjects"]
        );
        if let Some((metrics, _, found, _)) = router::collector(&settings) {
            let role = named(overlay, "ClusterRole", "router-monitoring");
            assert_eq!(role["rules"], serde_json::to_value(metrics).unwrap()["rules"]);
            assert_eq!(
                named(overlay, "Role", "prometheus-k8s")["rules"],
                serde_json::to_value(found).unwrap()["rules"]
            );
        }
    }
}

/// Who comes to an OpenShift cluster finds load balancers there, which are somebody else's.
#[test]
fn on_openshift_no_class_is_chosen_for_anybody() {
    let overlay = deploy("kustomize/ingress-openshift");
    let built = output(find("kubectl").unwrap(), &["kustomize", &overlay]).unwrap();
    let overrides = objects(&built)
        .into_iter()
        .find_map(|object| object["data"]["overrides.yaml"].as_str().map(str::to_owned))
        .unwrap();
    assert!(!overrides.lines().any(|line| line.trim_start().starts_with("loadBalancerClass")), "{overrides}");
}

/// The rights of the overlay suffice for all that an `IngressController` can ask for, and for nothing in other namespaces.
#[test]
fn ingress_controllers_are_looked_after_with_the_rights_for_it() {
    let kubernetes = kubernetes_in(&Namespace::host());
    kubernetes.apply_types(CRD).unwrap();
    let built = output(find("kubectl").unwrap(), &["kustomize", &deploy("kustomize/ingress")]).unwrap();
    kubernetes.apply(&built).unwrap();
    let start = |name: &str| {
        let platform = "ingressControllers.platform=bareMetal";
        Pod::for_ingress(
            &kubernetes,
            name,
            &[platform, "ingressControllers.configNamespace=openshift-ingress-operator"],
        )
    };
    // Of two, one acts.
    let mut first = start("portcullis-1");
    eventually("the first acts", || holder(&kubernetes).starts_with("portcullis-1-"));
    let mut second = start("portcullis-2");
    let bundle = json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "clients", "namespace": "openshift-ingress-operator"},
        "data": {"ca-bundle.pem": "a certificate"},
    });
    kubernetes.apply(&bundle.to_string()).unwrap();
    let controller = |strategy: Value| {
        let object = json!({
            "apiVersion": "operator.openshift.io/v1",
            "kind": "IngressController",
            "metadata": {"name": "default", "namespace": "openshift-ingress-operator"},
            "spec": {
                "domain": "apps.example.com",
                "endpointPublishingStrategy": strategy,
                "logging": {"access": {"destination": {"type": "Container"}}},
                "clientTLS": {"clientCertificatePolicy": "Required", "clientCA": {"name": "clients"}},
            },
        });
        kubernetes.apply(&object.to_string()).unwrap();
    };
    let condition = |type_: &str| {
        let path = format!("jsonpath={{.status.conditions[?(@.type==\"{type_}\")].reason}}");
        let get = ["get", "ingresscontroller", "default", "-n", "openshift-ingress-operator", "-o", &path];
        kubernetes.kubectl(&get).unwrap()
    };
    controller(
        json!({"type": "LoadBalancerService", "loadBalancer": {"scope": "External", "allowedSourceRanges": ["192.0.2.0/24"]}}),
    );
    eventually("it is carried out", || condition("LoadBalancerProgressing") == "LoadBalancerNotProgressing");
    let there = |what: &str| {
        kubernetes.kubectl(&["get", what, "-n", "openshift-ingress", "-o", "name"]).unwrap().lines().count()
    };
    eventually("routers", || there("deployments") == 1 && there("poddisruptionbudgets") == 1);
    assert!(there("configmaps") >= 3, "what they read, and the authority of the cluster");
    assert!(!second.log().contains("acting now"), "{}", second.log());
    first.stop();
    eventually("the second acts", || holder(&kubernetes).starts_with("portcullis-2-"));
    kubernetes
        .kubectl(&["delete", "ingresscontroller", "default", "-n", "openshift-ingress-operator"])
        .unwrap();
    eventually("nothing is left", || there("deployments") == 0 && there("services") == 0);
    second.stop();
    for (verb, what, namespace) in [
        ("create", "deployments.apps", "default"),
        ("get", "secrets", "openshift-ingress-operator"),
        ("list", "secrets", "openshift-ingress"),
        ("create", "secrets", "openshift-ingress"),
        ("create", "pods", "openshift-ingress"),
        ("create", "clusterroles.rbac.authorization.k8s.io", "default"),
        ("create", "rolebindings.rbac.authorization.k8s.io", "openshift-ingress"),
        ("delete", "ingresscontrollers.operator.openshift.io", "openshift-ingress-operator"),
        ("patch", "configmaps", "openshift-ingress-operator"),
    ] {
        assert!(!may(&kubernetes, verb, what, namespace), "{verb} {what} in {namespace}");
    }
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

/// A type that takes everything, for what OpenShift brings.
fn lax_type(group: &str, plural: &str, kind: &str, scope: &str) -> String {
    let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    let name = format!("{plural}.{group}");
    let version = json!({"name": "v1", "served": true, "storage": true, "subresources": {"status": {}}, "schema": schema});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": name},
        "spec": {
            "group": group,
            "scope": scope,
            "names": {"kind": kind, "plural": plural, "singular": kind.to_lowercase()},
            "versions": [version],
        },
    })
    .to_string()
}

/// The rights of the overlay for OpenShift suffice for what is done there.
#[test]
fn ingress_controllers_are_looked_after_on_openshift() {
    let kubernetes = kubernetes_in(&Namespace::host());
    kubernetes.apply_types(CRD).unwrap();
    let config = "config.openshift.io";
    for (plural, kind) in [
        ("infrastructures", "Infrastructure"),
        ("ingresses", "Ingress"),
        ("networks", "Network"),
        ("apiservers", "APIServer"),
        ("clusteroperators", "ClusterOperator"),
    ] {
        kubernetes.apply_types(&lax_type(config, plural, kind, "Cluster")).unwrap();
    }
    kubernetes
        .apply_types(&lax_type("monitoring.coreos.com", "servicemonitors", "ServiceMonitor", "Namespaced"))
        .unwrap();
    let infrastructure = json!({
        "apiVersion": "config.openshift.io/v1",
        "kind": "Infrastructure",
        "metadata": {"name": "cluster"},
        "spec": {},
    });
    kubernetes.apply(&infrastructure.to_string()).unwrap();
    let status =
        json!({"status": {"platformStatus": {"type": "None"}, "infrastructureTopology": "SingleReplica"}});
    let patch = ["patch", "infrastructure", "cluster", "--subresource=status", "--type=merge", "-p"];
    kubernetes.kubectl(&[&patch[..], &[&status.to_string()]].concat()).unwrap();
    for name in ["openshift-config", "openshift-monitoring"] {
        kubernetes.kubectl(&["create", "namespace", name]).unwrap();
    }
    let overlay = deploy("kustomize/ingress-openshift");
    kubernetes.apply(&output(find("kubectl").unwrap(), &["kustomize", &overlay]).unwrap()).unwrap();
    let mut pod =
        Pod::for_ingress(&kubernetes, "portcullis-1", &["ingressControllers.domain=apps.example.com"]);
    let controller = json!({
        "apiVersion": "operator.openshift.io/v1",
        "kind": "IngressController",
        "metadata": {"name": "default", "namespace": "openshift-ingress-operator"},
        "spec": {"endpointPublishingStrategy": {"type": "LoadBalancerService", "loadBalancer": {"scope": "External"}}},
    });
    kubernetes.apply(&controller.to_string()).unwrap();
    let there =
        |what: &str| kubernetes.kubectl(&["get", what, "--ignore-not-found", "-A", "-o", "name"]).unwrap();
    eventually("a class", || there("ingressclasses").contains("openshift-default"));
    eventually("who collects metrics is told", || there("servicemonitors").contains("router-default"));
    eventually("it is summed up", || {
        let path = r#"jsonpath={.status.conditions[?(@.type=="Available")].reason}"#;
        let get = ["get", "clusteroperator", "ingress", "--ignore-not-found", "-o", path];
        kubernetes.kubectl(&get).unwrap() == "IngressUnavailable"
    });
    let labels = ["get", "namespace", "openshift-ingress", "-o", "jsonpath={.metadata.labels}"];
    eventually("the namespace is as it should be", || {
        kubernetes.kubectl(&labels).unwrap().contains("openshift.io/cluster-monitoring")
    });
    kubernetes
        .kubectl(&["delete", "ingresscontroller", "default", "-n", "openshift-ingress-operator"])
        .unwrap();
    eventually("nothing is left", || {
        !there("ingressclasses").contains("openshift-default")
            && !there("servicemonitors").contains("router-default")
    });
    pod.stop();
}

/// A Service whose targets are the nodes, or addresses of its endpoints.
fn service(name: &str, targets: &str, range: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Service\nmetadata:\n  name: {name}\n  namespace: default\n  annotations:\n    \
         service.beta.kubernetes.io/aws-load-balancer-nlb-target-type: {targets}\n\
         spec:\n  type: LoadBalancer\n  loadBalancerClass: portcullis.dev/aws-nlb\n  \
         loadBalancerSourceRanges: [{range}]\n  ports: [{{name: web, port: 80, targetPort: 8080}}]\n"
    )
}

const ENDPOINTS: &str = "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\n\
    metadata: {name: by-address, namespace: default, labels: {kubernetes.io/service-name: by-address}}\n\
    addressType: IPv4\nports: [{name: web, port: 8080, protocol: TCP}]\n\
    endpoints: [{addresses: [10.0.1.77], conditions: {ready: true}}]\n";

/// What the service account may in the namespaces of others, in both modes and in the one that writes.
const READS: [(&str, &str); 7] = [
    ("get", "services"),
    ("list", "services"),
    ("watch", "services"),
    ("list", "nodes"),
    ("watch", "nodes"),
    ("list", "endpointslices.discovery.k8s.io"),
    ("watch", "endpointslices.discovery.k8s.io"),
];
const WRITES: [(&str, &str); 5] = [
    ("patch", "services"),
    ("patch", "services/status"),
    ("create", "events"),
    ("get", "events"),
    ("patch", "events"),
];
const NEVER: [(&str, &str); 14] = [
    ("get", "secrets"),
    ("list", "secrets"),
    ("get", "configmaps"),
    ("create", "services"),
    ("update", "services"),
    ("delete", "services"),
    ("create", "pods"),
    ("get", "pods"),
    ("patch", "nodes"),
    ("delete", "nodes"),
    ("patch", "endpointslices.discovery.k8s.io"),
    ("delete", "events"),
    ("create", "clusterrolebindings.rbac.authorization.k8s.io"),
    ("create", "serviceaccounts/token"),
];

#[test]
fn it_works_with_the_rights_that_the_manifests_give_and_has_no_others() {
    let kubernetes = kubernetes();
    let aws = portcullis_testkit::aws();
    let site = AwsSite::new(&aws.url());
    site.join(kubernetes);
    kubernetes.apply(&service("by-node", "instance", "192.0.2.0/24")).unwrap();
    let get = |name: &str, path: &str| {
        kubernetes.kubectl(&["get", "service", name, "-o", &format!("jsonpath={path}")]).unwrap()
    };
    let events =
        |path: &str| kubernetes.kubectl(&["get", "events", "-o", &format!("jsonpath={path}")]).unwrap();
    let lease = "leases.coordination.k8s.io/portcullis-services";
    let leases = "leases.coordination.k8s.io";

    // Who only watches, first.
    kubernetes.apply(&portcullis(&["manifests", "--cluster", "demo", "--observe"])).unwrap();
    eventually("it may read", || READS.iter().all(|(verb, what)| may(kubernetes, verb, what, "default")));
    for (verb, what) in WRITES.iter().chain(&NEVER) {
        assert!(!may(kubernetes, verb, what, "default"), "{verb} {what}");
    }
    for verb in ["get", "create", "update"] {
        assert!(!may(kubernetes, verb, lease, "portcullis"), "{verb} {lease}");
    }
    let mut pod = Pod::start(kubernetes, &aws.url());
    eventually("it says what it would do", || pod.log().contains("this would be done"));
    pod.stop();
    assert_eq!(get("by-node", "{.metadata.finalizers}{.status.loadBalancer.ingress}"), "");
    assert_eq!(events("{.items[?(@.source.component==\"service-controller\")].reason}"), "");
    assert!(!site.elb("Action=DescribeLoadBalancers").contains("<LoadBalancerArn>"));

    // Then who acts.
    kubernetes.apply(&portcullis(&["manifests", "--cluster", "demo"])).unwrap();
    eventually("it may write", || WRITES.iter().all(|(verb, what)| may(kubernetes, verb, what, "default")));
    for (verb, what) in NEVER {
        assert!(!may(kubernetes, verb, what, "default"), "{verb} {what}");
        assert!(!may(kubernetes, verb, what, "portcullis"), "{verb} {what} in its own namespace");
    }
    assert!(may(kubernetes, "get", lease, "portcullis") && may(kubernetes, "update", lease, "portcullis"));
    assert!(may(kubernetes, "create", leases, "portcullis"));
    assert!(!may(kubernetes, "update", leases, "portcullis"), "those of others");
    assert!(
        !may(kubernetes, "get", lease, "kube-system") && !may(kubernetes, "create", leases, "kube-system")
    );

    // Its namespace takes pods without privileges only.
    let read =
        ["get", "deployment", "portcullis", "--namespace=portcullis", "-o", "jsonpath={.spec.template.spec}"];
    let spec: Value = serde_json::from_str(&kubernetes.kubectl(&read).unwrap()).unwrap();
    let metadata = json!({"name": "portcullis", "namespace": "portcullis"});
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}).to_string();
    let create = ["create", "--dry-run=server", "-f", "-"];
    kubernetes.kubectl_as(kubernetes.kubeconfig(), &create, &pod).unwrap();

    let mut pod = Pod::start(kubernetes, &aws.url());
    kubernetes.apply(ENDPOINTS).unwrap();
    kubernetes.apply(&service("by-address", "ip", "192.0.2.0/24")).unwrap();
    for name in ["by-node", "by-address"] {
        eventually("an address", || get(name, "{.status.loadBalancer.ingress[0].hostname}").contains("elb"));
    }
    // The same words a second time: the Event that is there counts them.
    kubernetes.apply(&service("by-node", "instance", "198.51.100.0/24")).unwrap();
    eventually("it was told twice", || {
        events("{.items[?(@.reason==\"EnsuredLoadBalancer\")].count}").contains('2')
    });
    let holder = [
        "get",
        "lease",
        "portcullis-services",
        "--namespace=portcullis",
        "-o",
        "jsonpath={.spec.holderIdentity}",
    ];
    assert!(kubernetes.kubectl(&holder).unwrap().starts_with("portcullis-1-"));

    kubernetes.kubectl(&["delete", "service", "by-node", "by-address", "--timeout=60s"]).unwrap();
    assert!(!site.elb("Action=DescribeLoadBalancers").contains("<LoadBalancerArn>"));
    pod.stop();
    assert_eq!(kubernetes.kubectl(&holder).unwrap(), "", "given back");
}
