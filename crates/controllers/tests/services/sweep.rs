//! What a Service left behind that is gone, and what is not ours to take away.

use std::time::Duration;

use portcullis_aws_fake::{LoadBalancer, World};
use portcullis_controllers::Settings;
use portcullis_kube_api::FINALIZER;
use portcullis_testkit::eventually;
use serde_json::json;

use crate::scene::Scene;

/// One that looks at everything all the time, and takes away what is left at once.
fn thorough(settings: &mut Settings) {
    settings.resync = Duration::from_millis(200);
    settings.sweep_after = Duration::from_millis(500);
}

/// Lets a Service go behind the back of all controllers.
fn vanish(scene: &Scene, name: &str) {
    scene.patch(name, &json!({"metadata": {"finalizers": null}}));
    scene.delete(name);
    scene.wait_until_gone(name);
}

/// Makes a load balancer and a group with these tags, as somebody else has them.
fn others(world: &mut World, name: &str, tags: &[(&str, &str)]) {
    let tags: portcullis_aws_fake::Tags =
        tags.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    let balancer = world.load_balancers.values().next().unwrap().clone();
    let balancer =
        LoadBalancer { name: name.to_owned(), tags: tags.clone(), listeners: [].into(), ..balancer };
    let arn = format!(
        "arn:aws:elasticloadbalancing:eu-central-1:123456789012:loadbalancer/net/{name}/0000000000000001"
    );
    let group = world.add_security_group(&format!("sg-0{name}"), name, "vpc-1");
    group.tags = tags;
    let groups = [format!("sg-0{name}")].into();
    world.load_balancers.insert(arn, LoadBalancer { groups, ..balancer });
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_service_left_is_taken_away_and_nothing_else() {
    let scene = Scene::new("sweep").await;
    let running = scene.start();
    for name in ["left", "stays"] {
        scene.apply(name, &json!({}));
        scene.wait_for_event(name, "EnsuredLoadBalancer");
    }
    running.stop();
    // Of the installer, of other controllers, and of another cluster of ours.
    scene.fake.act_as_someone_else(|world| {
        others(
            world,
            "theirs",
            &[("kubernetes.io/cluster/demo", "owned"), ("kubernetes.io/service-name", "sweep/gone")],
        );
        let other = [
            ("kubernetes.io/cluster/demo", "owned"),
            ("portcullis.dev/format", "1"),
            ("portcullis.dev/cluster", "demo2"),
            ("portcullis.dev/kind", "Service"),
            ("portcullis.dev/namespace", "sweep"),
            ("portcullis.dev/name", "left"),
        ];
        others(world, "elsewhere", &other);
        // Nobody can say whose this is.
        others(world, "partly", &[("portcullis.dev/cluster", "demo"), ("portcullis.dev/name", "nobody")]);
    });
    vanish(&scene, "left");
    assert!(scene.balancer("left").is_some(), "nobody was there to take it away");

    // Not before its time.
    let running = scene.start_with("Managed", |settings| {
        thorough(settings);
        settings.sweep_after = Duration::from_secs(3600);
    });
    scene.wait_for_looks(5);
    assert!(scene.balancer("left").is_some() && scene.group("left").is_some());
    running.stop();

    let _running = scene.start_with("Managed", thorough);
    eventually("what it left is gone", || {
        let world = scene.fake.state();
        scene.balancer("left").is_none() && scene.group("left").is_none() && world.target_groups.len() == 1
    });
    scene.wait_for_looks(3);
    let world = scene.fake.state();
    for name in ["theirs", "elsewhere", "partly"] {
        assert!(world.load_balancers.values().any(|found| found.name == name), "{name}");
        assert!(world.groups.values().any(|found| found.name == name), "{name}");
    }
    assert!(scene.balancer("stays").is_some() && scene.group("stays").is_some());
    assert_eq!(scene.nodes_let_in().len(), 3);
    assert!(scene.address("stays").is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_last_one_takes_along_what_all_shared() {
    let scene = Scene::new("lastone").await;
    let running = scene.start();
    scene.apply("left", &json!({}));
    scene.wait_for_event("left", "EnsuredLoadBalancer");
    running.stop();
    vanish(&scene, "left");
    let _running = scene.start_with("Managed", thorough);
    eventually("nothing is left", || scene.is_untouched());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_that_comes_back_in_time_keeps_its_load_balancer() {
    let scene = Scene::new("back").await;
    let running = scene.start();
    scene.apply("web", &json!({}));
    scene.wait_for_event("web", "EnsuredLoadBalancer");
    let before = scene.balancer("web").unwrap();
    let uid = scene.get("web").unwrap().metadata.uid;
    running.stop();
    vanish(&scene, "web");
    // Restored, it has another UID and other node ports, and is the same.
    scene.apply("web", &json!({}));
    assert_ne!(scene.get("web").unwrap().metadata.uid, uid);
    let _running = scene.start_with("Managed", thorough);
    scene.wait_for_event("web", "EnsuredLoadBalancer");
    eventually("it has the same address", || scene.address("web").as_ref() == Some(&before.dns_name));
    scene.wait_for_looks(5);
    assert_eq!(scene.balancer("web").unwrap().groups, before.groups);
    assert_eq!(scene.fake.state().load_balancers.len(), 1);
    assert_eq!(scene.finalizers("web"), [FINALIZER]);
}

/// Whatever happened while nobody was there.
#[tokio::test(flavor = "multi_thread")]
async fn what_happened_meanwhile_is_caught_up_with() {
    let scene = Scene::alone("meanwhile").await;
    let running = scene.start();
    for name in ["deleted", "internal", "unheld", "replaced", "edited"] {
        scene.apply(name, &json!({}));
        scene.wait_for_event(name, "EnsuredLoadBalancer");
    }
    running.stop();
    let internal = json!({"spec": {"type": "ClusterIP", "loadBalancerClass": null}});
    scene.delete("deleted");
    scene.apply("internal", &internal);
    scene.patch("unheld", &json!({"metadata": {"finalizers": null}}));
    // It is gone, and another one of its name wants none.
    vanish(&scene, "replaced");
    scene.apply("replaced", &internal);
    scene.apply("edited", &json!({"spec": {"ports": [{"name": "a", "port": 81}]}}));

    let _running = scene.start_with("Managed", thorough);
    scene.wait_until_gone("deleted");
    eventually("nobody holds what wants nothing", || scene.finalizers("internal").is_empty());
    assert_eq!(scene.address("internal"), None);
    eventually("it is held again", || scene.finalizers("unheld") == [FINALIZER]);
    eventually("what is edited is changed", || {
        scene.balancer("edited").unwrap().listeners.values().all(|listener| listener.port == 81)
    });
    eventually("what the replaced one had is gone", || scene.balancer("replaced").is_none());
    assert_eq!(scene.finalizers("replaced"), Vec::<String>::new());
    for name in ["deleted", "internal"] {
        assert_eq!(scene.balancer(name), None, "{name}");
    }
    assert!(scene.balancer("unheld").is_some());
}

/// Somebody loses patience, and takes the finalizer away while AWS does not let us delete.
#[tokio::test(flavor = "multi_thread")]
async fn a_service_that_is_forced_to_go_leaves_nothing() {
    let scene = Scene::new("forced").await;
    let _running = scene.start_with("Managed", thorough);
    for name in ["web", "stays"] {
        scene.apply(name, &json!({}));
        scene.wait_for_event(name, "EnsuredLoadBalancer");
    }
    scene.fake.deny("DeleteLoadBalancer");
    scene.delete("web");
    scene.wait_for_event("web", "DeleteLoadBalancerFailed");
    scene.patch("web", &json!({"metadata": {"finalizers": null}}));
    scene.wait_until_gone("web");
    assert!(scene.balancer("web").is_some());
    scene.fake.allow("DeleteLoadBalancer");
    eventually("what it left is gone", || scene.balancer("web").is_none() && scene.group("web").is_none());
    assert!(scene.balancer("stays").is_some());
}
