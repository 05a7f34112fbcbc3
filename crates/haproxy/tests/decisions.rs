//! What is decided, against a model of HAProxy that does as the real one was seen to do.

#![allow(clippy::unwrap_used, reason = "a test that fails says where")]

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, SystemTime};

use portcullis_core::{
    Admission, Duty, EmptyMeans, Family, Listener, ListenerProtocol, LoadBalancer, Member, Scheme,
    SourceRanges,
};
use portcullis_haproxy::{
    Admin, Balance, Balancer, BalancerId, Look, Memory, Options, Order, Running, Server, Step, Tuning,
    Wanted, Why, closing, keeps_out, next, questions,
};
use proptest::prelude::*;

type Key = (String, String);

/// So many workers may be left of reloads.
const OLD_WORKERS: usize = 2;

/// HAProxy and the files, as far as decisions know them.
#[derive(Debug, Default)]
struct World {
    look: Look,
    memory: Memory,
    /// The number of the current worker, and of the next.
    worker: u32,
    now: u64,
    /// The port that another program has, unless HAProxy was there before.
    other: Option<u16>,
}

impl World {
    fn new() -> Self {
        let look = Look { directory: "/d".into(), families: Family::ALL.into(), ..Look::default() };
        World { look, ..World::default() }
    }

    fn time(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(self.now)
    }

    /// Sees who listens where, and which workers there are.
    fn look_around(&mut self, wanted: &Wanted) {
        self.look.taken.clear();
        let asked = questions(wanted, &self.look);
        let taken = asked.into_iter().filter(|place| self.other == Some(place.port()));
        self.look.taken = taken.map(|place| (place, "nginx".to_owned())).collect();
        let current = self.worker;
        if let Some(running) = &mut self.look.running {
            // Old workers end with their last connection. Later ones have higher numbers.
            let busy: BTreeSet<u32> = running.sessions.values().flat_map(BTreeMap::keys).copied().collect();
            running.old = busy.into_iter().filter(|worker| *worker != current).collect();
        }
    }

    /// Does the first steps of what is decided, and forgets all of it.
    fn begin(&mut self, wanted: &Wanted, steps: usize) {
        self.look_around(wanted);
        let decision = next(wanted, &self.look, &self.memory, self.time());
        decision.steps.into_iter().take(steps).for_each(|step| self.step(step));
        self.memory = Memory::default();
    }

    /// Does what is decided until nothing is, which is soon.
    fn settle(&mut self, wanted: &Wanted) {
        for _ in 0..8 {
            self.look_around(wanted);
            let decision = next(wanted, &self.look, &self.memory, self.time());
            self.memory = decision.memory;
            if decision.steps.is_empty() {
                return;
            }
            for step in decision.steps {
                self.step(step);
            }
        }
        panic!("it does not come to rest: {:?}", next(wanted, &self.look, &self.memory, self.time()).steps);
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::WriteRanges { file, text } => {
                self.look.ranges.insert(file, text);
            }
            Step::WriteFile { text, ask_first } => {
                let structure = |text: &str| -> Vec<String> {
                    text.lines().filter(|line| !line.starts_with("    server ")).map(str::to_owned).collect()
                };
                let same = self.look.file.as_ref().is_some_and(|file| structure(file) == structure(&text));
                assert_eq!(ask_first, !same, "HAProxy is asked about what is more than members");
                self.look.file = Some(text);
            }
            Step::Start { states } => {
                assert!(self.look.running.is_none(), "it runs");
                self.load(&states, BTreeMap::new());
            }
            Step::Reload { states } => {
                let before = self.look.running.take().expect("what reloads runs");
                self.load(&states, before.sessions);
            }
            Step::Admit { file, ranges } => {
                let text = ranges.iter().fold(String::new(), |text, range| text + range + "\n");
                assert_eq!(self.look.ranges[&file], text, "the file comes first");
                let running = self.look.running.as_mut().unwrap();
                assert!(running.ranges.insert(file, ranges).is_some(), "the worker has to know the file");
            }
            Step::Server { backend, server, order } => self.order((backend, server), &order),
            Step::RemoveRanges { file } => {
                assert!(!self.look.file.as_ref().unwrap().contains(&format!("/{file} ")), "it is in use");
                self.look.ranges.remove(&file).expect("it is there");
            }
        }
    }

    /// A worker reads the file.
    fn load(&mut self, states: &str, sessions: BTreeMap<Key, BTreeMap<u32, u64>>) {
        self.worker += 1;
        let text = self.look.file.as_ref().expect("the file comes first");
        let up = |key: &Key| {
            let line = states.lines().find(|line| {
                let words: Vec<&str> = line.split(' ').collect();
                words.len() > 5 && (words[1], words[3]) == (key.0.as_str(), key.1.as_str())
            });
            // Without a line, it would be up before it is checked.
            line.expect("each has a state").split(' ').nth(5) == Some("2")
        };
        let mut running = Running { sessions, ..Running::default() };
        let mut backend = "";
        for line in text.lines() {
            let words: Vec<&str> = line.split_whitespace().collect();
            match words[..] {
                ["description", number] => running.generation = Some(number.parse().unwrap()),
                ["frontend", name] => assert!(running.proxies.insert(name.to_owned()), "two of one name"),
                ["backend", name] => backend = name,
                ["server", name, ..] => {
                    let key = (backend.to_owned(), name.to_owned());
                    let aside = words.last() == Some(&"disabled");
                    let (admin, up) = if aside { (Admin::Maint, false) } else { (Admin::Ready, up(&key)) };
                    running.servers.insert(key, Server { admin, up, check: String::new() });
                }
                ["tcp-request", .., path, "}"] => {
                    let name = path.rsplit('/').next().unwrap();
                    let ranges = self.look.ranges[name].lines().map(str::to_owned).collect();
                    running.ranges.insert(name.to_owned(), ranges);
                }
                _ => {}
            }
        }
        self.look.running = Some(running);
    }

    fn order(&mut self, key: Key, order: &Order) {
        let text = self.look.file.clone().unwrap();
        let in_file = |key: &Key| {
            let of_backend = text.split("\nbackend ").find(|part| part.starts_with(&format!("{}\n", key.0)));
            of_backend.is_some_and(|part| part.contains(&format!("    server {} ", key.1)))
        };
        let running = self.look.running.as_mut().unwrap();
        if let Order::Add { line } = order {
            assert!(running.proxies.contains(&key.0), "there is no such proxy");
            assert!(
                in_file(&key) && text.contains(&format!("server {} {line}\n", key.1)),
                "the file comes first"
            );
            let server = Server { admin: Admin::Maint, up: false, check: String::new() };
            assert!(running.servers.insert(key, server).is_none(), "it is there");
            return;
        }
        let busy = running.sessions.get(&key).is_some_and(|workers| workers.contains_key(&self.worker));
        if let Order::Cut { worker, sessions, .. } = order {
            let workers = running.sessions.get_mut(&key).expect("there is something to cut");
            assert_eq!(workers.remove(worker), Some(*sessions));
            running.sessions.retain(|_, workers| !workers.is_empty());
            return;
        }
        let server = running.servers.get_mut(&key).expect("it is there");
        match order {
            Order::Open => {
                assert_eq!(server.admin, Admin::Maint);
                (server.admin, server.up) = (Admin::Ready, false);
            }
            Order::Resume => {
                assert_eq!(server.admin, Admin::Drain);
                server.admin = Admin::Ready;
            }
            Order::Drain => {
                assert_eq!(server.admin, Admin::Ready);
                server.admin = Admin::Drain;
            }
            Order::Aside => (server.admin, server.up) = (Admin::Maint, false),
            Order::Delete => {
                assert!(server.admin == Admin::Maint && !busy, "HAProxy would refuse");
                assert!(!in_file(&key), "a reload would bring it back");
                running.servers.remove(&key);
            }
            Order::Add { .. } | Order::Cut { .. } => unreachable!(),
        }
    }

    /// All checks pass.
    fn check(&mut self) {
        let servers = self.look.running.iter_mut().flat_map(|running| running.servers.values_mut());
        servers.filter(|server| server.admin != Admin::Maint).for_each(|server| server.up = true);
    }

    /// Everyone who may gets a connection.
    fn connect(&mut self) {
        let Some(running) = &mut self.look.running else { return };
        for (key, server) in &running.servers {
            if server.up && server.admin == Admin::Ready {
                *running.sessions.entry(key.clone()).or_default().entry(self.worker).or_default() += 1;
            }
        }
    }
}

/// What happens.
#[derive(Clone, Debug)]
enum Event {
    Want(Vec<Spec>),
    /// HAProxy ends.
    End,
    /// Our process ends.
    Forget,
    /// Something else is wanted, and our process is killed after so many steps of it.
    Kill(usize, Vec<Spec>),
    Connect,
    Check,
    Pass(u64),
    /// Somebody else's program comes or goes.
    Take(Option<u16>),
}

#[derive(Clone, Debug)]
struct Spec {
    name: u8,
    everywhere: bool,
    ports: BTreeSet<u16>,
    udp: bool,
    ranges: Option<Vec<u8>>,
    random: bool,
    members: BTreeMap<u8, (bool, Duties)>,
}

#[derive(Clone, Copy, Debug)]
enum Duties {
    Serve,
    Rest(u64),
    Leave(u64),
}

fn specs() -> impl Strategy<Value = Vec<Spec>> {
    let duty = prop_oneof![
        3 => Just(Duties::Serve),
        1 => (0..40_u64).prop_map(Duties::Rest),
        1 => (0..40_u64).prop_map(Duties::Leave),
    ];
    let members = prop::collection::btree_map(0..4_u8, (any::<bool>(), duty), 0..4);
    let ranges = prop::option::of(prop::collection::vec(0..4_u8, 0..3));
    let ports = prop::collection::btree_set(80..83_u16, 1..3);
    let spec = (0..3_u8, any::<bool>(), ports, prop::bool::weighted(0.1), ranges, any::<bool>(), members)
        .prop_map(|(name, everywhere, ports, udp, ranges, random, members)| Spec {
            name,
            everywhere,
            ports,
            udp,
            ranges,
            random,
            members,
        });
    prop::collection::vec(spec, 0..4)
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let event = prop_oneof![
        4 => specs().prop_map(Event::Want),
        1 => Just(Event::End),
        1 => Just(Event::Forget),
        2 => (0..6_usize, specs()).prop_map(|(steps, specs)| Event::Kill(steps, specs)),
        3 => Just(Event::Connect),
        3 => Just(Event::Check),
        2 => (1..30_u64).prop_map(Event::Pass),
        1 => prop::option::of(80..83_u16).prop_map(Event::Take),
    ];
    prop::collection::vec(event, 1..30)
}

fn wanted(specs: &[Spec], at: u64) -> Wanted {
    let by = |seconds: u64| SystemTime::UNIX_EPOCH + Duration::from_secs(at + seconds);
    let balancer = |spec: &Spec| {
        let protocol = if spec.udp { ListenerProtocol::Udp } else { ListenerProtocol::Tcp };
        let listeners = spec.ports.iter().map(|port| Listener::new(*port, protocol, 6443).unwrap()).collect();
        let ranges = spec.ranges.as_ref().map(|list| list.iter().map(|number| format!("10.{number}.0.0/16")));
        let admission =
            Admission { ranges: SourceRanges::parse(ranges).unwrap(), empty_means: EmptyMeans::Nobody };
        let members: Vec<Member> = spec
            .members
            .iter()
            .map(|(number, (moved, duty))| {
                let address = format!("10.9.{}.{number}", u8::from(*moved)).parse().unwrap();
                Member::new(format!("member-{number}"), [address]).unwrap().with_duty(match duty {
                    Duties::Serve => Duty::Serve,
                    Duties::Rest(seconds) => Duty::Rest { by: by(*seconds) },
                    Duties::Leave(seconds) => Duty::Leave { by: by(*seconds) },
                })
            })
            .collect();
        let addresses = if spec.everywhere {
            vec![]
        } else {
            vec![format!("192.0.2.{}", spec.name + 1).parse().unwrap()]
        };
        let load_balancer = LoadBalancer::new("x", Scheme::Internal, Family::ALL, listeners, admission)
            .and_then(|balancer| balancer.with_addresses(addresses)?.with_members(members))
            .unwrap()
            .with_drain_deadline(Duration::from_secs(20));
        let balance = if spec.random { Balance::Random } else { Balance::RoundRobin };
        let options = Options { send_proxy: false, balance };
        Balancer { id: BalancerId::new("shop", format!("b{}", spec.name)), load_balancer, options }
    };
    let tuning = Tuning { old_workers: OLD_WORKERS, ..Tuning::default() };
    Wanted { balancers: specs.iter().map(balancer).collect(), tuning }
}

/// All is as wanted, by another reading of it.
fn assert_wanted(world: &World, wanted: &Wanted) {
    let running = world.look.running.as_ref().unwrap();
    let mut expected: BTreeMap<Key, Admin> = BTreeMap::new();
    let mut known = BTreeSet::new();
    for balancer in &wanted.balancers {
        // Of two of one name the first counts.
        if !known.insert(&balancer.id) {
            continue;
        }
        for listener in balancer.load_balancer.listeners() {
            let proxy = format!("shop:{}:{}", balancer.id.name, listener.port());
            if !running.proxies.contains(&proxy) {
                continue;
            }
            for member in balancer.load_balancer.members() {
                let key = (proxy.clone(), format!("{}:{}:6443", member.name(), member.addresses()[0]));
                match member.duty() {
                    Duty::Serve => drop(expected.insert(key, Admin::Ready)),
                    // One that is to rest from the beginning need not even be known.
                    Duty::Rest { .. } if !running.servers.contains_key(&key) => {}
                    Duty::Rest { .. } => drop(expected.insert(key, Admin::Maint)),
                    Duty::Leave { .. } => {}
                }
            }
        }
    }
    let found: BTreeMap<Key, Admin> =
        running.servers.iter().map(|(key, server)| (key.clone(), server.admin)).collect();
    assert_eq!(found, expected);
    for (key, workers) in &running.sessions {
        let serves = found.get(key) == Some(&Admin::Ready);
        // What came by a listener that is gone goes on if its member is to serve by others, or would if it could.
        let of_balancer = |balancer: &&Balancer| key.0.starts_with(&format!("shop:{}:", balancer.id.name));
        let balancer = wanted.balancers.iter().find(of_balancer);
        let members = balancer.iter().flat_map(|balancer| balancer.load_balancer.members());
        let mut members = members.filter(|member| member.duty() == Duty::Serve);
        let goes_on = !running.proxies.contains(&key.0)
            && members.any(|member| key.1 == format!("{}:{}:6443", member.name(), member.addresses()[0]));
        assert!(serves || goes_on, "{key:?} still has {workers:?}");
    }
}

proptest! {
    #[test]
    fn what_is_wanted_is_reached_whatever_happens(events in events()) {
        let mut world = World::new();
        let mut want = wanted(&[], 0);
        for event in events {
            match event {
                Event::Want(specs) => want = wanted(&specs, world.now),
                Event::End => {
                    if let Some(running) = world.look.running.take() {
                        let up = running.servers.iter().filter(|(_, server)| server.up);
                        world.look.was_up = up.map(|(key, _)| key.clone()).collect();
                    }
                }
                Event::Forget => world.memory = Memory::default(),
                Event::Kill(steps, specs) => {
                    want = wanted(&specs, world.now);
                    world.begin(&want, steps);
                }
                Event::Connect => world.connect(),
                Event::Check => world.check(),
                Event::Pass(seconds) => world.now += seconds,
                Event::Take(port) => world.other = port,
            }
            // Who serves and is up stays so, whatever else changes.
            let up_before: BTreeSet<Key> = serving(&world);
            world.settle(&want);
            let up_after = serving(&world);
            let running = world.look.running.as_ref().unwrap();
            let old: BTreeSet<u32> = running.sessions.values().flat_map(BTreeMap::keys).copied().collect();
            prop_assert!(old.iter().filter(|worker| **worker != world.worker).count() <= OLD_WORKERS);
            for key in up_before {
                let still = running.servers.get(&key).is_some_and(|server| server.admin == Admin::Ready);
                prop_assert!(!still || up_after.contains(&key), "{key:?} lost its share");
            }
        }
        // Long after: the last who are not spoken of are noticed, and then gone.
        for _ in 0..2 {
            world.now += 1000;
            world.settle(&want);
        }
        assert_wanted(&world, &want);
    }
}

fn serving(world: &World) -> BTreeSet<Key> {
    let servers = world.look.running.iter().flat_map(|running| &running.servers);
    servers
        .filter(|(_, server)| server.up && server.admin == Admin::Ready)
        .map(|(key, _)| key.clone())
        .collect()
}

#[test]
fn a_reload_gives_nobody_more_time() {
    let serves = (false, Duties::Serve);
    let spec = |name: u8, ports: &[u16], members: &[u8]| Spec {
        name,
        everywhere: false,
        ports: ports.iter().copied().collect(),
        udp: false,
        ranges: None,
        random: false,
        members: members.iter().map(|member| (*member, serves)).collect(),
    };
    // One is not spoken of any more, or its load balancer is not, and something else is made known by a reload half a time later.
    for (what, after, later, time) in [
        ("a member", vec![spec(0, &[80], &[0])], vec![spec(0, &[80, 81], &[0])], 20),
        ("a load balancer", vec![], vec![spec(1, &[81], &[0])], LoadBalancer::DRAIN_DEADLINE.as_secs()),
    ] {
        let mut world = World::new();
        world.settle(&wanted(&[spec(0, &[80], &[0, 1])], 0));
        world.check();
        world.connect();
        let has = |world: &World| {
            let sessions = &world.look.running.as_ref().unwrap().sessions;
            sessions.keys().any(|key| key.1.starts_with("member-1:"))
        };
        world.settle(&wanted(&after, 0));
        assert!(has(&world), "{what}");
        let worker = world.worker;
        world.now = time / 2;
        world.settle(&wanted(&later, 0));
        assert!(world.worker > worker && has(&world), "{what}: there was a reload");
        world.now = time - 1;
        world.settle(&wanted(&later, 0));
        assert!(has(&world), "{what} has time");
        world.now = time;
        world.settle(&wanted(&later, 0));
        assert!(!has(&world), "{what}: its time is over");
    }
}

#[test]
fn what_is_cut_is_cut_once() {
    let key = |number: u32| ("shop:gone:80".to_owned(), format!("member-{number}:10.0.0.1:80"));
    let workers: BTreeMap<u32, u64> = [(1, 2), (2, 0), (3, 4)].into();
    let running = Running {
        old: vec![1, 2, 3],
        generation: Some(1),
        sessions: (0..4).map(|number| (key(number), workers.clone())).collect(),
        ..Running::default()
    };
    // The time of half of them is over, and the first worker is one too many.
    let mut world = World::new();
    world.settle(&wanted(&[], 0));
    world.look.running = Some(running);
    world.now = 10;
    world.memory.unspoken =
        (0..2).map(|number| (key(number), SystemTime::UNIX_EPOCH + Duration::from_secs(10))).collect();
    let decision = next(&wanted(&[], 0), &world.look, &world.memory, world.time());
    let cuts: Vec<(String, u32, u64, Why)> = decision
        .steps
        .into_iter()
        .filter_map(|step| match step {
            Step::Server { server, order: Order::Cut { worker, sessions, why }, .. } => {
                Some((server, worker, sessions, why))
            }
            _ => None,
        })
        .collect();
    let mut expected = Vec::new();
    for number in 0..4 {
        let over = number < 2;
        expected.push((key(number).1, 1, 2, if over { Why::TimeIsOver } else { Why::TooManyWorkers }));
        if over {
            expected.push((key(number).1, 3, 4, Why::TimeIsOver));
        }
    }
    assert_eq!(cuts.iter().collect::<BTreeSet<_>>(), expected.iter().collect());
    assert_eq!(cuts.len(), expected.len());
}

/// Where files cannot be written, who is to be kept out is, and who leaves gets nothing new. Nothing is opened.
#[test]
fn what_closes_needs_no_file() {
    let spec = |ports: &[u16], ranges: &[u8], members: &[(u8, Duties)]| Spec {
        name: 0,
        everywhere: false,
        ports: ports.iter().copied().collect(),
        udp: false,
        ranges: Some(ranges.to_vec()),
        random: false,
        members: members.iter().map(|(number, duty)| (*number, (false, *duty))).collect(),
    };
    let (serve, leave) = (Duties::Serve, Duties::Leave(10));
    let mut world = World::new();
    world.settle(&wanted(&[spec(&[80], &[0, 1], &[(0, serve), (1, serve), (3, serve)])], 0));
    world.check();
    let file = "shop:b0.v4".to_owned();
    // One leaves, one comes, and of one nobody speaks any more. Of the ranges one goes and one comes, and so it is with ports.
    let after = wanted(&[spec(&[80, 81], &[1, 2], &[(0, serve), (1, leave), (2, serve)])], 0);
    let steps = |world: &World| closing(&after, &world.look, &world.memory, world.time()).steps;
    let order = |order: Order| Step::Server {
        backend: "shop:b0:80".to_owned(),
        server: "member-1:10.9.0.1:6443".to_owned(),
        order,
    };
    let ranges = ["10.1.0.0/16".to_owned()].into();
    assert_eq!(steps(&world), [Step::Admit { file: file.clone(), ranges }, order(Order::Drain)]);

    // What is done is not done again, and its time is over when it would be.
    let key = ("shop:b0:80".to_owned(), "member-1:10.9.0.1:6443".to_owned());
    let worker = world.worker;
    let running = world.look.running.as_mut().unwrap();
    running.ranges.insert(file, ["10.1.0.0/16".to_owned()].into());
    running.servers.get_mut(&key).unwrap().admin = Admin::Drain;
    running.sessions.insert(key, [(worker, 3)].into());
    assert_eq!(steps(&world), []);
    world.now = 10;
    let cut = Order::Cut { worker, sessions: 3, why: Why::TimeIsOver };
    assert_eq!(steps(&world), [order(Order::Aside), order(cut)]);

    // Who was open to everyone is limited by another file alone, and so is what is new; that one lets nobody in.
    assert!(keeps_out(&after, &world.look));
    let open = || Spec { ranges: None, ..spec(&[80], &[], &[(0, serve)]) };
    let mut world = World::new();
    world.settle(&wanted(&[open()], 0));
    assert!(keeps_out(&wanted(&[open()], 0), &world.look));
    assert!(!keeps_out(&wanted(&[spec(&[80], &[1], &[(0, serve)])], 0), &world.look));
    let new = Spec { name: 1, ..spec(&[81], &[1], &[(0, serve)]) };
    assert!(keeps_out(&wanted(&[open(), new], 0), &world.look));

    // Who wants another port, which is taken, listens where it did: fewer may connect there all the same.
    let mut world = World::new();
    world.settle(&wanted(&[spec(&[80], &[0, 1], &[(0, serve)])], 0));
    world.other = Some(81);
    let moved = wanted(&[spec(&[81], &[1], &[(0, serve)])], 0);
    world.look_around(&moved);
    let steps = closing(&moved, &world.look, &world.memory, world.time()).steps;
    assert_eq!(
        steps,
        [Step::Admit { file: "shop:b0.v4".to_owned(), ranges: ["10.1.0.0/16".to_owned()].into() }]
    );

    // A load balancer that is gone, whatever comes in its place.
    let mut world = World::new();
    world.settle(&wanted(&[spec(&[80], &[0], &[(0, serve)])], 0));
    let other = Spec { name: 1, ..spec(&[80], &[0], &[(1, serve)]) };
    let steps = closing(&wanted(&[other], 0), &world.look, &world.memory, world.time()).steps;
    let server = "member-0:10.9.0.0:6443".to_owned();
    assert_eq!(steps, [Step::Server { backend: "shop:b0:80".to_owned(), server, order: Order::Drain }]);
}
