//! What goes wrong in the middle of things.

use std::time::{Duration, Instant};

use portcullis_testkit::talk::{Backend, Held, ask};
use serde_json::{Value, json};

use crate::lab::{
    FRONT, Lab, PORT, Place, Street, agent, carrying, controller, listeners, machine, on_machines,
};
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
fn by(scene: &Scene, kind: &str, member: &str) -> Value {
    let found = scene.get(kind, "lb");
    let members = found["spec"]["assignment"]["members"].as_array().cloned().unwrap_or_default();
    members.iter().find(|found| found["name"] == member).map(|found| found["by"].clone()).unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn all_of_ours_is_killed_in_the_middle_of_a_drain() {
    let scene = Scene::new("faults-killed");
    let lab = Lab::new(&["kill-a", "kill-b"]);
    scene.cluster("c", json!({}), json!({}));
    for name in ["kill-a", "kill-b"] {
        machine(&scene, &lab, name);
    }
    on_machines(&scene, "lb", json!({"listeners": listeners(), "drainTimeoutSeconds": 40}), json!({}));
    let place = Place::new();
    let mut all =
        Some((scene.look_after().await, controller(&scene).await, agent(&scene, &lab, &place).await));
    for name in ["kill-a", "kill-b"] {
        scene.until("it serves", || scene.status("lb", name).as_deref() == Some("active"));
    }
    let mut held = loop {
        let mut one = Held::connect(&lab.client, "192.0.2.1", FRONT).unwrap();
        if one.ask().unwrap() == "kill-a" {
            break one;
        }
    };
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

/// As with routes of equal cost: both machines carry at the same time, each at its own address.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn who_leaves_is_waited_for_on_every_machine() {
    let scene = Scene::new("faults-both");
    let street = Street::new();
    let visitor = street.join("client", 10);
    let members = [street.join("leaves", 20), street.join("stays", 21)];
    let _backends = members.each_ref().map(|host| Backend::start(host, PORT));
    let machines = [street.join("first", 1), street.join("second", 2)];
    scene.cluster("c", json!({}), json!({}));
    scene.control_plane("c", "lb", "leaves", "192.0.2.20");
    scene.control_plane("c", "lb", "stays", "192.0.2.21");
    on_machines(&scene, "lb", json!({"listeners": listeners(), "drainTimeoutSeconds": 600}), json!({}));
    let places = [Place::new(), Place::new()];
    let _controllers = (scene.look_after().await, controller(&scene).await);
    let _agents = [
        carrying(&scene, &machines[0], "first", None, &places[0]).await,
        carrying(&scene, &machines[1], "second", None, &places[1]).await,
    ];
    for name in ["leaves", "stays"] {
        scene.until("it serves", || scene.status("lb", name).as_deref() == Some("active"));
    }
    for address in ["192.0.2.1", "192.0.2.2"] {
        scene.until("both machines carry", || ask(&visitor, address, FRONT).is_ok());
    }
    // A connection through the second alone.
    let mut held = loop {
        let mut one = Held::connect(&visitor, "192.0.2.2", FRONT).unwrap();
        if one.ask().unwrap() == "leaves" {
            break one;
        }
    };
    scene.kubectl(&["delete", "machine", "leaves", "--wait=false"]);
    let connections = || {
        let balancer = scene.get("loadbalancer", "lb");
        let targets = balancer["status"]["targets"].as_array().cloned().unwrap_or_default();
        let target = targets.into_iter().find(|target| target["name"] == "leaves").unwrap_or_default();
        (target["status"].clone(), target["connections"].clone())
    };
    scene.until("it drains, and who is still there is counted", || {
        connections() == (json!("draining"), json!(1))
    });
    let instance = || {
        let found = scene.get("haproxyloadbalancer", "lb");
        let instances = found["status"]["instances"].as_array().cloned().unwrap_or_default();
        let first = instances.into_iter().find(|instance| instance["name"] == "first").unwrap_or_default();
        let members = first["members"].as_array().cloned().unwrap_or_default();
        let member = members.into_iter().find(|member| member["name"] == "leaves").unwrap_or_default();
        member["status"].clone()
    };
    scene.until("the first machine is done with it", || instance() == "removed");
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(4) {
        assert!(scene.is_held("leaves", "lb"), "the second is not");
        assert_eq!(held.ask().unwrap(), "leaves");
    }
    drop(held);
    scene.until("it may go", || scene.get("machine", "leaves") == Value::Null);
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
async fn of_two_that_go_at_once_one_leaves() {
    let scene = three("faults-two", 600);
    let _running = scene.look_after().await;
    scene.until("all are members", || scene.assigned("lb").len() == 3);
    scene.report("lb", "198.51.100.1", &ALL);
    scene.until("all serve", || scene.status("lb", "three").as_deref() == Some("active"));
    scene.kubectl(&["delete", "machine", "one", "two", "--wait=false"]);
    // Which of them is the first is up to the API.
    let leaves = |member: &str| scene.assigned("lb").contains(&format!("{member} Leave"));
    scene.until("one leaves", || leaves("one") || leaves("two"));
    let (first, second) = if leaves("one") { ("one", "two") } else { ("two", "one") };
    scene.report("lb", "198.51.100.1", &[(first, "draining"), (second, "active"), ("three", "active")]);
    scene.until("both wait", || waits(&scene, first) && waits(&scene, second));
    scene.until("that is told", || scene.status("lb", first).as_deref() == Some("draining"));
    assert!(!leaves(second), "it serves until the first has left");
    scene.report("lb", "198.51.100.1", &[(first, "removed"), (second, "active"), ("three", "active")]);
    scene.until("the first one goes", || scene.get("machine", first) == Value::Null);
    scene.until("the second one leaves", || leaves(second));
    assert!(scene.is_held(second, "lb"));
    scene.report("lb", "198.51.100.1", &[(second, "removed"), ("three", "active")]);
    scene.until("the second one goes", || scene.get("machine", second) == Value::Null);
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

/// Whoever removes us for good, or cannot wait, finds this in the documentation.
#[tokio::test(flavor = "multi_thread")]
async fn hooks_of_a_dead_controller_can_be_taken_off() {
    let scene = three("faults-dead", 600);
    let running = scene.look_after().await;
    scene.until("all are held", || ["one", "two", "three"].iter().all(|one| scene.is_held(one, "lb")));
    drop(running);
    scene.kubectl(&["delete", "machine", "one", "--wait=false"]);
    scene.until("it waits for nobody", || waits(&scene, "one"));
    scene.kubectl(&[
        "annotate",
        "machine",
        "one",
        "pre-drain.delete.hook.machine.cluster.x-k8s.io/lb-",
        "pre-terminate.delete.hook.machine.cluster.x-k8s.io/lb-",
    ]);
    scene.until("it goes", || scene.get("machine", "one") == Value::Null);
    // And the load balancer itself, which nobody looks after any more.
    scene.patch(BALANCERS, "lb", &json!({"metadata": {"finalizers": null}}));
    scene.kubectl(&["delete", BALANCERS, "lb"]);
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
