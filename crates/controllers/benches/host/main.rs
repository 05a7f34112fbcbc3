//! Services at the addresses of a node, on a real Kubernetes API: how long until a status is written, what an address that comes
//! takes, and a start with ten thousand. Each Service has two endpoints.
//!
//! Ours runs in a process of its own, both halves of it, with packet filters in mode nftables and a node that is a network
//! namespace. So does the floor: a client that only watches Services and writes an address into the status of each that is new.
//! Both get Services in turns, so that they have the same machine. Times are of this one; what they have to do with each other
//! is not.
//!
//! kube-proxy gets the same ten thousand at the end, to compare with.
//!
//! `SERVICES=1000` in the environment makes it a thousand at the end. A limit that is missed ends it with a failure.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a bench talks")]

mod processes;

use std::collections::HashMap;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::core::v1::{LoadBalancerIngress, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{Api, PostParams};
use kube::runtime::watcher;
use kube::{Client, ResourceExt};
use portcullis_host::datapath::Mode;
use portcullis_testkit::figures::{self, OtherProcess, mark, millis, most_memory, spread};
use portcullis_testkit::parts::kubernetes::Kubernetes;
use portcullis_testkit::parts::{Namespace, run};
use portcullis_testkit::{Host, KubeProxy, roomy_kubernetes_in};
use serde_json::json;
use tokio::sync::watch;

// What the program has.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// So many Services are there before anything is measured, and so many are made then, of each.
const THERE: usize = 1000;
const MADE: usize = 200;
/// So many are made at the same time, where it does not matter.
const TOGETHER: usize = 16;
/// From this number on are those that are made where packets are only filtered, of which so many are there before.
const FILTERED: usize = 25_000;
const FILTERED_THERE: usize = 100;
/// Limits: from a Service to its status, above the floor, at the median and for 99 of 100; from an address to the first status;
/// a start, until packet filters are set, of the half of a node and of both on one machine; memory.
const MEDIAN: Duration = Duration::from_millis(5);
const MOST: Duration = Duration::from_millis(20);
const ADDRESS: Duration = Duration::from_millis(100);
const START: Duration = Duration::from_secs(2);
const MEMORY: u64 = 150_000_000;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        [processes::OURS, kubeconfig] => processes::run_ours(kubeconfig, Mode::Nftables, true),
        [processes::FILTER, kubeconfig] => processes::run_ours(kubeconfig, Mode::Filter, true),
        [processes::AGENT, kubeconfig] => processes::run_ours(kubeconfig, Mode::Nftables, false),
        [processes::BARE, kubeconfig] => processes::run_bare(kubeconfig),
        _ => {
            // kube-proxy has packet filters of its own there, and not those of this machine.
            let host = Host::new("api");
            Namespace::run(&host, || tokio::runtime::Runtime::new().unwrap().block_on(measure(&host)));
        }
    }
    figures::end()
}

async fn measure(host: &Host) {
    let many = std::env::var("SERVICES").map_or(10_000, |number| number.parse().unwrap());
    let kubernetes = roomy_kubernetes_in(host);
    for (kind, name) in [("namespace", "nodes"), ("namespace", "services")] {
        kubernetes.kubectl(&["create", kind, name]).unwrap();
    }
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node1"}});
    kubernetes.apply(&node.to_string()).unwrap();
    let client = processes::client(kubernetes.kubeconfig()).await;
    let seen = Seen::watch(client.clone());
    println!("\nServices at the addresses of a node, in mode nftables, on a real Kubernetes API\n");

    make(&client, processes::OURS_CLASS, 0..THERE).await;
    let mut ours = OtherProcess::start(processes::OURS, kubernetes.kubeconfig());
    let mut bare = OtherProcess::start(processes::BARE, kubernetes.kubeconfig());
    seen.until(|known| known.values().filter(|addresses| addresses.len() == 1).count() >= THERE).await;

    println!("from a Service to its status, {MADE} times, {THERE} there      median   99 of 100");
    above_the_floor(&client, &seen, processes::OURS_CLASS, THERE).await;
    bare.end();

    let mut firsts = Vec::new();
    let mut alls = Vec::new();
    for number in 0..5_usize {
        let start = Instant::now();
        ours.say(&format!("ip address add 203.0.113.{}/32 dev lan0", number + 10));
        let has = |addresses: &Vec<String>| addresses.len() == number + 2;
        seen.until(|known| known.values().any(has)).await;
        firsts.push(start.elapsed());
        seen.until(|known| known.values().filter(|addresses| has(addresses)).count() >= THERE + MADE).await;
        alls.push(start.elapsed());
    }
    let (first, _) = spread(&mut firsts);
    let (all, _) = spread(&mut alls);
    println!(
        "\n{:<50} {:>6.1} ms {}\n{:<50} {:>6.1} ms",
        "from an address to the first status, median of 5",
        millis(first),
        mark(first < ADDRESS),
        format!("  and to all {}", THERE + MADE),
        millis(all)
    );
    ours.end();
    filtered(&client, kubernetes.kubeconfig(), &seen).await;

    if many > THERE + MADE {
        make(&client, processes::OURS_CLASS, THERE + MADE..many).await;
    }
    starts(&client, kubernetes.kubeconfig(), &seen, many).await;
    beside(&kubernetes, host, &client, many).await;
}

/// Until packet filters are set.
fn hear_set(process: &mut OtherProcess) {
    while process.hear() != "set" {}
}

/// Makes Services of a class and of the floor's in turns, from a number on, and says how long it takes until each has its status.
async fn above_the_floor(client: &Client, seen: &Seen, class: &str, from: usize) {
    let (mut of_ours, mut of_bare) = (Vec::new(), Vec::new());
    for number in from..from + MADE {
        for (class, times) in [(class, &mut of_ours), (processes::BARE_CLASS, &mut of_bare)] {
            let (name, start) = make_one(client, class, number).await;
            seen.until(|known| known.get(&name).is_some_and(|addresses| !addresses.is_empty())).await;
            times.push(start.elapsed());
        }
    }
    let (median, most) = spread(&mut of_ours);
    let (bare_median, bare_most) = spread(&mut of_bare);
    println!("{:<50} {:>6.1} ms   {:>6.1} ms", "  ours", millis(median), millis(most));
    println!("{:<50} {:>6.1} ms   {:>6.1} ms", "  the floor", millis(bare_median), millis(bare_most));
    let (above, most_above) = (median.saturating_sub(bare_median), most.saturating_sub(bare_most));
    println!(
        "{:<50} {:>6.1} ms {} {:>6.1} ms {}",
        "  above the floor",
        millis(above),
        mark(above <= MEDIAN),
        millis(most_above),
        mark(most_above <= MOST)
    );
}

/// The same in mode filter, where a Service with ranges gets its address only after the node said that they are in force.
async fn filtered(client: &Client, kubeconfig: &Path, seen: &Seen) {
    let mut ours = OtherProcess::start(processes::FILTER, kubeconfig);
    let mut bare = OtherProcess::start(processes::BARE, kubeconfig);
    hear_set(&mut ours);
    // Whoever was just started has connections to make, and a table.
    make(client, processes::FILTERED_CLASS, FILTERED..FILTERED + FILTERED_THERE).await;
    let kind = processes::FILTERED_CLASS.rsplit('/').next().unwrap();
    seen.until(|known| {
        let there = known.iter().filter(|(name, addresses)| name.starts_with(kind) && !addresses.is_empty());
        there.count() >= FILTERED_THERE
    })
    .await;
    println!("\nthe same in mode filter, with ranges, {FILTERED_THERE} of them there");
    above_the_floor(client, seen, processes::FILTERED_CLASS, FILTERED + FILTERED_THERE).await;
    bare.end();
    ours.end();
}

/// Starts with so many Services: on a node of a cluster, and then all of it on one machine.
async fn starts(client: &Client, kubeconfig: &Path, seen: &Seen, many: usize) {
    let start = Instant::now();
    let mut agent = OtherProcess::start(processes::AGENT, kubeconfig);
    hear_set(&mut agent);
    let alone = start.elapsed();
    let memory = most_memory(agent.id());
    agent.end();
    println!(
        "\n{:<50} {:>6.2} s {}\n  with {} MB",
        format!("a start with {many} Services: a node's filters set"),
        alone.as_secs_f64(),
        mark(alone < START),
        memory / 1_000_000,
    );
    let start = Instant::now();
    let mut ours = OtherProcess::start(processes::OURS, kubeconfig);
    hear_set(&mut ours);
    let set = start.elapsed();
    seen.until(|known| {
        let ours = known.iter().filter(|(name, _)| name.starts_with("ours-"));
        ours.filter(|(_, addresses)| addresses.len() == 1).count() >= many
    })
    .await;
    println!(
        "{:<50} {:>6.2} s {}\n{:<50} {:>6.2} s",
        "  with both halves on one machine",
        set.as_secs_f64(),
        mark(set < START),
        "  and to the last status written",
        start.elapsed().as_secs_f64()
    );
    let (_, start) = make_one(client, processes::OURS_CLASS, many).await;
    let place = format!("nft get element inet portcullis frontend4 {{ 192.0.2.1 . tcp . {} }}", port(many));
    loop {
        ours.say(&place);
        if ours.hear() == "yes" {
            break;
        }
    }
    let took = start.elapsed();
    let look = Instant::now();
    ours.say(&place);
    ours.hear();
    println!(
        "{:<50} {:>6.2} s, of which one look of nft takes {:.2} s",
        "  one more Service, until nft shows it",
        took.as_secs_f64(),
        look.elapsed().as_secs_f64()
    );
    let memory = most_memory(ours.id());
    println!(
        "memory of both halves, at most: {} MB of {} {}",
        memory / 1_000_000,
        MEMORY / 1_000_000,
        mark(memory < MEMORY)
    );
    ours.end();
}

/// kube-proxy with the same Services, of which it has to do with the cluster addresses alone, and without ranges.
async fn beside(kubernetes: &Kubernetes, host: &Host, client: &Client, many: usize) {
    let api: Api<Service> = Api::namespaced(client.clone(), "services");
    let is_served = async |name: &str| {
        let spec = api.get(name).await.unwrap().spec.unwrap();
        let (address, port) = (spec.cluster_ip.unwrap(), spec.ports.unwrap()[0].port);
        let element = format!("{{ {address} . tcp . {port} }}");
        let get = ["get", "element", "ip", "kube-proxy", "service-ips", &element];
        let deadline = Instant::now() + Duration::from_secs(600);
        while run(host, "nft", &get).is_err() {
            assert!(Instant::now() < deadline, "kube-proxy does not serve {name}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let start = Instant::now();
    let proxy = KubeProxy::start(kubernetes, "node2", "192.0.2.2");
    // All that are there come together.
    is_served("ours-0").await;
    println!(
        "\n{:<50} {:>6.2} s",
        format!("kube-proxy in nftables mode with those {many}: start"),
        start.elapsed().as_secs_f64()
    );
    let (name, start) = make_one(client, processes::OURS_CLASS, many + 1).await;
    is_served(&name).await;
    let took = start.elapsed();
    let look = Instant::now();
    is_served(&name).await;
    println!(
        "{:<50} {:>6.2} s, of which one look of nft takes {:.2} s",
        "  one more Service, until nft shows it",
        took.as_secs_f64(),
        look.elapsed().as_secs_f64()
    );
    println!("  with {} MB", most_memory(proxy.id()) / 1_000_000);
}

async fn make(client: &Client, class: &str, numbers: std::ops::Range<usize>) {
    stream::iter(numbers)
        .for_each_concurrent(TOGETHER, |number| async move { drop(make_one(client, class, number).await) })
        .await;
}

fn port(number: usize) -> usize {
    number + 11_000
}

/// Makes a Service of a class, on a port of its own, with two endpoints; its name, and when that began.
async fn make_one(client: &Client, class: &str, number: usize) -> (String, Instant) {
    let name = format!("{}-{number}", class.rsplit('/').next().unwrap());
    let service = json!({
        "metadata": {"name": name, "namespace": "services"},
        "spec": {
            "type": "LoadBalancer",
            "loadBalancerClass": class,
            "allocateLoadBalancerNodePorts": false,
            "loadBalancerSourceRanges": ["192.0.2.0/24"],
            // The floor writes addresses without asking whether they are taken.
            "ports": [{"port": port(number) + if class == processes::BARE_CLASS { 29_000 } else { 0 }}],
        },
    });
    let endpoint = |last: usize| {
        let address = format!("10.244.{}.{}", number / 100, number % 100 * 2 + last);
        json!({"addresses": [address], "nodeName": "node1", "conditions": {"ready": true}})
    };
    let slice = json!({
        "metadata": {
            "name": name,
            "namespace": "services",
            "labels": {"kubernetes.io/service-name": name},
        },
        "addressType": "IPv4",
        "endpoints": [endpoint(0), endpoint(1)],
        "ports": [{"port": 8080, "protocol": "TCP"}],
    });
    // Endpoints first, as nobody waits for them: what is measured begins with the Service.
    let api: Api<EndpointSlice> = Api::namespaced(client.clone(), "services");
    api.create(&PostParams::default(), &serde_json::from_value(slice).unwrap()).await.unwrap();
    let start = Instant::now();
    let api: Api<Service> = Api::namespaced(client.clone(), "services");
    api.create(&PostParams::default(), &serde_json::from_value(service).unwrap()).await.unwrap();
    (name, start)
}

/// The addresses of Services, as a watch tells of them.
struct Seen(watch::Receiver<Arc<HashMap<String, Vec<String>>>>);

impl Seen {
    fn watch(client: Client) -> Self {
        let (sender, receiver) = watch::channel(Arc::default());
        tokio::spawn(async move {
            let api: Api<Service> = Api::namespaced(client, "services");
            let events = watcher(api, watcher::Config::default());
            futures_util::pin_mut!(events);
            while let Ok(Some(event)) = events.try_next().await {
                let (watcher::Event::Apply(service) | watcher::Event::InitApply(service)) = event else {
                    continue;
                };
                let status = service.status.as_ref().and_then(|status| status.load_balancer.as_ref());
                let ingress = status.and_then(|status| status.ingress.as_ref()).into_iter().flatten();
                let addresses = ingress.filter_map(|one: &LoadBalancerIngress| one.ip.clone()).collect();
                sender.send_modify(|known: &mut Arc<HashMap<String, Vec<String>>>| {
                    Arc::make_mut(known).insert(service.name_any(), addresses);
                });
            }
        });
        Seen(receiver)
    }

    async fn until(&self, is: impl Fn(&HashMap<String, Vec<String>>) -> bool) {
        self.0.clone().wait_for(|known| is(known)).await.unwrap();
    }
}
