//! Who is in a group, as the northbound database has it: the ports of its port group and their addresses, of which northd
//! makes the address sets that rules with a remote group match.

use std::collections::BTreeSet;
use std::process::Command;

use serde_json::{Value, json};

use crate::client::{Api, User, id};

struct Scene {
    api: std::sync::Arc<Api>,
    user: User,
    network: String,
}

impl Scene {
    fn new() -> Self {
        let api = Api::start();
        let user = api.user("member");
        let network = user.network();
        user.subnet(&network, "10.0.0.0/24");
        user.subnet(&network, "fd00::/64");
        Scene { api, user, network }
    }

    /// A port with the addresses that end so.
    fn port(&self, end: u8, groups: &[&String]) -> String {
        id(&self.user.port(json!({
            "network_id": self.network, "security_groups": groups, "fixed_ips": addresses(&[end])
        })))
    }

    fn change(&self, port: &str, attributes: Value) {
        let reply = self.user.put(&format!("ports/{port}"), json!({ "port": attributes }));
        assert_eq!(reply.status, 200, "{}", reply.text);
    }

    /// The address sets of a group are those addresses that end so, and the port group has so many ports.
    #[track_caller]
    fn assert_members(&self, group: &str, ports: &[&String], ends: &[u8]) {
        self.api.assert_no_drift();
        let name = format!("sg_{}", group.replace('-', "_"));
        let nbctl = |args: &[&str]| self.api.ovn.nbctl(args).unwrap();
        let rows: BTreeSet<String> =
            words(&nbctl(&["--bare", "--columns=ports", "find", "Port_Group", &format!("name={name}")]));
        // The row of a port has the id of the port.
        assert_eq!(rows, ports.iter().map(|port| (*port).clone()).collect(), "ports of {name}");
        let mut expected: [BTreeSet<String>; 2] = Default::default();
        for end in ends {
            expected[0].insert(format!("10.0.0.{end}"));
            expected[1].insert(format!("fd00::{end:x}"));
        }
        nbctl(&["--wait=sb", "sync"]);
        for (family, expected) in ["ip4", "ip6"].into_iter().zip(expected) {
            let set = format!("name={name}_{family}");
            assert_eq!(words(&self.sbctl(&set)), expected, "{set}");
        }
    }

    fn sbctl(&self, set: &str) -> String {
        let database = format!("--db={}", self.api.ovn.southbound());
        let args = [&*database, "--bare", "--columns=addresses", "find", "Address_Set", set];
        let output = Command::new("ovn-sbctl").args(args).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }
}

fn words(text: &str) -> BTreeSet<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

/// One of each family.
fn addresses(ends: &[u8]) -> Value {
    let pair = |end: &u8| [format!("10.0.0.{end}"), format!("fd00::{end:x}")];
    ends.iter().flat_map(pair).map(|address| json!({ "ip_address": address })).collect()
}

#[test]
fn the_addresses_of_a_group_are_those_of_its_ports_at_all_times() {
    let scene = Scene::new();
    let user = &scene.user;
    let (one, two) = (user.group("one"), user.group("two"));
    scene.assert_members(&one, &[], &[]);
    let first = scene.port(5, &[&one]);
    scene.assert_members(&one, &[&first], &[5]);
    scene.assert_members(&two, &[], &[]);
    let second = scene.port(6, &[&one, &two]);
    scene.assert_members(&one, &[&first, &second], &[5, 6]);
    scene.assert_members(&two, &[&second], &[6]);

    // Other addresses, more, fewer, none.
    scene.change(&first, json!({"fixed_ips": addresses(&[7])}));
    scene.assert_members(&one, &[&first, &second], &[6, 7]);
    scene.change(&second, json!({"fixed_ips": addresses(&[6, 8])}));
    scene.assert_members(&one, &[&first, &second], &[6, 7, 8]);
    scene.assert_members(&two, &[&second], &[6, 8]);
    scene.change(&second, json!({"fixed_ips": addresses(&[8])}));
    scene.assert_members(&two, &[&second], &[8]);
    scene.change(&first, json!({"fixed_ips": []}));
    scene.assert_members(&one, &[&first, &second], &[8]);
    scene.change(&first, json!({"fixed_ips": addresses(&[5])}));

    // Other groups.
    scene.change(&first, json!({"security_groups": [two]}));
    scene.assert_members(&one, &[&second], &[8]);
    scene.assert_members(&two, &[&first, &second], &[5, 8]);
    // Both at once.
    scene.change(&first, json!({"security_groups": [one], "fixed_ips": addresses(&[9])}));
    scene.assert_members(&one, &[&first, &second], &[8, 9]);
    scene.assert_members(&two, &[&second], &[8]);

    // Who is not filtered is in no group, and back in those that it is given.
    scene.change(&first, json!({"security_groups": [], "port_security_enabled": false}));
    scene.assert_members(&one, &[&second], &[8]);
    scene.change(&first, json!({"port_security_enabled": true}));
    scene.assert_members(&one, &[&second], &[8]);
    scene.change(&first, json!({"security_groups": [one, two]}));
    scene.assert_members(&one, &[&first, &second], &[8, 9]);

    // A port that is gone is nobody; one that is down is still somebody.
    scene.change(&first, json!({"admin_state_up": false}));
    scene.assert_members(&one, &[&first, &second], &[8, 9]);
    assert_eq!(user.delete(&format!("ports/{second}")).status, 204);
    scene.assert_members(&one, &[&first], &[9]);
    scene.assert_members(&two, &[&first], &[9]);
    scene.change(&first, json!({"security_groups": [one]}));
    assert_eq!(user.delete(&format!("security-groups/{two}")).status, 204);
    assert_eq!(scene.sbctl(&format!("name=sg_{}_ip4", two.replace('-', "_"))).trim(), "");
    assert_eq!(user.delete(&format!("ports/{first}")).status, 204);
    scene.assert_members(&one, &[], &[]);
}

#[test]
fn who_becomes_a_routers_is_in_no_group_any_more() {
    let scene = Scene::new();
    let user = &scene.user;
    let group = user.group("g");
    let (port, other) = (scene.port(5, &[&group]), scene.port(6, &[&group]));
    let router = id(&user.make("routers", "router", json!({"name": "r"})));
    scene.assert_members(&group, &[&port, &other], &[5, 6]);
    let reply = user.put(&format!("routers/{router}/add_router_interface"), json!({"port_id": port}));
    assert_eq!(reply.status, 200, "{}", reply.text);
    scene.assert_members(&group, &[&other], &[6]);
}
