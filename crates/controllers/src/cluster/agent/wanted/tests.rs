use super::*;
use futures_util::FutureExt;
use futures_util::future::ready;
use portcullis_core::Listener;
use portcullis_haproxy::{Look, Memory, Tuning, next};
use portcullis_host::interfaces::Selection;
use portcullis_kube_api::cluster::Flavour;
use serde_json::{Value, json};
use std::cell::Cell;
use std::net::SocketAddr;
use std::time::{Duration, SystemTime};

fn settings() -> HaProxyAgentSettings {
    HaProxyAgentSettings {
        flavour: Flavour::Own,
        namespace: None,
        agents: "a".to_owned(),
        pool: "default".to_owned(),
        name: "m".to_owned(),
        sharing: Some(Sharing {
            interface: "eth0".to_owned(),
            priority: 100,
            peers: vec!["192.0.2.3".parse().unwrap(), "2001:db8::3".parse().unwrap()],
            interval: Duration::from_secs(1),
        }),
        selection: Selection::usual(),
        tuning: Tuning::default(),
    }
}

#[allow(clippy::needless_pass_by_value, reason = "samples are easier to read so")]
fn carried(spec: Value, status: Value) -> ToCarry {
    let mut object = json!({"metadata": {"namespace": "a", "name": "lb"}, "spec": spec, "status": status});
    object["spec"]["assignment"] = json!({"loadBalancer": "lb", "generation": 1, "listeners": [{"port": 443, "targetPort": 6443}], "members": []});
    let object: HaProxyLoadBalancer = serde_json::from_value(object).unwrap();
    wanted(&[Arc::new(object)], &mut Kept::default())
}

/// All of it is carried, since nothing is in the way.
fn wanted(objects: &[Arc<HaProxyLoadBalancer>], kept: &mut Kept) -> ToCarry {
    let objects: Vec<_> = objects.iter().map(|object| as_given(Arc::clone(object), kept)).collect();
    let all = super::wanted(&objects, &settings(), kept, &BTreeMap::new());
    all.forms.values().for_each(|form| kept.accept(form));
    all
}

#[test]
fn addresses_are_shared_and_machines_own_are_not() {
    let own = carried(json!({}), json!({}));
    assert_eq!((own.carried.balancers.len(), own.shared.len()), (1, 0));
    let given = carried(json!({"addresses": ["192.0.2.10", "2001:db8::10"]}), json!({}));
    assert_eq!((given.carried.balancers.len(), given.shared.len()), (1, 2));
    let waits = carried(json!({"addressFrom": {"poolRef": {"kind": "P", "name": "p"}}}), json!({}));
    assert_eq!((waits.carried.balancers.len(), waits.refused.len()), (0, 0));
    let claimed = carried(
        json!({"addressFrom": {"poolRef": {"kind": "P", "name": "p"}}}),
        json!({"address": "192.0.2.11", "conditions": [{"type": "Ready", "reason": "NoInstance"}]}),
    );
    assert_eq!(claimed.carried.balancers[0].load_balancer.addresses().len(), 1);
}

#[allow(clippy::needless_pass_by_value, reason = "samples are easier to read so")]
fn with(name: &str, spec: Value, marks: Value, members: Value) -> Arc<HaProxyLoadBalancer> {
    let metadata = json!({"namespace": "a", "name": name, "generation": 2, "annotations": marks});
    let mut object = json!({"metadata": metadata, "spec": spec});
    object["spec"]["assignment"] = json!({"loadBalancer": name, "generation": 1, "listeners": [{"port": 443, "targetPort": 6443}], "members": members});
    Arc::new(serde_json::from_value(object).unwrap())
}

fn object(name: &str, spec: Value) -> Arc<HaProxyLoadBalancer> {
    with(name, spec, json!({}), json!([]))
}

/// What is carried, but for who says so.
fn shape(found: &ToCarry) -> (Vec<Balancer>, Vec<SharedAddress>) {
    (found.carried.balancers.clone(), found.shared.clone())
}

#[test]
fn what_is_refused_goes_on_as_it_was() {
    let good = json!({"addresses": ["192.0.2.10"], "virtualRouterID": 9});
    for (wrong, refused) in [
        (json!({"addresses": ["192.0.2.300"]}), 1),
        (json!({"addresses": ["192.0.2.11"], "balance": "fastest"}), 1),
        (json!({"addresses": ["192.0.2.10"], "virtualRouterID": 77}), 1),
        (json!({"addressFrom": {"poolRef": {"kind": "P", "name": "p"}}}), 0),
    ] {
        let mut kept = Kept::default();
        let other = object("another", json!({"addresses": ["192.0.2.77"]}));
        let all = |spec: &Value| [Arc::clone(&other), object("lb", spec.clone())];
        let fine = wanted(&all(&good), &mut kept);
        let found = wanted(&all(&wrong), &mut kept);
        assert_eq!((shape(&found), found.refused.len()), (shape(&fine), refused), "{wrong}");
        // Who it was is known as long as it is wrong.
        let later = wanted(&all(&wrong), &mut kept);
        assert_eq!(shape(&later), shape(&fine), "{wrong}");
        kept.still(&[], "default", |_| false);
        let without = wanted(&all(&wrong), &mut kept);
        assert_ne!(shape(&without), shape(&fine), "it went, and is another: {wrong}");
    }
}

#[test]
fn members_come_and_go_while_something_is_wrong() {
    let mut kept = Kept::default();
    let member = |duty: &str| json!([{"name": "m", "addresses": ["10.0.0.1"], "duty": duty}]);
    let carried = |spec: Value, members: Value, kept: &mut Kept| {
        let found = wanted(&[with("lb", spec, json!({}), members)], kept);
        let balancer = found.carried.balancers[0].load_balancer.clone();
        (balancer.addresses().to_vec(), balancer.members().to_vec())
    };
    let good = json!({"addresses": ["192.0.2.10"]});
    let wrong = json!({"addresses": ["192.0.2.300"]});
    let first = carried(good.clone(), member("Serve"), &mut kept);
    let leaves = carried(wrong, member("Leave"), &mut kept);
    assert_eq!(leaves.0, first.0);
    assert_eq!(leaves.1, carried(good, member("Leave"), &mut Kept::default()).1);
}

#[test]
fn where_it_listens_is_of_the_families_that_are_asked_for() {
    let at = |families: Value| {
        let mut object = HaProxyLoadBalancer::clone(&object("lb", json!({})));
        object.0.spec.assignment.as_mut().unwrap().ip_families = serde_json::from_value(families).unwrap();
        Arc::new(object)
    };
    let sockets = |families: Value| {
        let found = wanted(&[at(families)], &mut Kept::default());
        let listening = |address: &str| {
            let place = SocketAddr::new(address.parse().unwrap(), 443);
            let look = Look {
                families: Family::ALL.into(),
                taken: [(place, "nginx".to_owned())].into(),
                ..Look::default()
            };
            let next = next(&found.carried, &look, &Memory::default(), SystemTime::UNIX_EPOCH);
            !next.problems.is_empty()
        };
        ["0.0.0.0", "::"].map(listening)
    };
    for (families, expected) in [
        (json!([]), [true, true]),
        (json!(["IPv4"]), [true, false]),
        (json!(["IPv6"]), [false, true]),
        (json!(["IPv6", "IPv4"]), [true, true]),
        (json!(["IPv9"]), [true, true]),
    ] {
        assert_eq!(sockets(families.clone()), expected, "{families}");
    }
    // One more may be in somebody's way.
    let mut kept = Kept::default();
    wanted(&[at(json!(["IPv4"]))], &mut kept);
    let both = [at(json!([]))];
    assert_eq!(super::wanted(&both, &settings(), &kept, &BTreeMap::new()).changes, [key(&both[0])]);
}

#[test]
fn what_no_pool_gave_is_shared_with_nobody() {
    let pool = |name: &str| json!({"addressFrom": {"poolRef": {"kind": "P", "name": name}}});
    let seen = |spec: &Value, generation: i64, address: &str, ready: (i64, &str)| {
        let mut seen = HaProxyLoadBalancer::clone(&object("lb", spec.clone()));
        let ready = json!([{"type": "Ready", "reason": ready.1, "observedGeneration": ready.0}]);
        seen.0.metadata.generation = Some(generation);
        address.clone_into(&mut seen.0.status.address);
        seen.0.status.conditions = serde_json::from_value(ready).unwrap();
        Arc::new(seen)
    };
    let (own, given) = ("192.0.2.1", "192.0.2.9");
    let mut kept = Kept::default();
    for (what, object, address) in [
        ("the machines have their own", seen(&json!({}), 1, own, (1, "Carried")), None),
        ("nobody has looked yet", seen(&pool("p"), 2, own, (1, "Carried")), None),
        ("the pool gives nothing", seen(&pool("p"), 2, own, (2, "WaitingForAddress")), None),
        ("something else changed", seen(&pool("p"), 3, own, (2, "WaitingForAddress")), None),
        ("it gave one", seen(&pool("p"), 3, given, (3, "Starting")), Some(given)),
        ("that is its own, also before", seen(&pool("p"), 4, given, (3, "Carried")), Some(given)),
        ("the wish for it is gone", seen(&pool("p"), 4, given, (4, "WaitingForAddress")), Some(given)),
        ("another pool has given nothing", seen(&pool("q"), 5, given, (4, "Carried")), Some(given)),
        ("who knows whose this is", seen(&pool("q"), 5, own, (4, "Carried")), Some(given)),
        ("it gave another", seen(&pool("q"), 5, "192.0.2.8", (5, "Carried")), Some("192.0.2.8")),
    ] {
        let found = wanted(&[object], &mut kept);
        let shared: Vec<String> = found.shared.iter().map(|one| one.address().to_string()).collect();
        let listening = found.carried.balancers[0].load_balancer.addresses();
        let listening: Vec<String> = listening.iter().map(ToString::to_string).collect();
        let expected: Vec<String> = address.into_iter().map(str::to_owned).collect();
        assert_eq!((&shared, &listening), (&expected, &expected), "{what}");
    }
    let fresh = wanted(&[seen(&pool("p"), 2, own, (2, "WaitingForAddress"))], &mut Kept::default());
    assert_eq!((fresh.carried.balancers.len(), fresh.shared.len()), (0, 0), "it waits");
}

#[test]
fn an_address_comes_to_another_pool_when_the_one_before_has_let_go() {
    let member = json!([{"name": "m", "addresses": ["10.0.0.1"], "duty": "Serve"}]);
    let seen = |pool: &str, generation: i64, members: &Value, instances: Value| {
        let spec = json!({"pool": pool, "addresses": ["192.0.2.10"]});
        let mut seen = HaProxyLoadBalancer::clone(&with("lb", spec, json!({}), members.clone()));
        seen.0.metadata.generation = Some(generation);
        seen.0.status.instances = serde_json::from_value(instances).unwrap();
        Arc::new(seen)
    };
    let says = |name: &str, generation: i64, holds: bool, member: &str| {
        let pool = if ["m", "o"].contains(&name) { "default" } else { "new" };
        json!({"name": name, "pool": pool, "observedGeneration": generation, "holdsAddress": holds,
            "members": [{"name": "m", "status": member}]})
    };
    let new_settings = HaProxyAgentSettings { pool: "new".to_owned(), name: "n".to_owned(), ..settings() };
    let mut old = Kept::default();
    wanted(&[seen("default", 4, &member, json!([]))], &mut old);
    let before = says("m", 4, true, "active");
    let peer = says("o", 4, false, "active");
    let mut fails = says("n", 5, false, "active");
    fails["problem"] = json!("no port");
    // Whether the old machine goes on, and whether the new one shares the address.
    for (what, instances, members, goes_on, shares) in [
        ("nobody of the new pool is there", json!([before, peer]), &member, true, false),
        ("one cannot carry it", json!([before, peer, fails]), &member, true, false),
        ("one reaches no member", json!([before, says("n", 5, false, "adding")]), &member, true, false),
        ("there is none to be reached", json!([before, says("n", 5, false, "")]), &json!([]), false, false),
        ("one sends", json!([before, says("n", 5, false, "active")]), &member, false, false),
        (
            "and something else changed since",
            json!([before, says("n", 5, false, "active")]),
            &member,
            false,
            false,
        ),
        ("the old one let go", json!([peer, says("n", 5, false, "active")]), &member, false, true),
        ("another of its own has it", json!([says("p", 6, true, "active")]), &member, false, true),
        (
            "another of its own has it and is away",
            json!([says("p", 5, true, "active")]),
            &member,
            false,
            true,
        ),
        ("only the old ones are ahead", json!([before, says("o", 5, false, "active")]), &member, true, false),
    ] {
        let object = seen("new", 6, members, instances);
        let is_kept = old.goes_on(&object, &settings());
        let found = super::wanted(&[Arc::clone(&object)], &new_settings, &Kept::default(), &BTreeMap::new());
        assert_eq!((is_kept, !found.shared.is_empty()), (goes_on, shares), "{what}");
        assert_eq!((found.carried.balancers.len(), found.waiting.is_empty()), (1, shares), "{what}");
    }
    // Who goes on does so as it was, with who is a member now, and shares what it shared.
    let other = json!([{"name": "n", "addresses": ["10.0.0.2"], "duty": "Serve"}]);
    let object = seen("nwe", 5, &other, json!([before]));
    let found = super::wanted(&[Arc::clone(&object)], &settings(), &old, &BTreeMap::new());
    assert_eq!(found.carried.balancers[0].load_balancer.members()[0].name(), "n");
    assert_eq!((found.shared.len(), found.refused.len(), found.changes.len()), (1, 0, 0));
    assert_eq!(found.forms[&key(&object)].metadata.generation, Some(4), "it says so");
    // Who shares it already goes on while another one is behind.
    let mut new = Kept::default();
    new.accept(&seen("new", 6, &member, json!([])));
    let late = seen("new", 7, &member, json!([says("p", 6, true, "active")]));
    assert_eq!(super::wanted(&[late], &new_settings, &new, &BTreeMap::new()).shared.len(), 1);
    // One of the same name that was made anew is another.
    let mut again = HaProxyLoadBalancer::clone(&object);
    again.0.metadata.creation_timestamp = serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap();
    assert!(old.goes_on(&object, &settings()) && !old.goes_on(&again, &settings()));
    assert!(!old.goes_on(&object, &new_settings), "it never carried it");
}

#[test]
fn ranges_become_narrower_whatever_is_wrong() {
    let admitting = |spec: Value, marks: Value, ranges: Value| {
        let mut object = HaProxyLoadBalancer::clone(&with("lb", spec, marks, json!([])));
        let assignment = object.0.spec.assignment.as_mut().unwrap();
        assignment.allowed_source_ranges = serde_json::from_value(ranges).unwrap();
        Arc::new(object)
    };
    let good = json!({"addresses": ["192.0.2.10"]});
    let elsewhere = json!({"addresses": ["192.0.2.11"]});
    let is_paused = json!({"cluster.x-k8s.io/paused": ""});
    for (what, spec, marks) in [
        ("something is in its way", elsewhere.clone(), json!({})),
        ("it is refused", json!({"addresses": ["192.0.2.300"]}), json!({})),
        (
            "it waits for an address",
            json!({"addressFrom": {"poolRef": {"kind": "P", "name": "p"}}}),
            json!({}),
        ),
        ("it is paused", elsewhere, is_paused.clone()),
    ] {
        let stays = marks == is_paused;
        let mut kept = Kept::default();
        wanted(&[admitting(good.clone(), json!({}), json!(null))], &mut kept);
        // What is asked for, one after the other; who gets in, and what is said of it.
        for (asked, admits, told) in [
            (json!(["10.0.0.0/8", "2001:db8::/32"]), json!(["10.0.0.0/8", "2001:db8::/32"]), None),
            (json!(["10.1.0.0/16", "192.0.2.0/24"]), json!(["10.1.0.0/16"]), Some(json!(["10.1.0.0/16"]))),
            (json!(["10.1.0.0/33"]), json!(["10.1.0.0/16"]), Some(json!(["10.1.0.0/16"]))),
            (json!(null), json!(["10.1.0.0/16"]), Some(json!(["10.1.0.0/16"]))),
            (json!([]), json!([]), None),
            (json!(["0.0.0.0/0"]), json!([]), Some(json!([]))),
        ] {
            let object = admitting(spec.clone(), marks.clone(), asked.clone());
            let in_the_way = [(key(&object), "nginx is there".to_owned())].into();
            let found = super::wanted(&[Arc::clone(&object)], &settings(), &kept, &in_the_way);
            found.forms.values().for_each(|form| kept.accept(form));
            let form = &found.forms[&key(&object)];
            let assignment = form.spec.assignment.as_ref().unwrap();
            let expected = if stays { json!(null) } else { admits };
            assert_eq!(json!(assignment.allowed_source_ranges), expected, "{what}: {asked}");
            assert_eq!(found.carried.balancers[0].load_balancer.addresses().len(), 1, "{what}: {asked}");
            let everyone = || Some(json!(["0.0.0.0/0", "::/0"])).filter(|_| !asked.is_null());
            let told = if stays { everyone() } else { told };
            assert_eq!(super::admits(form, &object).map(|ranges| json!(ranges)), told, "{what}: {asked}");
        }
    }
}

#[test]
fn who_has_something_in_its_way_stays_where_it_was() {
    let mut kept = Kept::default();
    let member = |name: &str| json!([{"name": name, "addresses": ["10.0.0.1"], "duty": "Serve"}]);
    let before = [
        with("lb", json!({"addresses": ["192.0.2.10"]}), json!({}), member("m")),
        with("other", json!({"addresses": ["192.0.2.20"]}), json!({}), member("o")),
    ];
    let first = wanted(&before, &mut kept);
    assert_eq!(first.changes, []);
    // One moves, with another member, to where it cannot be. It leaves its place to nobody.
    let now = [
        with("lb", json!({"addresses": ["192.0.2.11"], "balance": "random"}), json!({}), member("n")),
        Arc::clone(&before[1]),
    ];
    let place = key(&now[0]);
    let asked = super::wanted(&now, &settings(), &kept, &BTreeMap::new());
    assert_eq!(asked.changes, vec![place.clone()]);
    let in_the_way = [(place.clone(), "nginx is there".to_owned())].into();
    let found = super::wanted(&now, &settings(), &kept, &in_the_way);
    assert_eq!(found.changes, []);
    assert_eq!(found.refused, in_the_way);
    assert_eq!(found.shared, first.shared, "machines go on sharing the address that it has");
    let (was, is) = (&first.carried.balancers[0], &found.carried.balancers[0]);
    assert_eq!((is.load_balancer.addresses(), is.options), (was.load_balancer.addresses(), was.options));
    assert_eq!(is.load_balancer.members()[0].name(), "n", "members come and go");
    assert_eq!(found.carried.balancers[1], first.carried.balancers[1]);
    // One that was never carried has nothing to go on as.
    let new = [object("new", json!({"addresses": ["192.0.2.30"]}))];
    let in_the_way = [(key(&new[0]), "nginx is there".to_owned())].into();
    let found = super::wanted(&new, &settings(), &kept, &in_the_way);
    assert_eq!((found.carried.balancers.len(), found.refused.len()), (1, 0));
}

#[test]
fn who_has_a_place_comes_first() {
    let at = |name: &str, created: &str, address: &str| made(name, created, address, json!([443]));
    let old = |address: &str| at("old", "2026-01-01", address);
    let young = |address: &str| at("young", "2026-01-02", address);
    let order = |objects: &[Arc<HaProxyLoadBalancer>], kept: &Kept| -> Vec<String> {
        let all = in_order(objects, &settings(), kept, &BTreeMap::new());
        all.iter().map(|object| object.name().to_owned()).collect()
    };
    let mut kept = Kept::default();
    let both = [young("192.0.2.2"), old("192.0.2.1")];
    assert_eq!(order(&both, &kept), ["old", "young"]);
    wanted(&both, &mut kept);
    assert_eq!(order(&both, &kept), ["old", "young"]);
    // It wants what another one has, and is older.
    assert_eq!(order(&[young("192.0.2.2"), old("192.0.2.2")], &kept), ["young", "old"]);
    // What cannot be read stays where it is.
    assert_eq!(order(&[young("192.0.2.2"), old("192.0.2.300")], &kept), ["old", "young"]);
    let newest = at("newest", "2025-01-01", "192.0.2.2");
    assert_eq!(order(&[newest, young("192.0.2.2")], &kept), ["young", "newest"]);
}

/// One that was made at this day, with these ports or listeners.
#[allow(clippy::needless_pass_by_value, reason = "samples are easier to read so")]
fn made(name: &str, day: &str, address: &str, listeners: Value) -> Arc<HaProxyLoadBalancer> {
    let listener = |one: &Value| match one {
        Value::Number(port) => json!({"port": port, "targetPort": 6443}),
        other => other.clone(),
    };
    let listeners: Vec<Value> = listeners.as_array().unwrap().iter().map(listener).collect();
    let object = json!({
        "metadata": {"namespace": "a", "name": name, "generation": 2, "creationTimestamp": format!("{day}T00:00:00Z")},
        "spec": {"addresses": [address], "assignment": {"loadBalancer": name, "generation": 1, "listeners": listeners}},
    });
    Arc::new(serde_json::from_value(object).unwrap())
}

/// What is in the way on a machine where another program has a port.
fn obstacles(wanted: &Wanted, taken: Option<u16>) -> Obstacles {
    let addresses = wanted.balancers.iter().flat_map(|one| one.load_balancer.addresses());
    let taken = addresses.filter_map(|address| Some((SocketAddr::new(*address, taken?), "nginx".to_owned())));
    let look = Look { families: Family::ALL.into(), taken: taken.collect(), ..Look::default() };
    let problems = next(wanted, &look, &Memory::default(), SystemTime::UNIX_EPOCH).problems;
    problems.into_iter().map(|(id, problem)| (id, problem.to_string())).collect()
}

/// Where each is after a round, and all of whom something is told. Who has no place is nowhere.
fn round(
    objects: &[Arc<HaProxyLoadBalancer>],
    kept: &mut Kept,
    taken: Option<u16>,
) -> (BTreeMap<String, Vec<u16>>, Vec<String>) {
    let held = Mutex::new(std::mem::take(kept));
    let ask = |wanted: Wanted| ready(Ok(obstacles(&wanted, taken)));
    let found = decide(objects, &settings(), &held, ask).now_or_never().unwrap();
    *kept = held.into_inner().unwrap();
    let out = obstacles(&found.carried, taken);
    let mut places = BTreeMap::new();
    for balancer in &found.carried.balancers {
        let is_out = out.contains_key(&balancer.id);
        let ports = balancer.load_balancer.listeners().iter().map(Listener::port);
        places.insert(balancer.id.name.clone(), ports.filter(|_| !is_out).collect());
    }
    let is_in = |form: &&HaProxyLoadBalancer| !out.contains_key(&BalancerId::new("a", form.name()));
    found.forms.values().filter(is_in).for_each(|form| kept.accept(form));
    let told: BTreeSet<String> =
        found.refused.into_keys().map(|place| place.1).chain(out.into_keys().map(|id| id.name)).collect();
    (places, told.into_iter().collect())
}

#[test]
fn nobody_who_is_carried_loses_its_place() {
    let checked = json!([{"port": 443, "targetPort": 6443, "healthCheck": {"intervalSeconds": 7}}]);
    // Each has an older one that comes to it, or is carried itself.
    for (what, before, now, taken, places, told) in [
        (
            "another check is no reason to lose a place to one who waits for it",
            vec![("a", json!([443]))],
            vec![("a", checked), ("b", json!([443]))],
            None,
            json!({"a": [443], "b": []}),
            vec!["b"],
        ),
        (
            "nor is another target",
            vec![("a", json!([443]))],
            vec![("a", json!([{"port": 443, "targetPort": 7443}])), ("b", json!([443]))],
            None,
            json!({"a": [443], "b": []}),
            vec!["b"],
        ),
        (
            "one listener more, or less, is had while somebody waits for what is there",
            vec![("a", json!([443, 80]))],
            vec![("a", json!([443, 81])), ("b", json!([443]))],
            None,
            json!({"a": [443, 81], "b": []}),
            vec!["b"],
        ),
        (
            "who cannot move stays, and who waits for its place goes on waiting",
            vec![("a", json!([443]))],
            vec![("a", json!([82])), ("b", json!([443]))],
            Some(82),
            json!({"a": [443], "b": []}),
            vec!["a", "b"],
        ),
        (
            "who cannot move stays, and so does who was to come after it",
            vec![("a", json!([80])), ("b", json!([81]))],
            vec![("a", json!([82])), ("b", json!([80]))],
            Some(82),
            json!({"a": [80], "b": [81]}),
            vec!["a", "b"],
        ),
        (
            "two may change places",
            vec![("a", json!([80])), ("b", json!([81]))],
            vec![("a", json!([81])), ("b", json!([80]))],
            None,
            json!({"a": [81], "b": [80]}),
            vec![],
        ),
    ] {
        let day = |name: &str| if name == "b" { "2026-01-01" } else { "2026-01-02" };
        let all = |list: Vec<(&str, Value)>| -> Vec<Arc<HaProxyLoadBalancer>> {
            list.into_iter().map(|(name, ports)| made(name, day(name), "192.0.2.1", ports)).collect()
        };
        let mut kept = Kept::default();
        round(&all(before), &mut kept, taken);
        let now = all(now);
        for _ in 0..2 {
            let (found, found_told) = round(&now, &mut kept, taken);
            assert_eq!(
                (json!(found), &found_told),
                (places.clone(), &told.iter().map(ToString::to_string).collect()),
                "{what}"
            );
        }
    }
}

#[test]
fn nobody_moves_where_it_is_not_known_what_is_in_the_way() {
    let all = |a: u16, b: u16, c: u16| {
        [("a", a), ("b", b), ("c", c)]
            .map(|(name, port)| made(name, "2026-01-01", "192.0.2.1", json!([port])))
    };
    let mut kept = Kept::default();
    let before = all(80, 81, 82);
    let first = wanted(&before, &mut kept);
    let held = Mutex::new(kept);
    let now = all(90, 81, 92);
    let asked = Cell::new(0);
    let silent = |_| {
        asked.set(asked.get() + 1);
        ready(Err("it is silent".to_owned()))
    };
    let found = decide(&now, &settings(), &held, silent).now_or_never().unwrap();
    assert_eq!(found.carried.balancers, first.carried.balancers);
    let words = "It stays as it is, since nobody knows what is in its way: it is silent".to_owned();
    assert_eq!(found.refused, [(key(&now[0]), words.clone()), (key(&now[2]), words)].into());
    assert_eq!(asked.get(), 1, "one answer is enough");
    // Who stays needs no answer.
    let found = decide(&before, &settings(), &held, silent).now_or_never().unwrap();
    assert_eq!((asked.get(), found.refused.len()), (1, 0));
}

#[test]
fn nobody_who_is_carried_loses_its_number() {
    let numbered = |name: &str, day: &str, address: &str, number: u8| {
        let mut object = HaProxyLoadBalancer::clone(&made(name, day, address, json!([443])));
        object.0.spec.virtual_router_id = Some(number);
        Arc::new(object)
    };
    let a = |address: &str, number| numbered("a", "2026-01-02", address, number);
    let b = |address: &str, number| numbered("b", "2026-01-01", address, number);
    for (what, now) in [
        ("an older one wants it", [a("192.0.2.1", 7), b("192.0.2.2", 7)]),
        ("who has it is refused another", [a("192.0.2.3", 8), b("192.0.2.2", 7)]),
    ] {
        let mut kept = Kept::default();
        let third = numbered("c", "2026-01-03", "192.0.2.9", 8);
        let with = |two: [Arc<HaProxyLoadBalancer>; 2]| {
            two.into_iter().chain([Arc::clone(&third)]).collect::<Vec<_>>()
        };
        let before = wanted(&with([a("192.0.2.1", 7), b("192.0.2.2", 6)]), &mut kept);
        let held = Mutex::new(kept);
        let ask = |wanted: Wanted| ready(Ok(obstacles(&wanted, None)));
        let found = decide(&with(now), &settings(), &held, ask).now_or_never().unwrap();
        let by_address = |all: &ToCarry| -> BTreeMap<IpAddr, SharedAddress> {
            all.shared.iter().map(|one| (one.address(), one.clone())).collect()
        };
        assert_eq!(by_address(&found), by_address(&before), "{what}");
    }
}

#[test]
fn what_is_paused_stays_as_it_was() {
    let paused = json!({"cluster.x-k8s.io/paused": ""});
    let member = json!([{"name": "m", "addresses": ["10.0.0.1"], "duty": "Serve"}]);
    let other = json!([{"name": "n", "addresses": ["10.0.0.2"], "duty": "Serve"}]);
    let good = json!({"addresses": ["192.0.2.10"]});
    let mut kept = Kept::default();
    let fine = wanted(&[with("lb", good.clone(), json!({}), member.clone())], &mut kept);
    for spec in [
        json!({"addresses": ["192.0.2.11"], "proxyProtocol": true}),
        json!({"addresses": ["192.0.2.300"]}),
        json!({"pool": "other"}),
    ] {
        let found = wanted(&[with("lb", spec.clone(), paused.clone(), other.clone())], &mut kept);
        assert_eq!((shape(&found), found.refused.len()), (shape(&fine), 0), "{spec}");
    }
    let after = wanted(&[with("lb", good, json!({}), other)], &mut kept);
    assert_ne!(shape(&after).0, shape(&fine).0, "then it is done");
}

#[test]
fn one_number_is_for_one_address() {
    let both = [
        object("one", json!({"addresses": ["192.0.2.10"]})),
        object("two", json!({"addresses": ["198.51.100.10"]})),
    ];
    let found = wanted(&both, &mut Kept::default());
    assert_eq!((found.carried.balancers.len(), found.shared.len(), found.refused.len()), (2, 1, 1));
    let words = found.refused.values().next().unwrap();
    assert!(words.contains("spec.virtualRouterID"), "{words}");
}

#[test]
fn what_cannot_be_carried_is_said() {
    let refused = carried(json!({"balance": "fastest"}), json!({}));
    let words: Vec<&String> = refused.refused.values().collect();
    assert_eq!(words, ["spec.balance is `fastest`: it can be leastconn, roundrobin or random"]);
    assert!(refused.carried.balancers.is_empty());
}
