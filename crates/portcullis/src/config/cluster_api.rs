//! Load balancers of clusters that Cluster API makes, and machines that carry them.

use std::net::IpAddr;
use std::path::PathBuf;

use portcullis_networking::identity::Period;
use serde::{Deserialize, Serialize};

/// `LoadBalancers` of clusters.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
#[allow(clippy::struct_excessive_bools, reason = "each is a switch of its own")]
pub(crate) struct ClusterApi {
    /// Whether they are looked after.
    pub(crate) enabled: bool,
    /// Under which names the types are installed.
    pub(crate) types: Types,
    /// Only those of this namespace.
    pub(crate) namespace: Option<String>,
    /// How many are dealt with at the same time.
    pub(crate) concurrency: u16,
    /// How often endpoints are asked whether they answer.
    pub(crate) probe: Period,
    /// Whether network load balancers of AWS are made.
    pub(crate) aws: bool,
    /// Whether load balancers on machines with `HAProxy` are looked after.
    pub(crate) haproxy: bool,
    /// Whether load balancers of OVN are made.
    pub(crate) ovn: bool,
}

impl Default for ClusterApi {
    fn default() -> Self {
        ClusterApi {
            enabled: false,
            types: Types::Own,
            namespace: None,
            concurrency: 16,
            probe: Period::seconds(30),
            aws: false,
            haproxy: true,
            ovn: false,
        }
    }
}

/// Under which names the types are installed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Types {
    /// In a group of our own, beside a Cluster API installation.
    #[default]
    Own,
    /// As the proposal for Cluster API has them.
    Proposed,
}

/// A machine that carries load balancers by `HAProxy`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct HaProxy {
    /// Whether this machine does.
    pub(crate) enabled: bool,
    /// The pool that it is of.
    pub(crate) pool: String,
    /// Its name; the machine's, if nothing is said.
    pub(crate) name: Option<String>,
    /// The namespace where machines say that they are there.
    pub(crate) namespace: String,
    /// Where its files are.
    pub(crate) directory: PathBuf,
    /// The program.
    pub(crate) program: PathBuf,
    /// The user, and group, that its workers run as; who starts it, if it is empty.
    pub(crate) user: String,
    /// How many of its workers that a reload replaced may go on with the connections they have.
    pub(crate) old_workers: u16,
    /// The interface that shared addresses come to. Without it others see to it that they do.
    pub(crate) interface: Option<String>,
    /// Who has the highest gets an address that nobody has.
    pub(crate) priority: u8,
    /// Other machines of the pool, where the network carries no multicast.
    pub(crate) peers: Vec<IpAddr>,
    /// How often the one that has an address says so. It is missed after three times as long.
    pub(crate) advertise: Period,
}

impl Default for HaProxy {
    fn default() -> Self {
        HaProxy {
            enabled: false,
            pool: "default".to_owned(),
            name: None,
            namespace: "portcullis".to_owned(),
            directory: "/var/lib/portcullis/haproxy".into(),
            program: "/usr/sbin/haproxy".into(),
            user: "haproxy".to_owned(),
            old_workers: 16,
            interface: None,
            priority: 100,
            peers: Vec::new(),
            advertise: Period::seconds(1),
        }
    }
}
