//! Whatever happens in between: in the end all is as wanted, and nothing is left over.

use std::collections::BTreeSet;
use std::time::Duration;

use portcullis_aws_fake::{Fake, Fault, World};
use portcullis_core::{Outcome, Provider as _, Want};
use portcullis_testkit::Dice;

use crate::scene::{Service, account, fake, gone, shape};

fn before() -> Service<'static> {
    Service {
        ports: vec![(80, 30080), (443, 30443)],
        ranges: Some(vec!["192.0.2.0/24"]),
        ..Service::default()
    }
}

fn after() -> Service<'static> {
    Service {
        ports: vec![(80, 30081), (8443, 30443)],
        ranges: Some(vec!["198.51.100.0/24"]),
        nodes: vec!["i-2", "i-3"],
        annotations: vec![
            ("attributes", "load_balancing.cross_zone.enabled=true"),
            ("additional-resource-tags", "team=a"),
        ],
        ..Service::default()
    }
}

/// Who gets through: by which port, from where.
fn open(world: &World) -> BTreeSet<(u16, String)> {
    let mut open = BTreeSet::new();
    for balancer in world.load_balancers.values() {
        for listener in balancer.listeners.values() {
            for rule in balancer.groups.iter().flat_map(|id| world.groups[id].lets_in()) {
                if rule.contains(&format!("tcp {} ", listener.port)) {
                    open.insert((listener.port, rule));
                }
            }
        }
    }
    open
}

/// Has one process after the other try, until it is done.
async fn until_done(fake: &Fake, want: &Want) {
    for _ in 0..40 {
        let provider = account(fake).provider("Managed");
        if provider.sync(want).await.outcome == Outcome::Done {
            return;
        }
        fake.pass(Duration::from_secs(30));
    }
    panic!("it does not end");
}

/// The same again and again, killed at each call in turn, before it was done and after; from the second process on
/// nothing goes wrong.
async fn killed_everywhere(prepare: Option<&Want>, want: &Want) {
    let calm = fake(|_| ());
    if let Some(prepare) = prepare {
        until_done(&calm, prepare).await;
    }
    let open_before = open(&calm.state());
    until_done(&calm, want).await;
    let (expected, open_after) = (shape(&calm.state()), open(&calm.state()));
    for kill in 1.. {
        let mut reached = false;
        for done in [false, true] {
            let fake = fake(|_| ());
            if let Some(prepare) = prepare {
                until_done(&fake, prepare).await;
            }
            let first = fake.calls().last().map_or(0, |logged| logged.call.number);
            fake.faults(move |call| match call.number {
                number if number < first + kill => Fault::None,
                number if number == first + kill && done => Fault::DropAfter,
                _ => Fault::DropBefore,
            });
            let provider = account(&fake).provider("Managed");
            let outcome = provider.sync(want).await.outcome;
            reached |= outcome != Outcome::Done;
            let now = open(&fake.state());
            let allowed: BTreeSet<_> = open_before.union(&open_after).cloned().collect();
            assert!(now.is_subset(&allowed), "killed at {kill}: {now:?}");
            fake.clear_faults();
            until_done(&fake, want).await;
            assert_eq!(shape(&fake.state()), expected, "killed at {kill}, done: {done}");
        }
        if !reached {
            return;
        }
    }
}

#[tokio::test]
async fn killed_everywhere_while_it_is_made() {
    killed_everywhere(None, &before().want("web")).await;
}

#[tokio::test]
async fn killed_everywhere_while_it_is_changed() {
    killed_everywhere(Some(&before().want("web")), &after().want("web")).await;
}

#[tokio::test]
async fn killed_everywhere_while_it_is_taken_away() {
    killed_everywhere(Some(&before().want("web")), &gone("web")).await;
    let fake = fake(|_| ());
    let untouched = shape(&fake.state());
    until_done(&fake, &before().want("web")).await;
    until_done(&fake, &gone("web")).await;
    assert_eq!(shape(&fake.state()), untouched);
}

/// Made, changed and taken away, with something wrong with many calls.
async fn in_trouble(mut dice: Dice, staleness: Duration) {
    let calm = fake(|_| ());
    until_done(&calm, &after().want("web")).await;
    let fake = fake(|config| config.staleness = staleness);
    fake.faults(move |_| match dice.roll(12) {
        0..4 => Fault::Throttle,
        4 => Fault::InternalError,
        5 => Fault::DropBefore,
        6 => Fault::DropAfter,
        7 => Fault::Error("ServiceUnavailable".to_owned(), 503),
        _ => Fault::None,
    });
    until_done(&fake, &before().want("web")).await;
    until_done(&fake, &after().want("web")).await;
    assert_eq!(shape(&fake.state()), shape(&calm.state()));
    until_done(&fake, &gone("web")).await;
    let world = fake.state();
    assert!(world.load_balancers.is_empty() && world.target_groups.is_empty());
    assert!(!world.groups.values().any(|group| group.name.starts_with("k8s-")), "{:?}", world.groups);
    assert!(world.groups["sg-nodes"].ingress.is_empty());
}

#[tokio::test]
async fn calls_fail_all_the_time() {
    for seed in 1..11 {
        in_trouble(Dice::new(seed), Duration::ZERO).await;
    }
}

#[tokio::test]
async fn calls_fail_and_what_is_told_is_old() {
    for seed in 1..6 {
        in_trouble(Dice::new(seed), Duration::from_secs(3)).await;
    }
}
