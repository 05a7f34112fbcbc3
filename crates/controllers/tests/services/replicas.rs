//! Several replicas, of which one acts.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease as Object;
use kube::api::Api;
use portcullis_aws::Provider;
use portcullis_controllers::{Lease, LeaseError, ServiceController};
use portcullis_testkit::eventually;
use serde_json::json;
use tokio::task::JoinHandle;

use crate::scene::{Scene, set, settings, wait};

/// A replica, as the program runs it.
struct Replica {
    task: JoinHandle<()>,
    lease: Lease,
    provider: Provider,
}

fn lease(scene: &Scene, host: &str) -> Lease {
    let mut lease = Lease::new(scene.client.clone(), scene.name, "services", host);
    lease.retry = Duration::from_millis(100);
    lease
}

impl Replica {
    fn start(scene: &Scene, host: &str) -> Self {
        let (provider, lease) = (scene.provider("Managed"), lease(scene, host));
        let mut settings = settings(scene.name);
        host.clone_into(&mut settings.host);
        let controller = ServiceController::new(scene.client.clone(), provider.clone(), settings);
        let held = lease.clone();
        let task = tokio::spawn(async move {
            let mut leadership = held.hold().await;
            tokio::select! {
                () = controller.run() => {}
                lost = leadership.lost() => panic!("{lost}"),
            }
        });
        Replica { task, lease, provider }
    }

    /// Whether it ever called AWS.
    fn acted(&self) -> bool {
        !self.provider.client().calls().is_empty()
    }

    /// Ends it; in order, it gives the Lease back.
    fn stop(self, in_order: bool) {
        self.task.abort();
        let _ = wait(self.task);
        if in_order {
            wait(self.lease.release());
        }
    }
}

fn holder(scene: &Scene) -> Option<String> {
    let api: Api<Object> = Api::namespaced(scene.client.clone(), scene.name);
    wait(api.get_opt("services")).unwrap()?.spec?.holder_identity
}

#[tokio::test(flavor = "multi_thread")]
async fn one_acts_and_when_it_goes_another_does() {
    let scene = Scene::new("replicas").await;
    let first = Replica::start(&scene, "first");
    eventually("the first one acts", || holder(&scene).as_deref() == Some("first"));
    let second = Replica::start(&scene, "second");
    scene.apply("one", &json!({}));
    scene.wait_for_address("one");
    scene.wait_for_event("one", "EnsuredLoadBalancer");
    let hosts = |name: &str| {
        let events = scene.events(name).into_iter();
        events.filter_map(|event| event.source?.host).collect::<std::collections::BTreeSet<_>>()
    };
    assert_eq!(hosts("one"), set(["first"]));
    assert!(first.acted() && !second.acted());

    // It ends in order, and the next one goes on where it was.
    first.stop(true);
    eventually("the second one acts", || holder(&scene).as_deref() == Some("second"));
    let third = Replica::start(&scene, "third");
    scene.apply("two", &json!({}));
    scene.wait_for_event("two", "EnsuredLoadBalancer");
    assert_eq!(hosts("two"), set(["second"]));
    assert_eq!(hosts("one"), set(["first"]), "nothing was to be done for it");
    assert!(second.acted() && !third.acted());

    // It is killed, and its Lease runs out.
    second.stop(false);
    scene.delete("one");
    scene.apply("three", &json!({}));
    scene.wait_until_gone("one");
    scene.wait_for_address("three");
    scene.wait_for_event("three", "EnsuredLoadBalancer");
    assert_eq!(holder(&scene).as_deref(), Some("third"));
    assert_eq!(hosts("three"), set(["third"]));
    assert_eq!(scene.fake.state().load_balancers.len(), 2);
    third.stop(true);
    assert_eq!(holder(&scene), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn who_loses_the_lease_hears_of_it() {
    let scene = Scene::new("lease").await;
    let mut leadership = lease(&scene, "first").hold().await;
    // Somebody else has it, by whatever way.
    let api: Api<Object> = Api::namespaced(scene.client.clone(), scene.name);
    let taken = kube::api::Patch::Merge(json!({"spec": {"holderIdentity": "second"}}));
    api.patch("services", &kube::api::PatchParams::default(), &taken).await.unwrap();
    assert_eq!(leadership.lost().await, LeaseError::Taken("services".into(), "second".into()));
    // What another one holds is not given back.
    lease(&scene, "first").release().await;
    assert_eq!(holder(&scene).as_deref(), Some("second"));
}

#[tokio::test(flavor = "multi_thread")]
async fn of_many_who_want_the_lease_one_gets_it() {
    let scene = Scene::new("many").await;
    let names = ["a", "b", "c", "d", "e", "f"];
    let mut waiting = tokio::task::JoinSet::new();
    for name in names {
        let lease = lease(&scene, name);
        waiting.spawn(async move { (name, lease.hold().await) });
    }
    let mut order = Vec::new();
    for _ in names {
        let (name, leadership) = waiting.join_next().await.unwrap().unwrap();
        assert_eq!(holder(&scene).as_deref(), Some(name));
        assert!(waiting.try_join_next().is_none(), "only one holds it");
        order.push(name);
        drop(leadership);
        lease(&scene, name).release().await;
    }
    order.sort_unstable();
    assert_eq!(order, names);
}
