use std::net::IpAddr;

use crate::cidr::wide;
use crate::intervals::Intervals;
use crate::{Cidr, Family};

/// An exact set of addresses of both families. Equal sets are equal, however they were put together: two
/// halves of a `/24` are the `/24`.
///
/// IPv4 addresses lie at their IPv4-mapped place among the IPv6 ones. IPv6 ranges leave that place out,
/// since no IPv6 packet carries such an address: `::/0` does not hold an IPv4 peer.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct AddressSet(Intervals);

impl AddressSet {
    /// The set without any address.
    pub fn nobody() -> Self {
        Self::default()
    }

    /// Every address of both families.
    pub fn everyone() -> Self {
        Family::ALL.map(Cidr::everything).into_iter().collect()
    }

    /// Every address of one family.
    pub fn everyone_of(family: Family) -> Self {
        Self::from(Cidr::everything(family))
    }

    /// Whether there is no address in the set.
    pub fn is_nobody(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether the address is in the set.
    pub fn contains(&self, addr: IpAddr) -> bool {
        self.0.contains(wide(addr))
    }

    /// Whether every address of this set is in `other`.
    pub fn is_subset(&self, other: &Self) -> bool {
        self.0.is_subset(&other.0)
    }

    /// The addresses in one or the other.
    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        Self(self.0.union(&other.0))
    }

    /// The addresses in both.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        Self(self.0.intersection(&other.0))
    }

    /// The addresses of this set that are not in `other`.
    #[must_use]
    pub fn difference(&self, other: &Self) -> Self {
        Self(self.0.difference(&other.0))
    }

    /// The shortest list of ranges that hold exactly this set, IPv4 first, each family in order.
    pub fn cidrs(&self) -> Vec<Cidr> {
        let mapped = Intervals::from_iter([Cidr::everything(Family::V4).bounds()]);
        let mut cidrs = blocks(&self.0.intersection(&mapped));
        let v6 = self.0.difference(&mapped);
        // The place of IPv4 may be counted in or out of an IPv6 range, as no IPv6 address is there. Counted
        // in, `::/0` is one range and not 128.
        let without = blocks(&v6);
        let with = blocks(&v6.union(&mapped));
        cidrs.extend(if with.len() < without.len() { with } else { without });
        cidrs
    }
}

/// The fewest aligned blocks that make up the intervals.
fn blocks(intervals: &Intervals) -> Vec<Cidr> {
    let mut blocks = Vec::new();
    for &(first, last) in intervals.as_slice() {
        let mut next = Some(first);
        while let Some(start) = next {
            // The largest block that starts here, then halved until it ends in time.
            let mut mask = if start == 0 { u128::MAX } else { (1 << start.trailing_zeros()) - 1 };
            while start | mask > last {
                mask >>= 1;
            }
            let prefix = u8::try_from(mask.leading_zeros()).expect("128 bits at most");
            blocks.push(Cidr::from_wide(start, prefix));
            let end = start | mask;
            next = (end < last).then(|| end + 1);
        }
    }
    blocks
}

impl From<Cidr> for AddressSet {
    fn from(cidr: Cidr) -> Self {
        Self::from_iter([cidr])
    }
}

impl FromIterator<Cidr> for AddressSet {
    fn from_iter<I: IntoIterator<Item = Cidr>>(cidrs: I) -> Self {
        let (v4, v6): (Vec<Cidr>, Vec<Cidr>) =
            cidrs.into_iter().partition(|cidr| cidr.family() == Family::V4);
        let intervals = |cidrs: &[Cidr]| cidrs.iter().map(Cidr::bounds).collect::<Intervals>();
        let mapped = intervals(&[Cidr::everything(Family::V4)]);
        Self(intervals(&v6).difference(&mapped).union(&intervals(&v4)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(cidrs: &[&str]) -> AddressSet {
        cidrs.iter().map(|cidr| cidr.parse::<Cidr>().unwrap()).collect()
    }

    fn texts(set: &AddressSet) -> Vec<String> {
        set.cidrs().iter().map(Cidr::to_string).collect()
    }

    #[test]
    fn lists_the_fewest_ranges() {
        for (given, listed) in [
            (&["10.0.0.128/25", "10.0.0.0/25"][..], &["10.0.0.0/24"][..]),
            (&["10.0.0.0/24", "10.0.0.7/32"], &["10.0.0.0/24"]),
            (&["10.0.1.0/24", "10.0.2.0/24"], &["10.0.1.0/24", "10.0.2.0/24"]),
            (&["0.0.0.0/1", "128.0.0.0/1"], &["0.0.0.0/0"]),
            (&["::/1", "8000::/1"], &["::/0"]),
            (&["::/0", "0.0.0.0/0"], &["0.0.0.0/0", "::/0"]),
            (&["::/80"], &["::/80"]),
            (&["::fffe:0:0/96"], &["::fffe:0:0/96"]),
            (&["255.255.255.255/32", "::1:0:0:0/80"], &["255.255.255.255/32", "::1:0:0:0/80"]),
            (&["2001:db8::/32", "::ffff:192.0.2.0/120"], &["192.0.2.0/24", "2001:db8::/32"]),
            (&[], &[]),
        ] {
            assert_eq!(texts(&set(given)), listed);
        }
    }

    #[test]
    fn what_remains_of_ipv6_is_never_taken_for_ipv4() {
        let rest = set(&["::fffe:0:0/95"]).difference(&set(&["::fffe:0:0/96"]));
        assert_eq!(rest, AddressSet::nobody());
        let most = set(&["::/0"]).difference(&set(&["::fffe:0:0/96"]));
        assert!(most.cidrs().iter().all(|cidr| cidr.family() == Family::V6));
        assert_eq!(most.union(&set(&["::fffe:0:0/96"])), AddressSet::everyone_of(Family::V6));
    }

    #[test]
    fn families_do_not_mix() {
        assert!(!set(&["::/0"]).contains("10.0.0.1".parse().unwrap()));
        assert!(!set(&["::/0"]).contains("::ffff:10.0.0.1".parse().unwrap()));
        assert!(set(&["10.0.0.0/8"]).contains("::ffff:10.0.0.1".parse().unwrap()));
        assert!(!set(&["0.0.0.0/0"]).is_subset(&set(&["::/0"])));
        assert_eq!(set(&["0.0.0.0/0", "::/0"]), AddressSet::everyone());
        assert_eq!(AddressSet::everyone().difference(&set(&["::/0"])), AddressSet::everyone_of(Family::V4));
    }
}
