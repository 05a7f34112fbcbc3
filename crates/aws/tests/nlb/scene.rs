//! What tests need to say what is wanted, and of whom.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

use aws_credential_types::Credentials;
use aws_credential_types::provider::SharedCredentialsProvider;
use portcullis_aws::{Client, CloudConfig, Endpoints, Limits, Options, PREFIX, Provider, Settings};
use portcullis_aws_fake::{Config, Fake, World};
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

    /// A provider that knows nothing yet, as after a start.
    pub(crate) fn provider_with(self, mode: &str, change: impl FnOnce(&mut Settings)) -> Provider {
        let credentials = Credentials::new(self.key, self.secret, None, None, "test");
        let (config, _) = CloudConfig::parse(&format!("[Global]\nNLBSecurityGroupMode = {mode}\n")).unwrap();
        let endpoint = |name: &str| (name == "AWS_ENDPOINT_URL").then(|| self.url.to_owned());
        let endpoints = Endpoints::new(self.region, &config, endpoint).unwrap();
        let options =
            Options { limits: Limits::none(), pause: Duration::from_millis(1), ..Options::default() };
        let client = Client::new(SharedCredentialsProvider::new(credentials), endpoints, options);
        let mut settings = Settings::new("demo", self.vpc, &config).unwrap();
        change(&mut settings);
        Provider::new(client, settings)
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
}

impl Default for Service<'_> {
    fn default() -> Self {
        Service { ports: vec![(80, 30080)], ranges: None, nodes: vec!["i-1", "i-2"], annotations: Vec::new() }
    }
}

impl Service<'_> {
    pub(crate) fn want(&self, name: &str) -> Want {
        let listeners = self.ports.iter();
        let listeners = listeners.map(|(port, to)| Listener::new(*port, ListenerProtocol::Tcp, *to).unwrap());
        let ranges = SourceRanges::parse(self.ranges.clone()).unwrap();
        let admission = Admission { ranges, empty_means: EmptyMeans::Everyone };
        let members: Vec<Member> = self
            .nodes
            .iter()
            .zip(1_u8..)
            .map(|(id, number)| {
                let member = Member::new(*id, [IpAddr::from([10, 0, 1, number])]).unwrap();
                member.with_reference(format!("aws:///zone/{id}"))
            })
            .collect();
        let wanted =
            LoadBalancer::new(name, Scheme::InternetFacing, [Family::V4], listeners.collect(), admission);
        let annotations = self.annotations.iter();
        Want {
            owner: owner(name),
            uid: "1234".into(),
            target: Target::Present(wanted.unwrap().with_members(members).unwrap()),
            parameters: annotations
                .map(|(key, value)| (format!("{PREFIX}{key}"), (*value).to_owned()))
                .collect(),
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
        shape.push(format!("{} {:?} {groups:?} {:?}", balancer.name, balancer.tags, balancer.attributes));
        let mut ports: Vec<String> = balancer
            .listeners
            .values()
            .map(|one| {
                format!("{} {} {}", one.port, one.protocol, world.target_groups[&one.target_group].name)
            })
            .collect();
        ports.sort();
        shape.extend(ports);
    }
    for group in world.target_groups.values() {
        let targets: Vec<_> = group.targets.keys().collect();
        shape.push(format!("{} {:?} {:?} {targets:?}", group.name, group.tags, group.health_check));
    }
    shape.sort();
    shape
}
