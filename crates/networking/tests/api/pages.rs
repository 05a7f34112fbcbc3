//! Lists in pages, and the links from one to the next.

use serde_json::{Value, json};

use crate::client::{id, shared};

/// What a page shows, and where its links go.
fn page(body: &Value) -> (Vec<&str>, Option<&str>, Option<&str>) {
    let link = |rel: &str| {
        let links = body["networks_links"].as_array().unwrap();
        let link = links.iter().find(|link| link["rel"] == rel)?;
        Some(link["href"].as_str().unwrap().split_once("/v2.0/").unwrap().1)
    };
    let names = body["networks"].as_array().unwrap().iter().map(|network| network["name"].as_str().unwrap());
    (names.collect(), link("next"), link("previous"))
}

#[test]
fn clients_walk_to_the_end_and_back() {
    let blue = shared().user("member");
    for name in ["a", "b", "c", "d"] {
        blue.make("networks", "network", json!({ "name": name }));
    }
    let mut body = blue.get("networks?limit=2&sort_key=name&sort_dir=asc");
    for expected in [["a", "b"], ["c", "d"]] {
        let (names, next, previous) = page(&body);
        assert_eq!((names.as_slice(), previous.is_some()), (expected.as_slice(), true));
        body = blue.get(next.unwrap());
    }
    for expected in [&[][..], &["c", "d"], &["a", "b"]] {
        let (names, next, previous) = page(&body);
        assert_eq!((names.as_slice(), next.is_some()), (expected, !expected.is_empty()));
        body = blue.get(previous.unwrap());
    }
    let (names, next, previous) = page(&body);
    assert_eq!((names.len(), previous), (0, None), "nothing comes before the first");
    assert_eq!(page(&blue.get(next.unwrap())).0, ["a", "b"]);

    let body = blue.get("networks?limit=9");
    let (names, next, previous) = page(&body);
    assert_eq!((names.len(), next, previous.is_some()), (4, None, true));
    assert!(blue.get("networks").get("networks_links").is_none());
}

#[test]
fn pages_by_id_are_all_there_is_once() {
    let api = shared();
    let (blue, green) = (api.user("member"), api.user("member"));
    let mut all: Vec<String> = (0..7).map(|_| blue.network()).collect();
    let given = green.network();
    let policy = json!({
        "object_type": "network", "object_id": given, "action": "access_as_shared", "target_tenant": blue.project
    });
    green.make("rbac-policies", "rbac_policy", policy);
    all.push(given);
    all.sort();
    let mut found = Vec::new();
    let mut path = "networks?limit=3&shared=false&shared=true&fields=id".to_owned();
    while found.len() < all.len() {
        let body = blue.get(&path);
        found.extend(body["networks"].as_array().unwrap().iter().map(id));
        path = format!("networks?limit=3&fields=id&marker={}", found.last().unwrap());
    }
    assert_eq!(found, all);
    let twice = blue.get(&format!("networks?id={0}&id={0}", all[0]));
    assert_eq!(twice["networks"].as_array().unwrap().len(), 1);
}

#[test]
fn what_others_have_is_not_in_the_way() {
    let api = shared();
    let (admin, blue) = (api.admin(), api.user("member"));
    let many: Vec<_> = (0..80).map(|_| json!({"name": "many"})).collect();
    assert_eq!(admin.post("networks", json!({ "networks": many })).status, 201);
    let own = id(&blue.make("networks", "network", json!({"name": "many"})));
    let subnet = blue.subnet(&own, "10.0.0.0/24");
    let found = blue.get("networks?name=many");
    assert_eq!(found["networks"].as_array().unwrap().iter().map(id).collect::<Vec<_>>(), [own.as_str()]);
    assert_eq!(admin.get("networks?name=many")["networks"].as_array().unwrap().len(), 81);

    let port = blue.port(json!({"network_id": own}));
    let address = port["fixed_ips"][0]["ip_address"].as_str().unwrap();
    let group = port["security_groups"][0].as_str().unwrap();
    for (user, query) in [
        (&blue, "device_id=".to_owned()),
        (&admin, format!("project_id={}", blue.project)),
        (&admin, format!("security_groups={group}")),
        (&admin, format!("fixed_ips=subnet_id={subnet}")),
        (&admin, format!("fixed_ips=subnet_id={subnet}&fixed_ips=ip_address={address}")),
        (&admin, format!("fixed_ips=ip_address={address}&project_id={}", blue.project)),
    ] {
        let found = user.get(&format!("ports?{query}"));
        let found: Vec<String> = found["ports"].as_array().unwrap().iter().map(id).collect();
        assert_eq!(found, [id(&port)], "{query}");
    }
}

#[test]
fn the_order_tells_nothing_that_is_not_shown() {
    let api = shared();
    let (admin, blue) = (api.admin(), api.user("member"));
    let network = blue.network();
    let mut ports: Vec<String> = Vec::new();
    for host in ["c", "a", "d", "b"] {
        let port = id(&blue.port(json!({"network_id": network})));
        let bound = json!({"port": {"binding:host_id": host}});
        assert_eq!(admin.put(&format!("ports/{port}"), bound).status, 200);
        ports.push(port);
    }
    let sorted = |by: &crate::client::User| -> Vec<String> {
        let query = format!("ports?network_id={network}&sort_key=binding:host_id&sort_dir=asc");
        by.get(&query)["ports"].as_array().unwrap().iter().map(id).collect()
    };
    let by_host = [&ports[1], &ports[3], &ports[0], &ports[2]].map(Clone::clone);
    assert_eq!(sorted(&admin), by_host);
    ports.sort();
    assert_eq!(sorted(&blue), ports);
}
