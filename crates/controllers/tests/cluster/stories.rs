//! What people wanted load balancers of clusters for: their stories, one by one. The first, network load balancers on AWS, is told
//! where these are tested, and the fifth, from one provider to another, in [`crate::moves`], with traffic.

use portcullis_testkit::talk::ask;
use serde_json::{Value, json};

use crate::lab::{FRONT, Lab, Place, agent, controller, listeners, machine, on_machines};
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
    let _running = scene.look_after().await;
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

/// Story 3b: no address can be reserved, there is DHCP only, and a name that others keep up to date.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn addresses_that_nobody_can_reserve() {
    let scene = Scene::new("stories-dhcp");
    let lab = Lab::new(&["dhcp-a"]);
    scene.cluster("c", json!({"annotations": {CONTROL_PLANE: "lb"}}), json!({}));
    machine(&scene, &lab, "dhcp-a");
    let endpoint = json!({"host": "api.example.com", "port": FRONT});
    on_machines(&scene, "lb", json!({"listeners": listeners(), "endpoint": endpoint}), json!({}));
    let place = Place::new();
    let _all = (scene.look_after().await, controller(&scene).await, agent(&scene, &lab, &place).await);
    scene.until("it serves", || scene.status("lb", "dhcp-a").as_deref() == Some("active"));
    assert_eq!(address(&scene), "192.0.2.1");
    // The lease ends, and the machine gets another address.
    lab.carrier.run("ip address add 192.0.2.77/24 dev to-client");
    lab.carrier.run("ip address del 192.0.2.1/24 dev to-client");
    lab.carrier.run("ip address replace 192.0.2.77/24 dev to-client");
    scene.until("the new one is told", || address(&scene) == "192.0.2.77");
    assert_eq!(ask(&lab.client, "192.0.2.77", FRONT).unwrap(), "dhcp-a");
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
