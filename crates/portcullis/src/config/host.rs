//! Services at the addresses of nodes.

use portcullis_host::interfaces::Selection;
use portcullis_kube_api::host::HOST_CLASS;
use serde::{Deserialize, Serialize};

/// Services of type `LoadBalancer` that are reached at the addresses of nodes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
#[allow(clippy::struct_excessive_bools, reason = "each is a switch of its own")]
pub(crate) struct Host {
    /// Whether they are looked after.
    pub(crate) enabled: bool,
    /// Those of this class are.
    pub(crate) class: String,
    /// Those without any class, too.
    pub(crate) without_class: bool,
    /// Whether this process says in the status of Services where they are reached. Of several, one acts.
    pub(crate) controller: bool,
    /// Whether this process looks after the machine that it runs on.
    pub(crate) agent: bool,
    /// The namespace where nodes tell of themselves.
    pub(crate) namespace: String,
    /// The name of this node; else as `NODE_NAME` says, or the name of the machine.
    pub(crate) node: Option<String>,
    /// What the packet filters of nodes do.
    pub(crate) datapath: Datapath,
    /// Ports that no Service gets.
    pub(crate) reserved_ports: Vec<u16>,
    /// Interfaces whose addresses no Service gets: a name, or its start and `*`.
    pub(crate) management_interfaces: Vec<String>,
    /// Interfaces of the network between pods, which are only meant by who names them.
    pub(crate) internal_interfaces: Vec<String>,
}

impl Default for Host {
    fn default() -> Self {
        Host {
            enabled: false,
            class: HOST_CLASS.to_owned(),
            without_class: false,
            controller: true,
            agent: true,
            namespace: "portcullis".to_owned(),
            node: None,
            datapath: Datapath::None,
            // SSH; etcd; the API, kubelets, and what else of Kubernetes is on nodes; ourselves.
            reserved_ports: vec![22, 2379, 2380, 6443, 9695, 10248, 10249, 10250, 10256, 10257, 10259],
            management_interfaces: Vec::new(),
            internal_interfaces: Selection::usual().internal,
        }
    }
}

/// What the packet filters of nodes do.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Datapath {
    /// Nothing: others serve the addresses, and keep to source ranges or do not.
    #[default]
    None,
    /// They drop what source ranges exclude, before whoever serves the addresses.
    Filter,
    /// They serve the addresses.
    Nftables,
}
