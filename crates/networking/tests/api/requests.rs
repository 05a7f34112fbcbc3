//! What is said beside the body.

use serde_json::json;

use crate::client::{id, shared};

#[test]
fn a_condition_holds_or_is_refused() {
    let user = shared().user("member");
    let network = user.network();
    let subnet = user.subnet(&network, "10.0.0.0/24");
    let router = id(&user.make("routers", "router", json!({"name": "r"})));
    let addresses = id(&user.make("address-groups", "address_group", json!({"addresses": ["192.0.2.0/24"]})));
    let changes = [
        ("PUT", format!("networks/{network}"), json!({"network": {"name": "x"}})),
        ("PUT", format!("networks/{network}/tags"), json!({"tags": ["x"]})),
        ("PUT", format!("networks/{network}/tags/x"), json!({})),
        ("DELETE", format!("networks/{network}/tags"), json!({})),
        ("PUT", format!("routers/{router}/add_router_interface"), json!({"subnet_id": subnet})),
        ("PUT", format!("routers/{router}/add_extraroutes"), json!({"router": {"routes": []}})),
        ("PUT", format!("address-groups/{addresses}/add_addresses"), json!({"addresses": ["10.0.0.0/8"]})),
        ("DELETE", format!("subnets/{subnet}"), json!({})),
    ];
    for (method, path, body) in changes {
        for (condition, status) in [
            ("revision_number=4711", 412),
            ("\"revision_number=4711\"", 412),
            ("W/\"revision_number=4711\", \"other\"", 412),
            ("revision_number=x", 400),
            ("revision_number=", 400),
            ("revision_number=1,revision_number=2", 400),
        ] {
            let reply = user.send_if(method, &path, body.to_string(), Some(condition));
            assert_eq!(reply.status.as_u16(), status, "{method} {path} {condition}: {}", reply.text);
        }
    }
    let path = format!("networks/{network}");
    let revision = &user.get(&path)["network"]["revision_number"];
    let condition = format!("\"revision_number={revision}\"");
    let body = json!({"network": {"name": "y"}}).to_string();
    assert_eq!(user.send_if("PUT", &path, body.clone(), Some(&condition)).status, 200);
    // What is about something else is nothing to us.
    assert_eq!(user.send_if("PUT", &path, body, Some("\"abc\"")).status, 200);
}

#[test]
fn a_tag_is_what_it_is() {
    let user = shared().user("member");
    let network = user.network();
    for (path, tag) in [("a+b", "a+b"), ("c%20d", "c d"), ("e%2Bf", "e+f"), ("g.json", "g.json")] {
        assert_eq!(user.put(&format!("networks/{network}/tags/{path}"), json!({})).status, 201);
        let tags = user.get(&format!("networks/{network}.json"))["network"]["tags"].clone();
        assert!(tags.as_array().unwrap().contains(&json!(tag)), "{tags}");
        assert_eq!(user.delete(&format!("networks/{network}/tags/{path}")).status, 204);
    }
}

#[test]
fn what_shows_no_tags_has_none() {
    let api = shared();
    let (user, other) = (api.user("member"), api.user("member"));
    let policy = json!({
        "object_type": "network", "object_id": user.network(), "action": "access_as_shared",
        "target_tenant": other.project
    });
    let policy = id(&user.make("rbac-policies", "rbac_policy", policy));
    assert_eq!(user.put(&format!("rbac-policies/{policy}/tags/x"), json!({})).status, 404);
}

#[test]
fn a_project_has_a_name_that_can_be_kept() {
    let admin = shared().admin();
    let limits = json!({"quota": {"port": 7}});
    for project in ["a%00b".to_owned(), "x".repeat(256)] {
        assert_eq!(admin.put(&format!("quotas/{project}"), limits.clone()).status, 400);
        let path = format!("security-groups/import?project_id={project}");
        assert_eq!(admin.send("PUT", &path, "security_groups: []").status, 400);
    }
}
