//! The program as it is installed: by its manifests, with the rights that these give.

// Not every test has a use for all of it.
#![allow(dead_code, reason = "each test takes what it needs")]

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use portcullis_testkit::Host;
use portcullis_testkit::parts::Namespace;
use portcullis_testkit::parts::catalogue::find;
use portcullis_testkit::parts::kubernetes::Kubernetes;
use serde_json::json;

/// The program, until it is dropped.
pub(crate) struct Program {
    pub(crate) child: Child,
    log: PathBuf,
}

impl Program {
    pub(crate) fn start(node: &Host, log: &Path, config: &Path, settings: &[String]) -> Self {
        let child = Namespace::run(node, || {
            Command::new(env!("CARGO_BIN_EXE_portcullis"))
                .args(["serve", "--config"])
                .arg(config)
                .args(settings.iter().flat_map(|setting| ["--set", setting]))
                .stdin(Stdio::null())
                .stderr(File::create(log).unwrap())
                .spawn()
                .unwrap()
        });
        Program { child, log: log.to_owned() }
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap()
    }

    /// Whatever it did so far, it had the rights to.
    #[track_caller]
    pub(crate) fn may_do_all_of_it(&self) {
        let log = self.log();
        assert!(!log.to_lowercase().contains("forbidden"), "{log}");
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("{}", self.log());
        }
    }
}

/// What a program on this machine counts, at the address that it has for that unless it is told another.
pub(crate) fn metrics_of(machine: &Host) -> String {
    Namespace::run(machine, || {
        let Ok(mut stream) = TcpStream::connect("127.0.0.1:9695") else { return String::new() };
        let _ = stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n");
        let mut text = String::new();
        let _ = stream.read_to_string(&mut text);
        text
    })
}

/// The objects of an overlay.
pub(crate) fn built(overlay: &str) -> String {
    let path = format!("{}/../../deploy/kustomize/{overlay}", env!("CARGO_MANIFEST_DIR"));
    let output = Command::new(find("kubectl").unwrap()).args(["kustomize", &path]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// What a `ConfigMap` has under a key.
pub(crate) fn text(kubernetes: &Kubernetes, namespace: &str, name: &str, key: &str) -> String {
    let path = format!("jsonpath={{.data['{}']}}", key.replace('.', "\\."));
    kubernetes.kubectl(&["-n", namespace, "get", "configmap", name, "-o", &path]).unwrap()
}

/// A kubeconfig of the account in the namespace of the manifests.
pub(crate) fn controller_account(kubernetes: &Kubernetes) -> PathBuf {
    kubernetes.user("system:serviceaccount:portcullis:portcullis", Some("system:serviceaccounts")).unwrap()
}

/// A kind whose objects only say what the test wants them to.
pub(crate) fn double(kind: &str) -> String {
    double_in("infrastructure.cluster.x-k8s.io", kind)
}

/// The same in another group.
pub(crate) fn double_in(group: &str, kind: &str) -> String {
    let plural = format!("{}s", kind.to_ascii_lowercase());
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{group}"), "labels": {"cluster.x-k8s.io/v1beta2": "v1"}},
        "spec": {
            "group": group, "scope": "Namespaced", "names": {"kind": kind, "plural": plural},
            "versions": [{"name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}],
        },
    })
    .to_string()
}
