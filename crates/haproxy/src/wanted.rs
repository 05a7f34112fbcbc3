use std::fmt;
use std::time::Duration;

use portcullis_core::LoadBalancer;

/// All that a machine's HAProxy should do.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Wanted {
    /// The load balancers. Where two want the same place, the first has it.
    pub balancers: Vec<Balancer>,
    /// What holds for all of them.
    pub tuning: Tuning,
}

/// A load balancer, and how it is to be carried.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Balancer {
    /// Whose it is.
    pub id: BalancerId,
    /// What it is. Without addresses it listens at every address of the machine.
    pub load_balancer: LoadBalancer,
    /// What only HAProxy has to know.
    pub options: Options,
}

/// The name of a load balancer.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BalancerId {
    /// Its namespace.
    pub namespace: String,
    /// Its name in there.
    pub name: String,
}

impl BalancerId {
    /// The load balancer of this name.
    pub fn new(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }
}

impl fmt::Display for BalancerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{}/{}", self.namespace, self.name))
    }
}

/// What only HAProxy has to know of a load balancer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Options {
    /// Whether members are told the client's address, by version 2 of the PROXY protocol. They have to expect it.
    pub send_proxy: bool,
    /// Who gets the next connection.
    pub balance: Balance,
}

/// Who gets the next connection. Only what HAProxy calls dynamic: others cannot take new members without a reload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Balance {
    /// Who has the fewest: right for connections that last.
    #[default]
    LeastConnections,
    /// One after the other.
    RoundRobin,
    /// The better of two that are drawn.
    Random,
}

impl Balance {
    /// HAProxy's word for it.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::LeastConnections => "leastconn",
            Self::RoundRobin => "roundrobin",
            Self::Random => "random",
        }
    }
}

/// What holds for all load balancers of a machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tuning {
    /// How long a connection may be silent. Watches of the Kubernetes API are, and shells; peers that are gone are
    /// found by TCP's own questions, within three minutes.
    pub idle: Duration,
    /// How long a member may take to accept a connection before another one is tried.
    pub connect: Duration,
    /// How many workers that were replaced by a reload may go on with the connections they have. Of more than that the oldest
    /// one's connections are ended, and counted.
    pub old_workers: usize,
    /// How many connections there may be; `None` is what the machine's limit of open files has room for.
    pub max_connections: Option<u32>,
    /// The user, and group, that workers run as: by default those of the system's package. `None` is who starts them.
    pub user: Option<String>,
}

impl Default for Tuning {
    fn default() -> Self {
        Self {
            idle: Duration::from_secs(24 * 3600),
            connect: Duration::from_secs(3),
            old_workers: 16,
            max_connections: None,
            user: Some("haproxy".to_owned()),
        }
    }
}
