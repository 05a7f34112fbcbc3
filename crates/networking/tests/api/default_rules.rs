use std::sync::LazyLock;

use serde_json::{Value, json};

use crate::client::{Api, User, id};

/// What is changed here is everybody's, so these tests have a server of their own.
static API: LazyLock<std::sync::Arc<Api>> = LazyLock::new(Api::start);

const PATH: &str = "default-security-group-rules";
const NAME: &str = "default_security_group_rule";

fn listed(by: &User) -> Vec<Value> {
    by.get(PATH)["default_security_group_rules"].as_array().unwrap().clone()
}

fn rules_of(group: &Value) -> Vec<(String, String, bool)> {
    let text = |rule: &Value, key: &str| rule[key].as_str().unwrap_or_default().to_owned();
    let rules = group["security_group_rules"].as_array().unwrap().iter();
    let mut rules: Vec<_> = rules
        .map(|rule| {
            (text(rule, "direction"), text(rule, "ethertype"), rule["remote_group_id"] == group["id"])
        })
        .collect();
    rules.sort();
    rules
}

fn rules(of: &[(&str, &str, bool)]) -> Vec<(String, String, bool)> {
    of.iter().map(|(direction, family, own)| ((*direction).into(), (*family).into(), *own)).collect()
}

/// One test, since all of them would change the same.
#[test]
fn new_groups_follow_the_templates() {
    let (admin, user) = (API.admin(), API.user("member"));
    let usual = listed(&user.with("reader"));
    assert_eq!(usual.len(), 4);
    assert_eq!(usual, listed(&admin), "their ids stay");
    let ingress: Vec<&Value> = usual.iter().filter(|rule| rule["direction"] == "ingress").collect();
    assert!(
        ingress
            .iter()
            .all(|rule| rule["remote_group_id"] == "PARENT" && rule["used_in_non_default_sg"] == false)
    );
    assert_eq!(ingress[0]["description"], "Legacy default SG rule for ingress traffic");

    // As it is: everything out, and for the default group what comes from itself.
    let egress = [("egress", "IPv4", false), ("egress", "IPv6", false)];
    let group = user.make("security-groups", "security_group", json!({"name": "one"}));
    assert_eq!(rules_of(&group), rules(&egress));
    let all = [egress.as_slice(), &[("ingress", "IPv4", true), ("ingress", "IPv6", true)]].concat();
    let default = user.get("security-groups?name=default")["security_groups"][0].clone();
    assert_eq!(rules_of(&default), rules(&all));

    // Ingress from the group itself for every group is two templates away.
    let mut added = Vec::new();
    for family in ["IPv4", "IPv6"] {
        let template = json!({
            "direction": "ingress", "ethertype": family, "remote_group_id": "PARENT",
            "used_in_default_sg": false, "used_in_non_default_sg": true
        });
        added.push(id(&admin.make(PATH, NAME, template)));
    }
    let group = user.make("security-groups", "security_group", json!({"name": "two"}));
    assert_eq!(rules_of(&group), rules(&all));

    // The usual ones can be deleted, all of them.
    for template in usual.iter().map(id).chain(added) {
        assert_eq!(admin.delete(&format!("{PATH}/{template}")).status, 204);
        assert_eq!(admin.delete(&format!("{PATH}/{template}")).kind(), "DefaultSecurityGroupRuleNotFound");
        assert_eq!(user.send("GET", &format!("{PATH}/{template}"), "").status, 404);
    }
    assert_eq!(listed(&user), Vec::<Value>::new());
    let group = user.make("security-groups", "security_group", json!({"name": "three"}));
    assert_eq!(rules_of(&group), []);
    let other = API.user("member").get("security-groups")["security_groups"][0].clone();
    assert_eq!((other["name"].as_str(), rules_of(&other)), (Some("default"), Vec::new()));

    refusals(&admin, &user);
}

fn refusals(admin: &User, user: &User) {
    let base = json!({
        "direction": "ingress", "protocol": "tcp", "port_range_min": 80, "port_range_max": 80,
        "used_in_default_sg": true, "used_in_non_default_sg": true
    });
    let first = admin.make(PATH, NAME, base.clone());
    assert_eq!(first["ethertype"], "IPv4");
    let group = "00000000-0000-4000-8000-000000000001";
    for (by, change, status, kind) in [
        (admin, json!({}), 409, "DefaultSecurityGroupRuleExists"),
        (admin, json!({"used_in_default_sg": false}), 409, "DefaultSecurityGroupRuleExists"),
        (admin, json!({"used_in_non_default_sg": false}), 409, "DefaultSecurityGroupRuleExists"),
        (admin, json!({"used_in_default_sg": false, "used_in_non_default_sg": false}), 201, ""),
        (admin, json!({"port_range_max": 79}), 400, "SecurityGroupInvalidPortRange"),
        (
            admin,
            json!({"remote_group_id": "PARENT", "remote_ip_prefix": "10.0.0.0/8"}),
            400,
            "SecurityGroupMultipleRemoteEntites",
        ),
        (admin, json!({"remote_group_id": "x"}), 400, "HTTPBadRequest"),
        (admin, json!({"remote_group_id": group}), 404, "SecurityGroupNotFound"),
        (admin, json!({"direction": "foo"}), 400, "HTTPBadRequest"),
        (admin, json!({"security_group_id": group}), 400, "HTTPBadRequest"),
        (user, json!({"port_range_max": 81}), 403, "PolicyNotAuthorized"),
    ] {
        let mut template = base.clone();
        for (key, value) in change.as_object().unwrap() {
            template[key] = value.clone();
        }
        let reply = by.post(PATH, json!({ NAME: template }));
        assert_eq!((reply.status.as_u16(), reply.kind()), (status, kind), "{change}: {}", reply.text);
    }
    let path = format!("{PATH}/{}", id(&first));
    assert_eq!(user.delete(&path).status, 403);
    let reply = admin.put(&path, json!({ NAME: {"description": "a"} }));
    assert_eq!(reply.message(), "Cannot update read-only attribute description");
    let reply = admin.post(PATH, json!({ NAME: {"direction": "ingress"} }));
    assert_eq!(
        reply.message(),
        "Failed to parse request. Required attribute 'used_in_default_sg' not specified"
    );
    let found = admin.get(&format!("{PATH}?used_in_default_sg=True"));
    assert_eq!(found["default_security_group_rules"].as_array().map(Vec::len), Some(1));
}
