use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::{Duration, SystemTime};

use portcullis_core::{
    Admission, Duty, EmptyMeans, Family, HealthCheck, HealthPort, Listener, ListenerProtocol, LoadBalancer,
    Member, MemberState, Owner, Probe, Reach, Scheme, SourceRanges,
};
use proptest::prelude::*;
use uuid::Uuid;

use super::desired::{Asked, Desired, desired};
use super::difference::{Operation, difference};
use super::report::{Health, members};
use super::rows::Rows;
use super::scene::{Other, Router, Scene, Switch};

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
}

impl Asking {
    fn balancer(&self) -> LoadBalancer {
        let admission = Admission {
            ranges: SourceRanges::parse(self.ranges.as_deref()).unwrap(),
            empty_means: EmptyMeans::Nobody,
        };
        let families = self.vips.iter().copied().map(Family::of);
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
        let is_ill = self.ill.iter().any(|number| asked.logical_port == format!("port-{number}"));
        if is_ill { Health::Ill } else { Health::Well }
    }

    fn desired(&self, there: &Rows, now: SystemTime) -> Desired {
        let health = |asked: &Asked| self.health(asked);
        desired(&owner(), None, &self.balancer(), &scene(), there, &health, now).unwrap()
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
    let ill = proptest::collection::btree_set(1u8..=6, 0..=2);
    (vips, listeners, ranges, members, ill).prop_map(|(vips, listeners, ranges, members, ill)| Asking {
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
                        prop_assert!(!has_family || gets != decided.trial.contains(member.name()));
                    }
                    Duty::Rest { .. } | Duty::Leave { .. } => prop_assert!(!gets),
                }
            }
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
    }
}

fn told(asking: &Asking, decided: &Desired, now: SystemTime) -> Vec<(MemberState, String)> {
    let health = |asked: &Asked| asking.health(asked);
    let all = members(&asking.balancer(), decided, health, now);
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
    assert_eq!(told(&leaves, &decided, at(3661))[0], (MemberState::Removed, String::new()));
}

#[test]
fn an_address_that_others_use_is_not_cut_off_from_them() {
    let mut shared = scene();
    shared.used.insert("192.0.2.1".parse().unwrap());
    let serving = asks(&[(1, Duty::Serve), (2, Duty::Serve)]);
    let health = |_: &Asked| Health::Well;
    let make = |asking: &Asking, there: &Rows| {
        desired(&owner(), None, &asking.balancer(), &shared, there, &health, at(0)).unwrap()
    };
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
        let health = |_: &Asked| Health::Well;
        let decided = desired(&owner(), None, &asking.balancer(), &scene, &Rows::default(), &health, at(0));
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
