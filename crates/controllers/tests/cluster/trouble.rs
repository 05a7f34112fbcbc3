//! Pauses, deletion, moves, and what is wrong.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::StreamExt;
use kube::api::{Api, DynamicObject};
use kube::core::{ApiResource, GroupVersionKind};
use kube::runtime::watcher;
use portcullis_testkit::talk::ask;
use portcullis_testkit::{Refusing, eventually_within};
use serde_json::{Value, json};

use crate::faults::held_by;
use crate::lab::{FRONT, Lab, Place, agent, controller, listeners, machine, on_machines};
use crate::scene::{Scene, client, client_of};

const BALANCERS: &str = "loadbalancers.loadbalancer.portcullis.dev";

fn two(name: &'static str) -> Scene {
    let scene = Scene::new(name);
    scene.cluster("c", json!({}), json!({}));
    scene.control_plane("c", "lb", "one", "10.0.0.1");
    scene.control_plane("c", "lb", "two", "10.0.0.2");
    scene.balancer("c", "lb", json!({"drainTimeoutSeconds": 600}));
    scene
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_done_while_it_is_paused() {
    let scene = two("trouble-paused");
    let _running = scene.look_after().await;
    scene.until("both are members", || scene.assigned("lb").len() == 2);
    scene.report("lb", "198.51.100.1", &[("one", "active"), ("two", "active")]);
    scene.until("both are active", || scene.status("lb", "two").as_deref() == Some("active"));
    scene.patch("cluster", "c", &json!({"spec": {"paused": true}}));
    scene.until("that is told", || scene.condition("lb", "Paused").0 == "True Paused");
    scene.kubectl(&["delete", "machine", "one", "--wait=false"]);
    scene.kubectl(&["annotate", "machine", "two", "loadbalancer.cluster.x-k8s.io/disabled="]);
    scene.control_plane("c", "lb", "three", "10.0.0.3");
    // Long enough for what would have happened at once otherwise.
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(scene.assigned("lb"), ["one Serve", "two Serve"]);
    assert!(scene.is_held("one", "lb"));
    scene.patch("cluster", "c", &json!({"spec": {"paused": false}}));
    scene.until("all of it is done then", || {
        scene.assigned("lb").iter().any(|member| member == "two Rest")
            && scene.assigned("lb").iter().any(|member| member == "three Serve")
    });
    scene.until("it is not paused", || scene.condition("lb", "Paused").0 == "False NotPaused");
}

/// For a Cluster that is paused nothing changes on machines with `HAProxy`, also if all of ours start anew meanwhile. All of it is done
/// after that.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn nothing_is_done_on_machines_for_a_paused_cluster() {
    let scene = Scene::new("trouble-paused-haproxy");
    let lab = Lab::new(&["still-a", "still-b"]);
    let members = ["still-a", "still-b"];
    scene.cluster("c", json!({}), json!({}));
    for name in members {
        machine(&scene, &lab, name);
    }
    let wanted = json!({
        "listeners": listeners(), "drainTimeoutSeconds": 600, "allowedSourceRanges": ["192.0.2.0/24"],
    });
    on_machines(&scene, "lb", wanted, json!({}));
    let place = Place::new();
    let mut all = (scene.look_after().await, controller(&scene).await, agent(&scene, &lab, &place).await);
    for name in members {
        scene.until("it serves", || scene.status("lb", name).as_deref() == Some("active"));
    }
    scene.patch("cluster", "c", &json!({"spec": {"paused": true}}));
    let say_so = || scene.says_paused("loadbalancer", "lb") && scene.says_paused("haproxyloadbalancer", "lb");
    scene.until("both say so", say_so);
    let asked = scene.get("haproxyloadbalancer", "lb")["spec"].clone();
    scene.kubectl(&["delete", "machine", "still-a", "--wait=false"]);
    for ranges in ["198.51.100.0/24", "203.0.113.0/24"] {
        scene.patch(BALANCERS, "lb", &json!({"spec": {"allowedSourceRanges": [ranges]}}));
        scene.until("it has seen that", say_so);
        drop(all);
        all = (scene.look_after().await, controller(&scene).await, agent(&scene, &lab, &place).await);
    }
    scene.patch(BALANCERS, "lb", &json!({"spec": {"drainTimeoutSeconds": 300}}));
    scene.until("who started meanwhile has seen it", say_so);
    assert_eq!(scene.get("haproxyloadbalancer", "lb")["spec"], asked);
    assert!(scene.is_held("still-a", "lb"));
    // Both get connections, from whom the ranges would keep out.
    scene.until("who is to go gets connections like the other", || {
        let answers: Vec<String> = (0..8).map(|_| ask(&lab.client, "192.0.2.1", FRONT).unwrap()).collect();
        members.iter().all(|name| answers.iter().any(|answer| answer == name))
    });
    let mut held = held_by(&lab.client, "192.0.2.1", "still-a");

    scene.patch("cluster", "c", &json!({"spec": {"paused": false}}));
    scene.until("it drains", || scene.status("lb", "still-a").as_deref() == Some("draining"));
    scene.until("who is not let in any more is kept out", || ask(&lab.client, "192.0.2.1", FRONT).is_err());
    scene.until("nothing is paused", || {
        scene.condition("lb", "Paused").0 == "False NotPaused"
            && !scene.says_paused("haproxyloadbalancer", "lb")
    });
    assert_eq!(held.ask().unwrap(), "still-a", "what it has goes on");
    drop(held);
    scene.until("its infrastructure goes", || {
        scene.get("labmachine", "still-a")["metadata"].get("deletionTimestamp").is_some()
    });
    scene.patch("labmachine", "still-a", &json!({"metadata": {"finalizers": null}}));
    drop(all);
}

#[tokio::test(flavor = "multi_thread")]
async fn machines_wait_for_a_provider_that_is_paused() {
    let scene = two("trouble-provider-paused");
    let _running = scene.look_after().await;
    scene.until("both are members", || scene.assigned("lb").len() == 2);
    scene.report("lb", "198.51.100.1", &[("one", "active"), ("two", "active")]);
    scene.until("both are active", || scene.status("lb", "two").as_deref() == Some("active"));
    scene.kubectl(&["annotate", "labbalancer", "lb", "cluster.x-k8s.io/paused="]);
    scene.until("that is told", || scene.condition("lb", "Degraded").0 == "True ProviderPaused");
    scene.kubectl(&["delete", "machine", "one", "--wait=false"]);
    scene.until("who waits is told", || {
        let (_, message) = scene.condition("lb", "Degraded");
        message.contains("LabBalancer lb") && message.contains("wait for that: one.")
    });
    scene.control_plane("c", "lb", "three", "10.0.0.3");
    scene.until("it would be one", || scene.status("lb", "three").as_deref() == Some("adding"));
    assert_eq!(scene.assigned("lb"), ["one Serve", "two Serve"], "it is not asked for anything");
    assert_eq!(scene.status("lb", "one").as_deref(), Some("active"), "clients are still sent there");
    assert!(scene.is_held("one", "lb"));
    scene.kubectl(&["annotate", "labbalancer", "lb", "cluster.x-k8s.io/paused-"]);
    scene.until("all of it is asked for then", || {
        scene.assigned("lb") == ["one Leave", "three Serve", "two Serve"]
    });
    scene.report("lb", "198.51.100.1", &[("one", "removed"), ("two", "active"), ("three", "active")]);
    scene.until("it is gone", || scene.get("machine", "one") == Value::Null);
    scene.until("all is well", || scene.condition("lb", "Degraded").0 == "False AsExpected");
}

#[tokio::test(flavor = "multi_thread")]
async fn with_the_cluster_everything_goes() {
    let scene = two("trouble-cluster");
    let _running = scene.look_after().await;
    scene.until("both are members", || scene.assigned("lb").len() == 2);
    scene.report("lb", "198.51.100.1", &[("one", "active"), ("two", "active")]);
    scene.until("both are active", || scene.status("lb", "two").as_deref() == Some("active"));
    scene.kubectl(&["delete", "cluster", "c", "--wait=false"]);
    for machine in ["one", "two"] {
        scene.until("nobody waits for us", || scene.get("machine", machine) == Value::Null);
    }
    scene.until("the load balancer goes", || scene.get("loadbalancer", "lb") == Value::Null);
    scene.until("what makes it goes", || scene.get("labbalancer", "lb") == Value::Null);
}

/// Who paused it may have forgotten: hooks have no end of their own, and the Cluster would never be gone.
#[tokio::test(flavor = "multi_thread")]
async fn one_that_is_paused_is_not_in_the_way_of_a_cluster_that_goes() {
    let scene = two("trouble-paused-cluster");
    let _running = scene.look_after().await;
    scene.until("both are members", || scene.assigned("lb").len() == 2);
    scene.kubectl(&["annotate", BALANCERS, "lb", "cluster.x-k8s.io/paused="]);
    scene.until("that is told", || scene.condition("lb", "Paused").0 == "True Paused");
    scene.kubectl(&["delete", "cluster", "c", "--wait=false"]);
    for machine in ["one", "two"] {
        scene.until("nobody waits for us", || scene.get("machine", machine) == Value::Null);
    }
    scene.until("the Cluster is gone", || scene.get("cluster", "c") == Value::Null);
    assert_eq!(scene.assigned("lb"), ["one Serve", "two Serve"], "nothing else is done while it is paused");
    scene.kubectl(&["annotate", BALANCERS, "lb", "cluster.x-k8s.io/paused-"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_load_balancer_that_goes_leaves_nothing_behind() {
    let scene = two("trouble-deleted");
    let _running = scene.look_after().await;
    scene.until("both are members", || scene.assigned("lb").len() == 2);
    // What makes it has something to take away first.
    scene.patch("labbalancer", "lb", &json!({"metadata": {"finalizers": ["test/hold"]}}));
    scene.kubectl(&["delete", BALANCERS, "lb", "--wait=false"]);
    scene.until("its provider is told", || {
        scene.get("labbalancer", "lb")["metadata"].get("deletionTimestamp").is_some()
    });
    scene.until("it says so", || scene.condition("lb", "Deleting").0 == "True Deleting");
    assert_eq!(scene.assigned("lb"), ["one Serve", "two Serve"], "it knows what it has to take away");
    scene.patch("labbalancer", "lb", &json!({"metadata": {"finalizers": null}}));
    scene.until("it is gone", || scene.get("loadbalancer", "lb") == Value::Null);
    for machine in ["one", "two"] {
        assert!(!scene.is_held(machine, "lb"));
        assert_eq!(scene.annotation(machine, "loadbalancer.cluster.x-k8s.io/member"), None);
        assert_eq!(scene.annotation(machine, "loadbalancer.cluster.x-k8s.io/status"), None);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_moved_away_takes_nothing_along() {
    let scene = two("trouble-moved");
    let _running = scene.look_after().await;
    scene.until("both are members", || scene.assigned("lb").len() == 2);
    // As clusterctl does it: the mark, then the finalizers, then the deletion, of one object after the other.
    for (kind, name) in [(BALANCERS, "lb"), ("labbalancer", "lb")] {
        scene.kubectl(&["annotate", kind, name, "clusterctl.cluster.x-k8s.io/delete-for-move="]);
    }
    scene.kubectl(&["delete", BALANCERS, "lb", "--wait=false"]);
    // Another one, which was not moved, comes and goes after that, with what makes it: nobody is slow.
    scene.balancer("c", "later", json!({"selector": {"matchLabels": {"role": "later"}}}));
    scene.until("it is looked after", || {
        scene.get("labbalancer", "later")["spec"].get("assignment").is_some()
    });
    scene.kubectl(&["delete", BALANCERS, "later"]);
    assert_eq!(scene.get("labbalancer", "later"), Value::Null);
    assert!(scene.get("loadbalancer", "lb")["metadata"].get("deletionTimestamp").is_some());
    assert!(scene.get("labbalancer", "lb")["metadata"].get("deletionTimestamp").is_none());
    assert!(scene.is_held("one", "lb"), "it is held on the other side, too");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_wrong_is_told_and_changes_nothing() {
    let scene = two("trouble-wrong");
    let _running = scene.look_after().await;
    scene.until("both are members", || scene.assigned("lb").len() == 2);
    let before = scene.get("labbalancer", "lb")["spec"].clone();
    scene.patch(BALANCERS, "lb", &json!({"spec": {"allowedSourceRanges": ["10.0.0.0/8", "nowhere"]}}));
    scene.until("that is told", || scene.condition("lb", "Degraded").0 == "True InvalidSpec");
    let (_, message) = scene.condition("lb", "Degraded");
    assert!(message.contains("spec.allowedSourceRanges[1]") && message.contains("nowhere"), "{message}");
    assert_eq!(scene.get("labbalancer", "lb")["spec"], before);
    scene.patch(BALANCERS, "lb", &json!({"spec": {"allowedSourceRanges": ["10.0.0.0/8"]}}));
    scene.until("it is right again", || scene.condition("lb", "Degraded").0 == "False AsExpected");
    assert_eq!(
        scene.get("labbalancer", "lb")["spec"]["assignment"]["allowedSourceRanges"],
        json!(["10.0.0.0/8"])
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_provider_that_nobody_knows_is_named() {
    let scene = two("trouble-unknown");
    let reference = json!({"apiGroup": "example.com", "kind": "MoonBalancer", "name": "lb"});
    scene.patch(BALANCERS, "lb", &json!({"spec": {"infrastructureRef": reference}}));
    let _running = scene.look_after().await;
    scene.until("that is told", || scene.condition("lb", "InfrastructureReady").0 == "False UnknownKind");
    let (_, message) = scene.condition("lb", "InfrastructureReady");
    assert!(message.contains("MoonBalancer") && message.contains("example.com"), "{message}");
    let missing =
        json!({"apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "LabBalancer", "name": "none"});
    scene.patch(BALANCERS, "lb", &json!({"spec": {"infrastructureRef": missing}}));
    scene.until("one that is not there, too", || {
        scene.condition("lb", "InfrastructureReady").0 == "False NotFound"
    });
    scene.maker("none");
    scene.until("it is taken up when it comes", || scene.assigned("none").len() == 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_has_one_load_balancer() {
    let scene = two("trouble-two");
    let _running = scene.look_after().await;
    scene.until("both are members", || scene.assigned("lb").len() == 2);
    scene.report("lb", "198.51.100.1", &[("one", "active"), ("two", "active")]);
    scene.until("both are active", || scene.condition("lb", "MembersUpToDate").0 == "True UpToDate");
    let selector = json!({"matchLabels": {"loadbalancer.cluster.x-k8s.io/name": "lb"}});
    scene.balancer("c", "second", json!({"selector": selector}));
    scene.until("the second one is told", || {
        scene.condition("second", "MembersUpToDate").0 == "False MemberOfAnother"
    });
    let (_, message) = scene.condition("second", "MembersUpToDate");
    assert!(message.contains("one is a member of lb"), "{message}");
    assert_eq!(scene.assigned("second"), [""; 0]);
    assert_eq!(scene.assigned("lb"), ["one Serve", "two Serve"], "who has them keeps them");
    for machine in ["one", "two"] {
        assert_eq!(scene.status("lb", machine).as_deref(), Some("active"));
        assert!(scene.is_held(machine, "lb"));
    }
    scene.kubectl(&["delete", BALANCERS, "lb"]);
    scene.until("it has them when the first is gone", || scene.assigned("second").len() == 2);
}

/// Somebody writes on a Machine that it is another's: it leaves the one that it was of, comes to the other, and says so from then on.
#[tokio::test(flavor = "multi_thread")]
async fn a_machine_goes_over_to_another_load_balancer() {
    let scene = two("trouble-over");
    let _running = scene.look_after().await;
    scene.until("both are members", || scene.assigned("lb").len() == 2);
    let both = [("one", "active"), ("two", "active")];
    scene.report("lb", "198.51.100.1", &both);
    scene.until("both are active", || scene.condition("lb", "MembersUpToDate").0 == "True UpToDate");
    let selector = json!({"matchLabels": {"loadbalancer.cluster.x-k8s.io/name": "lb"}});
    scene.balancer("c", "second", json!({"selector": selector, "drainTimeoutSeconds": 600}));
    scene.until("the second one is told", || {
        scene.condition("second", "MembersUpToDate").0 == "False MemberOfAnother"
    });
    let member = "loadbalancer.cluster.x-k8s.io/member";
    scene.kubectl(&["annotate", "machine", "one", "--overwrite", &format!("{member}=second")]);
    scene.until("it comes to the other", || scene.assigned("second") == ["one Serve"]);
    scene.until("and leaves the one", || scene.assigned("lb") == ["one Leave", "two Serve"]);
    scene.until("both hold it", || scene.is_held("one", "lb") && scene.is_held("one", "second"));
    scene.report("second", "198.51.100.2", &[("one", "active")]);
    let status = || scene.annotation("one", "loadbalancer.cluster.x-k8s.io/status");
    scene.until("it is the other's", || status().as_deref() == Some("active"));
    let (state, message) = scene.condition("lb", "MembersUpToDate");
    assert!(state == "False MemberOfAnother" && message.contains("one is a member of second"), "{message}");
    scene.report("lb", "198.51.100.1", &[("one", "removed"), ("two", "active")]);
    scene.until("it has left", || scene.assigned("lb") == ["two Serve"] && !scene.is_held("one", "lb"));
    assert!(scene.is_held("one", "second"));
    assert_eq!(scene.annotation("one", member).as_deref(), Some("second"));
    assert_eq!(status().as_deref(), Some("active"));
}

#[tokio::test(flavor = "multi_thread")]
async fn at_rest_nothing_is_written() {
    let scene = two("trouble-rest");
    let running = scene.look_after().await;
    scene.until("both are members", || scene.assigned("lb").len() == 2);
    scene.report("lb", "198.51.100.1", &[("one", "active"), ("two", "active")]);
    scene.until("both are active", || scene.condition("lb", "MembersUpToDate").0 == "True UpToDate");
    let versions = || {
        let version = |kind: &str, name: &str| scene.get(kind, name)["metadata"]["resourceVersion"].clone();
        [
            version("loadbalancer", "lb"),
            version("labbalancer", "lb"),
            version("machine", "one"),
            version("cluster", "c"),
        ]
    };
    // Cluster API itself comes to rest, too.
    let mut before = versions();
    scene.until("everybody is at rest", || {
        std::thread::sleep(Duration::from_secs(5));
        let now = versions();
        let is_same = now == before;
        before = now;
        is_same
    });
    drop(running);
    let _again = scene.look_after().await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(versions()[..3], before[..3], "a start finds all of it as it should be");
}

#[tokio::test(flavor = "multi_thread")]
async fn machines_come_and_go_while_something_is_wrong() {
    let scene = two("trouble-goes-on");
    let _running = scene.look_after().await;
    scene.until("both are members", || scene.assigned("lb").len() == 2);
    scene.patch(BALANCERS, "lb", &json!({"spec": {"allowedSourceRanges": ["nowhere"]}}));
    scene.until("that is told", || scene.condition("lb", "Degraded").0 == "True InvalidSpec");
    scene.control_plane("c", "lb", "three", "10.0.0.3");
    scene.until("one more joins", || scene.assigned("lb").len() == 3);
    let active = [("one", "active"), ("two", "active"), ("three", "active")];
    scene.report("lb", "198.51.100.1", &active);
    scene.until("all are active", || scene.status("lb", "three").as_deref() == Some("active"));
    scene.kubectl(&["delete", "machine", "one", "--wait=false"]);
    scene.until("it leaves", || scene.assigned("lb")[0] == "one Leave");
    scene.report("lb", "198.51.100.1", &[("one", "removed"), ("two", "active"), ("three", "active")]);
    scene.until("it is gone", || scene.get("machine", "one") == Value::Null);
    assert!(scene.get("labbalancer", "lb")["spec"]["assignment"].get("allowedSourceRanges").is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_makes_one_does_not_make_another() {
    let scene = two("trouble-in-use");
    let _running = scene.look_after().await;
    scene.until("both are members", || scene.assigned("lb").len() == 2);
    scene.report("lb", "198.51.100.1", &[("one", "active"), ("two", "active")]);
    scene.apply(json!({
        "apiVersion": "loadbalancer.portcullis.dev/v1alpha1", "kind": "LoadBalancer", "metadata": {"name": "second"},
        "spec": {
            "clusterName": "c", "selector": {"matchLabels": {"role": "other"}},
            "infrastructureRef": {"apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "LabBalancer", "name": "lb"},
        },
    }));
    scene.until("that is told", || scene.condition("second", "InfrastructureReady").0 == "False InUse");
    let (_, message) = scene.condition("second", "InfrastructureReady");
    assert!(message.contains("LabBalancer lb makes lb already"), "{message}");
    assert!(
        scene.get("loadbalancer", "second")["spec"].get("endpoint").is_none(),
        "its address is another's"
    );
    assert_eq!(scene.get("labbalancer", "lb")["spec"]["assignment"]["loadBalancer"], "lb");
    // That one goes by force, and nobody hears anything of what made it.
    scene.kubectl(&["annotate", BALANCERS, "lb", "cluster.x-k8s.io/paused="]);
    scene.until("nothing is done for it", || scene.condition("lb", "Paused").0 == "True Paused");
    scene.patch("labbalancer", "lb", &json!({"metadata": {"ownerReferences": null}}));
    scene.kubectl(&["delete", BALANCERS, "lb", "--wait=false"]);
    scene.patch(BALANCERS, "lb", &json!({"metadata": {"finalizers": null}}));
    scene.until("it is nobody's then", || {
        scene.get("labbalancer", "lb")["spec"]["assignment"]["loadBalancer"] == "second"
    });
    scene.until("all is well", || scene.condition("second", "InfrastructureReady").0 == "True Made");
}

/// A kind that nobody here may see, and what names one of it.
fn hidden(scene: &Scene, group: &str) -> Value {
    let kind = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("secretbalancers.{group}")},
        "spec": {
            "group": group, "scope": "Namespaced",
            "names": {"kind": "SecretBalancer", "plural": "secretbalancers"},
            "versions": [{"name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}],
        },
    });
    scene.kubernetes.apply_types(&kind.to_string()).unwrap();
    json!({"apiGroup": group, "kind": "SecretBalancer", "name": "x"})
}

/// Lets a user do something with all objects of some groups, by a role of this name.
pub(crate) fn allow(scene: &Scene, user: &str, role: &str, groups: &[&str], verbs: &[&str]) {
    let rbac = "rbac.authorization.k8s.io";
    let of_role = json!({
        "apiVersion": format!("{rbac}/v1"), "kind": "ClusterRole", "metadata": {"name": role},
        "rules": [{"apiGroups": groups, "resources": ["*"], "verbs": verbs}],
    });
    let binding = json!({
        "apiVersion": format!("{rbac}/v1"), "kind": "ClusterRoleBinding", "metadata": {"name": role},
        "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": role},
        "subjects": [{"apiGroup": rbac, "kind": "User", "name": user}],
    });
    for object in [of_role, binding] {
        scene.kubernetes.apply(&object.to_string()).unwrap();
    }
}

/// Takes from the scene's user what a role let it do, and waits until the API knows that it may not change these any more.
fn forbid(scene: &Scene, role: &str, kind: &str) {
    scene.kubectl(&["delete", "clusterrolebinding", role]);
    let asked = ["auth", "can-i", "patch", kind, "--as", scene.name, "--namespace", scene.name];
    scene.until("it may not be changed", || scene.kubernetes.kubectl(&asked).is_err());
}

/// Somebody with the scene's name, who may do anything with all that a load balancer needs, and only look at these groups.
async fn half_blind(scene: &Scene, only_seen: &[&str]) -> kube::Client {
    let groups = [
        "cluster.x-k8s.io",
        "controlplane.cluster.x-k8s.io",
        "infrastructure.cluster.x-k8s.io",
        "loadbalancer.portcullis.dev",
        "events.k8s.io",
        "",
    ];
    let groups: Vec<&str> = groups.into_iter().filter(|group| !only_seen.contains(group)).collect();
    allow(scene, scene.name, scene.name, &groups, &["*"]);
    if !only_seen.is_empty() {
        allow(scene, scene.name, &format!("{}-sees", scene.name), only_seen, &["get", "list", "watch"]);
    }
    client_of(&scene.kubernetes.user(scene.name, None).unwrap()).await
}

/// A kind that nobody here may see is told where it is named, and stands in the way of nobody else.
#[tokio::test(flavor = "multi_thread")]
async fn a_kind_that_may_not_be_seen() {
    let scene = two("trouble-unseen");
    let reference = hidden(&scene, "hidden.example.com");
    scene.balancer("c", "blind", json!({"infrastructureRef": reference}));
    let _running = scene.look_after_as(half_blind(&scene, &[]).await);
    scene.until("that is told", || {
        scene.condition("blind", "InfrastructureReady").1.contains("SecretBalancer")
    });
    scene.until("the other one is looked after", || scene.assigned("lb").len() == 2);
    scene.report("lb", "198.51.100.1", &[("one", "active"), ("two", "active")]);
    scene.kubectl(&["delete", "machine", "one", "--wait=false"]);
    scene.until("who goes leaves", || scene.assigned("lb")[0] == "one Leave");
}

/// Who named a kind that nobody here may see still has what served before, and Machines leave that.
#[tokio::test(flavor = "multi_thread")]
async fn machines_go_while_a_kind_that_may_not_be_seen_is_named() {
    let scene = two("trouble-unseen-next");
    let reference = hidden(&scene, "next.example.com");
    let _running = scene.look_after_as(half_blind(&scene, &[]).await);
    scene.until("both are members", || scene.assigned("lb").len() == 2);
    scene.report("lb", "198.51.100.1", &[("one", "active"), ("two", "active")]);
    scene.until("both are active", || scene.status("lb", "two").as_deref() == Some("active"));
    scene.patch(BALANCERS, "lb", &json!({"spec": {"infrastructureRef": reference}}));
    scene.until("that is told", || scene.condition("lb", "InfrastructureReady").1.contains("SecretBalancer"));
    scene.kubectl(&["delete", "machine", "one", "--wait=false"]);
    scene.until("who goes leaves", || scene.assigned("lb")[0] == "one Leave");
    scene.report("lb", "198.51.100.1", &[("one", "removed"), ("two", "active")]);
    scene.until("and may go", || scene.get("machine", "one") == Value::Null);
    scene.kubectl(&["delete", BALANCERS, "lb"]);
    assert!(scene.get("labbalancer", "lb")["spec"].get("assignment").is_none(), "it is given up");
}

/// A control plane that is not to be changed is told, and all else goes on.
#[tokio::test(flavor = "multi_thread")]
async fn a_control_plane_that_may_not_be_changed() {
    let scene = Scene::new("trouble-plane");
    let group = "controlplane.cluster.x-k8s.io";
    scene.apply(json!({
        "apiVersion": format!("{group}/v1"), "kind": "LabControlPlane", "metadata": {"name": "plane"},
        "spec": {"machineTemplate": {"metadata": {}}},
    }));
    let metadata = json!({"annotations": {"portcullis.dev/control-plane-load-balancer": "lb"}});
    let plane = json!({"apiGroup": group, "kind": "LabControlPlane", "name": "plane"});
    scene.cluster("c", metadata, json!({"controlPlaneRef": plane}));
    scene.control_plane("c", "lb", "one", "10.0.0.1");
    // An empty selector is none.
    scene.balancer("c", "lb", json!({"selector": {}}));
    let _running = scene.look_after_as(half_blind(&scene, &[group]).await);
    scene.until("its provider is asked all the same", || scene.assigned("lb") == ["one Serve"]);
    scene.until("that is told", || scene.condition("lb", "Degraded").0 == "True ChangeRefused");
    let (_, message) = scene.condition("lb", "Degraded");
    assert!(message.contains("LabControlPlane plane cannot be changed"), "{message}");
    let may_change = "trouble-plane-changes";
    allow(&scene, scene.name, may_change, &[group], &["*"]);
    let template = || scene.get("labcontrolplane", "plane")["spec"]["machineTemplate"]["metadata"].clone();
    scene.until("it is done when it may be", || {
        template()["annotations"]["pre-drain.delete.hook.machine.cluster.x-k8s.io/lb"] == "portcullis"
    });
    assert_eq!(template()["labels"]["loadbalancer.cluster.x-k8s.io/name"], "lb", "they are its members");
    scene.until("all is well", || scene.condition("lb", "Degraded").0 == "False AsExpected");

    // What a control plane would put on again is not taken off Machines that stay: both would write for ever.
    scene.until("it is held", || scene.is_held("one", "lb"));
    scene.control_plane("c", "lb", "two", "10.0.0.2");
    scene.until("so is another", || scene.is_held("two", "lb"));
    forbid(&scene, may_change, "labcontrolplanes.controlplane.cluster.x-k8s.io");
    scene.kubectl(&["delete", BALANCERS, "lb", "--wait=false"]);
    scene.until("that is told", || {
        let (state, message) = scene.condition("lb", "Deleting");
        state == "True Deleting" && message.contains("LabControlPlane plane cannot be changed")
    });
    assert!(scene.is_held("one", "lb") && scene.is_held("two", "lb"));
    scene.kubectl(&["delete", "machine", "one", "--wait=false"]);
    scene.until("who goes is let go", || scene.get("machine", "one") == Value::Null);
    assert!(scene.is_held("two", "lb"));
    allow(&scene, scene.name, may_change, &[group], &["*"]);
    scene.until("it goes when that may be", || scene.get("loadbalancer", "lb") == Value::Null);
    assert!(!scene.is_held("two", "lb"));
    assert!(template()["annotations"].as_object().is_none_or(serde_json::Map::is_empty));
}

/// A control plane that is not to be seen is told, and stands in the way of nothing: not of members, and not of a Cluster that goes.
#[tokio::test(flavor = "multi_thread")]
async fn a_control_plane_that_may_not_be_seen() {
    let scene = two("trouble-plane-unseen");
    let plane = hidden(&scene, "plane.example.com");
    let annotations = json!({"portcullis.dev/control-plane-load-balancer": "lb"});
    scene.patch("cluster", "c", &json!({"metadata": {"annotations": annotations}}));
    scene.patch("cluster", "c", &json!({"spec": {"controlPlaneRef": plane}}));
    scene.balancer("c", "ingress", json!({"selector": {"matchLabels": {"role": "ingress"}}}));
    let _running = scene.look_after_as(half_blind(&scene, &[]).await);
    scene.until("both are members", || scene.assigned("lb").len() == 2);
    scene.until("that is told", || scene.condition("lb", "Degraded").0 == "True ChangeRefused");
    let (_, message) = scene.condition("lb", "Degraded");
    assert!(message.contains("SecretBalancer of plane.example.com cannot be watched"), "{message}");
    scene.until("one that is not for it has nothing to do with it", || {
        scene.condition("ingress", "Degraded").0 == "False AsExpected"
    });
    scene.report("lb", "198.51.100.1", &[("one", "active"), ("two", "active")]);
    scene.kubectl(&["delete", "machine", "one", "--wait=false"]);
    scene.until("who goes leaves", || scene.assigned("lb") == ["one Leave", "two Serve"]);
    scene.report("lb", "198.51.100.1", &[("one", "removed"), ("two", "active")]);
    scene.until("and may go", || scene.get("machine", "one") == Value::Null);
    scene.kubectl(&["delete", "cluster", "c", "--wait=false"]);
    scene.until("the Cluster waits for nobody", || !scene.is_held("two", "lb"));
}

/// A Machine that is not to be changed is told. It becomes no member, since it could not be held, and all else goes on.
#[tokio::test(flavor = "multi_thread")]
async fn a_machine_that_may_not_be_changed() {
    let scene = two("trouble-machine");
    let is_member = "object.metadata.?annotations.orValue({}).exists(key, key.endsWith('/member'))";
    let when = format!(
        "object.metadata.namespace == '{}' && object.metadata.name == 'new' && {is_member}",
        scene.name
    );
    let machines = (&["UPDATE"][..], "cluster.x-k8s.io", "machines");
    let refusing =
        Refusing::of_group(scene.kubernetes, "trouble-machine", machines, &when, "nobody is a member here");
    scene.control_plane("c", "lb", "new", "10.0.0.3");
    let tried = ["annotate", "machine", "new", "example.com/member=x", "--dry-run=server", "-n", scene.name];
    scene.until("it may not be changed", || scene.kubernetes.kubectl(&tried).is_err());
    let _running = scene.look_after().await;
    scene.until("others are members", || scene.assigned("lb") == ["one Serve", "two Serve"]);
    scene.until("that is told", || scene.condition("lb", "Degraded").0 == "True ChangeRefused");
    let (_, message) = scene.condition("lb", "Degraded");
    assert!(
        message.contains("Machine new cannot be changed") && message.contains("nobody is a member here"),
        "{message}"
    );
    // Ranges reach the provider, and who goes leaves.
    scene.patch(BALANCERS, "lb", &json!({"spec": {"allowedSourceRanges": ["10.0.0.0/8"]}}));
    let asked = || scene.get("labbalancer", "lb")["spec"]["assignment"]["allowedSourceRanges"].clone();
    scene.until("it hears of ranges", || asked() == json!(["10.0.0.0/8"]));
    scene.report("lb", "198.51.100.1", &[("one", "active"), ("two", "active")]);
    scene.kubectl(&["delete", "machine", "one", "--wait=false"]);
    scene.until("who goes leaves", || scene.assigned("lb") == ["one Leave", "two Serve"]);
    scene.report("lb", "198.51.100.1", &[("one", "removed"), ("two", "active")]);
    scene.until("and may go", || scene.get("machine", "one") == Value::Null);
    drop(refusing);
    scene.until("it becomes one when it may", || scene.assigned("lb") == ["new Serve", "two Serve"]);
    scene.until("all is well", || scene.condition("lb", "Degraded").0 == "False AsExpected");
}

/// A load balancer that is itself not to be changed says so, and Machines come and go all the same.
#[tokio::test(flavor = "multi_thread")]
async fn a_load_balancer_that_may_not_be_changed() {
    let scene = two("trouble-itself");
    let running = scene.look_after().await;
    scene.until("both are members", || scene.assigned("lb").len() == 2);
    scene.report("lb", "", &[("one", "active"), ("two", "active")]);
    scene.until("both are active", || scene.condition("lb", "MembersUpToDate").0 == "True UpToDate");
    drop(running);
    // It is to belong to its Cluster, and to have an endpoint.
    scene.patch(BALANCERS, "lb", &json!({"metadata": {"ownerReferences": null}}));
    let when = format!("object.metadata.namespace == '{}'", scene.name);
    let balancers = (&["UPDATE"][..], "loadbalancer.portcullis.dev", "loadbalancers");
    let refusing =
        Refusing::of_group(scene.kubernetes, "trouble-itself", balancers, &when, "it stays as it is");
    let tried = ["annotate", BALANCERS, "lb", "example.com/tried=x", "--dry-run=server", "-n", scene.name];
    scene.until("it may not be changed", || scene.kubernetes.kubectl(&tried).is_err());
    scene.report("lb", "198.51.100.1", &[("one", "active"), ("two", "active")]);
    let _running = scene.look_after().await;
    scene.until("that is told", || scene.condition("lb", "Degraded").0 == "True ChangeRefused");
    let (_, message) = scene.condition("lb", "Degraded");
    assert!(
        message.contains("LoadBalancer lb cannot be changed") && message.contains("it stays as it is"),
        "{message}"
    );
    scene.control_plane("c", "lb", "three", "10.0.0.3");
    scene.until("a new one joins", || scene.assigned("lb").contains(&"three Serve".to_owned()));
    scene.kubectl(&["delete", "machine", "one", "--wait=false"]);
    scene.until("who goes leaves", || scene.assigned("lb")[0] == "one Leave");
    scene.report("lb", "198.51.100.1", &[("one", "removed"), ("two", "active"), ("three", "active")]);
    scene.until("and may go", || scene.get("machine", "one") == Value::Null);
    assert!(scene.get("loadbalancer", "lb")["spec"].get("endpoint").is_none());
    assert!(scene.get("labbalancer", "lb")["spec"]["assignment"].get("endpoint").is_none());
    drop(refusing);
    scene.until("it has all when that may be", || {
        let found = scene.get("loadbalancer", "lb");
        found["spec"]["endpoint"]["host"] == "198.51.100.1"
            && found["metadata"]["ownerReferences"][0]["name"] == "c"
    });
    scene.until("all is well", || scene.condition("lb", "Degraded").0 == "False AsExpected");
}

/// What was asked for is what counts: ranges that a provider does not have yet are not said to be in force, and what is wrong does
/// not keep them from becoming narrower.
#[tokio::test(flavor = "multi_thread")]
async fn ranges_are_in_force_when_their_provider_says_so_of_them() {
    let scene = two("trouble-ranges");
    let _running = scene.look_after().await;
    scene.until("both are members", || scene.assigned("lb").len() == 2);
    let ranges =
        |ranges: Value| scene.patch(BALANCERS, "lb", &json!({"spec": {"allowedSourceRanges": ranges}}));
    let asked = || scene.get("labbalancer", "lb")["spec"]["assignment"]["allowedSourceRanges"].clone();
    let enforced = || scene.condition("lb", "SourceRangesEnforced").0;
    ranges(json!(["10.0.0.0/8"]));
    scene.until("it hears of ranges", || asked() == json!(["10.0.0.0/8"]));
    let says = |ranges: Value| {
        let condition = json!({
            "type": "SourceRangesEnforced", "status": "True", "reason": "Enforced", "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        });
        let status = json!({"status": {"allowedSourceRanges": ranges, "conditions": [condition]}});
        let patch = status.to_string();
        scene.kubectl(&["patch", "labbalancer", "lb", "--subresource=status", "--type=merge", "-p", &patch]);
    };
    says(json!(["10.0.0.0/8"]));
    scene.until("they are in force", || enforced() == "True Enforced");
    // Something else is wrong meanwhile.
    ranges(json!(["10.1.0.0/16"]));
    let twice = json!([{"name": "a", "port": 6443}, {"name": "b", "port": 6443}]);
    scene.patch(BALANCERS, "lb", &json!({"spec": {"listeners": twice}}));
    scene.until("it is told", || scene.condition("lb", "Degraded").0 == "True InvalidSpec");
    scene.until("it hears of narrower ones", || asked() == json!(["10.1.0.0/16"]));
    scene.until("which are not in force", || enforced() == "False Pending");
    says(json!(["10.1.0.0/16"]));
    scene.until("they are in force", || enforced() == "True Enforced");
    ranges(json!(["10.0.0.0/8"]));
    scene.until("it was looked at", || {
        let found = scene.get("loadbalancer", "lb");
        found["status"]["observedGeneration"] == found["metadata"]["generation"]
    });
    assert_eq!(asked(), json!(["10.1.0.0/16"]), "nobody more is let in while something is wrong");
}

/// Of two control planes that go, one is let go at once: after its provider was asked to take it out, and not before.
#[tokio::test(flavor = "multi_thread")]
async fn nobody_is_let_go_before_its_provider_has_heard() {
    let scene = two("trouble-unheard");
    scene.control_plane("c", "lb", "three", "10.0.0.3");
    let group = "infrastructure.cluster.x-k8s.io";
    let client = half_blind(&scene, &[group]).await;
    let may_ask = "trouble-unheard-asks";
    allow(&scene, scene.name, may_ask, &[group], &["*"]);
    let _running = scene.look_after_as(client);
    scene.until("all are members", || scene.assigned("lb").len() == 3);
    scene.report("lb", "198.51.100.1", &[("one", "active"), ("two", "active"), ("three", "active")]);
    scene.until("all are active", || scene.condition("lb", "MembersUpToDate").0 == "True UpToDate");
    forbid(&scene, may_ask, "labbalancers.infrastructure.cluster.x-k8s.io");
    scene.kubectl(&["delete", "machine", "one", "two", "--wait=false"]);
    scene.until("that is told", || scene.condition("lb", "Degraded").0 == "True ChangeRefused");
    let (_, message) = scene.condition("lb", "Degraded");
    assert!(message.contains("LabBalancer lb cannot be changed"), "{message}");
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(scene.assigned("lb"), ["one Serve", "three Serve", "two Serve"]);
    assert!(scene.is_held("one", "lb") && scene.is_held("two", "lb"));
    allow(&scene, scene.name, may_ask, &[group], &["*"]);
    let is_gone = |name: &str| scene.get("machine", name) == Value::Null;
    scene.until("one is let go then", || is_gone("one") || is_gone("two"));
    assert!(!is_gone("one") || !is_gone("two"), "the other takes its time");
}

/// How often a Machine is written from now on.
async fn writes_on(scene: &Scene, machine: &str) -> Arc<AtomicUsize> {
    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("cluster.x-k8s.io", "v1beta2", "Machine"));
    let api: Api<DynamicObject> = Api::namespaced_with(client(scene.kubernetes).await, scene.name, &kind);
    let only = watcher::Config::default().fields(&format!("metadata.name={machine}"));
    let count = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&count);
    let (listed, is_listed) = tokio::sync::oneshot::channel();
    tokio::spawn(async move {
        let mut listed = Some(listed);
        let events = watcher(api, only);
        futures_util::pin_mut!(events);
        while let Some(event) = events.next().await {
            match event {
                Ok(watcher::Event::Apply(_)) => drop(counted.fetch_add(1, Ordering::Relaxed)),
                Ok(watcher::Event::InitDone) => drop(listed.take().map(|listed| listed.send(()))),
                _ => {}
            }
        }
    });
    is_listed.await.unwrap();
    count
}

/// A provider that takes no wish any more is told, and holds nobody longer than one that does.
#[tokio::test(flavor = "multi_thread")]
async fn nobody_waits_for_ever_for_a_provider_that_takes_no_wish() {
    let scene = two("trouble-deaf");
    scene.patch(BALANCERS, "lb", &json!({"spec": {"drainTimeoutSeconds": 0}}));
    let group = "infrastructure.cluster.x-k8s.io";
    let client = half_blind(&scene, &[group]).await;
    let may_ask = "trouble-deaf-asks";
    allow(&scene, scene.name, may_ask, &[group], &["*"]);
    let _running = scene.look_after_as(client);
    scene.until("both are members", || scene.assigned("lb").len() == 2);
    scene.report("lb", "198.51.100.1", &[("one", "active"), ("two", "active")]);
    scene.until("both are active", || scene.condition("lb", "MembersUpToDate").0 == "True UpToDate");
    forbid(&scene, may_ask, "labbalancers.infrastructure.cluster.x-k8s.io");
    // Somebody else holds it, too, and for longer.
    let add =
        json!([{"op": "add", "path": "/metadata/finalizers/-", "value": "example.com/held"}]).to_string();
    scene.kubectl(&["patch", "machine", "one", "--type=json", "-p", &add]);
    scene.kubectl(&["delete", "machine", "one", "--wait=false"]);
    scene.until("that is told", || scene.condition("lb", "Degraded").0 == "True ChangeRefused");
    assert!(scene.is_held("one", "lb"));
    // Half a minute more than it is given, and the time of a busy machine.
    let is_let_go = || !scene.is_held("one", "lb");
    eventually_within(Duration::from_secs(120), "it is let go when its time is over", is_let_go);
    let finalizers = || scene.get("machine", "one")["metadata"]["finalizers"].clone();
    scene.until("Cluster API lets it go as well", || finalizers() == json!(["example.com/held"]));
    // It stays for that one, and is written by nobody for all that is looked at again.
    let written = writes_on(&scene, "one").await;
    for range in ["10.0.0.0/8", "10.0.0.0/9", "10.0.0.0/10"] {
        scene.patch(BALANCERS, "lb", &json!({"spec": {"allowedSourceRanges": [range]}}));
        scene.until("it is looked at", || {
            let found = scene.get("loadbalancer", "lb");
            found["status"]["observedGeneration"] == found["metadata"]["generation"]
        });
    }
    let written = written.load(Ordering::Relaxed);
    assert!(written <= 3, "{written} times");
    scene.patch("machine", "one", &json!({"metadata": {"finalizers": null}}));
    scene.until("it is gone", || scene.get("machine", "one") == Value::Null);
    assert_eq!(scene.assigned("lb")[0], "one Serve", "nobody was told");
    assert!(scene.is_held("two", "lb"), "who stays is held");
    allow(&scene, scene.name, may_ask, &[group], &["*"]);
    scene.until("it hears of it when it may", || scene.assigned("lb") == ["two Serve"]);
}

/// The same of one that made it before.
#[tokio::test(flavor = "multi_thread")]
async fn nobody_waits_for_ever_for_a_former_provider_that_takes_no_wish() {
    let scene = two("trouble-former");
    scene.patch(BALANCERS, "lb", &json!({"spec": {"drainTimeoutSeconds": 0}}));
    let _running = scene.look_after().await;
    scene.until("both are members", || scene.assigned("lb").len() == 2);
    scene.report("lb", "198.51.100.1", &[("one", "active"), ("two", "active")]);
    scene.until("both are active", || scene.condition("lb", "MembersUpToDate").0 == "True UpToDate");
    let when = format!("object.metadata.namespace == '{}' && object.metadata.name == 'lb'", scene.name);
    let makers = (&["UPDATE"][..], "infrastructure.cluster.x-k8s.io", "labbalancers");
    let _refusing = Refusing::of_group(scene.kubernetes, "trouble-former", makers, &when, "it takes no wish");
    let tried =
        ["annotate", "labbalancer", "lb", "example.com/tried=x", "--dry-run=server", "-n", scene.name];
    scene.until("it may not be changed", || scene.kubernetes.kubectl(&tried).is_err());
    scene.maker("other");
    let group = "infrastructure.cluster.x-k8s.io";
    let other = json!({"apiGroup": group, "kind": "LabBalancer", "name": "other"});
    scene.patch(BALANCERS, "lb", &json!({"spec": {"infrastructureRef": other}}));
    scene.until("the new one is asked", || scene.assigned("other") == ["one Serve", "two Serve"]);
    scene.kubectl(&["delete", "machine", "one", "--wait=false"]);
    scene.until("that is told", || scene.condition("lb", "Degraded").0 == "True ChangeRefused");
    let is_gone = || scene.get("machine", "one") == Value::Null;
    eventually_within(Duration::from_secs(180), "it goes when its time is over", is_gone);
    assert_eq!(scene.assigned("lb")[0], "one Serve", "the old one was not told");
    assert!(scene.is_held("two", "lb"), "who stays is held");
}
