//! Killed before and after each of its writes: who comes next brings it to its end, and at no time is more open than was
//! before or is after.

use portcullis_controllers::ingress::IngressControllers;
use portcullis_controllers::router::Platform;
use portcullis_kube_api::SOURCE_RANGES;
use portcullis_kube_api::ingress::AUTO_DELETE;
use portcullis_testkit::eventually;
use serde_json::{Value, json};

use crate::cluster::Cluster;
use crate::killed::Killing;

const OLD: &str = "192.0.2.0/24";
const NEW: &str = "198.51.100.0/24";

/// Kills whoever looks after the cluster at each write until there is none left: from what `before` makes, with what
/// `change` asks for, to what `is_done` says and `after` waits for. `always` has to hold at each death.
async fn everywhere(
    cluster: &Cluster<'_>,
    before: impl AsyncFn(),
    change: impl Fn(),
    always: impl Fn(),
    is_done: impl Fn() -> bool,
    after: impl Fn(),
) -> usize {
    let settings = || cluster.settings(Platform::Aws);
    for write in 1.. {
        for sent in [false, true] {
            before().await;
            change();
            let killing = Killing::at(write, sent);
            let client = killing.client(cluster.config().await);
            let victim = tokio::spawn(IngressControllers::new(client, settings()).run());
            let died = killing.died_before(&is_done).await;
            victim.abort();
            always();
            let next = cluster.start(Platform::Aws).await;
            after();
            next.abort();
            if !died {
                return write - 1;
            }
        }
    }
    unreachable!("it comes to an end")
}

fn load_balancer(ranges: &[&str]) -> Value {
    json!({"scope": "External", "allowedSourceRanges": ranges})
}

fn ranges(cluster: &Cluster<'_>) -> Value {
    cluster.service("shop")["spec"]["loadBalancerSourceRanges"].clone()
}

const SETTLED: [(&str, &str); 2] = [
    ("LoadBalancerProgressing", "False/LoadBalancerNotProgressing"),
    ("EvaluationConditionsDetected", "False/NoEvaluationCondition"),
];

fn settled(cluster: &Cluster<'_>) {
    for (condition, expected) in SETTLED {
        cluster.wait_for("shop", condition, expected);
    }
}

/// Whether it is settled, with what was asked for last.
fn is_settled(cluster: &Cluster<'_>) -> bool {
    let found = cluster.controller("shop");
    found["status"]["observedGeneration"] == found["metadata"]["generation"]
        && SETTLED.iter().all(|(condition, expected)| cluster.condition("shop", condition) == *expected)
}

/// Takes everything away, as the first of all.
async fn nothing(cluster: &Cluster<'_>) {
    if cluster.controller("shop").is_null() {
        return;
    }
    let running = cluster.start(Platform::Aws).await;
    cluster.kubectl(&["delete", "ingresscontroller", "shop", "-n", &cluster.controllers()]);
    eventually("nothing is left", || {
        cluster.service("shop").is_null() && cluster.deployment("shop").is_null()
    });
    running.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn at_its_birth() {
    let cluster = Cluster::new("birth");
    let writes = everywhere(
        &cluster,
        async || nothing(&cluster).await,
        || cluster.apply("shop", load_balancer(&[NEW])),
        || {
            let service = cluster.service("shop");
            assert!(service.is_null() || ranges(&cluster) == json!([NEW]), "never open to all: {service}");
        },
        || is_settled(&cluster) && cluster.deployment("shop")["spec"]["replicas"] == 2,
        || {
            settled(&cluster);
            assert_eq!(ranges(&cluster), json!([NEW]));
            eventually("a Deployment", || cluster.deployment("shop")["spec"]["replicas"] == 2);
        },
    )
    .await;
    assert!(writes >= 5, "a finalizer, a Deployment, two Services, a status: {writes}");
}

/// Ranges by hand, in both places, are moved to the spec.
#[tokio::test(flavor = "multi_thread")]
async fn at_the_move() {
    let cluster = Cluster::new("move");
    let start = async || {
        let running = cluster.start(Platform::Aws).await;
        cluster.apply("shop", load_balancer(&[]));
        cluster.wait_for("shop", "LoadBalancerManaged", "True/WantedByEndpointPublishingStrategy");
        eventually("a Service", || !cluster.service("shop").is_null());
        cluster.edit_service(
            "shop",
            &json!({"metadata": {"annotations": {SOURCE_RANGES: OLD}}, "spec": {"loadBalancerSourceRanges": [OLD]}}),
        );
        cluster.wait_for("shop", "EvaluationConditionsDetected", "True/OperandsEvaluationConditionsDetected");
        running.abort();
    };
    let writes = everywhere(
        &cluster,
        start,
        || cluster.apply("shop", load_balancer(&[NEW])),
        || {
            let now = ranges(&cluster);
            assert!(now == json!([OLD]) || now == json!([NEW]), "{now}");
        },
        || is_settled(&cluster) && ranges(&cluster) == json!([NEW]),
        || {
            settled(&cluster);
            let annotations = cluster.service("shop")["metadata"]["annotations"].clone();
            assert_eq!((ranges(&cluster), annotations.get(SOURCE_RANGES)), (json!([NEW]), None));
        },
    )
    .await;
    assert!(writes >= 2, "the Service and a status: {writes}");
}

/// A load balancer is replaced by another one.
#[tokio::test(flavor = "multi_thread")]
async fn at_the_exchange() {
    let cluster = Cluster::new("exchange");
    let scope = |scope: &str| json!({"scope": scope, "allowedSourceRanges": [OLD]});
    let internal = || {
        let key = "service.beta.kubernetes.io/aws-load-balancer-internal";
        cluster.service("shop")["metadata"]["annotations"][key] == "true"
    };
    let start = async || {
        let running = cluster.start(Platform::Aws).await;
        cluster.apply("shop", scope("External"));
        let annotate = format!("{AUTO_DELETE}=");
        let namespace = cluster.controllers();
        cluster.kubectl(&[
            "annotate",
            "--overwrite",
            "ingresscontroller",
            "shop",
            "-n",
            &namespace,
            &annotate,
        ]);
        eventually("it is external", || !cluster.service("shop").is_null() && !internal());
        settled(&cluster);
        running.abort();
    };
    let writes = everywhere(
        &cluster,
        start,
        || cluster.apply("shop", scope("Internal")),
        || {
            let service = cluster.service("shop");
            assert!(service.is_null() || ranges(&cluster) == json!([OLD]), "{service}");
        },
        || is_settled(&cluster) && internal(),
        || {
            eventually("it is internal", internal);
            settled(&cluster);
            assert_eq!(ranges(&cluster), json!([OLD]));
        },
    )
    .await;
    assert!(writes >= 3, "the old one, the new one, a status: {writes}");
}

#[tokio::test(flavor = "multi_thread")]
async fn at_its_death() {
    let cluster = Cluster::new("death");
    let start = async || {
        let running = cluster.start(Platform::Aws).await;
        cluster.apply("shop", load_balancer(&[OLD]));
        settled(&cluster);
        eventually("a Deployment", || !cluster.deployment("shop").is_null());
        running.abort();
    };
    let is_gone = || {
        cluster.controller("shop").is_null()
            && cluster.service("shop").is_null()
            && cluster.deployment("shop").is_null()
    };
    let writes = everywhere(
        &cluster,
        start,
        || {
            let namespace = cluster.controllers();
            cluster.kubectl(&["delete", "ingresscontroller", "shop", "-n", &namespace, "--wait=false"]);
        },
        || {
            let service = cluster.service("shop");
            assert!(service.is_null() || ranges(&cluster) == json!([OLD]), "{service}");
        },
        is_gone,
        || eventually("nothing is left", is_gone),
    )
    .await;
    assert!(writes >= 4, "two Services, a Deployment, a finalizer: {writes}");
}
