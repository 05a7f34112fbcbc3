use std::net::{IpAddr, SocketAddr};

use portcullis_core::{Admission, EmptyMeans, Owner, Protocol, SourceRanges};
use portcullis_host::datapath::{Datapath, Error, Frontend, Interface, Mode, Place, Synced};
use portcullis_testkit::parts::Namespace;
use portcullis_testkit::{Host, link};

/// Where frontends are, unless a test has its own: an address of the node, of each family.
pub(crate) const V4: &str = "192.0.2.1";
pub(crate) const V6: &str = "2001:db8:1::1";
/// One that no interface has: packets for it are routed to the node.
pub(crate) const ROUTED: &str = "203.0.113.100";

/// A node between two clients, of which one is in range, and two backends.
pub(crate) struct Lab {
    pub(crate) node: Host,
    /// `192.0.2.10`, `2001:db8:1::10`.
    pub(crate) inside: Host,
    /// `198.51.100.10`, `2001:db8:2::10`.
    pub(crate) outside: Host,
    /// `10.244.0.2`, `fd00:1::2`.
    pub(crate) one: Host,
    /// `10.244.1.2`, `fd00:2::2`.
    pub(crate) two: Host,
}

impl Lab {
    pub(crate) fn new() -> Self {
        let [node, inside, outside, one, two] = ["node", "inside", "outside", "one", "two"].map(Host::new);
        link(&inside, &["192.0.2.10/24", "2001:db8:1::10/64"], &node, &["192.0.2.1/24", "2001:db8:1::1/64"]);
        link(
            &outside,
            &["198.51.100.10/24", "2001:db8:2::10/64"],
            &node,
            &["198.51.100.1/24", "2001:db8:2::1/64"],
        );
        link(&one, &["10.244.0.2/24", "fd00:1::2/64"], &node, &["10.244.0.1/24", "fd00:1::1/64"]);
        link(&two, &["10.244.1.2/24", "fd00:2::2/64"], &node, &["10.244.1.1/24", "fd00:2::1/64"]);
        node.forward();
        for (host, v4, v6) in [
            (&inside, "192.0.2.1", "2001:db8:1::1"),
            (&outside, "198.51.100.1", "2001:db8:2::1"),
            (&one, "10.244.0.1", "fd00:1::1"),
            (&two, "10.244.1.1", "fd00:2::1"),
        ] {
            host.default_route(v4);
            host.default_route(v6);
        }
        Lab { node, inside, outside, one, two }
    }

    pub(crate) fn interfaces() -> Vec<Interface> {
        [("to-inside", ["192.0.2.1", "2001:db8:1::1"]), ("to-outside", ["198.51.100.1", "2001:db8:2::1"])]
            .map(|(name, addresses)| Interface {
                name: name.into(),
                addresses: addresses.map(|address| address.parse().unwrap()).into(),
                is_kept: false,
            })
            .into()
    }

    /// A datapath of the node that was not there before.
    pub(crate) fn datapath(&self) -> Datapath {
        on(&self.node, Datapath::open).unwrap()
    }

    pub(crate) fn sync(&self, datapath: &mut Datapath, mode: Mode, frontends: &[Frontend]) -> Synced {
        self.try_sync(datapath, mode, frontends).unwrap()
    }

    pub(crate) fn try_sync(
        &self,
        datapath: &mut Datapath,
        mode: Mode,
        frontends: &[Frontend],
    ) -> Result<Synced, Error> {
        on(&self.node, || datapath.sync(mode, &Lab::interfaces(), frontends.iter().cloned()))
    }

    pub(crate) fn change(&self, datapath: &mut Datapath, come: &[Frontend], gone: &[Place]) -> Synced {
        on(&self.node, || datapath.change(come.iter().cloned(), gone.iter().copied())).unwrap()
    }

    /// The node's rules, without what is counted.
    pub(crate) fn ruleset(&self) -> String {
        self.node.run("nft -s list ruleset")
    }
}

/// Does something in a host's network.
pub(crate) fn on<T: Send>(host: &Namespace, work: impl FnOnce() -> T + Send) -> T {
    host.run(work)
}

pub(crate) fn place(address: &str, protocol: Protocol, port: u16) -> Place {
    Place::new(address.parse().unwrap(), protocol, port).unwrap()
}

/// Port 80 at this address, for these ranges (none are everyone), to these backends.
pub(crate) fn web(address: &str, ranges: &[&str], endpoints: &[&str]) -> Frontend {
    frontend(place(address, Protocol::TCP, 80), ranges, endpoints)
}

pub(crate) fn frontend(place: Place, ranges: &[&str], endpoints: &[&str]) -> Frontend {
    let owner = Owner::new("lab", "Service", Some("shop".into()), "web").unwrap();
    let endpoints = endpoints.iter().map(|endpoint| endpoint.parse::<SocketAddr>().unwrap());
    Frontend::new(place, owner, admission(ranges), endpoints).unwrap()
}

pub(crate) fn admission(ranges: &[&str]) -> Admission {
    let ranges = SourceRanges::parse((!ranges.is_empty()).then_some(ranges)).unwrap();
    Admission { ranges, empty_means: EmptyMeans::Nobody }
}

/// Sets are told in the order in which they were made, and so are their elements.
pub(crate) fn sorted(ruleset: &str) -> Vec<String> {
    let mut blocks: Vec<String> = ruleset
        .split("\n\n")
        .map(|block| match block.split_once("elements = {") {
            Some((set, elements)) => {
                let mut elements: Vec<&str> = elements.split(&[',', '}']).map(str::trim).collect();
                elements.sort_unstable();
                format!("{set} {elements:?}")
            }
            None => block.trim().to_owned(),
        })
        .collect();
    blocks.sort_unstable();
    blocks
}

/// How a server tells the address that it saw.
pub(crate) fn seen(address: &str) -> String {
    address.parse::<IpAddr>().unwrap().to_string()
}
