//! Load balancers change hands: from other controllers to Portcullis, and back.

#![allow(clippy::unwrap_used, reason = "a test that fails says where")]
#![allow(clippy::print_stderr, reason = "a test that fails shows where things stand")]

use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use portcullis_aws_fake::{
    Config, Fake, Fault, HealthCheck, Listener, LoadBalancer, Peer, Permission, Placement, Rule, Tags,
    Target, TargetGroup, TargetId, World,
};
use portcullis_kube_api::{Change, TakenOver, give_back, take_over};
use portcullis_testkit::parts::kubernetes::Kubernetes;
use portcullis_testkit::{AwsAccount, CloudProviderAws, Refusing, eventually, join_nodes, kubernetes};
use serde_json::{Value, json};

const KEY: &str = "AKIAFAKEFAKEFAKEFAKE";
const SECRET: &str = "a-secret-of-the-fake";
const TYPE: &str = "service.beta.kubernetes.io/aws-load-balancer-type";
const OURS: &str = "portcullis.dev/load-balancer";
const RANGE: &str = "192.0.2.0/24";

/// There is one cluster for all tests, with one Service in it.
static TURN: Mutex<()> = Mutex::new(());

/// A cluster with two nodes, and the program with its configuration.
struct Scene {
    _turn: MutexGuard<'static, ()>,
    kubernetes: &'static Kubernetes,
    fake: Fake,
    directory: tempfile::TempDir,
}

impl Scene {
    fn new() -> Self {
        Scene::with("shared")
    }

    /// One in which the nodes are opened in that way.
    fn with(node_rules: &str) -> Self {
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let mut world = World::default();
        world.add_vpc("vpc-1", "10.0.0.0/16", false);
        world.add_subnet("subnet-a", "vpc-1", "eu-central-1a", "10.0.1.0/24", false);
        world.add_subnet("subnet-b", "vpc-1", "eu-central-1b", "10.0.2.0/24", false);
        world.add_route_table("rtb-1", "vpc-1", &[], true);
        let nodes = world.add_security_group("sg-nodes", "nodes", "vpc-1");
        nodes.tags.insert("kubernetes.io/cluster/demo".to_owned(), "owned".to_owned());
        let kubernetes = kubernetes();
        for id in ["i-1", "i-2"] {
            let instance = world.add_instance(id, "subnet-a", &["sg-nodes"]);
            // cloud-provider-aws finds no other nodes.
            instance.tags.insert("kubernetes.io/cluster/demo".to_owned(), "owned".to_owned());
        }
        join_nodes(kubernetes, "eu-central-1a", &["i-1", "i-2"]);
        let fake = Fake::start(Config { world, ..Config::default() }).unwrap();
        let directory = tempfile::tempdir().unwrap();
        let cloud = "[Global]\nRegion = eu-central-1\nVPC = vpc-1\nKubernetesClusterID = demo\nNLBSecurityGroupMode = Managed\n";
        std::fs::write(directory.path().join("cloud.conf"), cloud).unwrap();
        let config = format!(
            "telemetry: {{listen: '127.0.0.1:0'}}\n\
             services: {{enabled: true, resync: 30s, sweepAfter: 0s, lease: {{namespace: default}}}}\n\
             kubernetes: {{kubeconfig: '{}'}}\naws: {{cloudConfig: '{}', nodeRules: {node_rules}}}\n",
            kubernetes.kubeconfig().display(),
            directory.path().join("cloud.conf").display()
        );
        std::fs::write(directory.path().join("config.yaml"), config).unwrap();
        Scene { _turn: turn, kubernetes, fake, directory }
    }

    fn account(&self) -> AwsAccount<'_> {
        AwsAccount {
            url: self.fake.url(),
            region: "eu-central-1",
            key: KEY,
            secret: SECRET,
            vpc: "vpc-1",
            subnet: "subnet-a",
            cluster: "demo",
        }
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_portcullis"));
        command
            .args(arguments)
            .env("PORTCULLIS_CONFIG", self.directory.path().join("config.yaml"))
            .env("AWS_ENDPOINT_URL", self.fake.url())
            .env("AWS_ACCESS_KEY_ID", KEY)
            .env("AWS_SECRET_ACCESS_KEY", SECRET)
            .env("AWS_EC2_METADATA_DISABLED", "true");
        command
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    /// What is printed by a command that succeeds.
    #[track_caller]
    fn does(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        assert!(output.status.success(), "{}", text(&output));
        text(&output)
    }

    fn serve(&self) -> Running {
        let log = std::fs::File::create(self.directory.path().join("log")).unwrap();
        Running(self.command(&["serve"]).stderr(log).stdout(Stdio::null()).spawn().unwrap())
    }

    fn get(&self) -> Option<Value> {
        let found =
            self.kubernetes.kubectl(&["get", "service", "web", "--ignore-not-found", "-o", "json"]).unwrap();
        (!found.is_empty()).then(|| serde_json::from_str(&found).unwrap())
    }

    fn finalizers(&self) -> Vec<String> {
        serde_json::from_value(self.get().unwrap()["metadata"]["finalizers"].clone()).unwrap_or_default()
    }

    fn address(&self) -> Value {
        self.get().unwrap()["status"]["loadBalancer"]["ingress"][0]["hostname"].clone()
    }

    fn patch(&self, patch: &Value) {
        self.kubernetes
            .kubectl(&["patch", "service", "web", "--type=merge", "-p", &patch.to_string()])
            .unwrap();
    }

    fn patch_status(&self, patch: &Value) {
        let patch = patch.to_string();
        self.kubernetes
            .kubectl(&["patch", "service", "web", "--subresource=status", "--type=merge", "-p", &patch])
            .unwrap();
    }

    /// Wants a load balancer of cloud-provider-aws, and waits for it.
    fn apply_theirs(&self) {
        let service = json!({
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": "web", "namespace": "default", "annotations": {TYPE: "nlb"}},
            "spec": {"type": "LoadBalancer", "ports": [{"port": 80}], "loadBalancerSourceRanges": [RANGE]},
        });
        self.kubernetes.apply(&service.to_string()).unwrap();
        eventually("it has an address", || self.address().is_string());
    }

    /// The only load balancer, by its ARN.
    fn balancer(&self) -> (String, LoadBalancer) {
        let state = self.fake.state();
        assert_eq!(state.load_balancers.len(), 1, "{:?}", state.load_balancers);
        state.load_balancers.into_iter().next().unwrap()
    }

    /// What the nodes let in, and by whom.
    fn nodes(&self) -> Vec<String> {
        let state = self.fake.state();
        let rules = state.groups["sg-nodes"].ingress.iter();
        rules.map(|(permission, rule)| format!("{permission}: {}", rule.description)).collect()
    }
}

/// A test that fails shows where things stand. Nobody is left who would let go of the Service.
impl Drop for Scene {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let log = std::fs::read_to_string(self.directory.path().join("log")).unwrap_or_default();
            eprintln!("nodes: {:#?}\nService: {:#?}\n{log}", self.nodes(), self.get());
        }
        let free = r#"{"metadata": {"finalizers": null}}"#;
        let _ = self.kubernetes.kubectl(&["patch", "service", "web", "--type=merge", "-p", free]);
        let _ = self.kubernetes.kubectl(&["delete", "service", "web", "--ignore-not-found"]);
    }
}

/// A process that ends with the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

fn is_written_on(tags: &std::collections::BTreeMap<String, String>) -> bool {
    tags.keys().any(|key| key.starts_with("portcullis.dev/"))
}

/// Whether packets from the clients come through to every target of every listener.
fn is_open(world: &World) -> bool {
    let client: Peer = Peer::Range(RANGE.parse().unwrap());
    let covers = |permission: &Permission, port: u16| {
        let port = i32::from(port);
        permission.protocol == "-1"
            || permission.protocol == "tcp"
                && permission.from.is_some_and(|from| from <= port)
                && permission.to.is_some_and(|to| port <= to)
    };
    let nodes = &world.groups["sg-nodes"];
    world.load_balancers.values().all(|balancer| {
        let groups: Vec<_> = balancer.groups.iter().filter_map(|id| world.groups.get(id)).collect();
        balancer.listeners.values().all(|listener| {
            let pool = &world.target_groups[&listener.target_group];
            let enters =
                |permission: &&Permission| covers(permission, listener.port) && permission.peer == client;
            let leaves = |permission: &&Permission| covers(permission, pool.port);
            let arrives = |permission: &&Permission| {
                let from_balancer =
                    matches!(&permission.peer, Peer::Group(id) if balancer.groups.contains(id));
                covers(permission, pool.port) && (permission.peer == client || from_balancer)
            };
            !pool.targets.is_empty()
                && groups.iter().any(|group| group.ingress.keys().any(|rule| enters(&rule)))
                && groups.iter().any(|group| group.egress.keys().any(|rule| leaves(&rule)))
                && nodes.ingress.keys().any(|rule| arrives(&rule))
        })
    })
}

/// Looks all the time whether packets come through, until `done`.
fn always_open<T>(scene: &Scene, does: impl FnOnce() -> T) -> T {
    let done = AtomicBool::new(false);
    std::thread::scope(|threads| {
        let watching = threads.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                let state = scene.fake.state();
                assert!(is_open(&state), "{:#?}", (&state.load_balancers, &state.groups));
                std::thread::sleep(Duration::from_millis(2));
            }
        });
        let result = does();
        done.store(true, Ordering::Relaxed);
        watching.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        result
    })
}

#[test]
fn what_cloud_provider_aws_made_changes_hands_and_back() {
    let scene = Scene::new();
    let _theirs = CloudProviderAws::start(scene.kubernetes, scene.account());
    scene.apply_theirs();
    let (arn, before) = scene.balancer();
    let _ours = scene.serve();

    let told = scene.does(&["adopt", "default/web"]);
    assert!(
        told.contains("taken over from cloud-provider-aws") && told.contains("Nothing was changed"),
        "{told}"
    );
    assert!(!is_written_on(&scene.balancer().1.tags) && !scene.finalizers().contains(&OURS.to_owned()));
    let refused = scene.run(&["release", "default/web", "--yes"]);
    assert!(!refused.status.success() && text(&refused).contains("is not ours"), "{}", text(&refused));

    always_open(&scene, || {
        scene.does(&["adopt", "default/web", "--yes"]);
        eventually("the nodes let in by rules of ours alone", || {
            let rules = scene.nodes();
            !rules.is_empty() && rules.iter().all(|rule| rule.contains("portcullis demo Cluster"))
        });
    });
    let (same, adopted) = scene.balancer();
    assert_eq!((&same, &adopted.dns_name), (&arn, &before.dns_name));
    assert!(scene.finalizers().contains(&OURS.to_owned()));
    assert_eq!(adopted.groups.len(), 2, "its own, and that of all");
    let own = before.groups.first().unwrap();
    assert!(adopted.groups.contains(own), "its group stays");
    eventually("its group lets out to the nodes alone", || {
        scene.fake.state().groups[own].lets_out().iter().all(|rule| rule.ends_with("sg-nodes"))
    });

    // Both run, and only one looks after it.
    scene.patch(&json!({"spec": {"ports": [{"port": 81}]}}));
    eventually("the port is another", || {
        let listeners = scene.balancer().1.listeners;
        listeners.values().map(|listener| listener.port).collect::<Vec<_>>() == [81]
    });
    assert!(scene.does(&["adopt", "default/web", "--yes"]).contains("Done"), "again is no harm");
    assert!(scene.nodes().iter().all(|rule| rule.contains("portcullis demo Cluster")), "{:?}", scene.nodes());

    not_given_back_when_somebody_edits_it(&scene);
    always_open(&scene, || scene.does(&["release", "default/web", "--yes"]));
    let (same, released) = scene.balancer();
    assert_eq!((&same, &released.dns_name), (&arn, &before.dns_name));
    assert_eq!(released.groups, before.groups);
    assert!(!is_written_on(&released.tags));
    let state = scene.fake.state();
    assert!(state.target_groups.values().any(|pool| !is_written_on(&pool.tags)), "{:?}", state.target_groups);
    assert!(!is_written_on(&state.groups[own].tags));
    assert!(!scene.finalizers().contains(&OURS.to_owned()));
    assert_eq!(scene.get().unwrap()["metadata"]["annotations"], json!({TYPE: "nlb"}));
    eventually("the nodes let in by rules of the other alone", || {
        let rules = scene.nodes();
        !rules.is_empty() && rules.iter().all(|rule| rule.contains("kubernetes.io/rule/nlb/"))
    });

    scene.kubernetes.kubectl(&["delete", "service", "web"]).unwrap();
    eventually("all is gone", || {
        let state = scene.fake.state();
        state.load_balancers.is_empty() && state.target_groups.is_empty() && state.groups.len() <= 2
    });
    let left: Vec<String> = scene.fake.state().groups.values().map(|group| group.name.clone()).collect();
    assert!(!left.iter().any(|name| name.starts_with("k8s-")), "{left:?}");
}

/// With rules of its own the load balancer never has a group that all of ours have, whose absence would tell.
#[test]
fn it_is_not_let_go_of_before_the_other_looks_after_it() {
    let scene = Scene::with("exact");
    let theirs = CloudProviderAws::start(scene.kubernetes, scene.account());
    scene.apply_theirs();
    let before = scene.balancer().1;
    let _ours = scene.serve();
    always_open(&scene, || {
        scene.does(&["adopt", "default/web", "--yes"]);
        eventually("the nodes let in by rules of ours alone", || {
            let rules = scene.nodes();
            !rules.is_empty() && rules.iter().all(|rule| rule.contains("portcullis demo Service"))
        });
    });
    drop(theirs);
    std::thread::scope(|threads| {
        let released = threads.spawn(|| scene.does(&["release", "default/web", "--yes"]));
        // Conditions are written all the time, and do not stand in the way.
        while_the_nodes_are_opened(&scene, || {
            scene.patch_status(&json!({"status": {"conditions": [{
                "type": "example.com/Seen", "status": "True", "reason": "Seen", "message": "",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            }]}}));
        });
        eventually("the Service is theirs", || {
            scene.get().unwrap()["metadata"]["annotations"][TYPE] == "nlb"
        });
        std::thread::sleep(Duration::from_secs(5));
        assert!(is_written_on(&scene.balancer().1.tags), "nobody is there to take it back");
        let _theirs = CloudProviderAws::start(scene.kubernetes, scene.account());
        released.join().unwrap();
        let released = scene.balancer().1;
        assert_eq!((&released.groups, &released.tags), (&before.groups, &before.tags));
        eventually("the nodes let in by rules of the other alone", || {
            let rules = scene.nodes();
            !rules.is_empty() && rules.iter().all(|rule| rule.contains("kubernetes.io/rule/nlb/"))
        });
    });
}

/// The nodes are opened for the other controller slowly; `meanwhile` is done while they are.
fn while_the_nodes_are_opened(scene: &Scene, meanwhile: impl FnOnce()) {
    let opens = Arc::new(AtomicBool::new(false));
    let seen = opens.clone();
    scene.fake.faults(move |call| {
        if call.action != "AuthorizeSecurityGroupIngress" {
            return Fault::None;
        }
        seen.store(true, Ordering::Relaxed);
        // Longer than it takes to do something by kubectl.
        Fault::Latency(Duration::from_secs(15))
    });
    eventually("the nodes are opened", || opens.load(Ordering::Relaxed));
    meanwhile();
    scene.fake.clear_faults();
}

/// Somebody edits the Service while the nodes are opened for the other controller: it stays ours, and they are closed again.
fn not_given_back_when_somebody_edits_it(scene: &Scene) {
    let refused = std::thread::scope(|threads| {
        let released = threads.spawn(|| scene.run(&["release", "default/web", "--yes"]));
        while_the_nodes_are_opened(scene, || {
            scene.patch(&json!({"metadata": {"annotations": {"note": "edited"}}}));
        });
        released.join().unwrap()
    });
    scene.patch(&json!({"metadata": {"annotations": {"note": null}}}));
    let told = text(&refused);
    assert!(!refused.status.success() && told.contains("It is still ours."), "{told}");
    assert!(scene.nodes().iter().all(|rule| rule.contains("portcullis demo Cluster")), "{:?}", scene.nodes());
}

const THEIR_FINALIZER: &str = "service.k8s.aws/resources";
const THEIR_CLASS: &str = "service.k8s.aws/nlb";
const ADDRESS: &str = "k8s-default-web-0123456789-0123456789abcdef.elb.eu-central-1.amazonaws.com";
const ARN: &str = "arn:aws:elasticloadbalancing:eu-central-1:123456789012:loadbalancer/net/k8s-default-web-0123456789/0123456789abcdef";
const POOL: &str = "arn:aws:elasticloadbalancing:eu-central-1:123456789012:targetgroup/k8s-default-web-9876543210/0123456789abcdef";
const LISTENER: &str = "arn:aws:elasticloadbalancing:eu-central-1:123456789012:listener/net/k8s-default-web-0123456789/0123456789abcdef/0123456789abcdef";

/// What the AWS Load Balancer Controller writes on what it makes for the Service.
fn their_tags(resource: &str) -> Tags {
    let tags = [
        ("elbv2.k8s.aws/cluster", "demo"),
        ("service.k8s.aws/stack", "default/web"),
        ("service.k8s.aws/resource", resource),
    ];
    tags.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
}

/// Makes what the AWS Load Balancer Controller would make.
fn make_as_the_controller(world: &mut World, node_port: u16) {
    let rule = |port: u16, peer: Peer| {
        let id = format!("sgr-{port}");
        let port = Some(port.into());
        let permission = Permission { protocol: "tcp".to_owned(), from: port, to: port, peer };
        (permission, Rule { id, ..Rule::default() })
    };
    let own = world.add_security_group("sg-own", "k8s-default-web-0123456789", "vpc-1");
    own.tags = their_tags("ManagedLBSecurityGroup");
    own.ingress.extend([rule(80, Peer::Range(RANGE.parse().unwrap()))]);
    world.add_security_group("sg-traffic", "k8s-traffic-demo-0123456789", "vpc-1");
    let nodes = world.groups.get_mut("sg-nodes").unwrap();
    nodes.ingress.extend([rule(node_port, Peer::Group("sg-traffic".to_owned()))]);
    let target = |id: &str| {
        let id = TargetId { id: id.to_owned(), port: node_port };
        (id, Target { zone: None, health: "healthy".to_owned() })
    };
    let pool = TargetGroup {
        name: "k8s-default-web-9876543210".to_owned(),
        protocol: "TCP".to_owned(),
        port: node_port,
        vpc: "vpc-1".to_owned(),
        kind: "instance".to_owned(),
        ip_address_type: "ipv4".to_owned(),
        health_check: HealthCheck {
            protocol: "TCP".to_owned(),
            port: "traffic-port".to_owned(),
            path: None,
            matcher: None,
            interval: 10,
            timeout: 10,
            healthy: 3,
            unhealthy: 3,
        },
        attributes: [].into(),
        tags: their_tags("default/web:80"),
        targets: ["i-1", "i-2"].map(target).into(),
    };
    world.target_groups.insert(POOL.to_owned(), pool);
    let listener = Listener {
        port: 80,
        protocol: "TCP".to_owned(),
        target_group: POOL.to_owned(),
        certificate: None,
        policy: None,
        alpn: None,
        tags: Tags::new(),
    };
    let balancer = LoadBalancer {
        name: "k8s-default-web-0123456789".to_owned(),
        dns_name: ADDRESS.to_owned(),
        scheme: "internet-facing".to_owned(),
        vpc: "vpc-1".to_owned(),
        state: "active".to_owned(),
        ip_address_type: "ipv4".to_owned(),
        source_nat_prefixes: false,
        subnets: ["subnet-a", "subnet-b"].map(|id| (id.to_owned(), Placement::default())).into(),
        groups: ["sg-own", "sg-traffic"].map(str::to_owned).into(),
        made_with_groups: true,
        enforces_private_links: true,
        attributes: [].into(),
        tags: their_tags("LoadBalancer"),
        listeners: [(LISTENER.to_owned(), listener)].into(),
        created: 0,
    };
    world.load_balancers.insert(ARN.to_owned(), balancer);
}

/// The kind of objects by which the AWS Load Balancer Controller keeps targets.
fn bindings() -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "targetgroupbindings.elbv2.k8s.aws"},
        "spec": {
            "group": "elbv2.k8s.aws",
            "names": {"kind": "TargetGroupBinding", "plural": "targetgroupbindings"},
            "scope": "Namespaced",
            "versions": [{
                "name": "v1beta1",
                "served": true,
                "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
            }],
        },
    })
}

fn binding(name: &str, stack: &str) -> Value {
    json!({
        "apiVersion": "elbv2.k8s.aws/v1beta1",
        "kind": "TargetGroupBinding",
        "metadata": {
            "name": name,
            "namespace": "default",
            "finalizers": ["elbv2.k8s.aws/resources"],
            "labels": {"service.k8s.aws/stack-namespace": "default", "service.k8s.aws/stack-name": stack},
        },
        "spec": {},
    })
}

/// The AWS Load Balancer Controller itself cannot be had here: what it leaves was read from its sources, and made by hand.
#[test]
fn what_the_load_balancer_controller_made_changes_hands_and_back() {
    let scene = Scene::new();
    let service = json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "web", "namespace": "default", "finalizers": [THEIR_FINALIZER]},
        "spec": {
            "type": "LoadBalancer",
            "loadBalancerClass": THEIR_CLASS,
            "ports": [{"port": 80}],
            "loadBalancerSourceRanges": [RANGE],
            "externalTrafficPolicy": "Local",
        },
    });
    scene.kubernetes.apply(&service.to_string()).unwrap();
    scene.patch_status(&json!({"status": {"loadBalancer": {"ingress": [{"hostname": ADDRESS}]}}}));
    let before = scene.get().unwrap();
    let node_port = u16::try_from(before["spec"]["ports"][0]["nodePort"].as_u64().unwrap()).unwrap();
    scene.fake.act_as_someone_else(|world| make_as_the_controller(world, node_port));
    scene.kubernetes.apply(&bindings().to_string()).unwrap();
    scene
        .kubernetes
        .kubectl(&["wait", "--for=condition=Established", "crd/targetgroupbindings.elbv2.k8s.aws"])
        .unwrap();
    scene.kubernetes.apply(&binding("web", "web").to_string()).unwrap();
    scene.kubernetes.apply(&binding("other", "other").to_string()).unwrap();
    let _ours = scene.serve();

    // Now and then Kubernetes looks at all ports, and keeps one that is given up in that moment.
    let another = AtomicBool::new(false);
    always_open(&scene, || {
        let told = scene.does(&["adopt", "default/web", "--yes"]);
        assert!(told.contains("taken over from aws-load-balancer-controller"), "{told}");
        another.store(told.contains("gets another one for its health checks"), Ordering::SeqCst);
        eventually("it has our groups", || {
            let groups = scene.balancer().1.groups;
            groups.contains("sg-own") && groups.len() == 2 && !groups.contains("sg-traffic")
        });
    });
    let after = scene.get().unwrap();
    for path in ["/spec/ports", "/spec/loadBalancerSourceRanges", "/status/loadBalancer"] {
        assert_eq!(after.pointer(path), before.pointer(path), "{path}");
    }
    let health = |service: &Value| service["spec"]["healthCheckNodePort"].to_string();
    assert!(another.load(Ordering::SeqCst) || health(&after) == health(&before), "its health check");
    assert_eq!(after["spec"]["loadBalancerClass"], "portcullis.dev/aws-nlb");
    assert_eq!(scene.finalizers(), [OURS]);
    assert_eq!(scene.balancer().0, ARN);
    let bound = scene.kubernetes.kubectl(&["get", "targetgroupbindings", "-o", "name"]).unwrap();
    assert_eq!(bound.trim(), "targetgroupbinding.elbv2.k8s.aws/other", "others stay");
    assert!(scene.nodes().iter().any(|rule| rule.contains("sg-traffic")), "what is for others stays");
    let pool = |scene: &Scene| scene.fake.state().target_groups[POOL].clone();
    assert_eq!(pool(&scene).targets.len(), 2, "nobody is sent away");

    let port = health(&after);
    let _kept = keep_port(&scene, &port);
    // Nobody is there to take it back: it is waited for, until what is ours is not needed any more.
    let told = std::thread::scope(|threads| {
        let released = threads.spawn(|| scene.does(&["release", "default/web", "--yes"]));
        eventually("the Service is theirs", || {
            scene.get().unwrap()["spec"]["loadBalancerClass"] == THEIR_CLASS
        });
        let is_ours = || is_written_on(&scene.balancer().1.tags);
        let still_ours = || {
            std::thread::sleep(Duration::from_secs(3));
            is_ours()
        };
        assert!(scene.finalizers().is_empty() && still_ours(), "not before somebody looks after it");
        scene.fake.act_as_someone_else(|world| {
            let groups = ["sg-own", "sg-traffic"].map(str::to_owned).into();
            world.load_balancers.get_mut(ARN).unwrap().groups = groups;
        });
        scene.patch(&json!({"metadata": {"finalizers": [THEIR_FINALIZER]}}));
        assert!(still_ours(), "not before it keeps the targets");
        scene.kubernetes.apply(&binding("web", "web").to_string()).unwrap();
        released.join().unwrap()
    });
    eventually("nothing is said of its ranges any more", || {
        scene.get().unwrap()["status"] == before["status"]
    });
    let (mut back, mut before) = (scene.get().unwrap(), before);
    assert!(told.contains(&format!("Kubernetes keeps port {port} of Service web to itself")), "{told}");
    for service in [&mut back, &mut before] {
        let port = service["spec"].as_object_mut().unwrap().remove("healthCheckNodePort");
        assert!(port.is_some_and(|port| port.is_u64()));
    }
    for path in ["/spec", "/status", "/metadata/annotations", "/metadata/finalizers"] {
        assert_eq!(back.pointer(path), before.pointer(path), "{path}");
    }
    assert!(!is_written_on(&scene.balancer().1.tags) && !is_written_on(&pool(&scene).tags));
    assert!(!is_written_on(&scene.fake.state().groups["sg-own"].tags));
    let out = scene.fake.state().groups["sg-own"].lets_out();
    assert!(out.contains(&"-1 0.0.0.0/0".to_owned()), "{out:?}");
}

/// Kubernetes looks at all ports now and then, and keeps one that is given up in that moment for minutes. It is had to do so
/// with this one, for whoever is of their class.
fn keep_port<'a>(scene: &'a Scene, port: &str) -> Refusing<'a> {
    let is_it = format!(
        "object.metadata.name == 'probe' || (object.spec.?loadBalancerClass.orValue('') == '{THEIR_CLASS}' && object.spec.?healthCheckNodePort.orValue(0) == {port})"
    );
    let (place, words) = ((&["CREATE", "UPDATE"][..], "services"), "provided port is already allocated");
    let refusing = Refusing::start(scene.kubernetes, "keeps-a-port", place, &is_it, words);
    let probe = ["create", "service", "clusterip", "probe", "--tcp=80", "--dry-run=server"];
    eventually("it does so", || scene.kubernetes.kubectl(&probe).is_err());
    refusing
}

/// Makes changes of the Service, as the commands make them.
fn change(scene: &Scene, changes: Vec<Change>) {
    for change in changes {
        match change {
            Change::Object(patch) => scene.patch(&patch),
            Change::Status(patch) => scene.patch_status(&patch),
        }
    }
}

/// Kubernetes takes fields off a Service whose type changes for a moment: all of them are given again.
#[test]
fn a_service_is_the_same_after_it_changed_hands_and_back() {
    let scene = Scene::new();
    let taken = TakenOver { from: "aws-load-balancer-controller", scheme: "internal" };
    for shape in [
        json!({"ports": [{"port": 80}], "externalTrafficPolicy": "Local", "loadBalancerClass": null}),
        json!({"ports": [{"port": 80}]}),
        json!({"ports": [{"port": 80}], "externalTrafficPolicy": "Local"}),
        json!({"ports": [{"port": 80}], "externalTrafficPolicy": "Local", "allocateLoadBalancerNodePorts": false}),
        json!({"ports": [{"port": 80}], "allocateLoadBalancerNodePorts": false}),
        json!({
            "ports": [{"name": "a", "port": 80, "nodePort": 30023}, {"name": "b", "port": 81}],
            "allocateLoadBalancerNodePorts": false,
        }),
        json!({
            "ports": [{"name": "a", "port": 80}, {"name": "b", "port": 80, "protocol": "UDP"}],
            "ipFamilyPolicy": "PreferDualStack",
            "sessionAffinity": "None",
            "internalTrafficPolicy": "Local",
            "publishNotReadyAddresses": true,
        }),
    ] {
        let mut spec = json!({
            "type": "LoadBalancer",
            "loadBalancerClass": THEIR_CLASS,
            "loadBalancerSourceRanges": [RANGE],
        });
        spec.as_object_mut().unwrap().extend(shape.as_object().unwrap().clone());
        let annotations = json!({TYPE: "external", "note": "kept"});
        let metadata = json!({
            "name": "web", "namespace": "default", "annotations": annotations, "finalizers": [THEIR_FINALIZER],
        });
        let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec});
        scene.kubernetes.apply(&service.to_string()).unwrap();
        scene.patch_status(&json!({"status": {"loadBalancer": {"ingress": [{"hostname": ADDRESS}]}}}));
        let before = scene.get().unwrap();
        let read = || serde_json::from_value(scene.get().unwrap()).unwrap();

        change(&scene, take_over(&read(), "portcullis.dev/aws-nlb", taken));
        let after = scene.get().unwrap();
        let mut expected = before["spec"].clone();
        // Who has no class gets none.
        if !before["spec"]["loadBalancerClass"].is_null() {
            expected["loadBalancerClass"] = json!("portcullis.dev/aws-nlb");
        }
        assert_eq!(after["spec"], expected, "{shape}");
        assert_eq!(after["status"], before["status"], "{shape}");
        assert_eq!(scene.finalizers(), [OURS]);
        assert_eq!(take_over(&read(), "portcullis.dev/aws-nlb", taken), []);

        change(&scene, give_back(&read()));
        let back = scene.get().unwrap();
        for path in ["/spec", "/status", "/metadata/annotations"] {
            assert_eq!(back.pointer(path), before.pointer(path), "{path} of {shape}");
        }
        assert!(scene.finalizers().is_empty(), "its controller holds it when it looks after it");
        scene.kubernetes.kubectl(&["delete", "service", "web"]).unwrap();
    }
}
