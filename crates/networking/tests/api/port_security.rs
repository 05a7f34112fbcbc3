//! Which ports are filtered, and what a filter is that nobody wrote.

use portcullis_networking::Settings;
use portcullis_ovn::Options;
use serde_json::{Value, json};

use crate::client::{Api, User, id, shared};

fn port(user: &User, network: &str, attributes: Value) -> Value {
    let mut asked = json!({"network_id": network});
    for (key, value) in attributes.as_object().unwrap() {
        asked[key] = value.clone();
    }
    user.port(asked)
}

fn network(user: &User, attributes: Value) -> Value {
    user.make("networks", "network", attributes)
}

#[track_caller]
fn assert_filtered(port: &Value, filtered: bool) {
    assert_eq!(port["port_security_enabled"], filtered, "{port}");
    // Who is filtered and says nothing is in the default group, who is not is in none.
    assert_eq!(port["security_groups"].as_array().unwrap().len(), usize::from(filtered), "{port}");
}

#[test]
fn a_port_is_filtered_as_its_network_says_when_it_is_made() {
    let user = shared().user("member");
    let open = network(&user, json!({"port_security_enabled": false}));
    assert_eq!(open["port_security_enabled"], false);
    let open = id(&open);
    user.subnet(&open, "10.0.0.0/24");
    let first = port(&user, &open, json!({}));
    assert_filtered(&first, false);
    assert_filtered(&port(&user, &open, json!({"port_security_enabled": true})), true);
    let refused =
        user.post("ports", json!({"port": {"network_id": open, "security_groups": [user.group("g")]}}));
    assert_eq!(
        (refused.status.as_u16(), refused.kind()),
        (400, "PortSecurityAndIPRequiredForSecurityGroups"),
        "{}",
        refused.text
    );

    // The network changes its mind: those that are there stay as they are.
    let path = format!("networks/{open}");
    let on = |on: bool| {
        let reply = user.put(&path, json!({"network": {"port_security_enabled": on}}));
        assert_eq!(
            (reply.status.as_u16(), &reply.body["network"]["port_security_enabled"]),
            (200, &json!(on))
        );
    };
    let seen = |port: &Value| user.get(&format!("ports/{}", id(port)))["port"].clone();
    on(true);
    assert_filtered(&seen(&first), false);
    let second = port(&user, &open, json!({}));
    assert_filtered(&second, true);
    on(false);
    assert_filtered(&seen(&second), true);
    assert_filtered(&port(&user, &open, json!({})), false);
    assert_filtered(&seen(&first), false);

    // And a port can change its own.
    let change = |port: &Value, attributes: Value| {
        let reply = user.put(&format!("ports/{}", id(port)), json!({ "port": attributes }));
        (reply.status.as_u16(), reply.kind().to_owned())
    };
    assert_eq!(
        change(&second, json!({"port_security_enabled": false})),
        (409, "PortSecurityPortHasSecurityGroup".to_owned())
    );
    assert_eq!(change(&second, json!({"port_security_enabled": false, "security_groups": []})).0, 200);
    assert_filtered(&seen(&second), false);
    assert_eq!(change(&first, json!({"port_security_enabled": true})).0, 200);
    let seen = seen(&first);
    assert_eq!((&seen["port_security_enabled"], &seen["security_groups"]), (&json!(true), &json!([])));
    shared().assert_no_drift();
}

#[test]
fn a_server_says_what_networks_do_that_say_nothing() {
    for default in [true, false] {
        let settings = Settings { port_security: default, ..Settings::default() };
        let api = Api::under(settings, Options::default());
        let user = api.user("member");
        let usual = network(&user, json!({"name": "usual"}));
        assert_eq!(usual["port_security_enabled"], default);
        assert_filtered(&port(&user, &id(&usual), json!({})), default);
        for on in [true, false] {
            let said = network(&user, json!({"port_security_enabled": on}));
            assert_filtered(&port(&user, &id(&said), json!({})), on);
        }
        api.assert_no_drift();
    }
}

#[test]
fn the_filter_that_nobody_wrote_is_not_shown() {
    let api = Api::start();
    let (admin, user) = (api.admin(), api.user("member"));
    let networks = [user.network(), user.network()];
    for network in &networks {
        user.subnet(network, "10.0.0.0/24");
        port(&user, network, json!({"name": "filtered"}));
    }
    let own = user.group("web");
    user.make("address-groups", "address_group", json!({"name": "a", "addresses": ["192.0.2.0/24"]}));
    let raw = api.ovn.nbctl(&["--bare", "--columns=name", "list", "Port_Group"]).unwrap();
    assert_eq!(raw.lines().filter(|name| name.starts_with("deny_")).count(), networks.len(), "{raw}");
    let drops = api.ovn.nbctl(&["--bare", "--columns=action", "list", "ACL"]).unwrap();
    assert!(drops.lines().any(|action| action == "drop"), "{drops}");

    // Both projects have their default group by now, and there is nothing that nobody asked for.
    for asker in [&admin, &user] {
        let groups = asker.get("security-groups")["security_groups"].clone();
        for group in groups.as_array().unwrap() {
            let is_known = group["name"] == "default" || group["id"] == own;
            assert!(is_known && group["description"] != "deny-all", "{group}");
        }
        let rules = asker.get("security-group-rules")["security_group_rules"].clone();
        let rules = rules.as_array().unwrap();
        // Four in each default group, two in the other one.
        let defaults = groups.as_array().unwrap().iter().filter(|group| group["name"] == "default").count();
        assert_eq!(rules.len(), 4 * defaults + 2, "{rules:?}");
        let known: Vec<&Value> = groups.as_array().unwrap().iter().map(|group| &group["id"]).collect();
        assert!(rules.iter().all(|rule| known.contains(&&rule["security_group_id"])), "{rules:?}");
        for port in asker.get("ports")["ports"].as_array().unwrap() {
            let groups = port["security_groups"].as_array().unwrap();
            assert!(groups.len() == 1 && known.contains(&&groups[0]), "{port}");
        }
        for path in [
            "security-groups",
            "security-group-rules",
            "address-groups",
            "ports",
            "networks",
            "rbac-policies",
        ] {
            let list = asker.get(path).to_string();
            assert!(!list.contains("deny_") && !list.contains("\"drop\""), "{path}: {list}");
        }
    }
    // Nor can it be named: neither by its row nor by its name.
    let rows = api.ovn.nbctl(&["--bare", "--columns=_uuid,name", "list", "Port_Group"]).unwrap();
    let rows: Vec<&str> = rows.lines().filter(|line| !line.is_empty()).collect();
    for row in rows.chunks(2).filter(|row| row[1].starts_with("deny_")) {
        for name in row {
            let reply = admin.send("GET", &format!("security-groups/{name}"), String::new());
            assert_eq!(reply.status, 404, "{}", reply.text);
        }
        let into = json!({"port": {"network_id": networks[0], "security_groups": [row[0]]}});
        assert_eq!(admin.post("ports", into).kind(), "SecurityGroupNotFound");
    }
}
