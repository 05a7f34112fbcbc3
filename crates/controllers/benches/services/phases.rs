//! Ours and cloud-provider-aws through the same phases, side by side.

use std::thread::sleep;
use std::time::{Duration, Instant};

use kube::config::{KubeConfigOptions, Kubeconfig};
use portcullis_aws_fake::Fake;
use portcullis_controllers::{ServiceController, Settings};
use portcullis_kube_api::{LoadBalancerClass, TYPE};
use portcullis_testkit::figures::{mark, memory};
use portcullis_testkit::parts::kubernetes::Kubernetes;
use portcullis_testkit::{AwsAccount, CloudProviderAws, eventually, kubernetes};
use serde_json::{Value, json};

use crate::aws::{self, Calls};

const CLASS: &str = "portcullis.dev/aws-nlb";
const NODES: usize = 3;

/// So long nobody has called when a phase is over. Neither of the two waits longer in the middle of something.
const QUIET: Duration = Duration::from_secs(2);

/// A controller, and the AWS that it alone calls.
struct Side {
    name: &'static str,
    ours: bool,
    fake: Fake,
}

/// A phase, and how many calls that change something and others ours may take in it, by the number of ports.
struct Phase {
    name: &'static str,
    limit: Option<fn(usize) -> (usize, usize)>,
}

const PHASES: [Phase; 9] = [
    Phase { name: "create", limit: Some(|ports| (5 + 3 * ports, 4)) },
    Phase { name: "no-op event", limit: Some(|_| (0, 0)) },
    Phase { name: "port changed", limit: None },
    Phase { name: "node port changed", limit: None },
    Phase { name: "ranges none → 1", limit: None },
    Phase { name: "ranges 1 → 2 others", limit: None },
    Phase { name: "node added", limit: Some(|ports| (ports, 1)) },
    Phase { name: "node removed", limit: None },
    Phase { name: "delete", limit: Some(|ports| (2 + ports, 4)) },
];

pub(crate) fn compare() {
    let kubernetes = kubernetes();
    let sides = [("ours", true), ("theirs", false)].map(|(name, ours)| Side {
        name,
        ours,
        fake: aws::fake(NODES + 1),
    });
    for number in 1..=NODES {
        add_node(kubernetes, number);
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let controller = runtime.block_on(controller(kubernetes, sides[0].fake.url()));
    runtime.spawn(controller.run());
    let theirs = CloudProviderAws::start(kubernetes, account(&sides[1].fake));
    warm_up(kubernetes, &sides);

    println!("\nCalls of AWS by one Service, all/mutating, with {NODES} nodes; the limit is for ours:\n");
    println!("{:<20} {:>5}   {:>8} {:>19}   {:>9}", "phase", "ports", "ours", "cloud-provider-aws", "limit");
    for ports in 1..=3 {
        for phase in &PHASES {
            go_through(kubernetes, &sides, phase.name, ports);
            let called = sides[0].fake.counts();
            let [ours, others] = sides.each_ref().map(|side| Calls::take(&side.fake));
            let limit =
                phase.limit.map(|limit| limit(ports)).map_or("–".to_owned(), |(mutating, reads)| {
                    let kept = ours.mutating <= mutating && ours.reads() <= reads;
                    format!("{}/{mutating} {}", mutating + reads, mark(kept))
                });
            println!("{:<20} {ports:>5}   {ours:>8} {others:>19}   {limit:>9}", phase.name);
            if limit.contains("MISSED") {
                println!("    {called:?}");
            }
        }
    }
    println!("\nmemory of cloud-provider-aws after it: {} MB", memory(theirs.id()) / 1_000_000);
}

/// What is only done for the first Service, or the first since a start, is done before. Ours keeps a Service on a node of
/// its own, since with the last one goes what all share.
fn warm_up(kubernetes: &Kubernetes, sides: &[Side; 2]) {
    kubernetes.kubectl(&["label", "node", "node-1", "keeper=yes"]).unwrap();
    let mut keeper = service(&sides[0], 1);
    keeper["metadata"]["name"] = json!("keeper");
    keeper["metadata"]["annotations"] =
        json!({"service.beta.kubernetes.io/aws-load-balancer-target-node-labels": "keeper=yes"});
    keeper["spec"]["ports"][0]["nodePort"] = json!(30_001);
    kubernetes.apply(&keeper.to_string()).unwrap();
    go_through(kubernetes, sides, "create", 1);
    has_address(kubernetes, "keeper");
    go_through(kubernetes, sides, "delete", 1);
    for side in sides {
        side.fake.clear_calls();
    }
}

/// Does what a phase consists of for both, and waits until both have done their part.
fn go_through(kubernetes: &Kubernetes, sides: &[Side; 2], phase: &str, ports: usize) {
    let change = |change: &dyn Fn(&mut Value)| {
        for side in sides {
            let mut service = service(side, ports);
            change(&mut service);
            kubernetes.apply(&service.to_string()).unwrap();
        }
    };
    let ranges = |ranges: &'static [&'static str]| {
        move |service: &mut Value| {
            other_ports(service);
            service["spec"]["loadBalancerSourceRanges"] = json!(ranges);
        }
    };
    match phase {
        "create" => {
            change(&|_| ());
            for side in sides {
                has_address(kubernetes, side.name);
            }
        }
        "no-op event" => change(&|service| service["metadata"]["annotations"]["note"] = json!("seen")),
        "port changed" => change(&|service| service["spec"]["ports"][0]["port"] = json!(8000)),
        "node port changed" => change(&other_ports),
        "ranges none → 1" => change(&ranges(&["192.0.2.0/24"])),
        "ranges 1 → 2 others" => change(&ranges(&["198.51.100.0/24", "203.0.113.0/24"])),
        "node added" => add_node(kubernetes, NODES + 1),
        "node removed" => {
            drop(kubernetes.kubectl(&["delete", "node", &format!("node-{}", NODES + 1)]).unwrap());
        }
        "delete" => {
            drop(kubernetes.kubectl(&["delete", "service", sides[0].name, sides[1].name]).unwrap());
        }
        other => panic!("{other} is no phase"),
    }
    let (mut seen, mut since) = (0, Instant::now());
    while since.elapsed() < QUIET {
        sleep(Duration::from_millis(50));
        let calls = sides.iter().map(|side| side.fake.calls().len()).sum();
        if calls != seen {
            (seen, since) = (calls, Instant::now());
        }
    }
}

fn other_ports(service: &mut Value) {
    service["spec"]["ports"][0]["port"] = json!(8000);
    let node_port = service["spec"]["ports"][0]["nodePort"].as_u64().unwrap();
    service["spec"]["ports"][0]["nodePort"] = json!(node_port + 50);
}

/// The Service of a side, as it is created.
fn service(side: &Side, ports: usize) -> Value {
    let first = if side.ours { 30_100 } else { 30_200 };
    let ports: Vec<Value> = (0..ports)
        .map(|number| json!({"name": format!("p{number}"), "port": 80 + number, "nodePort": first + number}))
        .collect();
    let mut service = json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": side.name, "namespace": "default", "annotations": {}},
        "spec": {"type": "LoadBalancer", "ports": ports, "selector": {"app": "web"}},
    });
    if side.ours {
        service["spec"]["loadBalancerClass"] = json!(CLASS);
    } else {
        service["metadata"]["annotations"][TYPE] = json!("nlb");
    }
    service
}

fn has_address(kubernetes: &Kubernetes, service: &str) {
    let path = "jsonpath={.status.loadBalancer.ingress[0].hostname}";
    eventually("a Service has an address", || {
        !kubernetes.kubectl(&["get", "service", service, "-o", path]).unwrap().is_empty()
    });
}

fn add_node(kubernetes: &Kubernetes, number: usize) {
    let name = format!("node-{number}");
    let node = json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name},
        "spec": {"providerID": format!("aws:///eu-central-1a/i-{number}")},
    });
    kubernetes.apply(&node.to_string()).unwrap();
    let status = json!({"status": {
        "addresses": [{"type": "InternalIP", "address": format!("10.0.1.{number}")}],
        "conditions": [{"type": "Ready", "status": "True"}],
    }});
    let patch = status.to_string();
    kubernetes
        .kubectl(&["patch", "node", &name, "--subresource=status", "--type=merge", "-p", &patch])
        .unwrap();
}

fn account(fake: &Fake) -> AwsAccount<'_> {
    AwsAccount {
        url: fake.url(),
        region: aws::REGION,
        key: aws::KEY,
        secret: aws::SECRET,
        vpc: aws::VPC,
        subnet: aws::SUBNET,
        cluster: aws::CLUSTER,
    }
}

async fn controller(kubernetes: &Kubernetes, url: &str) -> ServiceController<portcullis_aws::Provider> {
    let config = Kubeconfig::read_from(kubernetes.kubeconfig()).unwrap();
    let config = kube::Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await.unwrap();
    // Nothing is looked at but for an event: what that takes is measured by itself.
    let never = Duration::from_secs(86_400);
    let settings = Settings {
        cluster: aws::CLUSTER.to_owned(),
        class: LoadBalancerClass { name: CLASS.to_owned(), without_class: None },
        concurrency: 8,
        resync: never,
        close_look: never,
        sweep_after: never,
        observe: false,
        host: "bench".to_owned(),
    };
    ServiceController::new(kube::Client::try_from(config).unwrap(), aws::provider(url), settings)
}
