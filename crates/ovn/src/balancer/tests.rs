use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::{Duration, SystemTime};

use portcullis_core::{
    Admission, Duty, EmptyMeans, Family, HealthCheck, HealthPort, Listener, ListenerProtocol, LoadBalancer,
    Member, MemberState, Owner, Probe, Reach, Scheme, SourceRanges,
};
use portcullis_ovsdb::Datum;
use proptest::prelude::*;
use uuid::Uuid;

use super::acl::Drops;
use super::desired::{Asked, Desired, Moment, desired, retreat};
use super::difference::{Operation, difference};
use super::report::{Health, Heard, ended, members};
use super::rows::Rows;
use super::scene::{Above, Other, Router, Scene, Switch};
use super::tables::{BALANCER, CHECK};
use crate::tables::ACL;

fn owner() -> Owner {
    Owner::new("c", "Test", Some("ns".to_owned()), "web").unwrap()
}

fn at(seconds: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
}

/// Two switches, one of which is named, and a router that is on both.
fn scene() -> Scene {
    let switch = |number: u128, named: bool| {
        let port = |last: u8| {
            let addresses: [IpAddr; 2] =
                [IpAddr::from([10, 0, 0, last]), format!("fd00::{last:x}").parse().unwrap()];
            addresses.map(|address| (address, format!("port-{last}")))
        };
        Switch {
            uuid: Uuid::from_u128(number),
            name: format!("sw{number}"),
            named,
            subnets: ["10.0.0.0/24", "fd00::/64"].map(|subnet| subnet.parse().unwrap()).into(),
            ports: (1..=4).filter(|_| named).flat_map(port).collect(),
            taken: ["10.0.0.254".parse().unwrap()].into(),
            is_transit: false,
        }
    };
    Scene {
        switches: vec![switch(1, true), switch(2, false)],
        routers: vec![Router { uuid: Uuid::from_u128(3), name: "r".to_owned() }],
        ..Scene::default()
    }
}

/// What the database is after one transaction.
fn applied(there: &Rows, operations: &[Operation]) -> Rows {
    let mut rows = there.clone();
    for operation in operations {
        match operation {
            Operation::Insert { table, uuid, columns } => {
                assert!(rows.rows.insert((table, *uuid), columns.clone()).is_none());
            }
            Operation::Update { table, uuid, columns, was } => {
                let row = rows.rows.get_mut(&(*table, *uuid)).unwrap();
                for (column, value) in columns {
                    assert_eq!(row.insert(column, value.clone()).as_ref(), was.get(column));
                }
            }
            Operation::Delete { table, uuid, .. } => {
                assert!(rows.rows.remove(&(*table, *uuid)).is_some());
            }
            Operation::Refer(reference) => assert!(rows.references.insert(*reference)),
            Operation::Unrefer(reference) => assert!(rows.references.remove(reference)),
        }
    }
    rows
}

#[derive(Clone, Debug)]
struct Asking {
    vips: Vec<IpAddr>,
    listeners: Vec<Listener>,
    ranges: Option<Vec<&'static str>>,
    members: Vec<(u8, Duty)>,
    ill: BTreeSet<u8>,
    /// Who has not been asked yet.
    waiting: BTreeSet<u8>,
    /// Whether OVN cannot be seen.
    unseen: bool,
}

impl Asking {
    fn balancer(&self) -> LoadBalancer {
        let admission = Admission {
            ranges: SourceRanges::parse(self.ranges.as_deref()).unwrap(),
            empty_means: EmptyMeans::Nobody,
        };
        let of_vips: BTreeSet<Family> = self.vips.iter().copied().map(Family::of).collect();
        let families = if of_vips.is_empty() { Family::ALL.into() } else { of_vips };
        let member = |&(number, duty): &(u8, Duty)| {
            let addresses = [IpAddr::from([10, 0, 0, number]), format!("fd00::{number:x}").parse().unwrap()];
            Member::new(format!("m{number}"), addresses).unwrap().with_duty(duty)
        };
        LoadBalancer::new("web", Scheme::Internal, families, self.listeners.clone(), admission)
            .unwrap()
            .with_addresses(self.vips.clone())
            .unwrap()
            .with_members(self.members.iter().map(member).collect::<Vec<_>>())
            .unwrap()
    }

    fn health(&self, asked: &Asked) -> Health {
        let is_in =
            |all: &BTreeSet<u8>| all.iter().any(|number| asked.logical_port == format!("port-{number}"));
        match self.unseen {
            true => Health::Unseen,
            false if is_in(&self.ill) => Health::Ill,
            false if is_in(&self.waiting) => Health::Waiting,
            false => Health::Well,
        }
    }

    fn desired(&self, there: &Rows, now: SystemTime) -> Desired {
        self.desired_in(&scene(), there, now)
    }

    fn desired_in(&self, scene: &Scene, there: &Rows, now: SystemTime) -> Desired {
        let moment = Moment { now, health: &|asked: &Asked| self.health(asked), at_once: false };
        desired(&owner(), None, &self.balancer(), scene, there, &moment).unwrap()
    }

    fn retreat(&self, there: &Rows, now: SystemTime) -> Desired {
        let moment = Moment { now, health: &|asked: &Asked| self.health(asked), at_once: false };
        retreat(&owner(), None, &self.balancer(), &scene(), there, &moment, true)
    }

    /// Who may reach it on the ports that are asked for, at whatever address it is.
    fn reach_anywhere(&self) -> Reach {
        let vips = ["192.0.2.1", "2001:db8::1"].map(|vip| vip.parse().unwrap()).into();
        Asking { vips, ..self.clone() }.balancer().reach()
    }
}

fn asking() -> impl Strategy<Value = Asking> {
    let vips = proptest::sample::subsequence(vec!["192.0.2.1", "192.0.2.2", "2001:db8::1"], 1..=3);
    let protocol =
        prop_oneof![Just(ListenerProtocol::Tcp), Just(ListenerProtocol::Udp), Just(ListenerProtocol::TcpUdp)];
    let listeners = proptest::collection::btree_map(440u16..444, (protocol, any::<bool>()), 1..=3);
    let ranges = vec!["10.0.0.0/8", "10.0.0.0/9", "192.0.2.0/25", "fd00::/8", "2001:db8::/33", "0.0.0.0/0"];
    let ranges = proptest::option::of(proptest::sample::subsequence(ranges, 0..=4));
    let duty = prop_oneof![
        3 => Just(Duty::Serve),
        1 => (0u64..200).prop_map(|second| Duty::Leave { by: at(second) }),
        1 => (0u64..200).prop_map(|second| Duty::Rest { by: at(second) }),
    ];
    let members = proptest::collection::btree_map(1u8..=6, duty, 0..=5);
    let ill = proptest::collection::btree_set(1u8..=6, 0..=4);
    let waiting = proptest::collection::btree_set(1u8..=6, 0..=1);
    let all = (vips, listeners, ranges, members, ill, waiting, proptest::bool::weighted(0.2));
    all.prop_map(|(vips, listeners, ranges, members, ill, waiting, unseen)| Asking {
        vips: vips.into_iter().map(|vip| vip.parse().unwrap()).collect(),
        listeners: listeners
            .into_iter()
            .map(|(port, (protocol, checked))| {
                let listener = Listener::new(port, protocol, port + 6000).unwrap();
                let check = HealthCheck::new(Probe::Tcp, HealthPort::Traffic).unwrap();
                if checked { listener.with_health_check(check) } else { listener }
            })
            .collect(),
        ranges,
        members: members.into_iter().collect(),
        ill,
        waiting,
        unseen,
    })
}

proptest! {
    #[test]
    fn one_transaction_leads_to_what_is_wanted_and_opens_nothing_else(
        steps in proptest::collection::vec((asking(), 0u64..100), 1..6)
    ) {
        let (mut there, mut second) = (Rows::default(), 0);
        for (asking, later) in steps {
            second += later;
            let decided = asking.desired(&there, at(second));
            let operations = difference(&decided.rows, &there);
            let after = applied(&there, &operations);
            prop_assert_eq!(&after, &decided.rows);
            prop_assert_eq!(difference(&decided.rows, &after), vec![]);
            // All of it is one step, and what may reach it then is what was asked for: no more, also of what waits for the end
            // of who left, and no less.
            let wanted = asking.balancer();
            prop_assert_eq!(after.reach(), wanted.reach());
            // Who does not serve gets nothing, and who serves is there, or on trial.
            let backends = after.backends();
            for member in wanted.members() {
                let gets = member.addresses().iter().any(|address| backends.contains(address));
                match member.duty() {
                    Duty::Serve => {
                        let has_family = wanted.families().iter().any(|family| member.address(*family).is_some());
                        prop_assert!(!has_family || gets != decided.trial.contains_key(member.name()));
                    }
                    Duty::Rest { .. } | Duty::Leave { .. } => prop_assert!(!gets),
                }
            }
            // No two are in each other's way.
            let mut seen = BTreeSet::new();
            let somewhere: BTreeSet<Uuid> = after.references.iter().map(|reference| reference.member).collect();
            for ((table, uuid), row) in &after.rows {
                if *table != BALANCER || !somewhere.contains(uuid) {
                    continue;
                }
                for (vip, _) in row["vips"].entries() {
                    let vip = vip.as_text().unwrap();
                    let is_for_all = vip.parse::<IpAddr>().is_ok();
                    let protocol = (!is_for_all).then(|| row["protocol"].text().unwrap().to_owned());
                    prop_assert!(seen.insert((vip.to_owned(), protocol)), "{vip} is there twice");
                }
            }
            // If something is in the way of it all, who leaves goes, and nobody comes. What is not asked for any more is closed,
            // and nothing is opened.
            let blocked = asking.retreat(&there, at(second));
            let backed = applied(&there, &difference(&blocked.rows, &there));
            let unasked = Reach::widened(&asking.reach_anywhere(), &there.reach());
            prop_assert_eq!(backed.reach(), Reach::widened(&unasked, &there.reach()));
            let serve = |member: &&Member| member.duty() == Duty::Serve;
            let serving: BTreeSet<IpAddr> =
                wanted.members().iter().filter(serve).flat_map(|member| member.addresses().to_vec()).collect();
            let left: BTreeSet<IpAddr> = there.backends().intersection(&serving).copied().collect();
            let is_closed = backed.addresses().is_empty();
            prop_assert_eq!(backed.backends(), if is_closed { BTreeSet::new() } else { left });
            prop_assert_eq!(difference(&asking.retreat(&backed, at(second)).rows, &backed), vec![]);
            // It is the same if nobody knows any more where it is to be.
            let lost = Asking { vips: Vec::new(), ..asking.clone() };
            prop_assert_eq!(lost.retreat(&there, at(second)), blocked);
            // Decided again, nothing is next.
            let again = asking.desired(&after, at(second));
            let next = difference(&again.rows, &after);
            let settled = applied(&after, &next);
            prop_assert_eq!(difference(&asking.desired(&settled, at(second)).rows, &settled), vec![]);
            there = settled;
        }
        let gone = difference(&Rows::default(), &there);
        let nothing = applied(&there, &gone);
        prop_assert_eq!(&nothing, &Rows::default());
        prop_assert_eq!(nothing.reach(), Reach::nobody());
    }
}

fn asks(members: &[(u8, Duty)]) -> Asking {
    let check = HealthCheck::new(Probe::Https { path: "/readyz".to_owned() }, HealthPort::Traffic).unwrap();
    let listener = Listener::new(443, ListenerProtocol::Tcp, 6443).unwrap().with_health_check(check);
    Asking {
        vips: vec!["192.0.2.1".parse().unwrap()],
        listeners: vec![listener],
        ranges: None,
        members: members.to_vec(),
        ill: BTreeSet::new(),
        waiting: BTreeSet::new(),
        unseen: false,
    }
}

fn told(asking: &Asking, decided: &Desired, now: SystemTime) -> Vec<(MemberState, String)> {
    told_as(asking, decided, Heard::Everywhere, now)
}

fn told_as(asking: &Asking, decided: &Desired, heard: Heard, now: SystemTime) -> Vec<(MemberState, String)> {
    let health = |asked: &Asked| asking.health(asked);
    let all = members(&asking.balancer(), decided, health, |_| heard, now);
    all.into_iter().map(|member| (member.state, member.told.unwrap_or_default())).collect()
}

#[test]
fn members_are_told_of_as_they_are() {
    let serve = Duty::Serve;
    let mut all = asks(&[(1, serve), (2, serve), (5, serve)]);
    let first = all.desired(&Rows::default(), at(0));
    assert_eq!(
        first.told,
        [
            "The members of listener 443 are asked for connections, not for /readyz: OVN has no checks over HTTP."
        ]
    );
    // OVN sends to who was not asked yet, where nobody was. Nobody is told that it answers for that.
    let mut fresh = asks(&[(1, serve), (2, serve)]);
    fresh.waiting = [1, 2].into();
    let meanwhile = "it has not answered its check yet; it gets connections meanwhile";
    assert_eq!(
        told(&fresh, &fresh.desired(&Rows::default(), at(0)), at(0)),
        [(MemberState::Adding, meanwhile.to_owned()), (MemberState::Adding, meanwhile.to_owned())]
    );
    all.ill.insert(2);
    let decided = all.desired(&first.rows, at(0));
    assert_eq!(
        told(&all, &decided, at(0)),
        [
            (MemberState::Active, String::new()),
            (MemberState::Adding, "it does not answer on tcp 6443".to_owned()),
            (MemberState::Active, "it is not asked whether it is well".to_owned()),
        ]
    );
    let leaves = asks(&[(1, Duty::Leave { by: at(3661) }), (2, serve), (3, Duty::Rest { by: at(9) })]);
    let decided = leaves.desired(&first.rows, at(0));
    let until = "until 01:01:01 UTC: OVN does not tell which connections are left";
    assert_eq!(
        told(&leaves, &decided, at(0)),
        [
            (MemberState::Draining, until.to_owned()),
            (MemberState::Active, String::new()),
            (MemberState::Disabled, String::new()),
        ]
    );
    assert_eq!(ended(&leaves.balancer(), &decided, at(9)), BTreeSet::new(), "who rests never served");
    assert_eq!(ended(&leaves.balancer(), &decided, at(3661)), ["m1".to_owned()].into());
    for (heard, state, words) in [
        (
            Heard::NotYet,
            MemberState::Draining,
            "its time was over at 01:01:01 UTC: not every chassis has heard of it",
        ),
        (Heard::Everywhere, MemberState::Removed, ""),
        (
            Heard::NotEverywhere,
            MemberState::Removed,
            "a chassis does not say that it has heard of it: what goes on there is not known",
        ),
    ] {
        assert_eq!(told_as(&leaves, &decided, heard, at(3661))[0], (state, words.to_owned()));
    }
}

/// Which addresses of a family get connections, and whether OVN asks those.
fn backends(decided: &Desired) -> (BTreeSet<String>, usize) {
    let v4 = decided.rows.backends().into_iter().filter(IpAddr::is_ipv4);
    let names = v4.map(|address| format!("m{}", address.to_string().rsplit('.').next().unwrap()));
    let name = Some("portcullis/c/Test/ns/web/tcp");
    let main = decided.rows.rows.values().find(|row| row.get("name").and_then(Datum::text) == name);
    (names.collect(), main.unwrap()["health_check"].uuids().count())
}

fn names(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

#[test]
fn without_a_sight_of_ovn_who_serves_goes_on_and_nobody_comes() {
    let serve = Duty::Serve;
    let before = asks(&[(1, serve), (2, serve)]);
    let first = before.desired(&Rows::default(), at(0));
    let mut unseen = asks(&[(1, serve), (2, serve), (3, serve)]);
    unseen.unseen = true;
    let decided = unseen.desired(&first.rows, at(0));
    assert_eq!(backends(&decided), (names(&["m1", "m2"]), 1));
    let why = "whether it answers is not known: the southbound database cannot be reached".to_owned();
    assert_eq!(
        told(&unseen, &decided, at(0)),
        [
            (MemberState::Active, why.clone()),
            (MemberState::Active, why.clone()),
            (MemberState::Adding, why.clone())
        ]
    );
    // Also if there is nobody else.
    let alone = unseen.desired(&Rows::default(), at(0));
    assert_eq!(alone.rows.backends(), BTreeSet::new());
    assert_eq!(told(&unseen, &alone, at(0))[0], (MemberState::Adding, why));
    // Where nobody ever looks, all serve.
    let moment = Moment { now: at(0), health: &|_: &Asked| Health::Unknown, at_once: false };
    let blind = desired(&owner(), None, &unseen.balancer(), &scene(), &first.rows, &moment).unwrap();
    assert_eq!(backends(&blind).0, names(&["m1", "m2", "m3"]));
    // Nodes of Services do in any case.
    let moment = Moment { now: at(0), health: &|_: &Asked| Health::Unseen, at_once: true };
    let at_once = desired(&owner(), None, &unseen.balancer(), &scene(), &first.rows, &moment).unwrap();
    assert_eq!(backends(&at_once).0, names(&["m1", "m2", "m3"]));
}

#[test]
fn if_nobody_answers_all_who_serve_get_connections() {
    let serve = Duty::Serve;
    let mut all = asks(&[(1, serve), (2, serve)]);
    let mut there = all.desired(&Rows::default(), at(0)).rows;
    all.members.push((3, serve));
    let both = names(&["m1", "m2"]);
    let three = names(&["m1", "m2", "m3"]);
    let nobody =
        "No member of listener 443 answers its check: those that serve get connections nevertheless.";
    for (step, ill, waiting, unseen, serving, checks) in [
        ("a new one is tried", &[][..], &[3][..], false, &both, 1),
        ("one is ill", &[1], &[3], false, &both, 1),
        ("both are, and the new one was not asked yet", &[1, 2], &[3], false, &both, 0),
        ("the new one is ill, too", &[1, 2, 3], &[], false, &both, 0),
        ("it cannot be seen", &[], &[], true, &both, 0),
        ("one is well again", &[2, 3], &[], false, &both, 1),
        ("it cannot be seen then", &[2, 3], &[], true, &both, 1),
        ("the new one alone is well", &[1, 2], &[], false, &three, 1),
    ] {
        all.ill = ill.iter().copied().collect();
        all.waiting = waiting.iter().copied().collect();
        all.unseen = unseen;
        let decided = all.desired(&there, at(0));
        assert_eq!(backends(&decided), (serving.clone(), checks), "{step}");
        assert_eq!(decided.told.iter().any(|told| told == nobody), checks == 0, "{step}");
        // Whoever is a member is asked by somebody, or nobody would know when it is well.
        let asked: BTreeSet<&String> = decided.asked.keys().collect();
        assert_eq!(asked.len(), 3, "{step}");
        let checked = decided.rows.rows.keys().filter(|(table, _)| *table == CHECK).count();
        assert_eq!(checked, 1 + usize::from(!decided.trial.is_empty() && checks == 1), "{step}");
        if checks == 0 && !unseen {
            let ill = "it does not answer on tcp 6443; it gets connections, since nobody does";
            assert_eq!(told(&all, &decided, at(0))[0], (MemberState::Adding, ill.to_owned()), "{step}");
        }
        there = decided.rows;
    }
}

#[test]
fn who_leaves_is_in_one_farewell_and_who_is_back_stays_in_it() {
    let (serve, leave) = (Duty::Serve, |second| Duty::Leave { by: at(second) });
    let mut there = asks(&[(1, serve), (2, serve), (3, serve)]).desired(&Rows::default(), at(0)).rows;
    for (second, members, expected) in [
        (0, [leave(100), serve, serve], Some("10.0.0.1")),
        (10, [leave(100), leave(50), serve], Some("10.0.0.1,10.0.0.2")),
        // Back, and nothing that it has ends.
        (20, [serve, leave(50), serve], Some("10.0.0.1,10.0.0.2")),
        (60, [serve, leave(50), serve], Some("10.0.0.1")),
        (1000, [serve, leave(50), serve], Some("10.0.0.1")),
        (1000, [leave(1010), leave(50), serve], Some("10.0.0.1")),
        (1010, [leave(1010), leave(50), serve], None),
    ] {
        let members: Vec<(u8, Duty)> = (1..).zip(members).collect();
        let decided = asks(&members).desired(&there, at(second));
        let farewell =
            decided.rows.rows.values().find(|row| {
                row.get("name").and_then(Datum::text) == Some("portcullis/c/Test/ns/web/farewell")
            });
        let to = farewell.map(|row| row["vips"].value_of("192.0.2.1").unwrap().to_owned());
        assert_eq!(to.as_deref(), expected, "at {second}");
        assert!(farewell.is_none_or(|row| row["options"].value_of("ct_flush") == Some("true")));
        there = decided.rows;
    }
}

#[test]
fn who_has_no_time_to_leave_is_heard_of_before_it_is_cut_off() {
    let mut there = asks(&[(1, Duty::Serve), (2, Duty::Serve)]).desired(&Rows::default(), at(0)).rows;
    let leaving = asks(&[(1, Duty::Leave { by: at(90) }), (2, Duty::Serve)]);
    for (second, state, farewells) in
        [(100, MemberState::Draining, 1), (104, MemberState::Draining, 1), (105, MemberState::Removed, 0)]
    {
        let decided = leaving.desired(&there, at(second));
        assert_eq!(told(&leaving, &decided, at(second))[0].0, state, "at {second}");
        assert_eq!(decided.rows.farewells().len(), farewells, "at {second}");
        assert_eq!(backends(&decided).0, names(&["m2"]));
        there = decided.rows;
    }
}

#[test]
fn while_something_is_in_the_way_members_leave() {
    let (serve, leave) = (Duty::Serve, |second| Duty::Leave { by: at(second) });
    let before = asks(&[(1, serve), (2, serve)]).desired(&Rows::default(), at(0)).rows;
    let leaving = asks(&[(1, leave(100)), (2, serve), (3, serve)]);
    let decided = leaving.retreat(&before, at(0));
    assert_eq!(backends(&decided), (names(&["m2"]), 1));
    assert_eq!(decided.rows.farewells().len(), 1);
    let states = |decided: &Desired, second| -> Vec<MemberState> {
        told(&leaving, decided, at(second)).into_iter().map(|(state, _)| state).collect()
    };
    assert_eq!(states(&decided, 0), [MemberState::Draining, MemberState::Active, MemberState::Adding]);
    assert_eq!(told(&leaving, &decided, at(0))[2].1, "it waits until what is in the way is gone");
    let over = leaving.retreat(&decided.rows, at(100));
    assert!(over.rows.farewells().is_empty());
    assert_eq!(states(&over, 100)[0], MemberState::Removed);
    // Who is not a member any more is out at once.
    let gone = asks(&[(2, serve)]).retreat(&before, at(0));
    assert_eq!(backends(&gone), (names(&["m2"]), 1));
}

#[test]
fn while_something_is_in_the_way_nobody_gets_in_who_should_not() {
    let two = |port| Listener::new(port, ListenerProtocol::Tcp, 6443).unwrap();
    let with = |ports: &[u16], ranges: Option<&[&'static str]>| Asking {
        listeners: ports.iter().map(|port| two(*port)).collect(),
        ranges: ranges.map(<[&str]>::to_vec),
        ..asks(&[(1, Duty::Serve)])
    };
    for (before, after, expected) in [
        (None, Some(&["10.0.0.0/9"][..]), with(&[443], Some(&["10.0.0.0/9"]))),
        (
            Some(&["10.0.0.0/8"][..]),
            Some(&["10.0.0.0/9", "192.0.2.0/24"]),
            with(&[443], Some(&["10.0.0.0/9"])),
        ),
        (Some(&["10.0.0.0/8"]), Some(&[]), with(&[443], Some(&[]))),
        (Some(&["10.0.0.0/8"]), None, with(&[443], Some(&["10.0.0.0/8"]))),
        (Some(&[]), None, with(&[443], Some(&[]))),
    ] {
        let there = with(&[443, 444], before).desired(&Rows::default(), at(0)).rows;
        // A new listener waits, an old one goes.
        let decided = with(&[443, 445], after).retreat(&there, at(0));
        assert_eq!(decided.rows.reach(), expected.balancer().reach(), "{before:?} {after:?}");
        let checks = decided.rows.rows.keys().filter(|(table, _)| *table == CHECK).count();
        assert_eq!(checks, 0);
    }
    let checked = asks(&[(1, Duty::Serve)]);
    let there = checked.desired(&Rows::default(), at(0)).rows;
    assert_eq!(there.rows.keys().filter(|(table, _)| *table == CHECK).count(), 1);
    let decided = with(&[445], None).retreat(&there, at(0));
    assert_eq!((decided.rows.reach(), decided.rows.backends()), (Reach::nobody(), BTreeSet::new()));
    assert!(!decided.rows.rows.keys().any(|(table, _)| *table == CHECK), "nobody is asked any more");
    // What was never made is not made now.
    assert_eq!(with(&[443], Some(&[])).retreat(&Rows::default(), at(0)).rows, Rows::default());
}

#[test]
fn switches_that_know_connections_drop_whatever_is_new_to_them() {
    let mut closed = asks(&[]);
    closed.ranges = Some(vec!["10.0.0.0/8"]);
    let decided = closed.desired(&Rows::default(), at(0));
    let mut found = Vec::new();
    for ((table, uuid), row) in &decided.rows.rows {
        if *table == ACL {
            let drops = Drops::parse(row["match"].text().unwrap()).unwrap();
            let places = decided.rows.references.iter().filter(|reference| reference.member == *uuid);
            found.push((drops.knows, places.map(|reference| reference.row.as_u128()).collect::<Vec<_>>()));
        }
    }
    found.sort();
    assert_eq!(found, [(false, vec![2]), (true, vec![1])]);
}

#[test]
fn where_ranges_keep_nobody_out_is_said() {
    let above =
        |matches: &str| Above { switch: "sw1".to_owned(), matches: matches.to_owned(), priority: 2000 };
    let mut scene = scene();
    scene.above = vec![above("udp"), above("inport == @all")];
    scene.switches[1].is_transit = true;
    let mut asking = asks(&[]);
    let leaks = |asking: &Asking| asking.desired_in(&scene, &Rows::default(), at(0)).leaks;
    assert_eq!(leaks(&asking), Vec::<String>::new(), "nobody is to be kept out");
    asking.ranges = Some(vec!["10.0.0.0/8"]);
    let found = leaks(&asking);
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(
        found[0].starts_with("On the logical switch `sw1` the ACL `inport == @all` has a priority of 2000")
    );
    assert!(found[1].starts_with("The logical switch `sw2` is one of several OVNs"));
}

#[test]
fn an_address_that_others_use_is_not_cut_off_from_them() {
    let mut shared = scene();
    shared.used.insert("192.0.2.1".parse().unwrap());
    let serving = asks(&[(1, Duty::Serve), (2, Duty::Serve)]);
    let make = |asking: &Asking, there: &Rows| asking.desired_in(&shared, there, at(0));
    let first = make(&serving, &Rows::default());
    let leaving = asks(&[(1, Duty::Leave { by: at(10) }), (2, Duty::Serve)]);
    let decided = make(&leaving, &first.rows);
    assert!(decided.rows.farewells().is_empty());
    assert_eq!(told(&leaving, &decided, at(0))[0].0, MemberState::Draining);
    let over = "connections that were left at 00:00:10 UTC go on: others use the same address";
    assert_eq!(told(&leaving, &decided, at(10))[0], (MemberState::Removed, over.to_owned()));
}

#[test]
fn what_is_in_the_way_is_named() {
    let asking = asks(&[]);
    let refused = |scene: Scene| {
        let moment = Moment { now: at(0), health: &|_: &Asked| Health::Well, at_once: false };
        let decided = desired(&owner(), None, &asking.balancer(), &scene, &Rows::default(), &moment);
        decided.unwrap_err().what
    };
    let mut inside = scene();
    inside.switches[0].subnets.insert("192.0.2.0/24".parse().unwrap());
    assert!(refused(inside).contains("192.0.2.1 is in a subnet of the logical switch `sw1`"));
    let mut taken = scene();
    let vips = ["192.0.2.1:443".to_owned()].into();
    taken.others.push(Other { name: "theirs".to_owned(), protocol: "tcp".to_owned(), vips });
    assert!(refused(taken).contains("192.0.2.1:443 is an address of the load balancer `theirs` already"));
}

#[test]
fn members_are_asked_from_an_address_that_nobody_has() {
    let mut switch = scene().switches.remove(0);
    let v4: IpAddr = "10.0.0.1".parse().unwrap();
    let ask = |switch: &Switch| switch.asks_from(v4, &[]).map(|from| from.to_string());
    assert_eq!(ask(&switch).as_deref(), Some("10.0.0.253"), "one is a router's, one means everybody");
    switch.ports.insert("10.0.0.253".parse().unwrap(), "new".to_owned());
    assert_eq!(ask(&switch).as_deref(), Some("10.0.0.252"));
    let v6 = switch.asks_from("fd00::1".parse().unwrap(), &[]).unwrap();
    assert_eq!(v6.to_string(), "fd00::ffff:ffff:ffff:fffe");
    switch.subnets = ["10.0.0.0/31".parse().unwrap()].into();
    assert_eq!(ask(&switch), None, "there is no room");
    switch.subnets.clear();
    assert_eq!(ask(&switch), None);
}
