//! What AWS cannot change in place is told, and what waits holds up nobody.

use std::net::IpAddr;
use std::time::Duration;

use portcullis_core::{Outcome, Provider as _};

use crate::held;
use crate::scene::{Service, account, fake, gone};
use crate::strict::is_untouched;

type Annotations = Vec<(&'static str, &'static str)>;

#[tokio::test]
async fn what_cannot_be_changed_is_told_and_the_rest_goes_on() {
    let elastic = ("eip-allocations", "eipalloc-1,eipalloc-2");
    let other_elastic = ("eip-allocations", "eipalloc-1,eipalloc-3");
    let internal = ("internal", "true");
    let private = ("private-ipv4-addresses", "10.0.1.99,10.0.2.99");
    let other_private = ("private-ipv4-addresses", "10.0.1.99,10.0.2.98");
    let again = "; delete the Service and make it again to change that";
    let rows: [(Annotations, Annotations, &str); 8] = [
        (vec![], vec![internal], "load balancer {} is internet-facing and cannot become internal"),
        (vec![internal], vec![], "load balancer {} is internal and cannot become internet-facing"),
        (vec![], vec![("name", "front")], "load balancer {} cannot be renamed to front"),
        (vec![("name", "front")], vec![("name", "back")], "load balancer {} cannot be renamed to back"),
        (
            vec![],
            vec![elastic],
            "load balancer {} keeps its addresses, whatever annotation service.beta.kubernetes.io/aws-load-balancer-eip-allocations says",
        ),
        (
            vec![elastic],
            vec![other_elastic],
            "load balancer {} keeps its addresses, whatever annotation service.beta.kubernetes.io/aws-load-balancer-eip-allocations says",
        ),
        (
            vec![internal],
            vec![internal, private],
            "load balancer {} keeps its addresses, whatever annotation service.beta.kubernetes.io/aws-load-balancer-private-ipv4-addresses says",
        ),
        (
            vec![internal, private],
            vec![internal, other_private],
            "load balancer {} keeps its addresses, whatever annotation service.beta.kubernetes.io/aws-load-balancer-private-ipv4-addresses says",
        ),
    ];
    for (before, after, told) in rows {
        let row = format!("{before:?}, then {after:?}");
        let fake = fake(|config| {
            for number in 1..=3 {
                let allocation = format!("eipalloc-{number}");
                config.world.add_elastic_address(&allocation, IpAddr::from([192, 0, 2, number]));
            }
        });
        let provider = account(&fake).provider("Managed");
        let service = Service { annotations: before, ..Service::default() };
        let report = provider.sync(&service.want("web")).await;
        assert_eq!((&report.outcome, &report.told), (&Outcome::Done, &Vec::new()), "{row}");
        let made = fake.state();

        let told = told.replace("{}", &held::balancer(&made, "web").name) + again;
        let service = Service { annotations: after, ..Service::default() };
        // To whoever made it, and to whoever finds it.
        for provider in [&provider, &account(&fake).provider("Managed")] {
            let report = provider.sync(&service.want("web")).await;
            assert_eq!((report.outcome, report.told), (Outcome::Done, vec![told.clone()]), "{row}");
            assert_eq!(fake.state(), made, "nothing is half-done: {row}");
        }
        // What can be changed is.
        let more = Service { ports: vec![(81, 30081)], ..service };
        let report = provider.sync(&more.want("web")).await;
        assert_eq!((report.outcome, report.told), (Outcome::Done, vec![told]), "{row}");
        assert_eq!(held::listeners(&fake.state(), "web"), ["81 TCP to instance TCP 30081"], "{row}");
        assert_eq!(provider.sync(&gone("web")).await.outcome, Outcome::Done, "{row}");
        is_untouched(&fake);
    }
}

#[tokio::test]
async fn an_annotation_for_fixed_addresses_that_goes_is_no_change() {
    let fake = fake(|config| {
        for number in 1..=2 {
            let allocation = format!("eipalloc-{number}");
            config.world.add_elastic_address(&allocation, IpAddr::from([192, 0, 2, number]));
        }
    });
    let provider = account(&fake).provider("Managed");
    let elastic =
        Service { annotations: vec![("eip-allocations", "eipalloc-1,eipalloc-2")], ..Service::default() };
    assert_eq!(provider.sync(&elastic.want("web")).await.outcome, Outcome::Done);
    let made = fake.state();
    // The order is that of the subnets, and says nothing else.
    for annotations in [vec![], vec![("eip-allocations", "eipalloc-2,eipalloc-1")]] {
        let report = provider.sync(&Service { annotations, ..Service::default() }.want("web")).await;
        assert_eq!((report.outcome, report.told), (Outcome::Done, Vec::new()));
        assert_eq!(fake.state(), made);
    }
}

#[tokio::test]
async fn a_deletion_that_waits_holds_up_nobody() {
    let fake = fake(|config| config.lingering = Duration::from_secs(300));
    let provider = account(&fake).provider("Managed");
    for name in ["goes", "stays"] {
        assert_eq!(provider.sync(&Service::default().want(name)).await.outcome, Outcome::Done);
    }
    let goes = gone("goes");
    let stays = Service { ports: vec![(443, 30443)], ..Service::default() }.want("stays");
    let (waits, changed) = tokio::join!(provider.sync(&goes), provider.sync(&stays));
    assert!(
        matches!(&waits.outcome, Outcome::Pending { why, .. } if why.contains("DependencyViolation")),
        "{waits:?}"
    );
    assert_eq!(changed.outcome, Outcome::Done);
    assert_eq!(provider.sync(&Service::default().want("new")).await.outcome, Outcome::Done);
    assert_eq!(held::listeners(&fake.state(), "stays"), ["443 TCP to instance TCP 30443"]);
    // It is asked again and again, and is no burden meanwhile.
    for _ in 0..3 {
        fake.clear_calls();
        assert!(matches!(provider.sync(&gone("goes")).await.outcome, Outcome::Pending { .. }));
        assert!(fake.calls().len() <= 3, "{:?}", fake.counts());
    }
    assert_eq!(held::nodes(&fake.state()), held::SHARED, "the others need it");
    fake.pass(Duration::from_secs(301));
    assert_eq!(provider.sync(&gone("goes")).await.outcome, Outcome::Done);
    assert_eq!(held::group(&fake.state(), "goes"), None);
    assert!(held::group(&fake.state(), "stays").is_some());
}

#[tokio::test]
async fn a_deletion_that_waits_can_be_taken_back() {
    let fake = fake(|config| config.lingering = Duration::from_secs(300));
    let provider = account(&fake).provider("Managed");
    let want = Service::default().want("web");
    assert_eq!(provider.sync(&Service::default().want("other")).await.outcome, Outcome::Done);
    assert_eq!(provider.sync(&want).await.outcome, Outcome::Done);
    assert!(matches!(provider.sync(&gone("web")).await.outcome, Outcome::Pending { .. }));
    assert_eq!(provider.sync(&want).await.outcome, Outcome::Done);
    let world = fake.state();
    assert_eq!(held::attached(&world, "web"), ["backend", "own"]);
    assert_eq!(held::lets_in(&world, "web"), ["icmp 3-4 0.0.0.0/0", "tcp 80-80 0.0.0.0/0"]);
    assert_eq!(held::targets(&world, "web", 80), ["i-1:30080", "i-2:30080"]);
}

#[tokio::test]
async fn a_load_balancer_that_is_protected_stays_until_it_is_not() {
    let fake = fake(|_| ());
    let provider = account(&fake).provider("Managed");
    let protected = Service {
        annotations: vec![("attributes", "deletion_protection.enabled=true")],
        ..Service::default()
    };
    assert_eq!(provider.sync(&protected.want("web")).await.outcome, Outcome::Done);
    let made = fake.state();
    let outcome = provider.sync(&gone("web")).await.outcome;
    let Outcome::Blocked(problem) = outcome else { panic!("{outcome:?}") };
    assert!(problem.what.contains("deletion protection is enabled"), "{problem}");
    // It is nothing that a role could be allowed.
    assert_eq!(problem.remedy, "Correct what AWS complains about.");
    assert_eq!(fake.state(), made, "and nothing of it is taken apart");
    fake.act_as_someone_else(|world| {
        let balancer = world.load_balancers.values_mut().next().unwrap();
        balancer.attributes.insert("deletion_protection.enabled".into(), "false".into());
    });
    assert_eq!(provider.sync(&gone("web")).await.outcome, Outcome::Done);
    is_untouched(&fake);
}
