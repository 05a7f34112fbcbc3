use std::fs;
use std::net::TcpStream;
use std::path::PathBuf;
use std::time::Duration;

use base64::prelude::{BASE64_STANDARD as BASE64, Engine};
use portcullis_parts::kubernetes::Kubernetes;
use portcullis_parts::{Error, Launch, Port, Process, Result, catalogue};
use serde_json::{Value, json};

/// The Cluster API core manager with its types, webhooks and conversions.
#[derive(Debug)]
pub struct ClusterApi {
    _webhooks: Port,
    _health: Port,
    _process: Process,
}

impl ClusterApi {
    /// Installs the types into `kubernetes` and starts the manager beside it.
    #[track_caller]
    pub fn start(kubernetes: &Kubernetes) -> Self {
        start(kubernetes).unwrap_or_else(|error| panic!("{error}"))
    }

    /// Installs the types as an older installation has them, which knows nothing newer than `version`; nobody looks after
    /// objects of these.
    #[track_caller]
    pub fn only_types(kubernetes: &Kubernetes, version: &str) {
        only_types(kubernetes, version).unwrap_or_else(|error| panic!("{error}"));
    }
}

fn only_types(kubernetes: &Kubernetes, version: &str) -> Result<()> {
    let mut documents = Vec::new();
    for mut object in objects(kubernetes, &types(kubernetes)?)? {
        let mut versions = object["spec"]["versions"].as_array().cloned().unwrap_or_default();
        if !versions.iter().any(|found| found["name"] == version) {
            continue;
        }
        for found in &mut versions {
            let is_it = found["name"] == version;
            (found["served"], found["storage"]) = (json!(is_it), json!(is_it));
        }
        object["spec"]["versions"] = json!(versions);
        if let Some(spec) = object["spec"].as_object_mut() {
            spec.remove("conversion");
        }
        documents.push(object.to_string());
    }
    kubernetes.apply_types(&documents.join("\n---\n"))
}

/// The manifest of all types.
fn types(kubernetes: &Kubernetes) -> Result<String> {
    kubernetes.kubectl(&["kustomize", &config().join("crd").display().to_string()])
}

fn config() -> PathBuf {
    catalogue::part("Cluster API").directory().unwrap_or_default().join("config")
}

fn start(kubernetes: &Kubernetes) -> Result<ClusterApi> {
    let manager = Launch::new("cluster-api-core")?;
    let (webhooks, health) = (Port::any()?, Port::any()?);

    let directory = crate::directory("capi");
    let server = kubernetes.authority().server("cluster-api", &["localhost", "127.0.0.1"])?;
    for (from, to) in [(&server.certificate, "tls.crt"), (&server.key, "tls.key")] {
        fs::copy(from, directory.join(to))
            .map_err(|source| Error::Io { what: format!("cannot write {to}"), source })?;
    }
    let authority = fs::read(kubernetes.authority().certificate())
        .map_err(|source| Error::Io { what: "cannot read the authority's certificate".into(), source })?;
    let place = Place {
        url: format!("https://127.0.0.1:{}", webhooks.number()),
        authority: BASE64.encode(authority),
    };

    kubernetes.apply_types(&adapted(kubernetes, &types(kubernetes)?, &place)?)?;
    let mut process = manager
        .env("POD_IP", "127.0.0.1")
        .arg(format!("--kubeconfig={}", kubernetes.kubeconfig().display()))
        .arg(format!("--webhook-cert-dir={}", directory.display()))
        .arg(format!("--webhook-port={}", webhooks.number()))
        .arg(format!("--health-addr=127.0.0.1:{}", health.number()))
        .arg("--diagnostics-address=0")
        .arg("--feature-gates=ClusterTopology=true")
        .start(kubernetes.namespace(), &directory)?;
    let port = webhooks.number();
    let namespace = kubernetes.namespace();
    process.wait_until(Duration::from_secs(90), || {
        namespace.run(|| TcpStream::connect(("127.0.0.1", port)).is_ok())
    })?;
    // Only now: from here on every write of a Cluster or Machine asks the manager.
    let manifests = fs::read_to_string(config().join("webhook/manifests.yaml"))
        .map_err(|source| Error::Io { what: "cannot read the webhooks' manifest".into(), source })?;
    kubernetes.apply(&adapted(kubernetes, &manifests, &place)?)?;
    Ok(ClusterApi { _webhooks: webhooks, _health: health, _process: process })
}

/// Where the manager answers webhooks, and whose signature shows that it is the manager.
struct Place {
    url: String,
    authority: String,
}

/// The objects of a manifest.
fn objects(kubernetes: &Kubernetes, manifest: &str) -> Result<Vec<Value>> {
    let arguments = ["create", "--dry-run=client", "--validate=false", "-o", "json", "-f", "-"];
    let text = kubernetes.kubectl_as(kubernetes.kubeconfig(), &arguments, manifest)?;
    // kubectl prints one document after the other.
    serde_json::Deserializer::from_str(&text)
        .into_iter::<Value>()
        .map(|document| {
            document.map_err(|error| Error::Unsuitable(format!("kubectl printed no JSON: {error}")))
        })
        .collect()
}

/// The objects of a manifest, as they have to be where there is no Service and no kustomize.
fn adapted(kubernetes: &Kubernetes, manifest: &str, place: &Place) -> Result<String> {
    let mut documents = Vec::new();
    for mut object in objects(kubernetes, manifest)? {
        if object["kind"] == "CustomResourceDefinition" {
            // The manager finds the version to speak by these, which an installation by kustomize adds.
            object["metadata"]["labels"]["cluster.x-k8s.io/v1beta1"] = json!("v1beta1");
            object["metadata"]["labels"]["cluster.x-k8s.io/v1beta2"] = json!("v1beta2");
            // An installation by clusterctl adds this, by which it knows later what there is to move.
            object["metadata"]["labels"]["clusterctl.cluster.x-k8s.io"] = json!("");
            relocate(&mut object["spec"]["conversion"]["webhook"], place);
        }
        for webhook in object.get_mut("webhooks").and_then(Value::as_array_mut).into_iter().flatten() {
            relocate(webhook, place);
        }
        documents.push(object.to_string());
    }
    Ok(documents.join("\n---\n"))
}

/// Replaces the reference to the manager's Service, which does not exist here, by its URL.
fn relocate(webhook: &mut Value, place: &Place) {
    let path = webhook["clientConfig"]["service"]["path"].as_str().unwrap_or_default();
    webhook["clientConfig"] = json!({"url": format!("{}{path}", place.url), "caBundle": place.authority});
}
