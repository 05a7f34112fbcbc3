//! Ranges of addresses.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

/// A range of addresses, as AWS keeps it: without bits beyond its length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Range {
    address: IpAddr,
    length: u8,
}

impl Range {
    /// Whether it is one of IPv4.
    pub fn is_v4(&self) -> bool {
        self.address.is_ipv4()
    }

    /// Whether an address is in it.
    pub fn contains(&self, address: IpAddr) -> bool {
        self.is_v4() == address.is_ipv4() && masked(address, self.length) == self.address
    }

    /// The address at a place of it.
    pub(crate) fn nth(&self, place: u32) -> IpAddr {
        match self.address {
            IpAddr::V4(address) => IpAddr::V4((u32::from(address).wrapping_add(place)).into()),
            IpAddr::V6(address) => IpAddr::V6((u128::from(address).wrapping_add(place.into())).into()),
        }
    }

    /// The part of it of that number that a subnet has: 64 bits of IPv6.
    pub(crate) fn part6(&self, number: u8) -> Self {
        let address = match self.address {
            IpAddr::V4(_) => self.address,
            IpAddr::V6(address) => IpAddr::V6((u128::from(address) | u128::from(number) << 64).into()),
        };
        Range { address, length: 64 }
    }

    /// The first four addresses of a subnet and its last one are AWS's own.
    pub(crate) fn is_reserved(&self, address: IpAddr) -> bool {
        let IpAddr::V4(found) = address else { return false };
        let place = u32::from(found).wrapping_sub(match self.address {
            IpAddr::V4(first) => first.into(),
            IpAddr::V6(_) => return false,
        });
        let last = u32::MAX.checked_shr(self.length.into()).unwrap_or(0);
        place < 4 || place == last
    }
}

fn masked(address: IpAddr, length: u8) -> IpAddr {
    match address {
        IpAddr::V4(address) => {
            let mask = u32::MAX.checked_shl(32 - u32::from(length.min(32))).unwrap_or(0);
            IpAddr::V4((u32::from(address) & mask).into())
        }
        IpAddr::V6(address) => {
            let mask = u128::MAX.checked_shl(128 - u32::from(length.min(128))).unwrap_or(0);
            IpAddr::V6((u128::from(address) & mask).into())
        }
    }
}

impl FromStr for Range {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let malformed = || format!("CIDR block {text} is malformed");
        let (address, length) = text.split_once('/').ok_or_else(malformed)?;
        let address: IpAddr = address.parse().map_err(|_| malformed())?;
        let digits = !length.is_empty() && length.bytes().all(|byte| byte.is_ascii_digit());
        let length: u8 = length.parse().map_err(|_| malformed())?;
        let longest = if address.is_ipv4() { 32 } else { 128 };
        if !digits || length > longest {
            return Err(malformed());
        }
        Ok(Range { address: masked(address, length), length })
    }
}

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_aws_keeps_them() {
        for (given, kept) in [
            ("10.0.0.0/8", Some("10.0.0.0/8")),
            ("10.1.2.3/16", Some("10.1.0.0/16")),
            ("0.0.0.0/0", Some("0.0.0.0/0")),
            ("2001:DB8:0::1/64", Some("2001:db8::/64")),
            ("::/0", Some("::/0")),
            ("10.0.0.0", None),
            ("10.0.0.0/33", None),
            ("10.0.0.0/+8", None),
            ("10.0.0/8", None),
            ("::/129", None),
        ] {
            assert_eq!(
                given.parse::<Range>().ok().map(|range| range.to_string()).as_deref(),
                kept,
                "{given}"
            );
        }
    }

    #[test]
    fn what_is_aws_own() {
        let range: Range = "10.0.1.0/24".parse().unwrap();
        let is_reserved = |last: u8| range.is_reserved(IpAddr::from([10, 0, 1, last]));
        assert!(is_reserved(0) && is_reserved(3) && is_reserved(255));
        assert!(!is_reserved(4) && !is_reserved(254));
        assert!(range.contains(IpAddr::from([10, 0, 1, 9])) && !range.contains(IpAddr::from([10, 0, 2, 9])));
    }
}
