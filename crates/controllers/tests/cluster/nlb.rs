//! Machines behind a network load balancer of AWS: none goes before AWS is done with it. It is also the first of the stories that
//! people told: a platform operator wants these instead of what is built in.

use std::time::Duration;

use aws_credential_types::Credentials;
use aws_credential_types::provider::SharedCredentialsProvider;
use portcullis_aws::{
    Client, CloudConfig, Endpoints, Fleet, Limits, MemberReports, NodeRules, Options, Provider,
    SecurityGroupMode, Settings, Site, Usual,
};
use portcullis_aws_fake::{Config, Fake, World};
use portcullis_controllers::cluster::{InfrastructureSettings, Infrastructures};
use portcullis_kube_api::cluster::{AwsNlbSpec, Flavour};
use serde_json::{Value, json};

use crate::scene::{Running, Scene, client};

const STATUS: &str = "loadbalancer.cluster.x-k8s.io/status";

const BALANCERS: &str = "loadbalancers.loadbalancer.portcullis.dev";

/// An account in which targets drain for as long as they are told to.
pub(crate) fn account() -> Fake {
    let mut world = World::default();
    world.add_vpc("vpc-1", "10.0.0.0/16", false);
    world.add_subnet("subnet-a", "vpc-1", "eu-central-1a", "10.0.1.0/24", false);
    world.add_security_group("sg-nodes", "nodes", "vpc-1");
    for machine in ["i-1", "i-2", "i-3", "i-4", "i-5", "i-6"] {
        world.add_instance(machine, "subnet-a", &["sg-nodes"]);
    }
    Fake::start(Config { world, draining: None, ..Config::default() }).unwrap()
}

/// A process that makes network load balancers, and knows nothing yet.
pub(crate) async fn make(scene: &Scene, fake: &Fake) -> Running {
    make_as("this", scene, fake).await
}

/// The same in a management cluster that is known by this.
pub(crate) async fn make_as(identity: &'static str, scene: &Scene, fake: &Fake) -> Running {
    let url = fake.url().to_owned();
    let usual = Usual { vpc: None, region: "eu-central-1".to_owned() };
    let fleet = Fleet::new(usual, move |site: Site| {
        let credentials =
            Credentials::new("AKIAFAKEFAKEFAKEFAKE", "a-secret-of-the-fake", None, None, "test");
        let config = CloudConfig::default();
        let endpoint = |name: &str| (name == "AWS_ENDPOINT_URL").then(|| url.clone());
        let endpoints = Endpoints::new(&site.region, &config, endpoint).unwrap();
        let options =
            Options { limits: Limits::none(), pause: Duration::from_millis(1), ..Options::default() };
        let client = Client::new(SharedCredentialsProvider::new(credentials), endpoints, options);
        let settings = Settings {
            mode: SecurityGroupMode::Managed,
            node_rules: NodeRules::Exact,
            members: MemberReports::Each,
            identity: Some(identity.to_owned()),
            ..Settings::new(&site.cluster, &site.vpc, &config).unwrap()
        };
        async move { Ok(Provider::new(client, settings)) }
    });
    let settings = InfrastructureSettings {
        kind: Flavour::Own.aws_nlb(),
        namespace: Some(scene.name.to_owned()),
        concurrency: 4,
        resync: Duration::from_secs(1),
        look: Duration::from_millis(200),
        host: "test".to_owned(),
    };
    let making = Infrastructures::<Fleet, AwsNlbSpec>::new(client(scene.kubernetes).await, fleet, settings);
    Running(tokio::spawn(making.run()))
}

/// A Machine of a control plane, which the place where it runs knows by this.
pub(crate) fn machine(scene: &Scene, name: &str, provider_id: &str, address: &str) {
    let labels = json!({"cluster.x-k8s.io/control-plane": "", "loadbalancer.cluster.x-k8s.io/name": "lb"});
    scene.machine_known_as(provider_id, "c", name, address, labels);
}

/// A load balancer whose members drain for ten minutes.
pub(crate) fn balancer(scene: &Scene) {
    scene.apply(json!({
        "apiVersion": "loadbalancer.portcullis.dev/v1alpha1",
        "kind": "AWSNLB",
        "metadata": {"name": "lb"},
        "spec": {"vpc": "vpc-1", "subnets": ["subnet-a"], "holdSeconds": 1, "tags": {"cost-centre": "42"}},
    }));
    scene.balancer(
        "c",
        "lb",
        json!({
            "drainTimeoutSeconds": 600,
            "endpoint": {"host": "api.example.com", "port": 443},
            "allowedSourceRanges": ["192.0.2.0/24"],
            "listeners": [{
                "port": 443, "targetPort": 6443,
                "healthCheck": {"protocol": "HTTPS", "path": "/readyz", "intervalSeconds": 2, "timeoutSeconds": 2},
            }],
            "infrastructureRef": {"apiGroup": "loadbalancer.portcullis.dev", "kind": "AWSNLB", "name": "lb"},
        }),
    );
}

/// A control plane of three behind it.
pub(crate) fn control_plane(name: &'static str) -> Scene {
    let scene = Scene::new(name);
    scene.cluster("c", json!({}), json!({}));
    for (number, name) in (1..).zip(["one", "two", "three"]) {
        machine(
            &scene,
            name,
            &format!("aws:///eu-central-1a/i-{number}"),
            &format!("10.0.1.{}", number + 10),
        );
    }
    balancer(&scene);
    scene
}

pub(crate) fn targets(fake: &Fake) -> Vec<String> {
    let world = fake.state();
    let groups = world.target_groups.values();
    let mut all: Vec<String> = groups
        .flat_map(|group| &group.targets)
        .map(|(id, target)| format!("{}:{} {}", id.id, id.port, target.health))
        .collect();
    all.sort();
    all
}

fn message(scene: &Scene, member: &str) -> String {
    let found = scene.get("awsnlb", "lb");
    let members = found["status"]["members"].as_array().cloned().unwrap_or_default();
    let found = members.iter().find(|found| found["name"] == member);
    found.and_then(|found| found["message"].as_str()).unwrap_or_default().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_waits_until_aws_has_drained_it() {
    let (scene, fake) = (control_plane("nlb-life"), account());
    let _running = scene.look_after().await;
    let making = make(&scene, &fake).await;
    scene.until("all get connections", || {
        scene.get("loadbalancer", "lb")["status"]["activeTargets"] == json!(["one", "three", "two"])
    });
    assert_eq!(targets(&fake), ["i-1:6443 healthy", "i-2:6443 healthy", "i-3:6443 healthy"]);
    let address = scene.get("loadbalancer", "lb")["status"]["address"].clone();
    let world = fake.state();
    let made = world.load_balancers.values().next().unwrap();
    assert_eq!(address, json!(made.dns_name));
    assert_eq!(scene.condition("lb", "SourceRangesEnforced").0, "True Enforced");
    let pool = world.target_groups.values().next().unwrap();
    for (key, value) in [
        ("deregistration_delay.timeout_seconds", "600"),
        ("deregistration_delay.connection_termination.enabled", "true"),
    ] {
        assert_eq!(pool.attributes[key], value);
    }

    // All of it says whose it is, and has its user's tags.
    let group =
        made.groups.iter().map(|id| &world.groups[id]).find(|group| !group.lets_in().is_empty()).unwrap();
    for tags in [&made.tags, &pool.tags, &group.tags] {
        for (key, value) in [
            ("cost-centre", "42"),
            ("portcullis.dev/cluster", "c"),
            ("portcullis.dev/kind", "AWSNLB"),
            ("portcullis.dev/namespace", scene.name),
            ("portcullis.dev/name", "lb"),
            ("portcullis.dev/cluster-id", "this"),
        ] {
            assert_eq!(tags.get(key).map(String::as_str), Some(value), "{key}: {tags:?}");
        }
    }

    scene.kubectl(&["delete", "machine", "one", "--wait=false"]);
    scene.until("AWS drains it", || targets(&fake)[0] == "i-1:6443 draining");
    scene.until("that is told", || message(&scene, "one") == "AWS lets its connections end");
    // Told once, however often it was looked at.
    let events: Value = serde_json::from_str(&scene.kubectl(&["get", "events", "-o", "json"])).unwrap();
    let events = events["items"].as_array().unwrap();
    let told = events.iter().filter(|event| event["reason"] == "LoadBalancerNotAsAsked");
    let told: Vec<(&str, i64)> =
        told.map(|event| (event["message"].as_str().unwrap(), event["count"].as_i64().unwrap())).collect();
    let expected = "the health check of port 443 has the interval 5 instead of 2: AWS has limits";
    assert_eq!(told, [(expected, 1)]);
    // Another process goes on from there.
    drop(making);
    let making = make(&scene, &fake).await;
    fake.clear_calls();
    scene.until("it was asked how it does", || fake.counts().get("DescribeTargetHealth") > Some(&2));
    assert_eq!(scene.annotation("one", STATUS).as_deref(), Some("draining"));
    assert!(scene.is_held("one", "lb"));
    assert_eq!(targets(&fake), ["i-1:6443 draining", "i-2:6443 healthy", "i-3:6443 healthy"]);
    assert_eq!(fake.mutating_calls(), 0, "{:?}", fake.counts());
    fake.pass(Duration::from_secs(600));
    scene.until("it is gone", || scene.get("machine", "one") == Value::Null);
    assert_eq!(targets(&fake), ["i-2:6443 healthy", "i-3:6443 healthy"]);

    // Kept aside for a while, and back.
    scene.kubectl(&["annotate", "machine", "two", "loadbalancer.cluster.x-k8s.io/disabled="]);
    scene.until("AWS drains it", || targets(&fake)[0] == "i-2:6443 draining");
    scene.until("that is told", || scene.status("lb", "two").as_deref() == Some("disabling"));
    fake.pass(Duration::from_secs(600));
    scene.until("it is kept aside", || scene.annotation("two", STATUS).as_deref() == Some("disabled"));
    assert_eq!(targets(&fake), ["i-3:6443 healthy"]);
    scene.kubectl(&["annotate", "machine", "two", "loadbalancer.cluster.x-k8s.io/disabled-"]);
    scene.until("it serves again", || scene.annotation("two", STATUS).as_deref() == Some("active"));

    // What somebody else changes is put right.
    fake.act_as_someone_else(|world| {
        world.target_groups.values_mut().next().unwrap().targets.clear();
    });
    scene.until("they are targets again", || targets(&fake) == ["i-2:6443 healthy", "i-3:6443 healthy"]);

    // Who starts anew knows where it is from the object itself.
    drop(making);
    scene.kubectl(&["delete", "loadbalancers.loadbalancer.portcullis.dev", "lb", "--wait=false"]);
    let _making = make(&scene, &fake).await;
    scene.until("nothing is left", || {
        let world = fake.state();
        world.load_balancers.is_empty() && world.target_groups.is_empty() && world.groups.len() == 2
    });
    assert!(fake.state().groups["sg-nodes"].lets_in().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_waits_while_what_makes_it_is_paused() {
    let (scene, fake) = (control_plane("nlb-paused"), account());
    let _all = (scene.look_after().await, make(&scene, &fake).await);
    scene.until("all get connections", || {
        scene.get("loadbalancer", "lb")["status"]["activeTargets"] == json!(["one", "three", "two"])
    });
    let healthy = ["i-1:6443 healthy", "i-2:6443 healthy", "i-3:6443 healthy"];
    scene.kubectl(&["annotate", "awsnlb", "lb", "cluster.x-k8s.io/paused="]);
    scene.until("it says so", || {
        let found = scene.get("awsnlb", "lb");
        let conditions = found["status"]["conditions"].as_array().cloned().unwrap_or_default();
        conditions.iter().any(|found| found["type"] == "Paused" && found["status"] == "True")
    });
    fake.clear_calls();
    scene.kubectl(&["delete", "machine", "one", "--wait=false"]);
    scene.until("that it waits is told", || {
        let (state, message) = scene.condition("lb", "Degraded");
        state == "True ProviderPaused" && message.contains("AWSNLB lb") && message.contains("one")
    });
    assert!(scene.is_held("one", "lb"));
    assert_eq!(targets(&fake), healthy);
    assert_eq!(fake.mutating_calls(), 0, "{:?}", fake.counts());
    scene.kubectl(&["annotate", "awsnlb", "lb", "cluster.x-k8s.io/paused-"]);
    scene.until("AWS drains it", || targets(&fake)[0] == "i-1:6443 draining");
    assert!(scene.is_held("one", "lb"), "it has all of its time");
    fake.pass(Duration::from_secs(600));
    scene.until("it is gone", || scene.get("machine", "one") == Value::Null);
}

/// For a Cluster that is paused nothing is done in AWS, also by who starts meanwhile. All of it is done after that.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_done_in_aws_for_a_paused_cluster() {
    let (scene, fake) = (control_plane("nlb-paused-cluster"), account());
    let mut all = (scene.look_after().await, make(&scene, &fake).await);
    scene.until("all get connections", || {
        scene.get("loadbalancer", "lb")["status"]["activeTargets"] == json!(["one", "three", "two"])
    });
    let healthy = ["i-1:6443 healthy", "i-2:6443 healthy", "i-3:6443 healthy"];
    scene.patch("cluster", "c", &json!({"spec": {"paused": true}}));
    let say_so = || scene.says_paused("loadbalancer", "lb") && scene.says_paused("awsnlb", "lb");
    scene.until("both say so", say_so);
    let asked = scene.get("awsnlb", "lb")["spec"]["assignment"].clone();
    fake.clear_calls();
    scene.kubectl(&["delete", "machine", "one", "--wait=false"]);
    for (ranges, is_on) in [("198.51.100.0/24", true), ("192.0.2.128/25", false), ("203.0.113.0/24", true)] {
        scene.patch(BALANCERS, "lb", &json!({"spec": {"allowedSourceRanges": [ranges]}}));
        scene.patch("awsnlb", "lb", &json!({"spec": {"crossZone": is_on}}));
        scene.until("both have seen it", say_so);
        drop(all);
        all = (scene.look_after().await, make(&scene, &fake).await);
    }
    scene.patch("awsnlb", "lb", &json!({"spec": {"tags": {"team": "blue"}}}));
    scene.until("who started meanwhile has seen it", say_so);
    assert_eq!(scene.get("awsnlb", "lb")["spec"]["assignment"], asked);
    assert!(scene.is_held("one", "lb"));
    assert_eq!(targets(&fake), healthy);
    assert_eq!(fake.mutating_calls(), 0, "{:?}", fake.counts());

    scene.patch("cluster", "c", &json!({"spec": {"paused": false}}));
    scene.until("AWS drains it", || targets(&fake)[0] == "i-1:6443 draining");
    scene.until("all else is as asked", || {
        let world = fake.state();
        let made = world.load_balancers.values().next().unwrap();
        let lets_in: Vec<String> = made.groups.iter().flat_map(|id| world.groups[id].lets_in()).collect();
        lets_in == ["icmp 3-4 203.0.113.0/24", "tcp 443-443 203.0.113.0/24"]
            && made.attributes["load_balancing.cross_zone.enabled"] == "true"
    });
    assert!(!scene.says_paused("awsnlb", "lb") && !scene.says_paused("loadbalancer", "lb"));
    assert!(scene.is_held("one", "lb"), "it has all of its time");
    fake.pass(Duration::from_secs(600));
    scene.until("it is gone", || scene.get("machine", "one") == Value::Null);
    drop(all);
}

/// What is wrong with an object is told by the name of the field. Ranges become narrower all the same, and who leaves goes.
#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_field_keeps_nothing_open() {
    let (scene, fake) = (control_plane("nlb-wrong"), account());
    let _all = (scene.look_after().await, make(&scene, &fake).await);
    scene.until("all get connections", || {
        scene.get("loadbalancer", "lb")["status"]["activeTargets"] == json!(["one", "three", "two"])
    });
    let lets_in = || -> Vec<String> {
        let world = fake.state();
        let made = world.load_balancers.values().next().unwrap();
        made.groups.iter().flat_map(|id| world.groups[id].lets_in()).collect()
    };
    assert_eq!(lets_in(), ["icmp 3-4 192.0.2.0/24", "tcp 443-443 192.0.2.0/24"]);
    scene.patch("awsnlb", "lb", &json!({"spec": {"securityGroups": ["sg-none"]}}));
    scene.until("that is told", || {
        let (state, message) = scene.condition("lb", "InfrastructureReady");
        state == "False Blocked" && message.contains("spec.securityGroups names sg-none")
    });
    scene.patch(
        "loadbalancers.loadbalancer.portcullis.dev",
        "lb",
        &json!({"spec": {"allowedSourceRanges": ["192.0.2.128/25", "198.51.100.0/24"]}}),
    );
    scene.until("who is not let in any more is kept out", || {
        lets_in() == ["icmp 3-4 192.0.2.128/25", "tcp 443-443 192.0.2.128/25"]
    });
    scene.until("the ranges in force are told", || {
        scene.get("loadbalancer", "lb")["status"]["allowedSourceRanges"] == json!(["192.0.2.128/25"])
    });
    assert_eq!(scene.condition("lb", "InfrastructureReady").0, "False Blocked");
    scene.kubectl(&["delete", "machine", "one", "--wait=false"]);
    scene.until("AWS drains it", || targets(&fake)[0] == "i-1:6443 draining");
    fake.pass(Duration::from_secs(600));
    scene.until("it is gone", || scene.get("machine", "one") == Value::Null);
    scene.patch("awsnlb", "lb", &json!({"spec": {"securityGroups": null}}));
    scene.until("all is as asked", || lets_in().contains(&"tcp 443-443 198.51.100.0/24".to_owned()));
}

/// Three control planes are replaced one by one, by the deletion of their Machines: AWS always has three to send to, none goes before
/// AWS has let its connections end, and nothing is sent to one that is gone.
#[tokio::test(flavor = "multi_thread")]
async fn a_roll_leaves_nobody_behind() {
    let (scene, fake) = (control_plane("nlb-roll"), account());
    let _all = (scene.look_after().await, make(&scene, &fake).await);
    let active = || scene.get("loadbalancer", "lb")["status"]["activeTargets"].clone();
    scene.until("all get connections", || active() == json!(["one", "three", "two"]));
    let address = scene.get("loadbalancer", "lb")["status"]["address"].clone();
    let healthy = || targets(&fake).iter().filter(|target| target.ends_with(" healthy")).count();
    for (number, (old, new)) in (1..).zip([("one", "four"), ("two", "five"), ("three", "six")]) {
        let fresh = number + 3;
        machine(&scene, new, &format!("aws:///eu-central-1a/i-{fresh}"), &format!("10.0.1.{}", fresh + 10));
        scene.until("the new one gets connections", || {
            active().as_array().is_some_and(|active| active.contains(&json!(new)))
        });
        scene.kubectl(&["delete", "machine", old, "--wait=false"]);
        let draining = format!("i-{number}:6443 draining");
        scene.until("AWS drains the old one", || targets(&fake).contains(&draining));
        assert_eq!(healthy(), 3, "{:?}", targets(&fake));
        assert!(scene.is_held(old, "lb"));
        // It has not ended yet, and somebody looks at it now and then.
        fake.pass(Duration::from_secs(300));
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(targets(&fake).contains(&draining), "{:?}", targets(&fake));
        assert!(scene.is_held(old, "lb"));
        fake.pass(Duration::from_secs(300));
        scene.until("it is gone", || scene.get("machine", old) == Value::Null);
        assert!(!targets(&fake).iter().any(|target| target.starts_with(&format!("i-{number}:"))));
        assert_eq!(healthy(), 3, "{:?}", targets(&fake));
    }
    assert_eq!(active(), json!(["five", "four", "six"]));
    assert_eq!(scene.get("loadbalancer", "lb")["status"]["address"], address);
}

/// Two control planes are deleted at once: one is waited for. The other one is let go, and nobody says that it is removed while AWS
/// may still send to it.
#[tokio::test(flavor = "multi_thread")]
async fn of_two_that_go_at_once_one_is_waited_for() {
    let (scene, fake) = (control_plane("nlb-two"), account());
    let _all = (scene.look_after().await, make(&scene, &fake).await);
    scene.until("all get connections", || {
        scene.get("loadbalancer", "lb")["status"]["activeTargets"] == json!(["one", "three", "two"])
    });
    scene.kubectl(&["delete", "machine", "one", "two", "--wait=false"]);
    let is_gone = |member: &str| scene.get("machine", member) == Value::Null;
    scene.until("one is let go", || {
        for member in ["one", "two"] {
            assert_ne!(
                scene.status("lb", member).as_deref(),
                Some("removed"),
                "AWS may still send to {member}"
            );
        }
        is_gone("one") || is_gone("two")
    });
    let (first, id) = if is_gone("two") { ("one", "i-1") } else { ("two", "i-2") };
    assert!(scene.is_held(first, "lb"));
    scene.until("AWS drains the first", || targets(&fake).contains(&format!("{id}:6443 draining")));
    scene.until("that is told", || scene.status("lb", first).as_deref() == Some("draining"));
    fake.pass(Duration::from_secs(600));
    scene.until("the first one is gone", || is_gone(first));
    scene.until("AWS has neither", || targets(&fake) == ["i-3:6443 healthy"]);
}

/// What moved to another management cluster is not taken away by the one that it came from.
#[tokio::test(flavor = "multi_thread")]
async fn what_moved_away_stays_in_aws() {
    let (scene, fake) = (control_plane("nlb-moved"), account());
    let _running = scene.look_after().await;
    let making = make(&scene, &fake).await;
    scene.until("all get connections", || {
        scene.get("loadbalancer", "lb")["status"]["activeTargets"] == json!(["one", "three", "two"])
    });
    let before = fake.state();
    scene.move_away("awsnlb", "lb");
    fake.clear_calls();
    scene.kubectl(&["delete", "awsnlb", "lb", "--wait=false"]);
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert!(scene.get("awsnlb", "lb")["metadata"].get("deletionTimestamp").is_some());
    // Who starts meanwhile does not take it away either.
    drop(making);
    let _making = make(&scene, &fake).await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    scene.patch("awsnlb", "lb", &json!({"metadata": {"finalizers": null}}));
    scene.until("it is gone here", || scene.get("awsnlb", "lb") == Value::Null);
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(fake.mutating_calls(), 0, "{:?}", fake.counts());
    assert_eq!(fake.state().load_balancers.len(), before.load_balancers.len());
    assert_eq!(targets(&fake), ["i-1:6443 healthy", "i-2:6443 healthy", "i-3:6443 healthy"]);
}
