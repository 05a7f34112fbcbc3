use serde_json::{Value, json};

use crate::client::{User, shared};

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
