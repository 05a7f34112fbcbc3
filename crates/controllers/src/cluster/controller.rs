//! Looks after `LoadBalancers`: who their members are, where clients find them, what their providers are asked for.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use kube::Client;
use portcullis_kube_api::cluster::{
    ClusterSpec, ClusterStatus, ControlPlaneSpec, Flavour, InfrastructureSpec, InfrastructureStatus,
    LoadBalancerSpec, LoadBalancerStatus, MEMBER, MachineSpec, MachineStatus, hooks,
};

use super::kinds::Kinds;
use super::probe::Probes;
use super::queue::Queue;
use super::shelf::{Key, Shelf, key};
use super::thing::{Cluster, ControlPlane, Infrastructure, Machine, resource};
use crate::events::Events;

/// How `LoadBalancers` are looked after.
#[derive(Clone, Debug)]
pub struct LoadBalancerSettings {
    /// Under which names the types are installed.
    pub flavour: Flavour,
    /// Only those of this namespace, if one is given.
    pub namespace: Option<String>,
    /// How many are dealt with at the same time.
    pub concurrency: u16,
    /// How often endpoints are asked whether they answer; never, if nothing is said.
    pub probe: Option<Duration>,
    /// Who this is, in Events.
    pub host: String,
}

/// How long is waited after a failure, at first and at most.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(60));

/// Looks after the `LoadBalancers` of a management cluster.
#[allow(missing_debug_implementations, reason = "a client of Kubernetes has none")]
pub struct LoadBalancers {
    client: Client,
    settings: LoadBalancerSettings,
}

pub(super) struct Context {
    pub(super) client: Client,
    pub(super) settings: LoadBalancerSettings,
    pub(super) balancers: Arc<Shelf<LoadBalancerSpec, LoadBalancerStatus>>,
    pub(super) clusters: Kinds<ClusterSpec, ClusterStatus>,
    pub(super) machines: Kinds<MachineSpec, MachineStatus>,
    pub(super) planes: Kinds<ControlPlaneSpec, ClusterStatus>,
    pub(super) infrastructures: Kinds<InfrastructureSpec, InfrastructureStatus>,
    pub(super) probes: Probes,
    pub(super) unheard: Unheard,
    pub(super) events: Events,
}

/// Load balancers of which what makes them hears nothing, and since when.
#[derive(Default)]
pub(super) struct Unheard(Mutex<HashMap<Key, Timestamp>>);

impl Unheard {
    /// Since when, which is now if it is news.
    pub(super) fn since(&self, key: Key, now: Timestamp) -> Timestamp {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner).entry(key).or_insert(now)
    }

    /// It has heard all, or there is nothing to hear any more.
    pub(super) fn forget(&self, key: &Key) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(key);
    }
}

impl LoadBalancers {
    /// Looks after them.
    pub fn new(client: Client, settings: LoadBalancerSettings) -> Self {
        LoadBalancers { client, settings }
    }

    /// Does so until it is dropped.
    pub async fn run(self) {
        let LoadBalancers { client, settings } = self;
        let queue: Arc<Queue> = Arc::new(Queue::new("a load balancer", BACKOFF));
        let balancers =
            Arc::new(Shelf::new(resource(settings.flavour.load_balancer()), settings.namespace.clone()));
        let namespace = settings.namespace.as_deref();
        let context = Context {
            clusters: Kinds::new(client.clone(), namespace, of_cluster(&balancers, &queue)),
            machines: Kinds::new(client.clone(), namespace, of_machine(&balancers, &queue)),
            planes: Kinds::new(client.clone(), namespace, of_plane(&balancers, &queue)),
            infrastructures: Kinds::new(client.clone(), namespace, of_infrastructure(&balancers, &queue)),
            probes: Probes::new(settings.probe, Arc::clone(&queue)),
            unheard: Unheard::default(),
            events: Events::new(client.clone(), "load-balancer-controller", &settings.host),
            balancers: Arc::clone(&balancers),
            client: client.clone(),
            settings: settings.clone(),
        };
        let watching = balancers.watch(client, |balancer| queue.add(key(balancer)));
        let working = async {
            balancers.ready().await;
            let concurrency = usize::from(context.settings.concurrency.max(1));
            queue.run(concurrency, |key| context.reconcile(key)).await;
        };
        tokio::join!(watching, working);
    }
}

type Balancers = Arc<Shelf<LoadBalancerSpec, LoadBalancerStatus>>;
type Due = Arc<Queue>;

/// Everything of a cluster is looked at when the Cluster changes.
fn of_cluster(balancers: &Balancers, queue: &Due) -> impl Fn(&str, &str, &Cluster) + Send + Sync + use<> {
    let (balancers, queue) = (Arc::clone(balancers), Arc::clone(queue));
    move |_, _, cluster| {
        for balancer in balancers.of(cluster.namespace()) {
            if balancer.spec.cluster_name == cluster.name() {
                queue.add(key(&balancer));
            }
        }
    }
}

/// Whoever means a Machine, or has it.
fn of_machine(balancers: &Balancers, queue: &Due) -> impl Fn(&str, &str, &Machine) + Send + Sync + use<> {
    let (balancers, queue) = (Arc::clone(balancers), Arc::clone(queue));
    move |group, kind, machine| {
        let (labels, annotations) = (machine.metadata.labels.as_ref(), machine.metadata.annotations.as_ref());
        for balancer in balancers.of(machine.namespace()) {
            let target = balancer.spec.target_kind();
            let is_meant = || balancer.spec.selection(balancer.name()).matches(labels);
            let has_it = || {
                machine.annotation(MEMBER) == Some(balancer.name())
                    || balancer.status.targets.iter().any(|target| target.name == machine.name())
            };
            // One of another kind was a member while Machines were.
            let is_held = || hooks(balancer.name()).is_on(annotations);
            let is_one = target.api_group == group && target.kind == kind;
            if (is_one && (has_it() || is_meant())) || is_held() {
                queue.add(key(&balancer));
            }
        }
    }
}

/// A control plane belongs to the cluster that its label names.
fn of_plane(balancers: &Balancers, queue: &Due) -> impl Fn(&str, &str, &ControlPlane) + Send + Sync + use<> {
    let (balancers, queue) = (Arc::clone(balancers), Arc::clone(queue));
    move |_, _, plane| {
        let cluster = plane.label(portcullis_kube_api::cluster::CLUSTER_LABEL);
        let reference = plane.spec.load_balancer_ref.as_ref().map(|reference| reference.name.as_str());
        for balancer in balancers.of(plane.namespace()) {
            if cluster == Some(&balancer.spec.cluster_name) || reference == Some(balancer.name()) {
                queue.add(key(&balancer));
            }
        }
    }
}

/// Who is made by it now, or was before.
fn of_infrastructure(
    balancers: &Balancers,
    queue: &Due,
) -> impl Fn(&str, &str, &Infrastructure) + Send + Sync + use<> {
    let (balancers, queue) = (Arc::clone(balancers), Arc::clone(queue));
    move |group, kind, made| {
        let owner = made.spec.assignment.as_ref().map(|assignment| assignment.load_balancer.as_str());
        for balancer in balancers.of(made.namespace()) {
            let named = balancer.spec.infrastructure_ref.iter().chain(&balancer.status.infrastructure_refs);
            let is_meant = named.into_iter().any(|reference| {
                reference.name == made.name() && reference.kind == kind && reference.group() == group
            });
            if is_meant || owner == Some(balancer.name()) {
                queue.add(key(&balancer));
            }
        }
    }
}
