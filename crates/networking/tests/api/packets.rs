//! What the groups let through, seen by packets.

use portcullis_testkit::parts::ovn::Ovn;
use portcullis_testkit::{Host, Server as Listener, Target, can_connect, eventually, ovn, plug};
use serde_json::{Value, json};

use crate::server::{Client, Server};

/// A machine on a port.
struct Machine {
    host: Host,
    address: String,
    port: Value,
    _listeners: Vec<Listener>,
}

impl Machine {
    fn reaches(&self, other: &Machine, target: Target) -> bool {
        can_connect(&self.host, &other.address, target)
    }
}

/// An OVN with the API on it, and one project that uses it.
struct Lab {
    ovn: Ovn,
    server: Server,
    client: Client,
}

impl Lab {
    async fn new() -> Self {
        let ovn = ovn();
        let server = Server::start(&ovn).await;
        let client = server.client("blue", "member");
        Lab { ovn, server, client }
    }

    async fn network(&self, cidr: &str) -> Value {
        let network = self.client.create("network", json!({"name": cidr})).await;
        let version = if cidr.contains(':') { 6 } else { 4 };
        let subnet = json!({"network_id": network["id"], "cidr": cidr, "ip_version": version});
        self.client.create("subnet", subnet).await;
        network
    }

    async fn group(&self, name: &str) -> Value {
        self.client.create("security_group", json!({"name": name})).await
    }

    async fn allow(&self, group: &Value, direction: &str, rule: Value) -> Value {
        let mut asked = json!({"security_group_id": group["id"], "direction": direction});
        merge(&mut asked, &rule);
        self.client.create("security_group_rule", asked).await
    }

    /// Plugs a machine in, which listens on ports 22 and 23.
    async fn machine(&self, network: &Value, attributes: Value) -> Machine {
        let mut asked = json!({"network_id": network["id"]});
        merge(&mut asked, &attributes);
        let port = self.client.create("port", asked).await;
        let address = port["fixed_ips"][0]["ip_address"].as_str().unwrap().to_owned();
        let length = if address.contains(':') { 64 } else { 24 };
        let (id, mac) = (port["id"].as_str().unwrap(), port["mac_address"].as_str().unwrap());
        let host = plug(&self.ovn, id, mac, &[&format!("{address}/{length}")]);
        let listeners = vec![host.serve(22), host.serve(23)];
        Machine { host, address, port, _listeners: listeners }
    }

    /// Waits until what was asked is in force, and looks whether nothing else is there.
    #[track_caller]
    fn settle(&self) {
        self.ovn.settle().unwrap();
        self.server.assert_no_drift();
    }
}

fn merge(into: &mut Value, from: &Value) {
    for (key, value) in from.as_object().unwrap() {
        into[key] = value.clone();
    }
}

const SSH: Target = Target::Tcp(22);
const TELNET: Target = Target::Tcp(23);

fn ssh() -> Value {
    json!({"protocol": "tcp", "port_range_min": 22, "port_range_max": 22})
}

#[tokio::test(flavor = "multi_thread")]
async fn only_what_a_group_allows_gets_through() {
    let lab = Lab::new().await;
    let network = lab.network("10.0.0.0/24").await;
    let group = lab.group("ssh").await;
    let one = lab.machine(&network, json!({})).await;
    let two = lab.machine(&network, json!({"security_groups": [group["id"]]})).await;
    lab.settle();
    assert!(!one.reaches(&two, SSH) && !one.reaches(&two, Target::Icmp), "nothing was allowed");

    lab.allow(&group, "ingress", ssh()).await;
    lab.settle();
    eventually("ssh gets through", || one.reaches(&two, SSH));
    assert!(!one.reaches(&two, TELNET) && !one.reaches(&two, Target::Icmp), "only ssh was allowed");

    lab.client
        .update("port", &two.port["id"], json!({"security_groups": [], "port_security_enabled": false}))
        .await;
    lab.settle();
    eventually("an unfiltered port takes everything", || one.reaches(&two, TELNET));

    lab.client.update("port", &two.port["id"], json!({"port_security_enabled": true})).await;
    lab.settle();
    eventually("filtered again, without a group, it takes nothing", || !one.reaches(&two, SSH));
    assert!(!two.reaches(&one, SSH), "and gives nothing");
}

#[tokio::test(flavor = "multi_thread")]
async fn members_of_the_default_group_reach_each_other() {
    let lab = Lab::new().await;
    let network = lab.network("10.0.0.0/24").await;
    let (one, two) = (lab.machine(&network, json!({})).await, lab.machine(&network, json!({})).await);
    let alone = lab.machine(&network, json!({"security_groups": []})).await;
    lab.settle();
    eventually("members reach each other", || one.reaches(&two, SSH) && two.reaches(&one, Target::Icmp));
    assert!(!alone.reaches(&one, SSH) && !one.reaches(&alone, SSH), "who is in no group reaches nobody");
}

#[tokio::test(flavor = "multi_thread")]
async fn remote_groups_follow_their_ports() {
    let lab = Lab::new().await;
    let network = lab.network("10.0.0.0/24").await;
    let (operators, web) = (lab.group("operators").await, lab.group("web").await);
    let mut rule = ssh();
    rule["remote_group_id"] = operators["id"].clone();
    lab.allow(&web, "ingress", rule).await;
    let server = lab.machine(&network, json!({"security_groups": [web["id"]]})).await;
    let client = lab.machine(&network, json!({})).await;
    lab.settle();
    assert!(!client.reaches(&server, SSH), "it is no operator");

    let groups = json!({"security_groups": [operators["id"]]});
    lab.client.update("port", &client.port["id"], groups).await;
    lab.settle();
    eventually("an operator may", || client.reaches(&server, SSH));

    lab.client.update("port", &client.port["id"], json!({"security_groups": []})).await;
    lab.settle();
    eventually("and not any more", || !client.reaches(&server, SSH));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_range_is_seen_across_a_router() {
    let lab = Lab::new().await;
    let router = lab.client.create("router", json!({"name": "r"})).await;
    let group = lab.group("ping").await;
    let mut machines = Vec::new();
    for third in [14, 15, 16] {
        let network = lab.network(&format!("192.168.{third}.0/24")).await;
        let subnets =
            lab.client.get(&format!("subnets?network_id={}", network["id"].as_str().unwrap())).await;
        let path = format!("routers/{}/add_router_interface", router["id"].as_str().unwrap());
        let body = json!({"subnet_id": subnets["subnets"][0]["id"]});
        assert_eq!(lab.client.ask("PUT", &path, Some(body)).await.0, 200);
        let groups = if third == 16 { json!({"security_groups": [group["id"]]}) } else { json!({}) };
        let machine = lab.machine(&network, groups).await;
        machine.host.default_route(&format!("192.168.{third}.1"));
        machines.push(machine);
    }
    let icmp = json!({"protocol": "icmp", "remote_ip_prefix": "192.168.14.0/24"});
    lab.allow(&group, "ingress", icmp).await;
    lab.settle();
    let [one, two, three] = machines.as_slice() else { unreachable!() };
    eventually("who is in the range gets through", || one.reaches(three, Target::Icmp));
    assert!(!two.reaches(three, Target::Icmp), "who is not, does not");
    assert!(!one.reaches(three, SSH), "and only with ICMP");
}

#[tokio::test(flavor = "multi_thread")]
async fn address_groups_are_ranges_that_change() {
    let lab = Lab::new().await;
    let network = lab.network("10.0.0.0/24").await;
    let one = lab.machine(&network, json!({})).await;
    let addresses =
        lab.client.create("address_group", json!({"name": "some", "addresses": ["10.9.0.0/16"]})).await;
    let group = lab.group("ssh").await;
    let mut rule = ssh();
    rule["remote_address_group_id"] = addresses["id"].clone();
    lab.allow(&group, "ingress", rule).await;
    let two = lab.machine(&network, json!({"security_groups": [group["id"]]})).await;
    lab.settle();
    assert!(!one.reaches(&two, SSH), "its address is not among them");

    let path = format!("address-groups/{}/add_addresses", addresses["id"].as_str().unwrap());
    let (status, body) =
        lab.client.ask("PUT", &path, Some(json!({"addresses": [format!("{}/32", one.address)]}))).await;
    assert_eq!(status, 200, "{body}");
    lab.settle();
    eventually("now it is", || one.reaches(&two, SSH));
}

#[tokio::test(flavor = "multi_thread")]
async fn without_state_the_answer_needs_a_rule_too() {
    let lab = Lab::new().await;
    let network = lab.network("10.0.0.0/24").await;
    let one = lab.machine(&network, json!({})).await;
    let group = lab.client.create("security_group", json!({"name": "stateless", "stateful": false})).await;
    lab.allow(&group, "ingress", ssh()).await;
    let two = lab.machine(&network, json!({"security_groups": [group["id"]]})).await;
    lab.settle();
    eventually("everything may leave, so answers do", || one.reaches(&two, SSH));

    for rule in group["security_group_rules"].as_array().unwrap() {
        lab.client.delete(&format!("security-group-rules/{}", rule["id"].as_str().unwrap())).await;
    }
    lab.settle();
    eventually("no answer leaves any more", || !one.reaches(&two, SSH));
}

#[tokio::test(flavor = "multi_thread")]
async fn ipv6_is_filtered_like_ipv4() {
    let lab = Lab::new().await;
    let network = lab.network("2001:db8::/64").await;
    for stateful in [true, false] {
        let asked = json!({"name": format!("stateful {stateful}"), "stateful": stateful});
        let group = lab.client.create("security_group", asked).await;
        let one = lab.machine(&network, json!({})).await;
        let two = lab.machine(&network, json!({"security_groups": [group["id"]]})).await;
        lab.settle();
        assert!(!one.reaches(&two, SSH), "nothing was allowed");
        let mut rule = ssh();
        rule["ethertype"] = json!("IPv6");
        lab.allow(&group, "ingress", rule).await;
        lab.settle();
        eventually("ssh gets through", || one.reaches(&two, SSH));
        assert!(!one.reaches(&two, TELNET), "only ssh was allowed");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_port_speaks_in_its_own_name_only() {
    let lab = Lab::new().await;
    let network = lab.network("10.0.0.0/24").await;
    let (one, two) = (lab.machine(&network, json!({})).await, lab.machine(&network, json!({})).await);
    lab.settle();
    eventually("as itself it gets through", || one.reaches(&two, SSH));
    one.host.run(&format!("ip address del {}/24 dev eth0", one.address));
    one.host.run("ip address add 10.0.0.99/24 dev eth0");
    assert!(!one.reaches(&two, SSH), "the address is not its own");

    let pairs = json!({"allowed_address_pairs": [{"ip_address": "10.0.0.99"}]});
    lab.client.update("port", &one.port["id"], pairs).await;
    let group = lab.group("anybody").await;
    lab.allow(&group, "ingress", ssh()).await;
    lab.client.update("port", &two.port["id"], json!({"security_groups": [group["id"]]})).await;
    lab.settle();
    eventually("now it is", || one.reaches(&two, SSH));
}
