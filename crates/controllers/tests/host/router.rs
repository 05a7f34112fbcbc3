//! The router of a single node, where packets come to it from inside the cluster and from outside.

use portcullis_controllers::host::{AgentSettings, HostController, HostSettings, NodeAgent};
use portcullis_controllers::router::RouterSettings;
use portcullis_controllers::single_node::{SingleNode, SingleNodeSettings};
use portcullis_host::datapath::Mode;
use portcullis_kube_api::host::HOST_CLASS;
use portcullis_testkit::parts::Namespace;
use portcullis_testkit::{Host, Target, can_connect, connect, eventually, link};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use crate::scene::{LAN, Running, Scene, WAN, machine};

const ROUTER: &str = "openshift-ingress";

/// What a person may say of the router.
struct Options {
    ports: [u16; 2],
    listen: &'static [&'static str],
    ranges: &'static [&'static str],
    /// Whether clients inside and outside are to reach it.
    reached: [bool; 2],
}

const USUAL: Options = Options { ports: [80, 443], listen: &[], ranges: &[], reached: [true, true] };
const LIMITED: Options = Options { ranges: &["192.0.2.0/24"], reached: [true, false], ..USUAL };
const ONE_INTERFACE: Options = Options { listen: &["to-outside"], reached: [false, true], ..USUAL };
const OTHER_PORTS: Options = Options { ports: [8080, 8443], ..USUAL };
const ALL_AT_ONCE: Options = Options {
    ports: [8080, 8443],
    listen: &["to-inside"],
    ranges: &["192.0.2.0/24"],
    reached: [true, false],
};

/// Makes the router's objects as the configuration says; ranges are a person's.
fn publish(scene: &Scene, options: &Options) {
    let settings = SingleNodeSettings {
        controller: serde_json::from_value(json!({"spec": {}})).unwrap(),
        router: RouterSettings {
            image: "registry.example.com/router:1".to_owned(),
            load_balancer_class: Some(HOST_CLASS.to_owned()),
            config_namespace: ROUTER.to_owned(),
            ..RouterSettings::default()
        },
        ports: options.ports,
        listen: options.listen.iter().map(|entry| (*entry).to_owned()).collect(),
        at_node: true,
        is_wanted: true,
        openshift: Some(true),
        take_over: false,
        observe: false,
    };
    Namespace::run(&scene.node, || {
        let once = async { SingleNode::new(scene.client().await, settings).once().await };
        Runtime::new().unwrap().block_on(once).unwrap()
    });
    let patch = json!({"spec": {"loadBalancerSourceRanges": options.ranges}}).to_string();
    kubectl(scene, &["patch", "service", "router-default", "--type=merge", "-p", &patch]);
}

fn kubectl(scene: &Scene, arguments: &[&str]) -> String {
    scene.kubernetes.kubectl(&[&["-n", ROUTER], arguments].concat()).unwrap()
}

fn service(scene: &Scene, name: &str) -> Value {
    serde_json::from_str(&kubectl(scene, &["get", "service", name, "-o", "json"])).unwrap()
}

/// The pod of the router, as its Services have it.
fn pod(scene: &Scene) {
    for name in ["router-internal-default", "router-default"] {
        let slice = json!({
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {"name": format!("{name}-pod"), "namespace": ROUTER, "labels": {"kubernetes.io/service-name": name}},
            "addressType": "IPv4",
            "endpoints": [{"addresses": ["10.244.0.2"], "nodeName": scene.node_name()}],
            "ports": [{"name": "http", "port": 80}, {"name": "https", "port": 443}],
        });
        scene.kubernetes.apply(&slice.to_string()).unwrap();
    }
}

/// Both halves for the class that the router has, on the node.
fn start(scene: &Scene, mode: Mode) -> (Running, Runtime) {
    let mut agent = AgentSettings { class: HOST_CLASS.to_owned(), mode, ..scene.agent_settings() };
    agent.policy.selection.internal.push("to-pod".to_owned());
    let controller =
        HostSettings { class: HOST_CLASS.to_owned(), mode, policy: agent.policy.clone(), ..scene.settings() };
    Namespace::run(&scene.node, || {
        let runtime = Runtime::new().unwrap();
        let running = runtime.block_on(async {
            let known = scene.known().await;
            let agent = NodeAgent::new(machine(&scene.node), agent, known.clone());
            let controller = HostController::new(controller, known);
            Running::of(async move {
                tokio::join!(agent.run(|_| {}), controller.run());
            })
        });
        (running, runtime)
    })
}

/// What runs in the cluster reaches the router under its own address and the usual ports, however it is published outside.
#[test]
fn who_is_in_the_cluster_reaches_the_router_as_before() {
    let (scene, _proxy) = Scene::with_kube_proxy("published", Mode::Filter);
    let another = Host::new("pod");
    link(&another, &["10.244.1.2/24"], &scene.node, &["10.244.1.1/24"]);
    another.default_route("10.244.1.1");
    let _serving = [80, 443].map(|port| scene.backend.serve(port));
    publish(&scene, &USUAL);
    pod(&scene);
    let before = service(&scene, "router-internal-default");
    let inside = before["spec"]["clusterIP"].as_str().unwrap();
    let from_inside = || [80, 443].map(|port| connect(&another, inside, Target::Tcp(port)));
    // It sees who asks.
    let as_before = [80, 443].map(|_| Ok("10.244.1.2".to_owned()));
    eventually("it is reached before anything serves it outside", || from_inside() == as_before);

    for mode in [Mode::None, Mode::Filter, Mode::Nftables] {
        let _running = start(&scene, mode);
        for (what, options) in [
            ("as usual", USUAL),
            ("for some", LIMITED),
            ("at one interface", ONE_INTERFACE),
            ("on other ports", OTHER_PORTS),
            ("all at once", ALL_AT_ONCE),
        ] {
            publish(&scene, &options);
            let what = format!("{what}, with {mode:?}");
            let reached = || {
                let both = [(&scene.inside, LAN), (&scene.outside, WAN)];
                both.map(|(client, address)| {
                    options.ports.map(|port| can_connect(client, address, Target::Tcp(port)))
                })
            };
            let expected = options.reached.map(|is_reached| [is_reached; 2]);
            eventually(&format!("it is reached outside as published {what}"), || reached() == expected);
            assert_eq!(from_inside(), as_before, "{what}");
            let now = service(&scene, "router-internal-default");
            assert_eq!(now["spec"], before["spec"], "{what}");
        }
    }
}
