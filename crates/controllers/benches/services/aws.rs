//! What takes AWS's place, and who calls it.

use std::time::Duration;

use aws_credential_types::Credentials;
use aws_credential_types::provider::SharedCredentialsProvider;
use portcullis_aws::{Client, CloudConfig, Endpoints, Limits, Options, Provider, Settings};
use portcullis_aws_fake::{Config, Fake, Quotas, World};

pub(crate) const CLUSTER: &str = "demo";
pub(crate) const REGION: &str = "eu-central-1";
pub(crate) const VPC: &str = "vpc-1";
pub(crate) const SUBNET: &str = "subnet-a";
pub(crate) const KEY: &str = "AKIAFAKEFAKEFAKEFAKE";
pub(crate) const SECRET: &str = "a-secret-of-the-fake";

/// So long every call takes.
const LATENCY: Duration = Duration::from_millis(20);

/// A VPC with two public subnets, and so many nodes.
pub(crate) fn fake(nodes: usize) -> Fake {
    let mut world = World::default();
    world.add_vpc(VPC, "10.0.0.0/16", false);
    world.add_subnet(SUBNET, VPC, "eu-central-1a", "10.0.1.0/24", false);
    world.add_subnet("subnet-b", VPC, "eu-central-1b", "10.0.2.0/24", false);
    world.add_route_table("rtb-1", VPC, &[], true);
    let group = world.add_security_group("sg-nodes", "nodes", VPC);
    group.tags.insert(format!("kubernetes.io/cluster/{CLUSTER}"), "owned".to_owned());
    for node in 1..=nodes {
        let instance = world.add_instance(&format!("i-{node}"), SUBNET, &["sg-nodes"]);
        // cloud-provider-aws finds no other nodes.
        instance.tags.insert(format!("kubernetes.io/cluster/{CLUSTER}"), "owned".to_owned());
    }
    let quotas = Quotas { groups: 5_000, load_balancers: 5_000, target_groups: 10_000, ..Quotas::default() };
    Fake::start(Config { world, quotas, latency: LATENCY, ..Config::default() }).unwrap()
}

/// A provider that knows nothing yet. Nothing holds it back: that is for AWS to do.
pub(crate) fn provider(url: &str) -> Provider {
    let credentials = SharedCredentialsProvider::new(Credentials::new(KEY, SECRET, None, None, "bench"));
    let (config, _) = CloudConfig::parse("[Global]\nNLBSecurityGroupMode = Managed\n").unwrap();
    let endpoint = |name: &str| (name == "AWS_ENDPOINT_URL").then(|| url.to_owned());
    let endpoints = Endpoints::new(REGION, &config, endpoint).unwrap();
    let options = Options { limits: Limits::none(), ..Options::default() };
    let client = Client::new(credentials, endpoints, options);
    Provider::new(client, Settings::new(CLUSTER, VPC, &config).unwrap())
}

/// How many calls there were.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Calls {
    pub(crate) all: usize,
    pub(crate) mutating: usize,
}

impl Calls {
    /// Those since the last time.
    pub(crate) fn take(fake: &Fake) -> Self {
        let calls = fake.calls();
        fake.clear_calls();
        Calls { all: calls.len(), mutating: calls.iter().filter(|one| one.call.mutating).count() }
    }

    pub(crate) fn reads(self) -> usize {
        self.all - self.mutating
    }
}

/// All of them, and those that change something.
impl std::fmt::Display for Calls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(&format!("{}/{}", self.all, self.mutating))
    }
}
