use serde_json::json;

use crate::client::{Api, id};

#[test]
fn everything_is_made_changed_and_removed_without_a_trace() {
    let api = Api::start();
    let (admin, blue) = (api.admin(), api.user("member"));

    let outside = id(&admin.make("networks", "network", json!({"name": "outside", "router:external": true})));
    let network = blue.network();
    api.assert_no_drift();
    let subnet = blue.subnet(&network, "10.0.0.0/24");
    admin.subnet(&outside, "192.0.2.0/24");
    api.assert_no_drift();
    let port = blue.port(json!({"network_id": network, "name": "vm"}));
    api.assert_no_drift();
    assert_eq!(port["fixed_ips"][0]["ip_address"], "10.0.0.2");
    let groups = blue.get("security-groups");
    assert_eq!(groups["security_groups"][0]["name"], "default");
    assert_eq!(port["security_groups"][0], groups["security_groups"][0]["id"]);

    let gateway = json!({"name": "r", "external_gateway_info": {"network_id": outside}});
    let router = id(&blue.make("routers", "router", gateway));
    api.assert_no_drift();
    let interface = |action: &str| {
        let reply = blue.put(&format!("routers/{router}/{action}"), json!({"subnet_id": subnet}));
        assert_eq!(reply.status, 200, "{}", reply.text);
        api.assert_no_drift();
    };
    interface("add_router_interface");
    let wish = json!({"floating_network_id": outside, "port_id": port["id"]});
    let floating = blue.make("floatingips", "floatingip", wish);
    api.assert_no_drift();
    assert_eq!(
        (floating["router_id"].as_str(), floating["status"].as_str()),
        (Some(&*router), Some("ACTIVE"))
    );

    let gone = |path: String| {
        let reply = blue.delete(&path);
        assert_eq!(reply.status, 204, "{}", reply.text);
        api.assert_no_drift();
    };
    gone(format!("ports/{}", id(&port)));
    gone(format!("floatingips/{}", id(&floating)));
    interface("remove_router_interface");
    gone(format!("routers/{router}"));
    gone(format!("networks/{network}"));
}

#[test]
fn a_gateway_stays_the_same_port() {
    let api = Api::start();
    let admin = api.admin();
    let outside = id(&admin.make("networks", "network", json!({"router:external": true})));
    // Two subnets with one way on.
    let subnets = ["192.0.2.0/25", "192.0.2.128/25"].map(|cidr| {
        let subnet = json!({
            "network_id": outside, "cidr": cidr, "ip_version": 4, "gateway_ip": "192.0.2.1"
        });
        json!({"subnet_id": id(&admin.make("subnets", "subnet", subnet))})
    });
    let gateway = json!({"network_id": outside, "external_fixed_ips": subnets});
    let router = id(&admin.make("routers", "router", json!({ "external_gateway_info": gateway })));
    api.assert_no_drift();
    let port = || admin.get(&format!("ports?device_id={router}"))["ports"][0].clone();
    let before = port();
    assert_eq!(before["fixed_ips"].as_array().unwrap().len(), 2);
    let tags = format!("ports/{}/tags", id(&before));
    assert_eq!(admin.put(&tags, json!({"tags": ["edge"]})).status, 200);
    for info in [
        json!({"network_id": outside, "enable_snat": false}),
        json!({"network_id": outside, "external_fixed_ips": [subnets[0]]}),
    ] {
        let reply =
            admin.put(&format!("routers/{router}"), json!({"router": {"external_gateway_info": info}}));
        assert_eq!(reply.status, 200, "{}", reply.text);
        api.assert_no_drift();
        let now = port();
        assert_eq!((&now["id"], &now["tags"]), (&before["id"], &json!(["edge"])));
    }
    assert_eq!(port()["fixed_ips"].as_array().unwrap().len(), 1);
}
