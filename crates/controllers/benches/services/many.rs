//! A thousand Services of ours.
//!
//! The provider runs in a process of its own, so that its memory and its time are its own; the fake is here, and counts.

use std::io::{Write, stdin, stdout};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::{StreamExt, stream};
use portcullis_aws::Provider;
use portcullis_aws_fake::Fake;
use portcullis_core::{
    Admission, EmptyMeans, Family, Listener, ListenerProtocol, LoadBalancer, Member, Outcome, Owner,
    Provider as _, Scheme, SourceRanges, Target, Want,
};
use portcullis_testkit::figures::{OtherProcess, cpu, mark, memory};

use crate::aws::{self, CLUSTER, Calls};

/// The word by which the other process knows what it is.
pub(crate) const CHILD: &str = "--provider-for";

const PORTS: u16 = 3;
const NODES: u8 = 100;
/// So many are dealt with at the same time, as the program does unless told otherwise.
const TOGETHER: usize = 32;
/// So many are looked at closely.
const CLOSELY: u16 = 50;
/// The limit of memory, in bytes.
const MEMORY: u64 = 150_000_000;

/// What the other process does, one after the other.
const TASKS: [Task; 7] = [
    Task { name: "create", each: None, limit: Some((5.0 + 3.0 * PORTS as f64, 4.0)) },
    Task { name: "no-op event", each: None, limit: Some((0.0, 0.0)) },
    Task { name: "resync of all", each: None, limit: Some((0.0, 0.05)) },
    Task { name: "deep look", each: Some(CLOSELY), limit: Some((0.0, 3.0 + 2.0 * PORTS as f64)) },
    Task { name: "node added", each: None, limit: Some((PORTS as f64, 0.001)) },
    Task { name: "restart", each: None, limit: None },
    Task { name: "delete", each: None, limit: Some((2.0 + PORTS as f64, 4.0)) },
];

/// A thousand, or as many as the environment says.
fn services() -> u16 {
    std::env::var("SERVICES").map_or(1000, |number| number.parse().unwrap())
}

struct Task {
    name: &'static str,
    /// How many Services it is about, if not all.
    each: Option<u16>,
    /// How many calls for each may change something, and how many may not.
    limit: Option<(f64, f64)>,
}

pub(crate) fn measure() {
    let services = services();
    let fake = aws::fake(usize::from(NODES) + 1);
    let mut other = Other::start(&fake);
    println!(
        "\n{services} Services with {PORTS} ports and {NODES} nodes, {TOGETHER} at a time; calls per Service:\n"
    );
    println!(
        "{:<14} {:>11} {:>9} {:>9}   {:>8} {:>8} {:>8}   {:>16}",
        "", "calls", "mutating", "reads", "time", "our CPU", "memory", "limit"
    );
    // What all share comes with the first and goes with the last, which is none of those that are counted.
    other.work("one more");
    let mut most = 0;
    for task in &TASKS {
        fake.clear_calls();
        let done = other.work(task.name);
        let calls = Calls::take(&fake);
        let each = |calls: usize| {
            f64::from(u32::try_from(calls).unwrap()) / f64::from(task.each.unwrap_or(services))
        };
        let limit = task.limit.map_or("–".to_owned(), |(mutating, reads)| {
            let kept = each(calls.mutating) <= mutating && each(calls.reads()) <= reads;
            format!("{mutating} + {reads} {}", mark(kept))
        });
        println!(
            "{:<14} {:>11} {:>9.3} {:>9.3}   {:>6.2} s {:>6.2} s {:>5} MB   {limit:>16}",
            task.name,
            calls,
            each(calls.mutating),
            each(calls.reads()),
            done.time.as_secs_f64(),
            done.cpu.as_secs_f64(),
            done.memory / 1_000_000,
        );
        most = most.max(done.memory);
    }
    println!("\nmemory, at most: {} MB of {} {}", most / 1_000_000, MEMORY / 1_000_000, mark(most < MEMORY));
}

/// The other process: it is told a task by a line, and answers with one.
struct Other(OtherProcess);

struct Done {
    time: Duration,
    cpu: Duration,
    memory: u64,
}

impl Other {
    fn start(fake: &Fake) -> Self {
        Other(OtherProcess::start(CHILD, fake.url()))
    }

    fn work(&mut self, task: &str) -> Done {
        let (start, before) = (Instant::now(), cpu(self.0.id()));
        self.0.say(task);
        assert_eq!(self.0.hear(), "done", "{task}");
        let id = self.0.id();
        Done { time: start.elapsed(), cpu: cpu(id).saturating_sub(before), memory: memory(id) }
    }
}

/// What the other process is.
pub(crate) fn child(url: &str) {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let mut provider = aws::provider(url);
    for task in stdin().lines() {
        let task = task.unwrap();
        if task == "restart" {
            provider = aws::provider(url);
        }
        // As a controller does it: by one task, on whichever thread.
        let does = provider.clone();
        runtime.block_on(runtime.spawn(async move { work(&does, &task).await })).unwrap();
        let mut out = stdout();
        writeln!(out, "done").unwrap();
        out.flush().unwrap();
    }
}

async fn work(provider: &Provider, task: &str) {
    match task {
        "one more" => {
            let want = want(services(), &members(NODES));
            assert_eq!(provider.sync(&want).await.outcome, Outcome::Done);
        }
        "create" | "no-op event" => sync_all(provider, &members(NODES)).await,
        "node added" | "restart" => sync_all(provider, &members(NODES + 1)).await,
        "resync of all" => assert_eq!(provider.look_at_all().await.unwrap(), []),
        "deep look" => {
            for number in 0..CLOSELY {
                assert!(!provider.look_closely(&owner(number)).await.unwrap());
            }
        }
        "delete" => {
            each(|number| async move {
                let want = Want {
                    owner: owner(number),
                    uid: String::new(),
                    target: Target::Gone,
                    parameters: [].into(),
                    nodes: [].into(),
                };
                assert_eq!(provider.sync(&want).await.outcome, Outcome::Done);
            })
            .await;
        }
        other => panic!("{other} is no task"),
    }
}

async fn sync_all(provider: &Provider, members: &Arc<[Member]>) {
    each(|number| async move {
        assert_eq!(provider.sync(&want(number, members)).await.outcome, Outcome::Done);
    })
    .await;
}

/// Does something for all Services, some at a time.
async fn each<F: Future<Output = ()>>(does: impl Fn(u16) -> F) {
    stream::iter(0..services()).for_each_concurrent(TOGETHER, does).await;
}

fn owner(number: u16) -> Owner {
    Owner::new(CLUSTER, "Service", Some("shop".into()), format!("web-{number}")).unwrap()
}

/// The nodes, once for all Services.
fn members(count: u8) -> Arc<[Member]> {
    (1..=count)
        .map(|number| {
            let member = Member::new(format!("node-{number}"), [IpAddr::from([10, 0, 1, number])]).unwrap();
            member.with_reference(format!("aws:///eu-central-1a/i-{number}"))
        })
        .collect()
}

fn want(number: u16, members: &Arc<[Member]>) -> Want {
    let listeners = (0..PORTS).map(|port| {
        // There are no more node ports than these; here nobody minds that some are taken twice.
        let node_port = 30_000 + (number * PORTS + port) % 2_768;
        Listener::new(80 + port, ListenerProtocol::Tcp, node_port).unwrap()
    });
    let ranges = SourceRanges::parse(None::<Vec<&str>>).unwrap();
    let admission = Admission { ranges, empty_means: EmptyMeans::Everyone };
    let owner = owner(number);
    let name = owner.name().to_owned();
    let wanted =
        LoadBalancer::new(name, Scheme::InternetFacing, [Family::V4], listeners.collect(), admission);
    Want {
        owner,
        uid: format!("uid-{number}"),
        target: Target::Present(wanted.unwrap().with_members(Arc::clone(members)).unwrap()),
        parameters: [].into(),
        nodes: [].into(),
    }
}
