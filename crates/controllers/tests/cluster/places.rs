//! Where load balancers on machines listen, and who is in their way.

use std::net::{SocketAddr, TcpListener};

use portcullis_testkit::parts::Namespace;
use portcullis_testkit::talk::{Backend, Held, Load, ask};
use serde_json::{Value, json};

use crate::lab::{
    FRONT, Lab, PORT, Place, Street, agent, carrying, controller, give_address, holders, listeners, machine,
    on_machines, sharing, take_address_back,
};
use crate::scene::Scene;

const BALANCERS: &str = "loadbalancers.loadbalancer.portcullis.dev";
const ELSEWHERE: u16 = 8443;
const MACHINE: &str = "192.0.2.1";

/// The same listener at another port.
fn at(port: u16) -> Value {
    let mut all = listeners();
    all[0]["port"] = json!(port);
    json!({"spec": {"listeners": all}})
}

/// A condition of what carries the load balancer, as status and reason.
fn said(scene: &Scene, type_: &str) -> String {
    let found = scene.get("haproxyloadbalancer", "lb");
    let conditions = found["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let found = conditions.iter().find(|condition| condition["type"] == type_).cloned().unwrap_or_default();
    format!(
        "{} {}",
        found["status"].as_str().unwrap_or_default(),
        found["reason"].as_str().unwrap_or_default()
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_listener_stays_until_the_new_one_can_be() {
    let scene = Scene::new("places-taken");
    let lab = Lab::new(&["taken-a", "taken-b"]);
    scene.cluster("c", json!({}), json!({}));
    machine(&scene, &lab, "taken-a");
    on_machines(&scene, "lb", json!({"listeners": listeners()}), json!({}));
    let place = Place::new();
    let _controllers = (scene.look_after().await, controller(&scene).await);
    let mut carrying = Some(agent(&scene, &lab, &place).await);
    scene.until("it serves", || scene.status("lb", "taken-a").as_deref() == Some("active"));
    let there: SocketAddr = format!("{MACHINE}:{ELSEWHERE}").parse().unwrap();
    let other = Namespace::run(&lab.carrier, || TcpListener::bind(there)).unwrap();
    let load = Load::start(&lab.client, MACHINE, FRONT);
    let mut held = Held::connect(&lab.client, MACHINE, FRONT).unwrap();
    assert_eq!(held.ask().unwrap(), "taken-a");

    scene.patch(BALANCERS, "lb", &at(ELSEWHERE));
    let is_told = || {
        let (state, message) = scene.condition("lb", "InfrastructureReady");
        state == "False Problem" && message.contains(&format!("listens on 0.0.0.0:{ELSEWHERE}"))
    };
    scene.until("that is told", is_told);
    let (exists, up_to_date) = (said(&scene, "Exists"), said(&scene, "ConfigUpToDate"));
    assert_eq!((exists.as_str(), up_to_date.as_str()), ("True Made", "False Pending"));
    load.more(200);
    // Members come all the same, and another agent knows of it.
    drop(carrying.take());
    carrying = Some(agent(&scene, &lab, &place).await);
    machine(&scene, &lab, "taken-b");
    scene.until("who comes gets some", || {
        ask(&lab.client, MACHINE, FRONT).is_ok_and(|answer| answer == "taken-b")
    });
    scene.until("that is told", is_told);
    load.more(200);
    let (count, failures) = load.end();
    assert_eq!(failures, Vec::<String>::new(), "of {count} connections");
    assert_eq!(held.ask().unwrap(), "taken-a");
    // Also one that starts from nothing is where it was.
    place.kill_haproxy();
    scene.until("it is back", || ask(&lab.client, MACHINE, FRONT).is_ok());
    let mut held = Held::connect(&lab.client, MACHINE, FRONT).unwrap();
    let member = held.ask().unwrap();

    // Who is not to get in is kept out meanwhile, and let in again only by what is asked for as a whole.
    let elsewhere = ["198.51.100.0/24"];
    let has = || scene.get("haproxyloadbalancer", "lb")["status"].clone();
    assert_eq!(has()["allowedSourceRanges"], Value::Null);
    scene.patch(BALANCERS, "lb", &json!({"spec": {"allowedSourceRanges": elsewhere}}));
    scene.until("it is closed", || ask(&lab.client, MACHINE, FRONT).is_err());
    scene.until("that is told", || {
        said(&scene, "SourceRangesEnforced") == "True Enforced"
            && has()["allowedSourceRanges"] == json!(elsewhere)
    });
    assert_eq!(said(&scene, "ConfigUpToDate"), "False Pending");
    scene.patch(BALANCERS, "lb", &json!({"spec": {"allowedSourceRanges": null}}));
    scene.until("that is told", || has()["instances"][0]["allowedSourceRanges"] == json!(elsewhere));
    assert_eq!(has()["allowedSourceRanges"], json!(elsewhere));
    assert!(ask(&lab.client, MACHINE, FRONT).is_err());
    assert_eq!(held.ask().unwrap(), member, "who is in stays");

    drop(other);
    scene.until("it is there", || ask(&lab.client, MACHINE, ELSEWHERE).is_ok());
    scene.until("it is not where it was", || ask(&lab.client, MACHINE, FRONT).is_err());
    scene.until("all is well", || scene.condition("lb", "InfrastructureReady").0 == "True Carried");
    assert_eq!(said(&scene, "ConfigUpToDate"), "True UpToDate");
    assert_eq!(has()["allowedSourceRanges"], Value::Null);
    assert_eq!(held.ask().unwrap(), member, "what came by the old one goes on");
    drop(carrying);
}

/// A full disk holds nobody: who leaves has left once nothing goes to it, and ranges become narrower, whatever else waits.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn who_leaves_has_left_also_while_the_file_cannot_be_written() {
    let scene = Scene::new("places-full");
    let lab = Lab::new(&["full-a", "full-b"]);
    scene.cluster("c", json!({}), json!({}));
    for name in ["full-a", "full-b"] {
        machine(&scene, &lab, name);
    }
    let wanted = json!({
        "listeners": listeners(), "drainTimeoutSeconds": 600,
        "allowedSourceRanges": ["192.0.2.0/24", "198.51.100.0/24"],
    });
    on_machines(&scene, "lb", wanted, json!({}));
    let place = Place::new();
    let _all = (scene.look_after().await, controller(&scene).await, agent(&scene, &lab, &place).await);
    for name in ["full-a", "full-b"] {
        scene.until("it serves", || scene.status("lb", name).as_deref() == Some("active"));
    }
    let files = ["haproxy.cfg.new", "haproxy.cfg.draft"].map(|name| place.file(name));
    let fill = || files.each_ref().map(|file| std::fs::create_dir(file).unwrap());
    let empty = || files.each_ref().map(|file| std::fs::remove_dir(file).unwrap());
    fill();
    scene.kubectl(&["delete", "machine", "full-a", "--wait=false"]);
    scene.until("it has left", || scene.status("lb", "full-a").as_deref() == Some("removed"));
    scene.until("nothing of ours holds it", || !scene.is_held("full-a", "lb"));
    for _ in 0..4 {
        assert_eq!(ask(&lab.client, MACHINE, FRONT).unwrap(), "full-b");
    }
    assert_eq!(said(&scene, "ConfigUpToDate"), "False Pending");
    scene.patch(BALANCERS, "lb", &json!({"spec": {"allowedSourceRanges": ["198.51.100.0/24"]}}));
    let told = || scene.get("haproxyloadbalancer", "lb")["status"]["allowedSourceRanges"].clone();
    scene.until("that is in force", || {
        said(&scene, "SourceRangesEnforced") == "True Enforced" && told() == json!(["198.51.100.0/24"])
    });
    assert!(ask(&lab.client, MACHINE, FRONT).is_err());
    assert_eq!(said(&scene, "ConfigUpToDate"), "False Pending");

    empty();
    scene.until("all is well", || said(&scene, "ConfigUpToDate") == "True UpToDate");
    // What is open to everyone is limited by the file alone, and nobody says otherwise meanwhile.
    scene.patch(BALANCERS, "lb", &json!({"spec": {"allowedSourceRanges": null}}));
    scene.until("it is open", || ask(&lab.client, MACHINE, FRONT).is_ok());
    scene.until("that is told", || told() == Value::Null);
    fill();
    scene.patch(BALANCERS, "lb", &json!({"spec": {"allowedSourceRanges": ["198.51.100.0/24"]}}));
    scene.until("that waits", || said(&scene, "SourceRangesEnforced") == "False Pending");
    let problem = || scene.get("haproxyloadbalancer", "lb")["status"]["instances"][0]["problem"].is_string();
    scene.until("the machine says why", problem);
    assert_eq!(said(&scene, "SourceRangesEnforced"), "False Pending");
    assert!(ask(&lab.client, MACHINE, FRONT).is_ok());
    empty();
    scene.until("it is closed", || said(&scene, "SourceRangesEnforced") == "True Enforced");
    assert!(ask(&lab.client, MACHINE, FRONT).is_err());
    scene.patch("labmachine", "full-a", &json!({"metadata": {"finalizers": null}}));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn who_has_a_place_keeps_it_whoever_wants_it() {
    let scene = Scene::new("places-wanted");
    let lab = Lab::new(&["wanted-a"]);
    scene.cluster("c", json!({}), json!({}));
    machine(&scene, &lab, "wanted-a");
    on_machines(&scene, "lb", json!({"listeners": listeners()}), json!({}));
    let place = Place::new();
    let _all = (scene.look_after().await, controller(&scene).await, agent(&scene, &lab, &place).await);
    scene.until("it serves", || scene.status("lb", "wanted-a").as_deref() == Some("active"));
    // A younger one, which has no members: who comes to it is turned away.
    let nobody = json!({
        "listeners": [{"port": ELSEWHERE, "targetPort": PORT}],
        "selector": {"matchLabels": {"role": "other"}},
    });
    on_machines(&scene, "younger", nobody, json!({}));
    scene.until("it is carried", || scene.condition("younger", "InfrastructureReady").0 == "True Carried");

    scene.patch(BALANCERS, "lb", &at(ELSEWHERE));
    scene.until("that is told", || {
        let (state, message) = scene.condition("lb", "InfrastructureReady");
        state == "False Problem"
            && message.contains(&format!("belongs to load balancer {}/younger", scene.name))
    });
    assert_eq!(ask(&lab.client, MACHINE, FRONT).unwrap(), "wanted-a", "it is where it was");
    assert!(ask(&lab.client, MACHINE, ELSEWHERE).is_err());
    assert_eq!(scene.condition("younger", "InfrastructureReady").0, "True Carried");

    scene.kubectl(&["delete", BALANCERS, "younger", "--wait=false"]);
    scene.until("it gets what is free", || {
        ask(&lab.client, MACHINE, ELSEWHERE).is_ok_and(|answer| answer == "wanted-a")
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn an_address_of_a_pool_is_shared_moves_and_is_given_back() {
    const ADDRESS: &str = "192.0.2.100";
    let scene = Scene::new("places-pool");
    let street = Street::new();
    let (visitor, member) = (street.join("client", 10), street.join("member", 20));
    let _backend = Backend::start(&member, PORT);
    let names = ["first", "second"];
    let machines = [street.join(names[0], 1), street.join(names[1], 2)];
    scene.cluster("c", json!({}), json!({}));
    scene.control_plane("c", "lb", "member", "192.0.2.20");
    let pool = json!({"apiGroup": "ipam.example.com", "kind": "Pool", "name": "edge"});
    on_machines(&scene, "lb", json!({"listeners": listeners()}), json!({"addressFrom": {"poolRef": pool}}));
    let places = [Place::new(), Place::new()];
    let _controllers = (scene.look_after().await, controller(&scene).await);
    let mut agents = [
        Some(carrying(&scene, &machines[0], names[0], Some(sharing("to-switch", 150)), &places[0]).await),
        Some(carrying(&scene, &machines[1], names[1], Some(sharing("to-switch", 100)), &places[1]).await),
    ];
    scene.until("an address is asked for", || {
        scene.condition("lb", "InfrastructureReady").0 == "False WaitingForAddress"
            && scene.get("ipaddressclaim", "lb")["spec"]["poolRef"]["name"] == "edge"
    });
    let has = |number: usize| machines[number].run("ip -o address show dev to-switch").contains(ADDRESS);
    assert!(!has(0) && !has(1));

    give_address(&scene, "lb", ADDRESS);
    scene.until("it serves", || scene.status("lb", "member").as_deref() == Some("active"));
    scene.until("one machine has the address", || holders(&scene).len() == 1 && has(0) != has(1));
    assert_eq!(scene.get("loadbalancer", "lb")["status"]["address"], ADDRESS);
    scene.until("it answers there", || ask(&visitor, ADDRESS, FRONT).is_ok_and(|answer| answer == "member"));

    // That machine dies with all that is on it.
    let holder = usize::from(has(1));
    drop(agents[holder].take());
    places[holder].kill_haproxy();
    places[holder].kill_keepalived();
    machines[holder].run("ip link set to-switch down");
    scene.until("the other one has it", || {
        has(1 - holder) && ask(&visitor, ADDRESS, FRONT).is_ok_and(|answer| answer == "member")
    });
    scene.until("that is told", || holders(&scene).contains(&names[1 - holder].to_owned()));
    assert_eq!(scene.get("loadbalancer", "lb")["status"]["address"], ADDRESS, "it is the same");

    scene.kubectl(&["delete", BALANCERS, "lb", "--wait=false"]);
    take_address_back(&scene, "lb");
    scene.until("no machine has it", || !has(1 - holder));
    for kind in ["loadbalancer", "haproxyloadbalancer", "ipaddressclaim"] {
        scene.until("nothing is left", || scene.get(kind, "lb") == Value::Null);
    }
}
