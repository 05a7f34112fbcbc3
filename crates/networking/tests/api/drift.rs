//! Whatever is asked, in whatever order: the database holds exactly what the objects need, after every single change.

use portcullis_testkit::Dice;
use serde_json::{Value, json};

use crate::client::{Api, User};

/// One of those that there are, or one that there is not.
fn any(dice: &mut Dice, all: &[String]) -> String {
    match all {
        [] => "00000000-0000-4000-8000-000000000000".to_owned(),
        some => dice.one(some).clone(),
    }
}

/// The ids of what there is.
fn all(user: &User, collection: &str) -> Vec<String> {
    let body = user.get(&format!("{collection}?fields=id"));
    let list = body.as_object().unwrap().values().next().unwrap();
    list.as_array().unwrap().iter().map(|object| object["id"].as_str().unwrap().to_owned()).collect()
}

const COLLECTIONS: [(&str, &str); 8] = [
    ("networks", "network"),
    ("subnets", "subnet"),
    ("ports", "port"),
    ("routers", "router"),
    ("floatingips", "floatingip"),
    ("security-groups", "security_group"),
    ("security-group-rules", "security_group_rule"),
    ("address-groups", "address_group"),
];

/// What a new object of a kind is asked to be.
fn wish(user: &User, dice: &mut Dice, name: &str) -> Value {
    let mut one = |collection: &str| any(dice, &all(user, collection));
    match name {
        "network" => json!({"mtu": 1300 + one("networks").len(), "router:external": true}),
        "subnet" => {
            let network = one("networks");
            let (number, dhcp) = (dice.roll(9), dice.chance(2));
            match dice.roll(3) {
                0 => {
                    json!({"network_id": network, "ip_version": 4, "cidr": format!("10.{number}.0.0/24"), "enable_dhcp": dhcp,
                            "dns_nameservers": ["192.0.2.53"]})
                }
                1 => json!({"network_id": network, "ip_version": 6, "cidr": format!("fd00:{number}::/64"),
                            "ipv6_ra_mode": "slaac", "ipv6_address_mode": "slaac"}),
                _ => {
                    json!({"network_id": network, "ip_version": 6, "cidr": format!("fd01:{number}::/64"), "enable_dhcp": dhcp})
                }
            }
        }
        "port" => {
            let mut port = json!({"network_id": one("networks")});
            if dice.chance(2) {
                port["security_groups"] = json!([any(dice, &all(user, "security-groups"))]);
            }
            if dice.roll(4) == 0 {
                port["extra_dhcp_opts"] = json!([{"opt_name": "mtu", "opt_value": "1400"}]);
            }
            if dice.roll(4) == 0 {
                port["allowed_address_pairs"] = json!([{"ip_address": "10.99.0.0/24"}]);
            }
            port
        }
        "router" => {
            let network = one("networks");
            if dice.chance(2) { json!({"external_gateway_info": {"network_id": network}}) } else { json!({}) }
        }
        "floatingip" => {
            let mut floating = json!({"floating_network_id": one("networks")});
            if dice.chance(2) {
                floating["port_id"] = json!(any(dice, &all(user, "ports")));
            }
            floating
        }
        "security_group" => json!({"name": "g", "stateful": dice.chance(2)}),
        "security_group_rule" => {
            let mut rule = json!({"security_group_id": one("security-groups"), "direction": "ingress", "protocol": "tcp",
                                  "port_range_min": dice.roll(99) + 1, "port_range_max": 100});
            match dice.roll(3) {
                0 => rule["remote_group_id"] = json!(any(dice, &all(user, "security-groups"))),
                1 => rule["remote_address_group_id"] = json!(any(dice, &all(user, "address-groups"))),
                _ => rule["remote_ip_prefix"] = json!("198.51.100.0/24"),
            }
            rule
        }
        _ => json!({"addresses": ["203.0.113.0/24", "2001:db8::/32"]}),
    }
}

/// What an object of a kind is asked to become.
fn change(user: &User, dice: &mut Dice, name: &str) -> Value {
    let truth = dice.chance(2);
    match (name, dice.roll(3)) {
        ("network", 0) => json!({"mtu": 1280 + dice.roll(99)}),
        ("network", 1) => json!({"dns_domain": "example.com."}),
        ("subnet", 0) => json!({"enable_dhcp": truth}),
        ("subnet", 1) => json!({"gateway_ip": null}),
        ("subnet", 2) => json!({"host_routes": [{"destination": "192.0.2.0/24", "nexthop": "10.1.0.9"}]}),
        ("port", 0) => {
            json!({"port_security_enabled": truth, "security_groups": [], "allowed_address_pairs": []})
        }
        ("port", 1) => json!({"security_groups": [any(dice, &all(user, "security-groups"))]}),
        ("port", 2) => {
            json!({"admin_state_up": truth, "extra_dhcp_opts": [{"opt_name": "mtu", "opt_value": null}]})
        }
        ("router", 0) => json!({"external_gateway_info": {}}),
        ("router", 1) => {
            let network = any(dice, &all(user, "networks"));
            json!({"external_gateway_info": {"network_id": network, "enable_snat": truth}})
        }
        ("floatingip", 0) => json!({"port_id": null}),
        ("floatingip", _) => json!({"port_id": any(dice, &all(user, "ports"))}),
        ("security_group", _) => json!({"stateful": truth}),
        _ => json!({"description": "changed"}),
    }
}

#[test]
fn every_change_leaves_exactly_what_is_needed() {
    let api = Api::start();
    let user = api.admin();
    let unlimited = ["router", "floatingip", "security_group", "security_group_rule"].map(|name| (name, -1));
    let quota: serde_json::Map<String, Value> =
        unlimited.into_iter().map(|(name, limit)| (name.into(), limit.into())).collect();
    assert_eq!(user.put(&format!("quotas/{}", user.project), json!({"quota": quota})).status, 200);
    let mut dice = Dice::new(0x1234_5678_9abc_def1);
    let mut done = 0;
    for step in 0..400 {
        let (collection, name) = COLLECTIONS[dice.roll(COLLECTIONS.len())];
        let (what, reply) = match dice.roll(10) {
            0..=4 => {
                let body = json!({name: wish(&user, &mut dice, name)});
                (format!("POST {collection} {body}"), user.post(collection, body))
            }
            5 | 6 => {
                let path = format!("{collection}/{}", any(&mut dice, &all(&user, collection)));
                let body = json!({name: change(&user, &mut dice, name)});
                (format!("PUT {path} {body}"), user.put(&path, body))
            }
            7 | 8 => {
                let router = any(&mut dice, &all(&user, "routers"));
                let action = if dice.roll(3) > 0 { "add" } else { "remove" };
                let path = format!("routers/{router}/{action}_router_interface");
                let body = json!({"subnet_id": any(&mut dice, &all(&user, "subnets"))});
                (format!("PUT {path} {body}"), user.put(&path, body))
            }
            _ => {
                let path = format!("{collection}/{}", any(&mut dice, &all(&user, collection)));
                (format!("DELETE {path}"), user.delete(&path))
            }
        };
        assert!(reply.status.as_u16() < 500, "step {step}: {what}: {}", reply.text);
        assert!(!reply.text.contains("refused the change"), "step {step}: {what}: {}", reply.text);
        done += usize::from(reply.status.is_success());
        let drift = api.drift();
        assert!(drift.is_empty(), "step {step}: {what}: {}", serde_json::to_string_pretty(&drift).unwrap());
    }
    assert!(done > 120, "only {done} changes were made");
}
