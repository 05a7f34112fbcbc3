//! What people wanted load balancers of clusters for: their stories, one by one. The first, network load balancers on AWS, is told
//! where these are tested, and the fifth, from one provider to another, in [`crate::moves`], with traffic.

use std::time::Duration;

use portcullis_testkit::eventually_within;
use portcullis_testkit::talk::{Backend, ask};
use serde_json::{Value, json};

use crate::lab::{
    FRONT, PORT, Place, Street, carrying, controller, holders, instances, listeners, on_machines, sharing,
};
use crate::nlb;
use crate::scene::Scene;

/// By this a cluster is found at its load balancer.
const CONTROL_PLANE: &str = "portcullis.dev/control-plane-load-balancer";

const BALANCERS: &str = "loadbalancers.loadbalancer.portcullis.dev";

fn address(scene: &Scene) -> Value {
    scene.get("loadbalancer", "lb")["status"]["address"].clone()
}

/// Story 2: a product that somebody bought makes them, by types of its own in a group of its own.
#[tokio::test(flavor = "multi_thread")]
async fn a_provider_of_somebody_else() {
    let scene = Scene::new("stories-bought");
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "appliances.lb.example.com"},
        "spec": {
            "group": "lb.example.com",
            "names": {"kind": "Appliance", "plural": "appliances"},
            "scope": "Namespaced",
            "versions": [{
                "name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
            }],
        },
    });
    scene.cluster("c", json!({"annotations": {CONTROL_PLANE: "lb"}}), json!({}));
    scene.control_plane("c", "lb", "one", "10.0.0.1");
    scene.control_plane("c", "lb", "two", "10.0.0.2");
    let running = scene.look_after().await;
    let reference = json!({"apiGroup": "lb.example.com", "kind": "Appliance", "name": "lb"});
    scene.balancer("c", "lb", json!({"infrastructureRef": reference, "drainTimeoutSeconds": 600}));
    scene.until("that it is not known is told", || {
        scene.condition("lb", "InfrastructureReady").1.contains("Appliance")
    });
    // It is installed after that.
    scene.kubernetes.apply_types(&definition.to_string()).unwrap();
    scene.apply(json!({
        "apiVersion": "lb.example.com/v1", "kind": "Appliance", "metadata": {"name": "lb"},
        "spec": {"licence": "1234"},
    }));
    let asked = || scene.get("appliance", "lb")["spec"]["assignment"].clone();
    scene.until("it is asked", || asked()["members"].as_array().is_some_and(|all| all.len() == 2));
    assert_eq!(scene.get("appliance", "lb")["spec"]["licence"], "1234", "what is its user's stays");
    assert_eq!(asked()["members"][0]["addresses"], json!(["10.0.0.1"]));
    let say = |statuses: [&str; 2]| {
        let generation = scene.get("appliance", "lb")["metadata"]["generation"].clone();
        let status = json!({"status": {
            "observedGeneration": generation,
            "initialization": {"provisioned": true},
            "address": "vip.example.com",
            "members": [{"name": "one", "status": statuses[0]}, {"name": "two", "status": statuses[1]}],
            "conditions": [{
                "type": "Ready", "status": "True", "reason": "Licensed", "message": "",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            }],
        }});
        let patch = status.to_string();
        scene.kubectl(&["patch", "appliance", "lb", "--subresource=status", "--type=merge", "-p", &patch]);
    };
    say(["active", "active"]);
    scene.until("clients find it", || {
        scene.get("cluster", "c")["spec"]["controlPlaneEndpoint"]
            == json!({"host": "vip.example.com", "port": 6443})
    });
    scene.kubectl(&["delete", "machine", "one", "--wait=false"]);
    scene.until("it is asked to let it go", || asked()["members"][0]["duty"] == "Leave");
    say(["draining", "active"]);
    scene.until("that is told", || scene.status("lb", "one").as_deref() == Some("draining"));
    assert!(scene.is_held("one", "lb"));
    say(["removed", "active"]);
    scene.until("it may go", || scene.get("machine", "one") == Value::Null);

    // It goes: the product knows what it made by what it was asked for, until it has taken that away.
    scene.patch("appliance", "lb", &json!({"metadata": {"finalizers": ["lb.example.com/appliance"]}}));
    scene.until("it is no member any more", || {
        asked()["members"].as_array().is_some_and(|all| all.len() == 1)
    });
    let last = asked();
    scene.kubectl(&["delete", BALANCERS, "lb", "--wait=false"]);
    let goes = |kind: &str| scene.get(kind, "lb")["metadata"].get("deletionTimestamp").is_some();
    scene.until("the product is told", || goes("appliance"));
    scene.until("what is waited for is told", || {
        scene.condition("lb", "Deleting")
            == ("True Deleting".to_owned(), "Appliance lb is being deleted.".to_owned())
    });
    assert!(!scene.is_held("two", "lb"), "nobody waits for that");
    // Also who starts meanwhile leaves it what it was asked for, and waits.
    drop(running);
    let running = scene.look_after().await;
    scene.patch("appliance", "lb", &json!({"spec": {"licence": "5678"}}));
    scene.balancer("c", "later", json!({"selector": {"matchLabels": {"role": "later"}}}));
    scene.until("another one is looked after", || {
        scene.get("labbalancer", "later")["spec"].get("assignment").is_some()
    });
    assert!(goes("loadbalancer"));
    assert_eq!(asked(), last);
    assert_eq!(scene.get("appliance", "lb")["metadata"]["finalizers"], json!(["lb.example.com/appliance"]));
    scene.patch("appliance", "lb", &json!({"metadata": {"finalizers": null}}));
    scene.until("all of it is gone", || {
        scene.get("appliance", "lb").is_null() && scene.get("loadbalancer", "lb").is_null()
    });
    drop(running);
}

/// Story 3a: a friendly name in the organization's DNS, which others write, for an address that does not change.
#[tokio::test(flavor = "multi_thread")]
async fn a_name_of_ones_own() {
    let scene = Scene::new("stories-name");
    scene.cluster("c", json!({"annotations": {CONTROL_PLANE: "lb"}}), json!({}));
    scene.balancer(
        "c",
        "lb",
        json!({
            "endpoint": {"host": "team.clusters.example.com", "port": 443},
            "alternateEndpoints": [{"host": "198.51.100.1", "port": 443}],
        }),
    );
    let dns = "external-dns.alpha.kubernetes.io/hostname";
    scene.kubectl(&["annotate", BALANCERS, "lb", &format!("{dns}=team.clusters.example.com")]);
    let _running = scene.look_after().await;
    scene.until("the provider knows the name", || {
        scene.get("labbalancer", "lb")["spec"]["assignment"]["endpoint"]["host"]
            == "team.clusters.example.com"
    });
    scene.report("lb", "198.51.100.1", &[]);
    // Who writes names needs both, and there is no Machine yet.
    scene.until("its address is told", || address(&scene) == "198.51.100.1");
    assert_eq!(scene.get("loadbalancer", "lb")["metadata"]["annotations"][dns], "team.clusters.example.com");
    scene.until("the cluster has the name", || {
        scene.get("cluster", "c")["spec"]["controlPlaneEndpoint"]
            == json!({"host": "team.clusters.example.com", "port": 443})
    });
    scene.control_plane("c", "lb", "one", "10.0.0.1");
    scene.until("it is a member", || scene.assigned("lb").len() == 1);
    scene.report("lb", "198.51.100.1", &[("one", "active")]);
    scene.until("it serves", || scene.status("lb", "one").as_deref() == Some("active"));
    assert_eq!(address(&scene), "198.51.100.1");
}

/// Story 3b: no address can be reserved, there is DHCP only, and a name that others keep up to date. It follows a machine to another
/// address, and goes to another machine when that one is lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn addresses_that_nobody_can_reserve() {
    let scene = Scene::new("stories-dhcp");
    let street = Street::new();
    let (visitor, member) = (street.join("client", 10), street.join("member", 20));
    let _backend = Backend::start(&member, PORT);
    let machines = [street.join("first", 1), street.join("second", 2)];
    scene.cluster("c", json!({"annotations": {CONTROL_PLANE: "lb"}}), json!({}));
    scene.control_plane("c", "lb", "member", "192.0.2.20");
    let endpoint = json!({"host": "api.example.com", "port": FRONT});
    on_machines(&scene, "lb", json!({"listeners": listeners(), "endpoint": endpoint}), json!({}));
    let places = [Place::new(), Place::new()];
    let _controllers = (scene.look_after().await, controller(&scene).await);
    let first = carrying(&scene, &machines[0], "first", None, &places[0]).await;
    scene.until("it serves", || scene.status("lb", "member").as_deref() == Some("active"));
    assert_eq!(address(&scene), "192.0.2.1");
    let _second = carrying(&scene, &machines[1], "second", None, &places[1]).await;
    scene.until("both carry it", || {
        instances(&scene).len() == 2 && scene.condition("lb", "InfrastructureReady").0 == "True Carried"
    });
    assert_eq!(address(&scene), "192.0.2.1", "clients stay where they are");
    // The lease ends, and the machine gets another address.
    // It has one all the time: without any, the other machine's would be told.
    machines[0].set("net/ipv4/conf/to-switch/promote_secondaries", "1");
    machines[0].run("ip address add 192.0.2.77/24 dev to-switch");
    machines[0].run("ip address del 192.0.2.1/24 dev to-switch");
    scene.until("the new one is told", || address(&scene) == "192.0.2.77");
    assert_eq!(ask(&visitor, "192.0.2.77", FRONT).unwrap(), "member");
    // It is lost with all that is on it.
    drop(first);
    places[0].kill_haproxy();
    machines[0].run("ip link set to-switch down");
    // After its Lease has lapsed.
    eventually_within(Duration::from_secs(120), "the other one's is told", || address(&scene) == "192.0.2.2");
    assert_eq!(ask(&visitor, "192.0.2.2", FRONT).unwrap(), "member");
    assert_eq!(scene.status("lb", "member").as_deref(), Some("active"));
    assert_eq!(scene.get("loadbalancer", "lb")["spec"]["endpoint"], endpoint, "the name stays");
}

/// Story 3c: the name must be there before the first control plane, which is made with it.
#[tokio::test(flavor = "multi_thread")]
async fn an_address_before_the_first_machine() {
    let (scene, fake) = (Scene::new("stories-first"), nlb::account());
    scene.cluster("c", json!({"annotations": {CONTROL_PLANE: "lb"}}), json!({}));
    nlb::balancer(&scene);
    let _all = (scene.look_after().await, nlb::make(&scene, &fake).await);
    let made = || fake.state().load_balancers.values().next().map(|made| made.dns_name.clone());
    scene.until("its address is told", || made().is_some_and(|made| address(&scene) == json!(made)));
    scene.until("the cluster has the name", || {
        scene.get("cluster", "c")["spec"]["controlPlaneEndpoint"]["host"] == "api.example.com"
    });
    let first = address(&scene);
    nlb::machine(&scene, "one", "aws:///eu-central-1a/i-1", "10.0.1.11");
    scene.until("the first one serves", || scene.status("lb", "one").as_deref() == Some("active"));
    assert_eq!(address(&scene), first);
}

/// Story 4: machines of another infrastructure, behind a load balancer of AWS.
#[tokio::test(flavor = "multi_thread")]
async fn machines_of_another_infrastructure() {
    let (scene, fake) = (Scene::new("stories-vmc"), nlb::account());
    scene.cluster("c", json!({"annotations": {CONTROL_PLANE: "lb"}}), json!({}));
    nlb::machine(&scene, "one", "vsphere://4210aaaa-0000-1111-2222-333344445555", "10.0.1.11");
    nlb::machine(&scene, "two", "vsphere://4210bbbb-0000-1111-2222-333344445555", "10.0.1.12");
    nlb::balancer(&scene);
    scene.patch("awsnlb", "lb", &json!({"spec": {"targetType": "ip"}}));
    let _all = (scene.look_after().await, nlb::make(&scene, &fake).await);
    scene.until("both get connections", || {
        scene.get("loadbalancer", "lb")["status"]["activeTargets"] == json!(["one", "two"])
    });
    assert_eq!(nlb::targets(&fake), ["10.0.1.11:6443 healthy", "10.0.1.12:6443 healthy"]);
    let kinds: Vec<String> = fake.state().target_groups.values().map(|group| group.kind.clone()).collect();
    assert_eq!(kinds, ["ip"]);
}

/// From an address that kube-vip holds, by the steps of the documentation: machines carry it before they have the address, and get that
/// by the very command.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn an_address_that_kube_vip_held() {
    let document = include_str!("../../../../docs/cluster-api.md");
    let part = document.split("**An address that kube-vip holds**").nth(1).unwrap();
    let (_, command) = part.split_once("`kubectl patch haproxyloadbalancer prod ").unwrap();
    let (options, _) = command.split_once('`').unwrap();
    let patch = options.strip_prefix("--type merge -p '").and_then(|rest| rest.strip_suffix('\'')).unwrap();

    let (scene, street) = (Scene::new("stories-kube-vip"), Street::new());
    let visitor = street.join("client", 11);
    let (member, first) = (street.join("member", 20), street.join("first", 1));
    let _backend = Backend::start(&member, PORT);
    // As kube-vip does it, on the control plane.
    member.run("ip address add 192.0.2.10/32 dev to-switch");
    let through = || ask(&visitor, "192.0.2.10", PORT);
    assert_eq!(through().unwrap(), "member");
    let endpoint = json!({"host": "192.0.2.10", "port": PORT});
    let metadata = json!({"annotations": {CONTROL_PLANE: "lb"}});
    scene.cluster("c", metadata, json!({"controlPlaneEndpoint": endpoint}));
    scene.control_plane("c", "lb", "member", "192.0.2.20");
    // Where it is asked which addresses it has, it tells of this one, too, and first.
    let both = ["192.0.2.10", "192.0.2.20"].map(|address| json!({"type": "InternalIP", "address": address}));
    scene.patch("labmachine", "member", &json!({"status": {"addresses": both}}));
    scene.until("both are told", || {
        scene.get("machine", "member")["status"]["addresses"].as_array().is_some_and(|all| all.len() == 2)
    });
    let mut listeners = listeners();
    listeners[0]["port"] = json!(PORT);
    on_machines(&scene, "lb", json!({"endpoint": endpoint, "listeners": listeners}), json!({}));
    let place = Place::new();
    let sharing = Some(sharing("to-switch", 100));
    let _all = (
        scene.look_after().await,
        controller(&scene).await,
        carrying(&scene, &first, "first", sharing, &place).await,
    );
    scene.until("it serves", || scene.status("lb", "member").as_deref() == Some("active"));
    assert_eq!(address(&scene), "192.0.2.1", "by an address of its own");
    let found = scene.get("haproxyloadbalancer", "lb");
    assert_eq!(found["spec"]["assignment"]["members"][0]["addresses"], json!(["192.0.2.20"]));
    assert_eq!(ask(&visitor, "192.0.2.1", PORT).unwrap(), "member");
    let holds = || first.run("ip -brief address show dev to-switch").contains("192.0.2.10/");
    assert!(!holds(), "kube-vip has it");
    assert_eq!(through().unwrap(), "member");

    member.run("ip address del 192.0.2.10/32 dev to-switch");
    scene.kubectl(&["patch", "haproxyloadbalancer", "lb", "--type", "merge", "-p", patch]);
    scene.until("the machine has the address", || holders(&scene) == ["first"] && holds());
    scene.until("clients find it there", || through().is_ok());
    scene.until("that is told", || address(&scene) == "192.0.2.10");
    assert_eq!(scene.get("cluster", "c")["spec"]["controlPlaneEndpoint"], endpoint, "nothing else changed");
    assert_eq!(scene.condition("lb", "InfrastructureReady").0, "True Carried");
    assert_eq!(scene.status("lb", "member").as_deref(), Some("active"));
}
