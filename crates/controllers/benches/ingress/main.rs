//! A thousand `IngressControllers` on a real Kubernetes API: how long until all are settled, from one edited range to the
//! Service that has it, and what is written.
//!
//! Ours runs in a process of its own, and so does the floor: a client that only watches `IngressControllers` and patches
//! their Services with what it reads. Both are edited in turns, so that they have the same machine. Times are of this one;
//! what they have to do with each other is not.
//!
//! `CONTROLLERS=100` in the environment makes it a hundred. A limit that is missed ends it with a failure.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a bench talks")]

mod bare;
mod seen;
mod world;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use futures_util::{StreamExt, stream};
use portcullis_testkit::figures::{self, OtherProcess, mark, millis, most_memory, spread};

use self::seen::Seen;
use self::world::World;

// What the program has.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// So many edits are measured, of each.
const EDITS: usize = 300;
/// So many are made at the same time while the API server's own rate of writes is taken.
const TOGETHER: usize = 16;
/// Limits: from an edit to the Service, at the median and for 99 of 100; and memory.
const MEDIAN: Duration = Duration::from_millis(20);
const MOST: Duration = Duration::from_millis(100);
const MEMORY: u64 = 100_000_000;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        [world::OURS, kubeconfig] => world::run_ours(kubeconfig),
        [world::BARE, kubeconfig] => world::run_bare(kubeconfig),
        _ => tokio::runtime::Runtime::new().unwrap().block_on(measure()),
    }
    figures::end()
}

async fn measure() {
    let count = std::env::var("CONTROLLERS").map_or(1000, |number| number.parse().unwrap());
    let world = World::new(count).await;
    let seen = Seen::watch(&world).await;
    println!("\n{count} IngressControllers on a real Kubernetes API\n");

    let rate = world.write_rate(TOGETHER).await;
    println!("{:<44} {rate:>8.0} writes/s, {TOGETHER} at a time", "the API server by itself");

    let start = Instant::now();
    let ours = OtherProcess::start(world::OURS, world.kubeconfig());
    seen.until_settled(count).await;
    let (time, writes) = (start.elapsed(), seen.take_writes());
    let each = f64::from(u32::try_from(writes.all()).unwrap()) / f64::from(u32::try_from(count).unwrap());
    println!(
        "{:<44} {:>8.1} s, {each:.2} writes each ({:.0} writes/s)",
        "from nothing to all settled",
        time.as_secs_f64(),
        f64::from(u32::try_from(writes.all()).unwrap()) / time.as_secs_f64()
    );
    let most = [writes.most_of_one_service, writes.most_of_one_deployment, writes.most_of_one_budget];
    let kept = most.iter().all(|count| *count <= 1);
    println!(
        "{:<44} {:>8}   {}",
        "  at most, of one Service, Deployment, budget",
        most.map(|count| count.to_string()).join(" + "),
        mark(kept)
    );

    world.make_available(count).await;
    seen.until_well(count).await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    seen.take_writes();
    drop(ours);
    let start = Instant::now();
    let ours = OtherProcess::start(world::OURS, world.kubeconfig());
    // It is there when it does what it is asked to; whatever it has to say of the others it has said long after that.
    world.edit(world::CONTROLLERS, 0, "203.0.113.1/32").await;
    seen.until_ranges("router-shop-0", "203.0.113.1/32").await;
    let back = start.elapsed();
    tokio::time::sleep(Duration::from_secs(10)).await;
    let writes = seen.take_writes();
    // The Service, and twice the IngressController: the edit and its status.
    println!(
        "{:<44} {:>8.1} s; {} writes beside those of one edit {}",
        "started again, to the first edit carried out",
        back.as_secs_f64(),
        writes.all().saturating_sub(3),
        mark(writes.all() <= 3)
    );

    let bare = OtherProcess::start(world::BARE, world.kubeconfig());
    world.edit(world::FLOOR, 0, "203.0.113.1/32").await;
    seen.until_ranges("floor-0", "203.0.113.1/32").await;
    seen.take_writes();
    let (mut of_ours, mut of_bare) = (Vec::new(), Vec::new());
    for edit in 0..EDITS {
        let range = format!("198.51.{}.{}/32", edit / 250, edit % 250 + 1);
        let one = (edit * 7919) % count;
        let start = Instant::now();
        world.edit(world::CONTROLLERS, one, &range).await;
        of_ours.push(seen.until_ranges(&format!("router-shop-{one}"), &range).await - start);
        let one = edit % world::FLOORS;
        let start = Instant::now();
        world.edit(world::FLOOR, one, &range).await;
        of_bare.push(seen.until_ranges(&format!("floor-{one}"), &range).await - start);
    }
    tokio::time::sleep(Duration::from_secs(2)).await;
    let writes = seen.take_writes();
    drop(bare);
    println!("\nfrom an edited range to the Service that has it, {EDITS} times      median   99 of 100");
    let (median, most) = spread(&mut of_ours);
    let (bare_median, bare_most) = spread(&mut of_bare);
    println!(
        "{:<50} {:>6.1} ms {} {:>6.1} ms {}",
        "  ours",
        millis(median),
        mark(median < MEDIAN),
        millis(most),
        mark(most < MOST)
    );
    println!("{:<50} {:>6.1} ms   {:>6.1} ms", "  the floor", millis(bare_median), millis(bare_most));
    println!(
        "{:<50} {:>6.2}      {:>6.2}",
        "  ours : floor",
        millis(median) / millis(bare_median),
        millis(most) / millis(bare_most)
    );
    let expected = 3 * EDITS;
    println!(
        "  writes of ours, the edits counted: {} of {expected} {}",
        writes.ours,
        mark(writes.ours <= expected)
    );
    let memory = most_memory(ours.id());
    println!(
        "\nmemory, at most: {} MB of {} {}",
        memory / 1_000_000,
        MEMORY / 1_000_000,
        mark(memory < MEMORY)
    );
}

/// Does something for many, some at a time.
async fn each<F: Future<Output = ()>>(count: usize, does: impl Fn(usize) -> F) {
    stream::iter(0..count).for_each_concurrent(TOGETHER, does).await;
}
