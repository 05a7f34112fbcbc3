//! What is closed while something is in the way of what is wanted.

use std::collections::BTreeSet;

use portcullis_aws::{PREFIX, Provider};
use portcullis_aws_fake::{Fake, SecurityGroup};
use portcullis_core::{AddressSet, Duty, MemberState, Outcome, Provider as _, Report, Want};

use crate::held::balancer;
use crate::members::{Plane, Time, provider, slow};
use crate::scene::{Service, account, fake};

/// What the groups of a load balancer let in.
fn lets_in(fake: &Fake) -> BTreeSet<String> {
    let world = fake.state();
    let groups = balancer(&world, "demo").groups.iter().map(|id| &world.groups[id]);
    groups.flat_map(SecurityGroup::lets_in).collect()
}

fn listens_on(fake: &Fake) -> BTreeSet<u16> {
    balancer(&fake.state(), "demo").listeners.values().map(|listener| listener.port).collect()
}

fn texts(all: &[&str]) -> BTreeSet<String> {
    all.iter().map(|text| (*text).to_owned()).collect()
}

fn ranges(all: &[&str]) -> AddressSet {
    all.iter().map(|range| range.parse().unwrap()).collect()
}

fn with(plane: &Plane<'_>, key: &str, value: &str) -> Want {
    let mut want = plane.want("demo");
    want.parameters.insert(format!("{PREFIX}{key}"), value.to_owned());
    want
}

async fn blocked(provider: &Provider, want: &Want) -> Report {
    let report = provider.sync(want).await;
    assert!(matches!(report.outcome, Outcome::Blocked(_)), "{:?}", report.outcome);
    report
}

/// A load balancer with two ports, whose members are active.
async fn made(fake: &Fake, time: &Time) -> Plane<'static> {
    let plane = Plane {
        ports: vec![(443, 6443), (8443, 6443)],
        ranges: Some(vec!["10.0.0.0/8", "192.0.2.0/24"]),
        ..Plane::default()
    };
    let provider = provider(fake, time);
    for _ in 0..6 {
        assert_eq!(provider.sync(&plane.want("demo")).await.outcome, Outcome::Done);
        time.pass(fake, 5);
    }
    plane
}

/// A field that is wrong opens nothing, and keeps nothing open.
#[tokio::test]
async fn what_is_not_asked_for_is_closed_whatever_field_is_wrong() {
    for (key, value) in [
        ("ip-address-type", "none"),
        ("name", "-a"),
        ("security-groups", "sg-none"),
        ("additional-resource-tags", "aws:a=b"),
        ("nlb-target-type", "pod"),
    ] {
        let (fake, time) = (slow(|_| ()), Time::new());
        let mut plane = made(&fake, &time).await;
        // Whoever starts anew has only what AWS says.
        let provider = provider(&fake, &time);
        plane.ports = vec![(443, 6443), (9443, 6443)];
        plane.ranges = Some(vec!["10.0.0.0/9", "198.51.100.0/24"]);
        fake.clear_calls();
        let report = blocked(&provider, &with(&plane, key, value)).await;
        let Outcome::Blocked(problem) = &report.outcome else { panic!() };
        let state = "Only what is not asked for any more is closed, as far as AWS lets us.";
        assert!(problem.state.ends_with(state), "{key}: {problem}");
        assert_eq!(listens_on(&fake), [443].into(), "{key}");
        assert_eq!(lets_in(&fake), texts(&["icmp 3-4 10.0.0.0/9", "tcp 443-443 10.0.0.0/9"]), "{key}");
        assert_eq!(report.admitted, Some(ranges(&["10.0.0.0/9"])), "{key}");
        assert_eq!(report.members[0].name, "one", "{key}");
        // Who may get in is not kept out for a moment.
        let calls = fake.calls();
        let calls: Vec<&str> = calls.iter().map(|logged| logged.call.action.as_str()).collect();
        let at = |action: &str| calls.iter().position(|call| *call == action);
        let last = calls.iter().rposition(|call| *call == "RevokeSecurityGroupIngress");
        assert!(at("AuthorizeSecurityGroupIngress") < last, "{key}: {calls:?}");
        // Nothing is left to do, and nothing more is let in by asking for it.
        fake.clear_calls();
        plane.ranges = None;
        let report = blocked(&provider, &with(&plane, key, value)).await;
        assert_eq!(fake.mutating_calls(), 0, "{key}: {:?}", fake.counts());
        assert_eq!(report.admitted, Some(ranges(&["10.0.0.0/9"])), "{key}");
        plane.ranges = Some(Vec::new());
        assert_eq!(
            blocked(&provider, &with(&plane, key, value)).await.admitted,
            Some(AddressSet::nobody()),
            "{key}"
        );
        assert_eq!(lets_in(&fake), texts(&[]), "{key}");
        // Once it is right, all is as asked.
        plane.ranges = None;
        for _ in 0..6 {
            assert_eq!(provider.sync(&plane.want("demo")).await.outcome, Outcome::Done);
            time.pass(&fake, 5);
        }
        assert_eq!(listens_on(&fake), [443, 9443].into(), "{key}");
        assert!(lets_in(&fake).contains("tcp 9443-9443 0.0.0.0/0"), "{key}: {:?}", lets_in(&fake));
    }
}

/// The same where AWS refuses what is asked for. What it lets us do is done.
#[tokio::test]
async fn what_is_not_asked_for_is_closed_whatever_aws_refuses() {
    for action in ["RegisterTargets", "CreateTargetGroup", "CreateListener", "DescribeSubnets"] {
        let (fake, time) = (slow(|_| ()), Time::new());
        let mut plane = made(&fake, &time).await;
        let provider = provider(&fake, &time);
        plane.ports = vec![(443, 6443), (9443, 7443)];
        plane.members.push(("three", "i-3", Duty::Serve));
        plane.ranges = Some(vec!["10.0.0.0/9", "198.51.100.0/24"]);
        fake.deny(action);
        blocked(&provider, &plane.want("demo")).await;
        assert_eq!(listens_on(&fake), [443].into(), "{action}");
        let found = lets_in(&fake);
        assert!(found.contains("tcp 443-443 10.0.0.0/9"), "{action}: {found:?}");
        for closed in ["10.0.0.0/8", "192.0.2.0/24", "8443"] {
            assert!(!found.iter().any(|rule| rule.contains(closed)), "{action}: {found:?}");
        }
    }
}

/// The port that all clients use is not closed before there is another one.
#[tokio::test]
async fn clients_are_not_left_without_any_listener() {
    let (fake, time) = (slow(|_| ()), Time::new());
    let mut plane = made(&fake, &time).await;
    let provider = provider(&fake, &time);
    plane.ports = vec![(6443, 6443)];
    plane.ranges = Some(vec!["10.0.0.0/9"]);
    fake.deny("CreateListener");
    let report = blocked(&provider, &plane.want("demo")).await;
    assert_eq!(listens_on(&fake), [443, 8443].into());
    let found = lets_in(&fake);
    assert!(found.contains("tcp 443-443 10.0.0.0/9"), "{found:?}");
    assert!(!found.iter().any(|rule| rule.contains("10.0.0.0/8")), "ranges become narrower: {found:?}");
    let Outcome::Blocked(problem) = report.outcome else { panic!() };
    assert!(
        problem.state.ends_with("; ports 443, 8443 stay until there are listeners in their place."),
        "{problem}"
    );
    assert!(
        problem.state.starts_with("What was there before is still there"),
        "what is exact stays: {problem}"
    );
    fake.allow("CreateListener");
    for _ in 0..6 {
        assert_eq!(provider.sync(&plane.want("demo")).await.outcome, Outcome::Done);
        time.pass(&fake, 5);
    }
    assert_eq!(listens_on(&fake), [6443].into());
}

/// Others that are there are no replacement: they lead elsewhere.
#[tokio::test]
async fn a_listener_stays_until_there_is_one_in_its_place() {
    type Ports = &'static [(u16, u16)];
    let cases: [(&str, Ports, Ports, &[u16]); 4] = [
        (
            "another port",
            &[(6443, 6443), (22623, 22623), (9345, 9345)],
            &[(443, 6443), (22623, 22623)],
            &[6443, 22623],
        ),
        ("ports change places", &[(6443, 6443), (443, 9345)], &[(443, 6443)], &[443, 6443]),
        (
            "members listen elsewhere, too",
            &[(6443, 6443), (22623, 22623)],
            &[(443, 8443), (22623, 22623)],
            &[6443, 22623],
        ),
        ("one that is not the first", &[(6443, 6443), (22623, 22623)], &[(6443, 6443), (443, 8443)], &[6443]),
    ];
    for (case, before, after, stay) in cases {
        let (fake, time) = (slow(|_| ()), Time::new());
        let mut plane = Plane { ports: before.to_vec(), ..Plane::default() };
        let first = provider(&fake, &time);
        for _ in 0..6 {
            assert_eq!(first.sync(&plane.want("demo")).await.outcome, Outcome::Done, "{case}");
            time.pass(&fake, 5);
        }
        let provider = provider(&fake, &time);
        plane.ports = after.to_vec();
        plane.ranges = Some(vec!["10.0.0.0/9"]);
        fake.deny("CreateListener");
        fake.deny("ModifyListener");
        for _ in 0..2 {
            let report = blocked(&provider, &plane.want("demo")).await;
            assert_eq!(listens_on(&fake), stay.iter().copied().collect(), "{case}");
            let found = lets_in(&fake);
            assert!(found.contains("tcp 6443-6443 10.0.0.0/9"), "{case}: {found:?}");
            assert!(!found.iter().any(|rule| rule.contains("0.0.0.0/0")), "{case}: {found:?}");
            let Outcome::Blocked(problem) = report.outcome else { panic!() };
            let told = problem.state.ends_with("; port 6443 stays until there is a listener in its place.");
            assert_eq!(told, !after.contains(&(6443, 6443)), "{case}: {problem}");
        }
        fake.allow("CreateListener");
        fake.allow("ModifyListener");
        for _ in 0..6 {
            assert_eq!(provider.sync(&plane.want("demo")).await.outcome, Outcome::Done, "{case}");
            time.pass(&fake, 5);
        }
        assert_eq!(listens_on(&fake), after.iter().map(|(port, _)| *port).collect(), "{case}");
    }
}

/// What cannot be narrowed without keeping out who may get in stays, and is told as it is.
#[tokio::test]
async fn who_may_get_in_is_not_kept_out_by_that() {
    let (fake, time) = (slow(|_| ()), Time::new());
    let mut plane = made(&fake, &time).await;
    let provider = provider(&fake, &time);
    plane.ranges = Some(vec!["10.0.0.0/9"]);
    fake.deny("AuthorizeSecurityGroupIngress");
    let wrong = with(&plane, "name", "-a");
    blocked(&provider, &wrong).await;
    let found = lets_in(&fake);
    assert!(found.contains("tcp 443-443 10.0.0.0/8"), "{found:?}");
    assert!(!found.iter().any(|rule| rule.contains("192.0.2.0/24")), "{found:?}");
    fake.allow("AuthorizeSecurityGroupIngress");
    let report = blocked(&provider, &wrong).await;
    assert_eq!(report.admitted, Some(ranges(&["10.0.0.0/9"])));
    assert_eq!(report.members.iter().filter(|one| one.state == MemberState::Active).count(), 2);
}

/// Services, of whose members nobody is told, are left as they are until what is wrong is right.
#[tokio::test]
async fn services_wait() {
    let fake = fake(|_| ());
    let provider = account(&fake).provider("Managed");
    let before = Service { ranges: Some(vec!["10.0.0.0/8"]), ..Service::default() };
    assert_eq!(provider.sync(&before.want("web")).await.outcome, Outcome::Done);
    fake.clear_calls();
    let wrong =
        Service { ranges: Some(vec!["10.0.0.0/9"]), annotations: vec![("name", "-a")], ..Service::default() };
    blocked(&provider, &wrong.want("web")).await;
    assert_eq!(fake.mutating_calls(), 0, "{:?}", fake.counts());
}
