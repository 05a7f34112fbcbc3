//! What clients see when things break.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use portcullis_testkit::Http;
use serde_json::{Value, json};

use crate::cloud::Cloud;

/// Makes groups by a connection until it breaks or is told to stop; gives the ids that were acknowledged.
fn make_groups(address: &str, token: &str, stop: &AtomicBool) -> Vec<String> {
    let headers = [("X-Auth-Token", token), ("Content-Type", "application/json")];
    let body = json!({"security_group": {"name": "g"}}).to_string();
    let mut made = Vec::new();
    let Ok(mut connection) = Http::connect(address) else { return made };
    while !stop.load(Ordering::Relaxed) {
        let Ok(answer) = connection.ask("POST", "/v2.0/security-groups", &headers, &body) else { break };
        match answer.status {
            201 => made.push(answer.json()["security_group"]["id"].as_str().unwrap().to_owned()),
            503 => assert_eq!(answer.header("retry-after"), Some("1")),
            409 => break,
            other => panic!("{other}: {}", String::from_utf8_lossy(&answer.body)),
        }
    }
    made
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
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let ids = make_groups(&address, &token, &stop);
                    made.lock().unwrap().extend(ids);
                });
            }
            std::thread::sleep(Duration::from_millis(400));
            cloud.kill();
            stop.store(true, Ordering::Relaxed);
        });
        cloud.restart();
        // The same token is good: it outlives who gave it.
        let answer =
            Http::connect(&address).unwrap().ask("GET", "/v2.0/security-groups", &headers, "").unwrap();
        let groups = answer.json()["security_groups"].as_array().unwrap().clone();
        let made = made.lock().unwrap();
        assert!(made.len() > 20, "only {} were made", made.len());
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
            process.stop(Duration::ZERO);
        }
    }
    let refused = connection.ask("POST", "/v2.0/networks", &headers, &body).unwrap();
    assert_eq!((refused.status, refused.header("retry-after")), (503, Some("1")), "{refused:?}");
    assert_eq!(refused.json()["NeutronError"]["type"], "ServiceUnavailable");
    let shown = connection.ask("GET", "/v2.0/networks", &headers, "").unwrap().json();
    assert_eq!(shown["networks"].as_array().unwrap().len(), 1);
}
