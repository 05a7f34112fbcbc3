//! What goes wrong in the middle of things.

use std::any::Any;
use std::process::Command;
use std::time::{Duration, Instant};

use portcullis_testkit::parts::Scratch;
use portcullis_testkit::parts::catalogue::find;
use portcullis_testkit::talk::{Backend, Held, Load, Visits, ask};
use portcullis_testkit::{Host, eventually_within};
use serde_json::{Value, json};

use crate::lab::{
    Agent, FRONT, Lab, PORT, Place, Street, agent, carrying, controller, instances, listeners, machine,
    on_machines,
};
use crate::nlb;
use crate::scene::Scene;

const BALANCERS: &str = "loadbalancers.loadbalancer.portcullis.dev";

/// Whether Cluster API does not go on with the deletion of a Machine since it is held; one without a node has nothing to drain.
fn waits(scene: &Scene, machine: &str) -> bool {
    let found = scene.get("machine", machine);
    let conditions = found["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let deleting = conditions.iter().find(|condition| condition["type"] == "Deleting");
    deleting.is_some_and(|deleting| deleting["reason"] == "WaitingForPreTerminateHook")
}

/// Until when connections of a member are waited for.
pub(crate) fn by(scene: &Scene, kind: &str, member: &str) -> Value {
    let found = scene.get(kind, "lb");
    let members = found["spec"]["assignment"]["members"].as_array().cloned().unwrap_or_default();
    members.iter().find(|found| found["name"] == member).map(|found| found["by"].clone()).unwrap_or_default()
}

/// A connection to this member.
pub(crate) fn held_by(from: &Host, to: &str, member: &str) -> Held {
    loop {
        let mut one = Held::connect(from, to, FRONT).unwrap();
        if one.ask().unwrap() == member {
            return one;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn all_of_ours_is_killed_in_the_middle_of_a_drain() {
    let scene = Scene::new("faults-killed");
    let lab = Lab::new(&["kill-a", "kill-b"]);
    scene.cluster("c", json!({}), json!({}));
    for name in ["kill-a", "kill-b"] {
        machine(&scene, &lab, name);
    }
    on_machines(&scene, "lb", json!({"listeners": listeners(), "drainTimeoutSeconds": 600}), json!({}));
    let place = Place::new();
    let mut all =
        Some((scene.look_after().await, controller(&scene).await, agent(&scene, &lab, &place).await));
    for name in ["kill-a", "kill-b"] {
        scene.until("it serves", || scene.status("lb", name).as_deref() == Some("active"));
    }
    let mut held = held_by(&lab.client, "192.0.2.1", "kill-a");
    // Nobody is there when it is asked to go.
    drop(all.take());
    scene.kubectl(&["delete", "machine", "kill-a", "--wait=false"]);
    scene.until("it waits", || waits(&scene, "kill-a"));
    // One after the other comes, and is killed before it has ended anything.
    let mut until = Value::Null;
    for _ in 0..3 {
        all = Some((scene.look_after().await, controller(&scene).await, agent(&scene, &lab, &place).await));
        scene.until("it drains", || scene.status("lb", "kill-a").as_deref() == Some("draining"));
        drop(all.take());
        let said = by(&scene, "haproxyloadbalancer", "kill-a");
        assert!(said.is_string() && (until.is_null() || until == said), "the time stands: {until} {said}");
        until = said;
        assert_eq!(held.ask().unwrap(), "kill-a", "what it has goes on");
        for _ in 0..4 {
            assert_eq!(ask(&lab.client, "192.0.2.1", FRONT).unwrap(), "kill-b", "nobody new comes to it");
        }
        assert!(waits(&scene, "kill-a"));
    }
    all = Some((scene.look_after().await, controller(&scene).await, agent(&scene, &lab, &place).await));
    scene.until("it drains", || scene.status("lb", "kill-a").as_deref() == Some("draining"));
    // Its last connection ends before the time is over, and it goes at once.
    drop(held);
    scene.until("its infrastructure goes", || {
        scene.get("labmachine", "kill-a")["metadata"].get("deletionTimestamp").is_some()
    });
    let targets = scene.get("loadbalancer", "lb")["status"]["targets"].clone();
    assert!(!targets.to_string().contains("were ended"), "nobody was cut off: {targets}");
    scene.patch("labmachine", "kill-a", &json!({"metadata": {"finalizers": null}}));
    scene.until("it is gone", || scene.get("machine", "kill-a") == Value::Null);
    drop(all);
}

/// Two machines that carry at the same time, each at its own address, one member that is to leave and one that stays; and a client.
struct Pair {
    scene: Scene,
    visitor: Host,
    machines: [Host; 2],
    agents: Vec<Agent>,
    places: [Place; 2],
    _rest: Box<dyn Any>,
}

impl Pair {
    /// Where each of the machines is.
    const ADDRESSES: [&str; 2] = ["192.0.2.1", "192.0.2.2"];

    async fn new(name: &'static str) -> Self {
        let scene = Scene::new(name);
        let street = Street::new();
        let visitor = street.join("client", 10);
        let members = [street.join("leaves", 20), street.join("stays", 21)];
        let backends = members.each_ref().map(|host| Backend::start(host, PORT));
        let machines = [street.join("first", 1), street.join("second", 2)];
        scene.cluster("c", json!({}), json!({}));
        scene.control_plane("c", "lb", "leaves", "192.0.2.20");
        scene.control_plane("c", "lb", "stays", "192.0.2.21");
        on_machines(&scene, "lb", json!({"listeners": listeners(), "drainTimeoutSeconds": 600}), json!({}));
        let places = [Place::new(), Place::new()];
        let controllers = (scene.look_after().await, controller(&scene).await);
        let agents = vec![
            carrying(&scene, &machines[0], "first", None, &places[0]).await,
            carrying(&scene, &machines[1], "second", None, &places[1]).await,
        ];
        for address in Pair::ADDRESSES {
            scene.until("both machines carry", || ask(&visitor, address, FRONT).is_ok());
        }
        Pair {
            scene,
            visitor,
            machines,
            agents,
            places,
            _rest: Box::new((controllers, backends, members, street)),
        }
    }

    /// Until both members serve, on both machines.
    fn until_all_serve(&self) {
        for name in ["leaves", "stays"] {
            self.scene.until("it serves", || self.scene.status("lb", name).as_deref() == Some("active"));
        }
    }

    /// What is said of the one that leaves: where it is, and how many connections it has.
    fn leaving(&self) -> (Value, Value) {
        said_of_leaving(&self.scene.get("loadbalancer", "lb")["status"]["targets"])
    }

    /// The same, by each of the machines.
    fn leaving_by_machine(&self) -> [(Value, Value); 2] {
        let all = instances(&self.scene);
        ["first", "second"].map(|name| {
            let found = all.iter().find(|instance| instance["name"] == name);
            said_of_leaving(&found.cloned().unwrap_or_default()["members"])
        })
    }
}

fn said_of_leaving(members: &Value) -> (Value, Value) {
    let members = members.as_array().cloned().unwrap_or_default();
    let found = members.into_iter().find(|member| member["name"] == "leaves").unwrap_or_default();
    (found["status"].clone(), found["connections"].clone())
}

/// As with routes of equal cost: both machines carry at the same time, each at its own address.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn who_leaves_is_waited_for_on_every_machine() {
    let pair = Pair::new("faults-both").await;
    pair.until_all_serve();
    let scene = &pair.scene;
    // Connections through the second alone.
    let [mut held, other] = [(); 2].map(|()| held_by(&pair.visitor, "192.0.2.2", "leaves"));
    scene.kubectl(&["delete", "machine", "leaves", "--wait=false"]);
    scene.until("it drains, and who is still there is counted", || {
        pair.leaving() == (json!("draining"), json!(2))
    });
    scene.until("the first machine is done with it, and the second has them", || {
        pair.leaving_by_machine() == [(json!("removed"), json!(0)), (json!("draining"), json!(2))]
    });
    other.end().unwrap();
    scene.until("one is left", || pair.leaving_by_machine()[1] == (json!("draining"), json!(1)));
    scene.until("of both machines", || pair.leaving() == (json!("draining"), json!(1)));
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(4) {
        assert!(scene.is_held("leaves", "lb"), "the second is not done with it");
        assert_eq!(held.ask().unwrap(), "leaves");
    }
    drop(held);
    scene.until("it may go", || scene.get("machine", "leaves") == Value::Null);
}

/// Its Lease is not renewed any more. Who leaves is waited for on the machine that is there, and on no other.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_machine_that_is_lost_in_the_middle_of_a_drain_is_not_waited_for() {
    let mut pair = Pair::new("faults-lost").await;
    pair.until_all_serve();
    let [mut stays, mut lost] =
        Pair::ADDRESSES.map(|address| [(); 2].map(|()| held_by(&pair.visitor, address, "leaves")));
    pair.scene.kubectl(&["delete", "machine", "leaves", "--wait=false"]);
    pair.scene.until("all of them are counted", || pair.leaving() == (json!("draining"), json!(4)));
    let two = (json!("draining"), json!(2));
    assert_eq!(pair.leaving_by_machine(), [two.clone(), two.clone()]);

    drop(pair.agents.pop());
    pair.places[1].kill_haproxy();
    pair.machines[1].run("ip link set to-switch down");
    assert!(lost.iter_mut().all(Held::has_ended));
    let scene = &pair.scene;
    // After its Lease has lapsed.
    eventually_within(Duration::from_secs(120), "the other one's are what counts", || pair.leaving() == two);
    assert_eq!(pair.leaving_by_machine()[1], two, "what it said last");
    assert!(scene.is_held("leaves", "lb"));
    for held in &mut stays {
        assert_eq!(held.ask().unwrap(), "leaves", "what it has goes on");
    }
    for held in stays {
        held.end().unwrap();
    }
    scene.until("it may go", || scene.get("machine", "leaves") == Value::Null);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_machine_that_reaches_nobody_does_not_stop_a_roll() {
    let pair = Pair::new("faults-cut-off").await;
    let (scene, visitor) = (&pair.scene, &pair.visitor);
    let mut held = held_by(visitor, "192.0.2.1", "leaves");
    for address in ["192.0.2.20", "192.0.2.21"] {
        pair.machines[1].run(&format!("ip route add unreachable {address}/32"));
    }
    scene.until("that is told", || {
        let (state, message) = scene.condition("lb", "InfrastructureReady");
        let names = "second: no member passes its check there";
        state == "True CarriedInPart" && message.starts_with(names) && message.contains("stays: ")
    });
    pair.until_all_serve();
    scene.kubectl(&["delete", "machine", "leaves", "--wait=false"]);
    scene.until("it leaves", || scene.status("lb", "leaves").as_deref() == Some("draining"));
    assert_eq!(held.ask().unwrap(), "leaves", "what it has goes on");
    for _ in 0..4 {
        assert_eq!(ask(visitor, "192.0.2.1", FRONT).unwrap(), "stays");
    }
    assert!(scene.is_held("leaves", "lb"));
    drop(held);
    scene.until("it may go", || scene.get("machine", "leaves") == Value::Null);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn what_is_refused_changes_nothing_also_after_another_start() {
    let scene = Scene::new("faults-refused");
    let mut lab = Lab::new(&["refused-a", "refused-b"]);
    scene.cluster("c", json!({}), json!({}));
    for name in ["refused-a", "refused-b"] {
        machine(&scene, &lab, name);
    }
    on_machines(&scene, "lb", json!({"listeners": listeners(), "drainTimeoutSeconds": 600}), json!({}));
    let place = Place::new();
    let _controllers = (scene.look_after().await, controller(&scene).await);
    let first = agent(&scene, &lab, &place).await;
    for name in ["refused-a", "refused-b"] {
        scene.until("it serves", || scene.status("lb", name).as_deref() == Some("active"));
    }
    let load = Load::start(&lab.client, "192.0.2.1", FRONT);
    let mut held = held_by(&lab.client, "192.0.2.1", "refused-a");
    scene.patch("haproxyloadbalancer", "lb", &json!({"spec": {"addresses": ["224.0.0.1"]}}));
    scene.until("that is told", || {
        let (state, message) = scene.condition("lb", "InfrastructureReady");
        state == "False Problem" && message.contains("224.0.0.1")
    });
    assert_eq!(scene.get("loadbalancer", "lb")["status"]["address"], "192.0.2.1");
    drop(first);
    load.more(100);
    // The next one knows what the last one carried, and who is to leave does so.
    let _second = agent(&scene, &lab, &place).await;
    scene.kubectl(&["delete", "machine", "refused-a", "--wait=false"]);
    scene.until("it drains", || scene.status("lb", "refused-a").as_deref() == Some("draining"));
    scene.until("nobody new comes to it", || {
        (0..8).all(|_| ask(&lab.client, "192.0.2.1", FRONT).is_ok_and(|answer| answer == "refused-b"))
    });
    assert_eq!(held.ask().unwrap(), "refused-a", "what it has goes on");
    drop(held);
    scene.until("its infrastructure goes", || {
        scene.get("labmachine", "refused-a")["metadata"].get("deletionTimestamp").is_some()
    });
    lab.end("refused-a");
    load.more(200);
    scene.patch("haproxyloadbalancer", "lb", &json!({"spec": {"addresses": null}}));
    scene.until("all is well", || scene.condition("lb", "InfrastructureReady").0 == "True Carried");
    load.more(200);
    let (count, failures) = load.end();
    assert_eq!(failures, Vec::<String>::new(), "of {count} connections");
    scene.patch("labmachine", "refused-a", &json!({"metadata": {"finalizers": null}}));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn what_is_paused_is_carried_as_it_was() {
    let scene = Scene::new("faults-paused");
    let lab = Lab::new(&["pause-a", "pause-b"]);
    scene.cluster("c", json!({}), json!({}));
    for name in ["pause-a", "pause-b"] {
        machine(&scene, &lab, name);
    }
    on_machines(&scene, "lb", json!({"listeners": listeners(), "drainTimeoutSeconds": 600}), json!({}));
    let other = json!({"listeners": [{"port": 8443}], "selector": {"matchLabels": {"role": "other"}}});
    on_machines(&scene, "other", other, json!({}));
    let place = Place::new();
    let _controllers = (scene.look_after().await, controller(&scene).await);
    let mut carrying = Some(agent(&scene, &lab, &place).await);
    for name in ["pause-a", "pause-b"] {
        scene.until("it serves", || scene.status("lb", name).as_deref() == Some("active"));
    }
    let load = Load::start(&lab.client, "192.0.2.1", FRONT);
    let mut held = held_by(&lab.client, "192.0.2.1", "pause-a");
    scene.kubectl(&["annotate", "haproxyloadbalancer", "lb", "cluster.x-k8s.io/paused="]);
    scene.until("that is told", || {
        let found = scene.get("haproxyloadbalancer", "lb");
        let conditions = found["status"]["conditions"].as_array().cloned().unwrap_or_default();
        conditions.iter().any(|found| found["type"] == "Paused" && found["status"] == "True")
    });
    scene.kubectl(&["delete", "machine", "pause-a", "--wait=false"]);
    // The machine that carries it has seen what came before something else that it has done.
    let done = |name: &str| {
        let found = scene.get("haproxyloadbalancer", name);
        let said = found["status"]["instances"][0]["observedGeneration"].clone();
        said == found["metadata"]["generation"]
    };
    let client: std::net::IpAddr = "192.0.2.10".parse().unwrap();
    let is_told = |name: &str| lab.backends[name].backend.as_ref().unwrap().told().contains(&client);
    let wishes =
        [json!({"proxyProtocol": true}), json!({"pool": "elsewhere"}), json!({"addresses": ["224.0.0.1"]})];
    for (number, wish) in wishes.iter().enumerate() {
        if number == 2 {
            drop(carrying.take());
            carrying = Some(agent(&scene, &lab, &place).await);
        }
        scene.patch("haproxyloadbalancer", "lb", &json!({"spec": wish}));
        let balance = ["random", "roundrobin", "leastconn"][number];
        scene.patch("haproxyloadbalancer", "other", &json!({"spec": {"balance": balance}}));
        scene.until("another one is done", || done("other"));
        assert!(!done("lb"));
        load.more(50);
        assert_eq!(held.ask().unwrap(), "pause-a");
    }
    assert!(!is_told("pause-a") && !is_told("pause-b"), "nobody is told of clients yet");
    drop(held_by(&lab.client, "192.0.2.1", "pause-a"));
    assert!(scene.is_held("pause-a", "lb"));
    let (state, message) = scene.condition("lb", "Degraded");
    assert_eq!(state, "True ProviderPaused");
    assert!(message.contains("HAProxyLoadBalancer lb") && message.contains("pause-a"), "{message}");
    // It goes on, without what would be refused.
    scene.patch("haproxyloadbalancer", "lb", &json!({"spec": {"pool": scene.name, "addresses": null}}));
    scene.kubectl(&["annotate", "haproxyloadbalancer", "lb", "cluster.x-k8s.io/paused-"]);
    scene.until("it drains", || scene.status("lb", "pause-a").as_deref() == Some("draining"));
    scene.until("what was asked for is done", || done("lb") && is_told("pause-b"));
    assert_eq!(held.ask().unwrap(), "pause-a", "what it has goes on");
    drop(held);
    scene.until("its infrastructure goes", || {
        scene.get("labmachine", "pause-a")["metadata"].get("deletionTimestamp").is_some()
    });
    let (count, failures) = load.end();
    assert_eq!(failures, Vec::<String>::new(), "of {count} connections");
    scene.patch("labmachine", "pause-a", &json!({"metadata": {"finalizers": null}}));
    drop(carrying);
}

fn three(name: &'static str, drain: u32) -> Scene {
    let scene = Scene::new(name);
    scene.cluster("c", json!({}), json!({}));
    for (machine, address) in [("one", "10.0.0.1"), ("two", "10.0.0.2"), ("three", "10.0.0.3")] {
        scene.control_plane("c", "lb", machine, address);
    }
    scene.balancer("c", "lb", json!({"drainTimeoutSeconds": drain}));
    scene
}

const ALL: [(&str, &str); 3] = [("one", "active"), ("two", "active"), ("three", "active")];

#[tokio::test(flavor = "multi_thread")]
async fn of_two_that_go_at_once_one_waits() {
    let scene = three("faults-two", 600);
    let _running = scene.look_after().await;
    scene.until("all are members", || scene.assigned("lb").len() == 3);
    scene.report("lb", "198.51.100.1", &ALL);
    scene.until("all serve", || scene.status("lb", "three").as_deref() == Some("active"));
    scene.kubectl(&["delete", "machine", "one", "two", "--wait=false"]);
    // Which of them is the first is up to the API: the other one is let go, and is not called removed for that.
    let is_gone = |member: &str| scene.get("machine", member) == Value::Null;
    scene.until("the other one goes", || is_gone("one") || is_gone("two"));
    let (first, second) = if is_gone("two") { ("one", "two") } else { ("two", "one") };
    assert!(scene.is_held(first, "lb"));
    scene.until("the first one waits", || waits(&scene, first));
    scene.report("lb", "198.51.100.1", &[(first, "removed"), ("three", "active")]);
    scene.until("the first one goes", || is_gone(first));
    scene.until("neither is a member", || scene.assigned("lb") == ["three Serve"]);
    assert_eq!(scene.status("lb", second), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn machines_that_are_deleted_by_force_are_forgotten() {
    let scene = three("faults-force", 600);
    let _running = scene.look_after().await;
    scene.until("all are members", || scene.assigned("lb").len() == 3);
    scene.report("lb", "198.51.100.1", &ALL);
    scene.until("all serve", || scene.status("lb", "three").as_deref() == Some("active"));
    // Somebody does not want to wait, and takes off what holds it.
    scene.kubectl(&["delete", "machine", "one", "--wait=false"]);
    scene.patch("machine", "one", &json!({"metadata": {"finalizers": null}}));
    scene.until("it is gone", || scene.get("machine", "one") == Value::Null);
    scene.until("it is no member any more", || scene.assigned("lb") == ["three Serve", "two Serve"]);
    scene.until("nor is it shown", || scene.status("lb", "one").is_none());
}

/// The same with packets: what it has goes on while it is there, nobody new comes to it, and nobody is refused.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn who_is_deleted_by_force_keeps_its_connections() {
    let scene = Scene::new("faults-force-traffic");
    let names = ["force-a", "force-b", "force-c"];
    let mut lab = Lab::new(&names);
    scene.cluster("c", json!({}), json!({}));
    for name in names {
        machine(&scene, &lab, name);
    }
    on_machines(&scene, "lb", json!({"listeners": listeners(), "drainTimeoutSeconds": 600}), json!({}));
    let place = Place::new();
    let _all = (scene.look_after().await, controller(&scene).await, agent(&scene, &lab, &place).await);
    for name in names {
        scene.until("it serves", || scene.status("lb", name).as_deref() == Some("active"));
    }
    let load = Load::start(&lab.client, "192.0.2.1", FRONT);
    let visits = Visits::start(&lab.client, "192.0.2.1", FRONT);
    // One at once, and one while it leaves.
    for (name, drains) in [("force-a", false), ("force-b", true)] {
        let mut held = held_by(&lab.client, "192.0.2.1", name);
        scene.until("others are there, too", || visits.with(name) > 0);
        scene.kubectl(&["delete", "machine", name, "--wait=false"]);
        if drains {
            scene.until("it drains", || scene.status("lb", name).as_deref() == Some("draining"));
        }
        scene.patch("machine", name, &json!({"metadata": {"finalizers": null}}));
        scene.until("it is gone", || scene.get("machine", name) == Value::Null);
        scene.until("nobody new comes to it", || {
            (0..8).all(|_| ask(&lab.client, "192.0.2.1", FRONT).is_ok_and(|answer| answer != name))
        });
        scene.until("nor is it shown", || scene.status("lb", name).is_none());
        load.more(300);
        scene.until("whoever is done has gone", || visits.with(name) == 0);
        assert_eq!(held.ask().unwrap(), name, "what it has goes on");
        held.end().unwrap();
        lab.end(name);
        load.more(300);
    }
    let (count, failures) = load.end();
    assert_eq!(failures, Vec::<String>::new(), "of {count} connections");
    let (count, broken) = visits.end(Duration::from_secs(600));
    assert_eq!(broken, Vec::<String>::new(), "of {count} that lasted for some seconds");
}

/// After a restored backup everything has another UID. One that is deleted before anybody looked after it takes along what is its own
/// by name and cluster, and leaves alone what is its user's.
#[tokio::test(flavor = "multi_thread")]
async fn what_was_restored_goes_with_its_load_balancer() {
    let scene = three("faults-restored", 600);
    let running = scene.look_after().await;
    scene.until("all are members", || scene.assigned("lb").len() == 3);
    // Another one, of which nothing was asked for its load balancer yet.
    scene.maker("users");
    drop(running);
    let owner = json!({
        "apiVersion": "loadbalancer.portcullis.dev/v1alpha1", "kind": "LoadBalancer", "name": "lb",
        "uid": "00000000-0000-4000-8000-000000000000",
    });
    scene.patch("labbalancer", "lb", &json!({"metadata": {"ownerReferences": [owner]}}));
    let reference =
        json!({"apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "LabBalancer", "name": "users"});
    scene.apply(json!({
        "apiVersion": "loadbalancer.portcullis.dev/v1alpha1", "kind": "LoadBalancer",
        "metadata": {"name": "new", "finalizers": ["loadbalancer.portcullis.dev/cleanup"]},
        "spec": {"clusterName": "c", "infrastructureRef": reference},
    }));
    for name in ["lb", "new"] {
        scene.kubectl(&["delete", BALANCERS, name, "--wait=false"]);
    }
    let _running = scene.look_after().await;
    for name in ["lb", "new"] {
        scene.until("it goes", || scene.get("loadbalancer", name) == Value::Null);
    }
    assert_eq!(scene.get("labbalancer", "lb"), Value::Null, "and what made it");
    assert_ne!(scene.get("labbalancer", "users"), Value::Null, "it is its user's");
}

/// The commands that the documentation has for whoever removes us for good, or cannot wait.
fn commands_without_us() -> Vec<&'static str> {
    let document = include_str!("../../../../docs/cluster-api.md");
    let part = document.split("**If Portcullis is gone for good**").nth(1).unwrap();
    let block = part.split("```console\n").nth(1).unwrap().split("```").next().unwrap();
    block.strip_prefix("$ ").unwrap().split("\n$ ").collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn hooks_of_a_dead_controller_can_be_taken_off() {
    let (scene, fake) = (Scene::new("faults-dead"), nlb::account());
    let group = "controlplane.cluster.x-k8s.io";
    let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    let kind = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {
            "name": format!("kubeadmcontrolplanes.{group}"), "labels": {"cluster.x-k8s.io/v1beta2": "v1"},
        },
        "spec": {
            "group": group, "scope": "Namespaced",
            "names": {"kind": "KubeadmControlPlane", "plural": "kubeadmcontrolplanes", "singular": "kubeadmcontrolplane"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": schema}],
        },
    });
    scene.kubernetes.apply_types(&kind.to_string()).unwrap();
    scene.apply(json!({
        "apiVersion": format!("{group}/v1"), "kind": "KubeadmControlPlane", "metadata": {"name": "plane"},
        "spec": {},
    }));
    let metadata = json!({"annotations": {"portcullis.dev/control-plane-load-balancer": "lb"}});
    let plane = json!({"apiGroup": group, "kind": "KubeadmControlPlane", "name": "plane"});
    scene.cluster("c", metadata, json!({"controlPlaneRef": plane}));
    let machines = ["one", "two", "three"];
    for (number, name) in (1..).zip(machines) {
        let (id, address) = (format!("aws:///eu-central-1a/i-{number}"), format!("10.0.1.{}", number + 10));
        nlb::machine(&scene, name, &id, &address);
    }
    nlb::balancer(&scene);
    let all = (scene.look_after().await, nlb::make(&scene, &fake).await);
    scene.until("all serve", || {
        scene.get("loadbalancer", "lb")["status"]["activeTargets"] == json!(["one", "three", "two"])
    });
    let hook = "pre-drain.delete.hook.machine.cluster.x-k8s.io/lb";
    let template =
        || scene.get("kubeadmcontrolplane", "plane")["spec"]["machineTemplate"]["metadata"].clone();
    scene.until("all are held", || {
        template()["annotations"][hook].is_string() && machines.iter().all(|one| scene.is_held(one, "lb"))
    });
    drop(all);
    scene.kubectl(&["delete", "machine", "one", "--wait=false"]);
    scene.until("it waits for nobody", || waits(&scene, "one"));
    scene.kubectl(&["delete", BALANCERS, "lb", "--wait=false"]);
    scene.kubectl(&["delete", "awsnlb", "lb", "--wait=false"]);

    // All of them by one who types them, whose namespace is this one. Names are theirs to fill in.
    let scratch = Scratch::new().unwrap();
    let kubeconfig = scratch.path().join("kubeconfig");
    std::fs::copy(scene.kubernetes.kubeconfig(), &kubeconfig).unwrap();
    let commands = commands_without_us();
    assert_eq!(commands.len(), 5, "{commands:?}");
    let script = commands.join("\n");
    let script = script.replace("LB=demo", "LB=lb").replace("NAME", "plane").replace("CLUSTER", "c");
    let here = format!("kubectl config set-context --current --namespace={}\n", scene.name);
    let kubectl = find("kubectl").unwrap();
    let path = format!("{}:/usr/bin:/bin", kubectl.parent().unwrap().display());
    let mut shell = Command::new("sh");
    shell.args(["-e", "-c", &(here + &script)]).env("PATH", path).env("KUBECONFIG", &kubeconfig);
    let done = scene.kubernetes.namespace().run(|| shell.output().unwrap());
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));

    assert!(template()["annotations"].get(hook).is_none(), "{}", template());
    for machine in ["two", "three"] {
        let annotations = scene.get("machine", machine)["metadata"]["annotations"].to_string();
        assert!(!annotations.contains("delete.hook"), "{annotations}");
    }
    scene.until("the Machine goes", || scene.get("machine", "one") == Value::Null);
    for kind in ["loadbalancer", "awsnlb"] {
        scene.until("it goes", || scene.get(kind, "lb") == Value::Null);
    }
    assert_eq!(fake.state().load_balancers.len(), 1, "what it has in AWS stays there");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn what_is_asked_for_reaches_the_machines() {
    let scene = Scene::new("faults-asked");
    let lab = Lab::new(&["asked-a"]);
    scene.cluster("c", json!({}), json!({}));
    machine(&scene, &lab, "asked-a");
    // Nobody may reach it: that is not the same as that nothing is said.
    let nobody = json!({"listeners": listeners(), "allowedSourceRanges": []});
    on_machines(&scene, "lb", nobody, json!({"proxyProtocol": true}));
    let place = Place::new();
    let _all = (scene.look_after().await, controller(&scene).await, agent(&scene, &lab, &place).await);
    scene.until("it serves", || scene.status("lb", "asked-a").as_deref() == Some("active"));
    assert!(ask(&lab.client, "192.0.2.1", FRONT).is_err());
    assert_eq!(scene.get("loadbalancer", "lb")["status"]["allowedSourceRanges"], json!([]));
    scene.patch(BALANCERS, "lb", &json!({"spec": {"allowedSourceRanges": null}}));
    scene.until("everybody may", || ask(&lab.client, "192.0.2.1", FRONT).is_ok());
    let backend = lab.backends["asked-a"].backend.as_ref().unwrap();
    let client: std::net::IpAddr = "192.0.2.10".parse().unwrap();
    assert!(backend.told().contains(&client), "it is told who asks: {:?}", backend.told());
}
