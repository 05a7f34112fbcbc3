//! How fast the Networking API is: alone, with much in the database, and beside what the database itself can do.
//!
//! Eight clients with connections of their own ask a release build of `portcullis serve`, with a real northbound database
//! and northd on the same machine. Then the program is stopped, and the transactions that such requests become are sent
//! to the same database, eight on their way at any time, for as long. Rates are of this machine and moment; the ratios
//! are what to look at. The last column is how often that is the rate of a Neutron, once measured on such a machine.
//!
//! `cargo bench -p portcullis --bench networking -- --url http://host:9696 --token …` asks any other server of the
//! Networking API instead, such as a Neutron, and prints the same rates for it. `--only rule` measures what has that
//! word in its name.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a bench talks")]

mod api;
mod raw;
mod server;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::{Value, json};

use api::{Api, Rate};
use server::Server;

const CLIENTS: usize = 8;
/// Each rate is measured for so long, and so often, in turn with what it is compared to.
const WHILE: Duration = Duration::from_secs(1);
const ROUNDS: usize = 3;

/// What is in the database of a large site.
const GROUPS: usize = 2_000;
const RULES_PER_GROUP: usize = 8;
const PORTS: usize = 10_000;
const NETWORKS: usize = 100;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let value = |name: &str| {
        let place = arguments.iter().position(|argument| argument == name)?;
        arguments.get(place + 1).cloned()
    };
    let only = value("--only").unwrap_or_default();
    match (value("--url"), value("--token")) {
        (Some(url), Some(token)) => elsewhere(&Api::new(&url, &token), &only),
        _ => here(&only),
    }
}

/// The rates of some server.
fn elsewhere(api: &Api, only: &str) {
    let workload = Workload::new(api, NETWORKS, 0, 0);
    for kind in Kind::matching(only) {
        println!("{:<14} {}", kind.name(), workload.rate(api, kind));
    }
}

fn here(only: &str) {
    for durable in [false, true] {
        let how = if durable {
            "each change on disk before it is answered"
        } else {
            "changes not waited for on disk"
        };
        println!("\nAn empty database, {how}:");
        heading();
        // For each of them: what one fills it with would not be there for the next.
        let empty: Vec<_> = Kind::matching(only)
            .map(|kind| {
                let server = Server::start(durable);
                let workload = Workload::new(&server.api(), NETWORKS, 0, 0);
                compare(&server, &workload, kind)
            })
            .collect();
        let server = Server::start(durable);
        let workload = Workload::new(&server.api(), GROUPS, RULES_PER_GROUP, PORTS);
        server.settle();
        println!("\n{GROUPS} groups, {} rules, {PORTS} ports, {how}:", GROUPS * (RULES_PER_GROUP + 2));
        println!("start          {:.2} s", server.restart().as_secs_f64());
        println!("memory         {} MB", server.memory() / 1_000_000);
        heading();
        for (kind, before) in Kind::matching(only).zip(empty) {
            let after = compare(&server, &workload, kind);
            println!("{:<14} costs {:.2} of what it did", "", before / after);
        }
    }
}

fn heading() {
    println!(
        "{:<14} {:>10} {:>10}   {:>7}   {:>8} {:>8}   {:>10}   {:>9}",
        "", "API", "database", "ratio", "median", "p99", "CPU of ours", "Neutrons"
    );
}

/// The rate of the API, beside that of the same transactions without it.
fn compare(server: &Server, workload: &Workload, kind: Kind) -> f64 {
    let (mut rates, mut raw, mut cpu) = (Vec::new(), Vec::new(), Duration::ZERO);
    for _ in 0..ROUNDS {
        let api = server.api();
        server.settle();
        let before = server.cpu();
        rates.push(workload.rate(&api, kind));
        cpu += server.cpu().saturating_sub(before);
        if kind.changes() {
            let transactions = workload.transactions(&api, kind);
            server.settle();
            // It would follow the changes, and see to it that they are right.
            server.stop();
            raw.push(raw::rate(&server.socket(), &transactions, CLIENTS, server.durable, WHILE));
            server.restart();
        }
    }
    let rate = Rate::all(rates);
    let mean = raw.iter().sum::<f64>() / f64::from(u32::try_from(raw.len().max(1)).unwrap());
    let (database, ratio) = if raw.is_empty() {
        (String::new(), String::new())
    } else {
        (format!("{mean:.0}/s"), format!("{:.2}", rate.per_second() / mean))
    };
    println!(
        "{:<14} {:>8.0}/s {database:>10}   {ratio:>7}   {:>5.2} ms {:>5.2} ms   {:>8} µs   {:>9}",
        kind.name(),
        rate.per_second(),
        rate.percentile(0.5).as_secs_f64() * 1000.0,
        rate.percentile(0.99).as_secs_f64() * 1000.0,
        cpu.as_micros() / rate.count(),
        kind.of_neutron().map_or(String::new(), |neutron| format!("{:.0}", rate.per_second() / neutron)),
    );
    rate.per_second()
}

/// What is asked for.
#[derive(Clone, Copy)]
enum Kind {
    Group,
    Rule,
    Port,
    Look,
    LookAlone,
    /// A hundred of all ports, by a limit.
    List,
    /// Those of one network.
    Filter,
}

impl Kind {
    fn matching(word: &str) -> impl Iterator<Item = Kind> + '_ {
        let all =
            [Kind::Look, Kind::LookAlone, Kind::List, Kind::Filter, Kind::Port, Kind::Rule, Kind::Group];
        all.into_iter().filter(move |kind| kind.name().contains(word))
    }

    fn name(self) -> &'static str {
        match self {
            Kind::Group => "POST group",
            Kind::Rule => "POST rule",
            Kind::Port => "POST port",
            Kind::Look => "GET port",
            Kind::LookAlone => "GET, alone",
            Kind::List => "GET 100 ports",
            Kind::Filter => "GET network's",
        }
    }

    /// What a Neutron 29 on OVN did in a second, on two cores.
    fn of_neutron(self) -> Option<f64> {
        match self {
            Kind::Group => Some(22.0),
            Kind::Rule => Some(31.0),
            Kind::Port => Some(6.5),
            Kind::Look => Some(67.0),
            Kind::LookAlone | Kind::List | Kind::Filter => None,
        }
    }

    fn changes(self) -> bool {
        matches!(self, Kind::Group | Kind::Rule | Kind::Port)
    }
}

/// Things to make, and things to look at.
struct Workload {
    groups: Vec<String>,
    networks: Vec<String>,
    ports: Vec<String>,
    /// How many rules each group has already.
    rules: usize,
    /// How many requests were made up; a group has no two rules that are the same.
    next: AtomicUsize,
}

impl Workload {
    /// Fills the database, many objects at a time. New rules and ports come into these groups and networks, in turn.
    fn new(api: &Api, groups: usize, rules: usize, ports: usize) -> Self {
        let groups = api.create_all("security-groups", "security_groups", &vec![group(); groups]);
        for group in &groups {
            let rules: Vec<Value> = (0..rules).map(|number| rule(group, number)).collect();
            api.create_all("security-group-rules", "security_group_rules", &rules);
        }
        let networks = api.create_all("networks", "networks", &vec![network(); NETWORKS]);
        let subnets: Vec<Value> = networks.iter().map(|network| subnet(network)).collect();
        api.create_all("subnets", "subnets", &subnets);
        // As many as a list of a hundred takes, at least.
        let ports = (0..ports.max(NETWORKS))
            .map(|number| port(&networks[number % NETWORKS], &groups[number % groups.len()]));
        let ports = api.create_all("ports", "ports", &ports.collect::<Vec<_>>());
        Workload { groups, networks, ports, rules, next: AtomicUsize::new(0) }
    }

    fn rate(&self, api: &Api, kind: Kind) -> Rate {
        let clients = if matches!(kind, Kind::LookAlone) { 1 } else { CLIENTS };
        api.load(clients, WHILE, |client| self.request(kind, client)).0
    }

    /// The transactions that such requests become.
    fn transactions(&self, api: &Api, kind: Kind) -> Vec<Value> {
        let (_, answers) = api.load(CLIENTS, WHILE, |client| {
            let (method, path, body) = self.request(kind, client);
            (method, path + "?dry_run=true", body)
        });
        answers.iter().map(|answer| answer.json()["dry_run"]["transaction"].take()).collect()
    }

    fn request(&self, kind: Kind, client: usize) -> (&'static str, String, String) {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let in_group = &self.groups[number % self.groups.len()];
        let in_network = &self.networks[number % self.networks.len()];
        match kind {
            Kind::Group => ("POST", "security-groups".to_owned(), wrap("security_group", &group())),
            Kind::Rule => {
                let rule = rule(in_group, self.rules + number / self.groups.len());
                ("POST", "security-group-rules".to_owned(), wrap("security_group_rule", &rule))
            }
            Kind::Port => ("POST", "ports".to_owned(), wrap("port", &port(in_network, in_group))),
            Kind::Look | Kind::LookAlone => ("GET", format!("ports/{}", self.ports[client]), String::new()),
            Kind::List => ("GET", "ports?limit=100".to_owned(), String::new()),
            Kind::Filter => ("GET", format!("ports?network_id={in_network}"), String::new()),
        }
    }
}

fn wrap(name: &str, attributes: &Value) -> String {
    json!({name: attributes}).to_string()
}

fn group() -> Value {
    json!({"name": "bench"})
}

fn network() -> Value {
    json!({"name": "bench"})
}

fn subnet(network: &str) -> Value {
    json!({"network_id": network, "ip_version": 4, "cidr": "10.0.0.0/16"})
}

fn rule(group: &str, number: usize) -> Value {
    let protocols = ["tcp", "udp", "sctp"];
    let port = number % 65_535 + 1;
    json!({"security_group_id": group, "direction": "ingress", "protocol": protocols[number / 65_535 % 3],
           "port_range_min": port, "port_range_max": port})
}

fn port(network: &str, group: &str) -> Value {
    json!({"network_id": network, "security_groups": [group]})
}
