//! The nodes of the cluster, as members of load balancers.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use futures_util::{StreamExt, pin_mut};
use k8s_openapi::api::core::v1::Node;
use kube::runtime::{WatchStreamExt, reflector, watcher};
use kube::{Api, Client};
use portcullis_core::Member;
use portcullis_kube_api::{is_eligible, node_member};
use tokio::sync::watch;
use tracing::warn;

/// Labels that nodes have to have.
type Labels = BTreeMap<String, String>;

/// Members, each with its labels, in their order; none until all were heard of.
type Known = Option<Arc<Vec<(Member, Labels)>>>;

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
        let list = lists.by_labels.entry(labels.clone()).or_insert_with(|| {
            let has_all = |found: &Labels| labels.iter().all(|(key, value)| found.get(key) == Some(value));
            known.iter().filter(|(_, found)| has_all(found)).map(|(member, _)| member.clone()).collect()
        });
        Arc::clone(list)
    }
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
        let mut members: Vec<(Member, Labels)> = store
            .state()
            .iter()
            .filter(|node| is_eligible(node))
            .filter_map(|node| Some((node_member(node)?, node.metadata.labels.clone().unwrap_or_default())))
            .collect();
        members.sort_by(|one, other| one.0.name().cmp(other.0.name()));
        sender.send_if_modified(|known| {
            let same = known.as_ref().is_some_and(|known| **known == members);
            if !same {
                *known = Some(Arc::new(members));
            }
            !same
        });
    }
}
