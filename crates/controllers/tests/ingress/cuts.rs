//! The way to the API is cut again and again, and the type is not even installed at first: it converges.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use portcullis_controllers::ingress::IngressControllers;
use portcullis_controllers::router::Platform;
use portcullis_kube_api::ingress::{CRD, OWNING_LABEL};
use portcullis_testkit::parts::Namespace;
use portcullis_testkit::{Passage, eventually, eventually_within, kubernetes_in};
use serde_json::json;

use crate::cluster::Cluster;

#[tokio::test(flavor = "multi_thread")]
async fn watches_that_are_cut() {
    let cluster = Cluster::new("cut");
    let mut config = cluster.config().await;
    let server = format!("127.0.0.1:{}", config.cluster_url.port_u16().unwrap()).parse().unwrap();
    let passage = Passage::to(server);
    config.cluster_url = format!("https://{}", passage.address()).parse().unwrap();
    let client = kube::Client::try_from(config).unwrap();
    let running = tokio::spawn(IngressControllers::new(client, cluster.settings(Platform::BareMetal)).run());
    let cutting = tokio::spawn(async move {
        loop {
            tokio::time::sleep(Duration::from_millis(170)).await;
            passage.cut();
        }
    });
    for round in 0..8 {
        let range = format!("192.0.2.{round}/32");
        for name in ["one", "two", "three"] {
            cluster.apply(name, json!({"scope": "External", "allowedSourceRanges": [range]}));
        }
        // By hand at the same time, and without a word where nobody listens.
        if !cluster.service("two").is_null() {
            cluster.edit_service("two", &json!({"spec": {"loadBalancerSourceRanges": ["0.0.0.0/0"]}}));
        }
    }
    cutting.abort();
    // Who was cut off so often tries again after half a minute at most, and each kind of object is asked for on its own.
    let asked_again = Duration::from_secs(180);
    for name in ["one", "two", "three"] {
        eventually_within(asked_again, "the last ranges", || {
            cluster.service(name)["spec"]["loadBalancerSourceRanges"] == json!(["192.0.2.7/32"])
        });
        eventually_within(asked_again, "nothing moves", || {
            cluster.condition(name, "LoadBalancerProgressing") == "False/LoadBalancerNotProgressing"
        });
        eventually_within(asked_again, "in the status, too", || {
            cluster.effective(name) == json!(["192.0.2.7/32"])
        });
    }
    running.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_type_that_comes_late() {
    let kubernetes = kubernetes_in(&Namespace::host());
    let cluster = Cluster::without_type(&kubernetes, "late");
    let controllers = IngressControllers::new(cluster.client().await, cluster.settings(Platform::BareMetal));
    let (watches, missing) = (controllers.watches(), Arc::new(Mutex::new(None)));
    let following = tokio::spawn({
        let missing = Arc::clone(&missing);
        async move { watches.follow(|told| *missing.lock().unwrap() = told).await }
    });
    let running = tokio::spawn(controllers.run());
    // Who is asked whether it is ready says what is missing, and what to do.
    eventually("only the type is missing", || {
        let missing = missing.lock().unwrap().clone().unwrap_or_default();
        missing.starts_with("nothing is done before all these can be watched: IngressController (")
            && missing.contains("portcullis crds | kubectl apply")
    });
    kubernetes.apply_types(CRD).unwrap();
    cluster.apply("shop", json!({"scope": "External", "allowedSourceRanges": ["192.0.2.0/24"]}));
    cluster.wait_for("shop", "LoadBalancerProgressing", "False/LoadBalancerNotProgressing");
    assert_eq!(*missing.lock().unwrap(), None);
    following.abort();
    running.abort();
}

/// Who only watches writes nothing at all.
#[tokio::test(flavor = "multi_thread")]
async fn who_only_watches() {
    let cluster = Cluster::new("observe");
    cluster.leave_service("there", &["10.0.0.0/8"], json!({}), true);
    cluster.apply("there", json!({"scope": "External", "allowedSourceRanges": ["192.0.2.0/24"]}));
    cluster.apply("new", json!({"scope": "External"}));
    let version = |object: serde_json::Value| object["metadata"]["resourceVersion"].clone();
    let before =
        [cluster.service("there"), cluster.controller("there"), cluster.controller("new")].map(version);
    let mut settings = cluster.settings(Platform::BareMetal);
    settings.observe = true;
    let controllers = IngressControllers::new(cluster.client().await, settings);
    let standing = controllers.standing();
    let running = tokio::spawn(controllers.run());
    eventually("both are seen", || standing.all().len() == 2);
    tokio::time::sleep(Duration::from_secs(1)).await;
    let after =
        [cluster.service("there"), cluster.controller("there"), cluster.controller("new")].map(version);
    assert_eq!(before, after);
    assert!(cluster.service("new").is_null() && cluster.deployment("new").is_null());
    for namespace in [cluster.controllers(), cluster.routers()] {
        assert_eq!(cluster.kubectl(&["get", "events", "-n", &namespace, "-o", "name"]), "");
        assert_eq!(
            cluster.kubectl(&[
                "get",
                "configmaps,poddisruptionbudgets",
                "-n",
                &namespace,
                "-l",
                OWNING_LABEL,
                "-o",
                "name"
            ]),
            ""
        );
    }
    // What would be done is what it waits for.
    let told = &standing.all()["there"].conditions;
    let progressing = told.iter().find(|condition| condition.type_ == "LoadBalancerProgressing").unwrap();
    assert_eq!(progressing.reason, "OperandsProgressing");
    assert!(
        progressing.message.contains("would be changed, and is only looked at"),
        "{}",
        progressing.message
    );
    running.abort();
}
