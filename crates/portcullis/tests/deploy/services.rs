//! Services on AWS, with the rights for them.

use std::fs::File;
use std::process::{Command, Stdio};

use portcullis_testkit::parts::catalogue::find;
use portcullis_testkit::{AwsSite, eventually, kubernetes};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{Pod, account_in, deploy, may, objects, output, portcullis};

/// The rights of the overlay for OpenShift suffice for the cloud-config that is kept in step there.
#[test]
fn a_cloud_config_is_kept_in_step_with_the_rights_for_it() {
    let kubernetes = kubernetes();
    // Another test looks at what may be done in the namespace of the manifests.
    let namespaces =
        ["edge", "openshift-config-managed", "openshift-config", "openshift-cloud-controller-manager"];
    for name in namespaces {
        let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        kubernetes.apply(&object.to_string()).unwrap();
    }
    let built = output(find("kubectl").unwrap(), &["kustomize", &deploy("kustomize/openshift")]).unwrap();
    let is_access = |object: &&Value| {
        ["Role", "RoleBinding"].contains(&object["kind"].as_str().unwrap())
            || object["kind"] == "ServiceAccount"
    };
    let built = built.replace("namespace: portcullis\n", "namespace: edge\n");
    for object in objects(&built).iter().filter(is_access) {
        kubernetes.apply(&object.to_string()).unwrap();
    }
    let source = json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "cloud-provider-config", "namespace": "openshift-config"},
        "data": {"cloud.conf": "[Global]\nZone = eu-central-1a\n"},
    });
    kubernetes.apply(&source.to_string()).unwrap();
    let account = account_in(kubernetes, "edge");
    let files = TempDir::new().unwrap();
    let log = files.path().join("log");
    let child = Command::new("setpriv")
        .args(["--pdeathsig", "KILL", "--", env!("CARGO_BIN_EXE_portcullis"), "serve"])
        .args(["--set", "cloudConfig.enabled=true", "--set", "services.lease.namespace=edge"])
        .args(["--set", &format!("kubernetes.kubeconfig={}", account.display())])
        .args(["--set", "telemetry.listen=127.0.0.1:0"])
        .stdin(Stdio::null())
        .stderr(File::create(&log).unwrap())
        .spawn()
        .unwrap();
    let mut pod = Pod { child, log, _files: files };
    let read = ["get", "configmap", "cloud-conf", "--namespace=openshift-cloud-controller-manager"];
    let read = [&read[..], &["--ignore-not-found", "-o", r"jsonpath={.data.cloud\.conf}"]].concat();
    eventually("it is in step", || {
        let text = kubernetes.kubectl(&read).unwrap();
        text.contains("eu-central-1a") && text.contains("Managed")
    });
    pod.stop();
    for (verb, what) in [("get", "configmaps/other"), ("patch", "configmaps/cloud-provider-config")] {
        let ask = ["auth", "can-i", verb, what, "--namespace=openshift-config"];
        assert!(kubernetes.kubectl_as(&account, &ask, "").is_err(), "{verb} {what}");
    }
}

/// A Service whose targets are the nodes, or addresses of its endpoints.
fn service(name: &str, targets: &str, range: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Service\nmetadata:\n  name: {name}\n  namespace: default\n  annotations:\n    \
         service.beta.kubernetes.io/aws-load-balancer-nlb-target-type: {targets}\n\
         spec:\n  type: LoadBalancer\n  loadBalancerClass: portcullis.dev/aws-nlb\n  \
         loadBalancerSourceRanges: [{range}]\n  ports: [{{name: web, port: 80, targetPort: 8080}}]\n"
    )
}

const ENDPOINTS: &str = "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\n\
    metadata: {name: by-address, namespace: default, labels: {kubernetes.io/service-name: by-address}}\n\
    addressType: IPv4\nports: [{name: web, port: 8080, protocol: TCP}]\n\
    endpoints: [{addresses: [10.0.1.77], conditions: {ready: true}}]\n";

/// What the service account may in the namespaces of others, in both modes and in the one that writes.
const READS: [(&str, &str); 7] = [
    ("get", "services"),
    ("list", "services"),
    ("watch", "services"),
    ("list", "nodes"),
    ("watch", "nodes"),
    ("list", "endpointslices.discovery.k8s.io"),
    ("watch", "endpointslices.discovery.k8s.io"),
];
const WRITES: [(&str, &str); 5] = [
    ("patch", "services"),
    ("patch", "services/status"),
    ("create", "events"),
    ("get", "events"),
    ("patch", "events"),
];
const NEVER: [(&str, &str); 14] = [
    ("get", "secrets"),
    ("list", "secrets"),
    ("get", "configmaps"),
    ("create", "services"),
    ("update", "services"),
    ("delete", "services"),
    ("create", "pods"),
    ("get", "pods"),
    ("patch", "nodes"),
    ("delete", "nodes"),
    ("patch", "endpointslices.discovery.k8s.io"),
    ("delete", "events"),
    ("create", "clusterrolebindings.rbac.authorization.k8s.io"),
    ("create", "serviceaccounts/token"),
];

#[test]
fn it_works_with_the_rights_that_the_manifests_give_and_has_no_others() {
    let kubernetes = kubernetes();
    let aws = portcullis_testkit::aws();
    let site = AwsSite::new(&aws.url());
    site.join(kubernetes);
    kubernetes.apply(&service("by-node", "instance", "192.0.2.0/24")).unwrap();
    let get = |name: &str, path: &str| {
        kubernetes.kubectl(&["get", "service", name, "-o", &format!("jsonpath={path}")]).unwrap()
    };
    let events =
        |path: &str| kubernetes.kubectl(&["get", "events", "-o", &format!("jsonpath={path}")]).unwrap();
    let lease = "leases.coordination.k8s.io/portcullis-services";
    let leases = "leases.coordination.k8s.io";

    // Who only watches, first.
    kubernetes.apply(&portcullis(&["manifests", "--cluster", "demo", "--observe"])).unwrap();
    eventually("it may read", || READS.iter().all(|(verb, what)| may(kubernetes, verb, what, "default")));
    for (verb, what) in WRITES.iter().chain(&NEVER) {
        assert!(!may(kubernetes, verb, what, "default"), "{verb} {what}");
    }
    for verb in ["get", "create", "update"] {
        assert!(!may(kubernetes, verb, lease, "portcullis"), "{verb} {lease}");
    }
    let mut pod = Pod::start(kubernetes, &aws.url());
    eventually("it says what it would do", || pod.log().contains("this would be done"));
    pod.stop();
    assert_eq!(get("by-node", "{.metadata.finalizers}{.status.loadBalancer.ingress}"), "");
    assert_eq!(events("{.items[?(@.source.component==\"service-controller\")].reason}"), "");
    assert!(!site.elb("Action=DescribeLoadBalancers").contains("<LoadBalancerArn>"));

    // Then who acts.
    kubernetes.apply(&portcullis(&["manifests", "--cluster", "demo"])).unwrap();
    eventually("it may write", || WRITES.iter().all(|(verb, what)| may(kubernetes, verb, what, "default")));
    for (verb, what) in NEVER {
        assert!(!may(kubernetes, verb, what, "default"), "{verb} {what}");
        assert!(!may(kubernetes, verb, what, "portcullis"), "{verb} {what} in its own namespace");
    }
    assert!(may(kubernetes, "get", lease, "portcullis") && may(kubernetes, "update", lease, "portcullis"));
    assert!(may(kubernetes, "create", leases, "portcullis"));
    assert!(!may(kubernetes, "update", leases, "portcullis"), "those of others");
    assert!(
        !may(kubernetes, "get", lease, "kube-system") && !may(kubernetes, "create", leases, "kube-system")
    );

    // Its namespace takes pods without privileges only.
    let read =
        ["get", "deployment", "portcullis", "--namespace=portcullis", "-o", "jsonpath={.spec.template.spec}"];
    let spec: Value = serde_json::from_str(&kubernetes.kubectl(&read).unwrap()).unwrap();
    let metadata = json!({"name": "portcullis", "namespace": "portcullis"});
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}).to_string();
    let create = ["create", "--dry-run=server", "-f", "-"];
    kubernetes.kubectl_as(kubernetes.kubeconfig(), &create, &pod).unwrap();

    let mut pod = Pod::start(kubernetes, &aws.url());
    kubernetes.apply(ENDPOINTS).unwrap();
    kubernetes.apply(&service("by-address", "ip", "192.0.2.0/24")).unwrap();
    for name in ["by-node", "by-address"] {
        eventually("an address", || get(name, "{.status.loadBalancer.ingress[0].hostname}").contains("elb"));
    }
    // The same words a second time: the Event that is there counts them.
    kubernetes.apply(&service("by-node", "instance", "198.51.100.0/24")).unwrap();
    eventually("it was told twice", || {
        events("{.items[?(@.reason==\"EnsuredLoadBalancer\")].count}").contains('2')
    });
    let holder = [
        "get",
        "lease",
        "portcullis-services",
        "--namespace=portcullis",
        "-o",
        "jsonpath={.spec.holderIdentity}",
    ];
    assert!(kubernetes.kubectl(&holder).unwrap().starts_with("portcullis-1-"));

    kubernetes.kubectl(&["delete", "service", "by-node", "by-address", "--timeout=60s"]).unwrap();
    assert!(!site.elb("Action=DescribeLoadBalancers").contains("<LoadBalancerArn>"));
    pod.stop();
    assert_eq!(kubernetes.kubectl(&holder).unwrap(), "", "given back");
}
