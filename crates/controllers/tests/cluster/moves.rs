//! From one provider to another, behind an endpoint that stays.

use std::time::{Duration, Instant};

use portcullis_controllers::cluster::Sharing;
use portcullis_testkit::talk::{Backend, Held, Load, ask};
use portcullis_testkit::{Host, eventually_within};
use serde_json::{Value, json};

use crate::lab::{
    FRONT, PORT, Place, Street, carrying, carrying_of, controller, holders, instances, listeners,
    on_machines, sharing,
};
use crate::scene::{Running, Scene};

const BALANCERS: &str = "loadbalancers.loadbalancer.portcullis.dev";

/// For what takes moments, and longer on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// Two members at an endpoint that is not the provider's, which drain for so many seconds.
async fn two(name: &'static str, drain: u32) -> (Scene, Running) {
    let scene = Scene::new(name);
    scene.cluster("c", json!({}), json!({}));
    scene.control_plane("c", "lb", "one", "10.0.0.1");
    scene.control_plane("c", "lb", "two", "10.0.0.2");
    let endpoint = json!({"host": "api.example.com", "port": 443});
    scene.balancer("c", "lb", json!({"endpoint": endpoint, "drainTimeoutSeconds": drain}));
    let running = scene.look_after().await;
    scene.until("both are members", || scene.assigned("lb").len() == 2);
    (scene, running)
}

/// Has another one make it.
fn swap(scene: &Scene) {
    scene.maker("other");
    let reference =
        json!({"apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "LabBalancer", "name": "other"});
    scene.patch(BALANCERS, "lb", &json!({"spec": {"infrastructureRef": reference}}));
}

#[tokio::test(flavor = "multi_thread")]
async fn both_serve_and_the_old_one_drains() {
    let (scene, _running) = two("moves", 600).await;
    scene.report("lb", "198.51.100.1", &[("one", "active"), ("two", "active")]);
    scene.until("the first one has it", || {
        scene.get("loadbalancer", "lb")["status"]["address"] == "198.51.100.1"
    });

    swap(&scene);
    scene.until("the new one is asked", || scene.assigned("other") == ["one Serve", "two Serve"]);
    assert_eq!(scene.assigned("lb"), ["one Serve", "two Serve"], "the old one goes on");
    assert_eq!(
        scene.get("loadbalancer", "lb")["status"]["address"],
        "198.51.100.1",
        "clients are not sent away yet"
    );
    scene.report("other", "198.51.100.2", &[("one", "adding"), ("two", "adding")]);
    scene.until("the new one is known", || scene.condition("lb", "InfrastructureReady").0 == "True Made");
    assert_eq!(
        scene.get("loadbalancer", "lb")["status"]["address"],
        "198.51.100.1",
        "nobody answers there yet"
    );
    // Meanwhile all is told as clients find it.
    let (available, message) = scene.condition("lb", "Available");
    assert_eq!(available, "True MembersActive");
    assert!(message.contains("2 of 2 members get connections, by LabBalancer lb"), "{message}");
    assert_eq!(scene.get("loadbalancer", "lb")["status"]["activeTargets"], json!(["one", "two"]));
    assert_eq!(scene.condition("lb", "MembersUpToDate").0, "False Changing");
    assert_eq!(scene.annotation("one", "loadbalancer.cluster.x-k8s.io/status").as_deref(), Some("active"));
    assert!(scene.get("labbalancer", "lb")["spec"]["assignment"].get("replacedSince").is_none());
    let start = Instant::now();
    scene.report("other", "198.51.100.2", &[("one", "active"), ("two", "active")]);
    scene.until("clients are sent to the new one", || {
        scene.get("loadbalancer", "lb")["status"]["address"] == "198.51.100.2"
    });
    scene.until("the old one knows", || {
        scene.get("labbalancer", "lb")["spec"]["assignment"].get("replacedSince").is_some()
    });
    assert_eq!(scene.assigned("lb"), ["one Serve", "two Serve"], "for clients that have not heard of it");
    // A busy machine took longer until here, and takes longer for what follows: that has at least as much time.
    let drain = start.elapsed().max(Duration::from_secs(3));
    scene.patch(BALANCERS, "lb", &json!({"spec": {"drainTimeoutSeconds": drain.as_secs()}}));
    scene.until("its members leave it", || scene.assigned("lb") == ["one Leave", "two Leave"]);
    assert_eq!(scene.status("lb", "one").as_deref(), Some("active"), "they stay members");
    assert!(scene.is_held("one", "lb"));
    scene.report("lb", "198.51.100.1", &[("one", "removed"), ("two", "removed")]);
    scene.until("it is given up", || scene.get("labbalancer", "lb")["spec"].get("assignment").is_none());
    assert_ne!(scene.get("labbalancer", "lb"), Value::Null, "it is its user's");
    assert_eq!(
        scene.get("loadbalancer", "lb")["spec"]["endpoint"],
        json!({"host": "api.example.com", "port": 443})
    );
    assert_eq!(scene.assigned("other"), ["one Serve", "two Serve"]);
}

/// The fifth story, with packets: from the machines of one pool to those of another, behind a name. Who asks for the name again goes to
/// the new ones as soon as these are told; who has the old address goes on for a while. Nobody is refused by either.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_swap_refuses_nobody() {
    let scene = Scene::new("moves-traffic");
    let street = Street::new();
    let (stale, fresh) = (street.join("stale", 10), street.join("fresh", 11));
    let members = [street.join("one", 20), street.join("two", 21)];
    let _backends = members.each_ref().map(|host| Backend::start(host, PORT));
    let machines = [street.join("first", 1), street.join("second", 2)];
    let (old, new) = ("192.0.2.1", "192.0.2.2");
    scene.cluster("c", json!({}), json!({}));
    scene.control_plane("c", "lb", "one", "192.0.2.20");
    scene.control_plane("c", "lb", "two", "192.0.2.21");
    let endpoint = json!({"host": "api.example.com", "port": FRONT});
    let wanted = json!({"listeners": listeners(), "endpoint": endpoint, "drainTimeoutSeconds": 600});
    on_machines(&scene, "lb", wanted, json!({}));
    let places = [Place::new(), Place::new()];
    let _controllers = (scene.look_after().await, controller(&scene).await);
    let _agents = (
        carrying(&scene, &machines[0], "first", None, &places[0]).await,
        carrying_of(&scene, &machines[1], ("second", "next"), None, &places[1]).await,
    );
    let address = || scene.get("loadbalancer", "lb")["status"]["address"].clone();
    for member in ["one", "two"] {
        scene.until("it serves", || scene.status("lb", member).as_deref() == Some("active"));
    }
    assert_eq!(address(), old);
    let load = Load::start(&stale, old, FRONT);
    let held = || Held::connect(&stale, old, FRONT).unwrap();
    let (mut shorter, mut longer) = ([held(), held(), held()], held());
    let answers = |held: &mut [Held]| held.iter_mut().all(|held| held.ask().is_ok());
    assert!(answers(&mut shorter) && longer.ask().is_ok());
    load.more(500);

    scene.apply(json!({
        "apiVersion": "loadbalancer.portcullis.dev/v1alpha1",
        "kind": "HAProxyLoadBalancer",
        "metadata": {"name": "other"},
        "spec": {"pool": "next"},
    }));
    let reference =
        json!({"apiGroup": "loadbalancer.portcullis.dev", "kind": "HAProxyLoadBalancer", "name": "other"});
    let start = Instant::now();
    scene.patch(BALANCERS, "lb", &json!({"spec": {"infrastructureRef": reference}}));
    // That is when whoever keeps names has it point there.
    scene.until("clients are sent to the new one", || address() == new);
    let (load_of_new, mut held_by_new) =
        (Load::start(&fresh, new, FRONT), Held::connect(&fresh, new, FRONT).unwrap());
    assert!(held_by_new.ask().is_ok());
    load.more(500);
    load_of_new.more(500);
    let (count, failures) = load.end();
    assert_eq!(failures, Vec::<String>::new(), "of {count} connections by the old one");
    let duties = || {
        let found = scene.get("haproxyloadbalancer", "lb");
        let members = found["spec"]["assignment"]["members"].as_array().cloned().unwrap_or_default();
        members.into_iter().map(|member| member["duty"].clone()).collect::<Vec<Value>>()
    };
    assert_eq!(duties(), ["Serve", "Serve"], "for clients that have not heard of it");

    // A busy machine took longer until here, and takes longer for what follows: that has at least as much time.
    let drain = start.elapsed().max(Duration::from_secs(20));
    scene.patch(BALANCERS, "lb", &json!({"spec": {"drainTimeoutSeconds": drain.as_secs()}}));
    eventually_within(drain + PATIENCE, "its members leave it", || duties() == ["Leave", "Leave"]);
    for _ in 0..30 {
        assert!(answers(&mut shorter), "as long as they like, within the time");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    for held in shorter {
        held.end().unwrap();
    }
    assert!(longer.ask().is_ok(), "its time is not over");
    eventually_within(drain + PATIENCE, "it is given up", || {
        scene.get("haproxyloadbalancer", "lb")["spec"].get("assignment").is_none()
    });
    scene.until("what was left is ended", || longer.has_ended());
    load_of_new.more(500);
    assert!(held_by_new.ask().is_ok(), "nobody was moved from the new one");
    let (count, failures) = load_of_new.end();
    assert_eq!(failures, Vec::<String>::new(), "of {count} connections by the new one");
    assert_eq!(scene.get("loadbalancer", "lb")["spec"]["endpoint"], endpoint);
}

/// Machines of one pool go on until one of another has it, also where that is none; then they let go of the address, and only then do
/// the others take it.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn another_pool_takes_over_when_it_serves_and_not_before() {
    let (scene, street) = (Scene::new("moves-pool"), Street::new());
    let visitor = street.join("client", 10);
    let (one, two) = (street.join("one", 20), street.join("two", 21));
    let _backends = (Backend::start(&one, PORT), Backend::start(&two, PORT));
    let (old, new) = (street.join("old", 1), street.join("new", 2));
    scene.cluster("c", json!({}), json!({}));
    scene.control_plane("c", "lb", "one", "192.0.2.20");
    on_machines(&scene, "lb", json!({"listeners": listeners()}), json!({"addresses": ["192.0.2.100"]}));
    // Neither hears of the other: they would share the address like machines of one pool.
    let alone = || Some(Sharing { peers: vec!["192.0.2.99".parse().unwrap()], ..sharing("to-switch", 100) });
    let places = [Place::new(), Place::new()];
    let _all = (
        scene.look_after().await,
        controller(&scene).await,
        carrying(&scene, &old, "old", alone(), &places[0]).await,
    );
    let through = || ask(&visitor, "192.0.2.100", FRONT);
    scene.until("it serves", || through().is_ok() && holders(&scene) == ["old"]);
    let mut held = Held::connect(&visitor, "192.0.2.100", FRONT).unwrap();
    assert_eq!(held.ask().unwrap(), "one");

    scene.patch("haproxyloadbalancer", "lb", &json!({"spec": {"pool": "nwe"}}));
    scene.until("that is told", || {
        let (state, message) = scene.condition("lb", "InfrastructureReady");
        state == "False NoInstance" && message.contains("`nwe`")
    });
    scene.control_plane("c", "lb", "two", "192.0.2.21");
    scene.until("members come", || through().is_ok_and(|answer| answer == "two"));
    assert_eq!((held.ask().unwrap().as_str(), holders(&scene)), ("one", vec!["old".to_owned()]));

    // A machine of the new pool reaches no member at first.
    new.nft(&format!(
        "table inet cut {{
            chain out {{
                type filter hook output priority 0
                tcp dport {PORT} drop
            }}
        }}"
    ));
    let _new = carrying_of(&scene, &new, ("new", "new"), alone(), &places[1]).await;
    for change in [json!({"pool": "new"}), json!({"balance": "random"})] {
        scene.patch("haproxyloadbalancer", "lb", &json!({"spec": change}));
        scene.until("the new one has done it", || {
            let generation = &scene.get("haproxyloadbalancer", "lb")["metadata"]["generation"];
            instances(&scene)
                .iter()
                .any(|one| one["name"] == "new" && one["observedGeneration"] == *generation)
        });
    }
    assert!(!places[1].file("shared/keepalived.conf").exists(), "the address is not for it yet");
    assert_eq!((held.ask().unwrap().as_str(), holders(&scene)), ("one", vec!["old".to_owned()]));
    new.run("nft delete table inet cut");
    let has = |host: &Host| host.run("ip -brief address show dev to-switch").contains("192.0.2.100/");
    scene.until("the other one has the address", || {
        let (by_old, by_new) = (has(&old), has(&new));
        assert!(!by_old || !by_new, "both have it");
        by_new && holders(&scene) == ["new"]
    });
    scene.until("it serves there", || through().is_ok());
    let told = || instances(&scene).iter().map(|one| one["name"].clone()).collect::<Vec<_>>();
    assert_eq!((told(), has(&old)), (vec![json!("new")], false));
    scene.until("all is well", || {
        scene.condition("lb", "InfrastructureReady").0 == "True Carried"
            && ["one", "two"].iter().all(|name| scene.status("lb", name).as_deref() == Some("active"))
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_that_goes_meanwhile_leaves_both() {
    let (scene, _running) = two("moves-machine", 600).await;
    let active = [("one", "active"), ("two", "active")];
    scene.report("lb", "198.51.100.1", &active);
    swap(&scene);
    scene.until("the new one is asked", || scene.assigned("other").len() == 2);
    scene.report("other", "198.51.100.2", &active);
    scene.until("the old one knows", || {
        scene.get("labbalancer", "lb")["spec"]["assignment"].get("replacedSince").is_some()
    });
    scene.report("lb", "198.51.100.1", &active);
    scene.kubectl(&["delete", "machine", "one", "--wait=false"]);
    scene.until("it leaves both", || {
        scene.assigned("lb").first().is_some_and(|first| first == "one Leave")
            && scene.assigned("other")[0] == "one Leave"
    });
    scene.report("lb", "198.51.100.1", &[("one", "draining"), ("two", "active")]);
    scene.report("other", "198.51.100.2", &[("one", "removed"), ("two", "active")]);
    // Whoever goes by what it says would end its connections in the old one.
    let says = || scene.annotation("one", "loadbalancer.cluster.x-k8s.io/status");
    scene.until("it leaves", || says().as_deref() == Some("draining"));
    tokio::time::sleep(std::time::Duration::from_secs(2)).await;
    assert_eq!(says().as_deref(), Some("draining"));
    assert!(scene.is_held("one", "lb"), "the old one still sends to it");
    scene.report("lb", "198.51.100.1", &[("one", "removed"), ("two", "active")]);
    scene.until("it may go", || scene.get("machine", "one") == Value::Null);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_address_that_clients_have_is_not_given_up() {
    let scene = Scene::new("moves-bound");
    scene.cluster("c", json!({}), json!({}));
    scene.control_plane("c", "lb", "one", "10.0.0.1");
    // The endpoint is the provider's own.
    scene.balancer("c", "lb", json!({"drainTimeoutSeconds": 0}));
    let _running = scene.look_after().await;
    scene.until("it is a member", || scene.assigned("lb").len() == 1);
    scene.report("lb", "198.51.100.1", &[("one", "active")]);
    scene.until("the endpoint is known", || {
        scene.get("loadbalancer", "lb")["spec"]["endpoint"]["host"] == "198.51.100.1"
    });
    swap(&scene);
    scene.until("the new one is asked", || scene.assigned("other").len() == 1);
    scene.report("other", "198.51.100.2", &[("one", "active")]);
    scene.until("that is told", || scene.condition("lb", "Degraded").0 == "True EndpointOfOldProvider");
    tokio::time::sleep(std::time::Duration::from_secs(2)).await;
    assert_eq!(scene.assigned("lb"), ["one Serve"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_one_that_dies_is_not_waited_for() {
    let (scene, _running) = two("moves-dies", 4).await;
    let active = [("one", "active"), ("two", "active")];
    scene.report("lb", "198.51.100.1", &active);
    swap(&scene);
    scene.until("the new one is asked", || scene.assigned("other").len() == 2);
    scene.report("other", "198.51.100.2", &active);
    let is_replaced = || scene.get("labbalancer", "lb")["spec"]["assignment"].get("replacedSince").is_some();
    let address = || scene.get("loadbalancer", "lb")["status"]["address"].clone();
    scene.until("the old one knows", is_replaced);
    scene.until("clients are sent to the new one", || address() == "198.51.100.2");
    scene.report("other", "198.51.100.2", &[("one", "adding"), ("two", "adding")]);
    scene.until("the old one goes on", || !is_replaced());
    scene.until("clients are sent there again", || address() == "198.51.100.1");
    assert_eq!(scene.condition("lb", "Available").0, "True MembersActive");
    // Longer than it would have taken to leave it.
    tokio::time::sleep(std::time::Duration::from_secs(9)).await;
    assert_eq!(scene.assigned("lb"), ["one Serve", "two Serve"]);
    scene.report("other", "198.51.100.2", &active);
    scene.until("its members leave it", || scene.assigned("lb") == ["one Leave", "two Leave"]);
    assert_eq!(address(), "198.51.100.2");
}

/// Before the new one serves, who is to go leaves both: it is not the last one, as long as another one answers by the old one.
#[tokio::test(flavor = "multi_thread")]
async fn a_machine_that_goes_before_the_new_one_serves_is_not_the_last() {
    let (scene, _running) = two("moves-last", 600).await;
    scene.report("lb", "198.51.100.1", &[("one", "active"), ("two", "active")]);
    scene.until("it serves", || scene.status("lb", "two").as_deref() == Some("active"));
    swap(&scene);
    scene.until("the new one is asked", || scene.assigned("other").len() == 2);
    scene.kubectl(&["delete", "machine", "one", "--wait=false"]);
    scene.until("it leaves both", || {
        scene.assigned("lb") == ["one Leave", "two Serve"]
            && scene.assigned("other") == ["one Leave", "two Serve"]
    });
    assert_eq!(scene.condition("lb", "Degraded").0, "False AsExpected");
    assert_eq!(scene.status("lb", "two").as_deref(), Some("active"));
    scene.report("lb", "198.51.100.1", &[("one", "removed"), ("two", "active")]);
    scene.report("other", "198.51.100.2", &[("one", "removed"), ("two", "adding")]);
    scene.until("it may go", || scene.get("machine", "one") == Value::Null);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_serves_goes_on_while_a_wrong_one_is_named() {
    let (scene, _running) = two("moves-wrong", 600).await;
    scene.report("lb", "198.51.100.1", &[("one", "active"), ("two", "active")]);
    scene.until("it serves", || scene.status("lb", "two").as_deref() == Some("active"));
    // One that is not there, one of a kind that nobody knows, and one that cannot be read.
    scene.apply(json!({
        "apiVersion": "infrastructure.cluster.x-k8s.io/v1", "kind": "LabBalancer",
        "metadata": {"name": "odd"}, "spec": 5,
    }));
    for (group, kind, name, told) in [
        ("example.com", "MoonBalancer", "lb", "MoonBalancer"),
        ("infrastructure.cluster.x-k8s.io", "LabBalancer", "odd", "LabBalancer odd: its spec cannot be read"),
        ("infrastructure.cluster.x-k8s.io", "LabBalancer", "nobody", "nobody"),
    ] {
        let reference = json!({"apiGroup": group, "kind": kind, "name": name});
        scene.patch(BALANCERS, "lb", &json!({"spec": {"infrastructureRef": reference}}));
        scene.until("that is told", || scene.condition("lb", "InfrastructureReady").1.contains(told));
        assert_eq!(scene.assigned("lb"), ["one Serve", "two Serve"]);
        assert_eq!(scene.condition("lb", "Available").0, "True MembersActive");
    }
    scene.control_plane("c", "lb", "three", "10.0.0.3");
    scene.until("a new one is held", || scene.is_held("three", "lb"));
    assert_eq!(scene.status("lb", "one").as_deref(), Some("active"));
    scene.kubectl(&["delete", "machine", "one", "--wait=false"]);
    scene.until("who goes leaves", || scene.assigned("lb").contains(&"one Leave".to_owned()));
    scene.report("lb", "198.51.100.1", &[("one", "removed"), ("two", "active"), ("three", "active")]);
    scene.until("and may go", || scene.get("machine", "one") == Value::Null);
    // What never was its own is not in the way of its deletion.
    let odd = json!({"apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "LabBalancer", "name": "odd"});
    scene.patch(BALANCERS, "lb", &json!({"spec": {"infrastructureRef": odd}}));
    scene.kubectl(&["delete", BALANCERS, "lb"]);
    assert!(!scene.is_held("two", "lb"));
}

/// Has one of another kind make it, which no provider of ours looks after here.
fn swap_kinds(scene: &Scene) {
    scene.apply(json!({
        "apiVersion": "loadbalancer.portcullis.dev/v1alpha1",
        "kind": "HAProxyLoadBalancer",
        "metadata": {"name": "other"},
        "spec": {"pool": "none"},
    }));
    let reference =
        json!({"apiGroup": "loadbalancer.portcullis.dev", "kind": "HAProxyLoadBalancer", "name": "other"});
    scene.patch(BALANCERS, "lb", &json!({"spec": {"infrastructureRef": reference}}));
}

fn is_assigned(scene: &Scene, kind: &str, name: &str) -> bool {
    scene.get(kind, name)["spec"].get("assignment").is_some()
}

/// The kinds in the list of those that were asked to make it.
fn noted(scene: &Scene) -> Vec<String> {
    let found = scene.get("loadbalancer", "lb")["status"]["infrastructureRefs"].clone();
    let all = found.as_array().cloned().unwrap_or_default();
    all.iter().map(|one| one["kind"].as_str().unwrap().to_owned()).collect()
}

/// Nobody names the old one's kind any more, and whoever looks after it has never heard of it.
#[tokio::test(flavor = "multi_thread")]
async fn the_old_one_is_known_after_another_start() {
    let (scene, running) = two("moves-restart", 3).await;
    let active = [("one", "active"), ("two", "active")];
    scene.report("lb", "198.51.100.1", &active);
    scene.until("it serves", || scene.status("lb", "two").as_deref() == Some("active"));
    assert_eq!(noted(&scene), ["LabBalancer"]);
    swap_kinds(&scene);
    scene.until("the new one is asked", || is_assigned(&scene, "haproxyloadbalancer", "other"));
    assert_eq!(noted(&scene), ["LabBalancer", "HAProxyLoadBalancer"]);
    drop(running);
    let running = scene.look_after().await;
    scene.report_of("haproxyloadbalancer", "other", "198.51.100.2", &active);
    scene.until("its members leave it", || scene.assigned("lb") == ["one Leave", "two Leave"]);
    drop(running);
    let _running = scene.look_after().await;
    scene.report("lb", "198.51.100.1", &[("one", "removed"), ("two", "removed")]);
    scene.until("it is given up", || !is_assigned(&scene, "labbalancer", "lb"));
    scene.until("and forgotten", || noted(&scene) == ["HAProxyLoadBalancer"]);
    assert!(is_assigned(&scene, "haproxyloadbalancer", "other"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_load_balancer_that_goes_gives_up_the_old_one_too() {
    let (scene, running) = two("moves-restart-deleted", 600).await;
    scene.report("lb", "198.51.100.1", &[("one", "active"), ("two", "active")]);
    scene.until("it serves", || scene.status("lb", "two").as_deref() == Some("active"));
    // Nobody is there to see the change.
    drop(running);
    swap_kinds(&scene);
    let running = scene.look_after().await;
    scene.until("the new one is asked", || is_assigned(&scene, "haproxyloadbalancer", "other"));
    assert_eq!(scene.assigned("lb"), ["one Serve", "two Serve"]);
    scene.kubectl(&["delete", "machine", "one", "--wait=false"]);
    scene.until("who goes leaves it", || scene.assigned("lb")[0] == "one Leave");
    assert!(scene.is_held("one", "lb"), "it still has it");
    drop(running);
    scene.kubectl(&["delete", BALANCERS, "lb", "--wait=false"]);
    let _running = scene.look_after().await;
    scene.until("it is gone", || scene.get("loadbalancer", "lb") == Value::Null);
    assert!(!is_assigned(&scene, "labbalancer", "lb"));
}
