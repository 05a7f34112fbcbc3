//! Who is a member, and when a Machine may go.

use serde_json::{Value, json};

use crate::scene::Scene;

fn three(name: &'static str) -> Scene {
    let scene = Scene::new(name);
    scene.cluster("c", json!({}), json!({}));
    for (number, machine) in ["one", "two", "three"].iter().enumerate() {
        scene.control_plane("c", "lb", machine, &format!("10.0.0.{}", number + 1));
    }
    scene
}

const ALL: [(&str, &str); 3] = [("one", "active"), ("two", "active"), ("three", "active")];

#[tokio::test(flavor = "multi_thread")]
async fn machines_join_and_leave() {
    let scene = three("members-life");
    scene.balancer(
        "c",
        "lb",
        json!({"drainTimeoutSeconds": 600, "endpoint": {"host": "api.example.com", "port": 443}}),
    );
    let _running = scene.look_after().await;
    scene.until("all are members", || scene.assigned("lb") == ["one Serve", "three Serve", "two Serve"]);
    let made = scene.get("labbalancer", "lb");
    let assignment = &made["spec"]["assignment"];
    assert_eq!(assignment["endpoint"], json!({"host": "api.example.com", "port": 443}));
    assert_eq!(assignment["clusterName"], "c");
    assert_eq!(assignment["listeners"][0]["port"], 443);
    assert_eq!(assignment["listeners"][0]["targetPort"], 6443);
    assert_eq!(assignment["listeners"][0]["healthCheck"]["path"], "/readyz");
    assert_eq!(assignment["members"][0]["addresses"], json!(["10.0.0.1"]));
    assert!(assignment.get("allowedSourceRanges").is_none(), "nothing was said, so everyone");
    for machine in ["one", "two", "three"] {
        assert!(scene.is_held(machine, "lb"), "{machine} is held before anybody hears of it");
    }
    scene.until("they say that they are being added", || {
        scene.annotation("one", "loadbalancer.cluster.x-k8s.io/status").as_deref() == Some("adding")
            && scene.annotation("one", "loadbalancer.cluster.x-k8s.io/member").as_deref() == Some("lb")
    });
    assert_eq!(scene.condition("lb", "Available").0, "False NoActiveMember");

    scene.report("lb", "198.51.100.1", &ALL);
    scene.until("they are active", || {
        scene.annotation("three", "loadbalancer.cluster.x-k8s.io/status").as_deref() == Some("active")
            && scene.condition("lb", "Available").0 == "True MembersActive"
    });
    let balancer = scene.get("loadbalancer", "lb");
    assert_eq!(balancer["status"]["activeTargets"], json!(["one", "three", "two"]));
    assert_eq!(balancer["status"]["targetKind"], "Machine.cluster.x-k8s.io");
    assert_eq!(
        balancer["status"]["targetSelector"],
        "cluster.x-k8s.io/cluster-name=c,loadbalancer.cluster.x-k8s.io/name=lb"
    );
    assert_eq!(balancer["status"]["address"], "198.51.100.1");
    assert_eq!(scene.condition("lb", "MembersUpToDate").0, "True UpToDate");
    assert_eq!(scene.condition("lb", "InfrastructureReady").0, "True Made");
    assert_eq!(scene.condition("lb", "Degraded").0, "False AsExpected");

    scene.kubectl(&["delete", "machine", "one", "--wait=false"]);
    scene.until("it is to leave", || scene.assigned("lb")[0] == "one Leave");
    scene.until("its deletion waits for us", || {
        let machine = scene.get("machine", "one");
        let conditions = machine["status"]["conditions"].as_array().cloned().unwrap_or_default();
        conditions.iter().any(|condition| {
            condition["type"] == "Deleting"
                && condition["reason"].as_str().is_some_and(|reason| reason.starts_with("WaitingForPre"))
        })
    });
    scene.until("that is told", || scene.status("lb", "one").as_deref() == Some("draining"));
    scene.report("lb", "198.51.100.1", &[("one", "draining"), ("two", "active"), ("three", "active")]);
    scene.until("it is known to drain", || {
        scene.annotation("one", "loadbalancer.cluster.x-k8s.io/status").as_deref() == Some("draining")
    });
    assert!(scene.is_held("one", "lb"));
    scene.report("lb", "198.51.100.1", &[("one", "removed"), ("two", "active"), ("three", "active")]);
    scene.until("it is gone", || scene.get("machine", "one") == Value::Null);
    scene.until("it is forgotten", || scene.assigned("lb") == ["three Serve", "two Serve"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn who_is_disabled_stays_so_until_the_wish_changes() {
    let scene = three("members-disabled");
    scene.balancer("c", "lb", json!({}));
    let _running = scene.look_after().await;
    scene.until("all are members", || scene.assigned("lb").len() == 3);
    scene.report("lb", "198.51.100.1", &ALL);
    scene.kubectl(&["annotate", "machine", "two", "loadbalancer.cluster.x-k8s.io/disabled="]);
    scene.until("it is kept aside", || scene.assigned("lb")[2] == "two Rest");
    scene.until("that is told", || scene.status("lb", "two").as_deref() == Some("disabling"));
    scene.report("lb", "198.51.100.1", &[("one", "active"), ("two", "disabled"), ("three", "active")]);
    scene.until("it is disabled", || {
        scene.annotation("two", "loadbalancer.cluster.x-k8s.io/status").as_deref() == Some("disabled")
    });
    // Neither a change of something else nor a healthy answer brings it back.
    scene.patch(
        "loadbalancers.loadbalancer.portcullis.dev",
        "lb",
        &json!({"spec": {"allowedSourceRanges": []}}),
    );
    scene.until("the ranges are passed on", || {
        scene.get("labbalancer", "lb")["spec"]["assignment"]["allowedSourceRanges"] == json!([])
    });
    assert_eq!(scene.assigned("lb")[2], "two Rest");
    scene.patch(
        "loadbalancers.loadbalancer.portcullis.dev",
        "lb",
        &json!({"spec": {"allowedSourceRanges": null}}),
    );
    scene.until("everyone may connect again", || {
        scene.get("labbalancer", "lb")["spec"]["assignment"].get("allowedSourceRanges").is_none()
    });
    scene.kubectl(&["annotate", "machine", "two", "loadbalancer.cluster.x-k8s.io/disabled-"]);
    scene.until("it serves again", || scene.assigned("lb")[2] == "two Serve");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_provider_that_says_nothing_holds_nobody_for_ever() {
    let scene = three("members-deadline");
    scene.balancer("c", "lb", json!({"drainTimeoutSeconds": 0}));
    let _running = scene.look_after().await;
    scene.until("all are members", || scene.assigned("lb").len() == 3);
    scene.report("lb", "198.51.100.1", &ALL);
    scene.until("they are active", || scene.status("lb", "one").as_deref() == Some("active"));
    scene.kubectl(&["delete", "machine", "one", "--wait=false"]);
    scene.until("it is to leave", || scene.assigned("lb")[0] == "one Leave");
    // What it is in stays after that, so that what is told can be seen.
    scene.patch("labmachine", "one", &json!({"metadata": {"finalizers": ["lab/machine"]}}));
    // Thirty seconds later it is let go although nobody said anything.
    scene.until("that is told", || scene.condition("lb", "Degraded").0 == "True DrainOverdue");
    let (_, message) = scene.condition("lb", "Degraded");
    assert!(message.starts_with("one: the time to leave is over"), "{message}");
    scene.until("its infrastructure goes", || {
        scene.get("labmachine", "one")["metadata"].get("deletionTimestamp").is_some()
    });
    assert_eq!(scene.status("lb", "one").as_deref(), Some("draining"), "nobody said that it has left");
    scene.patch("labmachine", "one", &json!({"metadata": {"finalizers": null}}));
    scene.until("it is gone", || scene.get("machine", "one") == Value::Null);
    scene.until("all is well", || scene.condition("lb", "Degraded").0 == "False AsExpected");
}

/// Cluster API itself works through it: the last one that answers serves on until another does.
#[tokio::test(flavor = "multi_thread")]
async fn the_last_one_that_answers_stays() {
    let scene = Scene::new("members-last");
    scene.cluster("c", json!({}), json!({}));
    scene.control_plane("c", "lb", "one", "10.0.0.1");
    scene.balancer("c", "lb", json!({"drainTimeoutSeconds": 600}));
    let _running = scene.look_after().await;
    scene.until("it is a member", || scene.assigned("lb") == ["one Serve"]);
    scene.report("lb", "198.51.100.1", &[("one", "active")]);
    scene.until("it serves", || scene.status("lb", "one").as_deref() == Some("active"));
    scene.kubectl(&["delete", "machine", "one", "--wait=false"]);
    scene.until("that it stays is told", || scene.condition("lb", "Degraded").0 == "True LastMember");
    let (_, message) = scene.condition("lb", "Degraded");
    assert_eq!(message, "one is to go, and stays since no other member answers.");
    assert_eq!(scene.assigned("lb"), ["one Serve"]);
    assert_eq!(scene.status("lb", "one").as_deref(), Some("active"));
    // Another one that does not answer yet makes no difference.
    scene.control_plane("c", "lb", "two", "10.0.0.2");
    scene.until("it joins", || scene.assigned("lb") == ["one Serve", "two Serve"]);
    scene.report("lb", "198.51.100.1", &[("one", "active"), ("two", "adding")]);
    scene.until("that was seen", || scene.status("lb", "two").as_deref() == Some("adding"));
    assert_eq!(scene.condition("lb", "Degraded").0, "True LastMember");
    assert!(scene.is_held("one", "lb"));
    scene.report("lb", "198.51.100.1", &[("one", "active"), ("two", "active")]);
    scene.until("it leaves when the other answers", || scene.assigned("lb") == ["one Leave", "two Serve"]);
    scene.until("that is as it should be", || scene.condition("lb", "Degraded").0 == "False AsExpected");
    assert!(scene.is_held("one", "lb"), "it has all of its time");
    scene.report("lb", "198.51.100.1", &[("one", "removed"), ("two", "active")]);
    scene.until("it is gone", || scene.get("machine", "one") == Value::Null);
}

#[tokio::test(flavor = "multi_thread")]
async fn labels_decide_who_is_meant() {
    let scene = Scene::new("members-labels");
    scene.cluster("c", json!({}), json!({}));
    scene.machine("c", "worker", "10.0.0.9", json!({"role": "ingress"}));
    scene.balancer("c", "lb", json!({
        "selector": {"matchLabels": {"role": "ingress"}},
        "listeners": [{"port": 443, "targetPort": 30443}, {"name": "http", "port": 80, "targetPort": 30080}],
        "drainTimeoutSeconds": 600,
    }));
    let _running = scene.look_after().await;
    scene.until("it is a member", || scene.assigned("lb") == ["worker Serve"]);
    assert_eq!(
        scene.get("labbalancer", "lb")["spec"]["assignment"]["listeners"][1]["healthCheck"]["protocol"],
        "TCP"
    );
    scene.machine("c", "other", "10.0.0.10", json!({"role": "ingress"}));
    scene.until("so is the other", || scene.assigned("lb") == ["other Serve", "worker Serve"]);
    scene.report("lb", "198.51.100.1", &[("worker", "active"), ("other", "active")]);
    scene.until("both are active", || scene.status("lb", "other").as_deref() == Some("active"));
    scene.kubectl(&["label", "machine", "worker", "role-"]);
    scene.until("it leaves, and nobody deletes it", || {
        scene.assigned("lb") == ["other Serve", "worker Leave"]
    });
    scene.report("lb", "198.51.100.1", &[("worker", "removed"), ("other", "active")]);
    scene.until("it has nothing of us left", || {
        !scene.is_held("worker", "lb")
            && scene.annotation("worker", "loadbalancer.cluster.x-k8s.io/member").is_none()
    });
    assert_eq!(scene.assigned("lb"), ["other Serve"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn other_kinds_can_be_members() {
    let scene = Scene::new("members-kinds");
    scene.cluster("c", json!({}), json!({}));
    scene.apply(json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "web", "labels": {"app": "web"}},
        "spec": {"containers": [{"name": "web", "image": "web"}]},
    }));
    let status = json!({"status": {"podIP": "10.1.0.1", "podIPs": [{"ip": "10.1.0.1"}]}});
    scene.kubectl(&[
        "patch",
        "pod",
        "web",
        "--subresource=status",
        "--type=merge",
        "-p",
        &status.to_string(),
    ]);
    scene.balancer(
        "c",
        "lb",
        json!({
            "targetKind": {"apiGroup": "", "kind": "Pod"},
            "selector": {"matchLabels": {"app": "web"}},
            "listeners": [{"port": 80}],
        }),
    );
    let _running = scene.look_after().await;
    scene.until("it is a member", || scene.assigned("lb") == ["web Serve"]);
    scene.until("its kind is told", || scene.get("loadbalancer", "lb")["status"]["targetKind"] == "Pod");
    assert_eq!(
        scene.get("pod", "web")["metadata"]["annotations"]["loadbalancer.cluster.x-k8s.io/member"],
        "lb"
    );
    let annotations = scene.get("pod", "web")["metadata"]["annotations"].to_string();
    assert!(!annotations.contains("hook"), "nothing holds a Pod: {annotations}");
}

/// A selector may match more than is of the Cluster: Machines of another are no members, and nobody waits for them, or for what is no
/// Machine, when the Cluster goes.
#[tokio::test(flavor = "multi_thread")]
async fn with_its_cluster_one_goes_whoever_else_its_selector_matches() {
    let scene = Scene::new("members-goes");
    scene.cluster("c", json!({}), json!({}));
    scene.cluster("d", json!({}), json!({}));
    scene.machine("d", "theirs", "10.0.0.8", json!({"role": "ingress"}));
    scene.machine("c", "ours", "10.0.0.9", json!({"role": "ingress"}));
    scene.apply(json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web", "labels": {"app": "web"}},
        "spec": {"containers": [{"name": "web", "image": "web"}]},
    }));
    let status = json!({"status": {"podIP": "10.1.0.1", "podIPs": [{"ip": "10.1.0.1"}]}}).to_string();
    scene.kubectl(&["patch", "pod", "web", "--subresource=status", "--type=merge", "-p", &status]);
    let pods = json!({
        "targetKind": {"apiGroup": "", "kind": "Pod"}, "selector": {"matchLabels": {"app": "web"}},
        "listeners": [{"port": 80}],
    });
    let (here, there) = ("goes", "stays");
    for (cluster, name) in [("c", here), ("d", there)] {
        let machines =
            json!({"selector": {"matchLabels": {"role": "ingress"}}, "listeners": [{"port": 443}]});
        scene.balancer(cluster, name, machines);
    }
    scene.balancer("c", "pods", pods);
    let _running = scene.look_after().await;
    scene.until("each has its own", || {
        scene.assigned(here) == ["ours Serve"] && scene.assigned(there) == ["theirs Serve"]
    });
    scene.until("others can be members, too", || scene.assigned("pods") == ["web Serve"]);
    for (name, member) in [(here, "ours"), (there, "theirs"), ("pods", "web")] {
        scene.report(name, "198.51.100.1", &[(member, "active")]);
        scene.until("nobody is anybody else's", || {
            scene.condition(name, "MembersUpToDate").0 == "True UpToDate"
        });
    }
    scene.kubectl(&["delete", "cluster", "c", "--wait=false"]);
    for name in [here, "pods"] {
        scene.until("it goes with the Cluster", || scene.get("loadbalancer", name) == Value::Null);
    }
    assert!(scene.get("pod", "web").is_object() && scene.get("machine", "theirs").is_object());
    assert_eq!(scene.assigned(there), ["theirs Serve"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn control_planes_make_machines_that_are_held_from_the_start() {
    let scene = Scene::new("members-plane");
    let plane =
        json!({"apiGroup": "controlplane.cluster.x-k8s.io", "kind": "LabControlPlane", "name": "plane"});
    let metadata = json!({"annotations": {"portcullis.dev/control-plane-load-balancer": "lb"}});
    scene.apply(json!({
        "apiVersion": "controlplane.cluster.x-k8s.io/v1", "kind": "LabControlPlane", "metadata": {"name": "plane"},
        "spec": {
            "machineTemplate": {"metadata": {"labels": {"mine": "yes"}, "annotations": {"mine": "too"}}},
            "kubeadmConfigSpec": {"clusterConfiguration": {"apiServer": {"certSANs": ["known.example.com"]}}},
        },
    }));
    scene.cluster("c", metadata, json!({"controlPlaneRef": plane}));
    scene.balancer(
        "c",
        "lb",
        json!({"alternateEndpoints": [
            {"host": "known.example.com", "port": 443}, {"host": "unknown.example.com", "port": 443},
        ]}),
    );
    let running = scene.look_after().await;
    let template = || scene.get("labcontrolplane", "plane")["spec"]["machineTemplate"]["metadata"].clone();
    let hook = "pre-drain.delete.hook.machine.cluster.x-k8s.io/lb";
    scene.until("what they are made from holds them", || template()["annotations"][hook] == "portcullis");
    assert_eq!(
        template()["annotations"]["pre-terminate.delete.hook.machine.cluster.x-k8s.io/lb"],
        "portcullis"
    );
    assert_eq!(template()["annotations"]["mine"], "too");
    assert_eq!(template()["labels"], json!({"mine": "yes", "loadbalancer.cluster.x-k8s.io/name": "lb"}));
    scene.until("a name that the certificate lacks is told", || {
        scene.events("lb").iter().any(|event| event.starts_with("NameNotInCertificate: unknown.example.com"))
    });
    assert!(scene.events("lb").iter().all(|event| !event.contains(" known.example.com")));
    // As the control plane makes them: one that has no address yet, and one that the load balancer does not mean.
    for (name, balancer) in [("fresh", "lb"), ("other", "none")] {
        let mut metadata = template();
        metadata["name"] = json!(name);
        metadata["labels"]["loadbalancer.cluster.x-k8s.io/name"] = json!(balancer);
        metadata["labels"]["cluster.x-k8s.io/cluster-name"] = json!("c");
        metadata["labels"]["cluster.x-k8s.io/control-plane"] = json!("");
        let reference =
            json!({"apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "LabMachine", "name": name});
        scene.apply(json!({
            "apiVersion": "infrastructure.cluster.x-k8s.io/v1", "kind": "LabMachine",
            "metadata": {"name": name}, "spec": {},
        }));
        scene.apply(json!({
            "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Machine", "metadata": metadata,
            "spec": {"clusterName": "c", "bootstrap": {"dataSecretName": "none"}, "infrastructureRef": reference},
        }));
    }
    scene.until("it is known", || scene.status("lb", "fresh").is_some());
    assert!(scene.is_held("fresh", "lb"));
    assert!(scene.is_held("other", "lb"), "the control plane would put it on again");
    scene.kubectl(&["delete", "machine", "fresh", "other", "--wait=false"]);
    for machine in ["fresh", "other"] {
        scene.until("nobody waits for what never served", || scene.get("machine", machine) == Value::Null);
    }
    scene.kubectl(&["delete", "loadbalancers.loadbalancer.portcullis.dev", "lb"]);
    assert!(template()["annotations"].get(hook).is_none(), "nothing is left that would hold them");
    drop(running);
}

#[tokio::test(flavor = "multi_thread")]
async fn its_node_is_drained_after_it_has_left() {
    let scene = three("members-nodes");
    // The cluster that the Machines make is this one.
    let kubeconfig = std::fs::read_to_string(scene.kubernetes.kubeconfig()).unwrap();
    scene.apply(json!({
        "apiVersion": "v1", "kind": "Secret", "type": "cluster.x-k8s.io/secret",
        "metadata": {"name": "c-kubeconfig", "labels": {"cluster.x-k8s.io/cluster-name": "c"}},
        "stringData": {"value": kubeconfig},
    }));
    let patch = json!({"spec": {"controlPlaneEndpoint": {"host": "127.0.0.1", "port": 6443}}});
    scene.patch("cluster", "c", &patch);
    for machine in ["one", "two", "three"] {
        let provider = format!("lab://{}/{machine}", scene.name);
        let node = json!({
            "apiVersion": "v1", "kind": "Node", "metadata": {"name": format!("{}-{machine}", scene.name)},
            "spec": {"providerID": provider},
        });
        scene.kubernetes.apply(&node.to_string()).unwrap();
    }
    scene.balancer("c", "lb", json!({"drainTimeoutSeconds": 600}));
    let _running = scene.look_after().await;
    scene.until("all are members", || scene.assigned("lb").len() == 3);
    scene.report("lb", "198.51.100.1", &ALL);
    for machine in ["one", "two", "three"] {
        scene.until("it has its node", || {
            scene.get("machine", machine)["status"]["nodeRef"]["name"].is_string()
        });
    }
    scene.kubectl(&["delete", "machine", "one", "--wait=false"]);
    let reason = || {
        let machine = scene.get("machine", "one");
        let conditions = machine["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let deleting = conditions.iter().find(|condition| condition["type"] == "Deleting").cloned();
        deleting
            .map(|deleting| deleting["reason"].as_str().unwrap_or_default().to_owned())
            .unwrap_or_default()
    };
    scene.until("it waits before its node is drained", || reason() == "WaitingForPreDrainHook");
    let node = format!("{}-one", scene.name);
    let is_cordoned = || {
        let found = scene.kubernetes.kubectl(&["get", "node", &node, "-o", "jsonpath={.spec.unschedulable}"]);
        found.is_ok_and(|text| text == "true")
    };
    assert!(!is_cordoned(), "what runs there goes on");
    // What makes the Machine waits until it is allowed to go on, so that what came before can be seen.
    scene.patch("labmachine", "one", &json!({"metadata": {"finalizers": ["lab/machine"]}}));
    scene.report("lb", "198.51.100.1", &[("one", "removed"), ("two", "active"), ("three", "active")]);
    scene.until("its node is drained then", is_cordoned);
    scene.until("its infrastructure goes after that", || {
        scene.get("labmachine", "one")["metadata"].get("deletionTimestamp").is_some()
    });
    scene.patch("labmachine", "one", &json!({"metadata": {"finalizers": null}}));
    scene.until("it is gone", || scene.get("machine", "one") == Value::Null);
    for machine in ["one", "two", "three"] {
        let _ = scene.kubernetes.kubectl(&[
            "delete",
            "node",
            &format!("{}-{machine}", scene.name),
            "--ignore-not-found",
        ]);
    }
}

/// Who says by the other annotation whose it is is believed: a second load balancer that means it too, and is older, does not get it.
#[tokio::test(flavor = "multi_thread")]
async fn the_other_annotation_of_a_member_is_read() {
    let scene = Scene::new("members-other-name");
    let name = "loadbalancer.cluster.x-k8s.io/name";
    scene.cluster("c", json!({}), json!({}));
    scene.machine("c", "one", "10.0.0.1", json!({"role": "ingress"}));
    scene.machine("c", "two", "10.0.0.2", json!({"role": "ingress"}));
    scene.kubectl(&["annotate", "machine", "one", &format!("{name}=younger")]);
    let selector = json!({"selector": {"matchLabels": {"role": "ingress"}}});
    scene.balancer("c", "aged", selector.clone());
    // Of two that are made within a second the name decides, which is the same here.
    scene.balancer("c", "younger", selector);
    let _running = scene.look_after().await;
    scene.until("each has its own", || {
        scene.assigned("aged") == ["two Serve"] && scene.assigned("younger") == ["one Serve"]
    });
    scene.until("the older one is told", || {
        scene.condition("aged", "MembersUpToDate").1.contains("one is a member of younger")
    });
    let annotations = || scene.get("machine", "one")["metadata"]["annotations"].clone();
    assert_eq!(annotations()["loadbalancer.cluster.x-k8s.io/member"], "younger");
    assert_eq!(annotations()[name], "younger", "it is read, and not written");
    assert!(scene.get("machine", "two")["metadata"]["annotations"].get(name).is_none());
}

/// Whoever writes and reads the version before, which the manager converts, has all of it, too.
#[tokio::test(flavor = "multi_thread")]
async fn by_the_version_before() {
    let scene = Scene::new("members-before");
    let (group, infrastructure) = ("cluster.x-k8s.io/v1beta1", "infrastructure.cluster.x-k8s.io/v1");
    let reference = |kind: &str, name: &str| json!({"apiVersion": infrastructure, "kind": kind, "name": name, "namespace": scene.name});
    scene.apply(json!({
        "apiVersion": infrastructure, "kind": "LabCluster", "metadata": {"name": "c"}, "spec": {},
        "status": {"initialization": {"provisioned": true}},
    }));
    scene.apply(json!({
        "apiVersion": group, "kind": "Cluster",
        "metadata": {"name": "c", "annotations": {"portcullis.dev/control-plane-load-balancer": "lb"}},
        "spec": {"infrastructureRef": reference("LabCluster", "c")},
    }));
    for (name, address) in [("one", "10.0.0.1"), ("two", "10.0.0.2")] {
        scene.apply(json!({
            "apiVersion": infrastructure, "kind": "LabMachine", "metadata": {"name": name},
            "spec": {"providerID": format!("lab://{}/{name}", scene.name)},
            "status": {
                "initialization": {"provisioned": true},
                "addresses": [{"type": "InternalIP", "address": address}],
            },
        }));
        let labels = json!({
            "cluster.x-k8s.io/cluster-name": "c", "cluster.x-k8s.io/control-plane": "",
            "loadbalancer.cluster.x-k8s.io/name": "lb",
        });
        scene.apply(json!({
            "apiVersion": group, "kind": "Machine", "metadata": {"name": name, "labels": labels},
            "spec": {
                "clusterName": "c", "bootstrap": {"dataSecretName": "none"},
                "infrastructureRef": reference("LabMachine", name),
            },
        }));
    }
    let endpoint = json!({"host": "api.example.com", "port": 443});
    scene.balancer("c", "lb", json!({"endpoint": endpoint}));
    let _running = scene.look_after().await;
    scene.until("both are members", || scene.assigned("lb") == ["one Serve", "two Serve"]);
    scene.report("lb", "198.51.100.1", &[("one", "active"), ("two", "active")]);
    let before = |kind: &str, name: &str| scene.get(&format!("{kind}.v1beta1.cluster.x-k8s.io"), name);
    scene.until("its Machines say so", || {
        let annotations = before("machines", "one")["metadata"]["annotations"].clone();
        annotations["loadbalancer.cluster.x-k8s.io/status"] == "active"
            && annotations.get("pre-drain.delete.hook.machine.cluster.x-k8s.io/lb").is_some()
    });
    scene.until("the Cluster has its endpoint", || {
        before("clusters", "c")["spec"]["controlPlaneEndpoint"] == endpoint
    });
    // Out of service and in again, and out for good.
    let disabled = "loadbalancer.cluster.x-k8s.io/disabled";
    let machine = "machines.v1beta1.cluster.x-k8s.io";
    scene.kubectl(&["annotate", machine, "two", &format!("{disabled}=")]);
    scene.until("it rests", || scene.assigned("lb") == ["one Serve", "two Rest"]);
    scene.kubectl(&["annotate", machine, "two", &format!("{disabled}-")]);
    scene.until("it serves", || scene.assigned("lb") == ["one Serve", "two Serve"]);
    scene.kubectl(&["delete", machine, "one", "--wait=false"]);
    scene.until("it leaves", || scene.assigned("lb") == ["one Leave", "two Serve"]);
    scene.report("lb", "198.51.100.1", &[("one", "removed"), ("two", "active")]);
    scene.until("it is gone", || before("machines", "one") == Value::Null);
}
