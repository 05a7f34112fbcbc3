//! AWS's semantics, asked for by plain HTTP.

mod caller;
mod ec2;
mod elb;
mod faults;
mod refusals;
mod signing;

use caller::{Answer, Caller};

use crate::{Config, Fake, World};

const VERSION_EC2: &str = "2016-11-15";
const VERSION_ELB: &str = "2015-12-01";
const CERTIFICATE: &str = "arn:aws:acm:eu-central-1:123456789012:certificate/1";

/// Two networks; the first has IPv6, a way out, and machines.
fn world() -> World {
    let mut world = World::default();
    world.add_vpc("vpc-1", "10.0.0.0/16", true);
    world.add_vpc("vpc-2", "10.1.0.0/16", false);
    world.add_subnet("subnet-a", "vpc-1", "eu-central-1a", "10.0.1.0/24", true);
    world.add_subnet("subnet-b", "vpc-1", "eu-central-1b", "10.0.2.0/24", true);
    world.add_subnet("subnet-b2", "vpc-1", "eu-central-1b", "10.0.3.0/24", false);
    world.add_subnet("subnet-c", "vpc-1", "eu-central-1c", "10.0.4.0/24", false);
    world.add_subnet("subnet-x", "vpc-2", "eu-central-1a", "10.1.1.0/24", false);
    world.add_route_table("rtb-1", "vpc-1", &[], true);
    world.add_security_group("sg-nodes", "nodes", "vpc-1");
    world.add_security_group("sg-other", "other", "vpc-2");
    world.add_instance("i-1", "subnet-a", &["sg-nodes"]);
    world.add_instance("i-2", "subnet-b", &["sg-nodes"]);
    world.add_instance("i-stopped", "subnet-b", &["sg-nodes"]).state = "stopped".to_owned();
    world.add_instance("i-elsewhere", "subnet-x", &["sg-other"]);
    world.add_prefix_list("pl-1", 10);
    world.add_certificate(CERTIFICATE);
    world.add_elastic_address("eipalloc-1", [192, 0, 2, 1].into());
    world.add_elastic_address("eipalloc-2", [192, 0, 2, 2].into());
    world
}

/// A fake, and someone who calls it.
fn start(change: impl FnOnce(&mut Config)) -> (Fake, Caller) {
    let mut config = Config { world: world(), ..Config::default() };
    change(&mut config);
    let caller = Caller::new(&config);
    let fake = Fake::start(config).unwrap();
    let caller = Caller { url: fake.url().to_owned(), ..caller };
    (fake, caller)
}

/// A group in the first network.
fn group(caller: &Caller, name: &str) -> String {
    let made = caller
        .ec2("CreateSecurityGroup", &[("GroupName", name), ("GroupDescription", "d"), ("VpcId", "vpc-1")]);
    made.ok().text("groupId")
}

/// A load balancer in two zones.
fn balancer(caller: &Caller, name: &str, groups: &[&str]) -> String {
    let mut parameters = vec![
        ("Name".to_owned(), name.to_owned()),
        ("Type".to_owned(), "network".to_owned()),
        ("Subnets.member.1".to_owned(), "subnet-a".to_owned()),
        ("Subnets.member.2".to_owned(), "subnet-b".to_owned()),
    ];
    for (place, group) in groups.iter().enumerate() {
        parameters.push((format!("SecurityGroups.member.{}", place + 1), (*group).to_owned()));
    }
    let parameters: Vec<(&str, &str)> =
        parameters.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    caller.elb("CreateLoadBalancer", &parameters).ok().text("LoadBalancerArn")
}

/// A target group for machines.
fn pool(caller: &Caller, name: &str, protocol: &str) -> String {
    let parameters = [("Name", name), ("Protocol", protocol), ("Port", "80"), ("VpcId", "vpc-1")];
    caller.elb("CreateTargetGroup", &parameters).ok().text("TargetGroupArn")
}

fn listen(caller: &Caller, balancer: &str, pool: &str, port: &str, protocol: &str) -> Answer {
    caller.elb(
        "CreateListener",
        &[
            ("LoadBalancerArn", balancer),
            ("Port", port),
            ("Protocol", protocol),
            ("DefaultActions.member.1.Type", "forward"),
            ("DefaultActions.member.1.TargetGroupArn", pool),
        ],
    )
}
