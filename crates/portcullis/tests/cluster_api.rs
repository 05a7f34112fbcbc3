//! The program beside a real Cluster API: its manifests and types, a machine that carries a load balancer with an account of its own,
//! packets, and what it shows.

#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "a test that fails says where, and why")]

mod program;

use std::fs;
use std::path::Path;
use std::process::Command;

use portcullis_testkit::parts::Namespace;
use portcullis_testkit::parts::kubernetes::Kubernetes;
use portcullis_testkit::talk::{Backend, Held, ask};
use portcullis_testkit::{ClusterApi, Host, Leash, eventually, kubernetes_in, link};
use serde_json::{Value, json};
use tempfile::TempDir;

use program::{Program, built, controller_account, double, text};

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
        ]
    };
    let account = controller_account(&kubernetes);
    let log = |name: &str| files.path().join(name);
    let _controller =
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
    let metrics = || shown_metrics(&carrier);
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

    a_machine_speaks_for_itself(&kubernetes, &machine_account);

    // A Machine goes, with all the rights that this takes.
    let mut held = Held::connect(&client, FRONT, 6443).unwrap();
    let (goes, stays) = if held.ask().unwrap() == "one" { ("one", "two") } else { ("two", "one") };
    kubernetes.kubectl(&["delete", "machine", goes, "--wait=false"]).unwrap();
    eventually("nothing new goes there", || {
        (0..4).all(|_| ask(&client, FRONT, 6443).is_ok_and(|answer| answer == stays))
    });
    eventually("it is gone", || kubernetes.kubectl(&["get", "machine", goes]).is_err());
    assert!(held.has_ended());

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
    let log = running.log();
    assert!(!log.to_lowercase().contains("forbidden"), "{log}");
}

/// What the agent counts.
fn shown_metrics(carrier: &Host) -> String {
    use std::io::{Read, Write};
    Namespace::run(carrier, || {
        let Ok(mut stream) = std::net::TcpStream::connect("127.0.0.1:9695") else { return String::new() };
        let _ = stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n");
        let mut text = String::new();
        let _ = stream.read_to_string(&mut text);
        text
    })
}
