use serde_json::{Value, json};

use crate::client::{Api, Reply, User, id, shared};

fn changes(reply: &Reply) -> Vec<Value> {
    assert_eq!(reply.status, 200, "{}", reply.text);
    reply.body["dry_run"]["reach"]["changes"].as_array().unwrap().clone()
}

/// A network with a subnet, a group without rules, and a port in it.
fn scene(user: &User) -> (String, String, String) {
    let network = user.network();
    user.subnet(&network, "10.7.0.0/24");
    let group = user.group("web");
    user.put(&format!("security-groups/{group}/rules"), json!({"security_group_rules": []}));
    let port = id(&user.port(json!({"network_id": network, "security_groups": [group]})));
    (network, group, port)
}

#[test]
fn a_dry_run_tells_and_does_nothing() {
    let user = shared().user("member");
    let (network, group, port) = scene(&user);
    let rule = json!({"security_group_rule": {
        "security_group_id": group, "direction": "ingress", "protocol": "tcp", "port_range_min": 443,
        "port_range_max": 443, "remote_ip_prefix": "203.0.113.0/24"
    }});
    let reply = user.post("security-group-rules?dry_run=true", rule.clone());
    let changes = changes(&reply);
    assert_eq!(changes.len(), 1);
    assert_eq!(changes[0]["ports"], json!([port]));
    assert_eq!(changes[0]["ingress"]["opened"]["text"], "203.0.113.0/24 on tcp 443");
    assert_eq!(changes[0].get("egress"), None);
    let told = &reply.body["dry_run"];
    assert_eq!(told["result"]["security_group_rule"]["protocol"], "tcp");
    let operations = told["transaction"].as_array().unwrap();
    assert!(operations.iter().any(|operation| operation["op"] == "insert" && operation["table"] == "ACL"));
    let seen = user.get(&format!("security-groups/{group}"));
    assert_eq!(seen["security_group"]["security_group_rules"], json!([]));

    // What would be refused is refused.
    assert_eq!(user.delete(&format!("networks/{network}?dry_run=1")).kind(), "NetworkInUse");
    for (reply, result) in [
        (user.put(&format!("networks/{network}?dry_run=true"), json!({"network": {"name": "x"}})), "x"),
        (user.post("networks?dry_run=true", json!({"network": {"name": "y"}})), "y"),
    ] {
        assert_eq!(reply.body["dry_run"]["result"]["network"]["name"], result);
    }
    assert_eq!(user.get("networks")["networks"].as_array().unwrap().len(), 1);
    assert_eq!(user.delete(&format!("ports/{port}?dry_run=true")).status, 200);
    assert_eq!(user.get(&format!("ports/{port}"))["port"]["name"], "");
}

/// Who misspells that nothing shall be changed does not want the change.
#[test]
fn a_wish_that_is_not_understood_is_refused() {
    let user = shared().user("member");
    let network = user.network();
    for wish in
        ["dry_run", "dry_run=", "dry_run=yes", "dry_run=null", "dry_run=true&dry_run=x", "%64ry_run=t"]
    {
        for reply in [
            user.delete(&format!("networks/{network}?{wish}")),
            user.put(&format!("networks/{network}?{wish}"), json!({"network": {"name": "x"}})),
            user.post(&format!("networks?{wish}"), json!({"network": {}})),
            user.put(&format!("security-groups/import?{wish}"), json!({"security_groups": []})),
        ] {
            assert_eq!((reply.status.as_u16(), reply.kind()), (400, "HTTPBadRequest"), "{wish}");
            assert!(reply.message().starts_with("Invalid input for dry_run. Reason: '"), "{}", reply.text);
        }
    }
    let twice = user.post("networks?idempotent=maybe", json!({"network": {"name": "n"}}));
    assert_eq!((twice.status.as_u16(), twice.kind()), (400, "HTTPBadRequest"));
    let pruned = user.put("security-groups/import?prune=maybe", json!({"security_groups": []}));
    assert_eq!((pruned.status.as_u16(), pruned.kind()), (400, "HTTPBadRequest"));
    let networks = user.get("networks")["networks"].clone();
    assert_eq!((networks.as_array().unwrap().len(), &networks[0]["name"]), (1, &json!("n")));
    assert_eq!(user.delete(&format!("networks/{network}?dry_run=False")).status, 204);
}

#[test]
fn what_becomes_reachable_and_unreachable() {
    let user = shared().user("member");
    let (network, group, port) = scene(&user);
    let rules = |rules: Value| json!({ "security_group_rules": rules });
    let tcp = |port: u16| json!({"direction": "ingress", "protocol": "tcp", "port_range_min": port, "port_range_max": port});
    let path = format!("security-groups/{group}/rules");
    user.put(&path, rules(json!([tcp(22), tcp(80)])));
    let change = &changes(&user.put(&format!("{path}?dry_run=true"), rules(json!([tcp(80), tcp(443)]))))[0];
    assert_eq!(change["ingress"]["opened"]["text"], "everyone over IPv4 on tcp 443");
    assert_eq!(change["ingress"]["closed"]["text"], "everyone over IPv4 on tcp 22");

    // Without a filter everything passes; what passed before is no change.
    let off = json!({"port": {"security_groups": [], "port_security_enabled": false}});
    let change = &changes(&user.put(&format!("ports/{port}?dry_run=true"), off))[0];
    assert_eq!(change["egress"]["opened"]["text"], "everyone on any traffic");
    let change = &changes(
        &user.put(&format!("ports/{port}?dry_run=true"), json!({"port": {"admin_state_up": false}})),
    )[0];
    assert_eq!(change["ingress"]["closed"]["text"], "everyone over IPv4 on tcp 22, tcp 80");
    let rename = json!({"port": {"name": "x"}});
    assert_eq!(changes(&user.put(&format!("ports/{port}?dry_run=true"), rename)), Vec::<Value>::new());

    // A new member of a group is let in where the group is.
    let peers = user.group("peers");
    user.put(&path, rules(json!([{"direction": "ingress", "remote_group_id": peers}])));
    let member = json!({"port": {
        "network_id": network, "security_groups": [peers], "fixed_ips": [{"ip_address": "10.7.0.77"}]
    }});
    let told = changes(&user.post("ports?dry_run=true", member));
    let change = told.iter().find(|change| change["ports"] == json!([port])).unwrap();
    assert_eq!(change["ingress"]["opened"]["text"], "10.7.0.77/32 on any traffic");

    let addresses = id(&user.make("address-groups", "address_group", json!({"addresses": ["192.0.2.0/24"]})));
    let change = &changes(&user.put(
        &format!("{path}?dry_run=true"),
        rules(json!([{"direction": "ingress", "remote_address_group_id": addresses}])),
    ))[0];
    assert_eq!(
        change["ingress"]["opened"]["text"],
        format!("192.0.2.0/24, group {addresses} over IPv4 on any traffic")
    );
}

#[test]
fn other_projects_ports_are_counted_and_not_named() {
    let api = shared();
    let (owner, other) = (api.user("member"), api.user("member"));
    let group = owner.group("shared");
    let policy = json!({
        "object_type": "security_group", "object_id": group, "action": "access_as_shared",
        "target_tenant": other.project
    });
    owner.make("rbac-policies", "rbac_policy", policy);
    other.port(json!({"network_id": other.network(), "security_groups": [group]}));
    let rule = json!({"security_group_rule": {"security_group_id": group, "direction": "ingress"}});
    let reply = owner.post("security-group-rules?dry_run=true", rule);
    assert_eq!(changes(&reply), Vec::<Value>::new());
    assert_eq!(reply.body["dry_run"]["reach"]["others"], 1);
}

#[test]
fn what_other_projects_let_through_is_theirs() {
    let api = shared();
    let (owner, other) = (api.user("member"), api.user("member"));
    let network = owner.network();
    owner.subnet(&network, "10.6.0.0/24");
    let share = |kind: &str, object: &str| {
        let policy = json!({
            "object_type": kind, "object_id": object, "action": "access_as_shared", "target_tenant": other.project
        });
        owner.make("rbac-policies", "rbac_policy", policy);
    };
    share("network", &network);
    let peers = owner.group("peers");
    share("security_group", &peers);
    // The other lets members of the group in, to one port.
    let theirs = other.group("theirs");
    other.rule(json!({
        "security_group_id": theirs, "direction": "ingress", "protocol": "tcp", "port_range_min": 4711,
        "port_range_max": 4711, "remote_group_id": peers
    }));
    let port = id(&other.port(json!({"network_id": network, "security_groups": [theirs, peers]})));
    let address = other.get(&format!("ports/{port}"))["port"]["fixed_ips"][0]["ip_address"].clone();

    let gone = owner.delete(&format!("ports/{port}?dry_run=true"));
    let member = json!({"port": {"network_id": network, "security_groups": [peers]}});
    let member = owner.post("ports?dry_run=true", member);
    for reply in [&gone, &member] {
        let reach = &reply.body["dry_run"]["reach"];
        assert_eq!(reach["others"], 1, "{}", reply.text);
        assert!(!reach.to_string().contains("4711"), "{reach}");
    }

    // A rule of the other's goes with the group that it is about, and is not named.
    let asked = owner.with("admin").delete(&format!("security-groups/{peers}?dry_run=true"));
    assert_eq!(asked.kind(), "SecurityGroupInUse");
    other.put(&format!("ports/{port}"), json!({"port": {"security_groups": [theirs]}}));
    let told = |user: &User| {
        let reply = user.delete(&format!("security-groups/{peers}?dry_run=true"));
        assert_eq!(reply.status, 200, "{}", reply.text);
        reply.body["dry_run"]["transaction"].to_string()
    };
    let (all, some) = (told(&owner.with("admin")), told(&owner));
    assert!(all.contains(&theirs) && all.contains(&peers), "{all}");
    assert!(!some.contains(&theirs) && some.contains(&peers), "{some}");
    other.put(&format!("ports/{port}"), json!({"port": {"security_groups": [theirs, peers]}}));

    // Nor who is in a group that others have put their ports into.
    let stranger = api.user("member");
    let policy = json!({
        "object_type": "security_group", "object_id": peers, "action": "access_as_shared",
        "target_tenant": stranger.project
    });
    owner.make("rbac-policies", "rbac_policy", policy);
    let own = stranger.group("own");
    let far = stranger.network();
    stranger.subnet(&far, "10.5.0.0/24");
    stranger.port(json!({"network_id": far, "security_groups": [own]}));
    let rule = json!({"security_group_rule": {
        "security_group_id": own, "direction": "ingress", "remote_group_id": peers
    }});
    let told = changes(&stranger.post("security-group-rules?dry_run=true", rule));
    let opened = told[0]["ingress"]["opened"].to_string();
    assert!(opened.contains(&peers) && !opened.contains(address.as_str().unwrap()), "{opened}");
}

#[test]
fn new_ways_are_told() {
    // An outside network is everybody's to see.
    let api = Api::start();
    let (admin, user) = (api.admin(), api.user("member"));
    let outside = id(&admin.make("networks", "network", json!({"router:external": true})));
    admin.subnet(&outside, "192.0.2.0/24");
    let network = user.network();
    let subnet = user.subnet(&network, "10.4.0.0/24");
    let port = id(&user.port(json!({"network_id": network})));
    let gateway = json!({"external_gateway_info": {"network_id": outside}});
    let router = id(&user.make("routers", "router", gateway));
    let ways = |reply: Reply, part: &str| reply.body["dry_run"]["reach"]["ways"][part].clone();

    let path = format!("routers/{router}/add_router_interface");
    let joined = json!({"subnet_id": subnet});
    let line = json!([format!("router {router} is 10.4.0.1 in network {network}")]);
    assert_eq!(ways(user.put(&format!("{path}?dry_run=1"), joined.clone()), "opened"), line);
    assert_eq!(user.put(&path, joined).status, 200);
    let asked = json!({"floatingip": {"floating_network_id": outside, "port_id": port}});
    let led = ways(user.post("floatingips?dry_run=1", asked), "opened")[0].clone();
    let led = led.as_str().unwrap();
    assert!(
        led.starts_with("192.0.2.") && led.ends_with(&format!(" leads to 10.4.0.2 of port {port}")),
        "{led}"
    );
    let down = json!({"router": {"admin_state_up": false}});
    let closed = ways(user.put(&format!("routers/{router}?dry_run=1"), down), "closed");
    assert!(closed.as_array().unwrap().contains(&line[0]), "{closed}");
    let renamed = user.put(&format!("routers/{router}?dry_run=1"), json!({"router": {"name": "x"}}));
    assert_eq!(renamed.body["dry_run"]["reach"]["ways"], json!({"opened": [], "closed": []}));
}
