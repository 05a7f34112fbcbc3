//! The nodes of the cluster, as members of load balancers.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

use futures_util::{StreamExt, pin_mut};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::runtime::{WatchStreamExt, reflector, watcher};
use kube::{Api, Client};
use portcullis_core::Member;
use portcullis_kube_api::{is_eligible, node_member};
use tokio::sync::watch;
use tracing::warn;

/// Labels that nodes have to have.
type Labels = BTreeMap<String, String>;

/// A node that load balancers send to.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Host {
    member: Member,
    labels: Labels,
    created: Option<Time>,
}

/// All of them, in their order; none until all were heard of.
type Known = Option<Arc<Vec<Host>>>;

/// The nodes that load balancers send to.
#[derive(Clone)]
pub(crate) struct Nodes {
    known: watch::Receiver<Known>,
    /// Lists that were asked for, so that all who ask for the same share it.
    lists: Arc<Mutex<Lists>>,
}

#[derive(Default)]
struct Lists {
    of: Known,
    by_labels: BTreeMap<Labels, Arc<[Member]>>,
}

impl Nodes {
    /// Watches the nodes from now on.
    pub(crate) fn watch(client: Client) -> Self {
        let (sender, known) = watch::channel(None);
        tokio::spawn(follow(client, sender));
        Nodes { known, lists: Arc::default() }
    }

    /// Waits until all are known.
    pub(crate) async fn ready(&self) {
        let _ = self.known.clone().wait_for(Option::is_some).await;
    }

    /// Tells when members come, go or change; not for the heartbeats of nodes.
    pub(crate) fn changes(&self) -> watch::Receiver<Known> {
        self.known.clone()
    }

    /// The members with all of these labels.
    pub(crate) fn members(&self, labels: &Labels) -> Arc<[Member]> {
        let known = self.known.borrow().clone().unwrap_or_default();
        let mut lists = self.lists.lock().unwrap_or_else(PoisonError::into_inner);
        if !lists.of.as_ref().is_some_and(|of| Arc::ptr_eq(of, &known)) {
            *lists = Lists { of: Some(Arc::clone(&known)), by_labels: BTreeMap::new() };
        }
        let list = lists.by_labels.entry(labels.clone()).or_insert_with(|| chosen(&known, labels));
        Arc::clone(list)
    }
}

/// Those with all of these labels. Of several with one address the last one has it: the others are what is left of
/// machines that are gone.
fn chosen(hosts: &[Host], labels: &Labels) -> Arc<[Member]> {
    let has_all = |host: &Host| labels.iter().all(|(key, value)| host.labels.get(key) == Some(value));
    let mut last: BTreeMap<IpAddr, &Host> = BTreeMap::new();
    for host in hosts.iter().filter(|host| has_all(host)) {
        for address in host.member.addresses() {
            let known = last.entry(*address).or_insert(host);
            if known.created < host.created {
                *known = host;
            }
        }
    }
    let has_its_own = |host: &Host| {
        host.member.addresses().iter().all(|address| last.get(address).is_some_and(|last| *last == host))
    };
    let hosts = hosts.iter().filter(|host| has_all(host) && has_its_own(host));
    hosts.map(|host| host.member.clone()).collect()
}

async fn follow(client: Client, sender: watch::Sender<Known>) {
    let (store, writer) = reflector::store();
    let api: Api<Node> = Api::all(client);
    // Managed fields and what kubelets report of images are the larger part of a node.
    let lean = |node: &mut Node| {
        node.metadata.managed_fields = None;
        if let Some(status) = &mut node.status {
            status.images = None;
            status.conditions = None;
        }
    };
    let events = watcher(api, watcher::Config::default()).default_backoff().modify(lean).reflect(writer);
    pin_mut!(events);
    let mut complete = false;
    while let Some(event) = events.next().await {
        match event {
            Ok(watcher::Event::InitDone) => complete = true,
            Ok(_) => {}
            Err(error) => {
                warn!(%error, "the nodes cannot be watched");
                continue;
            }
        }
        if !complete {
            continue;
        }
        let mut hosts: Vec<Host> =
            store.state().iter().filter(|node| is_eligible(node)).filter_map(|node| host(node)).collect();
        hosts.sort_by(|one, other| one.member.name().cmp(other.member.name()));
        sender.send_if_modified(|known| {
            let same = known.as_ref().is_some_and(|known| **known == hosts);
            if !same {
                *known = Some(Arc::new(hosts));
            }
            !same
        });
    }
}

fn host(node: &Node) -> Option<Host> {
    Some(Host {
        member: node_member(node)?,
        labels: node.metadata.labels.clone().unwrap_or_default(),
        created: node.metadata.creation_timestamp.clone(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn hosts(nodes: &[(&str, &str, &[&str], u8)]) -> Vec<Host> {
        let nodes = nodes.iter().map(|(name, label, addresses, second)| {
            let addresses: Vec<_> =
                addresses.iter().map(|one| json!({"type": "InternalIP", "address": one})).collect();
            let created = format!("2026-01-01T00:00:{second:02}Z");
            let metadata = json!({"name": name, "labels": {"a": label}, "creationTimestamp": created});
            serde_json::from_value(json!({"metadata": metadata, "status": {"addresses": addresses}})).unwrap()
        });
        nodes.map(|node: Node| host(&node).unwrap()).collect()
    }

    #[test]
    fn the_last_one_has_the_address() {
        let names = |hosts: &[Host], labels: &Labels| {
            chosen(hosts, labels).iter().map(|member| member.name().to_owned()).collect::<Vec<_>>()
        };
        let all = hosts(&[
            ("new", "1", &["10.0.0.1"], 3),
            ("old", "2", &["10.0.0.1", "fd00::1"], 1),
            ("other", "1", &["10.0.0.2"], 2),
            ("twin-a", "1", &["10.0.0.3"], 2),
            ("twin-b", "1", &["10.0.0.3"], 2),
        ]);
        assert_eq!(names(&all, &Labels::new()), ["new", "other", "twin-a"]);
        // Who is not asked for takes nothing from anybody.
        assert_eq!(names(&all, &[("a".to_owned(), "2".to_owned())].into()), ["old"]);
    }
}
