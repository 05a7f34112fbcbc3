//! Load balancers change hands, whatever happens in between. What cloud-provider-aws leaves is made by hand here; the real
//! one is tested beside the program.

use std::collections::BTreeSet;

use portcullis_aws::{Estate, Maker, NodeRules, Provider};
use portcullis_aws_fake::{
    Fake, Fault, HealthCheck, Listener, LoadBalancer, Peer, Permission, Placement, Rule, Tags, Target,
    TargetGroup, TargetId, World,
};
use portcullis_core::{Outcome, Owner, Problem, Provider as _, Want};

use crate::scene::{Service, account, fake, gone, owner, shape};

const CLIENTS: &str = "192.0.2.0/24";
const NAME: &str = "a0123456789abcdef0123456789abcdef";
const ADDRESS: &str = "a0123.elb.eu-central-1.amazonaws.com";
const ARN: &str =
    "arn:aws:elasticloadbalancing:eu-central-1:123456789012:loadbalancer/net/a0123/0123456789abcdef";
const POOL: &str =
    "arn:aws:elasticloadbalancing:eu-central-1:123456789012:targetgroup/k8s-shop-web-1/0123456789abcdef";
const LISTENER: &str = "arn:aws:elasticloadbalancing:eu-central-1:123456789012:listener/net/a0123/0123456789abcdef/0123456789abcdef";

fn tags(pairs: &[(&str, &str)]) -> Tags {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

fn rule(protocol: &str, from: i32, to: i32, peer: &str, description: &str) -> (Permission, Rule) {
    let peer = Peer::Range(peer.parse().unwrap());
    let permission = Permission { protocol: protocol.to_owned(), from: Some(from), to: Some(to), peer };
    let id = format!("sgr-{description}-{permission}");
    (permission, Rule { id, description: description.to_owned(), ..Rule::default() })
}

/// What cloud-provider-aws has for the Service `shop/web`, with the nodes open for its clients.
fn as_the_cloud_provider(world: &mut World) {
    let written =
        tags(&[("kubernetes.io/cluster/demo", "owned"), ("kubernetes.io/service-name", "shop/web")]);
    let own = world.add_security_group("sg-theirs", "k8s-shop-web-0123456789", "vpc-1");
    own.tags = tags(&[("kubernetes.io/cluster/demo", "owned")]);
    "[k8s] Managed SecurityGroup for LoadBalancer".clone_into(&mut own.description);
    own.ingress.extend([rule("tcp", 80, 80, CLIENTS, ""), rule("icmp", 3, 4, CLIENTS, "")]);
    let client = format!("kubernetes.io/rule/nlb/client={NAME}");
    let health = format!("kubernetes.io/rule/nlb/health={NAME}");
    world.groups.get_mut("sg-nodes").unwrap().ingress.extend([
        rule("tcp", 30080, 30080, CLIENTS, &client),
        rule("icmp", 3, 4, CLIENTS, "kubernetes.io/rule/nlb/mtu"),
        rule("tcp", 30080, 30080, "10.0.1.0/24", &health),
        rule("tcp", 30080, 30080, "10.0.2.0/24", &health),
        rule("tcp", 22, 22, "198.51.100.0/24", "somebody's"),
    ]);
    let target = |id: &str| {
        let id = TargetId { id: id.to_owned(), port: 30080 };
        (id, Target { zone: None, health: "healthy".to_owned() })
    };
    let pool = TargetGroup {
        name: "k8s-shop-web-1".to_owned(),
        protocol: "TCP".to_owned(),
        port: 30080,
        vpc: "vpc-1".to_owned(),
        kind: "instance".to_owned(),
        ip_address_type: "ipv4".to_owned(),
        health_check: HealthCheck {
            protocol: "TCP".to_owned(),
            port: "traffic-port".to_owned(),
            path: None,
            matcher: None,
            interval: 30,
            timeout: 10,
            healthy: 3,
            unhealthy: 3,
        },
        attributes: [].into(),
        tags: written.clone(),
        targets: ["i-1", "i-2"].map(target).into(),
    };
    world.target_groups.insert(POOL.to_owned(), pool);
    let listener = Listener {
        port: 80,
        protocol: "TCP".to_owned(),
        target_group: POOL.to_owned(),
        certificate: None,
        policy: None,
        alpn: None,
        tags: Tags::new(),
    };
    let balancer = LoadBalancer {
        name: NAME.to_owned(),
        dns_name: ADDRESS.to_owned(),
        scheme: "internet-facing".to_owned(),
        vpc: "vpc-1".to_owned(),
        state: "active".to_owned(),
        ip_address_type: "ipv4".to_owned(),
        source_nat_prefixes: false,
        subnets: ["subnet-a", "subnet-b"].map(|id| (id.to_owned(), Placement::default())).into(),
        groups: ["sg-theirs".to_owned()].into(),
        made_with_groups: true,
        enforces_private_links: true,
        attributes: [].into(),
        tags: written,
        listeners: [(LISTENER.to_owned(), listener)].into(),
        created: 0,
    };
    world.load_balancers.insert(ARN.to_owned(), balancer);
}

fn theirs() -> Fake {
    fake(|config| as_the_cloud_provider(&mut config.world))
}

/// What the Service wants once it was taken over.
fn want() -> Want {
    let service = Service { ranges: Some(vec![CLIENTS]), ..Service::default() };
    let mut want = service.want("web");
    want.parameters.insert(Owner::ADOPTED_KEY.to_owned(), "{}".to_owned());
    want
}

/// All that is there, and the marks of the nodes' rules.
fn all(world: &World) -> Vec<String> {
    let named = |id: &str| world.groups.get(id).map_or(id, |group| group.name.as_str()).to_owned();
    let nodes = world.groups["sg-nodes"].ingress.iter();
    let marks = nodes.map(|(rule, found)| {
        let from = match &rule.peer {
            Peer::Group(id) => named(id),
            other => other.to_string(),
        };
        format!("nodes: {} {:?} {from}: {}", rule.protocol, rule.from, found.description)
    });
    shape(world).into_iter().chain(marks).collect()
}

/// Whether packets from the clients come through to every target of every listener.
fn is_open(world: &World) -> bool {
    let client = Peer::Range(CLIENTS.parse().unwrap());
    let covers = |rule: &Permission, port: u16| {
        let port = i32::from(port);
        rule.protocol == "-1"
            || rule.protocol == "tcp"
                && rule.from.is_some_and(|from| from <= port)
                && rule.to.is_some_and(|to| port <= to)
    };
    world.load_balancers.values().all(|balancer| {
        let groups: Vec<_> = balancer.groups.iter().map(|id| &world.groups[id]).collect();
        let is_from_it = |peer: &Peer| matches!(peer, Peer::Group(id) if balancer.groups.contains(id));
        balancer.listeners.values().all(|listener| {
            let pool = &world.target_groups[&listener.target_group];
            let enters = |rule: &Permission| covers(rule, listener.port) && rule.peer == client;
            let leaves = |rule: &Permission| covers(rule, pool.port);
            let arrives = |rule: &Permission| {
                covers(rule, pool.port) && (rule.peer == client || is_from_it(&rule.peer))
            };
            !pool.targets.is_empty()
                && groups.iter().any(|group| group.ingress.keys().any(enters))
                && groups.iter().any(|group| group.egress.keys().any(leaves))
                && world.groups["sg-nodes"].ingress.keys().any(arrives)
        })
    })
}

/// As the commands and the controller do it, by a process that knows nothing yet.
struct Process<'a> {
    fake: &'a Fake,
    rules: NodeRules,
}

impl Process<'_> {
    fn provider(&self) -> Provider {
        account(self.fake).provider_with("Managed", |settings| settings.node_rules = self.rules)
    }

    async fn estate(&self, provider: &Provider) -> Result<Estate, String> {
        provider.estate(&owner("web"), ADDRESS).await.map_err(|problem| problem.to_string())
    }

    /// Takes it over, and makes it so as it is wanted.
    async fn adopt(&self) -> Result<(), String> {
        let provider = self.provider();
        let estate = self.estate(&provider).await?;
        provider.adopt(&owner("web"), &estate).await.map_err(|error| error.to_string())?;
        match self.provider().sync(&want()).await.outcome {
            Outcome::Done => Ok(()),
            other => Err(format!("{other:?}")),
        }
    }

    /// Gives it back. Once the rules are given, the Service is the other's, which sets its groups.
    async fn release(&self) -> Result<(), String> {
        let provider = self.provider();
        let estate = self.estate(&provider).await?;
        let given = provider.give_back_rules(&want(), &estate).await;
        given.map_err(|problem| problem.to_string())?;
        self.fake.act_as_someone_else(|world| {
            world.load_balancers.get_mut(ARN).unwrap().groups = ["sg-theirs".to_owned()].into();
        });
        let unseen = |error: portcullis_aws::CallError| error.to_string();
        assert!(provider.is_without_ours(&owner("web"), &estate).await.map_err(unseen)?);
        let left = provider.take_away_own(&owner("web"), &estate).await.map_err(unseen)?;
        assert_eq!(left, Vec::<String>::new());
        provider.let_go(&owner("web"), &estate).await.map_err(unseen)
    }

    /// What nobody says anything of is swept, as the controller does it.
    async fn sweep(&self) {
        let provider = self.provider();
        provider.look_at_all().await.unwrap();
        for owner in provider.forgotten() {
            let want = Want { owner, ..gone("web") };
            assert_eq!(provider.sync(&want).await.outcome, Outcome::Done);
        }
    }
}

/// From the change of that number on, nobody is there any more; of that one it is said whether it was done. Between two
/// changes it makes no difference when it happens.
fn kill_at(fake: &Fake, kill: usize, done: bool) {
    let mut changes = 0;
    fake.faults(move |call| {
        let is_first = call.mutating && changes + 1 == kill;
        changes += usize::from(call.mutating);
        match changes {
            changes if changes < kill => Fault::None,
            _ if is_first && done => Fault::DropAfter,
            _ => Fault::DropBefore,
        }
    });
}

const ALL_RULES: [NodeRules; 3] = [NodeRules::Shared, NodeRules::Exact, NodeRules::Off];

#[tokio::test]
async fn killed_everywhere_while_it_is_taken_over() {
    for rules in ALL_RULES {
        let calm = theirs();
        Process { fake: &calm, rules }.adopt().await.unwrap();
        let expected = all(&calm.state());
        for kill in 1.. {
            let mut reached = false;
            for done in [false, true] {
                let fake = theirs();
                let process = Process { fake: &fake, rules };
                kill_at(&fake, kill, done);
                reached |= process.adopt().await.is_err();
                assert!(is_open(&fake.state()), "{rules:?}, killed at {kill}");
                fake.clear_faults();
                process.adopt().await.unwrap();
                assert_eq!(all(&fake.state()), expected, "{rules:?}, killed at {kill}, done: {done}");
            }
            if !reached {
                break;
            }
        }
    }
}

#[tokio::test]
async fn killed_everywhere_while_it_is_given_back() {
    for rules in ALL_RULES {
        let calm = theirs();
        let process = Process { fake: &calm, rules };
        process.adopt().await.unwrap();
        process.release().await.unwrap();
        process.sweep().await;
        let expected = all(&calm.state());
        assert_eq!(expected, all(&theirs().state()), "all is as it was");
        for kill in 1.. {
            let mut reached = false;
            for done in [false, true] {
                let fake = theirs();
                let process = Process { fake: &fake, rules };
                process.adopt().await.unwrap();
                kill_at(&fake, kill, done);
                let released = process.release().await;
                reached |= released.is_err();
                assert!(is_open(&fake.state()), "{rules:?}, killed at {kill}");
                fake.clear_faults();
                // What was done last may have been the last thing to do.
                if let Err(why) = process.release().await {
                    panic!("{rules:?}, killed at {kill}, done: {done}: {why}");
                }
                process.sweep().await;
                assert_eq!(all(&fake.state()), expected, "{rules:?}, killed at {kill}, done: {done}");
            }
            if !reached {
                break;
            }
        }
    }
}

/// The nodes are not left open for clients when it stays ours.
#[tokio::test]
async fn what_was_opened_for_the_other_is_closed_again() {
    let fake = theirs();
    let process = Process { fake: &fake, rules: NodeRules::Shared };
    process.adopt().await.unwrap();
    let before = all(&fake.state());
    let provider = process.provider();
    let estate = process.estate(&provider).await.unwrap();
    assert_eq!(estate.maker, Maker::CloudProvider);
    let given = provider.give_back_rules(&want(), &estate).await.unwrap();
    assert_ne!(all(&fake.state()), before);
    provider.take_back_rules(&given).await.unwrap();
    assert_eq!(all(&fake.state()), before);
    provider.take_back_rules(&given).await.unwrap();

    // AWS does it, and does not say so; then it says no to everything.
    let lost = |call: &portcullis_aws_fake::Call| match call.action.as_str() {
        "AuthorizeSecurityGroupIngress" => Fault::DropAfter,
        _ => Fault::None,
    };
    fake.faults(lost);
    let problem: Problem = provider.give_back_rules(&want(), &estate).await.unwrap_err();
    assert!(problem.to_string().contains("nothing was opened"), "{problem}");
    assert_eq!(all(&fake.state()), before);
    fake.faults(move |call| match call.action.as_str() {
        "RevokeSecurityGroupIngress" => Fault::Error("UnauthorizedOperation".to_owned(), 403),
        _ => lost(call),
    });
    let problem = provider.give_back_rules(&want(), &estate).await.unwrap_err().to_string();
    assert!(problem.contains("tcp 30080 192.0.2.0/24") && problem.contains("in group sg-nodes"), "{problem}");
    fake.clear_faults();

    // Who keeps it closes them by taking it over again.
    process.adopt().await.unwrap();
    assert_eq!(all(&fake.state()), before);
}

/// What we made for it besides goes with us, as soon as it can.
#[tokio::test]
async fn what_we_made_for_it_goes() {
    let fake = theirs();
    let process = Process { fake: &fake, rules: NodeRules::Exact };
    process.adopt().await.unwrap();
    fake.act_as_someone_else(|world| {
        let written = world.load_balancers[ARN].tags.clone();
        let is_ours = |key: &str| key.starts_with("portcullis.dev/") && key != Owner::ADOPTED_KEY;
        let made: Tags = written.into_iter().filter(|(key, _)| is_ours(key)).collect();
        world.add_security_group("sg-made", "k8s-shop-web-0123456789-2", "vpc-1").tags = made.clone();
        world.load_balancers.get_mut(ARN).unwrap().groups.insert("sg-made".to_owned());
        let pool = TargetGroup { tags: made, name: "made".to_owned(), ..world.target_groups[POOL].clone() };
        world.target_groups.insert(POOL.replace("web-1", "web-2"), pool);
        let mark =
            world.groups["sg-nodes"].ingress.values().find(|rule| rule.description.contains("shop/web"));
        let mark = mark.unwrap().clone();
        let from = Permission {
            protocol: "udp".to_owned(),
            from: Some(1),
            to: Some(1),
            peer: Peer::Group("sg-made".to_owned()),
        };
        world.groups.get_mut("sg-nodes").unwrap().ingress.insert(from, mark);
    });
    let provider = process.provider();
    let estate = process.estate(&provider).await.unwrap();
    let left = provider.take_away_own(&owner("web"), &estate).await.unwrap();
    assert_eq!(left, [format!("security group sg-made (k8s-shop-web-0123456789-2), which {NAME} has")]);
    assert_eq!(fake.state().target_groups.keys().collect::<Vec<_>>(), [POOL], "nobody sent to it");
    process.release().await.unwrap();
    let state = fake.state();
    assert!(!state.groups.contains_key("sg-made"));
    let groups: BTreeSet<&str> = state.groups.keys().map(String::as_str).collect();
    assert!(groups.is_superset(&["sg-theirs", "sg-nodes", "sg-user"].into()), "{groups:?}");
}

#[tokio::test]
async fn one_of_another_vpc_is_refused() {
    let fake = theirs();
    fake.act_as_someone_else(|world| {
        world.add_vpc("vpc-2", "10.1.0.0/16", false);
        world.load_balancers.get_mut(ARN).unwrap().vpc = "vpc-2".to_owned();
    });
    let process = Process { fake: &fake, rules: NodeRules::Shared };
    let refused = process.estate(&process.provider()).await.unwrap_err();
    assert!(refused.contains("is in VPC vpc-2, and the cluster is in vpc-1"), "{refused}");
    assert_eq!(fake.mutating_calls(), 0);
}
