use serde_json::{Value, json};

use crate::client::{Api, User, id, shared};

fn change(user: &User, port: &str, attributes: Value) -> (u16, String) {
    let reply = user.put(&format!("ports/{port}"), json!({ "port": attributes }));
    (reply.status.as_u16(), reply.text)
}

#[test]
fn only_values_of_dhcp_options_get_into_flows() {
    let user = shared().user("member");
    let network = user.network();
    user.subnet(&network, "10.0.0.0/24");
    let option = |name: &str, value: &str| {
        let options = json!([{"opt_name": name, "opt_value": value}]);
        user.post("ports", json!({"port": {"network_id": network, "extra_dhcp_opts": options}}))
    };
    for (name, value) in [
        ("router", "10.0.0.1); eth.dst = 02:00:00:00:00:01; outport = \"x\"; output; //"),
        ("dns-server", "1.1.1.1}); drop; //"),
        ("mtu", "1400); drop; //"),
        ("classless-static-route", "10.0.0.0/8"),
        ("bootfile-name", "x\"); drop; //"),
        ("bootfile-name", "x\ny"),
    ] {
        let reply = option(name, value);
        assert_eq!((reply.status.as_u16(), reply.kind()), (400, "HTTPBadRequest"), "{name}: {}", reply.text);
        assert!(reply.message().starts_with("Invalid input for extra_dhcp_opts."), "{}", reply.message());
    }
    for (name, value) in [
        ("router", "10.0.0.1"),
        ("dns-server", "1.1.1.1,8.8.8.8"),
        ("bootfile-name", "x.0"),
        ("new-one", "\""),
    ] {
        let reply = option(name, value);
        assert_eq!(reply.status, 201, "{name}: {}", reply.text);
    }
    let wrong = json!({"network_id": network, "extra_dhcp_opts": [{"opt_name": "mtu", "opt_value": "1", "ip_version": 5}]});
    assert_eq!(user.post("ports", json!({ "port": wrong })).status, 400);
}

#[test]
fn a_domain_is_a_domain() {
    let user = shared().user("member");
    for (domain, status) in [
        ("", 201),
        ("example.org", 201),
        ("example.org.", 201),
        ("a\"); drop; //", 400),
        ("a b", 400),
        ("a..b", 400),
        ("-a", 400),
        (&"x".repeat(64), 400),
    ] {
        let reply = user.post("networks", json!({"network": {"dns_domain": domain}}));
        assert_eq!(reply.status.as_u16(), status, "{domain}: {}", reply.text);
    }
}

/// As whom OVN lets a port speak.
fn guard(api: &Api, port: &str) -> String {
    let text = api.ovn.nbctl(&["--bare", "--columns=port_security", "list", "Logical_Switch_Port", port]);
    text.unwrap().trim().to_owned()
}

#[test]
fn a_port_without_an_address_speaks_as_nobody() {
    let api = Api::start();
    let user = api.user("member");
    let network = user.network();
    let mac = "fa:16:3e:00:00:01";
    let port = id(&user.port(json!({"network_id": network, "mac_address": mac})));
    assert_eq!(guard(&api, &port), mac, "there are no addresses, so there is nobody to be");
    let subnet = user.subnet(&network, "10.0.0.0/24");
    assert_eq!(guard(&api, &port), format!("{mac} 127.0.0.1 ::1"));
    api.assert_no_drift();
    change(&user, &port, json!({"fixed_ips": [{"ip_address": "10.0.0.7"}]}));
    assert_eq!(guard(&api, &port), format!("{mac} 10.0.0.7"));
    change(&user, &port, json!({"fixed_ips": []}));
    assert_eq!(guard(&api, &port), format!("{mac} 127.0.0.1 ::1"));
    let said = user.post(
        "explain",
        json!({
            "port_id": port, "direction": "egress", "local_ip": "10.0.0.99", "remote_ip": "10.0.0.1",
            "protocol": "tcp", "port": 22
        }),
    );
    assert_eq!(said.body["explain"]["ends"][0]["decided"]["by"], "address-guard", "{}", said.text);
    // Another hardware address is as much without one.
    let pair = json!([{"ip_address": "10.0.0.8", "mac_address": "fa:16:3e:00:00:02"}]);
    change(&user, &port, json!({ "allowed_address_pairs": pair }));
    assert!(guard(&api, &port).contains(&format!("{mac} 127.0.0.1 ::1")), "{}", guard(&api, &port));
    change(&user, &port, json!({"allowed_address_pairs": []}));
    assert_eq!(user.delete(&format!("subnets/{subnet}")).status, 204);
    assert_eq!(guard(&api, &port), mac);
    api.assert_no_drift();
}

#[test]
fn a_device_owner_alone_is_no_router() {
    let api = Api::start();
    let user = api.user("member");
    let network = user.network();
    user.subnet(&network, "10.0.0.0/24");
    let port = user.port(json!({
        "network_id": network, "device_owner": "network:router_interface", "device_id": "x",
        "port_security_enabled": true
    }));
    let port = id(&port);
    assert!(guard(&api, &port).ends_with(" 10.0.0.2"), "{}", guard(&api, &port));
    // And as no router has it, it can be removed.
    assert_eq!(user.delete(&format!("ports/{port}")).status, 204);
    api.assert_no_drift();
}

#[test]
fn administrators_plug_routers_in_by_their_ports() {
    let api = Api::start();
    let (admin, user) = (api.admin(), api.user("member"));
    let network = user.network();
    user.subnet(&network, "10.0.0.0/24");
    let router = id(&user.make("routers", "router", json!({"name": "r"})));
    // However the router is written, it is found by its port.
    let port = id(&admin.port(json!({
        "network_id": network, "device_owner": "network:router_interface", "device_id": router.to_uppercase(),
        "fixed_ips": [{"ip_address": "10.0.0.1"}]
    })));
    let found = admin.get(&format!("ports?device_id={router}"));
    assert_eq!(found["ports"][0]["id"], port);
    assert_eq!(user.delete(&format!("routers/{router}")).kind(), "RouterInUse");
    api.assert_no_drift();
    assert_eq!(change(&admin, &port, json!({"device_owner": "", "device_id": ""})).0, 200);
    assert_eq!(user.delete(&format!("routers/{router}")).status, 204);
    api.assert_no_drift();
}

#[test]
fn an_address_written_in_another_way_is_the_same() {
    let user = shared().user("member");
    let network = user.network();
    let subnet = user.subnet(&network, "10.0.0.0/24");
    let port = |address: &str| {
        user.post("ports", json!({"port": {"network_id": network, "fixed_ips": [{"ip_address": address}]}}))
    };
    assert_eq!(port("::ffff:10.0.0.5").body["port"]["fixed_ips"][0]["ip_address"], "10.0.0.5");
    assert_eq!(port("::ffff:10.0.0.5").kind(), "IpAddressAlreadyAllocated");
    assert_eq!(port("10.0.0.5").kind(), "IpAddressAlreadyAllocated");
    assert_eq!(port("::ffff:10.0.0.255").kind(), "InvalidIpForSubnet");
    let gateway =
        user.put(&format!("subnets/{subnet}"), json!({"subnet": {"gateway_ip": "::ffff:10.0.0.255"}}));
    assert_eq!(gateway.status, 400, "{}", gateway.text);
    let pairs = json!([{"ip_address": "::ffff:10.0.0.6"}, {"ip_address": "::ffff:10.1.0.0/112"}]);
    let paired = user.port(json!({"network_id": network, "allowed_address_pairs": pairs}));
    let pairs = &paired["allowed_address_pairs"];
    assert_eq!(
        (&pairs[0]["ip_address"], &pairs[1]["ip_address"]),
        (&json!("10.0.0.6"), &json!("10.1.0.0/16"))
    );
    let everything = json!({"subnet": {"network_id": user.network(), "cidr": "::ffff:0.0.0.0/96"}});
    assert_eq!(user.post("subnets", everything).status, 400);
}

#[test]
fn nothing_said_about_groups_is_the_usual_one() {
    let user = shared().user("member");
    let network = user.network();
    let port = |attributes: Value| {
        let mut asked = json!({"network_id": network});
        for (key, value) in attributes.as_object().unwrap() {
            asked[key] = value.clone();
        }
        user.post("ports", json!({ "port": asked }))
    };
    let default = port(json!({})).body["port"]["security_groups"].clone();
    assert_eq!(default.as_array().unwrap().len(), 1);
    assert_eq!(port(json!({"security_groups": null})).body["port"]["security_groups"], default);
    assert_eq!(port(json!({"security_groups": []})).body["port"]["security_groups"], json!([]));
    assert_eq!(port(json!({"fixed_ips": null})).status, 400);
    assert_eq!(port(json!({"fixed_ips": []})).status, 201);
}

#[test]
fn addresses_that_machines_make_follow_their_hardware_addresses() {
    let user = shared().user("member");
    let network = user.network();
    let subnet = json!({
        "network_id": network, "cidr": "2001:db8::/64", "ip_version": 6, "ipv6_address_mode": "slaac",
        "ipv6_ra_mode": "slaac"
    });
    user.make("subnets", "subnet", subnet);
    let port = user.port(json!({"network_id": network, "mac_address": "fa:16:3e:00:00:01"}));
    assert_eq!(port["fixed_ips"][0]["ip_address"], "2001:db8::f816:3eff:fe00:1");
    let path = format!("ports/{}", id(&port));
    let port = user.put(&path, json!({"port": {"mac_address": "fa:16:3e:00:00:02"}})).body["port"].clone();
    assert_eq!(port["fixed_ips"][0]["ip_address"], "2001:db8::f816:3eff:fe00:2");
}
