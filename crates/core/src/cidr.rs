use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::Family;
use crate::text::{plain_number, quoted};

/// A range of addresses, written `address/prefix`.
///
/// It prints the way it was given, because people look for what they wrote: `10.0.0.5/8` stays
/// `10.0.0.5/8`. It compares as the network it stands for: `10.0.0.5/8 == 10.0.0.0/8`.
///
/// An IPv4-mapped range of prefix 96 or longer (`::ffff:192.0.2.0/120`) is the IPv4 network
/// (`192.0.2.0/24`) in every respect but its printing. A shorter one holds the place of IPv4 among other
/// addresses, and is compared by its bits as if that place were addresses of its own: `::fffe:0:0/95` and
/// `::fffe:0:0/96` are two ranges here, although no packet tells them apart. [`AddressSet`](crate::AddressSet)
/// knows them as one.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Cidr {
    addr: IpAddr,
    prefix: u8,
}

/// Why a text or a pair is not an address range.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum CidrError {
    /// Spaces somewhere.
    #[error("{} is not an address range: it has a space in it", quoted(.0))]
    Space(String),
    /// No `/`. What is there is an address, and safe to print.
    #[error("`{0}` is not an address range: the prefix is missing, as in `{0}/{1}` for one address")]
    NoPrefix(String, u8),
    /// An IPv6 zone.
    #[error(
        "{} is not an address range: a zone such as `%eth0` means something on one machine only; leave it out",
        quoted(.0)
    )]
    Zone(String),
    /// What stands before the `/` is no address.
    #[error("{} is not an address range: {} is not an IPv4 or IPv6 address", quoted(.0), quoted(.1))]
    Address(String, String),
    /// What stands after the `/` is no plain number.
    #[error("{} is not an address range: the prefix is a plain number, without sign or leading zero", quoted(.0))]
    Prefix(String),
    /// The prefix is longer than the addresses of the family.
    #[error("{text} is not an address range: the prefix of an {family} range is 0 to {bits}", text = quoted(.0), family = .1, bits = .1.bits())]
    TooLong(String, Family),
}

impl Cidr {
    /// The range of the addresses that share the first `prefix` bits with `addr`.
    pub fn new(addr: IpAddr, prefix: u8) -> Result<Self, CidrError> {
        let family = written_family(addr);
        if prefix > family.bits() {
            return Err(CidrError::TooLong(format!("{addr}/{prefix}"), family));
        }
        Ok(Self { addr, prefix })
    }

    /// The range of one address.
    pub fn host(addr: IpAddr) -> Self {
        Self { addr, prefix: written_family(addr).bits() }
    }

    /// The range of every address of a family.
    pub fn everything(family: Family) -> Self {
        let addr = match family {
            Family::V4 => Ipv4Addr::UNSPECIFIED.into(),
            Family::V6 => Ipv6Addr::UNSPECIFIED.into(),
        };
        Self { addr, prefix: 0 }
    }

    /// The same range without host bits, and as IPv4 where it is IPv4: the form for a datapath.
    #[must_use]
    pub fn network(&self) -> Self {
        let (first, prefix) = self.wide();
        Self::from_wide(first, prefix)
    }

    /// The range itself, normalised, and every wider one that covers it, the widest last.
    pub(crate) fn and_wider(&self) -> impl Iterator<Item = Self> + use<> {
        let network = self.network();
        (0..=network.prefix).rev().map(move |prefix| Self { prefix, ..network }.network())
    }

    /// The address as given, host bits included.
    pub fn addr(&self) -> IpAddr {
        self.addr
    }

    /// The prefix as given.
    pub fn prefix_len(&self) -> u8 {
        self.prefix
    }

    /// The family of the addresses in the range.
    pub fn family(&self) -> Family {
        // A shorter prefix than 96 cuts the address to one outside the mapped place, so this is exact.
        let (first, _) = self.wide();
        if is_mapped(first) { Family::V4 } else { Family::V6 }
    }

    /// Whether the address is in the range.
    pub fn contains(&self, addr: IpAddr) -> bool {
        self.covers(&Self::host(addr))
    }

    /// Whether every address of `other` is in this range, by family and bits: `false` may be too strict at the
    /// place of IPv4 in IPv6 (see [`Cidr`]), `true` never is.
    pub fn covers(&self, other: &Self) -> bool {
        let (first, prefix) = self.wide();
        let (other_first, other_prefix) = other.wide();
        prefix <= other_prefix && first == other_first & !host_mask(prefix) && self.family() == other.family()
    }

    /// Whether some address is in both ranges.
    pub fn overlaps(&self, other: &Self) -> bool {
        self.covers(other) || other.covers(self)
    }

    /// Whether the range holds every address of its family.
    pub fn is_everything(&self) -> bool {
        *self == Self::everything(self.family())
    }

    /// The first and the last address, as numbers of the one space that holds both families (see [`wide`]).
    pub(crate) fn bounds(&self) -> (u128, u128) {
        let (first, prefix) = self.wide();
        (first, first | host_mask(prefix))
    }

    /// The block of the one space that starts at `first`, which has no host bits; `prefix` counts in 128 bits.
    pub(crate) fn from_wide(first: u128, prefix: u8) -> Self {
        let addr = Ipv6Addr::from_bits(first);
        match addr.to_ipv4_mapped() {
            Some(addr) => Self { addr: addr.into(), prefix: prefix - MAPPED_PREFIX },
            None => Self { addr: addr.into(), prefix },
        }
    }

    /// The normalised network in the one space of both families.
    fn wide(&self) -> (u128, u8) {
        let prefix = match self.addr {
            IpAddr::V4(_) => MAPPED_PREFIX + self.prefix,
            IpAddr::V6(_) => self.prefix,
        };
        (wide(self.addr) & !host_mask(prefix), prefix)
    }
}

/// Where the IPv4 addresses lie in the space of both families: `::ffff:0:0/96`.
const MAPPED_PREFIX: u8 = 96;

/// The number of an address in one space for both families, where IPv4 lies at its IPv4-mapped place.
/// Both ways to write an IPv4 address become the same number, so no comparison has to think of it.
pub(crate) fn wide(addr: IpAddr) -> u128 {
    match addr {
        IpAddr::V4(addr) => addr.to_ipv6_mapped().to_bits(),
        IpAddr::V6(addr) => addr.to_bits(),
    }
}

fn is_mapped(wide: u128) -> bool {
    Ipv6Addr::from_bits(wide).to_ipv4_mapped().is_some()
}

/// The bits of an address after the prefix.
fn host_mask(prefix: u8) -> u128 {
    u128::MAX.checked_shr(u32::from(prefix)).unwrap_or(0)
}

/// The family by the way the address is written, which is what the prefix counts in.
fn written_family(addr: IpAddr) -> Family {
    if addr.is_ipv4() { Family::V4 } else { Family::V6 }
}

impl PartialEq for Cidr {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Cidr {}

impl PartialOrd for Cidr {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// IPv4 before IPv6, then by first address, then the wider range first.
impl Ord for Cidr {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.family(), self.wide()).cmp(&(other.family(), other.wide()))
    }
}

impl Hash for Cidr {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.wide().hash(state);
    }
}

impl FromStr for Cidr {
    type Err = CidrError;

    fn from_str(text: &str) -> Result<Self, CidrError> {
        if text.contains(char::is_whitespace) {
            return Err(CidrError::Space(text.to_owned()));
        }
        if text.contains('%') {
            return Err(CidrError::Zone(text.to_owned()));
        }
        let (before, after) = match text.split_once('/') {
            Some((before, after)) => (before, Some(after)),
            None => (text, None),
        };
        let addr: IpAddr =
            before.parse().map_err(|_| CidrError::Address(text.to_owned(), before.to_owned()))?;
        let family = written_family(addr);
        let after = after.ok_or_else(|| CidrError::NoPrefix(text.to_owned(), family.bits()))?;
        let prefix = plain_number(after).ok_or_else(|| CidrError::Prefix(text.to_owned()))?;
        match u8::try_from(prefix) {
            Ok(prefix) if prefix <= family.bits() => Ok(Self { addr, prefix }),
            _ => Err(CidrError::TooLong(text.to_owned(), family)),
        }
    }
}

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{}/{}", self.addr, self.prefix))
    }
}

impl TryFrom<String> for Cidr {
    type Error = CidrError;

    fn try_from(text: String) -> Result<Self, CidrError> {
        text.parse()
    }
}

impl From<Cidr> for String {
    fn from(cidr: Cidr) -> Self {
        cidr.to_string()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn cidr(text: &str) -> Cidr {
        text.parse().unwrap()
    }

    #[test]
    fn prints_as_given_and_compares_as_network() {
        for (given, network, family) in [
            ("10.0.0.5/8", "10.0.0.0/8", Family::V4),
            ("10.0.0.0/8", "10.0.0.0/8", Family::V4),
            ("192.0.2.1/32", "192.0.2.1/32", Family::V4),
            ("203.0.113.77/0", "0.0.0.0/0", Family::V4),
            ("2001:db8::7/32", "2001:db8::/32", Family::V6),
            ("::1/128", "::1/128", Family::V6),
            ("ff::/0", "::/0", Family::V6),
            ("::ffff:192.0.2.7/120", "192.0.2.0/24", Family::V4),
            ("::ffff:192.0.2.7/128", "192.0.2.7/32", Family::V4),
            ("::ffff:192.0.2.7/96", "0.0.0.0/0", Family::V4),
            ("::ffff:192.0.2.7/95", "::fffe:0:0/95", Family::V6),
            ("::ffff:0.0.0.0/0", "::/0", Family::V6),
        ] {
            let range = cidr(given);
            assert_eq!(range.to_string(), given);
            assert_eq!(range.network().to_string(), network, "{given}");
            assert_eq!(range, cidr(network));
            assert_eq!(range.family(), family, "{given}");
            assert_eq!(HashSet::from([range, cidr(network)]).len(), 1, "{given}");
        }
        assert_ne!(cidr("10.0.0.0/8"), cidr("10.0.0.0/9"));
        assert_ne!(cidr("0.0.0.0/0"), cidr("::/0"));
        assert_ne!(cidr("10.0.0.0/8"), cidr("11.0.0.0/8"));
    }

    #[test]
    fn sorts_by_family_address_and_width() {
        let mut ranges = ["::/0", "10.0.0.0/9", "0.0.0.0/0", "::1/128", "10.0.0.1/8"].map(cidr);
        ranges.sort();
        assert_eq!(
            ranges.map(|r| r.to_string()),
            ["0.0.0.0/0", "10.0.0.1/8", "10.0.0.0/9", "::/0", "::1/128"]
        );
    }

    #[test]
    fn refuses_with_a_sentence() {
        for (text, sentence) in [
            ("10.0.0.0/33", "`10.0.0.0/33` is not an address range: the prefix of an IPv4 range is 0 to 32"),
            ("::/129", "`::/129` is not an address range: the prefix of an IPv6 range is 0 to 128"),
            (
                "::/4294967296",
                "`::/4294967296` is not an address range: the prefix of an IPv6 range is 0 to 128",
            ),
            (
                "10.0.0.0/300",
                "`10.0.0.0/300` is not an address range: the prefix of an IPv4 range is 0 to 32",
            ),
            (
                "10.0.0.3",
                "`10.0.0.3` is not an address range: the prefix is missing, as in `10.0.0.3/32` for one address",
            ),
            ("::1", "`::1` is not an address range: the prefix is missing, as in `::1/128` for one address"),
            (
                "fe80::1%eth0/64",
                "`fe80::1%eth0/64` is not an address range: a zone such as `%eth0` means something on one machine only; leave it out",
            ),
            (" 10.0.0.0/8", "` 10.0.0.0/8` is not an address range: it has a space in it"),
            ("10.0.0.0/8\n", "`10.0.0.0/8\\n` is not an address range: it has a space in it"),
            (
                "10.0.0.0/+8",
                "`10.0.0.0/+8` is not an address range: the prefix is a plain number, without sign or leading zero",
            ),
            (
                "10.0.0.0/08",
                "`10.0.0.0/08` is not an address range: the prefix is a plain number, without sign or leading zero",
            ),
            (
                "10.0.0.0/",
                "`10.0.0.0/` is not an address range: the prefix is a plain number, without sign or leading zero",
            ),
            (
                "10.0.0.0/8/8",
                "`10.0.0.0/8/8` is not an address range: the prefix is a plain number, without sign or leading zero",
            ),
            ("01.2.3.4/8", "`01.2.3.4/8` is not an address range: `01.2.3.4` is not an IPv4 or IPv6 address"),
            ("s::/0", "`s::/0` is not an address range: `s::` is not an IPv4 or IPv6 address"),
            ("10.0/8", "`10.0/8` is not an address range: `10.0` is not an IPv4 or IPv6 address"),
            ("[::1]/128", "`[::1]/128` is not an address range: `[::1]` is not an IPv4 or IPv6 address"),
            ("", "`` is not an address range: `` is not an IPv4 or IPv6 address"),
        ] {
            assert_eq!(text.parse::<Cidr>().unwrap_err().to_string(), sentence);
        }
        let error = Cidr::new("10.0.0.0".parse().unwrap(), 33).unwrap_err();
        assert_eq!(error, "10.0.0.0/33".parse::<Cidr>().unwrap_err());
    }

    #[test]
    fn contains_by_value_not_by_writing() {
        for (range, addr, inside) in [
            ("10.0.0.5/8", "10.255.255.255", true),
            ("10.0.0.5/8", "11.0.0.0", false),
            ("10.0.0.0/8", "::ffff:10.1.2.3", true),
            ("::ffff:10.0.0.0/104", "10.1.2.3", true),
            ("::ffff:10.0.0.0/104", "::ffff:10.1.2.3", true),
            ("::/0", "::ffff:10.1.2.3", false),
            ("::/0", "10.1.2.3", false),
            ("0.0.0.0/0", "::1", false),
            ("::/0", "2001:db8::1", true),
            ("192.0.2.1/32", "192.0.2.1", true),
            ("192.0.2.1/32", "192.0.2.2", false),
        ] {
            assert_eq!(cidr(range).contains(addr.parse().unwrap()), inside, "{range} {addr}");
        }
    }

    #[test]
    fn covers_and_overlaps() {
        for (wide, narrow, covers) in [
            ("10.0.0.0/8", "10.9.0.0/16", true),
            ("10.0.0.0/8", "10.0.0.0/8", true),
            ("10.0.0.0/8", "11.0.0.0/16", false),
            ("0.0.0.0/0", "10.0.0.0/8", true),
            ("::/0", "10.0.0.0/8", false),
            ("::/0", "::ffff:10.0.0.0/104", false),
            ("0.0.0.0/0", "::ffff:10.0.0.0/104", true),
        ] {
            assert_eq!(cidr(wide).covers(&cidr(narrow)), covers, "{wide} {narrow}");
            assert_eq!(cidr(wide).overlaps(&cidr(narrow)), covers, "{wide} {narrow}");
            assert_eq!(cidr(narrow).overlaps(&cidr(wide)), covers, "{narrow} {wide}");
        }
        assert!(!cidr("10.9.0.0/16").covers(&cidr("10.0.0.0/8")));
    }

    #[test]
    fn everything_of_a_family() {
        for family in Family::ALL {
            assert!(Cidr::everything(family).is_everything());
            assert_eq!(Cidr::everything(family).family(), family);
        }
        assert!(cidr("::ffff:0.0.0.0/96").is_everything());
        assert!(!cidr("::/1").is_everything());
        assert!(!cidr("0.0.0.0/1").is_everything());
    }

    #[test]
    fn reads_and_writes_json_through_the_check() {
        let range: Cidr = serde_json::from_str("\"10.0.0.5/8\"").unwrap();
        assert_eq!(serde_json::to_string(&range).unwrap(), "\"10.0.0.5/8\"");
        let error = serde_json::from_str::<Cidr>("\"10.0.0.5\"").unwrap_err();
        assert!(error.to_string().contains("the prefix is missing"), "{error}");
    }
}
