//! Load balancers on machines with `HAProxy`: real packets through real ones, while Machines come and go.

use std::collections::BTreeMap;
use std::time::Duration;

use portcullis_controllers::cluster::OnMachines;
use portcullis_controllers::{ServiceController, Settings as ServiceSettings};
use portcullis_kube_api::LoadBalancerClass;
use portcullis_kube_api::cluster::Flavour;
use portcullis_testkit::talk::{Backend, Held, Load, Visits, ask};
use serde_json::{Value, json};

use crate::kills::haproxy;
use crate::lab::{
    Agent, FRONT, Lab, PORT, Place, Street, agent, carrying, carrying_alone, controller, give_address,
    holders, instances, listeners, machine, on_machines, sharing,
};
use crate::scene::{Scene, client};

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_roll_refuses_nobody() {
    let scene = Scene::new("machines-roll");
    let (old, new) = (["a-old", "b-old", "c-old"], ["d-new", "e-new", "f-new"]);
    let mut lab = Lab::new(&[old, new].concat());
    scene.cluster("c", json!({}), json!({"controlPlaneEndpoint": {"host": "192.0.2.1", "port": FRONT}}));
    for name in old {
        machine(&scene, &lab, name);
    }
    // Longer than a busy machine takes for what is to happen within it.
    let drain = 30;
    on_machines(&scene, "lb", json!({"listeners": listeners(), "drainTimeoutSeconds": drain}), json!({}));
    let place = Place::new();
    let _all = (scene.look_after().await, controller(&scene).await, agent(&scene, &lab, &place).await);
    for name in old {
        scene.until("it serves", || scene.status("lb", name).as_deref() == Some("active"));
    }
    assert_eq!(scene.get("loadbalancer", "lb")["status"]["address"], "192.0.2.1");

    let load = Load::start(&lab.client, "192.0.2.1", FRONT);
    // Connections that stay: one to each; and some that end while it drains.
    let one_to_each = || {
        let mut held: BTreeMap<String, Held> = BTreeMap::new();
        while held.len() < old.len() {
            let mut one = Held::connect(&lab.client, "192.0.2.1", FRONT).unwrap();
            held.entry(one.ask().unwrap()).or_insert(one);
        }
        held
    };
    let (mut held, mut shorter) = (one_to_each(), one_to_each());
    let visits = Visits::start(&lab.client, "192.0.2.1", FRONT);
    let (mut visited, begin) = (0, load.count());

    for (number, (old, new)) in (1..).zip(old.iter().zip(new)) {
        machine(&scene, &lab, new);
        scene.until("the new one serves", || scene.status("lb", new).as_deref() == Some("active"));
        scene.until("some are at the old one", || visits.with(old) > 0);
        scene.kubectl(&["delete", "machine", old, "--wait=false"]);
        scene.until("the old one drains", || scene.status("lb", old).as_deref() == Some("draining"));
        visited += visits.with(old);
        assert_eq!(held.get_mut(*old).unwrap().ask().unwrap(), *old, "what it has goes on");
        let mut shorter = shorter.remove(*old).unwrap();
        for _ in 0..20 {
            assert_eq!(shorter.ask().unwrap(), *old, "as long as it likes, within the time");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        shorter.end().unwrap();
        // Nothing is taken from it before it has left.
        scene.until("its infrastructure goes", || {
            scene.get("labmachine", old)["metadata"].get("deletionTimestamp").is_some()
        });
        for name in [*old, new] {
            lab.count_tries(name);
        }
        lab.end(old);
        assert_eq!(scene.annotation(old, "loadbalancer.cluster.x-k8s.io/status").as_deref(), Some("removed"));
        assert!(held.get_mut(*old).unwrap().has_ended(), "its time was over");
        assert_ne!(
            ask(&lab.client, "192.0.2.1", FRONT).unwrap(),
            *old,
            "who comes again is with another one"
        );
        let balancer = scene.get("loadbalancer", "lb");
        let targets = balancer["status"]["targets"].as_array().unwrap().clone();
        let target = targets.iter().find(|target| target["name"] == *old).unwrap();
        assert_eq!(target["message"], "1 connections were ended when their time was over.");
        // A third of all connections is made before it is gone.
        load.until(begin + number * 3_400);
        scene.patch("labmachine", old, &json!({"metadata": {"finalizers": null}}));
        scene.until("it is gone", || scene.get("machine", old) == Value::Null);
        scene.until("who is there is sent to", || lab.tries(new) > 0);
    }
    for old in old {
        assert_eq!(lab.tries(old), 0, "nobody was sent to {old} once it had left, nor late to another");
    }
    let made = load.count() - begin;
    assert!(made >= 10_000, "{made} connections while machines came and went");
    load.more(200);
    let (count, failures) = load.end();
    assert_eq!(failures, Vec::<String>::new(), "of {count} connections");
    let (count, broken) = visits.end(Duration::from_secs(drain));
    assert_eq!(broken, Vec::<String>::new(), "of {count} that lasted for some seconds");
    assert!(visited > 0, "some of them were with one that drained");
    assert!(new.contains(&ask(&lab.client, "192.0.2.1", FRONT).unwrap().as_str()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn traffic_goes_on_without_us() {
    let scene = Scene::new("machines-alone");
    let lab = Lab::new(&["a", "b"]);
    scene.cluster("c", json!({}), json!({}));
    machine(&scene, &lab, "a");
    on_machines(
        &scene,
        "lb",
        json!({"listeners": listeners(), "allowedSourceRanges": ["192.0.2.0/24"]}),
        json!({}),
    );
    let place = Place::new();
    let others = (scene.look_after().await, controller(&scene).await);
    let first = agent(&scene, &lab, &place).await;
    scene.until("it serves", || scene.status("lb", "a").as_deref() == Some("active"));
    assert_eq!(scene.condition("lb", "SourceRangesEnforced").0, "True Enforced");
    let mut held = Held::connect(&lab.client, "192.0.2.1", FRONT).unwrap();
    assert_eq!(held.ask().unwrap(), "a");
    drop((first, others));
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(held.ask().unwrap(), "a");
    assert_eq!(ask(&lab.client, "192.0.2.1", FRONT).unwrap(), "a");
    // Started again, everything is taken over as it is.
    machine(&scene, &lab, "b");
    let _all = (scene.look_after().await, controller(&scene).await, agent(&scene, &lab, &place).await);
    scene.until("the other one serves", || scene.status("lb", "b").as_deref() == Some("active"));
    assert_eq!(held.ask().unwrap(), "a");
    // Who is outside is not let in, as soon as that is wanted.
    scene.patch(
        "loadbalancers.loadbalancer.portcullis.dev",
        "lb",
        &json!({"spec": {"allowedSourceRanges": ["198.51.100.0/24"]}}),
    );
    scene.until("nobody gets in", || ask(&lab.client, "192.0.2.1", FRONT).is_err());
    scene.until("that is told", || {
        scene.get("loadbalancer", "lb")["status"]["allowedSourceRanges"] == json!(["198.51.100.0/24"])
    });
    assert_eq!(held.ask().unwrap(), "a", "who is in stays");
}

/// Nodes that are ready, at the addresses that members have in a lab.
fn nodes(scene: &Scene, names: &[&str]) {
    for (number, name) in names.iter().enumerate() {
        let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}});
        scene.kubernetes.apply(&node.to_string()).unwrap();
        let status = json!({"status": {
            "addresses": [{"type": "InternalIP", "address": format!("10.9.{number}.2")}],
            "conditions": [{"type": "Ready", "status": "True"}],
        }});
        let patch =
            ["patch", "node", name, "--subresource=status", "--type=merge", "-p", &status.to_string()];
        scene.kubernetes.kubectl(&patch).unwrap();
        let untaint = json!({"spec": {"taints": null}});
        scene
            .kubernetes
            .kubectl(&["patch", "node", name, "--type=merge", "-p", &untaint.to_string()])
            .unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn services_are_carried_too() {
    let scene = Scene::new("machines-services");
    let names = ["services-a", "services-b"];
    let mut lab = Lab::new(&names);
    nodes(&scene, &names);
    let class = "portcullis.dev/machines-services";
    scene.apply(json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {"name": "web", "annotations": {"portcullis.dev/haproxy-pool": scene.name}},
        "spec": {
            "type": "LoadBalancer", "loadBalancerClass": class, "loadBalancerSourceRanges": ["192.0.2.0/24"],
            "ports": [{"port": 80, "nodePort": 30080}],
        },
    }));
    for name in names {
        let running = lab.backends.get_mut(name).unwrap();
        running.backend = Some(Backend::start(&running.host, 30080));
    }
    let settings = ServiceSettings {
        cluster: "test".to_owned(),
        class: LoadBalancerClass { name: class.to_owned(), without_class: None },
        concurrency: 4,
        resync: Duration::from_secs(1),
        close_look: Duration::from_secs(3600),
        sweep_after: Duration::from_secs(600),
        observe: false,
        host: "test".to_owned(),
    };
    let place = Place::new();
    let api = client(scene.kubernetes).await;
    let provider = OnMachines::start(api.clone(), Flavour::Own);
    let services = Agent { task: tokio::spawn(ServiceController::new(api, provider, settings).run()) };
    let _all = (services, controller(&scene).await, agent(&scene, &lab, &place).await);
    scene.until("the Service has an address", || {
        scene.get("service", "web")["status"]["loadBalancer"]["ingress"][0]["ip"] == "192.0.2.1"
    });
    scene.until("both nodes are reached", || {
        let answers: Vec<String> = (0..8).filter_map(|_| ask(&lab.client, "192.0.2.1", 80).ok()).collect();
        names.iter().all(|name| answers.iter().any(|answer| answer == name))
    });
    // It has addresses of IPv4, as its Service has, and who has both is not open by the other.
    let listening = lab.carrier.run("ss -Hltn");
    assert!(listening.contains("0.0.0.0:80 ") && !listening.contains("[::]:80 "), "{listening}");
    // What somebody else calls so is not taken for the Service's.
    let theirs = json!({
        "apiVersion": "loadbalancer.portcullis.dev/v1alpha1", "kind": "HAProxyLoadBalancer",
        "metadata": {"name": "service-other"}, "spec": {"pool": "theirs"},
    });
    scene.apply(theirs);
    scene.apply(json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "other"},
        "spec": {"type": "LoadBalancer", "loadBalancerClass": class, "ports": [{"port": 81}]},
    }));
    scene.until("that is told", || {
        scene
            .events("other")
            .iter()
            .any(|event| event.contains("service-other is there, and not of this Service"))
    });
    assert_eq!(scene.get("haproxyloadbalancer", "service-other")["spec"], json!({"pool": "theirs"}));
    // A node that goes finishes what it has.
    let mut held = Held::connect(&lab.client, "192.0.2.1", 80).unwrap();
    let holder = held.ask().unwrap();
    scene.kubernetes.kubectl(&["delete", "node", &holder]).unwrap();
    scene.until("nothing new goes there", || {
        (0..8).all(|_| ask(&lab.client, "192.0.2.1", 80).is_ok_and(|answer| answer != holder))
    });
    assert_eq!(held.ask().unwrap(), holder);
    let asked = || scene.get("haproxyloadbalancer", "service-web")["spec"]["assignment"].clone();
    let members =
        || asked()["members"].as_array().unwrap().iter().map(|one| one["name"].clone()).collect::<Vec<_>>();
    assert_eq!(members().len(), 2);
    drop(held);
    let other = names.iter().find(|name| **name != holder).unwrap();
    scene.until("it has left", || members() == [*other]);
    // What is not asked for any more is gone from what the machines read: ranges, and who has left.
    scene.patch("service", "web", &json!({"spec": {"loadBalancerSourceRanges": ["198.51.100.0/24"]}}));
    scene.until("nobody here may connect", || ask(&lab.client, "192.0.2.1", 80).is_err());
    scene.patch("service", "web", &json!({"spec": {"loadBalancerSourceRanges": null}}));
    scene.until("everybody may", || ask(&lab.client, "192.0.2.1", 80).is_ok());
    assert_eq!((asked().get("allowedSourceRanges"), members()), (None, vec![json!(other)]));
    // What becomes of it is followed: its address, and that somebody deletes it.
    lab.carrier.run("ip address delete 192.0.2.1/24 dev to-client");
    lab.carrier.run("ip address add 192.0.2.9/24 dev to-client");
    scene.until("the Service has the new address", || {
        scene.get("service", "web")["status"]["loadBalancer"]["ingress"][0]["ip"] == "192.0.2.9"
    });
    scene.kubectl(&["delete", "haproxyloadbalancer", "service-web"]);
    scene.until("it is there again", || ask(&lab.client, "192.0.2.9", 80).is_ok());
    scene.kubectl(&["delete", "service", "web"]);
    scene.until("nothing listens any more", || ask(&lab.client, "192.0.2.9", 80).is_err());
    scene.kubernetes.kubectl(&["delete", "node", other]).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn an_address_comes_from_a_pool() {
    let scene = Scene::new("machines-pool");
    let lab = Lab::new(&["pool-a"]);
    scene.cluster("c", json!({}), json!({}));
    machine(&scene, &lab, "pool-a");
    let pool = json!({"apiGroup": "ipam.example.com", "kind": "Pool", "name": "edge"});
    on_machines(&scene, "lb", json!({"listeners": listeners()}), json!({"addressFrom": {"poolRef": pool}}));
    let place = Place::new();
    let _all = (scene.look_after().await, controller(&scene).await, agent(&scene, &lab, &place).await);
    scene.until("an address is asked for", || {
        scene.get("ipaddressclaim", "lb")["spec"]["poolRef"]["name"] == "edge"
    });
    scene.until("that is told", || {
        scene.condition("lb", "InfrastructureReady").0 == "False WaitingForAddress"
    });
    give_address(&scene, "lb", "192.0.2.1");
    scene.until("it serves there", || {
        scene.status("lb", "pool-a").as_deref() == Some("active")
            && scene.get("loadbalancer", "lb")["status"]["address"] == "192.0.2.1"
    });
    assert_eq!(ask(&lab.client, "192.0.2.1", FRONT).unwrap(), "pool-a");
    assert!(ask(&lab.client, "10.9.0.1", FRONT).is_err(), "and nowhere else");
}

/// While a pool gives nothing, the address in the status is one that a machine has for itself: nobody else gets that one.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_machines_own_address_is_not_shared_while_a_pool_is_waited_for() {
    let scene = Scene::new("machines-own");
    let street = Street::new();
    let (visitor, edge) = (street.join("client", 10), street.join("edge", 1));
    let (one, two) = (street.join("one", 20), street.join("two", 21));
    let _backends = (Backend::start(&one, PORT), Backend::start(&two, PORT));
    scene.cluster("c", json!({}), json!({}));
    scene.control_plane("c", "lb", "one", "192.0.2.20");
    on_machines(&scene, "lb", json!({"listeners": listeners()}), json!({}));
    let place = Place::new();
    let _controllers = (scene.look_after().await, controller(&scene).await);
    let _agent = carrying(&scene, &edge, "edge", Some(sharing("to-switch", 100)), &place).await;
    scene.until("it serves", || scene.status("lb", "one").as_deref() == Some("active"));
    assert_eq!(scene.get("loadbalancer", "lb")["status"]["address"], "192.0.2.1");
    let from = |name: &str| {
        let pool = json!({"apiGroup": "ipam.example.com", "kind": "Pool", "name": name});
        scene.patch("haproxyloadbalancer", "lb", &json!({"spec": {"addressFrom": {"poolRef": pool}}}));
    };
    // One that cannot be asked is in the way of nothing but the address.
    from("Not a name");
    scene.until("that is told", || {
        let (state, message) = scene.condition("lb", "InfrastructureReady");
        state == "False WaitingForAddress"
            && message.contains("The pool Pool Not a name cannot be asked for an address")
    });
    // The machine has seen that when it has seen what came later.
    scene.control_plane("c", "lb", "two", "192.0.2.21");
    scene.until("another serves", || scene.status("lb", "two").as_deref() == Some("active"));
    assert!(!place.file("shared/keepalived.conf").exists(), "nothing is shared");
    assert_eq!(holders(&scene), Vec::<String>::new());
    assert!(ask(&visitor, "192.0.2.1", FRONT).is_ok(), "it goes on as it was");
    from("edge");
    scene.until("an address is asked for", || scene.get("ipaddressclaim", "lb") != Value::Null);
    give_address(&scene, "lb", "192.0.2.100");
    scene.until("it serves there", || {
        scene.get("loadbalancer", "lb")["status"]["address"] == "192.0.2.100"
            && ask(&visitor, "192.0.2.100", FRONT).is_ok()
    });
}

/// Endpoints that differ, another load balancer that wants the same Machines, and a kind that nobody knows.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn what_is_wrong_costs_nobody_a_connection() {
    let scene = Scene::new("machines-wrong");
    let lab = Lab::new(&["wrong-a", "wrong-b"]);
    let endpoint = |host: &str| json!({"spec": {"controlPlaneEndpoint": {"host": host, "port": FRONT}}});
    let named = json!({"annotations": {"portcullis.dev/control-plane-load-balancer": "lb"}});
    scene.cluster("c", named, endpoint("192.0.2.1")["spec"].clone());
    machine(&scene, &lab, "wrong-a");
    machine(&scene, &lab, "wrong-b");
    on_machines(&scene, "lb", json!({"listeners": listeners()}), json!({}));
    let place = Place::new();
    let _all = (scene.look_after().await, controller(&scene).await, agent(&scene, &lab, &place).await);
    scene.until("both serve", || {
        ["wrong-a", "wrong-b"].iter().all(|name| scene.status("lb", name).as_deref() == Some("active"))
    });
    let load = Load::start(&lab.client, "192.0.2.1", FRONT);
    let mut held = [(); 8].map(|()| Held::connect(&lab.client, "192.0.2.1", FRONT).unwrap());
    let by: Vec<String> = held.iter_mut().map(|held| held.ask().unwrap()).collect();

    scene.patch("cluster", "c", &endpoint("new.example.com"));
    scene.until("that is told", || scene.condition("lb", "EndpointReady").0 == "False EndpointMismatch");
    load.more(100);
    scene.patch("cluster", "c", &endpoint("192.0.2.1"));

    let selector = json!({"matchLabels": {"loadbalancer.cluster.x-k8s.io/name": "lb"}});
    scene.balancer("c", "second", json!({"selector": selector}));
    scene.until("the second one is told", || {
        scene.condition("second", "MembersUpToDate").0 == "False MemberOfAnother"
    });
    load.more(100);

    let unknown = json!({"apiGroup": "example.com", "kind": "MoonBalancer", "name": "lb"});
    scene.patch("loadbalancer", "lb", &json!({"spec": {"infrastructureRef": unknown}}));
    scene.until("it is named", || scene.condition("lb", "InfrastructureReady").1.contains("MoonBalancer"));
    load.more(100);
    let (count, failures) = load.end();
    assert_eq!(failures, Vec::<String>::new(), "of {count} connections");
    assert!(held.iter_mut().map(|held| held.ask().unwrap()).eq(by));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn haproxy_that_is_killed_is_back() {
    let scene = Scene::new("machines-faults");
    let lab = Lab::new(&["fault-a"]);
    scene.cluster("c", json!({}), json!({}));
    machine(&scene, &lab, "fault-a");
    on_machines(&scene, "lb", json!({"listeners": listeners()}), json!({}));
    let place = Place::new();
    let _all = (scene.look_after().await, controller(&scene).await, agent(&scene, &lab, &place).await);
    scene.until("it serves", || scene.status("lb", "fault-a").as_deref() == Some("active"));
    place.kill_haproxy();
    scene
        .until("it is back", || ask(&lab.client, "192.0.2.1", FRONT).is_ok_and(|answer| answer == "fault-a"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_pair_of_machines_has_no_single_point_of_failure() {
    let scene = Scene::new("machines-pair");
    let street = Street::new();
    let (visitor, member) = (street.join("client", 10), street.join("member", 20));
    let _backend = Backend::start(&member, PORT);
    let machines = [street.join("first", 1), street.join("second", 2)];
    scene.cluster("c", json!({}), json!({}));
    scene.control_plane("c", "lb", "member", "192.0.2.20");
    on_machines(&scene, "lb", json!({"listeners": listeners()}), json!({"addresses": ["192.0.2.100"]}));
    let places = [Place::new(), Place::new()];
    let shared = |priority| sharing("to-switch", priority);
    let _controllers = (scene.look_after().await, controller(&scene).await);
    let mut agents = vec![
        carrying(&scene, &machines[0], "first", Some(shared(150)), &places[0]).await,
        carrying(&scene, &machines[1], "second", Some(shared(100)), &places[1]).await,
    ];
    scene.until("it serves", || scene.status("lb", "member").as_deref() == Some("active"));
    let holders = || holders(&scene);
    scene.until("one of them has the address", || holders().len() == 1);
    let holder = usize::from(holders() == ["second"]);
    assert_eq!(ask(&visitor, "192.0.2.100", FRONT).unwrap(), "member");
    assert_eq!(scene.get("loadbalancer", "lb")["status"]["address"], "192.0.2.100");
    // It is unplugged, and its agent with it.
    machines[holder].run("ip link set to-switch down");
    drop(agents.remove(holder));
    scene.until("the other one has it", || {
        ask(&visitor, "192.0.2.100", FRONT).is_ok_and(|answer| answer == "member")
    });
    let other = ["second", "first"][holder].to_owned();
    scene.until("that is told", || holders().contains(&other));
}

/// How many connections came to the load balancers of a machine.
fn came(place: &Place) -> u64 {
    let shown = haproxy(place, "show stat");
    let mut lines = shown.lines().map(|line| line.trim_start_matches("# ").split(',').collect::<Vec<_>>());
    let names = lines.next().unwrap();
    let column = |name: &str| names.iter().position(|found| *found == name).unwrap();
    let (kind, total) = (column("svname"), column("stot"));
    let frontends = lines.filter(|line| line.get(kind) == Some(&"FRONTEND"));
    frontends.map(|line| line[total].parse::<u64>().unwrap()).sum()
}

/// Both machines have the same address, and routes lead to either; others look after these.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn routes_of_equal_cost_lead_to_both_machines_and_one_is_enough() {
    const ADDRESS: &str = "198.51.100.100";
    let scene = Scene::new("machines-routes");
    let street = Street::new();
    let (visitor, member) = (street.join("client", 10), street.join("member", 20));
    let _backend = Backend::start(&member, PORT);
    let machines = [street.join("first", 1), street.join("second", 2)];
    for machine in &machines {
        machine.run(&format!("ip address add {ADDRESS}/32 dev lo"));
    }
    // Connections are spread, and not clients.
    visitor.set("net/ipv4/fib_multipath_hash_policy", "1");
    let both = "nexthop via 192.0.2.1 nexthop via 192.0.2.2";
    visitor.run(&format!("ip route add {ADDRESS}/32 {both}"));
    scene.cluster("c", json!({}), json!({}));
    scene.control_plane("c", "lb", "member", "192.0.2.20");
    on_machines(&scene, "lb", json!({"listeners": listeners()}), json!({"addresses": [ADDRESS]}));
    let places = [Place::new(), Place::new()];
    let _controllers = (scene.look_after().await, controller(&scene).await);
    let mut agents = vec![
        carrying(&scene, &machines[0], "first", None, &places[0]).await,
        carrying(&scene, &machines[1], "second", None, &places[1]).await,
    ];
    scene.until("both carry it", || {
        holders(&scene).len() == 2
            && scene.condition("lb", "InfrastructureReady").0 == "True Carried"
            && scene.status("lb", "member").as_deref() == Some("active")
    });
    assert_eq!(scene.get("loadbalancer", "lb")["status"]["address"], ADDRESS);
    let load = Load::start(&visitor, ADDRESS, FRONT);
    load.more(500);
    let (count, failures) = load.end();
    assert_eq!(failures, Vec::<String>::new(), "of {count} connections");
    assert!(places.iter().all(|place| came(place) > 100), "both get some of {count}");

    let mut held = [(); 16].map(|()| Held::connect(&visitor, ADDRESS, FRONT).unwrap());
    assert!(held.iter_mut().all(|held| held.ask().is_ok()));
    let by = |number: usize| haproxy(&places[number], "show sess").matches(" src=192.0.2.10:").count();
    scene.until("nobody else is there", || by(0) + by(1) == held.len());
    let by_second = by(1);
    // One is lost, and whoever looks after routes takes its away.
    drop(agents.remove(0));
    places[0].kill_haproxy();
    machines[0].run("ip link set to-switch down");
    visitor.run(&format!("ip route replace {ADDRESS}/32 via 192.0.2.2"));
    let load = Load::start(&visitor, ADDRESS, FRONT);
    load.more(500);
    let go_on = held.iter_mut().map(|held| held.ask().is_ok()).filter(|goes_on| *goes_on).count();
    assert_eq!(go_on, by_second, "what the other one has goes on");
    let (count, failures) = load.end();
    assert_eq!(failures, Vec::<String>::new(), "of {count} connections by the other one");
    assert_eq!(scene.get("loadbalancer", "lb")["status"]["address"], ADDRESS);
    assert_eq!(scene.status("lb", "member").as_deref(), Some("active"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_address_leaves_a_machine_whose_haproxy_does_not_start() {
    let scene = Scene::new("machines-unfit");
    let street = Street::new();
    let (visitor, members) =
        (street.join("client", 10), [street.join("member", 20), street.join("leaves", 21)]);
    let _backends = members.each_ref().map(|host| Backend::start(host, PORT));
    let machines = [street.join("first", 1), street.join("second", 2)];
    scene.cluster("c", json!({}), json!({}));
    scene.control_plane("c", "lb", "member", "192.0.2.20");
    scene.control_plane("c", "lb", "leaves", "192.0.2.21");
    on_machines(&scene, "lb", json!({"listeners": listeners()}), json!({"addresses": ["192.0.2.100"]}));
    let places = [Place::fragile(), Place::fragile()];
    let _controllers = (scene.look_after().await, controller(&scene).await);
    let names = ["first", "second"];
    let shared = |number: usize| Some(sharing("to-switch", [150, 100][number]));
    let mut agents = [
        carrying(&scene, &machines[0], names[0], shared(0), &places[0]).await,
        carrying(&scene, &machines[1], names[1], shared(1), &places[1]).await,
    ];
    for name in ["member", "leaves"] {
        scene.until("it serves", || scene.status("lb", name).as_deref() == Some("active"));
    }
    scene.until("both carry it", || scene.condition("lb", "InfrastructureReady").0 == "True Carried");
    scene.until("one of them has the address", || holders(&scene).len() == 1);
    let holder = usize::from(holders(&scene) == ["second"]);
    // One that is back at once keeps it; what was found running counts as well.
    agents[holder] =
        carrying(&scene, &machines[holder], names[holder], shared(holder), &places[holder]).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    places[holder].kill_haproxy();
    scene.until("it is back", || ask(&visitor, "192.0.2.100", FRONT).is_ok());
    // If it gave it up the other one would have it within two seconds, which is told a moment later.
    tokio::time::sleep(Duration::from_secs(6)).await;
    assert_eq!(holders(&scene), [names[holder]]);

    places[holder].break_haproxy("the disk is broken");
    places[holder].kill_haproxy();
    scene.until("the other one has it", || {
        ask(&visitor, "192.0.2.100", FRONT).is_ok_and(|answer| answer == "member" || answer == "leaves")
    });
    scene.until("that is told", || holders(&scene) == [names[1 - holder]]);
    scene.until("and why", || {
        let (state, message) = scene.condition("lb", "InfrastructureReady");
        let start = format!("{}: HAProxy does not run", names[holder]);
        state == "True CarriedInPart" && message.starts_with(&start) && message.contains("the disk is broken")
    });
    assert_eq!(scene.status("lb", "member").as_deref(), Some("active"), "the other one sends to it");
    // It has not done what is asked for now, and nobody says that it has.
    scene.kubectl(&["delete", "machine", "leaves", "--wait=false"]);
    scene.until("the other one is done with it", || {
        let other = instances(&scene).into_iter().find(|instance| instance["name"] == names[1 - holder]);
        let members = other.unwrap_or_default()["members"].as_array().cloned().unwrap_or_default();
        members.iter().any(|member| member["name"] == "leaves" && member["status"] == "removed")
    });
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(scene.status("lb", "leaves").as_deref(), Some("draining"));
    assert!(scene.condition("lb", "InfrastructureReady").1.contains("the disk is broken"));
    places[holder].mend_haproxy();
    scene.until("all is well", || scene.condition("lb", "InfrastructureReady").0 == "True Carried");
    scene.until("it may go", || scene.get("machine", "leaves") == Value::Null);
    assert_eq!(ask(&visitor, "192.0.2.100", FRONT).unwrap(), "member");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn an_address_that_cannot_be_shared_keeps_nothing_else_from_going_on() {
    let scene = Scene::new("machines-unshared");
    let street = Street::new();
    let visitor = street.join("client", 10);
    let members = [street.join("one", 20), street.join("two", 21)];
    let _backends = members.each_ref().map(|host| Backend::start(host, PORT));
    let edge = street.join("edge", 1);
    // As somebody does by hand who needs it now.
    edge.run("ip address add 192.0.2.100/32 dev to-switch");
    scene.cluster("c", json!({}), json!({}));
    scene.control_plane("c", "lb", "one", "192.0.2.20");
    on_machines(&scene, "lb", json!({"listeners": listeners()}), json!({"addresses": ["192.0.2.100"]}));
    let place = Place::new();
    let _controllers = (scene.look_after().await, controller(&scene).await);
    let _agent = carrying(&scene, &edge, "edge", Some(sharing("to-swicth", 100)), &place).await;
    scene.until("that is told", || {
        let (state, message) = scene.condition("lb", "InfrastructureReady");
        state == "False Problem" && message.starts_with("edge: ") && message.contains("to-swicth")
    });
    scene.until("connections pass", || ask(&visitor, "192.0.2.100", FRONT).is_ok());
    scene.control_plane("c", "lb", "two", "192.0.2.21");
    scene.until("who comes gets some", || {
        (0..4).any(|_| ask(&visitor, "192.0.2.100", FRONT).is_ok_and(|answer| answer == "two"))
    });
    scene.until("it serves", || scene.status("lb", "two").as_deref() == Some("active"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn an_address_that_no_machine_takes_is_not_told() {
    let scene = Scene::new("machines-clash");
    let street = Street::new();
    let edge = street.join("edge", 1);
    scene.cluster("c", json!({}), json!({}));
    let place = Place::new();
    let _controllers = (scene.look_after().await, controller(&scene).await);
    let _agent = carrying(&scene, &edge, "edge", Some(sharing("to-switch", 100)), &place).await;
    let address = |name: &str| scene.get("haproxyloadbalancer", name)["status"]["address"].clone();
    for (name, asked) in [("other", "192.0.2.77"), ("lb", "192.0.2.100")] {
        on_machines(&scene, name, json!({"listeners": listeners()}), json!({"addresses": [asked]}));
        scene.until("it is carried", || {
            address(name) == asked && scene.condition(name, "InfrastructureReady").0 == "True Carried"
        });
    }
    scene.patch("haproxyloadbalancer", "lb", &json!({"spec": {"addresses": ["198.51.100.77"]}}));
    scene.until("why not is told", || {
        let (state, message) = scene.condition("lb", "InfrastructureReady");
        state == "False Problem" && message.contains("spec.virtualRouterID")
    });
    assert_eq!(address("lb"), "192.0.2.100", "where it still is");
    scene.patch("haproxyloadbalancer", "lb", &json!({"spec": {"virtualRouterID": 78}}));
    scene.until("it is there", || address("lb") == "198.51.100.77");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn after_a_power_cut_traffic_passes_before_the_api_answers() {
    let scene = Scene::new("machines-dark");
    let street = Street::new();
    let (visitor, member) = (street.join("client", 10), street.join("member", 20));
    let _backend = Backend::start(&member, PORT);
    let edge = street.join("edge", 1);
    scene.cluster("c", json!({}), json!({}));
    scene.control_plane("c", "lb", "member", "192.0.2.20");
    on_machines(&scene, "lb", json!({"listeners": listeners()}), json!({"addresses": ["192.0.2.100"]}));
    let place = Place::new();
    let shared = || Some(sharing("to-switch", 100));
    let _controllers = (scene.look_after().await, controller(&scene).await);
    let agent = carrying(&scene, &edge, "edge", shared(), &place).await;
    scene.until("it serves", || ask(&visitor, "192.0.2.100", FRONT).is_ok_and(|answer| answer == "member"));
    drop(agent);
    place.kill_haproxy();
    place.kill_keepalived();
    edge.run("ip address del 192.0.2.100/32 dev to-switch");
    assert!(ask(&visitor, "192.0.2.100", FRONT).is_err());
    let before = instances(&scene);
    let _agent = carrying_alone(&scene, &edge, "edge", shared(), &place);
    scene.until("it serves", || ask(&visitor, "192.0.2.100", FRONT).is_ok_and(|answer| answer == "member"));
    assert_eq!(instances(&scene), before);
}
