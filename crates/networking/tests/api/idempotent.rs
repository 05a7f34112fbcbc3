use serde_json::{Value, json};

use crate::client::{Api, User, id, shared};

/// Asks twice, and expects one object.
fn twice(user: &User, collection: &str, name: &str, attributes: &Value) -> Value {
    let path = format!("{collection}?idempotent=true");
    let first = user.post(&path, json!({ name: attributes }));
    assert_eq!(first.status, 201, "{collection}: {}", first.text);
    let second = user.post(&path, json!({ name: attributes }));
    assert_eq!(second.status, 200, "{collection}: {}", second.text);
    assert_eq!(first.body, second.body);
    second.body[name].clone()
}

#[test]
fn what_is_there_already_is_not_made_again() {
    let api = shared();
    let (user, other) = (api.user("member"), api.user("member"));
    let network = twice(&user, "networks", "network", &json!({"name": "blue", "mtu": 1400}));
    let network_id = network["id"].as_str().unwrap();
    let subnet = json!({"name": "s", "network_id": network_id, "cidr": "10.3.0.0/24", "ip_version": 4});
    let subnet = twice(&user, "subnets", "subnet", &subnet);
    let group = twice(&user, "security-groups", "security_group", &json!({"name": "web"}));
    let rule = json!({"security_group_id": group["id"], "direction": "ingress", "protocol": "TCP"});
    twice(&user, "security-group-rules", "security_group_rule", &rule);
    let fixed = json!([{"subnet_id": subnet["id"]}]);
    let port =
        json!({"name": "p", "network_id": network_id, "fixed_ips": fixed, "security_groups": [group["id"]]});
    twice(&user, "ports", "port", &port);
    twice(
        &user,
        "address-groups",
        "address_group",
        &json!({"name": "a", "addresses": ["10.0.0.0/8", "fd00::/8"]}),
    );
    let policy = json!({
        "object_type": "network", "object_id": network_id, "action": "access_as_shared",
        "target_tenant": other.project
    });
    twice(&user, "rbac-policies", "rbac_policy", &policy);

    // Something else is made, and without asking for it, it is as ever.
    let reply = user.post("networks?idempotent=true", json!({"network": {"name": "blue", "mtu": 1300}}));
    assert_eq!(reply.status, 201);
    let reply = other.post("networks?idempotent=true", json!({"network": {"name": "blue", "mtu": 1400}}));
    assert_eq!(reply.status, 201, "another project has its own");
    let reply = user.post("security-group-rules", json!({ "security_group_rule": rule }));
    assert_eq!(reply.kind(), "SecurityGroupRuleExists");
}

#[test]
fn bulks_make_what_is_missing() {
    let user = shared().user("member");
    let group = user.group("g");
    let rule = |port: u16| {
        json!({"security_group_id": group, "direction": "ingress", "protocol": "tcp",
            "port_range_min": port, "port_range_max": port})
    };
    let send = |ports: &[u16]| {
        let rules: Vec<Value> = ports.iter().copied().map(rule).collect();
        user.post("security-group-rules?idempotent=true", json!({ "security_group_rules": rules }))
    };
    assert_eq!(send(&[1, 2]).status, 201);
    let more = send(&[2, 3]);
    assert_eq!((more.status.as_u16(), more.body["security_group_rules"].as_array().unwrap().len()), (201, 2));
    assert_eq!(send(&[1, 2, 3]).status, 200);
    let group = user.get(&format!("security-groups/{group}"))["security_group"].clone();
    assert_eq!(group["security_group_rules"].as_array().unwrap().len(), 5);
}

#[test]
fn routers_floating_addresses_and_templates_are_not_made_again() {
    // An outside network and templates are everybody's, so this is on a server of its own.
    let api = Api::start();
    let (admin, user) = (api.admin(), api.user("member"));
    let outside = id(&admin.make("networks", "network", json!({"name": "outside", "router:external": true})));
    let subnets = ["192.0.2.0/25", "192.0.2.128/25"].map(|cidr| admin.subnet(&outside, cidr));

    let router = json!({"name": "r", "external_gateway_info": {"network_id": outside}});
    let router = id(&twice(&user, "routers", "router", &router));
    twice(&user, "routers", "router", &json!({"name": "inside", "admin_state_up": false}));
    let way = json!({"network_id": outside, "enable_snat": false, "external_fixed_ips": [{"subnet_id": subnets[1]}]});
    twice(&admin, "routers", "router", &json!({"name": "other way", "external_gateway_info": way}));

    // Of each subnet one, and one for a port, which is not the one for nobody.
    let first = twice(
        &user,
        "floatingips",
        "floatingip",
        &json!({"floating_network_id": outside, "subnet_id": subnets[0], "port_id": null}),
    );
    assert_eq!(first["subnet_id"], subnets[0]);
    let second = twice(
        &user,
        "floatingips",
        "floatingip",
        &json!({"floating_network_id": outside, "subnet_id": subnets[1]}),
    );
    assert_ne!(first["id"], second["id"]);
    let network = user.network();
    let inside = user.subnet(&network, "10.0.0.0/24");
    let path = format!("routers/{router}/add_router_interface");
    assert_eq!(user.put(&path, json!({"subnet_id": inside})).status, 200);
    let port = user.port(json!({"network_id": network}));
    let wish = json!({
        "floating_network_id": outside, "port_id": port["id"], "fixed_ip_address": null,
        "floating_ip_address": null, "subnet_id": null, "router_id": null
    });
    let third = twice(&user, "floatingips", "floatingip", &wish);
    assert!(third["id"] != first["id"] && third["id"] != second["id"]);
    let free = json!({"floatingip": {"floating_network_id": outside, "port_id": null, "description": "x"}});
    assert_eq!(user.post("floatingips?idempotent=true", free).status, 201, "none is described so");

    let template = json!({
        "direction": "ingress", "protocol": "TCP", "port_range_min": 22, "port_range_max": 22,
        "remote_group_id": "PARENT", "used_in_default_sg": true, "used_in_non_default_sg": false
    });
    twice(&admin, "default-security-group-rules", "default_security_group_rule", &template);
}

#[test]
fn what_a_router_has_is_no_answer_to_who_asks_for_a_port() {
    let user = shared().user("member");
    let network = user.network();
    let subnet = user.subnet(&network, "10.0.0.0/24");
    let router = id(&user.make("routers", "router", json!({"name": "r"})));
    let path = format!("routers/{router}/add_router_interface");
    let door = user.put(&path, json!({"subnet_id": subnet})).body["port_id"].clone();
    let owner = json!({"network_id": network, "device_owner": "network:router_interface"});
    let asked = user.post("ports?idempotent=true", json!({ "port": owner }));
    assert_eq!((asked.status.as_u16(), &asked.body["port"]["id"]), (200, &door), "who asks for it gets it");
    let port = twice(&user, "ports", "port", &json!({"network_id": network}));
    assert_ne!(port["id"], door);

    // Nothing in particular is what there is.
    let usual = json!({"network_id": network, "security_groups": null, "mac_address": null});
    let again = user.post("ports?idempotent=true", json!({ "port": usual }));
    assert_eq!((again.status.as_u16(), &again.body["port"]["id"]), (200, &port["id"]));
    twice(&user, "ports", "port", &json!({"name": "x", "network_id": network, "security_groups": null}));
}
