//! Several servers on one database, which know nothing of each other, asked for the same at the same time.

use std::net::SocketAddr;
use std::sync::Barrier;

use portcullis_testkit::{Answer, Http, eventually};
use serde_json::{Value, json};

use crate::cloud::{Another, Cloud};

struct Two {
    cloud: Cloud,
    other: Another,
    token: String,
}

impl Two {
    fn start() -> Self {
        let cloud = Cloud::start(&[("root", "admin", "admin")]);
        let token = cloud.without_limits("root", "admin");
        let other = cloud.another("");
        Two { cloud, other, token }
    }

    fn servers(&self) -> [SocketAddr; 2] {
        [self.cloud.networking, self.other.networking]
    }

    fn ask(&self, server: SocketAddr, method: &str, path: &str, body: &Value) -> Answer {
        let headers = [("X-Auth-Token", self.token.as_str()), ("Content-Type", "application/json")];
        let body = if body.is_null() { String::new() } else { body.to_string() };
        Http::connect(&server.to_string()).unwrap().ask(method, path, &headers, &body).unwrap()
    }

    fn make(&self, path: &str, body: &Value) -> Value {
        let made = self.ask(self.cloud.networking, "POST", path, body);
        assert_eq!(made.status, 201, "{}", String::from_utf8_lossy(&made.body));
        made.json().as_object().unwrap().values().next().unwrap().clone()
    }

    /// What all of `askers` are answered who ask each server for the same, at the same moment.
    fn race(&self, askers: usize, path: &str, body: &Value) -> Vec<Answer> {
        let start = Barrier::new(2 * askers);
        std::thread::scope(|scope| {
            let asked = self.servers().into_iter().cycle().take(2 * askers).map(|server| {
                let start = &start;
                scope.spawn(move || {
                    start.wait();
                    self.ask(server, "POST", path, body)
                })
            });
            let asked: Vec<_> = asked.collect();
            asked.into_iter().map(|asked| asked.join().unwrap()).collect()
        })
    }
}

/// How many were made; all others were refused for this reason.
#[track_caller]
fn made(answers: &[Answer], refusal: &str) -> usize {
    let (made, refused): (Vec<_>, Vec<_>) = answers.iter().partition(|answer| answer.status == 201);
    for answer in refused {
        let kind = &answer.json()["NeutronError"]["type"];
        assert_eq!(
            (answer.status, kind),
            (409, &refusal.into()),
            "{}",
            String::from_utf8_lossy(&answer.body)
        );
    }
    made.len()
}

#[test]
fn a_hardware_address_is_given_once() {
    let two = Two::start();
    let network = two.make("/v2.0/networks", &json!({"network": {}}));
    for round in 0..20 {
        let mac = format!("02:00:00:00:00:{round:02x}");
        let port = json!({"port": {"network_id": network["id"], "mac_address": mac}});
        assert_eq!(made(&two.race(2, "/v2.0/ports", &port), "MacAddressInUse"), 1, "{mac}");
    }
    for server in two.servers() {
        // Each hears from the database of what the other one made.
        eventually("it knows all", || {
            let ports = two.ask(server, "GET", "/v2.0/ports", &Value::Null).json();
            ports["ports"].as_array().unwrap().len() == 20
        });
    }
}

#[test]
fn a_quota_holds_on_all_of_them_together() {
    let two = Two::start();
    for limit in [1, 5, 10] {
        let project = format!("{limit:032x}");
        let quota = json!({"quota": {"network": limit}});
        let set = two.ask(two.cloud.networking, "PUT", &format!("/v2.0/quotas/{project}"), &quota);
        assert_eq!(set.status, 200);
        // The other server hears of it from the database.
        eventually("both know the limit", || {
            two.servers().into_iter().all(|server| {
                let known = two.ask(server, "GET", &format!("/v2.0/quotas/{project}"), &Value::Null);
                known.json()["quota"]["network"] == limit
            })
        });
        let network = json!({"network": {"project_id": project}});
        assert_eq!(made(&two.race(8, "/v2.0/networks", &network), "OverQuota"), limit);
        let path = format!("/v2.0/networks?project_id={project}");
        eventually("one of them knows all", || {
            let networks = two.ask(two.cloud.networking, "GET", &path, &Value::Null).json();
            networks["networks"].as_array().unwrap().len() == limit
        });
    }
}

#[test]
fn a_project_has_one_default_group() {
    let two = Two::start();
    for number in 0..20 {
        let project = format!("{number:032x}");
        let network = json!({"network": {"project_id": project}});
        assert_eq!(made(&two.race(2, "/v2.0/networks", &network), ""), 4);
        let path = format!("/v2.0/security-groups?project_id={project}");
        let groups = two.ask(two.cloud.networking, "GET", &path, &Value::Null).json();
        let [group] = &groups["security_groups"].as_array().unwrap()[..] else { panic!("{groups:#}") };
        assert_eq!(
            (&group["name"], group["security_group_rules"].as_array().unwrap().len()),
            (&"default".into(), 4)
        );
    }
}
