//! Load balancers on machines with `HAProxy`, the half that runs once: it puts together what the machines say, and sees to it that
//! each load balancer has an address.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::{StreamExt, pin_mut};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, Time};
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, DynamicObject, Patch, PostParams};
use kube::core::ApiResource;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Client, Resource};
use portcullis_kube_api::cluster::{
    AddressPool, ClusterSpec, ClusterStatus, Flavour, HaProxyLoadBalancerSpec, InfrastructureStatus,
    is_moving_away, is_paused,
};
use serde::Deserialize;
use serde_json::json;
use tokio::time::{Instant, sleep};
use tracing::{info, warn};

use super::carried::{Address, Carried};
use super::conditions;
use super::infrastructure::write_status;
use super::kinds::Kinds;
use super::queue::Queue;
use super::reconcile::PATIENCE;
use super::shelf::{Key, Shelf, by_us, key};
use super::thing::{Thing, resource};

/// The label of a Lease by which a machine says that it is there; its value is the pool.
pub(super) const POOL_LABEL: &str = "portcullis.dev/haproxy-pool";

/// For how long a machine is taken to be there after it said so last, and how often it says so.
pub(super) const LIVE: Duration = Duration::from_secs(40);
pub(super) const RENEW: Duration = Duration::from_secs(10);

/// The annotation of an `IPAddressClaim` that says for which load balancer it is.
const CLAIMED_FOR: &str = "portcullis.dev/haproxy-load-balancer";

/// For how long what a machine said is kept after it is gone.
const KEPT: Duration = Duration::from_secs(600);

/// How load balancers on machines are looked after.
#[derive(Clone, Debug)]
pub struct HaProxySettings {
    /// Under which names the types are installed.
    pub flavour: Flavour,
    /// Only load balancers of this namespace, if one is given.
    pub namespace: Option<String>,
    /// None of this namespace, which somebody else looks after.
    pub but: Option<String>,
    /// Where machines say that they are there.
    pub agents: String,
    /// How many are dealt with at the same time.
    pub concurrency: u16,
}

/// Looks after load balancers on machines.
#[allow(missing_debug_implementations, reason = "a client of Kubernetes has none")]
pub struct HaProxyController {
    client: Client,
    settings: HaProxySettings,
}

pub(super) type HaProxyLoadBalancer = Thing<HaProxyLoadBalancerSpec, InfrastructureStatus>;

/// A wish for an address.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ClaimStatus {
    address_ref: Option<portcullis_kube_api::cluster::Reference>,
}

/// An address that was given.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
struct AddressSpec {
    address: String,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
struct Nothing {}

struct Context {
    client: Client,
    settings: HaProxySettings,
    objects: Arc<Shelf<HaProxyLoadBalancerSpec, InfrastructureStatus>>,
    clusters: Kinds<ClusterSpec, ClusterStatus>,
    claims: Kinds<Nothing, ClaimStatus>,
    addresses: Kinds<AddressSpec, Nothing>,
    machines: Arc<Mutex<HashMap<String, Machine>>>,
    /// When machines could not be seen last: for a while after that, who is silent may just not have been heard.
    blind: Mutex<Instant>,
}

/// A machine that said that it is there.
#[derive(Clone, Debug)]
struct Machine {
    pool: String,
    renewed: Option<MicroTime>,
    /// When that was seen, by this clock: others' differ.
    seen: Instant,
}

const BACKOFF: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(60));

/// The group of wishes for addresses.
const IPAM: &str = "ipam.cluster.x-k8s.io";

impl HaProxyController {
    /// Looks after them.
    pub fn new(client: Client, settings: HaProxySettings) -> Self {
        HaProxyController { client, settings }
    }

    /// Does so until it is dropped.
    pub async fn run(self) {
        let HaProxyController { client, settings } = self;
        let queue: Arc<Queue> = Arc::new(Queue::new("a load balancer on machines", BACKOFF));
        let objects: Arc<Shelf<HaProxyLoadBalancerSpec, InfrastructureStatus>> =
            Arc::new(Shelf::new(resource(settings.flavour.haproxy()), settings.namespace.clone()));
        let namespace = settings.namespace.as_deref();
        let of_cluster = {
            let (objects, queue) = (Arc::clone(&objects), Arc::clone(&queue));
            move |_: &str, _: &str, cluster: &Thing<ClusterSpec, ClusterStatus>| {
                for object in objects.of(cluster.namespace()) {
                    if object
                        .spec
                        .assignment
                        .as_ref()
                        .is_some_and(|asked| asked.cluster_name == cluster.name())
                    {
                        queue.add(key(&object));
                    }
                }
            }
        };
        // A claim and what it got have the name of who asked.
        let claimed = Arc::clone(&queue);
        let given = Arc::clone(&queue);
        let context = Context {
            clusters: Kinds::new(client.clone(), namespace, of_cluster),
            claims: Kinds::new(
                client.clone(),
                namespace,
                move |_, _, claim: &Thing<Nothing, ClaimStatus>| {
                    claimed.add(key(claim));
                },
            ),
            addresses: Kinds::new(
                client.clone(),
                namespace,
                move |_, _, address: &Thing<AddressSpec, Nothing>| {
                    given.add(key(address));
                },
            ),
            machines: Arc::default(),
            blind: Mutex::new(Instant::now()),
            objects: Arc::clone(&objects),
            client: client.clone(),
            settings,
        };
        let watching = objects.watch(client, |object| queue.add(key(object)));
        let working = async {
            objects.ready().await;
            let concurrency = usize::from(context.settings.concurrency.max(1));
            queue.run(concurrency, |key| context.reconcile(key)).await;
        };
        tokio::join!(watching, working, context.follow_machines(&queue), context.miss_machines(&queue));
    }
}

impl Context {
    async fn reconcile(&self, key: Key) -> Result<Option<Duration>, String> {
        if self.settings.but.as_ref() == Some(&key.0) {
            return Ok(None);
        }
        let Some(object) = self.objects.get(&key.0, &key.1) else { return Ok(None) };
        if is_moving_away(&object) || object.is_going() {
            return Ok(None);
        }
        let now = Timestamp::now();
        let cluster = match &object.spec.assignment {
            Some(assignment) if !assignment.cluster_name.is_empty() => {
                let clusters = self.clusters.shelf("cluster.x-k8s.io", "Cluster").await;
                clusters.ok().and_then(|clusters| clusters.get(&key.0, &assignment.cluster_name))
            }
            _ => None,
        };
        if is_paused(&object, cluster.as_ref().map(|cluster| &cluster.0)) {
            let mut status = object.status.clone();
            conditions::paused(&mut status.conditions, object.metadata.generation, &Time(now));
            self.write(&object, status).await?;
            return Ok(None);
        }
        let Some(assignment) = &object.spec.assignment else {
            // Nobody asks for it any more: what is said of it is said of nothing.
            if object.status.observed_generation.is_some() {
                let instances = object.status.instances.clone();
                self.write(&object, InfrastructureStatus { instances, ..InfrastructureStatus::default() })
                    .await?;
            }
            return Ok(None);
        };
        let pool = object.spec.pool();
        let live = self.live(pool, &object);
        let elsewhere = self.elsewhere(pool, &object);
        let claimed;
        let mut is_refused = false;
        let address = match (object.spec.addresses.first(), &object.spec.address_from) {
            (Some(address), _) => Address::Asked(address.clone()),
            (None, Some(from)) => {
                // What is in the way of an address is in the way of nothing else: members come and go all the same.
                claimed = self.claim(&object, from, &assignment.cluster_name).await.unwrap_or_else(|why| {
                    is_refused = true;
                    let pool = &from.pool_ref;
                    Err(format!(
                        "The pool {} {} cannot be asked for an address: {why}.",
                        pool.kind, pool.name
                    ))
                });
                match &claimed {
                    Ok(address) => Address::Given(address.clone()),
                    Err(why) => Address::Awaited(why),
                }
            }
            (None, None) => Address::OfMachines,
        };
        let carried = Carried {
            generation: object.metadata.generation,
            assignment,
            pool,
            live: &live,
            elsewhere: &elsewhere,
            address,
            status: &object.status,
            now,
        };
        let status = carried.status();
        let unheard = carried.unheard();
        self.write(&object, status).await?;
        self.prune(&object, &unheard).await?;
        // While nobody is there the time of who leaves is what counts.
        let ends = assignment
            .members
            .iter()
            .filter_map(|member| member.by.as_ref())
            .map(|by| by.0)
            .filter(|by| *by > now);
        let next = ends.min().filter(|_| live.is_empty());
        let next = next.map(|by| {
            let millis = by.as_millisecond().saturating_sub(now.as_millisecond());
            Duration::from_millis(u64::try_from(millis).unwrap_or_default() + 50)
        });
        // Nobody tells when a machine that is not of the pool, or is away, has been silent for too long.
        let others = object.status.instances.iter().any(|instance| !live.contains(&instance.name));
        let others = others.then_some(LIVE);
        Ok(next.into_iter().chain(others).chain(is_refused.then_some(PATIENCE)).min())
    }

    /// The address that a pool gives, or what it waits for; and what went wrong with that.
    async fn claim(
        &self,
        object: &HaProxyLoadBalancer,
        from: &AddressPool,
        cluster: &str,
    ) -> Result<Result<String, String>, String> {
        let claims = match self.claims.shelf(IPAM, "IPAddressClaim").await {
            Ok(claims) => claims,
            Err(why) => return Ok(Err(format!("It needs an address, and {why}."))),
        };
        let name = object.name();
        let owner = object.controller_owner_ref(self.objects.resource());
        let api: Api<DynamicObject> =
            Api::namespaced_with(self.client.clone(), object.namespace(), claims.resource());
        let Some(claim) = claims.get(object.namespace(), name) else {
            let pool = &from.pool_ref;
            let body = json!({
                "apiVersion": claims.resource().api_version,
                "kind": claims.resource().kind,
                "metadata": {
                    "name": name,
                    "namespace": object.namespace(),
                    "annotations": {CLAIMED_FOR: name},
                    "ownerReferences": [owner],
                },
                "spec": {
                    "clusterName": cluster,
                    "poolRef": {"apiGroup": pool.api_group, "kind": pool.kind, "name": pool.name},
                },
            });
            let body: DynamicObject = serde_json::from_value(body).map_err(|error| error.to_string())?;
            match api.create(&PostParams::default(), &body).await {
                Ok(_) => info!(namespace = object.namespace(), name, "an address is asked for"),
                Err(kube::Error::Api(status)) if status.code == 409 => {}
                Err(error) => return Err(error.to_string()),
            }
            return Ok(Err(format!("The pool {} {} was asked for an address.", pool.kind, pool.name)));
        };
        let owners = claim.metadata.owner_references.as_deref().unwrap_or_default();
        let kind = &self.objects.resource().kind;
        let annotations = claim.metadata.annotations.as_ref();
        let claimed_for = annotations.and_then(|all| all.get(CLAIMED_FOR)).map(String::as_str);
        // By name: after a restored backup its owner has another UID, or none is said.
        let is_for_it =
            claimed_for == Some(name) || owners.iter().any(|owner| owner.kind == *kind && owner.name == name);
        if !is_for_it {
            return Ok(Err(format!(
                "IPAddressClaim {name} is not for this load balancer: delete it, or call the {kind} something else."
            )));
        }
        if !owners.iter().any(|owner| Some(&owner.uid) == object.metadata.uid.as_ref()) {
            // So that it goes with its load balancer, and along with it to another management cluster.
            let others = owners.iter().filter(|owner| owner.kind != *kind || owner.name != name).cloned();
            let owned = json!({"metadata": {
                "ownerReferences": others.chain(owner).collect::<Vec<_>>(),
                "resourceVersion": claim.metadata.resource_version,
            }});
            // Its address counts in any case.
            if let Err(error) = api.patch(name, &by_us(), &Patch::Merge(owned)).await {
                let namespace = object.namespace();
                warn!(namespace, name, %error, "an IPAddressClaim cannot be made to go with its load balancer");
            }
        }
        let Some(reference) = &claim.status.address_ref else {
            let pool = &from.pool_ref;
            return Ok(Err(format!("The pool {} {} has not given an address yet.", pool.kind, pool.name)));
        };
        let addresses = self.addresses.shelf(IPAM, "IPAddress").await?;
        let given = addresses.get(object.namespace(), &reference.name);
        Ok(given
            .map(|given| given.spec.address.clone())
            .ok_or_else(|| format!("There is no IPAddress {}.", reference.name)))
    }

    /// Takes out what machines said that are gone for long. One that may let in who should not is not forgotten before its Lease is
    /// deleted.
    async fn prune(&self, object: &HaProxyLoadBalancer, unheard: &[&str]) -> Result<(), String> {
        let known = self.machines.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let is_gone = |name: &String| {
            known
                .get(name)
                .is_none_or(|machine| machine.seen.elapsed() > KEPT && !unheard.contains(&name.as_str()))
        };
        let stay: Vec<_> =
            object.status.instances.iter().filter(|instance| !is_gone(&instance.name)).collect();
        // Right after a start not everybody is known yet.
        if stay.len() == object.status.instances.len() || self.is_blind() {
            return Ok(());
        }
        let patch = json!({
            "metadata": {"resourceVersion": object.metadata.resource_version},
            "status": {"instances": stay},
        });
        let api = self.objects.api(&self.client, object.namespace());
        match api.patch_status(object.name(), &by_us(), &Patch::Merge(patch)).await {
            Ok(written) => drop(self.objects.keep(written)),
            // Somebody wrote meanwhile, and it is looked at again.
            Err(kube::Error::Api(status)) if status.code == 409 || status.code == 404 => {}
            Err(error) => return Err(error.to_string()),
        }
        Ok(())
    }

    async fn write(&self, object: &HaProxyLoadBalancer, status: InfrastructureStatus) -> Result<(), String> {
        write_status(&self.objects, &self.client, object, &status).await
    }

    /// The machines of a pool that are there, by name. Right after machines could not be seen, those count as well that said
    /// something of a load balancer before.
    fn live(&self, pool: &str, object: &HaProxyLoadBalancer) -> Vec<String> {
        let is_blind = self.is_blind();
        let machines = self.machines.lock().unwrap_or_else(PoisonError::into_inner);
        let is_live = |machine: &Machine| machine.pool == pool && (is_blind || machine.seen.elapsed() < LIVE);
        let live = machines.iter().filter(|(_, machine)| is_live(machine));
        let mut names: BTreeSet<String> = live.map(|(name, _)| name.clone()).collect();
        if is_blind {
            let of_another = |name: &String| machines.get(name).is_some_and(|machine| machine.pool != pool);
            let said = object.status.instances.iter().map(|instance| &instance.name);
            names.extend(said.filter(|name| !of_another(name)).cloned());
        }
        names.into_iter().collect()
    }

    /// Machines of other pools that are there and have it, until one of its own sends to members.
    fn elsewhere(&self, pool: &str, object: &HaProxyLoadBalancer) -> Vec<String> {
        let machines = self.machines.lock().unwrap_or_else(PoisonError::into_inner);
        let is_blind = self.is_blind();
        let is_one = |name: &String| {
            machines
                .get(name)
                .is_some_and(|machine| machine.pool != pool && (is_blind || machine.seen.elapsed() < LIVE))
        };
        let said = object.status.instances.iter().map(|instance| &instance.name);
        said.filter(|name| is_one(name)).cloned().collect()
    }

    fn is_blind(&self) -> bool {
        self.blind.lock().unwrap_or_else(PoisonError::into_inner).elapsed() < LIVE
    }

    /// Hears of machines that say that they are there.
    async fn follow_machines(&self, queue: &Queue) {
        let api: Api<Lease> = Api::namespaced(self.client.clone(), &self.settings.agents);
        let events = watcher(api, watcher::Config::default().labels(POOL_LABEL)).default_backoff();
        pin_mut!(events);
        let mut listed = BTreeSet::new();
        while let Some(event) = events.next().await {
            match event {
                Ok(watcher::Event::Apply(lease)) => self.see(&lease, queue),
                Ok(watcher::Event::Init) => listed.clear(),
                Ok(watcher::Event::InitApply(lease)) => {
                    self.see(&lease, queue);
                    listed.extend(machine_name(&lease));
                }
                // Whose Lease was deleted while nobody watched is gone as well.
                Ok(watcher::Event::InitDone) => self.forget(|name| !listed.contains(name), queue),
                Ok(watcher::Event::Delete(lease)) => {
                    let Some(gone) = machine_name(&lease) else { continue };
                    self.forget(|name| *name == gone, queue);
                }
                Err(problem) => {
                    warn!(%problem, "machines cannot be watched");
                    *self.blind.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
                }
            }
        }
    }

    fn forget(&self, is_gone: impl Fn(&String) -> bool, queue: &Queue) {
        let gone: Vec<Machine> = {
            let mut machines = self.machines.lock().unwrap_or_else(PoisonError::into_inner);
            machines.extract_if(|name, _| is_gone(name)).map(|(_, machine)| machine).collect()
        };
        for machine in gone {
            self.look_at_pool(Some(&machine.pool), queue);
        }
    }

    fn see(&self, lease: &Lease, queue: &Queue) {
        let (Some(name), Some(pool)) =
            (machine_name(lease), lease.metadata.labels.as_ref().and_then(|labels| labels.get(POOL_LABEL)))
        else {
            return;
        };
        let renewed = lease.spec.as_ref().and_then(|spec| spec.renew_time.clone());
        let is_new = {
            let mut machines = self.machines.lock().unwrap_or_else(PoisonError::into_inner);
            let before = machines.get(&name);
            let was_live = before.is_some_and(|before| before.pool == *pool && before.seen.elapsed() < LIVE);
            let is_renewed = before.is_none_or(|before| before.renewed != renewed);
            // One that was found when this started may be long gone; it has as much time as any other to say something.
            if is_renewed {
                machines.insert(name, Machine { pool: pool.clone(), renewed, seen: Instant::now() });
            }
            !was_live && is_renewed
        };
        if is_new {
            self.look_at_pool(Some(pool), queue);
        }
    }

    /// Notices that machines say nothing any more.
    async fn miss_machines(&self, queue: &Queue) {
        let mut live: Vec<(String, String)> = Vec::new();
        let mut was_blind = true;
        loop {
            sleep(Duration::from_secs(1)).await;
            let now: Vec<(String, String)> = {
                let machines = self.machines.lock().unwrap_or_else(PoisonError::into_inner);
                let there = machines.iter().filter(|(_, machine)| machine.seen.elapsed() < LIVE);
                there.map(|(name, machine)| (machine.pool.clone(), name.clone())).collect()
            };
            for (pool, name) in live.iter().filter(|machine| !now.contains(machine)) {
                warn!(machine = name, pool, "a machine says nothing any more");
                self.look_at_pool(Some(pool), queue);
            }
            live = now;
            // From now on who is silent is away.
            let is_blind = self.is_blind();
            if std::mem::replace(&mut was_blind, is_blind) && !is_blind {
                self.objects.all().iter().for_each(|object| queue.add(key(object)));
            }
        }
    }

    fn look_at_pool(&self, pool: Option<&str>, queue: &Queue) {
        let all = self.objects.all();
        all.iter()
            .filter(|object| pool == Some(object.spec.pool()))
            .for_each(|object| queue.add(key(object)));
    }
}

/// The machine that a Lease is of.
fn machine_name(lease: &Lease) -> Option<String> {
    lease.spec.as_ref()?.holder_identity.clone().filter(|name| !name.is_empty())
}

/// What its kind is called for the client.
pub(super) fn kind(flavour: Flavour) -> ApiResource {
    resource(flavour.haproxy())
}
