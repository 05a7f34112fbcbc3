//! The program beside a real Cluster API: its manifests and types, a machine that carries a load balancer with an account of its own,
//! packets, and what it shows.

#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "a test that fails says where, and why")]

mod program;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use portcullis_testkit::parts::Namespace;
use portcullis_testkit::parts::kubernetes::Kubernetes;
use portcullis_testkit::talk::{Backend, Held, ask};
use portcullis_testkit::{ClusterApi, Host, Leash, eventually, kubernetes_in, link};
use serde_json::{Value, json};
use tempfile::TempDir;

use program::{Program, built, controller_account, double, double_in, metrics_of, text};

const FRONT: &str = "192.0.2.1";

fn apply(kubernetes: &Kubernetes, mut object: Value) {
    object["metadata"]["namespace"] = json!("default");
    eventually("the API takes it", || kubernetes.apply(&object.to_string()).is_ok());
}

fn machine(kubernetes: &Kubernetes, name: &str, address: &str) {
    apply(
        kubernetes,
        json!({
            "apiVersion": "infrastructure.cluster.x-k8s.io/v1", "kind": "LabMachine", "metadata": {"name": name},
            "spec": {"providerID": format!("lab://{name}")},
            "status": {"initialization": {"provisioned": true}, "addresses": [{"type": "InternalIP", "address": address}]},
        }),
    );
    apply(
        kubernetes,
        json!({
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
        }),
    );
}

fn shown(program: &[&str], kubernetes: &Kubernetes, host: &Host) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_portcullis"));
    command.args(program).env("KUBECONFIG", kubernetes.kubeconfig());
    let output = Namespace::run(host, || command.output().unwrap());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// A cluster with two control planes, and what is in front of them.
fn make_cluster(kubernetes: &Kubernetes) {
    apply(
        kubernetes,
        json!({
            "apiVersion": "infrastructure.cluster.x-k8s.io/v1", "kind": "LabCluster", "metadata": {"name": "demo"},
            "spec": {}, "status": {"initialization": {"provisioned": true}},
        }),
    );
    apply(
        kubernetes,
        json!({
            "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster",
            "metadata": {"name": "demo", "annotations": {"portcullis.dev/control-plane-load-balancer": "demo"}},
            "spec": {"infrastructureRef": {"apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "LabCluster", "name": "demo"}},
        }),
    );
    machine(kubernetes, "one", "10.9.1.2");
    machine(kubernetes, "two", "10.9.2.2");
    apply(
        kubernetes,
        json!({
            "apiVersion": "loadbalancer.portcullis.dev/v1alpha1", "kind": "HAProxyLoadBalancer",
            "metadata": {"name": "demo"}, "spec": {},
        }),
    );
    apply(
        kubernetes,
        json!({
            "apiVersion": "loadbalancer.portcullis.dev/v1alpha1", "kind": "LoadBalancer", "metadata": {"name": "demo"},
            "spec": {
                "clusterName": "demo", "drainTimeoutSeconds": 5, "allowedSourceRanges": ["192.0.2.0/24"],
                "infrastructureRef": {"apiGroup": "loadbalancer.portcullis.dev", "kind": "HAProxyLoadBalancer", "name": "demo"},
            },
        }),
    );
}

/// Nobody else's word counts for it, nor its own for others.
fn a_machine_speaks_for_itself(kubernetes: &Kubernetes, machine_account: &Path) {
    let as_machine = |subresource: &[&str], mut fields: Value| {
        fields["apiVersion"] = json!("loadbalancer.portcullis.dev/v1alpha1");
        fields["kind"] = json!("HAProxyLoadBalancer");
        fields["metadata"] = json!({"name": "demo", "namespace": "default"});
        let apply = [
            "apply",
            "--server-side",
            "--force-conflicts",
            "--field-manager=portcullis-haproxy-edge1",
            "-f",
            "-",
        ];
        let arguments = [&apply[..], subresource].concat();
        kubernetes
            .kubectl_as(machine_account, &arguments, &fields.to_string())
            .map_err(|error| error.to_string())
    };
    let forbidden = as_machine(&[], json!({"spec": {"pool": "other"}})).unwrap_err();
    assert!(forbidden.contains("forbidden"), "{forbidden}");
    let status = ["--subresource=status"];
    let another = json!({"status": {"instances": [{"name": "edge2", "members": []}]}});
    let refused = as_machine(&status, another).unwrap_err();
    assert!(
        refused.contains("a machine writes its own entry of status.instances, and no other"),
        "{refused}"
    );
    let refused = as_machine(&status, json!({"status": {"address": "203.0.113.1"}})).unwrap_err();
    assert!(
        refused.contains("a machine writes its own entry of status.instances, and nothing else"),
        "{refused}"
    );
    as_machine(&status, json!({"status": {"instances": [{"name": "edge1", "problem": "none"}]}})).unwrap();
    let lease = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": "portcullis-haproxy-edge2", "namespace": "portcullis"}, "spec": {"holderIdentity": "edge2"},
    });
    let create = ["create", "-f", "-"];
    let refused =
        kubernetes.kubectl_as(machine_account, &create, &lease.to_string()).unwrap_err().to_string();
    assert!(refused.contains("a machine says of itself that it is there"), "{refused}");
    // Nor may it change what the other one, or the controllers, have said.
    let apply = [
        "apply",
        "--server-side",
        "--force-conflicts",
        "--field-manager=portcullis-haproxy-edge2",
        "-f",
        "-",
    ];
    let leader = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": "portcullis-leader", "namespace": "portcullis"}, "spec": {"holderIdentity": "somebody"},
    });
    for lease in [lease, leader] {
        let name = lease["metadata"]["name"].as_str().unwrap().to_owned();
        kubernetes.apply(&lease.to_string()).unwrap();
        let mut changed = lease;
        for holder in ["edge1", "edge2"] {
            changed["spec"] = json!({"holderIdentity": holder, "renewTime": "2030-01-01T00:00:00.000000Z"});
            let refused = kubernetes.kubectl_as(machine_account, &apply, &changed.to_string()).unwrap_err();
            assert!(refused.to_string().contains("a machine says of itself that it is there"), "{refused}");
        }
        kubernetes.kubectl(&["-n", "portcullis", "delete", "lease", &name]).unwrap();
    }
}

/// What the manifests give to a machine, beside what everybody has who is known.
fn a_machine_may_do_what_it_needs_and_nothing_else(kubernetes: &Kubernetes, machine_account: &Path) {
    let rights = |namespace: &str| {
        let review = json!({
            "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectRulesReview",
            "spec": {"namespace": namespace},
        });
        let create = ["create", "--validate=false", "-o", "json", "-f", "-"];
        let said = kubernetes.kubectl_as(machine_account, &create, &review.to_string()).unwrap();
        let said: Value = serde_json::from_str(&said).unwrap();
        assert_eq!(said["status"]["incomplete"], false);
        let mut found = BTreeSet::new();
        for rule in said["status"]["resourceRules"].as_array().unwrap() {
            let words = |key: &str| {
                let words = rule[key].as_array().cloned().unwrap_or_default();
                words.into_iter().map(|word| word.as_str().unwrap().to_owned()).collect::<Vec<String>>()
            };
            for group in words("apiGroups") {
                // Who one is, and what one may: anybody may ask for that.
                if ["authorization.k8s.io", "authentication.k8s.io"].contains(&group.as_str()) {
                    continue;
                }
                for resource in words("resources") {
                    for verb in words("verbs") {
                        found.insert(format!("{verb} {resource}.{group}"));
                    }
                }
            }
        }
        found
    };
    let mut needed = BTreeSet::new();
    for group in ["loadbalancer.portcullis.dev", "infrastructure.cluster.x-k8s.io"] {
        for what in
            ["list haproxyloadbalancers", "watch haproxyloadbalancers", "patch haproxyloadbalancers/status"]
        {
            needed.insert(format!("{what}.{group}"));
        }
    }
    for namespace in ["default", "kube-system"] {
        assert_eq!(rights(namespace), needed, "in {namespace}");
    }
    needed.extend(["create", "patch"].map(|verb| format!("{verb} leases.coordination.k8s.io")));
    assert_eq!(rights("portcullis"), needed);
}

/// A number that the agent shows of the load balancer, by another label and its value.
fn counted(carrier: &Host, name: &str, (label, value): (&str, &str)) -> u64 {
    let start = format!(r#"portcullis_haproxy_{name}{{load_balancer="default/demo",{label}="{value}"}} "#);
    let text = metrics_of(carrier);
    let found = text.lines().find_map(|line| line.strip_prefix(&start));
    found.and_then(|number| number.parse().ok()).unwrap_or_default()
}

/// Who came, who was not let in, and what they said.
fn connections_are_counted(kubernetes: &Kubernetes, carrier: &Host, client: &Host) {
    let accepted = || counted(carrier, "connections_total", ("verdict", "accepted"));
    let denied = || counted(carrier, "connections_total", ("verdict", "denied"));
    let bytes = |direction| counted(carrier, "bytes_total", ("direction", direction));
    assert_eq!(denied(), 0);
    // Whoever came before is counted when nothing changes for longer than it takes to look again.
    let counts = || (accepted(), bytes("received"), bytes("sent"));
    let mut last = counts();
    eventually("all who came before are counted", || {
        std::thread::sleep(std::time::Duration::from_secs(5));
        std::mem::replace(&mut last, counts()) == last
    });
    let (before, received, sent) = last;
    for _ in 0..7 {
        ask(client, FRONT, 6443).unwrap();
    }
    // Each says `who?`, and is told `one` or `two`, with the end of the line.
    eventually("they are counted", || accepted() == before + 7);
    eventually("and what they said", || bytes("received") == received + 7 * 5);
    eventually("and what they were told", || bytes("sent") == sent + 7 * 4);
    assert_eq!(denied(), 0);

    let open_to = |range: &str| {
        let patch = json!({"spec": {"allowedSourceRanges": [range]}}).to_string();
        let kind = "loadbalancers.loadbalancer.portcullis.dev";
        kubernetes.kubectl(&["patch", kind, "demo", "--type=merge", "-p", &patch]).unwrap();
    };
    open_to("198.51.100.0/24");
    eventually("nobody gets in", || ask(client, FRONT, 6443).is_err());
    eventually("that is counted", || denied() > 0);
    let (before, let_in) = (denied(), accepted());
    for _ in 0..5 {
        ask(client, FRONT, 6443).unwrap_err();
    }
    eventually("all of them are", || denied() == before + 5);
    assert_eq!(accepted(), let_in);
    open_to("192.0.2.0/24");
    eventually("clients get through", || ask(client, FRONT, 6443).is_ok());
}

#[test]
fn a_control_plane_behind_a_machine_of_ours() {
    let [carrier, client, one, two] = ["carrier", "client", "one", "two"].map(Host::new);
    link(&client, &["192.0.2.10/24"], &carrier, &["192.0.2.1/24"]);
    link(&one, &["10.9.1.2/24"], &carrier, &["10.9.1.1/24"]);
    link(&two, &["10.9.2.2/24"], &carrier, &["10.9.2.1/24"]);
    let _backends = [Backend::start(&one, 6443), Backend::start(&two, 6443)];
    let kubernetes = kubernetes_in(&carrier);
    let _cluster_api = ClusterApi::start(&kubernetes);
    kubernetes.apply_types(&shown(&["crds", "--only", "cluster-api"], &kubernetes, &carrier)).unwrap();
    kubernetes.apply_types(&[double("LabCluster"), double("LabMachine")].join("\n---\n")).unwrap();
    eventually("the API takes the manifests", || kubernetes.apply(&built("cluster-api")).is_ok());

    let files = TempDir::new().unwrap();
    let overrides = files.path().join("controller.yaml");
    fs::write(&overrides, text(&kubernetes, "portcullis", "portcullis-overrides", "overrides.yaml")).unwrap();
    let agent = files.path().join("agent.yaml");
    let directory = files.path().join("haproxy");
    fs::create_dir(&directory).unwrap();
    let _leash = Leash::new(&directory);
    fs::write(
        &agent,
        format!("haproxy: {{enabled: true, name: edge1, directory: {}}}\n", directory.display()),
    )
    .unwrap();
    let machine_account = kubernetes
        .user("system:serviceaccount:portcullis:haproxy-edge1", Some("system:serviceaccounts:portcullis"))
        .unwrap();
    let usual = |kubeconfig: &Path, listen: &str| {
        vec![
            format!("kubernetes.kubeconfig={}", kubeconfig.display()),
            format!("telemetry.listen={listen}"),
            "host.internalInterfaces=[to-one, to-two]".to_owned(),
            // Nobody but who is named here connects: that is counted.
            "clusterApi.probe=0s".to_owned(),
        ]
    };
    let account = controller_account(&kubernetes);
    let log = |name: &str| files.path().join(name);
    let controller =
        Program::start(&carrier, &log("controller.log"), &overrides, &usual(&account, "127.0.0.1:0"));
    let running =
        Program::start(&carrier, &log("agent.log"), &agent, &usual(&machine_account, "127.0.0.1:9695"));

    make_cluster(&kubernetes);
    eventually("clients get through", || ask(&client, FRONT, 6443).is_ok());
    let cluster = [
        "get",
        "cluster",
        "demo",
        "-o",
        "jsonpath={.spec.controlPlaneEndpoint.host}:{.spec.controlPlaneEndpoint.port}",
    ];
    eventually("the Cluster has its endpoint", || kubernetes.kubectl(&cluster).unwrap() == "192.0.2.1:6443");
    let get = ["get", "load-balancers"];
    eventually("all of it is shown", || {
        let shown = shown(&get, &kubernetes, &carrier);
        shown.contains("default/demo") && shown.contains("192.0.2.0/24") && shown.contains("2/2")
    });
    let metrics = || metrics_of(&carrier);
    eventually("it is counted", || {
        metrics().contains(r#"portcullis_haproxy_member_up{load_balancer="default/demo",member="one"} 1"#)
    });

    for ended in ["cut", "crowded_out"] {
        let none = format!(
            r#"portcullis_haproxy_member_{ended}_connections_total{{load_balancer="default/demo",member="one"}} 0"#
        );
        assert!(metrics().contains(&none), "{}", metrics());
    }
    assert!(metrics().contains("\nportcullis_haproxy_workers "), "{}", metrics());

    a_machine_may_do_what_it_needs_and_nothing_else(&kubernetes, &machine_account);
    a_machine_speaks_for_itself(&kubernetes, &machine_account);
    connections_are_counted(&kubernetes, &carrier, &client);

    // A Machine goes, with all the rights that this takes.
    let mut held = Held::connect(&client, FRONT, 6443).unwrap();
    let (goes, stays) = if held.ask().unwrap() == "one" { ("one", "two") } else { ("two", "one") };
    let sessions = |member| counted(&carrier, "member_sessions", ("member", member));
    eventually("it is counted", || sessions(goes) == 1 && sessions(stays) == 0);
    let keep = |finalizers: Value| {
        let patch = json!({"metadata": {"finalizers": finalizers}}).to_string();
        kubernetes.kubectl(&["patch", "labmachine", goes, "--type=merge", "-p", &patch]).unwrap();
    };
    keep(json!(["lab/machine"]));
    kubernetes.kubectl(&["delete", "machine", goes, "--wait=false"]).unwrap();
    eventually("nothing new goes there", || {
        (0..4).all(|_| ask(&client, FRONT, 6443).is_ok_and(|answer| answer == stays))
    });
    // What is taken away with a Machine, and its numbers with it, stays until then.
    let cut = || counted(&carrier, "member_cut_connections_total", ("member", goes));
    eventually("that its connection was ended is counted", || cut() == 1);
    assert!(held.has_ended());
    keep(Value::Null);
    eventually("it is gone", || kubernetes.kubectl(&["get", "machine", goes]).is_err());

    controller.may_do_all_of_it();
    running.may_do_all_of_it();

    // The agent is killed, and nobody notices.
    drop(running);
    assert_eq!(ask(&client, FRONT, 6443).unwrap(), stays);
}

/// The types of the proposal, where there is no Cluster API, with the rights of the manifests for these.
#[test]
fn as_the_proposal_has_it() {
    let host = Host::new("proposed");
    let kubernetes = kubernetes_in(&host);
    kubernetes.apply_types(&shown(&["crds", "--only", "proposed"], &kubernetes, &host)).unwrap();
    eventually("the API takes the manifests", || kubernetes.apply(&built("cluster-api-proposed")).is_ok());
    let files = TempDir::new().unwrap();
    let overrides = files.path().join("controller.yaml");
    fs::write(&overrides, text(&kubernetes, "portcullis", "portcullis-overrides", "overrides.yaml")).unwrap();
    let settings = [
        format!("kubernetes.kubeconfig={}", controller_account(&kubernetes).display()),
        "telemetry.listen=127.0.0.1:0".to_owned(),
    ];
    let running = Program::start(&host, &files.path().join("controller.log"), &overrides, &settings);

    let [cluster, plane, provider] =
        ["cluster.x-k8s.io", "controlplane.cluster.x-k8s.io", "infrastructure.cluster.x-k8s.io"]
            .map(|group| format!("{group}/v1alpha4"));
    let reference = |group: &str, kind: &str| json!({"apiGroup": group, "kind": kind, "name": "demo"});
    let make = |api: &str, kind: &str, spec: Value| {
        apply(
            &kubernetes,
            json!({"apiVersion": api, "kind": kind, "metadata": {"name": "demo"}, "spec": spec}),
        );
    };
    let control_plane = reference("cluster.x-k8s.io", "KubeadmControlPlane");
    make(&cluster, "Cluster", json!({"controlPlane": {"providerRef": control_plane}}));
    let balancer = reference("cluster.x-k8s.io", "LoadBalancer");
    make(&plane, "KubeadmControlPlane", json!({"loadBalancerRef": balancer}));
    make(&provider, "HAProxyLoadBalancer", json!({"addresses": ["192.0.2.1"]}));
    let made_by = reference("infrastructure.cluster.x-k8s.io", "HAProxyLoadBalancer");
    make(&cluster, "LoadBalancer", json!({"clusterName": "demo", "infrastructureRef": made_by}));
    let endpoint = |kind: &str, path: &str| {
        let path = format!("jsonpath={{.spec.{path}.host}}:{{.spec.{path}.port}}");
        kubernetes.kubectl(&["get", kind, "demo", "-o", &path]).unwrap_or_default()
    };
    eventually("the load balancer has the provider's", || {
        endpoint("loadbalancers.cluster.x-k8s.io", "endpoint") == "192.0.2.1:6443"
    });
    eventually("the control plane has it", || {
        endpoint("kubeadmcontrolplanes", "endpoint") == "192.0.2.1:6443"
    });
    eventually("the Cluster has it", || endpoint("clusters", "controlPlane.endpoint") == "192.0.2.1:6443");
    running.may_do_all_of_it();
}

const PLANES: &str = "controlplane.cluster.x-k8s.io";
const TEMPLATE: &str = "portcullis.dev/load-balancer-template";

/// What makes load balancers for clusters, by a template of this name for each kind.
fn make_templates(kubernetes: &Kubernetes) {
    let pool = json!({"apiGroup": "ipam.example.com", "kind": "Pool", "name": "edge"});
    for (kind, name, spec) in [
        ("HAProxyLoadBalancer", "demo", json!({"addressFrom": {"poolRef": pool}})),
        ("AWSNLB", "nlb", json!({"vpc": "vpc-1", "subnets": ["subnet-1"]})),
        ("OVNLoadBalancer", "ovn", json!({"addresses": ["192.0.2.2"], "switches": ["sw"]})),
    ] {
        let template = |kind: &str, spec: Value| {
            apply(
                kubernetes,
                json!({
                    "apiVersion": "loadbalancer.portcullis.dev/v1alpha1", "kind": kind,
                    "metadata": {"name": name}, "spec": {"template": {"spec": spec}},
                }),
            );
        };
        let kind = format!("{kind}Template");
        template(&kind, spec);
        let reference = json!({"apiGroup": "loadbalancer.portcullis.dev", "kind": kind, "name": name});
        template("LoadBalancerTemplate", json!({"infrastructureRef": reference}));
    }
}

/// A class of Clusters, whose load balancers are made from a template.
fn make_class(kubernetes: &Kubernetes) {
    let infrastructure = "infrastructure.cluster.x-k8s.io";
    let machines = json!({"machineTemplate": {"metadata": {"labels": {"mine": "yes"}}}});
    for (group, kind, spec) in [
        (infrastructure, "LabClusterTemplate", json!({"size": "small"})),
        (PLANES, "LabControlPlaneTemplate", machines),
    ] {
        apply(
            kubernetes,
            json!({
                "apiVersion": format!("{group}/v1"), "kind": kind, "metadata": {"name": "lab"},
                "spec": {"template": {"spec": spec}},
            }),
        );
    }
    let template = |group: &str, kind: &str| json!({"templateRef": {"apiVersion": format!("{group}/v1"), "kind": kind, "name": "lab"}});
    apply(
        kubernetes,
        json!({
            "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "ClusterClass",
            "metadata": {"name": "standard", "annotations": {TEMPLATE: "demo"}},
            "spec": {
                "infrastructure": template(infrastructure, "LabClusterTemplate"),
                "controlPlane": template(PLANES, "LabControlPlaneTemplate"),
            },
        }),
    );
}

fn one_cluster(kubernetes: &Kubernetes, name: &str, annotations: &Value, spec: &Value) {
    apply(
        kubernetes,
        json!({
            "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster",
            "metadata": {"name": name, "annotations": annotations}, "spec": spec,
        }),
    );
}

/// All that is written where others look: what Machines are made from, templates and their classes, and claims of addresses.
#[test]
fn the_rights_of_the_manifests_are_enough() {
    let host = Host::new("rights");
    let kubernetes = kubernetes_in(&host);
    let _cluster_api = ClusterApi::start(&kubernetes);
    kubernetes.apply_types(&shown(&["crds", "--only", "cluster-api"], &kubernetes, &host)).unwrap();
    let doubles = [
        double("LabCluster"),
        double("LabClusterTemplate"),
        double_in(PLANES, "LabControlPlane"),
        double_in(PLANES, "LabControlPlaneTemplate"),
    ];
    kubernetes.apply_types(&doubles.join("\n---\n")).unwrap();
    eventually("the API takes the manifests", || kubernetes.apply(&built("cluster-api")).is_ok());
    let files = TempDir::new().unwrap();
    let overrides = files.path().join("controller.yaml");
    fs::write(&overrides, text(&kubernetes, "portcullis", "portcullis-overrides", "overrides.yaml")).unwrap();
    let settings = [
        format!("kubernetes.kubeconfig={}", controller_account(&kubernetes).display()),
        "telemetry.listen=127.0.0.1:0".to_owned(),
    ];
    let running = Program::start(&host, &files.path().join("controller.log"), &overrides, &settings);
    let get = |kind: &str, name: &str| -> Value {
        let found = kubernetes.kubectl(&["get", kind, name, "--ignore-not-found", "-o", "json"]).unwrap();
        serde_json::from_str(&found).unwrap_or_default()
    };
    let balancers = "loadbalancers.loadbalancer.portcullis.dev";

    make_templates(&kubernetes);
    make_class(&kubernetes);
    let topology =
        json!({"classRef": {"name": "standard"}, "version": "v1.34.0", "controlPlane": {"replicas": 1}});
    one_cluster(&kubernetes, "demo", &json!({}), &json!({"topology": topology}));
    for name in ["nlb", "ovn"] {
        apply(
            &kubernetes,
            json!({
                "apiVersion": "infrastructure.cluster.x-k8s.io/v1", "kind": "LabCluster",
                "metadata": {"name": name}, "spec": {}, "status": {"initialization": {"provisioned": true}},
            }),
        );
        let spec = json!({
            "controlPlaneEndpoint": {"host": "api.example.com", "port": 443},
            "infrastructureRef": {"apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "LabCluster", "name": name},
        });
        one_cluster(&kubernetes, name, &json!({TEMPLATE: name}), &spec);
    }
    for (kind, name) in [("haproxyloadbalancer", "demo"), ("awsnlb", "nlb"), ("ovnloadbalancer", "ovn")] {
        eventually("what makes it is made, and asked to", || {
            get(kind, name)["spec"]["assignment"]["clusterName"] == name
        });
        assert_eq!(get(balancers, name)["spec"]["infrastructureRef"]["name"], name);
    }
    let plane = || {
        let name = get("cluster", "demo")["spec"]["controlPlaneRef"]["name"].clone();
        name.as_str().map_or(Value::Null, |name| get("labcontrolplane", name))
    };
    eventually("Machines are held from their first moment", || {
        let made_from = plane()["spec"]["machineTemplate"]["metadata"].clone();
        let is_hooked = |when| {
            made_from["annotations"][format!("{when}.delete.hook.machine.cluster.x-k8s.io/demo")]
                == "portcullis"
        };
        is_hooked("pre-drain")
            && is_hooked("pre-terminate")
            && made_from["labels"] == json!({"mine": "yes", "loadbalancer.cluster.x-k8s.io/name": "demo"})
    });

    eventually("an address is asked for", || get("ipaddressclaim", "demo").is_object());
    let claim = get("ipaddressclaim", "demo");
    assert_eq!(claim["spec"]["poolRef"]["name"], "edge");
    assert_eq!(claim["metadata"]["ownerReferences"][0]["kind"], "HAProxyLoadBalancer");
    apply(
        &kubernetes,
        json!({
            "apiVersion": "ipam.cluster.x-k8s.io/v1beta2", "kind": "IPAddress", "metadata": {"name": "given"},
            "spec": {
                "claimRef": {"name": "demo"}, "poolRef": claim["spec"]["poolRef"],
                "address": "192.0.2.1", "prefix": 24,
            },
        }),
    );
    let given = json!({"status": {"addressRef": {"name": "given"}}}).to_string();
    let patch = ["patch", "ipaddressclaim", "demo", "--subresource=status", "--type=merge", "-p", &given];
    kubernetes.kubectl(&patch).unwrap();
    eventually("it is there", || get(balancers, "demo")["status"]["address"] == "192.0.2.1");
    eventually("the Cluster has its endpoint", || {
        get("cluster", "demo")["spec"]["controlPlaneEndpoint"] == json!({"host": "192.0.2.1", "port": 6443})
    });

    // What is not asked for any more is taken back.
    kubernetes.kubectl(&["delete", balancers, "demo", "--wait=false"]).unwrap();
    eventually("it goes", || {
        get(balancers, "demo").is_null() && get("haproxyloadbalancer", "demo").is_null()
    });
    assert_eq!(plane()["spec"]["machineTemplate"]["metadata"]["annotations"], json!({}));
    kubernetes.kubectl(&["delete", "cluster", "nlb", "ovn", "--wait=false"]).unwrap();
    for (kind, name) in [("awsnlb", "nlb"), ("ovnloadbalancer", "ovn")] {
        eventually("it goes with its Cluster", || {
            get(balancers, name).is_null() && get(kind, name).is_null()
        });
    }
    running.may_do_all_of_it();
}
