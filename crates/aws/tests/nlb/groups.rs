//! Which groups a load balancer has: by the mode, by the annotation, and by how it was made.

use portcullis_aws_fake::{Fake, Peer, Permission};
use portcullis_core::{Enforcement, Outcome, Provider as _};

use crate::held::{self, SHARED};
use crate::scene::{Service, account, fake, gone, owner};
use crate::strict::is_untouched;

/// What is there before.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Before {
    Nothing,
    WithGroups,
    WithoutGroups,
}
use Before::{Nothing, WithGroups, WithoutGroups};

/// What clients and checks need of the nodes where a load balancer has no group.
const CLIENTS: [&str; 4] = [
    "icmp 3-4 192.0.2.0/24",
    "tcp 30080-30080 10.0.1.0/24",
    "tcp 30080-30080 10.0.2.0/24",
    "tcp 30080-30080 192.0.2.0/24",
];

const MANAGED: [&str; 2] = ["backend", "own"];
const GIVEN: [&str; 2] = ["backend", "user"];
const WITHOUT: [&str; 0] = [];

/// A load balancer that was made without groups, and now should have one.
const NO_GROUP: &str = "it has no security group: ";
const NOT_USED: &str =
    "the groups of annotation service.beta.kubernetes.io/aws-load-balancer-security-groups cannot be used: ";

fn service(given: Option<&'static str>) -> Service<'static> {
    Service {
        ranges: Some(vec!["192.0.2.0/24"]),
        annotations: given.into_iter().map(|groups| ("security-groups", groups)).collect(),
        ..Service::default()
    }
}

async fn prepare(fake: &Fake, before: Before) {
    let mode = match before {
        Nothing => return,
        WithGroups => "Managed",
        WithoutGroups => "Unmanaged",
    };
    let report = account(fake).provider(mode).sync(&service(None).want("web")).await;
    assert_eq!(report.outcome, Outcome::Done);
}

#[tokio::test]
async fn mode_and_annotation_and_what_is_there_decide() {
    // The mode; whether the Service names groups; what is there before; what the load balancer has after; what is told.
    let rows: [(&str, bool, Before, &[&str], &str); 18] = [
        ("Managed", false, Nothing, &MANAGED, ""),
        ("Managed", false, WithGroups, &MANAGED, ""),
        ("Managed", false, WithoutGroups, &WITHOUT, NO_GROUP),
        ("Managed", true, Nothing, &GIVEN, ""),
        ("Managed", true, WithGroups, &GIVEN, ""),
        ("Managed", true, WithoutGroups, &WITHOUT, NOT_USED),
        ("Unmanaged", false, Nothing, &WITHOUT, ""),
        ("Unmanaged", false, WithGroups, &MANAGED, ""),
        ("Unmanaged", false, WithoutGroups, &WITHOUT, ""),
        ("Unmanaged", true, Nothing, &GIVEN, ""),
        ("Unmanaged", true, WithGroups, &GIVEN, ""),
        ("Unmanaged", true, WithoutGroups, &WITHOUT, NOT_USED),
        ("", false, Nothing, &WITHOUT, ""),
        ("", false, WithGroups, &MANAGED, ""),
        ("", false, WithoutGroups, &WITHOUT, ""),
        ("", true, Nothing, &GIVEN, ""),
        ("", true, WithGroups, &GIVEN, ""),
        ("", true, WithoutGroups, &WITHOUT, NOT_USED),
    ];
    for (mode, given, before, groups, told) in rows {
        let row = format!("mode `{mode}`, groups given: {given}, before: {before:?}");
        let fake = fake(|_| ());
        let untouched = fake.state();
        prepare(&fake, before).await;
        let provider = account(&fake).provider(mode);
        let service = service(given.then_some("user"));
        let report = provider.sync(&service.want("web")).await;
        assert_eq!(report.outcome, Outcome::Done, "{row}");

        let world = fake.state();
        assert_eq!(held::attached(&world, "web"), groups, "{row}");
        let nodes: &[&str] = if groups == WITHOUT { &CLIENTS } else { &SHARED };
        assert_eq!(held::nodes(&world), nodes, "{row}");
        if groups == MANAGED {
            let own = ["icmp 3-4 192.0.2.0/24", "tcp 80-80 192.0.2.0/24"];
            assert_eq!(held::lets_in(&world, "web"), own, "{row}");
            assert_eq!(held::lets_out(&world, "web"), ["tcp 30080-30080 nodes"], "{row}");
        } else {
            assert_eq!(held::group(&world, "web"), None, "{row}");
        }
        assert_eq!(world.groups["sg-user"], untouched.groups["sg-user"], "{row}");
        match told {
            "" => assert_eq!(report.told, Vec::<String>::new(), "{row}"),
            told => {
                assert!(
                    matches!(report.told.as_slice(), [one] if one.starts_with(told)),
                    "{row}: {:?}",
                    report.told
                );
            }
        }
        // It is the same to whoever comes next, and all of it goes.
        let again = account(&fake).provider(mode);
        assert_eq!(again.sync(&service.want("web")).await.outcome, Outcome::Done, "{row}");
        assert_eq!(fake.state(), world, "{row}");
        assert_eq!(again.sync(&gone("web")).await.outcome, Outcome::Done, "{row}");
        is_untouched(&fake);
    }
}

/// Without groups of its own, it depends on rules of others in those of the nodes, which come and go.
#[tokio::test]
async fn what_others_open_on_the_nodes_is_said_of_its_ranges() {
    let fake = fake(|_| ());
    let limited = service(None).want("web");
    let other = Service { ports: vec![(80, 30090)], ..service(None) }.want("other");
    let first = account(&fake).provider("Unmanaged");
    for want in [&limited, &other] {
        assert_eq!(first.sync(want).await.outcome, Outcome::Done);
    }
    // One that changed nothing believes what AWS tells.
    let provider = account(&fake).provider("Unmanaged");
    assert_eq!(provider.sync(&other).await.outcome, Outcome::Done);
    let said = || async {
        let report = provider.sync(&limited).await;
        assert_eq!(report.outcome, Outcome::Done);
        matches!(report.enforcement, Some(Enforcement::By(_)))
    };
    assert!(said().await);
    assert_eq!(provider.look_at_all().await.unwrap(), []);
    let rule = Permission {
        protocol: "tcp".to_owned(),
        from: Some(30080),
        to: Some(30080),
        peer: Peer::Range("0.0.0.0/0".parse().unwrap()),
    };
    for is_open in [true, false] {
        fake.act_as_someone_else(|world| {
            let nodes = world.groups.get_mut("sg-nodes").unwrap();
            if is_open {
                let known = nodes.egress.values().next().unwrap().clone();
                nodes.ingress.insert(rule.clone(), known);
            } else {
                nodes.ingress.remove(&rule);
            }
        });
        assert_eq!(provider.look_at_all().await.unwrap(), [owner("web")], "open: {is_open}");
        assert_eq!(said().await, !is_open);
        assert_eq!(provider.look_at_all().await.unwrap(), [], "it was said");
    }
}

#[tokio::test]
async fn a_change_of_the_mode_is_for_new_load_balancers() {
    let fake = fake(|_| ());
    let service = service(None);
    for (mode, name) in [("Managed", "one"), ("Unmanaged", "two"), ("Managed", "three"), ("", "four")] {
        let provider = account(&fake).provider(mode);
        let names = ["one", "two", "three", "four"];
        let end = names.iter().position(|other| *other == name).unwrap();
        for name in &names[..=end] {
            assert_eq!(provider.sync(&service.want(name)).await.outcome, Outcome::Done, "{mode} {name}");
        }
    }
    let world = fake.state();
    for (name, groups) in
        [("one", &MANAGED[..]), ("two", &WITHOUT[..]), ("three", &MANAGED[..]), ("four", &WITHOUT[..])]
    {
        assert_eq!(held::attached(&world, name), groups, "{name}");
    }
    // One opens the nodes for all that have groups, the clients of the others are let in by themselves.
    let mut expected: Vec<&str> = SHARED.iter().chain(&CLIENTS).copied().collect();
    expected.sort_unstable();
    assert_eq!(held::nodes(&world), expected);

    let last = account(&fake).provider("Unmanaged");
    for name in ["one", "two", "three", "four"] {
        assert_eq!(last.sync(&gone(name)).await.outcome, Outcome::Done, "{name}");
    }
    is_untouched(&fake);
}

#[tokio::test]
async fn groups_are_given_by_name_or_id_and_taken_back() {
    for mode in ["Managed", "Unmanaged"] {
        let fake = fake(|config| {
            config.world.add_security_group("sg-0other", "other", "vpc-1");
        });
        let managed = account(&fake).provider("Managed");
        assert_eq!(managed.sync(&service(None).want("web")).await.outcome, Outcome::Done);
        let first = held::balancer(&fake.state(), "web").clone();

        let provider = account(&fake).provider(mode);
        for (given, groups) in [
            ("user", vec!["backend", "user"]),
            ("sg-user", vec!["backend", "user"]),
            ("sg-0other, user", vec!["backend", "other", "user"]),
            ("other", vec!["backend", "other"]),
        ] {
            let report = provider.sync(&service(Some(given)).want("web")).await;
            assert_eq!(report.outcome, Outcome::Done, "{given}");
            assert_eq!(held::attached(&fake.state(), "web"), groups, "{given}");
            assert_eq!(held::group(&fake.state(), "web"), None, "nobody needs it: {given}");
        }
        assert_eq!(provider.sync(&service(None).want("web")).await.outcome, Outcome::Done);
        let world = fake.state();
        assert_eq!(held::attached(&world, "web"), MANAGED);
        assert_eq!(held::lets_in(&world, "web"), ["icmp 3-4 192.0.2.0/24", "tcp 80-80 192.0.2.0/24"]);
        let last = held::balancer(&world, "web");
        assert_eq!((&last.name, &last.dns_name), (&first.name, &first.dns_name));
        assert_eq!(last.listeners, first.listeners);
    }
}

#[tokio::test]
async fn groups_that_cannot_be_are_named_and_nothing_changes() {
    let fake = fake(|config| {
        config.world.add_vpc("vpc-2", "10.1.0.0/16", false);
        config.world.add_security_group("sg-0far", "far", "vpc-2");
    });
    let provider = account(&fake).provider("Managed");
    assert_eq!(provider.sync(&service(None).want("there")).await.outcome, Outcome::Done);
    let before = fake.state();
    for (given, what) in [
        ("sg-0none", "names sg-0none, which does not exist"),
        ("nobody", "names nobody, which does not exist"),
        ("user,nobody", "names nobody, which does not exist"),
        ("sg-0far", "names sg-0far, which is in vpc-2; the load balancer is in vpc-1"),
        ("far", "names far, which does not exist"),
        ("a,b,c,d,e", "names 5 groups, and there is room for 4: a, b, c, d, e"),
        ("user,user", "is `user,user`: it has a group twice"),
    ] {
        for name in ["there", "new"] {
            let outcome = provider.sync(&service(Some(given)).want(name)).await.outcome;
            let Outcome::Blocked(problem) = outcome else { panic!("{given}: {outcome:?}") };
            let what = format!(
                "Service shop/{name}: annotation service.beta.kubernetes.io/aws-load-balancer-security-groups {what}."
            );
            assert_eq!(problem.what, what);
            assert!(problem.state.starts_with("Nothing was changed"), "{problem}");
            assert_eq!(fake.state(), before, "{given}");
        }
    }
    // The others go on.
    assert_eq!(provider.sync(&service(None).want("other")).await.outcome, Outcome::Done);
    assert_eq!(held::attached(&fake.state(), "other"), MANAGED);
}

#[tokio::test]
async fn there_is_room_for_one_more_group_where_none_is_shared() {
    let names = ["sg-0a", "sg-0b", "sg-0c", "sg-0d", "sg-0e"];
    let fake = fake(|config| {
        for name in names {
            config.world.add_security_group(name, &name[4..], "vpc-1");
        }
    });
    let all = names.join(",");
    let with = |others: &[(&'static str, &'static str)]| {
        let annotations = [("security-groups", all.as_str())].into_iter().chain(others.iter().copied());
        Service { annotations: annotations.collect(), ..Service::default() }
    };
    let provider = account(&fake).provider("Managed");
    let outcome = provider.sync(&with(&[]).want("web")).await.outcome;
    assert!(matches!(outcome, Outcome::Blocked(_)), "{outcome:?}");
    let alone = with(&[("manage-backend-security-group-rules", "false")]);
    assert_eq!(provider.sync(&alone.want("web")).await.outcome, Outcome::Done);
    assert_eq!(held::attached(&fake.state(), "web"), ["a", "b", "c", "d", "e"]);
    assert_eq!(held::nodes(&fake.state()), Vec::<String>::new(), "nobody asked for it");

    let off = account(&fake).provider_by("DisableSecurityGroupIngress = true", |_| ());
    assert_eq!(off.sync(&with(&[]).want("other")).await.outcome, Outcome::Done);
    assert_eq!(held::attached(&fake.state(), "other"), ["a", "b", "c", "d", "e"]);
}

#[tokio::test]
async fn a_service_that_comes_back_finds_its_load_balancer() {
    let fake = fake(|_| ());
    let first = account(&fake).provider("Managed");
    assert_eq!(first.sync(&service(None).want("web")).await.outcome, Outcome::Done);
    let before = fake.state();
    // Another cluster process, and the same Service as a restored one has it.
    let restored = Service { uid: "another", ..service(None) };
    for provider in [&first, &account(&fake).provider("Managed")] {
        let report = provider.sync(&restored.want("web")).await;
        assert_eq!(report.outcome, Outcome::Done);
        assert_eq!(report.addresses.len(), 1);
        assert_eq!(report.addresses[0].to_string(), held::balancer(&before, "web").dns_name);
        assert_eq!(fake.state(), before, "nothing is made anew");
        assert!(provider.forgotten().is_empty(), "{:?}", provider.forgotten());
        assert!(provider.is_settled(&restored.want("web")));
    }
    assert_eq!(first.forgotten(), Vec::<portcullis_core::Owner>::new());
    let third = account(&fake).provider("Managed");
    assert_eq!(third.look_at_all().await.unwrap(), []);
    assert_eq!(third.forgotten(), [owner("web")], "nobody said anything about it yet");
}
