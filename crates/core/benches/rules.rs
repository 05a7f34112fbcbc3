//! What the decisions about rules cost, and how that grows with the number of rules.
//!
//! The times are of this machine and moment; the growth is what to look at: 10 is proportional, a little more
//! is sorting, and 100 would be every rule against every other. That is left only to a reach of many ranges
//! whose ports overlap and are all different: then each port has another set of addresses.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a bench talks")]

use std::hint::black_box;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use portcullis_core::{
    Cidr, Direction, Family, GroupId, Packet, Peer, PortRange, Protocol, Reach, Rule, SecurityGroup, Traffic,
    diff, normalise, verdict,
};

const SIZES: [u32; 3] = [100, 1_000, 10_000];

fn rule(host: u32, ports: PortRange) -> Rule {
    let peer = Peer::Range(Cidr::host(IpAddr::from((0x0a00_0000 | host).to_be_bytes())));
    let traffic = Traffic::ports(Protocol::TCP, ports).unwrap();
    Rule::new(Direction::Ingress, Family::V4, traffic, peer).unwrap()
}

fn port(number: u32) -> u16 {
    u16::try_from(number).unwrap()
}

/// `count` rules, each for another /32 on one of 16 ports.
fn hosts(count: u32) -> Vec<Rule> {
    (0..count).map(|number| rule(number, PortRange::single(8000 + port(number % 16)))).collect()
}

/// `count` rules of one /32, each for another port, with a gap after each.
fn ports(count: u32) -> Vec<Rule> {
    (0..count).map(|number| rule(1, PortRange::single(port(2 * number)))).collect()
}

/// `count` rules of one /32, each for one port more than the one before.
fn nested_ports(count: u32) -> Vec<Rule> {
    (0..count).map(|number| rule(1, PortRange::new(1, 1 + port(number)).unwrap())).collect()
}

/// `count` rules, each for another /32 on another port.
fn hosts_and_ports(count: u32) -> Vec<Rule> {
    (0..count).map(|number| rule(number, PortRange::single(port(2 * number)))).collect()
}

/// What the ingress rules among these let in.
fn reach(rules: &[Rule]) -> Reach {
    Reach::of(Direction::Ingress, rules)
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
        "{what:<37} {:>11.1} {:>11.1} {:>11.1}   ×{:<6.1} ×{:<6.1}",
        micros[0], micros[1], micros[2], growth[0], growth[1]
    );
}

/// What depends on how the rules differ from each other.
fn rows(kind: &str, make: fn(u32) -> Vec<Rule>) {
    let sets = SIZES.map(make);
    let normalised = sets.each_ref().map(|rules| best_of(|| normalise(rules.iter().cloned())));
    row(&format!("normalise, {kind}"), normalised);
    row(&format!("reach, {kind}"), sets.each_ref().map(|rules| best_of(|| reach(rules))));
    let widened = SIZES.map(|size| {
        let (before, after) = (reach(&make(size)), reach(&make(size + 1)));
        best_of(|| Reach::widened(&before, &after))
    });
    row(&format!("widened by one rule, {kind}"), widened);
    let told = sets.each_ref().map(|rules| {
        let reach = reach(rules);
        best_of(|| reach.to_string())
    });
    row(&format!("reach as text, {kind}"), told);
}

fn main() {
    println!("{:<37} {:>11} {:>11} {:>11}   growth", "µs for this many rules", SIZES[0], SIZES[1], SIZES[2]);
    rows("hosts", hosts);
    rows("ports", ports);
    rows("nested ports", nested_ports);
    rows("hosts and ports", hosts_and_ports);

    let sets = SIZES.map(hosts);
    row(
        "diff, one rule changed",
        sets.each_ref().map(|rules| {
            let (mut wanted, another) =
                (rules.clone(), hosts(u32::try_from(rules.len()).unwrap() + 1).pop().unwrap());
            wanted[0] = another;
            best_of(|| diff(rules, &wanted))
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
