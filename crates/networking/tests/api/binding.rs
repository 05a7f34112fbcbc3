//! Where a port is, which administrators say and see.

use serde_json::{Value, json};

use crate::client::{id, shared};

const HIDDEN: [&str; 4] = ["binding:host_id", "binding:profile", "binding:vif_type", "binding:vif_details"];

#[test]
fn administrators_say_and_see_where_a_port_is() {
    let api = shared();
    let admin = api.admin();
    let network = admin.network();
    let port = admin.port(json!({"network_id": network}));
    for (name, value) in [
        ("binding:host_id", json!("")),
        ("binding:profile", json!({})),
        ("binding:vnic_type", json!("normal")),
        ("binding:vif_type", json!("unbound")),
        ("binding:vif_details", json!({})),
    ] {
        assert_eq!(port[name], value, "{name}");
    }

    let path = format!("ports/{}", id(&port));
    let change = |attributes: Value| admin.put(&path, json!({ "port": attributes }));
    let profile = json!({"pci_slot": "0000:05:00.1", "card": {"type": "x"}});
    let reply = change(json!({
        "binding:host_id": "node-1", "binding:profile": profile, "binding:vnic_type": "direct"
    }));
    assert_eq!(reply.status, 200, "{}", reply.text);
    let bound = admin.get(&path)["port"].clone();
    assert_eq!(reply.body["port"], bound);
    for (name, value) in [
        ("binding:host_id", json!("node-1")),
        ("binding:profile", profile),
        ("binding:vnic_type", json!("direct")),
        ("binding:vif_type", json!("ovs")),
    ] {
        assert_eq!(bound[name], value, "{name}");
    }
    assert_eq!(bound["binding:vif_details"]["port_filter"], true);
    let chosen =
        api.ovn.nbctl(&["get", "Logical_Switch_Port", &id(&port), "options:requested-chassis"]).unwrap();
    assert_eq!(chosen.trim(), "node-1");
    let found = admin.get("ports?binding:host_id=node-1&binding:vif_type=ovs")["ports"].clone();
    assert!(found.as_array().unwrap().iter().any(|found| found["id"] == port["id"]), "{found}");

    // Who is somewhere keeps its hardware address.
    let reply = change(json!({"mac_address": "fa:16:3e:00:00:99"}));
    assert_eq!((reply.status.as_u16(), reply.kind()), (409, "PortBound"));
    for host in [json!(""), json!(null)] {
        change(json!({"binding:host_id": "node-1"}));
        let reply = change(json!({ "binding:host_id": host }));
        let port = &reply.body["port"];
        assert_eq!((&port["binding:host_id"], &port["binding:vif_type"]), (&json!(""), &json!("unbound")));
        assert_eq!(port["binding:vif_details"], json!({}));
    }
    for none in [json!({}), json!(null)] {
        change(json!({"binding:profile": {"a": 1}}));
        let reply = change(json!({ "binding:profile": none }));
        assert_eq!(reply.body["port"]["binding:profile"], json!({}), "{}", reply.text);
    }
    for (name, value) in [
        ("binding:vnic_type", json!("magic")),
        ("binding:profile", json!("x")),
        ("binding:host_id", json!(7)),
        ("binding:vif_type", json!("ovs")),
        ("binding:vif_details", json!({})),
    ] {
        let reply = change(json!({ name: value }));
        assert_eq!((reply.status.as_u16(), reply.kind()), (400, "HTTPBadRequest"), "{name}");
    }
    let made = admin.port(json!({"network_id": network, "binding:host_id": "node-2"}));
    assert_eq!((&made["binding:host_id"], &made["binding:vif_type"]), (&json!("node-2"), &json!("ovs")));
    api.assert_no_drift();
}

#[test]
fn others_neither_say_nor_see_it() {
    let api = shared();
    let user = api.user("member");
    let (admin, network) = (user.with("admin"), user.network());
    let port = user.port(json!({"network_id": network, "binding:vnic_type": "macvtap"}));
    assert_eq!(port["binding:vnic_type"], "macvtap", "what it is plugged into is its own to say");
    let path = format!("ports/{}", id(&port));
    let reply = admin.put(&path, json!({"port": {"binding:host_id": "node-1", "binding:profile": {"a": 1}}}));
    assert_eq!(reply.status, 200, "{}", reply.text);
    for asker in [&user, &user.with("reader")] {
        let shown = [
            asker.get(&path)["port"].clone(),
            asker.get(&format!("ports?id={}", id(&port)))["ports"][0].clone(),
            asker.get(&format!("{path}?fields=binding:host_id&fields=binding:profile&fields=id"))["port"]
                .clone(),
        ];
        for shown in shown {
            assert_eq!(shown["id"], port["id"]);
            for name in HIDDEN {
                assert_eq!(shown.get(name), None, "{name}");
            }
        }
        // Not even by asking whether it is there.
        let there = asker.get("ports?binding:host_id=node-1")["ports"].clone();
        let nowhere = asker.get("ports?binding:host_id=node-2")["ports"].clone();
        assert_eq!(there, nowhere);
    }
    for (name, value) in [("binding:host_id", json!("node-2")), ("binding:profile", json!({"b": 2}))] {
        let made = user.post("ports", json!({"port": {"network_id": network, name: value}}));
        let message = format!("rule:create_port:{name} is disallowed by policy");
        assert_eq!(
            (made.status.as_u16(), made.kind(), made.message()),
            (403, "PolicyNotAuthorized", &*message)
        );
        let changed = user.put(&path, json!({"port": {name: value}}));
        let message = format!("rule:update_port:{name} is disallowed by policy");
        assert_eq!(
            (changed.status.as_u16(), changed.kind(), changed.message()),
            (403, "PolicyNotAuthorized", &*message)
        );
    }
    let kept = admin.get(&path)["port"].clone();
    assert_eq!((&kept["binding:host_id"], &kept["binding:profile"]), (&json!("node-1"), &json!({"a": 1})));
}
