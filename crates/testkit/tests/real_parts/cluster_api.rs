use portcullis_testkit::parts::kubernetes::Kubernetes;
use portcullis_testkit::{ClusterApi, eventually, kubernetes};

/// The infrastructure that a Cluster and a Machine refer to: only what the contract asks for.
const INFRASTRUCTURE: &str = "
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: labclusters.infrastructure.cluster.x-k8s.io, labels: {cluster.x-k8s.io/v1beta2: v1}}
spec:
  group: infrastructure.cluster.x-k8s.io
  names: {kind: LabCluster, plural: labclusters}
  scope: Namespaced
  versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}]
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: labmachines.infrastructure.cluster.x-k8s.io, labels: {cluster.x-k8s.io/v1beta2: v1}}
spec:
  group: infrastructure.cluster.x-k8s.io
  names: {kind: LabMachine, plural: labmachines}
  scope: Namespaced
  versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}]
";

const OBJECTS: &str = "
apiVersion: infrastructure.cluster.x-k8s.io/v1
kind: LabCluster
metadata: {name: lab, namespace: capi}
spec: {controlPlaneEndpoint: {host: 192.0.2.1, port: 6443}}
status: {initialization: {provisioned: true}}
---
apiVersion: cluster.x-k8s.io/v1beta2
kind: Cluster
metadata: {name: lab, namespace: capi}
spec:
  controlPlaneEndpoint: {host: 192.0.2.1, port: 6443}
  infrastructureRef: {apiGroup: infrastructure.cluster.x-k8s.io, kind: LabCluster, name: lab}
---
apiVersion: infrastructure.cluster.x-k8s.io/v1
kind: LabMachine
metadata: {name: one, namespace: capi}
spec: {providerID: 'lab://one'}
status: {initialization: {provisioned: true}, addresses: [{type: InternalIP, address: 192.0.2.11}]}
---
apiVersion: cluster.x-k8s.io/v1beta2
kind: Machine
metadata:
  name: one
  namespace: capi
  annotations: {pre-terminate.delete.hook.machine.cluster.x-k8s.io/lab: test}
spec:
  clusterName: lab
  bootstrap: {dataSecretName: none}
  infrastructureRef: {apiGroup: infrastructure.cluster.x-k8s.io, kind: LabMachine, name: one}
";

fn machine(kubernetes: &Kubernetes, path: &str) -> String {
    kubernetes
        .kubectl(&["get", "machine", "one", "-n", "capi", "-o", &format!("jsonpath={path}")])
        .unwrap_or_default()
}

#[test]
fn the_deletion_of_a_machine_waits_for_a_hook() {
    let kubernetes = kubernetes();
    let _manager = ClusterApi::start(kubernetes);
    kubernetes.apply_types(INFRASTRUCTURE).unwrap();
    kubernetes.kubectl(&["create", "namespace", "capi"]).unwrap();
    eventually("the manager takes the objects", || kubernetes.apply(OBJECTS).is_ok());
    eventually("the Machine has its address", || {
        machine(kubernetes, "{.status.addresses[0].address}") == "192.0.2.11"
    });

    let older = [
        "get",
        "machines.v1beta1.cluster.x-k8s.io",
        "one",
        "-n",
        "capi",
        "-o",
        "jsonpath={.spec.infrastructureRef.name}",
    ];
    assert_eq!(kubernetes.kubectl(&older).unwrap(), "one", "the manager converts between versions");
    let refused = kubernetes.kubectl(&[
        "patch",
        "machine",
        "one",
        "-n",
        "capi",
        "--type=merge",
        "-p",
        r#"{"spec":{"clusterName":"other"}}"#,
    ]);
    assert!(refused.unwrap_err().to_string().contains("immutable"), "the manager's webhooks decide");

    kubernetes.kubectl(&["delete", "machine", "one", "-n", "capi", "--wait=false"]).unwrap();
    let waiting = r#"{.status.conditions[?(@.type=="Deleting")].reason}"#;
    eventually("it waits for the hook", || machine(kubernetes, waiting) == "WaitingForPreTerminateHook");
    assert!(
        kubernetes.kubectl(&["get", "labmachine", "one", "-n", "capi"]).is_ok(),
        "its infrastructure is still there"
    );

    let hook = "pre-terminate.delete.hook.machine.cluster.x-k8s.io/lab-";
    kubernetes.kubectl(&["annotate", "machine", "one", "-n", "capi", hook]).unwrap();
    eventually("it is gone", || kubernetes.kubectl(&["get", "machine", "one", "-n", "capi"]).is_err());
}
