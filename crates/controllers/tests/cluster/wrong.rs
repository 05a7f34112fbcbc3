//! What is wrong in an object is told, and stands in nobody else's way: neither of other load balancers nor of Machines that are to go.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use portcullis_controllers::cluster::{InfrastructureSettings, Infrastructures};
use portcullis_core::{Members, Outcome, Owner, PlanView, Problem, Provider, Report, Target, Want};
use portcullis_kube_api::cluster::{Kind, OvnLoadBalancerSpec};
use portcullis_testkit::Refusing;
use serde_json::{Value, json};

use crate::scene::{Running, Scene, client};

const BALANCERS: &str = "loadbalancers.loadbalancer.portcullis.dev";
const INFRASTRUCTURE: &str = "infrastructure.cluster.x-k8s.io";

const BOTH: [(&str, &str); 2] = [("one", "active"), ("two", "active")];

/// Two members that serve, and drain for so many seconds.
async fn two(name: &'static str, drain: u32) -> (Scene, Running) {
    let scene = Scene::new(name);
    scene.cluster("c", json!({}), json!({}));
    scene.control_plane("c", "lb", "one", "10.0.0.1");
    scene.control_plane("c", "lb", "two", "10.0.0.2");
    let endpoint = json!({"host": "api.example.com", "port": 443});
    scene.balancer("c", "lb", json!({"endpoint": endpoint, "drainTimeoutSeconds": drain}));
    let running = scene.look_after().await;
    scene.until("both are members", || scene.assigned("lb").len() == 2);
    scene.report("lb", "198.51.100.1", &BOTH);
    scene.until("both are active", || scene.condition("lb", "MembersUpToDate").0 == "True UpToDate");
    (scene, running)
}

/// One that goes leaves, and goes when its provider says that it has left.
fn goes(scene: &Scene, machine: &str, stays: &str) {
    scene.kubectl(&["delete", "machine", machine, "--wait=false"]);
    scene.until("who goes leaves", || scene.assigned("lb").contains(&format!("{machine} Leave")));
    scene.report("lb", "198.51.100.1", &[(machine, "removed"), (stays, "active")]);
    scene.until("and may go", || scene.get("machine", machine) == Value::Null);
}

/// A provider that makes whatever it is asked for, and remembers for whom.
#[derive(Clone, Default)]
struct Easy(Arc<Mutex<Vec<(Owner, bool)>>>);

impl Provider for Easy {
    fn members(&self, _: &BTreeMap<String, String>) -> Result<Members, Problem> {
        Ok(Members::Nodes(BTreeMap::new()))
    }

    fn is_settled(&self, _: &Want) -> bool {
        false
    }

    async fn sync(&self, want: &Want) -> Report {
        let is_there = matches!(want.target, Target::Present(_));
        self.0.lock().unwrap().push((want.owner.clone(), is_there));
        Report::new(Outcome::Done)
    }

    async fn preview(&self, want: &Want) -> Result<PlanView, Problem> {
        Err(Problem::new(want.owner.to_string(), "", ""))
    }

    fn forget(&self, _: &Owner) {}

    fn forgotten(&self) -> Vec<Owner> {
        Vec::new()
    }

    async fn look_at_all(&self) -> Result<Vec<Owner>, Problem> {
        Ok(Vec::new())
    }

    async fn look_closely(&self, _: &Owner) -> Result<bool, Problem> {
        Ok(false)
    }
}

/// A type as somebody installed it who checks nothing.
fn loose(scene: &Scene, kind: &'static str, plural: &'static str) -> Kind {
    let kind = Kind { group: "loose.example.com", version: "v1", kind, plural };
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{}.{}", kind.plural, kind.group)},
        "spec": {
            "group": kind.group, "scope": "Namespaced", "names": {"kind": kind.kind, "plural": kind.plural},
            "versions": [{"name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}],
        },
    });
    scene.kubernetes.apply_types(&definition.to_string()).unwrap();
    kind
}

/// What asks for nothing that has a name is refused, where the type does not refuse it already: nothing is done for it, all others
/// are looked after, and it can be deleted.
#[tokio::test(flavor = "multi_thread")]
async fn an_assignment_without_a_cluster_is_refused() {
    let scene = Scene::new("wrong-assignment");
    let ours = |assignment: Value| {
        let object = json!({
            "apiVersion": "loadbalancer.portcullis.dev/v1alpha1", "kind": "OVNLoadBalancer",
            "metadata": {"name": "tried", "namespace": scene.name}, "spec": {"assignment": assignment},
        });
        scene.kubernetes.apply(&object.to_string()).map_err(|error| error.to_string())
    };
    for assignment in [
        json!({}),
        json!({"generation": 1}),
        json!({"generation": 1, "loadBalancer": "lb"}),
        json!({"generation": 1, "loadBalancer": "lb", "clusterName": "a/b"}),
        json!({"generation": 1, "loadBalancer": "lb", "clusterName": "c", "drainTimeoutSeconds": -1}),
        json!({"generation": 1, "loadBalancer": "lb", "clusterName": "c", "members": [{"name": "one", "addresses": ["nowhere"]}]}),
    ] {
        let refused = ours(assignment.clone()).expect_err(&assignment.to_string());
        assert!(refused.contains("spec.assignment"), "{refused}");
    }
    let addresses = json!(["10.0.0.1", "2001:db8::1"]);
    let right = json!({"generation": 1, "loadBalancer": "lb", "clusterName": "c", "members": [{"name": "one", "addresses": addresses}]});
    ours(right).unwrap();

    let kind = loose(&scene, "OVNLoadBalancer", "ovnloadbalancers");
    let made = |name: &str, assignment: Value| {
        scene.apply(json!({
            "apiVersion": "loose.example.com/v1", "kind": "OVNLoadBalancer", "metadata": {"name": name},
            "spec": {"addresses": ["192.0.2.1"], "assignment": assignment},
        }));
    };
    let well = json!({
        "generation": 1, "loadBalancer": "lb", "clusterName": "c", "listeners": [{"port": 443}], "members": [],
    });
    made("empty", json!({}));
    made("slash", json!({"generation": 1, "loadBalancer": "lb", "clusterName": "a/b"}));
    made("unread", json!({"members": "nobody"}));
    made("well", well.clone());
    made("later", well);
    let provider = Easy::default();
    let settings = InfrastructureSettings {
        kind,
        namespace: Some(scene.name.to_owned()),
        concurrency: 4,
        resync: Duration::from_secs(60),
        look: Duration::from_millis(500),
        host: "test".to_owned(),
    };
    let all: Infrastructures<Easy, OvnLoadBalancerSpec> =
        Infrastructures::new(client(scene.kubernetes).await, provider.clone(), settings);
    let running = Running(tokio::spawn(all.run()));
    let object = |name: &str| scene.get("ovnloadbalancers.loose.example.com", name);
    let ready = |name: &str| {
        let conditions = object(name)["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let ready = conditions.into_iter().find(|one| one["type"] == "Ready");
        ready
            .map(|ready| format!("{} {} {}", ready["status"], ready["reason"], ready["message"]))
            .unwrap_or_default()
    };
    let asked = |name: &str, is_there: bool| {
        let all = provider.0.lock().unwrap();
        all.iter().any(|(owner, there)| owner.name() == name && *there == is_there)
    };
    for name in ["empty", "slash"] {
        scene.until("that is told", || {
            let ready = ready(name);
            ready.starts_with("\"False\" \"Blocked\"") && ready.contains("spec.assignment.clusterName is `")
        });
        assert!(object(name)["metadata"].get("finalizers").is_none(), "nothing is made that would be left");
    }
    for name in ["well", "later"] {
        scene.until("others are made", || asked(name, true));
    }
    // One that was right is not lost by what is wrong later.
    let kinds = "ovnloadbalancers.loose.example.com";
    scene.patch(kinds, "later", &json!({"spec": {"assignment": {"clusterName": ""}}}));
    scene.until("that is told", || ready("later").contains("spec.assignment.clusterName is ``"));
    scene.kubectl(&["delete", kinds, "empty", "slash", "well", "later"]);
    assert!(asked("well", false) && asked("later", false), "what was made is taken away");
    assert!(!asked("empty", true) && !asked("empty", false) && !asked("slash", false));
    assert!(!running.0.is_finished());
}

/// One object that cannot be read is told where it is named; all others of its kind are looked after, also by who starts then.
#[tokio::test(flavor = "multi_thread")]
async fn one_that_cannot_be_read_blinds_nobody() {
    let (scene, running) = two("wrong-unread", 600).await;
    let bad = json!({"members": "nobody"});
    scene.apply(json!({
        "apiVersion": format!("{INFRASTRUCTURE}/v1"), "kind": "LabBalancer", "metadata": {"name": "bad"},
        "spec": {"assignment": bad},
    }));
    let reference = json!({"apiGroup": INFRASTRUCTURE, "kind": "LabBalancer", "name": "bad"});
    scene.apply(json!({
        "apiVersion": "loadbalancer.portcullis.dev/v1alpha1", "kind": "LoadBalancer",
        "metadata": {"name": "second"}, "spec": {"clusterName": "c", "infrastructureRef": reference},
    }));
    scene.until("that is told", || scene.condition("second", "InfrastructureReady").0 == "False NotReadable");
    let (_, message) = scene.condition("second", "InfrastructureReady");
    assert!(message.contains("LabBalancer bad: its spec cannot be read: "), "{message}");
    // What a provider may say of a member, and never should: it is no number, and no status.
    let told = json!([
        {"name": "one", "status": "active", "connections": -1}, {"name": "two", "status": "active", "connections": 3},
    ]);
    let status = |status: Value| {
        let patch = json!({"status": status}).to_string();
        scene.kubectl(&["patch", "labbalancer", "lb", "--subresource=status", "--type=merge", "-p", &patch]);
    };
    status(json!({"members": told}));
    scene.until("all else of it is read", || {
        scene.get("loadbalancer", "lb")["status"]["targets"][1]["connections"] == 3
    });
    drop(running);
    let _running = scene.look_after().await;
    scene.control_plane("c", "lb", "three", "10.0.0.3");
    scene.until("a new one joins", || scene.assigned("lb").contains(&"three Serve".to_owned()));
    goes(&scene, "three", "one");
    scene.report("lb", "198.51.100.1", &BOTH);

    // What was known of one counts, and that is told.
    status(json!({"members": 5}));
    scene.until("that is told", || scene.condition("lb", "Degraded").0 == "True NotReadable");
    let (_, message) = scene.condition("lb", "Degraded");
    assert!(message.contains("LabBalancer lb: its status cannot be read: "), "{message}");
    assert_eq!(scene.status("lb", "one").as_deref(), Some("active"));
    goes(&scene, "one", "two");
    scene.until("all is well", || scene.condition("lb", "Degraded").0 != "True NotReadable");
}

/// What makes a load balancer was deleted, and cannot go. Who is to go leaves it, and waits for its time and not longer.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_stuck_in_its_deletion_holds_nobody_for_ever() {
    let (scene, _running) = two("wrong-stuck", 0).await;
    scene.patch("labbalancer", "lb", &json!({"metadata": {"finalizers": ["lab/balancer"]}}));
    scene.kubectl(&["delete", "labbalancer", "lb", "--wait=false"]);
    scene.until("that is told", || scene.condition("lb", "Degraded").0 == "True ProviderDeleted");
    let (_, message) = scene.condition("lb", "Degraded");
    assert!(message.contains("LabBalancer lb is being deleted"), "{message}");
    scene.control_plane("c", "lb", "three", "10.0.0.3");
    scene.kubectl(&["delete", "machine", "one", "--wait=false"]);
    scene.until("it hears of who leaves", || scene.assigned("lb") == ["one Leave", "two Serve"]);
    assert!(scene.is_held("one", "lb"));
    scene.until("nobody waits for ever", || scene.get("machine", "one") == Value::Null);
    assert!(!scene.assigned("lb").contains(&"three Serve".to_owned()), "nobody comes to what goes");
    scene.patch("labbalancer", "lb", &json!({"metadata": {"finalizers": null}}));
}

/// A name that is wrong is told, and Machines of the Cluster that it is for come and go meanwhile.
#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_that_is_not_there() {
    let (scene, _running) = two("wrong-cluster", 600).await;
    let asked = || {
        let mut asked = scene.get("labbalancer", "lb")["spec"]["assignment"].clone();
        asked.as_object_mut().unwrap().remove("members");
        asked
    };
    let before = asked();
    scene.patch(BALANCERS, "lb", &json!({"spec": {"clusterName": "nobody"}}));
    scene.until("that is told", || scene.condition("lb", "InfrastructureReady").0 == "False ClusterNotFound");
    let (_, message) = scene.condition("lb", "InfrastructureReady");
    assert!(message.contains("There is no Cluster nobody. It serves as before, for c"), "{message}");
    assert_eq!(scene.condition("lb", "Available").0, "True MembersActive");
    scene.control_plane("c", "lb", "three", "10.0.0.3");
    scene.until("a new one joins", || scene.assigned("lb").contains(&"three Serve".to_owned()));
    scene.report("lb", "198.51.100.1", &[("one", "active"), ("two", "active"), ("three", "active")]);
    goes(&scene, "one", "two");
    assert_eq!(asked(), before, "nothing else is changed");
    scene.kubectl(&["delete", BALANCERS, "lb"]);
    assert!(!scene.is_held("two", "lb"));
}

/// What was made for a Cluster does not go to another, which would not find it: it is told, and all goes on as before.
#[tokio::test(flavor = "multi_thread")]
async fn another_cluster() {
    let scene = Scene::new("wrong-other");
    let hook = "pre-drain.delete.hook.machine.cluster.x-k8s.io/lb";
    for name in ["c", "d"] {
        let plane =
            json!({"apiGroup": "controlplane.cluster.x-k8s.io", "kind": "LabControlPlane", "name": name});
        scene.apply(json!({
            "apiVersion": "controlplane.cluster.x-k8s.io/v1", "kind": "LabControlPlane",
            "metadata": {"name": name}, "spec": {"machineTemplate": {"metadata": {}}},
        }));
        let metadata = json!({"annotations": {"portcullis.dev/control-plane-load-balancer": "lb"}});
        scene.cluster(name, metadata, json!({"controlPlaneRef": plane}));
    }
    let is_made_with_hooks = |plane: &str| {
        let plane = scene.get("labcontrolplane", plane);
        plane["spec"]["machineTemplate"]["metadata"]["annotations"][hook] == "portcullis"
    };
    scene.control_plane("c", "lb", "one", "10.0.0.1");
    // A name that is wrong at first, when nothing is made yet, can be corrected.
    scene.balancer("nobody", "lb", json!({"endpoint": {"host": "api.example.com", "port": 443}}));
    let running = scene.look_after().await;
    scene.until("that is told", || scene.condition("lb", "InfrastructureReady").0 == "False ClusterNotFound");
    scene.patch(BALANCERS, "lb", &json!({"spec": {"clusterName": "c"}}));
    scene.until("one is a member", || scene.assigned("lb") == ["one Serve"]);
    scene.report("lb", "198.51.100.1", &[("one", "active")]);
    scene.until("it is active", || scene.condition("lb", "MembersUpToDate").0 == "True UpToDate");
    scene.until("more are made", || is_made_with_hooks("c"));

    scene.patch(BALANCERS, "lb", &json!({"spec": {"clusterName": "d"}}));
    scene.until("that is told", || scene.condition("lb", "InfrastructureReady").0 == "False ClusterChanged");
    let (_, message) = scene.condition("lb", "InfrastructureReady");
    assert!(message.contains("It was made for Cluster c, and does not go to d."), "{message}");
    assert_eq!(scene.condition("lb", "Available").0, "True MembersActive");
    scene.control_plane("c", "lb", "two", "10.0.0.2");
    scene.until("a new one joins", || scene.assigned("lb") == ["one Serve", "two Serve"]);
    scene.report("lb", "198.51.100.1", &BOTH);
    goes(&scene, "one", "two");
    assert_eq!(scene.get("labbalancer", "lb")["spec"]["assignment"]["clusterName"], "c");
    assert!(is_made_with_hooks("c") && !is_made_with_hooks("d"));
    let owners = scene.get("loadbalancer", "lb")["metadata"]["ownerReferences"].clone();
    assert_eq!((owners.as_array().unwrap().len(), &owners[0]["name"]), (1, &json!("c")));

    // It goes as one of the Cluster that it was made for, also for who never heard of that one's control plane.
    drop(running);
    scene.kubectl(&["delete", BALANCERS, "lb", "--wait=false"]);
    let _running = scene.look_after().await;
    scene.until("it is gone", || scene.get("loadbalancer", "lb") == Value::Null);
    assert!(!is_made_with_hooks("c") && !is_made_with_hooks("d") && !scene.is_held("two", "lb"));
    assert_eq!(scene.get("labbalancer", "lb"), Value::Null, "what made it goes with it");
}

/// A member that cannot be read any more stays what it is, also after a start, and others come and go.
#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_cannot_be_read() {
    let scene = Scene::new("wrong-member");
    loose(&scene, "Box", "boxes");
    let boxed = |name: &str, id: Value| {
        let address = format!("10.0.0.{}", name.len() + usize::from(name == "two"));
        let addresses = json!([{"type": "InternalIP", "address": address}]);
        scene.apply(json!({
            "apiVersion": "loose.example.com/v1", "kind": "Box",
            "metadata": {"name": name, "labels": {"app": "web"}}, "spec": {"providerID": id},
        }));
        let status = json!({"status": {"addresses": addresses}}).to_string();
        scene.kubectl(&["patch", "box", name, "--subresource=status", "--type=merge", "-p", &status]);
    };
    boxed("one", json!("a"));
    boxed("two", json!("b"));
    scene.cluster("c", json!({}), json!({}));
    scene.balancer(
        "c",
        "lb",
        json!({
            "targetKind": {"apiGroup": "loose.example.com", "kind": "Box"},
            "selector": {"matchLabels": {"app": "web"}},
            "endpoint": {"host": "api.example.com", "port": 443},
        }),
    );
    let running = scene.look_after().await;
    scene.until("both are members", || scene.assigned("lb") == ["one Serve", "two Serve"]);
    scene.report("lb", "198.51.100.1", &BOTH);
    drop(running);
    boxed("one", json!(5));
    let running = scene.look_after().await;
    boxed("three", json!("c"));
    scene.until("others come", || scene.assigned("lb") == ["one Serve", "three Serve", "two Serve"]);
    scene.until("that is told", || scene.condition("lb", "Degraded").0 == "True NotReadable");
    let (_, message) = scene.condition("lb", "Degraded");
    assert!(message.contains("Box one: its spec cannot be read"), "{message}");
    scene.kubectl(&["delete", "box", "two"]);
    scene.until("others go", || !scene.assigned("lb").contains(&"two Serve".to_owned()));
    assert!(scene.assigned("lb").contains(&"one Serve".to_owned()));
    boxed("one", json!("a"));
    scene.until("all is well", || scene.condition("lb", "Degraded").0 != "True NotReadable");
    drop(running);
    boxed("one", json!(5));
    let _running = scene.look_after().await;
    scene.until("that is told", || scene.condition("lb", "Degraded").0 == "True NotReadable");
    scene.kubectl(&["delete", "box", "one"]);
    scene.until("it goes as others do", || !scene.assigned("lb").contains(&"one Serve".to_owned()));
}

/// With members of another kind Machines are members no more, and nothing holds them. A kind that is none changes nothing.
#[tokio::test(flavor = "multi_thread")]
async fn another_kind_of_members() {
    let (scene, running) = two("wrong-kind", 600).await;
    let kind = |group: &str, kind: &str| {
        let wanted = json!({"targetKind": {"apiGroup": group, "kind": kind}});
        scene.patch(BALANCERS, "lb", &json!({"spec": wanted}));
    };
    kind("cluster.x-k8s.io", "Machin");
    scene.until("that is told", || scene.condition("lb", "InfrastructureReady").0 == "False UnknownKind");
    assert_eq!(scene.assigned("lb"), ["one Serve", "two Serve"]);
    goes(&scene, "one", "two");
    kind(INFRASTRUCTURE, "LabMachine");
    let selector = json!({"matchLabels": {"role": "front"}});
    scene.patch(BALANCERS, "lb", &json!({"spec": {"selector": selector}}));
    scene.kubectl(&["label", "labmachine", "two", "role=front"]);
    scene.until("it is a member as another", || {
        scene.get("loadbalancer", "lb")["status"]["targetKind"] == format!("LabMachine.{INFRASTRUCTURE}")
            && scene.assigned("lb") == ["two Serve"]
    });
    let is_free = |machine: &str| {
        !scene.is_held(machine, "lb")
            && scene.annotation(machine, "loadbalancer.cluster.x-k8s.io/member").is_none()
    };
    scene.until("nothing holds it as a Machine", || is_free("two"));
    // Hooks that were left by whoever was there before go with the load balancer as well.
    drop(running);
    let hook = "pre-drain.delete.hook.machine.cluster.x-k8s.io/lb=portcullis";
    scene.kubectl(&["annotate", "machine", "two", hook]);
    scene.kubectl(&["delete", BALANCERS, "lb", "--wait=false"]);
    let _running = scene.look_after().await;
    scene.until("it is gone", || scene.get("loadbalancer", "lb") == Value::Null);
    assert_eq!(scene.annotation("two", hook.split('=').next().unwrap()), None);
}

/// Without a reference what made it goes on, and that is told; Machines come and go.
#[tokio::test(flavor = "multi_thread")]
async fn a_reference_that_was_taken_out() {
    let (scene, _running) = two("wrong-reference", 600).await;
    scene.patch(BALANCERS, "lb", &json!({"spec": {"infrastructureRef": null}}));
    scene
        .until("that is told", || scene.condition("lb", "InfrastructureReady").0 == "False ReferenceRemoved");
    let (_, message) = scene.condition("lb", "InfrastructureReady");
    assert!(message.contains("LabBalancer lb still makes it"), "{message}");
    assert_eq!(scene.condition("lb", "Available").0, "True MembersActive");
    scene.patch(BALANCERS, "lb", &json!({"spec": {"allowedSourceRanges": ["10.0.0.0/8"]}}));
    scene.until("who is to be kept out is", || {
        scene.get("labbalancer", "lb")["spec"]["assignment"]["allowedSourceRanges"] == json!(["10.0.0.0/8"])
    });
    goes(&scene, "one", "two");
    scene.kubectl(&["delete", "labbalancer", "lb"]);
    scene.until("others make it then", || {
        scene.condition("lb", "InfrastructureReady").0 == "True MadeByOthers"
    });
    scene.kubectl(&["delete", "machine", "two", "--wait=false"]);
    scene.until("nobody is held", || scene.get("machine", "two") == Value::Null);
}

/// A Machine that may not be changed keeps its load balancer, and says so; what makes it goes all the same.
#[tokio::test(flavor = "multi_thread")]
async fn a_machine_that_may_not_be_let_go() {
    let (scene, _running) = two("wrong-removal", 600).await;
    let is_none = "!object.metadata.?annotations.orValue({}).exists(key, key.endsWith('/member'))";
    let when = format!(
        "object.metadata.namespace == '{}' && object.metadata.name == 'one' && {is_none}",
        scene.name
    );
    let machines = (&["UPDATE"][..], "cluster.x-k8s.io", "machines");
    let refusing =
        Refusing::of_group(scene.kubernetes, "wrong-removal", machines, &when, "everybody is a member here");
    let key = "loadbalancer.cluster.x-k8s.io/member-";
    let tried = ["annotate", "machine", "one", key, "--dry-run=server", "-n", scene.name];
    scene.until("it may not be changed", || scene.kubernetes.kubectl(&tried).is_err());
    scene.kubectl(&["delete", BALANCERS, "lb", "--wait=false"]);
    scene.until("that is told", || {
        let (state, message) = scene.condition("lb", "Deleting");
        state == "True Deleting"
            && message.contains("Machine one cannot be changed")
            && message.contains("everybody is a member here")
    });
    scene.until("what makes it goes", || scene.get("labbalancer", "lb") == Value::Null);
    assert!(!scene.is_held("two", "lb"), "the other one is free");
    assert!(scene.is_held("one", "lb"));
    assert_ne!(scene.get("loadbalancer", "lb"), Value::Null);
    drop(refusing);
    scene.until("it goes when that may be", || scene.get("loadbalancer", "lb") == Value::Null);
    assert!(!scene.is_held("one", "lb"));
}
