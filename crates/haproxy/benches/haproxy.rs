//! HAProxy with many load balancers: how long a change of members takes, and what a connection pays for going through it.
//!
//! Everything runs in network namespaces. Times are of this machine; what they have to do with each other is not.
//!
//! `BALANCERS=50` in the environment makes it fifty; the limit is for five hundred. `--only changes` leaves connections out,
//! `--only connections` the rest. A limit that is missed ends it with a failure.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a bench talks")]

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use portcullis_core::{
    Admission, Duty, EmptyMeans, Family, Listener, ListenerProtocol, LoadBalancer, Member, MemberState,
    Scheme, SourceRanges,
};
use portcullis_haproxy::{Balancer, BalancerId, Instance, Options, Seen, Settings, Tuning, Wanted};
use portcullis_testkit::parts::{Namespace, Scratch};
use portcullis_testkit::{Host, Leash, eventually, link};
use tokio::runtime::{Builder, Runtime};

/// So many changes of each kind are measured, and so many connections.
const CHANGES: usize = 100;
const CONNECTIONS: usize = 3000;
/// Limits: one change at the median, and how many times as long a connection may take as without HAProxy.
const CHANGE: Duration = Duration::from_millis(100);
const RATIO: f64 = 3.0;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let only =
        arguments.iter().skip_while(|argument| *argument != "--only").nth(1).cloned().unwrap_or_default();
    let count = std::env::var("BALANCERS").map_or(500, |number| number.parse().unwrap());
    let mut kept = true;
    if only != "connections" {
        kept &= changes(count);
    }
    if only != "changes" {
        kept &= connections();
    }
    if kept {
        return ExitCode::SUCCESS;
    }
    println!("A limit is missed.");
    ExitCode::FAILURE
}

/// An HAProxy that ends with the bench.
struct Proxy {
    instance: Instance,
    runtime: Runtime,
    machine: Host,
    _leash: Leash,
    _scratch: Scratch,
}

impl Proxy {
    fn new(machine: &Host) -> Self {
        let scratch = Scratch::new().unwrap();
        let leash = Leash::new(scratch.path());
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        let settings = Settings::new(scratch.path());
        let instance = on(machine, || runtime.block_on(Instance::start(settings))).unwrap();
        Proxy { instance, runtime, machine: machine.clone(), _leash: leash, _scratch: scratch }
    }

    fn apply(&mut self, wanted: &Wanted) -> (Seen, Duration) {
        let (runtime, instance) = (&self.runtime, &mut self.instance);
        on(&self.machine, || {
            let start = Instant::now();
            let seen = runtime.block_on(instance.apply(wanted, SystemTime::now())).unwrap();
            (seen, start.elapsed())
        })
    }
}

fn changes(count: u16) -> bool {
    println!("\n{count} load balancers with a listener, a source range and three members each\n");
    let machine = Host::new("machine");
    let mut proxy = Proxy::new(&machine);
    let mut wanted = Wanted {
        balancers: (0..count).map(|number| balancer(number, members(3))).collect(),
        tuning: Tuning::default(),
    };
    row("first, with HAProxy started", proxy.apply(&wanted).1, "");
    row("the same again, with nothing to do", proxy.apply(&wanted).1, "");

    let mut kept = true;
    let by = SystemTime::now() + Duration::from_secs(3600);
    let leaves = || {
        let mut four = members(4);
        four[3] = four[3].clone().with_duty(Duty::Leave { by });
        four
    };
    let mut come: Vec<Duration> = Vec::new();
    let mut gone: Vec<Duration> = Vec::new();
    for round in 0..CHANGES {
        let number = u16::try_from(round * 7919 % usize::from(count)).unwrap();
        let at = usize::from(number);
        wanted.balancers[at] = balancer(number, members(4));
        let (seen, took) = proxy.apply(&wanted);
        assert!(
            seen.balancers[&wanted.balancers[at].id].members.contains_key("member-3") && !seen.unfinished
        );
        come.push(took);
        wanted.balancers[at] = balancer(number, leaves());
        let (seen, took) = proxy.apply(&wanted);
        let member = &seen.balancers[&wanted.balancers[at].id].members["member-3"];
        assert_eq!(member.state, MemberState::Removed);
        gone.push(took);
        wanted.balancers[at] = balancer(number, members(3));
    }
    for (what, times) in [("one member more", &mut come), ("one member drained and gone", &mut gone)] {
        kept &= report(what, times);
    }
    let mut ranges = Vec::new();
    for round in 0..CHANGES {
        let at = round * 7919 % usize::from(count);
        let third = u8::try_from(round % 250 + 1).unwrap();
        let of = &wanted.balancers[at].load_balancer;
        let range = format!("172.16.{third}.0/24").parse().unwrap();
        let admission = Admission { ranges: SourceRanges::listed([range]), empty_means: EmptyMeans::Nobody };
        wanted.balancers[at].load_balancer =
            LoadBalancer::new(of.name(), Scheme::Internal, [Family::V4], of.listeners().to_vec(), admission)
                .and_then(|new| {
                    new.with_addresses(of.addresses().to_vec())?.with_members(of.members().to_vec())
                })
                .unwrap();
        ranges.push(proxy.apply(&wanted).1);
    }
    kept &= report("one source range changed", &mut ranges);
    let mut reloads = Vec::new();
    for round in 0..10 {
        wanted.balancers.push(balancer(count + round, members(3)));
        reloads.push(proxy.apply(&wanted).1);
    }
    reloads.sort();
    row("one load balancer more: a reload", reloads[5], "");
    kept
}

fn report(what: &str, times: &mut [Duration]) -> bool {
    times.sort();
    let (median, most) = (times[times.len() / 2], times[times.len() * 99 / 100]);
    let kept = median < CHANGE;
    let mark = if kept { "=" } else { "✗ MISSED" };
    row(what, median, &format!("99 of 100 within {:.1} ms  {mark}", most.as_secs_f64() * 1000.0));
    kept
}

fn row(what: &str, took: Duration, more: &str) {
    println!("{what:<44} {:>9.2} ms  {more}", took.as_secs_f64() * 1000.0);
}

fn connections() -> bool {
    let [client, machine, member] = ["client", "machine", "member"].map(Host::new);
    link(&client, &["192.0.2.10/24"], &machine, &["192.0.2.1/24"]);
    link(&member, &["10.0.0.2/24"], &machine, &["10.0.0.1/24"]);
    machine.forward();
    client.default_route("192.0.2.1");
    member.default_route("10.0.0.1");
    serve(&member);
    let mut proxy = Proxy::new(&machine);
    let at: SocketAddr = "192.0.2.1:80".parse().unwrap();
    let load_balancer = LoadBalancer::new(
        "web",
        Scheme::Internal,
        [Family::V4],
        vec![Listener::new(80, ListenerProtocol::Tcp, 80).unwrap()],
        Admission { ranges: SourceRanges::absent(), empty_means: EmptyMeans::Nobody },
    )
    .and_then(|web| {
        let members = vec![Member::new("member", [Ipv4Addr::new(10, 0, 0, 2).into()]).unwrap()];
        web.with_addresses(vec![at.ip()])?.with_members(members)
    })
    .unwrap();
    let id = BalancerId::new("shop", "web");
    let web = Balancer { id: id.clone(), load_balancer, options: Options::default() };
    let wanted = Wanted { balancers: vec![web], tuning: Tuning::default() };
    eventually("the member serves", || {
        proxy.apply(&wanted).0.balancers[&id].members["member"].state == MemberState::Active
    });

    println!("\n{CONNECTIONS} connections, each with a question and an answer, one after the other\n");
    let direct: SocketAddr = "10.0.0.2:80".parse().unwrap();
    let (mut of_direct, mut of_proxied) = (Vec::new(), Vec::new());
    on(&client, || {
        for _ in 0..CONNECTIONS {
            of_direct.push(connection(direct));
            of_proxied.push(connection(at));
        }
    });
    of_direct.sort();
    of_proxied.sort();
    let middle = CONNECTIONS / 2;
    let ratio = of_proxied[middle].as_secs_f64() / of_direct[middle].as_secs_f64();
    row("straight to the member", of_direct[middle], "");
    row("through HAProxy", of_proxied[middle], "");
    let kept = ratio < RATIO;
    println!("{:<44} {ratio:>9.2} times  {}", "ratio", if kept { "=" } else { "✗ MISSED" });
    kept
}

fn connection(to: SocketAddr) -> Duration {
    let start = Instant::now();
    let mut stream = TcpStream::connect(to).unwrap();
    stream.set_nodelay(true).unwrap();
    stream.write_all(b"?").unwrap();
    let mut answer = [0; 1];
    stream.read_exact(&mut answer).unwrap();
    start.elapsed()
}

/// Answers a byte with a byte.
fn serve(host: &Host) {
    let listener = on(host, || TcpListener::bind(("0.0.0.0", 80))).unwrap();
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            thread::spawn(move || {
                let mut question = [0; 1];
                while stream.read(&mut question).is_ok_and(|length| length > 0) {
                    if stream.write_all(b"!").is_err() {
                        return;
                    }
                }
            });
        }
    });
}

fn balancer(number: u16, members: Vec<Member>) -> Balancer {
    let address: IpAddr = Ipv4Addr::from((10 << 24) + u32::from(number) + 1).into();
    let range = format!("172.{}.0.0/16", number % 16 + 16).parse().unwrap();
    let admission = Admission { ranges: SourceRanges::listed([range]), empty_means: EmptyMeans::Nobody };
    let listener = Listener::new(6443, ListenerProtocol::Tcp, 6443).unwrap();
    let load_balancer =
        LoadBalancer::new(format!("api-{number}"), Scheme::Internal, [Family::V4], vec![listener], admission)
            .and_then(|balancer| balancer.with_addresses(vec![address])?.with_members(members))
            .unwrap();
    let id = BalancerId::new("clusters", format!("api-{number}"));
    Balancer { id, load_balancer, options: Options::default() }
}

/// Nobody is there: what is measured is HAProxy's own time, and that of its checks, which fail.
fn members(count: u8) -> Vec<Member> {
    let member = |number: u8| {
        Member::new(format!("member-{number}"), [Ipv4Addr::new(127, 0, 0, number + 1).into()]).unwrap()
    };
    (0..count).map(member).collect()
}

/// Does something in the network of a host.
fn on<T: Send>(host: &Namespace, work: impl FnOnce() -> T + Send) -> T {
    host.run(work)
}
