//! The document's table, row by row: what the spec says, and what the Service says when it is found.

use std::time::Duration;

use portcullis_controllers::router::Platform;
use portcullis_kube_api::SOURCE_RANGES;
use portcullis_kube_api::ingress::OWNING_LABEL;
use portcullis_testkit::eventually;
use serde_json::json;

use crate::cluster::Cluster;

const FOO: &str = "10.0.0.0/8";
const BAR: &str = "192.0.2.0/24";
const COW: &str = "2001:db8::/32";

/// Number; spec, annotation, field; field after, whether the annotation is gone after.
type Row = (
    u8,
    &'static [&'static str],
    Option<&'static str>,
    &'static [&'static str],
    &'static [&'static str],
    bool,
);

const TABLE: [Row; 10] = [
    (1, &[], None, &[FOO], &[FOO], true),
    (2, &[BAR], None, &[FOO], &[BAR], true),
    (3, &[BAR], None, &[], &[BAR], true),
    (4, &[], Some(COW), &[FOO], &[FOO], false),
    (5, &[BAR], Some(COW), &[FOO], &[BAR], true),
    (6, &[], Some(FOO), &[FOO], &[FOO], false),
    (7, &[BAR], Some(FOO), &[FOO], &[BAR], true),
    (8, &[], Some(FOO), &[], &[], false),
    (9, &[BAR], Some(FOO), &[], &[BAR], true),
    (10, &[FOO], Some(COW), &[FOO], &[FOO], true),
];

#[tokio::test(flavor = "multi_thread")]
async fn every_row() {
    let cluster = Cluster::new("table");
    for (row, spec, annotation, field, ..) in TABLE {
        let name = format!("row{row}");
        let annotations = annotation.map_or_else(|| json!({}), |text| json!({SOURCE_RANGES: text}));
        cluster.leave_service(&name, field, annotations, true);
        cluster.apply_alone(&name, json!({"scope": "External", "allowedSourceRanges": spec}));
    }
    let running = cluster.start(Platform::BareMetal).await;
    for (row, spec, annotation, _, after, gone) in TABLE {
        let name = format!("row{row}");
        let told = spec.is_empty();
        let (progressing, detected) = if told {
            ("True/OperandsProgressing", "True/OperandsEvaluationConditionsDetected")
        } else {
            ("False/LoadBalancerNotProgressing", "False/NoEvaluationCondition")
        };
        cluster.wait_for(&name, "LoadBalancerProgressing", progressing);
        cluster.wait_for(&name, "EvaluationConditionsDetected", detected);
        let moves = if told { "True/IngressControllerProgressing" } else { "False/" };
        cluster.wait_for(&name, "Progressing", moves);
        let service = cluster.service(&name);
        let written = service["spec"]["loadBalancerSourceRanges"].as_array().cloned().unwrap_or_default();
        assert_eq!(json!(written), json!(after), "row {row}");
        assert_eq!(service["metadata"]["annotations"][SOURCE_RANGES].is_null(), gone, "row {row}");
        let counts: Vec<&str> = match (after, annotation) {
            ([], Some(annotation)) => vec![annotation],
            (after, _) => after.to_vec(),
        };
        eventually(&format!("row {row}: the status has what counts"), || {
            cluster.effective(&name) == json!(counts)
        });
        let message = cluster.full_condition(&name, "EvaluationConditionsDetected")["message"].clone();
        let message = message.as_str().unwrap_or_default();
        assert_eq!(message.contains(SOURCE_RANGES), told && annotation.is_some(), "row {row}: {message}");
        assert_eq!(
            message.contains("spec.loadBalancerSourceRanges"),
            told && !after.is_empty(),
            "row {row}: {message}"
        );
    }
    // Nothing is written once everything is as it should be.
    let versions = || -> Vec<String> {
        let kinds = "services,deployments,configmaps,poddisruptionbudgets";
        let path =
            "jsonpath={range .items[*]}{.kind} {.metadata.name} {.metadata.resourceVersion}{\"\\n\"}{end}";
        let all = cluster.kubectl(&["get", kinds, "-n", &cluster.routers(), "-l", OWNING_LABEL, "-o", path]);
        all.lines().filter(|line| line.contains("row")).map(str::to_owned).collect()
    };
    assert!(versions().len() >= 3 * TABLE.len(), "each has routers and two Services");
    let mut before = versions();
    eventually("everything is at rest", || {
        std::thread::sleep(Duration::from_secs(3));
        let now = versions();
        let is_same = now == before;
        before = now;
        is_same
    });
    running.abort();
    let again = cluster.start(Platform::BareMetal).await;
    cluster.apply("last", json!({"scope": "External"}));
    cluster.wait_for("last", "LoadBalancerProgressing", "False/LoadBalancerNotProgressing");
    assert_eq!(versions(), before, "a new start writes nothing");
    again.abort();
}
