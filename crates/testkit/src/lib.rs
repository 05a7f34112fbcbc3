//! The real parts that tests run against, and a lab of network namespaces in which packets decide.
//!
//! Every part is ready when its function returns and gone when its value is dropped, also after a panic or
//! when the test is killed. A test that needs a part which is not installed fails and says how to install it.

mod api;
mod aws_site;
mod cloud_provider_aws;
mod cluster_api;
mod dhcp;
mod dice;
pub mod figures;
mod haproxy;
mod http;
mod keystone;
mod kube_proxy;
mod lab;
mod leash;
mod northbound;
mod ovirt;
mod passage;
mod probe;
mod raft;
mod refusing;
pub mod rows;
pub mod talk;
mod virtual_machine;
mod wait;
mod wire;

pub use api::{kubernetes, kubernetes_in, roomy_kubernetes, roomy_kubernetes_in};
pub use aws_site::{AwsSite, join_nodes};
pub use cloud_provider_aws::{AwsAccount, CloudProviderAws};
pub use cluster_api::ClusterApi;
pub use dhcp::{Offer, ask_dhcp};
pub use dice::Dice;
pub use haproxy::HaProxy;
pub use http::{Answer, Http};
pub use keystone::Keystone;
pub use kube_proxy::KubeProxy;
pub use lab::{Host, Server, link};
pub use leash::Leash;
pub use northbound::Northbound;
pub use ovirt::OvirtProvider;
pub use passage::Passage;
pub use portcullis_parts as parts;
pub use probe::{Failure, Target, can_connect, connect};
pub use raft::Raft;
pub use refusing::Refusing;
pub use virtual_machine::{outside, ovn, plug};
pub use wait::{eventually, eventually_within, processes_of};
pub use wire::Wire;

use std::sync::LazyLock;

use portcullis_parts::{AwsSimulator, Port, Scratch};

/// The directory of this test process. It outlives every part, and is removed when the process ends.
static SCRATCH: LazyLock<Scratch> = LazyLock::new(|| Scratch::new().expect("a directory for the test"));

/// A directory of its own for one part.
fn directory(part: &str) -> std::path::PathBuf {
    use std::sync::atomic::{AtomicU32, Ordering};
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    SCRATCH.directory(&format!("{part}{number}")).unwrap_or_else(|error| panic!("{error}"))
}

/// Starts an AWS simulator with nothing in it.
pub fn aws() -> AwsSimulator {
    let port = Port::any().unwrap_or_else(|error| panic!("{error}"));
    AwsSimulator::start(port, &directory("aws")).unwrap_or_else(|error| panic!("{error}"))
}
