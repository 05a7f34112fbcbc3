//! Load balancers that go from one management cluster to another, by `clusterctl`, while clients talk through them.

use std::path::Path;
use std::process::Command;

use portcullis_testkit::parts::Scratch;
use portcullis_testkit::parts::catalogue::find;
use portcullis_testkit::talk::{Held, Load};
use serde_json::{Value, json};

use crate::lab::{FRONT, Lab, Place, agent, controller, listeners, machine, on_machines};
use crate::scene::Scene;
use crate::templates::{TEMPLATE, make, templates};

const BALANCERS: &str = "loadbalancers.loadbalancer.portcullis.dev";

/// Runs `clusterctl` for a namespace.
#[track_caller]
fn clusterctl(scene: &Scene, arguments: &[&str]) {
    let home = Scratch::new().unwrap();
    let done = Command::new(find("clusterctl").unwrap())
        .args(arguments)
        .args(["--namespace", scene.name])
        // It would ask in the internet whether there is a newer one.
        .env("CLUSTERCTL_DISABLE_VERSIONCHECK", "true")
        .env("HOME", home.path())
        .env("XDG_CONFIG_HOME", home.path())
        .output()
        .unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
}

fn path(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// What `clusterctl` wants to see before it moves anything: nodes that are up.
fn is_up(scene: &Scene, machines: &[&str]) {
    for machine in machines {
        let status = json!({"status": {"nodeRef": {"name": machine}}}).to_string();
        scene.kubectl(&["patch", "machine", machine, "--subresource=status", "--type=merge", "-p", &status]);
    }
    scene.until("the control plane is initialized", || {
        let cluster = scene.get("cluster", "c");
        let conditions = cluster["status"]["conditions"].as_array().cloned().unwrap_or_default();
        conditions.iter().any(|found| found["type"] == "ControlPlaneInitialized" && found["status"] == "True")
    });
}

fn until_active(scene: &Scene, members: &[&str]) {
    for member in members {
        scene.until("it serves", || scene.status("lb", member).as_deref() == Some("active"));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_move_and_a_restored_backup_keep_every_load_balancer() {
    let here = Scene::new("elsewhere");
    let there = here.elsewhere();
    let mut lab = Lab::new(&["move-a", "move-b"]);
    let members = ["move-a", "move-b"];
    let endpoint = json!({"host": "192.0.2.1", "port": FRONT});
    here.cluster("c", json!({}), json!({"controlPlaneEndpoint": endpoint}));
    for name in members {
        machine(&here, &lab, name);
    }
    let wanted = json!({
        "listeners": listeners(), "drainTimeoutSeconds": 5, "allowedSourceRanges": ["192.0.2.0/24"],
    });
    on_machines(&here, "lb", wanted, json!({}));
    let place = Place::new();
    let mut of_here = (here.look_after().await, controller(&here).await);
    let mut carrying = agent(&here, &lab, &place).await;
    until_active(&here, &members);
    is_up(&here, &members);
    let load = Load::start(&lab.client, "192.0.2.1", FRONT);
    let mut held = Held::connect(&lab.client, "192.0.2.1", FRONT).unwrap();
    let holder = held.ask().unwrap();
    let spec = here.get("loadbalancer", "lb")["spec"].clone();
    load.more(200);

    let (from, to) = (here.kubernetes.kubeconfig(), there.kubernetes.kubeconfig());
    clusterctl(&here, &["move", "--kubeconfig", path(from), "--to-kubeconfig", path(to)]);
    assert_eq!(here.get("loadbalancer", "lb"), Value::Null);
    assert_eq!(here.get("haproxyloadbalancer", "lb"), Value::Null);
    assert_eq!(there.get("loadbalancer", "lb")["spec"], spec);
    load.more(200);
    // Its machine is told of the new place, and what runs goes on.
    drop(carrying);
    let of_there = (there.look_after().await, controller(&there).await);
    carrying = agent(&there, &lab, &place).await;
    until_active(&there, &members);
    assert_eq!(there.get("loadbalancer", "lb")["status"]["address"], "192.0.2.1");
    assert!(there.is_held("move-a", "lb") && there.is_held("move-b", "lb"));
    is_up(&there, &members);
    assert_eq!(held.ask().unwrap(), holder);
    load.more(200);

    // All is lost but a backup, and is restored from that.
    let backup = Scratch::new().unwrap();
    clusterctl(&there, &["move", "--kubeconfig", path(to), "--to-directory", path(backup.path())]);
    drop((carrying, of_there));
    clusterctl(&here, &["move", "--to-kubeconfig", path(from), "--from-directory", path(backup.path())]);
    drop(of_here);
    of_here = (here.look_after().await, controller(&here).await);
    let _carrying = agent(&here, &lab, &place).await;
    until_active(&here, &members);
    assert_eq!(here.get("loadbalancer", "lb")["spec"], spec);
    assert_eq!(held.ask().unwrap(), holder);
    load.more(200);

    // And everything works there as before: one leaves, and nobody is refused.
    let other = if holder == "move-a" { "move-b" } else { "move-a" };
    here.kubectl(&["delete", "machine", other, "--wait=false"]);
    here.until("its infrastructure goes", || {
        here.get("labmachine", other)["metadata"].get("deletionTimestamp").is_some()
    });
    lab.end(other);
    load.more(200);
    assert_eq!(held.ask().unwrap(), holder);
    let (count, failures) = load.end();
    assert_eq!(failures, Vec::<String>::new(), "of {count} connections");
    here.patch("labmachine", other, &json!({"metadata": {"finalizers": null}}));
    here.kubectl(&["delete", BALANCERS, "lb"]);
    drop(of_here);
}

/// One that was made from a template goes along as it is by now, and is not made anew; so do the templates, for Clusters that come later.
#[tokio::test(flavor = "multi_thread")]
async fn what_was_made_from_a_template_moves() {
    let here = Scene::new("elsewhere-template");
    let there = here.elsewhere();
    templates(&here);
    let named = json!({"annotations": {TEMPLATE: "standard"}});
    here.cluster(
        "c",
        named.clone(),
        json!({"controlPlaneEndpoint": {"host": "api.example.com", "port": 443}}),
    );
    here.control_plane("c", "c", "one", "10.0.0.1");
    let of_here = (make(&here).await, here.look_after().await);
    let is_asked = |scene: &Scene| {
        let asked = scene.get("haproxyloadbalancer", "c")["spec"]["assignment"].clone();
        asked["members"][0]["name"] == "one" && asked["drainTimeoutSeconds"] == 77
    };
    here.until("it has one", || here.get("loadbalancer", "c").is_object());
    here.patch(BALANCERS, "c", &json!({"spec": {"drainTimeoutSeconds": 77}}));
    here.until("its provider is asked", || is_asked(&here));
    is_up(&here, &["one"]);
    let spec = here.get("loadbalancer", "c")["spec"].clone();

    let (from, to) = (here.kubernetes.kubeconfig(), there.kubernetes.kubeconfig());
    clusterctl(&here, &["move", "--kubeconfig", path(from), "--to-kubeconfig", path(to)]);
    for kind in ["loadbalancer", "haproxyloadbalancer", "cluster"] {
        assert_eq!(here.get(kind, "c"), Value::Null);
    }
    drop(of_here);
    assert_eq!(there.get("loadbalancer", "c")["spec"], spec);
    let made = |kind: &str| there.get(kind, "c")["metadata"]["uid"].clone();
    let before = [made("loadbalancer"), made("haproxyloadbalancer")];
    let _of_there = (make(&there).await, there.look_after().await);
    there.cluster("d", named, json!({}));
    there.until("the template is there for another", || {
        there.get("haproxyloadbalancer", "d")["spec"]["assignment"].is_object()
    });
    assert_eq!(there.get("haproxyloadbalancer", "d")["spec"]["pool"], "edge");
    there.until("it is looked after", || {
        is_asked(&there) && there.condition("c", "InfrastructureReady").0 == "False NotReported"
    });
    assert_eq!(there.get("loadbalancer", "c")["spec"], spec);
    assert_eq!([made("loadbalancer"), made("haproxyloadbalancer")], before, "nothing is made twice");
    assert!(there.is_held("one", "c"));
    let told = there.events("c");
    assert!(!told.iter().any(|event| event.starts_with("TemplateUnusable: ")), "{told:?}");
}
