use std::sync::LazyLock;

use portcullis_parts::kubernetes::{Kubernetes, Options};
use portcullis_parts::{Namespace, Port};

/// The Kubernetes API that the tests of this process share, with kube-controller-manager.
///
/// It starts with the first test that asks. Tests keep out of each other's way by namespaces of their own.
pub fn kubernetes() -> &'static Kubernetes {
    static SHARED: LazyLock<Kubernetes> = LazyLock::new(|| kubernetes_in(&Namespace::host()));
    &SHARED
}

/// A Kubernetes API of its own inside a network namespace, where kube-proxy and packets meet.
#[track_caller]
pub fn kubernetes_in(namespace: &Namespace) -> Kubernetes {
    let directory = crate::directory("k8s");
    let started = Port::any().and_then(|port| {
        Kubernetes::start(Options {
            namespace: namespace.clone(),
            logs: directory.clone(),
            directory,
            port,
            controllers: true,
        })
    });
    started.unwrap_or_else(|error| panic!("{error}"))
}
