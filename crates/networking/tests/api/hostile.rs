//! Whatever is sent is answered: with what was asked, or with what is wrong about it.

use axum::body::Body;
use axum::http::StatusCode;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use serde_json::{Map, Value, json};

use crate::client::{User, id, shared};

/// Any JSON, mostly of what an API might mistake for something else.
fn anything() -> impl Strategy<Value = Value> {
    let texts = prop_oneof![
        Just(String::new()),
        Just("10.0.0.0/8".to_owned()),
        Just("2001:db8::/64".to_owned()),
        Just("fa:16:3e:00:00:01".to_owned()),
        Just("00000000-0000-0000-0000-000000000000".to_owned()),
        Just("PARENT".to_owned()),
        Just("network:router_interface".to_owned()),
        Just("\0".to_owned()),
        "\\PC{0,300}",
        ".{0,8}",
    ];
    let numbers = prop_oneof![
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        (-2_i64..70_000).prop_map(Value::from),
    ];
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        numbers,
        texts.prop_map(Value::from),
    ];
    let keys = prop_oneof![
        Just("ip_address".to_owned()),
        Just("subnet_id".to_owned()),
        Just("opt_name".to_owned()),
        Just("opt_value".to_owned()),
        Just("destination".to_owned()),
        Just("nexthop".to_owned()),
        Just("network_id".to_owned()),
        "[a-z_:]{0,12}",
    ];
    leaf.prop_recursive(3, 24, 5, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            prop::collection::btree_map(keys.clone(), inner, 0..5)
                .prop_map(|entries| Value::Object(entries.into_iter().collect())),
        ]
    })
}

/// The attributes of an object, some of which are anything.
fn spoilt(attributes: &Value) -> impl Strategy<Value = Value> + use<> {
    let names: Vec<String> = attributes.as_object().unwrap().keys().cloned().collect();
    let attributes = attributes.clone();
    let spoils = prop::collection::vec((prop::sample::select(names), anything()), 1..4);
    spoils.prop_map(move |spoils| {
        let mut spoilt: Map<String, Value> = attributes.as_object().unwrap().clone();
        spoilt.extend(spoils);
        Value::Object(spoilt)
    })
}

/// Sends what no client would, and looks whether it is answered.
#[track_caller]
fn is_answered(user: &User, method: &str, path: &str, bodies: impl Strategy<Value = Value>) {
    let mut runner = TestRunner::new(Config { cases: 120, failure_persistence: None, ..Config::default() });
    let outcome = runner.run(&bodies, |body| {
        let reply = user.send(method, path, body.to_string());
        prop_assert!(reply.status.as_u16() < 500, "{method} {path} {body}: {} {}", reply.status, reply.text);
        prop_assert!(reply.status.is_success() || !reply.message().is_empty(), "{body}: {}", reply.text);
        Ok(())
    });
    outcome.unwrap_or_else(|error| panic!("{error}"));
}

#[test]
fn any_attribute_may_be_anything() {
    let user = shared().admin();
    let network = user.network();
    let subnet = user.subnet(&network, "10.0.0.0/16");
    let group = user.group("group");
    let port = user.port(json!({"network_id": network}));
    let router = user.make("routers", "router", json!({}));
    for (collection, name, object) in [
        ("networks", "network", user.get(&format!("networks/{network}"))),
        ("subnets", "subnet", user.get(&format!("subnets/{subnet}"))),
        ("ports", "port", json!({"port": port})),
        ("routers", "router", json!({"router": router})),
        ("security-groups", "security_group", user.get(&format!("security-groups/{group}"))),
        (
            "security-group-rules",
            "security_group_rule",
            json!({"security_group_rule": {
                "security_group_id": group, "direction": "ingress", "ethertype": "IPv4", "protocol": "tcp",
                "port_range_min": 1, "port_range_max": 2, "remote_ip_prefix": "10.0.0.0/8",
                "remote_group_id": null, "remote_address_group_id": null,
            }}),
        ),
        (
            "address-groups",
            "address_group",
            json!({"address_group": {"name": "x", "addresses": ["10.0.0.0/8"], "description": ""}}),
        ),
        (
            "rbac-policies",
            "rbac_policy",
            json!({"rbac_policy": {"object_type": "network", "object_id": network,
                                   "action": "access_as_shared", "target_tenant": "*"}}),
        ),
        (
            "default-security-group-rules",
            "default_security_group_rule",
            json!({"default_security_group_rule": {"direction": "ingress", "protocol": "tcp",
                                                   "remote_group_id": "PARENT"}}),
        ),
        (
            "floatingips",
            "floatingip",
            json!({"floatingip": {"floating_network_id": network, "port_id": null, "fixed_ip_address": null,
                                  "floating_ip_address": null, "subnet_id": subnet}}),
        ),
    ] {
        let bodies = || spoilt(&object[name]).prop_map(move |attributes| json!({ name: attributes }));
        is_answered(&user, "POST", collection, bodies());
        is_answered(&user, "POST", &format!("{collection}?dry_run=true"), bodies());
        if let Some(known) = object[name]["id"].as_str() {
            is_answered(&user, "PUT", &format!("{collection}/{known}"), bodies());
        }
    }
    let router = id(&router);
    is_answered(&user, "PUT", &format!("routers/{router}/add_router_interface"), anything());
    is_answered(&user, "PUT", &format!("routers/{router}/add_extraroutes"), anything());
    is_answered(&user, "PUT", &format!("security-groups/{group}/rules"), anything());
    is_answered(&user, "PUT", &format!("networks/{network}/tags"), anything());
    is_answered(&user, "PUT", &format!("quotas/{}", user.project), anything());
    is_answered(&user, "POST", "explain", anything());
    is_answered(&user, "PUT", "security-groups/import", anything());
    shared().assert_no_drift();
}

#[test]
fn any_question_may_be_asked() {
    let user = shared().admin();
    let words = prop_oneof![
        Just("limit".to_owned()),
        Just("marker".to_owned()),
        Just("sort_key".to_owned()),
        Just("sort_dir".to_owned()),
        Just("fields".to_owned()),
        Just("fixed_ips".to_owned()),
        Just("name".to_owned()),
        Just("dry_run".to_owned()),
        "[a-z0-9_%=-]{0,10}",
    ];
    let pairs = prop::collection::vec((words.clone(), words), 0..4);
    let resources = prop::sample::select(vec!["ports", "networks", "security-groups", "quotas", "x", ""]);
    let paths = (resources, "[a-z0-9/%.+-]{0,12}", pairs).prop_map(|(resource, rest, pairs)| {
        let pairs: Vec<String> = pairs.into_iter().map(|(key, value)| format!("{key}={value}")).collect();
        format!("{resource}/{rest}?{}", pairs.join("&"))
    });
    let methods = prop::sample::select(vec!["GET", "POST", "PUT", "DELETE", "PATCH"]);
    let mut runner = TestRunner::new(Config { cases: 500, failure_persistence: None, ..Config::default() });
    let bodies = prop_oneof![Just(Vec::new()), prop::collection::vec(any::<u8>(), 0..64)];
    let outcome = runner.run(&(methods, paths, bodies), |(method, path, body)| {
        let reply = user.send(method, &path, Body::from(body));
        // As Neutron, it knows that some methods are there for others only.
        let is_fine = reply.status.as_u16() < 500 || reply.status == StatusCode::NOT_IMPLEMENTED;
        prop_assert!(is_fine, "{method} {path}: {} {}", reply.status, reply.text);
        Ok(())
    });
    outcome.unwrap_or_else(|error| panic!("{error}"));
}
