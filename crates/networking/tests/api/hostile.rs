//! Whatever is sent is answered: with what was asked, or with what is wrong about it.

use std::cell::Cell;

use axum::body::Body;
use axum::http::StatusCode;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use serde_json::{Map, Value, json};

use crate::client::{Api, User, id, shared};

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

/// A request as clients send it.
type Sent = (&'static str, String, String);

/// One of everything that takes a body.
fn real(user: &User) -> Vec<Sent> {
    let network = user.network();
    let subnet = user.subnet(&network, "10.0.0.0/16");
    let (group, other) = (user.group("group"), user.group("other"));
    let port = id(&user.port(json!({"network_id": network})));
    let router = id(&user.make("routers", "router", json!({})));
    let near = user.subnet(&user.network(), "10.6.0.0/24");
    let joined = user.put(&format!("routers/{router}/add_router_interface"), json!({ "subnet_id": near }));
    assert_eq!(joined.status, 200, "{}", joined.text);
    let outside = id(&user.make("networks", "network", json!({"router:external": true})));
    user.subnet(&outside, "192.0.2.0/24");
    let addresses = id(&user.make("address-groups", "address_group", json!({"addresses": ["10.0.0.0/8"]})));
    let rule = json!({
        "security_group_id": group, "direction": "ingress", "ethertype": "IPv4", "protocol": "tcp",
        "port_range_min": 22, "port_range_max": 23, "remote_ip_prefix": "10.1.0.0/16", "description": "ü"
    });
    let mut wanted = rule.clone();
    wanted.as_object_mut().unwrap().remove("security_group_id");
    vec![
        ("POST", "networks".into(), json!({"network": {
            "name": "n", "mtu": 1400, "admin_state_up": true, "shared": false, "provider:network_type": "vlan",
            "provider:physical_network": "wire", "provider:segmentation_id": 7, "dns_domain": "example.org."
        }})),
        ("POST", "networks".into(), json!({"networks": [{"name": "one"}, {"name": "two", "mtu": 1300}]})),
        ("PUT", format!("networks/{network}"), json!({"network": {"name": "x", "port_security_enabled": true}})),
        ("POST", "subnets".into(), json!({"subnet": {
            "network_id": network, "cidr": "10.7.0.0/24", "ip_version": 4, "gateway_ip": "10.7.0.1",
            "allocation_pools": [{"start": "10.7.0.9", "end": "10.7.0.99"}], "dns_nameservers": ["192.0.2.53"],
            "host_routes": [{"destination": "10.8.0.0/16", "nexthop": "10.7.0.2"}], "enable_dhcp": false
        }})),
        ("POST", "ports".into(), json!({"port": {
            "network_id": network, "fixed_ips": [{"subnet_id": subnet}], "security_groups": [group, other],
            "mac_address": "fa:16:3e:11:22:33", "device_id": "vm", "device_owner": "compute:nova",
            "allowed_address_pairs": [{"ip_address": "10.0.9.0/24", "mac_address": "fa:16:3e:11:22:34"}],
            "extra_dhcp_opts": [{"opt_name": "mtu", "opt_value": "1400", "ip_version": 4}],
            "binding:host_id": "node", "binding:profile": {"a": {"b": [1, 2.5, null]}}
        }})),
        ("PUT", format!("ports/{port}"), json!({"port": {"security_groups": [group], "binding:vnic_type": "normal"}})),
        ("POST", "routers".into(), json!({"router": {
            "name": "r", "external_gateway_info": {
                "network_id": outside, "enable_snat": true, "external_fixed_ips": [{"ip_address": "192.0.2.7"}]
            }
        }})),
        ("PUT", format!("routers/{router}/add_router_interface"), json!({"subnet_id": subnet})),
        ("PUT", format!("routers/{router}/add_extraroutes"), json!({"router": {
            "routes": [{"destination": "10.9.0.0/16", "nexthop": "10.6.0.9"}]
        }})),
        ("POST", "floatingips".into(), json!({"floatingip": {
            "floating_network_id": outside, "floating_ip_address": "192.0.2.77", "description": "d"
        }})),
        ("POST", "security-groups".into(), json!({"security_group": {"name": "g", "stateful": false}})),
        ("POST", "security-group-rules".into(), json!({ "security_group_rule": rule })),
        ("POST", "security-group-rules".into(), json!({ "security_group_rules": [rule, rule] })),
        ("PUT", format!("security-groups/{group}/rules"), json!({ "security_group_rules": [wanted] })),
        ("POST", "address-groups".into(), json!({"address_group": {"addresses": ["10.0.0.0/8", "fd00::/8"]}})),
        ("PUT", format!("address-groups/{addresses}/add_addresses"), json!({"addresses": ["192.0.2.0/24"]})),
        ("POST", "default-security-group-rules".into(), json!({"default_security_group_rule": {
            "direction": "ingress", "protocol": "udp", "port_range_min": 53, "port_range_max": 53,
            "remote_group_id": "PARENT", "used_in_default_sg": true, "used_in_non_default_sg": false
        }})),
        ("POST", "rbac-policies".into(), json!({"rbac_policy": {
            "object_type": "network", "object_id": network, "action": "access_as_shared", "target_tenant": "*"
        }})),
        ("PUT", format!("networks/{network}/tags"), json!({"tags": ["a", "b"]})),
        ("PUT", format!("quotas/{}", user.project), json!({"quota": {"port": -1, "network": 9000}})),
        ("POST", "explain".into(), json!({"explain": {
            "source_ip": "10.0.0.2", "destination_ip": "192.0.2.1", "protocol": "tcp", "port": 22, "source_port": 4
        }})),
        ("PUT", "security-groups/import".into(), json!({"security_groups": [{"name": "web", "rules": [wanted]}]})),
    ]
    .into_iter()
    .map(|(method, path, body)| (method, path, body.to_string()))
    .collect()
}

/// What happens to the bytes of a body; places are parts of its length.
#[derive(Clone, Debug)]
enum Damage {
    CutAt(f64),
    Remove(f64, usize),
    Flip(f64, u8),
    Insert(f64, Vec<u8>),
    /// A value becomes another text: a number that is too large, a bracket too many, a depth without end.
    Value(f64, String),
    /// A key is there twice, with another value.
    Twice(f64, String),
    /// Two values change places.
    Swap(f64, f64),
}

fn damage() -> impl Strategy<Value = Damage> {
    let place = || 0.0..1.0_f64;
    let texts = prop_oneof![
        Just("null".to_owned()),
        Just("true".to_owned()),
        Just("1e400".to_owned()),
        Just("-1e400".to_owned()),
        Just("99999999999999999999999999999999999999999".to_owned()),
        Just("18446744073709551616".to_owned()),
        Just("-9223372036854775809".to_owned()),
        Just("1.5".to_owned()),
        Just("-0".to_owned()),
        Just("007".to_owned()),
        Just("NaN".to_owned()),
        Just("\"\\ud800\"".to_owned()),
        Just("\"\\u0000\"".to_owned()),
        Just("{}".to_owned()),
        Just("[[]]".to_owned()),
        Just("[".to_owned()),
        (1_usize..3000).prop_map(|depth| "[".repeat(depth) + &"]".repeat(depth)),
        (1_usize..3000).prop_map(|depth| "{\"a\":".repeat(depth) + "1" + &"}".repeat(depth)),
        (1_usize..9000).prop_map(|length| format!("\"{}\"", "x".repeat(length))),
        (1_usize..9000).prop_map(|length| "9".repeat(length)),
    ];
    let bytes = prop_oneof![
        prop::collection::vec(any::<u8>(), 1..5),
        Just(vec![0xff, 0xfe]),
        Just(vec![0xed, 0xa0, 0x80]),
        Just(vec![0xc0, 0x80]),
        Just(vec![0]),
    ];
    prop_oneof![
        place().prop_map(Damage::CutAt),
        (place(), 1_usize..9).prop_map(|(place, length)| Damage::Remove(place, length)),
        (place(), any::<u8>()).prop_map(|(place, mask)| Damage::Flip(place, mask)),
        (place(), bytes).prop_map(|(place, bytes)| Damage::Insert(place, bytes)),
        (place(), texts.clone()).prop_map(|(place, text)| Damage::Value(place, text)),
        (place(), texts).prop_map(|(place, text)| Damage::Twice(place, text)),
        (place(), place()).prop_map(|(one, other)| Damage::Swap(one, other)),
    ]
}

/// Where each value of a body is that follows a key.
fn values(body: &[u8]) -> Vec<std::ops::Range<usize>> {
    let mut found = Vec::new();
    for colon in (1..body.len()).filter(|at| body[*at] == b':' && body[at - 1] == b'"') {
        let mut value = serde_json::Deserializer::from_slice(&body[colon + 1..]).into_iter::<Value>();
        if let Some(Ok(_)) = value.next() {
            found.push(colon + 1..colon + 1 + value.byte_offset());
        }
    }
    found
}

impl Damage {
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss)]
    fn of(place: f64, length: usize) -> usize {
        (place * length as f64) as usize
    }

    fn done(&self, mut body: Vec<u8>) -> Vec<u8> {
        let values = values(&body);
        let length = body.len();
        let value = |place: f64| values.get(Self::of(place, values.len())).cloned();
        match self {
            Damage::CutAt(place) => body.truncate(Self::of(*place, length)),
            Damage::Remove(place, count) => {
                let at = Self::of(*place, length);
                body.drain(at..(at + count).min(length));
            }
            Damage::Flip(place, mask) => {
                if let Some(byte) = body.get_mut(Self::of(*place, length)) {
                    *byte ^= mask;
                }
            }
            Damage::Insert(place, bytes) => {
                let at = Self::of(*place, length);
                body.splice(at..at, bytes.iter().copied());
            }
            Damage::Value(place, text) => {
                if let Some(range) = value(*place) {
                    body.splice(range, text.bytes());
                }
            }
            Damage::Twice(place, text) => {
                if let Some(range) = value(*place) {
                    let key = body[..range.start].iter().rposition(|byte| b",{".contains(byte)).unwrap_or(0);
                    let mut again = vec![b','];
                    again.extend_from_slice(&body[key + 1..range.start]);
                    again.extend_from_slice(text.as_bytes());
                    body.splice(range.end..range.end, again);
                }
            }
            Damage::Swap(one, other) => {
                if let (Some(one), Some(other)) = (value(*one), value(*other)) {
                    let (first, second) = if one.start < other.start { (one, other) } else { (other, one) };
                    if first.end <= second.start {
                        let (a, b) = (body[first.clone()].to_vec(), body[second.clone()].to_vec());
                        body.splice(second, a);
                        body.splice(first, b);
                    }
                }
            }
        }
        body
    }
}

#[test]
fn a_damaged_body_is_answered() {
    // Templates are everybody's, so this is on a server of its own.
    let api = Api::start();
    let user = api.admin();
    let unlimited: Map<String, Value> =
        ["network", "subnet", "port", "router", "floatingip", "security_group"]
            .into_iter()
            .chain(["security_group_rule", "rbac_policy"])
            .map(|name| (name.to_owned(), json!(-1)))
            .collect();
    let reply = user.put(&format!("quotas/{}", user.project), json!({ "quota": unlimited }));
    assert_eq!(reply.status, 200, "{}", reply.text);
    let real = real(&user);
    for (method, path, body) in &real {
        let reply = user.send(method, &format!("{path}?dry_run=true"), body.clone());
        let is_twice = reply.kind() == "DuplicateSecurityGroupRuleInPost";
        assert!(reply.status.is_success() || is_twice, "{method} {path} {body}: {}", reply.text);
    }
    let cases = (prop::sample::select(real), prop::collection::vec(damage(), 1..3), any::<bool>());
    let mut runner = TestRunner::new(Config { cases: 4000, failure_persistence: None, ..Config::default() });
    let (refused, done) = (Cell::new(0), Cell::new(0));
    let outcome = runner.run(&cases, |((method, path, body), damages, dry)| {
        let body = damages.iter().fold(body.into_bytes(), |body, damage| damage.done(body));
        let path = if dry { format!("{path}?dry_run=true") } else { path };
        let reply = user.send(method, &path, body.clone());
        let text = String::from_utf8_lossy(&body);
        let context = || format!("{method} {path} {text}: {} {}", reply.status, reply.text);
        if reply.status.is_success() {
            done.set(done.get() + 1);
        } else {
            refused.set(refused.get() + 1);
            prop_assert!(reply.status.is_client_error(), "{}", context());
            prop_assert!(!reply.kind().is_empty() && !reply.message().is_empty(), "{}", context());
        }
        Ok(())
    });
    outcome.unwrap_or_else(|error| panic!("{error}"));
    // Both were seen, so it was neither all nonsense nor all sound.
    assert!(refused.get() > 500 && done.get() > 100, "{} {}", refused.get(), done.get());
    api.assert_no_drift();
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
