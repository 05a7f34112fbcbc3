//! What the groups let through, seen by packets.

use portcullis_ovn::Options;
use portcullis_testkit::{Host, Server as Listener, Target, can_connect, eventually, plug};
use serde_json::{Value, json};

use std::sync::Arc;

use crate::client::{Api, User};

/// A machine on a port.
pub(crate) struct Machine {
    pub(crate) host: Host,
    pub(crate) address: String,
    pub(crate) port: Value,
    _listeners: Vec<Listener>,
}

impl Machine {
    pub(crate) fn reaches(&self, other: &Machine, target: Target) -> bool {
        can_connect(&self.host, &other.address, target)
    }
}

/// An OVN with the API on it, and one project that uses it.
pub(crate) struct Lab {
    pub(crate) api: Arc<Api>,
    pub(crate) client: User,
}

impl Lab {
    fn new() -> Self {
        Self::with(Options::default())
    }

    pub(crate) fn with(options: Options) -> Self {
        let api = Api::with(options);
        let client = api.user("member");
        Lab { api, client }
    }

    pub(crate) fn network(&self, cidr: &str) -> Value {
        let network = self.client.make("networks", "network", json!({"name": cidr}));
        let version = if cidr.contains(':') { 6 } else { 4 };
        let subnet = json!({"network_id": network["id"], "cidr": cidr, "ip_version": version});
        self.client.make("subnets", "subnet", subnet);
        network
    }

    pub(crate) fn group(&self, name: &str) -> Value {
        self.client.make("security-groups", "security_group", json!({"name": name}))
    }

    pub(crate) fn allow(&self, group: &Value, direction: &str, rule: Value) -> Value {
        let mut asked = json!({"security_group_id": group["id"], "direction": direction});
        merge(&mut asked, &rule);
        self.client.make("security-group-rules", "security_group_rule", asked)
    }

    /// Plugs a machine in, which listens on ports 22 and 23.
    pub(crate) fn machine(&self, network: &Value, attributes: Value) -> Machine {
        let mut asked = json!({"network_id": network["id"]});
        merge(&mut asked, &attributes);
        let port = self.client.make("ports", "port", asked);
        let address = port["fixed_ips"][0]["ip_address"].as_str().unwrap().to_owned();
        let length = if address.contains(':') { 64 } else { 24 };
        let (id, mac) = (port["id"].as_str().unwrap(), port["mac_address"].as_str().unwrap());
        let host = plug(&self.api.ovn, id, mac, &[&format!("{address}/{length}")]);
        let listeners = vec![host.serve(22), host.serve(23)];
        Machine { host, address, port, _listeners: listeners }
    }

    pub(crate) fn change_port(&self, machine: &Machine, attributes: Value) {
        let path = format!("ports/{}", machine.port["id"].as_str().unwrap());
        let reply = self.client.put(&path, json!({"port": attributes}));
        assert_eq!(reply.status, 200, "{}", reply.text);
    }

    /// Waits until what was asked is in force, and looks whether nothing else is there.
    #[track_caller]
    pub(crate) fn settle(&self) {
        self.api.ovn.settle().unwrap();
        self.api.assert_no_drift();
    }
}

fn merge(into: &mut Value, from: &Value) {
    for (key, value) in from.as_object().unwrap() {
        into[key] = value.clone();
    }
}

pub(crate) const SSH: Target = Target::Tcp(22);
const TELNET: Target = Target::Tcp(23);
const UDP: Target = Target::Udp(22);

pub(crate) fn ssh() -> Value {
    json!({"protocol": "tcp", "port_range_min": 22, "port_range_max": 22})
}

#[test]
fn only_what_a_group_allows_gets_through() {
    let lab = Lab::new();
    let network = lab.network("10.0.0.0/24");
    let group = lab.group("ssh");
    let one = lab.machine(&network, json!({}));
    let two = lab.machine(&network, json!({"security_groups": [group["id"]]}));
    lab.settle();
    assert!(!one.reaches(&two, SSH) && !one.reaches(&two, Target::Icmp), "nothing was allowed");

    lab.allow(&group, "ingress", ssh());
    lab.settle();
    eventually("ssh gets through", || one.reaches(&two, SSH));
    assert!(!one.reaches(&two, TELNET) && !one.reaches(&two, Target::Icmp), "only ssh was allowed");
    assert!(!one.reaches(&two, UDP), "and only by TCP");

    lab.change_port(&two, json!({"security_groups": [], "port_security_enabled": false}));
    lab.settle();
    eventually("an unfiltered port takes everything", || one.reaches(&two, TELNET));
    assert!(one.reaches(&two, UDP) && one.reaches(&two, Target::Icmp), "whatever it is");

    lab.change_port(&two, json!({"port_security_enabled": true}));
    lab.settle();
    eventually("filtered again, without a group, it takes nothing", || !one.reaches(&two, SSH));
    assert!(!two.reaches(&one, SSH), "and gives nothing");
}

#[test]
fn members_of_the_default_group_reach_each_other() {
    let lab = Lab::new();
    let network = lab.network("10.0.0.0/24");
    let (one, two) = (lab.machine(&network, json!({})), lab.machine(&network, json!({})));
    let alone = lab.machine(&network, json!({"security_groups": []}));
    lab.settle();
    eventually("members reach each other", || one.reaches(&two, SSH) && two.reaches(&one, Target::Icmp));
    assert!(!alone.reaches(&one, SSH) && !one.reaches(&alone, SSH), "who is in no group reaches nobody");
}

#[test]
fn remote_groups_follow_their_ports() {
    let lab = Lab::new();
    let network = lab.network("10.0.0.0/24");
    let (operators, web) = (lab.group("operators"), lab.group("web"));
    let mut rule = ssh();
    rule["remote_group_id"] = operators["id"].clone();
    lab.allow(&web, "ingress", rule);
    // So that who does not get in by ssh is known to be there.
    lab.allow(&web, "ingress", json!({"protocol": "tcp", "port_range_min": 23, "port_range_max": 23}));
    let server = lab.machine(&network, json!({"security_groups": [web["id"]]}));
    let client = lab.machine(&network, json!({}));
    lab.settle();
    eventually("anybody is heard", || client.reaches(&server, TELNET));
    assert!(!client.reaches(&server, SSH), "it is no operator");

    let groups = json!({"security_groups": [operators["id"]]});
    lab.change_port(&client, groups);
    lab.settle();
    eventually("an operator may", || client.reaches(&server, SSH));

    // Whoever has an address next is asked for.
    let forget = || server.host.run("ip neighbour flush dev eth0");

    // With another address it is still one, and who has the old one next is not.
    let old = client.address.clone();
    lab.change_port(&client, json!({"fixed_ips": [{"ip_address": "10.0.0.77"}]}));
    client.host.run(&format!("ip address del {old}/24 dev eth0"));
    client.host.run("ip address add 10.0.0.77/24 dev eth0");
    lab.settle();
    eventually("under its new address too", || client.reaches(&server, SSH));
    let heir = lab.machine(&network, json!({"fixed_ips": [{"ip_address": old}]}));
    lab.settle();
    forget();
    eventually("the next one is heard", || heir.reaches(&server, TELNET));
    assert!(!heir.reaches(&server, SSH), "the old address is nobody's that may");

    lab.change_port(&client, json!({"security_groups": []}));
    lab.settle();
    eventually("and not any more", || !client.reaches(&server, SSH));

    // Filtered or not, who is in no group is no operator.
    lab.change_port(&client, json!({"port_security_enabled": false}));
    lab.settle();
    eventually("what is not filtered is heard", || client.reaches(&server, TELNET));
    assert!(!client.reaches(&server, SSH), "nothing stops it from speaking, and nobody lets it in");
    lab.change_port(&client, json!({"port_security_enabled": true, "security_groups": [operators["id"]]}));
    lab.settle();
    eventually("an operator again", || client.reaches(&server, SSH));

    // What is removed leaves its address to somebody who is none.
    let address = "10.0.0.77";
    assert_eq!(lab.client.delete(&format!("ports/{}", client.port["id"].as_str().unwrap())).status, 204);
    let heir = lab.machine(&network, json!({"fixed_ips": [{"ip_address": address}]}));
    lab.settle();
    forget();
    eventually("so is the last one", || heir.reaches(&server, TELNET));
    assert!(!heir.reaches(&server, SSH), "who has the address now is no operator");
}

#[test]
fn a_network_that_filters_nothing_is_as_it_was_without_groups() {
    let lab = Lab::new();
    let network = lab.network("10.0.0.0/24");
    let path = format!("networks/{}", network["id"].as_str().unwrap());
    let reply = lab.client.put(&path, json!({"network": {"port_security_enabled": false}}));
    assert_eq!(reply.status, 200, "{}", reply.text);
    let (one, two) = (lab.machine(&network, json!({})), lab.machine(&network, json!({})));
    lab.settle();
    eventually("everything passes", || one.reaches(&two, SSH) && two.reaches(&one, SSH));
    assert!(one.reaches(&two, UDP) && one.reaches(&two, Target::Icmp), "whatever it is");
    // In whatever name.
    one.host.run(&format!("ip address del {}/24 dev eth0", one.address));
    one.host.run("ip address add 10.0.0.99/24 dev eth0");
    eventually("nobody minds another address", || one.reaches(&two, SSH));
}

#[test]
fn a_range_is_seen_across_a_router() {
    let lab = Lab::new();
    let router = lab.client.make("routers", "router", json!({"name": "r"}));
    let group = lab.group("ping");
    let mut machines = Vec::new();
    for third in [14, 15, 16] {
        let network = lab.network(&format!("192.168.{third}.0/24"));
        let subnets = lab.client.get(&format!("subnets?network_id={}", network["id"].as_str().unwrap()));
        let path = format!("routers/{}/add_router_interface", router["id"].as_str().unwrap());
        let body = json!({"subnet_id": subnets["subnets"][0]["id"]});
        assert_eq!(lab.client.put(&path, body).status, 200);
        let groups = if third == 16 { json!({"security_groups": [group["id"]]}) } else { json!({}) };
        let machine = lab.machine(&network, groups);
        machine.host.default_route(&format!("192.168.{third}.1"));
        machines.push(machine);
    }
    let icmp = json!({"protocol": "icmp", "remote_ip_prefix": "192.168.14.0/24"});
    lab.allow(&group, "ingress", icmp);
    lab.settle();
    let [one, two, three] = machines.as_slice() else { unreachable!() };
    eventually("who is in the range gets through", || one.reaches(three, Target::Icmp));
    assert!(!two.reaches(three, Target::Icmp), "who is not, does not");
    assert!(!one.reaches(three, SSH), "and only with ICMP");
}

#[test]
fn address_groups_are_ranges_that_change() {
    let lab = Lab::new();
    let network = lab.network("10.0.0.0/24");
    let one = lab.machine(&network, json!({}));
    let addresses = lab.client.make(
        "address-groups",
        "address_group",
        json!({"name": "some", "addresses": ["10.9.0.0/16"]}),
    );
    let group = lab.group("ssh");
    let mut rule = ssh();
    rule["remote_address_group_id"] = addresses["id"].clone();
    lab.allow(&group, "ingress", rule);
    let two = lab.machine(&network, json!({"security_groups": [group["id"]]}));
    lab.settle();
    assert!(!one.reaches(&two, SSH), "its address is not among them");

    let path = format!("address-groups/{}/add_addresses", addresses["id"].as_str().unwrap());
    let reply = lab.client.put(&path, json!({"addresses": [format!("{}/32", one.address)]}));
    assert_eq!(reply.status, 200, "{}", reply.text);
    lab.settle();
    eventually("now it is", || one.reaches(&two, SSH));
}

#[test]
fn without_state_the_answer_needs_a_rule_too() {
    let lab = Lab::new();
    let network = lab.network("10.0.0.0/24");
    let one = lab.machine(&network, json!({}));
    let group =
        lab.client.make("security-groups", "security_group", json!({"name": "stateless", "stateful": false}));
    lab.allow(&group, "ingress", ssh());
    let two = lab.machine(&network, json!({"security_groups": [group["id"]]}));
    lab.settle();
    eventually("everything may leave, so answers do", || one.reaches(&two, SSH));

    for rule in group["security_group_rules"].as_array().unwrap() {
        assert_eq!(
            lab.client.delete(&format!("security-group-rules/{}", rule["id"].as_str().unwrap())).status,
            204
        );
    }
    lab.settle();
    eventually("no answer leaves any more", || !one.reaches(&two, SSH));
}

#[test]
fn ipv6_is_filtered_like_ipv4() {
    let lab = Lab::new();
    let network = lab.network("2001:db8::/64");
    for stateful in [true, false] {
        let asked = json!({"name": format!("stateful {stateful}"), "stateful": stateful});
        let group = lab.client.make("security-groups", "security_group", asked);
        let one = lab.machine(&network, json!({}));
        let two = lab.machine(&network, json!({"security_groups": [group["id"]]}));
        lab.settle();
        assert!(!one.reaches(&two, SSH), "nothing was allowed");
        let mut rule = ssh();
        rule["ethertype"] = json!("IPv6");
        lab.allow(&group, "ingress", rule);
        lab.settle();
        eventually("ssh gets through", || one.reaches(&two, SSH));
        assert!(!one.reaches(&two, TELNET), "only ssh was allowed");
    }
}

#[test]
fn ipv6_has_pings_and_remote_groups() {
    let lab = Lab::new();
    let network = lab.network("2001:db8::/64");
    let (operators, web) = (lab.group("operators"), lab.group("web"));
    let server = lab.machine(&network, json!({"security_groups": [web["id"]]}));
    let client = lab.machine(&network, json!({"security_groups": [operators["id"]]}));
    let stranger = lab.machine(&network, json!({}));
    lab.settle();
    assert!(!client.reaches(&server, Target::Icmp), "neighbours are found, and nothing more");

    // Every name of the protocol is the one that the family has.
    let echo = json!({"ethertype": "IPv6", "protocol": "icmp", "port_range_min": 128, "port_range_max": 0});
    let echo = lab.allow(&web, "ingress", echo);
    lab.settle();
    eventually("pings get through", || stranger.reaches(&server, Target::Icmp));
    assert!(!stranger.reaches(&server, SSH), "and nothing else");
    assert_eq!(
        lab.client.delete(&format!("security-group-rules/{}", echo["id"].as_str().unwrap())).status,
        204
    );
    let mut rule = ssh();
    (rule["ethertype"], rule["remote_group_id"]) = (json!("IPv6"), operators["id"].clone());
    lab.allow(&web, "ingress", rule);
    lab.settle();
    eventually("operators get through", || client.reaches(&server, SSH));
    assert!(!client.reaches(&server, UDP) && !client.reaches(&server, Target::Icmp), "by ssh alone");
    assert!(!stranger.reaches(&server, SSH), "nobody else");

    lab.change_port(&client, json!({"security_groups": []}));
    lab.change_port(&stranger, json!({"security_groups": [operators["id"]]}));
    lab.settle();
    eventually("they change places", || stranger.reaches(&server, SSH) && !client.reaches(&server, SSH));
}

#[test]
fn ipv6_is_filtered_across_a_router() {
    let lab = Lab::new();
    let router = lab.client.make("routers", "router", json!({"name": "r"}));
    let [operators, others, web] = ["operators", "others", "web"].map(|name| lab.group(name));
    let mut machines = Vec::new();
    for (number, group) in [(1, &operators), (2, &others), (3, &web)] {
        let network = lab.network(&format!("2001:db8:{number}::/64"));
        let subnets = lab.client.get(&format!("subnets?network_id={}", network["id"].as_str().unwrap()));
        let subnet = &subnets["subnets"][0];
        let path = format!("routers/{}/add_router_interface", router["id"].as_str().unwrap());
        assert_eq!(lab.client.put(&path, json!({"subnet_id": subnet["id"]})).status, 200);
        let machine = lab.machine(&network, json!({"security_groups": [group["id"]]}));
        machine.host.default_route(subnet["gateway_ip"].as_str().unwrap());
        machines.push(machine);
    }
    let [one, two, three] = machines.as_slice() else { unreachable!() };
    lab.settle();
    assert!(!one.reaches(three, Target::Icmp) && !one.reaches(three, SSH), "nothing was allowed");
    let icmp = json!({"ethertype": "IPv6", "protocol": "ipv6-icmp", "remote_ip_prefix": "2001:db8:2::/64"});
    lab.allow(&web, "ingress", icmp);
    let mut rule = ssh();
    (rule["ethertype"], rule["remote_group_id"]) = (json!("IPv6"), operators["id"].clone());
    lab.allow(&web, "ingress", rule);
    lab.settle();
    eventually("who is in the range pings", || two.reaches(three, Target::Icmp));
    eventually("who is in the group gets in", || one.reaches(three, SSH));
    assert!(!one.reaches(three, Target::Icmp) && !two.reaches(three, SSH), "and not the other way round");
    assert!(!one.reaches(three, UDP), "nor by UDP");
}

#[test]
fn a_port_speaks_in_its_own_name_only() {
    let lab = Lab::new();
    let network = lab.network("10.0.0.0/24");
    // Whoever speaks is let in, so that nothing but the guard is left to say no.
    let group = lab.group("anybody");
    lab.allow(&group, "ingress", ssh());
    let anybody = json!({"security_groups": [group["id"]]});
    let (one, two) = (lab.machine(&network, json!({})), lab.machine(&network, anybody));
    lab.settle();
    eventually("as itself it gets through", || one.reaches(&two, SSH));
    one.host.run(&format!("ip address del {}/24 dev eth0", one.address));
    one.host.run("ip address add 10.0.0.99/24 dev eth0");
    assert!(!one.reaches(&two, SSH), "the address is not its own");
    lab.change_port(&one, json!({"fixed_ips": []}));
    lab.settle();
    assert!(!one.reaches(&two, SSH), "and without any it is nobody, not everybody");

    let pairs = json!({"allowed_address_pairs": [{"ip_address": "10.0.0.99"}]});
    lab.change_port(&one, pairs);
    lab.settle();
    eventually("now it is", || one.reaches(&two, SSH));
}
