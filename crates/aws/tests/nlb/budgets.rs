//! How many calls are made, besides those that `calls_are_few` counts.

use futures_util::future::join_all;
use portcullis_aws::Limits;
use portcullis_aws_fake::{End, RateLimits};
use portcullis_core::{Outcome, Provider as _};

use crate::scene::{Service, account, fake, gone};
use crate::strict::count;

const PORTS: [(u16, u16); 3] = [(80, 30080), (443, 30443), (8080, 30880)];

#[tokio::test]
async fn a_node_more_takes_one_call_for_each_target_group() {
    let fake = fake(|_| ());
    let provider = account(&fake).provider("Managed");
    let names: Vec<String> = (0..10).map(|number| format!("web{number}")).collect();
    let service = |nodes: &[&'static str]| Service {
        ports: PORTS.to_vec(),
        nodes: nodes.to_vec(),
        ..Service::default()
    };
    for name in &names {
        assert_eq!(provider.sync(&service(&["i-1", "i-2"]).want(name)).await.outcome, Outcome::Done);
    }
    let each = async |nodes: &[&'static str]| {
        count(&fake);
        for name in &names {
            assert_eq!(provider.sync(&service(nodes).want(name)).await.outcome, Outcome::Done);
        }
        count(&fake)
    };
    let (changing, looking) = each(&["i-1", "i-2", "i-3"]).await;
    assert_eq!(changing, names.len() * PORTS.len());
    assert!(looking <= 1, "{looking}: one look at the new machine is for all");
    assert_eq!(each(&["i-1", "i-2", "i-3"]).await, (0, 0));
    assert_eq!(each(&["i-1", "i-2"]).await, (names.len() * PORTS.len(), 0));
}

#[tokio::test]
async fn attributes_take_one_call_for_each_object_that_has_them() {
    let fake = fake(|_| ());
    let provider = account(&fake).provider("Managed");
    assert_eq!(provider.sync(&Service::default().want("first")).await.outcome, Outcome::Done);
    for number in 1..=3_usize {
        let service = Service {
            ports: PORTS[..number].to_vec(),
            annotations: vec![
                ("cross-zone-load-balancing-enabled", "true"),
                (
                    "target-group-attributes",
                    "preserve_client_ip.enabled=false,proxy_protocol_v2.enabled=true",
                ),
            ],
            ..Service::default()
        };
        count(&fake);
        assert_eq!(provider.sync(&service.want("web")).await.outcome, Outcome::Done);
        let (changing, looking) = count(&fake);
        assert_eq!(changing, 5 + 3 * number + 1 + number);
        assert!(looking <= 4, "{looking}");
        assert_eq!(provider.sync(&gone("web")).await.outcome, Outcome::Done);
    }
}

#[tokio::test]
async fn a_look_at_all_takes_as_many_calls_for_many_as_for_one() {
    let fake = fake(|_| ());
    let provider = account(&fake).provider("Managed");
    let mut looked = Vec::new();
    for number in 0..20 {
        assert_eq!(
            provider.sync(&Service::default().want(&format!("web{number}"))).await.outcome,
            Outcome::Done
        );
        count(&fake);
        assert_eq!(provider.look_at_all().await.unwrap(), []);
        looked.push(count(&fake));
    }
    assert!(looked.iter().all(|one| *one == looked[0]), "{looked:?}");
    assert_eq!(looked[0].0, 0);
    // Load balancers, target groups, our groups, the nodes' groups, machines, subnets, route tables.
    assert!(looked[0].1 <= 7, "{looked:?}");
}

/// With what AWS publishes, and several Services at once: whoever keeps to the usual pace is never refused, and whoever keeps to
/// none is.
#[tokio::test]
async fn the_usual_pace_is_never_too_fast() {
    for (limits, is_refused) in [(Limits::default(), false), (Limits::none(), true)] {
        let fake = fake(|config| config.rate_limits = Some(RateLimits::published()));
        let provider = account(&fake).provider_at_pace(limits, "NLBSecurityGroupMode = Managed", |_| ());
        let service = Service { ports: PORTS[..2].to_vec(), ..Service::default() };
        let wants: Vec<_> = (0..5).map(|number| service.want(&format!("web{number}"))).collect();
        let reports = join_all(wants.iter().map(|want| provider.sync(want))).await;
        assert!(is_refused || reports.iter().all(|report| report.outcome == Outcome::Done), "{reports:?}");
        let refused: Vec<_> =
            fake.calls().into_iter().filter(|logged| matches!(logged.end, End::Refused(_))).collect();
        assert_eq!(!refused.is_empty(), is_refused, "{refused:?}");
    }
}

#[tokio::test]
async fn a_close_look_takes_three_calls_and_two_for_each_port() {
    let fake = fake(|_| ());
    let provider = account(&fake).provider("Managed");
    for number in 1..=3_usize {
        let service = Service { ports: PORTS[..number].to_vec(), ..Service::default() };
        assert_eq!(provider.sync(&service.want("web")).await.outcome, Outcome::Done);
        count(&fake);
        assert!(!provider.look_closely(&crate::scene::owner("web")).await.unwrap());
        let (changing, looking) = count(&fake);
        assert_eq!(changing, 0);
        assert!(looking <= 3 + 2 * number, "{looking}");
    }
}

#[tokio::test]
async fn a_close_look_at_many_ports_takes_no_more_and_reads_all_in_turn() {
    let fake = fake(|_| ());
    let provider = account(&fake).provider("Managed");
    let ports: Vec<(u16, u16)> = (0..22).map(|number| (100 + number, 30100 + number)).collect();
    let number = ports.len();
    let service = Service { ports, ..Service::default() };
    assert_eq!(provider.sync(&service.want("web")).await.outcome, Outcome::Done);
    fake.act_as_someone_else(|world| {
        for balancer in world.load_balancers.values_mut() {
            balancer.listeners.values_mut().last().unwrap().tags.clear();
        }
    });
    let mut found = 0;
    for _ in 0..3 {
        count(&fake);
        found += usize::from(provider.look_closely(&crate::scene::owner("web")).await.unwrap());
        let (changing, looking) = count(&fake);
        assert_eq!(changing, 0);
        assert!(looking <= 3 + 2 * number, "{looking}");
    }
    assert!(found > 0, "it was read by the third time");
}

#[tokio::test]
async fn a_port_or_a_range_more_takes_few_calls() {
    let fake = fake(|_| ());
    let provider = account(&fake).provider("Managed");
    let service =
        Service { ports: PORTS[..2].to_vec(), ranges: Some(vec!["192.0.2.0/24"]), ..Service::default() };
    assert_eq!(provider.sync(&service.want("web")).await.outcome, Outcome::Done);
    let moved = Service { ports: vec![PORTS[0], (444, 30443)], ..service.clone() };
    let ranges = Service { ranges: Some(vec!["198.51.100.0/24", "203.0.113.0/24"]), ..moved.clone() };
    let node_port = Service { ports: vec![PORTS[0], (444, 30444)], ..ranges.clone() };
    // What it takes at most: to open, to change, to close.
    for (what, service, most) in [
        // A rule in, a target group, its targets, a listener; then the old listener, target group and rule.
        ("a port", &moved, 7),
        // Rules in, and out again.
        ("ranges", &ranges, 2),
        // A rule out, a target group, its targets, the listener; then the old target group and rule.
        ("a node port", &node_port, 6),
    ] {
        count(&fake);
        assert_eq!(provider.sync(&service.want("web")).await.outcome, Outcome::Done, "{what}");
        let (changing, looking) = count(&fake);
        assert!(changing <= most && looking <= 1, "{what}: {changing} and {looking}");
    }
}
