//! Load balancers that go from one management cluster to another, by `clusterctl`, while clients talk through them.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use portcullis_aws_fake::{Fake, World};
use portcullis_testkit::parts::Scratch;
use portcullis_testkit::parts::catalogue::find;
use portcullis_testkit::talk::{Held, Load, ask};
use serde_json::{Value, json};

use crate::lab::{FRONT, Lab, Place, agent, controller, give_address, listeners, machine, on_machines};
use crate::scene::Scene;
use crate::templates::{TEMPLATE, make, templates};
use crate::{nlb, ovn};

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

/// Moves all of it from one side to the other.
#[track_caller]
fn move_all(here: &Scene, there: &Scene) {
    let (from, to) = (here.kubernetes.kubeconfig(), there.kubernetes.kubeconfig());
    clusterctl(here, &["move", "--kubeconfig", path(from), "--to-kubeconfig", path(to)]);
}

/// All that is on one side, as files.
#[track_caller]
fn back_up(scene: &Scene) -> Scratch {
    let backup = Scratch::new().unwrap();
    let from = path(scene.kubernetes.kubeconfig());
    clusterctl(scene, &["move", "--kubeconfig", from, "--to-directory", path(backup.path())]);
    backup
}

#[track_caller]
fn restore(scene: &Scene, backup: &Scratch) {
    let to = path(scene.kubernetes.kubeconfig());
    clusterctl(scene, &["move", "--to-kubeconfig", to, "--from-directory", path(backup.path())]);
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

/// Nothing of a load balancer is left in the management cluster that it came from.
#[track_caller]
fn has_nothing(scene: &Scene, maker: &str) {
    for (kind, name) in [("cluster", "c"), ("loadbalancer", "lb"), (maker, "lb")] {
        assert_eq!(scene.get(kind, name), Value::Null, "{kind}");
    }
    assert_eq!(scene.kubectl(&["get", "machines", "-o", "name"]), "");
}

/// Another load balancer of the same kind comes and goes: who looked after that has seen all that went before.
fn another_comes_and_goes(scene: &Scene, kind: &str, spec: Value) {
    scene.cluster("d", json!({}), json!({}));
    scene.apply(json!({
        "apiVersion": "loadbalancer.portcullis.dev/v1alpha1", "kind": kind,
        "metadata": {"name": "other"}, "spec": spec,
    }));
    let maker = json!({"apiGroup": "loadbalancer.portcullis.dev", "kind": kind, "name": "other"});
    scene.balancer("d", "other", json!({"infrastructureRef": maker}));
    scene.until("another one is made", || {
        scene.condition("other", "InfrastructureReady").0 == "True UpToDate"
    });
    scene.kubectl(&["delete", BALANCERS, "other", "--wait=false"]);
    scene.until("it is gone", || {
        scene.get("loadbalancer", "other").is_null() && scene.get(kind, "other").is_null()
    });
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

    move_all(&here, &there);
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
    let backup = back_up(&there);
    drop((carrying, of_there));
    restore(&here, &backup);
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

/// By this AWS is told which management cluster looks after something.
const IDENTITY: &str = "portcullis.dev/cluster-id";

/// All that is there, whoever looks after it; and who does.
fn whoever(fake: &Fake) -> (World, Vec<String>) {
    let mut world = fake.state();
    let balancers = world.load_balancers.values_mut().flat_map(|balancer| {
        balancer.listeners.values_mut().map(|listener| &mut listener.tags).chain([&mut balancer.tags])
    });
    let pools = world.target_groups.values_mut().map(|pool| &mut pool.tags);
    let groups = world.groups.values_mut().map(|group| &mut group.tags);
    let mut who: Vec<String> =
        balancers.chain(pools).chain(groups).filter_map(|tags| tags.remove(IDENTITY)).collect();
    who.sort();
    who.dedup();
    (world, who)
}

#[track_caller]
fn assert_only_tags_change(fake: &Fake) {
    let calls = fake.calls();
    let mut changes = calls.iter().map(|logged| &logged.call).filter(|call| call.mutating);
    let is_tag = |action: &str| ["AddTags", "CreateTags"].contains(&action);
    assert!(changes.all(|call| is_tag(&call.action)), "{:?}", fake.counts());
}

/// Both sides run, and what AWS has stays as it is, but for the tag that says who looks after it.
#[tokio::test(flavor = "multi_thread")]
async fn a_network_load_balancer_of_aws_is_moved() {
    let (here, fake) = (nlb::control_plane("elsewhere-aws"), nlb::account());
    let there = here.elsewhere();
    let _of_here = (here.look_after().await, nlb::make_as("here", &here, &fake).await);
    let of_there = (there.look_after().await, nlb::make_as("there", &there, &fake).await);
    let members = ["one", "two", "three"];
    until_active(&here, &members);
    is_up(&here, &members);
    let (before, who) = whoever(&fake);
    assert_eq!(who, ["here"]);
    let address = here.get("loadbalancer", "lb")["status"]["address"].clone();
    fake.clear_calls();

    move_all(&here, &there);
    has_nothing(&here, "awsnlb");
    until_active(&there, &members);
    there.until("all of it is the other side's", || whoever(&fake).1 == ["there"]);
    assert_eq!(there.get("loadbalancer", "lb")["status"]["address"], address);
    assert!(members.iter().all(|member| there.is_held(member, "lb")));
    assert_eq!(whoever(&fake).0, before);
    assert_only_tags_change(&fake);
    another_comes_and_goes(
        &here,
        "AWSNLB",
        json!({"vpc": "vpc-1", "subnets": ["subnet-a"], "holdSeconds": 1}),
    );
    assert_eq!(whoever(&fake), (before.clone(), vec!["there".to_owned()]));

    // It is looked after there: one joins, and another one leaves.
    fake.clear_calls();
    nlb::machine(&there, "four", "aws:///eu-central-1a/i-4", "10.0.1.14");
    until_active(&there, &["four"]);
    there.kubectl(&["delete", "machine", "one", "--wait=false"]);
    there.until("AWS drains it", || nlb::targets(&fake)[0] == "i-1:6443 draining");
    assert!(there.is_held("one", "lb"));
    fake.pass(Duration::from_secs(600));
    there.until("it is gone", || there.get("machine", "one") == Value::Null);
    assert_eq!(nlb::targets(&fake), ["i-2:6443 healthy", "i-3:6443 healthy", "i-4:6443 healthy"]);
    assert_eq!(whoever(&fake).0.load_balancers, before.load_balancers);
    for action in fake.counts().keys() {
        assert!(!action.starts_with("Create") && !action.starts_with("Delete"), "{:?}", fake.counts());
    }

    // All is lost but a backup, and is restored from that.
    let members = ["two", "three", "four"];
    is_up(&there, &members);
    let (before, _) = whoever(&fake);
    fake.clear_calls();
    let backup = back_up(&there);
    drop(of_there);
    restore(&here, &backup);
    until_active(&here, &members);
    here.until("all of it is this side's again", || whoever(&fake).1 == ["here"]);
    assert_eq!(whoever(&fake).0, before);
    assert_only_tags_change(&fake);
    here.kubectl(&["delete", BALANCERS, "lb", "--wait=false"]);
    here.until("nothing is left", || {
        let world = fake.state();
        world.load_balancers.is_empty() && world.target_groups.is_empty() && world.groups.len() == 2
    });
}

/// Both sides run, and every row stays as it is, and so do connections.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_load_balancer_of_ovn_is_moved() {
    let here = Scene::new("elsewhere-ovn");
    let there = here.elsewhere();
    let mut lab = ovn::Lab::new();
    here.cluster("c", json!({}), json!({"controlPlaneEndpoint": {"host": ovn::VIP, "port": ovn::FRONT}}));
    let members = ["one", "two"];
    for name in members {
        let address = lab.start(name, ovn::PORT);
        here.control_plane("c", "lb", name, &address);
    }
    let ranges = ["10.0.0.0/24"];
    ovn::balancer(
        &here,
        &json!({"listeners": ovn::listeners(), "drainTimeoutSeconds": 30, "allowedSourceRanges": ranges}),
    );
    let _of_here = (here.look_after().await, ovn::infrastructures(&here, &lab).await);
    let of_there = (there.look_after().await, ovn::infrastructures(&there, &lab).await);
    until_active(&here, &members);
    is_up(&here, &members);
    here.until("it is in force", || ask(&lab.client, ovn::VIP, ovn::FRONT).is_ok());
    let load = Load::start(&lab.client, ovn::VIP, ovn::FRONT);
    let mut held = Held::connect(&lab.client, ovn::VIP, ovn::FRONT).unwrap();
    let holder = held.ask().unwrap();
    let identity =
        |lab: &ovn::Lab| lab.ovn.nbctl(&["--columns=_uuid,name", "list", "Load_Balancer"]).unwrap();
    let (before, made) = (lab.rows(), identity(&lab));
    load.more(200);

    move_all(&here, &there);
    has_nothing(&here, "ovnloadbalancer");
    until_active(&there, &members);
    there.until("all is as asked", || there.condition("lb", "InfrastructureReady").0 == "True UpToDate");
    assert_eq!(there.get("loadbalancer", "lb")["status"]["address"], ovn::VIP);
    assert!(members.iter().all(|member| there.is_held(member, "lb")));
    assert_eq!(lab.rows(), before);
    another_comes_and_goes(
        &here,
        "OVNLoadBalancer",
        json!({"addresses": ["192.0.2.11"], "switches": ["sw"]}),
    );
    assert_eq!(lab.rows(), before);
    assert_eq!(held.ask().unwrap(), holder);
    load.more(200);

    // It is looked after there: one joins, and another one leaves.
    let address = lab.start("three", ovn::PORT);
    there.control_plane("c", "lb", "three", &address);
    until_active(&there, &["three"]);
    let goes = if holder == "one" { "two" } else { "one" };
    there.kubectl(&["delete", "machine", goes, "--wait=false"]);
    there.until("it drains", || there.status("lb", goes).as_deref() == Some("draining"));
    there.until("it is gone", || there.get("machine", goes) == Value::Null);
    lab.end(goes);
    there.until("the new one is asked", || {
        ask(&lab.client, ovn::VIP, ovn::FRONT).is_ok_and(|answer| answer == "three")
    });
    load.more(200);
    assert_eq!(identity(&lab), made);

    // All is lost but a backup, and is restored from that.
    let members = [holder.as_str(), "three"];
    is_up(&there, &members);
    let before = lab.rows();
    let backup = back_up(&there);
    drop(of_there);
    restore(&here, &backup);
    until_active(&here, &members);
    here.until("all is as asked", || here.condition("lb", "InfrastructureReady").0 == "True UpToDate");
    assert_eq!(lab.rows(), before);
    load.more(200);
    assert_eq!(held.ask().unwrap(), holder);
    let (count, failures) = load.end();
    assert_eq!(failures, Vec::<String>::new(), "of {count} connections");
    here.kubectl(&["delete", BALANCERS, "lb", "--wait=false"]);
    here.until("all of it is gone", || lab.rows().is_empty());
}

/// Both sides run, and what a pool gave is still given, also while nobody there has said so yet.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn an_address_of_a_pool_is_moved() {
    const ADDRESS: &str = "192.0.2.1";
    let here = Scene::new("elsewhere-pool");
    let there = here.elsewhere();
    let lab = Lab::new(&["pool-a"]);
    here.cluster("c", json!({}), json!({}));
    machine(&here, &lab, "pool-a");
    let pool = json!({"apiGroup": "ipam.example.com", "kind": "Pool", "name": "edge"});
    on_machines(&here, "lb", json!({"listeners": listeners()}), json!({"addressFrom": {"poolRef": pool}}));
    let place = Place::new();
    let _of_here = (here.look_after().await, controller(&here).await);
    let _of_there = (there.look_after().await, controller(&there).await);
    let carrying = agent(&here, &lab, &place).await;
    here.until("an address is asked for", || here.get("ipaddressclaim", "lb").is_object());
    give_address(&here, "lb", ADDRESS);
    until_active(&here, &["pool-a"]);
    is_up(&here, &["pool-a"]);
    let load = Load::start(&lab.client, ADDRESS, FRONT);
    let mut held = Held::connect(&lab.client, ADDRESS, FRONT).unwrap();
    held.ask().unwrap();
    let claimed = here.get("ipaddressclaim", "lb")["spec"].clone();

    move_all(&here, &there);
    has_nothing(&here, "haproxyloadbalancer");
    assert_eq!(there.get("ipaddressclaim", "lb")["spec"], claimed);
    assert_eq!(there.get("ipaddresses.ipam.cluster.x-k8s.io", "given")["spec"]["address"], ADDRESS);
    drop(carrying);
    let _carrying = agent(&there, &lab, &place).await;
    there.until("it carries on, whatever is not known", || {
        there.condition("lb", "InfrastructureReady").0 == "False WaitingForAddress"
            && there.status("lb", "pool-a").as_deref() == Some("active")
    });
    load.more(200);
    // What a status says is not moved: whoever looks after the pool says it again.
    give_address(&there, "lb", ADDRESS);
    there.until("its address is known", || there.get("loadbalancer", "lb")["status"]["address"] == ADDRESS);
    until_active(&there, &["pool-a"]);
    assert_eq!(there.get("ipaddressclaim", "lb")["spec"], claimed);
    load.more(200);
    held.ask().unwrap();
    let (count, failures) = load.end();
    assert_eq!(failures, Vec::<String>::new(), "of {count} connections");
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

    move_all(&here, &there);
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
