//! Who may do what to whose objects.

use std::collections::BTreeMap;

use serde_json::json;

use crate::client::{Api, User, id};

/// A project with a network that it shares with another, and what both have in it and beside it.
struct Scene {
    /// `{name}` in a request stands for one of these.
    names: BTreeMap<&'static str, String>,
    owner: User,
    sharee: User,
    stranger: User,
    reader: User,
}

impl Scene {
    fn new() -> Self {
        let api = Api::start();
        let (admin, owner, sharee, stranger) =
            (api.admin(), api.user("member"), api.user("member"), api.user("member"));
        let mut names = BTreeMap::new();
        let share = |by: &User, kind: &str, object: &str, target: &str| {
            let policy = json!({
                "object_type": kind, "object_id": object, "action": "access_as_shared", "target_tenant": target
            });
            id(&by.make("rbac-policies", "rbac_policy", policy))
        };
        let network = owner.network();
        let subnet = owner.subnet(&network, "10.0.0.0/24");
        owner.subnet(&network, "10.0.1.0/24");
        let private = owner.network();
        names.insert("policy", share(&owner, "network", &network, &sharee.project));

        // The provider's: one for everybody to use, one for everybody to leave by.
        let public = id(&admin.make("networks", "network", json!({"name": "public", "shared": true})));
        names.insert("public_subnet", admin.subnet(&public, "10.9.0.0/24"));
        let outside = json!({"name": "outside", "router:external": true});
        let outside = id(&admin.make("networks", "network", outside));
        names.insert("outside_subnet", admin.subnet(&outside, "192.0.2.0/24"));

        for (user, router) in [(&owner, "owner"), (&sharee, "sharee"), (&stranger, "stranger")] {
            let out = (router == "owner").then(|| json!({"network_id": outside}));
            let wish = json!({"name": router, "external_gateway_info": out});
            names.insert(router, id(&user.make("routers", "router", wish)));
        }
        let port =
            |by: &User| id(&by.port(json!({"network_id": network, "fixed_ips": [{"subnet_id": subnet}]})));
        names.insert("owners_port", port(&owner));
        names.insert("sharees_port", port(&sharee));
        // A port of the sharee that is a router's now.
        let door = port(&sharee);
        let path = format!("routers/{}/add_router_interface", names["sharee"]);
        assert_eq!(sharee.put(&path, json!({"port_id": door})).status, 200);
        names.insert("sharees_door", door);

        let inside = owner.subnet(&private, "10.1.0.0/24");
        let path = format!("routers/{}/add_router_interface", names["owner"]);
        assert_eq!(owner.put(&path, json!({"subnet_id": inside})).status, 200);
        let reached = id(&owner.port(json!({"network_id": private})));
        let floating = json!({"floating_network_id": outside, "port_id": reached});
        let floating = owner.make("floatingips", "floatingip", floating);
        names.insert("floating", id(&floating));
        names.insert("reached_port", reached);

        let (group, given) = (owner.group("own"), owner.group("given"));
        share(&owner, "security_group", &given, &sharee.project);
        let addresses = json!({"name": "a", "addresses": ["192.0.2.0/24"]});
        names.insert("addresses", id(&owner.make("address-groups", "address_group", addresses)));
        names.insert("owners_project", owner.project.clone());
        for (name, id) in [
            ("network", network),
            ("subnet", subnet),
            ("private", private),
            ("inside", inside),
            ("outside", outside),
            ("group", group),
            ("given", given),
        ] {
            names.insert(name, id);
        }
        let reader = owner.with("reader");
        Scene { names, owner, sharee, stranger, reader }
    }

    /// Sends a request as somebody, whose own router is `{router}`, without doing anything.
    fn ask(&self, user: &User, router: &str, request: &str) -> (u16, String) {
        let mut request = request.replace("{router}", &self.names[router]);
        for (name, id) in &self.names {
            request = request.replace(&format!("{{{name}}}"), id);
        }
        let mut parts = request.splitn(3, ' ');
        let (method, path) = (parts.next().unwrap(), parts.next().unwrap());
        let body = parts.next().unwrap_or_default().to_owned();
        let reply =
            user.send(method, &format!("{path}?{}", if method == "GET" { "" } else { "dry_run=1" }), body);
        (reply.status.as_u16(), reply.text)
    }
}

/// What is asked, and what the network's owner, who it is shared with, a stranger and the owner's reader are answered.
/// What would be done is answered with 200.
#[rustfmt::skip]
const TABLE: &[(&str, [u16; 4])] = &[
    ("GET networks/{network}", [200, 200, 404, 200]),
    (r#"PUT networks/{network} {"network": {"name": "x"}}"#, [200, 403, 404, 403]),
    (r#"PUT networks/{network} {"network": {"port_security_enabled": false}}"#, [200, 403, 404, 403]),
    // What administrators set, nobody else takes back.
    (r#"PUT networks/{network} {"network": {"shared": false}}"#, [403, 403, 404, 403]),
    (r#"PUT networks/{network} {"network": {"router:external": false}}"#, [403, 403, 404, 403]),
    (r#"PUT networks/{network} {"network": {"is_default": false}}"#, [403, 403, 404, 403]),
    ("DELETE networks/{network}", [409, 403, 404, 403]),
    ("GET networks/{private}", [200, 404, 404, 200]),
    ("GET networks/{outside}", [200, 200, 200, 200]),
    (r#"POST networks {"network": {"shared": true}}"#, [403, 403, 403, 403]),
    (r#"POST networks {"network": {"shared": false}}"#, [200, 200, 200, 403]),

    ("GET subnets/{subnet}", [200, 200, 404, 200]),
    (r#"POST subnets {"subnet": {"network_id": "{network}", "cidr": "10.7.0.0/24"}}"#, [200, 403, 404, 403]),
    (r#"PUT subnets/{subnet} {"subnet": {"gateway_ip": null}}"#, [200, 403, 404, 403]),
    ("DELETE subnets/{subnet}", [409, 403, 404, 403]),

    (r#"POST ports {"port": {"network_id": "{network}"}}"#, [200, 200, 404, 403]),
    (r#"POST ports {"port": {"network_id": "{private}"}}"#, [200, 404, 404, 403]),
    (r#"POST ports {"port": {"network_id": "{outside}"}}"#, [403, 403, 403, 403]),
    (r#"POST ports {"port": {"network_id": "{network}", "mac_address": "fa:16:3e:00:00:09"}}"#, [200, 403, 404, 403]),
    (r#"POST ports {"port": {"network_id": "{network}", "port_security_enabled": false}}"#, [200, 403, 404, 403]),
    (r#"POST ports {"port": {"network_id": "{network}", "allowed_address_pairs": [{"ip_address": "10.0.0.9"}]}}"#, [200, 403, 404, 403]),
    (r#"POST ports {"port": {"network_id": "{network}", "fixed_ips": [{"ip_address": "10.0.0.9"}]}}"#, [200, 403, 404, 403]),
    (r#"POST ports {"port": {"network_id": "{network}", "fixed_ips": [{"subnet_id": "{subnet}"}]}}"#, [200, 200, 404, 403]),
    (r#"POST ports {"port": {"network_id": "{network}", "fixed_ips": []}}"#, [200, 200, 404, 403]),
    (r#"POST ports {"port": {"network_id": "{network}", "security_groups": ["{group}"]}}"#, [200, 404, 404, 403]),
    (r#"POST ports {"port": {"network_id": "{network}", "security_groups": ["{given}"]}}"#, [200, 200, 404, 403]),
    (r#"POST ports {"port": {"network_id": "{network}", "device_owner": "network:dhcp"}}"#, [200, 403, 404, 403]),
    (r#"POST ports {"port": {"network_id": "{network}", "device_owner": "compute:x", "device_id": "vm"}}"#, [200, 200, 404, 403]),
    (r#"POST ports {"port": {"network_id": "{network}", "binding:host_id": "h"}}"#, [403, 403, 403, 403]),
    (r#"POST ports {"port": {"network_id": "{network}", "project_id": "{owners_project}"}}"#, [200, 400, 404, 403]),
    // A router takes part in every network that it has a port in: nobody plugs another's in.
    (r#"POST ports {"port": {"network_id": "{network}", "device_owner": "network:router_interface", "device_id": "{owner}"}}"#, [200, 403, 404, 403]),
    (r#"POST ports {"port": {"network_id": "{network}", "device_owner": "network:router_interface", "device_id": "{sharee}"}}"#, [409, 403, 404, 403]),
    (r#"POST ports {"port": {"network_id": "{network}", "device_owner": "network:router_gateway", "device_id": "{sharee}"}}"#, [409, 403, 404, 403]),
    (r#"PUT ports/{owners_port} {"port": {"device_owner": "network:router_interface", "device_id": "{stranger}"}}"#, [409, 404, 404, 403]),

    ("GET ports/{owners_port}", [200, 404, 404, 200]),
    (r#"PUT ports/{owners_port} {"port": {"name": "x"}}"#, [200, 404, 404, 403]),
    (r#"PUT ports/{owners_port} {"port": {"fixed_ips": [{"ip_address": "10.0.0.77"}]}}"#, [200, 404, 404, 403]),
    (r#"PUT ports/{owners_port} {"port": {"security_groups": [], "port_security_enabled": false}}"#, [200, 404, 404, 403]),
    (r#"PUT ports/{owners_port} {"port": {"binding:host_id": null}}"#, [403, 404, 404, 403]),
    ("DELETE ports/{owners_port}", [200, 404, 404, 403]),

    // Who has the network sees and removes what is in it; what it is its own project says.
    ("GET ports/{sharees_port}", [200, 200, 404, 200]),
    (r#"PUT ports/{sharees_port} {"port": {"name": "x"}}"#, [403, 200, 404, 403]),
    (r#"PUT ports/{sharees_port} {"port": {"security_groups": []}}"#, [403, 200, 404, 403]),
    (r#"PUT ports/{sharees_port} {"port": {"security_groups": [], "port_security_enabled": false}}"#, [403, 403, 404, 403]),
    (r#"PUT ports/{sharees_port} {"port": {"allowed_address_pairs": [{"ip_address": "10.0.0.9"}]}}"#, [403, 403, 404, 403]),
    (r#"PUT ports/{sharees_port} {"port": {"mac_address": "fa:16:3e:00:00:09"}}"#, [403, 403, 404, 403]),
    (r#"PUT ports/{sharees_port} {"port": {"fixed_ips": []}}"#, [403, 403, 404, 403]),
    (r#"PUT ports/{sharees_port} {"port": {"fixed_ips": [{"subnet_id": "{subnet}"}]}}"#, [403, 403, 404, 403]),
    (r#"PUT ports/{sharees_port} {"port": {"device_owner": "network:router_interface", "device_id": "{sharee}"}}"#, [403, 403, 404, 403]),
    (r#"PUT ports/{sharees_port} {"port": {"device_owner": "compute:x", "device_id": "vm"}}"#, [403, 200, 404, 403]),
    (r#"PUT ports/{sharees_port}/tags {"tags": ["x"]}"#, [403, 200, 404, 403]),
    ("DELETE ports/{sharees_port}", [200, 200, 404, 403]),

    // What a router has is not filtered, and stays the router's until that gives it up.
    (r#"PUT ports/{sharees_door} {"port": {"device_owner": "", "device_id": ""}}"#, [403, 409, 404, 403]),
    (r#"PUT ports/{sharees_door} {"port": {"device_id": "vm"}}"#, [403, 409, 404, 403]),
    (r#"PUT ports/{sharees_door} {"port": {"name": "x"}}"#, [403, 200, 404, 403]),
    ("DELETE ports/{sharees_door}", [409, 409, 404, 403]),
    (r#"PUT routers/{sharee}/remove_router_interface {"port_id": "{sharees_door}"}"#, [404, 200, 404, 404]),

    ("GET routers/{owner}", [200, 404, 404, 200]),
    (r#"PUT routers/{owner} {"router": {"admin_state_up": false}}"#, [200, 404, 404, 403]),
    (r#"PUT routers/{owner}/add_extraroutes {"router": {"routes": []}}"#, [200, 404, 404, 403]),
    (r#"PUT routers/{router} {"router": {"external_gateway_info": {"network_id": "{outside}", "enable_snat": false}}}"#, [403, 403, 403, 403]),
    ("DELETE routers/{owner}", [409, 404, 404, 403]),
    // The gateway of a subnet is its owner's, or of whom it was given to by name.
    (r#"PUT routers/{router}/add_router_interface {"subnet_id": "{outside_subnet}"}"#, [400, 400, 400, 403]),
    (r#"PUT routers/{router}/add_router_interface {"subnet_id": "{public_subnet}"}"#, [400, 400, 400, 403]),
    (r#"PUT routers/{stranger}/add_router_interface {"subnet_id": "{subnet}"}"#, [404, 404, 404, 404]),
    (r#"PUT routers/{owner}/add_router_interface {"subnet_id": "{subnet}"}"#, [200, 404, 404, 403]),
    (r#"PUT routers/{router}/add_router_interface {"port_id": "{owners_port}"}"#, [200, 404, 404, 403]),
    (r#"PUT routers/{owner}/add_router_interface {"port_id": "{sharees_port}"}"#, [403, 404, 404, 403]),

    ("GET floatingips/{floating}", [200, 404, 404, 200]),
    (r#"PUT floatingips/{floating} {"floatingip": {"port_id": null}}"#, [200, 404, 404, 403]),
    (r#"PUT floatingips/{floating} {"floatingip": {"port_id": "{sharees_port}"}}"#, [400, 404, 404, 403]),
    (r#"POST floatingips {"floatingip": {"floating_network_id": "{outside}"}}"#, [200, 200, 200, 403]),
    (r#"POST floatingips {"floatingip": {"floating_network_id": "{outside}", "floating_ip_address": "192.0.2.99"}}"#, [403, 403, 403, 403]),
    ("DELETE floatingips/{floating}", [200, 404, 404, 403]),
    // A floating address leads to its port's address or nowhere.
    (r#"PUT ports/{reached_port} {"port": {"fixed_ips": []}}"#, [400, 404, 404, 403]),
    (r#"PUT ports/{reached_port} {"port": {"fixed_ips": [{"ip_address": "10.1.0.77"}]}}"#, [400, 404, 404, 403]),
    (r#"PUT ports/{reached_port} {"port": {"fixed_ips": [{"subnet_id": "{inside}"}]}}"#, [200, 404, 404, 403]),

    ("GET security-groups/{group}", [200, 404, 404, 200]),
    ("GET security-groups/{given}", [200, 200, 404, 200]),
    (r#"PUT security-groups/{given} {"security_group": {"description": "x"}}"#, [200, 403, 404, 403]),
    (r#"PUT security-groups/{given}/rules {"security_group_rules": []}"#, [200, 403, 404, 403]),
    (r#"POST security-group-rules {"security_group_rule": {"security_group_id": "{given}", "direction": "ingress"}}"#, [200, 403, 404, 403]),
    (r#"POST security-group-rules {"security_group_rule": {"security_group_id": "{group}", "direction": "ingress"}}"#, [200, 404, 404, 403]),
    ("DELETE security-groups/{given}", [200, 403, 404, 403]),
    ("GET address-groups/{addresses}", [200, 404, 404, 200]),
    (r#"PUT address-groups/{addresses}/add_addresses {"addresses": ["10.0.0.0/8"]}"#, [200, 404, 404, 403]),
    (r#"POST default-security-group-rules {"default_security_group_rule": {"direction": "ingress", "used_in_default_sg": true, "used_in_non_default_sg": true}}"#, [403, 403, 403, 403]),

    ("GET rbac-policies/{policy}", [200, 404, 404, 200]),
    ("DELETE rbac-policies/{policy}", [409, 404, 404, 403]),
    (r#"POST rbac-policies {"rbac_policy": {"object_type": "network", "object_id": "{private}", "action": "access_as_shared", "target_tenant": "*"}}"#, [403, 403, 403, 403]),
    ("GET quotas/{owners_project}", [200, 403, 403, 200]),
    (r#"PUT quotas/{owners_project} {"quota": {"port": -1}}"#, [403, 403, 403, 403]),

    (r#"POST explain {"port_id": "{sharees_port}", "direction": "ingress", "remote_ip": "10.0.0.9", "protocol": "tcp", "port": 22}"#, [200, 200, 404, 200]),
    (r#"POST explain {"port_id": "{owners_port}", "direction": "ingress", "remote_ip": "10.0.0.9", "protocol": "tcp", "port": 22}"#, [200, 404, 404, 200]),
];

#[test]
fn everybody_may_do_what_is_theirs() {
    let scene = Scene::new();
    let users = [
        ("owner", &scene.owner, "owner"),
        ("sharee", &scene.sharee, "sharee"),
        ("stranger", &scene.stranger, "stranger"),
        ("reader", &scene.reader, "owner"),
    ];
    let mut wrong = Vec::new();
    for (request, expected) in TABLE {
        for ((who, user, router), expected) in users.into_iter().zip(expected) {
            let (status, text) = scene.ask(user, router, request);
            if status != *expected {
                wrong.push(format!("{who}: {request}\n  is {status}, not {expected}: {text}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
