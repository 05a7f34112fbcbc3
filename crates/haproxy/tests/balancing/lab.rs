use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use portcullis_core::{
    Admission, Duty, EmptyMeans, Family, HealthCheck, HealthPort, Listener, ListenerProtocol, LoadBalancer,
    Member, MemberState, Probe, Problem, Scheme, SourceRanges,
};
use portcullis_haproxy::{
    Balancer, BalancerId, BalancerSeen, Error, Instance, MemberSeen, Options, Seen, Settings, Tuning, Wanted,
};
use portcullis_testkit::parts::{Namespace, Scratch};
use portcullis_testkit::talk::Backend;
use portcullis_testkit::{Host, Leash, eventually, link};
use tokio::runtime::{Builder, Runtime};

/// Where balancers are: an address of the machine, of each family.
pub(crate) const V4: &str = "192.0.2.1";
pub(crate) const V6: &str = "2001:db8:1::1";
/// Where members take connections.
pub(crate) const PORT: u16 = 6443;

/// Someone who takes connections on a host.
pub(crate) fn backend(host: &Host) -> Backend {
    Backend::start(host, PORT)
}

/// A machine that balances, two clients, and three who may be members.
pub(crate) struct Lab {
    pub(crate) machine: Host,
    /// `192.0.2.10`, `2001:db8:1::10`.
    pub(crate) inside: Host,
    /// `198.51.100.10`, `2001:db8:2::10`.
    pub(crate) outside: Host,
    /// `10.0.<number>.2`, `fd00:<number>::2`.
    pub(crate) members: Vec<Host>,
}

impl Lab {
    pub(crate) fn new() -> Self {
        let [machine, inside, outside] = ["machine", "inside", "outside"].map(Host::new);
        link(
            &inside,
            &["192.0.2.10/24", "2001:db8:1::10/64"],
            &machine,
            &["192.0.2.1/24", "2001:db8:1::1/64"],
        );
        link(
            &outside,
            &["198.51.100.10/24", "2001:db8:2::10/64"],
            &machine,
            &["198.51.100.1/24", "2001:db8:2::1/64"],
        );
        outside.default_route("198.51.100.1");
        outside.default_route("2001:db8:2::1");
        let members = (1..=3).map(|number| {
            let host = Host::new(&format!("member-{number}"));
            let ours = [format!("10.0.{number}.2/24"), format!("fd00:{number}::2/64")];
            let theirs = [format!("10.0.{number}.1/24"), format!("fd00:{number}::1/64")];
            link(
                &host,
                &ours.each_ref().map(String::as_str),
                &machine,
                &theirs.each_ref().map(String::as_str),
            );
            host
        });
        Lab { members: members.collect(), machine, inside, outside }
    }

    /// An HAProxy of the machine.
    pub(crate) fn proxy(&self) -> Proxy {
        Proxy::new(&self.machine)
    }
}

/// An HAProxy that ends with the test.
pub(crate) struct Proxy {
    instance: Option<Instance>,
    runtime: Runtime,
    machine: Host,
    // In this order: it is ended before its directory is removed.
    _leash: Leash,
    scratch: Scratch,
}

impl Proxy {
    pub(crate) fn new(machine: &Host) -> Self {
        let scratch = Scratch::new().unwrap();
        let leash = Leash::new(scratch.path());
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        let mut proxy = Proxy { instance: None, runtime, machine: machine.clone(), _leash: leash, scratch };
        proxy.begin();
        proxy
    }

    /// As another process of ours would: nothing is known but what is in the directory.
    pub(crate) fn begin(&mut self) {
        let settings = Settings::new(self.scratch.path());
        let (runtime, machine) = (&self.runtime, &self.machine);
        self.instance = Some(on(machine, || runtime.block_on(Instance::start(settings))).unwrap());
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.scratch.path().join(name)
    }

    pub(crate) fn try_apply(&mut self, wanted: &Wanted, now: SystemTime) -> Result<Seen, Error> {
        let (runtime, machine, instance) = (&self.runtime, &self.machine, self.instance.as_mut().unwrap());
        on(machine, || runtime.block_on(instance.apply(wanted, now)))
    }

    #[track_caller]
    pub(crate) fn apply(&mut self, wanted: &Wanted) -> Seen {
        self.try_apply(wanted, SystemTime::now()).unwrap()
    }

    /// What would be in the way.
    pub(crate) fn obstacles(&self, wanted: &Wanted) -> BTreeMap<BalancerId, Problem> {
        let (runtime, machine, instance) = (&self.runtime, &self.machine, self.instance.as_ref().unwrap());
        on(machine, || runtime.block_on(instance.obstacles(wanted))).unwrap()
    }

    pub(crate) fn look(&mut self) -> Seen {
        let (runtime, machine, instance) = (&self.runtime, &self.machine, self.instance.as_mut().unwrap());
        on(machine, || runtime.block_on(instance.look())).unwrap()
    }

    pub(crate) fn stop(&mut self) {
        let (runtime, machine) = (&self.runtime, &self.machine);
        let instance = self.instance.take().unwrap();
        on(machine, || runtime.block_on(instance.stop())).unwrap();
    }

    pub(crate) fn is_there(&self) -> bool {
        self.instance.as_ref().unwrap().is_there()
    }

    pub(crate) fn process(&self) -> u32 {
        self.instance.as_ref().unwrap().process().unwrap()
    }

    /// Applies until all members that are to serve do, and gives what is seen then.
    #[track_caller]
    pub(crate) fn settle(&mut self, wanted: &Wanted) -> Seen {
        let mut seen = self.apply(wanted);
        eventually("all members serve", || {
            seen = self.apply(wanted);
            let states = |balancer: &BalancerSeen| -> Vec<MemberState> {
                balancer.members.values().map(|member| member.state).collect()
            };
            seen.balancers.values().all(|balancer| !states(balancer).contains(&MemberState::Adding))
        });
        seen
    }

    /// Applies until a member of the first balancer is in a state.
    #[track_caller]
    pub(crate) fn until(&mut self, wanted: &Wanted, member: &str, state: MemberState) -> MemberSeen {
        let mut last = None;
        eventually(&format!("{member} is {state}"), || {
            let seen = self.apply(wanted);
            last = Some(of(&seen, &wanted.balancers[0].id).members[member].clone());
            last.as_ref().unwrap().state == state
        });
        last.unwrap()
    }

    /// The processes of HAProxy that take or have connections.
    pub(crate) fn workers(&mut self) -> usize {
        self.look().workers
    }
}

pub(crate) fn of<'a>(seen: &'a Seen, id: &BalancerId) -> &'a BalancerSeen {
    &seen.balancers[id]
}

/// The first balancer's member.
#[track_caller]
pub(crate) fn member_of<'a>(seen: &'a Seen, member: &str) -> &'a MemberSeen {
    &seen.balancers.values().next().unwrap().members[member]
}

/// Soon sure of who is well, and slow to doubt it: the machine may be busy.
pub(crate) fn quick(probe: Probe) -> HealthCheck {
    let second = Duration::from_secs(1);
    let check = HealthCheck::new(probe, HealthPort::Traffic).unwrap();
    check.with_timing(second, second).unwrap().with_thresholds(1, 3).unwrap()
}

pub(crate) fn listener(port: u16) -> Listener {
    Listener::new(port, ListenerProtocol::Tcp, PORT).unwrap().with_health_check(quick(Probe::Tcp))
}

pub(crate) fn id(name: &str) -> BalancerId {
    BalancerId::new("shop", name)
}

pub(crate) fn open() -> Admission {
    admission(None)
}

pub(crate) fn admission(ranges: Option<&[&str]>) -> Admission {
    Admission { ranges: SourceRanges::parse(ranges).unwrap(), empty_means: EmptyMeans::Nobody }
}

/// Member `<number>`.
pub(crate) fn member(number: usize) -> Member {
    let address: IpAddr = format!("10.0.{number}.2").parse().unwrap();
    Member::new(format!("member-{number}"), [address]).unwrap()
}

pub(crate) fn leaving(number: usize, by: SystemTime) -> Member {
    member(number).with_duty(Duty::Leave { by })
}

pub(crate) fn resting(number: usize, by: SystemTime) -> Member {
    member(number).with_duty(Duty::Rest { by })
}

/// Longer than any test takes.
pub(crate) fn late() -> SystemTime {
    SystemTime::now() + Duration::from_secs(3600)
}

pub(crate) fn past() -> SystemTime {
    SystemTime::now() - Duration::from_secs(1)
}

pub(crate) fn balancer(
    name: &str,
    addresses: &[&str],
    listeners: Vec<Listener>,
    admission: Admission,
    members: Vec<Member>,
) -> Balancer {
    let addresses = addresses.iter().map(|address| address.parse().unwrap()).collect();
    let load_balancer = LoadBalancer::new(name, Scheme::Internal, Family::ALL, listeners, admission)
        .and_then(|balancer| balancer.with_addresses(addresses)?.with_members(members))
        .unwrap();
    Balancer { id: id(name), load_balancer, options: Options::default() }
}

/// At the machine's addresses on port 80, for everyone.
pub(crate) fn web(members: Vec<Member>) -> Balancer {
    balancer("web", &[V4, V6], vec![listener(80)], open(), members)
}

pub(crate) fn wanted(balancers: Vec<Balancer>) -> Wanted {
    Wanted { balancers, tuning: Tuning::default() }
}

/// Does something in a host's network.
pub(crate) fn on<T: Send>(host: &Namespace, work: impl FnOnce() -> T + Send) -> T {
    host.run(work)
}
