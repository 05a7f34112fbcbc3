//! Whatever happens in between: in the end all is as wanted, and nothing is left over.

use std::collections::BTreeSet;
use std::time::Duration;

use portcullis_aws::{NodeRules, Provider};
use portcullis_aws_fake::{Fake, Fault};
use portcullis_core::{Outcome, Provider as _, Target, Want};
use portcullis_testkit::Dice;

use crate::packets::{Through, is_within, open, through};
use crate::scene::{Service, account, fake, gone, owner, shape};

fn before() -> Service<'static> {
    Service {
        ports: vec![(80, 30080), (443, 30443)],
        ranges: Some(vec!["192.0.2.0/24", "203.0.113.0/24"]),
        ..Service::default()
    }
}

fn after() -> Service<'static> {
    Service {
        ports: vec![(80, 30081), (8443, 30443)],
        ranges: Some(vec!["198.51.100.0/24", "203.0.113.0/24"]),
        nodes: vec!["i-2", "i-3"],
        annotations: vec![
            ("attributes", "load_balancing.cross_zone.enabled=true"),
            ("additional-resource-tags", "team=a"),
        ],
        ..Service::default()
    }
}

/// How the program is set up.
#[derive(Clone, Copy, Debug)]
struct Setup {
    mode: &'static str,
    rules: NodeRules,
}

const USUAL: Setup = Setup { mode: "Managed", rules: NodeRules::Shared };
const EXACT: Setup = Setup { mode: "Managed", rules: NodeRules::Exact };
const UNMANAGED: Setup = Setup { mode: "Unmanaged", rules: NodeRules::Shared };

impl Setup {
    fn provider(self, fake: &Fake) -> Provider {
        account(fake).provider_with(self.mode, |settings| {
            settings.node_rules = self.rules;
            settings.node_groups = vec!["sg-nodes".into()];
        })
    }

    /// Has one process after the other try, until all of it is done.
    async fn until_done(self, fake: &Fake, wants: &[Want]) {
        for _ in 0..40 {
            let provider = self.provider(fake);
            let mut done = true;
            for want in wants {
                done &= provider.sync(want).await.outcome == Outcome::Done;
            }
            if done {
                return;
            }
            fake.pass(Duration::from_secs(30));
        }
        panic!("it does not end");
    }
}

async fn until_done(fake: &Fake, want: &Want) {
    USUAL.until_done(fake, std::slice::from_ref(want)).await;
}

/// Somebody else in the same cluster, who wants the same all the time.
fn neighbour() -> Want {
    Service { ports: vec![(80, 30090)], ranges: Some(vec!["203.0.113.0/24"]), ..Service::default() }
        .want("shop")
}

/// The same again and again, killed at each call that changes something in turn, after it was done: a call that was not
/// done leaves what the one before left, and one that only looks changes nothing. At no moment more is open than before
/// and after together, on the load balancers' and on the nodes' side, and nobody is cut who gets through before and
/// after. From the second process on nothing goes wrong.
async fn killed_everywhere(setup: Setup, prepare: Option<&Want>, want: &Want) {
    let neighbour = neighbour();
    let with = |want: Option<&Want>| want.into_iter().chain([&neighbour]).cloned().collect::<Vec<_>>();
    let fake = fake(|_| ());
    setup.until_done(&fake, &with(prepare)).await;
    let before = fake.state();
    setup.until_done(&fake, &with(Some(want))).await;
    let after = fake.state();
    let allowed: BTreeSet<String> = &open(&before) | &open(&after);
    let kept: Through = &through(&before, &before) & &through(&after, &after);
    let is_kept = |name: &str| {
        let start = format!("k8s-shop-{name}-");
        kept.iter().any(|(balancer, ..)| balancer.starts_with(&start))
    };
    assert!(is_kept("shop"), "{kept:?}");
    let is_updated = prepare.is_some() && want.target != Target::Gone;
    assert_eq!(is_kept("web"), is_updated, "{setup:?}: {kept:?}");
    for kill in 1.. {
        fake.act_as_someone_else(|world| world.clone_from(&before));
        let provider = setup.provider(&fake);
        assert_eq!(provider.sync(&neighbour).await.outcome, Outcome::Done);
        assert_eq!(fake.state(), before);
        let mut left = kill;
        fake.faults(move |call| match left {
            0 => Fault::DropBefore,
            _ if !call.mutating => Fault::None,
            _ => {
                left -= 1;
                if left == 0 { Fault::DropAfter } else { Fault::None }
            }
        });
        let outcome = provider.sync(want).await.outcome;
        fake.clear_faults();
        let now = fake.state();
        let wider: Vec<_> = open(&now).into_iter().filter(|one| !is_within(one, &allowed)).collect();
        assert!(wider.is_empty(), "{setup:?} killed at {kill}: {wider:?}");
        let cut: Vec<_> = kept.difference(&through(&now, &before)).cloned().collect();
        assert!(cut.is_empty(), "{setup:?} killed at {kill}: {cut:?}");
        setup.until_done(&fake, &with(Some(want))).await;
        assert_eq!(shape(&fake.state()), shape(&after), "{setup:?} killed at {kill}");
        if outcome == Outcome::Done {
            assert!(kill > 3, "it was never killed");
            return;
        }
    }
}

/// The same for addresses of pods.
fn pods(service: Service<'static>, pods: &[(&'static str, u16)]) -> Service<'static> {
    let mut annotations = service.annotations.clone();
    annotations.push(("nlb-target-type", "ip"));
    Service { pods: pods.to_vec(), annotations, ..service }
}

/// The same without ranges, which nobody could keep to where pods do not see clients.
fn everyone(service: Service<'static>) -> Service<'static> {
    Service { ranges: None, ..service }
}

/// The same with a group of the user's.
fn given(service: Service<'static>) -> Service<'static> {
    let mut annotations = service.annotations.clone();
    annotations.push(("security-groups", "sg-user"));
    Service { annotations, ..service }
}

/// Made, changed there and back, and taken away.
async fn killed_through_its_life(setup: Setup, before: &Service<'_>, after: &Service<'_>) {
    let (before, after) = (before.want("web"), after.want("web"));
    killed_everywhere(setup, None, &before).await;
    killed_everywhere(setup, Some(&before), &after).await;
    killed_everywhere(setup, Some(&after), &before).await;
    killed_everywhere(setup, Some(&before), &gone("web")).await;
}

#[tokio::test]
async fn killed_everywhere_with_machines_as_targets() {
    for setup in [USUAL, EXACT, UNMANAGED] {
        killed_through_its_life(setup, &before(), &after()).await;
    }
}

#[tokio::test]
async fn killed_everywhere_with_addresses_as_targets() {
    let (first, second) = ([("10.0.1.77", 9090)], [("10.0.2.78", 9191), ("10.0.1.79", 9191)]);
    for setup in [USUAL, EXACT] {
        killed_through_its_life(setup, &pods(before(), &first), &pods(after(), &second)).await;
    }
    let (before, after) = (everyone(before()), everyone(after()));
    killed_through_its_life(UNMANAGED, &pods(before, &first), &pods(after, &second)).await;
}

#[tokio::test]
async fn killed_everywhere_while_it_gets_other_groups_and_ports() {
    let (before, after) = (everyone(before()), everyone(after()));
    for setup in [USUAL, EXACT] {
        killed_everywhere(setup, Some(&given(before.clone()).want("web")), &after.want("web")).await;
        killed_everywhere(setup, Some(&after.want("web")), &given(before.clone()).want("web")).await;
    }
}

/// Where each of two processes is killed, at a call of any kind, before it was done and after, the third one finds it.
#[tokio::test]
async fn killed_again_and_again_nothing_is_left_over() {
    let fake = fake(|_| ());
    let untouched = shape(&fake.state());
    for (number, want) in [before().want("web"), after().want("web"), gone("web")].iter().enumerate() {
        for kill in 1..40 {
            let mut left = 1 + (kill + number) % 7;
            fake.faults(move |_| {
                let last = left == 1;
                left -= usize::from(left > 0);
                match (last, left) {
                    (true, _) if kill % 2 == 0 => Fault::DropAfter,
                    (_, 0) => Fault::DropBefore,
                    _ => Fault::None,
                }
            });
            let _ = USUAL.provider(&fake).sync(want).await;
            fake.clear_faults();
        }
        until_done(&fake, want).await;
    }
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
    // Tags of a listener that nobody was told of yet are found by the closer look.
    for tries in 0.. {
        assert!(tries < 40, "it does not end");
        fake.pass(Duration::from_secs(30));
        let provider = USUAL.provider(&fake);
        if provider.sync(&after().want("web")).await.outcome == Outcome::Done
            && provider.look_closely(&owner("web")).await == Ok(false)
        {
            break;
        }
        let _ = provider.sync(&after().want("web")).await;
    }
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
