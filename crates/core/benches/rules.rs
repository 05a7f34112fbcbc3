//! What the decisions about rules cost, and how that grows with the number of rules.
//!
//! The times are of this machine and moment; the growth is what to look at: 10 is proportional.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a bench talks")]

use std::hint::black_box;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use portcullis_core::{
    Cidr, Direction, Family, GroupId, Packet, Peer, PortRange, Protocol, Reach, Rule, SecurityGroup, Traffic,
    diff, normalise, verdict,
};

const SIZES: [u32; 3] = [100, 1_000, 10_000];

/// `count` rules, each for another /32 on one of 16 ports.
fn rules(count: u32) -> Vec<Rule> {
    (0..count)
        .map(|number| {
            let address = IpAddr::from((0x0a00_0000 | number).to_be_bytes());
            let port = PortRange::single(8000 + u16::try_from(number % 16).unwrap());
            let traffic = Traffic::ports(Protocol::TCP, port).unwrap();
            Rule::new(Direction::Ingress, Family::V4, traffic, Peer::Range(Cidr::host(address))).unwrap()
        })
        .collect()
}

/// The best of several runs: what the machine can do when nobody disturbs it.
fn best_of<T>(mut work: impl FnMut() -> T) -> Duration {
    let once = |work: &mut dyn FnMut() -> T| {
        let start = Instant::now();
        black_box(work());
        start.elapsed()
    };
    let first = once(&mut work);
    let runs = if first > Duration::from_millis(200) { 2 } else { 20 };
    (0..runs).map(|_| once(&mut work)).min().unwrap_or(first)
}

fn row(what: &str, times: [Duration; 3]) {
    let micros = times.map(|time| time.as_secs_f64() * 1e6);
    let growth = [micros[1] / micros[0], micros[2] / micros[1]];
    println!(
        "{what:<34} {:>11.1} {:>11.1} {:>11.1}   ×{:<6.1} ×{:<6.1}",
        micros[0], micros[1], micros[2], growth[0], growth[1]
    );
}

fn main() {
    println!("{:<34} {:>11} {:>11} {:>11}   growth", "µs for this many rules", SIZES[0], SIZES[1], SIZES[2]);
    let sets = SIZES.map(rules);

    row("normalise", sets.each_ref().map(|rules| best_of(|| normalise(rules.iter().cloned()))));
    row(
        "diff, one rule changed",
        sets.each_ref().map(|rules| {
            let (mut wanted, another) =
                (rules.clone(), self::rules(u32::try_from(rules.len()).unwrap() + 1).pop().unwrap());
            wanted[0] = another;
            best_of(|| diff(rules, &wanted))
        }),
    );
    row("reach", sets.each_ref().map(|rules| best_of(|| Reach::of(rules))));
    row(
        "widened, one rule added",
        sets.each_ref().map(|rules| {
            let before = Reach::of(rules);
            let after = Reach::of(&self::rules(u32::try_from(rules.len()).unwrap() + 1));
            best_of(|| Reach::widened(&before, &after))
        }),
    );
    row(
        "verdict, no rule matches",
        sets.each_ref().map(|rules| {
            let group = SecurityGroup {
                id: GroupId::new("bench").unwrap(),
                name: "bench".into(),
                rules: rules.clone(),
                stateful: true,
            };
            let traffic = Traffic::ports(Protocol::TCP, PortRange::single(443)).unwrap();
            let (local, remote) = ([192, 0, 2, 1].into(), [198, 51, 100, 1].into());
            let packet = Packet::new(Direction::Ingress, local, remote, traffic).unwrap();
            best_of(|| verdict(&packet, [&group]).is_allow())
        }),
    );
}
