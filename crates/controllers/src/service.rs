//! Services of type `LoadBalancer`: each gets one from the provider, and its address in its status.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::{StreamExt, pin_mut, stream};
use k8s_openapi::api::core::v1::{LoadBalancerIngress, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, Patch, PatchParams};
use kube::runtime::controller::{Action, Config, Controller};
use kube::runtime::reflector::ObjectRef;
use kube::runtime::{WatchStreamExt, reflector, watcher};
use kube::{Client, ResourceExt};
use portcullis_core::{
    Address, Enforcement, LoadBalancer, Members, Outcome, Owner, Problem, Provider, Report, Target, Want,
};
use portcullis_kube_api::{
    Adopted, DRY_RUN, FINALIZER, LoadBalancerClass, endpoint_members, enforced, foreign_finalizer, host,
    is_of_another_class, load_balancer, parameters, wants_load_balancer,
};
use serde_json::json;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};
use tracing::{info, warn};

use crate::events::{Events, Weight};
use crate::nodes::Nodes;
use crate::pause::pause;

/// How Services are looked after.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The cluster, by the name that is written on what is made for it.
    pub cluster: String,
    /// Which Services are ours.
    pub class: LoadBalancerClass,
    /// How many are dealt with at the same time.
    pub concurrency: u16,
    /// How often everything is looked at by few calls.
    pub resync: Duration,
    /// Within which time every load balancer is looked at closely.
    pub close_look: Duration,
    /// For how long a Service has to be away until what is left of it is taken away.
    pub sweep_after: Duration,
    /// Only watch, and tell what would be done.
    pub observe: bool,
    /// Who this is, in Events.
    pub host: String,
}

/// How long is waited after a failure, at first and at most.
const BACKOFF: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(300));

/// Looks after the Services of a cluster.
#[allow(missing_debug_implementations, reason = "a client of Kubernetes has none")]
pub struct ServiceController<P> {
    client: Client,
    provider: P,
    settings: Settings,
}

struct Context<P> {
    client: Client,
    provider: P,
    settings: Settings,
    nodes: Nodes,
    events: Events,
    slices: Slices,
    /// How often in a row something failed.
    failures: Mutex<HashMap<ObjectRef<Service>, u32>>,
    /// What was wanted the last time.
    last: Mutex<HashMap<Owner, Want>>,
}

/// The endpoints of Services, once somebody asks for them.
struct Slices {
    client: Client,
    store: tokio::sync::OnceCell<reflector::Store<EndpointSlice>>,
    changed: mpsc::UnboundedSender<ObjectRef<Service>>,
}

/// Nothing goes wrong that is not dealt with where it does.
type Never = std::convert::Infallible;

impl<P: Provider> ServiceController<P> {
    /// Looks after Services by this provider.
    pub fn new(client: Client, provider: P, settings: Settings) -> Self {
        ServiceController { client, provider, settings }
    }

    /// Does so until it is dropped.
    pub async fn run(self) {
        let ServiceController { client, provider, settings } = self;
        let nodes = Nodes::watch(client.clone());
        nodes.ready().await;
        let (sender, receiver) = mpsc::unbounded_channel();
        let triggers = stream::unfold(receiver, |mut receiver| async {
            receiver.recv().await.map(|object| (object, receiver))
        });
        let changes = stream::unfold(nodes.changes(), |mut changes| async {
            changes.changed().await.ok().map(|()| ((), changes))
        });
        let services: Api<Service> = Api::all(client.clone());
        let controller = Controller::new(services, watcher::Config::default())
            .with_config(Config::default().concurrency(settings.concurrency))
            .reconcile_all_on(changes)
            .reconcile_on(triggers);
        let store = controller.store();
        let context = Arc::new(Context {
            events: Events::new(client.clone(), "service-controller", &settings.host),
            slices: Slices {
                client: client.clone(),
                store: tokio::sync::OnceCell::new(),
                changed: sender.clone(),
            },
            client,
            provider,
            settings,
            nodes,
            failures: Mutex::default(),
            last: Mutex::default(),
        });
        let reconciling = controller
            .run(reconcile, |_, error: &Never, _| match *error {}, Arc::clone(&context))
            .for_each(|_| std::future::ready(()));
        tokio::join!(reconciling, context.look_at_all(&store, &sender), context.look_closely(&sender),);
    }
}

async fn reconcile<P: Provider>(service: Arc<Service>, context: Arc<Context<P>>) -> Result<Action, Never> {
    let key = ObjectRef::from_obj(&*service);
    let again = context.reconcile(&service).await;
    let mut failures = context.failures();
    let Err(Again) = again else {
        failures.remove(&key);
        return Ok(Action::await_change());
    };
    let count = failures.entry(key).or_default();
    *count += 1;
    Ok(Action::requeue(pause(BACKOFF, *count)))
}

/// It did not come to its end, and is tried again later.
struct Again;

impl<P: Provider> Context<P> {
    fn failures(&self) -> MutexGuard<'_, HashMap<ObjectRef<Service>, u32>> {
        self.failures.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn last(&self) -> MutexGuard<'_, HashMap<Owner, Want>> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn owner(&self, service: &Service) -> Owner {
        let (namespace, name) = (service.namespace().unwrap_or_default(), service.name_any());
        Owner::new(self.settings.cluster.as_str(), "Service", Some(namespace), name)
            .expect("names in Kubernetes are names")
    }

    async fn reconcile(&self, service: &Service) -> Result<(), Again> {
        let held = service.finalizers().iter().any(|finalizer| finalizer == FINALIZER);
        let ours = wants_load_balancer(service, &self.settings.class);
        // What is said of a Service at addresses of nodes is said by whoever gives it those.
        let is_said = enforced::there(service).is_some() && host::assigned(service).is_none();
        if !held && !self.settings.observe && is_said {
            return self.take_back(service).await;
        }
        if let Some((finalizer, who)) = foreign_finalizer(service).filter(|_| ours) {
            let message = format!(
                "{who} looks after this Service, by the finalizer {finalizer}: it is left alone. `portcullis adopt {}` takes over its load balancer",
                key(service)
            );
            info!(service = %key(service), finalizer, who, "it is looked after by another one");
            self.forget(&self.owner(service));
            self.tell(service, Weight::Warning, "LoadBalancerNotOurs", &message).await;
            return Ok(());
        }
        // Another one of us may hold it, by the same finalizer.
        if is_of_another_class(service, &self.settings.class) {
            self.forget(&self.owner(service));
            return Ok(());
        }
        let stays = service.metadata.deletion_timestamp.is_none();
        let without_class = service.spec.as_ref().is_some_and(|spec| spec.load_balancer_class.is_none());
        if ours && stays && !held && without_class && Adopted::of(service).is_some() {
            // Whoever takes over writes both at once. Another load balancer would be made, and the one it has be lost.
            let message = format!(
                "It says that its load balancer was taken over, which it was not: `portcullis adopt {}` does that",
                key(service)
            );
            self.tell(service, Weight::Warning, "LoadBalancerNotOurs", &message).await;
            return Ok(());
        }
        match (ours && stays, held) {
            (true, _) => self.ensure(service, held).await,
            (false, true) if stays && is_load_balancer(service) => {
                // A slip in an annotation or in the configuration is no reason to take a load balancer away.
                let message = "It still wants a load balancer, and nothing says any more that it is ours: its load balancer is left as it is. Restore its annotations, have another controller take it by `portcullis release`, or change its type to have the load balancer deleted";
                warn!(service = %key(service), "it is not ours any more, and still wants a load balancer");
                self.tell(service, Weight::Warning, "LoadBalancerNotOurs", message).await;
                Ok(())
            }
            (false, true) => self.delete(service).await,
            (false, false) => {
                self.forget(&self.owner(service));
                Ok(())
            }
        }
    }

    /// What a Service wants; the load balancer is told apart, since there may be something wrong with it.
    async fn want(&self, service: &Service) -> Result<Want, Problem> {
        let parameters = parameters(service);
        let (wanted, nodes) = match self.provider.members(&parameters)? {
            Members::Nodes(labels) => {
                let nodes = self.nodes.members(&labels);
                (load_balancer(service, nodes, true)?, Arc::default())
            }
            Members::Endpoints => {
                let members = self.slices.members(service).await;
                (load_balancer(service, members.into(), false)?, self.nodes.members(&BTreeMap::new()))
            }
        };
        Ok(Want { nodes, ..self.wanting(service, Target::Present(wanted)) })
    }

    fn wanting(&self, service: &Service, target: Target) -> Want {
        Want {
            owner: self.owner(service),
            uid: service.uid().unwrap_or_default(),
            target,
            parameters: parameters(service),
            nodes: Arc::default(),
        }
    }

    async fn ensure(&self, service: &Service, held: bool) -> Result<(), Again> {
        let want = match self.want(service).await {
            Ok(want) => want,
            Err(problem) => {
                self.failed(service, "SyncLoadBalancerFailed", "Error syncing load balancer", &problem).await;
                return Err(Again);
            }
        };
        if self.settings.observe || service.annotations().get(DRY_RUN).is_some_and(|value| value == "true") {
            return self.tell_plan(service, &want).await;
        }
        let settled = self.provider.is_settled(&want);
        if !held && self.hold(service).await.is_err() {
            return Err(Again);
        }
        let only_members =
            self.last().get(&want.owner).is_some_and(|last| is_same_but_for_members(last, &want));
        if !settled && !only_members {
            self.tell(service, Weight::Normal, "EnsuringLoadBalancer", "Ensuring load balancer").await;
        }
        if let Target::Present(wanted) = &want.target
            && wanted.members().is_empty()
            && !settled
        {
            let message = "There are no available nodes for LoadBalancer";
            self.tell(service, Weight::Warning, "UnAvailableLoadBalancer", message).await;
        }
        let report = self.provider.sync(&want).await;
        for told in &report.told {
            self.tell(service, Weight::Warning, "LoadBalancerNotAsAsked", told).await;
        }
        // What is not known of AWS yet is no reason to take an address away.
        let published = match &report.outcome {
            Outcome::Done => self.publish(service, &report).await,
            _ if report.addresses.is_empty() => Ok(()),
            _ => self.publish(service, &report).await,
        };
        self.last().insert(want.owner.clone(), want);
        let (failed, words) = if only_members {
            ("UpdateLoadBalancerFailed", "Error updating load balancer with new hosts")
        } else {
            ("SyncLoadBalancerFailed", "Error syncing load balancer")
        };
        match report.outcome {
            Outcome::Done if settled => published,
            Outcome::Done => {
                let (reason, message) = if only_members {
                    ("UpdatedLoadBalancer", "Updated load balancer with new hosts")
                } else {
                    ("EnsuredLoadBalancer", "Ensured load balancer")
                };
                self.tell(service, Weight::Normal, reason, message).await;
                published
            }
            Outcome::Pending { why, .. } => {
                info!(service = %key(service), why, "a load balancer is not ready yet");
                if self.failures().get(&ObjectRef::from_obj(service)).is_some_and(|count| *count > 0) {
                    self.tell(service, Weight::Warning, failed, &format!("{words}: {why}")).await;
                }
                Err(Again)
            }
            Outcome::Blocked(problem) => {
                self.failed(service, failed, words, &problem).await;
                Err(Again)
            }
        }
    }

    async fn delete(&self, service: &Service) -> Result<(), Again> {
        let want = self.wanting(service, Target::Gone);
        if self.settings.observe {
            return Ok(());
        }
        self.last().insert(want.owner.clone(), want.clone());
        if self.failures().get(&ObjectRef::from_obj(service)).is_none() {
            self.tell(service, Weight::Normal, "DeletingLoadBalancer", "Deleting load balancer").await;
        }
        let report = self.provider.sync(&want).await;
        match report.outcome {
            Outcome::Done => {
                self.last().remove(&want.owner);
                if service.metadata.deletion_timestamp.is_none() {
                    self.publish(service, &Report::new(Outcome::Done)).await?;
                }
                self.tell(service, Weight::Normal, "DeletedLoadBalancer", "Deleted load balancer").await;
                self.let_go(service).await
            }
            Outcome::Pending { why, .. } => {
                info!(service = %key(service), why, "a load balancer is not gone yet");
                if self.failures().get(&ObjectRef::from_obj(service)).is_some_and(|count| *count > 2) {
                    let message = format!("Error deleting load balancer: {why}");
                    self.tell(service, Weight::Warning, "DeleteLoadBalancerFailed", &message).await;
                }
                Err(Again)
            }
            Outcome::Blocked(problem) => {
                self.failed(service, "DeleteLoadBalancerFailed", "Error deleting load balancer", &problem)
                    .await;
                Err(Again)
            }
        }
    }

    async fn tell_plan(&self, service: &Service, want: &Want) -> Result<(), Again> {
        match self.provider.preview(want).await {
            Ok(plan) => {
                let message =
                    if plan.is_empty() { "Nothing to change.".to_owned() } else { plan.to_string() };
                info!(service = %key(service), %plan, "this would be done");
                self.tell(service, Weight::Normal, "LoadBalancerPlan", &message).await;
                Ok(())
            }
            Err(problem) => {
                self.failed(service, "SyncLoadBalancerFailed", "Error syncing load balancer", &problem).await;
                Err(Again)
            }
        }
    }

    async fn tell(&self, service: &Service, weight: Weight, reason: &str, message: &str) {
        // Who only watches writes nowhere; the log has it.
        if self.settings.observe {
            return;
        }
        self.events.tell(service, weight, reason, message).await;
    }

    async fn failed(&self, service: &Service, reason: &str, words: &str, problem: &Problem) {
        warn!(service = %key(service), reason, problem = %problem.what, remedy = problem.remedy, "it did not go on");
        let message = format!("{words}: {} {} {}", problem.what, problem.state, problem.remedy);
        self.tell(service, Weight::Warning, reason, &message).await;
    }

    fn api(&self, service: &Service) -> Api<Service> {
        Api::namespaced(self.client.clone(), &service.namespace().unwrap_or_default())
    }

    /// Holds a Service, so that it cannot go before its load balancer has.
    async fn hold(&self, service: &Service) -> Result<(), Again> {
        let mut finalizers = service.finalizers().to_vec();
        finalizers.push(FINALIZER.to_owned());
        self.set_finalizers(service, &finalizers).await
    }

    async fn let_go(&self, service: &Service) -> Result<(), Again> {
        let mut finalizers = service.finalizers().to_vec();
        finalizers.retain(|finalizer| finalizer != FINALIZER);
        self.set_finalizers(service, &finalizers).await
    }

    async fn set_finalizers(&self, service: &Service, finalizers: &[String]) -> Result<(), Again> {
        // Refused if somebody changed the Service meanwhile; then it comes again.
        let patch =
            json!({"metadata": {"resourceVersion": service.resource_version(), "finalizers": finalizers}});
        let done =
            self.api(service).patch(&service.name_any(), &PatchParams::default(), &Patch::Merge(patch)).await;
        match done {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
            Err(kube::Error::Api(status)) if status.code == 409 => Err(Again),
            Err(error) => {
                warn!(service = %key(service), %error, "its finalizers cannot be written");
                Err(Again)
            }
        }
    }

    /// Writes into the status where clients find it, and whether its source ranges keep anybody out, if it says
    /// something else.
    async fn publish(&self, service: &Service, report: &Report) -> Result<(), Again> {
        let mut status = json!({});
        if let Some(ingress) = changed_addresses(service, &report.addresses) {
            let ingress = if ingress.is_empty() { serde_json::Value::Null } else { json!(ingress) };
            status["loadBalancer"] = json!({"ingress": ingress});
        }
        let is_there = enforced::there(service);
        // That they do is said once all is as wanted; that they do not as soon as it is known.
        let is_sure =
            |found: &&Enforcement| report.outcome == Outcome::Done || matches!(found, Enforcement::Not(_));
        let condition = report.enforcement.as_ref().filter(is_sure);
        let now = Time(Timestamp::now());
        match condition.and_then(|found| enforced::enforced_condition(service, found, now)) {
            Some(condition) if is_there != Some(&condition) => status["conditions"] = json!([condition]),
            // Of what was said of other ranges, or of another load balancer, nothing stays.
            None if is_there.is_some() && report.outcome == Outcome::Done => {
                status["conditions"] = json!([{"type": enforced::ENFORCED, "$patch": "delete"}]);
            }
            _ => {}
        }
        if status == json!({}) {
            return Ok(());
        }
        let patch = Patch::Strategic(json!({"status": status}));
        let api = self.api(service);
        match api.patch_status(&service.name_any(), &PatchParams::default(), &patch).await {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
            Err(error) => {
                warn!(service = %key(service), %error, "its status cannot be written");
                Err(Again)
            }
        }
    }

    /// Takes away what was said of source ranges, of a Service that none of us looks after any more: whoever does may have
    /// changed everything. It is heard of again after that.
    async fn take_back(&self, service: &Service) -> Result<(), Again> {
        let patch = Patch::Strategic(json!({
            "metadata": {"resourceVersion": service.resource_version()},
            "status": {"conditions": [{"type": enforced::ENFORCED, "$patch": "delete"}]},
        }));
        match self.api(service).patch_status(&service.name_any(), &PatchParams::default(), &patch).await {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
            Err(kube::Error::Api(status)) if status.code == 409 => Err(Again),
            Err(error) => {
                warn!(service = %key(service), %error, "its status cannot be written");
                Err(Again)
            }
        }
    }

    /// Looks at everything now and then: what is not as it should be is put right, and what nobody wants is taken away
    /// once it is sure that nobody does.
    async fn look_at_all(
        &self,
        store: &reflector::Store<Service>,
        trigger: &mpsc::UnboundedSender<ObjectRef<Service>>,
    ) {
        let mut missing: BTreeMap<Owner, Instant> = BTreeMap::new();
        if store.wait_until_ready().await.is_err() {
            return;
        }
        loop {
            sleep(self.settings.resync).await;
            match self.provider.look_at_all().await {
                Ok(owners) => {
                    for owner in owners {
                        // What it has is as it should be, and something else is to be said of it.
                        let is_news =
                            self.last().get(&owner).is_some_and(|last| self.provider.is_settled(last));
                        if !is_news {
                            warn!(%owner, "something is not as it should be, and is put right");
                        }
                        let _ = trigger.send(object(&owner));
                    }
                }
                Err(problem) => warn!(problem = %problem.what, "the load balancers cannot be looked at"),
            }
            self.forget_missing(store);
            self.sweep(&mut missing).await;
        }
    }

    fn forget(&self, owner: &Owner) {
        if self.last().remove(owner).is_some() {
            self.provider.forget(owner);
        }
    }

    /// Forgets those that are gone without a word: somebody took off what held them.
    fn forget_missing(&self, store: &reflector::Store<Service>) {
        let owners: Vec<Owner> = self.last().keys().cloned().collect();
        for owner in owners.iter().filter(|owner| store.get(&object(owner)).is_none()) {
            warn!(%owner, "it is gone, and did not wait for its load balancer");
            self.forget(owner);
        }
    }

    async fn sweep(&self, missing: &mut BTreeMap<Owner, Instant>) {
        let forgotten = self.provider.forgotten();
        missing.retain(|owner, _| forgotten.contains(owner));
        for owner in forgotten {
            if !self.is_gone(&owner).await {
                missing.remove(&owner);
                continue;
            }
            let since = *missing.entry(owner.clone()).or_insert_with(|| {
                warn!(%owner, after = ?self.settings.sweep_after, "it is gone, and left something behind, which will be taken away");
                Instant::now()
            });
            if since.elapsed() < self.settings.sweep_after || self.settings.observe {
                continue;
            }
            let want = Want {
                owner: owner.clone(),
                uid: String::new(),
                target: Target::Gone,
                parameters: BTreeMap::new(),
                nodes: Arc::default(),
            };
            match self.provider.sync(&want).await.outcome {
                Outcome::Done => info!(%owner, "what it left behind is gone"),
                outcome => {
                    warn!(%owner, ?outcome, "what it left behind cannot be taken away yet");
                    // Nobody else would come back to it.
                    self.provider.forget(&owner);
                }
            }
        }
    }

    /// Whether nobody is left who could want something: a Service that is gone, or what all of them shared.
    async fn is_gone(&self, owner: &Owner) -> bool {
        if owner.kind() != "Service" {
            return owner.kind() == "Cluster" && owner.name() == self.settings.cluster;
        }
        let api: Api<Service> = Api::namespaced(self.client.clone(), owner.namespace().unwrap_or_default());
        // By the API itself: a cache may be behind. Another one of its name may be there by now, which wants no load
        // balancer; one that does, or is about to change hands, may want this one.
        match api.get_opt(owner.name()).await {
            Ok(None) => true,
            Ok(Some(found)) => {
                let held = found.finalizers().iter().any(|finalizer| finalizer == FINALIZER);
                !held && !is_load_balancer(&found) && Adopted::of(&found).is_none()
            }
            Err(_) => false,
        }
    }

    /// Looks at one load balancer after the other, so that each has its turn within the time that is set.
    async fn look_closely(&self, trigger: &mpsc::UnboundedSender<ObjectRef<Service>>) {
        loop {
            let owners: Vec<Owner> = self.last().keys().cloned().collect();
            let turns = u32::try_from(owners.len().max(1)).unwrap_or(u32::MAX);
            let pause = self.settings.close_look / turns;
            if owners.is_empty() {
                sleep(pause.min(Duration::from_secs(60))).await;
            }
            for owner in owners {
                sleep(pause).await;
                match self.provider.look_closely(&owner).await {
                    Ok(false) => {}
                    Ok(true) => {
                        warn!(%owner, "something is not as it should be, and is put right");
                        let _ = trigger.send(object(&owner));
                    }
                    Err(problem) => {
                        warn!(%owner, problem = %problem.what, "its load balancer cannot be looked at");
                    }
                }
            }
        }
    }
}

/// The addresses as the status has them, if they are others than there.
fn changed_addresses(service: &Service, addresses: &[Address]) -> Option<Vec<LoadBalancerIngress>> {
    let ingress: Vec<LoadBalancerIngress> = addresses
        .iter()
        .map(|address| match address {
            Address::Hostname(name) => {
                LoadBalancerIngress { hostname: Some(name.clone()), ..LoadBalancerIngress::default() }
            }
            Address::Ip(address) => {
                LoadBalancerIngress { ip: Some(address.to_string()), ..LoadBalancerIngress::default() }
            }
        })
        .collect();
    let status = service.status.as_ref().and_then(|status| status.load_balancer.as_ref());
    let there = status.and_then(|status| status.ingress.clone()).unwrap_or_default();
    let plain = |ingress: &LoadBalancerIngress| (ingress.hostname.clone(), ingress.ip.clone());
    (!there.iter().map(plain).eq(ingress.iter().map(plain))).then_some(ingress)
}

impl Slices {
    /// The members behind a Service.
    async fn members(&self, service: &Service) -> Vec<portcullis_core::Member> {
        let store = self.store.get_or_init(|| async { self.watch().await }).await;
        let (namespace, name) = (service.namespace(), service.name_any());
        let slices: Vec<Arc<EndpointSlice>> = store
            .state()
            .into_iter()
            .filter(|slice| slice.namespace() == namespace && service_of(slice) == Some(name.as_str()))
            .collect();
        endpoint_members(service, slices.iter().map(AsRef::as_ref))
    }

    async fn watch(&self) -> reflector::Store<EndpointSlice> {
        let (store, writer) = reflector::store();
        let api: Api<EndpointSlice> = Api::all(self.client.clone());
        let changed = self.changed.clone();
        let lean = |slice: &mut EndpointSlice| slice.metadata.managed_fields = None;
        tokio::spawn(async move {
            let events = watcher(api, watcher::Config::default())
                .default_backoff()
                .modify(lean)
                .reflect(writer)
                .touched_objects();
            pin_mut!(events);
            while let Some(event) = events.next().await {
                let Ok(slice) = event else { continue };
                if let Some(name) = service_of(&slice) {
                    let object = ObjectRef::new(name).within(&slice.namespace().unwrap_or_default());
                    if changed.send(object).is_err() {
                        return;
                    }
                }
            }
        });
        let _ = store.wait_until_ready().await;
        store
    }
}

/// Which Service endpoints are of.
fn service_of(slice: &EndpointSlice) -> Option<&str> {
    slice.metadata.labels.as_ref()?.get("kubernetes.io/service-name").map(String::as_str)
}

fn is_load_balancer(service: &Service) -> bool {
    service.spec.as_ref().is_some_and(|spec| spec.type_.as_deref() == Some("LoadBalancer"))
}

fn key(service: &Service) -> String {
    format!("{}/{}", service.namespace().unwrap_or_default(), service.name_any())
}

fn object(owner: &Owner) -> ObjectRef<Service> {
    ObjectRef::new(owner.name()).within(owner.namespace().unwrap_or_default())
}

/// Whether two wants differ in their members only.
fn is_same_but_for_members(one: &Want, other: &Want) -> bool {
    let without = |want: &Want| match &want.target {
        Target::Present(wanted) => {
            let wanted: Option<LoadBalancer> = wanted.clone().with_members(Vec::new()).ok();
            Some((wanted, want.parameters.clone(), want.uid.clone()))
        }
        Target::Gone => None,
    };
    without(one).is_some_and(|one| without(other).is_some_and(|other| one == other))
}
