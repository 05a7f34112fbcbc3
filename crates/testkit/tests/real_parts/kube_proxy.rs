use portcullis_testkit::{Host, KubeProxy, Target, can_connect, eventually, kubernetes_in, link};

const SERVICE: &str = "
apiVersion: v1
kind: Service
metadata: {name: web}
spec:
  type: LoadBalancer
  allocateLoadBalancerNodePorts: false
  loadBalancerSourceRanges: [192.0.2.0/24]
  ports: [{name: http, port: 80, targetPort: 8080}]
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web-1, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
endpoints: [{addresses: [10.244.0.2], conditions: {ready: true}}]
ports: [{name: http, port: 8080, protocol: TCP}]
";
const ADDRESS: &str = "203.0.113.100";

#[test]
fn it_enforces_the_source_ranges_of_a_service() {
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
    let _proxy = KubeProxy::start(&kubernetes, "node1", "192.0.2.1");
    kubernetes.apply(SERVICE).unwrap();
    let status = format!(r#"{{"status":{{"loadBalancer":{{"ingress":[{{"ip":"{ADDRESS}"}}]}}}}}}"#);
    kubernetes
        .kubectl(&["patch", "service", "web", "--subresource=status", "--type=merge", "-p", &status])
        .unwrap();

    eventually("who is in the range connects", || can_connect(&inside, ADDRESS, Target::Tcp(80)));
    assert!(!can_connect(&outside, ADDRESS, Target::Tcp(80)));

    let ranges = r#"{"spec":{"loadBalancerSourceRanges":["198.51.100.0/24"]}}"#;
    kubernetes.kubectl(&["patch", "service", "web", "-p", ranges]).unwrap();
    eventually("who is in the new range connects", || can_connect(&outside, ADDRESS, Target::Tcp(80)));
    assert!(!can_connect(&inside, ADDRESS, Target::Tcp(80)));
}
