//! Where routers run, and how new ones take the place of old ones.

use super::*;
use k8s_openapi::api::apps::v1::Deployment;

fn at(found: &Deployment, path: &str) -> Value {
    serde_json::to_value(found).unwrap().pointer(path).cloned().unwrap_or_default()
}

fn made(spec: &Value, settings: &RouterSettings) -> Deployment {
    deployment(&controller(spec), settings, &Present::default()).unwrap()
}

const POD: &str = "/spec/template/spec";

#[test]
fn how_new_ones_come() {
    let private =
        |replicas: i32| json!({"replicas": replicas, "endpointPublishingStrategy": {"type": "Private"}});
    let usual = settings(Platform::BareMetal);
    let single = RouterSettings { single_replica: true, ..usual.clone() };
    for (spec, settings, expected) in [
        (private(1), &usual, json!({"maxSurge": "25%", "maxUnavailable": "50%"})),
        (private(3), &usual, json!({"maxSurge": "25%", "maxUnavailable": "50%"})),
        (private(4), &usual, json!({"maxSurge": "25%", "maxUnavailable": "25%"})),
        (private(1), &single, json!({"maxSurge": "25%", "maxUnavailable": "25%"})),
        (json!({}), &usual, json!({"maxSurge": 0, "maxUnavailable": 1})),
    ] {
        let found = made(&spec, settings);
        assert_eq!(at(&found, "/spec/strategy/rollingUpdate"), expected, "{spec}");
        assert_eq!(at(&found, "/spec/minReadySeconds"), 30);
    }
}

#[test]
fn on_which_nodes() {
    let usual = settings(Platform::BareMetal);
    let node = format!(
        "{POD}/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms/0/matchExpressions"
    );
    let anti = format!("{POD}/affinity/podAntiAffinity/requiredDuringSchedulingIgnoredDuringExecution/0");
    let found = made(&json!({}), &usual);
    assert_eq!(at(&found, &node), Value::Null);
    assert_eq!(at(&found, &format!("{anti}/topologyKey")), "kubernetes.io/hostname");
    assert_eq!(at(&found, &format!("{anti}/matchLabelKeys")), json!(["pod-template-hash"]));
    assert_eq!(at(&found, &format!("{POD}/nodeSelector")), json!({"kubernetes.io/os": "linux"}));
    let single = RouterSettings { single_replica: true, ..usual.clone() };
    assert_eq!(at(&made(&json!({}), &single), &anti), Value::Null);
    let worker = BTreeMap::from([("node-role.kubernetes.io/worker".to_owned(), String::new())]);
    let openshift = RouterSettings { openshift: true, node_labels: worker, ..usual };
    let found = made(&json!({}), &openshift);
    assert_eq!(
        at(&found, &node),
        json!([{"key": "node.openshift.io/remote-worker", "operator": "DoesNotExist"}])
    );
    assert_eq!(
        at(&found, &format!("{POD}/nodeSelector")),
        json!({"kubernetes.io/os": "linux", "node-role.kubernetes.io/worker": ""})
    );
    // What is said takes the place of all that is usual.
    let expressions = json!([{"key": "tier", "operator": "In", "values": ["edge", "front"]}]);
    let found =
        made(&json!({"nodePlacement": {"nodeSelector": {"matchExpressions": expressions}}}), &openshift);
    assert_eq!(at(&found, &node), expressions);
    assert_eq!(at(&found, &format!("{POD}/nodeSelector")), json!({"kubernetes.io/os": "linux"}));
}

#[test]
fn how_they_are_watched() {
    let container = format!("{POD}/containers/0");
    for (spec, host) in [
        (json!({}), json!("localhost")),
        (json!({"endpointPublishingStrategy": {"type": "Private"}}), Value::Null),
    ] {
        let found = made(&spec, &settings(Platform::BareMetal));
        for probe in ["startupProbe", "livenessProbe", "readinessProbe"] {
            assert_eq!(at(&found, &format!("{container}/{probe}/httpGet/host")), host, "{probe}");
        }
        assert_eq!(at(&found, &format!("{container}/livenessProbe/terminationGracePeriodSeconds")), 10);
        assert_eq!(
            at(&found, &format!("{container}/readinessProbe/terminationGracePeriodSeconds")),
            Value::Null
        );
        assert_eq!(at(&found, &format!("{container}/terminationMessagePolicy")), "FallbackToLogsOnError");
    }
}

#[test]
fn what_they_may() {
    let security = format!("{POD}/containers/0/securityContext");
    let annotations = "/spec/template/metadata/annotations";
    let usual = settings(Platform::BareMetal);
    assert_eq!(
        at(&made(&json!({}), &usual), &security),
        json!({"capabilities": {"add": ["NET_BIND_SERVICE"]}})
    );
    let openshift = RouterSettings { openshift: true, ..usual };
    for (type_, expected) in [("HostNetwork", "hostnetwork"), ("Private", "restricted")] {
        let found = made(&json!({"endpointPublishingStrategy": {"type": type_}}), &openshift);
        assert_eq!(at(&found, &security), json!({"allowPrivilegeEscalation": true}));
        assert_eq!(at(&found, annotations)["openshift.io/required-scc"], expected);
    }
}

/// A Deployment of the operator that was there before becomes ours, whatever it had besides.
#[test]
fn what_another_operator_left() {
    let wanted = controller(&json!({"domain": "shop.example.com"}));
    let desired = deployment(&wanted, &settings(Platform::BareMetal), &Present::default()).unwrap();
    let mut left = serde_json::to_value(&desired).unwrap();
    let pod = &mut left["spec"]["template"]["spec"];
    pod["initContainers"] =
        json!([{"name": "haproxy", "volumeMounts": [{"name": "theirs", "mountPath": "/theirs"}]}]);
    pod["automountServiceAccountToken"] = json!(false);
    pod["shareProcessNamespace"] = json!(true);
    pod["affinity"]["nodeAffinity"] =
        json!({"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": []}});
    pod["volumes"] = json!([{"name": "theirs", "emptyDir": {}}]);
    pod["containers"][0]["env"] =
        json!([{"name": "STATS_PORT", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}]);
    pod["containers"][0]["command"] = json!(["/theirs/start"]);
    pod["containers"][0]["securityContext"] = json!({"capabilities": {"drop": ["ALL"]}});
    pod["containers"].as_array_mut().unwrap().push(json!({"name": "theirs"}));
    let found = changed_deployment(&object(left), &desired).unwrap();
    let pod = |found: &Deployment| found.spec.clone().unwrap().template.spec.unwrap();
    let (found_pod, wanted_pod) = (pod(&found), pod(&desired));
    assert_eq!(found_pod.init_containers, None);
    assert_eq!(found_pod.automount_service_account_token, None);
    assert_eq!(found_pod.share_process_namespace, None);
    assert_eq!(found_pod.affinity, wanted_pod.affinity);
    assert_eq!(found_pod.containers, wanted_pod.containers);
    assert!(found_pod.volumes.unwrap_or_default().is_empty());
    assert_eq!(changed_deployment(&found, &desired), None);
}
