//! `explain`, and the verdict that it comes from, against `ovn-trace`: random rules, random packets, one truth.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]
#![allow(clippy::needless_pass_by_value, reason = "`json!({…})` reads better without a borrow")]

#[allow(dead_code, reason = "it serves the tests of the API as well")]
#[path = "api/client.rs"]
mod client;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::LazyLock;
use std::time::Duration;

use portcullis_core::{
    self as core, Cidr, Direction, Family, GroupId, Peer, PortRange, Protocol, SecurityGroup, Traffic,
};
use portcullis_testkit::Dice;
use portcullis_testkit::parts::{Launch, Namespace, Process, Scratch};
use serde_json::{Value, json};

use crate::client::{Api, User, id};

static API: LazyLock<std::sync::Arc<Api>> = LazyLock::new(Api::start);

/// How often everything is drawn anew, and how many packets are sent then.
const ROUNDS: usize = 40;
const PACKETS: usize = 80;

/// The same is drawn every time; another `PORTCULLIS_SEED` draws other things.
const SEED: u64 = 1;

/// `ovn-trace` as a server. It reads the southbound database once, at its start.
struct Tracer {
    socket: PathBuf,
    _process: Process,
    _directory: Scratch,
}

impl Tracer {
    fn start() -> Self {
        let scratch = Scratch::new().unwrap();
        let directory = scratch.directory("trace").unwrap();
        let (socket, ready) = (directory.join("ctl"), directory.join("ready"));
        // It goes to the background by itself once it has read; in a process namespace it ends with its owner all the same.
        let script = format!(
            "ovn-trace --db={} --unixctl={} --ct=new --ct=new --ct=new --no-friendly-names --no-chdir --detach && touch {} && exec sleep infinity",
            API.ovn.southbound(),
            socket.display(),
            ready.display()
        );
        let mut process = Launch::new("unshare")
            .unwrap()
            .args(["--pid", "--fork", "--kill-child", "sh", "-c", &script])
            .start(&Namespace::host(), &directory)
            .unwrap();
        process.wait_until(Duration::from_secs(60), || ready.exists()).unwrap();
        Tracer { socket, _process: process, _directory: scratch }
    }

    /// What becomes of the first packet of a connection.
    fn trace(&self, format: &str, packet: &str) -> String {
        let stream = UnixStream::connect(&self.socket).unwrap();
        let params = [format, packet];
        serde_json::to_writer(&stream, &json!({"id": 0, "method": "trace", "params": params})).unwrap();
        let mut replies = serde_json::Deserializer::from_reader(&stream).into_iter::<Value>();
        let reply = replies.next().unwrap_or_else(|| panic!("ovn-trace died of {packet}")).unwrap();
        assert_eq!(reply["error"], Value::Null, "{packet}: {reply}");
        reply["result"].as_str().unwrap().to_owned()
    }
}

const OUTSIDE: [[&str; 4]; 2] = [
    ["192.0.2.7", "192.0.2.200", "198.51.100.1", "10.0.0.99"],
    ["2001:db8::7", "2001:db8:1::1", "2001:db9::1", "fd00::99"],
];
const RANGES: [[&str; 5]; 2] = [
    ["192.0.2.0/24", "192.0.2.7/25", "10.0.0.0/29", "0.0.0.0/0", "198.51.100.1"],
    ["2001:db8::/32", "2001:db8::7/128", "fd00::/124", "::/0", "2001:db9::/64"],
];
const PORTS: [u16; 6] = [22, 80, 443, 1000, 8080, 65_535];

struct Machine {
    id: String,
    mac: String,
    addresses: [String; 2],
}

impl Machine {
    /// The address that it makes from its hardware address.
    fn link_local(&self) -> String {
        let bytes: Vec<u8> = self.mac.split(':').map(|byte| u8::from_str_radix(byte, 16).unwrap()).collect();
        let pair = |one: u8, other: u8| u16::from_be_bytes([one, other]);
        let (first, second) = (pair(bytes[0] ^ 2, bytes[1]), pair(bytes[2], 0xff));
        let (third, fourth) = (pair(0xfe, bytes[3]), pair(bytes[4], bytes[5]));
        format!("fe80::{first:x}:{second:x}:{third:x}:{fourth:x}")
    }
}

struct Scene {
    user: User,
    /// Stateful ones, then stateless ones.
    groups: Vec<String>,
    stateful: usize,
    addresses: Vec<String>,
    /// The last one is not filtered.
    machines: Vec<Machine>,
    /// In another network, to which a router leads for IPv4 and not for IPv6. The first two are filtered.
    far: Vec<Machine>,
    /// What the router is to the machines.
    router_mac: String,
}

impl Scene {
    fn new() -> Self {
        let user = API.user("admin");
        let limits = json!({"quota": {"security_group": -1, "security_group_rule": -1, "port": -1}});
        user.put(&format!("quotas/{}", user.project), limits);
        let network = user.network();
        let subnets = [user.subnet(&network, "10.0.0.0/24"), user.subnet(&network, "fd00::/64")];
        let group = |number: usize| {
            let stateful = number < 16;
            let group = json!({"name": format!("g{number}"), "stateful": stateful});
            id(&user.make("security-groups", "security_group", group))
        };
        let groups: Vec<String> = (0..24).map(group).collect();
        let addresses =
            [json!(["192.0.2.0/25", "2001:db8::/48"]), json!(["198.51.100.1/32"])].map(|addresses| {
                id(&user.make("address-groups", "address_group", json!({ "addresses": addresses })))
            });
        let machine = |number: usize| {
            let fixed = [format!("10.0.0.{}", number + 2), format!("fd00::{:x}", number + 2)];
            let is_last = number == 12;
            let mut port = json!({
                "network_id": network, "security_groups": [],
                "fixed_ips": [{"ip_address": fixed[0]}, {"ip_address": fixed[1]}],
            });
            if number < 4 {
                // No ranges: the switch takes them as they are meant, ovn-trace 23.03 only the first address.
                let also = ["192.0.2.200", "10.0.0.99", "2001:db8::7", "2001:db8:1::1"][number];
                port["allowed_address_pairs"] = json!([{ "ip_address": also }]);
            }
            if is_last {
                port["port_security_enabled"] = json!(false);
            }
            let port = user.port(port);
            Machine { id: id(&port), mac: port["mac_address"].as_str().unwrap().to_owned(), addresses: fixed }
        };
        let machines = (0..13).map(machine).collect();

        let beyond = user.network();
        let far = |number: usize| {
            let fixed = [format!("10.1.0.{}", number + 2), format!("fd00:1::{:x}", number + 2)];
            let port = user.port(json!({
                "network_id": beyond, "security_groups": [], "port_security_enabled": number < 2,
                "fixed_ips": [{"ip_address": fixed[0]}, {"ip_address": fixed[1]}],
            }));
            Machine { id: id(&port), mac: port["mac_address"].as_str().unwrap().to_owned(), addresses: fixed }
        };
        let router = id(&user.make("routers", "router", json!({"name": "between"})));
        let join = |subnet: &str| {
            let path = format!("routers/{router}/add_router_interface");
            let reply = user.put(&path, json!({ "subnet_id": subnet }));
            assert_eq!(reply.status, 200, "{}", reply.text);
            let port = user.get(&format!("ports/{}", reply.body["port_id"].as_str().unwrap()));
            port["port"]["mac_address"].as_str().unwrap().to_owned()
        };
        let router_mac = join(&subnets[0]);
        join(&subnets[1]);
        join(&user.subnet(&beyond, "10.1.0.0/24"));
        user.subnet(&beyond, "fd00:1::/64");
        let far = (0..4).map(far).collect();
        Scene { user, groups, stateful: 16, addresses: addresses.to_vec(), machines, far, router_mac }
    }

    fn filtered(&self) -> &[Machine] {
        &self.machines[..self.machines.len() - 1]
    }

    /// Another machine: none speaks to itself through a switch.
    fn other(&self, machine: &Machine, dice: &mut Dice) -> &Machine {
        let others: Vec<&Machine> = self.machines.iter().filter(|other| other.id != machine.id).collect();
        others[dice.roll(others.len())]
    }

    /// Draws all rules and all memberships anew.
    fn shuffle(&self, dice: &mut Dice) {
        for group in &self.groups {
            let mut rules: Vec<Value> = Vec::new();
            for _ in 0..dice.roll(9) {
                rules.push(self.rule(dice));
            }
            let path = format!("security-groups/{group}/rules");
            let mut reply = self.user.put(&path, json!({ "security_group_rules": rules }));
            // The same rule was drawn twice.
            while reply.status == 409 {
                rules.pop();
                reply = self.user.put(&path, json!({ "security_group_rules": rules }));
            }
            assert_eq!(reply.status, 200, "{}", reply.text);
        }
        // OVN has other flows in a network in which nothing is stateful, which chance alone would hardly ever make.
        let is_stateless = [dice.chance(3), dice.chance(3)];
        let near = self.filtered().iter().map(|machine| (machine, is_stateless[0]));
        let far = self.far[..2].iter().map(|machine| (machine, is_stateless[1]));
        for (machine, is_stateless) in near.chain(far) {
            let (stateful, stateless) = self.groups.split_at(self.stateful);
            let from = if is_stateless || dice.chance(3) { stateless } else { stateful };
            let mut groups: Vec<&String> = (0..dice.roll(5)).map(|_| dice.one(from)).collect();
            groups.sort_unstable();
            groups.dedup();
            let reply =
                self.user.put(&format!("ports/{}", machine.id), json!({"port": {"security_groups": groups}}));
            assert_eq!(reply.status, 200, "{}", reply.text);
        }
    }

    fn rule(&self, dice: &mut Dice) -> Value {
        let v6 = dice.roll(2);
        let family = ["IPv4", "IPv6"][v6];
        let mut rule = json!({"direction": dice.one(&["ingress", "egress"]), "ethertype": family});
        let icmp = ["icmp", "ipv6-icmp"][v6];
        let protocol =
            *dice.one(&["", "tcp", "tcp", "udp", "sctp", "17", icmp, icmp, "vrrp", "47", "udplite"]);
        if !protocol.is_empty() {
            rule["protocol"] = json!(protocol);
        }
        if ["tcp", "udp", "sctp", "17"].contains(&protocol) && !dice.chance(3) {
            let (one, other) = (*dice.one(&PORTS), *dice.one(&PORTS));
            let all = dice.chance(6);
            rule["port_range_min"] = json!(if all { 1 } else { one.min(other) });
            rule["port_range_max"] = json!(if all { 65_535 } else { one.max(other) });
        }
        if protocol == icmp && !dice.chance(3) {
            rule["port_range_min"] = json!(dice.one(&[0, 8, 128, 129, 134, 135]));
            if dice.chance(2) {
                rule["port_range_max"] = json!(dice.roll(2));
            }
        }
        match dice.roll(4) {
            0 => rule["remote_ip_prefix"] = json!(dice.one(&RANGES[v6])),
            1 => rule["remote_group_id"] = json!(dice.one(&self.groups)),
            2 => rule["remote_address_group_id"] = json!(dice.one(&self.addresses)),
            _ => {}
        }
        rule
    }
}

/// A packet, for both to judge.
struct Packet {
    question: Value,
    flow: String,
    to: String,
}

impl Packet {
    fn draw(scene: &Scene, dice: &mut Dice) -> Self {
        let v6 = dice.roll(2);
        let (mut question, carried) = Self::carried(v6, dice);
        let open = scene.machines.last().unwrap();
        let machine = dice.one(scene.filtered());
        let remote = if dice.chance(2) {
            OUTSIDE[v6][dice.roll(4)].to_owned()
        } else {
            scene.other(machine, dice).addresses[v6].clone()
        };
        let mut own = machine.addresses[v6].clone();
        let kind = *dice.one(&[0, 0, 1, 1, 2, 3, 3]);
        if kind < 2 && dice.chance(6) {
            // In somebody else's name, or, in IPv6, in the one that comes from the hardware.
            own = if v6 == 1 && dice.chance(3) {
                machine.link_local()
            } else {
                OUTSIDE[v6][dice.roll(4)].to_owned()
            };
            question["local_ip"] = json!(own);
        }
        let (from, to, source, target) = match kind {
            0 => {
                question["port_id"] = json!(machine.id);
                question["direction"] = json!("ingress");
                question["remote_ip"] = json!(remote);
                (open, machine, remote, own)
            }
            1 => {
                question["port_id"] = json!(machine.id);
                question["direction"] = json!("egress");
                question["remote_ip"] = json!(remote);
                (machine, open, own, remote)
            }
            2 => {
                let (far, from) = (dice.one(&scene.far), if dice.chance(2) { open } else { machine });
                question["from_port_id"] = json!(from.id);
                question["to_port_id"] = json!(far.id);
                question["ip_version"] = json!(if v6 == 0 { 4 } else { 6 });
                (from, far, from.addresses[v6].clone(), far.addresses[v6].clone())
            }
            _ => {
                let other = scene.other(machine, dice);
                question["from_port_id"] = json!(machine.id);
                question["to_port_id"] = json!(other.id);
                question["ip_version"] = json!(if v6 == 0 { 4 } else { 6 });
                (machine, other, own, other.addresses[v6].clone())
            }
        };
        let ip = ["ip4", "ip6"][v6];
        // Who speaks of neighbours must speak of itself.
        let icmp_type = question["icmp_type"].as_u64();
        let about = if v6 == 1 && matches!(icmp_type, Some(135 | 136)) {
            format!(" && nd.target == {source}")
        } else {
            String::new()
        };
        let flow = format!(
            "inport == \"{}\" && eth.src == {} && eth.dst == {} && {ip} && {ip}.src == {source} && {ip}.dst == {target} && {carried}{about}",
            from.id,
            from.mac,
            if kind == 2 { &scene.router_mac } else { &to.mac }
        );
        Packet { question, flow, to: to.id.clone() }
    }

    /// What is in it, for each of the two.
    fn carried(v6: usize, dice: &mut Dice) -> (Value, String) {
        match dice.roll(5) {
            0 => {
                let kind =
                    *dice.one(if v6 == 0 { &[0, 3, 8] } else { &[128, 129, 130, 133, 134, 135, 136, 143] });
                // Discovery of neighbours knows no other code.
                let code = if v6 == 1 && (133..=136).contains(&kind) { 0 } else { dice.roll(2) };
                let name = ["icmp4", "icmp6"][v6];
                (
                    json!({"protocol": "icmp", "icmp_type": kind, "icmp_code": code}),
                    format!("ip.ttl == 255 && {name} && {name}.type == {kind} && {name}.code == {code}"),
                )
            }
            1 => {
                let number = *dice.one(&[47, 112, 136]);
                (json!({"protocol": number}), format!("ip.ttl == 64 && ip.proto == {number}"))
            }
            _ => {
                let (protocol, port) = (*dice.one(&["tcp", "udp", "sctp"]), *dice.one(&PORTS));
                (
                    json!({"protocol": protocol, "port": port, "source_port": 40_000}),
                    format!(
                        "ip.ttl == 64 && {protocol} && {protocol}.src == 40000 && {protocol}.dst == {port}"
                    ),
                )
            }
        }
    }
}

/// What the API says that there is, in the terms of `portcullis_core`.
struct Known {
    groups: BTreeMap<String, SecurityGroup>,
    /// The ids of the rules of each group, in its order.
    rules: BTreeMap<String, Vec<String>>,
    /// The groups and the addresses of each port.
    ports: BTreeMap<String, (Vec<String>, Vec<IpAddr>)>,
    addresses: BTreeMap<String, Vec<Cidr>>,
}

fn texts(list: &Value) -> Vec<String> {
    list.as_array().unwrap().iter().map(|text| text.as_str().unwrap().to_owned()).collect()
}

impl Known {
    fn read(user: &User) -> Self {
        let list = |collection: &str, name: &str| {
            let all = user.get(&format!("{collection}?project_id={}", user.project));
            all[name].as_array().unwrap().clone()
        };
        let (mut groups, mut rules) = (BTreeMap::new(), BTreeMap::new());
        for group in list("security-groups", "security_groups") {
            let own = group["security_group_rules"].as_array().unwrap();
            let decided = SecurityGroup {
                id: group_id(&id(&group)),
                name: String::new(),
                rules: own.iter().map(rule).collect(),
                stateful: group["stateful"].as_bool().unwrap(),
            };
            rules.insert(id(&group), own.iter().map(id).collect());
            groups.insert(id(&group), decided);
        }
        let ports = list("ports", "ports").into_iter().map(|port| {
            let fixed = port["fixed_ips"].as_array().unwrap().iter();
            let fixed = fixed.map(|fixed| fixed["ip_address"].as_str().unwrap().parse().unwrap()).collect();
            (id(&port), (texts(&port["security_groups"]), fixed))
        });
        let addresses = list("address-groups", "address_groups").into_iter().map(|group| {
            let ranges = texts(&group["addresses"]).iter().map(|range| range.parse().unwrap()).collect();
            (id(&group), ranges)
        });
        Known { groups, rules, ports: ports.collect(), addresses: addresses.collect() }
    }

    /// The groups that an address is in.
    fn around(&self, address: IpAddr) -> Vec<GroupId> {
        let ports = self.ports.values().filter(|(_, own)| own.contains(&address));
        let of_ports = ports.flat_map(|(groups, _)| groups);
        let holds = |(id, ranges): (&'_ String, &Vec<Cidr>)| {
            ranges.iter().any(|range| range.contains(address)).then(|| group_id(id))
        };
        of_ports.map(|id| group_id(id)).chain(self.addresses.iter().filter_map(holds)).collect()
    }

    /// What the rules of a port say about a packet there, by the ids of those that let it pass.
    fn decide(&self, end: &Value, question: &Value) -> (bool, BTreeSet<String>) {
        let address = |name: &str| end[name].as_str().unwrap().parse::<IpAddr>().unwrap();
        let (local, remote) = (address("local_ip"), address("remote_ip"));
        let packet = core::Packet::new(direction(end), local, remote, carried(question, Family::of(remote)));
        let packet = packet.unwrap().with_remote_groups(self.around(remote));
        let (own, _) = &self.ports[end["port_id"].as_str().unwrap()];
        let groups: Vec<&SecurityGroup> = own.iter().map(|id| &self.groups[id]).collect();
        let said = core::explain(&packet, groups.iter().copied());
        let allowing = said.iter().filter(|said| said.mismatch.is_none());
        let allowing = allowing.map(|said| self.rules[said.group.id.as_str()][said.index].clone()).collect();
        (core::verdict(&packet, groups).is_allow(), allowing)
    }
}

fn group_id(id: &str) -> GroupId {
    GroupId::new(id).unwrap()
}

fn direction(of: &Value) -> Direction {
    if of["direction"] == "ingress" { Direction::Ingress } else { Direction::Egress }
}

fn number<T: TryFrom<u64>>(value: &Value) -> Option<T> {
    value.as_u64().and_then(|number| T::try_from(number).ok())
}

/// A rule of the API.
fn rule(rule: &Value) -> core::Rule {
    let family = if rule["ethertype"] == "IPv4" { Family::V4 } else { Family::V6 };
    let (min, max) = (&rule["port_range_min"], &rule["port_range_max"]);
    let protocol: Option<Protocol> = rule["protocol"].as_str().map(|text| text.parse().unwrap());
    let traffic = match protocol {
        None => Traffic::ANY,
        Some(protocol) if protocol.icmp_family().is_some() && !min.is_null() => {
            Traffic::icmp(family, number(min).unwrap(), number(max))
        }
        // All that a client can write is all there are.
        Some(protocol) if min.is_null() || (min, max) == (&json!(1), &json!(65_535)) => Traffic::of(protocol),
        Some(protocol) => {
            let ports = PortRange::new(number(min).unwrap(), number(max).unwrap()).unwrap();
            Traffic::ports(protocol, ports).unwrap()
        }
    };
    let remote = |name: &str| rule[name].as_str();
    let peer = match (remote("normalized_cidr"), remote("remote_group_id"), remote("remote_address_group_id"))
    {
        (Some(range), ..) => Peer::Range(range.parse().unwrap()),
        (None, Some(group), _) | (None, None, Some(group)) => Peer::Group(group_id(group)),
        (None, None, None) => Peer::Everyone,
    };
    core::Rule::new(direction(rule), family, traffic, peer).unwrap()
}

/// What a packet carries.
fn carried(question: &Value, family: Family) -> Traffic {
    let protocol = &question["protocol"];
    let protocol: Protocol =
        protocol.as_str().map_or_else(|| protocol.to_string(), str::to_owned).parse().unwrap();
    if protocol.icmp_family().is_some() {
        let part = |name: &str| number(&question[name]).unwrap();
        return Traffic::icmp(family, part("icmp_type"), Some(part("icmp_code")));
    }
    let port = PortRange::single(number(&question["port"]).unwrap_or_default());
    Traffic::ports(protocol, port).unwrap_or_else(|_| Traffic::of(protocol))
}

#[test]
fn agrees_with_ovn_trace() {
    let seed = std::env::var("PORTCULLIS_SEED").map_or(SEED, |text| text.parse().unwrap());
    let mut dice = Dice::new(seed);
    let scene = Scene::new();
    let (mut allowed, mut carried, mut decided) = (0, 0, 0);
    for round in 0..ROUNDS {
        scene.shuffle(&mut dice);
        API.ovn.nbctl(&["--wait=sb", "sync"]).unwrap();
        let (tracer, known) = (Tracer::start(), Known::read(&scene.user));
        for _ in 0..PACKETS {
            let packet = Packet::draw(&scene, &mut dice);
            let reply = scene.user.post("explain", packet.question.clone());
            assert_eq!(reply.status, 200, "PORTCULLIS_SEED={seed}, {}: {}", packet.question, reply.text);
            let says = reply.body["explain"]["verdict"] == "allow";
            allowed += usize::from(says);
            carried += usize::from(says && scene.far.iter().any(|machine| machine.id == packet.to));
            let delivered =
                tracer.trace("--minimal", &packet.flow).contains(&format!("output(\"{}\")", packet.to));
            assert_eq!(
                delivered,
                says,
                "PORTCULLIS_SEED={seed}, round {round}\n{}\n{}\n{}\n{}",
                packet.question,
                reply.body["explain"]["text"].as_str().unwrap(),
                packet.flow,
                tracer.trace("--detailed", &packet.flow)
            );

            // Where nothing but rules has a say, the verdict on them is what becomes of the packet.
            let explained = &reply.body["explain"];
            let ends = explained["ends"].as_array().unwrap();
            let by = |end: &Value, names: &[&str]| names.contains(&end["decided"]["by"].as_str().unwrap());
            let of_rules = ends.iter().filter(|end| by(end, &["rule", "deny-all"]));
            let of_rules: Vec<_> = of_rules.map(|end| (end, known.decide(end, &packet.question))).collect();
            for (end, (verdict, allowing)) in &of_rules {
                let rules = end["rules"].as_array().unwrap().iter();
                let said: BTreeSet<String> = rules
                    .filter(|rule| rule["allows"] == true)
                    .map(|rule| rule["rule_id"].as_str().unwrap().to_owned())
                    .collect();
                let context = || format!("PORTCULLIS_SEED={seed}, round {round}\n{}\n{end}", packet.question);
                assert_eq!(*verdict, end["verdict"] == "allow", "{}", context());
                assert_eq!(*allowing, said, "{}", context());
            }
            let is_joined = explained["path"].as_str().is_none_or(|path| !path.starts_with("no router"));
            if is_joined && ends.iter().all(|end| by(end, &["rule", "deny-all", "port-security-off"])) {
                decided += of_rules.len();
                let verdict = of_rules.iter().all(|(_, (verdict, _))| *verdict);
                assert_eq!(delivered, verdict, "PORTCULLIS_SEED={seed}, round {round}\n{}", packet.question);
            }
        }
    }
    // Both answers were seen often enough to mean something.
    assert!(
        allowed > ROUNDS * PACKETS / 10 && allowed < ROUNDS * PACKETS * 9 / 10,
        "PORTCULLIS_SEED={seed}: {allowed}"
    );
    assert!(carried > ROUNDS, "PORTCULLIS_SEED={seed}: {carried}");
    assert!(decided > ROUNDS * PACKETS / 3, "PORTCULLIS_SEED={seed}: {decided}");
}
