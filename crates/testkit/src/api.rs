use std::ops::RangeInclusive;
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
    start(namespace, true, None)
}

/// A Kubernetes API of its own without kube-controller-manager, in which many Services find ports on nodes.
#[track_caller]
pub fn roomy_kubernetes() -> Kubernetes {
    roomy_kubernetes_in(&Namespace::host())
}

/// The same, inside a network namespace.
#[track_caller]
pub fn roomy_kubernetes_in(namespace: &Namespace) -> Kubernetes {
    start(namespace, false, Some(20_000..=59_999))
}

#[track_caller]
fn start(namespace: &Namespace, controllers: bool, node_ports: Option<RangeInclusive<u16>>) -> Kubernetes {
    let directory = crate::directory("k8s");
    let started = Port::any().and_then(|port| {
        Kubernetes::start(Options {
            namespace: namespace.clone(),
            logs: directory.clone(),
            directory,
            port,
            controllers,
            node_ports,
        })
    });
    started.unwrap_or_else(|error| panic!("{error}"))
}
