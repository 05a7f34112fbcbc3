//! Those who only watch, and Services that are only looked at.

use std::time::Duration;

use portcullis_kube_api::{DRY_RUN, FINALIZER};
use portcullis_testkit::eventually;
use serde_json::{Value, json};

use crate::scene::{PREFIX, Scene, set};

#[tokio::test(flavor = "multi_thread")]
async fn who_only_watches_writes_nowhere() {
    let scene = Scene::new("watched").await;
    // One that another has made, one that is held and about to go, one that cannot be, and a new one.
    let running = scene.start();
    for name in ["made", "going"] {
        scene.apply(name, &json!({}));
        scene.wait_for_event(name, "EnsuredLoadBalancer");
    }
    running.stop();
    scene.delete("going");
    scene.apply("made", &json!({"spec": {"ports": [{"name": "other", "port": 81}]}}));
    scene.apply("new", &json!({}));
    let wrong = json!({"metadata": {"annotations": {format!("{PREFIX}scheme"): "wrong"}}});
    scene.apply("wrong", &wrong);
    // And what a Service left that is gone.
    let left = scene.fake.act_as_someone_else(|world| {
        let balancer = world.load_balancers.values().next().unwrap().clone();
        let tags = [("portcullis.dev/name", "left"), ("Name", "left")];
        let tags = tags.map(|(key, value)| (key.to_owned(), value.to_owned()));
        let mut left = portcullis_aws_fake::LoadBalancer { name: "left".into(), ..balancer };
        left.listeners.clear();
        left.tags.extend(tags);
        let arn =
            "arn:aws:elasticloadbalancing:eu-central-1:123456789012:loadbalancer/net/left/0000000000000001";
        world.load_balancers.insert(arn.to_owned(), left);
        arn
    });

    let names = ["made", "going", "new", "wrong"];
    let written = || names.map(|name| (scene.version(name), scene.events(name)));
    let (before, world) = (written(), scene.fake.state());
    assert!(world.load_balancers.contains_key(left));
    scene.fake.clear_calls();
    let _running = scene.start_with("Managed", |settings| {
        settings.observe = true;
        settings.resync = Duration::from_millis(300);
        settings.close_look = Duration::from_millis(900);
        settings.sweep_after = Duration::ZERO;
    });
    scene.wait_for_looks(4);
    scene.add_node(3, &json!({}));
    scene.wait_for_looks(4);
    assert_eq!(scene.fake.mutating_calls(), 0, "{:?}", scene.fake.counts());
    assert_eq!(scene.fake.state(), world);
    assert_eq!(written(), before);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_is_only_looked_at() {
    let scene = Scene::new("dry").await;
    let _running = scene.start();
    let service = |dry: bool, port: u16| {
        let dry = if dry { json!("true") } else { Value::Null };
        json!({"metadata": {"annotations": {DRY_RUN: dry}}, "spec": {"ports": [{"name": "a", "port": port}]}})
    };
    let plans = || scene.told("web", "LoadBalancerPlan");
    scene.apply("web", &service(true, 80));
    eventually("a plan is told", || !plans().is_empty());
    let first = plans();
    assert!(
        matches!(first.as_slice(), [(kind, words)] if kind == "Normal" && words.starts_with("Service dry/web")),
        "{first:?}"
    );
    assert!(first[0].1.contains("+ load balancer") && first[0].1.contains("tcp 80"), "{first:?}");
    assert_eq!(scene.reasons("web"), set(["LoadBalancerPlan"]));
    assert_eq!(scene.finalizers("web"), Vec::<String>::new());
    assert_eq!(scene.address("web"), None);
    assert!(scene.is_untouched());
    assert_eq!(scene.fake.mutating_calls(), 0);

    // Now for real.
    scene.apply("web", &service(false, 80));
    scene.wait_for_address("web");
    scene.wait_for_event("web", "EnsuredLoadBalancer");
    assert_eq!(scene.finalizers("web"), [FINALIZER]);

    // A change that is only looked at, while another Service is served.
    let world = scene.fake.state();
    scene.fake.clear_calls();
    scene.apply("web", &service(true, 81));
    eventually("the plan of the change is told", || {
        plans().iter().any(|(_, words)| words.contains("tcp 81"))
    });
    assert_eq!(scene.fake.mutating_calls(), 0);
    assert_eq!(scene.fake.state(), world);
    scene.apply("other", &json!({}));
    scene.wait_for_address("other");
    let ports = |name: &str| {
        let listeners = scene.balancer(name).unwrap().listeners.into_values();
        listeners.map(|listener| listener.port).collect::<Vec<_>>()
    };
    assert_eq!(ports("web"), [80]);
    scene.apply("web", &service(false, 81));
    eventually("it is changed", || ports("web") == [81]);
    // One that is deleted goes, whether it was only looked at or not.
    scene.apply("web", &service(true, 82));
    scene.delete("web");
    scene.wait_until_gone("web");
    assert_eq!(scene.balancer("web"), None);
}
