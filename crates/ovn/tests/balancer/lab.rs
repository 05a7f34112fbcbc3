//! A logical switch with machines on it, behind a logical router, and what makes load balancers there.

use std::collections::BTreeMap;
use std::net::{IpAddr, UdpSocket};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use nix::sys::signal::Signal;
use portcullis_core::{
    Admission, Duty, EmptyMeans, Family, HealthCheck, HealthPort, Listener, ListenerProtocol, LoadBalancer,
    Member, MemberState, Outcome, Owner, Probe, Provider as _, Report, Scheme, SourceRanges, Target, Want,
};
use portcullis_ovn::balancer::{Provider, Settings, Sweep};
use portcullis_testkit::parts::ovn::Ovn;
use portcullis_testkit::parts::{Namespace, run};
use portcullis_testkit::talk::Backend;
use portcullis_testkit::{Host, eventually_within, ovn, plug};

pub(crate) const VIP: &str = "192.0.2.10";
pub(crate) const VIP6: &str = "2001:db8::10";
pub(crate) const PORT: u16 = 443;
/// Where members listen.
pub(crate) const TARGET: u16 = 6443;

pub(crate) struct Lab {
    pub(crate) ovn: Ovn,
}

/// Who answers on a socket that goes on. A datagram may be lost: it is sent again, for longer than a busy machine takes.
pub(crate) fn answer(socket: &UdpSocket) -> Option<String> {
    let mut buffer = [0; 64];
    // What came too late for the last time is no answer to this.
    socket.set_nonblocking(true).unwrap();
    while socket.recv(&mut buffer).is_ok() {}
    socket.set_nonblocking(false).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
    (0..20).find_map(|_| {
        socket.send(b"?").ok()?;
        let length = socket.recv(&mut buffer).ok()?;
        Some(String::from_utf8_lossy(&buffer[..length]).into_owned())
    })
}

/// A machine on a port of the switch.
pub(crate) struct Machine {
    pub(crate) name: String,
    pub(crate) host: Host,
    pub(crate) addresses: [IpAddr; 2],
}

impl Lab {
    pub(crate) fn new() -> Self {
        let lab = Lab { ovn: ovn() };
        lab.nbctl("ls-add sw");
        lab.nbctl("lr-add r");
        lab.nbctl("lrp-add r r-sw 02:00:00:00:00:01 10.0.0.1/24 fd00::1/64");
        lab.nbctl("lsp-add sw sw-r -- lsp-set-type sw-r router -- lsp-set-addresses sw-r router -- lsp-set-options sw-r router-port=r-sw");
        lab
    }

    pub(crate) fn nbctl(&self, command: &str) -> String {
        let words: Vec<&str> = command.split_whitespace().collect();
        self.ovn.nbctl(&words).unwrap()
    }

    /// The socket of the southbound database.
    pub(crate) fn southbound(&self) -> PathBuf {
        self.ovn.southbound().strip_prefix("unix:").unwrap().into()
    }

    pub(crate) fn sbctl(&self, command: &str) -> String {
        let database = format!("--db={}", self.ovn.southbound());
        let words: Vec<&str> = std::iter::once(database.as_str()).chain(command.split_whitespace()).collect();
        run(&Namespace::host(), "ovn-sbctl", &words).unwrap()
    }

    /// A machine with the addresses of that number.
    pub(crate) fn machine(&self, name: &str, number: u8) -> Machine {
        let (mac, v4, v6) =
            (format!("02:00:00:00:01:{number:02x}"), format!("10.0.0.{number}"), format!("fd00::{number:x}"));
        self.ovn.nbctl(&["lsp-add", "sw", name]).unwrap();
        self.ovn.nbctl(&["lsp-set-addresses", name, &format!("{mac} {v4} {v6}")]).unwrap();
        let host = plug(&self.ovn, name, &mac, &[&format!("{v4}/24"), &format!("{v6}/64")]);
        host.default_route("10.0.0.1");
        host.run("ip -6 route replace default via fd00::1");
        // Who makes many connections has more of them in a minute than ports otherwise, and a port rests for a minute.
        host.set("net/ipv4/ip_local_port_range", "1024 65535");
        let addresses = [v4.parse().unwrap(), v6.parse().unwrap()];
        Machine { name: name.to_owned(), host, addresses }
    }

    /// Machines that serve.
    pub(crate) fn backends(&self, count: u8) -> Vec<(Machine, Backend)> {
        let one = |number| {
            let machine = self.machine(&format!("b{number}"), 20 + number);
            let backend = Backend::start(&machine.host, TARGET);
            (machine, backend)
        };
        (1..=count).map(one).collect()
    }

    pub(crate) fn provider(&self) -> Provider {
        self.provider_with(&self.ovn.southbound())
    }

    /// One that looks for the southbound database there.
    pub(crate) fn provider_with(&self, southbound: &str) -> Provider {
        Provider::start(Settings {
            remotes: vec![self.ovn.northbound().parse().unwrap()],
            southbound: vec![southbound.parse().unwrap()],
            tls: None,
            durable: false,
            sweep: Some(Sweep {
                cluster: "c".to_owned(),
                kind: "Test".to_owned(),
                identity: "0a1b".to_owned(),
            }),
        })
    }

    pub(crate) fn settle(&self) {
        self.ovn.settle().unwrap();
    }

    /// Makes it so, and waits until it is in force.
    pub(crate) async fn make(&self, provider: &Provider, want: &Want) -> Report {
        let report = provider.sync(want).await;
        assert_eq!(report.outcome, Outcome::Done);
        self.settle();
        report
    }

    /// Looks at it until one is where it should be.
    pub(crate) fn until(
        &self,
        provider: &Provider,
        want: &Want,
        name: &str,
        expected: MemberState,
    ) -> Report {
        let mut last = None;
        // Usual checks take most of a minute to find somebody well.
        eventually_within(Duration::from_secs(180), &format!("{name} is {expected}"), || {
            let report = last.insert(now(provider.sync(want)));
            report.members.iter().any(|member| member.name == name && member.state == expected)
        });
        self.settle();
        last.unwrap()
    }

    /// Stops the program that tells the switch what to do, or lets it go on.
    pub(crate) fn controller(&mut self, signal: Signal) {
        self.ovn.processes().find(|process| process.name() == "ovn-controller").unwrap().signal(signal);
    }

    /// All rows of load balancers, as text.
    pub(crate) fn rows(&self) -> String {
        let tables = ["Load_Balancer", "Load_Balancer_Health_Check", "ACL", "Address_Set"];
        tables.map(|table| self.nbctl(&format!("--columns=_uuid list {table}"))).concat()
    }
}

pub(crate) fn owner(name: &str) -> Owner {
    Owner::new("c", "Test", Some("ns".to_owned()), name).unwrap()
}

pub(crate) fn member(machine: &Machine) -> Member {
    Member::new(&machine.name, machine.addresses).unwrap()
}

pub(crate) fn members(backends: &[(Machine, Backend)]) -> Vec<Member> {
    backends.iter().map(|(machine, _)| member(machine)).collect()
}

pub(crate) fn everyone() -> Option<&'static [&'static str]> {
    None
}

/// A listener with a check that a machine which is busy with other tests does not fail.
pub(crate) fn listener(protocol: ListenerProtocol) -> Listener {
    let check = HealthCheck::new(Probe::Tcp, HealthPort::Traffic).unwrap();
    Listener::new(PORT, protocol, TARGET).unwrap().with_health_check(check)
}

/// A listener with a check that soon finds who does not answer, and not who is slow a few times.
pub(crate) fn quick_listener() -> Listener {
    let check = HealthCheck::new(Probe::Tcp, HealthPort::Traffic).unwrap();
    let check = check.with_timing(Duration::from_secs(1), Duration::from_secs(1)).unwrap();
    let check = check.with_thresholds(1, 5).unwrap();
    Listener::new(PORT, ListenerProtocol::Tcp, TARGET).unwrap().with_health_check(check)
}

pub(crate) fn want_on(
    name: &str,
    vips: &[&str],
    listener: Listener,
    members: Vec<Member>,
    ranges: Option<&[&str]>,
) -> Want {
    let vips: Vec<IpAddr> = vips.iter().map(|vip| vip.parse().unwrap()).collect();
    let families: Vec<Family> = vips.iter().copied().map(Family::of).collect();
    let admission =
        Admission { ranges: SourceRanges::parse(ranges).unwrap(), empty_means: EmptyMeans::Nobody };
    let wanted = LoadBalancer::new(name, Scheme::Internal, families, vec![listener], admission).unwrap();
    let wanted = wanted.with_addresses(vips).unwrap().with_members(members).unwrap();
    Want {
        owner: owner(name),
        uid: "uid".to_owned(),
        target: Target::Present(wanted),
        parameters: BTreeMap::from([("portcullis.dev/ovn-switches".to_owned(), "sw".to_owned())]),
        nodes: Arc::default(),
    }
}

/// A load balancer on the switch, over TCP.
pub(crate) fn want(members: Vec<Member>, ranges: Option<&[&str]>) -> Want {
    want_on("web", &[VIP, VIP6], listener(ListenerProtocol::Tcp), members, ranges)
}

pub(crate) fn gone(name: &str) -> Want {
    Want {
        owner: owner(name),
        uid: String::new(),
        target: Target::Gone,
        parameters: BTreeMap::new(),
        nodes: Arc::default(),
    }
}

/// Within a test that may block.
pub(crate) fn now<T>(future: impl Future<Output = T>) -> T {
    tokio::task::block_in_place(|| tokio::runtime::Handle::current().block_on(future))
}

/// With one that leaves, by some time.
pub(crate) fn with_leaving(mut members: Vec<Member>, name: &str, by: SystemTime) -> Vec<Member> {
    for member in &mut members {
        if member.name() == name {
            *member = member.clone().with_duty(Duty::Leave { by });
        }
    }
    members
}

/// What is said of one.
pub(crate) fn told<'a>(report: &'a Report, name: &str) -> &'a str {
    let member = report.members.iter().find(|member| member.name == name).unwrap();
    member.told.as_deref().unwrap_or_default()
}

pub(crate) fn state(report: &Report, name: &str) -> MemberState {
    report.members.iter().find(|member| member.name == name).unwrap().state
}
