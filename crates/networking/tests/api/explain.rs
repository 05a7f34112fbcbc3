use serde_json::{Value, json};

use crate::client::{User, id, shared};

struct Scene {
    user: User,
    network: String,
    group: String,
    port: String,
}

/// A port `web-1` in a group `ops` that lets tcp 22 in from a group `dev` and everything out.
fn scene() -> Scene {
    let user = shared().user("member");
    let network = user.network();
    user.subnet(&network, "10.0.7.0/24");
    user.subnet(&network, "fd00:7::/64");
    let (group, dev) = (user.group("ops"), user.group("dev"));
    let mac = "fa:16:3e:00:00:01";
    let port = id(&user.port(json!({
        "name": "web-1", "network_id": network, "security_groups": [group], "mac_address": mac,
        "fixed_ips": [{"ip_address": "10.0.7.20"}, {"ip_address": "fd00:7::20"}]
    })));
    user.rule(json!({
        "security_group_id": group, "direction": "ingress", "protocol": "tcp", "port_range_min": 22,
        "port_range_max": 22, "remote_group_id": dev
    }));
    user.port(json!({
        "name": "laptop", "network_id": network, "security_groups": [dev],
        "fixed_ips": [{"ip_address": "10.0.7.9"}]
    }));
    Scene { user, network, group, port }
}

impl Scene {
    /// What is said about the port, with changes to a question about tcp 443 from 10.0.7.9.
    fn ask(&self, change: Value) -> Value {
        let mut question = json!({
            "port_id": self.port, "direction": "ingress", "remote_ip": "10.0.7.9", "protocol": "tcp", "port": 443
        });
        for (key, value) in change.as_object().unwrap() {
            question[key] = value.clone();
        }
        let reply = self.user.post("explain", question);
        assert_eq!(reply.status, 200, "{}", reply.text);
        reply.body["explain"].clone()
    }
}

#[test]
fn says_who_decides_and_what_would_allow_it() {
    let scene = scene();
    let said = scene.ask(json!({}));
    assert_eq!(said["verdict"], "drop");
    assert_eq!(said["ends"][0]["decided"]["by"], "deny-all");
    let command =
        "openstack security group rule create ops --protocol tcp --dst-port 443 --remote-ip 10.0.7.9/32";
    assert_eq!(said["ends"][0]["to_allow"], command);
    let text = said["text"].as_str().unwrap();
    assert!(text.starts_with("web-1 (port ") && text.contains("network n, 10.0.7.20)  DROP\n"), "{text}");
    assert!(text.contains("✗ ops       in tcp 22 from group dev over IPv4"), "{text}");
    assert!(text.contains("another port\n") && text.contains("decided here\n"), "{text}");

    let said = scene.ask(json!({"port": 22}));
    assert_eq!((&said["verdict"], &said["ends"][0]["decided"]["by"]), (&json!("allow"), &json!("rule")));
    assert_eq!(said["ends"][0]["decided"]["group_id"], scene.group);
    assert_eq!(said["ends"][0]["stateful"], true);
    let said = scene.ask(json!({"port": 22, "remote_ip": "10.0.7.10"}));
    let rules = said["ends"][0]["rules"].as_array().unwrap();
    assert!(rules.iter().any(|rule| rule["why_not"] == "10.0.7.10 is in no port of that group"), "{rules:?}");
    let said = scene.ask(json!({"remote_ip": "2001:db8::1", "protocol": "icmp", "icmp_type": 128}));
    assert_eq!(
        said["ends"][0]["to_allow"],
        "openstack security group rule create ops --ethertype IPv6 --protocol ipv6-icmp --icmp-type 128 --icmp-code 0 \
         --remote-ip 2001:db8::1/128"
    );
}

#[test]
fn knows_what_is_no_rule() {
    let scene = scene();
    let link_local = "fe80::f816:3eff:fe00:1";
    for (change, verdict, by) in [
        (json!({"direction": "egress", "remote_ip": "192.0.2.1"}), "allow", "rule"),
        (
            json!({"direction": "egress", "remote_ip": "192.0.2.1", "local_ip": "10.0.7.21"}),
            "drop",
            "address-guard",
        ),
        (json!({"local_ip": "10.0.7.21"}), "drop", "address-guard"),
        (
            json!({"direction": "egress", "local_ip": "0.0.0.0", "remote_ip": "255.255.255.255", "protocol": "udp", "port": 67}),
            "allow",
            "built-in",
        ),
        (
            json!({"direction": "egress", "local_ip": link_local, "remote_ip": "ff02::1:2", "protocol": "udp", "port": 547}),
            "allow",
            "built-in",
        ),
        (
            json!({"remote_ip": "fe80::1", "local_ip": link_local, "protocol": "icmp", "icmp_type": 135}),
            "allow",
            "built-in",
        ),
        (
            json!({"remote_ip": "fe80::1", "protocol": "icmp", "icmp_type": 135, "icmp_code": 1}),
            "drop",
            "deny-all",
        ),
    ] {
        let said = scene.ask(change.clone());
        let found = (said["verdict"].as_str().unwrap(), said["ends"][0]["decided"]["by"].as_str().unwrap());
        assert_eq!(found, (verdict, by), "{change}: {}", said["text"]);
    }
    let path = format!("ports/{}", scene.port);
    scene.user.put(&path, json!({"port": {"admin_state_up": false}}));
    assert_eq!(scene.ask(json!({"port": 22}))["ends"][0]["decided"]["by"], "port-down");
    let off =
        json!({"port": {"admin_state_up": true, "security_groups": [], "port_security_enabled": false}});
    scene.user.put(&path, off);
    assert_eq!(scene.ask(json!({}))["ends"][0]["decided"]["by"], "port-security-off");
}

#[test]
fn asks_both_ends() {
    let scene = scene();
    let user = &scene.user;
    let closed = user.group("closed");
    user.put(&format!("security-groups/{closed}/rules"), json!({"security_group_rules": []}));
    let other = user.port(json!({
        "network_id": scene.network, "security_groups": [closed], "fixed_ips": [{"ip_address": "10.0.7.30"}]
    }));
    let ask = |from: &str, to: &str| {
        let question = json!({"from_port_id": from, "to_port_id": to, "protocol": "udp", "port": 53});
        user.post("explain", question).body["explain"].clone()
    };
    let said = ask(&scene.port, &id(&other));
    assert_eq!((&said["verdict"], &said["path"]), (&json!("drop"), &json!("the same network")));
    assert_eq!((&said["ends"][0]["verdict"], &said["ends"][1]["verdict"]), (&json!("allow"), &json!("drop")));
    assert_eq!(said["ends"][1]["remote_ip"], "10.0.7.20");

    // Where no router is, nothing passes, whatever the rules say.
    let far = user.network();
    user.subnet(&far, "10.8.0.0/24");
    let open = user.port(json!({"network_id": far, "port_security_enabled": false}));
    let said = ask(&scene.port, &id(&open));
    assert_eq!((&said["verdict"], &said["ends"][1]["verdict"]), (&json!("drop"), &json!("allow")));
    assert!(said["path"].as_str().unwrap().starts_with("no router joins"), "{said}");
    let router = id(&user.make("routers", "router", json!({"name": "r"})));
    for network in [&scene.network, &far] {
        let subnets = user.get(&format!("subnets?network_id={network}&ip_version=4"));
        let joined = json!({"subnet_id": subnets["subnets"][0]["id"]});
        let reply = user.put(&format!("routers/{router}/add_router_interface"), joined);
        assert_eq!(reply.status, 200, "{}", reply.text);
    }
    let said = ask(&scene.port, &id(&open));
    assert_eq!((&said["verdict"], &said["path"]), (&json!("allow"), &json!(format!("router {router}"))));
}

#[test]
fn a_router_carries_what_it_has_interfaces_for() {
    let user = shared().user("member");
    let (near, far) = (user.network(), user.network());
    let subnets =
        [(&near, "10.1.0.0/24"), (&near, "fd00:1::/64"), (&far, "10.2.0.0/24"), (&far, "fd00:2::/64")];
    let subnets = subnets.map(|(network, cidr)| user.subnet(network, cidr));
    let [from, to] = [&near, &far]
        .map(|network| id(&user.port(json!({"network_id": network, "port_security_enabled": false}))));
    let router = id(&user.make("routers", "router", json!({"name": "r"})));
    let ask = |version: u8| {
        let question = json!({
            "from_port_id": from, "to_port_id": to, "ip_version": version, "protocol": "tcp", "port": 22
        });
        user.post("explain", question).body["explain"]["verdict"].as_str().unwrap().to_owned()
    };
    let join = |subnet: &String| {
        let reply = user.put(&format!("routers/{router}/add_router_interface"), json!({"subnet_id": subnet}));
        assert_eq!(reply.status, 200, "{}", reply.text);
        reply.body["port_id"].as_str().unwrap().to_owned()
    };
    join(&subnets[0]);
    let door = join(&subnets[2]);
    assert_eq!((ask(4), ask(6)), ("allow".into(), "drop".into()), "it joins the IPv4 subnets alone");
    join(&subnets[1]);
    join(&subnets[3]);
    assert_eq!(ask(6), "allow");
    let up = |path: &str, kind: &str, up: bool| {
        assert_eq!(user.put(path, json!({ kind: {"admin_state_up": up} })).status, 200);
    };
    up(&format!("ports/{door}"), "port", false);
    assert_eq!(ask(4), "drop", "its interface is down");
    up(&format!("ports/{door}"), "port", true);
    up(&format!("routers/{router}"), "router", false);
    assert_eq!(ask(4), "drop", "it is down");
}

#[test]
fn addresses_are_enough() {
    let scene = scene();
    let user = &scene.user;
    let send = |user: &User, question: Value| {
        let mut asked = json!({"protocol": "tcp", "port": 22, "source_port": 40_000});
        for (key, value) in question.as_object().unwrap() {
            asked[key] = value.clone();
        }
        user.post("explain", asked)
    };
    let ask = |question: Value| {
        let reply = send(user, question);
        assert_eq!(reply.status, 200, "{}", reply.text);
        reply.body["explain"].clone()
    };
    // From a port to a port.
    let said = ask(json!({"source_ip": "10.0.7.9", "destination_ip": "10.0.7.20"}));
    assert_eq!((&said["verdict"], &said["path"]), (&json!("allow"), &json!("the same network")));
    let ends = said["ends"].as_array().unwrap();
    assert_eq!((ends.len(), &ends[1]["port_id"]), (2, &json!(scene.port)));
    assert_eq!(ends[1]["decided"]["group_id"], scene.group);
    let laptop = ends[0]["port_id"].clone();
    let mixed = ask(json!({"from_port_id": laptop, "destination_ip": "10.0.7.20"}));
    assert_eq!(mixed, said, "however they are called");
    assert_eq!(ask(json!({"from_port_id": laptop, "to_port_id": scene.port})), said);

    // From outside to a port, and from a port to outside.
    let said = ask(json!({"source_ip": "192.0.2.1", "destination_ip": "10.0.7.20"}));
    let ends = said["ends"].as_array().unwrap();
    assert_eq!((&said["verdict"], ends.len(), said.get("path")), (&json!("drop"), 1, None));
    assert_eq!((&ends[0]["direction"], &ends[0]["remote_ip"]), (&json!("ingress"), &json!("192.0.2.1")));
    let said = ask(json!({"source_ip": "fd00:7::20", "destination_ip": "2001:db8::1"}));
    assert_eq!((&said["verdict"], &said["ends"][0]["direction"]), (&json!("allow"), &json!("egress")));

    let refused = |user: &User, question: Value, part: &str| {
        let reply = send(user, question.clone());
        assert_eq!(reply.status, 400, "{question}: {}", reply.text);
        assert!(reply.message().contains(part), "{question}: {}", reply.message());
    };
    refused(user, json!({"source_ip": "10.0.7.9"}), "Required attribute 'destination_ip'");
    refused(user, json!({"from_port_id": laptop}), "Required attribute 'to_port_id'");
    refused(user, json!({"ip_version": 4}), "Required attribute 'source_ip'");
    refused(user, json!({}), "'source_ip' and 'destination_ip'");
    refused(user, json!({"source_ip": "10.0.7.9", "destination_ip": "10.0.7.9"}), "to itself");
    refused(user, json!({"source_ip": "10.0.7.9", "destination_ip": "fd00:7::20"}), "not of one family");
    refused(user, json!({"source_ip": "192.0.2.1", "destination_ip": "192.0.2.2"}), "neither 192.0.2.1 nor");
    refused(user, json!({"port_id": scene.port, "source_ip": "10.0.7.9"}), "ask one question");
    // A stranger knows of none of them.
    let stranger = shared().user("member");
    refused(&stranger, json!({"source_ip": "10.0.7.9", "destination_ip": "10.0.7.20"}), "neither 10.0.7.9");

    // The same addresses once more: now it must be said which.
    let twin = user.network();
    user.subnet(&twin, "10.0.7.0/24");
    let other = user.port(json!({"network_id": twin, "fixed_ips": [{"ip_address": "10.0.7.20"}]}));
    let question = json!({"source_ip": "10.0.7.9", "destination_ip": "10.0.7.20"});
    for part in [&*id(&other), &*scene.port, "several ports", "to_port_id"] {
        refused(user, question.clone(), part);
    }
    let mut question = question;
    question["to_port_id"] = json!(scene.port);
    assert_eq!(ask(question.clone())["verdict"], "allow");
    question["to_port_id"] = other["id"].clone();
    let said = ask(question);
    assert!(said["path"].as_str().unwrap().starts_with("no router joins"), "{said}");
}

#[test]
fn groups_of_others_are_not_told_of() {
    let api = shared();
    let (owner, other) = (api.user("member"), api.user("member"));
    let networks = [owner.network(), owner.network()];
    for (number, network) in networks.iter().enumerate() {
        owner.subnet(network, &format!("10.{number}.0.0/24"));
        let policy = json!({
            "object_type": "network", "object_id": network, "action": "access_as_shared",
            "target_tenant": other.project
        });
        owner.make("rbac-policies", "rbac_policy", policy);
    }
    let secret = other.group("secret");
    let rule = other.rule(json!({
        "security_group_id": secret, "direction": "ingress", "protocol": "tcp", "port_range_min": 4711,
        "port_range_max": 4711
    }));
    let router = id(&other.make("routers", "router", json!({"name": "hidden"})));
    for network in &networks {
        let door = id(&other.port(json!({"network_id": network})));
        let reply = other.put(&format!("routers/{router}/add_router_interface"), json!({"port_id": door}));
        assert_eq!(reply.status, 200, "{}", reply.text);
    }
    let theirs = id(&other.port(json!({"network_id": networks[0], "security_groups": [secret]})));
    let own = id(&owner.port(json!({"network_id": networks[1]})));
    let ask = |user: &User, question: Value| {
        let reply = user.post("explain", question);
        assert_eq!(reply.status, 200, "{}", reply.text);
        reply.body["explain"].clone()
    };
    for (port, verdict, by) in [(4711, "allow", "rule"), (22, "drop", "deny-all")] {
        let one = json!({
            "port_id": theirs, "direction": "ingress", "remote_ip": "10.1.0.9", "protocol": "tcp", "port": port
        });
        let two = json!({"from_port_id": own, "to_port_id": theirs, "protocol": "tcp", "port": port});
        for question in [one, two] {
            let said = ask(&owner, question.clone());
            let end = said["ends"].as_array().unwrap().last().unwrap();
            assert_eq!((&said["verdict"], &end["decided"]["by"]), (&json!(verdict), &json!(by)), "{said}");
            assert_eq!((&end["rules"], &end["to_allow"]), (&json!([]), &Value::Null), "{said}");
            for hidden in ["secret", "tcp 4711", &rule, &secret, &router] {
                assert!(!said.to_string().contains(hidden), "{hidden}: {said}");
            }
            if said.get("path").is_some() {
                assert_eq!(said["path"], "a router of another project");
            }
        }
        let question = json!({
            "port_id": theirs, "direction": "ingress", "remote_ip": "10.1.0.9", "protocol": "tcp", "port": port
        });
        assert!(ask(&other, question).to_string().contains("secret"), "who has the group is told");
    }
}

#[test]
fn questions_that_cannot_be_answered() {
    let scene = scene();
    let base = json!({"port_id": scene.port, "direction": "ingress", "remote_ip": "10.0.7.9", "protocol": "tcp", "port": 1});
    for (change, status, message) in [
        (json!({"port": null}), 400, "Invalid input for port. Reason: 'None' is not an integer."),
        (json!({"protocol": "foo"}), 400, "Invalid input for protocol. Reason: \"foo\" is not a protocol."),
        (
            json!({"protocol": "icmp"}),
            400,
            "Failed to parse request. Required attribute 'icmp_type' not specified",
        ),
        (
            json!({"remote_ip": "x"}),
            400,
            "Invalid input for remote_ip. Reason: 'x' is not a valid IP address.",
        ),
        (
            json!({"local_ip": "fd00::1"}),
            400,
            "Invalid input for operation: local_ip and remote_ip are not of one family.",
        ),
        (json!({"foo": 1}), 400, "Unrecognized attribute(s) 'foo'"),
        (
            json!({"to_port_id": scene.port}),
            400,
            "'port_id' is about one port and 'to_port_id' about two: ask one question",
        ),
        (json!({"ip_version": 5}), 400, "Invalid input for ip_version. Reason: '5' is not in [4, 6]."),
        (json!({"direction": "up"}), 400, "Invalid input for direction. Reason: up is not in valid_values."),
    ] {
        let mut question = base.clone();
        for (key, value) in change.as_object().unwrap() {
            question[key] = value.clone();
        }
        let reply = scene.user.post("explain", question);
        assert_eq!((reply.status.as_u16(), reply.message()), (status, message), "{change}");
    }
    let stranger = shared().user("member");
    assert_eq!(stranger.post("explain", base).kind(), "PortNotFound");
    assert_eq!(scene.user.post("explain", json!({})).status, 400);
    assert_eq!(scene.user.post("explain", json!([])).status, 400);
    let itself = json!({"from_port_id": scene.port, "to_port_id": scene.port, "protocol": "tcp", "port": 1});
    assert_eq!(scene.user.post("explain", itself).status, 400);
}
