//! The provider against moto: an independent reading of AWS's wire format.

use std::collections::BTreeSet;
use std::time::{Duration, SystemTime};

use portcullis_aws::{MemberReports, NodeRules, Provider};
use portcullis_core::{Address, Duty, Listener, ListenerProtocol, Outcome, Provider as _, Target, Want};
use portcullis_testkit::AwsSite;
use portcullis_testkit::parts::AwsSimulator;

use crate::members::{Plane, states};
use crate::scene::{Account, Service, gone};

#[tokio::test(flavor = "multi_thread")]
async fn a_load_balancer_is_made_changed_and_taken_away() {
    let aws = portcullis_testkit::aws();
    let url = aws.url();
    let site = AwsSite::new(&url);
    let (ec2, elb, text) = (|body: &str| site.ec2(body), |body: &str| site.elb(body), AwsSite::text);
    let groups = || ec2("Action=DescribeSecurityGroups");
    let before = groups().matches("<groupName>").count();
    let account = Account { region: "us-east-1", key: "test", secret: "test", url: &url, vpc: &site.vpc };
    let provider = account.provider("Managed");

    let nodes: Vec<&str> = site.nodes.iter().map(String::as_str).collect();
    let service = Service { nodes: nodes.clone(), ranges: Some(vec!["192.0.2.0/24"]), ..Service::default() };
    let first = Service { ports: vec![(80, 30080), (443, 30443)], ..service.clone() }.want("web");
    let report = provider.sync(&first).await;
    assert_eq!(report.outcome, Outcome::Done, "{report:?}");
    assert!(
        matches!(report.addresses.as_slice(), [Address::Hostname(name)] if name.contains("elb")),
        "{report:?}"
    );
    assert_eq!(groups().matches("<groupName>").count(), before + 2, "one of its own, and one for all");
    assert!(groups().contains("192.0.2.0/24"));
    let listeners = |arn: &str| elb(&format!("Action=DescribeListeners&LoadBalancerArn={arn}"));
    let arn = text(&elb("Action=DescribeLoadBalancers"), "LoadBalancerArn");
    assert_eq!(listeners(&arn).matches("<ListenerArn>").count(), 2);

    // Nothing changes: nothing is called.
    let calls = provider.client().calls();
    assert_eq!(provider.sync(&first).await.outcome, Outcome::Done);
    assert_eq!(provider.client().calls(), calls);

    // Another process finds it as it is, and changes only what is different.
    let again = account.provider("Managed");
    let ranges = Some(vec!["192.0.2.0/24", "198.51.100.0/24"]);
    let second = Service { ports: vec![(80, 30080), (8443, 30443)], ranges, ..service }.want("web");
    assert_eq!(again.sync(&second).await.outcome, Outcome::Done);
    let found = elb("Action=DescribeLoadBalancers");
    assert_eq!(text(&found, "LoadBalancerArn"), arn);
    let mut ports: Vec<String> = listeners(&arn)
        .split("<Port>")
        .skip(1)
        .map(|part| part.split('<').next().unwrap().to_owned())
        .collect();
    ports.sort();
    ports.dedup();
    assert_eq!(ports, ["80", "8443"]);
    assert!(groups().contains("198.51.100.0/24"));
    let nodes = ec2(&format!("Action=DescribeSecurityGroups&GroupId.1={}", site.node_group));
    assert_eq!(nodes.matches("<fromPort>").count(), 3, "{nodes}");

    let gone = Want { target: Target::Gone, ..second };
    assert_eq!(again.sync(&gone).await.outcome, Outcome::Done);
    assert_eq!(groups().matches("<groupName>").count(), before, "{}", groups());
    assert!(!elb("Action=DescribeLoadBalancers").contains("<LoadBalancerArn>"));
    assert!(!elb("Action=DescribeTargetGroups").contains("<TargetGroupArn>"));
}

/// A simulator of its own for a test, and what is asked of it.
struct Moto {
    _aws: AwsSimulator,
    url: String,
    site: AwsSite,
    untouched: usize,
}

impl Moto {
    fn start() -> Self {
        let aws = portcullis_testkit::aws();
        let url = aws.url();
        let site = AwsSite::new(&url);
        let mut moto = Moto { _aws: aws, url, site, untouched: 0 };
        moto.untouched = moto.groups().matches("<groupName>").count();
        moto
    }

    /// A process that knows nothing yet.
    fn provider(&self, mode: &str) -> Provider {
        let account =
            Account { region: "us-east-1", key: "test", secret: "test", url: &self.url, vpc: &self.site.vpc };
        account.provider_with(mode, |settings| settings.node_groups = vec![self.site.node_group.clone()])
    }

    fn service(&self) -> Service<'_> {
        Service { nodes: self.site.nodes.iter().map(String::as_str).collect(), ..Service::default() }
    }

    fn groups(&self) -> String {
        self.site.ec2("Action=DescribeSecurityGroups")
    }

    fn balancers(&self) -> String {
        self.site.elb("Action=DescribeLoadBalancers")
    }

    fn listeners(&self) -> String {
        let arn = AwsSite::text(&self.balancers(), "LoadBalancerArn");
        self.site.elb(&format!("Action=DescribeListeners&LoadBalancerArn={arn}"))
    }

    /// Port and protocol of each listener.
    fn listens(&self) -> BTreeSet<(String, String)> {
        let listeners = self.listeners();
        let each = listeners.split("<ListenerArn>").skip(1);
        each.map(|one| (AwsSite::text(one, "Port"), AwsSite::text(one, "Protocol"))).collect()
    }

    /// What the nodes let in.
    fn nodes(&self) -> String {
        let group = &self.site.node_group;
        let found = self.site.ec2(&format!("Action=DescribeSecurityGroups&GroupId.1={group}"));
        let rules =
            found.split("<ipPermissions>").nth(1).and_then(|rest| rest.split("</ipPermissions>").next());
        rules.unwrap_or_default().to_owned()
    }

    /// Who is sent to, with ports.
    fn targets(&self) -> BTreeSet<(String, String)> {
        let pools = self.site.elb("Action=DescribeTargetGroups");
        let mut all = BTreeSet::new();
        for pool in pools.split("<TargetGroupArn>").skip(1) {
            let arn = pool.split('<').next().unwrap();
            let found = self.site.elb(&format!("Action=DescribeTargetHealth&TargetGroupArn={arn}"));
            let each = found.split("<Target>").skip(1);
            all.extend(each.map(|one| (AwsSite::text(one, "Id"), AwsSite::text(one, "Port"))));
        }
        all
    }

    /// Makes it so, by a process of its own; another one finds nothing to change.
    async fn settle(&self, mode: &str, service: &Service<'_>) {
        let want = service.want("web");
        let report = self.provider(mode).sync(&want).await;
        assert_eq!(report.outcome, Outcome::Done, "{report:?}");
        let again = self.provider(mode);
        assert_eq!(again.sync(&want).await.outcome, Outcome::Done);
        let calls = again.client().calls();
        assert!(calls.keys().all(|(action, _)| action.starts_with("Describe")), "{calls:?}");
    }

    async fn takes_it_away(&self, mode: &str) {
        let provider = self.provider(mode);
        assert_eq!(provider.sync(&gone("web")).await.outcome, Outcome::Done);
        assert!(!self.balancers().contains("<LoadBalancerArn>"));
        assert!(!self.site.elb("Action=DescribeTargetGroups").contains("<TargetGroupArn>"));
        assert_eq!(self.groups().matches("<groupName>").count(), self.untouched, "{}", self.groups());
        assert!(!self.nodes().contains("<fromPort>"), "{}", self.nodes());
    }
}

fn pairs(all: &[(&str, &str)]) -> BTreeSet<(String, String)> {
    all.iter().map(|(one, other)| ((*one).to_owned(), (*other).to_owned())).collect()
}

/// Moto does not change listeners for UDP and TLS: these get other ports here, and keep their target groups.
#[tokio::test(flavor = "multi_thread")]
async fn listeners_for_udp_and_tls() {
    let moto = Moto::start();
    let certificate = moto.site.add_certificate("web");
    let listener = |port, protocol, to| Listener::new(port, protocol, to).unwrap();
    let service = |dns: u16, both: u16| Service {
        ports: vec![(443, 30443), (80, 30080)],
        listeners: vec![
            listener(dns, ListenerProtocol::Udp, 30053),
            listener(both, ListenerProtocol::Tcp, 30900),
            listener(both, ListenerProtocol::Udp, 30900),
        ],
        annotations: vec![("ssl-cert", &certificate), ("ssl-ports", "443")],
        ..moto.service()
    };
    moto.settle("Managed", &service(53, 9000)).await;
    let expected = [("443", "TLS"), ("80", "TCP"), ("53", "UDP"), ("9000", "TCP_UDP")];
    assert_eq!(moto.listens(), pairs(&expected));
    assert!(moto.listeners().contains(&certificate));
    let groups = moto.groups();
    let rule = |protocol: &str, port: u16| {
        let mut rules = groups.split("<ipProtocol>").skip(1);
        rules.any(|rule| {
            rule.starts_with(&format!("{protocol}<")) && rule.contains(&format!("<fromPort>{port}<"))
        })
    };
    for (protocol, port) in [("tcp", 443), ("tcp", 80), ("udp", 53), ("tcp", 9000), ("udp", 9000)] {
        assert!(rule(protocol, port), "{protocol} {port} in {groups}");
    }
    assert!(!rule("tls", 443) && !rule("tcp", 53), "{groups}");

    moto.settle("Managed", &service(5353, 9001)).await;
    let expected = [("443", "TLS"), ("80", "TCP"), ("5353", "UDP"), ("9001", "TCP_UDP")];
    assert_eq!(moto.listens(), pairs(&expected));
    assert!(moto.groups().contains("<fromPort>5353<") && !moto.groups().contains("<fromPort>53<"));
    moto.takes_it_away("Managed").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn both_families() {
    let moto = Moto::start();
    moto.site.add_ipv6();
    let dual = Service {
        dual: true,
        ranges: Some(vec!["192.0.2.0/24", "2001:db8::/32"]),
        ports: vec![(80, 30080), (443, 30443)],
        ..moto.service()
    };
    moto.settle("Managed", &dual).await;
    assert_eq!(AwsSite::text(&moto.balancers(), "IpAddressType"), "dualstack");
    let groups = moto.groups();
    assert!(
        groups.contains("<cidrIpv6>2001:db8::/32<") && groups.contains("<ipProtocol>icmpv6<"),
        "{groups}"
    );
    assert!(!groups.contains("<cidrIp>2001"), "{groups}");
    // It can lose a family, and get it back.
    let one = Service { dual: false, ranges: Some(vec!["192.0.2.0/24"]), ..dual.clone() };
    moto.settle("Managed", &one).await;
    assert_eq!(AwsSite::text(&moto.balancers(), "IpAddressType"), "ipv4");
    assert!(!moto.groups().contains("2001:db8::/32"));
    moto.settle("Managed", &dual).await;
    assert_eq!(AwsSite::text(&moto.balancers(), "IpAddressType"), "dualstack");
    moto.takes_it_away("Managed").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn groups_of_the_user() {
    let mut moto = Moto::start();
    let user = moto.site.add_group("user");
    moto.untouched += 1;
    let service = moto.service();
    let given = Service { annotations: vec![("security-groups", "user")], ..service.clone() };
    let attached = || {
        let found = moto.balancers();
        let groups = found.split("<SecurityGroups>").nth(1).unwrap().split("</SecurityGroups>").next();
        (groups.unwrap().contains(&user), groups.unwrap().matches("<member>").count())
    };
    for (service, expected) in [(&service, (false, 2)), (&given, (true, 2)), (&service, (false, 2))] {
        moto.settle("Managed", service).await;
        assert_eq!(attached(), expected, "the one that all have is always there");
        let own = usize::from(!expected.0);
        assert_eq!(moto.groups().matches("<groupName>").count(), moto.untouched + 1 + own);
    }
    // From the start, and by its id.
    moto.takes_it_away("Managed").await;
    let given = Service { annotations: vec![("security-groups", &user)], ..service.clone() };
    moto.settle("Managed", &given).await;
    assert_eq!(attached(), (true, 2));
    moto.takes_it_away("Managed").await;
    assert!(moto.groups().contains(&user), "it is not ours");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_groups_the_nodes_let_in_clients() {
    let moto = Moto::start();
    let service = |range: &'static str, port: u16| Service {
        ranges: Some(vec![range]),
        ports: vec![(80, port)],
        ..moto.service()
    };
    moto.settle("Unmanaged", &service("192.0.2.0/24", 30080)).await;
    assert_eq!(moto.groups().matches("<groupName>").count(), moto.untouched);
    let nodes = moto.nodes();
    for part in ["192.0.2.0/24", "10.0.1.0/24", "10.0.2.0/24", "<fromPort>30080<", "portcullis demo Service"]
    {
        assert!(nodes.contains(part), "no {part} in {nodes}");
    }
    moto.settle("Unmanaged", &service("198.51.100.0/24", 30081)).await;
    let nodes = moto.nodes();
    assert!(nodes.contains("198.51.100.0/24") && nodes.contains("<fromPort>30081<"), "{nodes}");
    assert!(!nodes.contains("192.0.2.0/24") && !nodes.contains("<fromPort>30080<"), "{nodes}");
    moto.takes_it_away("Unmanaged").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn addresses_of_pods() {
    let moto = Moto::start();
    let service = |pods: &[(&'static str, u16)]| Service {
        pods: pods.to_vec(),
        annotations: vec![("nlb-target-type", "ip")],
        ..moto.service()
    };
    moto.settle("Managed", &service(&[("10.0.1.77", 9090)])).await;
    assert_eq!(moto.targets(), pairs(&[("10.0.1.77", "9090")]));
    assert!(moto.nodes().contains("<fromPort>9090<"));
    // One on another port, one in another subnet, and the first one gone.
    moto.settle("Managed", &service(&[("10.0.1.78", 9191), ("10.0.2.79", 9191)])).await;
    assert_eq!(moto.targets(), pairs(&[("10.0.1.78", "9191"), ("10.0.2.79", "9191")]));
    let groups = moto.groups();
    assert!(groups.contains("<cidrIp>10.0.2.0/24<") && groups.contains("<fromPort>9191<"), "{groups}");
    assert!(!groups.contains("<fromPort>9090<"), "{groups}");
    moto.takes_it_away("Managed").await;
}

/// What a control plane needs, in AWS's wire format: checks by HTTPS, instances and addresses, and how
/// members do. It tells of no zones, so that addresses elsewhere cannot be known again here.
#[tokio::test(flavor = "multi_thread")]
async fn members_of_a_control_plane() {
    let moto = Moto::start();
    let account =
        Account { region: "us-east-1", key: "test", secret: "test", url: &moto.url, vpc: &moto.site.vpc };
    let provider = || {
        account.provider_with("Managed", |settings| {
            settings.members = MemberReports::Each;
            settings.node_rules = NodeRules::Exact;
        })
    };
    let leave = Duty::Leave { by: SystemTime::now() + Duration::from_secs(600) };
    let machine = moto.site.nodes[0].as_str();
    for (kind, one, two) in
        [("instance", machine, moto.site.nodes[1].as_str()), ("ip", "10.0.1.77", "10.0.2.78")]
    {
        let mut plane = Plane {
            kind,
            members: vec![("one", one, Duty::Serve), ("two", two, Duty::Serve)],
            hold: Some(0),
            ..Plane::default()
        };
        let acting = provider();
        let report = acting.sync(&plane.want("demo")).await;
        assert_eq!(report.outcome, Outcome::Done, "{report:?}");
        let found = moto.targets();
        assert_eq!(found, [one, two].map(|id| (id.to_owned(), "6443".to_owned())).into());
        assert_eq!(moto.nodes().matches("<fromPort>6443").count(), usize::from(kind == "instance"));
        let pools = moto.site.elb("Action=DescribeTargetGroups");
        assert_eq!(AwsSite::text(&pools, "HealthCheckPath"), "/readyz");
        let known = acting.sync(&plane.want("demo")).await;
        assert_eq!(states(&known), ["one active", "two active"], "{kind}: {:?}", known.members);
        plane.members[0].2 = leave;
        acting.sync(&plane.want("demo")).await;
        // Another process, which knows nothing: here targets are gone at once.
        assert_eq!(states(&provider().sync(&plane.want("demo")).await), ["one removed", "two active"]);
        assert_eq!(moto.targets(), [(two.to_owned(), "6443".to_owned())].into());
        let gone = Want { target: Target::Gone, ..plane.want("demo") };
        assert_eq!(provider().sync(&gone).await.outcome, Outcome::Done);
        assert_eq!(moto.groups().matches("<groupName>").count(), moto.untouched);
    }
}
