//! In which subnets load balancers are, and by which addresses.

use std::net::IpAddr;

use portcullis_aws_fake::{Fake, World};
use portcullis_core::{Listener, ListenerProtocol, Outcome, Provider as _};

use crate::held;
use crate::scene::{Service, account, dual_stack, fake};

fn tag(world: &mut World, subnet: &str, key: &str, value: &str) {
    world.subnets.get_mut(subnet).unwrap().tags.insert(key.to_owned(), value.to_owned());
}

/// The subnets that a load balancer gets.
async fn chosen(fake: &Fake, name: &str, annotations: Vec<(&str, &str)>) -> Vec<String> {
    let service = Service { annotations, ..Service::default() };
    let report = account(fake).provider("Managed").sync(&service.want(name)).await;
    assert_eq!(report.outcome, Outcome::Done, "{service:?}");
    held::balancer(&fake.state(), name).subnets.keys().cloned().collect()
}

const INTERNAL: (&str, &str) = ("internal", "true");

/// Four public and two private subnets in two zones.
fn many() -> Fake {
    fake(|config| {
        let world = &mut config.world;
        world.add_subnet("subnet-a2", "vpc-1", "eu-central-1a", "10.0.3.0/24", false);
        world.add_subnet("subnet-a3", "vpc-1", "eu-central-1a", "10.0.4.0/24", false);
        world.add_subnet("subnet-a0", "vpc-1", "eu-central-1a", "10.0.5.0/24", false);
        world.add_subnet("subnet-b0", "vpc-1", "eu-central-1b", "10.0.6.0/24", false);
        world.add_route_table("rtb-2", "vpc-1", &["subnet-a0", "subnet-b0"], false);
    })
}

/// AWS tells of so many route tables at a time: what is on the last page counts, too.
#[tokio::test]
async fn a_list_of_ec2_in_several_pages_is_read_to_its_end() {
    let fake = fake(|config| {
        let world = &mut config.world;
        for number in 0..250 {
            let subnet = format!("subnet-of-{number}");
            world.add_route_table(&format!("rtb-1{number:03}"), "vpc-1", &[&subnet], true);
        }
        world.add_route_table("rtb-9", "vpc-1", &["subnet-b"], false);
    });
    assert_eq!(chosen(&fake, "web", vec![]).await, ["subnet-a"], "the other one is private");
    let calls = fake.calls();
    let pages = calls.iter().filter(|logged| logged.call.action == "DescribeRouteTables");
    let pages: Vec<bool> = pages.map(|logged| logged.call.parameter("NextToken").is_empty()).collect();
    assert_eq!(pages, [true, false, false]);
}

#[tokio::test]
async fn the_best_of_each_zone_is_found() {
    let fake = many();
    let change = |change: fn(&mut World)| fake.act_as_someone_else(change);
    // What the internet is to reach is where it has a way; of those, the first by name.
    assert_eq!(chosen(&fake, "plain", vec![]).await, ["subnet-a", "subnet-b"]);
    assert_eq!(chosen(&fake, "inside", vec![INTERNAL]).await, ["subnet-a", "subnet-b"]);
    // One of this cluster comes before others, in its zone.
    change(|world| tag(world, "subnet-a3", "kubernetes.io/cluster/demo", "shared"));
    assert_eq!(chosen(&fake, "cluster", vec![]).await, ["subnet-a3", "subnet-b"]);
    // One for load balancers comes before that, each kind by its own tag.
    change(|world| tag(world, "subnet-a2", "kubernetes.io/role/elb", "1"));
    change(|world| tag(world, "subnet-a0", "kubernetes.io/role/internal-elb", ""));
    assert_eq!(chosen(&fake, "role", vec![]).await, ["subnet-a2", "subnet-b"]);
    assert_eq!(chosen(&fake, "inside2", vec![INTERNAL]).await, ["subnet-a0", "subnet-b"]);
    // Both tags are more than one.
    change(|world| tag(world, "subnet-a3", "kubernetes.io/role/elb", ""));
    assert_eq!(chosen(&fake, "both", vec![]).await, ["subnet-a3", "subnet-b"]);
    // A tag for load balancers does not make a private one public.
    change(|world| tag(world, "subnet-b0", "kubernetes.io/role/elb", "1"));
    assert_eq!(chosen(&fake, "private", vec![]).await, ["subnet-a3", "subnet-b"]);
    // What is for other clusters only is not for this one.
    change(|world| tag(world, "subnet-b", "kubernetes.io/cluster/other", "shared"));
    assert_eq!(chosen(&fake, "other", vec![]).await, ["subnet-a3"]);
    change(|world| tag(world, "subnet-b", "kubernetes.io/cluster/demo", "shared"));
    assert_eq!(chosen(&fake, "shared", vec![]).await, ["subnet-a3", "subnet-b"]);
    // Those that are there stay where they are.
    assert_eq!(chosen(&fake, "plain", vec![]).await, ["subnet-a", "subnet-b"]);
}

#[tokio::test]
async fn subnets_are_named_by_id_or_name() {
    let fake = many();
    fake.act_as_someone_else(|world| {
        tag(world, "subnet-a2", "Name", "for load balancers");
        tag(world, "subnet-b0", "Name", "inside");
    });
    for (name, annotations, expected) in [
        ("id", vec![("subnets", "subnet-a3")], vec!["subnet-a3"]),
        ("ids", vec![("subnets", "subnet-b, subnet-a3")], vec!["subnet-a3", "subnet-b"]),
        ("name", vec![("subnets", "for load balancers")], vec!["subnet-a2"]),
        ("mixed", vec![("subnets", "inside,subnet-a0"), INTERNAL], vec!["subnet-a0", "subnet-b0"]),
    ] {
        assert_eq!(chosen(&fake, name, annotations).await, expected, "{name}");
    }
    // They can be changed in place.
    let arn = |fake: &Fake| held::balancer(&fake.state(), "id").dns_name.clone();
    let before = arn(&fake);
    assert_eq!(chosen(&fake, "id", vec![("subnets", "subnet-a2,subnet-b")]).await, ["subnet-a2", "subnet-b"]);
    assert_eq!(arn(&fake), before);

    // The cloud-config and the configuration name them for those who name none.
    let provider =
        account(&fake).provider_with("Managed", |settings| settings.subnets = vec!["inside".into()]);
    let service = Service { annotations: vec![INTERNAL], ..Service::default() };
    assert_eq!(provider.sync(&service.want("configured")).await.outcome, Outcome::Done);
    let subnets: Vec<String> = held::balancer(&fake.state(), "configured").subnets.keys().cloned().collect();
    assert_eq!(subnets, ["subnet-b0"]);
}

#[tokio::test]
async fn subnets_that_cannot_be_are_named_and_nothing_is_made() {
    let fake = many();
    fake.act_as_someone_else(|world| {
        world.add_vpc("vpc-2", "10.1.0.0/16", false);
        world.add_subnet("subnet-far", "vpc-2", "eu-central-1a", "10.1.1.0/24", false);
        tag(world, "subnet-a", "Name", "twin");
        tag(world, "subnet-b", "Name", "twin");
        world.add_elastic_address("eipalloc-1", IpAddr::from([192, 0, 2, 1]));
    });
    let provider = account(&fake).provider("Managed");
    assert_eq!(provider.sync(&Service::default().want("there")).await.outcome, Outcome::Done);
    let before = fake.state();
    for (annotations, what) in [
        (vec![("subnets", "subnet-none")], "subnets names `subnet-none`, which is not in vpc-1"),
        (vec![("subnets", "subnet-far")], "subnets names `subnet-far`, which is not in vpc-1"),
        (vec![("subnets", "twin")], "subnets names `twin`, which several subnets are called"),
        (
            vec![("subnets", "subnet-a,subnet-a2")],
            "subnets names `subnet-a` and `subnet-a2`, which are both in eu-central-1a",
        ),
        (
            vec![("eip-allocations", "eipalloc-1")],
            "eip-allocations has 1 entries, and the load balancer gets 2 subnets: subnet-a, subnet-b",
        ),
        (
            vec![("private-ipv4-addresses", "10.0.1.9,10.0.2.9,10.0.3.9"), INTERNAL],
            "private-ipv4-addresses has 3 entries, and the load balancer gets 2 subnets: subnet-a, subnet-b",
        ),
    ] {
        let service = Service { annotations, ..Service::default() };
        let outcome = provider.sync(&service.want("new")).await.outcome;
        let Outcome::Blocked(problem) = outcome else { panic!("{service:?}: {outcome:?}") };
        let what =
            format!("Service shop/new: annotation service.beta.kubernetes.io/aws-load-balancer-{what}.");
        assert_eq!(problem.what, what);
        assert_eq!(fake.state(), before, "{service:?}");
    }
    // Others go on, and so does this one once it is right.
    assert_eq!(provider.sync(&Service::default().want("other")).await.outcome, Outcome::Done);
    assert_eq!(provider.sync(&Service::default().want("new")).await.outcome, Outcome::Done);
}

/// What AWS allows only in some order is done in that order, and nothing is refused on the way.
#[tokio::test]
async fn families_change_together_with_subnets_ports_and_targets() {
    let fake = fake(|config| {
        let world = &mut config.world;
        world.vpcs.get_mut("vpc-1").unwrap().range6 = Some("2001:db8:1::/56".parse().unwrap());
        world.add_subnet("subnet-6", "vpc-1", "eu-central-1b", "10.0.6.0/24", false);
        world.subnets.get_mut("subnet-6").unwrap().range6 = Some("2001:db8:1:6::/64".parse().unwrap());
    });
    let udp = || Listener::new(53, ListenerProtocol::Udp, 30053).unwrap();
    let four = Service { annotations: vec![("subnets", "subnet-a")], ..Service::default() };
    let datagrams = Service { listeners: vec![udp()], ..four.clone() };
    let both = Service { dual: true, annotations: vec![("subnets", "subnet-6")], ..Service::default() };
    let six = Service {
        pods: vec![("2001:db8:1:6::77", 8080)],
        annotations: vec![("subnets", "subnet-6"), ("nlb-target-type", "ip")],
        ..both.clone()
    };
    for mode in ["Managed", "Unmanaged"] {
        let provider = account(&fake).provider(mode);
        for (place, service) in
            [&four, &both, &four, &six, &four, &datagrams, &both, &datagrams, &six].into_iter().enumerate()
        {
            let report = provider.sync(&service.want("web")).await;
            assert_eq!(report.outcome, Outcome::Done, "{mode} {place}");
            let world = fake.state();
            let found = held::balancer(&world, "web");
            assert_eq!(
                found.ip_address_type,
                if service.dual { "dualstack" } else { "ipv4" },
                "{mode} {place}"
            );
        }
        assert_eq!(provider.sync(&crate::scene::gone("web")).await.outcome, Outcome::Done);
    }
}

#[tokio::test]
async fn without_a_subnet_it_is_told_how_to_give_one() {
    let fake = fake(|config| config.world.route_tables.get_mut("rtb-1").unwrap().public = false);
    let provider = account(&fake).provider("Managed");
    let inside = Service { annotations: vec![INTERNAL], ..Service::default() };
    assert_eq!(provider.sync(&inside.want("inside")).await.outcome, Outcome::Done);
    let before = fake.state();
    let outcome = provider.sync(&Service::default().want("web")).await.outcome;
    let Outcome::Blocked(problem) = outcome else { panic!("{outcome:?}") };
    assert_eq!(problem.what, "Service shop/web: there is no public subnet for a load balancer in vpc-1.");
    assert!(problem.remedy.starts_with("Tag subnets with kubernetes.io/role/elb=1"), "{problem}");
    assert_eq!(fake.state(), before);
}

#[tokio::test]
async fn addresses_are_fixed_in_the_order_of_the_subnets() {
    let fake = fake(|config| {
        for number in 1..=2 {
            let allocation = format!("eipalloc-{number}");
            config.world.add_elastic_address(&allocation, IpAddr::from([192, 0, 2, number]));
        }
    });
    let placed = |name: &str| {
        let world = fake.state();
        let subnets = held::balancer(&world, name).subnets.iter();
        let told = subnets.map(|(id, placement)| {
            let address = placement.private_address.map(|address| address.to_string());
            format!("{id} {}", placement.allocation.clone().or(address).unwrap_or_default())
        });
        told.collect::<Vec<_>>()
    };
    chosen(
        &fake,
        "elastic",
        vec![("eip-allocations", "eipalloc-2, eipalloc-1"), ("subnets", "subnet-b,subnet-a")],
    )
    .await;
    assert_eq!(placed("elastic"), ["subnet-a eipalloc-1", "subnet-b eipalloc-2"]);
    chosen(&fake, "private", vec![("private-ipv4-addresses", "10.0.1.99,10.0.2.99"), INTERNAL]).await;
    assert_eq!(placed("private"), ["subnet-a 10.0.1.99", "subnet-b 10.0.2.99"]);
}

#[tokio::test]
async fn both_families_need_subnets_that_have_both() {
    let fake = dual_stack();
    fake.act_as_someone_else(|world| {
        world.add_subnet("subnet-0", "vpc-1", "eu-central-1a", "10.0.3.0/24", false);
        world.add_subnet("subnet-c", "vpc-1", "eu-central-1c", "10.0.4.0/24", false);
    });
    let provider = account(&fake).provider("Managed");
    let dual = Service { dual: true, ..Service::default() };
    let subnets =
        |name: &str| held::balancer(&fake.state(), name).subnets.keys().cloned().collect::<Vec<_>>();
    assert_eq!(provider.sync(&Service::default().want("one")).await.outcome, Outcome::Done);
    assert_eq!(subnets("one"), ["subnet-0", "subnet-b", "subnet-c"]);
    assert_eq!(provider.sync(&dual.want("both")).await.outcome, Outcome::Done);
    assert_eq!(subnets("both"), ["subnet-a", "subnet-b"]);

    let before = fake.state();
    let named = Service { annotations: vec![("subnets", "subnet-c")], ..dual.clone() };
    let outcome = provider.sync(&named.want("named")).await.outcome;
    let Outcome::Blocked(problem) = outcome else { panic!("{outcome:?}") };
    assert!(problem.what.contains("subnets names `subnet-c`, which has no addresses of IPv6"), "{problem}");
    assert_eq!(fake.state(), before);
    // One that is there goes on as it is, and is told.
    let report = provider.sync(&named.want("both")).await;
    assert_eq!(report.outcome, Outcome::Done);
    assert!(matches!(report.told.as_slice(), [told] if told.contains("`subnet-c`")), "{:?}", report.told);
    assert_eq!(fake.state(), before);

    fake.act_as_someone_else(|world| {
        for subnet in world.subnets.values_mut() {
            subnet.range6 = None;
        }
    });
    let outcome = account(&fake).provider("Managed").sync(&dual.want("none")).await.outcome;
    let Outcome::Blocked(problem) = outcome else { panic!("{outcome:?}") };
    let what = "Service shop/none: there is no public subnet with IPv6 for a load balancer in vpc-1.";
    assert_eq!(problem.what, what);
}
