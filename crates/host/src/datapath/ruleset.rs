use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use portcullis_core::{Admission, Cidr, EmptyMeans, Owner, Peer, SourceRanges};

use super::{ClientAddress, Element, Frontend, Place, Skeleton, Verdict};

/// What of the datapath is in the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Nothing.
    None,
    /// Who is not admitted is dropped, ahead of whatever else forwards packets: in the tables of the host, and where packets
    /// arrive on the interfaces that are named. Programs attached to `tc` see a packet before. Where packets arrive nobody
    /// knows yet what is an answer: a port that the node itself takes for its own connections (`ip_local_port_range`) is not
    /// one for a frontend with ranges, or has to be among `ip_local_reserved_ports`.
    Filter,
    /// Who is admitted is also forwarded. The node has to forward packets (`ip_forward`).
    Nftables,
}

/// A network interface through which packets for frontends arrive.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Interface {
    /// Its name.
    pub name: String,
    /// Its addresses: where node ports are reached.
    pub addresses: Vec<IpAddr>,
    /// Whether it is kept for those who look after the machine: no node port is served at its addresses.
    pub is_kept: bool,
}

/// What the table holds: rules, and for each frontend its elements, in order. Without rules there is no table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ruleset {
    /// Sets, chains and rules.
    pub skeleton: Option<Skeleton>,
    /// What the sets hold.
    pub frontends: BTreeMap<Place, Vec<Element>>,
}

/// What the table has to hold for these frontends.
pub fn desired<'a>(
    frontends: impl IntoIterator<Item = &'a Frontend>,
    mode: Mode,
    interfaces: &[Interface],
) -> Ruleset {
    if mode == Mode::None {
        return Ruleset::default();
    }
    let frontends: BTreeMap<Place, Vec<Element>> =
        frontends.into_iter().map(|frontend| (frontend.place(), elements(frontend, mode))).collect();
    let kept = interfaces.iter().filter(|interface| interface.is_kept);
    let kept = kept.flat_map(|interface| interface.addresses.clone()).collect();
    let mut skeleton = Skeleton { forwards: mode == Mode::Nftables, kept, ..Skeleton::default() };
    if mode == Mode::Filter {
        skeleton.interfaces = interfaces.iter().map(|interface| interface.name.clone()).collect();
        skeleton.local = interfaces.iter().flat_map(|interface| interface.addresses.clone()).collect();
    }
    for (place, elements) in &frontends {
        skeleton.hold(*place, elements);
    }
    Ruleset { skeleton: Some(skeleton), frontends }
}

/// The elements of one frontend, in order.
fn elements(frontend: &Frontend, mode: Mode) -> Vec<Element> {
    let mut elements = vec![Element::Frontend(comment(frontend)), Element::Arrived];
    let admitted = admitted(frontend);
    if !admitted.iter().any(Cidr::is_everything) {
        elements.push(Element::Dropped);
    }
    elements.extend(admitted.into_iter().map(Element::Admit));
    if mode == Mode::Nftables {
        forward(frontend, &mut elements);
    }
    elements.sort_unstable();
    elements
}

/// The frontend of a cluster that keeps out whom these elements keep out, and serves nobody; none, if they say of nobody whose it is.
pub(crate) fn filter(place: Place, elements: &[Element], cluster: &str) -> Option<Frontend> {
    let comment = elements.iter().find_map(|element| match element {
        Element::Frontend(comment) => Some(comment),
        _ => None,
    })?;
    let (kind, name) = comment.split_once(' ')?;
    let (namespace, name) = name.split_once('/')?;
    let owner = Owner::new(cluster, kind, Some(namespace.to_owned()), name).ok()?;
    let ranges = elements.iter().filter_map(|element| match element {
        Element::Admit(range) => Some(*range),
        _ => None,
    });
    let admission = Admission { ranges: SourceRanges::listed(ranges), empty_means: EmptyMeans::Nobody };
    Frontend::new(place, owner, admission, []).ok()
}

/// Who may connect, in as few ranges as it takes. Nobody of the family is no range at all.
fn admitted(frontend: &Frontend) -> Vec<Cidr> {
    let family = frontend.place().family();
    let ranges: BTreeSet<Cidr> = frontend
        .admission()
        .peers(family)
        .into_iter()
        .filter_map(|peer| match peer {
            Peer::Everyone => Some(Cidr::everything(family)),
            Peer::Range(range) => Some(range.network()),
            // Groups are of clouds: here nobody is known to be in one.
            Peer::Group(_) => None,
        })
        .collect();
    let mut fewest: Vec<Cidr> = Vec::with_capacity(ranges.len());
    // A range comes before those that are in it.
    for range in ranges {
        if !fewest.last().is_some_and(|wider| wider.covers(&range)) {
            fewest.push(range);
        }
    }
    fewest
}

fn forward(frontend: &Frontend, elements: &mut Vec<Element>) {
    let endpoints = frontend.chosen();
    let count = u32::try_from(endpoints.len()).unwrap_or(u32::MAX);
    elements.push(Element::Serve(if count == 0 { Verdict::Refuse } else { Verdict::Pick(count) }));
    for (slot, endpoint) in (0..).zip(endpoints) {
        elements.push(Element::Slot(slot, *endpoint));
        if let Some(timeout) = frontend.affinity() {
            elements.push(Element::Member(timeout, *endpoint));
        }
    }
    match frontend.client_address() {
        ClientAddress::Masqueraded => elements.push(Element::Masquerade),
        ClientAddress::Kept => {
            let addresses: BTreeSet<IpAddr> = endpoints.iter().map(std::net::SocketAddr::ip).collect();
            elements.extend(addresses.into_iter().map(Element::Hairpin));
        }
    }
}

/// The owner, as `nft list` shows it: between quotes, and no longer than nft reads.
fn comment(frontend: &Frontend) -> String {
    let mut comment = frontend.owner().to_string().replace('"', "'");
    let end = (0..=COMMENT.min(comment.len())).rev().find(|end| comment.is_char_boundary(*end));
    comment.truncate(end.unwrap_or(0));
    comment
}

/// nft allows 128 bytes, with a zero at the end.
const COMMENT: usize = 127;
