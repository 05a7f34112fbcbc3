//! Load balancers of clusters on a real Kubernetes API, on a machine with a real `HAProxy`: how long until an endpoint is known, and
//! from a Machine that is ready to the first connection through it.
//!
//! The controllers run in a process of their own, and ask endpoints whether they answer; the machine is a network namespace of this one. Clusters and Machines are objects
//! in the shapes of the proposal, so that nobody else works on them. Times are of this machine.
//!
//! `BALANCERS=50` in the environment makes it fifty. A limit that is missed ends it with a failure.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a bench talks")]

mod fleet;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use portcullis_testkit::Host;
use portcullis_testkit::figures::{self, OtherProcess, mark, median, millis, most_memory};
use portcullis_testkit::parts::Namespace;
use portcullis_testkit::talk::ask;

use self::fleet::{Fleet, OURS};

// What the program has.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// So many are made, and so many Machines change, when that is measured.
const MADE: usize = 10;
/// For so long nothing may be written.
const REST: Duration = Duration::from_secs(15);
/// Limits: from a load balancer to its endpoint, above nothing; memory of the controllers.
const ENDPOINT: Duration = Duration::from_millis(1000);
/// From a Machine with an address to a connection. Up to a second of it is HAProxy's check: who is new has to pass it twice
/// (`rise 2`), and is asked every half second (`downinter`) until then, so that nobody is sent to who does not answer. The rest is
/// for the way: the Machine is seen, the assignment written and seen, and HAProxy told.
const CONNECTION: Duration = Duration::from_millis(2000);
const MEMORY: u64 = 150_000_000;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        [fleet::OURS, kubeconfig] => fleet::run_ours(kubeconfig),
        _ => begin(),
    }
    figures::end()
}

/// On a host of its own, from which endpoints are reached.
fn begin() {
    let client = Host::new("client");
    Namespace::run(&client, || {
        tokio::runtime::Runtime::new().unwrap().block_on(measure(client.clone()));
    });
}

async fn measure(client: Host) {
    let count = std::env::var("BALANCERS").map_or(500, |number| number.parse().unwrap());
    let fleet = Fleet::new(client).await;
    println!("\n{count} load balancers of 3 members, on a real Kubernetes API and a real HAProxy\n");
    for number in 0..count {
        fleet.cluster(number, 3).await;
    }
    let start = Instant::now();
    let mut ours = OtherProcess::start(OURS, fleet.kubeconfig());
    let _agent = fleet.carry().await;
    fleet.until(|seen| seen.active.values().filter(|active| **active == 3).count() >= count).await;
    println!("{:<58} {:>8.1} s", "from nothing to all members active", start.elapsed().as_secs_f64());

    let mut endpoints = Vec::new();
    for number in count..count + MADE {
        let start = Instant::now();
        fleet.cluster(number, 3).await;
        let name = fleet::name(number);
        fleet.until(|seen| seen.endpoints.contains(&name)).await;
        endpoints.push(start.elapsed());
    }
    let endpoint = median(&mut endpoints);
    println!(
        "{:<58} {:>8.1} ms {}",
        format!("from a load balancer to its endpoint, median of {MADE}"),
        millis(endpoint),
        mark(endpoint < ENDPOINT)
    );
    fleet.until(|seen| seen.active.values().filter(|active| **active == 3).count() >= count + MADE).await;

    let mut connected = Vec::new();
    for number in count + MADE..count + 2 * MADE {
        fleet.cluster(number, 0).await;
        let name = fleet::name(number);
        fleet.until(|seen| seen.endpoints.contains(&name)).await;
        let start = Instant::now();
        fleet.machine(number, 0).await;
        while ask(&fleet.client_host, fleet::FRONT, fleet::port(number)).is_err() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        connected.push(start.elapsed());
    }
    let first = median(&mut connected);
    println!(
        "{:<58} {:>8.1} ms {}",
        format!("from a Machine with an address to a connection, of {MADE}"),
        millis(first),
        mark(first < CONNECTION)
    );

    // All of them are asked again and again from here on.
    fleet.until(|seen| seen.answering.len() >= count + 2 * MADE).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    let before = fleet.writes();
    assert!(
        before.get("machines") > Some(&count.try_into().unwrap()),
        "it counted those who came: {before:?}"
    );
    tokio::time::sleep(REST).await;
    let mut writes = fleet.writes();
    for (resource, count) in &mut writes {
        *count -= before.get(resource).unwrap_or(&0);
    }
    writes.retain(|_, count| *count > 0);
    println!(
        "{:<58} {:>8}    {}",
        format!("writes in {} s at rest, but for Leases", REST.as_secs()),
        writes.values().sum::<u64>(),
        mark(writes.is_empty())
    );
    for (resource, count) in writes {
        println!("  of {resource:<55} {count:>8}");
    }
    let memory = most_memory(ours.id());
    println!(
        "{:<58} {:>8} MB of {} {}",
        "memory of the controllers, at most",
        memory / 1_000_000,
        MEMORY / 1_000_000,
        mark(memory < MEMORY)
    );
    ours.end();
}
