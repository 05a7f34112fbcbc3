//! What is made, changed and taken away, on an AWS that is as strict as AWS.

use std::time::Duration;

use portcullis_aws::{NodeRules, Verdict};
use portcullis_aws_fake::{Call, Fake, Fault, Listener, SecurityGroup, TargetId, World};
use portcullis_core::{Outcome, Provider as _};

use crate::scene::{Service, account, fake, gone, owner, shape};

/// What an owner's first group lets in.
fn lets_in(world: &World, name: &str) -> Vec<String> {
    let group = world.groups.values().find(|group| group.name.starts_with(&format!("k8s-shop-{name}-")));
    group.map(SecurityGroup::lets_in).unwrap_or_default()
}

/// How many calls there were since the last time: those that change something, and those that look.
pub(crate) fn count(fake: &Fake) -> (usize, usize) {
    let (all, changing) = (fake.calls().len(), fake.mutating_calls());
    fake.clear_calls();
    (changing, all - changing)
}

/// The world as it was before anything was made.
pub(crate) fn is_untouched(fake: &Fake) {
    let world = fake.state();
    assert!(world.load_balancers.is_empty(), "{:?}", world.load_balancers);
    assert!(world.target_groups.is_empty(), "{:?}", world.target_groups);
    let names: Vec<&str> = world.groups.values().map(|group| group.name.as_str()).collect();
    assert!(!names.iter().any(|name| name.starts_with("k8s-")), "{names:?}");
    assert!(world.groups["sg-nodes"].ingress.is_empty(), "{:?}", world.groups["sg-nodes"].lets_in());
}

#[tokio::test]
async fn calls_are_few() {
    let fake = fake(|_| ());
    let provider = account(&fake).provider("Managed");
    let ports = [(80, 30080), (443, 30443), (8080, 30880)];
    // The first one has what all share made, and learns what there is.
    assert_eq!(provider.sync(&Service::default().want("first")).await.outcome, Outcome::Done);
    count(&fake);
    for number in 1..=3_usize {
        let service = Service { ports: ports[..number].to_vec(), ..Service::default() };
        assert_eq!(provider.sync(&service.want("web")).await.outcome, Outcome::Done);
        let (changing, looking) = count(&fake);
        assert_eq!(changing, 5 + 3 * number);
        assert!(looking <= 4, "{looking}");
        assert_eq!(provider.sync(&service.want("web")).await.outcome, Outcome::Done);
        assert_eq!(count(&fake), (0, 0), "nothing changes");

        let more = Service { nodes: vec!["i-1", "i-2", "i-3"], ..service.clone() };
        assert_eq!(provider.sync(&more.want("web")).await.outcome, Outcome::Done);
        let (changing, looking) = count(&fake);
        assert_eq!(changing, number, "one for each target group");
        assert!(looking <= 1, "{looking}");

        assert_eq!(provider.sync(&gone("web")).await.outcome, Outcome::Done);
        let (changing, looking) = count(&fake);
        assert_eq!(changing, 2 + number);
        assert!(looking <= 4, "{looking}");
    }
    assert_eq!(provider.sync(&gone("first")).await.outcome, Outcome::Done);
    is_untouched(&fake);
}

#[tokio::test]
async fn another_process_finds_all_as_it_is() {
    let fake = fake(|_| ());
    let service = Service { ports: vec![(80, 30080), (443, 30443)], ..Service::default() };
    let first = account(&fake).provider("Managed");
    assert_eq!(first.sync(&service.want("web")).await.outcome, Outcome::Done);
    let before = fake.state();
    count(&fake);
    let second = account(&fake).provider("Managed");
    assert_eq!(second.sync(&service.want("web")).await.outcome, Outcome::Done);
    assert_eq!(count(&fake).0, 0);
    assert_eq!(fake.state(), before);
}

const CERTIFICATES: [&str; 2] = [
    "arn:aws:acm:eu-central-1:123456789012:certificate/1",
    "arn:aws:acm:eu-central-1:123456789012:certificate/2",
];

/// What somebody else does.
type Change = fn(&mut World);

/// What somebody else may do, and whether it takes the closer look to find it.
const DRIFT: [(&str, bool, Change); 21] = [
    ("a rule is added", false, |world| {
        let rule =
            world.groups["sg-nodes"].egress.iter().next().map(|(one, rule)| (one.clone(), rule.clone()));
        let group = world.groups.values_mut().find(|group| group.name.starts_with("k8s-shop-web")).unwrap();
        group.ingress.extend(rule);
    }),
    ("a rule is gone", false, |world| {
        let group = world.groups.values_mut().find(|group| group.name.starts_with("k8s-shop-web")).unwrap();
        group.ingress.pop_first();
    }),
    ("the nodes are closed", false, |world| {
        world.groups.get_mut("sg-nodes").unwrap().ingress.pop_first();
    }),
    ("another group is attached", false, |world| {
        let balancer = world.load_balancers.values_mut().next().unwrap();
        balancer.groups = ["sg-user".to_owned()].into();
    }),
    ("a listener is gone", true, |world| {
        let balancer = world.load_balancers.values_mut().next().unwrap();
        balancer.listeners.pop_first();
    }),
    ("an attribute is another", true, |world| {
        let balancer = world.load_balancers.values_mut().next().unwrap();
        balancer.attributes.insert("load_balancing.cross_zone.enabled".into(), "true".into());
    }),
    ("a tag is gone", true, |world| {
        let balancer = world.load_balancers.values_mut().next().unwrap();
        balancer.tags.remove("kubernetes.io/cluster/demo");
    }),
    ("a target is gone", true, |world| {
        world.target_groups.values_mut().next().unwrap().targets.pop_first();
    }),
    ("a health check is another", false, |world| {
        world.target_groups.values_mut().next().unwrap().health_check.interval = 60;
    }),
    ("a target is added", true, |world| {
        let pool = world.target_groups.values_mut().next().unwrap();
        let (id, target) = pool.targets.first_key_value().unwrap();
        let (id, target) = (TargetId { id: "i-3".into(), ..id.clone() }, target.clone());
        pool.targets.insert(id, target);
    }),
    ("a subnet is gone", false, |world| {
        world.load_balancers.values_mut().next().unwrap().subnets.pop_last();
    }),
    ("it has other families", false, |world| {
        world.load_balancers.values_mut().next().unwrap().ip_address_type = "dualstack".into();
    }),
    ("an attribute of a target group is another", true, |world| {
        let attributes = &mut world.target_groups.values_mut().next().unwrap().attributes;
        attributes.insert("proxy_protocol_v2.enabled".into(), "true".into());
    }),
    ("tags of a target group are gone and others", true, |world| {
        let tags = &mut world.target_groups.values_mut().next().unwrap().tags;
        tags.remove("kubernetes.io/cluster/demo");
        tags.insert("team".into(), "b".into());
    }),
    ("tags of a group are gone and others", false, |world| {
        let mut groups = world.groups.values_mut();
        let tags = &mut groups.find(|group| group.name.starts_with("k8s-shop-web")).unwrap().tags;
        tags.remove("kubernetes.io/cluster/demo");
        tags.insert("team".into(), "b".into());
    }),
    ("tags of the group that all have are gone and others", false, |world| {
        let mut groups = world.groups.values_mut();
        let tags = &mut groups.find(|group| group.name.starts_with("k8s-backend-")).unwrap().tags;
        tags.remove("kubernetes.io/cluster/demo");
        tags.insert("portcullis.dev/part".into(), "2".into());
    }),
    ("a listener sends elsewhere", true, |world| {
        let balancer = world.load_balancers.values_mut().next().unwrap();
        let other = balancer.listeners.values().last().unwrap().target_group.clone();
        balancer.listeners.values_mut().next().unwrap().target_group = other;
    }),
    ("a listener has another certificate", true, |world| {
        let balancer = world.load_balancers.values_mut().next().unwrap();
        let tls = balancer.listeners.values_mut().find(|listener| listener.protocol == "TLS").unwrap();
        tls.certificate = Some(CERTIFICATES[1].into());
    }),
    ("a listener has another protocol", true, |world| {
        let balancer = world.load_balancers.values_mut().next().unwrap();
        let tls = balancer.listeners.values_mut().find(|listener| listener.protocol == "TLS").unwrap();
        tls.protocol = "TCP".into();
        (tls.certificate, tls.policy, tls.alpn) = (None, None, None);
    }),
    ("a listener is added", true, |world| {
        let balancer = world.load_balancers.values_mut().next().unwrap();
        let (arn, known) = balancer.listeners.first_key_value().unwrap();
        let (arn, added) = (format!("{arn}0"), Listener { port: 8443, ..known.clone() });
        balancer.listeners.insert(arn, added);
    }),
    ("tags of a listener are gone and others", true, |world| {
        let balancer = world.load_balancers.values_mut().next().unwrap();
        let tags = &mut balancer.listeners.values_mut().last().unwrap().tags;
        tags.remove("kubernetes.io/cluster/demo");
        tags.insert("team".into(), "b".into());
    }),
];

#[tokio::test]
async fn what_somebody_else_changed_is_put_right() {
    let fake = fake(|config| CERTIFICATES.iter().for_each(|arn| config.world.add_certificate(arn)));
    let service = Service {
        ports: vec![(80, 30080), (443, 30443)],
        annotations: vec![
            ("subnets", "subnet-a,subnet-b"),
            ("additional-resource-tags", "team=a"),
            ("ssl-cert", CERTIFICATES[0]),
            ("ssl-ports", "443"),
        ],
        ..Service::default()
    };
    let want = service.want("web");
    let provider = account(&fake).provider("Managed");
    assert_eq!(provider.sync(&want).await.outcome, Outcome::Done);
    let right = shape(&fake.state());
    assert!(!provider.look_closely(&owner("web")).await.unwrap());
    assert_eq!(provider.look_at_all().await.unwrap(), []);

    for (what, closely, change) in DRIFT {
        // One that runs finds it, by the look at all or by the closer one.
        let provider = account(&fake).provider("Managed");
        assert_eq!(provider.sync(&want).await.outcome, Outcome::Done, "{what}");
        fake.clear_calls();
        fake.act_as_someone_else(change);
        assert_ne!(shape(&fake.state()), right, "{what}");
        if closely {
            assert!(provider.look_closely(&owner("web")).await.unwrap(), "{what}");
        } else {
            assert_eq!(provider.look_at_all().await.unwrap(), [owner("web")], "{what}");
        }
        assert_eq!(provider.sync(&want).await.outcome, Outcome::Done, "{what}");
        assert_eq!(shape(&fake.state()), right, "{what}");
        if closely {
            continue;
        }
        // One that starts finds it, too.
        fake.act_as_someone_else(change);
        let provider = account(&fake).provider("Managed");
        assert_eq!(provider.sync(&want).await.outcome, Outcome::Done, "{what}");
        assert_eq!(shape(&fake.state()), right, "{what}");
    }
}

#[tokio::test]
async fn listeners_carry_the_tags_of_their_load_balancer() {
    let fake = fake(|_| ());
    let with = |tags: &'static str| Service {
        ports: (0..3).map(|port| (80 + port, 30080 + port)).collect(),
        annotations: vec![("additional-resource-tags", tags)],
        ..Service::default()
    };
    let provider = account(&fake).provider("Managed");
    assert_eq!(provider.sync(&with("team=a,cost=1").want("web")).await.outcome, Outcome::Done);
    // One that made them, and one that finds them: with the load balancer by one call.
    let other = account(&fake).provider("Managed");
    for (provider, tags) in [(&provider, "team=b"), (&other, "team=c,floor=2")] {
        fake.clear_calls();
        assert_eq!(provider.sync(&with(tags).want("web")).await.outcome, Outcome::Done);
        let world = fake.state();
        let balancer = world.load_balancers.values().next().unwrap();
        assert_eq!(balancer.listeners.len(), 3);
        for listener in balancer.listeners.values() {
            assert_eq!(listener.tags, balancer.tags, "{tags}");
        }
        let named = fake.calls().into_iter().filter(|logged| logged.call.action == "AddTags");
        assert_eq!(named.count(), 4, "one for it and its listeners, one for each target group");
    }
}

#[tokio::test]
async fn a_load_balancer_that_is_gone_is_made_again() {
    let fake = fake(|_| ());
    let provider = account(&fake).provider("Managed");
    let want = Service::default().want("web");
    assert_eq!(provider.sync(&want).await.outcome, Outcome::Done);
    fake.act_as_someone_else(|world| world.load_balancers.clear());
    let provider = account(&fake).provider("Managed");
    assert_eq!(provider.sync(&want).await.outcome, Outcome::Done);
    assert_eq!(fake.state().load_balancers.len(), 1);
}

#[tokio::test]
async fn what_is_of_others_is_not_touched() {
    let fake = fake(|_| ());
    let provider = account(&fake).provider("Managed");
    let want = Service::default().want("web");
    assert_eq!(provider.sync(&want).await.outcome, Outcome::Done);
    // The same load balancer and target group, and somebody else's.
    fake.act_as_someone_else(|world| {
        for balancer in world.load_balancers.values_mut() {
            balancer.tags.insert("portcullis.dev/cluster".into(), "other".into());
        }
        for group in world.target_groups.values_mut() {
            group.tags.insert("portcullis.dev/cluster".into(), "other".into());
        }
    });
    let theirs = fake.state();
    let provider = account(&fake).provider("Managed");
    let outcome = provider.sync(&want).await.outcome;
    assert!(
        matches!(&outcome, Outcome::Blocked(problem) if problem.what.contains("it is not ours")),
        "{outcome:?}"
    );
    let outcome = provider.sync(&gone("web")).await.outcome;
    assert!(!matches!(outcome, Outcome::Done) || fake.state().load_balancers == theirs.load_balancers);
    assert_eq!(fake.state().load_balancers, theirs.load_balancers);
    assert_eq!(fake.state().target_groups, theirs.target_groups);
}

#[tokio::test]
async fn groups_of_the_users_and_back() {
    let fake = fake(|_| ());
    let provider = account(&fake).provider("Managed");
    let managed = Service::default();
    let given = Service { annotations: vec![("security-groups", "user")], ..Service::default() };
    let groups = || {
        let world = fake.state();
        let balancer = world.load_balancers.values().next().unwrap().clone();
        balancer.groups.iter().map(|id| world.groups[id].name.clone()).collect::<Vec<_>>()
    };
    assert_eq!(provider.sync(&managed.want("web")).await.outcome, Outcome::Done);
    let name = groups().into_iter().find(|name| name.starts_with("k8s-shop-web")).unwrap();
    assert_eq!(provider.sync(&given.want("web")).await.outcome, Outcome::Done);
    assert!(groups().contains(&"user".to_owned()) && !groups().contains(&name));
    assert!(!fake.state().groups.values().any(|group| group.name == name), "it is not needed any more");
    assert_eq!(provider.sync(&managed.want("web")).await.outcome, Outcome::Done);
    assert!(groups().contains(&name) && !groups().contains(&"user".to_owned()));

    for (annotation, what) in [("sg-none", "does not exist"), ("sg-user,sg-0far", "which is in vpc-2")] {
        fake.act_as_someone_else(|world| {
            world.add_vpc("vpc-2", "10.1.0.0/16", false);
            world.add_security_group("sg-0far", "far", "vpc-2");
        });
        let wrong = Service { annotations: vec![("security-groups", annotation)], ..Service::default() };
        let before = fake.state();
        let outcome = provider.sync(&wrong.want("web")).await.outcome;
        assert!(matches!(&outcome, Outcome::Blocked(problem) if problem.what.contains(what)), "{outcome:?}");
        assert_eq!(fake.state(), before);
    }
}

#[tokio::test]
async fn without_groups_the_nodes_let_in_the_clients() {
    let fake = fake(|_| ());
    let service = Service { ranges: Some(vec!["192.0.2.0/24"]), ..Service::default() };
    let unmanaged = account(&fake).provider("Unmanaged");
    assert_eq!(unmanaged.sync(&service.want("web")).await.outcome, Outcome::Done);
    let nodes = || fake.state().groups["sg-nodes"].lets_in();
    let expected = nodes();
    assert!(
        expected.iter().any(|rule| rule.contains("30080") && rule.contains("192.0.2.0/24")),
        "{expected:?}"
    );
    assert!(expected.iter().any(|rule| rule.contains("10.0.1.0/24")), "the checks: {expected:?}");

    // It can never get a group: it is told, and all stays as it is.
    let managed = account(&fake).provider("Managed");
    let report = managed.sync(&service.want("web")).await;
    assert_eq!(report.outcome, Outcome::Done);
    assert!(
        report.told.iter().any(|told| told.contains("was made without support for groups")),
        "{report:?}"
    );
    assert_eq!(nodes(), expected);
    assert_eq!(managed.sync(&gone("web")).await.outcome, Outcome::Done);
    is_untouched(&fake);
}

#[tokio::test]
async fn unmanaged_keeps_what_is_managed() {
    let fake = fake(|_| ());
    let service = Service { ranges: Some(vec!["192.0.2.0/24"]), ..Service::default() };
    let managed = account(&fake).provider("Managed");
    assert_eq!(managed.sync(&service.want("web")).await.outcome, Outcome::Done);
    let unmanaged = account(&fake).provider("Unmanaged");
    let other = Service { ranges: Some(vec!["198.51.100.0/24"]), ..Service::default() };
    assert_eq!(unmanaged.sync(&other.want("web")).await.outcome, Outcome::Done);
    let found = lets_in(&fake.state(), "web");
    assert!(found.iter().all(|rule| rule.contains("198.51.100.0/24")), "{found:?}");
    assert_eq!(unmanaged.sync(&gone("web")).await.outcome, Outcome::Done);
    is_untouched(&fake);
}

#[tokio::test]
async fn many_ranges_are_spread_over_groups() {
    let fake = fake(|_| ());
    let provider = account(&fake).provider("Managed");
    let ranges: Vec<String> = (0..100).map(|number| format!("192.0.2.{number}/32")).collect();
    let service = |count: usize| Service {
        ranges: Some(ranges[..count].iter().map(String::as_str).collect()),
        ..Service::default()
    };
    let own = || {
        let world = fake.state();
        let groups = world.groups.values().filter(|group| group.name.starts_with("k8s-shop-web"));
        groups.map(|group| group.ingress.len()).collect::<Vec<_>>()
    };
    // A port and a message about packets for each of them.
    assert_eq!(provider.sync(&service(10).want("web")).await.outcome, Outcome::Done);
    assert_eq!(own(), [20]);
    assert_eq!(provider.sync(&service(100).want("web")).await.outcome, Outcome::Done);
    let mut many = own();
    many.sort_unstable();
    assert_eq!(many, [20, 60, 60, 60]);
    assert_eq!(provider.sync(&service(25).want("web")).await.outcome, Outcome::Done);
    assert_eq!(own(), [50]);
    let ranges: Vec<String> = (0..200).map(|number| format!("192.0.2.{number}/32")).collect();
    let too_many =
        Service { ranges: Some(ranges.iter().map(String::as_str).collect()), ..Service::default() };
    let outcome = provider.sync(&too_many.want("web")).await.outcome;
    assert!(
        matches!(&outcome, Outcome::Blocked(problem) if problem.what.contains("400 rules")),
        "{outcome:?}"
    );
    assert_eq!(own(), [50]);
}

/// The rules of a hundred ranges fill most of what groups there can be: those for another port do not fit beside them.
#[tokio::test]
async fn another_port_where_groups_are_nearly_full() {
    let fake = fake(|_| ());
    let provider = account(&fake).provider("Managed");
    let ranges: Vec<String> = (0..100).map(|number| format!("192.0.2.{number}/32")).collect();
    let service = |port| Service {
        ports: vec![(port, 30080)],
        ranges: Some(ranges.iter().map(String::as_str).collect()),
        ..Service::default()
    };
    assert_eq!(provider.sync(&service(80).want("web")).await.outcome, Outcome::Done);
    let report = provider.sync(&service(81).want("web")).await;
    assert_eq!(report.outcome, Outcome::Done);
    assert!(
        matches!(report.told.as_slice(), [told] if told.starts_with("its security groups have no room")),
        "{:?}",
        report.told
    );
    let world = fake.state();
    let balancer = world.load_balancers.values().next().unwrap();
    assert_eq!(balancer.listeners.values().map(|one| one.port).collect::<Vec<_>>(), [81]);
    let rules = balancer.groups.iter().flat_map(|id| world.groups[id].lets_in());
    let (ports, others): (Vec<String>, Vec<String>) = rules.partition(|rule| rule.starts_with("tcp 81"));
    assert_eq!((ports.len(), others.len()), (100, 100), "{others:?}");
    assert_eq!(provider.sync(&service(81).want("web")).await.told, Vec::<String>::new(), "it is over");
}

#[tokio::test]
async fn a_deletion_that_waits_is_no_end() {
    let fake = fake(|config| config.lingering = Duration::from_secs(300));
    let provider = account(&fake).provider("Managed");
    let want = Service::default().want("web");
    assert_eq!(provider.sync(&want).await.outcome, Outcome::Done);
    let outcome = provider.sync(&gone("web")).await.outcome;
    assert!(matches!(&outcome, Outcome::Pending { .. }), "{outcome:?}");
    assert!(fake.state().load_balancers.is_empty());
    fake.pass(Duration::from_secs(301));
    // Also for one that was not there when it began.
    let provider = account(&fake).provider("Managed");
    assert_eq!(provider.sync(&gone("web")).await.outcome, Outcome::Done);
    is_untouched(&fake);
}

#[tokio::test]
async fn a_role_that_may_not_says_what_it_may_not() {
    let fake = fake(|_| ());
    let provider = account(&fake).provider("Managed");
    fake.deny("CreateLoadBalancer");
    let outcome = provider.sync(&Service::default().want("web")).await.outcome;
    let Outcome::Blocked(problem) = outcome else { panic!("{outcome:?}") };
    assert!(problem.remedy.starts_with("Allow CreateLoadBalancer to the role"), "{problem}");
    fake.allow("CreateLoadBalancer");
    assert_eq!(provider.sync(&Service::default().want("web")).await.outcome, Outcome::Done);
    // Whoever only asks what would be done hears the same.
    fake.deny("DescribeLoadBalancers");
    let problem = account(&fake).provider("Managed").preview(&gone("web")).await.unwrap_err();
    assert!(problem.remedy.starts_with("Allow DescribeLoadBalancers to the role"), "{problem}");
}

#[tokio::test]
async fn exact_rules_on_the_nodes() {
    let fake = fake(|_| ());
    let provider = account(&fake).provider_with("Managed", |settings| settings.node_rules = NodeRules::Exact);
    assert_eq!(provider.sync(&Service::default().want("web")).await.outcome, Outcome::Done);
    let nodes = || fake.state().groups["sg-nodes"].lets_in();
    assert_eq!(nodes().len(), 1, "{:?}", nodes());
    let other = Service { ports: vec![(80, 30081)], ..Service::default() };
    assert_eq!(provider.sync(&other.want("web")).await.outcome, Outcome::Done);
    assert!(nodes().len() == 1 && nodes()[0].contains("30081"), "{:?}", nodes());
    assert_eq!(provider.sync(&gone("web")).await.outcome, Outcome::Done);
    is_untouched(&fake);
}

#[tokio::test]
async fn what_a_role_may_not_is_found_without_changing_anything() {
    let fake = fake(|_| ());
    let provider = account(&fake).provider("Managed");
    let before = fake.state();
    let caller = provider.client().caller().await.unwrap();
    assert!(caller.starts_with("arn:aws:"));
    let denied = || async {
        let found = provider.client().permissions(&caller, "demo", "vpc-1", false).await;
        let denied = found.into_iter().filter(|found| found.verdict != Verdict::Allowed);
        denied.map(|found| found.action).collect::<Vec<_>>()
    };
    assert_eq!(denied().await, Vec::<String>::new());
    for action in ["CreateLoadBalancer", "RevokeSecurityGroupEgress", "DescribeTags", "RegisterTargets"] {
        fake.deny(action);
        let found = denied().await;
        assert_eq!(found.len(), 1, "{action}: {found:?}");
        assert!(found[0].ends_with(action), "{found:?}");
        fake.allow(action);
    }
    assert_eq!(fake.state(), before);
}

/// A policy that asks for tags denies what is called on objects that do not exist.
#[tokio::test]
async fn what_is_allowed_on_tagged_objects_only_is_not_missing() {
    fn by_tag(call: &Call) -> Fault {
        let elb = ["DeleteLoadBalancer", "ModifyListener", "RegisterTargets", "CreateListener", "AddTags"];
        let ec2 = ["DeleteSecurityGroup", "CreateTags"];
        if elb.contains(&call.action.as_str()) {
            Fault::Error("AccessDenied".to_owned(), 403)
        } else if ec2.contains(&call.action.as_str()) {
            Fault::Error("UnauthorizedOperation".to_owned(), 403)
        } else {
            Fault::None
        }
    }
    let fake = fake(|_| ());
    let provider = account(&fake).provider("Managed");
    let caller = provider.client().caller().await.unwrap();
    let verdicts = || async {
        let found = provider.client().permissions(&caller, "demo", "vpc-1", false).await;
        let count =
            |wanted: fn(&Verdict) -> bool| found.iter().filter(|found| wanted(&found.verdict)).count();
        let denied = count(|verdict| matches!(verdict, Verdict::Denied(_)));
        (denied, count(|verdict| matches!(verdict, Verdict::Unknown(_))))
    };
    fake.faults(by_tag);
    assert_eq!(verdicts().await, (0, 0), "AWS says that it would be allowed");
    let asked =
        fake.calls().into_iter().find(|logged| logged.call.action == "SimulatePrincipalPolicy").unwrap();
    assert_eq!(asked.call.parameter("PolicySourceArn"), caller);
    let key = asked.call.parameter("ContextEntries.member.1.ContextKeyName").to_owned();
    assert_eq!(key, "aws:ResourceTag/portcullis.dev/cluster");

    fake.deny("RegisterTargets");
    assert_eq!(verdicts().await, (1, 0), "AWS says that it would not");
    fake.allow("RegisterTargets");

    fake.faults(|call| match call.action.as_str() {
        "SimulatePrincipalPolicy" => Fault::Error("AccessDenied".to_owned(), 403),
        _ => by_tag(call),
    });
    assert_eq!(verdicts().await, (0, 7), "nobody says it");
    fake.faults(|call| match call.action.as_str() {
        "SimulatePrincipalPolicy" | "CreateLoadBalancer" => Fault::Error("AccessDenied".to_owned(), 403),
        _ => by_tag(call),
    });
    assert_eq!(verdicts().await, (1, 7), "what carries the tags when it is made is known");
}

#[tokio::test]
async fn a_node_without_a_machine_takes_nobody_along() {
    let fake = fake(|_| ());
    let provider = account(&fake).provider("Managed");
    let service = Service { nodes: vec!["i-1", "i-gone"], ..Service::default() };
    assert_eq!(provider.sync(&service.want("web")).await.outcome, Outcome::Done);
    let targets = || fake.state().target_groups.values().next().unwrap().targets.len();
    assert_eq!(targets(), 1);
    // One that comes to run is found with the next look at everything.
    fake.act_as_someone_else(|world| {
        world.add_instance("i-gone", "subnet-a", &["sg-nodes"]);
    });
    assert_eq!(provider.look_at_all().await.unwrap(), [owner("web")]);
    assert_eq!(provider.sync(&service.want("web")).await.outcome, Outcome::Done);
    assert_eq!(targets(), 2);
}

#[tokio::test]
async fn nodes_whose_group_is_not_clear_are_told_of() {
    let fake = fake(|config| {
        config.world.add_instance("i-4", "subnet-a", &["sg-nodes", "sg-user"]);
    });
    let provider = account(&fake).provider("Managed");
    let service = Service { nodes: vec!["i-4"], ..Service::default() };
    let report = provider.sync(&service.want("web")).await;
    assert_eq!(report.outcome, Outcome::Done);
    assert!(
        report.told.iter().any(|told| told.starts_with("of the groups of node i-4, none is tagged")),
        "{report:?}"
    );
}
