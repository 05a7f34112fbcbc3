use std::fmt::Write as _;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;
use portcullis_core::{Admission, EmptyMeans, Owner, Protocol, SourceRanges};
use portcullis_host::datapath::{Datapath, Frontend, Mode, Place};
use portcullis_testkit::figures::{mark, median};
use portcullis_testkit::parts::kubernetes::Kubernetes;
use portcullis_testkit::{Host, KubeProxy, eventually, kubernetes_in, link};

use crate::changes::frontend;
use crate::on;

/// Ways are measured in turns, so that they have the same machine. The best turn counts: what others do on the machine only
/// ever makes it worse. Where ours is behind by more than the noise after so many turns there are more, up to the most, which
/// end as soon as it is not: that is in favour of ours, and what is printed says so.
const TURNS: usize = 15;
const MOST_TURNS: usize = 60;
/// Connections, and questions on one connection, in each turn.
const CONNECTIONS: usize = 400;
const QUESTIONS: usize = 2000;
/// For so long is sent as much as there is room for.
const STREAM: Duration = Duration::from_millis(400);
/// kube-proxy has few Services beside the one that is measured: with ten thousand it takes most of a minute to start.
const SERVICES: usize = 200;
/// One in so many is in the noise between two ways that are equally fast. What is printed says by how much ours is ahead or
/// behind, and whether it is kept only by that.
const NOISE: u64 = 10;

const ADDRESS: &str = "203.0.113.100";
const BACKEND: &str = "10.244.0.2";
const RANGE: &str = "192.0.2.0/24";
/// Ports of the backend: one answers every byte, one takes whatever comes.
const TALK: u16 = 8080;
const SINK: u16 = 8081;

/// The ways that packets take, on the same machines.
#[derive(Clone, Copy)]
enum Way {
    /// The node only routes.
    Direct,
    Ours,
    KubeProxy,
}

const WAYS: [Way; 3] = [Way::Direct, Way::Ours, Way::KubeProxy];

pub(crate) fn measure(count: u32) {
    println!(
        "\nPackets through a node: {count} frontends of ours, {SERVICES} Services of kube-proxy (nftables mode); source range \
         and masquerade on both\n"
    );
    let theirs = rules_of_kube_proxy();
    stay_on_one_processor();
    let lab = Lab::new();
    let mut datapath = on(&lab.node, Datapath::open).unwrap();
    let ours = || (0..count).map(|number| frontend(number, 24, 2)).chain([TALK, SINK].map(serve));
    let mut figures = |way| match way {
        Way::Direct => lab.measure(BACKEND),
        Way::Ours => {
            on(&lab.node, || datapath.sync(Mode::Nftables, &[], ours())).unwrap();
            let figures = lab.measure(ADDRESS);
            on(&lab.node, || datapath.sync(Mode::None, &[], [])).unwrap();
            figures
        }
        Way::KubeProxy => {
            lab.node.nft(&theirs);
            let figures = lab.measure(ADDRESS);
            lab.node.run("nft flush ruleset");
            figures
        }
    };
    let mut best = [Figures::default(); 3];
    let mut turns = 0;
    while turns < TURNS || (turns < MOST_TURNS && KINDS.iter().any(|kind| !kind.is_kept(&best))) {
        for (best, way) in best.iter_mut().zip(WAYS) {
            best.improve(&figures(way));
        }
        turns += 1;
    }
    println!("{:<32} {:>16} {:>16} {:>16}", "", "direct", "ours", "kube-proxy");
    for kind in KINDS {
        let cells = best.map(|figures| {
            format!("{:.1} {}", Duration::from_nanos((kind.of)(&figures)).as_secs_f64() * 1e6, kind.unit)
        });
        println!(
            "{:<32} {:>16} {:>16} {:>16} {} {}",
            kind.what,
            cells[0],
            cells[1],
            cells[2],
            mark(kind.is_kept(&best)),
            kind.difference(&best)
        );
    }
    println!("The best of {turns} turns. Up to {} % behind counts as kept: that is the noise.", 100 / NOISE);
    if turns > TURNS {
        println!(
            "After the usual {TURNS} ours was behind by more than that: there were more turns, which end when it is not."
        );
    }
}

/// Otherwise what is measured is mostly who wakes whom on which processor, which differs from turn to turn.
fn stay_on_one_processor() {
    let mut one = CpuSet::new();
    one.set(0).unwrap();
    sched_setaffinity(Pid::from_raw(0), &one).unwrap();
}

/// What a kube-proxy sets for the Service that is measured, and others. Its rules count, wherever they are: on the same machines
/// as ours they meet the same memory, sockets and threads.
fn rules_of_kube_proxy() -> String {
    let host = Host::new("proxy");
    let kubernetes = kubernetes_in(&host);
    let _proxy = KubeProxy::start(&kubernetes, "node1", "192.0.2.1");
    services(&kubernetes);
    let mut rules = String::new();
    eventually("kube-proxy has rules", || {
        rules = host.run("nft list ruleset");
        [TALK, SINK].iter().all(|port| rules.contains(&format!("{ADDRESS} . tcp . {port} : goto")))
    });
    rules
}

/// The best medians so far, in thousandths of the unit that is printed.
#[derive(Clone, Copy)]
struct Figures {
    connection: u64,
    answer: u64,
    throughput: u64,
}

impl Default for Figures {
    fn default() -> Self {
        Self { connection: u64::MAX, answer: u64::MAX, throughput: 0 }
    }
}

impl Figures {
    fn improve(&mut self, turn: &Self) {
        self.connection = self.connection.min(turn.connection);
        self.answer = self.answer.min(turn.answer);
        self.throughput = self.throughput.max(turn.throughput);
    }
}

/// What is measured.
struct Kind {
    what: &'static str,
    unit: &'static str,
    of: fn(&Figures) -> u64,
    more_is_better: bool,
}

const KINDS: [Kind; 3] = [
    Kind {
        what: "a new connection and an answer",
        unit: "µs",
        of: |figures| figures.connection,
        more_is_better: false,
    },
    Kind {
        what: "an answer on an established one",
        unit: "µs",
        of: |figures| figures.answer,
        more_is_better: false,
    },
    Kind {
        what: "throughput of one connection",
        unit: "MB/s",
        of: |figures| figures.throughput,
        more_is_better: true,
    },
];

impl Kind {
    /// What should be the smaller one of ours and kube-proxy's, and the other.
    fn pair(&self, best: &[Figures; 3]) -> (u64, u64) {
        let (ours, theirs) = ((self.of)(&best[1]), (self.of)(&best[2]));
        if self.more_is_better { (theirs, ours) } else { (ours, theirs) }
    }

    /// Whether ours is as good as kube-proxy, or behind by no more than the noise.
    fn is_kept(&self, best: &[Figures; 3]) -> bool {
        let (smaller, larger) = self.pair(best);
        smaller <= larger.saturating_add(larger / NOISE)
    }

    /// By how much ours is ahead, or behind, in tenths of a percent of what should be the larger one.
    fn difference(&self, best: &[Figures; 3]) -> String {
        let (smaller, larger) = self.pair(best);
        let percent = |by: u64| {
            let tenths = by.saturating_mul(1000) / larger.max(1);
            format!("{}.{} %", tenths / 10, tenths % 10)
        };
        if smaller <= larger {
            format!("{} ahead", percent(larger - smaller))
        } else if self.is_kept(best) {
            format!("{} behind, within the noise", percent(smaller - larger))
        } else {
            format!("{} behind", percent(smaller - larger))
        }
    }
}

/// A client, a node and a backend.
struct Lab {
    client: Host,
    node: Host,
    _backend: Host,
}

impl Lab {
    fn new() -> Self {
        let [client, node, backend] = ["client", "node", "backend"].map(Host::new);
        link(&client, &["192.0.2.10/24"], &node, &["192.0.2.1/24"]);
        link(&backend, &["10.244.0.2/24"], &node, &["10.244.0.1/24"]);
        node.forward();
        client.default_route("192.0.2.1");
        backend.default_route("10.244.0.1");
        for (port, handle) in [(TALK, talk as fn(TcpStream)), (SINK, sink)] {
            let listener = on(&backend, || TcpListener::bind(("0.0.0.0", port))).unwrap();
            thread::spawn(move || {
                for stream in listener.incoming().flatten() {
                    thread::spawn(move || handle(stream));
                }
            });
        }
        Lab { client, node, _backend: backend }
    }

    fn measure(&self, address: &str) -> Figures {
        let at = |port| SocketAddr::new(address.parse().unwrap(), port);
        on(&self.client, || Figures {
            connection: nanos((0..CONNECTIONS).map(|_| {
                let start = Instant::now();
                ask(&mut connect(at(TALK)));
                start.elapsed()
            })),
            answer: {
                let mut stream = connect(at(TALK));
                nanos((0..QUESTIONS).map(|_| {
                    let start = Instant::now();
                    ask(&mut stream);
                    start.elapsed()
                }))
            },
            throughput: stream(at(SINK)),
        })
    }
}

fn connect(to: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(to).unwrap();
    stream.set_nodelay(true).unwrap();
    // The greeting: whoever only wants to know whether somebody is there gets an answer too.
    (&stream).read_exact(&mut [0]).unwrap();
    stream
}

fn ask(stream: &mut TcpStream) {
    stream.write_all(b"?").unwrap();
    stream.read_exact(&mut [0]).unwrap();
}

/// How much is sent in a second, in MB.
fn stream(to: SocketAddr) -> u64 {
    let mut stream = connect(to);
    let chunk = vec![0; 1 << 17];
    let (start, mut sent) = (Instant::now(), 0u64);
    while start.elapsed() < STREAM {
        stream.write_all(&chunk).unwrap();
        sent += 1 << 17;
    }
    let micros = u64::try_from(start.elapsed().as_micros()).unwrap();
    sent * 1000 / micros
}

fn nanos(times: impl Iterator<Item = Duration>) -> u64 {
    let mut times: Vec<Duration> = times.collect();
    u64::try_from(median(&mut times).as_nanos()).unwrap()
}

fn talk(mut stream: TcpStream) {
    let _ = stream.set_nodelay(true);
    let _ = stream.write_all(b"!");
    while stream.read_exact(&mut [0]).is_ok() {
        let _ = stream.write_all(b"!");
    }
}

fn sink(mut stream: TcpStream) {
    let _ = stream.write_all(b"!");
    let mut buffer = vec![0; 1 << 18];
    while stream.read(&mut buffer).is_ok_and(|length| length > 0) {}
}

fn serve(port: u16) -> Frontend {
    let place = Place::new(ADDRESS.parse().unwrap(), Protocol::TCP, port).unwrap();
    let owner = Owner::new("bench", "Service", Some("default".into()), "web").unwrap();
    let ranges = SourceRanges::parse(Some([RANGE])).unwrap();
    let admission = Admission { ranges, empty_means: EmptyMeans::Everyone };
    Frontend::new(place, owner, admission, [SocketAddr::new(BACKEND.parse().unwrap(), port)]).unwrap()
}

/// The Service that is measured, and others.
fn services(kubernetes: &Kubernetes) {
    let mut manifests = String::new();
    for number in 0..SERVICES {
        let _ = write!(
            manifests,
            "
apiVersion: v1
kind: Service
metadata: {{name: web-{number}}}
spec:
  type: LoadBalancer
  externalTrafficPolicy: Cluster
  allocateLoadBalancerNodePorts: false
  loadBalancerSourceRanges: [{RANGE}]
  ports: [{{name: talk, port: {TALK}}}, {{name: sink, port: {SINK}}}]
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {{name: web-{number}, labels: {{kubernetes.io/service-name: web-{number}}}}}
addressType: IPv4
endpoints: [{{addresses: [{BACKEND}], conditions: {{ready: true}}}}]
ports: [{{name: talk, port: {TALK}, protocol: TCP}}, {{name: sink, port: {SINK}, protocol: TCP}}]
---"
        );
    }
    kubernetes.apply(&manifests).unwrap();
    let status = format!(r#"{{"status":{{"loadBalancer":{{"ingress":[{{"ip":"{ADDRESS}"}}]}}}}}}"#);
    kubernetes
        .kubectl(&["patch", "service", "web-0", "--subresource=status", "--type=merge", "-p", &status])
        .unwrap();
}
