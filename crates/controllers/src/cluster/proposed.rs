//! Clusters and control planes in the shapes of the proposal: where their endpoint comes from, and whether it is ready.
//!
//! Only for a set-up without Cluster API, whose kinds these are otherwise.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::Client;
use kube::api::Api;
use kube::config::{KubeConfigOptions, Kubeconfig};
use portcullis_kube_api::cluster::{
    ClusterSpec, Condition, ControlPlaneSpec, Endpoint, Flavour, LoadBalancerSpec, LoadBalancerStatus,
    ProposedStatus, Reference, condition, is_paused, set_condition,
};
use serde::Deserialize;
use serde_json::json;
use tracing::info;

use super::conditions::sentence;
use super::endpoints::{Flow, Place, flow};
use super::kinds::{Kinds, Lack};
use super::queue::Queue;
use super::shelf::{Key, Shelf, key};
use super::thing::{LoadBalancer, Thing};

/// Looks after Clusters in the shape of the proposal.
#[allow(missing_debug_implementations, reason = "a client of Kubernetes has none")]
pub struct ProposedClusters {
    client: Client,
    namespace: Option<String>,
}

type Cluster = Thing<ClusterSpec, ProposedStatus>;
type Plane = Thing<ControlPlaneSpec, ProposedStatus>;
type Network = Thing<NetworkSpec, ProposedStatus>;

/// What of an infrastructure cluster matters here.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct NetworkSpec {
    control_plane_endpoint: Option<Endpoint>,
}

struct Context {
    client: Client,
    clusters: Kinds<ClusterSpec, ProposedStatus>,
    planes: Kinds<ControlPlaneSpec, ProposedStatus>,
    networks: Kinds<NetworkSpec, ProposedStatus>,
    balancers: Kinds<LoadBalancerSpec, LoadBalancerStatus>,
}

const BACKOFF: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(60));

/// How often a control plane that others look after is asked whether it answers.
const ASK: Duration = Duration::from_secs(10);

/// The group of Clusters.
const GROUP: &str = "cluster.x-k8s.io";

impl ProposedClusters {
    /// Looks after those of a namespace, or of all.
    pub fn new(client: Client, namespace: Option<String>) -> Self {
        ProposedClusters { client, namespace }
    }

    /// Does so until it is dropped.
    pub async fn run(self) {
        let queue: Arc<Queue> = Arc::new(Queue::new("a cluster", BACKOFF));
        let of_cluster = Arc::clone(&queue);
        let (of_plane, of_network, of_balancer) =
            (Arc::clone(&queue), Arc::clone(&queue), Arc::clone(&queue));
        let namespace = self.namespace.as_deref();
        // Whoever a change is about has the whole namespace looked at: there are few, and it costs no call.
        let everybody: Arc<Mutex<BTreeSet<Key>>> = Arc::default();
        let [known, by_plane, by_network, by_balancer] = [(); 4].map(|()| Arc::clone(&everybody));
        let all_of = |known: &Mutex<BTreeSet<Key>>, namespace: &str, queue: &Queue| {
            let known = known.lock().unwrap_or_else(PoisonError::into_inner);
            known.iter().filter(|(found, _)| found == namespace).for_each(|key| queue.add(key.clone()));
        };
        let context = Context {
            clusters: Kinds::new(self.client.clone(), namespace, move |_, _, cluster: &Cluster| {
                known.lock().unwrap_or_else(PoisonError::into_inner).insert(key(cluster));
                of_cluster.add(key(cluster));
            }),
            planes: Kinds::new(self.client.clone(), namespace, move |_, _, plane: &Plane| {
                all_of(&by_plane, plane.namespace(), &of_plane);
            }),
            networks: Kinds::new(self.client.clone(), namespace, move |_, _, network: &Network| {
                all_of(&by_network, network.namespace(), &of_network);
            }),
            balancers: Kinds::new(self.client.clone(), namespace, move |_, _, balancer: &LoadBalancer| {
                all_of(&by_balancer, balancer.namespace(), &of_balancer);
            }),
            client: self.client.clone(),
        };
        loop {
            match context.clusters.shelf(GROUP, "Cluster").await {
                Ok(_) => break,
                Err(why) => {
                    info!(%why, "Clusters cannot be watched yet");
                    tokio::time::sleep(Duration::from_secs(5)).await;
                }
            }
        }
        queue.run(4, |key| context.reconcile(key)).await;
    }
}

impl Context {
    async fn reconcile(&self, key: Key) -> Result<Option<Duration>, String> {
        let clusters = self.clusters.shelf(GROUP, "Cluster").await?;
        let Some(cluster) = clusters.get(&key.0, &key.1) else { return Ok(None) };
        if cluster.is_going() {
            return Ok(None);
        }
        if is_paused(&cluster, Some(&cluster.0)) {
            return self.tell_paused(&clusters, &cluster).await;
        }
        match cluster.spec.control_plane() {
            None => self.managed_by_others(&clusters, &cluster).await,
            Some(reference) => self.managed(&clusters, &cluster, reference).await,
        }
    }

    /// Nothing is done for now, which the Cluster and its control plane say.
    async fn tell_paused(
        &self,
        clusters: &Shelf<ClusterSpec, ProposedStatus>,
        cluster: &Cluster,
    ) -> Result<Option<Duration>, String> {
        let mut status = cluster.status.clone();
        let message = "It is paused: nothing is done.";
        say(&mut status.conditions, cluster, "Paused", "True", "Paused", message);
        self.put(clusters, cluster, status).await?;
        if let Some(reference) = cluster.spec.control_plane()
            && let Some((planes, plane)) = self.plane(cluster.namespace(), reference).await?
        {
            let mut status = plane.status.clone();
            let message = "Its Cluster is paused: nothing is done.";
            say(&mut status.conditions, &plane, "Paused", "True", "Paused", message);
            self.put(&planes, &plane, status).await?;
        }
        Ok(None)
    }

    /// Somebody else has a control plane, and says where: all that can be said is whether it answers.
    async fn managed_by_others(
        &self,
        clusters: &Shelf<ClusterSpec, ProposedStatus>,
        cluster: &Cluster,
    ) -> Result<Option<Duration>, String> {
        let Some(endpoint) = cluster.spec.endpoint() else { return Ok(None) };
        let answer = self.answers(cluster, endpoint).await;
        let mut status = cluster.status.clone();
        status.control_plane_ready = Some(answer.is_ok());
        say(&mut status.conditions, cluster, "ControlPlaneInitialized", "True", "ManagedByOthers", "");
        let (reason, message) = match &answer {
            Ok(()) => ("Answering", String::new()),
            Err(why) => ("NotAnswering", why.clone()),
        };
        let state = truth(answer.is_ok());
        say(&mut status.conditions, cluster, "ControlPlaneReady", state, reason, &message);
        self.write(clusters, cluster, status).await?;
        Ok(Some(ASK))
    }

    /// Whether the control plane answers at its endpoint to whom the kubeconfig of the cluster says one is.
    async fn answers(&self, cluster: &Cluster, endpoint: &Endpoint) -> Result<(), String> {
        let name = format!("{}-kubeconfig", cluster.name());
        let secrets: Api<Secret> = Api::namespaced(self.client.clone(), cluster.namespace());
        let secret = secrets
            .get(&name)
            .await
            .map_err(|error| format!("The Secret {name} cannot be read: {error}."))?;
        let value = secret.data.unwrap_or_default().remove("value");
        let value = value.ok_or_else(|| format!("The Secret {name} has no `value`."))?;
        let text = String::from_utf8(value.0).map_err(|_| format!("The Secret {name} is no text."))?;
        let unusable =
            |error: &dyn std::fmt::Display| format!("The Secret {name} is no kubeconfig: {error}.");
        let read = Kubeconfig::from_yaml(&text).map_err(|error| unusable(&error))?;
        // Whoever writes a Secret must not have programs run here, or files read.
        let runs = |auth: &kube::config::AuthInfo| {
            auth.exec.is_some()
                || auth.auth_provider.is_some()
                || auth.token_file.is_some()
                || auth.client_certificate.is_some()
                || auth.client_key.is_some()
        };
        let reaches = |cluster: &kube::config::Cluster| {
            cluster.certificate_authority.is_some() || cluster.proxy_url.is_some()
        };
        if read.auth_infos.iter().filter_map(|named| named.auth_info.as_ref()).any(runs)
            || read.clusters.iter().filter_map(|named| named.cluster.as_ref()).any(reaches)
        {
            return Err(unusable(&"it names programs, files or a proxy, and only what is in it is used"));
        }
        let config = kube::Config::from_custom_kubeconfig(read, &KubeConfigOptions::default()).await;
        let mut config = config.map_err(|error| unusable(&error))?;
        // Where a kubeconfig leads may be somewhere else: it is the endpoint that clients use.
        config.cluster_url = format!("https://{endpoint}")
            .parse()
            .map_err(|error| format!("The endpoint {endpoint} cannot be used: {error}."))?;
        let client = Client::try_from(config).map_err(|error| unusable(&error))?;
        let asked = tokio::time::timeout(Duration::from_secs(5), client.apiserver_version()).await;
        match asked {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(error)) => Err(format!("{endpoint} does not answer: {error}.")),
            Err(_) => Err(format!("{endpoint} does not answer within 5 s.")),
        }
    }

    async fn managed(
        &self,
        clusters: &Shelf<ClusterSpec, ProposedStatus>,
        cluster: &Cluster,
        reference: &Reference,
    ) -> Result<Option<Duration>, String> {
        let found = match self.plane(cluster.namespace(), reference).await {
            Ok(found) => found,
            Err(why) => return self.tell_unseen(clusters, cluster, why).await,
        };
        let Some((planes, plane)) = found else {
            let message = format!("There is no {} {}.", reference.kind, reference.name);
            self.tell_lack(clusters, cluster, "NotFound", &message).await?;
            return Ok(Some(Duration::from_secs(5)));
        };
        let mut chain = vec![
            (Place::Cluster, cluster.spec.endpoint().cloned()),
            (Place::ControlPlane, plane.spec.endpoint.given().cloned()),
        ];
        // Without a load balancer of its own, what makes the network says where it is.
        let network = match (&plane.spec.load_balancer_ref, &cluster.spec.infrastructure_ref) {
            (None, Some(reference)) => {
                match Lack::none(self.networks.shelf(reference.group(), &reference.kind).await) {
                    Ok(shelf) => shelf
                        .and_then(|shelf| Some((shelf.get(cluster.namespace(), &reference.name)?, shelf))),
                    Err(why) => return self.tell_unseen(clusters, cluster, why).await,
                }
            }
            _ => None,
        };
        if let Some((network, _)) = &network {
            let given = network.spec.control_plane_endpoint.as_ref().and_then(Endpoint::given);
            chain.push((Place::InfrastructureCluster, given.cloned()));
        }
        let balancer = match &plane.spec.load_balancer_ref {
            Some(reference) => match self.balancer(cluster.namespace(), reference).await {
                Ok(balancer) => balancer,
                Err(why) => return self.tell_unseen(clusters, cluster, why).await,
            },
            None => None,
        };
        let mut alternates = Vec::new();
        if let Some(balancer) = &balancer {
            chain.push((Place::LoadBalancer, balancer.spec.endpoint().cloned()));
            alternates.clone_from(&balancer.spec.alternate_endpoints);
        }
        let flow = flow(&chain, &alternates);
        if let Flow::Known { endpoint, missing } = &flow {
            let network = network.as_ref().map(|(network, networks)| (&**networks, &**network));
            self.spread(endpoint, missing, (clusters, cluster), (&planes, &plane), network).await?;
        }
        let is_known = matches!(flow, Flow::Known { .. });
        let lacking = plane.spec.load_balancer_ref.as_ref().filter(|_| balancer.is_none());
        let told = balancer.as_ref().and_then(|found| condition(&found.status.conditions, "EndpointReady"));
        let (state, reason, message) = match (flow, lacking, told) {
            (Flow::Mismatch(why), ..) => ("False", "EndpointMismatch", format!("{why}.")),
            (_, Some(lacking), _) => {
                ("False", "NotFound", format!("There is no {} {}.", lacking.kind, lacking.name))
            }
            (Flow::Unknown, ..) => {
                ("False", "WaitingForEndpoint", "It is not known yet where it will be found.".to_owned())
            }
            // Whoever has it made knows whether anybody answers there.
            (Flow::Known { .. }, None, Some(told)) => {
                (told.status.as_str(), told.reason.as_str(), told.message.clone())
            }
            (Flow::Known { .. }, None, None) => ("True", "Known", String::new()),
        };
        let mut status = plane.status.clone();
        say(&mut status.conditions, &plane, "EndpointReady", state, reason, &message);
        self.write(&planes, &plane, status).await?;
        let is_ready = is_known && plane.status.ready == Some(true);
        // What was patched above is newer than this, and others may have said something since.
        let newest = clusters.get(cluster.namespace(), cluster.name());
        let cluster = newest.as_deref().unwrap_or(cluster);
        let mut status = cluster.status.clone();
        status.control_plane_ready = Some(is_ready);
        let initialized = plane.status.initialized == Some(true);
        let word = if initialized { "Initialized" } else { "WaitingForControlPlane" };
        say(&mut status.conditions, cluster, "ControlPlaneInitialized", truth(initialized), word, "");
        let (reason, message) = match (is_known, is_ready) {
            (false, _) => (reason, message.as_str()),
            (true, true) => ("Ready", ""),
            (true, false) => ("WaitingForControlPlane", ""),
        };
        say(&mut status.conditions, cluster, "ControlPlaneReady", truth(is_ready), reason, message);
        self.write(clusters, cluster, status).await?;
        Ok(None)
    }

    /// Writes the endpoint where it is missing. The load balancer is told by whoever looks after it.
    async fn spread(
        &self,
        endpoint: &Endpoint,
        missing: &[Place],
        (clusters, cluster): (&Shelf<ClusterSpec, ProposedStatus>, &Cluster),
        (planes, plane): (&Shelf<ControlPlaneSpec, ProposedStatus>, &Plane),
        network: Option<(&Shelf<NetworkSpec, ProposedStatus>, &Network)>,
    ) -> Result<(), String> {
        for place in missing {
            match (place, network) {
                (Place::Cluster, _) => {
                    let patch = json!({"spec": {"controlPlane": {"endpoint": endpoint}}});
                    clusters.patch(&self.client, cluster, patch).await?;
                }
                (Place::ControlPlane, _) => {
                    let patch = json!({"spec": {"endpoint": endpoint}});
                    planes.patch(&self.client, plane, patch).await?;
                }
                (Place::InfrastructureCluster, Some((networks, network))) => {
                    let patch = json!({"spec": {"controlPlaneEndpoint": endpoint}});
                    networks.patch(&self.client, network, patch).await?;
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// The load balancer that a control plane names.
    async fn balancer(
        &self,
        namespace: &str,
        reference: &Reference,
    ) -> Result<Option<Arc<LoadBalancer>>, String> {
        // A reference need not name the group.
        let ours = Flavour::Proposed.load_balancer().group;
        let group = Some(reference.group()).filter(|group| !group.is_empty()).unwrap_or(ours);
        let shelf = Lack::none(self.balancers.shelf(group, &reference.kind).await)?;
        Ok(shelf.and_then(|shelf| shelf.get(namespace, &reference.name)))
    }

    async fn plane(
        &self,
        namespace: &str,
        reference: &Reference,
    ) -> Result<Option<(Arc<Shelf<ControlPlaneSpec, ProposedStatus>>, Arc<Plane>)>, String> {
        // The proposal's own example names the group of Clusters.
        for group in [reference.group(), "controlplane.cluster.x-k8s.io"] {
            let shelf = Lack::none(self.planes.shelf(group, &reference.kind).await)?;
            let found = shelf.and_then(|shelf| Some((shelf.get(namespace, &reference.name)?, shelf)));
            if let Some((plane, shelf)) = found {
                return Ok(Some((shelf, plane)));
            }
        }
        Ok(None)
    }

    /// There may be something that nobody here can see: it must not be done as if there were nothing.
    async fn tell_unseen(
        &self,
        clusters: &Shelf<ClusterSpec, ProposedStatus>,
        cluster: &Cluster,
        why: String,
    ) -> Result<Option<Duration>, String> {
        self.tell_lack(clusters, cluster, "UnknownKind", &sentence(&why)).await?;
        Err(why)
    }

    /// Something is not there that a control plane cannot do without.
    async fn tell_lack(
        &self,
        clusters: &Shelf<ClusterSpec, ProposedStatus>,
        cluster: &Cluster,
        reason: &str,
        message: &str,
    ) -> Result<(), String> {
        let mut status = cluster.status.clone();
        status.control_plane_ready = Some(false);
        say(&mut status.conditions, cluster, "ControlPlaneReady", "False", reason, message);
        self.write(clusters, cluster, status).await
    }

    /// Writes how something stands that is not paused.
    async fn write<S>(
        &self,
        shelf: &Shelf<S, ProposedStatus>,
        object: &Thing<S, ProposedStatus>,
        mut status: ProposedStatus,
    ) -> Result<(), String>
    where
        S: Default + serde::de::DeserializeOwned + Clone + std::fmt::Debug + Send + Sync + 'static,
    {
        say(&mut status.conditions, object, "Paused", "False", "NotPaused", "");
        self.put(shelf, object, status).await
    }

    async fn put<S>(
        &self,
        shelf: &Shelf<S, ProposedStatus>,
        object: &Thing<S, ProposedStatus>,
        status: ProposedStatus,
    ) -> Result<(), String>
    where
        S: Default + serde::de::DeserializeOwned + Clone + std::fmt::Debug + Send + Sync + 'static,
    {
        if status == object.status {
            return Ok(());
        }
        // Only what is ours: the rest is whose control plane it is.
        let mut value = json!({"conditions": status.conditions});
        if status.control_plane_ready != object.status.control_plane_ready {
            value["controlPlaneReady"] = json!(status.control_plane_ready);
        }
        // Conditions are one list, in which others have theirs: what they wrote meanwhile is read first. All else may have changed.
        let newest = shelf.get(object.namespace(), object.name());
        let newest = newest.as_deref().filter(|newest| newest.status == object.status).unwrap_or(object);
        let version = json!({"resourceVersion": newest.metadata.resource_version});
        shelf.patch_status(&self.client, object, json!({"metadata": version, "status": value})).await?;
        Ok(())
    }
}

fn truth(is: bool) -> &'static str {
    if is { "True" } else { "False" }
}

fn say<S, T>(
    conditions: &mut Vec<Condition>,
    object: &Thing<S, T>,
    type_: &str,
    state: &str,
    reason: &str,
    message: &str,
) {
    let now = Time(Timestamp::now());
    set_condition(conditions, type_, state, reason, message, object.metadata.generation, &now);
}
