//! What clients see when things break.

use std::sync::Mutex;
use std::time::Duration;

use portcullis_testkit::{Http, eventually};
use serde_json::{Value, json};

use crate::cloud::Cloud;

/// Makes groups by a connection until it breaks; notes the ids that were acknowledged.
fn make_groups(address: &str, token: &str, made: &Mutex<Vec<String>>) {
    let headers = [("X-Auth-Token", token), ("Content-Type", "application/json")];
    let body = json!({"security_group": {"name": "g"}}).to_string();
    let Ok(mut connection) = Http::connect(address) else { return };
    while let Ok(answer) = connection.ask("POST", "/v2.0/security-groups", &headers, &body) {
        match answer.status {
            201 => {
                let id = answer.json()["security_group"]["id"].as_str().unwrap().to_owned();
                made.lock().unwrap().push(id);
            }
            503 => assert_eq!(answer.header("retry-after"), Some("1")),
            409 => break,
            other => panic!("{other}: {}", String::from_utf8_lossy(&answer.body)),
        }
    }
}

#[test]
fn who_is_killed_loses_nothing_that_was_acknowledged() {
    let mut cloud = Cloud::start(&[("root", "admin", "admin")]);
    let token = cloud.token("root", "admin");
    let address = cloud.networking.to_string();
    let unlimited = json!({"quota": {"security_group": -1, "security_group_rule": -1}}).to_string();
    let me = cloud.openstack("root", "admin", "project show admin -f value -c id");
    let mut connection = Http::connect(&address).unwrap();
    let headers = [("X-Auth-Token", token.as_str())];
    assert_eq!(
        connection.ask("PUT", &format!("/v2.0/quotas/{me}"), &headers, &unlimited).unwrap().status,
        200
    );

    let made = Mutex::new(Vec::new());
    for _ in 0..3 {
        let before = made.lock().unwrap().len();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| make_groups(&address, &token, &made));
            }
            eventually("some are made", || made.lock().unwrap().len() > before + 20);
            // In the middle of the next ones.
            cloud.kill();
        });
        cloud.restart();
        // The same token is good: it outlives who gave it.
        let answer =
            Http::connect(&address).unwrap().ask("GET", "/v2.0/security-groups", &headers, "").unwrap();
        let groups = answer.json()["security_groups"].as_array().unwrap().clone();
        let made = made.lock().unwrap();
        for id in made.iter() {
            let group =
                groups.iter().find(|group| group["id"] == **id).expect("what was acknowledged is there");
            assert_eq!(group["security_group_rules"].as_array().unwrap().len(), 2, "and it is whole");
        }
        assert!(groups.iter().all(|group| group["security_group_rules"] != Value::Array(Vec::new())));
        assert!(!cloud.log().contains("put right"), "nothing was half written: {}", cloud.log());
    }
}

#[test]
fn without_its_database_it_says_so_and_shows_what_it_knows() {
    let mut cloud = Cloud::start(&[("root", "admin", "admin")]);
    let token = cloud.token("root", "admin");
    let headers = [("X-Auth-Token", token.as_str()), ("Content-Type", "application/json")];
    let mut connection = Http::connect(&cloud.networking.to_string()).unwrap();
    let body = json!({"network": {"name": "n"}}).to_string();
    assert_eq!(connection.ask("POST", "/v2.0/networks", &headers, &body).unwrap().status, 201);
    for process in cloud.ovn.processes() {
        if process.name() == "ovsdb-server-nb" {
            process.stop(Duration::from_secs(30));
        }
    }
    let refused = connection.ask("POST", "/v2.0/networks", &headers, &body).unwrap();
    assert_eq!((refused.status, refused.header("retry-after")), (503, Some("1")), "{refused:?}");
    assert_eq!(refused.json()["NeutronError"]["type"], "ServiceUnavailable");
    let shown = connection.ask("GET", "/v2.0/networks", &headers, "").unwrap().json();
    assert_eq!(shown["networks"].as_array().unwrap().len(), 1);
}
