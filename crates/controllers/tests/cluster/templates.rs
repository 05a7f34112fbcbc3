//! Load balancers that are made from templates.

use portcullis_controllers::cluster::Templates;
use portcullis_kube_api::cluster::Flavour;
use serde_json::json;

use crate::scene::{Running, Scene, client};

fn templates(scene: &Scene) {
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

async fn make(scene: &Scene) -> Running {
    let templates = Templates::new(client(scene.kubernetes).await, Flavour::Own, Some(scene.name.to_owned()));
    Running(tokio::spawn(templates.run()))
}

/// A Cluster of a class gets one, and what Cluster API keeps as the class has it and what we write do not disturb each other.
#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_of_a_class_gets_one() {
    let scene = Scene::new("templates-class");
    templates(&scene);
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
        "metadata": {
            "name": "standard",
            "annotations": {"portcullis.dev/load-balancer-template": "standard"},
        },
        "spec": {
            "infrastructure": template("infrastructure.cluster.x-k8s.io", "LabClusterTemplate"),
            "controlPlane": template("controlplane.cluster.x-k8s.io", "LabControlPlaneTemplate"),
        },
    }));
    let _all = (make(&scene).await, scene.look_after().await);
    scene.apply(json!({
        "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster", "metadata": {"name": "c"},
        "spec": {"topology": {
            "classRef": {"name": "standard"}, "version": "v1.34.0", "controlPlane": {"replicas": 1},
        }},
    }));
    scene.until("Cluster API makes what the class says", || {
        scene.get("cluster", "c")["spec"]["controlPlaneRef"]["name"].is_string()
    });
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
    scene.cluster(
        "c",
        json!({"annotations": {"portcullis.dev/load-balancer-template": "standard"}}),
        json!({}),
    );
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
