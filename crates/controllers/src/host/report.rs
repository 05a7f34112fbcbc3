//! What a node tells of itself, and how.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use k8s_openapi::api::core::v1::{ConfigMap, Node};
use kube::api::{Api, ListParams, Patch, PatchParams};
use kube::runtime::watcher::{Config, Event};
use kube::{Client, ResourceExt};
use portcullis_host::claims::{Listening, Port};
use portcullis_host::datapath::Mode;
use portcullis_host::interfaces::{Interface, Interfaces, Selection, is_of_link};
use portcullis_kube_api::host::{NodeInterface, NodeReport};
use tokio::sync::watch;
use tokio::time::sleep;
use tracing::warn;

use super::agent::{AgentSettings, BACKOFF};
use super::known::watched;
use super::told::{Item, event_version, version};
use crate::pause::pause;

/// How often it is told again what was told already: that somebody deleted it may not have been heard.
const TELL_AGAIN: Duration = Duration::from_secs(60);

/// Which start of the kernel this is.
pub(super) fn boot() -> String {
    let read = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    read.trim().to_owned()
}

/// A mode, as it is told.
pub(super) fn word(mode: Mode) -> &'static str {
    match mode {
        Mode::None => "none",
        Mode::Filter => "filter",
        Mode::Nftables => "nftables",
    }
}

/// Whether others could use an address.
pub(super) fn may_be_told(address: &IpAddr) -> bool {
    !address.is_loopback() && !is_of_link(address)
}

/// Interfaces with addresses, as they are told, and those that somebody may name who waits for an address there.
pub(super) fn reported(interfaces: &Interfaces, selection: &Selection) -> BTreeMap<String, NodeInterface> {
    let told = interfaces.iter().filter_map(|one| {
        let addresses: BTreeSet<_> = one.addresses.iter().copied().filter(may_be_told).collect();
        let interface =
            NodeInterface { addresses, is_part: one.master.is_some(), is_loopback: one.is_loopback };
        let may_be_named = !one.is_loopback && !one.is_veth && !selection.is_internal(&one.name);
        (may_be_named || !interface.addresses.is_empty()).then(|| (one.name.clone(), interface))
    });
    told.collect()
}

/// The interfaces that a node told of.
pub(super) fn interfaces(report: &NodeReport) -> Interfaces {
    let all = (1..).zip(&report.interfaces).map(|(index, (name, told))| {
        let interface = Interface {
            name: name.clone(),
            // Of which one does not matter.
            master: told.is_part.then_some(0),
            is_loopback: told.is_loopback,
            is_veth: false,
            addresses: told.addresses.clone(),
        };
        (index, interface)
    });
    all.collect()
}

pub(super) fn told_listening(listening: &Listening) -> String {
    let Listening { port, address } = listening;
    match address {
        Some(address) => {
            let at = std::net::SocketAddr::new(*address, port.number);
            format!("{at}/{}", port.protocol.name())
        }
        None => port.to_string(),
    }
}

/// Where a program listens, as a node told of it.
pub(super) fn read_listening(text: &str) -> Option<Listening> {
    let (at, protocol) = text.rsplit_once('/')?;
    let protocol = match protocol {
        "tcp" => portcullis_core::Protocol::TCP,
        "udp" => portcullis_core::Protocol::UDP,
        "sctp" => portcullis_core::Protocol::SCTP,
        _ => return None,
    };
    match at.parse::<std::net::SocketAddr>() {
        Ok(at) => Some(Listening { port: Port { protocol, number: at.port() }, address: Some(at.ip()) }),
        Err(_) => Some(Listening { port: Port { protocol, number: at.parse().ok()? }, address: None }),
    }
}

/// What a node told of itself before, if it may be read. While the API does not answer it is waited for: nothing else could be done.
pub(super) async fn told_before(client: &Client, namespace: &str, node: &str) -> Option<NodeReport> {
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
    let own = ListParams::default().fields(&format!("metadata.name={}", NodeReport::name(node)));
    let mut is_said = false;
    let told = loop {
        let problem = match api.list(&own).await {
            Ok(told) => break told,
            Err(problem) => problem,
        };
        if !std::mem::replace(&mut is_said, true) {
            warn!(node = node, %problem, "what this node told before cannot be read");
        }
        // Who may not read it looks after the node all the same.
        if matches!(&problem, kube::Error::Api(status) if status.code == 403) {
            return None;
        }
        sleep(BACKOFF.0).await;
    };
    let (_, before) = told.items.first().and_then(NodeReport::read)?;
    before.ok()
}

/// Tells others what a node has, whenever that changes.
pub(super) async fn tell(client: Client, settings: AgentSettings, mut report: watch::Receiver<NodeReport>) {
    if settings.observe {
        return;
    }
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), &settings.namespace);
    let nodes: Api<Node> = Api::all(client);
    let name = NodeReport::name(&settings.node);
    let (mut failures, mut uid, mut is_unknown) = (0_u32, None, false);
    let own = Config::default().fields(&format!("metadata.name={name}"));
    let mut own = watched(api.clone(), own);
    loop {
        // What is not known yet is not told: others would take addresses away.
        if report.wait_for(|report| !report.datapath.mode.is_empty()).await.is_err() {
            return;
        }
        let now = report.borrow_and_update().clone();
        if uid.is_none() {
            let node = nodes.get_opt(&settings.node).await;
            if matches!(node, Ok(None)) && !is_unknown {
                warn!(
                    node = settings.node,
                    "there is no Node of this name, so that no endpoint is known to be here and no start of the machine is noticed: set host.node to its name as `kubectl get nodes` has it"
                );
            }
            is_unknown = matches!(node, Ok(None));
            uid = node.ok().flatten().and_then(|node| node.uid());
        }
        let patch = Patch::Apply(now.patch(&settings.node, uid.as_deref()));
        let written = match api.patch(&name, &PatchParams::apply("portcullis-host").force(), &patch).await {
            Ok(object) => version(&object),
            Err(problem) => {
                // The node may be another one of its name by now.
                uid = None;
                warn!(node = settings.node, %problem, "what this node has cannot be told; it is tried again");
                failures = failures.saturating_add(1);
                sleep(pause(BACKOFF, failures)).await;
                continue;
            }
        };
        failures = 0;
        tokio::select! {
            changed = report.changed() => if changed.is_err() { return },
            () = undone(&mut own, written) => {
                warn!(node = settings.node, object = name, "somebody else changed what this node tells: it is told again");
                uid = None;
                // Whoever does so all the time has it so.
                sleep(BACKOFF.0).await;
            }
            () = sleep(TELL_AGAIN) => uid = None,
        }
    }
}

/// Waits until somebody deletes or changes an object that has this version.
async fn undone(events: &mut BoxStream<'static, Event<Item<ConfigMap>>>, written: Option<u64>) {
    while let Some(event) = events.next().await {
        if event_version(&event) > written {
            return;
        }
    }
    std::future::pending::<()>().await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_programs_listen_is_read_as_it_was_told() {
        for text in ["22/tcp", "192.0.2.7:6443/tcp", "[2001:db8::7]:53/udp", "9899/sctp"] {
            assert_eq!(told_listening(&read_listening(text).unwrap()), text);
        }
        for text in ["", "22", "x/tcp", "22/xyz", "70000/tcp"] {
            assert_eq!(read_listening(text), None, "{text}");
        }
    }
}
