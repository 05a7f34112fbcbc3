//! What runs once in a cluster: it says in the status of Services at which addresses of nodes they are reached.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::stream::{self, BoxStream, Stream, StreamExt};
use k8s_openapi::api::core::v1::{ConfigMap, LoadBalancerIngress, Node, Service};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, Patch, PatchParams};
use kube::runtime::watcher::{Config, Event};
use kube::{Client, ResourceExt};
use portcullis_host::claims::{Claim, Claims, Here, Name, Policy, Share};
use portcullis_host::datapath::Mode;
use portcullis_host::interfaces::Selection;
use portcullis_kube_api::host::{NODE_LABEL, NodeDatapath, NodeReport, wants_host};
use serde::Serialize;
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};
use tracing::{error, info, warn};

use super::asked::{Slice, addresses, claim, ingress, is_local, is_same, limits, name};
use super::endpoints::Endpoints;
use super::known::{Known, watched};
use super::others::{Noted, claim_of_others};
use super::report::{interfaces, read_listening};
use super::told::{Item, Told, event_version, version};
use super::verdict::{Given, Verdict, decided_on, taken_back, untimed, verdict};
use crate::events::{Events, Weight};
use crate::pause::pause;

/// How Services get addresses of nodes.
#[derive(Clone, Debug)]
pub struct HostSettings {
    /// Services of this class do.
    pub class: String,
    /// Services without any class, too.
    pub without_class: bool,
    /// The namespace where nodes tell of themselves.
    pub namespace: String,
    /// What nobody gets.
    pub policy: Policy,
    /// What the packet filters of nodes do.
    pub mode: Mode,
    /// Only watch, and tell what would be done.
    pub observe: bool,
    /// Who this is, in Events.
    pub host: String,
}

/// How long is waited after a failure, at first and at most.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(60));

/// Who rewrites a status as often in a row, within this time, is another one that looks after the Service: it is put right
/// less often from then on.
const OFTEN: usize = 5;

/// So many statuses are written at a time: the first need not wait for all others.
const AT_ONCE: usize = 16;
const WITHIN: Duration = Duration::from_secs(30);

/// After so long packet filters should know what is asked of them.
const LATE: Duration = Duration::from_secs(10);

/// For so long it is not said of a Service that is reached nowhere that it waits for them, nor who serves it until they do: mostly they
/// know by then, and one status is written instead of two, one after the other.
const MOMENT: Duration = Duration::from_millis(250);

/// Gives Services addresses of nodes.
#[allow(missing_debug_implementations, reason = "a client of Kubernetes has none")]
pub struct HostController {
    settings: HostSettings,
    known: Known,
}

/// What is heard of.
#[allow(clippy::large_enum_variant, reason = "one at a time is passed on, and none is kept")]
enum Heard {
    Service(Event<Item<Service>>),
    Report(Event<Item<ConfigMap>>),
    /// What nodes tell that are looked after by this process.
    Here(BTreeMap<String, NodeReport>),
    Node(Event<Item<Node>>),
    Slice(Event<Item<Slice>>),
    /// A status was written.
    Wrote(Written, Result<Box<Service>, kube::Error>),
    /// It is time to try again.
    Again(Name),
    /// It is time to say that a Service waits for packet filters.
    Waits(Name),
    /// It is time to see whose packet filters are late.
    Late,
    /// Nothing more will be told of these.
    Ended(&'static str),
}

/// What was written.
struct Written {
    name: Name,
    /// The version on which that was decided.
    on: Option<u64>,
    /// What it was, as a number.
    patch: u64,
    /// How often Services had been listed by then.
    lists: u32,
}

struct Controller {
    client: Client,
    settings: HostSettings,
    services: Told<Service>,
    others: Noted<Claim>,
    /// Services that were ours: what is to be written so that nothing is said of them.
    given_up: Noted<Value>,
    reports: Told<ConfigMap>,
    nodes: Told<Node>,
    sites: BTreeMap<String, Site>,
    /// Nodes that are looked after by this process. What they tell by the API comes later, and is older.
    here: BTreeSet<String>,
    endpoints: Endpoints,
    /// Services that wait for the packet filters of a node.
    waiting: BTreeSet<Name>,
    /// Since when packet filters do not know what a Service asks for that needs them, by node, and whether it is looked at these again.
    behind: HashMap<Name, BTreeMap<String, Instant>>,
    looks_again: bool,
    /// Whether it was said that the API does not keep what is written.
    said_not_kept: bool,
    /// Services whose status is being written, or waits to be looked at.
    busy: BTreeSet<Name>,
    failures: HashMap<Name, u32>,
    /// What was written last and the addresses that it gave, as numbers, and when somebody else changed these.
    written: HashMap<Name, (u64, u64)>,
    undone: HashMap<Name, Vec<Instant>>,
    /// What Services ask for, as a number, and by which version they came to do so.
    asked: HashMap<Name, (u64, Option<u64>)>,
    /// How often Services were listed, and the newest version of one of ours that came about since.
    lists: u32,
    newest: Option<u64>,
    /// What was said last, of ports and of what is wrong.
    said: HashMap<Name, Said>,
    events: Events,
    /// How many statuses are being written, and which Services wait for that.
    writing: usize,
    line: VecDeque<Name>,
    heard: mpsc::UnboundedSender<Heard>,
}

/// A node, as it told of itself.
struct Site {
    report: NodeReport,
    claims: Claims,
    /// By which version of any Service a Service came to get what it gets here: packet filters that know it are needed first. `None`
    /// where that was not seen, as of who was gone from a list: any version that comes after it does.
    since: HashMap<Name, Option<u64>>,
}

/// What a Service gets of a node that does not look after it.
static NOTHING: Share = Share { addresses: BTreeSet::new(), refused: BTreeMap::new() };

impl Site {
    /// Whether the node looks after a Service, as far as it says.
    fn looks_after(&self, service: &Service) -> bool {
        let settings = self.report.settings.as_ref();
        settings.is_none_or(|settings| wants_host(service, &settings.class, settings.without_class))
    }

    /// What a Service gets here.
    fn share(&self, name: &Name, service: &Service) -> Option<&Share> {
        if self.looks_after(service) { self.claims.share(name) } else { Some(&NOTHING) }
    }
}

#[derive(Default, PartialEq)]
struct Said {
    ports: Option<Vec<u16>>,
    wrong: Option<String>,
}

impl HostController {
    /// Gives Services addresses so. What it has to know is read once for all who have `known`.
    pub fn new(settings: HostSettings, known: Known) -> Self {
        HostController { settings, known }
    }

    /// Does so until it is dropped. It ends by itself only where it is not told any more what to do.
    pub async fn run(self) {
        let HostController { settings, known } = self;
        let client = known.client.clone();
        let (sender, receiver) = mpsc::unbounded_channel();
        let own = stream::unfold(receiver, |mut receiver| async {
            receiver.recv().await.map(|heard| (heard, receiver))
        });
        let reports = Api::namespaced(client.clone(), &settings.namespace);
        let mut here = known.here.subscribe();
        here.mark_changed();
        let here = stream::unfold(here, |mut here| async {
            here.changed().await.ok()?;
            let all = here.borrow_and_update().clone();
            Some((Heard::Here(all), here))
        });
        let heard = vec![
            own.boxed(),
            here.boxed(),
            known.services().map(Heard::Service).chain(ended("Services")).boxed(),
            watched(reports, Config::default().labels(NODE_LABEL)).map(Heard::Report).boxed(),
            watched(Api::all(client.clone()), Config::default()).map(Heard::Node).boxed(),
            known.slices().map(Heard::Slice).chain(ended("endpoints")).boxed(),
        ];
        Controller::new(client, settings, sender).follow(stream::select_all(heard)).await;
    }
}

impl Controller {
    /// Knows nothing yet.
    fn new(client: Client, settings: HostSettings, heard: mpsc::UnboundedSender<Heard>) -> Self {
        Controller {
            events: Events::new(client.clone(), "host-controller", &settings.host),
            client,
            settings,
            services: Told::default(),
            others: Noted::default(),
            given_up: Noted::default(),
            reports: Told::default(),
            nodes: Told::default(),
            sites: BTreeMap::new(),
            here: BTreeSet::new(),
            endpoints: Endpoints::default(),
            waiting: BTreeSet::new(),
            behind: HashMap::new(),
            looks_again: false,
            said_not_kept: false,
            busy: BTreeSet::new(),
            failures: HashMap::new(),
            written: HashMap::new(),
            undone: HashMap::new(),
            asked: HashMap::new(),
            lists: 0,
            newest: None,
            said: HashMap::new(),
            writing: 0,
            line: VecDeque::new(),
            heard,
        }
    }

    async fn follow(mut self, mut heard: stream::SelectAll<BoxStream<'static, Heard>>) {
        while let Some(first) = heard.next().await {
            let mut changed = BTreeSet::new();
            // What came meanwhile is done together.
            let mut next = Some(first);
            while let Some(one) = next {
                if let Heard::Ended(what) = one {
                    error!(what, "nothing is told of them any more, so that no status can be kept right");
                    return;
                }
                changed.extend(self.take(one));
                next = heard.next().now_or_never().flatten();
            }
            if self.is_complete() {
                for name in changed {
                    self.act(&name);
                }
                while self.writing < AT_ONCE
                    && let Some(name) = self.line.pop_front()
                {
                    self.busy.remove(&name);
                    self.act(&name);
                }
            }
        }
    }

    /// Takes in what was heard; which Services are concerned.
    fn take(&mut self, heard: Heard) -> BTreeSet<Name> {
        let was_complete = self.is_complete();
        let mut changed = BTreeSet::new();
        match heard {
            Heard::Service(event) => {
                let (class, without_class) = (self.settings.class.clone(), self.settings.without_class);
                let is_ours = |service: &Service| wants_host(service, &class, without_class);
                // What was listed came to be so while nobody looked.
                let is_seen = matches!(event, Event::Apply(_) | Event::Delete(_));
                let seen = event_version(&event).filter(|_| is_seen);
                match event {
                    Event::Init => self.newest = None,
                    Event::InitDone => self.lists = self.lists.wrapping_add(1),
                    _ => {}
                }
                let others =
                    |service: &Service| (!is_ours(service)).then(|| claim_of_others(service)).flatten();
                for (name, claim) in self.others.take(&event, others) {
                    changed.extend(self.enter(&name, claim.as_ref(), false, seen));
                }
                let given_up = |service: &Service| {
                    // One of another class was never ours: somebody else of our kind may look after it.
                    let of_class = service.spec.as_ref().and_then(|spec| spec.load_balancer_class.as_ref());
                    let was_ours = of_class.is_none_or(|of_class| *of_class == class);
                    (was_ours && !is_ours(service)).then(|| taken_back(service)).flatten()
                };
                changed.extend(self.given_up.take(&event, given_up).into_iter().map(|(name, _)| name));
                for news in self.services.take(event, is_ours) {
                    if is_seen {
                        self.saw(news.version);
                    }
                    changed.extend(self.claim(&news.name, news.before.as_deref(), news.version, is_seen));
                }
            }
            Heard::Here(all) => {
                for (node, report) in all {
                    self.here.insert(node.clone());
                    changed.extend(self.take_site(node, report, true));
                }
            }
            Heard::Report(event) => {
                // Who wrote what was listed may not be there any more.
                let is_new = matches!(event, Event::Apply(_));
                for news in self.reports.take(event, |_| true) {
                    let before = news.before.as_deref().and_then(NodeReport::read);
                    let before = before.map(|(node, _)| node.to_owned());
                    changed.extend(self.take_report(&news.name, before, is_new));
                }
            }
            Heard::Node(event) => {
                let ready = |nodes: &Told<Node>| -> BTreeSet<(String, bool, String)> {
                    let standing =
                        |node: &Arc<Node>| (node.name_any(), is_ready(node), boot(node).to_owned());
                    nodes.values().map(standing).collect()
                };
                let before = ready(&self.nodes);
                self.nodes.take(event, |_| true);
                if ready(&self.nodes) != before {
                    changed.extend(self.services.names().cloned());
                }
            }
            Heard::Slice(event) => {
                let concerned = self.endpoints.take(event);
                changed.extend(concerned.into_iter().filter(|name| self.services.get(name).is_some()));
            }
            Heard::Wrote(written, outcome) => changed.extend(self.take_written(written, outcome)),
            Heard::Again(name) => {
                self.busy.remove(&name);
                changed.insert(name);
            }
            Heard::Waits(name) => changed.extend(self.services.get(&name).map(|_| name)),
            Heard::Late => {
                self.looks_again = false;
                let is_late =
                    |since: &BTreeMap<_, Instant>| since.values().any(|since| since.elapsed() >= LATE);
                let late = self.behind.iter().filter(|(_, since)| is_late(since));
                changed.extend(late.map(|(name, _)| Arc::clone(name)));
                self.look_again();
            }
            Heard::Ended(_) => {}
        }
        if !was_complete && self.is_complete() {
            changed.extend(self.services.names().cloned());
            changed.extend(self.given_up.all().map(|(name, _)| Arc::clone(name)));
        }
        changed
    }

    /// Takes in what became of a status that was to be written.
    fn take_written(
        &mut self,
        Written { name, on, patch, lists }: Written,
        outcome: Result<Box<Service>, kube::Error>,
    ) -> BTreeSet<Name> {
        self.busy.remove(&name);
        self.writing -= 1;
        match outcome {
            Ok(service) => {
                self.failures.remove(&name);
                if taken_back(&service).is_none() {
                    self.given_up.remove(&name);
                }
                let now = (patch, number(&addresses_of(&service)));
                self.written.insert(Arc::clone(&name), now);
                let version = version(&*service);
                // What changed nothing has the version that it had. While all are listed, a list may be newer that tells who left.
                if lists == self.lists && !self.services.is_listing() && version > on {
                    self.saw(version);
                }
                let before = self.services.get(&name).cloned();
                self.services.wrote(*service);
                self.claim(&name, before.as_deref(), version, true)
            }
            // It is another one by now: what is told of it is decided on, now or when it is told.
            Err(kube::Error::Api(status)) if status.code == 409 => {
                if self.version(&name) > on {
                    BTreeSet::from([name])
                } else {
                    BTreeSet::new()
                }
            }
            Err(problem) => {
                self.failed(&name, &problem);
                BTreeSet::new()
            }
        }
    }

    /// The version of a Service that is known.
    fn version(&self, name: &Name) -> Option<u64> {
        let service = self.services.get(name).and_then(|service| version(&**service));
        service.or_else(|| self.given_up.get(name).and_then(decided_on))
    }

    fn is_complete(&self) -> bool {
        let told = self.services.is_complete() && self.reports.is_complete() && self.nodes.is_complete();
        told && self.endpoints.is_complete()
    }

    /// Takes in that this version came about: whatever was not seen came before it.
    fn saw(&mut self, version: Option<u64>) {
        if self.newest.is_none() {
            for since in self.sites.values_mut().flat_map(|site| site.since.values_mut()) {
                *since = since.or(version);
            }
        }
        self.newest = self.newest.max(version);
    }

    /// Enters what a Service asks for at every node, which was this before, by a version of it, and whether that was seen to come;
    /// whose share is another now, and the Service itself.
    fn claim(
        &mut self,
        name: &Name,
        before: Option<&Service>,
        version: Option<u64>,
        is_seen: bool,
    ) -> BTreeSet<Name> {
        let service = self.services.get(name).cloned();
        let claim = service.as_deref().map(claim).or_else(|| self.others.get(name).cloned());
        // A status that somebody cleared is put back, and does not change who has a port until then.
        let is_same = is_same(before, service.as_deref());
        let mut changed = self.enter(name, claim.as_ref(), is_same, version.filter(|_| is_seen));
        changed.insert(Arc::clone(name));
        if let Some(service) = service {
            let number = number(&(&service.spec, &service.metadata.annotations));
            let asked = self.asked.entry(Arc::clone(name)).or_insert((number, version));
            if asked.0 != number {
                *asked = (number, version);
            }
        } else {
            self.failures.remove(name);
            self.written.remove(name);
            self.undone.remove(name);
            self.asked.remove(name);
            self.said.remove(name);
            self.waiting.remove(name);
            self.behind.remove(name);
            for site in self.sites.values_mut() {
                site.since.remove(name);
            }
        }
        changed
    }

    /// Enters a claim at every node, of somebody new or of who asked before, by a version that was seen to come; whose share is
    /// another now.
    fn enter(
        &mut self,
        name: &Name,
        claim: Option<&Claim>,
        is_same: bool,
        version: Option<u64>,
    ) -> BTreeSet<Name> {
        let mut changed = BTreeSet::new();
        for site in self.sites.values_mut() {
            let claim = claim.cloned();
            let claim = claim.map(|claim| if is_same { site.claims.kept(name, claim) } else { claim });
            for other in site.claims.set(name, claim) {
                site.since.insert(Arc::clone(&other), version.or(self.newest));
                changed.insert(other);
            }
        }
        changed
    }

    /// Takes back what was said of a Service that is not looked after here any more: nobody keeps to it.
    fn take_back(&mut self, name: &Name) {
        let Some(patch) = self.given_up.get(name).cloned().filter(|_| !self.settings.observe) else { return };
        info!(service = %name, "it is not reached at addresses of nodes any more, and what was said of it is taken back");
        self.write(name, patch);
    }

    /// Takes in what a node told of itself.
    fn take_report(&mut self, object: &Name, before: Option<String>, is_new: bool) -> BTreeSet<Name> {
        let told = self.reports.get(object).cloned();
        let told = told.as_deref().and_then(NodeReport::read).map(|(node, report)| (node.to_owned(), report));
        let mut changed = BTreeSet::new();
        let node = told.as_ref().map(|(node, _)| node.clone());
        if let Some(before) = before.filter(|before| Some(before) != node.as_ref())
            && !self.here.contains(&before)
            && self.sites.remove(&before).is_some()
        {
            info!(node = before, "the node tells nothing of itself any more");
            changed.extend(self.services.names().cloned());
        }
        let (node, report) = match told {
            Some((node, _)) if self.here.contains(&node) => return changed,
            Some((node, Ok(report))) => (node, report),
            Some((node, Err(problem))) => {
                warn!(node, %problem, "what the node tells of itself cannot be read; what it told before counts");
                return changed;
            }
            None => return changed,
        };
        changed.extend(self.take_site(node, report, is_new));
        changed
    }

    /// A node has this, as it told just now or some time ago.
    fn take_site(&mut self, node: String, report: NodeReport, is_new: bool) -> BTreeSet<Name> {
        let mut changed = BTreeSet::new();
        let here = Here {
            interfaces: interfaces(&report),
            listening: report.listening.iter().filter_map(|text| read_listening(text)).collect(),
            also: report.api_server.clone(),
        };
        // Another configuration is another node: who gets what there is decided anew.
        let as_before = |site: &&mut Site| site.report.settings == report.settings;
        if let Some(site) = self.sites.get_mut(&node).filter(as_before) {
            let before = NodeDatapath { up_to: report.datapath.up_to, ..site.report.datapath.clone() };
            // Of another start all that was said is said anew.
            if before != report.datapath || site.report.boot != report.boot {
                changed.extend(self.services.names().cloned());
            }
            // Who names an interface that is not there is told which are.
            if !site.report.interfaces.keys().eq(report.interfaces.keys()) {
                let naming = self.services.values().filter(|service| claim(service).at.is_some());
                changed.extend(naming.map(|service| name(service)));
            }
            changed.extend(self.waiting.iter().cloned());
            changed.extend(site.claims.move_to(here));
            site.report = report;
            return changed;
        }
        info!(node, interfaces = report.interfaces.len(), "a node tells of itself");
        let mut claims = Claims::new(self.policy(&report), here);
        let mut since = HashMap::new();
        for service in self.services.values() {
            claims.set(&name(service), Some(claim(service)));
            // Who had what it gets may have left since, while nobody looked.
            since.insert(name(service), version(&**service).filter(|_| is_new));
        }
        for (name, claim) in self.others.all() {
            claims.set(name, Some(claim.clone()));
        }
        self.sites.insert(node, Site { report, claims, since });
        changed.extend(self.services.names().cloned());
        changed
    }

    /// What nobody gets of a node: as it is configured there, where it is kept to.
    fn policy(&self, report: &NodeReport) -> Policy {
        let ours = &self.settings.policy;
        let Some(settings) = &report.settings else { return ours.clone() };
        let selection = Selection {
            internal: settings.internal.clone(),
            management: settings.management.clone(),
            families: ours.selection.families.clone(),
        };
        Policy { selection, reserved: settings.reserved.clone() }
    }

    fn failed(&mut self, name: &Name, problem: &kube::Error) {
        if let kube::Error::Api(status) = problem
            && status.code == 404
        {
            return;
        }
        warn!(service = %name, %problem, "its status cannot be written; it is tried again");
        let count = self.failures.entry(Arc::clone(name)).or_default();
        *count = count.saturating_add(1);
        let longer = pause(BACKOFF, *count);
        self.wait(name, longer);
    }

    /// Comes back to a Service later, and not before.
    fn wait(&mut self, name: &Name, pause: Duration) {
        self.busy.insert(Arc::clone(name));
        self.hear_later(pause, Heard::Again(Arc::clone(name)));
    }

    /// Has this be heard of after some time.
    fn hear_later(&self, pause: Duration, heard: Heard) {
        let sender = self.heard.clone();
        tokio::spawn(async move {
            sleep(pause).await;
            drop(sender.send(heard));
        });
    }

    /// What is to be said of a Service.
    fn verdict(&mut self, name: &Name, service: &Service) -> Verdict {
        let mut given = self.given(name, service);
        let mode = self.settings.mode;
        let counts = match mode {
            Mode::None => false,
            Mode::Filter => limits(service),
            Mode::Nftables => true,
        };
        if !counts || !given.iter().any(|one| one.is_behind(mode)) {
            let verdict = verdict(service, mode, &given);
            self.behind.remove(name);
            return verdict;
        }
        let before = self.behind.get(name);
        let (mut behind, mut is_new) = (BTreeMap::new(), false);
        for one in given.iter_mut().filter(|one| one.is_behind(mode)) {
            let known = before.and_then(|before| before.get(one.node)).copied();
            let since = known.unwrap_or_else(Instant::now);
            one.is_late = since.elapsed() >= LATE;
            is_new |= known.is_none();
            behind.insert(one.node.to_owned(), since);
        }
        let verdict = verdict(service, mode, &given);
        self.behind.insert(Arc::clone(name), behind);
        if is_new {
            self.hear_later(MOMENT, Heard::Waits(Arc::clone(name)));
        }
        self.look_again();
        verdict
    }

    /// Has those be looked at later whose packet filters do not know yet.
    fn look_again(&mut self) {
        if self.looks_again || self.behind.is_empty() {
            return;
        }
        self.looks_again = true;
        self.hear_later(LATE / 2, Heard::Late);
    }

    /// What nodes give a Service. Nodes that are not ready, or have no endpoint where they would send to no other, are left aside if
    /// another node has an address for it.
    fn given(&self, name: &Name, service: &Service) -> Vec<Given<'_>> {
        let is_up = |node: &str| self.nodes.get(node).is_none_or(|node| is_ready(node));
        let local = service.spec.as_ref().is_some_and(is_local);
        let has_one = |node: &str| !local || self.endpoints.are_on(name, node);
        // One without a Node may be gone for long, as one that was called otherwise: where another has its addresses, that one counts.
        let is_node = |node: &str| self.nodes.get(node).is_some();
        let of_nodes: BTreeSet<IpAddr> = if self.sites.keys().all(|node| is_node(node)) {
            BTreeSet::new()
        } else {
            let nodes = self.sites.iter().filter(|(node, _)| is_node(node));
            nodes
                .filter_map(|(_, site)| site.share(name, service))
                .flat_map(|share| share.addresses.iter().copied())
                .collect()
        };
        let is_stale = |node: &str, share: &Share| {
            !is_node(node) && !of_nodes.is_empty() && share.addresses.is_subset(&of_nodes)
        };
        let counts = |node: &str, site: &Site| {
            let share = site.share(name, service);
            share.is_some_and(|share| !share.addresses.is_empty() && !is_stale(node, share))
        };
        let any =
            |is: &dyn Fn(&str) -> bool| self.sites.iter().any(|(node, site)| is(node) && counts(node, site));
        let (any_up, any_has) = (any(&is_up), any(&|node| is_up(node) && has_one(node)));
        let asked = self.asked.get(name).and_then(|(_, version)| *version);
        let (has, is_filtered) = (addresses(service), self.settings.mode == Mode::Filter);
        self.sites
            .iter()
            .filter_map(|(node, site)| {
                let up_to = site.report.datapath.up_to;
                let share = site.share(name, service)?;
                let since = site.since.get(name);
                // What it has it has by packet filters that were set for it. Where others serve, that comes first.
                let has_all = || share.addresses.iter().all(|address| has.contains(address));
                let is_unseen = since == Some(&None) && is_filtered && !has_all();
                Some(Given {
                    node,
                    share,
                    settings: site.report.settings.as_ref().filter(|_| !site.looks_after(service)),
                    datapath: &site.report.datapath,
                    knows: !is_unseen && up_to >= asked.max(since.copied().flatten()),
                    is_unseen,
                    is_aside: (any_up && !is_up(node))
                        || (any_has && !has_one(node))
                        || is_stale(node, share),
                    missing: site.claims.missing(name),
                    started_anew: self.nodes.get(node).is_some_and(|node| started_anew(node, &site.report)),
                    is_late: false,
                })
            })
            .collect()
    }

    /// Has the status of a Service be as it should, if it is not, and tells what is wrong.
    fn act(&mut self, name: &Name) {
        if self.busy.contains(name) {
            return;
        }
        // What is to be written is said when it can be: ten thousand patches that wait would take more room than all else.
        if self.writing >= AT_ONCE {
            self.busy.insert(Arc::clone(name));
            self.line.push_back(Arc::clone(name));
            return;
        }
        let Some(service) = self.services.get(name).cloned() else { return self.take_back(name) };
        if service.metadata.deletion_timestamp.is_some() {
            return;
        }
        let mut verdict = self.verdict(name, &service);
        // All of them are looked at anew once all are listed, and no write before that makes a version that counts.
        verdict.is_unseen &= !self.services.is_listing();
        self.tell(name, &service, &verdict);
        if verdict.waits {
            self.waiting.insert(Arc::clone(name));
        } else {
            self.waiting.remove(name);
        }
        // What is not known of any node is no reason to take an address away.
        if self.sites.is_empty() && !addresses(&service).is_empty() {
            return;
        }
        if self.may_be_said_soon(name, &service, &verdict) {
            return;
        }
        let now = Time(Timestamp::now());
        let Some(patch) = verdict.patch(&service, &now) else { return };
        if self.settings.observe {
            info!(service = %name, addresses = ?verdict.addresses, "its status would be written");
            return;
        }
        if !verdict.is_unseen && self.is_not_kept(name, &patch) {
            return;
        }
        if let Some(pause) = self.pause(name, &service) {
            warn!(service = %name, "somebody else writes its status again and again: find out who else looks after it");
            self.wait(name, pause);
            return;
        }
        self.write(name, patch);
    }

    /// Whether where a Service is reached, or who serves it, is better waited for than said to be unknown: nothing that packet filters
    /// wait for themselves is to be written. Of one that waits to be reached nothing is to be taken away, either.
    fn may_be_said_soon(&self, name: &Name, service: &Service, verdict: &Verdict) -> bool {
        let is_nowhere = addresses(service).is_empty() && verdict.addresses.is_empty();
        let waits = verdict.assigned.1 == "Waiting" && is_nowhere && !verdict.is_unseen;
        let mut behind = self.behind.get(name).into_iter().flat_map(BTreeMap::values);
        let mut is_new = || behind.any(|since| since.elapsed() < MOMENT);
        (waits || verdict.is_early) && is_new()
    }

    /// Whether the same was written on the same version already: the API did not keep it, and would not now. With another version
    /// it is tried again, so that a newer API gets all of it in the end.
    fn is_not_kept(&mut self, name: &Name, patch: &Value) -> bool {
        let is_so = self.written.get(name).is_some_and(|(written, _)| *written == number(&untimed(patch)));
        if is_so && !self.said_not_kept {
            self.said_not_kept = true;
            if self.settings.mode == Mode::Nftables {
                warn!(
                    "the Kubernetes API does not keep `ipMode: Proxy` (it does from 1.30 on), so that kube-proxy is not told to leave addresses alone that are served here: it has rules for them, too, which come after ours"
                );
            } else {
                info!(
                    "the Kubernetes API does not keep all that is written into the status of Services: it drops ipMode before 1.30"
                );
            }
        }
        is_so
    }

    fn write(&mut self, name: &Name, patch: Value) {
        self.busy.insert(Arc::clone(name));
        let (namespace, object) = name.split_once('/').unwrap_or_default();
        let api: Api<Service> = Api::namespaced(self.client.clone(), namespace);
        let (sender, object) = (self.heard.clone(), object.to_owned());
        let written = Written {
            name: Arc::clone(name),
            on: decided_on(&patch),
            patch: number(&untimed(&patch)),
            lists: self.lists,
        };
        self.writing += 1;
        tokio::spawn(async move {
            let patch = Patch::Strategic(patch);
            let outcome = api.patch_status(&object, &PatchParams::default(), &patch).await;
            drop(sender.send(Heard::Wrote(written, outcome.map(Box::new))));
        });
    }

    /// For how long a status is better left alone, since somebody else changed it again and again.
    fn pause(&mut self, name: &Name, service: &Service) -> Option<Duration> {
        let is_ours = self.written.get(name).is_none_or(|(_, ours)| *ours == number(&addresses_of(service)));
        if is_ours {
            return None;
        }
        let now = Instant::now();
        let times = self.undone.entry(Arc::clone(name)).or_default();
        times.retain(|time| now.duration_since(*time) < WITHIN);
        if times.len() >= OFTEN {
            return Some(WITHIN / 3);
        }
        times.push(now);
        None
    }

    /// Tells which ports a Service uses, and what is wrong with it: once, and again when that is something else.
    fn tell(&mut self, name: &Name, service: &Service, verdict: &Verdict) {
        let (is, reason, message) = &verdict.assigned;
        let ports = service.spec.iter().flat_map(|spec| spec.ports.iter().flatten());
        let ports: Vec<u16> = ports.filter_map(|port| u16::try_from(port.port).ok()).collect();
        let now = Said {
            ports: (!verdict.addresses.is_empty()).then_some(ports),
            wrong: (!is).then(|| format!("{reason}: {message}")),
        };
        let before = self.said.entry(Arc::clone(name)).or_default();
        if *before == now {
            return;
        }
        if let Some(ports) = now.ports.as_ref().filter(|ports| before.ports.as_ref() != Some(ports)) {
            info!(service = %name, ?ports, "Service {name} using ports {ports:?}");
        }
        let new_wrong = now.wrong.is_some() && before.wrong != now.wrong;
        *before = now;
        // It waits for a moment, mostly, as it does for the first node to tell of itself.
        if !new_wrong || *reason == "Waiting" || self.sites.is_empty() {
            return;
        }
        warn!(service = %name, reason, message, "a Service does not get what it asks for");
        if self.settings.observe {
            return;
        }
        let (events, service) = (self.events.clone(), service.clone());
        let (reason, message) = (*reason, message.clone());
        tokio::spawn(async move { events.tell(&service, Weight::Warning, reason, &message).await });
    }
}

/// Tells that there is nothing more to be told.
fn ended(what: &'static str) -> impl Stream<Item = Heard> {
    stream::once(std::future::ready(Heard::Ended(what)))
}

/// Something as a number: another one if it is something else. Ten thousand of the things themselves would take room.
fn number(thing: &impl Serialize) -> u64 {
    let mut hash = DefaultHasher::new();
    serde_json::to_string(thing).unwrap_or_default().hash(&mut hash);
    hash.finish()
}

/// What the status of a Service has.
fn addresses_of(service: &Service) -> Vec<&LoadBalancerIngress> {
    ingress(service).collect()
}

/// Which start of its kernel a node is in.
fn boot(node: &Node) -> &str {
    let info = node.status.as_ref().and_then(|status| status.node_info.as_ref());
    info.map(|info| info.boot_id.as_str()).unwrap_or_default()
}

/// Whether a node was started since it told of its packet filters: there is nothing in them.
fn started_anew(node: &Node, report: &NodeReport) -> bool {
    !boot(node).is_empty() && !report.boot.is_empty() && boot(node) != report.boot
}

/// Whether a node is ready; one that says nothing about it is.
fn is_ready(node: &Node) -> bool {
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_ref());
    let ready = conditions.into_iter().flatten().find(|condition| condition.type_ == "Ready");
    ready.is_none_or(|ready| ready.status == "True")
}

#[cfg(test)]
mod tests;
