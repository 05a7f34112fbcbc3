use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use portcullis_core::{AddressSet, Cidr, Family};
use proptest::prelude::*;

fn any_cidr() -> impl Strategy<Value = Cidr> {
    let addr = prop_oneof![
        any::<u32>().prop_map(|bits| IpAddr::V4(Ipv4Addr::from_bits(bits))),
        any::<u128>().prop_map(|bits| IpAddr::V6(Ipv6Addr::from_bits(bits))),
        any::<u32>().prop_map(|bits| IpAddr::V6(Ipv4Addr::from_bits(bits).to_ipv6_mapped())),
    ];
    (addr, 0..=128u8).prop_map(|(addr, prefix)| {
        let prefix = if addr.is_ipv4() { prefix % 33 } else { prefix };
        Cidr::new(addr, prefix).unwrap()
    })
}

/// Ranges within the sixteen addresses of a small network of each family, and everything.
fn small_cidr() -> impl Strategy<Value = Cidr> {
    prop_oneof![
        8 => (0..16u32, 28..=32u8)
            .prop_map(|(host, prefix)| Cidr::new(Ipv4Addr::from_bits(0x0a00_0000 | host).into(), prefix).unwrap()),
        8 => (0..16u128, 124..=128u8)
            .prop_map(|(host, prefix)| Cidr::new(Ipv6Addr::from_bits(host).into(), prefix).unwrap()),
        1 => Just(Cidr::everything(Family::V4)),
        1 => Just(Cidr::everything(Family::V6)),
    ]
}

/// IPv6 ranges around the place of the IPv4-mapped addresses, where the two families could be mixed up.
fn cidr_by_the_mapped_place() -> impl Strategy<Value = Cidr> {
    (0xfff0..=0x1_000fu128, any::<u32>(), 0..=96u8).prop_map(|(high, low, prefix)| {
        let addr = Ipv6Addr::from_bits(high << 32 | u128::from(low));
        Cidr::new(addr.into(), if addr.to_ipv4_mapped().is_some() { prefix.min(95) } else { prefix }).unwrap()
    })
}

/// The addresses of the small networks, and some of neither.
fn small_world() -> Vec<IpAddr> {
    let v4 = (0..17).map(|host| Ipv4Addr::from_bits(0x0a00_0000 | host).into());
    let v6 = (0..17).map(|host| Ipv6Addr::from_bits(host).into());
    v4.chain(v6).chain(["0.0.0.0", "255.255.255.255", "ffff::"].map(|text| text.parse().unwrap())).collect()
}

/// Whether an address is in a range, bit by bit, from what was given alone.
fn by_bits(cidr: &Cidr, addr: IpAddr) -> bool {
    let bits = |addr: IpAddr| -> Vec<u8> {
        let bytes = match addr {
            IpAddr::V4(addr) => addr.octets().to_vec(),
            IpAddr::V6(addr) => addr.octets().to_vec(),
        };
        bytes.iter().flat_map(|byte| (0..8).rev().map(move |bit| byte >> bit & 1)).collect()
    };
    let (mut range, mut host) = (bits(cidr.addr()), bits(addr));
    let mut prefix = usize::from(cidr.prefix_len());
    // The mapped addresses are IPv4: eighty bits 0, then sixteen bits 1. A range is theirs if all of it is.
    let mapped = |bits: &[u8]| bits.len() == 128 && bits[..80] == [0; 80] && bits[80..96] == [1; 16];
    if mapped(&range) && prefix >= 96 {
        range.drain(..96);
        prefix -= 96;
    }
    if mapped(&host) {
        host.drain(..96);
    }
    range.len() == host.len() && range[..prefix] == host[..prefix]
}

fn members(cidrs: &[Cidr]) -> Vec<bool> {
    small_world().iter().map(|addr| cidrs.iter().any(|cidr| by_bits(cidr, *addr))).collect()
}

fn contained(set: &AddressSet) -> Vec<bool> {
    small_world().iter().map(|addr| set.contains(*addr)).collect()
}

fn combined(one: &[bool], other: &[bool], how: fn(bool, bool) -> bool) -> Vec<bool> {
    one.iter().zip(other).map(|(one, other)| how(*one, *other)).collect()
}

/// The other half of the range one bit wider.
fn sibling(cidr: &Cidr) -> Option<Cidr> {
    let prefix = cidr.prefix_len();
    match cidr.network().addr() {
        _ if prefix == 0 => None,
        IpAddr::V4(addr) => {
            Cidr::new(Ipv4Addr::from_bits(addr.to_bits() ^ 1 << (32 - prefix)).into(), prefix).ok()
        }
        IpAddr::V6(addr) => {
            Cidr::new(Ipv6Addr::from_bits(addr.to_bits() ^ 1 << (128 - prefix)).into(), prefix).ok()
        }
    }
}

proptest! {
    #[test]
    fn a_range_prints_as_it_reads(cidr in any_cidr()) {
        let again: Cidr = cidr.to_string().parse().unwrap();
        prop_assert_eq!((again.addr(), again.prefix_len()), (cidr.addr(), cidr.prefix_len()));
        prop_assert_eq!(cidr, cidr.network());
        prop_assert_eq!(cidr.network().to_string(), cidr.network().network().to_string());
    }

    #[test]
    fn text_is_a_range_or_an_error(text in "[0-9a-f:./% ]{0,24}") {
        if let Ok(cidr) = text.parse::<Cidr>() {
            prop_assert_eq!(cidr.to_string().parse::<Cidr>(), Ok(cidr));
        }
    }

    #[test]
    fn a_range_contains_by_its_bits(cidr in any_cidr(), bits in any::<u128>(), flip in 0..128u32) {
        // An address that differs from the range in one bit is on the edge more often than any other.
        let near = match cidr.addr() {
            IpAddr::V4(addr) => IpAddr::V4(Ipv4Addr::from_bits(addr.to_bits() ^ 1 << (flip % 32))),
            IpAddr::V6(addr) => IpAddr::V6(Ipv6Addr::from_bits(addr.to_bits() ^ 1 << flip)),
        };
        for addr in [near, IpAddr::V6(Ipv6Addr::from_bits(bits)), cidr.addr()] {
            prop_assert_eq!(cidr.contains(addr), by_bits(&cidr, addr), "{} {}", cidr, addr);
        }
    }

    #[test]
    fn covering_is_containing_both_ends(one in small_cidr(), other in small_cidr()) {
        let (by_one, by_other) = (members(&[one]), members(&[other]));
        prop_assert_eq!(one.covers(&other), combined(&by_other, &by_one, |o, i| !o || i).iter().all(|x| *x));
        prop_assert_eq!(one.overlaps(&other), combined(&by_one, &by_other, |a, b| a && b).contains(&true));
        prop_assert_eq!(one == other, by_one == by_other);
    }

    #[test]
    fn set_operations_are_address_by_address(
        one in prop::collection::vec(small_cidr(), 0..6),
        other in prop::collection::vec(small_cidr(), 0..6),
    ) {
        let (in_one, in_other) = (members(&one), members(&other));
        let [one, other]: [AddressSet; 2] = [one, other].map(|cidrs| cidrs.into_iter().collect());
        prop_assert_eq!(contained(&one), in_one.clone());
        prop_assert_eq!(contained(&one.union(&other)), combined(&in_one, &in_other, |a, b| a || b));
        prop_assert_eq!(contained(&one.intersection(&other)), combined(&in_one, &in_other, |a, b| a && b));
        prop_assert_eq!(contained(&one.difference(&other)), combined(&in_one, &in_other, |a, b| a && !b));
        prop_assert_eq!(one.is_subset(&other), combined(&in_one, &in_other, |a, b| !a || b).iter().all(|x| *x));
        prop_assert_eq!(one.is_nobody(), !in_one.contains(&true));
        prop_assert_eq!(one == other, in_one == in_other);
    }

    #[test]
    fn a_set_is_the_fewest_ranges(
        one in prop::collection::vec(small_cidr(), 0..6),
        other in prop::collection::vec(small_cidr(), 0..3),
    ) {
        let [one, other]: [AddressSet; 2] = [one, other].map(|cidrs| cidrs.into_iter().collect());
        let set = one.difference(&other);
        let cidrs = set.cidrs();
        prop_assert_eq!(&cidrs.iter().copied().collect::<AddressSet>(), &set);
        prop_assert!(cidrs.is_sorted());
        for (index, cidr) in cidrs.iter().enumerate() {
            prop_assert!(cidrs[index + 1..].iter().all(|later| !later.overlaps(cidr)), "{:?}", cidrs);
            prop_assert!(sibling(cidr).is_none_or(|half| !cidrs.contains(&half)), "{:?}", cidrs);
        }
    }

    #[test]
    fn no_set_of_ipv6_holds_ipv4(
        one in prop::collection::vec(cidr_by_the_mapped_place(), 0..4),
        other in prop::collection::vec(cidr_by_the_mapped_place(), 0..4),
        v4 in any::<u32>(),
    ) {
        let [one, other]: [AddressSet; 2] = [one, other].map(|cidrs| cidrs.into_iter().collect());
        for set in [one.difference(&other), one.union(&other), one.intersection(&other)] {
            let cidrs = set.cidrs();
            prop_assert!(cidrs.iter().all(|cidr| cidr.family() == Family::V6), "{:?}", cidrs);
            prop_assert!(!set.contains(Ipv4Addr::from_bits(v4).into()));
            prop_assert_eq!(cidrs.into_iter().collect::<AddressSet>(), set);
        }
    }
}
