//! The real cloud-provider-aws in the same cluster, with the same account.

#![allow(clippy::unwrap_used, reason = "a test that fails says where")]

use std::collections::BTreeSet;
use std::time::Duration;

use aws_credential_types::Credentials;
use aws_credential_types::provider::SharedCredentialsProvider;
use kube::config::{KubeConfigOptions, Kubeconfig};
use portcullis_aws::{Client, CloudConfig, Endpoints, Limits, Options, Provider};
use portcullis_aws_fake::{Config, Fake, World};
use portcullis_controllers::{ServiceController, Settings};
use portcullis_kube_api::{FINALIZER, LoadBalancerClass, TYPE};
use portcullis_testkit::parts::kubernetes::Kubernetes;
use portcullis_testkit::{AwsAccount, CloudProviderAws, eventually, join_nodes, kubernetes};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

const CLASS: &str = "portcullis.dev/aws-nlb";
const THEIR_FINALIZER: &str = "service.kubernetes.io/load-balancer-cleanup";

fn fake() -> Fake {
    let mut world = World::default();
    world.add_vpc("vpc-1", "10.0.0.0/16", false);
    world.add_subnet("subnet-a", "vpc-1", "eu-central-1a", "10.0.1.0/24", false);
    world.add_subnet("subnet-b", "vpc-1", "eu-central-1b", "10.0.2.0/24", false);
    world.add_route_table("rtb-1", "vpc-1", &[], true);
    let nodes = world.add_security_group("sg-nodes", "nodes", "vpc-1");
    nodes.tags.insert("kubernetes.io/cluster/demo".to_owned(), "owned".to_owned());
    for node in ["i-1", "i-2"] {
        let instance = world.add_instance(node, "subnet-a", &["sg-nodes"]);
        // cloud-provider-aws finds no other nodes.
        instance.tags.insert("kubernetes.io/cluster/demo".to_owned(), "owned".to_owned());
    }
    Fake::start(Config { world, ..Config::default() }).unwrap()
}

fn account(fake: &Fake) -> AwsAccount<'_> {
    AwsAccount {
        url: fake.url(),
        region: "eu-central-1",
        key: "AKIAFAKEFAKEFAKEFAKE",
        secret: "a-secret-of-the-fake",
        vpc: "vpc-1",
        subnet: "subnet-a",
        cluster: "demo",
    }
}

/// Starts a controller of ours that knows nothing yet.
async fn ours(kubernetes: &Kubernetes, account: AwsAccount<'_>) -> JoinHandle<()> {
    let config = Kubeconfig::read_from(kubernetes.kubeconfig()).unwrap();
    let config = kube::Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await.unwrap();
    let credentials = Credentials::new(account.key, account.secret, None, None, "test");
    let (cloud_config, _) = CloudConfig::parse("[Global]\nNLBSecurityGroupMode = Managed\n").unwrap();
    let endpoint = |name: &str| (name == "AWS_ENDPOINT_URL").then(|| account.url.to_owned());
    let endpoints = Endpoints::new(account.region, &cloud_config, endpoint).unwrap();
    let options = Options { limits: Limits::none(), ..Options::default() };
    let client = Client::new(SharedCredentialsProvider::new(credentials), endpoints, options);
    let settings = portcullis_aws::Settings::new(account.cluster, account.vpc, &cloud_config).unwrap();
    let controller = ServiceController::new(
        kube::Client::try_from(config).unwrap(),
        Provider::new(client, settings),
        Settings {
            cluster: account.cluster.to_owned(),
            class: LoadBalancerClass { name: CLASS.to_owned(), without_class: None },
            concurrency: 8,
            // Often, and at once: what is not ours has to stay whatever we look at.
            resync: Duration::from_secs(1),
            close_look: Duration::from_secs(5),
            sweep_after: Duration::ZERO,
            observe: false,
            host: "test".to_owned(),
        },
    );
    tokio::spawn(controller.run())
}

/// A Service, and what is asked about it.
struct Cluster<'a>(&'a Kubernetes);

impl Cluster<'_> {
    fn apply(&self, name: &str, ours: bool, range: &str) {
        let mut service = json!({
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": name, "namespace": "default"},
            "spec": {
                "type": "LoadBalancer",
                "ports": [{"port": 80}],
                "loadBalancerSourceRanges": [range],
            },
        });
        if ours {
            service["spec"]["loadBalancerClass"] = json!(CLASS);
        } else {
            service["metadata"]["annotations"] = json!({TYPE: "nlb"});
        }
        self.0.apply(&service.to_string()).unwrap();
    }

    fn delete(&self, name: &str) {
        self.0.kubectl(&["delete", "service", name, "--wait=false"]).unwrap();
    }

    fn get(&self, name: &str) -> Option<Value> {
        let found = self.0.kubectl(&["get", "service", name, "--ignore-not-found", "-o", "json"]).unwrap();
        (!found.is_empty()).then(|| serde_json::from_str(&found).unwrap())
    }

    fn finalizers(&self, name: &str) -> Value {
        self.get(name).unwrap()["metadata"]["finalizers"].clone()
    }

    fn wait_for_address(&self, name: &str) {
        eventually(&format!("{name} has an address"), || {
            self.get(name).unwrap()["status"]["loadBalancer"]["ingress"][0]["hostname"].is_string()
        });
    }
}

/// The names of all that was made, and what the nodes let in.
fn made(world: &World) -> BTreeSet<String> {
    let balancers = world.load_balancers.values().map(|found| &found.name);
    let pools = world.target_groups.values().map(|found| &found.name);
    let groups = world.groups.values().map(|found| &found.name);
    let names = balancers.chain(pools).chain(groups).cloned();
    names.chain(world.groups["sg-nodes"].lets_in()).collect()
}

fn lets_in(fake: &Fake, range: &str) -> bool {
    fake.state().groups.values().any(|group| group.lets_in().iter().any(|rule| rule.contains(range)))
}

const RANGE: &str = "192.0.2.0/24";
const OTHER: &str = "198.51.100.0/24";

/// Whenever one of the two runs alone, all calls are its own: so it is seen what each leaves alone.
#[tokio::test(flavor = "multi_thread")]
async fn each_looks_after_its_own() {
    let kubernetes = kubernetes();
    let cluster = Cluster(kubernetes);
    let fake = fake();
    join_nodes(kubernetes, "eu-central-1a", &["i-1", "i-2"]);
    let other = CloudProviderAws::start(kubernetes, account(&fake));

    // It deals with one Service after the other: once the second is done, it has seen the first.
    cluster.apply("ours", true, RANGE);
    cluster.apply("theirs", false, RANGE);
    cluster.wait_for_address("theirs");
    assert_eq!(cluster.finalizers("ours"), Value::Null);
    assert_eq!(cluster.finalizers("theirs"), json!([THEIR_FINALIZER]));
    let theirs = made(&fake.state());
    assert_eq!(fake.state().load_balancers.len(), 1, "{theirs:?}");

    let running = ours(kubernetes, account(&fake)).await;
    cluster.wait_for_address("ours");
    assert_eq!(cluster.finalizers("ours"), json!([FINALIZER]));
    assert_eq!(cluster.finalizers("theirs"), json!([THEIR_FINALIZER]));
    let both = made(&fake.state());
    assert_eq!(fake.state().load_balancers.len(), 2, "{both:?}");
    assert!(both.is_superset(&theirs), "{theirs:?}, then {both:?}");

    // Ours is deleted while only the other runs, which does not care.
    running.abort();
    let _ = running.await;
    cluster.delete("ours");
    cluster.apply("theirs", false, OTHER);
    eventually("the ranges are others", || lets_in(&fake, OTHER));
    cluster.apply("theirs", false, RANGE);
    eventually("the ranges are as before", || made(&fake.state()) == both);
    assert_eq!(cluster.finalizers("ours"), json!([FINALIZER]));

    let running = ours(kubernetes, account(&fake)).await;
    eventually("ours is gone", || cluster.get("ours").is_none());
    assert_eq!(made(&fake.state()), theirs, "all of ours is gone, and nothing else");

    // Theirs is deleted, and another one is wanted, while only ours runs, which looks at everything all the time.
    drop(other);
    cluster.delete("theirs");
    cluster.apply("theirs-too", false, RANGE);
    cluster.apply("ours-too", true, RANGE);
    cluster.wait_for_address("ours-too");
    fake.clear_calls();
    eventually("all is looked at again", || fake.counts().get("DescribeLoadBalancers") >= Some(&2));
    assert_eq!(fake.mutating_calls(), 0);
    assert!(made(&fake.state()).is_superset(&theirs));
    assert_eq!(fake.state().load_balancers.len(), 2);
    assert_eq!(cluster.finalizers("theirs"), json!([THEIR_FINALIZER]));
    assert_eq!(cluster.finalizers("theirs-too"), Value::Null);
    running.abort();
}
