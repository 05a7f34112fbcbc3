use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use portcullis_core::{Admission, Cidr, EmptyMeans, Owner, Protocol, SourceRanges};
use portcullis_host::datapath::{Datapath, Error, Frontend, Mode, Place, Synced};
use portcullis_testkit::Host;
use portcullis_testkit::figures::{mark, median, millis, spread};

use crate::{on, row};

/// So many changes of each kind are measured.
const CHANGES: u32 = 500;
/// So many come together.
const TOGETHER: u32 = 1200;
/// Limits: all frontends in a kernel that has none; one change, at the median and for 99 of 100 as well; and memory.
const FIRST: Duration = Duration::from_secs(2);
const CHANGE: Duration = Duration::from_millis(5);
const MEMORY: u64 = 150_000_000;

/// The frontend that comes with a change.
type Changed = fn(u32) -> Frontend;

pub(crate) fn measure(count: u32) {
    println!("\n{count} frontends with a source range and two endpoints each, in mode nftables\n");
    let node = Host::new("node");
    let (before, all) = (resident(), (0..count).map(|number| frontend(number, 24, 2)).collect::<Vec<_>>());
    let mut datapath = on(&node, Datapath::open).unwrap();
    let mut first = Vec::new();
    for _ in 0..3 {
        on(&node, || datapath.sync(Mode::None, &[], [])).unwrap();
        let start = Instant::now();
        let synced = on(&node, || datapath.sync(Mode::Nftables, &[], all.iter().cloned())).unwrap();
        first.push((start.elapsed(), synced.elements));
    }
    first.sort();
    let (time, elements) = first[1];
    row("first sync", &format!("{:.2} s, {elements} elements", time.as_secs_f64()), mark(time < FIRST));

    let start = Instant::now();
    on(&node, || datapath.sync(Mode::Nftables, &[], all.iter().cloned())).unwrap();
    row("the same again, with nothing to do", &format!("{:.1} ms", millis(start.elapsed())), "");

    let kinds: [(&str, Changed); 4] = [
        ("one range changed", |round| ranged(round * 7919 % 10_000, round + 1, 24, 2)),
        ("one endpoint less, one more", |round| frontend(round / 2 * 7919 % 10_000, 24, 1 + round % 2)),
        ("no endpoint, and back", |round| frontend(round / 2 * 7919 % 10_000, 24, round % 2 * 2)),
        ("one frontend more", |round| frontend(100_000 + round, 24, 2)),
    ];
    for (what, changed) in kinds {
        // Chains for this number of endpoints are loaded with the first one.
        for round in 0..2 {
            on(&node, || datapath.change([changed(round)], [])).unwrap();
        }
        let mut times = on(&node, || times(|round| changed_one(datapath.change([changed(round + 2)], []))));
        report(what, &mut times);
    }
    // An address that comes with as many Services.
    let mut together = Vec::new();
    for round in 0..5 {
        let come: Vec<Frontend> =
            (0..TOGETHER).map(|number| frontend(200_000 + round * TOGETHER + number, 24, 2)).collect();
        let start = Instant::now();
        on(&node, || datapath.change(come, [])).unwrap();
        together.push(start.elapsed());
    }
    let what = format!("{TOGETHER} frontends more at once");
    row(
        &what,
        &format!(
            "{:.1} ms, one {:.3} ms",
            millis(median(&mut together)),
            millis(median(&mut together)) / f64::from(TOGETHER)
        ),
        "",
    );
    // Flows to endpoints that are gone are looked for among all that the machine tracks.
    let udp = |endpoints: u32| of_protocol(Protocol::UDP, 1, 1, 24, endpoints);
    on(&node, || datapath.change([udp(2)], [])).unwrap();
    let mut took = on(&node, || {
        times(|_| {
            changed_one(datapath.change([udp(1)], []));
            changed_one(datapath.change([udp(2)], []));
        })
    });
    let figure = format!("{:.2} ms", millis(median(&mut took)));
    row("one endpoint of UDP less, its flows ended, and back", &figure, "");
    let gone = |round: u32| frontend(100_000 + round, 24, 2).place();
    let mut took = on(&node, || times(|round| changed_one(datapath.change([], [gone(round)]))));
    report("one frontend less", &mut took);
    let mut took = on(&node, || times(|_| datapath.counters().unwrap()));
    row("counters of all", &format!("{:.1} ms", millis(median(&mut took))), "");

    let memory = resident() - before;
    row("memory, with what was wanted twice", &format!("{} MB", memory / 1_000_000), mark(memory < MEMORY));

    drop(datapath);
    let mut datapath = on(&node, Datapath::open).unwrap();
    let start = Instant::now();
    let wanted: Vec<Frontend> = all.clone();
    let synced = on(&node, || datapath.sync(Mode::Nftables, &[], wanted)).unwrap();
    row(
        "started again: all read, differences made good",
        &format!("{:.2} s, {} frontends differ", start.elapsed().as_secs_f64(), synced.frontends),
        mark(start.elapsed() < FIRST),
    );
    // Each one has a length of prefixes that none had, or a number of endpoints.
    let lengths = |round: u32| frontend(round, 31 - u8::try_from(round).unwrap() % 7, 2);
    let counts = |round: u32| frontend(round, 24, 3 + round);
    let loaded = |outcome: Result<Synced, Error>| assert!(outcome.unwrap().rules);
    let mut took = on(&node, || some_times(7, |round| loaded(datapath.change([lengths(round)], []))));
    report("a length of prefixes that none had: rules too", &mut took);
    let mut took = on(&node, || some_times(20, |round| loaded(datapath.change([counts(round)], []))));
    report("a number of endpoints that none had: rules too", &mut took);
    on(&node, || datapath.sync(Mode::Filter, &[], all.iter().cloned())).unwrap();
    let changed = |round: u32| ranged(round * 7919 % count, round + 1, 24, 2);
    let mut took = on(&node, || times(|round| changed_one(datapath.change([changed(round)], []))));
    report("one range changed, in mode filter", &mut took);
    let start = Instant::now();
    on(&node, || datapath.sync(Mode::None, &[], [])).unwrap();
    row("all removed", &format!("{:.2} s", start.elapsed().as_secs_f64()), "");
}

pub(crate) fn frontend(number: u32, length: u8, endpoints: u32) -> Frontend {
    ranged(number, number, length, endpoints)
}

fn ranged(number: u32, range: u32, length: u8, endpoints: u32) -> Frontend {
    of_protocol(Protocol::TCP, number, range, length, endpoints)
}

fn of_protocol(protocol: Protocol, number: u32, range: u32, length: u8, endpoints: u32) -> Frontend {
    let place = Place::new(address(10 << 24, number), protocol, 443).unwrap();
    let owner = Owner::new("bench", "Service", Some("shop".into()), format!("web-{number}")).unwrap();
    let range = Cidr::new(address(172 << 24, range << 8), length).unwrap();
    let admission = Admission { ranges: SourceRanges::listed([range]), empty_means: EmptyMeans::Everyone };
    let endpoints = (0..endpoints).map(|slot| SocketAddr::new(address(192 << 24, number * 2 + slot), 8443));
    Frontend::new(place, owner, admission, endpoints).unwrap()
}

fn address(base: u32, number: u32) -> IpAddr {
    Ipv4Addr::from(base + number + 1).into()
}

fn times<T>(work: impl FnMut(u32) -> T) -> Vec<Duration> {
    some_times(CHANGES, work)
}

fn some_times<T>(count: u32, mut work: impl FnMut(u32) -> T) -> Vec<Duration> {
    (0..count)
        .map(|round| {
            let start = Instant::now();
            let done = work(round);
            let time = start.elapsed();
            drop(done);
            time
        })
        .collect()
}

/// Makes sure that it was worth measuring.
fn changed_one(outcome: Result<Synced, Error>) {
    let synced = outcome.unwrap();
    assert!(synced.frontends == 1 && synced.elements > 0 && !synced.rules, "{synced:?}");
}

/// Both figures have the limit. Where there are less than a hundred times, the second one is of the slowest, which is chance, and is
/// only shown.
fn report(what: &str, times: &mut [Duration]) {
    let is_many = times.len() >= 100;
    let of = if is_many { "99 of 100" } else { "all" };
    let (middle, most) = spread(times);
    let figure = format!("{:.2} ms, {of} within {:.2} ms", millis(middle), millis(most));
    row(what, &figure, mark(middle < CHANGE && (most < CHANGE || !is_many)));
}

/// The memory that this process has, in bytes.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
}
