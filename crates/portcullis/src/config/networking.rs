//! The Networking API, and who may use it.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use portcullis_networking::identity::{KeystoneSettings, Settings};
use portcullis_ovsdb::Remote;
use serde::{Deserialize, Deserializer, Serialize};

use super::{ListenAddress, decode};

/// The OpenStack Networking API on OVN.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Networking {
    /// Whether it is served.
    pub(crate) enabled: bool,
    pub(crate) listen: ListenAddress,
    pub(crate) tls: ServerTls,
    pub(crate) northbound: Northbound,
    /// Whether the ports of a network that does not say are filtered.
    pub(crate) port_security: bool,
    /// The largest packet of a network of OVN's own: what the wires below carry, less the 58 bytes that OVN wraps it in.
    pub(crate) mtu: u32,
    /// The largest packet of a network on a wire that was there before.
    pub(crate) physical_mtu: u32,
    /// How much a project may have, by resource; -1 is without limit.
    pub(crate) quotas: BTreeMap<String, i64>,
    /// The chassis that may carry the gateways of routers, the preferred one first.
    pub(crate) gateway_chassis: Vec<String>,
    /// For how long DHCP gives an address, in seconds.
    pub(crate) dhcp_lease: u32,
    /// The domain of networks that have none of their own.
    pub(crate) dns_domain: String,
}

impl Default for Networking {
    fn default() -> Self {
        let (api, ovn) = (portcullis_networking::Settings::default(), portcullis_ovn::Options::default());
        Networking {
            enabled: false,
            listen: ListenAddress(SocketAddr::from((Ipv4Addr::LOCALHOST, 9696))),
            tls: ServerTls::default(),
            northbound: Northbound::default(),
            port_security: api.port_security,
            mtu: api.mtu,
            physical_mtu: api.physical_mtu,
            quotas: BTreeMap::new(),
            gateway_chassis: ovn.gateway_chassis,
            dhcp_lease: ovn.dhcp_lease,
            dns_domain: ovn.dns_domain,
        }
    }
}

/// How a server proves who it is. Without them it serves without TLS.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct ServerTls {
    /// A file with its certificate, and those up to its authority.
    pub(crate) certificate: Option<PathBuf>,
    pub(crate) key: Option<PathBuf>,
}

/// OVN's northbound database.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Northbound {
    /// Where it is served; of a cluster, all members.
    pub(crate) remotes: Vec<RemoteAddress>,
    /// Who signs the server's certificate; with `ssl:` remotes all three are needed.
    pub(crate) authority: Option<PathBuf>,
    pub(crate) certificate: Option<PathBuf>,
    pub(crate) key: Option<PathBuf>,
    /// Whether a change counts as made only once it is on disk.
    pub(crate) durable: bool,
    /// Whether others may have rows in the same database.
    pub(crate) coexist: bool,
    /// Where the southbound database is served, which knows how the members of load balancers are.
    pub(crate) southbound: Vec<RemoteAddress>,
}

impl Default for Northbound {
    fn default() -> Self {
        Northbound {
            remotes: vec![RemoteAddress("unix:/run/ovn/ovnnb_db.sock".to_owned())],
            authority: None,
            certificate: None,
            key: None,
            durable: true,
            coexist: false,
            southbound: Vec::new(),
        }
    }
}

/// Where a database is served: `unix:…`, `tcp:…` or `ssl:…`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub(crate) struct RemoteAddress(pub(crate) String);

impl RemoteAddress {
    pub(crate) fn remote(&self) -> Option<Remote> {
        self.0.parse().ok()
    }
}

impl<'de> Deserialize<'de> for RemoteAddress {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let expected = "where a database is, such as unix:/run/ovn/ovnnb_db.sock or ssl:192.0.2.1:6641";
        decode::from_text(deserializer, expected, |text| {
            let remote = RemoteAddress(text.to_owned());
            if remote.remote().is_some() { Ok(remote) } else { Err(None) }
        })
    }
}

/// Who may use the Networking API.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Identity {
    /// Where the Identity API is served, beside the Networking API: the port of which has it too, if it is the same.
    pub(crate) listen: ListenAddress,
    pub(crate) tls: ServerTls,
    /// Users and projects of our own.
    pub(crate) local: Settings,
    /// An existing Keystone instead.
    pub(crate) keystone: Option<KeystoneSettings>,
}

impl Default for Identity {
    fn default() -> Self {
        Identity {
            listen: ListenAddress(SocketAddr::from((Ipv4Addr::LOCALHOST, 35357))),
            tls: ServerTls::default(),
            local: Settings::default(),
            keystone: None,
        }
    }
}
