//! What clients see when things break.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use portcullis_testkit::rows::rows;
use portcullis_testkit::{Http, Northbound, Wire, eventually};
use serde_json::{Value, json};

use crate::cloud::Cloud;
use crate::filters::{assert_whole, id_of};

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
    let token = cloud.without_limits("root", "admin");
    let address = cloud.networking.to_string();
    let headers = [("X-Auth-Token", token.as_str())];

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

/// What was asked for, by name, and what came of it.
#[derive(Default)]
struct Outcomes {
    /// With the ids that were acknowledged.
    made: BTreeMap<String, String>,
    doubtful: BTreeSet<String>,
}

/// Makes a group, and a port that has it, again and again. Every answer is one that a client can go by.
fn make_pairs(
    (address, token, network): (&str, &str, &str),
    tag: usize,
    stop: &AtomicBool,
    made: &AtomicUsize,
) -> Outcomes {
    let headers = [("X-Auth-Token", token), ("Content-Type", "application/json")];
    let mut connection = Http::connect(address).unwrap();
    let mut outcomes = Outcomes::default();
    for number in 0.. {
        let mut group = None;
        for (path, kind) in [("/v2.0/security-groups", "security_group"), ("/v2.0/ports", "port")] {
            if stop.load(Ordering::SeqCst) {
                return outcomes;
            }
            let name = format!("{kind}-{tag}-{number}");
            let mut body = json!({kind: {"name": name}});
            if kind == "port" {
                let Some(group) = group.take() else { continue };
                body[kind]["network_id"] = json!(network);
                body[kind]["security_groups"] = json!([group]);
            }
            let answer = connection.ask("POST", path, &headers, &body.to_string()).unwrap();
            match answer.status {
                201 => {
                    let id = id_of(&answer.json()[kind]);
                    group = Some(id.clone());
                    outcomes.made.insert(name, id);
                    made.fetch_add(1, Ordering::SeqCst);
                }
                503 => {
                    assert_eq!(answer.header("retry-after"), Some("1"));
                    outcomes.doubtful.insert(name);
                }
                other => panic!("{other}: {}", String::from_utf8_lossy(&answer.body)),
            }
        }
    }
    outcomes
}

/// The objects of a collection, by their names.
fn all(connection: &mut Http, token: &str, path: &str, kind: &str) -> BTreeMap<String, Value> {
    let answer = connection.ask("GET", &format!("/v2.0/{path}"), &[("X-Auth-Token", token)], "").unwrap();
    let listed = answer.json()[kind].as_array().unwrap().clone();
    let count = listed.len();
    let named: BTreeMap<String, Value> =
        listed.into_iter().map(|object| (object["name"].as_str().unwrap().to_owned(), object)).collect();
    assert_eq!(named.len(), count, "nothing was made twice");
    named
}

#[test]
fn a_database_that_comes_and_goes_takes_nothing_along() {
    let mut northbound = Northbound::start();
    let cloud = Cloud::start_on(&[("root", "admin", "admin")], &northbound.remote());
    let token = cloud.without_limits("root", "admin");
    let address = cloud.networking.to_string();
    let mut connection = Http::connect(&address).unwrap();
    let headers = [("X-Auth-Token", token.as_str())];
    let network =
        connection.ask("POST", "/v2.0/networks", &headers, r#"{"network": {"name": "n"}}"#).unwrap();
    let network = id_of(&network.json()["network"]);
    let subnet =
        json!({"subnet": {"network_id": network, "cidr": "10.0.0.0/16", "ip_version": 4}}).to_string();
    assert_eq!(connection.ask("POST", "/v2.0/subnets", &headers, &subnet).unwrap().status, 201);

    let (stop, made) = (AtomicBool::new(false), AtomicUsize::new(0));
    let outcomes: Vec<Outcomes> = std::thread::scope(|scope| {
        let askers: Vec<_> = (0..4)
            .map(|tag| {
                let (to, stop, made) = ((&*address, &*token, &*network), &stop, &made);
                scope.spawn(move || make_pairs(to, tag, stop, made))
            })
            .collect();
        let disturbed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let more = || {
                let before = made.load(Ordering::SeqCst);
                eventually("more are made", || made.load(Ordering::SeqCst) >= before + 10);
            };
            // Longer than anybody waits, the last time.
            for away in [0, 50, 200, 1000, 17_000] {
                more();
                northbound.kill();
                std::thread::sleep(Duration::from_millis(away));
                northbound.restart();
            }
            more();
        }));
        // Otherwise whoever asks would do so without end.
        stop.store(true, Ordering::SeqCst);
        if let Err(panic) = disturbed {
            std::panic::resume_unwind(panic);
        }
        askers.into_iter().map(|asker| asker.join().unwrap()).collect()
    });

    let groups = all(&mut connection, &token, "security-groups", "security_groups");
    let ports = all(&mut connection, &token, "ports", "ports");
    let (mut made, mut doubtful) = (0, 0);
    for outcome in &outcomes {
        made += outcome.made.len();
        doubtful += outcome.doubtful.len();
        for (name, id) in &outcome.made {
            let object =
                groups.get(name).or_else(|| ports.get(name)).expect("what was acknowledged is there");
            assert_eq!(object["id"], **id);
        }
    }
    assert!(made >= 60 && doubtful > 0, "{made} made, {doubtful} in doubt");
    // Whoever asked for them, and whatever was answered.
    for (name, group) in &groups {
        let rules = if name == "default" { 4 } else { 2 };
        assert_eq!(group["security_group_rules"].as_array().unwrap().len(), rules, "{group}");
    }
    for port in ports.values() {
        let whole = ["fixed_ips", "security_groups"].map(|part| port[part].as_array().unwrap().len());
        assert_eq!(whole, [1, 1], "{port}");
    }
    let known =
        |name: &String| outcomes.iter().any(|all| all.made.contains_key(name) || all.doubtful.contains(name));
    assert!(groups.keys().chain(ports.keys()).all(|name| name == "default" || known(name)));
    assert_eq!(assert_whole(&rows(&northbound.remote())), ports.len());
    assert!(!cloud.log().contains("put right"), "nothing was half written: {}", cloud.log());
}

/// The database has the change and its answer is lost, and then it is away for longer than anybody waits.
#[test]
fn what_is_in_doubt_is_told_and_is_whole() {
    let mut wire = None;
    let cloud = Cloud::start_with(&[("root", "admin", "admin")], |drop_ins, _| {
        let to = wire.insert(Wire::to(&drop_ins.with_file_name("nb.sock")));
        // Nothing about durability, which is the default then.
        let config = drop_ins.with_file_name("config.yaml");
        let words = fs::read_to_string(&config).unwrap().replace(", durable: false", "");
        fs::write(config, words).unwrap();
        let northbound = format!("networking: {{northbound: {{remotes: ['{}']}}}}\n", to.remote());
        fs::write(drop_ins.join("northbound.yaml"), northbound).unwrap();
    });
    let wire = wire.unwrap();
    let token = cloud.token("root", "admin");
    let headers = [("X-Auth-Token", token.as_str()), ("Content-Type", "application/json")];
    let mut connection = Http::connect(&cloud.networking.to_string()).unwrap();
    let mut make = |name: &str| {
        let body = json!({"security_group": {"name": name}}).to_string();
        connection.ask("POST", "/v2.0/security-groups", &headers, &body).unwrap()
    };
    assert_eq!(make("before").status, 201);
    wire.cut_at_next_transaction();
    let answer = make("doubtful");
    assert_eq!((answer.status, answer.header("retry-after")), (503, Some("1")), "{answer:?}");
    let error = &answer.json()["NeutronError"];
    assert_eq!(error["type"], "ServiceUnavailable");
    assert!(error["message"].as_str().unwrap().contains("look whether it was"), "{error}");
    assert!(wire.is_cut());
    wire.mend();
    eventually("changes are made again", || make("after").status == 201);
    let answer = connection.ask("GET", "/v2.0/security-groups?name=doubtful", &headers, "").unwrap().json();
    let [group] = &answer["security_groups"].as_array().unwrap()[..] else { panic!("{answer}") };
    assert_eq!(group["security_group_rules"].as_array().unwrap().len(), 2, "it was made, once, and is whole");

    for message in wire.heard().iter().filter(|message| message["method"] == "transact") {
        let last = message["params"].as_array().unwrap().last().unwrap();
        assert_eq!(last, &json!({"op": "commit", "durable": true}));
    }
}

/// Makes ports, groups and rules, and changes them, until told to stop; whoever answers, or not.
fn restless(address: &str, token: &str, network: &str, stop: &AtomicBool, done: &AtomicUsize) {
    let headers = [("X-Auth-Token", token), ("Content-Type", "application/json")];
    let mut connection = None;
    let mut ask = |method: &str, path: &str, body: Value| -> Value {
        let mut fresh = connection.take().or_else(|| Http::connect(address).ok());
        let answer = fresh
            .as_mut()
            .and_then(|fresh| fresh.ask(method, &format!("/v2.0/{path}"), &headers, &body.to_string()).ok());
        let Some(answer) = answer else { return Value::Null };
        assert!(matches!(answer.status, 200..=299 | 404 | 409 | 503), "{method} {path}: {answer:?}");
        done.fetch_add(usize::from(answer.status < 300), Ordering::SeqCst);
        connection = fresh;
        answer.json()
    };
    while !stop.load(Ordering::SeqCst) {
        let group =
            ask("POST", "security-groups", json!({"security_group": {"name": "g"}}))["security_group"].take();
        let rule = json!({"security_group_id": group["id"], "direction": "ingress", "protocol": "tcp",
                          "port_range_min": 22, "port_range_max": 22});
        if group.is_null() {
            continue;
        }
        ask("POST", "security-group-rules", json!({"security_group_rule": rule}));
        let wish = json!({"port": {"network_id": network, "security_groups": [group["id"]]}});
        let port = ask("POST", "ports", wish)["port"].take();
        let rules = json!({"security_group_rules": [{"direction": "ingress", "protocol": "icmp"}]});
        ask("PUT", &format!("security-groups/{}/rules", id_of(&group)), rules);
        if port.is_null() {
            continue;
        }
        let path = format!("ports/{}", id_of(&port));
        for change in [
            json!({"security_groups": []}),
            json!({"port_security_enabled": false}),
            json!({"port_security_enabled": true, "security_groups": [group["id"]]}),
        ] {
            ask("PUT", &path, json!({"port": change}));
        }
    }
}

#[test]
fn no_moment_opens_a_filter() {
    let mut cloud = Cloud::start(&[("root", "admin", "admin")]);
    let token = cloud.without_limits("root", "admin");
    let (address, remote) = (cloud.networking.to_string(), cloud.ovn.northbound());
    let mut connection = Http::connect(&address).unwrap();
    let headers = [("X-Auth-Token", token.as_str())];
    let networks = [0, 1].map(|_| {
        let made = connection.ask("POST", "/v2.0/networks", &headers, r#"{"network": {}}"#).unwrap();
        id_of(&made.json()["network"])
    });
    let stop = AtomicBool::new(false);
    let [done, looks, seen] = [(); 3].map(|()| AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for number in 0..4 {
            let (address, token, network) = (&address, &token, &networks[number % 2]);
            let (stop, done) = (&stop, &done);
            scope.spawn(move || restless(address, token, network, stop, done));
        }
        // All the time, whatever happens to the server.
        scope.spawn(|| {
            while !stop.load(Ordering::SeqCst) {
                seen.store(assert_whole(&rows(&remote)), Ordering::SeqCst);
                looks.fetch_add(1, Ordering::SeqCst);
            }
        });
        let stopped = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let mut dice = portcullis_testkit::Dice::new(0x5eed);
            for _ in 0..8 {
                let before = done.load(Ordering::SeqCst);
                eventually("some is done", || done.load(Ordering::SeqCst) > before + 100);
                std::thread::sleep(Duration::from_millis(dice.roll(100) as u64));
                cloud.kill();
                assert_whole(&rows(&remote));
                cloud.restart();
                assert!(!cloud.log().contains("put right"), "nothing was half written: {}", cloud.log());
            }
            eventually("there was enough to see", || {
                seen.load(Ordering::SeqCst) > 80 && looks.load(Ordering::SeqCst) > 20
            });
        }));
        stop.store(true, Ordering::SeqCst);
        if let Err(panic) = stopped {
            std::panic::resume_unwind(panic);
        }
    });
    assert_whole(&rows(&remote));
}

/// What packets see of a server that is killed while it changes what they meet.
#[test]
fn filters_hold_while_the_server_is_away() {
    let ovn = portcullis_testkit::ovn();
    let mut cloud = Cloud::start_on(&[("root", "admin", "admin")], &ovn.northbound());
    let token = cloud.without_limits("root", "admin");
    let address = cloud.networking.to_string();
    let mut connection = Http::connect(&address).unwrap();
    let headers = [("X-Auth-Token", token.as_str())];
    let mut make = |path: &str, kind: &str, wish: Value| {
        let body = json!({ kind: wish }).to_string();
        let made = connection.ask("POST", &format!("/v2.0/{path}"), &headers, &body).unwrap();
        assert_eq!(made.status, 201, "{made:?}");
        made.json()[kind].clone()
    };
    let network = make("networks", "network", json!({}))["id"].clone();
    make("subnets", "subnet", json!({"network_id": network, "cidr": "10.0.0.0/24", "ip_version": 4}));
    let group = make("security-groups", "security_group", json!({"name": "ssh"}))["id"].clone();
    let rule = json!({"security_group_id": group, "direction": "ingress", "protocol": "tcp",
                      "port_range_min": 22, "port_range_max": 22});
    make("security-group-rules", "security_group_rule", rule);
    let mut machine = |groups: &Value| {
        let port = make("ports", "port", json!({"network_id": network, "security_groups": groups}));
        let address = port["fixed_ips"][0]["ip_address"].as_str().unwrap().to_owned();
        let mac = port["mac_address"].as_str().unwrap();
        (portcullis_testkit::plug(&ovn, &id_of(&port), mac, &[&format!("{address}/24")]), address)
    };
    let (server, at) = machine(&json!([group]));
    let (client, _) = machine(&json!([group]));
    let _listeners = [server.serve(22), server.serve(23)];
    ovn.settle().unwrap();
    let (ssh, telnet) = (portcullis_testkit::Target::Tcp(22), portcullis_testkit::Target::Tcp(23));
    let reaches = |target| portcullis_testkit::can_connect(&client, &at, target);
    eventually("ssh is let through", || reaches(ssh));
    assert!(!reaches(telnet));
    // What is let through may take longer than once is waited for, since all is changed meanwhile.
    let in_the_end = |target| (0..5).any(|_| reaches(target));

    let (stop, done) = (AtomicBool::new(false), AtomicUsize::new(0));
    let network = network.as_str().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| restless(&address, &token, network, &stop, &done));
        for _ in 0..3 {
            let before = done.load(Ordering::SeqCst);
            eventually("some is done", || done.load(Ordering::SeqCst) > before + 10);
            cloud.kill();
            let away = (in_the_end(ssh), reaches(telnet));
            cloud.restart();
            let back = (in_the_end(ssh), reaches(telnet));
            if (away, back) != ((true, false), (true, false)) {
                stop.store(true, Ordering::SeqCst);
                panic!("ssh and telnet, without and with the server: {away:?} {back:?}");
            }
        }
        stop.store(true, Ordering::SeqCst);
    });
}
