use serde_json::{Value, json};

use crate::client::shared;

#[test]
fn a_rule_opens_what_was_written_or_nothing() {
    let api = shared();
    let (user, admin) = (api.user("member"), api.admin());
    let group = user.group("g");
    for (attribute, value, kind) in [
        ("ethertype", json!(6), "SecurityGroupRuleInvalidEtherType"),
        ("ethertype", json!(true), "SecurityGroupRuleInvalidEtherType"),
        ("ethertype", json!([]), "SecurityGroupRuleInvalidEtherType"),
        ("ethertype", json!(null), "SecurityGroupRuleInvalidEtherType"),
        ("protocol", json!(""), "SecurityGroupRuleInvalidProtocol"),
        ("protocol", json!(true), "SecurityGroupRuleInvalidProtocol"),
        ("protocol", json!([]), "SecurityGroupRuleInvalidProtocol"),
        ("protocol", json!(6.5), "SecurityGroupRuleInvalidProtocol"),
    ] {
        let mut rule = json!({"direction": "ingress"});
        rule[attribute] = value.clone();
        let set = json!({"security_group_rules": [rule]});
        let set = user.put(&format!("security-groups/{group}/rules"), set);
        rule["security_group_id"] = json!(group);
        let one = user.post("security-group-rules", json!({"security_group_rule": rule}));
        rule.as_object_mut().unwrap().remove("security_group_id");
        (rule["used_in_default_sg"], rule["used_in_non_default_sg"]) = (json!(true), json!(true));
        let template =
            admin.post("default-security-group-rules", json!({"default_security_group_rule": rule}));
        for reply in [set, one, template] {
            assert_eq!(
                (reply.status.as_u16(), reply.kind()),
                (400, kind),
                "{attribute} {value}: {}",
                reply.text
            );
        }
    }
}

#[test]
fn too_many_are_refused_before_they_are_compared() {
    let user = shared().user("member");
    let group = user.group("g");
    let rule = |number: usize| {
        let prefix = format!("10.{}.{}.0/24", number / 256, number % 256);
        json!({"security_group_id": group, "direction": "ingress", "remote_ip_prefix": prefix})
    };
    let mut rules: Vec<Value> = (0..500).map(rule).collect();
    rules.push(rule(0));
    let set = json!({ "security_group_rules": rules });
    assert_eq!(user.post("security-group-rules", set.clone()).kind(), "OverQuota");
    assert_eq!(user.put(&format!("security-groups/{group}/rules"), set).kind(), "OverQuota");

    // As many as there may be can be exchanged for as many others.
    let left =
        100 - user.get("security-group-rules?fields=id")["security_group_rules"].as_array().unwrap().len();
    let bulk = json!({"security_group_rules": (0..left).map(rule).collect::<Vec<_>>()});
    let reply = user.post("security-group-rules", bulk.clone());
    assert_eq!(reply.status, 201, "{}", reply.text);
    assert_eq!(
        user.post("security-group-rules", json!({"security_group_rule": rule(999)})).kind(),
        "OverQuota"
    );
    let others = json!({"security_group_rules": (200..200 + left).map(rule).collect::<Vec<_>>()});
    let reply = user.put(&format!("security-groups/{group}/rules"), others);
    assert_eq!(reply.status, 200, "{}", reply.text);
}

#[test]
fn rules_of_one_request_are_compared_with_each_other_and_with_those_there() {
    let user = shared().user("member");
    let group = user.group("g");
    let rule = |prefix: &str| json!({"security_group_id": group, "direction": "ingress", "remote_ip_prefix": prefix});
    let post = |rules: Value| user.post("security-group-rules", json!({ "security_group_rules": rules }));
    let before = user.get(&format!("security-groups/{group}"))["security_group"]["revision_number"].as_u64();
    assert_eq!(
        post(json!([rule("10.0.0.0/8"), rule("10.1.2.3/8")])).kind(),
        "DuplicateSecurityGroupRuleInPost"
    );
    assert_eq!(post(json!([rule("10.0.0.0/8"), rule("192.0.2.0/24")])).status, 201);
    assert_eq!(post(json!([rule("198.51.100.0/24"), rule("10.1.2.3/8")])).kind(), "SecurityGroupRuleExists");
    let seen = &user.get(&format!("security-groups/{group}"))["security_group"];
    assert_eq!(seen["revision_number"].as_u64(), before.map(|number| number + 2));
}
