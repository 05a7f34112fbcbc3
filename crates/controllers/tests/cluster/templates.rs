//! Load balancers that are made from templates.

use portcullis_controllers::cluster::Templates;
use portcullis_kube_api::cluster::Flavour;
use serde_json::json;

use crate::scene::{Scene, client};

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_that_names_a_template_gets_one() {
    let scene = Scene::new("templates");
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
    scene.cluster("plain", json!({}), json!({}));
    let running = Templates::new(client(scene.kubernetes).await, Flavour::Own, Some(scene.name.to_owned()));
    let task = tokio::spawn(running.run());
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
    task.abort();
}
