//! Many clusters, VPCs and regions, and those who look after them one after the other.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use portcullis_aws::{Fleet, Limits, MemberReports, NodeRules, Provider, REGION, Site, Usual, VPC};
use portcullis_aws_fake::{Config, Fake, World};
use portcullis_core::{Outcome, Owner, Problem, Provider as _, Target, Want};

use crate::members::{Plane, states, targets};
use crate::scene::{Account, shape};

fn account_with_two_vpcs() -> Fake {
    account_with_two_vpcs_in("eu-central-1")
}

fn account_with_two_vpcs_in(region: &str) -> Fake {
    let mut world = World::default();
    for (vpc, range) in [("vpc-1", 1), ("vpc-2", 2)] {
        world.add_vpc(vpc, &format!("10.{range}.0.0/16"), false);
        let (subnet, group) = (format!("subnet-{range}"), format!("sg-{range}"));
        world.add_subnet(&subnet, vpc, &format!("{region}a"), &format!("10.{range}.1.0/24"), false);
        world.add_security_group(&group, "nodes", vpc);
        for machine in ["1", "2"] {
            world.add_instance(&format!("i-{range}{machine}"), &subnet, &[&group]);
        }
    }
    Fake::start(Config { world, region: region.to_owned(), ..Config::default() }).unwrap()
}

type Sites = Arc<Mutex<Vec<Site>>>;

/// A management cluster of that identity, which has not heard of anything yet; and which sites it made providers for.
fn fleet(fake: &Fake, identity: &'static str) -> (Fleet, Sites) {
    fleet_in(&[("eu-central-1", fake)], identity)
}

/// The same, with what answers in each region.
fn fleet_in(regions: &[(&str, &Fake)], identity: &'static str) -> (Fleet, Sites) {
    fleet_usually_in(Some("vpc-1"), regions, identity)
}

/// The same, with the VPC of those that name none.
fn fleet_usually_in(vpc: Option<&str>, regions: &[(&str, &Fake)], identity: &'static str) -> (Fleet, Sites) {
    let regions = regions.iter().map(|(region, fake)| ((*region).to_owned(), fake.url().to_owned()));
    let (regions, made) = (regions.collect::<BTreeMap<String, String>>(), Sites::default());
    let usual = Usual { vpc: vpc.map(str::to_owned), region: "eu-central-1".to_owned() };
    let noted = Arc::clone(&made);
    let fleet = Fleet::new(usual, move |site: Site| {
        noted.lock().unwrap().push(site.clone());
        let url = regions.get(&site.region).cloned();
        let refused = url.is_none().then(|| Problem::new("there is no such region", "", ""));
        let url = url.unwrap_or_default();
        let account = Account { region: &site.region, url: &url, vpc: &site.vpc, ..FAKE };
        let (client, mut settings) = account.parts(Limits::none(), "NLBSecurityGroupMode = Managed");
        settings.cluster.clone_from(&site.cluster);
        settings.identity = Some(identity.to_owned());
        settings.members = MemberReports::Each;
        settings.node_rules = NodeRules::Exact;
        let provider = Provider::new(client, settings);
        async move { refused.map_or(Ok(provider), Err) }
    });
    (fleet, made)
}

const FAKE: Account<'static> = Account {
    region: "eu-central-1",
    key: "AKIAFAKEFAKEFAKEFAKE",
    secret: "a-secret-of-the-fake",
    url: "",
    vpc: "",
};

fn owner(cluster: &str) -> Owner {
    Owner::new(cluster, "AWSNLB", Some("fleet".into()), "api").unwrap()
}

fn want(cluster: &str, said: &[(&str, &str)], machines: &[&'static str]) -> Want {
    let members =
        machines.iter().zip(["one", "two"]).map(|(id, name)| (name, *id, portcullis_core::Duty::Serve));
    let plane = Plane { members: members.collect(), ..Plane::default() };
    let mut want = Want { owner: owner(cluster), ..plane.want("api") };
    want.parameters.extend(said.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())));
    want
}

fn gone(cluster: &str, said: &[(&str, &str)]) -> Want {
    let said = said.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
    Want { target: Target::Gone, parameters: said.collect(), ..want(cluster, &[], &[]) }
}

fn balancers(fake: &Fake) -> Vec<String> {
    let world = fake.state();
    let tag = |tags: &BTreeMap<String, String>| tags["portcullis.dev/cluster"].clone();
    let mut all: Vec<String> =
        world.load_balancers.values().map(|found| format!("{} {}", tag(&found.tags), found.vpc)).collect();
    all.sort();
    all
}

fn site(cluster: &str, vpc: &str) -> Site {
    Site { cluster: cluster.to_owned(), vpc: vpc.to_owned(), region: "eu-central-1".to_owned() }
}

#[tokio::test]
async fn each_cluster_is_where_it_says() {
    let fake = account_with_two_vpcs();
    let (fleet, made) = fleet(&fake, "first");
    let two = &[(VPC, "vpc-2"), (REGION, "eu-central-1")];
    for _ in 0..2 {
        assert_eq!(fleet.sync(&want("a", &[], &["i-11"])).await.outcome, Outcome::Done);
        assert_eq!(fleet.sync(&want("b", two, &["i-21", "i-22"])).await.outcome, Outcome::Done);
        assert_eq!(fleet.sync(&want("c", two, &["i-22"])).await.outcome, Outcome::Done);
    }
    assert_eq!(*made.lock().unwrap(), [site("a", "vpc-1"), site("b", "vpc-2"), site("c", "vpc-2")]);
    assert_eq!(balancers(&fake), ["a vpc-1", "b vpc-2", "c vpc-2"]);
    let report = fleet.sync(&want("b", two, &["i-21", "i-22"])).await;
    assert_eq!(states(&report), ["one active", "two active"]);
    assert_eq!(fleet.look_at_all().await.unwrap(), []);
    fake.act_as_someone_else(|world| {
        let mut pools = world.target_groups.values_mut();
        let pool = pools.find(|pool| pool.tags["portcullis.dev/cluster"] == "b").unwrap();
        pool.targets.clear();
    });
    assert_eq!(fleet.look_at_all().await.unwrap(), [owner("b")]);
    assert!(fleet.look_closely(&owner("b")).await.unwrap());

    // A region that does not answer is no reason not to look after the others.
    let elsewhere = fleet.sync(&want("d", &[(REGION, "mars-1")], &[])).await;
    let Outcome::Blocked(problem) = elsewhere.outcome else { panic!("{:?}", elsewhere.outcome) };
    assert_eq!(problem.what, "there is no such region");
    assert_eq!(fleet.look_at_all().await.unwrap(), [owner("b")]);

    assert_eq!(fleet.sync(&gone("b", &[])).await.outcome, Outcome::Done);
    assert_eq!(balancers(&fake), ["a vpc-1", "c vpc-2"]);
    fake.clear_calls();
    fleet.look_at_all().await.unwrap();
    let looked = fake.counts()["DescribeSubnets"];
    assert_eq!(looked, 2, "nobody looks after what is gone");
}

/// What AWS lists is everybody's: it is read once for all clusters, and whose each is, too.
#[tokio::test]
async fn many_clusters_in_one_vpc_read_what_there_is_once() {
    let fake = account_with_two_vpcs();
    let (fleet, made) = fleet(&fake, "first");
    let names: Vec<String> = (0..30).map(|number| format!("c{number}")).collect();
    let counts = || {
        let counts = fake.counts();
        fake.clear_calls();
        ["DescribeLoadBalancers", "DescribeTargetGroups", "DescribeTags"]
            .map(|action| counts.get(action).copied().unwrap_or_default())
    };
    let sync = async |fleet: &Fleet| {
        for name in &names {
            assert_eq!(fleet.sync(&want(name, &[], &["i-11"])).await.outcome, Outcome::Done);
        }
        counts()
    };
    let new = sync(&fleet).await;
    assert_eq!(made.lock().unwrap().len(), names.len());
    assert_eq!(balancers(&fake).len(), names.len());
    // Whose something new is, is asked by who made it, and by nobody else.
    assert!(new[0] <= 2 && new[1] <= 2 && new[2] <= 2 * names.len(), "{new:?}");
    assert_eq!(sync(&fleet).await, [0; 3]);
    assert_eq!(fleet.look_at_all().await.unwrap(), []);
    let rest = counts();
    assert_eq!((rest[0], rest[1]), (1, 1));
    assert!(rest[2] <= 4, "60 objects, 20 by each call, and what the first one had made: {rest:?}");
    assert_eq!(fleet.look_at_all().await.unwrap(), []);
    assert_eq!(counts(), [1, 1, 0], "and it is known from then on");

    // Who starts anew with all of them there.
    let (anew, _) = self::fleet(&fake, "first");
    assert_eq!(sync(&anew).await, [1, 1, 3]);
    assert_eq!(anew.look_at_all().await.unwrap(), []);
    assert_eq!(counts(), [1, 1, 0]);
    // What others change is found all the same, of each.
    fake.act_as_someone_else(|world| world.load_balancers.clear());
    assert_eq!(anew.look_at_all().await.unwrap().len(), names.len());
    for name in &names {
        assert_eq!(anew.sync(&want(name, &[], &["i-11"])).await.outcome, Outcome::Done);
    }
    assert_eq!(balancers(&fake).len(), names.len());
}

#[tokio::test]
async fn who_starts_anew_finds_what_is_to_go() {
    let fake = account_with_two_vpcs();
    let before = shape(&fake.state());
    let two = &[(VPC, "vpc-2")];
    assert_eq!(fleet(&fake, "first").0.sync(&want("b", two, &["i-21"])).await.outcome, Outcome::Done);
    let (anew, _) = fleet(&fake, "first");
    assert_eq!(anew.sync(&gone("b", two)).await.outcome, Outcome::Done);
    assert_eq!(shape(&fake.state()), before);
    // Where nobody says where, and nothing is known, it can only be in the usual VPC.
    assert_eq!(anew.sync(&gone("b", &[])).await.outcome, Outcome::Done);
}

/// Where clients find a load balancer, as whoever asks for it has noted it.
fn address(fake: &Fake) -> String {
    fake.state().load_balancers.values().next().unwrap().dns_name.clone()
}

/// One that went would take along its address, and connections of its clients. It stays, and is looked after where it is, also
/// by who was not there when something else was asked for.
#[tokio::test]
async fn a_load_balancer_does_not_move() {
    for (region, vpc) in [("eu-west-1", "vpc-2"), ("eu-west-1", "vpc-1"), ("eu-central-1", "vpc-2")] {
        for starts_anew in [false, true] {
            let (fake, other) = (account_with_two_vpcs(), account_with_two_vpcs_in("eu-west-1"));
            let regions = [("eu-central-1", &fake), ("eu-west-1", &other)];
            let before = (shape(&fake.state()), shape(&other.state()));
            let (mut fleet, mut made) = fleet_in(&regions, "first");
            let here = want("a", &[], &["i-11", "i-12"]);
            for _ in 0..2 {
                assert_eq!(fleet.sync(&here).await.outcome, Outcome::Done);
            }
            if starts_anew {
                (fleet, made) = fleet_in(&regions, "first");
            }
            let address = address(&fake);
            made.lock().unwrap().clear();
            let there = [(REGION, region), (VPC, vpc), (Owner::ADDRESS_KEY, address.as_str())];
            // Members come and go where it is.
            for (machines, expected) in [
                (vec!["i-11", "i-12"], ["i-11:6443 healthy", "i-12:6443 healthy"].as_slice()),
                (vec!["i-11"], &["i-11:6443 healthy"]),
            ] {
                let report = fleet.sync(&want("a", &there, &machines)).await;
                let Outcome::Blocked(problem) = &report.outcome else { panic!("{:?}", report.outcome) };
                let what = format!("is in vpc-1 of eu-central-1, and cannot move to {vpc} of {region}.");
                assert!(problem.what.contains(&what), "{}", problem.what);
                assert!(problem.to_string().contains("make another AWSNLB"), "{problem}");
                assert_eq!(report.addresses.len(), 1);
                assert_eq!(states(&report)[0], "one active");
                assert_eq!(targets(&fake.state()), expected);
            }
            assert_eq!(balancers(&fake), ["a vpc-1"]);
            assert_eq!(shape(&other.state()), before.1, "nothing is made where it cannot be");
            assert_eq!(fleet.look_at_all().await.unwrap(), []);
            assert!(!fleet.is_settled(&want("a", &there, &["i-11"])));
            let mut wheres = made.lock().unwrap().clone();
            wheres.dedup();
            assert_eq!(wheres.len(), made.lock().unwrap().len(), "nobody is made twice: {wheres:?}");

            // Whoever takes it back goes on, and whoever has it deleted leaves nothing behind.
            if starts_anew {
                fleet = fleet_in(&regions, "first").0;
            } else {
                assert_eq!(fleet.sync(&want("a", &[], &["i-11"])).await.outcome, Outcome::Done);
            }
            assert_eq!(fleet.sync(&gone("a", &there)).await.outcome, Outcome::Done);
            assert_eq!((shape(&fake.state()), shape(&other.state())), before, "{region} {vpc}");
        }
    }
}

/// One that names no VPC any more is where it was, and its members come and go there.
#[tokio::test]
async fn a_load_balancer_that_names_no_vpc_any_more_stays() {
    for starts_anew in [false, true] {
        let fake = account_with_two_vpcs();
        let fleet = || fleet_usually_in(None, &[("eu-central-1", &fake)], "first").0;
        let mut one = fleet();
        let never = one.sync(&want("b", &[], &["i-11"])).await.outcome;
        let Outcome::Blocked(problem) = never else { panic!("{never:?}") };
        assert!(problem.to_string().contains("spec.vpc"), "{problem}");
        for _ in 0..2 {
            assert_eq!(
                one.sync(&want("a", &[(VPC, "vpc-1")], &["i-11", "i-12"])).await.outcome,
                Outcome::Done
            );
        }
        if starts_anew {
            one = fleet();
        }
        let report = one.sync(&want("a", &[(Owner::ADDRESS_KEY, &address(&fake))], &["i-11"])).await;
        let Outcome::Blocked(problem) = &report.outcome else { panic!("{:?}", report.outcome) };
        assert!(problem.to_string().contains("spec.vpc"), "{problem}");
        assert_eq!((states(&report), report.addresses.len()), (vec!["one active".to_owned()], 1));
        assert_eq!(targets(&fake.state()), ["i-11:6443 healthy"]);
        assert_eq!(balancers(&fake), ["a vpc-1"]);
    }
}

/// Who could not look where it is does not take it for gone.
#[tokio::test]
async fn a_load_balancer_that_cannot_be_looked_at_does_not_move() {
    let (fake, other) = (account_with_two_vpcs(), account_with_two_vpcs_in("eu-west-1"));
    let regions = [("eu-central-1", &fake), ("eu-west-1", &other)];
    let (fleet, _) = fleet_in(&regions, "first");
    assert_eq!(fleet.sync(&want("a", &[], &["i-11"])).await.outcome, Outcome::Done);
    let address = address(&fake);
    let there = [(REGION, "eu-west-1"), (Owner::ADDRESS_KEY, address.as_str())];
    let there = want("a", &there, &["i-11"]);
    let (anew, _) = fleet_in(&regions, "first");
    for refused in ["DescribeLoadBalancers", "DescribeSecurityGroups"] {
        fake.deny(refused);
        for _ in 0..2 {
            let report = anew.sync(&there).await;
            assert!(matches!(report.outcome, Outcome::Blocked(_)), "{refused}: {:?}", report.outcome);
        }
        fake.allow(refused);
    }
    let report = anew.sync(&there).await;
    assert!(matches!(report.outcome, Outcome::Blocked(_)), "{:?}", report.outcome);
    assert_eq!((balancers(&fake), balancers(&other)), (vec!["a vpc-1".to_owned()], vec![]));
}

/// Where nothing came of it, it is nowhere yet.
#[tokio::test]
async fn what_was_never_made_is_wanted_elsewhere() {
    let fake = account_with_two_vpcs();
    let (fleet, _) = fleet(&fake, "first");
    for nowhere in [&[(REGION, "mars-1")][..], &[(VPC, "vpc-9")]] {
        let report = fleet.sync(&want("a", nowhere, &["i-11"])).await;
        assert!(matches!(report.outcome, Outcome::Blocked(_)), "{:?}", report.outcome);
    }
    assert_eq!(fleet.sync(&want("a", &[], &["i-11"])).await.outcome, Outcome::Done);
    assert_eq!(balancers(&fake), ["a vpc-1"]);
    // It was there once, and somebody took it away.
    let address = address(&fake);
    fake.act_as_someone_else(|world| {
        world.load_balancers.clear();
        world.target_groups.clear();
    });
    let (anew, _) = self::fleet(&fake, "first");
    let two = [(VPC, "vpc-2"), (Owner::ADDRESS_KEY, address.as_str())];
    let report = anew.sync(&want("a", &two, &["i-21"])).await;
    assert_eq!((balancers(&fake), report.addresses.len()), (vec!["a vpc-2".to_owned()], 1), "{report:?}");
}

/// `clusterctl move`: the objects are in another management cluster, which has other UIDs, and the first one forgets them.
#[tokio::test]
async fn another_management_cluster_takes_over() {
    let fake = account_with_two_vpcs();
    let (first, _) = fleet(&fake, "first");
    let wanted = want("a", &[], &["i-11", "i-12"]);
    assert_eq!(first.sync(&wanted).await.outcome, Outcome::Done);
    let before = fake.state();
    let (second, _) = fleet(&fake, "second");
    fake.clear_calls();
    let moved = Want { uid: "another".to_owned(), ..wanted.clone() };
    let report = second.sync(&moved).await;
    assert_eq!(report.outcome, Outcome::Done);
    assert_eq!(states(&report), ["one active", "two active"]);
    let changes: Vec<String> =
        fake.calls().iter().filter(|one| one.call.mutating).map(|one| one.call.action.clone()).collect();
    assert!(changes.iter().all(|action| action == "AddTags" || action == "CreateTags"), "{changes:?}");
    let unmarked = |world: &World| {
        let shape = shape(world).join("\n");
        shape.replace("\"second\"", "\"first\"")
    };
    assert_eq!(unmarked(&fake.state()), unmarked(&before), "but for the mark of who looks after it");

    fake.clear_calls();
    first.forget(&wanted.owner);
    assert!(first.forgotten().is_empty());
    first.look_at_all().await.unwrap();
    assert_eq!(fake.mutating_calls(), 0);
    assert_eq!(targets(&fake.state()), ["i-11:6443 healthy", "i-12:6443 healthy"]);
    assert_eq!(second.sync(&moved).await.outcome, Outcome::Done);
    assert_eq!(fake.mutating_calls(), 0);
}
