//! What runs on every node: it tells which addresses the node has, and has its packet filters be as Services ask.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::stream::{self, BoxStream, Stream, StreamExt};
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::Client;
use kube::api::Api;
use kube::runtime::watcher::{Config, Event};
use portcullis_core::Protocol;
use portcullis_host::Machine;
use portcullis_host::claims::{Claim, Claims, Here, Listening, Name, Policy, Port};
use portcullis_host::datapath::{self, Datapath, Frontend, Mode, Others, Place, Synced};
use portcullis_host::interfaces::{Interface, Interfaces};
use portcullis_kube_api::host::{NodeDatapath, NodeReport, NodeSettings, wants_host};
use tokio::sync::watch;
use tokio::time::{Instant, sleep};
use tracing::{error, info, warn};

use super::asked::{
    Serving, Slice, all_ports, claim, covers_node_ports, health_check, is_same, node_ports, told_at,
};
use super::doubt::Doubt;
use super::endpoints::Endpoints;
use super::health::Health;
use super::known::{Known, watched};
use super::lingering::Lingering;
use super::listeners::Listeners;
use super::others::{Noted, claim_of_others};
use super::report::{boot, may_be_told, read_listening, reported, tell, told_before, told_listening, word};
use super::told::{Item, Told, event_version};
use super::traffic::Traffic;
use crate::pause::pause;

/// How a node looks after itself.
#[derive(Clone, Debug)]
pub struct AgentSettings {
    /// The cluster, by the name that is written on what is made for it.
    pub cluster: String,
    /// Services of this class are served.
    pub class: String,
    /// Services without any class, too.
    pub without_class: bool,
    /// The name of this node.
    pub node: String,
    /// The namespace where nodes tell of themselves.
    pub namespace: String,
    /// What nobody gets.
    pub policy: Policy,
    /// What the packet filters do.
    pub mode: Mode,
    /// For so long a port stays whose it was: a program's that may only be started anew, and, where packets are filtered, that of a
    /// Service, since whoever forwards may not have heard yet that it has gone.
    pub grace: Duration,
    /// Only watch, and tell what would be done.
    pub observe: bool,
}

/// For how long a port stays whose it was, usually. Programs are back within it, and so are proxies with what they have heard: with
/// ten thousand Services kube-proxy takes half of it.
pub const GRACE: Duration = Duration::from_secs(60);

/// How often is looked where programs listen, and whether the packet filters are still there.
const LOOK: Duration = Duration::from_secs(2);

/// How long is waited after a failure, at first and at most.
pub(super) const BACKOFF: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));

/// Looks after one node.
#[allow(missing_debug_implementations, reason = "a client of Kubernetes has none")]
pub struct NodeAgent {
    machine: Machine,
    settings: AgentSettings,
    known: Known,
    traffic: Traffic,
}

/// What is heard of.
#[allow(clippy::large_enum_variant, reason = "one at a time is passed on, and none is kept")]
enum Heard {
    Service(Event<Item<Service>>),
    Slice(Event<Item<Slice>>),
    ApiServer(Event<Item<EndpointSlice>>),
    Interfaces,
    Others(Others),
    Time,
    /// Nothing more will be told of these.
    Ended(&'static str),
}

/// Which Services are concerned by what was heard.
#[derive(Default)]
struct Concerned {
    /// Those that ask for something else, or have other endpoints.
    asking: BTreeSet<Name>,
    /// Those that get other addresses.
    moved: BTreeSet<Name>,
}

impl Concerned {
    fn is_empty(&self) -> bool {
        self.asking.is_empty() && self.moved.is_empty()
    }
}

/// What is known, and what was done about it.
#[allow(clippy::struct_excessive_bools, reason = "each is so or not for itself")]
struct Agent {
    machine: Machine,
    settings: AgentSettings,
    services: Told<Service>,
    others: Noted<Claim>,
    endpoints: Endpoints,
    api_server: Told<EndpointSlice>,
    interfaces: watch::Receiver<Interfaces>,
    listeners: Listeners,
    listening: BTreeSet<Listening>,
    claims: Claims,
    /// What was put into the packet filters, by Service, and what of it stays there although no Service has it.
    placed: HashMap<Name, Vec<Place>>,
    lingering: Lingering,
    /// Whether it is known what was put there before this was started.
    has_recalled: bool,
    /// Where Services are not any more, and their statuses say that they are.
    told: HashMap<Name, Vec<Place>>,
    /// The addresses that the node had when its packet filters were set, if they are not known to be gone.
    set_at: BTreeSet<IpAddr>,
    /// Ports of nodes that Services have and do not get here, since the node needs them itself.
    left_out: BTreeMap<Name, BTreeSet<Port>>,
    health: Health,
    /// Whether there is nothing in the packet filters.
    is_bare: bool,
    /// Everything is to be said anew.
    whole: bool,
    /// Until when nothing is tried, and how often in a row it failed.
    pause: Option<Instant>,
    failures: u32,
    /// Whether they may be others than they were made, and whether it is heard of.
    doubt: Doubt,
    hears_of_others: bool,
    /// The newest version of a Service that was heard of, and the one that is told: statuses change all the time, and nobody waits
    /// for those.
    newest: Option<u64>,
    up_to: Option<u64>,
    /// The newest version of a Service of others in a list that is being told.
    listed: Option<u64>,
    /// Which start of the kernel this is.
    boot: String,
    report: watch::Sender<NodeReport>,
    /// The same for the other half, if it is in this process.
    here: Arc<watch::Sender<BTreeMap<String, NodeReport>>>,
}

impl AgentSettings {
    /// What of it decides who is served where: whoever writes the status of Services goes by the same.
    fn told(&self) -> NodeSettings {
        let Policy { selection, reserved } = &self.policy;
        NodeSettings {
            class: self.class.clone(),
            without_class: self.without_class,
            reserved: reserved.clone(),
            management: selection.management.clone(),
            internal: selection.internal.clone(),
        }
    }
}

impl NodeAgent {
    /// Looks after this machine so. What it has to know is read once for all who have `known`.
    pub fn new(machine: Machine, settings: AgentSettings, known: Known) -> Self {
        NodeAgent { machine, settings, known, traffic: Traffic::default() }
    }

    /// What comes to Services at its addresses, while it is looked after.
    pub fn traffic(&self) -> Traffic {
        self.traffic.clone()
    }

    /// Does so until it is dropped. What is in the packet filters stays. `told` hears whether they are as they should be. It ends by
    /// itself only where it is not told any more what to do.
    pub async fn run(self, told: impl Fn(Result<(), String>)) {
        let NodeAgent { machine, settings, known, traffic } = self;
        let counts = settings.mode != Mode::None && !settings.observe;
        let counting = traffic.follow(machine.clone());
        let counting = async move {
            if counts {
                counting.await;
            }
        };
        let (report, reported) = watch::channel(NodeReport::default());
        let telling = tell(known.client.clone(), settings.clone(), reported);
        let policy = settings.policy.clone();
        let agent = Agent {
            interfaces: machine.interfaces(),
            health: Health::new(machine.clone()),
            machine,
            services: Told::default(),
            others: Noted::default(),
            endpoints: Endpoints::default(),
            api_server: Told::default(),
            listeners: Listeners::new(settings.grace),
            listening: BTreeSet::new(),
            claims: Claims::new(policy, Here::default()),
            placed: HashMap::new(),
            lingering: Lingering::new(settings.grace),
            has_recalled: false,
            told: HashMap::new(),
            set_at: BTreeSet::new(),
            left_out: BTreeMap::new(),
            is_bare: true,
            whole: true,
            pause: None,
            failures: 0,
            doubt: Doubt::new(Instant::now()),
            hears_of_others: false,
            newest: None,
            up_to: None,
            listed: None,
            boot: boot(),
            report,
            here: Arc::clone(&known.here),
            settings,
        };
        let beside = async {
            tokio::join!(telling, counting);
            std::future::pending::<()>().await;
        };
        tokio::select! {
            () = agent.follow(known, told) => {}
            () = beside => {}
        }
    }
}

impl Agent {
    async fn follow(mut self, known: Known, told: impl Fn(Result<(), String>)) {
        let interfaces = stream::unfold(self.interfaces.clone(), |mut interfaces| async {
            interfaces.changed().await.ok().map(|()| (Heard::Interfaces, interfaces))
        });
        let time = stream::unfold((), |()| async {
            sleep(LOOK).await;
            Some((Heard::Time, ()))
        });
        let api_server = Config::default().labels("kubernetes.io/service-name=kubernetes");
        let mut heard = vec![
            known.services().map(Heard::Service).chain(ended("Services")).boxed(),
            watched(Api::namespaced(known.client.clone(), "default"), api_server)
                .map(Heard::ApiServer)
                .boxed(),
            interfaces.boxed(),
            time.boxed(),
        ];
        if self.settings.mode == Mode::Nftables {
            heard.push(known.slices().map(Heard::Slice).chain(ended("endpoints")).boxed());
        }
        let mut heard = stream::select_all(heard);
        self.recall(&known.client).await;
        self.look().await;
        self.warn_of_forwarding().await;
        // Before anything is read or written: what others change meanwhile is heard of.
        heard.extend(self.others().await);
        // Nothing is done before all is known, and what was heard until then is not forgotten.
        let mut concerned = Concerned::default();
        while let Some(first) = heard.next().await {
            if matches!(first, Heard::Time) {
                heard.extend(self.others().await);
            }
            // What came meanwhile is done together.
            let mut next = Some(first);
            while let Some(one) = next {
                if let Heard::Ended(what) = one {
                    error!(
                        what,
                        "nothing is told of them any more, so that packet filters cannot be kept right"
                    );
                    return;
                }
                self.take(one, &mut concerned).await;
                next = heard.next().now_or_never().flatten();
            }
            if self.is_complete() {
                self.act(std::mem::take(&mut concerned)).await;
                let problem = self.report.borrow().datapath.problem.clone();
                told(problem.map_or(Ok(()), Err));
            }
        }
    }

    /// Takes in what this node told of itself before this was started.
    async fn recall(&mut self, client: &Client) {
        let AgentSettings { namespace, node, .. } = &self.settings;
        let Some(before) = told_before(client, namespace, node).await else { return };
        let listening = before.listening.iter().filter_map(|text| read_listening(text));
        self.listeners.recall(listening, Instant::now());
        if before.boot == self.boot && before.datapath.mode != word(Mode::None) {
            self.set_at = before.addresses().difference(&before.datapath.unset).copied().collect();
        }
    }

    /// Who serves addresses sends to endpoints, which a machine that forwards nothing does not do.
    async fn warn_of_forwarding(&self) {
        if self.settings.mode != Mode::Nftables {
            return;
        }
        let (v4, v6) = self.machine.forwards().await;
        for (is_on, setting) in [(v4, "net.ipv4.ip_forward"), (v6, "net.ipv6.conf.all.forwarding")] {
            if !is_on {
                warn!(
                    setting,
                    "this node does not forward packets, and endpoints are not reached that way: set it to 1"
                );
            }
        }
    }

    /// What others change in our packet filters, if it is not heard of yet.
    async fn others(&mut self) -> Option<BoxStream<'static, Heard>> {
        if self.hears_of_others || self.settings.mode == Mode::None || self.settings.observe {
            return None;
        }
        // Who may not hear of it may not change anything either, which is told.
        let others = self.machine.datapath(|datapath| datapath.others()).await.ok()?;
        self.hears_of_others = true;
        let others = stream::unfold(others, |mut others| async {
            others.recv().await.map(|news| (Heard::Others(news), others))
        });
        Some(others.boxed())
    }

    /// Whether enough is known to do anything: what is not known yet would be taken away.
    fn is_complete(&self) -> bool {
        let endpoints = self.settings.mode != Mode::Nftables || self.endpoints.is_complete();
        self.services.is_complete() && endpoints && self.api_server.is_complete()
    }

    /// Takes in what was heard; which Services are concerned.
    async fn take(&mut self, heard: Heard, concerned: &mut Concerned) {
        match heard {
            Heard::Service(event) => {
                let (class, without_class) = (self.settings.class.clone(), self.settings.without_class);
                let is_ours = |service: &Service| wants_host(service, &class, without_class);
                let others =
                    |service: &Service| (!is_ours(service)).then(|| claim_of_others(service)).flatten();
                let version = event_version(&event);
                // Of a list it is only known at its end who is not in it any more.
                let is_listed = matches!(event, Event::InitApply(_));
                if matches!(event, Event::InitDone) {
                    self.newest = self.newest.max(self.listed.take());
                }
                for (name, claim) in self.others.take(&event, others) {
                    let moved = self.claims.set(&name, claim);
                    if !moved.is_empty() {
                        let newest = if is_listed { &mut self.listed } else { &mut self.newest };
                        *newest = version.max(*newest);
                        self.up_to = self.newest;
                    }
                    concerned.moved.extend(moved);
                }
                for news in self.services.take(event, is_ours) {
                    let service = self.services.get(&news.name);
                    let asks_as_before = news.before.as_ref().zip(service).is_some_and(|(before, now)| {
                        before.spec == now.spec && before.metadata.annotations == now.metadata.annotations
                    });
                    // A status that somebody cleared is put back, and does not change who has a port until then.
                    let is_same = is_same(news.before.as_deref(), service.map(|service| &**service));
                    let claim = service.map(|service| claim(service));
                    let kept = |claim| if is_same { self.claims.kept(&news.name, claim) } else { claim };
                    let claim = claim.map(kept).or_else(|| self.others.get(&news.name).cloned());
                    let moved = self.claims.set(&news.name, claim);
                    self.newest = self.newest.max(news.version);
                    if !asks_as_before || !moved.is_empty() {
                        self.up_to = self.newest;
                    }
                    concerned.moved.extend(moved);
                    concerned.asking.insert(news.name);
                }
            }
            Heard::Slice(event) => concerned.asking.extend(self.endpoints.take(event)),
            Heard::ApiServer(event) => {
                self.api_server.take(event, |_| true);
                concerned.moved.extend(self.move_to());
            }
            Heard::Interfaces => concerned.moved.extend(self.move_to()),
            Heard::Time => {
                self.up_to = self.newest;
                self.read_anew().await;
                concerned.moved.extend(self.look().await);
            }
            Heard::Others(others) => {
                self.doubt.hear(others);
                self.read_anew().await;
            }
            Heard::Ended(_) => {}
        }
    }

    /// Has the packet filters be read before they are changed the next time, which is now, if it is time to.
    async fn read_anew(&mut self) {
        if self.is_bare || self.settings.observe || !self.doubt.is_due(Instant::now()) {
            return;
        }
        let doubt = |datapath: &mut Datapath| {
            datapath.doubt();
            Ok(())
        };
        // What cannot be read is told when it is used.
        let _ = self.machine.datapath(doubt).await;
    }

    /// Looks at what nobody tells of.
    async fn look(&mut self) -> BTreeSet<Name> {
        match self.machine.listening().await {
            Ok(listening) => self.listening = self.listeners.look(listening, Instant::now()),
            Err(problem) => {
                warn!(%problem, "it cannot be told where programs of this node listen");
                self.listening = self.listeners.look(self.listening.clone(), Instant::now());
            }
        }
        self.move_to()
    }

    /// Takes in what the node has; which Services get something else by it.
    fn move_to(&mut self) -> BTreeSet<Name> {
        let interfaces = self.interfaces.borrow_and_update().clone();
        let slices = self.api_server.values();
        let told: BTreeSet<_> = slices
            .flat_map(|slice| slice.endpoints.iter().flat_map(|endpoint| &endpoint.addresses))
            .filter_map(|address| address.parse().ok())
            .collect();
        // One that stops takes its address out of there, and is back in a moment.
        let also = if told.is_empty() { self.claims.here().also.clone() } else { told };
        self.claims.move_to(Here { interfaces, listening: self.listening.clone(), also })
    }

    /// The addresses that a Service gets.
    fn addresses(&self, name: &Name) -> BTreeSet<IpAddr> {
        self.claims.share(name).map(|share| share.addresses.clone()).unwrap_or_default()
    }

    /// What a Service is to have in the packet filters, at some of its addresses.
    fn frontends(&mut self, name: &Name, addresses: &BTreeSet<IpAddr>) -> Vec<Frontend> {
        let left_out = self.needed_here(name);
        let Some(service) = self.services.get(name) else {
            self.left_out.remove(name);
            self.told.remove(name);
            return Vec::new();
        };
        let (cluster, node) = (self.settings.cluster.as_str(), self.settings.node.as_str());
        let serving = Serving { cluster, node, service, slices: self.endpoints.of(name) };
        let told = self.still_told(name);
        let mut frontends = serving.frontends(addresses, &left_out);
        frontends.extend(serving.filters(&told));
        if told.is_empty() {
            self.told.remove(name);
        } else {
            self.told.insert(Arc::clone(name), told);
        }
        if left_out.is_empty() {
            self.left_out.remove(name);
        } else {
            self.left_out.insert(Arc::clone(name), left_out);
        }
        frontends
    }

    /// Where a Service is not any more, and its status says that it is. Where packets are only filtered, whoever forwards them goes on
    /// there, and would let everybody in. It is filtered at what the node has, or had it for.
    fn still_told(&self, name: &Name) -> Vec<Place> {
        if self.settings.mode != Mode::Filter {
            return Vec::new();
        }
        let Some(service) = self.services.get(name) else { return Vec::new() };
        let ports = service.spec.as_ref().map(all_ports).unwrap_or_default();
        let share = self.claims.share(name);
        let (here, placed) = (&self.claims.here().interfaces, self.placed.get(name));
        let told = told_at(service).into_iter().filter_map(|(address, port)| {
            let has = share.is_some_and(|share| share.addresses.contains(&address)) && ports.contains(&port);
            let place = Place::new(address, port.protocol, port.number).ok()?;
            let is_here = || here.have(address);
            let was_here = || placed.is_some_and(|places| places.contains(&place));
            let is_others = || self.claims.owner(Some(address), port).is_some_and(|owner| owner != name);
            (!has && (is_here() || was_here()) && !is_others()).then_some(place)
        });
        told.collect()
    }

    /// What goes out of the packet filters, of places that nobody has any more: where packets are only filtered, later.
    fn let_go(&mut self, gone: &mut BTreeSet<Place>) {
        if self.settings.mode != Mode::Filter || self.settings.observe {
            return;
        }
        let now = Instant::now();
        for place in std::mem::take(gone) {
            if self.is_filtered_for_another(&place) {
                continue;
            }
            if is_had(&self.claims, &place) {
                gone.insert(place);
            } else {
                self.lingering.enter(place, now);
            }
        }
        let claims = &self.claims;
        let over = self.lingering.over(now, |place| is_had(claims, place));
        gone.extend(over.into_iter().filter(|place| !self.is_filtered_for_another(place)));
    }

    /// Whether a place is in the packet filters for somebody else by now: for who gets it, or for one whose status says so.
    fn is_filtered_for_another(&self, place: &Place) -> bool {
        let has = |owner: &Name| self.placed.get(owner).is_some_and(|places| places.contains(place));
        owner(&self.claims, place).is_some_and(has) || self.told.values().any(|places| places.contains(place))
    }

    /// Ports of nodes that a Service has and are kept for the node itself. Where a program only listens, ranges count: networks listen
    /// on node ports to have them for themselves, and forward them to everybody.
    ///
    /// Where packets are only filtered there is none: whoever forwards them does so in any case, and without a filter for everybody.
    fn needed_here(&self, name: &Name) -> BTreeSet<Port> {
        let service = self.services.get(name).filter(|_| self.settings.mode == Mode::Nftables);
        let Some((service, spec)) = service.and_then(|service| Some((service, service.spec.as_ref()?)))
        else {
            return BTreeSet::new();
        };
        let reserved = &self.settings.policy.reserved;
        let ports = node_ports(spec).into_iter().filter(|_| covers_node_ports(service));
        let mut needed: BTreeSet<Port> = ports.filter(|port| reserved.contains(&port.number)).collect();
        // Programs that listen there are ours, or keep us from it.
        let health = health_check(spec).filter(|port| reserved.contains(port));
        needed.extend(health.map(|number| Port { protocol: Protocol::TCP, number }));
        needed
    }

    async fn act(&mut self, concerned: Concerned) {
        if self.settings.mode == Mode::Nftables && !self.settings.observe {
            self.answer_health_checks(&concerned.asking).await;
        }
        // What was not done is done when it is tried again.
        self.whole |= self.pause.is_some() && !concerned.is_empty();
        if self.pause.is_some_and(|until| Instant::now() < until) {
            return self.tell_of_addresses(None).await;
        }
        let done = if self.whole { self.sync_all().await } else { self.change(concerned).await };
        match done {
            Ok(in_force) => {
                if self.failures > 0 {
                    info!("the packet filters of this node are as they should be again");
                }
                (self.pause, self.failures, self.whole) = (None, 0, false);
                self.set_at = self.claims.here().interfaces.addresses();
                self.tell(NodeDatapath {
                    mode: word(self.settings.mode).to_owned(),
                    interfaces: self.named(in_force),
                    left_out: self.left_out.values().flatten().map(ToString::to_string).collect(),
                    up_to: self.up_to.filter(|_| self.settings.mode != Mode::None),
                    unset: BTreeSet::new(),
                    problem: None,
                });
            }
            Err(problem) => {
                let mut why = problem.to_string();
                if let Some(source) = std::error::Error::source(&problem) {
                    why = format!("{why} ({source})");
                }
                warn!(problem = why, "the packet filters of this node are not as they should be");
                self.whole = true;
                self.failures = self.failures.saturating_add(1);
                self.pause = Some(Instant::now() + pause(BACKOFF, self.failures));
                self.tell_of_addresses(Some(why)).await;
            }
        }
    }

    /// Makes the packet filters have everything, and nothing else.
    async fn sync_all(&mut self) -> Result<BTreeSet<String>, datapath::Error> {
        let left = self.left_before().await?;
        let names: Vec<Name> = self.services.names().cloned().collect();
        let (mut all, mut placed) = (Vec::new(), HashMap::new());
        self.left_out.clear();
        self.told.clear();
        for name in names {
            let frontends = self.frontends(&name, &self.addresses(&name));
            let places: Vec<Place> = frontends.iter().map(Frontend::place).collect();
            if !places.is_empty() {
                placed.insert(name, places);
            }
            all.extend(frontends);
        }
        let places: BTreeSet<Place> = placed.values().flatten().copied().collect();
        let before = std::mem::replace(&mut self.placed, placed);
        let before = before.into_values().flatten().chain(left);
        let mut gone = before.filter(|place| !places.contains(place)).collect();
        for place in &places {
            self.lingering.leave(place);
        }
        self.let_go(&mut gone);
        // Without any there is nothing to be left on the machine.
        let is_bare = all.is_empty() && self.lingering.is_empty();
        let mode = if is_bare { Mode::None } else { self.settings.mode };
        self.is_bare = mode == Mode::None;
        if self.settings.observe {
            info!(frontends = all.len(), ?mode, "this would be in the packet filters of this node");
            return Ok(BTreeSet::new());
        }
        let (interfaces, count) = (self.outside(), all.len());
        let lingering: BTreeSet<Place> = self.lingering.places().copied().collect();
        let done = self
            .machine
            .datapath(move |datapath| {
                let stay = datapath.frontends().filter(|frontend| lingering.contains(&frontend.place()));
                let all: Vec<Frontend> = stay.cloned().chain(all).collect();
                let synced = but_for_flows(datapath.sync(mode, &interfaces, all))?;
                Ok((synced, in_force(datapath)))
            })
            .await;
        match done {
            Ok((synced, in_force)) => {
                if let Some(synced) = synced.filter(|synced| synced.rules || synced.elements > 0) {
                    let elements = synced.elements;
                    info!(frontends = count, elements, ?mode, "the packet filters of this node are set");
                }
                Ok(in_force)
            }
            // There is nothing of ours to be removed by somebody who may not.
            Err(datapath::Error::NotPermitted | datapath::Error::NoNftables)
                if self.settings.mode == Mode::None =>
            {
                Ok(BTreeSet::new())
            }
            Err(problem) => Err(problem),
        }
    }

    /// What is in the packet filters since before this was started, the first time. Who left while nobody looked was not waited for:
    /// where packets are only filtered, whoever forwards them may not have heard yet.
    async fn left_before(&mut self) -> Result<BTreeSet<Place>, datapath::Error> {
        if self.has_recalled || self.settings.mode != Mode::Filter || self.settings.observe {
            return Ok(BTreeSet::new());
        }
        let cluster = self.settings.cluster.clone();
        let recall = move |datapath: &mut Datapath| {
            datapath.recall(&cluster)?;
            Ok(datapath.frontends().map(Frontend::place).collect())
        };
        let left = self.machine.datapath(recall).await?;
        self.has_recalled = true;
        Ok(left)
    }

    /// Makes the packet filters have what changed. With nothing, it is seen whether they are still there.
    async fn change(&mut self, concerned: Concerned) -> Result<BTreeSet<String>, datapath::Error> {
        if self.settings.mode == Mode::None {
            return Ok(BTreeSet::new());
        }
        let Concerned { asking, moved } = concerned;
        let (mut come, mut gone) = (Vec::new(), BTreeSet::new());
        for name in moved.difference(&asking) {
            let mut addresses = self.addresses(name);
            let mut places = self.placed.get(name).cloned().unwrap_or_default();
            let told = self.still_told(name);
            let goes = |place: &mut Place| {
                !place.is_node_port() && !addresses.contains(&place.address()) && !told.contains(place)
            };
            gone.extend(places.extract_if(.., goes));
            // Where it was already with all of its ports nothing changes, and that may be at many.
            let ports = self.services.get(name).and_then(|service| Some(all_ports(service.spec.as_ref()?)));
            let is_placed = |address: IpAddr| {
                let place = |port: &Port| Place::new(address, port.protocol, port.number).ok();
                ports.iter().flatten().filter_map(place).all(|place| places.contains(&place))
            };
            addresses.retain(|address| !is_placed(*address));
            let frontends = self.frontends(name, &addresses);
            places.extend(frontends.iter().map(Frontend::place));
            places.sort_unstable();
            places.dedup();
            if places.is_empty() {
                self.placed.remove(name);
            } else {
                self.placed.insert(Arc::clone(name), places);
            }
            come.extend(frontends);
        }
        for name in asking {
            let frontends = self.frontends(&name, &self.addresses(&name));
            let places: Vec<Place> = frontends.iter().map(Frontend::place).collect();
            gone.extend(self.placed.remove(&name).unwrap_or_default());
            if !places.is_empty() {
                self.placed.insert(name, places);
            }
            come.extend(frontends);
        }
        // What one gives up may be another's now.
        for frontend in &come {
            gone.remove(&frontend.place());
            self.lingering.leave(&frontend.place());
        }
        self.let_go(&mut gone);
        // The first and the last frontend bring the table, and take it along.
        if self.is_bare != (self.placed.is_empty() && self.lingering.is_empty()) {
            return self.sync_all().await;
        }
        if self.settings.observe {
            if !come.is_empty() || !gone.is_empty() {
                let (come, gone) = (come.len(), gone.len());
                info!(come, gone, "this would change in the packet filters of this node");
            }
            return Ok(BTreeSet::new());
        }
        // In mode `filter` packets are filtered on the interfaces themselves, which come and go with pods.
        let interfaces = self.outside();
        let change = move |datapath: &mut Datapath| {
            datapath.filter_on(&interfaces);
            but_for_flows(datapath.change(come, gone))?;
            Ok(in_force(datapath))
        };
        self.machine.datapath(change).await
    }

    /// The interfaces that are told of, of those where packets are filtered.
    fn named(&self, mut in_force: BTreeSet<String>) -> BTreeSet<String> {
        let here = &self.claims.here().interfaces;
        for one in here.iter().filter(|one| one.seems_to_lead_to_a_pod()) {
            in_force.remove(&one.name);
        }
        in_force
    }

    /// The interfaces through which packets come from elsewhere. Those that are a part of a bridge or a bond, too: a switch
    /// in the kernel may forward packets that nothing else sees. And those that lead to pods under names that nobody knows: by
    /// what the kernel tells, one may as well lead to where everything comes from.
    fn outside(&self) -> Vec<datapath::Interface> {
        let selection = &self.settings.policy.selection;
        let interfaces = self.claims.here().interfaces.iter();
        let is_meant = |one: &Interface| !selection.is_internal(&one.name) || selection.is_kept(one);
        let outside = interfaces.filter(|one| !one.is_loopback && is_meant(one));
        outside
            .map(|one| datapath::Interface {
                name: one.name.clone(),
                addresses: one.addresses.iter().copied().collect(),
                is_kept: selection.is_kept(one),
            })
            .collect()
    }

    async fn answer_health_checks(&mut self, changed: &BTreeSet<Name>) {
        for name in changed {
            let service = self.services.get(name);
            let spec = service.and_then(|service| service.spec.as_ref());
            let reserved = &self.settings.policy.reserved;
            let port = spec.and_then(health_check).filter(|port| !reserved.contains(port));
            let (cluster, node) = (self.settings.cluster.as_str(), self.settings.node.as_str());
            let ready = service.map_or(0, |service| {
                Serving { cluster, node, service, slices: self.endpoints.of(name) }.ready_here()
            });
            self.health.set(name, port, ready).await;
        }
        self.health.retry().await;
    }

    /// Tells of what this node has while its packet filters cannot be changed, for this reason or for the one that was told. What was
    /// in force before is, as far as anybody knows, at the addresses that it was in force for.
    async fn tell_of_addresses(&mut self, why: Option<String>) {
        // Who may not even look knows nothing new.
        if matches!(self.machine.datapath(Datapath::is_there).await, Ok(false)) {
            self.set_at.clear();
        }
        let before = self.report.borrow().datapath.clone();
        let (mode, problem) = (word(self.settings.mode).to_owned(), why.or_else(|| before.problem.clone()));
        let mut unset = self.claims.here().interfaces.addresses();
        unset.retain(|address| may_be_told(address) && !self.set_at.contains(address));
        self.tell(NodeDatapath { mode, problem, unset, ..before });
    }

    /// Tells what the node has and what its packet filters do. Both at once, and only when it is so or is known not to be:
    /// who hears of an address may have it used at once.
    fn tell(&self, datapath: NodeDatapath) {
        let here = self.claims.here();
        let now = NodeReport {
            interfaces: reported(&here.interfaces, &self.settings.policy.selection),
            listening: here.listening.iter().map(told_listening).collect(),
            api_server: here.also.clone(),
            boot: self.boot.clone(),
            settings: Some(self.settings.told()),
            datapath,
        };
        if *self.report.borrow() == now {
            return;
        }
        if !self.settings.observe {
            self.here.send_modify(|all| drop(all.insert(self.settings.node.clone(), now.clone())));
        }
        self.report.send_replace(now);
    }
}

/// To whom a place leads.
fn owner<'a>(claims: &'a Claims, place: &Place) -> Option<&'a Name> {
    let port = Port { protocol: place.protocol(), number: place.port() };
    claims.owner((!place.is_node_port()).then(|| place.address()), port)
}

fn is_had(claims: &Claims, place: &Place) -> bool {
    owner(claims, place).is_some()
}

/// Tells that there is nothing more to be told.
fn ended(what: &'static str) -> impl Stream<Item = Heard> {
    stream::once(std::future::ready(Heard::Ended(what)))
}

/// What was done, if all is as it should be. Flows that were not ended are told, and are no reason to stop.
fn but_for_flows(done: Result<Synced, datapath::Error>) -> Result<Option<Synced>, datapath::Error> {
    match done {
        Ok(synced) => Ok(Some(synced)),
        Err(datapath::Error::Flows(problem)) => {
            warn!(%problem, "UDP flows to endpoints that are gone were not ended: load the module nf_conntrack_netlink if it is missing");
            Ok(None)
        }
        Err(problem) => Err(problem),
    }
}

/// The interfaces where packets are filtered as they arrive.
fn in_force(datapath: &Datapath) -> BTreeSet<String> {
    datapath.in_force().into_iter().map(str::to_owned).collect()
}
