//! Members that somebody waits for: how they come, and when they may go.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use portcullis_aws::{Clock, HOLD, Limits, MemberReports, NodeRules, PREFIX, Provider};
use portcullis_aws_fake::{Config, Fake, Fault, Target as FakeTarget, World};
use portcullis_core::{
    Admission, Duty, EmptyMeans, Family, HealthCheck, HealthPort, Listener, ListenerProtocol, LoadBalancer,
    Member, MemberState, Outcome, Owner, Probe, Provider as _, Report, Scheme, SourceRanges, Target, Want,
};

use crate::scene::{account, fake};

/// The time of a test, which goes on when it says so: that of AWS and ours.
#[derive(Clone)]
pub(crate) struct Time(Arc<Mutex<SystemTime>>);

impl Time {
    pub(crate) fn new() -> Self {
        Time(Arc::new(Mutex::new(SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000))))
    }

    pub(crate) fn now(&self) -> SystemTime {
        *self.0.lock().unwrap()
    }

    pub(crate) fn pass(&self, fake: &Fake, seconds: u64) {
        let time = Duration::from_secs(seconds);
        fake.pass(time);
        *self.0.lock().unwrap() += time;
    }

    pub(crate) fn clock(&self) -> Clock {
        let time = self.clone();
        Clock::new(move || time.now())
    }
}

/// A provider that knows nothing yet, as after a start.
pub(crate) fn provider(fake: &Fake, time: &Time) -> Provider {
    let (client, mut settings) = account(fake).parts(Limits::none(), "NLBSecurityGroupMode = Managed");
    settings.members = MemberReports::Each;
    settings.node_rules = NodeRules::Exact;
    settings.identity = Some("first".to_owned());
    Provider::with_clock(client, settings, time.clock())
}

pub(crate) fn owner(name: &str) -> Owner {
    Owner::new("demo", "AWSNLB", Some("fleet".into()), name).unwrap()
}

/// The load balancer of a control plane.
#[derive(Clone)]
pub(crate) struct Plane<'a> {
    /// Ports, and where they lead.
    pub(crate) ports: Vec<(u16, u16)>,
    /// Names of members, with an instance or an address, and what they are to do.
    pub(crate) members: Vec<(&'a str, &'a str, Duty)>,
    pub(crate) ranges: Option<Vec<&'a str>>,
    pub(crate) kind: &'a str,
    /// Seconds that AWS drains for.
    pub(crate) drain: u64,
    pub(crate) hold: Option<u64>,
    /// Interval, timeout and both thresholds.
    pub(crate) check: (u64, u64, u8, u8),
}

impl Default for Plane<'_> {
    fn default() -> Self {
        Plane {
            ports: vec![(443, 6443)],
            members: vec![("one", "i-1", Duty::Serve), ("two", "i-2", Duty::Serve)],
            ranges: None,
            kind: "instance",
            drain: 150,
            hold: None,
            check: (5, 4, 2, 3),
        }
    }
}

impl Plane<'_> {
    pub(crate) fn want(&self, name: &str) -> Want {
        let (interval, timeout, healthy, unhealthy) = self.check;
        let check = HealthCheck::new(Probe::Https { path: "/readyz".into() }, HealthPort::Traffic).unwrap();
        let check = check.with_timing(Duration::from_secs(interval), Duration::from_secs(timeout)).unwrap();
        let check = check.with_thresholds(healthy, unhealthy).unwrap();
        let listeners = self.ports.iter().map(|(port, to)| {
            let listener = Listener::new(*port, ListenerProtocol::Tcp, *to).unwrap();
            listener.with_health_check(check.clone())
        });
        let members: Vec<Member> = self
            .members
            .iter()
            .zip(1_u8..)
            .map(|((name, place, duty), number)| {
                // An instance, an address, or an instance with its address.
                let (instance, address) = match place.split_once('@') {
                    Some((instance, address)) => (Some(instance), address.parse().unwrap()),
                    None => place.parse().map_or_else(
                        |_| (Some(*place), IpAddr::from([10, 0, 1, 100 + number])),
                        |address| (None, address),
                    ),
                };
                let member = Member::new(*name, [address]).unwrap();
                let member = match instance {
                    Some(id) => member.with_reference(format!("aws:///eu-central-1a/{id}")),
                    None => member,
                };
                member.with_duty(*duty)
            })
            .collect();
        let ranges = SourceRanges::parse(self.ranges.clone()).unwrap();
        let admission = Admission { ranges, empty_means: EmptyMeans::Nobody };
        let wanted = LoadBalancer::new(name, Scheme::Internal, [Family::V4], listeners.collect(), admission);
        let mut parameters = BTreeMap::from([
            (format!("{PREFIX}scheme"), "internal".to_owned()),
            (format!("{PREFIX}nlb-target-type"), self.kind.to_owned()),
            (
                format!("{PREFIX}target-group-attributes"),
                format!("deregistration_delay.timeout_seconds={}", self.drain),
            ),
        ]);
        parameters.extend(self.hold.map(|hold| (HOLD.to_owned(), hold.to_string())));
        Want {
            owner: owner(name),
            uid: "1234".to_owned(),
            target: Target::Present(wanted.unwrap().with_members(members).unwrap()),
            parameters,
            nodes: Arc::default(),
        }
    }
}

/// Where members are: `one active`.
pub(crate) fn states(report: &Report) -> Vec<String> {
    report.members.iter().map(|member| format!("{} {}", member.name, member.state)).collect()
}

fn state(report: &Report, name: &str) -> MemberState {
    report.members.iter().find(|member| member.name == name).unwrap().state
}

fn told(report: &Report, name: &str) -> String {
    let member = report.members.iter().find(|member| member.name == name).unwrap();
    member.told.clone().unwrap_or_default()
}

/// All targets: `i-1:6443 healthy`.
pub(crate) fn targets(world: &World) -> Vec<String> {
    let groups = world.target_groups.values();
    let mut all: Vec<String> = groups
        .flat_map(|group| &group.targets)
        .map(|(id, target)| format!("{}:{} {}", id.id, id.port, target.health))
        .collect();
    all.sort();
    all
}

fn is_target(fake: &Fake, id: &str, is: impl Fn(&FakeTarget) -> bool) -> bool {
    let world = fake.state();
    let mut groups = world.target_groups.values();
    groups.any(|group| group.targets.iter().any(|(target, found)| target.id == id && is(found)))
}

/// As AWS has it: checks take a while, and so does draining.
pub(crate) fn slow(change: impl FnOnce(&mut Config)) -> Fake {
    fake(|config| {
        config.checking = Duration::from_secs(10);
        config.draining = None;
        config.world.add_instance("i-4", "subnet-b", &["sg-nodes"]);
        change(config);
    })
}

/// Has all members be active.
async fn settle(fake: &Fake, provider: &Provider, time: &Time, want: &Want) {
    for _ in 0..6 {
        let report = provider.sync(want).await;
        assert_eq!(report.outcome, Outcome::Done);
        if report.members.iter().all(|member| member.state == MemberState::Active) {
            return;
        }
        time.pass(fake, 5);
    }
    panic!("they do not come to serve: {:?}", targets(&fake.state()));
}

/// Three machines are replaced one by one, as Cluster API does it. At every moment somebody serves, and nobody may go to whom
/// AWS may still send.
#[tokio::test]
async fn a_roll_of_three() {
    let (fake, time) = (
        slow(|config| {
            for id in ["i-5", "i-6"] {
                config.world.add_instance(id, "subnet-b", &["sg-nodes"]);
            }
        }),
        Time::new(),
    );
    let provider = provider(&fake, &time);
    let mut plane = Plane {
        members: vec![("m1", "i-1", Duty::Serve), ("m2", "i-2", Duty::Serve), ("m3", "i-3", Duty::Serve)],
        ..Plane::default()
    };
    settle(&fake, &provider, &time, &plane.want("demo")).await;
    for (new, old) in [(("m4", "i-4"), "i-1"), (("m5", "i-5"), "i-2"), (("m6", "i-6"), "i-3")] {
        plane.members.push((new.0, new.1, Duty::Serve));
        let added = provider.sync(&plane.want("demo")).await;
        assert_eq!(state(&added, new.0), MemberState::Adding);
        settle(&fake, &provider, &time, &plane.want("demo")).await;
        let by = time.now() + Duration::from_secs(300);
        plane.members[0].2 = Duty::Leave { by };
        let (want, name) = (plane.want("demo"), plane.members[0].0);
        let (mut out, mut gone) = (None, None);
        let removed = loop {
            fake.clear_calls();
            let report = provider.sync(&want).await;
            assert_eq!(report.outcome, Outcome::Done);
            let healthy = targets(&fake.state()).iter().filter(|one| one.ends_with(" healthy")).count();
            assert_eq!(healthy, 3, "{:?}", targets(&fake.state()));
            if !is_target(&fake, old, |target| target.health != "draining") {
                out.get_or_insert(time.now());
            }
            if !is_target(&fake, old, |_| true) {
                gone.get_or_insert(time.now());
            }
            if fake.mutating_calls() == 0 {
                assert_eq!(fake.counts(), BTreeMap::from([("DescribeTargetHealth".to_owned(), 1)]));
            }
            if state(&report, name) == MemberState::Removed {
                break time.now();
            }
            assert_eq!(state(&report, name), MemberState::Draining);
            assert!(!told(&report, name).is_empty());
            time.pass(&fake, 5);
        };
        let since = |moment: Option<SystemTime>| removed.duration_since(moment.unwrap()).unwrap().as_secs();
        assert!(since(out) >= 120, "AWS may send new connections for two minutes");
        assert!(since(out) >= 150 && since(gone) <= 5, "it is gone when AWS is done, and no later");
        plane.members.remove(0);
        let without = provider.sync(&plane.want("demo")).await;
        assert_eq!(without.members.len(), 3);
    }
    assert_eq!(targets(&fake.state()), ["i-4:6443 healthy", "i-5:6443 healthy", "i-6:6443 healthy"]);
}

/// What drains at once is held all the same; what somebody is given until bounds it.
#[tokio::test]
async fn it_is_held_after_aws_is_done() {
    for (hold, given, expected) in [(None, 300, 120), (Some(30), 300, 30), (None, 60, 60), (Some(0), 300, 0)]
    {
        let (fake, time) = (slow(|_| ()), Time::new());
        let provider = provider(&fake, &time);
        let mut plane = Plane { drain: 0, hold, ..Plane::default() };
        settle(&fake, &provider, &time, &plane.want("demo")).await;
        plane.members[0].2 = Duty::Leave { by: time.now() + Duration::from_secs(given) };
        let want = plane.want("demo");
        let start = time.now();
        let first = provider.sync(&want).await;
        assert_eq!(state(&first, "one"), MemberState::Draining, "nobody asked AWS since");
        let removed = loop {
            let report = provider.sync(&want).await;
            if state(&report, "one") == MemberState::Removed {
                break time.now();
            }
            let told = told(&report, "one");
            assert!(told.starts_with("AWS may send new connections to it until 2027-"), "{told}");
            // What it is given is less than it would be held for.
            assert_eq!(told.contains(", and its time is over at 2027-"), given < 120, "{told}");
            time.pass(&fake, 5);
        };
        let told = told(&provider.sync(&want).await, "one");
        assert_eq!(told.ends_with(", and its time is over"), given < 120, "{told}");
        assert_eq!(removed.duration_since(start).unwrap().as_secs(), expected, "{hold:?} {given}");
    }
}

#[tokio::test]
async fn its_time_ends_what_drains_too_long() {
    let (fake, time) = (slow(|_| ()), Time::new());
    let provider = provider(&fake, &time);
    let mut plane = Plane { drain: 3600, ..Plane::default() };
    settle(&fake, &provider, &time, &plane.want("demo")).await;
    plane.members[0].2 = Duty::Leave { by: time.now() + Duration::from_secs(200) };
    let want = plane.want("demo");
    provider.sync(&want).await;
    time.pass(&fake, 199);
    let before = provider.sync(&want).await;
    assert_eq!(
        (state(&before, "one"), told(&before, "one").as_str()),
        (MemberState::Draining, "AWS lets its connections end")
    );
    time.pass(&fake, 1);
    assert_eq!(state(&provider.sync(&want).await, "one"), MemberState::Removed);

    // As long as AWS sends to it, no time makes it safe.
    plane.members[1].2 = Duty::Leave { by: time.now() };
    fake.deny("DeregisterTargets");
    let refused = provider.sync(&plane.want("demo")).await;
    assert!(matches!(refused.outcome, Outcome::Blocked(_)), "{:?}", refused.outcome);
    assert_eq!(
        (state(&refused, "two"), told(&refused, "two").as_str()),
        (MemberState::Draining, "it is not deregistered yet")
    );
    fake.allow("DeregisterTargets");
    assert_eq!(state(&provider.sync(&plane.want("demo")).await, "two"), MemberState::Removed);
}

#[tokio::test]
async fn who_rests_comes_back() {
    let (fake, time) = (slow(|_| ()), Time::new());
    let provider = provider(&fake, &time);
    let mut plane = Plane { drain: 20, hold: Some(10), ..Plane::default() };
    settle(&fake, &provider, &time, &plane.want("demo")).await;
    plane.members[1].2 = Duty::Rest { by: time.now() + Duration::from_secs(100) };
    let rest = plane.want("demo");
    assert_eq!(states(&provider.sync(&rest).await), ["one active", "two disabling"]);
    time.pass(&fake, 15);
    assert_eq!(states(&provider.sync(&rest).await), ["one active", "two disabling"]);
    time.pass(&fake, 5);
    assert_eq!(states(&provider.sync(&rest).await), ["one active", "two disabled"]);
    assert_eq!(targets(&fake.state()), ["i-1:6443 healthy"]);
    // Whoever starts anew says so before long, and nothing changes meanwhile.
    let other = self::provider(&fake, &time);
    assert_eq!(states(&other.sync(&rest).await), ["one active", "two disabling"]);
    time.pass(&fake, 10);
    assert_eq!(states(&other.sync(&rest).await), ["one active", "two disabled"]);
    plane.members[1].2 = Duty::Serve;
    let back = provider.sync(&plane.want("demo")).await;
    assert_eq!(states(&back), ["one active", "two adding"]);
    settle(&fake, &provider, &time, &plane.want("demo")).await;
}

#[tokio::test]
async fn what_aws_says_of_them_is_told() {
    let (fake, time) = (slow(|_| ()), Time::new());
    let provider = provider(&fake, &time);
    let plane = Plane { ports: vec![(443, 6443), (8443, 30443)], ..Plane::default() };
    let want = plane.want("demo");
    assert_eq!(states(&provider.sync(&want).await), ["one adding", "two adding"]);
    let asked = provider.sync(&want).await;
    assert_eq!(told(&asked, "one"), "initial: Elb.RegistrationInProgress");
    settle(&fake, &provider, &time, &want).await;
    // Of one port only.
    fake.act_as_someone_else(|world| {
        let group = world.target_groups.values_mut().find(|group| group.port == 30443).unwrap();
        let (_, target) = group.targets.iter_mut().find(|(id, _)| id.id == "i-2").unwrap();
        "unhealthy".clone_into(&mut target.health);
    });
    assert_eq!(provider.look_at_all().await.unwrap(), [owner("demo")], "it is found without anybody asking");
    let ill = provider.sync(&want).await;
    assert_eq!(states(&ill), ["one active", "two adding"]);
    assert_eq!(told(&ill, "two"), "unhealthy: Target.FailedHealthChecks");
    assert_eq!(provider.look_at_all().await.unwrap(), []);

    let strange = Plane {
        members: vec![
            ("one", "i-1", Duty::Serve),
            ("two", "i-2", Duty::Serve),
            ("three", "10.0.1.50", Duty::Serve),
        ],
        ..plane.clone()
    };
    let strange = provider.sync(&strange.want("demo")).await;
    assert_eq!(told(&strange, "three"), "it has no providerID, by which its instance is known");
    assert_eq!(state(&strange, "one"), MemberState::Active, "others are not kept waiting");

    // One that does not run yet is waited for.
    fake.act_as_someone_else(|world| {
        "pending".clone_into(&mut world.instances.get_mut("i-3").unwrap().state);
    });
    let mut more = plane.clone();
    more.members.push(("three", "i-3", Duty::Serve));
    let waits = provider.sync(&more.want("demo")).await;
    assert_eq!(
        (waits.outcome.clone(), told(&waits, "three").as_str()),
        (Outcome::Done, "its instance i-3 does not run")
    );
    fake.act_as_someone_else(|world| {
        "running".clone_into(&mut world.instances.get_mut("i-3").unwrap().state);
    });
    provider.sync(&more.want("demo")).await;
    assert!(is_target(&fake, "i-3", |_| true));
}

#[tokio::test]
async fn who_is_a_target_is_put_right() {
    let (fake, time) = (slow(|config| config.draining = Some(Duration::ZERO)), Time::new());
    let provider = provider(&fake, &time);
    let mut plane = Plane { hold: Some(60), ..Plane::default() };
    settle(&fake, &provider, &time, &plane.want("demo")).await;
    // Somebody takes one out, and puts another one in.
    fake.act_as_someone_else(|world| {
        let group = world.target_groups.values_mut().next().unwrap();
        let (mut id, target) = group.targets.pop_last().unwrap();
        assert_eq!(id.id, "i-2");
        "i-3".clone_into(&mut id.id);
        group.targets.insert(id, target);
    });
    assert_eq!(provider.look_at_all().await.unwrap(), [owner("demo")]);
    let report = provider.sync(&plane.want("demo")).await;
    assert_eq!(states(&report), ["one active", "two adding"]);
    settle(&fake, &provider, &time, &plane.want("demo")).await;
    assert_eq!(targets(&fake.state()), ["i-1:6443 healthy", "i-2:6443 healthy"]);

    // Somebody puts one back that leaves: it goes again, and its time counts anew.
    plane.members[1].2 = Duty::Leave { by: time.now() + Duration::from_secs(1000) };
    let want = plane.want("demo");
    provider.sync(&want).await;
    time.pass(&fake, 50);
    assert_eq!(state(&provider.sync(&want).await, "two"), MemberState::Draining);
    fake.act_as_someone_else(|world| {
        let group = world.target_groups.values_mut().next().unwrap();
        let (id, target) = group.targets.first_key_value().unwrap();
        let (mut id, target) = (id.clone(), target.clone());
        "i-2".clone_into(&mut id.id);
        group.targets.insert(id, target);
    });
    provider.sync(&want).await;
    assert_eq!(targets(&fake.state()), ["i-1:6443 healthy"]);
    time.pass(&fake, 50);
    assert_eq!(state(&provider.sync(&want).await, "two"), MemberState::Draining);
    time.pass(&fake, 10);
    assert_eq!(state(&provider.sync(&want).await, "two"), MemberState::Removed);
}

/// A control plane takes its traffic on 6443, which is no node port: its machines' groups let in that, from its load balancer
/// alone, and as long as they have connections.
#[tokio::test]
async fn machines_are_opened_on_the_port_they_serve() {
    let (fake, time) = (slow(|_| ()), Time::new());
    let provider = provider(&fake, &time);
    let mut plane =
        Plane { ranges: Some(vec!["192.0.2.0/24"]), hold: Some(0), drain: 20, ..Plane::default() };
    settle(&fake, &provider, &time, &plane.want("demo")).await;
    let world = fake.state();
    let own = world.load_balancers.values().next().unwrap().groups.clone();
    let group = &world.groups[own.iter().next().unwrap()];
    let nodes: Vec<String> =
        world.groups["sg-nodes"].lets_in().iter().map(|rule| format!("{rule:?}")).collect();
    assert_eq!(nodes.len(), 1, "{nodes:?}");
    assert!(nodes[0].contains("6443") && nodes[0].contains(own.iter().next().unwrap().as_str()), "{nodes:?}");
    let clients = format!("{:?}", group.lets_in());
    assert!(
        clients.contains("192.0.2.0/24") && clients.contains("443") && !clients.contains("6443"),
        "{clients}"
    );
    let out = format!("{:?}", group.lets_out());
    assert!(out.contains("6443") && out.contains("sg-nodes"), "{out}");
    let pool = world.target_groups.values().next().unwrap();
    let check = format!("{:?}", pool.health_check);
    for part in ["HTTPS", "/readyz", "traffic-port", "interval: 5", "timeout: 4"] {
        assert!(check.contains(part), "{part}: {check}");
    }

    // The last one that leaves has connections: it is let in until it is gone.
    let by = time.now() + Duration::from_secs(600);
    plane.members.iter_mut().for_each(|member| member.2 = Duty::Leave { by });
    assert_eq!(provider.sync(&plane.want("demo")).await.outcome, Outcome::Done);
    assert_eq!(targets(&fake.state()), ["i-1:6443 draining", "i-2:6443 draining"]);
    assert_eq!(fake.state().groups["sg-nodes"].lets_in().len(), 1);
    time.pass(&fake, 20);
    assert_eq!(states(&provider.sync(&plane.want("demo")).await), ["one removed", "two removed"]);
    plane.members.clear();
    assert_eq!(provider.sync(&plane.want("demo")).await.outcome, Outcome::Done);
    assert!(fake.state().groups["sg-nodes"].lets_in().is_empty());

    // Nobody at all.
    plane.ranges = Some(Vec::new());
    assert_eq!(provider.sync(&plane.want("demo")).await.outcome, Outcome::Done);
    assert!(fake.state().groups[own.iter().next().unwrap()].lets_in().is_empty());
}

/// Machines that are not of EC2, beside some that are.
#[tokio::test]
async fn addresses_outside_of_the_vpc() {
    let (fake, time) = (slow(|_| ()), Time::new());
    let provider = provider(&fake, &time);
    let mut plane = Plane {
        kind: "ip",
        members: vec![("one", "172.16.5.1", Duty::Serve), ("two", "172.16.5.2", Duty::Serve)],
        drain: 20,
        hold: Some(0),
        ..Plane::default()
    };
    settle(&fake, &provider, &time, &plane.want("demo")).await;
    let report = provider.sync(&plane.want("demo")).await;
    assert!(report.told.is_empty(), "{:?}", report.told);
    let world = fake.state();
    assert_eq!(targets(&world), ["172.16.5.1:6443 healthy", "172.16.5.2:6443 healthy"]);
    let pool = world.target_groups.values().next().unwrap();
    assert!(pool.targets.values().all(|target| target.zone.as_deref() == Some("all")), "{:?}", pool.targets);
    assert!(format!("{:?}", pool.health_check).contains("/readyz"), "{:?}", pool.health_check);
    assert!(world.groups["sg-nodes"].lets_in().is_empty(), "there is nothing to open");
    let out = |fake: &Fake| {
        let world = fake.state();
        let balancer = world.load_balancers.values().next().unwrap();
        format!("{:?}", world.groups[balancer.groups.iter().next().unwrap()].lets_out())
    };
    assert!(out(&fake).contains("172.16.5.1/32") && out(&fake).contains("6443"), "{}", out(&fake));

    // One that AWS would refuse keeps nobody out, and one of the VPC is opened where it runs.
    plane.members.push(("three", "198.51.100.7", Duty::Serve));
    plane.members.push(("four", "i-4@10.0.2.9", Duty::Serve));
    let report = provider.sync(&plane.want("demo")).await;
    assert_eq!(report.outcome, Outcome::Done);
    assert!(told(&report, "three").contains("to none of 198.51.100.7"), "{}", told(&report, "three"));
    assert!(is_target(&fake, "10.0.2.9", |target| target.zone.as_deref() == Some("eu-central-1b")));
    assert_eq!(fake.state().groups["sg-nodes"].lets_in().len(), 1);
    plane.members.remove(2);

    plane.members[0].2 = Duty::Leave { by: time.now() + Duration::from_secs(600) };
    let leaving = provider.sync(&plane.want("demo")).await;
    assert_eq!(state(&leaving, "one"), MemberState::Draining);
    assert!(out(&fake).contains("172.16.5.1/32"), "what it has goes on");
    time.pass(&fake, 20);
    assert_eq!(state(&provider.sync(&plane.want("demo")).await, "one"), MemberState::Removed);
    plane.members.remove(0);
    assert_eq!(provider.sync(&plane.want("demo")).await.outcome, Outcome::Done);
    assert!(!out(&fake).contains("172.16.5.1/32"));
}

#[tokio::test]
async fn checks_are_within_what_aws_does() {
    let (fake, time) = (slow(|_| ()), Time::new());
    let provider = provider(&fake, &time);
    let plane = Plane { check: (2, 1, 1, 20), ..Plane::default() };
    let report = provider.sync(&plane.want("demo")).await;
    assert_eq!(report.outcome, Outcome::Done);
    assert_eq!(
        report.told,
        [
            "the health check of port 443 has the interval 5 instead of 2: AWS has limits",
            "the health check of port 443 has the timeout 2 instead of 1: AWS has limits",
            "the health check of port 443 has the healthy threshold 2 instead of 1: AWS has limits",
            "the health check of port 443 has the unhealthy threshold 10 instead of 20: AWS has limits",
        ]
    );
}

/// The process is killed at each call in turn while members leave and come. Whoever comes next goes on from there: nobody is
/// let go too early, somebody always serves, and it ends where it would have ended.
#[tokio::test]
async fn killed_anywhere_in_a_drain() {
    let mut plane = Plane {
        members: vec![("m1", "i-1", Duty::Serve), ("m2", "i-2", Duty::Serve), ("m3", "i-3", Duty::Serve)],
        ports: vec![(443, 6443), (8443, 30443)],
        ..Plane::default()
    };
    let (fake, time) = (slow(|config| config.checking = Duration::ZERO), Time::new());
    settle(&fake, &provider(&fake, &time), &time, &plane.want("demo")).await;
    let before = fake.state();
    for kill in 1.. {
        fake.act_as_someone_else(|world| world.clone_from(&before));
        let by = time.now() + Duration::from_secs(400);
        plane.members.truncate(3);
        plane.members[0].2 = Duty::Leave { by };
        plane.members.push(("m4", "i-4", Duty::Serve));
        let want = plane.want("demo");
        let mut left = kill;
        fake.faults(move |_| match left {
            0 => Fault::DropBefore,
            1 => {
                left = 0;
                Fault::DropAfter
            }
            _ => {
                left -= 1;
                Fault::None
            }
        });
        let report = provider(&fake, &time).sync(&want).await;
        let is_over = report.outcome == Outcome::Done;
        fake.clear_faults();
        assert!(report.members.iter().all(|member| member.state != MemberState::Removed));
        let mut out = None;
        for _ in 0..100 {
            // Another process each time: none remembers anything.
            let next = provider(&fake, &time);
            let report = next.sync(&want).await;
            let healthy = targets(&fake.state()).iter().filter(|one| one.ends_with(" healthy")).count();
            assert!(healthy >= 4, "kill {kill}: {:?}", targets(&fake.state()));
            if !is_target(&fake, "i-1", |target| target.health != "draining") {
                out.get_or_insert(time.now());
            }
            if state(&report, "m1") == MemberState::Removed {
                break;
            }
            time.pass(&fake, 20);
        }
        let held = time.now().duration_since(out.unwrap()).unwrap().as_secs();
        assert!((120..=420).contains(&held), "kill {kill}: {held}");
        assert!(!is_target(&fake, "i-1", |_| true), "kill {kill}");
        let ends = [
            "i-2:30443 healthy",
            "i-2:6443 healthy",
            "i-3:30443 healthy",
            "i-3:6443 healthy",
            "i-4:30443 healthy",
            "i-4:6443 healthy",
        ];
        assert_eq!(targets(&fake.state()), ends, "kill {kill}");
        if is_over {
            assert!(kill > 6, "there are calls to be killed at: {kill}");
            return;
        }
    }
}

#[tokio::test]
async fn what_could_not_be_asked_changes_nothing_that_is_known() {
    let (fake, time) = (slow(|_| ()), Time::new());
    let provider = provider(&fake, &time);
    let plane = Plane::default();
    settle(&fake, &provider, &time, &plane.want("demo")).await;
    fake.deny("DescribeTargetHealth");
    let report = provider.sync(&plane.want("demo")).await;
    assert!(matches!(report.outcome, Outcome::Blocked(_)));
    assert_eq!(states(&report), ["one active", "two active"]);
    assert_eq!(provider.look_at_all().await.unwrap(), []);
}

/// Who asks for nothing of the kind is told nothing, and nothing is asked of AWS for it.
#[tokio::test]
async fn services_are_told_of_nobody() {
    let fake = slow(|_| ());
    let provider = account(&fake).provider("Managed");
    let want = crate::scene::Service::default().want("web");
    let report = provider.sync(&want).await;
    assert!(report.outcome == Outcome::Done && report.members.is_empty());
    fake.clear_calls();
    provider.sync(&want).await;
    provider.look_at_all().await.unwrap();
    assert!(!fake.counts().contains_key("DescribeTargetHealth"), "{:?}", fake.counts());
}

/// Whoever starts while AWS refuses everything knows nothing: that its time is over lets nobody go.
#[tokio::test]
async fn before_aws_was_looked_at_nobody_is_gone() {
    let (fake, time) = (slow(|_| ()), Time::new());
    let mut plane = Plane::default();
    settle(&fake, &provider(&fake, &time), &time, &plane.want("demo")).await;
    plane.members[0].2 = Duty::Leave { by: time.now() - Duration::from_secs(60) };
    plane.members[1].2 = Duty::Rest { by: time.now() - Duration::from_secs(60) };
    let want = plane.want("demo");
    fake.faults(|_| Fault::DropBefore);
    let fresh = provider(&fake, &time);
    for _ in 0..2 {
        let report = fresh.sync(&want).await;
        assert_ne!(report.outcome, Outcome::Done);
        assert!(report.members.is_empty(), "{:?}", states(&report));
    }
    assert!(fresh.look_at_all().await.is_err());
    fake.clear_faults();
    assert_eq!(states(&fresh.sync(&want).await), ["one removed", "two disabled"]);
    assert_eq!(targets(&fake.state()), ["i-1:6443 draining", "i-2:6443 draining"]);
}

/// Whatever stands in the way of what is wanted, who leaves is deregistered, and gone when AWS is done with it.
#[tokio::test]
async fn who_leaves_does_not_wait_for_what_is_blocked() {
    type Block = fn(&Fake, &mut Plane<'static>, &mut BTreeMap<String, String>);
    let blocks: [(&str, Block); 8] = [
        ("a parameter cannot be understood", |_, _, said| {
            said.insert(format!("{PREFIX}ip-address-type"), "none".to_owned());
        }),
        ("a group is not there", |_, _, said| {
            said.insert(format!("{PREFIX}security-groups"), "sg-none".to_owned());
        }),
        ("there are too many rules", |_, plane, _| {
            plane.ports = (0..120).map(|number| (1000 + number, 6443)).collect();
            plane.ranges = Some(vec!["192.0.2.0/26", "198.51.100.0/26", "203.0.113.0/26", "10.0.0.0/26"]);
        }),
        ("nobody else can be registered", |fake, plane, _| {
            plane.members.push(("three", "i-3", Duty::Serve));
            fake.deny("RegisterTargets");
        }),
        ("rules are refused", |fake, plane, _| {
            plane.ranges = Some(vec!["192.0.2.0/24"]);
            plane.ports.push((8443, 30443));
            fake.deny("AuthorizeSecurityGroupIngress");
            fake.deny("AuthorizeSecurityGroupEgress");
        }),
        ("subnets cannot be seen", |fake, plane, _| {
            plane.members.push(("three", "i-3", Duty::Serve));
            fake.deny("DescribeSubnets");
            fake.deny("DescribeInstances");
        }),
        ("targets of another kind cannot be made", |fake, plane, _| {
            plane.kind = "ip";
            fake.deny("CreateTargetGroup");
        }),
        ("its load balancer is gone, and its subnet is not there", |fake, _, said| {
            fake.act_as_someone_else(|world| world.load_balancers.clear());
            said.insert(format!("{PREFIX}subnets"), "subnet-none".to_owned());
        }),
    ];
    for (case, block) in blocks {
        let (fake, time) = (slow(|_| ()), Time::new());
        let mut plane = Plane { hold: Some(0), drain: 20, ..Plane::default() };
        settle(&fake, &provider(&fake, &time), &time, &plane.want("demo")).await;
        // Whoever starts anew has only what AWS says.
        let provider = provider(&fake, &time);
        plane.members[1].2 = Duty::Leave { by: time.now() + Duration::from_secs(600) };
        let mut said = BTreeMap::new();
        block(&fake, &mut plane, &mut said);
        let mut want = plane.want("demo");
        want.parameters.extend(said);
        let report = provider.sync(&want).await;
        assert!(matches!(report.outcome, Outcome::Blocked(_)), "{case}: {:?}", report.outcome);
        assert!(!is_target(&fake, "i-2", |target| target.health != "draining"), "{case}");
        assert_eq!(state(&report, "two"), MemberState::Draining, "{case}");
        time.pass(&fake, 20);
        let report = provider.sync(&want).await;
        assert!(matches!(report.outcome, Outcome::Blocked(_)), "{case}: {:?}", report.outcome);
        assert_eq!(state(&report, "two"), MemberState::Removed, "{case}: {}", told(&report, "two"));
        assert!(is_target(&fake, "i-1", |target| target.health != "draining"), "{case}: others stay");
    }
}

/// Machines that are no instances are asked for as instances: nobody could be sent to, so those that there are go on being sent to, and
/// who leaves them is waited for.
#[tokio::test]
async fn a_kind_that_nobody_is_of_leaves_nobody_without_targets() {
    let (fake, time) = (slow(|_| ()), Time::new());
    let mut plane = Plane {
        kind: "ip",
        members: vec![("one", "172.16.5.1", Duty::Serve), ("two", "172.16.5.2", Duty::Serve)],
        drain: 20,
        hold: Some(60),
        ..Plane::default()
    };
    settle(&fake, &provider(&fake, &time), &time, &plane.want("demo")).await;
    let sends_to = |fake: &Fake| {
        let world = fake.state();
        let balancer = world.load_balancers.values().next().unwrap();
        let group = balancer.listeners.values().next().unwrap().target_group.clone();
        let targets = &world.target_groups[&group].targets;
        targets.iter().map(|(id, target)| format!("{} {}", id.id, target.health)).collect::<Vec<_>>()
    };
    let other = provider(&fake, &time);
    plane.kind = "instance";
    let report = other.sync(&plane.want("demo")).await;
    let Outcome::Blocked(problem) = report.outcome else { panic!("{:?}", report.outcome) };
    assert!(problem.what.contains("port 443 would be left without targets"), "{problem}");
    assert!(problem.remedy.contains("spec.targetType"), "{problem}");
    assert_eq!(sends_to(&fake), ["172.16.5.1 healthy", "172.16.5.2 healthy"]);

    plane.members[0].2 = Duty::Leave { by: time.now() + Duration::from_secs(600) };
    for (passed, expected) in [(0, "draining"), (20, "draining"), (39, "draining"), (1, "removed")] {
        time.pass(&fake, passed);
        let report = other.sync(&plane.want("demo")).await;
        assert_eq!(state(&report, "one").to_string(), expected, "{}", told(&report, "one"));
        assert!(!is_target(&fake, "172.16.5.1", |target| target.health != "draining"));
    }
    assert_eq!(sends_to(&fake), ["172.16.5.2 healthy"]);

    plane.members.remove(0);
    plane.kind = "ip";
    settle(&fake, &other, &time, &plane.want("demo")).await;
    assert_eq!(fake.state().target_groups.len(), 1);
    // Once there are some of that kind, they are sent to.
    plane.kind = "instance";
    plane.members.push(("three", "i-3", Duty::Serve));
    for _ in 0..3 {
        assert_eq!(other.sync(&plane.want("demo")).await.outcome, Outcome::Done);
        time.pass(&fake, 10);
    }
    assert_eq!(sends_to(&fake), ["i-3 healthy"]);
}

/// A member that never comes takes a call every minute, and not one every five seconds; news are noticed soon.
#[tokio::test]
async fn who_does_not_come_is_asked_for_less_and_less() {
    let (fake, time) = (slow(|_| ()), Time::new());
    let provider = provider(&fake, &time);
    let plane = Plane::default();
    settle(&fake, &provider, &time, &plane.want("demo")).await;
    let have = |health: &'static str| {
        fake.act_as_someone_else(move |world| {
            let group = world.target_groups.values_mut().next().unwrap();
            let (_, target) = group.targets.iter_mut().find(|(id, _)| id.id == "i-2").unwrap();
            health.clone_into(&mut target.health);
        });
    };
    have("unhealthy");
    let want = plane.want("demo");
    // As whoever waits for members does it.
    let wait = async |seconds: u64| {
        fake.clear_calls();
        for _ in 0..seconds / 5 {
            provider.sync(&want).await;
            time.pass(&fake, 5);
        }
        fake.counts().values().sum::<usize>()
    };
    assert_eq!(states(&provider.sync(&want).await), ["one active", "two adding"]);
    assert_eq!(wait(20).await, 4, "at first each time");
    wait(280).await;
    assert_eq!(wait(600).await, 10, "then once in a minute");
    have("healthy");
    wait(60).await;
    assert_eq!(states(&provider.sync(&want).await), ["one active", "two active"]);

    // One whose instance does not run, either.
    fake.act_as_someone_else(|world| {
        "stopped".clone_into(&mut world.instances.get_mut("i-2").unwrap().state);
    });
    have("unused");
    provider.look_at_all().await.unwrap();
    wait(300).await;
    let calls = wait(600).await;
    assert!(calls <= 20, "{calls}: {:?}", fake.counts());
    // Who wants something else hears at once.
    let mut more = plane.clone();
    more.members.push(("three", "i-3", Duty::Serve));
    provider.sync(&more.want("demo")).await;
    time.pass(&fake, 10);
    assert_eq!(state(&provider.sync(&more.want("demo")).await, "three"), MemberState::Active);
    // Who leaves is followed closely.
    more.members[0].2 = Duty::Leave { by: time.now() + Duration::from_secs(600) };
    let want = more.want("demo");
    fake.clear_calls();
    for _ in 0..20 {
        provider.sync(&want).await;
        time.pass(&fake, 5);
    }
    assert!(fake.counts()["DescribeTargetHealth"] >= 20, "{:?}", fake.counts());
}

/// Whoever wrote fields of an AWSNLB is told of these, and of no annotation.
#[tokio::test]
async fn what_is_wrong_is_named_as_it_was_written() {
    for (key, value, field) in [
        ("ip-address-type", "none", "spec.ipAddressType"),
        ("name", "-a", "spec.name"),
        ("scheme", "sideways", "spec.scheme"),
        ("subnets", "subnet-none", "spec.subnets"),
        ("security-groups", "sg-none", "spec.securityGroups"),
        ("security-groups", "sg-a,sg-b,sg-c,sg-d,sg-e,sg-f", "spec.securityGroups"),
        ("eip-allocations", "eipalloc-1", "spec.elasticAddresses"),
        ("additional-resource-tags", "aws:a=b", "spec.tags"),
        ("attributes", "access_logs.s3.enabled=maybe", "spec.attributes"),
        ("nlb-target-type", "pod", "spec.targetType"),
    ] {
        let (fake, time) = (slow(|_| ()), Time::new());
        let mut want = Plane::default().want("demo");
        want.parameters.insert(format!("{PREFIX}{key}"), value.to_owned());
        let report = provider(&fake, &time).sync(&want).await;
        let Outcome::Blocked(problem) = report.outcome else { panic!("{key}: {:?}", report.outcome) };
        let words = problem.to_string();
        assert!(words.contains(&format!("{field} ")), "{key}: {words}");
        for wrong in ["annotation", "service.beta", "Service"] {
            assert!(!words.contains(wrong), "{key}: {words}");
        }
        assert_eq!(fake.mutating_calls(), 0, "{key}");
    }
    // What cannot be changed.
    let (fake, time) = (slow(|_| ()), Time::new());
    let provider = provider(&fake, &time);
    let mut want = Plane::default().want("demo");
    settle(&fake, &provider, &time, &want).await;
    want.parameters.insert(format!("{PREFIX}scheme"), "internet-facing".to_owned());
    want.parameters.insert(format!("{PREFIX}eip-allocations"), "eipalloc-1".to_owned());
    let told = provider.sync(&want).await.told.join("\n");
    let again = "; make another AWSNLB and have the LoadBalancer use that to change that";
    assert!(told.contains(&format!("is internal and cannot become internet-facing{again}")), "{told}");
    assert!(told.contains(&format!("whatever spec.elasticAddresses says{again}")), "{told}");
}
