//! Every annotation, and what is so in AWS when it is set; and that it is as before when it is taken back.

use std::collections::BTreeMap;
use std::net::IpAddr;

use portcullis_aws_fake::{Fake, World};
use portcullis_core::{Outcome, Provider as _};

use crate::held;
use crate::scene::{Service, account, dual_stack};

const CERTIFICATE: &str = "arn:aws:acm:eu-central-1:123456789012:certificate/1";

/// An annotation.
#[derive(Clone, Copy)]
struct Row {
    /// It, and what it needs besides.
    set: &'static [(&'static str, &'static str)],
    /// What is looked at.
    seen: fn(&World) -> String,
    without: &'static str,
    with: &'static str,
    /// Whether AWS changes it in place.
    in_place: bool,
}

fn row(
    set: &'static [(&'static str, &'static str)],
    seen: fn(&World) -> String,
    without: &'static str,
    with: &'static str,
) -> Row {
    Row { set, seen, without, with, in_place: true }
}

/// One that counts when a load balancer is made.
fn once(row: Row) -> Row {
    Row { in_place: false, ..row }
}

fn attribute(world: &World, key: &str) -> String {
    held::balancer(world, "web").attributes[key].clone()
}

fn pool_attribute(world: &World, key: &str) -> String {
    held::pool(world, "web", 80).attributes[key].clone()
}

fn tags(world: &World) -> String {
    let all = [
        &held::balancer(world, "web").tags,
        &held::pool(world, "web", 80).tags,
        &held::group(world, "web").unwrap().tags,
    ];
    let told = |tags: &BTreeMap<String, String>| {
        let others = tags.iter().filter(|(key, _)| !key.contains(".dev/") && !key.contains(".io/"));
        others.map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(",")
    };
    let all: Vec<String> = all.into_iter().map(told).collect();
    assert!(all.iter().all(|one| *one == all[0]), "{all:?}");
    all[0].clone()
}

fn placements(world: &World) -> String {
    let subnets = held::balancer(world, "web").subnets.iter();
    let told = subnets.map(|(id, placement)| match (&placement.allocation, placement.private_address) {
        (Some(allocation), _) => format!("{id}={allocation}"),
        (_, Some(address)) => format!("{id}={address}"),
        _ => id.clone(),
    });
    told.collect::<Vec<_>>().join(",")
}

fn rows() -> impl Iterator<Item = Row> {
    places().into_iter().chain(ways()).chain(checks()).chain(attributes())
}

/// What a load balancer is, and where.
fn places() -> Vec<Row> {
    let scheme = |world: &World| held::balancer(world, "web").scheme.clone();
    let name = |world: &World| held::balancer(world, "web").name.clone();
    vec![
        once(row(&[("scheme", "internal")], scheme, "internet-facing", "internal")),
        once(row(&[("scheme", "internet-facing")], scheme, "internet-facing", "internet-facing")),
        once(row(&[("internal", "true")], scheme, "internet-facing", "internal")),
        once(row(&[("internal", "0.0.0.0/0")], scheme, "internet-facing", "internal")),
        once(row(&[("internal", "false")], scheme, "internet-facing", "internet-facing")),
        once(row(&[("internal", "")], scheme, "internet-facing", "internet-facing")),
        once(row(&[("name", "front-1")], name, "k8s-shop-web-aa39f4e28a", "front-1")),
        once(row(&[("subnets", "subnet-b")], placements, "subnet-a,subnet-b", "subnet-b")),
        once(row(
            &[("eip-allocations", "eipalloc-1,eipalloc-2")],
            placements,
            "subnet-a,subnet-b",
            "subnet-a=eipalloc-1,subnet-b=eipalloc-2",
        )),
        once(row(
            &[("private-ipv4-addresses", "10.0.1.99,10.0.2.99"), ("internal", "true")],
            placements,
            "subnet-a,subnet-b",
            "subnet-a=10.0.1.99,subnet-b=10.0.2.99",
        )),
    ]
}

/// Who gets in, and where to.
fn ways() -> Vec<Row> {
    let attached = |world: &World| held::attached(world, "web").join(",");
    let lets_in = |world: &World| held::lets_in(world, "web").join(",");
    let listeners = |world: &World| held::listeners(world, "web").join(",");
    vec![
        row(&[("type", "nlb")], listeners, "80 TCP to instance TCP 30080", "80 TCP to instance TCP 30080"),
        row(
            &[("ip-address-type", "dualstack")],
            |world| held::balancer(world, "web").ip_address_type.clone(),
            "ipv4",
            "dualstack",
        ),
        row(
            &[("nlb-target-type", "ip")],
            listeners,
            "80 TCP to instance TCP 30080",
            "80 TCP to ip TCP 30080",
        ),
        row(&[("security-groups", "user")], attached, "backend,own", "backend,user"),
        row(
            &[("manage-backend-security-group-rules", "false"), ("security-groups", "user")],
            attached,
            "backend,own",
            "user",
        ),
        row(
            &[("security-group-prefix-lists", "pl-1")],
            lets_in,
            "icmp 3-4 0.0.0.0/0,tcp 80-80 0.0.0.0/0",
            "icmp 3-4 pl-1,tcp 80-80 pl-1",
        ),
        row(
            &[("enable-icmp-for-path-mtu-discovery", "off")],
            lets_in,
            "icmp 3-4 0.0.0.0/0,tcp 80-80 0.0.0.0/0",
            "tcp 80-80 0.0.0.0/0",
        ),
        row(
            &[("ssl-cert", CERTIFICATE)],
            listeners,
            "80 TCP to instance TCP 30080",
            "80 TLS to instance TCP 30080",
        ),
        row(
            &[("ssl-cert", CERTIFICATE), ("backend-protocol", "ssl")],
            listeners,
            "80 TCP to instance TCP 30080",
            "80 TLS to instance TLS 30080",
        ),
        // Without a certificate there is no TLS in front, and none behind.
        row(
            &[("backend-protocol", "ssl"), ("ssl-ports", "*")],
            listeners,
            "80 TCP to instance TCP 30080",
            "80 TCP to instance TCP 30080",
        ),
    ]
}

fn checks() -> Vec<Row> {
    let checked = |world: &World| held::checked(world, "web", 80);
    let usual = "TCP on traffic-port every 30 s, 10 s, 3/3";
    vec![
        row(
            &[("healthcheck-protocol", "HTTP")],
            checked,
            usual,
            "HTTP / on traffic-port every 30 s, 10 s, 3/3",
        ),
        row(&[("healthcheck-port", "8081")], checked, usual, "TCP on 8081 every 30 s, 10 s, 3/3"),
        row(
            &[("healthcheck-path", "/live"), ("healthcheck-protocol", "https")],
            checked,
            usual,
            "HTTPS /live on traffic-port every 30 s, 10 s, 3/3",
        ),
        row(&[("healthcheck-interval", "300")], checked, usual, "TCP on traffic-port every 300 s, 10 s, 3/3"),
        row(&[("healthcheck-timeout", "30")], checked, usual, "TCP on traffic-port every 30 s, 30 s, 3/3"),
        row(
            &[("healthcheck-healthy-threshold", "10")],
            checked,
            usual,
            "TCP on traffic-port every 30 s, 10 s, 10/3",
        ),
        row(
            &[("healthcheck-unhealthy-threshold", "2")],
            checked,
            usual,
            "TCP on traffic-port every 30 s, 10 s, 3/2",
        ),
    ]
}

fn attributes() -> Vec<Row> {
    vec![
        row(
            &[("cross-zone-load-balancing-enabled", "true")],
            |world| attribute(world, "load_balancing.cross_zone.enabled"),
            "false",
            "true",
        ),
        row(
            &[("attributes", "dns_record.client_routing_policy=availability_zone_affinity")],
            |world| attribute(world, "dns_record.client_routing_policy"),
            "any_availability_zone",
            "availability_zone_affinity",
        ),
        row(
            &[("access-log-enabled", "true"), ("access-log-s3-bucket-name", "logs")],
            |world| attribute(world, "access_logs.s3.enabled"),
            "false",
            "true",
        ),
        once(row(
            &[("access-log-enabled", "true"), ("access-log-s3-bucket-name", "logs")],
            |world| attribute(world, "access_logs.s3.bucket"),
            "",
            "logs",
        )),
        once(row(
            &[
                ("access-log-enabled", "true"),
                ("access-log-s3-bucket-name", "logs"),
                ("access-log-s3-bucket-prefix", "web"),
            ],
            |world| attribute(world, "access_logs.s3.prefix"),
            "",
            "web",
        )),
        row(
            &[("target-group-attributes", "preserve_client_ip.enabled=false")],
            |world| pool_attribute(world, "preserve_client_ip.enabled"),
            "true",
            "false",
        ),
        row(
            &[("target-group-attributes", "proxy_protocol_v2.enabled=true")],
            |world| pool_attribute(world, "proxy_protocol_v2.enabled"),
            "false",
            "true",
        ),
        row(
            &[(
                "target-group-attributes",
                "deregistration_delay.timeout_seconds=20, stickiness.enabled=true",
            )],
            |world| {
                let keys = ["deregistration_delay.timeout_seconds", "stickiness.enabled"];
                keys.map(|key| pool_attribute(world, key)).join(" ")
            },
            "300 false",
            "20 true",
        ),
        row(
            &[("additional-resource-tags", "team=a,cost=1,empty=,bare")],
            tags,
            "",
            "bare=,cost=1,empty=,team=a",
        ),
    ]
}

fn world() -> Fake {
    let fake = dual_stack();
    fake.act_as_someone_else(|world| {
        world.add_certificate(CERTIFICATE);
        world.add_prefix_list("pl-1", 5);
        for number in 1..=2 {
            let allocation = format!("eipalloc-{number}");
            world.add_elastic_address(&allocation, IpAddr::from([192, 0, 2, number]));
        }
    });
    fake
}

#[tokio::test]
async fn each_is_so_in_aws() {
    let plain = world();
    let report = account(&plain).provider("Managed").sync(&Service::default().want("web")).await;
    assert_eq!(report.outcome, Outcome::Done);
    for row in rows() {
        let fake = world();
        let service = Service { annotations: row.set.to_vec(), ..Service::default() };
        let report = account(&fake).provider("Managed").sync(&service.want("web")).await;
        assert_eq!((&report.outcome, &report.told), (&Outcome::Done, &Vec::new()), "{:?}", row.set);
        assert_eq!((row.seen)(&plain.state()), row.without, "without {:?}", row.set);
        assert_eq!((row.seen)(&fake.state()), row.with, "{:?}", row.set);
        // Another process finds nothing to change.
        let made = fake.state();
        let again = account(&fake).provider("Managed");
        assert_eq!(again.sync(&service.want("web")).await.outcome, Outcome::Done);
        assert_eq!(fake.state(), made, "{:?}", row.set);
    }
}

#[tokio::test]
async fn each_is_set_in_place_and_taken_back() {
    let fake = world();
    let provider = account(&fake).provider("Managed");
    let plain = Service::default();
    assert_eq!(provider.sync(&plain.want("web")).await.outcome, Outcome::Done);
    let arn = fake.state().load_balancers.keys().next().unwrap().clone();
    for row in rows().filter(|row| row.in_place) {
        let service = Service { annotations: row.set.to_vec(), ..Service::default() };
        assert_eq!((row.seen)(&fake.state()), row.without, "{:?}", row.set);
        assert_eq!(provider.sync(&service.want("web")).await.outcome, Outcome::Done, "{:?}", row.set);
        assert_eq!((row.seen)(&fake.state()), row.with, "{:?}", row.set);
        assert_eq!(provider.sync(&plain.want("web")).await.outcome, Outcome::Done, "{:?}", row.set);
        assert_eq!((row.seen)(&fake.state()), row.without, "{:?}", row.set);
        assert_eq!(fake.state().load_balancers.keys().collect::<Vec<_>>(), [&arn], "{:?}", row.set);
    }
}

#[tokio::test]
async fn one_that_nobody_knows_is_told_of() {
    let fake = world();
    let annotations = vec![("helthcheck-port", "80")];
    let service = Service { annotations, ..Service::default() };
    let report = account(&fake).provider("Managed").sync(&service.want("web")).await;
    assert_eq!(report.outcome, Outcome::Done);
    let told = "Service shop/web: nobody knows the annotation service.beta.kubernetes.io/aws-load-balancer-helthcheck-port, and it is left out";
    assert_eq!(report.told, [told]);
}

#[tokio::test]
async fn tags_are_on_everything_and_those_of_others_stay() {
    let fake = world();
    let provider = account(&fake).provider_with("Managed", |settings| {
        settings.tags.insert("company".into(), "x".into());
    });
    let tagged = |tags: &'static str| Service {
        annotations: vec![("additional-resource-tags", tags)],
        ..Service::default()
    };
    assert_eq!(provider.sync(&tagged("a=1,b=2").want("web")).await.outcome, Outcome::Done);
    assert_eq!(tags(&fake.state()), "a=1,b=2,company=x");
    let world = fake.state();
    let balancer = held::balancer(&world, "web");
    for tags in [&balancer.tags, &balancer.listeners.values().next().unwrap().tags] {
        assert_eq!(tags["kubernetes.io/cluster/demo"], "owned");
        assert_eq!((tags["portcullis.dev/cluster"].as_str(), tags["a"].as_str()), ("demo", "1"));
    }
    // Somebody else writes something on it, too.
    fake.act_as_someone_else(|world| {
        for balancer in world.load_balancers.values_mut() {
            balancer.tags.insert("theirs".into(), "stays".into());
        }
    });
    let provider = account(&fake).provider("Managed");
    assert_eq!(provider.sync(&tagged("b=3").want("web")).await.outcome, Outcome::Done);
    fake.act_as_someone_else(|world| {
        let balancer = world.load_balancers.values_mut().next().unwrap();
        assert_eq!(balancer.tags.remove("theirs").as_deref(), Some("stays"));
    });
    assert_eq!(tags(&fake.state()), "b=3", "what nobody wants any more is gone");
}
