use serde_json::{Value, json};

use crate::client::{User, shared};

fn rules(group: &Value) -> Vec<Value> {
    group["security_group_rules"].as_array().unwrap().clone()
}

fn ids(group: &Value) -> Vec<&str> {
    group["security_group_rules"]
        .as_array()
        .unwrap()
        .iter()
        .map(|rule| rule["id"].as_str().unwrap())
        .collect()
}

fn shown(user: &User, group: &str) -> Value {
    user.get(&format!("security-groups/{group}"))["security_group"].clone()
}

#[test]
fn a_rule_set_is_replaced_and_what_stays_keeps_its_id() {
    let user = shared().user("member");
    let group = user.group("web");
    let path = format!("security-groups/{group}/rules");
    let before = shown(&user, &group);
    let web =
        json!({"direction": "ingress", "protocol": "tcp", "port_range_min": 443, "port_range_max": 443});
    // What was read can be sent back, with something more.
    let mut wanted = rules(&before);
    wanted.push(web.clone());
    let reply = user.put(&path, json!({ "security_group_rules": wanted }));
    assert_eq!(reply.status, 200, "{}", reply.text);
    let after = reply.body["security_group"].clone();
    assert_eq!(after, shown(&user, &group));
    assert_eq!(rules(&after).len(), 3);
    assert!(ids(&before).iter().all(|id| ids(&after).contains(id)));
    assert_eq!(after["revision_number"].as_u64(), before["revision_number"].as_u64().map(|n| n + 1));

    // The same in other words is the same.
    let same = json!({"direction": "ingress", "protocol": "6", "port_range_min": 443, "port_range_max": 443,
        "remote_ip_prefix": "0.0.0.0/0"});
    let mut again = rules(&before);
    again.push(same);
    let reply = user.put(&path, json!({ "security_group_rules": again }));
    assert_eq!(reply.body["security_group"], after, "nothing was changed");

    let reply = user.put(&path, json!({"security_group_rules": [web]}));
    assert_eq!(rules(&reply.body["security_group"]).len(), 1);
    assert!(ids(&after).contains(&ids(&reply.body["security_group"])[0]));
    let nothing = json!({"security_group_rules": []});
    let revision = reply.body["security_group"]["revision_number"].as_u64();
    let is = |number: u64| format!("revision_number={number}");
    let (stale, revision) = (revision.map(|number| is(number - 1)), revision.map(is));
    let stale = user.send_if("PUT", &path, nothing.to_string(), stale.as_deref());
    assert_eq!((stale.status.as_u16(), stale.kind()), (412, "RevisionNumberConstraintFailed"));
    let reply = user.send_if("PUT", &path, nothing.to_string(), revision.as_deref());
    assert_eq!(rules(&reply.body["security_group"]), Vec::<Value>::new());
}

#[test]
fn rule_sets_and_bulks_are_checked_as_single_rules_are() {
    let api = shared();
    let (user, other) = (api.user("member"), api.user("member"));
    let (group, second) = (user.group("one"), user.group("two"));
    let before = shown(&user, &group);
    let rule = |port: u16| json!({"direction": "ingress", "protocol": "tcp", "port_range_min": port, "port_range_max": port});
    let of = |group: &str, mut rule: Value| {
        rule["security_group_id"] = json!(group);
        rule
    };
    let mut reversed = rule(9);
    reversed["port_range_max"] = json!(8);
    let many: Vec<Value> = (1..=120).map(rule).collect();
    for (rules, status, kind) in [
        (json!([rule(1), rule(1)]), 409, "DuplicateSecurityGroupRuleInPost"),
        (json!([of(&second, rule(1))]), 400, "SecurityGroupNotSingleGroupRules"),
        (json!([rule(1), of(&second, rule(2))]), 400, "SecurityGroupNotSingleGroupRules"),
        (json!([rule(1), reversed]), 400, "SecurityGroupInvalidPortRange"),
        (json!([{"protocol": "tcp"}]), 400, "HTTPBadRequest"),
        (json!([7]), 400, "HTTPBadRequest"),
        (json!(null), 400, "HTTPBadRequest"),
        (json!(many), 409, "OverQuota"),
    ] {
        let reply =
            user.put(&format!("security-groups/{group}/rules"), json!({ "security_group_rules": rules }));
        assert_eq!((reply.status.as_u16(), reply.kind()), (status, kind), "{rules}");
    }
    assert_eq!(shown(&user, &group), before, "nothing was changed");
    let nothing = json!({"security_group_rules": []});
    let path = format!("security-groups/{group}/rules");
    assert_eq!(other.put(&path, nothing.clone()).kind(), "SecurityGroupNotFound");
    assert_eq!(user.with("reader").put(&path, nothing).status, 403);

    for (rules, status, kind) in [
        (json!([of(&group, rule(1)), of(&group, rule(1))]), 409, "DuplicateSecurityGroupRuleInPost"),
        (json!([of(&group, rule(1)), of(&second, rule(1))]), 400, "SecurityGroupNotSingleGroupRules"),
        (json!([of(&group, rule(1)), of(&group, rule(2))]), 201, ""),
    ] {
        let reply = user.post("security-group-rules", json!({ "security_group_rules": rules }));
        assert_eq!((reply.status.as_u16(), reply.kind()), (status, kind), "{rules}");
    }
}
