//! How fast the Networking API is: alone, with much in the database, and beside what the database itself can do.
//!
//! Eight clients with connections of their own ask a release build of `portcullis serve`, with a real northbound database
//! and northd on the same machine. Rates are of this machine and moment; the ratios are what to look at.
//!
//! `cargo bench -p portcullis --bench networking -- --url http://host:9696 --token …` asks any other server of the
//! Networking API instead, such as a Neutron, and prints the same rates for it.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a bench talks")]

mod api;
mod raw;
mod server;

use std::time::Duration;

use serde_json::{Value, json};

use api::{Api, Rate};
use server::Server;

const CLIENTS: usize = 8;
/// Each rate is measured for so long.
const WHILE: Duration = Duration::from_secs(3);

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
    match (value("--url"), value("--token")) {
        (Some(url), Some(token)) => elsewhere(&Api::new(&url, &token)),
        _ => here(),
    }
}

/// The rates of some server.
fn elsewhere(api: &Api) {
    let network = Workload::new(api);
    for (name, rate) in network.rates(api, || {}) {
        println!("{name:<14} {rate}");
    }
}

fn here() {
    for durable in [false, true] {
        let server = Server::start(durable);
        let api = Api::new(&server.url(), &server.token());
        println!(
            "\nAn empty database, {}:",
            if durable {
                "each change on disk before it is answered"
            } else {
                "changes not waited for on disk"
            }
        );
        println!(
            "{:<14} {:>10} {:>10}   {:>7}   {:>8} {:>8}",
            "", "API", "database", "ratio", "median", "p99"
        );
        let empty = compare(&server, &api);
        if durable {
            continue;
        }
        let full_server = Server::start(durable);
        let api = Api::new(&full_server.url(), &full_server.token());
        fill(&api);
        full_server.settle();
        println!("\n{GROUPS} groups, {} rules, {PORTS} ports:", GROUPS * (RULES_PER_GROUP + 2));
        println!("start          {:.2} s", full_server.restart().as_secs_f64());
        println!("memory         {} MB", full_server.memory() / 1_000_000);
        let full = compare(&full_server, &api);
        for ((name, before), (_, after)) in empty.iter().zip(&full) {
            println!("{name:<14} costs {:.2} of what it did", before / after);
        }
    }
}

/// Rates of the API beside those of the same transactions without it.
fn compare(server: &Server, api: &Api) -> Vec<(&'static str, f64)> {
    let workload = Workload::new(api);
    let mut rates = Vec::new();
    for (name, rate) in workload.rates(api, || server.settle()) {
        server.settle();
        let database = workload
            .transactions(api, name)
            .map(|all| raw::rate(&server.socket(), &all, CLIENTS, server.durable));
        let (raw, ratio) = match database {
            Some(raw) => (format!("{raw:.0}/s"), format!("{:.2}", rate.per_second() / raw)),
            None => (String::new(), String::new()),
        };
        println!(
            "{name:<14} {:>8.0}/s {raw:>10}   {ratio:>7}   {:>5.2} ms {:>5.2} ms",
            rate.per_second(),
            rate.percentile(0.5).as_secs_f64() * 1000.0,
            rate.percentile(0.99).as_secs_f64() * 1000.0,
        );
        rates.push((name, rate.per_second()));
    }
    rates
}

/// What is asked for: things to make, and things to look at.
struct Workload {
    groups: Vec<String>,
    networks: Vec<String>,
    ports: Vec<String>,
}

impl Workload {
    /// Makes what the rest needs.
    fn new(api: &Api) -> Self {
        let id = |body: Value| body["id"].as_str().unwrap().to_owned();
        let groups = (0..CLIENTS).map(|_| id(api.create("security-groups", "security_group", &group())));
        let groups: Vec<String> = groups.collect();
        let networks = (0..CLIENTS).map(|_| {
            let network = id(api.create("networks", "network", &json!({"name": "bench"})));
            api.create(
                "subnets",
                "subnet",
                &json!({"network_id": network, "ip_version": 4, "cidr": "10.0.0.0/16"}),
            );
            network
        });
        let networks: Vec<String> = networks.collect();
        let ports = (0..CLIENTS)
            .map(|client| id(api.create("ports", "port", &port(&networks[client], &groups[client]))));
        let ports = ports.collect();
        Workload { groups, networks, ports }
    }

    /// What is asked for, one after the other; `settle` waits until nothing else goes on.
    fn rates(&self, api: &Api, settle: impl Fn()) -> Vec<(&'static str, Rate)> {
        let load = |clients, request: &(dyn Fn(usize, usize) -> (&'static str, String, String) + Sync)| {
            settle();
            api.load(clients, WHILE, request)
        };
        let group = |_, _| ("POST", "security-groups".to_owned(), wrap("security_group", &group()));
        let rule = |client: usize, number| {
            let rule = rule(&self.groups[client], number);
            ("POST", "security-group-rules".to_owned(), wrap("security_group_rule", &rule))
        };
        let port = |client: usize, _| {
            let port = port(&self.networks[client], &self.groups[client]);
            ("POST", "ports".to_owned(), wrap("port", &port))
        };
        let look = |client: usize, _| ("GET", format!("ports/{}", self.ports[client]), String::new());
        vec![
            ("POST group", load(CLIENTS, &group)),
            ("POST rule", load(CLIENTS, &rule)),
            ("POST port", load(CLIENTS, &port)),
            ("GET port", load(CLIENTS, &look)),
            ("GET, alone", load(1, &look)),
        ]
    }

    /// The transactions that such requests become.
    fn transactions(&self, api: &Api, name: &str) -> Option<Vec<Value>> {
        const COUNT: usize = 2_000;
        let ask = |path: &str, name: &str, attributes: &Value| {
            let answer = api.ask("POST", &format!("{path}?dry_run=true"), &wrap(name, attributes));
            answer["dry_run"]["transaction"].clone()
        };
        let each = |number: usize| -> Option<Value> {
            let client = number % CLIENTS;
            Some(match name {
                "POST group" => ask("security-groups", "security_group", &group()),
                "POST rule" => ask(
                    "security-group-rules",
                    "security_group_rule",
                    &rule(&self.groups[client], 30_000 + number),
                ),
                "POST port" => ask("ports", "port", &port(&self.networks[client], &self.groups[client])),
                _ => return None,
            })
        };
        (0..COUNT).map(each).collect()
    }
}

fn wrap(name: &str, attributes: &Value) -> String {
    json!({name: attributes}).to_string()
}

fn group() -> Value {
    json!({"name": "bench"})
}

fn rule(group: &str, number: usize) -> Value {
    let port = number % 65_535 + 1;
    json!({"security_group_id": group, "direction": "ingress", "protocol": "tcp",
           "port_range_min": port, "port_range_max": port})
}

fn port(network: &str, group: &str) -> Value {
    json!({"network_id": network, "security_groups": [group]})
}

/// Fills the database, many objects at a time.
fn fill(api: &Api) {
    let several = |path: &str, plural: &str, items: Vec<Value>| -> Vec<String> {
        let mut ids = Vec::new();
        for chunk in items.chunks(500) {
            let answer = api.ask("POST", path, &json!({plural: chunk}).to_string());
            ids.extend(
                answer[plural].as_array().unwrap().iter().map(|item| item["id"].as_str().unwrap().to_owned()),
            );
        }
        ids
    };
    let groups = several("security-groups", "security_groups", (0..GROUPS).map(|_| group()).collect());
    for group in &groups {
        let rules = (0..RULES_PER_GROUP).map(|number| rule(group, number)).collect();
        several("security-group-rules", "security_group_rules", rules);
    }
    let networks = several("networks", "networks", (0..NETWORKS).map(|_| json!({"name": "bench"})).collect());
    let subnet = |network: &String| json!({"network_id": network, "ip_version": 4, "cidr": "10.0.0.0/16"});
    several("subnets", "subnets", networks.iter().map(subnet).collect());
    let ports = (0..PORTS).map(|number| port(&networks[number % NETWORKS], &groups[number % GROUPS]));
    several("ports", "ports", ports.collect());
}
