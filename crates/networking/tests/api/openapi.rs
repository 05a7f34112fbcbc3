use serde_json::{Value, json};

use crate::client::{id, shared};

/// Where a value is not of the type that its schema says.
fn mistakes(schema: &Value, value: &Value, place: &str, found: &mut Vec<String>) {
    let is = |kind: &str| match kind {
        "string" => value.is_string(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "boolean" => value.is_boolean(),
        "null" => value.is_null(),
        "array" => value.is_array(),
        _ => value.is_object(),
    };
    let fits = match &schema["type"] {
        Value::String(kind) => is(kind),
        Value::Array(kinds) => kinds.iter().any(|kind| is(kind.as_str().unwrap())),
        _ => true,
    };
    if !fits {
        found.push(format!("{place} is {value}, and should be {schema}"));
    }
    if let Some(values) = schema["enum"].as_array()
        && !values.contains(value)
    {
        found.push(format!("{place} is {value}, and should be one of {values:?}"));
    }
    for (key, value) in value.as_object().into_iter().flatten() {
        match schema["properties"].get(key) {
            Some(schema) => mistakes(schema, value, &format!("{place}.{key}"), found),
            None if schema["properties"].is_object() => {
                found.push(format!("{place} has {key}, which is not described"));
            }
            None => {}
        }
    }
}

#[test]
fn objects_are_as_the_document_says() {
    let api = shared();
    let (admin, user) = (api.admin(), api.user("member"));
    // It needs no token.
    let document = api.user_of("", "nothing").get("openapi.json");
    assert_eq!(document["openapi"], "3.1.0");
    let network = user.network();
    user.subnet(&network, "10.0.0.0/24");
    user.subnet(&network, "fd00::/64");
    let group = user.group("g");
    user.rule(json!({"security_group_id": group, "direction": "ingress", "remote_ip_prefix": "10.0.0.0/8"}));
    user.port(json!({"network_id": network}));
    user.make("address-groups", "address_group", json!({"addresses": ["10.0.0.0/8"]}));
    user.make(
        "rbac-policies",
        "rbac_policy",
        json!({"object_type": "network", "object_id": network, "action": "access_as_shared",
            "target_tenant": user.project}),
    );
    user.make("routers", "router", json!({}));
    let mut found = Vec::new();
    let paths = document["paths"].as_object().unwrap();
    let mut seen = 0;
    for (path, item) in paths {
        let collection = path.trim_start_matches("/v2.0/");
        let listed = &item["get"]["responses"]["200"]["content"]["application/json"]["schema"]["properties"];
        let Some((plural, schema)) = listed.as_object().and_then(|listed| listed.iter().next()) else {
            continue;
        };
        let Some(name) = schema["items"]["$ref"].as_str() else { continue };
        let schema = document.pointer(&name[1..]).unwrap();
        for user in [&admin, &user] {
            if collection == "quotas" && user.project != admin.project {
                continue;
            }
            for object in user.get(collection)[plural].as_array().unwrap() {
                mistakes(schema, object, collection, &mut found);
                seen += 1;
            }
        }
    }
    found.sort();
    found.dedup();
    assert!(found.is_empty(), "{}", found.join("\n"));
    assert!(seen > 20, "{seen}");
    let question = json!({"port_id": id(&user.get("ports")["ports"][0]), "direction": "ingress", "remote_ip": "10.0.0.1",
        "protocol": "tcp", "port": 1});
    let answer = user.post("explain", question).body;
    let schema = &document["paths"]["/v2.0/explain"]["post"]["responses"]["200"]["content"]["application/json"]
        ["schema"];
    mistakes(schema, &answer, "explain", &mut found);
    assert!(found.is_empty(), "{}", found.join("\n"));
}
