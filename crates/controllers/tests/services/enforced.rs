//! What is said on a Service of its source ranges: whether they keep anybody out.

use k8s_openapi::api::core::v1::Service;
use kube::api::{Api, Patch, PatchParams};
use portcullis_aws_fake::Fault;
use portcullis_testkit::eventually;
use serde_json::{Value, json};

use crate::scene::{PREFIX, Scene, wait};

const TYPE: &str = "portcullis.dev/SourceRangesEnforced";
const BY_GROUPS: &str =
    "The security groups of its load balancer on AWS let in 192.0.2.0/24, and nobody else.";

fn limited() -> Value {
    json!({"spec": {"loadBalancerSourceRanges": ["192.0.2.0/24"]}})
}

/// The same with groups of others.
fn given() -> Value {
    json!({
        "metadata": {"annotations": {format!("{PREFIX}security-groups"): "sg-user"}},
        "spec": {"loadBalancerSourceRanges": ["192.0.2.0/24"]},
    })
}

/// What is said: the status and the words.
fn said(scene: &Scene, name: &str) -> Option<(String, String)> {
    let conditions = scene.get(name)?.status?.conditions?;
    let found = conditions.into_iter().find(|condition| condition.type_ == TYPE)?;
    Some((found.status, found.message))
}

fn is_enforced(scene: &Scene, name: &str) -> bool {
    said(scene, name) == Some(("True".to_owned(), BY_GROUPS.to_owned()))
}

fn is_not(scene: &Scene, name: &str, why: &str) -> bool {
    said(scene, name).is_some_and(|(status, words)| status == "False" && words.contains(why))
}

#[tokio::test(flavor = "multi_thread")]
async fn whether_ranges_keep_anybody_out_is_said_and_taken_back() {
    let scene = Scene::new("enforced").await;
    let _running = scene.start();
    scene.apply("web", &limited());
    eventually("they do, by its own groups", || is_enforced(&scene, "web"));
    scene.apply("web", &given());
    eventually("groups of others do what they like", || is_not(&scene, "web", "decide alone"));
    scene.apply("web", &limited());
    eventually("they do again", || is_enforced(&scene, "web"));
    scene.apply("web", &json!({}));
    eventually("of no ranges nothing is said", || said(&scene, "web").is_none());
    scene.apply("web", &limited());
    eventually("they do once more", || is_enforced(&scene, "web"));
    scene.patch(
        "web",
        &json!({"spec": {"type": "ClusterIP", "loadBalancerClass": null, "loadBalancerSourceRanges": null}}),
    );
    eventually("nor of a Service that has no load balancer", || said(&scene, "web").is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn that_ranges_keep_nobody_out_is_said_before_all_is_done() {
    let scene = Scene::new("notdone").await;
    let _running = scene.start();
    scene.apply("web", &limited());
    eventually("they do, by its own groups", || is_enforced(&scene, "web"));
    scene.fake.faults(|call| match call.action.as_str() {
        "DeleteSecurityGroup" => Fault::Error("DependencyViolation".to_owned(), 400),
        _ => Fault::None,
    });
    scene.apply("web", &given());
    eventually("groups of others do what they like", || is_not(&scene, "web", "decide alone"));
    assert!(scene.group("web").is_some(), "it has not come to its end");
    // That they do is not said before it is so.
    scene.fake.faults(|call| match call.action.as_str() {
        "SetSecurityGroups" => Fault::Error("Throttling".to_owned(), 400),
        _ => Fault::None,
    });
    scene.fake.clear_calls();
    scene.apply("web", &limited());
    let tried = || scene.fake.counts().get("SetSecurityGroups").is_some_and(|count| *count > 1);
    eventually("it is tried", tried);
    assert!(is_not(&scene, "web", "decide alone"), "{:?}", said(&scene, "web"));
    scene.fake.clear_faults();
    eventually("they do again", || is_enforced(&scene, "web"));
}

#[tokio::test(flavor = "multi_thread")]
async fn who_only_watches_says_nothing_and_nothing_stays_of_one_that_nobody_holds() {
    let scene = Scene::new("unheld").await;
    let running = scene.start_with("Managed", |settings| settings.observe = true);
    scene.apply("web", &limited());
    let mut dry = limited();
    dry["metadata"] = json!({"annotations": {"portcullis.dev/dry-run": "true"}});
    scene.apply("dry", &dry);
    // One that was given away, with what was said before.
    let mut other = limited();
    other["spec"]["loadBalancerClass"] = json!("example.com/other");
    scene.apply("other", &other);
    let condition = json!({
        "type": TYPE,
        "status": "True",
        "reason": "Enforced",
        "message": BY_GROUPS,
        "lastTransitionTime": "2024-01-01T00:00:00Z",
    });
    let api: Api<Service> = Api::namespaced(scene.client.clone(), scene.name);
    let patch = Patch::Merge(json!({"status": {"conditions": [condition]}}));
    wait(api.patch_status("other", &PatchParams::default(), &patch)).unwrap();
    eventually("AWS is looked at", || scene.fake.counts().contains_key("DescribeLoadBalancers"));
    assert!(is_enforced(&scene, "other"), "who only watches writes nowhere");
    assert_eq!(said(&scene, "web"), None);
    running.stop();

    let _running = scene.start();
    eventually("they do, by its own groups", || is_enforced(&scene, "web"));
    eventually("nothing is said of it any more", || said(&scene, "other").is_none());
    scene.wait_for_event("dry", "LoadBalancerPlan");
    assert_eq!(said(&scene, "dry"), None);
}
