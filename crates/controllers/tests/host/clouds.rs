//! A provider of a cloud in the same cluster, which says of its own Services in the same condition who may connect.

use std::time::Duration;

use aws_credential_types::Credentials;
use aws_credential_types::provider::SharedCredentialsProvider;
use portcullis_aws::{Client, CloudConfig, Endpoints, Limits, Options, Provider};
use portcullis_aws_fake::{Config, Fake, World};
use portcullis_controllers::{ServiceController, Settings};
use portcullis_host::datapath::Mode;
use portcullis_kube_api::LoadBalancerClass;
use portcullis_kube_api::enforced::ENFORCED;
use portcullis_kube_api::host::ASSIGNED;
use portcullis_testkit::{eventually, join_nodes};
use serde_json::{Value, json};

use crate::scene::{LAN, Running, Scene, WAN};

const CLASS: &str = "portcullis.dev/aws-nlb";

fn cloud() -> Fake {
    let mut world = World::default();
    world.add_vpc("vpc-1", "10.0.0.0/16", false);
    world.add_subnet("subnet-a", "vpc-1", "eu-central-1a", "10.0.1.0/24", false);
    world.add_subnet("subnet-b", "vpc-1", "eu-central-1b", "10.0.2.0/24", false);
    world.add_route_table("rtb-1", "vpc-1", &[], true);
    let nodes = world.add_security_group("sg-nodes", "nodes", "vpc-1");
    nodes.tags.insert("kubernetes.io/cluster/demo".to_owned(), "owned".to_owned());
    world.add_instance("i-1", "subnet-a", &["sg-nodes"]);
    Fake::start(Config { world, ..Config::default() }).unwrap()
}

async fn start(scene: &Scene, cloud: &Fake) -> Running {
    let credentials = Credentials::new("AKIAFAKEFAKEFAKEFAKE", "a-secret-of-the-fake", None, None, "test");
    let (config, _) = CloudConfig::parse("[Global]\nNLBSecurityGroupMode = Managed\n").unwrap();
    let endpoint = |name: &str| (name == "AWS_ENDPOINT_URL").then(|| cloud.url().to_owned());
    let endpoints = Endpoints::new("eu-central-1", &config, endpoint).unwrap();
    let options = Options { limits: Limits::none(), ..Options::default() };
    let client = Client::new(SharedCredentialsProvider::new(credentials), endpoints, options);
    let settings = portcullis_aws::Settings::new("demo", "vpc-1", &config).unwrap();
    let controller = ServiceController::new(
        scene.client().await,
        Provider::new(client, settings),
        Settings {
            cluster: "demo".to_owned(),
            class: LoadBalancerClass { name: CLASS.to_owned(), without_class: None },
            concurrency: 1,
            resync: Duration::from_secs(1),
            close_look: Duration::from_secs(5),
            sweep_after: Duration::ZERO,
            observe: false,
            host: "test".to_owned(),
        },
    );
    Running::of(controller.run())
}

fn limited(class: Option<&str>, port: u16) -> Value {
    let mut spec = json!({
        "externalTrafficPolicy": "Cluster",
        "ports": [{"port": port}],
        "loadBalancerSourceRanges": ["192.0.2.0/24"],
    });
    if let Some(class) = class {
        spec["loadBalancerClass"] = json!(class);
        // By these it reaches nodes.
        spec["allocateLoadBalancerNodePorts"] = json!(true);
    }
    spec
}

/// Whether a Service of the cloud has its load balancer.
fn has_one(scene: &Scene, name: &str) -> bool {
    scene.service(name)["status"]["loadBalancer"]["ingress"][0]["hostname"].is_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn each_says_who_may_connect_to_its_own() {
    let scene = Scene::new("clouds", Mode::Nftables);
    let cloud = cloud();
    join_nodes(&scene.kubernetes, "eu-central-1a", &["i-1"]);
    let here = scene.start().await;
    let there = start(&scene, &cloud).await;
    scene.apply("web", json!({}), limited(None, 80));
    scene.apply("cloud", json!({}), limited(Some(CLASS), 80));
    scene.wait_for_addresses("web", &[LAN, WAN]);
    eventually("the cloud has a load balancer", || has_one(&scene, "cloud"));
    scene.wait_for_condition("web", ENFORCED, "True/Enforced: The packet filters of clouds-node let in");
    scene.wait_for_condition("cloud", ENFORCED, "True/Enforced: ");
    let said = scene.condition("cloud", ENFORCED);
    assert!(!said.contains("packet filters"), "{said}");

    // Both start again, and look at everything there is: nothing is written on what is the other's, nor on their own.
    drop((here, there));
    let version = |name: &str| scene.service(name)["metadata"]["resourceVersion"].clone();
    let before = (version("web"), version("cloud"));
    let _there = start(&scene, &cloud).await;
    let _here = scene.start().await;
    // One after the other is looked at, so once these have what they ask for, the others were.
    scene.apply("web-too", json!({}), limited(None, 81));
    scene.apply("cloud-too", json!({}), limited(Some(CLASS), 81));
    scene.wait_for_condition("web-too", ENFORCED, "True/Enforced: The packet filters of clouds-node let in");
    scene.wait_for_condition("cloud-too", ENFORCED, "True/Enforced: ");
    assert_eq!((version("web"), version("cloud")), before);
    assert_eq!(scene.condition("cloud", ENFORCED), said);
    assert_eq!(scene.condition("cloud", ASSIGNED), "", "it has no address of a node");

    // Whoever removes what is said sees it again, from who says it.
    for (name, start) in [("web", "True/Enforced: The packet filters"), ("cloud", said.as_str())] {
        let remove = json!({"status": {"conditions": [{"type": ENFORCED, "$patch": "delete"}]}}).to_string();
        let patch = ["-n", scene.name, "patch", "service", name, "--subresource=status", "--type=strategic"];
        scene.kubernetes.kubectl(&[&patch[..], &["-p", &remove]].concat()).unwrap();
        scene.wait_for_condition(name, ENFORCED, start);
    }
    // What the cloud has is taken away before its provider ends.
    for name in ["cloud", "cloud-too"] {
        scene.delete(name);
    }
}
