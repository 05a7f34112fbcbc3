//! What the nodes let in.

use portcullis_aws::NodeRules;
use portcullis_aws_fake::{Peer, Permission, Rule};
use portcullis_core::{Listener, ListenerProtocol, Outcome, Provider as _};

use crate::held::{self, SHARED};
use crate::scene::{Service, account, fake, gone};
use crate::strict::is_untouched;

#[tokio::test]
async fn three_rules_are_enough_for_all() {
    let fake = fake(|_| ());
    let provider = account(&fake).provider("Managed");
    let names: Vec<String> = (0..20).map(|number| format!("web{number}")).collect();
    for (name, port) in names.iter().zip(30100..) {
        let service = Service { ports: vec![(80, port), (443, port + 100)], ..Service::default() };
        assert_eq!(provider.sync(&service.want(name)).await.outcome, Outcome::Done, "{name}");
        assert_eq!(held::nodes(&fake.state()), SHARED);
    }
    let world = fake.state();
    let backend = world.groups.values().find(|group| group.name.starts_with("k8s-backend-demo-")).unwrap();
    assert_eq!((backend.lets_in(), backend.lets_out()), (Vec::new(), Vec::new()), "all have it");
    assert_eq!(backend.tags["portcullis.dev/kind"], "Cluster");
    for name in &names {
        assert_eq!(held::attached(&world, name), ["backend", "own"]);
    }
    // It goes with the last one.
    let (last, others) = names.split_last().unwrap();
    for name in others {
        assert_eq!(provider.sync(&gone(name)).await.outcome, Outcome::Done, "{name}");
        assert_eq!(held::nodes(&fake.state()), SHARED);
    }
    assert_eq!(provider.sync(&gone(last)).await.outcome, Outcome::Done);
    is_untouched(&fake);
}

/// Who has to make room has to know where, which AWS does not say.
#[tokio::test]
async fn a_group_of_the_nodes_that_is_full_is_named() {
    for rules in [NodeRules::Shared, NodeRules::Exact] {
        let fake = fake(|config| {
            let nodes = config.world.groups.get_mut("sg-nodes").unwrap();
            for port in 1..=60 {
                let rule = Permission {
                    protocol: "tcp".to_owned(),
                    from: Some(port),
                    to: Some(port),
                    peer: Peer::Range("192.0.2.0/24".parse().unwrap()),
                };
                nodes.ingress.insert(rule, Rule::default());
            }
        });
        let provider = account(&fake).provider_with("Managed", |settings| settings.node_rules = rules);
        let outcome = provider.sync(&Service::default().want("web")).await.outcome;
        let Outcome::Blocked(problem) = outcome else { panic!("{outcome:?}") };
        assert!(problem.what.contains("AuthorizeSecurityGroupIngress: sg-nodes: "), "{problem}");
        assert!(problem.what.contains("RulesPerSecurityGroupLimitExceeded"), "{problem}");
    }
}

#[tokio::test]
async fn exact_rules_are_for_each_and_go_with_it() {
    let fake = fake(|_| ());
    let provider = account(&fake).provider_with("Managed", |settings| settings.node_rules = NodeRules::Exact);
    let udp = Listener::new(53, ListenerProtocol::Udp, 30053).unwrap();
    let web = Service { ports: vec![(80, 30080), (443, 30443)], ..Service::default() };
    let dns = Service { ports: Vec::new(), listeners: vec![udp], ..Service::default() };
    assert_eq!(provider.sync(&web.want("web")).await.outcome, Outcome::Done);
    assert_eq!(provider.sync(&dns.want("dns")).await.outcome, Outcome::Done);
    let world = fake.state();
    let all = ["tcp 10256-10256 own", "tcp 30080-30080 own", "tcp 30443-30443 own", "udp 30053-30053 own"];
    assert_eq!(held::nodes(&world), all);
    assert_eq!(held::attached(&world, "web"), ["own"], "nothing is shared");
    // Each is from the group of the one it is for, and says so.
    for (permission, rule) in &world.groups["sg-nodes"].ingress {
        let name = if permission.to == Some(30080) || permission.to == Some(30443) { "web" } else { "dns" };
        let group = held::group(&world, name).unwrap();
        assert_eq!(permission.peer, Peer::Group(id_of(&world, &group.name)), "{permission}");
        assert_eq!(rule.description, format!("portcullis demo Service shop/{name}"));
    }
    assert_eq!(provider.sync(&gone("web")).await.outcome, Outcome::Done);
    assert_eq!(held::nodes(&fake.state()), ["tcp 10256-10256 own", "udp 30053-30053 own"]);
    // Groups that were given are let in as the managed one is.
    let given = Service { annotations: vec![("security-groups", "user")], ..dns };
    assert_eq!(provider.sync(&given.want("dns")).await.outcome, Outcome::Done);
    assert_eq!(held::nodes(&fake.state()), ["tcp 10256-10256 user", "udp 30053-30053 user"]);
    assert_eq!(provider.sync(&gone("dns")).await.outcome, Outcome::Done);
    is_untouched(&fake);
}

fn id_of(world: &portcullis_aws_fake::World, name: &str) -> String {
    let mut groups = world.groups.iter();
    groups.find(|(_, group)| group.name == name).map(|(id, _)| id.clone()).unwrap()
}

#[tokio::test]
async fn switched_off_nothing_is_opened() {
    let fake = fake(|_| ());
    let off = "DisableSecurityGroupIngress = true\nNLBSecurityGroupMode =";
    for (mode, groups) in [("Managed", &["own"][..]), ("Unmanaged", &[])] {
        let provider = account(&fake).provider_by(&format!("{off} {mode}"), |_| ());
        assert_eq!(provider.sync(&Service::default().want("web")).await.outcome, Outcome::Done, "{mode}");
        let world = fake.state();
        assert_eq!(held::attached(&world, "web"), groups, "{mode}");
        assert_eq!(held::nodes(&world), Vec::<String>::new(), "{mode}");
        assert!(!world.groups.values().any(|group| group.name.starts_with("k8s-backend-")), "{mode}");
        if mode == "Managed" {
            assert_eq!(held::lets_out(&world, "web"), ["tcp 30080-30080 nodes"]);
        }
        assert_eq!(provider.sync(&gone("web")).await.outcome, Outcome::Done, "{mode}");
        is_untouched(&fake);
    }
}

#[tokio::test]
async fn what_opens_the_nodes_can_be_changed() {
    let fake = fake(|_| ());
    let exact = ["tcp 30080-30080 own"];
    let both = Service { ports: vec![(443, 30443)], ..Service::default() };
    // Each is another process, with another configuration, that finds what the one before left.
    for (rules, nodes, groups) in [
        (NodeRules::Shared, &SHARED[..], &["backend", "own"][..]),
        (NodeRules::Exact, &exact, &["own"]),
        (NodeRules::Shared, &SHARED, &["backend", "own"]),
        (NodeRules::Off, &[], &["own"]),
        (NodeRules::Exact, &exact, &["own"]),
        (NodeRules::Off, &[], &["own"]),
        (NodeRules::Shared, &SHARED, &["backend", "own"]),
    ] {
        let provider = account(&fake).provider_with("Managed", |settings| settings.node_rules = rules);
        let want = Service::default().want("web");
        assert_eq!(provider.sync(&want).await.outcome, Outcome::Done, "{rules:?}");
        let world = fake.state();
        assert_eq!(held::nodes(&world), nodes, "{rules:?}");
        assert_eq!(held::attached(&world, "web"), groups, "{rules:?}");
        let made = world.groups.values().filter(|group| group.name.starts_with("k8s-")).count();
        assert_eq!(made, groups.len(), "{rules:?}: nothing is left over");
    }
    let provider = account(&fake).provider("Managed");
    assert_eq!(provider.sync(&both.want("web")).await.outcome, Outcome::Done);
    assert_eq!(provider.sync(&gone("web")).await.outcome, Outcome::Done);
    is_untouched(&fake);
}

#[tokio::test]
async fn rules_of_others_stay() {
    let fake = fake(|_| ());
    let theirs = [
        ("tcp", 22, 22, "203.0.113.0/24", "ssh"),
        ("tcp", 30000, 32767, "203.0.113.0/24", "kubernetes.io/rule/nlb/client=a"),
        // Of another cluster of ours, in the same group.
        ("tcp", 30080, 30080, "198.51.100.0/24", "portcullis demo2 Service shop/web"),
    ];
    fake.act_as_someone_else(|world| {
        let group = world.groups.get_mut("sg-nodes").unwrap();
        for (protocol, from, to, range, description) in theirs {
            let peer = Peer::Range(range.parse().unwrap());
            let permission = Permission { protocol: protocol.into(), from: Some(from), to: Some(to), peer };
            let rule = Rule { description: description.into(), ..Rule::default() };
            group.ingress.insert(permission, rule);
        }
    });
    let before = fake.state().groups["sg-nodes"].clone();
    for rules in [NodeRules::Shared, NodeRules::Exact] {
        let provider = account(&fake).provider_with("Managed", |settings| settings.node_rules = rules);
        assert_eq!(provider.sync(&Service::default().want("web")).await.outcome, Outcome::Done);
        let now = fake.state().groups["sg-nodes"].ingress.clone();
        assert!(before.ingress.iter().all(|(permission, rule)| now.get(permission) == Some(rule)), "{now:?}");
        assert!(now.len() > before.ingress.len());
    }
    let provider = account(&fake).provider("Managed");
    assert_eq!(provider.sync(&gone("web")).await.outcome, Outcome::Done);
    assert_eq!(fake.state().groups["sg-nodes"], before);
}

#[tokio::test]
async fn the_group_of_the_nodes_is_the_tagged_or_the_only_or_the_configured_one() {
    let fake = fake(|config| {
        let world = &mut config.world;
        let tagged = world.add_security_group("sg-0tagged", "tagged", "vpc-1");
        tagged.tags.insert("kubernetes.io/cluster/demo".into(), "owned".into());
        world.add_security_group("sg-0named", "named", "vpc-1");
        world.add_instance("i-4", "subnet-a", &["sg-user", "sg-0tagged"]);
    });
    let opened = || {
        let world = fake.state();
        let open = world.groups.iter().filter(|(_, group)| group.ingress.len() == 3);
        open.map(|(id, _)| id.clone()).collect::<Vec<_>>()
    };
    let provider = account(&fake).provider("Managed");
    let both = Service { nodes: vec!["i-1", "i-4"], ..Service::default() };
    assert_eq!(provider.sync(&both.want("web")).await.outcome, Outcome::Done);
    assert_eq!(opened(), ["sg-0tagged", "sg-nodes"]);
    assert_eq!(held::lets_out(&fake.state(), "web"), ["tcp 30080-30080 nodes", "tcp 30080-30080 tagged"]);
    // A node goes, and with it the need for its group.
    assert_eq!(provider.sync(&Service::default().want("web")).await.outcome, Outcome::Done);
    assert_eq!(provider.sync(&Service::default().want("web")).await.outcome, Outcome::Done);
    assert_eq!(opened(), ["sg-nodes"]);

    let configured =
        account(&fake).provider_with("Managed", |settings| settings.node_groups = vec!["sg-0named".into()]);
    assert_eq!(configured.sync(&both.want("web")).await.outcome, Outcome::Done);
    assert_eq!(configured.sync(&both.want("web")).await.outcome, Outcome::Done);
    assert_eq!(opened(), ["sg-0named"]);
    assert_eq!(held::lets_out(&fake.state(), "web"), ["tcp 30080-30080 named"]);
    assert_eq!(configured.sync(&gone("web")).await.outcome, Outcome::Done);
    assert_eq!(opened(), Vec::<String>::new());
}

#[tokio::test]
async fn where_the_group_is_known_pods_are_let_in_on_their_own_ports() {
    let fake = fake(|_| ());
    let service = Service {
        ports: vec![(80, 8080)],
        pods: vec![("10.0.1.77", 9090)],
        ranges: Some(vec!["192.0.2.0/24"]),
        annotations: vec![("nlb-target-type", "ip"), ("enable-icmp-for-path-mtu-discovery", "off")],
        ..Service::default()
    };
    // Targets that do not see clients are sent to by the load balancer's own addresses.
    let without = ["tcp 9090-9090 10.0.1.0/24", "tcp 9090-9090 10.0.2.0/24"];
    let mut shared: Vec<&str> = SHARED.into_iter().chain(["tcp 9090-9090 backend"]).collect();
    shared.sort_unstable();
    for (mode, rules, expected) in [
        ("Managed", NodeRules::Shared, shared.as_slice()),
        ("Managed", NodeRules::Exact, &["tcp 9090-9090 own"]),
        ("Unmanaged", NodeRules::Shared, &without),
    ] {
        let provider = account(&fake).provider_with(mode, |settings| {
            settings.node_rules = rules;
            settings.node_groups = vec!["sg-nodes".into()];
        });
        // Without groups nobody could keep to ranges.
        let ranges = service.ranges.clone().filter(|_| mode == "Managed");
        let service = Service { ranges, ..service.clone() };
        assert_eq!(provider.sync(&service.want("web")).await.outcome, Outcome::Done, "{mode} {rules:?}");
        assert_eq!(held::nodes(&fake.state()), expected, "{mode} {rules:?}");
        assert_eq!(provider.sync(&gone("web")).await.outcome, Outcome::Done, "{mode} {rules:?}");
        is_untouched(&fake);
    }
}
