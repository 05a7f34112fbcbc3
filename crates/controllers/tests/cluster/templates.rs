//! Load balancers that are made from templates.

use portcullis_controllers::cluster::Templates;
use portcullis_kube_api::cluster::Flavour;
use serde_json::{Value, json};

use crate::scene::{Running, Scene, client};

/// By this a template is named.
pub(crate) const TEMPLATE: &str = "portcullis.dev/load-balancer-template";

pub(crate) fn templates(scene: &Scene) {
    scene.apply(json!({
        "apiVersion": "loadbalancer.portcullis.dev/v1alpha1", "kind": "HAProxyLoadBalancerTemplate",
        "metadata": {"name": "edge"},
        "spec": {"template": {"spec": {"pool": "edge", "proxyProtocol": true}}},
    }));
    scene.apply(json!({
        "apiVersion": "loadbalancer.portcullis.dev/v1alpha1", "kind": "LoadBalancerTemplate",
        "metadata": {"name": "standard"},
        "spec": {"template": {
            "metadata": {"annotations": {"external-dns.alpha.kubernetes.io/ttl": "60"}},
            "spec": {
                "drainTimeoutSeconds": 30,
                "infrastructureRef": {"apiGroup": "loadbalancer.portcullis.dev", "kind": "HAProxyLoadBalancerTemplate", "name": "edge"},
            },
        }},
    }));
}

pub(crate) async fn make(scene: &Scene) -> Running {
    let client = client(scene.kubernetes).await;
    let templates = Templates::new(client, Flavour::Own, Some(scene.name.to_owned()), "test".to_owned());
    Running(tokio::spawn(templates.run()))
}

/// A class of Clusters, with these annotations.
fn class(scene: &Scene, annotations: Value) {
    scene.apply(json!({
        "apiVersion": "infrastructure.cluster.x-k8s.io/v1", "kind": "LabClusterTemplate",
        "metadata": {"name": "lab"},
        "spec": {"template": {"spec": {"size": "small"}}},
    }));
    scene.apply(json!({
        "apiVersion": "controlplane.cluster.x-k8s.io/v1", "kind": "LabControlPlaneTemplate",
        "metadata": {"name": "lab"},
        "spec": {"template": {"spec": {"machineTemplate": {"metadata": {"labels": {"mine": "yes"}}}}}},
    }));
    let template = |group: &str, kind: &str| json!({"templateRef": {"apiVersion": format!("{group}/v1"), "kind": kind, "name": "lab"}});
    scene.apply(json!({
        "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "ClusterClass",
        "metadata": {"name": "standard", "annotations": annotations},
        "spec": {
            "infrastructure": template("infrastructure.cluster.x-k8s.io", "LabClusterTemplate"),
            "controlPlane": template("controlplane.cluster.x-k8s.io", "LabControlPlaneTemplate"),
        },
    }));
}

/// A Cluster of that class.
fn cluster_of_it(scene: &Scene) {
    scene.apply(json!({
        "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster", "metadata": {"name": "c"},
        "spec": {"topology": {
            "classRef": {"name": "standard"}, "version": "v1.34.0", "controlPlane": {"replicas": 1},
        }},
    }));
    scene.until("Cluster API makes what the class says", || {
        scene.get("cluster", "c")["spec"]["controlPlaneRef"]["name"].is_string()
    });
}

/// A Cluster of a class gets one, and what Cluster API keeps as the class has it and what we write do not disturb each other.
#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_of_a_class_gets_one() {
    let scene = Scene::new("templates-class");
    templates(&scene);
    class(&scene, json!({TEMPLATE: "standard"}));
    let _all = (make(&scene).await, scene.look_after().await);
    cluster_of_it(&scene);
    scene.until("and it has a load balancer", || {
        scene.get("loadbalancer", "c")["spec"]["infrastructureRef"]["kind"] == "HAProxyLoadBalancer"
    });
    let plane = scene.get("cluster", "c")["spec"]["controlPlaneRef"]["name"].as_str().unwrap().to_owned();
    let made_from = || scene.get("labcontrolplane", &plane)["spec"]["machineTemplate"]["metadata"].clone();
    let hook = "pre-drain.delete.hook.machine.cluster.x-k8s.io/c";
    scene.until("its Machines are held from the start", || made_from()["annotations"][hook] == "portcullis");
    // Cluster API looks at it again, and writes what the class says now.
    scene.patch("cluster", "c", &json!({"spec": {"topology": {"controlPlane": {"replicas": 3}}}}));
    scene.until("the class is followed", || scene.get("labcontrolplane", &plane)["spec"]["replicas"] == 3);
    assert_eq!(made_from()["annotations"][hook], "portcullis", "what is ours stays");
    assert_eq!(made_from()["labels"]["mine"], "yes", "and what is the class's");
    // With the Cluster everything goes that was made for it.
    scene.kubectl(&["delete", "cluster", "c", "--wait=false"]);
    scene.until("its load balancer goes", || scene.get("loadbalancer", "c").is_null());
    scene.until("and what made it", || scene.get("haproxyloadbalancer", "c").is_null());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_that_names_a_template_gets_one() {
    let scene = Scene::new("templates");
    templates(&scene);
    scene.cluster("plain", json!({}), json!({}));
    let _making = make(&scene).await;
    scene.cluster("c", json!({"annotations": {TEMPLATE: "standard"}}), json!({}));
    scene.until("the Cluster has it", || {
        scene.get("cluster", "c")["metadata"]["annotations"]["portcullis.dev/control-plane-load-balancer"]
            == "c"
    });
    let balancer = scene.get("loadbalancer", "c");
    assert_eq!(balancer["spec"]["clusterName"], "c");
    assert_eq!(balancer["spec"]["drainTimeoutSeconds"], 30);
    assert_eq!(balancer["spec"]["infrastructureRef"]["kind"], "HAProxyLoadBalancer");
    assert_eq!(balancer["metadata"]["annotations"]["external-dns.alpha.kubernetes.io/ttl"], "60");
    let maker = scene.get("haproxyloadbalancer", "c");
    assert_eq!(maker["spec"], json!({"pool": "edge", "proxyProtocol": true}));
    assert!(scene.get("loadbalancer", "plain").is_null());
}

/// Whatever makes it: each of our kinds has a template, and what is made from it is asked to make the load balancer.
#[tokio::test(flavor = "multi_thread")]
async fn every_kind_has_a_template() {
    let scene = Scene::new("templates-kinds");
    let _all = (make(&scene).await, scene.look_after().await);
    let kinds = [
        ("AWSNLB", "nlb", json!({"vpc": "vpc-1", "subnets": ["subnet-a"], "tags": {"cost-centre": "42"}})),
        ("OVNLoadBalancer", "ovn", json!({"addresses": ["192.0.2.10"], "switches": ["sw"]})),
        ("HAProxyLoadBalancer", "haproxy", json!({"addresses": ["192.0.2.11"], "pool": "edge"})),
    ];
    for (kind, name, spec) in &kinds {
        let template = format!("{kind}Template");
        let of_maker = json!({"labels": {"team": "blue"}});
        scene.apply(json!({
            "apiVersion": "loadbalancer.portcullis.dev/v1alpha1", "kind": template, "metadata": {"name": name},
            "spec": {"template": {"metadata": of_maker, "spec": spec}},
        }));
        let reference = json!({"apiGroup": "loadbalancer.portcullis.dev", "kind": template, "name": name});
        scene.apply(json!({
            "apiVersion": "loadbalancer.portcullis.dev/v1alpha1", "kind": "LoadBalancerTemplate",
            "metadata": {"name": name}, "spec": {"template": {"spec": {"infrastructureRef": reference}}},
        }));
        let endpoint = json!({"host": "api.example.com", "port": 443});
        let named = json!({"annotations": {TEMPLATE: name}});
        scene.cluster(name, named, json!({"controlPlaneEndpoint": endpoint}));
        scene.control_plane(name, name, &format!("{name}-one"), "10.0.0.1");
    }
    for (kind, name, spec) in &kinds {
        scene.until("what makes it is asked to", || {
            let asked = scene.get(kind, name)["spec"]["assignment"].clone();
            asked["clusterName"] == *name && asked["members"][0]["name"] == format!("{name}-one")
        });
        let (balancer, maker) = (scene.get("loadbalancer", name), scene.get(kind, name));
        let reference = json!({"apiGroup": "loadbalancer.portcullis.dev", "kind": kind, "name": name});
        assert_eq!(balancer["spec"]["infrastructureRef"], reference);
        for (key, value) in spec.as_object().unwrap() {
            assert_eq!(maker["spec"][key], *value, "{kind}: {key}");
        }
        assert_eq!(maker["metadata"]["labels"]["team"], "blue");
        assert_eq!(maker["metadata"]["ownerReferences"][0]["kind"], "LoadBalancer", "they go together");
        let told = scene.events(name);
        assert!(!told.iter().any(|event| event.starts_with("TemplateUnusable: ")), "{told:?}");
    }
}

/// It is for the control plane before the Cluster says so, as when who makes it is killed in between: what makes it never hears of it
/// without the endpoint that the Cluster has.
#[tokio::test(flavor = "multi_thread")]
async fn it_is_for_the_control_plane_before_that_is_said() {
    let scene = Scene::new("templates-between");
    let endpoint = json!({"host": "api.example.com", "port": 443});
    let named = json!({"annotations": {TEMPLATE: "bare"}});
    scene.cluster("c", named, json!({"controlPlaneEndpoint": endpoint}));
    scene.control_plane("c", "c", "one", "10.0.0.1");
    scene.until("the Machine has its address", || {
        scene.get("machine", "one")["status"]["addresses"][0]["address"] == "10.0.0.1"
    });
    scene.maker("c");
    let reference =
        json!({"apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "LabBalancer", "name": "c"});
    scene.apply(json!({
        "apiVersion": "loadbalancer.portcullis.dev/v1alpha1", "kind": "LoadBalancer",
        "metadata": {
            "name": "c", "labels": {"cluster.x-k8s.io/cluster-name": "c"}, "annotations": {TEMPLATE: "bare"},
        },
        "spec": {"clusterName": "c", "infrastructureRef": reference},
    }));
    let _looking = scene.look_after().await;
    scene.until("it is asked for", || scene.assigned("c") == ["one Serve"]);
    let is_asked_once = || {
        let made = scene.get("labbalancer", "c");
        assert_eq!(made["spec"]["assignment"]["endpoint"], endpoint);
        assert_eq!(made["metadata"]["generation"], 2, "what it was asked for first is all it was asked for");
    };
    is_asked_once();
    scene.apply(json!({
        "apiVersion": "loadbalancer.portcullis.dev/v1alpha1", "kind": "LoadBalancerTemplate",
        "metadata": {"name": "bare"}, "spec": {"template": {"spec": {}}},
    }));
    let _making = make(&scene).await;
    scene.until("the Cluster says so", || {
        scene.get("cluster", "c")["metadata"]["annotations"]["portcullis.dev/control-plane-load-balancer"]
            == "c"
    });
    is_asked_once();
}

/// What is wrong with a template is told where somebody looks for it, once, and put right it counts.
#[tokio::test(flavor = "multi_thread")]
async fn a_mistake_is_told() {
    let scene = Scene::new("templates-wrong");
    let _making = make(&scene).await;
    scene.cluster("c", json!({"annotations": {TEMPLATE: "standard"}}), json!({}));
    let told = |words: &str| {
        let events = scene.events("c");
        events.iter().filter(|event| event.starts_with("TemplateUnusable: ") && event.contains(words)).count()
    };
    scene.until("that there is none is told", || told("there is no LoadBalancerTemplate standard.") == 1);
    let template = |kind: &str| {
        let reference = json!({"apiGroup": "loadbalancer.portcullis.dev", "kind": kind, "name": "edge"});
        scene.apply(json!({
            "apiVersion": "loadbalancer.portcullis.dev/v1alpha1", "kind": "LoadBalancerTemplate",
            "metadata": {"name": "standard"},
            "spec": {"template": {"spec": {"infrastructureRef": reference}}},
        }));
    };
    template("HAProxyLoadBalancer");
    scene.until("that it is none is told", || told("names a HAProxyLoadBalancer, and a template") == 1);
    template("HAProxyLoadBalancerTemplate");
    scene.until("what it lacks is told", || told("there is no HAProxyLoadBalancerTemplate edge.") == 1);
    assert!(scene.get("loadbalancer", "c").is_null());
    templates(&scene);
    scene.until("it has one", || scene.get("loadbalancer", "c").is_object());
    // It was tried again and again meanwhile.
    let events: Value = serde_json::from_str(&scene.kubectl(&["get", "events", "-o", "json"])).unwrap();
    let events = events["items"].as_array().unwrap().iter();
    let told = events.filter(|event| event["reason"] == "TemplateUnusable");
    assert!(told.clone().all(|event| event["count"] == 1), "{:?}", told.collect::<Vec<_>>());
}

/// What happens to have the Cluster's name is not taken for what was made from the template.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_somebody_elses_is_left_alone() {
    let scene = Scene::new("templates-taken");
    templates(&scene);
    let selector = json!({"matchLabels": {"role": "ingress"}});
    scene.apply(json!({
        "apiVersion": "loadbalancer.portcullis.dev/v1alpha1", "kind": "LoadBalancer",
        "metadata": {"name": "c", "labels": {"cluster.x-k8s.io/cluster-name": "c"}},
        "spec": {"clusterName": "c", "selector": selector},
    }));
    let _making = make(&scene).await;
    scene.cluster("c", json!({"annotations": {TEMPLATE: "standard"}}), json!({}));
    scene.until("that is told", || {
        let events = scene.events("c");
        events.iter().any(|event| {
            event.starts_with("TemplateUnusable: ") && event.contains("there is a LoadBalancer c already")
        })
    });
    let named = || {
        scene.get("cluster", "c")["metadata"]["annotations"]["portcullis.dev/control-plane-load-balancer"]
            .clone()
    };
    assert!(named().is_null());
    assert_eq!(scene.get("loadbalancer", "c")["spec"]["selector"], selector);
    scene.kubectl(&["delete", "loadbalancers.loadbalancer.portcullis.dev", "c"]);
    scene.until("it has one when that is gone", || named() == "c");
    assert_eq!(scene.get("loadbalancer", "c")["metadata"]["annotations"][TEMPLATE], "standard");
}
