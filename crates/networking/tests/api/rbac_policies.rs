use serde_json::{Value, json};

use crate::client::{User, id, shared};

fn share(by: &User, kind: &str, object: &str, target: &str) -> String {
    let policy = json!({
        "object_type": kind, "object_id": object, "action": "access_as_shared", "target_tenant": target
    });
    id(&by.make("rbac-policies", "rbac_policy", policy))
}

#[test]
fn what_is_given_can_be_seen_and_used_and_not_taken_back_while_it_is() {
    let api = shared();
    let (owner, other, third) = (api.user("member"), api.user("member"), api.user("member"));
    let network = owner.network();
    let path = format!("networks/{network}");
    assert_eq!(other.send("GET", &path, "").status, 404);
    let policy = share(&owner, "network", &network, &other.project);
    assert_eq!(other.get(&path)["network"]["shared"], true);
    assert_eq!(owner.get(&path)["network"]["shared"], false);
    assert_eq!(third.send("GET", &path, "").status, 404);
    // It is the owner's to see.
    let policy_path = format!("rbac-policies/{policy}");
    assert_eq!(owner.with("reader").get(&policy_path)["rbac_policy"]["target_tenant"], other.project);
    assert_eq!(other.send("GET", &policy_path, "").kind(), "RbacPolicyNotFound");
    assert_eq!(other.get("rbac-policies")["rbac_policies"], json!([]));

    let port = id(&other.port(json!({"network_id": network})));
    let refused = owner.delete(&policy_path);
    assert_eq!((refused.status.as_u16(), refused.kind()), (409, "RbacPolicyInUse"));
    let instead = json!({"rbac_policy": {"target_tenant": third.project}});
    assert_eq!(owner.put(&policy_path, instead.clone()).status, 409);
    // With everybody let in, this one is not needed.
    let everybody = share(&api.admin(), "network", &network, "*");
    assert_eq!(owner.put(&policy_path, instead).body["rbac_policy"]["target_tenant"], third.project);
    assert_eq!(api.admin().delete(&format!("rbac-policies/{everybody}")).status, 409);
    assert_eq!(other.delete(&format!("ports/{port}")).status, 204);
    assert_eq!(api.admin().delete(&format!("rbac-policies/{everybody}")).status, 204);
    assert_eq!(owner.delete(&policy_path).status, 204);
}

#[test]
fn groups_are_given_too() {
    let api = shared();
    let (owner, other) = (api.user("member"), api.user("member"));
    let group = owner.group("web");
    let policy = share(&owner, "security_group", &group, &other.project);
    let port = other.port(json!({"network_id": other.network(), "security_groups": [group]}));
    assert_eq!(owner.delete(&format!("rbac-policies/{policy}")).kind(), "RbacPolicyInUse");
    other.delete(&format!("ports/{}", id(&port)));
    assert_eq!(owner.delete(&format!("rbac-policies/{policy}")).status, 204);

    let addresses = id(&owner.make("address-groups", "address_group", json!({"addresses": ["10.0.0.0/8"]})));
    let policy = share(&owner, "address_group", &addresses, &other.project);
    let theirs = other.group("theirs");
    let rule = other.rule(json!({
        "security_group_id": theirs, "direction": "ingress", "remote_address_group_id": addresses
    }));
    assert_eq!(owner.delete(&format!("rbac-policies/{policy}")).kind(), "RbacPolicyInUse");
    other.delete(&format!("security-group-rules/{rule}"));
    assert_eq!(owner.delete(&format!("rbac-policies/{policy}")).status, 204);
}

#[test]
fn requests_are_refused_as_neutron_refuses_them() {
    let api = shared();
    let (owner, other) = (api.user("member"), api.user("member"));
    let (network, group) = (owner.network(), owner.group("g"));
    let base = json!({
        "object_type": "network", "object_id": network, "action": "access_as_shared",
        "target_tenant": other.project
    });
    share(&owner, "network", &network, &other.project);
    let nobody = "00000000-0000-4000-8000-000000000001";
    for (by, change, status, kind) in [
        (&owner, json!({}), 409, "DuplicateRbacPolicy"),
        (&owner, json!({"target_tenant": "*"}), 403, "PolicyNotAuthorized"),
        (&owner, json!({"target_tenant": null}), 400, "InvalidInput"),
        (&owner, json!({"target_tenant": "1234".repeat(100)}), 400, "InvalidInput"),
        (&owner, json!({"action": "foo"}), 400, "InvalidActionForType"),
        (
            &owner,
            json!({"object_type": "security_group", "object_id": group, "action": "access_as_external"}),
            400,
            "InvalidActionForType",
        ),
        (&owner, json!({"object_type": "foo"}), 400, "InvalidInput"),
        (&owner, json!({"object_id": nobody}), 400, "InvalidInput"),
        (&owner, json!({"object_id": "x"}), 400, "HTTPBadRequest"),
        (&other, json!({}), 400, "InvalidInput"),
        (&owner.with("reader"), json!({}), 403, "PolicyNotAuthorized"),
    ] {
        let mut policy = base.clone();
        for (key, value) in change.as_object().unwrap() {
            policy[key] = value.clone();
        }
        let reply = by.post("rbac-policies", json!({ "rbac_policy": policy }));
        assert_eq!((reply.status.as_u16(), reply.kind()), (status, kind), "{change}: {}", reply.text);
    }
    let mut missing = base;
    missing.as_object_mut().unwrap().remove("target_tenant");
    let reply = owner.post("rbac-policies", json!({ "rbac_policy": missing }));
    assert_eq!(reply.message(), "Failed to parse request. Required attribute 'target_tenant' not specified");
}

#[test]
fn a_policy_makes_a_network_external() {
    let api = shared();
    let (owner, other) = (api.user("member"), api.user("member"));
    let network = owner.network();
    let before = owner.get(&format!("networks/{network}"))["network"]["revision_number"].as_u64();
    let policy = json!({
        "object_type": "network", "object_id": network, "action": "access_as_external",
        "target_tenant": other.project
    });
    let policy = id(&owner.make("rbac-policies", "rbac_policy", policy));
    let seen = other.get(&format!("networks/{network}"));
    assert_eq!(
        (&seen["network"]["router:external"], &seen["network"]["shared"]),
        (&json!(true), &json!(false))
    );
    assert!(seen["network"]["revision_number"].as_u64() > before);
    assert_eq!(owner.delete(&format!("rbac-policies/{policy}")).status, 204);
    assert_eq!(owner.get(&format!("networks/{network}"))["network"]["router:external"], false);
}

#[test]
fn what_is_not_external_any_more_is_nobodys_way_out() {
    let api = shared();
    let (admin, owner, other) = (api.admin(), api.user("member"), api.user("member"));
    let network = owner.network();
    let subnet = owner.subnet(&network, "192.0.2.0/24");
    let policy = json!({
        "object_type": "network", "object_id": network, "action": "access_as_external",
        "target_tenant": other.project
    });
    let policy = id(&owner.make("rbac-policies", "rbac_policy", policy));
    share(&owner, "network", &network, &api.user("member").project);
    assert_eq!(other.send("GET", &format!("subnets/{subnet}"), "").status, 200);
    let inside = json!({"network": {"router:external": false}});
    assert_eq!(admin.put(&format!("networks/{network}"), inside).status, 200);
    for path in [format!("networks/{network}"), format!("subnets/{subnet}")] {
        assert_eq!(other.send("GET", &path, "").status, 404, "{path}");
    }
    assert_eq!(owner.send("GET", &format!("rbac-policies/{policy}"), "").status, 404);
    let left = owner.get("rbac-policies");
    assert_eq!(left["rbac_policies"].as_array().unwrap().len(), 1, "who may use it still may");
}

#[test]
fn lists_are_filtered_and_limited() {
    let api = shared();
    let owner = api.user("member");
    let (network, group) = (owner.network(), owner.group("g"));
    let of_network = share(&owner, "network", &network, &api.user("member").project);
    share(&owner, "security_group", &group, &api.user("member").project);
    let found = owner.get("rbac-policies?object_type=network&fields=id&fields=action");
    assert_eq!(found["rbac_policies"], json!([{"id": of_network, "action": "access_as_shared"}]));
    let mut last = Value::Null;
    for _ in 0..9 {
        let policy = json!({
            "object_type": "network", "object_id": network, "action": "access_as_shared",
            "target_tenant": api.user("member").project
        });
        last = owner.post("rbac-policies", json!({ "rbac_policy": policy })).body;
    }
    assert_eq!(last["NeutronError"]["type"], "OverQuota");
}
