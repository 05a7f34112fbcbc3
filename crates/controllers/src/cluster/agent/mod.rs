//! Load balancers on machines with `HAProxy`, the half that runs on each of them: it pulls what its machine is to carry from the
//! API, has it carried, and says how far that got.

mod carrier;
mod kept;
mod wanted;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use kube::Client;
use kube::api::{Api, Patch, PatchParams};
use portcullis_core::Family;
use portcullis_haproxy::vrrp::SharedAddress;
use portcullis_haproxy::{BalancerId, BalancerSeen, Error, Seen, Tuning};
use portcullis_host::interfaces::{Interfaces, Selection};
use portcullis_kube_api::cluster::{
    AssignedMember, Assignment, DutyWord, Flavour, HaProxyLoadBalancerSpec, InfrastructureStatus, Instance,
    InstanceMember, is_moving_away, is_paused_itself,
};
use serde_json::json;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tracing::{info, warn};

pub use carrier::{Carrier, CarrierError};

use self::carrier::{ENDED, Outcome};
use self::kept::Kept;
use super::haproxy::{HaProxyLoadBalancer, LIVE, POOL_LABEL, RENEW, kind};
use super::shelf::{Key, Shelf, key};

/// How a machine carries traffic.
#[derive(Clone, Debug)]
pub struct HaProxyAgentSettings {
    /// Under which names the types are installed.
    pub flavour: Flavour,
    /// Only load balancers of this namespace, if one is given.
    pub namespace: Option<String>,
    /// Where machines say that they are there.
    pub agents: String,
    /// The pool that this one is of.
    pub pool: String,
    /// Its name, which no other one has.
    pub name: String,
    /// How addresses are shared with others; `None` where others see to that.
    pub sharing: Option<Sharing>,
    /// Which of its addresses clients can use.
    pub selection: Selection,
    /// What holds for all load balancers.
    pub tuning: Tuning,
}

/// How addresses are shared with other machines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sharing {
    /// The interface that they come to.
    pub interface: String,
    /// Who has the highest gets an address that nobody has.
    pub priority: u8,
    /// Other machines, where the network carries no multicast.
    pub peers: Vec<IpAddr>,
    /// How often the one that has an address says so.
    pub interval: Duration,
}

/// Carries traffic on this machine.
#[allow(missing_debug_implementations, reason = "a client of Kubernetes has none")]
pub struct HaProxyAgent {
    client: Client,
    carrier: Carrier,
    settings: HaProxyAgentSettings,
    standing: Carrying,
}

/// How what is carried stands, for whoever counts it.
#[derive(Clone, Debug, Default)]
pub struct Carrying(Arc<Mutex<Option<Seen>>>);

impl Carrying {
    /// As it was seen last; `None` before that.
    pub fn seen(&self) -> Option<Seen> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// How often it is looked at: while something is on its way, and otherwise.
const SOON: Duration = Duration::from_millis(250);
const LATER: Duration = Duration::from_secs(2);
/// For how long the API is waited for before what was carried last is carried: it may know better.
const PATIENCE: Duration = Duration::from_secs(5);

impl HaProxyAgent {
    /// Carries traffic on a machine.
    pub fn new(client: Client, carrier: Carrier, settings: HaProxyAgentSettings) -> Self {
        HaProxyAgent { client, carrier, settings, standing: Carrying::default() }
    }

    /// How it stands, while it runs.
    pub fn standing(&self) -> Carrying {
        self.standing.clone()
    }

    /// Does so until it is dropped; `tell` hears what keeps it from it, and that nothing does. What is carried goes on being
    /// carried when this ends.
    pub async fn run(self, mut tell: impl FnMut(Option<String>)) {
        let objects: Shelf<HaProxyLoadBalancerSpec, InfrastructureStatus> =
            Shelf::new(kind(self.settings.flavour), self.settings.namespace.clone());
        let changed = Notify::new();
        let kept = Mutex::new(Kept::read(self.carrier.directory()));
        let carries = Notify::new();
        let watching = objects.watch(self.client.clone(), |object| {
            // What was moved to another management cluster is carried on: its clients know nothing of that.
            if is_moving_away(object) {
                kept.lock().unwrap_or_else(PoisonError::into_inner).keep(object);
            }
            changed.notify_one();
        });
        let carrying = async {
            let mut interfaces = self.carrier.interfaces();
            // Without the API it is not known what is to be carried: what is carried stays. After a power cut nothing is, and
            // the API may be behind what this machine carries.
            let mut patience = PATIENCE;
            while timeout(patience, objects.ready()).await.is_err() {
                self.carry_as_before(&kept, &mut tell).await;
                patience = LATER;
            }
            loop {
                let next = self.round(&objects, &kept, &mut tell).await;
                carries.notify_one();
                tokio::select! {
                    () = changed.notified() => {}
                    _ = interfaces.changed() => {}
                    () = sleep_until(next) => {}
                }
            }
        };
        let being_there = async {
            // Who says that it is there is counted on.
            carries.notified().await;
            self.be_there().await;
        };
        tokio::join!(watching, carrying, being_there);
    }

    /// Has everything carried that was before.
    async fn carry_as_before(&self, kept: &Mutex<Kept>, tell: &mut impl FnMut(Option<String>)) {
        let wanted = {
            let kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
            let ours = kept.all(&self.settings.pool);
            // Where nothing is written down, nothing is known of what runs.
            if ours.is_empty() {
                return;
            }
            wanted::wanted(&ours, &self.settings, &kept, &BTreeMap::new())
        };
        if let Some(outcome) = self.carrier.carry(wanted.carried, wanted.shared).await
            && let Some(problem) = problems(&outcome)
        {
            tell(Some(problem));
        }
    }

    /// Has everything carried that is to be, and says so. Gives when it has to be looked at again.
    async fn round(
        &self,
        objects: &Shelf<HaProxyLoadBalancerSpec, InfrastructureStatus>,
        kept: &Mutex<Kept>,
        tell: &mut impl FnMut(Option<String>),
    ) -> Instant {
        let interfaces = self.carrier.interfaces().borrow().clone();
        let (ours, others) = {
            let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
            let is_ours = |object: &Arc<HaProxyLoadBalancer>| self.is_ours(object, &kept);
            let (mut ours, others): (Vec<_>, Vec<_>) = objects.all().into_iter().partition(is_ours);
            ours.extend(kept.still(&ours, &self.settings.pool, |key| objects.is_unknown(key)));
            kept.save();
            let ours: Vec<_> = ours.into_iter().map(|object| wanted::as_given(object, &kept)).collect();
            (ours, others)
        };
        let obstacles = |wanted| self.carrier.obstacles(wanted);
        let wanted = wanted::decide(&ours, &self.settings, kept, obstacles).await;
        {
            // Who was shut out is not let in again by another start, also if not all of this can be done.
            let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
            wanted.forms.values().for_each(|form| kept.narrow(form));
            kept.save();
        }
        let Some(outcome) = self.carrier.carry(wanted.carried, wanted.shared.clone()).await else {
            let why = ENDED.to_owned();
            self.say_what_is_wrong(objects, &ours, &interfaces, &why).await;
            self.say_what_is_held(objects, &others, &interfaces, false).await;
            tell(Some(why));
            return Instant::now() + LATER;
        };
        tell(problems(&outcome));
        let why = outcome.problem.as_ref().map(Error::in_full);
        let unshared = outcome.unshared.as_ref().map(Error::in_full);
        let Some(seen) = outcome.seen else {
            let why = why.unwrap_or_else(|| "HAProxy cannot be asked".to_owned());
            self.say_what_is_wrong(objects, &ours, &interfaces, &why).await;
            self.say_what_is_held(objects, &others, &interfaces, false).await;
            return Instant::now() + LATER;
        };
        if why.is_none() {
            let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
            for form in wanted.forms.values() {
                // What is not there, or has no clients yet, is nothing to go on as.
                if wanted.waiting.contains(&key(form)) {
                    continue;
                }
                if seen.balancers.get(&id(form)).is_some_and(|seen| seen.problem.is_none()) {
                    kept.accept(form);
                }
            }
            kept.save();
        }
        let mut is_moving = seen.unfinished;
        for object in &ours {
            let of_it = seen.balancers.get(&id(object)).cloned().unwrap_or_default();
            let form = wanted.forms.get(&key(object)).unwrap_or(object);
            let mut instance = self.instance(form, &of_it, &wanted.shared, &interfaces);
            instance.allowed_source_ranges = wanted::admits(form, object);
            if let Some(why) = &why {
                instance.problem = Some(why.clone());
                // By what a machine of another pool says of itself, those of the new one know that it is not for them yet.
                if outcome.closed && object.spec.pool() == self.settings.pool {
                    // It is as it was, but for who is not to get in, or to be sent to, any more.
                    let kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
                    let as_before = kept.form(object).unwrap_or_else(|| (**object).clone());
                    instance.observed_generation = object.metadata.generation;
                    instance.allowed_source_ranges = wanted::admits(&as_before, object);
                } else {
                    // What was asked for last is not done.
                    let said = self.said(object);
                    instance.observed_generation = said.and_then(|said| said.observed_generation);
                    instance.allowed_source_ranges = said.and_then(|said| said.allowed_source_ranges.clone());
                }
            } else if let Some(why) = wanted.refused.get(&key(object)) {
                // That much was made of it.
                instance.observed_generation = object.metadata.generation;
                instance.problem = Some(why.clone());
            } else if instance.problem.is_none() && self.shares(form) {
                instance.problem.clone_from(&unshared);
            }
            is_moving |= instance
                .members
                .iter()
                .any(|member| !matches!(member.status.as_str(), "active" | "disabled" | "removed"));
            if is_moving_away(object) {
                continue;
            }
            self.say(objects, object, Some(&instance)).await;
        }
        if why.is_some() || unshared.is_some() {
            // It may still have what is not for it any more.
            self.say_what_is_held(objects, &others, &interfaces, why.is_none()).await;
        }
        if why.is_some() {
            return Instant::now() + LATER;
        }
        if unshared.is_none() {
            for object in &others {
                self.say(objects, object, None).await;
            }
        }
        let due = seen.due.and_then(|due| due.duration_since(SystemTime::now()).ok());
        *self.standing.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(seen);
        let pause = if is_moving { SOON } else { LATER };
        Instant::now() + due.map_or(pause, |due| due.min(pause))
    }

    /// Says of everything why it is not carried. What is known of members is what was seen last, but nobody is sent to any.
    async fn say_what_is_wrong(
        &self,
        objects: &Shelf<HaProxyLoadBalancerSpec, InfrastructureStatus>,
        ours: &[Arc<HaProxyLoadBalancer>],
        interfaces: &Interfaces,
        why: &str,
    ) {
        for object in ours.iter().filter(|object| !is_moving_away(object)) {
            let mut instance = self.said(object).cloned().unwrap_or_default();
            instance.name.clone_from(&self.settings.name);
            instance.pool.clone_from(&self.settings.pool);
            instance.holds_address = holds_address(object, interfaces);
            instance.problem = Some(why.to_owned());
            for member in instance.members.iter_mut().filter(|member| member.status == "active") {
                "adding".clone_into(&mut member.status);
            }
            self.say(objects, object, Some(&instance)).await;
        }
    }

    /// Says of what is not for this machine any more, and cannot be let go of, whether it still has the address: machines of another pool
    /// wait for that one alone. Where HAProxy has let go of it, nobody is sent to members any more.
    async fn say_what_is_held(
        &self,
        objects: &Shelf<HaProxyLoadBalancerSpec, InfrastructureStatus>,
        others: &[Arc<HaProxyLoadBalancer>],
        interfaces: &Interfaces,
        has_let_go: bool,
    ) {
        for object in others {
            let Some(said) = self.said(object) else { continue };
            let mut instance = Instance { holds_address: holds_address(object, interfaces), ..said.clone() };
            if has_let_go {
                instance.members.clear();
            }
            self.say(objects, object, Some(&instance)).await;
        }
    }

    /// What this machine said of a load balancer last.
    fn said<'a>(&self, object: &'a HaProxyLoadBalancer) -> Option<&'a Instance> {
        object.status.instances.iter().find(|said| said.name == self.settings.name)
    }

    /// Whether it needs addresses that machines share.
    fn shares(&self, object: &HaProxyLoadBalancer) -> bool {
        self.settings.sharing.is_some()
            && wanted::addresses(object).is_ok_and(|addresses| !addresses.is_empty())
    }

    /// Whether it is for this machine. What is paused is for whoever had it, whatever it says meanwhile.
    fn is_ours(&self, object: &HaProxyLoadBalancer, kept: &Kept) -> bool {
        if is_paused_itself(object) {
            return kept.has(object)
                || self.said(object).is_some_and(|said| said.observed_generation.is_some());
        }
        object.spec.assignment.is_some()
            && (object.spec.pool() == self.settings.pool || kept.goes_on(object, &self.settings))
    }

    /// What this machine says of a load balancer that it carries in this form.
    fn instance(
        &self,
        object: &HaProxyLoadBalancer,
        seen: &BalancerSeen,
        shared: &[SharedAddress],
        interfaces: &Interfaces,
    ) -> Instance {
        let said = self.said(object).map(|said| said.members.as_slice()).unwrap_or_default();
        let ended_before =
            |name: &String| said.iter().find(|said| said.name == *name).map_or(0, |said| said.ended);
        let duties = object.spec.assignment.iter().flat_map(|assignment| &assignment.members);
        let duties: BTreeMap<&str, DutyWord> =
            duties.map(|member: &AssignedMember| (member.name.as_str(), member.duty)).collect();
        let members = seen.members.iter().map(|(name, member)| {
            let serves = duties.get(name.as_str()).is_none_or(|duty| *duty == DutyWord::Serve);
            let status = member.state.to_string();
            InstanceMember {
                name: name.clone(),
                connections: (!serves).then_some(member.sessions),
                // It was counted before this process was there.
                ended: member.cut.max(ended_before(name)),
                message: Some(member.check.clone()).filter(|check| status == "adding" && !check.is_empty()),
                status,
            }
        });
        let families = object.spec.assignment.as_ref().map(Assignment::families).unwrap_or_default();
        let own = self.settings.selection.external(interfaces);
        let own = own.into_iter().filter(|address| {
            families.contains(&Family::of(*address))
                && shared.iter().all(|shared| shared.address() != *address)
        });
        Instance {
            name: self.settings.name.clone(),
            pool: self.settings.pool.clone(),
            observed_generation: object.metadata.generation,
            addresses: own.map(|address| address.to_string()).collect(),
            holds_address: holds_address(object, interfaces),
            allowed_source_ranges: None,
            members: members.collect(),
            problem: seen.problem.as_ref().map(ToString::to_string),
        }
    }

    /// Writes it into the status, where each machine has an entry of its own; `None` takes it out.
    async fn say(
        &self,
        objects: &Shelf<HaProxyLoadBalancerSpec, InfrastructureStatus>,
        object: &HaProxyLoadBalancer,
        instance: Option<&Instance>,
    ) {
        if self.said(object) == instance {
            return;
        }
        let resource = objects.resource();
        let api: Api<HaProxyLoadBalancer> =
            Api::namespaced_with(self.client.clone(), object.namespace(), resource);
        let instances: Vec<&Instance> = instance.into_iter().collect();
        let patch = json!({
            "apiVersion": resource.api_version,
            "kind": resource.kind,
            "metadata": {"name": object.name(), "namespace": object.namespace()},
            "status": {"instances": instances},
        });
        let manager = format!("portcullis-haproxy-{}", self.settings.name);
        let parameters = PatchParams::apply(&manager).force();
        match api.patch_status(object.name(), &parameters, &Patch::Apply(patch)).await {
            Ok(written) => drop(objects.keep(written)),
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            Err(problem) => {
                warn!(namespace = object.namespace(), name = object.name(), %problem, "what is carried could not be said");
            }
        }
    }

    /// Says that this machine is there, now and then.
    async fn be_there(&self) {
        let api: Api<k8s_openapi::api::coordination::v1::Lease> =
            Api::namespaced(self.client.clone(), &self.settings.agents);
        let name = format!("portcullis-haproxy-{}", self.settings.name);
        info!(machine = self.settings.name, pool = self.settings.pool, "carrying");
        loop {
            let lease = json!({
                "apiVersion": "coordination.k8s.io/v1",
                "kind": "Lease",
                "metadata": {"name": name, "namespace": self.settings.agents, "labels": {POOL_LABEL: self.settings.pool}},
                "spec": {
                    "holderIdentity": self.settings.name,
                    "leaseDurationSeconds": LIVE.as_secs(),
                    "renewTime": MicroTime(Timestamp::now()),
                },
            });
            let parameters = PatchParams::apply(&name).force();
            if let Err(problem) = api.patch(&name, &parameters, &Patch::Apply(lease)).await {
                warn!(%problem, "it could not be said that this machine is there; it goes on carrying");
            }
            sleep(RENEW).await;
        }
    }
}

fn id(object: &HaProxyLoadBalancer) -> BalancerId {
    BalancerId::new(object.namespace(), object.name())
}

/// Whether the addresses that were given to a load balancer are here, if it has any.
fn holds_address(object: &HaProxyLoadBalancer, interfaces: &Interfaces) -> Option<bool> {
    let held = wanted::addresses(object).unwrap_or_default();
    (!held.is_empty()).then(|| held.iter().all(|address| interfaces.have(*address)))
}

/// All that is in the way, in words.
fn problems(outcome: &Outcome) -> Option<String> {
    let all: Vec<String> =
        [&outcome.problem, &outcome.unshared].into_iter().flatten().map(Error::in_full).collect();
    if all.is_empty() {
        return None;
    }
    let problem = all.join("; ");
    warn!(%problem, "not everything is carried as it should be");
    Some(problem)
}

/// A key for who is told apart by it.
pub(super) type ObjectKey = Key;
