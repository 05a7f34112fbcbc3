use std::fmt::{self, Write as _};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;
use portcullis_core::{Admission, EmptyMeans, Owner, Protocol, SourceRanges};
use portcullis_host::datapath::{Datapath, Frontend, Interface, Mode, Place};
use portcullis_testkit::figures::{mark, median};
use portcullis_testkit::parts::kubernetes::Kubernetes;
use portcullis_testkit::{Host, KubeProxy, eventually, kubernetes_in, link};

use crate::changes::frontend;
use crate::on;

/// Ways are measured in turns, so that they have the same machine, and ours and kube-proxy's right after each other, in an order that
/// changes. What counts is by how much they differ within a turn, in the middle of all turns.
const TURNS: usize = 41;
/// Of so many differences, in order, the one in the middle is between these two, in 95 of 100 runs: as likely as 41 coins have 13 heads
/// or fewer, or 28 or more.
const BETWEEN: (usize, usize) = (13, 27);
/// Ours looks at the source of every packet, and kube-proxy at that of new connections alone: so much slower is as fast.
const TOLERATED: f64 = 0.01;
/// Connections, and questions on one connection, in each turn.
const CONNECTIONS: usize = 400;
const QUESTIONS: usize = 2000;
/// For so long is sent as much as there is room for.
const STREAM: Duration = Duration::from_millis(400);
/// kube-proxy has few Services beside the one that is measured: with ten thousand it takes most of a minute to start.
const SERVICES: usize = 200;
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
    /// Ours in mode `filter`, before kube-proxy's.
    Filtered,
}

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
    let interfaces = ["to-client", "to-backend"].map(|name| Interface {
        name: name.to_owned(),
        addresses: Vec::new(),
        is_kept: false,
    });
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
        Way::Filtered => {
            lab.node.nft(&theirs);
            on(&lab.node, || datapath.sync(Mode::Filter, &interfaces, ours())).unwrap();
            let figures = lab.measure(ADDRESS);
            on(&lab.node, || datapath.sync(Mode::None, &[], [])).unwrap();
            lab.node.run("nft flush ruleset");
            figures
        }
    };
    let mut turns = Vec::with_capacity(TURNS);
    for turn in 0..TURNS {
        let direct = figures(Way::Direct);
        turns.push(if turn % 2 == 0 {
            let ours = figures(Way::Ours);
            [direct, ours, figures(Way::KubeProxy), figures(Way::Filtered)]
        } else {
            let filtered = figures(Way::Filtered);
            let theirs = figures(Way::KubeProxy);
            [direct, figures(Way::Ours), theirs, filtered]
        });
    }
    println!("{:<32} {:>14} {:>14} {:>14} {:>14}", "", "direct", "ours", "kube-proxy", "with filter");
    for kind in KINDS {
        let cells = [0, 1, 2, 3].map(|way| {
            let mut all: Vec<f64> = turns.iter().map(|turn| (kind.of)(&turn[way])).collect();
            all.sort_by(f64::total_cmp);
            format!("{:.1} {}", all[TURNS / 2], kind.unit)
        });
        let (behind, filtered) = (Behind::of(&turns, &kind, 1), Behind::of(&turns, &kind, 3));
        println!(
            "{:<32} {:>14} {:>14} {:>14} {:>14} {} {behind}",
            kind.what,
            cells[0],
            cells[1],
            cells[2],
            cells[3],
            mark(behind.is_kept()),
        );
        println!("{:<32} kube-proxy with the filter of ours before it: {filtered}", "");
    }
    println!(
        "The median of {TURNS} turns, and that of the differences within each of them, which is between the two others in 95 of 100 runs. \
         It is kept where ours is not shown to be slower by more than {:.0} %: where the first of these is not above that.",
        100.0 * TOLERATED
    );
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

/// The medians of a turn, in the units that are printed.
#[derive(Clone, Copy)]
struct Figures {
    connection: f64,
    answer: f64,
    throughput: f64,
}

/// What is measured.
struct Kind {
    what: &'static str,
    unit: &'static str,
    of: fn(&Figures) -> f64,
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

/// By how much a way is behind kube-proxy, as a part of what kube-proxy takes.
struct Behind {
    least: f64,
    median: f64,
    most: f64,
}

impl Behind {
    fn of(turns: &[[Figures; 4]], kind: &Kind, way: usize) -> Self {
        let behind = |turn: &[Figures; 4]| {
            let (ours, theirs) = ((kind.of)(&turn[way]), (kind.of)(&turn[2]));
            if kind.more_is_better { theirs / ours - 1.0 } else { ours / theirs - 1.0 }
        };
        let mut all: Vec<f64> = turns.iter().map(behind).collect();
        all.sort_by(f64::total_cmp);
        Behind { least: all[BETWEEN.0], median: all[TURNS / 2], most: all[BETWEEN.1] }
    }

    fn is_kept(&self) -> bool {
        self.least <= TOLERATED
    }
}

impl fmt::Display for Behind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Behind { least, median, most } = self;
        let word = if *median > 0.0 { "behind" } else { "ahead" };
        let (least, most) = (100.0 * least, 100.0 * most);
        write!(f, "{:.1} % {word} ({least:+.1} to {most:+.1} %)", 100.0 * median.abs())
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
            connection: micros((0..CONNECTIONS).map(|_| {
                let start = Instant::now();
                ask(&mut connect(at(TALK)));
                start.elapsed()
            })),
            answer: {
                let mut stream = connect(at(TALK));
                micros((0..QUESTIONS).map(|_| {
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
fn stream(to: SocketAddr) -> f64 {
    let mut stream = connect(to);
    let chunk = vec![0; 1 << 17];
    let (start, mut chunks) = (Instant::now(), 0_u32);
    while start.elapsed() < STREAM {
        stream.write_all(&chunk).unwrap();
        chunks += 1;
    }
    f64::from(chunks) * f64::from(1 << 17) / start.elapsed().as_secs_f64() / 1e6
}

fn micros(times: impl Iterator<Item = Duration>) -> f64 {
    let mut times: Vec<Duration> = times.collect();
    median(&mut times).as_secs_f64() * 1e6
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
