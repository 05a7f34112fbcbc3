//! Services whose load balancers are on machines with `HAProxy`: what a Service wants is written into an object of the kind that
//! the machines read, and what they say of it is what is reported.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::Client;
use kube::api::{Api, DeleteParams, DynamicObject, PostParams};
use portcullis_core::{
    Access, Address, Calls, Change, Detail, Enforcement, LoadBalancer, Members, Outcome, Owner, PlanError,
    PlanView, Problem, Provider, Reach, ReachChange, Report, Sign, Target, Want,
};
use portcullis_kube_api::cluster::{
    AssignedMember, Assignment, DutyWord, Flavour, HaProxyLoadBalancerSpec, InfrastructureStatus,
    ListenerSpec, ProviderSpec, condition,
};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use super::haproxy::{HaProxyLoadBalancer, kind};
use super::membership::in_order_of_before;
use super::shelf::Shelf;
use crate::router::patch;

/// The class of Services whose load balancers are on machines.
pub const HAPROXY_CLASS: &str = "portcullis.dev/haproxy";

/// The annotation of a Service that names the pool of machines.
const POOL: &str = "portcullis.dev/haproxy-pool";

/// The annotation of a Service by which its members are told of clients by the PROXY protocol.
const PROXY_PROTOCOL: &str = "portcullis.dev/haproxy-proxy-protocol";

/// For how long connections of a node that leaves are waited for.
const DRAIN: Duration = Duration::from_secs(150);

/// Has machines carry the load balancers of Services.
#[derive(Clone)]
#[allow(missing_debug_implementations, reason = "a client of Kubernetes has none")]
pub struct OnMachines(Arc<Inner>);

struct Inner {
    client: Client,
    objects: Arc<Shelf<HaProxyLoadBalancerSpec, InfrastructureStatus>>,
    watching: JoinHandle<()>,
    /// Services that are carried, as they were looked at last.
    followed: Mutex<BTreeMap<Owner, Followed>>,
}

/// A Service that is carried.
struct Followed {
    want: Want,
    /// By which object, and when that was looked at.
    object: Option<Arc<HaProxyLoadBalancer>>,
    looked: Timestamp,
    seen: Seen,
}

/// What matters of an object.
#[derive(PartialEq)]
struct Seen {
    /// Whether it asks machines for what is wanted.
    asks: bool,
    is_done: bool,
    addresses: Vec<Address>,
    enforcement: Option<Enforcement>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.watching.abort();
    }
}

impl OnMachines {
    /// Watches what machines say, from now on.
    pub fn start(client: Client, flavour: Flavour) -> Self {
        let objects = Arc::new(Shelf::new(kind(flavour), None));
        let (watched, watcher) = (Arc::clone(&objects), client.clone());
        let watching = tokio::spawn(async move { watched.watch(watcher, |_| {}).await });
        OnMachines(Arc::new(Inner { client, objects, watching, followed: Mutex::default() }))
    }

    fn api<K>(&self, namespace: &str) -> Api<K>
    where
        K: kube::Resource<DynamicType = kube::core::ApiResource, Scope = kube::core::DynamicResourceScope>,
    {
        Api::namespaced_with(self.0.client.clone(), namespace, self.0.objects.resource())
    }

    fn found(&self, owner: &Owner) -> Option<Arc<HaProxyLoadBalancer>> {
        let found = self.0.objects.get(owner.namespace().unwrap_or_default(), &name(owner))?;
        let service = found.spec.assignment.as_ref().map(|assignment| assignment.service.as_str());
        (service == Some(owner.name())).then_some(found)
    }

    fn followed(&self) -> MutexGuard<'_, BTreeMap<Owner, Followed>> {
        self.0.followed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What matters of the object by which a Service is carried, if it is to be.
    fn look(&self, want: Want, now: Timestamp) -> Option<Followed> {
        let Target::Present(wanted) = &want.target else { return None };
        let object = self.found(&want.owner);
        let spec = Self::spec(&want, wanted, object.as_deref(), now);
        let Report { outcome, addresses, enforcement, .. } = Self::report(object.as_deref());
        let asks = object.as_deref().is_some_and(|found| is_as(found, &spec));
        let seen = Seen { asks, is_done: outcome == Outcome::Done, addresses, enforcement };
        Some(Followed { want, object, looked: now, seen })
    }

    /// Whether something else is to be told, or asked of the machines, than when it was looked at last. What could not be done then
    /// is tried again by whoever was told so.
    fn is_news(&self, last: &mut Followed, now: Timestamp) -> bool {
        let found = self.found(&last.want.owner);
        let is_same = match (&found, &last.object) {
            (Some(found), Some(object)) => Arc::ptr_eq(found, object),
            (found, object) => found.is_none() && object.is_none(),
        };
        let is_over = found.as_deref().is_some_and(|found| somebody_leaves(found, last.looked, now));
        if is_same && !is_over {
            return false;
        }
        let Some(newest) = self.look(last.want.clone(), now) else { return false };
        let before = std::mem::replace(last, newest);
        before.seen != last.seen
    }

    /// What the object should say, given what it says.
    fn spec(
        want: &Want,
        wanted: &LoadBalancer,
        there: Option<&HaProxyLoadBalancer>,
        now: Timestamp,
    ) -> Value {
        let before = there.and_then(|there| there.spec.assignment.as_ref());
        let mut members: Vec<AssignedMember> = wanted
            .members()
            .iter()
            .map(|member| {
                let had =
                    before.and_then(|before| before.members.iter().find(|had| had.name == member.name()));
                let had = had.map(|had| had.addresses.as_slice()).unwrap_or_default();
                AssignedMember {
                    name: member.name().to_owned(),
                    addresses: in_order_of_before(member.addresses(), had),
                    provider_id: None,
                    duty: DutyWord::Serve,
                    by: None,
                }
            })
            .collect();
        // Who is not meant any more finishes what it has.
        for old in before.map(|before| before.members.as_slice()).unwrap_or_default() {
            let stays = members.iter().any(|member| {
                member.name == old.name
                    || member.addresses.iter().any(|address| old.addresses.contains(address))
            });
            let has_left = there.is_some_and(|there| {
                there.status.observed_generation == there.metadata.generation
                    && there
                        .status
                        .members
                        .iter()
                        .any(|told| told.name == old.name && told.status == "removed")
            });
            let is_over = old.by.as_ref().is_some_and(|by| by.0 <= now);
            if stays || (old.duty == DutyWord::Leave && (has_left || is_over)) {
                continue;
            }
            let by = old.by.clone().filter(|_| old.duty == DutyWord::Leave);
            let by = by.unwrap_or_else(|| Time(now.checked_add(DRAIN).unwrap_or(Timestamp::MAX)));
            members.push(AssignedMember { duty: DutyWord::Leave, by: Some(by), ..old.clone() });
        }
        members.sort_by(|one, other| one.name.cmp(&other.name));
        let ranges = &wanted.admission().ranges;
        let listed = (!ranges.is_absent() && !ranges.ranges().is_empty())
            .then(|| ranges.ranges().iter().map(ToString::to_string).collect());
        let assignment = Assignment {
            service: want.owner.name().to_owned(),
            generation: 1,
            ip_families: Assignment::words_of(wanted.families()),
            listeners: wanted.listeners().iter().map(ListenerSpec::from).collect(),
            allowed_source_ranges: listed,
            drain_timeout_seconds: u32::try_from(DRAIN.as_secs()).unwrap_or_default(),
            members,
            ..Assignment::default()
        };
        let addresses: &[IpAddr] = wanted.addresses();
        let mut spec = json!({"assignment": assignment});
        if !addresses.is_empty() {
            spec["addresses"] = json!(addresses);
        }
        if let Some(pool) = want.parameters.get(POOL).filter(|pool| !pool.is_empty()) {
            spec["pool"] = json!(pool);
        }
        if want.parameters.get(PROXY_PROTOCOL).is_some_and(|value| value == "true") {
            spec["proxyProtocol"] = json!(true);
        }
        spec
    }

    async fn write(&self, want: &Want, spec: &Value) -> Result<(), Problem> {
        let (owner, namespace) = (&want.owner, want.owner.namespace().unwrap_or_default());
        let resource = self.0.objects.resource();
        let called = format!("{} {}", resource.kind, name(owner));
        let stopped = |error: String| {
            Problem::new(
                format!("{owner}: {called} cannot be written: {error}."),
                "What is carried stays as it is.",
                "Allow it, as the manifests do, and see that the types are installed: `portcullis crds`.",
            )
        };
        let taken = || {
            Problem::new(
                format!("{owner}: {called} is there, and not of this Service."),
                "It stays as it is.",
                "Give it another name, or delete it.",
            )
        };
        let service = json!({
            "apiVersion": "v1", "kind": "Service", "name": owner.name(), "uid": want.uid,
            "controller": true, "blockOwnerDeletion": false,
        });
        if let Some(found) = self.found(owner) {
            let wanted: HaProxyLoadBalancerSpec =
                serde_json::from_value(spec.clone()).map_err(|error| stopped(error.to_string()))?;
            // What is not in it any more must not stay.
            let mut change = json!({"spec": patch(&found.spec, &wanted)});
            let owners = found.metadata.owner_references.as_deref().unwrap_or_default();
            if !owners.iter().any(|owner| owner.uid == want.uid) {
                // After a restored backup the Service is another one, and what belongs to one that is not there is taken away.
                change["metadata"] = json!({"ownerReferences": [service]});
            }
            let written = self.0.objects.patch(&self.0.client, &found, change).await;
            return written.map(drop).map_err(stopped);
        }
        if self.0.objects.get(namespace, &name(owner)).is_some() {
            return Err(taken());
        }
        let object: DynamicObject = serde_json::from_value(json!({
            "apiVersion": resource.api_version,
            "kind": resource.kind,
            "metadata": {"name": name(owner), "namespace": namespace, "ownerReferences": [service]},
            "spec": spec,
        }))
        .map_err(|error| stopped(error.to_string()))?;
        match self.api::<DynamicObject>(namespace).create(&PostParams::default(), &object).await {
            Ok(made) => {
                if let Ok(made) = made.try_parse() {
                    self.0.objects.keep(made);
                }
                Ok(())
            }
            Err(kube::Error::Api(status)) if status.code == 409 => Err(Problem::new(
                format!("{owner}: {called} is there, and it is not known yet what it says."),
                "It stays as it is for now.",
                "Wait a moment: it is looked at again. If that does not help, it cannot be read: correct it, or delete it.",
            )),
            Err(error) => Err(stopped(error.to_string())),
        }
    }

    fn report(found: Option<&HaProxyLoadBalancer>) -> Report {
        let pending = |why: &str| Outcome::Pending { why: why.to_owned(), retry_after: None };
        let Some(found) = found else { return Report::new(pending("machines have not seen it yet")) };
        let ready = condition(&found.status.conditions, "Ready");
        let is_current = found.status.observed_generation == found.metadata.generation;
        let outcome = match ready {
            Some(ready) if ready.status == "True" && is_current => Outcome::Done,
            Some(ready) if ready.status != "True" => pending(&ready.message),
            _ => pending("machines have not carried it out yet"),
        };
        let address = found.status.address.parse().map(Address::Ip).ok();
        let enforcement = condition(&found.status.conditions, "SourceRangesEnforced").map(|said| {
            if said.status == "True" {
                Enforcement::By("HAProxy".to_owned())
            } else {
                Enforcement::Not(said.message.clone())
            }
        });
        Report { addresses: address.into_iter().collect(), enforcement, ..Report::new(outcome) }
    }
}

/// What the object of a Service is called.
fn name(owner: &Owner) -> String {
    format!("service-{}", owner.name())
}

impl Provider for OnMachines {
    fn members(&self, _: &BTreeMap<String, String>) -> Result<Members, Problem> {
        Ok(Members::Nodes(BTreeMap::new()))
    }

    fn is_settled(&self, want: &Want) -> bool {
        let Target::Present(wanted) = &want.target else { return false };
        let Some(found) = self.found(&want.owner) else { return false };
        let spec = Self::spec(want, wanted, Some(&found), Timestamp::now());
        is_as(&found, &spec) && Self::report(Some(&found)).outcome == Outcome::Done
    }

    async fn sync(&self, want: &Want) -> Report {
        self.0.objects.ready().await;
        let found = self.found(&want.owner);
        match &want.target {
            Target::Gone => {
                self.forget(&want.owner);
                let Some(found) = found else { return Report::new(Outcome::Done) };
                let api: Api<HaProxyLoadBalancer> = self.api(found.namespace());
                match api.delete(found.name(), &DeleteParams::default()).await {
                    Ok(_) => Report::new(Outcome::Done),
                    Err(kube::Error::Api(status)) if status.code == 404 => Report::new(Outcome::Done),
                    Err(error) => Report::new(Outcome::Pending { why: error.to_string(), retry_after: None }),
                }
            }
            Target::Present(wanted) => {
                let spec = Self::spec(want, wanted, found.as_deref(), Timestamp::now());
                let is_asked = found.as_ref().is_some_and(|found| is_as(found, &spec));
                let written = if is_asked { Ok(()) } else { self.write(want, &spec).await };
                if let Some(followed) = self.look(want.clone(), Timestamp::now()) {
                    self.followed().insert(want.owner.clone(), followed);
                }
                let report = Self::report(self.found(&want.owner).as_deref());
                match written {
                    Ok(()) => report,
                    Err(problem) => Report { outcome: Outcome::Blocked(problem), ..report },
                }
            }
        }
    }

    async fn preview(&self, want: &Want) -> Result<PlanView, Problem> {
        self.0.objects.ready().await;
        plan(want, self.found(&want.owner).as_deref(), Timestamp::now()).map_err(|error| {
            Problem::new(
                format!("{}: {error}.", want.owner),
                "Nothing was changed.",
                "This is a fault of Portcullis: report it.",
            )
        })
    }

    fn forget(&self, owner: &Owner) {
        self.followed().remove(owner);
    }

    fn forgotten(&self) -> Vec<Owner> {
        // They belong to their Services, and Kubernetes takes them away with those.
        Vec::new()
    }

    async fn look_at_all(&self) -> Result<Vec<Owner>, Problem> {
        let now = Timestamp::now();
        let mut followed = self.followed();
        let news =
            followed.iter_mut().filter_map(|(owner, last)| self.is_news(last, now).then(|| owner.clone()));
        Ok(news.collect())
    }

    async fn look_closely(&self, _: &Owner) -> Result<bool, Problem> {
        Ok(false)
    }
}

/// What would be done for a Service: what the machines read would be another.
fn plan(want: &Want, found: Option<&HaProxyLoadBalancer>, now: Timestamp) -> Result<PlanView, PlanError> {
    let before = found.and_then(|found| found.spec.want(want.owner.clone(), want.uid.clone()).ok());
    let reach = |want: Option<&Want>| match want.map(|want| &want.target) {
        Some(Target::Present(wanted)) => wanted.reach(),
        _ => Reach::nobody(),
    };
    let ingress = ReachChange { before: reach(before.as_ref()), after: reach(Some(want)) };
    let (sign, after) = match (&want.target, found) {
        (Target::Gone, None) => (Sign::Keep, Value::Null),
        (Target::Gone, Some(_)) => (Sign::Delete, Value::Null),
        (Target::Present(wanted), found) => {
            let spec = OnMachines::spec(want, wanted, found, now);
            let sign = match found {
                None => Sign::Create,
                Some(found) if is_as(found, &spec) => Sign::Keep,
                Some(_) => Sign::Update,
            };
            (sign, spec)
        }
    };
    let mut change = Change::new(sign, "HAProxyLoadBalancer", name(&want.owner));
    if matches!(sign, Sign::Create | Sign::Update) {
        let before = found.map(|found| json!(found.spec)).unwrap_or_default();
        let (old, new) = (lines(&before), lines(&after));
        let differ = |sign, lines: &BTreeSet<[String; 2]>, others: &BTreeSet<[String; 2]>| {
            lines.difference(others).map(|line| Detail::new(sign, line.clone(), "")).collect::<Vec<_>>()
        };
        change.details.extend(differ(Sign::Delete, &old, &new));
        change.details.extend(differ(Sign::Create, &new, &old));
    }
    let calls =
        Calls { all: usize::from(sign != Sign::Keep), destructive: usize::from(sign == Sign::Delete) };
    let changes = if sign == Sign::Keep { Vec::new() } else { vec![change] };
    PlanView::new(want.owner.clone(), "haproxy", changes, calls, Access { ingress, ..Access::default() })
}

/// What an object says, line by line.
fn lines(spec: &Value) -> BTreeSet<[String; 2]> {
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let assignment = &spec["assignment"];
    let list = |of: &Value| of.as_array().cloned().unwrap_or_default();
    let listener =
        |listener: &Value| format!("{} to {}", text(&listener["port"]), text(&listener["targetPort"]));
    let member =
        |member: &Value| format!("{}, to {}", text(&member["name"]), text(&member["duty"]).to_lowercase());
    let mut all = BTreeSet::new();
    let mut say = |what: &str, value: String| all.insert([what.to_owned(), value]);
    for found in list(&assignment["ipFamilies"]) {
        say("family", text(&found));
    }
    for found in list(&assignment["listeners"]) {
        say("port", listener(&found));
    }
    for found in list(&assignment["members"]) {
        say("member", member(&found));
    }
    for found in list(&assignment["allowedSourceRanges"]) {
        say("source range", text(&found));
    }
    for found in list(&spec["addresses"]) {
        say("address", text(&found));
    }
    for (key, what) in [("pool", "machines of the pool"), ("proxyProtocol", "PROXY protocol")] {
        if let Some(value) = spec.get(key).filter(|value| !value.is_null()) {
            say(what, text(value));
        }
    }
    all
}

/// Whether the time of somebody who leaves has ended since then.
fn somebody_leaves(found: &HaProxyLoadBalancer, since: Timestamp, now: Timestamp) -> bool {
    let members = found.spec.assignment.iter().flat_map(|assignment| &assignment.members);
    let mut ends =
        members.filter(|member| member.duty == DutyWord::Leave).filter_map(|member| member.by.as_ref());
    ends.any(|by| since < by.0 && by.0 <= now)
}

/// Whether an object says what it should.
fn is_as(found: &HaProxyLoadBalancer, spec: &Value) -> bool {
    serde_json::from_value::<HaProxyLoadBalancerSpec>(spec.clone()).is_ok_and(|wanted| wanted == found.spec)
}

#[cfg(test)]
mod tests {
    use portcullis_core::{Family, Member};
    use portcullis_kube_api::load_balancer;

    use super::*;

    fn want(ranges: &[&str], pool: &str) -> Want {
        let service = serde_json::from_value(json!({
            "metadata": {"name": "web", "namespace": "shop"},
            "spec": {
                "type": "LoadBalancer",
                "ports": [{"port": 80, "nodePort": 30080}],
                "loadBalancerSourceRanges": ranges,
            },
        }))
        .unwrap();
        let wanted = load_balancer(&service, Arc::default(), true).unwrap();
        Want {
            owner: Owner::new("demo", "Service", Some("shop".to_owned()), "web").unwrap(),
            uid: "1".to_owned(),
            target: Target::Present(wanted),
            parameters: BTreeMap::from([(POOL.to_owned(), pool.to_owned())]),
            nodes: Arc::default(),
        }
    }

    /// What the machines read after a want was carried out.
    fn object(want: &Want) -> HaProxyLoadBalancer {
        let Target::Present(wanted) = &want.target else { panic!("it is wanted") };
        let spec = OnMachines::spec(want, wanted, None, Timestamp::UNIX_EPOCH);
        serde_json::from_value(
            json!({"metadata": {"name": "service-web", "namespace": "shop"}, "spec": spec}),
        )
        .unwrap()
    }

    #[test]
    fn who_has_addresses_of_one_family_is_open_by_that_one() {
        let wanted = |families: &[&str]| {
            let service = json!({
                "metadata": {"name": "web", "namespace": "shop"},
                "spec": {"type": "LoadBalancer", "ports": [{"port": 80, "nodePort": 30080}], "ipFamilies": families},
            });
            let service = serde_json::from_value(service).unwrap();
            let balancer = load_balancer(&service, Arc::default(), true).unwrap();
            Want { target: Target::Present(balancer), ..want(&[], "") }
        };
        for (families, said, open) in [
            (&["IPv4"][..], json!(["IPv4"]), &[Family::V4][..]),
            (&["IPv6"], json!(["IPv6"]), &[Family::V6]),
            (&["IPv6", "IPv4"], Value::Null, &Family::ALL),
        ] {
            let asked = wanted(families);
            let object = object(&asked);
            assert_eq!(json!(object.spec)["assignment"]["ipFamilies"], said, "{families:?}");
            let read = object.spec.want(asked.owner, String::new()).unwrap();
            let Target::Present(read) = read.target else { panic!("it is wanted") };
            assert!(read.families().iter().eq(open), "{families:?}");
        }
        let there = object(&wanted(&["IPv4", "IPv6"]));
        let told = plan(&wanted(&["IPv4"]), Some(&there), Timestamp::UNIX_EPOCH).unwrap().to_string();
        assert!(told.contains("family") && told.contains("IPv4"), "{told}");
    }

    /// The first address of a node is where machines send to.
    #[test]
    fn who_tells_of_its_addresses_in_another_order_is_where_it_was() {
        let wanted = |addresses: [&str; 2]| {
            let service = json!({
                "metadata": {"name": "web", "namespace": "shop"},
                "spec": {"type": "LoadBalancer", "ports": [{"port": 80, "nodePort": 30080}]},
            });
            let node = Member::new("node", addresses.map(|address| address.parse().unwrap())).unwrap();
            let service = serde_json::from_value(service).unwrap();
            let balancer = load_balancer(&service, Arc::from([node]), true).unwrap();
            Want { target: Target::Present(balancer), ..want(&[], "") }
        };
        let there = object(&wanted(["10.0.0.1", "10.0.0.2"]));
        let first_of = |addresses: [&str; 2]| {
            let want = wanted(addresses);
            let Target::Present(balancer) = &want.target else { panic!("it is wanted") };
            let spec = OnMachines::spec(&want, balancer, Some(&there), Timestamp::UNIX_EPOCH);
            spec["assignment"]["members"][0]["addresses"][0].clone()
        };
        assert_eq!(first_of(["10.0.0.2", "10.0.0.1"]), "10.0.0.1");
        assert_eq!(first_of(["10.0.0.3", "10.0.0.2"]), "10.0.0.2", "it has no other that it had");
    }

    #[test]
    fn what_would_be_done_is_told() {
        let plan = |want: &Want, found: Option<&HaProxyLoadBalancer>| {
            super::plan(want, found, Timestamp::UNIX_EPOCH).unwrap()
        };
        let first = want(&["192.0.2.0/24"], "edge");
        let told = plan(&first, None).to_string();
        for part in ["80 to 30080", "192.0.2.0/24", "edge", "+ HAProxyLoadBalancer"] {
            assert!(told.contains(part), "{part} in {told}");
        }
        let there = object(&first);
        assert!(plan(&first, Some(&there)).is_empty());
        let wider = plan(&want(&["192.0.2.0/23"], "edge"), Some(&there)).to_string();
        for part in ["- source range  192.0.2.0/24", "+ source range  192.0.2.0/23"] {
            assert!(wider.contains(part), "{part} in {wider}");
        }
        assert!(!wider.contains("80 to 30080  ") && !wider.contains("machines of the pool"), "{wider}");
        let gone = Want { target: Target::Gone, ..first };
        assert!(plan(&gone, Some(&there)).to_string().contains("- HAProxyLoadBalancer"));
        assert!(plan(&gone, None).is_empty());
    }
}
