//! Decisions, against an AWS that does all it is told at once.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use portcullis_core::{
    Admission, EmptyMeans, Enforcement, Family, HealthCheck, HealthPort, Listener, ListenerProtocol,
    LoadBalancer, Member, Owner, Probe, Scheme, SourceRanges, Target, Want,
};
use proptest::prelude::*;

use super::asked::{PREFIX, TargetKind};
use super::decide::Next;
use super::defaults;
use super::round::{Progress, Wanted};
use super::settings::{NodeRules, Settings};
use super::simulation::Simulation;
use super::snapshot::{Balancer, Pool, Snapshot};
use super::spec::Spec;
use super::{rules, view};
use crate::model::{self, Instance, Peer, Permission, RouteTable, SecurityGroup, Subnet, TargetState};
use crate::{CloudConfig, SecurityGroupMode};

fn settings(mode: SecurityGroupMode) -> Settings {
    let (config, _) = CloudConfig::parse("").unwrap();
    Settings { mode, ..Settings::new("demo", "vpc-1", &config).unwrap() }
}

fn owner(name: &str) -> Owner {
    Owner::new("demo", "Service", Some("shop".into()), name).unwrap()
}

/// A Service, as short as can be written down.
#[derive(Clone, Debug, Default)]
struct Service {
    ports: Vec<(u16, ListenerProtocol, u16)>,
    ranges: Option<Vec<&'static str>>,
    nodes: Vec<u8>,
    local: bool,
    dual: bool,
    /// Whether it sends to pods on the nodes instead of to the nodes.
    pods: bool,
    annotations: Vec<(&'static str, String)>,
}

impl Service {
    fn web() -> Self {
        Service { ports: vec![(80, ListenerProtocol::Tcp, 30080)], nodes: vec![1, 2], ..Service::default() }
    }

    fn with(mut self, key: &'static str, value: &str) -> Self {
        self.annotations.push((key, value.to_owned()));
        self
    }

    /// A pod on each node, which all serve on the same ports.
    fn pods(&self) -> Vec<Member> {
        let ports: Vec<(u16, u16)> = self.ports.iter().map(|(port, _, _)| (*port, 8000 + *port)).collect();
        let pods = self.nodes.iter().map(|node| {
            let address = std::net::IpAddr::from([10, 0, 0, 100 + *node]);
            Member::new(format!("pod-{node}"), [address]).unwrap().with_ports(ports.clone())
        });
        pods.collect()
    }

    fn spec(&self, name: &str, settings: &Settings) -> Result<(Spec, Vec<String>), String> {
        let families: &[Family] = if self.dual { &[Family::V4, Family::V6] } else { &[Family::V4] };
        let listeners = self.ports.iter().map(|(port, protocol, to)| {
            let listener = Listener::new(*port, *protocol, *to).unwrap().with_name(format!("p{port}"));
            if self.local {
                let probe = Probe::Http { path: "/healthz".into() };
                listener.with_health_check(HealthCheck::new(probe, HealthPort::Number(31000)).unwrap())
            } else {
                listener
            }
        });
        let admission = Admission {
            ranges: SourceRanges::parse(self.ranges.clone()).unwrap(),
            empty_means: EmptyMeans::Everyone,
        };
        let members: Vec<Member> = self
            .nodes
            .iter()
            .map(|node| {
                let address = std::net::IpAddr::from([10, 0, 0, *node]);
                Member::new(format!("node-{node}"), [address])
                    .unwrap()
                    .with_reference(format!("aws:///eu-west-1a/i-{node}"))
            })
            .collect();
        let nodes: Arc<[Member]> = members.clone().into();
        let members: Vec<Member> = if self.pods { self.pods() } else { members };
        let wanted = LoadBalancer::new(
            name,
            Scheme::InternetFacing,
            families.iter().copied(),
            listeners.collect(),
            admission,
        )
        .unwrap()
        .with_members(members)
        .unwrap();
        let kind = self.pods.then(|| (format!("{PREFIX}nlb-target-type"), "ip".to_owned()));
        let parameters =
            self.annotations.iter().map(|(key, value)| (format!("{PREFIX}{key}"), value.clone())).chain(kind);
        let want = Want {
            owner: owner(name),
            uid: "uid".to_owned(),
            target: Target::Gone,
            parameters: parameters.collect(),
            nodes,
        };
        Spec::new(&want, &wanted, settings).map_err(|problem| problem.to_string())
    }
}

fn tags(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

/// AWS with a VPC, nodes and their group, and two groups of the users'.
fn aws() -> Snapshot {
    let mut snapshot = Snapshot::default();
    let subnet = |id: &str, zone: &str, range: &str| Subnet {
        id: id.into(),
        vpc: "vpc-1".into(),
        zone: zone.into(),
        range: Some(range.parse().unwrap()),
        ranges6: vec!["2001:db8::/64".parse().unwrap()],
        ..Subnet::default()
    };
    let shared = &mut snapshot.shared;
    shared.subnets = Some(vec![
        subnet("subnet-a", "eu-west-1a", "10.0.0.0/24"),
        subnet("subnet-b", "eu-west-1b", "10.0.1.0/24"),
    ]);
    shared.route_tables = Some(vec![RouteTable { main: true, public: true, ..RouteTable::default() }]);
    for node in 1..=9 {
        let id = format!("i-{node}");
        let groups = BTreeSet::from(["sg-nodes".to_owned()]);
        shared.instances.insert(id.clone(), Instance { id: id.clone(), groups, ..Instance::default() });
        shared.looked_for.insert(id);
    }
    for (id, vpc) in [("sg-nodes", "vpc-1"), ("sg-user", "vpc-1"), ("sg-other", "vpc-1"), ("sg-far", "vpc-2")]
    {
        let group = SecurityGroup {
            id: id.into(),
            name: format!("name-{id}"),
            vpc: vpc.into(),
            ..SecurityGroup::default()
        };
        shared.groups.insert(id.into(), group);
        shared.named.extend([id.to_owned(), format!("name-{id}")]);
    }
    shared.named.insert("sg-none".into());
    snapshot
}

/// What is reachable: by which port which peers get through to how many targets.
type Open = BTreeSet<(u16, &'static str, Peer)>;

fn open(snapshot: &Snapshot, name: &str) -> Open {
    let mut open = Open::new();
    let Some(holding) = snapshot.holdings.get(&owner(name)) else { return open };
    let empty = BTreeMap::new();
    for balancer in holding.balancers.values() {
        for (port, listener) in balancer.listeners.as_ref().unwrap_or(&empty) {
            let pool = listener.target_group.as_ref().and_then(|arn| holding.pools.get(arn));
            assert!(pool.is_some(), "a listener sends to nowhere");
            if pool.is_some_and(|pool| pool.members().unwrap_or_default().is_empty()) {
                continue;
            }
            for transport in super::spec::transports(&listener.protocol) {
                let groups = &balancer.balancer.groups;
                for group in groups.iter().filter_map(|id| holding.groups.get(id)) {
                    let lets_in =
                        |one: &&Permission| one.protocol == *transport && one.from == Some(i32::from(*port));
                    let peers = group.group.ingress.keys().filter(lets_in);
                    open.extend(peers.map(|one| (*port, *transport, one.peer.clone())));
                }
                let given = ["sg-user", "sg-other"].into_iter().filter(|id| groups.contains(*id));
                open.extend(given.map(|id| (*port, *transport, Peer::Group(id.to_owned()))));
                if groups.is_empty() {
                    open.insert((*port, transport, Peer::Group("anyone".to_owned())));
                }
            }
        }
    }
    open
}

/// All that a load balancer may send; with groups of others at least what its listeners need.
fn egress(snapshot: &Snapshot, name: &str) -> BTreeSet<Permission> {
    let Some(holding) = snapshot.holdings.get(&owner(name)) else { return BTreeSet::new() };
    let nodes = BTreeSet::from(["sg-nodes".to_owned()]);
    let shared = &snapshot.shared;
    let given = holding
        .balancers
        .values()
        .filter(|found| found.balancer.groups.iter().any(|id| shared.groups.contains_key(id)));
    let given = given.filter_map(|found| rules::egress_in_use(holding, found, &nodes, shared)).flatten();
    let given: BTreeSet<Permission> = given.collect();
    let attached = holding.balancers.values().flat_map(|balancer| &balancer.balancer.groups);
    let groups = attached.filter_map(|id| {
        let own = holding.groups.get(id).map(|group| &group.group);
        own.or_else(|| {
            snapshot.holdings.values().find_map(|holding| holding.groups.get(id)).map(|group| &group.group)
        })
    });
    groups.flat_map(|group| group.egress.keys().cloned()).chain(given).collect()
}

/// Whether the nodes let in all that an owner's load balancer sends.
fn arrives(snapshot: &Snapshot, name: &str) -> bool {
    let Some(holding) = snapshot.holdings.get(&owner(name)) else { return true };
    let nodes = &snapshot.shared.groups["sg-nodes"].ingress;
    holding.balancers.values().all(|balancer| {
        let groups = &balancer.balancer.groups;
        let is_from = |peer: &Peer| match peer {
            Peer::Group(id) => groups.contains(id),
            _ => groups.is_empty(),
        };
        balancer.listeners.iter().flatten().all(|(_, listener)| {
            let pool = listener.target_group.as_ref().and_then(|arn| holding.pools.get(arn));
            let targets = pool.iter().flat_map(|pool| pool.targets.iter().flatten());
            targets.into_iter().all(|(target, _)| {
                let covers = |one: &Permission| {
                    let port = Some(i32::from(target.port));
                    one.protocol.starts_with(['t', 'u'])
                        && one.from <= port
                        && port <= one.to
                        && is_from(&one.peer)
                };
                nodes.keys().any(covers)
            })
        })
    })
}

/// Whose packets get through.
type Through = BTreeSet<(u16, &'static str, IpAddr)>;

/// Follows packets: from a client into a load balancer, out of it, and into the nodes. Who was in a target group before
/// has to be reached and checked there, and who is in a new one, too; one that was just added has time until it is used.
struct Packets<'a> {
    snapshot: &'a Snapshot,
    balancer: &'a Balancer,
    nodes_are_open: bool,
}

impl<'a> Packets<'a> {
    fn through(snapshot: &'a Snapshot, name: &str, settings: &Settings, before: &Snapshot) -> Through {
        let owner = owner(name);
        let Some(holding) = snapshot.holdings.get(&owner) else { return Through::new() };
        let known = before.holdings.get(&owner);
        let mut through = Through::new();
        for balancer in holding.balancers.values() {
            let packets =
                Packets { snapshot, balancer, nodes_are_open: settings.node_rules == NodeRules::Off };
            for (port, listener) in balancer.listeners.iter().flatten() {
                let pool = &holding.pools[listener.target_group.as_ref().unwrap()];
                let known = known.and_then(|known| known.pools.get(&pool.group.arn)?.members());
                let members = pool.members().unwrap_or_default();
                let known = known.filter(|known| !known.is_disjoint(&members));
                let is_judged =
                    |one: &&&model::Target| known.as_ref().is_none_or(|known| known.contains(**one));
                let judged: Vec<_> = members.iter().filter(is_judged).collect();
                for transport in super::spec::transports(&listener.protocol) {
                    for client in ["10.1.2.3", "192.0.2.9", "203.0.113.7", "198.51.100.1", "2001:db8::7"] {
                        let client: IpAddr = client.parse().unwrap();
                        if packets.comes_in(transport, *port, client)
                            && !judged.is_empty()
                            && judged.iter().all(|target| packets.arrives(transport, pool, target, client))
                        {
                            through.insert((*port, *transport, client));
                        }
                    }
                }
            }
        }
        through
    }

    /// The load balancer's groups that are known; nobody knows what those of others let through.
    fn groups(&self) -> Option<Vec<&'a SecurityGroup>> {
        let ids = &self.balancer.balancer.groups;
        let is_foreign = |id: &String| self.snapshot.shared.groups.contains_key(id);
        if ids.is_empty() || ids.iter().any(is_foreign) {
            return None;
        }
        let all = || self.snapshot.holdings.values().flat_map(|holding| holding.groups.iter());
        Some(ids.iter().map(|id| &all().find(|(known, _)| *known == id).unwrap().1.group).collect())
    }

    fn comes_in(&self, transport: &str, port: u16, client: IpAddr) -> bool {
        let speaks = client.is_ipv4() || self.balancer.balancer.ip_address_type == "dualstack";
        let lets_in = |one: &Permission| {
            covers(one, transport, port) && matches!(one.peer, Peer::Range(range) if range.contains(client))
        };
        speaks && self.groups().is_none_or(|groups| groups.iter().any(|one| one.ingress.keys().any(lets_in)))
    }

    /// Whether a target gets the packets of a client, and the checks.
    fn arrives(&self, transport: &str, pool: &Pool, target: &model::Target, client: IpAddr) -> bool {
        let check = pool.group.health_check.port.parse().unwrap_or(target.port);
        let kind = if pool.group.kind == "ip" { TargetKind::Ip } else { TargetKind::Instance };
        let usual = defaults::of_pool(&pool.group.protocol, kind);
        let set = pool.attributes.as_ref().and_then(|set| set.get("preserve_client_ip.enabled"));
        let preserved = set.or_else(|| usual.get("preserve_client_ip.enabled")).unwrap() == "true";
        let seen = Some(client).filter(|client| preserved && client.is_ipv4());
        self.goes_out(transport, target.port, target)
            && self.is_let_in(transport, target.port, seen)
            && self.goes_out("tcp", check, target)
            && self.is_let_in("tcp", check, None)
    }

    fn goes_out(&self, transport: &str, port: u16, target: &model::Target) -> bool {
        let machine = self.snapshot.shared.instances.get(target.id.as_str());
        let is_to = |peer: &Peer| match (peer, machine) {
            (Peer::Group(id), Some(machine)) => machine.groups.contains(id),
            (Peer::Range(range), None) => range.contains(target.id.parse().unwrap()),
            _ => false,
        };
        let lets_out = |one: &Permission| covers(one, transport, port) && is_to(&one.peer);
        self.groups().is_none_or(|groups| groups.iter().any(|one| one.egress.keys().any(lets_out)))
    }

    /// Whether the nodes let in what comes from a client, or from each of the load balancer's own addresses.
    fn is_let_in(&self, transport: &str, port: u16, client: Option<IpAddr>) -> bool {
        let shared = &self.snapshot.shared;
        let subnets = shared.subnets.iter().flatten();
        let own = subnets.filter(|subnet| self.balancer.balancer.subnets.contains(&subnet.id));
        let own = own.filter_map(|subnet| subnet.range).map(|range| range.network().addr());
        let sources: Vec<IpAddr> = client.map_or_else(|| own.collect(), |client| vec![client]);
        let rules = &shared.groups["sg-nodes"].ingress;
        let is_from = |peer: &Peer, source: IpAddr| match peer {
            Peer::Group(id) => self.balancer.balancer.groups.contains(id),
            Peer::Range(range) => range.contains(source),
            Peer::PrefixList(_) => false,
        };
        let lets_in = |source: &IpAddr| {
            rules.keys().any(|one| covers(one, transport, port) && is_from(&one.peer, *source))
        };
        self.nodes_are_open || sources.iter().all(lets_in)
    }
}

/// Whether a rule is about a port.
fn covers(rule: &Permission, transport: &str, port: u16) -> bool {
    let port = Some(i32::from(port));
    rule.protocol == "-1" || rule.protocol == transport && rule.from <= port && port <= rule.to
}

struct Run(Simulation);

impl Run {
    fn new(settings: Settings) -> Self {
        Run(Simulation {
            wanted: Wanted::default(),
            snapshot: aws(),
            progress: Progress::default(),
            settings,
            steps: Vec::new(),
        })
    }

    fn want(&mut self, name: &str, service: &Service) -> Result<(), String> {
        let (spec, _) = service.spec(name, &self.0.settings)?;
        self.0.wanted.present.insert(owner(name), spec);
        self.0.progress.opened.remove(&owner(name));
        Ok(())
    }

    fn drop(&mut self, name: &str) {
        self.0.wanted.present.remove(&owner(name));
        self.0.wanted.gone.insert(owner(name));
    }

    /// Does what is next for one owner, and for what all share, as when only its Service changes.
    fn settle_one(&mut self, name: &str, each: impl FnMut(&Snapshot)) -> Next {
        let nexts = self.0.run(&[owner(name)].into(), each);
        nexts.unwrap_or_else(|why| panic!("{why:?}")).remove(&owner(name)).unwrap_or_default()
    }

    /// Does what is next until nothing is, and calls `each` after every single step.
    fn settle(&mut self, each: impl FnMut(&Snapshot)) -> BTreeMap<Owner, Next> {
        self.settle_ordered(false, each)
    }

    /// The same; what can be done at the same time is done from its end, if asked for.
    fn settle_ordered(&mut self, backwards: bool, each: impl FnMut(&Snapshot)) -> BTreeMap<Owner, Next> {
        let wanted = &self.0.wanted;
        let owners = wanted.present.keys().chain(&wanted.gone).cloned().collect();
        let order = |steps: &mut Vec<_>| {
            if backwards {
                steps.reverse();
            }
        };
        let nexts = self.0.run_ordered(&owners, order, each);
        nexts.unwrap_or_else(|why| {
            panic!("{why:?}: {:#?}", self.0.steps.iter().rev().take(4).collect::<Vec<_>>())
        })
    }
}

/// What is there in the end, with nothing that depends on the way there.
fn shape(snapshot: &Snapshot) -> String {
    let mut snapshot = snapshot.clone();
    for holding in snapshot.holdings.values_mut().map(Arc::make_mut) {
        for pool in holding.pools.values_mut() {
            let usual = defaults::of_pool(&pool.group.protocol, TargetKind::Instance);
            pool.attributes.get_or_insert_default().retain(|key, value| usual.get(key) != Some(value));
            pool.unproven.clear();
            for state in pool.targets.iter_mut().flat_map(BTreeMap::values_mut) {
                *state = TargetState::Other;
            }
        }
        for balancer in holding.balancers.values_mut() {
            let usual = defaults::of_balancer();
            balancer.attributes.get_or_insert_default().retain(|key, value| usual.get(key) != Some(value));
        }
    }
    format!("{:#?}", (snapshot.holdings, &snapshot.shared.groups["sg-nodes"].ingress))
}

fn service() -> impl Strategy<Value = Service> {
    let port = prop_oneof![
        Just((80, ListenerProtocol::Tcp, 30080)),
        Just((80, ListenerProtocol::Tcp, 30081)),
        Just((443, ListenerProtocol::Tcp, 30443)),
        Just((53, ListenerProtocol::Udp, 30053)),
        Just((53, ListenerProtocol::TcpUdp, 30053)),
        Just((8080, ListenerProtocol::Tcp, 30080)),
    ];
    let annotation = prop_oneof![
        Just(("healthcheck-interval", "20".to_owned())),
        Just(("additional-resource-tags", "team=a,cost=1".to_owned())),
        Just(("additional-resource-tags", "team=b".to_owned())),
        Just(("security-groups", "sg-user".to_owned())),
        Just(("security-groups", "name-sg-other,sg-user".to_owned())),
        Just(("attributes", "load_balancing.cross_zone.enabled=true".to_owned())),
        Just(("target-group-attributes", "proxy_protocol_v2.enabled=true".to_owned())),
        Just(("target-group-attributes", "preserve_client_ip.enabled=false".to_owned())),
        Just(("target-group-attributes", "preserve_client_ip.enabled=true".to_owned())),
        Just(("enable-icmp-for-path-mtu-discovery", "off".to_owned())),
        Just(("ssl-cert", "arn:cert".to_owned())),
        Just(("manage-backend-security-group-rules", "false".to_owned())),
    ];
    let ranges = ["10.0.0.0/8", "192.0.2.0/24", "203.0.113.7/32", "2001:db8::/32"];
    (
        prop::collection::vec(port, 1..4),
        prop::option::of(prop::sample::subsequence(ranges.to_vec(), 0..4)),
        prop::sample::subsequence((1..=9).collect::<Vec<u8>>(), 1..5),
        any::<bool>(),
        any::<bool>(),
        prop::collection::vec(annotation, 0..3),
    )
        .prop_map(|(mut ports, ranges, nodes, local, dual, mut annotations)| {
            ports.sort_by_key(|(port, _, _)| *port);
            ports.dedup_by_key(|(port, _, _)| *port);
            annotations.sort();
            annotations.dedup_by_key(|(key, _)| *key);
            Service { ports, ranges, nodes, local, dual, pods: false, annotations }
        })
}

/// The same, or one that sends to pods.
fn any_service() -> impl Strategy<Value = Service> {
    (service(), any::<bool>()).prop_map(|(service, pods)| Service { pods, ..service })
}

fn node_rules() -> impl Strategy<Value = NodeRules> {
    prop_oneof![Just(NodeRules::Shared), Just(NodeRules::Exact), Just(NodeRules::Off)]
}

fn mode() -> impl Strategy<Value = SecurityGroupMode> {
    prop_oneof![3 => Just(SecurityGroupMode::Managed), 1 => Just(SecurityGroupMode::Unmanaged)]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Whatever is edited, in whatever order: what is there in the end is what a new one would have; at every moment in
    /// between what is open was open before or is wanted after, and what is both is never closed; and in the end all of
    /// it can go.
    #[test]
    fn edits_end_where_a_new_one_would(
        mode in mode(),
        node_rules in node_rules(),
        edits in prop::collection::vec(service(), 1..4),
    ) {
        let settings = Settings { node_rules, ..settings(mode) };
        let mut run = Run::new(settings.clone());
        let mut last = None;
        for edit in &edits {
            // One that cannot be is refused, and changes nothing.
            if edit.spec("web", &settings).is_err() {
                continue;
            }
            // AWS gives groups only at the start.
            let has_none = |service: &Service| {
                mode == SecurityGroupMode::Unmanaged && !service.annotations.iter().any(|(key, _)| *key == "security-groups")
            };
            if last.as_ref().is_some_and(|last: &Service| has_none(last) != has_none(edit)) {
                continue;
            }
            let mut fresh = Run::new(settings.clone());
            fresh.want("web", edit).unwrap();
            if fresh.settle(|_| ()).values().any(|next| next.problem.is_some()) {
                continue;
            }
            let (before, after) = (open(&run.0.snapshot, "web"), open(&fresh.0.snapshot, "web"));
            let (out_before, out_after) = (egress(&run.0.snapshot, "web"), egress(&fresh.0.snapshot, "web"));

            run.want("web", edit).unwrap();
            let nexts = run.settle(|snapshot| {
                let now = open(snapshot, "web");
                assert!(now.iter().all(|one| before.contains(one) || after.contains(one)), "opened: {now:?}");
                if last.is_some() {
                    assert!(before.intersection(&after).all(|one| now.contains(one)), "closed: {now:?}");
                }
                let out = egress(snapshot, "web");
                assert!(out.iter().all(|one| out_before.contains(one) || out_after.contains(one)), "out: {out:?}");
            });
            prop_assert!(nexts.values().all(Next::is_done), "{nexts:#?}");
            prop_assert_eq!(shape(&run.0.snapshot), shape(&fresh.0.snapshot), "{:#?}", run.0.steps);
            last = Some(edit.clone());
        }
        run.drop("web");
        run.settle(|_| ());
        prop_assert_eq!(shape(&run.0.snapshot), shape(&aws()), "{:#?}", run.0.steps);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Services beside each other: what one does takes nothing from another, keeps nobody waiting, and leaves nothing.
    #[test]
    fn neighbours_leave_each_other_alone(
        mode in mode(),
        node_rules in node_rules(),
        edits in prop::collection::vec((0..3_usize, prop::option::of(any_service())), 2..7),
    ) {
        let names = ["web", "shop", "dns"];
        let settings = Settings { node_rules, ..settings(mode) };
        let mut run = Run::new(settings.clone());
        // Where nobody wants the nodes opened for given groups, or nobody may come in at all, nothing arrives.
        let is_closed = |service: &Service| {
            let alone =
                service.annotations.iter().any(|(key, _)| *key == "manage-backend-security-group-rules");
            let nobody = service.ranges.as_ref().is_some_and(|ranges| {
                !service.dual && !ranges.is_empty() && ranges.iter().all(|range| range.contains(':'))
            });
            alone || nobody
        };
        let mut closed = [node_rules == NodeRules::Off; 3];
        let check = |snapshot: &Snapshot, closed: [bool; 3], edited: usize| {
            for (place, name) in names.iter().enumerate().filter(|(place, _)| *place != edited) {
                assert!(closed[place] || arrives(snapshot, name), "{name} is cut");
            }
        };
        let last = (0..names.len()).map(|which| (which, None));
        for (which, edit) in edits.into_iter().chain(last) {
            let name = names[which];
            match &edit {
                Some(service) if service.spec(name, &settings).is_ok() => run.want(name, service).unwrap(),
                Some(_) => continue,
                None => run.drop(name),
            }
            let next = run.settle_one(name, |snapshot| check(snapshot, closed, which));
            if next.problem.is_some() {
                // One that cannot be is as if nobody wanted it.
                run.0.wanted.present.remove(&owner(name));
                continue;
            }
            prop_assert!(next.is_done(), "{next:#?}");
            closed[which] = node_rules == NodeRules::Off || edit.as_ref().is_some_and(is_closed);
            if edit.is_none() {
                run.0.wanted.gone.remove(&owner(name));
                run.0.progress.verified.remove(&owner(name));
            }
        }
        prop_assert_eq!(shape(&run.0.snapshot), shape(&aws()), "{:#?}", run.0.steps);
    }
}

/// Edits one Service step by step; whoever gets through before and after gets through all the time, unless it is told that
/// there is no room for that. In the end all of it is as wanted.
fn is_never_cut(settings: &Settings, edits: &[Service], backwards: bool) {
    let mut run = Run::new(settings.clone());
    for edit in edits {
        if edit.spec("web", settings).is_err() {
            continue;
        }
        let before = run.0.snapshot.clone();
        let known = run.0.wanted.clone();
        run.want("web", edit).unwrap();
        let mut fresh = run.0.clone();
        let next = fresh.run(&[owner("web")].into(), |_| ()).unwrap().remove(&owner("web")).unwrap();
        if let Some(problem) = &next.problem {
            assert!(!problem.what.contains("fault"), "{problem}\n{:#?}", fresh.steps);
            run.0.wanted = known;
            continue;
        }
        assert!(next.is_done() && next.opened, "{next:#?}\n{:#?}", fresh.steps);
        let is_full = next.told.iter().any(|told| told.contains(NO_ROOM) || told.contains(NOT_TOGETHER));
        let after = Packets::through(&fresh.snapshot, "web", settings, &fresh.snapshot);
        let both: Through =
            Packets::through(&before, "web", settings, &before).intersection(&after).copied().collect();
        let mut steps = 0;
        run.settle_ordered(backwards, |now| {
            steps += 1;
            if is_full {
                return;
            }
            let cut: Vec<_> =
                both.difference(&Packets::through(now, "web", settings, &before)).copied().collect();
            assert!(cut.is_empty(), "cut after {steps} steps: {cut:?}\n{:#?}", fresh.steps);
        });
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Whatever of a Service is edited at once, and in whatever order AWS does it.
    #[test]
    fn an_edited_service_is_never_cut(
        mode in mode(),
        node_rules in node_rules(),
        edits in prop::collection::vec(any_service(), 2..5),
        backwards in any::<bool>(),
        rules_per_group in prop_oneof![Just(60_usize), Just(4)],
    ) {
        is_never_cut(&Settings { node_rules, rules_per_group, ..settings(mode) }, &edits, backwards);
    }
}

/// What is told where groups are too full to open first and close last.
const NO_ROOM: &str = "have no room for the old rules and the new ones together";
const NOT_TOGETHER: &str = "do not fit into its groups together";

/// Some of the new fit beside the old, or none, or all.
#[test]
fn full_groups_make_room_before_a_port_changes() {
    const RANGES: [&str; 8] = [
        "192.0.2.0/32",
        "192.0.2.1/32",
        "192.0.2.2/32",
        "192.0.2.3/32",
        "192.0.2.4/32",
        "192.0.2.5/32",
        "192.0.2.6/32",
        "192.0.2.7/32",
    ];
    for (count, is_full) in [(8, true), (6, true), (5, false)] {
        let settings = Settings { rules_per_group: 4, ..settings(SecurityGroupMode::Managed) };
        let service = |port| Service {
            ports: vec![(port, ListenerProtocol::Tcp, 30080)],
            ranges: Some(RANGES[..count].to_vec()),
            ..Service::web()
        };
        let mut run = Run::new(settings);
        run.want("web", &service(80)).unwrap();
        let next = run.settle_one("web", |_| ());
        assert!(next.is_done() && next.opened && next.told.is_empty(), "{next:#?}");
        run.want("web", &service(81)).unwrap();
        let next = run.settle_one("web", |_| ());
        assert!(next.is_done() && next.opened, "{count}: {next:#?}");
        assert_eq!(next.told.iter().any(|told| told.contains(NO_ROOM)), is_full, "{count}: {:?}", next.told);
        let ports: BTreeSet<u16> =
            open(&run.0.snapshot, "web").into_iter().map(|(port, _, _)| port).collect();
        assert_eq!(ports, [81].into());
        assert_eq!(open(&run.0.snapshot, "web").len(), count);
    }
}

#[test]
fn rules_of_several_groups_are_there_until_nobody_needs_them() {
    let ports = |first: u16| (0..3).map(|n| (80 + n, ListenerProtocol::Tcp, first + n)).collect::<Vec<_>>();
    let given = Service { ports: ports(30080), ..Service::web() }.with("security-groups", "sg-user");
    // Those after it are in the first group, and those before it in the second; and the other way round.
    for first in [30010, 30090] {
        let managed = Service { ports: ports(first), ..Service::web() }
            .with("enable-icmp-for-path-mtu-discovery", "off");
        for node_rules in [NodeRules::Shared, NodeRules::Exact] {
            let settings =
                Settings { node_rules, rules_per_group: 3, ..settings(SecurityGroupMode::Managed) };
            for backwards in [false, true] {
                let edits = [given.clone(), managed.clone(), given.clone()];
                is_never_cut(&settings, &edits, backwards);
            }
        }
    }
}

#[test]
fn other_groups_and_other_node_ports_at_once() {
    let before = Service::web();
    let after = Service { ports: vec![(80, ListenerProtocol::Tcp, 30081)], ..Service::web() };
    let given = |service: &Service| service.clone().with("security-groups", "sg-user");
    for node_rules in [NodeRules::Shared, NodeRules::Exact] {
        let settings = Settings { node_rules, ..settings(SecurityGroupMode::Managed) };
        for backwards in [false, true] {
            let pods = Service { pods: true, ..after.clone() };
            let edits = [given(&before), after.clone(), given(&before), pods.clone(), given(&after), pods];
            is_never_cut(&settings, &edits, backwards);
        }
    }
    // It is looked at something that is there.
    let mut run = Run::new(settings(SecurityGroupMode::Managed));
    run.want("web", &before).unwrap();
    run.settle(|_| ());
    let seen = Packets::through(&run.0.snapshot, "web", &run.0.settings, &run.0.snapshot);
    assert_eq!(seen.len(), 4, "{seen:?}");
}

/// What opens the nodes, and what the Service wants, as after a start with another configuration.
fn other_ways_to_open_the_nodes_cut_nobody(
    mode: SecurityGroupMode,
    edits: &[(NodeRules, Service)],
    backwards: bool,
) {
    let mut run = Run::new(settings(mode));
    for (node_rules, edit) in edits {
        let before = run.0.snapshot.clone();
        let known = run.0.settings.clone();
        run.0.settings.node_rules = *node_rules;
        run.0.progress = Progress::default();
        let wanted = run.0.wanted.clone();
        if run.want("web", edit).is_err() {
            run.0.settings = known;
            continue;
        }
        let mut fresh = run.0.clone();
        if fresh.run(&[owner("web")].into(), |_| ()).unwrap().values().any(|next| next.problem.is_some()) {
            (run.0.settings, run.0.wanted) = (known, wanted);
            continue;
        }
        let after = Packets::through(&fresh.snapshot, "web", &run.0.settings, &fresh.snapshot);
        let both: Through =
            Packets::through(&before, "web", &known, &before).intersection(&after).copied().collect();
        let settings = run.0.settings.clone();
        run.settle_ordered(backwards, |now| {
            let through = Packets::through(now, "web", &settings, &before);
            let cut: Vec<_> = both.difference(&through).copied().collect();
            assert!(cut.is_empty(), "cut: {cut:?}\n{:#?}", fresh.steps);
        });
    }
}

#[test]
fn other_node_rules_cut_nobody() {
    use NodeRules::{Exact, Shared};
    let edits = [Exact, Shared, Exact, Shared].map(|rules| (rules, Service::web()));
    for backwards in [false, true] {
        other_ways_to_open_the_nodes_cut_nobody(SecurityGroupMode::Managed, &edits, backwards);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Nor together with any edit.
    #[test]
    fn other_node_rules_and_an_edit_at_once_cut_nobody(
        mode in mode(),
        edits in prop::collection::vec((prop_oneof![Just(NodeRules::Shared), Just(NodeRules::Exact)], any_service()), 2..5),
        backwards in any::<bool>(),
    ) {
        other_ways_to_open_the_nodes_cut_nobody(mode, &edits, backwards);
    }
}

#[test]
fn other_subnets_are_let_in_before_it_has_them() {
    let in_subnets = |subnets: &str| Service::web().with("subnets", subnets);
    let hidden = |subnets: &str| {
        in_subnets(subnets).with("target-group-attributes", "preserve_client_ip.enabled=false")
    };
    let edits =
        [in_subnets("subnet-a"), in_subnets("subnet-a,subnet-b"), hidden("subnet-b"), hidden("subnet-a")];
    for node_rules in [NodeRules::Shared, NodeRules::Exact] {
        for backwards in [false, true] {
            let settings = Settings { node_rules, ..settings(SecurityGroupMode::Unmanaged) };
            is_never_cut(&settings, &edits, backwards);
        }
    }
}

/// Something in the world that is otherwise than usual.
type Change<'a> = &'a dyn Fn(&mut Run);

/// What is said to be enforced has to be, whoever else has rules in the nodes' groups.
#[test]
fn ranges_are_called_enforced_only_where_it_is_sure() {
    let limited = Service { ranges: Some(vec!["192.0.2.0/24"]), ..Service::web() };
    let said = |mode: SecurityGroupMode, service: &Service, change: &dyn Fn(&mut Run)| {
        let mut run = Run::new(settings(mode));
        change(&mut run);
        run.want("web", service).unwrap();
        let next = run.settle_one("web", |_| ());
        assert!(next.is_done(), "{next:#?}");
        match next.enforcement.unwrap() {
            Enforcement::By(who) => (true, who),
            Enforcement::Not(why) => (false, why),
        }
    };
    let rule = |protocol: &'static str, port: u16, peer: &'static str| {
        move |run: &mut Run| {
            let rule = Permission::ports(protocol, port, port, Peer::Range(peer.parse().unwrap()));
            let nodes = run.0.snapshot.shared.groups.get_mut("sg-nodes").unwrap();
            nodes.ingress.insert(rule, "somebody's".to_owned());
        }
    };
    let elsewhere = limited.clone().with("healthcheck-port", "10256");
    let pods = Service { pods: true, ..limited.clone() }
        .with("target-group-attributes", "preserve_client_ip.enabled=true");
    let lists = limited.clone().with("security-group-prefix-lists", "pl-1");
    let (with, without) = (SecurityGroupMode::Managed, SecurityGroupMode::Unmanaged);
    assert_eq!(
        said(with, &limited, &|_| ()),
        (true, "The security groups of its load balancer on AWS".into())
    );
    let nodes = "The security groups of the nodes on AWS";
    assert_eq!(said(without, &elsewhere, &|_| ()), (true, nodes.into()));
    let checked = format!("{nodes}, besides the load balancer's own subnets for its checks,");
    assert_eq!(said(without, &limited, &|_| ()), (true, checked));
    for harmless in [
        rule("tcp", 30081, "0.0.0.0/0"),
        rule("udp", 30080, "0.0.0.0/0"),
        rule("tcp", 30080, "192.0.2.128/25"),
    ] {
        assert_eq!(said(without, &elsewhere, &harmless), (true, nodes.into()));
    }
    let unknown = |run: &mut Run| run.0.settings.node_groups = ["sg-none".to_owned()].into();
    let further = |run: &mut Run| {
        run.0.settings.node_groups = ["sg-nodes".to_owned()].into();
        run.0.snapshot.shared.instances.get_mut("i-1").unwrap().groups.insert("sg-further".to_owned());
    };
    let off = |run: &mut Run| run.0.settings.node_rules = NodeRules::Off;
    let rows: [(SecurityGroupMode, &Service, Change<'_>, &str); 8] = [
        (without, &elsewhere, &rule("tcp", 30080, "0.0.0.0/0"), "sg-nodes, lets in tcp 30080 from 0.0.0.0/0"),
        (without, &elsewhere, &rule("tcp", 30080, "192.0.0.0/16"), "from 192.0.0.0/16"),
        (without, &elsewhere, &unknown, "not all those of the nodes are known"),
        (without, &elsewhere, &further, "not all those of the nodes are known"),
        (without, &elsewhere, &off, "those of the nodes are not looked after"),
        (without, &pods, &|_| (), "for pods of others on the same port"),
        (with, &lists, &|_| (), "security-group-prefix-lists lets in others"),
        (with, &limited.clone().with("security-groups", "sg-user"), &|_| (), "decide alone"),
    ];
    for (mode, service, change, why) in rows {
        let (enforced, found) = said(mode, service, change);
        assert!(!enforced && found.contains(why), "{why}: {found}");
    }
}

/// What is advised where ranges would limit nobody, helps.
#[test]
fn ranges_that_limit_nobody_are_refused_with_what_helps() {
    const SEEN: &str = "preserve_client_ip.enabled=true";
    const FAMILY: &str = "ip-address-type: ipv4";
    const CHECK: &str = "healthcheck-port";
    let limited = Service { ranges: Some(vec!["192.0.2.0/24"]), ..Service::web() };
    let dual = Service { dual: true, ..limited.clone() };
    let pods = Service { pods: true, ..limited.clone() };
    let refused = |service: &Service| {
        let mut run = Run::new(settings(SecurityGroupMode::Unmanaged));
        run.want("web", service).unwrap();
        run.settle_one("web", |_| ()).problem.map(|problem| problem.remedy)
    };
    for (service, advised, not, ways) in [
        (
            &dual,
            vec![FAMILY, CHECK],
            SEEN,
            vec![vec![("ip-address-type", "ipv4")], vec![("healthcheck-port", "10256")]],
        ),
        (&pods, vec![SEEN], FAMILY, vec![vec![("target-group-attributes", SEEN)]]),
    ] {
        let remedy = refused(service).unwrap();
        assert!(advised.iter().all(|one| remedy.contains(one)) && !remedy.contains(not), "{remedy}");
        for way in ways {
            let helped = way.iter().fold(service.clone(), |service, (key, value)| service.with(key, value));
            assert_eq!(refused(&helped), None, "{way:?}");
        }
    }
}

#[test]
fn a_new_one_takes_few_calls() {
    for ports in 1..4_u16 {
        let mut run = Run::new(settings(SecurityGroupMode::Managed));
        let other = Service::web();
        run.want("other", &other).unwrap();
        run.settle(|_| ());
        run.0.steps.clear();
        let ports_of = (0..ports).map(|port| (80 + port, ListenerProtocol::Tcp, 30100 + port)).collect();
        let service = Service { ports: ports_of, ..Service::web() };
        run.want("web", &service).unwrap();
        run.settle(|_| ());
        assert_eq!(run.0.steps.len(), usize::from(5 + 3 * ports), "{:#?}", run.0.steps);
        run.0.steps.clear();
        run.drop("web");
        run.settle(|_| ());
        assert_eq!(run.0.steps.len(), usize::from(2 + ports), "{:#?}", run.0.steps);
    }
}

#[test]
fn targets_keep_their_family_when_the_last_of_them_goes() {
    let settings = settings(SecurityGroupMode::Managed);
    let families =
        [(vec![Family::V6], "ipv6"), (vec![Family::V4], "ipv4"), (vec![Family::V4, Family::V6], "ipv4")];
    for (families, expected) in families {
        let address: IpAddr = if expected == "ipv6" { "2001:db8::9" } else { "10.0.0.9" }.parse().unwrap();
        for members in [vec![Member::new("pod", [address]).unwrap()], Vec::new()] {
            let listener = Listener::new(80, ListenerProtocol::Tcp, 8080).unwrap();
            let everyone = Admission {
                ranges: SourceRanges::parse(None::<Vec<&str>>).unwrap(),
                empty_means: EmptyMeans::Everyone,
            };
            let families = families.iter().copied();
            let wanted =
                LoadBalancer::new("web", Scheme::Internal, families, vec![listener], everyone).unwrap();
            let want = Want {
                owner: owner("web"),
                uid: "uid".to_owned(),
                target: Target::Gone,
                parameters: [(format!("{PREFIX}nlb-target-type"), "ip".to_owned())].into(),
                nodes: Arc::default(),
            };
            let (spec, _) = Spec::new(&want, &wanted.with_members(members).unwrap(), &settings).unwrap();
            assert_eq!(spec.listeners[&80].backend.ip_address_type, expected);
        }
    }
}

#[test]
fn tags_are_as_told() {
    let (spec, _) = Service::web()
        .with("additional-resource-tags", "a=b")
        .spec("web", &settings(SecurityGroupMode::Managed))
        .unwrap();
    let expected = tags(&[
        ("a", "b"),
        ("kubernetes.io/cluster/demo", "owned"),
        ("portcullis.dev/cluster", "demo"),
        ("portcullis.dev/format", "1"),
        ("portcullis.dev/kind", "Service"),
        ("portcullis.dev/name", "web"),
        ("portcullis.dev/namespace", "shop"),
    ]);
    assert_eq!(spec.tags, expected);
}

#[test]
fn a_plan_says_it_in_words() {
    let mut run = Run::new(settings(SecurityGroupMode::Managed));
    for subnet in run.0.snapshot.shared.subnets.iter_mut().flatten() {
        subnet.ranges6.clear();
    }
    let service = Service { ranges: Some(vec!["203.0.113.0/24"]), ..Service::web() };
    run.want("web", &service).unwrap();
    let before = run.0.snapshot.clone();
    run.settle(|_| ());
    let spec = run.0.wanted.present.get(&owner("web"));
    let plan =
        view::plan(&owner("web"), spec, &run.0.settings, &before, &run.0.snapshot, &run.0.steps).unwrap();
    let expected = "\
Service shop/web  →  aws-nlb in vpc-1 (mode Managed)

  + security group  k8s-backend-demo-ccb8c6c7f8
      - out         all              to 0.0.0.0/0           what AWS gives every new group
  + target group    k8s-shop-web-dababe521a
      + to          tcp 30080                               target port
      + checked by  tcp traffic-port every 30 s
      + targets     2
  + security group  k8s-shop-web-7d7aec9885
      + in          icmp 3/4         from 203.0.113.0/24    path MTU discovery
      + in          tcp 80           from 203.0.113.0/24
      + out         tcp 30080        to sg-nodes            to the targets
      - out         all              to 0.0.0.0/0           what AWS gives every new group
  ~ security group  sg-nodes
      + in          tcp 10256        from k8s-backend-demo-ccb8c6c7f8
      + in          tcp 30000-32767  from k8s-backend-demo-ccb8c6c7f8
      + in          udp 30000-32767  from k8s-backend-demo-ccb8c6c7f8
  + load balancer   k8s-shop-web-aa39f4e28a
      + scheme      internet-facing
      + addresses   ipv4
      + subnets     subnet-a, subnet-b
      + groups      k8s-backend-demo-ccb8c6c7f8, k8s-shop-web-7d7aec9885
      + listener    tcp 80           to k8s-shop-web-dababe521a

Who may reach it:  before  nobody
                   after   203.0.113.0/24 on tcp 80
Access gets wider: 203.0.113.0/24 on tcp 80
What it may reach: before  nothing
                   after   group sg-nodes over IPv4 on tcp 30080
Reaches further:   group sg-nodes over IPv4 on tcp 30080
11 calls, none destructive.
";
    assert_eq!(plan.to_string(), expected, "{plan}");
}
