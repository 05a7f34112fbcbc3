//! What is watched. Services and endpoints are read once, for both halves, where they are one process; and there one half hears of the
//! other without the API between them.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Debug;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::stream::{self, BoxStream, Stream, StreamExt};
use k8s_openapi::api::core::v1::{Service, ServiceSpec};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::Api;
use kube::runtime::watcher::{Config, Event};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Client, Resource};
use portcullis_host::claims::Name;
use portcullis_kube_api::host::{self, NodeReport};
use serde::de::DeserializeOwned;
use tokio::sync::{mpsc, watch};
use tracing::warn;

use super::asked::Slice;
use super::others::external_ips;
use super::told::{Item, map};

/// So many objects are listed at a time: each page is there twice, as it came and as it was read.
const PAGE: u32 = 500;

/// What both halves know.
#[derive(Clone)]
#[allow(missing_debug_implementations, reason = "a client of Kubernetes has none")]
pub struct Known {
    pub(super) client: Client,
    services: Source<Service>,
    slices: Source<Slice>,
    /// What nodes tell of themselves that are looked after by this process, by name.
    pub(super) here: Arc<watch::Sender<BTreeMap<String, NodeReport>>>,
}

impl Known {
    /// What this client is told. Nothing is watched before somebody wants to know it.
    pub fn new(client: Client) -> Self {
        Known { client, services: Source::default(), slices: Source::default(), here: Arc::default() }
    }

    /// Services that are of interest to anybody here.
    pub(super) fn services(&self) -> BoxStream<'static, Event<Item<Service>>> {
        let read = |service: Service| {
            let matters = matters(&service);
            let item = Item::lean(service);
            Item { object: item.object.filter(|_| matters), ..item }
        };
        let api: Api<Service> = Api::all(self.client.clone());
        self.services.listen(|| events(api, Config::default()).map(move |event| map(event, read)))
    }

    /// Endpoints of Services.
    pub(super) fn slices(&self) -> BoxStream<'static, Event<Item<Slice>>> {
        let api: Api<EndpointSlice> = Api::all(self.client.clone());
        self.slices.listen(|| events(api, Config::default()).map(|event| map(event, Slice::item)))
    }
}

/// All events of a kind, for as long as anybody listens.
pub(super) fn watched<K>(api: Api<K>, config: Config) -> BoxStream<'static, Event<Item<K>>>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static,
{
    events(api, config).map(|event| map(event, Item::lean)).boxed()
}

fn events<K>(api: Api<K>, config: Config) -> impl Stream<Item = Event<K>> + Send + 'static
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static,
{
    watcher(api, config.page_size(PAGE)).default_backoff().filter_map(|event| {
        let event = event.inspect_err(|problem| {
            warn!(kind = %K::kind(&()), %problem, "objects cannot be watched; what is known goes on");
        });
        std::future::ready(event.ok())
    })
}

/// Whether a Service can have, or had, anything of a node: most of a cluster cannot.
fn matters(service: &Service) -> bool {
    let is = |spec: &ServiceSpec| {
        let has_node_port = spec.ports.iter().flatten().any(|port| port.node_port.is_some());
        has_node_port || spec.type_.as_deref() == Some("LoadBalancer")
    };
    let has_address = external_ips(service).next().is_some();
    service.spec.as_ref().is_some_and(is) || has_address || host::assigned(service).is_some()
}

/// What is watched once, and told to all who listen.
struct Source<V>(Arc<Mutex<State<V>>>);

struct State<V> {
    /// What is there, for those who come later; and what is listed, until all is there.
    there: Option<HashMap<Name, Item<V>>>,
    coming: Option<HashMap<Name, Item<V>>>,
    /// It is watched as long as there is one.
    listeners: Vec<mpsc::UnboundedSender<Vec<Event<Item<V>>>>>,
}

impl<V> Clone for Source<V> {
    fn clone(&self) -> Self {
        Source(Arc::clone(&self.0))
    }
}

impl<V> Default for Source<V> {
    fn default() -> Self {
        Source(Arc::new(Mutex::new(State::nothing())))
    }
}

impl<V: Send + Sync + 'static> Source<V> {
    /// What is there, and all that is told from now on. `watch` begins to watch, if nobody does.
    fn listen<S>(&self, watch: impl FnOnce() -> S) -> BoxStream<'static, Event<Item<V>>>
    where
        S: Stream<Item = Event<Item<V>>> + Send + 'static,
    {
        let (sender, receiver) = mpsc::unbounded_channel();
        let mut state = self.lock();
        drop(sender.send(state.so_far()));
        let is_watched = !state.listeners.is_empty();
        state.listeners.push(sender);
        drop(state);
        if !is_watched {
            tokio::spawn(self.clone().follow(watch()));
        }
        let pages = stream::unfold(receiver, |mut receiver| async {
            receiver.recv().await.map(|page| (stream::iter(page), receiver))
        });
        pages.flatten().boxed()
    }

    /// Watches in a task of its own: each kind is read beside the others, and the next page is fetched while one is looked at.
    /// Those who listen hear the end of it, whatever ends it.
    async fn follow(self, events: impl Stream<Item = Event<Item<V>>>) {
        let mut following = Following { source: self, is_over: false };
        let mut pages = pin!(events.ready_chunks(PAGE as usize));
        while let Some(page) = pages.next().await {
            let mut state = following.source.lock();
            for event in &page {
                state.take(event);
            }
            state.listeners.retain(|listener| listener.send(page.clone()).is_ok());
            if state.listeners.is_empty() {
                *state = State::nothing();
                drop(state);
                // Who comes from now on begins anew.
                following.is_over = true;
                return;
            }
        }
    }
}

impl<V> Source<V> {
    fn lock(&self) -> MutexGuard<'_, State<V>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Somebody watches, until this is dropped.
struct Following<V> {
    source: Source<V>,
    /// Nobody listens any more.
    is_over: bool,
}

impl<V> Drop for Following<V> {
    fn drop(&mut self) {
        if !self.is_over {
            *self.source.lock() = State::nothing();
        }
    }
}

impl<V> State<V> {
    fn nothing() -> Self {
        State { there: None, coming: None, listeners: Vec::new() }
    }

    /// Keeps what was told, for those who come later.
    fn take(&mut self, event: &Event<Item<V>>) {
        let set = |all: &mut HashMap<Name, Item<V>>, item: &Item<V>| match item.object {
            Some(_) => drop(all.insert(Arc::clone(&item.name), item.clone())),
            None => drop(all.remove(&item.name)),
        };
        match event {
            Event::Init => self.coming = Some(HashMap::new()),
            Event::InitApply(item) => set(self.coming.get_or_insert_default(), item),
            Event::InitDone => self.there = Some(self.coming.take().unwrap_or_default()),
            // Before all was told nobody knows what is there.
            Event::Apply(item) => self.there.iter_mut().for_each(|there| set(there, item)),
            Event::Delete(item) => self.there.iter_mut().for_each(|there| drop(there.remove(&item.name))),
        }
    }

    /// What was told so far, for one who comes now.
    fn so_far(&self) -> Vec<Event<Item<V>>> {
        let listed = |all: &HashMap<Name, Item<V>>| -> Vec<_> {
            let items = all.values().cloned().map(Event::InitApply);
            std::iter::once(Event::Init).chain(items).collect()
        };
        let mut all = Vec::new();
        if let Some(there) = &self.there {
            all.extend(listed(there));
            all.push(Event::InitDone);
        }
        all.extend(self.coming.iter().flat_map(listed));
        all
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::host::told::Told;

    fn item(name: &str, version: u64) -> Item<String> {
        let object = Some(Arc::new(format!("{name} {version}")));
        Item { name: Name::from(name), version: Some(version), object }
    }

    /// What somebody knows who listens.
    async fn heard(
        listening: &mut BoxStream<'static, Event<Item<String>>>,
        told: &mut Told<String>,
    ) -> Vec<String> {
        // All that is under way arrives.
        for _ in 0..20 {
            tokio::task::yield_now().await;
            while let Some(Some(event)) = futures_util::FutureExt::now_or_never(listening.next()) {
                told.take(event, |_| true);
            }
        }
        let mut all: Vec<String> = told.values().map(ToString::to_string).collect();
        all.sort();
        all
    }

    #[tokio::test]
    async fn who_comes_later_knows_as_much() {
        let source = Source::default();
        let (events, receiver) = mpsc::unbounded_channel();
        let events = |event| drop(events.send(event));
        let follow = stream::unfold(receiver, |mut receiver| async {
            receiver.recv().await.map(|event| (event, receiver))
        });
        let (mut first, mut told) = (source.listen(|| follow), Told::default());
        let never = || -> BoxStream<'static, Event<Item<String>>> { panic!("it is watched already") };
        for event in [Event::Init, Event::InitApply(item("a", 1)), Event::InitApply(item("b", 2))] {
            events(event);
        }
        assert!(heard(&mut first, &mut told).await.is_empty() && !told.is_complete());
        // In the middle of a list.
        let (mut second, mut also_told) = (source.listen(never), Told::default());
        events(Event::InitApply(item("c", 3)));
        events(Event::InitDone);
        for (listening, told) in [(&mut first, &mut told), (&mut second, &mut also_told)] {
            assert_eq!(heard(listening, told).await, ["a 1", "b 2", "c 3"]);
            assert!(told.is_complete());
        }
        // One goes, one is another, one is of no interest any more, and all is being listed anew.
        events(Event::Delete(item("a", 4)));
        events(Event::Apply(item("b", 5)));
        events(Event::Apply(Item { object: None, ..item("c", 6) }));
        events(Event::Apply(item("d", 7)));
        events(Event::Init);
        events(Event::InitApply(item("d", 7)));
        assert_eq!(heard(&mut first, &mut told).await, ["b 5", "d 7"]);
        let (mut third, mut last_told) = (source.listen(never), Told::default());
        assert_eq!(heard(&mut third, &mut last_told).await, ["b 5", "d 7"]);
        events(Event::InitDone);
        for (listening, told) in [(first, told), (second, also_told), (third, last_told)] {
            let (mut listening, mut told) = (listening, told);
            assert_eq!(heard(&mut listening, &mut told).await, ["d 7"]);
        }
    }

    #[tokio::test]
    async fn nothing_is_watched_for_nobody() {
        let source = Source::default();
        let (events, receiver) = mpsc::unbounded_channel();
        let follow = stream::unfold(receiver, |mut receiver| async {
            receiver.recv().await.map(|event| (event, receiver))
        });
        drop(source.listen(|| follow));
        events.send(Event::Apply(item("a", 1))).unwrap();
        events.closed().await;
        // Who comes then starts anew.
        let mut told = Told::default();
        let anew = stream::iter([Event::Init, Event::InitApply(item("b", 2)), Event::InitDone]);
        let mut listening = source.listen(|| anew.chain(stream::pending()));
        assert_eq!(heard(&mut listening, &mut told).await, ["b 2"]);
    }

    /// However it ends: nobody goes on with what was true once.
    #[tokio::test]
    async fn who_listens_hears_the_end() {
        let breaks =
            stream::iter([Event::Init, Event::InitDone]).chain(stream::poll_fn(|_| panic!("broken")));
        let ends = stream::iter([Event::Init, Event::InitApply(item("a", 1)), Event::InitDone]);
        for events in [breaks.boxed(), ends.boxed()] {
            let source = Source::default();
            let listening = source.listen(|| events);
            listening.for_each(|_| std::future::ready(())).await;
            // Who comes then starts anew.
            let mut told = Told::default();
            let anew = stream::iter([Event::Init, Event::InitApply(item("b", 2)), Event::InitDone]);
            let mut listening = source.listen(|| anew.chain(stream::pending()));
            assert_eq!(heard(&mut listening, &mut told).await, ["b 2"]);
        }
    }

    #[tokio::test]
    async fn what_comes_before_a_list_is_not_all() {
        let source = Source::default();
        let early = stream::iter([Event::Apply(item("a", 1)), Event::Delete(item("b", 2))]);
        let (mut first, mut told) = (source.listen(|| early.chain(stream::pending())), Told::default());
        heard(&mut first, &mut told).await;
        let never = || -> BoxStream<'static, Event<Item<String>>> { panic!("it is watched already") };
        let (mut second, mut also_told) = (source.listen(never), Told::default());
        assert!(heard(&mut second, &mut also_told).await.is_empty() && !also_told.is_complete());
    }

    #[test]
    fn of_most_services_nothing_is_kept() {
        let of = |spec: serde_json::Value, status: serde_json::Value| -> Service {
            serde_json::from_value(json!({"metadata": {"name": "a"}, "spec": spec, "status": status}))
                .unwrap()
        };
        let none = || json!({});
        assert!(!matters(&of(json!({"type": "ClusterIP", "ports": [{"port": 80}]}), none())));
        assert!(matters(&of(json!({"type": "LoadBalancer", "ports": [{"port": 80}]}), none())));
        let external = json!({"type": "ClusterIP", "ports": [{"port": 80}], "externalIPs": ["192.0.2.7"]});
        assert!(matters(&of(external, none())));
        assert!(matters(&of(
            json!({"type": "NodePort", "ports": [{"port": 80, "nodePort": 30080}]}),
            none()
        )));
        // What was said of one that was ours is to be taken back.
        let condition = json!({
            "type": host::ASSIGNED, "status": "True", "reason": "Assigned", "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        });
        let was_ours = json!({"conditions": [condition]});
        assert!(matters(&of(json!({"type": "ClusterIP", "ports": [{"port": 80}]}), was_ours)));
    }
}
