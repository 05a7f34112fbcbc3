use std::collections::BTreeMap;

use portcullis_core::{
    Admission, EmptyMeans, Listener, ListenerProtocol, LoadBalancer, Peer, Scheme, SourceRanges,
};
use proptest::prelude::*;

use crate::world::{Plain, Probe, What, family, hosts, probes};

const PROTOCOLS: [ListenerProtocol; 4] =
    [ListenerProtocol::Tcp, ListenerProtocol::Udp, ListenerProtocol::TcpUdp, ListenerProtocol::Tls];

/// What each kind of listener takes, by the numbers of the protocols.
const TAKES: [&[u8]; 4] = [&[6], &[17], &[6, 17], &[6]];

/// The families it has, IPv4 first, of which there is at least one.
fn families() -> impl Strategy<Value = [bool; 2]> {
    prop_oneof![Just([true, false]), Just([false, true]), Just([true, true])]
}

/// Ports and what listens there, as an index of [`PROTOCOLS`].
fn listeners() -> impl Strategy<Value = BTreeMap<u16, usize>> {
    prop::collection::btree_map(1..=4u16, 0..PROTOCOLS.len(), 1..4)
}

/// No list, an empty one, or one of ranges.
fn ranges() -> impl Strategy<Value = Option<Vec<Plain>>> {
    prop_oneof![
        1 => Just(None),
        1 => Just(Some(Vec::new())),
        4 => prop::collection::vec(hosts(), 1..5).prop_map(Some),
    ]
}

fn admission(ranges: Option<&[Plain]>, open_when_empty: bool) -> Admission {
    let range = |plain: &Plain| match plain.rule().peer() {
        Peer::Range(range) => *range,
        peer => panic!("{peer} is no range"),
    };
    Admission {
        ranges: ranges
            .map_or(SourceRanges::absent(), |plains| SourceRanges::listed(plains.iter().map(range))),
        empty_means: if open_when_empty { EmptyMeans::Everyone } else { EmptyMeans::Nobody },
    }
}

/// Whether the sender of a packet is among those who may connect.
fn admitted(ranges: Option<&[Plain]>, open_when_empty: bool, probe: &Probe) -> bool {
    match ranges {
        None => true,
        Some([]) => open_when_empty,
        Some(plains) => plains.iter().any(|plain| plain.lets(probe)),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(192))]

    #[test]
    fn is_reached_by_whom_it_admits_where_it_listens(
        [v4, v6] in families(), listeners in listeners(), ranges in ranges(), open_when_empty in any::<bool>(),
    ) {
        let ranges = ranges.as_deref();
        let all = listeners
            .iter()
            .map(|(port, protocol)| Listener::new(*port, PROTOCOLS[*protocol], 8080).unwrap())
            .collect();
        let families = [(v4, true), (v6, false)].into_iter().filter(|(has, _)| *has).map(|(_, v4)| family(v4));
        let admission = admission(ranges, open_when_empty);
        let web = LoadBalancer::new("web", Scheme::Internal, families, all, admission).unwrap();

        let reach = web.reach();
        for probe in probes().iter().filter(|probe| probe.ingress) {
            let has_family = if probe.v4 { v4 } else { v6 };
            let listens = match probe.what {
                What::Ports(number, port, _) => {
                    listeners.get(&port).is_some_and(|protocol| TAKES[*protocol].contains(&number))
                }
                _ => false,
            };
            let expected = has_family && listens && admitted(ranges, open_when_empty, probe);
            prop_assert_eq!(reach.admits(&probe.packet()), expected, "{:?}", probe);
        }

        let rules = web.ingress_rules();
        for (index, rule) in rules.iter().enumerate() {
            prop_assert!(rules.iter().enumerate().all(|(other, wide)| other == index || !wide.covers(rule)));
        }
    }
}
