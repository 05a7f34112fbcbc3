//! Services beside each other, and an AWS that others change meanwhile.

use portcullis_aws_fake::{Fault, LoadBalancer, Peer, Permission, Rule, TargetGroup};
use portcullis_core::{Outcome, Provider as _};

use crate::held::{self, SHARED};
use crate::scene::{Service, account, dual_stack, fake, gone, owner};
use crate::strict::is_untouched;

/// A Service whose targets are pods.
fn pods(port: u16) -> Service<'static> {
    Service {
        pods: vec![("10.0.1.77", port)],
        annotations: vec![("nlb-target-type", "ip")],
        ..Service::default()
    }
}

/// What the nodes let in for all, and what for one besides.
fn shared_and(more: &str) -> Vec<String> {
    let mut all: Vec<String> = SHARED.iter().map(|rule| (*rule).to_owned()).collect();
    all.push(more.to_owned());
    all.sort();
    all
}

#[tokio::test]
async fn one_that_goes_takes_nothing_from_one_that_stays() {
    let fake = fake(|_| ());
    // Without groups both let in everybody's messages about sizes, by one rule.
    let provider = account(&fake).provider("Unmanaged");
    let other = Service { ports: vec![(443, 30443)], ..Service::default() };
    assert_eq!(provider.sync(&Service::default().want("web")).await.outcome, Outcome::Done);
    assert_eq!(provider.sync(&other.want("shop")).await.outcome, Outcome::Done);
    let size = "icmp 3-4 0.0.0.0/0".to_owned();
    assert!(held::nodes(&fake.state()).contains(&size));
    for name in ["web", "shop"] {
        assert_eq!(provider.sync(&gone(name)).await.outcome, Outcome::Done, "{name}");
        assert_eq!(held::nodes(&fake.state()).contains(&size), name == "web", "{name}");
    }
    is_untouched(&fake);
}

#[tokio::test]
async fn pods_open_the_nodes_they_run_on() {
    let fake = fake(|_| ());
    let provider = account(&fake).provider("Managed");
    assert_eq!(provider.sync(&pods(8080).want("pods")).await.outcome, Outcome::Done);
    assert_eq!(held::nodes(&fake.state()), shared_and("tcp 8080-8080 backend"));
    assert_eq!(provider.sync(&Service::default().want("web")).await.outcome, Outcome::Done);
    assert_eq!(provider.sync(&gone("web")).await.outcome, Outcome::Done);
    assert_eq!(held::nodes(&fake.state()), shared_and("tcp 8080-8080 backend"), "they are still there");
    assert_eq!(provider.sync(&pods(9090).want("pods")).await.outcome, Outcome::Done);
    assert_eq!(held::nodes(&fake.state()), shared_and("tcp 9090-9090 backend"));
    assert_eq!(provider.sync(&gone("pods")).await.outcome, Outcome::Done);
    is_untouched(&fake);
    // Where nobody says on which nodes they are, that is told.
    let nowhere = Service { nodes: vec![], ..pods(8080) };
    let report = provider.sync(&nowhere.want("pods")).await;
    assert!(report.told.iter().any(|told| told.contains("on which machines the pods run")), "{report:?}");
}

#[tokio::test]
async fn who_has_not_spoken_yet_keeps_what_is_open() {
    let fake = fake(|config| {
        config.world.add_security_group("sg-pool", "pool", "vpc-1");
        config.world.add_instance("i-9", "subnet-b", &["sg-pool"]);
    });
    let first = account(&fake).provider("Managed");
    let far = Service { nodes: vec!["i-9"], ports: vec![(443, 30443)], ..Service::default() };
    for (name, service) in [("web", Service::default()), ("pods", pods(8080)), ("far", far.clone())] {
        assert_eq!(first.sync(&service.want(name)).await.outcome, Outcome::Done, "{name}");
    }
    let before = fake.state();
    // Another process, to which only one has spoken so far.
    let second = account(&fake).provider("Managed");
    assert_eq!(second.sync(&Service::default().want("web")).await.outcome, Outcome::Done);
    assert_eq!(second.look_at_all().await.unwrap(), []);
    assert_eq!(fake.state(), before);
    for (name, service) in [("pods", pods(8080)), ("far", far)] {
        assert_eq!(second.sync(&service.want(name)).await.outcome, Outcome::Done, "{name}");
    }
    assert_eq!(fake.state(), before);
    assert_eq!(second.sync(&gone("far")).await.outcome, Outcome::Done);
    assert_eq!(fake.state().groups["sg-pool"].lets_in(), Vec::<String>::new(), "once all have");
}

#[tokio::test]
async fn what_was_missing_is_looked_for_again() {
    let fake = fake(|config| config.world.route_tables.get_mut("rtb-1").unwrap().public = false);
    let provider = account(&fake).provider("Managed");
    let before = fake.state();
    let want = Service::default().want("web");
    assert!(matches!(provider.sync(&want).await.outcome, Outcome::Blocked(_)));
    assert_eq!(fake.state(), before, "nothing is made for one that cannot be");
    fake.act_as_someone_else(|world| world.route_tables.get_mut("rtb-1").unwrap().public = true);
    assert_eq!(provider.sync(&want).await.outcome, Outcome::Done);

    for group in ["later", "sg-0later"] {
        let given = Service { annotations: vec![("security-groups", group)], ..Service::default() };
        assert!(matches!(provider.sync(&given.want("web")).await.outcome, Outcome::Blocked(_)), "{group}");
        fake.act_as_someone_else(|world| {
            drop(world.add_security_group("sg-0later", "later", "vpc-1").clone());
        });
        assert_eq!(provider.sync(&given.want("web")).await.outcome, Outcome::Done, "{group}");
        assert_eq!(provider.sync(&want).await.outcome, Outcome::Done);
        fake.act_as_someone_else(|world| drop(world.groups.remove("sg-0later")));
        assert_eq!(provider.look_at_all().await.unwrap(), []);
    }
}

#[tokio::test]
async fn a_group_of_nodes_that_is_gone_stops_nobody() {
    let fake = fake(|config| {
        config.world.add_security_group("sg-pool", "pool", "vpc-1");
        config.world.add_instance("i-9", "subnet-b", &["sg-pool"]);
    });
    let provider = account(&fake).provider("Managed");
    let all = Service { nodes: vec!["i-1", "i-9"], ..Service::default() };
    assert_eq!(provider.sync(&all.want("web")).await.outcome, Outcome::Done);
    fake.act_as_someone_else(|world| {
        world.instances.remove("i-9");
        world.groups.remove("sg-pool");
        for pool in world.target_groups.values_mut() {
            pool.targets.retain(|target, _| target.id != "i-9");
        }
    });
    let _ = provider.look_at_all().await.unwrap();
    let more = Service { ports: vec![(443, 30443)], ..all };
    assert_eq!(provider.sync(&more.want("shop")).await.outcome, Outcome::Done);
    assert_eq!(held::targets(&fake.state(), "shop", 443), ["i-1:30443"]);
}

#[tokio::test]
async fn a_machine_that_stopped_takes_nobody_along() {
    let fake = fake(|_| ());
    let provider = account(&fake).provider("Managed");
    assert_eq!(provider.sync(&Service::default().want("web")).await.outcome, Outcome::Done);
    fake.act_as_someone_else(|world| {
        "stopped".clone_into(&mut world.instances.get_mut("i-2").unwrap().state);
    });
    let other = Service { ports: vec![(443, 30443)], ..Service::default() };
    assert_eq!(provider.sync(&other.want("shop")).await.outcome, Outcome::Done);
    assert_eq!(held::targets(&fake.state(), "shop", 443), ["i-1:30443"]);
    // It runs again: whoever looks at all sees it.
    fake.act_as_someone_else(|world| {
        "running".clone_into(&mut world.instances.get_mut("i-2").unwrap().state);
    });
    assert_eq!(provider.look_at_all().await.unwrap().len(), 1);
    assert_eq!(provider.sync(&other.want("shop")).await.outcome, Outcome::Done);
    assert_eq!(held::targets(&fake.state(), "shop", 443), ["i-1:30443", "i-2:30443"]);
}

#[tokio::test]
async fn what_cannot_be_opened_for_one_is_open_for_the_others() {
    let fake = fake(|config| {
        let nodes = config.world.groups.get_mut("sg-nodes").unwrap();
        for port in 1..=57 {
            let peer = Peer::Range("192.0.2.0/24".parse().unwrap());
            let permission = Permission { protocol: "tcp".into(), from: Some(port), to: Some(port), peer };
            nodes.ingress.insert(permission, Rule { id: format!("sgr-{port}"), ..Rule::default() });
        }
    });
    let provider = account(&fake).provider("Managed");
    let outcome = provider.sync(&pods(8080).want("pods")).await.outcome;
    let Outcome::Blocked(problem) = outcome else { panic!("{outcome:?}") };
    assert!(problem.what.contains("RulesPerSecurityGroupLimitExceeded"), "{problem}");
    assert_eq!(provider.sync(&Service::default().want("web")).await.outcome, Outcome::Done);
}

#[tokio::test]
async fn one_name_is_for_one_load_balancer() {
    let fake = fake(|_| ());
    let provider = account(&fake).provider("Managed");
    let named = Service { annotations: vec![("name", "edge")], ..Service::default() };
    assert_eq!(provider.sync(&named.want("web")).await.outcome, Outcome::Done);
    fake.clear_calls();
    let outcome = provider.sync(&named.want("shop")).await.outcome;
    let Outcome::Blocked(problem) = outcome else { panic!("{outcome:?}") };
    assert!(problem.what.contains("the name edge is there already"), "{problem}");
    assert_eq!(fake.counts().get("CreateLoadBalancer"), Some(&1), "it is not tried again and again");
    assert_eq!(provider.sync(&gone("web")).await.outcome, Outcome::Done);
    assert_eq!(provider.sync(&named.want("shop")).await.outcome, Outcome::Done, "it is free now");
}

#[tokio::test]
async fn keys_of_tags_may_have_blanks() {
    let fake = fake(|_| ());
    let provider = account(&fake).provider("Managed");
    let tagged =
        Service { annotations: vec![("additional-resource-tags", "cost center=1")], ..Service::default() };
    assert_eq!(provider.sync(&tagged.want("web")).await.outcome, Outcome::Done);
    fake.act_as_someone_else(|world| {
        let balancer = world.load_balancers.values_mut().next().unwrap();
        balancer.tags.insert("cost".to_owned(), "somebody's".to_owned());
    });
    assert!(!provider.look_closely(&crate::scene::owner("web")).await.unwrap());
    assert_eq!(provider.sync(&Service::default().want("web")).await.outcome, Outcome::Done);
    let world = fake.state();
    let tags = &held::balancer(&world, "web").tags;
    assert!(tags.contains_key("cost") && !tags.contains_key("cost center"), "{tags:?}");
}

#[tokio::test]
async fn what_another_cluster_of_the_name_made_is_not_left_over() {
    let fake = fake(|_| ());
    let cluster = |identity: &str| {
        account(&fake).provider_with("Managed", |settings| settings.identity = Some(identity.to_owned()))
    };
    let want = Service::default().want("web");
    assert_eq!(cluster("one").sync(&want).await.outcome, Outcome::Done);
    let (same, other) = (cluster("one"), cluster("two"));
    for provider in [&same, &other] {
        assert_eq!(provider.look_at_all().await.unwrap(), []);
    }
    assert_eq!(same.forgotten(), [crate::scene::owner("web")]);
    assert_eq!(other.forgotten(), [], "nobody knows whether it is still wanted there");
    // Whoever restores the Service finds its load balancer, which is of the new cluster from then on.
    let before = fake.state().load_balancers.keys().cloned().collect::<Vec<_>>();
    assert_eq!(other.sync(&want).await.outcome, Outcome::Done);
    assert_eq!(fake.state().load_balancers.keys().cloned().collect::<Vec<_>>(), before);
    let next = cluster("two");
    assert_eq!(next.look_at_all().await.unwrap(), []);
    assert_eq!(next.forgotten(), [crate::scene::owner("web")]);
}

#[tokio::test]
async fn what_shows_no_client_is_open_to_the_load_balancer_alone() {
    let fake = fake(|_| ());
    let provider = account(&fake).provider("Unmanaged");
    assert_eq!(provider.sync(&pods(8080).want("pods")).await.outcome, Outcome::Done);
    assert_eq!(held::nodes(&fake.state()), ["tcp 8080-8080 10.0.1.0/24", "tcp 8080-8080 10.0.2.0/24"]);
    // Ranges that nobody would keep to are refused for a new one, and told of where it is there.
    let limited = Service { ranges: Some(vec!["192.0.2.0/24"]), ..pods(8080) };
    let report = provider.sync(&limited.want("pods")).await;
    assert!(report.told.iter().any(|told| told.contains("its source ranges limit nobody")), "{report:?}");
    let outcome = provider.sync(&limited.want("other")).await.outcome;
    let Outcome::Blocked(problem) = outcome else { panic!("{outcome:?}") };
    assert!(problem.what.contains("its source ranges would limit nobody"), "{problem}");
    // Whoever sees the clients lets in these.
    let attribute = ("target-group-attributes", "preserve_client_ip.enabled=true");
    let seeing = Service { annotations: vec![("nlb-target-type", "ip"), attribute], ..limited };
    let report = provider.sync(&seeing.want("pods")).await;
    assert_eq!(report.told, Vec::<String>::new());
    let expected = [
        "icmp 3-4 192.0.2.0/24",
        "tcp 8080-8080 10.0.1.0/24",
        "tcp 8080-8080 10.0.2.0/24",
        "tcp 8080-8080 192.0.2.0/24",
    ];
    assert_eq!(held::nodes(&fake.state()), expected);
}

/// An edit that would take all effect from source ranges is refused as a new Service is, and nothing of it is done.
#[tokio::test]
async fn an_edit_that_would_let_everybody_in_is_refused() {
    const SEEING: (&str, &str) = ("target-group-attributes", "preserve_client_ip.enabled=true");
    let limited = Service { ranges: Some(vec!["192.0.2.0/24"]), ..Service::default() };
    let hiding = ("target-group-attributes", "preserve_client_ip.enabled=false");
    let elsewhere = ("healthcheck-port", "10256");
    let both = Service { dual: true, annotations: vec![elsewhere], ..limited.clone() };
    let pods = Service { ranges: Some(vec!["192.0.2.0/24"]), ..pods(8080) };
    for (what, before, after) in [
        ("both families", limited.clone(), Service { dual: true, ..limited.clone() }),
        ("clients hidden", limited.clone(), Service { annotations: vec![hiding], ..limited.clone() }),
        ("pods", limited, pods.clone()),
        (
            "pods that saw clients",
            Service { annotations: vec![("nlb-target-type", "ip"), SEEING], ..pods.clone() },
            pods,
        ),
        ("checked where it serves", both.clone(), Service { annotations: Vec::new(), ..both.clone() }),
        (
            "some of IPv6",
            both.clone(),
            Service { ranges: Some(vec!["192.0.2.0/24", "2001:db8::/32"]), ..both },
        ),
    ] {
        let fake = dual_stack();
        let provider = account(&fake).provider("Unmanaged");
        assert_eq!(provider.sync(&before.want("web")).await.outcome, Outcome::Done, "{what}");
        let there = fake.state();
        // Whoever comes after it knows no better.
        for provider in [&provider, &account(&fake).provider("Unmanaged")] {
            let outcome = provider.sync(&after.want("web")).await.outcome;
            let Outcome::Blocked(problem) = outcome else { panic!("{what}: {outcome:?}") };
            assert!(problem.what.contains("its source ranges would limit nobody"), "{what}: {problem}");
            assert_eq!(fake.state(), there, "{what}");
            assert!(provider.preview(&after.want("web")).await.is_err(), "{what}");
        }
        // It is taken back, or everybody may connect.
        assert_eq!(provider.sync(&before.want("web")).await.outcome, Outcome::Done, "{what}");
        assert_eq!(fake.state(), there, "{what}");
        let everyone = Service { ranges: None, ..after };
        assert_eq!(provider.sync(&everyone.want("web")).await.outcome, Outcome::Done, "{what}");
    }
}

/// Whatever keeps the nodes from being opened: who is gone is sent nothing any more.
#[tokio::test]
async fn who_is_gone_is_no_target_even_if_the_nodes_cannot_be_opened() {
    let pods = |all: &[&'static str]| Service {
        pods: all.iter().map(|address| (*address, 8080)).collect(),
        annotations: vec![("nlb-target-type", "ip")],
        ..Service::default()
    };
    let fake = fake(|_| ());
    let provider = account(&fake).provider("Managed");
    let all = pods(&["10.0.1.77", "10.0.1.78", "10.0.1.79"]);
    assert_eq!(provider.sync(&all.want("web")).await.outcome, Outcome::Done);
    fake.pass(std::time::Duration::from_secs(600));
    fake.act_as_someone_else(|world| world.groups.get_mut("sg-nodes").unwrap().ingress.clear());
    fake.faults(|call| match call.action.as_str() {
        "AuthorizeSecurityGroupIngress" => Fault::Error("UnauthorizedOperation".to_owned(), 403),
        _ => Fault::None,
    });
    let targets = || held::targets(&fake.state(), "web", 80);
    let provider = account(&fake).provider("Managed");
    let outcome = provider.sync(&all.want("web")).await.outcome;
    assert!(matches!(outcome, Outcome::Blocked(_)), "{outcome:?}");
    for (provider, left) in [
        // One that knows them, and one that starts now.
        (provider, &["10.0.1.77", "10.0.1.78"][..]),
        (account(&fake).provider("Managed"), &["10.0.1.78"]),
    ] {
        let outcome = provider.sync(&pods(left).want("web")).await.outcome;
        assert!(matches!(outcome, Outcome::Blocked(_)), "{outcome:?}");
        fake.pass(std::time::Duration::from_secs(600));
        let expected: Vec<String> = left.iter().map(|address| format!("{address}:8080")).collect();
        assert_eq!(targets(), expected);
    }
    // Nobody knows whether one that comes is reached: the one before stays until then.
    let provider = account(&fake).provider("Managed");
    let outcome = provider.sync(&pods(&["10.0.1.79"]).want("web")).await.outcome;
    assert!(matches!(outcome, Outcome::Blocked(_)), "{outcome:?}");
    fake.pass(std::time::Duration::from_secs(600));
    assert_eq!(targets(), ["10.0.1.78:8080", "10.0.1.79:8080"]);
}

/// What one Service is refused for is looked at again by the next time; meanwhile nobody loses anything by it.
#[tokio::test]
async fn who_goes_while_another_is_refused_takes_nobodys_rules_along() {
    let fake = fake(|_| ());
    let provider = account(&fake).provider("Unmanaged");
    let limited = Service { ranges: Some(vec!["192.0.2.0/24"]), ..Service::default() };
    assert_eq!(provider.sync(&limited.want("web")).await.outcome, Outcome::Done);
    let rules = held::nodes(&fake.state());
    assert!(!rules.is_empty());
    let going = Service { ports: vec![(80, 30081)], ..Service::default() };
    assert_eq!(provider.sync(&going.want("going")).await.outcome, Outcome::Done);
    let refused = Service { annotations: vec![("security-groups", "sg-none")], ..Service::default() };
    let outcome = provider.sync(&refused.want("refused")).await.outcome;
    assert!(matches!(outcome, Outcome::Blocked(_)), "{outcome:?}");
    // Nor is there anything to put right with the others.
    assert_eq!(provider.look_at_all().await.unwrap(), [owner("refused")]);
    let outcome = provider.sync(&refused.want("refused")).await.outcome;
    assert!(matches!(outcome, Outcome::Blocked(_)), "{outcome:?}");
    fake.clear_calls();
    assert_eq!(provider.sync(&gone("going")).await.outcome, Outcome::Done);
    assert_eq!(held::nodes(&fake.state()), rules);
    assert_eq!(fake.counts().get("AuthorizeSecurityGroupIngress"), None, "they were there all the time");
}

/// Clients of IPv6 come to targets of IPv4 with an address of the load balancer.
#[tokio::test]
async fn who_comes_by_another_family_is_not_seen_by_the_nodes() {
    let balancer = |port: u16| -> Vec<String> {
        ["10.0.1.0/24", "10.0.2.0/24"].map(|range| format!("tcp {port}-{port} {range}")).to_vec()
    };
    let elsewhere = vec![("healthcheck-port", "10256")];
    for (what, service, open) in [
        ("everyone", Service::default(), Some(balancer(30080))),
        (
            "everyone, checked elsewhere",
            Service { annotations: elsewhere.clone(), ..Service::default() },
            Some(balancer(30080)),
        ),
        ("some of IPv6", Service { ranges: Some(vec!["2001:db8::/32"]), ..Service::default() }, None),
        ("some of IPv4", Service { ranges: Some(vec!["192.0.2.0/24"]), ..Service::default() }, None),
        (
            "the load balancer's own of IPv4, checked elsewhere",
            Service {
                ranges: Some(vec!["10.0.0.0/16"]),
                annotations: elsewhere.clone(),
                ..Service::default()
            },
            None,
        ),
        (
            "some of IPv4, checked elsewhere",
            Service { ranges: Some(vec!["192.0.2.0/24"]), annotations: elsewhere, ..Service::default() },
            Some(balancer(10256)),
        ),
    ] {
        let fake = dual_stack();
        let provider = account(&fake).provider("Unmanaged");
        let outcome = provider.sync(&Service { dual: true, ..service }.want("web")).await.outcome;
        let Some(open) = open else {
            let Outcome::Blocked(problem) = outcome else { panic!("{what}: {outcome:?}") };
            assert!(problem.what.contains("its source ranges would limit nobody"), "{what}: {problem}");
            continue;
        };
        assert_eq!(outcome, Outcome::Done, "{what}");
        let nodes = held::nodes(&fake.state());
        let of_balancer: Vec<String> = nodes.iter().filter(|rule| rule.contains(" 10.0.")).cloned().collect();
        for rule in &open {
            assert!(of_balancer.contains(rule), "{what}: {nodes:?}");
        }
        let traffic = of_balancer.iter().any(|rule| rule.starts_with("tcp 30080-30080"));
        assert_eq!(traffic, open[0].starts_with("tcp 30080"), "{what}: {nodes:?}");
    }
}

#[tokio::test]
async fn ours_is_found_among_more_than_fit_into_one_answer() {
    let fake = fake(|_| ());
    let want = Service::default().want("web");
    assert_eq!(account(&fake).provider("Managed").sync(&want).await.outcome, Outcome::Done);
    // AWS tells of 400 at a time; those of others come before ours.
    fake.act_as_someone_else(|world| {
        let balancer = world.load_balancers.values().next().unwrap().clone();
        let pool = world.target_groups.values().next().unwrap().clone();
        for number in 0..450 {
            let arn = format!(
                "arn:aws:elasticloadbalancing:eu-central-1:123456789012:loadbalancer/net/a{number}/0"
            );
            let name = format!("a{number}");
            let (tags, listeners) = ([].into(), [].into());
            world.load_balancers.insert(arn, LoadBalancer { name, tags, listeners, ..balancer.clone() });
            let arn =
                format!("arn:aws:elasticloadbalancing:eu-central-1:123456789012:targetgroup/a{number}/0");
            let name = format!("a{number}");
            world.target_groups.insert(arn, TargetGroup { name, tags: [].into(), ..pool.clone() });
        }
    });
    let before = fake.state();
    fake.clear_calls();
    let another = account(&fake).provider("Managed");
    assert_eq!(another.sync(&want).await.outcome, Outcome::Done);
    assert_eq!(fake.state(), before, "nothing is made twice");
    assert_eq!(fake.counts().get("DescribeLoadBalancers"), Some(&2));
    assert_eq!(fake.counts().get("DescribeTargetGroups"), Some(&2));
}
