//! A pair of machines with a shared address of each family.

use std::time::Duration;

use portcullis_core::Member;
use portcullis_haproxy::vrrp::{Keepalived, SharedAddress};
use portcullis_haproxy::{Error, Wanted};
use portcullis_testkit::parts::Scratch;
use portcullis_testkit::{Host, Leash, eventually, link};
use tokio::runtime::{Builder, Runtime};

use crate::lab::{Proxy, backend, balancer, listener, on, open, wanted};
use portcullis_testkit::talk::{Backend, Held, ask};

const V4: &str = "192.0.2.100";
const V6: &str = "2001:db8:1::100";

/// Machines on one network.
struct Street {
    machines: [Machine; 2],
    client: Host,
    _switch: Host,
    _backend: Backend,
}

struct Machine {
    host: Host,
    proxy: Proxy,
    shares: Shares,
}

/// A keepalived that ends with the test.
struct Shares {
    keepalived: Option<Keepalived>,
    runtime: Runtime,
    host: Host,
    // In this order: it is ended before its directory is removed.
    _leash: Leash,
    scratch: Scratch,
}

impl Shares {
    fn new(host: &Host) -> Self {
        let scratch = Scratch::new().unwrap();
        let leash = Leash::new(scratch.path());
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        let keepalived = Some(Keepalived::start(scratch.path()).unwrap());
        Shares { keepalived, runtime, host: host.clone(), _leash: leash, scratch }
    }

    fn begin(&mut self) {
        self.keepalived = Some(Keepalived::start(self.scratch.path()).unwrap());
    }

    fn try_apply(&mut self, shared: &[SharedAddress], fit: bool) -> Result<(), Error> {
        let (runtime, keepalived) = (&self.runtime, self.keepalived.as_mut().unwrap());
        on(&self.host, || runtime.block_on(keepalived.apply(shared, fit)))
    }

    fn apply(&mut self, shared: &[SharedAddress], fit: bool) {
        self.try_apply(shared, fit).unwrap();
    }

    fn process(&self) -> Option<u32> {
        self.keepalived.as_ref().unwrap().process()
    }
}

impl Street {
    fn new() -> Self {
        let switch = Host::new("switch");
        switch.run("ip link add street type bridge");
        switch.run("ip link set street up");
        let join = |name: &str, number: u8| {
            let host = Host::new(name);
            let addresses = [format!("192.0.2.{number}/24"), format!("2001:db8:1::{number}/64")];
            link(&host, &addresses.each_ref().map(String::as_str), &switch, &[]);
            switch.run(&format!("ip link set to-{name} master street"));
            host
        };
        let (client, member) = (join("client", 10), join("member", 20));
        let machines = [join("first", 1), join("second", 2)].map(|host| Machine {
            proxy: Proxy::new(&host),
            shares: Shares::new(&host),
            host,
        });
        Street { machines, client, _backend: backend(&member), _switch: switch }
    }

    /// Until exactly one machine has an address, and connections to it succeed: which one.
    #[track_caller]
    fn holder(&self, address: &str) -> usize {
        let mut found = 0;
        eventually(&format!("one machine has {address} and serves"), || {
            let holders: Vec<usize> = (0..2).filter(|number| self.machines[*number].has(address)).collect();
            found = holders.first().copied().unwrap_or_default();
            holders.len() == 1 && ask(&self.client, address, 80).is_ok_and(|name| name == "member")
        });
        found
    }
}

impl Machine {
    fn has(&self, address: &str) -> bool {
        self.host.run("ip -o address show dev to-switch").contains(&format!(" {address}/"))
    }
}

fn api() -> Wanted {
    let member = Member::new("member", ["192.0.2.20".parse().unwrap()]).unwrap();
    wanted(vec![balancer("api", &[V4, V6], vec![listener(80)], open(), vec![member])])
}

/// On one of the two machines: for IPv4 the other one is told directly, for IPv6 by multicast.
fn shared(machine: usize, priority: u8) -> Vec<SharedAddress> {
    let other = format!("192.0.2.{}", 2 - machine).parse().unwrap();
    [(V4, vec![other]), (V6, vec![])]
        .map(|(address, peers)| {
            let shared = SharedAddress::new(address.parse().unwrap(), "to-switch", 51, priority).unwrap();
            // Who stalls for three of them loses the address, and does not get it back.
            shared.with_peers(peers).unwrap().with_interval(Duration::from_secs(3)).unwrap()
        })
        .into()
}

#[test]
fn an_address_goes_to_who_can_serve() {
    let mut street = Street::new();
    for (number, priority) in [(0, 150), (1, 100)] {
        let machine = &mut street.machines[number];
        machine.proxy.settle(&api());
        machine.shares.apply(&shared(number, priority), true);
    }
    // Each family by itself; the first to be there may be either.
    let (first_v4, first_v6) = (street.holder(V4), street.holder(V6));
    let mut held = Held::connect(&street.client, V4, 80).unwrap();
    assert_eq!(held.ask().unwrap(), "member");

    // HAProxy ends for good on who has it.
    let machine = &mut street.machines[first_v4];
    machine.proxy.stop();
    machine.shares.apply(&shared(first_v4, 120), false);
    assert!(held.has_ended());
    eventually("the other one has it", || street.machines[1 - first_v4].has(V4));
    assert_eq!(street.holder(V4), 1 - first_v4);
    if first_v6 == first_v4 {
        eventually("the other one has it", || street.machines[1 - first_v6].has(V6));
    }
    assert_eq!(street.holder(V6), 1 - first_v4);

    // It comes back, and does not take the addresses from who has them, whatever its priority.
    let mut held = Held::connect(&street.client, V6, 80).unwrap();
    assert_eq!(held.ask().unwrap(), "member");
    let machine = &mut street.machines[first_v4];
    machine.proxy.begin();
    machine.proxy.settle(&api());
    machine.shares.apply(&shared(first_v4, 200), true);
    let log = machine.shares.scratch.path().join("keepalived.log");
    eventually("it is fit again, and waits", || {
        let text = std::fs::read_to_string(&log).unwrap();
        let last = |what: &str| text.rfind(what).unwrap_or_default();
        last("(v6-to-switch-51) Entering BACKUP STATE") > last("(v6-to-switch-51) Entering FAULT STATE")
    });
    assert_eq!((street.holder(V4), street.holder(V6)), (1 - first_v4, 1 - first_v4));
    assert_eq!(held.ask().unwrap(), "member");

    // The link of who has them goes down.
    street.machines[1 - first_v4].host.run("ip link set to-switch down");
    for address in [V4, V6] {
        eventually("the other one has it", || street.machines[first_v4].has(address));
        eventually("connections succeed", || ask(&street.client, address, 80).is_ok());
    }
}

#[test]
fn keepalived_is_looked_after() {
    let mut street = Street::new();
    let Street { machines: [machine, _], .. } = &mut street;
    machine.proxy.settle(&api());
    machine.shares.apply(&shared(0, 100), true);
    assert_eq!(street.holder(V4), 0);
    assert_eq!(street.holder(V6), 0);
    let machine = &mut street.machines[0];
    let process = machine.shares.process().unwrap();

    // Another process of ours takes it over, and the address stays.
    let mut held = Held::connect(&street.client, V4, 80).unwrap();
    assert_eq!(held.ask().unwrap(), "member");
    machine.shares.begin();
    machine.shares.apply(&shared(0, 100), true);
    assert_eq!(machine.shares.process(), Some(process));
    // A change is read, and what is not changed stays as it is.
    machine.shares.apply(&shared(0, 100)[..1], true);
    eventually("the other one is given up", || !machine.has(V6));
    assert_eq!(machine.shares.process(), Some(process));
    assert!(machine.has(V4));
    assert_eq!(held.ask().unwrap(), "member");

    // What it does not take is told.
    let nowhere = SharedAddress::new(V6.parse().unwrap(), "nowhere", 9, 100).unwrap();
    let Err(Error::Refused(problem)) = machine.shares.try_apply(&[nowhere], true) else {
        panic!("it was taken")
    };
    assert!(problem.state.contains("nowhere"), "{problem}");
    assert!(machine.has(V4));

    // It is killed, with all of its group, and comes back.
    let masters = |machine: &Machine| {
        let log = std::fs::read_to_string(machine.shares.scratch.path().join("keepalived.log")).unwrap();
        log.matches("(v4-to-switch-51) Entering MASTER STATE").count()
    };
    let before = masters(machine);
    crate::drain::kill_group(process);
    eventually("it is back", || {
        let applied = machine.shares.try_apply(&shared(0, 100), true).is_ok();
        applied && machine.shares.process().is_some_and(|now| now != process) && masters(machine) > before
    });
    assert_eq!(street.holder(V4), 0);
    let machine = &mut street.machines[0];
    // Nothing to share: it is not needed, and nothing is left.
    machine.shares.apply(&[], true);
    assert_eq!(machine.shares.process(), None);
    assert!(!machine.has(V4) && !machine.has(V6));

    // Nor of one that was killed.
    machine.shares.apply(&shared(0, 100), true);
    assert_eq!(street.holder(V4), 0);
    let machine = &mut street.machines[0];
    crate::drain::kill_group(machine.shares.process().unwrap());
    eventually("it is gone", || machine.shares.process().is_none());
    assert!(machine.has(V4));
    machine.shares.apply(&[], true);
    assert_eq!(machine.shares.process(), None);
    assert!(!machine.has(V4) && !machine.has(V6));
}
