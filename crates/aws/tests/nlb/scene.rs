//! What tests need to say what is wanted, and of whom.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

use aws_credential_types::Credentials;
use aws_credential_types::provider::SharedCredentialsProvider;
use portcullis_aws::{Client, CloudConfig, Endpoints, Limits, Options, PREFIX, Provider, Settings};
use portcullis_aws_fake::{Config, Fake, TargetGroup, World};
use portcullis_core::{
    Admission, EmptyMeans, Family, Listener, ListenerProtocol, LoadBalancer, Member, Owner, Scheme,
    SourceRanges, Target, Want,
};

/// Where load balancers are made, and by whom.
#[derive(Clone, Copy)]
pub(crate) struct Account<'a> {
    pub(crate) region: &'a str,
    pub(crate) key: &'a str,
    pub(crate) secret: &'a str,
    pub(crate) url: &'a str,
    pub(crate) vpc: &'a str,
}

impl Account<'_> {
    pub(crate) fn provider(self, mode: &str) -> Provider {
        self.provider_with(mode, |_| ())
    }

    pub(crate) fn provider_with(self, mode: &str, change: impl FnOnce(&mut Settings)) -> Provider {
        self.provider_by(&format!("NLBSecurityGroupMode = {mode}"), change)
    }

    /// A provider that knows nothing yet, as after a start; by what a cloud-config says.
    pub(crate) fn provider_by(self, global: &str, change: impl FnOnce(&mut Settings)) -> Provider {
        self.provider_at_pace(Limits::none(), global, change)
    }

    /// The same, with so many calls in a second.
    pub(crate) fn provider_at_pace(
        self,
        limits: Limits,
        global: &str,
        change: impl FnOnce(&mut Settings),
    ) -> Provider {
        let (client, mut settings) = self.parts(limits, global);
        change(&mut settings);
        Provider::new(client, settings)
    }

    /// What a provider is made from.
    pub(crate) fn parts(self, limits: Limits, global: &str) -> (Client, Settings) {
        let credentials = Credentials::new(self.key, self.secret, None, None, "test");
        let (config, _) = CloudConfig::parse(&format!("[Global]\n{global}\n")).unwrap();
        let endpoint = |name: &str| (name == "AWS_ENDPOINT_URL").then(|| self.url.to_owned());
        let endpoints = Endpoints::new(self.region, &config, endpoint).unwrap();
        let options = Options { limits, pause: Duration::from_millis(1), ..Options::default() };
        let client = Client::new(SharedCredentialsProvider::new(credentials), endpoints, options);
        (client, Settings::new("demo", self.vpc, &config).unwrap())
    }
}

/// The strict fake, with a VPC, two public subnets and three nodes.
pub(crate) fn fake(change: impl FnOnce(&mut Config)) -> Fake {
    let mut world = World::default();
    world.add_vpc("vpc-1", "10.0.0.0/16", false);
    world.add_subnet("subnet-a", "vpc-1", "eu-central-1a", "10.0.1.0/24", false);
    world.add_subnet("subnet-b", "vpc-1", "eu-central-1b", "10.0.2.0/24", false);
    world.add_route_table("rtb-1", "vpc-1", &[], true);
    world.add_security_group("sg-nodes", "nodes", "vpc-1");
    world.add_security_group("sg-user", "user", "vpc-1");
    for node in ["i-1", "i-2", "i-3"] {
        world.add_instance(node, "subnet-a", &["sg-nodes"]);
    }
    let mut config = Config { world, ..Config::default() };
    change(&mut config);
    Fake::start(config).unwrap()
}

/// The same, with IPv6 in the VPC and its subnets.
pub(crate) fn dual_stack() -> Fake {
    fake(|config| {
        let world = &mut config.world;
        world.vpcs.get_mut("vpc-1").unwrap().range6 = Some("2001:db8:1::/56".parse().unwrap());
        for (subnet, range) in [("subnet-a", "2001:db8:1:1::/64"), ("subnet-b", "2001:db8:1:2::/64")] {
            world.subnets.get_mut(subnet).unwrap().range6 = Some(range.parse().unwrap());
        }
    })
}

pub(crate) fn account(fake: &Fake) -> Account<'_> {
    Account {
        region: "eu-central-1",
        key: "AKIAFAKEFAKEFAKEFAKE",
        secret: "a-secret-of-the-fake",
        url: fake.url(),
        vpc: "vpc-1",
    }
}

pub(crate) fn owner(name: &str) -> Owner {
    Owner::new("demo", "Service", Some("shop".into()), name).unwrap()
}

/// A Service, as short as it can be said.
#[derive(Clone, Debug)]
pub(crate) struct Service<'a> {
    /// Ports, and the node ports behind them.
    pub(crate) ports: Vec<(u16, u16)>,
    pub(crate) ranges: Option<Vec<&'a str>>,
    pub(crate) nodes: Vec<&'a str>,
    pub(crate) annotations: Vec<(&'a str, &'a str)>,
    /// Ports of which more is said than two numbers.
    pub(crate) listeners: Vec<Listener>,
    /// Whether it is for IPv6, too.
    pub(crate) dual: bool,
    /// Addresses of pods, which are its members instead of the nodes, each with its own port.
    pub(crate) pods: Vec<(&'a str, u16)>,
    pub(crate) uid: &'a str,
}

impl Default for Service<'_> {
    fn default() -> Self {
        Service {
            ports: vec![(80, 30080)],
            ranges: None,
            nodes: vec!["i-1", "i-2"],
            annotations: Vec::new(),
            listeners: Vec::new(),
            dual: false,
            pods: Vec::new(),
            uid: "1234",
        }
    }
}

impl Service<'_> {
    pub(crate) fn want(&self, name: &str) -> Want {
        let listeners = self.ports.iter();
        let listeners = listeners.map(|(port, to)| Listener::new(*port, ListenerProtocol::Tcp, *to).unwrap());
        let listeners: Vec<Listener> = listeners.chain(self.listeners.iter().cloned()).collect();
        let families = if self.dual { &[Family::V4, Family::V6][..] } else { &[Family::V4] };
        let ranges = SourceRanges::parse(self.ranges.clone()).unwrap();
        let admission = Admission { ranges, empty_means: EmptyMeans::Everyone };
        let nodes = self.nodes.iter().zip(1_u8..).map(|(id, number)| {
            let member = Member::new(*id, [IpAddr::from([10, 0, 1, number])]).unwrap();
            member.with_reference(format!("aws:///zone/{id}"))
        });
        let pods = self.pods.iter().map(|(address, to)| {
            let ports: Vec<_> = listeners.iter().map(|listener| (listener.port(), *to)).collect();
            Member::new(*address, [address.parse().unwrap()]).unwrap().with_ports(ports)
        });
        let nodes: Vec<Member> = nodes.collect();
        let members: Vec<Member> = if self.pods.is_empty() { nodes.clone() } else { pods.collect() };
        let families = families.iter().copied();
        let wanted = LoadBalancer::new(name, Scheme::InternetFacing, families, listeners, admission);
        let annotations = self.annotations.iter();
        Want {
            owner: owner(name),
            uid: self.uid.into(),
            target: Target::Present(wanted.unwrap().with_members(members).unwrap()),
            parameters: annotations
                .map(|(key, value)| (format!("{PREFIX}{key}"), (*value).to_owned()))
                .collect(),
            nodes: nodes.into(),
        }
    }
}

/// That an owner wants nothing any more.
pub(crate) fn gone(name: &str) -> Want {
    Want { target: Target::Gone, ..Service::default().want(name) }
}

/// What is there, without what is only a name that AWS gives.
pub(crate) fn shape(world: &World) -> Vec<String> {
    let mut shape = Vec::new();
    // One that is not used any more, and fits, serves another port as well: it keeps its name.
    let pool = |group: &TargetGroup| format!("to {} {}", group.protocol, group.port);
    let named = |text: String| {
        world.groups.iter().fold(text, |text, (id, group)| text.replace(id.as_str(), &group.name))
    };
    for group in world.groups.values() {
        shape.push(named(format!(
            "{} {:?} {:?} {:?}",
            group.name,
            group.tags,
            group.lets_in(),
            group.lets_out()
        )));
    }
    for balancer in world.load_balancers.values() {
        let groups: BTreeSet<&str> =
            balancer.groups.iter().map(|id| world.groups[id].name.as_str()).collect();
        let place = (&balancer.ip_address_type, balancer.subnets.keys().collect::<Vec<_>>());
        let (tags, attributes) = (&balancer.tags, &balancer.attributes);
        shape.push(format!("{} {tags:?} {groups:?} {attributes:?} {place:?}", balancer.name));
        let mut ports: Vec<String> = balancer
            .listeners
            .values()
            .map(|one| {
                let to = pool(&world.target_groups[&one.target_group]);
                let tls = (&one.certificate, &one.policy, &one.alpn);
                format!("{} {} {to} {tls:?} {:?}", one.port, one.protocol, one.tags)
            })
            .collect();
        ports.sort();
        shape.extend(ports);
    }
    for group in world.target_groups.values() {
        let targets: Vec<_> = group.targets.keys().collect();
        let (tags, check, attributes) = (&group.tags, &group.health_check, &group.attributes);
        shape.push(format!("{} {tags:?} {check:?} {attributes:?} {targets:?}", pool(group)));
    }
    shape.sort();
    shape
}
