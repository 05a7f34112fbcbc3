//! A cloud-config that follows another, on a real Kubernetes API.

#![allow(clippy::unwrap_used, reason = "a test that fails says where")]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use kube::config::{KubeConfigOptions, Kubeconfig};
use portcullis_aws::CloudConfig;
use portcullis_controllers::{CloudConfigController, CloudConfigStep, Place};
use portcullis_testkit::{eventually, kubernetes};

fn transform(text: &str) -> Result<String, String> {
    let (config, _) = CloudConfig::parse(text).map_err(|error| error.to_string())?;
    Ok(config.with_openshift_defaults().to_string())
}

fn place(namespace: &str, name: &str) -> Place {
    Place { namespace: namespace.to_owned(), name: name.to_owned(), key: "cloud.conf".to_owned() }
}

async fn client() -> kube::Client {
    let config = Kubeconfig::read_from(kubernetes().kubeconfig()).unwrap();
    let config = kube::Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await.unwrap();
    kube::Client::try_from(config).unwrap()
}

/// Where it goes to may not be there yet when it starts; nobody tells when it is.
#[tokio::test(flavor = "multi_thread")]
async fn what_could_not_be_written_is_tried_again() {
    let kubernetes = kubernetes();
    let controller = CloudConfigController {
        client: client().await,
        sources: vec![place("late-sources", "source")],
        target: place("late", "target"),
        transform,
        observe: false,
        retry: Duration::from_millis(300),
    };
    let last = Arc::new(Mutex::new(None));
    let told = Arc::clone(&last);
    let running = tokio::spawn(controller.run(move |step| *told.lock().unwrap() = Some(step)));
    eventually("it is told", || matches!(&*last.lock().unwrap(), Some(CloudConfigStep::Unavailable(_))));
    kubernetes.kubectl(&["create", "namespace", "late"]).unwrap();
    eventually("it is written", || *last.lock().unwrap() == Some(CloudConfigStep::InStep));
    let path = r"jsonpath={.data.cloud\.conf}";
    let target = kubernetes.kubectl(&["get", "configmap", "target", "-n", "late", "-o", path]).unwrap();
    assert!(target.contains("= Managed"), "{target}");
    running.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_target_follows_its_source() {
    let kubernetes = kubernetes();
    for namespace in ["managed", "own", "controllers"] {
        kubernetes.kubectl(&["create", "namespace", namespace]).unwrap();
    }
    kubernetes
        .kubectl(&["create", "configmap", "target", "-n", "controllers", "--from-literal=ca=theirs"])
        .unwrap();
    let controller = CloudConfigController {
        client: client().await,
        sources: vec![place("managed", "source"), place("own", "source")],
        target: place("controllers", "target"),
        transform,
        observe: false,
        retry: Duration::from_secs(30),
    };
    let last = Arc::new(Mutex::new(None));
    let told = Arc::clone(&last);
    let running = tokio::spawn(controller.run(move |step| *told.lock().unwrap() = Some(step)));
    let target = || {
        let path = r"jsonpath={.data.cloud\.conf}{.data.ca}";
        kubernetes.kubectl(&["get", "configmap", "target", "-n", "controllers", "-o", path]).unwrap()
    };
    let write = |namespace: &str, text: &str| {
        let text = text.replace('\n', "\n    ");
        let object = format!(
            "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: source, namespace: {namespace}}}\n\
             data:\n  cloud.conf: |\n    {text}\n"
        );
        kubernetes.apply(&object).unwrap();
    };
    eventually("the least is there, and what others wrote", || {
        target().contains("= Managed") && target().ends_with("theirs")
    });
    write("own", "[Global]\nZone = mine");
    eventually("the second source counts", || target().contains("= mine"));
    write("managed", "[Global]\nZone = better");
    eventually("the first source counts more", || target().contains("= better"));
    write("managed", "[Global\nZone = broken");
    eventually(
        "what is wrong is told",
        || matches!(&*last.lock().unwrap(), Some(CloudConfigStep::Wrong(why)) if why.starts_with("line 1: ")),
    );
    assert!(target().contains("= better"), "it stays");
    write("managed", "[Global]\nZone = mended");
    eventually("it goes on", || target().contains("= mended"));
    let edited = r#"{"data": {"cloud.conf": "edited"}}"#;
    kubernetes
        .kubectl(&["patch", "configmap", "target", "-n", "controllers", "--type=merge", "-p", edited])
        .unwrap();
    eventually("what somebody edited is put right", || target().contains("= mended"));
    running.abort();
}
