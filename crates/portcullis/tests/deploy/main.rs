//! What installs it in a cluster: the manifests, the kustomization and the chart, on a real Kubernetes API; and the
//! program, with the configuration that they hold and no other rights than they give.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

mod ingress;
mod nodes;
mod printed;
mod services;

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use portcullis_testkit::kubernetes;
use portcullis_testkit::parts::catalogue::find;
use portcullis_testkit::parts::kubernetes::Kubernetes;
use serde_json::Value;
use tempfile::TempDir;

/// A file or directory of `deploy`.
fn deploy(path: &str) -> String {
    format!("{}/../../deploy/{path}", env!("CARGO_MANIFEST_DIR"))
}

/// What a program prints.
fn output(program: impl AsRef<Path>, args: &[&str]) -> Result<String, String> {
    let output = Command::new(program.as_ref()).args(args).env_remove("PORTCULLIS_CONFIG").output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
}

fn portcullis(args: &[&str]) -> String {
    output(env!("CARGO_BIN_EXE_portcullis"), args).unwrap()
}

fn helm(args: &[&str]) -> Result<String, String> {
    let chart = deploy("chart");
    output(
        find("helm").unwrap(),
        &[&["template", "portcullis", &chart, "--namespace=portcullis"], args].concat(),
    )
}

/// The objects of a manifest, as kubectl reads them, by kind, name and namespace.
fn objects(manifest: &str) -> Vec<Value> {
    let kubernetes = kubernetes();
    let read = ["create", "--dry-run=client", "--validate=false", "-o", "json", "-f", "-"];
    let text = kubernetes.kubectl_as(kubernetes.kubeconfig(), &read, manifest).unwrap();
    let mut objects: Vec<Value> =
        serde_json::Deserializer::from_str(&text).into_iter().collect::<Result<_, _>>().unwrap();
    let key = |object: &Value| {
        let metadata = &object["metadata"];
        format!("{} {} {}", object["kind"], metadata["name"], metadata["namespace"])
    };
    objects.sort_by_key(key);
    assert!(objects.len() > 5, "{text}");
    objects
}

fn same(these: &[Value], those: &[Value]) {
    let names = |objects: &[Value]| -> Vec<String> {
        objects.iter().map(|object| format!("{} {}", object["kind"], object["metadata"]["name"])).collect()
    };
    assert_eq!(names(these), names(those));
    for (this, that) in these.iter().zip(those) {
        assert_eq!(this, that, "\n{this:#}\n{that:#}");
    }
}

/// What the chart has instead of the manifests: no namespace, and a mark that replaces pods.
fn without_what_charts_differ_in(mut objects: Vec<Value>) -> Vec<Value> {
    objects.retain(|object| object["kind"] != "Namespace");
    for object in &mut objects {
        if let Some(pod) = object.pointer_mut("/spec/template/metadata").and_then(Value::as_object_mut) {
            pod.remove("annotations");
        }
    }
    objects
}

/// `portcullis serve` as in a pod: with the configuration of the cluster, as its service account.
struct Pod {
    child: Child,
    log: PathBuf,
    _files: TempDir,
}

impl Pod {
    fn start(kubernetes: &Kubernetes, aws: &str) -> Self {
        let read = ["get", "configmap", "portcullis", "--namespace=portcullis", "-o", "jsonpath={.data}"];
        let data: Value = serde_json::from_str(&kubernetes.kubectl(&read).unwrap()).unwrap();
        let files = TempDir::new().unwrap();
        for (name, text) in data.as_object().unwrap() {
            fs::write(files.path().join(name), text.as_str().unwrap()).unwrap();
        }
        let file = |name: &str| files.path().join(name).display().to_string();
        let log = files.path().join("log");
        let child = Command::new("setpriv")
            .args(["--pdeathsig", "KILL", "--", env!("CARGO_BIN_EXE_portcullis"), "serve"])
            .args(["--config", &file("config.yaml")])
            .args(["--set", &format!("aws.cloudConfig={}", file("cloud.conf"))])
            .args(["--set", &format!("kubernetes.kubeconfig={}", account(kubernetes).display())])
            .args(["--set", "telemetry.listen=127.0.0.1:0"])
            .envs([("AWS_ENDPOINT_URL", aws), ("AWS_REGION", "us-east-1"), ("POD_NAME", "portcullis-1")])
            .envs([("AWS_ACCESS_KEY_ID", "test"), ("AWS_SECRET_ACCESS_KEY", "test")])
            .stdin(Stdio::null())
            .stderr(File::create(&log).unwrap())
            .spawn()
            .unwrap();
        Pod { child, log, _files: files }
    }

    /// One that looks after `IngressControllers` alone.
    fn for_ingress(kubernetes: &Kubernetes, name: &str, settings: &[&str]) -> Self {
        let files = TempDir::new().unwrap();
        let log = files.path().join("log");
        let account = format!("kubernetes.kubeconfig={}", account(kubernetes).display());
        let usual = [
            "ingressControllers.enabled=true",
            "ingressControllers.router.image=example.com/router:1",
            "telemetry.listen=127.0.0.1:0",
            &account,
        ];
        let settings = usual.iter().chain(settings).flat_map(|setting| ["--set", *setting]);
        let child = Command::new("setpriv")
            .args(["--pdeathsig", "KILL", "--", env!("CARGO_BIN_EXE_portcullis"), "serve"])
            .args(settings)
            .env("POD_NAME", name)
            .stdin(Stdio::null())
            .stderr(File::create(&log).unwrap())
            .spawn()
            .unwrap();
        Pod { child, log, _files: files }
    }

    fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap()
    }

    /// Ends it; nothing was refused meanwhile.
    fn stop(&mut self) {
        kill(Pid::from_raw(self.child.id().cast_signed()), Signal::SIGTERM).unwrap();
        assert!(self.child.wait().unwrap().success(), "{}", self.log());
        assert!(!self.log().contains("forbidden"), "{}", self.log());
    }
}

impl Drop for Pod {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A kubeconfig of the service account.
fn account(kubernetes: &Kubernetes) -> PathBuf {
    account_in(kubernetes, "portcullis")
}

fn account_in(kubernetes: &Kubernetes, namespace: &str) -> PathBuf {
    let user = format!("system:serviceaccount:{namespace}:portcullis");
    kubernetes.user(&user, Some("system:serviceaccounts")).unwrap()
}

fn may(kubernetes: &Kubernetes, verb: &str, what: &str, namespace: &str) -> bool {
    let ask = ["auth", "can-i", verb, what, "--namespace", namespace];
    kubernetes.kubectl_as(&account(kubernetes), &ask, "").is_ok_and(|answer| answer.trim() == "yes")
}
