//! Real packets decide: kube-proxy serves the address of a router's Service.

use std::sync::mpsc;

use portcullis_controllers::ingress::{Enforcer, IngressControllers};
use portcullis_controllers::router::Platform;
use portcullis_kube_api::ingress::CRD;
use portcullis_testkit::{Host, KubeProxy, Target, can_connect, eventually, kubernetes_in, link};
use serde_json::json;

use crate::cluster::Cluster;

const ADDRESS: &str = "203.0.113.100";
const NODE: &str = "192.0.2.1";

#[test]
fn who_is_in_the_ranges_connects_and_nobody_else() {
    let [node, inside, outside, backend] = ["node", "inside", "outside", "backend"].map(Host::new);
    link(&inside, &["192.0.2.10/24"], &node, &["192.0.2.1/24"]);
    link(&outside, &["198.51.100.10/24"], &node, &["198.51.100.1/24"]);
    link(&backend, &["10.244.0.2/24"], &node, &["10.244.0.1/24"]);
    node.forward();
    inside.default_route("192.0.2.1");
    outside.default_route("198.51.100.1");
    backend.default_route("10.244.0.1");
    let _serving = backend.serve(8080);
    let kubernetes = kubernetes_in(&node);
    let _proxy = KubeProxy::start(&kubernetes, "node1", NODE);
    let cluster = Cluster::on(&kubernetes, CRD, "packets");

    // The API is in the namespace of the node, and so is who looks after it.
    let (stop, stopped) = mpsc::channel::<()>();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            kubernetes.namespace().run(move || {
                let runtime = tokio::runtime::Runtime::new().unwrap();
                runtime.block_on(async {
                    let mut settings = cluster.settings(Platform::BareMetal);
                    settings.enforcer = Enforcer::KubeProxy;
                    tokio::spawn(IngressControllers::new(cluster.client().await, settings).run());
                });
                let _ = stopped.recv();
            });
        });
        let cluster = Cluster::of(&kubernetes, "packets");
        let apply =
            |range: &str| cluster.apply("shop", json!({"scope": "External", "allowedSourceRanges": [range]}));
        apply("192.0.2.0/24");
        eventually("a Service", || !cluster.service("shop").is_null());
        let slice = json!({
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {
                "name": "shop-1",
                "namespace": cluster.routers(),
                "labels": {"kubernetes.io/service-name": "router-shop"},
            },
            "addressType": "IPv4",
            "endpoints": [{"addresses": ["10.244.0.2"], "nodeName": "node1", "conditions": {"ready": true}}],
            "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}],
        });
        kubernetes.apply(&slice.to_string()).unwrap();
        cluster.edit_service_status(
            "shop",
            &json!({"status": {"loadBalancer": {"ingress": [{"ip": ADDRESS}]}}}),
        );
        cluster.wait_for("shop", "LoadBalancerReady", "True/LoadBalancerProvisioned");

        eventually("who is in the range connects", || can_connect(&inside, ADDRESS, Target::Tcp(80)));
        assert!(!can_connect(&outside, ADDRESS, Target::Tcp(80)));
        apply("198.51.100.0/24");
        eventually("who is in the new range connects", || can_connect(&outside, ADDRESS, Target::Tcp(80)));
        assert!(!can_connect(&inside, ADDRESS, Target::Tcp(80)));

        // What the status says of node ports is so: there, everybody gets in.
        cluster.wait_for("shop", "SourceRangesEnforced", "False/NodePortsOpen");
        let port = cluster.service("shop")["spec"]["ports"][0]["nodePort"].as_u64().unwrap();
        let port = u16::try_from(port).unwrap();
        assert!(can_connect(&inside, NODE, Target::Tcp(port)));

        // Without node ports, it is enforced.
        let ports = json!([{"name": "http", "port": 80, "targetPort": "http", "nodePort": null}]);
        cluster
            .edit_service("shop", &json!({"spec": {"allocateLoadBalancerNodePorts": false, "ports": ports}}));
        cluster.wait_for("shop", "SourceRangesEnforced", "True/Enforced");
        eventually("nobody gets in by the node", || !can_connect(&inside, NODE, Target::Tcp(port)));
        eventually("who is in the range connects", || can_connect(&outside, ADDRESS, Target::Tcp(80)));
        assert!(!can_connect(&inside, ADDRESS, Target::Tcp(80)));
        drop(stop);
    });
}
